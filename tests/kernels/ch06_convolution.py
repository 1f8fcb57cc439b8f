"""Kernels for puzzle 10: wrong ones, each with the mistake it makes, and other right ones."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D, LIFE
from tests.kernels import Wrong

# ---- wrong


@triton.jit
def rows_run_into_the_next_image(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """No mask on shifted rows: below the last row comes the next image, and after the last nothing."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    mask = (n < N) & (i < H) & (j < W)
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = mask & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=mask)


@triton.jit
def no_mask_on_the_load(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Loads without any mask."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            acc += tl.load(w_ptr + a * KW + b) * tl.load(x_ptr + (n * H + i + a) * W + j + b)
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def no_mask_on_the_store(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Stores lanes beyond the image: into the next row, the next image, or past the end."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc)


@triton.jit
def at_most_h(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """<= for < in the row mask: one row too many, the first one of the next image."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a <= H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def at_most_w(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """<= for < in the column mask of the store."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j <= W))


@triton.jit
def precedence(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """No brackets: a < H & b < W means a < (H & b) < W, a chained comparison."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = n < N & i + a < H & j + b < W
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def python_and(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """`and` between tiles: deprecated, and taken."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) and (i + a < H) and (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def no_halo(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Cuts the window at the block's edge as if it were the image's."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    end_i = tl.minimum((tl.program_id(1) + 1) * BLOCK_H, H)
    end_j = tl.minimum((tl.program_id(2) + 1) * BLOCK_W, W)
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < end_i) & (j + b < end_j)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def height_for_width(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """H as the stride between rows: hidden by square images."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + n * H * W + (i + a) * H + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def filter_stride_from_its_height(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """KH as the filter's stride: hidden by square filters."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KH + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def filter_turned(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Turns the filter by 180 degrees: the mathematician's convolution, not this one."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + (KH - 1 - a) * KW + KW - 1 - b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def centred_window(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Pads all around, as deep learning libraries do, where the spec pads right and below."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            row = i + a - KH // 2
            column = j + b - KW // 2
            inside = (n < N) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            x = tl.load(x_ptr + (n * H + row) * W + column, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def first_image_only(x_ptr, w_ptr, z_ptr, N, H, W, KH, KW, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """One image a program: the block of images has more."""
    n = tl.program_id(0)
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[:, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, :]
    acc = tl.zeros((BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def same_image_for_all(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Leaves the image out of the load: every result comes from image 0."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def images_a_column_apart(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """The images are taken to be H elements apart."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + n * H + (i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def padded_with_ones(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Past the edge, x counts as one."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=1.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def sums_over_the_images(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Adds up the images of a block: right only where a block holds one."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.sum(tl.load(w_ptr + a * KW + b) * x, axis=0)[None, :, :]
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def first_block_of_columns(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Forgets the third axis of the grid."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = tl.arange(0, BLOCK_W)[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def blocks_swapped_in_conv2d(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """BLOCK_H and BLOCK_W change places: hidden as long as they are equal."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W))[None, :, None]
    j = (tl.program_id(2) * BLOCK_H + tl.arange(0, BLOCK_H))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_W, BLOCK_H), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def four_by_four(
    x_ptr, w_ptr, z_ptr, N, H, W, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr
):
    """The size of the filter is written into the code."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, 4):
        for b in range(0, 4):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * 4 + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def one_row_of_the_filter(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Walks the first row of the filter only."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for b in range(0, KW):
        inside = (n < N) & (i < H) & (j + b < W)
        x = tl.load(x_ptr + (n * H + i) * W + j + b, mask=inside, other=0.0)
        acc += tl.load(w_ptr + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def padding_without_other(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """The mask switches the padding off and nothing says that it is zero."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside)
            acc += tl.load(w_ptr + a * KW + b) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def products_in_half(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Multiplies in float16, adds in float32: the digits are gone by then."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0).to(tl.float16)
            acc += tl.load(w_ptr + a * KW + b).to(tl.float16) * x
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def filter_in_place(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Puts the result into x as well: other programs still read it."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = (n < N) & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
    mask = (n < N) & (i < H) & (j < W)
    tl.store(x_ptr + (n * H + i) * W + j, acc, mask=mask)
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=mask)


@triton.jit
def stored_for_each_number_of_the_filter(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """The store is in the inner loop."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    mask = (n < N) & (i < H) & (j < W)
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = mask & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            acc += tl.load(w_ptr + a * KW + b) * x
            tl.store(z_ptr + (n * H + i) * W + j, acc, mask=mask)


@triton.jit
def sums_in_memory(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Adds into z with atomics, which holds whatever was there before."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    mask = (n < N) & (i < H) & (j < W)
    for a in range(0, KH):
        for b in range(0, KW):
            inside = mask & (i + a < H) & (j + b < W)
            x = tl.load(x_ptr + (n * H + i + a) * W + j + b, mask=inside, other=0.0)
            tl.atomic_add(z_ptr + (n * H + i) * W + j, tl.load(w_ptr + a * KW + b) * x, mask=mask)


@triton.jit
def filter_as_a_tile(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """tl.arange over the run-time size of the filter."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None, None]
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    taps = tl.load(w_ptr + tl.arange(0, KH * KW))
    inside = (n < N) & (i < H) & (j < W)
    acc += tl.sum(taps, axis=0) * tl.load(x_ptr + (n * H + i) * W + j, mask=inside, other=0.0)
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=inside)


# ---- right


@triton.jit
def columns_first_with_strides(
    x_ptr,
    w_ptr,
    z_ptr,
    stride_xn,
    stride_xh,
    stride_xw,
    stride_wkh,
    N,
    H,
    W,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """The filter's columns outside and from the right, loops unrolled, strides from outside."""
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    offs_w = tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W)
    n, i, j = offs_n[:, None, None], offs_h[None, :, None], offs_w[None, None, :]
    tile = n * stride_xn + i * stride_xh + j * stride_xw
    acc = tl.zeros((BLOCK_N, BLOCK_H, BLOCK_W), tl.float32)
    for c in tl.static_range(KW):
        b = KW - 1 - c
        for a in tl.static_range(KH):
            inside = (n < N) & (i < H - a) & (j < W - b)
            x = tl.load(x_ptr + tile + a * stride_xh + b * stride_xw, mask=inside, other=0.0)
            acc += x * tl.load(w_ptr + a * stride_wkh + b)
    tl.store(z_ptr + tile, acc, mask=(n < N) & (i < H) & (j < W))


@triton.jit
def _pixel(x_ptr, n, row, column, N, H, W):
    """x[n, row, column], zero outside."""
    inside = (n < N) & (row < H) & (column < W)
    return tl.load(x_ptr + (n * H + row) * W + column, mask=inside, other=0.0)


@triton.jit
def image_by_image(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """2-D tiles, a loop over the images of the block, one loop over the taps, the load in a helper."""
    i = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[:, None]
    j = (tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W))[None, :]
    first = tl.program_id(0) * BLOCK_N
    for n in range(first, min(first + BLOCK_N, N)):
        acc = tl.zeros((BLOCK_H, BLOCK_W), tl.float32)
        for tap in range(0, KH * KW):
            acc += tl.load(w_ptr + tap) * _pixel(x_ptr, n, i + tap // KW, j + tap % KW, N, H, W)
        tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(i < H) & (j < W))


@triton.jit
def flat_pixels_and_a_row_of_taps(
    x_ptr,
    w_ptr,
    z_ptr,
    N,
    H,
    W,
    KH,
    KW: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """All pixels of the block as one axis, a padded row of the filter as the other: a sum along it."""
    pixel = tl.arange(0, BLOCK_N * BLOCK_H * BLOCK_W)
    n = tl.program_id(0) * BLOCK_N + pixel // (BLOCK_H * BLOCK_W)
    i = tl.program_id(1) * BLOCK_H + pixel // BLOCK_W % BLOCK_H
    j = tl.program_id(2) * BLOCK_W + pixel % BLOCK_W
    b = tl.arange(0, triton.next_power_of_2(KW))
    acc = tl.zeros((BLOCK_N * BLOCK_H * BLOCK_W,), tl.float32)
    for a in range(0, KH):
        taps = tl.load(w_ptr + a * KW + b, mask=b < KW, other=0.0)
        row = _pixel(x_ptr, n[:, None], i[:, None] + a, j[:, None] + b[None, :], N, H, W)
        acc += tl.sum(row * taps[None, :], axis=1)
    tl.store(z_ptr + (n * H + i) * W + j, acc, mask=(n < N) & (i < H) & (j < W))


WRONG = [
    Wrong(CONV2D, rows_run_into_the_next_image, kind="out of bounds", says="x_ptr"),
    Wrong(CONV2D, no_mask_on_the_load, kind="out of bounds", says="x_ptr"),
    Wrong(CONV2D, no_mask_on_the_store, kind="out of bounds", says="z_ptr"),
    Wrong(CONV2D, at_most_h, kind="out of bounds", says="x_ptr"),
    Wrong(CONV2D, at_most_w, kind="out of bounds", says="z_ptr"),
    Wrong(CONV2D, precedence, kind="compiler", says="bind more tightly"),
    Wrong(CONV2D, no_halo, kind="values", says="z[0, 0, 6]"),
    Wrong(CONV2D, height_for_width, kind="values", says="z[0, 0, 0]"),
    Wrong(CONV2D, filter_stride_from_its_height, kind="values", says="rows of w that are KH apart"),
    Wrong(CONV2D, filter_turned, kind="values", says="z[0, 0, 0]"),
    Wrong(CONV2D, centred_window, kind="values", says="z[0, 0, 0]"),
    Wrong(CONV2D, first_image_only, kind="never written", says="z[2, 0, 0]"),
    Wrong(CONV2D, same_image_for_all, kind="values", says="image 0 in every load"),
    Wrong(CONV2D, images_a_column_apart, kind="values", says="images that are H apart"),
    Wrong(CONV2D, padded_with_ones, kind="values", says="if x were 1 past the edge"),
    Wrong(CONV2D, sums_over_the_images, kind="values", says="z[0, 0, 0]"),
    Wrong(CONV2D, first_block_of_columns, kind="never written", says="z[0, 0, 8]"),
    Wrong(CONV2D, blocks_swapped_in_conv2d, kind="never written", says="z[0, 0, 8]"),
    Wrong(CONV2D, four_by_four, kind="out of bounds", says="w_ptr"),
    Wrong(CONV2D, one_row_of_the_filter, kind="values", says="0–6 along H"),
    Wrong(CONV2D, padding_without_other, kind="uninitialized", says="x_ptr"),
    Wrong(CONV2D, products_in_half, kind="values", says="z[0, 0, 0]"),
    Wrong(CONV2D, filter_in_place, kind="input changed", says="its input x"),
    Wrong(
        CONV2D,
        stored_for_each_number_of_the_filter,
        kind="stores",
        says="program (0, 0, 0) stores z[0, 0, 0] more than once",
    ),
    Wrong(CONV2D, sums_in_memory, kind="uninitialized", says="z_ptr"),
    Wrong(CONV2D, filter_as_a_tile, kind="compiler", says="tl.arange"),
]


@triton.jit
def eight_neighbors_by_name(x_ptr, z_ptr, H, W, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """Loads no middle tile, and counts with a helper; the rule is a product of comparisons."""
    i = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H)
    j = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    count = (
        _cells(x_ptr, i - 1, j - 1, H, W) + _cells(x_ptr, i - 1, j, H, W) + _cells(x_ptr, i - 1, j + 1, H, W)
    )
    count += _cells(x_ptr, i, j - 1, H, W) + _cells(x_ptr, i, j + 1, H, W)
    count += (
        _cells(x_ptr, i + 1, j - 1, H, W) + _cells(x_ptr, i + 1, j, H, W) + _cells(x_ptr, i + 1, j + 1, H, W)
    )
    z = (count + _cells(x_ptr, i, j, H, W) == 3) | (count == 3)
    offs = i[:, None] * W + j[None, :]
    tl.store(z_ptr + offs, z.to(tl.int32), mask=(i[:, None] < H) & (j[None, :] < W))


@triton.jit
def _cells(x_ptr, i, j, H, W):
    row, column = i[:, None], j[None, :]
    inside = (0 <= row) & (row < H) & (0 <= column) & (column < W)
    return tl.load(x_ptr + row * W + column, mask=inside, other=0)


@triton.jit
def flat_cells(x_ptr, z_ptr, H, W, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """A tile as one long vector of cells, and tl.where twice."""
    at = tl.arange(0, BLOCK_H * BLOCK_W)
    row = tl.program_id(0) * BLOCK_H + at // BLOCK_W
    column = tl.program_id(1) * BLOCK_W + at % BLOCK_W
    count = tl.zeros((BLOCK_H * BLOCK_W,), tl.int32)
    for step in range(9):
        i, j = row + step // 3 - 1, column + step % 3 - 1
        inside = (i >= 0) & (i < H) & (j >= 0) & (j < W)
        count += tl.where(step == 4, 0, tl.load(x_ptr + i * W + j, mask=inside, other=0))
    here = (row < H) & (column < W)
    x = tl.load(x_ptr + row * W + column, mask=here, other=0)
    tl.store(z_ptr + row * W + column, tl.where(count == 2, x, tl.where(count == 3, 1, 0)), mask=here)


RIGHT = [
    (CONV2D, python_and),
    (CONV2D, columns_first_with_strides),
    (CONV2D, image_by_image),
    (CONV2D, flat_pixels_and_a_row_of_taps),
    (LIFE, eight_neighbors_by_name),
    (LIFE, flat_cells),
]
