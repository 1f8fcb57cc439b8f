"""Measure what packed activations cost a language model: its loss in each format, over several seeds.

The model, the corpus and the training are those of `puzzles_lib.examples.train_lm`, in its base size. All
paths start with the same weights and get the same batches. Several runs share a GPU at a time, so the record
has no times; `python -m puzzles_lib.bench eager` measures times.
"""

import multiprocessing
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch

from puzzles_lib.bench.results import provenance
from puzzles_lib.examples.lm import corpus
from puzzles_lib.examples.train_lm import Setup, train

PATHS: dict[str, tuple[int | None, str | None]] = {
    "torch": (None, None),
    "8 bits, nearest": (8, "nearest"),
    "4 bits, nearest": (4, "nearest"),
    "2 bits, nearest": (2, "nearest"),
    "2 bits, stochastic": (2, "stochastic"),
    "1 bit, nearest": (1, "nearest"),
    "1 bit, stochastic": (1, "stochastic"),
}
"""Bits and rounding by name."""
SEEDS, STEPS, BATCH = 3, 1500, 96
AT_ONCE = 4  # runs on a GPU


def measure(paths: Mapping[str, tuple] = PATHS, seeds: int = SEEDS, steps: int = STEPS) -> dict[str, Any]:
    """Return the record. Raises RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench language needs a CUDA device")
    setups = [
        (name, Setup("base", bits, rounding, steps, BATCH, seed=seed))
        for seed in range(seeds)
        for name, (bits, rounding) in paths.items()
    ]
    count = torch.cuda.device_count()
    jobs = [(setup, f"cuda:{number % count}") for number, (_, setup) in enumerate(setups)]
    with multiprocessing.get_context("spawn").Pool(AT_ONCE * count) as pool:
        found = pool.starmap(_run, jobs, chunksize=1)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in paths}
    for (name, _), result in zip(setups, found, strict=True):
        runs[name].append(result)
    rows = [
        {
            "path": name,
            "held_out": [run["held_out"] for run in some],
            "loss": [round(fmean(run["loss"][n] for run in some), 4) for n in range(len(some[0]["loss"]))],
            "peak": max(run["peak"] for run in some),
        }
        for name, some in runs.items()
    ]
    record = {**provenance(), "bytes": sum(map(len, corpus())), "steps": steps, "batch": BATCH}
    return {**record, "every": steps // 30, "rows": rows}


def _run(setup: Setup, device: str) -> dict[str, Any]:
    result = train(setup, device)
    every = setup.steps // 30
    print(f"{setup.text()}, seed {setup.seed}: {result.held_out:.4f}", flush=True)
    means = [fmean(result.losses[first : first + every]) for first in range(0, setup.steps, every)]
    return {"held_out": round(result.held_out, 4), "loss": means, "peak": result.peak}


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
