"""A row is stored and one element of it loaded again, without a barrier in between."""

import torch
import triton
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def below(most: int):
    """Labels of classes from 0 to most - 1."""

    def some_class(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.randint(most, shape, dtype=dtype, generator=generator)

    return some_class


def label_probability(
    x: Float32[Tensor, "M N"],
    label: Int32[Tensor, " M"],
) -> tuple[Float32[Tensor, "M N"], Float32[Tensor, " M"]]:
    """p[m, n] = softmax of x[m] at n, and q[m] = p[m, label[m]]

    Each program computes one row, which fits in its block. Labels go from 0 to N - 1.
    """
    p = x.softmax(1)
    return p, p.gather(1, label[:, None].long())[:, 0]


PUZZLE = Puzzle(
    number="51",
    spec=label_probability,
    formula=r"p_{mn} = \frac{\exp x_{mn}}{\sum_j \exp x_{mj}} \qquad q_m = p_{m, \mathrm{label}_m}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=128, BLOCK_N=128, fill={"label": below(128)}),  # one program
        Case(M=4, N=64, BLOCK_N=64, fill={"label": below(64)}),  # several, all full
        Case(M=3, N=50, BLOCK_N=64, fill={"label": below(50)}),  # ragged
        Case(M=3, N=33, BLOCK_N=64, fill={"label": below(33), "x": large}),
    ),
    outputs=("p", "q"),
    contract=Contract(
        {"M": Size(9), "N": Size(300), "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),)},
        fills=lambda s: ({"label": below(s.N)},),
    ),
    broken_by="no_barrier",
)

SLIP = Mistake(
    PUZZLE,
    "no_barrier",
    "A thread loads what another thread stores, without waiting for it.",
    {"    tl.debug_barrier()\n": ""},
    kind="race",
    says="within program",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/1097",
    ward="memory",
    question=which_line(
        SLIP,
        "Which two lines access the same memory?",
        Nudge(lambda v, r: v < r, "Up to this line, everything is in registers."),
        asks="Which line is missing? Name the one above the gap, or the one below it.",
    ),
)
