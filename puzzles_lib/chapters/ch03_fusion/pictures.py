"""Pictures of chapter 03: the bytes that fusion saves, and the gate that a relu puts before its gradient."""

import torch

from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU_BACKWARD
from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PALE,
    PALE_ORANGE,
    SKY,
    VERMILLION,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet
from puzzles_lib.puzzle import Case

_WASTE = ORANGE

ASKED = Case(M=8192, N=8192)  # as in the prediction above the picture


def round_trip() -> Picture:
    """Draw where the product goes: down to memory and up again, or nowhere if one kernel computes both."""
    figure, ax = new_sheet(25.0, 11.6)
    wide = 0.9  # of what has as many numbers as z
    for left, right, title, steps in (
        (0.4, 15.6, "two kernels", (("kernel 1: x * y", 0.9, 6.6), ("kernel 2: relu", 8.3, 6.6))),
        (17.0, 24.6, "one kernel", (("x * y, then relu", 0.6, 6.4),)),
    ):
        label(ax, (left + right) / 2, 0.6, title, fontsize=11, weight="bold")
        box(ax, left, 1.2, right - left, 3.4, color=None, edge=INK, linewidth=1.4)
        label(ax, left + 0.3, 1.65, "multiprocessors", align="left", color=FAINT)
        box(ax, left, 9.0, right - left, 1.3, "memory", color=PALE, fontsize=11)
        for words, x, width in steps:
            box(ax, left + x, 2.3, width, 1.9, color=PALE)
            label(ax, left + x + width / 2, 2.8, "registers", fontsize=9, color=FAINT)
            label(ax, left + x + width / 2, 3.5, words, fontsize=11)

    def moves(x: float, up: bool, color: str, width: float, text: str) -> None:
        box(ax, x, 4.6, width, 4.0 if up else 3.9, color=color, edge=INK)
        ends = (4.6, 4.25) if up else (8.4, 8.98)
        arrow(ax, (x + width / 2, ends[0] + (0.5 if up else -0.5)), (x + width / 2, ends[1]))
        label(ax, x + width + 0.3, 6.6, text, align="left")

    for x, up, color, width, text in (
        (1.7, True, SKY, 0.12, "x, y"),
        (5.0, False, _WASTE, wide, "the product"),
        (9.1, True, _WASTE, wide, "the product"),
        (13.4, False, GREEN, wide, "z"),
        (18.4, True, SKY, 0.12, "x, y"),
        (21.9, False, GREEN, wide, "z"),
    ):
        moves(x, up, color, width, text)
    note = "up: loads, down: stores; an H200's memory delivers 4.8 TB/s, for all multiprocessors together"
    label(ax, 0.4, 11.1, note, align="left", color=FAINT)
    return Picture(
        figure,
        """Two ways to compute relu(x * y), with the multiprocessors and their registers above and the memory
        below. With two kernels, x and y go up, and the product goes down to memory. Then the product goes up
        again, and z goes down. With one kernel, x and y go up, the product stays in the registers, and only
        z goes down. The way between memory and all multiprocessors has 4.8 TB/s on an H200.""",
    )


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
    is_open = product > 0
    figure, ax = new_sheet(20.8, 11.4)
    colors = [
        [SKY if value > 0 else PALE_ORANGE if value == 0 else "white" for value in row]
        for row in product.tolist()
    ]
    for title, left, top, grid, fill in (
        ("x", 0.2, 1.2, x, PALE),
        ("y", 5.8, 1.2, y[:, None], PALE),
        ("x * y", 8.1, 1.2, product, colors),
        ("dz", 0.2, 6.6, dz, PALE),
        ("gate", 8.1, 6.6, is_open.int(), colors),
        ("y", 13.7, 6.6, y[:, None], PALE),
        ("dx", 16.0, 6.6, dx, colors),
    ):
        numbers = [[f"{v + 0.0:.0f}".replace("-", "\u2212") for v in row] for row in grid.tolist()]
        block = cells(ax, numbers, x=left, y=top, width=1.1, height=0.95, colors=fill)
        label(ax, (left + block.right) / 2, top - 0.5, title, fontsize=11)
    for at, top, sign in (
        (5.2, 1.2, "*"), (7.5, 1.2, "="), (6.35, 6.6, "*"), (13.1, 6.6, "*"), (15.4, 6.6, "="),
    ):  # fmt: skip
        label(ax, at, top + 1.45, sign, fontsize=13)
    arrow(ax, (10.3, 4.2), (10.3, 5.5))
    label(ax, 10.6, 4.8, "above 0?", align="left")
    for left, fill, text in (
        (0.2, SKY, "above 0: open (1)"),
        (6.6, "white", "below 0: shut (0)"),
        (13.0, PALE_ORANGE, "exactly 0: shut, too (0)"),
    ):
        box(ax, left, 10.3, 1.1, 0.8, color=fill)
        label(ax, left + 1.4, 10.7, text, align="left")
    count, size = int(is_open.sum()), is_open.numel()
    return Picture(
        figure,
        f"""A 3 by 4 example in two rows. Above: x * y, from a matrix x and a column y = 2, -1, 3. An arrow
        leads from x * y down to the gate, which asks whether the product is above 0. It is 1, or open, in
        {count} of {size} elements, and 0, or shut, where the product is negative or, as in
        {int((product == 0).sum())} elements, exactly 0. Below: dz * gate * y = dx. So dx is dz * y where the
        gate is open, and 0 elsewhere.""",
    )


def smooth(terms: bool = False) -> Picture:
    """Draw the relu and the SiLU, and beside them their slopes.

    terms: whether to draw the two terms of the SiLU's slope, too.
    """
    t = torch.linspace(-6, 6, 241)
    leaf = t.clone().requires_grad_()
    silu = torch.nn.functional.silu(leaf)
    silu.sum().backward()
    assert leaf.grad is not None
    silu, slope = silu.detach(), leaf.grad
    figure = new_figure(8.2, 3.2)
    left, right = figure.subplots(1, 2)
    for axes, title, bent, smooth in (
        (left, "z", t.clamp(min=0), silu),
        (right, "slope of z", None, slope),
    ):
        axes.axhline(0, color=LINE, linewidth=0.8)
        axes.axvline(0, color=LINE, linewidth=0.8)
        if bent is None:
            axes.plot([-6, 0], [0, 0], color=ORANGE, linewidth=2.5, label="relu: shut or open")
            axes.plot([0, 6], [1, 1], color=ORANGE, linewidth=2.5)
        else:
            axes.plot(t, bent, color=ORANGE, linewidth=2.5, label="relu(t)")
        axes.plot(t, smooth, color=BLUE, linewidth=2.5, label="silu(t)" if bent is not None else "SiLU")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("t")
        axes.legend(frameon=False, loc="upper left", fontsize=9)
    if terms:
        s = torch.sigmoid(t)
        right.plot(t, s, color=GREEN, linewidth=1.5, linestyle="--", label="\u03c3(t)")
        right.plot(
            t,
            t * s * (1 - s),
            color=VERMILLION,
            linewidth=1.5,
            linestyle=":",
            label="t \u00b7 \u03c3(t) \u00b7 (1 \u2212 \u03c3(t))",
        )
        right.legend(frameon=False, loc="upper left", fontsize=9)
    at = int(slope.argmax())
    low = int(silu.argmin())
    return Picture(
        figure,
        f"""Two plots over t from -6 to 6. The relu is 0 up to t = 0 and then t. The SiLU follows it smoothly,
        with a minimum of {float(silu[low]):.2f} at t = {float(t[low]):.1f}. On the right, their slopes: the
        relu's jumps from 0 to 1 at t = 0. The SiLU's is {float(slope[120]):.1f} there, slightly negative
        far below 0, and rises to {float(slope[at]):.2f} at t = {float(t[at]):.1f} before it comes down
        to 1.{" It is the sum of two curves: the sigmoid, and t times the slope of the sigmoid." * terms}""",
    )
