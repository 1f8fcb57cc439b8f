"""Hints to the compiler that are not true, where a load or store believes them.

A guarded run sees which hints are not true of the values; what the compiler does with one, its PTX says. It
is asked only where there is such a hint: a compilation, some 0.4 s, whose result is kept on disk. NVIDIA's
target alone is asked.
"""

from collections.abc import Callable

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.verdicts import false_hint
from puzzles_lib.compiler import find_target, taken_at_once
from puzzles_lib.runner import Run
from puzzles_lib.source import Refusal

_TARGET = find_target("sm_90")


def of_hints(bound: Bound, ran: Run, run: Callable[..., Run]) -> Verdict | None:
    """The harm that a run's false hints do on a GPU; None where they do none.

    ran: a run of the bound kernel. run: does it once more, with these options.
    Where the kernel does not compile to PTX, the hint is a fault by itself.
    """
    if not ran.promises:
        return None
    found = taken_at_once(bound.kernel, bound.arguments, _TARGET, bound.num_warps)
    if isinstance(found, Refusal):
        return false_hint(ran.promises, None)
    harm = run(at_once=found, quiet=True).harm
    return false_hint(ran.promises, harm) if harm else None
