"""What several layers keep of one tensor is kept once.

q, k and v read one input; a norm's output feeds a linear layer. The first layer that packs a tensor leaves a
note here, and the others that want the same codes of it find them. A note holds on to nothing: codes live for
as long as a layer keeps them for its backward pass.

Within `torch.compile` the compiler itself merges equal packings of one tensor, and what a norm packed
travels with its output as an attribute.
"""

from typing import NamedTuple

import torch
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary


class Kept(NamedTuple):
    """Codes of a tensor x: of x itself, or of n where x = n · weight + bias.

    words, params: those of a `puzzles_lib.kernels.quantize.PackedTensor`. weight, bias: [C] of a norm, or None.
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


_notes: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # x -> (its version, {key: references})


def remember(x: torch.Tensor, key: Key, kept: Kept) -> None:
    """Note that these are codes of x, as it is now."""
    if torch.compiler.is_compiling():
        if kept.weight is not None or kept.bias is not None:
            x._bit_by_bit_packed = (key, kept)  # what the compiler follows; setattr it does not
    elif not x.is_inference():
        version, notes = _notes.get(x, (None, {}))
        if version != x._version:
            notes = {}
        notes[key] = [None if part is None else TensorWeakRef(part) for part in kept]
        _notes[x] = (x._version, notes)


def find(x: torch.Tensor, key: Key) -> Kept | None:
    """Codes of x that are still kept somewhere, or None."""
    if torch.compiler.is_compiling():
        its, kept = getattr(x, "_bit_by_bit_packed", (None, None))
        return kept if its == key else None
    if x.is_inference():
        return None
    version, notes = _notes.get(x, (None, {}))
    if version != x._version or key not in notes:
        return None
    parts = [None if part is None else part() for part in notes[key]]
    lost = any(now is None and then is not None for now, then in zip(parts, notes[key], strict=True))
    return None if lost else Kept(*parts)


def forget() -> None:
    """Drop all notes."""
    _notes.clear()
