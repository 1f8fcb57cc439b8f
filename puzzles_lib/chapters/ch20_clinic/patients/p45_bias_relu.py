"""A mask is computed but not passed to the store."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import UNLIKE, faint, mighty, partly_huge, small
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def bias_relu(
    x: Float32[Tensor, "M N"],
    b: Float32[Tensor, " N"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = max(x[m, n] + b[n], 0)"""
    return (x + b).relu()


PUZZLE = Puzzle(
    number="45",
    spec=bias_relu,
    formula=r"z_{mn} = \max(x_{mn} + b_n, 0)",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=4, N=16, BLOCK_M=4, BLOCK_N=16),  # one program
        Case(M=16, N=48, BLOCK_M=4, BLOCK_N=16),  # several, all full
        Case(M=14, N=37, BLOCK_M=4, BLOCK_N=16),  # ragged on both axes
        Case(M=5, N=20, BLOCK_M=4, BLOCK_N=16, fill={"x": small}),
    ),
    most_loads={"x": lambda s: s.M * s.N},
    hard={UNLIKE: Case(M=4, N=16, BLOCK_M=4, BLOCK_N=16, fill={"x": faint, "b": mighty})},
    contract=Contract(
        {"M": Size(40), "N": Size(150), "BLOCK_M": (16,), "BLOCK_N": (64,)},
        fills=lambda s: ({}, {"x": partly_huge}),
    ),
    broken_by="mask_left_behind",
)

SLIP = Mistake(
    PUZZLE,
    "mask_left_behind",
    "The store has no mask, so lanes past the end of a row write to the next row.",
    {"tl.maximum(x + b[None, :], 0.0), mask=mask)": "tl.maximum(x + b[None, :], 0.0))"},
    kind="out of bounds",
    says="store of z_ptr",
)


def _past_the_end(N: int, BLOCK_N: int = 16) -> int:
    """Return how many lanes of a row's last tile are past the row's end."""
    return -N % BLOCK_N


PATIENT = Patient(
    SLIP,
    thread="https://github.com/Dao-AILab/flash-attention/issues/2789",
    question=cause(
        SLIP,
        "c",
        ("elements", "runs"),
        a="Test this with two tiles: run 4 rows of 32 columns, with BLOCK_M=4 and BLOCK_N=16. Is "
        "anything wrong?",
        b="True, but those lanes belong to no element of z. Run 8 rows of 20 columns, with x = "
        "0, b = 1 to 20, BLOCK_M=4 and BLOCK_N=16: which results are wrong?",
        d="To compute with it, a program has to load z. Find the line that does.",
    ),
    also=Question(
        id="ch20-q7",
        asks="With BLOCK_M = 4 and BLOCK_N = 16, which width from 17 to 32 has the fewest "
        "wrong results, but some?",
        right=lambda: min(filter(_past_the_end, range(17, 33)), key=_past_the_end),
        kind=int,
        nudge="Run 8 rows of this width. How many results of a row are wrong? Another width has fewer.",
        nudges=(
            Nudge(lambda v, r: not 17 <= v <= 32, "Choose a width from 17 to 32."),
            Nudge(lambda v, r: v == 32, "Run 8 rows of this width: all results are correct."),
        ),
    ),
)
