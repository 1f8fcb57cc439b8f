"""Production kernels: what the puzzles lead to.

    from puzzles_lib.kernels import pack_activations

    pack_activations(model, bits=4)  # the same model; it now keeps activations in 4 bits for backward

The kernels need only torch 2.9 and Triton 3.6, or later versions. They have been run on GPUs with Triton 3.6
and 3.7, and compiled with 3.9 (`make test-next`). Tensors on the CPU are computed by plain torch, with the
same results up to rounding, so everything works without a GPU. The names below are imported on first use.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_HOME = {
    "attention": "attention",
    "PackedDropout": "modules",
    "PackedGELU": "modules",
    "PackedLayerNorm": "modules",
    "PackedLinear": "modules",
    "PackedMLP": "modules",
    "PackedReLU": "modules",
    "PackedRMSNorm": "modules",
    "PackedSiLU": "modules",
    "pack_activations": "modules",
    "pack_checkpoints": "checkpoints",
    "packed_checkpoint": "checkpoints",
    "report": "modules",
    "seed_rounding": "modules",
    "unpack_activations": "modules",
    "PackedTensor": "quantize",
    "dequantize": "quantize",
    "quantize_pack": "quantize",
    "pack_bits": "bitpack",
    "unpack_bits": "bitpack",
    "dequant_gemm": "dequant_gemm",
    "dequant_gemm_dw": "dequant_gemm",
    "grouped_matmul": "grouped_matmul",
    "linear_cross_entropy": "linear_cross_entropy",
    "paged_attention": "paged_decode",
    "Q8Linear": "q8_linear",
    "q8_linear": "q8_linear",
    "quantize_rows": "q8_linear",
    "swap_linears": "q8_linear",
    "relu_pack": "packed_relu",
    "relu_unpack_backward": "packed_relu",
    "rope": "rope",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)


def _shared_with_a_module(name: str) -> property:
    """Return the operator for a name that its module has, too: Python would put the module there."""
    return property(lambda package: __getattr__(name), lambda package, module: None)


class _Package(ModuleType):
    attention = _shared_with_a_module("attention")
    dequant_gemm = _shared_with_a_module("dequant_gemm")
    grouped_matmul = _shared_with_a_module("grouped_matmul")
    linear_cross_entropy = _shared_with_a_module("linear_cross_entropy")
    q8_linear = _shared_with_a_module("q8_linear")
    rope = _shared_with_a_module("rope")


sys.modules[__name__].__class__ = _Package
