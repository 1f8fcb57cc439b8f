"""Find out what orders the accesses to an element, of one program's threads and of two programs.

Triton orders nothing between the threads of a program. What one of them stores, another may load too early,
unless there is a barrier (``tl.debug_barrier``) between them. Two programs are ordered only by atomics on the
same element: what the first one stored before its atomic is *released*, and the second one finds it after it
has *acquired* (PTX ISA, section "Memory Consistency Model"). A single thread does an atomic on one element.
What the other threads have stored is released only if there is a barrier before the atomic. It is acquired
only if the atomic's result is used, because the compiler then hands the result to all threads over a barrier.
From Triton 3.9 on, the compiler itself puts a barrier before each atomic that releases and after each that
acquires.

What counts as a barrier (``bar.sync`` in the PTX of triton 3.7.1 for sm_90): ``tl.debug_barrier``, and an
atomic on one element whose result is used, also with ``sem="relaxed"``. Reductions and scans across warps,
dots and conversions of layouts have barriers, too, for the shared memory that they use. These are not
counted, because they depend on the number of warps, the shapes and the version. For example, ``tl.sum`` has
two with 4 warps and none with 1. The compiler may also move a load or store across them. The barrier before
``tl.atomic_cas`` isn't counted, which no other atomic has. A block of atomics has none.

Time is counted in eras. An era ends at each barrier, and with each program.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from puzzles_lib.runner.buffer import Buffer
from puzzles_lib.runner.records import UNMARKED, Cause, Program, Touch, WithinProgram
from puzzles_lib.source import Site

# A mark is an access's number, a lane of its block, and the thread that holds it.
_LANE, _ACCESS = 16, 40  # bits below each
_THREADS = (1 << _LANE) - 1
_SEVERAL = _THREADS  # instead of a thread: more than one
_UNKNOWN = _THREADS - 1
_COPIES = _THREADS - 2  # more than one, and what they have loaded goes into the lane's store alone
_RELEASES = ("acq_rel", "release")
_ACQUIRES = ("acq_rel", "acquire")


@dataclass(frozen=True)
class Holders:
    """Which threads hold the lanes of a block that is loaded or stored.

    first: the thread of each lane, flattened; if several hold a lane, the lowest, which stores it. A thread's
        number is warp * threads of a warp + lane of the warp.
    several: whether other threads load the lane too, for a use of their own.
    stored: whether what all of them load goes into stores of the same lane and nowhere else.
    early: whether it is loaded before any thread can store to the tensor.
    """

    first: np.ndarray
    several: bool = False
    stored: bool = False
    early: bool = False


HeldBy = Callable[[str, Site, tuple[int, ...]], Holders | None]
"""Who holds the lanes of an access: its kind, its line, the shape of its block. None: cannot be known."""


@dataclass
class _Marks:
    """For each element of a buffer: when it was touched last, and by which thread of which access.

    era: as counted by barriers. clock: as counted by atomics of one element.
    """

    era: np.ndarray
    mark: np.ndarray
    clock: np.ndarray

    @classmethod
    def of(cls, buffer: Buffer) -> "_Marks":
        return cls(*(np.zeros(buffer.places, np.int64) for _ in range(3)))

    def refined(self, times: int) -> "_Marks":
        return _Marks(*(np.repeat(each, times) for each in (self.era, self.mark, self.clock)))


@dataclass
class _Notes:
    stored: _Marks
    loaded: _Marks | None = None
    updated: _Marks | None = None  # by atomics
    looked: _Marks | None = None  # by volatile loads
    endless: _Marks | None = None  # by descriptors; its eras are those in which the programs began

    def refine(self, buffer: Buffer) -> None:
        """A place is a byte where it was an element, since somebody stores parts of elements."""
        times = buffer.places // max(1, self.stored.era.size)
        if times > 1:
            self.stored = self.stored.refined(times)
            self.loaded = self.loaded and self.loaded.refined(times)
            self.updated = self.updated and self.updated.refined(times)
            self.looked = self.looked and self.looked.refined(times)
            self.endless = self.endless and self.endless.refined(times)


@dataclass(frozen=True)
class _Met:
    """A program's last access to a flag at a line, by an atomic or a load of one element.

    sem: what the atomic asked for; ``"volatile"`` or ``"plain"`` for a load. clock: after it. tells: whether
    it changed the flag. used: whether its result is used.
    """

    sem: str
    clock: int
    site: Site
    tells: bool = False
    used: bool = True


@dataclass
class Ordering:
    """Follows one run. Without ``held_by``, each line and each lane of a block counts as its own thread.

    at_atomics: whether the compiler puts barriers around atomics, as Triton does from 3.9 on.
    resident: whether all programs run at the same time. Then an atomic that leaves a flag unchanged releases
        nothing: a program that reads the flag can't know that the atomic has happened.
    suspect: whether two accesses met with nothing between them; only then are the threads worth knowing.
    """

    held_by: HeldBy | None = None
    at_atomics: bool = False
    resident: bool = False
    suspect: bool = False
    race: WithinProgram | None = None
    era: int = 2  # even; what a whole block touches bears the odd number after it
    _notes: dict[str, _Notes] = field(default_factory=dict)
    _accesses: list[tuple[Touch, Holders | None]] = field(default_factory=list)
    _numbers: dict[tuple, int] = field(default_factory=dict)
    _released: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    acquired: np.ndarray | None = None  # era and clock up to which each program's stores are there
    clock: int = 0  # atomics of one element so far
    _met: dict[tuple[str, int], dict[int, dict[Site, _Met]]] = field(default_factory=dict)  # by flag, program
    entered: int = 2  # the era in which this program began

    def enter(self) -> None:
        """Begin the next program, which is not ordered after any other."""
        self.era += 2
        self.entered = self.era
        self.acquired = None

    def barrier(self) -> None:
        self.era += 2

    def before_atomic(self, sem: str) -> None:
        if self.at_atomics and sem in _RELEASES:
            self.barrier()

    def after_atomic(self, sem: str) -> None:
        if self.at_atomics and sem in _ACQUIRES:
            self.barrier()

    # ---- within a program

    def touch(
        self,
        kind: str,
        buffer: Buffer,
        places: np.ndarray,
        lanes: np.ndarray,
        shape: tuple[int, ...],
        site: Site,
        program: Program,
        ends: bool = True,
    ) -> None:
        """Note a load, store or atomic of an output. lanes: flat indices in the block, one for each place.

        kind: ``"load"``, ``"store"``, ``"atomic"``, ``"look"`` or ``"poll"``. A look is a volatile load.
            It doesn't race with an atomic before it. A poll is an atomic that leaves an element unchanged. It
            doesn't race with a look before it, but an atomic that changes the element does.
        ends: whether a barrier waits for the access to end. No barrier waits for a descriptor's store: PTX's
            ``cp.async.bulk.wait_group.read`` waits until the block has been read, not until it is written.
        """
        notes = self._notes.setdefault(buffer.memory, _Notes(_Marks.of(buffer)))
        notes.refine(buffer)
        places = places + buffer.shift if buffer.shift else places
        asked, kind = kind, {"look": "load", "poll": "atomic"}.get(kind, kind)
        access = self._access(kind, site, shape)
        marks = self._marks(access, lanes)
        if notes.endless is not None and self.race is None:
            again = notes.endless.era[places] == self.entered
            self._note_race(buffer, places, marks, notes.endless, program, again, ends=False)
        if not ends:
            if notes.endless is None:
                notes.endless = _Marks.of(buffer)
            notes.endless.era[places] = self.entered
            notes.endless.mark[places] = marks
        if kind == "store":
            mine = notes.stored
            others: tuple[_Marks | None, ...] = (notes.stored, notes.loaded, notes.updated, notes.looked)
        elif asked == "look":
            mine = notes.looked = notes.looked or _Marks.of(buffer)
            others = (notes.stored,)
        elif kind == "load":
            mine = notes.loaded = notes.loaded or _Marks.of(buffer)
            others = (notes.stored, notes.updated)
        else:
            mine = notes.updated = notes.updated or _Marks.of(buffer)
            others = (notes.stored, notes.loaded, None if asked == "poll" else notes.looked)
        for other in others:
            if other is not None and self.race is None:
                follows = kind == "store" and other is notes.loaded
                clash = self._clash(other, places, marks, follows)
                self._note_race(buffer, places, marks, other, program, clash)
        holders = self._accesses[access][1]
        if kind == "load" and holders is not None and holders.early:
            return  # no store that follows can be too early for it
        if kind != "store":
            again = self._clash(mine, places, marks)
            earlier = mine.mark[places]
            # Of two loads, the one whose copies several threads use is the one to name.
            kept = again & (earlier & _THREADS == _SEVERAL) & (marks & _THREADS != _SEVERAL)
            kept &= self.held_by is not None
            marks = np.where(kept, earlier, np.where(again, marks | _SEVERAL, marks))
        mine.era[places] = self.era + (lanes.size > 1)  # one element is the first thread's
        mine.mark[places] = marks
        if kind == "atomic" and (lost := mine.mark[places] != marks).any():  # two of its lanes meet there
            mine.mark[places[lost]] |= _SEVERAL
        mine.clock[places] = self.clock

    def _access(self, kind: str, site: Site, shape: tuple[int, ...]) -> int:
        number = self._numbers.setdefault((kind, site.line, shape), len(self._accesses))
        if number == len(self._accesses):
            holders = self.held_by(kind, site, shape) if self.held_by else None
            self._accesses.append((Touch(kind, site, shape), holders))
        return number

    def _marks(self, access: int, lanes: np.ndarray) -> np.ndarray:
        holders = self._accesses[access][1]
        threads: np.ndarray | int = _UNKNOWN
        if holders is not None:
            several = _COPIES if holders.stored else _SEVERAL
            threads = several if holders.several else holders.first[lanes]
        return access << _ACCESS | lanes.astype(np.int64) << _LANE | threads

    def _clash(
        self, other: _Marks, places: np.ndarray, marks: np.ndarray, follows: bool = False
    ) -> np.ndarray:
        """Where another thread has touched an element in this era.

        follows: what a lane stores where it has loaded is made of what it loaded, whichever thread has it.
        """
        now = (other.era[places] | 1) == self.era + 1
        if not now.any():
            return now
        earlier = other.mark[places]
        differ = earlier ^ marks
        if self.held_by is None:
            return now & (differ >> _LANE != 0)
        unknown = (earlier & _THREADS == _UNKNOWN) | (marks & _THREADS == _UNKNOWN)
        several = (earlier & _THREADS == _SEVERAL) | (marks & _THREADS == _SEVERAL)
        if not follows:
            several |= (earlier & _THREADS == _COPIES) | (marks & _THREADS == _COPIES)
        threads = differ & _THREADS != 0
        lanes = (differ >> _LANE) & ((1 << _ACCESS - _LANE) - 1) != 0
        if follows:
            copies = (earlier & _THREADS == _COPIES) | (marks & _THREADS == _COPIES)
            threads = lanes & (threads | copies)
        return now & np.where(several, True, np.where(unknown, lanes, threads))

    def _note_race(
        self,
        buffer: Buffer,
        places: np.ndarray,
        marks: np.ndarray,
        other: _Marks,
        program: Program,
        clash: np.ndarray,
        ends: bool = True,
    ) -> None:
        """Note the first of the places where two accesses clash, if there are any."""
        if not clash.any():
            return
        self.suspect = True
        if self.held_by is None:
            return
        at = int(clash.argmax())
        first, second = (self._touch(int(mark)) for mark in (other.mark[places[at]], marks[at]))
        place = int(places[at]) - buffer.shift
        element = buffer.element(place // (buffer.data.itemsize // buffer.unit))
        self.race = WithinProgram(buffer.name, element, program, first, second, ends)

    def _touch(self, mark: int) -> Touch:
        thread = mark & _THREADS
        lane = (mark >> _LANE) & ((1 << _ACCESS - _LANE) - 1)
        known = None if thread in (_SEVERAL, _UNKNOWN, _COPIES) else thread
        touch = self._accesses[mark >> _ACCESS][0]
        return replace(touch, lane=lane, thread=known, several=thread in (_SEVERAL, _COPIES))

    # ---- between programs

    def synchronise(
        self,
        flag: tuple[str, int],
        number: int,
        programs: int,
        sem: str,
        scope: str,
        is_used: bool,
        site: Site,
        tells: bool,
    ) -> None:
        """Note an atomic of one thread on one element, with its ``sem`` and ``scope`` as Triton names them.

        tells: whether the atomic has changed the element.
        """
        self.clock += 1
        if scope in ("gpu", "sys"):
            met = _Met(sem, self.clock, site, tells, is_used or self.at_atomics)
            self._met.setdefault(flag, {}).setdefault(number, {})[site] = met
            known = self._released.get(flag)
            if sem in _ACQUIRES and (is_used or self.at_atomics) and known is not None:
                self.acquired = known if self.acquired is None else np.maximum(self.acquired, known)
            if sem in _RELEASES and (tells or not self.resident):
                known = np.zeros((2, programs), np.int64) if known is None else known.copy()
                if self.acquired is not None:
                    known = np.maximum(known, self.acquired)
                known[:, number] = self.era + 1, self.clock
                self._released[flag] = known
        if is_used:
            self.barrier()

    def looked(self, flag: tuple[str, int], number: int, volatile: bool, site: Site) -> None:
        """Note a load of one element, which may be there to see what others have done to it by atomics."""
        if flag in self._met:
            self.clock += 1
            sem = UNMARKED[1 if volatile else 2]
            self._met[flag].setdefault(number, {})[site] = _Met(sem, self.clock, site)

    def is_ordered(
        self, buffer: Buffer, places: np.ndarray, by: np.ndarray, loads: bool = False
    ) -> np.ndarray:
        """Return whether this program is ordered after the last accesses of ``by`` to these elements.

        by: the number of a program for each element. loads: whether the accesses are loads. Otherwise they
            are stores or updates.
        """
        notes = self._notes.get(buffer.memory)
        if self.acquired is None or notes is None:
            return np.zeros(places.shape, bool)
        places = places + buffer.shift
        if loads:
            assert notes.loaded is not None
            notes.refine(buffer)
            era, clock = notes.loaded.era[places], notes.loaded.clock[places]
            return (era < self.acquired[0][by]) & (clock < self.acquired[1][by])
        era, clock = self._last(buffer, notes, places)
        ordered = (era < self.acquired[0][by]) & (clock < self.acquired[1][by])
        return ordered if notes.endless is None else ordered & (notes.endless.era[places] == 0)

    def _last(self, buffer: Buffer, notes: _Notes, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """When elements were stored or updated last: the era and the clock."""
        notes.refine(buffer)
        era, clock = notes.stored.era[places], notes.stored.clock[places]
        if notes.updated is not None:
            later = notes.updated.era[places] > era
            era = np.where(later, notes.updated.era[places], era)
            clock = np.where(later, notes.updated.clock[places], clock)
        return era, clock

    def why_not(self, kind: str, buffer: Buffer, places: np.ndarray, by: int, number: int) -> Cause:
        """Return why nothing orders what program ``by`` has done to an element and what ``number`` does now.

        kind: as in `records.Conflict`. For a mixed one, the cause is ``"looks"`` if the atomics of ``by``
            have left the element unchanged, else ``"changes"``, with the line of the last one. For an update,
            it is ``"store"``: the first access was a plain store, at this line.

        For a read, if both programs have met at a flag, it is ``"release"`` or ``"acquire"``: the access at
        this line has a ``sem`` that lacks this half, or one of `UNMARKED` instead. If the reader has acquired
        something from the writer, it is ``"late"``: the element was stored after the release; ``"barrier"``:
        there was none before the release; or ``"descriptor"``: a descriptor stored it, and no release waits
        for that. The same causes apply to an overwrite, a store to what ``by`` has loaded. There, ``"early"``
        means that nothing had been stored yet, and the load is at this line.
        """
        notes = self._notes.get(buffer.memory)
        if notes is None or kind not in ("read", "update", "overwrite", "mixed"):
            return Cause()
        own, places = places, places + buffer.shift
        if kind == "mixed":
            flag = buffer.name, int(own[0]) * buffer.unit
            met = self._met.get(flag, {}).get(by, {}).values()
            looks = bool(met) and not any(each.tells for each in met)
            return Cause(
                "looks" if looks else "changes", max(met, key=lambda each: each.clock).site if met else None
            )
        if kind == "overwrite":
            assert notes.loaded is not None
            if not buffer.written[own].all():
                return Cause("early", self._touch(int(notes.loaded.mark[places[0]])).site)
            return self._why_not_ordered(by, number, notes.loaded.clock[places])
        if kind == "update":
            return Cause("store", self._touch(int(notes.stored.mark[places[0]])).site)
        if notes.endless is not None and notes.endless.era[places].any():
            reached = self.acquired is not None and self.acquired[1][by]
            return Cause("descriptor") if reached else Cause()
        _, clock = self._last(buffer, notes, places)
        return self._why_not_ordered(by, number, clock)

    def _why_not_ordered(self, by: int, number: int, clock: np.ndarray) -> Cause:
        """Return why what program ``by`` did at these times is not ordered before what ``number`` does."""
        if half := self._missing_half(by, number, int(clock.max())):
            return half
        if self.acquired is None or not self.acquired[1][by]:
            return Cause()
        return Cause("late" if (clock >= self.acquired[1][by]).any() else "barrier")

    def _missing_half(self, by: int, number: int, done: int) -> Cause | None:
        """The access to a flag that would have ordered two programs, were it another one.

        None if at some flag nothing is missing. done: when program ``by`` did what is to be ordered.
        """
        found = None
        for met in self._met.values():
            theirs = [each for each in met.get(by, {}).values() if each.clock > done]
            first = min((each.clock for each in theirs), default=0)
            mine = [each for each in met.get(number, {}).values() if theirs and each.clock > first]
            if not mine:
                continue
            told = [each for each in theirs if each.tells] or theirs
            if not any(each.sem in _RELEASES for each in told):
                worst = max(told, key=lambda each: each.clock)
                found = found or Cause("release", worst.site, worst.sem)
                continue
            seen = [each for each in mine if not each.tells] or mine
            if not any(each.sem in _ACQUIRES and each.used for each in seen):
                worst = max(seen, key=lambda each: (each.sem not in _ACQUIRES, each.clock))
                sem = worst.sem if worst.sem not in _ACQUIRES else UNMARKED[0]
                found = found or Cause("acquire", worst.site, sem)
                continue
            return None
        return found
