"""The kernel assumes contiguous rows, and the tensor is a view of longer ones."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def logsumexp_of_view(x: Float32[Tensor, "M S"], N: int) -> Float32[Tensor, " M"]:
    """z[m] = log of the sum over n < N of exp(x[m, n])

    The rows are a view, x[:, :N], of rows with S numbers each.
    """
    return x[:, :N].logsumexp(1)


PUZZLE = Puzzle(
    number="44",
    spec=logsumexp_of_view,
    formula=r"z_m = \log \sum_{n < N} e^{x_{mn}}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=64, S=64, BLOCK_N=64),  # one program
        Case(M=4, N=64, S=64, BLOCK_N=64),  # the whole rows
        Case(M=4, N=40, S=64, BLOCK_N=64),  # a view
        Case(M=3, N=33, S=50, BLOCK_N=64, fill={"x": large}),
    ),
    needed={"x": lambda s: s.M * s.N},
    contract=Contract(
        {
            "M": Size(9),
            "N": Size(150),
            "S": lambda s: (s.N, s.N + 9),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        },
    ),
    broken_by="one_after_another",
)

SLIP = Mistake(
    PUZZLE,
    "one_after_another",
    "Assumes that a row starts where the one before it ends: N isn't the stride.",
    {"row * S": "row * N", "N, S, BLOCK_N": "N, BLOCK_N"},
    kind="values",
    says="3 of 4, the first is z[1]",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/NVIDIA/TransformerEngine/pull/2746",
    ward="sizes",
    question=which_line(
        SLIP,
        "Where does row 1 start in memory? And where does it start in the kernel?",
        Nudge(
            lambda v, r: v in (6, 7),
            "This line is correct for the numbers that were loaded. But were they row 1?",
        ),
    ),
)
