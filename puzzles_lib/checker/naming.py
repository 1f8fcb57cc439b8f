"""Name programs and elements in a verdict: ``"program (0, 2)"``, ``"1, 31"``."""

from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Program


def the_program(number: Program, puzzle: Puzzle, case: Case) -> str:
    """Return ``"program 3"`` or ``"program (0, 2)"``, with as many numbers as the grid has axes."""
    return f"program {_ids(number, puzzle, case)}"


def the_programs(first: Program, second: Program, puzzle: Puzzle, case: Case) -> str:
    """Return ``"programs (0, 0) and (0, 2)"``, with as many numbers as the grid has axes."""
    return f"programs {_ids(first, puzzle, case)} and {_ids(second, puzzle, case)}"


def _ids(number: Program, puzzle: Puzzle, case: Case) -> str:
    axes = len(puzzle.grid(case))
    return str(number[0]) if axes == 1 else str(number[:axes])


def index_of(flat: int, shape: tuple[int, ...]) -> str:
    """Return the index of an element of a flattened tensor, such as ``"1, 31"``."""
    places = []
    for size in reversed(shape):
        places.append(flat % size)
        flat //= size
    return ", ".join(map(str, reversed(places)))
