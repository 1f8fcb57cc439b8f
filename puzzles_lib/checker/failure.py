"""Show a failing case: the call that lets you watch it, and a map of what is wrong.

The map is made when a report is shown as HTML. If it needs the accesses, the kernel is run once more under
guard; a map that would take long is left out.
"""

import math
from collections.abc import Mapping

import torch

from puzzles_lib.binding import Bound
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.checker.compare import in_dtype, is_packed
from puzzles_lib.checker.expected import Expected
from puzzles_lib.checker.report import Draw, Verdict
from puzzles_lib.runner import Options, Program, Run, alone

MOST_ELEMENTS = 100_000  # the largest tensor that a map shows
MOST_PROGRAMS, MOST_BYTES = 256, 2_000_000  # the longest run that is made again for a map
SECONDS = 2.0  # the limit of that run


def watch_call(bound: Bound, case: int, program: Program | None) -> str:
    """Return the call of `watch` that shows this case, ready to be typed."""
    text = f"watch({bound.kernel.__name__}, {bound.puzzle.name.upper()}, case={case}"
    if program is None:
        return f"{text})"
    axes = len(bound.puzzle.grid(bound.case))
    return f"{text}, program={program[0] if axes == 1 else program[:axes]})"


def telling_program(verdict: Verdict, ran: Run, expected: Mapping[str, Expected]) -> Program | None:
    """Return the program in which the fault shows; None if it is not in a single one."""
    if ran.stop:
        return ran.program
    if verdict.kind == "uninitialized" and ran.undefined and ran.undefined.use:
        return ran.undefined.use.program
    if verdict.kind == "race" and ran.conflict:
        return ran.conflict.programs[1]
    if verdict.kind == "values":
        name = _wrong_result(ran, expected)
        first = int((~expected[name].accepts(ran.outputs[name])).flatten().int().argmax())
        return ran.writer(name, first)
    return None


def drawing(
    bound: Bound,
    verdict: Verdict,
    ran: Run,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
) -> Draw | None:
    """Return a function that makes the map of a fault; None if there is nothing to draw."""
    if verdict.kind == "values":
        name = _wrong_result(ran, expected)
        if expected[name].value.numel() > MOST_ELEMENTS:
            return None
        return lambda: (
            f"where {name} is wrong",
            alone(lambda: _error_map(expected[name], ran.outputs[name])),
        )
    if verdict.kind == "out of bounds":
        name = ""
    elif verdict.kind == "never written" and ran.written:
        name = next(r.name for r in bound.puzzle.results if not ran.written.get(r.name, _NOTHING).all())
    elif verdict.kind == "race" and ran.conflict:
        name = ran.conflict.argument
    else:
        return None
    if ran.programs > MOST_PROGRAMS or ran.lane_bytes > MOST_BYTES:
        return None
    return lambda: _access_map(bound, inputs, name)


_NOTHING = torch.zeros(1, dtype=torch.bool).numpy()


def _wrong_result(ran: Run, expected: Mapping[str, Expected]) -> str:
    return next(name for name, want in expected.items() if not want.accepts(ran.outputs[name]).all())


def _error_map(want: Expected, got: torch.Tensor) -> str:
    from puzzles_lib.drawing.errors import error_map

    packed = is_packed(want.argument)
    value = in_dtype(want.value, want.argument.dtype, got)
    return error_map(got, value, want.argument.name, ~want.accepts(got), packed).svg()


def _access_map(bound: Bound, inputs: Mapping[str, torch.Tensor], name: str) -> tuple[str, str]:
    """Return the map of which program accessed what of a tensor; no name: the one that lanes overrun."""
    from puzzles_lib.checker.maps import tensor_map
    from puzzles_lib.drawing.accesses import access_map

    ran = alone(lambda: attempt(bound, inputs, Options(record=True, quiet=True, seconds=SECONDS)))
    if ran.stop and ran.stop.kind in ("time limit", "memory limit"):
        return "", ""  # how far the run got depends on the computer
    program = next((a.program for a in ran.accesses if a.bad.any()), None)
    name = name or next((a.argument for a in ran.accesses if a.bad.any()), "")
    if name in {a.name for a in bound.puzzle.results} - {a.argument for a in ran.accesses}:
        stores = (a.argument for a in ran.accesses if a.kind != "load")
        name = next(stores, "")  # nothing to see in a result that isn't touched: what was stored went here
    argument = next((a for a in bound.puzzle.tensors if a.name == name), None)
    if argument is None or math.prod(shape := argument.shape(bound.case.numbers)) > MOST_ELEMENTS:
        return "", ""
    grid = tuple(int(n) for n in bound.puzzle.grid(bound.case))
    accesses = [a for a in ran.accesses if a.argument == name]
    each = tensor_map(name, argument.dims, shape, accesses, grid, program)
    outlined = program[: len(grid)] if program else None
    title = f"{bound.puzzle.name}, {bound.case}"
    return f"which program touches which elements of {name}", access_map([each], grid, outlined, title).svg()
