"""Compute numbers as a GPU does, if NumPy does it differently."""

import functools

import numpy as np
import torch

from puzzles_lib.float8 import FORMATS
from puzzles_lib.runner.lanes import BFLOAT16

E2M1 = np.array([FORMATS["fp4e2m1"].number(code) for code in range(8)], np.float32)  # without the sign


def bits(array: np.ndarray) -> np.ndarray:
    """Return the same memory as unsigned integers."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def float32_to_tf32(values: np.ndarray) -> np.ndarray:
    """Round to the 10 bits that a tensor core takes of a float32; NaN and infinities stay."""
    rounded = ((np.ascontiguousarray(values).view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)).view(
        np.float32
    )
    return np.where(np.isfinite(values), rounded, values)


def float32_in_bfloat16(values: np.ndarray, terms: int) -> list[np.ndarray]:
    """Return a float32 as a sum of bfloat16 numbers, largest first, as ``input_precision="bf16x3"`` does."""
    parts, left = [], np.ascontiguousarray(values, np.float32)
    for _ in range(terms):
        parts.append(BFLOAT16.widen(BFLOAT16.narrow(left)))
        left = left - parts[-1]
    return parts


def float_to_integer(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cut off the fraction, as PTX's ``cvt.rzi`` does; a number out of range becomes the nearest in range.

    PTX has no conversions to 8 bits: Triton keeps the lower half of a 16-bit integer. NaN becomes 0, or the
    sign bit alone if either side has 64 bits.
    """
    wide = np.dtype(f"{np.dtype(dtype).kind}{max(np.dtype(dtype).itemsize, 2)}")
    limits = np.iinfo(wide)
    nan = 0 if wide.itemsize < 8 and values.dtype.itemsize < 8 else 1 << 8 * wide.itemsize - 1
    whole = np.trunc(values.astype(np.float64, copy=False))
    integers = np.where(whole >= float(limits.max), limits.max, whole.astype(wide))
    integers = np.where(whole <= float(limits.min), limits.min, integers)
    if np.isnan(whole).any():
        integers = np.where(np.isnan(whole), np.array(nan, f"u{wide.itemsize}").view(wide), integers)
    return integers.astype(wide).astype(dtype)


def float8_e5m2_to_bfloat16(codes: np.ndarray) -> np.ndarray:
    """Convert as Triton compiles it: bits are shifted into place and multiplied by 2**112 (sm_80 to sm_100).

    So infinity becomes 65536, and NaN a number beyond it, as on an H200.
    """
    halves = codes.astype(np.uint16) << 8
    small = BFLOAT16.widen((halves & 0x8000) | (halves & 0x7FFF) >> 3)
    return BFLOAT16.narrow(small * np.float32(2.0**112))


def remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ``x - trunc(x / y) * y``, as compiled. If x / y is large, this is not the remainder.

    For float32, the difference is rounded once (PTX of Triton 3.7.1 for sm_90: div.rn, cvt.rzi, fma.rn).
    """
    if x.dtype != np.float32:
        return np.fmod(x, y)
    whole = np.trunc(x / y).astype(np.float64)
    left = x.astype(np.float64) - whole * y.astype(np.float64)
    return np.where(np.isinf(y), x, left.astype(np.float32))


def by_reciprocal(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x * (1 / y), rounded twice."""
    return x * (np.ones_like(y) / y)


def divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Divide integers, rounding toward zero."""
    return (x - np.fmod(x, y)) // y


def shifted(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return x * 2**by as a float64, by from 0 to 63."""
    return np.ldexp(x, np.clip(by, 0, 63).astype(np.int64))


def high_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the upper half of the product of two unsigned integers."""
    size = 8 * x.itemsize
    if size < 64:
        wide = f"u{2 * x.itemsize}"
        return (x.astype(wide) * y.astype(wide) >> size).astype(x.dtype)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c, d = x >> half, x & low, y >> half, y & low
    middle = b * d >> half
    cross = a * d + middle
    upper = (cross & low) + b * c
    return a * c + (cross >> half) + (upper >> half)


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function, rounded once."""
    return torch.erf(torch.from_numpy(np.ascontiguousarray(x, np.float64))).numpy().astype(x.dtype)


def product(left: np.ndarray, right: np.ndarray, dtype: type) -> np.ndarray:
    """Return a matrix product, by torch, because its number of threads can be set."""
    tensors = (torch.from_numpy(np.ascontiguousarray(x, dtype)) for x in (left, right))
    return torch.matmul(*tensors).numpy()


@functools.lru_cache(maxsize=512)
def numbers_from(start: int, end: int) -> np.ndarray:
    """Return the numbers of ``tl.arange``. They must not be changed."""
    made = np.arange(start, end, dtype=np.int32)
    made.flags.writeable = False
    return made
