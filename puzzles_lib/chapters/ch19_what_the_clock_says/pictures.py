"""Pictures for chapter 19."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from puzzles_lib.cache_model import banded
from puzzles_lib.chapters.ch19_what_the_clock_says.laboratory import (
    LARGE,
    Point,
    Seen,
    Sweep,
    modelled,
    overlapped,
    panels,
    points,
)
from puzzles_lib.drawing.colours import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    LINE,
    MIST,
    ORANGE,
    PALE,
    PALE_ORANGE,
    PAPER,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Picture, box, cells, label, new_figure, new_sheet
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.timing.h200 import BYTES, FLOAT32, FLOPS, PROGRAMS, REGISTERS, RESERVED, SHARED, WARPS
from puzzles_lib.timing.recorded import origin

Record = Mapping[str, Any]


_DOT: Mapping[str, Any] = {"color": SKY, "markeredgecolor": INK, "markeredgewidth": 0.5}
"""The look of a measured point, on a light page and on a dark one."""


def _plain(ax: Axes, x: str = "", y: str = "") -> None:
    ax.set_xlabel(x, fontsize=10)
    ax.set_ylabel(y, fontsize=10)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, ax: Axes, columns: int) -> None:
    shown = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    look = {"fontsize": 9, "frameon": False, "loc": "outside lower center", "ncols": columns}
    figure.legend(shown.values(), shown.keys(), **look)


def _time(us: float) -> str:
    """``"33 µs"``, ``"1.74 ms"``, ``"1.05 s"``"""
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.3g} µs"


# ---- how benchmarks lie

LIES = {
    "first call": "a kernel's first call",
    "no wait": "a matmul, 8192³",
    "launch": "a copy of 64 KiB",
    "cache": "a copy of 8 MiB",
    "zeros": "a matmul, 8192³",
    "clocks": "a matmul, 8192³",
    "spread": "a copy of 256 MiB",
}
WHY = {
    "first call": "the first call compiles",
    "no wait": "a launch only puts the kernel into a queue",
    "launch": "Python launches more slowly than the GPU copies",
    "cache": "data that were just read are still in L2",
    "zeros": "wires that don't switch use less power",
    "clocks": "after a rest, a chip runs fast for some milliseconds",
    "spread": "the slow first call moves the mean, but not the median",
}


CAUSES = {
    "first call": "compiles first",
    "no wait": "doesn't wait",
    "launch": "waits for Python",
    "cache": "finds its data in L2",
    "zeros": "is on zeros",
    "clocks": "comes after a rest",
    "spread": "is a mean of five",
}
"""What the misleading time of a pair does, in a few words."""
LABELS = {
    "1000 calls from Python, a call": "per call, 1000 calls from Python",
    "100 of them in a CUDA graph, a call": "per call, 100 calls in a CUDA graph",
    "64 times 8 MB in turn": "cycling through 64 times 8 MiB",
    "the same 8 MB each time": "the same 8 MiB each time",
    "with it": "with synchronize",
}
"""How the picture words a record's labels, if it words them differently."""


def lies(record: Record, names: Sequence[str] = ()) -> Picture:
    """Draw two times for the same thing: for some pairs as bars, for all pairs by their ratio.

    record: of bench "clock". names: which pairs; all of them unless given.
    """
    rows = [row for row in record["lies"] if row["name"] in (names or LIES)]
    told = [
        f"{LIES[row['name']]}: {_time(row['first'])} {LABELS.get(row['of_first'], row['of_first'])}, "
        f"{_time(row['second'])} {LABELS.get(row['of_second'], row['of_second'])}: {WHY[row['name']]}"
        for row in rows
    ]
    figure = (_pairs if names else _ratios)(rows, origin(record))
    return Picture(figure, f"Pairs of times for the same thing, {origin(record)}. {'; '.join(told)}.")


def _pairs(rows: Sequence[Mapping[str, Any]], about: str) -> Figure:
    figure, ax = new_sheet(18.4, 3.4 * len(rows) + 1.2)
    box(ax, 4.8, 0.2, 0.5, 0.5, color=ORANGE)
    label(ax, 5.5, 0.45, "misleads", align="left")
    box(ax, 8.0, 0.2, 0.5, 0.5, color=SKY)
    label(ax, 8.7, 0.45, "what you wanted to know", align="left")
    for number, row in enumerate(rows):
        y = 1.1 + 3.4 * number
        most = max(row["first"], row["second"])
        label(ax, 4.5, y + 0.95, LIES[row["name"]], align="right")
        for place, which in enumerate(("first", "second")):
            width = 5.4 * row[which] / most
            box(ax, 4.8, y + 0.95 * place, width, 0.8, color=(ORANGE, SKY)[place], linewidth=0.8)
            of = row[f"of_{which}"]
            text = f"{_time(row[which])}: {LABELS.get(of, of)}" + " (too short to draw)" * (width < 0.01)
            label(ax, 5.05 + width, y + 0.95 * place + 0.4, text, align="left")
        label(ax, 4.8, y + 2.35, WHY[row["name"]], align="left", weight="bold")
    label(ax, 0.2, 3.4 * len(rows) + 0.8, about, align="left", fontsize=9, color=FAINT)
    return figure


def _ratios(rows: Sequence[Mapping[str, Any]], about: str) -> Figure:
    """Draw how many times too large or too small each misleading time is; bars past 2 are cut off."""
    rows = sorted(rows, key=lambda row: row["first"] / row["second"])
    left, unit, high = 4.6, 4.2, 1.25  # the place of 0, of 1; of a row
    figure, ax = new_sheet(20.6, high * len(rows) + 3.0)
    bottom = 1.1 + high * len(rows)
    for tick in (0.0, 0.5, 1.0, 1.5, 2.0):
        x, true = left + unit * tick, tick == 1
        ax.plot([x, x], [0.9, bottom], color=INK if true else LINE, linewidth=1.5 if true else 0.7, zorder=0)
        label(ax, x, bottom + 0.4, f"{tick:g}", fontsize=9)
    label(ax, left + unit - 0.3, 0.5, "looks too fast", align="right", color=FAINT)
    label(ax, left + unit + 0.3, 0.5, "looks too slow", align="left", color=FAINT)
    for number, row in enumerate(rows):
        y, times = 1.5 + high * number, row["first"] / row["second"]
        begin, end = sorted((1.0, min(times, 2.15)))
        box(ax, left + unit * begin, y - 0.3, unit * (end - begin), 0.6, color=ORANGE, linewidth=0.8)
        if times > 2:  # cut off
            box(ax, left + 1.9 * unit, y - 0.35, 0.16, 0.7, color=PAPER, linewidth=0)
            label(ax, left + 2.15 * unit - 0.1, y, "▸", align="right", color=PAPER)
        label(ax, left - 0.3, y, LIES[row["name"]], align="right")
        size = f"{times:,.0f} times" if times > 2 else f"{times - 1:+.0%}".replace("-", "−")
        text = f"{size}: {_time(row['first'])}, not {_time(row['second'])}"
        label(ax, left + 2.3 * unit, y - 0.25, text, align="left")
        label(ax, left + 2.3 * unit, y + 0.3, CAUSES[row["name"]], align="left", fontsize=9)
    label(ax, left + unit, bottom + 1.0, "misleading time / the one you wanted to know", fontsize=9)
    label(ax, 0.2, bottom + 1.6, about, align="left", fontsize=9, color=FAINT)
    return figure


# ---- occupancy


def held(registers: int, shared: int, warps: int) -> Picture:
    """Draw a multiprocessor's resources on an H200, and how many programs fit in each."""
    programs = resident(registers, shared, warps)
    lot = -(-registers * 32 // 256) * 256
    limits = {
        "registers": (REGISTERS, lot * warps, 4 * (REGISTERS // 4 // lot) // warps),
        "shared memory, bytes": (SHARED, shared + RESERVED, SHARED // (shared + RESERVED)),
        "warps": (WARPS, warps, WARPS // warps),
        "programs": (PROGRAMS, 1, PROGRAMS),
    }
    figure, ax = new_sheet(18.6, 6.6)
    told = []
    for number, (name, (whole, each, most)) in enumerate(limits.items()):
        y, width = 0.3 + 1.4 * number, 7.0
        label(ax, 4.5, y + 0.5, name, align="right")
        box(ax, 4.8, y, width, 1.0, color=PALE)
        step = width * each / whole
        for place in range(min(programs, most)):
            color = YELLOW if most == programs else SKY
            box(ax, 4.8 + place * step, y, step, 1.0, color=color, linewidth=0.5)
        words = f"{each:,} each of {whole:,}: " + (f"only {most} fit" if most == programs else f"{most} fit")
        label(ax, 5.1 + width, y + 0.5, words, align="left")
        told.append(f"{name} {each:,} of {whole:,}, room for {most}")
    share = programs * warps / WARPS
    words = f"{programs} at a time: {programs * warps} of {WARPS} warps, an occupancy of {_percent(share)}"
    label(ax, 4.8, 6.2, words, align="left")
    return Picture(
        figure,
        f"What a program with {registers} registers per thread, {shared} bytes of shared memory and {warps} "
        f"warps uses of a multiprocessor: {'; '.join(told)}. {words}.",
    )


def _percent(share: float) -> str:
    """``"50%"``, ``"12.5%"``"""
    return f"{100 * share:.3g}%"


def flights(record: Record) -> Picture:
    """Draw the TB/s of a sum against programs per multiprocessor. record: of bench "clock"."""
    rows = record["flights"]
    figure = new_figure(7.6, 3.3)
    ax = figure.subplots()
    places = range(len(rows))
    ax.bar(places, [row["tb_s"] for row in rows], 0.62, color=SKY, edgecolor=INK, linewidth=0.5)
    for place, row in zip(places, rows, strict=True):
        label(ax, place, row["tb_s"] + 0.08, f"{row['tb_s']:.2f}", align="baseline", fontsize=9)
    ticks = [f"{row['programs']}\n{4 * row['programs']} warps" for row in rows]
    ax.set_xticks(list(places), ticks)
    ax.set_ylim(0, 4.7)
    _plain(ax, "programs at a time per multiprocessor", "TB/s")
    figure.suptitle(origin(record), fontsize=9, color=FAINT)
    told = ", ".join(f"{row['tb_s']:.2f} with {row['programs']}" for row in rows)
    return Picture(
        figure, f"TB/s of a sum of 553 MB by programs per multiprocessor, {origin(record)}: {told}."
    )


def waves(record: Record) -> Picture:
    """Draw the time of matmuls against their programs, each filling a multiprocessor. record: of "clock"."""
    rows = record["waves"]
    figure = new_figure(7.8, 3.5)
    ax = figure.subplots()
    ax.plot([r["programs"] for r in rows], [r["us"] for r in rows], "o", **_DOT, markersize=5)
    for count in range(1, 5):
        ax.axvline(132 * count, color=GREY, linestyle="--", linewidth=0.9)
        label(ax, 132 * count - 4, 308, f"{132 * count}", align="right top", fontsize=9, color=FAINT)
    ax.set_ylim(0, 310)
    _plain(ax, "programs", "µs")
    figure.suptitle(origin(record), fontsize=9, color=FAINT)
    us = {row["programs"]: row["us"] for row in rows}
    told = ", ".join(f"{us[n]:.0f} for {n}" for n in (64, 128, 136, 264, 272, 528, 536))
    return Picture(
        figure,
        f"Microseconds of matmuls by programs, on 132 multiprocessors, {origin(record)}: a stair that steps "
        f"up after each multiple of 132. {told}.",
    )


# ---- the roofline


def roofline(at_least: Callable[[float, float], float | None], mine: Point | None = None) -> Picture:
    """Draw the course's recorded kernels, an H200's roofs, and a learner's.

    at_least: the learner's, µs for so many FLOP and bytes; no line as long as it returns None.
    mine: one more kernel, at its best.
    """
    figure = new_figure(8.0, 4.2)
    ax = figure.subplots()
    corner = FLOPS / BYTES
    intensities = [0.05 * (6000 / 0.05) ** (step / 200) for step in range(201)] + [corner]
    intensities.sort()
    us = [at_least(intensity * 1e9, 1e9) for intensity in intensities]
    if all(isinstance(each, Real) and each > 0 for each in us):
        roof = [intensity * 1e9 / each / 1e6 for intensity, each in zip(intensities, us, strict=True)]
        ax.plot(intensities, roof, color=INK, linewidth=1.5)
        told = [f"your roof reaches {max(roof):.3g} TFLOP/s"]
    else:
        label(ax, 0.5, 500, "your roof isn't solved yet", align="left", fontsize=9, color=FAINT)
        told = ["your roof isn't solved yet"]
    ax.plot([FLOAT32 / BYTES, 6000], [FLOAT32 / 1e12] * 2, color=INK, linewidth=1.2, linestyle="--")
    label(ax, 4.6, 22, "memory: 3.95 TB/s", align="right bottom", fontsize=9, color=FAINT)
    label(ax, 5800, 1090, "tensor cores, 16 bits: 989", align="right bottom", fontsize=9, color=FAINT)
    label(ax, 5800, 73, "float32, no tensor cores: 67", align="right bottom", fontsize=9, color=FAINT)
    for number, point in enumerate(points()):
        ax.plot(point.intensity, point.tflops, "o", **_DOT, markersize=7)
        name = point.name.replace("_", " ")
        if point.intensity > corner:
            label(ax, point.intensity, point.tflops * 0.72, name, align="top", fontsize=9)
        else:  # these are close together: in a column, each at the end of a line
            y = 0.33 * 1.62**number
            share = point.tflops * 1e12 / (point.intensity * BYTES)
            ax.plot([point.intensity, 6], [point.tflops, y], color=MIST, linewidth=0.8, zorder=0)
            label(ax, 6.4, y, f"{name}, {share:.0%} of its roof", align="left", fontsize=9)
        told.append(f"{name} {point.intensity:.3g} FLOP per byte, {point.tflops:.3g} TFLOP/s")
    if mine:
        ax.plot(mine.intensity, mine.tflops, "D", color=VERMILLION, markersize=8)
        label(ax, mine.intensity * 0.82, mine.tflops, mine.name, align="right", fontsize=9)
        told.append(f"{mine.name} {mine.intensity:.3g} FLOP per byte, at most {mine.tflops:.3g} TFLOP/s")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(0.08, 6000)
    ax.set_ylim(0.22, 2200)
    ax.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1000"])
    ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    ax.minorticks_off()
    _plain(ax, "FLOP per byte that must be moved", "TFLOP/s")
    return Picture(
        figure,
        f"Rooflines: below {corner:.0f} FLOP per byte an H200's memory is the roof, above it the tensor "
        f"cores' 989 TFLOP/s; float32 without tensor cores has a roof of 67. {'; '.join(told)}.",
    )


# ---- the order of tiles


def tile_order(groups: Sequence[int] = (1, 4), wave: int = 8, side: int = 8) -> Picture:
    """Draw the tiles of a matmul with their programs' numbers; the first waves are colored."""
    colors = (SKY, ORANGE, GREEN, PURPLE)
    figure, ax = new_sheet(2.2 * side + 1.9, 1.1 * side + 4.4)
    told = []
    for number, group in enumerate(groups):
        order = banded(side, side, group)
        pid = {tile: place for place, tile in enumerate(order)}
        texts = [[str(pid[m, n]) for n in range(side)] for m in range(side)]
        fills = [
            [colors[pid[m, n] // wave] if pid[m, n] // wave < 2 else None for n in range(side)]
            for m in range(side)
        ]
        left = 0.4 + (1.1 * side + 1.1) * number
        cells(ax, texts, x=left, y=1.4, width=1.1, height=1.1, colors=fills)
        name = "row after row" if group == 1 else f"bands of {group} rows"
        label(ax, left + 0.55 * side, 0.6, name, fontsize=11)
        touched = panels(order, wave)
        words = f"programs 0 to {wave - 1} need {touched[0]} panels"
        label(ax, left + 0.55 * side, 1.1 * side + 1.9, words)
        label(ax, left + 0.55 * side, 1.1 * side + 2.7, f"all waves: {sum(touched)}", color=FAINT)
        told.append(f"{name}: {words}, all waves together {sum(touched)}")
    y = 1.1 * side + 3.6
    label(ax, 0.4, y + 0.25, "in both:", align="left", fontsize=9)
    later = f"waves 3 to {side * side // wave}"
    for number, name in enumerate(("wave 1: programs 0 to {}", "wave 2: programs {} to {}", later)):
        x = 2.4 + 6.4 * number
        box(ax, x, y, 0.5, 0.5, color=(*colors[:2], PAPER)[number])
        ends = (wave - 1,) if number == 0 else (wave, 2 * wave - 1)
        label(ax, x + 0.8, y + 0.25, name.format(*ends), align="left", fontsize=9)
    return Picture(
        figure,
        f"{side} x {side} tiles with the numbers of their programs; {wave} run at a time, the first two "
        f"waves are colored. A panel is a row of tiles of x, or a column of y. {'; '.join(told)}.",
    )


def fetched(record: Record) -> Picture:
    """Draw what a matmul of 8192 fetches in bands, by the model and by ncu. record: of bench "profiles"."""
    read = {row["name"]: row["dram_read"] / 1e9 for row in record["rows"]}
    groups = [g for g in (1, 2, 4, 8, 16, 32, 64) if f"matmul, group {g}" in read]
    model = [modelled(g) for g in groups]
    counted = [read[f"matmul, group {g}"] for g in groups]
    figure = new_figure(7.8, 3.6)
    ax = figure.subplots()
    for place, (ours, chips) in enumerate(zip(model, counted, strict=True)):
        ax.bar(place - 0.2, ours, 0.38, color=YELLOW, edgecolor=INK, linewidth=0.5, label="the model")
        ax.bar(place + 0.2, chips, 0.38, color=BLUE, edgecolor=INK, linewidth=0.5, label="the chip")
        label(ax, place - 0.2, ours + 0.06, f"{ours:.2f}", align="baseline", fontsize=9)
        label(ax, place + 0.2, chips + 0.06, f"{chips:.2f}", align="baseline", fontsize=9)
    ax.axhline(2 * 2 * 8192**2 / 1e9, color=VERMILLION, linestyle="--", linewidth=1.1)
    label(ax, len(groups) - 0.5, 0.3, "each input once: 0.27", align="left bottom", fontsize=9)
    ax.set_xlim(-0.6, len(groups) + 0.9)
    ax.set_xticks(range(len(groups)), [str(g) for g in groups])
    _plain(ax, "rows of tiles in a band", "GB from memory")
    _legend(figure, ax, 2)
    figure.suptitle(origin(record), fontsize=9, color=FAINT)
    told = "; ".join(
        f"bands of {g}: model {a:.2f}, chip {b:.2f}" for g, a, b in zip(groups, model, counted, strict=True)
    )
    return Picture(
        figure, f"GB that a matmul of 8192 fetches, {origin(record)}. {told}. Each input once: 0.27."
    )


def orders(record: Record) -> Picture:
    """Draw how many times as fast as row after row a matmul is in bands. record: of bench "clock"."""
    looks = {
        ("8192x8192x8192", "128x256"): (BLUE, "o", "tiles 128 × 256, K = 8192"),
        ("16384x16384x2048", "128x256"): (ORANGE, "s", "tiles 128 × 256, K = 2048"),
        ("8192x8192x8192", "64x64"): (VERMILLION, "^", "tiles 64 × 64, K = 8192"),
    }
    figure = new_figure(7.8, 3.9)
    ax = figure.subplots()
    told = []
    ax.axhline(1, color=INK, linewidth=0.8)
    for (case, tile), (color, mark, name) in looks.items():
        us = {r["group"]: r["us"] for r in record["orders"] if (r["case"], r["tile"]) == (case, tile)}
        least = min(us, key=lambda group: us[group])
        gain = f"{us[1] / us[least]:.2f} times as fast"
        if us[1] / us[least] < 1.01:
            gain += ": limited by power, not memory"
        ax.plot(list(us), [us[1] / each for each in us.values()], color=color, marker=mark, markersize=6,
            linewidth=1.4, label=name)  # fmt: skip
        text = f"{us[1] / us[least]:.2f}"
        label(ax, least, us[1] / us[least] + 0.012, text, align="bottom", fontsize=9)
        told.append(f"{name}: {us[1]:.0f} µs row after row, {us[least]:.0f} in bands of {least}, {gain}")
    label(ax, 1, 0.99, "1.00: as fast as row after row", align="left top", fontsize=9, color=FAINT)
    ax.set_ylim(0.93, 1.17)
    groups = [2**power for power in range(8)]
    ax.set_xscale("log", base=2)
    ax.set_xticks(groups, [str(group) for group in groups])
    ax.minorticks_off()
    _plain(ax, "rows of tiles in a band", "times as fast")
    _legend(figure, ax, 1)
    figure.suptitle(origin(record), fontsize=9, color=FAINT)
    return Picture(figure, f"Time of a matmul by its bands, {origin(record)}. {'; '.join(told)}.")


# ---- profiles

SIX = {
    "A": "row sum",
    "B": "small tiles, group 1",
    "C": "copy",
    "D": "softmax, 2 warps",
    "E": "column copy",
    "F": "small tiles, group 8",
}
"""The profiles, by the chapter's letters."""
LEAST = {
    "row sum": 132 << 22,
    "small tiles, group 1": 4 * 8192**2,
    "copy": 1 << 29,
    "softmax, 2 warps": 1 << 28,
    "softmax, 16 warps": 1 << 28,
    "column copy": 1 << 28,
    "small tiles, group 8": 4 * 8192**2,
    "count, 16 bins": 1 << 27,
    "powers": 1 << 27,
}
"""Bytes of a profile's inputs."""
STALLS = {
    "long_scoreboard": "waits for memory (long scoreboard)",
    "short_scoreboard": "waits for shared memory (short scoreboard)",
    "barrier": "waits for other warps (barrier)",
    "lg_throttle": "too many accesses in the queue (LG throttle)",
    "mio_throttle": "a shared queue is full (MIO throttle)",
    "wait": "a fixed number of cycles (wait)",
    "drain": "waits until its stores are done (drain)",
    "selected": "it starts an instruction (selected)",
    "membar": "waits for a memory barrier (membar)",
    "math_pipe_throttle": "its arithmetic unit is busy",
    "not_selected": "another warp goes first (not selected)",
    "no_instruction": "its next instruction isn't loaded yet",
    "dispatch_stall": "the dispatcher is busy (dispatch stall)",
}


SHARES = {
    "memory, busy": "dram_busy",
    "tensor cores, busy": "tensor_busy",
    "exp2's unit, busy": "xu_busy",
    "occupancy": "occupancy",
}
"""The percentages of a profile, and their columns."""
BRIEFLY = {"long_scoreboard": "memory", "mio_throttle": "full queue"}


def _read(row: Mapping[str, Any]) -> float:
    """Return how many times a profiled kernel reads its inputs from memory."""
    return row["dram_read"] / LEAST[row["name"]]


def _asked(row: Mapping[str, Any]) -> float:
    """Return how many times a profiled kernel asks L2 for its inputs, by sectors of 32 bytes."""
    return 32 * row["l2_read_sectors"] / LEAST[row["name"]]


def _times(number: float) -> str:
    """``"1.5"``, ``"125"``"""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def compared(record: Record) -> Picture:
    """Draw the six profiles side by side. record: of bench "profiles"."""
    found = {row["name"]: row for row in record["rows"]}
    rows = [found[name] for name in SIX.values()]
    figure, ax = new_sheet(19.4, 9.8)
    left, width, told = 4.9, 2.4, []
    for place, letter in enumerate(SIX):
        label(ax, left + (place + 0.5) * width, 0.6, letter, fontsize=13)
    for number, (what, column) in enumerate(SHARES.items()):
        y = 1.2 + 0.8 * number
        label(ax, left - 0.3, y + 0.35, what, align="right")
        for place, row in enumerate(rows):
            x = left + place * width
            box(ax, x + 0.1, y, 1.1, 0.7, color=PALE, linewidth=0)
            box(ax, x + 0.1, y, max(0.03, 1.1 * row[column] / 100), 0.7, color=SKY, linewidth=0)
            label(ax, x + width - 0.15, y + 0.35, f"{row[column]:.0f}%", align="right")
        told.append(f"{what}: " + ", ".join(f"{row[column]:.0f}%" for row in rows))
    first = [next(iter(row["stalls"].items())) for row in rows]
    facts = (
        ("main stall, of 100", [f"{BRIEFLY.get(why, why)}, {share:.0f}" for why, share in first]),
        ("reads its inputs", [f"{_times(_read(row))} times" for row in rows]),
        ("asks L2 for them", [f"{_times(_asked(row))} times" for row in rows]),
        ("hits in L2", [f"{row['l2_hit']:.0f}%" for row in rows]),
        ("registers per thread", [f"{row['registers']:.0f}" for row in rows]),
        ("accesses that spill", [f"{row['spilling']:,.0f}" for row in rows]),
    )
    for number, (what, texts) in enumerate(facts):
        y = 4.9 + 0.75 * number
        label(ax, left - 0.3, y, what, align="right")
        for place, text in enumerate(texts):
            label(ax, left + (place + 0.5) * width, y, text, fontsize=9.5)
        told.append(f"{what}: {', '.join(texts)}")
    label(ax, 0.2, 9.4, origin(record), align="left", fontsize=9, color=FAINT)
    return Picture(figure, f"Profiles A to F, {origin(record)}. {'; '.join(told)}.")


def cures(record: Record) -> Picture:
    """Draw what each of the six profiles shows, and what helps. record: of bench "profiles"."""
    found = {row["name"]: row for row in record["rows"]}
    fewer = found["softmax, 16 warps"]
    rows, bands = (found[f"small tiles, group {group}"] for group in (1, 8))
    words = {
        "row sum": ("sum", f"only {found['row sum']['occupancy']:.0f}% of all warps", "launch more programs"),
        "small tiles, group 1": (
            "rows",
            f"reads its inputs {_read(rows):.0f} times",
            "bands, so that programs share",
        ),
        "copy": ("copy", "memory is busy: it's at its roof", "move fewer bytes"),
        "softmax, 2 warps": (
            "softmax",
            "255 registers, and it spills",
            f"16 warps: {fewer['registers']:.0f} registers, {fewer['spilling']:.0f} spills, "
            f"{_time(fewer['us'])}, not {_time(found['softmax, 2 warps']['us'])}",
        ),
        "column copy": (
            "columns",
            f"asks L2 for {_asked(found['column copy']) / _asked(found['copy']):.0f} times as much as C",
            "load rows, then transpose on chip",
        ),
        "small tiles, group 8": (
            "bands",
            f"asks L2 for its inputs {_asked(bands):.0f} times",
            "larger tiles: fewer loads",
        ),
    }
    figure, ax = new_sheet(21.0, 0.95 * len(SIX) + 1.5)
    for x, head in ((0.2, "kernel"), (3.8, "what stands out"), (12.2, "cure")):
        label(ax, x, 0.5, head, align="left", color=FAINT)
    told = []
    for number, (letter, name) in enumerate(SIX.items()):
        y = 1.5 + 0.95 * number
        ax.plot([0.2, 20.8], [y - 0.48] * 2, color=LINE, linewidth=0.8)
        what, why, cure = words[name]
        label(ax, 0.2, y, f"{letter}  {what}", align="left", weight="bold")
        label(ax, 3.8, y, why, align="left")
        label(ax, 12.2, y, cure, align="left")
        told.append(f"{letter} {what}: {why}: {cure}")
    return Picture(figure, f"{'; '.join(told)}.")


def profile(record: Record, letter: str, name: str = "") -> Picture:
    """Draw one of the six profiles, or another one by name. record: of bench "profiles"."""
    (row,) = [row for row in record["rows"] if row["name"] == (name or SIX[letter])]
    figure, ax = new_sheet(19.4, 8.1)
    label(ax, 0.2, 0.7, f"profile {letter}" if not name else name, align="left", fontsize=13)
    facts = (
        ("time", _time(row["us"])),
        ("memory, busy", f"{row['dram_busy']:.0f}%"),
        ("read from memory", f"{_times(_read(row))} x the inputs"),
        ("asked of L2", f"{_times(_asked(row))} x the inputs"),
        ("hits in L2", f"{row['l2_hit']:.0f}%"),
        ("tensor cores, busy", f"{row['tensor_busy']:.0f}%"),
        ("exp2's unit, busy", f"{row['xu_busy']:.0f}%"),
        ("occupancy", f"{row['occupancy']:.0f}%"),
        ("registers per thread", f"{row['registers']:.0f}"),
        ("accesses that spill", f"{row['spilling']:,.0f}"),
    )
    for number, (what, value) in enumerate(facts):
        y = 1.7 + 0.63 * number
        if what in SHARES:
            share = min(100.0, row[SHARES[what]]) / 100
            box(ax, 4.4, y - 0.24, 1.8, 0.5, color=PALE, linewidth=0)
            box(ax, 4.4, y - 0.24, max(0.03, 1.8 * share), 0.5, color=SKY, linewidth=0)
        label(ax, 0.2, y, what, align="left", color=FAINT)
        label(ax, 7.4, y, value, align="right")
    label(ax, 8.1, 0.7, "what a warp does, in 100 samples", align="left", fontsize=11)
    shown = list(row["stalls"].items())[:5]
    for number, (reason, share) in enumerate(shown):
        y = 1.4 + 1.02 * number
        box(ax, 8.1, y, max(0.1, 3.6 * share / 100), 0.78, color=ORANGE if number == 0 else MIST)
        label(ax, 11.3, y + 0.39, f"{share:.0f}  {STALLS.get(reason, reason)}", align="left")
    told = ", ".join(f"{what} {value}" for what, value in facts)
    stalls = ", ".join(f"{share:.0f} {STALLS.get(reason, reason)}" for reason, share in shown)
    return Picture(figure, f"Profile {letter or name}, {origin(record)}: {told}. Samples: {stalls}.")


# ---- sweeps


def sweep(swept: Sweep, keep: Callable[[Any], object] | None = None) -> Picture:
    """Draw all configurations by time; mark those that spill and those that ``keep`` keeps."""
    ran = swept.ran
    kept = {id(each) for each in swept.tried if keep and swept_keeps(keep, each)}
    figure = new_figure(7.8, 3.6)
    ax = figure.subplots()
    groups: dict[str, tuple[list[int], list[float], str, str]] = {
        "": ([], [], SKY, "o"),
        "spills": ([], [], VERMILLION, "v"),
        "kept": ([], [], INK, "D"),
    }
    for place, each in enumerate(ran):
        which = "kept" if id(each) in kept else "spills" if each.spills else ""
        groups[which][0].append(place)
        groups[which][1].append(each.us)
    for name, (places, times, color, mark) in groups.items():
        if places:
            text = f"{name or 'no spills'} ({len(places)})"
            ax.plot(places, times, mark, color=color, markersize=4, linestyle="none", label=text)
    ax.axhline(swept.floor, color=GREEN, linewidth=1.2)
    words = f"floor: {swept.floor:.0f} µs at " + (
        "989 TFLOP/s" if swept.flops / FLOPS > swept.bytes / BYTES else "3.95 TB/s"
    )
    label(ax, len(ran), swept.floor * 1.05, words, align="right bottom", fontsize=9)
    ax.set_yscale("log")
    ticks = [t for t in (20, 50, 100, 200, 500, 1000, 2000, 5000) if swept.floor / 2 < t < 2 * ran[-1].us]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.grid(axis="y", color=LINE, linewidth=0.5)
    _plain(ax, f"configurations of {swept.name}, fastest first; {len(swept.refused)} were refused", "µs")
    _legend(figure, ax, 3)
    figure.suptitle(swept.about, fontsize=9, color=FAINT)
    spilled = [each.us for each in ran if each.spills]
    told = f" {len(spilled)} spill; the fastest of them takes {min(spilled):.0f}." if spilled else ""
    left = f" {len(kept)} are kept." if keep else ""
    return Picture(
        figure,
        f"Microseconds of {len(ran)} configurations of {swept.name} on one {swept.device}, from "
        f"{ran[0].us:.0f} to {ran[-1].us:.0f}, {ran[len(ran) // 2].us:.0f} in the middle; the floor is "
        f"{swept.floor:.0f}. {len(swept.refused)} were refused.{told}{left}",
    )


def swept_keeps(keep: Callable[[Any], object], each: Any) -> bool:
    """Return whether a pruning keeps a configuration."""
    return bool(keep(Seen(**each.config)))


def twice(swept: Sweep, most: int = 40) -> Picture:
    """Draw the fastest configurations in both rounds of a sweep."""
    some = swept.ran[:most]
    figure = new_figure(7.6, 3.4)
    ax = figure.subplots()
    first, second = ([getattr(each, name) for each in some] for name in ("us", "again_us"))
    ax.plot(range(1, len(some) + 1), first, "o", color=BLUE, markersize=5, label="first round")
    ax.plot(range(1, len(some) + 1), second, "s", color=ORANGE, markersize=5, label="second round")
    for times, color in ((first, BLUE), (second, ORANGE)):
        ax.axhline(1.05 * min(times), color=color, linestyle="--", linewidth=1)
    label(
        ax,
        1,
        1.05 * first[0] + 0.4,
        "dashed: 5% above the best of each round",
        align="left bottom",
        fontsize=9,
    )
    ax.set_ylim(0.9 * min(first + second), 1.05 * max(first + second))
    _plain(ax, f"configurations of {swept.name}, in the order of the first round", "µs")
    _legend(figure, ax, 2)
    figure.suptitle(swept.about, fontsize=9, color=FAINT)
    best = min(range(len(some)), key=lambda place: second[place])
    return Picture(
        figure,
        f"The {len(some)} fastest configurations of {swept.name} on one {swept.device}, in two rounds: the "
        f"first round {first[0]:.1f} to {first[-1]:.1f} µs, the second {min(second):.1f} to "
        f"{max(second):.1f}; its fastest was number {best + 1} in the first. "
        "A dashed line is 5% above the best of each round.",
    )


# ---- persistent


def persistent(record: Record, gain: Callable[[float, float], float | None] | None = None) -> Picture:
    """Draw how many times as fast as a plain matmul others are, by K. record: of bench "clock".

    gain: a learner's, the most that an overlap of so many FLOP and bytes can gain.
    """
    looks = {
        "descriptors": ("descriptors", PALE_ORANGE),
        "persistent": ("descriptors, loop", ORANGE),
        "persistent, flattened": ("descriptors, flattened loop", SKY),
        "cuBLAS": ("cuBLAS", MIST),
    }
    cases = ("8192x8192x128", "8192x8192x512", "8192x8192x8192", "512x512x512")
    us = {(row["case"], row["path"]): row["us"] for row in record["persistent"]}
    figure = new_figure(8.0, 4.0)
    ax = figure.subplots()
    told, step = [], 0.21
    for place, case in enumerate(cases):
        ratios = {path: us[case, "plain"] / us[case, path] for path in looks}
        for number, (path, (name, color)) in enumerate(looks.items()):
            x = place + (number - 1.5) * step
            ax.bar(x, ratios[path] - 1, step, 1, color=color, edgecolor=INK, linewidth=0.5, label=name)
            inside = ratios[path] > 1.1  # no label on a line of `gain`
            y = ratios[path] - 0.05 if inside else max(1, ratios[path]) + 0.015
            label(ax, x, y, f"{ratios[path]:.2f}", align="baseline", fontsize=9)
        told.append(
            f"{case}: " + ", ".join(f"{name} {ratios[path]:.2f}" for path, (name, _) in looks.items())
        )
        *sizes, k = (int(size) for size in case.split("x"))
        most = gain(*overlapped(k)) if gain and sizes[0] == LARGE else None
        if isinstance(most, Real):
            ends = [place - 2 * step, place + 2 * step]
            ax.plot(ends, [most] * 2, color=VERMILLION, linestyle="--", linewidth=1.3, label="your gain")
            told.append(f"your gain there is {most:.2f}")
    ax.axhline(1, color=INK, linewidth=0.8)
    names = [f"K = {case.split('x')[2]}" for case in cases[:3]]
    ax.set_xticks(range(4), [*names, "512 × 512 × 512"])
    ax.set_ylim(0.7, 1.65)
    _plain(ax, "M = N = 8192, and one small matmul", "times as fast as plain")
    _legend(figure, ax, 3)
    figure.suptitle(origin(record), fontsize=9, color=FAINT)
    return Picture(figure, f"How many times as fast as a plain matmul, {origin(record)}. {'; '.join(told)}.")


# ---- atomics


def counts(record: Record) -> Picture:
    """Draw the times of three ways to count, each timed twice. record: of bench "clock"."""
    rows = record["counts"]
    looks = {
        "an atomic per element": "an atomic per element",
        "relaxed": 'the same with sem="relaxed"',
        "histogram": "tl.histogram, then 16 atomics",
    }
    about = origin({**record, "date": rows[0]["date"]})
    most, told = max(row["us"] for row in rows), []
    figure, ax = new_sheet(18.4, 1.1 * len(looks) + 1.4)
    for number, (path, words) in enumerate(looks.items()):
        y = 0.3 + 1.1 * number
        times = [row["us"] for row in rows if row["path"] == path]
        mean = sum(times) / len(times)
        box(ax, 6.8, y, 6.4 * mean / most, 0.8, color=SKY, linewidth=0.8)
        text = " and ".join(f"{each:,.0f}" if each >= 100 else f"{each:.1f}" for each in times)
        label(ax, 6.5, y + 0.4, words, align="right")
        label(ax, 7.1 + 6.4 * mean / most, y + 0.4, f"{text} µs", align="left")
        told.append(f"{words}: {text} µs")
    label(ax, 0.2, 1.1 * len(looks) + 0.9, about, align="left", fontsize=9, color=FAINT)
    return Picture(figure, f"Three ways to count, each timed twice, {about}. {'; '.join(told)}.")


__all__ = [
    "LIES",
    "SIX",
    "compared",
    "counts",
    "cures",
    "fetched",
    "flights",
    "held",
    "lies",
    "orders",
    "persistent",
    "profile",
    "roofline",
    "sweep",
    "tile_order",
    "twice",
    "waves",
]
