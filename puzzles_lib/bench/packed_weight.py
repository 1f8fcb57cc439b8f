"""Compare a linear layer with a packed weight and few rows with cuBLAS on the bfloat16 weight.

With few rows such a layer takes the time to read its weight: 4 bits per element are a quarter of bfloat16's
bytes. PyTorch's own product with 4-bit weights, tinygemm, is measured, too. If gemlite is installed, its
kernel is measured at 4096 x 4096, with its own tuning. The error of a path is its distance from the product
in float64 with the path's own weight (packed or bfloat16), divided by the norm of that product.
"""

import importlib.util
from collections.abc import Callable, Iterator

import torch

from puzzles_lib.kernels.dequant_gemm import dequant_gemm
from puzzles_lib.kernels.quantize import dequantize, quantize_pack
from puzzles_lib.timing import interleaved, relative_error, row
from puzzles_lib.timing.h200 import CACHE
from puzzles_lib.timing.recorded import bits_text

CASES = (  # M, N, K, bits, group size
    *((rows, 4096, 4096, 4, 128) for rows in (1, 2, 4, 8, 16, 32, 64, 128)),
    *((rows, 8192, 8192, 4, 128) for rows in (1, 4, 8, 16, 32, 64, 128)),
    *((rows, 4096, 4096, bits, 128) for bits in (8, 2, 1) for rows in (1, 16, 64)),
    *(
        (rows, *shape, 4, 128)
        for shape in ((11008, 4096), (4096, 11008), (1024, 4096))
        for rows in (1, 16, 64)
    ),
    *((rows, 28672, 8192, 4, 128) for rows in (1, 16, 64)),
    *((1, 4096, 4096, 4, group) for group in (32, 64, 256)),
)
GEMLITE = (4096, 4096)  # it tunes itself anew for each shape and number of rows, ten seconds each
TINYGEMM = 64  # rows, at most: it takes a multiple of the time for more


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
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
    others = _others(x, weight, group, len(packs)) if bits == 4 and rows <= TINYGEMM else {}
    for name, (calls, stands_for) in others.items():
        paths[name] = calls
        errors[name] = relative_error(calls[0](), x.double() @ stands_for.t())
    times = interleaved(paths)
    name = f"{bits_text(bits)}, groups of {group}, {rows} x {features}x{columns}"
    baseline = "cuBLAS, bfloat16 weight"
    for path, us in times.items():
        yield row("packed-weight", name, path, us, baseline, times[baseline], errors[path])


def _others(
    x: torch.Tensor, weight: torch.Tensor, group: int, copies: int
) -> dict[str, tuple[list[Callable[[], torch.Tensor]], torch.Tensor]]:
    """Calls of other libraries' products with 4-bit weights, each with what its weight stands for."""
    features, columns = weight.shape
    groups = weight.float().view(features, columns // group, group)
    low = groups.amin(2, keepdim=True)
    scale = (groups.amax(2, keepdim=True) - low) / 15
    codes = ((groups - low) / scale).round().clamp(0, 15).to(torch.uint8)
    scale, middle = scale.bfloat16(), (low + 8 * scale).bfloat16()
    stands_for = ((codes.double() - 8) * scale.double() + middle.double()).view(features, columns)
    flat = codes.view(features, columns)
    packed = torch._convert_weight_to_int4pack(flat[:, ::2] << 4 | flat[:, 1::2], 8)
    params = torch.stack([scale, middle], -1).view(features, -1, 2).transpose(0, 1).contiguous()
    packs = [packed.clone() for _ in range(copies)]
    calls = [lambda p=p: torch._weight_int4pack_mm(x, p, group, params) for p in packs]
    found = {"tinygemm, torch._weight_int4pack_mm": (calls, stands_for)}
    if (features, columns) == GEMLITE and importlib.util.find_spec("gemlite"):
        core = importlib.import_module("gemlite.core")
        zero = 8 - middle.double() / scale.double()  # w = (code - zero) * scale
        layers = []
        for _ in range(copies):
            layer = core.GemLiteLinear(4, group, columns, features, core.DType.BF16, core.DType.BF16)
            layer.pack(flat.clone(), scale.view(features, -1), zero.bfloat16().view(features, -1), None)
            layers.append(layer)
        rounded = zero.bfloat16().double()
        stands_for = ((codes.double() - rounded) * scale.double()).view(features, columns)
        found["gemlite"] = ([lambda layer=layer: layer(x) for layer in layers], stands_for)
    return found


def _copies(nbytes: int) -> int:
    """How many weights to take in turn: more than twice what the cache holds."""
    return max(3, -(-5 * CACHE // (2 * nbytes)))


def _exact(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.double().t()
