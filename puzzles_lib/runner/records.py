"""What a guarded run reports: accesses, conflicts, the reason why it stopped."""

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
    elements: int64 index into the flattened tensor (into its storage, if it is not contiguous), one per
        lane, in the tile's shape.
    mask: lanes switched on, same shape.
    bad: lanes switched on whose element lies outside the tensor, same shape.
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

    kind: ``"error"`` (the kernel raised), ``"out of bounds"``, ``"uninitialised"``, ``"deadlock"`` (it
        waits for what nobody will do), ``"false hint"``, ``"time limit"`` or ``"memory limit"``.
    advice: what to do about it, where there is something to say.
    """

    kind: str
    message: str
    site: Site | None = None
    advice: str = ""


def asks_again(pointer: str) -> str:
    """What to do about a loop that waits for elements of a tensor, and looks at them by plain loads.

    Compiled by Triton 3.7.1 for sm_90, ``while tl.load(flag_ptr) == 0: pass`` is nothing at all, and one
    that counts its turns loads before its first one only; a barrier in it keeps the load where it is.
    """
    plain = "a plain load does not wait: compiled, such a loop reads once, or never"
    return f"{plain}; use tl.atomic_add({pointer}, 0)"


@dataclass(frozen=True)
class Source:
    """Where undefined values come from.

    kind: ``"lanes"``, that a load's mask switches off and no ``other=`` fills; ``"early"``, elements of an
        output that nothing has been stored to; ``"operation"``, a result that no GPU defines.
    what: the name of the pointer; of an operation, what is undefined, in words.
    """

    kind: str
    what: str
    site: Site

    def __str__(self) -> str:
        if self.kind == "early":
            return f"{self.what} is read before anything is stored there: a GPU reads garbage"
        if self.kind == "operation":
            return f"an undefined value is used: {self.what}"
        if "boundary_check" in self.site.source:
            left = "a boundary_check but no padding_option"
        else:
            left = "a mask but no other="
        return f"undefined lanes of {self.what} are used: its load has {left}"


UNMARKED = ("unused", "volatile", "plain")
"""What a `Cause` has instead of a ``sem``: of an atomic whose result nobody uses, and of loads."""


@dataclass(frozen=True)
class Cause:
    """Why nothing orders two programs at an element; see `ordering.Ordering.why_not`.

    what: the reason in a word, ``""`` if there is none to name. site: the line at fault, if there is one.
    sem: of the atomic at that line, or one of `UNMARKED`.
    """

    what: str = ""
    site: Site | None = None
    sem: str = ""


@dataclass(frozen=True)
class Conflict:
    """A race: two programs disagree about an element of an output.

    kind: ``"write"``: both stored there, different values (one program twice: two lanes of one store);
    ``"mixed"``: the second stored where the first had done an atomic;
    ``"update"``: the second changed by an atomic what the first had stored; ``"read"``: the second loaded
    what the first had stored, with nothing to order them; ``"overwrite"``: on a resident grid, the
    second stored where the first had loaded, with nothing to order them; ``"scope"``: both updated it, one of
    them by an atomic that is one within its program only; ``"again"``: both stored there, no matter which
    values.
    why: the reason, of a read, an update, an overwrite or a mixed one. resident: whether the grid is.
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
    """One side of a race within a program: a ``kind`` of access (as `Access` says), and who did it.

    shape: of the block that is loaded or stored. lane: in it, flattened. thread: of the program, None where
    it is not known, or where ``several`` load the element.
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

    ends: False if the first is a store by a descriptor, for which no barrier waits.
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
    changed: for inputs that the kernel wrote to, by name, where.
    written: for each output, bool per element.
    holes: lines that load under a mask without ``other``, where lanes were off, to the argument's name.
    early_reads: lines that load output elements which nothing had written yet, by output name.
    undefined: the first undefined value that was used: stored, or an address, a mask, a condition.
    order_matters: whether programs, or the lanes of an atomic, might leave something else in another order.
    loads: elements loaded, lane by lane, by argument name; what a cast pointer loads counts by its bytes.
    bytes_moved: bytes asked of memory: of each load and store, those that differ.
    lane_bytes: bytes loaded and stored by lanes that were on, each counted for itself.
    flops: operations on floats, each lane's counted, masked or not; of a dot two for each product.
    accesses, dots: every access and every ``tl.dot``, where recording was asked for.
    suspect: two accesses of a program met in an element with no barrier between: by the same thread?
    within: a race within a program, looked for where the run was told who holds what.
    promises: hints to the compiler that are not true.
    harm: what they do to an access, looked for where the run was told what is taken at once.
    arithmetic: where the compiler computes otherwise than line by line.
    program: the one that ran last: where the run ended early, the one that ended it.
    unlocked: where the run was told of locks, the first store, not to them, while none of them was 1.
    not_associative: the first scan whose combine function was not associative on the values scanned.
    not_commutative: the first reduction whose combine function was not commutative on the values.
    other_order: the first reduction with a used result that another order of combining changes.
    writers: for each output, by element, the place in launch order of the program that wrote it, or -1.
    launched: the programs in the order in which they ran.
    tells_addresses: whether the kernel has taken an address as a number.
    atomics: the most that one program has done. between: of a run in which two programs took turns, the lines
        of the atomics between which the second one began.
    meetings: two programs in launch order that update one element by atomics, and the number, from 2, of the
        first one's atomic there.
    repeated: for outputs in which two programs stored the same element, by name, the first time.
    sides: what was seen of each comparison; see `puzzles_lib.runner.sides`.
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
    sides: Mapping[Operation, int] = field(default_factory=dict)

    def steps(self) -> list[Access | Product]:
        """Accesses and dots in the order in which they happened."""
        found: list[Access | Product] = []
        dots = list(self.dots)
        for place, access in enumerate(self.accesses):
            while dots and dots[0].place == place:
                found.append(dots.pop(0))
            found.append(access)
        return [*found, *dots]

    def writer(self, name: str, element: int) -> Program | None:
        """The program that wrote this element of an output last; None where none did."""
        place = int(self.writers[name][element]) if name in self.writers else -1
        return self.launched[place] if 0 <= place < len(self.launched) else None
