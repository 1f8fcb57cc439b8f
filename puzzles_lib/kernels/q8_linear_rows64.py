"""The int8 product of up to 64 rows on Hopper GPUs: everything is loaded as early as possible.

Written in Gluon, like `puzzles_lib.kernels.dequant_gemm_rows128`. A program has 32 outputs, all rows and all
of K; no other kernel has to add anything. With so few rows, most of the time is memory and waiting. So:

- A program may start before the codes are ready (programmatic dependent launch). It loads the weights of its
  first steps and the scales before it waits for the codes. Loading more steps would slow down the kernel that
  is still quantizing the rows.
- While a step's product runs, the program frees the buffer of the step before and loads a later step into it.
- Scales are in registers before the last product ends.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from puzzles_lib.kernels.common import overlapped
from puzzles_lib.kernels.dequant_gemm_unpack import positions
from puzzles_lib.kernels.gluon_versions import barrier, copy_tile

ROWS = 64  # of x, at most: of one instruction of the matrix unit
OUTPUTS, STEP = 32, 512  # of a program; columns of a step
STAGES = gl.constexpr(4)  # steps that shared memory holds
EARLY = gl.constexpr(2)  # steps whose weights are asked for before there are codes
SWIZZLED = gl.NVMMASharedLayout(128, 8)


def fits(rows: int, wq: torch.Tensor) -> bool:
    """Return whether `launch` accepts these: a Hopper GPU, aligned rows, enough outputs."""
    outputs, columns = wq.shape
    gpu = torch.cuda.get_device_properties(wq.device)
    aligned = columns % 16 == 0 and wq.data_ptr() % 16 == 0  # as TMA wants
    enough = 2 * triton.cdiv(outputs, OUTPUTS) > gpu.multi_processor_count  # else shares of K fill the GPU
    return rows <= ROWS and aligned and enough and (gpu.major, gpu.minor) == (9, 0)


def launch(
    codes: torch.Tensor,
    x_scale: torch.Tensor,
    wq: torch.Tensor,
    w_scale: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    pdl: bool,
) -> None:
    """Fill y [M, N] from scales and contiguous codes [ROWS, K], of which M rows count. `fits` must be true.

    pdl: the launch before this one quantized the rows, and signals that this one may start.
    """
    (rows, outputs), columns = y.shape, wq.shape[1]
    _q8_linear_rows64_kernel[(triton.cdiv(outputs, OUTPUTS),)](
        TensorDescriptor.from_tensor(codes, [ROWS, STEP], SWIZZLED), x_scale,
        TensorDescriptor.from_tensor(wq, [OUTPUTS, STEP], SWIZZLED), w_scale,
        w_scale if bias is None else bias, y, rows, outputs, triton.cdiv(columns, STEP),
        HAS_BIAS=bias is not None, num_warps=4, enable_fp_fusion=False, **overlapped(pdl),
    )  # fmt: skip


@gluon.jit
def _ask_weights(codes, wq, s_w, ready, turn, count, first_n):
    """Start the copy of a step's weights, if there is such a step. Its codes are to follow."""
    wanted = turn < count
    nbytes: gl.constexpr = codes.block_type.nbytes + wq.block_type.nbytes
    bar = ready.index(turn % STAGES)
    mbarrier.expect(bar, nbytes, pred=wanted)
    copy_tile(wq, [first_n, turn * wq.block_shape[1]], bar, s_w.index(turn % STAGES), pred=wanted)


@gluon.jit
def _ask_codes(codes, s_x, ready, turn, count):
    """Start the copy of a step's codes, if there is such a step."""
    bar = ready.index(turn % STAGES)
    copy_tile(codes, [0, turn * codes.block_shape[1]], bar, s_x.index(turn % STAGES), pred=turn < count)


@gluon.jit(do_not_specialize=["M"])
def _q8_linear_rows64_kernel(
    codes, x_scale_ptr, wq, w_scale_ptr, bias_ptr, y_ptr, M, N, count, HAS_BIAS: gl.constexpr
):
    """OUTPUTS columns of y, from ``count`` steps. codes, wq: descriptors, [ROWS, K] and [N, K]."""
    SHAPE: gl.constexpr = [codes.block_shape[0], wq.block_shape[0]]
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, SHAPE[1], 32]
    )
    first_n = gl.program_id(0) * SHAPE[1]
    offs_m = positions(0, SHAPE, mma)
    offs_n = first_n + positions(1, SHAPE, mma)
    s_x = gl.allocate_shared_memory(codes.dtype, [STAGES] + codes.block_shape, codes.layout)
    s_w = gl.allocate_shared_memory(wq.dtype, [STAGES] + wq.block_shape, wq.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
    for i in gl.static_range(EARLY):
        _ask_weights(codes, wq, s_w, ready, i, count, first_n)
    w_scale = gl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    gdc_wait()
    gdc_launch_dependents()
    for i in gl.static_range(STAGES - 1):
        if i >= EARLY:
            _ask_weights(codes, wq, s_w, ready, i, count, first_n)
        _ask_codes(codes, s_x, ready, i, count)
    x_scale = gl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)
    if HAS_BIAS:
        bias = gl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
    acc = warpgroup_mma_init(gl.zeros(SHAPE, gl.int32, mma))
    for turn in range(count):
        stage = turn % STAGES
        mbarrier.wait(ready.index(stage), turn // STAGES & 1)
        acc = warpgroup_mma(s_x.index(stage), s_w.index(stage).permute([1, 0]), acc, is_async=True)
        warpgroup_mma_wait(1, deps=[x_scale])  # the product before this one; it wants some tensor
        barrier()  # all warps have multiplied the step before: its place is free
        _ask_weights(codes, wq, s_w, ready, turn + STAGES - 1, count, first_n)
        _ask_codes(codes, s_x, ready, turn + STAGES - 1, count)
    sums = warpgroup_mma_wait(0, deps=[acc])
    y = sums.to(gl.float32) * (x_scale * w_scale)
    if HAS_BIAS:
        y += bias.to(gl.float32)
    place = offs_m.to(gl.int64) * N + offs_n
    gl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))
