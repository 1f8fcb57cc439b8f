"""Weights relative to one maximum are added to sums relative to another."""

import torch
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import far_below, late_maximum
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge

STEP = 8.0
"""The kernel moves its maximum only if it grows by more than this."""


def leaps(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Rows that are 100 higher in each quarter than in the one before."""
    quarter = torch.arange(shape[-1]) * 4 // shape[-1]
    return (100.0 * quarter + torch.randn(shape, generator=generator)).to(dtype)


def attended(
    x: Float32[Tensor, "M N"],
    v: Float32[Tensor, "M N"],
) -> Float32[Tensor, " M"]:
    """z[m] = sum over n of w[m, n] · v[m, n], where w[m] is the softmax of x[m]

    Each program computes one row, block by block.
    """
    return (x.softmax(1) * v).sum(1)


def too_light(x: Tensor, v: Tensor, BLOCK_N: int) -> Tensor:
    """Compute `attended` with weights relative to a new maximum and sums relative to the old one."""
    top = torch.full_like(x[:, 0], -torch.inf)
    total, acc = torch.zeros_like(top), torch.zeros_like(top)
    for part, values in zip(x.split(BLOCK_N, 1), v.split(BLOCK_N, 1), strict=True):
        best = torch.maximum(top, part.amax(1))
        new = torch.where(best > top + STEP, best, top)
        p, scale = (part - best[:, None]).exp(), (top - new).exp()
        total, acc, top = total * scale + p.sum(1), acc * scale + (p * values).sum(1), new
    return acc / total


def _left_behind(x: Tensor, v: Tensor, BLOCK_N: int) -> Tensor:
    """Like `too_light`, with sums that are rescaled to a maximum that isn't kept."""
    top = torch.full_like(x[:, 0], -torch.inf)
    total, acc = torch.zeros_like(top), torch.zeros_like(top)
    for part, values in zip(x.split(BLOCK_N, 1), v.split(BLOCK_N, 1), strict=True):
        best = torch.maximum(top, part.amax(1))
        p, scale = (part - best[:, None]).exp(), (top - best).exp()
        total, acc = total * scale + p.sum(1), acc * scale + (p * values).sum(1)
        top = torch.where(best > top + STEP, best, top)
    return acc / total


PUZZLE = Puzzle(
    number="59",
    spec=attended,
    formula=r"z_m = \sum_n \frac{e^{x_{mn}}}{\sum_j e^{x_{mj}}} \, v_{mn}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=16, BLOCK_N=16),  # one program, one block
        Case(M=3, N=64, BLOCK_N=16),  # several blocks, all full
        Case(M=4, N=45, BLOCK_N=16),  # ragged
        Case(M=3, N=64, BLOCK_N=16, fill={"x": late_maximum}),  # each block has a new maximum
        Case(M=2, N=64, BLOCK_N=16, fill={"x": leaps}),  # too far for float32's exp
        Case(M=2, N=40, BLOCK_N=16, fill={"x": far_below}),  # no maximum starts at 0
    ),
    slips={
        "a block that raises the maximum slightly gets too little weight": too_light,
        "sums and weights are relative to the new maximum, but `top` still has the old one": _left_behind,
    },
    contract=Contract(
        {"M": Size(9), "N": Size(300), "BLOCK_N": lambda s: (32,) if s.N > 64 else (32, 64)},
        fills=lambda s: ({"x": leaps}, {"x": late_maximum}),
    ),
    broken_by="two_maxima",
)

SLIP = Mistake(
    PUZZLE,
    "two_maxima",
    "The new weights are relative to a new maximum, but the sums are still relative to the old one.",
    {"tl.exp(x - new)": "tl.exp(x - best)"},
    kind="values",
    says="a block that raises the maximum slightly gets too little weight",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/ROCm/rocm-libraries/pull/6498",
    ward="arithmetic",
    question=which_line(
        SLIP,
        "Take a block whose maximum is 3 above the old one. To which maximum is each value relative?",
        Nudge(lambda v, r: v == 9, "This is the largest score so far, and it's correct. Which lines use it?"),
        Nudge(
            lambda v, r: v in (12, 15), "This line correctly keeps the sums relative to the maximum in `new`."
        ),
        Nudge(
            lambda v, r: v in (13, 14),
            "You may add two numbers if they're relative to the same maximum. Are these two?",
        ),
        Nudge(
            lambda v, r: v == 10,
            "You may keep the old maximum for a while: exp(8) easily fits into float32. Which line doesn't "
            "keep it?",
        ),
    ),
)
