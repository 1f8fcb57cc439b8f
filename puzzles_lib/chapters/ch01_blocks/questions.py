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
        "For which N is the kernel from puzzle 1 correct? It has no mask.",
        _full,
        set,
        "It is correct if every lane of every block has an element of x. For which N is that so?",
        (
            Nudge(
                lambda given, right: given and given <= set(range(len(MASKED_ADD.cases))),
                "These look like numbers of cases. Answer with the sizes N of these cases.",
            ),
            Nudge(lambda given, right: given < right, "Correct so far, but there are more."),
            Nudge(
                lambda given, right: given > right,
                "There are too many. Which of your numbers is not a multiple of its block size?",
            ),
            Nudge(
                lambda given, right: given and not given & right,
                "For these sizes the kernel goes wrong. For which sizes does every lane have an element?",
            ),
        ),
    ),
    Question(
        "ch01-q2",
        "In how many of the six cases is the kernel correct? Its load is one lane short.",
        _without_a_last_element,
        int,
        "The last element has the offset N - 1. What are the two masks in its lane?",
        (
            Nudge(
                lambda given, right: given == len(_full()),
                "That's how many cases have only full blocks. Does the last lane of a full block pass the "
                "load's mask?",
            ),
            Nudge(
                lambda given, right: given == len(MASKED_ADD.cases),
                "What is in the lane of the last element when the kernel stores it?",
            ),
        ),
    ),
    Question(
        "ch01-q3",
        "Which element of z gets a value that was never set?",
        _last_element,
        int,
        "Point at the lane that is marked as undefined. The line below it says where the lane is stored.",
        (
            Nudge(
                lambda given, right: given == right + 1,
                "z has no such element. Its elements are numbered from 0.",
            ),
            Nudge(
                lambda given, right: given == right % MASKED_ADD.cases[3].BLOCK,
                "That is the number of the lane. Six blocks of elements come before this program's block.",
            ),
        ),
    ),
)
