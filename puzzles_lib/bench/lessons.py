"""Measure what chapter 04 saves: the puzzles' own kernels beside PyTorch's softmax.

``bytes`` is the memory that a call needs beyond its inputs, with the result. Bench "fused" measures the same
for chapters 03 and 05, with the functions of this module.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.timing import interleaved, relative_error, row

SOFTMAX = {  # puzzle and BLOCK_N by path; of rows of 32,768 numbers
    "puzzle 8, blocks of 128": ("long_softmax", 128),
    "puzzle 8b, blocks of 128": ("online_softmax", 128),
    "puzzle 8b, blocks of 2048": ("online_softmax", 2048),
}
ROUNDS = 15

Call = Callable[[], torch.Tensor]


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench lessons needs a CUDA device")
    torch.manual_seed(0)
    yield from _softmax(8192, 32768)


def _softmax(rows: int, columns: int) -> Iterator[dict[str, object]]:
    x = torch.randn(rows, columns, device="cuda")
    calls: dict[str, Call] = {"torch.softmax": lambda: x.softmax(1)}
    for path, (name, block) in SOFTMAX.items():
        calls[path] = launched(name, {"M": rows, "N": columns, "BLOCK_M": 1, "BLOCK_N": block}, x)
    yield from rows_of("lessons", f"softmax of {rows} rows of {columns}", calls, "torch.softmax")


def puzzle_named(name: str) -> Puzzle:
    """Return the course's puzzle of this name."""
    return next(puzzle for puzzle in puzzles() if puzzle.name == name)


def launched(name: str, numbers: dict[str, int], *inputs: torch.Tensor) -> Call:
    """Return a call of the course's solution of a puzzle with one result."""
    puzzle = puzzle_named(name)
    case = puzzle.cases[0].but(**numbers)
    kernel: Any = solutions()[name]  # launched without the checker, so any Triton will do
    given = {f"{each.name}_ptr": tensor for each, tensor in zip(puzzle.inputs, inputs, strict=True)}
    sizes = {size: case.numbers[size] for size in kernel.arg_names if size in case.numbers}
    (result,) = puzzle.results

    def call() -> torch.Tensor:
        z = torch.empty(result.shape(case.numbers), device="cuda", dtype=result.dtype)
        kernel[puzzle.programs(case)](**given, **{f"{result.name}_ptr": z}, **sizes)
        return z

    return call


def rows_of(
    bench: str, case: str, calls: dict[str, Call], baseline: str, *, captured: bool = False
) -> Iterator[dict[str, object]]:
    """Yield the rows of one case. The baseline is one of the calls; errors are relative to its result.

    captured: whether to time CUDA graphs, for calls that are shorter than their launches from Python.
    """
    wanted = calls[baseline]()
    errors = {path: relative_error(call(), wanted) for path, call in calls.items()}
    del wanted
    peaks = {path: _peak(call) for path, call in calls.items()}
    times = interleaved({path: [call] for path, call in calls.items()}, ROUNDS, captured=captured)
    for path in calls:
        made = row(bench, case, path, times[path], baseline, times[baseline], errors[path])
        yield {**made, "bytes": peaks[path], "baseline_bytes": peaks[baseline]}
    torch.cuda.empty_cache()


def _peak(call: Call) -> int:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
