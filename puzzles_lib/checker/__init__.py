"""`check`: binds a kernel to a puzzle, tries it on every case, and says what is wrong.

The order of things is here, what is said of them in `verdicts`. Nothing that a learner types into a
kernel raises here: the answer is always a `Report`.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from puzzles_lib import compiler, ledger
from puzzles_lib.binding import Bound, bind
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.checker.compare import expect
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.inputs import make_inputs
from puzzles_lib.interpreter import HUGE, NAN, ZERO, Poison, Run
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.source import Refusal

SECONDS_PER_CASE = 10.0


def check(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE) -> Report:
    """Try a ``@triton.jit`` kernel on every case of a puzzle.

    Runs on the CPU, guarded: whatever the kernel does, this returns. ``seconds`` limits the time of
    each run of a case (wall clock). A pass or a try is noted for `progress`.

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
    note = ledger.record(puzzle.name, report.ok)
    return dataclasses.replace(report, notes=(*report.notes, note)) if note else report


def examine(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE) -> Report:
    """`check` without a trace in the learner's progress."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: more threads only spin
    try:
        return _examine(kernel, puzzle, seconds)
    except Exception as error:  # a fault of ours must not be a page of traceback for a learner
        text = (
            f"the checker cannot read this kernel ({type(error).__name__}: {error}); try to write it plainly"
        )
        return Report(puzzle.name, verdict=Verdict("error", " ".join(text.split())[:250]))
    finally:
        torch.set_num_threads(threads)


def _examine(kernel: object, puzzle: Puzzle, seconds: float) -> Report:
    bound = bind(kernel, puzzle, puzzle.cases[0])
    if isinstance(bound, Refusal):
        return _refused(puzzle, bound)
    each = [bound.at(case) for case in puzzle.cases]
    opinions = compiler.opinions(bound.kernel, [bound.arguments for bound in each])
    if opinions[0].refusal:
        return _refused(puzzle, opinions[0].refusal)
    results: list[CaseResult] = []
    for bound, opinion in itertools.zip_longest(each, opinions):
        label = str(bound.case)
        if opinion is None or any(r.verdict and r.verdict.kind == "time limit" for r in results):
            results.append(CaseResult(label, ran=False))
        elif opinion.refusal:
            results.append(CaseResult(label, verdicts.of_refusal_in_a_case(opinion.refusal)))
        else:
            results.append(_check_case(bound, seconds))
    notes = dict.fromkeys(note for opinion in opinions for note in opinion.notes)
    return Report(puzzle.name, tuple(verdicts.with_later_refusal(results)), notes=tuple(notes))


def guarded(kernel: object, puzzle: Puzzle, case: Case) -> tuple[Bound, Run] | Report:
    """One guarded run of a kernel on a case; a `Report` where it cannot be run at all.

    Accesses are kept, and an out-of-bounds one does not end the run.
    """
    bound = _ready(kernel, puzzle, case)
    if isinstance(bound, Report):
        return bound
    return bound, attempt(bound, make_inputs(puzzle, case), record=True)


def outputs(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], *, seconds: float
) -> dict[str, torch.Tensor] | Report:
    """A kernel's results on given inputs, by name; a `Report` where the run is not clean.

    Clean: what `check` asks of a run, but for the values, which are compared with nothing.
    """
    bound = _ready(kernel, puzzle, case)
    if isinstance(bound, Report):
        return bound

    def run(**options: Any) -> Run:
        return attempt(bound, inputs, seconds=seconds, **options)

    ran = run()
    verdict = verdicts.misconduct(puzzle, case, ran)
    if verdict is None and ran.early_reads:
        verdict = verdicts.early_read(ran)
    if verdict is None and ran.holes:
        verdict = _uninitialised(run, ran, NAN)
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


def _check_case(bound: Bound, seconds: float) -> CaseResult:
    """Run a case forwards, and backwards where that may tell; name the most basic fault."""
    puzzle, case = bound.puzzle, bound.case
    inputs = make_inputs(puzzle, case)
    expected = expect(puzzle, case, inputs)

    def run(**options: Any) -> Run:
        return attempt(bound, inputs, seconds=seconds, **options)

    forwards = run()
    verdict = verdicts.judge(puzzle, case, inputs, expected, forwards)
    if verdict and forwards.holes and verdict.kind not in ("time limit", "memory limit"):
        verdict = _uninitialised(run, forwards, NAN) or verdict
    if verdict is None and (forwards.programs > 1 or forwards.holes):
        backwards = run(reverse=True, poison=HUGE, quiet=True)
        again = verdicts.judge(puzzle, case, inputs, expected, backwards)
        if again and backwards.holes:
            verdict = _uninitialised(run, backwards, HUGE, reverse=True)
        if again and not verdict:
            verdict = again if again.kind in ("race", "time limit") else verdicts.depends_on_order(again)
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


def _uninitialised(
    run: Callable[..., Run], ran: Run, poison: Poison, reverse: bool = False
) -> Verdict | None:
    """Do the results depend on what masked-off lanes hold? Then say which load leaves them open."""
    clean = run(poison=ZERO, output_poison=poison, quiet=True, reverse=reverse)
    if _same(ran, clean):
        return None
    site = next(iter(ran.holes))
    for each in ran.holes:
        if not _same(run(poison=poison, poison_only=each, quiet=True, reverse=reverse), clean):
            site = each
            break
    return verdicts.uninitialised(ran.holes[site], site)


def _same(one: Run, two: Run) -> bool:
    """Whether two runs ended alike, bit for bit."""
    ends = [run.stop.message if run.stop else None for run in (one, two)]
    if ends[0] != ends[1]:
        return False
    return all(
        torch.equal(
            one.outputs[n].contiguous().view(torch.uint8), two.outputs[n].contiguous().view(torch.uint8)
        )
        for n in one.outputs
        if one.outputs[n].numel()
    )
