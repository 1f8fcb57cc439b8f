"""Check what a kernel promises to the compiler about its values, and what a false promise leads to.

``tl.multiple_of``, ``tl.max_contiguous`` and ``tl.max_constancy`` compute nothing: the compiler believes
them. A false promise alone does no harm, and some are usual: a tile of ``rows % M`` is promised to be
contiguous, and is not at the place where it wraps. Harm is done if one instruction loads or stores several
lanes, at the first lane's address and under the first lane's mask. The other lanes must then be next to it
and have the same mask, and the address must be a multiple of the instruction's size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from puzzles_lib.source import Site

MULTIPLE, CONTIGUOUS, CONSTANT = "multiple_of", "max_contiguous", "max_constancy"
_SHOWN = 4  # values of a group that is not as promised

TakenAtOnce = Callable[[str, Site, tuple[int, ...], int], Sequence[np.ndarray]]
"""The lanes that one instruction takes: of an access's kind, its line, its block's shape, an element's bytes.

int [instructions, lanes of each], of the flattened block; one array for each access that may be meant.
"""


@dataclass(frozen=True)
class Promise:
    """A false promise. found: what is true instead, in words."""

    hint: str
    sizes: tuple[int, ...]
    found: str
    site: Site


@dataclass(frozen=True)
class Harm:
    """An access whose instruction takes several lanes at once, although they don't belong together.

    lanes: their flat indices in the block. size: the instruction's size in bytes. why: ``"mask"``, some lanes
        are on and some off; ``"apart"``, they are not next to each other in memory; ``"misaligned"``, the
        address is not a multiple of the size.
    """

    kind: str
    site: Site
    shape: tuple[int, ...]
    lanes: tuple[int, ...]
    size: int
    why: str


def untrue(hint: str, values: np.ndarray, sizes: Sequence[int], step: int = 1) -> str:
    """Return in words how the values differ from what a hint promises; "" if the hint is true.

    sizes: the hint's numbers, one for each axis. step: the distance of neighboring values; for addresses, the
        bytes of an element.
    """
    if values.dtype.kind in "iu" and values.itemsize < 8:  # sizes may be larger than they hold
        values = values.astype(np.int64)
    for axis, size in enumerate(sizes):
        if size < 2 or (found := _untrue_along(hint, np.atleast_1d(values), axis, size, step)) is None:
            continue
        if values.size == 1:
            return f"it is {values.item()}"
        first, many = found
        place = ", ".join(
            f"{i}..{i + many - 1}" if n == axis and many > 1 else str(i) for n, i in enumerate(first)
        )
        group = np.moveaxis(values, axis, -1)[(*first[:axis], *first[axis + 1 :])]
        told = ", ".join(map(str, group[first[axis] : first[axis] + many].tolist()))
        dots = ", ..." if many == _SHOWN < size else ""
        return f"element{'s'[: many > 1]} {place} of it {'are' if many > 1 else 'is'} {told}{dots}"
    return ""


def _untrue_along(
    hint: str, values: np.ndarray, axis: int, size: int, step: int
) -> tuple[tuple[int, ...], int] | None:
    """Return the place of the first values along an axis that break the promise, and how many they are."""
    along = np.moveaxis(values, axis, -1)
    length = min(size, along.shape[-1])
    if along.shape[-1] % length:
        return None  # the compiler counts in powers of two, and so do blocks
    groups = along.reshape(*along.shape[:-1], -1, length)
    first = groups[..., :1]
    if hint == CONSTANT:
        wrong = (groups != first).any(-1)
    else:
        runs = groups == first + (np.arange(length) * step).astype(groups.dtype)
        wrong = ~runs.all(-1)
        if hint == MULTIPLE:
            if not (along % size).any():
                return None
            wrong |= first[..., 0] % size != 0
    if not wrong.any():
        return None
    at = np.unravel_index(int(wrong.argmax()), wrong.shape)
    many = min(length, _SHOWN)
    if hint == MULTIPLE:
        many, inside = 1, np.flatnonzero(groups[at] % size)
        start = int(at[-1]) * length + int(inside[0])
    else:
        start = int(at[-1]) * length
    others = [int(i) for i in at[:-1]]
    return (*others[:axis], start, *others[axis:]), many


def harm(
    kind: str, site: Site, pointers: np.ndarray, mask: np.ndarray | None, size: int, at_once: TakenAtOnce
) -> Harm | None:
    """Return the first lanes of an access that must not be taken at once; None if there are none.

    size: bytes of an element. at_once: which lanes one instruction takes.
    """
    addresses = pointers.ravel()
    on = np.ones(addresses.size, bool) if mask is None else mask.ravel()
    for lanes in at_once(kind, site, pointers.shape, size):
        many = lanes.shape[1]
        each = on[lanes]
        whole = each.all(1)
        starts = addresses[lanes[:, 0]]
        follow = starts[:, None] + np.uint64(size) * np.arange(many, dtype=np.uint64)
        wrong = {
            "mask": each.any(1) & ~whole,
            "apart": whole & (addresses[lanes] != follow).any(1),
            "misaligned": whole & (starts % np.uint64(many * size) != 0),
        }
        for why, where in wrong.items():
            if where.any():
                first = tuple(int(lane) for lane in lanes[int(where.argmax())])
                return Harm(kind, site, pointers.shape, first, many * size, why)
    return None


__all__ = ["CONSTANT", "CONTIGUOUS", "MULTIPLE", "Harm", "Promise", "TakenAtOnce", "harm", "untrue"]
