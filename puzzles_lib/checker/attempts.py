"""One guarded run of a bound kernel, on tensors of its own."""

from collections.abc import Mapping
from typing import Any

import torch

from puzzles_lib.binding import Bound
from puzzles_lib.interpreter import Run, run
from puzzles_lib.puzzle import Argument, Case


def attempt(bound: Bound, inputs: Mapping[str, torch.Tensor], **options: Any) -> Run:
    """A guarded run on copies of the inputs, and outputs of nonsense.

    options: of `puzzles_lib.interpreter.run`.
    """
    tensors = {name: tensor.clone() for name, tensor in inputs.items() if _takes(bound, name)}
    results = [result for result in bound.puzzle.results if _takes(bound, result.name)]
    tensors |= {result.name: nonsense(result, bound.case) for result in results}
    outputs = {f"{result.name}_ptr" for result in bound.puzzle.results}
    programs = bound.puzzle.programs(bound.case)
    return run(bound.kernel, bound.filled(tensors), programs, outputs, **options)


def _takes(bound: Bound, name: str) -> bool:
    return f"{name}_ptr" in bound.arguments or f"{name}_desc" in bound.arguments


def nonsense(result: Argument, case: Case) -> torch.Tensor:
    """An output full of what nobody should take for a result."""
    tensor = torch.empty(result.shape(case.numbers), dtype=result.dtype)
    if result.dtype.is_floating_point:
        return tensor.fill_(float("nan"))
    if result.dtype == torch.bool:
        return tensor.fill_(True)
    return tensor.view(torch.uint8).fill_(0xA5).view(result.dtype) if tensor.numel() else tensor
