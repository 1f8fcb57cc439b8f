"""Wrong and right kernels for chapter 07: batched_matmul."""

import torch
import triton
import triton.language as tl

from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.chapters.ch07_matmul.puzzles import batched_matmul as spec
from tests.kernels import Wrong

# ---- wrong: the right kernel with one slip each ------------------------------------------------


@triton.jit
def batch_ignored(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Every batch is read from batch 0."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + offs_m[:, None] * K
    y_columns = y_ptr + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def batch_of_z_ignored(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """All batches store to batch 0."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def batch_stride_for_square_sizes(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The batch stride of x is M * N: right only where N equals K."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * N + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def row_stride_of_square_y(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Rows of y are K apart: right only where K equals N."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * K, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def row_stride_of_square_z(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Rows of z are M apart: right only where M equals N."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * M + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def program_axes_swapped(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Program axis 0 counts columns and axis 1 rows."""
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def blocks_swapped(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """BLOCK_M and BLOCK_N are swapped, hidden where they are equal."""
    offs_m = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_n = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def first_tile_only(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Every program works on the first block of rows."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def first_block_of_k(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One block of K is assumed to be all of it."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    offs_k = tl.arange(0, BLOCK_K)
    x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
    y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
    acc = tl.dot(x, y)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def last_block_of_k(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Each step throws away what the steps before summed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def full_blocks_of_k_only(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """K // BLOCK_K steps: the ragged tail is lost."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K // BLOCK_K * BLOCK_K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def half_accumulator(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The sum is kept in float16."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc, out_dtype=tl.float16)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def accumulator_changes_type(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """acc starts as float16 and is float32 after a step."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = acc + tl.dot(x, y)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def accumulator_starts_as_a_number(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """acc starts as the number 0.0 and is a tile after a step."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = 0.0
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc += tl.dot(x, y)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def no_k_mask(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """K is assumed to be a multiple of the block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m, other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n, other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def no_k_mask_on_x(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """x's load runs past K, into the next row; only y's lanes there are 0."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m, other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def no_column_mask_on_y(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """y's load runs past N."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=offs_k[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def no_other_on_y(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """y's masked lanes hold whatever, and 0 times NaN is NaN."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K))
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def other_is_one(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Lanes past K hold 1 in both blocks and are summed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=1.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=1.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def k_mask_one_too_far(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """`<=` lets one lane past K in."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] <= K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] <= K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def no_store_mask(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The store runs past the ragged edges."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc)


@triton.jit
def mask_without_parentheses(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """`a < M & b < N` compares with M & b."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=offs_m[:, None] < M & offs_n[None, :] < N)


@triton.jit
def and_for_ampersand(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """`and` asks for one truth value of a tile."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m and mask_n)


@triton.jit
def result_transposed(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """z is stored as its transpose."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_n[None, :] * M + offs_m[:, None]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def factors_swapped(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """y @ x: the shapes agree only for equal blocks."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(y, x, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def x_scaled_in_place(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """x is overwritten on the way."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        tl.store(x_rows + offs_k[None, :], 2 * x, mask=mask_m & (offs_k[None, :] < K))
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def atomics_on_unset_output(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Adds to z, which nobody has set to 0."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.atomic_add(z_tile, acc.to(tl.float16), mask=mask_m & mask_n)


@triton.jit
def sum_kept_in_z(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """z itself is the accumulator, and starts as garbage."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.load(z_tile, mask=mask_m & mask_n, other=0.0).to(tl.float32)
        tl.store(z_tile, tl.dot(x, y, acc), mask=mask_m & mask_n)


@triton.jit
def stores_to_all_batches(
    x_ptr, y_ptr, z_ptr, M, N, K, B, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Every program stores its tile to all batches."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    for b in range(B):
        z_tile = z_ptr + b * M * N + offs_m[:, None] * N + offs_n[None, :]
        tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def hard_coded_k(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """K is written as the number of the second case."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, 96, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def arange_over_k(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """tl.arange needs a size that is known when the kernel is compiled."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def torch_in_the_kernel(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """A kernel cannot call torch."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc += torch.matmul(x, y)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def spec_in_the_kernel(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """A kernel cannot call the puzzle's own spec."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc += spec(x, y)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def leftover_print(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """print of a shape, left over from debugging."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        print(x.shape)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


WRONG = [
    Wrong(BATCHED_MATMUL, batch_ignored, kind="values", says="1 along B"),
    Wrong(BATCHED_MATMUL, batch_of_z_ignored, kind="never written", says="z[1, 0, 0]"),
    Wrong(BATCHED_MATMUL, batch_stride_for_square_sizes, kind="values", says="1 along B"),
    Wrong(BATCHED_MATMUL, row_stride_of_square_y, kind="out of bounds", says="y_ptr"),
    Wrong(BATCHED_MATMUL, row_stride_of_square_z, kind="out of bounds", says="z_ptr"),
    Wrong(BATCHED_MATMUL, program_axes_swapped, kind="never written", says="z[0, 32, 0]"),
    Wrong(BATCHED_MATMUL, blocks_swapped, kind="never written", says="z[0, 32, 0]"),
    Wrong(BATCHED_MATMUL, first_tile_only, kind="never written", says="z[0, 32, 0]"),
    Wrong(BATCHED_MATMUL, first_block_of_k, kind="values", says="first block of K"),
    Wrong(BATCHED_MATMUL, last_block_of_k, kind="values", says="last block of K"),
    Wrong(BATCHED_MATMUL, full_blocks_of_k_only, kind="values", says="first block of K"),
    Wrong(BATCHED_MATMUL, half_accumulator, kind="values", says="z[0, 0, 9]"),
    Wrong(BATCHED_MATMUL, accumulator_changes_type, kind="compiler", says="variable acc"),
    Wrong(BATCHED_MATMUL, accumulator_starts_as_a_number, kind="compiler", says="variable acc"),
    Wrong(BATCHED_MATMUL, no_k_mask, kind="out of bounds", says="y_ptr"),
    Wrong(BATCHED_MATMUL, no_k_mask_on_x, kind="out of bounds", says="x_ptr"),
    Wrong(BATCHED_MATMUL, no_column_mask_on_y, kind="out of bounds", says="y_ptr"),
    Wrong(BATCHED_MATMUL, no_other_on_y, kind="uninitialised", says="y_ptr"),
    Wrong(BATCHED_MATMUL, other_is_one, kind="values", says="off by 28"),
    Wrong(BATCHED_MATMUL, k_mask_one_too_far, kind="out of bounds", says="y_ptr"),
    Wrong(BATCHED_MATMUL, no_store_mask, kind="out of bounds", says="z_ptr"),
    Wrong(BATCHED_MATMUL, mask_without_parentheses, kind="compiler", says="a < b < c"),
    Wrong(BATCHED_MATMUL, and_for_ampersand, kind="compiler", says="`and`"),
    Wrong(BATCHED_MATMUL, result_transposed, kind="values", says="transposed"),
    Wrong(BATCHED_MATMUL, factors_swapped, kind="compiler", says="reduction dimensions"),
    Wrong(BATCHED_MATMUL, x_scaled_in_place, kind="input changed", says="x was"),
    Wrong(BATCHED_MATMUL, atomics_on_unset_output, kind="uninitialised", says="z_ptr"),
    Wrong(BATCHED_MATMUL, sum_kept_in_z, kind="uninitialised", says="z_ptr"),
    Wrong(BATCHED_MATMUL, stores_to_all_batches, kind="race", says="(0, 0, 0) and (0, 0, 1)"),
    Wrong(BATCHED_MATMUL, hard_coded_k, kind="values", says="off by -7.646"),
    Wrong(BATCHED_MATMUL, arange_over_k, kind="compiler", says="tl.arange"),
    Wrong(BATCHED_MATMUL, torch_in_the_kernel, kind="compiler", says="torch.matmul"),
    Wrong(BATCHED_MATMUL, spec_in_the_kernel, kind="compiler", says="calls spec"),
    Wrong(BATCHED_MATMUL, leftover_print, kind="compiler", says="tl.device_print"),
]


# ---- right, in other ways ----------------------------------------------------------------------


@triton.jit
def added_dots(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Pointers that move along, and acc += tl.dot(x, y)."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x_ptr += tl.program_id(2) * M * K
    y_ptr += tl.program_id(2) * K * N
    z_ptr += tl.program_id(2) * M * N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        offs_k = tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + offs_m * K + offs_k[None, :], (offs_m < M) & (offs_k[None, :] < left), 0.0)
        y = tl.load(y_ptr + offs_k[:, None] * N + offs_n, (offs_k[:, None] < left) & (offs_n < N), 0.0)
        acc += tl.dot(x, y)
        x_ptr += BLOCK_K
        y_ptr += BLOCK_K * N
    tl.store(z_ptr + offs_m * N + offs_n, acc.to(tl.float16), (offs_m < M) & (offs_n < N))


@triton.jit
def last_block_first(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Walks along K from its end; the ragged block comes first."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for back in range(0, K, BLOCK_K):
        k = (K - 1) // BLOCK_K * BLOCK_K - back
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def strides_as_parameters(
    x_ptr,
    y_ptr,
    z_ptr,
    B,
    M,
    N,
    K,
    stride_xb,
    stride_xm,
    stride_xk,
    stride_yb,
    stride_yk,
    stride_yn,
    stride_zb,
    stride_zm,
    stride_zn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """All strides are parameters, B is taken and not used."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    b = tl.program_id(2)
    x_tile = x_ptr + b * stride_xb + offs_m[:, None] * stride_xm
    y_tile = y_ptr + b * stride_yb + offs_n[None, :] * stride_yn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        x = tl.load(
            x_tile + offs_k[None, :] * stride_xk, mask=(offs_m[:, None] < M) & mask_k[None, :], other=0
        )
        y = tl.load(
            y_tile + offs_k[:, None] * stride_yk, mask=mask_k[:, None] & (offs_n[None, :] < N), other=0
        )
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + b * stride_zb + offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn
    tl.store(z_tile, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def matmul_by_block_pointers(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Block pointers that move along K and check their own bounds."""
    m, n, b = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N, tl.program_id(2)
    x_tile = tl.make_block_ptr(x_ptr + b * M * K, (M, K), (K, 1), (m, 0), (BLOCK_M, BLOCK_K), (1, 0))
    y_tile = tl.make_block_ptr(y_ptr + b * K * N, (K, N), (N, 1), (0, n), (BLOCK_K, BLOCK_N), (1, 0))
    z_tile = tl.make_block_ptr(z_ptr + b * M * N, (M, N), (N, 1), (m, n), (BLOCK_M, BLOCK_N), (1, 0))
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(y_tile, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, y, acc)
        x_tile = tl.advance(x_tile, (0, BLOCK_K))
        y_tile = tl.advance(y_tile, (BLOCK_K, 0))
    tl.store(z_tile, acc.to(tl.float16), boundary_check=(0, 1))


@triton.jit
def transposed_product(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """(yᵀ xᵀ)ᵀ, with tl.trans before and after."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(tl.trans(y), x.T, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, tl.trans(acc), mask=mask_m & mask_n)


@triton.jit
def sum_instead_of_dot(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """A 3-D tile of products, summed along K: what a dot is, without the matrix unit."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc += tl.sum(x.to(tl.float32)[:, :, None] * y.to(tl.float32)[None, :, :], axis=1)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def _load_tile(ptr, rows, columns, height, width):
    """A tile of a row-major matrix; 0 outside of it."""
    mask = (rows[:, None] < height) & (columns[None, :] < width)
    return tl.load(ptr + rows[:, None] * width + columns[None, :], mask=mask, other=0.0)


@triton.jit
def matmul_with_helper(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One helper loads the blocks of both factors."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    b = tl.program_id(2)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = _load_tile(x_ptr + b * M * K, offs_m, offs_k, M, K)
        y = _load_tile(y_ptr + b * K * N, offs_k, offs_n, K, N)
        acc = tl.dot(x, y, acc)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + b * M * N + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def unrolled_over_constant_k(
    x_ptr,
    y_ptr,
    z_ptr,
    M,
    N,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """K is a compile-time constant, and tl.static_range unrolls the loop."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.static_range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


@triton.jit
def float32_factors(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Both blocks are widened before the dot; out of range lanes are cleared with tl.where."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K))
        x = tl.where(mask_m & (offs_k[None, :] < K), x, 0.0).to(tl.float32)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K))
        y = tl.where(mask_n & (offs_k[:, None] < K), y, 0.0).to(tl.float32)
        acc = tl.dot(x, y, acc)
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)


RIGHT = [
    (BATCHED_MATMUL, added_dots),
    (BATCHED_MATMUL, last_block_first),
    (BATCHED_MATMUL, strides_as_parameters),
    (BATCHED_MATMUL, matmul_by_block_pointers),
    (BATCHED_MATMUL, transposed_product),
    (BATCHED_MATMUL, sum_instead_of_dot),
    (BATCHED_MATMUL, matmul_with_helper),
    (BATCHED_MATMUL, unrolled_over_constant_k),
    (BATCHED_MATMUL, float32_factors),
]
