"""Checks, constants and helpers that several kernels use."""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import nn

from puzzles_lib.kernels import launching

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAGIC = tl.constexpr(12582912.0)  # 1.5 · 2^23: adding it rounds |x| < 2^22 to an integer, ties to even
TINY = tl.constexpr(2.0**-126)  # the least normal float32; 1 / TINY is finite


def check_dtype(name: str, value: torch.Tensor, allowed: tuple[torch.dtype, ...] = DTYPES) -> None:
    """Raise TypeError if ``value`` is not a tensor of one of these dtypes."""
    if not isinstance(value, torch.Tensor) or value.dtype not in allowed:
        what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        names = "torch." if len(allowed) == 1 else ""
        names += " or ".join(", ".join(str(d)[6:] for d in allowed).rsplit(", ", 1))
        raise TypeError(f"{name} must be {names}, but is {what}")


def check_integer(name: str, value: int) -> None:
    """Raise TypeError if ``value`` is not an integer, and ValueError if it doesn't fit into 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{name} must be an integer, but is {type(value).__name__}")
    if not torch.compiler.is_compiling() and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must be an integer that fits in 64 bits, but is {value}")


def check_model(model: nn.Module) -> None:
    """Raise TypeError if ``model`` is not a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")


@triton.jit
def maximum_with_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@lru_cache
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def overlapped(pdl: bool) -> dict[str, bool]:
    """Return the options of a launch that may begin while the kernel before it ends (Hopper and later).

    The kernel before it allows this with `gdc_launch_dependents`; otherwise the launch begins when that
    kernel has ended. `gdc_wait` waits for that end. Such a launch is safe before and after any kernel under
    two conditions: it reads and writes nothing before `gdc_wait`, and it lets the next kernel begin only
    after `gdc_wait`. Then no kernel overlaps with two others.
    """
    return {"launch_pdl": True} if pdl else {}


def add_splits(sums: torch.Tensor, out: torch.Tensor, pdl: bool = False) -> None:
    """Fill out with the sum of float32 ``sums`` [splits, ...], in their order: always the same bits.

    pdl: begin while the kernel before ends (`overlapped`).
    """
    size, splits = out.numel(), sums.shape[0]
    options = {"SPLITS": splits, "BLOCK": 512, "PDL": pdl, "num_warps": 4, **overlapped(pdl)}
    launching.launch(
        _add_splits_kernel, ("add splits", out.dtype, size, splits, pdl), (sums, out),
        lambda: ((-(-size // 512),), (size,), options),
    )  # fmt: skip


@triton.jit
def _add_splits_kernel(sums_ptr, out_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):  # unrolled: all loads are asked for at once
        total += tl.load(sums_ptr + split * tl.cast(size, tl.int64) + offs, mask=offs < size, other=0.0)
    tl.store(out_ptr + offs, total, mask=offs < size)
