"""Measure the course's own kernels at realistic sizes, as points in chapter 19's roofline.

The record has ``device``, ``versions``, ``date`` and ``rows``. A row has ``puzzle``, ``case``, ``warps``,
``us`` and ``error``, which compares the result with the spec's in float32 (float64 needs too much memory).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.timing import interleaved, provenance, relative_error

POINTS: Mapping[str, tuple[dict[str, int], int]] = {
    "masked_add": ({"N": 1 << 26, "BLOCK": 1024}, 4),
    "mul_relu": ({"M": 8192, "N": 8192, "BLOCK_M": 16, "BLOCK_N": 128}, 4),
    "rms_norm": ({"M": 16384, "N": 4096, "BLOCK_N": 4096}, 4),
    "layer_norm": ({"M": 16384, "N": 4096, "BLOCK_M": 1, "BLOCK_N": 4096}, 4),
    "layer_norm_dx": ({"M": 16384, "N": 4096, "BLOCK_M": 1, "BLOCK_N": 4096}, 4),
    "flash_attention": ({"T": 16384, "D": 64, "BLOCK_Q": 64, "BLOCK_K": 64, "BLOCK_D": 64}, 4),
    "batched_matmul": (
        {"B": 8, "M": 2048, "N": 2048, "K": 2048, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32},
        8,
    ),
}
"""By puzzle: numbers of the case, and warps."""
SETS = 3  # of inputs, taken in turn


def measure() -> dict[str, Any]:
    """Return the record of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench points needs a CUDA device")
    return {**provenance(), "rows": list(_rows())}


def _rows() -> Iterator[dict[str, Any]]:
    known = {puzzle.name: puzzle for puzzle in puzzles()}
    for name, (numbers, warps) in POINTS.items():
        puzzle = known[name]
        case = puzzle.cases[0].but(**numbers)
        bound = bind(solutions()[name], puzzle, case)
        if not isinstance(bound, Bound):
            raise RuntimeError(f"{name} cannot be launched: {bound}")
        grid, sets = puzzle.programs(case), []
        for _ in range(SETS):
            sets.append(
                {
                    each.name: torch.randn(each.shape(case.numbers), device="cuda").to(each.dtype)
                    for each in puzzle.inputs + puzzle.results
                }
            )

        def launch(tensors: Mapping[str, torch.Tensor], bound: Bound = bound, grid: Any = grid) -> None:
            bound.kernel[grid](**bound.filled(tensors), num_warps=warps)  # noqa: B023

        result = puzzle.results[0].name
        sets[0][result].fill_(torch.nan)
        launch(sets[0])
        want = puzzle.spec(*(sets[0][each.name].float() for each in puzzle.inputs))
        error = relative_error(sets[0][result], want[0] if isinstance(want, tuple) else want)
        us = interleaved({name: [lambda t=tensors: launch(t) for tensors in sets]}, rounds=15)[name]
        told = {"puzzle": name, "case": numbers, "warps": warps, "us": round(us, 2)}
        yield {**told, "error": float(f"{error:.1e}")}
        torch.cuda.empty_cache()


def table(record: Mapping[str, Any]) -> str:
    """Return the record as text, with a line per kernel."""
    lines = [f"{record['device']}, {record['date']}"]
    lines += ["  ".join(f"{name}={value}" for name, value in row.items()) for row in record["rows"]]
    return "\n".join(lines)
