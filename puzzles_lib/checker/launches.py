"""Check that a GPU can launch what was compiled: a program's shared memory must fit.

If the front end's opinion leaves that open (`compiler.shared`), the kernel is compiled to find out, which
takes about 50 ms. If a goal of the puzzle compiles the same launch anyway, `checker.machine` checks it.
"""

import math
from collections.abc import Mapping

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.compiler import Opinion, Target, find_target, shared_memory
from puzzles_lib.goal import Goal
from puzzles_lib.source import Refusal, Site

_TARGET = find_target("sm_90")
_GPU = "an H100 or H200"
_CURE = (
    "shared memory contains the blocks of tl.dot and those that a loop loads in advance: "
    "use smaller blocks or fewer stages"
)


class Launches:
    """The launches of one check."""

    def __init__(self) -> None:
        self._known: dict[str, str | Refusal] = {}

    def refused(self, bound: Bound, opinion: Opinion, case: int) -> Verdict | None:
        """Return why a GPU could not launch this case; None if it could, or if that is not known.

        case: the number of the case.
        """
        if verdict := too_many_threads(bound.options):
            return verdict
        if bound.resident:
            programs = math.prod(bound.puzzle.programs(bound.case))
            if verdict := too_many_at_once(programs, bound.num_warps):
                return verdict
        if opinion.large is None or _seen_later(bound, case):
            return None
        asked = shared_memory(bound.kernel, bound.arguments, _TARGET, self._known, **bound.options)
        stages = bound.options.get("num_stages")
        cure = _CURE + f"; num_stages is {stages}" * bool(stages)
        return too_much(asked, _TARGET, opinion.large, cure) if asked is not None else None


MOST_WARPS = 32  # 1024 threads


def too_many_threads(options: Mapping[str, object]) -> Verdict | None:
    """Return the verdict on a launch with more warps than a program can have; None if it has no more."""
    warps = options.get("num_warps", 4)
    if type(warps) is not int or warps <= MOST_WARPS:
        return None
    text = f"a launch would fail: {warps} warps are {32 * warps:,} threads, but a program has at most 1,024"
    return Verdict("launch", text)


MOST_AT_ONCE = 132 * 32  # programs on an H100 or H200: 32 on each of its multiprocessors
MOST_WARPS_AT_ONCE = 132 * 64


def too_many_at_once(programs: int, warps: int) -> Verdict | None:
    """Return the verdict on a resident grid that no H100 can hold at once; None if the grid may fit.

    Registers and shared memory may leave room for fewer programs still.
    """
    most = min(MOST_AT_ONCE, MOST_WARPS_AT_ONCE // max(1, warps))
    if programs <= most:
        return None
    each = f"of {warps} warps" if warps > 1 else "of 1 warp"
    text = f"{programs:,} programs {each} can't run at the same time: {_GPU} has room for {most:,}"
    cure = "launch fewer programs, and let each walk over several blocks"
    return Verdict("launch", text, diagnosis=cure)


def too_much(asked: int, target: Target, site: Site | None = None, cure: str = _CURE) -> Verdict | None:
    """Return the verdict on more bytes of shared memory than the target has for a program; else None."""
    limit = target.shared_limit
    if limit is None or asked <= limit:
        return None
    asked_for = f"a program needs {-(-asked // 1024):,} KB of shared memory"
    gpu = _GPU if target == _TARGET else target.name
    return Verdict(
        "launch", f"a launch would fail: {asked_for}, but {gpu} has {limit // 1024} KB", site, cure
    )


def _seen_later(bound: Bound, case: int) -> bool:
    goals = (goal for goal in bound.puzzle.machine if isinstance(goal, Goal) and case in goal.cases)
    return not bound.options and any(find_target(g.target) == _TARGET and g.num_warps == 4 for g in goals)
