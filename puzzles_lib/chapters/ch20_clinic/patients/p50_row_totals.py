"""A tensor descriptor for rows that don't start at multiples of 16 bytes."""

import triton
from jaxtyping import BFloat16, Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import small
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def row_totals(x: BFloat16[Tensor, "M K"]) -> Float32[Tensor, " M"]:
    """z[m] = sum over k of x[m, k], for any K"""
    return x.sum(1)


PUZZLE = Puzzle(
    number="50",
    spec=row_totals,
    formula=r"z_m = \sum_k x_{mk}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    cases=(
        Case(M=16, K=32, BLOCK_M=16, BLOCK_K=32),  # one program, one block
        Case(M=32, K=64, BLOCK_M=16, BLOCK_K=16),  # several, all full
        Case(M=20, K=40, BLOCK_M=8, BLOCK_K=16, fill={"x": small}),  # ragged on both axes
        Case(M=20, K=43, BLOCK_M=8, BLOCK_K=16),  # K is odd
    ),
    contract=Contract(
        {"M": Size(80), "K": Size(150), "BLOCK_M": (16,), "BLOCK_K": lambda s: (16,) if s.K > 64 else (64,)}
    ),
    broken_by="described",
)

SLIP = Mistake(
    PUZZLE,
    "described",
    "A descriptor's rows must start at multiples of 16 bytes, which an odd K can't give.",
    {
        "    for k0 in range": (
            "    tiles = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])\n"
            "    for k0 in range"
        ),
        (
            "        k = k0 + tl.arange(0, BLOCK_K)  # [BLOCK_K]\n"
            "        mask = (m[:, None] < M) & (k[None, :] < K)\n"
            "        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=mask, other=0.0)\n"
        ): "        x = tiles.load([tl.program_id(0) * BLOCK_M, k0])  # 0 outside of x\n",
    },
    kind="error",
    says="rows of x_ptr's descriptor begin 86 bytes (43 elements) apart",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/10927",
    ward="masks",
    question=which_line(
        SLIP,
        "A kernel with pointers would work for any K. What in this one restricts where rows may start?",
        Nudge(lambda v, r: v in (3, 4), "This line doesn't use K."),
    ),
)
