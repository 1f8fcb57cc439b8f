"""The memory a kernel sees: its tensor arguments and nothing else.

Every tensor argument gets an invented address range, so far from the others that no slip of an index
reaches a neighbour. Loads, stores and atomics map these addresses back to elements, and every lane is
checked before memory is touched. The same hook notes what is worth knowing: who wrote which element,
what was read before it was written, how many bytes moved.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from puzzles_lib.interpreter.records import Access, Conflict, Program, Site, Stop

REGION_BITS = 44  # each argument owns 2**44 bytes of addresses, and starts in their middle

NOBODY = -1  # nothing has stored to this element
ATOMIC = -2  # the last writer was an atomic, which any number of programs may do


class Halt(BaseException):
    """Ends a run. A BaseException, so that no ``except Exception`` on the way swallows it."""

    def __init__(self, stop: Stop):
        super().__init__(stop.message)
        self.stop = stop


@dataclass(frozen=True)
class Poison:
    """What lanes hold that a load's mask switched off and no ``other=`` fills.

    A GPU leaves them undefined. ``name``: ``"nan"`` (and a bit pattern for integers), ``"huge"`` (large
    values of both signs and another pattern, for code in which NaN gets lost), or ``"zero"``.
    """

    name: str

    def values(self, shape: tuple[int, ...], dtype: np.dtype, is_bfloat16: bool) -> np.ndarray:
        if self.name == "zero":
            return np.zeros(shape, dtype)
        if is_bfloat16:
            bits = np.uint16(0x7FC0) if self.name == "nan" else np.array([0x7149, 0xF149], np.uint16)
            return self._alternate(shape, bits)
        if dtype.kind == "f":
            huge = {2: 6e4, 4: 1e30, 8: 1e300}[dtype.itemsize]
            return self._alternate(shape, np.array([np.nan] if self.name == "nan" else [huge, -huge], dtype))
        if dtype.kind == "b":
            return np.full(shape, self.name == "nan")
        byte = 0xA5 if self.name == "nan" else 0x5A
        return np.full(shape, np.frombuffer(bytes([byte]) * dtype.itemsize, dtype)[0])

    @staticmethod
    def _alternate(shape: tuple[int, ...], values: np.ndarray) -> np.ndarray:
        values = np.atleast_1d(values)
        size = int(np.prod(shape))
        return np.resize(values, size).reshape(shape) if size else np.zeros(shape, values.dtype)


NAN, HUGE, ZERO = Poison("nan"), Poison("huge"), Poison("zero")


@dataclass
class Buffer:
    """One tensor argument as the kernel sees it: elements of storage from its first to its last."""

    name: str
    tensor: torch.Tensor
    base: int
    is_output: bool
    data: np.ndarray = field(init=False)  # flat view of the storage, shared with the tensor
    inside: np.ndarray | None = field(init=False)  # which elements belong to the tensor, if not all
    written: np.ndarray = field(init=False)
    writer: np.ndarray = field(init=False)

    def __post_init__(self):
        tensor = self.tensor.detach()
        span = 0
        if tensor.numel():
            span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        flat = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
        if tensor.dtype == torch.bfloat16:
            self.data = flat.view(torch.int16).numpy().view(np.uint16)
        else:
            self.data = flat.numpy()
        self.inside = None
        if tensor.numel() != span:
            index = torch.as_strided(torch.arange(span), tensor.shape, tensor.stride(), 0)
            self.inside = np.zeros(span, bool)
            self.inside[index.numpy()] = True
        self.written = np.zeros(span, bool)
        self.writer = np.full(span, NOBODY, np.int32)

    def view(self, dtype: np.dtype) -> np.ndarray:
        """The elements as ``dtype``, for a pointer that was cast to another type."""
        if dtype == self.data.dtype:
            return self.data
        size = self.data.nbytes // dtype.itemsize * dtype.itemsize
        return self.data.view(np.uint8)[:size].view(dtype)


def _bits(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers, so that NaN equals NaN."""
    return array.view(f"u{array.dtype.itemsize}")


class Memory:
    """All buffers of a run, and the notes taken while it accesses them."""

    def __init__(self, poison: Poison, record: bool, site: Callable[[], Site]):
        self.poison = poison
        self.poison_only: Site | None = None  # poison holes at this line alone, zero elsewhere
        self.record = record
        self.site = site
        self.program: Program = (0, 0, 0)
        self.number = 0  # of the program, in launch order
        self.programs: list[Program] = []
        self.buffers: list[Buffer] = []
        self.accesses: list[Access] = []
        self.changed: dict[str, Site] = {}
        self.conflict: Conflict | None = None
        self.holes: dict[str, Site] = {}
        self.early_reads: dict[str, Site] = {}
        self.loads: dict[str, int] = {}
        self.bytes_moved = 0
        self.first_bad: Stop | None = None
        self._used_atomics = False

    def add(self, name: str, tensor: torch.Tensor, is_output: bool) -> int:
        """Give a tensor its address range; returns the address of its first element."""
        base = ((len(self.buffers) + 1) << REGION_BITS) + (1 << (REGION_BITS - 1))
        self.buffers.append(Buffer(name, tensor, base, is_output))
        return base

    def enter(self, program: Program, number: int) -> None:
        """The accesses that follow are this program's."""
        self.program, self.number = program, number
        self._used_atomics = False

    # ---- accesses: `pointers` are uint64 addresses, `mask` bool of the same shape or None for all on

    def load(
        self,
        pointers: np.ndarray,
        mask: np.ndarray | None,
        other: np.ndarray | None,
        dtype: np.dtype,
        is_bfloat16: bool = False,
    ) -> np.ndarray:
        shape = pointers.shape
        mask = self._tidy(mask, shape)
        fill = other
        if mask is not None and other is None:
            fill = self._hole(pointers, mask, dtype, is_bfloat16)
        if mask is not None and not mask.any():
            self._note_off("load", pointers, mask, dtype)
            return np.array(np.broadcast_to(fill, shape), dtype)
        buffer, elements, mask, bad = self._locate("load", pointers, mask, dtype)
        if bad is not None and fill is None:
            fill = self.poison.values(shape, dtype, is_bfloat16)
        if buffer is None:
            values = self._gather_mixed(pointers, mask, dtype)
        else:
            data = buffer.view(dtype)
            values = data[elements] if data.size else np.zeros(shape, dtype)
            self._count_load(buffer, elements, mask, dtype)
        return values if mask is None else np.where(mask, values, fill).astype(dtype, copy=False)

    def store(
        self, pointers: np.ndarray, values: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> None:
        shape = pointers.shape
        mask = self._tidy(mask, shape)
        if mask is not None and not mask.any():
            return self._note_off("store", pointers, mask, dtype)
        values = np.broadcast_to(values, shape)
        if values.dtype != dtype:
            values = values.astype(dtype)
        buffer, elements, mask, _ = self._locate("store", pointers, mask, dtype)
        if buffer is not None:
            return self._scatter(buffer, elements, values, mask, dtype)
        on = np.ones(shape, bool) if mask is None else mask
        for each in self.buffers:
            part = on & (pointers >> np.uint64(REGION_BITS) == each.base >> REGION_BITS)
            if part.any():
                self._scatter(each, self._elements(each, pointers, dtype), values, part, dtype)
        return None

    def atomic(
        self,
        operation: Callable[[np.ndarray, np.ndarray], np.ndarray],
        pointers: np.ndarray,
        values: np.ndarray,
        mask: np.ndarray | None,
        dtype: np.dtype,
        reads: bool = True,
    ) -> np.ndarray:
        """Replace each element by ``operation(element, value)``, lane after lane; returns the old ones."""
        shape = pointers.shape
        self._used_atomics = True
        old = np.zeros(shape, dtype)
        mask = self._tidy(mask, shape)
        if mask is not None and not mask.any():
            self._note_off("atomic", pointers, mask, dtype)
            return old
        buffer, elements, mask, _ = self._locate("atomic", pointers, mask, dtype)
        on = np.ones(shape, bool) if mask is None else mask
        if buffer is None:
            raise Halt(Stop("error", "atomics on pointers into several tensors at once", self.site()))
        index, new = elements[on], np.broadcast_to(values, shape)[on].astype(dtype, copy=False)
        data = buffer.view(dtype)
        if reads:
            self._note_early(buffer, index)
        if len(np.unique(index)) == len(index):
            old[on] = data[index]
            data[index] = operation(data[index], new)
        else:
            before = np.zeros(len(index), dtype)
            for lane, element in enumerate(index):
                before[lane] = data[element]
                data[element] = operation(data[element : element + 1], new[lane : lane + 1])[0]
            old[on] = before
        self.bytes_moved += 2 * index.size * dtype.itemsize
        if buffer.is_output:
            self._own(buffer, index, dtype, ATOMIC)
        else:
            self.changed.setdefault(buffer.name, self.site())
        return old

    # ---- finding the elements behind addresses

    @staticmethod
    def _tidy(mask: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
        if mask is None:
            return None
        mask = np.broadcast_to(mask, shape)
        return None if mask.all() else mask

    @staticmethod
    def _elements(buffer: Buffer, pointers: np.ndarray, dtype: np.dtype) -> np.ndarray:
        offsets = (pointers - np.uint64(buffer.base)).view(np.int64)
        return offsets >> (dtype.itemsize.bit_length() - 1)

    def _region(self, address: int) -> Buffer | None:
        number = (int(address) >> REGION_BITS) - 1
        return self.buffers[number] if 0 <= number < len(self.buffers) else None

    def _locate(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> tuple[Buffer | None, np.ndarray, np.ndarray | None, np.ndarray | None]:
        """The buffer and element of each lane that is on; lanes that are off get element 0.

        The buffer is None where lanes point into several. Lanes outside their tensor end the run; while
        recording they are noted, switched off in the returned mask, and returned as the last value.
        """
        first = pointers.flat[0] if mask is None else pointers.flat[int(mask.argmax())]
        buffer = self._region(first)
        if buffer is not None:
            elements = self._elements(buffer, pointers, dtype)
            safe = elements if mask is None else np.where(mask, elements, 0)
            size = buffer.data.nbytes // dtype.itemsize
            if (
                size
                and safe.min() >= 0
                and safe.max() < size
                and buffer.inside is None
                and dtype.itemsize == buffer.data.itemsize
            ):
                if self.record:
                    self._note(kind, buffer.name, elements, mask, None)
                return buffer, safe, mask, None
        return self._locate_slowly(kind, pointers, mask, dtype)

    def _locate_slowly(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> tuple[Buffer | None, np.ndarray, np.ndarray | None, np.ndarray | None]:
        on = np.ones(pointers.shape, bool) if mask is None else mask
        bad = np.zeros(pointers.shape, bool)
        elements = np.zeros(pointers.shape, np.int64)
        touched = []
        for buffer in self.buffers:
            mine = on & (pointers >> np.uint64(REGION_BITS) == np.uint64(buffer.base >> REGION_BITS))
            if not mine.any():
                continue
            touched.append(buffer)
            index = self._elements(buffer, pointers, dtype)
            elements = np.where(mine, index, elements)
            wrong = mine & ((index < 0) | (index >= buffer.data.nbytes // dtype.itemsize))
            if buffer.inside is not None and dtype.itemsize == buffer.data.itemsize:
                within = np.where(mine & ~wrong, index, 0)
                wrong |= mine & ~buffer.inside[within]
            if dtype.itemsize > buffer.data.itemsize:
                offsets = (pointers - np.uint64(buffer.base)).view(np.int64)
                if (misaligned := mine & (offsets % dtype.itemsize != 0)).any():
                    lane = int(offsets[misaligned].flat[0])
                    text = f"misaligned {kind} of {buffer.name}_ptr in program {self.program}: byte {lane}"
                    raise Halt(Stop("out of bounds", text, self.site()))
            if wrong.any():
                self._refuse(kind, buffer, index[wrong], dtype)
                bad |= wrong
            if self.record:
                self._note(kind, buffer.name, index, mine, wrong)
        wild = on & ~bad
        for buffer in touched:
            wild &= pointers >> np.uint64(REGION_BITS) != np.uint64(buffer.base >> REGION_BITS)
        if wild.any():
            text = f"{kind} in program {self.program} through a pointer that is no argument of the kernel"
            raise Halt(Stop("out of bounds", text, self.site()))
        if bad.any():
            mask = on & ~bad
            elements = np.where(mask, elements, 0)
        else:
            bad = None
            elements = np.where(on, elements, 0)
        return (touched[0] if len(touched) == 1 else None), elements, mask, bad

    def _refuse(self, kind: str, buffer: Buffer, elements: np.ndarray, dtype: np.dtype) -> None:
        """Lanes are outside of the buffer: end the run, or remember it and go on while recording."""
        low, high = int(elements.min()), int(elements.max())
        which = f"element {low}" if low == high else f"elements {low}..{high}"
        size = buffer.data.nbytes // dtype.itemsize
        if buffer.inside is not None and low >= 0 and high < size:
            which += " lie between its elements,"
        text = (
            f"out-of-bounds {kind} of {buffer.name}_ptr in program {self.program}: {which}, "
            f"it has {size if buffer.inside is None else buffer.tensor.numel()}"
        )
        stop = Stop("out of bounds", text, self.site())
        if not self.record:
            raise Halt(stop)
        self.first_bad = self.first_bad or stop

    # ---- doing it, and taking notes

    def _gather_mixed(self, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
        """Load through pointers into several buffers (``tl.where`` of two pointers, say)."""
        on = np.ones(pointers.shape, bool) if mask is None else mask
        values = np.zeros(pointers.shape, dtype)
        for buffer in self.buffers:
            mine = on & (pointers >> np.uint64(REGION_BITS) == np.uint64(buffer.base >> REGION_BITS))
            if mine.any():
                elements = np.where(mine, self._elements(buffer, pointers, dtype), 0)
                values = np.where(mine, buffer.view(dtype)[elements], values)
                self._count_load(buffer, elements, mine, dtype)
        return values

    def _count_load(
        self, buffer: Buffer, elements: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> None:
        count = elements.size if mask is None else int(np.count_nonzero(mask))
        self.loads[buffer.name] = self.loads.get(buffer.name, 0) + count
        self.bytes_moved += count * dtype.itemsize
        if buffer.is_output and dtype.itemsize == buffer.data.itemsize:
            index = elements.ravel() if mask is None else elements[mask]
            self._note_early(buffer, index)
            owner = buffer.writer[index]
            foreign = (owner >= 0) & (owner != self.number)
            if self.conflict is None and not self._used_atomics and foreign.any():
                lane = int(foreign.argmax())
                programs = (self.programs[int(owner[lane])], self.program)
                self.conflict = Conflict(buffer.name, int(index[lane]), programs, self.site(), "read")

    def _scatter(
        self,
        buffer: Buffer,
        elements: np.ndarray,
        values: np.ndarray,
        mask: np.ndarray | None,
        dtype: np.dtype,
    ) -> None:
        index, new = (elements.ravel(), values.ravel()) if mask is None else (elements[mask], values[mask])
        new = np.ascontiguousarray(new)
        self.bytes_moved += index.size * dtype.itemsize
        data = buffer.view(dtype)
        before = data[index]
        data[index] = new
        if not buffer.is_output:
            if (_bits(before) != _bits(new)).any():
                self.changed.setdefault(buffer.name, self.site())
            return
        if self.conflict is None:
            self._look_for_conflict(buffer, index, before, new, data[index], dtype)
        self._own(buffer, index, dtype, self.number)

    def _look_for_conflict(
        self,
        buffer: Buffer,
        index: np.ndarray,
        before: np.ndarray,
        new: np.ndarray,
        after: np.ndarray,
        dtype: np.dtype,
    ) -> None:
        """Two lanes of this store, or this program and an earlier one, disagree about an element."""
        twice = _bits(after) != _bits(new)
        if twice.any():
            lane = int(twice.argmax())
            both = (self.program, self.program)
        elif dtype.itemsize == buffer.data.itemsize:
            owner = buffer.writer[index]
            clash = (owner >= 0) & (owner != self.number) & (_bits(before) != _bits(new))
            if not clash.any():
                return
            lane = int(clash.argmax())
            both = (self.programs[int(owner[lane])], self.program)
        else:
            return
        self.conflict = Conflict(buffer.name, int(index[lane]), both, self.site(), "write")

    def _own(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, writer: int) -> None:
        size = buffer.data.itemsize
        if dtype.itemsize != size:  # through a cast pointer: translate to the buffer's own elements
            first = index * dtype.itemsize // size
            index = (first[:, None] + np.arange(max(1, dtype.itemsize // size))).ravel()
        buffer.written[index] = True
        buffer.writer[index] = writer

    def _note_early(self, buffer: Buffer, index: np.ndarray) -> None:
        if buffer.is_output and buffer.name not in self.early_reads and not buffer.written[index].all():
            self.early_reads[buffer.name] = self.site()

    def _hole(self, pointers: np.ndarray, mask: np.ndarray, dtype: np.dtype, is_bfloat16: bool) -> np.ndarray:
        """The content of lanes that a mask switched off and nothing fills."""
        lane = pointers.flat[int(mask.argmax())]
        buffer = self._region(lane)
        site = self.site()
        self.holes.setdefault(buffer.name if buffer else "?", site)
        poison = self.poison if self.poison_only in (None, site) else ZERO
        return poison.values(pointers.shape, dtype, is_bfloat16)

    def _note(
        self,
        kind: str,
        argument: str,
        elements: np.ndarray,
        mask: np.ndarray | None,
        bad: np.ndarray | None,
    ) -> None:
        mask = np.ones(elements.shape, bool) if mask is None else mask.copy()
        bad = np.zeros(elements.shape, bool) if bad is None else bad.copy()
        self.accesses.append(Access(kind, argument, self.program, elements.copy(), mask, bad, self.site()))

    def _note_off(self, kind: str, pointers: np.ndarray, mask: np.ndarray, dtype: np.dtype) -> None:
        """An access with no lane on touches nothing, but a picture shows it."""
        buffer = self._region(pointers.flat[0]) if pointers.size else None
        if self.record and buffer is not None:
            self._note(kind, buffer.name, self._elements(buffer, pointers, dtype), mask, None)
