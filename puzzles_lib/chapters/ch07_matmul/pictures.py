"""Pictures of chapter 07: tiles, the walk along K, and what a tile costs."""

from pathlib import Path

import torch
import triton
from torch import Tensor

from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL, MULTIPROCESSORS, REGISTERS, SHAPE, SHARED
from puzzles_lib.drawing.colours import BLUE, GREEN, INK, ORANGE, PALE, SKY, VERMILLION
from puzzles_lib.drawing.live import ON_FILL, Live
from puzzles_lib.drawing.sheet import Picture, box, cells, label, new_figure, new_sheet
from puzzles_lib.inputs import make_inputs

X, Y, Z = SKY, ORANGE, GREEN
TILE = {"edge": INK, "linewidth": 0.9, "fontsize": 9}
PADDING = "xxx"


MOST_BYTES = 3
"""What it may move, as a multiple of the minimum."""


def reads(BLOCK_M: int, BLOCK_N: int) -> tuple[int, int]:
    """Return how many times x and y of `SHAPE` are read, with tiles of BLOCK_M x BLOCK_N."""
    return triton.cdiv(SHAPE.N, BLOCK_N), triton.cdiv(SHAPE.M, BLOCK_M)


def traffic(BLOCK_M: int, BLOCK_N: int) -> float:
    """Return the bytes that such tiles move, as a multiple of reading and writing everything once."""
    x, y, z = SHAPE.M * SHAPE.K, SHAPE.K * SHAPE.N, SHAPE.M * SHAPE.N
    x_reads, y_reads = reads(BLOCK_M, BLOCK_N)
    return (x_reads * x + y_reads * y + z) / (x + y + z)


def tile_bytes(BLOCK_M: int, BLOCK_N: int) -> int:
    """Return the bytes of a float32 accumulator."""
    return 4 * BLOCK_M * BLOCK_N


def waiting_bytes(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, iterations: int = 3) -> int:
    """Return the bytes of the float16 tiles of x and y that wait in shared memory."""
    return 2 * iterations * (BLOCK_M + BLOCK_N) * BLOCK_K


def tiles() -> Picture:
    """Draw what one program reads and writes: a band of x, a band of y, a tile of z."""
    case = BATCHED_MATMUL.cases[1]
    i, j = 1, 0
    M, N, K = case.M, case.N, case.K
    steps = K // case.BLOCK_K
    gap = 16
    figure = new_figure(6.9, 5.6)
    ax = figure.add_subplot()
    ax.set(xlim=(-24, K + gap + N + 4), ylim=(K + gap + M + 12, -12), aspect="equal")
    ax.set_axis_off()
    left, top = K + gap, K + gap
    for matrix in ((0, top, K, M), (left, 0, N, K), (left, top, N, M)):
        box(ax, *matrix, linewidth=0.9)
    row, column = i * case.BLOCK_M, j * case.BLOCK_N
    for step in range(steps):
        start = step * case.BLOCK_K
        box(ax, start, top + row, case.BLOCK_K, case.BLOCK_M, f"iteration\n{step + 1}", color=X, **TILE)
        box(ax, left + column, start, case.BLOCK_N, case.BLOCK_K, f"iter. {step + 1}", color=Y, **TILE)
    box(ax, left + column, top + row, case.BLOCK_N, case.BLOCK_M, "acc", color=Z, **TILE)
    words = [
        (K / 2, top + M + 7, f"x: M × K = {M} × {K}"),
        (left + N / 2, -6, f"y: K × N = {K} × {N}"),
        (left + N / 2, top + M + 7, f"z: M × N = {M} × {N}"),
    ]
    legend = (
        f"program ({i}, {j}, b): row {i}, column {j} of the tiles",
        f"BLOCK_M = {case.BLOCK_M}: its rows of x and z",
        f"BLOCK_N = {case.BLOCK_N}: its columns of y and z",
        f"BLOCK_K = {case.BLOCK_K}: one iteration along K",
    )
    for line, text in enumerate(legend):
        label(ax, -22, 22 + 11 * line, text, align="left", fontsize=10)
    for x, y, text in words:
        label(ax, x, y, text)
    middle = top + row + case.BLOCK_M / 2
    label(ax, -2, middle, f"{case.BLOCK_M} rows", align="right", fontsize=9)
    middle = left + column + case.BLOCK_N / 2
    label(ax, middle, K + 6, f"{case.BLOCK_N} columns", fontsize=9)
    return Picture(
        figure,
        f"Program ({i}, {j}, b) of the case M={M}, N={N}, K={K}, BLOCK_M={case.BLOCK_M}, "
        f"BLOCK_N={case.BLOCK_N}, BLOCK_K={case.BLOCK_K}. It owns the tile of z with rows {row} to "
        f"{row + case.BLOCK_M - 1} and columns {column} to {column + case.BLOCK_N - 1}, named acc. It walks "
        f"along K in {steps} iterations: each takes a block of the same rows of x and a block of the same "
        f"columns of y.",
    )


def small_product(tile: int = 3, size: int = 6) -> tuple[Tensor, Tensor]:
    """Return the x and y that the chapter multiplies by hand."""
    place = torch.arange(tile * size)
    return ((3 * place + 2) % 5).view(tile, size), ((3 * place + 1) % 4 + 1).view(size, tile)


def walk(block: int = 2) -> Picture:
    """Draw the walk along K: each iteration takes two new blocks, and the accumulator stays."""
    x, y = small_product()
    tile, size = x.shape
    steps = size // block
    figure, ax = new_sheet(steps * (size + tile + 3.2) + 0.4, size + tile + 3.6, unit=0.3)
    sums = []
    for step in range(steps):
        left, top = 1.2 + step * (size + tile + 3.2), 1.5
        ks = range(step * block, (step + 1) * block)
        done = x[:, : (step + 1) * block] @ y[: (step + 1) * block]
        sums.append(done.tolist())
        label(ax, left + (size + tile) / 2, 0.6, f"iteration {step + 1}: k = {ks[0]}, {ks[-1]}", fontsize=11)
        across = [[X if k in ks else PALE for k in range(size)]] * tile
        down = [[Y if k in ks else PALE] * tile for k in range(size)]
        cells(
            ax,
            x.tolist(),
            x=left,
            y=top + size + 0.5,
            colors=across,
            title="x",
            fontsize=9,
        )
        cells(
            ax,
            y.tolist(),
            x=left + size + 0.5,
            y=top,
            colors=down,
            title="y",
            fontsize=9,
        )
        acc = cells(ax, done.tolist(), x=left + size + 0.5, y=top + size + 0.5, colors=Z, fontsize=9)
        label(ax, acc.x + tile / 2, acc.bottom + 0.5, "acc")
    return Picture(
        figure,
        f"x of {tile} x {size}, {x.tolist()}, and y of {size} x {tile}, {y.tolist()}, walked along K in "
        f"{steps} iterations of {block}. Each iteration takes {block} columns of x and {block} rows of y, "
        f"and adds their product to acc, which stays. acc after each iteration: "
        f"{'; '.join(str(s) for s in sums)}.",
    )


def ragged_k() -> Picture:
    """Draw the last iteration along K with other=0.0 in both loads, and in one of them."""
    row, column, block = [3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8], 4
    full = sum(a * b for a, b in zip(row[:block], column[:block], strict=True))
    real, total = len(row) - block, sum(a * b for a, b in zip(row, column, strict=True))
    figure, ax = new_sheet(26.0, 6.4)
    panels = (
        ("iteration 1", row[:block], column[:block], f"acc = {full}", block),
        (
            "last iteration, other=0.0 in both",
            [*row[block:], 0, 0],
            [*column[block:], 0, 0],
            f"acc = {total}",
            real,
        ),
        (
            "other=0.0 for y alone",
            [*row[block:], "\N{INFINITY}", 7],
            [*column[block:], 0, 0],
            "acc = NaN",
            real,
        ),
    )
    for number, (title, x, y, acc, kept) in enumerate(panels):
        left = 3.0 + 7.9 * number
        bad = number == 2
        color = VERMILLION if bad else INK
        label(ax, left, 0.5, title, align="left", fontsize=10)
        ks = range(0 if not number else block, block * (2 if number else 1))
        hatch = [None if place < kept else PADDING for place in range(block)]
        for line, (values, fill) in enumerate(((x, X), (y, Y))):
            strip = cells(
                ax,
                [value if place < kept else "" for place, value in enumerate(values)],
                x=left,
                y=1.9 + 1.3 * line,
                width=1.35,
                colors=[fill if place < kept else None for place in range(block)],
                hatch=hatch,
                index=[f"k={k}" for k in ks] if not line else False,
                title=("x[m, :]", "y[:, n]")[line] if not number else None,
                fontsize=11,
            )
            for place in range(kept, block):  # readable on the hatching
                label(ax, *strip.center(place), str(values[place]), fontsize=11, behind="white", pad=0.8)
        terms = " + ".join(f"{a}·{b}" for a, b in zip(x, y, strict=True))
        label(ax, left + 2.7, 4.9, terms, fontsize=10, color=color)
        label(ax, left + 2.7, 5.8, acc, fontsize=11, color=color)
    return Picture(
        figure,
        f"One row of x and one column of y with K = {len(row)}, walked by BLOCK_K = {block}. Iteration 1 "
        f"brings acc to {full}. The last iteration has {real} real pairs. With other=0.0 in both loads, the "
        f"lanes past K add 0·0, so acc ends at {total}. With other=0.0 for y alone, a lane of x contains "
        "infinity: infinity times 0 is NaN, and so is acc.",
    )


def running_sums() -> Picture:
    """Draw the accumulator of one element of z in the puzzle's last case, in float32 and in float16."""
    case = BATCHED_MATMUL.cases[-1]
    inputs = make_inputs(BATCHED_MATMUL, case)
    terms = inputs["x"][0, 1].float() * inputs["y"][0, :, 0].float()  # [K]
    steps = terms.view(-1, case.BLOCK_K).sum(1)  # [K / BLOCK_K]
    half, sums = torch.zeros((), dtype=torch.float16), []
    for step in steps:
        half = half + step.half()
        sums.append(half.item())
    full = steps.cumsum(0)
    figure = new_figure(6.4, 3.2)
    ax = figure.add_subplot()
    count = range(1, len(steps) + 1)
    ax.plot(count, full, "o-", color=BLUE, markersize=4)
    ax.plot(count, sums, "s--", color=VERMILLION, markersize=4)
    ax.annotate("acc in float32", (11, full[10]), (-8, 8), textcoords="offset points", ha="right", color=BLUE)
    ax.annotate(
        "acc in float16", (13, sums[12]), (0, 8), textcoords="offset points", ha="center", color=VERMILLION
    )
    ax.set_xlabel(f"iteration, each with {case.BLOCK_K} along K")
    ax.set_ylabel("acc[1, 0]")
    ax.set_xticks(range(1, len(steps) + 1, 3))
    ax.ticklabel_format(useOffset=False)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(
        figure,
        f"The accumulator of z[0, 1, 0] in the case K={case.K} over its {len(steps)} iterations. In float32 "
        f"it climbs from {full[0]:.2f} to {full[-1]:.2f}. In float16 it is {sums[-1]:.0f} from the first "
        f"iteration to the last: each adds about {steps[1:].mean():.1f}, and float16 has no number between "
        f"6144 and 6148.",
    )


def repeats() -> Picture:
    """Draw how many times each input is read, for three block sizes."""
    size, blocks = 64, (16, 32, 64)
    figure, ax = new_sheet(18.2, 7.9)
    told = []
    for panel, block in enumerate(blocks):
        left, count = 0.7 + panel * 6.1, triton.cdiv(size, block)
        side, gap = 4.4 / 2, 0.35
        top = 1.2
        rule = side / count
        corner = (left + side + gap, top + side + gap)
        for color, x, y in ((X, left, corner[1]), (Y, corner[0], top)):
            box(ax, x, y, side, side, color=color, edge=INK, linewidth=0.9)
        label(ax, left + side / 2, corner[1] - 0.4, f"x, read {count}x")
        label(ax, corner[0] - 0.2, top + side / 2, f"y, read {count}x", align="right")
        box(ax, *corner, side, side, color=Z, **TILE)
        # what the tiles of a row, and those of a column, have in common
        for x in (left, corner[0]):
            box(ax, x, corner[1], side, rule, color=None, edge=VERMILLION, linewidth=2.4)
        for y in (top, corner[1]):
            box(ax, corner[0], y, rule, side, color=None, edge=INK, linewidth=2.4, dashed=True)
        for i in range(1, count):
            ax.plot([corner[0] + i * rule] * 2, [corner[1], corner[1] + side], color=INK, linewidth=0.7)
            ax.plot([corner[0], corner[0] + side], [corner[1] + i * rule] * 2, color=INK, linewidth=0.7)
        label(ax, corner[0] + side + 0.25, corner[1] + side / 2, "z", align="left")
        ratio = (2 * count + 1) / 3
        programs = count * count
        middle = left + side + gap / 2
        words = f"blocks of {block}: {programs} program{'s' * (programs > 1)}"
        label(ax, middle, 0.5, words)
        label(ax, middle, corner[1] + side + 0.5, f"bytes: {ratio:.2f}x the minimum")
        told.append(f"blocks of {block}: {programs} program{'s' * (programs > 1)}, {count}x, {ratio:.2f}x")
    words = "solid frame: a row of tiles, which all read the same rows of x; dashed: a column, and its y"
    label(ax, 9.1, corner[1] + side + 1.3, words, fontsize=9)
    return Picture(
        figure,
        f"x, y and z of {size} x {size} with z cut into tiles, one program each. A row of tiles of z reads "
        f"the same rows of x, in a solid frame, a column of tiles the same columns of y, in a dashed one. "
        f"How often x and y are each "
        f"read, and bytes moved, as a multiple of the minimum: {'; '.join(told)}.",
    )


GAP = 8
"""Between the tiles, in elements."""


def _rect(x: int, y: int, width: int, height: int) -> str:
    return f'x="{x}" y="{y}" width="{width}" height="{height}"'


def drag(BLOCK_M: int = 64, BLOCK_N: int = 64, BLOCK_K: int = 32) -> Live:
    """Show the tiles of one iteration to scale, what they read and cost, and sliders for the blocks."""
    x_reads, y_reads = reads(BLOCK_M, BLOCK_N)
    sliders = "".join(
        f'<label>{name} = <b>{side}</b><input data-side="{name}" type="range" min="4" max="{most}" '
        f'value="{side.bit_length() - 1}" aria-label="{name}" style="width:100%"></label>'
        for name, side, most in (("BLOCK_M", BLOCK_M, 10), ("BLOCK_N", BLOCK_N, 10), ("BLOCK_K", BLOCK_K, 8))
    )
    inside = SHAPE.N / (x_reads * BLOCK_N)
    told = {
        "programs": f"{x_reads * y_reads}",
        "iterations": f"{-(-SHAPE.K // BLOCK_K)}",
        "x is read": f"{x_reads}x",
        "y is read": f"{y_reads}x",
        "bytes moved": f"{traffic(BLOCK_M, BLOCK_N):.2f}x the minimum",
        "accumulator": f"{tile_bytes(BLOCK_M, BLOCK_N) / 1024:g} KiB",
        "shared memory": f"{waiting_bytes(BLOCK_M, BLOCK_N, BLOCK_K) / 1024:g} KiB",
        "lanes past N": f"{100 * (1 - inside):.0f}%",
    }
    view = f"0 0 {BLOCK_K + GAP + BLOCK_N} {BLOCK_K + GAP + BLOCK_M}"
    named = ", ".join(
        f'<span style="background:{color};padding:0 .3em;{ON_FILL}">{name}</span>'
        for name, color in (("x", X), ("y", Y), ("acc", Z))
    )
    limits = {
        "programs": f" (at least {MULTIPROCESSORS})",
        "bytes moved": f" (less than {MOST_BYTES:g}x)",
        "accumulator": f" (at most {REGISTERS // 1024} KiB)",
        "shared memory": f" (at most {SHARED // 1024} KiB)",
    }
    broken = {
        "programs": x_reads * y_reads < MULTIPROCESSORS,
        "bytes moved": traffic(BLOCK_M, BLOCK_N) >= MOST_BYTES,
        "accumulator": tile_bytes(BLOCK_M, BLOCK_N) > REGISTERS,
        "shared memory": waiting_bytes(BLOCK_M, BLOCK_N, BLOCK_K) > SHARED,
    }
    marks = {
        name: f' <span data-broken="{name}" style="background:{VERMILLION};padding:0 .3em;{ON_FILL}'
        f'{"" if is_broken else ";display:none"}">✗ broken</span>'
        for name, is_broken in broken.items()
    }
    numbers = "".join(
        f'<div>{name}: <b data-is="{name}">{text}</b>{limits.get(name, "")}{marks.get(name, "")}</div>'
        for name, text in told.items()
    )
    return Live(
        "tile",
        f'<div data-sizes="{SHAPE.M} {SHAPE.N} {SHAPE.K}" '
        f'data-limits="{MULTIPROCESSORS} {MOST_BYTES:g} {REGISTERS} {SHARED}" style="display:grid;gap:1.5em;'
        f'grid-template-columns:auto minmax(0,15em) auto;justify-content:start;align-items:start">'
        f'<div style="text-align:center"><svg style="width:10em;height:10em" '
        f'viewBox="{view}" aria-hidden="true">'
        f'<rect data-part="x" fill="{X}" {_rect(0, BLOCK_K + GAP, BLOCK_K, BLOCK_M)}/>'
        f'<rect data-part="y" fill="{Y}" {_rect(BLOCK_K + GAP, 0, BLOCK_N, BLOCK_K)}/>'
        f'<rect data-part="z" fill="{Z}" {_rect(BLOCK_K + GAP, BLOCK_K + GAP, BLOCK_N, BLOCK_M)}/></svg>'
        f"<div>tiles of {named}</div></div>"
        f'<div><div style="margin-bottom:.5em">z: {SHAPE.M} x {SHAPE.N}, K = {SHAPE.K}</div>'
        f"{sliders}</div>"
        f'<div aria-live="polite">{numbers}</div></div>',
        Path(__file__).with_name("drag.js").read_text("utf-8"),
        f"The tiles of x, y and acc for a z of {SHAPE.M} x {SHAPE.N}, K = {SHAPE.K}, to scale. Sliders "
        f"set BLOCK_M and BLOCK_N from 16 to 1024, and BLOCK_K from 16 to 256. "
        f"{BLOCK_M} x {BLOCK_N} x {BLOCK_K}: "
        f"{', '.join(f'{name} {text}' for name, text in told.items())}. "
        f"Broken limits are marked: {', '.join(name for name in broken if broken[name]) or 'none'}.",
    )


__all__ = ["drag", "ragged_k", "repeats", "running_sums", "tiles", "walk"]
