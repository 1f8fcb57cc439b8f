"""Pictures for chapter 20."""

import math
from collections.abc import Sequence

import torch

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.chapters.ch20_clinic.patients.p42_many_tokens import PUZZLE as MANY_TOKENS
from puzzles_lib.chapters.ch20_clinic.patients.p43_running_sums import PUZZLE as RUNNING_SUMS
from puzzles_lib.chapters.ch20_clinic.patients.p44_logsumexp_of_view import PUZZLE as LOGSUMEXP_OF_VIEW
from puzzles_lib.chapters.ch20_clinic.patients.p46_row_minimum import PUZZLE as ROW_MINIMUM
from puzzles_lib.chapters.ch20_clinic.patients.p47_any_above import PUZZLE as ANY_ABOVE
from puzzles_lib.chapters.ch20_clinic.patients.p48_kept_scores import PUZZLE as KEPT_SCORES
from puzzles_lib.chapters.ch20_clinic.patients.p50_row_totals import PUZZLE as ROW_TOTALS
from puzzles_lib.chapters.ch20_clinic.patients.p51_label_probability import PUZZLE as LABEL_PROBABILITY
from puzzles_lib.chapters.ch20_clinic.patients.p53_norm_and_turn import PUZZLE as NORM_AND_TURN
from puzzles_lib.chapters.ch20_clinic.patients.p54_bias_gradient import PUZZLE as BIAS_GRADIENT
from puzzles_lib.chapters.ch20_clinic.patients.p55_products import PUZZLE as PRODUCTS
from puzzles_lib.chapters.ch20_clinic.patients.p57_discounted_sum import PUZZLE as DISCOUNTED_SUM
from puzzles_lib.chapters.ch20_clinic.patients.p59_attended import PUZZLE as ATTENDED
from puzzles_lib.chapters.ch20_clinic.patients.p59_attended import STEP
from puzzles_lib.chapters.ch20_clinic.patients.p60_random_rounding import PUZZLE as RANDOM_ROUNDING
from puzzles_lib.chapters.ch20_clinic.patients.p61_sinks_and_window import PUZZLE as SINKS_AND_WINDOW
from puzzles_lib.chapters.ch20_clinic.patients.p62_tiled_product import PUZZLE as TILED_PRODUCT
from puzzles_lib.chapters.ch20_clinic.patients.p63_tuned_sum import PUZZLE as TUNED_SUM
from puzzles_lib.chapters.ch20_clinic.patients.p64_tuned_rows import PUZZLE as TUNED_ROWS
from puzzles_lib.chapters.ch20_clinic.patients.p65_temperatures import class_of, first_of_class
from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PALE,
    PALE_GREEN,
    PALE_ORANGE,
    PALE_SKY,
    PAPER,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, legend, new_sheet
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case

MINUS = "\N{MINUS SIGN}"


def method() -> Picture:
    """Draw the four steps from a report to a correct kernel."""
    steps = (
        ("reproduce", "same sizes and values:\ndoes it fail here, too?", PALE_ORANGE),
        ("reduce", "smaller, fewer, simpler,\nas long as it still fails", YELLOW),
        ("look", "which element, which line,\nwhich value is wrong?", PALE_SKY),
        ("fix", "one line; then run all\nthat failed on the way", PALE_GREEN),
    )
    figure, ax = new_sheet(19.2, 6.2)
    for number, (name, text, color) in enumerate(steps):
        x = 0.2 + 4.85 * number
        box(ax, x, 0.6, 4.25, 1.2, name, color=color, fontsize=13)
        label(ax, x + 2.1, 2.9, text)
        if number:
            arrow(ax, (x - 0.55, 1.2), (x - 0.05, 1.2))
    box(ax, 5.1, 4.2, 9.0, 1.2, "still unclear? Then reduce it further", color=PALE)
    arrow(ax, (12.0, 3.6), (12.0, 4.15))
    arrow(ax, (7.1, 4.15), (7.1, 3.6))
    told = "; ".join(f"{name}: {' '.join(text.split())}" for name, text, _ in steps)
    return Picture(
        figure,
        f"Four steps, one after the other. {told}. If looking shows nothing, go back and reduce further.",
    )


SYMPTOMS = (
    ("starts at some size", ("offsets beyond 2^31", "a grid axis: 65,535", "a ragged end")),
    ("for some values", ("masked-off lanes", f"inf {MINUS} inf is NaN", "a store to fewer bits")),
    ("differs from run to run", ("a missing barrier", "a lock, a flag", "two stores, one place")),
    (
        "same every run, but off",
        ("digits: rounded early", "by one: // of negatives", "by 256: int8 products"),
    ),
    (
        "depends on what ran before",
        ("autotune's own runs", "a result isn't cleared", "never tested alone"),
    ),
    ("parts right, whole wrong", ("the order of adding", "two maxima mixed", "how masks are joined")),
    ("less random than asked", ("a draw is reused",)),
)
"""Symptoms, and what may cause them."""


def symptoms() -> Picture:
    """Draw a map from symptoms to likely causes."""
    figure, ax = new_sheet(20.0, 2.2 + 1.9 * len(SYMPTOMS))
    label(ax, 3.6, 0.7, "you see", fontsize=12, color=FAINT)
    label(ax, 13.5, 0.7, "look for", fontsize=12, color=FAINT)
    for number, (seen, causes) in enumerate(SYMPTOMS):
        y = 1.5 + 1.9 * number
        label(ax, 0.1, y + 0.65, str(number), align="left", color=FAINT)
        box(ax, 0.7, y, 5.9, 1.3, seen, color=PALE_ORANGE, fontsize=11)
        arrow(ax, (6.65, y + 0.65), (7.25, y + 0.65))
        for place, cause in enumerate(causes):
            box(ax, 7.3 + 4.15 * place, y, 4.05, 1.3, cause, color=PALE_SKY)
    told = "; ".join(f"{seen}: {', '.join(causes)}" for seen, causes in SYMPTOMS)
    return Picture(figure, f"A map from symptoms to likely causes. {told}.")


def wraps(B: int = 16, T: int = 17_477, K: int = 8192) -> Picture:
    """Draw where the sequences of a large tensor start, and where they start in int32."""
    figure, ax = new_sheet(19.2, 7.6)
    left, width = 0.8, 17.2
    reach = (B * T * K) / 2**31  # of a tensor, in int32's range
    scale = width / (2 * reach)
    middle = left + width / 2
    last = (B - 1) * T * K
    for y, name, wrapped in ((1.2, "where it should be", False), (4.0, "in int32", True)):
        for b in range(B):
            at = b * T * K
            bad = at >= 2**31
            at -= 2**32 * (bad and wrapped)
            place = middle + at / 2**31 * scale
            box(ax, place, y, T * K / 2**31 * scale, 1.0, color=VERMILLION if bad else SKY)
            if bad:
                text = f"sequence {b} begins at {at:,}".replace("-", MINUS)
                label(
                    ax,
                    place + (0.6 if wrapped else -0.6),
                    y + 1.5,
                    text,
                    align="left" if wrapped else "right",
                )
        label(ax, middle - 0.4, y + 0.5, name, align="right")
    for at, text in ((-1, f"{MINUS}2^31"), (0, "0"), (1, "2^31")):
        x = middle + at * scale
        ax.plot([x, x], [0.9, 6.2], color=INK, linewidth=1.2)
        label(ax, x, 6.7, text)
    return Picture(
        figure,
        f"{B} sequences of {T:,} tokens with {K} numbers each, along a line of offsets. Sequence {B - 1} "
        f"should begin at {last:,}, just past 2^31 = {2**31:,}. In int32 it begins at {last - 2**32:,}: "
        f"before the tensor. The other {B - 1} are where they should be.",
    )


def left_out(case: Case = MANY_TOKENS.cases[2]) -> Picture:
    """Draw which program computes which token if there are more tokens than programs."""
    T, most = case.T, case.MOST
    figure, ax = new_sheet(19.2, 6.2)
    left, width = 3.4, 15.4 / T
    cells(ax, list(range(T)), x=left, y=0.5, width=width, colors=None, title="token")
    cells(ax, list(range(most)), x=left, y=2.0, width=width, colors=SKY, title="as reported")
    cells(ax, [None] * (T - most), x=left + most * width, y=2.0, width=width, colors=VERMILLION)
    cells(ax, [t % most for t in range(T)], x=left, y=3.5, width=width, colors=SKY, title="correct")
    for at in range(most, T, most):
        ax.plot([left + at * width] * 2, [3.2, 4.8], color=INK, linewidth=2)
    legend(
        ax, 5.2, (left, SKY, "computed by the program with that number"), (left + 10.4, VERMILLION, "by none")
    )
    return Picture(
        figure,
        f"{T} tokens, and {most} programs along y. As reported, programs 0 to {most - 1} compute the "
        f"tokens with "
        f"their numbers, and no program computes tokens {most} to {T - 1}. The correct programs step by "
        f"{most}: program 0 computes tokens {', '.join(map(str, range(0, T, most)))}.",
    )


def meets(case: Case = RUNNING_SUMS.cases[3], b: int = 1) -> Picture:
    """Draw the blocks of a packed sequence that starts inside a block, and their sums."""
    cu = make_inputs(RUNNING_SUMS, case)["cu"].tolist()
    start, end = cu[b], cu[b + 1]
    t = torch.arange(start // case.BLOCK * case.BLOCK, -(-end // case.BLOCK) * case.BLOCK)
    first, mine = int(t[0]), (t >= start) & (t < end)
    figure, ax = new_sheet(19.2, 8.0)
    left, width = 3.4, 15.4 / len(t)
    label(ax, left - 0.25, 1.0, "sequence", align="right", fontsize=11)
    for number in range(case.B):
        at, to = max(cu[number], first), min(cu[number + 1], first + len(t))
        if at < to:
            color = PALE_SKY if number == b else PALE_ORANGE
            box(ax, left + (at - first) * width, 0.5, (to - at) * width, 1.0, str(number), color=color)
    cells(ax, t.tolist(), x=left, y=1.8, width=width, colors=None, fontsize=9)
    label(ax, left - 0.25, 2.3, "t", align="right", fontsize=11)
    sums = {}
    for y, name, summed in ((3.3, "as reported", t < end), (4.8, "correct", mine)):
        sums[name] = summed.long().cumsum(0)
        texts = [int(total) if on else None for on, total in zip(summed, sums[name], strict=True)]
        colors = [(SKY if own else VERMILLION) if on else None for on, own in zip(summed, mine, strict=True)]
        hatches = [None if on else "////" for on in summed]
        cells(ax, texts, x=left, y=y, width=width, colors=colors, hatch=hatches, fontsize=9)
        label(ax, left - 0.25, y + 0.5, name, align="right", fontsize=11)
    for at in range(case.BLOCK, len(t), case.BLOCK):
        ax.plot([left + at * width] * 2, [1.6, 6.0], color=INK, linewidth=2)
    for at in range(0, len(t), case.BLOCK):
        label(ax, left + (at + case.BLOCK / 2) * width, 6.4, f"block from {first + at}", color=FAINT)
    wrong, right = (found[mine].tolist() for found in sums.values())
    text = f"if every x is 1, the first sum should be {right[0]} but is {wrong[0]}"
    label(ax, left + len(t) * width / 2, 7.4, text)
    return Picture(
        figure,
        f"Sequence {b} is t = {start} to {end - 1}, in blocks of {case.BLOCK} from {first} on. The lanes "
        f"{first} to {start - 1} of its first block belong to sequence {b - 1} and are summed, too: if "
        f"every x is 1, its sums are {wrong[0]} to {wrong[-1]} instead of {right[0]} to {right[-1]}. The "
        f"lanes from {end} on are switched off (hatched).",
    )


def strides(case: Case = LOGSUMEXP_OF_VIEW.cases[3]) -> Picture:
    """Draw a view's rows in memory, and the elements that each program reads as its row."""
    M, N, S = (case.numbers[name] for name in "MNS")
    figure, ax = new_sheet(19.2, 3.6 + 1.3 * M)
    left, width = 4.1, 14.8 / (M * S)
    label(ax, left - 0.3, 1.6, "in memory", align="right", fontsize=11)
    for m in range(M):
        start = left + m * S * width
        box(ax, start, 1.1, N * width, 1.0, f"row {m}", color=SKY, fontsize=11)
        box(ax, start + N * width, 1.1, (S - N) * width, 1.0, hatch="////")
        label(ax, start, 0.95, str(m * S), align="left bottom", color=FAINT)
    told = []
    for m in range(M):
        y = 2.7 + 1.3 * m
        label(ax, left - 0.3, y + 0.5, f"program {m} reads", align="right", fontsize=11)
        ax.plot([left, left + M * S * width], [y + 0.5] * 2, color=LINE, linewidth=0.8, zorder=0)
        first, end = m * N, m * N + N
        mine = min(max(m * S, first), end)
        for at, to, color in ((first, mine, VERMILLION), (mine, end, SKY)):
            if at < to:
                box(ax, left + at * width, y, (to - at) * width, 1.0, f"{at} to {to - 1}", color=color)
        strange = f"{mine - first} of them outside row {m}" if mine > first else f"all in row {m}"
        told.append(f"program {m} reads {first} to {end - 1}, {strange}")
    y = 2.9 + 1.3 * M
    legend(
        ax,
        y,
        (left, SKY, "in its row"),
        (left + 4.0, VERMILLION, "in another row"),
        (left + 8.8, PALE, "not in the view", "////"),
    )
    begin = ", ".join(str(m * S) for m in range(M))
    return Picture(
        figure,
        f"A view of the first {N} numbers of {M} rows of {S}, in memory: its rows start at "
        f"{begin}. As reported, {'; '.join(told)}.",
    )


def overshoots(N: int = 5, BLOCK: int = 4) -> Picture:
    """Draw a tile that is wider than the rest of its row."""
    figure, ax = new_sheet(19.2, 7.4)
    left, width, M = 4.0, 1.45, 2
    label(ax, left - 0.4, 1.5, "the tile's lanes", align="right")
    over = 2 * BLOCK - N
    colors = [SKY] * (N - BLOCK) + [VERMILLION] * over
    names = [f"n={BLOCK + i}" for i in range(BLOCK)]
    tile = cells(ax, names, x=left + BLOCK * width, y=1.0, width=width, colors=colors)
    texts = [f"z[{m},{n}]" for m in range(M) for n in range(N)]
    hit = [SKY if i == BLOCK else VERMILLION if BLOCK < i < 2 * BLOCK else PALE for i in range(M * N)]
    memory = cells(ax, texts, x=left, y=4.2, width=width, colors=hit)
    label(ax, left - 0.4, 4.7, "memory", align="right")
    for lane in range(BLOCK):
        arrow(ax, tile.foot(lane), memory.top(BLOCK + lane))
    ax.plot([left + N * width] * 2, [3.4, 5.6], color=INK, linewidth=1.6)
    label(ax, left + N * width / 2, 6.0, "row 0", color=FAINT)
    label(ax, left + 1.5 * N * width, 6.0, "row 1: another program stores here, too", color=FAINT)
    return Picture(
        figure,
        f"Rows of {N}, blocks of {BLOCK}. The second tile of row 0 has lanes n = {BLOCK} to "
        f"{2 * BLOCK - 1}. Only n = {BLOCK} is in the row; the other {over} reach z[1, 0] to "
        f"z[1, {over - 1}], which another program stores, too.",
    )


def least(case: Case = ROW_MINIMUM.cases[3], m: int = 0) -> Picture:
    """Draw a row and the lanes past its end, and the minimum of both if those lanes are 0."""
    x = make_inputs(ROW_MINIMUM, case)["x"][m].tolist()
    lowest = min(x)
    figure, ax = new_sheet(19.2, 7.6)
    left, width, foot, unit = 2.6, 12.6 / case.BLOCK_N, 5.2, 2.1
    end, edge = left + case.N * width, left + case.BLOCK_N * width
    for n, value in enumerate(x):
        box(ax, left + n * width, foot - unit * value, width, unit * value, color=SKY)
    box(ax, end, foot - 2 * unit, edge - end, 2 * unit, hatch="////", color=None)
    label(ax, (end + edge) / 2, foot - 0.45 * unit, "undefined: 0, or anything", behind=PAPER, pad=4.0)
    for value, text, color in (
        (lowest, f"{lowest:.3f}: the row's minimum", INK),
        (0, "0: all lanes' minimum,\nif these are 0", VERMILLION),
    ):
        y = foot - unit * value
        ax.plot([left, edge + 0.3], [y, y], color=color, linewidth=2)
        label(ax, edge + 0.5, y, text, align="left")
    for at, to, text in ((left, end, f"lanes 0 to {case.N - 1}: the row"), (end, edge, "masked off")):
        label(ax, (at + to) / 2, foot + 0.7, text)
    label(ax, left, 6.9, f"with 0 in those lanes, every z of the row is {lowest:.3f} too large", align="left")
    return Picture(
        figure,
        f"A row of {case.N} numbers from {lowest:.3f} to {max(x):.3f}, in a block of {case.BLOCK_N} lanes. "
        f"The other {case.BLOCK_N - case.N} are undefined. If they happen to be 0, the minimum of all "
        f"lanes is "
        f"0, not {lowest:.3f}, so that z is {lowest:.3f} too large.",
    )


def keeps_a_byte(N: int = ANY_ABOVE.cases[3].N) -> Picture:
    """Draw three counts as 32 bits, and the bits that a bool keeps."""
    hits = torch.tensor([N - 1, N, N + 1], dtype=torch.int32)
    bits = torch.iinfo(torch.uint8).bits
    figure, ax = new_sheet(19.2, 5.5)
    left, width, told = 2.6, 0.39, []
    edge = left + (32 - bits) * width
    for number, (count, byte) in enumerate(zip(hits.tolist(), hits.to(torch.uint8).tolist(), strict=True)):
        pattern = f"{count:032b}"
        colors = [VERMILLION if bit == "1" else PALE for bit in pattern[:-bits]] + [SKY] * bits
        y = 1.0 + 1.4 * number
        row = cells(ax, pattern, x=left, y=y, width=width, colors=colors, title=f"hits = {count}")
        label(ax, row.right + 0.3, y + 0.5, f"byte {byte}: {bool(byte)}", align="left", fontsize=11)
        told.append(f"{count} becomes {byte}, which is {bool(byte)}")
    ax.plot([edge] * 2, [0.8, 5.0], color=INK, linewidth=2)
    label(ax, edge - 0.3, 0.4, "dropped", align="right", color=FAINT)
    label(ax, edge + 0.3, 0.4, "stored", align="left", color=FAINT)
    return Picture(
        figure,
        f"Counts as the 32 bits of an int32, of which the lowest {bits} are stored and the others dropped: "
        f"{'; '.join(told)}.",
    )


def nan_stays(case: Case = KEPT_SCORES.cases[3], m: int = 2) -> Picture:
    """Draw a row in which the first blocks keep nothing, with the wrong sum (NaN) and the correct one."""
    given = make_inputs(KEPT_SCORES, case)
    x = given["x"][m].masked_fill(given["keep"][m] == 0, -torch.inf).split(case.BLOCK_N)
    tops = torch.stack([block.max() for block in x]).cummax(0).values
    figure, ax = new_sheet(19.2, 10.4)
    left, width = 5.9, 13.0 / len(x)
    names = [f"block {number}: {int((block > -torch.inf).sum())} kept" for number, block in enumerate(x)]
    for number, name in enumerate(names):
        label(ax, left + (number + 0.5) * width, 0.5, name, fontsize=11)
    look = {"x": left, "width": width, "fontsize": 11}

    def line(y: float, title: str, values: list[float]) -> None:
        colors = [VERMILLION if v != v else PALE if v == -torch.inf else SKY for v in values]
        cells(ax, [_number(v) for v in values], y=y, title=title, colors=colors, **look)

    line(1.0, "maximum so far", tops.tolist())
    told = []
    for y, name, bases in (
        (3.3, "as reported", tops),
        (6.9, "correct", tops.masked_fill(tops == -torch.inf, 0)),
    ):
        total, top, factors, totals = torch.tensor(0.0), torch.tensor(-torch.inf), [], []
        for block, new, base in zip(x, tops, bases, strict=True):
            factors.append((top - base).exp().item())
            total = total * (top - base).exp() + (block - base).exp().sum()
            totals.append(total.item())
            top = new
        label(ax, left - 0.25, y - 0.4, name, align="right", fontsize=11, weight="bold")
        line(y, "factor on old sum", factors)
        line(y + 1.1, "new sum", totals)
        told.append(f"{name} {', '.join(map(_number, totals))}")
    label(ax, left, 9.7, f"{MINUS}inf {MINUS} {MINUS}inf is NaN, and NaN times 0 is NaN", align="left")
    return Picture(
        figure,
        f"Row {m} in blocks of {case.BLOCK_N}, {', '.join(names)}. The maximum so far is "
        f"{', '.join(map(_number, tops.tolist()))}, and the sum after each block {'; '.join(told)}. "
        f"{MINUS}inf {MINUS} {MINUS}inf is NaN, and NaN times 0 is NaN, so no later block repairs it.",
    )


def _number(value: float) -> str:
    return "NaN" if value != value else f"{value:.3g}".replace("-", MINUS)


def of_equals(ones: Sequence[int] = (2, 9, 17, 20), V: int = 48, BLOCK: int = 16) -> Picture:
    """Draw a row whose blocks have equal maxima: the best after each block, and its token."""
    levels = [float(v in ones) for v in range(V)]
    figure, ax = new_sheet(19.2, 8.0)
    left, width = 3.8, 15.0 / V
    for v, level in enumerate(levels):
        color = ORANGE if level else PALE
        box(ax, left + v * width, 1.4, width, 1.0, f"{level:g}", color=color, fontsize=9)
    for v in ones:
        label(ax, left + (v + 0.5) * width, 1.0, str(v), color=FAINT)
    label(ax, left - 0.25, 1.9, "logits", align="right", fontsize=11)
    tops = [max(levels[v0 : v0 + BLOCK]) for v0 in range(0, V, BLOCK)]
    best, tokens, told = -math.inf, {"as reported": 0, "correct": 0}, []
    for number, top in enumerate(tops):
        x, wide = left + number * BLOCK * width, BLOCK * width
        place = levels.index(top, number * BLOCK)
        label(ax, x + wide / 2, 0.4, f"block {number}", fontsize=11)
        box(ax, x, 2.9, wide, 1.0, f"largest {top:g}, first at {place}", color=None)
        takes = {"as reported": top >= best, "correct": top > best}
        best = max(best, top)
        for y, name in ((4.4, "as reported"), (5.9, "correct")):
            tokens[name] = token = place if takes[name] else tokens[name]
            color = GREEN if token == ones[0] else VERMILLION
            box(ax, x, y, wide, 1.0, f"best {best:g}, token {token}", color=color)
            label(ax, left - 0.25, y + 0.5, "" if number else name, align="right", fontsize=11)
        told.append(f"block {number} {top:g} at {place}")
    for at in range(BLOCK, V, BLOCK):
        ax.plot([left + at * width] * 2, [1.2, 2.6], color=INK, linewidth=2)
    return Picture(
        figure,
        f"A row of {V} zeros with ones at {', '.join(map(str, ones))}, in blocks of {BLOCK}. The first "
        f"largest of each: {'; '.join(told)}. As reported, a block takes over if its largest is only "
        f"equal: token "
        f"{tokens['as reported']} comes out. It should be {tokens['correct']}, the first of the ones.",
    )


def begins(cases: Sequence[Case] = ROW_TOTALS.cases[3:1:-1], rows: int = 4) -> Picture:
    """Draw rows of two lengths in memory, with a line every 16 bytes."""
    size, step = ROW_TOTALS.inputs[0].dtype.itemsize, 16
    most = rows * size * max(case.K for case in cases)
    figure, ax = new_sheet(19.2, 1.0 + 3.1 * len(cases))
    left, width = 2.6, 16.2 / most
    bottom, told = 3.1 * len(cases) - 0.4, []
    for at in range(0, most + 1, step):
        ax.plot([left + at * width] * 2, [0.2, bottom], color=LINE, linewidth=0.8, zorder=0)
    for number, case in enumerate(cases):
        y, found = 0.6 + 3.1 * number, []
        label(ax, left - 0.3, y + 0.5, f"K = {case.K}", align="right", fontsize=11)
        for m in range(rows):
            start = m * size * case.K
            color = VERMILLION if start % step else GREEN
            x = left + start * width
            box(ax, x, y, size * case.K * width, 1.0, color=PALE)
            box(ax, x, y, 0.22, 1.0, color=color)
            label(ax, x + size * case.K * width / 2, y + 0.5, f"row {m}", fontsize=11)
            over = f" + {start % step}" if start % step else ""
            text = f"{start} = {start // step} · {step}{over}"
            label(ax, x, y + 1.4, text, align="left", fontsize=10, behind=PAPER)
            found.append(str(start))
        told.append(f"with K = {case.K}, {size * case.K} bytes, they start at {', '.join(found)}")
    marks = (left, GREEN, "starts at a line"), (left + 5.0, VERMILLION, "starts between lines")
    legend(ax, bottom + 0.5, *marks)
    label(ax, left + 10.5, bottom + 0.8, f"a line every {step} bytes", align="left", color=FAINT)
    return Picture(
        figure,
        f"Rows of {size}-byte numbers, one after another, over memory that is ruled every {step} bytes: "
        f"{'; '.join(told)}.",
    )


def not_yet_there(case: Case = LABEL_PROBABILITY.cases[0], warps: int = 4) -> Picture:
    """Draw warps that store a row at their own pace, and a lane that loads one element."""
    at = int(make_inputs(LABEL_PROBABILITY, case)["label"][0])
    owner, each = at // 32 % warps, case.N // warps
    figure, ax = new_sheet(19.2, 7.4)
    left, wide = 2.6, 5.6
    starts = [3.9 if warp == owner else 0.8 * warp for warp in range(warps)]  # as may be
    for warp, start in enumerate(starts):
        y, stores = 0.8 + 1.2 * warp, f"stores p[0, {warp * each} to {warp * each + each - 1}]"
        label(ax, left - 0.4, y + 0.45, f"warp {warp}", align="right")
        box(ax, left + start, y, wide, 0.9, stores, color=VERMILLION if warp == owner else GREEN)
    loads = left + starts[0] + wide
    box(ax, loads, 0.8, 3.7, 0.9, f"lane 0 loads p[0, {at}]", color=SKY)
    late = left + max(starts) + wide
    ax.plot([late] * 2, [0.6, 6.2], color=LINE, linewidth=2, linestyle="--")
    label(ax, late + 0.3, 5.6, "with a barrier, no warp\nwould load before here", align="left")
    arrow(ax, (loads + 3.0, 0.8 + 1.2 * owner - 0.05), (loads + 3.0, 1.75), color=VERMILLION)
    text = f"warp {owner} stores p[0, {at}], perhaps too late: then q is whatever was there before"
    label(ax, left, 6.9, text, align="left")
    return Picture(
        figure,
        f"A row of {case.N}, stored by {warps} warps, {each} elements each, at their own pace. Its label "
        f"is "
        f"{at}. Lane 0 of warp 0 goes on and loads p[0, {at}], which warp {owner} stores, perhaps later: "
        f"then q is whatever was there before. With a barrier, no warp loads before the last one has "
        f"stored.",
    )


def releases() -> Picture:
    """Draw four warps at their own pace, one of which releases the lock."""
    figure, ax = new_sheet(19.2, 7.6)
    left, ends = 2.6, (3.2, 5.1, 4.2, 7.8)
    for warp, end in enumerate(ends):
        y = 0.8 + 1.2 * warp
        label(ax, left - 0.4, y + 0.45, f"warp {warp}", align="right")
        box(ax, left, y, end, 0.9, "stores", color=GREEN)
    box(ax, left + ends[0], 0.8, 2.8, 0.9, "lock = 0", color=ORANGE)
    opened = left + ends[0] + 2.8
    box(ax, opened + 0.8, 5.9, 7.0, 1.0, "next program loads", color=SKY)
    arrow(ax, (opened, 1.7), (opened + 0.8, 5.85))
    late = left + max(ends)
    box(ax, opened, 4.4, late - opened, 0.9, color=VERMILLION)
    label(ax, late + 0.2, 4.85, "too late", align="left")
    ax.plot([late + 2.8] * 2, [0.6, 5.5], color=LINE, linewidth=2, linestyle="--")
    label(ax, late + 3.1, 3.0, "with a barrier, the lock\nwould open here", align="left")
    return Picture(
        figure,
        "Four warps of one program store, each at its own pace. Warp 0 finishes first and sets the lock "
        "to 0; "
        "warp 3 is still storing when the next program loads. With a barrier the lock opens only "
        "after the last warp's stores.",
    )


def stored_twice(case: Case = NORM_AND_TURN.cases[1], warps: int = 4) -> Picture:
    """Draw which warp stores which part of a row, and which one stores its end again."""
    N, H = case.N, case.H
    stores = ((0, N, "first store"), (N - 2 * H, H, "second store"), (N - H, H, "third store"))
    tints = (SKY, ORANGE, GREEN, YELLOW)
    figure, ax = new_sheet(19.2, 6.5)
    left, width, found = 4.4, 14.2 / N, []
    for number, (first, many, name) in enumerate(stores):
        y = 0.8 + 1.3 * number
        label(ax, left - 0.3, y + 0.5, name, align="right", fontsize=11)
        ax.plot([left, left + N * width], [y + 0.5] * 2, color=LINE, linewidth=0.8, zorder=0)
        for lane in range(0, many, 32):
            warp, at = lane // 32 % warps, first + lane
            to = min(at + 32, first + many)
            box(ax, left + at * width, y, (to - at) * width, 1.0, f"warp {warp}", color=tints[warp])
            found.append((warp, at, to))
    for at in range(0, N, 32):
        label(ax, left + at * width, 0.65, str(at), align="left bottom", color=FAINT)
    meet = [
        (one, two, max(a, b), min(c, d))
        for i, (one, a, c) in enumerate(found)
        for two, b, d in found[i + 1 :]
        if max(a, b) < min(c, d)
    ]
    told = [f"{at} to {to - 1} by warp {one} and by warp {two}" for one, two, at, to in meet]
    first, end = left + (N - 2 * H) * width, left + N * width
    ax.plot([first, first], [0.8, 4.9], color=INK, linewidth=1.6)
    label(ax, first - 0.2, 5.2, "rotated from here on", align="right", color=FAINT)
    for number, text in enumerate(told):
        label(ax, (first + end) / 2, 5.2 + 0.7 * number, text)
    return Picture(
        figure,
        f"A row of {N}, whose last {2 * H} are rotated, and the warps that store it: each stores its 32 "
        f"in the "
        f"first store, and warp 0 stores the two parts of the end in the second and third. So elements "
        f"are stored "
        f"twice: "
        f"{'; '.join(told)}. Which of the two comes last is undefined.",
    )


def coarse_parts(case: Case = BIAS_GRADIENT.cases[1], n: int = 1) -> Picture:
    """Draw the parts of a column's sum between bfloat16 numbers, and what is added instead."""
    dy = make_inputs(BIAS_GRADIENT, case)["dy"][:, n].float()
    parts = torch.stack([rows.sum() for rows in dy.split(case.BLOCK_M)])
    taken = parts.bfloat16().float()
    figure, ax = new_sheet(19.2, 2.7 + 1.9 * len(parts))
    left, right, told = 5.6, 14.6, []
    label(ax, left - 0.5, 0.5, "its part, in float32", align="right", color=FAINT)
    label(ax, (left + right) / 2, 0.5, "the bfloat16 numbers around it", color=FAINT)
    label(ax, right + 0.5, 0.5, "what's added", align="left", color=FAINT)
    for number, (part, coarse) in enumerate(zip(parts.tolist(), taken.tolist(), strict=True)):
        y = 1.8 + 1.9 * number
        step = 2.0 ** (math.frexp(part)[1] - 8)
        first = math.floor(part / step) * step

        def place(value: float, first: float = first, step: float = step) -> float:
            return left + (right - left) * ((value - first) / step + 1) / 3

        ax.plot([left, right], [y, y], color=LINE, linewidth=1.2)
        for tick in range(-1, 3):
            x = place(first + tick * step)
            ax.plot([x, x], [y - 0.3, y + 0.3], color=INK, linewidth=1.6)
        box(ax, place(part) - 0.15, y - 0.4, 0.3, 0.8, color=SKY)
        arrow(ax, (place(part), y - 0.5), (place(coarse), y - 0.35), color=VERMILLION, bend=-0.4)
        label(ax, left - 0.5, y, f"program {number}:  {_digits(part, 4)}", align="right", fontsize=11)
        label(ax, right + 0.5, y, _digits(coarse, 4), align="left", fontsize=11)
        label(
            ax,
            place(first + 0.5 * step),
            y + 0.65,
            f"bfloat16 numbers are {step:g} apart here",
            fontsize=9,
            color=FAINT,
        )
        told.append(f"{_digits(part, 4)} as {_digits(coarse, 4)}")
    y = 2.2 + 1.9 * len(parts)
    ends = [_digits(float(values.sum()), 4) for values in (parts, taken)]
    ax.plot([0.8, 18.4], [y - 0.6] * 2, color=INK, linewidth=1.2)
    label(ax, left - 0.5, y, f"sum:  {ends[0]}", align="right", fontsize=11)
    label(ax, right + 0.5, y, ends[1], align="left", fontsize=11)
    return Picture(
        figure,
        f"{len(parts)} programs add their parts of column {n}, each rounded to the nearest bfloat16 "
        f"number: {', '.join(told)}. The sum is {ends[1]} instead of {ends[0]}.",
    )


def ten_bits(case: Case = PRODUCTS.cases[0]) -> Picture:
    """Draw two float32 factors as bits, what TF32 keeps of them, and both products."""
    given = make_inputs(PRODUCTS, case)
    x, y = given["x"][0], given["y"][:, 0]
    off = (in_tf32(x) * in_tf32(y) / (x * y) - 1).nan_to_num().abs()
    k = int(off.argmax())
    factors = {f"x[0, {k}]": x[k : k + 1].clone(), f"y[{k}, 0]": y[k : k + 1].clone()}
    figure, ax = new_sheet(19.2, 7.0)
    left, width, kept = 2.6, 0.37, 1 + 8 + 10
    for at, to, text in ((0, 1, "sign"), (1, 9, "exponent"), (9, kept, "10 bits"), (kept, 32, "13 more")):
        label(ax, left + (at + to) / 2 * width, 0.4, text, color=FAINT)
    told = []
    for number, (name, full) in enumerate(factors.items()):
        coarse = in_tf32(full)
        for below, title, value in ((0.0, name, full), (1.1, "rounded", coarse)):
            bits = f"{value.view(torch.int32).item() & 0xFFFFFFFF:032b}"
            texts = [*bits[:kept], *(None if below else bit for bit in bits[kept:])]
            colors = [SKY] * kept + [None if below else VERMILLION] * (32 - kept)
            hatches = [None] * kept + ["////" if below else None] * (32 - kept)
            look = {"width": width, "colors": colors, "hatch": hatches, "title": title}
            row = cells(ax, texts, x=left, y=0.8 + 2.7 * number + below, **look)
            label(ax, row.right + 0.3, row.y + 0.5, _digits(value), align="left", fontsize=11)
        told.append(f"{name} = {_digits(full)} is rounded to {_digits(coarse)}")
    right, found = (float(a * b) for a, b in (factors.values(), map(in_tf32, factors.values())))
    short = f"off by 1 in {abs(right / (right - found)):,.0f}"
    text = f"their product is {right:.6f} but comes out as {found:.6f}: {short}".replace("-", MINUS)
    label(ax, left, 6.5, text, align="left", fontsize=11)
    return Picture(
        figure,
        f"Two float32 numbers as 32 bits: a sign, 8 bits of exponent, 23 of fraction. TF32 rounds to "
        f"the first 10 of these. {'; '.join(told)}; {text}.",
    )


def in_tf32(x: torch.Tensor) -> torch.Tensor:
    """Return x rounded to 10 bits of fraction."""
    return ((x.view(torch.int32) + (1 << 12)) >> 13 << 13).view(torch.float32)


def _digits(x: torch.Tensor | float, places: int = 6) -> str:
    return f"{float(x):.{places}f}".replace("-", MINUS)


def rounds_down(SIZE: int = 4) -> Picture:
    """Draw cells of a grid around 0: rounded down, and toward zero."""
    figure, ax = new_sheet(19.2, 6.4)
    points, left, width = list(range(-2 * SIZE, 2 * SIZE)), 3.6, 0.96
    tints = {-2: PALE_ORANGE, -1: PALE_SKY, 0: YELLOW, 1: PALE_GREEN}
    rows = (("rounded down", [x // SIZE for x in points]), ("Triton's //", [int(x / SIZE) for x in points]))
    names = [str(x).replace("-", MINUS) for x in points]
    cells(ax, names, x=left, y=0.8, width=width, colors=None, title="x")
    for number, (name, found) in enumerate(rows):
        texts = [str(c).replace("-", MINUS) for c in found]
        cells(
            ax, texts, x=left, y=2.4 + 1.6 * number, width=width, colors=[tints[c] for c in found], title=name
        )
    down, towards = (found for _, found in rows)
    wrong = [x for x, a, b in zip(points, down, towards, strict=True) if a != b]
    label(
        ax,
        left,
        5.7,
        f"cell 0 is {2 * SIZE - 1} wide: {len(wrong)} of these points are in the wrong one",
        align="left",
    )
    return Picture(
        figure,
        f"Numbers from {points[0]} to {points[-1]}, divided by {SIZE}. Rounded down, each cell has "
        f"{SIZE} of them. Rounded toward zero, as Triton's // does, cell 0 has {towards.count(0)}, "
        f"from {-SIZE + 1} to {SIZE - 1}: {len(wrong)} of these are in the wrong "
        f"cell, {', '.join(map(str, wrong))}.",
    )


def eight_bits(a: Sequence[int] = (-44, -20), x: Sequence[int] = (24, 127)) -> Picture:
    """Draw int8 products as the 16 bits that they need, and the bits that int8 keeps."""
    figure, ax = new_sheet(19.2, 5.4)
    left, width, told, sums = 6.0, 0.52, [], [0, 0]
    for number, (one, other) in enumerate(zip(a, x, strict=True)):
        whole = one * other
        kept = int(torch.tensor(whole, dtype=torch.int16).to(torch.int8))
        sums = [sums[0] + whole, sums[1] + kept]
        name = f"{one} · {other} = {whole}".replace("-", MINUS)
        y = 1.0 + 1.4 * number
        colors = [VERMILLION] * 8 + [SKY] * 8
        row = cells(ax, f"{whole & 0xFFFF:016b}", x=left, y=y, width=width, colors=colors, title=name)
        label(ax, row.right + 0.3, y + 0.5, f"{kept}".replace("-", MINUS), align="left", fontsize=11)
        told.append(f"{name}, of which int8 keeps {kept}")
    ax.plot([left + 8 * width] * 2, [0.8, 3.6], color=INK, linewidth=2)
    label(ax, left + 8 * width - 0.3, 0.4, "dropped", align="right", color=FAINT)
    label(ax, left + 8 * width + 0.3, 0.4, "int8 keeps these", align="left", color=FAINT)
    words = f"the sum should be {sums[0]}, and is {sums[1]}".replace("-", MINUS)
    label(ax, left, 4.7, words, align="left", fontsize=11)
    return Picture(figure, f"Products as 16 bits: {'; '.join(told)}. {words[0].upper()}{words[1:]}.")


def brackets(row: tuple[int, int, int] = (1, 2, 3)) -> Picture:
    """Draw three elements joined from the left and from the right by a combine that halves once."""
    right = float(DISCOUNTED_SUM.spec(torch.tensor([row], dtype=torch.float32))[0, -1])
    a, b, c = row
    figure, ax = new_sheet(19.2, 6.4)
    width, look, told = 3.0, {"height": 1.1, "fontsize": 11}, []
    for panel, name in enumerate((f"({a}, {b}), {c}", f"{a}, ({b}, {c})")):
        x = 0.3 + 9.6 * panel
        pair, first = _halved(*row[panel : panel + 2])
        found, last = _halved(a, pair) if panel else _halved(pair, c)
        label(ax, x + 1.5 * width, 0.6, name, fontsize=11)
        cells(ax, row, x=x, y=1.2, width=width, colors=PALE_SKY, **look)
        box(ax, x + panel * width, 2.6, 2 * width, text=first, color=PALE_ORANGE, **look)
        box(ax, x + 2 * (1 - panel) * width, 2.6, width, text=f"{a if panel else c}", color=PALE_SKY, **look)
        ok = found == right
        box(ax, x, 4.0, 3 * width, text=last, color=GREEN if ok else VERMILLION, **look)
        words = "correct" if ok else f"with {a} halved twice: {right:g}"
        label(ax, x + 1.5 * width, 5.7, words)
        told.append(f"as {name} they are {first}, then {last} ({words})")
    return Picture(
        figure,
        f"The elements {a}, {b}, {c}, joined by a function that halves its left operand and adds its "
        f"right one: {'. Or '.join(told)}.",
    )


def _halved(a: float, b: float) -> tuple[float, str]:
    """Return a / 2 + b, and that sum in writing."""
    return a * 0.5 + b, f"{a:g} · 0.5 + {b:g} = {a * 0.5 + b:g}"


def two_maxima(case: Case = ATTENDED.cases[1], m: int = 2) -> Picture:
    """Draw a row's blocks: the maxima of its sums and of its weights, and how much each block counts."""
    x = make_inputs(ATTENDED, case)["x"][m].split(case.BLOCK_N)
    tops = [block.max().item() for block in x]
    top, sums, weights = -math.inf, [], []
    for largest in tops:
        weights.append(max(top, largest))
        top = largest if largest > top + STEP else top
        sums.append(top)
    counts = [math.exp(kept - best) for kept, best in zip(sums, weights, strict=True)]
    figure, ax = new_sheet(19.2, 7.2)
    left, width = 6.4, 12.5 / len(x)
    for number in range(len(x)):
        label(ax, left + (number + 0.5) * width, 0.5, f"block {number}", fontsize=11)
    marks = [SKY if kept == best else VERMILLION for kept, best in zip(sums, weights, strict=True)]
    for y, title, values, colors in (
        (1.0, "largest score", tops, PALE),
        (2.4, "sums relative to", sums, SKY),
        (3.5, "weights relative to", weights, marks),
        (4.9, "weight / correct weight", counts, marks),
    ):
        texts = [_number(value) for value in values]
        cells(ax, texts, x=left, y=y, width=width, colors=colors, title=title, fontsize=11)
    legend(ax, 6.4, (left, SKY, "same maximum"), (left + 4.6, VERMILLION, "a different one"))
    told = (", ".join(map(_number, values)) for values in (tops, sums, weights, counts))
    return Picture(
        figure,
        "Row {} in {} blocks, whose largest numbers are {}. The sums are relative to {}, and as reported a "
        "block's weights are relative to {}. So the blocks count {} times what they should.".format(
            m, len(x), *told
        ),
    )


def stripes(case: Case = RANDOM_ROUNDING.cases[1], blocks: int = 8) -> Picture:
    """Draw which halves are rounded up if all blocks share their draws, and if no two numbers do."""
    lanes = torch.arange(case.BLOCK_N).expand(blocks, -1)
    n = torch.arange(blocks * case.BLOCK_N).view(blocks, -1)
    figure, ax = new_sheet(19.2, 6.7)
    width, height, told = 8.4 / case.BLOCK_N, 0.5, []
    for panel, (name, numbers) in enumerate((("as reported", lanes), ("correct", n))):
        u = uniform(case.SEED, numbers)
        up = torch.floor(0.5 + u) > 0
        colors = [[BLUE if each else PALE for each in line] for line in up]
        draws = f"{u.numel()} numbers, {len(u.unique())} draws"
        left = 1.6 + 8.9 * panel
        label(ax, left + 4.2, 0.6, f"{name}: {draws}", fontsize=11)
        texts = [[""] * case.BLOCK_N] * blocks
        cells(ax, texts, x=left, y=1.2, width=width, height=height, colors=colors, row_index=not panel)
        told.append(f"{name}, {draws}")
    label(ax, 1.45, 0.6, "block", align="right", fontsize=9, color=FAINT)
    legend(ax, 1.7 + height * blocks, (1.6, BLUE, "rounded up"), (5.2, PALE, "rounded down"))
    return Picture(
        figure,
        f"{blocks} blocks of {case.BLOCK_N} numbers, one row each; every number ends in .5 and is rounded "
        f"up or down by its draw with seed {case.SEED}: {'; '.join(told)}. With {case.BLOCK_N} draws every "
        f"block has the pattern of the first, so there are stripes from top to bottom; with separate draws "
        f"there are none.",
    )


def one_bit(cases: Sequence[Case] = SINKS_AND_WINDOW.cases[3:]) -> Picture:
    """Draw the first S and the last W columns of two rows, and their sum in one bit."""
    figure, ax = new_sheet(19.2, 7.8)
    left, width, told = 3.5, 0.58, []
    x = left
    for place, case in enumerate(cases):
        n = torch.arange(case.N)
        first, last = n < case.S, n >= case.N - case.W
        one = (first.long() + last.long()) & 1
        both = first & last
        sizes = ", ".join(f"{name} = {case.numbers[name]}" for name in "NSW")
        label(ax, x, 0.5, f"N = {case.N}" if place else sizes, align="left", fontsize=11)
        rows = (("n < S", first, SKY), (f"n ≥ N {MINUS} W", last, SKY), ("sum, in one bit", one, GREEN))
        for number, (name, bits, color) in enumerate(rows):
            colors = [color if on else PALE for on in bits]
            if color == GREEN:
                colors = [VERMILLION if lost else each for lost, each in zip(both, colors, strict=True)]
            y, title = 1.8 + 1.5 * number, "" if place else name
            cells(
                ax, bits.long().tolist(), x=x, y=y, width=width, colors=colors, title=title, index=not number
            )
        told.append(f"with {sizes}, column {', '.join(map(str, n[both & (one == 0)].tolist()))}")
        x += case.N * width + 0.9
    legend(ax, 6.6, (left, VERMILLION, "in both: 1 + 1 is 2, and the low bit of 2 is 0"))
    return Picture(
        figure,
        f"Two rows: a 1 for each column among the first S, a 1 for each among the last W, and their sum in "
        f"one bit. A column in both is lost, because the low bit of 1 + 1 is 0: {'; '.join(told)}.",
    )


def too_many_stages(case: Case = TILED_PRODUCT.cases[1], stages: int = 8, most: int = 232_448) -> Picture:
    """Draw how much shared memory a loop's stages need, and how much a program may use."""
    M, N, K = case.BLOCK_M, case.BLOCK_N, case.BLOCK_K
    a, b = 2 * M * K, 2 * K * N  # bytes, of bfloat16
    figure, ax = new_sheet(19.2, 7.0)
    left, scale = 0.8, 17.4 / (stages * (a + b))
    for stage in range(stages):
        x = left + stage * (a + b) * scale
        fits = (stage + 1) * (a + b) <= most
        label(ax, x + (a + b) / 2 * scale, 1.6, f"stage {stage}", fontsize=11)
        for at, size, name in ((0, a, "a"), (a, b, "b")):
            fill = (PALE_SKY if name == "a" else PALE_ORANGE) if fits else VERMILLION
            box(ax, x + at * scale, 2.1, size * scale, 1.3, name, color=fill, fontsize=11)
        end = (stage + 1) * (a + b)
        label(ax, x + (a + b) * scale, 3.9, f"{end:,}", align="right", color=INK if fits else VERMILLION)
    edge = left + most * scale
    ax.plot([edge, edge], [0.9, 5.0], color=INK, linewidth=2.4)
    label(ax, edge - 0.2, 0.6, f"a program on an H100 may use {most:,} bytes", align="right", fontsize=11)
    legend(
        ax,
        5.6,
        (left, PALE_SKY, f"{M} x {K} of a: {a:,} bytes"),
        (left + 6.4, PALE_ORANGE, f"{K} x {N} of b: {b:,}"),
        (left + 12.2, VERMILLION, "does not fit"),
    )
    fit = most // (a + b)
    return Picture(
        figure,
        f"{stages} stages along shared memory, each with a tile of a and one of b, {a:,} and {b:,} "
        f"bytes. A "
        f"program on an H100 may use {most:,} bytes. {fit} stages take {fit * (a + b):,}, all {stages} "
        f"{stages * (a + b):,}: stage {fit} does not fit.",
    )


def adds_up(case: Case = TUNED_SUM.cases[2], blocks: Sequence[int] = (32, 64), tries: int = 3) -> Picture:
    """Draw a sum of ones after each run of a first call, which tries configurations, and of a second."""
    runs = [color for color in (SKY, ORANGE) for _ in range(tries)] + [VERMILLION]
    sums = [case.N * (number + 1) for number in range(len(runs))] + [case.N]
    figure, ax = new_sheet(19.2, 8.2)
    left, width, foot, tallest = 0.6, 2.15, 6.2, 5.2
    own = left + 2 * tries * width  # where the calls' own runs are
    starts = [left + number * width for number in range(len(runs))] + [own + width + 0.6]
    for x, total, color in zip(starts, sums, [*runs, GREEN], strict=True):
        height = tallest * total / max(sums)
        box(ax, x + 0.2, foot - height, width - 0.4, height, color=color)
        label(ax, x + width / 2, foot - height - 0.35, str(total), fontsize=11)
    for number, block in enumerate(blocks):
        middle = left + (number + 0.5) * tries * width
        label(ax, middle, foot + 0.5, f"trials with blocks of {block}", fontsize=11)
    for x, first, name in ((own, left, "first call: one z for all"), (starts[-1], starts[-1], "second call")):
        label(ax, x + width / 2, foot + 0.5, "the call itself", fontsize=11)
        ax.plot([first + 0.2, x + width - 0.2], [foot + 1.1] * 2, color=INK, linewidth=1.2)
        label(ax, (first + x + width) / 2, foot + 1.6, name, fontsize=11)
    return Picture(
        figure,
        f"A sum of {case.N} ones. Within the first call autotune tries the kernel, here {tries} times with "
        f"each of blocks of {' and '.join(map(str, blocks))}, on one z, which is "
        f"{', '.join(map(str, sums[:-2]))} after them; the call's own run leaves {sums[-2]}. The second "
        f"call "
        f"tries nothing, starts with 0 and leaves {sums[-1]}.",
    )


def left_over(case: Case = TUNED_ROWS.cases[4], blocks: Sequence[int] = (512, 256)) -> Picture:
    """Draw a row after two configurations, one after the other, and after the second one alone."""
    N, (large, small) = case.N, blocks
    figure, ax = new_sheet(19.2, 6.1)
    left, width = 5.9, 12.9 / N
    done = [min(block, N) for block in blocks]
    rows = (
        (f"blocks of {large} (removed)", ((0, done[0], SKY, None, f"stored by blocks of {large}"),)),
        (
            f"then blocks of {small}",
            (
                (0, done[1], ORANGE, None, f"stored by blocks of {small}"),
                (done[1], N, SKY, None, "as before"),
            ),
        ),
        (
            f"blocks of {small} alone",
            (
                (0, done[1], ORANGE, None, f"stored by blocks of {small}"),
                (done[1], N, None, "////", "what was in memory"),
            ),
        ),
    )
    for number, (name, parts) in enumerate(rows):
        y = 0.9 + 1.5 * number + 0.8 * (number == 2)
        label(ax, left - 0.3, y + 0.5, name, align="right", fontsize=11)
        for first, end, color, hatch, text in parts:
            x, wide = left + first * width, (end - first) * width
            box(ax, x, y, wide, 1.0, "" if hatch else text, color=color, hatch=hatch)
            if hatch:
                label(ax, x + wide, y + 1.4, text, align="right")
    for at in (0, done[1], N):
        label(ax, left + at * width, 0.7, str(at), align="bottom", color=FAINT)
    ax.plot([0.4, left + N * width], [4.05, 4.05], color=LINE, linewidth=1, linestyle="--")
    return Picture(
        figure,
        f"A row of {N} numbers. Blocks of {large}, the option that was removed, store all of it. Blocks of "
        f"{small}, tried after them, "
        f"store 0 to {done[1] - 1}, and the rest still has what blocks of {large} stored: the row "
        f"is correct. Blocks of {small} alone store 0 to {done[1] - 1}; the rest is what was in memory.",
    )


def compiles(most: int = 32) -> Picture:
    """Draw launches for 1, 2, 3, ... requests and the kernel that each one uses."""
    sizes = range(1, most + 1)
    stalls = first_of_class(sizes)
    taken = {name: [M for M in sizes if class_of(M) == name] for name in map(class_of, sizes)}
    figure, ax = new_sheet(19.2, 7.2)
    left, width = 4.1, 14.8 / most
    cells(ax, list(sizes), x=left, y=0.5, width=width, colors=None, fontsize=9)
    label(ax, left - 0.25, 1.0, "M, in this order", align="right", fontsize=11)
    y = 2.1
    for name, some in taken.items():
        label(ax, left - 0.25, y + 0.5, f"for {name}", align="right", fontsize=11)
        ax.plot([left, left + most * width], [y + 0.5] * 2, color=LINE, linewidth=0.8, zorder=0)
        for M in some:
            box(ax, left + (M - 1) * width, y, width, color=VERMILLION if M in stalls else GREEN)
        y += 1.3
    legend(ax, y + 0.3, (left, VERMILLION, "compiles: it stalls"), (left + 5.4, GREEN, "already compiled"))
    told = ", ".join(f"one for {name} takes {len(some)}" for name, some in taken.items())
    return Picture(
        figure,
        f"Launches for M = 1 to {most}, in this order, and the {len(taken)} kernels that take them: "
        f"{told}. Each "
        f"is compiled at its first launch: it stalls at M = {', '.join(map(str, sorted(stalls)))}.",
    )
