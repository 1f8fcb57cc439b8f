"""Right kernels for chapter 16; wrong ones are its mistakes."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import (
    LINEAR_BACKWARD,
    STOCHASTIC_PACK,
    STRIDED_COPY,
)

# ---- puzzle 25


@triton.jit
def strides_of_64_bits(
    x_ptr, y_ptr, M: tl.int64, N: tl.int64, stride_xm: tl.int64, stride_xn: tl.int64,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The launch hands over 64 bits; only the program's id must be made wide here."""
    pid_m, pid_n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=mask, other=0.0)
    tl.store(y_ptr + offs_m * N + offs_n, x.to(tl.bfloat16), mask=mask)


@triton.jit
def a_row_at_a_time(
    x_ptr, y_ptr, M, N, stride_xm, stride_xn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Moves both pointers to a row; within it only the columns are counted."""
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    for m in range(first, tl.minimum(first + BLOCK_M, M)):
        x = tl.load(x_ptr + m * stride_xm + n * stride_xn, mask=n < N)
        tl.store(y_ptr + m * N + n, x, mask=n < N)


@triton.jit
def one_number_for_row_and_column(
    x_ptr, y_ptr, M, N, stride_xm, stride_xn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Counts the lanes of a block in one dimension."""
    lane = tl.arange(0, BLOCK_M * BLOCK_N)
    m = tl.program_id(0) * tl.full((), BLOCK_M, tl.int64) + lane // BLOCK_N
    n = tl.cast(tl.program_id(1), tl.int64) * BLOCK_N + lane % BLOCK_N
    mask = (m < M) & (n < N)
    x = tl.load(x_ptr + (m * stride_xm + n * stride_xn), mask=mask)
    tl.store(y_ptr + (m * N + n), x, mask=mask)


# ---- puzzle 26


@triton.jit
def rounded_from_half_below(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, M, N, SEED, OFFSET,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """One group at a time; adds u - 1/2 and rounds to the nearest."""
    F: tl.constexpr = 32 // BITS
    top = (1 << BITS) - 1
    row, W, G = tl.program_id(0).to(tl.int64), tl.cdiv(N, F), tl.cdiv(N, GROUP)
    first = tl.program_id(1) * BLOCK_G
    for g in range(first, tl.minimum(first + BLOCK_G, G)):
        n = g * GROUP + tl.arange(0, GROUP)
        x = tl.load(x_ptr + row * N + n, mask=n < N, other=float("inf")).to(tl.float32)
        low = tl.min(x, axis=0)
        x = tl.where(n < N, x, low)
        high = tl.max(x, axis=0)
        scale = ((high - low) / top).to(tl.bfloat16).to(tl.float32)
        if high == low:
            scale = 1.0
        place = OFFSET + row * N + n
        codes = libdevice.rint((x - low) / scale + (tl.rand(SEED, place) - 0.5))
        codes = tl.where(n < N, tl.clamp(codes, 0.0, top * 1.0), 0.0).to(tl.int32)
        fields = tl.reshape(codes, (GROUP // F, F)) << (BITS * tl.arange(0, F))[None, :]
        w = g * (GROUP // F) + tl.arange(0, GROUP // F)
        tl.store(words_ptr + row * W + w, tl.sum(fields, axis=1), mask=w < W)
        tl.store(scale_ptr + row * G + g, scale)
        tl.store(minimum_ptr + row * G + g, low)


@triton.jit
def uniform_by_hand(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N, SEED, OFFSET,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Random integers made uniform here, the seed in a tensor; compares with the fraction's complement."""
    F: tl.constexpr = 32 // BITS
    row, W, G = tl.program_id(0), tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = row.to(tl.int64)
    offs_g = (tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)).to(tl.int64)
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    i = tl.arange(0, F)[None, None, :]
    n = offs_w[:, :, None] * F + i
    x = tl.load(x_ptr + row * N + tl.minimum(n, N - 1)).to(tl.float32)  # past the end the last value again
    low = tl.min(tl.min(x, axis=2), axis=1)
    high = tl.max(tl.max(x, axis=2), axis=1)
    scale = tl.where(high == low, 1.0, (high - low) / (2**BITS - 1)).to(tl.bfloat16)
    steps = (x - low[:, None, None]) / scale.to(tl.float32)[:, None, None]
    bits = tl.randint(tl.zeros((1,), tl.int64) + SEED, n + (row * N + OFFSET)).to(tl.int32, bitcast=True)
    u = tl.where(bits < 0, -bits - 1, bits) * 4.6566127342e-10
    whole = steps.to(tl.int32)
    codes = whole + (u >= 1.0 - (steps - whole)).to(tl.int32)
    codes = tl.where(n < N, tl.minimum(codes, 2**BITS - 1), 0)
    tl.store(words_ptr + row * W + offs_w, tl.sum(codes << BITS * i, axis=2), mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


# ---- puzzle 27


@triton.jit
def needs_as_masks(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, db_ptr, M, COUT, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, NEED_DW, NEED_DB,
    BLOCK_C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """No branch: what is not needed is masked off. Loads dy as it lies, sums it by a dot with ones."""
    F: tl.constexpr = 32 // BITS
    offs_c = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    offs_w = tl.program_id(1) * (BLOCK_N // F) + tl.arange(0, BLOCK_N // F)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    acc = tl.zeros((BLOCK_C, BLOCK_N), dtype=tl.float32)
    sums = tl.zeros((BLOCK_C, 16), dtype=tl.float32)
    ones = tl.full((BLOCK_M, 16), 1.0, tl.bfloat16)
    for block in range(tl.cdiv(M, BLOCK_M)):
        m = (block * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
        dy = tl.load(
            dy_ptr + m * COUT + offs_c[None, :], mask=(m < M) & (offs_c[None, :] < COUT), other=0.0
        ).T
        sums = tl.dot(dy, ones, sums)
        mask = (m < M) & (offs_w[None, :] < W) & (NEED_DW != 0)
        words = tl.load(words_ptr + m * W + offs_w[None, :], mask=mask, other=0)
        params = m * G + (offs_w * F // GROUP)[None, :]
        scale = tl.load(scale_ptr + params, mask=mask, other=0.0).to(tl.float32)
        minimum = tl.load(minimum_ptr + params, mask=mask, other=0.0).to(tl.float32)
        fields = words.to(tl.uint32, bitcast=True)[:, :, None] >> (BITS * tl.arange(0, F)).to(tl.uint32)
        codes = (fields & (2**BITS - 1)).to(tl.float32)
        x = tl.fma(codes, scale[:, :, None] + 0.0 * codes, minimum[:, :, None] + 0.0 * codes)
        acc += tl.dot(dy, tl.reshape(x, (BLOCK_M, BLOCK_N)).to(tl.bfloat16))
    mask = (offs_c[:, None] < COUT) & (n[None, :] < N) & (NEED_DW != 0)
    tl.store(dw_ptr + offs_c[:, None] * N + n[None, :], acc, mask=mask)
    first = (tl.program_id(1) == 0) & (NEED_DB != 0)
    column = tl.arange(0, 16)[None, :] == 0  # all sixteen hold the sums
    tl.store(db_ptr + offs_c[:, None] + 0 * column, sums, mask=column & (offs_c[:, None] < COUT) & first)


@triton.jit
def _unpacked(words_ptr, scale_ptr, minimum_ptr, m, n, M, N, BITS: tl.constexpr, GROUP: tl.constexpr):
    """x of some rows and columns in float32, 0 outside; each lane loads the word that it needs."""
    F: tl.constexpr = 32 // BITS
    mask = (m[:, None] < M) & (n[None, :] < N)
    words = tl.load(words_ptr + m[:, None] * tl.cdiv(N, F) + n[None, :] // F, mask=mask, other=0)
    params = m[:, None] * tl.cdiv(N, GROUP) + n[None, :] // GROUP
    scale = tl.load(scale_ptr + params, mask=mask, other=0.0).to(tl.float32)
    minimum = tl.load(minimum_ptr + params, mask=mask, other=0.0).to(tl.float32)
    return minimum + scale * ((words >> BITS * (n % F)[None, :]) & ((1 << BITS) - 1))


@triton.jit
def two_loops(
    dy_ptr, words_ptr, scale_ptr, minimum_ptr, dw_ptr, db_ptr, M, COUT, N,
    BITS: tl.constexpr, GROUP: tl.constexpr,
    NEED_DW: tl.constexpr, NEED_DB: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One loop where dw is needed, another where it is not; a helper unpacks, the dot is in float32."""
    offs_c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros((BLOCK_C,), dtype=tl.float32)
    if NEED_DW:
        n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_C, BLOCK_N), dtype=tl.float32)
        for start in range(0, M, BLOCK_M):
            m = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
            mask = (offs_c[:, None] < COUT) & (m[None, :] < M)
            dy = tl.load(dy_ptr + m[None, :] * COUT + offs_c[:, None], mask=mask, other=0.0).to(tl.float32)
            x = _unpacked(words_ptr, scale_ptr, minimum_ptr, m, n, M, N, BITS, GROUP)
            acc = tl.dot(dy, x, acc, input_precision="ieee")
            total += tl.sum(dy, axis=1)
        rows = dw_ptr + offs_c[:, None].to(tl.int64) * N
        tl.store(rows + n[None, :], acc, mask=(offs_c[:, None] < COUT) & (n[None, :] < N))
    else:
        for start in range(0, M, BLOCK_M):
            m = (start + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
            mask = (offs_c[None, :] < COUT) & (m < M)
            dy = tl.load(dy_ptr + m * COUT + offs_c[None, :], mask=mask, other=0.0)
            total += tl.sum(dy, axis=0, dtype=tl.float32)
    if NEED_DB:
        if tl.program_id(1) == 0:
            tl.store(db_ptr + offs_c, total, mask=offs_c < COUT)


RIGHT = [
    (STRIDED_COPY, strides_of_64_bits),
    (STRIDED_COPY, a_row_at_a_time),
    (STRIDED_COPY, one_number_for_row_and_column),
    (LINEAR_BACKWARD, needs_as_masks),
    (LINEAR_BACKWARD, two_loops),
    (STOCHASTIC_PACK, rounded_from_half_below),
    (STOCHASTIC_PACK, uniform_by_hand),
]
