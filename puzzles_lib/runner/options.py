"""Define how a run is done, and what it watches for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from puzzles_lib.runner.draws import Draws
from puzzles_lib.runner.interleaving import Plan
from puzzles_lib.runner.nans import NaNs
from puzzles_lib.runner.ordering import HeldBy
from puzzles_lib.runner.promises import TakenAtOnce
from puzzles_lib.runner.recording import Recorder
from puzzles_lib.runner.records import Program


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `puzzles_lib.runner.run` may be asked for beyond a kernel, its arguments and a grid.

    zeroed: the outputs that hold zeros; in the others nothing is defined before something is stored.
    locks: the outputs that are locks: somebody holds one that is 1.
    others: CPU tensors by name that aren't arguments, each with its address in an argument, as `data_ptr`
        returned it. A kernel may make a pointer of such an address, or of an argument's, and use it. Those
        named in ``outputs``, with the suffix, are results.
    tensors: the names of tensors by the parameters that get them, if a parameter isn't called after its
        tensor. ``outputs``, ``zeroed`` and ``locks`` then name tensors, with the suffix.
    starts: how many bytes after the beginning of its tensor such a parameter points, if not to the beginning.
    defined: for an output, which places of its storage are defined at the start, from the tensor's first
        element to its last. Tensors may then overlap.
    suffix: what a pointer's name has after the tensor's name.
    seconds: the limit on the run's CPU time; see `time_limit`.
    only: run these programs of the grid, in this order.
    reverse: run from the last program to the first, and so the lanes that meet in one atomic.
    plan: two programs that take turns: see `interleaving`. Programs may then wait, too.
    waits: set a program that waits aside until others have run.
    together: run many programs at once where the result is the same: see `together`. The run doesn't see then
        what comparisons do (`Run.sides`). Programs of a run that looks at each step still run one by one.
    resident: all programs of the grid run at the same time, so that each may wait for any other one. A store
        to what another program has read is then a race if the two can happen in either order.
    elsewhere: one of `ELSEWHERE`. A kernel that uses an address as a number then gets another number.
    as_compiled: compute as the compiler does instead of line by line: see `arithmetic`.
    holes_are_zero: lanes that a load has masked off without ``other=`` hold 0, as on an NVIDIA GPU today.
    drops_unused_loads: a load whose result nobody uses is not carried out, as compiled code has none.
    quiet: suppress what the kernel prints.
    said: texts that ``tl.static_print`` has shown in earlier runs and does not show again; is added to.
    record: keep every access, and go on after an out-of-bounds one, which is noted and not carried out.
    recorder: keeps what each statement does, if ``record`` is on and the code has marks for it.
    held_by: which threads hold the lanes of an access (`ordering`), to look for races within a program.
    at_once: which lanes of an access one instruction takes, to look for the harm of false hints.
    nans: notes where NaNs are made.
    draws: notes the calls of Triton's random functions, and may change one number.
    narrowing: a line whose casts make narrower integers. In a pretended run, these must not wrap around in
        lanes that are compared, or stored as a wider integer.
    """

    zeroed: Collection[str] = ()
    locks: Collection[str] = ()
    others: Mapping[str, tuple[int, torch.Tensor]] | None = None
    tensors: Mapping[str, str] | None = None
    starts: Mapping[str, int] | None = None
    defined: Mapping[str, np.ndarray] | None = None
    suffix: str = "_ptr"
    seconds: float = 10.0
    only: Sequence[Program] | None = None
    reverse: bool = False
    plan: Plan | None = None
    waits: bool = False
    together: bool = False
    resident: bool = False
    elsewhere: int = 0
    as_compiled: bool = False
    holes_are_zero: bool = False
    drops_unused_loads: bool = False
    quiet: bool = False
    said: set[str] | None = None
    record: bool = False
    recorder: Recorder | None = None
    held_by: HeldBy | None = None
    at_once: TakenAtOnce | None = None
    nans: NaNs | None = None
    draws: Draws | None = None
    narrowing: int | None = None

    @property
    def needs_order(self) -> bool:
        """Return whether the run looks at each step of a program, or at which program comes first."""
        watched = self.record, self.locks, self.held_by, self.at_once, self.nans, self.narrowing
        ordered = self.plan, self.waits, self.resident, self.as_compiled
        return any(watched) or any(ordered)
