"""Packed forms of other libraries' layers that compute what one of torch's does.

transformers and timm have classes of their own for linear layers, norms, activations, gated MLPs and mixtures
of experts. They are recognized by what they have (a weight, an epsilon, a name) and by what they do: on a few
numbers they must give what the torch function gives. A module whose output differs is left alone.

A recognized module gets a new class: a subclass of its own class and of one of those below. So ``isinstance``
and the ``state_dict`` stay as they were.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.kernels.common import DTYPES
from puzzles_lib.kernels.layers import (
    PackedGELU,
    PackedLayerNorm,
    PackedLinear,
    PackedReLU,
    PackedRMSNorm,
    PackedSiLU,
    Quantizing,
    Sloped,
    inverse,
    packed_activation,
)
from puzzles_lib.kernels.packed_activation import activation_ref

OTHER = "another class"  # why most modules are not packed
DIFFERS = "its output is not that of the torch layer it looks like"
EPSILONS = ("variance_epsilon", "eps", "epsilon")


class LookAlike(nn.Module):
    """The base of packed modules: it knows the module's class before packing, and how to copy the module."""

    plain_class: type[nn.Module]
    form: type["LookAlike"]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _remade, (self.form, self.plain_class), self.__getstate__()


def _remade(form: type[LookAlike], plain: type[nn.Module]) -> nn.Module:
    made = packed_form(form, plain)
    return made.__new__(made)


@cache
def packed_form(form: type[LookAlike], plain: type[nn.Module]) -> type[nn.Module]:
    """Return the class for modules of class ``plain`` in one of the packed forms."""
    return type(f"Packed{plain.__name__}", (form, plain), {"plain_class": plain, "form": form})


class Transposed(LookAlike, Quantizing):
    """A linear layer whose weight is [in, out], such as transformers' Conv1D."""

    @property
    def in_width(self) -> int:
        return self.weight.shape[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x, self.weight.t(), self.bias)


class Norm(LookAlike, Quantizing):
    """A LayerNorm over the last axis, or an RMSNorm, with an epsilon under one of several names."""

    rms = False
    shifted = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weight, None if self.rms else self.bias
        if not self.keeps(x, weight, bias) or x.shape[-1:] != weight.shape:
            return super().forward(x)
        if self.shifted:
            return self.normed(x, 1.0 + weight.float(), None, _epsilon(self), True, x.dtype)
        x = x.to(torch.promote_types(x.dtype, weight.dtype))
        return self.normed(x, weight, bias, _epsilon(self), self.rms, x.dtype)


class RMSNorm(Norm):
    rms = True


class ShiftedRMSNorm(RMSNorm):
    """An RMSNorm whose weight is counted from 1, such as Gemma's."""

    shifted = True


class Activation(LookAlike, Sloped):
    """An activation under another name."""

    activation = "gelu"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() or not x.requires_grad:
            return super().forward(x)
        return packed_activation(self, x, self.activation, self.slope_bits)


class ReLU(Activation):
    activation = "relu"


class TanhGELU(Activation):
    activation = "gelu_tanh"


class SiLU(Activation):
    activation = "silu"


class MultiheadAttention(LookAlike, Quantizing):
    """`torch.nn.MultiheadAttention` with packed inputs of its projections.

    If it has to return the weights of attention, it runs as torch's own.
    """

    @property
    def in_width(self) -> int:
        return self.embed_dim

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        wanted = torch.is_grad_enabled() and self.in_proj_weight.requires_grad
        if need_weights or not wanted or query.is_nested or is_causal and attn_mask is None:
            return super().forward(
                query, key, value, key_padding_mask=key_padding_mask, need_weights=need_weights,
                attn_mask=attn_mask, average_attn_weights=average_attn_weights, is_causal=is_causal,
            )  # fmt: skip
        alike = query is key and key is value
        batched = query.dim() == 3
        if not batched:
            query, key, value = (t[None] for t in (query, key, value))
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if alike:
            q, k, v = self.linear(query, weight, bias).chunk(3, -1)
        else:
            biases = (None,) * 3 if bias is None else bias.chunk(3)
            pairs = zip((query, key, value), weight.chunk(3), biases, strict=True)
            q, k, v = (self.linear(x, part, b) for x, part, b in pairs)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v))
        causal = is_causal and key_padding_mask is None
        mask = None if causal else _merged(attn_mask, key_padding_mask, len(query), self.num_heads, q.dtype)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        y = y.permute(2, 0, 1, 3).flatten(2)  # in torch's order, so that dropout draws the same for each
        y = self.linear(y, self.out_proj.weight, self.out_proj.bias)
        if not batched:
            return y[:, 0], None
        return y.transpose(0, 1) if self.batch_first else y, None


def _merged(
    mask: torch.Tensor | None, padding: torch.Tensor | None, batch: int, heads: int, dtype: torch.dtype
) -> torch.Tensor | None:
    """Return the sum of both masks, in which True and -inf mean "left out", or None."""

    def added(some: torch.Tensor) -> torch.Tensor:
        if some.dtype != torch.bool:
            return some.to(dtype)
        return torch.zeros_like(some, dtype=dtype).masked_fill_(some, float("-inf"))

    if mask is not None:
        mask = added(mask)
        mask = mask.unflatten(0, (batch, heads)) if mask.dim() == 3 else mask
    if padding is None:
        return mask
    padding = added(padding).view(batch, 1, 1, -1)
    return padding if mask is None else mask + padding


class Gated(LookAlike, Quantizing, Sloped):
    """An MLP such as Llama's, down(act(gate(x)) · up(x)), with codes of both factors of its product.

    Both factors are kept in ``slope_bits`` bits, like the slopes of an activation. The gradient of down's
    weight comes from their product. That is far more accurate than keeping the product in few bits, because
    some of its elements are much larger than the others.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *first, down, act = _gated_parts(self)
        gate, up = _branches(first, x)
        return self.product_linear(act(gate), up, down, self.slope_bits)

    def has_last(self, layer: nn.Module) -> bool:
        """Return whether this is the MLP's last layer, which keeps nothing itself."""
        return type(layer) is PackedLinear and layer is _gated_parts(self)[-2]


GATED = (
    ("gate_proj", "up_proj", "down_proj", "act_fn"),  # Llama and most others of transformers
    ("gate_up_proj", "down_proj", "activation_fn"),  # Phi-3, GLM-4
    ("wi_0", "wi_1", "wo", "act"),  # T5
    ("fc1_g", "fc1_x", "fc2", "act"),  # timm
)


def _gated_parts(module: nn.Module) -> tuple[nn.Module, ...] | None:
    """Return the one or two first layers of a gated MLP, the last and the activation, or None."""
    inside = module._modules
    for names in GATED:
        if all(name in inside for name in names):
            return tuple(inside[name] for name in names)
    return None


def _branches(first: list[nn.Module], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what the first layers give: what is activated, and its factor."""
    return first[0](x).chunk(2, -1) if len(first) == 1 else (first[0](x), first[1](x))


def _is_idle(module: nn.Module) -> bool:
    return isinstance(module, (nn.Identity, nn.Dropout)) and not getattr(module, "p", 0)


class Experts(LookAlike, Quantizing, Sloped):
    """A mixture of gated MLPs whose weights are [experts, out, in], as transformers has them.

    Rows are sorted by expert, so that there is one product for all experts. Each row of x is kept once, not
    once per expert. The gradients of the last layer and of the routing weights come from the codes of both
    factors, as in `Gated`. Compiled, it keeps what torch keeps unless its weights are bfloat16, for
    which alone torch can trace that product.
    """

    def forward(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        up, down = self.gate_up_proj, self.down_proj
        trained = torch.is_grad_enabled() and up.requires_grad and down.requires_grad
        traced = torch.compiler.is_compiling() and up.dtype != torch.bfloat16
        if not trained or traced or vars(self).get("_is_expert_parallel") or not x.numel():
            return self.plain_class.forward(self, x, index, weights)
        expert, order = index.reshape(-1).sort(stable=True)
        numbers = torch.arange(len(down), device=x.device)
        ends = torch.searchsorted(expert, numbers, right=True).to(torch.int32)
        gate, up = self.grouped_linear(x, up, ends, order).chunk(2, -1)
        scales = weights.reshape(-1)[order, None]
        y = self.grouped_product_linear(self.act_fn(gate), up, down, ends, scales, self.slope_bits)
        return y[inverse(order)].view(*index.shape, -1).sum(1).to(x.dtype)


FORMS: dict[type[nn.Module], type[LookAlike]] = {
    PackedLayerNorm: Norm,
    PackedRMSNorm: RMSNorm,
    PackedReLU: ReLU,
    PackedGELU: Activation,
    PackedSiLU: SiLU,
}
"""The form for each packed layer that ``extra`` of `pack_activations` may name."""


def look_alike(module: nn.Module, told: type[nn.Module] | None = None) -> type[nn.Module] | str:
    """Return the class that packs a module of an unknown class, or why there is none.

    told: the packed layer that the caller asks for; None to find it. Raises ValueError if the module computes
        something else.
    """
    own = module.parameters(recurse=_gated_parts(module) is not None)
    if any(p.is_meta for p in own):
        return "on the meta device, where it can't be tried"
    if told is not None:
        return _as_told(module, told)
    kind, plain = type(module).__name__, type(module)
    if plain is nn.MultiheadAttention:
        odd = not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn
        return (
            "keys and values of other sizes, or added ones" if odd else packed_form(MultiheadAttention, plain)
        )
    if _gated_parts(module) is not None:
        return packed_form(Gated, plain) if _is_gated(module) else DIFFERS
    if all(getattr(getattr(module, name, None), "ndim", 0) == 3 for name in ("gate_up_proj", "down_proj")):
        return packed_form(Experts, plain) if _are_experts(module) else DIFFERS
    if list(module.children()) or list(module.buffers(recurse=False)):
        return OTHER
    own = {name: parameter.dim() for name, parameter in module.named_parameters(recurse=False)}
    if kind == "Conv1D" and own == {"weight": 2, "bias": 1}:
        return packed_form(Transposed, plain) if _is_transposed(module) else DIFFERS
    if "Norm" in kind and own and max(own.values()) == 1 and _epsilon(module) is not None:
        forms = [RMSNorm, ShiftedRMSNorm] if own == {"weight": 1} else []
        forms += [Norm] if isinstance(module, nn.LayerNorm) or own == {"weight": 1, "bias": 1} else []
        found = [form for form in forms if "weight" in own and _is_norm(module, form)]
        return packed_form(found[0], plain) if found else DIFFERS
    if not own and any(word in kind.lower() for word in ("relu", "gelu", "silu", "swish")):
        found = [form for form in (ReLU, Activation, TanhGELU, SiLU) if _is_activation(module, form)]
        return packed_form(found[0], plain) if found else DIFFERS
    return OTHER


def _as_told(module: nn.Module, told: type[nn.Module]) -> type[nn.Module]:
    form, plain = FORMS.get(told), type(module)
    if told is PackedLinear:
        weight = getattr(module, "weight", None)
        form = Transposed if isinstance(weight, nn.Parameter) and _is_transposed(module) else None
        good = form is not None
    elif told is PackedGELU:
        form = next((each for each in (Activation, TanhGELU) if _is_activation(module, each)), None)
        good = form is not None
    elif issubclass(form, Activation):
        good = _is_activation(module, form)
    else:
        forms = (RMSNorm, ShiftedRMSNorm) if form is RMSNorm else (form,)
        form = next((each for each in forms if _is_norm(module, each)), None)
        good = form is not None
    if not good:
        raise ValueError(f"extra names {told.__name__} for {plain.__name__}, whose output differs")
    return packed_form(form, plain)


def _epsilon(module: nn.Module) -> float | None:
    found = (vars(module).get(name) for name in EPSILONS)
    return next((value for value in found if isinstance(value, float)), None)


def _tried(
    module: nn.Module, x: torch.Tensor, wanted: Callable[..., torch.Tensor], *rest: torch.Tensor
) -> bool:
    """Whether a module's own ``forward`` gives for x what it should, within a few units in the last place."""
    devices = [x.device] if x.is_cuda else []
    try:
        with torch.no_grad():
            with torch.random.fork_rng(devices):
                got = module.forward(x, *rest)
            with torch.random.fork_rng(devices):  # so both draw the same numbers
                want = wanted(x, *rest)
    except Exception:  # whatever it does with such an x
        return False
    eps = torch.finfo(x.dtype).eps
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got is x:
        return False
    got, want = got.float(), want.float()
    near = torch.allclose(got, want, rtol=8 * eps, atol=32 * eps * max(1.0, float(want.abs().max())))
    return near and bool((got - want).norm() <= 8 * eps * want.norm())


def _numbers(rows: int, like: torch.Tensor, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator, device="cpu") * 2 + 0.5
    return x.to(like.device, like.dtype if like.dtype in DTYPES else torch.float32)


def _is_transposed(module: nn.Module) -> bool:
    weight = module.weight
    x = _numbers(3, weight, weight.shape[0])
    return _tried(module, x, lambda x: F.linear(x, weight.t(), module.bias))


def _is_norm(module: nn.Module, form: type[LookAlike]) -> bool:
    weight, eps = getattr(module, "weight", None), _epsilon(module)
    if weight is None or eps is None:
        return False
    size = weight.shape

    def wanted(x: torch.Tensor) -> torch.Tensor:
        if form.shifted:
            return F.rms_norm(x.float(), size, 1.0 + weight.float(), eps).to(x.dtype)
        if form.rms:
            return F.rms_norm(x, size, weight, eps)
        return F.layer_norm(x, size, weight, module.bias, eps)

    x = _numbers(10, weight, weight.numel())
    x = x.view(2, 5, -1) if weight.numel() != 5 else x[:6].view(2, 3, -1)  # so that no other axis fits
    return _tried(module, x, wanted)


def _is_activation(module: nn.Module, form: type[Activation]) -> bool:
    x = torch.linspace(-9, 9, 361, device="cpu").view(19, 19)
    return not list(module.parameters()) and _tried(module, x, lambda x: activation_ref(x, form.activation))


def _is_gated(module: nn.Module) -> bool:
    *first, down, act = parts = _gated_parts(module)
    weight, width = next(first[0].parameters(), None), getattr(first[0], "in_features", None)
    if weight is None or not isinstance(width, int) or list(module.buffers()):
        return False
    if not all(_is_idle(each) for each in module.children() if each not in parts):
        return False

    def wanted(x: torch.Tensor) -> torch.Tensor:
        gate, up = _branches(first, x)
        return down(act(gate) * up)

    modes = {each: each.training for each in module.modules()}
    x = _numbers(3, weight, width)
    try:
        module.eval()
        with torch.no_grad():
            large = x * _to_large(first[0](x))
        module.train()  # with the dropout that it has
        return all(_tried(module, numbers, wanted) for numbers in (x, large))
    except Exception:  # of a gate that can't take such an x
        return False
    finally:
        for each, mode in modes.items():
            each.training = mode


def _to_large(h: torch.Tensor) -> float:
    """Return what h has to be multiplied by to be so large that a limit on it, if there is one, shows."""
    return 30 / max(float(h.abs().max()), 1e-6)


def _are_experts(module: nn.Module) -> bool:
    own = dict(module.named_parameters(recurse=False))
    if own.keys() != {"gate_up_proj", "down_proj"} or list(module.buffers()):
        return False
    first, last = own["gate_up_proj"], own["down_proj"]
    if first.dtype not in DTYPES or first.dtype != last.dtype:
        return False
    if last.shape != (len(first), first.shape[2], first.shape[1] // 2) or first.shape[1] % 2:
        return False

    def wanted(x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        parts = []
        for expert, weight in zip(index.T, weights.T, strict=True):
            gate, up = torch.einsum("ni,noi->no", x, first[expert]).chunk(2, -1)
            y = torch.einsum("ni,noi->no", module.act_fn(gate) * up, last[expert])
            parts.append(y * weight[:, None])
        return torch.stack(parts).sum(0)

    x = _numbers(6, first, first.shape[2])
    index = torch.arange(12, device=x.device).view(6, 2) % len(first)
    weights = _numbers(6, first, 2).abs()
    with torch.no_grad():
        h = torch.einsum("ni,noi->no", x, first[index[:, 0]])
    return all(_tried(module, numbers, wanted, index, weights) for numbers in (x, x * _to_large(h)))


# ---- functions that modules hold


class PackedFunction:
    """An activation function that keeps its slopes, instead of one of `torch.nn.functional`."""

    def __init__(self, plain: Callable, activation: str, slope_bits: int) -> None:
        self.plain, self.activation, self.slope_bits = plain, activation, slope_bits

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() or not x.requires_grad:
            return self.plain(x)
        return packed_activation(self, x, self.activation, self.slope_bits)


_HOLDERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def pack_functions(
    model: nn.Module, slope_bits: int, predicate: Callable[[str, nn.Module], bool] | None
) -> int:
    """Pack the activation functions of torch's transformer layers, and return how many there are."""
    count = 0
    for name, module in model.named_modules():
        if type(module) not in _HOLDERS or predicate is not None and not predicate(name, module):
            continue
        held = module.activation
        plain = held.plain if isinstance(held, PackedFunction) else held
        if plain in (F.relu, F.gelu):
            activation, bits = ("relu", 1) if plain is F.relu else ("gelu", slope_bits)
            module.activation = PackedFunction(plain, activation, bits)
            count += 1
    return count


def unpack_functions(model: nn.Module) -> None:
    """Undo `pack_functions`."""
    for module in model.modules():
        held = vars(module).get("activation")
        if isinstance(held, PackedFunction):
            module.activation = held.plain
