"""The predictions of chapter 02."""

import torch

from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD, OUTER_ADD_BLOCKS
from puzzles_lib.question import Nudge, Question


def _element_of_column_30() -> tuple[int, int]:
    return divmod(30, OUTER_ADD.cases[2].N)


def _loads() -> tuple[int, int]:
    """A row of tiles needs y once for each of its tiles, a column x."""
    rows, columns = OUTER_ADD_BLOCKS.programs(OUTER_ADD_BLOCKS.cases[2])[:2]
    return rows, columns


def _first_past_x() -> tuple[int, int]:
    case = OUTER_ADD_BLOCKS.cases[2]
    return 0, case.N // case.BLOCK_N


def _element_of_column_31() -> tuple[int, int]:
    return divmod(31, OUTER_ADD.cases[2].N)


def _bytes_of_scales() -> tuple[int, int]:
    expanded = torch.empty(1000)[:, None].expand(1000, 3000)
    return expanded.untyped_storage().nbytes(), expanded.contiguous().untyped_storage().nbytes()


STEPS = 30


def _never_left(in_turn: bool = False) -> int:
    """Return how many points of chapter 02's plane are still below 4 after 30 steps.

    in_turn: with a slip: the new b is made from the new a.
    """
    x, y = torch.linspace(-2.1, 0.7, 140)[None, :], torch.linspace(-1, 1, 100)[:, None]
    a = b = steps = torch.zeros(100, 140)
    for _ in range(STEPS):
        old, a = a, a * a - b * b + x
        b = 2 * (a if in_turn else old) * b + y
        steps = steps + (a * a + b * b < 4)
    return int((steps == STEPS).sum())


def _grids() -> tuple[tuple[int, ...], ...]:
    return tuple(OUTER_ADD_BLOCKS.programs(case)[:2] for case in OUTER_ADD_BLOCKS.cases)


def _are_pairs(given: tuple) -> bool:
    return all(isinstance(grid, tuple | list) and len(grid) == 2 for grid in given)


def _whole_tiles() -> tuple[tuple[int, int], ...]:
    return tuple((case.M // case.BLOCK_M, case.N // case.BLOCK_N) for case in OUTER_ADD_BLOCKS.cases)


def _as_tuples(given: tuple) -> tuple:
    return tuple(map(tuple, given)) if _are_pairs(given) else ()


QUESTIONS = (
    Question(
        "ch02-q1",
        "Which element of z does the lane in row 0, column 30 write to? Answer with (row, column).",
        _element_of_column_30,
        tuple,
        "Its offset is 0 * N + 30. Count the elements of z from 0, row by row, up to that one.",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (row, column)."),
            Nudge(
                lambda given, right: given == (0, 30),
                "Row 0 of z ends at column 29. Where does memory continue?",
            ),
            Nudge(lambda given, right: given == right[::-1], "The row comes first, then the column."),
        ),
    ),
    Question(
        "ch02-q2",
        "How many programs load each element of x, and how many load each element of y? "
        "Answer with a pair: (x, y).",
        _loads,
        tuple,
        "x runs along a row of z. How many tiles are in the same column of the grid, one above the other?",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (x, y)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "Right numbers, wrong order. Does x run along the rows of z, or down its columns?",
            ),
            Nudge(
                lambda given, right: given == (1, 1),
                "One program each would be enough if there were a single tile. How many tiles need x[0]?",
            ),
        ),
    ),
    Question(
        "ch02-q3",
        "Which program is the first to load past the end of x? Answer with (row, column) of the grid.",
        _first_past_x,
        tuple,
        "Which column of tiles reaches past column 99? And which row of tiles do you go through first?",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (row, column)."),
            Nudge(lambda given, right: given == right[::-1], "The row comes first, then the column."),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The column is correct. But every row of tiles has such a program. Which row comes first?",
            ),
            Nudge(
                lambda given, right: given[1] == right[1] + 1,
                "That column doesn't exist. Program ids are numbered from 0.",
            ),
        ),
    ),
    Question(
        "ch02-q4",
        "Which lane of the tile owns the element that lane [0, 31] writes to? Answer with (row, column).",
        _element_of_column_31,
        tuple,
        "Point at the lane: which element of z does it write to? And which lane of the tile should do that?",
        (
            Nudge(
                lambda given, right: given == (0, 31),
                "That is the lane itself. A row of z ends earlier, and the next row begins there.",
            ),
            Nudge(
                lambda given, right: given == (1, 0),
                "Lane [0, 30] overwrites that one. Which one does [0, 31] overwrite?",
            ),
        ),
    ),
    Question(
        "ch02-q5",
        "How many bytes of memory does each version occupy? Answer with a pair: (expanded, written).",
        _bytes_of_scales,
        tuple,
        "How many numbers does each version keep in memory? A number has 4 bytes.",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (expanded, written)."),
            Nudge(
                lambda given, right: given[0] == right[1] == given[1],
                "That's correct for written. But expand copies nothing. What is still in memory?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] == given[1],
                "That's correct for expanded. But contiguous() writes every repeat to memory.",
            ),
            Nudge(lambda given, right: given == right[::-1], "Which of the two is a copy?"),
            Nudge(
                lambda given, right: given == tuple(number // 4 for number in right),
                "That's how many numbers they keep. How many bytes does each number have?",
            ),
        ),
    ),
    Question(
        "ch02-q6",
        "What is the grid in each of the six cases?",
        _grids,
        tuple,
        "Take one case: how many tiles are in a column of the grid, and how many are in a row?",
        (
            Nudge(
                lambda given, right: not _are_pairs(given),
                "Return a pair: the number of programs along axis 0, then along axis 1.",
            ),
            Nudge(
                lambda given, right: _as_tuples(given) == tuple(grid[::-1] for grid in right),
                "Axis 0 numbers the tiles from top to bottom, so it goes with M. Your two axes are swapped.",
            ),
            Nudge(
                lambda given, right: _as_tuples(given) == _whole_tiles(),
                "Your grid counts only the tiles that fit entirely. In case 2, two tiles cover 64 of 90 "
                "rows. Which program would compute the other 26 rows?",
            ),
        ),
        same=lambda given, right: _as_tuples(given) == right,
        computed=True,
    ),
    Question(
        "ch02-q7",
        f"How many points are still there after {STEPS} steps?",
        _never_left,
        int,
        "This isn't the Mandelbrot set yet. Check the two formulas, and what you add to steps.",
        (
            Nudge(
                lambda given, right: given == 100 * 140,
                f"All points stay for {STEPS} steps. Do a and b change in your loop?",
            ),
            Nudge(
                lambda given, right: given == _never_left(in_turn=True),
                "Your new b is made from the new a. Both need the old values: compute them in one line, with "
                "a, b = ..., or keep the old a under another name.",
            ),
        ),
        same=lambda given, right: abs(given - right) <= 0.02 * right,
        computed=True,
    ),
)
