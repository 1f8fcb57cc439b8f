"""Layers that keep what backward needs in a few bits per element.

A linear layer keeps its input to compute its weight's gradient. An activation or a norm keeps its input or
output. With bfloat16 that is 16 bits per element each, and most of the memory of training. These layers keep:

    PackedLinear                        its input's codes
    PackedReLU, PackedGELU, PackedSiLU  the slope, in 1 bit (ReLU) or 4
    PackedLayerNorm, PackedRMSNorm      the normalized input's codes
    PackedDropout                       its mask, in 1 bit
    PackedMLP                           linear, activation, linear: all of these, with fused kernels

The forward pass is exact except for rounding. So are the gradients of a linear layer's input and bias, and
ReLU's gradient. The gradient of a weight is computed from the input that its codes stand for.
`pack_activations` replaces a model's torch layers by these.

The idea of training on compressed activations comes from ActNN (Chen et al., 2021, arXiv:2104.14129).
"""

import warnings
from collections import OrderedDict
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from puzzles_lib.kernels import sharing
from puzzles_lib.kernels.bitpack import check_bits, matrix_shape
from puzzles_lib.kernels.common import DTYPES
from puzzles_lib.kernels.dequant_gemm import dw_unchecked
from puzzles_lib.kernels.launching import no_autocast
from puzzles_lib.kernels.packed_activation import (
    activation_backward_unchecked,
    activation_backward_unchecked_,
    activation_pack_unchecked,
    activation_quantize_unchecked_,
)
from puzzles_lib.kernels.packed_dropout import dropout_backward_unchecked, mask_pack_unchecked
from puzzles_lib.kernels.packed_norm import norm_backward_unchecked, norm_quantize_unchecked
from puzzles_lib.kernels.packed_relu import relu_backward_unchecked, relu_pack_unchecked
from puzzles_lib.kernels.quantize import check_group_size, dequantize_unchecked, quantize_unchecked
from puzzles_lib.kernels.rounding import rounding_of
from puzzles_lib.kernels.sharing import Codes, Key, Pending

TRAINED = "trained_when_packed"  # an attribute of linear layers that were not frozen then
SEED = "rounding_seed"  # the buffer of a layer that rounds stochastically


class Quantizing(nn.Module):
    """Base of the layers that keep codes: the format of the codes, and their random numbers."""

    bits: int
    group_size: int
    rounding: str

    def set_format(self, bits: int, group_size: int, rounding: str | None) -> None:
        """Set the format of the codes that this layer keeps from now on."""
        check_bits(bits)
        check_group_size(group_size)
        self.rounding = rounding_of(bits, rounding)
        self.bits, self.group_size = bits, group_size
        if self.rounding == "nearest":
            self._buffers.pop(SEED, None)
            self._non_persistent_buffers_set.discard(SEED)

    def set_seed(self, seed: int) -> None:
        """Round by the numbers of this seed from now on, if this layer rounds stochastically."""
        if self.rounding == "nearest":
            return
        weight, before = next(self.parameters(), None), self._buffers.get(SEED)
        device = None if weight is None else weight.device
        if before is not None and device in (None, before.device):
            before.fill_(seed)
        else:  # not in the state_dict, which is that of torch's layer
            value = torch.full((), seed, dtype=torch.int64, device=device)
            self.register_buffer(SEED, value, persistent=False)

    def format_text(self) -> str:
        return f"bits={self.bits}, group_size={self.group_size}, rounding={self.rounding!r}"

    def seed(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return the seed for the codes of x: that of `seed_rounding`, or eight bytes from the middle of x.

        So random numbers change with the data, with no state to keep: a recomputed forward pass, a resumed
        run, a replayed graph and each rank of several have the right ones.
        """
        if self.rounding == "nearest":
            return None
        if self._buffers.get(SEED) is not None:
            return self._buffers[SEED].to(x.device)
        words, size = x.numel() * x.element_size() // 8, x.element_size()
        if (
            words > 1
            and x.is_contiguous()
            and not x.shape[-1] * size % 8
            and not x.storage_offset() * size % 8
        ):
            return x.detach().view(torch.int64).view(-1)[words // 4 * 2]
        row = x.detach()[tuple(length // 2 for length in x.shape[:-1])] if x.numel() else x.detach()
        some = row[row.numel() // 2 :][: 8 // size] if row.numel() >= 16 // size else row[:0]
        if not some.numel():
            return torch.zeros((), dtype=torch.int64, device=x.device)
        return some.clone(memory_format=torch.contiguous_format).view(torch.int64)[0]

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Return x @ weightᵀ + bias, with x's codes kept for the gradient of weight [out, in]."""
        if not torch.is_grad_enabled() or not weight.requires_grad or not isinstance(x, torch.Tensor):
            self._tell_if_frozen(x)
            return F.linear(x, weight, bias)  # keeps nothing of x, or says what is wrong with x
        cast, dtype = _autocast(x, weight.dtype)
        _check_input(self, cast)
        kept = self.kept(x, cast)
        return _apply(_Linear, cast, weight, bias, *kept, dtype, self.bits, self.group_size)

    def _tell_if_frozen(self, x: torch.Tensor) -> None:
        """Warn once if this layer was trainable when it was packed, and now only passes gradients on."""
        if torch.compiler.is_compiling() or TRAINED not in vars(self) or not _has_gradient(x):
            return
        delattr(self, TRAINED)
        warnings.warn(
            "a layer was frozen after pack_activations and keeps nothing now. If layers that train were"
            " added, such as LoRA's, call pack_activations(model) again",
            stacklevel=3,
        )

    def keeps(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> bool:
        """Return whether a norm keeps anything of x. Raise an error if a packed norm can't take x."""
        if not torch.is_grad_enabled() or not isinstance(x, torch.Tensor):
            return False
        wanted = x.requires_grad or (weight is not None and weight.requires_grad)
        if wanted or (bias is not None and bias.requires_grad):
            _check_input(self, x)
            return True
        return False

    def normed(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        rms: bool,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """Return the norm of x over its last axis, with codes of the normalized x, in ``dtype``, kept."""
        options = (eps, rms, self.bits, self.group_size, dtype, self.seed(x))
        return _apply(_NormFunction, x, weight, bias, *options)

    def product(self, a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
        """Return a * b, with codes of both factors kept for the gradients."""
        alike = a.shape == b.shape and a.dtype == b.dtype and a.dtype in DTYPES
        if not torch.is_grad_enabled() or not (a.requires_grad and b.requires_grad) or not alike:
            return a * b
        _check_input(self, a)
        return _apply(_Product, a, b, bits, self.group_size)

    def product_linear(self, a: torch.Tensor, b: torch.Tensor, layer: nn.Module, bits: int) -> torch.Tensor:
        """Return layer(a * b), with codes of a and b kept for all gradients, also that of the weight."""
        plain = type(layer) is not PackedLinear or not layer.weight.requires_grad or a.shape != b.shape
        if plain or _has_any_global_hook() or _has_hooks(layer) or not torch.is_grad_enabled():
            return layer(self.product(a, b, bits))
        (a, dtype), (b, _) = _autocast(a, layer.weight.dtype), _autocast(b, layer.weight.dtype)
        _check_input(self, a)
        _check_input(self, b)
        return _apply(_ProductLinear, a, b, layer.weight, layer.bias, dtype, bits, self.group_size)

    def grouped_linear(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        ends: torch.Tensor,
        order: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return each row of x times the weight of its group, with x's codes kept; see `_GroupedLinear`."""
        cast, dtype = _autocast(x, weight.dtype)
        _check_input(self, cast)
        options = (dtype, self.bits, self.group_size, self.seed(cast))
        return _apply(_GroupedLinear, cast, None, weight, order, None, ends, *options)

    def grouped_product_linear(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        weight: torch.Tensor,
        ends: torch.Tensor,
        scales: torch.Tensor,
        bits: int,
    ) -> torch.Tensor:
        """Return each row of a * b times its group's weight and its own scale, with codes of a and b kept."""
        (a, dtype), (b, _) = _autocast(a, weight.dtype), _autocast(b, weight.dtype)
        return _apply(_GroupedLinear, a, b, weight, None, scales, ends, dtype, bits, self.group_size, None)

    def kept(self, x: torch.Tensor, cast: torch.Tensor) -> Codes:
        """Return codes of x, perhaps another layer's with this input. cast: x in the computation's dtype."""
        if torch.compiler.is_compiling() or not sharing.is_open():
            seed = None if self.rounding == "nearest" else self.seed(cast)
            detached = cast.detach() if cast.requires_grad else cast
            return Codes(*quantize_unchecked(detached, self.bits, self.group_size, seed), None)
        key = Key(self.bits, self.group_size, cast.dtype, self.rounding, x.shape[-1] if x.dim() else 0)
        found = sharing.find(x, key)
        if found is None:
            words, params = quantize_unchecked(cast.detach(), self.bits, self.group_size, self.seed(cast))
            found = Codes(words, params, Pending())
            sharing.remember(x, key, found)
        return found


class PackedLinear(Quantizing, nn.Linear):
    """`torch.nn.Linear` whose backward pass uses a packed input.

    x [..., in_features] gives x @ weightᵀ + bias [..., out_features], as nn.Linear does, with the same
    parameters and the same ``state_dict``. For backward it keeps x's codes of ``bits`` bits, and a scale and
    a minimum for each ``group_size`` adjacent features of a row. With 2 bits and groups of 256 in bfloat16,
    that is 2.125 bits per element instead of 16. Layers of a module that read one x, such as q, k and v, keep
    its codes only once if `pack_activations` has made them; see `puzzles_lib.kernels.sharing`. Without
    gradients, or with a frozen weight, it keeps nothing of x, as nn.Linear does.

    x is float32, float16 or bfloat16, on any device, contiguous or not. `torch.autocast`, `torch.compile` and
    gradient checkpointing work. Double backward raises a RuntimeError.

    bits: 1, 2, 4 or 8. group_size: 1 or more; the last group of a row may be shorter.
    rounding: "nearest" (the default except for 1 bit), or "stochastic", which is correct on average over many
        steps and noisier in each. Its random numbers come from the data, or from `seed_rounding`.

    Raises ValueError for any other ``bits``, ``group_size`` or ``rounding``, and TypeError if x has another
    dtype.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bits: int = 4,
        group_size: int = 256,
        rounding: str | None = None,
    ) -> None:
        check_bits(bits)
        check_group_size(group_size)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.set_format(bits, group_size, rounding)

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, *, bits: int = 4, group_size: int = 256, rounding: str | None = None
    ) -> "PackedLinear":
        """Return a packed layer with the same parameters as ``linear``, not copies of them.

        Raises TypeError if ``linear`` is not an nn.Linear.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear must be torch.nn.Linear, not {type(linear).__name__}")
        packed = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        packed.weight, packed.bias = linear.weight, linear.bias
        packed.set_format(bits, group_size, rounding)
        return packed.train(linear.training)

    @property
    def in_width(self) -> int:
        """The columns of the input. Layers that may share codes have the same number."""
        return self.in_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{nn.Linear.extra_repr(self)}, {self.format_text()}"


class PackedReLU(nn.ReLU):
    """`torch.nn.ReLU` that keeps one bit per element for backward: whether it was above zero.

    x is float32, float16 or bfloat16, of any shape and on any device. The result is contiguous. The layer
    keeps nothing if no gradient is needed, and is then torch's function, for any dtype. Otherwise another
    dtype raises a TypeError. There is no in-place form. Double backward raises a RuntimeError.
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not _has_gradient(x):
            return F.relu(x)
        return packed_activation(self, x, "relu", 1)

    def extra_repr(self) -> str:
        return ""


class Sloped(nn.Module):
    """The base of PackedGELU and PackedSiLU."""

    slope_bits: int

    def set_slope_bits(self, slope_bits: int) -> None:
        check_bits(slope_bits, "slope_bits")
        self.slope_bits = slope_bits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not _has_gradient(x):
            return super().forward(x)
        return packed_activation(self, x, _activation(self), self.slope_bits)


class PackedGELU(Sloped, nn.GELU):
    """`torch.nn.GELU` that keeps the slope of each element in ``slope_bits`` bits for backward.

    The gradient of x is off by at most dy / 22 with 4 bits, and dy / 400 with 8 bits; see
    `puzzles_lib.kernels.packed_activation`. x is float32, float16 or bfloat16, of any shape and on any
    device. The layer keeps nothing if no gradient is needed, and is then torch's function, for any dtype.

    approximate: "none" or "tanh", as in nn.GELU. slope_bits: 1, 2, 4 or 8.

    Raises ValueError for any other ``slope_bits``, and TypeError if x has another dtype and needs a gradient.
    Double backward raises a RuntimeError.
    """

    def __init__(self, approximate: str = "none", *, slope_bits: int = 4) -> None:
        super().__init__(approximate)
        self.set_slope_bits(slope_bits)

    def extra_repr(self) -> str:
        return f"{nn.GELU.extra_repr(self)}, slope_bits={self.slope_bits}"


class PackedSiLU(Sloped, nn.SiLU):
    """`torch.nn.SiLU` that keeps the slope of each element in ``slope_bits`` bits, like `PackedGELU`."""

    def __init__(self, *, slope_bits: int = 4) -> None:
        super().__init__()
        self.set_slope_bits(slope_bits)

    def extra_repr(self) -> str:
        return f"slope_bits={self.slope_bits}"


class PackedDropout(nn.Dropout):
    """`torch.nn.Dropout` that keeps one bit per element for backward: was it dropped?

    The random numbers are torch's: with the same seed, the same elements are dropped. x has any shape and is
    on any device. If x isn't float32, float16 or bfloat16, the layer runs as torch's. Double backward raises
    a RuntimeError.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        plain = not self.training or self.inplace or not 0 < self.p < 1
        if plain or not _has_gradient(x) or x.dtype not in DTYPES:
            return super().forward(x)
        _check_input(self, x)
        return _apply(_Dropout, x, self.p)


def _normed_dtype(device: str, rms: bool, dtype: torch.dtype, lower: torch.dtype) -> torch.dtype:
    """Return the dtype in which torch's own norms run under autocast to ``lower``."""
    x = torch.empty(0, 1, dtype=dtype, device=device)
    return (F.rms_norm(x, (1,)) if rms else F.layer_norm(x, (1,))).dtype


_known_normed_dtype = lru_cache(_normed_dtype)  # torch.compile warns of a cache


class _Norm(Quantizing):
    """What PackedLayerNorm and PackedRMSNorm have in common."""

    normalized_shape: tuple[int, ...]
    weight: nn.Parameter | None
    rms: bool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weight, None if self.rms else self.bias
        axes = len(self.normalized_shape)
        if not self.keeps(x, weight, bias) or tuple(x.shape[-axes:]) != tuple(self.normalized_shape):
            return super().forward(x)  # which says what is wrong with the shape
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        dtype, cast = x.dtype, x
        if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            normed = _normed_dtype if torch.compiler.is_compiling() else _known_normed_dtype
            cast = x.to(normed(x.device.type, self.rms, x.dtype, dtype))
        if axes == 1:
            return self.normed(cast, weight, bias, eps, self.rms, dtype)
        weight, bias = (None if t is None else t.flatten() for t in (weight, bias))
        return self.normed(cast.flatten(-axes), weight, bias, eps, self.rms, dtype).view(cast.shape)


class PackedLayerNorm(_Norm, nn.LayerNorm):
    """`torch.nn.LayerNorm` that keeps its normalized input n in codes, and one number per row.

    Parameters and ``state_dict`` are those of nn.LayerNorm. The gradient of bias is exact. Two things are
    computed from n̂, the values that the codes stand for: the gradient of weight, and one term of x's
    gradient, n̂ · mean(dy · weight · n̂). bits, group_size and rounding are those of `PackedLinear`, and so are
    the dtypes of x and the errors.
    """

    rms = False

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bits: int = 4,
        group_size: int = 256,
        rounding: str | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.set_format(bits, group_size, rounding)

    def extra_repr(self) -> str:
        return f"{nn.LayerNorm.extra_repr(self)}, {self.format_text()}"


class PackedRMSNorm(_Norm, nn.RMSNorm):
    """`torch.nn.RMSNorm` that keeps its normalized input in codes, like `PackedLayerNorm`."""

    rms = True

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bits: int = 4,
        group_size: int = 256,
        rounding: str | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.set_format(bits, group_size, rounding)

    def extra_repr(self) -> str:
        return f"{nn.RMSNorm.extra_repr(self)}, {self.format_text()}"


class PackedMLP(nn.Sequential):
    """Two linear layers with an activation between them, which share kernels to save memory and time.

    Between the two matmuls, forward and backward each make a single pass over the hidden tensor. x
    [..., in_features] gives [..., out_features]. The module is an nn.Sequential of a `PackedLinear`, a packed
    activation and a `PackedLinear`, with the same gradients and the same ``state_dict``. But the hidden
    activation overwrites the first matmul's result, and in backward that result's gradient overwrites the
    activation's. So there are never two tensors of the hidden size at once.

    hidden_features: the number of features between the two layers. out_features: None is ``in_features``.
    activation: "relu", "gelu", "gelu_tanh" or "silu". Its slopes are kept in 1 bit (relu) or ``slope_bits``.
    bias, device, dtype, bits, group_size and rounding are those of `PackedLinear`, and so are the errors.

    The layers run separately if one of them is frozen or has hooks, if the two linear layers have different
    formats, or after layers were added or removed.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bits: int = 4,
        group_size: int = 256,
        slope_bits: int = 4,
        rounding: str | None = None,
    ) -> None:
        made = {
            "relu": PackedReLU,
            "gelu": lambda: PackedGELU(slope_bits=slope_bits),
            "gelu_tanh": lambda: PackedGELU("tanh", slope_bits=slope_bits),
            "silu": lambda: PackedSiLU(slope_bits=slope_bits),
        }
        if activation not in made:
            raise ValueError(f"activation must be relu, gelu, gelu_tanh or silu, but is {activation!r}")
        out_features = in_features if out_features is None else out_features
        options = {"bits": bits, "group_size": group_size, "rounding": rounding}
        super().__init__(
            PackedLinear(in_features, hidden_features, bias, device, dtype, **options),
            made[activation](),
            PackedLinear(hidden_features, out_features, bias, device, dtype, **options),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() or not self._fused():
            return super().forward(x)
        up, act, down = self._modules.values()
        cast, dtype = _autocast(x, up.weight.dtype)
        _check_input(self, cast)
        kept = up.kept(x, cast)
        slope_bits = 1 if isinstance(act, PackedReLU) else act.slope_bits
        return _apply(_MLP,
            cast, up.weight, up.bias, down.weight, down.bias, *kept, down.seed(cast),
            dtype, _activation(act), slope_bits, up.bits, up.group_size,
        )  # fmt: skip

    def __getitem__(self, place: int | slice) -> nn.Module:
        """Return a layer, or some of the layers as an nn.Sequential."""
        if isinstance(place, slice):
            return nn.Sequential(OrderedDict(list(self._modules.items())[place]))
        return super().__getitem__(place)

    def _fused(self) -> bool:
        """Whether one function can do what the layers do, and nobody watches a layer."""
        if len(self._modules) != 3 or _has_any_global_hook():
            return False
        up, act, down = self._modules.values()
        if type(up) is not PackedLinear or type(down) is not PackedLinear or type(act) not in SLOPED:
            return False
        return not any(map(_has_hooks, (up, act, down))) and (
            up.weight.requires_grad
            and down.weight.requires_grad
            and up.weight.dtype == down.weight.dtype
            and (up.bits, up.group_size, up.rounding) == (down.bits, down.group_size, down.rounding)
        )


SLOPED = (PackedReLU, PackedGELU, PackedSiLU)


def _has_hooks(module: nn.Module) -> bool:
    forward = module._forward_hooks or module._forward_pre_hooks
    return bool(forward or module._backward_hooks or module._backward_pre_hooks)


def _autocast(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.dtype]:
    """x as a linear layer of this dtype reads it, and the dtype it computes in: those of autocast, if any."""
    # A meta tensor has no autocast, and to ask whether it has is more than torch.compile understands.
    if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type) and x.dtype in DTYPES:
        dtype = torch.get_autocast_dtype(x.device.type)
        return x.to(dtype), dtype
    return x, dtype


def _has_gradient(x: torch.Tensor) -> bool:
    """Return whether x takes part in backward. If x is not a tensor it doesn't, and torch says so."""
    return torch.is_grad_enabled() and isinstance(x, torch.Tensor) and x.requires_grad


def _check_input(module: object, x: torch.Tensor) -> None:
    """Raise in our own words what would fail later, in torch's words."""
    if x.dtype not in DTYPES:
        raise TypeError(f"x must be float32, float16 or bfloat16, but is {x.dtype}")
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        kind = type(module).__name__
        raise RuntimeError(
            f"{kind} doesn't work inside torch.func (grad, vmap, jvp and so on): undo pack_activations"
            " with unpack_activations(model) first"
        )


def packed_activation(module: object, x: torch.Tensor, activation: str, slope_bits: int) -> torch.Tensor:
    """Return the activation of x, and keep its slopes for backward. module: the layer, for error messages."""
    _check_input(module, x)
    return _apply(_ReLU, x) if activation == "relu" else _apply(_Activation, x, activation, slope_bits)


def _refuse_twice() -> None:
    """Raise where a backward pass is asked to record itself, for gradients of gradients."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "packed layers can't be differentiated twice (create_graph=True): undo pack_activations with"
            " unpack_activations(model) first"
        )


def _activation(module: nn.Module) -> str:
    """The name of a module's activation."""
    if isinstance(module, nn.GELU):
        return "gelu" if module.approximate == "none" else "gelu_tanh"
    return "silu" if isinstance(module, nn.SiLU) else "relu"


# ---- what autograd runs


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> torch.Tensor:
    """Call ``function.apply``; in eager mode without the search for torch.func's wrappers, refused before."""
    if torch.compiler.is_compiling():
        return function.apply(*arguments)
    return super(torch.autograd.Function, function).apply(*arguments)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        words: torch.Tensor,
        params: torch.Tensor,
        pending: Pending | None,
        dtype: torch.dtype,
        bits: int,
        group_size: int,
    ) -> torch.Tensor:
        # The parameter itself is kept, and cast again in backward: keeping its cast would take memory.
        ctx.save_for_backward(words, params, weight)
        ctx.format, ctx.pending = (bits, group_size), pending
        return F.linear(x, _as(weight, dtype), None if bias is None else _as(bias, dtype))

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        words, params, weight = ctx.saved_tensors
        if ctx.pending is not None:
            ctx.pending.done = True
        with no_autocast(dy):
            found = _linear_gradients(dy, weight, words, params, *ctx.format, ctx.needs_input_grad)
        return *found, None, None, None, None, None, None


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        x: torch.Tensor,
        up: torch.Tensor,
        up_bias: torch.Tensor | None,
        down: torch.Tensor,
        down_bias: torch.Tensor | None,
        words: torch.Tensor,
        params: torch.Tensor,
        pending: Pending | None,
        seed: torch.Tensor | None,
        dtype: torch.dtype,
        activation: str,
        slope_bits: int,
        bits: int,
        group_size: int,
    ) -> torch.Tensor:
        h = F.linear(x, _as(up, dtype), None if up_bias is None else _as(up_bias, dtype))
        hidden = activation_quantize_unchecked_(h, activation, slope_bits, bits, group_size, seed)
        ctx.save_for_backward(words, params, *hidden, up, down)
        ctx.format, ctx.slope_bits, ctx.pending = (bits, group_size), slope_bits, pending
        return F.linear(h, _as(down, dtype), None if down_bias is None else _as(down_bias, dtype))

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        x_words, x_params, slopes, words, params, up, down = ctx.saved_tensors
        if ctx.pending is not None:
            ctx.pending.done = True
        needs_x, _, needs_up_bias, _, needs_down_bias = ctx.needs_input_grad[:5]
        with no_autocast(dy):
            needs = (True, True, needs_down_bias)
            dh, d_down, d_down_bias = _linear_gradients(dy, down, words, params, *ctx.format, needs)
            sums = activation_backward_unchecked_(dh, slopes, ctx.slope_bits)
            needs = (needs_x, True, needs_up_bias)
            dx, d_up, d_up_bias = _linear_gradients(dh, up, x_words, x_params, *ctx.format, needs, sums)
        return dx, d_up, d_up_bias, d_down, d_down_bias, *[None] * 9


def _as(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return x in a dtype. Calling ``to`` for nothing takes the host as long as a small operator."""
    return x if x.dtype == dtype else x.to(dtype)


def _linear_gradients(
    dy: torch.Tensor,
    weight: torch.Tensor,
    words: torch.Tensor,
    params: torch.Tensor,
    bits: int,
    group_size: int,
    needs: tuple[bool, ...],
    db: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """dx, dw and db of a linear layer, those of the three that are needed, from the codes of its input.

    db: dy's sum over rows, where it is known.
    """
    rows = dy if dy.dim() == 2 else dy.reshape(matrix_shape(dy.shape))
    dx = dw = None
    if needs[1]:
        dw = dw_unchecked(rows, words, params, bits, group_size, weight.dtype)
    if needs[0]:
        dx = torch.mm(rows, _as(weight, dy.dtype))
        if rows is not dy:
            dx = dx.view(*dy.shape[:-1], weight.shape[1])
    if needs[2]:
        db = rows.sum(0, dtype=weight.dtype) if db is None else _as(db, weight.dtype)
    return dx, dw, db if needs[2] else None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a: torch.Tensor, b: torch.Tensor, bits: int, group_size: int) -> torch.Tensor:
        ctx.save_for_backward(*(t for x in (a, b) for t in quantize_unchecked(x, bits, group_size)))
        ctx.format = (bits, group_size, list(a.shape))
        return a * b

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        saved = ctx.saved_tensors
        a, b = (dequantize_unchecked(*pair, *ctx.format) for pair in (saved[:2], saved[2:]))
        return dy * b, dy * a, None, None


class _ProductLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        a: torch.Tensor,
        b: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        bits: int,
        group_size: int,
    ) -> torch.Tensor:
        codes = (t for x in (a, b) for t in quantize_unchecked(x, bits, group_size))
        ctx.save_for_backward(*codes, weight)
        ctx.format = (bits, group_size, list(a.shape))
        return F.linear(a * b, _as(weight, dtype), None if bias is None else _as(bias, dtype))

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        *codes, weight = ctx.saved_tensors
        a, b = (dequantize_unchecked(*pair, *ctx.format) for pair in (codes[:2], codes[2:]))
        rows = dy.reshape(matrix_shape(dy.shape))
        with no_autocast(dy):
            dw = rows.mT @ (a * b).view(len(rows), -1)
            dx = dy @ _as(weight, dy.dtype)
        db = rows.sum(0, dtype=weight.dtype) if ctx.needs_input_grad[3] else None
        return dx * b, dx * a, _as(dw, weight.dtype), db, None, None, None


class _GroupedLinear(torch.autograd.Function):
    """Rows times the weight of their group, [groups, out, in], times a scale each.

    order: that of the rows, if each row of x is to be taken several times: ``x[order // times]`` is
    multiplied.
    factor: if given, x is multiplied by it first, and codes of both are kept.
    """

    @staticmethod
    def forward(
        ctx,
        x: torch.Tensor,
        factor: torch.Tensor | None,
        weight: torch.Tensor,
        order: torch.Tensor | None,
        scales: torch.Tensor | None,
        ends: torch.Tensor,
        dtype: torch.dtype,
        bits: int,
        group_size: int,
        seed: torch.Tensor | None,
    ) -> torch.Tensor:
        codes = quantize_unchecked(x, bits, group_size, seed)
        if factor is not None:
            codes = (*codes, *quantize_unchecked(factor, bits, group_size))
            x = x * factor
        ctx.save_for_backward(weight, order, scales, ends, *codes)
        ctx.format = (bits, group_size, list(x.shape))
        y = grouped_product(_taken(x, order), _as(weight, dtype).mT, ends)
        return y if scales is None else y * scales

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        weight, order, scales, ends, *codes = ctx.saved_tensors
        x = dequantize_unchecked(*codes[:2], *ctx.format)
        factor = dequantize_unchecked(*codes[2:], *ctx.format) if codes[2:] else None
        rows = _taken(x if factor is None else x * factor, order)
        needs = ctx.needs_input_grad
        dx = dw = d_scales = None
        with no_autocast(dy):
            scaled = dy if scales is None else (dy * scales).to(x.dtype)
            if needs[2]:
                dw = _as(grouped_outer_product(_as(scaled, x.dtype), rows, ends), weight.dtype)
            if needs[0] or needs[4]:  # the scale's gradient is dy · y = (dy weight) · x, so y is not kept
                plain = grouped_product(_as(dy, x.dtype), _as(weight, x.dtype), ends)
                if needs[4]:
                    d_scales = (plain.float() * rows.float()).sum(-1, keepdim=True).to(scales.dtype)
                dx = plain if scales is None else (plain * scales).to(x.dtype)
                if order is not None:
                    dx = dx[inverse(order)].view(len(x), -1, x.shape[1]).sum(1)
        dx = dx if needs[0] else None
        if factor is None or dx is None:
            return dx, None, dw, None, d_scales, *[None] * 5
        return dx * factor, dx * x, dw, None, d_scales, *[None] * 5


def _taken(x: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    return x if order is None else x[order // (len(order) // len(x))]


def inverse(order: torch.Tensor) -> torch.Tensor:
    """Return the permutation that undoes ``order``."""
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return places


def _torch_groups(x: torch.Tensor, *sizes: int) -> bool:
    """Return whether `torch.nn.functional.grouped_mm` takes matrices on the device of x with such rows."""
    if not hasattr(F, "grouped_mm"):  # torch 2.9
        return False
    capable = not x.is_cuda or torch.cuda.get_device_capability(x.device) >= (8, 0)
    return capable and all(size * x.element_size() % 16 == 0 for size in sizes)


def grouped_product(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return rows [rows, in] times the matrix of their group in weight [groups, in, out].

    ends: int32 [groups], where each group's rows end.
    """
    if _torch_groups(rows, *weight.shape[1:]):
        return F.grouped_mm(rows, weight, offs=ends)
    parts = rows.tensor_split(ends[:-1].cpu().long())
    return torch.cat([part @ matrix for part, matrix in zip(parts, weight, strict=True)])


def grouped_outer_product(dy: torch.Tensor, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return dyᵀ rows of each group, [groups, out, in], for dy [rows, out] and rows [rows, in]."""
    if _torch_groups(rows, dy.shape[1], rows.shape[1]):
        return F.grouped_mm(dy.mT, rows, offs=ends)
    splits = ends[:-1].cpu().long()
    pairs = zip(dy.tensor_split(splits), rows.tensor_split(splits), strict=True)
    return torch.stack([part.mT @ other for part, other in pairs])


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y, mask = relu_pack_unchecked(x)
        ctx.save_for_backward(mask)
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
        _refuse_twice()
        return relu_backward_unchecked(dy, *ctx.saved_tensors)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, p: float) -> torch.Tensor:
        y, mask = torch.native_dropout(x, p, True)
        ctx.save_for_backward(mask_pack_unchecked(mask))
        ctx.scale = 1 / (1 - p)
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        return dropout_backward_unchecked(dy, *ctx.saved_tensors, ctx.scale), None


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, activation: str, slope_bits: int) -> torch.Tensor:
        y, slopes = activation_pack_unchecked(x, activation, slope_bits)
        ctx.save_for_backward(slopes)
        ctx.slope_bits = slope_bits
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        return activation_backward_unchecked(dy, *ctx.saved_tensors, ctx.slope_bits), None, None


class _NormFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        rms: bool,
        bits: int,
        group_size: int,
        dtype: torch.dtype,
        seed: torch.Tensor | None,
    ) -> torch.Tensor:
        y, *saved = norm_quantize_unchecked(x, weight, bias, eps, rms, bits, group_size, dtype, seed)
        ctx.save_for_backward(*saved, weight)
        ctx.options = (rms, bits, group_size)
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_twice()
        words, params, rstd, weight = ctx.saved_tensors
        dx, sums = norm_backward_unchecked(dy, words, params, rstd, weight, *ctx.options)
        dw, db = _as(sums, dy.dtype if weight is None else weight.dtype).unbind()
        needs = ctx.needs_input_grad
        return dx if needs[0] else None, dw if needs[1] else None, db if needs[2] else None, *[None] * 6
