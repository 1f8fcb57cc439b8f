"""Compute what a result should be, from the spec in float64, and how far off a correct kernel may be.

A fixed ``atol`` misses errors in small values and is too strict for large ones. Here each element has its
own tolerance: how far the exact result moves when the inputs move by float32's rounding. (This is the
condition of the problem at that element.) Inputs on ties, which a movement of any size would decide, are left
where they are: see `inputs.unmoved`. If all are, a result of half precision has no tolerance. A factor
covers any reasonable order of summation. Half precision
is 8192 times coarser than float32, so its errors are never within the tolerance, unless the puzzle allows
them. Some do, because ``tl.dot`` needs both factors in one dtype: they allow a roundoff of each summand.

What counts as correct:

    result                        correct is                                          puzzles
    integers: words, masks, locks the spec's, bit for bit                             12a, 13, 13b, 14, 15a
                                                                                      15b, 17, 22, 26, 31, 32
                                                                                      47, 56, 71, 75
    `Puzzle.exact`: chosen        the spec's; -0 is 0, and one NaN as good as another 10b, 15a, 15b, 17, 18
                                                                                      26, 59, 60, 74
    float16, bfloat16, float8     float32's own error, then rounded to nearest        11, 16, 25, 28, 30
                                                                                      35-38, 66, 68-70, 73
    float32                       float32's own error                                 others
    float64, with no other floats float64's own error                                 none
    what `Puzzle.allowance` names that, and as far from it as the puzzle allows       35-38, 67, 70, 72b

Accepted on purpose:

- In float32, errors of up to about 24 units in the last place (1.4e-6 of the value): ``exp2`` for ``exp`` or
  another order of a sum costs that much. So a relative error of 1e-6 passes, unless it comes from a constant
  that the formula doesn't have, such as 1e-6 in a denominator. There, 1e-7 passes: float32 hides it.
- A tie of float16 or bfloat16 that is rounded the other way, if float32's error may have moved it.
- Zero for a value below the dtype's smallest normal number, unless the result is exact.
- What a correct kernel's intermediates lose to rounding, even if the inputs do not show it: see `algebra`.
- A rounding to float16 or bfloat16, but not a wrong formula that it hides: see `algebra`.
- Storing the value that an input already has, or adding 0 to it: no later reader can see that.

Method: stochastic perturbation of the inputs, as in Higham, *Accuracy and Stability of Numerical
Algorithms* (2nd ed., sections 1.6 and 26.5).
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from puzzles_lib.dtypes import DType, of_torch
from puzzles_lib.inputs import is_unmoved
from puzzles_lib.puzzle import Argument, Case, Puzzle

FLOAT32_ROUNDOFF = of_torch(torch.float32).roundoff
FACTOR_CONDITION = 32.0  # times the movement of the result when the inputs change by float32's rounding
FACTOR_VALUE = 24.0  # times the rounding of the value itself: intermediate results, exp2 instead of exp
WHOLE = 2.0**-16  # of a result's largest value: a smaller difference may be rounding, see `algebra`
BELOW = 1 - 2.0**-20  # zero is accepted for values below the smallest normal number, not the reverse
DRAWS = 4
ENOUGH = 8  # elements along an axis from which a typical movement can be computed


@dataclass(frozen=True)
class Expected:
    """The expected result: ``value`` in float64, and a ``tolerance`` per element, None for exact results.

    allowed: the part of the tolerance that is the puzzle's `allowance` for intermediate rounding.
    """

    argument: Argument
    value: torch.Tensor
    tolerance: torch.Tensor | None
    allowed: torch.Tensor | None = None

    def accepts(self, got: torch.Tensor) -> torch.Tensor:
        """Return a boolean tensor: True for each element of ``got`` that is correct."""
        if not got.is_floating_point():
            return got == self.value
        got, value = got.double(), self.value.double()
        same = (got == value) | (got.isnan() & value.isnan())
        if self.tolerance is None:
            return same
        low, high = value - self.tolerance, value + self.tolerance
        if self.rounds:
            low, high = (rounded(bound, self.argument.dtype) for bound in (low, high))
        return same | (low <= got) & (got <= high)

    def widened(self, more: torch.Tensor) -> "Expected":
        """Return this with ``more`` added to the tolerance, but at most `WHOLE` times the largest value."""
        if self.tolerance is None:
            return self
        finite = self.value.double()[self.value.isfinite()].abs()
        most = WHOLE * float(finite.max()) if finite.numel() else 0.0
        return replace(self, tolerance=self.tolerance + more.double().clamp(max=most))

    def is_near(self, got: torch.Tensor) -> bool:
        """Return whether no element of ``got`` is further off than rounding may explain."""
        return bool(self.widened(torch.tensor(torch.inf)).accepts(got).all())

    @property
    def own(self) -> torch.Tensor | None:
        """The tolerance without the puzzle's allowance, which leaves float32's own error."""
        if self.tolerance is None or self.allowed is None:
            return self.tolerance
        return self.tolerance - self.allowed

    @property
    def rounds(self) -> bool:
        """Whether the result's dtype is coarser than the one it is computed in."""
        return of_torch(self.argument.dtype).roundoff > FLOAT32_ROUNDOFF


def expect(puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor]) -> dict[str, Expected]:
    """Return the spec's results in float64 by output name, with tolerances."""
    exact = evaluate(puzzle, case, inputs)
    _vouch(exact, evaluate(puzzle, case, inputs))
    allowed = evaluate(puzzle, case, inputs, puzzle.allowance) if puzzle.allowance else {}
    moved, roundoff = [], roundoff_of(puzzle)
    unmoved = {name: inputs[name] for name, fill in case.fill.items() if is_unmoved(fill)}
    if any(t.is_floating_point() for t in inputs.values()):
        for draw in range(DRAWS):
            moved.append(evaluate(puzzle, case, _perturbed(inputs, draw, roundoff) | unmoved))
    expected = {}
    for argument in puzzle.results:
        value = exact[argument.name]
        row = of_torch(argument.dtype)
        if not row.is_float or argument.name in puzzle.exact:
            expected[argument.name] = Expected(argument, value.to(argument.dtype), None)
            continue
        tolerance = FACTOR_VALUE * roundoff * value.abs()
        if moved:
            movement = torch.stack([(m[argument.name] - value) ** 2 for m in moved]).mean(0).sqrt()
            tolerance = tolerance + FACTOR_CONDITION * (movement + typical(movement) / 8)
        tolerance = torch.nan_to_num(tolerance, nan=0.0) + row.least * BELOW
        if is_exact(case, inputs) and row.roundoff > roundoff:  # exact until it's rounded
            tolerance = torch.zeros_like(value)
        more = torch.nan_to_num(allowed[argument.name], nan=0.0) if allowed else None
        expected[argument.name] = Expected(
            argument, value, tolerance if more is None else tolerance + more, more
        )
    return expected


def is_exact(case: Case, inputs: Mapping[str, torch.Tensor]) -> bool:
    """Return whether all floats of a case are such that no correct kernel has to round before the result."""
    floats = [name for name, tensor in inputs.items() if tensor.is_floating_point()]
    return bool(floats) and all(name in case.fill and is_unmoved(case.fill[name]) for name in floats)


def typical(movement: torch.Tensor) -> torch.Tensor:
    """Return how far an element's neighbors move, because a few draws may happen to leave an element alone.

    Its neighbors are the elements along an axis. The axis with the least movement counts, because rows may
    be of very different sizes.
    """
    finite = torch.where(movement.isfinite(), movement, 0.0).square()
    typical = finite.mean().sqrt() if movement.numel() else torch.tensor(0.0)
    for axis, size in enumerate(movement.shape):
        if size >= ENOUGH:
            typical = torch.minimum(typical, finite.mean(axis, keepdim=True).sqrt())
    return typical


def rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the nearest numbers of a dtype, in float64."""
    return _exact(value, of_torch(dtype)).to(dtype).double()


def evaluate(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    spec: Callable | None = None,
) -> dict[str, torch.Tensor]:
    """Return the results of the spec, or of another function like it, with floats in float64.

    spec: takes the inputs and, by name, any of the case's numbers.

    Raises PuzzleFault if the spec raises, or returns something other than its annotation says.
    """
    wide = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    wide = {n: t.clone() if t is inputs[n] else t for n, t in wide.items()}  # a spec may work in place
    spec = spec or puzzle.spec
    with the_puzzles_own("its spec", case):
        asked = inspect.signature(spec).parameters
        results = spec(**wide, **{n: value for n, value in case.numbers.items() if n in asked})
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(puzzle.results):
            raise ValueError(f"it returns {len(results)} results, but {len(puzzle.results)} are annotated")
        for argument, result in zip(puzzle.results, results, strict=True):
            if not isinstance(result, torch.Tensor):
                raise ValueError(f"{argument.name} is a {type(result).__name__}, not a tensor")
            if result.shape != (shape := argument.shape(case.numbers)):
                raise ValueError(
                    f"{argument.name} has shape {tuple(result.shape)}, but its annotation says {shape}"
                )
    return {a.name: _exact(r, of_torch(a.dtype)) for a, r in zip(puzzle.results, results, strict=True)}


class PuzzleFault(Exception):
    """The puzzle itself is faulty. The message tells its author why."""


@contextlib.contextmanager
def the_puzzles_own(what: str, case: Case) -> Iterator[None]:
    """Turn any exception within the block into a PuzzleFault, because the kernel did not cause it."""
    try:
        yield
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise PuzzleFault(
            f"the puzzle is at fault, not the kernel: {what} fails for {case} ({text:.200})"
        ) from error


def _vouch(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> None:
    """Raise PuzzleFault if two calls of a spec give different results: no kernel could be correct."""
    for name, value in first.items():
        if not torch.equal(value.nan_to_num(), second[name].nan_to_num()):
            raise PuzzleFault(
                f"the puzzle is at fault, not the kernel: its spec returns a different {name} at each call"
            )


def _exact(result: torch.Tensor, row: DType) -> torch.Tensor:
    """Return what a kernel's result is compared with: floats in float64, float8 clamped to its range."""
    if not row.is_float:
        return result
    return result.double().clamp(-row.largest, row.largest) if row.is_float8 else result.double()


def roundoff_of(puzzle: Puzzle) -> float:
    """Return the roundoff of what a kernel computes in: float32's, or float64's if all floats are float64."""
    floats = [row for a in puzzle.tensors if (row := of_torch(a.dtype)).is_float]
    return min(FLOAT32_ROUNDOFF, max((row.roundoff for row in floats), default=FLOAT32_ROUNDOFF))


def _perturbed(inputs: Mapping[str, torch.Tensor], draw: int, roundoff: float) -> dict[str, torch.Tensor]:
    """Return the inputs with each float moved up or down by about one unit roundoff; zeros stay zeros.

    The steps differ: if two floats moved alike, their difference would often stay as it is.
    """
    generator = torch.Generator().manual_seed(draw)
    moved = {}
    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            steps = 3**0.5 * (2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 1)
            moved[name] = tensor.double() * (1 + roundoff * steps)
        else:
            moved[name] = tensor
    return moved
