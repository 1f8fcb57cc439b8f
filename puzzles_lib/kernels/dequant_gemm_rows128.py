"""y = x @ ŵᵀ for up to 128 rows of x on Hopper GPUs: the weight is read once and unpacked once.

Written in Gluon, like `puzzles_lib.kernels.dequant_gemm_rows16`. What makes it fast:

- wgmma takes its left operand from registers, so unpacked weights never leave the lane that unpacked them. It
  takes its right operand from shared memory: x, in the same order as in memory, [M, K].
- wgmma gives a warp 16 rows of an operand. These are two fields of 8 rows of words, so no word is loaded
  twice.
- A tile is 32 rows of words, four fields of them, and all of x. K is split among programs until the
  multiprocessors are filled. A second kernel then adds the float32 sums of the splits, in order.
- Copies of words and x by TMA run two steps ahead.
- wgmma reads its operand's registers while it runs, so an operand is kept alive until `warpgroup_mma_wait`
  returns.
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
from triton.language.extra.cuda import gdc_launch_dependents

from puzzles_lib.kernels.common import add_splits, multiprocessors
from puzzles_lib.kernels.dequant_gemm_unpack import (
    SCALED,
    along,
    params_by_field,
    positions,
    scale_params,
    shift_right,
    spread,
    unpack_field,
)
from puzzles_lib.kernels.gluon_versions import barrier, copy_tile, seen_as

ROWS = 128  # of x, at most
WORD_ROWS, STEP = 32, 128  # of a tile; columns of a step
STAGES = gl.constexpr(3)  # steps that shared memory holds
HALF_STEP = gl.constexpr(64)  # columns unpacked at once, of one group
PARAMS = 32 << 10  # bytes of shared memory for params, at most
SWIZZLED = gl.NVMMASharedLayout(128, 16)


def fits(x: torch.Tensor, words: torch.Tensor, group_size: int) -> bool:
    """Return whether `launch` accepts these arguments.

    It needs a Hopper GPU, 16-bit floats, aligned rows, and groups that are a multiple of half a step.
    """
    rows, columns = x.shape
    grouped = group_size % HALF_STEP.value == 0 or group_size >= columns
    aligned = columns % 8 == 0 and x.data_ptr() % 16 == 0 and words.data_ptr() % 16 == 0  # as TMA wants
    possible = rows <= ROWS and x.dtype != torch.float32 and grouped and aligned
    return possible and torch.cuda.get_device_capability(x.device) == (9, 0)


def choose_splits(
    tiles: int, rows: int, columns: int, bits: int, group_size: int, multiprocessors: int
) -> tuple[int, int, int, int]:
    """Return splits of K, steps of each, columns that share params, and how many of these a split can touch.

    There are enough programs for all multiprocessors, with at least 512 columns each. More than one program
    runs on a multiprocessor: four up to 16 rows of x, two up to 64. That pays off with 1024 columns (512 for
    17 to 32 rows). The params of a split must fit into shared memory.
    """
    steps = triton.cdiv(columns, STEP)
    span = triton.next_power_of_2(columns) if group_size >= columns else group_size & -group_size
    room = PARAMS // (WORD_ROWS * 2 * min(16 // bits, 4) * 2)  # spans

    def touched(count: int) -> int:
        return triton.cdiv(count * STEP, span) + (splits > 1 and span > STEP)

    programs = (4 if rows <= 16 else 2 if rows <= 64 else 1) * multiprocessors
    least = 512 if 16 < rows <= 32 else 1024
    splits = max(min(multiprocessors // tiles, columns // 512), min(programs // tiles, columns // least), 1)
    while triton.next_power_of_2(touched(triton.cdiv(steps, splits))) > room:
        splits += 1
    count = triton.cdiv(steps, splits)
    splits = triton.cdiv(steps, count)  # none without a step
    return splits, count, span, triton.next_power_of_2(touched(count))


def launch(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, y: torch.Tensor, bits: int, group_size: int
) -> None:
    """Fill y [M, N] from a contiguous x [M, K]. `fits` must be true, and no size may be 0."""
    (rows, columns), features = x.shape, y.shape[1]
    fields = min(16 // bits, 4)
    tiles = triton.cdiv(words.shape[0], 2) * (16 // bits // fields)
    splits, count, span, spans = choose_splits(
        tiles, rows, columns, bits, group_size, multiprocessors(x.device)
    )
    sums = y if splits == 1 else y.new_empty(splits, rows, features, dtype=torch.float32)
    block_m = max(triton.next_power_of_2(rows), 16)
    _dequant_gemm_rows128_kernel[(tiles, splits)](
        TensorDescriptor.from_tensor(x, [block_m, STEP], SWIZZLED),
        TensorDescriptor.from_tensor(words.view(-1, columns), [WORD_ROWS, STEP], SWIZZLED),
        params, sums, rows, features, columns, words.shape[0], group_size, count,
        BITS=bits, FIELDS=fields, SPAN=span, SPANS=spans, SPLIT=splits > 1, num_warps=4,
    )  # fmt: skip
    if splits > 1:
        add_splits(sums, y, pdl=True)


# ---- layouts: which thread holds what


@gluon.constexpr_function
def _words_layout(columns):
    """[32, columns]: of every 16 a lane has columns 2t, 2t + 1, 2t + 8, 2t + 9 of a row, as by ldmatrix."""
    registers = [[0, 1], [0, 8]] + along(2, 1, columns, first=16)
    lanes = [[0, 2], [0, 4]] + along(2, 0, 8)
    return gl.DistributedLinearLayout(registers, lanes, along(2, 0, 32, first=8), [], [32, columns])


@gluon.constexpr_function
def _params_loaded(spans, fields):
    """[spans, 2, fields, 32]: a thread has 8 rows, 16 bytes."""
    rest = along(4, 3, 32, first=8) + along(4, 2, fields) + along(4, 1, 2) + along(4, 0, spans)
    return spread(along(4, 3, 8), rest, 4, [spans, 2, fields, 32])


@gluon.constexpr_function
def _params_used(numbers):
    """[32, numbers]: all numbers of a row, in the lanes that have the row's words."""
    lanes = [[0, 0], [0, 0]] + along(2, 0, 8)
    return gl.DistributedLinearLayout(
        along(2, 1, numbers), lanes, along(2, 0, 32, first=8), [], [32, numbers]
    )


# ---- the kernel


@gluon.jit
def _left_operand(field_0, field_1, layout: gl.constexpr):
    """Two fields [32, K], rows (warp, row), as [64, K], rows (warp, field, row). Moves nothing."""
    K: gl.constexpr = field_0.shape[1]
    both = gl.join(field_0, field_1).reshape([4, 8, K, 2]).permute([0, 3, 1, 2]).reshape([64, K])
    return gl.convert_layout(both, layout, assert_trivial=True)


@gluon.jit
def _fetch(x, words, s_x, s_words, ready, turn, count, first_row, first_k):
    """Start the copies of a step, if there is such a step."""
    wanted = turn < count
    stage = turn % STAGES
    bar = ready.index(stage)
    k = first_k + turn * x.block_shape[1]
    nbytes: gl.constexpr = x.block_type.nbytes + words.block_type.nbytes
    mbarrier.expect(bar, nbytes, pred=wanted)
    copy_tile(words, [first_row, k], bar, s_words.index(stage), pred=wanted)
    copy_tile(x, [0, k], bar, s_x.index(stage), pred=wanted)


@gluon.jit
def _load_params(
    s_params, params_ptr, tile, field, first_k, K, blocks, group_size,
    BITS: gl.constexpr, FIELDS: gl.constexpr, SPAN: gl.constexpr, CAREFUL: gl.constexpr,
):  # fmt: skip
    """Fill s_params [spans, 32, 2 · FIELDS] from column first_k on; which params need care."""
    SPANS: gl.constexpr = s_params.shape[0]
    AT_ONCE: gl.constexpr = SPANS if SPANS < 16 else 16
    ALL: gl.constexpr = 32 // BITS * 16  # params of a block and a group
    SHAPE: gl.constexpr = [AT_ONCE, 2, FIELDS, 32]
    layout: gl.constexpr = _params_loaded(AT_ONCE, FIELDS)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    kind, part = positions(1, SHAPE, layout), positions(2, SHAPE, layout)
    row = positions(3, SHAPE, layout)
    block = tile * 2 + row // 16
    in_block = kind * (ALL // 2) + (field + part) * 16 + row % 16
    all_rows = seen_as(s_params, [SPANS * 32, 2 * FIELDS], plain)
    odd = 0
    for first in gl.static_range(0, SPANS, AT_ONCE):
        k = (first_k // SPAN + first + positions(0, SHAPE, layout)) * SPAN
        place = ((k // group_size).to(gl.int64) * blocks + block) * ALL + in_block
        params = gl.load(params_ptr + place, mask=(k < K) & (block < blocks), other=1.0)
        if not CAREFUL:
            params, care = scale_params(params, kind == 0, part, BITS)  # 8 rows are 16 bytes
            odd |= care
        params = params.permute([0, 3, 2, 1]).reshape([AT_ONCE * 32, 2 * FIELDS])
        all_rows.slice(first * 32, AT_ONCE * 32).store(params)
    return odd


@gluon.jit
def _multiply(
    x, words, s_x, s_words, s_params, ready, count, first_row, first_k, field,
    BITS: gl.constexpr, FIELDS: gl.constexpr, SPAN: gl.constexpr, CAREFUL: gl.constexpr,
):  # fmt: skip
    """The sums [64, BLOCK_M, FIELDS / 2] of two fields each."""
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, x.block_shape[0], 16]
    )
    operand: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    OPERANDS: gl.constexpr = FIELDS // 2
    acc = warpgroup_mma_init(gl.full([64, x.block_shape[0]], 0.0, gl.float32, mma))
    accs = (acc,)
    if OPERANDS == 2:
        accs = (acc, warpgroup_mma_init(gl.full([64, x.block_shape[0]], 0.0, gl.float32, mma)))
    last = gl.full([64, HALF_STEP], 0.0, x.dtype, operand)
    for turn in range(count):
        stage = turn % STAGES
        mbarrier.wait(ready.index(stage), turn // STAGES & 1)
        for half in gl.static_range(x.block_shape[1] // HALF_STEP):
            word = s_words.index(stage).slice(half * HALF_STEP, HALF_STEP, dim=1)
            word = word.load(_words_layout(HALF_STEP))
            k = first_k + turn * x.block_shape[1] + half * HALF_STEP
            own = s_params.index(k // SPAN - first_k // SPAN).load(_params_used(2 * FIELDS))
            params = params_by_field(own, word)
            if FIELDS * BITS < 16:
                word = shift_right(word, field * BITS)
            right = s_x.index(stage).slice(half * HALF_STEP, HALF_STEP, dim=1).permute([1, 0])
            sums = ()
            for i in gl.static_range(OPERANDS):
                left = _left_operand(
                    unpack_field(word, params, 2 * i, BITS, CAREFUL),
                    unpack_field(word, params, 2 * i + 1, BITS, CAREFUL), operand,
                )  # fmt: skip
                sums = sums + (warpgroup_mma(left, right, accs[i], is_async=True),)
                warpgroup_mma_wait(1, deps=[last])
                last = left
                if half == 0 and i == 0:  # all warps have multiplied the step before: its place is free
                    barrier()
                    _fetch(x, words, s_x, s_words, ready, turn + STAGES - 1, count, first_row, first_k)
            accs = sums
    if OPERANDS == 2:
        acc_0, acc_1, last = warpgroup_mma_wait(0, deps=[accs[0], accs[1], last])
        return gl.join(acc_0, acc_1)
    else:
        acc_0, last = warpgroup_mma_wait(0, deps=[accs[0], last])
        return acc_0.reshape([64, acc_0.shape[1], 1])


@gluon.jit
def _dequant_gemm_rows128_kernel(
    x, words, params_ptr, out_ptr, M, N, K, blocks, group_size, count,
    BITS: gl.constexpr, FIELDS: gl.constexpr, SPAN: gl.constexpr, SPANS: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Some features of y: program (32 rows of words and FIELDS of their fields, share of K in steps)."""
    if SPLIT:
        gdc_launch_dependents()
    TURNS: gl.constexpr = 16 // BITS // FIELDS
    tile = gl.program_id(0) // TURNS
    field = gl.program_id(0) % TURNS * FIELDS
    split = gl.program_id(1)
    first_k = split * count * x.block_shape[1]
    s_x = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_shape, x.layout)
    s_words = gl.allocate_shared_memory(words.dtype, [STAGES] + words.block_shape, words.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
    s_params = gl.allocate_shared_memory(
        x.dtype, [SPANS, 32, 2 * FIELDS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    )
    for i in gl.static_range(STAGES - 1):
        _fetch(x, words, s_x, s_words, ready, i, count, tile * 32, first_k)
    params = (s_params, params_ptr, tile, field, first_k, K, blocks, group_size)
    begun = (x, words, s_x, s_words, s_params, ready, count, tile * 32, first_k, field)
    if x.dtype == gl.float16:
        _load_params(*params, BITS, FIELDS, SPAN, CAREFUL=True)
        sums = _multiply(*begun, BITS, FIELDS, SPAN, CAREFUL=True)
    else:
        odd = _load_params(*params, BITS, FIELDS, SPAN, CAREFUL=False)
        if gl.max(gl.ravel(odd), axis=0) > 0:  # rare
            _load_params(*params, BITS, FIELDS, SPAN, CAREFUL=True)
            sums = _multiply(*begun, BITS, FIELDS, SPAN, CAREFUL=True)
        else:
            sums = _multiply(*begun, BITS, FIELDS, SPAN, CAREFUL=False) * 2.0**SCALED
    layout: gl.constexpr = sums.type.layout
    row = positions(0, sums.shape, layout)
    offs_m = positions(1, sums.shape, layout)
    operand = positions(2, sums.shape, layout)
    word_row = row // 16 * 8 + row % 8  # of the tile; operand rows are (warp, field, row)
    offs_n = (tile * 2 + word_row // 16) * (256 // BITS) + word_row % 16
    offs_n += (field + operand * 2 + row // 8 % 2) * 16
    place = (split * M + offs_m).to(gl.int64) * N + offs_n
    gl.store(out_ptr + place, sums.to(out_ptr.dtype.element_ty), mask=(offs_n < N) & (offs_m < M))
