"""Find races within a program: two of its threads access one element, and nothing orders them.

A guarded run shows which lines and lanes access the same element, and the compiler says which threads own
these lanes. It is asked only if there are such lanes, because a compilation down to the layouts takes about
50 ms per target. The second target is asked about only one case of a check.
"""

from collections.abc import Callable

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.verdicts import race_within
from puzzles_lib.compiler import Target, find_target, held_by
from puzzles_lib.runner import Options, Run
from puzzles_lib.source import Refusal

_TARGETS = tuple(map(find_target, ("sm_90", "gfx942")))  # 32 and 64 threads per warp


class Threads:
    """The races within the programs of one kernel, for one check."""

    def __init__(self, targets: tuple[Target, ...] = _TARGETS) -> None:
        self._known: dict[str, str | Refusal] = {}
        self.notes: list[str] = []
        self._targets = targets

    def race(self, bound: Bound, run: Callable[[Options], Run]) -> Verdict | None:
        """Return the first race of a run; None if one thread made all accesses to each shared element."""
        num_warps = bound.num_warps
        targets, self._targets = self._targets, self._targets[:1]
        for target in targets:
            ran = self._ran(bound, run, target, num_warps)
            if ran and ran.within:
                safe = num_warps > 1 and all(self._is_safe_with_one(bound, run, each) for each in _TARGETS)
                return race_within(
                    bound.puzzle, bound.case, ran.within, target, num_warps, safe_with_one=safe
                )
        return None

    def _is_safe_with_one(self, bound: Bound, run: Callable[[Options], Run], target: Target) -> bool:
        alone = self._ran(bound, run, target, 1)
        return alone is None or alone.within is None

    def _ran(self, bound: Bound, run: Callable[[Options], Run], target: Target, num_warps: int) -> Run | None:
        """Return a run that knows the threads; None if the kernel does not compile for AMD's target."""
        holders = held_by(bound.kernel, bound.arguments, target, num_warps, self._known)
        if isinstance(holders, Refusal):
            if not target.is_nvidia:
                return None
            self._note(bound)
            holders = _unknown
        return run(Options(held_by=holders, quiet=True))

    def _note(self, bound: Bound) -> None:
        """Note that the compiler fails although the front end accepts the kernel."""
        stopped = [known for known in self._known.values() if isinstance(known, Refusal)]
        if stopped and not self.notes:
            text = f"Triton's compiler fails for {bound.case}: {stopped[0]}"
            self.notes.append(
                f"{text}. A launch would fail, too; puzzles_lib.stages shows how far the compiler gets"
            )


def _unknown(*access: object) -> None:
    """Know no thread, so that each lane of a block counts as another thread."""
