"""LayerNorm and RMSNorm that keep what their backward pass needs in codes.

With n = (x - mean) · rstd (RMSNorm: mean = 0), y = n · weight + bias. Backward needs only n and rstd:

    g  = dy · weight
    dx = rstd · (g - mean(g) - n · mean(g · n))        without mean(g) for RMSNorm
    dweight = sum over rows of dy · n, dbias = sum over rows of dy

n is rounded to a dtype, then quantized as `puzzles_lib.kernels.quantize.quantize_pack` does. The only inexact
term of dx is small: n times the mean of g · n over a row. (With codes of y, n = (y - bias) / weight would be
lost for small weights.)

A linear layer that reads y quantizes y itself. It can't use n's codes, because the caller has y in between.
If the caller writes to y and torch doesn't notice, the linear layer would have the wrong codes, although
torch's own weight gradient would be correct.
"""

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.bitpack import WORD_ROWS, check_bits, matrix_shape
from puzzles_lib.kernels.common import DTYPES, check_dtype
from puzzles_lib.kernels.quantize import (
    check_group_size,
    dequantize_ref,
    encode,
    quantize_pack_ref,
    storage_shapes,
)
from puzzles_lib.kernels.rounding import STOCHASTIC_REGISTERS, UNIT_FIELDS, UNIT_ROWS, draw, noise

AT_ONCE, TURNS = 4, 4  # in backward: fields, and rows of words of a program, of a block's 16
MAX_COLUMNS = 8192  # that a program holds; wider rows take more than one pass

Saved = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # words, params, rstd


def norm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    rms: bool,
    bits: int,
    group_size: int = 256,
    dtype: torch.dtype | None = None,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return LayerNorm (or RMSNorm) over x's last axis, and what its backward needs, in one pass over x.

    rms: use RMSNorm instead of LayerNorm.
    x: float32, float16 or bfloat16 [..., C]. weight, bias: [C] or None.
    dtype: the normalized x, n, is rounded to this dtype before it is quantized; x's own by default.
    seed, offset: for stochastic rounding; None for the nearest codes.
    Returns y (shape and dtype of x), words and params of n, and rstd, float32, one per row.

    Raises ValueError for other bits, a group size below 1, a scalar, or a weight or bias that does not fit,
    TypeError for another dtype.
    """
    check_bits(bits)
    check_group_size(group_size)
    check_dtype("x", x)
    if dtype not in (None, *DTYPES):
        raise TypeError(f"dtype must be float32, float16 or bfloat16, but is {dtype}")
    if x.dim() == 0:
        raise ValueError("x must have at least one axis, but is a scalar")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != (x.shape[-1],):
            raise ValueError(f"{name} must have shape ({x.shape[-1]},), but has shape {tuple(value.shape)}")
    return _norm_quantize(
        x, weight, bias, eps, rms, bits, group_size, x.dtype if dtype is None else dtype, seed, offset
    )


def norm_backward(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    rms: bool,
    bits: int,
    group_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x (shape and dtype of dy), of weight and of bias (float32 [C]).

    Sums over rows are in a fixed order. Raises TypeError for another dtype, and ValueError for other bits.
    """
    check_bits(bits)
    check_dtype("dy", dy)
    dx, sums = _norm_backward(dy, words, params, rstd, weight, rms, bits, group_size)
    return dx, sums[0], sums[1]


# ---- torch, the reference


def norm_quantize_ref(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    rms: bool,
    bits: int,
    group_size: int,
    dtype: torch.dtype,
    seed: torch.Tensor | None,
    offset: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what `norm_quantize` returns, for a matrix x [K, C]; torch computes y."""
    exact = x.float() if rms else x.float() - x.float().mean(1, keepdim=True)
    rstd = (exact.square().mean(1) + eps).rsqrt()
    words, params = quantize_pack_ref((exact * rstd[:, None]).to(dtype), bits, group_size, seed, offset)
    shape = (x.shape[1],)
    weight, bias = (None if value is None else value.to(x.dtype) for value in (weight, bias))
    y = F.rms_norm(x, shape, weight, eps) if rms else F.layer_norm(x, shape, weight, bias, eps)
    return y, words, params, rstd


def norm_backward_ref(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    rms: bool,
    bits: int,
    group_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dx, and the sums of dy · n and of dy, [2, C], of a matrix dy [K, C]."""
    n = dequantize_ref(words, params.float(), bits, group_size, dy.shape[0])
    g = dy.float() if weight is None else dy.float() * weight.float()
    dx = g - n * (g * n).mean(1, keepdim=True)
    if not rms:
        dx = dx - g.mean(1, keepdim=True)
    sums = torch.stack([(dy.float() * n).sum(0), dy.float().sum(0)])
    return (dx * rstd[:, None]).to(dy.dtype), sums


# ---- Triton


@triton.jit
def _norm_quantize_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, words_ptr, params_ptr, rstd_ptr, seed_ptr,
    K, C, blocks, offset, eps,
    RMS: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The rows whose fields share ROWS rows of words, with all their columns, STEP fields at a time.

    GROUPS is the number of groups up to a power of two, WIDTH that of GROUP. weight_ptr, bias_ptr and
    seed_ptr may be None.
    """
    FIELDS: tl.constexpr = 16 // BITS
    SPLIT: tl.constexpr = [STEP, ROWS, GROUPS, WIDTH]
    first = tl.program_id(0) * ROWS  # a row of words, counted over all blocks
    block = first // 16
    first_row = block.to(tl.int64) * (16 * FIELDS)
    rows = tl.arange(0, STEP)[:, None, None] * 16 + (first % 16 + tl.arange(0, ROWS))[None, :, None]
    lane = tl.arange(0, GROUPS * WIDTH)[None, None, :]
    offs_c = lane // WIDTH * GROUP + lane % WIDTH  # [1, 1, GROUPS * WIDTH]
    inside = (lane % WIDTH < GROUP) & (offs_c < C)
    offs_g = tl.arange(0, GROUPS)[None, None, :]
    exists = offs_g * GROUP < C
    param = params_ptr + (offs_g.to(tl.int64) * blocks + block) * (2 * 16 * FIELDS) + rows
    DTYPE: tl.constexpr = params_ptr.dtype.element_ty
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + offs_c, mask=inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + offs_c, mask=inside, other=0.0).to(tl.float32)
    words = tl.zeros(SPLIT[1:], tl.int32)
    if seed_ptr is not None:
        drawn_low, drawn_high = draw(seed_ptr, offset, first, offs_c, BITS)
    for step in tl.range(0, FIELDS, STEP, num_stages=1):
        row = rows + step * 16  # [STEP, ROWS, 1]
        exist = row < K - first_row
        where = (first_row + row) * C + offs_c
        x = tl.load(x_ptr + where, mask=exist & inside, other=0.0).to(tl.float32)
        if not RMS:
            x = tl.where(exist & inside, x - tl.sum(x, axis=2, keep_dims=True) / C, 0.0)
        rstd = tl.rsqrt(tl.sum(x * x, axis=2, keep_dims=True) / C + eps)  # [STEP, ROWS, 1]
        x = x * rstd
        tl.store(rstd_ptr + first_row + row, rstd, mask=exist)
        y = x
        if weight_ptr is not None:
            y = y * weight
        if bias_ptr is not None:
            y = y + bias
        tl.store(y_ptr + where, y, mask=exist & inside)
        x = x.to(DTYPE).to(tl.float32)
        low_x, high_x = tl.where(inside, x, float("inf")), tl.where(inside, x, float("-inf"))
        added = None if seed_ptr is None else noise(drawn_low, drawn_high, first, step, BITS, SPLIT)
        fields, scale, low = encode(x, low_x, high_x, added, step, BITS, SPLIT, DTYPE, True)
        tl.store(param + step * 16, scale, mask=exists)
        tl.store(param + step * 16 + 16 * FIELDS, low, mask=exists)
        words += fields
    place = words_ptr + first.to(tl.int64) * C + (tl.arange(0, ROWS)[None, :, None] * C + offs_c)
    tl.store(place, tl.reshape(words, [1, ROWS, GROUPS * WIDTH]).to(tl.int16), mask=inside)


@triton.jit
def _norm_backward_kernel(
    dy_ptr, words_ptr, params_ptr, rstd_ptr, weight_ptr, dx_ptr, sums_ptr, K, C, blocks,
    RMS: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
    STEP: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The rows whose fields share TURNS rows of words, STEP fields at a time, and their share of the sums.

    sums: float32 [programs, 2, C], of dy · n and of dy. GROUPS and WIDTH as in the forward pass.
    """
    FIELDS: tl.constexpr = 16 // BITS
    LANES: tl.constexpr = GROUPS * WIDTH
    lane = tl.arange(0, LANES)[None, :]
    offs_c = lane // WIDTH * GROUP + lane % WIDTH  # [1, LANES]
    inside = (lane % WIDTH < GROUP) & (offs_c < C)
    offs_g = tl.arange(0, GROUPS)[None, :]
    param = params_ptr + offs_g.to(tl.int64) * blocks * (2 * 16 * FIELDS)
    exists = offs_g * GROUP < C
    sum_dyn = tl.zeros([1, LANES], tl.float32)
    sum_dy = tl.zeros([1, LANES], tl.float32)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + offs_c, mask=inside, other=0.0).to(tl.float32)
    for turn in tl.range(0, TURNS, num_stages=1):
        first = tl.program_id(0) * TURNS + turn  # a row of words, counted over all blocks
        block = (first // 16).to(tl.int64)
        words = tl.load(words_ptr + first.to(tl.int64) * C + offs_c, mask=inside, other=0).to(tl.int32)
        for start in tl.range(0, FIELDS, STEP, num_stages=1):
            field = start + tl.arange(0, STEP)[:, None]  # [STEP, 1]
            row = field * 16 + first % 16
            row_param = param + block * (2 * 16 * FIELDS) + row
            scale = tl.load(row_param, mask=exists, other=0.0).to(tl.float32)  # [STEP, GROUPS]
            low = tl.load(row_param + 16 * FIELDS, mask=exists, other=0.0).to(tl.float32)
            code = ((words >> (field * BITS)) & ((1 << BITS) - 1)).to(tl.float32)  # [STEP, LANES]
            n = tl.reshape(code, [STEP, GROUPS, WIDTH]) * scale[:, :, None] + low[:, :, None]
            row = block * (16 * FIELDS) + row
            exist = (row < K) & inside
            dy = tl.load(dy_ptr + row * C + offs_c, mask=exist, other=0.0).to(tl.float32)
            rstd = tl.load(rstd_ptr + row, mask=row < K, other=0.0)  # [STEP, 1]
            n = tl.where(exist, tl.reshape(n, [STEP, LANES]), 0.0)
            sum_dyn += tl.sum(dy * n, axis=0, keep_dims=True)
            sum_dy += tl.sum(dy, axis=0, keep_dims=True)
            if weight_ptr is not None:
                dy = dy * weight
            mean, mean_n = tl.reduce((dy, dy * n), 1, _add_both, keep_dims=True)
            dx = dy - n * (mean_n / C)
            if not RMS:
                dx = dx - mean / C
            tl.store(dx_ptr + row * C + offs_c, dx * rstd, mask=exist)
    where = sums_ptr + tl.program_id(0).to(tl.int64) * 2 * C + offs_c
    tl.store(where, sum_dyn, mask=inside)
    tl.store(where + C, sum_dy, mask=inside)


@triton.jit
def _add_both(a, b, c, d):
    return a + c, b + d


# ---- launching them


def launch_norm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    saved: Saved,
    eps: float,
    rms: bool,
    bits: int,
    group_size: int,
    seed: torch.Tensor | None,
    offset: int,
) -> None:
    """Fill y and what backward needs from a contiguous x with at most MAX_COLUMNS columns in whole groups."""
    words, params, rstd = saved
    rows, columns = _plan(x.shape, bits, group_size)[:2]

    def prepare() -> tuple:
        width = triton.next_power_of_2(group_size)
        groups = triton.next_power_of_2(triton.cdiv(columns, group_size))
        word_rows, step = (1, min(8, 16 // bits)) if seed is None else (UNIT_ROWS[bits], UNIT_FIELDS[bits])
        grid = (words.shape[0] * WORD_ROWS // word_rows,)
        return grid, (rows, columns, words.shape[0], offset, eps), {
            "RMS": rms, "BITS": bits, "GROUP": group_size, "WIDTH": width, "GROUPS": groups,
            "ROWS": word_rows, "STEP": step, "num_warps": min(max(width * groups // 256, 1), 32),
            "maxnreg": STOCHASTIC_REGISTERS if seed is not None and width * groups <= 2048 else None,
        }  # fmt: skip

    key = ("norm", rms, x.dtype, params.dtype, rows, columns, bits, group_size, offset, eps, seed is None)
    key = (*key, _dtype_of(weight), _dtype_of(bias))
    tensors = (x, weight, bias, y, words, params, rstd, seed)
    launching.launch(_norm_quantize_kernel, key, tensors, prepare)


def _dtype_of(tensor: torch.Tensor | None) -> torch.dtype | None:
    return None if tensor is None else tensor.dtype


def launch_norm_backward(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    dx: torch.Tensor,
    sums: torch.Tensor,
    rms: bool,
    bits: int,
    group_size: int,
) -> None:
    """Fill dx and sums [programs, 2, C] from a contiguous dy with at most MAX_COLUMNS padded columns."""
    (rows, columns), blocks = _plan(dy.shape, bits, group_size)[:2], words.shape[0]

    def prepare() -> tuple:
        width = triton.next_power_of_2(group_size)
        groups = triton.next_power_of_2(triton.cdiv(columns, group_size))
        return (len(sums),), (rows, columns, blocks), {
            "RMS": rms, "BITS": bits, "GROUP": group_size, "WIDTH": width, "GROUPS": groups,
            "STEP": min(AT_ONCE, 16 // bits), "TURNS": blocks * WORD_ROWS // len(sums),
            "num_warps": min(max(width * groups // 256, 1), 32),
        }  # fmt: skip

    key = ("norm backward", rms, dy.dtype, params.dtype, _dtype_of(weight), rows, columns, bits, group_size)
    tensors = (dy, words, params, rstd, weight, dx, sums)
    launching.launch(_norm_backward_kernel, (*key, len(sums)), tensors, prepare)


@lru_cache(4096)
def padded_width(columns: int, group_size: int) -> int:
    """Return the number of lanes that a program needs per row."""
    return triton.next_power_of_2(group_size) * triton.next_power_of_2(triton.cdiv(columns, group_size))


# ---- the operators that torch knows


def _norm_quantize_now(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    rms: bool,
    bits: int,
    group_size: int,
    dtype: torch.dtype,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns, group_size, fits, *shapes = _plan(x.shape, bits, group_size)
    options = (rms, bits, group_size)
    x = x.contiguous()
    if not (x.is_cuda and fits):
        with torch.autocast(x.device.type, enabled=False):
            matrix = x.view(rows, columns)
            y, *saved = norm_quantize_ref(matrix, weight, bias, eps, *options, dtype, seed, offset)
            return y.view(x.shape), *saved
    y, *saved = _empty_norm(x, *shapes, dtype)
    if rows and columns:
        with launching.on_device_of(x):
            launch_norm_quantize(x, weight, bias, y, tuple(saved), eps, *options, seed, offset)
    return y, *saved


@lru_cache(4096)
def _plan(shape: tuple[int, ...], bits: int, group_size: int) -> tuple:
    """Rows, columns, the size of groups, whether our kernels fit, and the shapes of words and params."""
    rows, columns = matrix_shape(shape)
    group_size = min(group_size, max(columns, 1))
    fits = padded_width(columns, group_size) <= MAX_COLUMNS
    return rows, columns, group_size, fits, *storage_shapes(rows, columns, bits, group_size)


_norm_quantize = torch.library.custom_op("bit_by_bit::norm_quantize", _norm_quantize_now, mutates_args=())
_norm_quantize_inside = launching.inside("norm_quantize", _norm_quantize, _norm_quantize_now)


def norm_quantize_unchecked(
    x: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what `norm_quantize` returns. The arguments, in the operator's order, are not checked."""
    return launching.run(_norm_quantize, _norm_quantize_inside, _norm_quantize_now, x, *arguments)


@_norm_quantize.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    rms: bool,
    bits: int,
    group_size: int,
    dtype: torch.dtype,
    seed: torch.Tensor | None = None,
    offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = matrix_shape(x.shape)
    shapes = storage_shapes(rows, columns, bits, min(group_size, max(columns, 1)))
    return _empty_norm(x, *shapes, dtype)


def _empty_norm(
    x: torch.Tensor, words: tuple[int, ...], params: tuple[int, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return memory for the norm of x, and for words, params and 1 / deviation, by their shapes."""
    return (
        launching.empty(x, x.shape),
        launching.empty(x, words, torch.int16),
        launching.empty(x, params, dtype),
        launching.empty(x, (matrix_shape(x.shape)[0],), torch.float32),
    )


def _norm_backward_now(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    rms: bool,
    bits: int,
    group_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns, group_size, fits, *_ = _plan(dy.shape, bits, group_size)
    dy = dy.contiguous()
    if not (dy.is_cuda and fits):
        dx, sums = norm_backward_ref(
            dy.view(rows, columns), words, params, rstd, weight, rms, bits, group_size
        )
        return dx.view(dy.shape), sums
    dx = launching.empty(dy, dy.shape)
    if not (rows and columns):
        return dx, rstd.new_zeros(2, columns)
    sums = launching.empty(rstd, (words.shape[0] * WORD_ROWS // TURNS, 2, columns))
    with launching.on_device_of(dy):
        launch_norm_backward(dy, words, params, rstd, weight, dx, sums, rms, bits, group_size)
    return dx, sums.sum(0)


_norm_backward = torch.library.custom_op("bit_by_bit::norm_backward", _norm_backward_now, mutates_args=())
_norm_backward_inside = launching.inside("norm_backward", _norm_backward, _norm_backward_now)


def norm_backward_unchecked(dy: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dx and the sums [2, C] of dy · n and of dy. The arguments are not checked."""
    return launching.run(_norm_backward, _norm_backward_inside, _norm_backward_now, dy, *arguments)


@_norm_backward.register_fake
def _(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    rms: bool,
    bits: int,
    group_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    return dy.new_empty(dy.shape), rstd.new_empty(2, dy.shape[-1])
