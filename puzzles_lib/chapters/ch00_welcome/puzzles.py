"""Chapter 00: a first line, which the text then explains, and lines that find a hidden picture."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def double(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = 2 x[n]"""
    return 2 * x


DOUBLE = Puzzle(
    number="0",
    spec=double,
    formula=r"z_n = 2\,x_n",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(
        Case(N=8, BLOCK=8),  # one program
        Case(N=32, BLOCK=8),  # four programs, full blocks
        Case(N=30, BLOCK=8),  # the last block is ragged
        Case(N=100, BLOCK=64, fill={"x": inputs.large}),
    ),
    stored_once=("z",),
    slips={
        "results above 1 are cut off: 2 * x may be above 1": lambda x: (2 * x).clamp(max=1),
        "that's twice the position of each element, not twice its value": lambda x: (
            2.0 * torch.arange(len(x))
        ),
        "that's the square of each element, x * x, not twice the element": lambda x: x * x,
        "each number of x has lost its fraction before it's doubled": lambda x: 2 * x.trunc(),
        "the results are rounded to float16: keep them in float32": lambda x: (2 * x).half().double(),
    },
    contract=Contract({"N": Size(300), "BLOCK": (32, 64, 128)}),
)


def pair_difference(x: Float32[Tensor, " 2*N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[2n + 1] - x[2n]"""
    return x[1::2] - x[::2]


def _of_neighbors(x: Tensor) -> Tensor:
    """Return the differences of x[n] and x[n + 1], so that pairs overlap, for the first half of x."""
    return (x[1:] - x[:-1])[: len(x) // 2]


def _of_halves(x: Tensor) -> Tensor:
    """Return the differences of x[N + n] and x[n]."""
    first, second = x.chunk(2)
    return second - first


PAIR_DIFFERENCE = Puzzle(
    number="0b",
    spec=pair_difference,
    formula=r"z_n = x_{2n + 1} - x_{2n}",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(
        Case(N=8, BLOCK=8),  # one program
        Case(N=32, BLOCK=8),  # four programs, full blocks
        Case(N=30, BLOCK=8),  # the last block is ragged
        Case(N=100, BLOCK=64, fill={"x": inputs.large}),
    ),
    stored_once=("z",),
    slips={
        "the pairs overlap: lane 1 needs x[2] and x[3], not x[1] and x[2]": _of_neighbors,
        "that's x[N + n] - x[n]: the two numbers of a pair are next to each other in x": _of_halves,
        "the difference is reversed: subtract the first number of a pair from the second": (
            lambda x: x[::2] - x[1::2]
        ),
        "the two numbers of each pair are added": lambda x: x[1::2] + x[::2],
        "z says only which number is larger: store the difference itself": (
            lambda x: (x[1::2] > x[::2]).double()
        ),
        "the first numbers are correct, but the second ones aren't: in pair 1, it's x[3], not x[2]": (
            lambda x: x[1 : len(x) // 2 + 1] - x[::2]
        ),
    },
    contract=DOUBLE.contract,
)

PUZZLES = (DOUBLE, PAIR_DIFFERENCE)
