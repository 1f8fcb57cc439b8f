"""Pictures for chapter 12."""

from collections.abc import Mapping

import triton

from puzzles_lib.drawing.colours import BLUE, FAINT, GREEN, INK, ORANGE, PALE, PURPLE, SKY, YELLOW
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet
from puzzles_lib.inspector.step import PRODUCTS, Step
from puzzles_lib.timing import recorded

PACKED, VALUES, DY, DW = YELLOW, SKY, ORANGE, GREEN
WHOLE = {"linewidth": 0.9}  # a matrix, and its tiles
TILE = {"edge": INK, "linewidth": 0.9, "fontsize": 9}


# ---- bytes


def traffic(K: int = 100864, C: int = 768, BITS: int = 2, GROUP: int = 256) -> Picture:
    """Draw what has to go through memory: dequantize, then multiply, or both in one kernel."""
    packed = K * C * BITS // 8 + 4 * K * (C // GROUP)
    x, dw = 2 * K * C, 4 * C * C
    rows = {
        "dequantize,\nthen multiply": [
            ("packed x̂", packed, PACKED),
            ("write x̂", x, VALUES),
            ("read x̂", x, VALUES),
            ("read dy", x, DY),
            ("write dW", dw, DW),
        ],
        "fused": [("packed x̂", packed, PACKED), ("read dy", x, DY), ("write dW", dw, DW)],
    }
    figure = new_figure(7.6, 2.5)
    ax = figure.subplots()
    told = []
    for place, (name, parts) in enumerate(rows.items()):
        left = 0.0
        for text, size, color in parts:
            ax.barh(place, size / 1e6, left=left, height=0.55, color=color, edgecolor=INK, linewidth=0.8)
            if size > 40e6:
                label(ax, left + size / 2e6, place, text, fontsize=9)
            left += size / 1e6
        label(ax, left + 5, place, f"{left:.0f} MB", align="left")
        told.append(
            f"{name.replace(chr(10), ' ')}: "
            + ", ".join(f"{text} {size / 1e6:.0f} MB" for text, size, _ in parts)
            + f", {left:.0f} MB in total"
        )
    for place, parts in enumerate(rows.values()):
        end = sum(size for _, size, _ in parts) / 1e6
        label(ax, 0, place - 0.45, "packed x̂", align="left", fontsize=9)
        label(ax, end, place - 0.45, "write dW", align="right", fontsize=9)
    ax.set_yticks(range(len(rows)), rows, fontsize=10)
    ax.invert_yaxis()
    ax.set_xlim(0, 560)
    ax.set_xlabel("MB through memory, if each tensor moves once", fontsize=10)
    ax.tick_params(axis="x", labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"Bytes through memory for dW with K = {K}, {C} by {C}, x̂ packed at {BITS} bits in groups of "
        f"{GROUP}. {'. '.join(text[0].upper() + text[1:] for text in told)}.",
    )


# ---- one program


def tile(K: int = 128, COUT: int = 64, CIN: int = 96, BITS: int = 2) -> Picture:
    """Draw what one program of puzzle 19 walks through: dyᵀ, packed words, and a tile of dW."""
    F, block_m, block_n, block_k, i, j = 32 // BITS, 32, 32, 32, 1, 1
    gap, wide = 20, CIN / F * 2.5  # words drawn wider than they are, to be seen
    figure = new_figure(7.4, 5.2)
    ax = figure.add_subplot()
    ax.set(xlim=(-2, K + gap + CIN + wide + 34), ylim=(K + gap + COUT + 12, -8), aspect="equal")
    ax.set_axis_off()
    left, below = K + gap, K + gap
    words_at = left + CIN + 22
    box(ax, 0, below, K, COUT, **WHOLE)
    box(ax, words_at, 0, wide, K, **WHOLE)
    box(ax, left, 0, CIN, K, color=None, dashed=True, **WHOLE)
    box(ax, left, below, CIN, COUT, **WHOLE)
    row, column, steps = i * block_m, j * block_n, K // block_k
    for step in range(steps):
        at = step * block_k
        name = f"iter. {step + 1}"
        box(ax, at, below + row, block_k, block_m, name, color=DY, **TILE)
        box(ax, left + column, at, block_n, block_k, name, color=VALUES, dashed=True, **TILE)
        strip = wide * block_n / CIN
        box(ax, words_at + j * strip, at, strip, block_k, color=PACKED, **TILE)
        y = at + block_k / 2
        arrow(ax, (words_at - 1, y), (left + column + block_n + 2, y))
    box(ax, left + column, below + row, block_n, block_m, "acc", color=DW, **TILE)
    for x, y, text in (
        (K / 2, below + COUT + 6, "dyᵀ: COUT rows, K columns"),
        (left + CIN / 2, below + COUT + 6, "dW: COUT × CIN"),
        (left + CIN / 2, -5, "x̂: K × CIN, in registers only"),
        (words_at + wide / 2, -5, "words"),
    ):
        label(ax, x, y, text)
    return Picture(
        figure,
        f"One program of the fused kernel owns a tile of dW, {block_m} rows of COUT by {block_n} columns "
        f"of CIN, and walks along K in {steps} iterations. Each one takes a block of dy, transposed, and "
        f"a block of x̂ with the same k. But x̂ exists in registers only: each block is unpacked from a strip "
        f"of words, which is {F} times narrower at {BITS} bits.",
    )


# ---- what an iteration costs

_PRODUCTS = 1 << 20  # the work that bars are drawn for


def busy(steps: Mapping[str, Step | None]) -> Picture:
    """Draw the clocks to issue the instructions for 2^20 products, next to those of the tensor cores."""
    figure = new_figure(7.4, 1.15 + 0.44 * max(1, len(steps)))
    ax = figure.subplots()
    needed = _PRODUCTS / PRODUCTS
    told, longest = [], needed
    for place, (name, step) in enumerate(steps.items()):
        if step is None:
            label(ax, needed * 1.1, place, "no tensor cores in a loop", align="left", fontsize=9)
            told.append(f"{name}: no tensor cores in a loop")
            continue
        clocks = step.issue_clocks * _PRODUCTS / step.products
        longest = max(longest, clocks)
        ax.barh(place, clocks, height=0.6, color=ORANGE, edgecolor=INK, linewidth=0.6)
        text = f"{clocks:.0f}, busy at most {step.busy:.0%}"
        if step.in_tf32:
            text += f" (in TF32, tensor cores: {step.tensor_clocks * _PRODUCTS / step.products:.0f})"
        label(ax, max(clocks, needed), place, f"  {text}", align="left", fontsize=9)
        told.append(f"{name}: {text}")
    ax.axvline(needed, color=BLUE, linewidth=2.4)
    label(ax, needed, -0.75, f"tensor cores: {needed:.0f}", align="left bottom", fontsize=9, color=BLUE)
    ax.set_yticks(range(len(steps)), steps, fontsize=10)
    ax.set_ylim(len(steps) - 0.4, -0.8)
    ax.set_xlim(0, longest * 1.38)
    ax.set_xlabel("clocks to issue the instructions for 1,048,576 products", fontsize=10)
    ax.tick_params(axis="x", labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"How many clocks a multiprocessor needs to issue the instructions for {_PRODUCTS} products. The "
        f"tensor cores need {needed:.0f} clocks for them. {'. '.join(told)}.",
    )


def clock(rows: int = 100864) -> Picture:
    """Draw the recorded times of three fused kernels, next to dequantizing and calling cuBLAS."""
    timed = {
        row["path"]: row["us"]
        for row in recorded.rows("ladder")
        if row["case"].startswith(f"2 bits, {rows}x")
    }
    names = {
        "1": "like puzzle 19,\ntiles of 64 × 64",
        "2": "the same,\ntiles of 256 × 128",
        "3": "packed along K,\nlike puzzle 21",
        "dequantize + cuBLAS": "dequantize,\nthen cuBLAS",
    }
    bars = {
        words: next(us for path, us in timed.items() if path == start or path.startswith(f"{start} "))
        for start, words in names.items()
    }
    figure = new_figure(7.4, 3.0)
    ax = figure.subplots()
    told = []
    for place, (words, us) in enumerate(bars.items()):
        color = SKY if place == len(bars) - 1 else ORANGE
        ax.barh(place, us, height=0.6, color=color, edgecolor=INK, linewidth=0.6)
        label(ax, us + 12, place, f"{us:.0f} µs", align="left", fontsize=10)
        told.append(f"{words.replace(chr(10), ' ')}: {us:.0f} µs")
    ax.set_yticks(range(len(bars)), bars, fontsize=10)
    ax.invert_yaxis()
    ax.set_xlim(0, max(bars.values()) * 1.15)
    ax.set_xlabel(f"µs for dW, K in 8 parts, {recorded.about('ladder')}", fontsize=9)
    ax.tick_params(axis="x", labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"Times for dW with K = {rows}, 768 by 768, 2 bits, {recorded.about('ladder')}. {'; '.join(told)}.",
    )


# ---- split-K


def splits(K: int = 83, BLOCK_K: int = 16, SPLITS: int = 4) -> Picture:
    """Draw K cut into blocks, blocks dealt to splits, one part from each, and their sum."""
    blocks = triton.cdiv(K, BLOCK_K)
    steps = triton.cdiv(blocks, SPLITS)
    colors = (SKY, YELLOW, ORANGE, PURPLE)
    figure, ax = new_sheet(25, 9.6)
    left, width, told = 3.2, 2.5, []
    for block in range(SPLITS * steps):
        first, last = block * BLOCK_K, min((block + 1) * BLOCK_K, K)
        real = max(0, last - first) / BLOCK_K
        x = left + block * width
        box(ax, x, 1.2, width, 1.1, color=None, dashed=True, **WHOLE)
        if real:
            box(ax, x, 1.2, width * real, 1.1, color=colors[block // steps % len(colors)], **TILE)
            text = f"{first}..{last - 1}"
            if real > 0.5:
                label(ax, x + width / 2, 1.75, text, fontsize=9)
            else:  # it isn't as wide as its text
                label(ax, x + width * real + 0.1, 1.75, f"◂ {text}", align="left", fontsize=9)
    label(ax, left - 0.4, 1.75, "rows k", align="right")
    for split in range(SPLITS):
        rows = max(0, min(K, (split + 1) * steps * BLOCK_K) - split * steps * BLOCK_K)
        middle = left + (split + 0.5) * steps * width
        label(ax, middle, 0.6, f"split {split}")
        arrow(ax, (middle, 2.5), (middle, 3.7))
        text = f"{rows} rows" if rows else "no rows: write 0"
        label(ax, middle + 0.25, 3.05, text, align="left", fontsize=9)
        fill = colors[split % len(colors)] if rows else None
        box(ax, middle - 1.5, 3.9, 3.0, 1.6, f"parts[{split}]", color=fill)
        if split:
            plus = left + split * steps * width
            label(ax, plus, 4.7, "+", fontsize=14)
        told.append(f"split {split} has {rows} rows")
    middle = left + SPLITS * steps * width / 2
    arrow(ax, (middle, 5.8), (middle, 6.9))
    text = "a second kernel, from left to right: the same bits in every run"
    label(ax, middle + 0.4, 6.3, text, align="left", fontsize=9)
    box(ax, middle - 1.5, 7.1, 3.0, 1.6, "dW", color=DW)
    return Picture(
        figure,
        f"K = {K} rows in blocks of {BLOCK_K} make {blocks} blocks; {SPLITS} splits take {steps} each. "
        f"{'; '.join(told)}. Each split writes its own part; the empty one writes zeros. A second kernel "
        f"adds the parts from left to right, so every run gives the same bits.",
    )


# ---- where values are needed


def wanted(BITS: int = 4) -> Picture:
    """Draw a word along a row, a word along K, and what a thread has to give the tensor cores."""
    rows, columns = 16, 32 // BITS
    figure, ax = new_sheet(25, 13.0, unit=0.36)
    thread = {(k, 3) for k in (2, 3, 10, 11)}  # thread 1 of a quarter warp: k = 2t, 2t+1, 2t+8, 2t+9
    *some, last = [str(16 * j) for j in range(1, 16 // BITS)]
    below = f"(fields 1 to {len(some) + 1} are {', '.join(some)} and {last} rows below)"
    panels = (
        ("packed along the row", lambda k, n: k == 2, f"one word: its {columns} fields are\nin one row"),
        ("packed along K", lambda k, n: (k, n) in thread, f"four words: field 0 of each\n{below}"),
    )
    for number, (name, mine, foot) in enumerate(panels):
        left, top, width, height = 3.2 + 12.4 * number, 1.8, 0.95, 0.52
        colors = [[PACKED if mine(k, n) else PALE for n in range(columns)] for k in range(rows)]
        texts = [["●" if (k, n) in thread else "" for n in range(columns)] for k in range(rows)]
        block = cells(ax, texts, x=left, y=top, width=width, height=height, colors=colors)
        middle = left + columns * width / 2
        label(ax, middle, 0.5, name, fontsize=11)
        label(ax, middle, 1.4, "columns n", fontsize=9, color=FAINT)
        for k in (0, 2, 3, 10, 11, 15):
            y = block.y + (k + 0.5) * height
            label(ax, left - 0.2, y, f"k={k}", align="right", fontsize=9, color=FAINT)
        label(ax, middle, block.bottom + 1.0, foot, fontsize=10)
    text = "yellow: what a thread loads.  ●: what the tensor cores need from thread t = 1"
    label(ax, 12.5, 12.5, text)
    return Picture(
        figure,
        f"16 rows of x̂ by {columns} columns, twice. Four values are marked that one thread has to give the "
        f"tensor cores: column 3, rows 2, 3, 10 and 11. Packed along the row, a thread that loads a word has "
        f"{columns} columns of row 2, and only one of them is marked. Packed along K, it loads the words at "
        f"the marked places: field 0 of each is here, and the other fields are {', '.join(some)} and {last} "
        f"rows below. Field j of each word is exactly what dot j needs from it.",
    )


def fields(BITS: int = 4, j: int = 2) -> Picture:
    """Draw an iteration of puzzle 21: one load of words, and one dot for each field."""
    F = 16 // BITS
    figure, ax = new_sheet(26, 15.2, unit=0.36)
    acc_x, acc_y, wide, high = 17.0, 8.6, 6.4, 4.6
    thin, strip = 2.4, 1.35  # 16 columns, 16 rows
    words_x, x_x = 3.0, acc_x - thin - 1.2
    box(ax, words_x, acc_y, thin, high, "words", color=PACKED, **TILE)
    box(ax, x_x, acc_y, thin, high, "x̂ᵀ", color=VALUES, dashed=True, **TILE)
    box(ax, acc_x, acc_y, wide, high, "acc", color=DW, **TILE)
    arrow(ax, (words_x + thin + 0.3, acc_y + high / 2), (x_x - 0.3, acc_y + high / 2))
    middle = (words_x + thin + x_x) / 2
    label(ax, middle, acc_y + high / 2 - 1.3, f"field {j}:\nshift, mask, scale", fontsize=9)
    label(ax, middle, acc_y + high / 2 + 0.9, "in the same thread", fontsize=9)
    top = acc_y - 1.2 - F * strip
    for field in range(F):
        mine = field == j
        y = top + field * strip
        box(ax, acc_x, y, wide, strip, "dy" if mine else "", color=DY if mine else PALE, **TILE)
        rows = f"j = {field}: rows {16 * field} to {16 * field + 15}"
        label(ax, acc_x - 0.3, y + strip / 2, rows, align="right", fontsize=9)
    label(ax, acc_x + wide / 2, top - 0.6, f"dy: 16 · F rows of block 0, F = {F}", fontsize=9)
    for x, text in (
        (words_x + thin / 2, "[BLOCK_N, 16]\nloaded once per iteration"),
        (x_x + thin / 2, "[BLOCK_N, 16]"),
        (acc_x + wide / 2, "[BLOCK_N, BLOCK_M]"),
    ):
        label(ax, x, acc_y + high + 0.4, text, align="top", fontsize=9)
    title = f"one iteration: one load of words, {F} dots acc += x̂ᵀ · dy; this is the one for j = {j}"
    label(ax, words_x, 0.3, title, align="left")
    return Picture(
        figure,
        f"One iteration of puzzle 21 at {BITS} bits. A tile of words, [BLOCK_N, 16], is loaded once. Field "
        f"{j} of all its words, shifted, masked and scaled in the thread that has it, is x̂ᵀ, [BLOCK_N, 16]. "
        f"It is multiplied by rows {16 * j} to {16 * j + 15} of dy, [16, BLOCK_M], and the product is added "
        f"to acc, [BLOCK_N, BLOCK_M]. The other {F - 1} fields go with the other rows of the block.",
    )


__all__ = ["busy", "clock", "fields", "splits", "tile", "traffic", "wanted"]
