"""dW = dyᵀ @ x̂ on Hopper GPUs, x̂ unpacked in registers: about as fast as cuBLAS on a ready x̂.

Written in Gluon, the language under Triton, where layouts, copies and waits are the author's. What makes
it fast:

- x̂ᵀ is the matrix unit's left operand, which can come from registers, and dy is its right operand, from
  shared memory. So unpacked values never leave the thread that unpacked them.
- The packed format suits the matrix unit. Word [r, n] has rows r, r + 16, ... of column n. So field j of 16
  rows of words is one operand of depth 16, however the words are spread over threads.
- Two codes are unpacked exactly in three instructions, and scaled with one rounding (`unpack_and_scale_asm`).
- wgmma overlaps with unpacking: while it multiplies two operands, the threads unpack a third. A wgmma reads
  its operand's registers while it runs, so an operand is kept alive until `warpgroup_mma_wait` returns.
- Copies by TMA run ahead, as far as shared memory allows: two steps for dy, one for words and params. Each
  copy needs barriers of all threads. These are spread over the operands of a step, so that the matrix unit
  has work in the meantime.

A step is 128 rows of K: half a block of words, or several blocks. Tiles are 128 columns of x by 256 of dy.
K is split among programs until the multiprocessors are filled. A second kernel then adds the float32 sums of
the splits, in order.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.bitpack import block_rows
from puzzles_lib.kernels.common import add_splits, multiprocessors
from puzzles_lib.kernels.dequant_gemm_unpack import shift_right, unpack_and_scale_asm
from puzzles_lib.kernels.gluon_versions import barrier, copy_tile

BLOCK_M, BLOCK_N, STEP = 128, 256, 128  # columns of x, columns of dy, rows of both
DY_STAGES = tl.constexpr(3)  # steps of dy that shared memory holds
WORD_STAGES = tl.constexpr(2)  # and of words and params
SWIZZLED, PLAIN = gl.NVMMASharedLayout(128, 16), gl.NVMMASharedLayout(0, 16, rank=3)


def fits(dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, group_size: int) -> bool:
    """Return whether `launch` accepts these: Hopper, 16-bit floats, aligned rows, groups that fit the tiles.

    A tile is in one group or has whole groups, so that a row has one scale for the 16 columns of a warp.
    """
    if (dy.data_ptr() | words.data_ptr() | params.data_ptr()) % 16:
        return False
    (_, cout), cin = dy.shape, words.shape[2]
    groups, _, _, rows = params.shape
    return _fits(dy.dtype, cout, cin, groups, rows, group_size, dy.get_device())


@lru_cache(4096)
def _fits(
    dtype: torch.dtype, cout: int, cin: int, groups: int, rows: int, group_size: int, device: int
) -> bool:
    aligned = cin % 8 == 0 and cout % 8 == 0  # TMA wants strides of 16 bytes
    grouped = group_size % BLOCK_M == 0 or groups == 1 or group_size == 64
    eight_bits = rows == block_rows(8)  # whose words leave no room for more groups' params
    grouped = grouped or (group_size in (16, 32) and not eight_bits)
    small = dtype in (torch.float16, torch.bfloat16) and cin * cout < 2**31
    return aligned and grouped and small and torch.cuda.get_device_capability(device) == (9, 0)


def launch(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return dW [COUT, CIN] of a contiguous matrix dy [K, COUT], K > 0, if `fits` is true.

    dtype: the dtype of dW; dy's by default. dy must be on the current GPU.
    """
    (rows, cout), cin = dy.shape, words.shape[2]
    groups, device = params.shape[0], dy.get_device()
    plan = _plan(rows, cout, cin, bits, group_size, groups, device)
    out = launching.empty(dy, (cout, cin), dtype)
    sums = out if plan.splits == 1 else launching.empty(dy, (plan.splits, cout, cin), torch.float32)
    key = (device, ("dW", dy.dtype, sums.dtype, rows, cout, cin, bits, group_size, groups))
    start = launching.prepared(key)
    if start is not None:
        start(
            _Seen(dy, plan.shapes[0]), _Seen(words, plan.shapes[1]), _Seen(params, plan.shapes[2]),
            sums.data_ptr(),
        )  # fmt: skip
    else:
        numbers = (plan.steps, cin, cout, plan.splits, group_size)
        descriptors = [
            TensorDescriptor.from_tensor(tensor.view(shape), block, layout)
            for tensor, shape, block, layout in zip(
                (dy, words, params), plan.shapes, plan.blocks, (SWIZZLED, SWIZZLED, PLAIN), strict=True
            )
        ]
        compiled = _dequant_gemm_dw_hopper_kernel[plan.grid](
            *descriptors, sums, *numbers, BITS=bits, num_warps=8
        )
        launching.keep(key, compiled, plan.grid, (*numbers, bits))
    if plan.splits > 1:
        add_splits(sums, out)
    return out


class _Plan(NamedTuple):
    """How to cut a product: the grid, steps of K, into how many parts, and blocks of the three operands.

    shapes: under which the operands are seen: dy, words, and params as [groups, blocks · 2, rows of a block].
    """

    grid: tuple[int]
    steps: int
    splits: int
    shapes: list[list[int]]
    blocks: list[list[int]]


class _Seen:
    """What Triton's launcher reads of a `TensorDescriptor`, made without the checks that were made before."""

    __slots__ = ("base", "shape", "strides")
    padding, round_f32_to_tf32 = "zero", False

    def __init__(self, base: torch.Tensor, shape: list[int]) -> None:
        self.base, self.shape = base, shape
        self.strides = [shape[1], 1] if len(shape) == 2 else [shape[1] * shape[2], shape[2], 1]


@lru_cache(4096)
def _plan(rows: int, cout: int, cin: int, bits: int, group_size: int, groups: int, device: int) -> _Plan:
    steps = triton.cdiv(rows, STEP)
    tiles = triton.cdiv(cin, BLOCK_M) * triton.cdiv(cout, BLOCK_N)
    splits = choose_splits(tiles, steps, cin * cout, multiprocessors(device))
    parts = max(block_rows(bits) // STEP, 1)  # steps a block
    blocks = max(STEP // block_rows(bits), 1)  # blocks a step
    of_a_tile = 1 if groups == 1 else max(BLOCK_M // group_size, 1)
    of_all = -(-rows // block_rows(bits))
    shapes = [[rows, cout], [of_all * 16, cin], [groups, of_all * 2, block_rows(bits)]]
    of_params = [of_a_tile, blocks * 2, block_rows(bits) // parts]
    return _Plan(
        (tiles * splits,), steps, splits, shapes, [[STEP, BLOCK_N], [blocks * 16, BLOCK_M], of_params]
    )


@lru_cache  # it takes the host as long as half a launch
def choose_splits(tiles: int, steps: int, size: int, multiprocessors: int) -> int:
    """Return into how many parts to split K: at most one per step, so that none is empty.

    The estimate is in microseconds on an H200. A program needs 1.3 for a step, and 5 for its beginning and
    end. A second kernel adds the parts: 2.5 to launch it, and ``size`` floats written and read at 4 TB/s.
    """

    def cost(splits: int) -> float:
        waves = -(-tiles * splits // multiprocessors)
        adding = 2.5 + splits * size * 8 / 4e6 if splits > 1 else 0
        return waves * (-(-steps // splits) * 1.3 + 5) + adding

    return min(range(1, min(steps, 64) + 1), key=cost)


@gluon.jit
def _fetch(
    part: gl.constexpr, dy, words, params, s_dy, s_words, s_params, ready, turn, first, count, m, n, group,
    BITS: gl.constexpr,
):  # fmt: skip
    """Start one of the three copies of a step, if there is such a step."""
    PARTS: gl.constexpr = 256 // BITS // params.block_shape[2]  # of a block
    step = first + turn
    wanted = turn < count
    bar = ready.index(turn % ready.shape[0])
    if part == 0:
        nbytes: gl.constexpr = dy.block_type.nbytes + words.block_type.nbytes + params.block_type.nbytes
        mbarrier.expect(bar, nbytes, pred=wanted)
        place = [step * dy.block_shape[0], n]
        copy_tile(dy, place, bar, s_dy.index(turn % s_dy.shape[0]), pred=wanted)
    elif part == 1:
        place = [step // PARTS * words.block_shape[0], m]
        copy_tile(words, place, bar, s_words.index(turn % s_words.shape[0]), pred=wanted)
    elif part == 2:
        place = [group, step // PARTS * params.block_shape[1], step % PARTS * params.block_shape[2]]
        copy_tile(params, place, bar, s_params.index(turn % s_params.shape[0]), pred=wanted)


@gluon.constexpr_function
def _by_group(groups, rows):
    """The layout of an operand [rows, 16], its rows seen as groups: [groups, rows / groups, 16].

    A linear layout: where in the block each bit of a register's, a lane's and a warp's number leads.
    """

    def place(row, k):
        return [row // (rows // groups), row % (rows // groups), k]

    registers, lanes = [(0, 1), (8, 0), (0, 8)], [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
    warps = [(row, 0) for row in (16, 32, 64) if row < rows]
    bases = [[place(*base) for base in some] for some in (registers, lanes, warps)]
    return gl.DistributedLinearLayout(*bases, [], [groups, rows // groups, 16])


@gluon.jit
def _load_param(params, place: gl.constexpr, word):
    """Sixteen scales or minima of each group, for the rows of an operand like ``word``, [BLOCK_M, 16]."""
    GROUPS: gl.constexpr = params.shape[0]
    if GROUPS == 1:  # the same for all rows
        along_k: gl.constexpr = gl.SliceLayout(0, word.type.layout)
        some = params.reshape([params.shape[1]]).slice(place, 16).load(along_k).expand_dims(0)
        return gl.broadcast(some, word)[0]
    rows: gl.constexpr = word.shape[0]
    by_group: gl.constexpr = _by_group(GROUPS, rows)
    some = params.slice(place, 16, dim=1).load(gl.SliceLayout(1, by_group)).expand_dims(1)
    some = gl.broadcast(some, gl.full([GROUPS, rows // GROUPS, 16], 0, gl.int16, by_group))[0]
    return gl.convert_layout(gl.reshape(some, [rows, 16]), word.type.layout, assert_trivial=True)


@gluon.jit
def _dequant_gemm_dw_hopper_kernel(
    dy, words, params_desc, out_ptr, steps, CIN, COUT, splits, group_size,
    BITS: gl.constexpr,
):  # fmt: skip
    """A tile of dWᵀ from the steps of one split."""
    BLOCK_M: gl.constexpr = words.block_shape[1]
    BLOCK_N: gl.constexpr = dy.block_shape[1]
    OPERANDS: gl.constexpr = dy.block_shape[0] // 16  # of a step
    FIELDS: gl.constexpr = min(16 // BITS, OPERANDS)  # of a word, in a step
    PARTS: gl.constexpr = 16 // BITS // FIELDS  # steps a block
    HALF: gl.constexpr = dy.dtype == gl.float16
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_N, 16]
    )
    operand: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=2)

    s_dy = gl.allocate_shared_memory(dy.dtype, [DY_STAGES] + dy.block_shape, dy.layout)
    s_words = gl.allocate_shared_memory(words.dtype, [WORD_STAGES] + words.block_shape, words.layout)
    s_params = gl.allocate_shared_memory(
        dy.dtype, [WORD_STAGES] + params_desc.block_shape, params_desc.layout
    )
    ready = gl.allocate_shared_memory(gl.int64, [DY_STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(DY_STAGES):
        mbarrier.init(ready.index(i), count=1)

    tiles_m = gl.cdiv(CIN, BLOCK_M)
    tiles = tiles_m * gl.cdiv(COUT, BLOCK_N)
    split = gl.program_id(0) // tiles
    m = gl.program_id(0) % tiles % tiles_m * BLOCK_M
    n = gl.program_id(0) % tiles // tiles_m * BLOCK_N
    group = m // group_size
    first = steps * split // splits
    count = gl.maximum(steps * (split + 1) // splits - first, 1)  # where ptxas sees none, wgmma has to wait

    copies = (dy, words, params_desc, s_dy, s_words, s_params, ready)
    for i in gl.static_range(DY_STAGES - 1):
        _fetch(0, *copies, i, first, count, m, n, group, BITS)
        if i < WORD_STAGES - 1:
            _fetch(1, *copies, i, first, count, m, n, group, BITS)
            _fetch(2, *copies, i, first, count, m, n, group, BITS)
    acc = warpgroup_mma_init(gl.full([BLOCK_M, BLOCK_N], 0.0, gl.float32, mma))
    last = gl.full([BLOCK_M, 16], 0.0, dy.dtype, operand)
    last_but_one = last
    gl.static_assert(OPERANDS > 4)  # the loop asks for copies at j = 0, 1 and 4
    for turn in range(count):
        step = first + turn
        mbarrier.wait(ready.index(turn % DY_STAGES), turn // DY_STAGES & 1)
        dy_rows = s_dy.index(turn % DY_STAGES)
        words_blocks = s_words.index(turn % WORD_STAGES)
        params = s_params.index(turn % WORD_STAGES).reshape([params_desc.block_shape[0], 32 * OPERANDS])
        for j in gl.static_range(OPERANDS):
            if j % FIELDS == 0:  # [BLOCK_M, 16] words, transposed as they are loaded
                word = words_blocks.slice(16 * (j // FIELDS), 16).permute([1, 0]).load(operand)
                if PARTS > 1:
                    word = shift_right(word, step % PARTS * (FIELDS * BITS))
            # of a block, FIELDS times 16 scales and as many minima
            scale = _load_param(params, 16 * (j // FIELDS * 2 * FIELDS + j % FIELDS), word)
            minimum = _load_param(params, 16 * ((j // FIELDS * 2 + 1) * FIELDS + j % FIELDS), word)
            x = gl.inline_asm_elementwise(
                unpack_and_scale_asm(BITS, j % FIELDS, HALF), "=r,r,r,r",
                [word, scale, minimum], dtype=dy.dtype, is_pure=True, pack=2,
            )  # fmt: skip
            acc = warpgroup_mma(x, dy_rows.slice(16 * j, 16), acc, is_async=True)
            warpgroup_mma_wait(2, deps=[last_but_one])
            last_but_one = last
            last = x
            # At j = 0 every warp has unpacked the step before, at j = 2 multiplied it: its place is free.
            if j == 0:
                barrier()
                _fetch(1, *copies, turn + WORD_STAGES - 1, first, count, m, n, group, BITS)
            if j == 1:
                _fetch(2, *copies, turn + WORD_STAGES - 1, first, count, m, n, group, BITS)
            if j == 4:
                barrier()
                _fetch(0, *copies, turn + DY_STAGES - 1, first, count, m, n, group, BITS)
    acc, last, last_but_one = warpgroup_mma_wait(0, deps=[acc, last, last_but_one])

    offs_m = m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, mma))[:, None]
    offs_n = n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, mma))[None, :]
    out_ptr += split.to(gl.int64) * COUT * CIN
    mask = (offs_m < CIN) & (offs_n < COUT)
    gl.store(out_ptr + offs_n * CIN + offs_m, acc.to(out_ptr.dtype.element_ty), mask=mask)
