"""Check a case of true size: run the programs at the edges of a grid on tensors too large to allocate.

Sizes, grid and offsets are those of the case. The check covers the first and the last programs, and those
where a tensor passes 2^31 elements. Their accesses must be within the tensors, no offset may wrap around,
and no lane may be undefined. Values are not compared: they would take too long to compute.
"""

import itertools
import math
import re
from collections.abc import Collection, Mapping

import numpy as np
import torch

from puzzles_lib.binding import Bound
from puzzles_lib.checker.launches import too_many_at_once
from puzzles_lib.checker.report import CaseResult, Verdict
from puzzles_lib.checker.verdicts import of_refusal, on_the_grid, uninitialized
from puzzles_lib.puzzle import MOST_PROGRAMS
from puzzles_lib.runner import Options, Pretended, Program, run
from puzzles_lib.source import Refusal

CROSSING = 2**31
_CAST_PRODUCT = re.compile(r"\([^()]*\*[^()]*\)\.to\(tl\.int64\)")
_CAST_TOO_LATE = "the cast on this line comes after the product, which has wrapped around by then"


def check_true_size(
    bound: Bound,
    seconds: float,
    said: set[str],
    integers: Mapping[str, np.ndarray] | None = None,
    narrowing: int | None = None,
) -> CaseResult:
    """Run the programs at the edges of the grid and return what they did. said: as for `runner.run`.

    integers: what inputs hold, by name, if they are not made up. narrowing: as for `Options`; then programs
        between the edges run, too.
    """
    puzzle, case = bound.puzzle, bound.case
    grid = puzzle.programs(case)
    if verdict := _too_many(grid):
        return CaseResult(str(case), verdict)
    if bound.resident and (verdict := too_many_at_once(math.prod(grid), bound.num_warps)):
        return CaseResult(str(case), verdict)
    values = integers or _filled(bound)
    tensors = {a.name: Pretended(a.shape(case.numbers), a.dtype, values.get(a.name)) for a in puzzle.tensors}
    outputs = {f"{result.name}_ptr" for result in puzzle.results}
    sizes = [tensor.numel() for tensor in tensors.values()]
    programs = edges(grid, sizes) + ([] if narrowing is None else between(grid))
    zeroed = {f"{name}_ptr" for name in (*puzzle.zeroed, *puzzle.in_place)}
    arguments = bound.filled(tensors)
    code = bound.translated()
    if isinstance(code, Refusal):
        return CaseResult(str(case), of_refusal(code))
    ran = run(
        code,
        arguments,
        grid,
        outputs,
        Options(
            zeroed=zeroed,
            said=said,
            seconds=seconds,
            only=programs,
            tensors=bound.tensors,
            starts=bound.starts,
            narrowing=narrowing,
        ),
    )
    verdict = None
    if bound.resident and ran.stop and ran.stop.kind == "deadlock":
        pass  # it waits for programs that are not among those that ran
    elif ran.undefined and (ran.stop is None or ran.stop.kind == "uninitialized"):
        verdict = uninitialized(ran.undefined, puzzle, case)
    elif ran.stop:
        message, site = on_the_grid(ran.stop.message, len(puzzle.grid(case))), ran.stop.site
        late = ran.stop.kind == "true size" and site and _CAST_PRODUCT.search(site.source)
        verdict = Verdict(ran.stop.kind, message, site, _CAST_TOO_LATE if late else "")
    elif not any(written.any() for written in ran.written.values()):
        told = f"nothing is written: none of the {len(programs)} programs at the edges of the grid stores"
        verdict = Verdict("never written", told)
    return CaseResult(str(case), verdict, programs=len(programs))


def _filled(bound: Bound) -> dict[str, np.ndarray]:
    """Return what the case fills: integers, as `Case` says."""
    puzzle, case = bound.puzzle, bound.case
    given = [a for a in puzzle.inputs if a.name in case.fill]
    seed = torch.Generator().manual_seed(0)
    return {a.name: case.fill[a.name](a.shape(case.numbers), a.dtype, seed).numpy().ravel() for a in given}


def edges(grid: Program, sizes: Collection[int]) -> list[Program]:
    """Return the programs to run: the grid's corners, the last one first, then those near element 2^31."""
    corners = itertools.product(*((count - 1, 0) for count in grid))
    chosen: list[Program] = [(x, y, z) for x, y, z in corners]
    total = math.prod(grid)
    for size in sorted({size for size in sizes if size > CROSSING}):
        for number in (CROSSING * total // size + step for step in (-1, 0, 1)):
            if 0 <= number < total:
                x, rest = divmod(number, grid[1] * grid[2])
                chosen.append((x, rest // grid[2], rest % grid[2]))
        chosen.append((min(CROSSING * grid[0] // size, grid[0] - 1), grid[1] - 1, grid[2] - 1))
    return list(dict.fromkeys(chosen))


def between(grid: Program) -> list[Program]:
    """Return programs between the edges of a grid, most of them in its last half."""
    xs, ys, zs = (sorted({count - 1, count * 7 // 8, count // 2}, reverse=True) for count in grid)
    return list(itertools.product(xs, ys, zs))


def _too_many(grid: Program) -> Verdict | None:
    """Return the verdict on a grid that no GPU can launch; None if one can."""
    for axis, (count, most) in enumerate(zip(grid, MOST_PROGRAMS, strict=True)):
        if count > most:
            text = f"the grid has {count:,} programs along axis {axis}, but a GPU launches at most {most:,}"
            return Verdict("true size", text)
    return None
