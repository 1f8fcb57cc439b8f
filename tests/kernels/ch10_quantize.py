"""Kernels for puzzles 15 and 16: wrong ones, each with the mistake it makes, and other right ones."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.chapters.ch10_quantize.puzzles import QUANTIZE_PACK, UNPACK_DEQUANTIZE
from tests.kernels import Wrong

# ---- puzzle 15, wrong


@triton.jit
def codes_from_the_unrounded_scale(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Stores a bfloat16 scale, and divides by the float32 one that nobody will have."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def zero_scale(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """A constant group gets scale 0, and 0 / 0 for its codes."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = ((high - low) / TOP).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def least_scale(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Keeps the scale away from 0 by a small constant: a constant group gets that, not 1."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.maximum((high - low) / TOP, 1e-6).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def half_minus_a_bit(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Rounds by + 0.5 - 1e-6 and truncation: ties go down, to odd codes too."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum(tl.floor(steps + 0.5 - 1e-6), TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def half_up(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Rounds by floor(x + 0.5): ties go up, to odd codes too."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum(tl.floor(steps + 0.5), TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def truncated(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Cuts the fraction off: half a step too low on average."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum(steps, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def not_clamped(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """A scale that was rounded down makes the top value code 256, which spills into the next field."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = (steps + 12582912.0) - 12582912.0
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def one_level_too_many(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Divides by the number of levels, not by that of the steps between them."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / (TOP + 1), 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def padding_in_the_minimum(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Lanes past the row hold 0 and take part in the minimum."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0).to(tl.float32)
    low = tl.min(x, axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def padding_in_the_maximum(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Lanes past the row hold 0 and take part in the maximum."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(x, axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def no_mask(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Takes the row length for a multiple of the group."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def no_other(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Lanes past the row hold anything, and take part."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(x, axis=1)
    high = tl.max(x, axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def codes_past_the_end(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Fields past the end of the row hold the code of 0."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = codes.to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def groups_rounded_down(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Rows of scales are N // GROUP long: the last, shorter group is forgotten."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), N // GROUP
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def scale_moved_by_the_element_stride(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Scales of the next row begin one further on, not a row of groups."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def shifted_down(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Fields are summed with >> where << is meant."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields >> BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def stored_as_int8(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Words of 32 bits pass through an int8."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2).to(tl.int8)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def fields_from_the_top(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """The first code is put into the highest field."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << (32 - BITS - BITS * tl.arange(0, F)[None, None, :]), axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def fields_across(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Folds the codes so that neighbours land in different words."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, F, GROUP // F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, :, None], axis=1)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def in_bfloat16(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Subtracts and divides in bfloat16: eight bits of result for eight bits of code."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low.to(tl.bfloat16)[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def minimum_forgotten(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Codes x / scale, as if every group began at 0."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = x / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def scale_truncated(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Rounds the scale to bfloat16 by cutting bits off."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    exact = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.int32, bitcast=True)
    scale = (exact & -65536).to(tl.float32, bitcast=True).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def minimum_never_stored(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Stores words and scales, and forgets the minimum."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)


@triton.jit
def one_group_for_the_block(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """One minimum and one scale for all groups of the program."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)
    low, high = tl.min(low) + 0.0 * low, tl.max(high) + 0.0 * high
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


# ---- puzzle 16, wrong


@triton.jit
def sign_left_in(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """The top field brings copies of the sign bit along."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = words[:, None] >> BITS * i
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def division_for_shift(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Dividing rounds towards zero: wrong for negative words."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] // (1 << BITS * i)) % (1 << BITS)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def dequantize_in_bfloat16(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Product and sum in bfloat16: rounded twice."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W)
    x = minimum[:, None] + scale[:, None] * codes.to(tl.bfloat16)
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def group_of_the_word_number(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Takes the word number for n: w // GROUP."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def group_of_the_block(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """One scale and one minimum for all words of the program."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * 0 + tl.program_id(1) * BLOCK_W * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def words_of_a_group_first(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """F // GROUP first, which is 0: always the first group."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * (F // GROUP)
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def dequantize_groups_rounded_down(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Rows of scales are N // GROUP long."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), N // GROUP
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def words_rounded_down(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Rows of words are N // F long."""
    F: tl.constexpr = 32 // BITS
    W, G = N // F, tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def no_store_mask(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Takes the row length for a multiple of a block."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x)


@triton.jit
def no_load_mask(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Loads words past the end."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def code_minus_minimum(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Treats the minimum as a zero point: scale * (code - minimum)."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = scale[:, None] * (codes - minimum[:, None])
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def dequantize_minimum_forgotten(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Every group begins at 0."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def product_rounded(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Rounds scale times code to bfloat16 before the minimum is added."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + (scale[:, None] * codes).to(tl.bfloat16).to(tl.float32)
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def a_word_a_lane(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Every lane loads the word it needs: each word F times."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + n // F, mask=n < N, other=0)
    codes = (words >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def dequantize_fields_from_the_top(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Takes the first code from the highest field."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> (32 - BITS - BITS * i)) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def mask_too_wide(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Keeps one bit of the neighbour."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((2 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


@triton.jit
def dequantize_scale_moved_by_the_element_stride(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Scales of the next row begin one further on, not a row of groups."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)[None, :]
    n = offs_w[:, None] * F + i
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)
    g = offs_w * F // GROUP
    scale = tl.load(scale_ptr + row + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes
    tl.store(x_ptr + row * N + n, x, mask=n < N)


# ---- puzzle 15, other right kernels


@triton.jit
def one_group_a_program(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N, stride_xm,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """One group at a time, in one dimension; rounds by libdevice.rint."""
    F: tl.constexpr = 32 // BITS
    top = (1 << BITS) - 1
    row = tl.program_id(0)
    for g in range(
        tl.program_id(1) * BLOCK_G, tl.minimum((tl.program_id(1) + 1) * BLOCK_G, tl.cdiv(N, GROUP))
    ):
        n = g * GROUP + tl.arange(0, GROUP)
        x = tl.load(x_ptr + row * stride_xm + n, mask=n < N, other=float("inf")).to(tl.float32)
        low = tl.min(x, axis=0)
        high = tl.max(tl.where(n < N, x, low), axis=0)
        scale = ((high - low) / top).to(tl.bfloat16).to(tl.float32)
        if high == low:
            scale = 1.0
        codes = libdevice.rint((tl.where(n < N, x, low) - low) / scale)
        codes = tl.clamp(codes, 0.0, top * 1.0).to(tl.int32)
        fields = tl.reshape(codes, (GROUP // F, F)) << (BITS * tl.arange(0, F))[None, :]
        w = g * (GROUP // F) + tl.arange(0, GROUP // F)
        tl.store(words_ptr + row * tl.cdiv(N, F) + w, tl.sum(fields, axis=1), mask=w < tl.cdiv(N, F))
        tl.store(scale_ptr + row * tl.cdiv(N, GROUP) + g, scale)
        tl.store(minimum_ptr + row * tl.cdiv(N, GROUP) + g, low)


@triton.jit
def words_first(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Loads a tile with a word a line, three axes from the start; multiplies by the reciprocal."""
    F: tl.constexpr = 32 // BITS
    row, W, G = tl.program_id(0), tl.cdiv(N, F), tl.cdiv(N, GROUP)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    i = tl.arange(0, F)[None, None, :]
    n = offs_w[:, :, None] * F + i
    last = tl.minimum(n, N - 1)  # past the end the last value again: no minimum or maximum changes
    x = tl.load(x_ptr + row * N + last).to(tl.float32)
    low = tl.min(tl.min(x, axis=2), axis=1)
    high = tl.max(tl.max(x, axis=2), axis=1)
    scale = ((high - low) * (1.0 / ((1 << BITS) - 1))).to(tl.bfloat16)
    scale = tl.where(scale == 0.0, 1.0, scale.to(tl.float32))
    inverse = 1.0 / scale
    shifted = tl.fma(x, inverse[:, None, None], (-low * inverse)[:, None, None]) + 12582912.0
    codes = shifted.to(tl.int32, bitcast=True) - 0x4B400000
    codes = tl.where(n < N, tl.minimum(tl.maximum(codes, 0), (1 << BITS) - 1), 0)
    tl.store(words_ptr + row * W + offs_w, tl.sum(codes << BITS * i, axis=2), mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def fields_joined_by_or(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, M, N, stride_xm, stride_xn,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Unsigned words joined by an own reduction; rounds by comparing the fraction with a half."""
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = 2**BITS - 1
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = (row < M) & (n < N)
    x = tl.load(x_ptr + row * stride_xm + n * stride_xn, mask=inside)
    low = tl.min(tl.where(inside, x.to(tl.float32), float("inf")), axis=1, keep_dims=True)
    high = tl.max(tl.where(inside, x.to(tl.float32), float("-inf")), axis=1, keep_dims=True)
    scale = tl.where(high == low, 1.0, (high - low) / TOP).to(tl.bfloat16)
    steps = tl.where(inside, (x.to(tl.float32) - low) / scale.to(tl.float32), 0.0)
    whole = tl.floor(steps)
    odd = whole.to(tl.int32) % 2 == 1
    up = (steps - whole > 0.5) | ((steps - whole == 0.5) & odd)
    codes = tl.minimum(whole.to(tl.int32) + up.to(tl.int32), TOP).to(tl.uint32)
    shifts = (BITS * (tl.arange(0, GROUP) % F)).to(tl.uint32)[None, :]
    words = tl.reduce(tl.reshape(codes << shifts, (BLOCK_G, GROUP // F, F)), 2, _or)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    tl.store(words_ptr + row * W + offs_w, words.to(tl.int32, bitcast=True), mask=offs_w < W)
    inside = offs_g[:, None] < G
    tl.store(scale_ptr + row * G + offs_g[:, None], scale, mask=inside)
    tl.store(minimum_ptr + row * G + offs_g[:, None], low, mask=inside)


# ---- puzzle 16, other right kernels


@triton.jit
def folded_into_a_row(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Folds the fields into one axis and loads a scale per lane; a fused multiply-add."""
    F: tl.constexpr = 32 // BITS
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    words = tl.load(words_ptr + row * tl.cdiv(N, F) + offs_w, mask=offs_w * F < N, other=0)
    fields = words[:, None] >> BITS * tl.arange(0, F)[None, :] & 2**BITS - 1
    codes = tl.reshape(fields, (BLOCK_W * F,))
    n = tl.program_id(1) * BLOCK_W * F + tl.arange(0, BLOCK_W * F)
    params = row * tl.cdiv(N, GROUP) + n // GROUP
    scale = tl.load(scale_ptr + params, mask=n < N, other=0.0).to(tl.float32)
    minimum = tl.load(minimum_ptr + params, mask=n < N, other=0.0).to(tl.float32)
    x = tl.fma(codes.to(tl.float32), scale, minimum)
    tl.store(x_ptr + row * N + n, x.to(tl.bfloat16), mask=n < N)


@triton.jit
def unsigned_field_by_field(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Unsigned words, and a store for each field."""
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W).to(tl.uint32, bitcast=True)
    g = offs_w // (GROUP // F)
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    for i in tl.static_range(F):
        codes = ((words << (32 - BITS * (i + 1))) >> (32 - BITS)).to(tl.float32)
        n = offs_w * F + i
        tl.store(x_ptr + row * N + n, codes * scale + minimum, mask=n < N)


WRONG = [
    Wrong(QUANTIZE_PACK, codes_from_the_unrounded_scale, kind="values", says="2..22 along (N*BITS+31)//32"),
    Wrong(QUANTIZE_PACK, zero_scale, kind="values", says="should be zero"),
    Wrong(QUANTIZE_PACK, least_scale, kind="values", says="scale[0, 0]"),
    Wrong(QUANTIZE_PACK, half_minus_a_bit, kind="values", says="7 of 8 cases"),
    Wrong(QUANTIZE_PACK, half_up, kind="values", says="7 of 8 cases"),
    Wrong(QUANTIZE_PACK, truncated, kind="values", says="words[0, 0]"),
    Wrong(QUANTIZE_PACK, not_clamped, kind="values", says="1 along M and 8 along (N*BITS+31)//32"),
    Wrong(QUANTIZE_PACK, one_level_too_many, kind="values", says="words[0, 0]"),
    Wrong(
        QUANTIZE_PACK,
        padding_in_the_minimum,
        kind="values",
        says="0..1 along M and 20..22 along (N*BITS+31)//32",
    ),
    Wrong(QUANTIZE_PACK, padding_in_the_maximum, kind="values", says="0 along M and 4 along (N*BITS+31)//32"),
    Wrong(QUANTIZE_PACK, no_mask, kind="out of bounds", says="x_ptr"),
    Wrong(QUANTIZE_PACK, no_other, kind="uninitialised", says="x_ptr"),
    Wrong(QUANTIZE_PACK, codes_past_the_end, kind="values", says="22 along (N*BITS+31)//32"),
    Wrong(QUANTIZE_PACK, groups_rounded_down, kind="never written", says="scale[2, 3]"),
    Wrong(QUANTIZE_PACK, scale_moved_by_the_element_stride, kind="never written", says="scale[1, 2]"),
    Wrong(QUANTIZE_PACK, shifted_down, kind="values", says="words[0, 0]"),
    Wrong(QUANTIZE_PACK, stored_as_int8, kind="values", says="words[0, 0]"),
    Wrong(QUANTIZE_PACK, fields_from_the_top, kind="values", says="words[0, 0]"),
    Wrong(QUANTIZE_PACK, fields_across, kind="values", says="words[0, 0]"),
    Wrong(QUANTIZE_PACK, in_bfloat16, kind="values", says="0..21 along (N*BITS+31)//32"),
    Wrong(QUANTIZE_PACK, minimum_forgotten, kind="values", says="words[0, 0]"),
    Wrong(QUANTIZE_PACK, scale_truncated, kind="values", says="1 along (N*BITS+31)//32"),
    Wrong(QUANTIZE_PACK, minimum_never_stored, kind="never written", says="minimum_ptr"),
    Wrong(QUANTIZE_PACK, one_group_for_the_block, kind="values", says="words[0, 0]"),
    Wrong(UNPACK_DEQUANTIZE, sign_left_in, kind="values", says="x[0, 0]"),
    Wrong(UNPACK_DEQUANTIZE, division_for_shift, kind="values", says="x[0, 0]"),
    Wrong(UNPACK_DEQUANTIZE, dequantize_in_bfloat16, kind="values", says="1 times"),
    Wrong(UNPACK_DEQUANTIZE, group_of_the_word_number, kind="values", says="16..127 along N"),
    Wrong(UNPACK_DEQUANTIZE, group_of_the_block, kind="values", says="16..127 along N"),
    Wrong(UNPACK_DEQUANTIZE, words_of_a_group_first, kind="values", says="16..90 along N"),
    Wrong(UNPACK_DEQUANTIZE, dequantize_groups_rounded_down, kind="values", says="1..2 along M"),
    Wrong(UNPACK_DEQUANTIZE, words_rounded_down, kind="uninitialised", says="scale_ptr"),
    Wrong(UNPACK_DEQUANTIZE, no_store_mask, kind="out of bounds", says="x_ptr"),
    Wrong(UNPACK_DEQUANTIZE, no_load_mask, kind="out of bounds", says="words_ptr"),
    Wrong(UNPACK_DEQUANTIZE, code_minus_minimum, kind="values", says="1..30 along N"),
    Wrong(UNPACK_DEQUANTIZE, dequantize_minimum_forgotten, kind="values", says="off by -0.2949"),
    Wrong(UNPACK_DEQUANTIZE, product_rounded, kind="values", says="1 times"),
    Wrong(UNPACK_DEQUANTIZE, a_word_a_lane, kind="loads", says="words_ptr"),
    Wrong(UNPACK_DEQUANTIZE, dequantize_fields_from_the_top, kind="values", says="1..31 along N"),
    Wrong(UNPACK_DEQUANTIZE, mask_too_wide, kind="values", says="2..31 along N"),
    Wrong(
        UNPACK_DEQUANTIZE, dequantize_scale_moved_by_the_element_stride, kind="values", says="1..2 along M"
    ),
]

RIGHT = [
    (QUANTIZE_PACK, one_group_a_program),
    (QUANTIZE_PACK, words_first),
    (QUANTIZE_PACK, fields_joined_by_or),
    (UNPACK_DEQUANTIZE, folded_into_a_row),
    (UNPACK_DEQUANTIZE, unsigned_field_by_field),
]
