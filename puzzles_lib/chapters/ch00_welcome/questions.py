"""The predictions of chapter 00."""

from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.question import Nudge, Question


def _full() -> int:
    return sum(case.N % case.BLOCK == 0 for case in DOUBLE.cases)


def _unwritten() -> int:
    case = DOUBLE.cases[1]
    return case.N - case.BLOCK


def _stored_before() -> int:
    return 3 * DOUBLE.cases[2].BLOCK


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
        why="In cases 0 and 1 all blocks are full, so a mask would be True in every lane.",
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
        why="All four programs store elements 0 to 7.",
    ),
    Question(
        "ch00-q3",
        "In case 2, how many elements of z have a value when program 3 comes to its load?",
        _stored_before,
        int,
        "Which programs have run by then? Each of them stored a whole block.",
        (
            Nudge(
                lambda given, right: given == DOUBLE.cases[2].N,
                "That's how many there are at the end. Program 3 hasn't stored its own yet.",
            ),
            Nudge(
                lambda given, right: given == 0,
                "Program 3 hasn't stored anything yet. But which programs ran before it?",
            ),
            Nudge(
                lambda given, right: given == 3,
                "That's how many programs have finished. How many elements has each of them stored?",
            ),
            Nudge(
                lambda given, right: given == DOUBLE.cases[2].N - right,
                "That's how many elements program 3 will store. How many are there already?",
            ),
        ),
        why="Programs 0, 1 and 2 have stored a block of 8 each.",
    ),
    Question(
        "ch00-q4",
        "Which cases does your kernel pass? It should pass cases 0 and 1, and fail case 2.",
        lambda: {0, 1},
        set,
        "Case 2 passes, too. It has 30 elements in blocks of 8: what's different about its last program?",
        (
            Nudge(
                lambda given, right: 0 not in given,
                "Your kernel doesn't pass case 0: 8 elements in one block of 8. "
                "Your mask must do no harm in a full block.",
            ),
            Nudge(
                lambda given, right: 1 not in given,
                "Your kernel doesn't pass case 1: 32 elements in blocks of 8. "
                "There, too, all blocks are full, but there are four of them.",
            ),
        ),
        same=lambda given, right: right <= given and 2 not in given,
        computed=True,
    ),
)
