"""Weights relative to one maximum are added to sums relative to another."""

import torch
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import LIGHT, falling, far_below, late_maximum, rising
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question

STEP = 8.0
"""The kernel moves its maximum only if it grows by more than this."""


def leaps(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows that are 100 higher in each quarter than in the one before."""
    quarter = torch.arange(shape[-1]) * 4 // shape[-1]
    return (100.0 * quarter + torch.randn(shape, generator=generator)).to(dtype)


def around_the_step(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows whose quarters rise by a little less than the step, by the step, and by a little more."""
    levels = torch.tensor(
        [[0.0, STEP - 0.5, STEP + 0.5, 2 * STEP], [0.0, STEP, STEP + 0.25, 2 * STEP + 0.25]]
    )
    quarter = torch.arange(shape[-1]) * 4 // shape[-1]
    return levels[torch.arange(shape[0]) % 2][:, quarter].to(dtype)


def beyond_eight(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows whose halves are so large that float32 has no number 8 above them, and rise by 16."""
    half = torch.arange(shape[-1]) * 2 // shape[-1]
    return (2.0**27 + 16 * (1 + half)).expand(shape).to(dtype)


def attended(
    x: Float32[Tensor, "M N"],
    v: Float32[Tensor, "M N"],
    BLOCK_N: int,
) -> tuple[Float32[Tensor, " M"], Float32[Tensor, " M"]]:
    """z[m] = sum over n of w[m, n] · v[m, n], where w[m] is the softmax of x[m]

    Each program computes one row, block by block. Its sums are relative to a
    maximum. To save work, the program moves this maximum, and rescales the sums, only
    if a block's is larger by more than STEP = 8. base[m] is the maximum that's left
    after the last block. It's stored so that `check` sees which steps were saved.
    """
    base = torch.full_like(x[:, 0], -torch.inf)
    for block in x.split(BLOCK_N, 1):
        base = torch.where(block.amax(1) > base + STEP, block.amax(1), base)
    return (x.softmax(1) * v).sum(1), base


def _moved_by_each(x: Tensor, v: Tensor, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    return attended(x, v, BLOCK_N)[0], x.amax(1)


def too_light(x: Tensor, v: Tensor, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Compute `attended` with weights relative to a new maximum and sums relative to the old one."""
    top = torch.full_like(x[:, 0], -torch.inf)
    total, acc = torch.zeros_like(top), torch.zeros_like(top)
    for part, values in zip(x.split(BLOCK_N, 1), v.split(BLOCK_N, 1), strict=True):
        best = torch.maximum(top, part.amax(1))
        new = torch.where(best > top + STEP, best, top)
        p, scale = (part - best[:, None]).exp(), (top - new).exp()
        total, acc, top = total * scale + p.sum(1), acc * scale + (p * values).sum(1), new
    return acc / total, top


def _left_behind(x: Tensor, v: Tensor, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Like `too_light`, with sums that are rescaled to a maximum that isn't kept."""
    top = torch.full_like(x[:, 0], -torch.inf)
    total, acc = torch.zeros_like(top), torch.zeros_like(top)
    for part, values in zip(x.split(BLOCK_N, 1), v.split(BLOCK_N, 1), strict=True):
        best = torch.maximum(top, part.amax(1))
        p, scale = (part - best[:, None]).exp(), (top - best).exp()
        total, acc = total * scale + p.sum(1), acc * scale + (p * values).sum(1)
        top = torch.where(best > top + STEP, best, top)
    return acc / total, top


PUZZLE = Puzzle(
    number="59",
    spec=attended,
    formula=r"z_m = \sum_n \frac{e^{x_{mn}}}{\sum_j e^{x_{mj}}} \, v_{mn}",
    grid=lambda s: (s.M,),
    outputs=("z", "base"),
    exact=("base",),
    cases=(
        Case(M=1, N=16, BLOCK_N=16),  # one program, one block
        Case(M=3, N=64, BLOCK_N=16),  # several blocks, all full
        Case(M=4, N=45, BLOCK_N=16),  # ragged
        Case(M=3, N=64, BLOCK_N=16, fill={"x": late_maximum}),  # each block has a new maximum
        Case(M=2, N=64, BLOCK_N=16, fill={"x": around_the_step}),
        Case(M=2, N=64, BLOCK_N=16, fill={"x": leaps}),  # too far for float32's exp
        Case(M=2, N=40, BLOCK_N=16, fill={"x": far_below}),  # no maximum starts at 0
    ),
    slips={
        "a block that raises the maximum slightly gets too little weight": too_light,
        "the maximum moves with each larger block, even by a little": _moved_by_each,
        "sums and weights are relative to the new maximum, but `top` still has the old one": _left_behind,
    },
    hard={
        LIGHT: Case(M=1, N=64, BLOCK_N=16, fill={"x": falling, "v": rising}),
        "maxima can be so large that adding 8 rounds": Case(M=1, N=32, BLOCK_N=16, fill={"x": beyond_eight}),
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
    {"tl.exp(x - top)": "tl.exp(x - best)"},
    kind="values",
    says="a block that raises the maximum slightly gets too little weight",
)


def _wrong_rises() -> tuple[int, int]:
    """Return the smallest and the largest whole rise of a second block for which the kernel is wrong."""
    rises = torch.arange(30.0)
    x = torch.stack([torch.zeros(30), rises], 1).double()
    v = torch.tensor([[0.0, 1.0]]).double().expand(30, 2)
    wrong = rises[~torch.isclose(too_light(x, v, 1)[0], attended(x, v, 1)[0])]
    return int(wrong.min()), int(wrong.max())


PATIENT = Patient(
    SLIP,
    thread="https://github.com/ROCm/rocm-libraries/pull/6498",
    question=cause(
        SLIP,
        "b",
        ("parts", "values"),
        a="Take the smallest d that fails. How large are its exponentials?",
        c="Run two blocks of scores, zeros and then 3, with v = 0 and then 1. Do the same with 9 "
        "for 3. In which of the two does the maximum move, and which is wrong?",
        d="Reduce: run a row that has one block, and so only this first one. Is it correct?",
    ),
    also=Question(
        id="ch20-q9",
        asks="Two blocks of scores: zeros, then d. What are the smallest and the largest whole d for which "
        "z is wrong?",
        right=_wrong_rises,
        kind=tuple,
        nudge="Run it for these two numbers and for their neighbors. Where does z become wrong, and where "
        "correct again?",
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (smallest, largest)."),
            Nudge(lambda v, r: v[0] == 0, "For d = 0, z is correct: run it."),
            Nudge(lambda v, r: v[0] == r[0], "The smallest is correct. Now try larger ones."),
            Nudge(lambda v, r: v[1] == r[1], "The largest is correct. Now try smaller ones."),
        ),
    ),
)
