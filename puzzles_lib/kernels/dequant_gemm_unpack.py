"""Helpers of the kernels of `dequant_gemm`: they turn words into floats in a few instructions.

The bits of a code by themselves are a subnormal bfloat16: with the code's lowest bit at ``position``, it is
code · 2^(position - 133). That also holds for bits 0 to 7, because an exponent of 1 has the scale of a
subnormal. If scales and minima were multiplied by powers of two before, one `and` and one multiply-add unpack
and scale two codes:

    w · 2^-16 = (word & mask) · (scale · 2^(117 - position)) + minimum · 2^-16

The float32 sums are multiplied by 2^16 at the end. All of it is exact except for the one rounding of w. The
only exception is a param that is so large or so small that its power of two does not fit. `scale_params`
finds these params. A program that has one multiplies unscaled params and unpacks with `unpack_and_scale_asm`,
which is always exact. float16 has no room for scaling, so all its programs unpack like that.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SCALED = gl.constexpr(16)  # log2 of what products are divided by meanwhile


@gluon.constexpr_function
def unpack_and_scale_asm(bits, field, half):
    """Return PTX that turns two codes of a field, in the halves of a register, into two scaled floats.

    bits: those of a code. field: its number in the int16 word of each half. half: float16, else bfloat16.
    $1: the words, $2 and $3: scales and minima, $0: code · scale + minimum.

    A code's bits in the mantissa of a constant 2^m read as 2^m + code · 2^position. If there are enough bits,
    fma gets the exact code out of that. Otherwise (a bfloat16 has seven), the bits alone are a subnormal,
    code · 2^(position - 133), and one or two powers of two turn it into the code.
    """
    both = 0x10001  # times this: the same in both halves
    position = 0 if bits == 4 and not half else bits * field % 8
    shift = bits * field - position
    fields = both * (((1 << bits) - 1) << position)
    mantissa, bias = (10, 15) if half else (7, 127)
    fma = "fma.rn.f16x2" if half else "fma.rn.bf16x2"
    text = f"{{ .reg .b32 w, a, b; shr.u32 w, $1, {shift}; "
    if position + bits <= mantissa:
        one = (bias + mantissa) << mantissa  # 2^m, whose last bit stands for 1
        text += f"lop3.b32 w, w, {fields:#x}, {both * one:#x}, 0xEA; "  # (w & fields) | 2^m
        text += f"mov.b32 a, {both * ((bias - position) << mantissa):#x}; "  # 2^-position
        text += f"mov.b32 b, {both * (0x8000 + one - (position << mantissa)):#x}; "  # -2^(m - position)
        text += f"{fma} w, w, a, b; "
    else:
        text += f"and.b32 w, w, {fields:#x}; mov.b32 b, {both * 0x8000:#x}; "  # -0
        power = 133 - position
        for part in [power] if power <= 127 else [127, power - 127]:
            text += f"mov.b32 a, {both * ((127 + part) << 7):#x}; {fma} w, w, a, b; "
    return text + f"{fma} $0, w, $2, $3; }}"  # code · scale + minimum, rounded once


@gluon.constexpr_function
def unpack_scaled_asm(bits, field):
    """Return PTX like `unpack_and_scale_asm` for bfloat16, with params from `scale_params`: w · 2^-SCALED."""
    position = bits * field % 8
    mask = 0x10001 * (((1 << bits) - 1) << position)
    text = f"{{ .reg .b32 w; shr.u32 w, $1, {bits * field - position}; and.b32 w, w, {mask:#x}; "
    return text + "fma.rn.bf16x2 $0, w, $2, $3; }"


@gluon.constexpr_function
def unpack_asm(bits, field, half, careful):
    """Return the PTX for a field: the careful one, or the one for scaled params."""
    if half or careful:
        return unpack_and_scale_asm(bits, field, half)
    return unpack_scaled_asm(bits, field)


@gluon.jit
def unpack_field(words, params, field: gl.constexpr, BITS: gl.constexpr, CAREFUL: gl.constexpr):
    """Return the floats of a field of words.

    params: a scale and a minimum for each field, in turn, from field 0 on.
    """
    scale, minimum = params[2 * field], params[2 * field + 1]
    return gl.inline_asm_elementwise(
        unpack_asm(BITS, field, scale.dtype == gl.float16, CAREFUL), "=r,r,r,r",
        [words, scale, minimum], dtype=scale.dtype, is_pure=True, pack=2,
    )  # fmt: skip


# Of two params at once: $0 scaled by $3, and in $1 bits for one that needs care. That is one which does not
# survive being made 2^40 times smaller, or is no finite number once it is scaled.
_SCALE = gl.constexpr("""{
    .reg .b32 none, power, back, exponent;
    mov.b32 none, 0x80008000;  // -0, which added to anything leaves it as it is
    fma.rn.bf16x2 $0, $2, $3, none;
    mov.b32 power, 0x2b802b80;  // 2^-40
    fma.rn.bf16x2 back, $2, power, none;
    mov.b32 power, 0x53805380;  // 2^40
    fma.rn.bf16x2 back, back, power, none;
    xor.b32 back, back, $2;
    and.b32 exponent, $0, 0x7fff7fff;
    add.u32 exponent, exponent, 0x00800080;  // carries into the sign's place from an exponent of all ones
    and.b32 exponent, exponent, 0x80008000;
    or.b32 $1, back, exponent;
}""")


@gluon.jit
def _or(a, b):
    return a | b


@gluon.jit
def scale_params(params, is_scale, field, BITS: gl.constexpr):
    """Return bfloat16 params as `unpack_scaled_asm` needs them, and a 1 for each 8 of which one needs care.

    is_scale, field: those of each element, broadcast. Params that need no care are multiples of 2^-93, and so
    is any w. Such a w is 0 or far above the least normal number, even when it is divided by 2^16. So it is
    rounded in the same way.
    """
    scale_up = 127 + 133 - SCALED - field * BITS % 8  # the exponent of 2^(117 - position)
    power = gl.where(is_scale, scale_up, 127 - SCALED) << 7
    power = gl.broadcast(power.to(gl.int16).to(gl.bfloat16, bitcast=True), params)[0]
    scaled, odd = gl.inline_asm_elementwise(
        _SCALE, "=&r,=&r,r,r", [params, power], dtype=(params.dtype, gl.int16), is_pure=True, pack=2
    )
    LAST: gl.constexpr = len(odd.shape) - 1
    odd = gl.reduce(odd.reshape(odd.shape[:-1] + [odd.shape[LAST] // 8, 8]), LAST + 1, _or)
    return scaled, gl.where(odd != 0, 1, 0)


@gluon.jit
def params_by_field(params, like):
    """Return a tuple with a scale and a minimum per field, each shaped like ``like``, [..., k].

    params: [..., 2 · FIELDS], with a field's scale and minimum side by side in the last axis. Nothing moves,
    because a lane has its own rows' params.
    """
    FIELDS: gl.constexpr = params.shape[len(params.shape) - 1] // 2
    LAST: gl.constexpr = len(params.shape) - 1
    LEAD: gl.constexpr = params.shape[:-1]
    scale, minimum = gl.split(params.reshape(LEAD + [FIELDS, 2]))
    if FIELDS == 2:
        scale_0, scale_1 = gl.split(scale)
        minimum_0, minimum_1 = gl.split(minimum)
        some = (scale_0, minimum_0, scale_1, minimum_1)
    else:
        gl.static_assert(FIELDS == 4)
        even, odd = gl.split(scale.reshape(LEAD + [2, 2]))
        scale_0, scale_2 = gl.split(even)
        scale_1, scale_3 = gl.split(odd)
        even, odd = gl.split(minimum.reshape(LEAD + [2, 2]))
        minimum_0, minimum_2 = gl.split(even)
        minimum_1, minimum_3 = gl.split(odd)
        some = (scale_0, minimum_0, scale_1, minimum_1, scale_2, minimum_2, scale_3, minimum_3)
    rows: gl.constexpr = gl.SliceLayout(LAST, like.type.layout)
    out = ()
    for i in gl.static_range(2 * FIELDS):
        own = gl.convert_layout(some[i], rows, assert_trivial=True)
        out = out + (gl.broadcast(gl.expand_dims(own, LAST), like)[0],)
    return out


@gluon.jit
def shift_right(word, distance):
    """Shift both halves of a register at once. The lower half then has bits of the upper one at its top."""
    distance = gl.full(word.shape, 1, gl.int16, word.type.layout) * distance.to(gl.int16)
    text: gl.constexpr = "{ .reg .b32 d; and.b32 d, $2, 255; shr.u32 $0, $1, d; }"
    return gl.inline_asm_elementwise(text, "=r,r,r", [word, distance], dtype=gl.int16, is_pure=True, pack=2)


def group_shift(group_size: int, columns: int) -> int:
    """Return log2 of the columns that share params, for `group_of`; -1 if that is not a power of two."""
    if group_size >= columns:
        return (columns - 1).bit_length()
    return group_size.bit_length() - 1 if group_size & (group_size - 1) == 0 else -1


@gluon.jit
def group_of(k, group_size, SHIFT: gl.constexpr):
    """Return the number of a column's group, without a slow division if `group_shift` gives a shift."""
    if SHIFT >= 0:
        return k >> SHIFT
    else:
        return k // group_size


@gluon.constexpr_function
def along(rank, dim, size, first=1):
    """Return the bases of a linear layout that walk ``size`` elements of a dimension, by ``first``."""
    bases = []
    while first < size:
        bases.append([first if axis == dim else 0 for axis in range(rank)])
        first *= 2
    return bases


@gluon.constexpr_function
def spread(registers, rest, warps, shape):
    """Return a linear layout: ``registers`` per thread; lanes, warps, then registers take ``rest``."""
    count = 5 + warps.bit_length() - 1
    rest = rest + [[0] * len(shape)] * (count - len(rest))
    return gl.DistributedLinearLayout(registers + rest[count:], rest[:5], rest[5:count], [], shape)


@gluon.constexpr_function
def _along_axis(axis, rank, layout):
    """The layout of one axis of a tensor: that of a vector which `positions` expands."""
    for other in reversed(range(rank)):
        if other != axis:
            layout = gl.SliceLayout(other, layout)
    return layout


@gluon.jit
def positions(axis: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
    """Return 0, 1, .. along an axis of a tensor of this shape and layout; the other axes get size 1."""
    RANK: gl.constexpr = len(shape)
    at = gl.arange(0, shape[axis], _along_axis(axis, RANK, layout))
    for other in gl.static_range(RANK):
        if other != axis:
            at = gl.expand_dims(at, other)
    return at
