"""``while`` loops that never end, told by what their condition hangs on.

Programs run one after the other, so nothing changes while one of them waits. A turn that leaves memory
and all that the condition hangs on as the turn before it did is followed by the same turn for ever.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from puzzles_lib.interpreter.records import Stop

if TYPE_CHECKING:
    from puzzles_lib.interpreter.memory import Memory

PATIENCE = 200  # turns of a loop before anybody looks whether it goes on for ever
_WRITING = ("store", "atomic_")  # what a call's name begins with that changes memory


class Loop(NamedTuple):
    """A loop. hangs_on: names whose values, with what memory holds, say how it goes on.

    counts: names of the condition that the function assigns. lines: where the condition's values come from.
    asks: whether some of them may come from memory.
    """

    hangs_on: tuple[str, ...]
    counts: tuple[str, ...]
    lines: tuple[int, ...]
    asks: bool


def read(node: ast.While, assigned: set[str], before: int) -> Loop:
    """assigned: names that the function assigns. before: lines of the file before the function's first."""
    statements = list(_statements(node.body, ()))
    parts: list[ast.AST] = [node.test]
    _grow(parts, statements, lambda statement: False)
    asks = any(_asks(call) for part in parts for call in _calls(part))
    lines = {line + before for part in parts for line in range(part.lineno, part.end_lineno + 1)}
    _grow(parts, statements, _matters)
    return Loop(
        tuple(sorted({name for part in parts for name in _names(part)} & assigned)),
        tuple(dict.fromkeys(name for name in _names(node.test) if name in assigned)),
        tuple(sorted(lines)),
        asks,
    )


_Statement = tuple[ast.AST, tuple[ast.expr, ...]]  # and the conditions under which it runs


def _grow(parts: list[ast.AST], statements: list[_Statement], matters: Callable[[ast.AST], bool]) -> None:
    """Add the statements that matter, and all that assign what others of the parts read."""
    grown = True
    while grown:
        grown = False
        wanted = {name for part in parts for name in _names(part)}
        for statement, around in statements:
            if statement not in parts and (matters(statement) or _assigned(statement) & wanted):
                parts += [part for part in (statement, *around) if part not in parts]
                grown = True


def _statements(body: list[ast.stmt], around: tuple[ast.expr, ...]) -> Iterator[_Statement]:
    """Statements that have no body; of a ``for``, the assignment of its variable."""
    for statement in body:
        match statement:
            case ast.If() | ast.While():
                yield from _statements(statement.body + statement.orelse, (*around, statement.test))
            case ast.For():
                yield from _statements(statement.body + statement.orelse, (*around, statement.iter))
                yield ast.copy_location(ast.Assign([statement.target], statement.iter), statement), around
            case _:
                yield statement, around


def _matters(statement: ast.AST) -> bool:
    """Whether it may end the loop, or change what memory holds."""
    if isinstance(statement, ast.Return | ast.Break | ast.Continue):
        return True
    return not all(map(_only_computes, _calls(statement)))


def _assigned(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _names(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]


def _calls(node: ast.AST) -> list[ast.Call]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Call)]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _asks(call: ast.Call) -> bool:
    """Whether it may look at memory."""
    return _called(call) in ("load", "gather") or not _only_computes(call)


def _only_computes(call: ast.Call) -> bool:
    """Whether it is Triton's and changes nothing; of a helper nobody knows."""
    name = _called(call)
    known = hasattr(tl, name) or hasattr(tl.tensor, name)
    return bool(name) and known and not name.startswith(_WRITING)


@dataclass
class Turning:
    """A loop that runs: its turns, and what the last one began with."""

    turns: int = 0
    state: object = None
    changes: int = -1


def turned(turning: Turning, loop: Loop, scope: Mapping[str, object], memory: "Memory") -> Stop | None:
    """A turn begins; a Stop where it is the one that goes on for ever."""
    turning.turns += 1
    if turning.turns < PATIENCE:
        return None
    state = [_kept(scope.get(name)) for name in loop.hangs_on]
    same = turning.changes == memory.changes and turning.state == state
    turning.state, turning.changes = state, memory.changes
    if not same:
        memory.asked = None
        return None
    if memory.asked is None:  # let a last turn show what it asks for
        memory.asked = []
        return None
    asked = [each for each in memory.asked if each.buffer.is_output]  # nobody may change the others
    asked = [each for each in asked if each.site.line in loop.lines] or asked
    if loop.asks and asked:
        return memory.deadlock(asked[0])
    what = " or ".join(loop.counts)
    why = f"no turn changes {what}" if what else "nothing in it changes its condition"
    text = f"time limit: this loop never ends in program {memory.program}: {why}"
    return Stop("time limit", text, memory.site())


def _kept(value: object) -> object:
    """What tells a value from another one."""
    if isinstance(value, tl.tensor):
        return _kept_handle(value.handle)
    if isinstance(value, tl.constexpr):
        return _kept(value.value)
    if isinstance(value, tuple | list | tl.tuple):
        return [_kept(each) for each in value]
    return (type(value), value)


def _kept_handle(handle: object) -> object:
    if isinstance(handle, TensorHandle):
        data = np.asarray(handle.data)
        return data.shape, data.dtype.str, data.tobytes()
    if hasattr(handle, "offsets"):  # a block pointer
        return [_kept_handle(each) for each in (handle.base, *handle.offsets)]
    return handle
