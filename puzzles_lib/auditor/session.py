"""Audit what a block of code launches: `audited`."""

import contextlib
import math
import textwrap
from collections.abc import Iterator
from dataclasses import replace

from puzzles_lib.auditor.catching import Ran, caught
from puzzles_lib.auditor.compiled import LARGEST_BLOCK
from puzzles_lib.auditor.cuda import driven, not_on_gpu, pretended
from puzzles_lib.auditor.cures import with_cure
from puzzles_lib.auditor.defined import Defined, Notes
from puzzles_lib.auditor.exchanged import Change
from puzzles_lib.auditor.guard import Guard, guard_of
from puzzles_lib.auditor.held import Held, entered, held
from puzzles_lib.auditor.launch import Launch, Place, Unsupported, remembered
from puzzles_lib.auditor.origins import Origins
from puzzles_lib.auditor.report import AuditReport, Finding, LaunchResult
from puzzles_lib.auditor.running import Outcome, Runner
from puzzles_lib.auditor.stores import Stores
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.tuning import skips
from puzzles_lib.runner import Busy, alone

CONFIGURATIONS = 4  # how many launches of CPU time all configurations of an autotuned launch share


class Session:
    """One block of code: catches its launches and keeps what they did."""

    def __init__(
        self,
        guard: Guard,
        report: AuditReport,
        *,
        poison: int = 0,
        reverse: bool = False,
        configuration: int | None = None,
        compiled: bool = False,
        stores: Stores | None = None,
        change: Change | None = None,
    ):
        self.guard, self.report, self.stores = guard, report, stores
        self.compiled = LARGEST_BLOCK if compiled else 0
        self.change = change  # of each launch, to see what it leads to
        self.configuration = configuration  # of autotune, which alone is launched
        self.origins = Origins()
        self.defined = Defined(poison, self.origins.computed)
        self.runner = Runner(guard, self.defined, reverse)
        self.stopped = ""  # the first kernel that did not run to its end

    def on_launch(self, launch: Launch) -> Ran:
        if meta := [name for name, tensor in launch.tensors.items() if tensor.device.type == "meta"]:
            self.add(
                Outcome(
                    launch, unjudged=f"{launch.name}: {meta[0]} is on torch's meta device, without values"
                )
            )
            return Ran.IN_PART
        with held() as signals:
            return self._judged(launch, signals)

    def _judged(self, launch: Launch, signals: Held) -> Ran:
        """Run a launch and report it. Signals that come meanwhile are delivered between two runs."""
        launch = self.change(launch) if self.change else launch
        self.runner.between = signals.deliver
        stored = self.defined.stored
        if any(stored.elements(tensor) is not None for tensor in launch.all_tensors.values()):
            self.defined.reads_missing = True
        name = "" if self.compiled else not_on_gpu(launch)
        try:
            outcome = _on_cpu(launch, name) if name else alone(lambda: self.runner.run(launch))
        except Busy as reason:
            outcome = Outcome(launch, unjudged=str(reason))
        except Exception as error:  # a user must not see a traceback of ours for their launch
            if error is signals.raised:  # it is the user's own
                raise
            words = textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" ...")
            outcome = Outcome(launch, unjudged=f"{launch.name}: a bug in the audit itself: {words}")
        if launch.configuration and outcome.verdict and skips(outcome.verdict):
            self.report.notes.append(f"{launch}: autotune skips it: {outcome.verdict.message}")
            return Ran.REFUSED
        if self.stopped not in ("", launch.name) and outcome.verdict:
            outcome.verdict = outcome.also = None
            outcome.remarks = []
            outcome.unjudged = f"{launch.name}: it may use values that {self.stopped} has not stored"
        elif outcome.stopped or not outcome.complete:
            self.stopped = launch.name
        self.add(outcome)
        return Ran.WHOLLY if outcome.complete else Ran.IN_PART

    def on_untried(self, launch: Launch, why: str) -> None:
        """Count a configuration of autotune for which no time is left."""
        self.add(Outcome(launch, unjudged=why, of=math.prod(launch.full_grid)), lacks=False)

    def add(self, outcome: Outcome, on: str = "", lacks: bool = True) -> None:
        """Report an outcome. lacks: whether results are missing if it could not be judged."""
        report = self.report
        number = len(report.launches)
        if outcome.unjudged and lacks:
            report.lacking.append(number)
        report.launches.append(LaunchResult(outcome))
        report.notes += outcome.notes
        for remark in outcome.remarks:
            if self.guard.strict:
                report.remarks.append(found(replace(outcome, verdict=remark), number, on))
            elif remark.site:
                where = f"{outcome.launch.name}, line {remark.site.line}"
                report.notes.append(f"{where}: {remark.message}")
        if outcome.unjudged:
            report.unjudged.append(outcome.unjudged)
        for verdict in filter(None, (outcome.verdict, outcome.also)):
            finding = found(replace(outcome, verdict=verdict), number, on)
            if not any(finding.repeats(earlier) for earlier in report.findings):
                report.findings.append(finding)
        if self.stores is not None:
            self.stores.add(number, outcome)
            for name, tensor in outcome.launch.all_tensors.items():
                if (writers := outcome.writers.get(name)) is not None and (writers >= 0).any():
                    self.origins.stored(number, tensor)
        outcome.launched, outcome.writers = (), {}
        outcome.launch = outcome.launch.released(outcome.before)  # a report must not keep tensors alive

    def on_error(self, kernel: str, error: Exception) -> None:
        text = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
        self.report.unjudged.append(f"{kernel}: {text}")
        self.report.unsupported.append(kernel)
        self.stopped = self.stopped or kernel

    def now(self) -> tuple[str, list[int], Notes, bool]:
        """Return what is known of results that are missing."""
        return self.stopped, list(self.report.lacking), *self.defined.missing()

    def back(self, then: tuple[str, list[int], Notes, bool]) -> None:
        """Forget what is known since then: the tensors hold what they held."""
        self.stopped, lacking, stored, reads = then
        self.report.lacking[:] = lacking
        self.defined.set_missing(stored, reads)

    def again(self, launch: Launch) -> Ran:
        """Run a launch that autotune repeats, without reporting it."""
        runner = Runner(replace(self.guard, races=False, hints=False), self.defined)
        outcome = alone(lambda: runner.run(launch))
        if outcome.verdict:
            return Ran.REFUSED
        return Ran.WHOLLY if outcome.complete else Ran.IN_PART  # other programs may have run than before

    def differs(self, kernel: str, name: str, place: Place | None) -> None:
        """Report a kernel whose result changes if autotune measures it, unless another fault explains it."""
        if self.report.findings or self.stopped:
            return
        text = f"{name} gets different values in a second launch, and autotune launches it many times"
        advice = f"pass restore_value=['{name}'] if the kernel updates it in place, reset_to_zero if it adds"
        verdict = Verdict("values", text, diagnosis=advice)
        self.report.findings.append(Finding(verdict, None, kernel, place))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with (
            caught(
                self.on_launch,
                self.on_error,
                self.guard.configurations,
                self.configuration,
                self,
                self.compiled,
                self.on_untried,
                CONFIGURATIONS * self.guard.seconds,
                self.guard.races,
            ),
            contextlib.nullcontext() if self.compiled else self.defined,  # torch.compile skips modes
        ):
            yield


def _on_cpu(launch: Launch, name: str) -> Outcome:
    """Return what is wrong with a launch that gets a tensor that is on the CPU."""
    text = f"{name} is on the CPU, and a GPU can't access it"
    advice = 'make the tensor with device="cuda", or copy it with .cuda()'
    if name in launch.tensors:
        raises = "Pointer argument cannot be accessed from Triton (cpu tensor?)"
        advice = f"a launch on a GPU raises ValueError: {raises}: {advice}"
    verdict = Verdict("launch", text, diagnosis=advice)
    return Outcome(launch, verdict, of=math.prod(launch.full_grid), stopped=True)


def found(outcome: Outcome, number: int | None, on: str = "") -> Finding:
    """Return what is wrong with a launch as a finding."""
    launch = outcome.launch
    assert outcome.verdict is not None
    file = launch.kernel.fn.__code__.co_filename
    name = f"{launch.name} ({launch.configuration})" if launch.configuration else launch.name
    return Finding(with_cure(outcome.verdict, launch), number, name, launch.place, file, on)


@contextlib.contextmanager
def audited(
    *, device: str = "cpu", guard: Guard | None = None, title: str = "audit", compiled: bool = False
) -> Iterator[AuditReport]:
    """Audit all launches of Triton kernels in a block of code. None of them goes to a GPU.

        with audited() as report:
            y = softmax(x)
        print(report)

    Each launch runs on the CPU, on the tensors that the code gives it, which then hold the results.
    device: ``"cpu"`` or ``"cuda"``. With ``"cuda"``, code that asks for a GPU runs here: new tensors,
        ``.cuda()`` and ``.to("cuda")`` give CPU tensors that say they are on a GPU, and `torch.cuda` reports
        an H100. A launch that gets a tensor on the CPU is then a finding.
    guard: what to look for; see `Guard`.
    title: the report's title.
    compiled: also audit kernels that `torch.compile` writes. Inside the block, `torch.compile` translates
        functions of CPU tensors to Triton. Its blocks are capped at 16 elements along an axis, so that races
        between programs can show.

    Yields an `AuditReport`, which is complete after the block. Findings do not stop the block. Raises
    ValueError or TypeError for a bad argument.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"audited: device must be 'cpu' or 'cuda', but is {device!r}")
    if not isinstance(compiled, bool):
        raise TypeError(f"audited: compiled must be True or False, but is {compiled!r}")
    report = AuditReport(title)
    session = Session(guard_of(guard, "audited"), report, compiled=compiled)
    managers: list[contextlib.AbstractContextManager] = [session.active()]
    if device == "cuda" or compiled:
        managers.insert(0, pretended(compiles=compiled, strictly=True) if device == "cuda" else driven())
    else:
        managers.insert(0, remembered())
    with entered(*managers):
        yield report
    report.be_strict()
