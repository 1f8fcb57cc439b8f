"""Show which program accessed which element of which tensor, as text and as a picture: `trace`.

The picture is drawn from the checker's own guarded run. `explore` shows the same run on triton-viz's page.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from matplotlib.figure import Figure

from puzzles_lib.checker import guarded
from puzzles_lib.checker.maps import tensor_map
from puzzles_lib.checker.report import Report
from puzzles_lib.checker.verdicts import on_the_grid, unsolved
from puzzles_lib.drawing.accesses import TensorMap, access_map
from puzzles_lib.drawing.layout import plural
from puzzles_lib.drawing.sheet import Picture
from puzzles_lib.puzzle import Case, Puzzle, expect_puzzle, pick_case, pick_program
from puzzles_lib.runner import Access, Program, Stop, alone
from puzzles_lib.session import failing_case
from puzzles_lib.tracer.explorer import Explorer, explore
from puzzles_lib.tracer.page import Recording, recorded
from puzzles_lib.wrapped import is_wrapped

MOST_ELEMENTS = 10_000_000  # of all tensors of a case; each takes about 90 bytes


def trace(
    kernel: object,
    puzzle: Puzzle,
    case: int | Case | None = None,
    program: int | tuple[int, ...] | None = None,
    only: Sequence[str] = (),
) -> "Trace":
    """Run a ``@triton.jit`` kernel on one case of a puzzle and show what it accesses.

        trace(outer_add_kernel, OUTER_ADD, case=2)

    The result shows itself as a picture in a notebook. Its ``explore()`` opens the page of triton-viz.

    kernel: with `triton.autotune`, its first configuration is shown.
    case: the number of the case in ``puzzle.cases``, or a `Case` of your own. The default
        is the first case that your last check of this kernel failed, or case 0 if it failed none.
    program: the program to outline, as its number in launch order or its ids along the grid's axes. The
        default is the last program with lanes out of bounds. If there is none, it is the last one with
        masked-off lanes, or program 0.
    only: the names of the tensors to show, such as ``("dy", "parts")``. The default is all tensors that the
        kernel takes.

    A faulty kernel raises no exception. If it goes out of bounds or stops early, the
    picture shows what it did until then and marks bad accesses. If it cannot run, the reason is shown.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, ValueError if a case, program or tensor does not exist
    or a case is too large to draw, and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    expect_puzzle("trace", kernel, puzzle)
    case = pick_case(puzzle, failing_case(kernel, puzzle) if case is None else case, "trace")
    chosen = _chosen(puzzle, only)
    elements = sum(math.prod(a.shape(case.numbers)) for a in puzzle.tensors)
    if elements > MOST_ELEMENTS:
        most = f"at most {MOST_ELEMENTS:,} can be drawn"
        raise ValueError(f"trace: case {case} has {elements:,} elements, but {most}")
    grid = tuple(int(n) for n in puzzle.grid(case))
    if not math.prod(grid):
        raise ValueError(f"trace: case {case} starts no program")
    outlined = None if is_wrapped(kernel) else _program(program, grid)  # a configuration may change the grid
    title = f"{_name(kernel, puzzle)}, {case}"
    tensors = {a.name: (a.dims, a.shape(case.numbers)) for a in puzzle.tensors}
    done = guarded(kernel, puzzle, case)
    if isinstance(done, Report):
        return Trace(title, grid, refusal=done)
    bound, ran = done
    accesses, recording, notes = ran.accesses, None, [unsolved(bound.kernel, puzzle)]
    if bound.configuration:
        grid = tuple(int(n) for n in puzzle.grid(bound.case))
        outlined = _program(program, grid)
        title = f"{_name(kernel, puzzle)}, {bound.case}"
        notes.append(f"In {bound.configuration}" if bound.configuration.count > 1 else "")
    tensors = {name: tensor for name, tensor in tensors.items() if name in bound.takes & chosen}
    if ran.stop is None:
        recording = alone(lambda: recorded(title, bound, ran))
    if outlined is None:
        outlined = _telling_program(accesses)
    note = ". ".join(filter(None, notes))
    return Trace(title, grid, tensors, tuple(accesses), outlined, ran.stop, note, recording=recording)


@dataclass(frozen=True, repr=False)
class Trace:
    """What the programs of one launch accessed, shown as a picture or as text.

    title: what was run. grid: the number of programs along each axis.
    tensors: a dict from the name of each tensor that the kernel takes to the names of its axes and its shape.
    accesses: every load, store and atomic, program by program.
    program: the outlined program. stop: why the run ended early; None if it didn't.
    note: a line for the reader: the puzzle isn't solved yet, or which configuration of several was run.
    refusal: the checker's report if the kernel could not run at all; everything else is empty then.
    recording: what `explore` shows; None for a run that did not end well.
    """

    title: str
    grid: tuple[int, ...]
    tensors: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = field(default_factory=dict)
    accesses: tuple[Access, ...] = ()
    program: Program | None = None
    stop: Stop | None = None
    note: str = ""
    refusal: Report | None = None
    recording: Recording | None = None

    @property
    def clean(self) -> bool:
        """Whether the kernel ran to its end with every access inside its tensor."""
        return self.stop is None and self.refusal is None

    @cached_property
    def maps(self) -> tuple[TensorMap, ...]:
        """What the programs did to each tensor, element by element."""
        by_name = defaultdict(list)
        for access in self.accesses:
            by_name[access.argument].append(access)
        return tuple(
            tensor_map(name, dims, shape, by_name[name], self.grid, self.program, counted=not self._cut_off)
            for name, (dims, shape) in self.tensors.items()
        )

    @cached_property
    def picture(self) -> Picture | None:
        """The access map; None for a kernel that could not run."""
        if self.refusal:
            return None
        notes = [text for text in (self._ending(), self.note) if text]
        program = self.program[: len(self.grid)] if self.program else None
        return access_map(self.maps, self.grid, program, self.title, ". ".join(notes))

    @property
    def figure(self) -> Figure | None:
        """The access map as a matplotlib figure; None for a kernel that could not run."""
        return self.picture.figure if self.picture else None

    def explore(self) -> Explorer:
        """Open triton-viz's own page of this run, to turn, zoom and step through, below the cell.

        The page is served on this computer only, until you call ``close()``, explore the same trace again or
        stop the notebook's kernel. If there is nothing to serve, this says why and shows the picture.
        """
        if self.recording:
            return explore(self.recording, self)
        if self.stop:
            why = "No page: triton-viz shows kernels that stay inside their tensors and run to their end"
            return Explorer(self.title, self, why)
        return Explorer(self.title, self, "No page of triton-viz's, for the reason below")

    def _ending(self) -> str:
        """Return a line that says why the run ended early."""
        if not (self.stop and self._broke_off):
            return ""
        return f"The kernel did not finish: {on_the_grid(self.stop.message, len(self.grid))}"

    @property
    def _cut_off(self) -> bool:
        """Whether a limit ended the run, so that its end depends on the computer's speed."""
        return self.stop is not None and self.stop.kind in ("time limit", "memory limit")

    @property
    def _broke_off(self) -> bool:
        return self.stop is not None and self.stop.kind != "out of bounds"

    def __repr__(self) -> str:
        if self.refusal:
            return str(self.refusal)
        lines = [f"{self.title}: {plural(math.prod(self.grid), 'program')}"]
        width = max((len(name) for name in self.tensors), default=0)
        for each in self.maps:
            lines.append(f"{each.name:{width}}  {each.verb}: {'; '.join(each.facts)}")
            if each.alarm:
                lines.append(f"{'':{width}}  {each.alarm}")
        if self.stop and self.stop.site and self.stop.site.source and not self._cut_off:
            lines.append(str(self.stop.site))
        lines += [text for text in (self._ending(), self.note) if text]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        shown = self.refusal or self.picture
        return shown._repr_html_() if shown else ""


# ---- what was asked for


def _name(kernel: object, puzzle: Puzzle) -> str:
    """Return the puzzle's name, or that of a kernel with a name of its own."""
    name = getattr(kernel, "__name__", "")
    return puzzle.name if name in ("", f"{puzzle.name}_kernel") else name


def _chosen(puzzle: Puzzle, only: Sequence[str]) -> set[str]:
    """Return the names of the chosen tensors, or of all if none is chosen."""
    names = [argument.name for argument in puzzle.tensors]
    wanted = [only] if isinstance(only, str) else list(only)
    for name in wanted:
        if name not in names:
            raise ValueError(f"trace: only must name tensors ({', '.join(names)}), but has {name!r}")
    return set(wanted or names)


def _program(program: int | tuple[int, ...] | None, grid: tuple[int, ...]) -> Program | None:
    """Return the program's ids along three axes."""
    number = pick_program(program, grid, "trace")
    return None if number is None else _three(tuple(int(i) for i in np.unravel_index(number, grid)))


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = (*values, *(0,) * (3 - len(values)))
    return first, second, third


def _telling_program(accesses: Sequence[Access]) -> Program:
    """Return the last program with bad lanes, or else with masked-off lanes, or else the first."""
    masked, bad = None, None
    for access in accesses:
        if access.bad.any():
            bad = access.program
        elif not access.mask.all():
            masked = access.program
    return bad or masked or (0, 0, 0)
