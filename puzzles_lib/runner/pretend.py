"""Pretend that there are tensors of billions of elements, for runs of a few programs at their true size.

An input's element is a function of its index; an output remembers what was stored to it. Offsets are computed
as on a GPU. If an int32 or a narrower integer has wrapped around, the lanes get a label (see `lanes`). No
such lane may decide where or whether memory is touched.
"""

import math
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from puzzles_lib.dtypes import DType, of_torch
from puzzles_lib.runner.buffer import NOBODY, Buffer
from puzzles_lib.runner.lanes import INT32, NARROW_INTEGERS, Labels, Lanes, joined, where
from puzzles_lib.runner.memory import Halt, Memory, Part
from puzzles_lib.runner.numerics import shifted
from puzzles_lib.runner.records import Source, Stop
from puzzles_lib.translator.ir import Operation

WRAPPED = "wrapped"  # the kind of a `Source`: an integer that its dtype does not hold
WRAPPED_SIGNED = "wrapped signed"  # one that the dtype without a sign would hold


_EXACT: dict[Callable[..., Any], Callable[[int, int], int]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    shifted: lambda x, by: x << min(max(by, 0), 63),
}


@dataclass(frozen=True)
class Pretended:
    """Stands for a tensor. values: its elements, repeated as often as needed; None to generate them."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: np.ndarray | None = None

    def numel(self) -> int:
        return math.prod(self.shape)

    def data_ptr(self) -> int:
        return 0


class Sparse:
    """An array of any length: what was set, and a function of the index elsewhere."""

    def __init__(self, length: int, dtype: np.dtype, default: Callable[[np.ndarray], np.ndarray]):
        self.length, self.dtype, self.default = length, dtype, default
        self.itemsize, self.nbytes = dtype.itemsize, length * dtype.itemsize
        self.index, self.values = np.empty(0, np.int64), np.empty(0, dtype)  # set, by rising index

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        values = self.default(index)
        if len(self.index):
            places = np.minimum(np.searchsorted(self.index, index), len(self.index) - 1)
            values = np.where(self.index[places] == index, self.values[places], values)
        return values

    def __setitem__(self, index: np.ndarray, values: object) -> None:
        index = np.asarray(index).ravel()
        values = np.broadcast_to(np.asarray(values, self.dtype), index.shape)
        # The latest come first: of equal ones, np.unique keeps the first.
        self.index, first = np.unique(np.concatenate([index[::-1], self.index]), return_index=True)
        self.values = np.concatenate([values[::-1], self.values])[first]


def _scrambled(index: np.ndarray) -> np.ndarray:
    """Random bits, always the same for an index (splitmix64, doi.org/10.1145/2714064.2660195)."""
    bits = index.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _formula(row: DType) -> Callable[[np.ndarray], np.ndarray]:
    """An input's elements: numbers from -1 to 1, integers of random bits."""

    def values(index: np.ndarray) -> np.ndarray:
        bits = _scrambled(index)
        if row.is_float:
            return row.narrow((bits >> np.uint64(11)).astype(np.float64) / 2**52 - 1)
        return (bits & np.uint64(1)).astype(bool) if row.storage.kind == "b" else bits.astype(row.storage)

    return values


def _always(value: object, dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    return lambda index: np.full(np.shape(index), value, dtype)


def _repeated(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda index: values[index % len(values)]


class PretendedBuffer:
    """A `Buffer` for a pretended tensor, which has no memory."""

    order = inside = labels = reader = None
    shift = 0  # it shares no memory

    def __init__(self, name: str, tensor: Pretended, base: int, is_output: bool):
        self.name, self.tensor, self.base, self.is_output = name, tensor, base, is_output
        self.memory = name
        size, row = tensor.numel(), of_torch(tensor.dtype)
        values = _formula(row) if tensor.values is None else _repeated(tensor.values)
        self.data = Sparse(size, row.storage, values)
        self.written = Sparse(size, np.dtype(bool), _always(False, np.dtype(bool)))
        numbers = np.dtype(np.int32)
        self.storer = Sparse(size, numbers, _always(NOBODY, numbers))
        self.updater = Sparse(size, numbers, _always(NOBODY, numbers))
        self._views = {row.storage: self.data}
        self.unit = self.data.itemsize

    def refine(self) -> None:
        """Do nothing: notes stay per element here."""

    def view(self, dtype: np.dtype) -> Sparse:
        """Return the elements as ``dtype``: the same bits if it has the same width, else made-up values."""
        if dtype not in self._views:
            length = self.data.nbytes // dtype.itemsize

            def values(index: np.ndarray) -> np.ndarray:
                if dtype.itemsize == self.data.itemsize:
                    return self.data[index].view(dtype)
                return _scrambled(index).astype(dtype)

            self._views[dtype] = Sparse(length, dtype, values)
        return self._views[dtype]

    def written_elements(self) -> np.ndarray:
        """Return True for each element that was stored to, in no order; others are left out."""
        return np.ones(len(self.written.index), bool)

    def element(self, place: int) -> int:
        return place


def _stop(source: Source) -> Stop:
    return Stop("true size", source.what, source.site, column=source.column)


class PretendedMemory(Memory):
    """Memory without data, which knows the lanes that have wrapped around.

    narrowed: what has wrapped around in casts on the line ``narrowing``, and how many bytes were left.
    rounded: an integer that each cast to float has rounded.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.narrowed: dict[Source, int] = {}
        self.rounded: dict[Operation, int] = {}
        self.skipped = self._take_as_written
        self.column: Callable[[], int] = lambda: -1  # of the product that runs, on its line

    def add(self, name: str, tensor: Pretended, is_output: bool, address: int | None = None) -> int:
        base = super().add(name, torch.empty(0), is_output)
        self.buffers[-1] = PretendedBuffer(name, tensor, base, is_output)  # type: ignore[call-overload]
        if address is not None:
            self.there.append((address, self.buffers[-1].data.nbytes, base))
        return base

    def start_at_zero(self, names: Collection[str]) -> None:
        for buffer in self.buffers:
            if isinstance(buffer, PretendedBuffer) and buffer.name in names:
                if buffer.tensor.values is None:
                    buffer.data.default = _always(0, buffer.data.dtype)
                buffer.written.default = _always(True, np.dtype(bool))

    def _take_as_written(self) -> None:
        """Take all elements of the outputs as written, because iterations that store are left out."""
        for buffer in self.buffers:
            if isinstance(buffer, PretendedBuffer):
                buffer.written.default = _always(True, np.dtype(bool))

    def _touch(
        self, kind: str, part: Part, shape: tuple[int, ...], dtype: np.dtype, ends: bool = True
    ) -> None:
        """Do nothing: the order of threads is checked at real sizes only."""

    def _note_scope(self, *_: object) -> None:
        """Do nothing: the order of programs is checked at real sizes only."""

    def _note_meeting(self, *_: object) -> None:
        """Do nothing: programs are interrupted between atomics at real sizes only."""

    def checked(self, result: Lanes, left: Lanes, right: Lanes, exactly: Callable[..., Any]) -> Lanes:
        """Label the lanes of an int32, or of a narrower integer, that have wrapped around."""
        if result.row not in NARROW_INTEGERS:
            return result
        exact = exactly(
            left.data.astype(np.float64), right.data.astype(np.float64)
        )  # of 62 bits, 53 are enough

        def value(place: int) -> int:
            both = (int(np.broadcast_to(each.data, exact.shape).flat[place]) for each in (left, right))
            return _EXACT[exactly](*both)

        return self._note_wrapped(result, exact, value)

    def cast(self, result: Lanes, wide: Lanes) -> Lanes:
        """Label the lanes that a narrower integer cannot hold."""
        if result.row not in NARROW_INTEGERS:
            return result
        at = self.site()
        narrowing = at is not None and at.line == self.narrowing
        return self._note_wrapped(result, wide.data, lambda place: int(wide.data.flat[place]), narrowing)

    def compared(self, row: DType, found: Labels, unsigned: bool) -> None:
        """End the run if an integer that is compared has wrapped around in a cast that is looked at."""
        for source, own in [] if found is None else self._wraps(found):
            fits = source.kind == WRAPPED_SIGNED and unsigned and row is not INT32
            if source in self.narrowed and not fits and own.any():
                raise Halt(_stop(source))

    def to_float(self, op: Operation, result: Lanes, integers: np.ndarray) -> Lanes:
        """Note an integer that the float's dtype cannot hold."""
        off = result.wide.astype(np.float64) != integers
        if off.any():
            self.rounded[op] = int(integers.ravel()[int(off.argmax())])
        return result

    def from_float(self, result: Lanes, floats: Lanes, casts: Sequence[Operation]) -> Lanes:
        """Label the lanes of which the float's dtype cannot hold each integer."""
        most = 1 / floats.row.roundoff
        beyond = np.abs(floats.wide) > most
        before = [self.rounded[op] for op in casts if op in self.rounded]
        if before or beyond.any():
            number = before[0] if before else int(floats.wide.ravel()[int(beyond.argmax())])
            beyond |= bool(before)
            text = (
                f"offset {number:,} is rounded: {floats.row.name} holds all integers only up to {most:,.0f}"
            )
            label = self._label(Source(WRAPPED, text, self.site()))
            result.labels = joined(result.labels, where(beyond, label))
        return result

    def _note_wrapped(
        self, result: Lanes, exact: np.ndarray, value: Callable[[int], int], narrowing: bool = False
    ) -> Lanes:
        """Label the lanes of a result that lack the exact number; value: that number, by its place.

        narrowing: whether these lanes must not be compared, either.
        """
        bits = 8 * result.row.storage.itemsize
        beyond = (exact < -(2 ** (bits - 1))) | (exact > 2 ** (bits - 1) - 1)
        if beyond.any():
            unsigned = (exact >= 0) & (exact < 2**bits)
            for kind, lanes in ((WRAPPED, beyond & ~unsigned), (WRAPPED_SIGNED, beyond & unsigned)):
                if lanes.any():
                    number = value(int(lanes.argmax()))
                    label = self._wrap(kind, number, result.row, result.data.size == 1, narrowing)
                    result.labels = joined(result.labels, where(lanes, label))
        return result

    def taken_as_unsigned(self, labels: Labels) -> Labels:
        """Return the labels of integers that the kernel treats as unsigned, and so hold twice as much."""
        if labels is None:
            return None
        for source, own in self._wraps(labels):
            if source.kind == WRAPPED_SIGNED:
                labels = np.where(own, 0, labels)
        return labels

    def no_offset(self, labels: Labels) -> Labels:
        """Remove the labels of numbers that may wrap around, such as random ones."""
        if labels is None:
            return None
        for _, own in self._wraps(labels):
            labels = np.where(own, 0, labels)
        return labels

    def counts_draws(self, labels: Labels) -> None:
        """End the run if numbers have wrapped around, because they then repeat the draws of others."""
        for source, own in [] if labels is None else self._wraps(labels):
            if own.any():
                what = source.what.replace("wraps around: ", "wraps around, so the random draws repeat: ")
                raise Halt(_stop(replace(source, what=what)))

    def _wrap(self, kind: str, value: int, row: DType, single: bool, narrowing: bool) -> int:
        """The label of lanes that have wrapped around at the running line; value: what one should be.

        row: the dtype that is too narrow. single: that of single numbers. A size of 1 is a constant, which
        has no ``.to``.
        """
        site = self.site()
        known = (s for s in self.sources if s.kind == kind and s.site == site)
        if row is INT32:
            what, how = "int32", "convert a factor to int64 with .to(tl.int64)"
            how += ", or a size with tl.cast(size, tl.int64)" * single
        else:
            what = f"{8 * row.storage.itemsize} bits"
            how = f"keep offsets in {'int32' if -(2**31) <= value < 2**31 else 'int64'}"
        text = f"offset {value:,} does not fit {what} and wraps around: {how}"
        source = next(known, Source(kind, text, site, column=self.column()))
        if narrowing:
            self.narrowed[source] = row.storage.itemsize
        return self._label(source)

    def use(self, labels: Labels, what: str, on: np.ndarray | None = None) -> None:
        if labels is not None:
            for source, own in self._wraps(labels if on is None else np.where(on, labels, 0)):
                if own.any():
                    raise Halt(_stop(source))
        super().use(labels, what, on)

    def _note_use(
        self,
        labels: Labels,
        what: str,
        on: np.ndarray | None = None,
        element: Callable[[int], int] | None = None,
    ) -> Source | None:
        """Values may wrap around, as hashes do."""
        return super()._note_use(self.no_offset(labels), what, on, element)

    def _wraps(self, labels: np.ndarray) -> list[tuple[Source, np.ndarray]]:
        return [(s, labels == self._label(s)) for s in self.sources if s.kind in (WRAPPED, WRAPPED_SIGNED)]

    def _label_elements(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, labels: Labels) -> None:
        """End the run if an integer is stored that a cast has made narrower than what holds it there.

        What was stored is not followed further.
        """
        for source, own in [] if labels is None or not self.narrowed else self._wraps(labels):
            if (
                dtype.kind in "iu"
                and self.narrowed.get(source, dtype.itemsize) < dtype.itemsize
                and own.any()
            ):
                raise Halt(_stop(source))
