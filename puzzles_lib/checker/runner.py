"""`run`: a puzzle's kernel on tensors of your own."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from puzzles_lib.checker import SECONDS_PER_CASE, outputs
from puzzles_lib.checker.attempts import positive
from puzzles_lib.checker.report import Report
from puzzles_lib.checker.run_launches import counting
from puzzles_lib.puzzle import ALLOWED_NUMBERS, Case, Puzzle, evaluate, expect_puzzle, is_number
from puzzles_lib.staleness import stale_note
from puzzles_lib.stumbles import sentence_first
from puzzles_lib.wrapped import Wrapped, unwrap


def run(
    kernel: object,
    puzzle: Puzzle,
    /,
    *unnamed: object,
    seconds: float = SECONDS_PER_CASE,
    **values: torch.Tensor | float | None,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Run a ``@triton.jit`` kernel on your tensors and return its result, or a tuple of several results.

        z = run(outer_add_kernel, OUTER_ADD, x=torch.ones(5), y=torch.zeros(3), BLOCK_M=4, BLOCK_N=8)

    values: a CPU tensor for each input of the puzzle, under the input's name, with the dtype and the number
        of axes that the spec gives it. Add each number that no tensor's shape gives, such as a block size, as
        in `Case`, unless the kernel's `triton.autotune` or a heuristic sets it. Your tensors need not be
        contiguous. They are copied, so the kernel doesn't change them.
    seconds: the limit on the run's CPU time. The limit on elapsed time is ten times as long.

    The kernel runs once on the CPU, with every memory access checked, as in `check`. Its results are not
    compared with anything.

    Raises TypeError or ValueError, naming the argument, for values that do not fit the puzzle or each other.
    Raises RuntimeError, with the checker's report, if the run is not clean: an access out of bounds,
    uninitialized lanes used, elements never written, a race, an input changed, or a limit reached. Raises it
    as well if the newest cell with the kernel stopped before it defined the kernel.
    """
    __tracebackhide__ = True
    try:
        expect_puzzle("run", kernel, puzzle)
        positive("run", seconds)
        if unnamed:
            names = ", ".join(f"{each.name}=..." for each in puzzle.inputs)
            raise TypeError(f"run: name each tensor, as in run(kernel, {puzzle.name.upper()}, {names})")
        wrapped = unwrap(kernel)
        tensors, numbers = _tensors_and_numbers(puzzle, values)
        numbers |= _set_by_wrappers(wrapped, puzzle, numbers)
        case = Case(fill=None, salt="", pretend=False, **_numbers(puzzle, tensors, numbers))
    except (TypeError, ValueError) as error:
        raise sentence_first(error.with_traceback(None)) from None
    if old := stale_note(wrapped.kernel) if wrapped else "":
        raise sentence_first(RuntimeError(f"{old}.")) from None
    inputs = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    found = outputs(kernel, puzzle, case, inputs, seconds=seconds)
    if isinstance(found, Report):
        if puzzle.broken_by:
            found = _as_a_user_sees_it(kernel, puzzle, found)
        found = dataclasses.replace(found, title=_title(kernel, puzzle, found))
        raise sentence_first(RuntimeError(str(found))) from None
    for kernels in counting:
        kernels.append(kernel)
    results = tuple(found[result.name] for result in puzzle.results)
    return results if len(results) > 1 else results[0]


def _title(kernel: object, puzzle: Puzzle, report: Report) -> str:
    """Return the kernel's name instead of the puzzle's if it isn't named after the puzzle."""
    wrapped = unwrap(kernel)
    name = wrapped.kernel.__name__ if wrapped else ""
    return report.title if name in ("", puzzle.name, f"{puzzle.name}_kernel") else name


def _as_a_user_sees_it(kernel: object, puzzle: Puzzle, report: Report) -> Report:
    """Return the report, without line and cause if it's the reported kernel and the cause isn't said."""
    from puzzles_lib.reported import is_as_reported, symptoms, unsaid  # reads all chapters

    if is_as_reported(kernel, puzzle) and (asked := unsaid(puzzle)):
        return symptoms(report, asked)
    return report


def _tensors_and_numbers(
    puzzle: Puzzle, values: Mapping[str, object]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors and the numbers, after checking their dtypes and axes."""
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    others = dict(values)
    for argument in puzzle.inputs:
        if argument.name not in others:
            raise TypeError(f"run: {argument.name} is missing, {puzzle.name} takes {argument.annotation()}")
        tensor = others.pop(argument.name)
        if not isinstance(tensor, torch.Tensor):
            found = type(tensor).__name__
            a = "an" if found[0] in "aeiou" else "a"
            raise TypeError(f"run: {argument.name} must be {argument.annotation()}, but is {a} {found}")
        if tensor.dtype != argument.dtype:
            wanted, found = (str(dtype).removeprefix("torch.") for dtype in (argument.dtype, tensor.dtype))
            cure = f"pass torch.tensor(..., dtype=torch.{wanted}), or {argument.name}.to(torch.{wanted})"
            raise TypeError(f"run: {argument.name} must be {wanted}, but is {found}: {cure}")
        if tensor.dim() != (axes := len(argument.dims)):
            wanted = f"a tensor with {axes} {'axis' if axes == 1 else 'axes'}"
            found = f"one with {tensor.dim()}: {list(tensor.shape)}"
            raise TypeError(f"run: {argument.name} must be {wanted}, but is {found}")
        if tensor.device.type != "cpu":
            raise ValueError(f"run: {argument.name} must be on the CPU, but is on {tensor.device}")
        tensors[argument.name] = tensor
    known = list(puzzle.cases[0].numbers)
    for name, value in others.items():
        if name not in known:
            allowed = ", ".join([*tensors, *known])
            raise TypeError(f"run: {puzzle.name} takes {allowed}, but not {name!r}")
        whole = type(puzzle.cases[0].numbers[name]) is int
        if not is_number(value) or (whole and type(value) is not int):
            allowed = "an integer of at least 0" if whole else ALLOWED_NUMBERS
            raise ValueError(f"run: {name} must be {allowed}, but is {value!r}")
        numbers[name] = value
    return tensors, numbers


def _set_by_wrappers(wrapped: Wrapped | None, puzzle: Puzzle, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return stand-ins for the numbers that a decorator of the kernel sets. Raise if they are given."""
    numbers = puzzle.cases[0].numbers
    sets = sorted((wrapped.gives if wrapped else set()) & set(numbers) - puzzle.sizes)
    if wrapped and (twice := [name for name in sets if name in given]):
        text = f"run: {twice[0]}={given[twice[0]]} would not be used, because the kernel's decorator sets it"
        raise TypeError(f"{text}. Leave it out, or run {wrapped.kernel.__name__}.fn, without the decorator")
    return {name: numbers[name] for name in sets}


def _numbers(puzzle: Puzzle, tensors: Mapping[str, torch.Tensor], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all numbers of the case, given or from the tensors' axes. Raise ValueError if they differ."""
    numbers = dict(given)
    axes = [
        (argument.name, dim, size)
        for argument in puzzle.inputs
        for dim, size in zip(argument.dims, tensors[argument.name].shape, strict=True)
    ]
    for _, dim, size in axes:
        if dim.isidentifier():
            numbers.setdefault(dim, size)
    if missing := [name for name in puzzle.cases[0].numbers if name not in numbers]:
        are, it = ("are", "each") if len(missing) > 1 else ("is", "it")
        raise TypeError(f"run: {', '.join(missing)} {are} missing, {puzzle.name} needs {it} as an integer")
    for name, dim, size in axes:
        if size != (wanted := evaluate(dim, numbers)):
            shape = tuple(tensors[name].shape)
            other = _swapped_with(name, puzzle, tensors, given)
            advice = f". Are {name} and {other} swapped?" if other else ""
            raise ValueError(f"run: {name} has shape {shape}, but {dim} is {wanted}{advice}")
    return numbers


def _swapped_with(
    name: str, puzzle: Puzzle, tensors: Mapping[str, torch.Tensor], given: Mapping[str, Any]
) -> str:
    """Return the one input that fits together with all others if it changes places with this one; else ""."""
    fits = []
    for other in (each.name for each in puzzle.inputs if each.name != name):
        if tensors[other].dtype == tensors[name].dtype and tensors[other].dim() == tensors[name].dim():
            changed = {**tensors, name: tensors[other], other: tensors[name]}
            numbers = dict(given)
            shapes = [(each.dims, changed[each.name].shape) for each in puzzle.inputs]
            sizes = [pair for dims, shape in shapes for pair in zip(dims, shape, strict=True)]
            for dim, size in sizes:
                if dim.isidentifier():
                    numbers.setdefault(dim, size)
            fits += [other] if all(size == evaluate(dim, numbers) for dim, size in sizes) else []
    return fits[0] if len(fits) == 1 else ""
