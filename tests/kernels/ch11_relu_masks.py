"""Right kernels for chapter 11, relu_pack and relu_unpack_backward; wrong ones are its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK, RELU_UNPACK_BACKWARD


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
    """Tested with a power of two instead of a shift; the sign bit is one of them."""
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
