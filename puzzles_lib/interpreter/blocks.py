"""Blocks of one shape share what Triton works out anew for each: a third of a run's time.

`make_block_type` and `make_tensor` take the places of Triton's ``__init__``, and do what those do: in a run,
and in the front end, where it is a sixth of a translation's time.
"""

import functools
import math
from collections.abc import Iterable

import triton.language as tl

_init_type = tl.block_type.__init__


def make_block_type(self: tl.block_type, element_ty: tl.dtype, shape: Iterable) -> None:
    sizes = tuple([n.value if isinstance(n, tl.constexpr) else n for n in shape])
    if set(map(type, sizes)) != {int}:  # True and 1.0 would be found as 1
        _init_type(self, element_ty, shape)
        return
    self.element_ty = element_ty
    self.shape, self.numel, name = _shape(sizes)
    self.name = f"<{name}, {element_ty}>"


def make_tensor(self: tl.tensor, handle: object, type: tl.dtype) -> None:
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = _constants(tuple(type.shape.values) if type.is_block() else ())


@functools.lru_cache(maxsize=1024)
def _shape(sizes: tuple[int, ...]) -> tuple[tl.tuple, int, str]:
    """A shape as a type has it, the number of its elements, and its name."""
    plain = tl.block_type.__new__(tl.block_type)
    _init_type(plain, tl.int1, list(sizes))
    return plain.shape, plain.numel, str(plain.shape)


@functools.lru_cache(maxsize=1024)
def _constants(sizes: tuple[int, ...]) -> tuple[tl.tuple, tl.constexpr]:
    """A shape as a tensor has it, and the number of its elements."""
    return tl.tuple([tl.constexpr(n) for n in sizes]), tl.constexpr(math.prod(sizes))
