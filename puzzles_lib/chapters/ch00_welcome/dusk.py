"""What the reader's kernels make of two pictures: one at dusk, and one that's hidden in noise."""

import torch
from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch00_welcome import pictures
from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE, PAIR_DIFFERENCE
from puzzles_lib.checker import SECONDS_PER_CASE, stored
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing.sheet import Picture
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.staleness import stale_note


def brightened(kernel: object) -> Picture:
    """Draw the picture at dusk, and what a kernel for the first puzzle makes of it in 12 programs."""
    x = pictures.dusk()
    return _before_and_after(kernel, DOUBLE, "dusk", x, x.shape)


def revealed(kernel: object) -> Picture:
    """Draw noise, and what a kernel for puzzle 0b finds in it."""
    x = pictures.noise()
    return _before_and_after(kernel, PAIR_DIFFERENCE, "x", x, (x.shape[0], x.shape[1] // 2), contrast=True)


def _before_and_after(
    kernel: object,
    puzzle: Puzzle,
    name: str,
    x: torch.Tensor,
    shape: tuple[int, ...],
    contrast: bool = False,
) -> Picture:
    """Draw a picture and a kernel's result. What the kernel doesn't store is NaN, which is hatched.

    contrast: whether to draw the result large, and its largest number in white if there are numbers below 0.
    """
    old = stale_note(kernel) if isinstance(kernel, JITFunction) else ""
    size = shape[0] * shape[1]
    case = Case(fill=None, salt="", pretend=False, N=size, BLOCK=min(pictures.BLOCK, size))
    found = stored(kernel, puzzle, case, {"x": x.flatten()}, seconds=SECONDS_PER_CASE)
    if old or isinstance(found, Report):
        why = "run the cell above again" if old else "read the report above"
        return pictures.gallery(**{name: x, f"yours: no picture, {why}": torch.full(shape, torch.nan)})
    ran, fault = found
    own = "yours, but read its report" if fault else "yours"
    written = torch.as_tensor(ran.written["z"]).view(size)
    z = torch.where(written, ran.outputs["z"].view(size), torch.nan)
    if not contrast:
        return pictures.gallery(**{name: x, own: z.view(shape)})
    most = float(z.nan_to_num().abs().max()) or 1.0
    note = f"\N{MINUS SIGN}{most:.2g} is black, 0 gray, {most:.2g} white" if bool((z < 0).any()) else ""
    return pictures.hung({name: (x, ""), own: (z.view(shape), note)}, unit=pictures.PIXEL, most=most)
