"""A model of the cache that all programs share: what comes from memory, and what is still there.

Programs run in waves, in the order of their numbers; those of a wave take turns, an access each. What one of
them touches is looked for in the cache; if it is missing it is fetched, and what nobody has used for the
longest time makes room (LRU). A chip is not so tidy: its programs drift apart, so that it fetches as much or
more. What `puzzles_lib.chapters.ch19_what_the_clock_says.profiles` recorded says how much more.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, zip_longest

import numpy as np

from puzzles_lib.runner import Access

LINE = 128
"""Bytes of a line, which a GPU's caches keep or drop as one."""

Block = tuple[Hashable, int]  # what is kept or dropped as one, and its size


def fetched(programs: Sequence[Sequence[Iterable[Block]]], in_flight: int, size: int) -> Counter[Hashable]:
    """How often each block is fetched.

    programs: of each, in launch order, its accesses: the blocks that each of them touches. in_flight:
    programs of a wave. size: of the cache, in what blocks' sizes are counted in.
    """
    held: OrderedDict[Hashable, int] = OrderedDict()
    room, found = size, Counter[Hashable]()
    for first in range(0, len(programs), in_flight):
        for turn in zip_longest(*programs[first : first + in_flight], fillvalue=()):
            for block, needs in chain.from_iterable(turn):
                if block in held:
                    held.move_to_end(block)
                    continue
                found[block] += 1
                held[block] = needs
                room -= needs
                while room < 0:
                    room += held.popitem(last=False)[1]
    return found


def lines(accesses: Sequence[Access], widths: dict[str, int]) -> list[list[list[Block]]]:
    """What the loads of a run touch, for `fetched`: lines, by program and by load.

    accesses: of a run. widths: bytes of an element of each tensor. A tensor begins at a line.
    """
    programs: dict[object, list[list[Block]]] = {}
    for access in accesses:
        mine = programs.setdefault(access.program, [])
        if access.kind == "load":
            good = access.elements[access.mask & ~access.bad]
            touched = np.unique(good * widths[access.argument] // LINE)
            mine.append([((access.argument, int(line)), 1) for line in touched])
    return list(programs.values())


def by_tensor(counts: Counter[Hashable]) -> dict[str, tuple[int, int]]:
    """Of each tensor: lines fetched, and how many different ones, from what `fetched` says of `lines`."""
    found: dict[str, tuple[int, int]] = {}
    for (name, _), times in counts.items():  # type: ignore[misc]
        all_, different = found.get(name, (0, 0))
        found[name] = all_ + times, different + 1
    return found


def tiles(
    order: Sequence[tuple[int, int]], steps: int, sizes: tuple[int, int]
) -> list[list[tuple[Block, ...]]]:
    """A matmul's programs for `fetched`: in each of ``steps`` a block of a's rows, one of b's columns.

    order: pid -> the tile, row and column. sizes: of a block of a, of one of b.
    """
    a, b = (
        {at: [((name, at, step), size) for step in range(steps)] for at in {tile[axis] for tile in order}}
        for axis, (name, size) in enumerate(zip("ab", sizes, strict=True))
    )
    return [list(zip(a[m], b[n], strict=True)) for m, n in order]


def banded(tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    """The tiles of a matmul in bands of ``group`` rows, each walked down its columns; 1: row after row."""
    return [
        (m, n)
        for first in range(0, tiles_m, group)
        for n in range(tiles_n)
        for m in range(first, min(first + group, tiles_m))
    ]


def waves(programs: int, in_flight: int) -> int:
    """How many waves a launch takes."""
    return math.ceil(programs / in_flight)
