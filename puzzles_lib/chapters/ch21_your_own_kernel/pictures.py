"""Pictures for chapter 21."""

import torch

from puzzles_lib.chapters.ch21_your_own_kernel.questions import PAGE, SLICED, WHOLE
from puzzles_lib.drawing.colours import (
    FAINT,
    ORANGE,
    PALE,
    PALE_GREEN,
    PALE_ORANGE,
    PALE_SKY,
    SKY,
    VERMILLION,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, legend, new_sheet

MINUS = "\N{MINUS SIGN}"
TABLE = (4, 1, 5)
SHOWN = 12  # bits of a float


def paged(T: int = 19) -> Picture:
    """Draw a sequence whose tokens are in the pages of a cache, and the page table that finds them."""
    figure, ax = new_sheet(18.4, 9.6)
    left, width, colors = 2.6, 15.6 / 6, (PALE_SKY, PALE_ORANGE, PALE_GREEN)
    label(ax, left - 0.25, 1.0, "cache", align="right", fontsize=11)
    for page in range(6):
        used = TABLE.index(page) if page in TABLE else None
        look = {"color": PALE} if used is None else {"color": colors[used]}
        box(ax, left + page * width, 0.5, width - 0.15, 1.0, f"page {page}", **look)
    label(ax, left - 0.25, 3.7, "table", align="right", fontsize=11)
    for number, page in enumerate(TABLE):
        x = left + (2 * number + 0.5) * width
        box(ax, x, 3.2, width - 0.15, 1.0, str(page), color=colors[number], fontsize=12)
        arrow(ax, (x + width / 2, 3.15), (left + (page + 0.45) * width, 1.6))
        arrow(ax, (x + width / 2, 4.25), (x + width / 2, 5.9))
    label(ax, left - 0.25, 6.5, "out", align="right", fontsize=11)
    small = 15.6 / (PAGE * len(TABLE))
    for t in range(PAGE * len(TABLE)):
        inside = t < T
        look = {"color": colors[t // PAGE]} if inside else {"color": None, "hatch": "////", "dashed": True}
        box(ax, left + t * small, 6.0, small, 1.0, str(t) if inside else "", fontsize=9, **look)
    for number in range(len(TABLE)):
        x = left + (number + 0.5) * PAGE * small
        label(ax, x, 7.5, f"programs ({number}, ...)", color=FAINT)
    legend(ax, 8.7, (left, None, f"past the end of out, which has {T} rows", "////"))
    told = ", ".join(str(page) for page in TABLE)
    return Picture(
        figure,
        f"A cache of 6 pages of {PAGE} tokens. The page table holds {told}: the sequence's first {PAGE} "
        f"tokens are in page {TABLE[0]}, the next in page {TABLE[1]}, the last in page {TABLE[2]}. "
        f"Program (i, ...) copies the page that is entry i of the table. out has {T} rows, so the last page "
        f"has {PAGE * len(TABLE) - T} tokens that are past its end.",
    )


def sliced(M: int = 3, N: int = SLICED, S: int = WHOLE) -> Picture:
    """Draw the rows of a slice in memory, and what programs read that assume no gaps."""
    figure, ax = new_sheet(18.4, 3.4 + 1.3 * M)
    left, scale = 4.0, 14.2 / (M * S)
    label(ax, left - 0.3, 1.4, "in memory", align="right", fontsize=11)
    told = []
    for m in range(M):
        start = left + m * S * scale
        box(ax, start, 0.9, N * scale, 1.0, f"row {m}", color=SKY)
        box(ax, start + N * scale, 0.9, (S - N) * scale, 1.0, hatch="////")
        label(ax, start, 0.75, str(m * S), align="left bottom", fontsize=9, color=FAINT)
        y = 2.4 + 1.3 * m
        label(ax, left - 0.3, y + 0.5, f"program {m} reads", align="right", fontsize=11)
        color = SKY if m == 0 else VERMILLION
        box(ax, left + m * N * scale, y, N * scale, 1.0, f"{m * N} to {m * N + N - 1}", color=color)
        told.append(f"program {m} reads {m * N} to {m * N + N - 1}")
    y = 2.6 + 1.3 * M
    legend(
        ax,
        y,
        (left, SKY, "its row"),
        (left + 3.6, VERMILLION, "starts too early"),
        (left + 8.2, PALE, "not in the slice", "////"),
    )
    begin = ", ".join(str(m * S) for m in range(M))
    return Picture(
        figure,
        f"The first {N} of {S} columns of {M} rows, in memory: the rows begin at {begin}. "
        f"But {', '.join(told)}. Only program 0 starts where its row does.",
    )


def order() -> Picture:
    """Draw the bits of floats in their order, the integers that these bits are, and the integers' order."""
    values = torch.tensor([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    whole = values.view(torch.int32)
    bits = [f"{number & 0xFFFFFFFF:032b}" for number in whole.tolist()]
    ranks = (whole.argsort().argsort() + 1).tolist()
    assert all(set(each[SHOWN:]) == {"0"} for each in bits)
    figure, ax = new_sheet(18.4, 1.3 + 1.15 * len(bits))
    left, width = 2.6, 0.62
    for x, text in (
        (left - 0.9, "float"), (left + width / 2, "sign"), (left + (SHOWN + 1) / 2 * width, "size"),
        (left + (SHOWN + 4) * width + 1.9, "as an int32"), (16.9, "order, from 1"),
    ):  # fmt: skip
        label(ax, x, 0.5, text, color=FAINT)
    told = []
    for row, (value, number, pattern, rank) in enumerate(
        zip(values.tolist(), whole, bits, ranks, strict=True)
    ):
        y, negative = 1.1 + 1.15 * row, pattern[0] == "1"
        name, shown = (text.replace("-", MINUS) for text in (f"{value:g}", f"{int(number):,}"))
        label(ax, left - 0.9, y + 0.45, name, fontsize=12)
        colors = [VERMILLION if negative else PALE] + [ORANGE if negative else PALE_SKY] * (SHOWN - 1)
        cells(ax, list(pattern[:SHOWN]), x=left, y=y, width=width, height=0.9, colors=colors)
        label(ax, left + SHOWN * width + 0.25, y + 0.45, "0 ... 0", align="left", color=FAINT)
        label(ax, left + (SHOWN + 4) * width + 3.4, y + 0.45, shown, align="right", fontsize=12)
        box(ax, 16.4, y, 1.0, 0.9, str(rank), color=ORANGE if negative else PALE_SKY)
        told.append(f"{name} has the bits {pattern[:SHOWN]}, then zeros, which are {shown} and come {rank}.")
    text = "Seven floats from the smallest to the largest, their bits, and these as an int32. "
    return Picture(figure, text + " ".join(told))
