"""From a run to a verdict: what is wrong with it, the most basic fault first, in words."""

from collections.abc import Mapping

import torch

from puzzles_lib.checker.compare import Expected, compare
from puzzles_lib.checker.report import Verdict
from puzzles_lib.interpreter import Conflict, Run, Source
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.source import Refusal
from puzzles_lib.stubs import HOLE

STILL_OPEN = Verdict("open", "still open: your lines are missing", diagnosis=f"write them under `{HOLE}`")


def of_refusal(refusal: Refusal) -> Verdict:
    """Why the kernel is not run at all."""
    if refusal.kind == "signature":
        return Verdict("signature", refusal.message, refusal.site, refusal.advice)
    text = f"the compiler refuses this kernel: {refusal.message}"
    return Verdict(refusal.kind, text, refusal.site, refusal.advice)


def out_of_time(seconds: float) -> Verdict:
    """All runs together take too long, though each of them ends."""
    text = f"time limit: the runs of this check have taken {seconds:g} s of CPU time in all"
    return Verdict("time limit", text, diagnosis="check(kernel, PUZZLE, seconds=...) allows more")


def judge(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
) -> Verdict | None:
    """The most basic fault of a run."""
    verdict = misconduct(puzzle, case, ran)
    if verdict:
        return verdict
    for result in puzzle.results:
        mismatch = compare(expected[result.name], ran.outputs[result.name], puzzle, case, inputs)
        if mismatch:
            return Verdict("values", mismatch.message, diagnosis=mismatch.diagnosis)
    for name, most in (puzzle.most_loads or {}).items():
        loads, allowed = ran.loads.get(name, 0), most(case)
        if loads > allowed:
            text = f"too many loads of {name}_ptr: {loads} elements, {allowed} are enough"
            return Verdict(
                "loads", text, diagnosis=f"keep what you need of {name} instead of reading it again"
            )
    return None


def misconduct(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """The most basic fault of a run that shows without looking at any value."""
    if ran.stop and ran.stop.kind != "uninitialised":
        return Verdict(ran.stop.kind, ran.stop.message, ran.stop.site)
    if ran.undefined and ran.undefined.kind != "early":
        return _uninitialised(ran.undefined)
    for result in puzzle.results:
        verdict = _never_written(result, case, ran)
        if verdict:
            return verdict
    if ran.conflict:
        return _race(puzzle, case, ran.conflict)
    for name, site in ran.changed.items():
        return Verdict("input changed", f"{name} was changed; a kernel may only write its outputs", site)
    return _uninitialised(ran.undefined) if ran.undefined else None


def depends_on_order(verdict: Verdict) -> Verdict:
    """A fault that shows only when the programs run in reverse order."""
    text = f"race: with the programs run in reverse order the result differs ({verdict.message})"
    return Verdict("race", text, verdict.site)


def _uninitialised(source: Source) -> Verdict:
    """The results depend on what a GPU leaves undefined."""
    diagnosis = ""
    if source.kind == "lanes":
        cure = "padding_option=" if "boundary_check" in source.site.source else "other="
        diagnosis = f"on a GPU these lanes hold garbage; give them a value with {cure}"
    return Verdict("uninitialised", str(source), source.site, diagnosis)


def _never_written(result: Argument, case: Case, ran: Run) -> Verdict | None:
    shape = result.shape(case.numbers)
    written = ran.written.get(result.name)
    if written is None:
        text = f"never written: the kernel does not take {result.name}_ptr, where the result belongs"
        return Verdict("never written", text)
    missing = written.size - int(written.sum())
    if not missing:
        return None
    if missing == written.size:
        all_of_it = f"all {missing} elements" if missing > 1 else "the one element"
        text = f"never written: {all_of_it} of {result.name}_ptr; the kernel stores nothing there"
        return Verdict("never written", text)
    place = _index(int(written.argmin()), shape)
    text = f"never written: {missing} of {written.size} elements of {result.name}_ptr"
    return Verdict("never written", f"{text}, the first is {result.name}[{place}]")


def _race(puzzle: Puzzle, case: Case, conflict: Conflict) -> Verdict:
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    element = f"{conflict.argument}[{_index(conflict.element, shape)}]"
    first, second = conflict.programs
    if conflict.kind == "read":
        text = f"race: program {second} reads {element}, which program {first} wrote; nothing orders the two"
    elif first == second:
        text = f"race: two lanes of one store in program {first} write different values to {element}"
    else:
        text = f"race: two programs, {first} and {second}, write different values to {element}"
    return Verdict("race", text, conflict.site)


def _index(flat: int, shape: tuple[int, ...]) -> str:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return ", ".join(map(str, reversed(index)))
