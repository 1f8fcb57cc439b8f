"""CUDA's device library (``libdevice.tanh`` and the like) in NumPy: its common part."""

import numpy as np
from triton.runtime import interpreter as stock

# https://docs.nvidia.com/cuda/libdevice-users-guide/
_FUNCTIONS = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": lambda x: stock.np_erf_fp64(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: 10.0**x,
    "expm1": np.expm1,
    "fabs": np.abs,
    "floor": np.floor,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "pow": np.power,
    "rint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x),  # halves away from 0
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}


def call(symbol: str, arguments: list[np.ndarray]) -> np.ndarray:
    """The function behind ``__nv_tanhf`` (float32) or ``__nv_tanh`` (float64)."""
    name = symbol.removeprefix("__nv_")
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))
    if function is None:
        raise NotImplementedError(f"libdevice's {name} runs on a GPU only, the course has no CPU form of it")
    return function(*arguments)
