"""The predictions of chapter 00."""

from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.question import Nudge, Question


def _full() -> int:
    return sum(case.N % case.BLOCK == 0 for case in DOUBLE.cases)


def _unwritten() -> int:
    case = DOUBLE.cases[1]
    return case.N - case.BLOCK


def _first_off() -> int:
    return DOUBLE.cases[2].N


QUESTIONS = (
    Question(
        "ch00-q1",
        "In how many of the four cases is the kernel without a mask right?",
        _full,
        int,
        "The mask is there for lanes without an element. In which cases does every lane have one?",
        (
            Nudge(
                lambda given, right: given == len(DOUBLE.cases),
                "In one of them at least, the last block is longer than what is left of x. Divide.",
            ),
            Nudge(
                lambda given, right: given == 0,
                "A mask that is True everywhere changes nothing. Is there a case where it is?",
            ),
        ),
    ),
    Question(
        "ch00-q2",
        "How many of the 32 elements of z are never written?",
        _unwritten,
        int,
        "Which elements does program 0 store? Programs 1, 2 and 3 store the same ones.",
        (
            Nudge(
                lambda given, right: given == DOUBLE.cases[1].N - right,
                "So many are written. The others?",
            ),
            Nudge(
                lambda given, right: given == 0,
                "Four programs store 8 elements each, but the same ones.",
            ),
        ),
    ),
    Question(
        "ch00-q3",
        "What does offs hold in the first lane of program 3 that the mask switches off?",
        _first_off,
        int,
        "Choose program 3 with the slider, step to the line of the load, and look at offs.",
        (
            Nudge(
                lambda given, right: given == right - 1,
                "That is the offset of the last element, and its lane is on.",
            ),
            Nudge(
                lambda given, right: given == DOUBLE.cases[2].BLOCK * 4 - right,
                "So many lanes are off. What does offs hold in the first of them?",
            ),
        ),
    ),
)
