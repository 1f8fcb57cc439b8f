"""Every program draws the same random numbers."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def on_integers(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return whole numbers from -9 to 9."""
    return torch.randint(-9, 10, shape, generator=generator).to(dtype)


def beyond_int32(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, of which each second one is times 2^40: no int32 holds such numbers."""
    sizes = torch.where(torch.arange(shape[0]) % 2 == 1, 2.0**40, 1.0)
    return (sizes * torch.randn(shape, generator=generator)).to(dtype)


def beyond_int64(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 1e20, nearly all of which int64 can't hold."""
    return (1e20 * torch.randn(shape, generator=generator)).to(dtype)


def one_minus_draws(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 1 - u for those draws u of seed 7 that are at least 1/2, and 1/4 for others."""
    u = uniform(7, torch.arange(shape[0]))
    return torch.where(u >= 0.5, 1 - u, 0.25).to(dtype)


def random_rounding(x: Float32[Tensor, " N"], SEED: int) -> Float32[Tensor, " N"]:
    """z[n] = floor(x[n] + u[n])

    u is what tl.rand(SEED, ...) gives a single program with N lanes.
    """
    return torch.floor(x.float() + uniform(SEED, torch.arange(len(x))))


def _draws_of_the_first_block(x: Tensor, SEED: int, BLOCK_N: int) -> Tensor:
    return torch.floor(x.float() + uniform(SEED, torch.arange(len(x)) % BLOCK_N))


def _a_seed_per_block(x: Tensor, SEED: int, BLOCK_N: int) -> Tensor:
    n = torch.arange(len(x))
    u = torch.cat([uniform(SEED + b, n[:BLOCK_N]) for b in range(triton.cdiv(len(x), BLOCK_N))])
    return torch.floor(x.float() + u[: len(x)])


def _a_draw_further_per_block(x: Tensor, SEED: int, BLOCK_N: int) -> Tensor:
    n = torch.arange(len(x))
    return torch.floor(x.float() + uniform(SEED, n % BLOCK_N + n // BLOCK_N))


PUZZLE = Puzzle(
    number="60",
    spec=random_rounding,
    formula=r"z_n = \lfloor x_n + u_n \rfloor",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK_N),),
    cases=(
        Case(N=64, SEED=7, BLOCK_N=64),  # one program
        Case(N=128, SEED=7, BLOCK_N=32),  # several, all full
        Case(N=100, SEED=11, BLOCK_N=32),  # ragged
        Case(N=77, SEED=3, BLOCK_N=16, fill={"x": on_integers}),  # nothing to round
    ),
    exact=("z",),
    slips={
        "all blocks use the draws of the first": _draws_of_the_first_block,
        "block b draws at lanes + b, so neighboring blocks share most of their draws": (
            _a_draw_further_per_block
        ),
        "each block has a seed of its own: in one block, the same x would get other draws": _a_seed_per_block,
    },
    hard={
        "x can be beyond int64": Case(N=64, SEED=7, BLOCK_N=64, fill={"x": beyond_int64}),
        "x + u can be a whole number": Case(N=64, SEED=7, BLOCK_N=64, fill={"x": one_minus_draws}),
        "SEED can be 0": Case(N=64, SEED=0, BLOCK_N=64),
    },
    contract=Contract(
        {"N": Size(300), "SEED": (2**24 + 1, 2**30 + 1), "BLOCK_N": (64,)},
        fills=lambda s: ({}, {"x": beyond_int32}),
    ),
    broken_by="lanes_for_offsets",
)

SLIP = Mistake(
    PUZZLE,
    "lanes_for_offsets",
    "Draws are numbered by lanes, which are the same in every program, instead of by elements.",
    {"tl.rand(SEED, n)": "tl.rand(SEED, lanes)"},
    kind="values",
    says="all blocks use the draws of the first",
)


def _first_stripe() -> int:
    """Return the first of 128 results that depends on whether the blocks have 32 elements or 128."""
    x = torch.full((128,), 0.5)
    return int((_draws_of_the_first_block(x, 7, 32) != random_rounding(x, 7)).nonzero()[0])


PATIENT = Patient(
    SLIP,
    thread="https://github.com/pytorch/helion/pull/685",
    question=cause(
        SLIP,
        "a",
        ("elements", "size of the error"),
        b="Run a vector of 128 times 0.5 once, with BLOCK_N=32. Does a single run already have stripes?",
        c="Compare: run 128 times 0.5 with BLOCK_N=32, then with BLOCK_N=128. `tl.rand` is the "
        "same. Where are "
        "stripes?",
        d="Test this: run 1000 times 0.5 with BLOCK_N=1024, and compute the mean. Is it near 0 or near 0.5?",
    ),
    also=Question(
        id="ch20-q10",
        asks="128 times 0.5, with SEED = 7. Which is the first result that differs between BLOCK_N = 32 and "
        "BLOCK_N = 128?",
        right=_first_stripe,
        kind=int,
        nudge="Run both and print `(z != whole).nonzero()`. Elements are counted from 0.",
        nudges=(
            Nudge(lambda v, r: 0 <= v < 32, "That one is in the first block. Are the two runs equal there?"),
            Nudge(
                lambda v, r: v == 32, "The second block does begin there. But is its first result different?"
            ),
        ),
    ),
)
