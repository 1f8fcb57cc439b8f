"""A count is stored as a bool, which keeps its lowest eight bits."""

import itertools

import torch
import triton
from jaxtyping import Bool, Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def all_above(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values from 2 to 3."""
    return 2 + torch.rand(shape, generator=generator, dtype=dtype)


def at_the_limit(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return ones, which aren't above 1."""
    return torch.ones(shape, dtype=dtype)


def last_above(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return ones, except for the last of each row, which is the next float above 1."""
    x = torch.ones(shape, dtype=dtype)
    x[..., -1] += torch.finfo(dtype).eps
    return x


def twos_first(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return zeros, except for 255, 257, 256 or 512 twos at the start of a row."""
    x = torch.zeros(shape, dtype=dtype)
    for row, hits in zip(x, itertools.cycle((255, 257, 256, 512)), strict=False):
        row[:hits] = 2
    return x


def any_above(x: Float32[Tensor, "M N"]) -> Bool[Tensor, " M"]:
    """z[m] is True if some x[m, n] is above 1

    Each program computes one row, which fits in its block.
    """
    return (x > 1).any(1)


def _low_byte(x: Tensor) -> Tensor:
    return (x > 1).sum(1) & 255 != 0


PUZZLE = Puzzle(
    number="47",
    spec=any_above,
    formula=r"z_m = \exists\, n:\ x_{mn} > 1",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=32, BLOCK_N=32),  # one program
        Case(M=4, N=8, BLOCK_N=8),  # several, all full
        Case(M=5, N=6, BLOCK_N=8),  # ragged
        Case(M=3, N=512, BLOCK_N=512, fill={"x": all_above}),
        Case(M=2, N=5, BLOCK_N=8, fill={"x": at_the_limit}),
        Case(M=4, N=600, BLOCK_N=1024, fill={"x": twos_first}),
    ),
    hard={
        "65536 elements are above 1, and 16 bits of their number are 0": (
            Case(M=1, N=65_536, BLOCK_N=65_536, fill={"x": all_above})
        ),
    },
    contract=Contract(
        {"M": Size(17), "N": Size(2100), "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),)},
        fills=lambda s: ({}, {"x": last_above}),
    ),
    slips={"where a count's low byte is 0, the answer is False: eight bits of it are stored": _low_byte},
    broken_by="count_as_bool",
)

SLIP = Mistake(
    PUZZLE,
    "count_as_bool",
    "A bool is one byte in memory, and the low byte of 256 is 0.",
    {"hits > 0)": "hits)"},
    kind="values",
    says="z[0]",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/9991",
    question=cause(
        SLIP,
        "b",
        ("values", "elements"),
        a="Run the kernel on rows of 5 zeros, with BLOCK_N=8. Do the three lanes past the end count?",
        c="Look for the smallest count that gives a wrong answer. Is it near the end of an int32?",
        d="Test it: run a row of 256 twos, none of which equals the limit. Is that row correct?",
    ),
    also=reproduce(
        "ch20-q4",
        "What's the smallest number of hits in a row for which the kernel's answer is wrong?",
        256,
        lambda hits: hits == 256,
        "Run a row of that many twos: the answer is True. Run longer and shorter rows. In the report, one "
        "number more or less makes a difference.",
        Nudge(lambda v, r: v == 0, "With 0 of them, False is correct."),
        Nudge(
            lambda v, r: 256 < v < 2**20 and v % 256 == 0,
            "Correct, that count gives False. But reduce: which is the smallest that does?",
        ),
        Nudge(lambda v, r: v == 2**32, "A row of that length doesn't fit into a block. Find a smaller one."),
        Nudge(lambda v, r: v == 128, "Run the kernel on a row of 128 twos: the answer is True."),
    ),
)
