"""Chapter 15's ladder: its nine versions, run and measured against the best unfused path."""

from collections.abc import Iterator, Sequence

import torch
import triton

from puzzles_lib.bench.results import relative_error, row
from puzzles_lib.bench.timing import interleaved
from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS, Problem, Rung
from puzzles_lib.kernels.quantize import dequantize

UNFUSED, CUBLAS = "dequantize + cuBLAS", "cuBLAS alone, x^ ready"
REPEATS = 20  # runs that must give the same bits
RUNS = 300  # of a version that may not


def rungs() -> list[Rung]:
    """The chapter's versions, in order: those whose name begins with their number."""
    return [rung for rung in _all() if rung.name[0].isdigit()]


def unsound() -> list[Rung]:
    """Its examples of what goes wrong."""
    return [rung for rung in _all() if not rung.name[0].isdigit()]


def _all() -> list[Rung]:
    return [value for value in vars(versions).values() if isinstance(value, Rung)]


def run(rung: Rung, problem: Problem, parts: torch.Tensor, dw: torch.Tensor) -> None:
    """Fill dw [COUT, CIN] on a GPU; parts [splits, COUT, CIN] float32 is overwritten."""
    problem = problem.of(rung)
    triton.set_allocator(_scratch)  # for kernels that make tensor descriptors
    rung.kernel[rung.grid(*problem.shape)](**rung.arguments(problem, parts), **rung.options)
    block, grid = 512, (dw.numel() // 512,)
    versions.sum_splits_kernel[grid](parts, dw, dw.numel(), SPLITS=len(parts), BLOCK=block)


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.int8)


def unfused(problem: Problem) -> torch.Tensor:
    """The path to beat: our dequantise, then cuBLAS."""
    return torch.matmul(problem.dy.t(), dequantize(problem.packed))


def measure(some: Sequence[Rung] | None = None, rows: Sequence[int] = ROWS) -> Iterator[dict[str, object]]:
    """Rows of bench "ladder": each rung against `UNFUSED`, taking turns in one run.

    error is relative to the exact product of the same x^. Then, of the chapter's unsound examples, rows of
    bench "repeats", whose error is the share of `RUNS` runs that give other bits than the first.

    some: rungs other than the chapter's, without the examples.
    Raises RuntimeError without a GPU, or where a rung's result is off, or differs between runs.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("bench ladder needs a CUDA device")
    for count in rows:
        problems = _problems(count)
        yield from _measure(rungs() if some is None else some, problems)
        for rung in unsound() if some is None else ():
            yield _repeated(rung, problems)
        del problems
        torch.cuda.empty_cache()


def _problems(rows: int) -> list[Problem]:
    """More of them than the cache holds."""
    torch.manual_seed(0)

    def normal(columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)

    return [Problem(normal(CIN), normal(COUT)) for _ in range(3 if rows > 50000 else 8)]


def _buffers(rung: Rung) -> tuple[torch.Tensor, torch.Tensor]:
    """For partial sums, and for dW."""
    parts = torch.empty(rung.splits, COUT, CIN, device="cuda")
    return parts, torch.empty(COUT, CIN, device="cuda", dtype=torch.bfloat16)


def _measure(some: Sequence[Rung], problems: Sequence[Problem]) -> Iterator[dict[str, object]]:
    rows = problems[0].rows
    x = [dequantize(p.packed) for p in problems]
    want = problems[0].exact()
    paths = {UNFUSED: [lambda p=p: unfused(p) for p in problems]}
    paths[CUBLAS] = [lambda p=p, x=x: torch.matmul(p.dy.t(), x) for p, x in zip(problems, x, strict=True)]
    errors = {name: relative_error(calls[0](), want) for name, calls in paths.items()}
    for rung in some:
        buffers = _buffers(rung)
        paths[rung.name] = [lambda p=p, r=rung, b=buffers: run(r, p, *b) for p in problems]
        errors[rung.name] = _checked(rung, problems[0], *buffers, want, 1.05 * errors[UNFUSED])
    times = interleaved(paths)
    for path, us in times.items():
        yield _row("ladder", rows, path, us, times[UNFUSED], float(f"{errors[path]:.3e}"))


def _row(bench: str, rows: int, path: str, us: float, baseline_us: float, error: float) -> dict[str, object]:
    return row(bench, f"2 bits, {rows}x{COUT}x{CIN}", path, us, UNFUSED, baseline_us, error)


def _repeated(rung: Rung, problems: Sequence[Problem]) -> dict[str, object]:
    """How many runs on the same inputs differ from the first."""
    rows = problems[0].rows
    parts, dw = _buffers(rung)
    run(rung, problems[0], parts, dw)
    first, differing = dw.clone(), 0
    for _ in range(RUNS):
        run(rung, problems[0], parts, dw)
        differing += not torch.equal(dw, first)  # a NaN differs too
    paths = {rung.name: [lambda p=p: run(rung, p, parts, dw) for p in problems]}
    times = interleaved(paths | {UNFUSED: [lambda p=p: unfused(p) for p in problems]})
    return _row("repeats", rows, rung.name, times[rung.name], times[UNFUSED], differing / RUNS)


def _checked(
    rung: Rung, problem: Problem, parts: torch.Tensor, dw: torch.Tensor, want: torch.Tensor, most: float
) -> float:
    """The error of a rung, whose buffers are poisoned before each of `REPEATS` runs."""
    for repeat in range(REPEATS):
        parts.fill_(float("nan"))
        dw.fill_(float("nan"))
        run(rung, problem, parts, dw)
        if repeat == 0:
            first = dw.clone()
        elif not torch.equal(dw, first):
            off = float((dw != first).float().mean())
            raise RuntimeError(f"{rung.name}: run {repeat} differs from run 0 in {off:.2%} of dW")
    error = relative_error(first, want)
    if not error <= most:
        raise RuntimeError(f"{rung.name}: error {error:.2e}, allowed is {most:.2e}")
    return error
