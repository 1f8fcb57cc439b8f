"""Find the operation that first made a NaN from numbers: `NaNs`.

Each NaN that an operation makes gets a number, in the six bits after the quiet bit of its significand.
Operations that compute with a NaN keep these bits, and so do loads, stores and copies. The NaN in a result
therefore says where it was made. NaNs in lanes that are stored nowhere don't matter.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from puzzles_lib.dtypes import DType
from puzzles_lib.runner.lanes import Lanes
from puzzles_lib.runner.machine import Machine, codes_of
from puzzles_lib.runner.step import Step
from puzzles_lib.source import Site
from puzzles_lib.translator.ir import Value

_TAGS = 1 << 6
_QUIET = {"float64": 51, "float32": 22, "float16": 9, "bfloat16": 6}
"""The number of the quiet bit, by dtype."""

_EXPONENTIALS = ("math.exp", "math.exp2")
_DIVISIONS = ("arith.divf", "tt.precise_divf")


class MadeNaN(NamedTuple):
    """How a NaN was made, such as "inf / inf", and where.

    overflowed: whether an exponential had overflowed before.
    """

    how: str
    site: Site
    overflowed: bool


class NaNs:
    """Watches one run of a kernel.

    overflow: where an exponential first overflowed. divided: where a number was first divided by 0.
    too_large: where a product of finite numbers first was infinite, and its dtype's name. Each is None if it
    didn't happen.
    """

    def __init__(self) -> None:
        self.overflow: Site | None = None
        self.divided: Site | None = None
        self.too_large: tuple[Site, str] | None = None
        self._made: list[MadeNaN] = []

    def take(self, machine: Machine) -> None:
        """Watch the run of this machine."""
        machine.ready = codes_of(machine.module, self._watched)

    def origin(self, result: torch.Tensor, place: int) -> MadeNaN | None:
        """Return how the NaN in an element of a result was made; None if that isn't known."""
        bit = _QUIET.get(str(result.dtype).removeprefix("torch."))
        if bit is None:
            return None
        bits = result.reshape(-1)[place].reshape(1).view(_integer(result.itemsize, torch)).item()
        tag = int(bits) >> (bit - 6) & (_TAGS - 1)
        return self._made[tag - 1] if 0 < tag <= len(self._made) else None

    def count(self, result: torch.Tensor, how: str) -> int:
        """Return how many NaNs of a result were made like this, such as by "0 * inf"."""
        bit = _QUIET[str(result.dtype).removeprefix("torch.")]
        bits = result[result.isnan()].view(_integer(result.itemsize, torch)).long()
        tags = bits >> (bit - 6) & (_TAGS - 1)
        return sum(int((tags == tag).sum()) for tag, made in enumerate(self._made, 1) if made.how == how)

    def _watched(self, step: Step) -> Callable[..., Any]:
        name, run = step.op.name, step.run
        if name == "tt.dot_scaled":
            return functools.partial(self._scaled, run)
        if name == "tt.dot" and _is_tagged(step.row):
            return functools.partial(self._dot, run)
        if name == "tt.reduce" and step.combined == "_sum_combine" and _is_tagged(step.row):
            return functools.partial(self._summed, run)
        elementwise = name.startswith(("arith.", "math.", "tt.precise")) and name != "arith.select"
        if not elementwise or step.regions or len(step.outs) != 1 or not _is_tagged(step.row):
            return run

        def watched(machine: Machine, step: Step, *given: Lanes) -> Lanes:
            made = run(machine, step, *given)
            if name in _EXPONENTIALS and self.overflow is None:
                if (np.isinf(made.wide) & np.isfinite(given[0].wide)).any():
                    self.overflow = machine.site()
            if name in _DIVISIONS and self.divided is None:
                numerator, denominator = (each.wide for each in given)
                if (np.isfinite(numerator) & (numerator != 0) & (denominator == 0)).any():
                    self.divided = machine.site()
            if name == "arith.mulf" and self.too_large is None and np.isinf(made.wide).any():
                finite = [
                    np.isfinite(lanes.wide) | _is_constant(value)
                    for lanes, value in zip(given, step.op.operands, strict=True)
                ]
                if (np.isinf(made.wide) & finite[0] & finite[1]).any():
                    self.too_large = machine.site(), made.row.name
            return self._tagged(machine, name, made, given)

        return watched

    def _scaled(self, run: Callable[..., Any], machine: Machine, step: Step, *given: Lanes) -> Lanes:
        """Run a scaled dot, and number the NaNs that a scale of 255 made."""
        made = run(machine, step, *given)
        _, _, of_start, *of_scales = _operands(step)
        if of_start is None or not np.isnan(made.wide).any():
            return made
        scales = [given[at].data for at in of_scales if at is not None and not given[at].row.is_float8]
        if not any((scale.view(np.uint8) == 255).any() for scale in scales):
            return made
        return self._tagged(machine, step.op.name, made, (given[of_start],))

    def _summed(self, run: Callable[..., Any], machine: Machine, step: Step, *given: Lanes) -> tuple[Lanes]:
        """Run a sum along an axis, and number the NaNs: of infinities of both signs, or made before."""
        (made,) = run(machine, step, *given)
        if not np.isnan(made.wide).any():
            return (made,)
        axis, shape = step.op.integer("axis"), step.op.operands[0].type.shape
        terms = np.broadcast_to(given[0].wide, shape)
        tags = np.where(np.isnan(terms), np.broadcast_to(_tags(given[0]), shape), 0).max(axis)
        new = ~np.isnan(terms).any(axis) & np.isinf(terms).any(axis)
        return (self._of_infinities(machine, made, new, "inf + (-inf)", tags),)

    def _dot(self, run: Callable[..., Any], machine: Machine, step: Step, *given: Lanes) -> Lanes:
        """Run a dot, and number the NaNs: made by infinities here, or made before."""
        made = run(machine, step, *given)
        nan = np.isnan(made.wide)
        blocks = [lanes for lanes in given[:3] if lanes.row is not None and lanes.row.is_float]
        values = [lanes.wide for lanes in blocks]
        if not nan.any():
            return made
        if any(np.isnan(each).any() for each in values):
            if len(blocks) < 3 or not all(_is_tagged(lanes.row) for lanes in blocks):
                return made
            shapes = [value.type.shape for value in step.op.operands[:3]]
            left, right, total = (
                np.broadcast_to(np.where(np.isnan(block.wide), _tags(block), 0), shape)
                for block, shape in zip(blocks, shapes, strict=True)
            )
            tags = np.where(total > 0, total, left.max(-1)[..., :, None])
            return self._numbered(made, nan, np.where(tags > 0, tags, right.max(-2)[..., None, :]))
        *batch, row, column = np.argwhere(nan)[0]
        left, right = values[0][*batch, row, :], values[1][*batch, :, column]
        zero = np.isinf(left) & (right == 0) | (left == 0) & np.isinf(right)
        how = "0 * inf" if zero.any() else "inf + (-inf)"
        return self._of_infinities(machine, made, nan, how, np.zeros(nan.shape, np.int64))

    def _of_infinities(
        self, machine: Machine, made: Lanes, new: np.ndarray, how: str, tags: np.ndarray
    ) -> Lanes:
        """Return the same lanes with numbers in their NaNs. new: which of them infinities made here."""
        nan = np.isnan(made.wide)
        new = new.reshape(nan.shape) & nan
        if new.any():
            number = self._number(MadeNaN(how, machine.site(), bool(self.overflow)))
            tags = np.where(new, number, tags.reshape(nan.shape))
        return self._numbered(made, nan, tags.reshape(nan.shape))

    def _tagged(self, machine: Machine, name: str, made: Lanes, given: tuple[Lanes, ...]) -> Lanes:
        """Return the same lanes, each NaN with the number of its origin."""
        nan = np.isnan(made.wide)
        if not nan.any():
            return made
        tags, new = np.zeros(nan.shape, np.int64), nan
        sources = [lanes for lanes in given if _is_tagged(lanes.row)]
        for lanes in reversed(sources):
            old = np.isnan(lanes.wide)
            tags, new = np.where(old, _tags(lanes), tags), new & ~old
        if new.any():
            lane = tuple(np.argwhere(new)[0])
            values = [float(np.broadcast_to(lanes.wide, nan.shape)[lane]) for lanes in sources]
            number = self._number(MadeNaN(_how(name, values), machine.site(), bool(self.overflow)))
            tags = np.where(new, number, tags)
        return self._numbered(made, nan, tags)

    def _numbered(self, made: Lanes, nan: np.ndarray, tags: np.ndarray) -> Lanes:
        """Return the same lanes with these numbers in their NaNs."""
        shift = _QUIET[made.row.name] - 6
        bits = made.data.copy().view(_integer(made.data.itemsize, np))
        keep = ~np.array((_TAGS - 1) << shift).astype(bits.dtype)
        bits[...] = np.where(nan, bits & keep | (tags << shift).astype(bits.dtype), bits)
        return Lanes(bits.view(made.data.dtype), made.row, made.labels, made.product)

    def _number(self, made: MadeNaN) -> int:
        known = [each[:2] for each in self._made]
        if made[:2] in known:
            return known.index(made[:2]) + 1
        if len(self._made) == _TAGS - 1:
            return 0
        self._made.append(made)
        return len(self._made)


def _is_tagged(row: DType | None) -> bool:
    return row is not None and row.name in _QUIET


def _is_constant(value: Value) -> bool:
    """Return whether a value is a number that was known before the kernel ran, such as 2.0**133."""
    maker = value.maker
    while maker is not None and maker.name in ("tt.splat", "arith.extf", "arith.truncf"):
        maker = maker.operands[0].maker
    return maker is not None and maker.name == "arith.constant"


def _integer(size: int, of: Any) -> Any:
    return {2: of.int16, 4: of.int32, 8: of.int64}[size]


def _operands(step: Step) -> list[int | None]:
    """Return the places of a scaled dot's operands: a, b, the sum so far, both scales; or None."""
    places, at = [], 0
    for group in step.op.segments():
        places.append(at if group else None)
        at += len(group)
    return places


def _tags(lanes: Lanes) -> np.ndarray:
    bits = lanes.data.view(_integer(lanes.data.itemsize, np)).astype(np.int64)
    return bits >> (_QUIET[lanes.row.name] - 6) & (_TAGS - 1)


def _how(name: str, values: list[float]) -> str:
    """Return how an operation on these numbers made a NaN; "" if we have no words for it."""
    if name == "tt.dot_scaled":
        return "a scale is 255, which means NaN, and 0 * NaN is NaN"
    infinite = [value for value in values if np.isinf(value)]
    if name.endswith("divf"):
        return "inf / inf" if infinite else "0 / 0"
    if name == "arith.subf" and infinite:
        return "inf - inf" if infinite[0] > 0 else "-inf - (-inf)"
    if name == "arith.addf" and infinite:
        return "inf + (-inf)"
    if name == "math.fma" and infinite:
        return "0 * inf" if 0 in values[:2] else "inf + (-inf)"
    if name == "arith.mulf":
        return "0 * inf"
    if "sqrt" in name:
        return "the root of a negative number"
    if name.startswith("math.log"):
        return "the log of a negative number"
    return ""
