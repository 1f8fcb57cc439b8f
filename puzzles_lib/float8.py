"""The formats of small floats, and what Triton does not compile of float8 on sm_90.

Nothing here imports torch or NumPy, because the compiler's processes use it. The conversions are in `dtypes`.
"""

import math
import struct
from dataclasses import dataclass

import triton.language as tl


@dataclass(frozen=True)
class Format:
    """A sign, an exponent and ``fraction`` bits of mantissa.

    largest: the code of the largest number, without its sign. Of the codes above it, ``infinity`` is
    infinity, if there is one; the others are NaN.
    """

    fraction: int
    bias: int
    largest: int
    infinity: int | None = None

    def number(self, code: int) -> float:
        """Return the number of a code without sign."""
        if code > self.largest:
            return math.inf if code == self.infinity else math.nan
        exponent, digits = code >> self.fraction, code & (1 << self.fraction) - 1
        digits += min(exponent, 1) << self.fraction  # subnormals have no leading one
        return math.ldexp(digits, max(exponent, 1) - self.bias - self.fraction)

    def has(self, number: float) -> bool:
        """Return whether a number, rounded to float32 as Triton does first, is exact in this format."""
        try:
            (size,) = struct.unpack("f", struct.pack("f", abs(number)))
        except OverflowError:
            size = math.inf
        if size > self.number(self.largest) or math.isnan(size):
            return self.infinity is not None and math.isinf(size)
        exponent = max(math.frexp(size)[1] - 1, 1 - self.bias)  # subnormals have that of the smallest normal
        return (size / 2.0 ** (exponent - self.fraction)).is_integer()


FORMATS = {
    "fp8e4nv": Format(fraction=3, bias=7, largest=0x7E),
    "fp8e5": Format(fraction=2, bias=15, largest=0x7B, infinity=0x7C),
    "fp4e2m1": Format(fraction=1, bias=1, largest=0x7),
}
"""By Triton's name; as in the OCP's 8-bit Floating Point and Microscaling Formats Specifications."""

NAMES = {dtype.name: name for name, dtype in vars(tl).items() if type(dtype) is tl.dtype}
"""How kernels write a dtype, such as ``bfloat16``, by Triton's name in signatures and messages."""

NO_FLOAT8_ARITHMETIC = "a GPU computes nothing in float8 except tl.dot; convert first, as in x.to(tl.float32)"


def refused_cast(source: tl.dtype, target: tl.dtype, towards_zero: bool) -> str:
    """Return why there is no such cast; "" if there is one."""
    types = (source.scalar, target.scalar)
    if types[0] == types[1] or not any(t.is_floating() and t.is_fp8() for t in types):
        return ""
    told = "Triton compiles no cast from {} to {}".format(*(NAMES.get(t.name, t.name) for t in types))
    if tl.float64 in types or all(t.is_fp8() for t in types):
        return f"{told}: go through float32"
    if towards_zero and types != (tl.float32, tl.float8e5):
        return f"{told} that rounds towards zero, only from float32 to float8e5"
    return ""


def refused_constant(number: float, dtype: tl.dtype) -> str:
    """Return why a number in the source cannot have a dtype; "" if it can."""
    name = dtype.scalar.name
    if name not in FORMATS or FORMATS[name].has(number):
        return ""
    return f"{number:g} is not a {NAMES[name]}, and Triton does not round constants to it"
