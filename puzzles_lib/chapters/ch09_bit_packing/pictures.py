"""Pictures for chapter 09."""

from puzzles_lib.drawing import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.drawing.colours import FAINT, INK, PALE, SKY, YELLOW

BIT = 0.27  # inches per bit
FIELDS = (SKY, YELLOW)  # in turns
CODES = (3, 20, 77, 200)  # of 8 bits; the last is above 127, so the sign bit is on


def rulers(word: int = -925_018_109) -> Picture:
    """One word, cut into fields of 1, 2, 4 and 8 bits."""
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
    label(ax, left + 32, 10.55, "field 0 is on the right", align="right", fontsize=9, color=FAINT)
    label(ax, left, 10.55, f"one int32 word: {word}", align="left")
    return Picture(
        figure,
        f"The int32 word {word}, bits {pattern} with bit 31 on the left, cut into fields of equal width. "
        f"By bits a field, from field 0 on: {'; '.join(told)}.",
    )


def pack(codes: tuple[int, ...], bits: int) -> int:
    """Codes as a signed 32-bit word, field 0 in the lowest bits."""
    word = sum(code << bits * i for i, code in enumerate(codes))
    return word - (1 << 32) if word >> 31 else word


def sum_of_fields(codes: tuple[int, ...] = CODES) -> Picture:
    """Every code shifted to its place; their sum is the word."""
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
        f"Rows of 32 bits: {shifted}. No two of them have a 1 in the same column, so their sum just sets "
        f"them side by side: the word {word}. Its top bit is 1, so as an int32 it is negative.",
    )


def tile(N: int = 21, BITS: int = 4, BLOCK_W: int = 4) -> Picture:
    """The tile of one program: a line per word, a column per field."""
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
        arrow(ax, (right + 0.2, y), (right + 1.5, y))
        text, fill, hatch = (f"word {w}", SKY, None) if real else ("", None, "..")
        box(ax, right + 1.7, top + w, 2.4, 1, text, color=fill, hatch=hatch)
    middle = left + 0.55 * F
    label(ax, middle, 0.6, "n = w · F + i", fontsize=11)
    label(ax, right + 2.9, 0.6, "sum along i", fontsize=11)
    foot = f"dotted: n ≥ {N}, masked, read as 0"
    label(ax, middle, top + BLOCK_W + 0.7, foot)
    foot = f"w ≥ {W}: not stored"
    label(ax, right + 2.9, top + BLOCK_W + 0.7, foot)
    return Picture(
        figure,
        f"A row of N = {N} codes of {BITS} bits, F = {F} to a word: {W} words. The program's tile has "
        f"BLOCK_W = {BLOCK_W} lines, one a word, and {F} columns, one a field; its cells hold "
        f"n = w * {F} + i, 0 to {BLOCK_W * F - 1}. Cells from n = {N} on are past the row: masked and read "
        f"as 0. Each line is summed to a word; the lines from w = {W} on have no word and are not stored.",
    )


def spread(codes: tuple[int, ...] = (5, 0, 15, 9, 2, 7, 1, 12), BITS: int = 4) -> Picture:
    """Words as a column, shifts as a row: one tile of codes."""
    second = tuple(reversed(range(8)))
    words = [pack(codes, BITS), pack(second, BITS)]
    F = 32 // BITS
    figure, ax = new_sheet(19.8, 6.2)
    left, top = 7.4, 2.6
    cells(ax, [[w] for w in words], x=1.0, y=top, width=4.0, colors=SKY)
    label(ax, 3.0, top - 0.3, "words[:, None]", align="bottom", family="monospace")
    cells(ax, [BITS * i for i in range(F)], x=left, y=0.5, width=1.15, colors=YELLOW, title="BITS * i")
    label(ax, 6.2, top + 1, ">>", fontsize=14, family="monospace")
    grid = cells(
        ax,
        [list(codes), list(second)],
        x=left,
        y=top,
        width=1.15,
        colors=[[FIELDS[i % 2] for i in range(F)]] * 2,
    )
    label(ax, grid.right + 0.3, top + 1, f"& {2**BITS - 1}", align="left", fontsize=11)
    for i in range(F):
        arrow(ax, (grid.center(0, i)[0], 1.6), (grid.center(0, i)[0], top - 0.1))
    foot = "each word is loaded once, and shifted by every amount in the row above"
    label(ax, 10, grid.bottom + 1.0, foot)
    return Picture(
        figure,
        f"Two words as a column, {words[0]} and {words[1]}, and the shifts as a row, 0 to {BITS * (F - 1)} "
        f"in steps of {BITS}. Broadcast against each other, shifted, and cut by & {2**BITS - 1}, they make a "
        f"tile of codes: {list(codes)} and {list(second)}. Each word is loaded once.",
    )


def down_a_column(bits: int = 2) -> Picture:
    """The production format: one 16-bit word from eight rows of one column."""
    fields = 16 // bits
    figure, ax = new_sheet(24, fields + 3.0)
    top, width, column, r = 1.2, 0.62, 5, 3
    for j in range(fields):
        colors = [PALE] * 12
        colors[column] = FIELDS[j % 2]
        row = cells(ax, [""] * 12, x=6.0, y=top + 1.02 * j, width=width, height=0.9, colors=colors)
        name = f"row {16 * j + r}" if j else f"row r = {r}"
        label(ax, 5.7, row.y + 0.45, name, align="right")
        text = f"field {j}: bits {bits * j}, {bits * j + 1}"
        if j == fields - 1:
            text += ", the sign"
        start = row.right + 0.2
        arrow(ax, (start, row.y + 0.45), (start + 1.6, row.y + 0.45))
        box(ax, start + 1.8, row.y, 6.6, 0.9, text, color=FIELDS[j % 2])
    middle = 6.0 + (column + 0.5) * width
    label(ax, middle, top - 0.3, f"column c = {column}", align="bottom")
    label(ax, 19.0, top - 0.3, "one int16 word [r, c]", align="bottom")
    foot = f"a block of 16 × {fields} = {16 * fields} rows becomes 16 rows of words, as wide as before"
    label(ax, 12, top + 1.02 * fields + 0.8, foot)
    rows = ", ".join(str(16 * j + r) for j in range(fields))
    return Picture(
        figure,
        f"Packing down a column, {bits} bits a code. Column {column} of the rows {rows}, each 16 below the "
        f"last, becomes one 16-bit word: row 16 j + {r} is field j, bits {bits} j and up; the last reaches "
        f"the sign bit. So a block of {16 * fields} rows becomes 16 rows of words, as wide as before.",
    )


def _name(ax, x: float, y: float, text: str) -> None:
    label(ax, x, y, text, align="right", family="monospace")


__all__ = ["down_a_column", "pack", "rulers", "spread", "sum_of_fields", "tile"]
