"""Run a kernel's IR with every float in float64, so that nothing is rounded to float32.

`widened` returns a copy of the module in which float16, bfloat16 and float32 are float64: in blocks, in
memory and in constants. Casts between floats then change nothing, a store to a float output keeps all
53 bits, and no dot uses TF32. The runner runs this copy like any other module.

`Roundings` can disturb such a run: it moves the result of each operation by about one unit roundoff, at
random. The movement of the kernel's results shows what float32's rounding of the intermediates may cost.
(This is Monte Carlo arithmetic: D. S. Parker, UCLA CSD-970002, 1997.) Equal values move by equal amounts,
because they are rounded equally: ``s * w - s * o`` is 0 in every run if w equals o. Discrete values that come
from floats (comparisons, integers, the index of a maximum) stay as they are in the undisturbed run. So all
runs take the same branches.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from puzzles_lib.runner.lanes import Lanes, row_of
from puzzles_lib.runner.machine import made_ready
from puzzles_lib.runner.operations import constant_of
from puzzles_lib.runner.step import Step
from puzzles_lib.translator.ir import Block, Function, Location, Module, Operation, Region, Type, Value

ROUNDED = "rounded"  # an attribute of operations whose result was narrower than float64

_NARROW = re.compile(r"(?:(?<=x)|(?<!\w))(?:bf16|f16|f32)(?!\w)")
_REFUSED = ("tt.dot_scaled", "tt.elementwise_inline_asm")
_OF_BITS = ("arith.bitcast", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int")
_STORES = ("tt.store", "tt.descriptor_store", "tt.atomic_rmw", "tt.descriptor_reduce")
_MOVES = (
    "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.cat",
    "tt.unsplat",
)  # fmt: skip
MAGIC = 2.0**22
_EXACT_BITS = 12  # a constant that needs no more was hardly rounded


class NotExact(Exception):
    """The kernel cannot run in float64, because it depends on the bits of its floats."""


def widened(module: Module, instead: Mapping[float, float] | None = None) -> Module:
    """Return a copy of the module with all floats in float64.

    instead: numbers that replace constants, by the constant's value.

    Raises NotExact for bitcasts of floats or of pointers to them, float8, scaled dots and inline assembly.
    """
    functions = {}
    for name, function in module.functions.items():
        region = _Copy(instead or {}).region(function.region)
        functions[name] = Function(name, region, function.values, function.public, function.location)
    return Module(functions)


def with_constant(module: Module, constant: float, other: float) -> Module:
    """Return a copy of the module, in its own arithmetic, with another number for a float32 constant."""
    functions = {}
    for name, function in module.functions.items():
        region = _Other({constant: other}).region(function.region)
        functions[name] = Function(name, region, function.values, function.public, function.location)
    return Module(functions)


def rounded_constants(module: Module) -> list[float]:
    """Return the constants that may stand for a number that float32 lacks, such as 0.1.

    A constant with at most 12 significant bits, such as 30 or 0.5, is taken as it is.
    """
    found: dict[float, None] = {}
    for value, _ in float_constants(module):
        fraction = np.frexp(value)[0] * 2.0**_EXACT_BITS
        if fraction != np.round(fraction):
            found[value] = None
    return list(found)


def float_constants(module: Module) -> Iterator[tuple[float, Location]]:
    """Yield the finite constants of a kernel that are floats, and their places in the source."""
    for function in module.functions.values():
        for op in _operations(function.region):
            row = row_of(op.results[0].type.element) if op.name == "arith.constant" else None
            if row is not None and row.is_float:
                value = float(row.widen(constant_of(op.attributes["value"], row)).item())
                if np.isfinite(value):
                    yield value, op.location


def rounds_on_the_way(module: Module, for_dots: bool) -> bool:
    """Return whether a kernel rounds before it stores a result, so that float64 would compute something else.

    It does if it rounds to integers, by a cast or by adding a large number, or to float16 or bfloat16.
    for_dots: whether rounded factors of `tl.dot` don't count, because the spec rounds none.
    """
    return any(
        _rounds(op, for_dots) for function in module.functions.values() for op in _operations(function.region)
    )


def _rounds(op: Operation, for_dots: bool) -> bool:
    if op.name in ("arith.fptosi", "arith.fptoui", *_WHOLE):
        return True
    if op.name == "tt.extern_elementwise":
        return bool(_WHOLE_EXTERN.match(op.text("symbol")))
    if op.name in ("arith.addf", "arith.subf"):
        return any(map(_is_magic, op.operands))
    narrow = any(value.type.element in ("bf16", "f16") for value in op.results)
    if op.name in ("tt.load", "tt.descriptor_load", "arith.constant") or not narrow:
        return False
    if op.name == "arith.truncf" and _constant(op.operands[0]) is not None:
        return False
    return any(_is_used(value, for_dots) for value in op.results)


def _is_used(value: Value, for_dots: bool) -> bool:
    """Return whether anything is computed from a value, other than by moving it to the place of a store."""
    for user in value.users:
        if user.name in _STORES or (user.name == "tt.dot" and for_dots):
            continue
        if user.name not in _MOVES or any(_is_used(result, for_dots) for result in user.results):
            return True
    return False


def _is_magic(value: Value) -> bool:
    """Return whether a number is so large that a float32 added to it is rounded to an integer."""
    constant = _constant(value)
    return constant is not None and MAGIC <= abs(constant) < float("inf")


def _constant(value: Value) -> float | None:
    """Return the float that all elements of a value are, if it is a constant; None if it isn't."""
    op = value.maker
    while op is not None and op.name in _MOVES:
        op = op.operands[0].maker
    if op is None or op.name != "arith.constant" or "dense<[" in op.attributes["value"]:
        return None
    row = row_of(op.results[0].type.element)
    return float(row.widen(constant_of(op.attributes["value"], row)).item()) if row.is_float else None


class _Copy:
    """Copies a function's operations; values keep their numbers."""

    def __init__(self, instead: Mapping[float, float]):
        self.instead = instead
        self.values: dict[Value, Value] = {}

    def region(self, region: Region) -> Region:
        blocks = [Block(b.label, tuple(map(self.value, b.arguments))) for b in region.blocks]
        for block, new in zip(region.blocks, blocks, strict=True):
            new.operations = [self.operation(op) for op in block.operations]
        return Region(blocks)

    def value(self, value: Value) -> Value:
        if value not in self.values:
            self.values[value] = Value(self.kind(value.type), value.number, value.location)
        return self.values[value]

    def kind(self, kind: Type) -> Type:
        return _wide(kind)

    def operation(self, op: Operation) -> Operation:
        attributes = self.attributes(op)
        made = Operation(
            op.name, tuple(map(self.value, op.operands)), tuple(map(self.value, op.results)), attributes,
            tuple(map(self.region, op.regions)), op.successors, op.location,
        )  # fmt: skip
        for operand in made.operands:
            operand.users.append(made)
        for result in made.results:
            result.maker = made
        return made

    def attributes(self, op: Operation) -> dict[str, str]:
        _expect_no_bits(op)
        attributes = dict(op.attributes)
        if op.name == "arith.constant":
            attributes["value"] = self.constant(op)
        if any(_NARROW.search(each.type.element) for each in op.results):
            attributes[ROUNDED] = "true"
        return attributes

    def constant(self, op: Operation) -> str:
        text, row = op.attributes["value"], row_of(op.results[0].type.element)
        if not row.is_float:
            return text
        value = float(row.widen(constant_of(text, row)).item())
        bits = np.array([self.instead.get(value, value)], np.float64).view(np.uint64)[0]
        return f"{int(bits):#018x} : f64"


class _Other(_Copy):
    """Copies a function's operations as they are, except for a constant."""

    def kind(self, kind: Type) -> Type:
        return kind

    def attributes(self, op: Operation) -> dict[str, str]:
        attributes = dict(op.attributes)
        if op.name == "arith.constant" and op.results[0].type.element == "f32":
            attributes["value"] = self.constant(op)
        return attributes

    def constant(self, op: Operation) -> str:
        text = op.attributes["value"]
        if "dense<[" in text:
            return text
        row = row_of("f32")
        value = float(row.widen(constant_of(text, row)).item())
        bits = np.array([self.instead.get(value, value)], np.float32).view(np.uint32)[0]
        return f"{int(bits):#010x} : f32"


def _wide(kind: Type) -> Type:
    if re.search(r"f8E|f4E|f6E", kind.element):
        raise NotExact("float8")
    return Type(kind.shape, _NARROW.sub("f64", kind.element))


def _expect_no_bits(op: Operation) -> None:
    if op.name in _REFUSED:
        raise NotExact(op.name)
    kinds = [value.type for value in (*op.operands, *op.results)]
    if op.name in _OF_BITS and kinds[0] != kinds[-1] and any(_wide(kind) != kind for kind in kinds):
        raise NotExact("a bitcast of floats")
    if op.name == "tt.extern_elementwise" and re.search(r"_as_|nextafter", op.text("symbol")):
        raise NotExact(op.text("symbol"))


def _operations(region: Region) -> Iterator[Operation]:
    for block in region.blocks:
        for op in block.operations:
            yield op
            for inner in op.regions:
                yield from _operations(inner)


# ---- disturbing a run

_ROUNDING = (
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.remf", "tt.precise_divf", "math.exp",
    "math.exp2", "math.log", "math.log2", "math.sin", "math.cos", "math.sqrt", "tt.precise_sqrt",
    "math.rsqrt", "math.erf", "math.fma", "tt.dot", "tt.extern_elementwise",
)  # fmt: skip
_SUMS = ("_sum_combine", "_prod_combine")  # which the runner computes by no operations of their own
_WHOLE = ("math.floor", "math.ceil")
_WHOLE_EXTERN = re.compile(r"__nv_(?:floor|ceil|trunc|round|rint|nearbyint)f?$")


Decisions = list[np.ndarray]
"""The discrete values that one run derived from floats, in order."""


class Roundings:
    """Disturbs the run of a module, and notes the run's decisions.

    before: the decisions to repeat; None for a run that makes its own. roundoff: the size of the disturbance,
        0 for none. draw: the seed.
    """

    def __init__(self, before: Decisions | None = None, roundoff: float = 0.0, draw: int = 0):
        self.before, self.roundoff = before, roundoff
        self.decisions: Decisions = []
        self.seed = np.random.default_rng(draw).integers(1 << 64, dtype=np.uint64)

    def take(self, module: Module) -> None:
        """Disturb each run of this module, which must not have run before."""
        made_ready(module, self._changed)

    def _changed(self, step: Step) -> Callable[..., Any]:
        name, run = step.op.name, step.run
        floats = [value.type.element == "f64" for value in step.op.operands]
        discrete = [value.type.element != "f64" for value in step.op.results]
        extern = step.op.text("symbol") if name == "tt.extern_elementwise" else ""
        if name in _WHOLE or _WHOLE_EXTERN.match(extern):
            return self._decided(run, [True])
        elementwise = name in ("tt.reduce", "tt.scan", "tt.map_elementwise") or not step.op.regions
        if any(floats) and any(discrete) and elementwise and name != "tt.call":
            return self._decided(run, discrete)
        if not self.roundoff or not step.op.flag(ROUNDED):
            return run
        if name == "tt.atomic_rmw" and floats[1]:
            return self._moved(run, [1], False)
        if name in ("tt.reduce", "tt.scan") and step.combined in _SUMS and all(floats):
            return self._moved(run, range(len(floats)), True)
        if name == "tt.dot":
            return self._moved(run, [0, 1], True)
        return self._moved(run, (), True) if name in _ROUNDING else run

    def _decided(self, run: Callable[..., Any], discrete: list[bool]) -> Callable[..., Any]:
        def decided(machine: Any, step: Step, *operands: Any) -> Any:
            made = run(machine, step, *operands)
            for lanes, kept in zip(made if type(made) is tuple else (made,), discrete, strict=True):
                if kept and self.before is not None:
                    lanes.data = self.before[len(self.decisions)]
                if kept:
                    self.decisions.append(lanes.data)
            return made

        return decided

    def _moved(self, run: Callable[..., Any], places: Any, result: bool) -> Callable[..., Any]:
        def moved(machine: Any, step: Step, *operands: Any) -> Any:
            given = [self._by_roundoff(x) if i in places else x for i, x in enumerate(operands)]
            made = run(machine, step, *given)
            if not result:
                return made
            if type(made) is tuple:
                return tuple(map(self._by_roundoff, made))
            return self._by_roundoff(made)

        return moved

    def _by_roundoff(self, lanes: Lanes) -> Lanes:
        return Lanes(lanes.data * (1 + self.roundoff * self._steps(lanes.data)), lanes.row, lanes.labels)

    def _steps(self, values: np.ndarray) -> np.ndarray:
        """Return random numbers with mean 0 and variance 1, equal for values of equal size."""
        bits = np.abs(np.ascontiguousarray(values)).view(np.uint64)  # mixed as in SplitMix64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(factor) + self.seed
        return 12**0.5 * ((bits >> np.uint64(11)) * 2.0**-53 - 0.5)
