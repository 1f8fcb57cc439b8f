"""Speed up what every line of a kernel needs from Triton, with the same results.

The front end in its child process uses this. Blocks of one shape share what Triton recomputes for each
(`make_block_type` and `make_tensor` replace its ``__init__``). Operands of one dtype need no common dtype
(`compatible`), and most values are not a constexpr (`unwrapped`).
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import triton.language as tl

_init_type = tl.block_type.__init__
_unwrap = tl.core._unwrap_if_constexpr
_PLAIN = frozenset((tl.tensor, int, float, bool, str, type(None)))


def make_block_type(self: tl.block_type, element_ty: tl.dtype, shape: Iterable) -> None:
    sizes = tuple([n.value if isinstance(n, tl.constexpr) else n for n in shape])
    if set(map(type, sizes)) != {int}:  # True and 1.0 are equal to 1
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
    """Return a shape as types keep it, the number of its elements, and its name."""
    plain = tl.block_type.__new__(tl.block_type)
    _init_type(plain, tl.int1, list(sizes))
    return plain.shape, plain.numel, str(plain.shape)


@functools.lru_cache(maxsize=1024)
def _constants(sizes: tuple[int, ...]) -> tuple[tl.tuple, tl.constexpr]:
    """Return a shape as tensors keep it, and the number of its elements."""
    return tl.tuple([tl.constexpr(n) for n in sizes]), tl.constexpr(math.prod(sizes))


def unwrapped(value: object) -> object:
    """Replace ``tl.core._unwrap_if_constexpr``: return the value of a constexpr, or the object itself."""
    return value if type(value) in _PLAIN else _unwrap(value)


def compatible(method: Callable) -> Callable:
    """Replace ``binary_op_type_checking_impl`` for two operands of one dtype and one shape."""

    @functools.wraps(method)
    def checked(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(lhs) is tl.tensor and type(rhs) is tl.tensor:
            if _fit(lhs.dtype, rhs.dtype, allow_lhs_ptr, div_or_mod):
                return self.broadcast_impl_value(lhs, rhs)
        return method(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return checked


def _fit(left: tl.dtype, right: tl.dtype, pointer: bool, divided: bool) -> bool:
    """Return whether neither operand is cast: one dtype, or a pointer and its offset."""
    if type(right) is not tl.dtype:
        return False
    if type(left) is tl.dtype:  # halves are divided in float32
        return left.name == right.name and not (
            divided and left.primitive_bitwidth < 32 and left.is_floating()
        )
    return pointer and type(left) is tl.pointer_type and right.is_int()
