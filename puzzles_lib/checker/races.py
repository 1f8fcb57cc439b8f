"""Races within a program: two of its threads meet in an element, and nothing orders them.

A guarded run sees which lines and lanes meet; which threads these are, the compiler says. It is asked only
where some meet, since that costs a compilation: down to the layouts, some 50 ms for each target. So the
second target is asked for one case of a check.
"""

from collections.abc import Callable

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.verdicts import race_within
from puzzles_lib.compiler import Target, find_target, held_by
from puzzles_lib.runner import Run
from puzzles_lib.source import Refusal

_TARGETS = tuple(map(find_target, ("sm_90", "gfx942")))  # 32 and 64 threads a warp


class Threads:
    """Looks for races within the programs of one kernel, for one check."""

    def __init__(self) -> None:
        self._known: dict[str, str | Refusal] = {}
        self._targets = _TARGETS

    def race(self, bound: Bound, run: Callable[..., Run]) -> Verdict | None:
        """The first race of a run in which accesses met; None where these were one thread's each time."""
        num_warps = bound.num_warps
        targets, self._targets = self._targets, _TARGETS[:1]
        for target in targets:
            ran = self._ran(bound, run, target, num_warps)
            if ran and ran.within:
                alone = self._ran(bound, run, target, 1)
                safe = num_warps > 1 and alone is not None and alone.within is None
                return race_within(
                    bound.puzzle, bound.case, ran.within, target, num_warps, safe_with_one=safe
                )
        return None

    def _ran(self, bound: Bound, run: Callable[..., Run], target: Target, num_warps: int) -> Run | None:
        """A run that knows the threads; None where the kernel does not compile for AMD's target."""
        holders = held_by(bound.kernel, bound.arguments, target, num_warps, self._known)
        if isinstance(holders, Refusal):
            if not target.is_nvidia:
                return None
            holders = _unknown
        return run(held_by=holders, quiet=True)


def _unknown(*access: object) -> None:
    """No thread is known: each lane of a block is taken for another."""
