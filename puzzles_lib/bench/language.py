"""Measure what packed activations cost a language model: its loss in each format, over several seeds.

The model, the corpus and the training are those of `puzzles_lib.examples.train_lm`, in its base size. All
paths start with the same weights and get the same batches. Several runs share a GPU at a time, so the record
has no times; `python -m puzzles_lib.bench eager` measures times.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from puzzles_lib.bench.many import curve, rows_of, spread
from puzzles_lib.examples.lm import corpus
from puzzles_lib.examples.train_lm import Setup, train
from puzzles_lib.timing import provenance

BY_LAYER = {"2 bits in MLPs, else 4": (2, "nearest", "norm|qkv|out")}
PATHS: dict[str, tuple] = {
    "torch": (None, None),
    "8 bits, nearest": (8, "nearest"),
    "4 bits, nearest": (4, "nearest"),
    "2 bits, nearest": (2, "nearest"),
    "2 bits, stochastic": (2, "stochastic"),
    "1 bit, nearest": (1, "nearest"),
    "1 bit, stochastic": (1, "stochastic"),
    **BY_LAYER,
}
"""Bits and rounding by name, and a pattern of the layers that keep 4 bits."""
SEEDS, STEPS, BATCH = 3, 1500, 96
AT_ONCE = 4  # runs on a GPU


def measure(
    paths: Mapping[str, tuple] = PATHS,
    seeds: int = SEEDS,
    steps: int = STEPS,
    batch: int = BATCH,
    limit: float | None = None,
) -> dict[str, Any]:
    """Return this bench's record. limit: the time limit in seconds. Raises RuntimeError without a GPU."""
    jobs = [
        (name, setup(format, seed, steps, batch)) for seed in range(seeds) for name, format in paths.items()
    ]
    results = spread(run, [job for _, job in jobs], AT_ONCE, limit)
    record = {**provenance(), "bytes": sum(map(len, corpus())), "steps": steps, "batch": batch}
    return {**record, "every": steps // 30, "rows": rows_of([name for name, _ in jobs], results)}


def setup(format: Sequence[Any], seed: int, steps: int = STEPS, batch: int = BATCH) -> Setup:
    """Return a run in one of the formats of `PATHS`."""
    bits, rounding, finer = (*format, None)[:3]
    return Setup("base", bits, rounding, steps, batch, seed=seed, finer=finer)


def run(setup: Setup, device: str) -> dict[str, Any]:
    """Train and return what a row is made of."""
    result = train(setup, device)
    print(f"{setup.text()}, seed {setup.seed}, batch {setup.batch}: {result.held_out:.4f}", flush=True)
    return {"held_out": round(result.held_out, 4), "loss": curve(result.losses), "peak": result.peak}


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    told = f"{record['steps']} steps of {record['batch']} x 256 bytes"
    lines = [f"held-out loss of a byte language model, {told}", ""]
    lines.append(f"{'path':20} {'mean':>7}  {'to torch':>8}  peak GiB  by seed")
    exact = fmean(record["rows"][0]["held_out"])
    for row in record["rows"]:
        mean, seeds = fmean(row["held_out"]), "  ".join(f"{loss:.4f}" for loss in row["held_out"])
        lines.append(
            f"{row['path']:20} {mean:7.4f}  {mean - exact:+8.4f}  {row['peak'] / 2**30:8.2f}  {seeds}"
        )
    return "\n".join(lines)
