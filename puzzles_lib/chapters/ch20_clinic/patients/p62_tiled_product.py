"""A loop's stages need more shared memory than a GPU has."""

from functools import cache

import triton
from jaxtyping import BFloat16, Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient
from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import small
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question

STAGE = 2 * (128 * 64 + 64 * 128)
"""The bytes of a stage: a tile of a and one of b, in bfloat16."""


def tiled_product(
    a: BFloat16[Tensor, "M K"],
    b: BFloat16[Tensor, "K N"],
) -> Float32[Tensor, "M N"]:
    """c = a @ b, with sums in float32"""
    return a @ b


PUZZLE = Puzzle(
    number="62",
    spec=tiled_product,
    formula=r"c_{mn} = \sum_k a_{mk} b_{kn}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    outputs=("c",),
    most_loads={"a": lambda s: s.M * s.K * triton.cdiv(s.N, s.BLOCK_N)},
    cases=(
        Case(M=64, N=32, K=32, BLOCK_M=64, BLOCK_N=32, BLOCK_K=32),  # one program, one step
        Case(M=128, N=128, K=128, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64),  # the blocks of the report
        Case(M=90, N=70, K=80, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32),  # ragged on all axes
        Case(M=33, N=100, K=70, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16, fill={"a": small}),
    ),
    contract=Contract(
        {
            "M": Size(300),
            "N": Size(300),
            "K": Size(300),
            "BLOCK_M": (64,),
            "BLOCK_N": (64,),
            "BLOCK_K": lambda s: (16,) if s.K > 128 else (64,),
        },
    ),
    machine=(Goal(cases=(1,), wants=(Want("programs", least=2), Want("shared", least=3 * STAGE))),),
    broken_by="eight_stages",
)

SLIP = Mistake(
    PUZZLE,
    "eight_stages",
    "Eight stages of both tiles need more shared memory than an H100 has.",
    {"num_stages=3": "num_stages=8"},
    kind="launch",
    says="a program needs 256 KB of shared memory",
)


@cache
def stages_that_fit() -> int:
    """Return how many stages of both tiles fit in an H100's shared memory."""
    return 232_448 // STAGE


PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/8182",
    ward="tools",
    question=Question(
        id="ch20-q62",
        asks=(
            "A stage holds a tile of a, 128 x 64, and one of b, 64 x 128, both bfloat16. A program may use "
            "232448 bytes of shared memory on an H100. How many stages fit?"
        ),
        right=stages_that_fit,
        kind=int,
        nudge="How many bytes does one tile take, and how many a stage? How often does that go into 232448?",
        nudges=(
            Nudge(lambda v, r: v == 14, "A stage contains two tiles, a and b."),
            Nudge(lambda v, r: v == 3, "That would be correct for four bytes per element. bfloat16 has two."),
            Nudge(lambda v, r: v == 8, "8 is what the kernel asks for, and that failed. Count the bytes."),
        ),
    ),
)
