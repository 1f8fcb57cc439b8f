"""Chapter 00: a first line to write, which the text then explains, and two more."""

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
    slips={"results above 1 are cut off: 2 * x may be above 1": lambda x: (2 * x).clamp(max=1)},
    contract=Contract({"N": Size(300), "BLOCK": (32, 64, 128)}),
)


def square(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[n] · x[n], with 2 * BLOCK elements per program"""
    return x * x


SQUARE = Puzzle(
    number="0b",
    spec=square,
    formula=r"z_n = x_n \cdot x_n",
    grid=lambda s: (triton.cdiv(s.N, 2 * s.BLOCK),),
    cases=(
        Case(N=16, BLOCK=8),  # one program
        Case(N=48, BLOCK=8),  # three programs, full blocks
        Case(N=20, BLOCK=8),  # the last block is ragged
        Case(N=100, BLOCK=32, fill={"x": inputs.large}),
    ),
    stored_once=("z",),
    contract=DOUBLE.contract,
)

PUZZLES = (DOUBLE, SQUARE)
