"""Measure what autograd keeps between forward and backward."""

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class Kept:
    """A context in which ``levels`` gets a number whenever autograd keeps or releases a tensor.

    levels: the bytes kept at that time, without parameters. A tensor that several layers keep counts once.
    """

    def __init__(self) -> None:
        self._hooks = saved_tensors_hooks(self._keep, self._take)
        self.levels = [0]
        self._users: Counter[int] = Counter()

    def __enter__(self) -> "Kept":
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    @property
    def peak(self) -> int:
        return max(self.levels)

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        self._count(tensor, 1)
        return tensor

    def _take(self, tensor: torch.Tensor) -> torch.Tensor:
        self._count(tensor, -1)
        return tensor

    def _count(self, tensor: torch.Tensor, change: int) -> None:
        if isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter):
            return
        storage = tensor.untyped_storage()
        before = self._users[storage.data_ptr()]
        self._users[storage.data_ptr()] = before + change
        if (before == 0) != (before + change == 0):
            self.levels.append(self.levels[-1] + change * storage.nbytes())
