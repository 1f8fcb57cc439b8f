"""Pictures of chapter 00: a photo at dusk, what a program is, and the value of each name in a kernel."""

from collections.abc import Sequence

import torch
from matplotlib.colors import to_rgb
from matplotlib.image import AxesImage

from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.chapters.ch06_convolution.pictures import gallery, hung, scene
from puzzles_lib.drawing.colours import (
    FAINT,
    INK,
    JET,
    LINE,
    PAPER,
    PROGRAM_COLORS,
    SNOW,
    TWELVE_COLORS,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.inputs import make_inputs

PIXEL = 1 / 24  # inches: 4 pixels of a screen, so that all are of one size
BLOCK = 512  # of the kernels that make pictures
SUN = 14 * 96 + 74  # the element in the middle of the sun

__all__ = [
    "PIXEL", "dusk", "gallery", "hung", "launch", "line_by_line", "noise", "noise_shown", "painters", "pairs",
    "programs",
]  # fmt: skip


def dusk() -> torch.Tensor:
    """Return a small dark picture: float32 [64, 96], where 0 is black and 0.5 is the brightest."""
    return scene() / 2


def noise() -> torch.Tensor:
    """Return float32 [64, 96]: 48 pairs a row, in which the second number is larger where a picture is white.

    Both numbers of a pair have the same random number added, so neither alone shows the picture.
    """
    halves = (_trident().float() - 0.5) * 0.3  # -0.15 or 0.15
    base = torch.rand(halves.shape, generator=torch.Generator().manual_seed(5)) * 0.7 + 0.15
    return torch.stack([base - halves, base + halves], dim=2).flatten(1)


def noise_shown() -> Picture:
    """Draw the noise in which a picture hides."""
    return hung({"x": (noise(), "")}, unit=PIXEL)


def _trident() -> torch.Tensor:
    """Return the picture in the noise: bool [64, 48]."""
    i, j = torch.meshgrid(torch.arange(64.0), torch.arange(48.0) - 23.5, indexing="ij")
    ring = (i >= 26) & (((i - 26) ** 2 + j**2).sqrt() - 13).abs().lt(1.8)
    prongs = (i >= 12) & (i < 27) & ((j.abs() - 13).abs() < 1.8)
    shaft = (i >= 8) & (i < 60) & (j.abs() < 1.8)
    tips = ((i >= 6) & (i < 13) & ((j.abs() - 13).abs() < (i - 5) * 0.7)) | (
        (i >= 2) & (i < 10) & (j.abs() < (i - 1) * 0.7)
    )
    return ring | prongs | shaft | tips


def painters() -> Picture:
    """Draw the picture at dusk with a tint for each program, and mark the middle of the sun."""
    x, size = dusk(), 0.17
    rows, columns = x.shape
    figure, ax = new_sheet(columns * size + 5.0, rows * size + 0.9)
    owner = torch.arange(rows * columns).view(rows, columns) // BLOCK
    palette = torch.tensor([to_rgb(color) for color in TWELVE_COLORS])
    tinted = (0.25 + 1.5 * x[..., None]) * palette[owner % len(palette)]
    shown = AxesImage(ax, extent=(0.3, 0.3 + columns * size, rows * size + 0.6, 0.6), interpolation="none")
    shown.set_data((255 * tinted.clamp(max=1)).round().byte().numpy())
    ax.add_image(shown)
    right = 0.3 + columns * size
    for program in range(rows * columns // BLOCK):
        middle = 0.6 + size * BLOCK / columns * (program + 0.5)
        box(ax, right + 0.25, middle - 0.3, 0.6, 0.6, color=TWELVE_COLORS[program % len(TWELVE_COLORS)])
        label(ax, right + 1.1, middle, f"program {program}", align="left", fontsize=9)
    row, column = divmod(SUN, columns)
    x_at, y_at = 0.3 + size * (column + 0.5), 0.6 + size * (row + 0.5)
    ax.plot([x_at], [y_at], marker="+", markersize=11, markeredgewidth=2, color=JET)
    label(ax, x_at - 0.5, y_at, f"element {SUN:,}", align="right", fontsize=9, color=JET, behind=SNOW, pad=4)
    return Picture(
        figure,
        f"""The picture at dusk in {rows * columns // BLOCK} stripes, one per program, in a color each. A
        stripe has {BLOCK} pixels, which is {BLOCK // columns} rows and a third. The middle of the
        sun, element {SUN:,}, is marked.""",
    )


def pairs(count: int = 4) -> Picture:
    """Draw the pairs of numbers in x, and the element of z that belongs to each."""
    figure, ax = new_sheet(22.4, 6.1)
    wide, left = 2.0, 3.0
    names = [f"x[{at}]" for at in range(2 * count)]
    x = cells(ax, names, x=left, y=1.3, width=wide, colors=PROGRAM_COLORS[0], title="x")
    z = cells(ax, [f"z[{n}]" for n in range(count)], x=left, y=4.4, width=2 * wide, height=1.0,
              colors=PROGRAM_COLORS[0], title="z")  # fmt: skip
    for n in range(count):
        label(ax, left + (2 * n + 1) * wide, 0.75, f"pair {n}: lane {n}", fontsize=11)
        target = (left + (2 * n + 1) * wide, 4.4)
        arrow(ax, x.foot(2 * n), target)
        arrow(ax, x.foot(2 * n + 1), target)
        label(ax, x.foot(2 * n)[0] - 0.05, 3.2, "\N{MINUS SIGN}", fontsize=13)
        label(ax, x.foot(2 * n + 1)[0] + 0.05, 3.2, "+", fontsize=13)
    label(ax, z.right + 0.3, 4.9, "...", align="left")
    return Picture(
        figure,
        f"""x in pairs: x[0] and x[1], x[2] and x[3], and so on. In program 0, lane 0 has pair 0, and lane 1
        has pair 1. Each pair becomes one element of z, the second number minus the first: {count} elements of
        z from {2 * count} of x.""",
    )


def programs(case: int = 2) -> Picture:
    """Draw a tensor cut into blocks, and the programs that take one block each."""
    case = DOUBLE.cases[case]
    count, lanes = DOUBLE.programs(case)[0], DOUBLE.programs(case)[0] * case.BLOCK
    figure, ax = new_sheet(lanes + 4.6, 5.0, unit=0.265)
    inside = [lane < case.N for lane in range(lanes)]
    owner = [lane // case.BLOCK % len(PROGRAM_COLORS) for lane in range(lanes)]
    tensor = cells(
        ax,
        [lane if inside[lane] else "" for lane in range(lanes)],
        x=4,
        y=3.3,
        colors=[PROGRAM_COLORS[owner[lane]] if inside[lane] else None for lane in range(lanes)],
        hatch=[None if inside[lane] else "////" for lane in range(lanes)],
        title="x",
        fontsize=9,
    )
    label(ax, 3.75, 1.1, "programs", align="right")
    for pid in range(count):
        left = tensor.x + pid * case.BLOCK + 0.4
        size = (case.BLOCK - 0.8, 1.2)
        box(ax, left, 0.5, *size, f"program_id = {pid}", color=PROGRAM_COLORS[pid])
        left, right = left - 0.25, left + size[0] + 0.25
        ax.plot([left, left, right, right], [3.1, 2.5, 2.5, 3.1], color=LINE, linewidth=1.5)
        ax.plot([(left + right) / 2] * 2, [1.7, 2.5], color=LINE, linewidth=1.5)
    beyond = lanes - case.N
    return Picture(
        figure,
        f"""A tensor x of {case.N} elements, cut into {count} blocks of {case.BLOCK}. Each block belongs to
        one of the programs with program_id 0 to {count - 1}. The last block has only
        {case.BLOCK - beyond} elements: its last {beyond} lanes are past the end and are hatched.""",
    )


def line_by_line(program: int = 3, case: int = 2) -> Picture:
    """Draw what each line of the chapter's kernel computes in one program, from inputs with two decimals."""
    case = DOUBLE.cases[case]
    x = [round(value, 2) for value in make_inputs(DOUBLE, case)["x"].tolist()]
    offs = [program * case.BLOCK + lane for lane in range(case.BLOCK)]
    mask = [off < case.N for off in offs]
    loaded = [x[off] if off < case.N else None for off in offs]
    results = [2 * v if v is not None else None for v in loaded]
    color = PROGRAM_COLORS[program % len(PROGRAM_COLORS)]
    on = [color if m else None for m in mask]
    hatched = [None if m else "////" for m in mask]
    figure, ax = new_sheet(24.4, 13.6)
    left, wide = 11.4, 1.55
    as_code = {"align": "left", "fontsize": 9.5, "family": "monospace"}

    def row(y: float, line: str, values: list, colors: object, hatch: object = None) -> None:
        label(ax, 0.2, y + 0.5, line, **as_code)
        cells(ax, values, x=left, y=y, width=wide, colors=colors, hatch=hatch, index=y > 2.5 and y < 3)

    row(0.8, "pid = tl.program_id(0)", [program], color)
    row(2.7, "offs = pid * BLOCK + tl.arange(0, BLOCK)", offs, color)
    label(ax, left - 0.25, 2.4, "lane", align="right", fontsize=9, color=FAINT)
    row(4.2, "mask = offs < N", mask, on)
    row(5.7, "x_ptr + offs", [f"x[{off}]" if off < case.N else "" for off in offs], on, hatched)
    for lane, off in enumerate(offs):
        if off >= case.N:  # an address, but not one of x
            label(ax, left + (lane + 0.5) * wide, 6.2, f"x[{off}]", color=FAINT, behind=PAPER)
    label(ax, left - 0.25, 6.2, "addresses of", align="right", fontsize=9, color=FAINT)
    row(7.2, "x = tl.load(x_ptr + offs, mask=mask)", [_signed(v) for v in loaded], on, hatched)
    row(8.7, "z = 2 * x", [_signed(v) for v in results], on, hatched)
    label(ax, 0.2, 10.7, "tl.store(z_ptr + offs, z, mask=mask)", **as_code)
    live = sum(mask)
    stored = [_signed(v) for v in results[:live]]
    cells(ax, stored, x=left, y=11.7, width=wide, colors=color, title="in memory")
    for lane in range(live):
        at = left + (lane + 0.5) * wide
        arrow(ax, (at, 9.8), (at, 11.6))
        label(ax, at, 13.1, f"z[{offs[lane]}]", fontsize=9, color=FAINT)
    off_lanes = "hatched: masked off,\npast the end of x"
    label(ax, left + (live + 0.15) * wide, 12.2, off_lanes, align="left", fontsize=9, color=FAINT)
    return Picture(
        figure,
        f"""Program {program} of the kernel on N = {case.N}, BLOCK = {case.BLOCK}, one line of code per row
        and one column per lane. offs runs from {offs[0]} to {offs[-1]}; the mask is True in the first {live}
        lanes and False in the last {case.BLOCK - live}; x_ptr + offs has the addresses of x[{offs[0]}] to
        x[{offs[-1]}], although x has no elements from x[{case.N}] on, where the lanes are masked off; x is
        {", ".join(_signed(v) for v in loaded[:live])}; z is twice that, and is stored to z[{offs[0]}] to
        z[{offs[live - 1]}].""",
    )


TIMES = (5, 3, 4, 6, 4, 5, 5, 2, 4, 5, 3, 4)  # made-up durations; no two programs end together


def launch(places: int = 4, times: Sequence[int] = TIMES) -> Picture:
    """Draw programs of a grid as they start and end on a few multiprocessors, each taking the next one."""
    programs = len(times)
    figure, ax = new_sheet(22.0, 4.0 + 1.15 * places)
    queue = 21.4 - 0.8 * programs
    label(ax, queue - 0.25, 0.45, "the queue before the launch", align="right", fontsize=11)
    free, ended = [0] * places, []
    unit = 16.0 / max(sum(times) / places + max(times) / 2, 1)
    for pid in range(programs):
        place = min(range(places), key=lambda p: (free[p], p))
        start, free[place] = free[place], free[place] + times[pid]
        ended.append((free[place], pid))
        x, y = 5.2 + start * unit, 2.5 + 1.15 * place
        color = TWELVE_COLORS[pid % len(TWELVE_COLORS)]
        box(ax, queue + 0.8 * pid, 0.1, 0.8, 0.7, str(pid), color=color, fontsize=9)
        box(ax, x, y, times[pid] * unit, 0.9, f"program {pid}", color=color, edge=INK)
    for place in range(places):
        label(ax, 5.0, 2.95 + 1.15 * place, f"multiprocessor {place}", align="right")
    order = ", ".join(str(pid) for _, pid in sorted(ended))
    foot = 2.9 + 1.15 * places
    ax.plot([5.2, 5.2], [1.9, foot - 0.4], color=INK, linewidth=1.4)
    label(ax, 5.2, 1.55, "launch", fontsize=9, color=FAINT)
    label(ax, 5.2, foot, "time → (made-up durations)", align="left", fontsize=9, color=FAINT)
    label(ax, 5.2, foot + 0.6, f"the programs end in the order {order}", align="left")
    return Picture(
        figure,
        f"""A launch of {programs} programs on {places} multiprocessors. A multiprocessor that has finished a
        program takes the next one from the queue. The programs take different times, so they don't end in
        the order in which they started, but in this one: {order}.""",
    )


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
