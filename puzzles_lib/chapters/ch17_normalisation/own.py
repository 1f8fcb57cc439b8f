"""Judge the norm that a learner invents in chapter 17."""

from collections.abc import Callable

import torch
from torch import Tensor

DRAWS, ROWS, COLUMNS = 5, 2, 8
STEP = 0.1  # small, so that it rarely changes which number is the largest
SPREAD = 0.5  # of the numbers: a softmax of numbers far apart would lose the smallest to rounding


def problem(norm: Callable[[Tensor], Tensor]) -> str:
    """Return which number has no effect on the rest of its row, in one of several draws; "" for none."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        x = SPREAD * torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
        for column in range(COLUMNS):
            if not any(_has_effect(norm, x, column, step) for step in (STEP, -STEP)):
                return (
                    f"not solved yet: in my_norm, x[0, {column}] = {x[0, column]:.2f} has no effect on the "
                    f"rest of its row {[round(each, 2) for each in x[0].tolist()]}"
                )
    return ""


def _has_effect(norm: Callable[[Tensor], Tensor], x: Tensor, column: int, step: float) -> bool:
    changed = x.clone()
    changed[0, column] += step
    before, after = (norm(each.clone())[0].nan_to_num() for each in (x, changed))
    others = torch.arange(COLUMNS) != column
    return not torch.equal(before[others], after[others])
