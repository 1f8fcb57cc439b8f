"""Define what a guarded run reports: accesses, conflicts, and the reason why it stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from puzzles_lib.runner.arithmetic import Arithmetic
from puzzles_lib.runner.promises import Harm, Promise
from puzzles_lib.source import Site
from puzzles_lib.translator.ir import Operation

Program = tuple[int, int, int]


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of one program, lane by lane.

    kind: ``"load"``, ``"store"`` or ``"atomic"``.
    argument: name of the tensor, without ``_ptr``.
    elements: int64 index into the flattened tensor (into its storage, if it is not contiguous), one per lane,
        in the tile's shape.
    mask: lanes switched on, same shape.
    bad: lanes switched on whose element is outside the tensor, same shape.
    """

    kind: str
    argument: str
    program: Program
    elements: np.ndarray
    mask: np.ndarray
    bad: np.ndarray
    site: Site


@dataclass(frozen=True, eq=False)
class Product:
    """One ``tl.dot`` of one program, with its operands' values. place: how many accesses came before it."""

    program: Program
    left: np.ndarray
    right: np.ndarray
    site: Site
    place: int


@dataclass(frozen=True)
class Stop:
    """Why a run ended early.

    kind: ``"error"`` (the kernel raised), ``"out of bounds"``, ``"uninitialized"``, ``"deadlock"`` (it waits
        for something that never happens), ``"false hint"``, ``"time limit"`` or ``"memory limit"``.
    advice: what to do about it, or "". An error with advice is certainly the kernel's fault.
    column: where on the line the product is computed that has wrapped around; -1 if that is no product.
    """

    kind: str
    message: str
    site: Site | None = None
    advice: str = ""
    column: int = -1


def asks_again(pointer: str) -> str:
    """Return advice for a loop that waits for elements of a tensor, but reads them by plain loads.

    Triton 3.7.1 compiles ``while tl.load(flag_ptr) == 0: pass`` to nothing at all for sm_90. A loop that
    counts its iterations loads once, before the first one. A barrier in the loop keeps the load in its place.
    """
    plain = "a plain load does not wait: the compiled loop reads once, or never"
    return f"{plain}; use tl.atomic_add({pointer}, 0)"


@dataclass(frozen=True)
class Use:
    """What depends on an undefined value: an element that a program stores, or what a line does.

    what: the element's tensor, such as ``"z"``; or what else the line needs, such as ``"a mask"``.
    element: its flat index; None if it is no element.
    """

    program: Program
    what: str
    site: Site
    element: int | None = None

    def __str__(self) -> str:
        if self.element is None:
            return f"in program {self.program}, {self.what} in line {self.site.line}"
        return f"in program {self.program}, {self.what}[{self.element}]"


@dataclass(frozen=True)
class Source:
    """Where undefined values come from.

    kind: ``"lanes"``, lanes that a load's mask switches off and no ``other=`` fills; ``"early"``, elements of
        an output that nothing was stored to; ``"operation"``, a result that no GPU defines.
    what: the name of the pointer; of an operation, what is undefined, in words.
    use: what depends on the values; None if nothing does yet. It is not compared.
    first: the flat index of the first such element that was read; None if there is none. It is not compared.
    column: see `Stop`. It is not compared.
    """

    kind: str
    what: str
    site: Site
    use: Use | None = field(default=None, compare=False)
    first: int | None = field(default=None, compare=False)
    column: int = field(default=-1, compare=False)

    def __str__(self) -> str:
        if self.kind == "early":
            return f"{self.what} is read before anything is stored there: a GPU reads garbage"
        origin = f"an undefined value: {self.what}" if self.kind == "operation" else self._lane
        return f"{self.use or 'something'} depends on {origin}"

    @property
    def why(self) -> str:
        """Say why a lane with such a value is undefined."""
        if self.kind == "lanes":
            return f"it comes from {self._lane}"
        return self.what if self.kind == "operation" else str(self)

    @property
    def _lane(self) -> str:
        if "boundary_check" in self.site.source:
            return f"a lane that boundary_check switches off in the load of {self.what}"
        return f"a lane that the load of {self.what} masks off"


UNMARKED = ("unused", "volatile", "plain")
"""What a `Cause` has instead of a ``sem``: of an atomic whose result nobody uses, and of loads."""


@dataclass(frozen=True)
class Cause:
    """Why nothing orders two programs at an element; see `ordering.Ordering.why_not`.

    what: the reason in a word; ``""`` if it isn't known. site: the line at fault, if there is one.
    sem: that of the atomic at that line, or one of `UNMARKED`.
    """

    what: str = ""
    site: Site | None = None
    sem: str = ""


@dataclass(frozen=True)
class Conflict:
    """A race: two programs disagree about an element of an output.

    kind: ``"write"``: both stored there, different values (one program twice: two lanes of one store);
    ``"mixed"``: the second stored after an atomic of the first;
    ``"update"``: the second did an atomic on what the first had stored;
    ``"read"``: the second loaded what the first had stored, with nothing to order them;
    ``"overwrite"``: on a resident grid, the second stored after a load of the first, with nothing to order
    them;
    ``"scope"``: both updated it, one of them by an atomic that is atomic within its program only;
    ``"again"``: both stored there, whichever values (one program twice: two of its stores).
    why: the reason, for a read, an update, an overwrite or a mixed one. resident: whether all programs run at
        once.
    """

    argument: str
    element: int
    programs: tuple[Program, Program]
    site: Site
    kind: str
    why: Cause = Cause()
    resident: bool = False


@dataclass(frozen=True)
class Touch:
    """One side of a race within a program: a ``kind`` of access (as in `Access`), and the thread that did it.

    shape: that of the block that is loaded or stored. lane: its flat index in the block. thread: its number
        in the program; None if it is not known, or if ``several`` threads load the element.
    """

    kind: str
    site: Site
    shape: tuple[int, ...]
    lane: int = 0
    thread: int | None = None
    several: bool = False


@dataclass(frozen=True)
class WithinProgram:
    """A race between two threads of a program: nothing orders their accesses to an element.

    ends: whether a barrier waits until the first access has ended; a descriptor's store may end later.
    """

    argument: str
    element: int
    program: Program
    first: Touch
    second: Touch
    ends: bool = True


@dataclass(frozen=True)
class Unlocked:
    """A store by a program while no lock was held."""

    argument: str
    element: int
    program: Program
    site: Site


@dataclass(frozen=True)
class Run:
    """What one guarded run of a kernel did.

    outputs: result tensors by name, as the kernel left them.
    changed: for inputs that the kernel wrote to, by name, which elements.
    written: for each output, bool per element.
    holes: lines of loads with a mask and no ``other``, where lanes were off, with the tensor's name.
    early_reads: lines that load output elements that nothing had written yet, by output name.
    undefined: the first undefined value that was used: stored, or an address, a mask, a condition.
    order_matters: whether another order of programs, or of an atomic's lanes, might change the result.
    loads: elements loaded, lane by lane, by argument name; a cast pointer's loads count by their bytes.
    bytes_moved: bytes asked of memory, each byte once per load or store.
    lane_bytes: bytes loaded and stored by lanes that were on, counted for each lane.
    flops: operations on floats, counted for each lane, masked or not; two per product in a dot.
    accesses, dots: every access and every ``tl.dot``, if recording was asked for.
    suspect: whether two accesses of a program met in an element with no barrier between them; it is then
        worth finding out which threads did them.
    within: a race within a program, if the run knew which thread holds which lane.
    promises: false hints to the compiler.
    harm: what these hints do to an access, if the run knew what one instruction takes.
    arithmetic: where the compiler computes something else than the lines say.
    program: the last one that ran. If the run ended early, this is the one that ended it.
    unlocked: if the run knew of locks, the first store to another tensor while none of them was 1.
    not_associative: the first scan whose combine function was not associative on the values scanned.
    not_commutative: the first reduction whose combine function was not commutative on the values.
    other_order: the first reduction with a used result that another order of combining changes.
    writers: for each output, by element, the place in launch order of the program that wrote it, or -1.
    launched: the programs in the order in which they ran.
    tells_addresses: whether the kernel has used an address as a number.
    atomics: the largest number of atomics of one program. between: if two programs took turns, the lines of
        the atomics between which the second one began.
    meetings: two programs in launch order that update one element by atomics, and the number, from 2, of the
        first one's atomic there.
    repeated: for outputs in which two programs stored the same element, by name, the first time.
    rewritten: the same for outputs in which one program stored an element in two of its stores.
    sides: what was seen of each comparison; see `puzzles_lib.runner.sides`.
    together: the number of programs that ran in groups; see `puzzles_lib.runner.together`.
    seconds: the CPU time of all programs; what it took to begin and end the run isn't counted.
    """

    programs: int
    outputs: dict[str, torch.Tensor]
    stop: Stop | None = None
    written: dict[str, np.ndarray] = field(default_factory=dict)
    changed: dict[str, Site] = field(default_factory=dict)
    conflict: Conflict | None = None
    holes: dict[Site, str] = field(default_factory=dict)
    early_reads: dict[str, Site] = field(default_factory=dict)
    undefined: Source | None = None
    order_matters: bool = False
    loads: dict[str, int] = field(default_factory=dict)
    bytes_moved: int = 0
    lane_bytes: int = 0
    flops: int = 0
    accesses: tuple[Access, ...] = ()
    dots: tuple[Product, ...] = ()
    suspect: bool = False
    within: WithinProgram | None = None
    promises: tuple[Promise, ...] = ()
    harm: Harm | None = None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    program: Program | None = None
    unlocked: Unlocked | None = None
    not_associative: Site | None = None
    not_commutative: Site | None = None
    other_order: Site | None = None
    writers: dict[str, np.ndarray] = field(default_factory=dict)
    launched: Sequence[Program] = ()
    tells_addresses: bool = False
    atomics: int = 0
    between: tuple[Site, Site] | None = None
    meetings: Sequence[tuple[int, int, int]] = ()
    repeated: Mapping[str, Conflict] = field(default_factory=dict)
    rewritten: Mapping[str, Conflict] = field(default_factory=dict)
    sides: Mapping[Operation, int] = field(default_factory=dict)
    together: int = 0
    seconds: float = 0.0

    def steps(self) -> list[Access | Product]:
        """Return accesses and dots in the order in which they happened."""
        found: list[Access | Product] = []
        dots = list(self.dots)
        for place, access in enumerate(self.accesses):
            while dots and dots[0].place == place:
                found.append(dots.pop(0))
            found.append(access)
        return [*found, *dots]

    def writer(self, name: str, element: int) -> Program | None:
        """Return the program that wrote this element of an output last; None if none did."""
        place = int(self.writers[name][element]) if name in self.writers else -1
        return self.launched[place] if 0 <= place < len(self.launched) else None
