"""Chapter 13: reading exercises, a puzzle to compile for them, and one to solve. Neither counts."""

import torch
import triton
from jaxtyping import Float32, Int8, Int32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Once, Want
from puzzles_lib.puzzle import Case, Puzzle


def int8_matmul(x: Int8[Tensor, "M K"], y: Int8[Tensor, "K N"]) -> Int32[Tensor, "M N"]:
    """z[m, n] = sum over k of x[m, k] · y[k, n], in int32"""
    return (x.long() @ y.long()).to(torch.int32)


INT8_MATMUL = Puzzle(
    number="13",
    spec=int8_matmul,
    formula=r"z_{m, n} = \sum_{k=1}^{K} x_{m, k} \, y_{k, n}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=64, N=64, K=128, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32),  # one program
        Case(M=100, N=90, K=75, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32),  # ragged on every axis
    ),
)


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
