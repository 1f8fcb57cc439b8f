"""Whether a GPU launches what has been compiled: a program's shared memory must fit.

The front end's opinion says where it may not (`compiler.shared`): then the compiler is asked, some 50 ms.
Where a goal of the puzzle has the same launch compiled anyway, it is seen there (`checker.machine`).
"""

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.compiler import Opinion, Target, find_target, shared_memory
from puzzles_lib.goal import Goal
from puzzles_lib.source import Refusal, Site

_TARGET = find_target("sm_90")
_GPU = "an H100 or H200"
_CURE = "tl.dot's blocks lie there, and loads that run ahead in a loop: take smaller blocks, or fewer stages"


class Launches:
    """Looks at the launches of one check."""

    def __init__(self) -> None:
        self._known: dict[str, str | Refusal] = {}

    def refused(self, bound: Bound, opinion: Opinion, case: int) -> Verdict | None:
        """Why a GPU would not launch it; None where it would, or where nobody knows.

        case: its number.
        """
        if opinion.large is None or _seen_later(bound, case):
            return None
        asked = shared_memory(bound.kernel, bound.arguments, _TARGET, self._known, **bound.options)
        stages = bound.options.get("num_stages")
        cure = _CURE + f"; num_stages is {stages}" * bool(stages)
        return too_much(asked, _TARGET, opinion.large, cure) if asked is not None else None


def too_much(asked: int, target: Target, site: Site | None = None, cure: str = _CURE) -> Verdict | None:
    """What is said of so many bytes of shared memory, where a program of the target has fewer."""
    limit = target.shared_limit
    if limit is None or asked <= limit:
        return None
    asked_for = f"a program asks for {-(-asked // 1024):,} KB of shared memory"
    gpu = _GPU if target == _TARGET else target.name
    return Verdict("launch", f"a launch would fail: {asked_for}, {gpu} has {limit // 1024}", site, cure)


def _seen_later(bound: Bound, case: int) -> bool:
    goals = (goal for goal in bound.puzzle.machine if isinstance(goal, Goal) and case in goal.cases)
    return not bound.options and any(find_target(g.target) == _TARGET and g.num_warps == 4 for g in goals)
