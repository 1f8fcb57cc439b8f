"""Matrix products with one packed factor: fused if that is faster, else in chunks or whole.

There are two products, both on a `puzzles_lib.kernels.quantize.PackedTensor` as it is, without a conversion:

    dequant_gemm_dw(dy, packed)      dW[COUT, CIN] = dy[K, COUT]ᵀ @ x̂[K, CIN]    a weight's gradient
    dequant_gemm(x, packed_weight)   y[M, N] = x[M, K] @ ŵ[N, K]ᵀ                a layer's forward

x̂ and ŵ are what `dequantize` gives, rounded once to the dtype. Sums are float32, rounded once at the end.
Partial sums, of programs or of chunks of rows, are added in a fixed order. So the same inputs give the same
bits.
"""

from collections.abc import Callable

import torch

from puzzles_lib.kernels import dequant_gemm_hopper, dequant_gemm_rows16, dequant_gemm_rows128, launching
from puzzles_lib.kernels.bitpack import block_rows, matrix_shape
from puzzles_lib.kernels.quantize import PackedTensor, check_packed, dequantize_ref, dequantize_unchecked

CHUNK = 32 << 20  # bytes of x̂ that `dequant_gemm_dw` makes at a time, where it makes any and dW is small
FEW_ROWS = 32  # of x: up to here `dequant_gemm` makes no ŵ on GPUs other than Hopper's


def dequant_gemm_dw(dy: torch.Tensor, packed: PackedTensor) -> torch.Tensor:
    """Return the gradient [COUT, CIN] of a linear layer's weight, computed from its packed input.

    x̂ [..., CIN] below is what `dequantize` returns for that input.

    dy: [..., COUT], the gradient of the layer's output. Its dtype (float32, float16 or bfloat16), device and
        leading axes must be those of ``packed``. It can be empty or non-contiguous.
    packed: the layer's input [..., CIN].
    Returns dyᵀ @ x̂ in dy's dtype. Without rows it is 0.

    A fused kernel dequantizes inside the product if all of these are true:

    - the GPU is of the Hopper generation, and the dtype is a 16-bit float,
    - COUT and CIN are multiples of 8,
    - groups are whole rows, 64, or a multiple of 128 (with up to 4 bits also 16 or 32),
    - the unfused way wasn't faster at these sizes on an H200 (see the source of `unfused_is_faster`).

    Otherwise a few rows at a time are dequantized into a temporary tensor and multiplied by cuBLAS. This
    takes at most 32 MiB or as much memory as the result in float32, whichever is more. float32 then follows
    torch's setting for TF32. If all of x̂ fits at once, 16-bit floats follow torch's settings for
    reduced-precision reductions.

    Raises TypeError if ``packed`` is not a `PackedTensor` or the dtypes differ, and ValueError if shapes or
    devices don't fit.
    """
    check_packed("packed", packed)
    _check_operand("dy", dy, "packed", packed)
    if dy.shape[:-1] != packed.shape[:-1]:
        text = f"dy must have shape {_shape_text(packed.shape[:-1])} for packed of shape {packed.shape}"
        raise ValueError(f"{text}, but has shape {tuple(dy.shape)}")
    return _dequant_gemm_dw(dy, packed.words, packed.params, packed.bits, packed.group_size)


def dequant_gemm(x: torch.Tensor, packed_weight: PackedTensor) -> torch.Tensor:
    """Return x @ ŵᵀ, a linear layer with a packed weight. ŵ is what `dequantize` returns for that weight.

    x: [..., K], with the dtype (float32, float16 or bfloat16) and device of ``packed_weight``. It can be
        empty or non-contiguous.
    packed_weight: a weight [N, K] in groups along K.
    Returns [..., N] in x's dtype. The gradient of x is dy @ ŵ. The packed weight is a constant.

    With few rows, the product is memory-bound: its time is that of reading the weight. So a GPU of the Ampere
    generation or later multiplies up to 32 rows of 16-bit floats by the packed weight while reading it. A
    Hopper GPU does so for up to 128 rows. The only memory this takes is for float32 sums if K is split.
    Groups must be whole rows or a multiple of 32 (of 64 above 32 rows).

    In all other cases, and in backward, the weight is first dequantized into a temporary tensor ŵ [N, K] in
    x's dtype. With many rows this costs little, because arithmetic takes most of the time.

    Raises TypeError if ``packed_weight`` is not a `PackedTensor` or the dtypes differ, and ValueError if
    shapes or devices don't fit.
    """
    check_packed("packed_weight", packed_weight)
    if len(packed_weight.shape) != 2:
        raise ValueError(f"packed_weight must have two axes, [N, K], but has shape {packed_weight.shape}")
    _check_operand("x", x, "packed_weight", packed_weight)
    features, columns = packed_weight.shape
    if x.shape[-1] != columns:
        text = f"x must have shape (..., {columns}) for packed_weight of shape {packed_weight.shape}"
        raise ValueError(f"{text}, but has shape {tuple(x.shape)}")
    words, params = packed_weight.words, packed_weight.params
    return _dequant_gemm(x, words, params, packed_weight.bits, packed_weight.group_size, features)


def _check_operand(name: str, value: torch.Tensor, other: str, packed: PackedTensor) -> None:
    if not isinstance(value, torch.Tensor) or value.dtype != packed.dtype:
        what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"{name} must have the dtype of {other}, {packed.dtype}, but is {what}")
    if value.dim() == 0:
        raise ValueError(f"{name} must have at least one axis, but is a scalar")
    if value.device != packed.words.device:
        where = packed.words.device
        raise ValueError(f"{name} must be on the device of {other}, {where}, but is on {value.device}")


def _shape_text(leading: tuple[int, ...]) -> str:
    return "(" + "".join(f"{size}, " for size in leading) + "COUT)"


# ---- torch, the reference


def dequant_gemm_dw_ref(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return dW [COUT, CIN] of a matrix dy [K, COUT], in ``dtype`` or dy's dtype, with sums in float32."""
    x = dequantize_ref(words, params, bits, group_size, dy.shape[0])
    return (dy.float().t() @ x.float()).to(dy.dtype if dtype is None else dtype)


def dequant_gemm_ref(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, features: int
) -> torch.Tensor:
    """Return y [M, N] of a matrix x [M, K], with sums in float32."""
    weight = dequantize_ref(words, params, bits, group_size, features)
    return (x.float() @ weight.float().t()).to(x.dtype)


# ---- launching them


def _dw_cuda(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """dW of contiguous tensors on a GPU, dy [K, COUT], in a dtype or dy's dtype; no size is 0."""
    fused = dequant_gemm_hopper.fits(dy, words, params, group_size)
    if fused and not unfused_is_faster(len(dy), dy.shape[1], words.shape[2], bits):
        return dequant_gemm_hopper.launch(dy, words, params, bits, group_size, dtype)
    return dw_by_chunks(dy, words, params, bits, group_size, dtype)


def unfused_is_faster(rows: int, cout: int, cin: int, bits: int) -> bool:
    """Return whether dequantizing and cuBLAS beat the fused kernel on a Hopper GPU, as measured on an H200.

    It costs little to make an x̂ that stays in the cache. The fused kernel's sums for a large dW, however,
    cost the same for a short K as for a long one. With 8 bits a word has only two codes, so unpacking takes
    longest; this matters if most of the time is arithmetic.
    """
    size = 2 * rows * cin  # of x̂, in bytes
    cached = size <= 16 << 20 and cin * cout >= 1 << 20
    return cached or (bits == 8 and cin * cout >= 1 << 24 and size <= 4 * cin * cout)


def dw_by_chunks(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return dW [COUT, CIN] of contiguous tensors without the fused kernel: x̂ is made in parts."""
    rows, columns, dtype = block_rows(bits), words.shape[2], dy.dtype if dtype is None else dtype
    chunk = max(CHUNK, 4 * columns * dy.shape[1])  # dW's float32 sums are as large
    blocks = max(chunk // (rows * columns * dy.element_size()), 1)  # at a time
    options = {} if dy.dtype == torch.float32 else {"out_dtype": torch.float32}
    total = None
    with launching.no_autocast(dy):
        if blocks >= words.shape[0]:
            x = dequantize_unchecked(words, params, bits, group_size, [len(dy), columns])
            return torch.mm(dy.t(), x, **({} if dtype == dy.dtype else options)).to(dtype)
        for first in range(0, words.shape[0], blocks):
            some = slice(first, first + blocks)
            dy_rows = dy[first * rows : (first + blocks) * rows]
            x = dequantize_unchecked(words[some], params[:, some], bits, group_size, [len(dy_rows), columns])
            if total is None:
                total = torch.mm(dy_rows.t(), x, **options)
            else:
                total = torch.addmm(total, dy_rows.t(), x, **options)
            del x  # before the next is made
    return total.to(dtype)


def _forward_cuda(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, features: int
) -> torch.Tensor:
    """y [M, N] of contiguous tensors on a GPU; no size is 0."""
    launch = _fused(x, words, bits, group_size)
    if launch is None:
        weight = dequantize_unchecked(words, params, bits, group_size, [features, x.shape[1]])
        with torch.autocast("cuda", enabled=False):
            return x @ weight.t()
    y = x.new_empty(x.shape[0], features)
    launch(x, words, params, y, bits, group_size)
    return y


def _fused(x: torch.Tensor, words: torch.Tensor, bits: int, group_size: int) -> Callable[..., None] | None:
    """Return the function that launches a fused kernel for these, or None if ŵ must be made.

    If the weight is large, the kernel of 128 rows is the faster one from 9 rows on.
    """
    rows = x.shape[0]
    few = rows <= 8 or (rows <= 16 and words.numel() * (16 // bits) < 1 << 25)
    if not few and dequant_gemm_rows128.fits(x, words, group_size):
        return dequant_gemm_rows128.launch
    if rows <= FEW_ROWS and dequant_gemm_rows16.fits(x, group_size):
        return dequant_gemm_rows16.launch
    return None


# ---- the operators that torch knows


def _dequant_gemm_dw_now(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    if dy.dim() != 2 or not dy.is_contiguous():
        dy = dy.reshape(matrix_shape(dy.shape)).contiguous()
    words, params = words.contiguous(), params.contiguous()
    if not dy.is_cuda:
        with torch.autocast(dy.device.type, enabled=False):
            return dequant_gemm_dw_ref(dy, words, params, bits, group_size, dtype)
    if not dy.numel() or not words.numel():
        return dy.new_zeros(dy.shape[1], words.shape[2], dtype=dtype)
    with launching.on_device_of(dy):
        return _dw_cuda(dy, words, params, bits, group_size, dtype)


_dequant_gemm_dw = torch.library.custom_op(
    "bit_by_bit::dequant_gemm_dw", _dequant_gemm_dw_now, mutates_args=()
)
_dequant_gemm_dw_inside = launching.inside("dequant_gemm_dw", _dequant_gemm_dw, _dequant_gemm_dw_now)


def dw_unchecked(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return what `dequant_gemm_dw` returns, rounded to ``dtype``. Arguments are not checked."""
    arguments = (words, params, bits, group_size, dtype)
    return launching.run(_dequant_gemm_dw, _dequant_gemm_dw_inside, _dequant_gemm_dw_now, dy, *arguments)


@_dequant_gemm_dw.register_fake
def _(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    return dy.new_empty(dy.shape[-1], words.shape[2], dtype=dtype)


@torch.library.custom_op("bit_by_bit::dequant_gemm", mutates_args=())
def _dequant_gemm(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, features: int
) -> torch.Tensor:
    shape = (*x.shape[:-1], features)
    x = x.reshape(matrix_shape(x.shape)).contiguous()
    words, params = words.contiguous(), params.contiguous()
    if not x.numel() or not features:
        return x.new_zeros(shape)
    if not x.is_cuda:
        with torch.autocast(x.device.type, enabled=False):
            return dequant_gemm_ref(x, words, params, bits, group_size, features).view(shape)
    with torch.cuda.device(x.device):
        return _forward_cuda(x, words, params, bits, group_size, features).view(shape)


@_dequant_gemm.register_fake
def _(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, features: int
) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], features)


def _keep_the_weight(ctx, inputs: tuple, output: torch.Tensor) -> None:
    _, words, params, ctx.bits, ctx.group_size, ctx.features = inputs
    ctx.save_for_backward(words, params)


def _gradient_of_x(ctx, dy: torch.Tensor) -> tuple:
    words, params = ctx.saved_tensors
    weight = dequantize_unchecked(words, params, ctx.bits, ctx.group_size, [ctx.features, words.shape[2]])
    with torch.autocast(dy.device.type, enabled=False):
        dx = dy @ weight
    return dx, None, None, None, None, None


_dequant_gemm.register_autograd(_gradient_of_x, setup_context=_keep_the_weight)
