"""Right kernels for chapter 12, fused_dw, split_k and packed_along_k; wrong ones are its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import (
    BUSY_DW,
    FUSED_DW,
    PACKED_ALONG_K,
    SPLIT_K,
    TWO_PROGRAMS,
)
from tests.kernels import Wrong, edited


@triton.jit
def a_scale_a_lane(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """No reshape: every lane finds its word, its shift and its group."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = offs_n // F
    offs_g = offs_n // GROUP
    shifts = BITS * (offs_n % F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words >> shifts[None, :]) & ((1 << BITS) - 1)
        x = (minimum + scale * codes).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def float32_operands(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Both operands in float32: correct, and without tensor cores."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N))
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0).to(tl.float32)
        acc = tl.dot(dy, x, acc, input_precision="ieee")
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def tf32_operands(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same in TF32: the checker's values fit."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N))
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0).to(tl.float32)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def transposed_product(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """xᵀ dy, transposed at the store."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(tl.trans(x), tl.trans(dy), acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], tl.trans(acc), mask=mask)


@triton.jit
def last_step_first(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """K is walked backwards."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        k = (tl.cdiv(K, BLOCK_K) - 1 - step) * BLOCK_K + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def unsigned_words(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Words without a sign: the top field needs no mask."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = words.to(tl.uint32, bitcast=True)[:, :, None] >> shifts[None, None, :].to(tl.uint32) & (
            (1 << BITS) - 1
        )
        x = minimum[:, :, None] + scale[:, :, None] * codes.to(tl.float32)
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def two_dots(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Codes and minima multiplied apart: dyᵀ (scale · code) + dyᵀ minimum."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = tl.reshape(scale[:, :, None] * codes, (BLOCK_K, BLOCK_N))
        low = tl.reshape(minimum[:, :, None] + tl.zeros_like(codes), (BLOCK_K, BLOCK_N))
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0).to(tl.float32)
        acc = tl.dot(dy, x, acc, input_precision="ieee")
        acc = tl.dot(dy, low, acc, input_precision="ieee")
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def no_end_at_k(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Blocks past K are walked too: all masked off, they add 0."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, split * rows + rows, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def counted_steps(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A number of steps, and the block from that."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)
    for step in range(steps):
        k = (split * steps + step) * BLOCK_K + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def a_while_loop(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The loop written out."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    start = split * rows
    end = min(start + rows, K)
    while start < end:
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
        start += BLOCK_K
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def stacked_fields(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """All fields along a middle axis, folded into rows: one dot a block."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        j = tl.arange(0, F)[None, :, None]
        codes = (words[:, None, :] >> BITS * j) & ((1 << BITS) - 1)
        codes = tl.reshape(codes, (BLOCK_N, F * 16))
        k = b * 16 * F + tl.arange(0, 16 * F)
        scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
        minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
        x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
        mask = (k[:, None] < K) & (offs_m < COUT)
        dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
        acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def dy_on_the_left(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dyᵀ x, stored as it is."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[:, None]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[:, None] + scale[:, None] * codes).to(tl.bfloat16)
            mask = (k[None, :] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(dy, x, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def fields_backwards(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The last field first: a sum does not mind."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * (F - 1 - j) + r
            codes = (words >> BITS * (F - 1 - j)) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


_HALVES = {
    "    for start in range(0, last - first, BLOCK_K):": (
        "    HALF: tl.constexpr = BLOCK_K // 2\n    for start in range(0, last - first, HALF):"
    ),
    "tl.arange(0, BLOCK_K)": "tl.arange(0, HALF)",
    "tl.reshape(x, (BLOCK_K,": "tl.reshape(x, (HALF,",
}

# Correct, but their machine code isn't what the puzzle asks for.
WRONG = [
    Wrong(FUSED_DW, float32_operands, kind="machine", says="float32 tiles"),
    Wrong(FUSED_DW, tf32_operands, kind="machine", says="float32 tiles"),
    Wrong(FUSED_DW, two_dots, kind="machine", says="float32 tiles"),
    Wrong(BUSY_DW, transposed_product, kind="machine", says="machine code of case 6"),
    Wrong(BUSY_DW, unsigned_words, kind="machine", says="threads exchange this line's block of 64 × 128"),
    Wrong(PACKED_ALONG_K, stacked_fields, kind="machine", says="to another layout: scale ="),
    Wrong(PACKED_ALONG_K, dy_on_the_left, kind="machine", says="through shared memory: x ="),
]

RIGHT = [
    (FUSED_DW, a_scale_a_lane),
    (FUSED_DW, transposed_product),
    (FUSED_DW, last_step_first),
    (FUSED_DW, unsigned_words),
    (SPLIT_K, no_end_at_k),
    (SPLIT_K, counted_steps),
    (SPLIT_K, a_while_loop),
    (PACKED_ALONG_K, fields_backwards),
    (
        PACKED_ALONG_K,
        edited(
            PACKED_ALONG_K,
            "multiplied_and_added",
            "One fused multiply-add.",
            {
                "minimum[None, :] + scale[None, :] * codes": (
                    "tl.fma(scale[None, :], codes.to(tl.float32), minimum[None, :])"
                )
            },
        ),
    ),
    (
        BUSY_DW,
        edited(
            BUSY_DW,
            "half_at_a_time",
            "Half of a block's rows at a time.",
            {
                "    for start in range(0, K, BLOCK_K):": (
                    "    HALF: tl.constexpr = BLOCK_K // 2\n    for start in range(0, K, HALF):"
                ),
                "tl.arange(0, BLOCK_K)": "tl.arange(0, HALF)",
                "(BLOCK_N, BLOCK_K)).to": "(BLOCK_N, HALF)).to",
            },
        ),
    ),
    (
        BUSY_DW,
        edited(
            BUSY_DW,
            "blocks_counted",
            "The blocks are counted.",
            {
                "    for start in range(0, K, BLOCK_K):\n        k = start": (
                    "    for block in range(0, tl.cdiv(K, BLOCK_K)):\n        k = block * BLOCK_K"
                ),
            },
        ),
    ),
    (TWO_PROGRAMS, a_while_loop),
    (TWO_PROGRAMS, edited(TWO_PROGRAMS, "half_at_a_time", "Half of a block's rows at a time.", _HALVES)),
]
