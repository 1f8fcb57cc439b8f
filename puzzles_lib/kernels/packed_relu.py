"""ReLU that keeps one bit per element instead of the element.

The backward pass of ReLU asks a single question about the forward pass: was x above zero? `relu_pack` keeps
just that answer, 16 times less than x in bfloat16. `relu_unpack_backward` reads it back.

The mask has one byte for 8 elements in row-major order, element ``8·i + b`` in bit ``b`` of byte ``i``. Its
last byte is filled up with zeros.
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.common import check_dtype

FORWARD_BLOCK, BACKWARD_BLOCK = 2048, 1024  # elements per program


def relu_pack(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ReLU of x and the mask for `relu_unpack_backward`.

    x: float32, float16 or bfloat16, of any shape. It can be empty, and need not be contiguous.

    Returns (y, mask), both contiguous. y has the shape and dtype of x. mask is uint8 [ceil(elements / 8)],
    one bit per element of x. As in torch, NaN stays NaN and lets the gradient pass, and the gradient at 0 is
    0.

    Raises TypeError for another dtype.
    """
    check_dtype("x", x)
    return _relu_pack(x)


def relu_unpack_backward(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the gradient of ReLU's input x: dy where the mask has a one, and 0 elsewhere.

    dy: the gradient of y, float32, float16 or bfloat16, with the shape of x. mask: uint8, from `relu_pack`.

    Returns a contiguous tensor with the shape and dtype of dy.

    Raises TypeError for another dtype, and ValueError if mask and dy do not fit or are on two devices.
    """
    check_dtype("dy", dy)
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.uint8:
        raise TypeError(f"mask must be torch.uint8, but is {getattr(mask, 'dtype', type(mask).__name__)}")
    if tuple(mask.shape) != (triton.cdiv(dy.numel(), 8),):
        expected = (triton.cdiv(dy.numel(), 8),)
        raise ValueError(
            f"mask must have shape {expected} for {dy.numel()} elements, but has shape {tuple(mask.shape)}"
        )
    if mask.device != dy.device:
        raise ValueError(f"mask must be on the device of dy, {dy.device}, but is on {mask.device}")
    return _relu_unpack_backward(dy, mask)


# ---- torch, the reference


def relu_pack_ref(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    keep = ~(x <= 0).flatten()
    bits = keep.new_zeros(triton.cdiv(keep.numel(), 8) * 8)
    bits[: keep.numel()] = keep
    weights = 1 << torch.arange(8, device=x.device)
    mask = (bits.view(-1, 8) * weights).sum(1).to(torch.uint8)
    return torch.where(x <= 0, 0, x).contiguous(), mask


def relu_unpack_backward_ref(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    bits = (mask[:, None] >> torch.arange(8, device=mask.device, dtype=torch.uint8)) & 1
    keep = bits.flatten()[: dy.numel()].view(dy.shape).bool()
    return torch.where(keep, dy, 0).contiguous()


# ---- Triton


@triton.jit
def _relu_pack_kernel(x_ptr, y_ptr, mask_ptr, N, BLOCK: tl.constexpr):
    """8 adjacent elements belong to one thread, so that its mask byte is a sum within the thread."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    byte = tl.arange(0, BLOCK // 8)  # [BLOCK / 8]
    bit = tl.arange(0, 8)
    offs = start + byte[:, None] * 8 + bit[None, :]  # [BLOCK / 8, 8]
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    off = x <= 0
    tl.store(y_ptr + offs, tl.where(off, 0.0, x), mask=offs < N)
    ones = tl.where(off, 0, 1) << bit[None, :]
    where = start // 8 + byte  # [BLOCK / 8]
    tl.store(mask_ptr + where, tl.sum(ones, axis=1).to(tl.uint8), mask=where * 8 < N)


@triton.jit
def _relu_unpack_backward_kernel(dy_ptr, mask_ptr, dx_ptr, N, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    byte = tl.arange(0, BLOCK // 8)  # [BLOCK / 8]
    bit = tl.arange(0, 8)
    offs = start + byte[:, None] * 8 + bit[None, :]  # [BLOCK / 8, 8]
    where = start // 8 + byte
    ones = tl.load(mask_ptr + where, mask=where * 8 < N, other=0).to(tl.int32)
    keep = ((ones[:, None] >> bit[None, :]) & 1) == 1
    dy = tl.load(dy_ptr + offs, mask=offs < N, other=0.0)
    tl.store(dx_ptr + offs, tl.where(keep, dy, 0.0), mask=offs < N)


# ---- the operators that torch knows


def _relu_pack_now(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if not x.is_cuda:
        return relu_pack_ref(x)
    x = x.contiguous()
    y, mask = torch.empty_like(x), _empty_mask(x)
    if size := x.numel():
        with launching.on_device_of(x):
            launching.launch(
                _relu_pack_kernel, ("relu", x.dtype, size), (x, y, mask),
                lambda: ((triton.cdiv(size, FORWARD_BLOCK),), (size,), {"BLOCK": FORWARD_BLOCK}),
            )  # fmt: skip
    return y, mask


_relu_pack = torch.library.custom_op("bit_by_bit::relu_pack", _relu_pack_now, mutates_args=())
_relu_pack_inside = launching.inside("relu_pack", _relu_pack, _relu_pack_now)


def relu_pack_unchecked(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `relu_pack` returns. x is not checked."""
    return launching.run(_relu_pack, _relu_pack_inside, _relu_pack_now, x)


@_relu_pack.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), _empty_mask(x)


def _empty_mask(x: torch.Tensor) -> torch.Tensor:
    return launching.empty(x, ((x.numel() + 7) // 8,), torch.uint8)


def _relu_unpack_backward_now(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if not dy.is_cuda:
        return relu_unpack_backward_ref(dy, mask)
    dy, mask = dy.contiguous(), mask.contiguous()
    dx = torch.empty_like(dy)
    if size := dy.numel():
        with launching.on_device_of(dy):
            launching.launch(
                _relu_unpack_backward_kernel, ("relu backward", dy.dtype, size), (dy, mask, dx),
                lambda: ((triton.cdiv(size, BACKWARD_BLOCK),), (size,), {"BLOCK": BACKWARD_BLOCK}),
            )  # fmt: skip
    return dx


_relu_unpack_backward = torch.library.custom_op(
    "bit_by_bit::relu_unpack_backward", _relu_unpack_backward_now, mutates_args=()
)
_relu_unpack_backward_inside = launching.inside(
    "relu_unpack_backward", _relu_unpack_backward, _relu_unpack_backward_now
)


def relu_backward_unchecked(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return what `relu_unpack_backward` returns. The arguments are not checked."""
    operators = (_relu_unpack_backward, _relu_unpack_backward_inside, _relu_unpack_backward_now)
    return launching.run(*operators, dy, mask)


@_relu_unpack_backward.register_fake
def _(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return dy.new_empty(dy.shape)
