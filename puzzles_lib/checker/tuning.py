"""Check a kernel within `triton.autotune`: each configuration alone, then all in turn on the same tensors.

Autotune runs all configurations many times on the launch's own tensors and keeps the fastest. So each must
be correct, even on the results that the others leave.
"""

import dataclasses
from collections.abc import Callable

import torch

from puzzles_lib.binding import Bound, all_pruned
from puzzles_lib.checker.algebra import Judge
from puzzles_lib.checker.attempts import (
    Budget,
    OutOfTime,
    Refused,
    attempt,
    blank,
    bytes_of,
    fill_in_place,
)
from puzzles_lib.checker.expected import expect
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case
from puzzles_lib.runner import Options, Run
from puzzles_lib.source import Refusal
from puzzles_lib.wrapped import called


def every_configuration(
    bound: Bound, tried: Callable[[int, dict[int, Verdict] | None], Report], seconds: float, budget: Budget
) -> Report:
    """Return the report on the first configuration that fails; if none does, on the first, with a note.

    A configuration that cannot be launched in a case is skipped there, as autotune does it. A case in which
    none can be launched fails.

    tried: checks the configuration with this number, and notes the cases in which autotune skips it.
        seconds: the CPU time for a run.
    """
    count = bound.wrapped.count
    done: dict[int, Report] = {}  # by configuration, with the cases in which it is skipped
    skipped: dict[int, dict[int, Verdict]] = {}
    refused = None
    for number in range(count):
        if number and budget.used() * (number + 1) / number > 1:
            break
        skipped[number] = {}
        each = tried(number, skipped[number] if count > 1 else None)
        if not each.ok and each.verdict is not None and skips(each.verdict):
            refused = refused or _named(each, bound, number)
            continue
        if not each.ok:
            return _named(each, bound, number)
        done[number] = each
    if not done:  # the first is always tried
        assert refused is not None
        return refused
    report = next(iter(done.values()))
    cases = [_of_the_first(place, done, skipped) for place in range(len(report.cases))]
    for place, case in enumerate(bound.puzzle.cases):
        why = [(number, skipped[number][place]) for number in done if place in skipped[number]]
        if why and all(place in skipped[number] or bound.at(case, number) is None for number in done):
            cases[place] = dataclasses.replace(
                cases[place], verdict=_none_left(bound, case, *why[0], len(done))
            )
    for place, case in enumerate((*bound.puzzle.cases, *bound.puzzle.drawn(report.salt))):
        if all(bound.at(case, number) is None for number in range(count)):
            own = place < len(bound.puzzle.cases)
            found = _pruned(case, cases[place] if own else CaseResult(str(case), number=place, drawn=True))
            cases[place : place + own] = [found]
    notes = [_note(count, len(done), refused is not None, bool(bound.wrapped.autotuner))]
    if all(case.ok for case in cases):
        notes += _skipped_note(bound, skipped)
    try:
        for at, case in enumerate(bound.puzzle.cases):
            usable = [number for number in done if at not in skipped[number]]
            if cases[at].ok:
                cases[at] = _after_the_others(bound, case, usable, seconds, budget) or cases[at]
    except OutOfTime:
        notes.append("there was no time left to run each configuration on the results of the others")
    if not all(each.ok for each in cases):
        own = all(each.ok for each in cases if not each.drawn)  # random cases count only if all others pass
        return dataclasses.replace(report, cases=tuple(each for each in cases if own or not each.drawn))
    return dataclasses.replace(report, cases=tuple(cases), notes=(*report.notes, *notes))


def skips(verdict: Verdict) -> bool:
    """Return whether autotune skips a configuration with this fault: a program doesn't fit, or asserts.

    Any other fault, such as a grid with too many programs, ends the tuning with an error.
    """
    return "a launch would fail" in verdict.message or "tl.static_assert fails" in verdict.message


def _of_the_first(place: int, done: dict[int, Report], skipped: dict[int, dict[int, Verdict]]) -> CaseResult:
    """Return a case's result in the first configuration that runs there."""
    ran = (
        report.cases[place]
        for number, report in done.items()
        if place not in skipped[number] and place < len(report.cases) and report.cases[place].programs
    )
    return next(ran, next(iter(done.values())).cases[place])


def _pruned(case: Case, result: CaseResult) -> CaseResult:
    """Return the result of a case in which early_config_prune keeps no configuration."""
    refusal = all_pruned(case)
    verdict = Verdict(refusal.kind, refusal.message, diagnosis=refusal.advice)
    return dataclasses.replace(result, verdict=verdict, ran=True)


def _none_left(bound: Bound, case: Case, number: int, verdict: Verdict, tried: int) -> Verdict:
    """Return the verdict on a case in which autotune skips every configuration."""
    first = bound.at(case, number)
    named = str(first.configuration) if isinstance(first, Bound) else f"configuration {number + 1}"
    message = f"none of autotune's {tried} configurations can be launched; in the first, {verdict.message}"
    return dataclasses.replace(_with_diagnosis(verdict, named), message=message)


def _skipped_note(bound: Bound, skipped: dict[int, dict[int, Verdict]]) -> list[str]:
    """Return a note on the configurations that autotune skips in some case; [] if there is none."""
    some = [number for number, cases in skipped.items() if cases]
    if not some:
        return []
    place, verdict = next(iter(skipped[some[0]].items()))
    each = bound.at(bound.puzzle.cases[place], some[0])
    named = str(each.configuration) if isinstance(each, Bound) else f"configuration {some[0] + 1}"
    several = f", and {len(some) - 1} more" if len(some) > 1 else ""
    return [f"in case {place}, autotune will skip {named}{several}: {verdict.message}"]


def _note(count: int, done: int, asserts: bool, tuned: bool) -> str:
    if not tuned:
        return "triton.heuristics' values are computed for each case"
    if done == count:
        each = "each is correct alone and after the others on the same tensors; costs are the first one's"
        return f"{count} configurations, {each}" if count > 1 else "1 configuration"
    why = "a tl.static_assert or the time limit rules out" if asserts else "there is no time for"
    return f"{done} of {count} configurations are checked: {why} the others"


def _after_the_others(
    bound: Bound, case: Case, numbers: list[int], seconds: float, budget: Budget
) -> CaseResult | None:
    """Tune as autotune does: time all configurations, then launch one. Return the first that fails then.

    Any of them could be the fastest, so each is launched on what all timed runs have left.
    """
    puzzle, tuner = bound.puzzle, bound.wrapped.autotuner
    variants = [each for number in numbers if isinstance(each := bound.at(case, number), Bound)]
    if tuner is None or len(tuner.configs) < 2 or case.pretend:
        return None
    inputs = make_inputs(puzzle, case)
    expected = expect(puzzle, case, inputs)
    given = {name: tensor.clone() for name, tensor in inputs.items()}  # hooks may change them
    results: dict[str, torch.Tensor] = {r.name: blank(puzzle, r, case) for r in puzzle.results}
    fill_in_place(puzzle, results, inputs)

    def hook(each: Bound, which: str, **more: object) -> None:
        options = each.configuration.options if each.configuration else {}
        arguments = {**each.filled({**given, **results}), **options}
        found = called(lambda: getattr(tuner, which)(arguments, **more), f"autotune's {which}")
        if isinstance(found, Refusal):
            raise Refused(found)

    def launched(each: Bound) -> Run:
        budget.ask()
        return attempt(each, given, Options(seconds=seconds, quiet=True), results=results)

    def changed() -> list[str]:
        return [name for name in inputs if not torch.equal(bytes_of(given[name]), bytes_of(inputs[name]))]

    def failed(each: Bound, ran: Run) -> CaseResult | None:
        verdict = Judge(each, inputs, dict(expected), seconds, budget)(ran)
        if verdict is None:
            return None
        told = _why(each, changed(), len(variants))
        return CaseResult(str(each.case), _with_diagnosis(verdict, f"{each.configuration}; {told}"))

    for each in variants:
        hook(each, "pre_hook")
        ran = launched(each)
        if ran.stop:
            return failed(each, ran)
        hook(each, "post_hook", exception=None)
    left = {name: tensor.clone() for name, tensor in results.items()}
    for each in variants:
        for name, tensor in left.items():
            results[name].copy_(tensor)
        hook(each, "pre_hook", reset_only=True)
        if found := failed(each, launched(each)):
            return found
    if names := changed():
        verdict = Verdict("values", f"tuning changes the input {names[0]}")
        why = _why(variants[0], names, len(variants))
        return CaseResult(str(variants[0].case), _with_diagnosis(verdict, why))
    return None


def _why(each: Bound, changed: list[str], count: int) -> str:
    """Return why a configuration that is correct alone fails in a tuning. changed: the inputs that hooks set.

    count: how many configurations are tuned.
    """
    tuner = each.wrapped.autotuner
    assert tuner is not None
    if changed:
        named = {name: parameter for parameter, name in (each.tensors or {}).items()}
        name = named.get(changed[0], f"{changed[0]}_ptr")
        if name in tuner.reset_to_zero and not tuner.user_defined_pre_hook:
            return f"correct alone, but reset_to_zero clears the input {name} before each run"
        return f"correct alone, but autotune's hooks change the input {name}"
    whose = "that other configurations leave" if count > 1 else "that its own timed runs leave"
    ignored = [option for option in ("reset_to_zero", "restore_value") if getattr(tuner, option)]
    overridden = f" (autotune's pre_hook replaces {ignored[0]})" if ignored else ""
    told = overridden if tuner.user_defined_pre_hook else ""
    if not told and not each.puzzle.counts:  # a course's puzzle asks for the cure
        told = _cure(each)
    return f"it is correct alone, but wrong on the results {whose}{told}"


def _cure(each: Bound) -> str:
    """Return what to pass to `triton.autotune`, so that a result is as it was before each run."""
    names = {name: parameter for parameter, name in (each.tensors or {}).items()}
    own = {argument.name for argument in each.puzzle.inputs}
    cures = [
        f"{'restore_value' if name in own else 'reset_to_zero'}=['{names.get(name, f'{name}_ptr')}']"
        for name in (argument.name for argument in each.puzzle.results)
        if name in own or name in each.puzzle.zeroed
    ]
    return f": pass {' or '.join(cures)} to triton.autotune" if cures else ""


def _named(report: Report, bound: Bound, number: int) -> Report:
    """Return the report, with the configuration named in each verdict."""

    def told(verdict: Verdict, case: Case) -> Verdict:
        each = bound.at(case, number)
        if isinstance(each, Bound) and each.configuration and not str(each.configuration):
            return verdict
        words = str(each.configuration) if isinstance(each, Bound) else f"configuration {number + 1}"
        tuner = bound.wrapped.autotuner
        if verdict.kind == "uninitialized" and tuner and "before anything is stored" in verdict.message:
            words += "; autotune runs a kernel many times on the same results, so it must not add to them"
            if tuner.reset_to_zero or tuner.user_defined_pre_hook:
                which = "autotune's pre_hook" if tuner.user_defined_pre_hook else "reset_to_zero"
                words += f" ({which} clears them only while tuning)"
        return _with_diagnosis(verdict, words)

    tried = (*bound.puzzle.cases, *bound.puzzle.drawn(report.salt))
    cases = tuple(
        dataclasses.replace(each, verdict=told(each.verdict, tried[each.number]))
        if each.verdict and each.number is not None
        else each
        for each in report.cases
    )
    verdict = report.verdict and told(report.verdict, bound.puzzle.cases[len(report.cases)])
    return dataclasses.replace(report, cases=cases, verdict=verdict)


def _with_diagnosis(verdict: Verdict, words: str) -> Verdict:
    return dataclasses.replace(verdict, diagnosis="; ".join(w for w in (words, verdict.diagnosis) if w))
