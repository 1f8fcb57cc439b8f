"""Accept results that are algebraically correct and differ from the spec only by intermediate rounding.

The tolerance in `expected` follows from the inputs: it is how far the exact result moves when the inputs move
by float32's rounding. ``2 * tl.sigmoid(2 * x) - 1`` is tanh, but near 0 it subtracts 1 from a number close to
1. The rounding of that number is in the result, and no movement of x shows it. So a few of many elements are
out of tolerance. If (and only if) that happens, the kernel's IR runs again with every float in float64
(`runner.exact`), and three questions are asked:

1. Is the algorithm correct? Each result of the float64 run must differ from the spec by at most `SAME` of the
   tolerance, which is about 1e-9 of the condition, plus what float64 itself rounds. If a result differs by
   more, the kernel computes something else, however small the difference is, and stays rejected.
   A constant such as 0.1 is not a float32, and the kernel cannot help that. So each such constant may be any
   number that float32 rounds to it: least squares find the numbers that fit best, and the kernel runs again
   with them.
2. What may its rounding cost? In float32 each operation moves its result by up to 2^-24 of it. So the
   float64 run is repeated `DRAWS` times, and each operation's result is moved by about that much, at random.
   The movement of an element (root mean square) is the cost of all roundings that entered it, each weighted
   by its effect. Multiplied by the factor that `expected` uses for the movement of the inputs, it is added
   to the tolerance. Only float32's rounding counts: a cast to float16 or a dot in TF32 costs more, and no
   more is added for it.
3. Is the result as a whole accurate? At most `WHOLE` of the result's largest value is added, so the result
   keeps 16 bits. A variance computed as a small difference of large squares stays rejected, although its
   algebra is right.

If the kernel works on the bits of floats (bitcasts, float8, scaled dots), it means something else in float64.
Then, and if any integer result differs in float64, the tolerance stays as it is. So it does for inputs that
no correct kernel has to round (`inputs.unmoved`).

A result in float16 or bfloat16 hides most errors of up to 2^-11 or 2^-8, and so does an `allowance`. So a
kernel that passes with such results runs once more in float64 (`Judge.hidden`). There it must be as close to
the spec as a result in float32. Nothing is said if a float64 run would not do the same: if the kernel rounds
on the way, or if its results in float64 are further off than they can be by rounding.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from puzzles_lib.binding import Bound
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.attempts import Budget, OutOfTime, attempt, blank, fill_in_place
from puzzles_lib.checker.compare import AS_SMALL_AS_ROUNDING
from puzzles_lib.checker.expected import (
    FACTOR_CONDITION,
    FLOAT32_ROUNDOFF,
    Expected,
    evaluate,
    is_exact,
    roundoff_of,
)
from puzzles_lib.checker.report import Verdict
from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Argument
from puzzles_lib.runner import Options, Run
from puzzles_lib.runner.exact import (
    Decisions,
    NotExact,
    Roundings,
    rounded_constants,
    rounds_on_the_way,
    widened,
)
from puzzles_lib.source import Refusal

PERHAPS_ROUNDING = "if this is only rounding, the puzzle can allow it with allowance="
NOT_ROUNDING = "this is not only rounding"
SAME = 2.0**-11  # of a tolerance in float32: about 1e-9 of the condition
IN_FLOAT64 = 2.0**-53 / FLOAT32_ROUNDOFF  # what float64's roundings cost, relative to float32's
MOST_CONSTANTS = 8
VISIBLE = 4 * FLOAT32_ROUNDOFF
TINY, TINIEST = 1e-3, 1e-20  # bounds of a constant that may have no visible effect
HALVES = (torch.float16, torch.bfloat16)
DRAWS = 8

Results = dict[str, torch.Tensor]


@dataclass
class Judge:
    """Judges all runs of a kernel in one case.

    expected: the spec's results. Their tolerances grow at the first run that is slightly out of tolerance, if
        the kernel is algebraically correct.
    explains: whether to look for the reason of wrong values.
    """

    bound: Bound
    inputs: Mapping[str, torch.Tensor]
    expected: dict[str, Expected]
    seconds: float
    budget: Budget
    explains: bool = True
    _asked: bool = field(default=False, init=False)
    _told: str = field(default="", init=False)

    def accepts(self, ran: Run) -> bool:
        """Return whether nothing is wrong with a run."""
        return self(ran, explains=False) is None

    def __call__(self, ran: Run, explains: bool = True) -> Verdict | None:
        """Return the most basic fault of a run; None if there is none."""
        judge = functools.partial(
            verdicts.judge,
            self.bound.puzzle,
            self.bound.case,
            self.inputs,
            self.expected,
            ran,
            explains and self.explains,
        )
        verdict = judge()
        if verdict is None or verdict.kind != "values" or not self._is_near(ran):
            return verdict
        if is_exact(self.bound.case, self.inputs):
            return verdict
        if not self._asked:
            self._asked = True
            self._told = self._ask()
            verdict = judge()
        if verdict is None or verdict.kind != "values" or not self._told:
            return verdict
        found = verdict.diagnosis
        if self._told.startswith(NOT_ROUNDING) and found.startswith(AS_SMALL_AS_ROUNDING):
            found = ""  # a guess that float64 has refuted
        return dataclasses.replace(verdict, diagnosis="; ".join(filter(None, (found, self._told))))

    def may_hide(self) -> bool:
        """Return whether a wrong formula could pass, because results are rounded to 16 bits or may be."""
        return roundoff_of(self.bound.puzzle) == FLOAT32_ROUNDOFF and any(map(_hides, self.expected.values()))

    def hidden(self, ran: Run) -> Verdict | None:
        """Return the fault of a kernel that passes only because rounding hides that its formula is wrong.

        ran: a run that passes.
        """
        program = self.bound.translated()
        rounded = [result.name for result in self.bound.puzzle.results if result.dtype in HALVES]
        if isinstance(program, Refusal) or any(ran.loads.get(name) for name in rounded):
            return None
        if rounds_on_the_way(program.module, for_dots=bool(self.bound.puzzle.allowance)):
            return None
        try:
            exact = _Runs(self.bound, self.inputs, self.seconds, self.budget).exact()
        except (NotExact, OutOfTime):
            return None
        for name, want in self.expected.items():
            own = want.own
            if own is None or want.tolerance is None or not _hides(want):
                continue
            off = (exact[name] - want.value).abs().nan_to_num(0.0, 0.0, 0.0)
            rounding = 2 * of_torch(want.argument.dtype).roundoff * want.value.abs()
            if (off > want.tolerance + rounding).any():
                return None
            if (off > own).any():
                return verdicts.hidden_by_rounding(want, exact[name], off, own, self._slip(exact))
        return None

    def _slip(self, exact: Results) -> str:
        """Return the puzzle's text on the only slip whose results are those of a float64 run."""
        texts = []
        for text, spec in (self.bound.puzzle.slips or {}).items():
            slip = evaluate(self.bound.puzzle, self.bound.case, self.inputs, spec)
            texts += [text] * all(
                want.own is None or bool(((exact[name] - slip[name]).abs() <= want.own).all())
                for name, want in self.expected.items()
            )
        return texts[0] if len(texts) == 1 else ""

    def constant_too_many(self) -> Verdict | None:
        """Return the fault of a kernel that passes, but has a constant that the formula doesn't have.

        A constant such as 1e-6 shows only on few inputs. One that never changes a float32 is accepted.
        """
        try:
            runs = _Runs(self.bound, self.inputs, self.seconds, self.budget)
            exact = runs.exact()
            if roundoff_of(self.bound.puzzle) < FLOAT32_ROUNDOFF or self._same(exact):
                return None
            for constant in _tiny(rounded_constants(runs.program.module)):
                without = runs.exact({constant: 0.0})
                if self._same(without) and _is_visible(exact, without):
                    text = f"with every float in float64, the result is correct only without {constant:.3g}"
                    strict = {name: self._strictly(name, exact, [without]) for name in self.expected}
                    return Verdict("values", text, diagnosis=self._differs(exact, strict))
        except NotExact:
            pass
        return None

    def _same(self, exact: Results) -> bool:
        """Return whether all results of a float64 run equal the spec's results."""
        return _all_accepted({name: self._strictly(name, exact, [exact]) for name in self.expected}, exact)

    def _is_near(self, ran: Run) -> bool:
        """Return whether all differences are small enough to be rounding."""
        if roundoff_of(self.bound.puzzle) < FLOAT32_ROUNDOFF:
            return False
        return all(want.is_near(ran.outputs[name]) for name, want in self.expected.items())

    def _ask(self) -> str:
        """Widen the tolerances if the algorithm is right. Return what to say if values stay wrong."""
        try:
            runs = _Runs(self.bound, self.inputs, self.seconds, self.budget)
            exact = runs.exact()
            moved = [runs.again(FLOAT32_ROUNDOFF, draw) for draw in range(DRAWS)]
            strict = {name: self._strictly(name, exact, moved) for name in self.expected}
            right = _all_accepted(strict, exact)
            if not all(want.is_near(exact[name]) for name, want in strict.items()):
                return ""
            if not right and (fitted := self._fitted(runs, exact, strict)):
                right = _all_accepted(strict, runs.exact(fitted))
        except OutOfTime:
            return ""
        except NotExact:
            return PERHAPS_ROUNDING
        if not right:
            return self._differs(exact, strict)
        for name, want in self.expected.items():
            cost = _cost(exact[name], [each[name] for each in moved])
            self.expected[name] = want.widened(cost)
        larger = "" if self.bound.puzzle.number else ", or give the puzzle a larger allowance="
        return (
            "with every float in float64, the kernel is correct: only its rounding is too coarse. "
            f"Compute in float32 throughout{larger}"
        )

    def _strictly(self, name: str, exact: Results, moved: Sequence[Results]) -> Expected:
        """Return an expected result with the tolerance of a run in float64."""
        want = self.expected[name]
        own = want.own
        if own is None:
            return want
        cost = _cost(exact[name], [each[name] for each in moved])
        wide = dataclasses.replace(want.argument, dtype=torch.float64)
        return Expected(wide, want.value.double(), SAME * own + IN_FLOAT64 * cost)

    def _fitted(
        self, runs: "_Runs", exact: Results, strict: Mapping[str, Expected]
    ) -> dict[float, float] | None:
        """Return the numbers, by the constants that stand for them, with which the results fit best.

        Return None if there are no such constants or too many, or if float32 rounds the numbers differently.
        """
        constants = rounded_constants(runs.program.module)
        floats = {name: want.tolerance for name, want in strict.items() if want.tolerance is not None}
        if not 0 < len(constants) <= MOST_CONSTANTS:
            return None

        def weighed(of: Results, less: Results) -> torch.Tensor:
            each = [((of[n] - less[n]) / tolerance).flatten() for n, tolerance in floats.items()]
            return torch.cat(each).nan_to_num(0.0, 0.0, 0.0)

        steps = [
            weighed(runs.again(instead={value: value * (1 + FLOAT32_ROUNDOFF)}), exact) for value in constants
        ]
        lacking = weighed({n: strict[n].value for n in floats}, exact)
        found = torch.linalg.lstsq(torch.stack(steps, 1), lacking[:, None], driver="gelsd").solution[:, 0]
        if not (found.abs() <= 1.01).all():
            return None
        return {
            value: value * (1 + FLOAT32_ROUNDOFF * by)
            for value, by in zip(constants, found.tolist(), strict=True)
        }

    def _differs(self, exact: Results, strict: Mapping[str, Expected]) -> str:
        """Say how far the float64 run is off, at the element that exceeds its tolerance most."""
        name = next(name for name, want in strict.items() if not want.accepts(exact[name]).all())
        want = strict[name]
        if want.tolerance is None:
            return ""
        off = (exact[name] - want.value).abs().nan_to_num(0.0, 0.0, 0.0)
        at = np.unravel_index(int((off / want.tolerance).argmax()), off.shape)  # torch's imports sympy
        place = ", ".join(str(int(i)) for i in at)
        return (
            f"{NOT_ROUNDING}: with every float in float64, {name}[{place}] is still off by "
            f"{float(off[at]):.2g}"
        )


def _hides(want: Expected) -> bool:
    """Return whether an element may be off by more than float32's error, because it is or may be rounded."""
    return want.tolerance is not None and (want.rounds or want.allowed is not None)


class _Runs:
    """Runs a kernel in float64."""

    def __init__(self, bound: Bound, inputs: Mapping[str, torch.Tensor], seconds: float, budget: Budget):
        program = bound.translated()
        if isinstance(program, Refusal):
            raise NotExact("it is refused")
        self.bound, self.program, self.seconds, self.budget = bound, program, seconds, budget
        self.inputs = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
        self.decisions: Decisions | None = None

    def exact(self, instead: Mapping[float, float] | None = None) -> Results:
        """Return the results without any rounding to float32.

        instead: numbers that replace constants, by the constant's value.
        """
        return self._run(Roundings(), instead)

    def again(
        self, roundoff: float = 0.0, draw: int = 0, instead: Mapping[float, float] | None = None
    ) -> Results:
        """Return the results with the first exact run's decisions; each operation may be disturbed."""
        return self._run(Roundings(self.decisions, roundoff, draw), instead)

    def _run(self, roundings: Roundings, instead: Mapping[float, float] | None) -> Results:
        self.budget.ask()
        module = widened(self.program.module, instead)
        roundings.take(module)
        bound = dataclasses.replace(self.bound, program=dataclasses.replace(self.program, module=module))
        results = {result.name: self._blank(result) for result in bound.puzzle.results}
        fill_in_place(bound.puzzle, results, self.inputs)
        ran = attempt(bound, self.inputs, Options(seconds=self.seconds, quiet=True), results=results)
        if ran.stop or ran.undefined:
            raise NotExact("it does not end")
        if self.decisions is None:
            self.decisions = roundings.decisions
        return {**results, **ran.outputs}

    def _blank(self, result: Argument) -> torch.Tensor:
        return blank(self.bound.puzzle, result, self.bound.case, wide=True)


def has_no_tiny_constant(bound: Bound) -> bool:
    """Return whether a kernel has no constant that may be added to a number without a visible effect."""
    program = bound.translated()
    return isinstance(program, Refusal) or not _tiny(rounded_constants(program.module))


def _tiny(constants: Sequence[float]) -> list[float]:
    return [each for each in constants if TINIEST < abs(each) <= TINY][:MOST_CONSTANTS]


def _is_visible(exact: Results, other: Results) -> bool:
    """Return whether an element of two runs differs by more than float32's rounding hides."""
    off = {name: (exact[name] - other[name]).abs() for name in other}
    return any(bool((off[name] > VISIBLE * other[name].abs()).any()) for name in other)


def _all_accepted(wanted: Mapping[str, Expected], got: Results) -> bool:
    return all(want.accepts(got[name]).all() for name, want in wanted.items())


def _cost(exact: torch.Tensor, moved: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return how far each element may be off because of the roundings that moved it."""
    movement = (
        torch.stack([(each.double() - exact) ** 2 for each in moved]).mean(0).sqrt().nan_to_num(0.0, 0.0, 0.0)
    )
    return FACTOR_CONDITION * movement
