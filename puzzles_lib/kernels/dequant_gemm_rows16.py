"""y = x @ ŵᵀ for up to 16 rows of x: the time is that of reading the packed weight once.

Written in Gluon, the language under Triton, where the author chooses the layouts. What makes it fast:

- A word never leaves the lane that loads it. The matrix unit (mma.sync, m16n8k16) expects k = 2t, 2t + 1,
  2t + 8 and 2t + 9 of a row from a lane. But the order of k in a sum is free. So a lane passes the 8 adjacent
  k of one 16-byte load, and x in the same order. That needs no shared memory, no shuffle and no barrier.
- The 16 rows of an operand are two fields of the same 8 rows of words, so no word is loaded twice.
- A program has 8 rows of words and all of K, split over its warps. From N = 4096 on, two programs per block
  of words fill the multiprocessors without a second kernel. The warps exchange their sums once, at the end.
  Then a thread adds the sums of one element, in order.
- Params are loaded once, 16 bytes per lane. They pass through shared memory, where a lane finds everything
  that it needs for a step side by side.
- Two codes are unpacked in two instructions (`puzzles_lib.kernels.dequant_gemm_unpack`).
- Words are loaded two or four steps ahead, and x one step ahead. The loop over K is unrolled.
"""

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from puzzles_lib.kernels.bitpack import block_rows
from puzzles_lib.kernels.common import add_splits, multiprocessors, overlapped
from puzzles_lib.kernels.dequant_gemm_unpack import (
    SCALED,
    along,
    group_of,
    group_shift,
    params_by_field,
    positions,
    scale_params,
    shift_right,
    spread,
    unpack_field,
)

ROWS = 16  # of x, at most, in a program
STEPS = 24  # of a program, at most: they are unrolled, and their params lie in shared memory
SPLITS = 64  # of K, at most
WORD_ROWS = gl.constexpr(8)  # of a program


@dataclass(frozen=True)
class Cut:
    """How a product is divided: fields of a word, warps, columns of a warp's step, shares of K, and steps.

    ahead: how many steps before their use words are loaded.
    """

    fields: int
    warps: int
    columns: int
    splits: int
    steps: int
    ahead: int


def fits(x: torch.Tensor, group_size: int) -> bool:
    """Return whether `launch` accepts these: Ampere or later, 16-bit floats, whole steps, a short K."""
    grouped = group_size % 32 == 0 or group_size >= x.shape[1]
    possible = x.dtype != torch.float32 and grouped and x.shape[1] <= SPLITS * STEPS * 8 * 32
    return possible and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (8, 0)


def choose_cut(
    rows: int, features: int, columns: int, bits: int, group_size: int, multiprocessors: int
) -> Cut:
    """Return how to divide a shape among programs, as measured on an H200."""
    fields = min(16 // bits, 4)
    programs = triton.cdiv(features, block_rows(bits)) * (16 // WORD_ROWS.value) * (16 // bits // fields)
    programs *= triton.cdiv(rows, ROWS)
    warps = 16 if programs <= multiprocessors else 8  # else two programs per multiprocessor
    step = 64 if group_size % 64 == 0 or group_size >= columns else 32
    splits = 1
    if 2 * programs <= multiprocessors:
        splits = max(min(multiprocessors // programs, columns // 1024), 1)
    splits = max(splits, triton.cdiv(columns, STEPS * warps * step))
    steps = triton.cdiv(columns, splits * warps * step)
    splits = triton.cdiv(columns, steps * warps * step)  # none without a column
    return Cut(fields, warps, step, splits, steps, ahead=2 if warps == 16 else 4)


def launch(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, y: torch.Tensor, bits: int, group_size: int
) -> None:
    """Fill y [M, N] from a contiguous x [M, K] for which `fits` holds; no size is 0."""
    (rows, columns), features = x.shape, y.shape[1]
    cut = choose_cut(rows, features, columns, bits, group_size, multiprocessors(x.device))
    step = cut.warps * cut.columns  # of a program
    whole = cut.steps if columns == cut.splits * cut.steps * step else cut.steps - 1
    pdl = torch.cuda.get_device_capability(x.device) >= (9, 0)
    sums = y if cut.splits == 1 else y.new_empty(cut.splits, rows, features, dtype=torch.float32)
    tiles = words.shape[0] * (16 // WORD_ROWS.value) * (16 // bits // cut.fields)
    unit = 8 if columns % 8 == 0 else 1
    block_m = 8 if rows <= 8 else ROWS
    _dequant_gemm_rows16_kernel[(tiles, cut.splits, triton.cdiv(rows, block_m))](
        x, words, params, sums, rows, features, columns // unit, words.shape[0], group_size,
        BITS=bits, FIELDS=cut.fields, COLUMNS=cut.columns, STEPS=cut.steps, AHEAD=cut.ahead,
        WHOLE=whole if cut.splits == 1 or whole == cut.steps else 0,
        BLOCK_M=block_m, UNIT=unit, SHIFT=group_shift(group_size, columns), PDL=pdl,
        num_warps=cut.warps, maxnreg=128, **overlapped(pdl),
    )  # fmt: skip
    if cut.splits > 1:
        add_splits(sums, y, pdl)


# ---- layouts: which thread holds what


@gluon.constexpr_function
def _words_layout(warps, columns):
    """[warps, WORD_ROWS, columns]: a lane has 8 adjacent columns of every 32, of one row."""
    registers = along(3, 2, 8) + along(3, 2, columns, first=32)
    lanes = [[0, 0, 8], [0, 0, 16]] + along(3, 1, 8)
    return gl.DistributedLinearLayout(registers, lanes, along(3, 0, warps), [], [warps, 8, columns])


@gluon.constexpr_function
def _x_layout(warps, rows, columns):
    """[warps, rows, columns]: as the words, a row of x in the place of a row of words."""
    registers = along(3, 2, 8) + along(3, 2, columns, first=32) + along(3, 1, rows, first=8)
    lanes = [[0, 0, 8], [0, 0, 16]] + along(3, 1, 8)
    return gl.DistributedLinearLayout(registers, lanes, along(3, 0, warps), [], [warps, rows, columns])


@gluon.constexpr_function
def _params_loaded(slots, warps, fields):
    """[slots, warps, 2, fields, WORD_ROWS]: a thread has 8 rows, 16 bytes."""
    rest = along(5, 3, fields) + along(5, 2, 2) + along(5, 1, warps) + along(5, 0, slots)
    return spread(along(5, 4, 8), rest, warps, [slots, warps, 2, fields, 8])


@gluon.constexpr_function
def _params_used(warps, numbers):
    """[warps, WORD_ROWS, numbers]: all numbers of a row, in the lanes that have the row's words."""
    lanes = [[0, 0, 0], [0, 0, 0]] + along(3, 1, 8)
    return gl.DistributedLinearLayout(
        along(3, 2, numbers), lanes, along(3, 0, warps), [], [warps, 8, numbers]
    )


@gluon.constexpr_function
def _sums_layout(warps, rows, operands):
    """[warps, 16, rows, operands]: a thread has the sums of all warps for its elements."""
    rest = along(4, 1, 16) + along(4, 3, operands) + along(4, 2, rows)
    return spread(along(4, 0, warps), rest, warps, [warps, 16, rows, operands])


# ---- the kernel


@gluon.jit
def _left_operand(field_0, field_1, layout: gl.constexpr):
    """Two fields [W, 8, K] as [W, 16, K]: rows (field, row), k = 8t + 2q + p as 8q + 2t + p. None moves."""
    W: gl.constexpr = field_0.shape[0]
    K: gl.constexpr = field_0.shape[2]
    both = gl.join(field_0, field_1).reshape([W, 8, K // 32, 4, 4, 2, 2])
    both = both.permute([0, 6, 1, 2, 4, 3, 5]).reshape([W, 16, K])
    return gl.convert_layout(both, layout, assert_trivial=True)


@gluon.jit
def _right_operand(x, layout: gl.constexpr):
    """x [W, rows, K] as [W, K, rows], k in the same order. Moves nothing."""
    W: gl.constexpr = x.shape[0]
    ROWS: gl.constexpr = x.shape[1]
    K: gl.constexpr = x.shape[2]
    x = x.reshape([W, ROWS, K // 32, 4, 4, 2]).permute([0, 2, 4, 3, 5, 1]).reshape([W, K, ROWS])
    return gl.convert_layout(x, layout, assert_trivial=True)


@gluon.jit
def _load(ptrs, k, left, step: gl.constexpr, SPAN: gl.constexpr, WHOLE: gl.constexpr, HINT: gl.constexpr):
    """The elements of a step, SPAN columns after the one before, 0 from ``left`` on; k: those of step 0."""
    if step < WHOLE:
        return gl.load(ptrs + step * SPAN, eviction_policy=HINT)
    else:
        return gl.load(ptrs + step * SPAN, mask=k < left - step * SPAN, other=0, eviction_policy=HINT)


@gluon.jit
def _load_params(
    s_params, params_ptr, tile, field, first_k, K, blocks, group_size,
    BITS: gl.constexpr, FIELDS: gl.constexpr, COLUMNS: gl.constexpr, SHIFT: gl.constexpr,
    CAREFUL: gl.constexpr,
):  # fmt: skip
    """Fill s_params [steps · warps, WORD_ROWS, 2 · FIELDS]; which params need care."""
    W: gl.constexpr = gl.num_warps()
    SHAPE: gl.constexpr = [s_params.shape[0] // W, W, 2, FIELDS, WORD_ROWS]
    ALL: gl.constexpr = 32 // BITS * 16  # params of a block and a group
    layout: gl.constexpr = _params_loaded(SHAPE[0], W, FIELDS)
    step, warp = positions(0, SHAPE, layout), positions(1, SHAPE, layout)
    kind, part = positions(2, SHAPE, layout), positions(3, SHAPE, layout)
    k = first_k + (step * W + warp) * COLUMNS
    block = group_of(k, group_size, SHIFT).to(gl.int64) * blocks + tile // (16 // WORD_ROWS)
    in_block = kind * (ALL // 2) + (field + part) * 16 + positions(4, SHAPE, layout)
    params_ptr += tile % (16 // WORD_ROWS) * WORD_ROWS
    params = gl.load(params_ptr + (block * ALL + in_block), mask=k < K, other=1.0)
    if CAREFUL:
        s_params.store(params.permute([0, 1, 4, 3, 2]).reshape(s_params.shape))
    else:
        params, odd = scale_params(params, kind == 0, part, BITS)
        s_params.store(params.permute([0, 1, 4, 3, 2]).reshape(s_params.shape))
        return odd


@gluon.constexpr_function
def _next_power_of_2(n):
    return 1 << (n - 1).bit_length()


@gluon.jit
def _products(
    word, x, s_params, field, acc_0, acc_1, BITS: gl.constexpr, FIELDS: gl.constexpr, CAREFUL: gl.constexpr
):
    """The sums of fields 0 and 1, and of 2 and 3, if there are such, with a step's products added."""
    mma: gl.constexpr = acc_0.type.layout
    right = _right_operand(x, gl.DotOperandLayout(1, mma, 2))
    params = params_by_field(s_params.load(_params_used(word.shape[0], 2 * FIELDS)), word)
    if FIELDS * BITS < 16:
        word = shift_right(word, field * BITS)
    w_0, w_1 = unpack_field(word, params, 0, BITS, CAREFUL), unpack_field(word, params, 1, BITS, CAREFUL)
    acc_0 = mma_v2(_left_operand(w_0, w_1, gl.DotOperandLayout(0, mma, 2)), right, acc_0)
    if FIELDS == 4:
        w_2, w_3 = unpack_field(word, params, 2, BITS, CAREFUL), unpack_field(word, params, 3, BITS, CAREFUL)
        acc_1 = mma_v2(_left_operand(w_2, w_3, gl.DotOperandLayout(0, mma, 2)), right, acc_1)
    return acc_0, acc_1


@gluon.jit
def _both(acc_0, acc_1, FIELDS: gl.constexpr):
    """The sums [W, 16, BLOCK_M, FIELDS / 2]."""
    if FIELDS == 4:
        return gl.join(acc_0, acc_1)
    else:
        return acc_0.reshape([acc_0.shape[0], 16, acc_0.shape[2], 1])


@gluon.jit
def _multiply(
    words_ptrs, words_k, words, x_ptrs, x_k, x, s_params, left, field,
    BITS: gl.constexpr, FIELDS: gl.constexpr, SPAN: gl.constexpr, STEPS: gl.constexpr, AHEAD: gl.constexpr,
    WHOLE: gl.constexpr, CAREFUL: gl.constexpr,
):  # fmt: skip
    """The sums of each warp, from all steps. words, x: those asked for already."""
    W: gl.constexpr = x.shape[0]
    acc_0 = _no_sums(W, x.shape[1])
    acc_1 = acc_0
    for step in gl.static_range(STEPS):
        word = words[0]
        words = words[1:]
        if step + AHEAD < STEPS:
            words = words + (_load(words_ptrs, words_k, left, step + AHEAD, SPAN, WHOLE, "evict_first"),)
        now = x
        if step + 1 < STEPS:
            x = _load(x_ptrs, x_k, left, step + 1, SPAN, WHOLE, "")
        own = s_params.slice(step * W, W)
        acc_0, acc_1 = _products(word, now, own, field, acc_0, acc_1, BITS, FIELDS, CAREFUL)
    return _both(acc_0, acc_1, FIELDS)


@gluon.jit
def _multiply_carefully(
    words_ptrs, words_k, x_ptrs, x_k, s_params, params_ptr, tile, field, first_k, K, blocks, group_size,
    BITS: gl.constexpr, FIELDS: gl.constexpr, SPAN: gl.constexpr, STEPS: gl.constexpr, SHIFT: gl.constexpr,
):  # fmt: skip
    """As `_multiply`, for any params, and in little code rather than in little time."""
    W: gl.constexpr = x_ptrs.shape[0]
    acc_0 = _no_sums(W, x_ptrs.shape[1])
    acc_1 = acc_0
    own = s_params.slice(0, W)
    for step in range(STEPS):
        done = step * SPAN
        _load_params(
            own, params_ptr, tile, field, first_k + done, K, blocks, group_size,
            BITS, FIELDS, SPAN // W, SHIFT, CAREFUL=True,
        )  # fmt: skip
        word = gl.load(words_ptrs + done, mask=words_k < K - first_k - done, other=0)
        x = gl.load(x_ptrs + done, mask=x_k < K - first_k - done, other=0)
        acc_0, acc_1 = _products(word, x, own, field, acc_0, acc_1, BITS, FIELDS, True)
    return _both(acc_0, acc_1, FIELDS)


@gluon.jit
def _store(out_ptr, tile, field, split, first_m, M, N, sums, BITS: gl.constexpr):
    """Add the sums of the warps, and store them."""
    W: gl.constexpr = sums.shape[0]
    y = gl.sum(gl.convert_layout(sums, _sums_layout(W, sums.shape[2], sums.shape[3])), axis=0)
    layout: gl.constexpr = y.type.layout
    row, operand = positions(0, y.shape, layout), positions(2, y.shape, layout)
    offs_m = first_m + positions(1, y.shape, layout)
    first_n = tile // (16 // WORD_ROWS) * (256 // BITS) + tile % (16 // WORD_ROWS) * WORD_ROWS + field * 16
    offs_n = first_n + (operand * 32 + row // 8 * 16 + row % 8)
    place = (split * M + offs_m).to(gl.int64) * N + offs_n
    gl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=(offs_n < N) & (offs_m < M))


@gluon.jit
def _places(
    words_ptr, x_ptr, tile, first_m, first_k, M, K, BLOCK_M: gl.constexpr, COLUMNS: gl.constexpr
):  # fmt: skip
    """Pointers to a program's words and its rows of x in step 0, and their columns."""
    W: gl.constexpr = gl.num_warps()
    SHAPE: gl.constexpr = [W, WORD_ROWS, COLUMNS]
    words_layout: gl.constexpr = _words_layout(W, COLUMNS)
    row = positions(1, SHAPE, words_layout)
    words_k = positions(0, SHAPE, words_layout) * COLUMNS + positions(2, SHAPE, words_layout)
    words_k += row * 0  # [W, WORD_ROWS, COLUMNS]
    words_ptrs = words_ptr + (tile.to(gl.int64) * WORD_ROWS * K + first_k) + (row * K + words_k)
    X_SHAPE: gl.constexpr = [W, BLOCK_M, COLUMNS]
    x_layout: gl.constexpr = _x_layout(W, BLOCK_M, COLUMNS)
    row = positions(1, X_SHAPE, x_layout)
    x_k = positions(0, X_SHAPE, x_layout) * COLUMNS + positions(2, X_SHAPE, x_layout)
    x_k += row * 0  # [W, BLOCK_M, COLUMNS]
    row = gl.minimum(first_m + row, M - 1)  # past the last: the last again, for what is not stored
    return words_ptrs, words_k, x_ptr + first_k + (row.to(gl.int64) * K + x_k), x_k


@gluon.jit
def _zero():
    """0, which the compiler takes for any number: what it is part of is made anew, not kept in registers."""
    return gl.inline_asm_elementwise("mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _no_sums(W: gl.constexpr, BLOCK_M: gl.constexpr):
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[W, 1, 1], instr_shape=[1, 16, 8]
    )
    return gl.zeros([W, 16, BLOCK_M], gl.float32, mma)


@gluon.jit
def _dequant_gemm_rows16_kernel(
    x_ptr, words_ptr, params_ptr, out_ptr, M, N, units, blocks, group_size,
    BITS: gl.constexpr, FIELDS: gl.constexpr, COLUMNS: gl.constexpr, STEPS: gl.constexpr, AHEAD: gl.constexpr,
    WHOLE: gl.constexpr, BLOCK_M: gl.constexpr, UNIT: gl.constexpr, SHIFT: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """Some features of y: program (8 rows of words and FIELDS of their fields, share of K, rows of x).

    K is units · UNIT. WHOLE: the number of steps that end before K does.
    """
    W: gl.constexpr = gl.num_warps()
    SPAN: gl.constexpr = W * COLUMNS
    TURNS: gl.constexpr = 16 // BITS // FIELDS
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    K = units * UNIT
    tile = gl.program_id(0) // TURNS
    field = gl.program_id(0) % TURNS * FIELDS
    split = gl.program_id(1)
    first_m = gl.program_id(2) * BLOCK_M
    first_k = split * (STEPS * SPAN)
    left = K - first_k

    words_ptrs, words_k, x_ptrs, x_k = _places(
        words_ptr, x_ptr, tile, first_m, first_k, M, K, BLOCK_M, COLUMNS
    )
    words = ()
    for step in gl.static_range(AHEAD):
        if step < STEPS:
            words = words + (_load(words_ptrs, words_k, left, step, SPAN, WHOLE, "evict_first"),)
    x = _load(x_ptrs, x_k, left, 0, SPAN, WHOLE, "")

    s_params = gl.allocate_shared_memory(
        x.dtype,
        [_next_power_of_2(STEPS) * W, WORD_ROWS, 2 * FIELDS],
        gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0]),
    )
    params = (s_params, params_ptr, tile, field, first_k, K, blocks, group_size)
    asked = (words_ptrs, words_k, words, x_ptrs, x_k, x, s_params, left, field)
    out = (out_ptr, tile, field, split, first_m, M, N)
    if x.dtype == gl.float16:
        _load_params(*params, BITS, FIELDS, COLUMNS, SHIFT, CAREFUL=True)
        _store(*out, _multiply(*asked, BITS, FIELDS, SPAN, STEPS, AHEAD, WHOLE, CAREFUL=True), BITS)
    else:
        odd = _load_params(*params, BITS, FIELDS, COLUMNS, SHIFT, CAREFUL=False)
        sums = _multiply(*asked, BITS, FIELDS, SPAN, STEPS, AHEAD, WHOLE, CAREFUL=False)
        _store(*out, sums * 2.0**SCALED, BITS)
        if gl.max(gl.ravel(odd), axis=0) > 0:  # rare, and found out while what is stored is under way
            begun = _places(
                words_ptr, x_ptr, tile, first_m, first_k + _zero() * COLUMNS, M, K, BLOCK_M, COLUMNS
            )
            sums = _multiply_carefully(*begun, *params, BITS, FIELDS, SPAN, STEPS, SHIFT)
            _store(*out, sums, BITS)  # by the same threads
