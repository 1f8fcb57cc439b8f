"""Run many trainings at once, several on each GPU, and stop in time."""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

POINTS = 30  # of a recorded curve


def spread(
    work: Callable[..., Any], jobs: Sequence[Any], at_once: int = 4, limit: float | None = None
) -> list[Any]:
    """Return ``work(job, device)`` for each job, on all GPUs in turn, ``at_once`` jobs on each at a time.

    limit: seconds after which the jobs that still run are ended. Their results are None, as are those of jobs
        that raise an error, which is printed.
    Raises RuntimeError without a GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise RuntimeError("a bench of trainings needs a CUDA device")
    end = None if limit is None else time.monotonic() + limit
    results: list[Any] = [None] * len(jobs)
    with multiprocessing.get_context("spawn").Pool(at_once * count) as pool:
        tasks = [pool.apply_async(work, (job, f"cuda:{n % count}")) for n, job in enumerate(jobs)]
        for place, task in enumerate(tasks):
            try:
                results[place] = task.get(None if end is None else max(0.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                print(f"not done in time: {jobs[place]}", flush=True)
            except Exception as error:  # such as a lack of memory: the other jobs' results are kept
                print(f"{jobs[place]}: {type(error).__name__}: {error}", flush=True)
    return results


def curve(losses: Sequence[float]) -> list[float]:
    """Return the means of `POINTS` equal parts of a run's losses. What is left over is left out."""
    every = max(1, len(losses) // POINTS)
    return [fmean(losses[first : first + every]) for first in range(0, len(losses) - every + 1, every)]


def rows_of(names: Sequence[Any], results: Sequence[Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Return one row per name, with the results of its seeds, in the order of the names' first places.

    A result has ``loss`` (a curve), ``peak``, and numbers. A row has lists of these numbers by seed, the
    mean curve and the largest peak. Names without a result are left out.
    """
    found = []
    for name in dict.fromkeys(names):
        some = [result for other, result in zip(names, results, strict=True) if other == name and result]
        if not some:
            continue
        numbers = {key: [each[key] for each in some] for key in some[0] if key not in ("loss", "peak")}
        means = [round(fmean(each["loss"][n] for each in some), 4) for n in range(len(some[0]["loss"]))]
        found.append({"path": name, **numbers, "loss": means, "peak": max(each["peak"] for each in some)})
    return found
