"""Pictures for chapter 15."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PALE,
    PALE_GREEN,
    PALE_SKY,
    PAPER,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet
from puzzles_lib.inspector.step import PRODUCTS
from puzzles_lib.timing.h200 import MULTIPROCESSORS

UNFUSED, CUBLAS = "dequantize + cuBLAS", "cuBLAS alone, x^ ready"


def _size(row: Mapping) -> tuple[int, int, int]:
    """Return K, COUT, CIN of a row's case."""
    rows, cout, cin = row["case"].split(", ")[-1].split("x")
    return int(rows), int(cout), int(cin)


def _of(rows: Sequence[Mapping], count: int) -> dict[str, Mapping]:
    return {row["path"]: row for row in rows if _size(row)[0] == count}


def least_bytes(rows: int, cout: int, cin: int, group: int = 256) -> int:
    """Return the least bytes that dW from 2-bit words must move: words, scales and minima, dy, dW."""
    return rows * cin // 4 + 4 * rows * cin // group + 2 * rows * cout + 2 * cout * cin


# ---- the problem


def roofline(
    rows: Sequence[Mapping], about: str, flops: float, bandwidth: float, rungs: bool = False
) -> Picture:
    """Draw what arithmetic and memory allow, and where cuBLAS and the unfused path are.

    rows: recorded rows of bench "ladder" (`puzzles_lib.timing.recorded`). flops, bandwidth: what the chip can
        do, per second. rungs: whether to draw the chapter's versions, too, at the long K.
    """
    figure = new_figure(8.4, 5.0)
    ax = figure.subplots()
    xs = [60, flops / bandwidth, 1800]
    ax.plot(xs, [min(flops, bandwidth * x) / 1e12 for x in xs], color=INK, linewidth=2)
    label(ax, 66, 420, f"memory:\n{bandwidth / 1e12:.2f} TB/s", align="left baseline", fontsize=9)
    clock = flops / (2 * PRODUCTS * MULTIPROCESSORS) / 1e9
    words = f"arithmetic: {flops / 1e12:.0f} TFLOP/s\nat {clock:.2f} GHz"
    label(ax, 1750, flops / 1e12 * 1.08, words, align="right bottom", fontsize=9)
    told = []
    for count, filled in ((max(_sizes(rows)), True), (min(_sizes(rows)), False)):
        paths = _of(rows, count)
        cout, cin = _size(next(iter(paths.values())))[1:]
        work = 2 * count * cout * cin
        least = least_bytes(count, cout, cin)
        ready = 2 * count * (cin + cout) + 2 * cout * cin  # x̂ as bfloat16 is there, and read
        points = {UNFUSED: least + 4 * count * cin, CUBLAS: ready}  # unfused: x̂ written and read
        points = {name: (work / moved, work / paths[name]["us"] / 1e6) for name, moved in points.items()}
        fill = {"markersize": 8, "zorder": 3}
        looks = ((UNFUSED, VERMILLION, "o"), (CUBLAS, ORANGE, "s"))
        for name, color, mark in looks:
            face = color if filled else PAPER
            words = f"{name.replace('x^', 'x̂')}, K = {count}"
            ax.plot(*points[name], mark, color=color, markerfacecolor=face, label=words, **fill)
        ax.axvline(work / least, color=BLUE, linestyle="-" if filled else ":", linewidth=1.2)
        side, near = ("left", 1.04) if filled else ("right", 0.96)
        label(ax, work / least * near, 72, f"fused,\nK = {count}", align=side, fontsize=9)
        told += [
            f"{n.replace('x^', 'x̂')}, K = {count}: {x:.0f} FLOP per byte, {y:.0f} TFLOP/s"
            for n, (x, y) in points.items()
        ]
        told.append(f"fused, K = {count}: {work / least:.0f} FLOP per byte")
        if rungs and filled:
            speeds = {name: work / paths[name]["us"] / 1e6 for name in rung_names(rows)}
            ax.plot([work / least] * len(speeds), speeds.values(), "^-", color=BLUE, markersize=6, zorder=3)
            marks: list[tuple[float, list[str]]] = []  # rungs of about the same speed share one
            for name, speed in speeds.items():
                if marks and speed < 1.02 * marks[-1][0]:
                    marks[-1][1].append(name.split()[0])
                else:
                    marks.append((speed, [name.split()[0]]))
                told.append(f"rung {name}: {speed:.0f} TFLOP/s")
            for place, (speed, numbers) in enumerate(marks):
                side, near = ("right", 0.86) if place % 2 else ("left", 1.07)
                words = "rung " * (not place) + ", ".join(numbers)
                label(ax, work / least * near, speed, words, align=side, fontsize=9, behind=PAPER)
    ax.set(xscale="log", yscale="log", xlim=(60, 1800), ylim=(60, 1900))
    ax.set_xticks([100, 200, 400, 800, 1600], ["100", "200", "400", "800", "1600"], fontsize=9)
    ax.set_yticks([100, 200, 400, 800], ["100", "200", "400", "800"], fontsize=9)
    ax.minorticks_off()
    ax.set_xlabel("FLOP per byte that must be moved", fontsize=10)
    ax.set_ylabel("TFLOP/s", fontsize=10)
    ax.grid(color=PALE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    figure.supxlabel(about, fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"Roofline, {about}: a slope of {bandwidth / 1e12:.2f} TB/s ends in a flat roof of "
        f"{flops / 1e12:.0f} TFLOP/s at {flops / bandwidth:.0f} FLOP per byte. {'; '.join(told)}. The fused "
        f"paths are far to the right of the corner, so arithmetic limits them, not memory.",
    )


class Limits(Protocol):
    """The parts of a forecast that `climb` needs, in microseconds."""

    @property
    def issue_us(self) -> float: ...

    @property
    def tensor_us(self) -> float: ...

    @property
    def sums_us(self) -> float: ...


def climb(bounds: Mapping[str, Limits], rows: Sequence[Mapping], about: str) -> Picture:
    """Draw where each version's time in a burst goes: what its forecast counts, and the rest.

    bounds: the versions' bounds by name, in order, at the largest K of the rows. rows: bench "ladder".
    """
    figure = new_figure(8.4, 4.6)
    ax = figure.subplots()
    count = max(_sizes(rows))
    burst = _of(rows, count)
    told = []
    looks = (
        ("issuing instructions", SKY),
        ("tensor cores", GREEN),
        ("partial sums", YELLOW),
        ("the rest", PALE),
    )
    for place, (name, limits) in enumerate(bounds.items()):
        us = burst[name]["us"]
        known = [limits.issue_us, limits.tensor_us, limits.sums_us]
        left = 0.0
        for (what, color), part in zip(looks, [*known, us - sum(known)], strict=True):
            legend = what if not place else None
            rest = {"hatch": "//", "edgecolor": LINE} if what == "the rest" else {"edgecolor": PAPER}
            ax.barh(place, part, left=left, color=color, height=0.68, label=legend, **rest)
            left += part
        label(ax, max(us, burst[UNFUSED]["us"]) + 12, place, f"{us:.0f} µs", align="left", fontsize=9)
        issue, tensor, sums = known
        told.append(
            f"{name}: {us:.0f} µs, of which {issue:.0f} to issue, {tensor:.0f} on tensor cores, {sums:.0f} "
            f"for partial sums, {us - sum(known):.0f} the rest"
        )
    for path, color in ((CUBLAS, ORANGE), (UNFUSED, VERMILLION)):
        us = burst[path]["us"]
        words = f"{path.replace('x^', 'x̂')}: {us:.0f} µs"
        ax.axvline(us, color=color, linewidth=1.6, zorder=3, label=words)
        told.append(words)
    ax.set_yticks(range(len(bounds)), list(bounds), fontsize=9)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12 * max(burst[name]["us"] for name in bounds))
    ax.tick_params(axis="x", labelsize=9)
    ax.set_xlabel(f"µs in a burst, K = {count}", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=9, frameon=False, loc="lower right")
    figure.supxlabel(about, fontsize=9, color=FAINT)
    return Picture(figure, f"Where the time of each rung goes, K = {count}, {about}. {'; '.join(told)}.")


def _sizes(rows: Sequence[Mapping]) -> set[int]:
    return {_size(row)[0] for row in rows}


def rung_names(rows: Sequence[Mapping]) -> list[str]:
    """Return the ladder's versions, in order."""
    return sorted({row["path"] for row in rows if row["path"][0].isdigit()})


def traffic(rows: int = 100864, cout: int = 768, cin: int = 768) -> Picture:
    """Draw the bytes that go through memory, unfused and fused."""
    packed = rows * cin // 4 + 4 * rows * cin // 256
    x, dy = 2 * rows * cin, 2 * rows * cout
    parts = {
        "unfused": [
            ("packed", packed, YELLOW),  # colors as in chapter 12
            ("x̂ written", x, SKY),
            ("x̂ read", x, SKY),
            ("dy", dy, ORANGE),
        ],
        "fused": [("packed", packed, YELLOW), ("dy", dy, ORANGE)],
    }
    figure = new_figure(7.2, 2.1)
    ax = figure.subplots()
    told = []
    for place, (name, blocks) in enumerate(parts.items()):
        left = 0.0
        for what, count, color in blocks:
            ax.barh(place, count / 1e6, left=left / 1e6, color=color, height=0.62, edgecolor="white")
            middle = (left + count / 2) / 1e6
            if count < 30e6:  # too narrow for its name
                label(ax, 2, place - 0.36, what, align="left bottom", fontsize=9)
            else:
                label(ax, middle, place, what, fontsize=9)
            left += count
        told.append(f"{name}: {', '.join(w for w, *_ in blocks)}")
    ax.set_yticks(range(len(parts)), parts, fontsize=10)
    ax.invert_yaxis()
    ax.set_xlim(0, 520)
    ax.set_xlabel(f"MB through memory, K = {rows}, without dW; packed: words, scales and minima", fontsize=9)
    ax.tick_params(axis="x", labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"Bytes through memory for K = {rows}, without dW. {'. '.join(told)}. dy and each trip of x̂ "
        "are of the same length; packed (words, scales and minima) is short. "
        "The fused version never has x̂ in memory.",
    )


# ---- what changes from rung to rung


def operands() -> Picture:
    """Draw an iteration with x̂ as the second operand (shared memory) and as the first (registers)."""
    figure, ax = new_sheet(25, 11.8)
    left, unpack, store, barrier, product = 4.8, 4.2, 3.4, 2.4, 4.6
    told = []
    for top, title, through in (
        (0.9, "rungs 1 and 2: dyᵀ × x̂", True),
        (6.3, "from rung 3 on: x̂ᵀ × dy", False),
    ):
        label(ax, 0.2, top - 0.35, title, align="left", weight="bold")
        for lane, name in enumerate(("threads", "tensor cores", "shared memory")):
            label(ax, left - 0.3, top + (0.5, 1.8, 3.5)[lane], name, align="right")
        box(ax, left, top, unpack, 1, "unpack x̂", color=SKY, fontsize=9.5)
        start = left + unpack + (store + barrier if through else 0)  # of the product
        end = start + product
        box(ax, start, top + 1.3, product, 1, "wgmma", color=GREEN, fontsize=9.5)
        box(ax, start - 0.8, top + 3.1, end - start + 0.8, 0.5, color=ORANGE)
        label(ax, (start + end) / 2, top + 3.35, "dy", fontsize=9)
        arrow(ax, (start + 0.9, top + 3.1), (start + 0.9, top + 2.35))
        if through:
            x = left + unpack
            box(ax, x, top, store, 1, "store x̂", color=SKY, fontsize=9.5)
            box(ax, x + store, top, barrier, 1, color=None, hatch="...")
            label(ax, x + store + barrier / 2, top + 0.5, "barrier", fontsize=9, color=FAINT, behind="white")
            box(ax, x + store, top + 3.6, end - x - store, 0.5, "x̂", color=SKY, fontsize=9)
            arrow(ax, (x + store / 2, top + 1.05), (x + store + 0.3, top + 3.55))
            arrow(ax, (end - 0.9, top + 3.6), (end - 0.9, top + 2.35))
        else:
            box(ax, start, top, product, 1, "x̂ stays in registers", color=None, dashed=True, fontsize=9.5)
            arrow(ax, (start + product / 2, top + 0.8), (start + product / 2, top + 1.28))
        ax.plot([end, end], [top - 0.2, top + 4.2], color=VERMILLION, linewidth=2)
        label(ax, end + 0.2, top + 1.8, "done", align="left", color=VERMILLION)
        way = "is stored to shared memory, then a barrier" if through else "stays in registers"
        told.append(f"{title}, x̂ {way}")
    label(ax, left, 11.3, "time →   (a sketch, not a measurement)", align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"A sketch of one iteration: where the tensor cores take their operands from, and when. "
        f"{'; '.join(told)}. The first operand may come from registers; the second always comes from shared "
        "memory. In the transposed product, unpacked values stay in their thread, and the wgmma starts as "
        "soon as they are ready.",
    )


def block(field: int = 1) -> Picture:
    """Draw which rows of x̂ the words of one column hold, in a block of 128 rows. field: is highlighted."""
    figure, ax = new_sheet(25, 8.4)
    left, width = 6.2, 1.9
    label(ax, left + 4 * width, 0.5, "the 8 fields of a word, and the row of x̂ in each")
    shown = (0, 1, 2, 15)
    for place, r in enumerate(shown):
        texts = [str(16 * j + r) for j in range(7, -1, -1)]
        colors = [YELLOW if j == field else PALE for j in range(7, -1, -1)]
        index = [f"{j}" for j in range(7, -1, -1)] if not place else False
        y = 1.9 + place + (r == shown[-1]) * 0.9
        cells(ax, texts, x=left, y=y, width=width, colors=colors, title=f"word r = {r}", index=index)
    label(ax, left - 1.5, 5.35, "⋮")
    label(ax, left + (7.5 - field) * width, 5.35, "⋮")
    words = f"field {field}: rows {16 * field} to {16 * field + 15}, for one small dot"
    label(ax, left + (7.5 - field) * width, 7.6, words)
    return Picture(
        figure,
        f"The 16 words of one column in a block of 128 rows. Word r has the codes of 8 rows, 16 apart: field "
        f"j is row 16 j + r. So field {field} of the 16 words is rows {16 * field} to {16 * field + 15}, for "
        "one small dot.",
    )


def subnormals() -> Picture:
    """Draw two bits at four places of an otherwise zero bfloat16: each time a multiple of a power of two."""
    figure, ax = new_sheet(25, 8.6)
    left, top, width = 3.4, 1.9, 0.86
    parts = [("sign", 1, VERMILLION), ("exponent", 8, YELLOW), ("mantissa", 7, SKY)]
    x = left
    for name, count, _ in parts:
        middle = x + count * width / 2
        label(ax, middle, 0.55, name if count > 1 else "±")
        x += count * width
    told = []
    for i in range(4):
        fills = [color for _, count, color in parts for _ in range(count)]
        bits = ["0"] * 16
        for at in (2 * i, 2 * i + 1):
            bits[15 - at] = "c"
        shade = [BLUE if b == "c" else fill for b, fill in zip(bits, fills, strict=True)]
        index = [str(15 - n) for n in range(16)] if i == 0 else False
        row = cells(
            ax, bits, x=left, y=top + 1.45 * i, width=width, colors=shade, title=f"field {i}", index=index
        )
        values = torch.tensor([q << 2 * i for q in range(4)], dtype=torch.int16).view(torch.bfloat16)
        unit = values[1].double().log2().int().item()
        assert torch.equal(values.double(), torch.arange(4).double() * 2.0**unit)
        label(ax, row.right + 0.4, row.y + 0.5, f"= code · 2{_raised(unit)}", align="left", fontsize=12)
        if i == 3:
            label(ax, row.right + 0.4, row.y + 1.4, "c in exponent and mantissa", align="left", fontsize=9)
        told.append(f"field {i}: code · 2^{unit}")
    return Picture(
        figure,
        f"The 16 bits of a bfloat16: a sign bit, 8 exponent bits, 7 mantissa bits. If all other bits are "
        f"zero, a 2-bit code (cc) reads as a number: {', '.join(told)}. Field 3 has one bit in the "
        f"mantissa and one in the exponent, and is a multiple too: numbers with exponents "
        f"0 and 1 have the same spacing.",
    )


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


BLOCKS = 2  # of 128 rows, in `timeline`
CLOCKS = {
    "rung 4: all dots but a block's last are waited for": (8, 1, 810 / 8, 2048 / 8),
    "rung 5: each dot is cut into halves, and the second half runs on": (2, 2, 572, 1024),
}
"""By title: dots per block of 128 rows, groups of wgmma per dot, clocks to issue a dot's instructions, clocks
of its products."""


def timeline() -> Picture:
    """Draw when the threads unpack and wait, and when the tensor cores work, on the scale of their clocks."""
    figure, ax = new_sheet(27, 8.6)
    left, scale = 4.8, 19 / 5615
    told = []
    for top, (title, (dots, groups, issue, products)) in zip((0.9, 5.0), CLOCKS.items(), strict=True):
        label(ax, 0.2, top - 0.35, title, align="left", weight="bold")
        for lane, name in enumerate(("threads", "tensor cores")):
            label(ax, left - 0.3, top + 0.5 + 1.1 * lane, name, align="right")
        now, free = 0.0, 0.0  # clocks at which the threads begin to unpack, and the tensor cores are idle
        for j in range(BLOCKS * dots):
            box(ax, left + scale * now, top, scale * issue, 1, "unpack" * (dots == 2), color=SKY, fontsize=9)
            now += issue
            begins = max(now, free)
            for half in range(groups):
                words = f"{j}{'ab'[half]}" if groups == 2 else str(j % dots)
                x, width = left + scale * (begins + half * products / groups), scale * products / groups
                box(ax, x, top + 1.1, width, 1, words, color=GREEN, fontsize=9)
            free = begins + products
            runs_on = groups == 2 or j % dots == dots - 1  # into the next unpacking
            resumes = begins + products / 2 if groups == 2 else begins if runs_on else free
            if resumes > now:
                box(ax, left + scale * now, top, scale * (resumes - now), color=None, hatch="...")
            now = resumes
        end = left + scale * free
        ax.plot([end, end], [top - 0.2, top + 2.4], color=VERMILLION, linewidth=2)
        label(ax, end + 0.2, top + 1.6, f"{free:.0f}\nclocks", align="left", color=VERMILLION, fontsize=9)
        told.append(f"{title}; {free:.0f} clocks for {BLOCKS * dots} dots")
    words = f"time →   {BLOCKS} blocks of 128 rows, to scale: clocks as the box has them; dotted: a wait"
    label(ax, left, 8.1, words, align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"What works when, for {BLOCKS} blocks of 128 rows, to the scale of the clocks. {'. '.join(told)}. "
        f"In rung 4, the threads unpack for a short dot, wait while the tensor cores compute it, then unpack "
        f"for the next. Only the eighth dot of a block runs while they unpack. In rung 5, they wait for the "
        f"first half of a dot, and unpack for the next dot while the tensor cores compute the second half.",
    )


def in_flight() -> Picture:
    """Draw how the hasty kernel overwrites registers that a wgmma still reads, and why rung 5 doesn't."""
    figure, ax = new_sheet(30, 14.4)
    left, unpack, product, copy = 6.4, 5.0, 8.0, 2.2
    label(
        ax,
        0.2,
        0.5,
        "hasty: unpacks into the registers that the wgmma is reading",
        align="left",
        weight="bold",
    )
    top = 1.2
    for lane, name in enumerate(("threads", "R88 and others", "tensor cores")):
        label(ax, left - 0.3, top + 0.5 + 1.7 * lane, name, align="right")
    second, end = left + unpack, left + unpack + product
    box(ax, left, top, unpack, 1, "unpack s", color=SKY, fontsize=9.5)
    box(ax, second, top, unpack, 1, "unpack s + 1", color=YELLOW, fontsize=9.5)
    box(ax, second + unpack, top, product - unpack, color=None, hatch="...")
    label(
        ax, second + unpack + (product - unpack) / 2, top + 0.5, "wait", fontsize=9, color=FAINT, behind=PAPER
    )
    box(ax, left + unpack, top + 1.7, 1.7, 1, "x̂ of s", color=SKY, fontsize=9)
    box(ax, second + 1.7, top + 1.7, product - 1.7 + 4, 1, "x̂ of s + 1", color=YELLOW, fontsize=9.5)
    box(ax, second, top + 3.4, product, 1, "wgmma s reads them", color=GREEN, fontsize=9.5)
    box(ax, end, top + 3.4, 4, 1, "wgmma s + 1", color=PALE_GREEN, fontsize=9)
    arrow(ax, (second + 1.7, top + 1.05), (second + 1.7, top + 1.65), color=VERMILLION)
    arrow(ax, (second + 0.8, top + 2.75), (second + 0.8, top + 3.35))
    for x in (2.6, 4.4, 6.2):
        arrow(ax, (second + x, top + 2.75), (second + x, top + 3.35), color=VERMILLION)
    label(ax, second + 2.0, top + 1.35, "writes", align="left", color=VERMILLION, fontsize=9)
    label(ax, second + 0.5, top + 3.05, "reads", align="right", fontsize=9)
    label(
        ax, second + 6.5, top + 3.05, "reads the wrong iteration", align="left", color=VERMILLION, fontsize=9
    )
    label(ax, second + 6.5, top + 4.85, "so the sums are garbage",
          align="left", color=VERMILLION, fontsize=9.5)  # fmt: skip
    top = 8.0
    label(ax, 0.2, top - 0.7, "rung 5: unpacks into other registers, and copies after the wait", align="left",
          weight="bold")  # fmt: skip
    for lane, name in enumerate(("threads", "other registers", "wgmma's registers", "tensor cores")):
        label(ax, left - 0.3, top + 0.5 + 1.3 * lane, name, align="right")
    start = left + copy
    done = start + product
    box(ax, left, top, copy, 1, "copy", color=SKY, fontsize=9.5)
    box(ax, start, top, unpack, 1, "unpack s + 1", color=YELLOW, fontsize=9.5)
    box(ax, start + unpack, top, product - unpack, color=None, hatch="...")
    label(
        ax, start + unpack + (product - unpack) / 2, top + 0.5, "wait", fontsize=9, color=FAINT, behind=PAPER
    )
    box(ax, done, top, copy, 1, "copy", color=YELLOW, fontsize=9.5)
    box(ax, start + 1, top + 1.3, product - 1 + copy, 1, "x̂ of s + 1", color=YELLOW, fontsize=9.5)
    box(ax, start, top + 2.6, product, 1, "x̂ of s", color=SKY, fontsize=9.5)
    box(ax, done + copy, top + 2.6, 6, 1, "x̂ of s + 1", color=YELLOW, fontsize=9.5)
    box(ax, start, top + 3.9, product, 1, "wgmma s", color=GREEN, fontsize=9.5)
    box(ax, done + copy, top + 3.9, 6, 1, "wgmma s + 1", color=PALE_GREEN, fontsize=9.5)
    label(ax, left, 13.9, "time →   (a sketch, not a measurement)", align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        "A sketch of registers over time. In the hasty kernel, the threads unpack x̂ of iteration s + 1 into "
        "R88 and other registers while the wgmma of iteration s still reads them: the later reads get values "
        "of the wrong iteration. The wait comes only after that. In rung 5, the threads unpack into other "
        "registers, wait for the wgmma, and then copy into the registers that the next wgmma reads.",
    )


MOST_ROUNDS = 24  # more rounds in a row are too small to see


def waves(launches: Mapping[str, tuple[int, int]]) -> Picture:
    """Draw the slots of the GPU over time, for several launches.

    launches: by name, the number of programs and of slots for them.

    Raises ValueError if these numbers aren't positive, or make more rounds than can be drawn.
    """
    for name, both in launches.items():
        for what, count in zip(("programs", "slots"), both, strict=True):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(
                    f"{name}: the number of {what} must be an integer of at least 1, but is {count!r}"
                )
        if both[0] > MOST_ROUNDS * both[1]:
            most = MOST_ROUNDS * both[1]
            raise ValueError(
                f"{name}: at most {most:,} programs ({MOST_ROUNDS} rounds) can be drawn, not {both[0]:,}"
            )
    figure = new_figure(7.4, 1.3 + 0.8 * len(launches))
    axes = figure.subplots(len(launches), 1, sharex=True, squeeze=False)[:, 0]
    told = []
    for ax, (name, (programs, places)) in zip(axes, launches.items(), strict=True):
        # All programs of a launch do the same total work: a program's time goes with 1 / programs.
        time, left, rounds = 1 / programs, programs, 0
        while left > 0:
            busy = min(left, places)
            start = rounds * time * 1000
            ax.bar(start, busy, width=time * 1000, align="edge", color=BLUE, edgecolor="white")
            ax.bar(start, places - busy, bottom=busy, width=time * 1000, align="edge", color=PALE, hatch="//",
                   edgecolor=LINE)  # fmt: skip
            full = busy > places / 2
            height, ink, behind = (busy / 2, "white", None) if full else (busy + places / 4, INK, PALE)
            words = f"{busy} of {places} slots busy" if full else f"only {busy} busy, {places - busy} empty"
            label(ax, start + time * 500, height, words, fontsize=9, color=ink, behind=behind, pad=2)
            left -= busy
            rounds += 1
        ax.set_ylim(0, places)
        ax.set_yticks([])
        ax.set_xticks([])
        ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        ax.spines[["top", "right", "left", "bottom"]].set_visible(False)
        told.append(f"{name}: {programs} programs for {places} slots, {rounds} round{'s' * (rounds > 1)}")
    axes[-1].set_xlabel(
        "time →   (if all programs of a launch take the same time)   hatched: empty slots",
        fontsize=9,
        color=FAINT,
    )
    return Picture(
        figure,
        f"How launches fill the GPU's slots for programs. {'; '.join(told)}. A last round that fills only a "
        f"few slots takes as long as a full one.",
    )


def unpacking(field: int = 1) -> Picture:
    """Draw rung 8's `unpacked`: two words of a column become four codes at once.

    Raises ValueError if ``field`` has no mask: 0 to 3 have one.
    """
    if field not in range(4):
        raise ValueError(
            f"field must be 0, 1, 2 or 3, because each mask keeps two of the 8 fields, but is {field!r}"
        )
    figure, ax = new_sheet(30, 11.4)
    left, width = 6.6, 1.36
    pair = [str(n) for n in range(7, -1, -1)] * 2  # fields of row 1's word, then of row 0's
    hues = [SKY] * 8 + [GREEN] * 8
    kept = [n in (7 - field, 15 - field) for n in range(16)]
    moved, moved_hues = ["·"] * 4 + pair[:12], [PALE] * 4 + hues[:12]
    masked = [YELLOW if keep else PALE for keep in kept]

    def line(y: float, title: str, texts: list[str], colors: list[str]) -> None:
        label(ax, left - 0.4, y + 0.5, title, align="right")
        cells(ax, texts, x=left, y=y, width=width, colors=colors)

    def after_mask(texts: list[str], colors: list[str]) -> tuple[list[str], list[str]]:
        pairs = zip(texts, colors, kept, strict=True)
        return tuple(zip(*((t, c) if keep else ("·", PALE) for t, c, keep in pairs), strict=True))

    for half, name in enumerate(
        ("word of row 1: its 8 fields, by number", "word of row 0 (·: bits that the mask drops)")
    ):
        label(ax, left + (8 * half + 4) * width, 0.4, name)
    line(0.9, "pair", pair, hues)
    line(2.3, "pair >> 8", moved, moved_hues)
    line(4.2, f"mask, field {field}", ["11" if keep else "·" for keep in kept], masked)
    told = []
    for y, name, row, first in (
        (6.1, "pair & mask", (pair, hues), field),
        (7.5, "(pair >> 8) & mask", (moved, moved_hues), field + 4),
    ):
        texts, colors = after_mask(*row)
        assert [t for t in texts if t != "·"] == [str(first)] * 2  # the same field of both words
        line(y, name, [*texts], [*colors])
        told.append(f"{name}: field {first} of both rows, so k = {16 * first + 1} and {16 * first}")
    for half, row in ((0, 1), (1, 0)):
        x = left + 8 * width * half
        box(ax, x, 6.0, 8 * width, 2.6, color=None, edge=INK, linewidth=2)
        ks = f"k = {16 * field + row} and {16 * (field + 4) + row}"
        label(ax, x + 4 * width, 9.2, f"row {row}, fields {field} and {field + 4}: {ks}")
    raised = _raised(2 * field - 133)
    label(
        ax, left + 8 * width, 10.5, f"each is code · 2{raised}: four values of a column at once", fontsize=11
    )
    return Picture(
        figure,
        f"The words of rows 1 and 0 of a column, 8 fields of two bits each, are side by side in 32 bits: "
        f"the pair. Below it, the pair is shifted right by 8 bits, so fields 4 to 7 are where fields 0 to 3 "
        f"were. One mask keeps the same field in both halves: {'; '.join(told)}. Each half, read as a "
        f"bfloat16, is the code times 2^{2 * field - 133}.",
    )


def schedule(operands: int = 8) -> Picture:
    """Draw an iteration of the library's Gluon kernel and the start of the next. Not a measurement."""
    figure, ax = new_sheet(30, 9.6)
    left, long = 4.6, 2.45
    lanes = {"copies (TMA)": 1.5, "threads": 3.6, "tensor cores": 5.3}
    for name, y in lanes.items():
        label(ax, left - 0.3, y + 0.5, name, align="right")
    for turn in range(operands + 2):
        j, x = turn % operands, left + long * turn
        color = SKY if turn < operands else PALE_SKY
        box(ax, x, lanes["threads"], long, 1, f"unpack {j}", color=color, fontsize=9)
        shade = GREEN if turn < operands else PALE_GREEN
        if turn <= operands:
            box(ax, x + long, lanes["tensor cores"], long, 1, f"wgmma {j}", color=shade, fontsize=9)
    starts = {0: ("words", YELLOW), 1: ("parameters", YELLOW), 4: ("dy", ORANGE)}
    for j, (what, hue) in starts.items():
        x = left + long * (j + 1)
        box(ax, x, lanes["copies (TMA)"], 1.9 * long if j else 0.9 * long, 1, what, color=hue, fontsize=9)
    for j in (0, 4):
        x = left + long * (j + 1)
        ax.plot([x, x], [1.0, 6.6], color=VERMILLION, linewidth=2)
        label(ax, x, 0.75, "barrier", align="bottom", fontsize=9, color=VERMILLION)
    for turn, words in ((0, "iteration s"), (operands, "iteration s + 1")):
        x = left + long * turn
        ax.plot([x, x], [2.9, 7.4], color=INK, linewidth=1.2, linestyle="--")
        wait = f"{words}: wait for its copies" if not turn else words
        label(ax, x + 0.2, 7.2, wait, align="left", fontsize=9)
    label(
        ax,
        left,
        8.2,
        "after starting each wgmma: wait until at most two are in flight",
        align="left",
    )
    label(ax, left, 9.2, "time →   (a sketch, not a measurement)", align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"The schedule of one iteration of the Gluon kernel. It begins with a wait for its copies. Then the "
        f"threads unpack fields 0 to {operands - 1}, and the tensor cores multiply each field while the "
        "threads unpack the next. After field 0, all warps meet at a barrier and the copy of the words for a "
        "later iteration starts; after field 1, the copy of its parameters. After field 4 there is a second "
        "barrier, and the copy of dy starts. The next iteration follows without a gap. At most two wgmmas "
        "are in flight when a wait ends.",
    )


# ---- the result


def ladder(rows: Sequence[Mapping], about: str) -> Picture:
    """Draw the recorded speed of all versions in a burst, relative to the unfused path.

    rows: those of bench "ladder". about: where they come from.
    """
    figure = new_figure(8.4, 4.4)
    axes = figure.subplots(1, 2, sharey=True)
    told = []
    own = [*rung_names(rows), CUBLAS]
    for ax, count in zip(axes, sorted(_sizes(rows), reverse=True), strict=True):
        paths = _of(rows, count)
        parts = []
        for place, name in enumerate(own):
            row = paths[name]
            ratio = row["baseline_us"] / row["us"]
            ax.barh(place, ratio, color=ORANGE if name == CUBLAS else BLUE, height=0.68)
            parts.append(f"{name.replace('x^', 'x̂')} {row['us']:.1f} µs ({ratio:.2f}×)")
            label(ax, 1.78, place, f"{ratio:.2f}×", align="right", fontsize=9)
            label(ax, 2.3, place, f"{row['us']:.0f} µs", align="right", fontsize=9)
        ax.axvline(1, color=VERMILLION, linewidth=1.4)
        unfused = paths[UNFUSED]["us"]
        ax.set_title(f"K = {count}; red line: {unfused:.0f} µs", fontsize=10, color=INK)
        ax.set_xlim(0, 2.3)
        ax.set_xticks([0, 0.5, 1])
        ax.tick_params(labelsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        told.append(f"K = {count}: {UNFUSED} {unfused:.1f} µs; {', '.join(parts)}")
    axes[0].set_yticks(range(len(own)), [name.replace(" alone, x^", ", x̂") for name in own])
    axes[0].invert_yaxis()
    words = "speed in a burst, relative to dequantize + cuBLAS (red line)"
    figure.supxlabel(f"{words}\n{about}", fontsize=9, color=FAINT)
    return Picture(figure, f"The ladder, {words}. {about}. {'. '.join(told)}.")
