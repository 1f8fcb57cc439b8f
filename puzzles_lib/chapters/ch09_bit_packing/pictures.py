"""Pictures for chapter 09."""

from puzzles_lib.drawing import FAINT, INK, PALE, PALETTE, Picture, arrow, cells, new_sheet

BIT = 0.27  # inches per bit
FIELDS = (PALETTE[2], PALETTE[4])  # sky blue and yellow, in turns
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
        row = cells(ax, fields, x=left, y=y, width=bits, height=1.4, colors=colors, fontsize=10)
        text = f"BITS = {bits}"
        ax.text(left - 0.4, row.y + 0.7, text, ha="right", va="center", fontsize=10, color=INK)
        told.append(f"{bits}: {len(fields)} fields, {fields[::-1]}")
        if bits == 1:
            for bit in (0, 7, 8, 15, 16, 23, 24, 31):
                place = left + 31.5 - bit
                ax.text(place, y - 0.15, str(bit), ha="center", va="bottom", fontsize=9, color=FAINT)
    ax.text(left + 32, 10.55, "field 0 is on the right", ha="right", va="center", fontsize=9, color=FAINT)
    ax.text(left, 10.55, f"one int32 word: {word}", ha="left", va="center", fontsize=10, color=INK)
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
    ax.text(row.right + 0.5, row.y + 0.7, f"= {word}", ha="left", va="center", fontsize=11, color=INK)
    ax.text(left, row.bottom + 1.0, "bit 31, the sign", ha="left", va="center", fontsize=9, color=FAINT)
    ax.text(row.right, row.bottom + 1.0, "bit 0", ha="right", va="center", fontsize=9, color=FAINT)
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
        cells(
            ax,
            [f"word {w}" if real else ""],
            x=right + 1.7,
            y=top + w,
            width=2.4,
            colors=PALETTE[2] if real else None,
            hatch=None if real else "..",
        )
    middle = left + 0.55 * F
    ax.text(middle, 0.6, "n = w · F + i", ha="center", va="center", fontsize=11, color=INK)
    ax.text(right + 2.9, 0.6, "sum along i", ha="center", va="center", fontsize=11, color=INK)
    foot = f"dotted: n ≥ {N}, masked, read as 0"
    ax.text(middle, top + BLOCK_W + 0.7, foot, ha="center", va="center", fontsize=10, color=INK)
    foot = f"w ≥ {W}: not stored"
    ax.text(right + 2.9, top + BLOCK_W + 0.7, foot, ha="center", va="center", fontsize=10, color=INK)
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
    cells(ax, [[w] for w in words], x=1.0, y=top, width=4.0, colors=PALETTE[2], fontsize=10)
    ax.text(3.0, top - 0.3, "words[:, None]", ha="center", va="bottom", fontsize=10, family="monospace")
    cells(ax, [BITS * i for i in range(F)], x=left, y=0.5, width=1.15, colors=PALETTE[4], title="BITS * i")
    ax.text(6.2, top + 1, ">>", ha="center", va="center", fontsize=14, family="monospace", color=INK)
    grid = cells(
        ax,
        [list(codes), list(second)],
        x=left,
        y=top,
        width=1.15,
        colors=[[FIELDS[i % 2] for i in range(F)]] * 2,
    )
    ax.text(grid.right + 0.3, top + 1, f"& {2**BITS - 1}", ha="left", va="center", fontsize=11, color=INK)
    for i in range(F):
        arrow(ax, (grid.center(0, i)[0], 1.6), (grid.center(0, i)[0], top - 0.1))
    foot = "each word is loaded once, and shifted by every amount in the row above"
    ax.text(10, grid.bottom + 1.0, foot, ha="center", va="center", fontsize=10, color=INK)
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
        ax.text(5.7, row.y + 0.45, name, ha="right", va="center", fontsize=10, color=INK)
        text = f"field {j}: bits {bits * j}, {bits * j + 1}"
        if j == fields - 1:
            text += ", the sign"
        start = row.right + 0.2
        arrow(ax, (start, row.y + 0.45), (start + 1.6, row.y + 0.45))
        cells(ax, [text], x=start + 1.8, y=row.y, width=6.6, height=0.9, colors=FIELDS[j % 2])
    middle = 6.0 + (column + 0.5) * width
    ax.text(middle, top - 0.3, f"column c = {column}", ha="center", va="bottom", fontsize=10, color=INK)
    ax.text(19.0, top - 0.3, "one int16 word [r, c]", ha="center", va="bottom", fontsize=10, color=INK)
    foot = f"a block of 16 × {fields} = {16 * fields} rows becomes 16 rows of words, as wide as before"
    ax.text(12, top + 1.02 * fields + 0.8, foot, ha="center", va="center", fontsize=10, color=INK)
    rows = ", ".join(str(16 * j + r) for j in range(fields))
    return Picture(
        figure,
        f"Packing down a column, {bits} bits a code. Column {column} of the rows {rows}, each 16 below the "
        f"last, becomes one 16-bit word: row 16 j + {r} is field j, bits {bits} j and up; the last reaches "
        f"the sign bit. So a block of {16 * fields} rows becomes 16 rows of words, as wide as before.",
    )


def _name(ax, x: float, y: float, text: str) -> None:
    ax.text(x, y, text, ha="right", va="center", fontsize=10, color=INK, family="monospace")


__all__ = ["down_a_column", "pack", "rulers", "spread", "sum_of_fields", "tile"]
