"""Wrong and right kernels for chapter 09: pack_bits, unpack_bits."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch09_bit_packing.puzzles import PACK_BITS, UNPACK_BITS
from tests.kernels import Wrong


@triton.jit
def _times(a, b):
    return a * b


# ---- wrong: packing with one slip each -------------------------------------------------------


@triton.jit
def shifted_down(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Fields are moved down, >>, where they should move up, <<."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes >> BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def summed_as_int8(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The word is summed up in 8 bits: only its lowest byte survives."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum((codes << BITS * i).to(tl.int8), axis=1).to(tl.int8)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def words_stored_as_int8(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The words are written one byte apart, as int8."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr.to(tl.pointer_type(tl.int8)) + row * W + offs_w, words.to(tl.int8), mask=offs_w < W)


@triton.jit
def shifted_in_uint8(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The shift happens in the codes' own 8 bits, and all higher fields fall off."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0)
    words = tl.sum((codes << (BITS * i).to(tl.uint8)).to(tl.int32), axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def sign_bit_lost(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The top bit is cleared, so that words look positive."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1) & 0x7FFFFFFF  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def summed_in_float32(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The sum is taken in float32, which keeps 24 bits."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum((codes << BITS * i).to(tl.float32), axis=1).to(tl.int32)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def first_field_on_top(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Field 0 goes to the top of the word."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * (F - 1 - i), axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def shifted_by_i(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Fields are shifted by i places, not by BITS · i."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def eight_fields_a_word(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Four bits a code, whatever BITS is."""
    F: tl.constexpr = 8
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def padding_left_open(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The lanes past the end of a row are masked off, and summed up all the same."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def padding_of_ones(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The fields past the end of a row are 1."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=1).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def reads_into_the_next_row(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The mask asks for whole words: the last word of a row takes codes of the next row."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=offs_w[:, None] < W, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def rows_of_whole_words(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Rows of codes are taken to be W · F long."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * W * F + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def words_rounded_down(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """N // F words a row: the last, broken word is dropped."""
    F: tl.constexpr = 32 // BITS
    W = N // F
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def rows_of_words_n_apart(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Rows of words are taken to be N apart, like rows of codes."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * N + offs_w, words, mask=offs_w < W)


@triton.jit
def no_mask_on_the_words(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Lanes past the last word of a row are stored too."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words)


@triton.jit
def first_block_only(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Every program packs the first block of its row."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


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


@triton.jit
def neighbours_in_different_words(codes_ptr, words_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Code n goes to word n % W: neighbours sit in different words."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = i * W + offs_w[:, None]  # [BLOCK_W, F]
    codes = tl.load(codes_ptr + row * N + n, mask=n < N, other=0).to(tl.int32)
    words = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)


# ---- wrong: unpacking with one slip each -----------------------------------------------------


@triton.jit
def sign_left_in(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The fields above, or copies of the sign, are left in: & is missing."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = words[:, None] >> BITS * i  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def shifted_up(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Fields are moved up, <<, where they should come down, >>."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] << BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def divided(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Division in place of a shift: it rounds towards zero, so negative words come out wrong."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = words[:, None] // (1 << BITS * i) % (1 << BITS)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def up_and_down(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Shifted up and down again: the second shift copies the sign."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] << (32 - BITS - BITS * i)) >> (32 - BITS)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def absolute_words(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The sign is thrown away first: abs() is another number."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (tl.abs(words)[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def sign_bit_cleared(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The sign bit is cleared, and it is part of the top field."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = ((words[:, None] & 0x7FFFFFFF) >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def read_as_int8(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Words are narrowed to 8 bits before their fields are taken."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words.to(tl.int8)[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def four_bits_kept(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Always four bits are kept."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & 15  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def one_bit_too_many(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The mask is 2^BITS, not 2^BITS - 1."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & (1 << BITS)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def last_field_first(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Field 0 is taken from the top of the word."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * (F - 1 - i)) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def a_word_for_every_lane(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Every lane loads its own word: F times what is needed."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + n // F, mask=n < N)
    codes = (words >> BITS * (n % F)) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def codes_past_the_row(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """The fields past the end of a row are stored as well."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=offs_w[:, None] < W)


@triton.jit
def no_mask_on_the_codes(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """No mask on the store."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes)


@triton.jit
def no_mask_on_the_load(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """No mask on the load of the words."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def word_rows_rounded_down(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Rows of words are taken to be N // F long."""
    F: tl.constexpr = 32 // BITS
    W = N // F
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w * F < N)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def word_rows_n_apart(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Rows of words are taken to be N apart, like rows of codes."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * N + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


@triton.jit
def code_rows_of_whole_words(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Rows of codes are taken to be W · F long."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * W * F + n, codes, mask=n < N)


@triton.jit
def first_row_only(words_ptr, codes_ptr, N, BITS: tl.constexpr, BLOCK_W: tl.constexpr):
    """Every program unpacks the first row."""
    F: tl.constexpr = 32 // BITS
    W = tl.cdiv(N, F)
    row = 0
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    tl.store(codes_ptr + row * N + n, codes, mask=n < N)


WRONG = [
    Wrong(PACK_BITS, shifted_down, kind="values", says="words[0, 0]"),
    Wrong(PACK_BITS, summed_as_int8, kind="values", says="words[0, 0]"),
    Wrong(PACK_BITS, words_stored_as_int8, kind="never written", says="words[0, 1]"),
    Wrong(PACK_BITS, shifted_in_uint8, kind="values", says="words[0, 0]"),
    Wrong(PACK_BITS, sign_bit_lost, kind="values", says="2..3 along (N*BITS+31)//32"),
    Wrong(PACK_BITS, summed_in_float32, kind="values", says="1..3 along (N*BITS+31)//32"),
    Wrong(PACK_BITS, first_field_on_top, kind="values", says="words[0, 0]"),
    Wrong(PACK_BITS, shifted_by_i, kind="values", says="words[0, 0]"),
    Wrong(PACK_BITS, eight_fields_a_word, kind="values", says="words[0, 0]"),
    Wrong(PACK_BITS, padding_left_open, kind="uninitialised", says="codes_ptr"),
    Wrong(PACK_BITS, padding_of_ones, kind="values", says="9 along (N*BITS+31)//32"),
    Wrong(PACK_BITS, reads_into_the_next_row, kind="out of bounds", says="codes_ptr"),
    Wrong(PACK_BITS, rows_of_whole_words, kind="out of bounds", says="codes_ptr"),
    Wrong(PACK_BITS, words_rounded_down, kind="never written", says="words[2, 7]"),
    Wrong(PACK_BITS, rows_of_words_n_apart, kind="out of bounds", says="words_ptr"),
    Wrong(PACK_BITS, no_mask_on_the_words, kind="out of bounds", says="words_ptr"),
    Wrong(PACK_BITS, first_block_only, kind="never written", says="words[0, 8]"),
    Wrong(PACK_BITS, fields_multiplied, kind="values", says="zero everywhere"),
    Wrong(PACK_BITS, neighbours_in_different_words, kind="values", says="words[0, 0]"),
    Wrong(UNPACK_BITS, sign_left_in, kind="values", says="0..62 along N"),
    Wrong(UNPACK_BITS, shifted_up, kind="values", says="wrong ones are zero"),
    Wrong(UNPACK_BITS, divided, kind="values", says="0..119 along N"),
    Wrong(UNPACK_BITS, up_and_down, kind="values", says="0..59 along N"),
    Wrong(UNPACK_BITS, absolute_words, kind="values", says="0..119 along N"),
    Wrong(UNPACK_BITS, sign_bit_cleared, kind="values", says="7..119 along N"),
    Wrong(UNPACK_BITS, read_as_int8, kind="values", says="4..63 along N"),
    Wrong(UNPACK_BITS, four_bits_kept, kind="values", says="0..62 along N"),
    Wrong(UNPACK_BITS, one_bit_too_many, kind="values", says="codes[0, 0]"),
    Wrong(UNPACK_BITS, last_field_first, kind="values", says="0..62 along N"),
    Wrong(UNPACK_BITS, a_word_for_every_lane, kind="loads", says="words_ptr"),
    Wrong(UNPACK_BITS, codes_past_the_row, kind="out of bounds", says="codes_ptr"),
    Wrong(UNPACK_BITS, no_mask_on_the_codes, kind="out of bounds", says="codes_ptr"),
    Wrong(UNPACK_BITS, no_mask_on_the_load, kind="out of bounds", says="words_ptr"),
    Wrong(UNPACK_BITS, word_rows_rounded_down, kind="values", says="1..2 along M"),
    Wrong(UNPACK_BITS, word_rows_n_apart, kind="out of bounds", says="words_ptr"),
    Wrong(UNPACK_BITS, code_rows_of_whole_words, kind="out of bounds", says="codes_ptr"),
    Wrong(UNPACK_BITS, first_row_only, kind="never written", says="codes[1, 0]"),
]


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
]
