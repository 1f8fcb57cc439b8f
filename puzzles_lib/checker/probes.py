"""The order of a check: which faults it looks for in a case, the most basic first.

`PROBES` is that order. The first probe runs the kernel. Each further one may run it again, in another order
of the programs or with other addresses, and is asked only if its condition holds. The first fault that is
found ends the search, unless a probe further down names a more basic one (`LESS_BASIC`).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from puzzles_lib.binding import Bound
from puzzles_lib.checker import (
    algebra,
    arithmetic,
    atomicity,
    edges,
    failure,
    idle,
    misplaced,
    naming,
    sums,
    unwritten,
    verdicts,
)
from puzzles_lib.checker.arithmetic import Known
from puzzles_lib.checker.attempts import Budget, attempt, blank, fill_in_place
from puzzles_lib.checker.compare import WRONG_AT, slip_so_far
from puzzles_lib.checker.expected import Expected
from puzzles_lib.checker.promises import of_hints
from puzzles_lib.checker.races import Threads
from puzzles_lib.checker.report import Draw, Verdict
from puzzles_lib.runner import ELSEWHERE, LINE_BY_LINE, NaNs, Options, Program, Run

LESS_BASIC = ("input changed", "values", "loads", "stores", "operations")
"""The kinds of verdict that a race between the threads of a program takes precedence over."""

ENOUGH = 1  # of the first cases, and of the last, that run in float64 too: a wrong formula is wrong in all

HALF = 0.5

FIRST_ALONE = Options(only=[(0, 0, 0)], record=True, quiet=True)


@dataclass
class Trial:
    """One case while it is tried.

    backwards: whether to try the programs in another order, too. together: whether many programs may run at
    once, so that it isn't seen what comparisons do. explains: whether to look for the reason of a fault.
    forwards: the first run, from the first program to the last. compiled: a run with a compiler's arithmetic,
    once there is one. program, draw: the program in which the fault shows, and how to draw it.
    """

    bound: Bound
    inputs: Mapping[str, torch.Tensor]
    judged: algebra.Judge
    known: Known
    threads: Threads
    turns: atomicity.Budget
    budget: Budget
    seconds: float
    said: set[str]
    backwards: bool
    together: bool = False
    explains: bool = True
    forwards: Run | None = None
    compiled: Run | None = None
    verdict: Verdict | None = None
    program: Program | None = None
    draw: Draw | None = None

    def run(self, options: Options = LINE_BY_LINE, results: Mapping[str, torch.Tensor] | None = None) -> Run:
        """Run the kernel once; results as for `attempt`."""
        self.budget.ask()
        options = replace(options, seconds=self.seconds, said=self.said, together=self.together)
        return attempt(self.bound, self.inputs, options, results=results)

    @property
    def first(self) -> Run:
        """The first run."""
        assert self.forwards is not None
        return self.forwards

    @property
    def expected(self) -> dict[str, Expected]:
        return self.judged.expected

    @property
    def as_compiled(self) -> bool:
        """Whether the first run had a compiler's arithmetic."""
        return self.forwards is self.compiled

    def shows_in(self, ran: Run) -> None:
        """Note in which program of a run the fault shows, and how to draw it."""
        if self.verdict:
            self.program = failure.telling_program(self.verdict, ran, self.expected)
            self.draw = failure.drawing(self.bound, self.verdict, ran, self.inputs, self.expected)


class Probe(NamedTuple):
    """One step: its name, when it is asked, what it finds, and whether that only explains a known fault."""

    name: str
    when: Callable[[Trial], bool]
    find: Callable[[Trial], Verdict | None]
    explains: bool = False


def tried(trial: Trial) -> None:
    """Ask all probes in their order; the trial then has the first run and the most basic fault."""
    for probe in PROBES:
        if probe.explains and not trial.explains:
            continue
        if probe.when(trial) and (found := probe.find(trial)):
            trial.verdict = found


def _always(trial: Trial) -> bool:
    return True


def _sound(trial: Trial) -> bool:
    """Whether nothing is wrong so far."""
    return trial.verdict is None


def _in_order(trial: Trial) -> Verdict | None:
    """A fault of a run in launch order."""
    differs = trial.known.differs
    trial.forwards = trial.run(Options(as_compiled=differs))
    trial.compiled = trial.forwards if differs else None
    if differs and not trial.judged.accepts(trial.forwards):  # a fault that shows line by line comes first
        trial.forwards = trial.run(Options(quiet=True))
    verdict = trial.judged(trial.forwards)
    seen = trial.first.arithmetic
    wide = any(each.is_floating_point() and each.itemsize > 2 for each in trial.inputs.values())
    trial.known.in_tf32 |= seen.in_tf32 if wide else seen.inexact  # TF32 keeps all bits of a float16
    trial.verdict = verdict
    trial.shows_in(trial.first)
    return verdict


def _waits_for_ever(trial: Trial) -> bool:
    if trial.verdict is None or trial.verdict.kind != "deadlock" or trial.bound.resident:
        return False
    return "plain load" not in trial.verdict.diagnosis


def _whom_it_waits_for(trial: Trial) -> Verdict | None:
    """The same fault with what would help, from a run in which all programs run at the same time."""
    assert trial.verdict is not None
    ran = trial.run(Options(resident=True, quiet=True))
    return verdicts.would_end(trial.verdict, ran, trial.bound.puzzle, trial.bound.case)


def _is_unwritten(trial: Trial) -> bool:
    return trial.verdict is not None and trial.verdict.kind == "never written"


def _why_unwritten(trial: Trial) -> Verdict | None:
    """The same fault with its reason: axes of the grid that are swapped, or what a run's accesses show."""
    if _may_be_exchanged(trial) and (swapped := _with_axes_exchanged(trial)):
        return swapped
    recorded = trial.run(Options(record=True, quiet=True))
    return unwritten.why_never_written(trial.bound.puzzle, trial.bound.case, recorded, trial.bound.kernel.src)


def _which_slip_so_far(trial: Trial) -> Verdict | None:
    """The same fault with the slip that explains what was stored before it; None if that isn't clear."""
    assert trial.verdict is not None
    ran, bound = trial.first, trial.bound
    text = slip_so_far(trial.expected, ran.outputs, ran.written, bound.puzzle, bound.case, trial.inputs)
    return replace(trial.verdict, diagnosis=text) if text else None


def _is_loaded_too_often(trial: Trial) -> bool:
    return (
        trial.verdict is not None and trial.verdict.kind == "loads" and " are enough" in trial.verdict.message
    )


def _who_needs_no_load(trial: Trial) -> Verdict | None:
    """The same fault with a program that loads the tensor and stores nothing; None if there is none."""
    assert trial.verdict is not None
    recorded = trial.run(Options(record=True, quiet=True))
    return unwritten.idle_program_loads(trial.verdict, trial.bound.puzzle, trial.bound.case, recorded)


def _is_beyond(trial: Trial) -> bool:
    verdict = trial.verdict
    return verdict is not None and verdict.kind == "out of bounds" and not verdict.diagnosis


def _may_be_a_slip(trial: Trial) -> bool:
    """Whether the stored values may say why: places are out of bounds, or depend on loaded values."""
    verdict = trial.verdict
    vague = (unwritten.LOADED, unwritten.SAME_PLACES, unwritten.NEARBY, naming.NOT_STORED)
    told = (
        verdict is not None
        and verdict.kind == "never written"
        and (not verdict.diagnosis or any(text in verdict.diagnosis for text in vague))
    )
    return told or _is_beyond(trial)


def _races_with_slips(trial: Trial) -> bool:
    verdict = trial.verdict
    told = verdict is not None and verdict.kind == "race" and not verdict.diagnosis
    return told and bool(trial.bound.puzzle.slips) and not trial.first.atomics


def _which_slip_in_reverse(trial: Trial) -> Verdict | None:
    """The same race with the slip that explains what is stored if the first program is the last to run."""
    assert trial.verdict is not None
    ran, bound = trial.run(Options(reverse=True, quiet=True)), trial.bound
    text = slip_so_far(trial.expected, ran.outputs, ran.written, bound.puzzle, bound.case, trial.inputs)
    return replace(trial.verdict, diagnosis=text) if text else None


def _why_beyond(trial: Trial) -> Verdict | None:
    """Return the same fault with its reason: a moved pointer, or an axis that the mask leaves out."""
    assert trial.verdict is not None
    recorded = trial.run(Options(record=True, quiet=True))
    puzzle, case = trial.bound.puzzle, trial.bound.case
    return (
        unwritten.of_another_tensor(trial.verdict, puzzle, recorded, trial.bound.kernel.src)
        or unwritten.of_a_moved_pointer(trial.verdict, recorded, trial.bound.kernel.src)
        or unwritten.of_a_wrong_stride(trial.verdict, puzzle, case, recorded)
        or misplaced.misplaced(trial.verdict, puzzle, case, trial.inputs, recorded)
        or edges.past_an_edge(trial.verdict, puzzle, case, recorded, trial.bound.kernel.src)
    )


def _which_lanes_are_on(trial: Trial) -> Verdict | None:
    """Return the same fault with how many lanes of a vector are on and have no element; None if not clear."""
    assert trial.verdict is not None
    return edges.past_the_end(trial.verdict, trial.run(Options(record=True, quiet=True)))


def _is_vague(trial: Trial) -> bool:
    """Whether the report on wrong values says at most where they are."""
    verdict = trial.verdict
    if verdict is None or verdict.kind != "values" or verdict.site:
        return False
    return not verdict.diagnosis or verdict.diagnosis.startswith(WRONG_AT)


def _which_element_instead(trial: Trial) -> Verdict | None:
    """Return the same fault with the first lane that has a wrong element; None if it isn't clear."""
    assert trial.verdict is not None
    recorded = trial.run(Options(record=True, quiet=True))
    puzzle, case = trial.bound.puzzle, trial.bound.case
    return misplaced.misplaced(trial.verdict, puzzle, case, trial.inputs, recorded)


def _races_at_a_store(trial: Trial) -> bool:
    verdict = trial.verdict
    return verdict is not None and verdict.kind == "race" and not verdict.diagnosis


def _who_goes_past_a_row(trial: Trial) -> Verdict | None:
    """Return the same fault with its reason: a lane past the end of a row writes into the next row."""
    assert trial.verdict is not None
    recorded = trial.run(Options(record=True, quiet=True))
    return edges.stored_past_an_edge(trial.verdict, trial.bound.puzzle, trial.bound.case, recorded)


def _is_of_lanes(trial: Trial) -> bool:
    source = trial.first.undefined
    return trial.verdict is not None and trial.verdict.kind == "uninitialized" and source is not None \
        and source.kind == "lanes"  # fmt: skip


def _which_cure(trial: Trial) -> Verdict | None:
    """Return the same fault with the cure that fits its lanes."""
    assert trial.verdict is not None and trial.first.undefined is not None
    recorded = trial.run(Options(record=True, quiet=True))
    puzzle, case = trial.bound.puzzle, trial.bound.case
    if past := edges.stored_past_an_edge(trial.verdict, puzzle, case, recorded):
        return past
    cured = edges.cure_of_lanes(trial.verdict, trial.first.undefined, puzzle, case, recorded)
    if cured is None:
        return None
    zeros = trial.run(Options(holes_are_zero=True, quiet=True, as_compiled=trial.as_compiled))
    return edges.where_zero_is_wrong(cured, trial.judged(zeros), puzzle)


def _threads_may_race(trial: Trial) -> bool:
    return trial.first.suspect and (trial.verdict is None or trial.verdict.kind in LESS_BASIC)


def _within_a_program(trial: Trial) -> Verdict | None:
    """A race between two threads of one program."""
    race = trial.threads.race(trial.bound, trial.run)
    if race:
        trial.program, trial.draw = None, None
    return race


def _false_hints(trial: Trial) -> Verdict | None:
    """The harm of a false hint."""
    return of_hints(trial.bound, trial.first, trial.run)


def _order_matters(trial: Trial) -> bool:
    return _sound(trial) and trial.backwards and trial.first.order_matters


def _in_reverse(trial: Trial) -> Verdict | None:
    """A fault that shows only if the programs run from the last to the first."""
    waits = trial.first.atomics > 0
    verdict = _in_another_order(trial, "in reverse order", Options(reverse=True, waits=waits))
    if verdict is None or not waits or verdict.kind != "race":
        return verdict
    programs = [trial.first.launched[number] for number in reversed(range(trial.first.programs))]
    backwards = Options(only=programs, waits=waits)  # lanes as in the first run
    alone = _in_another_order(trial, "in reverse order", backwards)
    return verdict if alone else verdicts.depends_on_lanes(verdict)


def _may_count_arrivals(trial: Trial) -> bool:
    """Whether a program may learn how many were before it; the middle one of three has one in any case."""
    return _order_matters(trial) and trial.first.atomics > 0 and trial.first.programs > 2


def _from_the_middle(trial: Trial) -> Verdict | None:
    """A fault that shows in neither order, because what a program finds is the same from both ends."""
    count = trial.first.programs
    order = sorted(range(count), key=lambda number: (abs(2 * number - count), number))
    programs = [trial.first.launched[number] for number in order]
    axes = len(trial.bound.puzzle.grid(trial.bound.case))
    named = verdicts.on_the_grid(f"program {programs[0]}", axes)
    return _in_another_order(trial, f"in another order, {named} first", Options(only=programs))


def _in_another_order(trial: Trial, order: str, options: Options) -> Verdict | None:
    """A fault that shows only if the programs run in another order than that of the launch.

    order: in words, and as options of a run. Without ``waits``, a program that waits for
    another one may end the run, which is no fault.
    """
    ran = trial.run(replace(options, quiet=True, as_compiled=trial.as_compiled))
    if ran.stop and ran.stop.kind in atomicity.UNENDING and not (options.waits or trial.bound.resident):
        return None
    verdict = trial.judged(ran)
    early = ran.undefined is not None and ran.undefined.kind == "early"
    own = ("race", "time limit") if early else ("race", "time limit", "uninitialized")
    if verdict and verdict.kind not in own:
        return verdicts.depends_on_order(verdict, order)
    if verdict is None and trial.bound.puzzle.same_bits:
        return verdicts.other_bits(trial.bound.puzzle, trial.bound.case, trial.first, ran, order)
    return verdict


def _has_locks(trial: Trial) -> bool:
    return _sound(trial) and trial.backwards and bool(trial.bound.puzzle.locks)


def _under_locks(trial: Trial) -> Verdict | None:
    """A store without the lock, a program that does not wait for it, or one lock for what has several."""
    puzzle, case = trial.bound.puzzle, trial.bound.case
    all_held = {result.name: blank(puzzle, result, case) for result in puzzle.results}
    fill_in_place(puzzle, all_held, trial.inputs)
    for name in puzzle.locks:
        all_held[name].fill_(1)
    held = trial.run(FIRST_ALONE, all_held)
    return (
        verdicts.unlocked(puzzle, case, trial.first)
        or verdicts.locked_out(puzzle, case, held)
        or verdicts.gave_up(puzzle, case, held, trial.run(FIRST_ALONE))
        or verdicts.unused_lock(puzzle, case, trial.run(Options(record=True, quiet=True)))
    )


def _between_atomics(trial: Trial) -> Verdict | None:
    """A fault that shows only if another program runs between two atomics of a program."""
    return atomicity.lost(trial.bound, trial.judged, trial.first, trial.run, trial.turns, trial.threads)


def _looks_at_addresses(trial: Trial) -> bool:
    return _sound(trial) and trial.first.tells_addresses


def _elsewhere(trial: Trial) -> Verdict | None:
    """A fault that shows only if the tensors have other addresses."""
    for choice in ELSEWHERE:
        moved = trial.run(Options(elsewhere=choice, quiet=True, as_compiled=trial.as_compiled))
        if other := trial.judged(moved):
            return verdicts.depends_on_addresses(other)
    return None


def _compiler_computes_otherwise(trial: Trial) -> bool:
    if not _sound(trial) or trial.as_compiled:
        return False
    return arithmetic.may_differ(trial.first.arithmetic, trial.expected)


def _as_compiled(trial: Trial) -> Verdict | None:
    """A fault that shows only in the arithmetic that a compiler makes of the lines."""
    compiled = trial.compiled or trial.run(Options(as_compiled=True, quiet=True))
    trial.known.differs = True
    trial.verdict = arithmetic.of_compiled(trial.bound, trial.judged(compiled), compiled, trial.known)
    trial.shows_in(compiled)
    return trial.verdict


def _rounding_hides(trial: Trial) -> bool:
    if not (_sound(trial) and trial.backwards and trial.judged.may_hide()):
        return False
    listed = [str(case) for case in trial.bound.puzzle.cases if not case.pretend]
    return str(trial.bound.case) not in listed[ENOUGH:-ENOUGH]


def _in_float64(trial: Trial) -> Verdict | None:
    """A wrong formula that passes because its results are rounded to 16 bits."""
    return trial.judged.hidden(trial.first)


def _has_wrong_values_and_no_line(trial: Trial) -> bool:
    return trial.verdict is not None and trial.verdict.kind == "values" and not trial.verdict.site


def _where_it_began(trial: Trial) -> Verdict | None:
    """The same fault with the line that made the NaN, or in which an exponential overflowed."""
    assert trial.verdict is not None
    for name, want in trial.expected.items():
        got = trial.first.outputs[name]
        wrong = ~want.accepts(got).reshape(-1)
        if not wrong.any():
            continue
        if not got.is_floating_point() or got.reshape(-1)[wrong].double().isfinite().all():
            return None
        nans = NaNs()
        ran = trial.run(Options(quiet=True, as_compiled=trial.as_compiled, nans=nans))
        got = ran.outputs[name].reshape(-1)
        told = verdicts.not_finite(trial.verdict, got, wrong, nans, trial.inputs)
        taken = trial.bound.takes
        taken = trial.bound.takes
        unread = [each for each in trial.inputs if each in taken and not trial.first.loads.get(each)]
        return verdicts.of_nothing_loaded(told, unread, loops="for " in trial.bound.kernel.src)
    return None


_MISPLACED = ("never written", "out of bounds", "values", "race")  # kinds of verdict on a swapped grid


def _may_be_exchanged(trial: Trial) -> bool:
    """Whether the fault may be that axes of the grid are taken for one another."""
    if trial.verdict is None or trial.verdict.diagnosis or trial.verdict.kind not in _MISPLACED:
        return False
    return trial.budget.used() < HALF  # its end would hide the fault


def _with_axes_exchanged(trial: Trial) -> Verdict | None:
    """The same fault with its reason, if the kernel is correct with two axes of the grid exchanged."""
    assert trial.verdict is not None
    grid = trial.bound.puzzle.grid(trial.bound.case)
    for first, second in itertools.combinations(range(len(grid)), 2):
        if grid[first] == grid[second] == 1:
            continue
        order = list(range(3))
        order[first], order[second] = second, first
        ids = itertools.product(*map(range, trial.bound.puzzle.programs(trial.bound.case)))
        programs = [(each[order[0]], each[order[1]], each[order[2]]) for each in ids]
        ran = trial.run(Options(only=programs, quiet=True, as_compiled=trial.as_compiled))
        if trial.judged.accepts(ran):
            return verdicts.exchanged(trial.verdict, first, second)
    return None


def _has_wrong_values(trial: Trial) -> bool:
    return trial.verdict is not None and trial.verdict.kind == "values"


def _a_slip_in_a_sum(trial: Trial) -> Verdict | None:
    assert trial.verdict is not None
    return sums.named(trial.verdict, trial.bound.kernel)


def _a_line_without_effect(trial: Trial) -> Verdict | None:
    assert trial.verdict is not None
    return idle.without_effect(trial.verdict, trial.bound.kernel)


PROBES: Sequence[Probe] = (
    Probe("in launch order", _always, _in_order),
    Probe("what a program waits for", _waits_for_ever, _whom_it_waits_for, explains=True),
    Probe("why elements are never written", _is_unwritten, _why_unwritten, explains=True),
    Probe("why lanes are past the end", _is_beyond, _why_beyond, explains=True),
    Probe("which element a lane needs", _is_vague, _which_element_instead, explains=True),
    Probe("which slip came before", _may_be_a_slip, _which_slip_so_far, explains=True),
    Probe("which lanes are on", _is_beyond, _which_lanes_are_on, explains=True),
    Probe("which slip races", _races_with_slips, _which_slip_in_reverse, explains=True),
    Probe("who needs no load", _is_loaded_too_often, _who_needs_no_load, explains=True),
    Probe("how to mend undefined lanes", _is_of_lanes, _which_cure, explains=True),
    Probe("where NaN comes from", _has_wrong_values_and_no_line, _where_it_began, explains=True),
    Probe("races within a program", _threads_may_race, _within_a_program),
    Probe("who goes past a row", _races_at_a_store, _who_goes_past_a_row, explains=True),
    Probe("false hints", _sound, _false_hints),
    Probe("in reverse order", _order_matters, _in_reverse),
    Probe("from the middle on", _may_count_arrivals, _from_the_middle),
    Probe("locks", _has_locks, _under_locks),
    Probe("between two atomics", lambda trial: _sound(trial) and trial.backwards, _between_atomics),
    Probe("with the tensors at other addresses", _looks_at_addresses, _elsewhere),
    Probe("in the compiler's arithmetic", _compiler_computes_otherwise, _as_compiled),
    Probe("in float64", _rounding_hides, _in_float64),
    Probe("with two axes of the grid exchanged", _may_be_exchanged, _with_axes_exchanged, explains=True),
    Probe("what a running sum lacks", _has_wrong_values, _a_slip_in_a_sum, explains=True),
    Probe("a line without effect", _has_wrong_values_and_no_line, _a_line_without_effect, explains=True),
)
"""What a check looks for in each case, in this order."""
