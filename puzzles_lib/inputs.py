"""Make seeded inputs for a case, with values that reveal mistakes.

By default, floats are standard normal with some exact zeros, and integers have all bit patterns with equal
chance, so that sign bits and top codes occur. A `Case` replaces this for an input with
``fill={"x": late_maximum}``; a fill is any function ``(shape, dtype, generator) -> tensor``. Inputs that an
earlier kernel would compute from other inputs are computed: `Puzzle.derived`.
"""

import inspect
import math
import zlib
from collections.abc import Callable, Mapping

import torch

from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Case, Puzzle


def make_inputs(puzzle: Puzzle, case: Case) -> dict[str, torch.Tensor]:
    """Return the case's input tensors by name: contiguous, on the CPU, and the same at every call."""
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


def unmoved(fill: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Mark a fill whose values are on ties, and whose rounding is exact in float32 in every correct kernel.

    A tolerance says how far the result moves with the inputs. On ties, the smallest movement moves the result
    by a whole step, so that every way to round would pass. The marked input stays where it is.
    """
    _UNMOVED.add(fill)
    return fill


def is_unmoved(fill: Callable[..., torch.Tensor]) -> bool:
    """Return whether a fill is marked by `unmoved`."""
    return fill in _UNMOVED


_UNMOVED: set[Callable[..., torch.Tensor]] = set()


def _derived(derive: Callable[..., torch.Tensor], before: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Compute an input from earlier inputs, in float64."""
    named = inspect.signature(derive).parameters
    return derive(
        **{name: t.double() if t.is_floating_point() else t for name, t in before.items() if name in named}
    )


def random(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal floats, about 1 in 16 exactly zero, or with integers of random bits: the default."""
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator)
        values[torch.rand(shape, generator=generator) < 1 / 16] = 0.0
        return _rounded(values, dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    size = math.prod(shape) * dtype.itemsize
    return torch.randint(256, (size,), dtype=torch.uint8, generator=generator).view(dtype).reshape(shape)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with zeros."""
    return torch.zeros(shape, dtype=dtype)


def all_bits_set(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with integers of all bits set: each packed field has its top code, and the sign bit is set."""
    return torch.full(shape, -1, dtype=dtype)


def large(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values around 1000, whose exp() overflows float32."""
    return _rounded(1000 + 10 * torch.randn(shape, generator=generator), dtype)


def very_negative(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values around -1000, whose exp() is 0; a maximum that starts at 0 stays there."""
    return _rounded(-1000 + 10 * torch.randn(shape, generator=generator), dtype)


def far_below(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values around -3000000, far below the -1e6 that some take for minus infinity."""
    return _rounded(-3e6 + 10 * torch.randn(shape, generator=generator), dtype)


def small(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values times 2^-15, whose products are near 1e-9."""
    return _rounded(2.0**-15 * torch.randn(shape, generator=generator), dtype)


def far_apart(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values alternately times 100000 and 1e-8 along the last axis; float16 has neither."""
    sizes = torch.where(torch.arange(shape[-1]) % 2 == 0, 1e5, 1e-8)
    return _rounded(sizes * torch.randn(shape, generator=generator), dtype)


def partly_huge(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values, each fourth times 2^126: twice such a number may overflow float32."""
    sizes = torch.where(torch.arange(shape[-1]) % 4 == 0, 2.0**126, 1.0)
    return _rounded(sizes * torch.randn(shape, generator=generator), dtype)


def late_maximum(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with rows that rise along the last axis, so that every block has a new maximum."""
    steps = torch.linspace(-20.0, 20.0, shape[-1]) if shape[-1] > 1 else torch.zeros(shape[-1])
    return _rounded(steps + torch.randn(shape, generator=generator), dtype)


def _rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the nearest numbers of a dtype; float8_e4m3fn is clamped to 448, where torch may return NaN."""
    row = of_torch(dtype)
    return (values.clamp(-row.largest, row.largest) if row.is_float8 else values).to(dtype)
