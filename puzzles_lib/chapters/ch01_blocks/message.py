"""What the reader's kernels make of the two parts of a message."""

from torch import Tensor
from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch01_blocks import secret
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD, REVERSED_ADD
from puzzles_lib.checker import SECONDS_PER_CASE, outputs
from puzzles_lib.drawing.colours import PROGRAM_COLORS
from puzzles_lib.drawing.sheet import Picture, cells, label, new_sheet
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.staleness import stale_note


def first_part(kernel: object) -> Picture:
    """Draw the first part of the message, and the letters that a kernel for puzzle 1 makes of it."""
    return _letters(kernel, CONSTANT_ADD, secret.first_part())


def second_part(kernel: object) -> Picture:
    """Draw the second part of the message, and the letters that a kernel for puzzle 2b makes of it."""
    return _letters(kernel, REVERSED_ADD, secret.second_part())


def _letters(kernel: object, puzzle: Puzzle, codes: Tensor, block: int = 8) -> Picture:
    """Draw codes as they are in memory, and the letters of each program's results, block by block."""
    old = stale_note(kernel) if isinstance(kernel, JITFunction) else ""
    case = Case(fill=None, salt="", pretend=False, N=len(codes), BLOCK=block)
    found = outputs(kernel, puzzle, case, {"x": codes}, seconds=SECONDS_PER_CASE)
    told = secret.read(found["z"]) if isinstance(found, dict) and not old else ""
    rows = -(-len(codes) // block)
    figure, ax = new_sheet(23.4, 1.3 * rows + 1.5)
    label(ax, 2.9, 0.4, "x in memory", align="left", fontsize=11)
    label(ax, 15.2, 0.4, "z, as letters", align="left", fontsize=11)
    numbers = [int(code) for code in codes.tolist()]
    for row in range(rows):
        y, part = 1.0 + 1.3 * row, slice(row * block, (row + 1) * block)
        cells(ax, numbers[part], x=2.9, y=y, title=f"x[{row * block}]")
        letters = list(told[part]) or [""] * len(numbers[part])
        color = PROGRAM_COLORS[row % len(PROGRAM_COLORS)]
        cells(ax, letters, x=15.2, y=y, title=f"program {row}", colors=color if told else None)
    foot = f"“{told}”" if told else "No letters yet: read the report of your kernel."
    label(ax, 2.9, 1.3 * rows + 1.1, foot, align="left", fontsize=11)
    return Picture(figure, f"{len(numbers)} codes in blocks of {block}, and what the programs store: {foot}")
