"""Wrong and correct kernels for chapter 02: outer_add and outer_add_blocks."""

import torch
import triton
import triton.language as tl

from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD, OUTER_ADD_BLOCKS
from puzzles_lib.chapters.ch02_broadcasting.puzzles import outer_add as outer_add_spec
from tests.kernels import Wrong

BLOCKS = [32, 32]

# ---- puzzle 3, wrong ---------------------------------------------------------------------------


@triton.jit
def ch02_empty(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The stub as it is handed out: nothing is stored."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)  # noqa: F841
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)  # noqa: F841


@triton.jit
def outer_no_masks(x_ptr, y_ptr, z_ptr, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No mask anywhere: right for full blocks."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    z = tl.load(x_ptr + offs_n)[None, :] + tl.load(y_ptr + offs_m)[:, None]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z)


@triton.jit
def outer_no_mask_on_y(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The column's load has no mask."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_mask_on_the_address(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """offs < M * N: stays inside z, and still lets columns run on into the next row."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    offs = offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_ptr + offs, x[None, :] + y[:, None], mask=offs < M * N)


@triton.jit
def outer_mask_precedence(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """a < M & b < N without brackets: & binds tighter than <."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = offs_m[:, None] < M & offs_n[None, :] < N
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_mask_precedence_split(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The same with one side in brackets: a < (M & (b < N)), which compiles."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = offs_m[:, None] < M & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_mask_with_and(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`and` for `&`: deprecated, and taken."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = offs_m[:, None] < M and offs_n[None, :] < N
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_mask_with_or(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """| for &: on where either index is inside."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    mask = (offs_m[:, None] < M) | (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_mask_axes_swapped(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows compared with N and columns with M: right for square tensors."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    mask = (offs_m[:, None] < N) & (offs_n[None, :] < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_mask_less_or_equal(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """<= for < on the columns of the store."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] <= N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_stride_of_m(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows M apart instead of N: right for square tensors."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * M + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_transposed(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores z transposed."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] + offs_n[None, :] * M, x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_x_and_y_swapped(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x as the column and y as the row: equal blocks let it through the compiler."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_m, mask=offs_m < N, other=0.0)
    y = tl.load(y_ptr + offs_n, mask=offs_n < M, other=0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[:, None] + y[None, :], mask=mask)


@triton.jit
def outer_without_new_axes(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x + y without None: the diagonal at best, and refused where blocks differ."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    tl.store(z_ptr + offs_m * N + offs_n, x + y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def outer_row_stored_as_block(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Forgets y: x is broadcast by the store."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :], mask=mask)


@triton.jit
def outer_product(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """* for +."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] * y[:, None], mask=mask)


@triton.jit
def outer_in_bfloat16(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Adds in bfloat16."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N).to(tl.bfloat16)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M).to(tl.bfloat16)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def outer_size_of_32(x_ptr, y_ptr, z_ptr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Sizes and stride of the first case as numbers in the code."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < 32)
    y = tl.load(y_ptr + offs_m, mask=offs_m < 32)
    tl.store(z_ptr + offs_m[:, None] * 32 + offs_n[None, :], x[None, :] + y[:, None])


@triton.jit
def outer_spec_inside(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Calls the puzzle's own spec."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], outer_add_spec(x, y), mask=mask)


@triton.jit
def outer_torch_method(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """torch.unsqueeze instead of None."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    z = torch.unsqueeze(x, 0) + torch.unsqueeze(y, 1)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def outer_global_list(x_ptr, y_ptr, z_ptr, M, N):
    """Block sizes from a list outside."""
    offs_m = tl.arange(0, BLOCKS[0])
    offs_n = tl.arange(0, BLOCKS[1])
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


# ---- puzzle 4, wrong ---------------------------------------------------------------------------


@triton.jit
def first_tile_only(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The kernel of puzzle 3: program ids are ignored."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def program_axes_swapped(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """program_id(0) taken for the column: right for square grids."""
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def blocks_swapped(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Ids times the other axis' block: right where the blocks are equal."""
    offs_m = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def one_block_size_for_both(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr):
    """BLOCK_M on both axes."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def forgets_x_mask(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x's mask is forgotten."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def forgets_row_mask_in_store(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The store masks columns only."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    offs = offs_m[:, None] * N + offs_n[None, :]
    tl.store(z_ptr + offs, x[None, :] + y[:, None], mask=(offs_n < N)[None, :])


@triton.jit
def forgets_column_mask_in_store(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The store masks rows only: the last tile of a row runs on into the next row."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs < M * N)
    tl.store(z_ptr + offs, x[None, :] + y[:, None], mask=mask)


@triton.jit
def load_masks_swapped(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x's mask compares with M, y's with N: lanes that count are off, lanes beyond are on."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < M)
    y = tl.load(y_ptr + offs_m, mask=(offs_m < N) & (offs_m < M))
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def tiles_stride_of_m(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows M apart instead of N: right for square tensors."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * M + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def tiles_transposed(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores z transposed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] + offs_n[None, :] * M, x[None, :] + y[:, None], mask=mask)


@triton.jit
def tiles_mask_with_and(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`and` for `&`: deprecated, and taken."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) and (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def tiles_mask_precedence(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """a < M & b < N without brackets."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = offs_m[:, None] < M & offs_n[None, :] < N
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def whole_tiles_only(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Assumes that the blocks divide: programs at the edges do nothing."""
    start_m = tl.program_id(0) * BLOCK_M
    start_n = tl.program_id(1) * BLOCK_N
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    if (start_m + BLOCK_M <= M) & (start_n + BLOCK_N <= N):
        z = tl.load(x_ptr + offs_n)[None, :] + tl.load(y_ptr + offs_m)[:, None]
        tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z)


@triton.jit
def row_of_tiles_shares_x(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x is loaded without the program's shift: every column of tiles gets the first block of x."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + tl.arange(0, BLOCK_N), mask=tl.arange(0, BLOCK_N) < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def tiles_shifted_into_one_row(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The store forgets the row: all programs of a column write the first tile row."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    z = x[None, :] + y[:, None]
    tl.store(z_ptr + tl.arange(0, BLOCK_M)[:, None] * N + offs_n[None, :], z, mask=mask)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def tiles_into_x(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores the loaded x back, scaled."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)
    tl.store(x_ptr + offs_n, 2 * x, mask=offs_n < N)


WRONG = [
    Wrong(OUTER_ADD, ch02_empty, kind="never written", says="of z"),
    Wrong(OUTER_ADD, outer_no_masks, kind="out of bounds", says="30..31"),
    Wrong(OUTER_ADD, outer_no_mask_on_y, kind="out of bounds", says="20..31"),
    Wrong(OUTER_ADD, outer_mask_on_the_address, kind="race", says="two lanes"),
    Wrong(OUTER_ADD, outer_mask_precedence, kind="compiler", says="bind more tightly"),
    Wrong(OUTER_ADD, outer_mask_precedence_split, kind="never written", says="of z"),
    Wrong(OUTER_ADD, outer_mask_with_or, kind="out of bounds", says="600..959"),
    Wrong(OUTER_ADD, outer_mask_axes_swapped, kind="never written", says="z[0, 8]"),
    Wrong(OUTER_ADD, outer_mask_less_or_equal, kind="out of bounds", says="element 600"),
    Wrong(OUTER_ADD, outer_stride_of_m, kind="never written", says="z[2, 24]"),
    Wrong(OUTER_ADD, outer_transposed, kind="values", says="transposed"),
    Wrong(OUTER_ADD, outer_x_and_y_swapped, kind="values", says="transposed"),
    Wrong(OUTER_ADD, outer_without_new_axes, kind="never written", says="offs_m < M is [8]"),
    Wrong(OUTER_ADD, outer_row_stored_as_block, kind="values", says="z[0, 0]"),
    Wrong(OUTER_ADD, outer_product, kind="values", says="z[0, 0]"),
    Wrong(OUTER_ADD, outer_in_bfloat16, kind="values", says="z[0, 0]"),
    Wrong(OUTER_ADD, outer_size_of_32, kind="out of bounds", says="30..31"),
    Wrong(OUTER_ADD, outer_spec_inside, kind="compiler", says="outer_add_spec"),
    Wrong(OUTER_ADD, outer_torch_method, kind="compiler", says="torch.unsqueeze"),
    Wrong(OUTER_ADD, outer_global_list, kind="compiler", says="BLOCKS"),
    Wrong(OUTER_ADD_BLOCKS, first_tile_only, kind="never written", says="z[0, 32]"),
    Wrong(OUTER_ADD_BLOCKS, program_axes_swapped, kind="never written", says="z[48, 0]"),
    Wrong(OUTER_ADD_BLOCKS, blocks_swapped, kind="never written", says="z[0, 64]"),
    Wrong(OUTER_ADD_BLOCKS, one_block_size_for_both, kind="never written", says="z[0, 48]"),
    Wrong(OUTER_ADD_BLOCKS, forgets_x_mask, kind="out of bounds", says="100..111"),
    Wrong(OUTER_ADD_BLOCKS, forgets_row_mask_in_store, kind="out of bounds", says="z_ptr"),
    Wrong(OUTER_ADD_BLOCKS, forgets_column_mask_in_store, kind="race", says="(0, 0) and (0, 6)"),
    Wrong(OUTER_ADD_BLOCKS, load_masks_swapped, kind="uninitialized", says="x_ptr"),
    Wrong(OUTER_ADD_BLOCKS, tiles_stride_of_m, kind="never written", says="z[43, 0]"),
    Wrong(OUTER_ADD_BLOCKS, tiles_transposed, kind="values", says="transposed"),
    Wrong(OUTER_ADD_BLOCKS, tiles_mask_precedence, kind="compiler", says="bind more tightly"),
    Wrong(OUTER_ADD_BLOCKS, whole_tiles_only, kind="never written", says="z[0, 96]"),
    Wrong(OUTER_ADD_BLOCKS, row_of_tiles_shares_x, kind="values", says="32–95 along N"),
    Wrong(OUTER_ADD_BLOCKS, tiles_shifted_into_one_row, kind="race", says="(0, 0) and (1, 0)"),
    Wrong(OUTER_ADD_BLOCKS, tiles_into_x, kind="input changed", says="its input x"),
]

# ---- right, written in other ways ---------------------------------------------------------------


@triton.jit
def masked_as_vectors(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Masks made first and broadcast; tl.expand_dims for None."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask_m = offs_m < M
    mask_n = offs_n < N
    x = tl.expand_dims(tl.load(x_ptr + offs_n, mask=mask_n, other=-1.0), 0)
    y = tl.expand_dims(tl.load(y_ptr + offs_m, mask=mask_m, other=1.0), 1)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], y + x, mask=mask_m[:, None] & mask_n)


@triton.jit
def made_transposed(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Computes z transposed and turns it around with tl.trans."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.trans(x[:, None] + y[None, :])
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=(offs_m[:, None] < M) & (offs_n < N))


@triton.jit
def loaded_in_two_dimensions(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Offsets are two-dimensional from the start; loads are, too."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m * N + offs_n, x + y, mask=(offs_m < M) & (offs_n < N))


@triton.jit
def tile_by_block_pointer(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Block pointers with boundary checks."""
    start_m = tl.program_id(0) * BLOCK_M
    start_n = tl.program_id(1) * BLOCK_N
    x_block = tl.make_block_ptr(x_ptr, (N,), (1,), (start_n,), (BLOCK_N,), (0,))
    y_block = tl.make_block_ptr(y_ptr, (M,), (1,), (start_m,), (BLOCK_M,), (0,))
    z_block = tl.make_block_ptr(z_ptr, (M, N), (N, 1), (start_m, start_n), (BLOCK_M, BLOCK_N), (1, 0))
    x = tl.load(x_block, boundary_check=(0,))
    y = tl.load(y_block, boundary_check=(0,))
    tl.store(z_block, x[None, :] + y[:, None], boundary_check=(0, 1))


@triton.jit
def strides_as_parameters(
    x_ptr, y_ptr, z_ptr, M, N, stride_zm, stride_zn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """z's strides from the puzzle; the mask on the loads replaced by clamping."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + tl.minimum(offs_n, N - 1))
    y = tl.load(y_ptr + tl.minimum(offs_m, M - 1))
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    offs = offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn
    tl.store(z_ptr + offs, x[None, :] + y[:, None], mask=mask)


@triton.jit
def row_after_row(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Scalars of y, one row at a time, in a loop that ends at M."""
    start_m = tl.program_id(0) * BLOCK_M
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    for m in range(start_m, tl.minimum(start_m + BLOCK_M, M)):
        tl.store(z_ptr + m * N + offs_n, x + tl.load(y_ptr + m), mask=offs_n < N)


RIGHT = [
    (OUTER_ADD, outer_mask_with_and),
    (OUTER_ADD_BLOCKS, tiles_mask_with_and),
    (OUTER_ADD, masked_as_vectors),
    (OUTER_ADD, made_transposed),
    (OUTER_ADD_BLOCKS, loaded_in_two_dimensions),
    (OUTER_ADD_BLOCKS, tile_by_block_pointer),
    (OUTER_ADD_BLOCKS, strides_as_parameters),
    (OUTER_ADD_BLOCKS, row_after_row),
]
