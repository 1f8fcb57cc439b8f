"""Hold the memory that a kernel sees: its tensor arguments and nothing else.

Every tensor argument gets invented addresses. Loads, stores and atomics map them back to elements, and check
every lane before they touch memory. They also note who wrote which element, what was read before it was
written, and how many bytes moved.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from puzzles_lib.dtypes import DType
from puzzles_lib.runner.addresses import REGION_BITS, Addresses
from puzzles_lib.runner.arithmetic import Arithmetic
from puzzles_lib.runner.buffer import NOBODY, Buffer, garbage, share
from puzzles_lib.runner.interleaving import Turns
from puzzles_lib.runner.lanes import KIND, MOST, ORDER, Labels, Lanes, joined, where
from puzzles_lib.runner.meetings import Meetings
from puzzles_lib.runner.ordering import Ordering
from puzzles_lib.runner.promises import Harm, Promise, TakenAtOnce, harm, untrue
from puzzles_lib.runner.records import (
    Access,
    Conflict,
    Product,
    Program,
    Source,
    Stop,
    Unlocked,
    Use,
    asks_again,
)
from puzzles_lib.runner.sides import Sides
from puzzles_lib.source import Site
from puzzles_lib.translator.ir import Operation


class Halt(BaseException):
    """Ends a run. A BaseException, so that no ``except Exception`` on the way swallows it."""

    def __init__(self, stop: Stop):
        super().__init__(stop.message)
        self.stop = stop


def _bits(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers, so that NaN equals NaN."""
    return array.view(f"u{array.dtype.itemsize}")


class Part(NamedTuple):
    """Lanes that point into one buffer: ``index`` of its elements, ``on`` the lanes (None: all)."""

    buffer: Buffer
    index: np.ndarray  # type: ignore[assignment]  # not tuple.index
    on: np.ndarray | None


@dataclass
class Waiting:
    """A program looks at an element, perhaps again and again.

    last: the program that had last changed the element. value: what the element was at the first look.
    """

    buffer: Buffer
    place: int
    last: int
    value: np.generic


@dataclass
class Asked:
    """What an iteration of a loop has looked at.

    plain: whether it looked by a load that the compiler may leave out or move.
    """

    buffer: Buffer
    index: np.ndarray
    values: np.ndarray
    site: Site
    plain: bool = True


class Memory:
    """All buffers of a run, and the notes taken while it accesses them.

    programs: program ids by launch order. skipped: called before most iterations of a long loop are left out;
        None if all have to run. See `skipping`.
    """

    skipped: Callable[[], None] | None = None

    def __init__(
        self,
        record: bool,
        programs: Sequence[Program] = ((0, 0, 0),),
        backwards: bool = False,
        elsewhere: int = 0,
        suffix: str = "_ptr",
    ):
        self.backwards = backwards  # lanes that meet at an element take turns in reverse order
        self.record = record
        self.suffix = suffix  # of a pointer's name, after its tensor's
        self.parameters: dict[str, str] = {}  # by the tensor's name, those that have another name
        self.site: Callable[[], Site] = lambda: Site(0, "")  # where the kernel is now
        self.programs = programs
        self.is_used: Callable[[], bool] = lambda: (
            True
        )  # whether anything is done with the result of the atomic that runs
        self.program: Program = (0, 0, 0)
        self.number = 0  # of the program, in launch order
        self.casts = False  # whether the kernel has cast a pointer: then alignment is checked too
        self.addresses = Addresses(elsewhere)
        self.tells_addresses = False  # whether the kernel has taken an address as a number
        self.buffers: list[Buffer] = []
        self.there: list[tuple[int, int, int]] = []  # where tensors are on this machine: address, bytes, base
        self.accesses: list[Access] = []
        self.dots: list[Product] = []  # of a run that is recorded
        self.changed: dict[str, Site] = {}
        self.conflict: Conflict | None = None
        self.repeated: dict[str, Conflict] = {}
        self.rewritten: dict[str, Conflict] = {}
        self.holes: dict[Site, str] = {}
        self.early_reads: dict[str, Site] = {}
        self.holes_are_zero = False
        self.drops_unused_loads = False
        self.sources: dict[Source, int] = {}  # of what is undefined, numbered as the run met them
        self.undefined: Source | None = None
        self.waiting: Waiting | None = None
        self.changes = 0  # times that a program may have changed an element
        self.turns: Turns | None = None  # of a run in which programs do not run one after the other
        self.resident = False  # all programs run at the same time
        self.atomics = 0  # the most that one program has done
        self._atomics = 0
        self.meetings = Meetings()
        self.asked: list[Asked] | None = None  # kept while a loop needs it
        self.not_associative: Site | None = None
        self.not_commutative: Site | None = None
        self.other_order: Site | None = None
        self.locks: Collection[str] = ()
        self.unlocked: Unlocked | None = None
        self.contended = False  # lanes of one atomic have met at an element
        self.shared = False  # a program has updated or overwritten what can be another's
        self.read: set[str] = set()  # outputs that are loaded
        self.stored: set[str] = set()
        self.loaded: dict[str, int] = {}  # bytes, lane by lane, by argument name
        self.bytes_moved = 0
        self.lane_bytes = 0
        self.flops = 0
        self.first_bad: Stop | None = None
        self.ordering = Ordering()
        self.promises: dict[tuple[str, Site], Promise] = {}  # those that are not true
        self.at_once: TakenAtOnce | None = None
        self.narrowing: int | None = None
        self.harm: Harm | None = None  # that false promises do, if `at_once` is given
        self.recorder: Any = None  # a `recording.Recorder`, which records accesses
        self.arithmetic = Arithmetic()
        self.sides = Sides()

    def add(self, name: str, tensor: Any, is_output: bool, address: int | None = None) -> int:
        """Give a tensor its address range, and return the address of its first element.

        address: the one that a table of pointers has for it; by default the tensor's own on this machine.
        """
        base = self.addresses.add(tensor.nbytes)
        self.buffers.append(Buffer(name, tensor, base, is_output))
        if size := self.buffers[-1].data.nbytes:
            self.there.append((tensor.data_ptr() if address is None else address, size, base))
        return base

    def pointer(self, name: str) -> str:
        """Return the name of the parameter that gets a tensor."""
        return self.parameters.get(name, name + self.suffix)

    def start_with(self, defined: Mapping[str, np.ndarray]) -> None:
        """Mark elements of outputs, by place in storage, as defined before the first program begins."""
        for buffer in self.buffers:
            if buffer.is_output and buffer.name in defined:
                places = defined[buffer.name]
                buffer.written |= places if buffer.unit == buffer.data.itemsize else _by_byte(buffer, places)

    def share_notes(self) -> None:
        """Let tensors that overlap in memory share their notes, byte by byte."""
        spans = [(*_extent(buffer.data), buffer) for buffer in self.buffers if len(buffer.data)]
        spans.sort(key=lambda span: span[0])
        together: list[list[Buffer]] = []
        last = 0
        for start, end, buffer in spans:
            if start < last:
                together[-1].append(buffer)
            else:
                together.append([buffer])
            last = max(last, end)
        for group in together:
            if len(group) > 1:
                share(group)

    def pointers_to(self, numbers: np.ndarray) -> np.ndarray:
        """Return pointers made of numbers. Addresses of this machine's tensors become pointers into these."""
        found = numbers
        for address, size, base in self.there:
            away = numbers - np.uint64(address)  # wraps around below it
            if (inside := away < size).any():
                found = np.where(inside, np.uint64(base) + away, found)
        return found

    def start_at_zero(self, names: Collection[str]) -> None:
        """Let these outputs hold zeros before the first program begins."""
        for buffer in self.buffers:
            if buffer.is_output and buffer.name in names:
                buffer.written[:] = True

    def enter(self, program: Program, number: int) -> None:
        """Begin a program: the accesses that follow are its own."""
        self.program, self.number = program, number
        self._atomics = 0
        self.waiting = self.asked = None
        self.ordering.enter()

    @property
    def replays(self) -> bool:
        """Return whether the running program is only repeating what it did before."""
        return self.turns is not None and self.turns.replays

    @property
    def order_matters(self) -> bool:
        """Return whether another order of programs, or of an atomic's lanes, might change the result."""
        shared = self.shared or bool(self.read & self.stored)
        return self.contended or (shared and len(self.programs) > 1)

    # ---- accesses: `pointers` are uint64 addresses, `mask` bool of the same shape or None for all on

    def load(self, *given: Any) -> tuple[np.ndarray, Labels]:
        """Return the values, and the labels of those that are undefined. It takes `_load`'s arguments."""
        if self.turns is None:
            return self._load(*given)
        for known in self.turns.known():
            return known
        return self.turns.found(self._load(*given))

    def store(self, *given: Any) -> None:
        """Store values. The arguments are those of `_store`."""
        if self.turns is None or not self.turns.known():
            self._store(*given)
            if self.turns is not None:
                self.turns.found(None)

    def atomic(self, *given: Any) -> tuple[np.ndarray, Labels]:
        """Update elements, and return what was there. The arguments are those of `_atomic`."""
        self._atomics += 1
        self.atomics = max(self.atomics, self._atomics)
        if self.turns is None:
            return self._atomic(*given)
        self.turns.atomic(self.site())
        for known in self.turns.known():
            return known
        return self.turns.found(self._atomic(*given))

    def _load(
        self,
        pointers: np.ndarray,
        mask: np.ndarray | None,
        other: np.ndarray | None,
        row: DType,
        other_labels: Labels = None,
        volatile: bool = False,
    ) -> tuple[np.ndarray, Labels]:
        """The values, and the labels of those that are undefined."""
        shape, dtype = pointers.shape, row.storage
        mask = self._tidy(mask, shape)
        self._take("load", pointers, mask, dtype)
        fill: Any = other
        labels = None
        off: Any = other_labels
        if mask is not None and other is None:
            if self.holes_are_zero:
                fill = np.zeros(shape, row.storage)
            else:
                fill, off = garbage(shape, row), self._hole(pointers, mask)
        if mask is not None:
            labels = where(~mask, off)
            if not mask.any():
                self._note_off("load", pointers, mask, dtype)
                return np.array(np.broadcast_to(fill, shape), dtype), labels
        parts = self._locate("load", pointers, mask, dtype)
        if len(parts) == 1 and parts[0].on is None:
            values = parts[0].buffer.view(dtype)[parts[0].index]
        else:
            fill = garbage(shape, row) if fill is None else fill
            values = np.array(np.broadcast_to(fill, shape), dtype)
            for buffer, index, on in parts:
                values[on] = buffer.view(dtype)[index]
        for part in parts:
            buffer, index, on = part
            self._count_load(part, shape, dtype, volatile)
            if self.asked is not None:
                self.asked.append(
                    Asked(buffer, index.ravel(), buffer.view(dtype)[index.ravel()], self.site())
                )
            found = self._undefined_in(buffer, index.ravel(), dtype)
            if found is not None:
                labels = np.zeros(shape, KIND) if labels is None else labels
                labels[... if on is None else on] = found.reshape(index.shape)
        if self.record:
            labels = joined(labels, self._beyond(shape, mask, parts))
        return values, labels

    def _store(
        self,
        pointers: np.ndarray,
        values: np.ndarray,
        mask: np.ndarray | None,
        dtype: np.dtype,
        labels: Labels = None,
        ends: bool = True,
    ) -> None:
        shape = pointers.shape
        mask = self._tidy(mask, shape)
        self._take("store", pointers, mask, dtype)
        if mask is not None and not mask.any():
            return self._note_off("store", pointers, mask, dtype)
        values = np.broadcast_to(values, shape).astype(dtype, copy=False)
        labels = None if labels is None else np.broadcast_to(labels, shape)
        for part in self._locate("store", pointers, mask, dtype):
            buffer, index, on = part
            every = ... if on is None else on
            mine = None if labels is None else labels[every].ravel()
            self._scatter(buffer, index.ravel(), values[every].ravel(), dtype, mine)
            self._touch("store", part, shape, dtype, ends)
        return None

    def _atomic(
        self,
        operation: Callable[..., np.ndarray],
        pointers: np.ndarray,
        operands: Sequence[np.ndarray],
        mask: np.ndarray | None,
        dtype: np.dtype,
        reads: bool = True,
        sem: str = "acq_rel",
        scope: str = "gpu",
    ) -> tuple[np.ndarray, Labels]:
        """Replace each element by ``operation(element, *operands)``, lane by lane.

        Returns the old ones, and the labels of those that are undefined. sem, scope: what it orders, as
        Triton names them.
        """
        shape = pointers.shape
        self.shared = True
        old, labels = np.zeros(shape, dtype), None
        mask = self._tidy(mask, shape)
        self.ordering.before_atomic(sem)
        self._take("atomic", pointers, mask, dtype)
        if mask is not None:
            what = "an atomic returns nothing for lanes that its mask switches off"
            labels = where(~mask, self.label(what))
            if not mask.any():
                self._note_off("atomic", pointers, mask, dtype)
                self.ordering.after_atomic(sem)
                return old, labels
        for part in self._locate("atomic", pointers, mask, dtype):
            buffer, index, on = part
            every = ... if on is None else on
            lanes = [np.broadcast_to(o, shape)[every].astype(dtype, copy=False).ravel() for o in operands]
            found = self._undefined_in(buffer, index.ravel(), dtype, reads)
            if found is not None:
                labels = np.zeros(shape, KIND) if labels is None else labels
                labels[every] = found.reshape(index.shape)
                if reads:
                    self._note_use(found, "an atomic")
            self._note_scope(buffer, index.ravel(), dtype, scope)
            self._note_meeting(buffer, index.ravel(), dtype)
            changes = self.changes
            old[every] = self._update(operation, buffer, index.ravel(), lanes, dtype).reshape(index.shape)
            self._label_elements(buffer, index.ravel(), dtype, found if reads else None)
            self._touch("atomic" if self.changes > changes else "poll", part, shape, dtype)
            if pointers.size == 1:
                flag = buffer.name, int(index.flat[0]) * dtype.itemsize
                used = self.is_used()
                at = self.site()
                tells = self.changes > changes
                self.ordering.synchronise(flag, self.number, len(self.programs), sem, scope, used, at, tells)
        self.ordering.after_atomic(sem)
        return old, labels

    def _note_meeting(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype) -> None:
        if self.turns is None or self.turns.plan is None:
            self.meetings.note(buffer, index, dtype, self.number, self._atomics)

    def promised(self, hint: str, values: np.ndarray, sizes: Sequence[int], step: int) -> None:
        """Note a false hint to the compiler. The arguments are those of `promises.untrue`."""
        key = hint, self.site()
        if key not in self.promises and (found := untrue(hint, values, sizes, step)):
            self.promises[key] = Promise(hint, tuple(sizes), found, self.site())

    def _take(self, kind: str, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype) -> None:
        if self.at_once and not self.harm:
            self.harm = harm(kind, self.site(), pointers, mask, dtype.itemsize, self.at_once)

    def brackets_matter(self) -> None:
        """Note that values were scanned with a combine function that is not associative on them."""
        self.not_associative = self.not_associative or self.site()

    def order_matters_within(self) -> None:
        """Note that values were reduced with a combine function that is not commutative on them."""
        self.not_commutative = self.not_commutative or self.site()

    def depends_on_order_within(self) -> None:
        """Note that a used result of a reduction depends on the order in which its values are combined."""
        self.other_order = self.other_order or self.site()

    # ---- what integers do

    def checked(self, result: Lanes, left: Lanes, right: Lanes, exactly: Callable[..., Any]) -> Lanes:
        """Return a sum, difference or product of integers. Labels may say what wrapped around."""
        return result

    def cast(self, result: Lanes, wide: Lanes) -> Lanes:
        """Return the result of a cast to a narrower integer. Labels may say what wrapped around."""
        return result

    def to_float(self, op: Operation, result: Lanes, integers: np.ndarray) -> Lanes:
        """Return integers that an operation made floats. It may be noted if these are rounded."""
        return result

    def from_float(self, result: Lanes, floats: Lanes, casts: Sequence[Operation]) -> Lanes:
        """Return integers that were an index, and then floats. Labels may say what was rounded there.

        casts: the operations that made floats of the integers.
        """
        return result

    def compared(self, row: DType, found: Labels, unsigned: bool) -> None:
        """Note the labels of integers of this dtype that are compared. unsigned: they may have no sign."""

    def taken_as_unsigned(self, labels: Labels) -> Labels:
        """Return the labels of integers that the kernel treats as unsigned."""
        return labels

    def no_offset(self, labels: Labels) -> Labels:
        """Return the labels of a result that can't be an offset anymore, such as a float."""
        return labels

    def counts_draws(self, labels: Labels) -> None:
        """Note the numbers that a random function of Triton gets. It makes one draw for each of them."""

    # ---- what is undefined

    def label(self, what: str, kind: str = "operation", order: bool = False) -> int:
        """Return the label of what becomes undefined here, at the running line.

        order: the values are defined, but not which lane holds which.
        """
        return self._label(Source(kind, what, self.site()), order)

    def _label(self, source: Source, order: bool = False) -> int:
        number = self.sources.setdefault(source, len(self.sources))
        return max(1, ORDER - 1 - number) if order else max(ORDER, MOST - number)

    def labels_of(self, kind: str) -> list[int]:
        """Return the labels of one kind so far."""
        return [self._label(source) for source in list(self.sources) if source.kind == kind]

    def in_order(self, found: Labels, *operands: Lanes) -> Labels:
        """Return the labels of what several blocks make, lane by lane.

        A block whose order is not known may be combined with a value that is the same in all lanes. If it is
        combined with another block, it is unknown which lanes meet.
        """
        if found is None or not ((found > 0) & (found < ORDER)).any():
            return found
        seen = {
            int(label) for each in operands if each.labels is not None for label in np.unique(each.labels)
        }
        loose = {label for label in seen if 0 < label < ORDER}
        fixed = any(_varies(each) for each in operands if each.labels is None or not each.labels.any())
        return self.mixed(found) if fixed or len(loose) > 1 else found

    def mixed(self, found: Labels) -> Labels:
        """Return the labels, with those of an unknown order replaced by those of undefined lanes."""
        if found is None:
            return None
        sources = list(self.sources)
        for label in np.unique(found).tolist():
            if 0 < label < ORDER:
                found = np.where(found == label, self._label(sources[ORDER - 1 - label]), found).astype(KIND)
        return found

    def use(self, labels: Labels, what: str, on: np.ndarray | None = None) -> None:
        """End the run if an undefined value is used, in the lanes ``on``, to decide what happens.

        Elements of an output that nothing was stored to don't end the run. Another program may store them:
        then this is a race, which the rest of the run will show.

        what: what the value is used for, such as ``"a mask"``.
        """
        source = self._note_use(labels, what, on)
        if source is not None and source.kind != "early" and not self.record:
            raise Halt(Stop("uninitialized", str(source), source.site))

    def _note_use(
        self,
        labels: Labels,
        what: str,
        on: np.ndarray | None = None,
        element: Callable[[int], int] | None = None,
    ) -> Source | None:
        """Keep where the first undefined values come from that are used or stored. Returns the source.

        element: of a store to the tensor ``what``, the element of a lane.
        """
        if labels is None:
            return None
        live = labels if on is None else np.where(on, labels, 0)
        worst = int(live.max(initial=0))
        if not worst:
            return None
        number = (MOST if worst >= ORDER else ORDER - 1) - worst
        place = None if element is None else element(int(live.argmax()))
        use = Use(self.program, what, self.site(), place)
        source = replace(list(self.sources)[number], use=use)
        if self.undefined is None or (self.undefined.kind == "early" and source.kind != "early"):
            self.undefined = source
        return source

    def _beyond(self, shape: tuple[int, ...], mask: np.ndarray | None, parts: list[Part]) -> Labels:
        """The labels of lanes that are on and point to nothing."""
        lost = np.ones(shape, bool) if mask is None else mask.copy()
        for part in parts:
            lost[... if part.on is None else part.on] = False
        return where(lost, self.label("what lies out of bounds")) if lost.any() else None

    def _hole(self, pointers: np.ndarray, mask: np.ndarray) -> int:
        """The label of lanes that a mask switched off and nothing fills."""
        buffer = self.buffer_at(pointers.ravel()[int(mask.argmax()) :])
        name = buffer.name if buffer else "?"
        source = Source("lanes", self.pointer(name), self.site())
        self.holes.setdefault(source.site, name)
        return self._label(source)

    def _undefined_in(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, reads: bool = True) -> Labels:
        """Return the labels of elements, one for each lane; None if all are defined."""
        if not buffer.is_output and buffer.labels is None:
            return None
        places = _own_places(buffer, index, dtype)
        found = None if buffer.labels is None else buffer.labels[places]
        if buffer.is_output:
            unwritten = ~buffer.written[places]
            if unwritten.any():
                place = int(places[unwritten.argmax()]) * buffer.unit // buffer.data.itemsize
                name, first = self.pointer(buffer.name), buffer.element(place)
                source = Source("early", name, self.site(), first=first)
                if reads:
                    self.early_reads.setdefault(buffer.name, source.site)
                found = joined(found, where(unwritten, self._label(source)))
        if found is None or not found.any():
            return None
        return found.reshape(len(index), -1).max(1)

    def _label_elements(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, labels: Labels) -> None:
        """What was stored is undefined where its labels say so."""
        if labels is None and buffer.labels is None:
            return
        if buffer.labels is None:
            buffer.labels = np.zeros(len(buffer.written), KIND)
        if labels is not None:
            labels = np.repeat(labels, max(1, dtype.itemsize // buffer.unit))
        buffer.labels[_own_places(buffer, index, dtype)] = 0 if labels is None else labels

    # ---- finding the elements at addresses

    @staticmethod
    def _tidy(mask: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
        if mask is None:
            return None
        if mask.shape != shape:
            mask = np.broadcast_to(mask, shape)
        return None if mask.all() else mask

    def _buffer(self, number: int) -> Buffer | None:
        return self.buffers[number] if 0 <= number < len(self.buffers) else None

    def buffer_at(self, pointers: np.ndarray) -> Buffer | None:
        """Return the tensor that the first of these addresses belongs to, or started from."""
        return self._buffer(int(self.addresses.places(pointers.ravel()[:1], 1)[0][0]))

    def elements_of(self, pointers: np.ndarray, dtype: np.dtype) -> tuple[str, np.ndarray] | None:
        """Return the tensor that addresses belong to, and their elements; None if there are several."""
        numbers, elements = self.addresses.places(pointers, dtype.itemsize)
        buffer = self._buffer(int(numbers.flat[0])) if np.unique(numbers).size == 1 else None
        return None if buffer is None else (buffer.name, elements)

    def _locate(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> list[Part]:
        """The elements that the lanes that are on point to, by buffer.

        Lanes outside of their tensor end the run; while recording they are noted and left out.
        """
        first = pointers.flat[0] if mask is None else pointers.flat[int(mask.argmax())]
        buffer = self._buffer((int(first) >> REGION_BITS) - 1)
        if buffer is None or self.casts or buffer.inside is not None:
            return self._locate_slowly(kind, pointers, mask, dtype)
        offsets = (pointers - np.uint64(buffer.base)).view(np.int64)
        elements = offsets >> (dtype.itemsize.bit_length() - 1)
        index = elements if mask is None else elements[mask]
        if index.min() < 0 or index.max() >= buffer.data.nbytes // dtype.itemsize:
            return self._locate_slowly(kind, pointers, mask, dtype)
        if self.record:
            self._note(kind, buffer, elements, mask, None, dtype)
        return [Part(buffer, index, mask)]

    def _locate_slowly(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> list[Part]:
        """The same for pointers into several buffers, outside of them, cast, or into strided tensors."""
        left = np.ones(pointers.shape, bool) if mask is None else mask.copy()
        numbers, elements = self.addresses.places(pointers, dtype.itemsize)
        parts = []
        for number, buffer in enumerate(self.buffers):
            mine = left & (numbers == number)
            if not mine.any():
                continue
            left &= ~mine
            bad = mine & ((elements < 0) | (elements >= buffer.data.nbytes // dtype.itemsize))
            crooked = mine & (pointers % np.uint64(dtype.itemsize) != 0)
            if bad.any():
                self._refuse(kind, buffer, elements[bad], dtype)
            elif crooked.any():
                offset = int(pointers[crooked][0]) - buffer.base
                self._refuse_access(f"misaligned {kind} of {self.pointer(buffer.name)}", f"at byte {offset}")
            elif buffer.inside is not None and dtype.itemsize == buffer.data.itemsize:
                bad = mine & ~buffer.inside[np.where(mine, elements, 0)]
                if bad.any():
                    self._refuse(kind, buffer, elements[bad], dtype)
            bad |= crooked
            good = mine & ~bad
            if self.record:
                self._note(kind, buffer, elements, mine, bad, dtype)
            if good.any():
                parts.append(Part(buffer, elements[good], good))
        if left.any():
            self._refuse_access(kind, "through a pointer that is not an argument of the kernel")
        return parts

    def _refuse(self, kind: str, buffer: Buffer, elements: np.ndarray, dtype: np.dtype) -> None:
        low, high = int(elements.min()), int(elements.max())
        which = f"element {low}" if low == high else f"elements {low}..{high}"
        size = buffer.data.nbytes // dtype.itemsize
        if buffer.inside is not None and 0 <= low and high < size:
            which += f" {'is' if low == high else 'are'} between its elements"
        if buffer.inside is not None:
            has = f"; it has {buffer.tensor.numel()}"
        else:  # the first beyond looks like the last one
            has = f"; {buffer.name} has {size}" + f", numbered 0 to {size - 1}" * (size > 1)
        self._refuse_access(
            f"out-of-bounds {kind} of {self.pointer(buffer.name)}", f"{which}{has}", colon=True
        )

    def _refuse_access(self, what: str, why: str, colon: bool = False) -> None:
        """End the run, or remember why it should have ended and go on while recording."""
        text = f"{what} in program {self.program}{':' if colon else ''} {why}"
        stop = Stop("out of bounds", text, self.site())
        if not self.record:
            raise Halt(stop)
        if self.recorder:
            self.recorder.refused(text)
        self.first_bad = self.first_bad or stop

    # ---- doing it, and taking notes

    def _touch(
        self, kind: str, part: Part, shape: tuple[int, ...], dtype: np.dtype, ends: bool = True
    ) -> None:
        """Note which lanes have touched an output, to know what orders them."""
        buffer, index, on = part
        if not buffer.is_output:
            return
        lanes = np.arange(index.size) if on is None else np.flatnonzero(on)
        places = _own_places(buffer, index.ravel(), dtype)
        lanes = np.repeat(lanes, places.size // max(1, lanes.size))
        self.ordering.touch(kind, buffer, places, lanes, shape, self.site(), self.program, ends)

    def _count_load(self, part: Part, shape: tuple[int, ...], dtype: np.dtype, volatile: bool) -> None:
        buffer, index = part.buffer, part.index.ravel()
        self._count(buffer, index, dtype)
        self.bytes_moved += _distinct(index) * dtype.itemsize
        if not buffer.is_output:
            return
        self.read.add(buffer.name)
        others = self._others(buffer, index, dtype, atomics=not volatile)
        self._note_conflict("read", buffer, index, others, dtype)
        if index.size == 1:
            flag = buffer.name, int(index[0]) * dtype.itemsize
            self.ordering.looked(flag, self.number, volatile, self.site())
        if volatile:
            return self._touch("look", part, shape, dtype)
        self._touch("load", part, shape, dtype)
        if self.resident:
            if buffer.reader is None:
                buffer.reader = np.full_like(buffer.storer, NOBODY)
            buffer.reader[_own_places(buffer, index, dtype)] = self.number
        return None

    def _count(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype) -> None:
        """What lanes load, each for itself."""
        size = index.size * dtype.itemsize
        self.loaded[buffer.name] = self.loaded.get(buffer.name, 0) + size
        self.lane_bytes += size

    def _scatter(
        self, buffer: Buffer, index: np.ndarray, new: np.ndarray, dtype: np.dtype, labels: Labels
    ) -> None:
        if dtype.itemsize < buffer.unit:
            buffer.refine()
        self.waiting = None
        self._note_use(
            labels,
            buffer.name,
            element=lambda lane: buffer.element(int(index[lane]) * dtype.itemsize // buffer.data.itemsize),
        )
        self._label_elements(buffer, index, dtype, labels)
        new = np.ascontiguousarray(new)
        self.bytes_moved += _distinct(index) * dtype.itemsize
        self.lane_bytes += index.size * dtype.itemsize
        data = buffer.view(dtype)
        before = data[index]
        data[index] = new
        differs = _bits(before) != _bits(new)
        self.changes += bool(differs.any())
        if not buffer.is_output:
            self.shared = True
            self._note_change(buffer, before, new)
            return
        self.stored.add(buffer.name)
        if self.locks and buffer.name not in self.locks and self.unlocked is None:
            held = (other.data == 1 for other in self.buffers if other.name in self.locks)
            if not any(each.any() for each in held):
                element = buffer.element(int(index[0]))
                self.unlocked = Unlocked(buffer.name, element, self.program, self.site())
        if self.conflict is None:
            lost = _bits(data[index]) != _bits(new)  # to another lane of this store
            self._note_conflict("write", buffer, index, np.where(lost, self.number, NOBODY), dtype)
            others = self._others(buffer, index, dtype)
            self.shared = self.shared or bool((others != NOBODY).any())
            stored = self._others(buffer, index, dtype, atomics=False)
            self._note_conflict("write", buffer, index, np.where(differs, stored, NOBODY), dtype)
            self._note_conflict("mixed", buffer, index, np.where(differs, others, NOBODY), dtype)
            if buffer.reader is not None and differs.any():
                readers = np.where(differs, self._readers(buffer, index, dtype), NOBODY)
                self._note_conflict("overwrite", buffer, index, readers, dtype)
            if buffer.name not in self.repeated and (others != NOBODY).any():
                self.repeated[buffer.name] = self._conflict("again", buffer, index, others, dtype)
        places = _own_places(buffer, index, dtype)
        if buffer.name not in self.rewritten and dtype.itemsize >= buffer.unit:
            again = places[buffer.storer[places] == self.number]
            if again.size:
                element = buffer.element(int(again[0]) * buffer.unit // buffer.data.itemsize)
                who = (self.program, self.program)
                self.rewritten[buffer.name] = Conflict(buffer.name, element, who, self.site(), "again")
        buffer.written[places] = True
        buffer.storer[places] = self.number

    def _update(
        self,
        operation: Callable[..., np.ndarray],
        buffer: Buffer,
        index: np.ndarray,
        operands: list[np.ndarray],
        dtype: np.dtype,
    ) -> np.ndarray:
        """An atomic's work on one buffer; returns the elements as each lane found them."""
        data = buffer.view(dtype)
        before = data[index]
        if index.size == 1:
            found = before
            data[index] = operation(before, *operands)
            if _bits(data[index]) == _bits(before):
                self._look(buffer, int(index[0]), before[0])
                if self.asked is not None:
                    self.asked.append(Asked(buffer, index, before, self.site(), plain=False))
            else:
                self.waiting = None
                self.changes += 1
        elif len(np.unique(index)) == len(index):
            found = before
            data[index] = operation(before, *operands)
            changed = bool((_bits(data[index]) != _bits(before)).any())
            self.changes += changed
            if not changed and self.asked is not None:
                self.asked.append(Asked(buffer, index, before, self.site(), plain=False))
        else:
            found = np.empty_like(before)
            self.changes += 1
            self.contended = True
            for lane in range(len(index))[:: -1 if self.backwards else 1]:
                one, element = slice(lane, lane + 1), index[lane]
                found[lane] = data[element]
                data[element] = operation(found[one], *(o[one] for o in operands))[0]
        self._count(buffer, index, dtype)
        self.bytes_moved += 2 * index.size * dtype.itemsize  # no two lanes share an update
        self.lane_bytes += index.size * dtype.itemsize
        if not buffer.is_output:
            self._note_change(buffer, before, data[index])
            return found
        others = self._others(buffer, index, dtype, atomics=False)
        self._note_conflict("update", buffer, index, others, dtype)
        places = _own_places(buffer, index, dtype)
        buffer.written[places] = True
        if buffer.updater is None:
            buffer.updater = np.full_like(buffer.storer, NOBODY)
        buffer.updater[places] = self.number
        return found

    def _note_scope(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, scope: str) -> None:
        """Two programs update an element, one of them by an atomic that is one for its own threads only."""
        if not buffer.is_output or (scope != "cta" and buffer.narrow is None):
            return
        if buffer.narrow is None:
            buffer.narrow = np.zeros(len(buffer.written), bool)
        places = _own_places(buffer, index, dtype)
        if buffer.updater is not None:
            others = buffer.updater[places].copy()
            others[others == self.number] = NOBODY
            others[~(buffer.narrow[places] | (scope == "cta"))] = NOBODY
            others[self.ordering.is_ordered(buffer, places, others)] = NOBODY
            others = others.reshape(len(index), -1).max(1)
            self._note_conflict("scope", buffer, index, others, dtype)
        buffer.narrow[places] = scope == "cta"

    def _others(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, atomics: bool = True) -> np.ndarray:
        """Which other program wrote each element, with nothing to order the two; NOBODY where none did."""
        places = _own_places(buffer, index, dtype)
        others = buffer.storer[places]
        others[others == self.number] = NOBODY
        if atomics and buffer.updater is not None:
            updater = buffer.updater[places]
            others = np.where((others == NOBODY) & (updater != self.number), updater, others)
        others[self.ordering.is_ordered(buffer, places, others)] = NOBODY
        return others if places is index else others.reshape(len(index), -1).max(1)

    def _readers(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Which other program read each element last, with nothing to order that and now; or NOBODY."""
        assert buffer.reader is not None
        places = _own_places(buffer, index, dtype)
        readers = buffer.reader[places]
        readers[readers == self.number] = NOBODY
        readers[self.ordering.is_ordered(buffer, places, readers, loads=True)] = NOBODY
        return readers if places is index else readers.reshape(len(index), -1).max(1)

    def _note_conflict(
        self, kind: str, buffer: Buffer, index: np.ndarray, others: np.ndarray, dtype: np.dtype
    ) -> None:
        """Keep the first race: this program and another, or two lanes of one store."""
        if self.conflict is None and (others != NOBODY).any():
            self.conflict = self._conflict(kind, buffer, index, others, dtype)

    def _conflict(
        self, kind: str, buffer: Buffer, index: np.ndarray, others: np.ndarray, dtype: np.dtype
    ) -> Conflict:
        """This program and the first of the others; at least one of them is not NOBODY."""
        lane = int((others != NOBODY).argmax())
        programs = (self.programs[int(others[lane])], self.program)
        places = _own_places(buffer, index[lane : lane + 1], dtype)
        why = self.ordering.why_not(kind, buffer, places, int(others[lane]), self.number)
        element = buffer.element(int(index[lane]) * dtype.itemsize // buffer.data.itemsize)
        return Conflict(buffer.name, element, programs, self.site(), kind, why, self.resident)

    def looked(self, pointers: np.ndarray, values: np.ndarray) -> None:
        """Note a volatile load of one element, which waits for it."""
        numbers, elements = self.addresses.places(pointers, values.dtype.itemsize)
        buffer = self._buffer(int(numbers.flat[0])) if pointers.size == 1 else None
        if buffer is not None and not self.replays:
            self._look(buffer, int(elements.flat[0]), values.flat[0])
        for asked in (self.asked or ())[-1:]:
            asked.plain = False

    def _look(self, buffer: Buffer, place: int, value: np.generic) -> None:
        """Note that the program looks at one element, perhaps to wait for it."""
        now = self.waiting
        if now is None or now.buffer is not buffer or now.place != place:
            self.waiting = Waiting(buffer, place, self._last(buffer, place, value.itemsize), value)

    def _last(self, buffer: Buffer, place: int, size: int) -> int:
        """Return the program that has changed an element last, or NOBODY."""
        notes = [n for n in (buffer.storer, buffer.updater) if n is not None]
        return max(int(n[np.array([place])][0]) for n in notes) if buffer.unit == size else NOBODY

    def deadlock(self, asked: Asked) -> Stop:
        """Return the Stop of a program that waits forever, because every iteration would find the same."""
        buffer, place, now = asked.buffer, int(asked.index[0]), self.waiting
        if now is None or now.buffer is not buffer or now.place != place:
            last = self._last(buffer, place, asked.values.itemsize)
            now = Waiting(buffer, place, last, asked.values[0])
        left = "which nobody has changed"
        changed = _bits(np.array(now.value)) != _bits(asked.values[:1])  # while it waited
        if changed.any():
            left = "as other programs have left it"
        elif now.last != NOBODY:
            by = "it has itself" if now.last == self.number else f"program {self.programs[now.last]} has"
            left = f"as {by} left it"
        element = f"{buffer.name}[{buffer.element(place)}], {asked.values[0]}"
        text = f"deadlock: program {self.program} waits for {element}, {left}"
        advice = (
            "take a ticket with tl.atomic_add, or wait only for programs with a smaller id: "
            "later programs have perhaps not started"
        )
        if self.resident:
            advice = f"all other programs have ended or wait as well, so nobody changes {buffer.name} anymore"
        held = buffer.name in self.locks or not self.resident
        if now.last != NOBODY and not changed.any() and held:
            advice = f"release the lock: tl.atomic_xchg({self.pointer(buffer.name)}, 0)"
        if asked.plain:
            advice = asks_again(self.pointer(buffer.name))
        return Stop("deadlock", text, asked.site, advice)

    def _note_change(self, buffer: Buffer, before: np.ndarray, after: np.ndarray) -> None:
        if buffer.name not in self.changed and (_bits(before) != _bits(after)).any():
            self.changed[buffer.name] = self.site()

    def _note(
        self,
        kind: str,
        buffer: Buffer,
        elements: np.ndarray,
        mask: np.ndarray | None,
        bad: np.ndarray | None,
        dtype: np.dtype,
    ) -> None:
        if dtype.itemsize != buffer.data.itemsize:  # a cast pointer counts in its own units
            elements = elements * dtype.itemsize // buffer.data.itemsize
        mask = np.ones(elements.shape, bool) if mask is None else mask.copy()
        bad = np.zeros(elements.shape, bool) if bad is None else bad.copy()
        self.accesses.append(Access(kind, buffer.name, self.program, elements, mask, bad, self.site()))

    def _note_off(self, kind: str, pointers: np.ndarray, mask: np.ndarray, dtype: np.dtype) -> None:
        """An access with no lane on touches nothing, but a picture shows it."""
        if not self.record or not pointers.size:
            return
        numbers, elements = self.addresses.places(pointers, dtype.itemsize)
        buffer = self._buffer(int(numbers.flat[0]))
        if buffer is not None:
            self._note(kind, buffer, elements, mask, None, dtype)


def _extent(data: np.ndarray) -> tuple[int, int]:
    """Where the memory of an array begins and ends."""
    start = data.ctypes.data
    return start, start + data.nbytes


def _by_byte(buffer: Buffer, places: np.ndarray) -> np.ndarray:
    return np.repeat(places, buffer.data.itemsize // buffer.unit)


def _varies(lanes: Lanes) -> bool:
    """Whether lanes differ."""
    return lanes.data.size > 1 and bool((_bits(lanes.data) != _bits(lanes.data).flat[0]).any())


def _distinct(index: np.ndarray) -> int:
    """How many different elements these are: memory is asked once for what several lanes want."""
    if index.size < 2:
        return index.size
    low = int(index.min())
    span = int(index.max()) - low + 1
    if span > 8 * index.size:
        return len(np.unique(index))
    seen = np.zeros(span, bool)
    seen[index - low] = True
    return int(np.count_nonzero(seen))


def _own_places(buffer: Buffer, index: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Where the buffer keeps notes of the elements that a pointer, perhaps a cast one, touches."""
    if dtype.itemsize == buffer.unit:
        return index
    first = index * dtype.itemsize // buffer.unit
    return (first[:, None] + np.arange(max(1, dtype.itemsize // buffer.unit))).ravel()
