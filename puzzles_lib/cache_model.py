"""Model the cache that all programs share: what comes from memory, and what is still in the cache.

Programs run in waves, in the order of their numbers. The programs of a wave take turns with one access each.
If a line is missing in the cache it is fetched, and the least recently used line is dropped (LRU). On a real
GPU programs drift apart, so it fetches as much or more. The profiles recorded in
`puzzles_lib.chapters.ch19_what_the_clock_says.profiles` show how much more.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from puzzles_lib.runner import Access

LINE = 128
"""The bytes of a line, which a GPU's caches keep or drop as a whole."""

Block = tuple[Hashable, int]  # what is kept or dropped as a whole, and its size


def fetched(programs: Sequence[Sequence[Iterable[Block]]], in_flight: int, size: int) -> Counter[Hashable]:
    """Return how often each block is fetched.

    programs: for each program, in launch order, the blocks of each of its accesses. in_flight: the number of
    programs of a wave. size: the size of the cache, in the unit of the blocks' sizes.
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
    """Return the cache lines that the loads of a run access, by program and by load, for `fetched`.

    accesses: those of a run. widths: the bytes of an element of each tensor. Each tensor begins at a line.
    """
    programs: dict[object, list[list[Block]]] = {}
    for access in accesses:
        mine = programs.setdefault(access.program, [])
        if access.kind == "load":
            good = access.elements[access.mask & ~access.bad]
            touched = np.unique(good * widths[access.argument] // LINE)
            mine.append([((access.argument, int(line)), 1) for line in touched])
    return list(programs.values())


def by_tensor(counts: Counter[Any]) -> dict[str, tuple[int, int]]:
    """Return for each tensor the lines fetched, and how many different ones, from the result of `fetched`."""
    found: dict[str, tuple[int, int]] = {}
    for (name, _), times in counts.items():
        all_, different = found.get(name, (0, 0))
        found[name] = all_ + times, different + 1
    return found


def tiles(
    order: Sequence[tuple[int, int]], steps: int, sizes: tuple[int, int]
) -> list[list[tuple[Block, ...]]]:
    """Return a matmul's programs for `fetched`: in each of ``steps``, a block of a's rows and of b's columns.

    order: pid -> row and column of its tile. sizes: those of a block of a, and of a block of b.
    """
    a, b = (
        {at: [((name, at, step), size) for step in range(steps)] for at in {tile[axis] for tile in order}}
        for axis, (name, size) in enumerate(zip("ab", sizes, strict=True))
    )
    return [list(zip(a[m], b[n], strict=True)) for m, n in order]


def banded(tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    """Return the tiles of a matmul in bands of ``group`` rows, each walked by columns; 1: row by row."""
    return [
        (m, n)
        for first in range(0, tiles_m, group)
        for n in range(tiles_n)
        for m in range(first, min(first + group, tiles_m))
    ]


def waves(programs: int, in_flight: int) -> int:
    """Return how many waves a launch takes."""
    return math.ceil(programs / in_flight)
