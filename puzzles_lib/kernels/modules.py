"""Layers that remember what backward needs in a few bits an element.

A linear layer keeps its input to compute its weight's gradient, a ReLU keeps its output to know where the
gradient passes: with bfloat16 that is 16 bits an element each, and most of the memory of training.
`PackedLinear` keeps the input quantised, `PackedReLU` one bit an element. The forward pass is exact, and
so is the gradient of the input; the gradient of a weight is dy^T @ x^, the exact one of the input that
comes back from its codes.

The idea of training on compressed activations is that of ActNN (Chen et al., 2021, arXiv:2104.14129).
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from puzzles_lib.kernels.bitpack import check_bits, matrix_shape
from puzzles_lib.kernels.common import DTYPES
from puzzles_lib.kernels.dequant_gemm import dequant_gemm_dw
from puzzles_lib.kernels.packed_relu import relu_pack, relu_unpack_backward
from puzzles_lib.kernels.quantize import PackedTensor, check_group_size, quantize_pack


class PackedLinear(nn.Linear):
    """`torch.nn.Linear` whose backward pass lives on a packed input.

    x [..., in_features] gives x @ weight^T + bias [..., out_features], as nn.Linear does: the same
    parameters, the same ``state_dict``. For backward it keeps x's codes of ``bits`` bits, and a scale and a
    minimum for each ``group_size`` neighbouring features of a row: with 2 bits and groups of 256 in
    bfloat16, 2.125 bits an element in place of 16. Without gradients, or with a frozen weight, it keeps
    nothing of x, as nn.Linear does.

    x may be float32, float16 or bfloat16, on any device, non-contiguous, under `torch.autocast`,
    `torch.compile` and gradient checkpointing. Gradients of gradients raise a RuntimeError.

    bits: 1, 2, 4 or 8. group_size: 1 or more; the last group of a row may be shorter.
    Raises ValueError for other bits or group sizes, TypeError on x of another dtype.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bits: int = 2,
        group_size: int = 256,
    ) -> None:
        check_bits(bits)
        check_group_size(group_size)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.bits, self.group_size = bits, group_size

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, bits: int = 2, group_size: int = 256) -> "PackedLinear":
        """A packed layer in place of ``linear``: it holds the same parameters, not copies of them.

        Raises TypeError where ``linear`` is no nn.Linear.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear is a {type(linear).__name__}, allowed is torch.nn.Linear")
        packed = cls(
            linear.in_features, linear.out_features, linear.bias is not None, device="meta",
            bits=bits, group_size=group_size,
        )  # fmt: skip
        packed.weight, packed.bias = linear.weight, linear.bias
        return packed.train(linear.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() or not self.weight.requires_grad:
            return F.linear(x, self.weight, self.bias)  # keeps nothing of x
        dtype, device = self.weight.dtype, x.device.type
        # A meta tensor has no autocast, and to ask whether it has is more than torch.compile understands.
        if device != "meta" and torch.is_autocast_enabled(device) and x.dtype in DTYPES:
            dtype = torch.get_autocast_dtype(device)
            x = x.to(dtype)
        return _Linear.apply(x, self.weight, self.bias, dtype, self.bits, self.group_size)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bits={self.bits}, group_size={self.group_size}"


class PackedReLU(nn.ReLU):
    """`torch.nn.ReLU` that keeps one bit an element for backward: was it above zero?

    x may be float32, float16 or bfloat16, of any shape and on any device; the result is contiguous. Where
    no gradient is wanted it keeps nothing. There is no in-place form. Gradients of gradients raise a
    RuntimeError, x of another dtype a TypeError.
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() or not x.requires_grad:
            return F.relu(x)
        return _ReLU.apply(x)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        bits: int,
        group_size: int,
    ) -> torch.Tensor:
        packed = quantize_pack(x, bits, group_size)
        # The parameter itself is kept, and cast again in backward: keeping its cast would take memory.
        ctx.save_for_backward(packed.words, packed.params, weight)
        ctx.bits, ctx.group_size, ctx.shape, ctx.dtype = bits, group_size, packed.shape, dtype
        return F.linear(x, weight.to(dtype), None if bias is None else bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        words, params, weight = ctx.saved_tensors
        packed = PackedTensor(words, params, ctx.bits, ctx.group_size, ctx.shape, ctx.dtype)
        dx = dw = db = None
        with torch.autocast(dy.device.type, enabled=False):
            if ctx.needs_input_grad[0]:
                dx = dy @ weight.to(dy.dtype)
            if ctx.needs_input_grad[1]:
                dw = dequant_gemm_dw(dy, packed).to(weight.dtype)
            if ctx.needs_input_grad[2]:
                db = dy.reshape(matrix_shape(dy.shape)).sum(0).to(weight.dtype)
        return dx, dw, db, None, None, None


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y, mask = relu_pack(x)
        ctx.save_for_backward(mask)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
        return relu_unpack_backward(dy, *ctx.saved_tensors)
