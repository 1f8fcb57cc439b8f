"""Chapter 13: reading exercises, and a puzzle that doesn't count."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Once, Want
from puzzles_lib.puzzle import Case, Puzzle


def wide_add(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[n] + 10

    N is a multiple of 4.
    """
    return x + 10


WIDE_ADD = Puzzle(
    spec=wide_add,
    formula=r"z_n = x_n + 10",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(
        Case(N=64, BLOCK=64),  # one full block
        Case(N=20, BLOCK=32),  # one block, not full
        Case(N=3000, BLOCK=1024, fill={"x": inputs.large}),
        Case(N=4004, BLOCK=1024),  # its machine code is measured
    ),
    contract=Contract({"N": Size(9000, step=4), "BLOCK": (1024, 2048)}),
    # a size that is a constexpr would be known as well, and compiled anew each time
    machine=(Goal(cases=(3,), wants=(Want("load bytes", least=16),)), Once(cases=(2, 3))),
)
