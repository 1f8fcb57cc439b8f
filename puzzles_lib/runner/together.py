"""Run many programs of a grid at once, as one more axis of every value.

The IR is copied with this axis in front of each type: a value of one number becomes a block of one number per
program. The table of operations then runs it as it runs any other IR. So a grid of thousands of small
programs takes a few steps for each operation instead of thousands.

A group of programs runs so only if the result is certain to be the same as one after the other: no program
may see what another one of the group does, all of them must take the same branches and the same number of
iterations, and nothing may be wrong. `Together` finds out while they run. If a group fails, what it has done
is undone, and its programs run one after the other, which also finds what is wrong. Kernels with atomics,
volatile loads, random numbers, descriptors or ``while`` loops always run so.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from puzzles_lib.runner import machine as machines
from puzzles_lib.runner.arithmetic import Arithmetic
from puzzles_lib.runner.buffer import NOBODY, Buffer
from puzzles_lib.runner.lanes import INT32, Labels, Lanes
from puzzles_lib.runner.memory import Halt, Memory, Part
from puzzles_lib.runner.operations import MARK, TABLE
from puzzles_lib.runner.records import Conflict, Program, Run
from puzzles_lib.runner.sides import Sides
from puzzles_lib.runner.step import NotOneValue, Step
from puzzles_lib.translator.ir import Block, Function, Module, Operation, Region, Type, Value

LANES = 1 << 16  # of all programs of a group together, in the largest block
MOST, FEWEST = 256, 4  # programs of a group
SHARE, SMALL = 4, 16  # if a group fails that isn't small, a quarter of its programs is tried
PATIENCE = 2  # small groups in a row that may fail before no more are tried

_ANY_SHAPE = ("arith.", "math.", "cf.", "tt.precise_")
_KNOWN = {
    "scf.for", "scf.if", "scf.yield", "tt.addptr", "tt.assert", "tt.bitcast", "tt.broadcast", "tt.call",
    "tt.clampf", "tt.dot", "tt.expand_dims", "tt.extern_elementwise", "tt.fp_to_fp", "tt.gather",
    "tt.get_num_programs", "tt.get_program_id", "tt.join", "tt.load", "tt.make_range", "tt.mulhiui",
    "tt.print", "tt.reduce", "tt.reduce.return", "tt.reshape", "tt.return", "tt.scan", "tt.scan.return",
    "tt.split", "tt.splat", "tt.store", "tt.trans", "tt.unsplat", "llvm.intr.assume", "ttg.barrier",
    "gpu.barrier", "ub.poison",
}  # fmt: skip
_WITH_AXIS = ("tt.expand_dims", "tt.gather", "tt.reduce", "tt.scan")
_COUNTERS = ("bytes_moved", "changes", "flops", "lane_bytes", "shared", "contended", "casts", "undefined")
_TABLES = ("changed", "early_reads", "holes", "loaded", "promises", "read", "repeated", "rewritten", "stored")


class OneByOne(Exception):
    """Programs can't run at once, or something is wrong."""


# ---- the IR, with one more axis


def fits(module: Module) -> bool:
    """Return whether the programs of a kernel may run at once, as far as its operations tell."""
    return not machines.is_changed(module) and all(map(_fits, module.operations()))


def _fits(op: Operation) -> bool:
    if op.name == "tt.reduce" and len((kind := op.operands[0].type).shape) > 2 and kind.element == "f32":
        return False  # the compiler may make it a dot
    if op.name == "tt.print":
        return op.text("prefix").startswith(MARK)
    if op.name == "tt.load" and op.flag("isVolatile"):
        return False
    if op.name == "tt.call" and "triton.language.random." in op.attributes["callee"]:
        return False  # an audit notes which program draws which number
    known = op.name in _KNOWN or op.name.startswith(_ANY_SHAPE)
    return known and not any(value.type.element.startswith(_WHOLE) for value in (*op.operands, *op.results))


_WHOLE = ("!tt.tensordesc", "!tt.ptr<tensor")


def group_of(module: Module) -> int:
    """Return how many programs of a kernel may run at once; 0 if they run one by one."""
    if not fits(module):
        return 0
    values = (value for op in module.operations() for value in op.results)
    largest = max((math.prod(value.type.shape) for value in values), default=1)
    most = min(MOST, LANES // largest)
    return 1 << most.bit_length() - 1 if most >= FEWEST else 0


def widened(module: Module, count: int) -> Module:
    """Return a copy of the IR in which each value has an axis for ``count`` programs in front."""
    return Module(
        {
            name: Function(name, _Copy(count).region(each.region), each.values, each.public, each.location)
            for name, each in module.functions.items()
        }
    )


class _Copy:
    """Copies the values and operations of a function."""

    def __init__(self, count: int):
        self.count = count
        self.values: dict[Value, Value] = {}

    def region(self, region: Region) -> Region:
        return Region([self.block(block) for block in region.blocks])

    def block(self, block: Block) -> Block:
        arguments = tuple(map(self.value, block.arguments))
        return Block(block.label, arguments, [self.operation(op) for op in block.operations])

    def value(self, value: Value) -> Value:
        if value not in self.values:
            kind = Type((self.count, *value.type.shape), value.type.element)
            self.values[value] = Value(kind, value.number, value.location)
        return self.values[value]

    def operation(self, op: Operation) -> Operation:
        operands, results = (tuple(map(self.value, each)) for each in (op.operands, op.results))
        regions = tuple(map(self.region, op.regions))
        made = Operation(op.name, operands, results, _attributes(op), regions, op.successors, op.location)
        for value in operands:
            value.users.append(made)
        for value in results:
            value.maker = made
        return made


def _attributes(op: Operation) -> Mapping[str, str]:
    if op.name in _WITH_AXIS:
        return {**op.attributes, "axis": f"{op.integer('axis') + 1} : i32"}
    if op.name == "tt.trans":
        order = ", ".join(str(axis + 1) for axis in op.integers("order"))
        return {**op.attributes, "order": f"array<i32: 0, {order}>"}
    return op.attributes


# ---- operations for which a single number is not a block of numbers


def _get_program_id(machine: Any, step: Step) -> Lanes:
    return Lanes(machine.memory.group[:, step.op.integer("axis")], INT32)


def _spread(data: np.ndarray, rank: int) -> np.ndarray:
    """Return one number per program as a block of this rank for each."""
    return data if data.ndim != 1 or data.size == 1 else data.reshape(-1, *[1] * (rank - 1))


def _splat(machine: Any, step: Step, x: Lanes) -> Lanes:
    rank = len(step.shape)
    labels = None if x.labels is None else _spread(x.labels, rank)
    return Lanes(_spread(x.data, rank), x.row, labels)


def _select(machine: Any, step: Step, condition: Lanes, left: Lanes, right: Lanes) -> Lanes:
    if len(step.op.operands[0].type.shape) < len(step.shape):
        condition = _splat(machine, step, condition)
    return TABLE["arith.select"](machine, step, condition, left, right)


def _expand_dims(machine: Any, step: Step, x: Lanes) -> Lanes:
    """What is the same for all programs is kept once."""
    shape = step.op.operands[0].type.shape
    if x.data.ndim == len(shape) or x.product is not None or (x.labels is not None and x.labels.ndim > 1):
        return TABLE["tt.expand_dims"](machine, step, x)
    axis = step.op.integer("axis") - 1
    labels = None if x.labels is None else np.expand_dims(np.broadcast_to(x.labels, shape[1:]), axis)
    return Lanes(np.expand_dims(np.broadcast_to(x.data, shape[1:]), axis), x.row, labels)


def _unsplat(machine: Any, step: Step, x: Lanes) -> Lanes:
    shape = step.op.operands[0].type.shape
    labels = x.full_labels(shape)
    return Lanes(x.full(shape).reshape(-1), step.row, None if labels is None else labels.reshape(-1))


def _reduce(machine: Any, step: Step, *inputs: Lanes) -> tuple[Lanes, ...]:
    return TABLE["tt.reduce"](machine, step, *(Lanes(each.data, each.row, each.labels) for each in inputs))


def _run_for(machine: Any, step: Step, *given: Lanes) -> Any:
    return TABLE["scf.for"](machine, step, *map(_same, given[:3]), *given[3:])


def _same(bound: Lanes) -> Lanes:
    """Return a number that is the same in all programs as one."""
    if bound.data.size == 1:
        return bound
    if (bound.data != bound.data.flat[0]).any():
        raise OneByOne
    return Lanes(bound.data.reshape(-1)[:1], bound.row, bound.labels)


_OTHERWISE: dict[str, Callable[..., Any]] = {
    "tt.get_program_id": _get_program_id, "tt.splat": _splat, "arith.select": _select,
    "tt.expand_dims": _expand_dims, "tt.unsplat": _unsplat, "tt.reduce": _reduce, "scf.for": _run_for,
}  # fmt: skip


# ---- running


class _Blind(Sides):
    """Sees nothing. Nobody who lets programs run at once asks for what comparisons do."""

    def compared(self, *_: Any) -> None: ...
    def limited(self, *_: Any) -> None: ...
    def kept(self, *_: Any) -> None: ...
    def divided(self, *_: Any) -> None: ...
    def made_of_bits(self, *_: Any) -> None: ...
    def ended(self, *_: Any) -> None: ...


class _Machine(machines.Machine):
    def condition(self, lanes: Lanes) -> bool:
        """Return the value of a condition that is the same in all programs."""
        self.memory.use(lanes.labels, "a condition")
        if lanes.data.all():
            return True
        if lanes.data.any():
            raise NotOneValue("programs take different branches")
        return False


class Together(Memory):
    """Memory for programs that run at once, or one after the other.

    group: the ids of the programs that run at once, a row for each; None if one runs alone. For each access,
    ``number`` then is an array, with the number of the program for each lane that is on.
    together: the number of programs that ran at once so far.
    """

    group: np.ndarray | None = None
    together = 0
    _first = 0  # the number of the group's first program

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._readers_of: dict[str, np.ndarray] = {}  # by tensor, the program that has read each element

    def begin(self, programs: Sequence[Program], first: int) -> None:
        """Let the next of the programs run at once. first: the number of the first of them."""
        self.enter(programs[0], first)
        self.group = np.array(programs, np.int32)
        self._first = first
        self._undone: list[tuple[Buffer, np.ndarray, list[tuple[str, np.ndarray]]]] = []
        self._counters = {name: getattr(self, name) for name in _COUNTERS}
        self._tables = {name: getattr(self, name).copy() for name in _TABLES}
        self._suspect, self._notes = self.ordering.suspect, _copied(self.arithmetic)
        self._untracked: set[str] = set()

    def end(self) -> None:
        """End what runs at once."""
        self.group, self._undone = None, []

    def undo(self) -> None:
        """Undo all that the group has done."""
        for buffer, index, before in reversed(self._undone):
            for name, values in before:
                notes = getattr(buffer, name)
                if notes is not None:
                    notes[index] = values
        for name, value in (*self._counters.items(), *self._tables.items()):
            setattr(self, name, value)
        self.ordering.suspect, self.arithmetic = self._suspect, self._notes
        self.end()

    # ---- what must not happen

    def use(self, labels: Labels, what: str, on: np.ndarray | None = None) -> None:
        if self.group is None:
            return super().use(labels, what, on)
        if labels is not None and (labels if on is None else np.where(on, labels, 0)).any():
            raise OneByOne
        return None

    def _conflict(self, *given: Any) -> Conflict:
        if self.group is not None:
            raise OneByOne
        return super()._conflict(*given)

    def _undefined_in(self, *given: Any, **named: Any) -> Labels:
        found = super()._undefined_in(*given, **named)
        if found is not None and self.group is not None:
            raise OneByOne
        return found

    def _refuse_access(self, what: str, why: str, colon: bool = False) -> None:
        if self.group is not None:
            raise OneByOne
        super()._refuse_access(what, why, colon)

    def label(self, what: str, kind: str = "operation", order: bool = False) -> int:
        if order and self.group is not None:
            raise OneByOne
        return super().label(what, kind, order)

    def promised(self, hint: str, values: np.ndarray, sizes: Sequence[int], step: int) -> None:
        for each in (values,) if self.group is None else values:
            super().promised(hint, each, sizes, step)
        if self.group is not None and self.promises:
            raise OneByOne

    # ---- accesses

    def _locate(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray | None, dtype: np.dtype
    ) -> list[Part]:
        parts = super()._locate(kind, pointers, mask, dtype)
        if self.group is not None:
            if len(parts) != 1 or dtype.itemsize != parts[0].buffer.unit:
                raise OneByOne
            numbers = np.arange(self._first, self._first + len(self.group), dtype=np.int32)
            number = np.broadcast_to(_spread(numbers, pointers.ndim), pointers.shape)
            self.number: Any = number.ravel() if parts[0].on is None else number[parts[0].on]
        return parts

    def _count_load(self, part: Part, shape: tuple[int, ...], dtype: np.dtype, volatile: bool) -> None:
        if self.group is None:
            return super()._count_load(part, shape, dtype, volatile)
        buffer, index = part.buffer, part.index.ravel()
        self._count(buffer, index, dtype)
        self.bytes_moved += _distinct(index, self.number) * dtype.itemsize
        if not buffer.is_output:
            return None
        self.read.add(buffer.name)
        if (self._others(buffer, index, dtype) != NOBODY).any():
            raise OneByOne
        self._note_readers(buffer, index)
        return self._touch("load", part, shape, dtype)

    def _note_readers(self, buffer: Buffer, index: np.ndarray) -> None:
        """Keep who has read elements that another program may store, if the kernel stores to this tensor."""
        if buffer.name not in self.stored:
            self._untracked.add(buffer.name)
            return
        reader = self._readers_of.get(buffer.name)
        if reader is None:
            reader = self._readers_of[buffer.name] = np.full_like(buffer.storer, NOBODY)
        met = self._read_by_another(reader, index)
        reader[index] = self.number
        met |= reader[index] != self.number
        reader[index[met]] = self._several

    @property
    def _several(self) -> int:
        """The mark of an element that several programs of this group have read."""
        return NOBODY - 1 - self._first

    def _read_by_another(self, reader: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return where another program of the group has read the elements."""
        found = reader[index]
        return ((found >= self._first) & (found != self.number)) | (found == self._several)

    def _scatter(
        self, buffer: Buffer, index: np.ndarray, new: np.ndarray, dtype: np.dtype, labels: Labels
    ) -> None:
        if self.group is None:
            return super()._scatter(buffer, index, new, dtype, labels)
        number, first = self.number, self._first
        storer = buffer.storer[index]
        own = storer == number
        if (labels is not None and labels.any()) or ((storer >= first) & ~own).any():
            raise OneByOne
        if own.any() and buffer.name not in self.rewritten:
            raise OneByOne
        if buffer.name in self._untracked:
            self.stored.add(buffer.name)  # its readers are known next time
            self._tables["stored"].add(buffer.name)
            raise OneByOne
        reader = self._readers_of.get(buffer.name)
        if reader is not None and self._read_by_another(reader, index).any():
            raise OneByOne
        before = [("storer", storer), ("written", buffer.written[index])]
        if buffer.labels is not None:
            before.append(("labels", buffer.labels[index]))
        self._undone.append((buffer, index, [*before, ("data", buffer.data[index])]))
        super()._scatter(buffer, index, new, dtype, labels)
        if self.changed or (buffer.storer[index] != number).any():
            raise OneByOne
        return None


def _copied(notes: Arithmetic) -> Arithmetic:
    made = copy.copy(notes)
    for each in fields(notes):
        if isinstance(value := getattr(notes, each.name), dict):
            setattr(made, each.name, value.copy())
    return made


def _distinct(index: np.ndarray, number: np.ndarray) -> int:
    """Return the sum over all programs of how many different elements each of them asks for."""
    if ((index[1:] > index[:-1]) | (number[1:] != number[:-1])).all():
        return index.size
    begins = np.flatnonzero(np.diff(number, prepend=number[0] - 1))
    lowest = np.minimum.reduceat(index, begins)
    which = np.repeat(np.arange(begins.size), np.diff(begins, append=index.size))
    away = index - lowest[which]
    span = int(away.max()) + 1
    if span * begins.size > 8 * index.size:
        return len(np.unique(which * span + away))
    seen = np.zeros(span * begins.size, bool)
    seen[which * span + away] = True
    return int(np.count_nonzero(seen))


class Groups:
    """Runs the programs of a launch, many at once where that works."""

    def __init__(self, machine: machines.Machine, memory: Together, calls_in: Mapping[str, Any]):
        self.machine, self.memory, self.calls_in = machine, memory, calls_in
        self.wide: dict[int, machines.Machine] = {}
        self.failed = 0

    def run(self, programs: Sequence[Program], given: list[Any]) -> None:
        """Run all of them. The first one runs alone, to learn which tensors the kernel stores to."""
        count, at = len(programs), 0
        largest = most = group_of(self.machine.module) if count > FEWEST else 0
        while at < count:
            size = min(most, count - at) if at else 1
            if size >= FEWEST and self.failed < PATIENCE:
                group = [programs[number] for number in range(at, at + size)]
                if self._at_once(group, at, given):
                    at, most = at + size, min(largest, SHARE * most)
                    continue
                most = max(FEWEST, size // SHARE)
                if size > SMALL:
                    continue
                self.failed += 1
            for number in range(at, at + max(1, size)):
                self.memory.enter(programs[number], number)
                self.machine.launch(given)
                at = number + 1

    def _at_once(self, group: Sequence[Program], first: int, given: list[Any]) -> bool:
        memory, machine = self.memory, self._machine(len(group))
        memory.begin(group, first)
        memory.site, memory.is_used = machine.site, machine.is_used
        sides, memory.sides = memory.sides, _Blind()
        try:
            machine.launch(given)
        except (Halt, Exception):  # whatever it is, it happens again, if it does
            memory.undo()
            return False
        finally:
            memory.sides = sides
            memory.site, memory.is_used = self.machine.site, self.machine.is_used
        memory.end()
        memory.program, self.failed = group[-1], 0
        memory.together += len(group)
        return True

    def _machine(self, count: int) -> machines.Machine:
        if count not in self.wide:
            module = widened(self.machine.module, count)
            made = _Machine(module, self.memory, self.machine.grid, True, self.calls_in)
            made.ready = machines.codes_of(module, lambda step: _OTHERWISE.get(step.op.name, step.run))
            self.wide[count] = made
        return self.wide[count]


# ---- comparing both ways

_ASIDE = {"accesses", "dots", "launched", "seconds", "sides", "together"}


def differences(alone: Run, at_once: Run) -> list[str]:
    """Return what two runs of the same programs have noted differently."""
    found = []
    for each in fields(Run):
        one, other = getattr(alone, each.name), getattr(at_once, each.name)
        if each.name == "outputs":
            same = all(_are_same(tensor, other[name]) for name, tensor in one.items())
        elif each.name in ("written", "writers"):
            same = all(np.array_equal(notes, other[name]) for name, notes in one.items())
        else:
            same = each.name in _ASIDE or one == other
        if not same:
            found.append(f"{each.name}: {one} one by one, {other} at once")
    return found


def _are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether tensors are equal, up to the last bits of a function such as `exp`."""
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    return torch.allclose(one.double(), other.double(), rtol=1e-6, atol=0, equal_nan=True)
