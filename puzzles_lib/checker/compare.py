"""Is a result right? Measured against float64, with a tolerance that follows from the arithmetic.

A fixed ``atol`` is blind where values are small and harsh where they are large. Here each element has
its own tolerance: how far the exact result moves when the inputs move by float32's rounding (the
condition of the problem at that element), times a factor that covers any sane order of summation.
Half precision is 8192 times coarser than float32 and never fits in.

Method: stochastic perturbation of the inputs, as in Higham, *Accuracy and Stability of Numerical
Algorithms* (2nd ed., sections 1.6 and 26.5).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from puzzles_lib.dtypes import DType, of_torch
from puzzles_lib.puzzle import Argument, Case, Puzzle

FLOAT32_ROUNDOFF = of_torch(torch.float32).roundoff
FACTOR_CONDITION = 32.0  # on the movement of the result under float32-sized changes of the inputs
FACTOR_VALUE = 16.0  # on the value's own rounding: intermediate results, exp2 instead of exp
DRAWS = 4


@dataclass(frozen=True)
class Expected:
    """What a result should be: float64 ``value`` with elementwise ``tolerance``, or exact integers."""

    argument: Argument
    value: torch.Tensor
    tolerance: torch.Tensor | None

    def accepts(self, got: torch.Tensor) -> torch.Tensor:
        """True per element of ``got`` that is right."""
        if self.tolerance is None:
            return got == self.value
        got = got.double()
        close = (got - self.value).abs() <= self.tolerance
        return close | (got == self.value) | (got.isnan() & self.value.isnan())


@dataclass(frozen=True)
class Mismatch:
    """Wrong values in one result: a message, and a diagnosis where one fits."""

    message: str
    diagnosis: str = ""


def expect(puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor]) -> dict[str, Expected]:
    """The spec's results in float64 by output name, with tolerances."""
    exact = _evaluate(puzzle, case, inputs)
    moved = []
    if any(t.is_floating_point() for t in inputs.values()):
        for draw in range(DRAWS):
            moved.append(_evaluate(puzzle, case, _perturbed(inputs, draw)))
    expected = {}
    for argument in puzzle.results:
        value = exact[argument.name]
        row = of_torch(argument.dtype)
        if not row.is_float:
            expected[argument.name] = Expected(argument, value.to(argument.dtype), None)
            continue
        tolerance = FACTOR_VALUE * FLOAT32_ROUNDOFF * value.abs()
        if moved:
            movement = torch.stack([(m[argument.name] - value) ** 2 for m in moved]).mean(0).sqrt()
            # An element may escape four draws by luck: lean on its neighbours a little.
            typical = movement[movement.isfinite()].square().mean().sqrt() if movement.numel() else 0.0
            tolerance = tolerance + FACTOR_CONDITION * (movement + typical / 8)
        if argument.dtype != torch.float32:
            tolerance = tolerance + 2 * row.roundoff * value.abs()
        expected[argument.name] = Expected(argument, value, torch.nan_to_num(tolerance, nan=0.0) + row.least)
    return expected


def _evaluate(puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    wide = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    results = puzzle.spec(**wide, **{n: case.numbers[n] for n in puzzle.spec_numbers})
    results = results if isinstance(results, tuple) else (results,)
    return {a.name: _exact(r, of_torch(a.dtype)) for a, r in zip(puzzle.results, results, strict=True)}


def _exact(result: torch.Tensor, row: DType) -> torch.Tensor:
    """What a kernel's result is compared with: floats in float64, float8 within its range, as casts do."""
    if not row.is_float:
        return result
    return result.double().clamp(-row.largest, row.largest) if row.is_float8 else result.double()


def _perturbed(inputs: Mapping[str, torch.Tensor], draw: int) -> dict[str, torch.Tensor]:
    """Each float moved by one unit roundoff of float32, up or down; zeros stay zeros."""
    generator = torch.Generator().manual_seed(draw)
    moved = {}
    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
            moved[name] = tensor.double() * (1 + FLOAT32_ROUNDOFF * signs)
        else:
            moved[name] = tensor
    return moved


def compare(
    expected: Expected, got: torch.Tensor, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor]
) -> Mismatch | None:
    """None where every element is right, else what is wrong and, where it shows, why."""
    right = expected.accepts(got)
    if right.all():
        return None
    wrong = ~right
    got = got.double() if got.is_floating_point() else got
    first = tuple(int(i) for i in wrong.nonzero()[0])
    name, place = expected.argument.name, ", ".join(map(str, first))
    digits = 6 if _number(got[first]) != _number(expected.value[first]) else 9
    message = (
        f"wrong values in {name}: {int(wrong.sum())} of {got.numel()}, the first is {name}[{place}]: "
        f"got {_number(got[first], digits)}, want {_number(expected.value[first], digits)}"
    )
    return Mismatch(message, _diagnose(expected, got, wrong, puzzle, case, inputs))


def _number(value: torch.Tensor, digits: int = 6) -> str:
    number = value.item()
    return f"{number:.{digits}g}" if isinstance(number, float) else str(number)


# ---- diagnosis: what single slip would explain all of it?


def _diagnose(
    expected: Expected,
    got: torch.Tensor,
    wrong: torch.Tensor,
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
) -> str:
    value = expected.value
    if got.is_floating_point() and (got.isnan() & ~value.isnan()).any():
        count = int((got.isnan() & ~value.isnan()).sum())
        return f"{count} of them are NaN: look for -inf - (-inf), 0 / 0 or 0 * inf"
    if got.dim() >= 2 and _fits(expected, got.reshape(*value.shape[:-2], *value.shape[:-3:-1]).mT):
        return "it is right when transposed: rows and columns are swapped"
    if not value.any() or not got.any():
        return "it is zero everywhere" if not got.any() else ""
    exact, got = value.double(), got.double()
    slack = 4 * (of_torch(expected.argument.dtype).roundoff or 0.0) * (exact.abs() + got.abs())
    if expected.tolerance is not None:
        slack = slack + expected.tolerance
    difference = got - exact
    if wrong.all() and _constant(difference, slack):
        return f"it is off by {_number(difference.median(), 4)} everywhere"
    some = exact != 0
    ratio = got[some] / exact[some]
    if bool((got[~some] == 0).all()) and _constant(ratio, (slack[some] / exact[some]).abs()):
        return f"it is {_number(ratio.median(), 4)} times what it should be, everywhere"
    if not value[wrong].any():
        return "the wrong ones are those that should be zero"
    if not got[wrong].any():
        return "the wrong ones are zero"
    return _one_block(expected, got, puzzle, case, inputs) or _where(expected, wrong)


def _fits(expected: Expected, got: torch.Tensor) -> bool:
    return got.shape == expected.value.shape and bool(expected.accepts(got).all())


def _constant(values: torch.Tensor, slack: torch.Tensor) -> bool:
    """Whether all values are one, give or take a slack of each."""
    if values.numel() < 2 or not values.isfinite().all():
        return False
    return bool(((values - values.median()).abs() <= slack).all())


def _one_block(
    expected: Expected,
    got: torch.Tensor,
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
) -> str:
    """Does only the first or the last block of a summed axis count?"""
    if expected.tolerance is None:
        return ""
    kept = set(expected.argument.dims)
    axes = {d for a in puzzle.inputs for d in a.dims if d.isidentifier() and d not in kept}
    for axis in sorted(axes):
        block, size = case.numbers.get(f"BLOCK_{axis}"), case.numbers.get(axis)
        if not block or not size or block >= size:
            continue
        last = (size - 1) // block * block
        for words, lanes in (("first", slice(0, block)), ("last", slice(last, size))):
            part = {a.name: _only(inputs[a.name], a, axis, lanes) for a in puzzle.inputs}
            if _fits(_around(expected, _evaluate(puzzle, case, part)[expected.argument.name]), got):
                return f"only the {words} block of {axis} counts"
    return ""


def _only(tensor: torch.Tensor, argument: Argument, axis: str, lanes: slice) -> torch.Tensor:
    """The tensor with zeros outside of ``lanes`` along an axis, if it has that axis."""
    if axis not in argument.dims or not tensor.is_floating_point():
        return tensor
    dim = argument.dims.index(axis)
    kept = torch.zeros_like(tensor)
    index = tuple(lanes if d == dim else slice(None) for d in range(tensor.dim()))
    kept[index] = tensor[index]
    return kept


def _around(expected: Expected, value: torch.Tensor) -> Expected:
    """The same tolerance around another value, which may be larger and so be rounded more."""
    rounding = 2 * of_torch(expected.argument.dtype).roundoff * value.abs()
    tolerance = rounding if expected.tolerance is None else expected.tolerance.maximum(rounding)
    return Expected(expected.argument, value, tolerance)


def _where(expected: Expected, wrong: torch.Tensor) -> str:
    """Along which axes do the wrong elements stay within a part?"""
    parts = []
    for dim, name in enumerate(expected.argument.dims):
        others = tuple(d for d in range(wrong.dim()) if d != dim)
        hit = wrong.any(dim=others) if others else wrong
        index = hit.nonzero().flatten()
        low, high = int(index[0]), int(index[-1])
        if (low, high) != (0, len(hit) - 1) or len(index) == 1 < len(hit):
            parts.append(f"{low}..{high} along {name}" if low != high else f"{low} along {name}")
    return "all wrong ones lie at " + " and ".join(parts) if parts else ""
