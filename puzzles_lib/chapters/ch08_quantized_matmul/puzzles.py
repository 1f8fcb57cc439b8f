"""Chapter 08: 4-bit weights, unpacked and scaled inside a matmul."""

import math

import torch
import triton
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import all_bits_set, zeros
from puzzles_lib.puzzle import Case, Puzzle


def quantized_matmul(
    weight: Int32[Tensor, "M K//8"],
    scale: Float32[Tensor, "M K//GROUP"],
    offset: Int32[Tensor, " M (K//GROUP+7)//8"],
    activation: Float32[Tensor, "K N"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = sum over k of scale[m, g] · (w[m, k] - o[m, g]) · activation[k, n]

    g is k // GROUP; w[m, k] is field k % 8 of weight[m, k // 8], and o[m, g] is field
    g % 8 of offset[m, g // 8].
    Field i of an int32 word is its bits 4i to 4i + 3, read as a number from 0 to 15.
    K is a multiple of 8 and of GROUP.
    """
    K, groups = activation.shape[0], scale.shape[1]
    shifts = 4 * torch.arange(8)
    w = (weight[:, :, None] >> shifts & 15).flatten(1)  # [M, K]
    o = (offset[:, :, None] >> shifts & 15).flatten(1)[:, :groups]  # [M, K//GROUP]
    g = torch.arange(K) // (K // groups)  # [K]
    return (scale[:, g] * (w - o[:, g])) @ activation


QUANTIZED_MATMUL = Puzzle(
    number="12",
    spec=quantized_matmul,
    formula=(
        r"z_{m, n} = \sum_{k=0}^{K-1} s_{m, g} \, (w_{m, k} - o_{m, g}) \, a_{k, n}"
        r"\qquad g = \lfloor k / \mathrm{GROUP} \rfloor"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        # one program, one step, one offset word
        Case(M=16, N=16, K=32, GROUP=8, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32),
        # several blocks on every axis, all full; two offset words
        Case(M=64, N=32, K=128, GROUP=8, BLOCK_M=32, BLOCK_N=16, BLOCK_K=64),
        # ragged on every axis; 13 groups, so the second offset word is ragged too
        Case(M=45, N=50, K=104, GROUP=8, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),
        # groups that straddle words and blocks
        Case(M=20, N=18, K=120, GROUP=12, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32),
        # one group, longer than a block
        Case(M=20, N=18, K=80, GROUP=80, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32),
        # every field is 15, every sign bit is set
        Case(
            M=16, N=16, K=64, GROUP=4, BLOCK_M=16, BLOCK_N=16, BLOCK_K=64,
            fill={"weight": all_bits_set, "offset": zeros},
        ),
        # a layer and one token
        Case(M=64, N=1, K=256, GROUP=32, BLOCK_M=64, BLOCK_N=16, BLOCK_K=64),
    ),
    contract=Contract(
        {
            "M": Size(150),
            "N": Size(150),
            "GROUP": (4, 24, 160),
            "K": Size(700, step=lambda s: math.lcm(8, s.GROUP)),
            "BLOCK_M": (32, 64),
            "BLOCK_N": (32, 64),
            "BLOCK_K": (64, 128),
        }
    ),
)  # fmt: skip

PUZZLES = (QUANTIZED_MATMUL,)
