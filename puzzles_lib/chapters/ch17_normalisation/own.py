"""Judge the norm that a learner invents in chapter 17."""

import linecache
import traceback
from collections.abc import Callable

import torch
from torch import Tensor

DRAWS, ROWS, COLUMNS = 5, 2, 8
STEP = 0.1  # small, so that it rarely changes which number is the largest
SPREAD = 0.5  # of the numbers: a softmax of numbers far apart would lose the smallest to rounding


def problem(norm: Callable[[Tensor], Tensor]) -> str:
    """Return why a norm can't be used: an error, or a number without effect on its row; "" if it can."""
    if trouble := _trouble(norm):
        return trouble
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        x = SPREAD * torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
        for column in range(COLUMNS):
            if not any(_has_effect(norm, x, column, step) for step in (STEP, -STEP)):
                fault = (
                    f"in my_norm, x[0, {column}] = {x[0, column]:.2f} has no effect on the "
                    f"rest of its row {[round(each, 2) for each in x[0].tolist()]}"
                )
                if torch.equal(norm(x.clone()), x):
                    return f"not solved yet: {fault}"
                return f"it may be a norm, but this exercise excludes it: {fault}"
    return ""


def _trouble(norm: Callable[[Tensor], Tensor]) -> str:
    """Return the error that a norm raises, with its line, or what else it returns; "" if all is well."""
    x = torch.linspace(-1, 1, ROWS * COLUMNS, dtype=torch.float64).reshape(ROWS, COLUMNS)
    given = f"x of shape {ROWS} × {COLUMNS}"
    try:
        y = norm(x.clone())
    except Exception as error:
        code = getattr(norm, "__code__", None)
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code is code]
        where = linecache.getline(code.co_filename, lines[-1]).strip() if code and lines else ""
        told = f"my_norm raises {type(error).__name__} for {given}: {str(error).partition(chr(10))[0]}"
        hint = "\ndoes a mean or a maximum need keepdim=True?" if "match the size" in str(error) else ""
        return told + (f"\n{where}" if where else "") + hint
    if not isinstance(y, Tensor) or y.shape != x.shape:
        found = " × ".join(map(str, y.shape)) if isinstance(y, Tensor) else type(y).__name__
        return f"my_norm must return a tensor of x's shape, but returns {found} for {given}"
    return ""


def _has_effect(norm: Callable[[Tensor], Tensor], x: Tensor, column: int, step: float) -> bool:
    changed = x.clone()
    changed[0, column] += step
    before, after = (norm(each.clone())[0].nan_to_num() for each in (x, changed))
    others = torch.arange(COLUMNS) != column
    return not torch.equal(before[others], after[others])
