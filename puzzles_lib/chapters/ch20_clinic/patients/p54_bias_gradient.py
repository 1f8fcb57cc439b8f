"""What is added to a float32 buffer has been rounded to bfloat16 on the way."""

import triton
from jaxtyping import BFloat16, Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import small
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def bias_gradient(dy: BFloat16[Tensor, "M N"]) -> Float32[Tensor, " N"]:
    """db[n] = sum over m of dy[m, n], where each program adds its part"""
    return dy.sum(0)


PUZZLE = Puzzle(
    number="54",
    spec=bias_gradient,
    formula=r"db_n = \sum_m dy_{mn}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    outputs=("db",),
    zeroed=("db",),
    cases=(
        Case(M=8, N=64, BLOCK_M=8, BLOCK_N=64),  # one program
        Case(M=32, N=32, BLOCK_M=8, BLOCK_N=16),  # several, all full
        Case(M=29, N=20, BLOCK_M=8, BLOCK_N=16),  # ragged on both axes
        Case(M=40, N=5, BLOCK_M=16, BLOCK_N=8, fill={"dy": small}),
    ),
    contract=Contract({"M": Size(150), "N": Size(150), "BLOCK_M": (32,), "BLOCK_N": (64,)}),
    broken_by="as_the_input",
)

SLIP = Mistake(
    PUZZLE,
    "as_the_input",
    "Each part is rounded to the input's bfloat16 before it is added.",
    {"part = tl.sum(dy.to(tl.float32), axis=0)": "part = tl.sum(dy.to(tl.float32), axis=0).to(dy.dtype)"},
    kind="values",
    says="a coarser type's rounding",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/linkedin/Liger-Kernel/pull/1253",
    ward="arithmetic",
    question=which_line(
        SLIP,
        "Follow the dtype of each value, from dy to what's added.",
        Nudge(lambda v, r: v == r + 1, "This line adds what it's given. What dtype is that?"),
        Nudge(lambda v, r: v == r - 1, "dy is bfloat16 in memory, so this line loses nothing."),
    ),
)
