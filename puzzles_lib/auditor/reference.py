"""Compare what a call returns with a reference in float64, and say how far off a correct kernel may be.

The tolerance is computed as in `puzzles_lib.checker.expected`, from how far the exact result changes when the
inputs change by one rounding error. This is done twice. The first time, the rounding error is float32's,
because kernels compute in float32. The second time, it is that of the coarsest dtype in use, because kernels
may round intermediate results to it. float16 and bfloat16 are such dtypes, and so is TF32 if a kernel's
`tl.dot` uses it.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from puzzles_lib.auditor.catching import plain
from puzzles_lib.checker.expected import FACTOR_CONDITION, FACTOR_VALUE, FLOAT32_ROUNDOFF, Expected
from puzzles_lib.checker.report import Verdict
from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Argument

DRAWS = 3
FACTOR_COARSE = 4.0  # times the movement by a roundoff of a coarser dtype than float32
SHAKEN = 1e-6  # of the largest: how far inputs move until none is equal to another
NEAR = 0.02  # of the largest: far more than rounding explains
AXES = 2  # along which neighbors take the place of a NaN
KEEPS_NAN = (
    "tl.maximum, tl.minimum and tl.clamp drop NaN unless propagate_nan=tl.PropagateNan.ALL is passed; tl.max "
    "and tl.min always do"
)

Convert = Callable[[torch.Tensor], torch.Tensor]


class Uncomparable(Exception):
    """Raised if a reference fails, or returns other shapes than the function. The message says why."""


@dataclass(frozen=True)
class Wrong(Verdict):
    """The verdict on a wrong result. result: its number. wrong: the flat indices of the wrong elements."""

    result: int = 0
    wrong: np.ndarray = field(default_factory=lambda: np.zeros(1, int), compare=False)

    @property
    def element(self) -> int:
        """The flat index of the first wrong element."""
        return int(self.wrong[0])


class Unfinished(Exception):
    """Raised if a reference returns ``...``. The message says so."""


class TooSlow(Exception):
    """Raised if a reference takes too long. The message says so."""


def flat(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a result, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def returned(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a function's result, in order, also those in dataclasses.

    If it has no tensor, its numbers are returned as tensors.
    """
    leaves = list(_leaves(value))
    numbers = [leaf for leaf in leaves if isinstance(leaf, int | float) and abs(leaf) < 2**63]
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] or [torch.tensor(n) for n in numbers]


def hides(value: Any) -> bool:
    """Return whether a result has objects in which there may be tensors that are not found."""
    return any(not isinstance(leaf, torch.Tensor | int | float | str | None) for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    for leaf in pytree.tree_leaves(value):
        if is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _leaves([getattr(leaf, each.name) for each in fields(leaf)])
        else:
            yield leaf


def cloned(value: Any, convert: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.clone) -> Any:
    """Return arguments with copies of their tensors. A tensor that occurs twice is copied once."""
    known: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in known:
            known[id(leaf)] = convert(leaf)
        return known[id(leaf)]

    return pytree.tree_map(copy, value)


def keeping() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function like `kept` for several tensors, whose copies overlap if the tensors do."""
    storages: dict[int, torch.UntypedStorage] = {}
    return lambda tensor: kept(tensor, storages)


def kept(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage] | None = None) -> torch.Tensor:
    """Return a copy of a tensor with its strides. storages: copies so far, by the storage's address.

    Raises ValueError for a tensor that is not dense or not on the CPU.
    """
    with plain():  # in an audit, it says that it is on a GPU
        where = tensor.device.type
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or where != "cpu":
        kind = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout)
        words = f"but is a {kind} tensor on {where}"
        raise ValueError(f"audit: an argument must be a dense tensor on the CPU, {words}")
    source = tensor.detach()
    found = source.untyped_storage()
    storages = {} if storages is None else storages
    if found.data_ptr() not in storages:
        storages[found.data_ptr()] = found.clone()
    storage = storages[found.data_ptr()]
    made = torch.empty(0, dtype=source.dtype).set_(
        storage, source.storage_offset(), source.shape, source.stride()
    )
    return made.requires_grad_(tensor.requires_grad)


@dataclass(frozen=True)
class Wanted:
    """What a reference returns, in float64 and in the arguments' own dtypes.

    moved: its results for inputs that are off by float32's roundoff. coarse: for inputs that are off by the
    coarsest dtype's. shaken: for inputs without ties. called: calls the reference with converted tensors.
    """

    exact: list[torch.Tensor]
    own: list[torch.Tensor] | None
    moved: list[list[torch.Tensor]]
    coarse: list[list[torch.Tensor]]
    shaken: list[list[torch.Tensor]]
    called: Callable[[Convert], list[torch.Tensor]]

    def but_no_indices(self, but_all: bool) -> "Wanted":
        """Return these results, with all indices marked as depending on ties.

        but_all: whether to mark all integer and boolean results, not only int32 and int64.
        """
        own = self.own or self.exact
        wide = [but_all or t.dtype in (torch.int32, torch.int64) for t in own]
        exact = [t.double() if t.is_floating_point() else t for t in self.exact]
        other = [~t if t.dtype == torch.bool else t + 1 for t in exact]
        shaken = [o if w else t for t, o, w in zip(exact, other, wide, strict=True)]
        return replace(self, shaken=[*self.shaken, shaken])

    def depends(self) -> list[torch.Tensor] | None:
        """Return where each result depends on the infinities and NaNs in the inputs; None if that is unknown.

        A result does if it changes when other numbers replace them, which are large and of both signs.
        """

        def by(factor: float) -> Convert:
            generator = torch.Generator().manual_seed(0)

            def fill(wide: torch.Tensor) -> torch.Tensor:
                finite = wide[wide.isfinite()].abs()
                size = 2 * float(finite.max()) + 1 if finite.numel() else 1.0
                draws = 1 + torch.rand(wide.shape, generator=generator, dtype=torch.float64)
                signs = torch.rand(wide.shape, generator=generator).sub(0.5).sign()
                return torch.where(wide.isfinite(), wide, factor * size * draws * signs)

            return fill

        drawn = [self._filled(by(factor)) for factor in (1.0, -1.0, 0.5)]
        if any(each is None for each in drawn):
            return None
        first, *others = (each for each in drawn if each is not None)
        places = range(len(self.exact))
        return [torch.stack([~_is_same(first[n], other[n]) for other in others]).any(0) for n in places]

    def ignoring_nan(self) -> list[list[torch.Tensor]]:
        """Return the results for inputs with other numbers for NaN.

        Some change no sum. A neighbor along an axis, once more, changes neither a minimum nor a maximum.
        """

        def by(number: float) -> Convert:
            return lambda wide: torch.where(wide.isnan(), number, wide)

        def like_neighbors(axis: int) -> Convert:
            return lambda wide: (
                torch.where(wide.isnan(), wide.roll(1, max(axis, -wide.dim())), wide) if wide.dim() else wide
            )

        fills = [by(0.0), by(math.inf), by(-math.inf), *(like_neighbors(-1 - axis) for axis in range(AXES))]
        return [each for each in map(self._filled, fills) if each is not None]

    def _filled(self, fill: Convert) -> list[torch.Tensor] | None:
        """Return the results for other floats; None if the reference raises an exception."""
        try:
            return self.called(
                lambda t: fill(t.detach().double()) if t.is_floating_point() else t.detach().clone()
            )
        except Exception:
            return None


def wanted(
    like: Callable,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    coarsest: float,
    in_place: bool = True,
    seconds: float = math.inf,
    results: int = 0,
) -> Wanted:
    """Call a reference on the exact inputs, and on inputs that are off by float32's or a coarser roundoff.

    in_place: whether the reference may return None, because the function changes its arguments.
    seconds: CPU time of one call, beyond which the reference is not called again.
    results: how many tensors the function returns; 0 if that isn't known.

    Gradients are enabled for a reference that asks for them: it raises an exception without, or returns
    fewer tensors than the function does.

    Raises `Uncomparable` if the reference raises an exception, or returns None but must not, `TooSlow` and
    `Unfinished`.
    """

    def called(convert: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        def converted(tensor: torch.Tensor) -> torch.Tensor:
            return convert(tensor).requires_grad_(tensor.requires_grad and with_gradients)

        given, named = cloned((tuple(args), dict(kwargs)), converted)
        with torch.set_grad_enabled(with_gradients):
            result = like(*given, **named)
        if result is ...:
            raise Unfinished("the reference returns ..., so it isn't finished")
        if result is None and not in_place:
            raise Uncomparable(
                "the reference returns None, but the function returns a result: both must return the same"
            )
        found = returned(result) if result is not None else flat((given, named))
        return [t.detach() for t in found]

    started, with_gradients = time.process_time(), False
    try:
        try:
            own = called(lambda t: t.detach().clone())
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            with_gradients = True  # from here on
            own = called(lambda t: t.detach().clone())
        if len(own) < results and not with_gradients:
            with_gradients = True
            other = called(lambda t: t.detach().clone())
            own, with_gradients = (other, True) if len(other) == results else (own, False)
    except (Uncomparable, Unfinished):
        raise
    except Exception as error:
        raise Uncomparable(f"the reference raises {type(error).__name__}: {error}") from error
    if time.process_time() - started > seconds:
        raise TooSlow(f"the reference takes more than {seconds:g} s of CPU time")

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().double() if tensor.is_floating_point() else tensor.detach().clone()

    def by(roundoff: float, draw: int) -> Callable[[torch.Tensor], torch.Tensor]:
        generator = torch.Generator().manual_seed(draw)

        def move(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor.detach().clone()
            steps = 3**0.5 * (2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 1)
            return tensor.detach().double() * (1 + roundoff * steps)

        return move

    def shake(draw: int) -> Callable[[torch.Tensor], torch.Tensor]:
        generator = torch.Generator().manual_seed(draw)

        def move(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor.detach().clone()
            wider = tensor.detach().double()
            size = wider[wider.isfinite()].abs().max() if wider.isfinite().any() else 1.0
            return wider + SHAKEN * max(float(size), SHAKEN) * torch.rand(tensor.shape, generator=generator)

        return move

    try:
        exact = called(wide)
        moved = [called(by(FLOAT32_ROUNDOFF, draw)) for draw in range(DRAWS)]
        coarse = [called(by(coarsest, draw)) for draw in range(DRAWS)] if coarsest > FLOAT32_ROUNDOFF else []
    except Exception:  # such as one that insists on a dtype
        return Wanted([t.double() if t.is_floating_point() else t for t in own], own, [], [], [], called)
    shaken = []
    if any(not t.is_floating_point() for t in exact):
        with contextlib.suppress(Exception):
            shaken = [called(shake(draw)) for draw in range(DRAWS)]
    return Wanted(exact, own, moved, coarse, shaken, called)


def compare(
    got: Sequence[torch.Tensor],
    want: Wanted,
    coarsest: float,
    allowance: float,
    only_sure: bool,
    floor: float = 0.0,
    where: Sequence[torch.Tensor] | None = None,
) -> Wrong | None:
    """Return the verdict on results that differ from the reference's; None if none does.

    allowance: how far off an element may be beyond the tolerance, relative to the largest element of its
    result.
    floor: the least tolerance of any element.
    only_sure: leave out elements where the reference itself, in the arguments' own dtypes, is not finite or
        far from its value in float64.
    where: for each result, which elements to compare; None for all.

    Raises `Uncomparable` if the results have other shapes.
    """
    if not got and not want.exact:
        raise Uncomparable("neither the function nor the reference returns a tensor or a number to compare")
    if len(got) != len(want.exact):
        numbers = f"{_tensors(len(got))}, but the reference returns {_tensors(len(want.exact))}"
        raise Uncomparable(f"the function returns {numbers}: both must return the same number")
    for place, (found, exact) in enumerate(zip(got, want.exact, strict=True)):
        name = "the result" if len(got) == 1 else f"result {place}"
        if found.shape != exact.shape:
            shapes = f"{tuple(found.shape)}, but the reference returns shape {tuple(exact.shape)}"
            raise Uncomparable(f"{name} has shape {shapes}: both must return the same shape")
        expected = _expected(found, want, place, coarsest, allowance)
        if floor and expected.tolerance is not None:
            expected = replace(expected, tolerance=expected.tolerance + floor)
        right = expected.accepts(found if found.is_floating_point() else found.to(expected.value.dtype))
        if only_sure and want.own is not None and found.is_floating_point():
            right = right | _unsure(want.own[place], expected)
        for shaken in want.shaken if only_sure and not found.is_floating_point() else ():
            right = right | (shaken[place] != exact)  # an index of the largest, of several
        if where is not None:
            right = right | ~where[place]
        if not right.all():
            text = _message(name, found, expected, right)
            return Wrong("values", text, result=place, wrong=_places(~right))
    return None


def _places(where: torch.Tensor) -> np.ndarray:
    """Return the flat indices at which a tensor is True."""
    return where.flatten().nonzero().flatten().numpy()


def _tensors(count: int) -> str:
    return f"{count or 'no'} tensor{'s' * (count != 1)}"


def _expected(found: torch.Tensor, want: Wanted, place: int, coarsest: float, allowance: float) -> Expected:
    argument = Argument("z", found.dtype, tuple(map(str, found.shape)))
    exact = want.exact[place]
    if not found.is_floating_point():
        return Expected(argument, exact, None)
    row = of_torch(found.dtype)
    value = exact.double()
    value = value.clamp(-row.largest, row.largest) if row.is_float8 else value
    finite = torch.where(value.isfinite(), value.abs(), 0.0)
    tolerance = FACTOR_VALUE * FLOAT32_ROUNDOFF * finite + row.least
    if coarsest > FLOAT32_ROUNDOFF:
        tolerance = tolerance + FACTOR_COARSE * coarsest * finite
    if allowance and finite.numel():
        tolerance = tolerance + allowance * finite.max()
    for factor, draws in ((FACTOR_CONDITION, want.moved), (FACTOR_COARSE, want.coarse)):
        if draws:
            movement = torch.stack([(draw[place].double() - value) ** 2 for draw in draws]).mean(0).sqrt()
            movement = torch.nan_to_num(movement, nan=0.0, posinf=0.0)
            typical = movement.square().mean().sqrt() if movement.numel() else 0.0
            tolerance = tolerance + factor * (movement + typical / 2)
    return Expected(argument, value, tolerance)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (one != one) & (other != other)


def lost_nan(
    got: Sequence[torch.Tensor],
    want: Wanted,
    where: Sequence[torch.Tensor] | None = None,
    is_wrong: bool = False,
) -> tuple[Wrong, bool] | None:
    """Return a verdict on results that lack a NaN of the inputs which the reference passes on, or None.

    With it, return whether the results are numbers, as `tl.max` and a ReLU compute them, or an infinity that
    inputs without the NaN give as well.

    is_wrong: whether elements differ that the reference doesn't turn into NaN. Then all results must be those
    of inputs without the NaN, as those of a kernel that sorts are.
    """
    if want.own is None:
        return None
    lost = []
    for found, exact, own in zip(got, want.exact, want.own, strict=True):
        floats = found.is_floating_point() and own.is_floating_point()
        lost.append(exact.isnan() & own.isnan() & (found == found) if floats else exact != exact)
    if where is not None:
        lost = [one & here for one, here in zip(lost, where, strict=True)]
    if not any(bool(one.any()) for one in lost) or (depends := want.depends()) is None:
        return None
    lost = [one & here for one, here in zip(lost, depends, strict=True)]
    others = want.ignoring_nan()
    if is_wrong:
        places = [n for n, found in enumerate(got) if found.is_floating_point()]
        others = [
            other
            for other in others
            if all(bool((_is_near(got[n], other[n]) | (~where[n] if where else False)).all()) for n in places)
        ]
        if not others:
            return None
    for ignored in (False, True):
        for place, (found, missing) in enumerate(zip(got, lost, strict=True)):
            near = [_is_near(found, other[place]) for other in others]
            alike = finite(found) | (torch.stack(near).any(0) if near else ~missing)
            missing = missing & (alike if ignored else ~alike)
            if missing.any():
                name = "the result" if len(got) == 1 else f"result {place}"
                at = tuple(int(i) for i in missing.nonzero()[0])
                text = (
                    f"NaN is lost in {int(missing.sum())} of {found.numel()} elements of {name}. The first, "
                    f"[{', '.join(map(str, at))}], is {found[at].item():.9g}, but should be nan"
                )
                either = "" if ignored else "without the NaN, the reference has no infinity, either; "
                diagnosis = either + KEEPS_NAN
                return Wrong(
                    "values", text, diagnosis=diagnosis, result=place, wrong=_places(missing)
                ), ignored
    return None


def _is_near(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two results may be the same except for rounding."""
    one, other = one.double(), other.double()
    finite = other[other.isfinite()].abs()
    return torch.isclose(one, other, NEAR, NEAR * float(finite.max()) if finite.numel() else 0.0)


def _unsure(own: torch.Tensor, expected: Expected) -> torch.Tensor:
    """Where the reference, computed in the arguments' own dtypes, is no reference.

    It isn't where the exact value is beyond the largest number of the result's dtype, either.
    """
    if not own.is_floating_point():
        return torch.zeros(own.shape, dtype=torch.bool)
    beyond = expected.value.double().abs() > of_torch(expected.argument.dtype).largest
    return beyond | ~finite(own) | ~expected.accepts(own.to(expected.argument.dtype))


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """Return where a tensor is finite, also one of float8, for which torch doesn't tell."""
    return (tensor.double() if tensor.element_size() == 1 else tensor).isfinite()


def _message(name: str, found: torch.Tensor, expected: Expected, right: torch.Tensor) -> str:
    wrong = ~right
    first = tuple(int(i) for i in wrong.nonzero()[0])
    place = f"[{', '.join(map(str, first))}]"
    got, value = found[first].item(), expected.value[first].item()
    count, size = int(wrong.sum()), found.numel()
    off, allowed = abs(got - value), ""
    if expected.tolerance is not None and found.is_floating_point() and math.isfinite(off):
        allowed = f" (off by {off:.2g}, allowed {float(expected.tolerance[first]):.2g})"
    what = f"is {got:.9g}, but should be {value:.9g}{allowed}"
    if size == 1:
        return f"{name} {what}"
    if count == 1:
        return f"1 of {size} elements of {name} is wrong: {place} {what}"
    return f"{count} of {size} elements of {name} are wrong. The first, {place}, {what}"
