"""The int8 product of few rows: weights go straight from memory to the matrix unit's registers.

Written in Gluon, with the idea of `puzzles_lib.kernels.dequant_gemm_rows16`: the order of a sum over k is
free. So a lane multiplies the 16 adjacent bytes of one load, both in a row of weights and in a row of codes.
A program has 32 outputs and all of K, split over its warps; no other kernel has to add anything.

A program may start before the codes are ready (programmatic dependent launch). It loads the weights and
scales of its first steps before it waits for the codes, so the memory is busy while the rows are quantized.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from puzzles_lib.kernels.common import overlapped
from puzzles_lib.kernels.dequant_gemm_unpack import along, positions, spread

ROWS = 16  # of x, at most
STEPS = 16  # of a program, at most: they are unrolled
WARPS = 16
OUTPUTS, COLUMNS = gl.constexpr(32), gl.constexpr(64)  # of a program; of a warp's step


def fits(rows: int, wq: torch.Tensor) -> bool:
    """Return whether `launch` accepts these: Ampere or later, aligned rows, not too long, enough outputs."""
    outputs, columns = wq.shape
    gpu = torch.cuda.get_device_properties(wq.device)
    aligned = columns % 16 == 0 and wq.data_ptr() % 16 == 0
    enough = (
        2 * triton.cdiv(outputs, OUTPUTS.value) > gpu.multi_processor_count
    )  # else shares of K fill the GPU
    short = triton.cdiv(columns, WARPS * COLUMNS.value) <= STEPS
    return rows <= ROWS and aligned and enough and short and gpu.major >= 8 and not torch.version.hip


def launch(
    codes: torch.Tensor,
    x_scale: torch.Tensor,
    wq: torch.Tensor,
    w_scale: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    pdl: bool,
) -> None:
    """Fill y [M, N] from scales and contiguous codes, M rows or more. `fits` must be true.

    pdl: the launch before this one quantized the rows, and signals that this one may start.
    """
    (rows, outputs), columns = y.shape, wq.shape[1]
    steps = triton.cdiv(columns, WARPS * COLUMNS.value)
    whole = columns == steps * WARPS * COLUMNS.value
    _q8_linear_rows16_kernel[(triton.cdiv(outputs, OUTPUTS.value),)](
        codes, x_scale, wq, w_scale, w_scale if bias is None else bias, y, rows, outputs, columns // 16,
        BLOCK_M=8 if rows <= 8 else ROWS, STEPS=steps, WHOLE=steps if whole else steps - 1,
        AHEAD=min(4, steps), HAS_BIAS=bias is not None, PDL=pdl,
        num_warps=WARPS, enable_fp_fusion=False, **overlapped(pdl),
    )  # fmt: skip


@gluon.constexpr_function
def _bytes_layout(warps, rows, columns):
    """[warps, rows, columns]: a lane has 16 adjacent columns of every 64, of every eighth row."""
    registers = along(3, 2, 16) + along(3, 2, columns, first=64) + along(3, 1, rows, first=8)
    lanes = along(3, 2, 64, first=16) + along(3, 1, 8)
    return gl.DistributedLinearLayout(registers, lanes, along(3, 0, warps), [], [warps, rows, columns])


@gluon.constexpr_function
def _sums_layout(warps, outputs, rows):
    """[warps, outputs, rows]: a thread has the sums of all warps for its elements."""
    rest = along(3, 1, outputs) + along(3, 2, rows)
    return spread(along(3, 0, warps), rest, warps, [warps, outputs, rows])


@gluon.jit
def _reordered(x):
    """[W, rows, K] with k = 16t + 4q + p at 16q + 4t + p, where the matrix unit's lanes t have it."""
    W: gl.constexpr = x.shape[0]
    ROWS: gl.constexpr = x.shape[1]
    K: gl.constexpr = x.shape[2]
    return x.reshape([W, ROWS, K // 64, 4, 4, 4]).permute([0, 1, 2, 4, 3, 5]).reshape([W, ROWS, K])


@gluon.jit
def _load(ptrs, k, K, step: gl.constexpr, WHOLE: gl.constexpr, HINT: gl.constexpr):
    """The bytes of a step, 0 from K on; k: those of step 0."""
    SPAN: gl.constexpr = ptrs.shape[0] * ptrs.shape[2]
    if step < WHOLE:
        return gl.load(ptrs + step * SPAN, eviction_policy=HINT)
    else:
        return gl.load(ptrs + step * SPAN, mask=k < K - step * SPAN, other=0, eviction_policy=HINT)


@gluon.jit
def _places(ptr, first, last, K, W: gl.constexpr, ROWS: gl.constexpr):
    """Pointers to rows ``first`` and up in step 0, [W, ROWS, COLUMNS], and their columns.

    Past the last row it is the last again, for results that are not stored.
    """
    SHAPE: gl.constexpr = [W, ROWS, COLUMNS]
    layout: gl.constexpr = _bytes_layout(W, ROWS, COLUMNS)
    row = gl.minimum(first + positions(1, SHAPE, layout), last)
    k = positions(0, SHAPE, layout) * COLUMNS + positions(2, SHAPE, layout) + row * 0
    return ptr + (row.to(gl.int64) * K + k), k


@gluon.jit(do_not_specialize=["M"])
def _q8_linear_rows16_kernel(
    codes_ptr, x_scale_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, units,
    BLOCK_M: gl.constexpr, STEPS: gl.constexpr, WHOLE: gl.constexpr, AHEAD: gl.constexpr,
    HAS_BIAS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """OUTPUTS columns of y. K is units · 16. WHOLE: the number of steps that end before K does."""
    W: gl.constexpr = gl.num_warps()
    K = units * 16
    first_n = gl.program_id(0) * OUTPUTS
    w_ptrs, w_k = _places(wq_ptr, first_n, N - 1, K, W, OUTPUTS)
    weights = ()
    for step in gl.static_range(AHEAD):
        weights = weights + (_load(w_ptrs, w_k, K, step, WHOLE, "evict_first"),)
    own: gl.constexpr = _sums_layout(W, OUTPUTS, BLOCK_M)
    offs_n = first_n + positions(0, [OUTPUTS, BLOCK_M], gl.SliceLayout(0, own))
    offs_m = positions(1, [OUTPUTS, BLOCK_M], gl.SliceLayout(0, own))
    w_scale = gl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    x_scale = gl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)
    x_ptrs, x_k = _places(codes_ptr, 0, M - 1, K, W, BLOCK_M)
    x = _load(x_ptrs, x_k, K, 0, WHOLE, "")
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[W, 1, 1], instr_shape=[1, 16, 8]
    )
    acc = gl.zeros([W, OUTPUTS, BLOCK_M], gl.int32, mma)
    for step in gl.static_range(STEPS):
        left = gl.convert_layout(_reordered(weights[0]), gl.DotOperandLayout(0, mma, 4), assert_trivial=True)
        weights = weights[1:]
        if step + AHEAD < STEPS:
            weights = weights + (_load(w_ptrs, w_k, K, step + AHEAD, WHOLE, "evict_first"),)
        right = _reordered(x).permute([0, 2, 1])
        if step + 1 < STEPS:
            x = _load(x_ptrs, x_k, K, step + 1, WHOLE, "")
        right = gl.convert_layout(right, gl.DotOperandLayout(1, mma, 4), assert_trivial=True)
        acc = mma_v2(left, right, acc)
    sums = gl.sum(gl.convert_layout(acc, own), axis=0)  # [OUTPUTS, BLOCK_M]
    y = sums.to(gl.float32) * (x_scale * w_scale)
    if HAS_BIAS:
        y += gl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(gl.float32)
    place = offs_m.to(gl.int64) * N + offs_n
    gl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))
