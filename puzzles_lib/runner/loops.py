"""Find ``while`` loops that never end, from what their condition depends on.

Nothing changes while a program waits, because other programs run before it or after it. If an iteration
leaves memory unchanged, and all values that the condition depends on, then all later iterations are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puzzles_lib.runner.interleaving import SetAside
from puzzles_lib.runner.lanes import BlockPointer, Lanes
from puzzles_lib.runner.operations import MARK
from puzzles_lib.runner.records import Stop
from puzzles_lib.runner.step import Machine
from puzzles_lib.translator.ir import Operation, Value

PATIENCE = 200  # iterations of a loop before anybody looks whether it goes on forever
SHORT_PATIENCE = 2  # where others may go on meanwhile
_WRITING = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter",
            "tt.descriptor_reduce", "tt.call", "tt.print", "tt.assert", "scf.while")  # fmt: skip
_ASKING = (
    "tt.load",
    "tt.atomic_rmw",
    "tt.atomic_cas",
    "tt.descriptor_load",
    "tt.descriptor_gather",
    "tt.call",
)


@dataclass(frozen=True)
class Loop:
    """A loop. hangs_on: the numbers of the carried values that decide, with memory, how it continues.

    counts: names in the condition. lines: where the condition's values come from. asks: whether some of them
        may come from memory.
    """

    hangs_on: tuple[int, ...]
    counts: tuple[str, ...]
    lines: frozenset[int]
    asks: bool


def read(op: Operation) -> Loop:
    """Return which values decide how an ``scf.while`` continues."""
    before, after = op.regions
    last = before.entry.operations[-1]
    deciding = _Slice(op)
    deciding.grow([last.operands[0]])
    lines = {made.location.line for made in deciding.operations if made.location.line}
    asks = any(made.name in _ASKING for made in deciding.operations)
    counts = dict.fromkeys(filter(None, (value.location.name for value in deciding.leaves())))
    for made in _operations(op):
        # What is written to memory may decide as well, in another iteration; and whether it is written.
        if _writes(made) or any(map(_writes, _operations(made))):
            deciding.grow(made.operands)
    carried = tuple(i for i, value in enumerate(before.entry.arguments) if value in deciding.values)
    return Loop(carried, tuple(counts), frozenset(lines | {last.location.line}), asks)


def _writes(op: Operation) -> bool:
    """Whether it may write to memory, or be seen. The front end's own marks are prints that nobody sees."""
    return op.name in _WRITING and not (op.name == "tt.print" and op.text("prefix").startswith(MARK))


class _Slice:
    """The values that some values are made of, and the operations that make them."""

    def __init__(self, loop: Operation):
        self.loop = loop
        self.values: set[Value] = set()
        self.operations: list[Operation] = []
        self._makers = {result: made for made in _operations(loop) for result in made.results}
        self._order: list[Value] = []
        before, after = loop.regions
        last, end = before.entry.operations[-1], after.entry.operations[-1]
        self._next: dict[Value, list[Value]] = {}
        for place, value in enumerate(before.entry.arguments):  # comes from the end of the iteration before
            self._next[value] = [end.operands[place]]
        for place, value in enumerate(after.entry.arguments):
            self._next[value] = [last.operands[place + 1]]

    def grow(self, start: Sequence[Value]) -> None:
        """Add what these are made of."""
        todo = list(start)
        while todo:
            value = todo.pop(0)
            if value in self.values:
                continue
            self.values.add(value)
            self._order.append(value)
            todo += self._next.get(value, ())
            maker = self._makers.get(value)
            if maker is not None and maker not in self.operations:
                self.operations.append(maker)
                todo += maker.operands
                for region in maker.regions:
                    for block in region.blocks:
                        for inner in block.operations:
                            self.operations.append(inner)
                            todo += inner.operands

    def leaves(self) -> Iterator[Value]:
        """Values that the loop carries, or that come from outside, in the order in which they were met."""
        carried = set(self.loop.regions[0].entry.arguments)
        for value in self._order:
            outside = value not in self._makers and value not in self._next
            if value in carried or (outside and value.maker is not None):
                yield value


def _operations(op: Operation) -> Iterator[Operation]:
    """The operations within one, however deep."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner
                yield from _operations(inner)


@dataclass
class Turning:
    """A loop that runs: its iterations, and the values with which the last one began."""

    turns: int = 0
    state: object = None
    changes: int = -1


def turned(turning: Turning, loop: Loop, carried: Sequence[Any], machine: Machine) -> Stop | None:
    """Note that an iteration begins; return a Stop if the loop would go on forever."""
    memory = machine.memory
    if memory.replays:
        return None
    turning.turns += 1
    if turning.turns < (PATIENCE if memory.turns is None else SHORT_PATIENCE):
        return None
    state = [_kept(carried[place]) for place in loop.hangs_on]
    same = turning.changes == memory.changes and turning.state == state
    turning.state, turning.changes = state, memory.changes
    if not same:
        memory.asked = None
        return None
    if memory.asked is None:  # let a last iteration show what it asks for
        memory.asked = []
        return None
    asked = [each for each in memory.asked if each.buffer.is_output]  # nobody may change the others
    asked = [each for each in asked if each.site.line in loop.lines] or asked
    if loop.asks and asked:
        stop = memory.deadlock(asked[0])
        if memory.turns is not None and not asked[0].plain:
            raise SetAside(stop)
        return stop
    what = " or ".join(loop.counts)
    why = f"no iteration changes {what}" if what else "nothing in it changes its condition"
    text = f"time limit: this loop never ends in program {memory.program}: {why}"
    return Stop("time limit", text, machine.site())


def _kept(value: Any) -> object:
    """What tells a value from another one."""
    if isinstance(value, Lanes):
        data = np.asarray(value.data)
        return data.shape, data.dtype.str, data.tobytes()
    if isinstance(value, BlockPointer):
        return [_kept(each) for each in (value.base, *value.offsets)]
    return value
