"""Measure the bandwidth of the memory-bound kernels, as a share of a plain copy's in the same run.

A kernel that only moves bytes cannot be faster than a device-to-device copy of as many bytes. The bandwidth
is the least possible bytes (each input read once, each output written once) over the time.
"""

import functools
from collections.abc import Callable, Iterator

import torch

from puzzles_lib.kernels.bitpack import WORD_BITS, WORD_ROWS, block_rows
from puzzles_lib.kernels.packed_relu import (
    relu_pack,
    relu_pack_ref,
    relu_unpack_backward,
    relu_unpack_backward_ref,
)
from puzzles_lib.kernels.quantize import dequantize, dequantize_ref, quantize_pack, quantize_pack_ref
from puzzles_lib.timing import interleaved, relative_error, row
from puzzles_lib.timing.recorded import bits_text

SHAPES = ((100864, 768), (403456, 768))  # a ViT-B at batch 512, and four times as much
FORMATS = tuple((bits, group) for bits in (1, 2, 4, 8) for group in (256, 128))
SETS = 3  # the number of inputs, used in turn


def measure() -> list[dict[str, object]]:
    """Return the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench memory needs a CUDA device")
    found = []
    for shape in SHAPES:
        torch.manual_seed(0)
        xs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
        name = f"{shape[0]}x{shape[1]}"
        for bits, group in FORMATS:
            case = f"{bits_text(bits)}, groups of {group}, {name}"
            found += _rows(case, *_quantize_paths(xs, bits, group))
            found += _rows(case, *_dequantize_paths(xs, bits, group))
        found += _rows(name, *_relu_paths(xs))
        found += _rows(name, *_relu_backward_paths(xs))
        torch.cuda.empty_cache()
    return found


Calls = list[Callable[[], object]]


def _rows(
    case: str, path: str, moved: int, error: float, ours: Calls, others: dict[str, Calls]
) -> Iterator[dict[str, object]]:
    """Time a path, a copy and its other baselines."""
    times = interleaved({path: ours, "copy of as many bytes": copies(moved), **others})
    us = times.pop(path)
    for name, baseline_us in times.items():
        yield row("memory", case, path, us, name, baseline_us, error)


def copies(moved: int) -> Calls:
    """Return copies that read and write ``moved`` bytes together."""
    sources = [torch.randn(moved // 8, device="cuda") for _ in range(SETS)]
    target = torch.empty_like(sources[0])
    # This is an elementwise kernel, because Tensor.copy_ is slower within a CUDA graph.
    return [lambda s=s: torch.mul(s, 1.0, out=target) for s in sources]


# ---- quantize and dequantize, and the same in plain torch


def plain_quantize(x: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the same words in plain torch, with float32 arithmetic, for torch.compile."""
    rows, columns = x.shape
    levels = 2**bits - 1
    by_group = x.view(rows, columns // group, group).float()
    low, high = by_group.aminmax(dim=2)
    scale = ((high - low) / levels).bfloat16()
    scale = torch.where(scale == 0, 1.0, scale)
    codes = ((by_group - low[:, :, None]) / scale.float()[:, :, None]).round().clamp(0, levels)
    fields = codes.to(torch.int32).view(-1, WORD_BITS // bits, WORD_ROWS, columns)
    words = fields[:, 0]
    for j in range(1, WORD_BITS // bits):  # torch.compile makes one kernel of this
        words = words | (fields[:, j] << (bits * j))
    return words.to(torch.int16), scale, low.bfloat16()


def plain_dequantize(
    words: torch.Tensor, scale: torch.Tensor, low: torch.Tensor, bits: int, group: int
) -> torch.Tensor:
    """Return the matrix from words and row-wise scales and minima, in plain torch."""
    blocks, _, columns = words.shape
    shifts = bits * torch.arange(WORD_BITS // bits, device=words.device, dtype=torch.int32)
    codes = (words.int()[:, None] >> shifts[:, None, None]) & ((1 << bits) - 1)
    codes = codes.view(blocks * block_rows(bits), columns // group, group)
    return (codes * scale.float()[:, :, None] + low.float()[:, :, None]).bfloat16().view(-1, columns)


def _compiled(function: Callable, **constants: int) -> Callable:
    """Return torch.compile's best version, only for these constants and sizes."""
    torch.compiler.reset()
    return torch.compile(functools.partial(function, **constants), dynamic=False)


def _moved(packed, x: torch.Tensor) -> int:
    return x.nbytes + packed.nbytes


def _quantize_paths(xs: list[torch.Tensor], bits: int, group: int):
    packed = quantize_pack(xs[0], bits, group)
    words, params = quantize_pack_ref(xs[0], bits, group)
    wrong = (packed.words != words).sum() + (packed.params != params).sum()
    compiled = _compiled(plain_quantize, bits=bits, group=group)
    ours = [lambda x=x: quantize_pack(x, bits, group) for x in xs]
    plain = [lambda x=x: compiled(x) for x in xs]
    error = float(wrong) / (words.numel() + params.numel())
    return "quantize_pack", _moved(packed, xs[0]), error, ours, {"torch.compile": plain}


def _dequantize_paths(xs: list[torch.Tensor], bits: int, group: int):
    packed = [quantize_pack(x, bits, group) for x in xs]
    got = dequantize(packed[0])
    want = dequantize_ref(packed[0].words, packed[0].params, bits, group, xs[0].shape[0])
    compiled = _compiled(plain_dequantize, bits=bits, group=group)
    row_wise = [plain_quantize(x, bits, group) for x in xs]
    ours = [lambda p=p: dequantize(p) for p in packed]
    plain = [lambda p=p: compiled(*p) for p in row_wise]
    return "dequantize", _moved(packed[0], xs[0]), relative_error(got, want), ours, {"torch.compile": plain}


# ---- relu


def plain_relu_pack(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute relu and its mask in plain torch."""
    positive = (x > 0).view(-1, 8).to(torch.int32)
    mask = positive[:, 0]
    for bit in range(1, 8):
        mask = mask | (positive[:, bit] << bit)
    return x.relu(), mask.to(torch.uint8)


def plain_relu_unpack_backward(dy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    bits = (mask[:, None] >> torch.arange(8, device=mask.device, dtype=torch.uint8)) & 1
    return torch.where(bits.view(dy.shape) == 1, dy, 0)


def _relu_paths(xs: list[torch.Tensor]):
    y, mask = relu_pack(xs[0])
    want_y, want_mask = relu_pack_ref(xs[0])
    error = relative_error(y, want_y) + float((mask != want_mask).float().mean())
    compiled = _compiled(plain_relu_pack)
    ours = [lambda x=x: relu_pack(x) for x in xs]
    others = {
        "torch.compile": [lambda x=x: compiled(x) for x in xs],
        "torch relu, no mask": [lambda x=x: x.relu() for x in xs],
    }
    return "relu_pack", 2 * xs[0].nbytes + mask.nbytes, error, ours, others


def _relu_backward_paths(xs: list[torch.Tensor]):
    masks = [relu_pack(x)[1] for x in xs]
    dys = [torch.randn_like(x) for x in xs]
    got = relu_unpack_backward(dys[0], masks[0])
    error = relative_error(got, relu_unpack_backward_ref(dys[0], masks[0]))
    compiled = _compiled(plain_relu_unpack_backward)
    threshold_backward = torch.ops.aten.threshold_backward
    ours = [lambda d=d, m=m: relu_unpack_backward(d, m) for d, m in zip(dys, masks, strict=True)]
    others = {
        "torch.compile": [lambda d=d, m=m: compiled(d, m) for d, m in zip(dys, masks, strict=True)],
        "torch threshold_backward": [
            lambda d=d, x=x: threshold_backward(d, x, 0) for d, x in zip(dys, xs, strict=True)
        ],
    }
    return "relu_unpack_backward", 2 * dys[0].nbytes + masks[0].nbytes, error, ours, others
