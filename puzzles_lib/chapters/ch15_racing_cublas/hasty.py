"""A kernel that is correct in Triton and computes garbage on a GPU: chapter 15 shows why."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch15_racing_cublas.rung import Rung
from puzzles_lib.chapters.ch15_racing_cublas.versions import four_fields, four_masks, powers


@triton.jit
def hasty_kernel(
    words_ptr, params_ptr, numbers_ptr, dy_ptr, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M], of COUT
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N], of CIN
    tl.static_assert(BLOCK_K == 64)  # half a block: four fields of its words
    r, k = tl.arange(0, 16), tl.arange(0, 64)  # row of words, row of the iteration
    unit = powers(tl.load(numbers_ptr + k // 16))  # [BLOCK_K]
    mask = four_masks(numbers_ptr)  # [1, 4, 1]
    split, steps = tl.program_id(2), K // BLOCK_K
    splits = tl.num_programs(2)
    first, last = split * steps // splits, (split + 1) * steps // splits
    tl.assume(first < last)
    # of the tile's group
    params_ptr += tl.program_id(1) * BLOCK_N // GROUP * (K // 128) * 256
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)  # transposed
    for step in range(first, last):
        block, half = step // 2, step % 2
        place = words_ptr + (block * 16 + r[None, :]) * CIN + offs_n[:, None]
        words = tl.load(place)  # [BLOCK_N, 16]
        words = words >> 8 * tl.load(numbers_ptr + half + tl.zeros((1, 1), tl.int32))
        bits = four_fields(words, mask)  # [BLOCK_N, BLOCK_K]
        code = bits.to(tl.bfloat16, bitcast=True)  # the code times 2^(2 i - 133)
        param = params_ptr + block * 256 + half * 64 + k
        scale = tl.load(param) * unit  # [BLOCK_K]
        minimum = tl.load(param + 128).to(tl.float32) * 2.0**-32
        # x̂ times 2^-32
        x = tl.fma(code, scale[None, :], minimum.to(tl.bfloat16)[None, :])
        place = dy_ptr + (step * BLOCK_K + k)[:, None] * COUT + offs_m[None, :]
        dy = tl.load(place)  # [BLOCK_K, BLOCK_M]
        acc = tl.dot(x, dy, acc)  # [BLOCK_N, BLOCK_M]
    out_ptr = parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None]
    tl.store(out_ptr, acc * 2.0**32)


hasty = Rung("hasty", hasty_kernel, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, splits=7, num_warps=8, num_stages=4)
