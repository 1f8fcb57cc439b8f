"""Check a kernel: `examine` binds it to a puzzle, tries it on every case, and reports what is wrong.

The order of the steps is here, and their words are in `verdicts`. Nothing that a learner types into a
kernel raises here: the answer is always a `Report`. Learners call `puzzles_lib.checking.check`.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from triton.runtime.jit import JITFunction

from puzzles_lib import compiler
from puzzles_lib.binding import Bound, bind
from puzzles_lib.checker import (
    algebra,
    atomicity,
    blame,
    compare,
    edges,
    failure,
    machine,
    made_cases,
    probes,
    stand_ins,
    traffic,
    tuning,
    untested,
    verdicts,
)
from puzzles_lib.checker.arithmetic import Known
from puzzles_lib.checker.attempts import Budget, OutOfTime, Refused, attempt
from puzzles_lib.checker.expected import Expected, PuzzleFault, evaluate, expect, the_puzzles_own
from puzzles_lib.checker.launches import Launches
from puzzles_lib.checker.races import Threads
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.checker.true_size import check_true_size
from puzzles_lib.checker.untested import Untested
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import LINE_BY_LINE, Busy, Options, Program, Run, alone
from puzzles_lib.runner.limits import TimeLimitReached, time_limit
from puzzles_lib.source import Refusal
from puzzles_lib.stubs import is_untouched
from puzzles_lib.wrapped import unwrap

SECONDS_PER_CASE = 10.0
RUNS_PER_CHECK = 6  # all runs of a check together may take this many times the limit of one run


def examine(
    kernel: object,
    puzzle: Puzzle,
    *,
    seconds: float = SECONDS_PER_CASE,
    salt: str = "",
    until_failure: bool = False,
    num_warps: int = 0,
) -> Report:
    """Try a kernel on every case of a puzzle and on random ones, without changing the learner's progress.

    seconds, salt: as for `check`. until_failure: stop after the first case that fails. num_warps: of the
    launch; 0 if it asks for no number.
    """
    try:
        report = alone(lambda: _examine(kernel, puzzle, seconds, salt, until_failure, num_warps))
        if report.ok:
            goals = machine.judge(kernel, puzzle) + alone(lambda: traffic.judge(kernel, puzzle, seconds))
            report = dataclasses.replace(report, goals=goals)
        return report
    except Busy as reason:
        return _busy(puzzle, reason)
    except PuzzleFault as fault:
        return Report(puzzle.name, verdict=Verdict("puzzle", str(fault)))
    except Refused as error:
        return _refused(puzzle, error.refusal)
    except Exception as error:  # a learner must not see a page of traceback for a bug of the course
        text = (
            f"the checker failed on this kernel ({type(error).__name__}: {error}). "
            "This is a bug in the course, not in your kernel. A simpler version of your kernel may work"
        )
        return Report(puzzle.name, verdict=Verdict("error", " ".join(text.split())[:250]))


@dataclasses.dataclass
class _Shared:
    """What the cases of one check share: limits, and what the cases have shown so far.

    said: the texts that ``tl.static_print`` has shown; each is shown once. together: many programs may run at
    once; see `probes.Trial`.
    """

    seconds: float
    budget: Budget
    threads: Threads = dataclasses.field(default_factory=Threads)
    arithmetic: Known = dataclasses.field(default_factory=Known)
    said: set[str] = dataclasses.field(default_factory=set)
    launches: Launches = dataclasses.field(default_factory=Launches)
    turns: atomicity.Budget = dataclasses.field(default_factory=atomicity.Budget)
    untested: Untested = dataclasses.field(default_factory=Untested)
    together: bool = False


def _busy(puzzle: Puzzle, reason: Busy) -> Report:
    return Report(puzzle.name, verdict=Verdict("error", str(reason)))


def _examine(
    kernel: object, puzzle: Puzzle, seconds: float, salt: str, until_failure: bool, num_warps: int
) -> Report:
    bound = bind(kernel, puzzle, puzzle.cases[0], num_warps)
    if isinstance(bound, Refusal):
        return _refused(puzzle, bound)
    if is_untouched(bound.kernel) and not puzzle.broken_by:
        return Report(puzzle.name, verdict=verdicts.still_open(bound.kernel))
    budget = Budget(RUNS_PER_CHECK * seconds)

    def tried(number: int, skipped: dict[int, Verdict] | None = None) -> Report:
        return _examine_one(bound, number, _Shared(seconds, budget), salt, until_failure, skipped)

    return tuning.every_configuration(bound, tried, seconds, budget) if bound.configuration else tried(0)


def _examine_one(
    bound: Bound,
    number: int,
    shared: _Shared,
    salt: str,
    until_failure: bool,
    skipped: dict[int, Verdict] | None = None,
) -> Report:
    """Return the report on one of the kernel's configurations; a plain kernel has one.

    skipped: gets the cases, by place, in which autotune skips this configuration, and why; these count as
        passed. None if there is no other configuration to use instead.
    """
    puzzle = bound.puzzle
    each = [bound.at(case.salted(salt), number) for case in puzzle.cases]
    if refusal := next((one for one in each if isinstance(one, Refusal)), None):
        return _refused(puzzle, refusal)
    drawn = _drawn(bound, number, salt)
    named = not (salt or number)
    notes: dict[str, None] = {}

    def tried(opinions: _Opinions) -> Refusal | list[CaseResult]:
        if refusal := opinions.of_the_kernel():
            return refusal
        results: list[CaseResult] = []
        ended = False
        for place, (case, one) in enumerate(zip(puzzle.cases, each, strict=True)):
            result = CaseResult(str(case), ran=one is None)  # None: autotune would skip it
            opinion = None if ended and until_failure else opinions[place]
            if not until_failure:
                opinions.begin(place + 1)
            if isinstance(one, Bound) and opinion is not None:
                notes.update(dict.fromkeys(opinion.notes))
                refused = _opined(one, opinion) or _unlaunched(one, opinion, shared.launches, place)
                if refused and refused.verdict and skipped is not None and tuning.skips(refused.verdict):
                    skipped[place] = refused.verdict
                    result = CaseResult(str(case))
                elif refused:
                    result = refused
                elif not ended:
                    result = _check_case(
                        one.taken(opinion),
                        shared,
                        named=place if named else None,
                        explains=all(other.ok for other in results),
                    )
            results.append(dataclasses.replace(result, number=place))
            ended = ended or (
                result.verdict is not None
                and (until_failure or result.verdict.kind in ("time limit", "deadlock"))
            )
        if all(result.ok for result in results):
            results += _drawn_cases(drawn, len(each), named, shared, opinions)
        if all(result.ok for result in results):
            results += _made_cases(bound, number, shared)
        return results

    results = compiler.closed_after(_Opinions(bound.kernel, each, drawn), tried)
    if isinstance(results, Refusal):
        return _refused(puzzle, results)
    notes |= dict.fromkeys([*shared.arithmetic.notes(), *shared.threads.notes])
    told: Sequence[CaseResult] = results
    if not until_failure:
        told = verdicts.with_blocks(puzzle, told, lambda case: _is_right(bound.at(case, number), shared))
        told = _with_a_constant(told, each, shared)
    return Report(puzzle.name, tuple(told), notes=tuple(notes), salt=salt)


class _Opinions:
    """The compiler's opinions on the cases of a check, by the case's place. Close it after use."""

    def __init__(
        self,
        kernel: JITFunction,
        each: Sequence[Bound | Refusal | None],
        drawn: Sequence[Bound | Refusal | None],
    ):
        bound = [place for place, one in enumerate((*each, *drawn)) if isinstance(one, Bound)]
        listed, others = ([one.arguments for one in part if isinstance(one, Bound)] for part in (each, drawn))
        self._numbers = {place: number for number, place in enumerate(bound)}
        stages = [one.options.get("num_stages", 0) for one in (*each, *drawn) if isinstance(one, Bound)]
        most = max(stages, default=0)
        self._opinions = compiler.Opinions(kernel, listed, others, num_stages=most)
        self._listed = len(listed)

    def __getitem__(self, place: int) -> compiler.Opinion | None:
        """Return the opinion on a case; None if there is nothing to compile, or the limit is reached."""
        number = self._numbers.get(place)
        return None if number is None else self._opinions[number]

    def begin(self, place: int) -> None:
        """Start forming the opinion on a case in another process."""
        if place in self._numbers:
            self._opinions.begin(self._numbers[place])

    def of_the_kernel(self) -> Refusal | None:
        """Return the refusal of the first case, which counts for the kernel as a whole."""
        first = self._opinions[0] if self._listed else None
        return first.refusal if first else None

    def close(self) -> None:
        self._opinions.close()


def _opined(bound: Bound, opinion: compiler.Opinion) -> CaseResult | None:
    """Return the result of a case that the compiler refuses; None if it doesn't."""
    if opinion.refusal is None:
        return None
    return CaseResult(
        str(bound.case), verdicts.of_refusal_in_a_case(opinion.refusal, bound.puzzle, bound.case)
    )


def _unlaunched(bound: Bound, opinion: compiler.Opinion, launches: Launches, case: int) -> CaseResult | None:
    """Return the result of a case that a GPU could not launch; None if it could.

    Random cases are not asked about: their blocks are unusual, and another correct kernel may have room.
    """
    refused = launches.refused(bound, opinion, case)
    return CaseResult(str(bound.case), refused) if refused else None


def _drawn(bound: Bound, number: int, salt: str) -> list[Bound | Refusal | None]:
    """Return the kernel bound to random cases that fit the puzzle's contract."""
    with the_puzzles_own("its contract", bound.case):
        cases = bound.puzzle.drawn(salt)
    return [bound.at(case, number) for case in cases]


def _is_right(bound: Bound | Refusal | None, shared: _Shared) -> bool:
    """Return whether a kernel is correct, by one run, in a case that the puzzle doesn't have."""
    if not isinstance(bound, Bound):
        return False
    try:
        shared.budget.ask()
        inputs, expected = _wanted(bound.puzzle, bound.case)
        ran = attempt(bound, inputs, Options(seconds=shared.seconds, quiet=True))
    except (OutOfTime, PuzzleFault):
        return False
    return verdicts.judge(bound.puzzle, bound.case, inputs, expected, ran, explains=False) is None


def _drawn_cases(
    drawn: Sequence[Bound | Refusal | None], first: int, named: bool, shared: _Shared, opinions: _Opinions
) -> Iterator[CaseResult]:
    """Try the random cases up to the first failure. first: the place of the first of them."""
    for place, one in enumerate(drawn, first):
        opinion = opinions[place]
        opinions.begin(place + 1)
        if not isinstance(one, Bound) or opinion is None:
            continue
        result = _opined(one, opinion) or _check_case(
            one.taken(opinion), shared, backwards=False, named=place if named else None
        )
        if result.verdict:
            result = dataclasses.replace(result, verdict=_explained(one, result.verdict, shared))
        yield dataclasses.replace(result, number=place, drawn=True)
        if not result.ok:
            return


def _explained(one: Bound, verdict: Verdict, shared: _Shared, instead: str = "") -> Verdict:
    """Return the verdict on a case that isn't listed, with a reason that the listed cases don't refute.

    instead: this reason, unless a constant is the cause.
    """
    if verdict.kind != "values":
        return verdict
    text = blame.constant(one, _wanted, shared.seconds, shared.budget)
    if text and " NaN" in verdict.diagnosis:
        text = f"{text}; {verdict.diagnosis}"  # where the first NaN comes from
    text = text or instead
    if not text and verdict.diagnosis.startswith(tuple(one.puzzle.slips or {})):
        possible = dataclasses.replace(one, puzzle=blame.possible_slips(one.puzzle, _wanted))
        again = dataclasses.replace(shared, untested=Untested())
        if found := _check_case(possible, again, backwards=False).verdict:
            verdict = found
    return dataclasses.replace(verdict, diagnosis=text) if text else verdict


def _with_a_constant(told: Sequence[CaseResult], each: Sequence[object], shared: _Shared) -> list[CaseResult]:
    """Return the results; the first verdict now names a constant that is the cause, if nothing else is clear.

    each: the kernel bound to each listed case.
    """
    place = next((i for i, result in enumerate(told) if result.verdict), None)
    if place is None or place >= len(each):
        return list(told)
    verdict, one = told[place].verdict, each[place]
    if verdict is None or verdict.kind != "values" or verdict.site or not isinstance(one, Bound):
        return list(told)
    if verdict.diagnosis and not any(words in verdict.diagnosis for words in compare.VAGUE):
        return list(told)
    text = blame.constant(one, _wanted, shared.seconds, shared.budget)
    verdict = dataclasses.replace(verdict, diagnosis=text or verdict.diagnosis)
    return [*told[:place], dataclasses.replace(told[place], verdict=verdict), *told[place + 1 :]]


def _made_cases(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Try cases made for what no other case has tested, and return the first that fails, if there is one."""
    seconds = min(shared.seconds, made_cases.SECONDS)
    limited = dataclasses.replace(shared, seconds=seconds, budget=Budget(2 * seconds))
    ways = (
        _at_the_least_sizes,
        _made_for_the_kernel,
        _hard_cases,
        _made_at_edges,
        _made_whole,
        _beyond_a_stand_in,
        _with_a_constant_too_many,
    )
    return next((found for way in ways if (found := way(bound, number, limited))), [])


def _hard_cases(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Try the puzzle's hard cases. In pretended ones, only offsets that are too large count."""
    short = dataclasses.replace(shared, seconds=min(shared.seconds, made_cases.PRETENDED_SECONDS))
    for text, case in (bound.puzzle.hard or {}).items():
        its_own = dataclasses.replace(short if case.pretend else shared, untested=Untested())
        result = _made(bound.at(case, number), its_own)
        if result and result.verdict:
            verdict = result.verdict
            if verdict.kind not in made_cases.UNRELATED and not _fails_anyway(bound, case, number, its_own):
                verdict = dataclasses.replace(verdict, diagnosis=text)
            return [dataclasses.replace(result, verdict=verdict, drawn=True)]
    return []


def _fails_anyway(bound: Bound, case: Case, number: int, shared: _Shared) -> bool:
    """Return whether a kernel fails a hard case with ordinary values, too: then its values aren't the reason.

    A hard case that has no values of its own is about its sizes.
    """
    if case.pretend:
        return False
    with the_puzzles_own("its contract", case):
        ordinary = made_cases.with_ordinary_values(bound.puzzle, case)
    if ordinary is None:
        return False
    result = _made(bound.at(ordinary, number), dataclasses.replace(shared, untested=Untested()))
    return result is not None and not result.ok


def _at_the_least_sizes(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Return the case of the least sizes if the kernel can't be compiled for it."""
    try:
        with the_puzzles_own("its contract", bound.case):
            case = made_cases.smallest(bound.puzzle, bound.kernel.src)
    except PuzzleFault:
        return []
    one = bound.at(case, number) if case else None
    if not case or not isinstance(one, Bound):
        return []
    try:
        with the_puzzles_own("a fill", case):
            inputs = make_inputs(bound.puzzle, case)
        attempt(one, inputs, Options(seconds=shared.seconds, quiet=True))
    except Refused as error:
        verdict = verdicts.of_refusal_in_a_case(error.refusal, bound.puzzle, case)
        return [CaseResult(str(case), verdict, drawn=True)]
    except (OutOfTime, PuzzleFault):
        pass
    return []


def _made_at_edges(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Try made cases of which only the programs at the edges of the grid run."""
    seen: set[str] = set()
    seconds = min(shared.seconds, made_cases.PRETENDED_SECONDS)
    for op in shared.untested.one_sided():
        line = op.location.line
        narrowing = line if made_cases.is_of_indices(op) else None
        pretended = made_cases.at_true_size(bound.puzzle, op)
        while True:
            with the_puzzles_own("its contract", bound.case):
                case, integers = next(pretended, (None, {}))
            if case is None:
                break
            one = bound.at(case, number)
            if isinstance(one, Bound) and (
                verdict := check_true_size(one, seconds, shared.said, integers, narrowing).verdict
            ):
                if verdict.kind == "true size" and verdict.site and verdict.site.line == line:
                    text = f"no listed case is so large that line {line} goes wrong, but sizes may be"
                    verdict = dataclasses.replace(verdict, diagnosis=verdict.diagnosis or text)
                    return [CaseResult(str(case), verdict, drawn=True)]
            if shared.budget.used() >= made_cases.FOR_EDGES:
                break
        with the_puzzles_own("its contract", bound.case):
            vast = list(itertools.islice(made_cases.at_edges(bound.puzzle, op), made_cases.MOST_CASES))
        for case, programs in vast:
            if str(case) in seen or not made_cases.fits(bound.puzzle, case):
                continue
            seen.add(str(case))
            one = bound.at(case, number)
            made = Untested()
            if isinstance(one, Bound) and (verdict := _at_edges(one, shared, programs, made)):
                text = f"sizes beyond those of the listed cases reach the bound on line {line}"
                found = untested.named(verdict, shared.untested, made)
                verdict = dataclasses.replace(verdict, diagnosis=text) if found is verdict else found
                return [CaseResult(str(case), verdict, drawn=True)]
            if shared.budget.used() >= made_cases.FOR_EDGES:
                break
    return []


def _made_for_the_kernel(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Try cases for kernels that compare sizes or use float16, whatever was seen of these.

    Their time is their own, so that no other made case is left out for it.
    """
    shared = dataclasses.replace(shared, budget=Budget(made_cases.FOR_THE_KERNEL * shared.seconds))
    program = bound.translated()
    module = None if isinstance(program, Refusal) else program.module
    with the_puzzles_own("its contract", bound.case):
        uneven = bound.wrapped.has_heuristics or made_cases.compares_sizes(shared.untested.ops)
        products = made_cases.compares_products(shared.untested.ops)
        each = [(case, UNEVEN) for case in made_cases.uneven(bound.puzzle, products)] if uneven else []
        pairs = made_cases.together(bound.puzzle, shared.untested.ops)
        each = [(case, TOGETHER.format(*lines)) for case, lines in pairs] + each
        whole = made_cases.beyond_whole(bound.puzzle, module) if module else ()
        each = [(case, WHOLE.format(*found)) for case, found in whole] + each
        near = made_cases.small_ones(bound.puzzle, module) if module else ()
        each = [(case, SMALL.format(line)) for case, line in near] + each
        lanes = made_cases.beyond_lanes(bound.puzzle, shared.untested.ops.values())
        each = [(case, LANES.format(*found)) for case, found in lanes] + each
        each += [(case, PAST_HALF) for case in made_cases.beyond_half(bound.puzzle, module)] if module else []
    for case, text in each[: made_cases.MOST_CASES]:
        one = bound.at(case, number) if made_cases.fits(bound.puzzle, case) else None
        its_own = dataclasses.replace(shared, untested=Untested())
        result = _made(one, its_own)
        if isinstance(one, Bound) and result and result.verdict:
            verdict = untested.named(result.verdict, shared.untested, its_own.untested)
            if verdict is result.verdict:
                verdict = _explained(one, verdict, shared, "" if text == UNEVEN else text)
                facts = edges.without_cure(verdict.diagnosis)
                if not facts or facts != verdict.diagnosis:
                    verdict = dataclasses.replace(verdict, diagnosis="; ".join(filter(None, (facts, text))))
            return [dataclasses.replace(result, verdict=verdict, drawn=True)]
        if shared.budget.used() >= 1:
            break
    return []


UNEVEN = "blocks divide one size here, but not another, and no listed case has both"
TOGETHER = "the comparisons on lines {} and {} have results here that no listed case combines"
LANES = "the tl.arange on line {} ends at {}, but a size or a number of programs may be larger"
WHOLE = (
    "the cast on line {} loses whole numbers that {} does not have, but a size or an index may be so large"
)
SMALL = "small numbers lose bits on the way to line {}, although the task keeps them"
PAST_HALF = "numbers here are too large or too small for float16, which they are in no listed case"


def _made_whole(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Try made cases of which all programs run."""
    tried: set[str] = set()
    for op in (*shared.untested.one_sided(), None):
        with the_puzzles_own("its contract", bound.case):
            if op:
                each = made_cases.cases(bound.puzzle, op)
            else:
                each = made_cases.with_zeros(bound.puzzle, shared.untested.ops.values())
            cases = [case for case in each if str(case) not in tried]
        for case in cases[: made_cases.MOST_CASES]:
            tried.add(str(case))
            one = bound.at(case, number) if made_cases.fits(bound.puzzle, case) else None
            its_own = dataclasses.replace(shared, untested=Untested())
            result = _made(one, its_own)
            if result and result.verdict:
                verdict = untested.named(result.verdict, shared.untested, its_own.untested)
                if isinstance(one, Bound) and (verdict is result.verdict or op and untested.is_float(op)):
                    explained = _explained(one, result.verdict, shared)
                    verdict = explained if explained is not result.verdict else verdict
                return [dataclasses.replace(result, verdict=verdict, drawn=True)]
            if len(tried) >= made_cases.MOST_CASES or shared.budget.used() >= 1:
                return []
    return []


def _made(one: Bound | Refusal | None, shared: _Shared) -> CaseResult | None:
    """Return the result of a made case of which all programs run; None if it says nothing of the kernel."""
    if not isinstance(one, Bound):
        return None
    telling = ("true size",) if one.case.pretend else made_cases.TELLING
    quick = dataclasses.replace(shared, untested=Untested(), together=True)
    try:
        if not one.case.pretend:
            _wanted_in_time(one, shared.budget)
        result = _check_case(one, quick, backwards=False, explains=False)
        if result.verdict and result.verdict.kind not in telling:
            return None
        if result.verdict and not one.case.pretend:
            result = _check_case(one, shared, backwards=False)  # all that comparisons do is seen this time
    except (OutOfTime, Refused, PuzzleFault):
        return None
    if result.verdict and algebra.PERHAPS_ROUNDING in result.verdict.diagnosis:
        return None  # in float64, bits of floats mean something else: it cannot be judged
    return result


def _beyond_a_stand_in(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Try made cases with values beyond a constant that stands for infinity."""
    program = bound.translated()
    for constant, line in [] if isinstance(program, Refusal) else stand_ins.found(program.module):
        with the_puzzles_own("its contract", bound.case):
            cases = list(stand_ins.cases(bound.puzzle, constant))
        for case in cases:
            one = bound.at(case, number)
            result = _made(one, dataclasses.replace(shared, untested=Untested()))
            if not (result and result.verdict and isinstance(one, Bound)):
                pass
            elif blame.is_cured_by_infinity(one, _wanted, shared.seconds, shared.budget):
                text = blame.beyond(constant, line)
                verdict = dataclasses.replace(result.verdict, diagnosis=text)
                return [dataclasses.replace(result, verdict=verdict, drawn=True)]
            if shared.budget.used() >= 1:
                return []
    return []


def _with_a_constant_too_many(bound: Bound, number: int, shared: _Shared) -> list[CaseResult]:
    """Return the case if a constant such as 1e-6 is in the formula and not in the task's.

    It's the smallest listed case, or one of the least sizes: a sum of a single exponential is 1 there.
    """
    real = [case for case in bound.puzzle.cases if not case.pretend]
    if not real:
        return []
    case = min(real, key=lambda case: made_cases.size_of(bound.puzzle, case))
    if not isinstance(one := bound.at(case, number), Bound) or algebra.has_no_tiny_constant(one):
        return []
    for each in filter(None, (case, made_cases.of_least_sizes(bound.puzzle))):
        try:
            inputs, expected = _wanted(bound.puzzle, each)
            if isinstance(one := bound.at(each, number), Bound):
                judge = algebra.Judge(one, inputs, dict(expected), shared.seconds, shared.budget)
                if verdict := judge.constant_too_many():
                    return [CaseResult(str(each), verdict, drawn=each is not case)]
        except (OutOfTime, Refused, PuzzleFault):
            continue
    return []


def _at_edges(bound: Bound, shared: _Shared, programs: Sequence[Program], made: Untested) -> Verdict | None:
    """Run a few programs of a case, and return what is wrong with the elements that they store.

    made: gets what this run shows.
    """
    try:
        shared.budget.ask()
        inputs, expected = _wanted_in_time(bound, shared.budget)
        ran = attempt(bound, inputs, Options(seconds=shared.seconds, quiet=True, only=programs))
    except (OutOfTime, PuzzleFault, Refused):
        return None
    made.note(ran.sides)
    if not shared.untested.repeats and not ran.stop and (again := next(iter(ran.repeated.values()), None)):
        return verdicts.stored_again(bound.puzzle, bound.case, again)
    outputs = {}
    for name, got in ran.outputs.items():
        written = torch.from_numpy(ran.written[name]).reshape(got.shape)
        outputs[name] = torch.where(written, got, expected[name].value.to(got.dtype))
    whole = {name: np.ones_like(written) for name, written in ran.written.items()}
    ran = dataclasses.replace(ran, outputs=outputs, written=whole)
    verdict = verdicts.judge(bound.puzzle, bound.case, inputs, expected, ran)
    return verdict if verdict and verdict.kind in made_cases.AT_EDGES else None


def guarded(
    kernel: object, puzzle: Puzzle, case: Case, options: Options = LINE_BY_LINE
) -> tuple[Bound, Run] | Report:
    """Run a kernel on a case and check its accesses. Return a `Report` if it cannot be run at all.

    Accesses are kept, and an out-of-bounds one does not end the run.
    """

    def work() -> tuple[Bound, Run] | Report:
        bound = _ready(kernel, puzzle, case)
        if isinstance(bound, Report):
            return bound
        return bound, attempt(bound, make_inputs(puzzle, case), dataclasses.replace(options, record=True))

    try:
        return alone(work)
    except Busy as reason:
        return _busy(puzzle, reason)


def wanted(puzzle: Puzzle, case: Case) -> tuple[dict[str, torch.Tensor], dict[str, Expected]] | Report:
    """Return a case's inputs and expected results; a `Report` if the puzzle itself is at fault."""
    try:
        return alone(lambda: _wanted(puzzle, case))
    except Busy as reason:
        return _busy(puzzle, reason)
    except PuzzleFault as fault:
        return Report(puzzle.name, verdict=Verdict("puzzle", str(fault)))


def outputs(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], *, seconds: float
) -> dict[str, torch.Tensor] | Report:
    """Return a kernel's results on given inputs, by name; a `Report` if the run is not clean.

    A clean run has no fault that `check` would find without comparing values.
    """
    try:
        return alone(lambda: _outputs(kernel, puzzle, case, inputs, seconds))
    except Busy as reason:
        return _busy(puzzle, reason)


def stored(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], *, seconds: float
) -> tuple[Run, Verdict | None] | Report:
    """Return a run of a kernel on given inputs, which goes on after an access out of bounds, and its fault.

    Returns a `Report` if the kernel can't be run or its lines are missing.
    """

    def work() -> tuple[Run, Verdict | None] | Report:
        bound = _ready(kernel, puzzle, case)
        if isinstance(bound, Report):
            return bound
        ran = attempt(bound, inputs, Options(seconds=seconds, record=True))
        fault = verdicts.misconduct(puzzle, case, ran)
        if fault and is_untouched(bound.kernel):
            return Report(bound.kernel.__name__, verdict=verdicts.still_open(bound.kernel))
        return ran, fault

    try:
        return alone(work)
    except Busy as reason:
        return _busy(puzzle, reason)


def _outputs(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], seconds: float
) -> dict[str, torch.Tensor] | Report:
    bound = _ready(kernel, puzzle, case)
    if isinstance(bound, Report):
        wrapped = unwrap(kernel)
        if wrapped and is_untouched(wrapped.kernel) and not puzzle.broken_by:
            return Report(wrapped.kernel.__name__, verdict=verdicts.still_open(wrapped.kernel))
        return bound
    ran = attempt(bound, inputs, Options(seconds=seconds))
    verdict = verdicts.misconduct(puzzle, case, ran)
    if verdict and is_untouched(bound.kernel) and not puzzle.broken_by:
        return Report(bound.kernel.__name__, verdict=verdicts.still_open(bound.kernel))
    if verdict:
        is_own = puzzle.broken_by or bound.kernel.__name__ == f"{puzzle.name}_kernel"
        known = is_own and verdict.kind == "out of bounds"  # another kernel may compute something else
        notes = _wrong_so_far(puzzle, case, inputs, ran) if known else ()
        return Report(puzzle.name, (CaseResult(str(case), verdict),), notes=notes)
    return {result.name: ran.outputs[result.name] for result in puzzle.results}


def _wrong_so_far(
    puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], ran: Run
) -> tuple[str, ...]:
    """Return a line for each result of which wrong elements were stored before the run was stopped."""
    lines = []
    for name, wanted in expect(puzzle, case, inputs).items():
        found, value = ran.outputs[name], wanted.value
        equal = torch.isclose(found.to(value.dtype), value, rtol=1e-3, atol=1e-5, equal_nan=True)
        stored = torch.as_tensor(ran.written[name]).reshape(found.shape)
        places = (stored & ~equal).nonzero()
        if len(places):
            spans = zip(places.amin(0).tolist(), places.amax(0).tolist(), strict=True)
            where = ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)
            lines.append(f"wrong results before the run was stopped: {len(places)}, all in {name}[{where}]")
    return tuple(lines)


def _ready(kernel: object, puzzle: Puzzle, case: Case) -> Bound | Report:
    """Return the kernel bound to a case that the compiler accepts, or a report that says why not."""
    bound = bind(kernel, puzzle, case)
    if isinstance(bound, Refusal):
        return _refused(puzzle, bound)
    refusal = compiler.front_end(bound.kernel, bound.arguments)
    return _refused(puzzle, refusal) if refusal else bound


def _refused(puzzle: Puzzle, refusal: Refusal) -> Report:
    return Report(puzzle.name, verdict=verdicts.of_refusal(refusal))


def _check_case(
    bound: Bound,
    shared: _Shared,
    backwards: bool = True,
    named: int | None = None,
    explains: bool = True,
) -> CaseResult:
    """Try a case.

    named: its number for `watch`; None with a salt or for another configuration. explains: whether to look
        for the reason of a fault; a report tells only the first fault's.
    """
    if bound.case.pretend:
        return check_true_size(bound, shared.seconds, shared.said)
    try:
        return _run_case(bound, shared, backwards, named, explains)
    except OutOfTime as error:
        return CaseResult(str(bound.case), verdicts.out_of_time(error.seconds))


_kept: dict[tuple[int, str, str], tuple[Puzzle, dict[str, torch.Tensor], dict[str, Expected]]] = {}
KEPT = 200  # the number of cases whose inputs and results are kept from one check to the next


def _wanted(puzzle: Puzzle, case: Case) -> tuple[dict[str, torch.Tensor], dict[str, Expected]]:
    """Return a case's inputs and expected results. The caller must not change them."""
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
        )  # keeps the puzzle alive, so that no other gets its id
    return _kept[key][1:]


def _wanted_in_time(bound: Bound, budget: Budget) -> tuple[dict[str, torch.Tensor], dict[str, Expected]]:
    """Return what `_wanted` does. Raises OutOfTime if the spec takes more than the whole budget.

    A case that isn't listed can be so large that its spec takes minutes.
    """
    try:
        with time_limit(budget.seconds, inside=evaluate):
            return _wanted(bound.puzzle, bound.case)
    except TimeLimitReached:
        raise OutOfTime(budget.seconds) from None


def _run_case(
    bound: Bound, shared: _Shared, backwards: bool, named: int | None, explains: bool
) -> CaseResult:
    """Ask all probes about a case, and return its most basic fault."""
    inputs, expected = _wanted(bound.puzzle, bound.case)
    trial = probes.Trial(
        bound,
        inputs,
        algebra.Judge(bound, inputs, dict(expected), shared.seconds, shared.budget, explains),
        shared.arithmetic,
        shared.threads,
        shared.turns,
        shared.budget,
        shared.seconds,
        shared.said,
        backwards,
        shared.together,
        explains,
    )
    probes.tried(trial)
    shared.untested.note(trial.first.sides, bool(trial.first.repeated))
    return CaseResult(
        str(bound.case),
        trial.verdict,
        programs=trial.first.programs,
        bytes_moved=trial.first.bytes_moved,
        bytes_least=_least(bound.puzzle, bound.case),
        lane_bytes=trial.first.lane_bytes,
        watch=failure.watch_call(bound, named, trial.program) if trial.verdict and named is not None else "",
        draw=trial.draw,
    )


def _least(puzzle: Puzzle, case: Case) -> int:
    """Return the bytes that any kernel must move: what is needed of each input once, each output once."""
    total = 0
    for argument in puzzle.inputs + puzzle.results:
        needed = (puzzle.needed or {}).get(argument.name)
        elements = needed(case) if needed else math.prod(argument.shape(case.numbers))
        total += elements * argument.dtype.itemsize
    return total
