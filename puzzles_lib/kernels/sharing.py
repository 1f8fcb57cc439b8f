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
            # Copies, for a caller in another graph, before whose backward FSDP2 may have freed the norm's
            # own; within a graph the compiler leaves them out.
            copies = (None if t is None else t.detach().clone() for t in (kept.weight, kept.bias))
            x._bit_by_bit_packed = (key, Kept(kept.words, kept.params, *copies))  # setattr it cannot follow
    elif not x.is_inference():
        version, notes = _notes.get(x, (None, {}))
        if version != x._version:
            notes = {}
        _notes[x] = (x._version, notes | {key: kept})


def find(x: torch.Tensor, key: Key) -> Kept | None:
    """Codes of x, as it is now, that some layer has made, or None.

    None, too, where they need a norm's weight that FSDP2 has freed: it shards norm and caller apart, and
    would not gather it again in time for the caller's backward.
    """
    if torch.compiler.is_compiling():
        its, kept = getattr(x, "_bit_by_bit_packed", (None, None))
        return kept if its == key else None
    version, notes = (None, {}) if x.is_inference() else _notes.get(x, (None, {}))
    kept = notes.get(key) if version is not None and version == x._version else None
    return None if kept is None or _freed(kept.weight) or _freed(kept.bias) else kept


def _freed(parameter: torch.Tensor | None) -> bool:
    return parameter is not None and parameter.untyped_storage().nbytes() < parameter.nbytes


def forget() -> None:
    """Drop all notes."""
    _notes.clear()
