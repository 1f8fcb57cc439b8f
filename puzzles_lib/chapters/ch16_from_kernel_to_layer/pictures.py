"""Pictures for chapter 16."""

from collections.abc import Mapping
from typing import Any

import torch

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PALE,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet

PACKED, VALUES, DY, DW = YELLOW, SKY, ORANGE, GREEN
FLOAT = "float32"
LOOKS = {
    "4 bits, nearest": (GREEN, "-", 1.6),
    "2 bits, nearest": (BLUE, "--", 1.8),
    "1 bit, nearest": (VERMILLION, "-", 1.6),
    "1 bit, stochastic": (ORANGE, ":", 2.2),
}


# ---- the layer


def layer() -> Picture:
    """Draw what a linear layer computes in forward and backward, and which puzzle does what."""
    figure, ax = new_sheet(25, 10.6)
    label(ax, 0.3, 1.4, "forward", align="left", fontsize=11)
    label(ax, 0.3, 7.4, "backward", align="left", fontsize=11)
    x = box(ax, 3.6, 0.9, 2.6, 1.2, "x", color=VALUES)
    y = box(ax, 19.8, 0.9, 2.6, 1.2, "y", color=VALUES)
    words = box(ax, 9.2, 3.7, 7.6, 1.3, "words, scales, minima", color=PACKED)
    dy = box(ax, 19.8, 6.8, 2.6, 1.2, "dy", color=DY)
    dw = box(ax, 3.6, 6.8, 2.6, 1.2, "dW, db", color=DW)
    arrow(ax, (x.right + 0.1, 1.3), (y.x - 0.1, 1.3))
    label(ax, 13.0, 0.85, "y = x Wᵀ + b, exact")
    arrow(ax, (x.right + 0.1, 1.9), (words.x + 0.6, words.y - 0.1))
    label(ax, 8.9, 2.55, "puzzle 25: copy from any strides,  puzzle 27: round and pack", align="left")
    arrow(ax, (words.x + 0.6, words.bottom + 0.1), (dw.right + 0.1, dw.y + 0.3))
    label(ax, 10.4, 5.75, "puzzle 26: unpack x̂, and compute dW = dyᵀ x̂ and db = sum of dy", align="left")
    arrow(ax, (dy.x - 0.1, 7.4), (dw.right + 0.1, 7.4))
    text = "all we keep of x: they stand for x̂, close to x"
    label(ax, words.right + 0.3, 4.35, text, align="left", color=FAINT)
    dx = box(ax, 3.6, 9.0, 2.6, 1.2, "dx", color=VALUES)
    arrow(ax, (dy.x - 0.1, 7.9), (dx.right + 0.1, 9.6))
    label(ax, 13.0, 9.7, "dx = dy W needs no x", align="left")
    return Picture(
        figure,
        "A linear layer. Forward computes y = x Wᵀ + b exactly. On the side, puzzles 25 and 27 turn x into "
        "words, scales and minima. They stand for x̂, which is close to x, and are all we keep of it. "
        "Backward computes dW = dyᵀ x̂ and db from dy and the words, which puzzle 26 unpacks inside the "
        "product, and dx = dy W, which needs no x.",
    )


def wraps(N: int = 50_001, rows: int = 50_000) -> Picture:
    """Draw the offset of each row's first element, in int64 and in int32."""
    figure = new_figure(7.4, 3.3)
    ax = figure.subplots()
    first = -(-(2**31) // N)  # the first row whose offset is too large
    ax.plot([0, rows], [0, rows * N / 1e9], color=BLUE, linewidth=1.6)
    low = [(first * N - 2**32) / 1e9, (rows * N - 2**32) / 1e9]
    ax.plot([0, first], [0, first * N / 1e9], color=VERMILLION, linewidth=3, linestyle=":")
    ax.plot([first, rows], low, color=VERMILLION, linewidth=3, linestyle=":")
    ax.axhline(2**31 / 1e9, color=LINE, linewidth=0.8)
    label(ax, 500, 2**31 / 1e9 + 0.14, "2³¹", align="left baseline", fontsize=9, color=FAINT)
    label(ax, rows + 600, rows * N / 1e9, "int64", align="left", color=BLUE)
    label(ax, rows + 600, low[1], "int32", align="left", color=VERMILLION)
    label(ax, first - 600, low[0], "from which row on?", align="right", fontsize=9)
    ax.set_xlim(0, rows * 1.13)
    ax.set_ylim(-2.5, 3.0)
    ax.set_xlabel("row m", fontsize=10)
    ax.set_ylabel("offset of row m, in billions", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"The offset m times {N} of row m, for {rows} rows. In int64 it rises to {rows * N:,}. In int32 it's "
        "the same up to 2³¹. There it jumps to the bottom and continues as a negative number. From which "
        "row on?",
    )


def programs(COUT: int = 45, CIN: int = 91, BLOCK_M: int = 16, BLOCK_N: int = 32) -> Picture:
    """Draw the tile of dW that each program of puzzle 26 stores, and the db of each row of tiles."""
    down, across = -(-COUT // BLOCK_M), -(-CIN // BLOCK_N)
    figure, ax = new_sheet(25, 2.0 * down + 3.5)
    left, top, width, height = 9.6, 1.9, 4.2, 2.0
    for i in range(down):
        for j in range(across):
            text = f"program ({i}, {j})"
            box(ax, left + j * width, top + i * height, width, height, text, color=DW, edge=INK)
        y = top + (i + 0.5) * height
        strip = box(ax, left - 3.2, top + i * height, 1.6, height, "db", color=DW, edge=INK)
        label(ax, (left + strip.right) / 2, y, "?", fontsize=11)
        label(ax, strip.x - 0.3, y, f"rows {i * BLOCK_M}..{min(COUT, (i + 1) * BLOCK_M) - 1}", align="right")
    for j in range(across):
        text = f"{j * BLOCK_N}..{min(CIN, (j + 1) * BLOCK_N) - 1}"
        label(ax, left + (j + 0.5) * width, top - 0.5, text, fontsize=9, color=FAINT)
    label(ax, left + across * width / 2, 0.6, f"dW: {COUT} outputs by {CIN} inputs")
    foot = "all programs in a row of tiles load the same columns of dy"
    label(ax, 12.5, top + down * height + 1.0, foot)
    return Picture(
        figure,
        f"dW of {COUT} by {CIN} in tiles of {BLOCK_M} by {BLOCK_N}: {down} by {across} programs, and each "
        f"stores its tile. All programs in a row of tiles read the same columns of dy, so each of them "
        "could sum these for db.",
    )


def draws(steps: float = 2.3, count: int = 40, seed: int = 54) -> Picture:
    """Draw a value between two codes, some draws of u, and the code floor(steps + u) of each."""
    u = uniform(seed, torch.arange(count)).tolist()
    low = int(steps)
    up = sum(steps + each >= low + 1 for each in u)
    figure, ax = new_sheet(25, 6.2)
    left, width = 3.0, 9.5  # a step
    for code in range(low, low + 3):
        x = left + (code - low) * width
        ax.plot([x, x], [1.2, 4.0], color=LINE, linewidth=1, zorder=0)
        label(ax, x, 0.7, f"code {code}", fontsize=11)
    for number, each in enumerate(u):
        x, goes_up = left + (steps + each - low) * width, steps + each >= low + 1
        y = 2.05 + 1.7 * number / count
        ax.plot([x], [y], "o", markersize=5, color=BLUE if goes_up else ORANGE)
    place = left + (steps - low) * width
    for end in (place, place + width):
        ax.plot([end, end], [1.25, 4.0], color=INK, linewidth=1, linestyle=":")
    ax.plot([place, place + width], [1.5, 1.5], color=INK, linewidth=1)
    label(ax, place - 0.3, 1.5, f"s = {steps:g}", align="right")
    label(ax, place + width + 0.3, 1.5, f"s + 1 = {steps + 1:g}", align="left")
    label(ax, left + 0.62 * width, 4.55, f"{count - up} draws of s + u: code {low}", color=ORANGE)
    label(ax, left + 1.04 * width, 4.55, f"{up} draws: code {low + 1}", align="left", color=BLUE)
    for number in (0, count - 1):
        text = f"draw {number}"
        label(ax, left - 0.3, 2.05 + 1.7 * number / count, text, align="right", fontsize=9, color=FAINT)
    mean = low + up / count
    text = f"the mean of {count} codes is {mean:.2f}; the nearest code would be {low} each time"
    label(ax, 12.5, 5.6, text)
    return Picture(
        figure,
        f"s = {steps:g} is between the codes {low} and {low + 1}. Of {count} draws of s + u, with u from 0 "
        f"to 1, {count - up} stay below {low + 1} and become {low}; {up} reach it and become {low + 1}. The "
        f"mean of the codes is {mean:.2f}. The nearest code would be {low} each time.",
    )


# ---- digits


def _named(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["path"]: row for row in record["curves"]}


def curves(record: Mapping[str, Any]) -> Picture:
    """Draw how far the loss of each step is from float32's, for the formats in `LOOKS`.

    record: what `curves.measure` returns.
    """
    rows = _named(record)
    figure = new_figure(8.2, 3.8)
    ax = figure.subplots()
    exact, told, most = rows[FLOAT]["loss"], [], rows[FLOAT]["bytes"] / 1e3
    ax.axhline(0, color=INK, linewidth=1)
    for path, (color, line, width) in LOOKS.items():
        row = rows[path]
        beyond = [loss - one for loss, one in zip(row["loss"], exact, strict=True)]
        kept = f"{row['bytes'] / 1e3:.0f} kB"
        ax.plot(beyond, line, color=color, linewidth=width, label=f"{path}, {kept}: {row['apart']:.3f} apart")
        told.append(f"{path}: {kept} kept, {beyond[40]:+.3f} at step 40, {row['apart']:.4f} apart")
    ax.legend(fontsize=10, frameon=False, loc="lower right")
    ax.set_xlabel("step", fontsize=10)
    ax.set_ylabel("loss minus float32's", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.grid(axis="y", color=PALE)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"The loss on the digits minus float32's, averaged over {record['seeds']} runs. float32 "
        f"keeps {most:.0f} kB, and its loss is {exact[40]:.3f} at step 40. {'; '.join(told)}. "
        "Apart: the mean distance from float32's curve.",
    )


# ---- production


def words(BITS: int = 2) -> Picture:
    """Draw which values of x share a word: along a row in puzzle 15, along K in the library."""
    F = 16 // BITS
    figure, ax = new_sheet(25, 7.7)
    row = cells(ax, [f"n={i}" for i in range(3)], x=2.2, y=1.6, width=2.2, colors=PACKED)
    label(ax, row.x + 3.3, 0.7, "puzzle 15: a word has neighbors in one row")
    label(ax, row.x + 3.3, 1.25, "word 0")
    label(ax, row.x - 0.3, 2.1, "row k", align="right")
    label(ax, row.right + 0.2, 2.1, f"… n={32 // BITS - 1}", align="left")
    for i in range(3):
        label(ax, row.center(i)[0], 2.95, f"bits {BITS * i}, {BITS * i + 1}", fontsize=8, color=FAINT)
    x, width = 16.0, 2.6
    rows = [[f"k={16 * field + r}" for r in range(2)] for field in range(F)]
    block = cells(ax, rows, x=x, y=2.3, width=width, height=0.62, colors=[[PACKED, VALUES]] * F)
    label(ax, x + width, 0.7, f"the library: a word has {F} rows, 16 apart")
    for r in range(2):
        label(ax, x + (r + 0.5) * width, 1.8, f"word {r}")
    label(ax, block.right + 0.3, 1.8, "… word 15", align="left")
    for field in range(F):
        text = f"bits {BITS * field}, {BITS * field + 1}"
        label(ax, x - 0.3, 2.61 + 0.62 * field, text, align="right", fontsize=8, color=FAINT)
    return Picture(
        figure,
        f"Which {BITS}-bit values share a word. In puzzle 15: the neighbors n = 0 to {32 // BITS - 1} of one "
        f"row, from the lowest bits up. In the library: {F} rows of one column, 16 apart, in 16 bits. Word 0 "
        f"has the rows {', '.join(str(16 * j) for j in range(F))}, from the lowest bits up. Word 1 has the "
        "rows that come one after these, and so on up to word 15.",
    )


__all__ = [
    "curves", "draws", "layer", "programs", "words", "wraps"
]  # fmt: skip
