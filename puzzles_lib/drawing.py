"""Pictures for the notebooks: matplotlib figures with alt text, readable in a light or dark theme.

Two layers. Primitives for hand-made pictures: `new_figure`, `new_sheet`, `cells`, `arrow`. Pictures made from
what a kernel did: `access_map`, `error_map`. All return or fill figures that pyplot knows nothing
about, so nothing piles up in a long session.
"""

import base64
import html
import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import FancyArrowPatch, PathPatch, Rectangle
from matplotlib.path import Path

# Okabe & Ito's palette, told apart by readers with any common colour blindness.
# In order: black, orange, sky blue, green, yellow, blue, vermilion, pink.
PALETTE = tuple(matplotlib.color_sequences["okabe_ito"])
INK = "#1a1a1a"  # text and outlines
FAINT = "#555555"  # lesser labels
PALE = "#eeeeee"  # cells without a meaning of their own
LINE = "#8c8c8c"  # cell borders
UNIT = 0.42  # inches per unit of a sheet: a cell that holds three digits at size 10


class Picture:
    """A figure that shows itself in a notebook as a PNG with alt text.

    The figure keeps a white card behind it, so that it reads the same in Jupyter's dark theme. As
    text a picture is its alt text, which must say what the figure shows, numbers included.

    crop: cut or extend the figure to what is drawn; twice the work, so not for figures laid out exactly.
    """

    def __init__(self, figure: Figure, alt: str, crop: bool = True):
        if not alt:
            raise ValueError("Picture: alt is empty, it must say what the figure shows")
        self.figure = figure
        self.crop = crop
        self.alt = " ".join(alt.split())

    def png(self) -> bytes:
        """The figure as PNG bytes, the same for the same figure (no date, no version inside)."""
        buffer = io.BytesIO()
        box = "tight" if self.crop else None
        self.figure.savefig(
            buffer, format="png", dpi=110, bbox_inches=box, facecolor="white", metadata={"Software": None}
        )
        return buffer.getvalue()

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png()).decode()
        style = "max-width:100%;background:white;padding:6px;border-radius:4px"
        return f'<img alt="{html.escape(self.alt)}" style="{style}" src="data:image/png;base64,{data}"/>'

    def __repr__(self) -> str:
        return f"[picture] {self.alt}"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches that is no part of pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def new_sheet(columns: float, rows: float, unit: float = UNIT) -> tuple[Figure, Axes]:
    """A figure with one bare, square-ruled axes to put `cells` on: x to the right, y *down*.

    columns, rows: size in cells; leave room for labels (a row label needs 2 to 4 columns).
    unit: inches per cell. Font sizes are in points and do not scale with it.

        figure, ax = new_sheet(10, 3)
        block = cells(ax, [3, 1, 4, 1, 5], x=2, y=1, title="x", index=True, colors=PALETTE[2])
        return Picture(figure, "Five cells, x = 3, 1, 4, 1, 5.")
    """
    figure = new_figure(columns * unit, rows * unit)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    ax.set_axis_off()
    return figure, ax


@dataclass(frozen=True)
class Cells:
    """Where a grid of `cells` lies on its axes, to hang arrows and labels on.

    x, y: upper left corner. rows, columns: how many cells. width, height: of one cell.
    """

    x: float
    y: float
    rows: int
    columns: int
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.columns * self.width

    @property
    def bottom(self) -> float:
        return self.y + self.rows * self.height

    def _place(self, at: tuple[int, ...], right: float, down: float) -> tuple[float, float]:
        row, column = at if len(at) == 2 else (0, at[0])
        return self.x + (column + right) * self.width, self.y + (row + down) * self.height

    def center(self, *at: int) -> tuple[float, float]:
        """The middle of cell ``(column)`` of a strip or ``(row, column)`` of a grid."""
        return self._place(at, 0.5, 0.5)

    def top(self, *at: int) -> tuple[float, float]:
        """The middle of that cell's upper edge."""
        return self._place(at, 0.5, 0.0)

    def foot(self, *at: int) -> tuple[float, float]:
        """The middle of that cell's lower edge."""
        return self._place(at, 0.5, 1.0)


def cells(
    ax: Axes,
    values: object,
    *,
    x: float = 0.0,
    y: float = 0.0,
    width: float = 1.0,
    height: float = 1.0,
    colors: object = PALE,
    hatch: object = None,
    edge: object = LINE,
    title: str | None = None,
    index: bool | Sequence = False,
    row_index: bool | Sequence = False,
    fontsize: float = 10,
) -> Cells:
    """Draw a strip or grid of labelled cells: a block, a tensor, the bits of a word.

    ax: axes whose y runs down, as from `new_sheet`.
    values: one- or two-dimensional list, array or tensor of numbers or texts; ``None`` and ``""``
        leave a cell empty, floats are written with up to three digits.
    x, y: upper left corner. width, height: of one cell.
    colors, hatch, edge: one for all cells, or nested like ``values``. A color of ``None`` draws no
        fill, a hatch of ``"///"`` marks a cell as switched off. Texts turn white on dark colors.
    title: text to the left of the cells, on the height of the first row.
    index: small numbers above the columns: True for 0, 1, 2 ..., or the labels themselves.
    row_index: the same, to the left of the rows.
    fontsize: of the values in points; labels are one smaller, but at least 9.

    Returns where the cells lie. Raises ValueError for values with more than two dimensions or rows
    of different lengths.
    """
    texts, strip = _grid(values)
    shape = (len(texts), len(texts[0]) if texts else 0)
    fills, hatches, edges = (_spread(v, shape, strip) for v in (colors, hatch, edge))
    for row in range(shape[0]):
        for column in range(shape[1]):
            fill = fills[row][column]
            left, top = x + column * width, y + row * height
            ax.add_patch(
                Rectangle(
                    (left, top),
                    width,
                    height,
                    facecolor="none" if fill is None else fill,
                    edgecolor=edges[row][column],
                    hatch=hatches[row][column],
                    linewidth=0.8,
                )
            )
            if text := texts[row][column]:
                ink = text_color(fill) if fill is not None else INK
                middle = (left + width / 2, top + height / 2)
                ax.text(*middle, text, ha="center", va="center", fontsize=fontsize, color=ink)
    small = max(9, fontsize - 1)
    for column, text in enumerate(_labels(index, shape[1])):
        ax.text(
            x + (column + 0.5) * width,
            y - 0.12,
            text,
            ha="center",
            va="bottom",
            fontsize=small,
            color=FAINT,
        )
    for row, text in enumerate(_labels(row_index, shape[0])):
        ax.text(
            x - 0.15, y + (row + 0.5) * height, text, ha="right", va="center", fontsize=small, color=FAINT
        )
    if title:
        longest = max((len(text) for text in _labels(row_index, shape[0])), default=0)
        gap = 0.25 + (0.1 + 0.2 * longest if longest else 0.0)
        ax.text(x - gap, y + height / 2, title, ha="right", va="center", fontsize=fontsize + 1, color=INK)
    return Cells(x, y, *shape, width, height)


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    *,
    color: object = INK,
    bend: float = 0.0,
    fontsize: float = 10,
) -> None:
    """An arrow from one point to another, with a text beside its middle.

    bend: 0 is straight; 0.3 curves to one side, -0.3 to the other.
    """
    style = f"arc3,rad={bend}"
    patch = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=11,
        connectionstyle=style,
        color=color,
        shrinkA=2,
        shrinkB=2,
    )
    ax.add_patch(patch)
    if text:
        middle = ((start[0] + end[0]) / 2 + 0.2, (start[1] + end[1]) / 2)
        ax.text(*middle, text, ha="left", va="center", fontsize=fontsize, color=color)


def text_color(fill: object) -> str:
    """Black or white, whichever reads better on a fill color (WCAG relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return INK if luminance > 0.18 else "white"


def _grid(values: object) -> tuple[list[list[str]], bool]:
    """Nested texts, and whether the values were one-dimensional."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    rows = list(values) if isinstance(values, (list, tuple, range, str)) else [values]
    strip = not any(isinstance(row, (list, tuple)) for row in rows)
    nested = [rows] if strip else [list(row) for row in rows]
    if any(isinstance(v, (list, tuple)) for row in nested for v in row):
        raise ValueError("cells: values have more than two dimensions, allowed are one or two")
    if len({len(row) for row in nested}) > 1:
        raise ValueError(f"cells: rows of lengths {[len(row) for row in nested]}, allowed is one length")
    return [[_text(v) for v in row] for row in nested], strip


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}".replace("-", "\u2212") if isinstance(value, float) else str(value)


def _spread(value: object, shape: tuple[int, int], strip: bool) -> list[list]:
    """One value for all cells, or nested values, as nested values of that shape."""
    single = value is None or isinstance(value, str) or _is_color(value)
    if single:
        return [[value] * shape[1] for _ in range(shape[0])]
    nested = [list(value)] if strip else [list(row) for row in value]
    if len(nested) != shape[0] or any(len(row) != shape[1] for row in nested):
        raise ValueError(f"cells: colors, hatch and edge are one value or {shape[0]} x {shape[1]} of them")
    return nested


def _is_color(value: object) -> bool:
    return (
        isinstance(value, tuple) and len(value) in (3, 4) and all(isinstance(c, (int, float)) for c in value)
    )


def _labels(index: bool | Sequence, count: int) -> Sequence[str]:
    return [str(i) for i in (range(count) if index is True else index or ())]


# ---- what a launch did to its tensors


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
    figure, ax, places = _flow(sizes, title, [programs, note] if note else [programs], legend.height)
    for panel, place in zip(panels, places, strict=True):
        panel.draw(ax, *place)
    legend.draw(ax)
    return Picture(figure, _map_alt(tensors, grid, program, title, note), crop=False)


MOST_COLORS = 8  # so many programs get a color each; more get an ordered scale
LONGEST = 256  # cells along an axis of a panel
LINE_LENGTH = 128  # cells in a line of a strip, at most
# Without vermilion, black and grey: those mark lanes out of bounds, the outline and shared elements.
PROGRAM_COLORS = (
    PALETTE[2],
    PALETTE[1],
    PALETTE[3],
    PALETTE[7],
    PALETTE[4],
    PALETTE[5],
    "#b9a7e6",
    "#8c6239",
)
BAD = PALETTE[6]


def plural(number: int, thing: str) -> str:
    """``1 lane``, ``2 lanes``."""
    return f"{number} {thing}{'s' * (number != 1)}"


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


UNTOUCHED, NOTHING = -1, -2  # codes of a canvas besides owners 0, 1 ...; sharers are SHARED + count
SHARED = 1 << 40


class _Canvas:
    """A tensor and the space around it, laid out flat: a wrapped strip, a grid, or a row of slices.

    The canvas holds codes of cells (`UNTOUCHED` ...). ``place`` maps coordinates to its cells.
    """

    def __init__(self, shape: tuple[int, ...], around: np.ndarray, prefer: np.ndarray, most_slices: int = 6):
        """around: coordinates to leave room for. prefer: bool per leading index, slices to show first."""
        self.shape = shape
        self.wrapped = len(shape) <= 1
        if self.wrapped:
            self._lay_strip(math.prod(shape), around)
        else:
            self._lay_grid(around, prefer, most_slices)

    def _lay_strip(self, size: int, around: np.ndarray) -> None:
        first = min([0, *around[:, 0]]) if len(around) else 0
        end = max([size, *(around[:, 0] + 1)]) if len(around) else size
        span = end - min(first, 0)
        self.step = 1
        if span <= LINE_LENGTH:
            self.columns = max(span, 1)
        else:
            self.columns = 64 if span <= 8 * 64 else LINE_LENGTH
            while span > 16 * self.columns * self.step:
                self.step *= 2
        self.steps = (1, self.step)
        start = min(first, 0) if span <= LINE_LENGTH else min(first, 0) // self.columns * self.columns
        self.start = start // self.step
        self.rows = max(1, math.ceil((math.ceil(end / self.step) - self.start) / self.columns))
        self.slices, self.hidden, self.row_low, self.column_low = [0], 0, 0, 0

    def _lay_grid(self, around: np.ndarray, prefer: np.ndarray, most_slices: int) -> None:
        low, high = np.zeros(2, int), np.array(self.shape[-2:])
        count = math.prod(self.shape[:-2])
        if len(around):
            low = np.minimum(low, around[:, -2:].min(0))
            high = np.maximum(high, around[:, -2:].max(0) + 1)
        self.steps = tuple(2 ** max(0, math.ceil(math.log2(max(n, 1) / LONGEST))) for n in high - low)
        self.row_low, self.column_low = (int(n) for n in low)
        self.rows, self.slice_columns = (
            max(1, math.ceil(n / s)) for n, s in zip(high - low, self.steps, strict=True)
        )
        slices = set(range(count))
        if len(self.shape) == 3 and len(around):
            slices |= {int(i) for i in np.unique(around[:, 0])}
        ranked = sorted(
            slices, key=lambda i: (not (0 <= i < count and prefer[i]), not 0 <= i < count, abs(i))
        )
        self.slices = sorted(ranked[:most_slices])
        self.hidden = len(slices) - len(self.slices)
        self.gap = 1 + self.slice_columns // 16  # between slices beside each other
        self.step = max(self.steps)
        self._arrange(self.rows, self.gap + 2)

    def _arrange(self, slice_rows: int, gap: int) -> None:
        """As many slices beside each other as make the cells largest."""

        def cell(across: int) -> float:
            down = math.ceil(len(self.slices) / across)
            return min(
                WIDEST / (across * (self.slice_columns + self.gap)), TALLEST / (down * (slice_rows + gap))
            )

        self.across = max(range(1, len(self.slices) + 1), key=lambda n: (cell(n), n))
        down = math.ceil(len(self.slices) / self.across)
        # Between lines of slices there is room for their names and column numbers: 0.4 inches.
        gap = max(gap, math.ceil(0.45 / min(0.2, cell(self.across)))) if down > 1 else gap
        self.corners = []  # row and column of each slice
        for number in range(len(self.slices)):
            line, position = divmod(number, self.across)
            self.corners.append((line * (slice_rows + gap), position * (self.slice_columns + self.gap)))
        self.slice_rows = slice_rows
        self.rows = down * (slice_rows + gap) - gap
        self.columns = self.across * (self.slice_columns + self.gap) - self.gap

    def place(self, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Canvas row and column of [n, axes] coordinates, and which of them are on the canvas."""
        if self.wrapped:
            flat = coordinates[:, 0] // self.step - self.start
            row, column = flat // self.columns, flat % self.columns
            shown = (row >= 0) & (row < self.rows)
            return row, column, shown
        row = (coordinates[:, -2] - self.row_low) // self.steps[0]
        inner = (coordinates[:, -1] - self.column_low) // self.steps[1]
        which = self._slice_of(coordinates)
        shown = (row >= 0) & (row < self.slice_rows) & (inner >= 0) & (inner < self.slice_columns)
        known = np.zeros(len(coordinates), bool)
        for index, (corner_row, corner_column) in zip(self.slices, self.corners, strict=True):
            here = which == index
            known |= here
            row[here] += corner_row
            inner[here] += corner_column
        return row, inner, shown & known

    def _slice_of(self, coordinates: np.ndarray) -> np.ndarray:
        which = np.zeros(len(coordinates), int)
        for axis, size in enumerate(self.shape[:-2]):
            which = which * size + coordinates[:, axis]
        return which

    def paint(self, coordinates: np.ndarray) -> np.ndarray:
        """Bool canvas: where these coordinates are."""
        canvas = np.zeros((self.rows, self.columns), bool)
        if len(coordinates):
            row, column, shown = self.place(coordinates)
            canvas[row[shown], column[shown]] = True
        return canvas

    def spread(self, values: np.ndarray, empty: int) -> np.ndarray:
        """Values of the tensor's elements on the canvas; ``empty`` outside of it.

        Where several elements share a cell, the largest value stands for them.
        """
        canvas = np.full((self.rows, self.columns), np.iinfo(np.int64).min)
        shape = self.shape or (1,)
        coordinates = np.indices(shape).reshape(len(shape), -1).T
        row, column, shown = self.place(coordinates)
        np.maximum.at(canvas, (row[shown], column[shown]), values.reshape(-1)[shown])
        canvas[canvas == np.iinfo(np.int64).min] = empty
        return canvas


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
        self.canvas = _Canvas(tensor.shape, near, prefer)
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
        texts = [_text_width(text, bold=alarm) for text, alarm in self.lines]
        self.text_width = max([*texts, _text_width(self.heading, 11, bold=True)])
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
        lines = [(line, False) for fact in facts for line in _wrap(fact, width)]
        if self.tensor.alarm:
            lines += [(line, True) for line in _wrap(f"✕ {self.tensor.alarm}", width, bold=True)]
        return lines

    def draw(self, ax: Axes, left: float, top: float) -> None:
        """Onto axes ruled in inches, with the upper left corner there."""
        left += self.MARGIN_LEFT
        _write(ax, left, top + 0.2, self.heading, fontsize=11, weight="bold")
        for number, (text, alarm) in enumerate(self.lines):
            color, weight = (BAD, "bold") if alarm else (FAINT, "normal")
            _write(ax, left, top + 0.2 + 0.17 * (number + 1), text, color=color, weight=weight)
        self.corner = np.array([left, top + self.above])
        self._fill(ax)
        self._mark(ax)
        self._label(ax)
        tensor = self.tensor
        _ticks(ax, self.corner, self.cell, tensor.shape, tensor.dims, self.canvas)

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
        _image(ax, image, self.corner, self.cell)
        if min(self.cell) >= 0.05:
            self._lines_of(ax, _borders(self.inside), colors="white", linewidths=0.4, zorder=2)
            blank = self.codes == UNTOUCHED
            self._lines_of(ax, _borders(blank), colors="#b5b5b5", linewidths=0.6, zorder=2.1)
        self._lines_of(ax, _seams(self.owner), colors="white", linewidths=1.4, zorder=2.15)
        self._lines_of(ax, _contour(self.inside), colors="#777777", linewidths=0.9, zorder=2.2)

    def _color(self, code: int) -> object:
        if code >= SHARED:
            shade = 0.82 - 0.32 * (code - SHARED - self.fewest) / max(self.most - self.fewest, 1)
            return (shade, shade, shade)
        return self.colors[code]

    def _mark(self, ax: Axes) -> None:
        if self.masked.any():
            area = _area(self.masked, self.corner, self.cell)
            ax.add_patch(
                PathPatch(area, facecolor="none", edgecolor="#444444", hatch="/////", lw=0, zorder=3)
            )
            ghosts = _contour(self.masked & ~self.inside)
            self._lines_of(ax, ghosts, colors="#444444", linewidths=0.9, linestyles="--", zorder=3.1)
        if self.outlined.any():
            edges = _contour(self.outlined)
            self._lines_of(ax, edges, colors="white", linewidths=4, zorder=4)
            self._lines_of(ax, edges, colors="black", linewidths=2, zorder=4.1)
        if self.bad.any():
            area = _area(self.bad, self.corner, self.cell)
            ax.add_patch(PathPatch(area, facecolor=BAD, lw=0, zorder=5))
            self._lines_of(ax, _contour(self.bad), colors=INK, linewidths=0.9, zorder=5.1)
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
            room = (_text_width(text) / self.cell[0], 0.14 / self.cell[1])
            area = (self.codes == code) & (self.owner == owner) & free
            for spot in _spots(area, *room, most=1 if self.is_strip else 6):
                fill = self._color(int(code))
                card = {"facecolor": fill, "edgecolor": "none", "pad": 0.6}  # hides the lines between cells
                style = {"fontsize": 9, "color": text_color(fill), "bbox": card, "zorder": 3.9}
                ax.text(*(self.corner + spot * self.cell), text, ha="center", va="center", **style)


WIDEST, TALLEST = 7.0, 3.2  # inches, of a panel


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
            self._add("×n: touched by n programs", facecolor="#c4c4c4")
        if any((p.codes == UNTOUCHED).any() for p in panels):
            self._add("not touched", facecolor="white", edgecolor="#999999", lw=0.8)
        if program is not None:
            name = program_name(program, len(grid))
            self._add(f"outlined: program {name}", facecolor="white", edgecolor="black", lw=2)
            if any(p.masked.any() for p in panels):
                hatched = {"facecolor": "white", "edgecolor": "#444444", "hatch": "/////", "lw": 0.6}
                self._add(f"masked-off lane of {name}", **hatched)
        if any(p.bad.any() for p in panels):
            self._add("out of bounds", facecolor=BAD, edgecolor=INK, lw=0.9)
        width = max(_text_width(text) for text, _ in self.entries) + 0.5
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
            _write(ax, x + 0.28, y + 0.12, text)
        if self.has_scale:
            y = ax.get_ylim()[0] - self.ROW - 0.08
            x = left + _text_width(self.ends[0]) + 0.15
            _write(ax, left, y + 0.12, self.ends[0])
            colors = np.array([[to_rgb(c) for c in self.colors]])
            _image(ax, colors, (x, y), (self.SCALE / len(self.colors), 0.14))
            _write(ax, x + self.SCALE + 0.1, y + 0.12, self.ends[1])


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


# ---- where values are wrong


def error_map(got: object, want: object, name: str, wrong: object = None) -> Picture:
    """Where a result is wrong: too high, too low, or not a number.

    got, want: tensors or arrays of one shape. name: of the result, such as ``"z"``.
    wrong: bool per element; by default where the two differ by more than 8 roundings of got's dtype.

    Raises ValueError for different shapes.
    """
    got, want = _as_array(got), _as_array(want)
    if got.shape != want.shape:
        raise ValueError(f"error_map: got has shape {got.shape}, want has {want.shape}, allowed is one shape")
    exact_got, exact_want = got.astype(np.float64), want.astype(np.float64)
    if wrong is None:
        eps = np.finfo(got.dtype).eps if got.dtype.kind == "f" else 0.0
        near_zero = 2 * eps * _scale(exact_want)
        close = np.isclose(exact_got, exact_want, rtol=8 * eps, atol=near_zero, equal_nan=True)
        wrong = ~close
    wrong = _as_array(wrong).astype(bool)
    nan = wrong & np.isnan(exact_got)
    high, low = wrong & ~nan & (exact_got >= exact_want), wrong & ~nan & ~(exact_got >= exact_want)
    kinds = np.select([nan, high, low], [3, 1, 2], 0)
    panel = _ErrorPanel(name, got.shape, kinds)
    total = int(wrong.sum())
    facts = [f"{total} of {wrong.size} values are wrong"]
    if total:
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"{name}[{', '.join(map(str, first))}]" if first else name
        facts.append(f"the first is {place}: got {_number(got[first])}, want {_number(want[first])}")
    panel.measure(facts)
    size = (panel.total_width, panel.total_height)
    figure, ax, places = _flow([size], f"Where {name} is wrong", panel.lines, 0.35)
    panel.draw(ax, *places[0])
    words = ("right", "too high", "too low", "not a number")
    counted = ", ".join(f"{int((kinds == k).sum())} {words[k]}" for k in range(4) if (kinds == k).any())
    alt = f"Error map of {name}, {_sizes(got.shape)}: {'; '.join(facts)}. {counted}."
    return Picture(figure, alt, crop=False)


class _ErrorPanel:
    """The one panel of an error map."""

    COLORS = ("#dfeee6", PALETTE[6], PALETTE[5], "#1a1a1a")
    MARKS = ("", "^", "v", "x")
    NAMES = ("right", "too high", "too low", "not a number")

    def __init__(self, name: str, shape: tuple[int, ...], kinds: np.ndarray):
        self.name, self.shape = name, shape
        prefer = kinds.reshape(math.prod(shape[:-2]), -1).any(1)
        self.canvas = _Canvas(shape, np.zeros((0, max(len(shape), 1)), int), prefer)
        self.kinds = self.canvas.spread(kinds, -1)

    def measure(self, facts: list[str]) -> None:
        rows, columns = self.kinds.shape
        if self.canvas.wrapped:
            self.cell = np.array([min(0.3, WIDEST / columns), min(0.3, 2.4 / rows)])
        else:
            widest = 4.6 if len(self.shape) < 3 else WIDEST
            self.cell = np.full(2, min(0.26, widest / columns, 3.6 / rows))
        if self.canvas.hidden:
            facts = [*facts, f"not shown: {plural(self.canvas.hidden, 'more slice')}"]
        if self.canvas.step > 1:
            facts = [*facts, f"reduced: each square is up to {self.canvas.step} elements a side"]
        self.lines = facts
        self.above = 0.25 if not self.canvas.wrapped or rows == 1 else 0.1
        self.above += 0.2 * (len(self.shape) > 2)
        self.total_width = 0.55 + columns * self.cell[0] + 0.25
        self.total_height = self.above + rows * self.cell[1] + 0.15

    def draw(self, ax: Axes, left: float, top: float) -> None:
        corner = np.array([left + 0.55, top + self.above])
        image = np.ones((*self.kinds.shape, 4))
        image[self.kinds < 0] = (1, 1, 1, 0)
        for kind, color in enumerate(self.COLORS):
            image[self.kinds == kind] = (*to_rgb(color), 1)
        _image(ax, image, corner, self.cell)
        inside = self.kinds >= 0
        if min(self.cell) >= 0.05:
            lines = corner + _borders(inside) * self.cell
            ax.add_collection(LineCollection(lines, colors="white", linewidths=0.6, zorder=2), autolim=False)
        lines = corner + _contour(inside) * self.cell
        ax.add_collection(LineCollection(lines, colors="#777777", linewidths=0.9, zorder=2.2), autolim=False)
        _ticks(ax, corner, self.cell, self.shape, (), self.canvas)
        x, y = 0.3, ax.get_ylim()[0] - 0.25
        for kind, (color, mark, word) in enumerate(zip(self.COLORS, self.MARKS, self.NAMES, strict=True)):
            row, column = np.nonzero(self.kinds == kind)
            if not len(row):
                continue
            ax.add_patch(Rectangle((x, y), 0.2, 0.14, facecolor=color, edgecolor="#777777", lw=0.6))
            _write(ax, x + 0.28, y + 0.12, word)
            if mark:
                ax.plot([x + 0.1], [y + 0.07], mark, color="white", ms=5)
            if mark and min(self.cell) >= 0.09:
                points = corner + (np.stack([column, row], 1) + 0.5) * self.cell
                ax.plot(*points.T, mark, color="white", ms=0.45 * 72 * min(self.cell), zorder=3)
            x += 0.6 + _text_width(word)


def _as_array(values: object) -> np.ndarray:
    """A NumPy array of a tensor of any dtype; bfloat16 becomes float32."""
    if hasattr(values, "detach"):
        values = values.detach()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
        return values.numpy()
    return np.asarray(values)


def _scale(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))


def _number(value: object) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind == "f" else str(value)


def _sizes(shape: tuple[int, ...]) -> str:
    return " by ".join(str(n) for n in shape) or "one number"


# ---- plumbing: placing panels, text and cells


def _flow(
    sizes: Sequence[tuple[float, float]], title: str, head: Sequence[str], foot: float
) -> tuple[Figure, Axes, list[tuple[float, float]]]:
    """A figure with a title on which panels of these sizes flow left to right, then down.

    Returns it, its axes (ruled in inches, y down), and the panels' upper left corners.
    """
    titles = _wrap(title, 7.6, 12, bold=True)
    notes = [line for text in head for line in _wrap(text, 7.6)]
    x, y, row_height = 0.0, 0.14 + 0.24 * len(titles) + 0.18 * len(notes), 0.0
    places = []
    for panel_width, panel_height in sizes:
        if x and x + panel_width > 8.3:
            x, y, row_height = 0.0, y + row_height, 0.0
        places.append((x, y))
        x, row_height = x + panel_width, max(row_height, panel_height)
    ends = [place[0] + size[0] for place, size in zip(places, sizes, strict=True)]
    texts = [_text_width(t, 12, bold=True) for t in titles] + [_text_width(t) for t in notes]
    width = max([8.0, *ends, *(t + 0.6 for t in texts)])
    figure, ax = new_sheet(width, y + row_height + foot, unit=1)
    for number, text in enumerate(titles):
        _write(ax, 0.3, 0.24 * (number + 1), text, fontsize=12, weight="bold")
    for number, text in enumerate(notes):
        _write(ax, 0.3, 0.24 * len(titles) + 0.04 + 0.18 * (number + 1), text, color=FAINT)
    return figure, ax, places


def _write(ax: Axes, left: float, base: float, text: str, **style) -> None:
    """A line of text whose baseline starts there."""
    style = {"fontsize": 9, "color": INK, **style}
    ax.text(left, base, text, ha="left", va="baseline", **style)


def _image(ax: Axes, colors: np.ndarray, corner: Sequence[float], cell: Sequence[float]) -> None:
    """Cells of these colors, [rows, columns, 3 or 4], without touching the limits of the axes."""
    right, bottom = corner[0] + colors.shape[1] * cell[0], corner[1] + colors.shape[0] * cell[1]
    extent = (corner[0], right, bottom, corner[1])
    image = AxesImage(ax, extent=extent, interpolation="nearest", origin="upper", zorder=1)
    image.set_data(colors)
    ax.add_image(image)


def _text_width(text: str, fontsize: float = 9, bold: bool = False) -> float:
    """About how wide a line of text is, in inches."""
    return (0.63 if bold else 0.56) * fontsize / 72 * len(text)


def _wrap(text: str, width: float, fontsize: float = 9, bold: bool = False) -> list[str]:
    """Lines of about that many inches."""
    return textwrap.wrap(text, max(12, int(width / _text_width("m", fontsize, bold)))) or [""]


def _ticks(ax: Axes, corner, cell, shape: tuple[int, ...], dims: Sequence[str], canvas: _Canvas) -> None:
    """Element numbers along the sides of a canvas, and the names of slices."""
    small = {"fontsize": 9, "color": FAINT}
    left, above = corner[0] - 0.07, corner[1] - 0.06
    if canvas.wrapped and canvas.rows == 1:
        for index in _round_numbers(math.prod(shape), cell[0], 0.45):
            right = corner[0] + (index - canvas.start + 0.5) * cell[0]
            ax.text(right, above, str(index), ha="center", va="bottom", **small)
        return
    if canvas.wrapped:
        for row in range(0, canvas.rows, max(1, math.ceil(0.16 / cell[1]))):
            number = (canvas.start + row * canvas.columns) * canvas.step
            ax.text(left, corner[1] + (row + 0.5) * cell[1], str(number), ha="right", va="center", **small)
        return
    for number, which in enumerate(canvas.slices):
        row, column = canvas.corners[number]
        x, y = corner[0] + column * cell[0], corner[1] + row * cell[1]
        if column == 0:
            for index in _round_numbers(math.ceil(shape[-2] / canvas.steps[0]), cell[1], 0.3):
                down = y + (index + 0.5 - canvas.row_low / canvas.steps[0]) * cell[1]
                ax.text(left, down, str(index * canvas.steps[0]), ha="right", va="center", **small)
        for index in _round_numbers(math.ceil(shape[-1] / canvas.steps[1]), cell[0], 0.4):
            right = x + (index + 0.5 - canvas.column_low / canvas.steps[1]) * cell[0]
            ax.text(right, y - 0.06, str(index * canvas.steps[1]), ha="center", va="bottom", **small)
        if len(shape) > 2:
            name = f"{dims[0]}={which}" if len(shape) == 3 and dims else f"slice {which}"
            ax.text(x, y - 0.23, name, ha="left", va="bottom", fontsize=9, color=INK)


def _round_numbers(count: int, cell: float, apart: float) -> list[int]:
    """Multiples of a power of two below ``count`` that lie at least so many inches apart."""
    step = 1
    while step * cell < apart:
        step *= 2
    return list(range(0, count, step))


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """Row, first column and length of every horizontal run of True."""
    padded = np.pad(mask.astype(np.int8), ((0, 0), (1, 1)))
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]
    return [(int(r), int(s), int(e - s)) for r, s, e in zip(rows, starts, ends, strict=True)]


def _spots(mask: np.ndarray, columns: float, rows: float, most: int = 6) -> Iterator[np.ndarray]:
    """Middles (x, y) of areas of True with room for a text of that size, all in cells."""
    mask = mask.copy()
    for _ in range(most):
        runs = _runs(mask)
        if not runs:
            return
        row, column, length = max(runs, key=lambda run: run[2])
        end = row + 1
        while end < len(mask) and mask[end, column : column + length].all():
            end += 1
        if length < columns:
            return
        if end - row >= rows:
            yield np.array([column + length / 2, (row + end) / 2])
        mask[row:end, column : column + length] = False


def _contour(mask: np.ndarray) -> np.ndarray:
    """Line segments around the areas of True, [n, 2, 2] as (x, y)."""
    padded = np.pad(mask.astype(np.int8), 1)
    row, column = np.nonzero(np.diff(padded, axis=0)[:, 1:-1])
    level = np.stack([np.stack([column, row], 1), np.stack([column + 1, row], 1)], 1)
    row, column = np.nonzero(np.diff(padded, axis=1)[1:-1])
    upright = np.stack([np.stack([column, row], 1), np.stack([column, row + 1], 1)], 1)
    return np.concatenate([level, upright])


def _seams(codes: np.ndarray) -> np.ndarray:
    """Line segments between neighbouring cells of different codes, both at least 0."""
    row, column = np.nonzero((codes[1:] != codes[:-1]) & (codes[1:] >= 0) & (codes[:-1] >= 0))
    level = np.stack([np.stack([column, row + 1], 1), np.stack([column + 1, row + 1], 1)], 1)
    left, right = codes[:, :-1], codes[:, 1:]
    row, column = np.nonzero((right != left) & (right >= 0) & (left >= 0))
    upright = np.stack([np.stack([column + 1, row], 1), np.stack([column + 1, row + 1], 1)], 1)
    return np.concatenate([level, upright])


def _borders(mask: np.ndarray) -> np.ndarray:
    """Line segments between and around the cells that are True."""
    row, column = np.nonzero(mask)
    corners = np.stack([column, row], 1)
    sides = [((0, 0), (1, 0)), ((0, 1), (1, 1)), ((0, 0), (0, 1)), ((1, 0), (1, 1))]
    return np.concatenate([np.stack([corners + a, corners + b], 1) for a, b in sides])


def _area(mask: np.ndarray, corner: np.ndarray, cell: np.ndarray) -> Path:
    """The cells that are True as one path, on axes ruled in inches."""
    boxes = []
    for row, column, length in _runs(mask):
        right, down = column + length, row + 1
        corners = [(column, row), (right, row), (right, down), (column, down), (column, row)]
        boxes.append(Path(corner + np.array(corners) * cell, closed=True))
    return Path.make_compound_path(*boxes)
