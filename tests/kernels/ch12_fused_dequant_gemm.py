"""Wrong and right kernels for chapter 12: fused_dw, split_k, packed_along_k."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import FUSED_DW, PACKED_ALONG_K, SPLIT_K
from tests.kernels import Wrong


@triton.jit
def no_store(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Nothing is stored."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)


@triton.jit
def scale_of_row_0(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The scale is indexed by the group only: every row has the scales of row 0."""
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
        scale = tl.load(scale_ptr + k[:, None] * 0 + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
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
def scale_by_word(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The scale is indexed by the word's column, as if each word were a group."""
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
        scale = tl.load(scale_ptr + k[:, None] * G + offs_w[None, :], mask=mask, other=0.0).to(tl.float32)
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
def one_group_a_tile(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The whole tile has the scales of its first column: right where a tile lies in one group."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * 0 + tl.program_id(1) * BLOCK_N // GROUP
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def word_for_column(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`offs_w // GROUP`: forgets that a word is F columns."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w // GROUP
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def groups_rounded_down(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """CIN // GROUP groups a row: the short last group is not counted."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), CIN // GROUP
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def words_rounded_down(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """CIN // F words a row: the last word, partly filled, is not counted."""
    F: tl.constexpr = 32 // BITS
    W, G = CIN // F, tl.cdiv(CIN, GROUP)
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def minimum_forgotten(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The codes are scaled, the minimum is not added."""
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
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def minimum_scaled(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """(minimum + code) · scale: the minimum is taken for a zero point."""
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
        x = (minimum[:, :, None] + codes) * scale[:, :, None]
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def rows_of_dy_unmasked(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows past K have scale 0 and minimum 0, so why mask dy? Because they are not there."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] >= 0)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def dy_without_other(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows past K are masked off in dy, but hold garbage, and garbage times 0 may be NaN."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def minimum_without_other(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows past K have no minimum: garbage, times dy's zeros."""
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
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def last_row_again(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows past K are clamped to the last one instead of masked: it counts several times."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = tl.minimum(start + tl.arange(0, BLOCK_K), K - 1)
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
def minimum_past_k(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """dy is padded with ones, and the rows past K read the last row's minimum."""
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
        minimum = tl.load(
            minimum_ptr + tl.minimum(k, K - 1)[:, None] * G + offs_g[None, :],
            mask=offs_w[None, :] < W,
            other=0.0,
        ).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=1.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def sign_left_in_codes(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The top field of a negative word comes down with copies of the sign bit: the mask is missing."""
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
        codes = words[:, :, None] >> shifts[None, None, :]
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def fields_with_a_sign(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Up and down again with an arithmetic shift: the upper half of the codes comes out negative."""
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
        codes = (words[:, :, None] << (32 - BITS - shifts)[None, None, :]) >> (32 - BITS)
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def always_two_bits(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The mask of 2 bits for every width."""
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
        codes = (words[:, :, None] >> shifts[None, None, :]) & 3
        x = minimum[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def shift_by_field(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Field i is shifted by i bits: right for 1 bit only."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
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
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def fields_from_the_top(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Field 0 is taken from the highest bits."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = 32 - BITS - BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
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
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def fields_before_words(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fields' axis is put before the words': the reshape lays out all fields 0, then all fields 1."""
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
        codes = (words[:, None, :] >> shifts[None, :, None]) & ((1 << BITS) - 1)
        x = minimum[:, None, :] + scale[:, None, :] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def rounded_twice(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The product is rounded to bfloat16, and the sum again."""
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
        x = minimum[:, :, None] + (scale[:, :, None] * codes).to(tl.bfloat16)
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def float16_operands(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """float16 holds neither the large values nor the small ones."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.float16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0).to(tl.float16)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def bfloat16_accumulator(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The sum is rounded to bfloat16 at every step."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = (acc + tl.dot(dy, x)).to(tl.bfloat16).to(tl.float32)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def float16_accumulator(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The sum is kept in float16."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float16)
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
        acc += tl.dot(dy, x).to(tl.float16)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def dtypes_mixed(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """dy is bfloat16, the unpacked tile float32."""
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
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def last_block_only(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The accumulator is overwritten."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def tail_of_k_dropped(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Only whole blocks of K are walked."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K // BLOCK_K * BLOCK_K, BLOCK_K):
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
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def transposed_result(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """dW is stored as [CIN, COUT]."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_n[None, :] * COUT + offs_m[:, None], acc, mask=mask)


@triton.jit
def store_without_mask(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tile is stored whole."""
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc)


@triton.jit
def tiles_swapped(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The grid's axes are swapped."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(0) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
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
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(dw_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


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
    """Both operands in float32: right, and without tensor cores."""
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
def empty_splits_unwritten(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A split without rows has nothing to add, and leaves its tile as it was."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    if split * rows < K:
        tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def splits_share_a_tile(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """All splits store into part 0: the last one wins."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    tl.store(parts_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def sums_overwritten(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Every split stores its sum into all parts."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    for s in range(SPLITS):
        tl.store(parts_ptr + (s * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def atomics_into_part_0(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sums are added by atomics into part 0, which nobody has zeroed."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    tl.atomic_add(parts_ptr + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def atomics_into_own_part(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each split adds to its own part, which nobody has zeroed."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    tl.atomic_add(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def rows_over_splits(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """K / SPLITS rows, rounded up, are no whole blocks: a split reads on into the next one's rows."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = tl.cdiv(K, SPLITS)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
def rows_rounded_down(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """K // SPLITS rows: blocks overlap, and the tail is lost."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = K // SPLITS
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
def blocks_rounded_down(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Blocks over splits, rounded down: the blocks left over are lost."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = tl.cdiv(K, BLOCK_K) // SPLITS * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
def last_split_takes_the_rest(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rounded down, and the last split takes what is left: dW is right, the parts are not those asked for."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = tl.cdiv(K, BLOCK_K) // SPLITS * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, K if split == SPLITS - 1 else split * rows + rows, BLOCK_K):
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
def splits_interleaved(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Split s takes blocks s, s + SPLITS, ...: the same sum, cut otherwise."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * BLOCK_K, K, SPLITS * BLOCK_K):
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
def sums_from_the_start(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each split starts at row 0: rows are counted several times."""
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
    for start in range(0, min(split * rows + rows, K), BLOCK_K):
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
def sums_to_the_end(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each split goes on to K."""
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
    for start in range(split * rows, K, BLOCK_K):
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
def every_split_all_of_k(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The range of K is not split."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
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
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def split_from_axis_0(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The split is taken from the grid's first axis."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(0)
    rows = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
def parts_too_close(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A part is taken to be CIN elements long."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    tl.store(parts_ptr + split * CIN + offs_m[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def parts_too_far(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A part is taken to be K · CIN elements long."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    tl.store(parts_ptr + (split * K + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def rounded_parts(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Partial sums are rounded to bfloat16 on the way to the workspace."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
    tl.store(
        parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc.to(tl.bfloat16), mask=mask
    )


@triton.jit
def minimum_once_a_split(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The minimum is added in the first split only."""
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
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k[:, None] < K) & (offs_w[None, :] < W)
        words = tl.load(words_ptr + k[:, None] * W + offs_w[None, :], mask=mask, other=0)
        scale = tl.load(scale_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + k[:, None] * G + offs_g[None, :], mask=mask, other=0.0).to(tl.float32)
        codes = (words[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
        x = tl.where(split == 0, minimum, 0.0)[:, :, None] + scale[:, :, None] * codes
        x = tl.reshape(x, (BLOCK_K, BLOCK_N)).to(tl.bfloat16)
        mask = (offs_m[:, None] < COUT) & (k[None, :] < K)
        dy = tl.load(dy_ptr + k[None, :] * COUT + offs_m[:, None], mask=mask, other=0.0)
        acc = tl.dot(dy, x, acc)
    mask = (offs_m[:, None] < COUT) & (offs_n[None, :] < CIN)
    tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def one_step_a_split(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, parts_ptr, K, COUT, CIN, SPLITS,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A split is one block, whatever K is."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(CIN, F), tl.cdiv(CIN, GROUP)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    offs_g = offs_w * F // GROUP
    shifts = BITS * tl.arange(0, F)
    split = tl.program_id(2)
    rows = BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(split * rows, min(split * rows + rows, K), BLOCK_K):
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
def neighbours_in_a_word(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Word r is taken to hold F neighbouring rows, F · r to F · r + F - 1, as in a row-wise word."""
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
            k = b * 16 * F + F * r + j
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def fields_16_below_the_top(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Field 0 is taken from the highest bits."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> 16 - BITS - BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def sign_left_in_fields(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The top field of a negative halfword comes down with copies of the sign bit."""
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
            k = b * 16 * F + 16 * j + r
            codes = words >> BITS * j
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def fields_sign_extended(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Up and down again with an arithmetic shift."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words.to(tl.int32) << 32 - BITS - BITS * j) >> 32 - BITS
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def words_of_32_bits(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A word is taken to have 32 bits: twice the fields, half the blocks."""
    F: tl.constexpr = 32 // BITS
    blocks = tl.cdiv(K, 8 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 32 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def block_of_words_by_rows(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Words of block b are looked for at row b · 16 F, where its codes would be."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 * F + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def scale_by_row(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Scales are read as [K, G], as in puzzle 19."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + k * tl.cdiv(CIN, GROUP) + g).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def scales_without_padding(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A group's scales are taken to be K apart: they are padded to whole blocks."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * K + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * K + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def tile_for_group(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Every tile is taken for a group."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def group_0(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """All tiles have the scales of group 0."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = 0
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def minimum_left_out(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The minimum is not added."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def dy_past_k(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The last block of words has rows past K, dy has not."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] >= 0) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def dy_garbage_past_k(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Rows past K are masked off in dy, but hold garbage."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def dy_ones_past_k(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Rows past K of dy are 1: what stands in the words there is added."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=1.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def blocks_lost(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """K // (16 F) blocks: the last one, partly filled, is lost."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(K // (16 * F)):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def stored_transposed(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The accumulator is dWᵀ, and is stored so."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_n * COUT + offs_m, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def one_field(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Only field 0 of each word is used."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0)
        for j in tl.static_range(1):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def same_dy_for_all_fields(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dy's rows do not move with the field."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + (k - 16 * j)[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def same_scale_for_all_fields(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A word's fields are taken to share a scale: they are rows, and each has its own."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k - 16 * j).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def rounded_sum(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The sum is rounded to bfloat16 after every field."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc).to(tl.bfloat16).to(tl.float32)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def rounded_product(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The product is rounded to bfloat16, and the sum again."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + (scale[None, :] * codes).to(tl.bfloat16)).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def float16_tiles(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """float16 holds neither the large values nor the small ones."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.float16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0).to(tl.float16)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def columns_unmasked(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Columns past CIN are read."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n)
        for j in tl.static_range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
    tl.store(dw_ptr + offs_m * CIN + offs_n, acc, mask=(offs_m < COUT) & (offs_n < CIN))


@triton.jit
def nothing_stored(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Nothing is stored."""
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
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)


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
def a_loop_over_fields(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, K, COUT, CIN,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The fields in a loop that is not unrolled; words of 32 bits in the registers."""
    F: tl.constexpr = 16 // BITS
    blocks = tl.cdiv(K, 16 * F)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    r = tl.arange(0, 16)
    g = tl.program_id(1) * BLOCK_N // GROUP
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for b in range(blocks):
        words = tl.load(words_ptr + (b * 16 + r[None, :]) * CIN + offs_n, mask=offs_n < CIN, other=0).to(
            tl.int32
        )
        for j in range(F):
            k = b * 16 * F + 16 * j + r
            codes = (words >> BITS * j) & ((1 << BITS) - 1)
            scale = tl.load(scale_ptr + g * blocks * 16 * F + k).to(tl.float32)
            minimum = tl.load(minimum_ptr + g * blocks * 16 * F + k).to(tl.float32)
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            mask = (k[:, None] < K) & (offs_m < COUT)
            dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m, mask=mask, other=0.0)
            acc = tl.dot(x, dy, acc)
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


WRONG = [
    Wrong(FUSED_DW, no_store, kind="never written", says="dw_ptr"),
    Wrong(FUSED_DW, scale_of_row_0, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, scale_by_word, kind="out of bounds", says="scale_ptr"),
    Wrong(FUSED_DW, one_group_a_tile, kind="values", says="16..127 along CIN"),
    Wrong(FUSED_DW, word_for_column, kind="values", says="16..127 along CIN"),
    Wrong(FUSED_DW, groups_rounded_down, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, words_rounded_down, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, minimum_forgotten, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, minimum_scaled, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, rows_of_dy_unmasked, kind="out of bounds", says="dy_ptr"),
    Wrong(FUSED_DW, dy_without_other, kind="uninitialised", says="dy_ptr"),
    Wrong(FUSED_DW, minimum_without_other, kind="uninitialised", says="minimum_ptr"),
    Wrong(FUSED_DW, last_row_again, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, minimum_past_k, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, sign_left_in_codes, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, fields_with_a_sign, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, always_two_bits, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, shift_by_field, kind="values", says="1..31 along CIN"),
    Wrong(FUSED_DW, fields_from_the_top, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, fields_before_words, kind="values", says="1..30 along CIN"),
    Wrong(FUSED_DW, rounded_twice, kind="values", says="0..24 along CIN"),
    Wrong(FUSED_DW, float16_operands, kind="values", says="NaN"),
    Wrong(FUSED_DW, bfloat16_accumulator, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, float16_accumulator, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, dtypes_mixed, kind="compiler", says="bf16 and fp32"),
    Wrong(FUSED_DW, last_block_only, kind="values", says="last block of K"),
    Wrong(FUSED_DW, tail_of_k_dropped, kind="values", says="dw[0, 0]"),
    Wrong(FUSED_DW, transposed_result, kind="values", says="transposed"),
    Wrong(FUSED_DW, store_without_mask, kind="out of bounds", says="dw_ptr"),
    Wrong(FUSED_DW, tiles_swapped, kind="never written", says="dw[32, 0]"),
    Wrong(SPLIT_K, empty_splits_unwritten, kind="never written", says="parts[3, 0, 0]"),
    Wrong(SPLIT_K, splits_share_a_tile, kind="never written", says="parts[1, 0, 0]"),
    Wrong(SPLIT_K, sums_overwritten, kind="race", says="(0, 0, 0) and (0, 0, 1)"),
    Wrong(SPLIT_K, atomics_into_part_0, kind="uninitialised", says="parts_ptr"),
    Wrong(SPLIT_K, atomics_into_own_part, kind="uninitialised", says="parts_ptr"),
    Wrong(SPLIT_K, rows_over_splits, kind="values", says="1..3 along SPLITS"),
    Wrong(SPLIT_K, rows_rounded_down, kind="values", says="1..3 along SPLITS"),
    Wrong(SPLIT_K, blocks_rounded_down, kind="values", says="parts[0, 0, 0]"),
    Wrong(SPLIT_K, last_split_takes_the_rest, kind="values", says="parts[0, 0, 0]"),
    Wrong(SPLIT_K, splits_interleaved, kind="values", says="parts[0, 0, 0]"),
    Wrong(SPLIT_K, sums_from_the_start, kind="values", says="1 along SPLITS"),
    Wrong(SPLIT_K, sums_to_the_end, kind="values", says="0 along SPLITS"),
    Wrong(SPLIT_K, every_split_all_of_k, kind="values", says="parts[0, 0, 0]"),
    Wrong(SPLIT_K, split_from_axis_0, kind="never written", says="parts[0, 16, 0]"),
    Wrong(SPLIT_K, parts_too_close, kind="never written", says="parts[1, 1, 0]"),
    Wrong(SPLIT_K, parts_too_far, kind="out of bounds", says="parts_ptr"),
    Wrong(SPLIT_K, rounded_parts, kind="values", says="parts[0, 0, 0]"),
    Wrong(SPLIT_K, minimum_once_a_split, kind="values", says="1 along SPLITS"),
    Wrong(SPLIT_K, one_step_a_split, kind="values", says="first block of K"),
    Wrong(PACKED_ALONG_K, neighbours_in_a_word, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, fields_16_below_the_top, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, sign_left_in_fields, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, fields_sign_extended, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, words_of_32_bits, kind="out of bounds", says="scale_ptr"),
    Wrong(PACKED_ALONG_K, block_of_words_by_rows, kind="out of bounds", says="words_ptr"),
    Wrong(PACKED_ALONG_K, scale_by_row, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, scales_without_padding, kind="values", says="64..90 along CIN"),
    Wrong(PACKED_ALONG_K, tile_for_group, kind="out of bounds", says="scale_ptr"),
    Wrong(PACKED_ALONG_K, group_0, kind="values", says="64..95 along CIN"),
    Wrong(PACKED_ALONG_K, minimum_left_out, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, dy_past_k, kind="out of bounds", says="dy_ptr"),
    Wrong(PACKED_ALONG_K, dy_garbage_past_k, kind="uninitialised", says="dy_ptr"),
    Wrong(PACKED_ALONG_K, dy_ones_past_k, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, blocks_lost, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, stored_transposed, kind="values", says="transposed"),
    Wrong(PACKED_ALONG_K, one_field, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, same_dy_for_all_fields, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, same_scale_for_all_fields, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, rounded_sum, kind="values", says="dw[0, 0]"),
    Wrong(PACKED_ALONG_K, rounded_product, kind="values", says="0..30 along CIN"),
    Wrong(PACKED_ALONG_K, float16_tiles, kind="values", says="NaN"),
    Wrong(PACKED_ALONG_K, columns_unmasked, kind="out of bounds", says="words_ptr"),
    Wrong(PACKED_ALONG_K, nothing_stored, kind="never written", says="dw_ptr"),
]
RIGHT = [
    (FUSED_DW, a_scale_a_lane),
    (FUSED_DW, float32_operands),
    (FUSED_DW, tf32_operands),
    (FUSED_DW, transposed_product),
    (FUSED_DW, last_step_first),
    (FUSED_DW, unsigned_words),
    (FUSED_DW, two_dots),
    (SPLIT_K, no_end_at_k),
    (SPLIT_K, counted_steps),
    (SPLIT_K, a_while_loop),
    (PACKED_ALONG_K, stacked_fields),
    (PACKED_ALONG_K, dy_on_the_left),
    (PACKED_ALONG_K, a_loop_over_fields),
    (PACKED_ALONG_K, fields_backwards),
]
