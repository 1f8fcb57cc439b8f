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


def _without_a_last_element() -> int:
    return sum(case.N == 0 for case in MASKED_ADD.cases)


def _last_element() -> int:
    return MASKED_ADD.cases[3].N - 1


QUESTIONS = (
    Question(
        "ch01-q1",
        "The pointers have moved, and the mask is lanes < N. For which N does it do no harm?",
        _unharmed,
        set,
        "In program 6 of the case N = 200, lane 0 is element 192. Which lanes are below 200?",
        (
            Nudge(
                lambda given, right: given and given <= set(range(len(MASKED_ADD.cases))),
                "These look like numbers of cases. Answer with the sizes N of these cases.",
            ),
            Nudge(
                lambda given, right: given == _full(),
                "With full blocks it does no harm. But in program 0 the pointers don't move at all.",
            ),
            Nudge(lambda given, right: given and given < right, "Correct so far, but there are more."),
            Nudge(
                lambda given, right: given > right,
                "There are too many. In one of your cases, the last program has lanes below N without an "
                "element.",
            ),
            Nudge(
                lambda given, right: given and not given & right,
                "For these sizes the kernel goes wrong. For which sizes does every lane below N have an "
                "element?",
            ),
        ),
        why="Blocks of N = 32 and 128 are full. With N = 20 there is only program 0, which doesn't move.",
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
        why="The last element is stored in every case, and its lane was masked off in the load.",
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
