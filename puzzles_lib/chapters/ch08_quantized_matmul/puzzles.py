"""Chapter 08: 4-bit weights, unpacked and scaled inside a matmul."""

import math
from collections.abc import Callable

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


def _slip(
    *,
    w_mask: int = 15,
    o_mask: int = 15,
    w_first: int = 0,
    o_first: int = 0,
    by_k: bool = False,
    out: bool = False,
) -> Callable:
    """`quantized_matmul` with a slip.

    w_mask, o_mask: of a field, -1 for none. w_first, o_first: shift of field 0, 28 where the fields are
    read from the top. by_k: o's field is k % 8. out: scale · w - o.
    """

    def slip(weight: Tensor, scale: Tensor, offset: Tensor, activation: Tensor) -> Tensor:
        K, groups = activation.shape[0], scale.shape[1]
        shifts = 4 * torch.arange(8)
        w = (weight[:, :, None] >> (w_first - shifts).abs() & w_mask).flatten(1)
        fields = (offset[:, :, None] >> (o_first - shifts).abs() & o_mask).flatten(1)
        k = torch.arange(K)
        g = k // (K // groups)
        o = fields[:, g // 8 * 8 + k % 8] if by_k else fields[:, g]
        return (scale[:, g] * w - o if out else scale[:, g] * (w - o)) @ activation

    return slip


SLIPS = {
    "it is what comes of a w without & 15": _slip(w_mask=-1),
    "it is what comes of an o without & 15": _slip(o_mask=-1),
    "it is what comes of w and o without & 15": _slip(w_mask=-1, o_mask=-1),
    "it is what comes of reading w's fields from the top: field 0 is the lowest 4 bits": _slip(w_first=28),
    "it is what comes of reading o's fields from the top: field 0 is the lowest 4 bits": _slip(o_first=28),
    "it is what comes of reading all fields from the top: field 0 is the lowest 4 bits": _slip(
        w_first=28, o_first=28
    ),
    "it is what comes of k for g: the field of o is g % 8": _slip(by_k=True),
    "it is what comes of s * w - o: o goes off before the product, s * (w - o)": _slip(out=True),
}
"""Wrong results that are often seen, by what there is to say of them."""


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
    slips=SLIPS,
    contract=Contract(
        {
            "M": Size(150),
            "GROUP": (4, 24, 160),
            "K": Size(700, step=lambda s: math.lcm(8, s.GROUP)),
            "N": Size(150),
            "BLOCK_M": (32, 64),
            "BLOCK_N": (32, 64),
            "BLOCK_K": lambda s: (64,) if s.K > 256 else (64, 128),
        }
    ),
)  # fmt: skip

PUZZLES = (QUANTIZED_MATMUL,)
