"""Seeded inputs for a case, with values that bite.

Default draws: standard normal for floats with a sprinkling of exact zeros; every bit pattern with
equal chance for integers, so that sign bits and top codes appear. A `Case` replaces them per input
with ``fill={"x": late_maximum}``; a fill is any function ``(shape, dtype, generator) -> tensor``. What an
earlier kernel would have made of the other inputs is made of them: `Puzzle.derived`.
"""

import inspect
import math
import zlib
from collections.abc import Callable, Mapping

import torch

from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Case, Puzzle


def make_inputs(puzzle: Puzzle, case: Case) -> dict[str, torch.Tensor]:
    """The case's input tensors by parameter name: contiguous, on the CPU, the same at every call."""
    tensors: dict[str, torch.Tensor] = {}
    for argument in puzzle.inputs:
        generator = torch.Generator().manual_seed(
            zlib.crc32(f"{puzzle.name}/{case}/{argument.name}{case.salt}".encode())
        )
        shape = argument.shape(case.numbers)
        derive = (puzzle.derived or {}).get(argument.name)
        fill = case.fill.get(argument.name, derive or random)
        if fill is derive:
            tensor = _derived(fill, tensors).to(argument.dtype)
        else:
            tensor = fill(shape, argument.dtype, generator)
        if tuple(tensor.shape) != shape or tensor.dtype != argument.dtype:
            raise ValueError(
                f"{puzzle.name}: fill {fill.__name__} made {tensor.dtype} {tuple(tensor.shape)} for "
                f"{argument.name}, which is {argument.dtype} {shape}"
            )
        tensors[argument.name] = tensor.contiguous()
    return tensors


def _derived(derive: Callable[..., torch.Tensor], before: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """An input made of those before it that it names, in float64."""
    named = inspect.signature(derive).parameters
    return derive(
        **{name: t.double() if t.is_floating_point() else t for name, t in before.items() if name in named}
    )


def random(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """The default: normal floats with about 1 in 16 exactly zero, or integers of random bits."""
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator)
        values[torch.rand(shape, generator=generator) < 1 / 16] = 0.0
        return _rounded(values, dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    size = math.prod(shape) * dtype.itemsize
    return torch.randint(256, (size,), dtype=torch.uint8, generator=generator).view(dtype).reshape(shape)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """All zero."""
    return torch.zeros(shape, dtype=dtype)


def all_bits_set(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Integers with every bit set: each packed field holds its top code, and the sign bit is on."""
    return torch.full(shape, -1, dtype=dtype)


def large(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values around 1000: exp() of them overflows float32."""
    return _rounded(1000 + 10 * torch.randn(shape, generator=generator), dtype)


def very_negative(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values around -1000: exp() of them is 0, and a maximum that starts at 0 stays there."""
    return _rounded(-1000 + 10 * torch.randn(shape, generator=generator), dtype)


def far_below(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values around -1000000, below what is often taken for minus infinity."""
    return _rounded(-1e6 + 10 * torch.randn(shape, generator=generator), dtype)


def small(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values times 2^-15: their products are near 1e-9."""
    return _rounded(2.0**-15 * torch.randn(shape, generator=generator), dtype)


def far_apart(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values, along the last axis times 100000 and times 1e-8 in turn: float16 holds neither."""
    sizes = torch.where(torch.arange(shape[-1]) % 2 == 0, 1e5, 1e-8)
    return _rounded(sizes * torch.randn(shape, generator=generator), dtype)


def late_maximum(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Rows that rise along the last axis, so that every block brings a new maximum."""
    steps = torch.linspace(-20.0, 20.0, shape[-1]) if shape[-1] > 1 else torch.zeros(shape[-1])
    return _rounded(steps + torch.randn(shape, generator=generator), dtype)


def _rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The nearest numbers of a dtype; float8_e4m3fn ends at 448, where torch may go on to NaN."""
    row = of_torch(dtype)
    return (values.clamp(-row.largest, row.largest) if row.is_float8 else values).to(dtype)
