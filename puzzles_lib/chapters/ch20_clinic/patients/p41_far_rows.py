"""Offsets of far rows do not fit into 32 bits."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle


def far_rows(x: Float32[Tensor, "B T K"]) -> Float32[Tensor, "B T"]:
    """z[b, t] = sum over k of x[b, t, k]²"""
    return x.square().sum(2)


PUZZLE = Puzzle(
    number="41",
    spec=far_rows,
    formula=r"z_{bt} = \sum_k x_{btk}^2",
    grid=lambda s: (s.B, triton.cdiv(s.T, s.BLOCK_T)),
    cases=(
        Case(B=1, T=4, K=16, BLOCK_T=4, BLOCK_K=16),  # one program
        Case(B=3, T=8, K=16, BLOCK_T=4, BLOCK_K=16),  # several, all full
        Case(B=2, T=7, K=13, BLOCK_T=4, BLOCK_K=16, fill={"x": large}),  # ragged on both axes
        Case(pretend=True, B=16, T=17_476, K=8192, BLOCK_T=4, BLOCK_K=8192),  # as in the report: right
        Case(pretend=True, B=16, T=17_477, K=8192, BLOCK_T=4, BLOCK_K=8192),  # and wrong
        Case(pretend=True, B=33, T=17_477, K=8192, BLOCK_T=4, BLOCK_K=8192),  # too far for a uint32 as well
    ),
    contract=Contract(
        {"B": Size(9), "T": Size(30), "K": Size(70), "BLOCK_T": (16,), "BLOCK_K": (128,)},
    ),
    broken_by="int32_offsets",
)

SLIP = Mistake(
    PUZZLE,
    "int32_offsets",
    "The sequence's number is an int32, and so is its product with T * K.",
    {"tl.program_id(0).to(tl.int64)": "tl.program_id(0)"},
    kind="true size",
    says="does not fit int32",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/fla-org/flash-linear-attention/issues/1080",
    ward="elements",
    question=cause(
        SLIP,
        "d",
        a="Test this on a small input: run the kernel on 2 sequences of 7 tokens with BLOCK_T=4. "
        "Which results are "
        "wrong?",
        b="Compare with 17,476 tokens. How many programs does the grid have for each of the two lengths?",
        c="How many gigabytes are 16 · 17,477 · 8192 float32 numbers? And how many are they with "
        "17,476, which works?",
    ),
)
