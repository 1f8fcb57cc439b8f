"""Pictures of chapter 03: bytes saved by fusion, and the gate that a relu puts before its gradient."""

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU, MUL_RELU_BACKWARD
from puzzles_lib.drawing import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.drawing.colours import BLUE, FAINT, ORANGE, PALE, SKY
from puzzles_lib.puzzle import Case

_OPEN, _WASTE, _KERNEL = SKY, ORANGE, BLUE


def passes(case: Case = MUL_RELU.cases[2]) -> Picture:
    """What crosses between memory and the processor, with two kernels and with one."""
    inputs = 4 * (case.M + case.N)
    tile = 4 * case.M * case.N
    two, one = inputs + 3 * tile, inputs + tile
    figure, ax = new_sheet(22.4, 7.9)
    for y, title, total in ((1.0, "two kernels", two), (5.3, "one kernel", one)):
        label(ax, 0.1, y - 0.5, f"{title}: {total:,} bytes moved", align="left", fontsize=11)
        _memory(ax, 0.1, y, f"x, y\n{inputs:,} bytes", PALE)
        _memory(ax, 19.0, y, f"z\n{tile:,} bytes", PALE)
    _memory(ax, 9.5, 1.0, f"product\n{tile:,} bytes", _WASTE)
    _kernel(ax, 4.9, 1.0, "x * y", 3.0)
    _kernel(ax, 14.4, 1.0, "relu", 3.0)
    _kernel(ax, 4.9, 5.3, "x * y, then relu: the product stays on the processor", 12.5)
    for start, end in ((3.4, 4.9), (7.9, 9.5), (12.8, 14.4), (17.4, 19.0)):
        arrow(ax, (start, 2.1), (end, 2.1))
    for start, end in ((3.4, 4.9), (17.4, 19.0)):
        arrow(ax, (start, 6.4), (end, 6.4))
    key = "square: memory, round: the processor"
    label(ax, 22.3, 0.5, key, align="right", color=FAINT)
    note = "written, only to be read again"
    label(ax, 11.15, 3.65, note)
    return Picture(
        figure,
        f"""Two ways to compute z = relu(x * y) for M = {case.M}, N = {case.N}. With two kernels the first
        reads x and y ({inputs} bytes) and writes the product ({tile} bytes), the second reads the product
        again and writes z ({tile} bytes): {two} bytes moved. One fused kernel keeps the product on the
        processor and moves {one} bytes.""",
    )


def _memory(ax: Axes, x: float, y: float, text: str, color: object) -> None:
    box(ax, x, y, 3.3, 2.2, text, color=color)


def _kernel(ax: Axes, x: float, y: float, text: str, width: float) -> None:
    shape = FancyBboxPatch((x + 0.2, y + 0.4), width - 0.4, 1.4, boxstyle="round,pad=0.2", color=_KERNEL)
    ax.add_patch(shape)
    label(ax, x + width / 2, y + 1.1, text, color="white")


def gate() -> Picture:
    """The product decides, element by element, whether the gradient comes through."""
    x = torch.tensor([[3, -1, 0, 2, 4], [-2, 5, 1, 0, -3], [1, -4, 2, -1, 0]])
    y = torch.tensor([2, -1, 3])
    dz = torch.tensor([[1, 4, 2, -3, 5], [6, 1, -2, 3, -1], [-5, 2, 7, 1, 4]])
    dx = MUL_RELU_BACKWARD.spec(x, y, dz)
    product = x * y[:, None]
    figure, ax = new_sheet(22.6, 6.4)
    is_open = product > 0
    colors = [[_OPEN if o else "white" for o in row] for row in is_open.tolist()]
    for title, left, grid in (
        ("y", 0.1, y[:, None]),
        ("x * y", 1.8, product),
        ("dz", 8.4, dz),
        ("dx", 17.0, dx),
    ):
        numbers = [[str(v).replace("-", "\u2212") for v in row] for row in grid.tolist()]
        fill = colors if title in ("x * y", "dx") else PALE
        block = cells(ax, numbers, x=left, y=1.2, width=1.1, height=1.1, colors=fill)
        label(ax, (left + block.right) / 2, 0.6, title, fontsize=11)
    arrow(ax, (14.1, 2.85), (16.8, 2.85))
    for text, at in (("* y", 2.3), ("if open", 3.4)):
        label(ax, 15.45, at, text)
    for left, fill, text in (
        (1.8, _OPEN, "x * y above 0: the gate is open"),
        (11.7, "white", "0 or below: it is shut, and dx = 0"),
    ):
        box(ax, left, 5.2, 1.1, 0.8, color=fill)
        label(ax, left + 1.4, 5.6, text, align="left")
    count = int(is_open.sum())
    return Picture(
        figure,
        f"""A 3 by 5 example. The gate is open where the product x * y is above 0, {count} of 15 elements;
        there dx = dz * y, with y = 2, -1, 3 for the three rows. Where the product is negative or exactly
        0 the gate is shut and dx is 0.""",
    )
