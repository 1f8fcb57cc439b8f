"""What a guarded run reports: accesses, conflicts, the reason why it stopped."""

from dataclasses import dataclass, field

import numpy as np
import torch

from puzzles_lib.source import Site

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


@dataclass(frozen=True)
class Stop:
    """Why a run ended early.

    kind: ``"error"`` (the kernel raised), ``"out of bounds"``, ``"time limit"`` or ``"memory limit"``.
    """

    kind: str
    message: str
    site: Site | None = None


@dataclass(frozen=True)
class Conflict:
    """A race: two programs disagree about an element of an output.

    kind: ``"write"``: both stored there, different values (one program twice: two lanes of one store);
    ``"read"``: the second loaded what the first had stored, with nothing to order them.
    """

    argument: str
    element: int
    programs: tuple[Program, Program]
    site: Site
    kind: str


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
    """A race between two threads of a program: nothing orders their accesses to an element."""

    argument: str
    element: int
    program: Program
    first: Touch
    second: Touch


@dataclass(frozen=True)
class Run:
    """What one guarded run of a kernel did.

    outputs: result tensors by name, as the kernel left them.
    changed: for inputs that the kernel wrote to, by name, where.
    written: for each output, bool per element.
    holes: lines that load under a mask without ``other``, where lanes were off, to the argument's name.
    early_reads: lines that load output elements which nothing had written yet, by output name.
    loads: elements loaded, lane by lane, by argument name.
    bytes_moved: bytes loaded and stored by lanes that were on.
    accesses: every access, where recording was asked for.
    suspect: two accesses of a program met in an element with no barrier between: by the same thread?
    within: a race within a program, looked for where the run was told who holds what.
    """

    programs: int
    outputs: dict[str, torch.Tensor]
    stop: Stop | None = None
    written: dict[str, np.ndarray] = field(default_factory=dict)
    changed: dict[str, Site] = field(default_factory=dict)
    conflict: Conflict | None = None
    holes: dict[Site, str] = field(default_factory=dict)
    early_reads: dict[str, Site] = field(default_factory=dict)
    loads: dict[str, int] = field(default_factory=dict)
    bytes_moved: int = 0
    accesses: tuple[Access, ...] = ()
    suspect: bool = False
    within: WithinProgram | None = None
