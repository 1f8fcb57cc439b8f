"""Wrong and right kernels for chapter 11: relu_pack, relu_unpack_backward."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK, RELU_UNPACK_BACKWARD
from tests.kernels import Wrong

# ---- wrong: forward with one slip each -------------------------------------------------------


@triton.jit
def gates_shifted_down(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The bits are moved down, >>, where they should move up, <<."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) >> i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def mask_in_int8(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """32 bits are summed up in 8."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum((tl.where(off, 0, 1) << i).to(tl.int8), axis=1).to(tl.int8)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def mask_stored_as_int8(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """Mask words are written one byte apart, as int8."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr.to(tl.pointer_type(tl.int8)) + row * W + offs_w, words.to(tl.int8), mask=offs_w < W)


@triton.jit
def mask_rows_n_apart(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The mask moves on by the elements of a row, N, not by its words."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * N + offs_w, words, mask=offs_w < W)


@triton.jit
def mask_rows_rounded_down(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """N // 32 words a row: the last, broken word is dropped."""
    W = N // 32
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def zero_is_let_through(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """x >= 0: the gradient passes at 0 too."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=-1.0)  # [BLOCK_W, 32]
    off = x < 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def gradient_of_nan_stopped(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """x > 0 is False for NaN: its bit is 0, and torch lets the gradient pass."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum((x > 0).to(tl.int32) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def nan_becomes_zero(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """tl.maximum(x, 0) drops NaN."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.maximum(x, 0.0), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def nan_becomes_zero_by_where(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """where(x > 0, x, 0) drops NaN."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(x > 0, x, 0.0), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def sign_of_minus_zero(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The sign bit of x decides: 0 has none, and passes."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(((x.to(tl.int16, bitcast=True) >> 15) & 1 ^ 1).to(tl.int32) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def bits_of_padding(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The lanes past the end of a row read 1, and their bits are set."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=1.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def padding_unset(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The lanes past the end of a row are left open, and their bits are stored."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def gates_in_float32(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The word is summed up in float32, which keeps 24 bits."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum((tl.where(off, 0, 1) << i).to(tl.float32), axis=1).to(tl.int32)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def gates_from_the_top(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """Element 0 goes to the top bit."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << (31 - i), axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def mask_of_y_rounded(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """The bits are taken from 1 - x: where x is small, bfloat16 rounds it away."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=n < N)
    words = tl.sum(tl.where((1.0 - x) >= 1.0, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def y_forgotten(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """Only the mask is stored."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def x_is_passed_on(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """x is stored as it is."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, x, mask=n < N)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def y_past_the_row(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """Zeros are stored past the end of a row."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)  # [BLOCK_W, 32]
    off = x <= 0
    tl.store(y_ptr + row * N + n, tl.where(off, 0.0, x), mask=offs_w[:, None] < W)
    words = tl.sum(tl.where(off, 0, 1) << i, axis=1)  # [BLOCK_W]
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


# ---- wrong: backward with one slip each ------------------------------------------------------


@triton.jit
def multiplied_by_the_bit(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """dy · bit: 0 times infinity is NaN."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, dy * passes.to(tl.bfloat16), mask=n < N)


@triton.jit
def mask_row_by_elements(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """The mask moves on by the elements of a row, N, not by its words."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * N + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def mask_row_rounded_down(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Rows of the mask are taken to be N // 32 words long."""
    W = N // 32
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w * 32 < N)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def bit_not_taken_out(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """All of the shifted word is asked, not its lowest bit."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) != 0  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def top_bit_is_minus_one(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Without & 1 the top bit comes down as -1, and no other bit comes down alone."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def sign_cleared_first(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """The sign bit is cleared, and with it the gate of element 31."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = ((words[:, None] & 0x7FFFFFFF) >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def mask_read_as_int8(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Mask words are narrowed to 8 bits."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words.to(tl.int8)[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def mask_read_as_bytes(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """The mask is read as bytes, one a word."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr.to(tl.pointer_type(tl.int8)) + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def gate_inverted(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """The gradient passes where the bit is 0."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 0  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def gates_from_the_other_end(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Bit 31 is taken for element 0."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> (31 - i)) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def gate_of_dy(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """dy > 0 decides as well."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes & (dy > 0), dy, 0.0), mask=n < N)


@triton.jit
def a_word_for_every_gate(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Every lane loads its own mask word: 32 times what is needed."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + n // 32, mask=n < N)
    passes = (words >> n % 32) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def stored_where_it_passes(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Only where the bit is set something is stored: the zeros are missing."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, dy, mask=passes & (n < N))


@triton.jit
def gradient_unmasked(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """dy is read past its end."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=n < N)


@triton.jit
def dx_past_the_row(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Stored past the end of a row, where the mask holds anything."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    tl.store(dx_ptr + row * N + n, tl.where(passes, dy, 0.0), mask=offs_w[:, None] < W)


@triton.jit
def added_to_dx(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Adds to dx, which nobody has cleared."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, 32)[None, :]  # [1, 32]
    n = offs_w[:, None] * 32 + i  # [BLOCK_W, 32]
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    passes = (words[:, None] >> i) & 1 == 1  # [BLOCK_W, 32]
    dy = tl.load(dy_ptr + row * N + n, mask=n < N)  # [BLOCK_W, 32]
    old = tl.load(dx_ptr + row * N + n, mask=n < N)
    tl.store(dx_ptr + row * N + n, old + tl.where(passes, dy, 0.0), mask=n < N)


WRONG = [
    Wrong(RELU_PACK, gates_shifted_down, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, mask_in_int8, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, mask_stored_as_int8, kind="never written", says="mask[0, 1]"),
    Wrong(RELU_PACK, mask_rows_n_apart, kind="out of bounds", says="mask_ptr"),
    Wrong(RELU_PACK, mask_rows_rounded_down, kind="never written", says="mask[2, 2]"),
    Wrong(RELU_PACK, zero_is_let_through, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, gradient_of_nan_stopped, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, nan_becomes_zero, kind="values", says="wrong ones are zero"),
    Wrong(RELU_PACK, nan_becomes_zero_by_where, kind="values", says="wrong ones are zero"),
    Wrong(RELU_PACK, sign_of_minus_zero, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, bits_of_padding, kind="values", says="2 along (N+31)//32"),
    Wrong(RELU_PACK, padding_unset, kind="uninitialised", says="x_ptr"),
    Wrong(RELU_PACK, gates_in_float32, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, gates_from_the_top, kind="values", says="mask[0, 0]"),
    Wrong(RELU_PACK, mask_of_y_rounded, kind="values", says="1..2 along M and 1 along (N+31)//32"),
    Wrong(RELU_PACK, y_forgotten, kind="never written", says="y_ptr"),
    Wrong(RELU_PACK, x_is_passed_on, kind="values", says="should be zero"),
    Wrong(RELU_PACK, y_past_the_row, kind="out of bounds", says="y_ptr"),
    Wrong(RELU_UNPACK_BACKWARD, multiplied_by_the_bit, kind="values", says="NaN"),
    Wrong(RELU_UNPACK_BACKWARD, mask_row_by_elements, kind="out of bounds", says="mask_ptr"),
    Wrong(RELU_UNPACK_BACKWARD, mask_row_rounded_down, kind="values", says="1..3 along M"),
    Wrong(RELU_UNPACK_BACKWARD, bit_not_taken_out, kind="values", says="should be zero"),
    Wrong(RELU_UNPACK_BACKWARD, top_bit_is_minus_one, kind="values", says="wrong ones are zero"),
    Wrong(RELU_UNPACK_BACKWARD, sign_cleared_first, kind="values", says="wrong ones are zero"),
    Wrong(RELU_UNPACK_BACKWARD, mask_read_as_int8, kind="values", says="10..127 along N"),
    Wrong(RELU_UNPACK_BACKWARD, mask_read_as_bytes, kind="values", says="10..127 along N"),
    Wrong(RELU_UNPACK_BACKWARD, gate_inverted, kind="values", says="1..127 along N"),
    Wrong(RELU_UNPACK_BACKWARD, gates_from_the_other_end, kind="values", says="8..127 along N"),
    Wrong(RELU_UNPACK_BACKWARD, gate_of_dy, kind="values", says="wrong ones are zero"),
    Wrong(RELU_UNPACK_BACKWARD, a_word_for_every_gate, kind="loads", says="mask_ptr"),
    Wrong(RELU_UNPACK_BACKWARD, stored_where_it_passes, kind="never written", says="dx[0, 0]"),
    Wrong(RELU_UNPACK_BACKWARD, gradient_unmasked, kind="out of bounds", says="dy_ptr"),
    Wrong(RELU_UNPACK_BACKWARD, dx_past_the_row, kind="out of bounds", says="dx_ptr"),
    Wrong(RELU_UNPACK_BACKWARD, added_to_dx, kind="uninitialised", says="dx_ptr"),
]


# ---- right, done in other ways ------------------------------------------------------------------


@triton.jit
def maximum_with_nan(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """tl.maximum told to keep NaN; the bit is 1 where y is not 0."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, 32)
    n = offs_w[:, None] * 32 + i[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)
    y = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + row * N + n, y, mask=n < N)
    words = tl.sum((y != 0).to(tl.int32) << i[None, :], axis=1)
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def in_float32(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """All of it in float32; above zero, or not equal to itself; padding cut off by the mask."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    n = offs_w[:, None] * 32 + tl.arange(0, 32)[None, :]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)
    passes = (x > 0) | (x != x)
    tl.store(y_ptr + row * N + n, tl.where(passes, x, 0.0), mask=n < N)
    bits = (passes & (n < N)).to(tl.uint32) << tl.arange(0, 32)[None, :].to(tl.uint32)
    tl.store(mask_ptr + row * W + offs_w, tl.sum(bits, axis=1).to(tl.int32, bitcast=True), mask=offs_w < W)


@triton.jit
def bit_by_bit(x_ptr, y_ptr, mask_ptr, M, N, stride_xm, BLOCK_W: tl.constexpr):
    """A loop over the 32 columns of the words, the top one first."""
    W = (N + 31) // 32
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    words = tl.zeros((BLOCK_W,), dtype=tl.int32)
    for step in range(32):
        n = offs_w * 32 + 31 - step
        x = tl.load(x_ptr + row * stride_xm + n, mask=n < N, other=0.0)
        tl.store(y_ptr + row * stride_xm + n, tl.where(x <= 0, 0.0, x), mask=n < N)
        words = words * 2 + tl.where(x <= 0, 0, 1)
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


@triton.jit
def by_bytes(x_ptr, y_ptr, mask_ptr, N, BLOCK_W: tl.constexpr):
    """First eight elements to a byte, then four bytes to a word."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    start = tl.program_id(1) * BLOCK_W
    n = start * 32 + tl.arange(0, BLOCK_W * 32)
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0)
    tl.store(y_ptr + row * N + n, tl.where(x <= 0, 0.0, x), mask=n < N)
    bits = tl.reshape(tl.where(x <= 0, 0, 1), (BLOCK_W, 4, 8))
    in_bytes = tl.sum(bits << tl.arange(0, 8)[None, None, :], axis=2)
    words = tl.sum(in_bytes << (8 * tl.arange(0, 4))[None, :], axis=1)
    offs_w = start + tl.arange(0, BLOCK_W)
    tl.store(mask_ptr + row * W + offs_w, words, mask=offs_w < W)


# Backward.


@triton.jit
def selected_by_mask(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """Where the bit is 0 dy is not even read: other= brings the zero."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, 32)[None, :]
    n = offs_w[:, None] * 32 + i
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W, other=0)
    passes = ((words[:, None] >> i) & 1) != 0
    dy = tl.load(dy_ptr + row * N + n, mask=passes & (n < N), other=0.0)
    tl.store(dx_ptr + row * N + n, dy, mask=n < N)


@triton.jit
def bits_of_the_gradient(dy_ptr, mask_ptr, dx_ptr, N, BLOCK_W: tl.constexpr):
    """The gate as all ones or all zeros, and-ed with the bits of dy."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    i = tl.arange(0, 32)[None, :]
    n = offs_w[:, None] * 32 + i
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)
    gate = (words[:, None] << (31 - i)) >> 31  # 0 or -1
    dy = tl.load(dy_ptr + row * N + n, mask=n < N).to(tl.int16, bitcast=True)
    tl.store(dx_ptr + row * N + n, (dy & gate.to(tl.int16)).to(tl.bfloat16, bitcast=True), mask=n < N)


@triton.jit
def powers_of_two(dy_ptr, mask_ptr, dx_ptr, M, N, stride_dxm, BLOCK_W: tl.constexpr):
    """Tested with a power of two in place of a shift; the sign bit is one of them."""
    W = tl.cdiv(N, 32)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)[:, None]
    i = tl.arange(0, 32)[None, :]
    n = offs_w * 32 + i
    words = tl.load(mask_ptr + row * W + offs_w, mask=offs_w < W)
    passes = (words & (1 << i)) != 0
    dy = tl.load(dy_ptr + row * stride_dxm + n, mask=n < N)
    tl.store(dx_ptr + row * stride_dxm + n, tl.where(passes, dy.to(tl.float32), 0.0), mask=n < N)


RIGHT = [
    (RELU_PACK, maximum_with_nan),
    (RELU_PACK, in_float32),
    (RELU_PACK, bit_by_bit),
    (RELU_PACK, by_bytes),
    (RELU_UNPACK_BACKWARD, selected_by_mask),
    (RELU_UNPACK_BACKWARD, bits_of_the_gradient),
    (RELU_UNPACK_BACKWARD, powers_of_two),
]
