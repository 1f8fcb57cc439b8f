"""What a kernel would compute with another operator or function: + instead of *, or exchanged branches.

These slips are the same in every puzzle, so no puzzle lists them. Each gives the results of the spec with one
of its operations replaced. A report names one only if all slips that give the kernel's results have the same
words.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from puzzles_lib.checker.expected import evaluate
from puzzles_lib.checker.misread import MOST_ELEMENTS
from puzzles_lib.puzzle import Argument, Case, Puzzle

MOST_OPERATIONS = 32  # of a spec, whose slips are tried
WITH = "it is what you get with"
EXCHANGED = f"{WITH} the values of tl.where exchanged: where(condition, a, b) is a if the condition is true"
NEGATIVE_PART = f"{WITH} minimum instead of maximum, or with the values of tl.where exchanged"


def _instead(wrong: str, right: str) -> str:
    return f"{WITH} {wrong} instead of {right}"


_SWAPS: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "add": ((_instead("*", "+"), torch.mul), (_instead("-", "+"), torch.sub)),
    "sub": ((_instead("+", "-"), torch.add), (_instead("b - a", "a - b"), lambda a, b: b - a)),
    "mul": ((_instead("+", "*"), torch.add), (_instead("/", "*"), torch.div)),
    "div": ((_instead("*", "/"), torch.mul), (_instead("b / a", "a / b"), lambda a, b: b / a)),
    "gt": ((_instead(">=", ">"), torch.ge), (_instead("<", ">"), torch.lt)),
    "ge": ((_instead(">", ">="), torch.gt), (_instead("<=", ">="), torch.le)),
    "lt": ((_instead("<=", "<"), torch.le), (_instead(">", "<"), torch.gt)),
    "le": ((_instead("<", "<="), torch.lt), (_instead(">=", "<="), torch.ge)),
    "__and__": ((_instead("|", "&"), torch.bitwise_or),),
    "__or__": ((_instead("&", "|"), torch.bitwise_and),),
    "maximum": ((_instead("minimum", "maximum"), torch.minimum),),
    "minimum": ((_instead("maximum", "minimum"), torch.maximum),),
    "where": ((EXCHANGED, lambda condition, a, b: torch.where(condition, b, a)),),
    "exp": ((f"{_instead('exp2', 'exp')}: multiply its argument by log2(e)", torch.exp2),),
    "softmax": (
        (
            f"{_instead('exp2', 'exp')}: multiply its argument by log2(e)",
            lambda a, *args, **given: (a * math.log(2)).softmax(*args, **given),
        ),
    ),
    "log": ((f"{_instead('log2', 'log')}: multiply its result by log(2)", torch.log2),),
    "relu": ((NEGATIVE_PART, lambda a: a.clamp(max=0)),),
}


class _Operations(TorchFunctionMode):
    """Run a spec, and replace one of its operations. names: those that have slips, in order."""

    def __init__(self, place: int = -1, other: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.names: list[str] = []
        self.place, self.other = place, other

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if (name := getattr(func, "__name__", "")) in _SWAPS:
            self.names.append(name)
            if len(self.names) == self.place + 1 and self.other:
                return self.other(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def miswritten(
    puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], result: Argument
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each slip, in words, and the result that it leads to."""
    if sum(tensor.numel() for tensor in inputs.values()) > MOST_ELEMENTS:
        return
    operations = _Operations()
    if _result(puzzle, case, inputs, result, operations) is None:
        return
    if len(operations.names) > MOST_OPERATIONS:
        return
    for place, name in enumerate(operations.names):
        for text, other in _SWAPS[name]:
            value = _result(puzzle, case, inputs, result, _Operations(place, other))
            if value is not None:
                yield text, value


def _result(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    result: Argument,
    operations: _Operations,
) -> torch.Tensor | None:
    """Return the spec's result with these operations; None if they can't take their operands."""

    @functools.wraps(puzzle.spec)
    def spec(*args: Any, **given: Any) -> Any:
        with operations:
            return puzzle.spec(*args, **given)

    try:
        return evaluate(puzzle, case, inputs, spec)[result.name]
    except Exception:
        return None
