"""A linear layer with a packed weight and few rows, against cuBLAS on the bfloat16 weight.

With few rows such a layer takes the time that it takes to read its weight: 4 bits an element are a quarter
of bfloat16's bytes. The error of a path is the norm of its distance from the product with its own weight
(the dequantised one, or the bfloat16 one) in float64, over the norm of that product.
"""

from collections.abc import Iterator

import torch

from puzzles_lib.bench.h200 import CACHE
from puzzles_lib.bench.recorded import bits_text
from puzzles_lib.bench.results import relative_error, row
from puzzles_lib.bench.timing import interleaved
from puzzles_lib.kernels.dequant_gemm import dequant_gemm
from puzzles_lib.kernels.quantize import dequantize, quantize_pack

CASES = (
    *((rows, 4096, 4096, 4, 256) for rows in (1, 2, 4, 8, 16, 32, 64)),  # M, N, K, bits, group size
    *((rows, 4096, 4096, bits, 256) for bits in (1, 2, 8) for rows in (1, 16)),
    *((rows, 4096, 4096, 4, 128) for rows in (1, 16)),
    *((rows, 11008, 4096, 4, 256) for rows in (1, 16)),
    *((rows, 4096, 11008, 4, 256) for rows in (1, 16)),
)


def measure() -> Iterator[dict[str, object]]:
    """All rows. Raises RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench packed-weight needs a CUDA device")
    for case in CASES:
        torch.manual_seed(0)
        yield from _rows(*case)
        torch.cuda.empty_cache()


def _rows(rows: int, features: int, columns: int, bits: int, group: int) -> Iterator[dict[str, object]]:
    options = {"device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(rows, columns, **options)
    weight = torch.randn(features, columns, **options) / columns**0.5
    packed = quantize_pack(weight, bits, group)
    packs = [packed] + [
        quantize_pack(weight.roll(i, 0), bits, group) for i in range(1, _copies(packed.nbytes))
    ]
    weights = [weight.roll(i, 0) for i in range(_copies(weight.nbytes))]
    paths = {
        "dequant_gemm": [lambda p=p: dequant_gemm(x, p) for p in packs],
        "cuBLAS, bfloat16 weight": [lambda w=w: x @ w.t() for w in weights],
        "dequantize + cuBLAS": [lambda p=p: x @ dequantize(p).t() for p in packs],
    }
    ready = dequantize(packed)
    errors = {
        "dequant_gemm": relative_error(dequant_gemm(x, packed), _exact(x, ready)),
        "cuBLAS, bfloat16 weight": relative_error(x @ weight.t(), _exact(x, weight)),
        "dequantize + cuBLAS": relative_error(x @ ready.t(), _exact(x, ready)),
    }
    times = interleaved(paths)
    name = f"{bits_text(bits)}, groups of {group}, {rows} x {features}x{columns}"
    baseline = "cuBLAS, bfloat16 weight"
    for path, us in times.items():
        yield row("packed-weight", name, path, us, baseline, times[baseline], errors[path])


def _copies(nbytes: int) -> int:
    """How many weights to take in turn: more than twice what the cache holds."""
    return max(3, -(-5 * CACHE // (2 * nbytes)))


def _exact(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.double().t()
