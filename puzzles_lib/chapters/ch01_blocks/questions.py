"""The predictions of chapter 01."""

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.question import Nudge, Question


def _full() -> set[int]:
    return {case.N for case in MASKED_ADD.cases if case.N % case.BLOCK == 0}


def _without_a_last_element() -> int:
    return sum(case.N == 0 for case in MASKED_ADD.cases)


def _last_element() -> int:
    return MASKED_ADD.cases[3].N - 1


QUESTIONS = (
    Question(
        "ch01-q1",
        "For which N is the kernel of puzzle 1 right, which has no mask?",
        _full,
        set,
        "It is right where every lane of every block has an element of x.",
        (
            Nudge(lambda given, right: given < right, "That is right so far; it is not all."),
            Nudge(lambda given, right: given > right, "One too many: does its block divide it?"),
            Nudge(
                lambda given, right: given and not given & right,
                "Those are the ones where it goes wrong, or some of them.",
            ),
        ),
    ),
    Question(
        "ch01-q2",
        "In how many of the six cases is the kernel right whose load is one lane short?",
        _without_a_last_element,
        int,
        "Write down both masks for the last element, the one with the offset N - 1.",
        (
            Nudge(
                lambda given, right: given == len(_full()),
                "So many have full blocks. Does the last lane of a full block pass the mask of the load?",
            ),
            Nudge(
                lambda given, right: given == len(MASKED_ADD.cases),
                "What does the lane of the last element hold when it is stored?",
            ),
        ),
    ),
    Question(
        "ch01-q3",
        "Which element of z gets a value that nobody defined?",
        _last_element,
        int,
        "Point at the lane of the store that is marked as undefined: the line below says where it goes.",
        (
            Nudge(lambda given, right: given == right + 1, "z has no such element: they count from 0."),
            Nudge(
                lambda given, right: given == right % MASKED_ADD.cases[3].BLOCK,
                "That is the lane. Its element lies six blocks further on.",
            ),
        ),
    ),
)
