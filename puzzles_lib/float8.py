"""What Triton does not compile of float8 (3.7.1, sm_90), in words."""

import math
import struct

import triton.language as tl

NO_FLOAT8_ARITHMETIC = "a GPU computes nothing in float8 but tl.dot: convert first, as in x.to(tl.float32)"
_FORMATS = {"fp8e4nv": (3, 7, 448.0, False), "fp8e5": (2, 15, 57344.0, True)}
"""Of the OCP 8-bit Floating Point Specification: bits of mantissa, bias, the largest number, infinities."""


def refused_cast(source: tl.dtype, target: tl.dtype, towards_zero: bool) -> str:
    """Why there is no such cast; "" where there is."""
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
    """Why a number in the source cannot be of a dtype; "" where it can."""
    name = dtype.scalar.name
    if name not in _FORMATS or _is_exact(number, *_FORMATS[name]):
        return ""
    return f"{number:g} is no {name.replace('fp', 'float')}, and Triton rounds no constant to one"


def _is_exact(number: float, fraction: int, bias: int, largest: float, infinite: bool) -> bool:
    """Whether a number, rounded to float32 as Triton does first, is one of a format's."""
    try:
        (size,) = struct.unpack("f", struct.pack("f", abs(number)))
    except OverflowError:
        size = math.inf
    if size > largest or math.isnan(size):
        return infinite and math.isinf(size)
    exponent = max(math.frexp(size)[1] - 1, 1 - bias)  # subnormals have that of the smallest normal number
    return (size / 2.0 ** (exponent - fraction)).is_integer()
