"""ReLU, GELU and SiLU that keep their slope in a few bits, and their output packed for a linear layer.

Backward of an activation y = f(h) needs only its slope f'(h), as a factor. ReLU's slope is 0 or 1: one bit.
The slopes of GELU and SiLU are between -0.13 and 1.13. They are kept as codes of a fixed grid. The grid
contains 0 and 1, so dead and saturated elements are exact ("few-bit backward", Novikov et al., 2022,
arXiv:2202.00441, with a grid of equal steps). With 4 and 8 bits the highest code is the slope NaN, for an h
that is NaN or infinite, as in torch. 1 and 2 bits have no code to spare for NaN:

    slope bits   slope of a code   error, at most
    1            code              0.5; ReLU: 0
    2            code / 3          1/6
    4            (code - 2) / 11   1/22
    8            (code - 27) / 200 1/400

Slopes are bytes with ``8 / slope_bits`` elements each in row-major order, the first in the lowest bits. With
one bit they are the mask of `puzzles_lib.kernels.packed_relu`. The last byte is filled up with zeros.

`activation_quantize_` does everything between an MLP's two products in one pass that reads h once. It makes
f(h), its slopes, and the codes of f(h), packed for the second layer's weight gradient.
"""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.bitpack import WORD_ROWS, block_rows, check_bits, matrix_shape
from puzzles_lib.kernels.common import MAGIC, check_dtype
from puzzles_lib.kernels.quantize import (
    check_group_size,
    empty_storage,
    encode,
    launch_quantize_pack,
    quantize_pack_ref,
    quantize_rows,
)
from puzzles_lib.kernels.rounding import UNIT_FIELDS, UNIT_ROWS, draw, noise

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
ZERO = {1: 0, 2: 0, 4: 2, 8: 27}  # the code of slope 0, by slope bits
STEPS = {1: 1, 2: 3, 4: 11, 8: 200}  # codes from slope 0 to slope 1
BLOCK, COLUMNS, ROWS = 2048, 1024, 128  # of a program: elements, or columns and rows
AT_ONCE = 4  # rows in flight in `activation_backward_`
STAGES = 3  # of `activation_quantize_`, as what follows
RELU = {1: (1, 8, 256), 2: (2, 4, 1024), 4: (2, 2, 512)}  # by bits: rows of words, fields at once, columns
SMOOTH = (2, 2, 256)  # of GELU and SiLU


def check_activation(activation: str, slope_bits: int) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be relu, gelu, gelu_tanh or silu, but is {activation!r}")
    check_bits(slope_bits, "slope_bits")
    if activation == "relu" and slope_bits != 1:
        raise ValueError(f"slope_bits must be 1 for relu, but is {slope_bits}")


def activation_pack(x: torch.Tensor, activation: str, slope_bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the activation y of x, and its slopes in ``slope_bits`` bits per element.

    x: any shape, float32, float16 or bfloat16; non-contiguous and empty tensors are accepted.
    activation: relu, gelu (by erf), gelu_tanh (its approximation) or silu. y is torch's, except for rounding:
        to about 1e-7 of its size before it is rounded to x's dtype. Returns y (shape and dtype of x,
        contiguous) and the slopes (uint8). The slope of NaN and of infinities is NaN with 4 and 8 bits, and
        some number with 1 and 2.

    Raises TypeError for another dtype, and ValueError for another activation or other bits.
    """
    check_dtype("x", x)
    check_activation(activation, slope_bits)
    return _activation_pack(x, activation, slope_bits)


def activation_backward(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    """Return the gradient of x: dy times the slope, with shape and dtype of dy, contiguous.

    With 1 bit it is dy or 0, even if dy is NaN.
    Raises TypeError for another dtype, and ValueError if slopes and dy do not fit or are on two devices.
    """
    check_slopes(dy, slopes, slope_bits)
    return _activation_backward(dy, slopes, slope_bits)


def activation_quantize_(
    h: torch.Tensor,
    activation: str,
    slope_bits: int,
    bits: int,
    group_size: int = 256,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Replace h by its activation y in one pass. Return the slopes, and the words and params of y.

    The results are bit for bit those of `activation_pack` and then
    `puzzles_lib.kernels.quantize.quantize_pack`. h is contiguous and has no gradient. With a seed (int64, of
    one element) the codes are rounded stochastically.

    On a GPU this takes one kernel if groups are powers of two from 8 to 4096 and h's columns are a multiple
    of the group and of 256. Otherwise it takes two. Raises the errors of these two functions, and ValueError
    if h is not contiguous.
    """
    check_dtype("h", h)
    check_activation(activation, slope_bits)
    check_bits(bits)
    check_group_size(group_size)
    if h.dim() == 0 or not h.is_contiguous():
        raise ValueError("h must be a contiguous tensor with at least one axis")
    return _activation_quantize_(h, activation, slope_bits, bits, group_size, seed, offset)


def activation_backward_(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    """Replace dy [..., C] by the gradient of x in one pass. Return its sum over all rows, [C].

    That sum is in float32 and in a fixed order. It is the gradient of the bias before the activation. Raises
    the errors of `activation_backward`, and ValueError if dy is not contiguous.
    """
    check_slopes(dy, slopes, slope_bits)
    if dy.dim() == 0 or not dy.is_contiguous():
        raise ValueError("dy must be a contiguous tensor with at least one axis")
    return _activation_backward_(dy, slopes, slope_bits)


def check_slopes(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> None:
    check_dtype("dy", dy)
    check_bits(slope_bits, "slope_bits")
    if not isinstance(slopes, torch.Tensor) or slopes.dtype != torch.uint8:
        what = getattr(slopes, "dtype", type(slopes).__name__)
        raise TypeError(f"slopes must be torch.uint8, but is {what}")
    expected = (slope_bytes(dy.numel(), slope_bits),)
    if tuple(slopes.shape) != expected:
        text = f"slopes must have shape {expected} for {dy.numel()} elements of {slope_bits} bits"
        raise ValueError(f"{text}, but has shape {tuple(slopes.shape)}")
    if slopes.device != dy.device:
        raise ValueError(f"slopes must be on the device of dy, {dy.device}, but is on {slopes.device}")


def slope_bytes(count: int, slope_bits: int) -> int:
    """Return how many bytes the slopes of ``count`` elements need."""
    each = 8 // slope_bits
    return (count + each - 1) // each


# ---- torch, the reference


def activation_ref(x: torch.Tensor, activation: str) -> torch.Tensor:
    """Return torch's own activation."""
    if activation == "relu":
        return F.relu(x)
    if activation == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def slope_ref(x: torch.Tensor, activation: str) -> torch.Tensor:
    """Return f'(x) in float32."""
    if activation == "relu":
        return (~(x <= 0)).float()
    x = x.float().clamp(-20, 20)  # beyond, slopes are 0 and 1
    if activation == "silu":
        s = x.sigmoid()
        return s * (1 + x * (1 - s))
    if activation == "gelu":
        return 0.5 * (1 + (x * 0.5**0.5).erf()) + x * (x * x * -0.5).exp() * 0.3989422804014327
    t = (0.7978845608028654 * (x + 0.044715 * x**3)).tanh()
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)


def activation_pack_ref(
    x: torch.Tensor, activation: str, slope_bits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    code = (slope_ref(x, activation) * STEPS[slope_bits]).round() + ZERO[slope_bits]
    code = code.nan_to_num(0.0).clamp(0, 2**slope_bits - 1)
    if slope_bits >= 4:
        code = torch.where(x.isfinite(), code, 2**slope_bits - 1)
    code = code.flatten()
    each = 8 // slope_bits
    padded = code.new_zeros(slope_bytes(len(code), slope_bits) * each, dtype=torch.int32)
    padded[: len(code)] = code
    shifts = slope_bits * torch.arange(each, device=x.device, dtype=torch.int32)
    return activation_ref(x, activation).contiguous(), (padded.view(-1, each) << shifts).sum(1).to(
        torch.uint8
    )


def activation_backward_ref(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    shifts = slope_bits * torch.arange(8 // slope_bits, device=dy.device, dtype=torch.uint8)
    code = ((slopes[:, None] >> shifts) & (2**slope_bits - 1)).flatten()[: dy.numel()].view(dy.shape)
    if slope_bits == 1:
        return torch.where(code == 1, dy, 0).contiguous()
    slope = (code.float() - ZERO[slope_bits]) * (1 / STEPS[slope_bits])
    if slope_bits >= 4:
        slope = torch.where(code == 2**slope_bits - 1, float("nan"), slope)
    return (dy.float() * slope).to(dy.dtype).contiguous()


# ---- Triton


@triton.constexpr_function
def slope_zero(slope_bits):
    """Return `ZERO[slope_bits]`, the code of slope 0, inside a kernel."""
    return 27 if slope_bits == 8 else 2 if slope_bits == 4 else 0


@triton.constexpr_function
def slope_steps(slope_bits):
    """Return `STEPS[slope_bits]`, the codes from slope 0 to slope 1, inside a kernel."""
    return 200.0 if slope_bits == 8 else 11.0 if slope_bits == 4 else 3.0 if slope_bits == 2 else 1.0


@triton.jit
def _activate(x, ACTIVATION: tl.constexpr, SLOPE_BITS: tl.constexpr):
    """f(x), in x's dtype for relu, else in float32, and the codes of the slopes in int32."""
    TOP: tl.constexpr = (1 << SLOPE_BITS) - 1
    if ACTIVATION == "relu":
        off = x <= 0
        y = tl.where(off, 0.0, x)
        code = tl.where(off, 0, 1)
    else:
        x = x.to(tl.float32)
        if ACTIVATION == "silu":
            rise = libdevice.fast_dividef(1.0, 1.0 + tl.exp(-x))
            y = x * rise
            slope = rise + y * (1 - rise)
        elif ACTIVATION == "gelu":
            # The normal distribution's tail to 1e-7, Abramowitz and Stegun 7.1.26: one exp for y and slope.
            bell = tl.exp(x * x * -0.5)
            t = libdevice.fast_dividef(1.0, tl.fma(tl.abs(x), 0.23164190, 1.0))
            tail = t * (
                0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
            )
            tail = tail * bell
            rise = tl.where(x < 0, tail, 1 - tail)
            y = x * rise
            slope = tl.fma(x, bell * 0.3989422804014327, rise)
        else:
            near = tl.minimum(tl.maximum(x, -20.0), 20.0)  # beyond, slopes are 0 and 1
            square = near * near
            rise = libdevice.fast_dividef(
                1.0, 1.0 + tl.exp(near * (-1.5957691216057308 - 0.07135481627159982 * square))
            )
            y = x * rise
            slope = rise + near * rise * (1 - rise) * (1.5957691216057308 + 0.21406444881479946 * square)
        code = tl.fma(slope, slope_steps(SLOPE_BITS), MAGIC + slope_zero(SLOPE_BITS))
        code = tl.minimum(tl.maximum(code, MAGIC), MAGIC + TOP)
        code = code.to(tl.int32, bitcast=True) & TOP
        if SLOPE_BITS >= 4:
            code = tl.where(x * 0.0 == 0.0, code, TOP)
    return y, code


@triton.jit
def _times_slope(dy, code, SLOPE_BITS: tl.constexpr):
    if SLOPE_BITS == 1:
        dx = tl.where(code == 1, dy, 0.0)
    else:
        slope = (code - slope_zero(SLOPE_BITS)).to(tl.float32) * (1.0 / slope_steps(SLOPE_BITS))
        if SLOPE_BITS >= 4:
            slope = tl.where(code == (1 << SLOPE_BITS) - 1, float("nan"), slope)
        dx = dy.to(tl.float32) * slope
    return dx


@triton.jit
def _activation_pack_kernel(
    x_ptr, y_ptr, slopes_ptr, N, ACTIVATION: tl.constexpr, SLOPE_BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """8 adjacent elements, SLOPE_BITS bytes of slopes, belong to one thread, which sums up each byte."""
    EACH: tl.constexpr = 8 // SLOPE_BITS
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    y, code = _activate(x, ACTIVATION, SLOPE_BITS)
    tl.store(y_ptr + offs, y, mask=offs < N)
    code = tl.where(offs < N, code, 0) << (tl.arange(0, 8) % EACH * SLOPE_BITS)[None, :]
    code = tl.sum(tl.reshape(code, [BLOCK // 8, SLOPE_BITS, EACH]), axis=2).to(tl.uint8)
    where = start // EACH + tl.arange(0, BLOCK // 8)[:, None] * SLOPE_BITS + tl.arange(0, SLOPE_BITS)[None, :]
    tl.store(slopes_ptr + where, code, mask=where * EACH < N)


@triton.jit
def _activation_backward_kernel(dy_ptr, slopes_ptr, dx_ptr, N, SLOPE_BITS: tl.constexpr, BLOCK: tl.constexpr):
    EACH: tl.constexpr = 8 // SLOPE_BITS
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    where = start // EACH + tl.arange(0, BLOCK // 8)[:, None] * SLOPE_BITS + tl.arange(0, SLOPE_BITS)[None, :]
    codes = tl.load(slopes_ptr + where, mask=where * EACH < N, other=0).to(tl.int32)
    codes = tl.broadcast_to(codes[:, :, None], [BLOCK // 8, SLOPE_BITS, EACH])
    shift = (tl.arange(0, 8) % EACH * SLOPE_BITS)[None, :]
    code = (tl.reshape(codes, [BLOCK // 8, 8]) >> shift) & ((1 << SLOPE_BITS) - 1)
    dy = tl.load(dy_ptr + offs, mask=offs < N, other=0.0)
    tl.store(dx_ptr + offs, _times_slope(dy, code, SLOPE_BITS), mask=offs < N)


@triton.jit
def _activation_backward_sum_kernel(
    dy_ptr, slopes_ptr, sums_ptr, K, C,
    SLOPE_BITS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """ROWS rows of BLOCK_C columns, STEP at a time, in place, and the sum over these rows.

    A cell is the slopes of 8 elements, which belong to one thread: an integer of SLOPE_BITS bytes.
    """
    across = tl.cdiv(C, BLOCK_C)
    row = tl.program_id(0) // across
    cell = tl.program_id(0) % across * (BLOCK_C // 8) + tl.arange(0, BLOCK_C // 8)[:, None]
    offs_c = cell * 8 + tl.arange(0, 8)[None, :]  # [BLOCK_C / 8, 8]
    cells_ptr = slopes_ptr.to(tl.pointer_type(tl.core.get_int_dtype(8 * SLOPE_BITS, True)))
    shift = (tl.arange(0, 8) * SLOPE_BITS)[None, :]
    total = tl.zeros([BLOCK_C // 8, 8], tl.float32)
    for start in tl.range(row.to(tl.int64) * ROWS, row.to(tl.int64) * ROWS + ROWS, STEP, num_stages=1):
        loaded = ()
        for i in tl.static_range(STEP):  # before any is stored
            r = start + i
            cells = tl.load(cells_ptr + r * (C // 8) + cell, mask=(r < K) & (cell * 8 < C), other=0)
            loaded = loaded + (
                cells,
                tl.load(dy_ptr + r * C + offs_c, mask=(r < K) & (offs_c < C), other=0.0),
            )
        for i in tl.static_range(STEP):
            cells, dy = loaded[2 * i], loaded[2 * i + 1]
            if SLOPE_BITS == 8:
                code = (cells >> shift.to(tl.int64)) & 255
            else:
                code = (cells.to(tl.int32) >> shift) & ((1 << SLOPE_BITS) - 1)
            dx = _times_slope(dy, code.to(tl.int32), SLOPE_BITS).to(dy.dtype)
            tl.store(dy_ptr + (start + i) * C + offs_c, dx, mask=(start + i < K) & (offs_c < C))
            total += dx.to(tl.float32)
    tl.store(sums_ptr + row.to(tl.int64) * C + offs_c, total, mask=offs_c < C)


@triton.jit
def _activation_quantize_kernel(
    h_ptr, slopes_ptr, words_ptr, params_ptr, seed_ptr, K, C, blocks, offset,
    ACTIVATION: tl.constexpr, SLOPE_BITS: tl.constexpr,
    BITS: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Like the kernel of `puzzles_lib.kernels.quantize`, for y = f(h), with f's slopes. y overwrites h.

    A thread's 8 columns of a row are a cell of slopes (SLOPE_BITS bytes): a sum within the thread. Programs
    count columns first, so that programs that run at the same time write whole rows of y and of the slopes.
    """
    FIELDS: tl.constexpr = 16 // BITS
    SPLIT: tl.constexpr = [STEP, ROWS, GROUPS, GROUP]
    CELLS: tl.constexpr = GROUPS * GROUP // 8
    CELL: tl.constexpr = tl.core.get_int_dtype(8 * SLOPE_BITS, True)
    across = C // (GROUPS * GROUP)
    first = tl.program_id(0) // across * ROWS  # a row of words, counted over all blocks
    pid_c = tl.program_id(0) % across
    block = first // 16
    first_row = block.to(tl.int64) * (16 * FIELDS)
    rows = tl.arange(0, STEP)[:, None, None] * 16 + (first % 16 + tl.arange(0, ROWS))[None, :, None]
    offs_c = pid_c * (GROUPS * GROUP) + tl.arange(0, GROUPS * GROUP)[None, None, :]
    offs_g = pid_c * GROUPS + tl.arange(0, GROUPS)[None, None, :]  # [1, 1, GROUPS]
    cell = pid_c * CELLS + tl.arange(0, CELLS)[None, None, :]
    param = params_ptr + (offs_g.to(tl.int64) * blocks + block) * (2 * 16 * FIELDS) + rows
    h_ptr += first_row * C
    cells_ptr = slopes_ptr.to(tl.pointer_type(CELL)) + first_row * (C // 8)
    rows_left = K - first_row
    words = tl.zeros(SPLIT[1:], tl.int32)
    zero = tl.zeros(SPLIT[1:3], tl.float32)  # NaN where a group has one
    if seed_ptr is not None:
        drawn_low, drawn_high = draw(seed_ptr, offset, first, offs_c, BITS)
    for step in tl.range(0, FIELDS, STEP, num_stages=STAGES):
        row = rows + step * 16
        where, where_s = h_ptr + (row * C + offs_c), cells_ptr + (row * (C // 8) + cell)
        h = tl.load(where) if EVEN else tl.load(where, mask=row < rows_left, other=0.0)
        y, code = _activate(h, ACTIVATION, SLOPE_BITS)
        y = y.to(h.dtype)
        if SLOPE_BITS == 8:
            code = code.to(tl.int64)
        code = code << (tl.arange(0, GROUPS * GROUP)[None, None, :] % 8 * SLOPE_BITS).to(code.dtype)
        code = tl.sum(tl.reshape(code, [STEP, ROWS, CELLS, 8]), axis=3).to(CELL)
        if EVEN:
            tl.store(where, y)
            tl.store(where_s, code)
        else:
            tl.store(where, y, mask=row < rows_left)
            tl.store(where_s, code, mask=row < rows_left)
        y = y.to(tl.float32)
        added = None if seed_ptr is None else noise(drawn_low, drawn_high, first, step, BITS, SPLIT)
        fields, scale, low = encode(y, y, y, added, step, BITS, SPLIT, params_ptr.dtype.element_ty, False)
        tl.store(param + step * 16, scale)
        tl.store(param + step * 16 + 16 * FIELDS, low)
        zero += tl.sum(scale * 0.0, axis=0)
        words += fields
    spoilt = tl.where(zero == 0, 0, 1)
    if tl.max(tl.max(spoilt, 1), 0) > 0:  # rare: quantize y again, with care
        tl.debug_barrier()
        every = offs_c < C
        words, spoilt = quantize_rows(
            h_ptr, param, seed_ptr, offset, first, rows, offs_c, every, offs_g * GROUP < C, rows_left, C,
            BITS, SPLIT, EVEN, CAREFUL=True,
        )  # fmt: skip
    place = words_ptr + first.to(tl.int64) * C + (tl.arange(0, ROWS)[None, :, None] * C + offs_c)
    tl.store(place, tl.reshape(words, [1, ROWS, GROUPS * GROUP]).to(tl.int16))


# ---- launching them


def fits(columns: int, group_size: int) -> bool:
    """Return whether one kernel can do `activation_quantize_`."""
    power = group_size >= 8 and group_size & (group_size - 1) == 0
    return power and group_size <= 4096 and columns % max(group_size, 256) == 0


def launch_activation_quantize(
    h: torch.Tensor,
    slopes: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    activation: str,
    slope_bits: int,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None,
    offset: int,
) -> None:
    """Replace a matrix h [K, C] that `fits` by its activation; fill slopes, words and params."""
    (rows, columns), blocks = h.shape, words.shape[0]
    key = ("activation", activation, slope_bits, h.dtype, rows, columns, bits, group_size, offset)
    launching.launch(
        _activation_quantize_kernel, (*key, seed is None), (h, slopes, words, params, seed),
        lambda: _activation_quantize_launch(
            rows, columns, blocks, activation, slope_bits, bits, group_size, seed, offset
        ),
    )  # fmt: skip


def _activation_quantize_launch(
    rows: int,
    columns: int,
    blocks: int,
    activation: str,
    slope_bits: int,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None,
    offset: int,
) -> tuple[tuple[int], tuple[int, ...], dict[str, object]]:
    word_rows, step, width = SMOOTH if activation != "relu" or bits == 8 else RELU[bits]
    if bits == 8 or seed is not None:
        word_rows, step, width = UNIT_ROWS[bits], UNIT_FIELDS[bits], 256
    width = max(math.gcd(width, columns), group_size)
    grid = (blocks * WORD_ROWS // word_rows * (columns // width),)
    return grid, (rows, columns, blocks, offset), {
        "ACTIVATION": activation, "SLOPE_BITS": slope_bits, "BITS": bits, "GROUP": group_size,
        "GROUPS": width // group_size, "ROWS": word_rows, "STEP": step,
        "EVEN": rows % block_rows(bits) == 0, "STAGES": STAGES, "num_warps": width // 256,
    }  # fmt: skip


def launch_activation_pack(
    x: torch.Tensor, y: torch.Tensor, slopes: torch.Tensor, activation: str, slope_bits: int
) -> None:
    """Fill y (which may be x) and the flat slopes (uint8) from a contiguous x of any shape."""
    size = x.numel()
    options = {"ACTIVATION": activation, "SLOPE_BITS": slope_bits, "BLOCK": BLOCK}
    launching.launch(
        _activation_pack_kernel, ("slopes", activation, slope_bits, x.dtype, size), (x, y, slopes),
        lambda: ((triton.cdiv(size, BLOCK),), (size,), options),
    )  # fmt: skip


def launch_activation_backward(
    dy: torch.Tensor, slopes: torch.Tensor, dx: torch.Tensor, slope_bits: int
) -> None:
    """Fill dx (which may be dy) from a contiguous dy of any shape, and its slopes."""
    size = dy.numel()
    launching.launch(
        _activation_backward_kernel, ("by slopes", slope_bits, dy.dtype, size), (dy, slopes, dx),
        lambda: ((triton.cdiv(size, BLOCK),), (size,), {"SLOPE_BITS": slope_bits, "BLOCK": BLOCK}),
    )  # fmt: skip


def launch_activation_backward_sum(
    dy: torch.Tensor, slopes: torch.Tensor, sums: torch.Tensor, slope_bits: int
) -> None:
    """Multiply dy [K, C] by its slopes, in place; fill sums [blocks of ROWS rows, C]. C: a multiple of 8."""
    rows, columns = dy.shape

    def prepare() -> tuple:
        grid = (sums.shape[0] * triton.cdiv(columns, COLUMNS),)
        return grid, (rows, columns), {
            "SLOPE_BITS": slope_bits, "ROWS": ROWS, "STEP": AT_ONCE, "BLOCK_C": COLUMNS, "num_warps": 4,
        }  # fmt: skip

    key = ("by slopes, sums", slope_bits, dy.dtype, rows, columns)
    launching.launch(_activation_backward_sum_kernel, key, (dy, slopes, sums), prepare)


# ---- the operators that torch knows


def _activation_pack_now(
    x: torch.Tensor, activation: str, slope_bits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    if not x.is_cuda:
        return activation_pack_ref(x, activation, slope_bits)
    x = x.contiguous()
    y, slopes = torch.empty_like(x), _empty_slopes(x, slope_bits)
    if x.numel():
        with launching.on_device_of(x):
            launch_activation_pack(x, y, slopes, activation, slope_bits)
    return y, slopes


_activation_pack = torch.library.custom_op(
    "bit_by_bit::activation_pack", _activation_pack_now, mutates_args=()
)
_activation_pack_inside = launching.inside("activation_pack", _activation_pack, _activation_pack_now)


def activation_pack_unchecked(
    x: torch.Tensor, activation: str, slope_bits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `activation_pack` returns. The arguments are not checked."""
    operators = (_activation_pack, _activation_pack_inside, _activation_pack_now)
    return launching.run(*operators, x, activation, slope_bits)


@_activation_pack.register_fake
def _(x: torch.Tensor, activation: str, slope_bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), _empty_slopes(x, slope_bits)


def _empty_slopes(x: torch.Tensor, slope_bits: int) -> torch.Tensor:
    return launching.empty(x, (slope_bytes(x.numel(), slope_bits),), torch.uint8)


def _activation_backward_now(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    if not dy.is_cuda:
        return activation_backward_ref(dy, slopes, slope_bits)
    dy, slopes = dy.contiguous(), slopes.contiguous()
    dx = torch.empty_like(dy)
    if dy.numel():
        with launching.on_device_of(dy):
            launch_activation_backward(dy, slopes, dx, slope_bits)
    return dx


_activation_backward = torch.library.custom_op(
    "bit_by_bit::activation_backward", _activation_backward_now, mutates_args=()
)
_activation_backward_inside = launching.inside(
    "activation_backward", _activation_backward, _activation_backward_now
)


def activation_backward_unchecked(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    """Return what `activation_backward` returns. The arguments are not checked."""
    operators = (_activation_backward, _activation_backward_inside, _activation_backward_now)
    return launching.run(*operators, dy, slopes, slope_bits)


@_activation_backward.register_fake
def _(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    return dy.new_empty(dy.shape)


def _activation_quantize_now_(
    h: torch.Tensor,
    activation: str,
    slope_bits: int,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = matrix_shape(h.shape)
    group_size = min(group_size, max(columns, 1))
    matrix = h.view(rows, columns)
    if not h.is_cuda:
        y, slopes = activation_pack_ref(matrix, activation, slope_bits)
        matrix.copy_(y)
        return slopes, *quantize_pack_ref(y, bits, group_size, seed, offset)
    slopes, (words, params) = _empty_slopes(h, slope_bits), empty_storage(h, bits, group_size)
    if h.numel():
        with launching.on_device_of(h):
            if fits(columns, group_size):
                launch_activation_quantize(
                    matrix, slopes, words, params, activation, slope_bits, bits, group_size, seed, offset
                )
            else:
                launch_activation_pack(h, h, slopes, activation, slope_bits)
                launch_quantize_pack(matrix, words, params, bits, group_size, seed, offset)
    return slopes, words, params


_activation_quantize_ = torch.library.custom_op(
    "bit_by_bit::activation_quantize_", _activation_quantize_now_, mutates_args=("h",)
)
_activation_quantize_inside_ = launching.inside(
    "activation_quantize_", _activation_quantize_, _activation_quantize_now_, changes=("h",)
)


def activation_quantize_unchecked_(
    h: torch.Tensor, activation: str, slope_bits: int, bits: int, group_size: int, seed: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Do what `activation_quantize_` does. The arguments are not checked."""
    arguments = (activation, slope_bits, bits, group_size, seed)
    operators = (_activation_quantize_, _activation_quantize_inside_, _activation_quantize_now_)
    return launching.run(*operators, h, *arguments)


@_activation_quantize_.register_fake
def _(
    h: torch.Tensor,
    activation: str,
    slope_bits: int,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _empty_slopes(h, slope_bits), *empty_storage(h, bits, group_size)


def _activation_backward_now_(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    rows, columns = matrix_shape(dy.shape)
    matrix, slopes = dy.view(rows, columns), slopes.contiguous()
    if not dy.is_cuda:
        matrix.copy_(activation_backward_ref(matrix, slopes, slope_bits))
        return matrix.sum(0, dtype=torch.float32)
    if not dy.numel():
        return dy.new_zeros(columns, dtype=torch.float32)
    with launching.on_device_of(dy):
        if columns % 8:
            launch_activation_backward(dy, slopes, dy, slope_bits)
            return matrix.sum(0, dtype=torch.float32)
        sums = launching.empty(dy, (-(-rows // ROWS), columns), torch.float32)
        launch_activation_backward_sum(matrix, slopes, sums, slope_bits)
    return sums.sum(0)


_activation_backward_ = torch.library.custom_op(
    "bit_by_bit::activation_backward_", _activation_backward_now_, mutates_args=("dy",)
)
_activation_backward_inside_ = launching.inside(
    "activation_backward_", _activation_backward_, _activation_backward_now_, changes=("dy",)
)


def activation_backward_unchecked_(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    """Do what `activation_backward_` does. The arguments are not checked."""
    operators = (_activation_backward_, _activation_backward_inside_, _activation_backward_now_)
    return launching.run(*operators, dy, slopes, slope_bits)


@_activation_backward_.register_fake
def _(dy: torch.Tensor, slopes: torch.Tensor, slope_bits: int) -> torch.Tensor:
    return dy.new_empty(matrix_shape(dy.shape)[1], dtype=torch.float32)
