"""Cells of chapter 13: made by `make notebooks`, to be changed in its notebook."""

import triton
import triton.language as tl


@triton.jit
def masked_add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < N  # [BLOCK]
    x = tl.load(x_ptr + offs, mask=mask)  # [BLOCK]
    tl.store(z_ptr + offs, x + 10, mask=mask)


@triton.jit
def batched_matmul_kernel(
    x_ptr,
    y_ptr,
    z_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    pid_b = tl.program_id(2)
    mask_m = offs_m[:, None] < M  # [BLOCK_M, 1]
    mask_n = offs_n[None, :] < N  # [1, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    x_rows = x_ptr + pid_b * M * K + offs_m[:, None] * K  # [BLOCK_M, 1]
    y_columns = y_ptr + pid_b * K * N + offs_n[None, :]  # [1, BLOCK_N]
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)  # [BLOCK_K]
        x = tl.load(
            x_rows + offs_k[None, :], mask=mask_m & (offs_k[None, :] < K), other=0.0
        )
        y = tl.load(
            y_columns + offs_k[:, None] * N,
            mask=mask_n & (offs_k[:, None] < K),
            other=0.0,
        )
        acc = tl.dot(x, y, acc)  # [BLOCK_M, BLOCK_K] @ [BLOCK_K, BLOCK_N]
    z_tile = z_ptr + pid_b * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_tile, acc, mask=mask_m & mask_n)
