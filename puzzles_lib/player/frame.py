"""Describe one frame of a run in words: the line, the names it reads and changes, and its accesses."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from puzzles_lib.runner import RETURNS, Block, Done, Held, Plain, Recorder, Recording, Step

AROUND = 3  # the number of source lines shown before and after
MOST_VALUES = 8


@dataclass(frozen=True)
class Frame:
    """One frame of a run.

    place: the program and the step. lines: those of the source, each with its number and whether it is
    running.
    names: name, what the line does with it, dtype and shape, values. notes: further lines.
    """

    place: str
    lines: tuple[tuple[int, str, bool], ...]
    names: tuple[tuple[str, str, str, str], ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        width = len(str(max((number for number, _, _ in self.lines), default=0)))
        out = [self.place]
        out += [
            f"{'>' if lit else ' '} {number:>{width}}  {text}".rstrip() for number, text, lit in self.lines
        ]
        widths = [max((len(row[i]) for row in self.names), default=0) for i in range(3)]
        for row in self.names:
            cells = [f"{cell:<{w}}" for cell, w in zip(row[:3], widths, strict=True)]
            out.append("  ".join([*cells, row[3]]).rstrip())
        return "\n".join([*out, *self.notes])


def frame_of(recorder: Recorder, recording: Recording, place: int, programs: int) -> Frame:
    """Return the frame of a step of a program."""
    steps = recording.steps
    step = steps[place]
    function = recorder.functions[recording.frames[step.frame].function]
    first = last = 1
    reads: Sequence[str] = ()
    if step.statement is None:
        last = _end_of_head(function.source)
    else:
        statement = function.statements[step.statement]
        first, last, reads = statement.first, statement.last, statement.reads
    source = function.source.rstrip().splitlines()
    shown = range(max(1, first - AROUND), min(len(source), last + AROUND) + 1)
    lines = tuple((n + function.first_line - 1, source[n - 1], first <= n <= last) for n in shown)
    before = _names_before(steps, place, step.frame)
    changed = "given" if step.statement is None else "changed"
    names = [_row(name, changed, held) for name, held in step.writes if name != RETURNS]
    names += [_row("result", "returned", held) for name, held in step.writes if name == RETURNS]
    names += [_row(name, "read", before[name]) for name in reads if name in before]
    where = f"program {recording.number} (of 0–{programs - 1}), " if programs > 1 else ""
    notes = [_access(done) for done in step.accesses]
    if step.turn:
        notes.insert(0, f"iteration {step.turn[0]}" + (f" of {step.turn[1]}" if step.turn[1] else ""))
    notes += [text for text in (step.note, step.problem) if text]
    return Frame(
        f"{where}step {place + 1} of {len(steps)}, line {first + function.first_line - 1}",
        lines,
        tuple(row for rows in names for row in rows),
        tuple(notes),
    )


def _end_of_head(source: str) -> int:
    """Return the last line of a function's ``def``."""
    for number, line in enumerate(source.splitlines(), 1):
        if line.split("#")[0].rstrip().endswith(":"):
            return number
    return 1


def _names_before(steps: Sequence[Step], place: int, frame: int) -> dict[str, Held]:
    found: dict[str, Held] = {}
    for step in steps[:place]:
        if step.frame == frame:
            found.update(step.writes)
    return found


def _row(name: str, role: str, held: Held) -> list[tuple[str, str, str, str]]:
    return [(each, role, kind, text) for each, kind, text in _told(name, held)]


def _told(name: str, held: Held) -> Iterator[tuple[str, str, str]]:
    if isinstance(held, tuple):
        for place, part in enumerate(held):
            yield from _told(f"{name}[{place}]", part)
    elif isinstance(held, Plain):
        yield name, "constant", held.text
    else:
        kind = f"pointer to {held.kind}" if held.is_pointer else held.kind
        shape = f" {list(held.handle.data.shape)}" if held.is_block else ""
        yield name, kind + shape, "" if held.is_pointer else _values(held)


def _values(block: Block) -> str:
    """Return the first few values, and the range of all of them."""
    values, undefined = block.values.reshape(-1), block.undefined
    unknown = np.zeros(values.size, bool) if undefined is None else undefined.reshape(-1) > 0
    some = [
        "undefined" if u else number_text(v)
        for v, u in zip(values[:MOST_VALUES], unknown[:MOST_VALUES], strict=True)
    ]
    text = ", ".join(some) + (", ..." if values.size > MOST_VALUES else "")
    finite = values[~unknown & np.isfinite(values)] if values.dtype.kind == "f" else values[~unknown]
    if values.size > MOST_VALUES and finite.size and values.dtype.kind != "b":
        text += f"  ({number_text(finite.min())} to {number_text(finite.max())})"
    if block.off is not None:
        text += f"  ({int(block.off.sum())} of {values.size} lanes masked off)"
    return text


def number_text(value: np.generic) -> str:
    if isinstance(value, np.bool_):
        return str(bool(value))
    return f"{float(value):.5g}" if isinstance(value, np.floating) else str(int(value))


def _access(done: Done) -> str:
    access = done.access
    verb = {"load": "loads", "store": "stores to", "atomic": "updates"}[access.kind]
    good = access.mask & ~access.bad
    lanes = math.prod(access.elements.shape)
    text = f"{verb} {access.argument}: {int(good.sum())} of {lanes} lanes"
    if good.any():
        elements = access.elements[good]
        text += f", elements {int(elements.min())} to {int(elements.max())}"
    if access.bad.any():
        text += f"; {int(access.bad.sum())} lanes out of bounds"
    return text
