"""Matrix products with one factor packed: fused, where that is faster, else in chunks or whole.

Two of them, both on `puzzles_lib.kernels.quantize.PackedTensor` as it is, with no conversion before:

    dequant_gemm_dw(dy, packed)      dW[COUT, CIN] = dy[K, COUT]^T @ x^[K, CIN]    a weight's gradient
    dequant_gemm(x, packed_weight)   y[M, N] = x[M, K] @ w^[N, K]^T                a layer's forward

x^ and w^ are what `dequantize` gives, rounded once to the dtype; sums are float32, rounded once at the
end. Partial sums, of programs or of chunks of rows, are added in a fixed order: the same inputs give the
same bits.
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import dequant_gemm_hopper
from puzzles_lib.kernels.bitpack import block_rows, matrix_shape
from puzzles_lib.kernels.common import multiprocessors
from puzzles_lib.kernels.quantize import PackedTensor, check_packed, dequantize_ref, dequantize_words

CHUNK = 32 << 20  # bytes of x^ that `dequant_gemm_dw` makes at a time, where it makes any
FEW_ROWS = 32  # of x: up to here `dequant_gemm` reads the packed weight itself


def dequant_gemm_dw(dy: torch.Tensor, packed: PackedTensor) -> torch.Tensor:
    """The gradient [COUT, CIN] of a linear layer's weight, from its packed input.

    dy: [..., COUT], the gradient of the layer's output; dtype (float32, float16 or bfloat16), device and
        leading axes are those of ``packed``, which holds the layer's input [..., CIN]. Any size, empty
        ones too; non-contiguous is accepted.
    Returns dy^T @ x^ in that dtype. With no rows it is 0.

    On Hopper GPUs a fused kernel dequantises inside the product: for 16-bit floats, COUT and CIN multiples
    of 8, and groups of 64 or a multiple of 128, or all of a row; with up to 4 bits also 16 and 32.
    Otherwise x^ is made for some rows at a time, at most 32 MiB of it, and multiplied by cuBLAS; float32
    then follows torch's setting for TF32.

    Raises TypeError where ``packed`` is no `PackedTensor` or the dtypes differ, ValueError where shapes or
    devices do.
    """
    check_packed("packed", packed)
    _check_operand("dy", dy, "packed", packed)
    if dy.shape[:-1] != packed.shape[:-1]:
        text = f"dy has shape {tuple(dy.shape)}, allowed for packed of shape {packed.shape}"
        raise ValueError(f"{text} is {_shape_text(packed.shape[:-1])}")
    return _dequant_gemm_dw(dy, packed.words, packed.params, packed.bits, packed.group_size)


def dequant_gemm(x: torch.Tensor, packed_weight: PackedTensor) -> torch.Tensor:
    """A linear layer with a packed weight: x @ w^^T.

    x: [..., K], dtype (float32, float16 or bfloat16) and device those of ``packed_weight``, which holds a
        weight [N, K] in groups along K. Any size, empty ones too; non-contiguous is accepted.
    Returns [..., N] in that dtype. The gradient of x is dy @ w^; the packed weight is a constant.

    With few rows the time is that of reading the weight: on a GPU, up to 32 rows of 16-bit floats and groups
    of a multiple of 32 (or whole rows) are multiplied by the packed weight as it is read, which takes no
    memory besides. Otherwise, and in backward, w^ is made for the while: then arithmetic is what takes time.

    Raises TypeError where ``packed_weight`` is no `PackedTensor` or the dtypes differ, ValueError where
    shapes or devices do.
    """
    check_packed("packed_weight", packed_weight)
    if len(packed_weight.shape) != 2:
        raise ValueError(f"packed_weight has shape {packed_weight.shape}, allowed are two axes, [N, K]")
    _check_operand("x", x, "packed_weight", packed_weight)
    features, columns = packed_weight.shape
    if x.shape[-1] != columns:
        text = f"x has shape {tuple(x.shape)}, allowed for packed_weight of shape {packed_weight.shape}"
        raise ValueError(f"{text} is (..., {columns})")
    words, params = packed_weight.words, packed_weight.params
    return _dequant_gemm(x, words, params, packed_weight.bits, packed_weight.group_size, features)


def _check_operand(name: str, value: torch.Tensor, other: str, packed: PackedTensor) -> None:
    if not isinstance(value, torch.Tensor) or value.dtype != packed.dtype:
        what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"{name} is {what}, allowed is the dtype of {other}, {packed.dtype}")
    if value.dim() == 0:
        raise ValueError(f"{name} is a scalar, allowed are tensors of one axis or more")
    if value.device != packed.words.device:
        where = packed.words.device
        raise ValueError(f"{name} is on {value.device}, allowed is the device of {other}, {where}")


def _shape_text(leading: tuple[int, ...]) -> str:
    return "(" + "".join(f"{size}, " for size in leading) + "COUT)"


# ---- torch, the reference


def dequant_gemm_dw_ref(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    """dW [COUT, CIN] of a matrix dy [K, COUT]; sums in float32."""
    x = dequantize_ref(words, params, bits, group_size, dy.shape[0])
    return (dy.float().t() @ x.float()).to(dy.dtype)


def dequant_gemm_ref(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, features: int
) -> torch.Tensor:
    """y [M, N] of a matrix x [M, K]; sums in float32."""
    weight = dequantize_ref(words, params, bits, group_size, features)
    return (x.float() @ weight.float().t()).to(x.dtype)


# ---- Triton


@triton.jit
def _dequant_gemm_few_rows_kernel(
    x_ptr, words_ptr, params_ptr, out_ptr, M, N, K, blocks, group_size,
    BITS: tl.constexpr, UNPACK: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Features of y from PARTS fields of a block, 16 a field: program (fields, along M).

    A dot is one of SLICES independent ones, a warp each, with its own BLOCK_K columns a step: K is split
    within the program. The words go to the matrix unit's layout first and are unpacked there, in the thread
    that uses them. Params of the next step are asked for before this step's dots.
    """
    FIELDS: tl.constexpr = 16 // BITS
    first = tl.program_id(0) * PARTS  # a field, counted over all blocks
    block = (first // FIELDS).to(tl.int64)
    offs_r = tl.arange(0, 16)
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    words_ptr += block * 16 * K
    params_ptr += (block * 2 * FIELDS + first % FIELDS) * 16
    slices = tl.arange(0, SLICES) * BLOCK_K  # [SLICES]
    lane = tl.arange(0, BLOCK_K)
    accs, params = (), ()
    for part in tl.static_range(PARTS):
        accs = accs + (tl.zeros([SLICES, 16, BLOCK_M], tl.float32),)
        params = params + _load_params(params_ptr + 16 * part, slices, offs_r, K, blocks, group_size, FIELDS)
    for start in tl.range(0, K, SLICES * BLOCK_K, num_stages=3):
        offs_k = start + slices[:, None] + lane[None, :]  # [SLICES, BLOCK_K]
        where = offs_r[None, :, None] * K + offs_k[:, None, :]
        words = tl.load(words_ptr + where, mask=offs_k[:, None, :] < K, other=0)  # [SLICES, 16, BLOCK_K]
        where = offs_m[None, None, :] * K + offs_k[:, :, None]
        mask = (offs_m[None, None, :] < M) & (offs_k[:, :, None] < K)
        x = tl.load(x_ptr + where, mask=mask, other=0.0)  # [SLICES, BLOCK_K, BLOCK_M]
        now, sums = params, ()
        ahead = start + SLICES * BLOCK_K + slices
        params = ()
        for part in tl.static_range(PARTS):
            params = params + _load_params(
                params_ptr + 16 * part, ahead, offs_r, K, blocks, group_size, FIELDS
            )
        for part in tl.static_range(PARTS):
            scale, low = now[2 * part][:, :, None], now[2 * part + 1][:, :, None]  # [SLICES, 16, 1]
            w = _unpack(words, BITS * (first % FIELDS + part), scale, low, BITS, UNPACK)
            sums = sums + (tl.dot(w, x, accs[part]),)
        accs = sums
    for part in tl.static_range(PARTS):
        y = tl.sum(accs[part], axis=0)  # [16, BLOCK_M]
        offs_n = (first + part) * 16 + offs_r
        mask = (offs_n < N)[:, None] & (offs_m < M)[None, :]
        tl.store(out_ptr + offs_m.to(tl.int64)[None, :] * N + offs_n[:, None], y, mask=mask)


@triton.jit
def _load_params(params_ptr, columns, offs_r, K, blocks, group_size, FIELDS: tl.constexpr):
    """Scales and minima [columns, 16] of 16 rows for some columns; 0 past the last column."""
    group = (columns // group_size).to(tl.int64)
    where = params_ptr + (group * blocks * (32 * FIELDS))[:, None] + offs_r[None, :]
    mask = (columns < K)[:, None]
    return tl.load(where, mask=mask, other=0.0), tl.load(where + 16 * FIELDS, mask=mask, other=0.0)


@triton.jit
def _unpack(words, shift, scale, low, BITS: tl.constexpr, UNPACK: tl.constexpr):
    """The floats of the codes at ``shift`` in words: two at once by UNPACK, in float32 where it is empty."""
    shift = tl.zeros(words.shape, tl.int32) + shift
    if UNPACK == "":
        code = ((words.to(tl.int32) >> shift) & ((1 << BITS) - 1)).to(tl.float32)
        return tl.fma(code, scale.to(tl.float32), low.to(tl.float32)).to(scale.dtype)
    HIDDEN: tl.constexpr = 1024.0 if scale.dtype == tl.float16 else 128.0
    words = tl.inline_asm_elementwise(
        UNPACK, "=r,r,r,r", [words, shift], dtype=tl.int16, is_pure=True, pack=2
    )
    code = words.to(scale.dtype, bitcast=True) - HIDDEN
    return tl.fma(code, tl.broadcast_to(scale, words.shape), tl.broadcast_to(low, words.shape))


# ---- launching them


def _dw_cuda(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    """dW of contiguous tensors on a GPU, dy [K, COUT]; no size is 0."""
    if dequant_gemm_hopper.fits(dy, words, params, group_size):
        return dequant_gemm_hopper.launch(dy, words, params, bits, group_size)
    return dw_by_chunks(dy, words, params, bits, group_size)


def dw_by_chunks(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    """dW of contiguous tensors where the fused kernel does not fit: x^ is made for some rows at a time."""
    rows, columns = block_rows(bits), words.shape[2]
    blocks = max(CHUNK // (rows * columns * dy.element_size()), 1)  # at a time
    options = {} if dy.dtype == torch.float32 else {"out_dtype": torch.float32}
    total = None
    with torch.autocast(dy.device.type, enabled=False):
        for first in range(0, words.shape[0], blocks):
            some = slice(first, first + blocks)
            dy_rows = dy[first * rows : (first + blocks) * rows]
            x = dequantize_words(words[some], params[:, some], bits, group_size, [len(dy_rows), columns])
            if total is None:
                total = torch.mm(dy_rows.t(), x, **options)
            else:
                total = torch.addmm(total, dy_rows.t(), x, **options)
            del x  # before the next is made
    return total.to(dy.dtype)


def _forward_cuda(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int, features: int
) -> torch.Tensor:
    """y [M, N] of contiguous tensors on a GPU; no size is 0."""
    rows, columns = x.shape
    slices_fit = group_size % 32 == 0 or group_size >= columns
    if rows > FEW_ROWS or x.dtype == torch.float32 or not slices_fit:
        weight = dequantize_words(words, params, bits, group_size, [features, columns])
        with torch.autocast("cuda", enabled=False):
            return x @ weight.t()
    y = x.new_empty(rows, features)
    capable = torch.cuda.get_device_capability(x.device) >= (9, 0)
    unpack = codes_asm(bits, x.dtype) if capable else ""
    launch_dequant_gemm_few_rows(x, words, params, y, bits, group_size, unpack, multiprocessors(x.device))
    return y


def launch_dequant_gemm_few_rows(
    x: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    y: torch.Tensor,
    bits: int,
    group_size: int,
    unpack: str,
    multiprocessors: int,
) -> None:
    """Fill y [M, N] for a small M and 16-bit floats; a group is 32 columns or a multiple of that, or all.

    unpack: what `codes_asm` gives, or "" for a GPU that has no bfloat16 arithmetic, or the interpreter.
    """
    (rows, columns), features = x.shape, y.shape[1]
    block_m = 8 if rows <= 8 else 16
    parts, block_k = 1, 128
    if triton.cdiv(features, 32) > 2 * multiprocessors:  # enough programs: two fields each, and fewer bytes
        parts, block_k = 2, 64
    while block_k > 32 and group_size % block_k and group_size < columns:
        block_k //= 2
    grid = (triton.cdiv(features, 16 * parts), triton.cdiv(rows, block_m))
    _dequant_gemm_few_rows_kernel[grid](
        x, words, params, y, rows, features, columns, words.shape[0], group_size,
        BITS=bits, UNPACK=unpack, PARTS=parts, BLOCK_M=block_m, BLOCK_K=block_k, SLICES=4, num_warps=4,
    )  # fmt: skip


def codes_asm(bits: int, dtype: torch.dtype) -> str:
    """PTX for `_unpack`: two codes from the halves of a register, each beside the bits of a power of two.

    In the low bits of 1024, a float16, a code below 1024 reads as 1024 + code, exactly; so does one below 128
    in the low bits of 128, a bfloat16. For codes of 8 bits, which are more than that, the text is empty.
    """
    if bits == 8:
        return ""
    power = 0x6400 if dtype == torch.float16 else 0x4300
    both = 0x10001  # times this: the same in both halves
    mask = f"{both * (2**bits - 1):#x}, {both * power:#x}"
    return f"{{ .reg .b32 w; shr.b32 w, $1, $2; lop3.b32 $0, w, {mask}, 0xEA; }}"  # (w & codes) | power


# ---- the operators that torch knows


@torch.library.custom_op("bit_by_bit::dequant_gemm_dw", mutates_args=())
def _dequant_gemm_dw(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    dy = dy.reshape(matrix_shape(dy.shape)).contiguous()
    words, params = words.contiguous(), params.contiguous()
    if not dy.is_cuda:
        with torch.autocast(dy.device.type, enabled=False):
            return dequant_gemm_dw_ref(dy, words, params, bits, group_size)
    if not dy.numel() or not words.numel():
        return dy.new_zeros(dy.shape[1], words.shape[2])
    with torch.cuda.device(dy.device):
        return _dw_cuda(dy, words, params, bits, group_size)


@_dequant_gemm_dw.register_fake
def _(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    return dy.new_empty(dy.shape[-1], words.shape[2])


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
    weight = dequantize_words(words, params, ctx.bits, ctx.group_size, [ctx.features, words.shape[2]])
    with torch.autocast(dy.device.type, enabled=False):
        dx = dy @ weight
    return dx, None, None, None, None, None


_dequant_gemm.register_autograd(_gradient_of_x, setup_context=_keep_the_weight)
