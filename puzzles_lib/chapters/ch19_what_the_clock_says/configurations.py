"""Chapter 19's sweep: a matmul, a norm, a product with int8 weights, each in hundreds of configurations."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from puzzles_lib.chapters.ch19_what_the_clock_says import kernels
from puzzles_lib.timing.sweep import Config, Swept, Tensors, swept, table

__all__ = ["SWEPT", "measure", "table"]

LAUNCH = ("warps", "stages")  # of a configuration: how it is launched, the rest are its blocks


def _of(
    kernel: Any,
    sizes: Mapping[str, int],
    tried: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, int],
    grid: Callable[[Mapping[str, int]], tuple[int, ...]],
    tensors: Callable[[Mapping[str, int]], Tensors],
    want: Callable[[Tensors], Tensors],
    **counted: int,
) -> Swept:
    """Of a kernel that takes pointers, sizes and blocks. constants: constexprs that stay."""
    names = [name.removesuffix("_ptr") for name in kernel.arg_names if name.endswith("_ptr")]
    dtypes = {"scale": torch.float32, "w": torch.float32 if "scale" not in names else torch.int8}

    def launched(tensors: Mapping[str, object], config: Config) -> dict[str, Any]:
        blocks = {name: value for name, value in config.items() if name not in LAUNCH}
        named = {f"{name}_ptr": tensor for name, tensor in tensors.items()}
        numbers = {name: value for name, value in sizes.items() if name in kernel.arg_names}
        options = {f"num_{name}": config[name] for name in LAUNCH}
        return {**named, **numbers, **blocks, **constants, **options}

    return Swept(
        kernel.__name__.removesuffix("_kernel"),
        sizes,
        tried,
        tensors,
        lambda tensors, config: kernel[grid({**sizes, **config})](**launched(tensors, config)),
        lambda config: kernel.warmup(
            *(dtypes.get(name, torch.bfloat16) for name in names), grid=(1,), **launched({}, config)
        ),
        want,
        **counted,
        more={"constants": dict(constants)},
    )


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _matmul_tensors(s: Mapping[str, int]) -> Tensors:
    a, b = _normal(s["M"], s["K"]), _normal(s["K"], s["N"])
    return {"a": a, "b": b, "c": torch.empty(s["M"], s["N"], device="cuda", dtype=torch.bfloat16)}


def _rows_tensors(s: Mapping[str, int]) -> Tensors:
    x, w = _normal(s["M"], s["N"]), torch.randn(s["N"], device="cuda")
    return {"x": x, "w": w, "y": torch.empty_like(x)}


def _rows_want(t: Tensors) -> Tensors:
    x = t["x"].float()
    return {"y": x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * t["w"]}


def _int8_tensors(s: Mapping[str, int]) -> Tensors:
    w = torch.randint(-127, 128, (s["K"], s["N"]), device="cuda", dtype=torch.int8)
    scale = torch.rand(s["N"], device="cuda") / 64
    y = torch.empty(s["M"], s["N"], device="cuda", dtype=torch.bfloat16)
    return {"x": _normal(s["M"], s["K"]), "w": w, "scale": scale, "y": y}


MATMUL = {"M": 4096, "N": 4096, "K": 4096}
ROWS = {"M": 16384, "N": 4096}
INT8 = {"M": 64, "N": 8192, "K": 8192}

SWEPT = (
    _of(
        kernels.matmul_kernel,
        MATMUL,
        {
            "BLOCK_M": (32, 64, 128, 256),
            "BLOCK_N": (32, 64, 128, 256),
            "BLOCK_K": (32, 64, 128),
            "warps": (4, 8),
            "stages": (2, 3, 4, 5),
        },
        {"GROUP": 8},
        lambda s: (s["M"] // s["BLOCK_M"] * (s["N"] // s["BLOCK_N"]),),
        _matmul_tensors,
        lambda t: {"c": t["a"].float() @ t["b"].float()},
        bytes=3 * 2 * 4096**2,
        flops=2 * 4096**3,
    ),
    _of(
        kernels.rms_rows_kernel,
        ROWS,
        {
            "BLOCK_M": (1, 2, 4, 8, 16),
            "BLOCK_N": (128, 256, 512, 1024, 2048, 4096),
            "warps": (1, 2, 4, 8, 16),
            "stages": (2, 4),
        },
        {},
        lambda s: (s["M"] // s["BLOCK_M"],),
        _rows_tensors,
        _rows_want,
        bytes=2 * 2 * 16384 * 4096 + 4 * 4096,
        flops=4 * 16384 * 4096,
    ),
    _of(
        kernels.int8_weight_kernel,
        INT8,
        {
            "BLOCK_M": (16, 64),
            "BLOCK_N": (16, 32, 64, 128),
            "BLOCK_K": (32, 64, 128, 256),
            "warps": (4, 8),
            "stages": (2, 3, 4, 6),
        },
        {},
        lambda s: (s["N"] // s["BLOCK_N"], s["M"] // s["BLOCK_M"]),
        _int8_tensors,
        lambda t: {"y": t["x"].float() @ (t["w"].float() * t["scale"])},
        bytes=8192 * 8192 + 2 * 2 * 64 * 8192 + 4 * 8192,
        flops=2 * 64 * 8192 * 8192,
    ),
)


def measure() -> dict[str, Any]:
    """Time all configurations, and return the record for `puzzles_lib.timing.sweep`.

    Raises RuntimeError without a GPU.
    """
    return swept("sweep", __name__, SWEPT)
