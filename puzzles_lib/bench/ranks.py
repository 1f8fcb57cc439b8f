"""Measure training on two GPUs, packed and not: a ViT-B/16 as in `puzzles_lib.examples.train_vit`.

Rows are whole steps with AdamW and autocast to bfloat16 and deterministic kernels: on one GPU, under DDP
and under FSDP2, launched by the host or (``--graph``) replayed. ``us`` is the median step after the first
ones. ``bytes`` is the largest peak of memory on a GPU, with weights and optimizer. ``error`` is the largest
relative difference of a loss from that of the same layers on one GPU, with rounding to nearest.

At the end, resumed and replayed runs are checked to have the same bits, with stochastic rounding and dropout.
"""

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from puzzles_lib.examples.train_vit import SIZES, join
from puzzles_lib.examples.training import PARALLEL, Config, Ranks, Run, train
from puzzles_lib.timing import row

PLAIN, PACKED = "torch", "packed, 2 bits"
SETUPS = (  # batch on all GPUs, compiled, replayed, and where
    (256, False, False, (None, "ddp", "fsdp")),
    (256, False, True, (None, "ddp")),
    (256, True, False, ("ddp", "fsdp")),
    (256, True, True, ("ddp",)),
    (1024, False, False, (None, "ddp", "fsdp")),
)
STEPS, WARM = 10, 4
NAMES = {"ddp": "DDP", "fsdp": "FSDP2"}


def measure() -> Iterator[dict[str, Any]]:
    """Yield the rows of this bench. Raise RuntimeError with fewer than two GPUs."""
    if torch.cuda.device_count() < 2:
        raise RuntimeError("bench ranks needs two CUDA devices")
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([sys.executable, *launch, "-m", __name__, "base", str(rows)], check=True)
        yield from json.loads(rows.read_text())


def measure_on(ranks: Ranks, config: Config, setups: Sequence[tuple] = SETUPS) -> Iterator[dict[str, Any]]:
    """Yield the rows of some of `SETUPS` on rank 0. All ranks must call it."""
    alone: dict[tuple[int, str], list[float]] = {}  # losses, by batch and path
    for batch, compiled, graph, places in setups:
        for parallel in places:
            group = replace(ranks, parallel=parallel) if parallel else Ranks(ranks.device)
            if parallel or ranks.rank == 0:
                runs = {}
                for path, bits in ((PLAIN, None), (PACKED, 2)):
                    rounding = "nearest" if bits else None
                    each = replace(config, batch=batch, compile=compiled, bits=bits, rounding=rounding)
                    runs[path] = _run(each, STEPS, group, graph=graph)
                    alone.setdefault((batch, path), runs[path].losses)
                where = f"{NAMES[parallel]} on {ranks.count} GPUs" if parallel else "one GPU"
                case = f"ViT-B/16, batch {batch}, {where}{', compiled' * compiled}{', replayed' * graph}"
                yield from _rows(case, runs, {path: alone[batch, path] for path in runs}, group)
            dist.barrier()


def _rows(
    case: str, runs: dict[str, Run], alone: dict[str, list[float]], ranks: Ranks
) -> Iterator[dict[str, Any]]:
    times = {path: 1e6 * median(run.seconds[WARM:]) for path, run in runs.items()}
    peaks = {path: _most(max(run.peaks), ranks) for path, run in runs.items()}
    for path, run in runs.items():
        error = max(abs(loss / wanted - 1) for loss, wanted in zip(run.losses, alone[path], strict=True))
        made = row("ranks", case, path, times[path], PLAIN, times[PLAIN], error)
        yield {**made, "bytes": peaks[path], "baseline_bytes": peaks[PLAIN]}


def _run(config: Config, steps: int, ranks: Ranks, **options: Any) -> Run:
    """A run without its model, whose memory the next one needs."""
    run = train(config, steps, ranks, **options)
    del run.model, run.replayed
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


def check_resuming(ranks: Ranks, config: Config, folder: Path) -> None:
    """Raise RuntimeError if a resumed run has other losses than an uninterrupted one. All ranks must call it.

    Under DDP the resumed run is replayed, and the other is not.
    """
    config = replace(config, batch=64, rounding="stochastic", dropout=0.1)
    for parallel in PARALLEL:
        group = replace(ranks, parallel=parallel)
        options = {"folder": folder / parallel, "graph": parallel == "ddp"}
        whole = _run(config, 6, group).losses
        _run(config, 3, group, **options)
        resumed = _run(config, 6, group, **options, resume=True).losses
        if resumed != whole:
            raise RuntimeError(f"{group.text()}: after resuming, losses are {resumed}, but should be {whole}")


if __name__ == "__main__":
    size, file, *numbers = sys.argv[1:]  # numbers: of the setups, or all
    options = {name: value for name, value in SIZES[size].items() if name != "steps"}
    ranks, config = join("ddp", None), Config(size, **options)
    rows = []
    some = [SETUPS[int(number)] for number in numbers] or SETUPS
    for each in measure_on(ranks, config, some):
        rows.append(each)
        if ranks.rank == 0:
            Path(file).write_text(json.dumps(rows))  # whatever becomes of the next
    with tempfile.TemporaryDirectory() as folder:
        folders = [folder]
        dist.broadcast_object_list(folders)
        check_resuming(ranks, config, Path(folders[0]))
    dist.destroy_process_group()
