"""Skip most iterations of a long loop, in runs of which only accesses are judged.

A loop over a pretended size can have billions of iterations. Its first ones run, two in the middle, and its
last ones. What the loop carries must move by the same step in each iteration, so that it can be computed for
any of them. If it doesn't, and an address or a condition may depend on it, all iterations run. An integer
that leaves its dtype on the way does so in an iteration that runs. Numbers that are only computed with and
stored keep the last values that they had.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from puzzles_lib.runner.lanes import NARROW_INTEGERS, BlockPointer, Lanes
from puzzles_lib.translator.ir import Function, Module, Operation, Value

MANY = 32  # iterations; shorter loops run whole
FIRST, MIDDLE, LAST = 4, 2, 4

State = Sequence[Any]
Turn = Callable[[int, State], State]

_COMPUTES = ("arith.", "math.", "tt.broadcast", "tt.cat", "tt.clampf", "tt.dot", "tt.expand_dims",
             "tt.extern_elementwise", "tt.fp_to_fp", "tt.join", "tt.mulhiui", "tt.precise_", "tt.reduce",
             "tt.reshape", "tt.scan", "tt.splat", "tt.split", "tt.trans", "tt.unsplat",
             "ub.poison")  # fmt: skip
_MOVES_DATA = ("tt.store", "tt.atomic_rmw")  # with the data as operand 1


def run(
    count: int,
    turn: Turn,
    carried: State,
    skipped: Callable[[], None],
    is_data: Callable[[int], bool],
) -> State:
    """Return what a loop of ``count`` iterations leaves.

    turn: runs an iteration, given its number and what is carried to it. skipped: called before iterations are
    left out. is_data: whether no access depends on a carried value, given its place; see `is_data`.
    """
    states = [carried]
    for number in range(FIRST):
        states.append(turn(number, states[-1]))
    state, done = states[-1], FIRST
    steps = _steps(is_data, *states[-3:])
    if steps is not None:
        skipped()
        middle = (count - MIDDLE) // 2
        for begin, end in ((middle, middle + MIDDLE), (count - LAST, count)):
            for number in sorted({*_crossings(state, steps, done, begin), *range(begin, end)}):
                state = turn(number, _moved(state, steps, number - done))
                done = number + 1
    for number in range(done, count):
        state = turn(number, state)
    return state


def _parts(value: Any) -> tuple[Lanes, ...]:
    """Return the numbers that a carried value is made of."""
    if isinstance(value, BlockPointer):
        return (value.base, *value.offsets)
    return (value,) if isinstance(value, Lanes) else ()


def _steps(is_data: Callable[[int], bool], *states: State) -> list[list[np.ndarray | None]] | None:
    """Return by what each part of each carried value moves; None for one that keeps its value.

    None instead of the list if something moves that can't be computed. states: before three iterations.
    """
    found = []
    for place, values in enumerate(zip(*states, strict=True)):
        steps = [_step(*parts) for parts in zip(*map(_parts, values), strict=True)]
        if any(step is NotImplemented for step in steps):
            if not is_data(place):
                return None
            steps = [None] * len(steps)
        found.append(steps)
    return found


def _step(first: Lanes, second: Lanes, third: Lanes) -> Any:
    """Return by what an integer moves in an iteration; None for what stays; NotImplemented for the rest."""
    if first.data.dtype.kind not in "iu" or first.row.is_float:
        stays = np.array_equal(first.data, second.data) and np.array_equal(second.data, third.data)
        return None if stays else NotImplemented
    before, after = second.data - first.data, third.data - second.data  # of addresses, modulo 2^64
    same = before.shape == after.shape and np.array_equal(before, after)
    return after if same else NotImplemented


def _moved(state: State, steps: list[list[np.ndarray | None]], count: int) -> State:
    """Return what is carried after ``count`` more iterations."""
    made: list[Any] = []
    for value, moves in zip(state, steps, strict=True):
        parts = [
            part if step is None else _with(part, part.data + step * np.array(count).astype(step.dtype))
            for part, step in zip(_parts(value), moves, strict=True)
        ]
        if isinstance(value, BlockPointer):
            made.append(value._replace(base=parts[0], offsets=tuple(parts[1:])))
        else:
            made.append(parts[0] if parts else value)
    return made


def _with(lanes: Lanes, data: np.ndarray) -> Lanes:
    return Lanes(data, lanes.row, lanes.labels)


def _crossings(state: State, steps: list[list[np.ndarray | None]], done: int, begin: int) -> Iterator[int]:
    """Yield the iterations from ``done`` to ``begin`` in which a narrow integer first leaves its dtype."""
    for value, moves in zip(state, steps, strict=True):
        for part, step in zip(_parts(value), moves, strict=True):
            if step is None or part.row not in NARROW_INTEGERS or not step.any():
                continue
            limits = np.iinfo(part.data.dtype)
            data, by = np.broadcast_arrays(part.data.astype(np.int64), step.astype(np.int64))
            room = np.where(by > 0, limits.max - data, data - limits.min)[by != 0]
            number = done + int((room // np.abs(by[by != 0])).min())
            if number < begin:
                yield number


def is_data(loop: Operation, place: int, module: Module) -> bool:
    """Return whether what a loop carries is only computed with and stored: no access depends on it."""
    every = next(ops for ops in map(_all, module.functions.values()) if loop in ops)
    parents = {last: op for op in every for region in op.regions for last in _lasts(region)}
    todo: list[Value] = [loop.regions[0].entry.arguments[1 + place], loop.results[place]]
    seen = set(todo)
    while todo:
        value = todo.pop()
        for user in value.users:
            found: Sequence[Value] = ()
            places = [number for number, each in enumerate(user.operands) if each is value]
            if user.name == "scf.yield" and (parent := parents.get(user)):
                found = [parent.results[number] for number in places]
                if parent.name == "scf.for":
                    found = [*found, *(parent.regions[0].entry.arguments[1 + number] for number in places)]
            elif user.name == "scf.for" and min(places) >= 3:
                inside = user.regions[0].entry.arguments
                found = [each for n in places for each in (inside[n - 2], user.results[n - 3])]
            elif user.name in _MOVES_DATA and places == [1]:
                pass
            elif _computes(user, module):
                found = user.results
            else:
                return False
            todo += [each for each in found if each not in seen]
            seen.update(found)
    return True


def _computes(op: Operation, module: Module) -> bool:
    """Return whether an operation only computes, as does a function without accesses and branches."""
    if op.name != "tt.call":
        return op.name.startswith(_COMPUTES)
    function = module.functions[op.attributes["callee"].removeprefix("@").strip('"')]
    return all(each.name == "tt.return" or _computes(each, module) for each in _all(function))


def _all(function: Function) -> list[Operation]:
    """Return all operations of a function, also those in regions."""
    return [each for block in function.region.blocks for op in block.operations for each in _within(op)]


def _within(op: Operation) -> Iterator[Operation]:
    yield op
    for region in op.regions:
        for block in region.blocks:
            for each in block.operations:
                yield from _within(each)


def _lasts(region: Any) -> Iterator[Operation]:
    for block in region.blocks:
        if block.operations:
            yield block.operations[-1]
