"""Turn a recording into what the page plays: plain trees, and which stored values are correct.

Stored elements are one of `RIGHT`, `WRONG`, `LATER` (a partial result), `UNDEFINED` or `RACE` (two lanes of
one store write different values there).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from puzzles_lib.checker.expected import Expected
from puzzles_lib.checker.verdicts import on_the_grid
from puzzles_lib.dtypes import of_torch
from puzzles_lib.player.packing import Pool, number
from puzzles_lib.puzzle import Argument
from puzzles_lib.runner import Block, Done, Function, Held, Plain, Recorder, Recording, Run, Step

RIGHT, WRONG, LATER, UNDEFINED, RACE = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Sheet:
    """A tensor of the case. values: those of an input. expected: those of a result. final: after the run."""

    argument: Argument
    shape: tuple[int, ...]
    values: torch.Tensor | None = None
    expected: Expected | None = None
    final: torch.Tensor | None = None
    written: np.ndarray | None = None

    @property
    def name(self) -> str:
        return self.argument.name

    def judged(self, elements: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Return the state of stored values, element by element."""
        got = _tensor(raw, self.argument.dtype)
        index = torch.from_numpy(elements.astype(np.int64))
        if self.values is not None and self.expected is None:  # an input, which must not change
            before = self.values.reshape(-1)[index]
            same = (got == before) | ((got != got) & (before != before))
            return np.where(same.numpy(), RIGHT, WRONG)
        right = self._accepts(index, got)
        last = self._accepts(index, self.final.reshape(-1)[index])  # type: ignore[union-attr]
        will_be = last & self.written[elements]  # type: ignore[index]
        return np.where(right, RIGHT, np.where(will_be, LATER, WRONG))

    def _accepts(self, index: torch.Tensor, got: torch.Tensor) -> np.ndarray:
        expected = self.expected
        assert expected is not None
        value = expected.value.reshape(-1)[index]
        tolerance = None if expected.tolerance is None else expected.tolerance.reshape(-1)[index]
        return Expected(expected.argument, value, tolerance).accepts(got).numpy()

    @property
    def wrong(self) -> np.ndarray:
        """The elements that the kernel stored with a wrong value."""
        if self.final is None or self.written is None or self.expected is None:
            return np.zeros(0, bool)
        return self.written & ~self.expected.accepts(self.final).reshape(-1).numpy()


def sheets(
    arguments: Sequence[Argument],
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
) -> list[Sheet]:
    """Return the tensors that a kernel takes, in the puzzle's order."""
    found = []
    for argument in arguments:
        name, shape = argument.name, shapes[argument.name]
        if name in inputs and name not in expected:
            found.append(Sheet(argument, shape, values=inputs[name]))
        elif name in ran.outputs:
            final, written = ran.outputs[name], ran.written[name]
            found.append(Sheet(argument, shape, inputs.get(name), expected[name], final, written))
    return found


@dataclass(frozen=True)
class Told:
    """A program's steps as trees.

    first_wrong: the step that first stores a wrong value. first_bad: the step with the first other problem.
    Both are None if there is none.
    """

    recording: Recording
    steps: list[dict[str, Any]]
    before: list[dict[str, int]]
    first_wrong: int | None
    first_bad: int | None
    complete: bool

    @property
    def opening(self) -> int:
        """Return the step that a page opens at."""
        return next((place for place in (self.first_wrong, self.first_bad) if place is not None), 0)

    def stores_wrong(self) -> bool:
        return self.first_wrong is not None

    def goes_bad(self) -> bool:
        return self.first_bad is not None

    def masks(self) -> bool:
        return any("m" in access for step in self.steps for access in step.get("a", ()))


@dataclass
class Teller:
    """Turn recordings into trees. Call it for programs in launch order; arrays go to the pool.

    cut: the names of tensors of which only the accessed elements are kept. axes: of the grid.
    """

    recorder: Recorder
    tensors: Sequence[Sheet]
    cut: Collection[str] = ()
    axes: int = 3
    pool: Pool = field(default_factory=Pool)
    values: list[Any] = field(default_factory=list)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)  # the first value that shows a handle
    _kept: list[object] = field(default_factory=list)  # so that no other object gets the id of a known one
    _state: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _stored_wrong: bool = False  # by the step that is being told

    def told(self, recording: Recording, most_steps: int) -> Told:
        before = list(self._catch_up(recording))
        steps: list[dict[str, Any]] = []
        wrong = bad = None
        for place, step in enumerate(recording.steps[:most_steps]):
            self._stored_wrong = False
            tree = self._step(step)
            steps.append(tree)
            if wrong is None and self._stored_wrong:
                wrong = place
            if bad is None and "e" in tree:
                bad = place
        complete = recording.complete and most_steps >= len(recording.steps)
        return Told(recording, steps, before, wrong, bad, complete)

    def tree(self, told: Told) -> dict[str, Any]:
        """Return what the page keeps of a program."""
        frames = [[f.function, f.caller] for f in told.recording.frames]
        ids = list(told.recording.program)
        tree: dict[str, Any] = {"id": ids, "number": told.recording.number, "frames": frames}
        return tree | {"steps": told.steps, "before": told.before, "complete": told.complete}

    def functions(self) -> list[dict[str, Any]]:
        return [_function(function) for function in self.recorder.functions]

    def sheets(self) -> list[dict[str, Any]]:
        """Return the tensors with the values of inputs, and the expected values of outputs."""
        trees = []
        for sheet in self.tensors:
            tree: dict[str, Any] = {
                "name": sheet.name,
                "dims": list(sheet.argument.dims),
                "shape": list(sheet.shape),
                "dtype": of_torch(sheet.argument.dtype).name,
            }
            if sheet.name in self.cut:
                pass
            elif sheet.values is not None:
                tree["values"] = self.pool.add(_numbers(sheet.values))
            elif sheet.expected is not None:
                wanted = _numbers(sheet.expected.value)
                is_wide = wanted.dtype == np.float64 and sheet.argument.dtype != torch.float64
                tree["wanted"] = self.pool.add(wanted.astype(np.float32) if is_wide else wanted)
            trees.append(tree)
        return trees

    # ---- tensors, as a program finds them

    def _catch_up(self, recording: Recording) -> Iterator[dict[str, int]]:
        """Return what other programs changed in tensors since the last program in the tree."""
        for place, sheet in enumerate(self.tensors):
            if sheet.name not in recording.before:
                continue
            data, written = recording.before[sheet.name]
            known, before = self._known_state(sheet, data)
            differs = (written & ~before) | ((_bits(known) != _bits(data)) & written)
            if sheet.values is not None:
                differs = _bits(known) != _bits(data)
            elements = np.flatnonzero(differs)
            if elements.size:
                known[elements], before[elements] = data[elements], True
            if elements.size and sheet.name not in self.cut:
                yield self._stored(place, elements, data[elements])

    def _known_state(self, sheet: Sheet, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if sheet.name not in self._state:
            start = np.zeros_like(data)
            if sheet.values is not None:
                start = _raw(sheet.values)
            self._state[sheet.name] = start.copy(), np.zeros(len(data), bool)
        return self._state[sheet.name]

    def _stored(self, place: int, elements: np.ndarray, raw: np.ndarray) -> dict[str, int]:
        sheet = self.tensors[place]
        judged = sheet.judged(elements, raw)
        numbers = of_torch(sheet.argument.dtype).widen(raw)
        return {
            "T": place,
            "i": self.pool.add(elements),
            "v": self.pool.add(numbers),
            "r": self.pool.add(judged.astype(np.uint8)),
        }

    # ---- steps

    def _step(self, step: Step) -> dict[str, Any]:
        tree: dict[str, Any] = {"f": step.frame}
        if step.statement is not None:
            tree["k"] = step.statement
        if step.writes:
            tree["w"] = [[name, self._held(held)] for name, held in step.writes]
        if step.accesses:
            tree["a"] = [self._access(done) for done in step.accesses]
        if step.dots:
            tree["d"] = [[self._held(part) for part in dot.parts] for dot in step.dots]
        if step.turn:
            tree["t"] = list(step.turn)
        if step.note:
            tree["n"] = step.note
        if step.problem:
            tree["e"] = on_the_grid(step.problem, self.axes)
        return tree

    def _held(self, held: Held) -> int:
        """Return the number of a value."""
        off = held.off if isinstance(held, Block) else None
        key = (id(held.handle) if isinstance(held, Block) else id(held), id(off))
        if key not in self._known:
            self._kept.append((held, off))
            tree = self._value(held)
            self._known[key] = len(self.values)
            if self._first.setdefault(key[0], len(self.values)) != len(self.values):
                tree["h"] = self._first[key[0]]
            self.values.append(tree)
        return self._known[key]

    def _value(self, held: Held) -> Any:
        if isinstance(held, Plain):
            return {"text": held.text}
        if isinstance(held, tuple):
            return {"parts": [self._held(part) for part in held]}
        tree: dict[str, Any] = {"dtype": held.kind}
        values = held.values if held.is_block else held.values.reshape(())
        if held.is_pointer:
            pointed = self.recorder.pointed(held)
            tree["to"] = -1 if pointed is None else self._place(pointed[0])
            values = values if pointed is None else pointed[1].reshape(values.shape)
        tree |= {"a": self.pool.add(values)} if held.is_block else {"x": number(values[()])}
        if held.undefined is not None:
            tree["u"] = self.pool.add(held.undefined.reshape(values.shape).astype(np.uint16))
        if held.off is not None:
            tree["o"] = self.pool.add(held.off)
        return tree

    def _place(self, name: str) -> int:
        return next((i for i, sheet in enumerate(self.tensors) if sheet.name == name), -1)

    def _access(self, done: Done) -> dict[str, Any]:
        access = done.access
        place = self._place(access.argument)
        tree: dict[str, Any] = {"k": access.kind, "T": place, "v": self._held(done.values)}
        tree["i"] = self.pool.add(access.elements)
        if not access.mask.all():
            tree["m"] = self.pool.add(access.mask)
        if access.bad.any():
            tree["b"] = self.pool.add(access.bad)
        if done.terms and not access.mask.all():
            tree["terms"] = [[text, self.pool.add(data)] for text, data in done.terms]
        if done.operands:
            tree["o"] = [self._held(block) for block in done.operands]
        if done.after is not None and place >= 0:
            tree["s"] = self._after(place, done)
        return tree

    def _after(self, place: int, done: Done) -> dict[str, int]:
        """Return the values of the elements after a store or an atomic."""
        sheet, access, after = self.tensors[place], done.access, done.after
        assert after is not None
        good = access.mask & ~access.bad
        elements = access.elements[good]
        known, written = self._known_state(sheet, np.zeros(int(np.prod(sheet.shape)), after.dtype))
        known[elements], written[elements] = after[good], True
        judged = sheet.judged(elements, after[good])
        if access.kind == "store" and (undefined := done.values.undefined) is not None:
            judged = np.where(np.broadcast_to(undefined, good.shape)[good] > 0, UNDEFINED, judged)
        if access.kind == "store":
            judged = np.where(_collide(elements, done.values.values, good), RACE, judged)
        self._stored_wrong |= bool(np.isin(judged, (WRONG, UNDEFINED, RACE)).any())
        numbers = of_torch(sheet.argument.dtype).widen(after[good])
        return {
            "i": self.pool.add(elements),
            "v": self.pool.add(numbers),
            "r": self.pool.add(judged.astype(np.uint8)),
        }


def _collide(elements: np.ndarray, values: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Return for each lane of a store whether another one writes a different value to its element."""
    stored = _bits(np.ascontiguousarray(np.broadcast_to(values, good.shape)[good]))
    _, first, place = np.unique(elements, return_index=True, return_inverse=True)
    differs = stored != stored[first][place]
    return np.isin(place, place[differs])


def _function(function: Function) -> dict[str, Any]:
    statements = [
        [s.first, s.last, list(s.reads), list(s.writes), list(s.loops), s.kind] for s in function.statements
    ]
    lines = function.source.rstrip().splitlines()
    return {"name": function.name, "first": function.first_line, "lines": lines, "statements": statements}


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    return of_torch(tensor.dtype).widen(_raw(tensor)).reshape(tuple(tensor.shape))


def _raw(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's elements as a flat array, as the interpreter stores them."""
    storage = of_torch(tensor.dtype).storage
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().view(storage)


def _tensor(raw: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor from such an array."""
    if not raw.size:
        return torch.empty(0, dtype=dtype)
    return torch.from_numpy(np.ascontiguousarray(raw).view(np.uint8).copy()).view(dtype)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")
