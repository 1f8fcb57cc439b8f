"""Offsets of far rows do not fit into 32 bits."""

from types import SimpleNamespace

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def tiny(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 2^-50, whose squares float32 still has."""
    return (2.0**-50 * torch.randn(shape, generator=generator)).to(dtype)


def _one_block(numbers: SimpleNamespace) -> tuple[int, ...]:
    """Return a BLOCK_K that holds a whole row."""
    return (max(128, triton.next_power_of_2(numbers.K)),)


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
    hard={"numbers can be as small as 1e-15": Case(B=1, T=4, K=16, BLOCK_T=4, BLOCK_K=16, fill={"x": tiny})},
    contract=Contract(
        {"B": Size(9), "T": Size(30), "K": Size(70), "BLOCK_T": (16,), "BLOCK_K": _one_block},
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


def first_wrong(B: int, K: int = 8192) -> int:
    """Return the smallest T at which the last of B sequences begins where no int32 reaches."""
    return -(-(2**31) // ((B - 1) * K))


PATIENT = Patient(
    SLIP,
    thread="https://github.com/fla-org/flash-linear-attention/issues/1080",
    question=cause(
        SLIP,
        "d",
        ("elements",),
        a="Test this on a small input: run the kernel on 2 sequences of 7 tokens with BLOCK_T=4. "
        "Which results are "
        "wrong?",
        b="Compare with 17,476 tokens. How many programs does the grid have for each of the two lengths?",
        c="How many gigabytes are 16 · 17,477 · 8192 float32 numbers? And how many are they with "
        "17,476, which works?",
    ),
    also=Question(
        id="ch20-q8",
        asks="With 33 sequences, what's the smallest number of tokens for which the last one is wrong?",
        right=lambda: first_wrong(33),
        kind=int,
        nudge="How many numbers come before the last sequence? Which is the first that an int32 can't hold?",
        nudges=(
            Nudge(lambda v, r: v == first_wrong(16), "That's the report's number, for 16 sequences."),
            Nudge(
                lambda v, r: v == first_wrong(34),
                "You counted all 33 sequences. How many are before the last one?",
            ),
            Nudge(
                lambda v, r: v == r - 1, "Then the last sequence begins just below 2^31. An int32 holds that."
            ),
            Nudge(lambda v, r: v == r + 1, "Almost: what happens at exactly 2^31?"),
        ),
    ),
)
