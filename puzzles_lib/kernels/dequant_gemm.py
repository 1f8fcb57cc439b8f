"""Matrix products with one factor packed, dequantised inside the product.

Two of them, both on `puzzles_lib.kernels.quantize.PackedTensor` as it is, with no conversion before:

    dequant_gemm_dw(dy, packed)      dW[COUT, CIN] = dy[K, COUT]^T @ x^[K, CIN]    a weight's gradient
    dequant_gemm(x, packed_weight)   y[M, N] = x[M, K] @ w^[N, K]^T                a layer's forward

x^ and w^ are what `dequantize` gives, rounded once to the dtype; sums are float32, rounded once at the
end. A large K is split among programs, whose partial sums are added in a fixed order: the same inputs
give the same bits.
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import dequant_gemm_hopper
from puzzles_lib.kernels.bitpack import matrix_shape
from puzzles_lib.kernels.quantize import PackedTensor, _dequantize, check_packed, dequantize_ref


def dequant_gemm_dw(dy: torch.Tensor, packed: PackedTensor) -> torch.Tensor:
    """The gradient [COUT, CIN] of a linear layer's weight, from its packed input.

    dy: [..., COUT], the gradient of the layer's output; dtype (float32, float16 or bfloat16), device and
        leading axes are those of ``packed``, which holds the layer's input [..., CIN]. Any size, empty
        ones too; non-contiguous is accepted.
    Returns dy^T @ x^ in that dtype. With no rows it is 0.

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
    Returns [..., N] in that dtype. Its gradient with respect to x is that of the dequantised weight, which
    the backward pass makes for the while; the packed weight is a constant.

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
def _load_dequantized(words_ptr, params_ptr, rows, columns, K, C, blocks, group_size, BITS: tl.constexpr):
    """Rows and columns of x^, as a tile [rows, columns] of its dtype; 0 outside of [K, C]."""
    FIELDS: tl.constexpr = 16 // BITS
    block = (rows // (16 * FIELDS)).to(tl.int64)[:, None]  # [rows, 1]
    mask = (rows < K)[:, None] & (columns < C)[None, :]
    words = tl.load(
        words_ptr + (block * 16 + (rows % 16)[:, None]) * C + columns[None, :], mask=mask, other=0
    )
    group = (columns // group_size).to(tl.int64)[None, :]
    param = params_ptr + (group * blocks + block) * (2 * 16 * FIELDS) + (rows % (16 * FIELDS))[:, None]
    scale = tl.load(param, mask=mask, other=0.0).to(tl.float32)
    low = tl.load(param + 16 * FIELDS, mask=mask, other=0.0).to(tl.float32)
    field = (rows // 16 % FIELDS)[:, None]
    code = (words.to(tl.int32) >> (BITS * field)) & ((1 << BITS) - 1)
    return tl.fma(code.to(tl.float32), scale, low).to(params_ptr.dtype.element_ty)


@triton.jit
def _dequant_gemm_dw_kernel(
    dy_ptr, words_ptr, params_ptr, out_ptr, K, COUT, CIN, blocks, group_size, rows_a_split,
    BITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of dW from the rows of one split: program (split, along COUT, along CIN)."""
    split = tl.program_id(0)
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    first = split * rows_a_split
    for start in range(first, min(first + rows_a_split, K), BLOCK_K):
        rows = start + tl.arange(0, BLOCK_K)  # [BLOCK_K]
        x = _load_dequantized(words_ptr, params_ptr, rows, offs_n, K, CIN, blocks, group_size, BITS)
        mask = (rows < K)[:, None] & (offs_m < COUT)[None, :]
        where = rows.to(tl.int64)[:, None] * COUT + offs_m[None, :]
        dy = tl.load(dy_ptr + where, mask=mask, other=0.0)  # [BLOCK_K, BLOCK_M]
        acc = tl.dot(tl.trans(dy), x, acc, input_precision="ieee")
    out_ptr += split.to(tl.int64) * COUT * CIN
    mask = (offs_m < COUT)[:, None] & (offs_n < CIN)[None, :]
    tl.store(out_ptr + offs_m.to(tl.int64)[:, None] * CIN + offs_n[None, :], acc, mask=mask)


@triton.jit
def _dequant_gemm_kernel(
    x_ptr, words_ptr, params_ptr, out_ptr, M, N, K, blocks, group_size,
    BITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of x @ w^^T: program (along M, along N)."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)  # [BLOCK_K]
        w = _load_dequantized(words_ptr, params_ptr, offs_n, offs_k, N, K, blocks, group_size, BITS)
        mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
        where = offs_m.to(tl.int64)[:, None] * K + offs_k[None, :]
        x = tl.load(x_ptr + where, mask=mask, other=0.0)  # [BLOCK_M, BLOCK_K]
        acc = tl.dot(x, tl.trans(w), acc, input_precision="ieee")
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(out_ptr + offs_m.to(tl.int64)[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def _sum_splits_kernel(parts_ptr, out_ptr, splits, N, BLOCK: tl.constexpr):
    """out[i], the sum of parts[s, i] over the splits in their order, float32."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    acc = tl.zeros([BLOCK], tl.float32)
    for split in range(splits):
        acc += tl.load(parts_ptr + split.to(tl.int64) * N + offs, mask=offs < N, other=0.0)
    tl.store(out_ptr + offs, acc, mask=offs < N)


# ---- launching them


def _dw_cuda(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    """dW of contiguous tensors on a GPU, dy [K, COUT]; no size is 0."""
    if dequant_gemm_hopper.fits(dy, words, params, group_size):
        return dequant_gemm_hopper.launch(dy, words, params, bits, group_size)
    dw = dy.new_empty(dy.shape[1], words.shape[2])
    launch_dequant_gemm_dw(dy, words, params, dw, bits, group_size, _multiprocessors(dy))
    return dw


def _multiprocessors(tensor: torch.Tensor) -> int:
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def launch_dequant_gemm_dw(
    dy: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    dw: torch.Tensor,
    bits: int,
    group_size: int,
    multiprocessors: int,
) -> None:
    """Fill dw [COUT, CIN]: the plain path, for every shape and dtype."""
    (rows, cout), cin = dy.shape, words.shape[2]
    block, block_k = (64, 16) if dy.dtype == torch.float32 else (128, 32)
    tiles = (triton.cdiv(cout, block), triton.cdiv(cin, block))
    rows_a_split, splits = split_rows(rows, block_k, tiles[0] * tiles[1], 2 * multiprocessors)
    parts = dw if splits == 1 else dy.new_empty(splits, cout, cin, dtype=torch.float32)
    _dequant_gemm_dw_kernel[(splits, *tiles)](
        dy, words, params, parts, rows, cout, cin, words.shape[0], group_size, rows_a_split,
        BITS=bits, BLOCK_M=block, BLOCK_N=block, BLOCK_K=block_k, num_warps=8,
    )  # fmt: skip
    if splits > 1:
        sum_splits(parts, dw)


def split_rows(rows: int, block_k: int, tiles: int, programs: int) -> tuple[int, int]:
    """Rows of a split and how many splits there are: about ``programs`` in all, and none of them empty.

    A split has at least 8 steps of ``block_k`` rows, since adding it up costs as much as a few of them.
    """
    steps = triton.cdiv(rows, block_k)
    wanted = max(1, min(programs // tiles, steps // 8))
    steps_a_split = triton.cdiv(steps, wanted)
    return steps_a_split * block_k, triton.cdiv(steps, steps_a_split)


def sum_splits(parts: torch.Tensor, out: torch.Tensor) -> None:
    """Fill out from parts [splits, ...], float32."""
    grid = (triton.cdiv(out.numel(), 1024),)
    _sum_splits_kernel[grid](parts, out, parts.shape[0], out.numel(), BLOCK=1024)


def launch_dequant_gemm(
    x: torch.Tensor, words: torch.Tensor, params: torch.Tensor, y: torch.Tensor, bits: int, group_size: int
) -> None:
    """Fill y [M, N]: the plain path, for every shape and dtype."""
    (rows, columns), features = x.shape, y.shape[1]
    block_m, block_n, block_k = (64, 64, 16) if x.dtype == torch.float32 else (128, 128, 32)
    block_m = min(block_m, max(16, triton.next_power_of_2(rows)))
    grid = (triton.cdiv(rows, block_m), triton.cdiv(features, block_n))
    _dequant_gemm_kernel[grid](
        x, words, params, y, rows, features, columns, words.shape[0], group_size,
        BITS=bits, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        num_warps=8,
    )  # fmt: skip


# ---- the operators that torch knows


@torch.library.custom_op("bit_by_bit::dequant_gemm_dw", mutates_args=())
def _dequant_gemm_dw(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    dy = dy.reshape(matrix_shape(dy.shape)).contiguous()
    words, params = words.contiguous(), params.contiguous()
    if not dy.is_cuda:
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
    if not x.is_cuda:
        return dequant_gemm_ref(x, words, params, bits, group_size, features).view(shape)
    if not x.numel() or not features:
        return x.new_zeros(shape)
    y = x.new_empty(shape)
    with torch.cuda.device(x.device):
        launch_dequant_gemm(x, words, params, y.view(-1, features), bits, group_size)
    return y


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
    weight = _dequantize(words, params, ctx.bits, ctx.group_size, [ctx.features, words.shape[2]])
    return dy @ weight, None, None, None, None, None


_dequant_gemm.register_autograd(_gradient_of_x, setup_context=_keep_the_weight)
