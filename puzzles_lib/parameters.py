"""Bind what a launch is given to a kernel's parameters, as Triton does."""

import inspect
import numbers
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.dtypes import of_torch

OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "debug", "enable_fp_fusion", "launch_cooperative_grid",
    "launch_pdl", "allow_fp8e4nv", "ir_override", "extern_libs", "warmup",
    "sanitize_overflow", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "instrumentation_mode",
)  # fmt: skip
"""What a launch may be given beside the kernel's parameters."""


MOST_CTAS = 16  # of a cluster, on a GPU that allows more than the portable 8


class Unsupported(Exception):
    """A launch that cannot be judged. The message says why, in a sentence."""


def parameters(
    kernel: JITFunction, args: Sequence[object], kwargs: Mapping[str, Any], given: Collection[str] = ()
) -> tuple[dict[str, object], dict[str, Any]]:
    """Return the value of each parameter of ``kernel[grid](*args, **kwargs)``, and the launch's options.

    given: parameters that wrappers such as `triton.autotune` set. The launch has no values for them.

    Raises TypeError as a launch does, for arguments that do not fit, and `Unsupported` for those that are not
    judged here.
    """
    names = {parameter.name for parameter in kernel.params}
    options = {name: value for name, value in kwargs.items() if name not in names}
    if unknown := [name for name in options if name not in OPTIONS]:
        raise TypeError(f"{kernel.__name__}: {unknown[0]} is neither a parameter of the kernel nor an option")
    named = {name: value for name, value in kwargs.items() if name in names and name not in given}
    try:
        bound = kernel.signature.bind_partial(*args, **named)
    except TypeError as error:
        raise TypeError(f"{kernel.__name__}: {error}") from None
    bound.apply_defaults()
    for name, parameter in kernel.signature.parameters.items():
        if name not in bound.arguments and name not in given and parameter.default is inspect.Parameter.empty:
            raise TypeError(f"{kernel.__name__}: missing a required argument: '{name}'")
    constants = {p.name for p in kernel.params if p.is_constexpr}
    values = {n: v if n in constants else plain(n, v) for n, v in bound.arguments.items() if n not in given}
    return values, options


def sizes_of(grid: object, meta: Mapping[str, object], name: str) -> tuple[int, ...]:
    """Return a launch's grid as one to three integers. meta: the argument for a grid that is a function.

    Raises TypeError for anything else.
    """
    if callable(grid):
        grid = grid(dict(meta))
    try:
        sizes = tuple(operator.index(n) for n in grid)  # type: ignore[attr-defined]
    except TypeError:
        raise TypeError(f"{name}: the grid must be a tuple of integers, but is {grid!r}") from None
    if not 1 <= len(sizes) <= 3:
        raise TypeError(f"{name}: the grid must have 1 to 3 axes, but is {sizes}")
    return sizes


_TORCHS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "int1": torch.bool,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}


def plain(name: str, value: object) -> object:
    """Return an argument as the front end takes it."""
    if hasattr(value, "base") and hasattr(value, "dtype") and not isinstance(value, torch.Tensor):
        dtype = value.dtype  # of triton.reinterpret
        if isinstance(value.base, torch.Tensor) and isinstance(dtype, tl.dtype):
            wanted = _TORCHS.get(dtype.name, getattr(torch, dtype.name, None))
            if wanted is not None:
                return value.base.view(wanted)
    if isinstance(value, torch.Tensor):
        try:
            of_torch(value.dtype)
        except (KeyError, TypeError, ValueError):
            raise Unsupported(f"{name} has the dtype {value.dtype}, which no kernel takes") from None
        if value.layout != torch.strided:
            raise Unsupported(f"{name} must be a strided tensor, but has layout {value.layout}")
        return value.detach()
    if isinstance(value, tuple):
        parts = [plain(f"{name}[{place}]", part) for place, part in enumerate(value)]
        return like(value, parts)
    if value is None or isinstance(value, bool | int | float | str | TensorDescriptor | tl.dtype):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if hasattr(value, "data_ptr"):
        raise Unsupported(f"{name} is a {type(value).__name__}: pass a torch tensor")
    raise Unsupported(
        f"{name} is a {type(value).__name__}, but must be a tensor, number, None, descriptor or tuple"
    )


def like(value: tuple[object, ...], parts: Sequence[object]) -> tuple[object, ...]:
    """Return ``parts`` in a tuple of the same type as ``value``, which may be a named tuple."""
    made: Any = type(value)
    return made(*parts) if hasattr(value, "_fields") else tuple(parts)


def leaves(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return arguments with the parts of tuples instead of tuples, by names such as ``"pointers[0]"``."""
    found: dict[str, object] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            found |= leaves({f"{name}[{place}]": part for place, part in enumerate(value)})
        else:
            found[name] = value
    return found


def unfit(options: Mapping[str, object]) -> str:
    """Return why no launch with these options can work, whatever the kernel; "" if one may.

    Triton takes more than one may think: any integer is a number of stages.
    """
    for name in ("num_warps", "num_ctas"):
        count = options.get(name, 1)
        if isinstance(count, int) and (count < 1 or count & (count - 1)):
            return f"{name} must be a power of 2, but is {count}"
    for name in ("num_warps", "num_ctas", "num_stages", "maxnreg"):
        value = options.get(name)
        if value is not None and not isinstance(value, int):
            return f"{name} must be an integer, but is {value!r}"
    if isinstance(ctas := options.get("num_ctas"), int) and ctas > MOST_CTAS:
        return f"num_ctas is {ctas}, but a cluster has at most {MOST_CTAS} blocks"
    if options.get("maxnreg") == 0:
        return "maxnreg is 0, but a thread needs registers"
    return ""
