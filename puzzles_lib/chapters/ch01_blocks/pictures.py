"""Pictures of chapter 01: a pointer and the offsets of a block, and the mask of the last one."""

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.drawing.colours import FAINT, ORANGE, PALE, PROGRAM_COLORS, VERMILLION
from puzzles_lib.drawing.sheet import Cells, Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.puzzle import Case


def pointer(pid: int = 1, block: int = 8, start: int = 4096) -> Picture:
    """Draw two ways to the addresses of a block: from the start of a tensor, and from a moved pointer."""
    figure, ax = new_sheet(22.4, 10.9)
    color = PROGRAM_COLORS[pid % len(PROGRAM_COLORS)]
    first, left, count = pid * block, 5.6, 2 * block
    moved, at = start + 4 * first, left + first
    fills = [color if first <= i < first + block else PALE for i in range(count)]
    bytes_ = [str(start + 4 * i) for i in range(count)]
    memory = cells(ax, range(count), x=left, y=4.3, colors=fills, index=bytes_, title="elements of x")
    label(ax, left - 0.25, 3.95, "address in bytes", align="right", fontsize=9, color=FAINT)

    def way(y: float, title: str, address: int, numbers: range) -> Cells:
        label(ax, left - 0.25, y + 0.5, title, align="right", fontsize=11)
        box(ax, left, y, 3.4, 1.0, f"x_ptr = {address}", color=PALE)
        label(ax, left + 5.2, y + 0.5, "+", fontsize=14)
        return cells(ax, numbers, x=at, y=y, colors=color)

    offs = way(0.4, "x_ptr + offs", start, range(first, first + block))
    lanes = way(7.6, "moved: x_ptr + lanes", moved, range(block))
    for lane in range(block):
        x, bottom = memory.foot(first + lane)
        arrow(ax, offs.foot(lane), (x, 3.6))
        arrow(ax, lanes.top(lane), (x, bottom + 0.1))
    arrow(ax, (left + 0.5, 1.4), (left + 0.5, 3.6), color=FAINT)
    arrow(ax, (left + 3.0, 7.6), (at + 0.3, 5.4), color=FAINT)
    label(ax, left, 6.4, "x_ptr += pid * BLOCK", align="left")
    words = f"BLOCK = {block}, pid = {pid}. A float32 takes 4 bytes, so Triton computes "
    label(ax, left, 9.3, f"{words}{start} + {first} × 4 = {moved}.", align="left", color=FAINT)
    words = "The arrow from x_ptr: what it points at. The arrow from a lane: the address in that lane."
    label(ax, left, 9.9, words, align="left", color=FAINT)
    words = "Only x_ptr has moved. z_ptr still points at element 0 of z."
    label(ax, left, 10.5, words, align="left", color=FAINT)
    return Picture(
        figure,
        f"""Blocks of {block} elements of 4 bytes. x_ptr is the address {start}, the first byte of x. Program
        {pid} adds its offsets {first} to {first + block - 1}, and gets the addresses {moved} to
        {moved + 4 * (block - 1)} of x[{first}] to x[{first + block - 1}]. Below, x_ptr has moved to {moved}:
        the numbers of the lanes, 0 to {block - 1}, lead to the same elements. z_ptr hasn't moved.""",
    )


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
