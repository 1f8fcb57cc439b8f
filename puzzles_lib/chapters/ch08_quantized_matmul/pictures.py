"""Pictures for chapter 08."""

import html
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PALE,
    PAPER,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.live import CODE, ON_FILL, Live
from puzzles_lib.drawing.sheet import Picture, box, cells, label, new_figure, new_sheet

CODES = (3, 1, 4, 1, 5, 9, 2, 12)  # field 0 first; the top field is above 7, so the sign bit is on
BITS = 0.27  # inches per bit
FIELDS = (SKY, YELLOW)  # alternating
SIGN = VERMILLION
GROUPS = (SKY, ORANGE, GREEN, YELLOW)


def pack(codes: tuple[int, ...]) -> int:
    """Return eight 4-bit codes as a signed 32-bit word, field 0 in the lowest bits."""
    word = sum(code << 4 * i for i, code in enumerate(codes))
    return word - (1 << 32) if word >> 31 else word


def word(codes: tuple[int, ...] = CODES) -> Picture:
    """Draw the 32 bits of a word, and its eight fields with their codes."""
    value = pack(codes)
    figure, ax = new_sheet(33, 5.6, unit=BITS)
    bits = f"{value & 0xFFFFFFFF:032b}"
    row = cells(
        ax, bits, x=0.5, y=1.8, height=1.3, colors=[FIELDS[bit // 4 % 2] for bit in range(31, -1, -1)]
    )
    for field, code in enumerate(codes):
        left, right = row.x + 32 - 4 * field - 4, row.x + 32 - 4 * field
        label(ax, left + 0.5, 1.65, str(4 * field + 3), align="bottom", fontsize=9, color=FAINT)
        label(ax, right - 0.5, 1.65, str(4 * field), align="bottom", fontsize=9, color=FAINT)
        ax.plot(
            [left + 0.15, left + 0.15, right - 0.15, right - 0.15],
            [3.3, 3.55, 3.55, 3.3],
            color=INK,
            linewidth=1,
        )
        middle = (left + right) / 2
        label(ax, middle, 4.15, f"field {field}", fontsize=9)
        label(ax, middle, 5.0, str(code), fontsize=12)
    label(ax, 0.5, 0.5, f"one int32 word: {value}", align="left", fontsize=11)
    label(ax, 32.5, 0.5, "bit numbers above the cells", align="right", fontsize=9, color=FAINT)
    fields = ", ".join(f"field {i} = {code}" for i, code in enumerate(codes))
    return Picture(
        figure,
        f"The int32 word {value} as 32 bits, bit 31 on the left: {bits}. Every four bits are a field: "
        f"field i is bits 4i to 4i + 3, so field 0 is on the right. {fields}.",
    )


def flip(codes: tuple[int, ...] = CODES, field: int = 7) -> Live:
    """Return a word whose bits can be flipped, with one field that is shifted down."""
    value = pack(codes)
    bits = f"{value & 0xFFFFFFFF:032b}"
    button = f"padding:0;border:0;border-radius:2px;height:2em;cursor:pointer;{ON_FILL}"
    row = "display:grid;gap:2px 1px;grid-template-columns:repeat({},minmax(0,1fr))"
    flips = "".join(
        f'<button type="button" data-bit="{bit}" aria-label="bit {bit}" aria-pressed="{on == "1"}" '
        f'title="bit {bit}" style="background:{FIELDS[bit // 4 % 2]};{button}">{on}</button>'.lower()
        for bit, on in zip(range(31, -1, -1), bits, strict=True)
    )
    picks = "".join(
        f'<button type="button" data-field="{i}" aria-pressed="{str(i == field).lower()}" '
        f'style="background:{FIELDS[i % 2]};{button}">'
        f"<span>field {i}: {codes[i]}</span></button>"
        for i in range(7, -1, -1)
    )
    lines = {
        "word": value,
        "word >> 4 * i": value >> 4 * field,
        "(word >> 4 * i) & 15": value >> 4 * field & 15,
    }
    table = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal">{html.escape(name)}</th>'
        f'<td style="text-align:left" data-bits="{n}">{result & 0xFFFFFFFF:032b}</td>'
        f'<td style="text-align:left" data-number="{n}">{result}</td></tr>'
        for n, (name, result) in enumerate(lines.items())
    )
    body = (
        f'<div style="{row.format(32)}">{flips}</div>'
        f'<div style="margin-top:.5em">fields and their codes</div>'
        f'<div style="{row.format(8)}">{picks}</div>'
        f'<div style="margin-top:.5em">i = <b data-i="">{field}</b></div>'
        f'<table aria-live="polite" style="margin:0;color:inherit;{CODE}">{table}</table>'
    )
    shifted, held = value >> 4 * field, ", ".join(f"field {i} = {code}" for i, code in enumerate(codes))
    return Live(
        "bits",
        body,
        Path(__file__).with_name("flip.js").read_text("utf-8"),
        f"The int32 word {value} as 32 buttons, one per bit: {bits}. A click flips a bit. Below are its "
        f"eight "
        f"fields, {held}. A click chooses one. For the chosen field {field}, word >> {4 * field} = "
        f"{shifted}, "
        f"and with & 15 it is {shifted & 15}.",
    )


def sign(codes: tuple[int, ...] = CODES) -> Picture:
    """Draw what >> does to the top field of a negative word, and how & 15 repairs it."""
    value = pack(codes)
    lines = [("word", value), ("word >> 28", value >> 28), ("(word >> 28) & 15", value >> 28 & 15)]
    figure, ax = new_sheet(46, 8.8, unit=BITS * 0.82)
    left = 8.2
    for number, (name, result) in enumerate(lines):
        bits = f"{result & 0xFFFFFFFF:032b}"
        kept = range(0, 4) if number == 0 else range(28, 32)
        copies = range(0, 28) if number == 1 else ()
        colors = [FIELDS[0] if i in kept else SIGN if i in copies else PALE for i in range(32)]
        row = cells(ax, bits, x=left, y=1.4 + 2.6 * number, height=1.4, colors=colors, fontsize=9)
        middle = row.y + 0.7
        label(ax, left - 0.5, middle, name, align="right", family="monospace")
        label(ax, row.right + 0.5, middle, f"= {result}", align="left", fontsize=11)
    for bit in (31, 28, 0):
        label(ax, left + 31.5 - bit, 0.75, str(bit), fontsize=9, color=FAINT)
    label(ax, left + 14, 6.0, "28 copies of the sign bit", fontsize=9)
    label(ax, left + 30, 8.55, "& 15 keeps four bits", fontsize=9)
    return Picture(
        figure,
        f"The top field of the word {value} is {codes[7]}, bits {codes[7]:04b}. Shifting right by 28 "
        f"brings it down, but fills the 28 places above with copies of the sign bit: the result "
        f"is {value >> 28}. "
        f"With & 15, only the lowest four bits stay: {value >> 28 & 15}.",
    )


def fold(codes: tuple[int, ...] = CODES) -> Picture:
    """Draw two words, their fields along a new axis, and that axis folded into the row."""
    second = tuple(range(8))
    figure, ax = new_sheet(21, 7.6)
    pair = (codes, second)
    colors = (GROUPS[0], GROUPS[1])
    left = 4.4
    words = cells(ax, [pack(c) for c in pair], x=left, y=0.6, width=3.6, colors=colors, title="words")
    label(ax, words.right + 0.4, 1.1, "[1, 2]", align="left")
    fields = cells(
        ax,
        [list(c) for c in pair],
        x=left,
        y=2.7,
        colors=[[color] * 8 for color in colors],
        title="fields",
        index=True,
    )
    label(ax, fields.right + 0.4, 3.7, "[1, 2, 8]: a new axis, field i", align="left")
    cells(
        ax,
        [*codes, *second],
        x=left,
        y=5.8,
        colors=[color for color in colors for _ in range(8)],
        title="w",
        index=True,
    )
    label(ax, left, 7.25, "[1, 16]: the fields in the order of k", align="left")
    return Picture(
        figure,
        f"Two words, {pack(codes)} and {pack(second)}, have the shape [1, 2]. Shifted by 0, 4, ... 28 along "
        f"a "
        f"new last axis, they become the fields {list(codes)} and {list(second)}, shape [1, 2, 8]. Reshaped "
        f"to "
        f"[1, 16], the fields are in the order of k: field i of word j is at 8j + i.",
    )


_LARGE, _SMALL = (-2.9, 1.6, 4.4, 0.8), (-0.2, 0.05, 0.12, 0.23)  # two groups of one row


def rulers() -> Picture:
    """Draw the weights of two groups on a ruler for the whole row, and those of one on a ruler of its own."""
    figure, ax = new_sheet(26, 13.4, unit=0.31)
    row = _ruler(ax, 3.3, 0.5, 6, ((_LARGE, SKY), (_SMALL, ORANGE)))
    own = _ruler(ax, 9.9, 0.03, 7, ((_SMALL, ORANGE),))
    label(ax, 1.0, 0.7, "one ruler for the row: scale 0.5, offset 6", align="left", fontsize=11)
    label(ax, 1.0, 7.3, "a ruler for group 1 alone: scale 0.03, offset 7", align="left", fontsize=11)
    zero = row[1]
    text = "all of group 1 falls on the mark of zero"
    label(ax, _place(zero[0]), 5.5, text, fontsize=9, color=FAINT)
    label(ax, 25.0, 0.7, "blue: group 0    orange: group 1", align="right", fontsize=9, color=FAINT)
    text = "(drawn about 17 times as large; the codes are the numbers at the marks)"
    label(ax, 13, 12.6, text, fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"Two rulers with 16 marks, 0 to 15. Group 0 of a row has the weights {_listed(_LARGE)}, group 1 "
        f"{_listed(_SMALL)}. A ruler for the whole row has scale 0.5 and offset 6. On it, group 0 gets the "
        f"codes {_listed(row[0])}. Group 1 gets {_listed(zero)}, so all its weights become 0. On a "
        f"ruler of its own, with scale 0.03 and offset 7, group 1 gets {_listed(own[0])}.",
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(map(str, numbers))


def _place(mark: float) -> float:
    """Return where a ruler's mark is on the sheet."""
    return 2.0 + 22.0 * mark / 15


def _ruler(
    ax: Axes, y: float, scale: float, offset: int, groups: Sequence[tuple[Sequence[float], str]]
) -> list[list[int]]:
    """Draw a ruler, and how weights of groups fall on its marks. Returns the codes of each group."""
    box(ax, _place(-0.6), y, _place(15.6) - _place(-0.6), 1.7, color=PALE, edge=INK)
    for mark in range(16):
        x, is_zero = _place(mark), mark == offset
        ax.plot([x, x], [y, y + 0.45], color=INK, linewidth=2.2 if is_zero else 1)
        label(ax, x, y + 1.05, str(mark), fontsize=9, weight="bold" if is_zero else "normal")
    label(ax, _place(offset), y - 1.75, "zero", fontsize=9, color=FAINT)
    found = []
    for weights, color in groups:
        codes = [round(weight / scale) + offset for weight in weights]
        for weight, code in zip(weights, codes, strict=True):
            x = _place(weight / scale + offset)
            ax.plot([x, _place(code)], [y - 1.0, y], color=INK, linewidth=0.8)
            ax.scatter(x, y - 1.0, s=42, color=color, edgecolor=INK, linewidth=0.8, zorder=3)
            if scale < 0.1 or color == SKY:  # there's room
                label(ax, x, y - 1.75, f"{weight:g}", fontsize=9)
        found.append(codes)
    return found


def dequantize(codes: tuple[int, ...] = CODES) -> Picture:
    """Draw codes, minus offset, times scale: one word with GROUP = 4."""
    group, offsets, scales = 4, (3, 7), (0.5, 0.25)
    figure, ax = new_sheet(17, 7.4)
    offset = [offsets[k // group] for k in range(8)]
    scale = [scales[k // group] for k in range(8)]
    result = [s * (w - o) for s, w, o in zip(scale, codes, offset, strict=True)]
    colors = [GROUPS[k // group] for k in range(8)]
    rows = [
        ("w[m, k]", list(codes), "4 bits each, 0 to 15"),
        ("− o[m, g]", offset, "4 bits per group"),
        ("× s[m, g]", scale, "one float32 per group"),
        ("=", result, "the weight"),
    ]
    left = 3.0
    for number, (name, values, words) in enumerate(rows):
        row = cells(
            ax,
            values,
            x=left,
            y=1.0 + 1.4 * number + 0.3 * (number == 3),
            width=1.15,
            colors=colors,
            title=name,
            index=[f"k={k}" for k in range(8)] if number == 0 else False,
        )
        label(ax, row.right + 0.4, row.y + 0.5, words, align="left", fontsize=9)
    for g in range(2):
        middle = left + (g * group + group / 2) * 1.15
        label(ax, middle, 6.95, f"group {g}")
    parts = "; ".join(
        f"group {g}: offset {offsets[g]}, scale {scales[g]:g}, "
        f"codes {list(codes[g * group : (g + 1) * group])} become {result[g * group : (g + 1) * group]}"
        for g in range(2)
    )
    return Picture(
        figure,
        f"Eight codes with GROUP = {group}: subtract the group's offset, multiply by its scale. {parts}.",
    )


def once(rows: int = 4, group: int = 16, columns: int = 4) -> Picture:
    """Draw where words, scales and offsets are loaded, and what the scales multiply: in 12c, and in 12d."""
    figure, ax = new_sheet(31, 14.6, unit=0.26)
    words = rows * group // 8
    shades = [[GROUPS[m]] for m in range(rows)]
    label(
        ax, 1, 0.7, f"12c: every lane loads its own word, scale and offset, [{rows}, {group}]", align="left"
    )
    tile = cells(
        ax,
        [[f"s{m}" for _ in range(group)] for m in range(rows)],
        x=1,
        y=1.4,
        width=1.3,
        colors=[shade * group for shade in shades],
        edge=FAINT,
        fontsize=9,
    )
    lanes = rows * group
    label(ax, tile.right + 0.6, 2.4, f"{lanes} loads of each", align="left", fontsize=10)
    label(ax, tile.right + 0.6, 4.0, f"{lanes} weights times s", align="left", fontsize=10)
    top = 8.6
    label(ax, 1, top - 0.7, f"12d: words [{rows}, {group // 8}], each once", align="left")
    cells(
        ax,
        [[f"word {j}" for j in range(group // 8)]] * rows,
        x=1,
        y=top,
        width=2.7,
        colors=[shade * (group // 8) for shade in shades],
        edge=FAINT,
        fontsize=9,
    )
    label(ax, 13.3, top - 0.7, f"one per row, [{rows}, 1]", align="left")
    column = cells(
        ax,
        [[f"s{m}, o{m}"] for m in range(rows)],
        x=13.3,
        y=top,
        width=2.8,
        colors=shades,
        edge=FAINT,
        fontsize=9,
    )
    text = f"{words} loads of a word, {rows} of a scale, {rows} of an offset"
    label(ax, 1, column.bottom + 0.8, text, align="left", fontsize=10)
    result = cells(
        ax,
        [[f"s{m} · sum"] * columns for m in range(rows)],
        x=19.6,
        y=top,
        width=2.7,
        colors=[shade * columns for shade in shades],
        edge=FAINT,
        fontsize=9,
    )
    label(ax, result.x, top - 0.7, f"the dot's result, [{rows}, {columns}]", align="left")
    label(ax, result.x, result.bottom + 0.8, f"{rows * columns} sums times s", align="left", fontsize=10)
    return Picture(
        figure,
        f"A tile of {rows} rows by {group} columns, all within one group. In puzzle 12c, each of the "
        f"{lanes} lanes loads a word, a scale and an offset, and {lanes} weights are multiplied by a scale. "
        f"In puzzle 12d, {words} words are loaded once each. Scales and offsets are columns of {rows} lanes, "
        f"one per row, and the scales multiply the {rows * columns} sums of the dot.",
    )


def groups() -> Picture:
    """Draw three rulers along k, words of 8, groups of 12 and blocks of 32, and where the offsets are."""
    K, group, block = 48, 12, 32
    count, steps = K // group, -(-K // block)
    figure, ax = new_sheet(80, 26, unit=0.125)
    left = 15.5
    for k in range(steps * block):
        real = k < K
        fill, hatch = (GROUPS[k // group], None) if real else (None, "xxx")
        box(ax, left + k, 6, 1, 2.6, color=fill, hatch=hatch)
    _label(ax, left - 1, 2.7, "words of 8")
    _label(ax, left - 1, 7.3, "k, left to right")
    _label(ax, left - 1, 11.0, f"groups of {group}")
    _label(ax, left - 1, 15.0, f"blocks of {block}")
    for i in range(K // 8):
        _span(ax, left + 8 * i, left + 8 * i + 8, 4.4, f"word {i}", above=True)
    for g in range(count):
        _span(ax, left + group * g, left + group * (g + 1), 9.6, f"g = {g}")
    for step in range(steps):
        _span(ax, left + block * step, left + block * (step + 1), 13.6, f"block {step}")
    label(ax, left + (K + steps * block) / 2, 2.7, "past K: masked", fontsize=9)
    _label(ax, left - 1, 21.3, "offset word 0")
    row = cells(
        ax,
        [f"o[m, {i}]" if i < count else "" for i in range(7, -1, -1)],
        x=left,
        y=20,
        width=8,
        height=2.6,
        colors=[GROUPS[i] if i < count else None for i in range(7, -1, -1)],
        hatch=[None if i < count else "..." for i in range(7, -1, -1)],
        edge=FAINT,
        fontsize=9,
        index=[f"field {i}" for i in range(7, -1, -1)],
    )
    label(ax, row.x, 24.6, "← fields go right to left: field 0 is the lowest bits", align="left", fontsize=9)
    lane = 29  # followed from k to its word, its group and its offset
    box(ax, left + lane, 6, 1, 2.6, color=GROUPS[lane // group], edge=INK, linewidth=2.4)
    g = lane // group
    words = f"field {lane % 8} of word {lane // 8}, and the offset in field {g % 8}, because g = {g}"
    label(ax, left, 17.0, f"framed: k = {lane}, the code in {words}", align="left", fontsize=9)
    for i, text in enumerate(["unused"] * (8 - count)):
        label(ax, *row.center(i), text, fontsize=9, behind="white")
    return Picture(
        figure,
        f"The columns k of one row of weights, K = {K}, with three rulers. Words have eight columns, word "
        f"0 to word {K // 8 - 1}. Groups have {group}: g = k // {group}, 0 to {count - 1}; group 0 ends in "
        f"the "
        f"middle of word 1. Iterations have {block}: the first ends inside group 2, the second has "
        f"{steps * block - K} lanes past K, which are masked. The code of k = {lane} is in "
        f"{words}. Below is offset word 0: fields 0 "
        f"to {count - 1} "
        f"are o[m, 0] to o[m, {count - 1}], the other fields are unused.",
    )


def _label(ax: Axes, x: float, y: float, text: str) -> None:
    label(ax, x, y, text, align="right")


def _span(ax: Axes, left: float, right: float, y: float, text: str, above: bool = False) -> None:
    """Draw a bracket from left to right with its text on the far side."""
    tick = 0.7 if above else -0.7
    ax.plot([left + 0.2] * 2 + [right - 0.2] * 2, [y + tick, y, y, y + tick], color=INK, linewidth=1)
    label(ax, (left + right) / 2, y - 2 * tick, text, fontsize=9)


# ---- the end of Part I

_CHAPTERS = (
    ("01", "blocks", r"tl\.(load|store|arange|program_id)\b|\bmask\w*\b"),
    ("02", "broadcasting", r"\[:, None\]|\[None, :\]|\) & \("),
    ("03", "fusion", r"\w \* \(\w - \w\)"),
    ("04", "loops, other", r"^\s*for\b|\bother\b"),
    ("05", "dot", r"tl\.dot\b|input_precision"),
    ("07", "accumulator", r"\bacc\b"),
    ("08", "words, groups", r">>|& 15|// (?:8|GROUP)|\bgroups\b"),
)
_WIDEST = 96  # characters of a line that are shown
_UNTOLD = ("12d, dots in bfloat16", "cuBLAS, float32 weight")  # recorded, but not told of in the chapter


def ladder(rows: Sequence[dict], about: str) -> Picture:
    """Draw recorded times of the chapter's kernel and its changes for one token, on a logarithmic axis.

    rows: recorded rows of bench "quantized-matmul" (`puzzles_lib.timing.recorded`).
    """
    rows = [row for row in rows if row["case"].endswith("N = 1") and row["path"] not in _UNTOLD]
    figure = new_figure(7.4, 3.9)
    ax = figure.subplots()
    steps = [row for row in rows if row["path"].startswith(("12", "each"))]
    for place, row in enumerate(rows):
        name, us = row["path"], row["us"]
        color = BLUE if row in steps else GREEN if name == "dequant_gemm" else ORANGE
        ax.scatter(us, place, s=70, color=INK if name.startswith("floor") else color, zorder=2)
        text = f"{us:.0f} µs" if us > 20 else f"{us:.1f} µs"
        if row in steps[1:]:
            text += f", {steps[steps.index(row) - 1]['us'] / us:.1f} times as fast"
        label(ax, us * 1.15, place, text, align="left", fontsize=9, behind=PAPER, pad=1)
    ax.set_xscale("log")
    ax.set_xlim(1, 12_000)  # room for the texts
    ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(rows)), [row["path"] for row in rows])
    ax.invert_yaxis()
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("µs for one token (each grid line is ten times the one before)", fontsize=9)
    case = rows[0]["case"]
    figure.supxlabel(f"{case}\n{about}", fontsize=9, color=FAINT)
    told = ", ".join(f"{row['path']} {row['us']:.1f} µs" for row in rows)
    return Picture(figure, f"Times for {case}, {about}: {told}.")


def road(kernel: object) -> Picture:
    """Draw a kernel line by line, with the chapters that taught what is in it."""
    source = inspect.getsource(kernel.fn)
    lines = [
        line.rstrip() for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    lines = [re.sub(r"\s+# .*$", "", line) for line in lines if not line.startswith("@")]
    body = next((i for i, line in enumerate(lines) if line.rstrip().endswith(":")), 0) + 1
    lines = [f"{lines[0].partition('(')[0]}(...):", *lines[body:]]  # parameters taught nothing new
    widest = min(_WIDEST, max(len(line) for line in lines))
    unit, high, top = 0.078, 2.4, 4.5
    wide = 0.6 * 9 / 72 / unit  # of a character of size 9
    left = 16  # of the code, after the chapters
    figure, ax = new_sheet(left + max(widest, 76) * wide, top + high * len(lines), unit=unit)
    names = ", ".join(f"{number} {name}" for number, name, _ in _CHAPTERS)
    label(ax, 1, 1.5, names, align="left", fontsize=9, color=FAINT)
    marks = {number: 0 for number, _, _ in _CHAPTERS}
    for i, line in enumerate(lines):
        y = top + high * i
        shown = line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"
        label(ax, left, y, shown, align="left", fontsize=9, family="monospace")
        found = [number for number, _, pattern in _CHAPTERS if i and re.search(pattern, line)]
        for number in found:
            marks[number] += 1
        label(ax, left - 1.5, y, " ".join(found), align="right", fontsize=9, color=BLUE)
    told = "; ".join(f"{number} {name}: {marks[number]}" for number, name, _ in _CHAPTERS)
    return Picture(
        figure,
        f"{kernel.__name__}, {len(lines)} lines, with the number of lines that use what each chapter "
        f"taught: {told}.",
    )


__all__ = ["dequantize", "fold", "groups", "once", "pack", "road", "rulers", "sign", "word"]
