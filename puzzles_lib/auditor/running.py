"""Run a launch, check what it does, and say what is wrong with it, the most basic fault first.

Undefined values may hide a race between programs, or elements that none writes, so these are reported, too.
"""

import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from puzzles_lib import compiler
from puzzles_lib.auditor.catching import alike, allocator_is_set
from puzzles_lib.auditor.cures import of_bounds
from puzzles_lib.auditor.defined import Defined, span_of
from puzzles_lib.auditor.draws import repeated_draws
from puzzles_lib.auditor.edges import at_edges, integers
from puzzles_lib.auditor.factors import Factor, narrow_factor, which_product
from puzzles_lib.auditor.guard import MORE, Guard
from puzzles_lib.auditor.launch import Copies, Launch
from puzzles_lib.auditor.remarks import remarks
from puzzles_lib.auditor.shared import of_race, overlaps
from puzzles_lib.checker import atomicity, verdicts
from puzzles_lib.checker.launches import too_many_at_once, too_many_threads, too_much
from puzzles_lib.checker.promises import of_hints
from puzzles_lib.checker.races import Threads
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.true_size import edges
from puzzles_lib.compiler import find_target, shared_memory
from puzzles_lib.dtypes import of_torch
from puzzles_lib.parameters import unfit
from puzzles_lib.puzzle import MOST_PROGRAMS
from puzzles_lib.runner import ELSEWHERE, Access, Options, Program, Run, Stop, group_of, run
from puzzles_lib.runner.arithmetic import TF32_ROUNDOFF
from puzzles_lib.runner.draws import Draws
from puzzles_lib.runner.records import Conflict

_TARGET = find_target("sm_90")
PROBED = 8  # programs that are run first, to know how long all of them would take
FEWEST = 24  # programs of a sample
QUIET = Options(quiet=True)
INTERLEAVED = 8  # runs in which two programs take turns
_NOT_JUDGED = ("error", "time limit", "memory limit")  # no fault of the kernel's
_ASSERTION = "AssertionError"
_ELSEWHERE = "through a pointer that is not an argument"
_NO_KNOWN_TENSOR = (
    "the kernel read an address from a table, but no tensor is known to be there: call data_ptr() inside the "
    "audited code"
)
_NO_ALLOCATOR = (
    "the kernel makes a tensor descriptor: a launch on an H100 needs memory for it, but has no allocator"
)
_ALLOCATOR = (
    "call triton.set_allocator(lambda size, alignment, stream: torch.empty(size, ...)) before the launch"
)
MOST_BYTES = 192 << 20  # of a launch's tensors that are copied for each run, at four bytes per element
MOST_KEPT = 16 << 20  # bytes of a launch's tensors that are kept to be shown later
MOST_KEPT_IN_ALL = 256 << 20  # likewise of all launches of an audit


@dataclass
class Outcome:
    """The result of a guarded launch.

    verdict: what is wrong; None for nothing. also: a race, if ``verdict`` is about undefined values.
    remarks: what is wasteful or imprecise, if nothing is wrong. notes: what else a reader should know.
    unjudged: why the launch was not judged, or only in part.
    programs: how many ran, of how many. stopped: whether the run ended early, so that results are missing.
    launched: the programs, in the order in which they ran. writers: for each tensor, the number in that order
    of the last program that stored each element. atomics: how many the programs did. rounding: the roundoff
    with which products in `tl.dot` use factors. factor: what to convert, if an offset overflows.
    """

    launch: Launch
    verdict: Verdict | None = None
    also: Verdict | None = None
    unjudged: str = ""
    remarks: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    programs: int = 0
    of: int = 0
    bytes_moved: int = 0
    before: Copies | None = None
    rounding: float = 0.0
    coarsest: float = 0.0
    stopped: bool = False
    atomics: int = 0
    launched: Sequence[Program] = ()
    writers: Mapping[str, np.ndarray] = field(default_factory=dict)
    factor: Factor | None = None

    def stopped_by(self, stop: Stop) -> None:
        """Take what ended a run at the edges of the grid as the verdict."""
        advice, kernel = stop.advice, self.launch.kernel
        if stop.kind == "true size" and not advice:
            self.factor = narrow_factor(kernel, stop)
            advice = str(self.factor or which_product(kernel, stop))
        message = verdicts.on_the_grid(stop.message, self.launch.axes)
        self.verdict = Verdict(stop.kind, message, stop.site, advice)

    @property
    def ok(self) -> bool:
        return self.verdict is None

    @property
    def is_slow(self) -> bool:
        """Whether the launch was not judged for lack of time."""
        return "time limit" in self.unjudged

    @property
    def complete(self) -> bool:
        """Whether all programs ran to the end, so that all results are stored."""
        return not self.unjudged and self.programs == self.of

    @property
    def is_sampled(self) -> bool:
        """Whether only some programs ran, but these to their end."""
        return 0 < self.programs < self.of and not self.stopped and self.verdict is None


class Runner:
    """Runs the launches of one audit. defined: which elements are defined. guard: what to look for."""

    def __init__(self, guard: Guard, defined: Defined, reverse: bool = False):
        self.guard, self.defined, self.reverse = guard, defined, reverse
        self.threads = Threads((_TARGET,))
        self.kept = 0  # bytes of the tensors that are kept to be shown later
        self.between: Callable[[], None] = lambda: None  # called before each run

    def run(self, launch: Launch) -> Outcome:
        """Run a launch on its tensors, which then hold what it stores."""
        outcome = Outcome(launch, of=math.prod(launch.full_grid))
        for axis, (count, most) in enumerate(zip(launch.full_grid, MOST_PROGRAMS, strict=True)):
            if count > most:
                text = (
                    f"the grid has {count:,} programs along axis {axis}, but a GPU launches at most {most:,}"
                )
                return replace(outcome, verdict=Verdict("launch", text), stopped=True)
            if count < 0:
                text = f"the grid has {count} programs along axis {axis}"
                return replace(outcome, verdict=Verdict("launch", text), stopped=True)
        if text := unfit(launch.launch_options):
            return replace(outcome, verdict=Verdict("signature", text), stopped=True)
        if verdict := too_many_threads(launch.launch_options):
            return replace(outcome, verdict=verdict, stopped=True)
        if self.guard.resident or launch.is_cooperative:
            if verdict := too_many_at_once(outcome.of, launch.num_warps):
                return replace(outcome, verdict=verdict, stopped=True)
        tensors = list(launch.all_tensors.values())
        if not outcome.of:
            outcome.notes.append("no program is started: the grid is empty")
            return outcome
        code = self._translated(launch, outcome)
        if code is None:
            return outcome
        # A run keeps notes on each element, however narrow: one of a byte counts as four bytes.
        noted = {_storage(t).data_ptr(): _noted(t) for t in tensors}
        if sum(noted.values()) > MOST_BYTES or not _Guarded(self, launch, outcome, code).judge():
            size = sum({each.data_ptr(): each.nbytes() for each in map(_storage, tensors)}.values())
            self._at_edges(launch, outcome, code, size)
        elif outcome.verdict is None and not allocator_is_set() and _makes_descriptors(code):
            outcome.verdict = Verdict("launch", _NO_ALLOCATOR, diagnosis=_ALLOCATOR)
        return outcome

    def _at_edges(self, launch: Launch, outcome: Outcome, code: compiler.Program, size: int) -> None:
        """Check only the programs at the edges of a grid, on tensors that are too large to copy."""
        ran = at_edges(code, launch, integers(launch.all_tensors), self.guard.patience)
        outcome.programs, outcome.stopped = ran.programs, True
        if ran.stop and (freed := _after_free(launch, ran.stop)):
            outcome.verdict = freed
        elif ran.stop and _of_no_known_tensor(launch, ran.stop.message):
            outcome.unjudged = f"{launch.name}: {_NO_KNOWN_TENSOR}"
        elif ran.stop and ran.stop.kind not in (*_NOT_JUDGED, "deadlock"):
            outcome.stopped_by(ran.stop)
        else:
            outcome.unjudged = (
                f"{launch.name}: too large to run completely: its tensors have {size / 2**20:,.0f} MiB; "
                f"{ran.programs} of {outcome.of:,} programs ran, at the edges of the grid, on made-up floats"
            )

    def _translated(self, launch: Launch, outcome: Outcome) -> compiler.Program | None:
        stages = launch.options.get("num_stages", 0)

        def first(opinions: compiler.Opinions) -> compiler.Opinion | None:
            return opinions[0]

        opinion = compiler.closed_after(
            compiler.Opinions(launch.kernel, [], [launch.arguments], num_stages=stages), first
        )
        if opinion is None:
            outcome.unjudged = "the compiler didn't answer"
            return None
        outcome.notes += opinion.notes
        if opinion.refusal:
            outcome.verdict, outcome.stopped = verdicts.of_refusal(opinion.refusal), True
            return None
        if opinion.large is not None:
            asked = shared_memory(launch.kernel, launch.arguments, _TARGET, {}, **launch.options)
            outcome.verdict = too_much(asked, _TARGET, opinion.large) if asked is not None else None
            outcome.stopped = outcome.verdict is not None
            if outcome.stopped:
                return None
        return compiler.program_of(launch.kernel, launch.arguments, opinion)


class _Guarded:
    """The runs of one launch."""

    def __init__(self, runner: Runner, launch: Launch, outcome: Outcome, code: compiler.Program):
        self.runner, self.launch, self.outcome, self.code = runner, launch, outcome, code
        self.guard = runner.guard
        self.tensors = launch.all_tensors
        self.copies = Copies(self.tensors)
        self.defined = self._defined()
        self.only: list[Program] | None = None
        self.took = 0.0  # seconds that a program takes that runs alone, if that was measured
        self.resident = self.guard.resident or launch.is_cooperative

    def _defined(self) -> dict[str, np.ndarray]:
        if not self.guard.undefined or self.guard.bounds != "view":
            return {n: np.ones(span_of(self._seen(t)), bool) for n, t in self.tensors.items()}
        return {name: self.runner.defined.places(tensor) for name, tensor in self.tensors.items()}

    def _run(
        self,
        options: Options,
        tensors: Mapping[str, torch.Tensor] | None = None,
        seconds: float | None = None,
    ) -> Run:
        self.runner.between()
        tensors = self.copies.fresh() if tensors is None else tensors
        given = {name: self._seen(tensor) for name, tensor in tensors.items()}
        return run(
            self.code,
            self.launch.with_tensors(given),
            self.launch.full_grid,
            set(given),
            replace(
                options,
                only=self.only if options.only is None else options.only,
                defined=self.defined,
                others=self.launch.reached_in(given),
                resident=options.resident or (self.resident and self.only is None and options.only is None),
                drops_unused_loads=True,
                together=True,
                suffix="",
                seconds=4 * self.guard.seconds if seconds is None else seconds,
            ),
        )

    def _again(self, options: Options) -> tuple[Run, Mapping[str, torch.Tensor]]:
        """Run the launch from the tensors as they were, and return these as they are then."""
        tensors = self.copies.fresh()
        return self._run(options, tensors), tensors

    def _seen(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elements that a kernel may touch."""
        if self.guard.bounds == "view" or not tensor.numel():
            return tensor
        size = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
        return tensor.as_strided((size,), (1,))

    def judge(self) -> bool:
        """Run the launch and say in its outcome what is wrong. Return False if there is too little memory."""
        outcome = self.outcome
        if self.copies.bytes <= min(MOST_KEPT, MOST_KEPT_IN_ALL - self.runner.kept):
            self.runner.kept += self.copies.bytes
            outcome.before = self.copies
        outcome.coarsest = max(
            (of_torch(t.dtype).roundoff or 0.0 for t in self.tensors.values()), default=0.0
        )
        self.only = self._sample()
        draws = Draws()
        forwards, after = self._forwards(draws)
        if self.took and self.only is None and _takes_long(forwards):
            self.only, draws = self._some(self.took), Draws()
            forwards, after = self._forwards(draws)
        outcome.programs = forwards.programs
        outcome.bytes_moved = forwards.bytes_moved
        outcome.atomics = forwards.atomics
        outcome.rounding = max(
            forwards.arithmetic.factors, TF32_ROUNDOFF if forwards.arithmetic.in_tf32 else 0.0
        )
        if forwards.stop and forwards.stop.kind == "memory limit":
            return False
        if why := self._not_judged(forwards):
            outcome.unjudged, outcome.stopped = f"{self.launch.name}: {why}", True
            return True
        verdict = self._verdict(forwards, after)
        if verdict and verdict.kind == "out of bounds" and not verdict.diagnosis and forwards.program:
            recorded = self._run(Options(record=True, quiet=True, only=[forwards.program]))
            verdict = of_bounds(verdict, self.launch, self.code, recorded)
        outcome.verdict = verdict
        outcome.stopped = forwards.stop is not None
        if outcome.verdict is None:
            outcome.remarks = remarks(self.launch, self.code, forwards)
            if repeated := repeated_draws(self.launch, draws, self._again, self.guard.seconds / 2):
                outcome.remarks.append(repeated)
        if outcome.verdict and forwards.undefined and not outcome.stopped:
            after = self.copies.fresh()  # what is launched next works on what a GPU would leave
            forwards = self._run(replace(QUIET, holes_are_zero=True), after)
            if forwards.conflict and forwards.stop is None and self.guard.races:
                outcome.also = self._race(forwards.conflict)
        self._give_back(after, forwards)
        if outcome.before is not None:
            outcome.launched, outcome.writers = forwards.launched, forwards.writers
        if self.only is not None and outcome.verdict is None:
            outcome.unjudged = (
                f"{self.launch.name}: too large to run completely: {len(self.only)} of {outcome.of:,} "
                f"programs ran, at the edges of the grid and at random; {MORE}"
            )
        return True

    def _forwards(self, draws: Draws) -> tuple[Run, dict[str, torch.Tensor]]:
        after = self.copies.fresh()
        options = Options(reverse=self.runner.reverse and self.only is None, draws=draws)
        return self._run(options, after), after

    def _not_judged(self, ran: Run) -> str:
        """Why a run that has ended early says nothing about the kernel; "" if it does."""
        if ran.stop is None:
            return ""
        if _of_no_known_tensor(self.launch, ran.stop.message):
            return "" if self.launch.gone else _NO_KNOWN_TENSOR
        if self.only is not None and ran.stop.kind == "deadlock":
            return "a program waits for one that was not run"
        if ran.stop.kind not in _NOT_JUDGED or "never ends" in ran.stop.message:
            return ""
        if _asserts(ran.stop) or (ran.stop.kind == "error" and ran.stop.advice):
            return ""
        return ran.stop.message + (f" ({ran.stop.site})" if ran.stop.site else "")

    def _sample(self) -> list[Program] | None:
        """Which programs to run; None for all."""
        count = self.outcome.of
        if count <= 2 * PROBED:
            return None
        first = [self._program(n) for n in _spread(count, PROBED)]
        probe, took = self._probe(first)
        if probe.stop and probe.stop.kind in ("time limit", "memory limit"):
            return first[:1]
        self.took = took
        if took * count <= self.guard.seconds:
            return None
        group = group_of(self.code.module)
        if 0 < group < count:  # programs that run at once take less time
            middle = (count - group) // 2
            probe, took = self._probe([self._program(n) for n in range(middle, middle + group + 1)])
            took = min(took, self.took) if probe.together and not probe.stop else self.took
        return None if took * count <= self.guard.seconds else self._some(took)

    def _probe(self, programs: list[Program]) -> tuple[Run, float]:
        """Run a few programs, and return the run and the seconds that each of them took."""
        probe = self._run(replace(QUIET, only=programs), seconds=self.guard.seconds)
        return probe, probe.seconds / len(programs)

    def _some(self, took: float) -> list[Program] | None:
        """As many programs as there is time for: those at the edges of the grid, and others at random."""
        count = self.outcome.of
        room = max(FEWEST, int(self.guard.seconds / took))
        if room >= count:
            return None
        sizes = [tensor.numel() for tensor in self.tensors.values()]
        chosen = dict.fromkeys(edges(self.launch.full_grid, sizes))
        draw = random.Random(count)
        while len(chosen) < room:
            chosen[self._program(draw.randrange(count))] = None
        return sorted(chosen)

    def _program(self, number: int) -> Program:
        _, y, z = self.launch.full_grid
        return number // (y * z), number // z % y, number % z

    def _verdict(self, forwards: Run, after: Mapping[str, torch.Tensor]) -> Verdict | None:
        if found := self._misconduct(forwards):
            if found.kind == "deadlock" and not self.resident and "plain load" not in found.diagnosis:
                launch: Any = self.launch
                together = self._run(replace(QUIET, resident=True))
                return verdicts.would_end(found, together, launch, launch)
            return found
        if not self.guard.races:
            return self._hints(forwards)
        launch = self.launch
        if forwards.suspect and (race := self.runner.threads.race(launch, self._run)):
            names = (name for name in launch.tensors if re.search(rf"\b{name}\[", race.message))
            text = next(filter(None, (overlaps(launch, name) for name in names)), "")
            return replace(race, diagnosis=text) if text else race
        if found := self._hints(forwards):
            return found
        if self.only is not None:
            return None
        ordered = True
        if forwards.order_matters:
            other = self.copies.fresh()
            reverse = self._run(
                replace(QUIET, reverse=not self.runner.reverse, waits=forwards.atomics > 0), other
            )
            if found := self._misconduct(reverse):
                kept = "race" if found.kind not in ("race", "time limit", "uninitialized") else found.kind
                return verdicts.depends_on_order(found) if kept == "race" else found
            if name := _differs(after, other):
                ordered = False
                self.outcome.notes.append(
                    f"{name} gets different values if the programs run in reverse order; like=... checks them"
                )
        if ordered and forwards.programs > 1 and forwards.atomics > 1:
            if found := self._interleaved(forwards, after):
                return found
        for choice in ELSEWHERE if forwards.tells_addresses else ():
            other = self.copies.fresh()
            if found := self._misconduct(self._run(replace(QUIET, elsewhere=choice), other)):
                return verdicts.depends_on_addresses(found)
            if name := _differs(after, other):
                text = f"{name} gets different values if the tensors are elsewhere in memory"
                return Verdict("values", text, diagnosis="compare offsets and sizes instead of addresses")
        return None

    def _hints(self, forwards: Run) -> Verdict | None:
        launch: Any = self.launch
        return of_hints(launch, forwards, self._run) if self.guard.hints else None

    def _misconduct(self, ran: Run) -> Verdict | None:
        launch: Any = self.launch
        if ran.stop and _asserts(ran.stop):
            what = ran.stop.message.removeprefix(_ASSERTION).lstrip(": ")
            text = f"tl.device_assert fails: {what}" if what else "tl.device_assert fails"
            return Verdict(
                "error", text, ran.stop.site, "on a GPU it ends the program if debug=True is passed"
            )
        if ran.stop and (freed := _after_free(self.launch, ran.stop)):
            return freed
        if ran.stop and ran.stop.kind != "uninitialized" and not self._led_by_garbage(ran):
            message = verdicts.on_the_grid(ran.stop.message, launch.axes)
            return Verdict(ran.stop.kind, message, ran.stop.site, ran.stop.advice)
        if self.guard.undefined and ran.undefined:
            return verdicts.uninitialized(ran.undefined, launch, launch)
        if ran.conflict and self.guard.races:
            return self._race(ran.conflict)
        return None

    def _led_by_garbage(self, ran: Run) -> bool:
        """Whether an access is out of bounds because its offset or its mask was never written."""
        use = ran.undefined.use if ran.undefined and self.guard.undefined else None
        if ran.stop is None or ran.stop.kind != "out of bounds" or use is None or use.element is not None:
            return False
        return use.program == ran.program and use.site == ran.stop.site

    def _race(self, conflict: Conflict) -> Verdict:
        launch: Any = self.launch  # it stands for the puzzle and the case

        def accesses(program: Program) -> Sequence[Access]:
            return self._run(Options(record=True, quiet=True, only=[program])).accesses

        verdict = verdicts.race_between(launch, launch, conflict)
        return of_race(verdict, self.launch, self.code, conflict, accesses)

    def _interleaved(self, forwards: Run, after: Mapping[str, torch.Tensor]) -> Verdict | None:
        """What goes wrong if one program runs between two atomics of another."""
        launch: Any = self.launch
        for number, plan in enumerate(atomicity.plans(forwards)):
            if number == INTERLEAVED:
                return None
            other = self.copies.fresh()
            ran = self._run(replace(QUIET, plan=plan), other)
            if ran.between is None or (ran.stop and ran.stop.kind in atomicity.UNENDING):
                continue
            found = self._misconduct(ran)
            if found is None and (name := _differs(after, other)):
                found = Verdict("values", f"{name} gets different values")
            if found:
                return verdicts.interrupted(launch, launch, found, ran, plan)
        return None

    def _give_back(self, after: Mapping[str, torch.Tensor], ran: Run) -> None:
        """Let the launch's own tensors hold what it has stored."""
        done: set[int] = set()
        for name, tensor in self.tensors.items():
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in done:
                storage.copy_(after[name].untyped_storage())
                done.add(storage.data_ptr())
        defined = self.runner.defined
        for name, tensor in self.tensors.items():
            if name in ran.written and self.guard.bounds == "view" and self.only is None:
                defined.define(tensor, ran.written[name])
            else:
                defined.define(tensor)
        if self.only is not None:  # another program might store anywhere else
            for tensor in self.tensors.values():
                defined.stored.set(tensor, to=False)
            for name, tensor in self.tensors.items():
                if name in ran.writers:
                    defined.stored.set(self._seen(tensor), ran.writers[name] >= 0)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def _noted(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's storage, as if no element were narrower than four bytes."""
    return _storage(tensor).nbytes() * max(4, tensor.element_size()) // tensor.element_size()


def _asserts(stop: Stop) -> bool:
    """Whether a run has ended because what the kernel itself asserts is not true."""
    return stop.kind == "error" and stop.message.startswith(_ASSERTION)


def _of_no_known_tensor(launch: Launch, message: str) -> bool:
    """Whether a run has followed an address, perhaps of a table of pointers, to no tensor that is known."""
    tables = any(t.dtype in (torch.int64, torch.uint64) for t in launch.all_tensors.values())
    return tables and _ELSEWHERE in message


def _after_free(launch: Launch, stop: Stop) -> Verdict | None:
    """Return what is wrong if a run has followed the address of a tensor that no longer exists."""
    if not launch.gone or not _of_no_known_tensor(launch, stop.message):
        return None
    name, tensor = next(iter(launch.gone.items()))
    message = verdicts.on_the_grid(stop.message.partition(f" {_ELSEWHERE}")[0], launch.axes)
    text = f"{message} after free: {name} is the address of {tensor}, which no longer exists"
    return Verdict("out of bounds", text, stop.site, "keep the tensor in a variable until after the launch")


def _makes_descriptors(code: compiler.Program) -> bool:
    """Whether a kernel makes descriptors in a program's own part of memory that the launch must provide."""
    return any(op.name == "tt.make_tensor_descriptor" for op in code.module.operations())


def _takes_long(ran: Run) -> bool:
    """Whether a run has reached its time limit, in no loop that never ends."""
    return ran.stop is not None and ran.stop.kind == "time limit" and "never ends" not in ran.stop.message


def _spread(count: int, wanted: int) -> Iterable[int]:
    return sorted({count * each // wanted for each in range(wanted)} | {count - 1})


def _differs(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> str:
    """Return the name of a tensor that two runs left with other values; "" if rounding explains them."""
    return next((name for name, first in one.items() if not alike(first, other[name])), "")
