"""CUDA's device library (``libdevice.tanh`` and the like) in NumPy and torch: its common part."""

import re
from collections.abc import Callable

import numpy as np
import torch

from puzzles_lib.runner.numerics import erf

# https://docs.nvidia.com/cuda/libdevice-users-guide/


def _by_torch(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
    return lambda *args: function(*(torch.from_numpy(np.ascontiguousarray(a)) for a in args)).numpy()


def _unsigned(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def _digits(x: np.ndarray) -> np.ndarray:
    """The bits of integers along a new axis, the lowest first."""
    count = 8 * x.dtype.itemsize
    return _unsigned(x)[..., None] >> np.arange(count).astype(_unsigned(x).dtype) & 1


def _brev(x: np.ndarray) -> np.ndarray:
    digits = _digits(x)[..., ::-1]
    return (
        (digits << np.arange(digits.shape[-1]).astype(digits.dtype)).sum(-1, dtype=digits.dtype).view(x.dtype)
    )


def _clz(x: np.ndarray) -> np.ndarray:
    highest = _digits(x)[..., ::-1]
    return np.where(x == 0, highest.shape[-1], highest.argmax(-1))


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return (x.astype(np.longdouble) * y + z).astype(x.dtype)  # the product of two float32 is exact


def _multiply_high(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array(
        [int(a) * int(b) >> 8 * x.dtype.itemsize for a, b in zip(x.flat, y.flat, strict=True)], x.dtype
    ).reshape(x.shape)


def _round(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)  # halves away from 0


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "brev": _brev,
    "brevll": _brev,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "clz": _clz,
    "clzll": _clz,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * np.remainder(x, 2).astype(np.float64)),
    "erf": erf,
    "erfc": _by_torch(torch.special.erfc),
    "erfcx": _by_torch(torch.special.erfcx),
    "erfinv": _by_torch(torch.special.erfinv),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: 10.0**x,
    "expm1": np.expm1,
    "fabs": np.abs,
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(np.isnan(x + y), np.nan, 0)),
    "ffs": lambda x: np.where(x == 0, 0, _digits(x).argmax(-1) + 1),
    "ffsll": lambda x: np.where(x == 0, 0, _digits(x).argmax(-1) + 1),
    "finite": np.isfinite,
    "floor": np.floor,
    "fma": _fma,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "isfinited": np.isfinite,
    "isinfd": np.isinf,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "ldexp": np.ldexp,
    "lgamma": _by_torch(torch.special.gammaln),
    "llabs": np.abs,
    "llrint": np.rint,
    "llround": _round,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "mul64hi": _multiply_high,
    "mulhi": _multiply_high,
    "nearbyint": np.rint,
    "nextafter": np.nextafter,
    "normcdf": _by_torch(torch.special.ndtr),
    "popc": lambda x: _digits(x).sum(-1, dtype=np.int32),
    "popcll": lambda x: _digits(x).sum(-1, dtype=np.int32),
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(x.dtype)),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "rint": np.rint,
    "round": _round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "saturate": lambda x: np.fmin(np.fmax(x, 0), 1),
    "scalbn": np.ldexp,
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": lambda x: np.where(x == np.rint(x), 0, np.sin(np.pi * np.remainder(x, 2).astype(np.float64))),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
    "umul64hi": _multiply_high,
    "umulhi": _multiply_high,
}

_PI, _ULP = np.pi, 2.0**-23


def _near_one(error: float, units: float) -> Callable[..., np.ndarray]:
    """The error of a logarithm: absolute from 0.5 to 2, and in units of the last place elsewhere."""

    def bound(made: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.where((x >= 0.5) & (x <= 2), error * (x != 1), units * _ULP * np.abs(made))

    return bound


def _of_an_angle(error: float) -> Callable[..., np.ndarray]:
    """The error of a sine or cosine: absolute from -pi to pi, and as coarse as the angle elsewhere."""
    return lambda made, x: np.where(np.abs(x) <= _PI, error * (x != 0), np.abs(x) * _ULP)


# What CUDA's fast functions may be off by, given what they make and their arguments: see "Intrinsic
# functions" in the CUDA C++ Programming Guide.
_FAST: dict[str, Callable[..., np.ndarray]] = {
    "cos": _of_an_angle(2**-21.19),
    "exp": lambda made, x: (2 + np.floor(np.abs(1.173 * x))) * _ULP * made,
    "exp10": lambda made, x: (2 + np.floor(np.abs(2.97 * x))) * _ULP * made,
    "log": _near_one(2**-21.41, 3),
    "log10": _near_one(2**-24, 3),
    "log2": _near_one(2**-22, 2),
    "pow": lambda made, x, y: np.abs(made * y) * np.log(2) * _near_one(2**-22, 2)(np.log2(x), x),
    "sin": _of_an_angle(2**-21.41),
    "tan": lambda made, x: _of_an_angle(2**-21.41)(made, x) * (1 + np.abs(made)) ** 2,
    "tanh": lambda made, x: 2**-10.987 * np.abs(made),
}

_ROUNDINGS = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {  # rounded to nearest, as NumPy does
    "add": np.add,
    "div": np.divide,
    "mul": np.multiply,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sub": np.subtract,
}


def call(symbol: str, arguments: list[np.ndarray]) -> np.ndarray:
    """Return the result of libdevice's ``__nv_tanhf`` (float32), ``__nv_tanh`` (float64) and the like.

    The caller converts the result: an integer result may be a whole float here.
    """
    name = symbol.removeprefix("__nv_")
    function = _function(name)
    if function is None:
        raise NotImplementedError(
            f"libdevice's {name} runs on a GPU only; the course has no CPU version of it"
        )
    made = function(*arguments)
    fast = _FAST.get(name.removeprefix("fast_").removesuffix("f")) if name.startswith("fast_") else None
    if fast is None or arguments[0].dtype != np.float32:
        return made
    off = fast(*(each.astype(np.float64) for each in (made, *arguments)))
    return (made + np.where(np.isfinite(off), off, 0.0) * _signs(arguments[0])).astype(np.float32)


def _signs(x: np.ndarray) -> np.ndarray:
    """Return 1 or -1 for each number, by its bits: an error may be to either side."""
    mixed = np.ascontiguousarray(x).view(np.uint32) * np.uint32(0x9E3779B1)
    return 1.0 - 2.0 * (mixed >> np.uint32(31))


def _function(name: str) -> Callable[..., np.ndarray] | None:
    plain = name.removeprefix("fast_")
    plain = "div" if plain == "fdividef" else plain
    if function := _FUNCTIONS.get(plain) or _FUNCTIONS.get(plain.removesuffix("f")):
        return function
    if found := re.fullmatch(r"(?:float|double)2(?:u?int|u?ll)_(r[nzdu])", name):
        return _ROUNDINGS[found[1]]
    if re.fullmatch(r"(?:u?int|u?ll)2(?:float|double)_rn|double2float_rn", name):
        return np.asarray
    if found := re.fullmatch(r"(\w+)_as_(\w+)", name):
        kinds = {"int": "i4", "uint": "u4", "float": "f4", "longlong": "i8", "double": "f8"}
        kind = kinds[found[2]]
        return lambda x: np.ascontiguousarray(x).view(kind)
    if found := re.fullmatch(r"[fd](\w+)_rn|(div)", plain):
        return _ARITHMETIC.get(found[1] or found[2])
    return _fma if re.fullmatch(r"fmaf?_rn", name) else None
