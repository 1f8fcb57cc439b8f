"""Int8 dynamic linear: rows of x are quantised as they come, weights once, per output channel.

    scale[m] = max_k |x[m, k]| / 127
    xq[m, k] = round(x[m, k] / scale[m]), ties to even, -127 .. 127
    acc[m, n] = sum_k xq[m, k] * wq[n, k], exact, in int32
    y[m, n]  = acc * (scale[m] * w_scale[n]) + bias[n], in float32, every step rounded by itself

The sums are integers, so that neither the order of summation, nor the tile, nor the rest of the batch
changes a bit of a row's result, on a CPU or on a GPU.
"""

import torch
from torch import nn

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOP = 127
MAX_K = (2**31 - 1) // TOP**2  # 133144: the sum of so many products still fits into int32
TINY = 2.0**-126  # the least normal float32


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of the rows of x, each row by itself.

    x: [..., K], float32, float16 or bfloat16; any strides, any size, K = 0 too.
    Returns (codes int8 [..., K] in -127 .. 127, scale float32 [...]), both contiguous: x is about
    ``codes * scale[..., None]``, off by half a scale at most.
    A row whose scale would be below 2^-126 has scale 0 and codes 0. A row with a NaN or an infinity has
    scale NaN and codes 0.

    Raises TypeError for another dtype, ValueError for a scalar.
    """
    _check_x(x)
    return _quantize_rows(x)


def q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """x @ (wq * w_scale)ᵀ + bias, through int8 rows of x and exact int32 sums.

    x: [..., K], float32, float16 or bfloat16; any strides, any size. wq: int8 [N, K], as `quantize_rows`
    gives for a weight matrix. w_scale: float32 [N]. bias: [N], one of x's dtypes. All on one device.
    Returns y: [..., N] in x's dtype, rounded once from float32. A row with a NaN or an infinity comes out
    as NaN, the others are untouched; a row of zeros gives the bias. There is no gradient.

    Raises TypeError for another dtype, ValueError where shapes or devices do not fit or K is over 133144
    (132104 where wq has a -128): the sums would leave int32.
    """
    _check_x(x)
    check_weight(wq, w_scale, bias)
    if x.shape[-1] != wq.shape[1]:
        raise ValueError(f"x has rows of {x.shape[-1]}, allowed for wq of {tuple(wq.shape)} is {wq.shape[1]}")
    if x.device != wq.device:
        raise ValueError(f"x is on {x.device}, allowed is the device of wq, {wq.device}")
    return _q8_linear(x, wq, w_scale, bias)


class Q8Linear(nn.Module):
    """`nn.Linear` for inference with int8 weights and rows quantised as they come.

    Buffers: weight int8 [N, K], scale float32 [N], bias [N] or None. They move and are saved with the
    module; ``scale`` stays float32 when a model is cast.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        weight = torch.zeros(out_features, in_features, dtype=torch.int8, device=device)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", torch.zeros(out_features, dtype=torch.float32, device=device))
        zeros = torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        self.register_buffer("bias", zeros)

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> "Q8Linear":
        """Quantise the weights of an `nn.Linear`, a scale per output channel; the bias is copied.

        Raises TypeError where ``linear`` is no nn.Linear or its weights are of another dtype than x may be.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear is {type(linear).__name__}, allowed is an nn.Linear")
        weight, bias = linear.weight.detach(), linear.bias
        new = cls(linear.in_features, linear.out_features, bias is not None, weight.device, weight.dtype)
        _check_k(linear.in_features)
        new.weight, new.scale = quantize_rows(weight)
        new.bias = None if bias is None else bias.detach().clone()
        return new.train(linear.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return q8_linear(x, self.weight, self.scale, self.bias)

    def _apply(self, fn, recurse=True):
        exact = self.scale
        super()._apply(fn, recurse)
        if self.scale.dtype != torch.float32:  # the model is being cast: that is for activations
            self.scale = exact.to(self.scale.device)
        return self

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


def swap_linears(model: nn.Module) -> nn.Module:
    """Put a `Q8Linear` in the place of every `nn.Linear` below ``model``, and return the model.

    In place, unless the model is itself an nn.Linear. Subclasses of nn.Linear stay, since their owners
    reach for their weights; a module in two places stays one module.
    """
    swapped: dict[nn.Module, nn.Module] = {}

    def swap(module: nn.Module) -> nn.Module:
        if module not in swapped:
            swapped[module] = Q8Linear.from_linear(module) if type(module) is nn.Linear else module
            for name, child in module.named_children():
                setattr(module, name, swap(child))
        return swapped[module]

    return swap(model)


# ---- what is refused


def _check_x(x: torch.Tensor) -> None:
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        what = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(f"x is {what}, allowed are float32, float16 and bfloat16")
    if x.dim() == 0:
        raise ValueError("x is a scalar, allowed are tensors of one axis or more")


def _check_k(columns: int) -> None:
    if columns > MAX_K:
        raise ValueError(f"K is {columns}, allowed is up to {MAX_K}: the sums are int32")


def check_weight(wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Raise where quantised weights do not fit together."""
    for name, value, dtypes in (("wq", wq, (torch.int8,)), ("w_scale", w_scale, (torch.float32,))):
        if not isinstance(value, torch.Tensor) or value.dtype not in dtypes:
            what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise TypeError(f"{name} is {what}, allowed is {dtypes[0]}")
    if wq.dim() != 2:
        raise ValueError(f"wq has {wq.dim()} axes, allowed are 2: [N, K]")
    _check_k(wq.shape[1])
    parts = [("w_scale", w_scale)]
    if bias is not None:
        if not isinstance(bias, torch.Tensor) or bias.dtype not in DTYPES:
            what = bias.dtype if isinstance(bias, torch.Tensor) else type(bias).__name__
            raise TypeError(f"bias is {what}, allowed are float32, float16 and bfloat16")
        parts.append(("bias", bias))
    for name, value in parts:
        if value.shape != wq.shape[:1]:
            allowed = f"allowed for wq of {tuple(wq.shape)} is {tuple(wq.shape[:1])}"
            raise ValueError(f"{name} has shape {tuple(value.shape)}, {allowed}")
        if value.device != wq.device:
            raise ValueError(f"{name} is on {value.device}, allowed is the device of wq, {wq.device}")


# ---- torch, the reference


def quantize_rows_ref(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of a matrix x [M, K]."""
    rows, columns = x.shape
    if not x.numel():
        return x.new_zeros(x.shape, dtype=torch.int8), x.new_zeros(rows, dtype=torch.float32)
    x = x.float()
    low, high = x.aminmax(dim=1)
    amax = torch.maximum(-low, high)
    scale = amax / TOP
    scale = torch.where(scale < TINY, 0.0, scale).masked_fill_(~amax.isfinite(), float("nan"))
    codes = (x / torch.where(scale > 0, scale, 1.0)[:, None]).round_()
    if not bool(amax.isfinite().all()):
        codes.masked_fill_(~amax.isfinite()[:, None], 0.0)
    return codes.to(torch.int8), scale


CHUNK = 1024  # products of codes whose sum is exact in float32: 1024 · 127 · 128 < 2^24


def int8_matmul_ref(xq: torch.Tensor, wq: torch.Tensor) -> torch.Tensor:
    """xq [M, K] @ wq [N, K]ᵀ, exact sums, as float32 rounded once."""
    exact = torch.zeros(xq.shape[0], wq.shape[0], dtype=torch.int32)
    for k in range(0, xq.shape[1], CHUNK):
        exact += (xq[:, k : k + CHUNK].float() @ wq[:, k : k + CHUNK].float().t()).to(torch.int32)
    return exact.float()


def q8_linear_ref(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """y [M, N] of a matrix x [M, K]."""
    xq, x_scale = quantize_rows_ref(x)
    y = int8_matmul_ref(xq, wq).mul_(x_scale[:, None] * w_scale)
    if bias is not None:
        y += bias.float()
    return y.to(x.dtype)


# ---- the operators that torch knows


@torch.library.custom_op("bit_by_bit::quantize_rows", mutates_args=())
def _quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scale = quantize_rows_ref(x.reshape(-1, x.shape[-1]) if x.numel() else x.new_empty(_rows(x), 0))
    return codes.reshape(x.shape), scale.reshape(x.shape[:-1])


@_quantize_rows.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)


def _rows(x: torch.Tensor) -> int:
    return x.shape[:-1].numel()


@torch.library.custom_op("bit_by_bit::q8_linear", mutates_args=())
def _q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    y = q8_linear_ref(x.reshape(_rows(x), x.shape[-1]), wq, w_scale, bias)
    return y.view(*x.shape[:-1], wq.shape[0])


@_q8_linear.register_fake
def _(x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], wq.shape[0]))
