"""Run a bound kernel once, on its own copies of the tensors, and check its accesses."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from puzzles_lib.binding import Bound
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import LINE_BY_LINE, Options, Program, Run, run
from puzzles_lib.source import Refusal


class OutOfTime(Exception):
    """A check has used all of its CPU time, ``seconds``."""

    def __init__(self, seconds: float):
        super().__init__(f"{seconds:g} s")
        self.seconds = seconds


class Refused(Exception):
    """The front end no longer accepts the kernel."""

    def __init__(self, refusal: Refusal):
        super().__init__(str(refusal))
        self.refusal = refusal


def positive(call: str, seconds: object) -> None:
    """Raise ValueError, with the call's name, if ``seconds`` is not a number above 0."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise ValueError(f"{call}: seconds must be a number above 0, but is {seconds!r}")


class Budget:
    """The CPU time of this thread, in seconds. When this time is used up, a check starts no more runs."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._end = time.thread_time() + seconds

    def used(self) -> float:
        """Return the share of the time that is used up, from 0 to 1."""
        return 1 - (self._end - time.thread_time()) / self.seconds

    def ask(self) -> None:
        """Raise `OutOfTime` if the time is used up."""
        if time.thread_time() >= self._end:
            raise OutOfTime(self.seconds)


def attempt(
    bound: Bound,
    inputs: Mapping[str, torch.Tensor],
    options: Options = LINE_BY_LINE,
    *,
    results: Mapping[str, torch.Tensor] | None = None,
) -> Run:
    """Run a kernel on copies of the inputs and on outputs as they are at the start, and check its accesses.

    options: the options of the run; those that the puzzle sets for its tensors are added.
    results: outputs to write to instead, without copying them.
    """
    tensors = {name: tensor.clone() for name, tensor in inputs.items() if name in bound.takes}
    taken = [result for result in bound.puzzle.results if result.name in bound.takes]
    if results is None:
        results = {result.name: blank(bound.puzzle, result, bound.case) for result in taken}
        fill_in_place(bound.puzzle, results, inputs)
    tensors |= {result.name: results[result.name] for result in taken}
    outputs = {f"{result.name}_ptr" for result in bound.puzzle.results}
    programs = bound.puzzle.programs(bound.case)
    zeroed = {f"{name}_ptr" for name in (*bound.puzzle.zeroed, *bound.puzzle.in_place)}
    locks = {f"{name}_ptr" for name in bound.puzzle.locks}
    code = bound.translated(record=options.recorder is not None)
    if isinstance(code, Refusal):
        raise Refused(code)
    untaken = {name: inputs[name].clone() for name in bound.puzzle.pointed_to if name not in tensors}
    for table, name in (bound.puzzle.tables or {}).items():
        if table in tensors:
            _fill_table(tensors[table], {**untaken, **tensors}[name])
    arguments = bound.filled(tensors)
    if bound.configuration is not None and bound.configuration.pre_hook is not None:
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        if refusal := bound.configuration.prepare(arguments) or _meddling(bound.puzzle, before, tensors):
            raise Refused(refusal)
        before = {result.name: before[result.name] for result in taken}
        zeroed |= {f"{name}_ptr" for name, tensor in before.items() if _is_set(tensor, tensors[name])}
    others = {name: (tensor.data_ptr(), tensor) for name, tensor in untaken.items()}
    ran = run(
        code,
        arguments,
        programs,
        outputs,
        replace(
            options,
            zeroed=zeroed,
            locks=locks,
            others=others,
            tensors=bound.tensors,
            starts=bound.starts,
            resident=options.resident or (bound.resident and _all(options.only, programs)),
        ),
    )
    missing = [r for r in bound.puzzle.results if r not in taken and r.name in bound.puzzle.zeroed]
    untouched = {result.name: blank(bound.puzzle, result, bound.case) for result in missing}
    return replace(ran, outputs={**ran.outputs, **untouched})


def _all(only: Sequence[Program] | None, grid: Program) -> bool:
    """Return whether all programs of the grid run."""
    return only is None or len(set(only)) == math.prod(grid)


def _fill_table(table: torch.Tensor, rows: torch.Tensor) -> None:
    """Let a table hold the address of each row of a tensor, one after the other; more entries are 0."""
    table.zero_()
    flat = table.view(-1)
    count = min(len(flat), len(rows))
    step = rows.stride(0) * rows.itemsize
    flat[:count] = torch.arange(count) * step + rows.data_ptr()


def _meddling(
    puzzle: Puzzle, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
) -> Refusal | None:
    """Refuse a hook that changes an input, or does the kernel's work: it may only clear results."""
    results = {result.name for result in puzzle.results}
    for name, tensor in after.items():
        values = bytes_of(tensor)
        changed = (values != bytes_of(before[name])).any(1)
        if name not in results and changed.any():
            text = f"the pre_hook of a configuration changes the input {name}: it may only clear results"
            return Refusal(text, kind="signature")
        if (values[changed] != values[changed][:1]).any():
            text = f"the pre_hook of a configuration computes {name}: it may only clear results"
            return Refusal(text, kind="signature")
    return None


def _is_set(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Return whether a hook has given every element of a result a value."""
    if not before.numel():
        return False
    return bool((bytes_of(before) != bytes_of(after)).any(1).all())


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return each element's bytes, in a row of its own."""
    return tensor.reshape(-1).view(torch.uint8).reshape(-1, tensor.itemsize)


def fill_in_place(
    puzzle: Puzzle, results: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]
) -> None:
    """Copy each input that the kernel changes in place into the result of the same name."""
    for name in puzzle.in_place & results.keys():
        results[name].copy_(inputs[name])


def blank(puzzle: Puzzle, result: Argument, case: Case, *, wide: bool = False) -> torch.Tensor:
    """Return an output as a kernel finds it: zeros, or implausible values.

    wide: whether to make every float a float64.
    """
    dtype = torch.float64 if wide and result.dtype.is_floating_point else result.dtype
    tensor = torch.empty(result.shape(case.numbers), dtype=dtype)
    if result.name in puzzle.zeroed:
        return tensor.zero_()
    if result.dtype.is_floating_point:
        return tensor.fill_(float("nan"))
    if result.dtype == torch.bool:
        return tensor.fill_(True)
    if tensor.numel():
        tensor.reshape(-1).view(torch.uint8).fill_(0xA5)  # the same memory
    return tensor
