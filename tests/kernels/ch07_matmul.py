"""Kernels for chapter 07, batched_matmul. Most wrong ones are the chapter's mistakes."""

import torch
import triton
import triton.language as tl

from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.chapters.ch07_matmul.puzzles import batched_matmul as spec
from tests.kernels import Wrong, edited

# ---- wrong, and more than a few edits away from the correct kernel, or with names from outside


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
def stored_in_the_loop(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Every iteration stores the sum so far; only the last one is needed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_columns + offs_k[:, None] * N, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc += tl.dot(x, y)
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


saturated = edited(
    BATCHED_MATMUL,
    "saturated",
    "Stores 65504, float16's largest number, instead of infinity.",
    {"tl.store(z_tile, acc,": "tl.store(z_tile, tl.clamp(acc, -65504.0, 65504.0),"},
)

WRONG = [
    Wrong(BATCHED_MATMUL, saturated, kind="values", says="is 65504"),
    Wrong(BATCHED_MATMUL, sum_kept_in_z, kind="uninitialized", says="z_ptr"),
    Wrong(BATCHED_MATMUL, stored_in_the_loop, kind="stores", says="stores z[0, 0, 0] more than once"),
    Wrong(BATCHED_MATMUL, torch_in_the_kernel, kind="compiler", says="torch.matmul"),
    Wrong(BATCHED_MATMUL, spec_in_the_kernel, kind="compiler", says="calls spec"),
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


@triton.jit
def stored_in_the_last_iteration(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The store is in the loop, but only the last iteration does it."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        x_tile = x_ptr + pid_b * M * K + offs_m[:, None] * K + offs_k[None, :]
        y_tile = y_ptr + pid_b * K * N + offs_k[:, None] * N + offs_n[None, :]
        x = tl.load(x_tile, mask=mask_m & (offs_k[None, :] < K), other=0.0)
        y = tl.load(y_tile, mask=mask_n & (offs_k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
        tl.store(z_tile, acc, mask=mask_m & mask_n & (k + BLOCK_K >= K))


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
    (BATCHED_MATMUL, stored_in_the_last_iteration),
]
