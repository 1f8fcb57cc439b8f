"""Record what code does while it captures a CUDA graph, and do it again when the graph is replayed.

A GPU runs nothing while a graph is captured. Here each step runs at once, because the next one may need its
result's shape, and is then taken back: the tensors that were there before hold what they held.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

_MADE_EMPTY = ("aten::empty", "aten::new_empty")  # a replay leaves these tensors as they are
_capturing: "list[_Capture]" = []  # at most one


class Graph:
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self, *_: Any, **__: Any):
        self._capture: _Capture | None = None
        self._steps: list[Callable[[], Any]] = []

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Begin to record. Raises RuntimeError during another capture."""
        if _capturing:
            raise RuntimeError("a CUDA graph cannot be captured while another one is")
        self._capture = _Capture()
        self._capture.__enter__()
        _capturing.append(self._capture)

    def capture_end(self) -> None:
        """End the recording. Raises RuntimeError if there is none."""
        if self._capture is None:
            raise RuntimeError("capture_end without capture_begin")
        _capturing.clear()
        self._capture.__exit__(None, None, None)
        self._steps, self._capture = self._capture.finished(), None

    def replay(self) -> None:
        """Take the recorded steps again, on the same tensors."""
        with torch.no_grad():
            for step in self._steps:
                step()

    def reset(self) -> None:
        """Forget the steps."""
        self._steps = []

    def instantiate(self) -> None:
        """Do nothing: steps need no preparation."""

    def pool(self) -> tuple[int, int]:
        """Return a handle of the memory that graphs may share."""
        return 0, 0


@contextlib.contextmanager
def captured(cuda_graph: Graph, *_: Any, **__: Any) -> Iterator[None]:
    """Stand for `torch.cuda.graph`: record the block in a graph."""
    cuda_graph.capture_begin()
    try:
        yield
    finally:
        cuda_graph.capture_end()


def is_capturing() -> bool:
    """Return whether a graph is being captured."""
    return bool(_capturing)


@contextlib.contextmanager
def launching(launch: Callable[[], Any], tensors: Iterable[object]) -> Iterator[None]:
    """Record a launch, if a graph is being captured. What is launched in the block is part of it."""
    if not _capturing:
        yield
        return
    capture = _capturing.pop()
    try:
        capture.keep(tensors)
        capture.steps.append(launch)
        yield
    finally:
        _capturing.append(capture)


class _Capture(TorchDispatchMode):
    """Records torch's operators. steps: what to do when the graph is replayed."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], Any]] = []
        self._made: dict[int, torch.UntypedStorage] = {}  # while recording
        self._kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator) or func._schema.is_mutable:
            self.keep(pytree.tree_leaves((args, kwargs)))
        result = func(*args, **kwargs)
        for storage in _storages(pytree.tree_leaves(result)):
            if storage._cdata not in self._kept and not _among(storage, (args, kwargs)):
                self._made[storage._cdata] = storage
        if isinstance(func, HigherOrderOperator) or not func._schema.name.startswith(_MADE_EMPTY):
            self.steps.append(functools.partial(_again, func, args, kwargs, result))
        return result

    def keep(self, tensors: Iterable[object]) -> None:
        """Keep what these tensors hold before a step may change it, if they were there before the capture."""
        for storage in _storages(tensors):
            if storage._cdata not in self._kept and storage._cdata not in self._made:
                self._kept[storage._cdata] = storage, storage.clone()

    def finished(self) -> list[Callable[[], Any]]:
        """Restore the tensors that were there before, and return the steps."""
        for storage, before in self._kept.values():
            storage.copy_(before)
        return self.steps


def _again(func: Callable[..., Any], args: tuple, kwargs: dict[str, Any], result: Any) -> None:
    """Call an operator once more, and let its first result hold what comes out."""
    other = func(*args, **kwargs)
    for old, new in zip(pytree.tree_leaves(result), pytree.tree_leaves(other), strict=True):
        if isinstance(old, torch.Tensor) and old.untyped_storage()._cdata != new.untyped_storage()._cdata:
            old.copy_(new)


def _among(storage: torch.UntypedStorage, arguments: object) -> bool:
    return any(each._cdata == storage._cdata for each in _storages(pytree.tree_leaves(arguments)))


def _storages(leaves: Iterable[object]) -> Iterator[torch.UntypedStorage]:
    with _disable_current_modes():
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                yield leaf.untyped_storage()
