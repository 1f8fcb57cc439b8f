"""Pictures of chapter 03: the bytes that fusion saves, and the gate that a relu puts before its gradient."""

import torch

from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU_BACKWARD
from puzzles_lib.drawing.colours import FAINT, GREEN, INK, ORANGE, PALE, SKY
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.puzzle import Case

_OPEN, _WASTE = SKY, ORANGE


ASKED = Case(M=8192, N=8192)  # as in the prediction above the picture


def passes(case: Case = ASKED) -> Picture:
    """Draw the bytes that two kernels and one fused kernel move between memory and the multiprocessors."""
    inputs = 4 * (case.M + case.N)
    tile = 4 * case.M * case.N
    two, one = inputs + 3 * tile, inputs + tile
    figure, ax = new_sheet(22.4, 8.2)
    scale = 16.2 / two
    kernels = {
        "two kernels": [("x * y", [("x, y", inputs, SKY), ("product written", tile, _WASTE)]),
                        ("relu", [("product read", tile, _WASTE), ("z", tile, GREEN)])],
        "one kernel": [("x * y, then relu", [("x, y", inputs, SKY), ("z", tile, GREEN)])],
    }  # fmt: skip
    for y, (title, steps) in zip((1.5, 5.3), kernels.items(), strict=True):
        x = 3.2
        label(ax, x - 0.4, y + 0.7, title, align="right", fontsize=11)
        for name, moved in steps:
            start = x
            for what, count, color in moved:
                box(ax, x, y, count * scale, 1.4, color=color, edge=INK)
                if count == tile:
                    label(ax, x + count * scale / 2, y + 0.45, what)
                    label(ax, x + count * scale / 2, y + 0.95, f"{count:,}", fontsize=9)
                else:
                    label(ax, x + 0.2, y + 1.75, f"{what}: {count:,}", align="left", fontsize=9)
                x += count * scale
            ax.plot([start, start, x - 0.1, x - 0.1], [y - 0.2, y - 0.4, y - 0.4, y - 0.2], color=INK, lw=1)
            label(ax, (start + x) / 2, y - 0.75, f"kernel: {name}")
        label(ax, x + 0.3, y + 0.7, f"{(two if len(steps) > 1 else one):,} bytes", align="left", fontsize=11)
    note = (
        "bytes that move between memory and the GPU's multiprocessors, to scale; the product is written only "
    )
    label(ax, 3.2, 7.75, note + "to be read back", align="left", color=FAINT, fontsize=9)
    return Picture(
        figure,
        f"""Two ways to compute z = relu(x * y) for M = {case.M}, N = {case.N}. The length of each bar is the
        number of bytes moved. With two kernels, the first one reads x and y ({inputs:,} bytes) and writes the
        product ({tile:,} bytes). The second one reads the product and writes z ({tile:,} bytes): {two:,}
        bytes in all. One fused kernel keeps the product in registers and moves {one:,} bytes.""",
    )


def gate() -> Picture:
    """Draw how the product decides, element by element, whether the gradient comes through."""
    x = torch.tensor([[3.0, -1, 0, 2], [-2, 5, 1, 0], [1, -4, 2, -1]])
    y = torch.tensor([2.0, -1, 3])
    dz = torch.tensor([[1.0, 4, 2, -3], [6, 1, -2, 3], [-5, 2, 7, 1]])
    dx = MUL_RELU_BACKWARD.spec(x, y, dz)
    product = x * y[:, None]
    figure, ax = new_sheet(24.6, 6.6)
    is_open = product > 0
    colors = [[_OPEN if o else "white" for o in row] for row in is_open.tolist()]
    signs = {}
    for title, left, grid in (
        ("x", 0.2, x),
        ("y", 5.4, y[:, None]),
        ("x * y", 7.6, product),
        ("dz", 13.6, dz),
        ("dx", 20.0, dx),
    ):
        numbers = [[f"{v + 0.0:.0f}".replace("-", "\u2212") for v in row] for row in grid.tolist()]
        fill = PALE if title in ("x", "y") else colors
        block = cells(ax, numbers, x=left, y=1.2, width=1.1, height=1.1, colors=fill)
        label(ax, (left + block.right) / 2, 0.6, title, fontsize=11)
        signs[title] = block.right
    for title, sign in (("x", "*"), ("y", "=")):
        label(ax, signs[title] + (0.4 if title == "x" else 0.55), 2.85, sign, fontsize=13)
    for title, to in (("x * y", 13.4), ("dz", 19.8)):
        arrow(ax, (signs[title] + 0.2, 2.85), (to, 2.85))
    label(ax, (signs["dz"] + 19.9) / 2, 2.3, "* y")
    label(ax, (signs["x * y"] + 13.5) / 2, 2.3, "gate")
    for left, fill, text in (
        (0.2, _OPEN, "x * y above 0: the gate is open, and dx = dz * y"),
        (13.6, "white", "0 or below: the gate is shut, and dx = 0"),
    ):
        box(ax, left, 5.2, 1.1, 0.8, color=fill)
        label(ax, left + 1.4, 5.6, text, align="left")
    count, size = int(is_open.sum()), is_open.numel()
    return Picture(
        figure,
        f"""A 3 by 4 example. The gate is open where the product x * y is above 0, in {count} of {size}
        elements, which have the same color in x * y, dz and dx. There dx = dz * y, with y = 2, -1, 3 for the
        three rows. Where the product is negative or exactly 0, the gate is shut and dx is 0.""",
    )
