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
        "In how many of the four cases is the kernel without a mask correct?",
        _full,
        int,
        "The mask is there for lanes without an element. In which cases does every lane have an element?",
        (
            Nudge(
                lambda given, right: given == len(DOUBLE.cases),
                "In at least one case, the last block is longer than what's left of x. "
                "Divide each size by its block size.",
            ),
            Nudge(
                lambda given, right: given == 0,
                "A mask that is True in every lane changes nothing. Is there a case like that?",
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
                "That's how many elements are written. How many are never written?",
            ),
            Nudge(
                lambda given, right: given == 0,
                "Four programs store 8 elements each, but they all store the same 8.",
            ),
        ),
    ),
    Question(
        "ch00-q3",
        "What is offs in the first lane of program 3 that the mask switches off?",
        _first_off,
        int,
        "In program 3, step to the line of the load, and look at offs above the first hatched lane.",
        (
            Nudge(
                lambda given, right: given == DOUBLE.cases[2].BLOCK * 4 - 1,
                "That is offs in the last lane that is off. Which lane is the first?",
            ),
            Nudge(
                lambda given, right: given == right % DOUBLE.cases[2].BLOCK,
                "That's the number of the lane. What is offs in this lane?",
            ),
            Nudge(
                lambda given, right: given == right - 1,
                "That is the offset of the last element, and its lane is switched on. Look one lane further.",
            ),
            Nudge(
                lambda given, right: given == DOUBLE.cases[2].BLOCK * 4 - right,
                "That's how many lanes are off. What is offs in the first of these lanes?",
            ),
        ),
    ),
    Question(
        "ch00-q4",
        "Which cases does your kernel pass? It should pass case 0 and fail case 2.",
        lambda: {0},
        set,
        "Case 2 passes, too. It has 30 elements in blocks of 8: what's different about its last program?",
        (
            Nudge(
                lambda given, right: 0 not in given,
                "Your kernel doesn't pass case 0: 8 elements in one block of 8. "
                "Start from double_kernel and change less.",
            ),
        ),
        same=lambda given, right: 0 in given and 2 not in given,
        computed=True,
    ),
)
