"""tl.dot of float32 takes 10 bits of each factor."""

import numpy as np
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question
from puzzles_lib.runner.numerics import float32_to_tf32


def products(
    x: Float32[Tensor, "M K"],
    y: Float32[Tensor, "K N"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = sum over k of x[m, k] · y[k, n]

    The result must be as accurate as float32.
    """
    return x @ y


PUZZLE = Puzzle(
    number="55",
    spec=products,
    formula=r"z_{mn} = \sum_k x_{mk} y_{kn}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=16, N=16, K=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),  # one program, one step
        Case(M=32, N=32, K=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),  # several, all full
        Case(M=21, N=70, K=40, BLOCK_M=16, BLOCK_N=64, BLOCK_K=32),  # ragged on all axes
        Case(M=40, N=33, K=30, BLOCK_M=32, BLOCK_N=16, BLOCK_K=16, fill={"x": large}),
    ),
    contract=Contract(
        {
            "M": Size(150),
            "N": Size(300),
            "K": Size(150),
            "BLOCK_M": (32,),
            "BLOCK_N": (64,),
            "BLOCK_K": (32,),
        }
    ),
    broken_by="in_tf32",
)

SLIP = Mistake(
    PUZZLE,
    "in_tf32",
    "By default, a dot of float32 uses TF32: 10 bits of each factor.",
    {'tl.dot(x, y, input_precision="ieee")': "tl.dot(x, y)"},
    kind="values",
    says="TF32",
)


def _exact_bits() -> int:
    """Return the largest k for which 1 + 2^-k is a number of TF32."""
    x = 1 + 2.0 ** -np.arange(1, 24, dtype=np.float32)
    return int((float32_to_tf32(x) == x).sum())


PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/6265",
    question=cause(
        SLIP,
        "b",
        ("size of the error",),
        a="Reduce: make only one product of each sum differ from 0. Then the order doesn't matter. "
        "Is it exact now?",
        c="Test this: put all of x's numbers but the last of a row to 0. Is the result 0, or just "
        "slightly off?",
        d="Then every result would be a float16. Between 16 and 32 those are 1/64 apart: is -31.2457 one?",
    ),
    also=Question(
        id="ch20-q12",
        asks="1 + 2^-k times the identity: what's the largest k for which the result is still exact?",
        right=_exact_bits,
        kind=int,
        nudge="Run it for k from 1 to 23, and print whether z equals x.",
        nudges=(
            Nudge(lambda v, r: v == 23, "23 is what a float32 can hold. Is z equal to x there?"),
            Nudge(lambda v, r: 0 < v < r, "That one is exact, but it isn't the largest."),
            Nudge(lambda v, r: v == r + 1, "That is the first k for which it isn't exact."),
        ),
    ),
)
