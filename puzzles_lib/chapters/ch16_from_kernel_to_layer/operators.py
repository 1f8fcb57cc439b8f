"""Cells of chapter 16: made by `make notebooks`, to be changed in its notebook."""

import torch
from torch.library import custom_op


def signs(x):  # a bit per element of x, eight per byte; NaN counts as positive
    bits = torch.nn.functional.pad((~(x <= 0)).to(torch.uint8), (0, -x.shape[1] % 8))
    weights = 2 ** torch.arange(8, dtype=torch.uint8)
    return (bits.unflatten(1, (-1, 8)) * weights).sum(2, dtype=torch.uint8)


@custom_op("ch16::keep_signs", mutates_args=())
def keep_signs(x: torch.Tensor) -> torch.Tensor:
    packed = signs(x)
    x.relu_()
    return packed


@keep_signs.register_fake
def _(x):
    return x.new_empty((x.shape[0], (x.shape[1] + 7) // 8), dtype=torch.uint8)


@custom_op("ch16::row_by_row", mutates_args=())
def row_by_row(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


@row_by_row.register_fake
def _(x):
    return torch.empty_like(x)


@custom_op("ch16::clipped", mutates_args=())
def clipped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-1, 1)


@clipped.register_fake
def _(x):
    return torch.empty_like(x)
