"""Rotary positions: each pair of numbers of a head is rotated by the angle of its token's position.

With a, b the halves of a head, and c, s the cosines and sines of the token's position:

    a' = a c - b s,    b' = b c + a s

The gradient is the rotation back: the same with -s. The method is RoPE's (Su et al., 2021, arXiv:2104.09864),
with the pairs half a head apart, as in transformers.
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.common import check_dtype, overlapped

HALVES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, *HALVES, torch.float64)
NUMBERS = 1024  # of the first halves, in a program


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Rotate each head of x by its token's angles (rotary position embedding); differentiable in x.

    Elements i and i + D / 2 of a head are a pair (a, b), which becomes (a cos - b sin, b cos + a sin).

    x: [T, H, D], D even: float16, bfloat16, float32 or float64. x can be a slice of a tensor that contains q,
        k and v side by side: that needs no copy.
    cos, sin: [C, D / 2], float32 (float64 if x is float64): the cosine and sine of each pair's angle at each
        position.
    position: int32 [T], the position of each token, from 0 to C - 1.

    Everything except float64 runs a Triton kernel on a GPU, which computes in float32.

    Returns a contiguous tensor of x's shape and dtype.

    Raises TypeError for another dtype, ValueError for shapes or devices that do not fit. On a GPU, a position
    outside 0 to C - 1 isn't detected and reads out of bounds. On the CPU it raises an IndexError or counts
    from the end.
    """
    _check(x, cos, sin, position)
    if torch.is_grad_enabled() and x.requires_grad:
        return _rope(x, cos, sin, position, False)
    return launching.run(_rope, _rope, _rope_now, x, cos, sin, position, False)


def _check(x, cos, sin, position) -> None:
    check_dtype("x", x, DTYPES)
    check_dtype("position", position, (torch.int32,))
    if x.dim() != 3 or x.shape[2] % 2:
        raise ValueError(f"x must have shape (T, H, D) with D even, but has shape {tuple(x.shape)}")
    for name, value in (("cos", cos), ("sin", sin)):
        check_dtype(name, value, (torch.float64 if x.dtype == torch.float64 else torch.float32,))
        if value.dim() != 2 or value.shape[1] != x.shape[2] // 2 or value.shape != cos.shape:
            allowed = f"({cos.shape[0] if name == 'sin' and cos.dim() else 'C'}, {x.shape[2] // 2})"
            raise ValueError(f"{name} must have shape {allowed}, but has shape {tuple(value.shape)}")
    if position.shape != x.shape[:1]:
        raise ValueError(f"position must have shape ({x.shape[0]},), but has shape {tuple(position.shape)}")
    for name, value in (("cos", cos), ("sin", sin), ("position", position)):
        if value.device != x.device:
            raise ValueError(f"{name} must be on the device of x, {x.device}, but is on {value.device}")


# ---- torch, the reference


def rope_ref(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: torch.Tensor, back: bool
) -> torch.Tensor:
    """Return x [T, H, D] rotated by its angles, or rotated back; arguments as for `rope`."""
    c, s = (each[position.long()][:, None] for each in (cos, -sin if back else sin))  # [T, 1, D / 2]
    a, b = x.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1).to(x.dtype)


# ---- Triton


@triton.jit
def _rope_kernel(
    x_ptr, cos_ptr, sin_ptr, position_ptr, z_ptr, stride, H,
    HALF: tl.constexpr, BLOCK: tl.constexpr, BLOCK_H: tl.constexpr, BACK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Some heads of a token. stride: from a token of x to the next. HALF: that of a head."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    i = tl.arange(0, BLOCK)
    angle = tl.load(position_ptr + t).to(tl.int64) * HALF + i
    c = tl.load(cos_ptr + angle, mask=i < HALF, other=0.0)[None, :]
    s = tl.load(sin_ptr + angle, mask=i < HALF, other=0.0)[None, :]
    if BACK:
        s = -s
    mask = (h < H)[:, None] & (i < HALF)[None, :]
    first = h[:, None] * (2 * HALF) + i[None, :]  # [BLOCK_H, BLOCK]
    a = tl.load(x_ptr + t * stride + first, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + t * stride + first + HALF, mask=mask, other=0.0).to(tl.float32)
    z_ptr += t * H * (2 * HALF)
    tl.store(z_ptr + first, (a * c - b * s).to(z_ptr.dtype.element_ty), mask=mask)
    tl.store(z_ptr + first + HALF, (b * c + a * s).to(z_ptr.dtype.element_ty), mask=mask)


def _on_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda and x.dtype != torch.float64


def _launch(x, cos, sin, position, z, back: bool) -> None:
    (T, H, D), stride = x.shape, x.stride(0)
    pdl = x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    block = triton.next_power_of_2(D // 2)
    heads = min(triton.next_power_of_2(H), max(1, NUMBERS // block))
    options = {"HALF": D // 2, "BLOCK": block, "BLOCK_H": heads, "BACK": back, "PDL": pdl}
    options |= {"num_warps": 4, "num_stages": 1}
    launching.launch(
        _rope_kernel, ("rope", x.dtype, T, H, D, stride, back), (x, cos, sin, position, z),
        lambda: ((T, triton.cdiv(H, heads)), (stride, H), options | overlapped(pdl)),
    )  # fmt: skip


# ---- the operator that torch knows


def _rope_now(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: torch.Tensor, back: bool
) -> torch.Tensor:
    if not _on_gpu(x):
        return rope_ref(x, cos, sin, position, back)
    if x.stride(2) != 1 or x.stride(1) != x.shape[2]:
        x = x.contiguous()
    z = x.new_empty(x.shape)
    if z.numel():
        with launching.on_device_of(x):
            _launch(x, cos.contiguous(), sin.contiguous(), position.contiguous(), z, back)
    return z


_rope = torch.library.custom_op("bit_by_bit::rope", _rope_now, mutates_args=())


@_rope.register_fake
def _(x, cos, sin, position, back):
    return x.new_empty(x.shape)


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[1:4])
    ctx.back = inputs[4]


def _backward(ctx, dz):
    return _rope(dz, *ctx.saved_tensors, not ctx.back), None, None, None, None


_rope.register_autograd(_backward, setup_context=_keep)
