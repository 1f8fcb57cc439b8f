"""Pictures for chapter 22."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.chapters.ch22_language_model.puzzles import E2M1, MX_GROUP
from puzzles_lib.drawing.colours import (
    FAINT,
    GREEN,
    GREY,
    INK,
    MIST,
    ORANGE,
    PALE,
    PALE_GREEN,
    PALE_ORANGE,
    PALE_SKY,
    PROGRAM_TINTS,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.layout import plural
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, legend, new_figure, new_sheet
from puzzles_lib.timing import recorded

MINUS = "\N{MINUS SIGN}"


def chain() -> Picture:
    """Draw a token's way through the model, and which puzzle is which step."""
    figure, ax = new_sheet(27, 12.4)
    stem, top, apart = 2.1, 3.6, 2.3
    columns = (
        (4.0, (("norm", "28"), ("q, k, v", "12c"), ("RoPE", "66"))),
        (8.4, (("out", "12c"), ("merge", "68"), ("paged attention", "67"))),
        (13.0, (("norm", "28"), ("router", "74"), ("gate and up", "69"))),
        (17.4, (("sum of two", ""), None, ("SwiGLU and down", "70"))),
        (22.8, (("norm", "28"), ("256 logits", "12c"), ("draw", "71"))),
    )
    box(ax, 3.5, 0.5, 18.3, 10.4, color=None, dashed=True)
    label(
        ax, 3.8, 1.05, "a layer; there are three, one after the other", align="left", fontsize=9, color=FAINT
    )
    box(ax, 0.3, stem - 0.6, 2.2, 1.2, "byte", color=PALE_ORANGE)
    label(ax, 0.3, stem + 1.0, "its embedding:", align="left", fontsize=9, color=FAINT)
    label(ax, 0.3, stem + 1.6, "128 numbers", align="left", fontsize=9, color=FAINT)
    ax.plot([2.5, 24.7], [stem, stem], color=SKY, linewidth=4, zorder=0)
    for column, (x, steps) in enumerate(columns):
        middle, is_up = x + 1.9, column in (1, 3)
        for row, step in enumerate(steps):
            if not step:
                continue
            name, puzzle = step
            y = top + apart * row
            earlier = puzzle in ("28", "12c")
            color = None if not puzzle else PALE if earlier else GREEN
            box(ax, x, y, 3.8, 1.6, color=color, dashed=color is None)
            label(ax, middle, y + (0.55 if puzzle else 0.8), name)
            if puzzle:
                label(ax, middle, y + 1.15, f"puzzle {puzzle}", color=FAINT if earlier else INK, fontsize=9)
            if row < 2 and not is_up:
                arrow(ax, (middle, y + 1.65), (middle, y + apart - 0.05))
        if is_up:
            arrow(ax, (middle, top - 0.05), (middle, stem + 0.5))
            box(ax, middle - 0.45, stem - 0.45, 0.9, 0.9, "+", color=SKY, fontsize=12)
            arrow(ax, (x - 0.55, top + 2 * apart + 0.8), (x - 0.05, top + 2 * apart + 0.8))
            if column == 1:
                arrow(ax, (middle, top + 2 * apart - 0.05), (middle, top + apart + 1.65))
                arrow(ax, (middle, top + apart - 0.05), (middle, top + 1.65))
            else:
                arrow(ax, (middle, top + 2 * apart - 0.05), (middle, top + 1.65))
        else:
            arrow(ax, (middle, stem + 0.1), (middle, top - 0.05))
    for x, name in ((8.1, "attention"), (17.1, "experts")):
        label(ax, x, 10.35, name, fontsize=11)
    arrow(ax, (24.7, top + 2 * apart + 1.65), (24.7, 10.75))
    box(ax, 22.8, 10.8, 3.8, 1.2, "next byte", color=PALE_ORANGE)
    ax.plot([0.3, 1.7], [11.55, 11.55], color=SKY, linewidth=4)
    label(ax, 2.0, 11.55, "the row; results are added", align="left")
    legend(ax, 11.25, (10.4, GREEN, "this chapter"), (15.2, PALE, "earlier"))
    box(ax, 18.7, 11.25, 0.7, 0.6, color=None, dashed=True)
    label(ax, 19.65, 11.55, "torch", align="left")
    return Picture(
        figure,
        "A token's way through the model. A byte's row of the embedding, 128 numbers, passes three layers. A "
        "layer has two branches, whose results are added to the row. The first is norm (puzzle 28), q, k, v "
        "(12c), RoPE (66), paged attention (67), merge (68) and out (12c). The second is norm (28), router "
        "(74), gate and up (69), SwiGLU and down (70) and the sum of two. After the layers come norm (28), "
        "256 logits (12c) and the draw of the next byte (71).",
    )


def rotations(
    places: Sequence[tuple[int, int]] = ((0, 0), (2, 0), (8, 6), (0, 2)), size: int = 16, apart: int = 30
) -> Picture:
    """Draw the first two pairs of a query and a key as arrows, at several (query's, key's) positions.

    size: how many numbers a head has. apart: the degrees by which the query is ahead before it's rotated.
    """
    figure, ax = new_sheet(25, 9.2)
    told = []
    for row in range(2):
        speed = 10_000 ** (-2 * row / size)
        y = 2.9 + 3.9 * row
        name = f"pair {row}, D = {size}\n{speed:.3g} rad per position"
        label(ax, 0.3, y, name, align="left", fontsize=10)
        for column, (of_q, of_k) in enumerate(places):
            x = 8.6 + 4.3 * column
            ring = [2 * math.pi * n / 60 for n in range(61)]
            ax.plot([x + 1.3 * math.cos(a) for a in ring], [y - 1.3 * math.sin(a) for a in ring], color=MIST)
            for color, angle in ((SKY, speed * of_k), (ORANGE, speed * of_q + math.radians(apart))):
                tip = (x + 1.3 * math.cos(angle), y - 1.3 * math.sin(angle))
                ax.plot([x, x + 0.8 * (tip[0] - x)], [y, y + 0.8 * (tip[1] - y)], color=color, linewidth=2.5)
                arrow(ax, (x, y), tip, color=color)
            of_key, between = speed * of_k, math.radians(apart) + speed * (of_q - of_k)
            arc = [of_key + between * n / 30 for n in range(31)]
            ax.plot([x + 0.55 * math.cos(a) for a in arc], [y - 0.55 * math.sin(a) for a in arc], color=INK)
            if not row:
                label(ax, x, 0.45, f"query at {of_q}", color=ORANGE, fontsize=10)
                label(ax, x, 1.15, f"key at {of_k}", color=SKY, fontsize=10)
            turned = round(math.degrees(speed * (of_q - of_k)))
            sign, total = "+" if turned > 0 else MINUS, f"{apart + turned}".replace("-", MINUS)
            words = f"{apart}° {sign} {abs(turned)}° = {total}°" if turned else f"{apart}°: not rotated"
            label(ax, x, y + 1.75, words, fontsize=9)
            told.append(f"pair {row}, query at {of_q} and key at {of_k}: {words}")
    return Picture(
        figure,
        f"Two pairs of a query and a key with {size} numbers as arrows, rotated by their positions. By how "
        f"far the query's arrow is ahead of the key's: {'; '.join(told)}. The angle "
        "between them, and so their dot product, is the same as long as the query is 2 positions after the "
        "key.",
    )


def pages(
    texts: Sequence[int] = (10, 5, 1),
    table: Sequence[Sequence[int]] = ((4, 1, 6), (0, 3), (2,)),
    page: int = 4,
) -> Picture:
    """Draw texts of a few keys, their rows of the table, and the pages of the cache."""
    figure, ax = new_sheet(27, 10.2)
    label(ax, 2.1, 0.7, "keys of each text", align="left", fontsize=11)
    label(ax, 13.4, 0.7, "table", align="left", fontsize=11)
    for row, (keys, owned) in enumerate(zip(texts, table, strict=True)):
        y = 1.4 + 1.5 * row
        label(ax, 0.3, y + 0.5, f"text {row}", align="left", fontsize=10)
        cells(ax, list(range(keys)), x=2.1, y=y, width=1.0, colors=PROGRAM_TINTS[row])
        entries = [str(n) for n in owned] + ["?"] * (len(table[0]) - len(owned))
        colors = [[PROGRAM_TINTS[row]] * len(owned) + [None] * (len(table[0]) - len(owned))]
        cells(ax, [entries], x=13.4, y=y, width=1.3, colors=colors)
        words = f"{plural(len(owned), 'page')}, {plural(keys % page or page, 'key')} in the last one"
        label(ax, 18.0, y + 0.5, words, align="left", fontsize=9, color=FAINT)
    label(ax, 0.3, 6.4, "the cache: pages of four slots", align="left", fontsize=11)
    count = max(max(owned) for owned in table) + 1
    told = []
    for number in range(count):
        owner = next((r for r, owned in enumerate(table) if number in owned), None)
        texts_in = [""] * page
        colors: list[object] = [None] * page
        if owner is not None:
            first = table[owner].index(number) * page
            for slot in range(page):
                if first + slot < texts[owner]:
                    texts_in[slot], colors[slot] = str(first + slot), PROGRAM_TINTS[owner]
            told.append(f"page {number} has text {owner}'s keys from {first}")
        x = 0.3 + 3.8 * number
        cells(ax, [texts_in], x=x, y=7.7, width=0.85, colors=[colors], fontsize=9)
        label(ax, x + 1.7, 7.25, f"page {number}", fontsize=9, color=FAINT)
    words = "Page 5 is free. Free slots of a last page, and entries marked ?, contain anything."
    label(ax, 0.3, 9.5, words, align="left", color=FAINT)
    return Picture(
        figure,
        f"Texts of {', '.join(map(str, texts))} keys in a cache with pages of {page} slots. Rows of the "
        f"table: {', '.join(str(list(each)) for each in table)}. {'; '.join(told)}. Page 5 is free.",
    )


def parts(texts: Sequence[int] = (10, 5, 1), page: int = 4, part: int = 2, heads: int = 2) -> Picture:
    """Draw the programs for some texts: one per part, head of k and v, and text."""
    figure, ax = new_sheet(27, 7.4)
    count = math.ceil(max(texts) / (page * part))
    label(ax, 0.3, 1.5, f"PART = {part}", align="left", fontsize=9, color=FAINT)
    empty = 0
    for s in range(count):
        left = 5.4 + 10.8 * s
        first = s * part
        last = min(first + part, math.ceil(max(texts) / page)) - 1
        pages = f"page {first}" if first == last else f"pages {first} to {last}"
        label(ax, left + 5.1, 0.5, f"part {s}: {pages} of the text")
        for g in range(heads):
            label(ax, left + 5.2 * g + 2.4, 1.5, f"g = {g}: q's heads {2 * g}, {2 * g + 1}", fontsize=9)
        for row, keys in enumerate(texts):
            y = 2.2 + 1.7 * row
            if not s:
                label(ax, 0.3, y + 0.65, f"text {row}: {plural(keys, 'key')}", align="left", fontsize=10)
            here = max(0, min(keys, (first + part) * page) - first * page)
            empty += heads * (not here)
            for g in range(heads):
                look = {"color": PROGRAM_TINTS[row]} if here else {"color": None, "dashed": True}
                words = plural(here, "key") if here else f"o = 0, lse = {MINUS}\N{INFINITY}"
                box(ax, left + 5.2 * g, y, 4.9, 1.3, words, fontsize=10, **look)
    whole = count * heads * len(texts)
    return Picture(
        figure,
        f"Texts of {', '.join(map(str, texts))} keys in pages of {page}, with PART = {part} and {heads} "
        f"heads of k and v: {whole} programs, one per part, head and text. Each takes two heads of q. "
        f"{empty} have no keys: they store o = 0 and lse = minus infinity.",
    )


def merged(lse: Sequence[float] = (0.0, math.log(3), -math.inf), o: Sequence[int] = (4, 8)) -> Picture:
    """Draw three parts, their lse, the shares with which they're averaged, and the average.

    o: the results of the parts that have keys, which come first.
    """
    figure, ax = new_sheet(24, 7.0)
    weights = [math.exp(each) for each in lse]
    shares = [weight / sum(weights) for weight in weights]
    names = ("0", "log 3", f"{MINUS}\N{INFINITY}")
    for row, (name, share) in enumerate(zip(names, shares, strict=True)):
        y = 1.3 + 1.6 * row
        own = str(o[row]) if share else "?"
        box(ax, 0.3, y, 4.4, 1.1, f"part {row}: o = {own}", color=PROGRAM_TINTS[row])
        label(ax, 5.4, y + 0.55, f"lse = {name}", align="left")
        label(ax, 10.0, y + 0.55, f"exp(lse) = {weights[row]:g}", align="left")
        if share:
            box(ax, 15.2, y, 8.0 * share, 1.1, f"{share:.0%}", color=PROGRAM_TINTS[row])
        else:
            label(ax, 15.2, y + 0.55, "0%: o may be anything", align="left", color=FAINT)
    label(ax, 15.2, 0.6, "share in the result", align="left", color=FAINT, fontsize=10)
    total = f"total = log({sum(weights):g}) = {math.log(sum(weights)):.2f}"
    label(ax, 0.3, 6.5, total, align="left", fontsize=11)
    terms = " + ".join(f"{share:.0%} of {own}" for share, own in zip(shares, o, strict=False))
    result = f"o = {terms} = {sum(s * own for s, own in zip(shares, o, strict=False)):g}"
    label(ax, 15.2, 6.5, result, align="left", fontsize=11)
    return Picture(
        figure,
        f"Three parts with lse 0, log 3 and minus infinity. Their exp(lse) are "
        f"{', '.join(f'{w:g}' for w in weights)}, so their shares in the result are "
        f"{', '.join(f'{s:.0%}' for s in shares)}. The {total}. With o = {o[0]} and {o[1]}, "
        f"the result is {result}.",
    )


def groups(counts: Sequence[int] = (3, 0, 6, 2), block: int = 4) -> Picture:
    """Draw rows sorted by expert, the ranges in start, and the programs of the grid."""
    figure, ax = new_sheet(26, 10.4)
    starts = [sum(counts[:e]) for e in range(len(counts) + 1)]
    colors = [PROGRAM_TINTS[e] for e, count in enumerate(counts) for _ in range(count)]
    label(ax, 3.1, 1.5, "rows of x", align="right")
    cells(ax, list(range(starts[-1])), x=3.5, y=1.0, width=1.4, colors=colors)
    label(ax, 3.1, 3.2, "start", align="right")
    cells(ax, starts, x=3.5, y=2.7, width=1.4, colors=PALE)
    most = -(-max(counts) // block)
    text = f"M = {max(counts)}: no expert has more rows, so each gets {most} programs of {block} rows"
    label(ax, 3.5, 4.6, text, align="left", fontsize=11)
    busy = 0
    for e, count in enumerate(counts):
        y = 5.2 + 1.2 * e
        label(ax, 3.1, y + 0.5, f"expert {e}", align="right")
        for tile in range(most):
            rows = min(block, count - tile * block)
            busy += rows > 0
            first = starts[e] + tile * block
            words = f"rows {first} to {first + rows - 1}" if rows > 0 else "nothing to do"
            look = {"color": PROGRAM_TINTS[e]} if rows > 0 else {"color": None, "dashed": True}
            box(ax, 3.5 + 6.2 * tile, y, 5.9, 1.0, words, fontsize=9, **look)
        look = {"color": PROGRAM_TINTS[e]} if count else {"color": None, "dashed": True}
        words = f"w[{e}]" if count else f"w[{e}]: not loaded"
        box(ax, 4.2 + 6.2 * most, y, 5.0, 1.0, words, fontsize=9, **look)
    return Picture(
        figure,
        f"Rows sorted by expert: {', '.join(map(str, counts))} rows, so start is {starts}. The grid has "
        f"{most} programs of {block} rows for each expert, {most * len(counts)} in all; {busy} have rows. "
        "Each expert has its own matrix; that of an expert without rows isn't loaded.",
    )


def gated() -> Picture:
    """Draw how two tiles of h become a tile of x, which goes into the dot."""
    figure, ax = new_sheet(26, 8.6)
    label(ax, 0.4, 0.7, "h, loaded: a row has 2K numbers", align="left")
    for left, color, strong, name in ((0.4, PALE_SKY, SKY, "gate"), (5.8, PALE_ORANGE, ORANGE, "up")):
        box(ax, left, 1.3, 5.4, 2.2, color=color)
        box(ax, left + 1.3, 1.3, 1.4, 2.2, color=strong)
        label(ax, left + 4.0, 2.4, name)
    for x, name in ((0.4, "0"), (5.8, "K"), (11.2, "2K")):
        label(ax, x, 3.95, name, fontsize=9, color=FAINT)
    arrow(ax, (2.4, 3.6), (2.4, 5.4))
    arrow(ax, (7.8, 3.6), (4.8, 6.4))
    box(ax, 1.0, 5.5, 3.7, 2.2, "x", color=PALE_GREEN)
    label(ax, 0.4, 8.2, "x = silu(gate) · up, in registers, never stored", align="left", fontsize=10)
    label(ax, 14.6, 0.7, "w[e]: K rows", align="left")
    box(ax, 14.6, 1.3, 4.2, 4.0, color=PALE)
    box(ax, 14.6, 2.3, 4.2, 1.4, color=GREY)
    label(ax, 14.3, 3.0, "k", align="right", fontsize=10)
    box(ax, 14.6, 5.9, 4.2, 1.8, "z", color=PALE_GREEN)
    arrow(ax, (4.8, 6.8), (14.5, 6.8))
    label(ax, 9.8, 6.3, "acc += x · w, a step along K", fontsize=10)
    arrow(ax, (16.7, 5.35), (16.7, 5.85))
    for n in range(2):
        box(ax, 19.0 + 3.2 * n, 5.9, 3.0, 1.8, color=None, dashed=True)
    label(ax, 19.0, 8.2, "other programs: each makes x again", align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        "A row of h has 2K numbers: first the gates, from K on the values up. A tile of the gates and the "
        "tile K further on become a tile of x = silu(gate) times up. It's in registers, and a dot with the "
        "same K of w[e] adds it to a tile of z. So x is never stored. Each block of columns of z has another "
        "program, which makes x again.",
    )


def waits(
    weights: tuple[float, float] = (3.0, 1.0), draws: int = 10_000, step: float = 0.1, steps: int = 10
) -> Picture:
    """Draw when many draws by waiting end, and with which of two bytes."""
    u = uniform(1, torch.arange(2 * draws)).view(draws, 2)
    wait = -u.log() / torch.tensor(weights)
    ended, byte = (wait.amin(1) / step).long(), wait.argmin(1)
    counts = [[int(((ended == n) & (byte == b)).sum()) for b in range(2)] for n in range(steps)]
    figure, ax = new_sheet(26, 9.6)
    foot, unit, width, left = 7.4, 6.2 / sum(counts[0]), 1.7, 1.0
    for n, (first, second) in enumerate(counts):
        x = left + width * n
        box(ax, x, foot - unit * first, 1.45, unit * first, color=SKY)
        box(ax, x, foot - unit * (first + second), 1.45, unit * second, color=ORANGE)
        label(ax, x, foot + 0.45, f"{n * step:.1f}", fontsize=9, color=FAINT)
        label(ax, x + 0.72, foot + 1.2, f"{first / (first + second):.0%}", fontsize=9)
    label(ax, left + width * steps + 0.2, foot + 0.45, "time", align="left", fontsize=9, color=FAINT)
    label(ax, left + width * steps + 0.2, foot + 1.2, "byte 0's part of the bar", align="left", fontsize=9)
    shares = [int((byte == b).sum()) / draws for b in range(2)]
    names = [f"byte {b}, weight {weights[b]:g}: drawn in {shares[b]:.1%}" for b in range(2)]
    for b, color in ((1, ORANGE), (0, SKY)):
        y = 1.2 + 1.0 * (1 - b)
        box(ax, 9.0, y, 0.7, 0.6, color=color)
        label(ax, 9.95, y + 0.3, names[b], align="left")
    parts = [f"{first} and {second}" for first, second in counts]
    return Picture(
        figure,
        f"{draws} draws by waiting, from two bytes with the weights {weights[0]:g} and {weights[1]:g}. In "
        f"each {step:g} of time, so many end with byte 0 and byte 1: {'; '.join(parts)}. {names[0]}, "
        f"{names[1]}.",
    )


def noisy(
    logits: Sequence[float] = (2.0, 1.0, 0.0, -1.0), seeds: Sequence[int] = (1, 2), draws: int = 2000
) -> Picture:
    """Draw logits, what noise makes of them for a few seeds, and how often each is drawn."""
    figure, ax = new_sheet(26, 8.4)
    count, told = len(logits), []
    noises = [-torch.log(-torch.log(uniform(seed, torch.arange(count)))) for seed in seeds]
    bars = [("logits", list(logits))] + [
        (f"with noise, seed {seed}", [a + float(b) for a, b in zip(logits, noise, strict=True)])
        for seed, noise in zip(seeds, noises, strict=True)
    ]
    zero, unit = 6.0, 0.85
    for column, (name, values) in enumerate(bars):
        left = 0.6 + 6.5 * column
        label(ax, left, 0.7, name, align="left", fontsize=10)
        winner = values.index(max(values))
        for n, value in enumerate(values):
            height = max(abs(value) * unit, 0.04)
            top = zero - height if value >= 0 else zero
            won = n == winner and column > 0
            box(ax, left + 1.3 * n, top, 1.1, height, color=VERMILLION if won else PALE_SKY)
            at = top - 0.35 if value >= 0 else top + height + 0.35
            label(ax, left + 1.3 * n + 0.55, at, f"{value:.1f}".replace("-", MINUS), fontsize=8)
            if won:
                label(ax, left + 1.3 * n + 0.55, at - 0.7, "drawn", fontsize=9, color=VERMILLION)
            label(ax, left + 1.3 * n + 0.55, 8.0, str(n), fontsize=9, color=FAINT)
        ax.plot([left - 0.2, left + 1.3 * count], [zero, zero], color=INK, linewidth=1)
        told.append(f"{name}: {', '.join(f'{value:.1f}' for value in values)}, largest is {winner}")
    many = torch.tensor(logits) - torch.log(-torch.log(uniform(1, torch.arange(draws * count)))).view(
        -1, count
    )
    shares = [n / draws for n in many.argmax(1).bincount(minlength=count).tolist()]
    softmax = torch.tensor(logits).softmax(0).tolist()
    left = 0.6 + 6.5 * len(bars)
    label(ax, left, 0.7, f"share of {draws} draws", align="left", fontsize=10)
    label(ax, left, 1.4, "below: by the softmax", align="left", fontsize=9, color=FAINT)
    for n, (share, p) in enumerate(zip(shares, softmax, strict=True)):
        box(ax, left + 1.3 * n, zero - 4 * share, 1.1, 4 * share, color=GREEN)
        label(ax, left + 1.3 * n + 0.55, 6.5, f"{share:.2f}", fontsize=9)
        label(ax, left + 1.3 * n + 0.55, 7.2, f"{p:.2f}", fontsize=9, color=FAINT)
        label(ax, left + 1.3 * n + 0.55, 8.0, str(n), fontsize=9, color=FAINT)
    told.append(f"of {draws} draws, {', '.join(f'{s:.2f}' for s in shares)}")
    told.append(f"the softmax is {', '.join(f'{p:.2f}' for p in softmax)}")
    return Picture(figure, f"Four logits, and draws by adding noise. {'; '.join(told)}.")


def streamed(tiles: int = 4, now: int = 2) -> Picture:
    """Draw a block of rows that walks over all classes, and the three numbers per row that stay."""
    figure, ax = new_sheet(28.6, 8.2)
    label(ax, 0.4, 3.2, "h", align="left", fontsize=11)
    box(ax, 0.4, 3.6, 4.4, 2.4, "BLOCK_T rows", color=PALE_SKY)
    label(ax, 6.4, 0.5, "w, a block of classes per iteration", align="left", fontsize=11)
    for n in range(tiles):
        x = 6.4 + 3.3 * n
        box(ax, x, 0.9, 3.0, 1.5, f"block {n}", color=PALE_ORANGE if n != now else ORANGE)
        words = "forgotten" if n < now else "now" if n == now else "not yet"
        box(ax, x, 3.6, 3.0, 2.4, words, color=PALE_GREEN if n == now else None, dashed=n != now)
    label(ax, 6.4, 7.5, "tiles of logits: only one exists, in registers", align="left", color=FAINT)
    x = 6.4 + 3.3 * now + 1.5
    arrow(ax, (x, 2.45), (x, 3.5))
    arrow(ax, (4.9, 6.2), (x - 1.0, 6.1), bend=0.12)
    ax.plot([x + 0.7, x + 0.7, 20.3, 20.3], [6.0, 6.7, 6.7, 3.7], color=INK, linewidth=1)
    names = ("row_max", "denominator", "chosen")
    for n, name in enumerate(names):
        arrow(ax, (20.3, 3.7 + 1.15 * n), (21.3, 3.7 + 1.15 * n))
        box(ax, 21.4, 3.2 + 1.15 * n, 4.6, 1.0, name, color=PALE_GREEN)
    label(ax, 23.7, 2.7, "per row", fontsize=9, color=FAINT)
    label(ax, 21.4, 7.3, "they become lse and loss", align="left", fontsize=10)
    return Picture(
        figure,
        f"A program has a block of rows of h and walks over {tiles} blocks of classes of w. In iteration "
        f"{now} only that tile of logits exists, in registers: earlier ones are forgotten. Each tile is "
        "folded into row_max, denominator and chosen, one number per row each. They become lse and loss.",
    )


def both_gradients(rows: int = 3, classes: int = 4, now: tuple[int, int] = (1, 2)) -> Picture:
    """Draw a program's way through its column of d, and the two products that each tile joins."""
    figure, ax = new_sheet(28.6, 12.2)
    row, column = now
    label(ax, 6.4, 0.5, "w: each program keeps one block of classes", align="left", fontsize=11)
    label(ax, 0.4, 3.2, "h", align="left", fontsize=11)
    label(ax, 6.4, 3.2, "d: only one tile exists, in registers", align="left", fontsize=11)
    for n in range(classes):
        mine = n == column
        box(ax, 6.4 + 3.3 * n, 0.9, 3.0, 1.4, f"program {n}", color=ORANGE if mine else PALE_ORANGE)
        for m in range(rows):
            here = mine and m == row
            text = "now" if here else "done" if mine and m < row else ""
            box(
                ax,
                6.4 + 3.3 * n,
                3.6 + 1.8 * m,
                3.0,
                1.5,
                text,
                color=PALE_GREEN if here else None,
                dashed=not here,
            )
    for m in range(rows):
        box(ax, 0.4, 3.6 + 1.8 * m, 4.4, 1.5, f"rows {m}", color=SKY if m == row else PALE_SKY)
        dark = m == row
        box(ax, 21.6, 3.6 + 1.8 * m, 4.4, 1.5, "+= d w" if dark else "", color=VERMILLION if dark else PALE)
    label(ax, 21.6, 3.2, "dh: all programs add to it", align="left", fontsize=11)
    y = 3.6 + 1.8 * row + 0.75
    arrow(ax, (19.4, y), (21.5, y))
    arrow(ax, (4.9, y), (6.3, y))
    middle = 6.4 + 3.3 * column + 1.5
    arrow(ax, (middle, 2.35), (middle, 2.95))
    bottom = 3.6 + 1.8 * rows + 0.5
    x = 6.4 + 3.3 * column + 1.5
    arrow(ax, (x, bottom - 0.7), (x, bottom - 0.05))
    for n in range(classes):
        mine = n == column
        box(
            ax, 6.4 + 3.3 * n, bottom, 3.0, 1.4, "+= d\N{MODIFIER LETTER CAPITAL T} h" if mine else "",
            color=VERMILLION if mine else PALE,
        )  # fmt: skip
    label(
        ax,
        6.4,
        bottom + 1.9,
        "dw: each program has its own block, and stores it once",
        align="left",
        fontsize=11,
    )
    return Picture(
        figure,
        f"Program {column} keeps its block of classes of w and walks over {rows} blocks of rows of h. In "
        "each iteration it makes one tile of d, in registers. The tile times w is added to those rows of "
        "dh, to which all programs add. The tile's transpose times h is added to the program's own block "
        "of dw, which is stored once.",
    )


def e2m1() -> Picture:
    """Draw the numbers of the 16 codes on a line."""
    figure, ax = new_sheet(27, 4.0)
    zero, unit = 14.6, 1.9
    label(ax, 2.2, 0.7, "code", align="right", fontsize=9, color=FAINT)
    label(ax, 2.2, 3.3, "number", align="right", fontsize=9, color=FAINT)
    ax.plot([zero - 6.2 * unit, zero + 6.2 * unit], [2.0, 2.0], color=INK, linewidth=1)
    for number in sorted({sign * n for n in E2M1 for sign in (1, -1)}):
        x = zero + unit * number
        ax.plot([x, x], [1.6, 2.4], color=INK, linewidth=1.5)
        code = E2M1.index(abs(number)) + 8 * (number < 0)
        label(ax, x, 0.7, str(code) if number else "0, 8", fontsize=9, color=FAINT)
        label(ax, x, 3.3, f"{number:g}".replace("-", MINUS), fontsize=9)
    told = ", ".join(f"{n:g}" for n in E2M1)
    return Picture(
        figure,
        f"The numbers of the codes 0 to 7 on a line: {told}. Codes 8 to 15 are the same with a minus, "
        "so 8 is 0, too. The numbers are further apart the larger they are.",
    )


def microscaled(shown: int = 2, group: int = MX_GROUP, scale: int = 128) -> Picture:
    """Draw 16 bytes with one scale, and how one of them becomes two numbers."""
    figure, ax = new_sheet(27, 8.6)
    count = group // 2
    heading = f"{group} numbers of a row of w: {count} bytes"
    label(ax, 0.4, 0.6, heading, align="left", fontsize=11)
    numbers = [(n * 7 + n // 16 * 3) % 16 for n in range(group)]
    every = [low | high << 4 for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
    texts = [f"{byte:02X}" for byte in every]
    colors = [ORANGE if n == shown else PALE for n in range(count)]
    top = cells(ax, texts, x=0.4, y=1.1, width=1.3, colors=colors, fontsize=10)
    box(ax, 23.2, 1.1, 2.4, 1.0, str(scale), color=YELLOW)
    factor = 2.0 ** (scale - 127)
    label(ax, 24.4, 0.6, "their scale", fontsize=11)
    label(ax, 24.4, 2.5, f"{scale} means {factor:g}", fontsize=9, color=FAINT)
    byte = every[shown]
    low, high = byte & 15, byte >> 4
    left, width = 5.0, 1.5
    bits = cells(
        ax,
        list(f"{byte:08b}"),
        x=left,
        y=4.3,
        width=width,
        height=1.2,
        colors=[VERMILLION, PALE_ORANGE, PALE_ORANGE, PALE_GREEN] * 2,
    )
    arrow(ax, top.foot(shown), bits.top(0), color=FAINT)
    label(ax, left - 0.4, 4.9, f"0x{byte:02X}, its bits", align="right")
    for first, code, half in ((0, high, "high"), (4, low, "low")):
        middle = left + width * (first + 2)
        number = E2M1[code & 7] * (-1) ** (code >> 3)
        product = f"{number:g} · {factor:g} = {number * factor:g}".replace("-", MINUS)
        name = f"{half} half, k = {2 * shown + (half == 'high')}: code {code}"
        label(ax, middle, 6.0, name, fontsize=9, color=FAINT)
        label(ax, middle, 6.8, product, fontsize=11)
    roles = ((5.0, VERMILLION, "sign"), (9.0, PALE_ORANGE, "exponent"), (14.6, PALE_GREEN, "fraction"))
    legend(ax, 7.7, *roles)
    return Picture(
        figure,
        f"mxfp4: {group} numbers take {count} bytes, with two codes each, and share a scale of one byte. A "
        f"code has a sign, two bits of exponent and one of fraction; in byte 0x{byte:02X} the low half is "
        f"that of k = {2 * shown} and comes first. The scale {scale} means {factor:g}.",
    )


def sorted_choices(
    chosen: Sequence[Sequence[int]] = ((2, 1), (1, 3), (2, 3), (3, 1)), experts: int = 4
) -> Picture:
    """Draw the choices of some tokens, and the same choices sorted by expert."""
    figure, ax = new_sheet(26, 8.9)
    label(ax, 0.4, 0.6, "each token chooses two experts", align="left", fontsize=11)
    flat = [expert for pair in chosen for expert in pair]
    order = sorted(range(len(flat)), key=lambda choice: flat[choice])
    start = [sum(expert < e for expert in flat) for e in range(experts + 1)]
    width, left = 2.2, 4.4
    label(ax, left - 0.4, 2.3, "choice", align="right", fontsize=9, color=FAINT)
    label(ax, left - 0.4, 3.3, "expert", align="right", fontsize=9, color=FAINT)
    cells(ax, list(range(len(flat))), x=left, y=1.8, width=width, colors=None, fontsize=9)
    above = cells(ax, flat, x=left, y=2.8, width=width, colors=[PROGRAM_TINTS[e] for e in flat])
    for t in range(len(chosen)):
        label(ax, left + width * (2 * t + 1), 1.4, f"token {t}", fontsize=9, color=FAINT)
    below = cells(ax, order, x=left, y=5.4, width=width, colors=[PROGRAM_TINTS[flat[c]] for c in order])
    label(ax, left - 0.4, 5.9, "order", align="right", fontsize=10)
    for place, choice in enumerate(order):
        x, y = above.foot(choice)
        arrow(ax, (x, y), below.top(place), color=FAINT)
        label(ax, left + width * (place + 0.5), 6.75, f"place {place}", fontsize=8, color=FAINT)
    told = [f"expert {e} has {plural(start[e + 1] - start[e], 'choice')}" for e in range(experts)]
    for first in sorted(set(start)):
        x = left + width * first
        ax.plot([x, x], [6.4, 7.2], color=INK, linewidth=1.5)
        names = " = ".join(f"start[{e}]" for e in range(experts + 1) if start[e] == first)
        label(ax, x, 7.55, f"{names} = {first}", fontsize=9)
    text = "Nobody chose expert 0, so it begins and ends at 0."
    label(ax, left, 8.4, text, align="left", fontsize=10, color=FAINT)
    return Picture(
        figure,
        f"Tokens choose the experts {', '.join(str(tuple(pair)) for pair in chosen)}. Sorted by expert, the "
        f"order of the choices is {order}, and start is {start}; {', '.join(told)}.",
    )


def nucleus(
    probabilities: Sequence[float] = (0.1, 0.34, 0.04, 0.22, 0.16, 0.02, 0.12), limit: float = 0.7
) -> Picture:
    """Draw probabilities as they come, and sorted, with the sums before each."""
    figure, ax = new_sheet(26, 9.0)
    falling = sorted(probabilities, reverse=True)
    before = [sum(falling[:n]) for n in range(len(falling))]
    kept = [each < limit for each in before]
    least = min(p for p, keeps in zip(falling, kept, strict=True) if keeps)
    foot, unit, width = 6.4, 13.0, 1.5
    heading = f"probabilities of the tokens 0 to {len(probabilities) - 1}"
    label(ax, 0.5, 0.6, heading, align="left", fontsize=11)
    label(ax, 13.6, 0.6, "sorted", align="left", fontsize=11)
    for n, p in enumerate(probabilities):
        color = VERMILLION if p >= least else PALE
        box(ax, 0.5 + width * n, foot - unit * p, 1.3, unit * p, color=color)
        label(ax, 0.5 + width * n + 0.65, foot - unit * p - 0.4, f"{p:.2f}", fontsize=8)
        label(ax, 0.5 + width * n + 0.65, foot + 0.5, str(n), fontsize=9, color=FAINT)
    for n, p in enumerate(falling):
        x = 13.6 + width * n
        box(ax, x, foot - unit * p, 1.3, unit * p, color=VERMILLION if kept[n] else PALE)
        label(ax, x + 0.65, foot - unit * p - 0.4, f"{p:.2f}", fontsize=8)
        token = sorted(range(len(probabilities)), key=lambda t: -probabilities[t])[n]
        label(ax, x + 0.65, foot + 0.5, str(token), fontsize=9, color=FAINT)
        label(ax, x + 0.65, foot + 1.2, f"{before[n]:.2f}", fontsize=9)
    label(
        ax,
        13.6,
        foot + 1.9,
        f"sum before it: below P = {limit:g} in {sum(kept)} of them",
        align="left",
        fontsize=9,
        color=FAINT,
    )
    legend(ax, 8.1, (0.5, VERMILLION, "kept: in the nucleus"), (8.2, PALE, "never drawn"))
    return Picture(
        figure,
        f"Tokens with the probabilities {', '.join(f'{p:g}' for p in probabilities)}. Sorted, the sums "
        f"before each are {', '.join(f'{b:.2f}' for b in before)}. With P = {limit:g}, {sum(kept)} are kept: "
        f"all that have at least {least:g}.",
    )


PATHS = {
    "floor": ("reading the bytes alone", PALE),
    "kernels, CUDA graph": ("the course's kernels, replayed", ORANGE),
    "kernels, eager": ("the course's kernels, launched", ORANGE),
    "lmdeploy, CUDA graph": ("with lmdeploy's kernels, replayed", YELLOW),
    "torch, compiled, CUDA graph": ("torch, compiled and replayed", SKY),
    "torch, CUDA graph": ("torch, replayed", SKY),
    "torch, eager": ("torch, launched", SKY),
}
"""Names of the paths of bench "decoding", and colors: one for whose kernels they are."""
Rows = Sequence[Mapping[str, Any]]


def decoding(rows: Rows | None = None) -> dict[int, dict[str, float]]:
    """Return tokens per second by batch and path, of the recorded bench "decoding"."""
    found: dict[int, dict[str, float]] = {}
    for row in recorded.rows("decoding") if rows is None else rows:
        batch = int(row["case"].split(",")[0].removeprefix("batch "))
        found.setdefault(batch, {})[row["path"]] = 1e6 * batch / row["us"]
    return found


def speeds(rows: Rows | None = None) -> Picture:
    """Draw the recorded tokens per second of a model of real size, and of reading alone, for each batch."""
    found, about = decoding(rows), recorded.about("decoding")
    figure = new_figure(8.6, 3.4)
    told, bars = [], [name for name in PATHS if name != "floor"]
    for ax, (batch, rates) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        for place, name in enumerate(bars):
            ax.barh(place, rates[name], 0.8, color=PATHS[name][1], edgecolor=INK, linewidth=0.5)
            inside = rates[name] > max(rates.values()) / 6
            label(ax, rates[name], place, f" {rates[name]:.0f} ", align="right" if inside else "left")
        ax.axvline(rates["floor"], color=INK, linewidth=1.5, linestyle="--", zorder=0)
        ax.set_yticks(range(len(bars)), [""] * len(bars) if told else [PATHS[name][0] for name in bars])
        ax.set(ylim=(len(bars) - 0.4, -0.6), xlim=(0, 1.05 * rates["floor"]), xticks=[])
        title = f"{plural(batch, 'text')} (dashed: {rates['floor']:.0f})"
        ax.set_title(title, fontsize=11, loc="left")
        ax.tick_params(labelsize=10, length=0)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        told.append(
            f"{plural(batch, 'text')}: "
            + ", ".join(f"{t} {rates[name]:.0f}" for name, (t, _) in PATHS.items())
        )
    words = (
        "dashed: reading the bytes alone\n"
        f"tokens per second of 32 layers, 4096 wide, 8 experts, 4096 keys, bfloat16\n{about}"
    )
    figure.supxlabel(words, fontsize=9, color=FAINT)
    return Picture(figure, f"Tokens per second, {about}. {'; '.join(told)}.")
