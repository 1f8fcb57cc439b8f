"""Pictures for chapter 13. Layouts are drawn as `puzzles_lib.compiler.layouts` reads them from TTGIR."""

from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from puzzles_lib.compiler.layouts import Layout, read_layout
from puzzles_lib.drawing.colours import (
    FAINT,
    GREEN,
    HAZE,
    INK,
    ORANGE,
    PALE,
    PROGRAM_COLORS,
    PROGRAM_TINTS,
    SKY,
    VERMILLION,
    YELLOW,
    text_color,
)
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet

MARK = VERMILLION  # the thread to look at
LETTERS = "abcdefgh"  # of one lane's elements


def stations() -> Picture:
    """Draw the stages of a compilation, and what each of them settles."""
    figure, ax = new_sheet(24.2, 8.4)
    common = [
        ("Python", "the kernel's\nsource and its tree"),
        ("TTIR", "types and shapes;\nblocks as wholes"),
        ("TTGIR", "layouts: which thread\nholds which element"),
        ("LLVM IR", "what one thread does,\nregisters unlimited"),
    ]
    width, height, gap = 4.6, 3.0, 1.6
    for i, (name, what) in enumerate(common):
        _station(ax, i * (width + gap) + 0.1, 0.6, width, height, name, what, SKY)
        if i:
            arrow(ax, (i * (width + gap) + 0.1 - gap, 2.1), (i * (width + gap) + 0.1, 2.1))
    last = 3 * (width + gap) + 0.1
    below = [
        ("PTX", "NVIDIA's assembly,\nvirtual registers", 2, GREEN),
        ("SASS", "what an NVIDIA GPU\nruns; real registers", 1, GREEN),
        ("AMDGCN", "what an AMD GPU\nruns; real registers", 3, ORANGE),
    ]
    for name, what, column, color in below:
        _station(ax, column * (width + gap) + 0.1, 5.2, width, height, name, what, color)
    arrow(ax, (last + 0.2, 3.6), (last - gap, 5.3))
    arrow(ax, (last + width / 2, 3.6), (last + width / 2, 5.2))
    arrow(ax, (2 * (width + gap) + 0.1, 6.7), (width + 0.1 + width + gap, 6.7))
    label(ax, 2 * (width + gap) + 0.1 - gap / 2, 6.35, "ptxas", fontsize=9, color=FAINT)
    told = "TTIR is almost the same for every target; TTGIR and LLVM IR come from each target's own passes"
    label(ax, 0.2, 4.35, told, align="left", color=FAINT)
    return Picture(
        figure,
        "The stages. Python: the kernel's source and its tree. TTIR: types and shapes, blocks as wholes, "
        "almost the same for every target. TTGIR: layouts, which thread holds which element. LLVM IR: what "
        "one thread does, with unlimited registers. From there, NVIDIA goes to PTX, an assembly language "
        "with virtual registers, and to SASS, which the GPU runs; AMD goes to AMDGCN. After TTIR, each "
        "target has passes of its own.",
    )


def _station(
    ax: Axes, x: float, y: float, width: float, height: float, name: str, what: str, color: object
) -> None:
    box(ax, x, y, width, height, color="white", edge=INK, linewidth=0.9)
    box(ax, x, y, width, 1.1, color=color, edge=INK, linewidth=0.9)
    label(ax, x + width / 2, y + 0.58, name, fontsize=11, color=text_color(color), weight="bold")
    label(ax, x + width / 2, y + 2.05, what, fontsize=9)


def block(layout: Layout, warp: int = 1, lane: int = 2) -> Picture:
    """Draw who holds a block: cut into warps, one warp's share into lanes, one lane's into registers.

    layout: that of a tensor with one axis, in which neighbors belong to one thread's registers.
    warp, lane: which ones to look into; their first share is drawn.

    Raises ValueError for a warp that has no share of its own, and for a lane that is not drawn.
    """
    (n,) = layout.shape
    order = [layout.holders((i,)) for i in range(n)]
    runs = _runs(order)
    shares = [(begin, length) for begin, length, holder in runs if holder == warp]
    shown = min(9 if len(shares) < 2 else 5, layout.lanes)
    if lane not in range(shown):
        raise ValueError(
            f"block: lane must be from 0 to {shown - 1}, the lanes that are drawn, but is {lane!r}"
        )
    if not shares:
        having = ", ".join(map(str, sorted({holder for _, _, holder in runs})))
        raise ValueError(f"block: warp must be one with a share of its own ({having}), but is {warp!r}")
    start, span = shares[0]
    own = [i for i in range(start, start + span) if any(h[:2] == (warp, lane) for h in order[i])]
    figure, ax = new_sheet(22, 10.2)
    left, width = 0.6, 20.8
    tops = (2.2, 5.2, 8.2)

    def part(x: float, y: float, w: float, text: str, number: int, color: object) -> None:
        box(ax, x, y, w, 1, text, color=color, edge=INK, fontsize=9)
        label(ax, x + 0.1, y - 0.1, str(number), align="left bottom", fontsize=9, color=FAINT)

    scale = width / n
    for begin, length, holder in runs:
        color = PROGRAM_COLORS[holder % len(PROGRAM_COLORS)]
        part(left + begin * scale, tops[0], length * scale, f"warp {holder}", begin, color)
    for begin, _ in shares:
        mine = left + (begin + lane * len(own)) * scale
        box(ax, mine, tops[0], len(own) * scale, 1, "", color=MARK, edge=MARK)
        middle = mine + len(own) * scale / 2
        arrow(ax, (middle, tops[0] - 1.05), (middle, tops[0] - 0.5))
        label(ax, middle, tops[0] - 1.25, f"lane {lane}", fontsize=9)
    marked = f"the block, {n} elements; the arrows are at those of lane {lane} of warp {warp}"
    label(ax, left, 0.3, marked, align="left")

    gap = 0.8
    panel = (width - gap * (len(shares) - 1)) / len(shares)
    each, wide = panel / (shown + 1), min(2.5, panel / len(own))
    ordinals = ("first", "second", "third", "fourth")
    for number, (begin, _) in enumerate(shares):
        x = left + number * (panel + gap)
        _enlarge(ax, left + begin * scale, span * scale, tops[0] + 1, x, panel, tops[1])
        for i in range(shown):
            part(x + each * i, tops[1], each, f"lane {i}", begin + i * len(own), MARK if i == lane else PALE)
        label(ax, x + each * (shown + 0.5), tops[1] + 0.5, f"... lane {layout.lanes - 1}", fontsize=9)
        _enlarge(ax, x + each * lane, each, tops[1] + 1, x, wide * len(own), tops[2])
        for i, element in enumerate(e + begin - start for e in own):
            register = next(r for w, t, r in order[element] if (w, t) == (warp, lane))
            part(x + wide * i, tops[2], wide, f"register {register}", element, YELLOW)
        which = ordinals[number] if number < len(ordinals) else f"{number + 1}th"
        words = f"lane {lane}'s {which} run: {len(own)} neighbors, one load can fetch them"
        label(ax, x, tops[2] + 1.5, words, align="left", fontsize=9)
    told = ", ".join(f"{b} to {b + length - 1} warp {w}" for b, length, w in runs)
    return Picture(
        figure,
        f"A block of {n} elements in the layout {layout.name}. By warps: {told}. Of warp {warp}'s elements "
        f"{start} to {start + span - 1}, each lane holds {len(own)} neighbors: lane {lane} has the elements "
        f"{own[0]} to {own[-1]}, in its registers 0 to {len(own) - 1}. Lane {lane} has "
        f"{len(own) * len(shares)} elements in all, in {len(shares)} such runs.",
    )


def _runs(order: list) -> list[tuple[int, int, int]]:
    """Runs of elements that one warp holds: start, length, the first warp that holds them."""
    runs: list[tuple[int, int, int]] = []
    for i, holders in enumerate(order):
        warp = holders[0][0]
        if runs and runs[-1][2] == warp:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, warp)
        else:
            runs.append((i, 1, warp))
    return runs


def _enlarge(
    ax: Axes, x: float, width: float, y: float, x_below: float, width_below: float, y_below: float
) -> None:
    """A faint funnel from the foot of a cell to the strip that shows it larger."""
    corners = [(x, y), (x + width, y), (x_below + width_below, y_below), (x_below, y_below)]
    ax.add_patch(Polygon(corners, closed=True, facecolor=HAZE, edgecolor="none", zorder=0))


def fragments(ttgir: str, lane: int = 9) -> Picture:
    """Draw the three tiles of one mma.sync.m16n8k16, and who holds which element, with one lane marked.

    ttgir: that of a matmul compiled for sm_80, with its ``#mma``.
    """
    operand = "#ttg.dot_op<{{opIdx = {}, parent = #mma, kWidth = 2}}>"
    tiles = {
        "x": read_layout(ttgir, operand.format(0), (16, 16)),
        "y": read_layout(ttgir, operand.format(1), (16, 8)),
        "acc": read_layout(ttgir, "#mma", (16, 8)),
    }
    wide, tall, gap = 0.82, 0.5, 0.9
    corner = (2.0 + 16 * wide + gap, 1.1 + 16 * tall + gap)
    places = {"x": (2.0, corner[1]), "y": (corner[0], 1.1), "acc": corner}
    figure, ax = new_sheet(corner[0] + 8 * wide + 0.4, corner[1] + 16 * tall + 0.4)
    axes = {"x": ("m", "k"), "y": ("k", "n"), "acc": ("m", "n")}
    told = []
    for name, layout in tiles.items():
        x, y = places[name]
        mine = []
        texts, colors = [], []
        for row in range(layout.shape[0]):
            texts.append([])
            colors.append([])
            for column in range(layout.shape[1]):
                holder = next(h for h in layout.holders((row, column)) if h[0] == 0)
                picked = holder[1] == lane
                tint = PALE if name == "y" else PROGRAM_TINTS[holder[1] // 4]
                texts[-1].append(LETTERS[holder[2]] if picked else str(holder[1]))
                colors[-1].append(MARK if picked else tint)
                if picked:
                    mine.append(f"{LETTERS[holder[2]]} [{row}, {column}]")
        cells(ax, texts, x=x, y=y, width=wide, height=tall, colors=colors, fontsize=9)
        pairs: dict[int, list[tuple[int, int]]] = {}  # the elements in each register of the lane
        for row, column in ((m, k) for m in range(layout.shape[0]) for k in range(layout.shape[1])):
            holder = next(h for h in layout.holders((row, column)) if h[0] == 0)
            if holder[1] == lane:
                pairs.setdefault(holder[2] if name == "acc" else holder[2] // 2, []).append((row, column))
        for (row, column), *_, last in (p for p in pairs.values() if len(p) > 1):
            across, down = (last[1] - column + 1) * wide, (last[0] - row + 1) * tall
            box(ax, x + column * wide, y + row * tall, across, down, color=None, edge=INK, linewidth=2.2)
        m, k = layout.shape
        real = layout.registers if name == "acc" else layout.registers // 2  # two float16 in each
        words = f"{name}: {m} x {k}, {real} registers per lane"
        label(ax, x, y - 0.35, words, align="left", fontsize=9)
        label(ax, x + wide * k - 0.2, y - 0.35, axes[name][1], color=FAINT)
        label(ax, x - 0.3, y + tall * m / 2, axes[name][0], color=FAINT)
        told.append(f"of {name}, {', '.join(sorted(mine))}")
    words = (
        "one warp, one mma.sync.m16n8k16:\n\n"
        "  acc += x @ y\n\n"
        "numbers are lanes, and a tint is\nthe four lanes that share a row;\n"
        f"the cells of lane {lane} are marked:\na, b, c, ... are its elements.\n"
        "A thick frame is one register:\ntwo float16 of x or y share it."
    )
    label(ax, 2.0, 1.1 + 8 * tall, words, align="left", fontsize=11)
    return Picture(
        figure,
        f"One mma.sync.m16n8k16 of a warp: acc, 16 x 8, grows by x, 16 x 16, times y, 16 x 8. Each cell "
        f"names the lane that holds it. Lane {lane} holds {'; '.join(told)}. A row of acc belongs to four "
        f"lanes, which hold a pair of neighbors each.",
    )


def wgmma(ttgir: str) -> Picture:
    """Draw the tiles of a 128 x 128 x 64 dot on an H100: the rows of each warp, and what one wgmma takes.

    ttgir: that of a matmul compiled for sm_90 with four warps and these tiles, with its ``#mma``.
    """
    rows, columns, depth = 128, 128, 64
    piece_rows, piece_depth = 64, 16  # of m64n128k16
    layout = read_layout(ttgir, "#mma", (rows, columns))
    runs = _runs([layout.holders((row, 0)) for row in range(rows)])
    wide, tall = 0.9 / 16, 0.8 / 16  # of an element
    left, top = 10.0, 1.3
    corner = top + depth * tall + 1.3
    figure, ax = new_sheet(24.4, corner + rows * tall + 0.4)
    x = left - 1.2 - depth * wide
    box(ax, left, top, columns * wide, depth * tall, color=PALE, edge=INK)
    box(ax, left, top, columns * wide, piece_depth * tall, color=YELLOW, edge=INK)
    box(ax, x, corner, depth * wide, rows * tall, color=PALE, edge=INK)
    box(ax, x, corner, piece_depth * wide, piece_rows * tall, color=YELLOW, edge=INK)
    for slice_ in range(1, depth // piece_depth):  # the edges of the pieces
        at, y = x + slice_ * piece_depth * wide, top + slice_ * piece_depth * tall
        ax.plot([at, at], [corner, corner + rows * tall], color=INK, linewidth=0.8, linestyle=":")
        ax.plot([left, left + columns * wide], [y, y], color=INK, linewidth=0.8, linestyle=":")
    foot = corner + piece_rows * tall
    ax.plot([x, x + depth * wide], [foot, foot], color=INK, linewidth=0.8, linestyle=":")
    label(ax, left, top - 0.4, f"y: {depth} x {columns}, in shared memory", align="left")
    label(ax, left - 0.4, top + depth * tall / 2, "k", color=FAINT)
    label(ax, x, corner - 0.8, f"x: {rows} x {depth}, in\nshared memory", align="left")
    label(ax, x + depth * wide - 0.2, corner - 0.4, "k", color=FAINT)
    for y in (top, corner):
        label(ax, left + columns * wide - 0.2, y - 0.4, "n", color=FAINT)
    label(ax, x - 0.4, corner + rows * tall / 2, "m", color=FAINT)
    told = []
    for begin, length, warp in runs:
        words = f"warp {warp}: rows {begin}\u2013{begin + length - 1}"
        color = PROGRAM_COLORS[warp % len(PROGRAM_COLORS)]
        box(ax, left, corner + begin * tall, columns * wide, length * tall, words, color=color, fontsize=9)
        told.append(words.replace("\u2013", " to "))
    label(ax, left, corner - 0.4, f"acc: {rows} x {columns}, in registers", align="left")
    right = left + columns * wide + 0.3
    ax.plot([right, right + 0.2, right + 0.2, right], [corner, corner, foot, foot], color=INK, linewidth=1.4)
    label(
        ax,
        right + 0.5,
        (corner + foot) / 2,
        f"rows of one\nm{piece_rows}n{columns}k{piece_depth}",
        align="left",
    )
    words = (
        "yellow: what one wgmma\nreads. Four warps share\nit, 16 rows each. The\ndotted lines:\n"
        f"{rows // piece_rows} pieces along m times\n{depth // piece_depth} along k"
    )
    label(ax, 0.4, top + depth * tall / 2, words, align="left", fontsize=11)
    return Picture(
        figure,
        f"The tiles of a dot on an H100. x, {rows} x {depth}, and y, {depth} x {columns}, are in shared "
        f"memory; acc, {rows} x {columns}, is in registers: {'; '.join(told)}. One wgmma reads "
        f"{piece_rows} rows and {piece_depth} columns of x, and {piece_depth} rows of y, and adds to "
        f"{piece_rows} rows of acc. That makes {rows // piece_rows} pieces along m times "
        f"{depth // piece_depth} along k.",
    )


def pipelined(steps: int = 4) -> Picture:
    """Draw copies and dots of a loop, in sequence and overlapped; a copy takes as long as two dots."""
    figure, ax = new_sheet(24.4, 9.6)
    left, wide, tall = 4.3, 1.62, 0.9
    ends = []
    for y, num_stages in ((1.1, 1), (5.0, 3)):
        copies, dots, free = [], [], 0.0
        for step in range(steps):
            if num_stages == 1:
                start = free
            else:  # so many copies ahead of the dots, no more
                start = 0.0 if step < num_stages - 1 else dots[step - num_stages + 1][0]
            copies.append((start, start + 2))
            begin = max(copies[-1][1], dots[-1][1] if dots else 0.0)
            dots.append((begin, begin + 1))
            free = dots[-1][1]
        ends.append(free)
        label(ax, 0.2, y - 0.6, f"num_stages={num_stages}", align="left", fontsize=11)
        lanes = max(1, num_stages - 1)
        for step in range(steps):
            for (start, end), name, color, row in (
                (copies[step], "load" if num_stages == 1 else "copy", SKY, step % lanes),
                (dots[step], "dot", ORANGE, lanes),
            ):
                x, w = left + wide * start, wide * (end - start)
                top = y + row * tall
                box(ax, x, top, w, tall, f"{name} {step}", color=color, edge=INK, fontsize=9)
        if num_stages == 1:
            words = "time goes to the right; here a tile takes as long to arrive as two dots"
            label(ax, left, y - 0.6, words, align="left", fontsize=9, color=FAINT)
        words = "loads" if num_stages == 1 else f"copies,\n{lanes} at a time"
        label(ax, left - 0.3, y + tall * lanes / 2, words, align="right")
        label(ax, left - 0.3, y + tall * (lanes + 0.5), "tensor cores", align="right")
    x, foot = left + wide * (dots[1][0] + 0.5), 5.0 + 3 * tall + 0.5  # the middle of dot 1
    for top, end in ((4.9, 5.0 + 2 * tall), (5.0 + 3 * tall, foot)):  # not through its name
        ax.plot([x, x], [top, end], color=INK, linewidth=1.4, linestyle="--", zorder=5)
    words = (
        "here, dot 1 reads one pair of tiles, while pairs 2 and 3 arrive:\nthree pairs are in shared memory"
    )
    label(ax, x, foot + 0.8, words, fontsize=11)
    words = "each iteration starts one copy:\ncopy 3 starts with dot 1"
    label(ax, left + wide * (copies[3][1] + 0.2), 5.0 + tall, words, align="left", fontsize=9)
    return Picture(
        figure,
        f"{steps} iterations of a matmul's loop, if a tile takes as long to arrive as two dots. "
        f"num_stages=1: load, dot, load, dot; done after the time of {ends[0]:g} dots. num_stages=3: two "
        "copies run beside a dot, so three pairs of tiles are in shared memory: one that is multiplied, and "
        "two that arrive. The tensor cores wait for the first copy only; done "
        f"after {ends[1]:g}.",
    )
