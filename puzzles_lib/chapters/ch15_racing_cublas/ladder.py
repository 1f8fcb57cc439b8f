"""Chapter 15's ladder: run its nine versions and measure them against the best unfused path."""

from collections.abc import Callable, Iterator, Sequence

import torch

from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.hasty import hasty
from puzzles_lib.chapters.ch15_racing_cublas.programs import Programs
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS, Problem, Rung
from puzzles_lib.kernels.quantize import dequantize
from puzzles_lib.timing import Sustained, interleaved, relative_error, row, sustained

UNFUSED, CUBLAS = "dequantize + cuBLAS", "cuBLAS alone, x^ ready"
REPEATS = 20  # runs that must give the same bits
RUNS = 300  # of a version whose bits may differ from run to run
BATCH = 12  # launches that take turns, if there are more than the ladder's
HERE = Programs()  # compiled on this machine

Rows = Iterator[dict[str, object]]


def rungs() -> list[Rung]:
    """Return the chapter's versions, in order."""
    return [value for value in vars(versions).values() if isinstance(value, Rung)]


def unsound() -> list[Rung]:
    """Return the chapter's examples of what goes wrong."""
    return [hasty]


def run(
    rung: Rung, problem: Problem, parts: torch.Tensor, dw: torch.Tensor, programs: Programs = HERE
) -> None:
    """Fill dw [COUT, CIN] on a GPU; parts [splits, COUT, CIN] float32 is overwritten."""
    problem = problem.of(rung)
    programs.run(rung, rung.arguments(problem, parts), rung.grid(*problem.shape))
    programs.sum_splits(parts, dw)


def unfused(problem: Problem) -> torch.Tensor:
    """Return dW by the path to beat: our dequantize kernel, then cuBLAS."""
    return torch.matmul(problem.dy.t(), dequantize(problem.packed))


def measure(some: Sequence[Rung] | None = None, programs: Programs = HERE) -> Rows:
    """Yield the rows of bench "ladder": each rung takes turns with `UNFUSED` in one run.

    error is relative to the exact product of the same x̂. Rows of bench "repeats" follow, for the chapter's
    unsound examples. Their error is the share of `RUNS` runs that give other bits than the first.

    some: rungs other than the chapter's, without the examples. programs: the machine code.
    Raises RuntimeError without a GPU, or if a rung's result is wrong or differs between runs.
    """
    for count in ROWS:
        track = _Track(count, programs)
        yield from track.measure("ladder", rungs() if some is None else some)
        for rung in unsound() if some is None else ():
            yield track.repeated(rung)


def measure_grid(some: Sequence[Rung], programs: Programs = HERE) -> Rows:
    """Yield the rows of bench "grid": the same for more launches than can take turns at once.

    Launches whose result is wrong or differs between runs are left out. Raises RuntimeError without a GPU.
    """
    for count in ROWS:
        track = _Track(count, programs)
        right = [rung for rung in some if track.is_right(rung)]
        for start in range(0, len(right), BATCH):
            yield from track.measure("grid", right[start : start + BATCH])


def measure_clocks(programs: Programs = HERE) -> dict[str, Sustained]:
    """Run each path alone for a second, at the large K, and return the chip's clock.

    Raises as `measure` does.
    """
    return _Track(max(ROWS), programs).sustained()


class Unsteady(RuntimeError):
    """Raised if equal runs of a version give different results."""


class _Track:
    """Problems with one K, more of them than the cache holds, and the unfused paths."""

    def __init__(self, rows: int, programs: Programs):
        if not torch.cuda.is_available():
            raise RuntimeError("bench ladder needs a CUDA device")
        torch.manual_seed(0)

        def normal(columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)

        self.rows, self.programs = rows, programs
        self.problems = [Problem(normal(CIN), normal(COUT)) for _ in range(3 if rows > 50000 else 8)]
        self.x = [dequantize(problem.packed) for problem in self.problems]
        self.want = self.problems[0].exact()
        self.unfused_error = relative_error(unfused(self.problems[0]), self.want)

    def measure(self, bench: str, some: Sequence[Rung]) -> Rows:
        errors = {UNFUSED: self.unfused_error, CUBLAS: self.unfused_error}
        errors |= {rung.name: self._checked(rung) for rung in some}
        times = interleaved(self._unfused() | {rung.name: self._fused(rung) for rung in some})
        for path, us in times.items():
            if bench == "ladder" or path not in (UNFUSED, CUBLAS):
                yield self._row(bench, path, us, times[UNFUSED], float(f"{errors[path]:.3e}"))

    def sustained(self) -> dict[str, Sustained]:
        paths = self._unfused() | {rung.name: self._fused(rung) for rung in rungs()}
        return {name: sustained(calls) for name, calls in paths.items()}

    def repeated(self, rung: Rung) -> dict[str, object]:
        """Return how many runs on the same inputs differ from the first."""
        (once, *_), dw = self._fused_into(rung)
        once()
        first, differing = dw.clone(), 0
        for _ in range(RUNS):
            once()
            differing += not torch.equal(dw, first)  # a NaN differs too
        times = interleaved(self._unfused() | {rung.name: self._fused(rung)})
        return self._row("repeats", rung.name, times[rung.name], times[UNFUSED], differing / RUNS)

    def is_right(self, rung: Rung) -> bool:
        try:
            self._checked(rung)
        except RuntimeError:
            return False
        return True

    def _row(self, bench: str, path: str, us: float, baseline_us: float, error: float) -> dict[str, object]:
        return row(bench, f"2 bits, {self.rows}x{COUT}x{CIN}", path, us, UNFUSED, baseline_us, error)

    def _unfused(self) -> dict[str, list[Callable[[], object]]]:
        pairs = list(zip(self.problems, self.x, strict=True))

        def both(problem: Problem, x: torch.Tensor) -> torch.Tensor:
            self.programs.dequantize(problem.packed.words, problem.packed.params, x)
            return torch.matmul(problem.dy.t(), x)

        return {
            UNFUSED: [lambda p=p, x=x: both(p, x) for p, x in pairs],
            CUBLAS: [lambda p=p, x=x: torch.matmul(p.dy.t(), x) for p, x in pairs],
        }

    def _fused(self, rung: Rung) -> list[Callable[[], object]]:
        return self._fused_into(rung)[0]

    def _fused_into(self, rung: Rung) -> tuple[list[Callable[[], object]], torch.Tensor]:
        """A call for each problem, poisoned buffers of its own, and the dW that all fill."""
        parts = torch.full((rung.splits, COUT, CIN), float("nan"), device="cuda")
        dw = torch.full((COUT, CIN), float("nan"), device="cuda", dtype=torch.bfloat16)

        def call(problem: Problem) -> None:
            run(rung, problem, parts, dw, self.programs)

        return [lambda p=p: call(p) for p in self.problems], dw

    def _checked(self, rung: Rung) -> float:
        """The error of a rung, in `REPEATS` runs that must give the same bits."""
        for repeat in range(REPEATS):
            (once, *_), dw = self._fused_into(rung)
            once()
            if repeat == 0:
                first = dw
            elif not torch.equal(dw, first):
                off = float((dw != first).float().mean())
                raise Unsteady(f"{rung.name}: run {repeat} differs from run 0 in {off:.2%} of dW")
        error, most = relative_error(first, self.want), 1.05 * self.unfused_error
        if not error <= most:
            raise RuntimeError(f"{rung.name}: the error must be at most {most:.2e}, but is {error:.2e}")
        return error
