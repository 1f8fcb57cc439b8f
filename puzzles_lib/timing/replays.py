"""Time paths by medians of CUDA graph replays, taking turns, and read the chip's clock meanwhile."""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

ROUNDS = 40


def interleaved(
    paths: Mapping[str, Sequence[Callable[[], object]]], rounds: int = ROUNDS, *, captured: bool = True
) -> dict[str, float]:
    """Return the median microseconds per call of each path.

    A path is the same work on several sets of inputs, so that no run finds its input in a cache. Each path is
    captured in a CUDA graph, which leaves out the host's launch times. The graphs take turns: if the chip
    gets warm and slows down, it does so for all of them.
    captured: False for calls that no graph can capture, such as only autograd's backward. Then the host's
    times are left out as long as they are shorter than the GPU's times.
    """
    runs = {name: _graph(calls).replay if captured else _called(calls) for name, calls in paths.items()}
    torch.cuda.synchronize()
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in paths}
    for _ in range(rounds):
        for name, run in runs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(start.elapsed_time(end) for start, end in pairs) * 1000 / len(paths[name])
        for name, pairs in events.items()
    }


def _called(calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
    """All calls, one after the other; run twice."""

    def run() -> None:
        for call in calls:
            call()

    run()
    run()
    return run


def _graph(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """All calls, one after the other; replayed once."""
    for _ in range(2):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    return graph


@dataclass(frozen=True)
class Sustained:
    """Figures of a path that runs for a while: microseconds per call, the chip's clock, its power draw."""

    us: float
    mhz: float
    watts: float


def sustained(calls: Sequence[Callable[[], object]], seconds: float = 1.0) -> Sustained:
    """Return medians over the second half of the time. Raise RuntimeError if nvidia-smi reports nothing."""
    graph = _graph(calls)
    fields = "--query-gpu=clocks.sm,power.draw.instant"
    command = ["nvidia-smi", fields, "--format=csv,noheader,nounits", "-lms", "50"]
    torch.cuda.synchronize()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        start, times = time.monotonic(), []
        while (now := time.monotonic()) < start + seconds:
            for _ in range(20):
                graph.replay()
            torch.cuda.synchronize()
            times.append((time.monotonic() - now) * 1e6 / 20 / len(calls))
        watcher.terminate()
        told = [line.split(",") for line in watcher.communicate()[0].splitlines() if line.count(",") == 1]
    if len(told) < 4:
        raise RuntimeError("nvidia-smi does not tell the clock")
    mhz, watts = (statistics.median(float(line[n]) for line in told[len(told) // 2 :]) for n in (0, 1))
    return Sustained(round(statistics.median(times[len(times) // 2 :]), 1), mhz, watts)
