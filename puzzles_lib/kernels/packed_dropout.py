"""The mask of dropout in one bit per element.

`torch.nn.functional.dropout` keeps a byte per element for backward on a GPU, and a float on the CPU. With
everything else in a few bits, that is much of what is left. The random numbers are torch's own, so the same
elements are dropped with the same seed.

The bits are those of `puzzles_lib.kernels.packed_relu`: element ``8·i + b`` in bit ``b`` of byte ``i``.
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import launching

BLOCK = 2048  # elements per program

# ---- torch, the reference


def mask_pack_ref(mask: torch.Tensor) -> torch.Tensor:
    """Return the bits of a mask of booleans, [elements / 8] in uint8. The last byte is filled with zeros."""
    bits = mask.new_zeros(triton.cdiv(mask.numel(), 8) * 8, dtype=torch.uint8)
    bits[: mask.numel()] = mask.flatten()
    return (bits.view(-1, 8) << torch.arange(8, device=mask.device, dtype=torch.uint8)).sum(1).to(torch.uint8)


def dropout_backward_ref(dy: torch.Tensor, bits: torch.Tensor, scale: float) -> torch.Tensor:
    """Return dy times the scale, or 0 if the element was dropped: contiguous, with dy's shape.

    bits: uint8 [elements / 8], as from `mask_pack_ref`.
    """
    kept = (bits[:, None] >> torch.arange(8, device=bits.device, dtype=torch.uint8)) & 1
    kept = kept.flatten()[: dy.numel()].view(dy.shape).bool()
    return torch.where(kept, dy * scale, 0).contiguous()


# ---- Triton


@triton.jit
def _mask_pack_kernel(mask_ptr, bits_ptr, N, BLOCK: tl.constexpr):
    """8 adjacent elements belong to one thread, so that their byte is a sum within the thread."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    byte = tl.arange(0, BLOCK // 8)  # [BLOCK / 8]
    bit = tl.arange(0, 8)
    offs = start + byte[:, None] * 8 + bit[None, :]  # [BLOCK / 8, 8]
    kept = tl.load(mask_ptr + offs, mask=offs < N, other=0).to(tl.int32)
    where = start // 8 + byte
    tl.store(bits_ptr + where, tl.sum(kept << bit[None, :], axis=1).to(tl.uint8), mask=where * 8 < N)


@triton.jit
def _dropout_backward_kernel(dy_ptr, bits_ptr, dx_ptr, N, scale, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    byte = tl.arange(0, BLOCK // 8)  # [BLOCK / 8]
    bit = tl.arange(0, 8)
    offs = start + byte[:, None] * 8 + bit[None, :]  # [BLOCK / 8, 8]
    where = start // 8 + byte
    bits = tl.load(bits_ptr + where, mask=where * 8 < N, other=0).to(tl.int32)
    kept = ((bits[:, None] >> bit[None, :]) & 1) == 1
    dy = tl.load(dy_ptr + offs, mask=offs < N, other=0.0).to(tl.float32)
    tl.store(dx_ptr + offs, tl.where(kept, dy * scale, 0.0), mask=offs < N)


def launch_mask_pack(mask: torch.Tensor, bits: torch.Tensor) -> None:
    """Fill bits, uint8 [elements / 8], from a contiguous mask with a byte per element."""
    size = mask.numel()
    launching.launch(
        _mask_pack_kernel, ("mask", size), (mask, bits),
        lambda: ((triton.cdiv(size, BLOCK),), (size,), {"BLOCK": BLOCK}),
    )  # fmt: skip


def launch_dropout_backward(dy: torch.Tensor, bits: torch.Tensor, dx: torch.Tensor, scale: float) -> None:
    """Fill dx from a contiguous dy of any shape, and bits, uint8 [elements / 8]."""
    size = dy.numel()
    launching.launch(
        _dropout_backward_kernel, ("dropout backward", dy.dtype, size, scale), (dy, bits, dx),
        lambda: ((triton.cdiv(size, BLOCK),), (size, scale), {"BLOCK": BLOCK}),
    )  # fmt: skip


# ---- the operators that torch knows


def _mask_pack_now(mask: torch.Tensor) -> torch.Tensor:
    if not mask.is_cuda:
        return mask_pack_ref(mask)
    mask, bits = mask.contiguous(), _empty_bits(mask)
    if mask.numel():
        with launching.on_device_of(mask):
            launch_mask_pack(mask.view(torch.uint8), bits)
    return bits


_mask_pack = torch.library.custom_op("bit_by_bit::mask_pack", _mask_pack_now, mutates_args=())
_mask_pack_inside = launching.inside("mask_pack", _mask_pack, _mask_pack_now)


def mask_pack_unchecked(mask: torch.Tensor) -> torch.Tensor:
    """Return the bits, uint8 [elements / 8], of a mask of booleans of any shape."""
    return launching.run(_mask_pack, _mask_pack_inside, _mask_pack_now, mask)


@_mask_pack.register_fake
def _(mask: torch.Tensor) -> torch.Tensor:
    return _empty_bits(mask)


def _empty_bits(mask: torch.Tensor) -> torch.Tensor:
    return mask.new_empty((mask.numel() + 7) // 8, dtype=torch.uint8)


def _dropout_backward_now(dy: torch.Tensor, bits: torch.Tensor, scale: float) -> torch.Tensor:
    if not dy.is_cuda:
        return dropout_backward_ref(dy, bits, scale)
    dy, bits = dy.contiguous(), bits.contiguous()
    dx = torch.empty_like(dy)
    if dy.numel():
        with launching.on_device_of(dy):
            launch_dropout_backward(dy, bits, dx, scale)
    return dx


_dropout_backward = torch.library.custom_op(
    "bit_by_bit::dropout_backward", _dropout_backward_now, mutates_args=()
)
_dropout_backward_inside = launching.inside("dropout_backward", _dropout_backward, _dropout_backward_now)


def dropout_backward_unchecked(dy: torch.Tensor, bits: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the gradient before dropout, from the bits of its mask and ``1 / (1 - p)``."""
    return launching.run(_dropout_backward, _dropout_backward_inside, _dropout_backward_now, dy, bits, scale)


@_dropout_backward.register_fake
def _(dy: torch.Tensor, bits: torch.Tensor, scale: float) -> torch.Tensor:
    return dy.new_empty(dy.shape)
