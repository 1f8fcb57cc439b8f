"""The dtypes of the course: one row each, and all that the rest asks about one is read off its row.

NumPy knows neither bfloat16 nor float8. The interpreter holds them as bits; a row's ``code`` says which
numbers these stand for, and rounds numbers to them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import triton.language as tl


class BFloat16:
    """The upper half of a float32."""

    def widen(self, bits: np.ndarray) -> np.ndarray:
        """uint16 -> float32, exactly."""
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def narrow(self, values: np.ndarray, *, towards_zero: bool = False) -> np.ndarray:
        """To nearest, ties to even, as GPUs and torch do, or cut off; NaN stays NaN."""
        values = np.ascontiguousarray(values, np.float32)
        bits = values.view(np.uint32)
        up = 0 if towards_zero else 0x7FFF + ((bits >> 16) & 1)
        return np.where(np.isnan(values), np.uint16(0x7FC0), ((bits + up) >> 16).astype(np.uint16))


class Float8:
    """Sign, exponent and ``fraction`` bits of mantissa, as in the OCP 8-bit Floating Point Specification.

    ``largest``: code of the largest number. Of those above it ``infinity`` is one, if there is such a
    code; the others are NaN.

    Rounding is what sm_90 does, ``cvt.rn.satfinite.e4m3x2.f32`` and its like: to nearest, ties to even,
    and what is too large, infinities too, becomes the largest number. Towards zero (e5m2 alone) goes
    through ``cvt.rz.f16.f32``, which leaves infinities what they are. NaN becomes 0x7F. On sm_80, which
    has no e4m3, rounding to e5m2 differs, but from bfloat16: the upper byte of a float16 plus 0x80, so that
    ties go away from zero, what is too large becomes infinity, and NaN -0.
    """

    def __init__(self, fraction: int, bias: int, largest: int, infinity: int | None = None):
        code = np.arange(128)
        exponent, digits = code >> fraction, code & (1 << fraction) - 1
        digits = digits + (np.minimum(exponent, 1) << fraction)  # subnormals lack the leading one
        numbers = np.ldexp(digits.astype(np.float32), np.maximum(exponent, 1) - bias - fraction)
        numbers[largest + 1 :] = np.nan
        if infinity is not None:
            numbers[infinity] = np.inf
        self.infinity = infinity
        self.numbers = np.concatenate([numbers, -numbers])  # by code
        self.steps = numbers[: largest + 1]
        self.middles = (self.steps[:-1] + self.steps[1:]) / 2

    def widen(self, bits: np.ndarray) -> np.ndarray:
        """uint8 -> float32, exactly."""
        return self.numbers[bits]

    def narrow(self, values: np.ndarray, *, towards_zero: bool = False) -> np.ndarray:
        """float32 -> uint8."""
        values = np.asarray(values, np.float32)
        size = np.abs(values)
        if towards_zero:
            code = np.searchsorted(self.steps, size, "right") - 1
            code = np.where(np.isinf(size), self.infinity, code)
        else:
            code = np.searchsorted(self.middles, size)
            tie = size == self.middles[np.minimum(code, len(self.middles) - 1)]
            code += tie & (code % 2 == 1)  # to the even one of the two codes
        code = np.where(np.isnan(size), 0x7F, code | np.signbit(values) << 7)
        return code.astype(np.uint8)


@dataclass(frozen=True)
class DType:
    """One dtype under all its names.

    name: torch's and jaxtyping's. annotation: jaxtyping's class. triton: what kernels know it as.
    signature: Triton's name for it in a kernel's signature.
    storage: what the interpreter's NumPy arrays hold.
    roundoff: unit roundoff, half the distance from 1 to the next number; 0 for what is exact.
    code: what stored bits stand for, where NumPy cannot compute on ``storage`` as it is.
    """

    name: str
    annotation: str
    triton: tl.dtype
    signature: str
    storage: np.dtype
    roundoff: float = 0.0
    code: BFloat16 | Float8 | None = None

    @cached_property
    def torch(self) -> torch.dtype:
        return getattr(torch, self.name)

    @property
    def is_float(self) -> bool:
        return self.roundoff > 0

    @property
    def is_float8(self) -> bool:
        return isinstance(self.code, Float8)

    @property
    def largest(self) -> float:
        """The largest finite number of a float."""
        return torch.finfo(self.torch).max

    @cached_property
    def least(self) -> float:
        """What is smaller may count as zero. GPUs may flush subnormals, but not those of float8."""
        code = self.code
        return float(code.steps[1]) if isinstance(code, Float8) else torch.finfo(self.torch).tiny

    def widen(self, stored: np.ndarray) -> np.ndarray:
        """``storage`` -> a NumPy dtype that computes, exactly."""
        return stored if self.code is None else self.code.widen(stored)

    def narrow(self, values: np.ndarray) -> np.ndarray:
        """Numbers -> ``storage``, rounded as a cast is."""
        return values.astype(self.storage) if self.code is None else self.code.narrow(values)


def _row(name: str, annotation: str, triton: tl.dtype, signature: str, storage: type, *rest: Any) -> DType:
    return DType(name, annotation, triton, signature, np.dtype(storage), *rest)


_E4M3 = Float8(fraction=3, bias=7, largest=0x7E)
_E5M2 = Float8(fraction=2, bias=15, largest=0x7B, infinity=0x7C)

DTYPES = (
    _row("bool", "Bool", tl.int1, "i1", np.bool_),
    _row("uint8", "UInt8", tl.uint8, "u8", np.uint8),
    _row("uint16", "UInt16", tl.uint16, "u16", np.uint16),
    _row("uint32", "UInt32", tl.uint32, "u32", np.uint32),
    _row("uint64", "UInt64", tl.uint64, "u64", np.uint64),
    _row("int8", "Int8", tl.int8, "i8", np.int8),
    _row("int16", "Int16", tl.int16, "i16", np.int16),
    _row("int32", "Int32", tl.int32, "i32", np.int32),
    _row("int64", "Int64", tl.int64, "i64", np.int64),
    _row("float8_e4m3fn", "Float8e4m3fn", tl.float8e4nv, "fp8e4nv", np.uint8, 2**-4, _E4M3),
    _row("float8_e5m2", "Float8e5m2", tl.float8e5, "fp8e5", np.uint8, 2**-3, _E5M2),
    _row("float16", "Float16", tl.float16, "fp16", np.float16, 2**-11),
    _row("bfloat16", "BFloat16", tl.bfloat16, "bf16", np.uint16, 2**-8, BFloat16()),
    _row("float32", "Float32", tl.float32, "fp32", np.float32, 2**-24),
    _row("float64", "Float64", tl.float64, "fp64", np.float64, 2**-53),
)

_BY_NAME = {row.name: row for row in DTYPES}
_BY_TORCH = {row.torch: row for row in DTYPES}
_BY_TRITON = {row.triton.name: row for row in DTYPES}


def of_name(name: str) -> DType | None:
    """The row of jaxtyping's ``"bfloat16"``; None where there is none."""
    return _BY_NAME.get(name)


def of_torch(dtype: torch.dtype) -> DType:
    """The row of ``torch.bfloat16``. Raises TypeError where there is none."""
    if dtype not in _BY_TORCH:
        raise TypeError(f"the course has no {dtype}, it has {', '.join(_BY_NAME)}")
    return _BY_TORCH[dtype]


def of_triton(dtype: tl.dtype) -> DType:
    """The row of ``tl.bfloat16`` or a block of it; a pointer's is uint64's.

    Raises TypeError where there is none.
    """
    dtype = dtype.scalar
    row = _BY_TRITON.get("uint64" if dtype.is_ptr() else dtype.name)
    if row is None:
        raise TypeError(f"the course's interpreter has no {dtype}")
    return row


def of_triton_name(name: str) -> DType | None:
    """The row of Triton's ``"fp32"`` or ``"uint8"``, a ``tl.dtype`` as text; None if there is none."""
    return _BY_TRITON.get(name)


def of_integer(value: int, annotation: str = "") -> DType:
    """The integer that a launch makes of ``value``, for a parameter annotated so ("i64"; "" for not).

    Where it does not fit the annotation, what it is without one.
    """
    row = next((row for row in DTYPES if row.signature == annotation), None)
    if row and row.storage.kind in "iu" and np.iinfo(row.storage).min <= value <= np.iinfo(row.storage).max:
        return row
    return _BY_NAME["int32" if -(2**31) <= value < 2**31 else "int64"]
