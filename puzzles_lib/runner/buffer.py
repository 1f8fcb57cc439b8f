"""Hold a tensor argument as the kernel sees it, and define what undefined values look like."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from puzzles_lib.dtypes import DType, of_torch
from puzzles_lib.runner.lanes import KIND

NOBODY = -1  # no program has done so


def garbage(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return implausible values for undefined lanes: NaN, or a pattern of bits."""
    storage = dtype.storage
    if dtype.is_float:
        return np.full(shape, dtype.narrow(np.array(np.nan)))
    if storage.kind == "b":
        return np.ones(shape, bool)
    return np.full(shape, np.frombuffer(bytes([0xA5]) * storage.itemsize, storage)[0])


@dataclass
class Buffer:
    """One tensor argument: elements of storage from its first to its last, at an invented address."""

    name: str
    tensor: torch.Tensor
    base: int
    is_output: bool
    data: np.ndarray = field(init=False)  # flat view of the storage, shared with the tensor
    order: np.ndarray | None = field(init=False)  # places of the tensor's elements in it, unless 0, 1, 2...
    inside: np.ndarray | None = field(init=False)  # which places belong to the tensor, likewise
    unit: int = field(init=False)  # bytes that the notes below are taken for: an element's, or 1
    written: np.ndarray = field(init=False)
    storer: np.ndarray = field(init=False)  # number of the program that stored last, by element
    updater: np.ndarray | None = field(init=False, default=None)  # likewise for atomics, once there are any
    reader: np.ndarray | None = field(init=False, default=None)  # likewise for loads, on a resident grid
    narrow: np.ndarray | None = field(init=False, default=None)  # whether that was of scope "cta", likewise
    labels: np.ndarray | None = field(init=False, default=None)  # of undefined elements, once there are any
    memory: str = field(init=False)  # the name of a tensor for all that overlap in memory
    shift: int = field(init=False, default=0)  # bytes between the first of them and this one
    shared: int = field(init=False, default=0)  # bytes of all of them; 0 for one that overlaps with none

    def __post_init__(self) -> None:
        self.memory = self.name
        tensor = self.tensor.detach()
        span = 0
        if tensor.numel():
            span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        flat = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
        row = of_torch(tensor.dtype)
        self.data = flat.numpy() if row.code is None else flat.view(torch.uint8).numpy().view(row.storage)
        self.order = self.inside = None
        if not tensor.is_contiguous():
            places = torch.as_strided(torch.arange(span), tensor.shape, tensor.stride(), 0)
            self.order = places.reshape(-1).numpy()
            self.inside = np.zeros(span, bool)
            self.inside[self.order] = True
        self.unit = self.data.itemsize
        self.written = np.zeros(span, bool)
        self.storer = np.full(span, NOBODY, np.int32)

    @property
    def places(self) -> int:
        """The number of places that an order of accesses is kept for, in all tensors that share memory."""
        return self.shared or self.written.size

    def view(self, dtype: np.dtype) -> np.ndarray:
        """Return the elements as ``dtype``, for a pointer that was cast to another type."""
        if dtype == self.data.dtype:
            return self.data
        size = self.data.nbytes // dtype.itemsize * dtype.itemsize
        return self.data.view(np.uint8)[:size].view(dtype)

    def refine(self) -> None:
        """Keep notes per byte from now on, because the kernel stores parts of elements."""
        for name in ("written", "storer", "updater", "reader", "narrow", "labels"):
            notes = getattr(self, name)
            if notes is not None:
                setattr(self, name, np.repeat(notes, self.unit))
        self.unit = 1

    def written_elements(self) -> np.ndarray:
        """Return `written` by the tensor's own flat index."""
        written = self.written
        if len(self.data):
            written = np.asarray(written.reshape(len(self.data), -1).all(1))
        return written if self.order is None else written[self.order]

    def writers(self) -> np.ndarray:
        """Return the number of the last program that wrote each element, by the tensor's own flat index."""
        last = self.storer if self.updater is None else np.maximum(self.storer, self.updater)
        last = last.reshape(len(self.data), -1).max(1) if len(self.data) else last
        return last if self.order is None else last[self.order]

    def element(self, place: int) -> int:
        """Return the tensor's own flat index of a place in storage."""
        return place if self.order is None else int((self.order == place).argmax())


def share(buffers: Sequence[Buffer]) -> None:
    """Let tensors that overlap in memory share their notes, byte by byte."""
    starts = [buffer.data.ctypes.data for buffer in buffers]
    first = min(starts)
    size = max(start + buffer.data.nbytes for start, buffer in zip(starts, buffers, strict=True)) - first
    notes = {
        "written": np.zeros(size, bool),
        "storer": np.full(size, NOBODY, np.int32),
        "updater": np.full(size, NOBODY, np.int32),
        "labels": np.zeros(size, KIND),
    }
    for start, buffer in zip(starts, buffers, strict=True):
        for name, every in notes.items():
            setattr(buffer, name, every[start - first : start - first + buffer.data.nbytes])
        buffer.unit, buffer.memory = 1, buffers[0].name
        buffer.shift, buffer.shared = start - first, size
