"""Measure what stochastic rounding costs: the quantizer with it, with nearest codes, and a copy.

The copy moves the fewest bytes that the quantizer could move. The error is the share of words and params
that differ from the torch reference.
"""

from collections.abc import Iterator
from functools import partial

import torch

from puzzles_lib.bench.memory import copies
from puzzles_lib.kernels.quantize import PackedTensor, quantize_pack, quantize_pack_ref
from puzzles_lib.timing import interleaved, row
from puzzles_lib.timing.recorded import bits_text

SHAPE = (100864, 3072)  # between a ViT-B's two linears, at batch 512
FORMATS = ((1, 256), (2, 256), (4, 256), (8, 256), (2, 32), (2, 64), (2, 128), (2, 512), (2, 1024))
SETS = 3  # of inputs, taken in turn
CHECKED = 4096  # rows of the first: the reference takes a hundred bytes per element


def measure() -> list[dict[str, object]]:
    """Return the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench rounding needs a CUDA device")
    torch.manual_seed(0)
    xs = [torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    seed = torch.tensor(1, device="cuda")
    return [found for bits, group in FORMATS for found in _rows(xs, bits, group, seed)]


def _rows(xs: list[torch.Tensor], bits: int, group: int, seed: torch.Tensor) -> Iterator[dict[str, object]]:
    packed = quantize_pack(xs[0], bits, group, rounding="stochastic", seed=seed)
    paths = {
        "stochastic": [partial(quantize_pack, x, bits, group, rounding="stochastic", seed=seed) for x in xs],
        "nearest": [partial(quantize_pack, x, bits, group) for x in xs],
        "copy of as many bytes": copies(xs[0].nbytes + packed.nbytes),
    }
    times = interleaved(paths)
    us = times.pop("stochastic")
    case = f"{bits_text(bits)}, groups of {group}, {SHAPE[0]}x{SHAPE[1]}"
    error = _wrong(packed, xs[0], seed)
    for name, baseline_us in times.items():
        yield row("rounding", case, "stochastic", us, name, baseline_us, error)


def _wrong(packed: PackedTensor, x: torch.Tensor, seed: torch.Tensor) -> float:
    words, params = quantize_pack_ref(x[:CHECKED], packed.bits, packed.group_size, seed)
    blocks = words.shape[0]
    wrong = (packed.words[:blocks] != words).sum() + (packed.params[:, :blocks] != params).sum()
    return float(wrong) / (words.numel() + params.numel())
