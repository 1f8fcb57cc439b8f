"""The kernels that chapter 19 measures: small, with different bottlenecks, at sizes that blocks divide.

All sizes are multiples of the blocks, so nothing is masked and a profile shows one thing only. The last
kernel is for `stages` and `work`, and takes any size.
"""

import triton
import triton.language as tl

# ---- matmul, three times: c[M, N] = a[M, K] @ b[K, N], bfloat16, fp32 accumulation


@triton.jit
def tile_of(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Return the tile of a program: bands of GROUP rows of tiles, each walked down its columns."""
    band = pid // (GROUP * tiles_n)
    first = band * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    place = pid % (GROUP * tiles_n)
    return first + place % rows, place // rows


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tile_of(tl.program_id(0), M // BLOCK_M, N // BLOCK_N, GROUP)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    offs_k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
    a = a_ptr + offs_m[:, None] * K + offs_k[None, :]  # [BLOCK_M, BLOCK_K]
    b = b_ptr + offs_k[:, None] * N + offs_n[None, :]  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BLOCK_K
        b += BLOCK_K * N
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc.to(tl.bfloat16))


@triton.jit
def descriptor_matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tile_of(tl.program_id(0), M // BLOCK_M, N // BLOCK_N, GROUP)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([pid_m * BLOCK_M, k])
        b = b_desc.load([k, pid_n * BLOCK_N])
        acc = tl.dot(a, b, acc)
    c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(tl.bfloat16))


@triton.jit
def persistent_matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    FLATTEN: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = M // BLOCK_M, N // BLOCK_N
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=FLATTEN):
        pid_m, pid_n = tile_of(tile, tiles_m, tiles_n, GROUP)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([pid_m * BLOCK_M, k])
            b = b_desc.load([k, pid_n * BLOCK_N])
            acc = tl.dot(a, b, acc)
        c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(tl.bfloat16))


# ---- the two others of the sweep


@triton.jit
def rms_rows_kernel(
    x_ptr, w_ptr, y_ptr, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute RMSNorm of rows, in blocks; x is loaded twice if a row is longer than a block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    row = x_ptr + offs_m[:, None] * N
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for n in range(0, N, BLOCK_N):
        x = tl.load(row + n + tl.arange(0, BLOCK_N)[None, :]).to(tl.float32)  # [BLOCK_M, BLOCK_N]
        squares += tl.sum(x * x, axis=1)
    rstd = tl.rsqrt(squares / N + 1e-6)  # [BLOCK_M]
    for n in range(0, N, BLOCK_N):
        offs_n = n + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        x = tl.load(row + offs_n[None, :]).to(tl.float32)
        y = x * rstd[:, None] * tl.load(w_ptr + offs_n)[None, :]
        tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], y.to(tl.bfloat16))


@triton.jit
def int8_weight_kernel(
    x_ptr, w_ptr, scale_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y[M, N] = x[M, K] @ (w[K, N] * scale[N]): few rows, 8-bit weights."""
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    offs_k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
    x = x_ptr + offs_m[:, None] * K + offs_k[None, :]  # [BLOCK_M, BLOCK_K]
    w = w_ptr + offs_k[:, None] * N + offs_n[None, :]  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(x), tl.load(w).to(tl.bfloat16), acc)
        x += BLOCK_K
        w += BLOCK_K * N
    y = acc * tl.load(scale_ptr + offs_n)[None, :]
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], y.to(tl.bfloat16))


# ---- characters, for profiles; z and x are float32


@triton.jit
def copy_kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """z[i] = x[i]"""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    tl.store(z_ptr + offs, tl.load(x_ptr + offs))


@triton.jit
def column_copy_kernel(x_ptr, z_ptr, STRIDE, BLOCK: tl.constexpr):
    """z[i, j] = x[j, i], BLOCK of a column at a time.

    Neighbors in a warp are STRIDE elements apart.
    """
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    i = tl.program_id(0)
    tl.store(z_ptr + i * STRIDE + j, tl.load(x_ptr + j * STRIDE + i))


@triton.jit
def row_sum_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """z[m] = sum of x[m, :], one row per program.

    It waits for each load before the next.
    """
    row = x_ptr + tl.program_id(0).to(tl.int64) * N
    total = 0.0
    for n in range(0, N, BLOCK):
        total += tl.sum(tl.load(row + n + tl.arange(0, BLOCK)))
    tl.store(z_ptr + tl.program_id(0), total)


@triton.jit
def wide_softmax_kernel(x_ptr, z_ptr, N: tl.constexpr):
    """Softmax of a row of N elements, all in the registers of one program."""
    offs = tl.program_id(0) * N + tl.arange(0, N)  # [N]
    x = tl.load(x_ptr + offs)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(z_ptr + offs, e / tl.sum(e, axis=0))


@triton.jit
def count_kernel(x_ptr, z_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """z[b] counts the elements of x with x % BINS = b, one atomic per element."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs)
    tl.atomic_add(z_ptr + x % BINS, 1)


@triton.jit
def relaxed_count_kernel(x_ptr, z_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Count as `count_kernel` does, by atomics that don't wait for the stores before them."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs)
    tl.atomic_add(z_ptr + x % BINS, 1, sem="relaxed")


@triton.jit
def histogram_kernel(x_ptr, z_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Count as `count_kernel` does, by one atomic per program and bin."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    counts = tl.histogram(tl.load(x_ptr + offs) % BINS, BINS)  # [BINS]
    tl.atomic_add(z_ptr + tl.arange(0, BINS), counts)


@triton.jit
def powers_kernel(x_ptr, z_ptr, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """z = exp2(-exp2(-... x)), TURNS times: little memory traffic, much work for exp2's unit."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs)
    for _ in range(TURNS):
        x = tl.exp2(-x)
    tl.store(z_ptr + offs, x)


@triton.jit
def layer_norm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Compute LAYER_NORM of chapter 17, with one row per block."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    n = tl.arange(0, BLOCK_N)  # [BLOCK_N]
    at = m.to(tl.int64)[:, None] * N + n[None, :]  # [BLOCK_M, BLOCK_N]
    mask = (m[:, None] < M) & (n[None, :] < N)
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    mean = tl.sum(x, axis=1) / N  # [BLOCK_M]
    centered = tl.where(mask, x - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=1) / N + 1e-5)  # [BLOCK_M]
    w = tl.load(w_ptr + n, mask=n < N)
    b = tl.load(b_ptr + n, mask=n < N)
    y = centered * rstd[:, None] * w[None, :] + b[None, :]
    tl.store(y_ptr + at, y, mask=mask)
    tl.store(mean_ptr + m, mean, mask=m < M)
    tl.store(rstd_ptr + m, rstd, mask=m < M)
