"""The predictions of chapter 21. Each answer is found by an audit of the kernel that it's about."""

import re
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from puzzles_lib.auditor import AuditReport, Guard, audit, audited
from puzzles_lib.chapters.ch21_your_own_kernel import draft, library, suite
from puzzles_lib.question import Nudge, Question

PAGE, D = 8, 100  # tokens of a page, and numbers of a token
COLUMNS = 100  # of the norm's rows
LENGTHS = (1, 8, 17, 24)
SLICED, WHOLE = 100, 128  # columns of a slice, and of what it's cut from
_NO_SIZES = Guard(sizes=False)


def _pages() -> tuple[Tensor, Tensor]:
    """Return a small cache and a page table with three pages."""
    return torch.ones(6, PAGE, D), torch.tensor([4, 1, 5], dtype=torch.int32)


def _number(report: AuditReport, pattern: str) -> int:
    """Return the number that the first finding of a report has in its message."""
    found = re.search(pattern, report.findings[0].verdict.message)
    assert found, report.findings[0].verdict.message
    return int(found[1].replace(",", ""))


def _program() -> int:
    """The first program whose row begins at an offset that doesn't fit int32."""
    return -(-(2**31) // COLUMNS)


def _grid() -> tuple[int, ...]:
    with audited() as report:
        library.paged_copy(*_pages(), 19)
    launch = report.launches[0].launch
    return tuple(launch.full_grid[: launch.axes])


def _lengths() -> set[int]:
    failing = set()
    for T in LENGTHS:
        with audited() as report:
            draft.copied(*_pages(), T)
        if not report.ok:
            failing.add(T)
    return failing


def expected(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's cross-entropy, as `library.cross_entropy` should."""
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def _inputs(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return random logits and labels, the same each time."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(rows, columns, generator=draw), torch.randint(SLICED, (rows,), generator=draw)


@cache
def _kind() -> str:
    """Which kind of hard inputs the cross-entropy fails on."""
    logits, labels = _inputs(5, SLICED)
    report = audit(library.cross_entropy, logits, labels, like=expected, hard=True, guard=_NO_SIZES)
    ons = [finding.on for finding in report.findings]
    if all(".shape[" in on for on in ons):
        return "sizes"
    return "layouts" if all("rows" in on and "zeros" not in on for on in ons) else "values"


def _places() -> tuple[int, int]:
    """Where row 2 of the slice begins in memory, and where program 2 begins to read."""
    logits, labels = _inputs(3, WHOLE)
    sliced = logits[:, :SLICED]
    with audited() as report:
        library.cross_entropy(sliced, labels)
    one = _number(report, r"program 1: elements (\d+)")
    return 2 * sliced.stride(0), 2 * one


def _best() -> int:
    with audited():
        return int(library.argmax(torch.tensor([[-1.0, -2.0, -3.0]]))[0])


@cache
def _passed() -> int:
    return suite.passed(suite.TESTS + suite.HARDER)


def _is(value: object) -> Callable[[object, object], bool]:
    return lambda given, right: given == value


QUESTIONS = (
    Question(
        id="ch21-q1",
        asks="A row has 100 numbers. Which is the first program whose row * N doesn't fit int32?",
        right=_program,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r - 1,
                "Multiply: that row begins just below 2^31, and int32 holds numbers up to 2^31 - 1.",
            ),
            Nudge(lambda v, r: v >= 2**31 - 1, "That's an offset. Each program has a row of 100 numbers."),
            Nudge(
                lambda v, r: v in (2**32 // COLUMNS, 2**32 // COLUMNS + 1),
                "int32 has a sign, so it ends at half of that.",
            ),
            Nudge(
                _is(3), "Program 3 is the last one of your 4 rows. The report pretends that there are more."
            ),
            Nudge(lambda v, r: v > r, "That one is too far, too. But it isn't the first."),
        ),
        nudge="int32 holds numbers up to 2^31 - 1. How many rows of 100 numbers begin below 2^31?",
    ),
    Question(
        id="ch21-q2",
        asks="19 tokens of 100 numbers, pages of 8 tokens, blocks of 32 numbers. What's the grid? (a, b)",
        right=_grid,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == r[::-1], "The kernel's axis 0 counts pages, and axis 1 counts blocks."),
            Nudge(
                lambda v, r: v in ((19 // PAGE, D // 32), (19 // PAGE, r[1]), (r[0], D // 32)),
                "Round up: a page or a block that is only partly used needs a program, too.",
            ),
            Nudge(lambda v, r: v[:1] == (6,), "The cache has 6 pages. How many does this sequence use?"),
            Nudge(lambda v, r: v[:1] == (19,), "A program copies a whole page of tokens, not one token."),
            Nudge(lambda v, r: len(v) != 2, "The grid has two axes. Answer with a pair: (a, b)."),
        ),
        nudge="How many pages do 19 tokens fill? How many blocks of 32 do 100 numbers fill?",
    ),
    Question(
        id="ch21-q3",
        asks="For which of T = 1, 8, 17 and 24 will the audit find something? Answer with a set.",
        right=_lengths,
        kind=set,
        nudges=(
            Nudge(_is(set()), "Look at the mask. It checks d. Does anything check t?"),
            Nudge(_is({1}), "1 is correct. Which other T ends in the middle of a page?"),
            Nudge(_is({17}), "17 is correct. Which other T ends in the middle of a page?"),
            Nudge(lambda v, r: 8 in v or 24 in v, "8 and 24 tokens fill all of their pages."),
        ),
        nudge="A program always copies 8 tokens. When does out have fewer rows than that left?",
    ),
    Question(
        id="ch21-q4",
        asks='Which hard inputs will cross_entropy fail on: "values", "layouts" or "sizes"?',
        right=_kind,
        kind=str,
        nudges=(
            Nudge(
                _is("values"),
                "The running maximum and base handle infinities and huge values. What does the kernel take "
                "for granted about memory?",
            ),
            Nudge(
                _is("sizes"),
                "Every load of a block has a mask for v < V, so any V works. What does the kernel take for "
                "granted about memory?",
            ),
        ),
        nudge="The choices are values, layouts and sizes. Which line says where a row begins?",
    ),
    Question(
        id="ch21-q5",
        asks="A slice [:, :100] of 128 columns. Where in memory does its row 2 begin, and where does program "
        "2 begin to read? (a, b)",
        right=_places,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == r[::-1], "It's the other way round: first the row, then the program."),
            Nudge(
                lambda v, r: len(v) == 2 and v[0] == r[1],
                "Slicing copies nothing, so the rows are still as far apart as before.",
            ),
            Nudge(
                lambda v, r: len(v) == 2 and v[0] == r[0],
                "The row is correct. The program starts at row * V. What's V here?",
            ),
            Nudge(lambda v, r: v == (WHOLE, SLICED), "Those are the places for row 1."),
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (row, program)."),
        ),
        nudge="The row begins at 2 times the stride, and the program begins at 2 times V.",
    ),
    Question(
        id="ch21-q6",
        asks="What does argmax return for the row -1, -2, -3?",
        right=_best,
        kind=int,
        nudges=(
            Nudge(
                _is(0),
                "0 would be correct. But this kernel compares bits as integers. Look at the picture: which "
                "negative number has the last place?",
            ),
            Nudge(
                _is(2),
                "-3 does beat -1 and -2. But the block has 32 lanes, and only three of them hold your "
                "numbers. What do the others hold?",
            ),
            Nudge(
                _is(31),
                "You're close: a masked-off lane wins. They all hold -inf, and of equal numbers the first "
                "one wins.",
            ),
        ),
        nudge="The masked-off lanes hold -inf, whose size is larger than any number's. Where is its place in "
        "the picture?",
    ),
    Question(
        id="ch21-q7",
        asks="How many of the seven tests of the library pass with --audit?",
        right=_passed,
        kind=int,
        nudges=(
            Nudge(
                _is(4),
                "The first four pass. Of the new three, which function has no bug on these inputs?",
            ),
            Nudge(_is(7), "All seven would be nice. These tests run the library, which still has its bugs."),
            Nudge(_is(6), "The audit isn't the only judge. A test also fails because of its own assertions."),
        ),
        nudge="Go through the three new tests. Which of the functions has a bug on just these inputs?",
    ),
)
