"""Kernels for chapter 09, pack_bits and unpack_bits. Most wrong ones are the chapter's mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch09_bit_packing.puzzles import PACK_BITS, PACK_WIDE, UNPACK_BITS
from tests.kernels import Wrong, edited


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def fields_multiplied(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Fields are joined by a product."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.reduce(codes << BITS * i, 1, _times)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


WRONG = [Wrong(PACK_BITS, fields_multiplied, kind="values", says="zero everywhere")]


# ---- right, done in other ways ------------------------------------------------------------------


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def joined_by_or(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """No two fields share a bit: or is as good as a sum."""
    F: tl.constexpr = 32 // BITS
    W = (N + F - 1) // F
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)
    n = offs_w[:, None] * F + i[None, :]
    codes = tl.load(codes_ptr + tl.program_id(0) * N + n, mask=n < N, other=0)
    words = tl.reduce(codes.to(tl.int32) << (BITS * i)[None, :], 1, _either)
    tl.store(words_ptr + tl.program_id(0) * W + offs_w, words, mask=offs_w < W)


@triton.jit
def field_by_field(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """A loop over the fields, from the top one down; promotion of uint8 widens the codes."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    words = tl.zeros((BLOCK_W,), dtype=tl.int32)
    for step in tl.static_range(F):
        n = offs_w * F + (F - 1 - step)
        codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0)
        words = (words << BITS) | codes
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def weighted_sum(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Multiplied by powers of two, without sign, and loaded flat, then folded."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    start = tl.program_id(1) * BLOCK_W
    n = start * F + tl.arange(0, BLOCK_W * F)
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.uint32)
    codes = tl.reshape(codes, (BLOCK_W, F))
    one = tl.full((1, F), 1, tl.uint32)
    words = tl.sum(codes * (one << BITS * tl.arange(0, F)[None, :]), axis=1)
    offs_w = start + tl.arange(0, BLOCK_W)
    tl.store(words_ptr + row * W + offs_w, words.to(tl.int32, bitcast=True), mask=offs_w < W)


@triton.jit
def fields_first(codes_ptr, words_ptr, M, N, stride_codes0, stride_words0, BITS, BLOCK_W: tl.constexpr):
    """BITS at run time: a tile of 32 rows of fields, the surplus masked off, summed over axis 0."""
    fields = 32 // BITS
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :]
    i = tl.arange(0, 32)[:, None]
    n = offs_w * fields + i
    mask = (i < fields) & (n < N)
    codes = tl.load(codes_ptr + tl.program_id(0) * stride_codes0 + n, mask=mask, other=0).to(tl.int64)
    shift = tl.where(i < fields, BITS * i, 0)
    words = tl.sum(codes << shift, axis=0).to(tl.int32)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    tl.store(words_ptr + tl.program_id(0) * stride_words0 + offs_w, words, mask=offs_w * fields < N)


@triton.jit
def three_axes(codes_ptr, words_ptr, M, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """A tile of three axes, with one row along the first."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    offs_m = tl.program_id(0) + tl.arange(0, 1)[:, None, None]
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :, None]
    i = tl.arange(0, F)[None, None, :]
    n = offs_w * F + i
    codes = tl.load(codes_ptr + offs_m * N + n, mask=(offs_m < M) & (n < N), other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=2, keep_dims=True)
    tl.store(words_ptr + offs_m * W + offs_w, words, mask=offs_w < W)


# Unpacking.


@triton.jit
def unsigned_fields(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Shifted up and down again, which is right without a sign."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, F)
    n = offs_w[:, None] * F + i[None, :]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W, other=-1).to(tl.uint32, bitcast=True)
    codes = (words[:, None] << (32 - BITS - BITS * i)[None, :]) >> (32 - BITS)
    tl.store(codes_ptr + row * N + n, codes.to(tl.uint8), mask=n < N)


@triton.jit
def word_by_word_shifted(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """A loop over the fields: keep the lowest, move the word down."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)
    for i in range(F):
        n = offs_w * F + i
        tl.store(codes_ptr + row * N + n, words & ((1 << BITS) - 1), mask=n < N)
        words = words >> BITS


@triton.jit
def whole_row_at_once(words_ptr, codes_ptr, M, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The fields are folded into the row before the store."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    start = tl.program_id(1) * BLOCK_W
    offs_w = start + tl.arange(0, BLOCK_W)
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W, other=0)
    codes = (words[:, None] >> BITS * tl.arange(0, F)[None, :]) & ((1 << BITS) - 1)
    n = start * F + tl.arange(0, BLOCK_W * F)
    tl.store(codes_ptr + row * N + n, tl.reshape(codes, (BLOCK_W * F,)), mask=n < N)


@triton.jit
def remainders(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr, stride_words0):
    """Division and remainder, which are right in 64 bits without a sign."""
    F: tl.constexpr = 32 // BITS
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)[:, None]
    i = tl.arange(0, F)[None, :]
    words = tl.load(words_ptr + row * stride_words0 + offs_w, mask=offs_w < stride_words0, other=0)
    words = words.to(tl.int64) & 0xFFFFFFFF
    one = tl.full((1, F), 1, tl.int64)
    codes = words // (one << BITS * i) % (1 << BITS)
    tl.store(codes_ptr + row * N + offs_w * F + i, codes, mask=offs_w * F + i < N)


RIGHT = [
    (PACK_BITS, joined_by_or),
    (PACK_BITS, field_by_field),
    (PACK_BITS, weighted_sum),
    (PACK_BITS, fields_first),
    (PACK_BITS, three_axes),
    (UNPACK_BITS, unsigned_fields),
    (UNPACK_BITS, word_by_word_shifted),
    (UNPACK_BITS, whole_row_at_once),
    (UNPACK_BITS, remainders),
    (
        PACK_WIDE,
        edited(
            PACK_WIDE,
            "halves_joined",
            "Halves are packed from bit 0 and joined by a bitwise or.",
            {
                "words += tl.sum(codes << BITS * (first + i), axis=1)": (
                    "words |= tl.sum(codes << BITS * i, axis=1) << BITS * first"
                )
            },
        ),
    ),
    (
        PACK_WIDE,
        edited(PACK_WIDE, "halves_in_a_loop", "A loop that is not unrolled.", {"tl.static_range(": "range("}),
    ),
]
