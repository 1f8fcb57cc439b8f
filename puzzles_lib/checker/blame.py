"""Say which constant, or which slip, makes a kernel fail a case.

A kernel that passes all listed cases can't have a slip that would change one of them, so such slips are ruled
out for other cases. A constant such as -1e6 or 1e-30 is the cause if results are correct with another number
in its place.
"""

import dataclasses
import math
from collections.abc import Callable

import torch

from puzzles_lib.binding import Bound
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.attempts import Budget, OutOfTime, Refused, attempt
from puzzles_lib.checker.expected import Expected, PuzzleFault, evaluate
from puzzles_lib.checker.stand_ins import found
from puzzles_lib.checker.untested import TRITON
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Options
from puzzles_lib.runner.exact import float_constants, with_constant
from puzzles_lib.source import Refusal

TINY = 1e-3  # constants up to it may stand for 0
MOST_CONSTANTS = 2  # of them
LEAST = 10.0  # constants beyond it may stand for infinity
NEAR, FAR = 1e-37, 1e30  # closer to 0 than most numbers, and beyond those that a kernel must take

Wanted = Callable[[Puzzle, Case], tuple[dict[str, torch.Tensor], dict[str, Expected]]]


def possible_slips(puzzle: Puzzle, wanted: Wanted) -> Puzzle:
    """Return the puzzle without the slips that a kernel can't have if it passes all listed cases.

    wanted: returns a case's inputs and expected results.
    """
    kept = {}
    for text, slip in (puzzle.slips or {}).items():
        for case in (case for case in puzzle.cases if not case.pretend):
            try:
                inputs, expected = wanted(puzzle, case)
                found = evaluate(puzzle, case, inputs, slip)
            except PuzzleFault:
                continue
            if not all(
                want.accepts(found[name].to(want.argument.dtype)).all() for name, want in expected.items()
            ):
                break
        else:
            kept[text] = slip
    return dataclasses.replace(puzzle, slips=kept)


def constant(bound: Bound, wanted: Wanted, seconds: float, budget: Budget) -> str:
    """Return which constant makes the results of a case wrong, in words; "" if none does.

    With another number in its place they are correct: 0 or 1e-37 for a tiny constant, 1e30 for a large one.
    """
    program = bound.translated()
    if isinstance(program, Refusal):
        return ""
    tiny: dict[float, int] = {}
    for value, place in float_constants(program.module):
        if 0 < abs(value) <= TINY and not place.file.startswith(TRITON):
            tiny.setdefault(value, place.line)
    others = [(value, line, math.copysign(FAR, value)) for value, line in found(program.module, LEAST)]
    for value, line in list(tiny.items())[:MOST_CONSTANTS]:
        others += [(value, line, 0.0), (value, line, math.copysign(NEAR, value))]
    for value, line, other in others:
        module = with_constant(program.module, value, other)
        changed = dataclasses.replace(bound, program=dataclasses.replace(program, module=module))
        if _is_right(changed, wanted, seconds, budget):
            it = f"the {value:g} on line {line}"
            if abs(other) == FAR and _may_pass(bound, wanted, value):
                return beyond(value, line)
            if abs(other) == FAR:
                return f"values here are so small that {it} changes the result"
            return f"values here are so small that {it} changes the result, but {other:g} would be correct"
    return ""


def _may_pass(bound: Bound, wanted: Wanted, value: float) -> bool:
    """Return whether products of a case's inputs may be as large as a number."""
    inputs, _ = wanted(bound.puzzle, bound.case)
    most = 1.0
    for each in (x for x in inputs.values() if x.is_floating_point() and x.numel()):
        most *= max(1.0, float(each[each.isfinite()].abs().max())) if each.isfinite().any() else math.inf
    return most * max(bound.case.numbers.values(), default=1) >= abs(value)


def beyond(value: float, line: int) -> str:
    """Return that values pass a number that stands for infinity."""
    side = "below" if value < 0 else "above"
    cure = f"{math.copysign(FAR, value):g}"
    return f"values can be {side} the {value:g} on line {line}, and here they are: use {cure}"


def is_cured_by_infinity(bound: Bound, wanted: Wanted, seconds: float, budget: Budget) -> bool:
    """Return whether a kernel is correct in its case if 1e30 replaces the numbers that stand for infinity.

    If it isn't, the case may be one that no kernel can compute in float32.
    """
    program = bound.translated()
    if isinstance(program, Refusal):
        return False
    module = program.module
    for value, _ in found(module):
        module = with_constant(module, value, math.copysign(FAR, value))
    changed = dataclasses.replace(bound, program=dataclasses.replace(program, module=module))
    return _is_right(changed, wanted, seconds, budget)


def _is_right(bound: Bound, wanted: Wanted, seconds: float, budget: Budget) -> bool:
    """Return whether a kernel is correct in its case, by one run."""
    try:
        budget.ask()
        inputs, expected = wanted(bound.puzzle, bound.case)
        ran = attempt(bound, inputs, Options(seconds=seconds, quiet=True))
    except (OutOfTime, PuzzleFault, Refused):
        return False
    return verdicts.judge(bound.puzzle, bound.case, inputs, expected, ran, explains=False) is None
