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
)
