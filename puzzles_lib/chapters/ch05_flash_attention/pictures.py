"""Pictures of chapter 05: attention to drag, a strip of scores, padded keys, dots, the causal mask."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION
from puzzles_lib.drawing.colours import (
    FAINT,
    GREEN,
    HEAT,
    INK,
    MIST,
    ORANGE,
    PALE,
    SILVER,
    SKY,
    VERMILLION,
    YELLOW,
    text_color,
)
from puzzles_lib.drawing.live import ON_FILL, Live
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.speaking.looking import Look, look


def strip(T: int = 12, BLOCK_Q: int = 4, BLOCK_K: int = 4, program: int = 1) -> Picture:
    """Draw the T x T scores, and the part of them that one program computes, one block of keys at a time."""
    figure, ax = new_sheet(T + 9.2, T + 6.0)
    left, top = 3.4, 3.9
    rows = range(program * BLOCK_Q, (program + 1) * BLOCK_Q)
    iterations = [(ORANGE, YELLOW, GREEN)[j // BLOCK_K % 3] for j in range(T)]
    cells(ax, [""] * T, x=left, y=0.9, title="k", index=True, colors=iterations)
    cells(ax, [""] * T, x=left, y=2.1, title="v", colors=iterations)
    fills = [iterations if i in rows else [None] * T for i in range(T)]
    cells(ax, [[""] * T] * T, x=left, y=top, colors=fills, edge=MIST)
    mine = [SKY if i in rows else PALE for i in range(T)]
    cells(ax, [[""]] * T, x=1.6, y=top, colors=[[c] for c in mine], row_index=True)
    cells(ax, [[""]] * T, x=left + T + 2.0, y=top, colors=[[c] for c in mine])
    label(ax, 2.1, top - 0.25, "q", align="bottom", fontsize=11)
    label(ax, left + T + 2.5, top - 0.25, "z", align="bottom", fontsize=11)
    middle = top + rows[0] + BLOCK_Q / 2
    for step in range(math.ceil(T / BLOCK_K)):
        x = left + step * BLOCK_K
        wide = min(BLOCK_K, T - step * BLOCK_K)
        for y in (0.9, 2.1):  # the keys and values of this iteration
            box(ax, x, y, wide, 1.0, color=None, edge=INK, linewidth=1.6)
        color = iterations[step * BLOCK_K]
        box(
            ax, x, top + rows[0], wide, BLOCK_Q, color=color, edge=INK, linewidth=1.6
        )  # no lines across the words
        label(ax, x + wide / 2, middle, f"iteration {step + 1}", fontsize=11, color=text_color(color))
    arrow(ax, (left + T + 0.15, middle), (left + T + 1.9, middle))
    foot = f"{T} x {T} scores, a tile at a time and never stored"
    label(ax, left + T / 2, top + T + 0.2, foot, align="top", fontsize=11, color=FAINT)
    label(ax, left + T + 3.2, middle, f"program {program}", align="left", fontsize=11)
    shades = "each iteration needs the keys and values of its color; the blank rows are other programs'"
    label(ax, left + T / 2, top + T + 1.2, shades, align="top", fontsize=11, color=FAINT)
    return Picture(
        figure,
        f"""A grid of {T} x {T} scores, a row per query and a column per key. Program {program} has the
        queries {rows[0]} to {rows[-1]} and walks its strip of the grid in {math.ceil(T / BLOCK_K)}
        iterations, with the {BLOCK_K} keys and values of the same color each. At the end it writes z for
        its queries. The grid is never stored.""",
    )


BLOCKS = ((1.0, 3.0), (4.0, 1.0))


def two_sums(
    scores: Sequence[Sequence[float]] = BLOCKS, values: Sequence[Sequence[float]] = ((10, 20), (30, 40))
) -> Picture:
    """Draw one query's walk over blocks of keys: scores, maximum, p, and the two sums, with bars."""
    wide, gap, left = 2.4, 4.4, 4.6
    figure, ax = new_sheet(left + len(scores) * (2 * wide + gap) - gap + 3.4, 19.2)
    names = (
        (1.7, "scores", ""),
        (2.9, "v", ""),
        (4.5, "new_max", ""),
        (5.7, "p", "exp(score \u2212 new_max)"),
        (8.4, "denominator", "the sum of p"),
        (13.2, "acc", "the sum of p \u00d7 v"),
    )
    for y, name, what in names:
        label(ax, left - 0.3, y + (0.3 if what else 0.5), name, align="right", fontsize=11)
        if what:
            label(ax, left - 0.3, y + 0.95, what, align="right", fontsize=10, color=FAINT)
    steps = _steps(scores, values)
    largest = [max(step.kept[which] + step.added[which] for step in steps) for which in (0, 1)]
    told = []
    for number, step in enumerate(steps):
        x = left + number * (2 * wide + gap)
        label(ax, x + wide, 1.1, f"block {number + 1}", align="baseline", fontsize=11, weight="bold")
        cells(ax, [f"{score:g}" for score in step.scores], x=x, y=1.7, width=wide, colors=PALE)
        cells(ax, [f"{value:g}" for value in step.values], x=x, y=2.9, width=wide, colors=PALE)
        box(ax, x, 4.5, 2 * wide, 1.0, f"{step.maximum:g}", color=YELLOW, edge=INK)
        cells(ax, [f"{each:.4f}" for each in step.p], x=x, y=5.7, width=wide, colors=PALE)
        terms = (
            [f"{each:.4g}" for each in step.p],
            [f"{each:.4g} \u00d7 {value:g}" for each, value in zip(step.p, step.values, strict=True)],
        )
        for y, digits, which in ((8.4, 4, 0), (13.2, 2, 1)):
            unit = 2 * wide / largest[which]
            kept, added = step.kept[which], step.added[which]
            if number:
                old = unit * step.before[which]
                box(ax, x, y - 0.6, old, 0.45, color=None, edge=INK, dashed=True)
                label(ax, x + old + 0.2, y - 0.4, "old sum", align="left", fontsize=9, color=FAINT)
                box(ax, x, y, unit * kept, color=SKY, edge=INK)
                arrow(ax, (x - gap + 0.3, y + 0.5), (x - 0.2, y + 0.5), color=INK)
                label(ax, x - gap / 2, y + 0.3, f"\u00d7 {step.factor:.4f}", align="bottom", fontsize=11)
            box(ax, x + unit * kept, y, unit * added, color=ORANGE, edge=INK)
            lines = [f"added: {' + '.join(terms[which])} = {added:.{digits}f}"]
            if number:
                lines.insert(
                    0, f"kept: {step.before[which]:.{digits}f} \u00d7 {step.factor:.4f} = {kept:.{digits}f}"
                )
            name = ("denominator", "acc")[which]
            for line, text in enumerate(lines):
                label(ax, x, y + 1.2 + 0.65 * line, text, align="left top", fontsize=10, color=FAINT)
            at = y + 1.35 + 0.65 * len(lines)
            label(ax, x, at, f"{name} = {kept + added:.{digits}f}", align="left top", weight="bold")
        if number:
            change = (
                f"factor = exp({steps[number - 1].maximum:g} \u2212 {step.maximum:g})\n= {step.factor:.4f}"
            )
            label(ax, x - gap / 2, 5.0, change, fontsize=10)
        told.append(
            f"block {number + 1} has scores {', '.join(f'{each:g}' for each in step.scores)} and values "
            f"{', '.join(f'{each:g}' for each in step.values)}: maximum {step.maximum:g}, "
            + (f"factor {step.factor:.4f}, " if number else "")
            + f"p {', '.join(f'{each:.4f}' for each in step.p)}, "
            + f"denominator {step.kept[0]:.4f} + {step.added[0]:.4f}, "
            + f"acc {step.kept[1]:.2f} + {step.added[1]:.2f}"
        )
    denominator, acc = (step.kept[which] + step.added[which] for which in (0, 1))
    for color, text, across in ((SKY, "kept of the old sum", 0.0), (ORANGE, "added", 5.2)):
        box(ax, left + across, 18.2, 0.7, 0.7, color=color, edge=INK)
        label(ax, left + across + 0.95, 18.55, text, align="left", fontsize=10)
    label(ax, left + 7.6, 18.55, "each sum has its own scale", align="left", fontsize=10, color=FAINT)
    result = f"at the end, z = acc / denominator = {acc / denominator:.2f}"
    label(ax, left, 17.4, result, align="left", fontsize=11)
    return Picture(
        figure,
        f"""One query walks {len(scores)} blocks of keys: {"; ".join(told)}. One factor rescales both sums.
        At the end, acc / denominator is {acc / denominator:.2f}.""",
    )


class _Step(NamedTuple):
    """What one block of keys does. Pairs are of the denominator and of acc.

    before: the sums before the block. kept: what is left of them. added: what the block adds.
    """

    scores: Sequence[float]
    values: Sequence[float]
    maximum: float
    factor: float
    p: list[float]
    before: tuple[float, float]
    kept: tuple[float, float]
    added: tuple[float, float]


def _steps(scores: Sequence[Sequence[float]], values: Sequence[Sequence[float]]) -> list[_Step]:
    """Return an online softmax with a weighted sum, block by block."""
    maximum, sums, steps = -1e30, (0.0, 0.0), []
    for block, passed in zip(scores, values, strict=True):
        new = max(maximum, *block)
        factor = math.exp(maximum - new)
        p = [math.exp(score - new) for score in block]
        kept = sums[0] * factor, sums[1] * factor
        added = sum(p), sum(each * value for each, value in zip(p, passed, strict=True))
        steps.append(_Step(block, passed, new, factor, p, sums, kept, added))
        maximum, sums = new, (kept[0] + added[0], kept[1] + added[1])
    return steps


def padding(q: float = 1.0, keys: Sequence[float] = (-3.0, -1.0), block: int = 4) -> Picture:
    """Draw what padded keys do to the weights: a score of 0 counts, and a score of -inf doesn't."""
    pad = block - len(keys)
    k = [*keys, *[0.0] * pad]
    zero = q * np.array(k)
    hidden = np.array([*(q * np.array(keys)), *[-np.inf] * pad])
    figure, ax = new_sheet(2.6 * block + 8.7, 5.9)

    def softmax(scores: np.ndarray) -> list[float]:
        weights = np.exp(scores - scores.max())
        return [round(float(w), 2) for w in weights / weights.sum()]

    def block_of(x: float, title: str, scores: np.ndarray, color: object) -> None:
        texts = ["\u2212inf" if np.isneginf(s) else float(s) for s in scores]
        fills = [PALE] * len(keys) + [color] * pad
        strip = cells(ax, k, x=x, y=1.6, width=1.3, colors=[PALE] * len(keys) + [None] * pad, title="k")
        label(ax, strip.x + 0.65 * block, 0.75, title, fontsize=11)
        cells(ax, texts, x=x, y=3.0, width=1.3, colors=fills, title="scores")
        cells(ax, softmax(scores), x=x, y=4.4, width=1.3, colors=fills, title="weights, rounded")

    block_of(3.2, "padding counted", zero, VERMILLION)
    block_of(3.2 + 1.3 * block + 5.0, "padding hidden", hidden, GREEN)
    return Picture(
        figure,
        f"""A query of {q:g}, keys {", ".join(f"{key:g}" for key in keys)} and {pad} padded lanes that were
        loaded as 0. On the left their scores are 0, and the weights are
        {", ".join(f"{w:g}" for w in softmax(zero))}: the padding gets most of the weight. On the right their
        scores are minus infinity, and the weights are {", ".join(f"{w:g}" for w in softmax(hidden))}.""",
    )


def dots(BLOCK_Q: int = 32, BLOCK_K: int = 64, BLOCK_D: int = 16) -> Picture:
    """Draw the two dots of an iteration: queries by keys, then weights by values."""
    figure, ax = new_sheet(21.8, 18.2)
    sizes = {"BLOCK_Q": BLOCK_Q, "BLOCK_K": BLOCK_K, "BLOCK_D": BLOCK_D}

    def product(y: float, tallest: int, title: str, summed: str, tiles: Sequence[tuple]) -> None:
        label(ax, 0.3, y, title, align="left", fontsize=11)
        middle, x = y + 1.0 + tallest / 20, 1.4
        for (rows, columns, color, name), sign in zip(tiles, ("@", "=", ""), strict=True):
            height, width = sizes[rows] / 10, sizes[columns] / 10  # all to one scale
            top = middle - height / 2
            box(ax, x, top, width, height, name, color=color, edge=INK, linewidth=1, fontsize=11)
            bold = ("bold" if axis == summed else "normal" for axis in (rows, columns))
            label(ax, x - 0.45, middle, rows, fontsize=10, rotation=90, weight=next(bold))
            label(ax, x + width / 2, middle + height / 2 + 0.5, columns, fontsize=10, weight=next(bold))
            if rows == summed:
                box(ax, x - 0.07, top, 0.14, height, color=INK, edge=INK)
            if columns == summed:
                box(ax, x, middle + height / 2 - 0.07, width, 0.14, color=INK, edge=INK)
            label(ax, x + width + 0.8, middle, sign, fontsize=14)
            x += width + 2.6
        if summed == "BLOCK_K":
            label(ax, x - 2.0, middle, "is added to the\nrescaled acc", align="left", fontsize=11)

    product(
        0.6,
        BLOCK_Q,
        "first dot: each query times each key, summed over BLOCK_D",
        "BLOCK_D",
        (
            ("BLOCK_Q", "BLOCK_D", GREEN, "q"),
            ("BLOCK_D", "BLOCK_K", ORANGE, "k.T"),
            ("BLOCK_Q", "BLOCK_K", YELLOW, "scores"),
        ),
    )
    product(
        7.2,
        BLOCK_K,
        "second dot: p = exp(scores \u2212 new_max) times the values, summed over BLOCK_K",
        "BLOCK_K",
        (
            ("BLOCK_Q", "BLOCK_K", YELLOW, "p"),
            ("BLOCK_K", "BLOCK_D", SKY, "v"),
            ("BLOCK_Q", "BLOCK_D", PALE, "p @ v"),
        ),
    )
    names = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    foot = f"{names}. Thick edges: the axis that a dot sums over"
    label(ax, 0.3, 17.4, foot, align="left", fontsize=10, color=FAINT)
    return Picture(
        figure,
        f"""Two matrix products of tiles. First q, {BLOCK_Q} x {BLOCK_D}, times the transposed keys,
        {BLOCK_D} x {BLOCK_K}, gives scores of {BLOCK_Q} x {BLOCK_K}: a sum over BLOCK_D. Then p, {BLOCK_Q} x
        {BLOCK_K}, times the values v, {BLOCK_K} x {BLOCK_D}, gives {BLOCK_Q} x {BLOCK_D}: a sum over
        BLOCK_K. The new acc is acc * factor + p @ v.""",
    )


def causal(T: int = 12, BLOCK_Q: int = 4, BLOCK_K: int = 2) -> Picture:
    """Draw which tiles of scores a causal kernel needs in full, in part, and not at all."""
    figure, ax = new_sheet(T + 10.6, T + 2.2)
    left, top = 2.2, 1.9
    allowed = np.tril(np.ones((T, T), bool))
    kinds = {"full": 0, "diagonal": 0, "skipped": 0}
    fills = [[None] * T for _ in range(T)]
    hatches = [[None] * T for _ in range(T)]
    for i0 in range(0, T, BLOCK_Q):
        for j0 in range(0, T, BLOCK_K):
            part = allowed[i0 : i0 + BLOCK_Q, j0 : j0 + BLOCK_K]
            kind = "full" if part.all() else "diagonal" if part.any() else "skipped"
            kinds[kind] += 1
            color = {"full": GREEN, "diagonal": YELLOW, "skipped": None}[kind]
            for i in range(i0, min(i0 + BLOCK_Q, T)):
                for j in range(j0, min(j0 + BLOCK_K, T)):
                    fills[i][j] = color if allowed[i, j] else None
                    hatches[i][j] = "////" if kind == "diagonal" and not allowed[i, j] else None
    cells(
        ax,
        [[""] * T] * T,
        x=left,
        y=top,
        colors=fills,
        hatch=hatches,
        edge=SILVER,
        index=True,
        row_index=True,
    )
    for i0 in range(0, T, BLOCK_Q):
        for j0 in range(0, T, BLOCK_K):
            size = (min(BLOCK_K, T - j0), min(BLOCK_Q, T - i0))
            box(ax, left + j0, top + i0, *size, color=None, edge=INK, linewidth=1.6)
    label(ax, left + T / 2, 0.55, "key j", fontsize=11)
    label(ax, 0.5, top + T / 2, "query i", fontsize=11, rotation=90)
    legend = (
        (GREEN, None, f"full: {kinds['full']} tiles, no mask needed"),
        (YELLOW, None, f"on the diagonal: {kinds['diagonal']} tiles"),
        (None, "////", "their masked lanes: score \u2212inf"),
        (None, None, f"in the future: {kinds['skipped']} tiles, skipped"),
    )
    for line, (color, hatch, text) in enumerate(legend):
        y = top + 1.5 + 1.6 * line
        box(ax, left + T + 0.8, y, color=color, hatch=hatch)
        label(ax, left + T + 2.1, y + 0.5, text, align="left")
    return Picture(
        figure,
        f"""The {T} x {T} scores in tiles of {BLOCK_Q} queries by {BLOCK_K} keys. Only the lower triangle,
        j up to i, counts. {kinds["full"]} tiles are entirely inside it, {kinds["diagonal"]} are cut by the
        diagonal and need a mask, and {kinds["skipped"]} are in the future and can be skipped.""",
    )


WORDS = ("the", "cat", "slept", "because", "it")
VALUES = (10, 20, 30, 40, 50)


def drag(q: int = 1, keys: Sequence[int] = (1, 2, -1, 0, 1)) -> Live:
    """Show the attention of one query to five keys, with a slider for the query and for each key."""
    scores = [q * key for key in keys]
    terms = [math.exp(score - max(scores)) for score in scores]
    weights = [term / sum(terms) for term in terms]
    z = sum(weight * value for weight, value in zip(weights, VALUES, strict=True))
    columns = "display:grid;gap:1em;align-items:center;margin:.3em 0;grid-template-columns:"
    columns += (
        "4.5em 10em 3.5em 5em 7em minmax(0,1fr)"  # each row by itself: untrusted pages drop display:contents
    )
    rows, told = [], []
    for n, (word, key, value) in enumerate(zip(WORDS, keys, VALUES, strict=True)):
        bar = f"background:{ORANGE};{ON_FILL};height:1.4em;width:{100 * weights[n]:.1f}%"
        rows.append(
            f'<div data-key="{n}" style="{columns}"><b>{word}</b>'
            f'<label>k = <span>{_signed(key)}</span><input type="range" min="-4" max="4" value="{key}" '
            f'aria-label="key of {word}" style="width:100%"></label>'
            f"<div>v = {value}</div>"
            f'<div>score <b data-is="score">{_signed(scores[n])}</b></div>'
            f'<div>weight <b data-is="weight">{weights[n]:.3f}</b></div>'
            f'<div><div data-bar="" style="{bar}"></div></div></div>'
        )
        told.append(f"{word}: key {key}, score {scores[n]}, weight {weights[n]:.3f}, value {value}")
    return Live(
        "attention",
        f'<label style="display:block;max-width:16em">query of <b>it</b>: q = <span>{_signed(q)}</span>'
        f'<input data-query="" type="range" min="-4" max="4" value="{q}" aria-label="query" '
        f'style="width:100%"></label><div>{"".join(rows)}</div>'
        f'<div aria-live="polite" style="margin-top:.5em">z, the weighted mean of the values: '
        f'<b data-is="z">{z:.2f}</b></div>',
        Path(__file__).with_name("drag.js").read_text("utf-8"),
        f"The attention of a query, {q}, to five words, with a slider from -4 to 4 for the query and "
        f"for each key. {'; '.join(told)}. The weighted mean of the values is {z:.2f}.",
    )


def _signed(number: int) -> str:
    return f"{number}".replace("-", "\N{MINUS SIGN}")


def sentence(**finds: str) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return eight words, with a query and a key of eight numbers for each: float32 [8, 8].

    Each key is a direction of its own. A query points to the key of the word that it should find, which is
    the word itself unless another one is named, as by ``it="cat"``. Raise ValueError for an unknown word.
    """
    words = ["the", "cat", "slept", "because", "it", "was", "tired", "."]
    for word in (*finds, *finds.values()):
        if word not in words:
            raise ValueError(f"sentence: {word!r} is not one of the words {', '.join(words)}")
    k = torch.eye(len(words))
    q = torch.stack([6 * k[words.index(finds.get(word, word))] for word in words])
    return words, q, k


def weights(words: Sequence[str], table: torch.Tensor) -> Picture:
    """Draw how much each word looks at each word. table: float32 [words, words], a row per query."""
    wide = 1.55
    figure, ax = new_sheet(len(words) * wide + 4.6, len(words) + 3.2)
    left, top = 2.4, 2.0
    texts = [[f"{w:.2f}" if w >= 0.005 else "" for w in row] for row in table.tolist()]
    strong = [
        [None if w < 0.005 else HEAT[int(w * (len(HEAT) - 0.01))] for w in row] for row in table.tolist()
    ]
    cells(ax, texts, x=left, y=top, width=wide, colors=strong, edge=SILVER)
    for n, word in enumerate(words):
        label(ax, left + wide * (n + 0.5), top - 0.35, word, align="baseline", fontsize=11)
        label(ax, left - 0.3, top + n + 0.5, word, align="right", fontsize=11)
    label(ax, left + wide * len(words) / 2, 0.6, "looks at", fontsize=11, color=FAINT)
    note = (
        "the stronger the orange, the larger the weight (rounded here)"
        if table.any()
        else "empty: first solve puzzle 9b"
    )
    label(ax, left, top + len(words) + 0.6, note, align="left", color=FAINT)
    seen = [
        f"{word} looks at {words[int(row.argmax())]} with {float(row.max()):.2f}"
        for word, row in zip(words, table, strict=True)
    ]
    return Picture(
        figure,
        f"""The weights of {len(words)} words, a row for each word that looks and a column for each word that
        is looked at. The largest of each row: {"; ".join(seen)}.""",
    )


def attention(sentence: str, kernel: object | None = None, *, layer: int = 3, head: int = 2) -> Look:
    """Show what the bytes of a sentence look at in the small language model, with your attention in it.

    kernel: yours of puzzle 9b. It computes the attention of every head, with every memory access checked. If
        it's None or not solved yet, torch does.
    layer, head: of the weights that are shown: 1 to 3, and 1 to 4.

    Raises TypeError or ValueError, with the name, for arguments that don't fit.
    """
    __tracebackhide__ = True
    return look(sentence, FLASH_ATTENTION, kernel, layer, head)
