"""Run a step of the model by a reader's kernel and check its accesses, or by the puzzle's spec in torch."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from puzzles_lib import compiler
from puzzles_lib.binding import Bound, bind
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.checker.report import CaseResult, Report
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Busy, Options, alone
from puzzles_lib.session import last_check, verdict_on
from puzzles_lib.source import Refusal
from puzzles_lib.stubs import is_untouched
from puzzles_lib.wrapped import unwrap

SECONDS = 10.0  # of CPU time that a launch may take
FAILS, UNCHECKED, OLDER = "fails check", "not checked", "an older version, fails check"
OPEN = "your lines are missing"


class Stopped(Exception):
    """A reader's kernel did something that a GPU would not survive, or that is undefined."""

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report


@dataclasses.dataclass
class Tally:
    """What has run one step of the model. kernel: its name, "" if it was torch."""

    kernel: str = ""
    launches: int = 0
    programs: int = 0
    bytes: int = 0


class Launcher:
    """Runs puzzles on tensors: by the kernels given, or in torch. Keeps a `Tally` for each.

    kernels: a dict from a puzzle's name to its kernel. A kernel that still has a gap to fill in counts as not
        given.
    """

    def __init__(self, kernels: Mapping[str, object]):
        self.kernels = {name: kernel for name, kernel in kernels.items() if _is_begun(kernel)}
        self.tallies: dict[str, Tally] = {}
        self._programs: dict[tuple[object, ...], compiler.Program] = {}

    def __call__(self, puzzle: Puzzle, **given: Tensor | float) -> tuple[Tensor, ...]:
        """Return the puzzle's results for tensors and numbers by name.

        Numbers that an axis gives may be left out. Raises `Stopped` if the reader's kernel goes wrong.
        """
        tensors = {name: value.contiguous() for name, value in given.items() if isinstance(value, Tensor)}
        numbers = _sizes(puzzle, tensors) | {n: v for n, v in given.items() if not isinstance(v, Tensor)}
        case = Case(fill=None, salt="", pretend=False, **numbers)
        tally = self.tallies.setdefault(puzzle.name, Tally())
        tally.launches += 1
        if puzzle.name not in self.kernels:
            return _in_torch(puzzle, case, tensors)
        tally.kernel = getattr(self.kernels[puzzle.name], "__name__", "")
        try:
            return alone(lambda: self._run(puzzle, case, tensors, tally))
        except Busy as reason:
            raise Stopped(Report(puzzle.name, verdict=verdicts.Verdict("error", str(reason)))) from None

    def _run(
        self, puzzle: Puzzle, case: Case, tensors: dict[str, Tensor], tally: Tally
    ) -> tuple[Tensor, ...]:
        bound = bind(self.kernels[puzzle.name], puzzle, case)
        if isinstance(bound, Refusal):
            raise Stopped(Report(puzzle.name, verdict=verdicts.of_refusal(bound)))
        bound = dataclasses.replace(bound, program=self._program(bound))
        ran = attempt(bound, tensors, Options(seconds=SECONDS))
        if verdict := verdicts.misconduct(puzzle, case, ran):
            raise Stopped(Report(puzzle.name, (CaseResult(str(case), verdict),)))
        tally.programs += ran.programs
        tally.bytes += ran.bytes_moved
        return tuple(ran.outputs[result.name] for result in puzzle.results)

    def _program(self, bound: Bound) -> compiler.Program:
        """Return what is run, translated once for all launches that need no other translation."""
        constants = tuple(
            (
                p.name,
                value if p.is_constexpr or value == 1 else isinstance(value, int) and value.bit_length() > 31,
            )
            for p in bound.kernel.params
            if isinstance(value := bound.arguments[p.name], int | float)
        )
        key = (bound.puzzle.name, constants)
        if key not in self._programs:
            found = compiler.program(bound.kernel, bound.arguments)
            if isinstance(found, Refusal):
                raise Stopped(Report(bound.puzzle.name, verdict=verdicts.of_refusal(found)))
            self._programs[key] = found
        return self._programs[key]


def _is_begun(kernel: object) -> bool:
    wrapped = unwrap(kernel)
    return wrapped is None or not is_untouched(wrapped.kernel)


def doubt_about(puzzle: Puzzle, kernel: object) -> str:
    """Return what is known of a kernel that hasn't passed `check` as it is; "" if it has, or isn't one."""
    wrapped = unwrap(kernel)
    if wrapped is None:
        return ""
    if not _is_begun(kernel):
        return OPEN
    right = verdict_on(puzzle, wrapped.kernel)
    if right is not False:
        return "" if right else UNCHECKED
    last = last_check(puzzle)
    mended = last is not None and last.report.ok and last.kernel == wrapped.kernel.__name__
    return OLDER if mended else FAILS


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread. The tensors are small, so more threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _sizes(puzzle: Puzzle, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the numbers that the tensors' axes give."""
    return {
        dim: size
        for argument in puzzle.inputs
        for dim, size in zip(argument.dims, tensors[argument.name].shape, strict=True)
        if dim.isidentifier()
    }


def _in_torch(puzzle: Puzzle, case: Case, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Return the results by the puzzle's formula, computed in float32 and rounded at the end."""
    wide = {name: each.float() if each.is_floating_point() else each for name, each in tensors.items()}
    numbers = {name: case.numbers[name] for name in puzzle.spec_numbers}
    with torch.inference_mode():
        found = puzzle.spec(**{n: (wide | numbers)[n] for n in inspect.signature(puzzle.spec).parameters})
    found = found if isinstance(found, tuple) else (found,)
    return tuple(each.to(result.dtype) for each, result in zip(found, puzzle.results, strict=True))
