"""A masked load without `other=` feeds a reduction."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def above_zero(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """From 1 to 2: no number is below a lane of zeros."""
    return 1 + torch.rand(shape, generator=generator, dtype=dtype)


def huge(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """From 1e30 to 2e30: above what is often taken for infinity."""
    return 1e30 * above_zero(shape, dtype, generator)


def row_minimum(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    """z[m, n] = x[m, n] - min over j of x[m, j]

    Each program computes one row, which fits in its block.
    """
    return x - x.amin(1, keepdim=True)


def _with_zeros(x: Tensor, N: int, BLOCK_N: int) -> Tensor:
    """Return the results if lanes past the end count as 0."""
    least = x.amin(1, keepdim=True)
    return x - (least.clamp(max=0.0) if N < BLOCK_N else least)


PUZZLE = Puzzle(
    number="46",
    spec=row_minimum,
    formula=r"z_{mn} = x_{mn} - \min_j x_{mj}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=32, BLOCK_N=32),  # one program
        Case(M=4, N=64, BLOCK_N=64),  # several, all full
        Case(M=3, N=50, BLOCK_N=64),  # ragged
        Case(M=3, N=33, BLOCK_N=64, fill={"x": above_zero}),
        Case(M=2, N=20, BLOCK_N=32, fill={"x": huge}),
    ),
    contract=Contract(
        {"M": Size(9), "N": Size(300), "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),)},
        fills=lambda s: ({"x": above_zero}, {}),
    ),
    slips={"lanes past the row count as 0, which is below every positive number": _with_zeros},
    broken_by="no_other",
)

SLIP = Mistake(
    PUZZLE,
    "no_other",
    "Lanes past the row are undefined, and they take part in the minimum.",
    {', other=float("inf")': ""},
    kind="uninitialised",
    says="lanes of x_ptr",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/flagos-ai/FlagGems/issues/3716",
    ward="masks",
    question=which_line(
        SLIP,
        "What's in the lanes past the end of a row, and which line decides that?",
        Nudge(
            lambda v, r: v == r + 1, "This line uses what it gets. Which line fills the lanes past the row?"
        ),
        Nudge(lambda v, r: v == r + 2, "The lanes past the row aren't stored. The damage was done before."),
    ),
)
