"""The predictions of chapter 01."""

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.puzzle import Case
from puzzles_lib.question import Nudge, Question


def _unharmed() -> set[int]:
    """Return the sizes for which lanes < N is as good as a mask: it keeps the last program inside."""
    return {case.N for case in MASKED_ADD.cases if _past_the_end(case) == 0}


def _past_the_end(case: Case) -> int:
    """Return how many lanes of the last program are below N, but past the end."""
    start = (MASKED_ADD.programs(case)[0] - 1) * case.BLOCK
    return sum(start + lane >= case.N > lane for lane in range(case.BLOCK))


def _full() -> set[int]:
    return {case.N for case in MASKED_ADD.cases if case.N % case.BLOCK == 0}


def _off_and_stored() -> tuple[int, int]:
    """Return how many lanes of case 1 are below no N - 1, and how many of these are below N."""
    case = MASKED_ADD.cases[1]
    off = [lane for lane in range(case.BLOCK) if not lane < case.N - 1]
    return len(off), sum(lane < case.N for lane in off)


def _lanes_of_case_1() -> int:
    return MASKED_ADD.cases[1].BLOCK


def _with(size: int) -> Nudge:
    """Return the nudge for a size with which lanes < N lets the last program leave the tensor."""
    case = next(case for case in MASKED_ADD.cases if size == case.N)
    last = MASKED_ADD.programs(case)[0] - 1
    return Nudge(
        lambda given, right: size in given,
        f"With N = {size}, lane 0 of program {last} is element {last * case.BLOCK}, and lane 1 the next one. "
        f"Which lanes are below {size}?",
    )


QUESTIONS = (
    Question(
        "ch01-q1",
        "The pointers have moved, and the mask is lanes < N. For which N does it do no harm?",
        _unharmed,
        set,
        "With N = 20 there is only program 0, and its pointers don't move. Does the mask do harm there?",
        (
            Nudge(
                lambda given, right: given and given <= set(range(len(MASKED_ADD.cases))),
                "These look like numbers of cases. Answer with the sizes N of these cases.",
            ),
            Nudge(
                lambda given, right: not given <= {case.N for case in MASKED_ADD.cases},
                "Not all of these are among the six sizes N. (The blocks' sizes don't count.)",
            ),
            Nudge(
                lambda given, right: given == _full(),
                "With full blocks it does no harm. But in program 0 the pointers don't move at all.",
            ),
            Nudge(lambda given, right: given and given < right, "Correct so far, but there are more."),
            *map(_with, (200, 65, 1000)),
        ),
        why="Blocks of N = 32 and 128 are full. With N = 20 there is only program 0, which doesn't move.",
    ),
    Question(
        "ch01-q2",
        "In case 1, how many lanes does the load mask off, and how many of these does the kernel store?",
        _off_and_stored,
        tuple,
        "Which lanes have offs < N - 1? And which of the others have offs < N?",
        (
            Nudge(
                lambda given, right: len(given) != 2,
                "The answer has two numbers: the lanes that are off, and those of them that are stored.",
            ),
            Nudge(
                lambda given, right: given == right[::-1],
                "Both numbers are there, but in the wrong order. The lanes that are off come first.",
            ),
            Nudge(
                lambda given, right: given[0] == _lanes_of_case_1() - right[0],
                "That's how many lanes the load's mask leaves on. How many of the 32 are off?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] + 1,
                "The first number is one too high: the mask is offs < 19. Is it True in lane 18?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] - 1,
                "That's how many lanes the store masks off. The load's mask compares with N - 1.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] and given[1] == 0,
                "The first number is correct. But the two masks differ: what are they in lane 19?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The first number is correct. The store leaves out the lanes from 20 on.",
            ),
        ),
        why="The load masks off lanes 19 to 31. Lane 19 has the last element, so it's stored.",
    ),
)
