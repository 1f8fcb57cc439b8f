"""A case of true size: what a kernel does at the edges of a grid, on tensors that nobody could hold.

Sizes, grid and offsets are those of the case. Judged is where memory is touched, at the first and the
last programs and where an argument passes 2^31 elements: inside of each tensor, with no offset that has
wrapped around, no lane undefined. Values are not compared: at that size nobody can compute them.
"""

import itertools
import math
from collections.abc import Collection

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import CaseResult, Verdict
from puzzles_lib.checker.verdicts import of_refusal
from puzzles_lib.puzzle import MOST_PROGRAMS
from puzzles_lib.runner import Pretended, Program, run
from puzzles_lib.source import Refusal

CROSSING = 2**31


def check_true_size(bound: Bound, seconds: float, said: set[str]) -> CaseResult:
    """Run the programs at the edges, and say what does not hold. said: as for `runner.run`."""
    puzzle, case = bound.puzzle, bound.case
    grid = puzzle.programs(case)
    if verdict := _too_many(grid):
        return CaseResult(str(case), verdict)
    tensors = {a.name: Pretended(a.shape(case.numbers), a.dtype) for a in puzzle.inputs + puzzle.results}
    outputs = {f"{result.name}_ptr" for result in puzzle.results}
    sizes = [tensor.numel() for tensor in tensors.values()]
    programs = edges(grid, sizes)
    zeroed = {f"{name}_ptr" for name in puzzle.zeroed}
    arguments = bound.filled(tensors)
    code = bound.translated()
    if isinstance(code, Refusal):
        return CaseResult(str(case), of_refusal(code))
    ran = run(code, arguments, grid, outputs, zeroed=zeroed, said=said, seconds=seconds, only=programs)
    verdict = None
    if ran.stop:
        verdict = Verdict(ran.stop.kind, ran.stop.message, ran.stop.site)
    elif ran.undefined:
        verdict = Verdict("uninitialised", str(ran.undefined), ran.undefined.site)
    elif not any(written.any() for written in ran.written.values()):
        told = f"never written: of {len(programs)} programs at the edges of the grid none stores anything"
        verdict = Verdict("never written", told)
    return CaseResult(str(case), verdict, programs=len(programs))


def edges(grid: Program, sizes: Collection[int]) -> list[Program]:
    """The programs to run: at the corners, the last one first; then where element 2^31 may belong."""
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


def _too_many(grid: Program) -> Verdict | None:
    """A grid that no GPU launches."""
    for axis, (count, most) in enumerate(zip(grid, MOST_PROGRAMS, strict=True)):
        if count > most:
            text = f"the grid has {count:,} programs along axis {axis}, a GPU launches {most:,} there at most"
            return Verdict("true size", text)
    return None
