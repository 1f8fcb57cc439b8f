"""Compare the fused dW with the best unfused path: this course's dequantize, then cuBLAS.

Rows of bench "dw" are the product, cuBLAS alone on a ready x̂, and the floor. Then there is the round trip,
including quantization. The error of a path is the norm of its distance from the exact product of the
dequantized values (in float64) over the norm of that product. One row compares the product with cuBLAS on the
unquantized x.
"""

from collections.abc import Callable, Iterator

import torch

from puzzles_lib.kernels.dequant_gemm import dequant_gemm_dw
from puzzles_lib.kernels.quantize import PackedTensor, dequantize, quantize_pack
from puzzles_lib.timing import interleaved, relative_error, row, sustained
from puzzles_lib.timing.h200 import BYTES, CACHE, FLOPS
from puzzles_lib.timing.recorded import bits_text

GROUP = 256
LONG, SHORT = (100864, 768, 768), (8192, 768, 768)  # K, COUT, CIN: a ViT-B at batch 512, and a short K
SHAPES = (LONG, SHORT, (100864, 1024, 1024), (8192, 1024, 1024), (16384, 11008, 4096))

Calls = list[Callable[[], object]]
UNFUSED = "dequantize + cuBLAS"


def measure() -> Iterator[dict[str, object]]:
    """Return the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench dw needs a CUDA device")
    for shape in SHAPES:
        for bits in (2, 1, 4, 8):
            torch.manual_seed(0)
            yield from _product(shape, bits)
            if bits == 2 and shape == LONG:
                yield from _sustained(shape, bits)
            if bits == 2 and shape in (LONG, SHORT):
                yield from _round_trip(shape, bits)
                for group in (128, 64, 32):
                    yield from _product(shape, bits, group)
            torch.cuda.empty_cache()


def _inputs(shape: tuple[int, int, int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return pairs dy, x, more of them than the cache can keep."""
    rows, cout, cin = shape
    count = max(3, -(-3 * CACHE // (2 * rows * cout)))
    options = {"device": "cuda", "dtype": torch.bfloat16}
    return [(torch.randn(rows, cout, **options), torch.randn(rows, cin, **options)) for _ in range(count)]


def exact(dy: torch.Tensor, packed: PackedTensor) -> torch.Tensor:
    """Return dyᵀ @ x̂ in float64, with x̂ not rounded."""
    parts = packed.words, packed.params.float(), packed.bits, packed.group_size, packed.shape
    return dy.double().t() @ dequantize(PackedTensor(*parts, torch.float32)).double()


def floor(shape: tuple[int, int, int], bits: int, group: int = GROUP) -> float:
    """Return the least microseconds for the arithmetic or the bytes, whichever is more."""
    rows, cout, cin = shape
    flops = 2 * rows * cout * cin
    params = 2 * 2 * rows * cin // group
    moved = 2 * rows * cout + rows * cin * bits // 8 + params + 2 * cout * cin
    return max(flops / FLOPS, moved / BYTES) * 1e6


def _rows(
    case: str, paths: dict[str, Calls], errors: dict[str, float], baseline: str
) -> Iterator[dict[str, object]]:
    times = interleaved(paths, rounds=30)
    for path, us in times.items():
        yield row("dw", case, path, us, baseline, times[baseline], errors[path])


def _product(shape: tuple[int, int, int], bits: int, group: int = GROUP) -> Iterator[dict[str, object]]:
    pairs = [(dy, quantize_pack(x, bits, group)) for dy, x in _inputs(shape)]
    ready = [(dy, dequantize(packed)) for dy, packed in pairs]
    want = exact(*pairs[0])
    unfused = relative_error(ready[0][0].t() @ ready[0][1], want)
    paths = {
        UNFUSED: [lambda d=d, p=p: d.t() @ dequantize(p) for d, p in pairs],
        "dequant_gemm_dw": [lambda d=d, p=p: dequant_gemm_dw(d, p) for d, p in pairs],
        "cuBLAS alone, x^ ready": [lambda d=d, x=x: d.t() @ x for d, x in ready],
    }
    errors = {
        UNFUSED: unfused,
        "dequant_gemm_dw": relative_error(dequant_gemm_dw(*pairs[0]), want),
        "cuBLAS alone, x^ ready": unfused,
    }
    case = _case(shape, bits, group)
    rows = list(_rows(case, paths, errors, UNFUSED))
    yield from rows
    yield row("dw", case, "floor", floor(shape, bits, group), UNFUSED, rows[0]["us"], 0.0)


def _sustained(shape: tuple[int, int, int], bits: int) -> Iterator[dict[str, object]]:
    """Measure training without packing, cuBLAS on x as it is; each for a second, one after the other.

    The chip's power then limits both, and cuBLAS more, as the bits of an unquantized x change more often.
    """
    pairs = _inputs(shape)
    packs = [(dy, quantize_pack(x, bits, GROUP)) for dy, x in pairs]
    plain = sustained([lambda d=d, x=x: d.t() @ x for d, x in pairs]).us
    fused = sustained([lambda d=d, p=p: dequant_gemm_dw(d, p) for d, p in packs]).us
    error = relative_error(dequant_gemm_dw(*packs[0]), exact(*packs[0]))
    case, path = f"{_case(shape, bits)}, for a second", "dequant_gemm_dw, sustained"
    yield row("dw", case, path, fused, "cuBLAS, x not quantized", plain, error)


def _round_trip(shape: tuple[int, int, int], bits: int) -> Iterator[dict[str, object]]:
    """Measure forward's quantization with backward's product. No row-wise quantizer beats the baseline."""
    pairs = _inputs(shape)
    baseline = f"quantize_pack + {UNFUSED}"
    paths = {
        baseline: [lambda d=d, x=x: d.t() @ dequantize(quantize_pack(x, bits, GROUP)) for d, x in pairs],
        "quantize_pack + dequant_gemm_dw": [
            lambda d=d, x=x: dequant_gemm_dw(d, quantize_pack(x, bits, GROUP)) for d, x in pairs
        ],
    }
    dy, x = pairs[0]
    want = exact(dy, quantize_pack(x, bits, GROUP))
    errors = {path: relative_error(calls[0](), want) for path, calls in paths.items()}
    yield from _rows(_case(shape, bits), paths, errors, baseline)


def _case(shape: tuple[int, int, int], bits: int, group: int = GROUP) -> str:
    groups = "" if group == GROUP else f"groups of {group}, "
    return f"{bits_text(bits)}, {groups}{shape[0]}x{shape[1]}x{shape[2]}"
