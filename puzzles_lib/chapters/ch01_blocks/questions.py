"""The predictions of chapter 01."""

from puzzles_lib.chapters.ch01_blocks import secret
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
        "What does the message say, when your kernel has put it in order?",
        secret.message,
        str,
        "Which element of x does lane 0 of program 0 need? And lane 0 of program 1?",
        (
            Nudge(
                lambda given, right: given == right[::-1],
                "These are the letters, but from the last to the first. Which element of x does z[0] need?",
            ),
            Nudge(
                lambda given, right: sorted(given) == sorted(right),
                "All letters are there, but not in order. Which elements do lanes 0 and 1 of program 1 need?",
            ),
        ),
        computed=True,
        why="From the last element, your pointer counts down: `x_ptr - lanes`.",
    ),
)
