"""A lock is released before all threads have stored."""

import torch
import triton
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def scores(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Above 0, no two alike in a column."""
    return (1 + torch.rand(shape, generator=generator)).to(dtype)


def scores_a_hair_apart(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return tiny numbers above 0, which differ by single bits of float32 in a column."""
    order = torch.rand(shape, generator=generator).argsort(0)
    return (2.0**-100 * (1 + order * 2.0**-23)).to(dtype)


def best_row(
    x: Float32[Tensor, "M N"],
    BLOCK_N: int,
) -> tuple[
    Float32[Tensor, " N"],
    Int32[Tensor, " N"],
    Int32[Tensor, " (N+BLOCK_N-1)//BLOCK_N"],
]:
    """best[n] = max over m of x[m, n], and row[n] that m

    Scores are above 0. Program (m, j) handles row m and block j of its columns. It
    changes both results or neither, and holds lock[j] while it does.
    """
    best, row = x.max(0)
    lock = torch.zeros(triton.cdiv(x.shape[1], BLOCK_N), dtype=torch.int32)
    return best, row.int(), lock


PUZZLE = Puzzle(
    number="52",
    spec=best_row,
    formula=r"\mathrm{best}_n = \max_m x_{mn} \qquad \mathrm{row}_n = \arg\max_m x_{mn}",
    grid=lambda s: (s.M, triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=1, N=16, BLOCK_N=16, fill={"x": scores}),  # one program
        Case(M=2, N=32, BLOCK_N=16, fill={"x": scores}),  # several, all full
        Case(M=2, N=27, BLOCK_N=16, fill={"x": scores}),  # ragged
        Case(M=2, N=9, BLOCK_N=16, fill={"x": scores}),
    ),
    outputs=("best", "row", "lock"),
    zeroed=("best", "row", "lock"),
    locks=("lock",),
    exact=("best",),
    contract=Contract(
        {"M": Size(5), "N": Size(70), "BLOCK_N": (16,)},
        fills=lambda s: ({"x": scores}, {"x": scores_a_hair_apart}),
    ),
    broken_by="given_back_early",
)

SLIP = Mistake(
    PUZZLE,
    "given_back_early",
    "One thread releases the lock while other threads still have to store.",
    {"    tl.debug_barrier()\n": ""},
    kind="race",
    says="program (1, 0) reads best[0]",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/meta-pytorch/tritonbench/pull/1266",
    ward="memory",
    question=which_line(
        SLIP,
        "Which line lets the next program start, and what must be finished by then?",
        Nudge(lambda v, r: v in (6, 7), "The lock is acquired correctly. But how is it released?"),
        asks="Which line is missing? Name the one above the gap, or the one below it.",
    ),
)
