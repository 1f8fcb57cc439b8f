"""Compare the int8 dynamic linear layer with the alternatives.

On the CPU, with one thread, these are fbgemm's ``linear_dynamic`` and float32 `nn.Linear`. On a GPU, they are
a bfloat16 matrix multiplication and the same int8 arithmetic around ``torch._int_mm``. The latter runs in
plain torch and compiled; rows are then quantized by torch or by our kernel.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torch.nn.functional import linear, pad

from puzzles_lib.kernels.q8_linear import Q8Linear, q8_linear, quantize_rows
from puzzles_lib.timing import interleaved, relative_error, row

CPU_SIZE = 2048  # K and N
CPU_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
GPU_SIZE = 4096
GPU_ROWS = (1, 4, 16, 17, 32, 64, 128, 256, 512, 1024, 4096)
LEAST_ROWS = 17  # the fewest rows that torch._int_mm takes on a GPU; 32 are used
SETS = 8  # the number of inputs, used in turn: their weights are larger than the L2 cache
ROUNDS = 15  # rounds in which the CPU's paths take turns


def measure() -> list[dict[str, object]]:
    """Return the rows of this bench: of this computer's CPU, and of its GPU if there is one."""
    rows = list(on_cpu())
    return rows + list(on_gpu()) if torch.cuda.is_available() else rows


# ---- CPU


def on_cpu() -> Iterator[dict[str, object]]:
    """Return the rows for this computer's CPU, one thread, float32 x."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        plain = nn.Linear(CPU_SIZE, CPU_SIZE).requires_grad_(False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.ao.quantization warns that it will move
            fbgemm = torch.ao.quantization.quantize_dynamic(nn.Sequential(plain), {nn.Linear})
        ours = Q8Linear.from_linear(plain)
        for rows in CPU_ROWS:
            x = torch.randn(rows, CPU_SIZE)
            error = relative_error(ours(x), _exact(x, ours))
            paths = {"q8_linear": ours, "fbgemm linear_dynamic": fbgemm, "nn.Linear float32": plain}
            times = _in_turns({name: partial(path, x) for name, path in paths.items()})
            us = times.pop("q8_linear")
            for name, baseline_us in times.items():
                yield row("int8", f"{cpu_name()}, M = {rows}", "q8_linear", us, name, baseline_us, error)
    finally:
        torch.set_num_threads(threads)


def cpu_name() -> str:
    """Return the CPU's name, and whether it multiplies int8."""
    has = torch.cpu.get_capabilities()
    return f"{has['cpu_name']}, {'VNNI' if has.get('avx512_vnni') else 'no VNNI'}"


def _in_turns(paths: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median microseconds of each path; the paths take turns."""
    times = {name: [] for name in paths}
    for number in range(ROUNDS + 2):
        for name, call in paths.items():
            start = time.perf_counter()
            call()
            if number >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(some) * 1e6 for name, some in times.items()}


def _exact(x: torch.Tensor, module: Q8Linear) -> torch.Tensor:
    """Return the result in float64 from the same codes."""
    codes, scale = quantize_rows(x)
    sums = codes.double() @ module.weight.double().t()
    return sums * scale.double()[:, None] * module.scale.double() + module.bias.double()


# ---- GPU


def on_gpu() -> Iterator[dict[str, object]]:
    """Return the rows for a CUDA device, bfloat16 x. Row quantization is part of every int8 path."""
    torch.manual_seed(0)
    size = (GPU_SIZE, GPU_SIZE)
    weights = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    biases = [torch.randn(GPU_SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    quantized = [quantize_rows(w) for w in weights]
    for rows in GPU_ROWS:
        torch.compiler.reset()
        whole, scales = (torch.compile(f, dynamic=False) for f in (plain_q8_linear, _scaled))
        xs = [torch.randn(rows, GPU_SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
        sets = list(zip(xs, weights, quantized, biases, strict=True))
        paths = {
            "q8_linear": [partial(q8_linear, x, *q, b) for x, _, q, b in sets],
            "bf16 cuBLAS": [partial(linear, x, w, b) for x, w, _, b in sets],
            "torch._int_mm, eager": [partial(plain_q8_linear, x, *q, b) for x, _, q, b in sets],
            "torch._int_mm, all compiled": [partial(whole, x, *q, b) for x, _, q, b in sets],
            "quantize_rows, torch._int_mm, compiled scales": [
                partial(_with_our_rows, x, *q, b, scales) for x, _, q, b in sets
            ],
        }
        x, _, (wq, w_scale), bias = sets[0]
        want = q8_linear(x.cpu(), wq.cpu(), w_scale.cpu(), bias.cpu())
        error = relative_error(q8_linear(x, wq, w_scale, bias).cpu(), want)
        times = interleaved(paths)
        us = times.pop("q8_linear")
        for name, baseline_us in times.items():
            yield row("int8", f"M = {rows}, K = N = {GPU_SIZE}", "q8_linear", us, name, baseline_us, error)


def plain_q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Compute the same in plain torch, for torch.compile."""
    amax = x.float().abs().amax(1)
    scale = torch.where(amax == 0, 1.0, amax) / 127
    codes = (x.float() / scale[:, None]).round().to(torch.int8)
    return _scaled(_int_mm(codes, wq), scale, w_scale, bias)


def _with_our_rows(x, wq, w_scale, bias, scales: Callable) -> torch.Tensor:
    codes, scale = quantize_rows(x)
    return scales(_int_mm(codes, wq), scale, w_scale, bias)


def _int_mm(codes: torch.Tensor, wq: torch.Tensor) -> torch.Tensor:
    """Call torch._int_mm, which needs at least LEAST_ROWS rows."""
    rows = codes.shape[0]
    if rows < LEAST_ROWS:
        codes = pad(codes, (0, 0, 0, 32 - rows))
    elif rows % 8:
        codes = pad(codes, (0, 0, 0, -rows % 8))
    return torch._int_mm(codes, wq.t())[:rows]


def _scaled(sums: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor):
    return (sums.float() * (x_scale[:, None] * w_scale) + bias.float()).bfloat16()
