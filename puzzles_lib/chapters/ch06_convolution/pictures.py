"""Pictures of chapter 06: windows, shifted tiles, the halo, the end of a row, and boards of Life."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.image import AxesImage

from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D
from puzzles_lib.drawing.colours import FAINT, INK, ORANGE, PALE, SKY, SLATE, VERMILLION, YELLOW
from puzzles_lib.drawing.live import Live
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet

TILE, HALO, WINDOW = SKY, ORANGE, VERMILLION
PADDING = "////"


def scene() -> torch.Tensor:
    """Return a small picture, drawn by arithmetic: float32 [64, 96]. 0 is black and 1 is white."""
    i, j = torch.meshgrid(torch.arange(64.0), torch.arange(96.0), indexing="ij")
    picture = 0.55 + 0.3 * i / 64  # the sky
    picture[(i - 14) ** 2 + (j - 74) ** 2 < 64] = 1.0  # the sun
    picture[i > 16 + (j - 58).abs() * 0.9] = 0.42  # mountains
    picture[i > 26 + (j - 88).abs() * 0.9] = 0.33
    picture[i > 46] = 0.62  # the meadow
    picture[(i > 50) & (j > 52) & ((i - 50) % 4 < 2)] = 0.5
    wall = (i >= 32) & (i < 56) & (j >= 10) & (j < 40)
    picture[wall] = 0.92
    picture[wall & ((i - 32) % 4 == 3)] = 0.8  # boards
    picture[(i >= 18) & (i < 32) & (i - 18 > (j - 24.5).abs() - 4)] = 0.16  # the roof
    picture[(i >= 42) & (i < 56) & (j >= 14) & (j < 21)] = 0.2  # the door
    picture[(i >= 38) & (i < 48) & (j >= 26) & (j < 36)] = 0.12  # the window and its bars
    picture[(i >= 38) & (i < 48) & ((j == 31) | (i == 43)) & (j >= 26) & (j < 36)] = 0.92
    return picture


def gallery(**images: torch.Tensor) -> Picture:
    """Draw images in a row, by name, in gray from 0 to 1, or from -1 to 1 if an image has values below 0.

    Pixels that are NaN are hatched.
    """
    return hung({name: (image, "") for name, image in images.items()})


def hung(images: Mapping[str, tuple[torch.Tensor, str]], unit: float = 0.026, most: float = 1.0) -> Picture:
    """Draw images in a row, each under its name and a note.

    unit: inches per pixel. most: the number that is white in images with values below 0; -most is black.
    """
    columns = sum(image.shape[1] + 4 for image, _ in images.values())
    tallest = max(image.shape[0] for image, _ in images.values())
    figure, ax = new_sheet(columns, tallest + 16, unit=unit)
    left, top, told = 2.0, 14, []
    for name, (image, note) in images.items():
        rows, width = image.shape
        low = bool((image < 0).any())
        least, white = (-most, most) if low else (0.0, 1.0)
        missing = image.isnan()
        known = image[~missing] if not bool(missing.all()) else torch.zeros(1)
        grey = ((image.nan_to_num().numpy() - least) / (white - least)).clip(0, 1)
        shown = AxesImage(ax, extent=(left, left + width, top + rows, top), interpolation="none", zorder=1)
        pixels = np.repeat(np.round(255 * grey[..., None]).astype(np.uint8), 3, axis=2)
        if bool(missing.any()):
            box(ax, left, top, width, rows, color=None, hatch="////", linewidth=0)
            pixels = np.concatenate([pixels, np.uint8(255) * ~missing.numpy()[..., None]], axis=2)
        shown.set_data(pixels)
        ax.add_image(shown)
        box(ax, left, top, width, rows, color=None, edge=INK, linewidth=1)
        bright = "1 and more white" if bool((image > 1).any()) else "1 white"
        note = note or ("0 is gray" if low else f"0 is black, {bright}")
        if bool(missing.any()):
            note = f"{note}; hatched: never written" if not bool(missing.all()) else ""
        label(ax, left, 4, name, align="left", fontsize=11)
        label(ax, left, 10, note, align="left", color=FAINT, fontsize=9)
        span = f"{known.min().item():.2f} to {known.max().item():.2f}"
        told.append(f"{name} ({note}), {rows} x {width} pixels from {span}")
        left += width + 4
    return Picture(figure, f"Images in gray, in a row: {'; '.join(told)}.")


def filters() -> Picture:
    """Draw a picture, and the results of two filters."""
    x = scene()
    blur, edge = torch.full((5, 5), 1 / 25), -torch.ones(3, 3)
    edge[1, 1] = 8.0
    blurred, edges = (CONV2D.spec(x[None], w)[0] for w in (blur, edge))
    return hung(
        {
            "x": (x, "a house, mountains, the sun, a field"),
            "blurred": (blurred, "by 25 numbers, each 1/25"),
            "edges": (edges, "by nine numbers; 0 is gray"),
        }
    )


def window(H: int = 4, W: int = 6, KH: int = 2, KW: int = 3) -> Picture:
    """Draw two positions of a filter on an image of 0, 1, 2 ...: one inside, one over the padding."""
    x = np.arange(H * W).reshape(H, W)
    w = np.arange(1, KH * KW + 1).reshape(KH, KW)
    padded = np.pad(x, ((0, KH - 1), (0, KW - 1)))
    places = ((1, 1), (H - 1, W - 2))
    z = {(i, j): int((padded[i : i + KH, j : j + KW] * w).sum()) for i, j in places}
    figure, ax = new_sheet(2 * W + 2 * KW + 5, H + KH + 1.6)
    top = 2.0
    places_of = {(i + a, j + b): (i, j) for i, j in places for a in range(KH) for b in range(KW)}
    marks = dict(zip(places, (TILE, HALO), strict=True))
    inside = np.indices(padded.shape)
    real = (inside[0] < H) & (inside[1] < W)
    fills = [
        [marks.get(places_of.get((i, j)), PALE if r else None) for j, r in enumerate(row)]
        for i, row in enumerate(real)
    ]
    image = cells(
        ax,
        padded.tolist(),
        x=1.0,
        y=top,
        colors=fills,
        hatch=[[None if r else PADDING for r in row] for row in real],
    )
    label(ax, image.x, 0.9, "x, and zeros to the right and below", align="left baseline", fontsize=11)
    taps = cells(ax, w.tolist(), x=image.right + 2.2, y=top + 1, colors=YELLOW)
    label(ax, taps.x + KW / 2, top + 0.6, "w", align="baseline", fontsize=11)
    label(ax, (image.right + taps.x) / 2, top + 1 + KH / 2, "\u2217", fontsize=16)
    texts = [[str(z.get((i, j), "")) for j in range(W)] for i in range(H)]
    colors = [[marks.get((i, j), PALE) for j in range(W)] for i in range(H)]
    result = cells(ax, texts, x=taps.right + 2.2, y=top, colors=colors)
    label(ax, result.x, 0.9, "z, as large as x", align="left baseline", fontsize=11)
    label(ax, (taps.right + result.x) / 2, top + 1 + KH / 2, "=", fontsize=16)
    for i, j in places:
        box(ax, image.x + j, image.y + i, KW, KH, color=None, edge=INK, linewidth=2.5)
    one, two = places
    return Picture(
        figure,
        f"""An image of {H} x {W}, with zeros to its right and below, and a filter of {KH} x {KW}. The window
        at {one} is inside the image and gives z = {z[one]}. The window at {two} covers zeros too and gives
        {z[two]}. The result z is as large as the image.""",
    )


def shifts(KH: int = 3, KW: int = 3, BLOCK_H: int = 4, BLOCK_W: int = 8) -> Picture:
    """Draw one iteration per number of the filter: the tile of x moves, the tile of z stays."""
    H, W = BLOCK_H + KH - 1, BLOCK_W + KW - 1
    figure, ax = new_sheet(KW * (W + 1.8) + 0.4, KH * (H + 3.4) + 3.2, unit=0.21)
    frame = {"color": None, "edge": INK, "linewidth": 1.8, "dashed": True}
    for a in range(KH):
        for b in range(KW):
            left, top = 1.0 + b * (W + 1.8), 1.8 + a * (H + 3.4)
            rows, columns = range(a, a + BLOCK_H), range(b, b + BLOCK_W)
            colors = [[TILE if i in rows and j in columns else PALE for j in range(W)] for i in range(H)]
            cells(ax, [[""] * W] * H, x=left, y=top, colors=colors)
            box(ax, left, top, BLOCK_W, BLOCK_H, **frame)
            label(ax, left, top - 0.5, f"w[{a}, {b}] \u00d7", align="left bottom", fontsize=11)
            box(ax, left + b, top + a, color=None, edge=WINDOW, linewidth=2.2)  # of the same lane
            text = f"rows {a} to {rows[-1]}, columns {b} to {columns[-1]}"
            label(ax, left, top + H + 0.7, text, align="left", fontsize=9)
    y = 1.8 + KH * (H + 3.4) - 0.4
    legend = ((TILE, {}, "loaded"), (None, frame, "the tile of z"), (None, {"edge": WINDOW}, "for z[0, 0]"))
    for n, (color, drawn, text) in enumerate(legend):
        x = 1.0 + n * (W + 1.8)
        box(ax, x, y, 1.5, 1.5, **{"color": color, "linewidth": 2.2, **drawn})
        label(ax, x + 2.1, y + 0.8, text, align="left")
    return Picture(
        figure,
        f"""{KH} x {KW} small images, one per number of the filter. In each, the tile of z is a dashed box
        of {BLOCK_H} x {BLOCK_W} that stays in the upper left corner. The tile of x that is loaded, in blue,
        is a rows lower and b columns further right, and is multiplied by w[a, b]: for w[1, 2] it is rows 1 to
        {BLOCK_H} and columns 2 to {BLOCK_W + 1}. A red frame shows the pixel that z[0, 0] gets.""",
    )


def halo(H: int = 7, W: int = 12, KH: int = 3, KW: int = 3, BLOCK_H: int = 4, BLOCK_W: int = 8) -> Picture:
    """Draw what the lanes of two programs read: a tile, its halo, and zeros past the edge of the image."""
    rows, widest = max(H, BLOCK_H + KH - 1), 2 * BLOCK_W + KW - 1
    figure, ax = new_sheet(W + widest + 3.6, rows + 5.2, unit=0.26)
    for p, q in ((0, 0), (0, 1)):
        left, top = 1.0 + q * (W + 1.6), 2.0
        columns = max(W, (q + 1) * BLOCK_W + KW - 1)
        fills = [[None] * columns for _ in range(rows)]
        hatches = [[None] * columns for _ in range(rows)]
        texts = [[""] * columns for _ in range(rows)]
        counts = {"tile": 0, "halo": 0, "zero": 0}
        for i in range(rows):
            for j in range(columns):
                image = i < H and j < W
                own_row, own_column = i // BLOCK_H == p, j // BLOCK_W == q
                read = 0 <= i - p * BLOCK_H < BLOCK_H + KH - 1 and 0 <= j - q * BLOCK_W < BLOCK_W + KW - 1
                fills[i][j] = PALE if image else None
                if read and image:
                    own = own_row and own_column
                    fills[i][j] = TILE if own else HALO
                    counts["tile" if own else "halo"] += 1
                elif read:
                    hatches[i][j], texts[i][j] = PADDING, ""
                    counts["zero"] += 1
        edges = [
            [INK if hatches[i][j] else SLATE if fills[i][j] else "none" for j in range(columns)]
            for i in range(rows)
        ]
        cells(ax, texts, x=left, y=top, colors=fills, hatch=hatches, edge=edges)
        box(ax, left, top, W, H, color=None, edge=INK, linewidth=1.8)
        own = {"color": None, "edge": WINDOW, "linewidth": 2.2, "dashed": True}
        box(ax, left + q * BLOCK_W, top + p * BLOCK_H, BLOCK_W, BLOCK_H, **own)
        label(ax, left, 1.2, f"program (0, {p}, {q})", align="left", fontsize=11)
        legend = f"{counts['tile']} pixels of its tile, {counts['halo']} of its halo"
        legend += f", {counts['zero']} zeros" * bool(counts["zero"])
        label(ax, left, top + rows + 0.7, legend, align="left")
    for n, (color, hatch, text) in enumerate(
        (
            (TILE, None, "its own tile"),
            (HALO, None, "its halo, in other tiles"),
            (None, PADDING, "outside: masked off, zero"),
        )
    ):
        x, y = 1.0 + (0, 8.5, 19.5)[n], top + rows + 1.5
        box(ax, x, y, color=color, hatch=hatch)
        if color == TILE:
            box(ax, x, y, **own)
        label(ax, x + 1.3, y + 0.5, text, align="left")
    return Picture(
        figure,
        f"""An image of {H} x {W} in tiles of {BLOCK_H} x {BLOCK_W}, filter {KH} x {KW}. Program (0, 0, 0)
        reads its tile and a halo {KH - 1} rows below and {KW - 1} columns to the right of it, which are in
        its neighbors' tiles. Program (0, 0, 1) has the rest of each row, and its tile hangs over the edge. It
        has a halo below its tile. The image ends after row {H - 1} and column {W - 1}: lanes past its edges
        are masked off and get zeros.""",
    )


def images(
    N: int = 3, H: int = 5, W: int = 10, BLOCK_N: int = 2, BLOCK_H: int = 4, BLOCK_W: int = 8
) -> Picture:
    """Draw a tile with three axes: the same rows and columns of several images."""
    figure, ax = new_sheet(W + 24.0, H + 4.2, unit=0.3)
    for n in reversed(range(N)):
        left, top = 2.2 + 1.3 * n, 3.6 - 1.3 * n
        inside = n < BLOCK_N
        colors = [
            [TILE if inside and i < BLOCK_H and j < BLOCK_W else PALE for j in range(W)] for i in range(H)
        ]
        box(ax, left, top, W, H, color=PALE, edge=INK, linewidth=1.6)  # hides what it covers
        cells(ax, [[""] * W] * H, x=left, y=top, colors=colors)
        label(ax, left - 0.2, top + 0.5, f"n = {n}", align="right")
    lines = (
        ("n", f"[{BLOCK_N}, 1, 1]", "which image"),
        ("i", f"[1, {BLOCK_H}, 1]", "which row"),
        ("j", f"[1, 1, {BLOCK_W}]", "which column"),
        ("(n * H + i) * W + j", f"[{BLOCK_N}, {BLOCK_H}, {BLOCK_W}]", "the offsets of the tile"),
    )
    for k, (name, shape, what) in enumerate(lines):
        y = 1.8 + 1.5 * k
        label(ax, W + 6.4, y, name, align="left", fontsize=11, family="monospace")
        label(ax, W + 13.6, y, shape, align="left", fontsize=11)
        label(ax, W + 17.2, y, what, align="left", fontsize=11, color=FAINT)
    return Picture(
        figure,
        f"""{N} images of {H} x {W}, one behind the other. A tile covers the first {BLOCK_H} rows and
        {BLOCK_W} columns of the first {BLOCK_N}: n has shape [{BLOCK_N}, 1, 1], i [1, {BLOCK_H}, 1],
        j [1, 1, {BLOCK_W}], and the offsets (n * H + i) * W + j have [{BLOCK_N}, {BLOCK_H}, {BLOCK_W}].""",
    )


def next_row(W: int = 5, KW: int = 3) -> Picture:
    """Draw two rows of an image in memory, and a window that runs past the end of the first."""
    figure, ax = new_sheet(2 * W + 7.4, 4.7)
    start = W - KW + 1
    texts = [f"{i},{j}" for i in range(2) for j in range(W)]
    colors = [TILE] * W + [HALO] * W
    strip = cells(ax, texts, x=3.6, y=1.6, width=1.15, colors=colors, title="memory")
    for row in range(2):
        x = strip.x + 1.15 * W * (row + 0.5)
        label(ax, x, 1.25, f"row {row}", align="bottom", color=FAINT)
    box(ax, strip.x + 1.15 * start, 1.6, 1.15 * KW, color=None, edge=WINDOW, linewidth=3)
    end = strip.x + 1.15 * (start + KW - 0.5)
    arrow(ax, (end, 3.75), (end, 2.65), color=WINDOW)
    text = f"row 0 has no column {W}: this is column 0 of row 1"
    label(ax, end, 3.95, text, align="top")
    return Picture(
        figure,
        f"""In memory, row 1 of the image follows right after row 0, with {W} columns each. A window of {KW}
        columns that starts at column {start} of row 0 runs past the end and covers column 0 of row 1.""",
    )


GLIDER = (".#.", "..#", "###")
PENTOMINO = (".##", "##.", ".#.")
GLIDER_AND_PENTOMINO = "\n".join([*GLIDER, *["."] * 9, *[38 * "." + line for line in PENTOMINO]])


def board(text: str = GLIDER_AND_PENTOMINO, rows: int = 32, columns: int = 64) -> torch.Tensor:
    """Return a board of Life with a drawing two cells from its upper left corner: int32 [rows, columns].

    text: lines of ``.``, a dead cell, and ``#``, a live one, all indented alike. Raises ValueError for any
    other character, such as a space, and for a drawing that is too large for the board.
    """
    lines = textwrap.dedent(text.strip("\n")).rstrip().splitlines()
    lines = [line.rstrip() for line in lines]
    if unknown := set("".join(lines)) - set(".#"):
        raise ValueError(f"board: text must consist of '.' and '#', but has {sorted(unknown)[0]!r}")
    if len(lines) > rows - 2 or max(map(len, lines), default=0) > columns - 2:
        raise ValueError(f"board: text is larger than {rows - 2} lines of {columns - 2}")
    cells_of = torch.zeros(rows, columns, dtype=torch.int32)
    for i, line in enumerate(lines):
        for j, character in enumerate(line):
            cells_of[i + 2, j + 2] = character == "#"
    return cells_of


def play(boards: Sequence[torch.Tensor]) -> Live:
    """Show generations of Life, one board after another: to play, or to step through with a slider.

    boards: int32 [H, W] each, with 1 for a live cell.
    """
    H, W = boards[0].shape
    frames = ["".join("01"[int(cell)] for cell in each.flatten() > 0) for each in boards]
    first = "".join(
        f'<rect x="{at % W}" y="{at // W}" width="1" height="1"/>'
        for at, cell in enumerate(frames[0])
        if cell == "1"
    )
    packed = ",".join(f"{int(frame, 2):x}" for frame in frames)
    living = [frame.count("1") for frame in frames]
    last = len(frames) - 1
    return Live(
        "life",
        f'<div data-frames="{packed}" data-width="{W}" data-height="{H}">'
        f'<svg viewBox="0 0 {W} {H}" style="width:100%;max-width:640px;display:block;'
        f'border:1px solid var(--jp-border-color1)" aria-hidden="true">'
        f'<g fill="{WINDOW}">{first}</g></svg>'
        f'<div style="display:flex;gap:1em;align-items:center;max-width:640px;margin-top:.4em">'
        f'<button type="button">play</button><input type="range" min="0" max="{last}" value="0" '
        f'aria-label="generation" style="flex:1"><span>generation <b>0</b> of {last}</span></div></div>',
        Path(__file__).with_name("play.js").read_text("utf-8"),
        f"A board of {H} x {W} cells of the Game of Life, with a slider over generations 0 to {last} and a "
        f"button that plays them. Live cells: {living[0]} at first, {living[-1]} in the last generation.",
    )
