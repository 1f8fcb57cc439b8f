"""Access maps: which program of a launch touched which element of its tensors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import PathPatch, Rectangle

from puzzles_lib.drawing.canvas import TALLEST, WIDEST, Canvas, draw_ticks
from puzzles_lib.drawing.colours import BAD, BLANK, FAINT, GREY, HATCHING, INK, PROGRAM_COLORS, RIM, SILVER
from puzzles_lib.drawing.layout import (
    area_path,
    borders,
    contour,
    draw_image,
    flow,
    plural,
    seams,
    spots_for_text,
    text_width,
    wrap_text,
    write_line,
)
from puzzles_lib.drawing.sheet import Picture, label, text_color

MOST_COLORS = 8  # so many programs get a color each; more get an ordered scale
UNTOUCHED, NOTHING = -1, -2  # codes of a canvas besides owners 0, 1 ...; sharers are SHARED + count
SHARED = 1 << 40


@dataclass(frozen=True)
class TensorMap:
    """What the programs of a launch did to one tensor; what `access_map` draws one panel of.

    name, dims, shape: of the tensor; dims are the names of its axes, such as ``("M", "K//8")``.
    verb: ``"loaded"``, ``"stored"``, ``"updated by atomics"``, ``"not touched"``, or several of them.
    owner: int, in the tensor's shape: number of the first program that touched the element, or -1.
    sharers: int, in the tensor's shape: how many programs touched the element.
    outlined: bool, in the tensor's shape: touched by the outlined program.
    masked: int [lanes, axes]: where lanes of the outlined program point that its mask switched off;
        coordinates outside the shape are lanes past an edge of the tensor.
    bad: int [lanes, axes]: where lanes of any program point that are on and outside the tensor.
    facts: short sentences, shown under the panel's title.
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


def access_map(
    tensors: Sequence[TensorMap],
    grid: tuple[int, ...],
    program: tuple[int, ...] | None,
    title: str,
    note: str = "",
) -> Picture:
    """Which program touched which element, one panel per tensor.

    An element has the color of the program that touched it, or a shade of grey and ``×n`` where n
    programs did. The outlined program's masked-off lanes are hatched, as dashed cells where they lie
    past the tensor's edge. Lanes out of bounds are marked with a cross and told in words.

    grid: number of programs along each axis, as long as the launch has axes.
    program: the outlined one, None for none.
    title: what was run. note: a line of small print below it.

    An axis longer than 256 is shown at a reduced resolution, which its panel says.
    """
    count = math.prod(grid)
    colors = _program_colors(count)
    panels = [_MapPanel(tensor, grid, colors) for tensor in tensors]
    strips = [panel.own_cell() for panel in panels if panel.is_strip]
    grids = [panel.own_cell() for panel in panels if not panel.is_strip]
    if len(grids) > 2:  # so that three fit beside each other
        grids += [2.1 / p.codes.shape[1] for p in panels if not p.is_strip and len(p.canvas.slices) == 1]
    for panel in panels:
        panel.measure(min(strips if panel.is_strip else grids), beside=not panel.is_strip and len(grids) > 1)
    programs = plural(count, "program")
    if len(grid) > 1:
        programs = f"{' × '.join(str(n) for n in grid)} = {programs}"
    sizes = [(panel.total_width, panel.total_height) for panel in panels]
    legend = _Legend(panels, grid, program, colors)
    figure, ax, places = flow(sizes, title, [programs, note] if note else [programs], legend.height)
    for panel, place in zip(panels, places, strict=True):
        panel.draw(ax, *place)
    legend.draw(ax)
    return Picture(figure, _map_alt(tensors, grid, program, title, note), crop=False)


def program_name(program: Sequence[int], axes: int) -> str:
    """``6`` for a launch along one axis, ``(2, 6)`` along two."""
    return str(program[0]) if axes == 1 else f"({', '.join(str(p) for p in program[:axes])})"


def _program_colors(count: int) -> list:
    if count <= MOST_COLORS:
        return list(PROGRAM_COLORS[:count])
    scale = matplotlib.colormaps["viridis"]
    return [scale(0.1 + 0.9 * i / (count - 1))[:3] for i in range(count)]


def _program_at(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    """Program ids of a number in launch order, the last axis fastest."""
    return tuple(int(i) for i in np.unravel_index(number, tuple(grid)))


class _MapPanel:
    """One tensor of an access map."""

    MARGIN_LEFT, MARGIN_RIGHT, MARGIN_BOTTOM = 0.55, 0.25, 0.22

    def __init__(self, tensor: TensorMap, grid: tuple[int, ...], colors: list):
        self.tensor, self.grid, self.colors = tensor, grid, colors
        axes = max(len(tensor.shape), 1)
        masked, bad = tensor.masked.reshape(-1, axes), tensor.bad.reshape(-1, axes)
        if len(tensor.shape) > 2:  # no slices for lanes that are merely masked off
            masked = masked[((masked[:, :-2] >= 0) & (masked[:, :-2] < tensor.shape[:-2])).all(1)]
        near = _near(np.concatenate([masked, bad]), tensor.shape)
        self.too_far = [
            kind
            for kind, places in (("masked-off lanes", masked), ("lanes out of bounds", bad))
            if len(_near(places, tensor.shape)) < len(places)
        ]
        prefer = tensor.outlined.reshape(math.prod(tensor.shape[:-2]), -1).any(1)
        self.canvas = Canvas(tensor.shape, near, prefer)
        codes = np.where(tensor.sharers > 1, SHARED + tensor.sharers, tensor.owner).astype(np.int64)
        self.codes = self.canvas.spread(codes, NOTHING)
        self.owner = self.canvas.spread(tensor.owner, NOTHING)
        counts = np.unique(tensor.sharers[tensor.sharers > 1])
        self.fewest, self.most = (int(counts[0]), int(counts[-1])) if len(counts) else (2, 2)
        self.inside = self.codes != NOTHING
        self.outlined = self.canvas.paint(np.argwhere(tensor.outlined.reshape(tensor.shape or (1,))))
        self.bad = self.canvas.paint(_near(bad, tensor.shape)) & ~self.inside
        self.masked = self.canvas.paint(_near(masked, tensor.shape)) & ~self.outlined & ~self.bad

    @property
    def is_strip(self) -> bool:
        return self.canvas.wrapped

    def own_cell(self) -> float:
        """Width of a cell in inches, were this panel alone."""
        rows, columns = self.codes.shape
        if self.is_strip:
            return min(0.3, WIDEST / columns)
        alone = len(self.canvas.slices) > 1 or columns > 3 * rows
        return min(0.2, (WIDEST if alone else 3.4) / columns, TALLEST / rows)

    def measure(self, common: float, beside: bool) -> None:
        """Sizes in inches. Panels of a kind share the ``common`` width of a cell, so that their sizes
        compare, except those that would be tiny. ``beside``: leave room for a panel to the right.
        """
        rows, columns = self.codes.shape
        enough = (1.5 if self.is_strip else 0.8) / max(rows, columns)
        width = min(self.own_cell(), max(common, enough))
        if self.is_strip:
            self.cell = np.array([width, min(0.3, 2.4 / rows)])
        else:  # squares, but drawn out where a side would be thin
            self.cell = np.array([max(width, min(0.2, 0.5 / columns)), max(width, min(0.2, 0.7 / rows))])
        self.width, self.height = columns * self.cell[0], rows * self.cell[1]
        self.lines = self._lines(max(self.width, 3.3 if beside else 5.0))
        texts = [text_width(text, bold=alarm) for text, alarm in self.lines]
        self.text_width = max([*texts, text_width(self.heading, 11, bold=True)])
        has_slices = not self.is_strip and len(self.tensor.shape) > 2
        has_ticks = not self.is_strip or rows == 1
        self.above = 0.3 + 0.17 * len(self.lines) + 0.2 * has_ticks + 0.2 * has_slices
        self.total_width = self.MARGIN_LEFT + max(self.width, self.text_width) + self.MARGIN_RIGHT
        self.total_height = self.above + self.height + self.MARGIN_BOTTOM

    @property
    def heading(self) -> str:
        tensor = self.tensor
        sizes = [
            f"{dim}={n}" if len(dim) <= 8 and dim != str(n) else str(n)
            for dim, n in zip(tensor.dims, tensor.shape, strict=True)
        ]
        return f"{tensor.name}  [{', '.join(sizes)}]  {tensor.verb}"

    def _lines(self, width: float) -> list[tuple[str, bool]]:
        """Lines of text under the heading, and whether each is an alarm."""
        facts = list(self.tensor.facts)
        steps = self.canvas.steps
        if max(steps) > 1:
            each = f"{steps[1]}" if self.is_strip else " × ".join(str(s) for s in steps)
            facts.append(f"reduced: each square is {each} elements")
        if self.canvas.hidden:
            facts.append(f"not shown: {plural(self.canvas.hidden, 'more slice')}")
        facts += [f"some {kind} are too far out to be drawn" for kind in self.too_far]
        lines = [(line, False) for fact in facts for line in wrap_text(fact, width)]
        if self.tensor.alarm:
            lines += [(line, True) for line in wrap_text(f"✕ {self.tensor.alarm}", width, bold=True)]
        return lines

    def draw(self, ax: Axes, left: float, top: float) -> None:
        """Onto axes ruled in inches, with the upper left corner there."""
        left += self.MARGIN_LEFT
        write_line(ax, left, top + 0.2, self.heading, fontsize=11, weight="bold")
        for number, (text, alarm) in enumerate(self.lines):
            color, weight = (BAD, "bold") if alarm else (FAINT, "normal")
            write_line(ax, left, top + 0.2 + 0.17 * (number + 1), text, color=color, weight=weight)
        self.corner = np.array([left, top + self.above])
        self._fill(ax)
        self._mark(ax)
        self._label(ax)
        tensor = self.tensor
        draw_ticks(ax, self.corner, self.cell, tensor.shape, tensor.dims, self.canvas)

    def _lines_of(self, ax: Axes, segments: np.ndarray, **style) -> None:
        """Draw line segments given in cells."""
        if len(segments):
            points = self.corner + segments * self.cell
            ax.add_collection(LineCollection(points, capstyle="projecting", **style), autolim=False)

    def _fill(self, ax: Axes) -> None:
        image = np.ones((*self.codes.shape, 4))
        image[~self.inside] = (1, 1, 1, 0)
        for code in np.unique(self.codes[self.inside]):
            if code != UNTOUCHED:
                image[self.codes == code] = (*to_rgb(self._color(int(code))), 1)
        draw_image(ax, image, self.corner, self.cell)
        if min(self.cell) >= 0.05:
            self._lines_of(ax, borders(self.inside), colors="white", linewidths=0.4, zorder=2)
            blank = self.codes == UNTOUCHED
            self._lines_of(ax, borders(blank), colors=BLANK, linewidths=0.6, zorder=2.1)
        self._lines_of(ax, seams(self.owner), colors="white", linewidths=1.4, zorder=2.15)
        self._lines_of(ax, contour(self.inside), colors=RIM, linewidths=0.9, zorder=2.2)

    def _color(self, code: int) -> object:
        if code >= SHARED:
            shade = 0.82 - 0.32 * (code - SHARED - self.fewest) / max(self.most - self.fewest, 1)
            return (shade, shade, shade)
        return self.colors[code]

    def _mark(self, ax: Axes) -> None:
        if self.masked.any():
            area = area_path(self.masked, self.corner, self.cell)
            ax.add_patch(PathPatch(area, facecolor="none", edgecolor=HATCHING, hatch="/////", lw=0, zorder=3))
            ghosts = contour(self.masked & ~self.inside)
            self._lines_of(ax, ghosts, colors=HATCHING, linewidths=0.9, linestyles="--", zorder=3.1)
        if self.outlined.any():
            edges = contour(self.outlined)
            self._lines_of(ax, edges, colors="white", linewidths=4, zorder=4)
            self._lines_of(ax, edges, colors="black", linewidths=2, zorder=4.1)
        if self.bad.any():
            area = area_path(self.bad, self.corner, self.cell)
            ax.add_patch(PathPatch(area, facecolor=BAD, lw=0, zorder=5))
            self._lines_of(ax, contour(self.bad), colors=INK, linewidths=0.9, zorder=5.1)
            self._cross_out(ax)

    def _cross_out(self, ax: Axes) -> None:
        """A cross on each bad cell, or where they are small, on every so many of them."""
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
        ax.plot(*points.T, "x", color="white", ms=size, mew=1.5, zorder=5.2)

    def _label(self, ax: Axes) -> None:
        """Write who touched an area onto it, where there is room."""
        axes = len(self.grid)
        free = ~(self.masked | self.bad) & (self.codes >= 0)
        areas = np.unique(np.stack([self.owner[free], self.codes[free]], 1), axis=0)
        for owner, code in areas[:96]:
            if code >= SHARED:
                text = f"×{code - SHARED}"
            else:
                text = program_name(_program_at(owner, self.grid), axes).strip("()")
            room = (text_width(text) / self.cell[0], 0.14 / self.cell[1])
            area = (self.codes == code) & (self.owner == owner) & free
            for spot in spots_for_text(area, *room, most=1 if self.is_strip else 6):
                fill = self._color(int(code))
                hiding = {"behind": fill, "pad": 0.6, "zorder": 3.9}  # the lines between cells
                place = self.corner + spot * self.cell
                label(ax, *place, text, fontsize=9, color=text_color(fill), **hiding)


def _near(coordinates: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Those coordinates that are close enough to the tensor to be drawn."""
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


class _Legend:
    """What the marks of an access map mean, in rows below its panels."""

    ROW = 0.23
    SCALE = 1.8  # inches, of the scale for more programs than there are colors

    def __init__(self, panels: Sequence[_MapPanel], grid, program, colors: list):
        self.colors = colors
        names = [program_name(_program_at(i, grid), len(grid)) for i in (0, len(colors) - 1)]
        self.ends = (f"program {names[0]}", f"program {names[1]}, in launch order")
        self.entries: list[tuple[str, dict]] = []
        if len(colors) <= MOST_COLORS:
            alone = {int(code) for panel in panels for code in np.unique(panel.codes)}
            for number, color in enumerate(colors):
                if number not in alone:
                    continue
                self._add(f"program {program_name(_program_at(number, grid), len(grid))}", facecolor=color)
        if any((p.codes >= SHARED).any() for p in panels):
            self._add("×n: touched by n programs", facecolor=SILVER)
        if any((p.codes == UNTOUCHED).any() for p in panels):
            self._add("not touched", facecolor="white", edgecolor=GREY, lw=0.8)
        if program is not None:
            name = program_name(program, len(grid))
            self._add(f"outlined: program {name}", facecolor="white", edgecolor="black", lw=2)
            if any(p.masked.any() for p in panels):
                hatched = {"facecolor": "white", "edgecolor": HATCHING, "hatch": "/////", "lw": 0.6}
                self._add(f"masked-off lane of {name}", **hatched)
        if any(p.bad.any() for p in panels):
            self._add("out of bounds", facecolor=BAD, edgecolor=INK, lw=0.9)
        width = max(text_width(text) for text, _ in self.entries) + 0.5
        self.columns = min(len(self.entries), int(7.4 / width))
        self.pitch = width
        rows = math.ceil(len(self.entries) / self.columns)
        self.has_scale = len(colors) > MOST_COLORS
        self.height = self.ROW * (rows + self.has_scale) + 0.12

    def _add(self, text: str, **style) -> None:
        self.entries.append((text, {"edgecolor": "white", "lw": 0.0, **style}))

    def draw(self, ax: Axes) -> None:
        left, top = 0.3, ax.get_ylim()[0] - self.height
        for number, (text, style) in enumerate(self.entries):
            x = left + number % self.columns * self.pitch
            y = top + number // self.columns * self.ROW
            ax.add_patch(Rectangle((x, y), 0.2, 0.14, **style))
            if style["facecolor"] == BAD:
                ax.plot([x + 0.1], [y + 0.07], "x", color="white", ms=6, mew=1.5)
            write_line(ax, x + 0.28, y + 0.12, text)
        if self.has_scale:
            y = ax.get_ylim()[0] - self.ROW - 0.08
            x = left + text_width(self.ends[0]) + 0.15
            write_line(ax, left, y + 0.12, self.ends[0])
            colors = np.array([[to_rgb(c) for c in self.colors]])
            draw_image(ax, colors, (x, y), (self.SCALE / len(self.colors), 0.14))
            write_line(ax, x + self.SCALE + 0.1, y + 0.12, self.ends[1])


def _map_alt(tensors: Sequence[TensorMap], grid, program, title: str, note: str) -> str:
    count = math.prod(grid)
    parts = [f"Access map of {title}, {plural(count, 'program')}."]
    for tensor in tensors:
        sizes = " by ".join(str(n) for n in tensor.shape) or "one number"
        parts.append(f"{tensor.name}, {sizes}, {tensor.verb}: {'; '.join(tensor.facts)}.")
        if tensor.alarm:
            parts.append(f"Marked in red with crosses: {tensor.alarm}.")
        if program is not None:
            name = program_name(program, len(grid))
            text = f"Outlined: program {name} touches {plural(int(tensor.outlined.sum()), 'element')}"
            if len(tensor.masked):
                text += f", {plural(len(tensor.masked), 'lane')} hatched as masked off"
            parts.append(f"{text}.")
    return " ".join([*parts, note])
