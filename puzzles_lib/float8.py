"""Say what Triton 3.7.1 does not compile of float8 on sm_90."""

import math
import struct

import triton.language as tl

NO_FLOAT8_ARITHMETIC = "a GPU computes nothing in float8 except tl.dot: convert first, as in x.to(tl.float32)"
_FORMATS = {"fp8e4nv": (3, 7, 448.0, False), "fp8e5": (2, 15, 57344.0, True)}
"""Formats of the OCP 8-bit Floating Point Specification: mantissa bits, bias, largest number, infinities."""


def refused_cast(source: tl.dtype, target: tl.dtype, towards_zero: bool) -> str:
    """Return why there is no such cast; "" if there is one."""
    types = (source.scalar, target.scalar)
    if types[0] == types[1] or not any(t.is_floating() and t.is_fp8() for t in types):
        return ""
    told = "Triton compiles no cast from {} to {}".format(*(t.name.replace("fp", "float") for t in types))
    if tl.float64 in types or all(t.is_fp8() for t in types):
        return f"{told}: go through float32"
    if towards_zero and types != (tl.float32, tl.float8e5):
        return f"{told} that rounds towards zero, only from float32 to float8e5"
    return ""


def refused_constant(number: float, dtype: tl.dtype) -> str:
    """Return why a number in the source cannot have a dtype; "" if it can."""
    name = dtype.scalar.name
    if name not in _FORMATS or _is_exact(number, *_FORMATS[name]):
        return ""
    return f"{number:g} is not a {name.replace('fp', 'float')}, and Triton does not round constants to it"


def _is_exact(number: float, fraction: int, bias: int, largest: float, infinite: bool) -> bool:
    """Return whether a number, rounded to float32 as Triton does first, is exact in a format."""
    try:
        (size,) = struct.unpack("f", struct.pack("f", abs(number)))
    except OverflowError:
        size = math.inf
    if size > largest or math.isnan(size):
        return infinite and math.isinf(size)
    exponent = max(
        math.frexp(size)[1] - 1, 1 - bias
    )  # subnormals have the exponent of the smallest normal number
    return (size / 2.0 ** (exponent - fraction)).is_integer()
