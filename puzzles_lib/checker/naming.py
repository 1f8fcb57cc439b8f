"""Name programs and elements in a verdict: ``"program (0, 2)"``, ``"1, 31"``."""

import math

from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import Program, Run


def the_program(number: Program, puzzle: Puzzle, case: Case) -> str:
    """Return ``"program 3"`` or ``"program (0, 2)"``, with as many numbers as the grid has axes."""
    return f"program {_ids(number, puzzle, case)}"


def the_programs(first: Program, second: Program, puzzle: Puzzle, case: Case) -> str:
    """Return ``"programs (0, 0) and (0, 2)"``, with as many numbers as the grid has axes."""
    return f"programs {_ids(first, puzzle, case)} and {_ids(second, puzzle, case)}"


def _ids(number: Program, puzzle: Puzzle, case: Case) -> str:
    axes = len(puzzle.grid(case))
    return str(number[0]) if axes == 1 else str(number[:axes])


NOT_STORED = "no program stores "


def begins_late(ran: Run, result: Argument, puzzle: Puzzle, case: Case) -> str:
    """Say that program 0's first lane is not at a result's first element, and no other lane is; else "".

    ran: a run whose accesses were kept.
    """
    stores = [a for a in ran.accesses if a.kind != "load" and a.argument == result.name and a.elements.size]
    first = min(stores, key=lambda each: int(each.elements.min()), default=None)
    if first is None or any(first.program) or (start := int(first.elements.min())) <= 0:
        return ""
    shape = result.shape(case.numbers)
    if len(shape) > 1 and start >= math.prod(shape):
        return ""
    zero, here = index_of(0, shape), str(start) if len(shape) == 1 else index_of(start, shape)
    who, name = the_program(first.program, puzzle, case), result.name
    return f"{NOT_STORED}{name}[{zero}]: {who} begins at {name}[{here}] already"


def index_of(flat: int, shape: tuple[int, ...]) -> str:
    """Return the index of an element of a flattened tensor, such as ``"1, 31"``."""
    places = []
    for size in reversed(shape):
        places.append(flat % size)
        flat //= size
    return ", ".join(map(str, reversed(places)))
