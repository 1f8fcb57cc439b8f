"""Find two arguments of a launch, or two axes of its grid, that are taken for one another.

The call is repeated with two of them exchanged. If nothing is wrong then, that is the cause, whatever the
first finding looks like: a launch with M and N swapped reads out of bounds, leaves elements out, or races.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from puzzles_lib.auditor.launch import Launch

KINDS = ("values", "out of bounds", "never written", "uninitialized", "race")
WITHOUT_VALUES = ("out of bounds", "never written")  # those that an exchange can cure without a reference
MOST = 40  # exchanges that are tried
SECONDS = 1.0  # of CPU time, for all of them

Change = Callable[[Launch], Launch]


def pairs(launch: Launch) -> Iterator[tuple[str, Change]]:
    """Yield what may be exchanged in a launch, in words, and a function that exchanges it in one like it.

    Numbers that are equal aren't. Tensors of different dtypes come last, because their exchange is compiled.
    """
    given, constant = launch.arguments, {p.name for p in launch.kernel.params if p.is_constexpr}
    grid = launch.full_grid
    for axis, another in itertools.combinations(range(launch.axes), 2):
        if grid[axis] != grid[another]:
            yield f"axes {axis} and {another} of the grid", _with_axes(launch.name, axis, another)
    last = []
    for one, other in itertools.combinations(given, 2):
        first, second = given[one], given[other]
        found = f"{one} and {other}", _with_arguments(launch.name, one, other)
        if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
            alike = first.dtype == second.dtype and first is not second
            last += [found] if first.dtype != second.dtype else []
        else:
            alike = type(first) is type(second) is int and first != second
        if alike and (one in constant) == (other in constant):
            yield found
    yield from last


def _with_axes(kernel: str, one: int, other: int) -> Change:
    def change(launch: Launch) -> Launch:
        if launch.name != kernel:
            return launch
        sizes = list(launch.full_grid)
        sizes[one], sizes[other] = sizes[other], sizes[one]
        return replace(launch, full_grid=(sizes[0], sizes[1], sizes[2]))

    return change


def _with_arguments(kernel: str, one: str, other: str) -> Change:
    def change(launch: Launch) -> Launch:
        if launch.name != kernel:
            return launch
        given = launch.arguments
        return replace(launch, arguments={**given, one: given[other], other: given[one]})

    return change
