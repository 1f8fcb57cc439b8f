"""What the reader's kernels make of the three parts of a message."""

from torch import Tensor
from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch01_blocks import secret
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD, MASKED_ADD, REVERSED_ADD
from puzzles_lib.checker import SECONDS_PER_CASE, stored
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing.colours import BAD, FAINT, INK, PROGRAM_COLORS
from puzzles_lib.drawing.sheet import Picture, cells, label, new_sheet
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.session import last_check
from puzzles_lib.staleness import stale_note

NEIGHBOR = "bob-was-here"  # what is in memory after z


def first_part(kernel: object) -> Picture:
    """Draw the first part of the message, and the letters that a kernel for puzzle 1 makes of it."""
    return _letters(kernel, CONSTANT_ADD, secret.first_part())


def second_part(kernel: object) -> Picture:
    """Draw the second part of the message, and the letters that a kernel for puzzle 2 makes of it."""
    return _letters(kernel, MASKED_ADD, secret.second_part())


def third_part(kernel: object) -> Picture:
    """Draw the third part of the message, and the letters that a kernel for puzzle 2b makes of it."""
    return _letters(kernel, REVERSED_ADD, secret.third_part())


def _name(kernel: object) -> str:
    return kernel.fn.__name__ if isinstance(kernel, JITFunction) else ""


def _letters(kernel: object, puzzle: Puzzle, codes: Tensor, block: int = 8) -> Picture:
    """Draw codes as they are in memory, and the letters of z, in the color of the program that stored each.

    Elements of z that no program stores are hatched. The places after the last one, up to a whole block,
    belong to a neighbor's tensor. Those that a program stores to are marked.
    """
    size, rows = len(codes), -(-len(codes) // block)
    old = stale_note(kernel) if isinstance(kernel, JITFunction) else ""
    case = Case(fill=None, salt="", pretend=False, N=size, BLOCK=block)
    found = stored(kernel, puzzle, case, {"x": codes}, seconds=SECONDS_PER_CASE)
    told, by, why, harmed = [""] * size, [-1] * size, "", set[int]()
    if old:
        why = "Run the cell with your kernel again."
    elif isinstance(found, Report):
        why = "No letters yet: read the report of your kernel."
    else:
        ran, fault = found
        by = ran.writers["z"].flatten().tolist()
        letters = secret.read(ran.outputs["z"])
        told = [letter if program >= 0 else "" for letter, program in zip(letters, by, strict=True)]
        harmed = {int(at) for each in ran.accesses if each.kind == "store" and each.argument == "z"
                  for at in each.elements[each.bad]}  # fmt: skip
        if harmed:
            verb = "is" if len(harmed) == 1 else "are"
            whose = "of the neighbor's letters" if size % block else "places past the end of z"
            if len(harmed) == 1:
                whose = whose.replace("places", "place")
            why = f"But {len(harmed)} {whose} {verb} overwritten."
        elif missing := by.count(-1):
            why = f"{missing} of {size} letters {'is' if missing == 1 else 'are'} missing."
        elif fault:
            why = "But the run isn't clean: read the report of your kernel."
        elif (last := last_check(puzzle)) and last.kernel == _name(kernel) and not last.report.ok:
            why = "But your kernel fails in other cases: read its report."
    figure, ax = new_sheet(22.4, 1.3 * rows + 3.5)
    label(ax, 1.6, 0.45, "x, as it arrived", align="left", fontsize=11)
    label(ax, 13.4, 0.45, "z, as letters: a color per program", align="left", fontsize=11)
    numbers = [int(code) for code in codes.tolist()]
    fills = [PROGRAM_COLORS[program % len(PROGRAM_COLORS)] if program >= 0 else None for program in by]
    hatch = [None if program >= 0 else "////" for program in by]
    for row in range(rows):
        y, part = 1.1 + 1.3 * row, slice(row * block, (row + 1) * block)
        cells(ax, numbers[part], x=1.6, y=y, title=f"x[{row * block}]")
        label(ax, 13.15, y + 0.5, f"z[{row * block}]", align="right", fontsize=11)
        cells(ax, told[part], x=13.4, y=y, colors=fills[part], hatch=hatch[part], fontsize=13)
    if rest := -size % block:
        x, y = 13.4 + block - rest, 1.1 + 1.3 * (rows - 1)
        past = [size + at in harmed for at in range(rest)]
        theirs = ["?" if hit else letter for hit, letter in zip(past, NEIGHBOR, strict=False)]
        cells(ax, theirs, x=x, y=y, colors=[BAD if hit else None for hit in past], edge=INK, fontsize=13)
        label(ax, 13.4 + block, y + 1.4, "the neighbor's letters", align="right", fontsize=11, color=FAINT)
    read = "".join(letter or "_" for letter in told)
    foot = [f"“{read}”"] * any(told) + [why] * bool(why)
    for number, line in enumerate(foot):
        size_of_text = 16 if line.startswith("“") else 11
        label(ax, 1.6, 1.3 * rows + 2.1 + 0.9 * number, line, align="left", fontsize=size_of_text)
    return Picture(
        figure, f"{size} codes in blocks of {block}, and what the programs store: {' '.join(foot)}"
    )
