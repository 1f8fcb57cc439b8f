"""From a run to a verdict: what is wrong with it, the most basic fault first, in words."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from puzzles_lib.checker.compare import Expected, compare
from puzzles_lib.checker.report import CaseResult, Verdict
from puzzles_lib.interpreter import Conflict, Run
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.source import Refusal, Site

_REFUSED = "the compiler refuses this kernel: "


def of_refusal(refusal: Refusal) -> Verdict:
    """Why the kernel is not run at all."""
    if refusal.kind == "signature":
        return Verdict("signature", refusal.message, refusal.site, refusal.advice)
    text = f"{_REFUSED}{refusal.message}"
    return Verdict(refusal.kind, text, refusal.site, refusal.advice)


def of_refusal_in_a_case(refusal: Refusal) -> Verdict:
    """Why a kernel that compiles for the cases before does not for this one."""
    advice = refusal.advice
    if "shapes that do not fit" in refusal.message and not advice:
        advice = "with blocks of equal sizes, as in the cases before, this goes unnoticed"
    return of_refusal(dataclasses.replace(refusal, advice=advice))


def with_later_refusal(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results, a first fault explained by what the compiler says of a later case that it refuses."""
    told = list(results)
    wrong = [(n, result.verdict) for n, result in enumerate(told) if result.verdict]
    refused = [(n, verdict) for n, verdict in wrong if verdict.kind == "compiler"]
    if refused and wrong[0][0] < refused[0][0]:
        (first, verdict), (later, refusal) = wrong[0], refused[0]
        words = f"with {told[later].label} it does not compile: {refusal.message.removeprefix(_REFUSED)}"
        told[first] = dataclasses.replace(told[first], verdict=dataclasses.replace(verdict, diagnosis=words))
    return told


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
        if mismatch and ran.early_reads:
            return early_read(ran)
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
    if ran.stop:
        return Verdict(ran.stop.kind, ran.stop.message, ran.stop.site)
    for result in puzzle.results:
        verdict = _never_written(result, case, ran)
        if verdict:
            return verdict
    if ran.conflict:
        return _race(puzzle, case, ran.conflict)
    for name, site in ran.changed.items():
        return Verdict("input changed", f"{name} was changed; a kernel may only write its outputs", site)
    return None


def early_read(ran: Run) -> Verdict:
    """An output is read before anything is stored there, and the result depends on it."""
    name, site = next(iter(ran.early_reads.items()))
    text = f"{name}_ptr is read before anything is stored there: a GPU finds garbage"
    return Verdict("uninitialised", text, site)


def depends_on_order(verdict: Verdict) -> Verdict:
    """A fault that shows only when the programs run in reverse order."""
    text = f"race: with the programs run in reverse order the result differs ({verdict.message})"
    return Verdict("race", text, verdict.site)


def uninitialised(name: str, site: Site) -> Verdict:
    """The results depend on lanes that the load at ``site`` leaves open."""
    if "boundary_check" in site.source:
        left, cure = "a boundary_check but no padding_option", "padding_option="
    else:
        left, cure = "a mask but no other=", "other="
    text = f"uninitialised lanes of {name}_ptr are used: the load has {left}"
    return Verdict(
        "uninitialised", text, site, f"on a GPU these lanes hold garbage; give them a value with {cure}"
    )


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
