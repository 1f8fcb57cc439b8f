"""The dtypes of the course, one row each. All other modules read the properties of a dtype from its row.

NumPy has neither bfloat16 nor float8, so the interpreter keeps them as bits. A row's ``code`` converts these
bits to numbers, and rounds numbers to them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import triton.language as tl

from puzzles_lib.float8 import FORMATS, Format


class BFloat16:
    """The upper half of a float32."""

    def widen(self, bits: np.ndarray) -> np.ndarray:
        """Convert uint16 to float32, exactly."""
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def narrow(self, values: np.ndarray, *, towards_zero: bool = False) -> np.ndarray:
        """Round to nearest, ties to even, as GPUs and torch do, or truncate; NaN stays NaN."""
        values = np.ascontiguousarray(values, np.float32)
        bits = values.view(np.uint32)
        up = 0 if towards_zero else 0x7FFF + ((bits >> 16) & 1)
        return np.where(np.isnan(values), np.uint16(0x7FC0), ((bits + up) >> 16).astype(np.uint16))


class Float8:
    """Numbers of a `Format` with 8 bits.

    Rounding is that of sm_90, ``cvt.rn.satfinite.e4m3x2.f32`` and similar: to nearest, ties to even. Values
    that are too large, and infinities, become the largest number. Rounding towards zero (only e5m2) uses
    ``cvt.rz.f16.f32``, which keeps infinities. NaN becomes 0x7F. On sm_80, which has no e4m3, rounding to
    e5m2 is different except from bfloat16: the result is the upper byte of a float16 plus 0x80. So ties go
    away from zero, values that are too large become infinity, and NaN becomes -0.
    """

    def __init__(self, form: Format):
        numbers = np.array([form.number(code) for code in range(128)], np.float32)
        self.infinity = form.infinity
        self.numbers = np.concatenate([numbers, -numbers])  # by code
        self.steps = numbers[: form.largest + 1]
        self.middles = (self.steps[:-1] + self.steps[1:]) / 2

    def widen(self, bits: np.ndarray) -> np.ndarray:
        """Convert uint8 to float32, exactly."""
        return self.numbers[bits]

    def narrow(self, values: np.ndarray, *, towards_zero: bool = False) -> np.ndarray:
        """Round float32 to uint8."""
        values = np.asarray(values, np.float32)
        size = np.abs(values)
        if towards_zero:
            code = np.searchsorted(self.steps, size, "right") - 1
            code = np.where(np.isinf(size), self.infinity, code)
        else:
            code = np.searchsorted(self.middles, size)
            tie = size == self.middles[np.minimum(code, len(self.middles) - 1)]
            code += tie & (code % 2 == 1)  # to the even code of the two
        code = np.where(np.isnan(size), 0x7F, code | np.signbit(values) << 7)
        return code.astype(np.uint8)


@dataclass(frozen=True)
class DType:
    """One dtype with all its names.

    name: torch's and jaxtyping's name. annotation: jaxtyping's class. triton: the dtype in kernels.
    signature: Triton's name for it in a kernel's signature. ir: MLIR's, where integers have no sign, so it is
    "" for unsigned ones.
    storage: the dtype of the interpreter's NumPy arrays.
    roundoff: the unit roundoff, half the distance from 1 to the next number; 0 for exact dtypes.
    code: the meaning of the stored bits, if NumPy cannot compute with ``storage`` directly.
    """

    name: str
    annotation: str
    triton: tl.dtype
    signature: str
    ir: str
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
        """Smaller numbers may count as zero, because GPUs may flush subnormals, except those of float8."""
        code = self.code
        return float(code.steps[1]) if isinstance(code, Float8) else torch.finfo(self.torch).tiny

    def widen(self, stored: np.ndarray) -> np.ndarray:
        """Convert ``storage`` exactly to a NumPy dtype that can compute."""
        return stored if self.code is None else self.code.widen(stored)

    def narrow(self, values: np.ndarray) -> np.ndarray:
        """Round numbers to ``storage`` as a cast does."""
        return values.astype(self.storage) if self.code is None else self.code.narrow(values)


def _row(
    name: str, annotation: str, triton: tl.dtype, signature: str, ir: str, storage: type, *rest: Any
) -> DType:
    return DType(name, annotation, triton, signature, ir, np.dtype(storage), *rest)


_E4M3, _E5M2 = Float8(FORMATS["fp8e4nv"]), Float8(FORMATS["fp8e5"])

DTYPES = (
    _row("bool", "Bool", tl.int1, "i1", "i1", np.bool_),
    _row("uint8", "UInt8", tl.uint8, "u8", "", np.uint8),
    _row("uint16", "UInt16", tl.uint16, "u16", "", np.uint16),
    _row("uint32", "UInt32", tl.uint32, "u32", "", np.uint32),
    _row("uint64", "UInt64", tl.uint64, "u64", "", np.uint64),
    _row("int8", "Int8", tl.int8, "i8", "i8", np.int8),
    _row("int16", "Int16", tl.int16, "i16", "i16", np.int16),
    _row("int32", "Int32", tl.int32, "i32", "i32", np.int32),
    _row("int64", "Int64", tl.int64, "i64", "i64", np.int64),
    _row("float8_e4m3fn", "Float8e4m3fn", tl.float8e4nv, "fp8e4nv", "f8E4M3FN", np.uint8, 2**-4, _E4M3),
    _row("float8_e5m2", "Float8e5m2", tl.float8e5, "fp8e5", "f8E5M2", np.uint8, 2**-3, _E5M2),
    _row("float16", "Float16", tl.float16, "fp16", "f16", np.float16, 2**-11),
    _row("bfloat16", "BFloat16", tl.bfloat16, "bf16", "bf16", np.uint16, 2**-8, BFloat16()),
    _row("float32", "Float32", tl.float32, "fp32", "f32", np.float32, 2**-24),
    _row("float64", "Float64", tl.float64, "fp64", "f64", np.float64, 2**-53),
)

_BY_NAME = {row.name: row for row in DTYPES}
_BY_TORCH = {row.torch: row for row in DTYPES}
_BY_TRITON = {row.triton.name: row for row in DTYPES}


def of_name(name: str) -> DType | None:
    """Return the row of jaxtyping's ``"bfloat16"``; None if there is none."""
    return _BY_NAME.get(name)


def of_torch(dtype: torch.dtype) -> DType:
    """Return the row of ``torch.bfloat16``. Raise TypeError if there is none."""
    if dtype not in _BY_TORCH:
        raise TypeError(f"the course does not support {dtype}, only {', '.join(_BY_NAME)}")
    return _BY_TORCH[dtype]


def of_triton(dtype: tl.dtype) -> DType:
    """Return the row of ``tl.bfloat16`` or a block of it; a pointer has that of uint64.

    Raises TypeError if there is none.
    """
    dtype = dtype.scalar
    row = _BY_TRITON.get("uint64" if dtype.is_ptr() else dtype.name)
    if row is None:
        raise TypeError(f"the course's interpreter does not support {dtype}")
    return row


def of_triton_name(name: str) -> DType | None:
    """Return the row of a ``tl.dtype``, given as text (``"fp32"``, ``"uint8"``); None if there is none."""
    return _BY_TRITON.get(name)


def of_integer(value: int, annotation: str = "") -> DType:
    """Return the integer type that a launch gives ``value``, for an annotation such as "i64"; "" for none.

    If the value does not fit the annotation, return the type without one.
    """
    row = next((row for row in DTYPES if row.signature == annotation), None)
    if row and row.storage.kind in "iu" and np.iinfo(row.storage).min <= value <= np.iinfo(row.storage).max:
        return row
    return _BY_NAME["int32" if -(2**31) <= value < 2**31 else "int64"]
