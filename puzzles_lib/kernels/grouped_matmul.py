"""Products of sorted rows with one matrix per group: what a mixture of experts computes.

Rows of x that go to the same expert are adjacent, and ``start`` says where each expert's rows begin. Only the
GPU knows ``start``. So the host launches as many programs as any ``start`` could need, and each program finds
its tile: the tiles of the experts before are summed until they pass its number.

    y[p] = x[p] w[e]        for start[e] <= p < start[e + 1]
    dx[p] = dy[p] w[e]ᵀ     the same product, of the transposed matrices
    dw[e] = Σ_p x[p]ᵀ dy[p]    over the rows of expert e; zeros if there are none

A tile at the end of a group loads rows of the next group, and doesn't store what they give. In dw such rows
would count, so its loads are masked.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.common import check_dtype, multiprocessors, overlapped

HALVES = (torch.float16, torch.bfloat16)
DTYPES = (*HALVES, torch.float32, torch.float64)


def grouped_matmul(x: torch.Tensor, w: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Multiply each row of x by the matrix of its group, such as its expert in a mixture of experts.

    The product is differentiable in x and w.

    x: [P, K], float16, bfloat16, float32 or float64. The rows of a group are adjacent, and the groups are in
        order.
    w: [E, K, N], with x's dtype and on its device: one matrix per group. It is contiguous, or the transpose
        ``.mT`` of a contiguous [E, N, K]; other strides cost a copy.
    start: int32 [E + 1], on x's device. The rows of group e are start[e] to start[e + 1] - 1. It starts at 0,
        ends at P, and is nondecreasing. A group may have no rows.

    Returns y: [P, N] of x's dtype, with sums in float32 (float64 for float64). The gradients are sums in a
    fixed order. float16 and bfloat16 on a GPU run Triton kernels; everything else runs plain torch, group by
    group.

    Raises TypeError for another dtype, and ValueError for shapes or devices that do not fit. An invalid
    ``start`` isn't detected: rows may then be read or written out of bounds.
    """
    _check(x, w, start)
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        return _grouped_matmul(x, w, start)
    return launching.run(_grouped_matmul, _grouped_matmul, _grouped_matmul_now, x, w, start)


def _check(x, w, start) -> None:
    for name, value, axes in (("x", x, 2), ("w", w, 3)):
        check_dtype(name, value, DTYPES)
        if value.dim() != axes:
            raise ValueError(f"{name} must have {axes} axes, but has {value.dim()}")
    check_dtype("start", start, (torch.int32,))
    if w.dtype != x.dtype:
        raise TypeError(f"w must be {x.dtype} like x, but is {w.dtype}")
    if w.shape[0] == 0 or w.shape[1] != x.shape[1]:
        raise ValueError(
            f"w must have shape (E, {x.shape[1]}, N) with E of at least 1, but has shape {tuple(w.shape)}"
        )
    if start.shape != (w.shape[0] + 1,):
        raise ValueError(f"start must have shape ({w.shape[0] + 1},), but has shape {tuple(start.shape)}")
    for name, value in (("w", w), ("start", start)):
        if value.device != x.device:
            raise ValueError(f"{name} must be on the device of x, {x.device}, but is on {value.device}")


# ---- torch, the reference


def grouped_matmul_ref(x: torch.Tensor, w: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Return y [P, N], expert by expert, for x [P, K], w [E, K, N] and start [E + 1]."""
    y = x.new_empty(x.shape[0], w.shape[2])
    for e, (first, last) in enumerate(_ranges(start)):
        y[first:last] = x[first:last] @ w[e]
    return y


def grouped_matmul_dw_ref(x: torch.Tensor, dy: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Return dw [E, K, N], expert by expert, for x [P, K], dy [P, N] and start [E + 1]."""
    return torch.stack([x[first:last].t() @ dy[first:last] for first, last in _ranges(start)])


def _ranges(start: torch.Tensor) -> list[tuple[int, int]]:
    places = start.tolist()
    return list(zip(places[:-1], places[1:], strict=True))


# ---- Triton


@triton.jit
def _tile(
    x, row, column, rows, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLUMNS] of a matrix from a row and a column on, zeros past its end."""
    if TMA:
        tile = x.load([row, column])
    else:
        r = row + tl.arange(0, ROWS)
        c = column + tl.arange(0, COLUMNS)
        mask = (r < rows)[:, None] & (c < columns)[None, :]
        tile = tl.load(x + r.to(tl.int64)[:, None] * columns + c[None, :], mask=mask, other=0.0)
    return tile


@triton.jit
def _in_order(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a program's tile: GROUP rows at a time, so that tiles in flight share operands."""
    group = pid // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    return group * GROUP + pid % (GROUP * tiles_n) % height, pid % (GROUP * tiles_n) // height


@triton.jit
def _product_kernel(
    x, w, start_ptr, y_ptr, P, E, N, K,
    EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ALONG_N: tl.constexpr, TMA: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A tile of y. ALONG_N: the experts' matrices are stored [K, N], otherwise [N, K]."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    tiles_n = tl.cdiv(N, BLOCK_N)
    m, n = _in_order(tl.program_id(0), tl.num_programs(0) // tiles_n, tiles_n, GROUP)
    e = tl.arange(0, EXPERTS)
    first = tl.load(start_ptr + e, mask=e < E, other=0)
    last = tl.load(start_ptr + e + 1, mask=e < E, other=0)
    tiles = tl.cdiv(last - first, BLOCK_M)
    upto = tl.cumsum(tiles, 0)
    expert = tl.sum((upto <= m).to(tl.int32), 0)
    if expert < E:  # otherwise all tiles have a program without this one
        mine = e == expert
        begin = tl.sum(tl.where(mine, first + (m - upto + tiles) * BLOCK_M, 0), 0)
        end = tl.minimum(tl.sum(tl.where(mine, last, 0), 0), P)
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for k in range(0, tl.maximum(K, 1), BLOCK_K):  # a loop that may be empty would make wgmma wait
            a = _tile(x, begin, k, P, K, BLOCK_M, BLOCK_K, TMA)
            if TMA and ALONG_N:
                b = w.load([expert, k, n * BLOCK_N]).reshape([BLOCK_K, BLOCK_N])
            elif TMA:
                b = w.load([expert, n * BLOCK_N, k]).reshape([BLOCK_N, BLOCK_K]).T
            elif ALONG_N:
                b = _tile(w + expert.to(tl.int64) * K * N, k, n * BLOCK_N, K, N, BLOCK_K, BLOCK_N, TMA)
            else:
                b = _tile(w + expert.to(tl.int64) * K * N, n * BLOCK_N, k, N, K, BLOCK_N, BLOCK_K, TMA).T
            acc = tl.dot(a, b, acc)
        p = begin + tl.arange(0, BLOCK_M)
        c = n * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (p < end)[:, None] & (c < N)[None, :]
        at = p.to(tl.int64)[:, None] * N + c[None, :]
        tl.store(y_ptr + at, acc.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _dw_kernel(
    x_ptr, dy_ptr, start_ptr, dw, P, E, K, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    WHOLE: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Tiles [BLOCK_M, BLOCK_N] of the experts' dw [K, N], in steps of BLOCK_K rows. Programs share the tiles.

    The rows of the next group have to count as zeros, and TMA knows only the end of the tensor. Asynchronous
    copies with a mask cost nothing more. WHOLE: tiles divide K and N. TMA: dw is a descriptor.
    """
    tiles_m, tiles_n = tl.cdiv(K, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), E * tiles_m * tiles_n, tl.num_programs(0)):
        expert = tile // (tiles_m * tiles_n)
        m, n = _in_order(tile % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
        begin, end = tl.load(start_ptr + expert), tl.minimum(tl.load(start_ptr + expert + 1), P)
        k = m * BLOCK_M + tl.arange(0, BLOCK_M)
        c = n * BLOCK_N + tl.arange(0, BLOCK_N)
        x_at = x_ptr + (begin + row).to(tl.int64)[:, None] * K + k[None, :]
        dy_at = dy_ptr + (begin + row).to(tl.int64)[:, None] * N + c[None, :]
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for p in range(begin, end, BLOCK_K):
            mine = (p + row < end)[:, None]
            if WHOLE:
                a = tl.load(x_at, mask=mine, other=0.0)
                b = tl.load(dy_at, mask=mine, other=0.0)
            else:
                a = tl.load(x_at, mask=mine & (k < K)[None, :], other=0.0)
                b = tl.load(dy_at, mask=mine & (c < N)[None, :], other=0.0)
            acc = tl.dot(a.T, b, acc)
            x_at += BLOCK_K * K
            dy_at += BLOCK_K * N
        if TMA:
            dw.store([expert, m * BLOCK_M, n * BLOCK_N], acc.to(dw.dtype).reshape([1, BLOCK_M, BLOCK_N]))
        else:
            at = (expert.to(tl.int64) * K + k)[:, None] * N + c[None, :]
            tl.store(dw + at, acc.to(dw.dtype.element_ty), mask=(k < K)[:, None] & (c < N)[None, :])


@dataclass(frozen=True)
class Tiles:
    """The size of a program's tile, and how tiles are launched. group: rows of tiles taken together."""

    m: int
    n: int
    k: int
    group: int = 8
    warps: int = 4
    stages: int = 4
    persistent: bool = False  # dw: a program per multiprocessor, which takes one tile after the other


FEW = Tiles(16, 64, 128)
SOME = Tiles(128, 256, 64, group=4, warps=8)
MANY = Tiles(128, 256, 64, warps=8, stages=3)
GRADIENT_SOME = Tiles(128, 128, 32)
GRADIENT_MANY = Tiles(128, 256, 32, warps=8, stages=5, persistent=True)
OLD = Tiles(64, 64, 32, stages=3)  # for GPUs without TMA, or sizes that it doesn't take


def choose_tiles(rows: int, experts: int, tma: bool) -> Tiles:
    """Return the tiles of a product, by how many rows an expert has on average: the best on an H200."""
    each = rows / min(rows, experts)
    if each <= 16:
        return FEW
    return OLD if not tma else SOME if each <= 512 else MANY


def choose_gradient_tiles(rows: int, experts: int, hopper: bool) -> Tiles:
    """Return the tiles of dw, by how many rows an expert has on average: the best on an H200 and an H100."""
    if not hopper:
        return OLD
    return GRADIENT_SOME if rows / min(rows, experts) <= 192 else GRADIENT_MANY


def tiles_of_groups(rows: int, experts: int, block: int) -> int:
    """Return how many tiles of ``block`` rows there are at most, however the rows are divided."""
    used = min(rows, experts)
    return used + (rows - used) // block


def _on_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda and x.dtype in HALVES


def _hopper(x: torch.Tensor) -> bool:
    return x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)


def _fits_tma(*matrices: torch.Tensor) -> bool:
    """Return whether TMA takes these contiguous tensors: rows are multiples of 16 bytes."""
    return all(each.shape[-1] % 8 == 0 and each.data_ptr() % 16 == 0 for each in matrices)


def _tma(*matrices: torch.Tensor) -> bool:
    return _hopper(matrices[0]) and _fits_tma(*matrices)


def _described(x: torch.Tensor, block: list[int]) -> TensorDescriptor:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block)


def launch_product(
    x: torch.Tensor, w: torch.Tensor, start: torch.Tensor, y: torch.Tensor, tiles: Tiles | None = None
) -> None:
    """Fill y [P, N] from a contiguous x [P, K], w [E, K, N] and start [E + 1]; no size is 0.

    tiles: the tiles to use instead of the chosen ones.
    """
    (P, K), (E, _, N) = x.shape, w.shape
    along_n = w.is_contiguous() or not w.mT.is_contiguous()
    w = w.contiguous() if along_n else w.mT  # [E, K, N] or [E, N, K], contiguous
    hopper = _hopper(x)
    tma = _tma(x, w)
    tiles = tiles or choose_tiles(P, E, tma)
    operands: tuple = (x, w)
    if tma:
        block = [1, tiles.k, tiles.n] if along_n else [1, tiles.n, tiles.k]
        operands = _described(x, [tiles.m, tiles.k]), _described(w, block)
    programs = tiles_of_groups(P, E, tiles.m) * triton.cdiv(N, tiles.n)
    _product_kernel[(programs,)](
        *operands, start, y, P, E, N, K,
        EXPERTS=triton.next_power_of_2(E), BLOCK_M=tiles.m, BLOCK_N=tiles.n, BLOCK_K=tiles.k,
        GROUP=tiles.group, ALONG_N=along_n, TMA=tma, PDL=hopper,
        num_warps=tiles.warps, num_stages=tiles.stages, **overlapped(hopper),
    )  # fmt: skip


def launch_dw(
    x: torch.Tensor, dy: torch.Tensor, start: torch.Tensor, dw: torch.Tensor, tiles: Tiles | None = None
) -> None:
    """Fill dw [E, K, N] from a contiguous x [P, K] and dy [P, N]; no size is 0.

    tiles: the tiles to use instead of the chosen ones.
    """
    (P, K), N, E = x.shape, dy.shape[1], dw.shape[0]
    tma = _tma(dw)
    tiles = tiles or choose_gradient_tiles(P, E, _hopper(x))
    programs = E * triton.cdiv(K, tiles.m) * triton.cdiv(N, tiles.n)
    if tiles.persistent:
        programs = min(programs, multiprocessors(x.device))
    _dw_kernel[(programs,)](
        x, dy, start, _described(dw, [1, tiles.m, tiles.n]) if tma else dw, P, E, K, N,
        BLOCK_M=tiles.m, BLOCK_N=tiles.n, BLOCK_K=tiles.k, GROUP=tiles.group,
        WHOLE=K % tiles.m == 0 and N % tiles.n == 0, TMA=tma,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


# ---- the operators that torch knows


def _grouped_matmul_now(x: torch.Tensor, w: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    if not _on_gpu(x):
        return grouped_matmul_ref(x, w, start)
    y = x.new_empty(x.shape[0], w.shape[2])
    if not x.shape[1]:
        return y.zero_()
    if y.numel():
        with launching.on_device_of(x):
            launch_product(x.contiguous(), w, start.contiguous(), y)
    return y


_grouped_matmul = torch.library.custom_op("bit_by_bit::grouped_matmul", _grouped_matmul_now, mutates_args=())


@_grouped_matmul.register_fake
def _(x: torch.Tensor, w: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], w.shape[2])


def _grouped_matmul_dw_now(x: torch.Tensor, dy: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    if not _on_gpu(x):
        return grouped_matmul_dw_ref(x, dy, start)
    dw = x.new_empty(start.shape[0] - 1, x.shape[1], dy.shape[1])
    if not x.shape[0]:
        return dw.zero_()
    if dw.numel():
        with launching.on_device_of(x):
            launch_dw(x.contiguous(), dy.contiguous(), start.contiguous(), dw)
    return dw


_grouped_matmul_dw = torch.library.custom_op(
    "bit_by_bit::grouped_matmul_dw", _grouped_matmul_dw_now, mutates_args=()
)


@_grouped_matmul_dw.register_fake
def _(x: torch.Tensor, dy: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    return x.new_empty(start.shape[0] - 1, x.shape[1], dy.shape[1])


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, dy):
    x, w, start = ctx.saved_tensors
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = _grouped_matmul(dy, w.mT, start)
    if ctx.needs_input_grad[1]:
        if w.is_contiguous():
            dw = _grouped_matmul_dw(x, dy, start)
        else:  # stored [E, N, K], and so is its gradient
            dw = _grouped_matmul_dw(dy, x, start).mT
    return dx, dw, None


_grouped_matmul.register_autograd(_backward, setup_context=_keep)
