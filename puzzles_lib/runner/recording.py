"""Keeps what a kernel's run did, statement by statement: the values of names, accesses, dots.

Nothing is copied that no operation changes. `rewrite.recorded` puts the calls into a kernel's source that
arrive here; `memory` and `builder` tell of accesses and dots.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
TensorHandle = object

from puzzles_lib.dtypes import of_triton
from puzzles_lib.runner import lanes as taint
from puzzles_lib.runner.records import Access, Program, Stop

if TYPE_CHECKING:
    from puzzles_lib.runner.memory import Memory

TERMS = "terms"  # of a mask's attributes: what it is made of
RETURNS = "return"  # stands for a name where a function returns


@dataclass(frozen=True)
class Statement:
    """A statement of a function: lines of its source from 1, names, the loops around it from the outside.

    Of a statement with a body, the lines before the body. kind: ``"loop"``, ``"test"`` or ``""``.
    """

    first: int
    last: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loops: tuple[int, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Function:
    """A kernel or helper that ran: its source, from a line of the cell or file on."""

    name: str
    source: str
    first_line: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Block:
    """A block or a scalar as a name holds it. off: lanes that the mask of its load switched off."""

    handle: TensorHandle
    dtype: tl.dtype
    is_block: bool
    off: np.ndarray | None = None

    @property
    def is_pointer(self) -> bool:
        return self.dtype.is_ptr()

    @property
    def kind(self) -> str:
        """The dtype's name; of pointers, that of what they point to."""
        return of_triton(self.dtype.element_ty if self.is_pointer else self.dtype).name

    @property
    def values(self) -> np.ndarray:
        """Numbers that NumPy knows; of pointers, addresses."""
        return of_triton(self.dtype).widen(self.handle.data)

    @property
    def undefined(self) -> np.ndarray | None:
        """For each lane the number of its source in `Recorder.sources`, from 1; 0 where it is defined."""
        return taint.numbers(taint.labels(self.handle))


@dataclass(frozen=True)
class Plain:
    """What is no tensor: a constant, a descriptor, in words."""

    text: str


Held = Block | Plain | tuple["Held", ...]


@dataclass(frozen=True, eq=False)
class Done:
    """An access of a statement: its lanes, what they carry, and the terms of its mask.

    values: loaded or stored; of an atomic, what it found. operands: what an atomic was given.
    after: the elements of the lanes that are on, right after a store or an atomic; in the lanes' shape.
    """

    access: Access
    values: Block
    operands: tuple[Block, ...] = ()
    after: np.ndarray | None = None
    terms: tuple[tuple[str, np.ndarray], ...] = ()


@dataclass(frozen=True, eq=False)
class Dot:
    """A ``tl.dot``: operands, what is added, and the result."""

    parts: tuple[Block, ...]


@dataclass(eq=False)
class Step:
    """A statement that was executed, or begun. statement: None where a function begins.

    turn: of the loop that this begins, from 1, and of how many (0: nobody knows).
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
    """One program's run. before: elements and which are written, by tensor, as the program found them.

    complete: False where there was more than is kept.
    """

    program: Program
    number: int
    before: Mapping[str, tuple[np.ndarray, np.ndarray]]
    frames: list[Frame] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    complete: bool = True


class Recorder:
    """Records programs of one run, each up to ``most_steps``, all together ``most_bytes`` and so many steps.

    only: numbers of the programs to record, all of them where None.
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
        self.started = 0  # programs, recorded or not
        self._now: Recording | None = None
        self._stack: list[int] = []
        self._memory: Memory | None = None
        self._terms: tuple[tuple[str, np.ndarray], ...] = ()
        self._off: dict[int, np.ndarray] = {}
        self._kept: dict[int, np.ndarray] = {}  # so that no other array gets the id of one that was counted
        self._before: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    # ---- from the run

    def starts(self, memory: "Memory") -> None:
        """A program begins."""
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
                same = known is not None and np.array_equal(known[1], written)
                if not (same and np.array_equal(known[0].view(np.uint8), buffer.data.view(np.uint8))):
                    self._before[buffer.name] = buffer.data.copy(), written.copy()
                    self.bytes_left -= buffer.data.nbytes
        self._now = Recording(memory.program, number, dict(self._before))
        self.recordings[number] = self._now

    def ends(self, stop: Stop | None) -> None:
        """The run is over. One that broke off did so in the statement that was begun last."""
        if self._memory is not None:
            self.sources = [str(source) for source in self._memory.sources]
        if stop is not None and self._now is not None and self._stack:
            number = self._stack[-1]
            frame = self._now.frames[number]
            frame.problem = stop.message
            self._now.steps.append(self._made(number, frame.entered))

    # ---- from rewritten code

    def function(self, function: Function) -> int:
        """The number of a function that will run."""
        self.functions.append(function)
        return len(self.functions) - 1

    def call(self, function: int, scope: Mapping[str, object]) -> None:
        """A function begins, with its parameters."""
        if self._now is None:
            return
        self._now.frames.append(Frame(function, self._stack[-1] if self._stack else -1))
        self._stack.append(len(self._now.frames) - 1)
        names = [name for name in scope if not name.startswith("__")]
        self._keep(Step(self._stack[-1], None, self._writes(names, scope)))

    def enter(self, statement: int) -> int:
        if self._now is not None:
            frame = self._now.frames[self._stack[-1]]
            frame.entered, self._terms = statement, ()
        return statement

    def done(self, statement: int, scope: Mapping[str, object]) -> None:
        if self._now is not None:
            number = self._stack[-1]
            writes = self._statement(number, statement).writes
            self._keep(self._made(number, statement, self._writes(writes, scope)))

    def test(self, statement: int, value: bool) -> bool:
        """A condition of ``if`` or ``while``."""
        if self._now is not None:
            number = self._stack[-1]
            step = self._made(number, statement)
            step.note = "is true" if value else "is false"
            if self._statement(number, statement).kind == "loop":
                turns = self._now.frames[number].turns
                if value:
                    step.turn = turns[statement] = (turns[statement][0] + 1, 0)
                else:
                    step.note += ": the loop ends"
            self._keep(step)
        return value

    def begins(self, statement: int) -> None:
        """A ``while`` is reached."""
        if self._now is not None:
            self._now.frames[self._stack[-1]].turns[statement] = (0, 0)

    def turns(self, statement: int, values: Any) -> Iterator[object]:
        """The values of a ``for``, counted."""
        try:
            count = len(values)
        except (OverflowError, TypeError):
            count = 0
        number = 0
        for number, value in enumerate(values, 1):
            if self._now is not None:
                self._now.frames[self._stack[-1]].turns[statement] = (number, count)
            yield value
        if number == 0 and self._now is not None:
            step = self._made(self._stack[-1], statement)
            step.note = "no turns: the loop is skipped"
            self._keep(step)

    def turned(self, statement: int, scope: Mapping[str, object]) -> None:
        """A turn of a ``for`` begins."""
        if self._now is None:
            return
        number = self._stack[-1]
        step = self._made(number, statement, self._writes(self._statement(number, statement).writes, scope))
        step.turn = self._now.frames[number].turns[statement]
        self._keep(step)

    def gave(self, statement: int | None, value: object = None) -> object:
        """A function returns; statement: None at its end."""
        if self._now is not None:
            number = self._stack[-1]
            if statement is not None:
                held = self._held(value)
                step = self._made(number, statement, () if held is None else ((RETURNS, held),))
                step.note = "returns" if value is not None else "ends here"
                self._keep(step)
            if self._stack:
                self._stack.pop()
        return value

    def mask(self, value: object, text: str) -> object:
        """What an access is about to be given as its mask."""
        if self._now is not None and isinstance(value, tl.tensor):
            self._terms = _terms(value, text)
        return value

    def term(self, value: object, text: str) -> object:
        """A comparison."""
        if self._now is not None and isinstance(value, tl.tensor):  # a comparison makes a new block
            value.handle.attr[TERMS] = ((text, value.handle.data),)
        return value

    def both(self, left: Any, right: Any, left_text: str, right_text: str) -> Any:
        """``left & right``."""
        value = left & right
        tensors = all(isinstance(each, tl.tensor) for each in (left, right, value))
        if self._now is not None and tensors and value.dtype.is_int1():
            value.handle.attr[TERMS] = (*_terms(left, left_text), *_terms(right, right_text))
        return value

    # ---- from memory and builder

    @property
    def is_on(self) -> bool:
        return self._now is not None and bool(self._stack)

    def accessed(self, accesses: list[Access], values: TensorHandle, *operands: TensorHandle) -> None:
        """A load, store or atomic; of one whose lanes point into several tensors, an access for each."""
        if not self.is_on or not accesses:
            return
        assert self._now is not None and self._memory is not None
        lanes = accesses[0].elements.shape
        off = None
        if accesses[0].kind == "load" and not all(access.mask.all() for access in accesses):
            off = self._off[id(values.data)] = ~np.logical_or.reduce([access.mask for access in accesses])
        carried = Block(values, values.dtype.scalar, values.data.ndim > 0, off)
        given = tuple(Block(h, h.dtype.scalar, h.data.ndim > 0) for h in operands)
        terms = tuple((text, data) for text, data in self._terms if _fits(data.shape, lanes))
        self._terms = ()
        buffers = {b.name: b for b in self._memory.buffers}
        for access in accesses:
            after, buffer = None, buffers[access.argument]
            if access.kind != "load":
                good = access.mask & ~access.bad
                after = np.zeros(lanes, buffer.data.dtype)
                after[good] = buffer.data[access.elements[good]]
            self._now.frames[self._stack[-1]].accesses.append(Done(access, carried, given, after, terms))
            self._count_bytes(access.elements)
        self._count_bytes(values.data)

    def dotted(self, *handles: TensorHandle) -> None:
        if self.is_on:
            assert self._now is not None
            blocks = tuple(Block(h, h.dtype.scalar, True) for h in handles)
            self._now.frames[self._stack[-1]].dots.append(Dot(blocks))
            for handle in handles:
                self._count_bytes(handle.data)

    def refused(self, text: str) -> None:
        """An access that may not be; the run goes on without it."""
        if self.is_on:
            assert self._now is not None
            frame = self._now.frames[self._stack[-1]]
            frame.problem = frame.problem or text

    # ---- for who looks at it

    def pointed(self, block: Block) -> tuple[str, np.ndarray] | None:
        """The tensor that pointers point into or beside, and to which of its elements; None for several."""
        if self._memory is None:
            return None
        return self._memory.elements_of(block.values, of_triton(block.dtype.element_ty).storage)

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

    def _writes(self, names: Collection[str], scope: Mapping[str, object]) -> tuple[tuple[str, Held], ...]:
        found = ((name, self._held(scope[name])) for name in names if name in scope)
        return tuple((name, held) for name, held in found if held is not None)

    def _held(self, value: object) -> Held | None:
        """What is kept of a value; None where it is nothing to look at, such as a function."""
        if isinstance(value, tl.tensor) and (value.handle is None or value.dtype == tl.void):
            return None
        if isinstance(value, tl.tensor) and not isinstance(value.handle, TensorHandle):
            return Plain(self._block_pointer(value.handle))
        if isinstance(value, tl.tensor):
            self._count_bytes(value.handle.data)
            return Block(
                value.handle, value.dtype, value.type.is_block(), self._off.get(id(value.handle.data))
            )
        if isinstance(value, tl.constexpr):
            value = value.value
        if isinstance(value, tuple | list | tl.tuple):
            parts = [self._held(each) for each in value]
            return tuple(part for part in parts if part is not None)
        if isinstance(value, tl.core.tensor_descriptor_base):
            return Plain(self._descriptor(value))
        if value is None or isinstance(value, bool | int | float | str | tl.dtype):
            text = repr(value) if not isinstance(value, tl.dtype) else str(value)
            return Plain(text if len(text) <= 200 else f"{text[:199]}…")
        return None

    def _block_pointer(self, handle: Any) -> str:
        offsets = [int(n.data.flat[0]) for n in handle.offsets]
        return f"block pointer into {self._whole(handle)}, tile {list(handle.block_shape)} at {offsets}"

    def _descriptor(self, value: Any) -> str:
        return f"descriptor of {self._whole(value.handle)}, tiles of {list(value.handle.block_shape)}"

    def _whole(self, handle: Any) -> str:
        """Name and shape of what a descriptor or a block pointer is for."""
        assert self._memory is not None
        buffer = self._memory.buffer_at(handle.base.data)
        return f"{buffer.name if buffer else '?'} {[int(n.data.flat[0]) for n in handle.shape]}"

    def _count_bytes(self, array: np.ndarray) -> None:
        if id(array) not in self._kept:
            self._kept[id(array)] = array
            self.bytes_left -= array.nbytes


def _terms(value: tl.tensor, text: str) -> tuple[tuple[str, np.ndarray], ...]:
    return value.handle.attr.get(TERMS) or ((text, value.handle.data),)


def _fits(shape: tuple[int, ...], lanes: tuple[int, ...]) -> bool:
    """Whether a term can be spread over the lanes."""
    if len(shape) > len(lanes):
        return int(np.prod(shape)) == 1
    return all(m in (1, n) for m, n in zip(shape[::-1], lanes[::-1], strict=False))
