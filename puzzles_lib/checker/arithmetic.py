"""Values that are right line by line, and wrong as the compiler computes them.

A run as compiled is made only where the first one saw a sum that may come out otherwise. What it says is
believed only where the compiled kernel has that step: a compilation, of those that would fail.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

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

    differs: one had to be run as compiled too: those that follow are run so first. in_tf32: lines whose sums
    are dots. sure: lines that the compiled kernel has been seen to compute otherwise.
    """

    differs: bool = False
    in_tf32: dict[Site, None] = field(default_factory=dict)
    sure: set[Site] = field(default_factory=set)

    def notes(self) -> list[str]:
        """What is to be said of a kernel that is right nevertheless."""
        return [verdicts.sums_in_tf32(self.in_tf32)] if self.in_tf32 and not self.sure else []


def may_differ(seen: Arithmetic, expected: Mapping[str, Expected]) -> bool:
    """Whether results may be others as compiled.

    A rounding more or less is within any tolerance, so it must tip an exact result, or be all that is left.
    """
    exact = any(each.tolerance is None for each in expected.values())
    return seen.cancels or bool(seen.in_tf32) or (seen.products and exact)


def of_compiled(
    bound: Bound,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
    known: Known,
) -> Verdict | None:
    """What is wrong with a run as compiled, where the compiler does compute so."""
    verdict = verdicts.judge(bound.puzzle, bound.case, inputs, expected, ran)
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
    """The first line that is compiled so; None where there is none, or no telling."""
    found = steps(bound.kernel, bound.arguments, _TARGET, bound.num_warps)
    if isinstance(found, Refusal):
        return None
    dots = (site for site in seen.in_tf32 if found.has(found.in_tf32, site))
    fused = sorted(seen.fused, key=lambda step: not step.cancels)
    sums = (step.sum for step in fused if found.has(found.fused, step.sum))
    return next(dots, None) or next(sums, None)
