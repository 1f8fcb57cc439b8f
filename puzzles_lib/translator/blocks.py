"""Short ways through Triton's semantic for what every line of a kernel asks for: they give what it gives.

The front end in its child takes them. Blocks of one shape share what Triton works out anew for
each (`make_block_type` and `make_tensor` take the places of its ``__init__``), operands of one dtype need no
common one (`compatible`), and most of what may be a constexpr is none (`unwrapped`).
"""

import functools
import math
from collections.abc import Callable, Iterable

import triton.language as tl

_init_type = tl.block_type.__init__
_unwrap = tl.core._unwrap_if_constexpr
_PLAIN = frozenset((tl.tensor, int, float, bool, str, type(None)))


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


def unwrapped(value: object) -> object:
    """For ``tl.core._unwrap_if_constexpr``."""
    return value if type(value) in _PLAIN else _unwrap(value)


def compatible(method: Callable) -> Callable:
    """``binary_op_type_checking_impl`` of Triton's semantic: two operands of one dtype and one shape."""

    @functools.wraps(method)
    def checked(
        self, lhs, rhs, allow_lhs_ptr=False, allow_rhs_ptr=False, arithmetic_check=True, div_or_mod=False
    ):
        if type(lhs) is tl.tensor and type(rhs) is tl.tensor:
            if _fit(lhs.dtype, rhs.dtype, allow_lhs_ptr, div_or_mod):
                return self.broadcast_impl_value(lhs, rhs)
        return method(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return checked


def _fit(left: tl.dtype, right: tl.dtype, pointer: bool, divided: bool) -> bool:
    """Whether neither operand is cast: one dtype, or a pointer and its offset."""
    if type(right) is not tl.dtype:
        return False
    if type(left) is tl.dtype:  # halves are divided in float32
        return left.name == right.name and not (
            divided and left.primitive_bitwidth < 32 and left.is_floating()
        )
    return pointer and type(left) is tl.pointer_type and right.is_int()
