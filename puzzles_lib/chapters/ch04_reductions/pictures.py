"""Pictures of chapter 04: walking a row in blocks, folding an axis, and a softmax that doesn't overflow."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM
from puzzles_lib.drawing.colours import FAINT, GREEN, INK, ORANGE, PALE, SKY, VERMILLION
from puzzles_lib.drawing.live import Live
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case
from puzzles_lib.speaking.looking import Look, look

MINUS = "\u2212"


def walk(case: Case = LONG_SUM.cases[2]) -> Picture:
    """Draw rows by program, columns by iteration, and the lanes that are outside."""
    programs, steps = LONG_SUM.programs(case)[0], -(-case.N // case.BLOCK_N)
    width, height = 2.7, 0.75
    per_column, per_row = width / case.BLOCK_N, height
    left, top = 3.4, 1.6
    figure, ax = new_sheet(left + width * steps + 2.2, 3.6 + height * case.BLOCK_M * programs)
    for step in range(steps):
        middle = left + width * (step + 0.5)
        label(ax, middle, 1.05, f"start = {step * case.BLOCK_N}", align="baseline")
        label(ax, middle, 0.45, f"iteration {step + 1}", align="baseline", color=FAINT)
    for program in range(programs):
        color = (SKY, ORANGE)[program % 2]
        first = program * case.BLOCK_M
        y = top + per_row * first
        label(ax, 0.1, y + per_row * case.BLOCK_M / 2, f"program {program}", align="left", fontsize=11)
        for row in range(first, first + case.BLOCK_M):
            at = top + per_row * row
            inside = row < case.M
            name = f"row {row}" if inside else ""
            label(ax, left + width * steps + 0.3, at + per_row / 2, name, align="left")
            for step in range(steps):
                real = max(0, min(case.BLOCK_N, case.N - step * case.BLOCK_N)) if inside else 0
                x = left + width * step
                if real:
                    box(ax, x, at, per_column * real, per_row, color=color)
                if real < case.BLOCK_N:
                    rest = per_column * (case.BLOCK_N - real)
                    box(ax, x + per_column * real, at, rest, per_row, color=None, hatch="////")
    bottom = top + per_row * case.BLOCK_M * programs
    sizes = f"M = {case.M}, N = {case.N}, BLOCK_M = {case.BLOCK_M}, BLOCK_N = {case.BLOCK_N}"
    note = f"{sizes}.\nHatched: masked-off lanes, past the end of the row or past the last row"
    label(ax, left, bottom + 0.5, note, align="left top")
    lanes = programs * steps * case.BLOCK_M * case.BLOCK_N
    return Picture(
        figure,
        f"""x is {case.M} x {case.N}; BLOCK_M = {case.BLOCK_M}, BLOCK_N = {case.BLOCK_N}. Each of {programs}
        programs owns {case.BLOCK_M} rows and walks them in {steps} iterations, start = 0, {case.BLOCK_N} and
        so on. The last iteration covers {case.N - (steps - 1) * case.BLOCK_N} columns that exist, and program
        {programs - 1} has {case.M - (programs - 1) * case.BLOCK_M} row that exists. So {case.M * case.N} of
        {lanes} lanes are real, and the rest are masked off.""",
    )


def fold() -> Picture:
    """Draw what is left of a block after a sum along an axis, and how it is added to the accumulator."""
    block = torch.tensor([[1, 5, 2, 0], [3, 1, 1, 4], [2, 2, 6, 1], [0, 4, 1, 2]])
    rows, columns = block.sum(1), block.sum(0)
    acc = torch.tensor([10, 20, 30, 40])
    figure, ax = new_sheet(18.4, 8.8)
    tile = cells(ax, block, x=0.4, y=1.4, width=1.1, colors=SKY)
    label(ax, tile.x + 2.2, 0.75, "block x", align="baseline", fontsize=11)
    under = cells(ax, columns, x=0.4, y=6.2, width=1.1)
    arrow(ax, (tile.x + 2.2, 5.4), (tile.x + 2.2, 6.2))
    label(ax, tile.x + 2.5, 5.8, "tl.sum(x, axis=0)", align="left")
    label(ax, under.right + 0.3, 6.7, "one number per column", align="left", color=FAINT)
    label(ax, tile.x, 8.1, f"tl.sum(x) = {int(block.sum())}", align="left")
    label(ax, under.right + 0.3, 8.1, "one number for the whole tile", align="left", color=FAINT)
    beside = cells(ax, rows[:, None], x=9.4, y=1.4, width=1.1, colors=GREEN)
    arrow(ax, (tile.right, 3.4), (9.4, 3.4))
    label(ax, 7.1, 2.9, "tl.sum(x, axis=1)")
    label(ax, 7.1, 3.9, "one number per row", color=FAINT)
    old = cells(ax, acc[:, None], x=12.4, y=1.4, width=1.1, colors=ORANGE)
    new = cells(ax, (acc + rows)[:, None], x=16.4, y=1.4, width=1.1, colors=ORANGE)
    for x, text in ((beside.right + 0.95, "+"), (old.right + 1.45, "=")):
        label(ax, x, 3.4, text, fontsize=15)
    for at, text in ((old, "acc before"), (new, "acc after")):
        label(ax, at.x + 0.55, 0.75, text, align="baseline", fontsize=11)
    return Picture(
        figure,
        f"""A block of 4 rows and 4 columns. tl.sum along axis=1 leaves one number per row,
        {rows.tolist()}; added to the accumulator {acc.tolist()} it gives {(acc + rows).tolist()}. tl.sum
        along axis=0 would leave one number per column, {columns.tolist()}, and tl.sum without an axis
        the sum of the whole block, {int(block.sum())}.""",
    )


def shift(case: Case = LONG_SOFTMAX.cases[3], lanes: int = 7) -> Picture:
    """Draw how exp of a large row overflows, and exp of the same row minus its maximum does not."""
    row = make_inputs(LONG_SOFTMAX, case)["x"][0]
    peak = int(row.argmax())
    start = max(0, min(peak - lanes // 2, len(row) - lanes))
    some = row[start : start + lanes]
    less = some - row.max()
    figure, ax = new_sheet(6.0 + 2.1 * lanes + 1.0, 6.8)
    lines = (
        ("x", [f"{v:.1f}" for v in some.tolist()], PALE),
        ("exp(x)", [str(v) for v in some.exp().tolist()], VERMILLION),
        ("x - max", [f"{v:.1f}".replace("-", MINUS) for v in less.tolist()], PALE),
        ("exp(x - max)", [f"{v:.2g}" for v in less.exp().tolist()], GREEN),
    )
    for y, (title, texts, color) in zip((0.9, 2.0, 3.6, 4.7), lines, strict=True):
        index = range(start, start + lanes) if y < 1 else False
        row_of = cells(ax, texts, x=6.0, y=y, width=2.1, colors=color, index=index)
        label(ax, row_of.right + 0.2, y + 0.5, "...", align="left", fontsize=11)
        label(ax, row_of.x - 0.2, y + 0.5, "...", align="right", fontsize=11)
        label(ax, row_of.x - 1.0, y + 0.5, title, align="right", fontsize=11)
    label(ax, 5.0, 0.62, "column", align="right baseline", fontsize=9, color=FAINT)
    box(ax, 6.0 + 2.1 * (peak - start), 0.9, 2.1, color=None, edge=INK, linewidth=2.5)
    note = f"max = {row.max():.1f} in column {peak}, framed"
    label(ax, 6.0 + 1.05 * lanes, 6.2, note, fontsize=11)
    return Picture(
        figure,
        f"""{lanes} columns of a row around 1000: exp(x) is inf for each of them. With the row's maximum,
        {row.max():.1f} in column {peak}, subtracted first, the differences are 0 or below, and exp of each
        is between 0 and 1.""",
    )


def padding(case: Case = LONG_SOFTMAX.cases[2], lanes: int = 9) -> Picture:
    """Draw the last block of a row, with 0 and with -inf in the lanes past its end."""
    row = make_inputs(LONG_SOFTMAX, case)["x"][0]
    start = case.N // case.BLOCK_N * case.BLOCK_N
    count = case.BLOCK_N - (case.N - start)
    first = case.N - 5
    real = row[first:]
    each = float((0 - row.max()).exp())
    right = float((row - row.max()).exp().sum())
    figure, ax = new_sheet(5.4 + 1.55 * lanes + 1.0, 9.3)
    for y, other, color in ((1.6, "0", VERMILLION), (6.0, "-inf", GREEN)):
        pad = 0.0 if other == "0" else each * 0
        values = [*real.tolist(), *[float(other)] * (lanes - len(real))]
        exps = [*(real - row.max()).exp().tolist(), *[each if other == "0" else pad] * (lanes - len(real))]
        fills = [PALE] * len(real) + [color] * (lanes - len(real))
        index = range(first, first + lanes)
        texts = [_short(v) for v in values]
        cells(ax, texts, x=5.2, y=y, width=1.55, title=f"x, other={other}", colors=fills, index=index)
        low = cells(
            ax, [_short(v) for v in exps], x=5.2, y=y + 1.0, width=1.55, title="exp(x - max)", colors=fills
        )
        for level in (y, y + 1.0):
            label(ax, low.right + 0.2, level + 0.5, "...", align="left", fontsize=11)
        total = right + (count * each if other == "0" else 0)
        ratio = f", {100 * count * each / right:.0f}% too much" if other == "0" else ", correct"
        text = f"denominator of the row: {total:.2f}{ratio}"
        label(ax, 5.2, y + 2.55, text, align="left", fontsize=11)
    peak = f"max is {row.max():.2f}, in column {int(row.argmax())}. The row ends at column {case.N - 1}."
    label(ax, 5.2, 0.45, peak, align="left", fontsize=11)
    return Picture(
        figure,
        f"""The end of a row of N = {case.N} in blocks of {case.BLOCK_N}: {count} lanes of the last block
        are past its end. The row's maximum, {row.max():.2f}, is in column {int(row.argmax())}. If these lanes
        are 0, each of them adds exp(0 - max) = {each:.3f}, and the denominator
        becomes {right + count * each:.2f} instead of {right:.2f}. If they are -inf, each adds 0.""",
    )


def _short(value: float) -> str:
    text = f"{value:.2f}" if abs(value) < 100 else f"{value}"
    return text.replace("-", MINUS) if value else "0"


COLORS = {"kept": SKY, "added": ORANGE}


def drag(scores: Sequence[int] = (1, 3, 2, 4, 3, 0)) -> Live:
    """Show an online softmax over blocks of two scores, with a slider for each score."""
    row_max, total, unrepaired, columns, told = -1e30, 0.0, 0.0, [], []
    weights = [math.exp(score - max(scores)) for score in scores]
    for block in range(0, len(scores), 2):
        new_max = max(row_max, *scores[block : block + 2])
        factor = math.exp(row_max - new_max)
        kept = total * factor
        added = sum(math.exp(score - new_max) for score in scores[block : block + 2])
        row_max, total, unrepaired = new_max, kept + added, unrepaired + added
        sliders = "".join(
            f'<label style="display:block">x[{n}] = <b>{scores[n]}</b>, probability '
            f'<span data-is="probability">{weights[n] / sum(weights):.3f}</span>'
            f'<input type="range" min="-5" max="10" value="{scores[n]}" aria-label="x[{n}]" '
            'style="width:100%"></label>'
            for n in range(block, block + 2)
        )
        numbers = {"maximum": f"{new_max}", "factor": f"{factor:.4f}", "kept": f"{kept:.4f}"}
        numbers |= {"added": f"{added:.4f}", "denominator": f"{total:.4f}"}
        numbers |= {"without factors": f"{unrepaired:.4f}"}
        square = "display:inline-block;width:.8em;height:.8em;margin-right:.4em;background:"
        marks = {name: f'<span style="{square}{color}"></span>' for name, color in COLORS.items()}
        table = "".join(
            f'<div>{marks.get(name, "")}{name} <b data-is="{name}">{value}</b></div>'
            for name, value in numbers.items()
        )
        bars = "".join(
            f'<div data-bar="{name}" style="background:{COLORS[name]};'
            f'width:{100 * sum_ / len(scores):.1f}%"></div>'
            for name, sum_ in (("kept", kept), ("added", added))
        )
        bar = "display:flex;height:1.7em;margin:.3em 0"
        columns.append(
            '<div data-block="" style="min-width:0">'
            f'<div style="font-weight:bold">block {block // 2 + 1}</div>'
            f'{sliders}<div style="{bar}">{bars}</div><div aria-live="polite">{table}</div></div>'
        )
        told.append(f"maximum {new_max}, factor {factor:.4f}, kept {kept:.4f}, added {added:.4f}")
    grid = f"display:grid;gap:1.5em;grid-template-columns:repeat({len(columns)},minmax(0,1fr))"
    return Live(
        "online-softmax",
        f'<div style="{grid}">{"".join(columns)}</div>',
        Path(__file__).with_name("drag.js").read_text("utf-8"),
        f"An online softmax over the scores {', '.join(map(str, scores))}, in blocks of two, with sliders "
        f"from -5 to 10, and their probabilities. Block by block: {'; '.join(told)}. Denominator "
        f"{total:.4f}, and without the factors {unrepaired:.4f}.",
    )


def attention(sentence: str, kernel: object | None = None, *, layer: int = 3, head: int = 1) -> Look:
    """Show what the bytes of a sentence look at in the small language model, with your softmax in it.

    kernel: yours of puzzle 8. It computes every softmax of the model, with every memory access checked. If
        it's None or not solved yet, torch does.
    layer, head: of the weights that are shown: 1 to 3, and 1 to 4.

    Raises TypeError or ValueError, with the name, for arguments that don't fit.
    """
    __tracebackhide__ = True
    return look(sentence, LONG_SOFTMAX, kernel, layer, head)
