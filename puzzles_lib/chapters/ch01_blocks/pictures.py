"""Pictures of chapter 01: a pointer and the offsets of a block, and the mask of the last one."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.drawing.colours import FAINT, INK, ORANGE, PALE, PROGRAM_COLORS, VERMILLION
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.puzzle import Case


def pointer(pid: int = 1, block: int = 8) -> Picture:
    """Draw a tensor between two rulers: one counts from its start, the other from a moved pointer."""
    figure, ax = new_sheet(22.4, 6.9)
    color = PROGRAM_COLORS[pid % len(PROGRAM_COLORS)]
    first, left, count = pid * block, 5.2, 2 * block
    own = [first <= i < first + block for i in range(count)]
    strip = cells(ax, [f"x[{i}]" for i in range(count)], x=left, y=3.3, colors=_fills(own, color), fontsize=9)
    _pin(ax, left, 3.3, "x_ptr", up=True)
    label(ax, left - 0.25, 2.75, "x_ptr + ...", align="right", fontsize=11)
    _ruler(ax, left, 2.75, range(count), bold=own)
    _pin(ax, left + first, strip.bottom, "x_ptr, moved by pid * BLOCK", up=False)
    label(ax, left - 0.25, 4.85, "moved x_ptr + ...", align="right", fontsize=11)
    _ruler(ax, left + first, 4.85, range(block), bold=[True] * block)
    label(ax, left + first, 0.9, f"the block of program {pid}", align="left", color=FAINT)
    return Picture(
        figure,
        f"""A tensor x between two rulers. The upper one begins at x_ptr, the start of x, so the block of
        program {pid} has the numbers {first} to {first + block - 1}. The lower one begins where x_ptr points
        after it has moved by pid * BLOCK = {first}: the same elements have the numbers 0 to {block - 1}.""",
    )


def task(pid: int = 1, block: int = 8) -> Picture:
    """Draw x with a moved pointer, and z with one that hasn't moved and a question mark in each lane."""
    figure, ax = new_sheet(22.4, 8.7)
    color = PROGRAM_COLORS[pid % len(PROGRAM_COLORS)]
    first, left, count = pid * block, 5.2, 2 * block
    own = [first <= i < first + block for i in range(count)]
    for name, y, start in (("x", 2.7, first), ("z", 7.1, 0)):
        names = [f"{name}[{i}]" for i in range(count)]
        cells(ax, names, x=left, y=y, colors=_fills(own, color), fontsize=9)
        _pin(ax, left + start, y, f"{name}_ptr", up=True)
        label(ax, left - 0.25, y - 0.55, f"{name}_ptr + ...", align="right", fontsize=11)
    _ruler(ax, left + first, 2.15, range(block), bold=[True] * block)
    _ruler(ax, left + first, 6.55, "?" * block, bold=[True] * block)
    for lane in range(block):
        arrow(ax, (left + first + lane + 0.5, 3.75), (left + first + lane + 0.5, 6.1))
    label(ax, left + first - 0.3, 4.4, "+ 10 in each lane", align="right", fontsize=11)
    return Picture(
        figure,
        f"""Program {pid} in blocks of {block}. x_ptr has moved to x[{first}], so the lanes count 0 to
        {block - 1} from there. z_ptr has not moved: it points at z[0], and the results belong in z[{first}]
        to z[{first + block - 1}]. What has to be added to z_ptr is left open, with a question mark per
        lane.""",
    )


def backwards(pid: int = 1, block: int = 4, size: int = 14) -> Picture:
    """Draw the block of z that a program stores, and the elements of x it needs, without their lanes."""
    figure, ax = new_sheet(22.4, 9.6)
    color, left, first = PROGRAM_COLORS[pid % len(PROGRAM_COLORS)], 5.2, size - 1 - pid * block
    needed = [first - block < i <= first for i in range(size)]
    stored = [pid * block <= n < (pid + 1) * block for n in range(size)]
    x = cells(ax, [f"x[{i}]" for i in range(size)], x=left, y=3.3, colors=_fills(needed, color), fontsize=9)
    z = cells(ax, [f"z[{n}]" for n in range(size)], x=left, y=7.6, colors=_fills(stored, color), fontsize=9)
    label(ax, left - 0.25, 2.75, "x_ptr + ...", align="right", fontsize=11)
    _ruler(ax, left, 2.75, range(size), bold=needed)
    _pin(ax, left, 3.3, "x_ptr", up=True)
    _pin(ax, left + first, 3.3, "x_ptr, moved", up=True)
    label(ax, left - 0.25, 4.85, f"lanes of program {pid}", align="right", fontsize=11)
    _ruler(ax, left + first - block + 1, 4.85, "?" * (block - 1) + "0", bold=[True] * block)
    label(ax, left - 0.25, 9.1, f"lanes of program {pid}", align="right", fontsize=11)
    _ruler(ax, left + pid * block, 9.1, range(block), bold=[True] * block)
    arrow(ax, (x.foot(first)[0], 5.3), (z.foot(pid * block)[0], 7.5))
    return Picture(
        figure,
        f"""x with {size} elements between two rulers, and z below it. The upper ruler counts up from the
        start of x. The lower one has the lanes of program {pid}: lane 0 is at x[{first}], where x_ptr
        points after it has moved, with an arrow to z[{pid * block}]. Which lanes are at
        x[{first - block + 1}] to x[{first - 1}] is left open. In z, the lanes count up, from
        z[{pid * block}] to z[{pid * block + block - 1}].""",
    )


def _fills(own: list[bool], color: str) -> list[str]:
    return [color if each else PALE for each in own]


def _pin(ax: Axes, x: float, y: float, text: str, up: bool) -> None:
    """Draw a flag with a name at the left edge of a cell: what a pointer points at."""
    far = y - 1.6 if up else y + 1.6
    ax.plot([x, x], [y, far], color=INK, linewidth=2)
    width = 0.7 + 0.22 * len(text)
    box(ax, x, far - (0.8 if up else 0.0), width, 0.8, text, color=None, edge=INK, linewidth=1.4)


def _ruler(ax: Axes, x: float, y: float, numbers: Sequence, bold: Sequence[bool]) -> None:
    """Write numbers above or below the cells of a strip; those that aren't bold are faint."""
    for place, (number, strong) in enumerate(zip(numbers, bold, strict=True)):
        style = {"color": INK, "weight": "bold"} if strong else {"color": FAINT}
        label(ax, x + place + 0.5, y, str(number), fontsize=11, **style)


def last_block(case: Case = MASKED_ADD.cases[3], lanes: int = 14) -> Picture:
    """Draw the first lanes of a ragged tensor's last block: their elements, a wrong mask, the right one."""
    pid = MASKED_ADD.programs(case)[0] - 1
    offs = list(range(pid * case.BLOCK, pid * case.BLOCK + lanes))
    inside = [off < case.N for off in offs]
    left = sum(inside)
    figure, ax = new_sheet(6.0 + 1.25 * lanes + 1.3, 6.9)

    def row(y: float, title: str, values: list, colors: object, hatch: object = None) -> None:
        strip = cells(ax, values, x=6.0, y=y, width=1.25, title=title, colors=colors, hatch=hatch)
        label(ax, strip.right + 0.25, y + 0.5, "...", align="left", fontsize=11)

    row(1.3, f"lanes of program {pid}", list(range(lanes)), PROGRAM_COLORS[pid % len(PROGRAM_COLORS)])
    known = [off if i else "" for off, i in zip(offs, inside, strict=True)]
    hatch = [None if i else "////" for i in inside]
    row(2.7, "element at x_ptr + lanes", known, [PALE if i else None for i in inside], hatch)
    wrong = [lane < case.N for lane in range(lanes)]
    marked = [ORANGE if a and not b else PALE for a, b in zip(wrong, inside, strict=True)]
    row(4.1, f"lanes < N, N = {case.N}", wrong, marked)
    row(5.5, "the correct mask", inside, [PALE if i else None for i in inside])
    end = 6.0 + 1.25 * left
    ax.plot([end, end], [1.05, 6.75], color=VERMILLION, linewidth=3)
    label(ax, end + 0.2, 0.5, "x ends here", align="left", fontsize=11)
    ax.plot([6.1, 6.1, end - 0.1, end - 0.1], [1.1, 0.9, 0.9, 1.1], color=FAINT, linewidth=1.2)
    label(ax, (6.0 + end) / 2, 0.5, f"{left} elements are left", fontsize=11)
    return Picture(
        figure,
        f"""The last block of a tensor with N = {case.N} and BLOCK = {case.BLOCK}. The moved x_ptr points at
        element {offs[0]}, so lane 0 of program {pid} is element {offs[0]}, and {left} elements are left.
        lanes < N is True in every lane, so from lane {left} on wrongly. The correct mask is True in lanes
        0 to {left - 1} only: from lane {left} on, x has no elements (hatched).""",
    )
