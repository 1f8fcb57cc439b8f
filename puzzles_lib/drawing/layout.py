"""Place panels and text on a figure ruled in inches, and find the outlines of areas of cells."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from puzzles_lib.drawing.colours import FAINT, SNOW
from puzzles_lib.drawing.sheet import label, new_sheet

MOST_BOXES = 800  # areas of one color; more are drawn as an image


def plural(number: int, thing: str) -> str:
    """Return ``1 lane`` or ``2 lanes``."""
    return f"{number} {thing}{'s' * (number != 1)}"


def _placed(
    sizes: Sequence[tuple[float, float]], title: str, head: Sequence[str]
) -> tuple[list[tuple[float, float]], float]:
    """Return the panels' upper left corners, and where the lowest panel ends."""
    lines = wrap_text(title, 7.6, 12, bold=True), [line for text in head for line in wrap_text(text, 7.6)]
    x, y, row_height = 0.0, 0.14 + 0.24 * len(lines[0]) + 0.18 * len(lines[1]), 0.0
    places = []
    for panel_width, panel_height in sizes:
        if x and x + panel_width > 8.3:
            x, y, row_height = 0.0, y + row_height, 0.0
        places.append((x, y))
        x, row_height = x + panel_width, max(row_height, panel_height)
    return places, y + row_height


def flow_height(sizes: Sequence[tuple[float, float]], title: str, head: Sequence[str], foot: float) -> float:
    """Return the height, in inches, of the figure that `flow` makes of the same."""
    return _placed(sizes, title, head)[1] + foot


def flow(
    sizes: Sequence[tuple[float, float]], title: str, head: Sequence[str], foot: float
) -> tuple[Figure, Axes, list[tuple[float, float]]]:
    """Make a figure with a title, on which panels of these sizes flow from left to right, then down.

    Returns the figure, its axes (ruled in inches, y down), and the panels' upper left corners.
    """
    titles = wrap_text(title, 7.6, 12, bold=True)
    notes = [line for text in head for line in wrap_text(text, 7.6)]
    places, bottom = _placed(sizes, title, head)
    ends = [place[0] + size[0] for place, size in zip(places, sizes, strict=True)]
    texts = [text_width(t, 12, bold=True) for t in titles] + [text_width(t) for t in notes]
    width = max([8.0, *ends, *(t + 0.6 for t in texts)])
    figure, ax = new_sheet(width, bottom + foot, unit=1)
    for number, text in enumerate(titles):
        write_line(ax, 0.3, 0.24 * (number + 1), text, fontsize=12, weight="bold")
    for number, text in enumerate(notes):
        write_line(ax, 0.3, 0.24 * len(titles) + 0.04 + 0.18 * (number + 1), text, color=FAINT)
    return figure, ax, places


def write_line(ax: Axes, left: float, base: float, text: str, **style: Any) -> None:
    """Write a line of text whose baseline starts there."""
    label(ax, left, base, text, align="left baseline", **{"fontsize": 9, **style})


def fill_area(
    ax: Axes, mask: np.ndarray, color: Any, corner: np.ndarray, cell: np.ndarray, hatch: str | None = None
) -> None:
    """Fill the cells that are True, below all lines; many scattered cells become a small image."""
    if not mask.any():
        return
    scattered = int((mask[:, 1:] != mask[:, :-1]).sum()) > 8 * MOST_BOXES
    boxes = [] if scattered else _rectangles(mask)
    if boxes and len(boxes) <= MOST_BOXES:
        look = {"facecolor": color, "edgecolor": SNOW, "lw": 0, "hatch": hatch, "zorder": 1}
        ax.add_patch(PathPatch(_boxes_path(boxes, corner, cell), **look))
        return
    right, bottom = corner + np.array(mask.shape[::-1]) * cell
    extent = (corner[0], right, bottom, corner[1])
    image = AxesImage(ax, extent=extent, interpolation="none", origin="upper", zorder=1)
    image.set_data(np.where(mask[..., None], np.array([*to_rgba(color)]), 0.0))
    ax.add_image(image)


def text_width(text: str, fontsize: float = 9, bold: bool = False) -> float:
    """Return about how wide a line of text is, in inches."""
    return (0.63 if bold else 0.56) * fontsize / 72 * len(text)


def wrap_text(text: str, width: float, fontsize: float = 9, bold: bool = False) -> list[str]:
    """Return the text in lines of about that many inches."""
    return textwrap.wrap(text, max(12, int(width / text_width("m", fontsize, bold)))) or [""]


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """Return row, first column and length of every horizontal run of True."""
    padded = np.pad(mask.astype(np.int8), ((0, 0), (1, 1)))
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]
    return [(int(r), int(s), int(e - s)) for r, s, e in zip(rows, starts, ends, strict=True)]


def spots_for_text(mask: np.ndarray, columns: float, rows: float, most: int = 6) -> Iterator[np.ndarray]:
    """Return the middles (x, y) of areas of True with room for a text of that size, in cells."""
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


def contour(mask: np.ndarray) -> np.ndarray:
    """Return the line segments around the areas of True, [n, 2, 2] as (x, y)."""
    padded = np.pad(mask, 1)
    level = (padded[1:] != padded[:-1])[:, 1:-1]
    upright = (padded[:, 1:] != padded[:, :-1])[1:-1]
    return _segments(level, upright)


def seams(codes: np.ndarray) -> np.ndarray:
    """Return the line segments between neighboring cells of different codes, both at least 0."""
    padded = np.pad(codes, 1, constant_values=-1)
    both = np.minimum(padded[1:], padded[:-1]) >= 0
    level = ((padded[1:] != padded[:-1]) & both)[:, 1:-1]
    both = np.minimum(padded[:, 1:], padded[:, :-1]) >= 0
    upright = ((padded[:, 1:] != padded[:, :-1]) & both)[1:-1]
    return _segments(level, upright)


def borders(mask: np.ndarray) -> np.ndarray:
    """Return the line segments between and around the cells that are True."""
    padded = np.pad(mask, 1)
    return _segments((padded[1:] | padded[:-1])[:, 1:-1], (padded[:, 1:] | padded[:, :-1])[1:-1])


def _segments(level: np.ndarray, upright: np.ndarray) -> np.ndarray:
    """Join edges of cells to few segments: [rows + 1, columns] horizontal, [rows, columns + 1] vertical."""
    lying = [((column, row), (column + length, row)) for row, column, length in _runs(level)]
    standing = [((column, row), (column, row + length)) for column, row, length in _runs(upright.T)]
    return np.array(lying + standing, float).reshape(-1, 2, 2)


def area_path(mask: np.ndarray, corner: np.ndarray, cell: np.ndarray) -> Path:
    """Return the cells that are True as one path, on axes ruled in inches."""
    return _boxes_path(_rectangles(mask), corner, cell)


def _boxes_path(boxes: list[tuple[int, int, int, int]], corner: np.ndarray, cell: np.ndarray) -> Path:
    left, top, right, bottom = np.array(boxes, float).reshape(-1, 4).T
    around = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    points = np.stack([np.stack(point, -1) for point in around], 1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corner + points * cell, codes * len(boxes))


def _rectangles(mask: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return left, top, right and bottom of few rectangles that cover the cells that are True."""
    open_runs: dict[
        tuple[int, int], tuple[int, int]
    ] = {}  # (first column, length) -> (first row, row after the last)
    done = []
    for row, column, length in _runs(mask):
        first, after = open_runs.get((column, length), (row, row))
        if after != row:
            done.append((column, first, column + length, after))
            first = row
        open_runs[column, length] = first, row + 1
    return done + [(c, first, c + length, after) for (c, length), (first, after) in open_runs.items()]
