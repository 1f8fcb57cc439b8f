"""Keep what a kernel's run did, statement by statement: the values of names, accesses, dots.

Only what operations change is copied. Marks in the IR (`puzzles_lib.translator.marks`) report statements and
names. `memory` and `machine` report accesses and dots.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from puzzles_lib.dtypes import DType, of_triton_name
from puzzles_lib.runner import lanes
from puzzles_lib.runner.lanes import BlockPointer, Lanes
from puzzles_lib.runner.records import Access, Program, Stop
from puzzles_lib.translator.statements import Function, Statement, described

if TYPE_CHECKING:
    from puzzles_lib.runner.memory import Memory

RETURNS = "return"  # stands for a name where a function returns


@dataclass(frozen=True, eq=False)
class Block:
    """A block or a scalar that a name refers to. off: lanes that the mask of its load switched off.

    dtype: that of the elements; for pointers, that of what they point to.
    """

    handle: Lanes
    dtype: DType
    is_pointer: bool
    is_block: bool
    off: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """Return the dtype's name; for pointers, that of what they point to."""
        return self.dtype.name

    @property
    def values(self) -> np.ndarray:
        """Return the values in a dtype that NumPy has; for pointers, addresses."""
        data = self.handle.data
        if self.is_pointer:
            return data
        storage = self.dtype.storage
        return self.dtype.widen(data if data.dtype == storage else np.ascontiguousarray(data).view(storage))

    @property
    def undefined(self) -> np.ndarray | None:
        """Return each lane's source in `Recorder.sources`, counted from 1; 0 if the lane is defined."""
        return lanes.numbers(self.handle.labels)


@dataclass(frozen=True)
class Plain:
    """A value that is not a tensor, such as a constant or a descriptor, in words."""

    text: str


Held = Block | Plain | tuple["Held", ...]


@dataclass(frozen=True, eq=False)
class Done:
    """An access of a statement: its lanes, their values, and the terms of its mask.

    values: what was loaded or stored; for an atomic, what it found. operands: the arguments of an atomic.
    after: the elements of the lanes that are on, right after a store or an atomic; in the lanes' shape.
    """

    access: Access
    values: Block
    operands: tuple[Block, ...] = ()
    after: np.ndarray | None = None
    terms: tuple[tuple[str, np.ndarray], ...] = ()


@dataclass(frozen=True, eq=False)
class Dot:
    """A ``tl.dot``: its operands, what is added to their product, and the result."""

    parts: tuple[Block, ...]


@dataclass(eq=False)
class Step:
    """A statement that was executed, or begun. statement: its number; None if a function begins.

    turn: if an iteration begins here, its number from 1, and how many there are (0 if that isn't known).
    """

    frame: int
    statement: int | None
    writes: tuple[tuple[str, Held], ...] = ()
    accesses: tuple[Done, ...] = ()
    dots: tuple[Dot, ...] = ()
    turn: tuple[int, int] | None = None
    note: str = ""
    problem: str = ""


@dataclass(eq=False)
class Frame:
    """A call of a function: its number, its caller's frame, and what its running statement did so far."""

    function: int
    caller: int
    entered: int = 0
    accesses: list[Done] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    problem: str = ""
    turns: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class Recording:
    """One program's run. before: by tensor, its elements before the run, and which of them were written.

    complete: False if the run had more steps than are kept.
    """

    program: Program
    number: int
    before: Mapping[str, tuple[np.ndarray, np.ndarray]]
    frames: list[Frame] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    complete: bool = True


class Recorder:
    """Records programs of one run: each up to ``most_steps``, all together up to ``most_steps_in_all``.

    most_bytes: the most memory for all of them. only: numbers of the programs to record; None for all.
    """

    def __init__(
        self,
        only: Collection[int] | None = None,
        *,
        most_steps: int = 4000,
        most_steps_in_all: int = 12_000,
        most_bytes: int = 96 << 20,
    ):
        self.only = only
        self.most_steps = most_steps
        self.steps_left = most_steps_in_all
        self.bytes_left = most_bytes
        self.functions: list[Function] = []
        self.recordings: dict[int, Recording] = {}
        self.sources: list[str] = []  # of what is undefined
        self.masked: list[int] = []  # those of them that are lanes a load masks off, counted from 1
        self.started = 0  # programs, recorded or not
        self._now: Recording | None = None
        self._stack: list[int] = []
        self._memory: Memory | None = None
        self._terms: tuple[tuple[str, np.ndarray], ...] = ()
        self._off: dict[int, np.ndarray] = {}  # by lanes that were loaded
        self._wholes: dict[int, tuple[Lanes, Lanes]] = {}
        self._alive: list[Lanes] = []  # so that no others get their ids
        self._kept: dict[int, np.ndarray] = {}  # so that no other array gets the id of one that was counted
        self._before: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    # ---- from the run

    def starts(self, memory: "Memory", functions: Sequence[Mapping[str, Any]]) -> None:
        """Begin a program. functions: the functions of the kernel's source, by number."""
        if not self.functions:
            self.functions = [described(**each) for each in functions]
        self._memory, self._now, self._stack = memory, None, []
        self.started += 1
        number = memory.number
        if (
            self.steps_left <= 0
            or self.bytes_left <= 0
            or (self.only is not None and number not in self.only)
        ):
            return
        for buffer in memory.buffers:
            if buffer.is_output or buffer.name in memory.changed:
                written = buffer.written_elements()
                known = self._before.get(buffer.name)
                if (
                    known is None
                    or not np.array_equal(known[1], written)
                    or not np.array_equal(known[0].view(np.uint8), buffer.data.view(np.uint8))
                ):
                    self._before[buffer.name] = buffer.data.copy(), written.copy()
                    self.bytes_left -= buffer.data.nbytes
        self._now = Recording(memory.program, number, dict(self._before))
        self.recordings[number] = self._now

    def pauses(self) -> tuple["Recording | None", list[int]]:
        """Set a program's recording aside, and return it with its stack, for `resumes`."""
        kept = self._now, self._stack
        self._now, self._stack = None, []
        return kept

    def resumes(self, kept: tuple["Recording | None", list[int]]) -> None:
        """Go on with a recording that was set aside, because its program does something new."""
        self._now, self._stack = kept[0], list(kept[1])

    def ends(self, stop: Stop | None) -> None:
        """End the recording. If the run stopped early, it did so in the statement that was begun last."""
        if self._memory is not None:
            sources = list(self._memory.sources)
            self.sources = [source.why for source in sources]
            self.masked = [n for n, source in enumerate(sources, 1) if source.kind == "lanes"]
        if stop is not None and self._now is not None and self._stack:
            number = self._stack[-1]
            frame = self._now.frames[number]
            frame.problem = stop.message
            self._now.steps.append(self._made(number, frame.entered))

    # ---- from marks

    def marked(
        self,
        word: str,
        told: Mapping[str, Any],
        values: Sequence[Any],
        shapes: Sequence[tuple[int, ...]],
        iterations: int,
    ) -> None:
        """Record a mark. told: its content; values: its operands, of these shapes.

        iterations: those of the innermost loop, if only the run can know them.
        """
        if self._now is None and word != "term":
            return
        given = _Given(values, shapes)
        if word == "call":
            self._call(told["f"], self._named(told, given))
        elif word in ("mask", "term", "both"):
            self._terms_of(word, told, given)
        elif self._stack:
            self._of_statement(word, told["s"], told, given, iterations)

    def _of_statement(
        self, word: str, statement: int, told: Mapping[str, Any], given: "_Given", iterations: int
    ) -> None:
        assert self._now is not None
        number = self._stack[-1]
        frame = self._now.frames[number]
        if word in ("enter", "begins"):
            frame.entered, self._terms = statement, ()
            if word == "begins":
                frame.turns[statement] = (0, 0)
        elif word == "done":
            self._keep(self._made(number, statement, self._named(told, given)))
        elif word == "turn":
            frame.entered = statement
            count = told["of"] if told["of"] is not None else iterations
            step = self._made(number, statement, self._named(told, given))
            step.turn = frame.turns[statement] = (frame.turns.get(statement, (0, 0))[0] + 1, count)
            self._keep(step)
        elif word == "ended":
            writes = self._named(told, given)
            if (skipped := frame.turns.get(statement, (0, 0))[0] == 0) or writes:
                step = self._made(number, statement, writes)
                step.note = "no iterations: the loop is skipped" if skipped else ""
                self._keep(step)
        elif word == "test":
            self._test(statement, bool(given.lanes[0].data.item()) if given.lanes else told["is"])
        elif word == "gave":
            held = None if told.get("v") is None else self._held(told["v"], given)
            step = self._made(number, statement, () if held is None else ((RETURNS, held),))
            step.note = "returns" if held is not None else "ends here"
            self._keep(step)

    def _call(self, function: int, writes: tuple[tuple[str, Held], ...]) -> None:
        """Record that a function begins, with its parameters."""
        assert self._now is not None
        self._now.frames.append(Frame(function, self._stack[-1] if self._stack else -1))
        self._stack.append(len(self._now.frames) - 1)
        self._keep(Step(self._stack[-1], None, writes))

    def _test(self, statement: int, value: bool) -> None:
        """Record a condition of ``if`` or ``while``."""
        assert self._now is not None
        number = self._stack[-1]
        self._now.frames[number].entered = statement
        step = self._made(number, statement)
        step.note = "is true" if value else "is false"
        if self._statement(number, statement).kind == "loop":
            turns = self._now.frames[number].turns
            if value:
                step.turn = turns[statement] = (turns.get(statement, (0, 0))[0] + 1, 0)
            else:
                step.note += ": the loop ends"
        self._keep(step)

    def _terms_of(self, word: str, told: Mapping[str, Any], given: "_Given") -> None:
        """What a mask is made of: a comparison, two masks combined, or what an access is given."""
        if word == "term":  # a comparison makes new lanes
            given.values[0].terms = ((told["text"], given.lanes[0].data),)
        elif word == "both":
            sides = zip(given.values[:2], given.lanes[:2], told["texts"], strict=True)
            given.values[2].terms = tuple(
                term for value, whole, text in sides for term in value.terms or ((text, whole.data),)
            )
        else:
            self._terms = given.values[0].terms or ((told["text"], given.lanes[0].data),)

    @property
    def depth(self) -> int:
        """Return how many functions are running."""
        return len(self._stack)

    def leave(self, depth: int) -> None:
        """Note that functions have returned, so that this many are running."""
        del self._stack[depth:]

    # ---- from memory and machine

    @property
    def is_on(self) -> bool:
        return self._now is not None and bool(self._stack)

    def accessed(self, accesses: list[Access], values: Lanes, *operands: Lanes) -> None:
        """Record a load, store or atomic; if its lanes point into several tensors, an access for each."""
        if not self.is_on or not accesses:
            return
        assert self._now is not None and self._memory is not None
        shape = accesses[0].elements.shape
        off = None
        if accesses[0].kind == "load" and not all(access.mask.all() for access in accesses):
            off = self._off[id(values)] = ~np.logical_or.reduce([access.mask for access in accesses])
            self._alive.append(values)
        carried = Block(values, values.row, False, shape != (1,), off)
        given = tuple(Block(each, each.row, False, shape != (1,)) for each in operands)
        terms = tuple((text, data) for text, data in self._terms if _fits(data.shape, shape))
        self._terms = ()
        buffers = {b.name: b for b in self._memory.buffers}
        for access in accesses:
            after, buffer = None, buffers[access.argument]
            if access.kind != "load":
                good = access.mask & ~access.bad
                after = np.zeros(shape, buffer.data.dtype)
                after[good] = buffer.data[access.elements[good]]
            self._now.frames[self._stack[-1]].accesses.append(Done(access, carried, given, after, terms))
            self._count_bytes(access.elements)
        self._count_bytes(values.data)

    def dotted(self, *blocks: Lanes) -> None:
        if self.is_on:
            assert self._now is not None
            parts = tuple(Block(each, each.row, False, True) for each in blocks)
            self._now.frames[self._stack[-1]].dots.append(Dot(parts))
            for each in blocks:
                self._count_bytes(each.data)

    def refused(self, text: str) -> None:
        """Note an access that isn't allowed; the run goes on without it."""
        if self.is_on:
            assert self._now is not None
            frame = self._now.frames[self._stack[-1]]
            frame.problem = frame.problem or text

    # ---- for those who look at it

    def pointed(self, block: Block) -> tuple[str, np.ndarray] | None:
        """Return the tensor that pointers belong to, and its elements; None if there are several tensors."""
        if self._memory is None:
            return None
        return self._memory.elements_of(block.values, block.dtype.storage)

    # ---- keeping

    def _statement(self, frame: int, statement: int) -> Statement:
        assert self._now is not None
        return self.functions[self._now.frames[frame].function].statements[statement]

    def _made(self, number: int, statement: int, writes: tuple[tuple[str, Held], ...] = ()) -> Step:
        """A step with what the frame has gathered since its last one."""
        assert self._now is not None
        frame = self._now.frames[number]
        step = Step(
            number, statement, writes, tuple(frame.accesses), tuple(frame.dots), problem=frame.problem
        )
        frame.accesses.clear()
        frame.dots.clear()
        frame.problem = ""
        return step

    def _keep(self, step: Step) -> None:
        assert self._now is not None
        self._now.steps.append(step)
        self.steps_left -= 1
        if len(self._now.steps) >= self.most_steps or self.steps_left <= 0 or self.bytes_left <= 0:
            self._now.complete = False
            self._now = None

    def _named(self, told: Mapping[str, Any], given: "_Given") -> tuple[tuple[str, Held], ...]:
        """What names hold, as a mark tells it."""
        found = ((name, self._held(held, given)) for name, held in told.get("n", ()))
        return tuple((name, held) for name, held in found if held is not None)

    def _held(self, told: Any, given: "_Given") -> Held | None:
        if isinstance(told, str):
            return Plain(told)
        if isinstance(told, list):
            parts = [self._held(each, given) for each in told]
            return tuple(part for part in parts if part is not None)
        if "d" in told:
            shape = [int(given.values[i].data.flat[0]) for i in told["shape"]]
            return Plain(f"descriptor of {told['d']} {shape}, tiles of {told['block']}")
        value = given.values[told["i"]]
        if isinstance(value, BlockPointer):
            return Plain(self._block_pointer(value))
        kind = told["t"]
        is_pointer = kind.startswith("pointer<")
        row = of_triton_name(kind[8:].rstrip(">").split(",")[0] if is_pointer else kind)
        if row is None:
            return None
        whole = self._whole_of(value, given.lanes[told["i"]])
        self._count_bytes(whole.data)
        return Block(whole, row, is_pointer, told["b"], self._off.get(id(value)))

    def _whole_of(self, value: Lanes, whole: Lanes) -> Lanes:
        """The same object for the same lanes, whichever name holds them."""
        known = self._wholes.get(id(value))
        if known is None or known[1].data.shape != whole.data.shape:
            known = self._wholes[id(value)] = value, whole
        return known[1]

    def _block_pointer(self, pointer: BlockPointer) -> str:
        assert self._memory is not None
        buffer = self._memory.buffer_at(pointer.base.data)
        shape = [int(n.data.flat[0]) for n in pointer.shape]
        offsets = [int(n.data.flat[0]) for n in pointer.offsets]
        return (
            f"block pointer into {buffer.name if buffer else '?'} {shape}, "
            f"tile {list(pointer.block)} at {offsets}"
        )

    def _count_bytes(self, array: np.ndarray) -> None:
        if id(array) not in self._kept:
            self._kept[id(array)] = array
            self.bytes_left -= array.nbytes


class _Given:
    """The operands of a mark. lanes: those that are lanes, in their whole shapes."""

    def __init__(self, values: Sequence[Any], shapes: Sequence[tuple[int, ...]]):
        self.values = values
        self.lanes = [
            value.spread(shape) if isinstance(value, Lanes) else value
            for value, shape in zip(values, shapes, strict=True)
        ]


def _fits(shape: tuple[int, ...], lanes: tuple[int, ...]) -> bool:
    """Whether a term can be spread over the lanes."""
    if len(shape) > len(lanes):
        return int(np.prod(shape)) == 1
    return all(m in (1, n) for m, n in zip(shape[::-1], lanes[::-1], strict=False))
