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


QUESTIONS = (
    Question(
        "ch02-q1",
        "Which element of z does the lane in row 0 and column 30 store to, as (row, column)?",
        _element_of_column_30,
        tuple,
        "Its offset is 0 * N + 30. Count the elements of z from 0, row after row, up to that one.",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (row, column)."),
            Nudge(
                lambda given, right: given == (0, 30),
                "That is the lane. But a row of z has 30 elements; what lies behind the last of them?",
            ),
            Nudge(lambda given, right: given == right[::-1], "The row comes first."),
        ),
    ),
    Question(
        "ch02-q2",
        "By how many programs is each element of x loaded, and each of y, as (x, y)?",
        _loads,
        tuple,
        "x lies along a row of z. How many tiles lie below each other, over the same columns?",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (x, y)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "Both numbers are in it. Does x run along the rows of z, or down its columns?",
            ),
            Nudge(
                lambda given, right: given == (1, 1),
                "That would be one program for all. How many tiles need the element x[0]?",
            ),
        ),
    ),
    Question(
        "ch02-q3",
        "Which program is the first to load past the end of x, as (row, column) of the grid?",
        _first_past_x,
        tuple,
        "Which column of tiles reaches past column 99? And which row of tiles comes first?",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (row, column)."),
            Nudge(lambda given, right: given == right[::-1], "The row comes first."),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The column is right. But every row of tiles has such a program; which is the first?",
            ),
            Nudge(lambda given, right: given[1] == right[1] + 1, "Programs count from 0, as all here."),
        ),
    ),
    Question(
        "ch02-q4",
        "Whose element of z does the lane in row 0 and column 31 store to, as (row, column) of the tile?",
        _element_of_column_31,
        tuple,
        "Point at the lane: which element of z does it go to? And which lane of the tile should go there?",
        (
            Nudge(
                lambda given, right: given == (0, 31),
                "That is the lane itself. In z a row ends earlier, and the next begins there.",
            ),
            Nudge(lambda given, right: given == (1, 0), "That lane is robbed by [0, 30]. And by [0, 31]?"),
        ),
    ),
    Question(
        "ch02-q5",
        "How many bytes of memory hold the expanded scales, and how many those written out?",
        _bytes_of_scales,
        tuple,
        "How many numbers does each of the two keep? And a number has 4 bytes.",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (expanded, written)."),
            Nudge(
                lambda given, right: given[0] == right[1] == given[1],
                "Their shapes are alike. But one of the two repeats its numbers in name only.",
            ),
            Nudge(lambda given, right: given == right[::-1], "Which of the two is the copy?"),
            Nudge(
                lambda given, right: given == tuple(number // 4 for number in right),
                "So many numbers. How many bytes has each?",
            ),
        ),
    ),
)
