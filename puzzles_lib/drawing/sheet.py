"""Draw pictures: a figure with alt text, sheets ruled in cells, boxes, labels and arrows."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.transforms import ScaledTranslation
from matplotlib.typing import ColorType

from puzzles_lib.drawing.colours import FAINT, INK, LINE, PALE, text_color
from puzzles_lib.drawing.svg import to_svg

LEADING = 1.25  # from line to line, in font sizes
UNIT = 0.42  # inches per unit of a sheet: a cell with room for three digits at size 10


class Picture:
    """A figure that a notebook shows as SVG with alt text, in the colors of the page's theme.

    As text a picture is its alt text, which must say what the figure shows, including its numbers.

    crop: cut or extend the figure to what is drawn. It takes twice as long, so exact figures don't use it.
    """

    def __init__(self, figure: Figure, alt: str, crop: bool = True):
        if not alt:
            raise ValueError("Picture: alt is empty, but it must say what the figure shows")
        self.figure = figure
        self.crop = crop
        self.alt = " ".join(alt.split())

    def png(self) -> bytes:
        """Return the figure as PNG bytes on white; the same figure gives the same bytes."""
        buffer = io.BytesIO()
        box = "tight" if self.crop else None
        self.figure.savefig(
            buffer, format="png", dpi=110, bbox_inches=box, facecolor="white", metadata={"Software": None}
        )
        return buffer.getvalue()

    def svg(self) -> str:
        """Return the figure as one ``<svg>`` element; the same figure gives the same text."""
        return to_svg(self.figure, self.alt, self.crop)

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"[picture] {self.alt}"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with a size in inches, without using pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def new_sheet(columns: float, rows: float, unit: float = UNIT) -> tuple[Figure, Axes]:
    """Return a figure and its axes for `cells`: one unit is a cell, with x to the right and y *down*.

    columns, rows: the size in cells. Leave room for labels (a row label needs 2 to 4 columns).
    unit: inches per cell. Font sizes are in points and do not scale with it.

        figure, ax = new_sheet(10, 3)
        block = cells(ax, [3, 1, 4, 1, 5], x=2, y=1, title="x", index=True, colors=SKY)
        return Picture(figure, "Five cells, x = 3, 1, 4, 1, 5.")
    """
    figure = Figure(figsize=(columns * unit, rows * unit), layout="none")  # type: ignore[arg-type]
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    ax.set_axis_off()
    return figure, ax


@dataclass(frozen=True)
class Cells:
    """The place of a grid of `cells` on its axes, to attach arrows and labels to.

    x, y: the upper left corner. rows, columns: the number of cells. width, height: the size of one cell.
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
        """Return the middle of cell ``(column)`` of a strip or ``(row, column)`` of a grid."""
        return self._place(at, 0.5, 0.5)

    def top(self, *at: int) -> tuple[float, float]:
        """Return the middle of that cell's upper edge."""
        return self._place(at, 0.5, 0.0)

    def foot(self, *at: int) -> tuple[float, float]:
        """Return the middle of that cell's lower edge."""
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
    edge: ColorType = LINE,
    title: str | None = None,
    index: bool | Sequence = False,
    row_index: bool | Sequence = False,
    fontsize: float = 10,
) -> Cells:
    """Draw a strip or grid of labeled cells: a block, a tensor, or the bits of a word.

    ax: axes whose y runs down, as from `new_sheet`.
    values: one- or two-dimensional list, array or tensor of numbers or texts; ``None`` and ``""``
        leave a cell empty, floats are written with up to three digits.
    x, y: the upper left corner. width, height: the size of one cell.
    colors, hatch, edge: one for all cells, or nested like ``values``. A color of ``None`` draws no
        fill, and a hatch of ``"///"`` marks a cell as switched off. Texts turn white on dark colors.
    title: a text to the left of the cells, next to the first row.
    index: small numbers above the columns: True for 0, 1, 2 ..., or the labels themselves.
    row_index: the same, to the left of the rows.
    fontsize: that of the values, in points; labels are one point smaller, but at least 9.

    Returns the place of the cells. Raises ValueError for values with more than two dimensions or rows
    of different lengths.
    """
    texts, strip = _grid(values)
    shape = (len(texts), len(texts[0]) if texts else 0)
    fills, hatches, edges = (_spread(v, shape, strip) for v in (colors, hatch, edge))
    for row in range(shape[0]):
        for column in range(shape[1]):
            fill = fills[row][column]
            left, top = x + column * width, y + row * height
            look = {"edge": edges[row][column], "hatch": hatches[row][column], "fontsize": fontsize}
            box(ax, left, top, width, height, texts[row][column], color=fill, **look)
    small = max(9, fontsize - 1)
    for column, text in enumerate(_labels(index, shape[1])):
        middle = x + (column + 0.5) * width
        label(ax, middle, y - 0.12, text, align="bottom", fontsize=small, color=FAINT)
    for row, text in enumerate(_labels(row_index, shape[0])):
        middle = y + (row + 0.5) * height
        label(ax, x - 0.15, middle, text, align="right", fontsize=small, color=FAINT)
    if title:
        longest = max((len(text) for text in _labels(row_index, shape[0])), default=0)
        gap = 0.25 + (0.1 + 0.2 * longest if longest else 0.0)
        label(ax, x - gap, y + height / 2, title, align="right", fontsize=fontsize + 1)
    return Cells(x, y, *shape, width, height)


def box(
    ax: Axes,
    x: float,
    y: float,
    width: float = 1.0,
    height: float = 1.0,
    text: str = "",
    *,
    color: ColorType | None = PALE,
    edge: ColorType = LINE,
    linewidth: float = 0.8,
    hatch: str | None = None,
    dashed: bool = False,
    fontsize: float = 10,
) -> Cells:
    """Draw a rectangle with a text in its middle; with ``color=None``, only a frame.

    x, y: the upper left corner. The text is white if the color is dark.

    Returns its place, as a grid of one cell.
    """
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor="none" if color is None else color,
            edgecolor=edge,
            linewidth=linewidth,
            linestyle="--" if dashed else "-",
            hatch=hatch,
        )
    )
    if text:
        ink = INK if color is None else text_color(color)
        label(ax, x + width / 2, y + height / 2, text, fontsize=fontsize, color=ink)
    return Cells(x, y, 1, 1, width, height)


def label(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    align: str = "center",
    fontsize: float = 10,
    color: ColorType = INK,
    behind: ColorType | None = None,
    pad: float = 1.0,
    **style: Any,
) -> None:
    """Write a text at a point; several lines become one block.

    align: which part of the text is at the point. Horizontally ``"left"`` or ``"right"``, or else the
        middle; vertically ``"top"``, ``"bottom"`` or ``"baseline"``, or else the middle; or one of each, as
        in ``"left bottom"``.
    behind: the color of a card under the text, which hides what is there. pad: points around the text.
    style: ``rotation``, ``weight``, ``family``, ``zorder``, as in matplotlib.

    Raises ValueError for an unknown align.
    """
    words = align.split()
    across = next((word for word in words if word in ("left", "right")), "center")
    down = next((word for word in words if word in ("top", "bottom", "baseline")), "center")
    if set(words) - {across, down}:
        raise ValueError(
            f"label: align must be one of left, right, top, bottom, baseline, center, but is {align!r}"
        )
    card = None if behind is None else {"facecolor": behind, "edgecolor": "none", "pad": pad}
    lines = text.split("\n")
    first = {"top": 0.0, "baseline": 0.0, "bottom": 1.0}.get(down, 0.5) * (len(lines) - 1)
    for number, line in enumerate(lines):  # one by one, because the page's font is not matplotlib's
        below = (number - first) * LEADING * fontsize / 72  # inches
        moved = ax.transData + ScaledTranslation(0, -below, ax.figure.dpi_scale_trans)
        look: dict[str, Any] = {
            "fontsize": fontsize,
            "color": color,
            "bbox": card,
            "parse_math": False,
            **style,
        }
        ax.text(x, y, line, ha=across, va=down, transform=moved, **look)


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    *,
    color: ColorType = INK,
    bend: float = 0.0,
    fontsize: float = 10,
) -> None:
    """Draw an arrow from one point to another, with a text next to its middle.

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
        label(ax, *middle, text, align="left", fontsize=fontsize, color=color)


def legend(ax: Axes, y: float, *entries: tuple) -> None:
    """Draw a line of small squares, each with its meaning.

    y: the upper edge. entries: x, color and text of each, and perhaps a hatch.
    """
    for x, color, text, *hatch in entries:
        box(ax, x, y, 0.7, 0.6, color=color, hatch=hatch[0] if hatch else None)
        label(ax, x + 0.95, y + 0.3, text, align="left")


def _grid(values: Any) -> tuple[list[list[str]], bool]:
    """Return nested texts, and whether the values were one-dimensional."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    rows = list(values) if isinstance(values, (list, tuple, range, str)) else [values]
    strip = not any(isinstance(row, (list, tuple)) for row in rows)
    nested = [rows] if strip else [list(row) for row in rows]
    if any(isinstance(v, (list, tuple)) for row in nested for v in row):
        raise ValueError("cells: values must have one or two dimensions, but have more")
    if len({len(row) for row in nested}) > 1:
        raise ValueError(f"cells: rows must have the same length, but have {[len(row) for row in nested]}")
    return [[_text(v) for v in row] for row in nested], strip


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}".replace("-", "\u2212") if isinstance(value, float) else str(value)


def _spread(value: Any, shape: tuple[int, int], strip: bool) -> list[list]:
    """Return one value for all cells, or nested values, as nested values of that shape."""
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
