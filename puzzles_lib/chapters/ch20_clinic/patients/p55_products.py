"""tl.dot of float32 takes 10 bits of each factor."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle


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

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/6265",
    ward="size of the error",
    question=cause(
        SLIP,
        "b",
        a="Reduce: make only one product of each sum differ from 0. Then the order doesn't matter. "
        "Is it exact now?",
        c="Test this: put all of x's numbers but the last of a row to 0. Is the result 0, or just "
        "slightly off?",
        d="Then every result would be a float16. Between 16 and 32 those are 1/64 apart: is -31.2457 one?",
    ),
)
