"""Note the numbers that code asks of tensors, and give them again if the tensors have no values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from puzzles_lib.auditor.catching import placed
from puzzles_lib.auditor.launch import Place

ASKS: set[Callable] = {
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__int__, torch.Tensor.__float__,
    torch.Tensor.__bool__, torch.Tensor.__index__,
}  # fmt: skip


class Noted(NamedTuple):
    """What a tensor answered, such as to `torch.Tensor.item`, and where the code has asked."""

    asked: Callable
    value: Any
    place: Place | None


@dataclass
class Scalars:
    """The numbers that one call of a function asks of tensors, in order.

    sizes: what replaces each size; None in a call with values. assumed: the answers that were given again.
    """

    noted: list[Noted] = field(default_factory=list)
    sizes: Mapping[int, int] | None = None
    assumed: list[Noted] = field(default_factory=list)
    count: int = 0

    def again(self, sizes: Mapping[int, int]) -> "Scalars":
        """Return the numbers for a call without values, with other sizes."""
        return Scalars(self.noted, sizes)

    def answer(self, asked: Callable, tensor: torch.Tensor) -> Any:
        """Return what a tensor answers. Without values, it is the answer at the call's own sizes.

        A number that is a replaced size is replaced, too. Raises what torch raises if the call asks for more
        numbers than the one with values, or for others.
        """
        if self.sizes is None:
            self.noted.append(Noted(asked, asked(tensor), placed()))
            return self.noted[-1].value
        self.count += 1
        known = self.noted[self.count - 1] if self.count <= len(self.noted) else None
        if tensor.device.type != "meta" or known is None or known.asked is not asked:
            return asked(tensor)
        if type(known.value) is int and known.value in self.sizes:
            return self.sizes[known.value]
        self.assumed.append(known)
        return known.value
