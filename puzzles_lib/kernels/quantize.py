"""Group-wise affine quantization of activations to 1, 2, 4 or 8 bits, packed down the columns.

A matrix x [K, C] is quantized in groups of ``group_size`` adjacent columns of one row. A group keeps its
minimum and a scale, and for each element a code:

    scale   = (max - min) · 1 / (2^bits - 1), rounded to x's dtype; 1 if the group is constant
    code    = round((x - min) / scale), ties to even, clamped to 0 .. 2^bits - 1
    x̂       = min + code · scale, rounded once

Codes are computed from the *stored* minimum and scale. Stochastic rounding takes the code above with a
probability that grows with the distance to the code below, so that x̂ is x on average (see
`puzzles_lib.kernels.rounding`).
Words are those of `puzzles_lib.kernels.bitpack`: blocks of 16 · (16 / bits) rows, packed down the columns. So
a matrix multiplication that walks along K unpacks them without passing a value between threads.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.bitpack import (
    WORD_ROWS,
    block_rows,
    check_bits,
    matrix_shape,
    pack_rows_ref,
    unpack_rows_ref,
)
from puzzles_lib.kernels.common import MAGIC, TINY, check_dtype, check_integer, maximum_with_nan
from puzzles_lib.kernels.rounding import (
    STOCHASTIC_REGISTERS,
    UNIT_FIELDS,
    UNIT_ROWS,
    as_seed,
    draw,
    draw_ref,
    draw_rows,
    fraction_bits,
    leading_one,
    lower_halves,
    noise,
    upper_halves,
)

_LEADING = tl.constexpr(0x4340)  # the upper half of `leading_one`, of fewer bits than 8
_PAIRS_REGISTERS = 128  # of a thread, at most, with stochastic rounding: as `STOCHASTIC_REGISTERS`


@dataclass(frozen=True)
class PackedTensor:
    """A quantized tensor, as `quantize_pack` returns it.

    It is stored as a matrix [K, C]. C is the tensor's last axis, and all other axes are flattened to K rows.

    words: int16 [blocks, 16, C], the codes of blocks of rows; see `puzzles_lib.kernels.bitpack`.
    params: scales and minima in the tensor's dtype, [groups, blocks, 2, rows of a block]: along the third
        axis, the scale is at 0 and the minimum at 1. Rows past K have scale 1 and minimum 0.
    bits: the number of bits of a code: 1, 2, 4 or 8.
    group_size: the number of adjacent elements of a row that share a scale and a minimum. The last group of a
        row may be shorter.
    shape, dtype: those of the tensor that was quantized.
    """

    words: torch.Tensor
    params: torch.Tensor
    bits: int
    group_size: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def scale(self) -> torch.Tensor:
        """The scales, [groups, blocks, rows of a block]: row k of group g is [g, k // rows, k % rows]."""
        return self.params[:, :, 0]

    @property
    def minimum(self) -> torch.Tensor:
        """The minima, [groups, blocks, rows of a block], as in `scale`."""
        return self.params[:, :, 1]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the packed tensor."""
        return self.words.nbytes + self.params.nbytes


def quantize_pack(
    x: torch.Tensor,
    bits: int,
    group_size: int = 256,
    *,
    rounding: str = "nearest",
    seed: int | torch.Tensor = 0,
    offset: int = 0,
) -> PackedTensor:
    """Quantize x in groups of ``group_size`` along its last axis, and pack the codes.

    Each group keeps its minimum and a scale, the step between codes: (maximum - minimum) / (2^bits - 1), both
    in x's dtype. `dequantize` returns x̂, which is code · scale + minimum.

    x: float32, float16 or bfloat16, of any shape with at least one axis. It need not be contiguous.
    bits: 1, 2, 4 or 8, the number of bits of a code.
    group_size: how many adjacent elements of a row share a scale and a minimum, at least 1. The last group of
        a row may be shorter.
    rounding: "nearest" or "stochastic". Stochastic rounds up with a probability equal to the distance to the
        code below (in steps between codes), and down otherwise. The mean of x̂ over many seeds is then x.
        Scales are rounded up, so that no x is outside the codes.
    seed, offset: choose the random numbers (Philox). An element's number depends only on them and on its
        place in x, so the codes are the same on any device and in any launch. seed is an integer of 64
        bits. For a seed that changes under `torch.compile` or in a CUDA graph, it is an int64 tensor of one
        element on x's device. Nearest rounding uses neither.

    If a group has a NaN or an infinity, all of its elements are NaN when dequantized. Other groups are not
    affected. A group whose scale rounds to 0 or is below 2^-126 counts as constant. In float16, a range wider
    than 65504 · (2^bits - 1) makes the scale infinite and its group NaN. Values next to the ends of float16's
    range may come back as infinities.

    Raises ValueError for any other ``bits`` or ``rounding``, for a group size below 1, for a scalar, and if
    ``seed`` or ``offset`` doesn't fit in 64 bits. Raises TypeError for another dtype, and if ``seed`` or
    ``offset`` is not an integer.
    """
    check_bits(bits)
    check_group_size(group_size)
    check_dtype("x", x)
    if x.dim() == 0:
        raise ValueError("x must have at least one axis, but is a scalar")
    check_integer("offset", offset)
    words, params = _quantize_pack(x, bits, group_size, as_seed(rounding, seed, x.device), offset)
    return PackedTensor(words, params, bits, group_size, tuple(x.shape), x.dtype)


def dequantize(packed: PackedTensor) -> torch.Tensor:
    """Return the tensor that the codes stand for. It has the original's shape and dtype, and is contiguous.

    Raises TypeError if ``packed`` is not a `PackedTensor`, and ValueError if its parts do not fit.
    """
    check_packed("packed", packed)
    return dequantize_words(packed.words, packed.params, packed.bits, packed.group_size, list(packed.shape))


def check_group_size(group_size: int) -> None:
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise ValueError(f"group_size must be an integer of at least 1, but is {group_size!r}")


def check_packed(name: str, packed: PackedTensor) -> None:
    """Raise TypeError or ValueError if the parts of a packed tensor do not fit together."""
    if not isinstance(packed, PackedTensor):
        raise TypeError(f"{name} must be a PackedTensor, not {type(packed).__name__}")
    check_bits(packed.bits)
    check_group_size(packed.group_size)
    check_dtype(f"{name}.words", packed.words, (torch.int16,))
    check_dtype(f"{name}.params", packed.params, (packed.dtype,))
    rows, columns = matrix_shape(packed.shape)
    words, params = storage_shapes(rows, columns, packed.bits, packed.group_size)
    for part, value, expected in (("words", packed.words, words), ("params", packed.params, params)):
        if tuple(value.shape) != expected:
            raise ValueError(f"{name}.{part} must have shape {expected}, but has shape {tuple(value.shape)}")
    if packed.words.device != packed.params.device:
        where = packed.words.device
        raise ValueError(
            f"{name}.params must be on the device of words, {where}, but is on {packed.params.device}"
        )


def storage_shapes(
    rows: int, columns: int, bits: int, group_size: int
) -> tuple[tuple[int, int, int], tuple[int, int, int, int]]:
    """Return the shapes of words and params for a matrix [rows, columns].

    Words (int16) are [blocks, rows of words, columns]. Params are [groups, blocks, 2, rows of a block].
    """
    blocks = (rows + block_rows(bits) - 1) // block_rows(bits)
    groups = (columns + group_size - 1) // group_size
    return (blocks, WORD_ROWS, columns), (groups, blocks, 2, block_rows(bits))


# ---- torch, the reference


def quantize_pack_ref(
    x: torch.Tensor, bits: int, group_size: int, seed: torch.Tensor | None = None, offset: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words and params of a matrix x [K, C]; with a seed, rounded stochastically."""
    rows, columns = x.shape
    words_shape, params_shape = storage_shapes(rows, columns, bits, group_size)
    if not x.numel():
        return x.new_zeros(words_shape, dtype=torch.int16), x.new_zeros(params_shape)
    levels = 2**bits - 1
    groups, blocks = params_shape[:2]
    rows = blocks * block_rows(bits)
    x = torch.cat([x, x.new_zeros(rows - x.shape[0], columns)])
    short = groups * group_size - columns  # columns that the last group lacks: repeat its last one
    padded = torch.cat([x, x[:, -1:].expand(rows, short)], 1).float().view(rows, groups, group_size)
    low, high = padded.amin(2), padded.amax(2)  # [K, groups]
    exact = (high - low) * (1 / levels)
    scale = exact.to(x.dtype)
    if seed is not None and x.dtype != torch.float32:  # up: positive floats are in the order of their bits
        above = (scale.view(torch.int16) + 1).view(x.dtype)
        scale = torch.where(scale.float() < exact, above, scale)
    scale = torch.where(scale.float() < TINY.value, 1.0, scale)
    inverse = torch.ones((), device=x.device) / scale.float()
    # In float64 the product is exact, so that it is rounded once, as by a fused multiply-add.
    exact = (padded - low[:, :, None]).double() * inverse.double()[:, :, None]
    if seed is None:
        exact = exact.round()
    else:
        steps = 2 ** fraction_bits(bits)  # that a code is counted in
        drawn = draw_ref(seed, offset, rows, columns, bits)
        drawn = torch.cat([drawn, drawn.new_zeros(rows, short)], 1).view(exact.shape)
        exact = exact * steps
        part = exact - exact.floor()
        odd = (exact.floor() + drawn) % 2 == 1  # a tie goes to the even sum, as that of a fused multiply-add
        up = (part > 0.5) | ((part == 0.5) & odd)
        exact = (exact.floor() + up + drawn).div(steps).floor()
    codes = exact.nan_to_num(0.0, levels, 0.0).clamp(0, levels).to(torch.uint8)
    codes = codes.view(rows, groups * group_size)[:, :columns]
    params = torch.stack([scale, low]).to(x.dtype).view(2, blocks, block_rows(bits), groups)
    params = params.permute(3, 1, 0, 2).contiguous()
    return pack_rows_ref(codes, bits), params


def dequantize_ref(
    words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, rows: int
) -> torch.Tensor:
    """Return the matrix [K, C] that words and params stand for, rounded once to the dtype of params."""
    columns = words.shape[2]
    codes = unpack_rows_ref(words, bits, rows)
    scale, low = params.permute(2, 1, 3, 0).flatten(1, 2)[:, :rows].double()  # [K, groups]
    group = torch.arange(columns, device=words.device) // group_size
    exact = codes.double() * scale[:, group] + low[:, group]
    return exact.float().to(params.dtype)


# ---- Triton


@triton.jit
def _minimum_with_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _quantize_pack_kernel(
    x_ptr, words_ptr, params_ptr, seed_ptr, K, C, blocks, offset,
    BITS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """ROWS rows of words, GROUPS groups of GROUP columns (WIDTH: that, up to a power of two).

    seed_ptr: None for nearest rounding.

    A thread holds the same 8 columns of all rows that share its words, STEP fields at a time: packing
    is a sum within the thread, and only minimum and maximum pass between threads.
    """
    FIELDS: tl.constexpr = 16 // BITS
    SPLIT: tl.constexpr = [STEP, ROWS, GROUPS, WIDTH]
    first = tl.program_id(0) * ROWS  # a row of words, counted over all blocks
    block = first // 16
    first_row = block.to(tl.int64) * (16 * FIELDS)
    rows = tl.arange(0, STEP)[:, None, None] * 16 + (first % 16 + tl.arange(0, ROWS))[None, :, None]
    lane = tl.arange(0, GROUPS * WIDTH)[None, None, :]  # [1, 1, GROUPS * WIDTH]
    offs_c = (tl.program_id(1) * GROUPS + lane // WIDTH) * GROUP + lane % WIDTH
    in_group = (lane % WIDTH < GROUP) & (offs_c < C)
    offs_g = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)[None, None, :]  # [1, 1, GROUPS]
    exists = offs_g * GROUP < C
    param = params_ptr + (offs_g.to(tl.int64) * blocks + block) * (2 * 16 * FIELDS) + rows
    x_ptr += first_row * C
    rows_left = K - first_row
    words, spoilt = quantize_rows(
        x_ptr, param, seed_ptr, offset, first, rows, offs_c, in_group, exists, rows_left, C,
        BITS, SPLIT, EVEN, CAREFUL=False,
    )  # fmt: skip
    if tl.max(tl.max(spoilt, 1), 0) > 0:  # rare: cheaper than a check of every code
        words, spoilt = quantize_rows(
            x_ptr, param, seed_ptr, offset, first, rows, offs_c, in_group, exists, rows_left, C,
            BITS, SPLIT, EVEN, CAREFUL=True,
        )  # fmt: skip
    place = words_ptr + first.to(tl.int64) * C + (tl.arange(0, ROWS)[None, :, None] * C + offs_c)
    words = tl.reshape(words, [1, ROWS, GROUPS * WIDTH]).to(tl.int16)
    if EVEN:
        tl.store(place, words)
    else:
        tl.store(place, words, mask=in_group)


@triton.jit
def quantize_rows(
    x_ptr, param, seed_ptr, offset, first, rows, offs_c, in_group, exists, rows_left, C,
    BITS: tl.constexpr, SPLIT: tl.constexpr, EVEN: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """Store the params. Return the words, and [ROWS, GROUPS] with a 1 if a group had a NaN or an infinity.

    In such a group a code is NaN, and its bits spill into the fields of other rows unless CAREFUL.
    """
    FIELDS: tl.constexpr = 16 // BITS
    STEP: tl.constexpr = SPLIT[0]
    words = tl.zeros(SPLIT[1:], tl.int32)
    zero = tl.zeros(SPLIT[1:3], tl.float32)  # sum of 0 · scale: NaN if a scale isn't finite
    if seed_ptr is not None:
        drawn_low, drawn_high = draw(seed_ptr, offset, first, offs_c, BITS)
    # Not unrolled: that would take twice the registers.
    for step in tl.range(0, FIELDS, STEP, num_stages=1 if CAREFUL or SPLIT[3] > 1024 else 3):
        row = rows + step * 16
        if EVEN:
            x = tl.load(x_ptr + (row * C + offs_c)).to(tl.float32)  # [STEP, ROWS, GROUPS * WIDTH]
            low_x, high_x = x, x
        else:
            mask = (row < rows_left) & in_group
            x = tl.load(x_ptr + (row * C + offs_c), mask=mask, other=0.0).to(tl.float32)
            low_x, high_x = tl.where(in_group, x, float("inf")), tl.where(in_group, x, float("-inf"))
        added = None if seed_ptr is None else noise(drawn_low, drawn_high, first, step, BITS, SPLIT)
        fields, scale, low = encode(
            x, low_x, high_x, added, step, BITS, SPLIT, param.dtype.element_ty, CAREFUL
        )
        tl.store(param + step * 16, scale, mask=exists)
        tl.store(param + step * 16 + 16 * FIELDS, low, mask=exists)
        zero += tl.sum(scale * 0.0, axis=0)
        words += fields
    return words, tl.where(zero == 0, 0, 1)


@triton.jit
def encode(
    x, low_x, high_x, added, step,
    BITS: tl.constexpr, SPLIT: tl.constexpr, DTYPE: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """Return STEP fields of words [ROWS, GROUPS, WIDTH] from ``step``; scales, minima [STEP, ROWS, GROUPS].

    x: float32 [STEP, ROWS, GROUPS * WIDTH]. low_x, high_x: x, with infinities where an element must not count
    for the minimum or the maximum. added: from `noise`, or None for nearest rounding.
    """
    low = tl.reduce(tl.reshape(low_x, SPLIT), 3, _minimum_with_nan)  # [STEP, ROWS, GROUPS]
    high = tl.reduce(tl.reshape(high_x, SPLIT), 3, maximum_with_nan)
    scale = _scale_of(low, high, added is not None, BITS, DTYPE)
    inverse = tl.broadcast_to(tl.div_rn(1.0, scale)[:, :, :, None], SPLIT)
    distance = tl.reshape(x, SPLIT) - low[:, :, :, None]
    return _fields_of(distance, inverse, added, step, BITS, SPLIT, DTYPE, CAREFUL), scale, low


@triton.jit
def _scale_of(low, high, UP: tl.constexpr, BITS: tl.constexpr, DTYPE: tl.constexpr):
    """Return the scale as stored, in float32. UP: never round down, so that no x is above the last code."""
    LEVELS: tl.constexpr = (1 << BITS) - 1
    exact = (high - low) * (1.0 / LEVELS)
    scale = exact.to(DTYPE)
    if UP and DTYPE != tl.float32:  # positive floats are in the order of their bits
        above = (scale.to(tl.int16, bitcast=True) + 1).to(tl.int16).to(DTYPE, bitcast=True)
        scale = tl.where(scale.to(tl.float32) < exact, above, scale)
    return tl.where(scale.to(tl.float32) < TINY, 1.0, scale.to(tl.float32))


@triton.jit
def _fields_of(
    distance, inverse, added, step,
    BITS: tl.constexpr, SPLIT: tl.constexpr, DTYPE: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """The codes of distance · inverse, [STEP, ...], in their places from field ``step`` on: [...]."""
    LEVELS: tl.constexpr = (1 << BITS) - 1
    shift = BITS * (step + tl.arange(0, SPLIT[0]))[:, None, None, None]
    if added is None:
        code = tl.fma(distance, inverse, MAGIC)
        if CAREFUL:
            code = tl.maximum(code, MAGIC)  # 0 for NaN
        # A scale rounded down leads past the top: in bfloat16 at 8 bits, in float16 where it is subnormal.
        if BITS == 8 or DTYPE == tl.float16:
            code = tl.minimum(code, MAGIC + LEVELS)
        # The low 16 bits of MAGIC's pattern are 0: what is left there is the code.
        fields = tl.sum(code.to(tl.int32, bitcast=True) << shift, axis=0)
    else:
        # What is added is a float whose last bits are a fraction of a code: the sum, cut, is the code.
        ONE: tl.constexpr = leading_one(BITS)
        code = tl.fma(distance, inverse, tl.reshape(added, SPLIT))
        if CAREFUL:
            code = tl.maximum(code, ONE)
        if BITS == 8:  # the top code and almost 1 is rounded to one more
            code = tl.minimum(code, ONE + 255.99993896484375)
        fields = (code.to(tl.int32, bitcast=True) & (LEVELS << fraction_bits(BITS))) << shift
        fields = tl.sum(fields, axis=0) >> fraction_bits(BITS)
    return fields


# ---- two adjacent values of 16 bits at a time


@triton.jit
def _quantize_pairs_kernel(
    x_ptr, words_ptr, params_ptr, seed_ptr, C, blocks, offset,
    BITS: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Like `_quantize_pack_kernel`, for whole blocks of rows and whole groups of WIDTH columns.

    A program has the `draw_rows` rows of words that share a call of Philox. It handles ROWS of them and STEP
    of their fields at a time. A lane has four even columns and the odd columns that follow them. One
    instruction finds the minima or maxima of both, and a minimum and a maximum are passed between threads as
    one value. The words of two columns are also one value: a code is half of a float, and two such halves are
    shifted and added as one integer. Programs count columns first, so that programs at the same time write
    whole rows of words.
    """
    FIELDS: tl.constexpr = 16 // BITS
    LEVELS: tl.constexpr = (1 << BITS) - 1
    PARTS: tl.constexpr = FIELDS // STEP
    DTYPE: tl.constexpr = params_ptr.dtype.element_ty
    HALF: tl.constexpr = [STEP, ROWS, GROUPS, WIDTH // 2]
    CLIP: tl.constexpr = seed_ptr is None and (BITS == 8 or DTYPE == tl.float16)  # see `_fields_of`
    across = C // (GROUPS * WIDTH)
    first = tl.program_id(0) // across * draw_rows(BITS)  # a row of words, counted over all blocks
    pid_c = tl.program_id(0) % across
    block = first // 16
    rows = tl.arange(0, STEP)[:, None, None] * 16 + (first % 16 + tl.arange(0, ROWS))[None, :, None]
    offs_g = pid_c * GROUPS + tl.arange(0, GROUPS)[None, None, :]
    offs = pid_c * (GROUPS * WIDTH // 2) + tl.arange(0, GROUPS * WIDTH // 2)[None, None, :]
    source = x_ptr.to(tl.pointer_type(tl.int32)) + block.to(tl.int64) * (16 * FIELDS) * (C // 2) + offs
    place = words_ptr.to(tl.pointer_type(tl.int32)) + first.to(tl.int64) * (C // 2)
    place += tl.arange(0, ROWS)[None, :, None] * (C // 2) + offs
    param = params_ptr + (offs_g.to(tl.int64) * blocks + block) * (2 * 16 * FIELDS) + rows
    words = tl.zeros(HALF[1:], tl.int32)  # of two columns each
    largest = tl.zeros([GROUPS], tl.float32)  # scale, or what it is made of
    if seed_ptr is not None:
        even_low, even_high = draw(seed_ptr, offset, first, 2 * offs, BITS)
        odd_low, odd_high = draw(seed_ptr, offset, first, 2 * offs + 1, BITS)
    for turn in tl.range(0, draw_rows(BITS) // ROWS * PARTS, num_stages=3):
        row = turn // PARTS * ROWS
        step = (PARTS - 1 - turn % PARTS) * STEP  # from the top, since a shift is of all that is there
        pairs = tl.load(source + (rows + (step * 16 + row)) * (C // 2))
        low, high = _ends(tl.reshape(pairs, HALF), DTYPE)  # [STEP, ROWS, GROUPS]
        if seed_ptr is not None and DTYPE == tl.bfloat16:
            seen = (high - low) * (1.0 / LEVELS)
            scale = _up_to_bf16(seen)
        else:
            scale = _scale_of(low, high, seed_ptr is not None, BITS, DTYPE)
            seen = scale
        inverse = tl.broadcast_to(_reciprocal(scale)[:, :, :, None], HALF)
        even, odd = _floats(tl.reshape(pairs, HALF), DTYPE)
        even, odd = even - low[:, :, :, None], odd - low[:, :, :, None]
        if seed_ptr is not None:
            more = noise(even_low, even_high, first + row, step, BITS, HALF, HALVES=True)
            other = noise(odd_low, odd_high, first + row, step, BITS, HALF, HALVES=True)
            even = tl.fma(even, inverse, tl.reshape(more, HALF))
            odd = tl.fma(odd, inverse, tl.reshape(other, HALF))
            codes = _cut(even, odd, BITS)
        else:
            even, odd = tl.fma(even, inverse, MAGIC), tl.fma(odd, inverse, MAGIC)
            if CLIP:
                even, odd = tl.minimum(even, MAGIC + LEVELS), tl.minimum(odd, MAGIC + LEVELS)
            codes = lower_halves(even.to(tl.int32, bitcast=True), odd.to(tl.int32, bitcast=True))
        words = tl.where(step == (PARTS - 1) * STEP, 0, words << (BITS * STEP))
        words += tl.sum(codes << (BITS * tl.arange(0, STEP))[:, None, None, None], axis=0)
        tl.store(param + (step * 16 + row), scale)
        tl.store(param + (step * 16 + row) + 16 * FIELDS, low)
        highest = tl.reduce(tl.reduce(seen, 0, maximum_with_nan), 0, maximum_with_nan)
        largest = maximum_with_nan(largest, highest)
        if step == 0:
            whole = words if seed_ptr is None else words - _beside_codes(BITS)
            tl.store(place + row * (C // 2), tl.reshape(whole, [1, ROWS, GROUPS * WIDTH // 2]))
    # Rare: a NaN, an infinity, or a scale whose inverse may be no normal number.
    if tl.max(tl.where(largest < 2.0**124, 0, 1), 0) > 0:
        tl.debug_barrier()
        first_param = params_ptr + (offs_g.to(tl.int64) * blocks + block) * (2 * 16 * FIELDS)
        offs_c = (pid_c * (GROUPS * WIDTH) + tl.arange(0, GROUPS * WIDTH))[None, None, :]
        x_ptr += block.to(tl.int64) * (16 * FIELDS) * C
        for own in tl.range(0, draw_rows(BITS), num_stages=1):
            fields = tl.arange(0, 2)[:, None, None] * 16  # two at a time
            careful, _ = quantize_rows(
                x_ptr, first_param + (fields + (first + own) % 16), seed_ptr, offset, first + own,
                fields + (first + own) % 16, offs_c, None, offs_g * WIDTH < C, 0, C,
                BITS, [2, 1, GROUPS, WIDTH], EVEN=True, CAREFUL=True,
            )  # fmt: skip
            where = words_ptr + (first + own).to(tl.int64) * C + offs_c
            tl.store(where, tl.reshape(careful, [1, 1, GROUPS * WIDTH]).to(tl.int16))


@triton.jit
def _ends(pairs, DTYPE: tl.constexpr):
    """Minimum and maximum along the last axis, in float32; NaN where it has one."""
    # A thread's own four pairs first, even and odd columns apart.
    own = tl.reshape(pairs, [pairs.shape[0], pairs.shape[1], pairs.shape[2], pairs.shape[3] // 4, 4])
    low = tl.reduce(own, 4, _least_bf16 if DTYPE == tl.bfloat16 else _least_f16)
    high = tl.reduce(own, 4, _most_bf16 if DTYPE == tl.bfloat16 else _most_f16)
    # From here on a pair is a minimum and a maximum, that one with its sign changed.
    high ^= -0x7FFF8000  # both signs
    of_even, of_odd = lower_halves(low, high), upper_halves(low, high)
    if DTYPE == tl.bfloat16:
        ends = tl.reduce(_least_bf16(of_even, of_odd), 3, _least_bf16)
    else:
        ends = tl.reduce(_least_f16(of_even, of_odd), 3, _least_f16)
    low, high = _floats(ends, DTYPE)
    return low, _minus(high)


@triton.constexpr_function
def _beside_codes(bits):
    """What `_cut` leaves beside the codes, summed over all fields of two words."""
    in_word = 0 if bits == 8 else _LEADING * (0xFFFF // (2**bits - 1))
    return (in_word * 0x10001 + 2**31) % 2**32 - 2**31


@triton.jit
def _cut(even, odd, BITS: tl.constexpr):
    """The codes of sums with `noise`, in the halves of one integer, beside `_LEADING`."""
    ONE: tl.constexpr = leading_one(BITS)
    if BITS == 8:  # see `_fields_of`
        even = _add_down(tl.minimum(even, ONE + 255.99993896484375), MAGIC - ONE)
        odd = _add_down(tl.minimum(odd, ONE + 255.99993896484375), MAGIC - ONE)
        return lower_halves(even.to(tl.int32, bitcast=True), odd.to(tl.int32, bitcast=True))
    return upper_halves(even.to(tl.int32, bitcast=True), odd.to(tl.int32, bitcast=True))


@triton.jit
def _add_down(a, b):
    """a + b, rounded down."""
    return tl.inline_asm_elementwise("add.rm.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, True, 1)


@triton.jit
def _floats(pairs, DTYPE: tl.constexpr):
    """The even ones and the odd ones, in float32."""
    if DTYPE == tl.bfloat16:  # the upper half of a float32
        even = (pairs << 16).to(tl.float32, bitcast=True)
        odd = (pairs & -0x10000).to(tl.float32, bitcast=True)
    else:
        even = pairs.to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
        odd = (pairs >> 16).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
    return even, odd


@triton.jit
def _least_bf16(a, b):
    return tl.inline_asm_elementwise("min.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], tl.int32, True, 1)


@triton.jit
def _most_bf16(a, b):
    return tl.inline_asm_elementwise("max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], tl.int32, True, 1)


@triton.jit
def _least_f16(a, b):
    return tl.inline_asm_elementwise("min.NaN.f16x2 $0, $1, $2;", "=r,r,r", [a, b], tl.int32, True, 1)


@triton.jit
def _most_f16(a, b):
    return tl.inline_asm_elementwise("max.NaN.f16x2 $0, $1, $2;", "=r,r,r", [a, b], tl.int32, True, 1)


@triton.jit
def _up_to_bf16(exact):
    """`_scale_of` with UP of a number, not NaN: its upper half, one more where the lower one is not 0."""
    scale = ((exact.to(tl.int32, bitcast=True) + 0xFFFF) & -0x10000).to(tl.float32, bitcast=True)
    return tl.where(scale < TINY, 1.0, scale)


@triton.jit
def _reciprocal(x):
    """1 / x rounded once, for x from 2^-126 up to 2^125: what a division does there, without its branches."""
    near = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    return tl.fma(near, tl.fma(_minus(x), near, 1.0), near)


@triton.jit
def _minus(x):
    """-x. Triton subtracts from 0, which is an instruction; a change of sign is part of the next one."""
    return tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def _dequantize_kernel(
    words_ptr, params_ptr, x_ptr, K, C, blocks,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Dequantize the rows whose fields share ROWS rows of words.

    Programs count columns first, so that programs at the same time write adjacent memory: 4% more bandwidth.
    """
    FIELDS: tl.constexpr = 16 // BITS
    across = tl.cdiv(C, BLOCK_C)
    first = tl.program_id(0) // across * ROWS  # a row of words, counted over all blocks
    block = first // 16
    first_row = block.to(tl.int64) * (16 * FIELDS)
    offs_j = tl.arange(0, FIELDS)[:, None, None]  # [FIELDS, 1, 1]
    offs_r = tl.arange(0, ROWS)[None, :, None]  # [1, ROWS, 1]
    offs_c = tl.program_id(0) % across * BLOCK_C + tl.arange(0, BLOCK_C)[None, None, :]  # [1, 1, BLOCK_C]
    rows = offs_j * 16 + first % 16 + offs_r  # [FIELDS, ROWS, 1]
    inside = offs_c < C
    source = words_ptr + first.to(tl.int64) * C + (offs_r * C + offs_c)  # [1, ROWS, BLOCK_C]
    param = params_ptr + ((offs_c // GROUP).to(tl.int64) * blocks + block) * (2 * 16 * FIELDS) + rows
    if EVEN:
        words, scale, low = tl.load(source), tl.load(param), tl.load(param + 16 * FIELDS)
    else:
        words = tl.load(source, mask=inside, other=0)
        scale = tl.load(param, mask=inside, other=0.0)
        low = tl.load(param + 16 * FIELDS, mask=inside, other=0.0)
    code = (words.to(tl.int32) >> (BITS * offs_j)) & ((1 << BITS) - 1)  # [FIELDS, ROWS, BLOCK_C]
    x = tl.fma(code.to(tl.float32), scale.to(tl.float32), low.to(tl.float32))
    where = x_ptr + first_row * C + (rows * C + offs_c)
    if EVEN:
        tl.store(where, x, cache_modifier=".cs")  # not read soon: leave the cache to the params
    else:
        tl.store(where, x, mask=inside & (rows < K - first_row))


# ---- the operators that torch knows


def _quantize_pack_now(
    x: torch.Tensor, bits: int, group_size: int, seed: torch.Tensor | None = None, offset: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    key = (x.dtype, x.shape, bits, group_size)
    if x.is_cuda and key in _shapes and x.is_contiguous():
        rows, columns, group_size, words_shape, params_shape = _shapes[key]
        words, params = launching.empty(x, words_shape, torch.int16), launching.empty(x, params_shape)
        with launching.on_device_of(x):
            _start_quantizing(x, words, params, rows, columns, bits, group_size, seed, offset)
        return words, params
    rows, columns = matrix_shape(x.shape)
    group_size = min(group_size, max(columns, 1))
    if x.dim() != 2 or not x.is_contiguous():
        x = x.reshape(rows, columns).contiguous()
    if not x.is_cuda:
        return quantize_pack_ref(x, bits, group_size, seed, offset)
    words, params = empty_storage(x, bits, group_size)
    if rows and columns:
        with launching.on_device_of(x):
            launch_quantize_pack(x, words, params, bits, group_size, seed, offset)
        if len(_shapes) < launching.MOST:
            _shapes[key] = (rows, columns, group_size, words.shape, params.shape)
    return words, params


_shapes: dict[tuple, tuple] = {}  # of a matrix, its words and params, and the size of its groups


_quantize_pack = torch.library.custom_op("bit_by_bit::quantize_pack", _quantize_pack_now, mutates_args=())
_quantize_pack_inside = launching.inside("quantize_pack", _quantize_pack, _quantize_pack_now)


def quantize_unchecked(
    x: torch.Tensor, bits: int, group_size: int, seed: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words and params as `quantize_pack` makes them. The arguments are not checked."""
    return launching.run(_quantize_pack, _quantize_pack_inside, _quantize_pack_now, x, bits, group_size, seed)


def empty_storage(
    x: torch.Tensor, bits: int, group_size: int, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return uninitialized words (int16) and params for a matrix like x; see `storage_shapes`.

    dtype: the dtype of params; x's own by default.
    """
    rows, columns = matrix_shape(x.shape)
    words_shape, params_shape = storage_shapes(rows, columns, bits, min(group_size, max(columns, 1)))
    return launching.empty(x, words_shape, torch.int16), launching.empty(x, params_shape, dtype)


def launch_quantize_pack(
    x: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> None:
    """Fill words and params, shaped as in `storage_shapes`, from a matrix x [K, C]."""
    rows, columns = x.shape
    _start_quantizing(x, words, params, rows, columns, bits, group_size, seed, offset)


def _start_quantizing(
    x: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    rows: int,
    columns: int,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None,
    offset: int,
) -> None:
    key = ("quantize", x.dtype, rows, columns, bits, group_size, seed is None, offset)
    kernel = _quantize_pack_kernel
    if _comes_in_pairs(rows, columns, bits, group_size) and _read_in_pairs(x):
        kernel, key = _quantize_pairs_kernel, ("pairs", *key)
    tensors = (x, words, params, seed)
    launching.launch(
        kernel, key, tensors, lambda: _quantize_launch(kernel, rows, columns, bits, group_size, seed, offset)
    )


def _quantize_launch(
    kernel: triton.JITFunction,
    rows: int,
    columns: int,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None,
    offset: int,
) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]:
    """Return the grid, the numbers and the options for one of the two kernels."""
    blocks = triton.cdiv(rows, block_rows(bits))
    width = triton.next_power_of_2(group_size)
    groups = max(1, 256 // width)
    num_warps = min(max(1, width // 256), 32)
    if kernel is _quantize_pairs_kernel:
        grid = (blocks * WORD_ROWS // draw_rows(bits) * (columns // (groups * group_size)),)
        # Small groups have many scales: those of two rows of words are adjacent, and stored as one.
        fields = min(UNIT_FIELDS[bits] if width < 128 else 8, 16 // bits)
        return grid, (columns, blocks, offset), {
            "BITS": bits, "WIDTH": width, "GROUPS": groups, "STEP": fields, "ROWS": 8 // fields,
            "num_warps": num_warps, "maxnreg": None if seed is None else _PAIRS_REGISTERS,
        }  # fmt: skip
    word_rows, step = (2, 2) if seed is None else (UNIT_ROWS[bits], UNIT_FIELDS[bits])
    if width > 4096:
        word_rows = step = 1  # long groups are held in few rows
    grid = (blocks * WORD_ROWS // word_rows, triton.cdiv(columns, groups * group_size))
    return grid, (rows, columns, blocks, offset), {
        "BITS": bits, "GROUP": group_size, "WIDTH": width, "GROUPS": groups, "ROWS": word_rows, "STEP": step,
        "EVEN": _is_even(rows, columns, bits, group_size), "num_warps": num_warps,
        "maxnreg": STOCHASTIC_REGISTERS if seed is not None and width <= 1024 else None,
    }  # fmt: skip


def _is_even(rows: int, columns: int, bits: int, group_size: int) -> bool:
    """Whether a matrix has whole blocks of rows, and whole groups, of a power of two, for each program."""
    width = triton.next_power_of_2(group_size)
    fills = columns % (max(1, 256 // width) * group_size) == 0
    return rows % block_rows(bits) == 0 and fills and width == group_size


@lru_cache(4096)
def _comes_in_pairs(rows: int, columns: int, bits: int, group_size: int) -> bool:
    return 32 <= group_size <= 2048 and _is_even(rows, columns, bits, group_size)


def _read_in_pairs(x: torch.Tensor) -> bool:
    """Return whether x can be read two elements at a time, as NVIDIA's GPUs can from sm_80 on."""
    return x.is_cuda and x.element_size() == 2 and x.data_ptr() % 16 == 0 and _has_pairs(x.get_device())


@lru_cache
def _has_pairs(device: int) -> bool:
    return not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)


@_quantize_pack.register_fake
def _(
    x: torch.Tensor, bits: int, group_size: int, seed: torch.Tensor | None = None, offset: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    return empty_storage(x, bits, group_size)


def _dequantize_now(
    words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, shape: list[int]
) -> torch.Tensor:
    rows, columns = matrix_shape(shape)
    words, params = words.contiguous(), params.contiguous()
    if not words.is_cuda:
        return dequantize_ref(words, params, bits, group_size, rows).view(shape)
    x = launching.empty(params, (rows, columns))
    if x.numel():
        with launching.on_device_of(x):
            launch_dequantize(words, params, x, bits, group_size)
    return x if len(shape) == 2 else x.view(shape)


# `dequantize` of a `PackedTensor` in its parts, as a torch operator takes them.
dequantize_words = torch.library.custom_op("bit_by_bit::dequantize", _dequantize_now, mutates_args=())
_dequantize_words_inside = launching.inside("dequantize", dequantize_words, _dequantize_now)


def dequantize_unchecked(
    words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, shape: list[int]
) -> torch.Tensor:
    """Return what `dequantize_words` returns, without the operator around it if possible."""
    return launching.run(
        dequantize_words, _dequantize_words_inside, _dequantize_now, words, params, bits, group_size, shape
    )


def launch_dequantize(
    words: torch.Tensor, params: torch.Tensor, x: torch.Tensor, bits: int, group_size: int
) -> None:
    """Fill a matrix x [K, C] from words and params, shaped as in `storage_shapes`."""

    def prepare() -> tuple:
        _, grid, arguments, options = dequantize_launch(words, params, x, bits, group_size)
        numbers = {name: value for name, value in arguments.items() if not name.endswith("_ptr")}
        return grid, (), {**numbers, **options}

    key = ("dequantize", x.dtype, *x.shape, bits, group_size)
    launching.launch(_dequantize_kernel, key, (words, params, x), prepare)


def dequantize_launch(
    words: torch.Tensor, params: torch.Tensor, x: torch.Tensor, bits: int, group_size: int
) -> tuple[triton.JITFunction, tuple[int], dict[str, object], dict[str, int]]:
    """Return the kernel of `launch_dequantize`, its grid, its arguments and its options."""
    (rows, columns), blocks = x.shape, words.shape[0]
    word_rows = max(1, bits // 4)
    even = rows % block_rows(bits) == 0 and columns % 256 == 0
    grid = (blocks * WORD_ROWS // word_rows * triton.cdiv(columns, 256),)
    arguments = {
        "words_ptr": words, "params_ptr": params, "x_ptr": x, "K": rows, "C": columns, "blocks": blocks,
        "BITS": bits, "GROUP": group_size, "BLOCK_C": 256, "ROWS": word_rows, "EVEN": even,
    }  # fmt: skip
    return _dequantize_kernel, grid, arguments, {"num_warps": 2}


@dequantize_words.register_fake
def _(
    words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, shape: list[int]
) -> torch.Tensor:
    return params.new_empty(shape)
