"""Pictures of chapter 01: a pointer and the offsets of a block, and the mask of the last one."""

from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.drawing.colours import FAINT, PALE, PROGRAM_COLORS, VERMILLION
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_sheet
from puzzles_lib.puzzle import Case


def pointer(pid: int = 1, block: int = 4, start: int = 4096) -> Picture:
    """Draw a pointer plus offsets: an address for each lane, in bytes."""
    figure, ax = new_sheet(20.6, 8.8)
    color = PROGRAM_COLORS[pid % len(PROGRAM_COLORS)]
    first, left, count = pid * block, 4.6, 3 * block
    fills = [color if first <= i < first + block else PALE for i in range(count)]
    bytes_ = [str(start + 4 * i) for i in range(count)]
    memory = cells(
        ax, [f"x[{i}]" for i in range(count)], x=left, y=6.2, width=1.3, colors=fills, index=bytes_,
        title="memory",
    )  # fmt: skip
    label(ax, left - 0.25, 5.85, "address in bytes", align="right", fontsize=9, color=FAINT)
    box(ax, left, 0.6, 3.2, 1.0, f"x_ptr = {start}", color=PALE)
    arrow(ax, (left + 0.65, 1.6), (left + 0.65, 5.5), color=FAINT)
    label(ax, left + 0.2, 3.4, "the first byte of x", align="right", fontsize=9, color=FAINT)
    label(ax, left + 4.1, 1.1, "+", fontsize=14)
    at = left + 1.3 * first
    offs = cells(ax, range(first, first + block), x=at, y=0.6, width=1.3, colors=color)
    label(ax, offs.right + 0.3, 1.1, f"offs of program {pid}, in elements", align="left")
    for lane in range(block):
        arrow(ax, offs.foot(lane), (memory.top(first + lane)[0], 5.5))
    words = f"lane 0 gets x_ptr + {first}, which is {start} + {first} × 4 bytes = {start + 4 * first}"
    label(ax, left, 7.75, words, align="left")
    words = "(a float32 takes 4 bytes; Triton multiplies by them for you)"
    label(ax, left, 8.4, words, align="left", color=FAINT)
    return Picture(
        figure,
        f"""x_ptr is the address {start}, the first byte of x. Program {pid} adds its offsets {first} to
        {first + block - 1}, which count elements of 4 bytes, and gets the addresses {start + 4 * first} to
        {start + 4 * (first + block - 1)} of x[{first}] to x[{first + block - 1}].""",
    )


def last_block(case: Case = MASKED_ADD.cases[3], lanes: int = 14) -> Picture:
    """Draw the first lanes of a ragged tensor's last block, and where the tensor ends."""
    pid = MASKED_ADD.programs(case)[0] - 1
    offs = list(range(pid * case.BLOCK, pid * case.BLOCK + lanes))
    inside = [off < case.N for off in offs]
    figure, ax = new_sheet(5.2 + 1.25 * lanes + 1.3, 6.7)

    def row(y: float, title: str, values: list, colors: object, hatch: object = None) -> None:
        strip = cells(ax, values, x=5.2, y=y, width=1.25, title=title, colors=colors, hatch=hatch)
        label(ax, strip.right + 0.25, y + 0.5, "...", align="left", fontsize=11)

    row(1.1, f"lanes of program {pid}", list(range(lanes)), PROGRAM_COLORS[pid % len(PROGRAM_COLORS)])
    row(2.5, "+ pid * BLOCK", offs, PROGRAM_COLORS[pid % len(PROGRAM_COLORS)])
    row(5.3, "mask", inside, [PALE if i else None for i in inside])
    known = [off if i else "" for off, i in zip(offs, inside, strict=True)]
    hatch = [None if i else "////" for i in inside]
    row(3.9, "elements of x", known, [PALE if i else None for i in inside], hatch)
    end = 5.2 + 1.25 * sum(inside)
    ax.plot([end, end], [0.85, 6.55], color=VERMILLION, linewidth=3)
    label(ax, end, 0.5, "x ends here", fontsize=11)
    return Picture(
        figure,
        f"""The last block of a tensor with N = {case.N} and BLOCK = {case.BLOCK}. Lane 0 of program {pid} is
        element {pid * case.BLOCK}. Up to element {case.N - 1} the mask is True; from {case.N} on it is
        False, where x has no elements (hatched).""",
    )
