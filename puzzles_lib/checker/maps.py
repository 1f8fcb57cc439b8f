"""Turn accesses into a map of a tensor: which programs accessed each element, and how often."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from puzzles_lib.drawing.accesses import TensorMap
from puzzles_lib.drawing.layout import plural
from puzzles_lib.runner import Access, Program
from puzzles_lib.source import Site

MOST_NAMED = 64  # up to this many programs that share an element are listed; beyond that, only their number


def tensor_map(
    name: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    accesses: Sequence[Access],
    grid: tuple[int, ...],
    program: Program | None,
    counted: bool = True,
) -> TensorMap:
    """Return the map of what these accesses did to one tensor. program: the one to outline.

    counted: whether to count the lanes; not useful if a time limit ended the run.
    If the kernel stores to the tensor, the colors show stores, and loads are only mentioned in words.
    """
    size = math.prod(shape)
    kinds = {access.kind for access in accesses}
    drawn = [a for a in accesses if a.kind != "load"] if kinds - {"load"} else list(accesses)
    owner, sharers = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    last, outlined = np.full(size, -1, np.int64), np.zeros(size, bool)
    group, turn = np.zeros(size, np.int64), np.zeros(size, np.int64)
    groups: dict[tuple[int, ...], int] = {(): 0}
    turns: Counter[Site] = Counter()  # how often the outlined program has reached each line
    lanes = masked_off = 0
    numbers, again = set(), False
    for access in drawn:
        number = int(np.ravel_multi_index(access.program[: len(grid)], grid))
        on = access.mask & ~access.bad & (access.elements >= 0) & (access.elements < size)
        elements = access.elements[on]
        lanes += int(on.sum())
        masked_off += int((~access.mask).sum())
        new = np.unique(elements[last[elements] != number])
        owner[new] = np.where(owner[new] < 0, number, owner[new])
        sharers[new] += 1
        _join(group, groups, new, number)
        last[new] = number
        if len(elements):
            numbers.add(number)
        if access.program == program:
            outlined[elements] = True
            turns[access.site] += 1
            again |= bool(((turn[elements] > 0) & (turn[elements] != turns[access.site])).any())
            turn[elements] = np.where(turn[elements] == 0, turns[access.site], turn[elements])
    masked = [_lane_places(a, shape)[~a.mask] for a in drawn if a.program == program and not a.mask.all()]
    bad_lanes = [(a, a.elements[a.bad]) for a in accesses if a.bad.any()]
    bad = np.unique(np.concatenate([e for _, e in bad_lanes])) if bad_lanes else np.zeros(0, np.int64)
    own = [elements for access, elements in bad_lanes if access.program == program]
    axes = max(len(shape), 1)
    return TensorMap(
        name=name,
        dims=dims,
        shape=shape,
        verb=_verb(kinds),
        owner=owner.reshape(shape),
        sharers=sharers.reshape(shape),
        outlined=outlined.reshape(shape),
        masked=np.concatenate(masked) if masked else np.zeros((0, axes), np.int64),
        bad=_places(bad, shape),
        beyond=_places(np.unique(np.concatenate(own)), shape) if own else None,
        facts=_facts(sharers, lanes * counted, masked_off * counted, len(numbers), accesses, drawn),
        alarm=_alarm(bad_lanes, bad, size),
        group=group.reshape(shape),
        groups=tuple(groups),
        turn=turn.reshape(shape),
        again=again,
    )


def _join(group: np.ndarray, groups: dict[tuple[int, ...], int], elements: np.ndarray, number: int) -> None:
    """Add a program to the ones that accessed these elements. groups: the number of each set of programs."""
    names, before = list(groups), group[elements]
    for one in np.unique(before):
        if len(names[one]) < MOST_NAMED:
            group[elements[before == one]] = groups.setdefault((*names[one], number), len(groups))


def _verb(kinds: set[str]) -> str:
    words = {"load": "loaded", "store": "stored", "atomic": "updated by atomics"}
    return " and ".join(words[kind] for kind in words if kind in kinds) or "not touched"


def _facts(
    sharers: np.ndarray,
    lanes: int,
    masked_off: int,
    programs: int,
    accesses: Sequence[Access],
    drawn: Sequence[Access],
) -> tuple[str, ...]:
    touched = int((sharers > 0).sum())
    facts = [f"{touched} of {sharers.size} elements"]
    twice = np.unique(np.concatenate([_stored_twice(a) for a in drawn] or [np.zeros(0, np.int64)]))
    if touched:
        least, most = int(sharers[sharers > 0].min()), int(sharers.max())
        if programs == 1:
            facts[0] += ", by 1 program"
        elif most == least:
            facts[0] += f", each by {plural(most, 'program')}"
        else:
            facts[0] += f", each by {least} to {plural(most, 'program')}"
        if lanes > int(sharers.sum()):
            facts.append(f"{lanes} {'loads' if drawn[0].kind == 'load' else 'stores'} in all")
    if len(twice):
        facts.append(f"{plural(len(twice), 'element')} stored by several lanes at once")
    if len(drawn) < len(accesses):
        loaded = _elements(a for a in accesses if a.kind == "load")
        if not np.array_equal(loaded, _elements(drawn)):
            facts.append(f"{len(loaded)} elements also loaded")
    if masked_off:
        facts.append(f"{plural(masked_off, 'lane')} masked off")
    return tuple(facts)


def _elements(accesses: Iterable[Access]) -> np.ndarray:
    """Return the elements that these accesses touch, sorted."""
    return np.unique(np.concatenate([a.elements[a.mask & ~a.bad] for a in accesses]))


def _stored_twice(access: Access) -> np.ndarray:
    """Return the elements to which several lanes of one store write."""
    if access.kind != "store":
        return np.zeros(0, np.int64)
    elements, counts = np.unique(access.elements[access.mask & ~access.bad], return_counts=True)
    return elements[counts > 1]


def _alarm(bad_lanes: Sequence[tuple[Access, np.ndarray]], bad: np.ndarray, size: int) -> str:
    """Say how many lanes are out of bounds, and at which elements."""
    if not bad_lanes:
        return ""
    lanes = sum(len(elements) for _, elements in bad_lanes)
    ends = np.flatnonzero(np.diff(bad) != 1)
    firsts, lasts = bad[np.append(0, ends + 1)], bad[np.append(ends, len(bad) - 1)]
    runs = [f"{a}" if a == b else f"{a}..{b}" for a, b in zip(firsts[:2], lasts[:2], strict=True)]
    where = f"element{'s' * (len(bad) != 1)} {', '.join(runs)}"
    if len(firsts) > 2:
        where += f" and {plural(len(firsts) - 2, 'more run')} up to {lasts[-1]}"
    return f"{plural(lanes, 'lane')} out of bounds: {where}; the tensor has {size}"


def _places(elements: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the coordinates [..., axes] of flat elements; past the end, the first axis goes on."""
    if len(shape) <= 1:
        return elements[..., None]
    places, rest = [], elements
    for stride in (math.prod(shape[axis + 1 :]) for axis in range(len(shape))):
        places.append(rest // max(stride, 1))
        rest = rest % max(stride, 1)
    return np.stack(places, -1)


def _lane_places(access: Access, shape: tuple[int, ...]) -> np.ndarray:
    """Return the coordinates [lanes..., axes] that the lanes of a tile *mean*.

    Lane [i, j] of a tile may mean column 104 of 100, although in memory that is column 4 of the next row.
    If each axis of the tile follows one axis of the tensor, or stays in place, the coordinates are counted
    from the first lane. Otherwise they are those of the memory. So they are if active lanes pass an edge,
    because then the kernel treats the tensor as flat.
    """
    flat = _places(access.elements, shape)
    if len(shape) < 2 or not access.elements.size:
        return flat
    elements = access.elements
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    meant = np.broadcast_to(flat[(0,) * elements.ndim], flat.shape).copy()
    used = set()
    for tile_axis, length in enumerate(elements.shape):
        if length == 1:
            continue
        steps = np.diff(elements, axis=tile_axis)
        ours = steps[tuple(slice(None) if a == tile_axis else slice(1) for a in range(elements.ndim))]
        step = int(ours.max())  # 0 if lanes share an element
        fitting = [a for a, s in enumerate(strides) if s == step and a not in used]
        if not (steps == ours).all() or not np.isin(ours, (0, step)).all() or not (fitting or step == 0):
            return flat
        if step == 0:
            continue
        axis = max(fitting, key=lambda a: shape[a])
        used.add(axis)
        places = np.insert(np.cumsum(ours != 0), 0, 0)
        along = [1] * elements.ndim
        along[tile_axis] = length
        meant[..., axis] += places.reshape(along)
    on = meant[access.mask & ~access.bad]
    return meant if ((on >= 0) & (on < shape)).all() else flat
