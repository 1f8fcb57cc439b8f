"""Define each operation of Triton IR: a table from its name to a function of lanes.

A function gets the machine, the step (the operation, and what is known of it before it runs) and the
operands' lanes. It returns the lanes of the results. A rule next to it makes the labels. Nearly always, a
lane of the result is undefined if one of its operands' lanes is. From IR such as ``arith.addi %x, %y`` only
the name, the order of the operands and the types of the results are used.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from puzzles_lib.dtypes import DType
from puzzles_lib.float8 import NO_FLOAT8_ARITHMETIC
from puzzles_lib.runner import arithmetic, assembly, libdevice, numerics
from puzzles_lib.runner.buffer import garbage
from puzzles_lib.runner.lanes import (
    ADDRESS,
    BFLOAT16,
    BOOL,
    E5M2,
    FLOAT32,
    INT32,
    KIND,
    BlockPointer,
    Descriptor,
    Labels,
    Lanes,
    Product,
    folded,
    joined,
    marked,
    row_of,
    where,
)
from puzzles_lib.runner.memory import Halt
from puzzles_lib.runner.records import Stop
from puzzles_lib.runner.step import Machine, Step
from puzzles_lib.translator.ir import Operation, Value, is_read_unsigned

Compute = Callable[..., Any]
Rule = Callable[..., Labels]

DESCRIPTOR_BYTES = (
    16  # that divide where a tensor's rows begin, for NVIDIA's TMA and so for tensor descriptors
)

TABLE: dict[str, Compute] = {}


class Unsupported(NotImplementedError):
    """An operation that the course cannot run. The message says so in words."""


# ---- labels of a result, from those of the operands


def of_all(machine: Machine, step: Step, *operands: Lanes) -> Labels:
    return joined(*(lanes.labels for lanes in operands))


def absorbing(settles: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """Return a rule for operations that one operand can decide alone, such as ``x & 0``."""

    def rule(machine: Machine, step: Step, left: Lanes, right: Lanes) -> Labels:
        found = []
        for one, other in ((left, right), (right, left)):
            if one.labels is None:
                continue
            settled = settles(other.data)
            if other.labels is not None:
                settled = settled & (other.labels == 0)
            found.append(where(~settled, one.labels))
        return joined(*found)

    return rule


def _is_zero(data: np.ndarray) -> np.ndarray:
    return data == 0


def _is_all_ones(data: np.ndarray) -> np.ndarray:
    return data if data.dtype == bool else ~data == 0


def of_shift(machine: Machine, step: Step, value: Lanes, by: Lanes) -> Labels:
    found = joined(value.labels, by.labels)
    size = 8 * value.data.itemsize
    wild = by.data.view(f"u{size // 8}") >= size
    if wild.any():
        what = f"a shift of {size} bits by {int(by.data[wild].flat[0])} is undefined"
        found = joined(found, where(wild, machine.memory.label(what)))
    return found


def of_division(machine: Machine, step: Step, value: Lanes, by: Lanes) -> Labels:
    found = joined(value.labels, by.labels)
    wild = by.data == 0
    if wild.any():
        what = "an integer divided by 0 is undefined"
        found = joined(found, where(wild, machine.memory.label(what)))
    return found


def to_integer(machine: Machine, step: Step, value: Lanes) -> Labels:
    target = step.row.storage
    limits = np.iinfo(target if step.op.name != "arith.fptoui" else f"u{target.itemsize}")
    floats = value.wide
    fits = (floats > limits.min - 1.0) & (floats < limits.max + 1.0)  # NaN does not
    found = value.labels
    if not fits.all():
        name = f"{'u' * (limits.min == 0)}{step.row.name}"
        number = f"{floats[~fits].flat[0]:.6g}"
        number += ", which comes from 0 / 0 or the like," if number == "nan" else ""
        what = f"{number} is cast to {name}, whose range is {limits.min} to {limits.max}, "
        what += "so the result is undefined"
        found = joined(found, where(~fits, machine.memory.label(what)))
    return found


def of_a_number(machine: Machine, step: Step, *operands: Lanes) -> Labels:
    """Return labels as `of_all` does, for a result that isn't an offset: a float, or a random xor."""
    return machine.memory.no_offset(of_all(machine, step, *operands))


# ---- the table


def operation(*names: str, labels: Rule | None = of_all, makes: bool = False) -> Callable[[Compute], Compute]:
    """Return a decorator that enters a function in the table under these names.

    labels: the rule for labels; None if the function makes them itself. makes: ask the rule even if no
        operand is undefined.
    """

    def enter(compute: Compute) -> Compute:
        made = compute if labels is None else _labelled(compute, labels, makes)
        for name in names:
            TABLE[name] = made
        return compute

    return enter


def _labelled(compute: Compute, rule: Rule, makes: bool) -> Compute:
    def run(machine: Machine, step: Step, *operands: Lanes) -> Lanes:
        result = compute(machine, step, *operands)
        if makes or machine.memory.sources:
            found = rule(machine, step, *operands)
            if len(operands) > 1:
                found = machine.memory.in_order(found, *operands)
            if found is not None and found.any():
                result.labels = joined(result.labels, found)
        return result

    return run


def _of_two(function: Callable) -> Compute:
    """An operation on floats, rounded once."""

    def compute(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        machine.memory.flops += step.size
        row = step.row
        if row.code is None:
            return Lanes(function(x.data, y.data), row)
        _refuse_float8(row)
        return Lanes(row.code.narrow(function(row.code.widen(x.data), row.code.widen(y.data))), row)

    return compute


def _of_one(function: Callable) -> Compute:
    def compute(machine: Machine, step: Step, x: Lanes) -> Lanes:
        row = step.row
        machine.memory.flops += step.size if row.is_float else 0
        if row.code is None:
            return Lanes(function(x.data), row)
        _refuse_float8(row)
        return Lanes(row.code.narrow(function(row.code.widen(x.data))), row)

    return compute


def _refuse_float8(row: DType) -> None:
    """Triton compiles no arithmetic on float8."""
    if row.is_float8:
        raise Unsupported(NO_FLOAT8_ARITHMETIC)


def _plainly(function: Callable) -> Compute:
    """An operation on integers, as NumPy has them."""

    def compute(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        return Lanes(function(x.data, y.data), step.row)

    return compute


def _limiting(compute: Compute) -> Compute:
    """A maximum or minimum that notes what it had to choose from."""

    def noted(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        machine.memory.sides.limited(step.op, x, y)
        return compute(machine, step, x, y)

    return noted


def _keeping(compute: Compute) -> Compute:
    """An operation that notes whether it changes its first operand."""

    def noted(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        result = compute(machine, step, x, y)
        machine.memory.sides.kept(step.op, x.data, result.data, x.labels)
        return result

    return noted


def _dividing(compute: Compute) -> Compute:
    """A division that notes whether its result is ever other than 0."""

    def noted(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        result = compute(machine, step, x, y)
        machine.memory.sides.divided(step.op, result.data, x.labels)
        return result

    return noted


def _unsigned(function: Callable) -> Compute:
    """An operation on integers that it takes for unsigned ones."""

    def compute(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        if x.data.dtype == bool:
            return Lanes(function(x.data, y.data), step.row)
        kind = f"u{x.data.itemsize}"
        return Lanes(function(x.data.view(kind), y.data.view(kind)).view(x.data.dtype), step.row)

    return compute


def _unless_bool(function: Callable, of_bools: Callable, unsigned: bool = False) -> Compute:
    """An operation on integers; on single bits it is one modulo 2."""
    whole = (_unsigned if unsigned else _plainly)(function)

    def compute(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
        if x.data.dtype == bool:
            return Lanes(of_bools(x.data, y.data), step.row)
        return whole(machine, step, x, y)

    return compute


for _name, _function in {"tt.precise_divf": np.divide, "arith.remf": numerics.remainder}.items():
    operation(_name)(_of_two(cast(Callable[..., Any], _function)))

_quotient, _by_reciprocal = _of_two(np.divide), _of_two(numerics.by_reciprocal)


@operation("arith.divf")
def divf(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    """Divide; if whole numbers are divided, with a rounded reciprocal, as 41 / 41 is less than 1 on a GPU.

    ``div.full.f32`` may be 2 units in the last place off. Take j and n up to 4096. On an H200, the floor of
    j * n / n isn't j for 465 of the n; here, for 568. If a quotient decides on no integer, this hardly shows,
    so all other quotients are rounded once.
    """
    if step.row.storage != np.float32 or not all(map(_is_whole, step.op.operands)):
        return _quotient(machine, step, x, y)
    return _by_reciprocal(machine, step, x, y)


_COPIES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans")


def _was_integer(value: Value) -> bool:
    """Return whether a float is an integer that was converted."""
    while value.maker is not None and value.maker.name in _COPIES:
        value = value.maker.operands[0]
    return value.maker is not None and value.maker.name in ("arith.sitofp", "arith.uitofp")


def _is_whole(value: Value) -> bool:
    """Return whether a float is an integer that was converted, a constant, or a quotient of these."""
    while value.maker is not None and value.maker.name in _COPIES:
        value = value.maker.operands[0]
    if value.maker is not None and value.maker.name == "arith.divf":
        return all(map(_is_whole, value.maker.operands))
    return value.maker is not None and value.maker.name in ("arith.sitofp", "arith.uitofp", "arith.constant")


for _name, _function in {
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
}.items():  # fmt: skip
    operation(_name)(_limiting(_of_two(cast(Callable[..., Any], _function))))

for _name, _function in {
    "math.exp": np.exp, "math.exp2": np.exp2, "math.log": np.log, "math.log2": np.log2, "math.sin": np.sin,
    "math.cos": np.cos, "math.sqrt": np.sqrt, "tt.precise_sqrt": np.sqrt, "math.floor": np.floor,
    "math.ceil": np.ceil, "math.absi": np.abs, "arith.negf": np.negative,
    "math.rsqrt": lambda x: 1 / np.sqrt(x), "math.erf": numerics.erf,
}.items():  # fmt: skip
    operation(_name)(_of_one(cast(Callable[..., Any], _function)))

for _name, _function in {
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
}.items():  # fmt: skip
    operation(_name)(_limiting(_plainly(_function)))

operation("arith.xori", labels=of_a_number)(_plainly(np.bitwise_xor))

operation("arith.andi", labels=absorbing(_is_zero))(_keeping(_plainly(np.bitwise_and)))
operation("arith.ori", labels=absorbing(_is_all_ones))(_plainly(np.bitwise_or))
operation("arith.maxui")(_limiting(_unsigned(np.maximum)))
operation("arith.minui")(_limiting(_unsigned(np.minimum)))
operation("tt.mulhiui")(_unsigned(numerics.high_product))


def _first(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A single bit that is divided or shifted, and defined: it is divided by 1 or shifted by 0."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, y.shape))


def _none(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What is left if a single bit is divided."""
    return np.zeros(np.broadcast_shapes(x.shape, y.shape), bool)


for _name, _rule, _function, _of_bits in (
    ("arith.shrsi", of_shift, np.right_shift, _first),
    ("arith.shrui", of_shift, np.right_shift, _first),
    ("arith.divsi", of_division, numerics.divided, _first),
    ("arith.divui", of_division, np.floor_divide, _first),
    ("arith.remsi", of_division, np.fmod, _none),
    ("arith.remui", of_division, np.remainder, _none),
):
    _made = _unless_bool(_function, _of_bits, unsigned=_name.endswith("ui"))
    _noted = _keeping(_made) if "rem" in _name else _dividing(_made) if "div" in _name else _made
    operation(_name, labels=_rule, makes=True)(_noted)

_ADDI, _SUBI = _unless_bool(np.add, np.bitwise_xor), _unless_bool(np.subtract, np.bitwise_xor)
_MULI = _unless_bool(np.multiply, np.bitwise_and)


@operation("arith.addi")
def addi(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    return machine.memory.checked(_ADDI(machine, step, x, y), x, y, np.add)


@operation("arith.subi")
def subi(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    return machine.memory.checked(_SUBI(machine, step, x, y), x, y, np.subtract)


@operation("arith.muli", labels=absorbing(_is_zero))
def muli(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    return machine.memory.checked(_MULI(machine, step, x, y), x, y, np.multiply)


_SHLI = _unless_bool(np.left_shift, _first)


@operation("arith.shli", labels=of_shift, makes=True)
def shli(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    return machine.memory.checked(_SHLI(machine, step, x, y), x, y, numerics.shifted)


_COMPARED = (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
)  # fmt: skip


@operation("arith.cmpi")
def cmpi(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    which, left, right = step.op.integer("predicate"), x.data, y.data
    if left.dtype == bool:
        if 2 <= which <= 5:  # a single bit that is set is -1
            left, right = -left.astype(np.int8), -right.astype(np.int8)
    elif which > 5:
        kind = f"u{left.itemsize}"
        left, right = left.view(kind), right.view(kind)
    outcome = _COMPARED[which - 4 if which > 5 else which](left, right)
    machine.memory.sides.compared(step.op, outcome, left, right, x.labels)
    if x.labels is not None or y.labels is not None:
        machine.memory.compared(x.row, joined(x.labels, y.labels), unsigned=not 2 <= which <= 5)
    return Lanes(outcome, BOOL)


_ORDERED = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal}


@operation("arith.cmpf")
def cmpf(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    result = _cmpf(step, x, y)
    if step.kept is None:
        step.kept = [_casts_of_an_index(value) for value in step.op.operands]
    if all(step.kept):
        machine.memory.sides.made_of_bits(step.op)  # larger numbers are rounded before they are compared
        for each, casts in zip((x, y), step.kept, strict=True):
            result = machine.memory.from_float(result, each, casts)
        return result
    machine.memory.sides.compared(step.op, result.data, x.wide, y.wide, x.labels)
    return result


def _cmpf(step: Step, x: Lanes, y: Lanes) -> Lanes:
    which, left, right = step.op.integer("predicate"), x.wide, y.wide
    if which in _ORDERED:
        return Lanes(_ORDERED[which](left, right), BOOL)
    if which == 13:
        return Lanes(np.not_equal(left, right), BOOL)
    unordered = np.isnan(left) | np.isnan(right)
    if which in (7, 14):
        return Lanes(unordered if which == 14 else ~unordered, BOOL)
    if which == 6:
        return Lanes(~unordered & np.not_equal(left, right), BOOL)
    if 8 <= which <= 12:
        return Lanes(unordered | _ORDERED[which - 7](left, right), BOOL)
    return Lanes(np.full(np.broadcast_shapes(left.shape, right.shape), which == 15), BOOL)


def of_choice(machine: Machine, step: Step, condition: Lanes, left: Lanes, right: Lanes) -> Labels:
    """Return the labels of the chosen side and of the condition."""
    sides = where(condition.data, left.labels), where(~condition.data, right.labels)
    return joined(condition.labels, *sides)


@operation("arith.select", labels=of_choice)
def select(machine: Machine, step: Step, condition: Lanes, left: Lanes, right: Lanes) -> Lanes:
    return Lanes(np.where(condition.data, left.data, right.data), step.row)


def of_clamp(machine: Machine, step: Step, value: Lanes, low: Lanes, high: Lanes) -> Labels:
    found = joined(value.labels, low.labels, high.labels)
    wild = np.isnan(value.wide)
    if not step.op.integer("propagateNan") and wild.any():
        what = "tl.clamp of NaN may be either limit; propagate_nan=tl.PropagateNan.ALL keeps it NaN"
        found = joined(found, where(wild, machine.memory.label(what)))
    return found


@operation("tt.clampf", labels=of_clamp, makes=True)
def clampf(machine: Machine, step: Step, value: Lanes, low: Lanes, high: Lanes) -> Lanes:
    most, least = (np.minimum, np.maximum) if step.op.integer("propagateNan") else (np.fmin, np.fmax)
    machine.memory.sides.limited(step.op, value, high)
    return Lanes(step.row.narrow(most(least(value.wide, low.wide), high.wide)), step.row)


# ---- floats that the compiler computes in one step


def of_product(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Labels:
    """Return labels as `of_all` does, but an integer that was loaded and converted is finite: times 0 it's 0.

    If the other factor is undefined, too, that one is to blame: it can be NaN. A cast that goes wrong gives
    no integer.
    """
    if step.row.name not in ("float32", "bfloat16", "float64"):  # an integer can be too large for the others
        return of_all(machine, step, x, y)
    left, right = x.labels, y.labels
    if left is not None and _was_integer(step.op.operands[0]):
        left = _unless_harmless(machine, left, y)
    elif right is not None and _was_integer(step.op.operands[1]):
        right = _unless_harmless(machine, right, x)
    return joined(left, right)


def _unless_harmless(machine: Machine, labels: np.ndarray, factor: Lanes) -> Labels:
    """Return the labels of a converted integer without those that don't matter for its product."""
    harmful = (factor.data != 0) & (True if factor.labels is None else factor.labels == 0)
    return where(harmful | ~np.isin(labels, machine.memory.labels_of("lanes")), labels)


@operation("arith.mulf", labels=of_product)
def mulf(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    machine.memory.flops += step.size
    row = step.row
    if row.code is None:
        data = x.data * y.data
    else:
        data = row.code.narrow(row.code.widen(x.data) * row.code.widen(y.data))
    return Lanes(data, row, None, Product(x.data, y.data, data, row, step))


@operation("math.absf")
def absf(machine: Machine, step: Step, x: Lanes) -> Lanes:
    """Return absolute values, also of float8: the compiler clears a bit."""
    machine.memory.flops += step.size
    return Lanes(step.row.narrow(np.abs(x.wide)), step.row)


@operation("arith.addf")
def addf(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    return _sum(machine, step, x, y, np.add)


@operation("arith.subf")
def subf(machine: Machine, step: Step, x: Lanes, y: Lanes) -> Lanes:
    return _sum(machine, step, x, y, np.subtract)


_SUMS = {np.add: _of_two(np.add), np.subtract: _of_two(np.subtract)}


def _sum(machine: Machine, step: Step, x: Lanes, y: Lanes, function: Any) -> Lanes:
    """A sum or a difference; as compiled, the first product that it takes is fused."""
    result = _SUMS[function](machine, step, x, y)
    if step.row.code or step.row.storage.itemsize < FLOAT32.storage.itemsize:
        machine.memory.arithmetic.rounded.setdefault(machine.site(), step.row.name)
    product = x.product or y.product
    if product is None:
        return result
    notes = machine.memory.arithmetic
    notes.products = True
    if notes.as_compiled:
        lost = arithmetic.lost(product)
        error = -lost if function is np.subtract and x.product is None else lost
        exact = function(x.wide.astype(np.float64), y.wide) + error
        fused = step.row.code.narrow(exact) if step.row.code else exact.astype(result.data.dtype)
        data = np.where(error != 0, fused, result.data)
        changed = data != result.data
        if changed.any():
            cancels = bool((changed & (result.wide == 0)).any())
            sites = machine.site_of(product.step), machine.site()
            notes.fused[arithmetic.Fused(*sites, cancels)] = None
        return Lanes(data, step.row)
    if not notes.cancels and (zero := result.wide == 0).any():
        notes.cancels = bool((zero & (arithmetic.lost(product) != 0)).any())
    return result


@operation("math.fma")
def fma(machine: Machine, step: Step, x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    _refuse_float8(step.row)
    wide = [lanes.wide.astype(np.float64) for lanes in (x, y, z)]
    machine.memory.flops += 2 * step.size
    return Lanes(step.row.narrow(wide[0] * wide[1] + wide[2]), step.row)  # the product of float32 is exact


# ---- dots


def of_dot(machine: Machine, step: Step, left: Lanes, right: Lanes, start: Lanes) -> Labels:
    """Return the labels of rows and columns. An integer's label counts only if the other factor is not 0."""
    shapes = [value.type.shape for value in step.op.operands]
    rows, columns = left.full_labels(shapes[0]), right.full_labels(shapes[1])
    if step.row.is_float:
        rows = None if rows is None else rows.max(-1, keepdims=True)
        columns = None if columns is None else columns.max(-2, keepdims=True)
    else:
        counts = [
            (lanes.full(shape) != 0) | (False if lanes.labels is None else lanes.labels > 0)
            for lanes, shape in zip((left, right), shapes, strict=False)
        ]
        if rows is not None:
            rows = (rows[..., :, :, None] * counts[1][..., None, :, :]).max(-2)
        if columns is not None:
            columns = (counts[0][..., :, :, None] * columns[..., None, :, :]).max(-2)
    return joined(start.labels, rows, columns)


@operation("tt.dot", labels=of_dot)
def dot(machine: Machine, step: Step, a: Lanes, b: Lanes, d: Lanes) -> Lanes:
    shapes = [value.type.shape for value in step.op.operands]
    result = Lanes(
        _dot(step, a.full(shapes[0]), b.full(shapes[1]), a.row, b.row, d.full(shapes[2])), step.row
    )
    machine.dotted(step, shapes[0][-1], a, b, d, result)
    notes = machine.memory.arithmetic
    roundoff = _roundoff(step, a.row, b.row)
    notes.factors = max(notes.factors, roundoff)
    notes.tf32 |= a.row is b.row is FLOAT32 and roundoff == arithmetic.TF32_ROUNDOFF
    return result


def _roundoff(step: Step, *factors: DType) -> float:
    """Return the roundoff with which a dot uses its factors; 0 for float32's, and for numbers of 8 bits."""
    if all(row is FLOAT32 for row in factors):
        return _ROUNDOFFS.get(step.op.integer("inputPrecision", _IEEE), 0.0)
    return max(row.roundoff if row.storage.itemsize == 2 else 0.0 for row in factors)


_TF32, _TF32X3, _IEEE, _BF16X3, _BF16X6 = range(5)
_ROUNDOFFS = {_TF32: arithmetic.TF32_ROUNDOFF, _BF16X3: 2.0**-16}
_PARTS = {_BF16X3: (2, 1), _BF16X6: (3, 2)}  # of each factor, and up to which sum of their numbers they meet


def _dot(step: Step, a: np.ndarray, b: np.ndarray, of_a: DType, of_b: DType, start: np.ndarray) -> np.ndarray:
    # float8 is summed in float32; Hopper's tensor cores keep fewer bits: 6e-5 of sum(|a| |b|) is lost.
    row = step.row
    left, right = of_a.widen(a), of_b.widen(b)
    precision = step.op.integer("inputPrecision", _IEEE)
    if left.dtype == right.dtype == np.float32 and of_a.code is None:
        if precision == _TF32:
            left, right = numerics.float32_to_tf32(left), numerics.float32_to_tf32(right)
        elif precision in _PARTS:
            terms, most = _PARTS[precision]
            parts = [numerics.float32_in_bfloat16(each, terms) for each in (left, right)]
            pairs = [(i, j) for i in range(terms) for j in range(terms) if i + j <= most]
            found = [numerics.product(parts[0][i], parts[1][j], np.float32) for i, j in reversed(pairs)]
            return (sum(found) + start).astype(row.storage, copy=False)
    if row.code:
        return row.code.narrow(numerics.product(left, right, np.float32) + row.code.widen(start))
    if not row.is_float:  # sums of products of int8 are exact in float64
        made = numerics.product(left, right, np.float64).astype(np.int64)
        return (made + start).astype(row.storage, copy=False)
    wide = np.float64 if row.storage == np.float64 else np.float32
    made = numerics.product(left, right, wide).astype(row.storage, copy=False)
    return (made + start).astype(row.storage, copy=False)


_E2M1_FORMAT = 4


def _scaled_parts(step: Step, operands: Sequence[Lanes]) -> list[tuple[Lanes, tuple[int, ...]] | None]:
    """The operands a, b, c, a's scale and b's scale, with their shapes."""
    groups, at = step.op.segments(), 0
    found: list[tuple[Lanes, tuple[int, ...]] | None] = []
    for group in groups:
        found.append((operands[at], group[0].type.shape) if group else None)
        at += len(group)
    return found


def of_dot_scaled(machine: Machine, step: Step, *operands: Lanes) -> Labels:
    """Return the labels of rows and columns, and of their scales."""
    left, right, start, left_scale, right_scale = _scaled_parts(step, operands)
    assert start is not None
    shape, found = start[1], [start[0].labels]
    for part, axis in ((left, -1), (left_scale, -1), (right, -2), (right_scale, -1)):
        if part is None or part[0].labels is None:
            continue
        of_it: np.ndarray = np.asarray(part[0].full_labels(part[1])).max(axis, keepdims=True)
        if part is right_scale:
            of_it = np.swapaxes(of_it, -1, -2)
        for place in (-1, -2):  # two of fp4 in a byte
            if of_it.shape[place] not in (1, shape[place]):
                of_it = np.repeat(of_it, 2, place)
        found.append(of_it)
    return joined(*found)


@operation("tt.dot_scaled", labels=of_dot_scaled)
def dot_scaled(machine: Machine, step: Step, *operands: Lanes) -> Lanes:
    op = step.op
    left, right, start, left_scale, right_scale = _scaled_parts(step, operands)
    assert left and right and start
    a = _unpacked(*left, op.integer("a_elem_type"), -1 if op.flag("lhs_k_pack") else -2)
    b = _unpacked(*right, op.integer("b_elem_type"), -2 if op.flag("rhs_k_pack") else -1)
    if left_scale:
        a = a * _scales(*left_scale, a.shape[-1])
    if right_scale:
        b = b * np.swapaxes(_scales(*right_scale, b.shape[-2]), -1, -2)
    notes = machine.memory.arithmetic
    notes.factors = max(notes.factors, arithmetic.TF32_ROUNDOFF)  # a GPU may convert the factors
    result = Lanes(numerics.product(a, b, np.float32) + start[0].full(start[1]), step.row)
    machine.dotted(step, a.shape[-1], left[0], right[0], start[0], result, factors=(a, b))
    return result


def _unpacked(block: Lanes, shape: tuple[int, ...], kind: int, axis: int) -> np.ndarray:
    """A scaled dot's operand as float32. Of two fp4 in a byte the lower half comes first."""
    if kind != _E2M1_FORMAT:
        row = (
            row_of({0: "f8E4M3FN", 1: "f8E5M2", 5: "bf16", 6: "f16"}[kind]) if kind in (0, 1, 5, 6) else None
        )
        if row is None:
            raise Unsupported("tl.dot_scaled of 6-bit floats runs on a GPU only")
        data = block.full(shape)
        return row.widen(data.view(row.storage)).astype(np.float32)
    data = block.full(shape).view(np.uint8)
    halves = np.stack([data & 15, data >> 4], axis + data.ndim + 1)
    whole = list(shape)
    whole[axis] *= 2
    return (numerics.E2M1[halves & 7] * np.where(halves & 8, -1, 1)).astype(np.float32).reshape(whole)


def _scales(scale: Lanes, shape: tuple[int, ...], count: int) -> np.ndarray:
    """One for each of ``count`` elements along K. As bytes they are exponents, 255 is NaN."""
    values = scale.full(shape)
    if scale.row.is_float8:
        values = scale.row.widen(values)
    else:
        values = values.view(np.uint8)
        values = np.where(values == 255, np.nan, np.exp2(values.astype(np.float32) - 127))
    return np.repeat(values.astype(np.float32), count // values.shape[-1], -1)


# ---- casts


@operation("arith.extsi")
def extsi(machine: Machine, step: Step, x: Lanes) -> Lanes:
    data = x.data.astype(step.row.storage)
    return Lanes(-data if x.data.dtype == bool else data, step.row)


@operation("arith.extui", labels=lambda machine, step, x: machine.memory.taken_as_unsigned(x.labels))
def extui(machine: Machine, step: Step, x: Lanes) -> Lanes:
    data = x.data if x.data.dtype == bool else x.data.view(f"u{x.data.itemsize}")
    return Lanes(data.astype(step.row.storage), step.row)


@operation("arith.trunci")
def trunci(machine: Machine, step: Step, x: Lanes) -> Lanes:
    if step.row is BOOL:
        return Lanes((x.data & 1).astype(bool), step.row)
    data = x.data.astype(step.row.storage)
    read = data.view(f"u{data.itemsize}") if is_read_unsigned(step.op) else data
    machine.memory.sides.kept(step.op, x.data, read, x.labels)
    return machine.memory.cast(Lanes(data, step.row), x)


@operation("arith.index_cast")
def index_cast(machine: Machine, step: Step, x: Lanes) -> Lanes:
    return Lanes(x.data.astype(step.row.storage), step.row)


@operation("arith.sitofp", labels=of_a_number)
def sitofp(machine: Machine, step: Step, x: Lanes) -> Lanes:
    data = -x.data.astype(np.int8) if x.data.dtype == bool else x.data
    return machine.memory.to_float(step.op, Lanes(_as_float(data, step.row), step.row), data)


@operation("arith.uitofp", labels=of_a_number)
def uitofp(machine: Machine, step: Step, x: Lanes) -> Lanes:
    data = x.data if x.data.dtype == bool else x.data.view(f"u{x.data.itemsize}")
    return Lanes(_as_float(data, step.row), step.row)


def _as_float(data: np.ndarray, row: DType) -> np.ndarray:
    return row.code.narrow(data.astype(np.float32)) if row.code else data.astype(row.storage)


@operation("arith.fptosi", "arith.fptoui", labels=to_integer, makes=True)
def fptosi(machine: Machine, step: Step, x: Lanes) -> Lanes:
    storage = step.row.storage
    if step.row is BOOL:
        return Lanes(x.wide != 0, step.row)
    kind = storage if step.op.name == "arith.fptosi" else np.dtype(f"u{storage.itemsize}")
    result = Lanes(numerics.float_to_integer(x.wide, kind).view(storage), step.row)
    if step.kept is None:
        step.kept = _casts_of_an_index(step.op.operands[0])
    if step.kept:
        machine.memory.sides.made_of_bits(step.op)  # for larger numbers, the float is another one
        return machine.memory.from_float(result, x, step.kept)
    return result


def _casts_of_an_index(value: Value) -> list[Operation]:
    """Return the casts to float of a float that is made of programs' and lanes' numbers and sizes alone.

    If it's made of anything else, there are none.
    """
    waiting, found = [value], dict[Operation, None]()
    while waiting:
        maker = waiting.pop().maker
        if maker is not None:
            found[maker] = None
            waiting += maker.operands
    casts = [op for op in found if op.name in ("arith.sitofp", "arith.uitofp")]
    return casts if all(op in casts or op.name in _OF_AN_INDEX for op in found) else []


_OF_AN_INDEX = {
    "arith.addf", "arith.addi", "arith.constant", "arith.divf", "arith.divsi", "arith.extsi", "arith.mulf",
    "arith.muli", "arith.remsi", "arith.subf", "arith.subi", "math.ceil", "math.floor", "tt.broadcast",
    "tt.expand_dims", "tt.get_program_id", "tt.make_range", "tt.precise_divf",
    "tt.splat",
}  # fmt: skip


@operation("arith.extf", "arith.truncf", "tt.fp_to_fp")
def fp_to_fp(machine: Machine, step: Step, x: Lanes) -> Lanes:
    row = step.row
    if x.row is row:
        return Lanes(x.data, row)
    if x.row is E5M2 and row is BFLOAT16:
        return Lanes(numerics.float8_e5m2_to_bfloat16(x.data), row)
    towards_zero = step.op.attributes.get("rounding", "").startswith("0")
    if row.code:
        values = x.wide
        if not towards_zero:
            values = values.astype(np.float32)
        return Lanes(row.code.narrow(values, towards_zero=towards_zero), row)
    if towards_zero:
        return Lanes(_towards_zero(x.wide, row.storage), row)
    return Lanes(x.wide.astype(row.storage), row)


def _towards_zero(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    nearest = values.astype(dtype)
    beyond = np.abs(nearest.astype(values.dtype)) > np.abs(values)
    return np.where(beyond, np.nextafter(nearest, dtype.type(0)), nearest)


@operation("arith.bitcast", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int")
def bitcast(machine: Machine, step: Step, x: Lanes) -> Lanes:
    source, target = step.op.operands[0].type, step.op.results[0].type
    if source == target:
        return x
    memory = machine.memory
    if step.row.is_float:
        memory.sides.made_of_bits(step.op)
    if target.is_pointer:
        memory.casts |= not source.is_pointer or _bytes_of(source) != _bytes_of(target)
    data = x.data if x.data.dtype == step.row.storage else np.ascontiguousarray(x.data).view(step.row.storage)
    if target.is_pointer and not source.is_pointer:
        data = memory.pointers_to(data)
    if source.is_pointer != target.is_pointer:
        memory.tells_addresses |= source.is_pointer
        if memory.addresses.elsewhere:
            addresses = memory.addresses
            told = addresses.numbers(x.data) if source.is_pointer else addresses.pointers(data)
            data = told.view(step.row.storage)
    return Lanes(data, step.row)


def _bytes_of(pointer: Any) -> int:
    return row_of(pointer.pointee.element).storage.itemsize


# ---- constants and numbers of programs


@operation("arith.constant", labels=None)
def constant(machine: Machine, step: Step) -> Lanes:
    if step.kept is None:
        step.kept = Lanes(constant_of(step.op.attributes["value"], step.row), step.row)
    return step.kept


def constant_of(text: str, row: DType) -> np.ndarray:
    """Return the value of a constant, as it is stored, from its text in the IR."""
    value = text.rsplit(" : ", 1)[0]
    value = value[6:-1] if value.startswith("dense<") else value
    if value in ("true", "false"):
        return np.array([value == "true"])
    if value.startswith("["):
        raise Unsupported("a constant block of different values")
    if value.startswith("0x"):  # a float's bits
        return np.array([int(value, 16)], f"u{row.storage.itemsize}").view(row.storage)
    if row.is_float:
        return row.narrow(np.array([float(value)]))
    if row is BOOL:
        return np.array([int(value) != 0])
    size = row.storage.itemsize
    return np.array([int(value) & (1 << 8 * size) - 1], f"u{size}").view(row.storage)


@operation("ub.poison", labels=None)
def poison(machine: Machine, step: Step) -> Lanes:
    """Return the undefined value that a loop's variable has after the loop."""
    data = np.zeros(1, step.row.storage)
    if not step.op.results[0].users:
        return Lanes(data, step.row)
    source = machine.site().source
    match = re.search(r"\bfor\s+(\w+)\s+in\b", source)
    what = (
        f"{match[1]} after its loop, where a GPU keeps nothing of it" if match else "a value that is not set"
    )
    return Lanes(data, step.row, np.array([machine.memory.label(what)], KIND))


@operation("tt.get_program_id", labels=None)
def get_program_id(machine: Machine, step: Step) -> Lanes:
    return Lanes(np.array([machine.memory.program[step.op.integer("axis")]], np.int32), INT32)


@operation("tt.get_num_programs", labels=None)
def get_num_programs(machine: Machine, step: Step) -> Lanes:
    return Lanes(np.array([machine.grid[step.op.integer("axis")]], np.int32), INT32)


@operation("tt.make_range", labels=None)
def make_range(machine: Machine, step: Step) -> Lanes:
    return Lanes(numerics.numbers_from(step.op.integer("start"), step.op.integer("end")), INT32)


# ---- shapes. What is only spread stays as it is; labels go where the data goes


@operation("tt.splat", "tt.broadcast", labels=None)
def splat(machine: Machine, step: Step, x: Lanes) -> Lanes:
    return x


def _moving(move: Callable[[Step, np.ndarray, tuple[int, ...]], np.ndarray]) -> Compute:
    def compute(machine: Machine, step: Step, x: Lanes) -> Lanes:
        shape = step.op.operands[0].type.shape
        result = Lanes(move(step, x.full(shape), shape), step.row)
        if x.labels is not None:
            result.labels = move(step, np.asarray(x.full_labels(shape)), shape)
        if x.product is not None:
            result.product = arithmetic.moved(x.product, lambda lost: move(step, _spread(lost, shape), shape))
        return result

    return compute


def _spread(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(data, shape or (1,))


@operation("tt.expand_dims", labels=None)
def expand_dims(machine: Machine, step: Step, x: Lanes) -> Lanes:
    if x.data.shape == (1,) and (x.labels is None or x.labels.shape == (1,)):
        return x
    return _EXPANDED(machine, step, x)


_EXPANDED = _moving(lambda step, data, shape: np.expand_dims(data, step.op.integer("axis")))
operation("tt.trans", labels=None)(
    _moving(lambda step, data, shape: np.transpose(data, step.op.integers("order")))
)


@operation("tt.reshape", labels=None)
def reshape(machine: Machine, step: Step, x: Lanes) -> Lanes:
    if not step.op.flag("allow_reorder"):
        return _RESHAPED(machine, step, x)
    shape, whole = step.op.operands[0].type.shape, step.shape
    label = machine.memory.label("tl.reshape with can_reorder=True does not keep the order", order=True)
    found = None if x.labels is None else np.asarray(x.full_labels(shape)).ravel()[::-1].reshape(whole)
    result = Lanes(x.full(shape).ravel()[::-1].reshape(whole), step.row)
    return marked(result, joined(found, np.full(whole, label, KIND)))


_RESHAPED = _moving(lambda step, data, shape: data.reshape(step.shape))


@operation("tt.unsplat", labels=None)
def unsplat(machine: Machine, step: Step, x: Lanes) -> Lanes:
    labels = None if x.labels is None else x.labels.reshape(-1)[:1]
    return Lanes(x.data.reshape(-1)[:1], step.row, labels)


@operation("tt.join", labels=None)
def join(machine: Machine, step: Step, left: Lanes, right: Lanes) -> Lanes:
    shape = step.op.operands[0].type.shape or (1,)
    whole = step.shape
    result = Lanes(np.stack([left.full(shape), right.full(shape)], -1).reshape(whole), step.row)
    if left.labels is not None or right.labels is not None:
        none = np.zeros(shape, KIND)
        parts = [
            none if each.labels is None else np.asarray(each.full_labels(shape)) for each in (left, right)
        ]
        result.labels = np.stack(parts, -1).reshape(whole)
    return result


@operation("tt.split", labels=None)
def split(machine: Machine, step: Step, x: Lanes) -> tuple[Lanes, Lanes]:
    shape = step.op.operands[0].type.shape
    data, labels = x.full(shape), x.full_labels(shape)
    first, second = (
        Lanes(
            np.atleast_1d(data[..., i]), step.row, None if labels is None else np.atleast_1d(labels[..., i])
        )
        for i in range(2)
    )
    return first, second


@operation("tt.cat", labels=None)
def cat(machine: Machine, step: Step, left: Lanes, right: Lanes) -> Lanes:
    """Concatenate in reverse, because tl.cat promises no order."""
    shapes = [value.type.shape for value in step.op.operands]
    parts = [lanes.full(shape) for lanes, shape in zip((left, right), shapes, strict=True)]
    label = machine.memory.label("tl.cat does not keep the order: use tl.join", order=True)
    result = Lanes(np.concatenate(parts)[::-1], step.row)
    own = [
        np.zeros(shape, KIND) if lanes.labels is None else np.asarray(lanes.full_labels(shape))
        for lanes, shape in zip((left, right), shapes, strict=True)
    ]
    return marked(result, joined(np.concatenate(own)[::-1], np.full(step.shape, label, KIND)))


@operation("tt.gather", labels=None)
def gather(machine: Machine, step: Step, source: Lanes, indices: Lanes) -> Lanes:
    axis, shapes = step.op.integer("axis"), [value.type.shape for value in step.op.operands]
    data, at = source.full(shapes[0]), indices.full(shapes[1])
    size = shapes[0][axis]
    places = np.clip(at, 0, size - 1)
    result = Lanes(np.take_along_axis(data, places, axis), step.row)
    found, wild = indices.labels, (at < 0) | (at >= size)
    if source.labels is not None:
        found = joined(found, np.take_along_axis(source.full_labels(shapes[0]), places, axis))
    if wild.any():
        what = f"tl.gather with index {int(at[wild].flat[0])} of {size} is undefined"
        found = joined(found, where(wild, machine.memory.label(what)))
    return marked(result, found)


@operation("tt.histogram", labels=None)
def histogram(machine: Machine, step: Step, data: Lanes, mask: Lanes | None = None) -> Lanes:
    shape, bins = step.op.operands[0].type.shape, step.shape[0]
    values = data.full(shape)
    asked = np.ones(shape, bool) if mask is None else mask.full(shape)
    inside = (values >= 0) & (values < bins)
    counts = np.bincount(values[asked & inside].astype(np.int64), minlength=bins).astype(np.int32)
    # A value that is undefined may count in any bin, and so may one that has none.
    found = joined(data.labels, None if mask is None else mask.labels)
    worst = folded(None if found is None else where(asked, np.broadcast_to(found, shape)))
    if (asked & ~inside).any() and (worst is None or not worst.any()):
        worst = np.array(
            machine.memory.label("values outside tl.histogram's bins can be counted in any bin"), KIND
        )
    return marked(Lanes(counts, step.row), None if worst is None else np.full(bins, worst, KIND))


# ---- memory


def _lanes_on(
    machine: Machine, pointers: Lanes, mask: Lanes | None, shape: tuple[int, ...]
) -> np.ndarray | None:
    """A mask as an array; it and the addresses must be defined."""
    on = None if mask is None else mask.full(shape)
    if machine.memory.sources:
        machine.memory.use(None if mask is None else mask.labels, "a mask")
        machine.memory.use(pointers.labels, "an address", on)
    return on


@operation("tt.load", labels=None)
def load(machine: Machine, step: Step, pointers: Any, *rest: Lanes) -> Lanes:
    op = step.op
    if machine.memory.drops_unused_loads and not machine.is_used() and not op.flag("isVolatile"):
        return Lanes(garbage(step.shape or (1,), step.row), step.row)
    if isinstance(pointers, BlockPointer):
        at, inside = _tile(machine, pointers, op.integers("boundaryCheck"))
        padding = op.attributes.get("padding")
        other = None if padding is None else _padding(step, nan=padding.startswith("2"))
        return _load(machine, step, at, Lanes(inside, BOOL), other)
    _, masks, others = op.segments()
    mask = rest[0] if masks else None
    other = rest[len(masks)] if others else None
    return _load(machine, step, pointers, mask, other)


def _load(machine: Machine, step: Step, pointers: Lanes, mask: Lanes | None, other: Lanes | None) -> Lanes:
    shape, memory = step.shape or (1,), machine.memory
    on = _lanes_on(machine, pointers, mask, shape)
    before = len(memory.accesses)
    addresses = pointers.full(shape)
    fill = None if other is None else other.full(shape)
    filled = None if other is None else other.labels
    values, labels = memory.load(addresses, on, fill, step.row, filled, step.op.flag("isVolatile"))
    result = marked(Lanes(values, step.row), labels)
    machine.accessed(before, result)
    if step.op.flag("isVolatile"):
        memory.looked(addresses, values)
    return result


@operation("tt.store", labels=None)
def store(machine: Machine, step: Step, pointers: Any, value: Lanes, mask: Lanes | None = None) -> None:
    if isinstance(pointers, BlockPointer):
        at, inside = _tile(machine, pointers, step.op.integers("boundaryCheck"))
        _store(machine, step, at, value, Lanes(inside, BOOL), pointers.block)
        return
    _store(machine, step, pointers, value, mask, step.op.operands[0].type.shape)


def _store(
    machine: Machine,
    step: Step,
    pointers: Lanes,
    value: Lanes,
    mask: Lanes | None,
    shape: tuple[int, ...],
    ends: bool = True,
) -> None:
    shape, memory = shape or (1,), machine.memory
    on = _lanes_on(machine, pointers, mask, shape)
    before = len(memory.accesses)
    labels = value.full_labels(shape)
    memory.store(pointers.full(shape), value.full(shape), on, value.row.storage, labels, ends)
    is_whole = value.data.shape == shape and labels is value.labels
    machine.accessed(before, value if is_whole else Lanes(value.full(shape), value.row, labels))


@operation("tt.addptr", labels=of_all)
def addptr(machine: Machine, step: Step, pointers: Lanes, offsets: Lanes) -> Lanes:
    size = _bytes_of(step.op.results[0].type)
    return Lanes(machine.memory.addresses.moved(pointers.data, offsets.data, size), step.row)


def _padding(step: Step, nan: bool) -> Lanes:
    return Lanes(step.row.narrow(np.array([np.nan if nan else 0])), step.row)


def _tile(machine: Machine, pointer: BlockPointer, checked: Sequence[int]) -> tuple[Lanes, np.ndarray]:
    """What a block pointer points to, and which lanes are inside along the axes that are checked."""
    elements, inside = np.zeros((), np.int64), np.ones(pointer.block, bool)
    for axis, size in enumerate(pointer.block):
        along = pointer.offsets[axis].data.astype(np.int64) + np.arange(size)
        along = along.reshape(-1, *[1] * (len(pointer.block) - 1 - axis))
        elements = elements + along * pointer.strides[axis].data
        if axis in checked:
            inside &= (along >= 0) & (along < pointer.shape[axis].data)
    return _at(machine, pointer.base, elements, pointer.size), inside


def _at(machine: Machine, base: Lanes, elements: np.ndarray, size: int) -> Lanes:
    """Pointers to these elements, counted from where ``base`` points."""
    return Lanes(machine.memory.addresses.moved(base.data, elements, size), base.row)


def _needed(machine: Machine, *lanes: Lanes) -> None:
    """Addresses, and what they are made of, must be defined."""
    for each in lanes:
        machine.memory.use(each.labels, "an address")


@operation("tt.make_tensor_ptr", labels=None)
def make_tensor_ptr(machine: Machine, step: Step, base: Lanes, *numbers: Lanes) -> BlockPointer:
    _needed(machine, base, *numbers)
    block = step.op.results[0].type.pointee.shape
    count = len(block)
    shape, strides, offsets = (numbers[i * count : (i + 1) * count] for i in range(3))
    return BlockPointer(base, _bytes_of(step.op.operands[0].type), shape, strides, offsets, block)


@operation("tt.advance", labels=None)
def advance(machine: Machine, step: Step, pointer: BlockPointer, *by: Lanes) -> BlockPointer:
    _needed(machine, *by)
    moved = tuple(Lanes(at.data + step_.data, at.row) for at, step_ in zip(pointer.offsets, by, strict=True))
    return pointer._replace(offsets=moved)


@operation("tt.make_tensor_descriptor", labels=None)
def make_tensor_descriptor(machine: Machine, step: Step, base: Lanes, *numbers: Lanes) -> Descriptor:
    _needed(machine, base, *numbers)
    block, size = step.op.results[0].type.pointee.shape, _bytes_of(step.op.operands[0].type)
    shape, strides = numbers[: len(block)], numbers[len(block) :]
    found = Descriptor(base, size, shape, strides, block, step.op.attributes.get("padding", "1")[0] == "2")
    check_descriptor(machine, found)
    return found


def check_descriptor(machine: Machine, made: Descriptor) -> None:
    """End the run if a GPU would move other elements than a descriptor says."""
    address = int(made.base.data.item())
    buffer = machine.memory.buffer_at(made.base.data)
    of = f"of {machine.memory.pointer(buffer.name)}'s descriptor" if buffer else "of this descriptor"
    rule = f"a multiple of {DESCRIPTOR_BYTES} bytes"
    why = "a GPU doesn't check this, and moves other elements"
    instead = "or use tl.load and tl.store instead"
    text = cure = ""
    if beyond := address % DESCRIPTOR_BYTES:
        text = f"the first row {of} must begin at {rule}, but begins {beyond} bytes after one: {why}"
        cure = f"begin at another element, {instead}"
    for stride in (int(each.data.item()) for each in made.strides[:-1]):
        if not text and stride * made.size % DESCRIPTOR_BYTES:
            apart = f"{stride * made.size} bytes ({stride} elements) apart"
            text = f"rows {of} must be {rule} apart, but are {apart}: {why}"
            cure = f"pad the tensor's rows, {instead}"
    if text:
        raise Halt(Stop("error", text, machine.site(), cure))


def _within(machine: Machine, made: Descriptor, indices: Sequence[Lanes]) -> tuple[Lanes, Lanes]:
    """Where a descriptor's block lies, and which lanes are inside of its tensor.

    An index that is a block itself names rows one by one.
    """
    elements, inside = np.zeros((), np.int64), np.array(True)
    for axis, (index, size) in enumerate(zip(indices, made.block, strict=True)):
        machine.memory.use(index.labels, "an address")
        along = index.data.astype(np.int64) + (np.arange(size) if index.data.size == 1 else 0)
        along = along.reshape(-1, *[1] * (len(indices) - 1 - axis))
        elements = elements + along * made.strides[axis].data
        inside = inside & (along >= 0) & (along < made.shape[axis].data)
    return _at(machine, made.base, elements, made.size), Lanes(inside, BOOL)


@operation("tt.descriptor_load", labels=None)
def descriptor_load(machine: Machine, step: Step, made: Descriptor, *indices: Lanes) -> Lanes:
    """Load a block, which may have fewer axes than the descriptor's: axes of size 1 are left out."""
    pointers, mask = _within(machine, made, indices)
    shape = step.shape
    if pointers.data.size == math.prod(shape):
        pointers = Lanes(pointers.data.reshape(shape), pointers.row)
        mask = Lanes(np.broadcast_to(mask.data, made.block).reshape(shape), BOOL)
    return _load(machine, step, pointers, mask, _padding(step, made.nan))


@operation("tt.descriptor_store", labels=None)
def descriptor_store(machine: Machine, step: Step, made: Descriptor, value: Lanes, *indices: Lanes) -> None:
    pointers, mask = _within(machine, made, indices)
    shape = step.op.operands[1].type.shape
    pointers = Lanes(pointers.data.reshape(shape), pointers.row)
    mask = Lanes(np.broadcast_to(mask.data, made.block).reshape(shape), BOOL)
    _store(machine, step, pointers, value, mask, shape, ends=False)


@operation("tt.descriptor_gather", labels=None)
def descriptor_gather(machine: Machine, step: Step, made: Descriptor, rows: Lanes, column: Lanes) -> Lanes:
    pointers, mask = _within(machine, made, _rows_of(step, rows, column))
    return _load(machine, step, pointers, mask, _padding(step, made.nan))


@operation("tt.descriptor_scatter", labels=None)
def descriptor_scatter(
    machine: Machine, step: Step, made: Descriptor, rows: Lanes, column: Lanes, value: Lanes
) -> None:
    pointers, mask = _within(machine, made, _rows_of(step, rows, column))
    _store(machine, step, pointers, value, mask, step.op.operands[3].type.shape, ends=False)


def _rows_of(step: Step, rows: Lanes, column: Lanes) -> tuple[Lanes, Lanes]:
    shape = step.op.operands[1].type.shape
    return Lanes(rows.full(shape), rows.row, rows.full_labels(shape)), column


_RMW: dict[int, Callable[..., np.ndarray]] = {
    1: np.bitwise_and, 2: np.bitwise_or, 3: np.bitwise_xor, 4: np.add, 5: np.add, 6: np.maximum,
    7: np.minimum, 8: np.maximum, 9: np.minimum, 10: lambda old, new: new,
}  # fmt: skip
_UNSIGNED_RMW, _EXCHANGE = (8, 9), 10
_SEM = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
_SCOPE = {1: "gpu", 2: "cta", 3: "sys"}
_REDUCE_KINDS: dict[int, Callable[..., np.ndarray]] = {
    1: np.add, 2: np.minimum, 3: np.maximum, 6: np.bitwise_and, 7: np.bitwise_or, 8: np.bitwise_xor,
}  # fmt: skip


@operation("tt.atomic_rmw", labels=None)
def atomic_rmw(
    machine: Machine, step: Step, pointers: Lanes, value: Lanes, mask: Lanes | None = None
) -> Lanes:
    op = step.op
    kind = op.integer("atomic_rmw_op")
    orders = _SEM[op.integer("sem")], _SCOPE[op.integer("scope")]
    function = _RMW[kind]
    if kind in _UNSIGNED_RMW:
        function = _as_unsigned(function)
    return _atomic(machine, step, function, pointers, value, mask, kind != _EXCHANGE, orders, step.shape)


def _as_unsigned(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def compute(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return function(numerics.bits(old), numerics.bits(new)).view(old.dtype)

    return compute


@operation("tt.descriptor_reduce", labels=None)
def descriptor_reduce(machine: Machine, step: Step, made: Descriptor, value: Lanes, *indices: Lanes) -> None:
    pointers, mask = _within(machine, made, indices)
    function = _REDUCE_KINDS.get(step.op.integer("kind"))
    if function is None:
        raise Unsupported("this kind of descriptor reduction runs on a GPU only")
    shape = step.op.operands[1].type.shape
    _atomic(machine, step, function, pointers, value, mask, True, ("relaxed", "gpu"), shape)


def _atomic(
    machine: Machine, step: Step, function: Callable[..., np.ndarray], pointers: Lanes, value: Lanes,
    mask: Lanes | None, reads: bool, orders: tuple[str, str], shape: tuple[int, ...],
) -> Lanes:  # fmt: skip
    shape, memory, row = shape or (1,), machine.memory, value.row

    def in_code(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        code = row.code
        assert code is not None  # asked for where there is one
        return code.narrow(function(code.widen(old), code.widen(new)))

    on = _lanes_on(machine, pointers, mask, shape)
    memory.use(value.full_labels(shape), "an atomic", on)
    before = len(memory.accesses)
    given = value.full(shape)
    old, labels = memory.atomic(
        in_code if row.code and reads else function,
        pointers.full(shape),
        [given],
        on,
        row.storage,
        reads,
        *orders,
    )
    result = marked(Lanes(old, row), labels)
    machine.accessed(before, result, Lanes(given, row, value.full_labels(shape)))
    return result


@operation("tt.atomic_cas", labels=None)
def atomic_cas(machine: Machine, step: Step, pointers: Lanes, expected: Lanes, value: Lanes) -> Lanes:
    def function(old: np.ndarray, wanted: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.where(numerics.bits(old) == numerics.bits(wanted), new, old)

    shape, memory, op = step.shape or (1,), machine.memory, step.op
    _lanes_on(machine, pointers, None, shape)
    memory.use(joined(expected.labels, value.labels), "an atomic")
    operands = [expected.full(shape), value.full(shape)]
    orders = _SEM[op.integer("sem")], _SCOPE[op.integer("scope")]
    before = len(memory.accesses)
    old, labels = memory.atomic(
        function, pointers.full(shape), operands, None, value.row.storage, True, *orders
    )
    result = marked(Lanes(old, value.row), labels)
    machine.accessed(before, result, *(Lanes(each, value.row) for each in operands))
    return result


@operation("ttg.barrier", "gpu.barrier", "ttg.local_barrier", labels=None)
def barrier(machine: Machine, step: Step) -> None:
    machine.memory.ordering.barrier()


# ---- what the kernel prints and asserts, and what it assumes


@operation("llvm.intr.assume", labels=None)
def assume(machine: Machine, step: Step, condition: Lanes) -> None:
    machine.memory.use(condition.labels, "a condition")
    if not condition.data.all():
        text = f"false hint: what tl.assume(...) says is not true in program {machine.memory.program}"
        advice = "the compiler relies on it: on a GPU anything may happen then"
        raise Halt(Stop("false hint", text, machine.site(), advice))


# One kernel waits for another, or lets it begin: one alone has nobody to wait for.
@operation("tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents", labels=None)
def grid_dependency(machine: Machine, step: Step) -> None:
    pass


@operation("tt.assert", labels=None)
def device_assert(machine: Machine, step: Step, condition: Lanes, *_: Lanes) -> None:
    machine.memory.use(condition.labels, "a condition")
    if not condition.data.all():
        raise AssertionError(step.op.text("message") or "the condition of this tl.device_assert is False")


@operation("tt.print", labels=None)
def device_print(machine: Machine, step: Step, *values: Lanes) -> None:
    prefix = step.op.text("prefix")
    if prefix.startswith(MARK):
        machine.marked(step, prefix[len(MARK) :], values)
        return
    if machine.quiet:
        return
    signed = step.op.integers("isSigned")
    if not values:
        machine.print(f"{machine.memory.program} {prefix.strip()}\n")
    for place, (operand, value) in enumerate(zip(step.op.operands, values, strict=True)):
        words = [str(machine.memory.program), prefix.strip()]
        data = Lanes(value.full(operand.type.shape), value.row).wide
        if place < len(signed) and not signed[place] and data.dtype.kind == "i":
            data = data.view(f"u{data.itemsize}")
        words.append(shown(data, step.op.flag("hex")))
        machine.print(" ".join(word for word in words if word) + "\n")


MARK = "\x01"  # begins the prefix of a print that the course's own front end has put there


def shown(data: np.ndarray, hexadecimal: bool = False) -> str:
    """Return the values of a block, or the one of a scalar, as text."""
    one = (lambda n: f"{n:#04x}") if hexadecimal and data.dtype.kind in "iu" else str
    return (
        one(data.flat[0])
        if data.size == 1
        else np.array2string(data, 75, threshold=1000, formatter={"int": one} if hexadecimal else None)
    )


@operation("tt.extern_elementwise")
def extern_elementwise(machine: Machine, step: Step, *operands: Lanes) -> Lanes:
    data = np.broadcast_arrays(*(each.data for each in operands))
    result = libdevice.call(step.op.text("symbol"), list(data))
    storage = step.row.storage
    whole = storage.kind in "iu" and result.dtype.kind == "f"
    return Lanes(numerics.float_to_integer(result, storage) if whole else result.astype(storage), step.row)


@operation("tt.elementwise_inline_asm", labels=None)
def inline_asm(machine: Machine, step: Step, *operands: Lanes) -> Any:
    """Run inline assembly. Cache hints and the like do nothing, and their results are undefined.

    Raise `Unsupported` for an instruction that is not known here.
    """
    text = step.op.text("asm_string")
    written = [line.partition("//")[0].strip() for part in text.split("\n") for line in part.split(";")]
    instructions = [each for each in written if each]
    if instructions and all(each.startswith(_MEANINGLESS) for each in instructions):
        found = None
        if any(result.users for result in step.op.results):
            label = machine.memory.label("inline assembly sets its result to nothing")
            found = np.array([label], KIND)
        return Lanes(np.zeros(1, step.row.storage), step.row, found)
    try:
        return _assembled(step, text, operands)
    except assembly.NotKnown as reason:
        named = re.search(r"\btl\.extra\.\w+\.\w+", machine.site().source)
        what = f"{named[0]} is" if named else "this is"
        raise Unsupported(
            f"{what} inline assembly ({str(reason)[:60]}), which runs on a GPU only (stages compiles it). "
            "To check the kernel, compute the same with tl.*"
        ) from None


def _assembled(step: Step, text: str, operands: Sequence[Lanes]) -> tuple[Lanes, ...]:
    """The results of assembly that computes."""
    known = [*(lanes.row for lanes in operands), *step.rows]
    rows = [row for row in known if row is not None]
    if len(rows) < len(known) or any(row is BOOL or row is ADDRESS or row.is_float8 for row in rows):
        raise assembly.NotKnown("of truth values, pointers or float8")
    count, shape = step.op.integer("packed_element", 1), step.shape or (1,)
    given = [part for lanes in operands for part in assembly.packed(lanes.full(shape), count)]
    registers = assembly.run(text, step.op.text("constraints"), given)
    labels = joined(*(lanes.labels for lanes in operands))
    results = []
    for row in rows[len(operands) :]:
        used = assembly.registers_of(8 * row.storage.itemsize, count)
        if len(registers) < used:
            raise assembly.NotKnown("too few results")
        mine, registers = registers[:used], registers[used:]
        whole = [np.broadcast_to(each, (math.prod(shape) // count,)) for each in mine]
        results.append(Lanes(assembly.unpacked(whole, row.storage, count).reshape(shape), row, labels))
    return tuple(results)


# What it orders or hints at is of other kernels, or of caches and clocks, which a run has not.
_MEANINGLESS = ("griddepcontrol.", "nanosleep.", "prefetch", "discard.", "applypriority.")
