"""Pictures for chapter 16."""

from collections.abc import Mapping, Sequence
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
    "2 bits, nearest": (INK, "--", 1.4),
    "1 bit, nearest": (VERMILLION, "-", 2.0),
    "1 bit, stochastic": (BLUE, ":", 2.4),
}


# ---- the layer


def layer() -> Picture:
    """Draw what a linear layer computes in forward and backward, and which puzzle does what."""
    figure, ax = new_sheet(25, 10.4)
    for y, text in ((0.0, "forward"), (5.6, "backward")):
        label(ax, 0.4, y + 0.35, text, align="left", fontsize=11, color=FAINT)
    x = box(ax, 0.4, 0.9, 3.6, 1.2, "x  [M, N]", color=VALUES)
    linear = box(ax, 10.2, 0.9, 6.2, 1.2, "torch: y = x Wᵀ + b", edge=INK)
    y = box(ax, 20.6, 0.9, 4.0, 1.2, "y  [M, COUT]", color=VALUES)
    copy = box(ax, 0.4, 3.3, 3.6, 1.4, "puzzle 25:\ncopy", edge=INK)
    pack = box(ax, 5.2, 3.3, 3.8, 1.4, "puzzle 26:\nround, pack", edge=INK)
    words = box(ax, 10.2, 3.3, 6.2, 1.4, "words, scale, minimum", color=PACKED)
    label(ax, words.right + 0.3, 3.7, "all we keep of x:", align="left", color=FAINT)
    label(ax, words.right + 0.3, 4.35, "they stand for x̂, close to x", align="left", color=FAINT)
    weights = box(ax, 0.4, 6.4, 3.6, 1.2, "dW, db", color=DY)
    backward = box(ax, 10.2, 6.2, 6.2, 1.6, "puzzle 27: unpack x̂,\ndW = dyᵀ x̂, db = sum of dy", edge=INK)
    dy = box(ax, 20.6, 6.4, 4.0, 1.2, "dy  [M, COUT]", color=DY)
    dx = box(ax, 0.4, 8.8, 3.6, 1.2, "dx  [M, N]", color=DY)
    product = box(ax, 10.2, 8.8, 6.2, 1.2, "torch: dx = dy W", edge=INK)
    arrow(ax, (x.right + 0.1, 1.15), (linear.x - 0.1, 1.15))
    for one, other in ((linear, y), (copy, pack), (pack, words)):
        arrow(ax, (one.right + 0.1, _middle(one)), (other.x - 0.1, _middle(other)))
    for one, other in ((dy, backward), (backward, weights), (dy, product), (product, dx)):
        arrow(ax, (one.x - 0.1, _middle(one)), (other.right + 0.1, _middle(other)))
    for one, other in ((x, copy), (words, backward)):
        middle = (one.x + one.right) / 2
        arrow(ax, (middle, one.bottom + 0.1), (middle, other.y - 0.1))
    w = box(ax, 6.0, 1.45, 2.2, 0.8, "W, b", color=VALUES)
    arrow(ax, (w.right + 0.1, _middle(w)), (linear.x - 0.1, _middle(w)))
    w = box(ax, 18.0, 9.2, 2.2, 0.8, "W", color=VALUES)
    arrow(ax, (w.x - 0.1, _middle(w)), (product.right + 0.1, _middle(w)))
    return Picture(
        figure,
        "A linear layer. Forward: torch computes y = x Wᵀ + b exactly, from x [M, N]. Below that, puzzle 25 "
        "copies x and puzzle 26 rounds and packs it into words, scale and minimum. They stand for x̂, which "
        "is close to x, and are all we keep of it. Backward: from dy [M, COUT] and the words, puzzle 27 "
        "unpacks x̂ and computes dW = dyᵀ x̂ and db, the sum of dy. torch computes dx = dy W, which needs no "
        "x.",
    )


def _middle(one: Any) -> float:
    return (one.y + one.bottom) / 2


def asks() -> Picture:
    """Draw which part of an operator torch asks for what: in a plain call, in a plan, in a compiled model."""
    figure, ax = new_sheet(19.5, 7.4)
    left, width, gap = 4.3, 3.6, 0.2
    parts = {"schema": PACKED, "fake": VALUES, "function": DW, "backward": DY}
    rows = {
        "a plain call": ("", "", "makes y", "makes dx"),
        "torch.compile\nplans": ("what changes?", "which shape,\nstrides, dtype?", "", "is planned,\ntoo"),
        "the compiled\nmodel runs": ("", "", "makes y, if\nit's planned", "makes dx, if\nit's planned"),
    }
    for place, part in enumerate(parts):
        label(ax, left + place * (width + gap) + width / 2, 0.5, part, fontsize=12)
    for row, (when, cells_of) in enumerate(rows.items()):
        y = 1.1 + row * 1.9
        label(ax, left - 0.4, y + 0.8, when, align="right", fontsize=10)
        for place, (text, color) in enumerate(zip(cells_of, parts.values(), strict=True)):
            x = left + place * (width + gap)
            if text:
                box(ax, x, y, width, 1.6, text, color=color, edge=INK)
            else:
                box(ax, x, y, width, 1.6, color=None, dashed=True)
    label(ax, 9.75, 7.0, "dashed: isn't asked", fontsize=9.5)
    return Picture(
        figure,
        "What torch asks of an operator's four parts. A plain call: the function makes y, and the backward "
        "makes dx. torch.compile plans: it asks the schema what a call changes, asks the fake for shape, "
        "strides and dtype, and plans the backward, too; the function isn't asked. The compiled model runs: "
        "the function makes y if it's planned, and the backward makes dx if it's planned; the schema and "
        "the fake aren't asked again.",
    )


def strides(rows: int = 2, columns: int = 3) -> Picture:
    """Draw a result that is stored row by row, and a plan that takes it for stored column by column."""
    values = torch.arange(rows * columns).view(columns, rows).T
    figure, ax = new_sheet(20, 5.4)
    label(ax, 3.0, 0.8, "what the function\nstores: y")
    cells(ax, values, x=1.5, y=2.0, colors=DW)
    label(ax, 3.0, 4.7, f"its strides: ({columns}, 1)", fontsize=9.5)
    label(ax, 9.9, 0.8, "y's memory")
    strip = cells(ax, values.flatten(), x=9.9 - values.numel() / 2, y=2.5, index=True, colors=DW)
    label(ax, 16.8, 0.8, "what the compiled\nmodel takes for y")
    cells(ax, [["?"] * columns] * rows, x=15.3, y=2.0, colors=VALUES)
    label(ax, 16.8, 4.7, f"the fake's strides: (1, {rows})", fontsize=9.5)
    arrow(ax, (4.7, 3.0), (strip.x - 0.2, 3.0))
    arrow(ax, (strip.right + 0.2, 3.0), (15.1, 3.0))
    told = "; ".join(", ".join(map(str, row)) for row in values.tolist())
    return Picture(
        figure,
        f"The function stores y, with the rows {told}, row by row: its strides are ({columns}, 1). So "
        f"memory has {', '.join(map(str, values.flatten().tolist()))}. The compiled model reads it with "
        f"the fake's strides, (1, {rows}). What does it take for y?",
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


def programs(COUT: int = 45, N: int = 91, BLOCK_C: int = 16, BLOCK_N: int = 32) -> Picture:
    """Draw which strips of dy and x̂ the programs of puzzle 27 load, and the db of one row of programs."""
    down, across = -(-COUT // BLOCK_C), -(-N // BLOCK_N)
    figure, ax = new_sheet(25, 2.0 * down + 5.4)
    left, top, width, height, M = 8.2, 4.0, 3.6, 2.0, 5.4
    right = left + across * width
    label(ax, left + across * width / 2, 0.4, f"x̂  [M, {N}]: a strip per column of programs")
    for j in range(across):
        last = min(N, (j + 1) * BLOCK_N) - 1
        text = f"n = {j * BLOCK_N}..{last}"
        box(ax, left + j * width, 0.9, width, 2.4, text, color=PACKED, edge=INK)
    label(ax, left - 0.9 - M / 2, top - 0.5, f"dyᵀ  [{COUT}, M]")
    for i in range(down):
        y, last = top + i * height, min(COUT, (i + 1) * BLOCK_C) - 1
        first = i == 0
        text = f"c = {i * BLOCK_C}..{last}, all m"
        box(ax, left - 0.9 - M, y, M, height, text, color=DY if first else PALE, edge=INK)
        for j in range(across):
            text = f"program ({i}, {j})"
            box(ax, left + j * width, y, width, height, text, color=DW if first else PALE, edge=INK)
        box(ax, right + 3.6, y, 1.6, height, "db", color=DW if first else PALE, edge=INK)
    label(ax, right + 4.4, top - 0.5, f"db  [{COUT}]")
    label(ax, right + 1.8, top + height / 2, "who stores?", fontsize=9)
    foot = f"dW  [{COUT}, {N}]"
    label(ax, left + across * width / 2, top + down * height + 0.5, foot)
    foot = "the colored programs load the same strip of dyᵀ; its sum along m is one part of db"
    label(ax, 12.5, top + down * height + 1.1, foot)
    return Picture(
        figure,
        f"dW of {COUT} by {N} in tiles of {BLOCK_C} by {BLOCK_N}: {down} by {across} programs. Program (i, "
        "j) multiplies strip i of dyᵀ, all m, by strip j of x̂. All programs of a row load the same strip of "
        "dyᵀ. Its sum along m is their part of db. Who stores it?",
    )


def draws(steps: float = 2.3, count: int = 40, seed: int = 54) -> Picture:
    """Draw a value between two codes, and s + u for some draws of u."""
    u = uniform(seed, torch.arange(count)).tolist()
    low = int(steps)
    figure, ax = new_sheet(25, 5.4)
    left, width = 3.0, 9.5  # a step
    for code in range(low, low + 3):
        x = left + (code - low) * width
        ax.plot([x, x], [1.2, 4.0], color=LINE, linewidth=1, zorder=0)
        label(ax, x, 0.7, f"code {code}", fontsize=11)
    for number, each in enumerate(u):
        x = left + (steps + each - low) * width
        ax.plot([x], [2.05 + 1.7 * number / count], "o", markersize=5, color=BLUE)
    place = left + (steps - low) * width
    for end in (place, place + width):
        ax.plot([end, end], [1.25, 4.0], color=INK, linewidth=1, linestyle=":")
    ax.plot([place, place + width], [1.5, 1.5], color=INK, linewidth=1)
    label(ax, place - 0.3, 1.5, f"s = {steps:g}", align="right")
    label(ax, place + width + 0.3, 1.5, f"s + 1 = {steps + 1:g}", align="left")
    for number in (0, count - 1):
        text = f"draw {number}"
        label(ax, left - 0.3, 2.05 + 1.7 * number / count, text, align="right", fontsize=9, color=FAINT)
    label(ax, 12.5, 4.7, f"{count} draws of u, each shown at s + u")
    return Picture(
        figure,
        f"s = {steps:g} is between the codes {low} and {low + 1}. {count} draws of u, from 0 to 1, are shown "
        f"at s + u. So they're spread evenly from {steps:g} to {steps + 1:g}: most are below {low + 1}, the "
        "others above.",
    )


# ---- digits


def _named(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["path"]: row for row in record["curves"]}


def curves(record: Mapping[str, Any]) -> Picture:
    """Draw how far the loss of each step is from float32's, and the mean of these distances.

    record: what `curves.measure` returns.
    """
    rows = _named(record)
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    exact, told, most = rows[FLOAT]["loss"], [], rows[FLOAT]["bytes"] / 1e3
    left.axhline(0, color=INK, linewidth=0.8)
    for path, (color, line, width) in LOOKS.items():
        row = rows[path]
        beyond = [loss - one for loss, one in zip(row["loss"], exact, strict=True)]
        kept = f"{row['bytes'] / 1e3:.0f} kB"
        left.plot(beyond, line, color=color, linewidth=width, label=f"{path} ({kept})")
        told.append(f"{path}: {kept} kept, {beyond[40]:+.3f} at step 40, {row['apart']:.3f} apart")
    left.set_title("each step", fontsize=10)
    left.legend(fontsize=10, frameon=False, loc="lower right")
    left.set_ylabel("loss minus float32's (below 0: falls faster)", fontsize=10)
    left.set_xlabel("step", fontsize=10)
    left.grid(axis="y", color=PALE)
    apart = {path: rows[path]["apart"] for path in LOOKS}
    _bars(right, apart, "{:.3f}")
    right.set_title("distance from float32, mean of all steps", fontsize=10)
    left.tick_params(labelsize=9)
    left.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"The loss on the digits minus float32's, averaged over {record['seeds']} runs. float32 "
        f"keeps {most:.0f} kB, and its loss is {exact[40]:.3f} at step 40. {'; '.join(told)}. "
        "Apart: the mean distance from float32's curve. A negative difference is a loss that falls faster.",
    )


def _bars(ax: Any, values: Mapping[str, float], form: str, most: float | None = None) -> None:
    """Draw a bar with its number for each path, the first at the top. most: where longer bars are cut."""
    longest = most or max(values.values())
    for place, (path, value) in enumerate(values.items()):
        color = LOOKS[path][0] if path in LOOKS else FAINT
        parts = [(0.0, value)] if value <= longest else [(0.0, 0.8 * longest), (0.85 * longest, longest)]
        for start, end in parts:  # a gap, if the bar is cut
            ax.barh(place, end - start, left=start, color=color, height=0.55)
        text = form.format(value) + (" (bar cut)" if value > longest else "")
        label(ax, min(value, longest) + 0.03 * longest, place, text, align="left", fontsize=10)
    ax.set_yticks(range(len(values)), list(values), fontsize=10)
    ax.invert_yaxis()
    ax.set_xlim(0, (1.3 if most is None else 1.6) * longest)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[["top", "right", "bottom"]].set_visible(False)


def language(record: Mapping[str, Any]) -> Picture:
    """Draw what formats did to a language model: its loss in training, and how much is added to the unseen.

    record: what `puzzles_lib.bench.language` has written.
    """
    rows = {row["path"]: row for row in record["rows"]}
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    steps = [record["every"] * (number + 1) for number in range(len(rows["torch"]["loss"]))]
    left.plot(steps, rows["torch"]["loss"], color=FAINT, linewidth=4, label="torch")
    for path, (color, line, width) in LOOKS.items():
        left.plot(steps, rows[path]["loss"], line, color=color, linewidth=width, label=path)
    left.set_title("in training", fontsize=10)
    left.set_xlabel("step", fontsize=10)
    left.set_ylabel("loss, in nats per byte", fontsize=10)
    left.legend(fontsize=10, frameon=False, loc="upper right")
    left.grid(axis="y", color=PALE)
    left.tick_params(labelsize=9)
    left.spines[["top", "right"]].set_visible(False)
    mean = {path: sum(row["held_out"]) / len(row["held_out"]) for path, row in rows.items()}
    added = {path: mean[path] - mean["torch"] for path in rows if path in LOOKS or path in OF_LANGUAGE}
    _bars(right, dict(sorted(added.items(), key=lambda pair: pair[1])), "+{:.3f}", most=0.25)
    right.set_title("loss above torch's, on held-out text", fontsize=10)
    told = ", ".join(f"{path} +{each:.3f}" for path, each in added.items())
    return Picture(
        figure,
        f"A language model. Its loss in training, over {record['steps']} steps: the curves of 4 and 2 bits, "
        f"nearest, are torch's, which ends at {rows['torch']['loss'][-1]:.2f}. That of 1 bit, stochastic is "
        f"above and ends at {rows['1 bit, stochastic']['loss'][-1]:.2f}, and that of 1 bit, nearest at "
        f"{rows['1 bit, nearest']['loss'][-1]:.2f}. On held-out text, torch's loss is {mean['torch']:.3f}. "
        "Above "
        f"that are: {told}.",
    )


OF_LANGUAGE = ("8 bits, nearest", "2 bits, stochastic")


def gains(steps: Sequence[int], found: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """Draw the gains of each layer's dW at some steps.

    found: by path, for each step the gains of all layers, the first layer first.
    """
    figure = new_figure(8.6, 2.9)
    layers = len(next(iter(found.values()))[0])
    axes = figure.subplots(1, layers, sharey=True)
    for place, ax in enumerate(axes):
        ax.axhline(1, color=INK, linewidth=0.8)
        for path, each in found.items():
            color, line, width = LOOKS[path]
            one = [gain[place] for gain in each]
            ax.plot(steps, one, line, color=color, linewidth=width, marker="o", markersize=4, label=path)
        ax.set_title(f"layer {place + 1}", fontsize=10)
        ax.set_xlabel("step", fontsize=10)
        ax.tick_params(labelsize=9)
        ax.grid(axis="y", color=PALE)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("gain of dW", fontsize=10)
    axes[0].set_ylim(0.85, 1.4)
    axes[0].legend(fontsize=10, frameon=False, loc="upper left")
    told = "; ".join(
        f"{path}: " + ", ".join("/".join(f"{gain:.2f}" for gain in each) for each in values)
        for path, values in found.items()
    )
    return Picture(
        figure,
        f"The gain of each layer's dW; 1 is the exact gradient's length. At the steps "
        f"{', '.join(map(str, steps))}, for layers 1/2/3: {told}.",
    )


def stretch(low: float = 0.4, high: float = 0.6) -> Picture:
    """Draw what one-bit codes make of a value on average, by its place between its group's ends."""
    figure = new_figure(8.6, 3.1)
    axes = figure.subplots(1, 2, sharey=True)
    average = {
        "1 bit, nearest": ([0, 0.5, 0.5, 1], [0, 0, 1, 1], (0.0, 1.0)),
        "1 bit, stochastic": ([0, 1], [0, 1], (low, high)),
    }
    for ax, (path, (places, values, ends)) in zip(axes, average.items(), strict=True):
        color, line, width = LOOKS[path]
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.9)
        ax.plot(places, values, line, color=color, linewidth=width)
        ax.plot([low, high], [low, high], "o", color=INK, markersize=4)
        ax.plot([low, high], ends, "o", color=color, markersize=8)
        for place, end in zip((low, high), ends, strict=True):
            if end != place:
                ax.annotate(
                    "", (place, end), (place, place), arrowprops={"arrowstyle": "-|>", "color": color}
                )
        ax.set_title(path, fontsize=10)
        ax.set_xlabel("x, between its group's ends", fontsize=10)
        ax.set_xticks([0, low, high, 1], ["smallest", f"{low}", f"{high}", "largest"], fontsize=9)
        ax.set_yticks([0, 1], ["smallest", "largest"], fontsize=9)
        ax.set_aspect("equal")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("x̂, on average", fontsize=10)
    return Picture(
        figure,
        f"What one-bit codes make of two values, {low} and {high} of the way from their group's smallest "
        "value to its largest. To the nearest: the smallest and the largest, so they're "
        f"five times as far apart. Rounded at random: on average {low} and {high}, as they were.",
    )


# ---- production


def words(BITS: int = 2) -> Picture:
    """Draw which values of x share a word: along a row in puzzle 15, down a column in the library."""
    F, last = 16 // BITS, 32 // BITS - 1
    figure, ax = new_sheet(25, 8.5)
    label(ax, 5.6, 0.5, "puzzle 15: a word has neighbors in a row", fontsize=10)
    label(ax, 17.8, 0.5, f"the library: a word has {F} rows of a column, 16 apart", fontsize=10)
    columns, height = 4, 0.8
    for left, shown in (
        (1.6, [f"n={n}" for n in range(columns)]),
        (14.4, [f"n={n}" for n in range(columns)]),
    ):
        for place, text in enumerate(shown):
            label(ax, left + (place + 0.5) * 2.0, 1.3, text, fontsize=9, color=FAINT)
    for m in range(3):
        label(ax, 1.4, 2.1 + height * m, f"m={m}", align="right", fontsize=9, color=FAINT)
        fields = [f"{BITS * n}, {BITS * n + 1}" for n in range(columns)] if m == 0 else [""] * columns
        cells(ax, fields, x=1.6, y=1.7 + height * m, width=2.0, height=height,
              colors=[PACKED if m == 0 else PALE] * columns)  # fmt: skip
        label(ax, 9.8, 2.1 + height * m, f"… n={last}", align="left", fontsize=9, color=FAINT)
    label(ax, 5.6, 1.7 + height * 3 + 0.5, "colored: the first word of row 0, with the bits of each value",
          fontsize=9)  # fmt: skip
    rows = [0, 1, None, 16, 17, None, 16 * (F - 1)]
    for place, m in enumerate(rows):
        y = 1.7 + height * place
        if m is None:
            label(ax, 13.6, y + height / 2, "⋮", align="right", fontsize=9, color=FAINT)
            continue
        label(ax, 14.2, y + height / 2, f"m={m}", align="right", fontsize=9, color=FAINT)
        field, own = divmod(m, 16)
        text = f"{BITS * field}, {BITS * field + 1}"
        first = [PACKED, VALUES][own]
        cells(ax, [text, "", "", ""], x=14.4, y=y, width=2.0, height=height, colors=[first, PALE, PALE, PALE])
    label(ax, 17.8, 1.7 + height * len(rows) + 0.5, "yellow: word 0 of column 0. blue: word 1, and so on "
          "up to word 15", fontsize=9)  # fmt: skip
    return Picture(
        figure,
        f"Which {BITS}-bit values of x share a word; n counts columns, m rows. In puzzle 15: the neighbors "
        f"n = 0 to {last} of one row, from the lowest bits up. In the library: {F} rows of one column, 16 "
        f"apart, in 16 bits. Word 0 has the rows {', '.join(str(16 * j) for j in range(F))}, from the lowest "
        "bits up. Word 1 has the rows that come one after these, and so on up to word 15. The next column "
        "has its own 16 words.",
    )


__all__ = [
    "asks", "curves", "draws", "gains", "language", "layer", "programs", "stretch", "strides", "words",
    "wraps"
]  # fmt: skip
