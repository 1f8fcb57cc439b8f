"""Lay out a tensor in a plane: which cell of a panel shows which element."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from puzzles_lib.drawing.colours import FAINT
from puzzles_lib.drawing.sheet import label

LONGEST = 256  # the most cells along an axis of a panel
LINE_LENGTH = 128  # the most cells in a line of a strip
WIDEST, TALLEST = 7.0, 3.2  # of a panel, in inches


class Canvas:
    """A tensor and the space around it in a plane: a wrapped strip, a grid, or a row of slices.

    ``place`` maps coordinates to the cells of the canvas, ``spread`` lays values out on it.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        around: np.ndarray,
        prefer: np.ndarray,
        most_slices: int = 6,
        gap: int = 0,
    ):
        """Lay out the canvas.

        around: coordinates to leave room for. prefer: bool per leading index: the slices to show first.
        gap: the least number of cells between lines of slices.
        """
        self.shape = shape
        self.wrapped = len(shape) <= 1
        if self.wrapped:
            self._lay_strip(math.prod(shape), around)
        else:
            self._lay_grid(around, prefer, most_slices, gap)

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

    def _lay_grid(self, around: np.ndarray, prefer: np.ndarray, most_slices: int, line_gap: int) -> None:
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
        self.gap = 1 + self.slice_columns // 16  # between neighboring slices
        self.step = max(self.steps)
        self._arrange(self.rows, max(self.gap + 2, line_gap))

    def _arrange(self, slice_rows: int, gap: int) -> None:
        """Arrange the slices in rows so that the cells are as large as possible."""

        def cell(across: int) -> float:
            down = math.ceil(len(self.slices) / across)
            return min(
                WIDEST / (across * (self.slice_columns + self.gap)), TALLEST / (down * (slice_rows + gap))
            )

        self.across = max(range(1, len(self.slices) + 1), key=lambda n: (cell(n), n))
        down = math.ceil(len(self.slices) / self.across)
        # The gap between lines of slices has room for their names and column numbers: 0.4 inches.
        gap = max(gap, math.ceil(0.45 / min(0.2, cell(self.across)))) if down > 1 else gap
        self.line_gap = gap
        self.corners = []  # row and column of each slice
        for number in range(len(self.slices)):
            line, position = divmod(number, self.across)
            self.corners.append((line * (slice_rows + gap), position * (self.slice_columns + self.gap)))
        self.slice_rows = slice_rows
        self.rows = down * (slice_rows + gap) - gap
        self.columns = self.across * (self.slice_columns + self.gap) - self.gap

    def place(self, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row and column of [n, axes] coordinates, and which of them are on the canvas."""
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
        """Return a boolean canvas that is True at these coordinates."""
        canvas = np.zeros((self.rows, self.columns), bool)
        if len(coordinates):
            row, column, shown = self.place(coordinates)
            canvas[row[shown], column[shown]] = True
        return canvas

    def spread(self, values: np.ndarray, empty: int) -> np.ndarray:
        """Return the values of the tensor's elements on the canvas, and ``empty`` elsewhere.

        If several elements share a cell, the largest value is used.
        """
        canvas = np.full((self.rows, self.columns), np.iinfo(np.int64).min)
        shape = self.shape or (1,)
        coordinates = np.indices(shape).reshape(len(shape), -1).T
        row, column, shown = self.place(coordinates)
        np.maximum.at(canvas, (row[shown], column[shown]), values.reshape(-1)[shown])
        canvas[canvas == np.iinfo(np.int64).min] = empty
        return canvas


def draw_ticks(
    ax: Axes,
    corner: np.ndarray,
    cell: np.ndarray,
    shape: tuple[int, ...],
    dims: Sequence[str],
    canvas: Canvas,
) -> None:
    """Draw element numbers along the sides of a canvas, and the names of slices."""
    small: dict[str, Any] = {"fontsize": 9, "color": FAINT}
    left, above = corner[0] - 0.07, corner[1] - 0.06
    if canvas.wrapped and canvas.rows == 1:
        for index in _round_numbers(math.prod(shape), cell[0], 0.45):
            right = corner[0] + (index - canvas.start + 0.5) * cell[0]
            label(ax, right, above, str(index), align="bottom", **small)
        return
    if canvas.wrapped:
        for row in range(0, canvas.rows, max(1, math.ceil(0.16 / cell[1]))):
            number = (canvas.start + row * canvas.columns) * canvas.step
            label(ax, left, corner[1] + (row + 0.5) * cell[1], str(number), align="right", **small)
        return
    for number, which in enumerate(canvas.slices):
        row, column = canvas.corners[number]
        x, y = corner[0] + column * cell[0], corner[1] + row * cell[1]
        if column == 0:
            for index in _round_numbers(math.ceil(shape[-2] / canvas.steps[0]), cell[1], 0.3):
                down = y + (index + 0.5 - canvas.row_low / canvas.steps[0]) * cell[1]
                label(ax, left, down, str(index * canvas.steps[0]), align="right", **small)
        for index in _round_numbers(math.ceil(shape[-1] / canvas.steps[1]), cell[0], 0.4):
            right = x + (index + 0.5 - canvas.column_low / canvas.steps[1]) * cell[0]
            label(ax, right, y - 0.06, str(index * canvas.steps[1]), align="bottom", **small)
        if len(shape) > 2:
            label(ax, x, y - 0.23, _slice_name(shape, dims, which), align="left bottom", fontsize=9)


def _slice_name(shape: tuple[int, ...], dims: Sequence[str], which: int) -> str:
    """Return ``B=1`` for a slice along B, and ``split 1`` along SPLITS: that one counts something."""
    if len(shape) != 3 or not dims or len(dims[0]) > 8:
        return f"slice {which}"
    word = dims[0]
    return f"{word[:-1].lower()} {which}" if word.isalpha() and word[1:].endswith("S") else f"{word}={which}"


def _round_numbers(count: int, cell: float, apart: float) -> list[int]:
    """Return the multiples of a power of two below ``count`` that are far enough apart."""
    step = 1
    while step * cell < apart:
        step *= 2
    return list(range(0, count, step))
