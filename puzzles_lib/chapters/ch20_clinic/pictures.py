"""Pictures for chapter 20."""

from puzzles_lib.drawing import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.drawing.colours import (
    FAINT,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PALE,
    PALE_GREEN,
    PALE_ORANGE,
    PALE_SKY,
    SKY,
    VERMILLION,
    YELLOW,
)

MINUS = "\N{MINUS SIGN}"


def method() -> Picture:
    """Four steps from a report to a kernel that is right."""
    steps = (
        ("reproduce", "the same sizes, dtypes,\nvalues: it fails here, too", PALE_ORANGE),
        ("reduce", "smaller, fewer, simpler,\nas long as it still fails", YELLOW),
        ("look", "which element, which line,\nwhich value is not yours?", PALE_SKY),
        ("mend", "one line; then run all\nthat failed on the way", PALE_GREEN),
    )
    figure, ax = new_sheet(19.2, 6.2)
    for number, (name, text, color) in enumerate(steps):
        x = 0.2 + 4.85 * number
        box(ax, x, 0.6, 4.25, 1.2, name, color=color, fontsize=13)
        label(ax, x + 2.1, 2.9, text)
        if number:
            arrow(ax, (x - 0.55, 1.2), (x - 0.05, 1.2))
    box(ax, 5.1, 4.2, 9.0, 1.2, "still unclear? Then it is not small enough yet", color=PALE)
    arrow(ax, (12.0, 3.6), (12.0, 4.15))
    arrow(ax, (7.1, 4.15), (7.1, 3.6))
    told = "; ".join(f"{name}: {' '.join(text.split())}" for name, text, _ in steps)
    return Picture(
        figure, f"Four steps, one after the other. {told}. Who finds nothing by looking goes back to reduce."
    )


SYMPTOMS = (
    ("begins at a size", ("int32 offsets, 2^31", "grid y, z: 65,535", "a ragged end")),
    ("for some values", ("a fill: other=", f"{MINUS}inf {MINUS} {MINUS}inf", "a narrow store")),
    ("differs from run to run", ("no barrier", "a lock, a flag", "programs that meet")),
    ("the same, but off", ("a digit: TF32, 16 bits", "one: C's // and %", "256: int8 products")),
    ("depends on who ran before", ("autotune, in place", "a result not cleared", "a seed used twice")),
)
"""What is seen, and what it may come from."""


def symptoms() -> Picture:
    """A map from what one sees to what it may come from."""
    figure, ax = new_sheet(19.2, 2.2 + 1.9 * len(SYMPTOMS))
    label(ax, 2.9, 0.7, "you see", fontsize=12, color=FAINT)
    label(ax, 12.8, 0.7, "look for", fontsize=12, color=FAINT)
    for number, (seen, causes) in enumerate(SYMPTOMS):
        y = 1.5 + 1.9 * number
        box(ax, 0.2, y, 5.5, 1.3, seen, color=PALE_ORANGE, fontsize=11)
        arrow(ax, (5.8, y + 0.65), (6.5, y + 0.65))
        for place, cause in enumerate(causes):
            box(ax, 6.6 + 4.2 * place, y, 4.05, 1.3, cause, color=PALE_SKY)
    told = "; ".join(f"{seen}: {', '.join(causes)}" for seen, causes in SYMPTOMS)
    return Picture(figure, f"A map from symptoms to likely causes. {told}.")


def wraps(B: int = 16, T: int = 17_477, K: int = 8192) -> Picture:
    """Where the sequences of a large tensor begin, as int32 has it."""
    figure, ax = new_sheet(19.2, 7.6)
    left, width = 0.8, 17.2
    reach = (B * T * K) / 2**31  # of a tensor, in int32's range
    scale = width / (2 * reach)
    middle = left + width / 2
    last = (B - 1) * T * K
    for y, name, wrapped in ((1.2, "where it should be", False), (4.0, "in int32", True)):
        for b in range(B):
            at = b * T * K
            bad = at >= 2**31
            at -= 2**32 * (bad and wrapped)
            place = middle + at / 2**31 * scale
            box(ax, place, y, T * K / 2**31 * scale, 1.0, color=VERMILLION if bad else SKY)
            if bad:
                text = f"sequence {b} begins at {at:,}".replace("-", MINUS)
                label(
                    ax,
                    place + (0.6 if wrapped else -0.6),
                    y + 1.5,
                    text,
                    align="left" if wrapped else "right",
                )
        label(ax, middle - 0.4, y + 0.5, name, align="right")
    for at, text in ((-1, f"{MINUS}2^31"), (0, "0"), (1, "2^31")):
        x = middle + at * scale
        ax.plot([x, x], [0.9, 6.2], color=INK, linewidth=1.2)
        label(ax, x, 6.7, text)
    return Picture(
        figure,
        f"{B} sequences of {T:,} tokens with {K} numbers each, along a line of offsets. Sequence {B - 1} "
        f"should begin at {last:,}, just past 2^31 = {2**31:,}. In int32 it begins at {last - 2**32:,}: "
        f"before the tensor. The other {B - 1} are where they should be.",
    )


def overshoots(N: int = 5, BLOCK: int = 4) -> Picture:
    """A tile that is wider than what is left of its row."""
    figure, ax = new_sheet(19.2, 7.4)
    left, width, M = 4.0, 1.45, 2
    label(ax, left - 0.4, 1.5, "the tile's lanes", align="right")
    over = 2 * BLOCK - N
    colors = [SKY] * (N - BLOCK) + [VERMILLION] * over
    names = [f"n={BLOCK + i}" for i in range(BLOCK)]
    tile = cells(ax, names, x=left + BLOCK * width, y=1.0, width=width, colors=colors)
    texts = [f"z[{m},{n}]" for m in range(M) for n in range(N)]
    hit = [SKY if i == BLOCK else VERMILLION if BLOCK < i < 2 * BLOCK else PALE for i in range(M * N)]
    memory = cells(ax, texts, x=left, y=4.2, width=width, colors=hit)
    label(ax, left - 0.4, 4.7, "memory", align="right")
    for lane in range(BLOCK):
        arrow(ax, tile.foot(lane), memory.top(BLOCK + lane))
    ax.plot([left + N * width] * 2, [3.4, 5.6], color=INK, linewidth=1.6)
    label(ax, left + N * width / 2, 6.0, "row 0", color=FAINT)
    label(ax, left + 1.5 * N * width, 6.0, "row 1: another program's, which stores there, too", color=FAINT)
    return Picture(
        figure,
        f"Rows of {N}, blocks of {BLOCK}. The second tile of row 0 has lanes n = {BLOCK} to "
        f"{2 * BLOCK - 1}. Only n = {BLOCK} is in the row; in memory the other {over} lie on z[1, 0] to "
        f"z[1, {over - 1}], which another program stores, too.",
    )


def releases() -> Picture:
    """Four warps at their own pace, and the one that gives the lock back."""
    figure, ax = new_sheet(19.2, 7.6)
    left, ends = 2.6, (3.2, 5.1, 4.2, 7.8)
    for warp, end in enumerate(ends):
        y = 0.8 + 1.2 * warp
        label(ax, left - 0.4, y + 0.45, f"warp {warp}", align="right")
        box(ax, left, y, end, 0.9, "stores", color=GREEN)
    box(ax, left + ends[0], 0.8, 2.8, 0.9, "lock = 0", color=ORANGE)
    opened = left + ends[0] + 2.8
    box(ax, opened + 0.8, 5.9, 7.0, 1.0, "next program loads", color=SKY)
    arrow(ax, (opened, 1.7), (opened + 0.8, 5.85))
    late = left + max(ends)
    box(ax, opened, 4.4, late - opened, 0.9, color=VERMILLION)
    label(ax, late + 0.2, 4.85, "too late", align="left")
    ax.plot([late + 2.8] * 2, [0.6, 5.5], color=LINE, linewidth=2, linestyle="--")
    label(ax, late + 3.1, 3.0, "with a barrier the lock\nwould open here", align="left")
    return Picture(
        figure,
        "Four warps of one program store, each at its own pace. Warp 0 is done first and sets the lock to 0; "
        "warp 3 is still storing when the next program loads. With a barrier the lock opens only "
        "after the last warp's stores.",
    )


def rounds_down(SIZE: int = 4) -> Picture:
    """Cells of a grid around 0: rounded down, and towards zero."""
    figure, ax = new_sheet(19.2, 6.4)
    points, left, width = list(range(-2 * SIZE, 2 * SIZE)), 3.6, 0.96
    tints = {-2: PALE_ORANGE, -1: PALE_SKY, 0: YELLOW, 1: PALE_GREEN}
    rows = (("rounded down", [x // SIZE for x in points]), ("Triton's //", [int(x / SIZE) for x in points]))
    names = [str(x).replace("-", MINUS) for x in points]
    cells(ax, names, x=left, y=0.8, width=width, colors=None, title="x")
    for number, (name, found) in enumerate(rows):
        texts = [str(c).replace("-", MINUS) for c in found]
        cells(
            ax, texts, x=left, y=2.4 + 1.6 * number, width=width, colors=[tints[c] for c in found], title=name
        )
    down, towards = (found for _, found in rows)
    wrong = [x for x, a, b in zip(points, down, towards, strict=True) if a != b]
    label(
        ax,
        left,
        5.7,
        f"cell 0 is {2 * SIZE - 1} wide: {len(wrong)} of these points are in a wrong one",
        align="left",
    )
    return Picture(
        figure,
        f"Numbers from {points[0]} to {points[-1]}, divided by {SIZE}. Rounded down each cell has {SIZE} of "
        f"them. Rounded towards zero, as by Triton's //, cell 0 has {towards.count(0)}, from {-SIZE + 1} to "
        f"{SIZE - 1}: {len(wrong)} of these are in the wrong cell, {', '.join(map(str, wrong))}.",
    )
