"""Measure how a language model's loss on packed activations depends on the tokens of a step.

Rounding to the nearest code errs in the same direction each time, stochastic rounding in a random one. So
what stochastic rounding costs should shrink with more tokens per step, and what the nearest codes cost should
not. The model and its training are those of `puzzles_lib.bench.language`, which has 96 x 256 bytes per step;
here there are a quarter and four times as many.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from puzzles_lib.bench import language
from puzzles_lib.bench.many import rows_of, spread
from puzzles_lib.examples.lm import SIZES
from puzzles_lib.timing import provenance

FORMATS = ("torch", "4 bits, nearest", "2 bits, nearest", "2 bits, stochastic")
BATCHES = (24, 384)
SEEDS = {24: 3, 384: 2}
"""Pieces of text per step, and how many runs there are of each format."""


def measure(
    batches: Sequence[int] = BATCHES,
    seeds: Mapping[int, int] = SEEDS,
    steps: int = language.STEPS,
    limit: float | None = None,
) -> dict[str, Any]:
    """Return this bench's record. limit: the time limit in seconds. Raises RuntimeError without a GPU."""
    jobs = [
        (batch, path, language.setup(language.PATHS[path], seed, steps, batch))
        for batch in sorted(batches, reverse=True)  # the longest first
        for seed in range(seeds[batch])
        for path in FORMATS
    ]
    results = spread(language.run, [job for *_, job in jobs], language.AT_ONCE, limit)
    rows = [
        {"batch": batch, **row}
        for batch in sorted(batches)
        for row in rows_of(
            [path for other, path, _ in jobs if other == batch],
            [result for (other, *_), result in zip(jobs, results, strict=True) if other == batch],
        )
    ]
    return {**provenance(), "steps": steps, "length": SIZES["base"]["context"], "rows": rows}


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    lines = [f"held-out loss of a byte language model after {record['steps']} steps, and to torch's", ""]
    lines.append(f"{'tokens per step':>15}  {'path':20} {'mean':>7}  {'to torch':>8}  by seed")
    exact: dict[int, float] = {}
    for row in record["rows"]:
        mean, seeds = fmean(row["held_out"]), "  ".join(f"{loss:.4f}" for loss in row["held_out"])
        apart = mean - exact.setdefault(row["batch"], mean)
        tokens = row["batch"] * record["length"]
        lines.append(f"{tokens:15,}  {row['path']:20} {mean:7.4f}  {apart:+8.4f}  {seeds}")
    return "\n".join(lines)
