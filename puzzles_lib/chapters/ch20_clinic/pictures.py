"""Pictures for chapter 20."""

import math
from collections.abc import Sequence

import torch
from matplotlib.axes import Axes

from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import uniform
from puzzles_lib.chapters.ch20_clinic.patients.p43_running_sums import PUZZLE as RUNNING_SUMS
from puzzles_lib.chapters.ch20_clinic.patients.p47_any_above import PUZZLE as ANY_ABOVE
from puzzles_lib.chapters.ch20_clinic.patients.p48_kept_scores import PUZZLE as KEPT_SCORES
from puzzles_lib.chapters.ch20_clinic.patients.p53_norm_and_turn import PUZZLE as NORM_AND_TURN
from puzzles_lib.chapters.ch20_clinic.patients.p55_products import PUZZLE as PRODUCTS
from puzzles_lib.chapters.ch20_clinic.patients.p57_discounted_sum import PUZZLE as DISCOUNTED_SUM
from puzzles_lib.chapters.ch20_clinic.patients.p59_attended import PUZZLE as ATTENDED
from puzzles_lib.chapters.ch20_clinic.patients.p59_attended import STEP
from puzzles_lib.chapters.ch20_clinic.patients.p60_random_rounding import PUZZLE as RANDOM_ROUNDING
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
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, legend, new_sheet
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case

MINUS = "\N{MINUS SIGN}"


SYMPTOMS = (
    ("some elements", ("draw a map of the wrong ones", "which size is the first that fails?")),
    ("some values", ("sort the inputs: which fail?", "compare two that hardly differ")),
    ("some runs", ("what ran before it?", "what ran at the same time?")),
    ("every result slightly off", ("how many digits are correct?", "which inputs come out exact?")),
    (
        "the whole, not its parts",
        ("join two parts by hand, then three", "what must be true after each part?"),
    ),
)
"""What is wrong, and what to do first."""


def symptoms() -> Picture:
    """Draw a map from what is wrong to what to do first, with what such results look like."""
    figure, ax = new_sheet(20.0, 2.3 + 1.9 * len(SYMPTOMS))
    label(ax, 3.4, 0.7, "what's wrong", fontsize=12, color=FAINT)
    label(ax, 15.4, 0.7, "what to do first", fontsize=12, color=FAINT)
    drawn = (_some_places, _some_values, _some_runs, _all_of_them, _only_joined)
    for number, ((seen, places), draw) in enumerate(zip(SYMPTOMS, drawn, strict=True)):
        y = 1.4 + 1.9 * number
        label(ax, 0.1, y + 0.75, str(number), align="left", color=FAINT)
        box(ax, 0.7, y, 5.5, 1.5, seen, color=PALE, fontsize=11)
        draw(ax, 6.8, y)
        box(ax, 11.6, y, 7.9, 1.5, "\n".join(places), color=PALE_SKY)
    y = 1.5 + 1.9 * len(SYMPTOMS)
    legend(ax, y, (6.8, SKY, "correct"), (9.5, VERMILLION, "wrong"), (12.0, YELLOW, "slightly off"))
    told = "; ".join(f"{seen}: {', '.join(places)}" for seen, places in SYMPTOMS)
    return Picture(figure, f"A map from what is wrong to what to do first. {told}")


def _some_places(ax: Axes, x: float, y: float) -> None:
    """The wrong results have a pattern of places."""
    colors = [[VERMILLION if m in (1, 2) and 4 <= n < 8 else SKY for n in range(11)] for m in range(4)]
    cells(ax, [[""] * 11] * 4, x=x, y=y, width=0.375, height=0.375, colors=colors)


def _some_values(ax: Axes, x: float, y: float) -> None:
    """The wrong results have a pattern of values, once these are sorted."""
    values = range(1, 8)
    colors = [VERMILLION if 3 < value < 7 else SKY for value in values]
    texts = [str(value) for value in values]
    cells(ax, texts, x=x, y=y + 0.35, width=0.59, height=0.8, colors=colors)


def _some_runs(ax: Axes, x: float, y: float) -> None:
    """The second of three runs is wrong."""
    for run in range(3):
        colors = [VERMILLION if run == 1 and n in (2, 5, 6) else SKY for n in range(8)]
        label(ax, x, y + 0.2 + 0.52 * run, f"run {run + 1}", align="left", fontsize=9)
        cells(ax, [""] * 8, x=x + 1.25, y=y + 0.52 * run, width=0.36, height=0.4, colors=colors)


def _all_of_them(ax: Axes, x: float, y: float) -> None:
    """No result is correct, and none is far off."""
    cells(ax, [[""] * 11] * 4, x=x, y=y, width=0.375, height=0.375, colors=YELLOW)


def _only_joined(ax: Axes, x: float, y: float) -> None:
    """Two correct parts, whose whole is wrong."""
    for at, text in ((0.0, "A"), (1.15, "B")):
        box(ax, x + at, y + 0.35, 0.8, 0.8, text, color=SKY)
    arrow(ax, (x + 2.05, y + 0.75), (x + 2.45, y + 0.75))
    box(ax, x + 2.55, y + 0.35, 1.6, 0.8, "A B", color=VERMILLION)


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
                text += "\nand is before the tensor" * wrapped
                label(
                    ax,
                    place + (0.6 if wrapped else -0.6),
                    y + 1.7 if wrapped else y - 0.55,
                    text,
                    align="left" if wrapped else "right",
                )
        label(ax, middle - 0.4, y + 0.5, name, align="right")
    should = middle + (last + T * K / 2) / 2**31 * scale
    arrow(ax, (should, 2.25), (should - 2 * scale, 3.95), color=VERMILLION)
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


def stored_twice(case: Case = NORM_AND_TURN.cases[1], warps: int = 4) -> Picture:
    """Draw which warp stores which part of a row, which one stores its end again, and two ways to end."""
    N, H = case.N, case.H
    stores = ((0, N, "first store"), (N - 2 * H, H, "second store"), (N - H, H, "third store"))
    tints = (SKY, ORANGE, GREEN, YELLOW)
    figure, ax = new_sheet(19.2, 10.2)
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
    tail = left + (N - 2 * H) * width
    endings = (
        ("if warp 0 is last", (SKY, "normalized and rotated: correct")),
        ("if warps 2 and 3 are last", (VERMILLION, "only normalized: wrong")),
    )
    for number, (name, (color, text)) in enumerate(endings):
        y = 7.0 + 1.3 * number
        label(ax, left - 0.3, y + 0.5, name, align="right", fontsize=11)
        box(ax, left, y, tail - left, 1.0, "normalized", color=PALE)
        box(ax, tail, y, 2 * H * width, 1.0, text, color=color)
    return Picture(
        figure,
        f"A row of {N}, whose last {2 * H} are rotated, and the warps that store it: each stores its 32 "
        f"in the "
        f"first store, and warp 0 stores the two parts of the end in the second and third. So elements "
        f"are stored "
        f"twice: "
        f"{'; '.join(told)}. Which of the two comes last is undefined. "
        f"If warp 0 is last, the end is rotated. If warps 2 and 3 are last, it's only normalized.",
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


def left_over(case: Case = TUNED_ROWS.cases[4], blocks: Sequence[int] = (512, 256, 32)) -> Picture:
    """Draw a row after autotune's trials, one after the other, and after the one that's chosen, alone."""
    N = case.N
    figure, ax = new_sheet(19.2, 9.6)
    left, width = 5.9, 12.9 / N
    done = dict(zip((min(block, N) for block in blocks), (SKY, ORANGE, GREEN), strict=True))
    tried = [f"{'then ' * bool(n)}blocks of {block}" for n, block in enumerate(blocks)]
    tried[0] += " (removed)"
    for y0, names, ends in (
        (0.9, tried, list(done)),
        (0.9 + 1.25 * len(tried) + 0.8, [f"without it, {tried[1][5:]}", tried[2]], list(done)[1:]),
    ):
        for number, name in enumerate(names):
            y = y0 + 1.25 * number
            label(ax, left - 0.3, y + 0.5, name, align="right", fontsize=11)
            start = 0
            for end in reversed(ends[: number + 1]):
                if end > start:
                    text = f"by blocks of {blocks[list(done).index(end)]}" if end - start > 99 else ""
                    box(ax, left + start * width, y, (end - start) * width, 1.0, text, color=done[end])
                    start = end
            if start < N:
                box(ax, left + start * width, y, (N - start) * width, 1.0, color=None, hatch="////")
    line = 0.9 + 1.25 * len(tried) + 0.2
    ax.plot([0.4, left + N * width], [line, line], color=LINE, linewidth=1, linestyle="--")
    for at in (0, *list(done)[:0:-1], N):
        label(ax, left + at * width, 0.7, str(at), align="bottom", color=FAINT)
    legend(ax, 8.7, (left, None, "what was in memory before", "////"))
    reach = list(done)[1]
    return Picture(
        figure,
        f"A row of {N} numbers, as autotune's trials leave it, one after another. With the option that was "
        f"removed, blocks of {blocks[0]} store all of it. Blocks of {blocks[1]} then store 0 to {reach - 1} "
        f"once more, and blocks of {blocks[2]} store 0 to {blocks[2] - 1}; the rest is still there: the row "
        f"is correct. Without it, blocks of {blocks[1]} store 0 to {reach - 1}, and blocks of {blocks[2]} "
        f"change only the first {blocks[2]}; the rest is what was in memory.",
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
