"""Audit a call: run every Triton kernel that it launches on the CPU, check each access, say what is wrong.

    from puzzles_lib import audit

    audit(softmax, x)                                            # bounds, races, undefined lanes, overflow
    audit(softmax, x, like=lambda x: torch.softmax(x, -1))       # and values, against a reference
    audit(softmax, x, like=..., hard=True)                       # and a battery of hard inputs

``softmax`` is your unchanged function. It can launch one or several kernels of any kind, also autotuned ones
and ones that work in place. `audited` does the same for a block of code, ``pytest --audit`` for a project's
tests, and ``python -m puzzles_lib.audit`` is the command.
"""

import collections
import contextlib
import dataclasses
import itertools
import math
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from puzzles_lib.auditor import edges, exchanged, sizes
from puzzles_lib.auditor import hard as hard_inputs
from puzzles_lib.auditor.aside import Ended, aside
from puzzles_lib.auditor.catching import plain, spread
from puzzles_lib.auditor.cuda import pretended
from puzzles_lib.auditor.cures import NOT_WRITTEN, is_general, with_strides
from puzzles_lib.auditor.exchanged import Change
from puzzles_lib.auditor.factors import Factor
from puzzles_lib.auditor.guard import MORE, Guard, guard_of
from puzzles_lib.auditor.held import entered
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.auditor.origins import Origins
from puzzles_lib.auditor.reference import (
    TooSlow,
    Uncomparable,
    Unfinished,
    Wanted,
    Wrong,
    cloned,
    compare,
    finite,
    flat,
    hides,
    keeping,
    lost_nan,
    returned,
    wanted,
)
from puzzles_lib.auditor.report import AuditReport, Finding, LaunchResult, told_place
from puzzles_lib.auditor.running import Outcome
from puzzles_lib.auditor.scalars import Scalars
from puzzles_lib.auditor.session import CONFIGURATIONS, Session, audited, found
from puzzles_lib.auditor.stores import Store, Stores, line_of
from puzzles_lib.auditor.unwritten import which, why_unwritten
from puzzles_lib.checker.expected import FLOAT32_ROUNDOFF
from puzzles_lib.checker.report import Verdict
from puzzles_lib.dtypes import of_torch
from puzzles_lib.stumbles import sentence_first

__all__ = ["AuditReport", "Finding", "Guard", "LaunchResult", "audit", "audited"]

HARD_SECONDS = 20.0  # of CPU time for all hard inputs of a call
HARD_RUN_SECONDS = 2.0  # likewise for a launch with one of them
SIZES_SECONDS = 1.0  # likewise for all pretended sizes
HARD_SIZES_SECONDS = 5.0
PRACTICAL = 1_000_000  # tokens or rows: many calls have as many
MOST_FINDINGS = 6
SMALLEST = 32  # roundoffs of the largest result by which tiny ones may be off


def audit(
    function: Callable[..., Any],
    /,
    *args: Any,
    like: Callable[..., Any] | None = None,
    hard: bool = False,
    resident: bool = False,
    guard: Guard | None = None,
    allowance: float = 0.0,
    vary: Mapping[str, Sequence[Any] | Callable[[], Sequence[Any]]] | None = None,
    **kwargs: Any,
) -> AuditReport:
    """Call ``function(*args, **kwargs)`` and report what is wrong with the kernels that it launches.

    function: any Python function that launches Triton kernels. It gets copies of the tensors, which say that
        they are on a GPU, and its launches run on the CPU.
    like: a reference function. It is called with the same arguments, as float64. It must return tensors
        of the same shapes in the same order, alone or in tuples, lists, dictionaries or dataclasses. If
        ``function`` works in place and returns None, the reference may do that, too. The tolerance is
        computed from how far the reference's results change when the inputs change by one rounding error.
        That's the rounding error of float32, or of the narrowest dtype of the kernel's tensors (TF32 for a
        `tl.dot` of float32 without ``input_precision="ieee"``). The report shows it ("allowed").
    hard: try hard inputs, too: zeros, infinities, NaN, ties, padded rows, other sizes, ... If your function
        never gets a tensor that isn't contiguous, pass ``guard=Guard(contiguous=True)``. It stops after 6
        findings, or after 20 seconds of CPU time.
    resident: all programs of each grid run at the same time, so that each may wait for any other one. A
        launch with ``launch_cooperative_grid=True`` promises that by itself.
    guard: what to look for; see `Guard`. ``hard`` and ``resident`` may also be given there.
    allowance: an extra tolerance for each element of a result, as a fraction of the largest element.
    vary: a dict from an argument's name to other values for it, such as ``{"n": [1, 17]}``, or to a function
        that returns them. These values are tried with ``hard=True`` and without. ``hard=True`` by itself
        doesn't change integers, because they may be indices or lengths. There is one exception: an integer
        that gives the row length of a flattened tensor changes along with the tensor.

    Returns an `AuditReport`. ``report.ok`` is False if anything is wrong, and ``report.findings`` says what.

    Raises TypeError or ValueError for a bad argument, for a call that launches no Triton kernel, and for a
    reference that raises or returns other shapes. Exceptions of ``function`` itself pass through.
    """
    __tracebackhide__ = True
    guard = guard_of(guard, "audit")
    _check(function, like, allowance, vary, {"hard": hard, "resident": resident})
    guard = dataclasses.replace(guard, hard=hard or guard.hard, resident=resident or guard.resident)
    named = hard_inputs.names(function, args, kwargs)
    others = _others(vary or {}, named)
    _check_names(guard, named)
    call = _Call(function, args, kwargs, like, guard, allowance)
    report = call.report
    first = call.run(args, kwargs, report)
    if not report.launches and not report.unjudged:
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"audit: {name} launches no Triton kernel with these arguments; a CUDA extension, or torch's own "
            "operators, cannot be audited"
        )
    _check_parameters(guard, report)
    if report.findings:
        call.compare_before(first)
        call.again_at_true_sizes()
    else:
        call.compare(first)
        call.again(others)
    call.exchange(first)
    report.be_strict()
    return report


def _others(
    vary: Mapping[str, Sequence[Any] | Callable[[], Sequence[Any]]], named: Sequence[str]
) -> dict[str, Sequence[Any]]:
    """Return the other values for arguments. named: what the arguments are called."""
    found = {}
    for name, values in vary.items():
        if name not in named:
            known = ", ".join(named) or "there are none"
            raise ValueError(f"audit: vary must name arguments ({known}), but names {name!r}")
        found[name] = given = values() if callable(values) else values
        if not isinstance(given, list | tuple):
            raise TypeError(f"audit: vary must have a list of values for {name}, but has {given!r}")
        if not given:
            raise ValueError(f"audit: vary must have at least one value for {name}, but has none")
    return found


def _check_names(guard: Guard, named: Sequence[str]) -> None:
    """Raise ValueError if a guard names arguments that the call doesn't have."""
    for name in () if isinstance(guard.contiguous, bool) else guard.contiguous:
        if name not in named and name not in {each.partition("[")[0] for each in named}:
            known = ", ".join(named) or "there are none"
            raise ValueError(f"audit: contiguous must name arguments ({known}), but names {name!r}")


def _check_parameters(guard: Guard, report: AuditReport) -> None:
    """Raise ValueError if a guard names parameters that no launched kernel has."""
    known = dict.fromkeys(name for each in report.launches for name in each.launch.tensors)
    for name in guard.unwritten:
        if name not in known and not report.unsupported:
            told = ", ".join(known) or "there are none"
            raise ValueError(f"audit: unwritten must name tensors of a kernel ({told}), but names {name!r}")


def _check(
    function: object, like: object, allowance: object, vary: object, switches: Mapping[str, object]
) -> None:
    if not callable(function):
        raise TypeError(f"audit: function must be a function, but is {function!r}")
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"audit: {name} must be True or False, but is {value!r}")
    if hasattr(function, "params") and hasattr(function, "fn"):
        name = getattr(function, "__name__", "kernel")
        raise TypeError(f"audit: {name} is a kernel; pass the function that launches it, such as a lambda")
    if like is not None and not callable(like):
        raise TypeError(f"audit: like must be a function, but is {like!r}")
    is_number = isinstance(allowance, int | float) and not isinstance(allowance, bool)
    if not is_number or not 0 <= float(allowance) < float("inf"):  # type: ignore[arg-type]
        raise ValueError(f"audit: allowance must be a number of at least 0, but is {allowance!r}")
    if vary is not None and not isinstance(vary, Mapping):
        raise TypeError(f"audit: vary must map names of arguments to lists of values, but is {vary!r}")


@dataclasses.dataclass
class _Ran:
    """What a call gave: the tensors that it returned, or changed in place."""

    results: list[torch.Tensor]
    coarsest: float
    changed: set[int]  # ids of the caller's tensors
    in_place: bool = False  # whether the function returned None
    read: str = ""  # the torch operator that read undefined elements
    where: list[torch.Tensor] | None = None  # elements that are as a whole run leaves them; None for all
    stores: Stores = dataclasses.field(default_factory=Stores)
    own: list[torch.Tensor] = dataclasses.field(default_factory=list)  # the results themselves, not copies
    origins: Origins = dataclasses.field(default_factory=Origins)

    def stored_before(self, launch: int, result: torch.Tensor) -> torch.Tensor:
        """Return which elements of a result were stored by earlier launches, and not changed since."""
        with plain():
            stores, written = list(self.stores.to(result)), self.stores.written(result)
            is_early = written is not None and all(store.launch < launch for store in stores)
            return _where(result, written if is_early else np.zeros(result.numel(), bool))

    def finding(self, wrong: Verdict, report: AuditReport, on: str = "") -> Finding:
        """Return what is wrong with a result as a finding, with the launch and the line that stored it."""
        bare = Verdict(wrong.kind, wrong.message, wrong.site, wrong.diagnosis)
        finding = _with_strides(Finding(bare, on=on), report)
        if not isinstance(wrong, Wrong):
            return finding
        result = self.own[wrong.result]
        with plain():
            stored = self.stores.of(result, wrong.element)
            last, written = next(self.stores.to(result), None), self.stores.written(result)
        left_out = ""
        if last is not None and written is not None:
            outcome = report.launches[last.launch].outcome
            left_out = _left_out(outcome, last, written, wrong.wrong, tuple(result.shape))
        site, how, store = None, "", last if left_out else None
        if stored is not None:
            store, element = stored
            site, how = line_of(report.launches[store.launch].outcome, store, element)
        if store is None:
            return self._computed(finding, result, report)
        told = "; ".join(filter(None, (how, left_out, finding.verdict.diagnosis)))
        verdict = dataclasses.replace(finding.verdict, site=site, diagnosis=told)
        outcome = report.launches[store.launch].outcome
        return found(dataclasses.replace(outcome, verdict=verdict), store.launch, on)

    def _computed(self, finding: Finding, result: torch.Tensor, report: AuditReport) -> Finding:
        """Add which kernels' results torch has computed a result from. The fault may be theirs or torch's."""
        with plain():
            numbers, operator = self.origins.of(result)
        if not numbers or not operator:
            return finding
        names = list(dict.fromkeys(report.launches[number].outcome.launch.name for number in sorted(numbers)))
        verb = "stores" if len(names) == 1 else "store"
        text = f"it comes from what {sizes.listed(names)} {verb}; the last operator is torch's {operator}"
        told = "; ".join(filter(None, (finding.verdict.diagnosis, text)))
        return dataclasses.replace(finding, verdict=dataclasses.replace(finding.verdict, diagnosis=told))


def _names(report: AuditReport) -> list[str]:
    return [each.outcome.launch.name for each in report.launches]


def _left_out(
    outcome: Outcome, last: Store, written: np.ndarray, wrong: np.ndarray, shape: tuple[int, ...]
) -> str:
    """Say that no program has stored some wrong elements, and why; "" if a launch has stored all of them.

    last: the last store to the result, in the launch of ``outcome``. written: whether a launch has stored
    each element. wrong: flat indices.
    """
    missing = wrong[~written[wrong]]
    if not len(missing):
        return ""
    named = which(missing, shape)
    if len(missing) == len(wrong):
        text = f"no program stores {named or 'them'}"
    else:
        text = f"no program stores {len(missing):,} of them" + (f", {named}" if named else "")
    # If elements that nothing stores are correct, the kernel may be meant to leave them out.
    is_all = bool(np.isin(np.flatnonzero(~written)[[0, -1]], missing).all())
    why = why_unwritten(outcome, last, written, shape) if is_all else ""
    return "; ".join(filter(None, (text, why)))


def _or_the_reference(finding: Finding, wrong: Verdict, ran: _Ran) -> Finding:
    """Return a finding with a doubt about the reference, if all values differ and there's no other reason."""
    verdict = finding.verdict
    count = ran.results[wrong.result].numel() if isinstance(wrong, Wrong) else 0
    if count < 2 or not isinstance(wrong, Wrong) or len(wrong.wrong) < count or verdict.diagnosis:
        return finding
    told = "all of them differ, so the reference may be wrong as well"
    return dataclasses.replace(finding, verdict=dataclasses.replace(verdict, diagnosis=told))


def _if_unchanged(wrong: Verdict, ran: _Ran, given: Sequence[torch.Tensor]) -> Verdict:
    """Return a verdict on a result that should be computed in place, and is still what the caller gave.

    given: the caller's tensors.
    """
    if not isinstance(wrong, Wrong) or not ran.in_place or wrong.diagnosis:
        return wrong
    if id(given[wrong.result]) in ran.changed:
        return wrong
    told = "the call hasn't changed it: does the function work on a copy, or return too early?"
    return dataclasses.replace(wrong, diagnosis=told)


class _Call:
    """One audited call, with its own inputs and with others."""

    def __init__(
        self,
        function: Callable,
        args: tuple,
        kwargs: dict[str, Any],
        like: Callable | None,
        guard: Guard,
        allowance: float,
    ):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.like, self.guard, self.allowance = like, guard, allowance
        self.report = AuditReport(getattr(function, "__name__", "audit"))
        self.changed: set[int] = set()
        self.largest = 0.0
        self.want: Wanted | None = None
        self.coarsest = 0.0
        self.read = ""
        self.in_place = True
        self.results = 0  # tensors that the function returns
        self.scalars = Scalars()  # of the first run

    def run(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        report: AuditReport,
        guard: Guard | None = None,
        on: str = "",
        configuration: int | None = None,
        poison: int = 0,
        change: Change | None = None,
    ) -> _Ran:
        """Call the function with copies of these arguments, and check its launches."""
        guard = guard or self.guard
        given, named = cloned((tuple(args), dict(kwargs)), keeping())
        stores = Stores()
        session = Session(
            guard, report, configuration=configuration, poison=poison, stores=stores, change=change
        )
        scalars = Scalars()
        with entered(pretended(scalars=scalars), session.active()):
            result = self.function(*given, **named)
        if report is self.report:
            self.scalars = scalars
        with plain():
            results = returned(result) if result is not None else flat((given, named))
            if hides(result):
                report.notes.append("tensors inside objects of other classes are not compared")
            before = flat((tuple(args), dict(kwargs)))
            after = flat((given, named))
            changed = {id(b) for b, a in zip(before, after, strict=True) if not _same(a, b)}
            if guard.undefined and _all_ran(report) and not report.unsupported:
                self._never_written(results, session, report, on, stores)
            where = None
            if report.is_sampled and not session.defined.reads_missing:
                where = [_where(t, session.defined.stored.elements(t)) for t in results]
            may = [not set(stores.names(t)).isdisjoint(guard.unwritten) for t in results]
            if any(may) and (where or not report.lacks_results):
                where = where or [_where(t, None) for t in results]
                for place, tensor in enumerate(results):
                    if may[place]:
                        where[place] &= _where(tensor, session.defined.elements(tensor))
            own, results = results, [t.detach().clone() for t in results]
        outcomes = [each.outcome for each in report.launches]
        coarsest = max((o.coarsest for o in outcomes), default=0.0)
        coarsest = max([coarsest, *(o.rounding for o in outcomes)])
        floats = [of_torch(t.dtype).roundoff or 0.0 for t in results if t.is_floating_point()]
        coarsest = max([coarsest, *floats, FLOAT32_ROUNDOFF])
        is_none = result is None
        return _Ran(
            results, coarsest, changed, is_none, session.defined.read, where, stores, own, session.origins
        )

    def _never_written(
        self, results: list[torch.Tensor], session: Session, report: AuditReport, on: str, stores: Stores
    ) -> None:
        if report.lacks_results:
            return
        for place, tensor in enumerate(results):
            holds = session.defined.elements(tensor)
            names = stores.names(tensor)
            if holds is None or not set(names).isdisjoint(session.guard.unwritten):
                continue
            missing, name = int((~holds).sum()), "the result" if len(results) == 1 else f"result {place}"
            first: list[int] = []
            rest = int(holds.argmin())
            for size in reversed(tensor.shape):
                rest, at = divmod(rest, size)
                first.insert(0, at)
            if holds.size == 1:
                text = f"{name} is never written"
            elif missing == 1:
                text = f"1 of {holds.size} elements of {name} is never written: {first}"
            else:
                text = f"{missing} of {holds.size} elements of {name} are never written. The first is {first}"
            verdict = Verdict("never written", text, diagnosis=NOT_WRITTEN)
            ask = f"; if that's on purpose, pass guard=Guard(unwritten=({names[0]!r},))" if names else ""
            if (store := next(stores.to(tensor), None)) is None:
                report.findings.append(Finding(verdict, on=on))
                continue
            outcome = report.launches[store.launch].outcome
            why = why_unwritten(outcome, store, holds, tuple(tensor.shape)) or verdict.diagnosis
            verdict = dataclasses.replace(verdict, diagnosis=why + ask)
            report.findings.append(found(dataclasses.replace(outcome, verdict=verdict), store.launch, on))

    def compare(self, ran: _Ran) -> None:
        """Compare the results with those of the reference."""
        report = self.report
        self.changed, self.largest, self.read = ran.changed, _largest(ran.results), ran.read
        self.in_place, self.results = ran.in_place, len(ran.results)
        if self.like is None:
            return
        lacks, count = report.lacks_results, _elements(ran)
        if lacks and not count and not self._has_whole_configurations():
            report.unjudged.append("values: not compared, because not all programs ran")
            return
        try:
            seconds = self.guard.seconds if lacks else math.inf
            want = self._wanted(self.args, self.kwargs, ran.coarsest, seconds)
        except Unfinished as error:
            report.unjudged.append(f"values: not compared, because {error}")
            self.like = None
            return
        except TooSlow as error:
            report.unjudged.append(f"values: not compared, because not all programs ran, and {error}")
            return
        self.want, self.coarsest = want, ran.coarsest
        if lacks and not count:
            report.unjudged.append("values: not compared, because not all programs ran")
            return
        try:
            verdict = compare(ran.results, want, ran.coarsest, self.allowance, False, where=ran.where)
        except Uncomparable as error:
            raise sentence_first(ValueError(f"audit: {error}")) from None
        report.compared = not lacks
        if verdict:
            wrong = _if_unchanged(verdict, ran, flat((self.args, self.kwargs)))
            report.findings.append(_or_the_reference(ran.finding(wrong, report), verdict, ran))
        elif lacks:
            report.unjudged.append(_compared_in_part(ran))

    def compare_before(self, ran: _Ran) -> None:
        """Compare the results that launches before the first finding stored, and list the others."""
        report, numbers = self.report, [finding.launch for finding in self.report.findings]
        if self.like is None:
            return
        self.in_place, self.results = ran.in_place, len(ran.results)
        first = min(0 if number is None else number for number in numbers)
        where = [ran.stored_before(first, result) for result in ran.own]
        left = [str(number) for number, each in enumerate(where) if not each.all()]
        if left:
            which = f"result{'s' * (len(left) > 1)} {sizes.listed(left)}: " if len(left) < len(where) else ""
            report.unjudged.append(
                f"values: {which}not compared, because a launch with a finding comes first"
            )
        if not any(each.any() for each in where):
            return
        try:
            want = self._wanted(self.args, self.kwargs, ran.coarsest, math.inf)
            verdict = compare(ran.results, want, ran.coarsest, self.allowance, False, where=where)
        except Unfinished as error:
            report.unjudged.append(f"values: not compared, because {error}")
            return
        except Uncomparable as error:
            raise sentence_first(ValueError(f"audit: {error}")) from None
        if verdict:
            report.findings.append(ran.finding(verdict, report))

    def exchange(self, ran: _Ran) -> None:
        """Say which two arguments of a launch are swapped, if nothing is wrong with them exchanged."""
        report = self.report
        first = next(iter(report.findings), None)
        kinds = exchanged.KINDS if self.like is not None else exchanged.WITHOUT_VALUES
        if first is None or first.on or first.verdict.kind not in kinds:
            return
        if first.launch is None and first.kernel:
            return  # a second launch of autotune's differs, which no exchange is judged by
        if self.like is None and (ran.in_place or not is_general(first.verdict.diagnosis)):
            return  # it's unclear whether all is stored, or there is a better reason
        kernels = dict.fromkeys([first.kernel.partition(" (")[0]] if first.kernel else _names(report))
        launches = {each.outcome.launch.name: each.outcome.launch for each in reversed(report.launches)}
        cured: list[str] = []
        with contextlib.suppress(Ended, Uncomparable, ValueError):
            races = first.verdict.kind == "race"
            cured = aside(lambda: self._exchanged([launches[name] for name in kernels], ran, races))
        if cured and (self.like is not None or len(cured) == 1):
            are, wrong = "are swapped", "nothing is wrong"
            if self.like is None:
                are, wrong = "may be swapped", "nothing is out of bounds or left out"
            text = f"{' or '.join(cured)} {are}, in the launch or in the kernel: with them exchanged, {wrong}"
            verdict = dataclasses.replace(first.verdict, diagnosis=text)
            report.findings[0] = dataclasses.replace(first, verdict=verdict)

    def _exchanged(self, launches: Sequence[Launch], ran: _Ran, races: bool) -> list[str]:
        """Return the exchanges after which all results are right, as far as that is known.

        races: whether races count.
        """
        end = time.thread_time() + self.guard.patience * exchanged.SECONDS
        guard = dataclasses.replace(self.guard, races=races, hints=False, configurations=False)
        tried = itertools.chain.from_iterable(map(exchanged.pairs, launches))
        cured = []
        for words, change in itertools.islice(tried, exchanged.MOST):
            if time.thread_time() > end:
                break
            own = AuditReport()
            try:
                other = self.run(self.args, self.kwargs, own, guard, change=change)
            except Exception:  # perhaps the function can't take what comes of it
                continue
            if own.findings or own.unjudged:
                continue
            if self.like is None:
                cured.append(words)
                continue
            if self.want is None:
                self.want = self._wanted(self.args, self.kwargs, ran.coarsest, math.inf)
            if not compare(other.results, self.want, ran.coarsest, self.allowance, False):
                cured.append(words)
        return cured

    def _has_whole_configurations(self) -> bool:
        """Whether a configuration of autotune ran wholly."""
        launches = self.report.launches if self.guard.configurations else []
        return any(each.launch.configuration and each.outcome.complete for each in launches)

    def again(self, others: Mapping[str, Sequence[Any]]) -> None:
        """Call the function again, in processes of their own: what it keeps between calls stays as it is."""
        report, want = self.report, self.want
        if self.read and not report.findings and not report.lacks_results:
            self._with_other_poison()
        if want is not None and not report.findings and self._depends_on_order():
            self._aside(lambda: self._in_other_orders(want))
        self.again_at_true_sizes()
        if (self.guard.hard or others) and len(report.findings) < MOST_FINDINGS and not report.unsupported:
            self._aside(lambda: self.with_hard_inputs(others))

    def again_at_true_sizes(self) -> None:
        """Pretend large sizes. After another finding, add only what is wrong: a new audit follows anyway."""
        report = self.report
        if not self.guard.sizes:
            return
        _ = torch.empty(0, device="meta") + 1  # torch's first such operator takes a second, once
        unjudged, notes, tried = list(report.unjudged), list(report.notes), list(report.tried)
        is_first = not report.findings
        self._aside(self.true_sizes)
        if not is_first:
            report.unjudged, report.notes, report.tried = unjudged, notes, tried

    def _aside(self, work: Callable[[], None]) -> None:
        """Do work that adds to the report, and keep nothing else of it."""
        report = self.report

        def told() -> tuple[list[Finding], list[str], list[str], list[str]]:
            work()
            return report.findings, report.unjudged, report.notes, report.tried

        try:
            report.findings, report.unjudged, report.notes, report.tried = aside(told)
        except Ended as error:
            report.unjudged.append(str(error))

    def _with_other_poison(self) -> None:
        """Compare what two fillings of `torch.empty` lead to, if an operator of torch's has read one."""
        guard = dataclasses.replace(self.guard, races=False, hints=False, configurations=False)

        def called(poison: int) -> list[torch.Tensor]:
            return aside(
                lambda: self.run(self.args, self.kwargs, AuditReport(), guard, poison=poison).results
            )

        try:
            one, two = called(0), called(1)
        except Ended as error:
            self.report.unjudged.append(str(error))
            return
        if len(one) == len(two) and all(
            a.shape == b.shape and _same(a, b) for a, b in zip(one, two, strict=True)
        ):
            return
        name = "the result" if len(one) == 1 else "the results"
        verb = "depends" if len(one) == 1 else "depend"
        text = f"{name} {verb} on elements that are never written: torch's {self.read} reads them"
        self.report.findings.append(Finding(Verdict("never written", text, diagnosis=NOT_WRITTEN)))

    def _depends_on_order(self) -> bool:
        """Whether values may depend on the order of the programs, or on the configuration of autotune."""
        launches = self.report.launches
        tuned = self.guard.configurations and any(each.launch.configuration for each in launches)
        return tuned or any("reverse order" in note for each in launches for note in each.outcome.notes)

    def _in_other_orders(self, want: Wanted) -> None:
        """Compare what other orders of the programs leave, and other configurations of autotune."""
        notes = [note for launch in self.report.launches for note in launch.outcome.notes]
        verdict = None
        if any("reverse order" in note for note in notes):
            verdict = self._in_reverse(want, self.coarsest)
        if verdict:
            self.report.findings.append(Finding(verdict))
        elif self.guard.configurations:
            self._each_configuration(want, self.report)

    def _each_configuration(self, want: Wanted, report: AuditReport) -> None:
        """Compare what each configuration of autotune leaves; the call itself keeps only the last one's."""
        count = max((each.launch.configurations for each in report.launches), default=0)
        guard = dataclasses.replace(self.guard, races=False)
        end, compared, in_part, tried = time.thread_time() + CONFIGURATIONS * guard.seconds, 0, 0, 0
        for number in spread(count):
            if tried and time.thread_time() > end:
                break
            own = AuditReport()
            ran = self.run(self.args, self.kwargs, own, guard, configuration=number)
            tried += 1
            if own.lacks_results and not _elements(ran):
                continue
            compared += not own.lacks_results
            in_part += own.lacks_results
            verdict = compare(ran.results, want, ran.coarsest, self.allowance, False, where=ran.where)
            if verdict:
                names = [each.launch.configuration for each in own.launches if each.launch.configuration]
                on = ", ".join(dict.fromkeys(names))
                report.findings.append(dataclasses.replace(ran.finding(verdict, own, on), launch=None))
                return
        for left, how in ((count - compared - in_part, "compare"), (in_part, "compare wholly")):
            if left:
                report.unjudged.append(
                    f"too large to {how}: the values of {left} of {count} configurations of autotune; {MORE}"
                )

    def _wanted(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], coarsest: float, seconds: float
    ) -> Wanted:
        assert self.like is not None
        try:
            return wanted(self.like, args, kwargs, coarsest, self.in_place, seconds, self.results)
        except Uncomparable as error:
            raise sentence_first(ValueError(f"audit: {error}")) from error

    def _wanted_of(self, variant: hard_inputs.Variant, coarsest: float) -> Wanted:
        """Return what the reference makes of hard inputs. Raises `Uncomparable` if it can't be asked."""
        assert self.like is not None
        given = variant.args, variant.kwargs
        return wanted(self.like, *given, coarsest, self.in_place, results=self.results)

    def _in_reverse(self, want: Wanted, coarsest: float) -> Verdict | None:
        """The verdict on a call whose programs run from the last to the first."""
        given, named = cloned((tuple(self.args), dict(self.kwargs)), keeping())
        own = AuditReport()
        session = Session(dataclasses.replace(self.guard, races=False), own, reverse=True)
        with entered(pretended(), session.active()):
            result = self.function(*given, **named)
        if own.lacks_results:
            self.report.unjudged.append("values: not all programs ran in reverse order")
            return None
        with plain():
            results = returned(result) if result is not None else flat((given, named))
            verdict = compare([t.detach().clone() for t in results], want, coarsest, self.allowance, False)
        if verdict is None:
            return None
        return Verdict("race", f"when the programs run in reverse order: {verdict.message}")

    def true_sizes(self) -> None:
        """Pretend each size so large that offsets pass 2**31."""
        report = self.report
        patience = self.guard.patience
        end = time.thread_time() + patience * (HARD_SIZES_SECONDS if self.guard.hard else SIZES_SECONDS)
        call = sizes.Call(self.function, self.args, self.kwargs, self.guard, self.scalars)
        paired: set[frozenset[int]] = set()
        names = hard_inputs.names(self.function, self.args, self.kwargs)
        given = self.args, self.kwargs
        left = collections.deque(sizes.ways(given, names))
        tensors = flat(given)
        listed: set[sizes.Axis] = set()  # in `report.tried` or `report.unjudged`: in the end, all axes are
        joint = {way.size for way in left}
        small = dict.fromkeys(n for t in tensors for n in t.shape if 1 < n <= sizes.OF_SEVERAL_ROLES)
        for size in small:
            left.extend(call.apart(size, names, end) if size not in joint else ())
        slow: list[tuple[sizes.Sized, list[str]]] = []  # loops that took too long, and what the report says
        shown: set[frozenset[int]] = set()  # sizes that were judged together
        roots: set[tuple[str, Factor]] = set()  # factors that were reported, and their files
        failed: set[int] = set()  # sizes with which the function does not run, or a kernel does not compile
        while left:
            way = left.popleft()
            if way.also and failed & {way.size, *way.also}:
                continue
            if time.thread_time() > end:
                listed |= {axis for each in (way, *left) for axis in each.changed(tensors)}
                untried = list(dict.fromkeys(each.axis(each.size) for each in (way, *left)))
                report.unjudged.append(f"not tried for lack of time: larger {sizes.listed(untried)}; {MORE}")
                break
            before = len(report.unjudged)
            tried = call.tried(way, end)
            end += call.taken_for_nothing()
            on = str(tried.way)
            if not way.last:  # the last part is the same size once more
                report.tried.append(on)
                listed |= tried.way.changed(tensors)
            is_first = not (way.also or way.rows or way.only or way.inner or way.last)
            if is_first and not any(outcome.verdict for outcome in tried.outcomes):
                left.extend(call.apart(way.size, names, end))
            if tried.limit and tried.limit != "memory" and not way.also and not way.rows:
                self._at_most(tried)
                # A size that cannot be large enough alone may be with another one.
                for pair in () if way.only else sizes.ways(given, names, {way.size: tried.way.large}):
                    if (both := frozenset((way.size, pair.size))) not in paired:
                        paired.add(both)
                        left.append(pair.within())
            is_slow = not (way.also or way.rows or way.only) and any(o.is_slow for o in tried.outcomes)
            if is_slow:  # a loop over this size ends sooner if another size is large, too
                for pair in call.shorter(way, names):
                    if (both := frozenset((way.size, *pair.also))) not in paired:
                        paired.add(both)
                        left.appendleft(pair)
                end += patience * edges.SECONDS  # what the loop has taken for nothing
            report.unjudged += [f"with {on}: {text}" for text in tried.unreached]
            if tried.nothing_yet and not way.rows:
                left += call.reaching(tried.way, names)
            if not way.inner and not way.last and not way.rows:
                if tried.nothing_yet and 2 < way.outer <= sizes.MOST_LAST:
                    left.append(way.to_last())
                if tried.clean and 1 < way.outer <= sizes.MOST_PARTS:
                    left.append(way.within())
            for outcome in tried.outcomes:
                if outcome.verdict:
                    finding = found(outcome, None, on)
                    # A factor that is too narrow in several lines is one fault, cured where it is set.
                    factor = (finding.file, outcome.factor) if outcome.factor else None
                    if factor not in roots and not any(
                        finding.repeats(earlier) for earlier in report.findings
                    ):
                        report.findings.append(finding)
                    if factor is not None:
                        roots.add(factor)
                elif outcome.unjudged and not way.last:
                    report.unjudged.append(f"with {on}: {outcome.unjudged}")
            if way.also and (tried.clean or any(outcome.verdict for outcome in tried.outcomes)):
                shown |= {frozenset((way.size, *way.also))}
            if is_slow:
                slow.append((way, report.unjudged[before:]))
            if tried.why and not way.last:
                report.unjudged.append(f"with {on}: {tried.why}")
            if (
                not way.rows
                and not way.only
                and (tried.why or any(o.unjudged and not o.is_slow for o in tried.outcomes))
            ):
                failed.add(way.size)
        for way, texts in slow:
            if call.partners(way) <= {size for both in shown if way.size in both for size in both}:
                report.unjudged = [text for text in report.unjudged if text not in texts]
        report.unjudged += sizes.left_out(given, names, listed)
        for noted in call.assumed:
            value = textwrap.shorten(str(noted.value), 40, placeholder=" ...")
            where = told_place(noted.place) if noted.place else "a number that the function reads"
            report.notes.append(f"at large sizes, audit assumes that this is still {value}: {where}")

    def _at_most(self, tried: sizes.Tried) -> None:
        """Say which size no GPU launches. It fails loudly, so it is a finding only with ``hard=True``."""
        axes = tried.way.axis(tried.way.size)
        text = f"no GPU launches this with {axes} above {tried.most:,}: {tried.limit}"
        if self.guard.hard and tried.most < PRACTICAL:
            self.report.findings.append(Finding(Verdict("true size", text)))
        else:
            self.report.notes.append(text)

    def with_hard_inputs(self, others: Mapping[str, Sequence[Any]]) -> None:
        """Try hard inputs, up to the first few that fail."""
        report, patience = self.report, self.guard.patience
        end = time.thread_time() + patience * HARD_SECONDS
        seconds = min(self.guard.seconds, patience * HARD_RUN_SECONDS)
        guard = dataclasses.replace(self.guard, configurations=False, seconds=seconds)
        told: set[tuple[str, object]] = {(f.verdict.kind, f.verdict.site) for f in report.findings}
        is_wrong = any(kind == "values" for kind, _ in told)
        tried = hard_inputs.variants(self.function, self.args, self.kwargs, self.changed, others, self.guard)
        bound: set[int] = set()  # sizes that other sizes must fit
        for variant in tried:
            if variant.size and variant.size in bound:
                continue
            if time.thread_time() > end:
                report.unjudged.append(
                    f"not tried for lack of time: hard inputs from {variant.name} on; {MORE}"
                )
                return
            own = AuditReport()
            try:
                if not self._variant(variant, own, guard):
                    bound.add(variant.size if variant.usual else 0)
                    continue
            except Exception as error:
                bound.add(variant.size if variant.usual else 0)
                words = textwrap.shorten(f"{type(error).__name__}: {error}", 100, placeholder=" ...")
                report.unjudged.append(f"with {variant.name}: the function raises {words}")
                continue
            report.tried.append(variant.name)
            report.unjudged += [f"with {variant.name}: {text}" for text in own.unjudged]
            for finding in own.findings:
                if finding.verdict.kind in ("compiler", "launch"):  # refused, loudly, before anything runs
                    said = ": ".join(filter(None, (finding.verdict.message, finding.verdict.diagnosis)))
                    report.unjudged.append(f"with {variant.name}: {said}")
                    continue
                kind = finding.verdict.kind
                values = variant.kind, variant.is_finite  # what finite numbers show isn't hidden
                key = kind, values if kind == "values" else finding.verdict.site or variant.kind
                if is_wrong and finding.verdict.kind == "values":  # as with the call's own inputs
                    continue
                if variant.is_vector:  # few functions promise to take such a vector
                    text = f"with {variant.name}: {finding.verdict.message}"
                    self._note_once(text, "does the kernel assume a stride of 1?")
                    continue
                if key not in told:
                    told.add(key)
                    finding = _with_strides(finding, own) if variant.has_strides else finding
                    report.findings.append(dataclasses.replace(finding, launch=None, on=variant.name))
            if len(report.findings) >= MOST_FINDINGS:
                return

    def _note_once(self, text: str, why: str) -> None:
        """Note the first of the hard inputs that show the same."""
        if not any(note.endswith(why) for note in self.report.notes):
            self.report.notes.append(f"{text}; {why}")

    def _floor(self, variant: hard_inputs.Variant) -> float:
        """How far off tiny results may be: what a kernel adds to them and takes away again may be no smaller
        than the results of the call as it is.
        """
        return SMALLEST * FLOAT32_ROUNDOFF * self.largest if variant.is_tiny else 0.0

    def _variant(self, variant: hard_inputs.Variant, own: AuditReport, guard: Guard) -> bool:
        """Judge a call with hard inputs. Returns False if the reference cannot be asked."""
        want, refused = None, ""
        if self.like is not None:
            try:
                want = self._wanted_of(variant, FLOAT32_ROUNDOFF)
            except Uncomparable as error:
                if not variant.is_given:
                    return False  # what the reference cannot do is nobody's fault
                refused = textwrap.shorten(str(error), 100, placeholder=" ...")
        ran = self.run(variant.args, variant.kwargs, own, guard, variant.name)
        if refused and not own.findings:
            own.unjudged.append(f"values: not compared, because {refused}")
        if not variant.is_finite and not (want and want.own and _finite(want.own)):
            own.findings = [f for f in own.findings if f.verdict.kind != "uninitialized"]
        if want is None or own.findings or (own.unjudged and not _elements(ran)):
            return True
        if ran.coarsest > FLOAT32_ROUNDOFF and self.like is not None:
            want = self._wanted_of(variant, ran.coarsest)
        if variant.makes_ties:  # which of several NaN, infinities or zeros is the largest, nobody says
            want = want.but_no_indices(not variant.is_finite)
        verdict: Verdict | None
        try:
            floor = self._floor(variant)
            verdict = compare(ran.results, want, ran.coarsest, self.allowance, True, floor, ran.where)
        except Uncomparable as error:
            verdict = Verdict("values", str(error))
        if verdict and variant.has_infinities and (depends := want.depends()):
            # Such as 0 times infinity: the reference's result says nothing of the infinity.
            judged = [d | (found == found) for found, d in zip(ran.results, depends, strict=True)]
            judged = [j & w for j, w in zip(judged, ran.where or judged, strict=True)]
            if not compare(ran.results, want, ran.coarsest, self.allowance, True, floor, judged):
                why = "it doesn't depend on the infinity, so is this 0 times inf?"
                self._note_once(f"with {variant.name}: {verdict.message}", why)
                verdict = None
        if variant.has_nan and (lost := lost_nan(ran.results, want, ran.where, verdict is not None)):
            verdict, is_ignored = lost
            if is_ignored:  # many kernels promise no more
                self._note_once(f"with {variant.name}: {verdict.message}", verdict.diagnosis)
                verdict = None
        if verdict:
            verdict = _if_unchanged(verdict, ran, flat((variant.args, variant.kwargs)))
            own.findings.append(ran.finding(verdict, own, variant.name))
        return True


def _all_ran(report: AuditReport) -> bool:
    """Whether no fault has kept a launch from storing what it stores."""
    kinds = {finding.verdict.kind for finding in report.findings}
    return kinds <= {"uninitialized", "race"} and not any(each.outcome.stopped for each in report.launches)


def _with_strides(finding: Finding, report: AuditReport) -> Finding:
    """Return a finding that says which tensors of the launches aren't contiguous."""
    launches = report.launches if finding.launch is None else [report.launches[finding.launch]]
    return dataclasses.replace(finding, verdict=with_strides(finding.verdict, [r.launch for r in launches]))


def _where(tensor: torch.Tensor, stored: np.ndarray | None) -> torch.Tensor:
    """Return which elements of a tensor are stored. stored: by flat index; None for all."""
    if stored is None:
        return torch.ones(tensor.shape, dtype=torch.bool)
    return torch.from_numpy(stored).reshape(tensor.shape)


def _elements(ran: _Ran) -> int:
    """Return how many elements of a sampled call can be compared."""
    return sum(int(each.sum()) for each in ran.where or ())


def _compared_in_part(ran: _Ran) -> str:
    of = sum(tensor.numel() for tensor in ran.results)
    return f"values: {_elements(ran):,} of {of:,} elements were compared: other programs would store the rest"


def _largest(tensors: Sequence[torch.Tensor]) -> float:
    sizes = [t.abs().double() for t in tensors if t.is_floating_point() and t.numel()]
    return max((float(size[size.isfinite()].max()) for size in sizes if size.isfinite().any()), default=0.0)


def _finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether there are floats, and none is infinite or NaN."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    return bool(floats) and all(bool(finite(tensor).all()) for tensor in floats)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same values."""
    one, other = one.detach(), other.detach()
    if one.is_floating_point():
        one, other = one.double(), other.double()
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    return torch.equal(one, other)
