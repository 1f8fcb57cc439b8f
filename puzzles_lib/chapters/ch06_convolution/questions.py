"""The predictions of chapter 06."""

import torch

from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D
from puzzles_lib.question import Nudge, Question


def _corner() -> int:
    x, w = torch.arange(24).reshape(4, 6), torch.arange(1, 7).reshape(2, 3)
    padded = torch.nn.functional.pad(x, (0, 2, 0, 1))
    return int((padded[2:4, 5:8] * w).sum())


def _columns() -> set[int]:
    case = CONV2D.cases[0]
    return set(range(case.W - case.KW + 1, case.W))


def _edge_filter() -> tuple[int, ...]:
    """One of many: a pixel against the mean of its neighbours, eight times."""
    return (-1, -1, -1, -1, 8, -1, -1, -1, -1)


def _are_numbers(given: tuple) -> bool:
    return all(isinstance(each, int | float) for each in given)


def _sees_edges_alone(given: tuple, right: tuple) -> bool:
    return len(given) == len(right) and _are_numbers(given) and any(given) and abs(sum(given)) < 1e-6


def _loads_of_a_tile() -> tuple[int, int]:
    """Of a tile of 32 x 32 and a filter of 5 x 5: all its loads, and the pixels among them."""
    tile, taps = range(32), range(5)
    loads = [(i + a, j + b) for a in taps for b in taps for i in tile for j in tile]
    return len(loads), len(set(loads))


QUESTIONS = (
    Question(
        "ch06-q1",
        "What is z[2, 5], in the last column of the image?",
        _corner,
        int,
        "Lay the filter's upper left corner on row 2, column 5. Which of its six numbers meet a pixel?",
        (
            Nudge(
                lambda given, right: given == 17 + 23,
                "Those are the two pixels. Each is multiplied by its number of the filter first.",
            ),
            Nudge(lambda given, right: given == 17, "One more pixel lies under the filter, below."),
            Nudge(
                lambda given, right: given > right,
                "Too much: what hangs over the edge meets zeros, not the next row and not the first.",
            ),
        ),
    ),
    Question(
        "ch06-q2",
        "In which columns of z does the flat mask let wrong values through, in case 0?",
        _columns,
        set,
        "From which column on does a window of 3 reach past the last of 8 columns?",
        (
            Nudge(
                lambda given, right: given < right,
                "Right, but not all: a window may hang over by more than one column.",
            ),
            Nudge(
                lambda given, right: given > right,
                "Some of them lie wholly inside: a window that starts there ends before column 8.",
            ),
            Nudge(
                lambda given, right: given == {column + 1 for column in right},
                "Columns count from 0, so there is no column 8.",
            ),
        ),
    ),
    Question(
        "ch06-q3",
        "Which nine numbers, row by row, give 0 where all pixels are alike, and more or less at an edge?",
        _edge_filter,
        tuple,
        "Lay it on nine pixels that are all 1. The result is made of the filter's numbers alone: how?",
        (
            Nudge(
                lambda given, right: len(given) != len(right) or not _are_numbers(given),
                "Nine numbers, in one tuple, row by row.",
            ),
            Nudge(lambda given, right: not any(given), "That gives 0 at an edge as well."),
        ),
        same=_sees_edges_alone,
    ),
    Question(
        "ch06-q4",
        "How many pixels does the program load, repeats counted, and how many different ones?",
        _loads_of_a_tile,
        tuple,
        "Each number of the filter loads a whole tile. How many rows do the shifted tiles cover together?",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (loads, different)."),
            Nudge(lambda given, right: given == right[::-1], "The loads, repeats counted, come first."),
            Nudge(
                lambda given, right: given[0] == given[1] == right[1],
                "So many are different. But each number of the filter loads its own tile.",
            ),
            Nudge(
                lambda given, right: given == (right[0], 32 * 32),
                "The loads are right. The different ones are the tile and its halo.",
            ),
            Nudge(
                lambda given, right: given[1] == (32 + 2 * 4) ** 2,
                "Here the halo lies below the tile and to its right, on no other side.",
            ),
            Nudge(
                lambda given, right: given[1] == (32 + 5) ** 2,
                "With a filter of one row there is no halo at all: how many rows has it for five?",
            ),
        ),
    ),
)
