"""Right kernels for chapter 10; wrong ones are its mistakes."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.chapters.ch10_quantize.puzzles import QUANTIZE_CODES, QUANTIZE_PACK, UNPACK_DEQUANTIZE

# ---- puzzle 15a


@triton.jit
def codes_by_rint(
    x_ptr, codes_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Rounds with libdevice.rint; past the end it repeats the last value of the row."""
    row, G = tl.program_id(0), tl.cdiv(N, GROUP)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * N + tl.minimum(n, N - 1)).to(tl.float32)
    low, high = tl.min(x, axis=1), tl.max(x, axis=1)
    scale = tl.where(high == low, 1.0, (high - low) / (2**BITS - 1)).to(tl.bfloat16)
    codes = libdevice.rint((x - low[:, None]) / scale[:, None].to(tl.float32))
    codes = tl.minimum(codes, 2**BITS - 1).to(tl.uint8)
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def codes_group_by_group(
    x_ptr, codes_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """One group at a time, with the reciprocal of the scale, and ties by comparing the fraction."""
    row, G = tl.program_id(0), tl.cdiv(N, GROUP)
    first = tl.program_id(1) * BLOCK_G
    for g in range(first, tl.minimum(first + BLOCK_G, G)):
        n = g * GROUP + tl.arange(0, GROUP)
        x = tl.load(x_ptr + row * N + n, mask=n < N, other=float("inf")).to(tl.float32)
        low = tl.min(x, axis=0)
        x = tl.where(n < N, x, low)
        high = tl.max(x, axis=0)
        scale = tl.where(high > low, (high - low) / (2**BITS - 1), 1.0).to(tl.bfloat16)
        steps = (x - low) * (1.0 / scale.to(tl.float32))
        whole = tl.floor(steps).to(tl.int32)
        part = steps - whole
        codes = whole + ((part > 0.5) | ((part == 0.5) & (whole % 2 == 1))).to(tl.int32)
        tl.store(codes_ptr + row * N + n, tl.minimum(codes, 2**BITS - 1), mask=n < N)
        tl.store(scale_ptr + row * G + g, scale)
        tl.store(minimum_ptr + row * G + g, low)


# ---- puzzle 15b


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


# ---- puzzle 16


@triton.jit
def a_scale_for_each_word(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Loads a scale per word, folds the fields into one axis; a fused multiply-add."""
    F: tl.constexpr = 32 // BITS
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    words = tl.load(words_ptr + row * tl.cdiv(N, F) + offs_w, mask=offs_w * F < N, other=0)
    params = row * tl.cdiv(N, GROUP) + offs_w * F // GROUP
    scale = tl.load(scale_ptr + params, mask=offs_w * F < N, other=0.0).to(tl.float32)
    minimum = tl.load(minimum_ptr + params, mask=offs_w * F < N, other=0.0).to(tl.float32)
    fields = words[:, None] >> BITS * tl.arange(0, F)[None, :] & 2**BITS - 1
    x = tl.fma(fields.to(tl.float32), scale[:, None], minimum[:, None])
    n = tl.program_id(1) * BLOCK_W * F + tl.arange(0, BLOCK_W * F)
    tl.store(x_ptr + row * N + n, tl.reshape(x, (BLOCK_W * F,)).to(tl.bfloat16), mask=n < N)


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


RIGHT = [
    (QUANTIZE_CODES, codes_by_rint),
    (QUANTIZE_CODES, codes_group_by_group),
    (QUANTIZE_PACK, one_group_a_program),
    (QUANTIZE_PACK, words_first),
    (QUANTIZE_PACK, fields_joined_by_or),
    (UNPACK_DEQUANTIZE, a_scale_for_each_word),
    (UNPACK_DEQUANTIZE, unsigned_field_by_field),
]
