"""Draw error maps: where a result is wrong."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle

from puzzles_lib.drawing.canvas import WIDEST, Canvas, draw_ticks
from puzzles_lib.drawing.colours import BLUE, FAINT, INK, PALE_GREEN, RIM, SNOW, VERMILLION, YELLOW
from puzzles_lib.drawing.layout import borders, contour, fill_area, flow, plural, text_width, write_line
from puzzles_lib.drawing.sheet import Picture, label
from puzzles_lib.dtypes import of_torch

WORD = 32  # bits of a packed word
MOST_SHOWN = 8  # wrong words on a map
LEAST = 0.6  # of a map's height and width, in inches, unless its cells would be higher or wider than TALL
TALL = 0.2
KINDS = ("right", "too high", "too low", "not a number", "should be NaN")
BIT_KINDS = ("right", "1 instead of 0", "0 instead of 1")


def error_map(got: object, want: object, name: str, wrong: object = None, packed: bool = False) -> Picture:
    """Draw where a result is wrong: too high, too low, not a number, or a number instead of NaN.

    got, want: tensors or arrays of the same shape. name: the name of the result, such as ``"z"``.
    wrong: bool per element. By default an element is wrong if the two differ by more than 8 roundings of
        got's dtype (float8: by more than neighboring numbers do).
    packed: whether each element is a word of 32 bits. Then the map has a row for each of the first wrong
        words, with bit 31 on the left.

    Raises ValueError if the shapes differ.
    """
    relative, of_largest = _slack(got)
    got, want = _as_array(got), _as_array(want)
    if got.shape != want.shape:
        raise ValueError(
            f"error_map: got and want must have the same shape, but have {got.shape} and {want.shape}"
        )
    exact_got, exact_want = got.astype(np.float64), want.astype(np.float64)
    if wrong is None:
        near_zero = of_largest * _scale(exact_want)
        close = np.isclose(exact_got, exact_want, rtol=relative, atol=near_zero, equal_nan=True)
        wrong = ~close
    wrong = _as_array(wrong).astype(bool)
    total = int(wrong.sum())
    facts = [f"{total} of {wrong.size} {'words' if packed else 'values'} are wrong"]
    if total:
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"{name}[{', '.join(map(str, first))}]" if first else name
        facts.append(f"the first is {place}: got {_number(got[first])}, want {_number(want[first])}")
    names: tuple[str, ...] = BIT_KINDS if packed else KINDS
    if packed:
        kinds = _kinds_of_bits(got, want, wrong)
        facts.append(f"a row is a word, bit 31 on the left: {int((kinds > 0).sum())} bits are wrong")
        shown = np.argwhere(wrong)[:MOST_SHOWN]
        if total > len(shown):
            facts.append(f"not shown: {plural(total - len(shown), 'more wrong word')}")
        labels = [f"{name}[{', '.join(map(str, place))}]" for place in shown]
        panel: _ErrorPanel = _BitPanel(name, kinds[tuple(shown.T)], names, labels)
    else:
        kinds = _kinds(exact_got, exact_want, wrong)
        panel = _ErrorPanel(name, kinds, names)
    panel.measure(facts)
    size = (panel.total_width, panel.total_height)
    figure, ax, places = flow([size], f"Where {name} is wrong", panel.lines, 0.35)
    panel.draw(ax, *places[0])
    counts = [(int((kinds == k).sum()), word) for k, word in enumerate(names) if k in kinds]
    counted = ", ".join(f"{word}: {n}" if packed else f"{n} {word}" for n, word in counts)
    alt = f"Error map of {name}, {_sizes(got.shape)}: {'; '.join(facts)}. {counted}."
    return Picture(figure, alt, crop=False)


def _kinds(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return per element an index into `KINDS`."""
    return np.select([~wrong, np.isnan(got), np.isnan(want), got >= want], [0, 3, 4, 1], 2)


def _kinds_of_bits(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return per bit an index into `BIT_KINDS`; the last axis is a word's bits, from 31 to 0."""
    bits = np.arange(WORD)[::-1]
    got, want = (words.astype(np.int64)[..., None] >> bits & 1 for words in (got, want))
    return np.where(wrong[..., None] & (got != want), np.where(got == 1, 1, 2), 0)


class _ErrorPanel:
    """The one panel of an error map."""

    COLORS = (PALE_GREEN, VERMILLION, BLUE, INK, YELLOW)
    HATCHES = (None, None, "///", "xxx", "...")

    def __init__(self, name: str, kinds: np.ndarray, names: Sequence[str]):
        self.name, self.shape, self.names = name, (shape := kinds.shape), names
        prefer = np.asarray(kinds.reshape(math.prod(shape[:-2]), -1).any(1))
        self.canvas = Canvas(shape, np.zeros((0, max(len(shape), 1)), int), prefer)
        self.kinds = self.canvas.spread(kinds, -1)

    def measure(self, facts: list[str]) -> None:
        rows, columns = self.kinds.shape
        if self.canvas.wrapped:
            self.cell = np.array([min(0.3, WIDEST / columns), min(0.3, 2.4 / rows)])
        else:
            widest = 4.6 if len(self.shape) < 3 else WIDEST
            side = min(0.26, widest / columns, 3.6 / rows)
            self.cell = np.array([max(side, min(TALL, LEAST / n)) for n in (columns, rows)])
        if self.canvas.hidden:
            facts = [*facts, f"not shown: {plural(self.canvas.hidden, 'more slice')}"]
        if self.canvas.step > 1:
            facts = [
                *facts,
                f"reduced: each square stands for up to {self.canvas.step} × {self.canvas.step} elements",
            ]
        self.lines, self.margin = facts, 0.55
        self.above = 0.25 if not self.canvas.wrapped or rows == 1 else 0.1
        self.above += 0.2 * (len(self.shape) > 2)
        self.total_width = self.margin + columns * self.cell[0] + 0.25
        self.total_height = self.above + rows * self.cell[1] + 0.15

    def draw(self, ax: Axes, left: float, top: float) -> None:
        corner = np.array([left + self.margin, top + self.above])
        for kind, (color, hatch) in enumerate(zip(self.COLORS, self.HATCHES, strict=True)):
            fill_area(ax, self.kinds == kind, color, corner, self.cell, hatch)
        inside = self.kinds >= 0
        if min(self.cell) >= 0.05:
            lines = corner + borders(inside) * self.cell
            ax.add_collection(LineCollection(lines, colors="white", linewidths=0.6, zorder=2), autolim=False)
        lines = corner + contour(inside) * self.cell
        ax.add_collection(LineCollection(lines, colors=RIM, linewidths=0.9, zorder=2.2), autolim=False)
        self.name_cells(ax, corner)
        x, y = 0.3, ax.get_ylim()[0] - 0.25
        for kind, word in enumerate(self.names):
            color, hatch = self.COLORS[kind], self.HATCHES[kind]
            if not (self.kinds == kind).any():
                continue
            swatch: dict[str, Any] = {"facecolor": color, "edgecolor": SNOW, "hatch": hatch, "lw": 0}
            ax.add_patch(Rectangle((x, y), 0.2, 0.14, **swatch))
            write_line(ax, x + 0.28, y + 0.12, word)
            x += 0.6 + text_width(word)

    def name_cells(self, ax: Axes, corner: np.ndarray) -> None:
        """Write the numbers of rows and columns, or the names of rows."""
        draw_ticks(ax, corner, self.cell, self.shape, (), self.canvas)


class _BitPanel(_ErrorPanel):
    """The bits of some words, a row for each. labels: the words' names."""

    def __init__(self, name: str, kinds: np.ndarray, names: Sequence[str], labels: Sequence[str]):
        self.name, self.names, self.kinds, self.labels = name, names, kinds, labels

    def measure(self, facts: list[str]) -> None:
        rows, columns = self.kinds.shape
        self.cell = np.array([4.6 / columns, TALL])
        self.lines, self.above = facts, 0.25
        self.margin = max((text_width(label) for label in self.labels), default=0.0) + 0.25
        self.total_width = self.margin + columns * self.cell[0] + 0.25
        self.total_height = self.above + rows * self.cell[1] + 0.15

    def name_cells(self, ax: Axes, corner: np.ndarray) -> None:
        small: dict[str, Any] = {"fontsize": 9, "color": FAINT}
        for row, text in enumerate(self.labels):
            y = corner[1] + (row + 0.5) * self.cell[1]
            label(ax, corner[0] - 0.07, y, text, align="right", **small)
        for bit in (31, 24, 16, 8, 0) if self.labels else ():
            x = corner[0] + (WORD - 1 - bit + 0.5) * self.cell[0]
            label(ax, x, corner[1] - 0.06, str(bit), align="bottom", **small)


def _as_array(values: Any) -> np.ndarray:
    """Return a NumPy array of a tensor of any dtype; bfloat16 and float8 become float32."""
    if hasattr(values, "detach"):
        values = values.detach()
        return (values.float() if of_torch(values.dtype).code else values).numpy()
    return np.asarray(values)


def _slack(values: Any) -> tuple[float, float]:
    """Return by how much results of a dtype may differ: a share of the correct value, and of the largest."""
    if not hasattr(values, "detach"):
        dtype = np.asarray(values).dtype
        eps = np.finfo(dtype).eps if dtype.kind == "f" else 0.0
        return 8 * eps, 2 * eps
    row = of_torch(values.dtype)
    eps = 2 * (row.roundoff or 0.0)
    return (eps, 0.0) if row.is_float8 else (8 * eps, 2 * eps)


def _scale(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind == "f" else str(value)


def _sizes(shape: tuple[int, ...]) -> str:
    return " by ".join(str(n) for n in shape) or "one number"
