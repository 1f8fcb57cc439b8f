"""Find false hints to the compiler that a load or store relies on.

A guarded run shows which hints are false for the values, and the PTX shows what the compiler does with
them. Only a kernel with such a hint is compiled, for NVIDIA's target alone: that takes about 0.4 s, and the
result is kept on disk.
"""

from collections.abc import Callable

from puzzles_lib.binding import Bound
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.verdicts import false_hint
from puzzles_lib.compiler import find_target, taken_at_once
from puzzles_lib.runner import Options, Run
from puzzles_lib.source import Refusal

_TARGET = find_target("sm_90")


def of_hints(bound: Bound, ran: Run, run: Callable[[Options], Run]) -> Verdict | None:
    """Return the verdict on the harm that a run's false hints do on a GPU; None if they do none.

    ran: a run of the bound kernel. run: repeats that run with other options.
    If the kernel does not compile to PTX, the hint is a fault by itself.
    """
    if not ran.promises:
        return None
    found = taken_at_once(bound.kernel, bound.arguments, _TARGET, bound.num_warps)
    if isinstance(found, Refusal):
        return false_hint(ran.promises, None)
    harm = run(Options(at_once=found, quiet=True)).harm
    return false_hint(ran.promises, harm) if harm else None
