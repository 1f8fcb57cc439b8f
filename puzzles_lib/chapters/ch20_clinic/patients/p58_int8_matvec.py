"""The product of two int8 numbers is an int8."""

import torch
import triton
from jaxtyping import Int8, Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def minus_3_to_3(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """From -3 to 3."""
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def near_the_end(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """From -128 to -121."""
    return torch.randint(-128, -120, shape, generator=generator).to(dtype)


def int8_matvec(a: Int8[Tensor, "M K"], x: Int8[Tensor, " K"]) -> Int32[Tensor, " M"]:
    """y[m] = sum over k of a[m, k] · x[k], exactly"""
    return (a.double() @ x.double()).int()


PUZZLE = Puzzle(
    number="58",
    spec=int8_matvec,
    formula=r"y_m = \sum_k a_{mk} x_k",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    outputs=("y",),
    cases=(
        Case(M=8, K=16, BLOCK_M=8, BLOCK_K=16, fill={"a": minus_3_to_3, "x": minus_3_to_3}),  # one program
        Case(M=16, K=64, BLOCK_M=8, BLOCK_K=16, fill={"a": minus_3_to_3, "x": minus_3_to_3}),  # several
        Case(M=16, K=64, BLOCK_M=8, BLOCK_K=16),  # all of int8
        Case(M=13, K=49, BLOCK_M=8, BLOCK_K=16),  # ragged on both axes
        # sums beyond 2^24, which float32 does not hold
        Case(M=2, K=1500, BLOCK_M=2, BLOCK_K=256, fill={"a": near_the_end, "x": near_the_end}),
    ),
    slips={"each product is kept in 8 bits": lambda a, x: (a * x).int().sum(1).int()},
    contract=Contract(
        {
            "M": Size(40),
            "K": Size(4500),
            "BLOCK_M": (16,),
            "BLOCK_K": lambda s: (256,) if s.K > 1500 else (512,),
        }
    ),
    broken_by="multiplied_in_int8",
)

SLIP = Mistake(
    PUZZLE,
    "multiplied_in_int8",
    "Multiplies in int8 and widens what's left of the product.",
    {"a.to(tl.int32) * x[None, :]": "(a * x[None, :]).to(tl.int32)"},
    kind="values",
    says="each product is kept in 8 bits",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/2296",
    ward="arithmetic",
    question=reproduce(
        SLIP,
        "M = K = 1. For which a and x, both int8, is the result wrong? (a, x)",
        (16, 8),
        lambda a, x: all(-128 <= each <= 127 for each in (a, x)) and not -128 <= a * x <= 127,
        "Take small numbers through the kernel, then larger ones. In which line is the product, and what's "
        "the dtype there?",
        Nudge(
            lambda v, r: not all(-128 <= each <= 127 for each in v),
            "An int8 goes from -128 to 127.",
        ),
        Nudge(lambda v, r: 0 in v, "A product of 0 fits everywhere."),
    ),
)
