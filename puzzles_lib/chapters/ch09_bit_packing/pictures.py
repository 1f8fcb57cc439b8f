"""Pictures for chapter 09."""

from collections.abc import Sequence

from puzzles_lib.drawing.colours import (
    FAINT,
    INK,
    ORANGE,
    PALE,
    PROGRAM_COLORS,
    SKY,
    YELLOW,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.timing.h200 import CACHE, MULTIPROCESSORS, REGISTERS, SHARED, WARPS

BIT = 0.27  # inches per bit
FIELDS = (SKY, YELLOW)  # alternating
CODES = (3, 20, 77, 200)  # of 8 bits; the last is above 127, so the sign bit is on


def multiprocessor() -> Picture:
    """Draw one multiprocessor of an H200, with the area of each memory to scale."""
    quarters, wide, left = 4, 5.2, 0.6
    inside = quarters * wide
    kib = {"registers": REGISTERS * 4 / 1024, "shared": SHARED / 1024, "L2": CACHE / 1024 / MULTIPROCESSORS}
    area = 0.07  # square units of the drawing for a KiB
    figure, ax = new_sheet(inside + 1.2, 12.7)
    high = area * kib["registers"] / quarters / (wide - 0.6)
    for quarter in range(quarters):
        x = left + 0.3 + quarter * wide
        box(ax, x, 1.5, wide - 0.6, 0.9, f"scheduler {quarter}", color=YELLOW)
        label(ax, x, 2.9, f"up to {WARPS // quarters} warps of 32 threads", align="left", fontsize=9)
        size = (wide - 0.6) / (WARPS // quarters)
        for warp in range(WARPS // quarters):
            box(ax, x + warp * size, 3.3, size, 0.7, color=PALE, edge=INK)
        box(ax, x, 4.3, wide - 0.6, 0.9, "arithmetic: +, ·, <<, &", color=ORANGE)
        box(ax, x, 5.4, wide - 0.6, 0.9, "tensor core: tl.dot", color=ORANGE)
        words = f"{REGISTERS // quarters} registers: {kib['registers'] / quarters:.0f} KiB"
        box(ax, x, 6.7, wide - 0.6, high, words, color=SKY)
    y = 6.7 + high + 0.4
    box(ax, left + 0.3, y, inside - 0.6, area * kib["shared"] / (inside - 0.6), color=SKY)
    label(ax, left + inside / 2, y + 0.4, f"shared memory: {kib['shared']:.0f} KiB")
    y += area * kib["shared"] / (inside - 0.6) + 0.3
    box(ax, left, 0.9, inside, y - 0.9, color=None, edge=INK, linewidth=1.4)
    label(ax, left, 0.45, "one multiprocessor (blue: memory, its area to scale)", align="left", fontsize=11)
    y += 0.9
    box(ax, left, y, inside, area * kib["L2"] / inside, color=SKY)
    all_of_them = f"all {MULTIPROCESSORS} multiprocessors"
    text = f"L2, the cache of {all_of_them}: {CACHE >> 20} MiB (1/{MULTIPROCESSORS} is drawn)"
    label(ax, left + inside / 2, y + 0.65, text)
    foot = y + area * kib["L2"] / inside + 0.6
    text = "A program of 4 warps has one in each quarter. Its values are in registers, and in shared memory."
    label(ax, left, foot, text, align="left", fontsize=9)
    return Picture(
        figure,
        f"One multiprocessor of an H200. It has four quarters, each with a scheduler, up to "
        f"{WARPS // quarters} warps, arithmetic units, a tensor core and {REGISTERS // quarters} registers "
        f"of 4 bytes. Below them are {kib['shared']:.0f} KiB of shared memory. Memories are drawn to scale: "
        f"registers {kib['registers']:.0f} KiB in all, shared memory {kib['shared']:.0f} KiB. The cache L2 "
        f"of {all_of_them} has {CACHE >> 20} MiB. A program of 4 warps has one in each quarter.",
    )


ISSUE, WAIT = 2, 6  # clocks in the diagram: a warp's instructions, then its wait


def waiting(warps: Sequence[int] = (1, 2), clocks: int = 24) -> Picture:
    """Draw a scheduler clock by clock, once for each number of warps: each warp issues, then waits."""
    rows = sum(count + 2 for count in warps)
    figure, ax = new_sheet(5.2 + 0.75 * clocks, 2.2 + 0.85 * rows, unit=0.36)
    label(ax, 4.6, 0.5, "clock", align="right", fontsize=9)
    for clock in range(0, clocks, 4):
        label(ax, 5.0 + 0.75 * (clock + 0.5), 0.5, str(clock), fontsize=9)
    y, told = 1.0, []
    for count in warps:
        turns = _turns(count, clocks)
        busy = sum(warp is not None for warp in turns)
        for warp in range(count):
            label(ax, 4.6, y + 0.4, f"warp {warp}", align="right")
            color = PROGRAM_COLORS[warp % len(PROGRAM_COLORS)]
            for clock, turn in enumerate(turns):
                filled = {"color": color} if turn == warp else {"color": None, "edge": FAINT}
                hatch = ".." if _waits(turns, warp, clock) else None
                box(ax, 5.0 + 0.75 * clock, y, 0.75, 0.7, hatch=hatch, **filled)
            y += 0.85
        label(ax, 4.6, y + 0.4, "scheduler", align="right")
        for clock, turn in enumerate(turns):
            color = None if turn is None else PROGRAM_COLORS[turn % len(PROGRAM_COLORS)]
            box(ax, 5.0 + 0.75 * clock, y, 0.75, 0.7, color=color, edge=INK)
        y += 0.85
        words = f"{'1 warp' if count == 1 else f'{count} warps'}: busy in {busy} of {clocks} clocks"
        label(ax, 5.0, y + 0.3, words, align="left", fontsize=9)
        told.append(words)
        y += 0.85
    foot = "warps: colored if they issue, dotted if they wait, empty if ready; an empty scheduler is idle"
    label(ax, 5.0, y + 0.4, foot, align="left", fontsize=9)
    return Picture(
        figure,
        f"A scheduler and its warps over {clocks} clocks, simplified: each warp issues for {ISSUE} clocks "
        f"and then waits for {WAIT}, dotted. A warp that is ready, but whose turn it isn't, is empty. "
        f"{'; '.join(told)}.",
    )


def _waits(turns: Sequence[int | None], warp: int, clock: int) -> bool:
    """Return whether a warp waits for memory in this clock: it has issued all of its instructions."""
    issued = [at for at, turn in enumerate(turns[:clock]) if turn == warp]
    return bool(issued) and len(issued) % ISSUE == 0 and clock - issued[-1] <= WAIT


def _turns(warps: int, clocks: int) -> list[int | None]:
    """Return the warp that issues in each clock: the current one if it can, otherwise one that is ready."""
    ready, left = [0] * warps, [ISSUE] * warps
    turns: list[int | None] = []
    for clock in range(clocks):
        able = [warp for warp in range(warps) if ready[warp] <= clock]
        warp = min(able, key=lambda w: (left[w] == ISSUE, ready[w], w), default=None)
        turns.append(warp)
        if warp is not None:
            left[warp] -= 1
            if not left[warp]:
                ready[warp], left[warp] = clock + 1 + WAIT, ISSUE
    return turns


def rulers(word: int = 1_540_899_342) -> Picture:
    """Draw one word, cut into fields of 1, 2, 4 and 8 bits."""
    pattern = f"{word & 0xFFFFFFFF:032b}"
    figure, ax = new_sheet(38.5, 11.2, unit=BIT)
    left, told = 5.6, []
    for number, bits in enumerate((1, 2, 4, 8)):
        fields = [int(pattern[at : at + bits], 2) for at in range(0, 32, bits)]  # the top one first
        colors = [FIELDS[i % 2] for i in range(len(fields) - 1, -1, -1)]
        y = 1.2 + 2.3 * number
        row = cells(ax, fields, x=left, y=y, width=bits, height=1.4, colors=colors)
        text = f"BITS = {bits}"
        label(ax, left - 0.4, row.y + 0.7, text, align="right")
        told.append(f"{bits}: {len(fields)} fields, {fields[::-1]}")
        if bits == 1:
            for bit in (0, 7, 8, 15, 16, 23, 24, 31):
                place = left + 31.5 - bit
                label(ax, place, y - 0.15, str(bit), align="bottom", fontsize=9, color=FAINT)
    label(ax, left - 0.4, 1.05, "bit", align="right", fontsize=9, color=FAINT)
    foot = "all rows are the same 32 bits; colors alternate by field, and field 0 is on the right"
    label(ax, left + 32, 10.55, foot, align="right", fontsize=9, color=FAINT)
    label(ax, left, 10.55, f"one int32 word: {word}", align="left")
    return Picture(
        figure,
        f"The int32 word {word}, bits {pattern} with bit 31 on the left, cut into fields of equal width. "
        f"By bits per field, starting with field 0: {'; '.join(told)}.",
    )


def pack(codes: tuple[int, ...], bits: int) -> int:
    """Return codes as a signed 32-bit word, field 0 in the lowest bits."""
    word = sum(code << bits * i for i, code in enumerate(codes))
    return word - (1 << 32) if word >> 31 else word


def sum_of_fields(codes: tuple[int, ...] = CODES) -> Picture:
    """Draw every code shifted to its place, and their sum, the word."""
    bits = 32 // len(codes)
    figure, ax = new_sheet(46.5, 2.0 * len(codes) + 4.8, unit=BIT * 0.82)
    left = 7.2
    for i, code in enumerate(codes):
        pattern = f"{code << bits * i:032b}"
        kept = range(32 - bits * (i + 1), 32 - bits * i)
        colors = [FIELDS[i % 2] if at in kept else PALE for at in range(32)]
        row = cells(ax, pattern, x=left, y=0.4 + 2.0 * i, height=1.4, colors=colors, fontsize=9)
        _name(ax, left - 0.5, row.y + 0.7, f"{code} << {bits * i}")
    word = pack(codes, bits)
    y = 0.4 + 2.0 * len(codes)
    ax.plot([left, left + 32], [y, y], color=INK, linewidth=1)
    colors = [FIELDS[(31 - at) // bits % 2] for at in range(32)]
    row = cells(ax, f"{word & 0xFFFFFFFF:032b}", x=left, y=y + 0.6, height=1.4, colors=colors, fontsize=9)
    _name(ax, left - 0.5, row.y + 0.7, "sum")
    label(ax, row.right + 0.5, row.y + 0.7, f"= {word}", align="left", fontsize=11)
    label(ax, left, row.bottom + 1.0, "bit 31, the sign", align="left", fontsize=9, color=FAINT)
    label(ax, row.right, row.bottom + 1.0, "bit 0", align="right", fontsize=9, color=FAINT)
    shifted = ", ".join(f"{code} shifted up by {bits * i}" for i, code in enumerate(codes))
    return Picture(
        figure,
        f"Rows of 32 bits: {shifted}. No two of them have a 1 in the same column, so their sum puts "
        f"them side by side: the word {word}. Its top bit is 1, so as an int32 it is negative.",
    )


def tile(N: int = 21, BITS: int = 4, BLOCK_W: int = 4) -> Picture:
    """Draw the tile of one program: one row per word, one column per field."""
    F = 32 // BITS
    W = -(-N // F)
    figure, ax = new_sheet(19.5, BLOCK_W + 3.3)
    left, top = 4.8, 1.8
    n = [[w * F + i for i in range(F)] for w in range(BLOCK_W)]
    cells(
        ax,
        n,
        x=left,
        y=top,
        width=1.1,
        colors=[[FIELDS[i % 2] if v < N else None for i, v in enumerate(row)] for row in n],
        hatch=[[None if v < N else ".." for v in row] for row in n],
        index=[f"i={i}" for i in range(F)],
        row_index=[f"w={w}" for w in range(BLOCK_W)],
    )
    right = left + 1.1 * F
    for w in range(BLOCK_W):
        real = w < W
        y = top + w + 0.5
        if real:
            arrow(ax, (right + 0.2, y), (right + 1.5, y))
        text, fill, hatch = (f"word {w}", SKY, None) if real else ("", None, "..")
        box(ax, right + 1.7, top + w, 2.4, 1, text, color=fill, hatch=hatch)
    middle = left + 0.55 * F
    label(ax, middle, 0.6, f"n = w · F + i, with BITS = {BITS}, so F = {F}", fontsize=11)
    label(ax, right + 2.9, 0.6, "sum along i", fontsize=11)
    foot = f"dotted: n ≥ N = {N}, no code (field 0 is on the left here)"
    label(ax, middle, top + BLOCK_W + 0.7, foot)
    foot = f"w ≥ W = {W}: no word"
    label(ax, right + 2.9, top + BLOCK_W + 0.7, foot)
    return Picture(
        figure,
        f"A row of N = {N} codes of {BITS} bits, F = {F} per word: {W} words. The program's tile has "
        f"BLOCK_W = {BLOCK_W} rows, one per word, and {F} columns, one per field. Its cells contain "
        f"n = w * {F} + i, 0 to {BLOCK_W * F - 1}. Cells from n = {N} on are past the row and have no "
        f"code. Each row of the tile is summed to a word. Rows from w = {W} on have no word.",
    )


def spread(
    codes: tuple[int, ...] = (5, 0, 15, 9, 2, 7, 1, 12), shown: tuple[int, ...] = (0, 1, 2, 7)
) -> Picture:
    """Draw the 32 bits of a word, shifted down by the places of several fields."""
    bits, word = 32 // len(codes), pack(tuple(codes), 32 // len(codes))
    figure, ax = new_sheet(46.5, 2.0 * len(shown) + 4.4, unit=BIT * 0.82)
    left, told, gap = 9.0, [], 0.0
    for number, i in enumerate(shown):
        if number and i != shown[number - 1] + 1:
            gap = 1.0
            label(ax, left + 16, 1.6 + 2.0 * number + 0.2, "⋮", fontsize=12)
        pattern = f"{(word >> bits * i) & 0xFFFFFFFF:032b}"
        colors = [ORANGE if at < bits * i else SKY if at >= 32 - bits else PALE for at in range(32)]
        row = cells(ax, pattern, x=left, y=1.6 + gap + 2.0 * number, height=1.4, colors=colors, fontsize=9)
        _name(ax, left - 0.5, row.y + 0.7, f"word >> {bits * i}")
        label(ax, row.right + 0.5, row.y + 0.7, f"code {codes[i]}", align="left")
        told.append(f"by {bits * i}: {pattern}, code {codes[i]}")
    label(ax, left, 1.1, f"bit 31 of the word {word}", align="left", fontsize=9, color=FAINT)
    label(ax, left + 32, 1.1, "bit 0", align="right", fontsize=9, color=FAINT)
    foot = "blue: the field to keep; orange: copies of bit 31, the sign"
    label(ax, left, 1.6 + gap + 2.0 * len(shown) + 0.6, foot, align="left", fontsize=9)
    return Picture(
        figure,
        f"The bits of the word {word}, shifted down: {'; '.join(told)}. The lowest {bits} bits are the "
        f"field. The places that become free on the left are filled with copies of bit 31, the sign.",
    )


def down_a_column(bits: int = 2, name: str = "c") -> Picture:
    """Draw the production format: one 16-bit word from eight rows of one column. name: that of columns."""
    fields = 16 // bits
    figure, ax = new_sheet(24, fields + 3.0)
    top, width, column, r = 1.2, 0.62, 5, 3
    for j in range(fields):
        colors = [PALE] * 12
        colors[column] = FIELDS[j % 2]
        row = cells(ax, [""] * 12, x=6.0, y=top + 1.02 * j, width=width, height=0.9, colors=colors)
        number = f"row {16 * j + r}" if j else f"row r = {r}"
        label(ax, 5.7, row.y + 0.45, number, align="right")
        text = f"field {j}: bits {bits * j}, {bits * j + 1}"
        if j == fields - 1:
            text += ", the sign"
        start = row.right + 0.2
        arrow(ax, (start, row.y + 0.45), (start + 1.6, row.y + 0.45))
        box(ax, start + 1.8, row.y, 6.6, 0.9, text, color=FIELDS[j % 2])
    middle = 6.0 + (column + 0.5) * width
    label(ax, middle, top - 0.3, f"column {name} = {column}", align="bottom")
    label(ax, 19.0, top - 0.3, f"one int16 word [r, {name}]", align="bottom")
    foot = f"a block of 16 × {fields} = {16 * fields} rows becomes 16 rows of words, as wide as before"
    label(ax, 12, top + 1.02 * fields + 0.8, foot)
    rows = ", ".join(str(16 * j + r) for j in range(fields))
    return Picture(
        figure,
        f"Packing down a column, {bits} bits per code. Column {column} of the rows {rows}, each 16 below the "
        f"last, becomes one 16-bit word: row 16 j + {r} is field j, bits {bits} j and up; the last reaches "
        f"the sign bit. So a block of {16 * fields} rows becomes 16 rows of words, as wide as before.",
    )


def _name(ax, x: float, y: float, text: str) -> None:
    label(ax, x, y, text, align="right", family="monospace")


__all__ = [
    "down_a_column",
    "multiprocessor",
    "pack",
    "rulers",
    "spread",
    "sum_of_fields",
    "tile",
    "waiting",
]
