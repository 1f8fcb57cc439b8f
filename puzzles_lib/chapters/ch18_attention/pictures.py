"""Pictures for chapter 18."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from puzzles_lib.drawing.colours import (
    FAINT,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PALE,
    PALE_ORANGE,
    PALE_SKY,
    PAPER,
    PROGRAM_TINTS,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.layout import plural
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, legend, new_figure, new_sheet
from puzzles_lib.timing import recorded as bench

KEPT, AGAIN, GRADIENT = SKY, PALE_ORANGE, GREEN
WHOLE, CUT, SKIPPED = SKY, YELLOW, None
MINUS = "\N{MINUS SIGN}"
CARD = {"behind": PAPER, "pad": 0.5}  # of a number on a line


# ---- forward


def bytes_kept(T: int, D: int = 128, heads: int = 16) -> dict[str, int]:
    """Return the bytes that attention keeps for one sequence: the weights p, q, k, v, o, and lse."""
    return {"p": 2 * heads * T * T, "q, k, v, o": 4 * 2 * heads * T * D, "lse": 4 * heads * T}


def kept(lengths: Sequence[int] = (1024, 2048, 4096, 8192), D: int = 128, heads: int = 16) -> Picture:
    """Draw what the backward pass keeps: the weights, or what they can be recomputed from."""
    figure = new_figure(7.8, 3.6)
    ax = figure.subplots()
    told = []
    for place, T in enumerate(lengths):
        found = bytes_kept(T, D, heads)
        large, small = (found["p"] / 2**20, (found["q, k, v, o"] + found["lse"]) / 2**20)
        names = ("the weights p", "q, k, v, o and lse")
        for at, value, color, name in zip(
            (-0.2, 0.2), (large, small), (VERMILLION, GREEN), names, strict=True
        ):
            ax.bar(place + at, value, 0.38, color=color, edgecolor=INK, linewidth=0.5, label=name)
            label(ax, place + at, value + 40, f"{value:,.0f}", align="baseline", fontsize=10)
        told.append(f"T = {T}: {large:,.0f} and {small:,.0f}")
    ax.set_ylim(0, 2300)
    ax.set_xticks(range(len(lengths)), [f"T = {T}" for T in lengths], fontsize=10)
    ax.set_ylabel("MB (2\N{SUPERSCRIPT TWO}\N{SUPERSCRIPT ZERO} bytes)", fontsize=10)
    ax.tick_params(labelsize=10)
    ax.set_title(f"one sequence, {heads} heads, D = {D}", fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    _legend(figure, ax, columns=2)
    return Picture(
        figure,
        f"Megabytes kept for the backward pass of one sequence with {heads} heads of D = {D} in bfloat16. "
        f"First number: all weights p. Second number: q, k, v, o and lse. {'; '.join(told)}.",
    )


def precision() -> Picture:
    """Draw the dtypes along the way through puzzle 35."""
    figure, ax = new_sheet(25, 7.6)
    y, height = 2.2, 1.5
    steps = (
        (0.5, 3.0, "q, k", PALE_SKY),
        (4.6, 3.4, "s = q · k / √D", PALE_ORANGE),
        (9.1, 4.3, "p = exp(s − max)", PALE_ORANGE),
        (14.5, 3.0, "p", PALE_SKY),
        (18.6, 3.2, "acc += p · v", PALE_ORANGE),
        (22.9, 1.7, "o", PALE_SKY),
    )
    words = ("", "tl.dot", "", ".to(bfloat16)", "tl.dot", "stored")
    for number, (x, width, text, color) in enumerate(steps):
        box(ax, x, y, width, height, text, color=color, fontsize=11)
        if number:
            before = steps[number - 1][0] + steps[number - 1][1]
            arrow(ax, (before + 0.05, y + height / 2), (x - 0.05, y + height / 2))
            label(ax, (before + x) / 2, y - 0.35, words[number], fontsize=9, color=FAINT)
    total = box(ax, 9.1, 5.0, 4.3, 1.3, "sum of p, max", color=PALE_ORANGE, fontsize=11)
    arrow(ax, (11.25, y + height + 0.05), (11.25, total.y - 0.05))
    arrow(ax, (total.right + 0.05, 5.65), (23.4, y + height + 0.1), bend=0.25)
    label(ax, 17.6, 6.9, "divide once, and compute lse", fontsize=9, color=FAINT)
    legend(ax, 0.3, (0.5, PALE_SKY, "bfloat16: 8 binary digits"), (9.1, PALE_ORANGE, "float32: 24"))
    return Picture(
        figure,
        "Dtypes along the way through puzzle 35. q and k are bfloat16. tl.dot returns the scores s in "
        "float32. p = exp(s - max), its sum and the maximum stay float32. p is rounded to bfloat16 for the "
        "second tl.dot, whose sum acc is float32. o is rounded once, when it's stored.",
    )


def tile_kinds(T: int, block_q: int, block_k: int, W: int | None, causal: bool = True) -> list[list[str]]:
    """Return for each tile of scores: "whole", "cut" (needs a mask) or "skipped"."""

    def kind(q: int, k: int) -> str:
        pairs = [
            (i, j)
            for i in range(q, min(q + block_q, T))
            for j in range(k, k + block_k)
        ]  # fmt: skip
        seen = [j < T and (not causal or j <= i) and (W is None or i - W < j) for i, j in pairs]
        return "whole" if all(seen) else "cut" if any(seen) else "skipped"

    return [[kind(q, k) for k in range(0, T, block_k)] for q in range(0, T, block_q)]


def tiles(T: int = 46, block_q: int = 8, block_k: int = 4, W: int = 14) -> Picture:
    """Draw the tiles of scores that a kernel visits: all keys, causal, and with a window."""
    forms = (("all keys", None, False), ("causal", None, True), (f"causal, window of {W}", W, True))
    figure, ax = new_sheet(27, 10.5)
    size, told = 0.62, []
    for number, (name, window, causal) in enumerate(forms):
        kinds = tile_kinds(T, block_q, block_k, window, causal)
        colors = [[{"whole": WHOLE, "cut": CUT, "skipped": SKIPPED}[kind] for kind in row] for row in kinds]
        left = 1.6 + 8.7 * number
        cells(
            ax,
            [[""] * len(row) for row in kinds],
            x=left,
            y=1.6,
            width=size,
            height=size * 1.6,
            colors=colors,
        )
        ends = f"; T = {T} ends in a tile" if not causal else ""
        label(ax, left, 0.9, f"{name}{ends}", align="left", fontsize=11)
        flat = [kind for row in kinds for kind in row]
        counts = {kind: flat.count(kind) for kind in ("whole", "cut", "skipped")}
        label(ax, left - 0.5, 1.6 + len(kinds) * size * 0.8, "queries", rotation=90, color=FAINT)
        label(ax, left + len(kinds[0]) * size / 2, 1.6 + len(kinds) * size * 1.6 + 0.5, "keys", color=FAINT)
        label(
            ax, left, 1.6 + len(kinds) * size * 1.6 + 1.3,
            f"{counts['whole'] + counts['cut']} of {len(flat)} visited", align="left", color=FAINT,
        )  # fmt: skip
        told.append(f"{name}: {counts['whole']} whole, {counts['cut']} cut, {counts['skipped']} not visited")
    marks = (
        (1.6, WHOLE, "whole: needs no mask"),
        (8.6, CUT, "cut: needs a mask"),
        (15.4, SKIPPED, "not visited"),
    )
    legend(ax, 9.6, *marks)
    return Picture(
        figure,
        f"Tiles of {block_q} queries and {block_k} keys of T = {T} rows, queries down, keys across. "
        f"{'; '.join(told)}. A tile in which T ends is cut.",
    )


def window(start: int = 12, block_q: int = 4, block_k: int = 4, W: int = 6, T: int = 20) -> Picture:
    """Draw one program of puzzle 35: the blocks of keys it visits, and the scores its mask hides."""
    begin, end = max(start - W + 1, 0) // block_k * block_k, start + block_q
    figure, ax = new_sheet(27, 8.0)
    left, top, size, gap = 4.0, 1.9, 1.0, 0.4
    for number, first in enumerate(range(0, T, block_k)):
        x = left + number * (block_k * size + gap)
        keys, visited = range(first, first + block_k), begin <= first < end
        seen = [[i - W < j <= i for j in keys] for i in range(start, start + block_q)]
        colors = [[(SKY if see else None) if visited else PALE for see in row] for row in seen]
        hatch = [[".." if visited and not see else None for see in row] for row in seen]
        numbers = [[""] * block_k] * block_q
        cells(ax, numbers, x=x, y=top, width=size, height=size, colors=colors, hatch=hatch, index=list(keys))
        middle, below = x + block_k * size / 2, top + block_q * size + 0.5
        label(ax, middle, below, "visited" if visited else "not visited", color=INK if visited else FAINT)
    for row in range(block_q):
        label(ax, left - 0.4, top + (row + 0.5) * size, f"query {start + row}", align="right")
    label(ax, left - 0.4, top - 0.45, "key", align="right", color=FAINT)
    box(ax, 8.0, 7.1, 0.6, 0.5, color=None, hatch="..")
    label(ax, 8.8, 7.35, "hidden by the mask", align="left")
    legend(ax, 7.1, (4.0, SKY, "seen"), (15.2, PALE, "not loaded"))
    sees = [f"query {i} sees keys {max(i - W + 1, 0)} to {i}" for i in (start, start + block_q - 1)]
    return Picture(
        figure,
        f"The program of queries {start} to {start + block_q - 1}, W = {W}, blocks of {block_k} keys: "
        f"{', '.join(sees)}. It visits keys {begin} to {end - 1}; a mask hides the keys that a query "
        f"doesn't see.",
    )


def heads(H: int = 8, groups: int = 2) -> Picture:
    """Draw which head of k and v each head of q uses."""
    figure, ax = new_sheet(25, 6.8)
    each, width = H // groups, 2.4
    left = 3.6
    for h in range(H):
        box(ax, left + h * (width + 0.2), 0.8, width, 1.1, f"q {h}", color=PROGRAM_TINTS[h // each])
    label(ax, left - 0.4, 1.35, "H = 8", align="right")
    for g in range(groups):
        middle = left + (g * each + (each - 1) / 2) * (width + 0.2)
        kv = box(ax, middle, 4.2, width, 1.1, f"k, v {g}", color=PROGRAM_TINTS[g])
        for h in range(g * each, (g + 1) * each):
            arrow(ax, (left + h * (width + 0.2) + width / 2, 2.0), (kv.x + width / 2, 4.1), color=LINE)
    label(ax, left - 0.4, 4.75, f"H_KV = {groups}", align="right")
    label(ax, left, 6.2, "neighbors share a head of k and v", align="left")
    return Picture(
        figure,
        f"Grouped heads: q has {H} heads, k and v have {groups}. Heads 0 to {each - 1} of q use head 0 of k "
        f"and v, and heads {each} to {H - 1} use head 1.",
    )


def packed(lengths: Sequence[int] = (10, 0, 1, 37), block: int = 16) -> Picture:
    """Draw packed texts, where they begin, and which programs have something to do."""
    figure, ax = new_sheet(26, 8.6)
    starts = [sum(lengths[:b]) for b in range(len(lengths) + 1)]
    left, unit = 3.0, 22.0 / starts[-1]
    label(ax, left - 0.4, 1.6, "rows of q", align="right")
    for b, length in enumerate(lengths):
        if length:
            text = f"text {b}" if length > 5 else ""
            box(ax, left + starts[b] * unit, 1.1, length * unit, 1.0, text, color=PROGRAM_TINTS[b])
        if length <= 5:  # too narrow for a text inside
            x = left + starts[b] * unit
            ax.plot([x, x], [0.7, 2.3], color=INK, linewidth=1.6)
            side, shift = ("right", -0.2) if not length else ("left", 0.2)
            told = f"text {b}: {plural(length, 'row')}" if length else f"text {b}: no rows"
            label(ax, x + shift, 0.55, told, align=side, fontsize=9.5)
    label(ax, left - 0.4, 3.0, "cu_q", align="right")
    strip = cells(ax, starts, x=left, y=2.6, width=1.4, colors=PALE, height=0.9)
    label(ax, strip.right + 0.4, 3.05, "text b has rows cu_q[b] up to cu_q[b + 1]", align="left", color=FAINT)
    most = -(-max(lengths) // block)
    label(ax, left, 4.5, f"the grid has {most} blocks of {block} queries per text, enough for the longest",
        align="left")  # fmt: skip
    busy = 0
    for b, length in enumerate(lengths):
        label(ax, left - 0.4, 5.45 + 0.85 * b, f"b = {b}", align="right", fontsize=9)
        for tile in range(most):
            works = tile * block < length
            busy += works
            text = plural(min(block, length - tile * block), "row") if works else "nothing"
            look = {
                "color": PROGRAM_TINTS[b] if works else None,
                "hatch": None if works else "..",
                "fontsize": 9,
            }
            box(ax, left + 4.4 * tile, 5.1 + 0.85 * b, 4.2, 0.7, text, **look)
    return Picture(
        figure,
        f"Texts of {', '.join(map(str, lengths))} rows are stored one after another. cu_q is {starts}: "
        f"text b "
        f"has rows cu_q[b] up to cu_q[b + 1]. The grid has {most} blocks of {block} queries for every text, "
        f"so {most * len(lengths)} programs per head; {busy} have something to do.",
    )


def aligned(queries: int = 3, keys: int = 7, both: bool = False) -> Picture:
    """Draw which keys each query sees if there are more keys: the ends line up, or also the starts."""
    figure, ax = new_sheet(25 if both else 12.4, 6.4)
    told = []
    rules = ((3.0, "the ends line up (puzzle 36)", keys - queries), (15.6, "the starts line up", 0))
    for left, name, older in rules if both else rules[:1]:
        colors = [[SKY if j <= i + older else None for j in range(keys)] for i in range(queries)]
        hatch = [[None if color else ".." for color in row] for row in colors]
        numbers = [[""] * keys] * queries
        grid = cells(ax, numbers, x=left, y=2.1, colors=colors, hatch=hatch, index=True)
        label(ax, left, 0.6, name, align="left", fontsize=11)
        for i in range(queries):
            label(ax, left - 0.4, 2.6 + i, f"query {i}", align="right")
        label(ax, left + keys / 2, grid.bottom + 0.5, "keys; blue: seen, dotted: hidden", color=FAINT)
        told.append(f"{name}: " + ", ".join(str(row.count(SKY)) for row in colors))
    return Picture(figure, f"How many of {keys} keys each of {queries} queries sees. {'. '.join(told)}.")


# ---- backward


def derivation(step: int = 3) -> Picture:
    """Draw the backward pass: 1 through o = p v, 2 also through s = q kᵀ, 3 also through the softmax."""
    figure, ax = new_sheet(27, 15.4)

    def matrix(x: float, y: float, text: str, color: object, square: bool = False) -> Any:
        return box(ax, x, y, 2.7 if square else 1.7, 1.9, text, color=color, fontsize=12)

    label(ax, 0.4, 0.6, "forward", align="left", fontsize=12, weight="bold")
    q = matrix(1.0, 1.3, "q", KEPT)
    k = matrix(3.4, 1.3, "k", KEPT)
    s = matrix(8.0, 1.3, "s", AGAIN, square=True)
    p = matrix(13.4, 1.3, "p", AGAIN, square=True)
    v, o = matrix(16.8, 1.3, "v", KEPT), matrix(24.2, 1.3, "o", KEPT)
    arrow(ax, (k.right + 0.05, 2.25), (s.x - 0.05, 2.25))
    arrow(ax, (q.x + 0.9, q.bottom + 0.05), (s.x + 0.3, s.bottom + 0.05), bend=0.25)
    label(ax, 6.6, 1.7, "q kᵀ / √D", fontsize=9.5)
    arrow(ax, (s.right + 0.05, 2.25), (p.x - 0.05, 2.25))
    label(ax, 12.05, 1.7, "exp(s − lse)", fontsize=9.5)
    arrow(ax, (v.right + 0.05, 2.25), (o.x - 0.05, 2.25))
    arrow(ax, (p.right - 0.3, p.bottom + 0.05), (o.x + 0.3, o.bottom + 0.05), bend=0.12)
    label(ax, 21.3, 1.7, "p v", fontsize=9.5)
    lse = box(ax, 10.4, 4.1, 3.2, 0.9, "lse [T]", color=KEPT, fontsize=11)
    arrow(ax, (12.0, lse.y - 0.05), (12.0, 2.5))
    label(
        ax, 0.4, 6.1, "backward: the same way back, starting at do", align="left", fontsize=12, weight="bold"
    )
    label(ax, 26.6, 14.85, "arrows: the gradient's way", align="right", fontsize=9.5, color=FAINT)
    do = matrix(24.2, 6.9, "do", PALE)
    dp = matrix(18.0, 6.9, "dp", AGAIN, square=True)
    arrow(ax, (do.x - 0.05, 7.85), (dp.right + 0.05, 7.85))
    label(ax, 22.45, 7.3, "do vᵀ", fontsize=9.5)
    dv = matrix(20.6, 10.7, "dv", GRADIENT)
    arrow(ax, (24.6, do.bottom + 0.05), (dv.right + 0.05, 11.0), bend=-0.1)
    label(ax, 24.6, 10.5, "pᵀ do", align="left", fontsize=9.5)
    told = ["dp = do vᵀ and dv = pᵀ do, a sum over queries"]
    if step > 1:
        ds = matrix(11.0, 6.9, "ds", AGAIN, square=True)
        arrow(ax, (dp.x - 0.05, 7.85), (ds.right + 0.05, 7.85))
        dq = matrix(1.6, 10.7, "dq", GRADIENT)
        dk = matrix(8.6, 10.7, "dk", GRADIENT)
        arrow(ax, (ds.x - 0.05, 8.3), (dq.right + 0.1, 11.0), bend=0.12)
        label(ax, 5.3, 9.0, "ds k / √D", fontsize=9.5)
        arrow(ax, (ds.x + 0.9, ds.bottom + 0.05), (dk.x + 1.1, dk.y - 0.05))
        label(ax, 11.3, 9.8, "dsᵀ q / √D", align="left", fontsize=9.5)
        told.append("from ds, dq = ds k / √D, a sum over keys, and dk = dsᵀ q / √D, a sum over queries")
    if step == 2:
        label(ax, 15.85, 7.2, "?", fontsize=14)
        told.append("the step from dp to ds is still missing")
    if step == 3:
        label(ax, 15.85, 7.3, "p ∘ (dp − delta)", fontsize=9.5)
        delta = box(ax, 18.4, 4.6, 7.0, 0.9, "delta = do · o, row by row  [T]", color=KEPT, fontsize=10)
        arrow(ax, (delta.x - 0.05, 5.1), (16.2, 6.95), bend=0.15)
        told.append("ds = p ∘ (dp − delta), where delta is the sum over a row of do times o")
        told.append("s, p, dp and ds are T × T: recomputed one tile at a time, and never stored")
    kept, wanted = "kept by forward: rows of D, or one number per row", "to compute: dq, dk and dv"
    if step == 3:
        kept, wanted = kept.replace("by forward", "or computed once"), f"{wanted}, sums over tiles"
    legend(ax, 13.6, (0.6, KEPT, kept), (14.4, AGAIN, "T × T: one tile at a time, never stored"))
    legend(ax, 14.6, (0.6, GRADIENT, wanted), (14.4, PALE, "given"))
    return Picture(
        figure,
        "The backward pass of attention. Forward: s = q kᵀ / √D, p = exp(s − lse), o = p v. It keeps q, "
        "k, v, "
        f"o and lse, one number per row. Backward: {'; '.join(told)}.",
    )


def row(
    p: Sequence[float] = (0.5, 0.25, 0.25), v: Sequence[float] = (4.0, 0.0, 8.0), do: float = 1.0
) -> Picture:
    """Draw one query with three keys and D = 1: what delta is, and why it's subtracted."""
    o = sum(a * b for a, b in zip(p, v, strict=True))
    dp = [do * each for each in v]
    delta = do * o
    ds = [a * (b - delta) for a, b in zip(p, dp, strict=True)]

    def texts(values: Sequence[float]) -> list[str]:
        return [f"{value:g}".replace("-", MINUS) for value in values]

    figure, ax = new_sheet(25, 9.4)
    left, width = 6.2, 2.2
    for number, (name, values, color) in enumerate(
        (("p", p, AGAIN), ("v", v, KEPT), ("dp = do · v", dp, AGAIN),
         ("dp − delta", [d - delta for d in dp], AGAIN),
         ("ds = p (dp − delta)", ds, AGAIN))
    ):  # fmt: skip
        cells(ax, texts(values), x=left, y=0.8 + 1.6 * number, width=width, colors=color, title=name)
    x = left + 3 * width + 0.8
    label(ax, x, 1.3, "sum 1, because these are weights", align="left")
    label(ax, x, 2.9, f"o = Σ p v = {o:g}", align="left")
    label(ax, x, 4.5, f"do = {do:g}, so dp is the same as v here", align="left")
    label(ax, x, 6.1, f"delta = Σ p dp = do · o = {delta:g}", align="left")
    label(ax, x, 7.7, f"sum {sum(ds):g}: one weight gains what others lose", align="left")
    return Picture(
        figure,
        f"One query, three keys, D = 1. p = {list(p)}, v = {list(v)}, so o = {o:g}. With do = {do:g}: "
        f"dp = {dp}; delta = the sum of p dp = do o = {delta:g}; dp - delta = {[d - delta for d in dp]}; "
        f"ds = {ds}, which adds up to {sum(ds):g}.",
    )


def walks(blocks: int = 8, one: int = 5, other: int = 2) -> Picture:
    """Draw the tiles that a program of dq walks, and those of a program of dk and dv."""
    figure, ax = new_sheet(25, 11.0)
    size = 0.95
    for left, name, mine in (
        (2.0, f"dq: program {one} owns queries", lambda q, k: q == one),
        (14.4, f"dk, dv: program {other} owns keys", lambda q, k: k == other),
    ):
        colors = [
            [None if k > q else (ORANGE if mine(q, k) else PALE) for k in range(blocks)]
            for q in range(blocks)
        ]
        grid = cells(
            ax, [[""] * blocks for _ in range(blocks)], x=left, y=1.6, width=size, height=size, colors=colors
        )
        label(ax, left, 0.8, name, align="left", fontsize=11)
        label(ax, left - 0.3, 1.6 + blocks * size / 2, "queries", align="right", rotation=90, color=FAINT)
        label(ax, left + blocks * size / 2, grid.bottom + 0.4, "keys", color=FAINT)
    x, y = 2.0, 1.6 + (one + 0.5) * size
    arrow(ax, (x + 0.2, y), (x + (one + 0.9) * size, y), color=INK)
    x, y = 14.4 + (other + 0.5) * size, 1.6
    arrow(ax, (x, y + (other + 0.15) * size), (x, y + blocks * size - 0.1), color=INK)
    label(ax, 2.0, 10.4, f"{one + 1} tiles: from the first key to its own", align="left")
    label(ax, 14.4, 10.4, f"{blocks - other} tiles: from its own to the last", align="left")
    return Picture(
        figure,
        f"{blocks} by {blocks} tiles of scores with a causal mask: only tiles on and below the diagonal "
        f"count. "
        f"A program of dq owns a block of queries and walks along a row: program {one} walks {one + 1} "
        f"tiles. A program of dk and dv owns a block of keys and walks down a column from the diagonal: "
        f"program {other} walks {blocks - other} tiles.",
    )


def products() -> Picture:
    """Draw the products of the forward pass and of the two kernels of the backward pass."""
    figure, ax = new_sheet(25, 6.6)
    rows_ = (
        ("forward", ("s = q kᵀ", "o = p v"), ()),
        ("backward: dq", ("s = q kᵀ", "dp = do vᵀ", "dq = ds k"), (0, 1)),
        ("backward: dk, dv", ("s = q kᵀ", "dp = do vᵀ", "dk = dsᵀ q", "dv = pᵀ do"), (0, 1)),
    )
    for number, (name, made, twice) in enumerate(rows_):
        y = 0.6 + 1.7 * number
        label(ax, 6.2, y + 0.55, name, align="right", fontsize=11)
        for place, text in enumerate(made):
            box(ax, 6.6 + 4.5 * place, y, 4.3, 1.1, text, color=ORANGE if place in twice else SKY)
    legend(ax, 5.7, (6.6, ORANGE, "computed by both kernels of backward"))
    told = "; ".join(f"{name}: {', '.join(made)}" for name, made, _ in rows_)
    return Picture(figure, f"Products. {told}. Both kernels of backward compute s and dp.")


# ---- production


def turns() -> Picture:
    """Draw the products and exponentials of a loop: one program, two that alternate, and two in step."""
    figure, ax = new_sheet(25, 11.4)

    def lane(y: float, name: str, steps: Sequence[tuple[float, float, str]]) -> None:
        label(ax, 4.6, y + 0.45, name, align="right", fontsize=9.5)
        ax.plot([4.8, 24.4], [y + 0.45] * 2, color=LINE, linewidth=0.8, zorder=0)
        for start, length, text in steps:
            color = SKY if text.startswith("dots") else ORANGE
            box(ax, 4.8 + start, y, length, 0.9, text, color=color, fontsize=9)

    def alone(start: float) -> list[tuple[float, float, str]]:
        return [(start + 4 * n + 2 * half, 2, ("dots", "exp")[half]) for n in range(4) for half in (0, 1)]

    slow = [
        (8 * n + 4 * half, 4, ("dots, half speed", "exp, half speed")[half])
        for n in (0, 1)
        for half in (0, 1)
    ]
    title = {"align": "left", "fontsize": 11}
    label(ax, 0.4, 0.5, "one program alone: 4 iterations take the sum, dots + exp, 4 times", **title)
    lane(1.1, "program 0", alone(0.0))
    label(ax, 0.4, 3.1, "two programs that alternate: 8 iterations in nearly the same time", **title)
    lane(3.7, "program 0", alone(0.0))
    lane(4.8, "program 1", alone(2.0))
    label(ax, 0.4, 6.8, "two programs in step share each unit: only 4 iterations, the sum again", **title)
    lane(7.4, "program 0", slow)
    lane(8.5, "program 1", slow)
    told = "dots: tensor cores, 4096 operations per cycle. exp: 16 per cycle. Here D = 64."
    label(ax, 0.4, 10.8, told, align="left")
    return Picture(
        figure,
        "A loop of products (dots, on tensor cores) and exponentials (exp) over time. One program alone: "
        "each unit waits while the other works, so 4 iterations take the sum of both times. Two programs "
        "that alternate on one multiprocessor: one runs its dots while the other runs its exp, so 8 "
        "iterations take nearly the same time. Two programs in step: both run dots at half speed, then both "
        "run exp at half speed, so together they do only 4 iterations in that time.",
    )


PRODUCTS, EXPONENTIALS = "as many products, cuBLAS", "as many exp2, alone"
LOOKS = {
    PRODUCTS: (PALE_SKY, "products alone"),
    EXPONENTIALS: (PALE_ORANGE, "exp2 alone"),
    "cuDNN": (SKY, "cuDNN"),
    "ours": (GREEN, "the library's kernels"),
    "puzzles": (YELLOW, "the course's kernels"),
    "flash": (ORANGE, "flash, from torch"),
}
PARTS = {"forward": ("puzzle 35",), "backward": ("puzzle 37", "puzzle 38")}
Rows = Sequence[Mapping[str, Any]]


def recorded() -> Rows:
    """Return the rows of bench "attention"."""
    return bench.rows("attention")


def times(rows: Rows, case: str) -> dict[str, dict[str, float]]:
    """Return microseconds by part and path. rows: recorded rows of bench "attention"."""
    found: dict[str, dict[str, float]] = {}
    for part, puzzles in PARTS.items():
        some = [row for row in rows if (row["case"], row["path"]) == (case, part)]
        found[part] = {row["baseline"]: row["baseline_us"] for row in some} | {"ours": some[0]["us"]}
        mine = [row["us"] for row in rows if row["case"] == case and row["path"] in puzzles]
        if mine:
            found[part]["puzzles"] = sum(mine)
    return found


def floors(rows: Rows, D: int = 128, T: int = 4096) -> Picture:
    """Draw the times of forward and backward: products and exponentials alone, torch, library and puzzles."""
    about = bench.about("attention")
    case = f"D = {D}, causal, T = {T}"
    figure = new_figure(8.4, 4.4)
    told = []
    names = [name for name in LOOKS if name not in (PRODUCTS, EXPONENTIALS)]
    for ax, (part, found) in zip(figure.subplots(1, 2), times(rows, case).items(), strict=True):
        first, second = found[PRODUCTS], found[EXPONENTIALS]
        look, gap = {"edgecolor": INK, "linewidth": 0.5}, max(found.values()) / 50
        ax.barh(0, first, 0.8, color=LOOKS[PRODUCTS][0], **look)
        ax.barh(0, second, 0.8, left=first, color=LOOKS[EXPONENTIALS][0], **look)
        label(ax, first / 2, 0, f"dots {first:.0f}", fontsize=10)
        label(ax, first + second / 2, 0, f"{second:.0f}", fontsize=9.5)
        label(ax, first + second, 0, f" {first + second:.0f}", align="left", fontsize=10)
        for place, name in enumerate(names, 1):
            ax.barh(place, found[name], 0.8, color=LOOKS[name][0], **look)
            label(ax, found[name] + gap, place, f"{found[name]:.0f}", align="left", fontsize=10, **CARD)
        for x, style in ((max(first, second), "--"), (first + second, ":")):
            ax.plot([x, x], [-0.6, len(names) + 0.6], style, color=INK, linewidth=1.2, zorder=3)
        texts = ["dots, then exp2", *(LOOKS[name][1] for name in names)]
        ax.set_yticks(range(len(texts)), texts if not told else [])
        ax.set(ylim=(len(names) + 0.6, -0.6), xlim=(0, 1.15 * max(found[name] for name in LOOKS)), xticks=[])
        ax.set_title(f"{part}, µs", fontsize=11, loc="left")
        ax.tick_params(labelsize=10, length=0)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        told.append(f"{part}: " + ", ".join(f"{LOOKS[name][1]} {found[name]:.0f}" for name in LOOKS))
    figure.suptitle(
        f"{case}, {16384 // T} sequences, {2048 // D} heads. Each panel has its own scale. Dashed: the "
        f"longer of dots and exp2. Dotted: their sum.\n{about}",
        fontsize=9,
        color=FAINT,
    )
    return Picture(
        figure,
        f"Microseconds, {case}, {about}. {'; '.join(told)}. A dashed line marks the longer of products and "
        "exponentials, a dotted one their sum.",
    )


def lengths(D: int = 128, causal: bool = True) -> Picture:
    """Draw TFLOP/s over T for this library, cuDNN and flash-attention, forward and backward."""
    rows, about = recorded(), bench.about("attention")
    figure = new_figure(8.4, 3.9)
    axes = figure.subplots(1, 2, sharey=True)
    told = []
    mask = "causal" if causal else "full"
    marks = {"ours": ("o-", GREEN), "cuDNN": ("s--", SKY), "flash": ("^:", ORANGE)}
    for ax, part, factor in zip(axes, PARTS, (4, 10), strict=True):
        sizes, rates = [], {name: [] for name in marks}
        for T, found in _by_length(rows, D, mask, part):
            pairs = (T + 1) / 2 if causal else T
            operations = factor * 16384 * pairs * 2048
            sizes.append(T)
            for name in marks:
                rates[name].append(operations / found[name] / 1e6)
        for name, (mark, color) in marks.items():
            ax.plot(range(len(sizes)), rates[name], mark, color=color, label=LOOKS[name][1])
            told.append(f"{part}, {LOOKS[name][1]}: " + ", ".join(f"{rate:.0f}" for rate in rates[name]))
        ax.set_xticks(range(len(sizes)), [str(T) for T in sizes])
        ax.set_xlabel("T", fontsize=10)
        ax.set_title(part, fontsize=11)
        ax.set_ylim(0, None)
        ax.tick_params(labelsize=9)
        ax.grid(axis="y", color=PALE)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("TFLOP/s", fontsize=10)
    _legend(figure, axes[0], columns=3)
    figure.suptitle(f"D = {D}, {mask}; {about}", fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"TFLOP/s for T = {', '.join(map(str, sizes))}, D = {D}, {mask}, {about}. {'; '.join(told)}.",
    )


def _by_length(rows: Rows, D: int, mask: str, part: str) -> Iterator[tuple[int, dict[str, float]]]:
    for T in (512, 1024, 2048, 4096, 8192, 16384):
        some = [row for row in rows if (row["case"], row["path"]) == (f"D = {D}, {mask}, T = {T}", part)]
        yield T, {row["baseline"]: row["baseline_us"] for row in some} | {"ours": some[0]["us"]}


def _legend(figure: Figure, ax: Axes, columns: int) -> None:
    shown = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(shown.values(), shown.keys(), fontsize=9, frameon=False,
        loc="outside lower center", ncols=columns)  # fmt: skip


__all__ = [
    "aligned",
    "bytes_kept",
    "derivation",
    "floors",
    "heads",
    "kept",
    "lengths",
    "packed",
    "precision",
    "products",
    "row",
    "tile_kinds",
    "tiles",
    "times",
    "turns",
    "walks",
    "window",
]
