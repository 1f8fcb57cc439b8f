"""Run our kernel for ``torch.ops.quantized.linear_dynamic`` on the CPU, within a ``with`` block.

A model made by ``torch.ao.quantization.quantize_dynamic`` then uses our kernel without a change.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from puzzles_lib.kernels.q8_linear import q8_linear

OPERATOR = "quantized::linear_dynamic"
MAX_K = (2**31 - 1) // (127 * 128)  # torch's own weights may hold -128

Linear = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


@dataclass(eq=False)
class Override:
    """The object that `override_linear_dynamic` yields.

    hits: calls that ``linear`` answered. refused: calls that were left to torch's own kernel.
    """

    linear: Linear
    hits: int = 0
    refused: int = 0


_lock = threading.RLock()
_overrides: list[Override] = []  # the innermost is last
_library: torch.library.Library | None = None


@contextmanager
def override_linear_dynamic(linear: Linear | None = None) -> Iterator[Override]:
    """Replace ``torch.ops.quantized.linear_dynamic`` on the CPU by ``linear``, within a ``with`` block.

    linear: called as ``linear(x, wq, w_scale, bias)`` with x float32 [M, K], contiguous; wq int8 [N, K],
        contiguous; w_scale float32 [N]; bias float32 [N] or None. Returns y, float32 [M, N]. The default is
        `puzzles_lib.kernels.q8_linear.q8_linear`.
    The weights can have one scale or one per channel, with or without zero points and bias. x can have any
    strides and any number of axes. For weights with zero points, ``linear`` gets one more output channel with
    weights 1, scale 1 and no bias. The zero points are then subtracted with its result.
    Torch's own kernel still answers in these cases:

    - x is not float32, has no axis, or its rows do not fit the weights,
    - M, N or K is 0, or K is above 132104,
    - the weights are not 8-bit integers.

    Contexts nest: the innermost answers. When the outermost ends, also by an exception, torch's own kernel is
    back. The weights are unpacked in every call, because nothing here keeps a weight.

    Raises RuntimeError if this torch has no such operator, and TypeError if ``linear`` is not callable.
    Within the block, a call raises TypeError if ``linear`` doesn't return a float32 tensor [M, N].
    """
    if linear is not None and not callable(linear):
        raise TypeError(
            f"linear must be a function of (x, wq, w_scale, bias), but is {type(linear).__name__}"
        )
    override = Override(q8_linear if linear is None else linear)
    _enter(override)
    try:
        yield override
    finally:
        _leave(override)


def _enter(override: Override) -> None:
    global _library
    with _lock:
        if not _overrides:
            try:
                stock = torch.library.get_kernel(OPERATOR, "CPU")
            except RuntimeError as error:
                raise RuntimeError(f"torch {torch.__version__} has no {OPERATOR} on CPU") from error
            _library = torch.library.Library("quantized", "IMPL")
            ours = _dispatch_to(stock)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a kernel is overridden is what was asked for
                _library.impl("linear_dynamic", ours, "CPU", allow_override=True, with_keyset=True)
        _overrides.append(override)


def _leave(override: Override) -> None:
    global _library
    with _lock:
        _overrides.remove(override)
        if not _overrides:
            _library._destroy()
            _library = None


def _dispatch_to(stock):
    """Return the kernel to register: the innermost override, or stock for what that does not take."""

    def linear_dynamic(keyset, x, packed, reduce_range=False):
        override = _overrides[-1]
        weights = _weights(x, packed)
        if weights is None:
            override.refused += 1
            return stock.call_boxed(keyset, x, packed, reduce_range)
        y = _call(override.linear, x, *weights)
        override.hits += 1
        return y

    return linear_dynamic


def _weights(x: torch.Tensor, packed):
    """Return (wq, scale, zero points or None, bias), or None if torch's own kernel must answer."""
    if x.dtype != torch.float32 or x.dim() == 0 or not x.numel():
        return None
    weight, bias = packed.unpack()
    if not weight.is_quantized or weight.dtype != torch.qint8 or weight.dim() != 2:
        return None
    if weight.shape[1] != x.shape[-1] or not weight.numel() or weight.shape[1] > MAX_K:
        return None
    if weight.qscheme() == torch.per_tensor_affine:
        scale = torch.full(weight.shape[:1], weight.q_scale())
        zero = torch.full(weight.shape[:1], weight.q_zero_point())
    elif weight.qscheme() == torch.per_channel_affine and weight.q_per_channel_axis() == 0:
        scale, zero = weight.q_per_channel_scales().float(), weight.q_per_channel_zero_points()
    else:
        return None
    bias = None if bias is None else bias.detach().float().contiguous()
    return weight.int_repr().contiguous(), scale, zero if zero.any() else None, bias


def _call(linear: Linear, x, wq, scale, zero, bias) -> torch.Tensor:
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    if zero is None:
        y = _checked(linear(rows, wq, scale, bias), len(rows), len(wq))
    else:
        wq = torch.cat([wq, wq.new_ones(1, wq.shape[1])])
        y = _checked(linear(rows, wq, torch.cat([scale, scale.new_ones(1)]), None), len(rows), len(wq))
        y = y[:, :-1] - y[:, -1:] * (zero.float() * scale)
        y = y if bias is None else y + bias
    return y.reshape(*x.shape[:-1], y.shape[-1])


def _checked(y: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    if not isinstance(y, torch.Tensor) or y.dtype != torch.float32 or y.shape != (rows, columns):
        what = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, torch.Tensor) else type(y).__name__
        raise TypeError(f"linear must return torch.float32 ({rows}, {columns}), but returned {what}")
    return y
