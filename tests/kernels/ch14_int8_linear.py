"""Kernels for puzzles 22 to 24: wrong ones, each with the mistake it makes, and other right ones."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.chapters.ch14_int8_linear.puzzles import INT8_LINEAR, QUANTIZE_ROWS, TILED_LINEAR
from tests.kernels import Wrong

# ---- puzzle 22, wrong


@triton.jit
def truncated(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Cuts the fraction off: every code is moved towards zero."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = x / scale[:, None]
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def half_up(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rounds by floor(x + 0.5): ties go up, to odd codes too."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = tl.floor(x / scale[:, None] + 0.5)
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def half_away_from_zero(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Adds a half in the sign's direction and cuts off: ties go outwards."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        steps = x / scale[:, None]
        codes = tl.where(steps < 0, steps - 0.5, steps + 0.5)
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def magic_for_positive_numbers_only(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """2^23 rounds what is added to it; with something taken off, numbers are a half apart."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 8388608.0) - 8388608.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def magic_left_on(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Trusts the cast to drop the bits of 12582912; a GPU clamps to int16 on the way to int8."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = x / scale[:, None] + 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def largest_without_abs(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The largest value, where the largest magnitude is meant: negative peaks leave the range and wrap."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(x, axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def scale_of_the_block(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One peak for all rows of the program: a large row takes the codes of its neighbours away."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32) + tl.max(peak, axis=0)
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def zero_row_divides_by_zero(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A row of zeros gets scale 0, and 0 / 0 for its codes."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = peak / 127
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def least_scale(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Keeps away from 0 by a small constant, which is not small for small rows."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.maximum(peak, 1e-8) / 127
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def a_hundred_and_twenty_eight(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Divides by 128: a positive peak becomes code 128, which wraps to -128."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 128, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def two_hundred_and_fifty_five_steps(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Spreads the codes from minimum to maximum, as for codes with an offset."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    low = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(x, axis=1))
        low = tl.minimum(low, tl.min(x, axis=1))
    scale = tl.where(peak > low, (peak - low) / 255, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def inverse_stored(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Stores what it multiplies by, not what a reader has to."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    inverse = tl.where(peak > 0, 127 / peak, 1.0)
    tl.store(scale_ptr + offs_m, inverse, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x * inverse[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def scale_never_stored(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Keeps the scale to itself."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def peak_of_the_last_block(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each step forgets the peak of those before."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.max(tl.abs(x), axis=1)
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def peak_so_far(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One pass: codes of the first blocks are made before the peak is known."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
        scale = tl.where(peak > 0, peak / 127, 1.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)
    tl.store(scale_ptr + offs_m, tl.where(peak > 0, peak / 127, 1.0), mask=offs_m < M)


@triton.jit
def three_passes(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Looks for the maximum in one pass and for the minimum in another."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(x, axis=1))
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, -tl.min(x, axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def no_mask_along_k(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes K for a multiple of the block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k >= 0)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k >= 0)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def no_mask_along_m(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes M for a multiple of the block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] >= 0) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] >= 0) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def what_masked_lanes_hold(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Lanes past K take part in the peak, and hold anything."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def in_half_precision(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """float16 has neither the bits for codes up to 127 nor the range for small rows."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0).to(tl.float16).to(tl.float32)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0).to(tl.float16).to(tl.float32)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def rows_of_a_block(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes rows to be a block apart."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * BLOCK_K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def scale_of_a_block_of_k(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A new scale for each block of columns, where the row has one."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.max(tl.abs(x), axis=1)
        scale = tl.where(peak > 0, peak / 127, 1.0)
        tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, codes.to(tl.int8), mask=mask)


@triton.jit
def wraps_around(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Codes are clamped after they have become int8: too late."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = offs_m[:, None] * K
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 130, 1.0)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + rows + k, mask=mask, other=0.0)
        codes = (x / scale[:, None] + 12582912.0) - 12582912.0
        tl.store(codes_ptr + rows + k, tl.minimum(tl.maximum(codes.to(tl.int8), -127), 127), mask=mask)


# ---- puzzle 23, wrong


@triton.jit
def bias_at_every_step(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Dequantises inside the loop, and adds the bias once for each block of K."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        y += tl.dot(x, w) * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def sums_in_half_precision(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """float16 ends at 65504, and has even numbers alone from 2048 on."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w).to(tl.float16)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def sums_in_float32(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """From 2^24 on, float32 has even numbers alone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w).to(tl.float32)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def dot_in_float32(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Floats all the way: right, as long as the sums are small."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def sums_in_int8(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sums wrap at 128."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int8)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w).to(tl.int8)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def sums_in_int16(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sums wrap at 32768: two products are enough."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int16)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w).to(tl.int16)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def products_in_int8(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Multiplies in int8, where 12 times 12 does not fit."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.sum((x[:, :, None] * w[None, :, :]).to(tl.int32), axis=1)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def accumulator_of_another_type(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """tl.dot with an accumulator wants to be told that the result is int32."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc = tl.dot(x, w, acc)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def steps_of_sixteen(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """No tensor core takes fewer than 32 int8 values along K."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, 16):
        k = start + tl.arange(0, 16)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def dot_of_int32(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Widens before the dot, which takes int8 and no wider integer."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x.to(tl.int32), w.to(tl.int32))
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def weights_dequantised_first(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Scales the weights to float16 before the dot: their exact codes are gone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc = tl.dot(x.to(tl.float16), (w * w_scale).to(tl.float16), acc)
    tl.store(y_ptr + offs_m * N + offs_n, acc * x_scale + bias, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def bias_inside_the_scale(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Adds the bias before the scales."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = (acc + bias) * (x_scale * w_scale)
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def no_bias(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Forgets the bias."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale)
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def scales_in_half_precision(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Multiplies the scales in float16."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale.to(tl.float16) * w_scale.to(tl.float16)) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def scales_swapped(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Weight scales for the rows, row scales for the channels."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(w_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(x_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def one_scale_for_all_channels(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes the first weight scale for a scale of the whole matrix."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def one_scale_for_all_rows(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes the first row's scale for a scale of the whole tensor."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def weights_read_as_k_by_n(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Reads the weights as [K, N]."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + k[:, None] * N + offs_n, mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def whole_tiles_of_n_only(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes N for a multiple of the tile, and stores whole tiles alone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    whole = (tl.program_id(1) + 1) * BLOCK_N <= N
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n >= 0) & whole)


@triton.jit
def no_mask_along_k_at_all(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes K for a multiple of the step: rows run into the next, the last one past the end."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=offs_m < M, other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=offs_n < N, other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def no_mask_along_n(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes N for a multiple of the tile when it loads weights."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=k[:, None] < K, other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def no_mask_along_tokens(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes M for a multiple of the tile."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=k[None, :] < K, other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def masked_codes_hold_anything(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Lanes past K are multiplied and summed, and nobody said what they hold."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K))
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K))
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def only_the_first_step(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Forgets that K is longer than a block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, BLOCK_K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def only_the_last_step(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each step overwrites the sums of those before."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc = tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def no_last_step(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Walks whole steps of K alone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K // BLOCK_K * BLOCK_K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def stores_past_the_rows(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Columns past N land in the next row."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=offs_m < M)


@triton.jit
def rows_of_m(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes rows of the result to be M apart."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * M + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def grid_axes_swapped(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Counts rows with the second axis of the grid."""
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


# ---- puzzle 24, wrong


@triton.jit
def tiles_read_as_rows(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Reads the tiles as if they were the plain [N, K] matrix."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        w = tl.load(
            tiles_ptr + offs_n * K + step * TILE_K + k[:, None],
            mask=(offs_n < N) & (step * TILE_K + k[:, None] < K),
            other=0,
        )
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def tile_read_transposed(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Takes k for the slow axis of a tile."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + k[:, None] * TILE_N + n)
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def tiles_counted_down_first(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Takes the tiles of one column of tiles for neighbours."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (step * tl.cdiv(N, TILE_N) + tl.program_id(1)) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def steps_rounded_down(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """A row of tiles is K // TILE_K long only where that divides."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = K // TILE_K
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def tile_of_one_axis(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Tiles are TILE_N apart, as if they were rows."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def first_row_of_tiles(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Every program reads the tiles of the first channels."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = step * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def tile_of_the_rows(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Finds its tiles with the first axis of the grid."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(0) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def channel_counted_twice(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Steps to its tile, and then by the channel's number in the whole matrix."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + offs_n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def padding_counts(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Lanes past K hold anything, and so does the padding: their product is summed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K))
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def ones_past_the_end(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Lanes past K add up the padding."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=1)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def rows_reach_like_tiles(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Takes the rows of x to be padded, as the tiles are."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=offs_m < M, other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def every_tile_twice(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Loads its tile for the lower half of the rows again."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        low = tl.arange(0, BLOCK_M)[:, None] < BLOCK_M // 2
        acc += tl.dot(tl.where(low, x, 0), w)
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(tl.where(low, 0, x), w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def padding_is_stored(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Stores the padding's channels too: into the next row, or past the end."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=offs_m < M)


@triton.jit
def last_tile_left_out(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Stores whole tiles alone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    whole = (tl.program_id(1) + 1) * TILE_N <= N
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n >= 0) & whole)


@triton.jit
def scales_are_padded_too(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Takes scale and bias to reach as far as the tiles."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n)
    bias = tl.load(bias_ptr + offs_n)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def tile_sums_in_float32(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """From 2^24 on, float32 has even numbers alone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    steps = tl.cdiv(K, TILE_K)
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.float32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        acc += tl.dot(x, w).to(tl.float32)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def bias_for_every_tile(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Dequantises and adds the bias tile by tile."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n, k = tl.arange(0, TILE_N)[None, :], tl.arange(0, TILE_K)
    offs_n = tl.program_id(1) * TILE_N + n
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    steps = tl.cdiv(K, TILE_K)
    y = tl.zeros((BLOCK_M, TILE_N), dtype=tl.float32)
    for step in range(steps):
        offs_k = step * TILE_K + k[None, :]
        x = tl.load(xq_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0)
        tile = (tl.program_id(1) * steps + step) * TILE_N * TILE_K
        w = tl.load(tiles_ptr + tile + n * TILE_K + k[:, None])
        y += tl.dot(x, w) * (x_scale * w_scale) + bias
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


# ---- puzzle 22, right


@triton.jit
def multiplied_by_the_inverse(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One division a row: x * (127 / peak); the peak from maximum and minimum."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    high = tl.zeros((BLOCK_M, 1), dtype=tl.float32)
    low = high
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        x = tl.load(x_ptr + offs_m * K + k, mask=(offs_m < M) & (k < K), other=0.0)
        high = tl.maximum(high, tl.max(x, axis=1, keep_dims=True))
        low = tl.minimum(low, tl.min(x, axis=1, keep_dims=True))
    peak = tl.maximum(high, -low)
    inverse = tl.where(peak == 0, 1.0, 127 / peak)
    tl.store(scale_ptr + offs_m, tl.where(peak == 0, 1.0, peak / 127), mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m < M) & (k < K)
        codes = tl.load(x_ptr + offs_m * K + k, mask=mask) * inverse
        codes = (codes + 12582912.0) - 12582912.0
        tl.store(codes_ptr + offs_m * K + k, codes.to(tl.int8), mask=mask)


@triton.jit
def _half_to_even(x):
    down = tl.floor(x)
    rest = x - down
    odd = down.to(tl.int32) % 2 != 0
    return tl.where((rest > 0.5) | ((rest == 0.5) & odd), down + 1, down)


@triton.jit
def rounded_by_hand(
    x_ptr, codes_ptr, scale_ptr, M, K, stride_xm, stride_codesm, stride_codesk,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Peaks kept lane by lane and reduced once; blocks walked from the last; strides as parameters."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    peaks = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32)
    blocks = tl.cdiv(K, BLOCK_K)
    for i in range(blocks):
        k = (blocks - 1 - i) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + k, mask=(offs_m[:, None] < M) & (k < K), other=0.0)
        peaks = tl.maximum(peaks, tl.abs(x))
    peak = tl.max(peaks, axis=1)
    peak = tl.where(peak > 0, peak, 127.0)
    tl.store(scale_ptr + offs_m, peak / 127, mask=offs_m < M)
    for i in range(blocks):
        k = (blocks - 1 - i) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m[:, None] < M) & (k < K)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + k, mask=mask, other=0.0)
        codes = _half_to_even(x * 127 / peak[:, None])
        places = codes_ptr + offs_m[:, None] * stride_codesm + k * stride_codesk
        tl.store(places, codes.to(tl.int8), mask=mask)


@triton.jit
def block_pointers_and_rint(
    x_ptr, codes_ptr, scale_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Block pointers, and the hardware's own rounding."""
    row = tl.program_id(0) * BLOCK_M
    x_block = tl.make_block_ptr(x_ptr, (M, K), (K, 1), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    codes_block = tl.make_block_ptr(codes_ptr, (M, K), (K, 1), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    peak = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(tl.advance(x_block, (0, start)), boundary_check=(0, 1), padding_option="zero")
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak > 0, peak / 127, 1.0)
    offs_m = row + tl.arange(0, BLOCK_M)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for start in range(0, K, BLOCK_K):
        x = tl.load(tl.advance(x_block, (0, start)), boundary_check=(0, 1), padding_option="zero")
        codes = libdevice.rint(x / scale[:, None]).to(tl.int8)
        tl.store(tl.advance(codes_block, (0, start)), codes, boundary_check=(0, 1))


# ---- puzzle 23, right


@triton.jit
def accumulates_in_the_dot(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out_dtype says what the accumulator is; the weights' tile is loaded row by row, and turned."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        x = tl.load(xq_ptr + offs_m[:, None] * K + k, mask=(offs_m[:, None] < M) & (k < K), other=0)
        w = tl.load(wq_ptr + offs_n[:, None] * K + k, mask=(offs_n[:, None] < N) & (k < K), other=0)
        acc = tl.dot(x, tl.trans(w), acc, out_dtype=tl.int32)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = acc.to(tl.float32) * x_scale[:, None] * w_scale[None, :] + bias[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], y, mask=mask)


@triton.jit
def exact_in_float16(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """float16 holds every code, float32 every sum of 512 products: exact, and then int32 takes over."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(x.to(tl.float16), w.to(tl.float16)).to(tl.int32)
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    y = tl.load(bias_ptr + offs_n, mask=offs_n < N) + (acc * w_scale) * x_scale
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def weights_on_the_left(
    xq_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K, stride_xqm, stride_wqn, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The transposed product, from the last step to the first, in block pointers; stored transposed."""
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    x_block = tl.make_block_ptr(xq_ptr, (K, M), (1, stride_xqm), (0, m), (BLOCK_K, BLOCK_M), (0, 1))
    w_block = tl.make_block_ptr(wq_ptr, (N, K), (stride_wqn, 1), (n, 0), (BLOCK_N, BLOCK_K), (1, 0))
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.int32)
    steps = tl.cdiv(K, BLOCK_K)
    for i in range(steps):
        start = (steps - 1 - i) * BLOCK_K
        x = tl.load(tl.advance(x_block, (start, 0)), boundary_check=(0, 1), padding_option="zero")
        w = tl.load(tl.advance(w_block, (0, start)), boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(w, x)
    offs_m = m + tl.arange(0, BLOCK_M)[None, :]
    offs_n = n + tl.arange(0, BLOCK_N)[:, None]
    scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N) * tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    y = acc * scale + tl.load(bias_ptr + offs_n, mask=offs_n < N)
    tl.store(y_ptr + offs_m * stride_ym + offs_n, y, mask=(offs_m < M) & (offs_n < N))


# ---- puzzle 24, right


@triton.jit
def one_run_of_bytes(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """A tile is loaded as the vector that it is in memory; the pointer moves on by a tile a step."""
    SIZE: tl.constexpr = TILE_N * TILE_K
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    tile_ptr = tiles_ptr + tl.program_id(1) * tl.cdiv(K, TILE_K) * SIZE
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for start in range(0, K, TILE_K):
        k = start + tl.arange(0, TILE_K)[None, :]
        x = tl.load(xq_ptr + offs_m * K + k, mask=(offs_m < M) & (k < K), other=0)
        w = tl.reshape(tl.load(tile_ptr + tl.arange(0, SIZE)), (TILE_N, TILE_K))
        acc = tl.dot(x, tl.trans(w), acc, out_dtype=tl.int32)
        tile_ptr += SIZE
    offs_n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)[None, :]
    scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N) * tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    y = acc * scale + tl.load(bias_ptr + offs_n, mask=offs_n < N)
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def strides_and_masks(
    xq_ptr, x_scale_ptr, tiles_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    stride_tiles0, stride_tiles1, stride_tiles2,
    BLOCK_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Each lane finds its own tile; the padding is masked off, though nothing asks for it."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)[None, :]
    acc = tl.zeros((BLOCK_M, TILE_N), dtype=tl.int32)
    for start in range(0, K, TILE_K):
        k = start + tl.arange(0, TILE_K)
        x = tl.load(xq_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0)
        rows = tiles_ptr + offs_n // TILE_N * stride_tiles0 + offs_n % TILE_N * stride_tiles2
        places = rows + k[:, None] // TILE_K * stride_tiles1 + k[:, None] % TILE_K
        acc += tl.dot(x, tl.load(places, mask=(offs_n < N) & (k[:, None] < K), other=0))
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    y = (acc * x_scale) * w_scale + tl.load(bias_ptr + offs_n, mask=offs_n < N)
    tl.store(y_ptr + offs_m * N + offs_n, y, mask=(offs_m < M) & (offs_n < N))


WRONG = [
    Wrong(QUANTIZE_ROWS, truncated, kind="values", says="codes[0, 1]"),
    Wrong(QUANTIZE_ROWS, half_up, kind="values", says="6 of 7 cases"),
    Wrong(QUANTIZE_ROWS, half_away_from_zero, kind="values", says="6 of 7 cases"),
    Wrong(QUANTIZE_ROWS, magic_for_positive_numbers_only, kind="values", says="2..62 along K"),
    Wrong(QUANTIZE_ROWS, magic_left_on, kind="values", says="codes[0, 0]"),
    Wrong(QUANTIZE_ROWS, largest_without_abs, kind="values", says="0..6 along M"),
    Wrong(QUANTIZE_ROWS, scale_of_the_block, kind="values", says="0..6 along M"),
    Wrong(QUANTIZE_ROWS, zero_row_divides_by_zero, kind="values", says="scale[0]"),
    Wrong(QUANTIZE_ROWS, least_scale, kind="values", says="5 of 7 cases"),
    Wrong(QUANTIZE_ROWS, a_hundred_and_twenty_eight, kind="values", says="codes[0, 1]"),
    Wrong(QUANTIZE_ROWS, two_hundred_and_fifty_five_steps, kind="values", says="codes[0, 1]"),
    Wrong(QUANTIZE_ROWS, inverse_stored, kind="values", says="scale[0]"),
    Wrong(QUANTIZE_ROWS, scale_never_stored, kind="never written", says="scale_ptr"),
    Wrong(QUANTIZE_ROWS, peak_of_the_last_block, kind="values", says="codes[0, 0]"),
    Wrong(QUANTIZE_ROWS, peak_so_far, kind="values", says="0..95 along K"),
    Wrong(QUANTIZE_ROWS, three_passes, kind="loads", says="x_ptr"),
    Wrong(QUANTIZE_ROWS, no_mask_along_k, kind="out of bounds", says="x_ptr"),
    Wrong(QUANTIZE_ROWS, no_mask_along_m, kind="out of bounds", says="x_ptr"),
    Wrong(QUANTIZE_ROWS, what_masked_lanes_hold, kind="uninitialised", says="x_ptr"),
    Wrong(QUANTIZE_ROWS, in_half_precision, kind="values", says="7 along M and 48 along K"),
    Wrong(QUANTIZE_ROWS, rows_of_a_block, kind="never written", says="codes[4, 96]"),
    Wrong(QUANTIZE_ROWS, scale_of_a_block_of_k, kind="values", says="codes[0, 0]"),
    Wrong(QUANTIZE_ROWS, wraps_around, kind="values", says="codes[0, 1]"),
    Wrong(INT8_LINEAR, bias_at_every_step, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, sums_in_half_precision, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, sums_in_float32, kind="values", says="6 of 7 cases"),
    Wrong(INT8_LINEAR, dot_in_float32, kind="values", says="6 of 7 cases"),
    Wrong(INT8_LINEAR, sums_in_int8, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, sums_in_int16, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, products_in_int8, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, accumulator_of_another_type, kind="compiler", says="out_dtype"),
    Wrong(INT8_LINEAR, steps_of_sixteen, kind="compiler", says="K >= 32"),
    Wrong(INT8_LINEAR, dot_of_int32, kind="compiler", says="dtype int32"),
    Wrong(INT8_LINEAR, weights_dequantised_first, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, bias_inside_the_scale, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, no_bias, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, scales_in_half_precision, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, scales_swapped, kind="values", says="y[0, 1]"),
    Wrong(INT8_LINEAR, one_scale_for_all_channels, kind="values", says="1..15 along N"),
    Wrong(INT8_LINEAR, one_scale_for_all_rows, kind="values", says="1..15 along M"),
    Wrong(INT8_LINEAR, weights_read_as_k_by_n, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, whole_tiles_of_n_only, kind="never written", says="y[0, 32]"),
    Wrong(INT8_LINEAR, no_mask_along_k_at_all, kind="out of bounds", says="wq_ptr"),
    Wrong(INT8_LINEAR, no_mask_along_n, kind="out of bounds", says="wq_ptr"),
    Wrong(INT8_LINEAR, no_mask_along_tokens, kind="out of bounds", says="xq_ptr"),
    Wrong(INT8_LINEAR, masked_codes_hold_anything, kind="uninitialised", says="xq_ptr"),
    Wrong(INT8_LINEAR, only_the_first_step, kind="values", says="0..62 along M"),
    Wrong(INT8_LINEAR, only_the_last_step, kind="values", says="0..62 along M"),
    Wrong(INT8_LINEAR, no_last_step, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, stores_past_the_rows, kind="out of bounds", says="y_ptr"),
    Wrong(INT8_LINEAR, rows_of_m, kind="never written", says="y[43, 0]"),
    Wrong(INT8_LINEAR, grid_axes_swapped, kind="never written", says="y[48, 0]"),
    Wrong(TILED_LINEAR, tiles_read_as_rows, kind="values", says="y[0, 0]"),
    Wrong(TILED_LINEAR, tile_read_transposed, kind="values", says="0..14 along N"),
    Wrong(TILED_LINEAR, tiles_counted_down_first, kind="values", says="y[0, 0]"),
    Wrong(TILED_LINEAR, steps_rounded_down, kind="values", says="y[0, 0]"),
    Wrong(TILED_LINEAR, tile_of_one_axis, kind="values", says="y[0, 0]"),
    Wrong(TILED_LINEAR, first_row_of_tiles, kind="values", says="32..95 along N"),
    Wrong(TILED_LINEAR, tile_of_the_rows, kind="out of bounds", says="tiles_ptr"),
    Wrong(TILED_LINEAR, channel_counted_twice, kind="out of bounds", says="tiles_ptr"),
    Wrong(TILED_LINEAR, padding_counts, kind="uninitialised", says="xq_ptr"),
    Wrong(TILED_LINEAR, ones_past_the_end, kind="values", says="y[0, 0]"),
    Wrong(TILED_LINEAR, rows_reach_like_tiles, kind="out of bounds", says="xq_ptr"),
    Wrong(TILED_LINEAR, every_tile_twice, kind="loads", says="tiles_ptr"),
    Wrong(TILED_LINEAR, padding_is_stored, kind="out of bounds", says="y_ptr"),
    Wrong(TILED_LINEAR, last_tile_left_out, kind="never written", says="y[0, 48]"),
    Wrong(TILED_LINEAR, scales_are_padded_too, kind="out of bounds", says="w_scale_ptr"),
    Wrong(TILED_LINEAR, tile_sums_in_float32, kind="values", says="5 of 6 cases"),
    Wrong(TILED_LINEAR, bias_for_every_tile, kind="values", says="y[0, 0]"),
]


RIGHT = [
    (QUANTIZE_ROWS, multiplied_by_the_inverse),
    (QUANTIZE_ROWS, rounded_by_hand),
    (QUANTIZE_ROWS, block_pointers_and_rint),
    (INT8_LINEAR, accumulates_in_the_dot),
    (INT8_LINEAR, exact_in_float16),
    (INT8_LINEAR, weights_on_the_left),
    (TILED_LINEAR, one_run_of_bytes),
    (TILED_LINEAR, strides_and_masks),
]
