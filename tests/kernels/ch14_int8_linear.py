"""Kernels for chapter 14, puzzles 22 to 24. Most wrong ones are the chapter's mistakes."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.chapters.ch14_int8_linear.puzzles import (
    FUSED_LINEAR,
    INT8_LINEAR,
    QUANTIZE_ROWS,
    TILED_LINEAR,
)
from tests.kernels import Wrong, edited

# ---- puzzle 22, wrong


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


# ---- puzzle 24, wrong


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


from_the_last_tile = edited(
    TILED_LINEAR,
    "from_the_last_tile",
    "Walks along K from the last tile; scales the sums by w's scales first.",
    {
        "for step in range(steps):": "for step in range(steps - 1, -1, -1):",
        "acc * (x_scale * w_scale) + bias": "acc * w_scale * x_scale + bias",
    },
)


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


_DOTLESS = "acc += tl.sum(x[:, :, None].to(tl.int32) * w[None, :, :].to(tl.int32), axis=1)"
summed_without_a_dot = edited(
    INT8_LINEAR,
    "summed_without_a_dot",
    "The products of int32 tiles, added up by tl.sum: exact, and no tensor core is used.",
    {"acc += tl.dot(x, w)": _DOTLESS},
)
fused_without_a_dot = edited(
    FUSED_LINEAR,
    "fused_without_a_dot",
    "The same with codes made in the loop.",
    {"acc += tl.dot(codes.to(tl.int8), w)": _DOTLESS.replace("x[", "codes[")},
)
tiles_without_a_dot = edited(
    TILED_LINEAR,
    "tiles_without_a_dot",
    "The same with tiles of weights.",
    {"acc += tl.dot(x, w)": _DOTLESS},
)

products_of_int8 = edited(
    INT8_LINEAR,
    "products_of_int8",
    "Multiplies the codes as they are, so that each product wraps around in an int8.",
    {"acc += tl.dot(x, w)": _DOTLESS.replace(".to(tl.int32)", "")},
)
rows_of_tiles_without_padding = edited(
    TILED_LINEAR,
    "rows_of_tiles_without_padding",
    "Takes a row of tiles to have TILE_N * K codes, as if the last tile weren't padded.",
    {
        "(tl.program_id(1) * steps + step) * TILE_N * TILE_K": (
            "tl.program_id(1) * TILE_N * K + step * TILE_N * TILE_K"
        )
    },
)
rows_of_one_tile = edited(
    TILED_LINEAR,
    "rows_of_one_tile",
    "Starts each row of tiles one tile after the row before it.",
    {"(tl.program_id(1) * steps + step)": "(tl.program_id(1) + step)"},
)
# `x / scale` and `x * (1 / scale)` may differ by a bit, so no case has ties for which that would count.
multiplied_by_one_over_the_scale = edited(
    QUANTIZE_ROWS,
    "multiplied_by_one_over_the_scale",
    "Multiplies by 1 / scale, as libraries do.",
    {"x / scale[:, None]": "x * (1 / scale[:, None])"},
)

# Those without a dot are correct, but their machine code isn't what the puzzle asks for.
WRONG = [
    Wrong(QUANTIZE_ROWS, peak_so_far, kind="values", says="before the peak of the whole row is known"),
    Wrong(QUANTIZE_ROWS, scale_of_a_block_of_k, kind="values", says="that of the last block of K"),
    Wrong(INT8_LINEAR, bias_at_every_step, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, weights_dequantised_first, kind="values", says="y[0, 0]"),
    Wrong(TILED_LINEAR, bias_for_every_tile, kind="values", says="y[0, 0]"),
    Wrong(INT8_LINEAR, products_of_int8, kind="values", says="each product is cut to int8"),
    Wrong(TILED_LINEAR, rows_of_tiles_without_padding, kind="values", says="you go TILE_N * K"),
    Wrong(TILED_LINEAR, rows_of_one_tile, kind="values", says="you go one tile"),
    Wrong(INT8_LINEAR, summed_without_a_dot, kind="machine", says="tl.dot of integer tiles: 0"),
    Wrong(FUSED_LINEAR, fused_without_a_dot, kind="machine", says="tl.dot of integer tiles: 0"),
    Wrong(TILED_LINEAR, tiles_without_a_dot, kind="machine", says="tl.dot of integer tiles: 0"),
]


@triton.jit
def quantized_by_rint(
    x_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Vectors and None instead of columns, libdevice instead of a magic number."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_rows, w_rows = x_ptr + offs_m[:, None] * K, wq_ptr + offs_n[None, :] * K
    peak = tl.full((BLOCK_M,), 0.0, tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + k[None, :], mask=(offs_m[:, None] < M) & (k[None, :] < K), other=0.0)
        peak = tl.maximum(peak, tl.max(tl.abs(x), axis=1))
    scale = tl.where(peak == 0, 1.0, peak / 127)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + k[None, :], mask=(offs_m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_rows + k[:, None], mask=(offs_n[None, :] < N) & (k[:, None] < K), other=0)
        codes = libdevice.rint(x / scale[:, None]).to(tl.int8)
        acc = tl.dot(codes, w, acc, out_dtype=tl.int32)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    y = acc.to(tl.float32) * scale[:, None] * w_scale[None, :] + bias[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], y, mask=mask)


@triton.jit
def peaks_by_minimum_and_maximum(
    x_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The peak from both ends; blocks walked from the last to the first."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    low = tl.zeros((BLOCK_M, 1), tl.float32)
    high = tl.zeros((BLOCK_M, 1), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K))[None, :]
        x = tl.load(x_ptr + offs_m * K + k, mask=(offs_m < M) & (k < K), other=0.0)
        low = tl.minimum(low, tl.min(x, axis=1, keep_dims=True))
        high = tl.maximum(high, tl.max(x, axis=1, keep_dims=True))
    peak = tl.maximum(-low, high)
    scale = tl.where(peak > 0, peak / 127, 1.0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    steps = tl.cdiv(K, BLOCK_K)
    for step in range(steps):
        k = (steps - 1 - step) * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + offs_m * K + k[None, :], mask=(offs_m < M) & (k[None, :] < K), other=0.0)
        codes = (x / scale + 12582912.0) - 12582912.0
        w = tl.load(wq_ptr + offs_n * K + k[:, None], mask=(offs_n < N) & (k[:, None] < K), other=0)
        acc += tl.dot(codes.to(tl.int8), w)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N)
    tl.store(y_ptr + offs_m * N + offs_n, acc * scale * w_scale + bias, mask=(offs_m < M) & (offs_n < N))


RIGHT = [
    (FUSED_LINEAR, quantized_by_rint),
    (FUSED_LINEAR, peaks_by_minimum_and_maximum),
    (QUANTIZE_ROWS, multiplied_by_the_inverse),
    (QUANTIZE_ROWS, multiplied_by_one_over_the_scale),
    (QUANTIZE_ROWS, rounded_by_hand),
    (QUANTIZE_ROWS, block_pointers_and_rint),
    (INT8_LINEAR, accumulates_in_the_dot),
    (INT8_LINEAR, weights_on_the_left),
    (TILED_LINEAR, one_run_of_bytes),
    (TILED_LINEAR, from_the_last_tile),
]
