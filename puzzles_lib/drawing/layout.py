"""Placing panels and text on a figure ruled in inches, and the shapes of areas of cells."""

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.path import Path

from puzzles_lib.drawing.colours import FAINT
from puzzles_lib.drawing.sheet import label, new_sheet


def plural(number: int, thing: str) -> str:
    """``1 lane``, ``2 lanes``."""
    return f"{number} {thing}{'s' * (number != 1)}"


def flow(
    sizes: Sequence[tuple[float, float]], title: str, head: Sequence[str], foot: float
) -> tuple[Figure, Axes, list[tuple[float, float]]]:
    """A figure with a title on which panels of these sizes flow left to right, then down.

    Returns it, its axes (ruled in inches, y down), and the panels' upper left corners.
    """
    titles = wrap_text(title, 7.6, 12, bold=True)
    notes = [line for text in head for line in wrap_text(text, 7.6)]
    x, y, row_height = 0.0, 0.14 + 0.24 * len(titles) + 0.18 * len(notes), 0.0
    places = []
    for panel_width, panel_height in sizes:
        if x and x + panel_width > 8.3:
            x, y, row_height = 0.0, y + row_height, 0.0
        places.append((x, y))
        x, row_height = x + panel_width, max(row_height, panel_height)
    ends = [place[0] + size[0] for place, size in zip(places, sizes, strict=True)]
    texts = [text_width(t, 12, bold=True) for t in titles] + [text_width(t) for t in notes]
    width = max([8.0, *ends, *(t + 0.6 for t in texts)])
    figure, ax = new_sheet(width, y + row_height + foot, unit=1)
    for number, text in enumerate(titles):
        write_line(ax, 0.3, 0.24 * (number + 1), text, fontsize=12, weight="bold")
    for number, text in enumerate(notes):
        write_line(ax, 0.3, 0.24 * len(titles) + 0.04 + 0.18 * (number + 1), text, color=FAINT)
    return figure, ax, places


def write_line(ax: Axes, left: float, base: float, text: str, **style) -> None:
    """A line of text whose baseline starts there."""
    label(ax, left, base, text, align="left baseline", **{"fontsize": 9, **style})


def draw_image(ax: Axes, colors: np.ndarray, corner: Sequence[float], cell: Sequence[float]) -> None:
    """Cells of these colors, [rows, columns, 3 or 4], without touching the limits of the axes."""
    right, bottom = corner[0] + colors.shape[1] * cell[0], corner[1] + colors.shape[0] * cell[1]
    extent = (corner[0], right, bottom, corner[1])
    image = AxesImage(ax, extent=extent, interpolation="nearest", origin="upper", zorder=1)
    image.set_data(colors)
    ax.add_image(image)


def text_width(text: str, fontsize: float = 9, bold: bool = False) -> float:
    """About how wide a line of text is, in inches."""
    return (0.63 if bold else 0.56) * fontsize / 72 * len(text)


def wrap_text(text: str, width: float, fontsize: float = 9, bold: bool = False) -> list[str]:
    """Lines of about that many inches."""
    return textwrap.wrap(text, max(12, int(width / text_width("m", fontsize, bold)))) or [""]


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """Row, first column and length of every horizontal run of True."""
    padded = np.pad(mask.astype(np.int8), ((0, 0), (1, 1)))
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]
    return [(int(r), int(s), int(e - s)) for r, s, e in zip(rows, starts, ends, strict=True)]


def spots_for_text(mask: np.ndarray, columns: float, rows: float, most: int = 6) -> Iterator[np.ndarray]:
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


def contour(mask: np.ndarray) -> np.ndarray:
    """Line segments around the areas of True, [n, 2, 2] as (x, y)."""
    padded = np.pad(mask.astype(np.int8), 1)
    row, column = np.nonzero(np.diff(padded, axis=0)[:, 1:-1])
    level = np.stack([np.stack([column, row], 1), np.stack([column + 1, row], 1)], 1)
    row, column = np.nonzero(np.diff(padded, axis=1)[1:-1])
    upright = np.stack([np.stack([column, row], 1), np.stack([column, row + 1], 1)], 1)
    return np.concatenate([level, upright])


def seams(codes: np.ndarray) -> np.ndarray:
    """Line segments between neighbouring cells of different codes, both at least 0."""
    row, column = np.nonzero((codes[1:] != codes[:-1]) & (codes[1:] >= 0) & (codes[:-1] >= 0))
    level = np.stack([np.stack([column, row + 1], 1), np.stack([column + 1, row + 1], 1)], 1)
    left, right = codes[:, :-1], codes[:, 1:]
    row, column = np.nonzero((right != left) & (right >= 0) & (left >= 0))
    upright = np.stack([np.stack([column + 1, row], 1), np.stack([column + 1, row + 1], 1)], 1)
    return np.concatenate([level, upright])


def borders(mask: np.ndarray) -> np.ndarray:
    """Line segments between and around the cells that are True."""
    row, column = np.nonzero(mask)
    corners = np.stack([column, row], 1)
    sides = [((0, 0), (1, 0)), ((0, 1), (1, 1)), ((0, 0), (0, 1)), ((1, 0), (1, 1))]
    return np.concatenate([np.stack([corners + a, corners + b], 1) for a, b in sides])


def area_path(mask: np.ndarray, corner: np.ndarray, cell: np.ndarray) -> Path:
    """The cells that are True as one path, on axes ruled in inches."""
    boxes = []
    for row, column, length in _runs(mask):
        right, down = column + length, row + 1
        corners = [(column, row), (right, row), (right, down), (column, down), (column, row)]
        boxes.append(Path(corner + np.array(corners) * cell, closed=True))
    return Path.make_compound_path(*boxes)
