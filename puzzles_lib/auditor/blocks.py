"""Find sizes that count the blocks of another one, such as the columns of a tensor of scales.

A call with one of the two sizes changed alone is one that nobody makes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

PER = (16, 32, 64, 128, 256, 512)  # elements of a block along an axis, if no argument says it
MOST_AXES = 3  # that are named, of those with one size

Counts = Mapping[int, tuple[int, int]]
"""For a size: which other size it counts the blocks of, and how long a block is."""


def counts(leaves: Sequence[Any]) -> Counts:
    """Return the sizes of a call's tensors that count the blocks of another size.

    One tensor must have as many axes as another, and along each the same size or the number of its blocks. A
    size that a tensor has for any other reason is left out.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    said = [leaf for leaf in leaves if type(leaf) is int and leaf > 1]
    per = dict.fromkeys((*said, *PER))
    found: dict[int, tuple[int, int]] = {}
    explained: set[tuple[int, int]] = set()  # a tensor's number, and an axis
    for number, scales in enumerate(tensors):
        if not scales.is_floating_point() and scales.dtype != torch.uint8:
            continue
        for many in tensors:
            for block in per if many.dim() == scales.dim() else ():
                for axis, of in _counted(scales.shape, many.shape, block):
                    if found.setdefault(scales.shape[axis], (of, block)) == (of, block):
                        explained.add((number, axis))
    for number, tensor in enumerate(tensors):
        for axis, size in enumerate(tensor.shape):
            if (number, axis) not in explained:
                found.pop(size, None)
    return found


def _counted(few: Sequence[int], many: Sequence[int], block: int) -> Iterator[tuple[int, int]]:
    """Yield the axes along which one shape counts another's blocks, and the other's size."""
    every = [(axis, n, of) for axis, (n, of) in enumerate(zip(few, many, strict=True))]
    if all(n in (of, -(-of // block)) for _, n, of in every):
        yield from ((axis, of) for axis, n, of in every if 1 < n < of)


def together(size: int, other: int, known: Counts) -> dict[int, int]:
    """Return what replaces a size, and those that count its blocks. known: as `counts` returns it."""
    found = {size: other}
    for _ in known:
        found |= {n: -(-found[of] // block) for n, (of, block) in known.items() if of in found and n != size}
    return found


def axes(leaves: Sequence[Any], told: Sequence[str]) -> dict[int, str]:
    """Return the axes with each size of a call's tensors, such as ``"x.shape[1] = w.shape[0]"``.

    told: the leaves' names.
    """
    found: dict[int, list[str]] = {}
    for leaf, name in zip(leaves, told, strict=True):
        for axis, size in enumerate(leaf.shape if isinstance(leaf, torch.Tensor) else ()):
            found.setdefault(size, []).append(f"{name}.shape[{axis}]")
    return {size: few(list(dict.fromkeys(every))) for size, every in found.items()}


def few(every: Sequence[str]) -> str:
    if len(every) <= MOST_AXES:
        return " = ".join(every)
    return f"{' = '.join(every[: MOST_AXES - 1])} (and {len(every) - MOST_AXES + 1} more)"


def listed(parts: Sequence[str]) -> str:
    """Return a list in words, such as ``"n=9, x.shape[0] = 36 and y.shape[0] = 4"``."""
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last


def are_offsets(tensor: torch.Tensor) -> bool:
    """Return whether integers say where each of ragged rows begins, and where the last one ends."""
    return tensor.dim() == 1 and len(tensor) > 1 and int(tensor[0]) == 0 and bool((tensor.diff() >= 0).all())
