"""Compare a result with the expected one, and find a single slip that explains all wrong elements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from puzzles_lib.checker.expected import FACTOR_CONDITION, FLOAT32_ROUNDOFF, Expected, evaluate
from puzzles_lib.checker.misread import UNUSED, misreads
from puzzles_lib.checker.miswritten import miswritten
from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Argument, Case, Puzzle

PER_ROW = "each row is off by its own factor"
WRONG_AT = "all wrong elements are at"
ZERO = "the result is zero everywhere"
SHOULD_BE_ZERO, ALL_ZERO = "that should be zero are wrong", "all wrong elements are zero"
VAGUE = (WRONG_AT, ZERO, SHOULD_BE_ZERO, ALL_ZERO)  # these say where, not why
LOOK_FOR = ": look for inf / inf, -inf - (-inf), 0 / 0, 0 * inf, or the root or log of a negative number"
HALF, BFLOAT = of_torch(torch.float16).roundoff, of_torch(torch.bfloat16).roundoff


@dataclass(frozen=True)
class Mismatch:
    """Wrong values in one result: a message, and a diagnosis if one fits."""

    message: str
    diagnosis: str = ""


@dataclass(frozen=True)
class _Wrong:
    """A wrong result: the expected values, the values it has, in float64, and which elements are wrong.

    dots: whether the kernel contains a dot in TF32.
    """

    expected: Expected
    got: torch.Tensor
    wrong: torch.Tensor
    puzzle: Puzzle
    case: Case
    inputs: Mapping[str, torch.Tensor]
    dots: bool

    @property
    def value(self) -> torch.Tensor:
        return self.expected.value.double()

    @property
    def own(self) -> torch.Tensor | None:
        """The tolerance without the puzzle's allowance, which leaves float32's."""
        allowed = self.expected.allowed
        if self.expected.tolerance is None or allowed is None or not allowed.any():
            return self.expected.tolerance
        return self.expected.tolerance - allowed

    @property
    def slack(self) -> torch.Tensor:
        """How far each element may be from the result of a slip and still count as that result."""
        roundoff = of_torch(self.expected.argument.dtype).roundoff or 0.0
        slack = 4 * roundoff * (self.value.abs() + self.got.abs())
        return slack if self.expected.tolerance is None else slack + self.expected.tolerance

    def off(self, value: torch.Tensor) -> torch.Tensor:
        """Return how far the wrong elements are from the same elements of another result."""
        return (self.got - value.double()).abs()[self.wrong]

    def fits(self, got: torch.Tensor) -> bool:
        return got.shape == self.value.shape and bool(self.expected.accepts(got).all())

    def would_be(self, value: torch.Tensor, slack: float = 0.0) -> bool:
        """Return whether the kernel's result equals this one, up to rounding.

        slack: how far each element may be off, relative to the largest; ignored for integers.
        """
        if not of_torch(self.expected.argument.dtype).is_float:
            return torch.equal(self.got, value.double())
        if value.shape != self.got.shape:
            return False
        value = value.double()
        same = (self.got == value) | (self.got.isnan() & value.isnan())  # infinities and NaN are never near
        finite = value.abs().where(value.isfinite(), 0.0)
        largest = finite.max() if finite.numel() else 0.0
        tolerance = slack * largest + 2 * of_torch(self.expected.argument.dtype).roundoff * finite
        if self.expected.tolerance is not None:
            tolerance = tolerance.maximum(self.expected.tolerance)
        near = value.isfinite() & ((self.got - value).abs() <= tolerance)
        return bool((same | near).all())


def compare(
    expected: Expected,
    got: torch.Tensor,
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    dots: bool = True,
    explains: bool = True,
) -> Mismatch | None:
    """Return what is wrong with a result and, if it is clear, why; None if every element is correct.

    dots: whether the kernel contains a dot in TF32. explains: whether to look for the reason, which takes
        longer than all the rest.
    """
    right = expected.accepts(got)
    if right.all():
        return None
    wrong = ~right
    got = got.double() if got.is_floating_point() else got
    first = tuple(int(i) for i in wrong.nonzero()[0])
    name, place = expected.argument.name, ", ".join(map(str, first))
    want = in_dtype(expected.value[first], expected.argument.dtype, got[first])
    digits = 6 if _number(got[first]) != _number(want) else 9
    count, size = int(wrong.sum()), got.numel()
    where = f"{name}[{place}]" if first else name
    message = (
        f"wrong values in {name}: {count} of {size} elements. "
        f"{f'The first, {where},' if count > 1 else where} is {_number(got[first], digits)}, "
        f"but should be {_number(want, digits)}"
        f"{_field(expected, case, got[first].item(), expected.value[first].item())}"
    )
    off = abs(_number_of(got, first) - _number_of(expected.value, first))
    seems_equal = off <= SEEMS_EQUAL * abs(_number_of(expected.value, first)) or digits > 6
    if expected.tolerance is not None and (seems_equal or (not expected.rounds and expected.is_near(got))):
        message += f" (off by {off:.2g}, allowed {_number_of(expected.tolerance, first):.2g})"
    found = _Wrong(expected, got.double(), wrong, puzzle, case, inputs, dots)
    return Mismatch(message, next(_diagnoses(found), "") if explains else "")


def only_slip(
    expected: Mapping[str, Expected],
    outputs: Mapping[str, torch.Tensor],
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
) -> str:
    """Return the puzzle's text on the only slip that explains wrong results; "" if none does, or several.

    outputs: the results that the kernel wrote. A slip that changes a correct one isn't the reason.
    """
    right, found = [], []
    for name, got in outputs.items():
        wrong = ~expected[name].accepts(got)
        if not wrong.any():
            right.append(name)
            continue
        slips = _slips(_Wrong(expected[name], got.double(), wrong, puzzle, case, inputs, dots=True))
        found += [set(slips)] if slips else []  # without any: its undefined values may be the reason
    texts = set.intersection(*found) if found else set()
    for text in sorted(texts):
        slip = evaluate(puzzle, case, inputs, (puzzle.slips or {})[text])
        if not all(expected[name].accepts(slip[name]).all() for name in right):
            texts.discard(text)
    return texts.pop() if len(texts) == 1 else ""


def slip_so_far(
    expected: Mapping[str, Expected],
    outputs: Mapping[str, torch.Tensor],
    written: Mapping[str, np.ndarray],
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
) -> str:
    """Return the puzzle's text on the only slip that explains what a stopped run has stored; "" if none does.

    written: which elements of each result were stored, flat. Without a wrong one among them, nothing is said.
    """
    outputs = {name: got for name, got in outputs.items() if name in written}
    stored = {name: torch.as_tensor(written[name]).reshape(got.shape) for name, got in outputs.items()}

    def all_fit(wanted: Mapping[str, torch.Tensor]) -> bool:
        return all(
            torch.isclose(
                got.double(), wanted[name].double(), rtol=_near(got.dtype), atol=1e-5, equal_nan=True
            )[stored[name]].all()
            for name, got in outputs.items()
        )

    if all_fit({name: each.value for name, each in expected.items()}):
        return ""
    texts = [
        text for text, spec in (puzzle.slips or {}).items() if all_fit(evaluate(puzzle, case, inputs, spec))
    ]
    return texts[0] if len(texts) == 1 else ""


def _near(dtype: torch.dtype) -> float:
    """Return how far apart two results may be that differ only by rounding, relative to them."""
    return max(1e-3, 2 * (of_torch(dtype).roundoff or 0.0))


def _number_of(tensor: torch.Tensor, place: tuple[int, ...]) -> float:
    return float(tensor[place])


def in_dtype(want: torch.Tensor, dtype: torch.dtype, got: torch.Tensor) -> torch.Tensor:
    """Return wanted values without digits that no number of their dtype has.

    A value that would then be infinite, or equal to the result, stays as it is.
    """
    if not dtype.is_floating_point:
        return want
    rounded = want.to(dtype).to(want.dtype)
    if of_torch(dtype).roundoff > FLOAT32_ROUNDOFF:
        want = torch.where(rounded.isfinite() & (rounded != got.to(want.dtype)), rounded, want)
    return want.where(rounded != 0, rounded)  # no number of this dtype is so close to 0


def _number(value: torch.Tensor, digits: int = 6) -> str:
    number = value.item()
    return f"{number or 0.0:.{digits}g}" if isinstance(number, float) else str(number)  # -0.0 equals 0.0


def is_packed(argument: Argument) -> bool:
    """Return whether a tensor consists of int32 words that contain several codes or bits each."""
    return argument.dtype == torch.int32 and any(
        "BITS" in dim or "(N+31)//32" in dim for dim in argument.dims
    )


def _field(expected: Expected, case: Case, got: float, wanted: float) -> str:
    """Return which field of a packed word is the first wrong one, or how many bits of a mask; else ""."""
    if not is_packed(expected.argument):
        return ""
    if "(N+31)//32" in expected.argument.dims:
        count = (int(got) ^ int(wanted)) & 0xFFFFFFFF
        return f" ({count.bit_count()} of 32 bits differ)"
    bits = case.numbers.get("BITS", 0)
    if not bits or 32 % bits:
        return ""
    for field in range(32 // bits):
        one, other = (int(word) >> field * bits & (1 << bits) - 1 for word in (got, wanted))
        if one != other:
            return f" (field {field}: got {one}, want {other})"
    return ""


def _diagnoses(w: _Wrong) -> Iterator[str]:
    """Yield what explains all wrong elements, the surest first."""
    for diagnose in (
        _partly_nan,
        _nan,
        _transposed,
        _slip,
        _zero,
        _zero_parts,
        _cut_off,
        _whole,
        _off_by,
        _one_step,
        _precision,
        _per_row,
        _one_number,
    ):
        if text := diagnose(w):
            yield text
    named = _misread(w)
    for text in _vague(w):
        yield f"{text}; {named}" if named else text
    if named:
        yield named


def _vague(w: _Wrong) -> Iterator[str]:
    """Yield which elements are wrong, and what may be the cause."""
    if w.value.any() and not w.value[w.wrong].any():
        zeros, wrong = int((w.value == 0).sum()), int(w.wrong.sum())
        if wrong == zeros:
            yield f"exactly the elements {SHOULD_BE_ZERO}"
        else:
            yield f"{wrong} of the {zeros} elements {SHOULD_BE_ZERO}, and no others"
    if not w.got[w.wrong].any():
        yield ALL_ZERO
    for diagnose in (_minus_infinity, _one_block, _all_of_a_block, _barely, _where):
        if text := diagnose(w):
            yield text


def _misread(w: _Wrong) -> str:
    """Return the one way to misread an input, or else an operation, that leads to this result.

    "" if there is none, or several.
    """
    if w.wrong.sum() < FEWEST_WRONG or w.got[w.wrong].unique().numel() < FEWEST_WRONG:
        return ""  # a few numbers may be equal by chance
    found = [
        text
        for text, value in misreads(w.puzzle, w.case, w.inputs, w.expected.argument)
        if w.would_be(value) and not w.off(value).sum() > w.off(w.value).sum() / 2
    ]
    unused = [text.removeprefix(UNUSED) for text in found if text.startswith(UNUSED)]
    if unused and len(unused) == len(found):
        names = " or ".join(filter(None, [", ".join(unused[:-1]), unused[-1]]))
        return f"it is what you get if {names} is 0 everywhere: is a term missing?"
    if len(found) > 1:
        return ""
    return found[0] if found else _miswritten(w)


def _miswritten(w: _Wrong) -> str:
    """Return the one slip in an operation that leads to this result; "" if there is none, or several."""
    found = {
        text
        for text, value in miswritten(w.puzzle, w.case, w.inputs, w.expected.argument)
        if w.would_be(value) and not w.off(value).sum() > w.off(w.value).sum() / 2
    }
    return found.pop() if len(found) == 1 else ""


def _nan(w: _Wrong) -> str:
    count = int((w.got.isnan() & ~w.value.isnan()).sum())
    if not count:
        return ""
    told = "one of them is" if count == 1 else f"{count} of them are"
    return f"{told} NaN{LOOK_FOR}"


def _partly_nan(w: _Wrong) -> str:
    """Return the puzzle's text on a slip that makes just these NaNs, if other wrong elements are numbers."""
    return _slip(w) if w.got.isnan().any() else ""


def _minus_infinity(w: _Wrong) -> str:
    if not (w.got[w.wrong] == -torch.inf).all() or not w.value[w.wrong].isfinite().all():
        return ""
    if "log" in w.puzzle.formula:
        return "all wrong elements are -inf: is this the log of 0, or a sum with one -inf in it?"
    return (
        "all wrong elements are -inf, as a sum with one -inf in it: where does a load or tl.where give -inf?"
    )


def _transposed(w: _Wrong) -> str:
    shape = w.value.shape
    if w.got.dim() < 2 or not w.fits(w.got.reshape(*shape[:-2], *shape[:-3:-1]).mT):
        return ""
    return "the result is transposed: rows and columns are swapped"


ALIKE = 0.99  # of the elements, if they are infinite: the share whose signs a slip must explain


def _slip(w: _Wrong) -> str:
    return next(iter(_slips(w)), "")


def _slips(w: _Wrong) -> list[str]:
    """Return the puzzle's texts on slips whose result this is, and much nearer than the correct one.

    Of several, those that are much farther off than the nearest one are left out: a forgotten bias may be
    small beside sums that aren't scaled. If all wrong elements are infinite or NaN, only one slip may fit.
    """
    infinite = not w.got[w.wrong].isfinite().any()
    mostly = bool(w.wrong.all() and w.got.isinf().double().mean() > ALIKE)
    slack = SLIP_SLACK if w.own is w.expected.tolerance else SLIP_SLACK + COARSE_SLACK
    slack = 0.0 if w.expected.tolerance is None else slack
    found = {}
    for text, spec in (w.puzzle.slips or {}).items():
        slip = evaluate(w.puzzle, w.case, w.inputs, spec)[w.expected.argument.name]
        if slip.any() and not w.got.any():
            continue  # all zeros, near a slip whose values are tiny
        if mostly and (slip == w.got)[w.got.isinf()].double().mean() > ALIKE:
            found[text] = 0.0  # rounding decides the signs of sums that are near 0
            continue
        if infinite and not (slip.isclose(w.got.to(slip.dtype), equal_nan=True))[w.wrong].all():
            continue
        if w.would_be(slip, slack) and not w.off(slip).sum() > w.off(w.value).sum() / 2:  # or is NaN
            found[text] = float(w.off(slip).nan_to_num(0.0).sum())
    if (infinite or mostly) and len(found) > 1:
        return []
    return [text for text, off in found.items() if off <= MUCH_FARTHER * min(found.values())]


def _zero(w: _Wrong) -> str:
    return "" if w.got.any() else ZERO


def _zero_parts(w: _Wrong) -> str:
    """Check whether some parts of the result are 0 everywhere, such as those of some splits."""
    if w.got.dim() < 3:
        return ""
    zero = ~w.got.flatten(1).any(1) & w.value.flatten(1).any(1)  # [parts]
    if not zero.any() or w.wrong[~zero].any():
        return ""
    name, places = w.expected.argument.name, zero.nonzero().flatten().tolist()
    if len(places) == 1:
        return f"{name}[{places[0]}] is 0 everywhere, and the rest is correct: is its loop empty?"
    listed = ", ".join(map(str, places[:-1]))
    listed += f" and {places[-1]}"
    return f"{name}[i] is 0 everywhere for i = {listed}, and the rest is correct: are their loops empty?"


def _cut_off(w: _Wrong) -> str:
    """Check whether every element is a neighbor of the correct one, such as the next one towards zero."""
    dtype = w.expected.argument.dtype
    if not w.expected.rounds or w.expected.tolerance is None:
        return ""
    bits = of_torch(dtype).roundoff
    short = (w.got.abs() <= w.value.abs() + w.expected.tolerance) & (w.got * w.value >= 0)
    unit = 2 * bits * w.value.abs() + w.expected.tolerance
    name = of_torch(dtype).name
    if (short & ((w.got - w.value).abs() <= unit)).all():
        return f"the result looks truncated instead of rounded: .to(tl.{name}) rounds to the nearest {name}"
    if ((w.got - w.value).abs() <= unit).all():
        return f"the result is off in {name}'s last place: is it rounded more than once, or not to nearest?"
    if ((w.got - w.value).abs() <= 2 * unit).all():
        most = f"the result is off by up to 4 units in {name}'s last place"
        return f"{most}: is a number on the way rounded, or computed in another way than the task says?"
    return ""


def _whole(w: _Wrong) -> str:
    """Check whether every element is a whole number next to the correct one, which has a fraction."""
    if not of_torch(w.expected.argument.dtype).is_float or w.value.numel() < FEWEST_WRONG:
        return ""
    if not w.got.isfinite().all() or (w.got != w.got.trunc()).any() or not w.got.any():
        return ""
    if ((w.got - w.value).abs() >= 1).any() or not w.wrong.all() or (w.got == w.got.flatten()[0]).all():
        return ""
    return (
        f"every element of {w.expected.argument.name} is a whole number: does a conversion cut off fractions?"
    )


def _one_number(w: _Wrong) -> str:
    """Check whether all elements are the same number, though they shouldn't be."""
    first, places = w.got.flatten()[:1], w.value.numel()
    if places < FEWEST_WRONG or w.value.unique().numel() < FEWEST_WRONG or not (w.got == first).all():
        return ""
    if not first.isfinite().all():
        return ""
    name, alone = w.expected.argument.name, w.wrong.sum() == places - 1 and not w.wrong.flatten()[0]
    place = ", ".join("0" * w.got.dim())
    own = (
        f", which is right only for {name}[{place}]: is one number loaded, instead of a block?"
        if alone
        else ""
    )
    return f"every element of {name} is {_number(first, 4)}{own}"


def _off_by(w: _Wrong) -> str:
    """Check whether all elements are off by the same number or the same factor."""
    difference, some = w.got - w.value, w.value != 0
    if not some.any():
        return ""
    if w.wrong.all() and _constant(difference, w.slack) and (difference.abs() > w.slack).any():
        by = difference.median()
        return f"every element is too {'low' if by < 0 else 'high'} by {_number(by.abs(), 4)}"
    ratio = w.got[some] / w.value[some]
    slack = (w.slack[some] / w.value[some]).abs()
    if bool((w.got[~some] == 0).all()) and _constant(ratio, slack):
        factor = ratio.median()
        if ((ratio + 1).abs() <= slack).all():
            factor = torch.full_like(factor, -1.0)  # a sign, whatever the rounding
        if not ((factor - 1).abs() > slack / 2).any():  # only rounding
            return ""
        sign = "the sign is wrong: " if factor == -1 else ""
        digits = 4 if _number(factor, 4) != "1" else 7
        return f"{sign}every element is {_number(factor, digits)} times what it should be"
    return ""


def _constant(values: torch.Tensor, slack: torch.Tensor) -> bool:
    """Return whether all values are the same, up to the slack of each."""
    if values.numel() < 2 or not values.isfinite().all():
        return False
    return bool(((values - values.median()).abs() <= slack).all())


def _one_step(w: _Wrong) -> str:
    """Check whether every wrong integer is 1 off, all to the same side.

    Rounding is named only if the puzzle has floats that could be rounded.
    """
    got, want = w.got[w.wrong], w.value[w.wrong]
    step = got - want
    if of_torch(w.expected.argument.dtype).is_float or len(step) < ENOUGH_ERRORS or (step.abs() != 1).any():
        return ""
    if want.abs().max() <= 2:  # a flag or a small count: being 1 off says nothing about rounding
        return ""
    rounds = any(x.is_floating_point() for x in w.inputs.values())
    outwards = got.abs() - want.abs()
    if (w.value > 0).any() and (w.value < 0).any() and not ((want > 0).any() and (want < 0).any()):
        outwards = torch.zeros_like(want)  # toward zero in only half of the numbers: it isn't a truncation
    for side, told, why in (
        (outwards == -1, "too close to zero", "is it truncated instead of rounded?"),
        (outwards == 1, "too far from zero", "is it rounded away from zero?"),
        (step == -1, "too small", "is it rounded down?"),
        (step == 1, "too large", "is it rounded up?"),
    ):
        if side.all():
            return f"each wrong element is 1 {told}" + f": {why}" * rounds
    return ""


def _precision(w: _Wrong) -> str:
    """Check whether the errors are as small as a coarser dtype's rounding, and to both sides."""
    if w.own is None or w.wrong.sum() * 4 < w.wrong.numel() or w.wrong.sum() < ENOUGH_TO_MEASURE:
        return ""
    error = (
        (w.got - w.value) / w.own * FACTOR_CONDITION * FLOAT32_ROUNDOFF
    )  # relative to the inputs' rounding
    error = error[error.isfinite()]
    size = float(error.square().mean().sqrt())
    above = float((error > 0).double().mean())
    if not 0.2 < above < 0.8 or error.abs().max() > 8 * size or not HALF / 16 < size < BFLOAT:
        return ""
    short = all(x.dtype in (torch.float16, torch.bfloat16) for x in w.inputs.values())
    what = "a value on the way to the result" if short else "something"
    told = f"{AS_SMALL_AS_ROUNDING}: is {what} float16 or bfloat16?"
    if sum(x.dtype == torch.int8 for x in w.inputs.values()) > 1:  # their products are exact integers
        return told + " Or does a float32 sum pass 2^24, where float32 skips integers?"
    if w.dots and not short:  # TF32 keeps the bits of short inputs
        tf32 = 'has each tl.dot input_precision="ieee"? Without it, it uses TF32.'
        if w.puzzle.broken_by:  # in the clinic, the cure is the reader's to find
            tf32 = "is it a tl.dot of float32 blocks, which uses TF32?"
        return f"{AS_SMALL_AS_ROUNDING}: {tf32} Or is something float16 or bfloat16?"
    return told


SEEMS_EQUAL = 1e-4  # the relative error of a value that looks like the wanted one
AS_SMALL_AS_ROUNDING = "the errors are as small as a coarser type's rounding"
SLIP_SLACK = 2.0**-16  # a slip may lead to sums of large numbers that cancel
MUCH_FARTHER = 8  # times as far as another slip's result: then a slip isn't the one
COARSE_SLACK = 2.0**-7  # more, if these numbers were rounded to half precision
FEWEST_WRONG = 8  # wrong elements, with as many values, from which a way to misread an input is no accident
ENOUGH_ERRORS = 16  # the number of errors from which it is clear that they are all to one side
ENOUGH_TO_MEASURE = 12  # the number of errors from which their size is clear
CHANCE = 0.01  # the probability below which something is no accident
MOSTLY = 0.8  # the share of a range that must be wrong: some elements, such as zeros, happen to be correct


def _per_row(w: _Wrong) -> str:
    """Check whether each row is off by its own factor."""
    if w.got.dim() < 2 or not (w.got.isfinite() & w.value.isfinite()).all():
        return ""
    some = w.value != 0
    if (w.got[~some] != 0).any() or (some.sum(-1) < 2).any():
        return ""
    ratio = torch.where(some, w.got / w.value, torch.nan)
    factor = ratio.nanmedian(-1, keepdim=True).values
    if ((ratio - factor).abs() > (w.slack / w.value).abs())[some].any():
        return ""
    unsure = (w.slack / w.value).abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
    if _constant(factor, unsure) or ((factor - 1).abs() <= unsure).all():
        return ""
    low, high = float(factor.min()), float(factor.max())
    if ((factor == 0) | ((factor - 1).abs() <= unsure)).all():  # some rows are missing: it's no factor
        return ""
    text = f"{PER_ROW}, {low:.4g} to {high:.4g}"
    axis = w.expected.argument.dims[-1]
    ragged = w.case.numbers.get(axis, 0) % w.case.numbers.get(f"BLOCK_{axis}", 1)
    return f"{text}: do lanes past {axis} count in a sum?" if ragged and high < 1 else text


def _one_block(w: _Wrong) -> str:
    """Check whether only the first, the last, or the full blocks of a summed axis contribute."""
    if w.expected.tolerance is None:
        return ""
    kept = set(w.expected.argument.dims)
    axes = {d for a in w.puzzle.inputs for d in a.dims if d.isidentifier() and d not in kept}
    for axis in sorted(axes):
        block, size = w.case.numbers.get(f"BLOCK_{axis}"), w.case.numbers.get(axis)
        if not block or not size or block >= size:
            continue
        last = (size - 1) // block * block
        one = f"only the {{}} block of {axis} contributes to the result"
        parts = {one.format("first"): slice(0, block), one.format("last"): slice(last, size)}
        if size % block:  # with two blocks, this and "only the first" are the same, and this says more
            told = f"the last, partial block of {axis} doesn't contribute to the result"
            parts = {told: slice(0, last)} | parts
        for words, lanes in parts.items():
            part = {a.name: _only(w.inputs[a.name], a.dims, axis, lanes) for a in w.puzzle.inputs}
            if w.would_be(evaluate(w.puzzle, w.case, part)[w.expected.argument.name]):
                return words
    return ""


def _only(tensor: torch.Tensor, dims: tuple[str, ...], axis: str, lanes: slice) -> torch.Tensor:
    """Return the tensor with zeros outside of ``lanes`` along an axis, if it has that axis."""
    if axis not in dims or not tensor.is_floating_point():
        return tensor
    dim = dims.index(axis)
    kept = torch.zeros_like(tensor)
    index = tuple(lanes if d == dim else slice(None) for d in range(tensor.dim()))
    kept[index] = tensor[index]
    return kept


def _all_of_a_block(w: _Wrong) -> str:
    """Check whether all results of a block are equal although they should differ."""
    if w.got.dim() != 1:
        return ""
    axis = w.expected.argument.dims[0]
    block = w.case.numbers.get(f"BLOCK_{axis}", 1)
    if block < 2 or len(w.got) < 2:
        return ""
    got, value = (torch.split(t, block) for t in (w.got, w.value))
    if any((part != part[0]).any() for part in got) or not w.got.isfinite().all():
        return ""
    if all((part == part[0]).all() for part in value):
        return ""
    told = "does a reduction without axis= fold all axes, or does each row load the same elements?"
    return f"all elements of a block of {axis} are equal: {told}"


def _barely(w: _Wrong) -> str:
    """Check whether a few elements are wrong, by no more than the last place of the largest results."""
    dtype = of_torch(w.expected.argument.dtype)
    if not w.expected.rounds or not dtype.is_float or dtype.roundoff <= FLOAT32_ROUNDOFF:
        return ""
    if w.wrong.sum() * 2 > w.wrong.numel() or not (w.got.isfinite() & w.value.isfinite()).all():
        return ""
    if (w.got - w.value).abs().max() > 2 * dtype.roundoff * w.value.abs().max():
        return ""
    return (
        f"the errors are as small as {dtype.name}'s rounding: is a value on the way rounded to {dtype.name}?"
    )


def _where(w: _Wrong) -> str:
    """Say which part of an axis the wrong elements are in, or how they repeat along it.

    A part counts only if the rest is unlikely to be correct by chance.
    """
    if w.wrong.sum() == 1:  # the message names it
        return ""
    hits, told = [], []
    for dim, written in enumerate(w.expected.argument.dims):
        name = written if written.isidentifier() else f"axis {dim}"
        others = tuple(d for d in range(w.wrong.dim()) if d != dim)
        hit = w.wrong.any(dim=others, keepdim=True) if others else w.wrong
        index = hit.flatten().nonzero().flatten().tolist()
        hits.append(hit)
        told.append(_part(index, hit.numel(), name, w.case.numbers.get(f"BLOCK_{name}")))
    parts = [part for dim, part in enumerate(told) if part and _is_evident(w, hits, dim)]
    return f"{WRONG_AT} {' and '.join(parts)}" if parts else ""


def _is_evident(w: _Wrong, hits: list[torch.Tensor], dim: int) -> bool:
    """Return whether the slices of an axis without a wrong element would hardly be correct by chance.

    hits: for each axis, which slices have a wrong element; bool, broadcasts to the result. Only elements that
    are in a hit slice of every other axis count. A zero counts only if it's wrong, because most faults leave
    a zero correct; so does a slice for which an input has only zeros.
    """
    telling = w.wrong | (w.value != 0)
    for name, tensor in w.inputs.items():
        dims = next(each.dims for each in w.puzzle.inputs if each.name == name)
        if dims.count(axis := w.expected.argument.dims[dim]) == 1 and len(dims) == tensor.dim():
            slices = tensor.movedim(dims.index(axis), 0).flatten(1) if tensor.dim() > 1 else tensor[:, None]
            if slices.shape[1] and len(slices) == w.wrong.shape[dim]:
                some = (slices != 0).any(1)
                telling = telling & (w.wrong | some.view(hits[dim].shape))
    for other, hit in enumerate(hits):
        telling = telling & (hit | (other == dim))
    inside, outside = int((telling & hits[dim]).sum()), int((telling & ~hits[dim]).sum())
    share = (int(w.wrong.sum()) + 1) / (inside + 2)  # Laplace's rule: one element would show little
    return (1 - share) ** outside < CHANCE


def _part(index: list[int], size: int, name: str, block: int | None) -> str:
    """Return the part of an axis that these indices are; "" for all of it, or if it has no name."""
    low, high = index[0], index[-1]
    if len(index) == 1 < size:
        return f"{low} along {name}"
    within, filled = high - low + 1, len(index) / (high - low + 1)
    at_blocks = block is not None and low % block == 0 and ((high + 1) % block == 0 or high == size - 1)
    if filled == 1 or (filled > MOSTLY and (at_blocks or size - within >= size / 8)):
        return f"{low}–{high} along {name}" if within < size else ""
    step = index[1] - low
    if len(index) > 2 and index == list(range(low, high + 1, step)):
        told = f" (BLOCK_{name} is {block})" if block else ""
        return f"every {_ordinal(step)} place along {name}, starting at {low}{told}"
    if not block:
        return ""
    places = sorted({i % block for i in index})
    if len(places) < block and index == [i for i in range(size) if i % block in places]:
        if len(places) == 1:
            return f"place {places[0]} of every block of {name}"
        if len(places) == places[-1] - places[0] + 1:
            return f"places {places[0]}–{places[-1]} of every block of {name}"
    return ""


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 < number % 100 < 14 else ending}"
