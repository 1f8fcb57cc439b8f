"""What several layers keep of one tensor is kept once.

q, k and v read one input; a norm's output feeds a linear layer. The first layer that packs a tensor leaves a
note here, and the others that want the same codes of it find them. A note lives as long as its tensor does,
so that a forward pass that is run again, by gradient checkpointing, finds what the first one found.

Within `torch.compile` the compiler itself merges equal packings of one tensor, and what a norm packed
travels with its output as an attribute.
"""

from typing import NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary


class Kept(NamedTuple):
    """Codes of a tensor x: of x itself, or of n where x = n · weight + bias.

    words, params: those of a `puzzles_lib.kernels.quantize.PackedTensor`. weight, bias: [C], of a norm.
    """

    words: torch.Tensor
    params: torch.Tensor
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None


class Key(NamedTuple):
    """The format of codes."""

    bits: int
    group_size: int
    dtype: torch.dtype
    rounding: str


_notes: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # x -> (its version, {key: codes})


def remember(x: torch.Tensor, key: Key, kept: Kept) -> None:
    """Note that these are codes of x, as it is now."""
    if torch.compiler.is_compiling():
        if kept.weight is not None or kept.bias is not None:
            x._bit_by_bit_packed = (key, kept)  # what the compiler follows; setattr it does not
    elif not x.is_inference():
        version, notes = _notes.get(x, (None, {}))
        if version != x._version:
            notes = {}
        _notes[x] = (x._version, notes | {key: kept})


def find(x: torch.Tensor, key: Key) -> Kept | None:
    """Codes of x, as it is now, that some layer has made, or None."""
    if torch.compiler.is_compiling():
        its, kept = getattr(x, "_bit_by_bit_packed", (None, None))
        return kept if its == key else None
    version, notes = (None, {}) if x.is_inference() else _notes.get(x, (None, {}))
    return notes.get(key) if version is not None and version == x._version else None


def forget() -> None:
    """Drop all notes."""
    _notes.clear()
