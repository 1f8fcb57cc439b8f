"""A scan's combine is not associative."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import first_alone, unmoved, zeros
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def discounted_sum(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    """z[m, n] = z[m, n - 1] / 2 + x[m, n], where z[m, -1] = 0

    Each program computes one row, which fits in its block.
    """
    total, rows = torch.zeros_like(x[:, 0]), []
    for column in x.unbind(1):
        total = total / 2 + column
        rows.append(total)
    return torch.stack(rows, 1)


PUZZLE = Puzzle(
    number="57",
    spec=discounted_sum,
    formula=r"z_{mn} = \tfrac{1}{2} z_{m, n-1} + x_{mn}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=8, BLOCK_N=8),  # one program
        Case(M=3, N=16, BLOCK_N=16),  # several, all full
        Case(M=4, N=13, BLOCK_N=16),  # ragged
        Case(M=2, N=20, BLOCK_N=32, fill={"x": zeros}),
        Case(M=2, N=45, BLOCK_N=64),  # beyond the lanes of a warp
    ),
    hard={
        "powers of 2 from 2^128 on are infinite": Case(M=2, N=300, BLOCK_N=512),
        "a sum halves for as long as a row goes on": (
            Case(M=1, N=100, BLOCK_N=128, fill={"x": unmoved(first_alone)})
        ),
    },
    contract=Contract({"M": Size(9), "N": Size(150), "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),)}),
    broken_by="from_left_to_right",
)

SLIP = Mistake(
    PUZZLE,
    "from_left_to_right",
    "Correct only from left to right: it halves the sum so far once, however many elements are joined to it.",
    {"sum_a * factor_b + sum_b": "sum_a * 0.5 + sum_b"},
    kind="values",
    says="the scan's combine function is not associative",
)


def _both_ways() -> tuple[tuple[float, float], tuple[float, float]]:
    """Return what the reported function makes of 1, 2 and 3: the left two first, and the right two first."""

    def then(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        return a[0] * b[0], a[1] * 0.5 + b[1]

    one, two, three = (0.5, 1.0), (0.5, 2.0), (0.5, 3.0)
    return then(then(one, two), three), then(one, then(two, three))


PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/3485",
    question=cause(
        SLIP,
        "c",
        ("parts", "elements"),
        a="Compare the report's two lists: which is the first result that differs?",
        b="Test this with powers of 2: run x = 1, 0, 0, 0, whose results are all exact. Are they correct?",
        d="Test this without such lanes: run a row of 4 numbers with BLOCK_N=4. Is the third result "
        "correct now?",
    ),
    also=Question(
        id="ch20-q13",
        asks="Join 1, 2 and 3 by hand: the left two first, then the right two first. What are the two sums?",
        right=lambda: tuple(joined[1] for joined in _both_ways()),
        kind=tuple,
        nudge="`then` joins two pairs into one. The row's pairs are (0.5, 1), (0.5, 2) and (0.5, 3).",
        nudges=(
            Nudge(lambda v, r: len(v) != len(r), "Answer with two numbers: (left, right)."),
            Nudge(lambda v, r: v == r[::-1], "It's the other way round: first the left two."),
            Nudge(
                lambda v, r: v[0] == r[0],
                "The first is correct. For the second, join 2 and 3, and then 1 with that pair.",
            ),
        ),
    ),
)
