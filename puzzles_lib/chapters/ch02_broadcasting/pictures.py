"""Pictures of chapter 02: broadcasting, offsets in two dimensions, tiles to drag, and a fractal."""

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.image import AxesImage

from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD_BLOCKS
from puzzles_lib.drawing.accesses import program_colors
from puzzles_lib.drawing.colours import (
    FAINT,
    INK,
    LILAC,
    ORANGE,
    PALE,
    PALE_ORANGE,
    PALE_SKY,
    PROGRAM_COLORS,
    SKY,
    text_color,
)
from puzzles_lib.drawing.live import Live
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.puzzle import Case

SENTENCE = ("The", "cat", "sat", "on", "the", "mat")


def causal(words: tuple[str, ...] = SENTENCE) -> Picture:
    """Draw the causal mask of a sentence: which words each word may see."""
    size = len(words)
    figure, ax = new_sheet(size * 1.5 + 6.4, size + 3.0)
    texts = [["yes" if m >= n else "no" for n in range(size)] for m in range(size)]
    colors = [[SKY if m >= n else "white" for n in range(size)] for m in range(size)]
    grid = cells(ax, texts, x=4.6, y=2.0, width=1.5, colors=colors, index=words, row_index=words, fontsize=10)
    label(ax, (grid.x + grid.right) / 2, 0.6, "may see this word?", fontsize=11)
    label(ax, 2.7, 2.0 + size / 2, "this word …", align="right", fontsize=11)
    label(
        ax, 4.6, grid.bottom + 0.6, "each word sees itself and the words before it", align="left", color=FAINT
    )
    return Picture(
        figure,
        f"""The causal mask of "{" ".join(words)}": {size} rows and {size} columns, one per word. Each row
        has a yes in the columns up to its own word, and a no in all columns after it. So "{words[0]}" sees
        only itself, and "{words[-1]}" sees all {size} words.""",
    )


def seen(rows: object, BLOCK_M: int, BLOCK_N: int, words: int = 12) -> Picture:
    """Draw a matrix of which words each word sees, under the tiles of the programs that computed it.

    rows: the matrix, as rows of numbers; anything else counts as not computed yet.
    """
    known = isinstance(rows, list | tuple) and len(rows) == words
    values = [[bool(v) for v in row] for row in rows] if known else [[False] * words] * words
    down, across = -(-words // BLOCK_M), -(-words // BLOCK_N)
    figure, ax = new_sheet(words + 8.0, down * BLOCK_M * 0.8 + 3.4)
    left, top, high = 4.0, 1.6, 0.8
    colors = [[SKY if value else "white" for value in row] for row in values]
    grid = cells(
        ax, [[""] * words] * words, x=left, y=top, height=high, colors=colors, index=True, row_index=True
    )
    bottom = top + down * BLOCK_M * high
    box(
        ax,
        left,
        grid.bottom,
        across * BLOCK_N,
        bottom - grid.bottom,
        color="white",
        hatch="////",
        linewidth=0,
    )
    for m in range(down):
        for n in range(across):
            x, y = left + n * BLOCK_N, top + m * BLOCK_M * high
            box(ax, x, y, BLOCK_N, BLOCK_M * high, color=None, edge=INK, linewidth=2.4)
    label(ax, left + words / 2, 0.5, "column n: a word that may be seen", fontsize=11)
    label(ax, 2.6, grid.y + words * high / 2, "row m: a word", fontsize=11, rotation=90)
    count = sum(map(sum, values))
    note = f"thick lines: the tiles of {down * across} programs; hatched: lanes without an element"
    label(ax, left, bottom + 0.6, note, align="left", color=FAINT)
    each = " ".join(
        f"{m}: {', '.join(str(n) for n, v in enumerate(row) if v)}." for m, row in enumerate(values)
    )
    told = f"{count} are blue. Row by row, these columns: {each}" if count else "No cell is blue."
    return Picture(
        figure,
        f"""A matrix of {words} x {words} cells, blue where word m sees word n. {told} Thick lines show the
        tiles of {down} x {across} programs, {BLOCK_M} rows by {BLOCK_N} columns each.""",
    )


def broadcast(x: tuple[int, ...] = (1, 2, 3, 4), y: tuple[int, ...] = (10, 20, 30)) -> Picture:
    """Draw a row plus a column: both are stretched to the shape of the result."""
    rows, columns = len(y), len(x)
    figure, ax = new_sheet(3 * columns + 3.6, rows + 3.2)
    left = [0.3 + i * (columns + 1.5) for i in range(3)]
    row_colors = [[SKY if r == 0 else PALE_SKY] * columns for r in range(rows)]
    column_colors = [[ORANGE if c == 0 else PALE_ORANGE for c in range(columns)]] * rows
    for at, name, shape, values, colors in (
        (left[0], "x[None, :]", f"1 x {columns}", [list(x)] * rows, row_colors),
        (left[1], "y[:, None]", f"{rows} x 1", [[b] * columns for b in y], column_colors),
        (left[2], "z", f"{rows} x {columns}", [[a + b for a in x] for b in y], PALE),
    ):
        cells(ax, values, x=at, y=1.9, colors=colors, edge="white")
        label(ax, at + columns / 2, 0.6, name, fontsize=11)
        label(ax, at + columns / 2, 1.4, shape, color=FAINT)
    for at, sign in ((left[1], "+"), (left[2], "=")):
        label(ax, at - 0.75, 1.9 + rows / 2, sign, fontsize=15)
    note = "strong colors: the values themselves; pale: the same values, repeated"
    label(ax, left[0], 2.5 + rows, note, align="left", color=FAINT)
    return Picture(
        figure,
        f"""x[None, :] is a row of {columns} numbers, {", ".join(map(str, x))}, repeated in {rows} rows.
        y[:, None] is a column of {rows} numbers, {", ".join(map(str, y))}, repeated in {columns}
        columns. Their sum z is {rows} x {columns}; its corners are {x[0] + y[0]}, {x[-1] + y[0]},
        {x[0] + y[-1]} and {x[-1] + y[-1]}.""",
    )


def addresses(rows: int = 3, columns: int = 5, at: tuple[int, int] = (2, 1)) -> Picture:
    """Draw a matrix, its memory, which is row after row, and where one element goes."""
    figure, ax = new_sheet(rows * columns + 6.6, rows + 5.2)
    shades, left, top = (SKY, PALE_SKY), 4.6, 1.5
    index = [[m * columns + n for n in range(columns)] for m in range(rows)]
    fills = [[shades[m % 2]] * columns for m in range(rows)]
    matrix = cells(ax, index, x=left, y=top, colors=fills, index=True, row_index=True)
    label(ax, left + columns / 2, 0.35, "n", fontsize=11)
    label(ax, left - 1.2, top + rows / 2, "m", align="right", fontsize=11)
    label(ax, matrix.right + 0.4, top + 0.5, "offsets of z[m, n]", align="left")
    label(ax, matrix.right + 0.4, top + 1.3, f"N = {columns}", align="left", color=FAINT)
    flat = [v for row in index for v in row]
    fills = [shades[v // columns % 2] for v in flat]
    memory = cells(ax, flat, x=left, y=rows + 3.4, colors=fills, title="memory of z")
    for m in range(rows):
        middle = left + (m + 0.5) * columns
        label(ax, middle, memory.bottom + 0.35, f"row {m}", fontsize=9, color=FAINT)
    m, n = at
    start, end = matrix.foot(m, n), memory.top(index[m][n])
    arrow(ax, start, end, bend=-0.15)
    words = f"z[{m}, {n}] is at {m} * {columns} + {n} = {index[m][n]}"
    label(ax, end[0] + 0.4, end[1] - 0.8, words, align="left", fontsize=11)
    for place in (matrix.center(m, n), memory.center(index[m][n])):
        box(ax, place[0] - 0.5, place[1] - 0.5, color=None, edge=INK, linewidth=2.2)
    return Picture(
        figure,
        f"""A matrix z of {rows} rows and {columns} columns, and its memory: {rows * columns} places in one
        line, row after row. Row m begins at place {", ".join(str(r[0]) for r in index)}, and the columns of a
        row follow. An arrow points from z[{m}, {n}] in the matrix to its place in memory:
        {m} * {columns} + {n} = {index[m][n]}.""",
    )


def mask(M: int = 3, N: int = 5, BLOCK_M: int = 4, BLOCK_N: int = 8) -> Picture:
    """Draw the mask of a tile between what it is made of: which rows exist, and which columns."""
    rows, columns = [m < M for m in range(BLOCK_M)], [n < N for n in range(BLOCK_N)]
    both = [[row and column for column in columns] for row in rows]
    wide, left, top = 1.35, 6.6, 3.3
    figure, ax = new_sheet(left + wide * BLOCK_N + 0.6, top + BLOCK_M + 1.7)

    def fill(is_on: bool, strong: str) -> str:
        return strong if is_on else "white"

    cells(ax, columns, x=left, y=1.5, width=wide, colors=[fill(each, SKY) for each in columns],
          index=True, fontsize=10)  # fmt: skip
    label(ax, left + wide * BLOCK_N / 2, 0.3, f"Does z have this column? N = {N}", fontsize=11)
    cells(ax, [[each] for each in rows], x=left - wide - 0.6, y=top, width=wide,
          colors=[[fill(each, ORANGE)] for each in rows], row_index=True, fontsize=10)  # fmt: skip
    label(
        ax,
        left - wide - 1.6,
        top + BLOCK_M / 2,
        f"Does z have\nthis row?\nM = {M}",
        align="right",
        fontsize=11,
    )
    tile = cells(ax, both, x=left, y=top, width=wide, fontsize=10,
                 colors=[[fill(each, PALE) for each in row] for row in both])  # fmt: skip
    box(ax, left, top, wide * N, M, color=None, edge=INK, linewidth=3)
    label(ax, left, tile.bottom + 0.6, "the tile's mask: True if both are True; thick line: z",
          align="left", color=FAINT)  # fmt: skip
    return Picture(
        figure,
        f"""The mask of a tile of {BLOCK_M} x {BLOCK_N} lanes on a matrix z of {M} x {N}. A column of
        {BLOCK_M} cells says whether z has each row: True in the first {M}. A row of {BLOCK_N} says whether
        z has each column: True in the first {N}. The tile between them is True where both are, in the
        {M * N} lanes of z, and False elsewhere.""",
    )


def tiles(case: Case = OUTER_ADD_BLOCKS.cases[2]) -> Picture:
    """Draw the grid of programs on a ragged matrix: a tile each, some hanging over the edges."""
    rows, columns, _ = OUTER_ADD_BLOCKS.programs(case)
    scale = 1.3 / case.BLOCK_N
    width, height = case.BLOCK_N * scale, case.BLOCK_M * scale
    figure, ax = new_sheet(columns * width + 4.8, rows * height + 3.1)
    left, top = 3.0, 2.1
    fills = program_colors((rows, columns))
    grid = cells(
        ax,
        [[""] * columns] * rows,
        x=left,
        y=top,
        width=width,
        height=height,
        colors=[fills[m * columns : (m + 1) * columns] for m in range(rows)],
        index=True,
        row_index=True,
    )
    right, bottom = left + case.N * scale, top + case.M * scale
    for x, y, w, h in (
        (right, top, grid.right - right, grid.bottom - top),
        (left, bottom, right - left, grid.bottom - bottom),
    ):
        box(ax, x, y, w, h, color="white", hatch="////", linewidth=0)
    box(ax, left, top, right - left, bottom - top, color=None, edge=INK, linewidth=3)
    for m in range(rows):
        for n in range(columns):
            x, y = grid.center(m, n)
            y = min(y, bottom - 0.4)
            fill = fills[m * columns + n]
            if (n + 1) * case.BLOCK_N > case.N:  # too little of it is left for a text
                label(ax, grid.right + 0.2, y, f"{m}, {n}", align="left")
            else:
                label(ax, x, y, f"{m}, {n}", color=text_color(fill))
    middle = (top + grid.bottom) / 2
    across = (left + grid.right) / 2
    label(ax, across, 0.6, "tl.program_id(1)", fontsize=11)
    label(ax, across, 1.15, f"N = {case.N}, BLOCK_N = {case.BLOCK_N}", color=FAINT)
    label(ax, 0.9, middle, "tl.program_id(0)", fontsize=11, rotation=90)
    label(ax, 1.55, middle, f"M = {case.M}, BLOCK_M = {case.BLOCK_M}", rotation=90, color=FAINT)
    note = "hatched: lanes without an element; the colors only tell tiles apart, and repeat"
    label(ax, left, grid.bottom + 0.5, note, align="left", color=FAINT)
    return Picture(
        figure,
        f"""A matrix of M = {case.M} rows and N = {case.N} columns under {rows} x {columns} tiles of
        {case.BLOCK_M} x {case.BLOCK_N}, each marked with its two program ids, 0, 0 to {rows - 1},
        {columns - 1}. The last row of tiles hangs over the lower edge by {rows * case.BLOCK_M - case.M}
        rows, the last column over the right edge by {columns * case.BLOCK_N - case.N} columns; those
        parts are hatched.""",
    )


def loads(case: Case = OUTER_ADD_BLOCKS.cases[2], row: int = 1, column: int = 2) -> Picture:
    """Draw x above the tiles and y left of them, and mark the tiles that load one part of each."""
    rows, columns, _ = OUTER_ADD_BLOCKS.programs(case)
    scale = 1.5 / case.BLOCK_N
    wide, high, left, top = case.BLOCK_N * scale, case.BLOCK_M * scale / 1.6, 5.6, 3.4
    figure, ax = new_sheet(left + columns * wide + 5.4, top + rows * high + 0.6)
    across = [SKY if n == column else PALE_SKY for n in range(columns)]
    down = [[ORANGE if m == row else PALE_ORANGE] for m in range(rows)]
    fills = [
        [LILAC if (m, n) == (row, column) else SKY if n == column else ORANGE if m == row else PALE
         for n in range(columns)] for m in range(rows)
    ]  # fmt: skip
    names = [[f"{m}, {n}" for n in range(columns)] for m in range(rows)]
    x = cells(ax, [""] * columns, x=left, y=1.6, width=wide, colors=across, title="x")
    y = cells(ax, [[""]] * rows, x=left - 2.0, y=top, height=high, colors=down, title="y")
    grid = cells(ax, names, x=left, y=top, width=wide, height=high, colors=fills)
    first, last = column * case.BLOCK_N, (column + 1) * case.BLOCK_N - 1
    text = f"x[{first}] to x[{last}] are loaded by each program of this column"
    label(ax, x.x + (column + 0.5) * wide, 0.7, text, fontsize=11)
    first, last = row * case.BLOCK_M, (row + 1) * case.BLOCK_M - 1
    text = f"y[{first}] to y[{last}]\nare loaded by\neach program\nof this row"
    label(ax, grid.right + 0.4, top + (row + 0.5) * high, text, align="left", fontsize=11)
    arrow(ax, (left + (column + 0.5) * wide, 2.7), (left + (column + 0.5) * wide, top - 0.1))
    arrow(ax, (y.right + 0.1, top + (row + 0.5) * high), (left - 0.1, top + (row + 0.5) * high))
    return Picture(
        figure,
        f"""A matrix of {rows} x {columns} tiles, with x above it and y at its left, both cut into the parts
        that belong to its columns and rows. One part of x is marked, and the {rows} tiles below it, which
        load it. One part of y is marked, and the {columns} tiles in its row, which load it.""",
    )


SCALE = 2.4  # pixels per element of the matrix that is dragged
EDGE = "color-mix(in srgb,currentColor 45%,transparent)"  # of a tile, in any theme
HATCH = f"repeating-linear-gradient(45deg,{EDGE} 0 2px,transparent 2px 7px)"


def drag(M: int = 90, N: int = 100, BLOCK_M: int = 8, BLOCK_N: int = 8) -> Live:
    """Return a matrix under tiles whose two sizes can be dragged, with what the tiles cost."""
    case = Case(M=M, N=N, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    rows, columns, _ = OUTER_ADD_BLOCKS.programs(case)
    facts = _facts(M, N, BLOCK_M, BLOCK_N, rows, columns)
    sliders = "".join(
        f'<label style="display:block;margin:.3em 0">{name} = <b data-is="{name}">{size}</b>'
        f'<input type="range" min="3" max="7" value="{size.bit_length() - 1}" data-log2="{name}" '
        f'aria-label="{name}, as a power of two" style="width:100%"></label>'
        for name, size in (("BLOCK_M", BLOCK_M), ("BLOCK_N", BLOCK_N))
    )
    table = "".join(f'<div>{name}: <b data-is="{name}">{value}</b></div>' for name, value in facts.items())
    whole = "position:absolute;left:0;top:0"
    under, over = _tiles(rows, columns, BLOCK_M, BLOCK_N)
    side = 128 * SCALE + 4
    sheet = (
        f'<div style="position:relative;width:{side:.0f}px;height:{side:.0f}px;flex:none">'
        f'<div data-layer="under" style="{whole}">{under}</div>'
        f'<div data-layer="over" style="{whole};overflow:hidden;width:{N * SCALE:.0f}px;'
        f'height:{M * SCALE:.0f}px;outline:3px solid currentColor">{over}</div></div>'
    )
    script = Path(__file__).with_name("drag.js").read_text("utf-8")
    for name, value in (("M", M), ("N", N), ("SCALE", SCALE), ("HATCH", HATCH), ("EDGE", EDGE)):
        script = script.replace(f"${name}$", str(value))
    return Live(
        "tiles",
        f'<div style="display:flex;flex-wrap:wrap;gap:1.5em"><div style="flex:1;min-width:15em">{sliders}'
        f'<div aria-live="polite">{table}</div></div>{sheet}</div>',
        script.replace("$COLORS$", ", ".join(f'"{color}"' for color in PROGRAM_COLORS)),
        f"A matrix of {M} x {N} elements under tiles of {BLOCK_M} x {BLOCK_N}, which hang over its edges. "
        "Two sliders choose the block sizes, from 8 to 128. "
        + "; ".join(f"{name}: {value}" for name, value in facts.items())
        + ".",
    )


def _facts(M: int, N: int, BLOCK_M: int, BLOCK_N: int, rows: int, columns: int) -> dict[str, str]:
    """Return what the tiles cost, by the words that `drag` shows."""
    lanes, moved, least = rows * BLOCK_M * columns * BLOCK_N, rows * N + columns * M + M * N, N + M + M * N
    return {
        "grid": f"({rows}, {columns})",
        "programs": f"{rows * columns}",
        "lanes without an element": f"{lanes - M * N:,} of {lanes:,}",
        "bytes moved": f"{4 * moved:,} ({moved / least:.2f}x)",
    }


def _tiles(rows: int, columns: int, BLOCK_M: int, BLOCK_N: int) -> tuple[str, str]:
    """Return the tiles as HTML: hatched, and in the colors of their programs."""
    layers: tuple[list[str], list[str]] = ([], [])
    for m in range(rows):
        for n in range(columns):
            place = (
                f"position:absolute;box-sizing:border-box;border:1px solid {EDGE};"
                f"left:{n * BLOCK_N * SCALE:.1f}px;top:{m * BLOCK_M * SCALE:.1f}px;"
                f"width:{BLOCK_N * SCALE:.1f}px;height:{BLOCK_M * SCALE:.1f}px"
            )
            fill = PROGRAM_COLORS[(m * columns + n) % len(PROGRAM_COLORS)]
            for layer, background in zip(layers, (HATCH, fill), strict=True):
                layer.append(f'<div style="{place};background:{background}"></div>')
    return "".join(layers[0]), "".join(layers[1])


def fractal(steps: torch.Tensor, most: int = 30) -> Picture:
    """Draw a matrix of step counts in colors, from 0 (dark) to `most` (black: the point never left)."""
    rows, columns = steps.shape
    figure, ax = new_sheet(columns + 4, rows + 4, unit=0.045)
    shade = (steps.numpy() / most).clip(0, 1) ** 0.5
    colors = matplotlib.colormaps["inferno"](shade)[..., :3]
    colors[steps.numpy() >= most] = 0
    shown = AxesImage(ax, extent=(2, 2 + columns, 2 + rows, 2), interpolation="none", zorder=1)
    shown.set_data(np.round(255 * colors).astype(np.uint8))
    ax.add_image(shown)
    box(ax, 2, 2, columns, rows, color=None, edge=INK, linewidth=1)
    stayed = int((steps >= most).sum())
    return Picture(
        figure,
        f"""A picture of {rows} x {columns} points, each in the color of its step count, from
        {int(steps.min())} to {int(steps.max())}. {stayed} points are still there after {most} steps, and are
        black.""",
    )
