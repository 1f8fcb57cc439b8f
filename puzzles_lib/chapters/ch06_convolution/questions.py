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


def _under_one_number() -> tuple[int, int, int, int]:
    """Return the first and last row and column of the pixels under w[1, 2], for a tile of 4 x 8."""
    x, w = torch.zeros(1, 12, 12, requires_grad=True), torch.zeros(3, 3)
    w[1, 2] = 1
    CONV2D.spec(x, w)[0, :4, :8].sum().backward()
    rows, columns = x.grad[0].nonzero().T.tolist()
    return min(rows), max(rows), min(columns), max(columns)


RESULTS = 1024
"""How many results a tile of question 6 has, for a filter of 3 x 11."""


def _different_pixels(BLOCK_H: int, BLOCK_W: int) -> int:
    return (BLOCK_H + 3 - 1) * (BLOCK_W + 11 - 1)


def _best_tile() -> tuple[int, int, int]:
    tiles = [(2**power, RESULTS // 2**power) for power in range(11)]
    best = min(tiles, key=lambda tile: _different_pixels(*tile))
    return *best, _different_pixels(*best)


def _is_tile(given: tuple) -> bool:
    whole = len(given) == 3 and all(isinstance(side, int) and side > 0 for side in given)
    return whole and given[0] * given[1] == RESULTS  # 1024 has no other factors than powers of two


def _sums(given: tuple) -> tuple[list[float], list[float]]:
    """Return the sums of a filter's columns and of its rows, nine numbers, rounded."""
    taps = torch.tensor(given, dtype=torch.float64).view(3, 3)
    return (taps.sum(0).round(decimals=6) + 0).tolist(), (taps.sum(1).round(decimals=6) + 0).tolist()


def _level_filter() -> tuple[int, ...]:
    """Return one of many: the row above minus the row below."""
    return (1, 1, 1, 0, 0, 0, -1, -1, -1)


def _sees_level_edges_alone(given: tuple, right: tuple) -> bool:
    if len(given) != len(right) or not _are_numbers(given):
        return False
    columns, rows = _sums(given)
    return not any(columns) and any(rows)


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
                lambda given, right: abs(given - right) <= 9,
                "That's close. Check both pixels, both products, and their sum.",
            ),
            Nudge(
                lambda given, right: given > right,
                "That is too large. Which numbers of the filter cover a pixel? Outside the image, x is 0.",
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
                lambda given, right: not given,
                "Some are. The window of the last column hangs over the edge: which pixels does it get?",
            ),
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
                lambda given, right: given[1] == right[1],
                "The different pixels are correct. Each number of the filter loads a whole tile: "
                "how many loads is that?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The loads are correct. Now count the rows and columns that the shifted tiles cover in all.",
            ),
        ),
        why="The kernel asks for 25 pixels per result, but only 1.27 per result are different.",
    ),
    Question(
        "ch06-q5",
        "In which rows and columns of x are the pixels that a tile multiplies by w[1, 2]?",
        _under_one_number,
        tuple,
        "By which pixel does z[0, 0] multiply w[1, 2]? And z[3, 7], the last result of the tile?",
        (
            Nudge(
                lambda given, right: len(given) != 4,
                "Answer with four numbers: (first row, last row, first column, last column).",
            ),
            Nudge(
                lambda given, right: given == (0, 3, 0, 7),
                "These are the rows and columns of the results. The number of the filter is on other pixels.",
            ),
            Nudge(
                lambda given, right: given == (2, 5, 1, 8),
                "Rows and columns are swapped: w[1, 2] is in row 1 and column 2 of the filter.",
            ),
            Nudge(
                lambda given, right: given == (right[2], right[3], right[0], right[1]),
                "You have all four numbers, in the wrong order. Put the rows first.",
            ),
            Nudge(
                lambda given, right: given[2] == -1 or given[:3:2] == (0, 1),
                "That's a centered filter. Here its upper left corner, w[0, 0], is on the result's position.",
            ),
            Nudge(
                lambda given, right: (given[0], given[2]) == (right[0], right[2]),
                "The first row and column are correct. There is one pixel for each result: how many rows and "
                "columns is that?",
            ),
        ),
    ),
    Question(
        "ch06-q6",
        "Which tile of 1024 results needs the fewest different pixels for a filter of 3 x 11, and how many?",
        _best_tile,
        tuple,
        "The count is correct, but another tile needs fewer pixels. What does a side twice as long do to "
        "its halo?",
        (
            Nudge(
                lambda given, right: not _is_tile(given),
                "Answer with three numbers: (BLOCK_H, BLOCK_W, pixels). The sides are powers of two, "
                "and their product is 1024.",
            ),
            Nudge(
                lambda given, right: given[2] != _different_pixels(*given[:2]),
                "This tile needs another number of pixels. How many rows and columns do its shifted "
                "tiles cover in all?",
            ),
            Nudge(
                lambda given, right: given[0] == given[1],
                "The count is correct. But a square is best for a square filter. Here the halo has 2 rows, "
                "and 10 columns.",
            ),
            Nudge(
                lambda given, right: given[0] > given[1],
                "The count is correct. But the filter is wider than high: which side should be "
                "the longer one?",
            ),
        ),
    ),
    Question(
        "ch06-q7",
        "Which nine numbers, row by row, see horizontal edges, and give 0 at vertical ones?",
        _level_filter,
        tuple,
        "This filter sees vertical edges, too. Write down three rows of pixels across one: which are alike?",
        (
            Nudge(
                lambda given, right: len(given) != len(right) or not _are_numbers(given),
                "Write nine numbers in one tuple, row by row.",
            ),
            Nudge(
                lambda given, right: _sums(given)[1] == [0, 0, 0],
                "At a horizontal edge, all pixels of a row are alike, and there this filter gives 0.",
            ),
            Nudge(
                lambda given, right: abs(sum(given)) > 1e-6,
                "If all nine pixels are 1, this filter doesn't give 0. Begin with that.",
            ),
        ),
        same=_sees_level_edges_alone,
    ),
)
