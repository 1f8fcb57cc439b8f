"""The predictions of chapter 00."""

from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question


def _full() -> set[int]:
    return {number for number, case in enumerate(DOUBLE.cases) if case.N % case.BLOCK == 0}


def _unwritten() -> int:
    case = DOUBLE.cases[1]
    return case.N - _covered()


def _covered() -> int:
    """Return how many elements all programs store together if each starts one after the last one."""
    case = DOUBLE.cases[1]
    return len({pid + lane for pid in range(DOUBLE.programs(case)[0]) for lane in range(case.BLOCK)})


def _zero() -> tuple[int, ...]:
    """Return the program and the lane of the only zero of case 2."""
    case = DOUBLE.cases[2]
    (place,) = (make_inputs(DOUBLE, case)["x"] == 0).nonzero().flatten().tolist()
    return divmod(place, case.BLOCK)


QUESTIONS = (
    Question(
        "ch00-q1",
        "In which of the four cases is the kernel without a mask correct?",
        _full,
        set,
        "The mask is there for lanes without an element. In which cases does every lane have an element?",
        (
            Nudge(
                lambda given, right: max(given, default=0) == len(DOUBLE.cases),
                "There is no case 4: the cases are numbered from 0 to 3.",
            ),
            Nudge(
                lambda given, right: any(number >= len(DOUBLE.cases) for number in given),
                "These look like sizes. Answer with the numbers of the cases, from 0 to 3.",
            ),
            Nudge(
                lambda given, right: given and given < right,
                "Correct so far, but another case has only full blocks, too.",
            ),
            Nudge(
                lambda given, right: 2 in given or 3 in given,
                "In at least one of these cases, the last block is longer than what's left of x. "
                "Divide each size by its block size.",
            ),
        ),
        why="In cases 0 and 1 all blocks are full, so a mask would be True in every lane.",
    ),
    Question(
        "ch00-q2",
        "How many of the 32 elements of z are never written?",
        _unwritten,
        int,
        "Which elements does program 0 store? And which ones program 3, the last one?",
        (
            Nudge(
                lambda given, right: given == _covered(),
                "That's how many elements are written. How many are never written?",
            ),
            Nudge(
                lambda given, right: given == 0,
                "Four programs store 8 elements each, but neighbors store mostly the same ones.",
            ),
            Nudge(
                lambda given, right: given == DOUBLE.cases[1].N - DOUBLE.cases[1].BLOCK,
                "So it would be if all programs stored the same block. Where does program 1 start?",
            ),
        ),
        why="Program 3 starts at element 3 and stores up to element 10. Nothing is stored from 11 on.",
    ),
    Question(
        "ch00-q3",
        "In case 2, which program stores the only 0 of z, and in which lane?",
        _zero,
        tuple,
        "The buttons only step through one program. Choose the last program with the slider, and step to "
        "its end. Find the 0 at the bottom, in z, and point at it to read which element it is. "
        "Which program's block has this element?",
        (
            Nudge(
                lambda given, right: len(given) != 2,
                "The answer has two numbers: the program, and the lane.",
            ),
            Nudge(
                lambda given, right: given == right[::-1],
                "Both numbers are there, but in the wrong order. The program comes first.",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The lane is correct. Blocks have 8 elements; rows at the bottom can have more or fewer.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The program is correct. Its lanes count from 0.",
            ),
            Nudge(
                lambda given, right: not (0 <= given[0] < 4 and 0 <= given[1] < 8),
                "Case 2 has the programs 0 to 3, and each has the lanes 0 to 7.",
            ),
        ),
        why="It's element 23 = 2 * 8 + 7, so it's in the last lane of program 2.",
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
                "Your kernel doesn't pass case 1: 32 elements in four full blocks of 8. "
                "Your mask must be True in every lane of all four programs.",
            ),
        ),
        same=lambda given, right: right <= given and 2 not in given,
        computed=True,
        why="In full blocks nothing shows, and in the last one the mask does harm. The report says how: "
        "“out of bounds” means too many lanes, as with `offs <= N`, and “never written” too few, as with "
        "`offs < N // BLOCK * BLOCK`. Can you find one of the other kind, too?",
    ),
)
