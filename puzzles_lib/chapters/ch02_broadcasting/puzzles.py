"""Chapter 02: two axes, broadcast against each other."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def outer_add(
    x: Float32[Tensor, " N"],
    y: Float32[Tensor, " M"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = x[n] + y[m]

    One block covers everything: M <= BLOCK_M, N <= BLOCK_N.
    """
    return x[None, :] + y[:, None]


OUTER_ADD = Puzzle(
    number="3",
    spec=outer_add,
    formula=r"z_{mn} = x_n + y_m",
    grid=lambda s: (1,),
    cases=(
        Case(M=32, N=32, BLOCK_M=32, BLOCK_N=32),  # square, full
        Case(M=8, N=32, BLOCK_M=8, BLOCK_N=32),  # not square
        Case(M=20, N=30, BLOCK_M=32, BLOCK_N=32),  # ragged on both axes
        Case(M=50, N=5, BLOCK_M=64, BLOCK_N=8),  # tall
        Case(M=11, N=13, BLOCK_M=16, BLOCK_N=32, fill={"x": inputs.large, "y": inputs.very_negative}),
    ),
    hard={
        inputs.UNLIKE: (Case(M=8, N=8, BLOCK_M=8, BLOCK_N=8, fill={"x": inputs.faint, "y": inputs.mighty})),
    },
    contract=Contract(
        {
            "M": Size(150),
            "N": Size(150),
            "BLOCK_M": lambda s: (triton.next_power_of_2(s.M),),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        }
    ),
)


def outer_add_blocks(
    x: Float32[Tensor, " N"],
    y: Float32[Tensor, " M"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = x[n] + y[m], for any M and N"""
    return x[None, :] + y[:, None]


OUTER_ADD_BLOCKS = Puzzle(
    number="4",
    spec=outer_add_blocks,
    formula=r"z_{mn} = x_n + y_m",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=32, N=32, BLOCK_M=32, BLOCK_N=32),  # one program
        Case(M=64, N=96, BLOCK_M=16, BLOCK_N=32),  # 4 x 3 programs, full blocks
        Case(M=90, N=100, BLOCK_M=32, BLOCK_N=16),  # ragged on both axes
        Case(M=100, N=90, BLOCK_M=16, BLOCK_N=64),  # the same, the other way round
        Case(M=33, N=65, BLOCK_M=32, BLOCK_N=64, fill={"x": inputs.large, "y": inputs.very_negative}),
        # z has 2.1 thousand million elements, a little less than 2^31, and more rows than 16 bits count
        Case(pretend=True, M=70_000, N=30_000, BLOCK_M=32, BLOCK_N=16),
    ),
    hard={
        inputs.UNLIKE: (Case(M=8, N=8, BLOCK_M=8, BLOCK_N=8, fill={"x": inputs.faint, "y": inputs.mighty})),
    },
    contract=Contract({"M": Size(300), "N": Size(300), "BLOCK_M": (16, 64, 128), "BLOCK_N": (32, 128)}),
)

PUZZLES = (OUTER_ADD, OUTER_ADD_BLOCKS)
