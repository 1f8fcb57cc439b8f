"""Pictures for chapter 17."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LINE,
    MIST,
    ORANGE,
    PALE,
    PALE_GREEN,
    PALE_ORANGE,
    PALE_SKY,
    PAPER,
    PROGRAM_COLORS,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Cells, Picture, arrow, box, cells, label, new_figure, new_sheet

LOADED, STORED, STATISTICS = SKY, GREEN, YELLOW
CARD = {"behind": PAPER, "pad": 12.0}  # of a text on a line
Step = tuple[float, float, str, str]  # from, to, a text, a color


# ---- norms


def traffic() -> Picture:
    """Draw how often a matrix passes through memory for a residual addition and a norm."""
    ways = (
        ("one operation at a time", "xr>h h>s s h>n n>y"),
        ("add, then norm", "xr>h h>y"),
        ("one kernel", "xr>hy"),
    )
    figure, ax = new_sheet(25, 8.4)
    left, width, told = 7.2, 1.45, []
    for number, (name, kernels) in enumerate(ways):
        y, x = 1.2 + 1.9 * number, left
        label(ax, left - 0.4, y + 0.5, name, align="right")
        for kernel in kernels.split():
            loads, _, stores = kernel.partition(">")
            start = x
            for text in loads + stores:
                color = LOADED if len(loads) * width > x - start + 0.01 else STORED
                box(ax, x, y, width, 1.0, {"s": "h²"}.get(text, text), color=color)
                x += width
            box(ax, start - 0.06, y - 0.12, x - start + 0.12, 1.24, color=None, edge=INK, linewidth=1.3)
            x += 0.3
        told.append(f"{name}: " + "; ".join(_in_words(kernel) for kernel in kernels.split()))
    box(ax, left, 6.5, 0.6, 0.5, color=LOADED)
    label(ax, left + 0.8, 6.75, "loaded", align="left")
    box(ax, left + 4.2, 6.5, 0.6, 0.5, color=STORED)
    label(ax, left + 5.0, 6.75, "stored", align="left")
    box(ax, left + 8.2, 6.5, 0.6, 0.5, color=None, edge=INK, linewidth=1.3)
    label(ax, left + 9.0, 6.75, "a kernel", align="left")
    told_more = (
        "n: the normalized h. The frame with h² alone computes the means: it stores one number per row"
    )
    label(ax, 0.4, 7.8, told_more, align="left")
    return Picture(
        figure,
        f"How often a matrix as large as x passes through memory for h = x + residual and its norm y. "
        f"{'. '.join(told)}.",
    )


def _in_words(kernel: str) -> str:
    """``"a kernel loads x, r and stores h"``"""
    loads, _, stores = kernel.partition(">")
    names = {"s": "h²"}
    parts = [", ".join(names.get(each, each) for each in part) for part in (loads, stores)]
    return f"a kernel loads {parts[0]}" + f" and stores {parts[1]}" * bool(stores)


def row(N: int = 6, BLOCK: int = 8) -> Picture:
    """Draw what a program of puzzle 28 does with its row."""
    x, r = [3, -1, 2, 0, 1, -2], [1, 1, -2, 2, 0, 1]
    h = [a + b for a, b in zip(x, r, strict=True)]
    mean = sum(v * v for v in h) / N
    figure, ax = new_sheet(25, 8.6)
    left, width = 6.2, 1.2
    pad, off = ["0"] * (BLOCK - N), [".."] * (BLOCK - N)
    for number, (name, values, color) in enumerate((("x", x, LOADED), ("r", r, LOADED))):
        texts = [str(v).replace("-", "\N{MINUS SIGN}") for v in values] + pad
        look = {"colors": [color] * N + [None] * len(pad), "hatch": [None] * N + off, "width": width}
        cells(ax, texts, x=left, y=0.5 + 1.4 * number, title=name, **look)
    label(ax, left - 0.6, 1.7, "+", fontsize=13)
    sums = [str(v).replace("-", "\N{MINUS SIGN}") for v in h] + pad
    look = {"colors": [STORED] * N + [None] * len(pad), "hatch": [None] * N + off, "width": width}
    strip = cells(ax, sums, x=left, y=3.6, title="h", **look)
    arrow(ax, (left + N * width / 2, 2.95), (left + N * width / 2, 3.5))
    one = box(ax, left + 1.2, 6.2, 6.4, 1.2, f"mean of h² = {mean:.3g}", color=STATISTICS)
    arrow(ax, (left + N * width / 2, strip.bottom + 0.1), (left + N * width / 2, one.y - 0.1))
    two = box(
        ax, 16.8, 6.2, 7.2, 1.2, f"scale = 1 / √(mean + ε) = {(mean + 1e-6) ** -0.5:.3f}", color=STATISTICS
    )
    arrow(ax, (one.right + 0.1, 6.8), (two.x - 0.1, 6.8))
    label(ax, 20.4, 3.4, "y = h · scale · w", fontsize=12)
    weights = box(ax, 21.3, 0.5, 1.6, 1.0, "w", color=LOADED)
    arrow(ax, (22.1, weights.bottom + 0.1), (22.6, 2.9))
    label(ax, 20.4, 4.3, "h is still in registers", color=FAINT)
    arrow(ax, (20.4, two.y - 0.1), (20.4, 4.8))
    arrow(ax, (strip.right + 0.1, 4.1), (17.3, 3.6))
    label(ax, left, 8.1, f"dotted: masked lanes past N = {N}; they are 0 and add 0", align="left")
    return Picture(
        figure,
        f"A program and its row of N = {N} in a block of {BLOCK}. x = {x} plus r = {r} gives h = {h}, "
        f"which is stored. The mean of h squared is {mean:.3g}. scale = 1 / sqrt(mean + eps) is "
        f"{(mean + 1e-6) ** -0.5:.3f}. Then y = h scale w, with h still in registers. "
        f"Lanes past N are 0.",
    )


def paths(backward: bool = False) -> Picture:
    """Draw the three paths from an element of x to the loss; backward: and what each adds to dx."""
    figure, ax = new_sheet(25, 12.2 if backward else 8.2)
    y = 1.9
    x = box(ax, 0.6, y, 2.6, 1.3, "x", color=LOADED)
    centred = box(ax, 8.2, y, 3.6, 1.3, "x − μ", color=PALE)
    normed = box(ax, 14.6, y, 4.4, 1.3, "x̂ = (x − μ) rstd", color=PALE)
    out = box(ax, 20.8, y, 3.6, 1.3, "y = x̂ w + b", color=STORED)
    mean = box(ax, 4.0, 4.3, 3.4, 1.2, "μ = mean(x)", color=PALE_ORANGE)
    scale = box(ax, 9.6, 6.2, 5.6, 1.2, "rstd = 1 / √(var(x) + ε)", color=PALE_GREEN)
    middle = y + 0.65
    arrow(ax, (x.right + 0.05, middle), (centred.x - 0.05, middle), color=BLUE)
    arrow(ax, (centred.right + 0.05, middle), (normed.x - 0.05, middle), color=BLUE)
    arrow(ax, (normed.right + 0.05, middle), (out.x - 0.05, middle), color=INK)
    label(ax, 5.7, middle - 0.5, "1", color=BLUE, fontsize=12, weight="bold")
    arrow(ax, (2.7, x.bottom + 0.05), (mean.x - 0.05, 4.7), color=ORANGE, bend=0.1)
    arrow(ax, (mean.right + 0.05, 4.7), (9.2, centred.bottom + 0.05), color=ORANGE, bend=0.1)
    label(ax, 8.75, 4.5, "2", align="left", color=ORANGE, fontsize=12, weight="bold")
    arrow(ax, (1.3, x.bottom + 0.05), (scale.x - 0.05, 6.8), color=GREEN, bend=0.38)
    arrow(ax, (scale.right + 0.05, 6.8), (16.8, normed.bottom + 0.05), color=GREEN, bend=0.15)
    label(ax, 16.9, 5.3, "3", align="left", color=GREEN, fontsize=12, weight="bold")
    label(ax, 0.6, 0.7, "forward: three paths lead from x to y", align="left", fontsize=11)
    told = (
        "The chain rule of LayerNorm. Three paths lead from x to y = x̂ w + b: path 1 directly, through "
        "x − μ; path 2 through the mean μ; path 3 through rstd = 1 / sqrt(var(x) + eps)."
    )
    if not backward:
        return Picture(figure, told)
    label(ax, 0.6, 8.5, "backward: what each path adds to dx, with g = dy · w", align="left", fontsize=11)
    y = 9.3
    label(ax, 2.9, y + 0.65, "dx = rstd · (", align="right", fontsize=12)
    parts = (("g", 2.6, SKY), ("− mean(g)", 4.4, ORANGE), ("− x̂ · mean(g · x̂)", 6.6, GREEN))
    notes = (
        "1 directly",
        "2 each x is 1 / N\nof the mean μ",
        "3 each x adds x̂ / N to the\nstandard deviation 1 / rstd",
    )
    at = 3.3
    for (text, width, color), note in zip(parts, notes, strict=True):
        part = box(ax, at, y, width, 1.3, text, color=color, fontsize=11)
        label(ax, part.x, y + 1.75, note, align="left top", fontsize=9, color=FAINT)
        at = part.right + 0.5
    label(ax, at, y + 0.65, ")", align="left", fontsize=12)
    return Picture(
        figure,
        f"{told} With g = dy w, they add to dx, each times rstd: path 1 adds g. Path 2 subtracts mean(g), "
        "because each x is 1 / N of the mean. Path 3 subtracts x̂ mean(g x̂), because each x adds x̂ / N to the "
        "standard deviation, 1 / rstd. Together, dx = rstd (g − mean(g) − x̂ mean(g x̂)).",
    )


def straight_line() -> Picture:
    """Draw dx as what a straight line leaves of g: one point per element of a row, over its x̂."""
    x = (-1.6, -1.1, -0.5, -0.1, 0.3, 0.7, 1.1, 1.9)
    mean = sum(x) / len(x)
    root = (sum((v - mean) ** 2 for v in x) / len(x)) ** 0.5
    xhat = [(v - mean) / root for v in x]
    g = (0.7, -0.5, 0.9, 0.2, 1.6, 0.6, 2.1, 1.2)
    a = sum(g) / len(g)
    b = sum(u * v for u, v in zip(g, xhat, strict=True)) / len(g)
    left = [u - a - b * v for u, v in zip(g, xhat, strict=True)]
    figure = new_figure(7.8, 3.6)
    ax = figure.subplots()
    ends = (min(xhat) - 0.3, max(xhat) + 0.3)
    ax.plot(ends, [a + b * end for end in ends], color=INK, linewidth=1.4, label="a + b x̂")
    for v, u, rest in zip(xhat, g, left, strict=True):
        ax.plot([v, v], [u - rest, u], color=VERMILLION, linewidth=2.4, label="what is left: dx / rstd")
    ax.plot(xhat, g, "o", color=BLUE, markersize=7, label="g, one point per element")
    ax.plot([0, 0], [min(g) - 0.3, a], ":", color=FAINT, linewidth=1.2)
    label(
        ax,
        0.06,
        min(g) - 0.1,
        "x̂ = 0: here the line is at a = mean(g)",
        align="left",
        fontsize=9.5,
        color=FAINT,
    )
    ax.set_xlabel("x̂", fontsize=11)
    ax.set_ylabel("g", fontsize=11, rotation=0)
    ax.tick_params(labelsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    _legend(figure, ax, columns=3)
    rests = ", ".join(f"{rest:.2f}" for rest in left)
    return Picture(
        figure,
        f"A row of {len(x)} elements as points: x̂ across, g up. The line a + b x̂, with a = mean(g) = {a:.2f} "
        f"and b = mean(g x̂) = {b:.2f}, is the straight line that fits best. What is left above or below the "
        f"line is dx / rstd: {rests}. These add up to {abs(sum(left)):.0f}, and so do their products with x̂.",
    )


def two_stages(M: int = 7, N: int = 8, PARTS: int = 3, BLOCK: int = 4) -> Picture:
    """Draw sums over rows of several programs: the parts, a counter per block of columns, and dw."""
    figure, ax = new_sheet(25, 11.6)
    height = -(-M // PARTS)  # rows of a program
    rows = [range(part * height, min(M, (part + 1) * height)) for part in range(PARTS)]
    colors = [[PROGRAM_COLORS[m // height]] * N for m in range(M)]
    left, at, size, gap = 1.9, 11.8, 0.85, 0.5
    wide = BLOCK * size + gap
    for block in range(N // BLOCK):
        grid = cells(ax, [[""] * BLOCK for _ in range(M)], x=left + block * wide, y=1.9, width=size,
            height=size, colors=[row[:BLOCK] for row in colors],
            row_index=[f"m={m}" for m in range(M)] if not block else None)  # fmt: skip
        x = at + block * wide
        parts = cells(ax, [[""] * BLOCK for _ in range(PARTS)], x=x, y=2.3, width=size, height=size,
            colors=[[PROGRAM_COLORS[part]] * BLOCK for part in range(PARTS)])  # fmt: skip
        middle = x + BLOCK * size / 2
        label(ax, grid.x + BLOCK * size / 2, 1.4, f"j = {block}", color=FAINT, fontsize=9.5)
        label(ax, middle, 1.8, f"j = {block}", color=FAINT, fontsize=9.5)
        count = box(ax, x, 6.2, BLOCK * size, 1.0, f"0 → 1 → 2 → {PARTS}", color=PALE, fontsize=10)
        arrow(ax, (middle, parts.bottom + 0.1), (middle, count.y - 0.1))
        total = cells(ax, [""] * BLOCK, x=x, y=8.7, width=size, height=size, colors=YELLOW,
            title="" if block else "dw")  # fmt: skip
        arrow(ax, (middle, count.bottom + 0.1), (middle, total.y - 0.1))
    label(ax, left + wide - gap / 2, 0.6, "dy · x̂")
    label(ax, at + wide - gap / 2, 0.9, "dw_part: one row per p")
    label(ax, at - 0.3, 6.7, "count", align="right")
    right = at + 2 * wide - gap + 0.4
    for part in range(PARTS):
        y = parts.center(part, 0)[1]
        own = sum(grid.center(m, 0)[1] for m in rows[part]) / len(rows[part])  # the middle of its rows
        arrow(ax, (grid.right + 0.2, own), (at - 0.2, y), color=INK)
        label(ax, right, y, f"programs ({part}, 0), ({part}, 1)", align="left", fontsize=9, color=FAINT)
    label(ax, right, 6.45, "one count per j: each", align="left", fontsize=9, color=FAINT)
    label(ax, right, 7.0, "program raises it by 1", align="left", fontsize=9, color=FAINT)
    label(ax, left, 10.7, "stage 1: each program stores the sums of its rows", align="left")
    label(ax, at, 10.7, "stage 2: the last program at count[j] adds up its parts", align="left")
    return Picture(
        figure,
        f"dw is the sum of dy x̂ over all {M} rows, in {N // BLOCK} column blocks. Stage 1: program (p, j) "
        f"sums the rows of p ({'; '.join(', '.join(map(str, each)) for each in rows)}) for block j and "
        f"stores this part. Then it raises count[j], from 0 to {PARTS} in the end. Stage 2: the program that "
        f"finishes last at count[j] adds up the {PARTS} parts of its columns into dw.",
    )


# ---- the memory model


def _timeline(
    ax: Axes, left: float, y: float, name: str, steps: Sequence[Step], width: float, height: float = 0.9
) -> Cells:
    """Draw one row of a timeline, on a faint line."""
    label(ax, left - 0.3, y + height / 2, name, align="right")
    ax.plot([left, left + width], [y + height / 2] * 2, color=LINE, linewidth=0.8, zorder=0)
    for start, end, text, color in steps:
        box(ax, left + start, y, end - start, height, text, color=color)
    return Cells(left, y, 1, 1, width, height)


def _time(ax: Axes, x: float, y: float) -> None:
    label(ax, x, y, "time", align="right", color=FAINT)
    arrow(ax, (x + 0.3, y), (x + 3.2, y), color=FAINT)


def _wall(ax: Axes, x: float, top: float, bottom: float, text: str) -> None:
    ax.plot([x, x], [top, bottom], color=INK, linewidth=4)
    label(ax, x, top - 0.2, text, align="bottom", fontsize=10)


def threads() -> Picture:
    """Draw step 1: the threads of a program run at their own pace until a barrier."""
    figure, ax = new_sheet(25, 9.0)
    left, width = 4.4, 20.0
    label(ax, 0.4, 0.6, "each warp stores a part of z, then loads another part: warp 0 loads warp 3's",
        align="left", fontsize=11)  # fmt: skip
    _time(ax, left + 16.6, 0.6)
    early = [(0.4, 4.0, "store z", STORED), (4.9, 8.5, "load z", LOADED)]
    late = [(9.6, 13.2, "store z", VERMILLION), (14.1, 17.7, "load z", LOADED)]
    _timeline(ax, left, 1.5, "warp 0", early, width)
    _timeline(ax, left, 3.2, "warp 3", late, width)
    label(ax, left + 9.0, 1.95, "too early: warp 3 hasn't stored this yet", align="left", color=VERMILLION,
        **CARD)  # fmt: skip
    label(ax, 0.4, 5.2, "with tl.debug_barrier() between the lines, every thread waits for all the others",
        align="left", fontsize=11)  # fmt: skip
    for y, name, first in ((6.2, "warp 0", 0.4), (7.9, "warp 3", 9.6)):
        steps = [(first, first + 3.6, "store z", STORED), (14.3, 17.9, "load z", LOADED)]
        _timeline(ax, left, y, name, steps, width)
    arrow(ax, (left + 13.2, 7.85), (left + 14.9, 7.15), color=INK)
    _wall(ax, left + 13.7, 6.0, 8.9, "barrier")
    return Picture(
        figure,
        "Two warps of one program over time. Each warp stores a part of z and then loads another part; "
        "warp 0 loads what warp 3 stores. Without a barrier, warp 0 loads before warp 3 has stored, and gets "
        "the old value. With tl.debug_barrier between store and load, every thread waits for all the others, "
        "and every load sees what was stored.",
    )


def programs() -> Picture:
    """Draw step 2: nothing orders the programs of a grid, and an atomic loses no update."""
    figure, ax = new_sheet(25, 9.2)
    left, width = 5.0, 13.6
    label(ax, 0.4, 0.6, "dw[n] += 1 with a load, an add and a store", align="left", fontsize=11)
    tries = (
        ("program 7", ((0.4, 3.4, "load: 5", LOADED), (5.0, 8.4, "store 6", STORED))),
        ("program 2", ((1.6, 4.6, "load: 5", LOADED), (8.8, 12.2, "store 6", VERMILLION))),
    )
    for number, (name, steps) in enumerate(tries):
        _timeline(ax, left, 1.5 + 1.2 * number, name, steps, width)
    box(ax, 20.2, 1.9, 3.6, 1.3, "dw[n] = 6", color=VERMILLION)
    label(ax, 22.0, 3.9, "an update is lost", color=VERMILLION)
    label(ax, 0.4, 5.1, "tl.atomic_add(dw_ptr + n, 1): one step that can't be interrupted", align="left",
        fontsize=11)  # fmt: skip
    steps = (((0.8, 5.6, "5 → 6", STORED),), ((6.0, 10.8, "6 → 7", STORED),))
    for number, (name, some) in enumerate(zip(("program 7", "program 2"), steps, strict=True)):
        _timeline(ax, left, 6.0 + 1.2 * number, name, some, width)
    box(ax, 20.2, 6.4, 3.6, 1.3, "dw[n] = 7", color=STORED)
    label(ax, 22.0, 8.4, "in either order")
    return Picture(
        figure,
        "Two programs of one grid add 1 to dw[n] = 5. With a load, an add and a store, both load 5 and both "
        "store 6, so an update is lost. With tl.atomic_add each update is one step, 5 to 6 and 6 to 7, in "
        "either order.",
    )


def flag() -> Picture:
    """Draw step 3: a release and the acquire that sees it connect two programs."""
    figure, ax = new_sheet(25, 7.4)
    left, width = 3.6, 21.0
    _time(ax, left + 17.4, 0.6)
    steps = [(0.4, 4.6, "store result", STORED), (5.0, 10.4, "flag = 1, release", STATISTICS)]
    a = _timeline(ax, left, 2.4, "A", steps, width, height=1.0)
    steps = [(10.8, 16.4, "flag is 1: acquire", STATISTICS), (16.8, 20.8, "load result", LOADED)]
    b = _timeline(ax, left, 5.0, "B", steps, width, height=1.0)
    arrow(ax, (left + 9.6, a.bottom + 0.05), (left + 11.8, b.y - 0.05), color=INK)
    ax.plot([left + 4.8] * 2, [1.9, 3.8], color=INK, linewidth=3)
    label(ax, left + 4.5, 1.9, "stays before the release", align="right bottom", color=FAINT)
    ax.plot([left + 16.6] * 2, [4.5, 6.4], color=INK, linewidth=3)
    label(ax, left + 16.9, 6.3, "stays after the acquire", align="left top", color=FAINT)
    return Picture(
        figure,
        "A flag over time: program A stores its result, then sets the flag with a release, and its store "
        "stays before the flag. Program B sees the flag with an acquire, then loads the result, and its load "
        "stays after the flag. So B gets what A has stored.",
    )


def barrier() -> Picture:
    """Draw step 4: a release covers one thread; a barrier before it makes it cover all of them."""
    figure, ax = new_sheet(25, 14.6)
    left, width = 5.6, 19.0
    label(ax, 0.4, 0.6, "one thread unlocks, but the other threads may still be storing",
        align="left", fontsize=11)  # fmt: skip
    _time(ax, left + 15.6, 0.6)
    pace = (0.3, 0.9, 6.6, 1.6)

    def holder(y: float, walled: bool) -> None:
        for warp, start in enumerate(pace):
            late = not walled and warp == 2
            text = "store dw, late" if late else "store dw"
            steps: list[Step] = [(start, start + 3.4, text, VERMILLION if late else STORED)]
            if warp == 0:
                at = 10.6 if walled else 3.9
                steps.append((at, at + 2.3, "unlock", STATISTICS))
            _timeline(ax, left, y + 1.05 * warp, f"A, warp {warp}", steps, width, height=0.85)

    def taker(y: float, at: float) -> None:
        steps = [(at, at + 2.1, "lock", STATISTICS), (at + 2.3, at + 5.4, "load dw", LOADED)]
        _timeline(ax, left, y, "B, all warps", steps, width, height=0.85)

    holder(1.4, walled=False)
    taker(5.9, 6.5)
    arrow(ax, (left + 5.4, 2.25), (left + 7.2, 5.85), color=INK)
    label(ax, left + 12.5, 6.32, "B misses warp 2's dw", align="left", color=VERMILLION, **CARD)
    label(
        ax,
        0.4,
        7.9,
        "with a barrier before it: first all stores, then the release",
        align="left",
        fontsize=11,
    )
    holder(9.2, walled=True)
    _wall(ax, left + 10.3, 9.0, 13.3, "barrier")
    taker(13.5, 13.1)
    arrow(ax, (left + 12.4, 10.05), (left + 13.7, 13.45), color=INK)
    return Picture(
        figure,
        "A lock protects a row of dw. Program A has the lock: its four warps store their parts, and one "
        "thread of warp 0 unlocks. Without a barrier, warp 2 stores only after the unlock. Program B has the "
        "lock by then and loads dw without warp 2's part, so an update is lost. With a barrier before the "
        "release, all four warps store first, then the lock is released, and B sees everything.",
    )


# ---- long rows, scans


def merge(first: Sequence[int] = (1, 3, 2, 2), second: Sequence[int] = (7, 9)) -> Picture:
    """Draw how the counts, means and sums of squares of two blocks are merged."""

    def told(values: Sequence[int]) -> tuple[int, float, float]:
        mean = sum(values) / len(values)
        return len(values), mean, sum((v - mean) ** 2 for v in values)

    figure, ax = new_sheet(25, 9.0)
    both = told([*first, *second])
    at = 1.0
    for name, values, color in (("so far", first, PALE_SKY), ("a block", second, PALE_ORANGE)):
        strip = cells(ax, list(values), x=at, y=1.4, width=1.3, colors=color)
        label(ax, at, 0.8, name, align="left")
        n, mean, m2 = told(values)
        card = f"n = {n}   mean = {mean:g}   M2 = {m2:g}"
        wide = box(ax, at, 3.9, 8.6, 1.1, card, color=color)
        arrow(ax, (strip.x + 2.4, strip.bottom + 0.1), (strip.x + 2.4, wide.y - 0.1))
        at += 11.4
    n, mean, m2 = both
    apart = told(second)[1] - told(first)[1]
    card = f"n = {n}   mean = {mean:g}   M2 = {m2:g}"
    wide = box(ax, 6.4, 7.1, 9.4, 1.2, card, color=STATISTICS)
    arrow(ax, (5.4, 5.1), (8.4, wide.y - 0.1))
    arrow(ax, (16.6, 5.1), (13.8, wide.y - 0.1))
    arrow(ax, (9.7, 4.45), (12.3, 4.45))
    label(ax, 11.0, 3.9, f"δ = {apart:g}", fontsize=11)
    label(ax, 16.2, 7.2, "M2: sum of both + δ² n₁ n₂ / n", align="left")
    label(ax, 16.2, 8.1, "mean: the first + δ n₂ / n", align="left")
    return Picture(
        figure,
        f"The values so far, {list(first)}, have n = {told(first)[0]}, mean {told(first)[1]:g} and M2 = "
        f"{told(first)[2]:g}, the sum of squares around that mean. A block, {list(second)}, has n = "
        f"{told(second)[0]}, mean {told(second)[1]:g} and M2 = {told(second)[2]:g}. The means are δ = "
        f"{apart:g} apart. Merged: n = {n}, mean {mean:g} (the first mean plus δ n₂ / n), M2 = {m2:g} (the "
        f"sum of both plus δ² n₁ n₂ / n).",
    )


def doubling(values: Sequence[int] = (3, 1, 4, 1, 5, 9, 2, 6)) -> Picture:
    """Draw a running sum in three rounds: each adds the element 1, 2 or 4 places before."""
    figure, ax = new_sheet(25, 9.6)
    left, width = 5.6, 1.7
    now, told, step = list(values), [], 1
    strip = cells(ax, now, x=left, y=0.8, width=width, colors=LOADED, index=True, title="x")
    while step < len(values):
        after = [v + (now[i - step] if i >= step else 0) for i, v in enumerate(now)]
        y = strip.bottom + 1.5
        colors = [STORED if i < 2 * step else PALE for i in range(len(now))]
        row_ = cells(ax, after, x=left, y=y, width=width, colors=colors, title=f"add {step} before")
        for i in range(len(now)):
            if i >= step:
                arrow(ax, strip.foot(i - step), row_.top(i), color=BLUE)
            arrow(ax, strip.foot(i), row_.top(i), color=LINE)
        told.append(f"adding the element {step} before: {after}")
        now, step, strip = after, 2 * step, row_
    label(ax, left, strip.bottom + 0.9, "green: final value; blue arrows: what is added", align="left")
    return Picture(
        figure,
        f"A running sum of {list(values)} in {len(told)} rounds. {'; '.join(told)}. After the round with "
        f"distance d, the first 2 d elements are final.",
    )


# ---- an H200

NAMES = {
    "copy of as many bytes": "a copy of as many bytes",
    "torch, add and rms_norm": "torch",
    "rms_norm": "the chapter's kernel",
    "layer_norm": "the chapter's kernel",
    "layer_norm_dx": "the chapter's kernel",
}
BARS = {
    "a copy of as many bytes": MIST,
    "the chapter's kernel": GREEN,
    "torch.compile": SKY,
    "torch": ORANGE,
    "torch, written out": VERMILLION,
}


def timings(rows: Sequence[Mapping[str, Any]], about: str, case: str = "8192x4096, bfloat16") -> Picture:
    """Draw the microseconds of the chapter's kernels for forward and dx, of a copy, and of torch.

    rows: recorded rows of bench "norms". about: the device, versions and date.
    """
    kernels = {
        "rms_norm": "28 RMSNorm with residual",
        "layer_norm": "29 LayerNorm",
        "layer_norm_dx": "30 dx of LayerNorm",
    }
    figure = new_figure(8.2, 3.9)
    ax = figure.subplots()
    at, ticks, told = 0.0, [], []
    for path, title in kernels.items():
        some = [row for row in rows if (row["case"], row["path"]) == (case, path)]
        times = {NAMES[path]: some[0]["us"]}
        times |= {NAMES.get(row["baseline"], row["baseline"]): row["baseline_us"] for row in some}
        shown = [name for name in BARS if name in times]
        start = at
        for name in shown:
            ax.bar(at, times[name], 0.9, color=BARS[name], edgecolor=INK, linewidth=0.5, label=name)
            label(ax, at, times[name] + 4, f"{times[name]:.0f}", align="baseline", fontsize=9)
            at += 1
        ticks.append(((start + at - 1) / 2, title))
        told.append(f"{title}: " + ", ".join(f"{name} {times[name]:.1f}" for name in shown))
        at += 0.8
    ax.set_xticks([x for x, _ in ticks], [title for _, title in ticks], fontsize=10)
    ax.set_ylabel("µs", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    _legend(figure, ax, columns=3)
    figure.suptitle(f"{case.replace('x', ' x ', 1)}, {about}", fontsize=9, color=FAINT)
    return Picture(figure, f"Microseconds for {case}, {about}. {'; '.join(told)}.")


def _legend(figure: Figure, ax: Axes, columns: int) -> None:
    shown = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(shown.values(), shown.keys(), fontsize=9, frameon=False,
        loc="outside lower center", ncols=columns)  # fmt: skip


def sums(rows: Sequence[Mapping[str, Any]], about: str, case: str = "8192x4096, bfloat16") -> Picture:
    """Draw the microseconds for dw and db in two stages, with a lock and with atomics.

    rows: recorded rows of bench "norms". about: the device, versions and date.
    """
    ways = {"layer_norm_dw": "two stages", "dw_by_lock": "a lock", "dw_by_atomics": "atomics"}
    colors = {"two stages": GREEN, "a lock": VERMILLION, "atomics": SKY}
    figure = new_figure(8.2, 3.6)
    ax = figure.subplots()
    found = [row for row in rows if row["case"] == case and row["baseline"].startswith("copy")]
    copy = next(row["baseline_us"] for row in found if row["path"].startswith("layer_norm_dw, 256"))
    most = 300  # µs; a longer bar is broken off at the edge
    told, at, ticks = [f"a copy of as many bytes {copy:.0f}"], 0.0, []
    for count in (256, 16):
        for path, name in ways.items():
            (row,) = [row for row in found if row["path"] == f"{path}, {count} rows per program"]
            look = {"color": colors[name], "edgecolor": INK, "linewidth": 0.5}
            text = f"{row['us']:.0f} µs"
            if row["us"] < most:
                ax.barh(at, row["us"], 0.85, **look)
                label(ax, row["us"] + 3, at, text, align="left", fontsize=9)
            else:
                ax.barh(at, most, 0.85, **look)
                for x, color, width in ((262, PAPER, 8), (259, INK, 1), (265, INK, 1)):  # a break mark
                    ax.plot([x - 3, x + 3], [at - 0.5, at + 0.5], color=color, linewidth=width)
                text += f", {row['us'] / copy:.0f} times the copy: far off this scale"
                label(ax, 10, at, text, align="left", fontsize=9, behind=PAPER, pad=3.0)
            ticks.append((at, f"{name}, {count} rows per program"))
            told.append(f"{name}, {count} rows per program, {row['us']:.0f}")
            at -= 1
        at -= 0.5
    ax.barh(1, copy, 0.85, color=MIST, edgecolor=INK, linewidth=0.5)
    label(ax, copy + 3, 1, f"{copy:.0f} µs", align="left", fontsize=9)
    ticks.append((1, "a copy of as many bytes"))
    ax.set_xlim(0, most)
    ax.set_yticks([y for y, _ in ticks], [text for _, text in ticks], fontsize=10)
    ax.set_ylim(at + 0.9, 1.7)
    ax.set_xlabel("µs", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{case.replace('x', ' x ', 1)}, {about}", fontsize=9, color=FAINT)
    return Picture(figure, f"Microseconds for dw and db of {case}, {about}: {'; '.join(told)}.")


def widths(record: Mapping[str, Any]) -> Picture:
    """Draw how many runs of puzzle 32's kernel were wrong, by the columns per program, as a table.

    record: of `puzzles_lib.bench.orders`.
    """
    versions = {
        "dw_by_lock": "as in puzzle 32",
        "dw_by_lock, no barrier": "no barrier",
        "dw_by_lock, relaxed": 'barrier, sem="relaxed"',
    }
    runs, table, told = record["runs"], [], []
    for path, name in versions.items():
        some = [row for row in record["rows"] if row["path"] == path]
        columns = [int(row["case"].split(",")[0].split("x")[1]) for row in some]
        table.append([row["wrong"] for row in some])
        told.append(f"{name}: " + ", ".join(f"{w} with {c}" for w, c in zip(table[-1], columns, strict=True)))
    figure, ax = new_sheet(25, 7.6)
    left, width = 8.2, 3.2
    label(ax, 0.4, 0.6, f"wrong runs out of {runs}", align="left", fontsize=11)
    for number, count in enumerate(columns):
        label(ax, left + (number + 0.5) * width, 1.6, f"{count:,}")
    label(ax, left - 0.4, 1.6, "columns of a block", align="right")
    for number, (name, wrong) in enumerate(zip(versions.values(), table, strict=True)):
        y = 2.2 + 1.4 * number
        fills = [STORED if count == 0 else VERMILLION if count == runs else ORANGE for count in wrong]
        cells(ax, [str(count) for count in wrong], x=left, y=y, width=width, height=1.2, colors=fills)
        label(ax, left - 0.4, y + 0.6, name, align="right")
    versions_ = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    about = f"recorded on one {record['device']} ({versions_}) on {record['date']}"
    label(ax, 0.4, 7.1, about, align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"How many of {runs} runs of the kernel with a lock were wrong, over the columns of a block, "
        f"{about}. {'; '.join(told)}.",
    )


__all__ = [
    "barrier",
    "doubling",
    "flag",
    "merge",
    "paths",
    "programs",
    "row",
    "straight_line",
    "sums",
    "threads",
    "timings",
    "traffic",
    "two_stages",
    "widths",
]
