"""The predictions of chapter 00."""

from puzzles_lib.chapters.ch00_welcome.pictures import BLOCK, SUN
from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
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


def _at_the_sun() -> tuple[int, ...]:
    """Return the program and the lane that brighten the middle of the sun."""
    return divmod(SUN, BLOCK)


def _ragged(number: int) -> Nudge:
    """Return the nudge for a case whose last block isn't full."""
    case = DOUBLE.cases[number]
    last = case.N // case.BLOCK
    return Nudge(
        lambda given, right: number in given,
        f"Case {number} has {case.N} elements in blocks of {case.BLOCK}. The block of program {last} begins "
        f"at element {last * case.BLOCK}. Which elements do its {case.BLOCK} lanes load?",
    )


QUESTIONS = (
    Question(
        "ch00-q1",
        "Which program brightens the middle of the sun, element 1,418, and in which lane?",
        _at_the_sun,
        tuple,
        "Program 0 has elements 0 to 511, and program 1 begins at element 512. Where does program 2 begin?",
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
                lambda given, right: tuple(given) == (right[0], SUN),
                "The program is correct. The lane counts from the beginning of the program's block.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] + 1 and given[1] == right[1],
                "The lane is correct. But programs count from 0.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] and abs(given[1] - right[1]) == 1,
                "The program is correct, and the lane is nearly. Lanes count from 0, and so do elements.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The program is correct. At which element does its block begin? That one is in lane 0.",
            ),
            Nudge(
                lambda given, right: not (0 <= given[0] < 12 and 0 <= given[1] < BLOCK),
                "There are the programs 0 to 11, and each has the lanes 0 to 511.",
            ),
        ),
        why="Programs 0 and 1 have the elements before 1,024, and 1,418 = 2 * 512 + 394.",
    ),
    Question(
        "ch00-q2",
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
                lambda given, right: given == set(range(len(DOUBLE.cases))) - right,
                "In these cases, the last block isn't full, so they need the mask. Which cases don't?",
            ),
            Nudge(
                lambda given, right: {2, 3} <= given,
                "Divide each size by its block size. In which cases is something left over?",
            ),
            *map(_ragged, (2, 3)),
        ),
        why="In cases 0 and 1 all blocks are full, so a mask would be True in every lane.",
    ),
    Question(
        "ch00-q3",
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
                lambda given, right: abs(given - right) == 1,
                "That's nearly it. Which is the last element that program 3 stores? Elements count from 0.",
            ),
            Nudge(
                lambda given, right: given == _covered() - 1,
                "That's the last element that is written. How many come after it?",
            ),
            Nudge(
                lambda given, right: given == DOUBLE.cases[1].N - DOUBLE.cases[1].BLOCK,
                "So it would be if all programs stored the same block. Where does program 1 start?",
            ),
        ),
        why="Program 3 starts at element 3 and stores up to element 10. Nothing is stored from 11 on.",
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
        "“out of bounds” means that the mask lets too many lanes in, and “never written” too few. "
        "Can you find a mask that fails the other way, too?",
    ),
)
