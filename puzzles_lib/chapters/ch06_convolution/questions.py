"""The predictions of chapter 06."""

import torch

from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D
from puzzles_lib.puzzle import Case
from puzzles_lib.question import Nudge, Question


def _corner() -> int:
    x, w = torch.arange(24).reshape(4, 6), torch.arange(1, 7).reshape(2, 3)
    padded = torch.nn.functional.pad(x, (0, 2, 0, 1))
    return int((padded[2:4, 5:8] * w).sum())


def _columns() -> set[int]:
    case = CONV2D.cases[0]
    return set(range(case.W - case.KW + 1, case.W))


def _edge_filter() -> tuple[int, ...]:
    """Return one of many: eight times the difference between a pixel and the mean of its neighbors."""
    return (-1, -1, -1, -1, 8, -1, -1, -1, -1)


def _are_numbers(given: tuple) -> bool:
    return all(isinstance(each, int | float) for each in given)


def _sees_edges_alone(given: tuple, right: tuple) -> bool:
    return len(given) == len(right) and _are_numbers(given) and any(given) and abs(sum(given)) < 1e-6


def _loads_of_a_tile() -> tuple[int, int]:
    """Return how many pixels a tile of 32 x 32 loads for a filter of 5 x 5, with and without repeats."""
    tile, taps = range(32), range(5)
    loads = [(i + a, j + b) for a in taps for b in taps for i in tile for j in tile]
    return len(loads), len(set(loads))


LAUNCH = Case(N=100, H=64, W=90, KH=3, KW=3, BLOCK_N=4, BLOCK_H=16, BLOCK_W=32)


def _grid() -> tuple[int, ...]:
    return tuple(CONV2D.grid(LAUNCH))


QUESTIONS = (
    Question(
        "ch06-q1",
        "What is z[2, 5], in the last column of the image?",
        _corner,
        int,
        "Put the filter's upper left corner on row 2, column 5. Which of its six numbers cover a pixel?",
        (
            Nudge(
                lambda given, right: given == 17 + 23,
                "That adds up the two pixels. First multiply each by the filter's number on top of it.",
            ),
            Nudge(
                lambda given, right: given == 17,
                "That is one of the pixels. The filter covers one more, in the row below.",
            ),
            Nudge(
                lambda given, right: given > right,
                "That is too large. Only two of the six numbers cover a pixel. Outside the image, x is 0.",
            ),
        ),
    ),
    Question(
        "ch06-q2",
        "Which columns of z get wrong values from a mask on offsets in case 0?",
        _columns,
        set,
        "From which column on does a window of 3 reach past the last of 8 columns?",
        (
            Nudge(
                lambda given, right: given < right,
                "Correct so far, but there are more. A window may hang over by more than one column.",
            ),
            Nudge(
                lambda given, right: given > right,
                "In some of these columns the whole window is inside, because it ends before column 8.",
            ),
            Nudge(
                lambda given, right: given == {column + 1 for column in right},
                "We count columns from 0, so there is no column 8.",
            ),
        ),
    ),
    Question(
        "ch06-q3",
        "Which nine numbers, row by row, give 0 if all nine pixels are alike, and something else at an edge?",
        _edge_filter,
        tuple,
        "Apply the filter to nine pixels that are all 1. How does the result follow from the nine numbers?",
        (
            Nudge(
                lambda given, right: len(given) != len(right) or not _are_numbers(given),
                "Write nine numbers in one tuple, row by row.",
            ),
            Nudge(lambda given, right: not any(given), "This filter gives 0 at an edge as well."),
        ),
        same=_sees_edges_alone,
    ),
    Question(
        "ch06-q4",
        "How many pixels does the program load, with and without counting repeats?",
        _loads_of_a_tile,
        tuple,
        "Each number of the filter loads a whole tile. How many rows do the shifted tiles cover in all?",
        (
            Nudge(lambda given, right: len(given) != 2, "Answer with two numbers: (loads, different)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "You have both numbers, in the wrong order. Put the loads, with repeats, first.",
            ),
            Nudge(
                lambda given, right: given[0] == given[1] == right[1],
                "That is the number of different pixels. But every number of the filter needs its own tile.",
            ),
            Nudge(
                lambda given, right: given == (right[0], 32 * 32),
                "The loads are correct. The different pixels are the tile and its halo.",
            ),
            Nudge(
                lambda given, right: given[1] == (32 + 2 * 4) ** 2,
                "That is a halo on all four sides. Here the halo is only below the tile and to its right.",
            ),
            Nudge(
                lambda given, right: given[1] == (32 + 5) ** 2,
                "A filter with one row has no halo. How many rows has the halo of a filter with five rows?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The loads are correct. Now count the rows and columns that the shifted tiles cover in all.",
            ),
        ),
    ),
    Question(
        "ch06-q5",
        "Which grid launches conv2d for 100 images of 64 x 90, in tiles of 4 x 16 x 32?",
        _grid,
        tuple,
        "Divide each size by its block, and round up: images, rows, columns.",
        (
            Nudge(
                lambda given, right: len(given) != 3,
                "The kernel asks for tl.program_id 0, 1 and 2, so the grid has three axes.",
            ),
            Nudge(
                lambda given, right: given == right[::-1],
                "You have the three numbers, in the wrong order. Axis 0 counts blocks of images.",
            ),
            Nudge(
                lambda given, right: given[:2] == right[:2] and given[2] == LAUNCH.W // LAUNCH.BLOCK_W,
                "Those tiles cover 64 of the 90 columns. Round up.",
            ),
        ),
    ),
)
