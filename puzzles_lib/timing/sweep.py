"""A recorded autotune: kernels in hundreds of configurations, each compiled, checked and timed twice.

The record has ``device``, ``versions``, ``date``, ``multiprocessors`` and ``kernels``. A kernel has ``name``,
``sizes``, ``bytes`` (the least to move), ``flops``, ``fields`` and ``rows``. A row is a configuration and has
an entry for each field:

- the blocks, ``warps`` and ``stages``,
- ``registers`` and ``spills`` per thread, and ``shared`` bytes per program,
- ``us`` and ``again_us``, the medians of two rounds in different orders,
- ``error``, the error of the result.

If the launch is refused or its result is wrong, ``us`` is None and ``error`` says why.
"""

import contextlib
import importlib
import itertools
import os
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from puzzles_lib.timing.results import provenance, relative_error

SETS = 3  # of inputs, taken in turn, so that none is found in L2
REPLAYS = 9
MOST_ERROR = 1e-2  # of a bfloat16 result
FOUND = ("registers", "spills", "shared", "us", "again_us", "error")

Config = dict[str, int]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Swept:
    """A kernel and the configurations to try: values of each block size, of ``warps`` and of ``stages``.

    tensors: a function of the sizes that makes the tensors on the GPU. launch: a function of the tensors and
    a configuration that returns the compiled kernel. compile: a function that compiles a configuration. want:
    the expected results, by name. bytes: the fewest bytes to move. flops: all of them. more: other entries of
    the record.
    """

    name: str
    sizes: Mapping[str, int]
    tried: Mapping[str, tuple[int, ...]]
    tensors: Callable[[Mapping[str, int]], Tensors]
    launch: Callable[[Tensors, Config], Any]
    compile: Callable[[Config], object]
    want: Callable[[Tensors], Tensors]
    bytes: int
    flops: int
    more: Mapping[str, Any]

    def configurations(self) -> Iterator[Config]:
        for values in itertools.product(*self.tried.values()):
            yield dict(zip(self.tried, values, strict=True))


def swept(bench: str, module: str, tried: Sequence[Swept]) -> dict[str, Any]:
    """Return the record of the configurations in ``module.SWEPT``. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError(f"bench {bench} needs a CUDA device")
    compile_all(module, tried)
    found = [_swept(each) for each in tried]
    count = torch.cuda.get_device_properties(0).multi_processor_count
    return {**provenance(), "multiprocessors": count, "kernels": found}


def compile_all(module: str, tried: Sequence[Swept]) -> None:
    """Fill Triton's cache, in as many processes as there are cores."""
    work = [(module, place, config) for place, each in enumerate(tried) for config in each.configurations()]
    random.Random(0).shuffle(work)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for _ in pool.map(_compile, work, chunksize=4):
            pass


def _compile(work: tuple[str, int, Config]) -> None:
    module, place, config = work
    with contextlib.suppress(OutOfResources):
        importlib.import_module(module).SWEPT[place].compile(config)


def _swept(swept: Swept) -> dict[str, Any]:
    torch.manual_seed(0)
    sets = [swept.tensors(swept.sizes) for _ in range(SETS)]
    want = swept.want(sets[0])
    configurations = list(swept.configurations())
    found: dict[int, dict[str, Any]] = {}
    for round_, name in enumerate(("us", "again_us")):
        order = list(range(len(configurations)))
        random.Random(round_).shuffle(order)
        for number in order:
            config = configurations[number]
            if round_ == 0:
                found[number] = _tried(swept, sets, config, want)
            if isinstance(found[number]["error"], float):
                found[number][name] = _microseconds(swept, sets, config)
    fields = (*swept.tried, *FOUND)
    rows = [
        [{**config, **found[number]}.get(field) for field in fields]
        for number, config in enumerate(configurations)
    ]
    told = {"bytes": swept.bytes, "flops": swept.flops, "fields": fields, "rows": rows}
    return {"name": swept.name, "sizes": dict(swept.sizes), **swept.more, **told}


def _tried(swept: Swept, sets: list[Tensors], config: Config, want: Tensors) -> dict[str, Any]:
    """Launched once: what the driver says of it, and the largest error of its results."""
    for name in want:
        sets[0][name].fill_(torch.nan)
    try:
        compiled = swept.launch(sets[0], config)
    except OutOfResources as refusal:
        return {"shared": refusal.required, "error": f"out of {refusal.name}"}
    errors = [relative_error(sets[0][name], wanted) for name, wanted in want.items()]
    needs = {"registers": compiled.n_regs, "spills": compiled.n_spills, "shared": compiled.metadata.shared}
    if wrong := [error for error in errors if not error < MOST_ERROR]:  # or NaN, where nothing was stored
        return {**needs, "error": f"wrong by {wrong[0]:.1e}"}
    return {**needs, "error": float(f"{max(errors):.1e}")}


def _microseconds(swept: Swept, sets: list[Tensors], config: Config) -> float:
    """Median of replays of a CUDA graph that launches it once on each set."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for tensors in sets:
            swept.launch(tensors, config)
    graph.replay()
    pairs = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return round(statistics.median(a.elapsed_time(b) for a, b in pairs) * 1000 / len(sets), 2)


def table(record: Mapping[str, Any]) -> str:
    """Return for each kernel how many configurations there are, and the best five, as text."""
    lines = [f"{record['device']}, {record['date']}"]
    for kernel in record["kernels"]:
        fields, rows = kernel["fields"], kernel["rows"]
        at = fields.index("us")
        ran = sorted((row for row in rows if row[at] is not None), key=lambda row: row[at])
        lines.append(f"{kernel['name']}: {len(rows)} configurations, {len(rows) - len(ran)} refused")
        lines += ["  " + "  ".join(f"{f}={v}" for f, v in zip(fields, row, strict=True)) for row in ran[:5]]
    return "\n".join(lines)
