"""Backward draws dropout's mask anew, and numbers the elements otherwise than forward did."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.chapters.ch20_clinic.patient import Patient
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def dropout_backward(dy: Float32[Tensor, "M N"], SEED: int) -> Float32[Tensor, "M N"]:
    """dx[m, n] = 2 · dy[m, n] where forward has kept x[m, n], and 0 elsewhere

    It has kept what is drawn above a half: tl.rand(SEED, m · N + n) > 0.5.
    """
    kept = uniform(SEED, torch.arange(dy.numel()).reshape(dy.shape)) > 0.5
    return torch.where(kept, 2 * dy, 0.0)


PUZZLE = Puzzle(
    number="61",
    spec=dropout_backward,
    formula=r"dx_{mn} = 2 \, dy_{mn} \text{ where } u_{mN + n} > \tfrac12 \text{, else } 0",
    grid=lambda s: (s.M,),
    outputs=("dx",),
    cases=(
        Case(M=1, N=64, SEED=7, BLOCK_N=64),  # one program
        Case(M=4, N=64, SEED=7, BLOCK_N=64),  # several, full blocks
        Case(M=4, N=50, SEED=11, BLOCK_N=64),  # ragged
        Case(M=3, N=33, SEED=5, BLOCK_N=64, fill={"dy": large}),
    ),
    contract=Contract(
        {
            "M": Size(9),
            "N": Size(150),
            "SEED": (5, 12),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        },
    ),
    broken_by="rows_of_a_block",
)

SLIP = Mistake(
    PUZZLE,
    "rows_of_a_block",
    "Numbers the draws as if a row had BLOCK_N elements.",
    {"tl.rand(SEED, row * N + n)": "tl.rand(SEED, row * BLOCK_N + n)"},
    kind="values",
    says="all wrong ones lie at 1..3 along M",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/state-spaces/mamba/pull/1023",
    ward="arithmetic",
    question=Question(
        id="ch20-q61",
        asks="N is 50, BLOCK_N is 64. For x[1, 0] forward took draw number 50. Which does backward take?",
        right=lambda: 1 * PUZZLE.cases[2].BLOCK_N + 0,
        kind=int,
        nudge="row is 1 and n is 0: put them into the line that draws",
        nudges=(
            Nudge(lambda v, r: v == 50, "then nothing would be wrong; which factor stands beside row?"),
            Nudge(lambda v, r: v == 0, "that is the draw of row 0"),
        ),
    ),
)
