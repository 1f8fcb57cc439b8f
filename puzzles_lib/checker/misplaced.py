"""Say which element a lane of a vector kernel loads or stores, and which one it should.

The spec tells which element of an input each result depends on, if it's one. A recorded run tells which lane
loads what, and where it stores the result. If the two disagree in the same way everywhere, the report says
how: lanes that count the wrong way, addresses that are all too high, programs that begin in a wrong place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from puzzles_lib.checker.expected import evaluate
from puzzles_lib.checker.naming import begins_late
from puzzles_lib.checker.report import Verdict
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import Access, Run

MOST_ELEMENTS = 1 << 14  # of an input, because the spec runs twice for each bit of an index


@dataclass(frozen=True)
class _Lanes:
    """The lanes of a program whose element is known.

    numbers: of the lanes. found, wanted: the elements that they load or store, and that they should.
    others: the elements of z that the loaded ones are for, or those of x that the stored ones are from.
    """

    numbers: np.ndarray
    found: np.ndarray
    wanted: np.ndarray
    others: np.ndarray

    def step(self, elements: np.ndarray) -> int | None:
        """Return by how much the elements differ from lane to lane; None if that isn't always the same."""
        steps = np.unique(np.diff(elements))
        return int(steps[0]) if len(steps) == 1 and (np.diff(self.numbers) == 1).all() else None


def misplaced(
    verdict: Verdict, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], ran: Run
) -> Verdict | None:
    """Return the same fault with the first lane that has a wrong element; None if it isn't clear.

    ran: a run whose accesses were kept. Each program must have one load of the input and one store.
    """
    result = puzzle.results[0]
    if len(puzzle.results) > 1 or len(puzzle.grid(case)) > 1 or len(result.dims) != 1:
        return None
    bad = next((access for access in ran.accesses if access.bad.any()), None)
    loaded = {access.argument for access in ran.accesses if access.kind == "load"}
    source = next((each for each in puzzle.inputs if {each.name} == loaded and len(each.dims) == 1), None)
    if source is None or (needs := _needs(puzzle, case, inputs, source)) is None:
        return None
    pairs = _pairs(ran, result.name)
    is_store = bad is not None and bad.kind == "store"
    known = {program: _of_store(*pair, needs) if is_store else _of_load(*pair, needs)
             for program, pair in sorted(pairs.items())}  # fmt: skip
    lanes = {program: each for program, each in known.items() if each.numbers.size}
    if all((each.found == each.wanted).all() for each in lanes.values()):
        text = begins_late(ran, result, puzzle, case) if bad is not None and pairs else ""
        return replace(verdict, diagnosis=text) if text else None
    names = (result.name, source.name) if is_store else (source.name, result.name)
    text = _of_direction(lanes, names, is_store) or _of_start(lanes, names, is_store, case, puzzle, inputs)
    return replace(verdict, diagnosis=text) if text else None


def _needs(
    puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], source: Argument
) -> np.ndarray | None:
    """Return, for each result, the index of the only element of an input that it depends on; else None."""
    size, name = len(inputs[source.name]), puzzle.results[0].name
    if not 1 < size <= MOST_ELEMENTS or not inputs[source.name].is_floating_point():
        return None
    index = torch.arange(size)
    values = torch.rand(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    try:
        before = evaluate(puzzle, case, {**inputs, source.name: values})[name]
        found = torch.zeros(len(before), dtype=torch.int64)
        for bit in range((size - 1).bit_length()):
            has = (index >> bit & 1).bool()
            changed, other = (
                evaluate(puzzle, case, {**inputs, source.name: values + which})[name] != before
                for which in (has, ~has)
            )
            if (changed == other).any():  # it depends on several elements, or on none
                return None
            found |= changed.long() << bit
    except Exception:
        return None
    return found.numpy()


def _pairs(ran: Run, result: str) -> dict[int, tuple[Access, Access]]:
    """Return each program's load and store; nothing if a program has several, or other lanes in them."""
    loads: dict[int, list[Access]] = {}
    stores: dict[int, list[Access]] = {}
    for access in ran.accesses:
        each = loads if access.kind == "load" else stores
        each.setdefault(access.program[0], []).append(access)
    found = {}
    for program, several in loads.items():
        others = stores.get(program, [])
        if not len(several) == len(others) == 1:
            return {}
        load, store = several[0], others[0]
        alike = load.elements.shape == store.elements.shape and load.elements.ndim == 1 < load.elements.size
        if not alike or store.kind != "store" or store.argument != result:
            return {}
        found[program] = load, store
    return found


def _of_load(load: Access, store: Access, needs: np.ndarray) -> _Lanes:
    """Return the lanes of a load whose result exists."""
    exists = store.mask & (store.elements >= 0) & (store.elements < len(needs)) & load.mask
    numbers = exists.nonzero()[0]
    places = store.elements[numbers]
    return _Lanes(numbers, load.elements[numbers], needs[places], places)


def _of_store(load: Access, store: Access, needs: np.ndarray) -> _Lanes:
    """Return the lanes of a store that have loaded an element that exists."""
    belongs = {int(element): place for place, element in enumerate(needs)}
    numbers = np.array([lane for lane in (load.mask & store.mask).nonzero()[0]
                        if int(load.elements[lane]) in belongs], dtype=np.int64)  # fmt: skip
    elements = load.elements[numbers]
    wanted = np.array([belongs[int(element)] for element in elements], dtype=np.int64)
    return _Lanes(numbers, store.elements[numbers], wanted, elements)


def _fact(
    lanes: _Lanes, at: int, program: int, names: tuple[str, str], is_store: bool, last: str = ""
) -> str:
    """Say what a lane loads or stores, and what it should. at: the place of the lane among those known.

    last: what to say of the element that it should load.
    """
    here, there = names
    who = f"lane {lanes.numbers[at]} of program {program}"
    wanted, found, other = lanes.wanted[at], lanes.found[at], lanes.others[at]
    if is_store:
        return f"{there}[{other}] belongs in {here}[{wanted}]{last}, but {who} stores it to {here}[{found}]"
    return f"{there}[{other}] needs {here}[{wanted}]{last}, but {who} loads {here}[{found}]"


def _of_direction(lanes: Mapping[int, _Lanes], names: tuple[str, str], is_store: bool) -> str:
    """Say that the lanes count up instead of down, or the other way round; "" if they don't."""
    for program, each in lanes.items():
        found, wanted = each.step(each.found), each.step(each.wanted)
        if found and wanted and found == -wanted:
            at = int((each.found != each.wanted)[1:].argmax()) + 1
            ways = ("up", "down") if found > 0 else ("down", "up")
            fact = _fact(each, at, program, names, is_store)
            return f"{fact}: its lanes count {ways[0]}, but must count {ways[1]}"
    return ""


def _of_start(
    lanes: Mapping[int, _Lanes],
    names: tuple[str, str],
    is_store: bool,
    case: Case,
    puzzle: Puzzle,
    inputs: Mapping[str, torch.Tensor],
) -> str:
    """Say that all addresses are too high or too low, or that a program begins in the wrong place."""
    off = {program: np.unique(each.found - each.wanted) for program, each in lanes.items()}
    wrong = next(program for program in lanes if off[program].any())
    each = lanes[wrong]
    at = int((each.found != each.wanted).argmax())
    fact = _fact(each, at, wrong, names, is_store)
    if any(len(by) > 1 for by in off.values()):
        return fact
    if len({int(by[0]) for by in off.values()}) == 1:
        by = int(off[wrong][0])
        added = bool(_added(puzzle, case, inputs) == by)
        why = f". Is {by} added to the address instead of the value?" if added else ""
        if last := _last(int(each.wanted[at]), names[0], puzzle, case) if abs(by) > 1 and not added else "":
            fact = _fact(each, at, wrong, names, is_store, f", which is {last}")
            why = " in this case"
        return f"{fact}: every address is {abs(by)} too {'high' if by > 0 else 'low'}{why}"
    if not (wrong - 1 in lanes and lanes[wrong - 1].numbers[0] == each.numbers[0]):
        return fact
    before = lanes[wrong - 1]
    must, does = (int(part[0]) for part in (each.wanted - before.wanted[:1], each.found - before.found[:1]))
    return (
        f"{fact}: program {wrong} must begin {_apart(must, case)} program {wrong - 1}, {_instead(must, does)}"
    )


def _last(element: int, name: str, puzzle: Puzzle, case: Case) -> str:
    """Return the last element of a vector by its size, such as ``"x[N - 1]"``; "" if it's another element."""
    (dim,) = next(tensor.dims for tensor in puzzle.tensors if tensor.name == name)
    return f"{name}[{dim} - 1]" if case.numbers.get(dim) == element + 1 else ""


def _apart(by: int, case: Case) -> str:
    named = [f"{name} = {size}" for name, size in case.numbers.items() if size == abs(by)]
    number = f"{named[0] if len(named) == 1 else abs(by)} element{'s' * (abs(by) != 1)}"
    return f"{number} {'after' if by > 0 else 'before'}"


def _instead(must: int, does: int) -> str:
    """Return where it begins instead."""
    if not does:
        return "but begins at the same element"
    side = "after" if does > 0 else "before"
    return f"not {side}" if must == -does else f"not {abs(does)}" + f" {side}" * (must * does < 0)


def _added(puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor]) -> float | None:
    """Return the number that the spec makes of zeros; None if it isn't one number."""
    zeros = {name: torch.zeros_like(tensor) for name, tensor in inputs.items()}
    try:
        values = evaluate(puzzle, case, zeros)[puzzle.results[0].name].unique().tolist()
    except Exception:
        return None
    return float(values[0]) if len(values) == 1 else None
