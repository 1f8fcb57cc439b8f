"""Chapter 13: reading exercises, and a puzzle to compile for them. It counts for nothing."""

import torch
import triton
from jaxtyping import Int8, Int32
from torch import Tensor

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
