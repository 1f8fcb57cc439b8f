"""Time what chapters 13 and 14 read in machine code: narrow loads, stages, spills, and orders of weights.

The kernels are the chapters' own. They are launched without the checker, so any Triton will do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import triton

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters.ch13_machine_code.kernels import batched_matmul_kernel, masked_add_kernel
from puzzles_lib.timing import interleaved, relative_error, row

BENCH = "machine-code"
LAUNCHES = {  # of the matmul, by path: rows and columns of a tile, warps, stages
    "num_stages=1": (128, 128, 4, 1),
    "num_stages=2": (128, 128, 4, 2),
    "num_stages=3": (128, 128, 4, 3),
    "128 x 128, 2 warps": (128, 128, 2, 3),
    "256 x 128, 8 warps": (256, 128, 8, 3),
    "256 x 256, 8 warps": (256, 256, 8, 3),
}
ORDERS = {  # of int8 weights, by path: kernel and K
    "[N, K], K = 4096": ("int8_linear", 4096),
    "[K, N], K = 4096": ("k_by_n", 4096),
    "[N, K], K = 4090": ("int8_linear", 4090),
    "tiles, K = 4090": ("tiled_linear", 4090),
}
OLD, NEW = "offs_n * K + k[:, None]", "k[:, None] * N + offs_n"
SETS = 8  # of int8 weights, so that no call finds its own in the cache

Call = Callable[[], torch.Tensor]


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError(f"bench {BENCH} needs a CUDA device")
    torch.manual_seed(0)
    x = torch.randn(2**26, device="cuda")
    adds = {f"N = {n}": [_add(x, n)] for n in (len(x), len(x) - 1)}
    yield from _rows("x + 10 in float32", adds, (x + 10)[:-1])
    x, y = (torch.randn(1, 4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    matmuls = {path: [_multiply(x, y, *launch)] for path, launch in LAUNCHES.items()}
    yield from _rows("matmul of 4096 x 4096 in float16", matmuls, x.float() @ y.float(), "num_stages=3")
    linears = {p: [_linear(name, 512, 4096, K) for _ in range(SETS)] for p, (name, K) in ORDERS.items()}
    yield from _rows("int8 linear of 512 rows, N = 4096", linears)


def _add(x: torch.Tensor, size: int) -> Call:
    def call() -> torch.Tensor:
        z = torch.empty_like(x)
        masked_add_kernel[(triton.cdiv(size, 1024),)](x, z, size, BLOCK=1024)
        return z[: len(x) - 1]

    return call


def _multiply(x: torch.Tensor, y: torch.Tensor, rows: int, columns: int, warps: int, stages: int) -> Call:
    size = x.shape[-1]
    numbers = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 64, "num_warps": warps, "num_stages": stages}
    grid = (triton.cdiv(size, rows), triton.cdiv(size, columns), 1)

    def call() -> torch.Tensor:
        z = torch.empty(1, size, size, device="cuda")
        batched_matmul_kernel[grid](x, y, z, size, size, size, **numbers)
        return z

    return call


def _linear(name: str, M: int, N: int, K: int, block: int = 64) -> Call:
    """Return a call of a kernel of chapter 14 on random weights in its order. Its result is checked."""
    source = kernel_sources()[name.replace("k_by_n", "int8_linear")]
    if name == "k_by_n":
        source = source.replace(OLD, NEW)
    kernel: Any = define(source, f"<{name} of bench {BENCH}>")
    xq, wq = (torch.randint(-127, 128, (n, K), dtype=torch.int8, device="cuda") for n in (M, N))
    x_scale, w_scale, bias = (torch.rand(n, device="cuda") / 128 for n in (M, N, N))
    order = {"k_by_n": _turned, "tiled_linear": _tiled}.get(name)
    stored = order(wq, block) if order else wq
    side = "TILE" if name == "tiled_linear" else "BLOCK"
    blocks = {"BLOCK_M": block, f"{side}_N": block, f"{side}_K": block}
    grid = (triton.cdiv(M, block), triton.cdiv(N, block))

    def call() -> torch.Tensor:
        y = torch.empty(M, N, device="cuda")
        kernel[grid](xq, x_scale, stored, w_scale, bias, y, M, N, K, **blocks)
        return y

    want = (xq.double() @ wq.double().T) * (x_scale[:, None] * w_scale) + bias
    if relative_error(call(), want) > 1e-6:
        raise RuntimeError(f"{name}: wrong result")
    return call


def _turned(wq: torch.Tensor, block: int) -> torch.Tensor:
    return wq.T.contiguous()


def _tiled(wq: torch.Tensor, block: int) -> torch.Tensor:
    """Return weights in tiles, as puzzle 24 stores them."""
    N, K = wq.shape
    padded = torch.nn.functional.pad(wq, (0, -K % block, 0, -N % block))
    return padded.unflatten(1, (-1, block)).unflatten(0, (-1, block)).transpose(1, 2).contiguous()


def _rows(
    case: str, calls: Mapping[str, Sequence[Call]], want: torch.Tensor | None = None, baseline: str = ""
) -> Iterator[dict[str, object]]:
    baseline = baseline or next(iter(calls))
    times = interleaved(calls)
    for path, (call, *_) in calls.items():
        error = 0.0 if want is None else relative_error(call(), want)
        yield row(BENCH, case, path, times[path], baseline, times[baseline], error)
