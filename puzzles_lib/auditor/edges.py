"""Run the programs at the edges of a grid on tensors whose elements are not there, or not looked at."""

from collections.abc import Mapping

import numpy as np
import torch

from puzzles_lib import compiler
from puzzles_lib.auditor.defined import span_of
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.checker.true_size import edges
from puzzles_lib.runner import Options, Pretended, Run, run

SECONDS = 0.7  # of CPU time, for each launch


def at_edges(code: compiler.Program, launch: Launch, values: Mapping[str, np.ndarray]) -> Run:
    """Run a launch's programs at the edges of its grid. values: what a tensor's elements are, over and over;
    the others have made-up ones.
    """
    every = {}
    for name, tensor in launch.all_tensors.items():
        every[name] = Pretended((span_of(tensor),), tensor.dtype, values.get(name))
    tensors = {name: every[name] for name in launch.tensors}
    options = Options(
        zeroed=set(every),
        suffix="",
        seconds=SECONDS,
        quiet=True,
        only=edges(launch.full_grid, [each.numel() for each in tensors.values()]),
        others=launch.reached_in(every),
    )
    return run(code, launch.with_tensors(tensors), launch.full_grid, set(every), options)


def integers(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the elements of integer tensors, which may be indices, by their places in storage."""
    found = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not tensor.is_complex() and tensor.numel():
            found[name] = torch.as_strided(tensor, (span_of(tensor),), (1,)).numpy()
    return found
