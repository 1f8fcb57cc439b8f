"""Make cases for a number that stands for infinity, such as the -1e4 or -1e20 of scores that don't count.

A kernel with such a number passes as long as all its values are on the same side of it. It is a constant of
the kernel, so the IR shows it. The cases have values beyond it: of each input alone, and of two inputs
together, whose products are beyond it. They are so far apart that float32's rounding decides next to nothing.
The -1e30 of many correct kernels is no such number: inputs and scores aren't beyond it, as `check` says.
"""

import itertools
import math
from collections.abc import Iterator

import torch

from puzzles_lib.checker.made_cases import LARGEST, fits_float32, size_of
from puzzles_lib.checker.untested import TRITON
from puzzles_lib.contract import Fill
from puzzles_lib.dtypes import of_torch
from puzzles_lib.inputs import make_inputs, random
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner.exact import float_constants
from puzzles_lib.translator.ir import Module

LEAST = 1e3  # smaller numbers stand for nothing
MOST = 0.99 * LARGEST  # 1e30 rounded to bfloat16 is less than 1e30
MOST_OF_PAIRS = 1e26  # beyond larger numbers, sums of products might pass 1e30
MOST_TO_ROUND = 2.0**54  # larger numbers aren't added to round a sum
BEYOND = 2.0  # times a number
LANES = 16  # a size that is no multiple of it leaves lanes past the end
MOST_BASES = 2  # listed cases from which one is made
MOST_CONSTANTS = 2


def found(module: Module, least: float = LEAST) -> list[tuple[float, int]]:
    """Return the numbers of a kernel that may stand for infinity, negative ones first, and their lines."""
    lines: dict[float, int] = {}
    for value, location in float_constants(module):
        is_round = math.frexp(value)[0] in (0.5, 0.75)  # such as 1.5 * 2^23: its sum with x is rounded
        rounds = is_round and abs(value) < MOST_TO_ROUND
        if least <= abs(value) < MOST and not rounds and not location.file.startswith(TRITON):
            lines.setdefault(value, location.line)
    return sorted(lines.items())[:MOST_CONSTANTS]


def cases(puzzle: Puzzle, number: float) -> Iterator[Case]:
    """Yield cases with values beyond a number; none that float32 can't compute."""
    if not (puzzle.contract or puzzle.number):  # a puzzle of the learner's own
        return
    derived = puzzle.derived or {}
    names = [a.name for a in puzzle.inputs if a.dtype.is_floating_point and a.name not in derived]
    least = min(BEYOND * abs(number), (abs(number) + LARGEST) / 2)
    sign = math.copysign(1.0, number)
    ways = [{name: by * least} for by in (sign, -sign) for name in names]  # it may be subtracted
    if abs(number) <= MOST_OF_PAIRS:
        both = list(itertools.combinations(names, 2))
        root = math.sqrt(least)
        ways += [{one: root, other: by * root} for by in (sign, -sign) for one, other in both]
    for way in ways:
        made = (_case(puzzle, each, way) for each in _ragged_first(puzzle))
        for case in itertools.islice(filter(None, made), MOST_BASES):
            if fits_float32(puzzle, case, loosely=True):
                yield case


def _ragged_first(puzzle: Puzzle) -> list[Case]:
    """Return the listed cases, those with lanes past the end first, and of these the largest."""

    def key(case: Case) -> tuple[int, int]:
        whole = sum(case.numbers[name] % LANES == 0 for name in case.numbers if name in puzzle.sizes)
        return whole, -size_of(puzzle, case)

    return sorted((case for case in puzzle.cases if not case.pretend), key=key)


def _case(puzzle: Puzzle, case: Case, least: dict[str, float]) -> Case | None:
    """Return a case with these inputs' values beyond a number; None if a fill or a dtype doesn't allow it."""
    inputs = make_inputs(puzzle, case)
    for name, number in least.items():
        values = inputs[name].double()
        if (
            not (values[values.isfinite()] < 0).any()
            or BEYOND * abs(number) > of_torch(inputs[name].dtype).largest
        ):
            return None
    fills = {name: _beyond(case.fill.get(name, random), number) for name, number in least.items()}
    return Case(fill=case.fill | fills, **case.numbers)


def _beyond(fill: Fill, least: float) -> Fill:
    """Return a fill with values up to twice a number, or 1e30, where those of another fill are finite."""
    most = min(BEYOND * abs(least), LARGEST) / abs(least)

    def beyond(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        before = fill(shape, dtype, generator)
        values = least * (1 + (most - 1) * torch.rand(shape, generator=generator, dtype=torch.float64))
        return torch.where(before.isfinite(), values.to(dtype), before)

    beyond.__name__ = f"beyond_{least:.1g}"
    return beyond
