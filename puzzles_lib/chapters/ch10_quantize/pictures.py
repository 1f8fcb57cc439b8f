"""Pictures for chapter 10."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from puzzles_lib.chapters.ch09_bit_packing.pictures import pack
from puzzles_lib.drawing.colours import BLUE, FAINT, GREEN, INK, LINE, ORANGE, PALE, SKY, VERMILLION, YELLOW
from puzzles_lib.drawing.live import CODE, Live
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet

GROUPS = (SKY, YELLOW)  # alternating
WIDTH = 768  # of a row of a ViT-B
LARGE = 20.0  # an outlier among normal values


def _normal(count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def quantize(x: torch.Tensor, bits: int, round_scale: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes of one group and their decoded values; the stored scale is a bfloat16."""
    low, high = x.min(), x.max()
    exact = (high - low) / (2**bits - 1)
    stored = exact.bfloat16().double()
    codes = ((x - low) / (stored if round_scale else exact)).round().clamp(0, 2**bits - 1)
    return codes, low + codes * stored


# ---- the levels


def levels(count: int = 4096) -> Picture:
    """Draw the histogram of x with its 4 and 16 levels."""
    x = _normal(count)
    low, high = float(x.min()), float(x.max())
    figure = new_figure(7.6, 3.2)
    axes = figure.subplots(2, 1, sharex=True)
    told = []
    for ax, bits in zip(axes, (2, 4), strict=True):
        number = 2**bits
        step = (high - low) / (number - 1)
        ax.hist(x.numpy(), bins=96, range=(low, high), color=PALE, edgecolor=LINE, linewidth=0.5)
        lines = [low + step * code for code in range(number)]
        top = ax.get_ylim()[1]
        ax.vlines(lines, 0, top, color=BLUE, linewidth=2.2 if bits == 2 else 1.4)
        ax.set_ylim(0, top)
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(labelsize=9)
        ax.set_title(
            f"{bits} bits: {number} levels, {step:.2g} apart", fontsize=10, loc="left", color=INK, pad=3
        )
        told.append(f"{bits} bits, {number} levels {step:.2g} apart")
    axes[-1].set_xlabel("x", fontsize=10)
    return Picture(
        figure,
        f"Two copies of the histogram of {count} normal values from {low:.2f} to {high:.2f}, with lines "
        f"for the levels that x can be rounded to: {'; '.join(told)}. The first level is the minimum, the "
        f"last the maximum.",
    )


# ---- from values to words


def steps(values: Sequence[float] = (-1.5, 0.3, 2.25, -0.4, 0.7, -0.95, 1.6, 0.05), bits: int = 4) -> Picture:
    """Draw one group: values, steps above the minimum, codes, and the word."""
    low, high = min(values), max(values)
    scale = (high - low) / (2**bits - 1)
    above = [(v - low) / scale for v in values]
    codes = [round(a) for a in above]
    figure, ax = new_sheet(21.5, 7.6)
    left, width = 3.4, 1.3
    order = range(len(codes) - 1, -1, -1)  # the first value on the right, as the fields of a word
    rows = [
        ("x", [f"{v:g}" for v in values], f"min {low:g}, max {high:g}"),
        ("steps", [f"{a:.1f}" for a in above], f"(x − min) / scale, scale = {high - low:g} / {2**bits - 1}"),
        ("codes", codes, "rounded"),
    ]
    for number, (name, shown, words) in enumerate(rows):
        row = cells(
            ax,
            [shown[i] for i in order],
            x=left,
            y=0.9 + 1.6 * number,
            width=width,
            colors=[GROUPS[i % 2] for i in order],
            title=name,
            index=[f"n={i}" for i in order] if number == 0 else False,
        )
        label(ax, row.right + 0.4, row.y + 0.5, words, align="left", fontsize=9)
    row = cells(
        ax,
        [f"{codes[i]:0{bits}b}" for i in order],
        x=left,
        y=6.0,
        width=width,
        colors=[GROUPS[i % 2] for i in order],
        title="word",
        index=[f"field {i}" for i in order],
    )
    word = pack(tuple(codes), bits)
    label(ax, row.right + 0.4, row.y + 0.5, f"= {word}", align="left", fontsize=9)
    return Picture(
        figure,
        f"A group of {len(values)} values, drawn from right to left: "
        f"{', '.join(f'{v:g}' for v in values)}. Minimum {low:g}, maximum "
        f"{high:g}, scale ({high:g} − {low:g}) / {2**bits - 1} = {scale:g}. Steps above the minimum: "
        f"{', '.join(f'{a:.1f}' for a in above)}. Rounded, the codes are {codes}, packed into {word}.",
    )


# ---- groups to drag

BITS_CHOICES, GROUP_CHOICES = (1, 2, 3, 4, 5, 6, 7, 8), (4, 8, 16, 32)
HEIGHT, CLOSEST = 200, 4  # of the drawing, and of levels that are drawn, in pixels
LEVEL = "rgba(128,128,128,.45)"  # of the lines of levels, on light and dark pages
OUTLIER = 9  # its place among the values


def cost(bits: int, group: int) -> float:
    """Return the bits per value, with the scale and the minimum of a group."""
    return bits + 32 / group


def relative_error(bits: int, group: int) -> float:
    """Return how far the values with an outlier are off if they're quantized and decoded."""
    x = torch.tensor(outlying(), dtype=torch.float64)
    back = torch.cat([_decoded(part, bits) for part in x.split(group)])
    return float((back - x).norm() / x.norm())


def outlying(count: int = 32) -> list[float]:
    """Return normal values with an outlier."""
    values = [round(float(v), 2) for v in _normal(count)]
    values[OUTLIER] = 6.0
    return values


def drag(bits: int = 4, group: int = 32) -> Live:
    """Return values and what they come back as; bits and group size are sliders.

    bits: one of `BITS_CHOICES`. group: one of `GROUP_CHOICES`. The scale isn't rounded here.
    """
    values = outlying()
    x = torch.tensor(values, dtype=torch.float64)
    parts = x.split(group)
    back = torch.cat([_decoded(part, bits) for part in parts])
    scales = [float(part.max() - part.min()) / (2**bits - 1) for part in parts]
    low, high = float(x.min()), float(x.max())
    at = [100 * (high - v) / (high - low) for v in values]
    spans = [
        (100 * (high - float(part.max())) / (high - low), 100 * float(part.max() - part.min()) / (high - low))
        for part in parts
    ]
    columns = "".join(
        f'<div data-value="{v}" style="position:relative;flex:1;background:{_shade(n // group)}">'
        f'<i data-levels="" style="position:absolute;left:0;right:0;top:{spans[n // group][0]:.2f}%;'
        f"height:{spans[n // group][1]:.2f}%;border-bottom:1px solid {LEVEL};"
        f"background:linear-gradient({LEVEL} 1px,transparent 1px) 0 0/100% "
        f"calc(100%/{2**bits - 1})"
        f'{";background-image:none" if _are_dense(spans[n // group][1], bits) else ""}"></i>'
        f'<i data-back="" style="position:absolute;left:10%;right:10%;height:3px;margin-top:-1.5px;'
        f'background:{BLUE};top:{100 * (high - b) / (high - low):.2f}%"></i>'
        f'<i style="position:absolute;left:50%;width:8px;height:8px;margin:-4px;border-radius:50%;'
        f'background:{ORANGE};top:{place:.2f}%"></i></div>'
        for n, (v, b, place) in enumerate(zip(values, back.tolist(), at, strict=True))
    )
    zero = f"top:{100 * high / (high - low):.2f}%"
    marks = (("top:0", f"{high:g}"), (zero, "0"), ("top:100%", f"{low:g}"))
    axis = '<div aria-hidden="true" style="position:relative;width:3.2em;font-size:.85em">' + "".join(
        f'<span style="position:absolute;right:.6em;transform:translateY(-50%);{place}">{text}</span>'
        for place, text in marks
    )
    axis += "</div>"
    sliders = "".join(
        f'<label style="flex:1">{words} = <b data-is="{name}">{now}</b><input type="range" min="0" '
        f'max="{len(choices) - 1}" '
        f'value="{choices.index(now)}" data-slider="{name}" data-choices="{",".join(map(str, choices))}" '
        f'aria-label="{words}" style="width:100%"></label>'
        for name, words, now, choices in (
            ("bits", "BITS", bits, BITS_CHOICES),
            ("group", "GROUP", group, GROUP_CHOICES),
        )
    )
    off = relative_error(bits, group)
    least, largest = f"{min(scales):.3f}", f"{max(scales):.3f}"
    between = largest if len(parts) == 1 else f"{least} to {largest}"
    numbers = {"cost": f"{cost(bits, group):g}", "scale": between, "error": f"{100 * off:.1f}%"}
    words = {
        "cost": "bits per value, with scale and minimum",
        "scale": "scales of the groups",
        "error": "relative error, |x̂ − x| / |x|",
    }
    table = "".join(f'<div>{words[name]}: <b data-is="{name}">{numbers[name]}</b></div>' for name in numbers)
    return Live(
        "groups",
        f'<div style="display:flex;gap:2em">{sliders}</div><div style="display:flex;height:{HEIGHT}px;'
        f'margin:.8em 0 0;padding:10px 0;overflow:hidden">{axis}{columns}</div>{_places(len(values))}'
        f'<div style="margin:.3em 0"><span style="color:{ORANGE}">●</span> value &nbsp; '
        f'<span style="color:{BLUE}">▬</span> what comes back &nbsp; '
        f'<span style="display:inline-block;vertical-align:middle;width:1.2em;'
        f'border-top:1px solid {LEVEL}"></span> level, unless they are too close '
        f"&nbsp; shades: groups</div>"
        f'<div style="display:flex;gap:2em;align-items:center;flex-wrap:wrap"><div aria-live="polite" '
        f'style="{CODE}">{table}</div>{_trail(cost(bits, group), off)}</div>',
        Path(__file__).with_name("drag.js").read_text("utf-8"),
        f"32 values as dots, one of them an outlier, and bars for what they come back as. Two sliders set "
        f"the bits per code, {bits}, and the size of a group, {group}. That takes {numbers['cost']} bits per "
        f"value with scale and minimum. The scales of the groups are {numbers['scale']}, the relative error "
        f"is {numbers['error']}. Thin lines are the levels. A plot of the error against the bits per value "
        f"keeps a point for each setting.",
    )


COSTS, ERRORS = (2, 16), (0.001, 2)  # from left to right and from bottom to top of the plot
PLOT = (34, 8, 220, 84)  # left, top, width, height


def _trail(bits_per_value: float, error: float) -> str:
    """Draw the plot to which the script adds each setting that is tried."""
    left, top, wide, high = PLOT

    def x(bits: float) -> float:
        return left + wide * (bits - COSTS[0]) / (COSTS[1] - COSTS[0])

    def y(off: float) -> float:
        return top + high * math.log(ERRORS[1] / off) / math.log(ERRORS[1] / ERRORS[0])

    lines = "".join(
        f'<path d="M{left} {y(off):.1f}H{left + wide}" stroke="{LEVEL}"/><text x="{left - 3}" '
        f'y="{y(off) + 3:.1f}" text-anchor="end">{off:.0%}</text>'
        for off in (1.0, 0.1, 0.01)
    )
    ticks = "".join(
        f'<text x="{x(bits):.1f}" y="{top + high + 11}" text-anchor="middle">{bits}</text>'
        for bits in (2, 4, 8, 12, 16)
    )
    return (
        f'<svg width="{left + wide + 14}" height="{top + high + 28}" fill="currentColor" font-size="10" '
        f'aria-hidden="true" data-trail="{" ".join(map(str, (*PLOT, *COSTS, *ERRORS)))}">{lines}{ticks}'
        f'<text x="{left + wide / 2:g}" y="{top + high + 24}" text-anchor="middle">bits per value; '
        f'error, one dot per setting</text><g data-tried=""></g><circle data-now="" r="5" fill="{ORANGE}" '
        f'cx="{x(bits_per_value):.1f}" cy="{y(error):.1f}"/></svg>'
    )


def _places(count: int) -> str:
    """Write below the columns which n is where."""
    shown = "".join(
        f'<span style="flex:1;width:0;text-align:center;white-space:nowrap">'
        f"{n if n in (0, OUTLIER, count - 1) else ''}</span>"
        for n in range(count)
    )
    head = '<span style="width:3.2em;text-align:right;padding-right:.6em;box-sizing:border-box">n =</span>'
    return f'<div aria-hidden="true" style="display:flex;font-size:.85em">{head}{shown}</div>'


def _are_dense(percent: float, bits: int) -> bool:
    """Return whether a group's levels are too close to be drawn. percent: its part of the height."""
    return HEIGHT * percent / 100 < CLOSEST * (2**bits - 1)


def _decoded(part: torch.Tensor, bits: int) -> torch.Tensor:
    low, high = part.min(), part.max()
    scale = (high - low) / (2**bits - 1)
    return low + ((part - low) / scale).round() * scale


def _shade(group: int) -> str:
    return ("rgba(128,128,128,.10)", "rgba(128,128,128,.24)")[group % 2]


# ---- errors


def error(count: int = 48 * WIDTH, groups: tuple[int, ...] = (8, 64, WIDTH)) -> Picture:
    """Draw the relative error against the bits per value, without and with an outlier in each row."""
    normal = _normal(count)
    outlying = normal.clone()
    outlying[WIDTH // 3 :: WIDTH] = LARGE
    figure = new_figure(8.6, 3.8)
    axes = figure.subplots(1, 2, sharey=True)
    widths, told = (1, 2, 4, 8), []
    titles = ("normal values", f"normal values, but one in {WIDTH} is {LARGE:g}")
    for ax, x, title in zip(axes, (normal, outlying), titles, strict=True):
        lines = []
        for group, color, mark in zip(groups, (BLUE, ORANGE, GREEN), ("o", "s", "^"), strict=True):
            errors = []
            for bits in widths:
                got = torch.cat([quantize(part, bits)[1] for part in x.split(group)])
                errors.append(float((got - x).norm() / x.norm()))
            cost = [bits + 32 / group for bits in widths]
            if group == groups[0]:
                for bits, place, size in zip(widths, cost, errors, strict=True):
                    words = f"{bits} bit{'s' * (bits > 1)}"
                    label(ax, place + 0.25, size, words, align="left", fontsize=9, color=FAINT)
            name = f"groups of {group}" if group < WIDTH else f"one group per row, {WIDTH}"
            ax.plot(cost, errors, marker=mark, color=color, linewidth=1.6, label=name)
            lines.append(f"{name}: {', '.join(f'{e:.2%}' for e in errors)}")
        told.append(f"{title}: {'; '.join(lines)}")
        ax.set_yscale("log")
        ax.set_xticks(range(0, 13, 2))
        ax.set_xlim(0, 14)
        ax.set_yticks([1, 0.1, 0.01], ["100%", "10%", "1%"], fontsize=9)
        ax.tick_params(labelsize=9)
        ax.set_title(title, fontsize=10, loc="left", color=INK)
        ax.set_xlabel("bits per value, with scale and minimum", fontsize=9)
        ax.grid(axis="y", color=PALE)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("relative error, |x̂ − x| / |x|", fontsize=10)
    axes[1].legend(fontsize=9, frameon=False, loc="upper right")
    return Picture(
        figure,
        f"Relative error of {count} values, quantized to 1, 2, 4 and 8 bits per code, on a logarithmic "
        f"scale, against the bits per value with scale and minimum. {'. '.join(told)}. With normal values, "
        f"large groups have the smallest error for the same bits per value. With outliers, groups of "
        f"{groups[1]} do.",
    )


PART = 40  # values whose largest error is one point of a line


def stored_scale(bits: int = 8, count: int = 2000) -> Picture:
    """Draw the error in steps if codes come from the stored scale, and if they come from the exact one."""
    top = 2**bits - 1
    low, high = -2.0, 2.0
    x = torch.linspace(low, high, count, dtype=torch.float64)
    scale = (high - low) / top
    stored = float(torch.tensor(scale, dtype=torch.float64).bfloat16())
    figure = new_figure(7.4, 3.4)
    ax = figure.subplots()
    worst = {}
    for name, round_scale, color, style in (
        ("codes from the exact scale", False, VERMILLION, "--"),
        ("codes from the stored scale", True, BLUE, "-"),
    ):
        got = quantize(x, bits, round_scale)[1]
        off = ((got - x) / stored).abs()
        worst[name] = float(off.max())
        words = f"{name}: up to {worst[name]:.2f}"
        middles = torch.stack([part.mean() for part in x.split(PART)])
        largest = torch.stack([part.max() for part in off.split(PART)])
        ax.plot(middles, largest, style, color=color, linewidth=1.8, label=words)
    ax.set_ylim(0, 1.15 * max(worst.values()))
    ax.set_xlabel(f"x, from minimum to maximum of a group, {bits} bits", fontsize=10)
    ax.set_ylabel("largest |decoded x − x|, in steps", fontsize=10)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=9, frameon=False, loc="upper left")
    return Picture(
        figure,
        f"The largest error of dequantized values, in steps, along a group from {low:g} to {high:g}, with "
        f"{bits} bits. "
        f"The exact scale is {scale:.6f}, the stored one {stored:.6f}. With codes from the stored scale, it "
        f"stays within {worst['codes from the stored scale']:.2f} of a step; with codes from the exact "
        f"scale, "
        f"it drifts away, up to {worst['codes from the exact scale']:.2f} steps near the maximum.",
    )


# ---- a row of groups


def tile(N: int = 19, GROUP: int = 8, BLOCK_G: int = 4) -> Picture:
    """Draw the tile of one program: each row is a group and gives a scale and a minimum."""
    G = -(-N // GROUP)
    figure, ax = new_sheet(19.5, BLOCK_G + 3.6)
    left, top, width = 3.2, 1.9, 1.0
    n = [[g * GROUP + i for i in range(GROUP)] for g in range(BLOCK_G)]
    grid = cells(
        ax,
        n,
        x=left,
        y=top,
        width=width,
        colors=[[GROUPS[g % 2] if v < N else None for v in row] for g, row in enumerate(n)],
        hatch=[[None if v < N else ".." for v in row] for row in n],
        row_index=[f"g={g}" for g in range(BLOCK_G)],
    )
    label(ax, left + GROUP * width / 2, top - 0.5, f"n = g · GROUP + i, GROUP = {GROUP}", fontsize=11)
    places = (("scale", 1.6), ("minimum", 2.2))
    x = grid.right + 1.4
    for name, size in places:
        for g in range(BLOCK_G):
            real = g < G
            color, hatch = (GROUPS[g % 2], None) if real else (None, "..")
            box(ax, x, top + g, size, 1, f"[{g}]" if real else "", color=color, hatch=hatch)
        label(ax, x + size / 2, top - 0.5, name, fontsize=11)
        x += size + 0.5
    for g in range(G):
        arrow(ax, (grid.right + 0.15, top + g + 0.5), (grid.right + 1.25, top + g + 0.5))
    foot = f"dotted: n ≥ N = {N}, left out of minimum and maximum"
    label(ax, 9.7, top + BLOCK_G + 0.8, foot)
    return Picture(
        figure,
        f"A row of N = {N} values in groups of {GROUP}: {G} groups. The program's tile has "
        f"BLOCK_G = {BLOCK_G} rows, one per group. Each gives a scale and a minimum. Lanes from n = {N} on "
        f"are past the row: they are left out of the minimum and the maximum.",
    )


def reshape(BLOCK_G: int = 2, GROUP: int = 16, BITS: int = 4) -> Picture:
    """Draw a tile of groups, the same codes with a row per word, and the words."""
    F = 32 // BITS
    words = GROUP // F
    figure, ax = new_sheet(24, BLOCK_G * (words + 0.4) + 6.2)
    left, width = 4.4, 1.05
    tile = [[g * GROUP + i for i in range(GROUP)] for g in range(BLOCK_G)]
    colors = [[GROUPS[n // F % 2] for n in row] for row in tile]
    names = [f"group {g}" for g in range(BLOCK_G)]
    grid = cells(ax, tile, x=left, y=1.2, width=width, colors=colors, row_index=names)
    label(ax, left, 0.7, f"codes, [{BLOCK_G}, {GROUP}]", align="left", family="monospace")
    top = grid.bottom + 2.0
    cut = f"reshape: [{BLOCK_G}, {words}, {F}]"
    label(ax, left, top - 0.5, cut, align="left", family="monospace")
    label(ax, left + F * width + 4.2, top - 0.5, f"sum: [{BLOCK_G}, {words}]", family="monospace")
    for g in range(BLOCK_G):
        for word in range(words):
            y = top + g * (words + 0.4) + word
            part = [g * GROUP + word * F + i for i in range(F)]
            color = GROUPS[word % 2]
            row = cells(ax, part, x=left, y=y, width=width, colors=color)
            label(ax, left - 0.3, y + 0.5, f"[{g}, {word}]", align="right", fontsize=9)
            arrow(ax, (row.right + 0.3, y + 0.5), (row.right + 2.6, y + 0.5))
            box(ax, row.right + 2.8, y, 2.8, 1, f"word {g * words + word}", color=color)
    foot = f"BITS = {BITS}, so F = {F}: the order of the codes stays, and each word has a row of its own"
    label(ax, left, top + BLOCK_G * (words + 0.4) + 0.5, foot, align="left", fontsize=9)
    return Picture(
        figure,
        f"A tile of {BLOCK_G} groups of {GROUP} codes, numbered 0 to {BLOCK_G * GROUP - 1}. Reshaped to "
        f"[{BLOCK_G}, {words}, {F}], it has a row of {F} codes for each of {BLOCK_G * words} words, in "
        f"the same order. The sum along the last axis leaves [{BLOCK_G}, {words}] words.",
    )


# ---- what it saves

TOKENS = 512 * 197  # images, and patches of each with the class token


def layer_bytes(bits: int | None, group: int = 256) -> float:
    """Return the bytes that the linear layers of a ViT-B block keep for backward; bits None: bfloat16."""
    columns = 3 * WIDTH + 4 * WIDTH  # inputs of qkv, of the projection, of fc1 and of fc2
    return TOKENS * columns * (16 if bits is None else bits + 32 / group) / 8


def memory(group: int = 256) -> Picture:
    """Draw the memory for the inputs of one block's linear layers, ViT-B at batch 512."""
    figure = new_figure(7.2, 2.8)
    ax = figure.subplots()
    names, sizes = [], []
    for bits in (None, 8, 4, 2, 1):
        names.append("bf16" if bits is None else f"{bits} bit{'s' * (bits > 1)}")
        sizes.append(layer_bytes(bits, group) / 1e9)
    ax.barh(names, sizes, color=[LINE, *[BLUE] * 4], height=0.66)
    for place, size in enumerate(sizes):
        label(ax, size + 0.012, place, f"{size:.3f} GB", align="left")
    ax.invert_yaxis()
    ax.set_xlim(0, 1.25 * sizes[0])
    ax.set_xlabel("GB per block, kept until the backward pass, with what's needed to decode it", fontsize=9)
    ax.tick_params(labelsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    told = ", ".join(f"{name} {size:.3f} GB" for name, size in zip(names, sizes, strict=True))
    return Picture(
        figure,
        f"Memory for the inputs of the four linear layers of one ViT-B block at batch 512, {TOKENS} tokens, "
        f"in groups of {group} with scale and minimum in bfloat16: {told}.",
    )


# ---- measured on a GPU


def _is_drawn(path: str) -> bool:
    """Return whether a row has at most one change to the chapter's kernel."""
    return path.count(", ") < 3 and not path.endswith("copy")


def programs(rows: Sequence[dict], about: str) -> Picture:
    """Draw recorded times of this chapter's kernels in several launches, with production and a copy.

    rows: recorded rows of bench "row-wise" (`puzzles_lib.timing.recorded`).
    """
    figure = new_figure(8.4, 3.9)
    axes = figure.subplots(1, 2, sharey=True, sharex=True)
    copy_us = rows[0]["baseline_us"]
    widest = max(row["us"] for row in rows)
    told, order = [], []
    titles = {"quantize_pack": "quantize_pack (15b)", "dequantize": "unpack_dequantize (16)"}
    for ax, path in zip(axes, titles, strict=True):
        kept = [row for row in rows if row["path"].startswith(f"{path}, ") and _is_drawn(row["path"])]
        names = [row["path"].removeprefix(f"{path}, ").replace(" a program", " per program") for row in kept]
        order = order or names
        colors = [_color_of(name) for name in names]
        ax.barh([order.index(name) for name in names], [row["us"] for row in kept], color=colors, height=0.66)
        for name, row in zip(names, kept, strict=True):
            times = f"{row['us']:.0f} µs, {row['us'] / row['baseline_us']:.1f}× a copy"
            inside = row["us"] > 0.6 * widest
            gap, align, ink = (-3, "right", "white") if inside else (3, "left", INK)
            label(ax, row["us"] + gap, order.index(name), times, align=align, fontsize=9, color=ink)
        ax.axvline(copy_us, color=INK, linewidth=1)
        ax.set_title(titles[path], fontsize=11, color=INK)
        ax.set_xlabel("µs", fontsize=9)
        ax.tick_params(labelsize=9)
        ax.set_xlim(0, 1.04 * widest)
        ax.spines[["top", "right"]].set_visible(False)
        parts = [f"{name} {row['us']:.1f} µs" for name, row in zip(names, kept, strict=True)]
        told.append(f"{path}: {', '.join(parts)}")
    axes[0].set_yticks(range(len(order)), order)
    axes[0].invert_yaxis()
    words = f"vertical line: a copy of as many bytes, {copy_us:.0f} µs\n{rows[0]['case']}\n{about}"
    figure.supxlabel(words, fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"Times for {rows[0]['case']}, {about}. {'. '.join(told)}. A copy of as many bytes takes "
        f"{copy_us:.1f} µs.",
    )


def _color_of(name: str) -> str:
    """Return the color of a launch: production, the chapter's kernel, or one with a change."""
    if name == "production":
        return GREEN
    return BLUE if name.endswith(("warp", "warps")) else SKY


__all__ = [
    "drag",
    "error",
    "layer_bytes",
    "levels",
    "memory",
    "outlying",
    "programs",
    "reshape",
    "steps",
    "stored_scale",
    "tile",
]
