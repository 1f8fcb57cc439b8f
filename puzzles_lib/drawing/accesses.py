"""Draw access maps: which program of a launch accessed which element of its tensors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch, Rectangle

from puzzles_lib.drawing.canvas import TALLEST, WIDEST, Canvas, draw_ticks
from puzzles_lib.drawing.colours import (
    BAD,
    BLANK,
    FAINT,
    GREY,
    HATCHING,
    INK,
    JET,
    PAPER,
    PROGRAM_COLORS,
    RIM,
    SILVER,
    SNOW,
    text_color,
)
from puzzles_lib.drawing.layout import (
    area_path,
    borders,
    contour,
    fill_area,
    flow,
    flow_height,
    plural,
    seams,
    spots_for_text,
    text_width,
    wrap_text,
    write_line,
)
from puzzles_lib.drawing.sheet import Picture, label

MOST_STRIPES = 8  # up to this many programs that share an element get a stripe each; more become gray
THIN = 0.12  # inches: an outline with a white edge would hide the colors of such an area
MOST_TURNS = 12  # the most iterations of the outlined program that are numbered
TALLEST_MAP = 7.4  # in inches: about what a screen shows of a notebook
_APART = (5, 3, 1)  # steps in PROGRAM_COLORS along each axis, so that neighbors have different colors
TIGHT = 0.55  # panels up to this height are drawn three in a row
UNTOUCHED, NOTHING = -1, -2  # codes of a canvas besides owners 0, 1 ...; sharers are SHARED + count
SHARED = 1 << 40


@dataclass(frozen=True)
class TensorMap:
    """What the programs of a launch did to one tensor: one panel of an `access_map`.

    name, dims, shape: those of the tensor. dims are the names of its axes, such as ``("M", "K//8")``.
    verb: ``"loaded"``, ``"stored"``, ``"updated by atomics"``, ``"not touched"``, or several of them.
    owner: int, in the tensor's shape: the first program that accessed the element, or -1.
    sharers: int, in the tensor's shape: how many programs accessed the element.
    group, groups: which programs accessed the element. group is int, in the tensor's shape: an index into
        groups, tuples of programs. Without them only the number of programs is shown.
    turn: int, in the tensor's shape: the iteration in which the outlined program first accessed the element,
        from 1; 0 if it didn't. Without it no iterations are shown.
    again: whether the outlined program accessed some of its elements again in a later iteration.
    outlined: bool, in the tensor's shape: whether the outlined program accessed the element.
    masked: int [lanes, axes]: where the masked-off lanes of the outlined program point. Coordinates outside
        the shape are lanes past an edge of the tensor.
    bad: int [lanes, axes]: where active lanes of any program point outside the tensor.
    beyond: those of the outlined program.
    facts: short texts, shown under the panel's title.
    alarm: what is out of bounds, in words; empty if nothing is.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    verb: str
    owner: np.ndarray
    sharers: np.ndarray
    outlined: np.ndarray
    masked: np.ndarray
    bad: np.ndarray
    facts: tuple[str, ...] = ()
    alarm: str = ""
    group: np.ndarray | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    turn: np.ndarray | None = None
    again: bool = False
    beyond: np.ndarray | None = None


def access_map(
    tensors: Sequence[TensorMap],
    grid: tuple[int, ...],
    program: tuple[int, ...] | None,
    title: str,
    note: str = "",
) -> Picture:
    """Draw which program accessed which element, with one panel per tensor.

    An element has the color of the program that accessed it. If a few programs did, it has a stripe of
    each; if many did, it is gray with ``×n``. If there are more than eight programs, colors repeat, but
    neighbors differ. Within the outline, the iterations of a loop are numbered. The outlined program's
    masked-off lanes are hatched, or dashed cells if they are past the tensor's edge. Lanes out of bounds
    get a cross and a text.

    grid: the number of programs along each axis of the launch.
    program: the program to outline; None for none.
    title: what was run. note: a line of small print below it.

    An axis longer than 256 is drawn at a lower resolution, and the panel says so.
    """
    count = math.prod(grid)
    colors = program_colors(grid)
    panels = [_MapPanel(tensor, grid, colors) for tensor in tensors]
    programs = plural(count, "program")
    if len(grid) > 1:
        programs = f"{' × '.join(str(n) for n in grid)} = {programs}"
    notes = [programs, note] if note else [programs]
    for shrink in (1.0, 0.75, 0.55, 0.4, 0.3):
        sizes = _measure(panels, shrink)
        legend = _Legend(panels, grid, program, colors)
        if flow_height(sizes, title, notes, legend.height) <= TALLEST_MAP:
            break
    figure, ax, places = flow(sizes, title, notes, legend.height)
    for panel, place in zip(panels, places, strict=True):
        panel.draw(ax, *place)
    legend.draw(ax)
    return Picture(figure, _map_alt(tensors, grid, program, title, note), crop=False)


def _measure(panels: Sequence["_MapPanel"], shrink: float) -> list[tuple[float, float]]:
    """Return the sizes of panels; panels of a kind share a scale. shrink: the share of the allowed height."""
    strips = [panel.own_cell(shrink) for panel in panels if panel.is_strip]
    grids = [panel.own_cell(shrink) for panel in panels if not panel.is_strip]
    if len(grids) > 2:  # so that three fit side by side
        grids += [2.1 / p.codes.shape[1] for p in panels if not p.is_strip and len(p.canvas.slices) == 1]
    finest: np.ndarray | None = None
    for _ in range(2):  # first for their sizes, then with what is said of them
        for panel in panels:
            common = min(strips if panel.is_strip else grids)
            beside = len(panels) > 1 if shrink <= TIGHT else not panel.is_strip and len(grids) > 1
            panel.measure(common, beside=beside, shrink=shrink, finest=finest)
        finest = np.min([panel.cell for panel in panels if not panel.is_strip] or [np.ones(2)], axis=0)
    return [(panel.total_width, panel.total_height) for panel in panels]


def _is_beside(tensor: TensorMap) -> bool:
    """Return whether a masked-off lane is drawn right of a row, though its address is in the next one."""
    if len(tensor.shape) < 2 or not len(tensor.masked):
        return False
    row, column = tensor.masked.reshape(-1, len(tensor.shape))[:, -2:].T
    return bool(((column >= tensor.shape[-1]) & (row >= 0) & (row < tensor.shape[-2] - 1)).any())


def program_name(program: Sequence[int], axes: int) -> str:
    """Return ``6`` for a launch along one axis, ``(2, 6)`` along two."""
    return str(program[0]) if axes == 1 else f"({', '.join(str(p) for p in program[:axes])})"


def program_colors(grid: Sequence[int]) -> list[str]:
    """Return a color for each program. If there are too few colors, neighbors still have different ones."""
    count = math.prod(grid)
    if count <= len(PROGRAM_COLORS):
        return list(PROGRAM_COLORS[:count])
    ids = np.indices(tuple(grid)).reshape(len(grid), -1).T
    return [PROGRAM_COLORS[int(p @ _APART[-len(grid) :]) % len(PROGRAM_COLORS)] for p in ids]


def _programs_name(numbers: Sequence[int], grid: Sequence[int]) -> str:
    """Return ``0..2, 5`` for programs (0, 5), (1, 5), (2, 5); their count if they form no block."""
    ids = np.array([_program_at(number, grid) for number in numbers])
    parts = []
    for axis in ids.T:
        low, high = int(axis.min()), int(axis.max())
        parts.append((f"{low}" if low == high else f"{low}..{high}", high - low + 1))
    whole = math.prod(length for _, length in parts) == len(ids)
    return ", ".join(text for text, _ in parts) if whole else f"×{len(ids)}"


def _program_at(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    """Return the program ids of a number in launch order, with the last axis fastest."""
    return tuple(int(i) for i in np.unravel_index(number, tuple(grid)))


class _MapPanel:
    """One tensor of an access map."""

    MARGIN_LEFT, MARGIN_RIGHT, MARGIN_BOTTOM = 0.55, 0.35, 0.22

    def __init__(self, tensor: TensorMap, grid: tuple[int, ...], colors: list):
        self.tensor, self.grid, self.colors = tensor, grid, colors
        axes = max(len(tensor.shape), 1)
        masked, bad = tensor.masked.reshape(-1, axes), tensor.bad.reshape(-1, axes)
        if len(tensor.shape) > 2:  # no slices only for masked-off lanes
            masked = masked[((masked[:, :-2] >= 0) & (masked[:, :-2] < tensor.shape[:-2])).all(1)]
        near = _near(np.concatenate([masked, bad]), tensor.shape)
        self.too_far = [
            kind
            for kind, places in (("masked-off lanes", masked), ("lanes out of bounds", bad))
            if len(_near(places, tensor.shape)) < len(places)
        ]
        self.bad_near, self.around = _near(bad, tensor.shape), near
        self.masked_near = _near(masked, tensor.shape)
        counts = np.unique(tensor.sharers[tensor.sharers > 1])
        self.fewest, self.most = (int(counts[0]), int(counts[-1])) if len(counts) else (2, 2)
        self._lay(0)

    def _lay(self, gap: int) -> None:
        """Put everything on a canvas. gap: the least number of cells between lines of slices."""
        tensor = self.tensor
        prefer = np.asarray(tensor.outlined.reshape(math.prod(tensor.shape[:-2]), -1).any(1))
        self.canvas = Canvas(tensor.shape, self.around, prefer, gap=gap)
        codes = np.where(tensor.sharers > 1, SHARED + tensor.sharers, tensor.owner).astype(np.int64)
        self.codes = self.canvas.spread(codes, NOTHING)
        self.owner = self.canvas.spread(tensor.owner, NOTHING)
        self.group = self.canvas.spread(tensor.group, NOTHING) if tensor.group is not None else None
        self.turn = self.canvas.spread(tensor.turn, 0) if tensor.turn is not None else None
        if self.turn is not None and not 1 < self.turn.max() <= MOST_TURNS:
            self.turn = None
        self.inside = self.codes != NOTHING
        self.outlined = self.canvas.paint(np.argwhere(tensor.outlined.reshape(tensor.shape or (1,))))
        self.bad = self.canvas.paint(self.bad_near) & ~self.inside
        beyond = np.zeros((0, max(len(tensor.shape), 1)), int) if tensor.beyond is None else tensor.beyond
        self.frame = self.outlined | (self.canvas.paint(_near(beyond, tensor.shape)) & self.bad)
        self.masked = self.canvas.paint(self.masked_near) & ~self.outlined & ~self.bad

    @property
    def blank(self) -> np.ndarray:
        """The cells of elements that no program accessed."""
        return self.codes == UNTOUCHED

    @property
    def is_result(self) -> bool:
        """Whether elements that no program accessed should have been written."""
        return "stored" in self.tensor.verb and bool(self.blank.any())

    @property
    def is_strip(self) -> bool:
        return self.canvas.wrapped

    def own_cell(self, shrink: float) -> float:
        """The width of a cell in inches if this panel were alone."""
        rows, columns = self.codes.shape
        if self.is_strip:
            return min(0.3, (WIDEST if shrink > TIGHT else 2.4) / columns)
        alone = len(self.canvas.slices) > 1 or columns > 3 * rows
        return min(0.2, (WIDEST if alone else 3.4) / columns, shrink * TALLEST / rows)

    def measure(self, common: float, beside: bool, shrink: float, finest: np.ndarray | None = None) -> None:
        """Return the size in inches.

        Panels of a kind share the ``common`` width of a cell, so that their sizes can be compared, except
        panels that would be tiny. beside: leave room for a panel to the right. finest: the smallest cell of a
        panel, to say which panels are drawn larger.
        """
        rows, columns = self.codes.shape
        enough = (1.5 if self.is_strip else 0.8) / max(rows, columns)
        self.finest = finest
        width = min(self.own_cell(shrink), max(common, enough))
        if self.is_strip:
            self.cell = np.array([width, min(0.3, shrink * 2.4 / rows)])
        else:  # squares, but stretched if a side would be too thin
            self.cell = np.array(
                [
                    max(width, min(0.2, 0.5 / columns)),
                    max(width, min(0.2, (1.4 if shrink > TIGHT else 0.8) / rows)),
                ]
            )
        room = math.ceil(0.45 / self.cell[1])
        if not self.is_strip and self.canvas.line_gap < room and len({r for r, _ in self.canvas.corners}) > 1:
            self._lay(room)
            rows, columns = self.codes.shape
        self.width, self.height = columns * self.cell[0], rows * self.cell[1]
        self.tight = beside and shrink <= TIGHT
        heading = text_width(self.heading, 9 if self.tight else 11, bold=True)
        self.lines = self._lines(max(self.width, heading, 1.8 if self.tight else 3.3 if beside else 5.0))
        texts = [text_width(text, bold=alarm) for text, alarm in self.lines]
        self.text_width = max([*texts, heading])
        has_slices = not self.is_strip and len(self.tensor.shape) > 2
        has_ticks = not self.is_strip or rows == 1
        self.above = 0.3 + 0.17 * len(self.lines) + 0.2 * has_ticks + 0.2 * has_slices
        margin = self.MARGIN_LEFT + (0.2 if self.tight else self.MARGIN_RIGHT)
        self.total_width = margin + max(self.width, self.text_width)
        self.total_height = self.above + self.height + self.MARGIN_BOTTOM

    @property
    def heading(self) -> str:
        tensor = self.tensor
        sizes = [
            f"{dim}={n}" if len(dim) <= 8 and dim != str(n) else str(n)
            for dim, n in zip(tensor.dims, tensor.shape, strict=True)
        ]
        return f"{tensor.name}  [{', '.join(sizes)}]" + f"  {tensor.verb}" * (not self.tight)

    def _lines(self, width: float) -> list[tuple[str, bool]]:
        """Return the lines of text under the heading, and whether each is an alarm."""
        facts = [self.tensor.verb] * self.tight + list(self.tensor.facts)
        steps = self.canvas.steps
        if max(steps) > 1:
            each = f"{steps[1]}" if self.is_strip else " × ".join(str(s) for s in steps)
            facts.append(f"reduced: each square stands for {each} elements")
        elif not self.is_strip and self.finest is not None and (self.cell > 1.25 * self.finest).any():
            parts = zip(self.cell / self.finest, ("across", "down"), strict=True)
            facts.append(
                "enlarged " + ", ".join(f"{part:.2g} times {axis}" for part, axis in parts if part > 1.05)
            )
        if self.canvas.hidden:
            facts.append(f"not shown: {plural(self.canvas.hidden, 'more slice')}")
        facts += [f"some {kind} are too far away to be drawn" for kind in self.too_far]
        lines = [(line, False) for fact in facts for line in wrap_text(fact, width)]
        if self.tensor.alarm:
            lines += [(line, True) for line in wrap_text(f"✕ {self.tensor.alarm}", width, bold=True)]
        return lines

    def draw(self, ax: Axes, left: float, top: float) -> None:
        """Draw the panel onto axes ruled in inches. left, top: its upper left corner."""
        left += self.MARGIN_LEFT
        write_line(ax, left, top + 0.2, self.heading, fontsize=9 if self.tight else 11, weight="bold")
        for number, (text, alarm) in enumerate(self.lines):
            color, weight = (BAD, "bold") if alarm else (FAINT, "normal")
            write_line(ax, left, top + 0.2 + 0.17 * (number + 1), text, color=color, weight=weight)
        self.corner = np.array([left, top + self.above])
        self._fill(ax)
        self._mark(ax)
        self._label(ax)
        tensor = self.tensor
        draw_ticks(ax, self.corner, self.cell, tensor.shape, tensor.dims, self.canvas)

    def _lines_of(self, ax: Axes, segments: np.ndarray, **style: Any) -> None:
        """Draw line segments given in cells."""
        if len(segments):
            points = self.corner + segments * self.cell
            ax.add_collection(LineCollection(points, capstyle="projecting", **style), autolim=False)

    def _fill(self, ax: Axes) -> None:
        for code in np.unique(self.codes[self.inside]):
            if code >= SHARED and self.group is not None and code - SHARED <= MOST_STRIPES:
                self._stripe(ax, self.codes == code)
            elif code != UNTOUCHED:
                fill_area(ax, self.codes == code, self._color(int(code)), self.corner, self.cell)
        if min(self.cell) >= 0.05:
            self._lines_of(ax, borders(self.inside), colors="white", linewidths=0.4, zorder=2)
            if not self.is_result:
                self._lines_of(ax, borders(self.blank), colors=BLANK, linewidths=0.6, zorder=2.1)
        if self.is_result:
            area = area_path(self.blank, self.corner, self.cell)
            look = {"facecolor": PAPER, "edgecolor": GREY, "hatch": "..", "lw": 0, "zorder": 2.1}
            ax.add_patch(PathPatch(area, **look))
            self._lines_of(ax, contour(self.blank), colors=BAD, linewidths=1.6, zorder=2.3)
        self._lines_of(ax, seams(self.owner), colors="white", linewidths=1.4, zorder=2.15)
        self._lines_of(ax, contour(self.inside), colors=RIM, linewidths=0.9, zorder=2.2)

    def _stripe(self, ax: Axes, area: np.ndarray) -> None:
        """Fill an area with stripes, each in the color of a program that accessed the elements there."""
        groups = np.asarray(self.group)
        for group in np.unique(groups[area]):
            programs = self.tensor.groups[group]
            lines = len(programs) if self.codes.shape[0] == 1 else max(1, round(self.cell[1] / 0.06))
            thick = max(
                1, round(0.06 / self.cell[1])
            )  # the number of lines of cells in a stripe if the cells are small
            rows = int((area & (groups == group)).any(1).sum())
            if rows * lines < thick * len(programs):  # too thin for a stripe of each program
                lines, thick = -(-len(programs) // rows), 1
            fine = np.repeat(area & (groups == group), lines, axis=0)
            which = np.arange(len(fine)) // thick % len(programs)
            for number, program in enumerate(programs):
                here = fine & (which == number)[:, None]
                fill_area(ax, here, self.colors[program], self.corner, self.cell / (1, lines))

    def _color(self, code: int) -> Any:
        if code >= SHARED:
            shade = 0.82 - 0.32 * (code - SHARED - self.fewest) / max(self.most - self.fewest, 1)
            return (shade, shade, shade)
        return self.colors[code]

    def _mark(self, ax: Axes) -> None:
        if self.masked.any():
            filled = self.masked & (self.codes >= 0)  # with a color that is the same in every theme
            for part, color in ((filled, JET), (self.masked & ~filled, HATCHING)):
                if part.any():
                    area = area_path(part, self.corner, self.cell)
                    look = {"facecolor": "none", "edgecolor": color, "hatch": "/////"}
                    ax.add_patch(PathPatch(area, **look, lw=0, zorder=3))
            ghosts = contour(self.masked & ~self.inside)
            self._lines_of(ax, ghosts, colors=HATCHING, linewidths=0.9, linestyles="--", zorder=3.1)
        if self.turn is not None:
            turns = seams(np.where(self.turn > 0, self.turn, -1))
            self._lines_of(ax, turns, colors="white", linewidths=3, zorder=3.9)
            self._lines_of(ax, turns, colors=INK, linewidths=1.2, linestyles=":", zorder=3.95)
        if self.frame.any():
            edges = contour(self.frame)
            extent = np.array([self.frame.any(0).sum(), self.frame.any(1).sum()]) * self.cell
            thin = min(extent) < THIN
            if not thin:
                self._lines_of(ax, edges, colors="white", linewidths=4, zorder=4)
            above = 5.15 if (self.frame & self.bad).any() else 4.1
            self._lines_of(ax, edges, colors=INK, linewidths=1.2 if thin else 2, zorder=above)
        if self.bad.any():
            area = area_path(self.bad, self.corner, self.cell)
            ax.add_patch(PathPatch(area, facecolor=BAD, lw=0, zorder=5))
            self._lines_of(ax, contour(self.bad), colors=INK, linewidths=0.9, zorder=5.1)
            self._cross_out(ax)

    def _cross_out(self, ax: Axes) -> None:
        """Draw a cross on each bad cell, or on some of them if they are small."""
        every = np.maximum(1, np.ceil(0.09 / self.cell).astype(int))
        row, column = np.nonzero(self.bad)
        on_lattice = (row - row.min()) % every[1] == 0
        on_lattice &= (column - column.min()) % every[0] == 0
        if not on_lattice.any():
            on_lattice[len(row) // 2] = True
        extent = np.array([column.max() - column.min() + 1, row.max() - row.min() + 1])
        middle = np.minimum(every, extent) / 2
        points = self.corner + (np.stack([column, row], 1)[on_lattice] + middle) * self.cell
        size = min(7.0, 0.62 * 72 * min(self.cell * every))
        ax.plot(*points.T, "x", color=SNOW, ms=size, mew=1.5, zorder=5.2)

    def _label(self, ax: Axes) -> None:
        """Write onto an area which program accessed it, or within the outline, in which iteration."""
        free = ~(self.masked | self.bad) & (self.codes >= 0)
        if self.is_result:
            self._write(ax, "never written", self.blank, PAPER, BAD, 4)
        if self.turn is not None:
            for turn in range(1, int(self.turn.max()) + 1):
                where = (self.turn == turn) & ~self.bad
                new = "new in " * (self.tensor.again and turn > 1)
                for text in (f"{new}iteration {turn}", f"{new}it. {turn}", f"{turn}"):
                    if self._write(ax, text, where, PAPER, INK, 1):
                        break
            free &= self.turn == 0
        areas = np.unique(np.stack([self.owner[free], self.codes[free]], 1), axis=0)
        for owner, code in areas[:96]:
            area = (self.codes == code) & (self.owner == owner) & free
            most = 1 if self.is_strip else 6
            if code < SHARED:
                text = program_name(_program_at(owner, self.grid), len(self.grid)).strip("()")
                self._write(ax, text, area, self._color(int(code)), None, most)
            elif self.group is None:
                self._write(ax, f"×{code - SHARED}", area, self._color(int(code)), None, most)
            else:
                for group in np.unique(self.group[area]):
                    programs = self.tensor.groups[group]
                    striped = len(programs) <= MOST_STRIPES
                    fill, ink = (PAPER, INK) if striped else (self._color(int(code)), None)
                    here = area & (self.group == group)
                    count = f"×{code - SHARED}"
                    named = _programs_name(programs, self.grid) if len(programs) == code - SHARED else count
                    if not self._write(ax, named, here, fill, ink, most):
                        self._write(ax, count, here, fill, ink, most)

    def shared_names(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield what `_label` writes onto stripes, and the programs that it stands for."""
        for group in np.unique(self.group[self.codes >= SHARED]) if self.group is not None else ():
            programs = self.tensor.groups[group]
            area = (self.group == group) & (self.turn == 0 if self.turn is not None else True)
            for text in (_programs_name(programs, self.grid), f"×{len(programs)}"):
                if 1 < len(programs) <= MOST_STRIPES and any(True for _ in self._spots(text, area, 1)):
                    yield text, programs
                    break

    def _spots(self, text: str, area: np.ndarray, most: int) -> Iterator[np.ndarray]:
        """Yield where on an area there is room for a text, in cells."""
        room = ((text_width(text) + 0.05) / self.cell[0], 0.14 / self.cell[1])
        yield from spots_for_text(area, *room, most=most)

    def _write(self, ax: Axes, text: str, area: np.ndarray, fill: Any, ink: str | None, most: int) -> bool:
        """Write onto an area a limited number of times, on a card that hides the lines between cells."""
        done = False
        for spot in self._spots(text, area, most):
            right, down = self.corner + spot * self.cell
            color = ink or text_color(fill)
            label(ax, right, down, text, fontsize=9, color=color, behind=fill, pad=0.6, zorder=4.2)
            done = True
        return done


def _near(coordinates: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the coordinates that are close enough to the tensor to be drawn."""
    if not len(coordinates):
        return coordinates
    near = np.ones(len(coordinates), bool)
    for axis, size in enumerate(shape or (1,)):
        leading = len(shape) > 2 and axis < len(shape) - 2
        room = (
            (0 if len(shape) > 3 else 2)
            if leading
            else max(size, 64)
            if len(shape) <= 1
            else max(16, size // 2)
        )
        near &= (coordinates[:, axis] >= -room) & (coordinates[:, axis] < size + room)
    return coordinates[near]


def _shared_names(panels: Sequence[_MapPanel], grid: Sequence[int]) -> list[str]:
    """Return what ``×2`` and ``0..2`` on stripes mean, by an example of each."""
    named = [each for panel in panels for each in panel.shared_names()]
    words = [f"“{name}”: accessed by {len(group)} programs" for name, group in named if name[0] == "×"][:1]
    for name, group in named:
        if ".." in name:
            ends = [program_name(_program_at(number, grid), len(grid)) for number in (group[0], group[-1])]
            between = " and " if len(group) == 2 else " to "
            name = name.replace(" ", "\u00a0")  # stays on one line
            return [*words, f"“{name}”: programs {between.join(ends)}"]
    return words


class _Legend:
    """The legend of an access map, in rows below its panels."""

    ROW = 0.23

    def __init__(
        self,
        panels: Sequence[_MapPanel],
        grid: tuple[int, ...],
        program: tuple[int, ...] | None,
        colors: list,
    ):
        self.entries: list[tuple[str, dict]] = []
        self.repeats = len(colors) > len(PROGRAM_COLORS)
        if not self.repeats:
            alone = {int(code) for panel in panels for code in np.unique(panel.codes)}
            alone |= {n for panel in panels for group in panel.tensor.groups if len(group) > 1 for n in group}
            for number, color in enumerate(colors):
                if number in alone:
                    name = program_name(_program_at(number, grid), len(grid))
                    self._add(f"program {name}", facecolor=color)
        shared = [panel for panel in panels if (panel.codes >= SHARED).any()]
        if any(p.group is None or p.most > MOST_STRIPES for p in shared):
            self._add("×n: accessed by n programs", facecolor=SILVER)
        if any(p.is_result for p in panels):
            self._add("never written", facecolor=PAPER, edgecolor=BAD, lw=1.6)
        if any(p.blank.any() and not p.is_result for p in panels):
            self._add("not touched", facecolor="white", edgecolor=GREY, lw=0.8)
        if program is not None:
            name = program_name(program, len(grid))
            self._add(f"outlined: program {name}", facecolor="white", edgecolor=INK, lw=2)
            if any(p.masked.any() for p in panels):
                hatched = {"facecolor": "white", "edgecolor": HATCHING, "hatch": "/////", "lw": 0.6}
                self._add(f"masked-off lane of {name}", **hatched)
        if any(p.bad.any() for p in panels):
            self._add("out of bounds", facecolor=BAD, edgecolor=INK, lw=0.9)
        width = max((text_width(text) for text, _ in self.entries), default=1.0) + 0.5
        self.columns = max(1, min(len(self.entries), int(7.4 / width)))
        self.pitch = width
        self.words = []
        turns = [p for p in panels if p.turn is not None]
        if program is not None and turns:
            name = program_name(program, len(grid))
            text = f"numbers between dotted lines are iterations of program {name}, from 1"
            if any(p.tensor.again for p in turns):
                text += ", the first in which it accesses these elements: later iterations come back to some"
            self.words.append(text)
        if self.repeats or (program is not None and turns):
            others = "other numbers" if self.words else "numbers"
            self.words.append(f"{others} are program ids" + "; colors repeat" * self.repeats)
        if any(p.group is not None and p.fewest <= MOST_STRIPES for p in shared):
            self.words.append("striped: accessed by several programs, in the colors of all of them")
            self.words += _shared_names(shared, grid)
        if program is not None and any(_is_beside(panel.tensor) for panel in panels):
            beside = "lanes right of a tensor are past the end of a row"
            self.words.append(f"{beside}: their addresses are in the next row")
        self.rows = math.ceil(len(self.entries) / self.columns)
        self.lines = wrap_text("; ".join(self.words), WIDEST) if self.words else []
        self.height = self.ROW * (self.rows + len(self.lines)) + 0.12

    def _add(self, text: str, **style: Any) -> None:
        self.entries.append((text, {"edgecolor": "white", "lw": 0.0, **style}))

    def draw(self, ax: Axes) -> None:
        left, top = 0.3, ax.get_ylim()[0] - self.height
        for number, (text, style) in enumerate(self.entries):
            x = left + number % self.columns * self.pitch
            y = top + number // self.columns * self.ROW
            ax.add_patch(Rectangle((x, y), 0.2, 0.14, **style))
            if style["facecolor"] == BAD:
                ax.plot([x + 0.1], [y + 0.07], "x", color=SNOW, ms=6, mew=1.5)
            write_line(ax, x + 0.28, y + 0.12, text)
        for number, line in enumerate(self.lines, self.rows):
            write_line(ax, left, top + number * self.ROW + 0.12, line, color=FAINT)


def _map_alt(
    tensors: Sequence[TensorMap],
    grid: tuple[int, ...],
    program: tuple[int, ...] | None,
    title: str,
    note: str,
) -> str:
    count = math.prod(grid)
    parts = [f"Access map of {title}, {plural(count, 'program')}."]
    for tensor in tensors:
        sizes = " by ".join(str(n) for n in tensor.shape) or "one number"
        parts.append(f"{tensor.name}, {sizes}, {tensor.verb}: {'; '.join(tensor.facts)}.")
        if tensor.alarm:
            parts.append(f"Marked in red with crosses: {tensor.alarm}.")
        if program is not None:
            name = program_name(program, len(grid))
            text = f"Program {name}, outlined, accesses {plural(int(tensor.outlined.sum()), 'element')}"
            if len(tensor.masked):
                text += f", {plural(len(tensor.masked), 'lane')} hatched as masked off"
            parts.append(f"{text}.")
    return " ".join([*parts, note])
