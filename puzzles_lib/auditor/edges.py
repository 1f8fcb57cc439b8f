"""Run the programs at the edges of a grid on tensors whose elements are generated when loaded."""

import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from puzzles_lib import compiler
from puzzles_lib.auditor.defined import span_of
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.checker.true_size import edges
from puzzles_lib.checker.untested import LOADS, sources
from puzzles_lib.runner import Options, Pretended, Program, Run, run
from puzzles_lib.translator.ir import Value

SECONDS = 0.7  # of CPU time, for each launch
MANY = 4096  # programs
_ACCESSES = ("tt.load", "tt.store", "tt.atomic_")


def at_edges(
    code: compiler.Program, launch: Launch, values: Mapping[str, np.ndarray], patience: float
) -> Run:
    """Run a launch's programs at the edges of its grid.

    values: a dict from a tensor's name to its elements, repeated as often as needed. Elements of other
    tensors are generated. patience: `Guard.patience`.
    """
    every = {}
    for name, tensor in launch.all_tensors.items():
        every[name] = Pretended((span_of(tensor),), tensor.dtype, values.get(name))
    tensors = {name: every[name] for name in launch.tensors}
    sizes = [each.numel() for each in tensors.values()]
    options = Options(
        zeroed=set(every),
        suffix="",
        seconds=SECONDS * patience,
        quiet=True,
        only=list(dict.fromkeys([*edges(launch.full_grid, sizes), *_near_the_end(launch.full_grid)])),
        others=launch.reached_in(every),
    )
    return run(code, launch.with_tensors(tensors), launch.full_grid, set(every), options)


def rows_by_number(code: compiler.Program) -> set[tuple[str, str]]:
    """Return pairs of parameters: a tensor, and one whose elements are in the offsets into it."""
    found = set()
    for op in code.module.operations():
        if op.name.startswith(_ACCESSES):
            into = sources(op.operands[:1])
            loads = [v.maker for v in into if v.maker is not None and v.maker.name in LOADS]
            numbers = pointers(sources(each for load in loads for each in load.operands[:1]))
            found |= set(itertools.product(pointers(into), numbers))
    return found


def pointers(values: Iterable[Value]) -> set[str]:
    """Return the names of the parameters among these that are pointers."""
    return {v.location.name for v in values if v.maker is None and v.type.is_pointer and v.location.name}


def _near_the_end(grid: Program) -> list[Program]:
    """Return programs of a large grid whose last ones may have nothing to do: its rows may be ragged."""
    total = math.prod(grid)
    numbers = (total - 2, total * 63 // 64, total * 15 // 16) if total >= MANY else ()
    return [(n // (grid[1] * grid[2]), n // grid[2] % grid[1], n % grid[2]) for n in numbers]


def integers(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the elements of integer tensors, which may be indices, by their places in storage."""
    found = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not tensor.is_complex() and tensor.numel():
            found[name] = torch.as_strided(tensor, (span_of(tensor),), (1,)).numpy()
    return found
