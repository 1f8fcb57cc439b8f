"""Make seeded inputs for a case, with values that reveal mistakes.

By default, floats are standard normal with some exact zeros, and integers have all bit patterns with equal
chance, so that sign bits and top codes occur. A `Case` replaces this for an input with
``fill={"x": late_maximum}``; a fill is any function ``(shape, dtype, generator) -> tensor``. Inputs that an
earlier kernel would compute from other inputs are computed: `Puzzle.derived`.
"""

import functools
import inspect
import math
import zlib
from collections.abc import Callable, Mapping

import torch

from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Case, Puzzle

LIGHT = "elements of small weights count if their values are large"
FAINT = "a factor can be as small as 1e-20, and not be 0"
UNLIKE = "a number near 1e-20 can meet one near 1e25, and their quotient is more than float32 holds"
CREEPING = "a maximum that grows by less than 0.001 from block to block still grows"
EVEN = "halfway between two numbers of a coarser dtype, results are rounded to the even one"
"""What some hard cases show."""
_UNMOVED: set[Callable[..., torch.Tensor]] = set()


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
        if not tensor.is_contiguous() and not _is_repeated(tensor):
            raise ValueError(
                f"{puzzle.name}: fill {fill.__name__} made {argument.name} with strides {tensor.stride()}, "
                "but check's tensors are contiguous: return .contiguous(), and use audit to judge strides"
            )
        tensors[argument.name] = tensor.contiguous()
    return tensors


def _is_repeated(tensor: torch.Tensor) -> bool:
    """Return whether a tensor repeats values along an axis, as ``expand`` makes it."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def unmoved(fill: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a fill marked as one of which all that correct kernels make is exact in float32.

    Its values may be on ties. A tolerance says how far the result moves with the inputs. On ties, the
    smallest movement moves the result by a whole step, so that every way to round would pass. The marked
    input stays where it is.
    """
    marked = functools.wraps(fill)(lambda *args: fill(*args))
    _UNMOVED.add(marked)
    return marked


def is_unmoved(fill: Callable[..., torch.Tensor]) -> bool:
    """Return whether a fill is marked by `unmoved`."""
    return fill in _UNMOVED


def whole(least: int, most: int) -> Callable[..., torch.Tensor]:
    """Return a fill with whole numbers, for sums of products that half precision has to round."""

    def whole(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(least, most + 1, shape, generator=generator).to(dtype)

    return unmoved(whole)


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
    """Fill with normal values, each fourth times 2^97, which is near the largest that `check` asks for."""
    sizes = torch.where(torch.arange(shape[-1]) % 4 == 0, 2.0**97, 1.0)
    return _rounded(sizes * torch.randn(shape, generator=generator), dtype)


def faint(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values times 2^-66, near 1e-20; `mighty` ones divided by them overflow float32."""
    return _rounded(2.0**-66 * torch.randn(shape, generator=generator), dtype)


def mighty(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with normal values times 2^83, near 1e25."""
    return _rounded(2.0**83 * torch.randn(shape, generator=generator), dtype)


def first_alone(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with 1 at the beginning of the last axis, and with zeros."""
    return (torch.arange(shape[-1]) == 0).expand(shape).to(dtype)


def creeping(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with rows that rise by 2^-15 from element to element, so that each block's maximum hardly does."""
    return (torch.arange(shape[-1]) * 2.0**-15).expand(shape).to(dtype)


def falling(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with rows that fall from 0 to -64 along the last axis."""
    return -_depth(shape[-1]).expand(shape).to(dtype)


def rising(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with rows that rise as fast as weights of exp(`falling`) fall: all products are near 1."""
    return _depth(shape[-1]).exp().expand(shape).to(dtype)


def _depth(size: int) -> torch.Tensor:
    return 64.0 * torch.arange(size) / max(size - 1, 1)


def in_column_0(fill: Callable[..., torch.Tensor], times: float = 1.0) -> Callable[..., torch.Tensor]:
    """Return a fill with these values in the first column, times a number, and zeros in all others."""

    def filled(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        values = torch.zeros(shape, dtype=dtype)
        values[..., 0] = times * _down(fill, shape, dtype, generator)
        return values

    filled.__name__ = fill.__name__
    return filled


def in_all_columns(fill: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a fill with these values in each column."""

    def filled(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return _down(fill, shape, dtype, generator)[..., None].expand(shape)

    filled.__name__ = fill.__name__
    return filled


def _down(
    fill: Callable[..., torch.Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> torch.Tensor:
    """Return the values of a fill for a column, which may be cut into parts."""
    return fill((math.prod(shape[:-1]),), dtype, generator).reshape(shape[:-1])


def ones(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with ones."""
    return torch.ones(shape, dtype=dtype)


def late_maximum(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Fill with rows that rise along the last axis, so that every block has a new maximum."""
    steps = torch.linspace(-20.0, 20.0, shape[-1]) if shape[-1] > 1 else torch.zeros(shape[-1])
    return _rounded(steps + torch.randn(shape, generator=generator), dtype)


def _rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the nearest numbers of a dtype; float8_e4m3fn is clamped to 448, where torch may return NaN."""
    row = of_torch(dtype)
    return (values.clamp(-row.largest, row.largest) if row.is_float8 else values).to(dtype)
