"""Pretend that each size of a call in turn is so large that offsets pass 2**31.

The function is called with tensors on torch's meta device, which have shapes and no memory, so its own code
works out grid, strides and results. First nothing is run: a size is made smaller until a GPU can launch each
grid and hold all tensors. Then the launches are run at the edges of their grids (`PretendedMemory`). The
caller's integer tensors keep their values, repeated as often as needed, because they may be indices or
lengths. If their largest value is the size itself, as in the offsets of ragged rows, it grows with the size.

Integers below the size may be row numbers, such as places in a cache. If nothing else is wrong, one tensor of
them at a time is changed so that they reach the last rows (`Sized.reaching`).
"""

import itertools
import math
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import compiler
from puzzles_lib.auditor.blocks import Counts, are_offsets, axes, counts, few, listed, together
from puzzles_lib.auditor.catching import OnLaunch, Ran, caught, plain
from puzzles_lib.auditor.cuda import TooManyParts, pretended
from puzzles_lib.auditor.edges import at_edges, rows_by_number
from puzzles_lib.auditor.guard import MORE, Guard
from puzzles_lib.auditor.held import entered
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.auditor.reference import flat
from puzzles_lib.auditor.running import Outcome
from puzzles_lib.auditor.scalars import Noted, Scalars
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.launches import too_many_at_once
from puzzles_lib.checker.true_size import CROSSING
from puzzles_lib.puzzle import MOST_PROGRAMS
from puzzles_lib.runner import TimeLimitReached, alone, time_limit

LARGEST_AXIS = 1 << 34
LARGEST_BLOCK = 1 << 20  # elements; Triton's own limit
LARGEST_DESCRIBED = (1 << 31) - 1  # size in a tensor descriptor that is made on the host
MOST_BYTES = 288 << 30  # the largest memory of a GPU, in 2026
MOST_LAST = 32  # parts of a tensor whose last one is looked at
MOST_PARTS = 8  # of a tensor that is made so large that offsets within each part pass 2**31
OF_SEVERAL_ROLES = 4  # a size up to which two axes of a tensor may be equal by chance
MOST_TIED = 3  # axes that change together, of those with one size
MOST_TIES = 12  # choices of such axes that are tried
STEPS = 40  # of a search for the largest size that can be launched
CALL_SECONDS = 2.0  # of CPU time, for the function itself with a size
STAYS_SMALL = "no kernel gets a tensor of more than 2^31 elements"
NOT_LAUNCHED = "without values, the function launches no kernel"


Axis = tuple[int, int]
"""A tensor's number among the call's tensors, and the number of one of its axes."""


@dataclass(frozen=True)
class Sized:
    """One change of sizes: every axis with a certain size gets a pretended size instead.

    also: other sizes that are replaced at the same time. outer: into how many parts the axes before the first
    changed one divide a tensor. inner: whether offsets within one part must pass 2**31, too. last: whether
    the last part must begin past 2**31. rows: the number, among the call's tensors, of the one whose integers
    are changed to reach the last rows, and its name. counts: sizes that change with others. axes: what has
    each size. only: the axes that change, of those with the size; empty for all.
    """

    size: int
    large: int
    also: Mapping[int, int] = field(default_factory=dict)
    outer: int = 1
    inner: bool = False
    last: bool = False
    rows: tuple[int, str] | None = None
    counts: Counts = field(default_factory=dict)
    axes: Mapping[int, str] = field(default_factory=dict)
    only: frozenset[Axis] = frozenset()

    def __str__(self) -> str:
        replaced = self.replaced
        every = [f"{self.axis(size)} = {large:,}" for size, large in replaced.items()]
        rows = f", and numbers of the last rows in {self.rows[1]}" if self.rows else ""
        return f"{listed(every)}{rows}"

    def axis(self, size: int) -> str:
        """Return the axes with a size, such as ``"x.shape[0]"``."""
        return self.axes.get(size, f"the size {size}")

    @property
    def replaced(self) -> dict[int, int]:
        """What replaces each size that changes."""
        found: dict[int, int] = {}
        for size, large in {**self.also, self.size: self.large}.items():
            found |= together(size, large, self.counts)
        return found

    def changed(self, tensors: Sequence[torch.Tensor]) -> set[Axis]:
        """Return the axes that change."""
        sizes = self.replaced
        every = {(place, axis) for place, tensor in enumerate(tensors) for axis in range(tensor.dim())}
        return set(self.only) or {
            (place, axis) for place, axis in every if tensors[place].shape[axis] in sizes
        }

    def to(self, large: int) -> "Sized":
        """Return the change to this size instead."""
        return replace(self, large=large)

    def reaching(self, place: int, name: str) -> "Sized":
        """Return the same change, with integers of a tensor that reach the last rows. place: its number."""
        return replace(self, rows=(place, name))

    def within(self) -> "Sized":
        """Return the change to a size so large that offsets within one part pass 2**31."""
        outer = min(self.outer, MOST_PARTS)
        large = self.large * outer
        return replace(self, large=large + (self.size - large) % 16, outer=outer, inner=True, last=False)

    def to_last(self) -> "Sized":
        """Return the change to a size so large that the last part begins beyond 2**31."""
        large = self.large + self.large // (self.outer - 1)
        return replace(self, large=large + (self.size - large) % 16, inner=False, last=True)

    @property
    def passes(self) -> int:
        """The number of elements that a tensor needs for offsets to pass 2**31."""
        if self.last:
            return CROSSING * self.outer // (self.outer - 1)
        return CROSSING * (self.outer if self.inner else 1)

    def smaller(self, large: int) -> "Sized":
        """Return the change to a smaller size with the same remainder modulo 16, if there is one."""
        return self.to(max(large - (large - self.size) % 16, self.size))

    def integers(self, values: np.ndarray, place: int) -> np.ndarray:
        """Return an integer tensor's elements. If the largest is a replaced size, it is replaced, too.

        place: the tensor's number among the call's tensors.
        """
        if self.rows and self.rows[0] == place:  # a negative number stands for no row
            return np.where(values < 0, values, values + (self.large - self.size)).astype(values.dtype)
        sizes = self.replaced
        largest = int(values.max())
        if (
            self.only
            or largest not in sizes
            or sizes[largest] > np.iinfo(np.int32).max
            or values.dtype.itemsize < 4
        ):
            return values
        return np.where(values == largest, sizes[largest], values).astype(values.dtype)

    def tensor(self, tensor: torch.Tensor, place: int) -> torch.Tensor:
        """Return a tensor without memory that has the pretended size. place: its number."""
        sizes = self.replaced
        stays = {axis for axis in range(tensor.dim()) if self.only and (place, axis) not in self.only}
        shape = [n if axis in stays else sizes.get(n, n) for axis, n in enumerate(tensor.shape)]
        if not tensor.is_contiguous() and tensor.dim() and shape == list(tensor.shape):
            made = torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        else:
            order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride()[axis])
            made = torch.empty([shape[axis] for axis in order], dtype=tensor.dtype, device="meta")
            made = made.permute([order.index(axis) for axis in range(tensor.dim())])
        return made.requires_grad_(tensor.requires_grad)


def ways(args: Any, told: Sequence[str], also: Mapping[int, int] | None = None) -> list[Sized]:
    """Return each size above 1 of a call's tensors, with a larger one that makes offsets pass 2**31.

    If several tensors have a size, it changes in all of them, because they must still fit together. So do
    sizes that count its blocks. If one tensor has a size twice, both axes change; a size as small as a number
    of heads is then left out. `Call.apart` tries such axes one by one.

    told: what the call's arguments are called. also: sizes that are already replaced, each with its
    replacement.
    """
    leaves = pytree.tree_leaves(args)
    tensors, also, known, named = flat(args), also or {}, counts(leaves), axes(leaves, told)
    found = []
    fixed = {*also, *known}
    for size in dict.fromkeys(n for t in tensors for n in t.shape if n > 1 and n not in fixed):
        others = [math.prod(also.get(n, n) for n in t.shape if n != size) for t in tensors if size in t.shape]
        times = [list(t.shape).count(size) for t in tensors if size in t.shape]
        rest, power = max(zip(others, times, strict=True))
        large = math.isqrt(CROSSING // max(rest, 1)) if power > 1 else CROSSING // max(rest, 1)
        large = -(-(large + large // 16 + 1) // 16) * 16 + size % 16
        if max(times) > 1 and size <= OF_SEVERAL_ROLES:
            continue
        if size < large <= LARGEST_AXIS:
            outer = max(_outer(t.shape, {size, *also}) for t in tensors)
            found.append(Sized(size, large, also, outer, counts=known, axes=named))
    return found


def left_out(args: Any, told: Sequence[str], known: Collection[Axis]) -> list[str]:
    """Return sentences on the other axes of a call's tensors: which they are, and why they aren't tried.

    A tensor with one element is a number. told: what the call's arguments are called. known: the axes that
    are listed.
    """
    names, why = _names(args, told), dict[str, list[str]]()
    for place, tensor in enumerate(flat(args)):
        for axis, size in enumerate(tensor.shape if tensor.numel() != 1 else ()):
            if (place, axis) in known:
                continue
            if size < 2:
                reason = "an axis of size 1 may stand for a row that is repeated: call the function with more"
                reason = reason if size else "a tensor is empty"
            elif size <= OF_SEVERAL_ROLES:
                reason = "two axes of one tensor have this size: call the function with different sizes"
            else:
                reason = "it is not known what changes with it"
            why.setdefault(reason, []).append(f"{names[place]}.shape[{axis}]")
    return [f"a larger {few(list(dict.fromkeys(every)))}: {reason}" for reason, every in why.items()]


def _names(args: Any, told: Sequence[str]) -> list[str]:
    """Return what a call's tensors are called."""
    return [name for leaf, name in zip(pytree.tree_leaves(args), told, strict=True) if _is_tensor(leaf)]


def _outer(shape: Sequence[int], sizes: set[int]) -> int:
    """The number of elements along the axes before the first that has one of these sizes."""
    first = next((axis for axis, n in enumerate(shape) if n in sizes), 0)
    return max(math.prod(shape[:first]), 1)


@dataclass
class Tried:
    """The result of a call with a pretended size.

    way: the change of sizes. most: the largest size that can be launched. limit: what prevents a larger one,
    "memory" or the launch that fails. unreached: rows that no program could reach, and why.
    """

    way: Sized
    outcomes: list[Outcome] = field(default_factory=list)
    why: str = ""
    limit: str = ""
    most: int = 0
    unreached: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether launches were judged, and nothing is wrong."""
        return self.nothing_yet and not any(o.unjudged for o in self.outcomes)

    @property
    def nothing_yet(self) -> bool:
        """Whether launches were judged as far as there was time for it, and nothing is wrong."""
        if self.why or not self.outcomes:
            return False
        return all(o.ok and (not o.unjudged or o.is_slow) for o in self.outcomes)


class Call:
    """A function and its arguments, to be called with sizes that are pretended."""

    def __init__(
        self,
        function: Callable,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        guard: Guard,
        scalars: Scalars,
    ):
        self.function, self.arguments, self.guard = function, (tuple(args), dict(kwargs)), guard
        self.scalars = scalars  # of the call with values
        self.assumed: list[Noted] = []  # of these
        self._values: dict[int, np.ndarray] = {}  # by the meta tensor's storage
        self._given: list[torch.Tensor] = []  # without memory
        self._lost = 0.0

    def taken_for_nothing(self) -> float:
        """Return the CPU time that calls have taken which were stopped, in seconds, since this was asked."""
        lost, self._lost = self._lost, 0.0
        return lost

    def tried(self, way: Sized, end: float) -> Tried:
        """Call the function with a pretended size. end: the CPU time of this thread at which to stop."""
        limit, most = "", way.large
        largest, why = self._survey(way)
        while not (largest or why) and self._elements <= CROSSING and way.large < LARGEST_AXIS:
            # Its kernels get tensors of other shapes than the function does.
            before, bigger = self._elements, way.smaller(2 * way.large)
            largest, why = self._survey(bigger)
            if why or self._elements == before:
                break
            way, most = bigger, bigger.large
        if self._elements > 2 * way.passes or largest:
            way = self._smallest(way)
            largest, why = self._survey(way)
        if largest:
            most, limit = self._largest(way, largest)
            way = way.smaller(most)
            largest, why = self._survey(way)
        found = Tried(way, why=why, limit=limit, most=most)
        if largest or self._elements <= CROSSING:
            found.why = why or ("" if limit not in ("", "memory") else self._why_small())
            return found

        def on_launch(launch: Launch) -> Ran:
            if time.thread_time() > end:
                found.why = found.why or "the time is used up"
            elif any(tensor.numel() > CROSSING for tensor in launch.tensors.values()):
                outcome, unreached = alone(lambda: self._run(launch, way))
                found.outcomes.append(outcome)
                found.unreached += unreached
            return Ran.WHOLLY

        found.why = self._call(way, on_launch) or found.why or ("" if found.outcomes else self._why_small())
        if way.rows:
            self._keep_rows(found)
        return found

    def _why_small(self) -> str:
        return STAYS_SMALL if self._elements else NOT_LAUNCHED

    def apart(self, size: int, told: Sequence[str], end: float) -> Iterator[Sized]:
        """Yield changes of some of the axes with a size, if a tensor has it twice: it may be by chance.

        Axes belong together if the function and its kernels run with twice the size. told: what the call's
        arguments are called. end: as for `tried`.
        """
        tensors = flat(self.arguments)
        every = [(p, axis) for p, t in enumerate(tensors) for axis, n in enumerate(t.shape) if n == size]
        twice = [(p, axis) for p, axis in every if list(tensors[p].shape).count(size) > 1]
        names, done = _names(self.arguments, told), set[Axis]()
        for one in twice:
            alike = [
                (p, axis) for p, axis in twice if axis == one[1] and tensors[p].shape == tensors[one[0]].shape
            ]
            others = [each for each in every if each[0] != one[0] and each not in done]
            more = [(one, *rest) for n in range(MOST_TIED) for rest in itertools.combinations(others, n)]
            for tied in dict.fromkeys([tuple(alike), *more[:MOST_TIES]]):
                if done & set(tied) or time.thread_time() > end:
                    continue
                named = few(list(dict.fromkeys(f"{names[p]}.shape[{axis}]" for p, axis in tied)))
                rest = max(tensors[p].numel() // size for p, _ in tied)
                large = CROSSING // max(rest, 1)
                large = -(-(large + large // 16 + 1) // 16) * 16 + size % 16
                outer = max(math.prod(tensors[p].shape[:axis]) for p, axis in tied)
                way = Sized(size, large, outer=outer, axes={size: named}, only=frozenset(tied))
                if size < large <= LARGEST_AXIS and self._fits(way.to(2 * size)):
                    done |= set(tied)
                    yield way

    def _fits(self, way: Sized) -> bool:
        """Return whether the function and its kernels run with a change of sizes."""
        outcomes: list[Outcome] = []

        def on_launch(launch: Launch) -> Ran:
            outcomes.append(alone(lambda: self._run(launch, way))[0])
            return Ran.WHOLLY

        why = self._call(way, on_launch)
        return not why and bool(outcomes) and not any(o.verdict or o.unjudged for o in outcomes)

    def partners(self, way: Sized) -> set[int]:
        """Return the other sizes of the tensors that have a size. Those that count its blocks don't count."""
        shapes = [t.shape for t in flat(self.arguments) if way.size in t.shape]
        return {n for shape in shapes for n in shape if n > 1} - {way.size, *way.counts}

    def shorter(self, way: Sized, told: Sequence[str]) -> Iterator[Sized]:
        """Yield changes of a size together with another one of a tensor, so that it may be smaller.

        told: what the call's arguments are called.
        """
        for size in sorted(self.partners(way)):
            other = Sized(size, LARGEST_BLOCK - 16 + size % 16, counts=way.counts)
            if self._survey(other)[0]:
                other = other.smaller(self._largest(other, "")[0])
            pairs = ways(self.arguments, told, {size: other.large}) if other.large > size else []
            both = [t.shape for t in flat(self.arguments) if {size, way.size} <= set(t.shape)]
            outer = max(_outer(shape, {size, way.size}) for shape in both)
            yield from (replace(pair, outer=outer).within() for pair in pairs if pair.size == way.size)

    def _keep_rows(self, found: Tried) -> None:
        """Forget what came of numbers that aren't those of rows.

        They are if the last rows of a smaller tensor are in it, too. No offset into that one passes 2**31.
        """
        found.outcomes = [o for o in found.outcomes if o.verdict or o.is_slow]
        kernels = {outcome.launch.name for outcome in found.outcomes if outcome.verdict}
        if not kernels:
            return
        self._survey(found.way)
        large = (found.way.large - found.way.size) * CROSSING * 3 // (4 * self._elements)
        smaller = found.way.smaller(found.way.size + large)
        outcomes: list[Outcome] = []

        def on_launch(launch: Launch) -> Ran:
            if launch.name in kernels:
                outcomes.append(alone(lambda: self._run(launch, smaller))[0])
            return Ran.WHOLLY

        why = self._call(smaller, on_launch)
        if why or any(o.verdict or o.unjudged for o in outcomes):
            found.outcomes = []

    def reaching(self, way: Sized, names: Sequence[str]) -> list[Sized]:
        """Return a change of sizes once for each tensor whose integers may be numbers of the rows.

        names: what the call's arguments are called.
        """
        found = []
        leaves = pytree.tree_leaves(self.arguments)
        tensors = [(leaf, name) for leaf, name in zip(leaves, names, strict=True) if _is_tensor(leaf)]
        for place, (tensor, name) in enumerate(tensors):
            if not _has_integers(tensor) or tensor.dtype == torch.bool:
                continue
            least, largest = int(tensor.min()), int(tensor.max())
            are_rows = -1 <= least and 0 <= largest < way.size or largest == way.size and are_offsets(tensor)
            if are_rows and way.large <= torch.iinfo(tensor.dtype).max:
                found.append(way.reaching(place, name))
        return found

    def _smallest(self, way: Sized) -> Sized:
        """The smallest size for which a tensor of a launch has enough elements, and a few more."""
        low, high = way.size, way.large
        while high - low > max(low // 64, 16):
            middle = (low + high) // 2
            self._survey(way.to(middle))
            is_large = self._elements > way.passes + way.passes // 16
            low, high = (low, middle) if is_large else (middle, high)
        return way.to(high + (way.size - high) % 16)

    def _largest(self, way: Sized, why: str) -> tuple[int, str]:
        """The largest size whose grids a GPU launches and whose tensors it holds, and what bounds it."""
        low, high = way.size, way.large
        for _ in range(STEPS):
            if high - low < 2:
                break
            middle = (low + high) // 2
            too_large, _ = self._survey(way.to(middle))
            if too_large:
                high, why = middle, too_large
            else:
                low = middle
        return low, why

    def _survey(self, way: Sized) -> tuple[str, str]:
        """What is too large for a GPU, and why the function did not run to its end."""
        too_large: list[str] = []
        storages: dict[int, int] = {}
        self._elements = 0

        def on_launch(launch: Launch) -> Ran:
            for axis, (count, most) in enumerate(zip(launch.full_grid, MOST_PROGRAMS, strict=True)):
                if count > most:
                    too_large.append(
                        f"{launch.name}: the grid has {count:,} programs along axis {axis}, but a GPU "
                        f"launches at most {most:,}"
                    )
            if self.guard.resident or launch.is_cooperative:
                if verdict := too_many_at_once(math.prod(launch.full_grid), launch.num_warps):
                    too_large.append(f"{launch.name}: {verdict.message}")
            for tensor in launch.tensors.values():
                storage = tensor.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
                self._elements = max(self._elements, tensor.numel())
            return Ran.WHOLLY

        why = self._call(way, on_launch)
        for tensor in self._given:
            storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        if "Storage size calculation overflowed" in why:
            too_large.append("")
        if sum(storages.values()) > MOST_BYTES:
            too_large.append("")
        return ("memory" if too_large[-1:] == [""] else too_large[0]) if too_large else "", why

    def _call(self, way: Sized, on_launch: OnLaunch) -> str:
        errors: list[str] = []
        self._values = {}
        places = itertools.count()

        def convert(leaf: Any) -> Any:
            if not _is_tensor(leaf):
                return leaf
            place = next(places)
            made = way.tensor(leaf, place)
            if _has_integers(leaf):
                values = way.integers(leaf.detach().contiguous().numpy().ravel(), place)
                self._values[made.untyped_storage()._cdata] = values
            return made

        with plain():
            given, named = pytree.tree_map(convert, self.arguments)
            self._given = flat((given, named))
        scalars, patience = self.scalars.again(way.replaced), self.guard.patience
        try:
            catching = caught(on_launch, lambda kernel, error: errors.append(f"{kernel}: {error}"), False)
            with entered(pretended("meta", scalars=scalars), catching), time_limit(patience * CALL_SECONDS):
                self.function(*given, **named)
        except TimeLimitReached:
            text = (
                f"the function takes longer than {patience * CALL_SECONDS:g} s, perhaps in a loop of its own"
            )
            errors.append(f"{text}; {MORE}")
            self._lost += patience * CALL_SECONDS
        except TooManyParts as error:
            errors.append(str(error))
        except Exception as error:
            words = textwrap.shorten(f"{type(error).__name__}: {error}", 120, placeholder=" ...")
            errors.append(f"the function does not run without values ({words})")
        self.assumed += [each for each in scalars.assumed if each not in self.assumed]
        return "; ".join(errors)

    def _run(self, launch: Launch, way: Sized) -> tuple[Outcome, list[str]]:
        """Run the programs at the edges of a grid on tensors that are not there.

        Also returns which rows none of them could reach, and why.
        """
        outcome = Outcome(launch, of=math.prod(launch.full_grid))
        if not outcome.of:
            return outcome, []
        blocks = [n for n in launch.numbers.values() if n > LARGEST_BLOCK]
        if blocks and "static_range" in launch.kernel.src:
            outcome.unjudged = (
                f"{launch.name}: not tried, because a tl.static_range can have {max(blocks):,} steps"
            )
            return outcome, []
        described = [v for v in launch.arguments.values() if isinstance(v, TensorDescriptor)]
        if large := [n for each in described for n in each.shape if n > LARGEST_DESCRIBED]:
            outcome.unjudged = (
                f"{launch.name}: a tensor descriptor stores sizes as int32, too small for {max(large):,}"
            )
            return outcome, []
        opinion = compiler.closed_after(compiler.Opinions(launch.kernel, [], [launch.arguments]), _first)
        if opinion is None or opinion.refusal:
            why = opinion.refusal.message if opinion and opinion.refusal else "the compiler didn't answer"
            outcome.unjudged = f"{launch.name} does not compile at this size: {why}"
            return outcome, []
        code = compiler.program_of(launch.kernel, launch.arguments, opinion)
        known = {name: self._values.get(t.untyped_storage()._cdata) for name, t in launch.tensors.items()}
        values = {name: each for name, each in known.items() if each is not None}
        ran = at_edges(code, launch, values, self.guard.patience)
        outcome.programs = ran.programs
        if ran.stop and ran.stop.kind in ("time limit", "memory limit", "error", "deadlock"):
            more = f"; {MORE}" if ran.stop.kind == "time limit" else ""
            outcome.unjudged = f"{launch.name}: {ran.stop.message}{more}"
        elif ran.stop and ran.stop.kind == "true size":
            outcome.stopped_by(ran.stop)
        elif ran.stop:  # the other sizes, and integers that are indices, need not fit this one
            outcome.unjudged = f"{launch.name}: {verdicts.on_the_grid(ran.stop.message, launch.axes)}"
        elif not way.rows:
            return outcome, list(self._unreached(launch, code, way))
        return outcome, []

    def _unreached(self, launch: Launch, code: compiler.Program, way: Sized) -> Iterator[str]:
        """Yield the tensors of which no program could reach the last rows: the numbers aren't known."""
        known = {name for name, t in launch.tensors.items() if t.untyped_storage()._cdata in self._values}
        for name, numbers in sorted(rows_by_number(code)):
            tensor, given = launch.tensors.get(name), launch.tensors.get(numbers)
            if tensor is None or given is None or numbers in known or given.is_floating_point():
                continue
            if tensor.numel() > CROSSING and way.large in tensor.shape:
                yield f"{launch.name}: the last rows of {name}: the function computes {numbers}"


def _first(opinions: compiler.Opinions) -> compiler.Opinion | None:
    return opinions[0]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _has_integers(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.numel() > 0
