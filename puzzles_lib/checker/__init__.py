"""`check`: binds a kernel to a puzzle, tries it on every case, and says what is wrong.

The order of things is here, what is said of them in `verdicts`. Nothing that a learner types into a
kernel raises here: the answer is always a `Report`.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from puzzles_lib import compiler, ledger
from puzzles_lib.binding import Bound, bind
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.attempts import Budget, OutOfTime, attempt
from puzzles_lib.checker.compare import expect
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.checker.true_size import check_true_size
from puzzles_lib.checker.tuning import every_configuration
from puzzles_lib.inputs import make_inputs
from puzzles_lib.interpreter import Busy, Run, alone
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.source import Refusal
from puzzles_lib.staleness import stale_note
from puzzles_lib.stubs import is_untouched
from puzzles_lib.wrapped import unwrap

SECONDS_PER_CASE = 10.0
RUNS_PER_CHECK = 6  # times the seconds of a run that all runs of a check may take together


def check(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE) -> Report:
    """Try a ``@triton.jit`` kernel on every case of a puzzle.

    Runs on the CPU, guarded: whatever the kernel does, this returns. ``seconds`` limits the CPU time of
    each run of a case (ten times as long by the clock); once all runs have taken six times as many, the
    check ends there. Checks in several threads wait for each other. A pass or a try is noted for `progress`.

    Raises TypeError where ``puzzle`` is not a `Puzzle`, ValueError where ``seconds`` is not positive,
    and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"check(kernel, puzzle): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    if not seconds > 0:
        raise ValueError(f"check: seconds is {seconds!r}, allowed is any number above 0")
    report = None
    with contextlib.suppress(KeyboardInterrupt):
        report = examine(kernel, puzzle, seconds=seconds)
    if report is None:  # raised from here, so that a notebook shows two frames and not thirty
        raise KeyboardInterrupt("the check was interrupted") from None
    notes = [_stale(kernel)]
    if puzzle.counts:
        notes.append(ledger.record(puzzle.name, report.ok) or "")
    return dataclasses.replace(report, notes=(*report.notes, *filter(None, notes)))


def _stale(kernel: object) -> str:
    wrapped = unwrap(kernel)
    return stale_note(wrapped.kernel) if wrapped else ""


def examine(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE) -> Report:
    """`check` without a trace in the learner's progress."""
    try:
        return alone(lambda: _examine(kernel, puzzle, seconds))
    except Busy as reason:
        return _busy(puzzle, reason)
    except Exception as error:  # a fault of ours must not be a page of traceback for a learner
        text = (
            f"the checker cannot read this kernel ({type(error).__name__}: {error}); try to write it plainly"
        )
        return Report(puzzle.name, verdict=Verdict("error", " ".join(text.split())[:250]))


def _busy(puzzle: Puzzle, reason: Busy) -> Report:
    return Report(puzzle.name, verdict=Verdict("error", str(reason)))


def _examine(kernel: object, puzzle: Puzzle, seconds: float) -> Report:
    bound = bind(kernel, puzzle, puzzle.cases[0])
    if isinstance(bound, Refusal):
        return _refused(puzzle, bound)
    if is_untouched(bound.kernel):
        return Report(puzzle.name, verdict=verdicts.STILL_OPEN)
    budget = Budget(RUNS_PER_CHECK * seconds)

    def tried(number: int) -> Report:
        return _examine_one(bound, number, seconds, budget)

    return every_configuration(bound, tried, seconds, budget) if bound.configuration else tried(0)


def _examine_one(bound: Bound, number: int, seconds: float, budget: Budget) -> Report:
    """A report on one of the kernel's configurations; the only one, of a plain kernel."""
    puzzle = bound.puzzle
    results: list[CaseResult] = []
    for case in puzzle.cases:
        each = bound.at(case, number)
        if each is None:  # autotune would not try it here
            results.append(CaseResult(str(case)))
            continue
        if isinstance(each, Refusal):
            return _refused(puzzle, each)
        if refusal := compiler.front_end(each.kernel, each.arguments):
            return _refused(puzzle, refusal)
        slow = any(r.verdict and r.verdict.kind == "time limit" for r in results)
        results.append(CaseResult(str(case), ran=False) if slow else _check_case(each, seconds, budget))
    return Report(puzzle.name, tuple(results))


def guarded(kernel: object, puzzle: Puzzle, case: Case) -> tuple[Bound, Run] | Report:
    """One guarded run of a kernel on a case; a `Report` where it cannot be run at all.

    Accesses are kept, and an out-of-bounds one does not end the run.
    """

    def work() -> tuple[Bound, Run] | Report:
        bound = _ready(kernel, puzzle, case)
        if isinstance(bound, Report):
            return bound
        return bound, attempt(bound, make_inputs(puzzle, case), record=True)

    try:
        return alone(work)
    except Busy as reason:
        return _busy(puzzle, reason)


def outputs(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], *, seconds: float
) -> dict[str, torch.Tensor] | Report:
    """A kernel's results on given inputs, by name; a `Report` where the run is not clean.

    Clean: what `check` asks of a run, but for the values, which are compared with nothing.
    """
    try:
        return alone(lambda: _outputs(kernel, puzzle, case, inputs, seconds))
    except Busy as reason:
        return _busy(puzzle, reason)


def _outputs(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], seconds: float
) -> dict[str, torch.Tensor] | Report:
    bound = _ready(kernel, puzzle, case)
    if isinstance(bound, Report):
        return bound
    ran = attempt(bound, inputs, seconds=seconds)
    verdict = verdicts.misconduct(puzzle, case, ran)
    if verdict:
        return Report(puzzle.name, (CaseResult(str(case), verdict),))
    return {result.name: ran.outputs[result.name] for result in puzzle.results}


def _ready(kernel: object, puzzle: Puzzle, case: Case) -> Bound | Report:
    """A kernel bound to a case that the front end takes, or why there is none."""
    bound = bind(kernel, puzzle, case)
    if isinstance(bound, Refusal):
        return _refused(puzzle, bound)
    refusal = compiler.front_end(bound.kernel, bound.arguments)
    return _refused(puzzle, refusal) if refusal else bound


def _refused(puzzle: Puzzle, refusal: Refusal) -> Report:
    return Report(puzzle.name, verdict=verdicts.of_refusal(refusal))


def _check_case(bound: Bound, seconds: float, budget: Budget) -> CaseResult:
    if bound.case.pretend:
        return check_true_size(bound, seconds)
    try:
        return _run_case(bound, seconds, budget)
    except OutOfTime as error:
        return CaseResult(str(bound.case), verdicts.out_of_time(error.seconds))


def _run_case(bound: Bound, seconds: float, budget: Budget) -> CaseResult:
    """Run a case forwards, and backwards where that may tell; name the most basic fault."""
    puzzle, case = bound.puzzle, bound.case
    inputs = make_inputs(puzzle, case)
    expected = expect(puzzle, case, inputs)

    def run(**options: Any) -> Run:
        budget.ask()
        return attempt(bound, inputs, seconds=seconds, **options)

    forwards = run()
    verdict = verdicts.judge(puzzle, case, inputs, expected, forwards)
    if verdict is None and (forwards.programs > 1 or forwards.contended):
        backwards = run(reverse=True, quiet=True)
        verdict = verdicts.judge(puzzle, case, inputs, expected, backwards)
        early = backwards.undefined is not None and backwards.undefined.kind == "early"
        own = ("race", "time limit") if early else ("race", "time limit", "uninitialised")
        if verdict and verdict.kind not in own:
            verdict = verdicts.depends_on_order(verdict)
    return CaseResult(
        str(case),
        verdict,
        programs=forwards.programs,
        bytes_moved=forwards.bytes_moved,
        bytes_least=_least(puzzle, case),
    )


def _least(puzzle: Puzzle, case: Case) -> int:
    """Bytes that any kernel must move: each input once, each output once."""
    total = 0
    for argument in puzzle.inputs + puzzle.results:
        total += torch.Size(argument.shape(case.numbers)).numel() * argument.dtype.itemsize
    return total
