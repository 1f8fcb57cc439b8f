"""A packed sequence starts inside a block, and the block's sum includes the sequence before it."""

import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch18_attention.puzzles import lengths
from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large, unmoved
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def running_sums(
    x: Float32[Tensor, " T"],
    cu: Int32[Tensor, " B+1"],
) -> Float32[Tensor, " T"]:
    """z[t] = sum of x from the beginning of t's sequence up to t

    B sequences are packed one after another: sequence b starts at x[cu[b]] and ends
    before x[cu[b + 1]]. Program b goes through it in blocks.
    """
    spans = zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)
    return torch.cat([x[first:end].cumsum(0) for first, end in spans])


@unmoved
def huge_at_first(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 2^30, followed by zeros in the first half, and small whole numbers in the second."""
    x = torch.randint(1, 9, shape, generator=generator).to(dtype)
    x[: shape[0] // 2] = 0
    x[0] = 2.0**30
    return x


def shared_out(T: int, B: int):
    """Return lengths: at least half for the first sequence, and one length for all others, perhaps 0."""
    each = T // (2 * B)
    return lengths(T - each * (B - 1), *[each] * (B - 1))


PUZZLE = Puzzle(
    number="43",
    spec=running_sums,
    formula=r"z_t = \sum_{i = \mathrm{cu}_b}^{t} x_i \text{ for } \mathrm{cu}_b \le t < \mathrm{cu}_{b+1}",
    grid=lambda s: (s.B,),
    cases=(
        Case(T=16, B=1, BLOCK=16, fill={"cu": lengths(16)}),  # one program, one block
        Case(T=64, B=2, BLOCK=16, fill={"cu": lengths(32, 32)}),  # several, all full
        Case(T=50, B=1, BLOCK=16, fill={"cu": lengths(50)}),  # ragged, and alone
        Case(T=75, B=3, BLOCK=16, fill={"cu": lengths(21, 23, 31)}),  # ragged, in company
        # empty ones, before and between; more sequences than lanes
        Case(T=40, B=8, BLOCK=4, fill={"cu": lengths(0, 0, 0, 0, 1, 16, 0, 23), "x": large}),
    ),
    hard={
        "a sequence's sums don't depend on the one before, however large that is": (
            Case(T=40, B=2, BLOCK=16, fill={"cu": lengths(20, 20), "x": huge_at_first})
        ),
        "a sequence can be longer than a block, and begin within the 4 neighboring lanes of a thread": (
            Case(T=1024, B=2, BLOCK=512, fill={"cu": lengths(513, 511)})
        ),
    },
    contract=Contract(
        {"T": Size(300), "B": Size(17), "BLOCK": lambda s: (8,) if s.T > 75 else (32, 128)},
        fills=lambda s: ({"cu": shared_out(s.T, s.B)},),
    ),
    broken_by="from_the_block",
)

SLIP = Mistake(
    PUZZLE,
    "from_the_block",
    "Blocks start at multiples of BLOCK but sequences don't, so elements before a sequence are added to it.",
    {"mask=mine, other=0.0)": "mask=t < end, other=0.0)"},
    kind="values",
    says="z[21]",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/vllm-project/vllm/pull/23279",
    question=cause(
        SLIP,
        "b",
        ("elements", "runs", "parts"),
        a="Test this: run two requests of 16 tokens each, with BLOCK=16. Is the second one wrong?",
        c="Reduce: run requests of 3 and 1 tokens, with BLOCK=16. Which of the two is wrong, the "
        "one before the "
        "boundary or the one after it?",
        d="Test this with ones for x: every order has the same sum then. Is the second request still wrong?",
    ),
    also=reproduce(
        "ch20-q2",
        "Two requests of lengths (a, b) are packed, with BLOCK = 16. What's the shortest pair with which the "
        "second one is wrong?",
        (1, 1),
        lambda a, b: (a, b) == (1, 1),
        "Where does the loop of the second request begin, and where does the request itself?",
        Nudge(lambda v, r: v[1] < 1, "Then the second request has no sums that could be wrong."),
        Nudge(
            lambda v, r: v[0] > 0 and v[0] % 16 != 0,
            "The second request is wrong, as asked. But reduce further: fewer tokens will do.",
        ),
        Nudge(
            lambda v, r: v[0] >= 0 and v[0] % 16 == 0,
            "Then the second request begins where a block begins, and no lane before it is loaded.",
        ),
    ),
)
