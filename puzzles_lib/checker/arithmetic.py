"""Find values that are correct line by line, but wrong as the compiler computes them.

A second run, with the compiler's arithmetic, is made only if the first one saw a sum that may differ. Its
verdict counts only if the compiled kernel has that step, so a kernel that would fail is compiled to find out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from puzzles_lib.binding import Bound
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.expected import Expected
from puzzles_lib.checker.report import Verdict
from puzzles_lib.compiler import find_target, steps
from puzzles_lib.runner import Arithmetic, Run
from puzzles_lib.source import Refusal, Site

_TARGET = find_target("sm_90")


@dataclass
class Known:
    """What the cases of a check have shown so far.

    differs: whether a case needed a run with the compiler's arithmetic. Later cases then begin with one.
    in_tf32: lines whose sums become dots that can lose bits. sure: lines that the compiled kernel is known to
    compute differently.
    """

    differs: bool = False
    in_tf32: dict[Site, None] = field(default_factory=dict)
    sure: set[Site] = field(default_factory=set)

    def notes(self) -> list[str]:
        """Return notes on a kernel that is correct anyway."""
        return [verdicts.sums_in_tf32(self.in_tf32)] if self.in_tf32 and not self.sure else []


def may_differ(seen: Arithmetic, expected: Mapping[str, Expected]) -> bool:
    """Return whether the compiler's arithmetic may change the results beyond their tolerance.

    One rounding more or less is within any tolerance. It matters only if a result is exact, or if everything
    else cancels.
    """
    exact = any(each.tolerance is None for each in expected.values())
    return seen.cancels or bool(seen.in_tf32) or (seen.products and exact)


def of_compiled(bound: Bound, verdict: Verdict | None, ran: Run, known: Known) -> Verdict | None:
    """Return what is wrong with a run in the compiler's arithmetic, if the compiled kernel does so.

    verdict: the verdict on that run.
    """
    if verdict is None:
        return None
    seen = ran.arithmetic
    why = dict.fromkeys(seen.in_tf32, verdicts.IN_TF32)
    for step in sorted(seen.fused, key=lambda step: not step.cancels):
        why.setdefault(step.sum, verdicts.of_fused(step))
    site = next((site for site in why if site in known.sure), None) or _confirmed(bound, seen)
    if site is None:
        return None
    known.sure.add(site)
    return verdicts.as_compiled(verdict, site, why[site])


def _confirmed(bound: Bound, seen: Arithmetic) -> Site | None:
    """Return the first line that the compiler computes in one step; None if no line is known to be one."""
    found = steps(bound.kernel, bound.arguments, _TARGET, bound.num_warps)
    if isinstance(found, Refusal):
        return None
    dots = (site for site in seen.in_tf32 if found.has(found.in_tf32, site))
    fused = sorted(seen.fused, key=lambda step: not step.cancels)
    sums = (step.sum for step in fused if found.has(found.fused, step.sum))
    return next(dots, None) or next(sums, None)
