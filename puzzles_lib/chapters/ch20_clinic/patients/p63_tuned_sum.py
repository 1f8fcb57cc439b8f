"""Autotune runs a kernel many times, and a kernel that adds to its result adds each time."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def tuned_sum(x: Float32[Tensor, " N"]) -> Float32[Tensor, "1"]:
    """z[0] = sum over n of x[n]

    Each program adds its part. Autotune chooses the block size: the table has its
    first choice.
    """
    return x.sum(0, keepdim=True)


PUZZLE = Puzzle(
    number="63",
    spec=tuned_sum,
    formula=r"z_0 = \sum_n x_n",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK_N),),
    cases=(
        Case(N=16, BLOCK_N=32),  # one program
        Case(N=128, BLOCK_N=32),  # several, all full
        Case(N=45, BLOCK_N=32),  # ragged
        Case(N=77, BLOCK_N=32, fill={"x": large}),
    ),
    zeroed=("z",),
    contract=Contract({"N": Size(300), "BLOCK_N": (32, 64)}),
    broken_by="never_reset",
)

SLIP = Mistake(
    PUZZLE,
    "never_reset",
    "What one configuration has added is still there when the next one is tried.",
    {'    reset_to_zero=["z_ptr"],\n': ""},
    kind="values",
    says="correct alone, but wrong on the results that other configurations leave",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/4217",
    ward="tools",
    question=which_line(
        SLIP,
        "The kernel itself is correct. But what runs it, how often, and on which tensors?",
        Nudge(
            lambda v, r: v > r + 2, "This line is correct in a kernel that runs once. Does this one run once?"
        ),
        asks="Which line is missing? Name the one above the gap, or the one below it.",
    ),
)
