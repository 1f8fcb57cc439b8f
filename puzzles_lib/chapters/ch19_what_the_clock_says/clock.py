"""How benchmarks lie, occupancy, waves, the order of tiles, persistent programs: chapter 19's measurements.

The record: ``device``, ``versions``, ``date``, and a list for each of `PARTS`.

- ``lies``: ``name``, and two numbers that one might give for the same thing: ``first`` and ``second``, with
  what they are of (``of_first``, ``of_second``) and ``unit``; ``more``, beside them.
- ``flights``: ``programs`` on a multiprocessor at a time, ``us``, ``tb_s``.
- ``waves``: ``programs`` and ``us``, of matmuls that differ in their rows alone.
- ``orders``: ``case``, ``tile``, ``group`` (rows of tiles in a band; 1 is row after row), ``us``.
- ``persistent``: ``case``, ``path``, ``us``, and ``config``, the best of those tried.
- ``counts``: ``path``, ``us``, and the ``date``, of counts of 2^25 numbers in 16 bins.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.chapters.ch19_what_the_clock_says import kernels
from puzzles_lib.timing import interleaved, provenance, relative_error, sustained

MOST_ERROR = 1e-2  # of a bfloat16 product
Row = dict[str, Any]


def measure() -> dict[str, Any]:
    """Measure, and return the record. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench clock needs a CUDA device")
    return {**provenance(), **{name: list(part()) for name, part in PARTS.items()}}


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _events(call: Callable[[], object]) -> float:
    """Microseconds of a call by events, alone."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000


# ---- lies


def lies() -> Iterator[Row]:
    yield _first_call()
    yield _clocks()
    yield _no_wait()
    yield _launches()
    yield _cache()
    yield _zeros()
    yield _spread()


def _told(
    name: str, unit: str, of_first: str, first: float, of_second: str, second: float, **more: Any
) -> Row:
    numbers = {
        "of_first": of_first,
        "first": round(first, 2),
        "of_second": of_second,
        "second": round(second, 2),
    }
    return {"name": name, "unit": unit, **numbers, "more": more}


def _square(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _normal(size, size), _normal(size, size), torch.empty(size, size, device="cuda").bfloat16()


def _matmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, group: int = 8, **blocks: int) -> None:
    (M, K), N = a.shape, b.shape[1]
    chosen = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3, **blocks}
    grid = (M // chosen["BLOCK_M"] * (N // chosen["BLOCK_N"]),)
    kernels.matmul_kernel[grid](a, b, c, M, N, K, GROUP=group, **chosen)


def _first_call() -> Row:
    """A kernel that no cache has: Triton's cache is an empty folder."""
    a, b, c = _square(1024)
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as empty, triton.knobs.cache.scope():
        triton.knobs.cache.dir = empty
        start = time.perf_counter()
        _matmul(a, b, c, BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=2)
        torch.cuda.synchronize()
        first = (time.perf_counter() - start) * 1e6
    times = []
    for _ in range(10):
        start = time.perf_counter()
        _matmul(a, b, c, BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=2)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return _told("first call", "µs", "the first call", first, "the tenth call", times[-1])


def _no_wait() -> Row:
    """A matmul of 8192, by the host's clock."""
    a, b, c = _square(8192)
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(20):
        for wait in found:
            torch.cuda.synchronize()
            start = time.perf_counter()
            _matmul(a, b, c)
            if wait:
                torch.cuda.synchronize()
            found[wait].append((time.perf_counter() - start) * 1e6)
    said, real = (statistics.median(found[wait]) for wait in (False, True))
    return _told("no wait", "µs", "without synchronize", said, "with it", real)


def _launches() -> Row:
    """A copy of 64 KiB: from Python, by do_bench, and from a CUDA graph."""
    x = torch.randn(1 << 14, device="cuda")
    z = torch.empty_like(x)

    def call() -> None:
        kernels.copy_kernel[(16,)](x, z, BLOCK=1024)

    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(1000):
        call()
    torch.cuda.synchronize()
    eager = (time.perf_counter() - start) * 1e6 / 1000
    alone = triton.testing.do_bench(call, return_mode="median") * 1000
    graph = interleaved({"graph": [call] * 100})["graph"]
    words = "1000 calls from Python, a call", eager, "100 of them in a CUDA graph, a call", graph
    return _told("launch", "µs", *words, do_bench_us=round(alone, 2))


def _cache() -> Row:
    """Time a copy of the same 8 MB, and copies that cycle through 64 times 8 MB."""
    sets = [(torch.randn(1 << 21, device="cuda"), torch.empty(1 << 21, device="cuda")) for _ in range(64)]

    def copy(x: torch.Tensor, z: torch.Tensor) -> Callable[[], object]:
        return lambda: kernels.copy_kernel[(len(x) // 2048,)](x, z, BLOCK=2048)

    paths = {"warm": [copy(*sets[0])] * 64, "cold": [copy(*each) for each in sets]}
    found = interleaved(paths)
    moved = 2 * sets[0][0].nbytes
    rates = {f"{name}_tb_s": round(moved / us / 1e6, 2) for name, us in found.items()}
    return _told(
        "cache",
        "µs",
        "the same 8 MB each time",
        found["warm"],
        "64 times 8 MB in turn",
        found["cold"],
        **rates,
    )


def _clocks() -> Row:
    """A matmul of 8192: the first milliseconds after a rest, and after 3 seconds of work."""
    a, b, c = _square(8192)
    for _ in range(3):
        _matmul(a, b, c)
    torch.cuda.synchronize()
    time.sleep(3)
    rested = statistics.median(_events(lambda: _matmul(a, b, c)) for _ in range(8))
    long = sustained([lambda: _matmul(a, b, c)], seconds=4.0)
    flops = 2 * 8192**3
    more = {"mhz": long.mhz, "watts": long.watts, "rested_tflops": round(flops / rested / 1e6, 1)}
    more["tired_tflops"] = round(flops / long.us / 1e6, 1)
    return _told("clocks", "µs", "8 calls after a rest", rested, "after seconds of work", long.us, **more)


def _zeros() -> Row:
    """The same matmul on zeros and on normal numbers, each for 3 seconds."""
    a, b, c = _square(8192)
    none, nothing = torch.zeros_like(a), torch.zeros_like(b)
    random = sustained([lambda: _matmul(a, b, c)], seconds=3.0)
    zeros = sustained([lambda: _matmul(none, nothing, c)], seconds=3.0)
    more = {"zeros_mhz": zeros.mhz, "zeros_watts": zeros.watts, "mhz": random.mhz, "watts": random.watts}
    return _told("zeros", "µs", "on zeros", zeros.us, "on normal numbers", random.us, **more)


def _spread() -> Row:
    """60 copies of 256 MB by events, the first of them after a rest, nothing left out."""
    x = torch.randn(1 << 26, device="cuda")
    z = torch.empty_like(x)
    kernels.copy_kernel[(len(x) // 1024,)](x, z, BLOCK=1024)
    torch.cuda.synchronize()
    time.sleep(2)
    pairs = []
    for _ in range(60):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        kernels.copy_kernel[(len(x) // 1024,)](x, z, BLOCK=1024)
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    times = [round(start.elapsed_time(end) * 1000, 1) for start, end in pairs]
    words = (
        "the mean of the first 5",
        statistics.mean(times[:5]),
        "the median of 60",
        statistics.median(times),
    )
    return _told("spread", "µs", *words, least=min(times), most=max(times), times=times)


# ---- occupancy


def flights() -> Iterator[Row]:
    """Time a sum of the same 553 MB with 1, 2, 4, ... programs per multiprocessor: bytes in flight."""
    count = torch.cuda.get_device_properties(0).multi_processor_count
    x, z = torch.randn(count << 20, device="cuda"), torch.empty(count * 16, device="cuda")
    paths = {
        held: [lambda held=held: kernels.row_sum_kernel[(count * held,)](x, z, (1 << 20) // held, BLOCK=1024)]
        for held in (1, 2, 4, 8, 16)
    }
    for held, us in interleaved(paths, rounds=15).items():  # type: ignore[arg-type]
        yield {"programs": held, "us": round(us, 2), "tb_s": round(x.nbytes / us / 1e6, 3)}


# ---- waves and orders


def waves() -> Iterator[Row]:
    """Yield the times of matmuls with 64 to 560 tiles of 128 x 256, one program per tile."""
    K, N = 4096, 1024
    b = _normal(K, N)
    for steps in range(16, 141, 2):
        a, c = _normal(128 * steps, K), torch.empty(128 * steps, N, device="cuda").bfloat16()
        _matmul(a, b, c)
        us = interleaved({"": [lambda a=a, c=c: _matmul(a, b, c)] * 3}, rounds=15)[""]
        yield {"programs": 4 * steps, "us": round(us, 2)}


ORDERED = (
    ((8192, 8192, 8192), {}),
    ((16384, 16384, 2048), {}),
    ((8192, 8192, 8192), {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}),
)
GROUPS = (1, 2, 4, 8, 16, 32, 64)


def orders() -> Iterator[Row]:
    for (M, N, K), blocks in ORDERED:
        a, b, c = _normal(M, K), _normal(K, N), torch.empty(M, N, device="cuda").bfloat16()
        rows = blocks.get("BLOCK_M", 128)
        tile = f"{rows}x{blocks.get('BLOCK_N', 256)}"
        paths = {
            str(group): [partial(_matmul, a, b, c, group, **blocks)]
            for group in dict.fromkeys((*GROUPS, M // rows))
        }
        for group, us in interleaved(paths, rounds=25).items():
            yield {"case": f"{M}x{N}x{K}", "tile": tile, "group": int(group), "us": round(us, 2)}


# ---- persistent programs and descriptors

SHAPES = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 512),
    (8192, 8192, 128),
    (4096, 4096, 16384),
)
CONFIGS = (
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3},
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4},
)


def persistent() -> Iterator[Row]:
    count = torch.cuda.get_device_properties(0).multi_processor_count
    for M, N, K in SHAPES:
        a, b, c = _normal(M, K), _normal(K, N), torch.empty(M, N, device="cuda").bfloat16()
        want = (a.double() @ b.double()) if M * N * K <= 1 << 36 else (a.float() @ b.float())
        paths: dict[tuple[str, int], list[Callable[[], object]]] = {}
        for number, config in enumerate(CONFIGS):
            for name, call in _forms(a, b, c, config, count).items():
                c.fill_(torch.nan)
                try:
                    call()
                except triton.runtime.errors.OutOfResources:
                    continue
                if not relative_error(c, want) < MOST_ERROR:
                    raise RuntimeError(f"{name} with {config} is wrong at {M}x{N}x{K}")
                paths[name, number] = [call] * (10 if M * N * K <= 1 << 30 else 2)
        paths["cuBLAS", -1] = [partial(torch.mm, a, b, out=c)] * (10 if M * N * K <= 1 << 30 else 2)
        found = interleaved(paths, rounds=15)  # type: ignore[arg-type,var-annotated]
        for path in dict.fromkeys(name for name, _ in found):
            us, number = min((us, number) for (name, number), us in found.items() if name == path)
            chosen = list(CONFIGS[number].values()) if number >= 0 else None
            yield {"case": f"{M}x{N}x{K}", "path": path, "us": round(us, 2), "config": chosen}


def _forms(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: Mapping[str, int], count: int
) -> dict[str, Callable[[], object]]:
    (M, K), N = a.shape, b.shape[1]
    m, n, k = (config[f"BLOCK_{name}"] for name in "MNK")
    tiles = M // m * (N // n)
    described = [
        TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)
        for tensor, block in ((a, [m, k]), (b, [k, n]), (c, [m, n]))
    ]
    sizes, options = (M, N, K), {**config, "GROUP": 8}
    held = 2 if m * n < 128 * 256 else 1  # programs of a multiprocessor
    grid = (min(held * count, tiles),)
    kernel = kernels.persistent_matmul_kernel
    return {
        "plain": lambda: kernels.matmul_kernel[(tiles,)](a, b, c, *sizes, **options),
        "descriptors": lambda: kernels.descriptor_matmul_kernel[(tiles,)](*described, *sizes, **options),
        "persistent": lambda: kernel[grid](*described, *sizes, **options, FLATTEN=False),
        "persistent, flattened": lambda: kernel[grid](*described, *sizes, **options, FLATTEN=True),
    }


# ---- atomics


def counts() -> Iterator[Row]:
    """Yield the times of three ways to count 2^25 numbers in 16 bins, each timed twice."""
    x = torch.randint(0, 1 << 20, (1 << 25,), device="cuda", dtype=torch.int32)
    want = torch.bincount(x % 16, minlength=16)
    paths: dict[tuple[str, int], list[Callable[[], object]]] = {}
    for name, kernel in (
        ("an atomic per element", kernels.count_kernel),
        ("relaxed", kernels.relaxed_count_kernel),
        ("histogram", kernels.histogram_kernel),
    ):
        z = torch.zeros(16, device="cuda", dtype=torch.int32)
        call = partial(kernel[(len(x) // 1024,)], x, z, BINS=16, BLOCK=1024)
        call()
        if not torch.equal(z.long(), want):
            raise RuntimeError(f"{name} counts wrong")
        paths |= {(name, number): [call] for number in range(2)}
    for (name, _), us in interleaved(paths, rounds=15).items():  # type: ignore[arg-type,var-annotated]
        yield {"path": name, "us": round(us, 2), "date": provenance()["date"]}


PARTS: Mapping[str, Callable[[], Iterator[Row]]] = {
    "lies": lies,
    "flights": flights,
    "waves": waves,
    "orders": orders,
    "persistent": persistent,
    "counts": counts,
}


def table(record: Mapping[str, Any]) -> str:
    """Return all parts as text, one line per row."""
    lines = [f"{record['device']}, {record['date']}"]
    for name in PARTS:
        lines.append(name)
        lines += ["  " + "  ".join(f"{k}={v}" for k, v in row.items() if k != "more") for row in record[name]]
    return "\n".join(lines)
