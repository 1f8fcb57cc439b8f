"""Training on two GPUs, packed and not: a ViT-B/16 as `puzzles_lib.examples.train_vit` trains it.

Rows are whole steps of a batch of 256, with AdamW and autocast to bfloat16, as the example runs them: not
replayed, by deterministic kernels, on one GPU, under DDP and under FSDP2. ``us`` is the median step of two
turns, which alternate with the baseline's; ``bytes`` the largest peak of memory on a GPU, weights and
optimiser included, and ``error`` how far a loss is from that of the same layers on one GPU, at most, relative
to it (rounding to nearest; 0 for one GPU itself).

That a resumed run has the same bits is checked on the way, with stochastic rounding and dropout.
"""

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from puzzles_lib.bench.results import row
from puzzles_lib.examples.train_vit import SIZES, join
from puzzles_lib.examples.training import PARALLEL, Config, Ranks, Run, train

PLAIN, PACKED = "torch", "packed, 2 bits"
STEPS, WARM = 14, 4
NAMES = {"ddp": "DDP", "fsdp": "FSDP2"}


def measure() -> Iterator[dict[str, Any]]:
    """All rows. Raises RuntimeError with fewer than two GPUs."""
    if torch.cuda.device_count() < 2:
        raise RuntimeError("bench ranks needs two CUDA devices")
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([sys.executable, *launch, "-m", __name__, "base", str(rows)], check=True)
        yield from json.loads(rows.read_text())


def measure_on(ranks: Ranks, config: Config, folder: Path) -> list[dict[str, Any]]:
    """The rows, on rank 0; all ranks call it. Raises RuntimeError where a resumed run has other losses."""
    formats = {PLAIN: replace(config, bits=None), PACKED: replace(config, bits=2, rounding="nearest")}
    found, alone = [], {}
    for parallel in (None, *PARALLEL):
        group = replace(ranks, parallel=parallel) if parallel else Ranks(ranks.device)
        if parallel or ranks.rank == 0:
            runs: dict[str, list[Run]] = {path: [] for path in formats}
            for _ in range(2):
                for path, each in formats.items():
                    runs[path].append(_run(each, STEPS, group))
            alone = alone or {path: runs[path][0].losses for path in formats}
            where = f"{NAMES[parallel]} on {ranks.count} GPUs" if parallel else "one GPU"
            found += _rows(f"ViT-B/16, batch {config.batch}, {where}", runs, alone, group)
        dist.barrier()
        if parallel:
            _check_resuming(replace(config, rounding="stochastic", dropout=0.1), group, folder / parallel)
    return found


def _rows(
    case: str, runs: dict[str, list[Run]], alone: dict[str, list[float]], ranks: Ranks
) -> Iterator[dict[str, Any]]:
    times = {path: 1e6 * median(_times(some)) for path, some in runs.items()}
    peaks = {path: _most(max(some[0].peaks), ranks) for path, some in runs.items()}
    for path, (first, _) in runs.items():
        pairs = zip(first.losses, alone.get(path, first.losses), strict=True)
        error = max(abs(loss / wanted - 1) for loss, wanted in pairs)
        made = row("ranks", case, path, times[path], PLAIN, times[PLAIN], error)
        yield {**made, "bytes": peaks[path], "baseline_bytes": peaks[PLAIN]}


def _times(runs: list[Run]) -> list[float]:
    return [seconds for run in runs for seconds in run.seconds[WARM:]]


def _run(config: Config, steps: int, ranks: Ranks, **options: Any) -> Run:
    """A run without its model, whose memory the next one needs."""
    run = train(config, steps, ranks, **options)
    del run.model
    gc.collect()
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
    return run


def _most(value: int, ranks: Ranks) -> int:
    if ranks.count == 1:
        return value
    most = torch.tensor(value, device=ranks.device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return int(most)


def _check_resuming(config: Config, ranks: Ranks, folder: Path) -> None:
    whole = _run(config, 6, ranks).losses
    _run(config, 3, ranks, folder=folder)
    resumed = _run(config, 6, ranks, folder=folder, resume=True).losses
    if resumed != whole:
        raise RuntimeError(f"{ranks.text()}: losses of the resumed run {resumed}, of the whole one {whole}")


if __name__ == "__main__":
    size, file = sys.argv[1:]
    options = {name: value for name, value in SIZES[size].items() if name != "steps"}
    rows = measure_on(join("ddp", None), Config(size, **options), Path(file).parent)
    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps(rows))
    dist.destroy_process_group()
