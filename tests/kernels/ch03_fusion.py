"""Wrong and correct kernels for chapter 03: mul_relu and its backward."""

import torch
import triton
import triton.language as tl

from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU, MUL_RELU_BACKWARD
from puzzles_lib.chapters.ch03_fusion.puzzles import mul_relu as mul_relu_spec
from tests.kernels import Wrong

# ---- puzzle 5, wrong ---------------------------------------------------------------------------


@triton.jit
def no_relu(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The relu is forgotten."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = x[None, :] * y[:, None]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def folded(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """tl.max(t, 0), a reduction over axis 0, for tl.maximum(t, 0)."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    z = tl.max(x[None, :] * y[:, None], 0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z[None, :], mask=mask)


@triton.jit
def relu_before_product(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """relu(x) * y: the two operations in the wrong order."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x, 0.0)[None, :] * y[:, None]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def relu_of_each_factor(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """relu(x) * relu(y): wrong where both are negative."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.maximum(tl.load(x_ptr + offs_n, mask=offs_n < N), 0.0)
    y = tl.maximum(tl.load(y_ptr + offs_m, mask=offs_m < M), 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] * y[:, None], mask=mask)


@triton.jit
def relu_the_wrong_way(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Keeps the negative products."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.minimum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def half_precision_product(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Multiplies in float16 where the puzzle is float32."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N).to(tl.float16)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M).to(tl.float16)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def stride_of_square(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A row stride of M: right only where M = N."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * M + offs_n[None, :], z, mask=mask)


@triton.jit
def transposed_product(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores z[n, m]."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_n[None, :] * M + offs_m[:, None], z, mask=mask)


@triton.jit
def grid_axes_swapped(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Takes the row block from grid axis 1 and the column block from axis 0."""
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def one_block_size(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Uses BLOCK_M for both axes: right only for equal blocks."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def no_store_mask(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The mask is forgotten on the store."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z)


@triton.jit
def no_y_mask(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The mask is forgotten on the load of y."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def mask_one_too_far(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`<=` for `<` in the mask of x."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n <= N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def mask_without_brackets(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`a < M & b < N` is `a < (M & b) < N`."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = offs_m[:, None] < M & offs_n[None, :] < N
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def and_for_ampersand(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Python's `and` between blocks: deprecated, and taken."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) and (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def torch_in_the_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Calls torch.relu on a block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = torch.relu(x[None, :] * y[:, None])
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def spec_in_the_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Calls the puzzle's own spec on a block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], mul_relu_spec(x, y), mask=mask)


@triton.jit
def lambda_in_the_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Defines relu as a lambda."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    relu = lambda t: tl.maximum(t, 0.0)  # noqa: E731
    z = relu(x[None, :] * y[:, None])
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def leftover_print(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A print of a block's shape, left from debugging."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    print(z.shape)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def only_first_columns(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Every program takes the first block of columns."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def sizes_written_in(x_ptr, y_ptr, z_ptr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Sizes of one case, 90 x 100, written into the kernel."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < 100)
    y = tl.load(y_ptr + offs_m, mask=offs_m < 90)
    z = tl.maximum(x[None, :] * y[:, None], 0.0)
    mask = (offs_m[:, None] < 90) & (offs_n[None, :] < 100)
    tl.store(z_ptr + offs_m[:, None] * 100 + offs_n[None, :], z, mask=mask)


# ---- puzzle 6, wrong ---------------------------------------------------------------------------


@triton.jit
def no_gate(y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No relu at all: the gradient of x * y."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, dz * y, mask=mask)


@triton.jit
def no_chain_rule(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stops at the gradient of the product: the factor y is missing."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, tl.where(x * y > 0, dz, 0.0), mask=mask)


@triton.jit
def dz_ignored(x_ptr, y_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores the local slope: the incoming gradient is missing."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    tl.store(dx_ptr + offs, tl.where(x * y > 0, y, 0.0), mask=mask)


@triton.jit
def gate_on_x(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Looks at the sign of x where the product's sign counts: wrong where y is negative."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, tl.where(x > 0, dz * y, 0.0), mask=mask)


@triton.jit
def gate_on_dz(y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """relu of the gradient, not the gradient of relu."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, tl.maximum(dz * y, 0.0), mask=mask)


@triton.jit
def y_along_columns(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """y is read at the column numbers: it has M elements, not N."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_n, mask=offs_n < N)[None, :]
    dz = tl.load(dz_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, tl.where(x * y > 0, dz * y, 0.0), mask=mask)


@triton.jit
def gradient_in_place(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Writes the product with y back into dz on the way."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask) * y
    tl.store(dz_ptr + offs, dz, mask=mask)
    tl.store(dx_ptr + offs, tl.where(x * y > 0, dz, 0.0), mask=mask)


@triton.jit
def only_open_gates_stored(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores where the gate is open and leaves the zeros to luck."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask, other=0.0)
    tl.store(dx_ptr + offs, dz * y, mask=mask & (x * y > 0))


@triton.jit
def mask_of_rows_only(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The column mask is forgotten: a row's tail runs into the next row."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] >= 0)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, tl.where(x * y > 0, dz * y, 0.0), mask=mask)


@triton.jit
def store_runs_into_the_next_row(
    x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """The store is masked by the tensor's end, not the row's: a ragged tail lands in the next row."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask, other=0.0)
    tl.store(dx_ptr + offs, tl.where(x * y > 0, dz * y, 0.0), mask=offs < M * N)


@triton.jit
def half_precision_gradient(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rounds the gradient to float16 on the way."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask).to(tl.float16)
    tl.store(dx_ptr + offs, tl.where(x * y > 0, dz * y, 0.0), mask=mask)


@triton.jit
def relu_by_half_sum(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """relu(t) = (t + |t|) / 2: on a GPU the t that is summed is not rounded, |t| is."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)
    z = x[None, :] * y[:, None]
    z = (z + tl.abs(z)) / 2
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


WRONG = [
    Wrong(MUL_RELU, no_relu, kind="values", says="without the relu"),
    Wrong(MUL_RELU, relu_before_product, kind="values", says="z[0, 0]"),
    Wrong(MUL_RELU, relu_of_each_factor, kind="values", says="relu of each factor"),
    Wrong(MUL_RELU, relu_the_wrong_way, kind="values", says="z[0, 0]"),
    Wrong(MUL_RELU, half_precision_product, kind="values", says="z[0, 0]"),
    Wrong(MUL_RELU, stride_of_square, kind="never written", says="z[43, 0]"),
    Wrong(MUL_RELU, transposed_product, kind="values", says="transposed"),
    Wrong(MUL_RELU, grid_axes_swapped, kind="never written", says="z[0, 32]"),
    Wrong(MUL_RELU, one_block_size, kind="never written", says="z[0, 32]"),
    Wrong(MUL_RELU, no_store_mask, kind="out of bounds", says="z_ptr"),
    Wrong(MUL_RELU, no_y_mask, kind="out of bounds", says="y_ptr"),
    Wrong(MUL_RELU, mask_one_too_far, kind="out of bounds", says="x_ptr"),
    Wrong(MUL_RELU, mask_without_brackets, kind="compiler", says="bind more tightly"),
    Wrong(MUL_RELU, torch_in_the_kernel, kind="compiler", says="torch.relu"),
    Wrong(MUL_RELU, folded, kind="values", says="tl.max(t, 0) folds axis 0"),
    Wrong(MUL_RELU, spec_in_the_kernel, kind="compiler", says="mul_relu_spec"),
    Wrong(MUL_RELU, lambda_in_the_kernel, kind="compiler", says="cannot define functions"),
    Wrong(MUL_RELU, leftover_print, kind="compiler", says="tl.device_print"),
    Wrong(MUL_RELU, only_first_columns, kind="never written", says="z[0, 16]"),
    Wrong(MUL_RELU, sizes_written_in, kind="out of bounds", says="z_ptr"),
    Wrong(MUL_RELU_BACKWARD, no_gate, kind="values", says="without the gate"),
    Wrong(MUL_RELU_BACKWARD, no_chain_rule, kind="values", says="dx[0, 3]"),
    Wrong(MUL_RELU_BACKWARD, dz_ignored, kind="values", says="dx[0, 0]"),
    Wrong(MUL_RELU_BACKWARD, gate_on_x, kind="values", says="dx[0, 1]"),
    Wrong(MUL_RELU_BACKWARD, gate_on_dz, kind="values", says="dx[0, 1]"),
    Wrong(MUL_RELU_BACKWARD, y_along_columns, kind="values", says="dx[0, 2]"),
    Wrong(MUL_RELU_BACKWARD, gradient_in_place, kind="input changed", says="its input dz"),
    Wrong(MUL_RELU_BACKWARD, only_open_gates_stored, kind="never written", says="dx[0, 1]"),
    Wrong(MUL_RELU_BACKWARD, mask_of_rows_only, kind="out of bounds", says="x_ptr"),
    Wrong(MUL_RELU_BACKWARD, store_runs_into_the_next_row, kind="race", says="(0, 0) and (0, 1)"),
    Wrong(MUL_RELU_BACKWARD, half_precision_gradient, kind="values", says="dx[0, 3]"),
    Wrong(MUL_RELU, relu_by_half_sum, kind="values", says="on a GPU"),
]

# ---- puzzle 5, right ---------------------------------------------------------------------------


@triton.jit
def relu_by_where(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """tl.where, and one flat mask used for the store only."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    z = tl.load(x_ptr + offs_n, mask=offs_n < N) * tl.load(y_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m * N + offs_n, tl.where(z > 0, z, 0.0), mask=(offs_m < M) & (offs_n < N))


@triton.jit
def relu_by_where_or_equal(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`>= 0` in the forward pass is the same function: relu(0) = 0 either way."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    z = tl.load(x_ptr + offs_n, mask=offs_n < N) * tl.load(y_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m * N + offs_n, tl.where(z >= 0, z, 0.0), mask=(offs_m < M) & (offs_n < N))


@triton.jit
def transposed_tile(
    x_ptr, y_ptr, z_ptr, M, N, stride_zm, stride_zn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Works on a [BLOCK_N, BLOCK_M] tile and turns it with tl.trans; strides are parameters."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.trans(tl.maximum(x[:, None] * y[None, :], 0.0))
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * stride_zm + offs_n[None, :] * stride_zn, z, mask=mask)


@triton.jit
def _relu(t):
    return tl.maximum(t, 0.0)


@triton.jit
def row_by_row(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows of the tile one at a time with a scalar load, and a helper for relu."""
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    first = tl.program_id(0) * BLOCK_M
    for m in range(first, tl.minimum(first + BLOCK_M, M)):
        y = tl.load(y_ptr + m)
        tl.store(z_ptr + m * N + offs_n, _relu(x * y), mask=offs_n < N)


@triton.jit
def block_pointer_store(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A block pointer writes the tile and checks its own bounds."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    tile = tl.make_block_ptr(
        z_ptr, (M, N), (N, 1), (pid_m * BLOCK_M, pid_n * BLOCK_N), (BLOCK_M, BLOCK_N), (1, 0)
    )
    tl.store(tile, tl.maximum(x[None, :] * y[:, None], 0.0), boundary_check=(0, 1))


# ---- puzzle 6, right ---------------------------------------------------------------------------


@triton.jit
def gate_as_a_number(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The gate as 0.0 or 1.0, multiplied in."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask)
    gate = (x * y > 0).to(tl.float32)
    tl.store(dx_ptr + offs, gate * dz * y, mask=mask)


@triton.jit
def gate_by_signs(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No product: the gate is open where both factors have the same sign."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask, other=0.0)
    gate = ((x > 0) & (y > 0)) | ((x < 0) & (y < 0))
    tl.store(dx_ptr + offs, tl.where(gate, dz, 0.0) * y, mask=mask)


@triton.jit
def loads_behind_the_gate(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """dz is loaded only where the gate is open; `other` fills the rest."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M, other=0.0)[:, None]
    dz = tl.load(dz_ptr + offs, mask=mask & (x * y > 0), other=0.0)
    tl.store(dx_ptr + offs, dz * y, mask=mask)


@triton.jit
def block_pointers(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Block pointers throughout, with zero padding."""
    corner = (tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N)
    x_tile = tl.make_block_ptr(x_ptr, (M, N), (N, 1), corner, (BLOCK_M, BLOCK_N), (1, 0))
    dz_tile = tl.make_block_ptr(dz_ptr, (M, N), (N, 1), corner, (BLOCK_M, BLOCK_N), (1, 0))
    dx_tile = tl.make_block_ptr(dx_ptr, (M, N), (N, 1), corner, (BLOCK_M, BLOCK_N), (1, 0))
    y_tile = tl.make_block_ptr(y_ptr, (M,), (1,), (corner[0],), (BLOCK_M,), (0,))
    x = tl.load(x_tile, boundary_check=(0, 1), padding_option="zero")
    y = tl.load(y_tile, boundary_check=(0,), padding_option="zero")[:, None]
    dz = tl.load(dz_tile, boundary_check=(0, 1), padding_option="zero")
    tl.store(dx_tile, tl.where(x * y > 0, dz * y, 0.0), boundary_check=(0, 1))


@triton.jit
def clamped_loads(x_ptr, y_ptr, dz_ptr, dx_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Loads need no mask: offsets past the end are moved back to the last row and column."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    safe_m = tl.minimum(offs_m, M - 1)
    safe = safe_m[:, None] * N + tl.minimum(offs_n, N - 1)[None, :]
    y = tl.load(y_ptr + safe_m)[:, None]
    slope = tl.where(tl.load(x_ptr + safe) * y > 0, y, 0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(dx_ptr + offs_m[:, None] * N + offs_n[None, :], tl.load(dz_ptr + safe) * slope, mask=mask)


RIGHT = [
    (MUL_RELU, and_for_ampersand),
    (MUL_RELU, relu_by_where),
    (MUL_RELU, relu_by_where_or_equal),
    (MUL_RELU, transposed_tile),
    (MUL_RELU, row_by_row),
    (MUL_RELU, block_pointer_store),
    (MUL_RELU_BACKWARD, gate_as_a_number),
    (MUL_RELU_BACKWARD, gate_by_signs),
    (MUL_RELU_BACKWARD, loads_behind_the_gate),
    (MUL_RELU_BACKWARD, block_pointers),
    (MUL_RELU_BACKWARD, clamped_loads),
]
