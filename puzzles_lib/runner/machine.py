"""Run Triton IR: one program after another, one operation after another.

`Machine` keeps the current place, the values and the control flow. The operations are in `operations` and
`reductions`, and memory in `memory`.
"""

import json
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import triton

from puzzles_lib.runner import loops, skipping
from puzzles_lib.runner.draws import Draws
from puzzles_lib.runner.lanes import Lanes, joined, row_of
from puzzles_lib.runner.memory import Halt, Memory
from puzzles_lib.runner.operations import TABLE, Unsupported, operation
from puzzles_lib.runner.records import Product, Program
from puzzles_lib.runner.reductions import combined_by
from puzzles_lib.runner.step import NotOneValue, Step
from puzzles_lib.source import Call, Site
from puzzles_lib.translator.ir import Block, Function, Location, Module, Operation, Region

_NO_CALLS = ("arith.", "math.", "scf.", "cf.", "tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims")
PRINT_LIMIT = 100  # lines that a run may print
PRINT_WIDTH = 2000  # characters of each
_TRITON = str(Path(triton.__file__).parent)

_READY: "WeakKeyDictionary[Module, dict[str, Code]]" = WeakKeyDictionary()  # functions that have run
_CHANGED: "WeakSet[Module]" = WeakSet()  # those that run with other functions for their steps
Given = Sequence[Any]  # lanes, descriptors, block pointers


class Code:
    """A region that is ready to run: the steps, the last operation and the arguments of each block."""

    def __init__(self, region: Region):
        self.blocks = {block.label: _Ready(block) for block in region.blocks}
        self.entry = next(iter(self.blocks.values()))


class _Ready:
    def __init__(self, block: Block):
        *body, last = block.operations
        self.arguments = tuple(value.number for value in block.arguments)
        self.steps = [_step(op) for op in body]
        self.last = _step(last)


def _step(op: Operation) -> Step:
    """Return an operation that is ready to run."""
    step = Step(op, TABLE.get(op.name, _unknown))
    step.regions = tuple(Code(region) for region in op.regions)
    if op.name in ("tt.reduce", "tt.scan"):
        step.combined = combined_by(op.regions[0])
    return step


def made_ready(module: Module, changed: Callable[[Step], Callable[..., Any]]) -> None:
    """Prepare a module to run with other functions for its steps. It must not have run before."""
    _READY[module] = codes_of(module, changed)
    _CHANGED.add(module)


def is_changed(module: Module) -> bool:
    """Return whether a module runs with other functions for its steps (`made_ready`)."""
    return module in _CHANGED


def codes_of(module: Module, changed: Callable[[Step], Callable[..., Any]]) -> dict[str, Code]:
    """Return the functions of a module, ready to run with other functions for their steps."""
    codes = {name: Code(each.region) for name, each in module.functions.items()}
    todo = list(codes.values())
    while todo:
        for block in todo.pop().blocks.values():
            for step in (*block.steps, block.last):
                step.run = changed(step)
                todo += step.regions
    return codes


class Machine:
    """The state of one run: the current operation, and the values of the running function.

    said: texts of ``tl.static_print`` that earlier runs have shown. quiet: show nothing at all.
    """

    def __init__(
        self,
        module: Module,
        memory: Memory,
        grid: Program,
        quiet: bool,
        calls_in: Mapping[str, Sequence[Call]],
    ):
        self.module, self.memory, self.grid, self.quiet = module, memory, grid, quiet
        self.calls_in = calls_in
        self.ready = _READY.setdefault(module, {})
        self.places: dict[Step, Site] = {}
        self.used: dict[Operation, bool] = {}
        self.values: list[Any] = []
        self.calls: list[Step] = []
        self.draws: Draws | None = None
        self.here: Step | None = None
        self.printed = 0
        self.iterations = 0  # of the loop that runs, if that is known

    # ---- where it is

    def site(self) -> Site:
        """Return the learner's line that runs: within Triton's own functions, the line that called them."""
        for step in (self.here, *reversed(self.calls)):
            if step is not None and (found := self.site_of(step)).line:
                return found
        return Site(0, "")

    def site_of(self, step: Any) -> Site:
        """Return the learner's line of a step; line 0 for a step in Triton's own code."""
        found = self.places.get(step)
        if found is None:
            found = self.places[step] = _site(self._begun(step.op))
        return found

    def column(self) -> int:
        """Return where on its line the running product is computed; -1 for others, and in Triton's code."""
        here = self.here
        is_product = here is not None and here.op.name == "arith.muli" and self.site_of(here).line
        return here.op.location.column if here is not None and is_product else -1

    def _begun(self, op: Operation) -> Location:
        """Return where an operation begins in the source, also if it is a call over several lines.

        Triton gives a call the place of its last argument.
        """
        at = op.location
        if op.name.startswith(_NO_CALLS) or at.file not in self.calls_in:
            return at
        place = at.line, at.column
        inner = (call for call in self.calls_in[at.file] if call.first <= place < call.last)
        call = min(inner, key=lambda call: (call.last[0] - call.first[0], -call.first[0]), default=None)
        return at if call is None else Location(at.file, call.first[0], call.first[1], at.name)

    def is_used(self) -> bool:
        """Return whether any operation uses the result of the running one.

        An operation that only makes values that nobody uses doesn't count: the compiler leaves it out.
        """
        here = self.here
        if here is None or here.op in self.used:
            return here is None or self.used[here.op]
        self.used[here.op] = _is_used(here.op)
        return self.used[here.op]

    # ---- running

    def launch(self, given: Given) -> None:
        """Run the kernel for the current program, which `Memory.enter` has set."""
        self.calls.clear()
        self.call(self.module.kernel, given)

    def call(self, function: Function, given: Given) -> Sequence[Any]:
        code = self.ready.get(function.name)
        if code is None:
            code = self.ready[function.name] = Code(function.region)
        before = self.values
        self.values = [None] * function.values
        recorder = self.memory.recorder
        depth = recorder.depth if recorder else 0
        try:
            made = self.body(code, given)
            if recorder:
                recorder.leave(depth)
            return made
        finally:
            self.values = before

    def body(self, code: Code, given: Given) -> list[Any]:
        """Run a region, and return the operands of its last operation."""
        values, block = self.values, code.entry
        while True:
            for number, value in zip(block.arguments, given, strict=True):
                values[number] = value
            for step in block.steps:
                self.here = step
                made = step.run(self, step, *[values[i] for i in step.ins])
                outs = step.outs
                if len(outs) == 1:
                    values[outs[0]] = made[0] if type(made) is tuple else made
                elif outs:
                    for number, value in zip(outs, made, strict=True):
                        values[number] = value
            last = self.here = block.last
            given = [values[i] for i in last.ins]
            if not last.op.successors:
                return given
            block, given = self._next(code, last, given)

    def _next(self, code: Code, last: Step, given: list[Any]) -> tuple[_Ready, list[Any]]:
        """Return the block that comes next, and its arguments."""
        if last.op.name == "cf.br":
            return code.blocks[last.op.successors[0]], given
        if last.op.name != "cf.cond_br":
            raise Unsupported(f"{last.op.name}: the course's runner has no such operation")
        _, so, otherwise = last.op.integers("operandSegmentSizes")
        if self.condition(given[0]):
            return code.blocks[last.op.successors[0]], given[1 : 1 + so]
        return code.blocks[last.op.successors[1]], given[1 + so : 1 + so + otherwise]

    def condition(self, lanes: Lanes) -> bool:
        """Return the value of a condition. It must be one value, and defined."""
        if lanes.data.size > 1:
            raise NotOneValue(
                f"a condition must be one value, but this is a block of shape {lanes.data.shape}"
            )
        self.memory.use(lanes.labels, "a condition")
        return bool(lanes.data.item())

    # ---- what operations tell

    def dotted(
        self, step: Step, depth: int, *blocks: Lanes, factors: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        """Note a dot that was computed. blocks: its operands, the block that is added, and the result.

        depth: products per element of the result. factors: what is multiplied, if the operands are codes of
            it.
        """
        if self.memory.replays:
            return
        self.memory.flops += 2 * step.size * depth
        if self.memory.record:
            left, right = factors or (
                Lanes(block.full(value.type.shape), block.row).wide
                for block, value in zip(blocks, step.op.operands[:2], strict=False)
            )
            place = len(self.memory.accesses)
            self.memory.dots.append(Product(self.memory.program, left, right, self.site(), place))
        if self.memory.recorder:
            shapes = [value.type.shape for value in (*step.op.operands[:3], *step.op.results)]
            self.memory.recorder.dotted(*map(Lanes.spread, blocks, shapes))

    def accessed(self, before: int, values: Lanes, *operands: Lanes) -> None:
        """Tell the recorder of the accesses since number ``before``, and of the values that they moved."""
        if self.memory.recorder:
            self.memory.recorder.accessed(self.memory.accesses[before:], values, *operands)

    def marked(self, step: Step, text: str, values: Given) -> None:
        """Handle a mark of the course's own front end: see `puzzles_lib.translator.marks`."""
        word, _, rest = text.partition(" ")
        if step.kept is None:
            step.kept = json.loads(rest)
        if word == "promise":
            if not isinstance(values[0], Lanes):  # a hint on a block pointer, which the compiler ignores
                return
            operand = step.op.operands[0].type
            size = row_of(operand.pointee.element).storage.itemsize if operand.is_pointer else 1
            data = values[0].full(operand.shape)
            self.memory.promised(step.kept["hint"], data, step.kept["sizes"], size)
        elif self.memory.recorder:
            shapes = [operand.type.shape for operand in step.op.operands]
            self.memory.recorder.marked(word, step.kept, values, shapes, self.iterations)

    def print(self, text: str) -> None:
        """Show text, unless the run is quiet or has printed enough."""
        for line in text.splitlines(keepends=True) if not (self.quiet or self.memory.replays) else ():
            self.printed += 1
            if self.printed > PRINT_LIMIT:
                self.quiet = True
                line = f"... (only the first {PRINT_LIMIT} lines are shown)\n"
            elif len(line) > PRINT_WIDTH:
                line = f"{line[:PRINT_WIDTH]}...\n"
            try:
                sys.stdout.write(line)
            except (AttributeError, OSError, ValueError):  # there is none, or it is full or closed
                self.quiet = True
            if self.quiet:
                break


def _is_used(op: Operation) -> bool:
    todo, seen = [op], {op}
    while todo:
        for result in todo.pop().results:
            for user in result.users:
                if not user.results or user.regions or not user.name.startswith(_PURE):
                    return True
                if user not in seen:
                    seen.add(user)
                    todo.append(user)
    return False


# Operations that the compiler leaves out if nobody uses their results.
_PURE = (
    "arith.",
    "math.",
    "tt.addptr",
    "tt.splat",
    "tt.broadcast",
    "tt.expand_dims",
    "tt.bitcast",
    "tt.reshape",
)


def _site(location: Location) -> Site:
    if not location.line or location.file.startswith(_TRITON):
        return Site(0, "")
    return Site(location.line, linecache.getline(location.file, location.line).strip())


def _unknown(machine: Machine, step: Step, *_: Any) -> Any:
    raise Unsupported(f"{step.op.name}: the course's runner has no such operation")


# ---- control


@operation("tt.call", labels=None)
def call(machine: Machine, step: Step, *given: Any) -> Any:
    """Call a function, with Triton's `tl.flip` swapped for one that keeps undefined lanes apart."""
    name = step.kept or _callee(step)
    function = machine.module.functions[name]
    if _FLIP.match(name):
        return _flip(machine, step, function, *given)
    is_draw = name.startswith(_RANDOM) and not (
        machine.calls and _callee(machine.calls[-1]).startswith(_RANDOM)
    )
    if is_draw:
        machine.memory.counts_draws(joined(*(lanes.labels for lanes in given[1:2])))
    machine.calls.append(step)
    made = machine.call(function, given)
    machine.calls.pop()
    machine.here = step
    if is_draw and machine.draws is not None:
        shape = step.op.results[0].type.shape
        made = machine.draws.drawn(name, machine.memory.program, machine.site(), shape, given, made)
    return made[0] if len(made) == 1 else tuple(made)


def _callee(step: Step) -> str:
    text = step.op.attributes["callee"].removeprefix("@")
    step.kept = text[1:-1] if text.startswith('"') else text
    return step.kept


_RANDOM = "triton.language.random."
_FLIP = re.compile(r"triton\.language\.standard\.flip__")


def _flip(machine: Machine, step: Step, function: Function, x: Lanes) -> Lanes:
    """Triton's own takes the exclusive or of halves, in which undefined lanes spread to their partners."""
    shape = step.op.operands[0].type.shape
    axis = next((o.integer("axis") for o in _all_operations(machine, function) if o.name == "tt.reduce"), 0)
    labels = x.full_labels(shape)
    return Lanes(np.flip(x.full(shape), axis), x.row, None if labels is None else np.flip(labels, axis))


def _all_operations(machine: Machine, function: Function) -> Iterator[Operation]:
    """The operations of a function, and of those that it calls."""
    for block in function.region.blocks:
        for op in block.operations:
            yield op
            if op.name == "tt.call":
                name = op.attributes["callee"].removeprefix("@").strip('"')
                yield from _all_operations(machine, machine.module.functions[name])


@operation("scf.if", labels=None)
def run_if(machine: Machine, step: Step, condition: Lanes) -> Any:
    chosen = 0 if machine.condition(condition) else 1
    if chosen < len(step.regions) and step.regions[chosen].blocks:
        return tuple(machine.body(step.regions[chosen], ()))
    return ()


@operation("scf.for", labels=None)
def run_for(machine: Machine, step: Step, lower: Lanes, upper: Lanes, by: Lanes, *carried: Any) -> Any:
    memory, code = machine.memory, step.regions[0]
    for bound in (lower, upper, by):
        memory.use(bound.labels, "the range of a loop")
    kind = f"u{lower.data.itemsize}" if step.op.flag("unsignedCmp") else lower.data.dtype
    start, end, stride = (int(bound.data.view(kind).item()) for bound in (lower, upper, by))
    storage, row = lower.data.dtype, lower.row
    memory.sides.ended(step.op)
    numbers = range(start, end, stride) if stride > 0 else range(0)

    def turn(number: int, state: Given) -> Given:
        machine.iterations = len(numbers)
        index = Lanes(np.array([numbers[number]]).astype(storage), row)
        return machine.body(code, [index, *state])

    def is_data(place: int) -> bool:
        step.kept = step.kept or {}
        if place not in step.kept:
            step.kept[place] = skipping.is_data(step.op, place, machine.module)
        return step.kept[place]

    if memory.skipped and len(numbers) > skipping.MANY:
        return tuple(skipping.run(len(numbers), turn, carried, memory.skipped, is_data))
    state: Given = carried
    for number in range(len(numbers)):
        state = turn(number, state)
    return tuple(state)


@operation("scf.while", labels=None)
def run_while(machine: Machine, step: Step, *carried: Any) -> Any:
    before, after = step.regions
    loop = step.kept
    if loop is None:
        loop = step.kept = loops.read(step.op)
    turning, state = loops.Turning(), list(carried)
    while True:
        condition, *handed = machine.body(before, state)
        if not machine.condition(condition):
            return tuple(handed)
        machine.here = before.entry.last
        if stop := loops.turned(turning, loop, state, machine):
            raise Halt(stop)
        state = machine.body(after, handed)
