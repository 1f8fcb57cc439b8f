"""Timing on a GPU: medians of CUDA graph replays, the paths taking turns."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

ROUNDS = 40


def interleaved(
    paths: Mapping[str, Sequence[Callable[[], object]]], rounds: int = ROUNDS
) -> dict[str, float]:
    """Median microseconds per call of each path.

    A path is the same work on several sets of inputs, so that no run finds its input in a cache. Each
    path is captured in a CUDA graph, which leaves out the host's launch times, and the graphs take turns:
    when the chip gets warm and slows down, all of them do.
    """
    graphs = {}
    for name, calls in paths.items():
        for _ in range(2):
            for call in calls:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        graph.replay()
        graphs[name] = graph
    torch.cuda.synchronize()
    events = {name: [] for name in paths}
    for _ in range(rounds):
        for name, graph in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(start.elapsed_time(end) for start, end in pairs) * 1000 / len(paths[name])
        for name, pairs in events.items()
    }


def sustained(calls: Sequence[Callable[[], object]], seconds: float = 1.0) -> float:
    """Microseconds per call after some time of nothing else, when the chip's power limit has set in.

    The median of those graph replays that began in the second half of the time.
    """
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    begin = time.perf_counter()
    while (now := time.perf_counter() - begin) < seconds:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(20):  # back to back: the next are launched while these run
            graph.replay()
        end.record()
        end.synchronize()
        if now > seconds / 2:
            times.append(start.elapsed_time(end) / 20)
    return statistics.median(times) * 1000 / len(calls)
