"""Measure kernels that pack their output while making it, against a copy and against two kernels.

They are an activation with its slopes, or a norm, and the codes of its output. The copy moves as many bytes
as such a pass must at least move: the input and the output once each, the slopes, words and params. The error
is the share of words and params that differ from the torch reference.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn.functional import layer_norm, rms_norm

from puzzles_lib.bench.memory import copies
from puzzles_lib.kernels.packed_activation import activation_pack, activation_pack_ref, activation_quantize_
from puzzles_lib.kernels.packed_norm import norm_quantize, norm_quantize_ref
from puzzles_lib.kernels.quantize import quantize_pack, quantize_pack_ref
from puzzles_lib.timing import interleaved, row
from puzzles_lib.timing.recorded import bits_text

TOKENS, WIDTH, HIDDEN = 100864, 768, 3072  # of a ViT-B at batch 512, and between its two linears
GROUP = 256
SLOPE_BITS = {"relu": 1, "gelu": 4}
FORMATS = (1, 2, 4)
SETS = 3  # of inputs, taken in turn
CHECKED = 4096  # rows of the first: the reference takes a hundred bytes per element
EPS = 1e-5

Tensors = tuple[torch.Tensor, ...]


def measure() -> list[dict[str, object]]:
    """Return the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench producers needs a CUDA device")
    torch.manual_seed(0)
    found = []
    for draw, width in ((_activations, HIDDEN), (_norms, WIDTH)):
        xs = [torch.randn(TOKENS, width, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
        for bits in FORMATS:
            for path, calls, moved, error in draw(xs, bits):
                case = f"{bits_text(bits)}, groups of {GROUP}, {TOKENS}x{width}"
                found += _rows(case, path, calls, moved, error)
        del xs
        torch.cuda.empty_cache()
    return found


Paths = dict[str, list[Callable[[], object]]]


def _rows(case: str, path: str, calls: Paths, moved: int, error: float) -> Iterator[dict[str, object]]:
    """Time one pass, nearest and stochastic, and its baselines."""
    times = interleaved({**calls, "copy of as many bytes": copies(moved)})
    us = times.pop("nearest")
    stochastic = times.pop("stochastic")
    for name, baseline_us in times.items():
        yield row("producers", case, path, us, name, baseline_us, error)
    yield row("producers", case, f"{path}, stochastic", stochastic, "nearest", us, error)


def _activations(xs: list[torch.Tensor], bits: int) -> Iterator[tuple[str, Paths, int, float]]:
    seed = torch.tensor(1, device="cuda")
    for name, slope_bits in SLOPE_BITS.items():
        one = partial(
            activation_quantize_, activation=name, slope_bits=slope_bits, bits=bits, group_size=GROUP
        )
        two = partial(_one_after_the_other, name=name, slope_bits=slope_bits, bits=bits)
        checked = xs[0][:CHECKED].clone()
        y, slopes = activation_pack_ref(checked, name, slope_bits)
        error = _wrong(one(checked), (slopes, *quantize_pack_ref(y, bits, GROUP)))
        hs = [x.clone() for x in xs]  # they become their activation; the time is the same
        calls = {
            "nearest": [partial(one, h) for h in hs],
            "stochastic": [partial(one, h, seed=seed) for h in hs],
            "two kernels": [partial(two, x) for x in xs],
        }
        yield f"{name}_quantize", calls, 2 * xs[0].nbytes + _bytes(one(hs[0])), error


def _norms(xs: list[torch.Tensor], bits: int) -> Iterator[tuple[str, Paths, int, float]]:
    seed = torch.tensor(1, device="cuda")
    weight = torch.randn(WIDTH, device="cuda", dtype=torch.bfloat16)
    for name, rms in (("layer_norm", False), ("rms_norm", True)):
        one = partial(norm_quantize, weight=weight, bias=None, eps=EPS, rms=rms, bits=bits, group_size=GROUP)
        two = partial(_norm_and_quantize, weight=weight, rms=rms, bits=bits)
        checked = xs[0][:CHECKED]
        want = norm_quantize_ref(checked, weight, None, EPS, rms, bits, GROUP, checked.dtype, None, 0)
        error = _wrong(one(checked)[1:3], want[1:3])
        calls = {
            "nearest": [partial(one, x) for x in xs],
            "stochastic": [partial(one, x, seed=seed) for x in xs],
            "two kernels": [partial(two, x) for x in xs],
        }
        yield f"{name}_quantize", calls, xs[0].nbytes + _bytes(one(xs[0])), error


def _one_after_the_other(x: torch.Tensor, name: str, slope_bits: int, bits: int) -> object:
    y, slopes = activation_pack(x, name, slope_bits)
    return y, slopes, quantize_pack(y, bits, GROUP)


def _norm_and_quantize(x: torch.Tensor, weight: torch.Tensor, rms: bool, bits: int) -> object:
    """Run torch's norm and quantize its output, because torch does not return the normalized rows."""
    y = rms_norm(x, (WIDTH,), weight, EPS) if rms else layer_norm(x, (WIDTH,), weight, None, EPS)
    return y, quantize_pack(y, bits, GROUP)


def _bytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _wrong(got: Tensors, want: Tensors) -> float:
    wrong = sum(int((g != w).sum()) for g, w in zip(got, want, strict=True))
    return wrong / sum(w.numel() for w in want)
