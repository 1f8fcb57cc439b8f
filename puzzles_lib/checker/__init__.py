"""`check`: binds a kernel to a puzzle, tries it on every case, and says what is wrong.

The order of things is here, what is said of them in `verdicts`. Nothing that a learner types into a
kernel raises here: the answer is always a `Report`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from puzzles_lib import compiler, ledger
from puzzles_lib.binding import Bound, bind
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.checker.expected import Expected, PuzzleFault, expect, the_puzzles_own
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.inputs import make_inputs
from puzzles_lib.interpreter import HUGE, NAN, ZERO, Poison, Run
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.source import Refusal

SECONDS_PER_CASE = 10.0


def check(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE, salt: str = "") -> Report:
    """Try a ``@triton.jit`` kernel on every case of a puzzle, and on a few drawn ones.

    Runs on the CPU, guarded: whatever the kernel does, this returns. ``seconds`` limits the time of
    each run of a case (wall clock). A pass or a try is noted for `progress`.

    salt: for who grades: another salt draws other cases, and other values for the inputs of all. With the
        same salt a report is the same at every call.

    Raises TypeError where ``puzzle`` is not a `Puzzle` or ``salt`` no string, ValueError where ``seconds``
    is not positive, and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"check(kernel, puzzle): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    if not seconds > 0:
        raise ValueError(f"check: seconds is {seconds!r}, allowed is any number above 0")
    if not isinstance(salt, str):
        raise TypeError(f"check: salt is a {type(salt).__name__}, allowed is a string")
    report = None
    with contextlib.suppress(KeyboardInterrupt):
        report = examine(kernel, puzzle, seconds=seconds, salt=salt)
    if report is None:  # raised from here, so that a notebook shows two frames and not thirty
        raise KeyboardInterrupt("the check was interrupted") from None
    note = ledger.record(puzzle.name, report.ok)
    return dataclasses.replace(report, notes=(*report.notes, note)) if note else report


def examine(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE, salt: str = "") -> Report:
    """`check` without a trace in the learner's progress."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: more threads only spin
    try:
        return _examine(kernel, puzzle, seconds, salt)
    except PuzzleFault as fault:
        return Report(puzzle.name, verdict=Verdict("puzzle", str(fault)))
    except Exception as error:  # a fault of ours must not be a page of traceback for a learner
        text = (
            f"the checker cannot read this kernel ({type(error).__name__}: {error}); try to write it plainly"
        )
        return Report(puzzle.name, verdict=Verdict("error", " ".join(text.split())[:250]))
    finally:
        torch.set_num_threads(threads)


def _examine(kernel: object, puzzle: Puzzle, seconds: float, salt: str) -> Report:
    bound = bind(kernel, puzzle, puzzle.cases[0])
    if isinstance(bound, Refusal):
        return _refused(puzzle, bound)
    results: list[CaseResult] = []
    for number, case in enumerate(puzzle.cases):
        bound = bound.at(case.salted(salt))
        if refusal := compiler.front_end(bound.kernel, bound.arguments):
            return _refused(puzzle, refusal)
        slow = any(r.verdict and r.verdict.kind == "time limit" for r in results)
        result = CaseResult(str(case), ran=False) if slow else _check_case(bound, seconds)
        results.append(dataclasses.replace(result, number=number))
    if all(result.ok for result in results):
        results += _drawn_cases(bound, seconds, salt)
    return Report(puzzle.name, verdicts.with_blocks(puzzle, results), salt=salt)


def _drawn_cases(bound: Bound, seconds: float, salt: str) -> Iterator[CaseResult]:
    """Try what is drawn from the puzzle's contract, up to the first failure."""
    with the_puzzles_own("its contract", bound.case):
        cases = bound.puzzle.drawn(salt)
    for number, case in enumerate(cases, len(bound.puzzle.cases)):
        bound = bound.at(case)
        if refusal := compiler.front_end(bound.kernel, bound.arguments):
            result = CaseResult(str(case), verdicts.of_refusal(refusal))
        else:
            result = _check_case(bound, seconds, backwards=False)
        yield dataclasses.replace(result, number=number, drawn=True)
        if not result.ok:
            return


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


_kept: dict[tuple[int, str, str], tuple[Puzzle, dict[str, torch.Tensor], dict[str, Expected]]] = {}
KEPT = 200  # cases whose inputs and results are kept from one check to the next


def _wanted(puzzle: Puzzle, case: Case) -> tuple[dict[str, torch.Tensor], dict[str, Expected]]:
    """A case's inputs, and the results that they should lead to. Nobody may change them."""
    key = (id(puzzle), str(case), case.salt)
    if key not in _kept:
        with the_puzzles_own("a fill", case):
            inputs = make_inputs(puzzle, case)
        if len(_kept) >= KEPT:
            _kept.clear()
        _kept[key] = (
            puzzle,
            inputs,
            expect(puzzle, case, inputs),
        )  # the puzzle: so that its id stays its own
    return _kept[key][1:]


def _check_case(bound: Bound, seconds: float, backwards: bool = True) -> CaseResult:
    """Run a case forwards, and backwards where that may tell; name the most basic fault."""
    puzzle, case = bound.puzzle, bound.case
    inputs, expected = _wanted(puzzle, case)

    def run(**options: Any) -> Run:
        return attempt(bound, inputs, seconds=seconds, **options)

    forwards = run()
    verdict = verdicts.judge(puzzle, case, inputs, expected, forwards)
    if verdict and verdict.kind == "never written":
        verdict = verdicts.never_written(puzzle, case, run(record=True, quiet=True)) or verdict
    if verdict and forwards.holes and verdict.kind not in ("time limit", "memory limit"):
        verdict = _uninitialised(run, forwards, NAN) or verdict
    if verdict is None and backwards and (forwards.programs > 1 or forwards.holes):
        reverse = run(reverse=True, poison=HUGE, quiet=True)
        again = verdicts.judge(puzzle, case, inputs, expected, reverse)
        if again and reverse.holes:
            verdict = _uninitialised(run, reverse, HUGE, reverse=True)
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
