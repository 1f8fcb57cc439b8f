"""Find out whether the copies of a value that several threads load can do harm.

If a block has fewer elements than a program has threads, several threads hold each element. All of them load
it, and only one of them stores. A copy that is loaded too late, after that thread has stored to the same
place, does no harm in two cases:

- The copy is never stored: whatever is made of it stays with threads that don't store. It may also say how
  often these run a loop in which no thread waits for another one.
- It can't be too late: the store needs the result of a reduction over several warps, which has a barrier, and
  the reduction needs what all copies have loaded. The reduction may come after a loop that adds up what it
  loads.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from puzzles_lib.compiler.layouts import Layout, blocks, read_layout

_OPERATION = re.compile(r"^\s*(?:(%\w+)(?::\d+)?(?:, %\w+)* = )?\"?([a-z_]+\.[\w.]+)\"?(.*)$")
_NAME = re.compile(r"%\w+")
# Each thread computes these by itself, from what it holds.
_BY_ITSELF = re.compile(
    r"arith\.|math\.|tt\.(addptr|bitcast|fp_to_fp|int_to_ptr|ptr_to_int|clampf|splat|unsplat|expand_dims"
    r"|broadcast|reshape|extern_elementwise|precise_sqrt|precise_divf|mulhiui)$"
)
_STORES = ("tt.store", "amdg.buffer_store")
_WRITES = (*_STORES, "tt.atomic_rmw", "tt.atomic_cas", "amdg.buffer_atomic_rmw", "amdg.buffer_atomic_cas")
_SAME_TENSOR = ("tt.addptr", "tt.splat", "tt.bitcast", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout")


@dataclass(eq=False)
class _Operation:
    """A line of TTGIR. loops: the ``scf.for`` around it. types: text that has the types of its blocks."""

    number: int
    name: str
    result: str | None
    operands: list[str]
    text: str
    types: str
    loops: tuple[int, ...]
    gives: list[list[str]] = field(default_factory=list)  # of a loop or yield: what its first operands become


class Copies:
    """How the asynchronous copies of each load are used in TTGIR.

    lines: with unique names, as `threads` makes them.
    """

    def __init__(self, ttgir: str, lines: Sequence[str]):
        self._ttgir = ttgir
        self._operations = list(_read(lines))
        self._users: dict[str, list[_Operation]] = {}
        self._makers = {op.result: op for op in self._operations if op.result and op.name != "scf.yield"}
        for op in self._operations:
            for name in dict.fromkeys(op.operands):
                self._users.setdefault(name, []).append(op)

    def do_nothing(self, loaded: str, layout: Layout | None) -> bool:
        """Return whether the copies of a loaded value do no harm, whenever they load. loaded: its name."""
        free = _free(layout) if layout else None
        load = self._makers.get(loaded)
        if not free or load is None:
            return False
        todo, seen, at_once = [loaded], {loaded}, {loaded}
        while todo:
            value = todo.pop()
            for op in self._users.get(value, []):
                if op.name == "tt.reduce" and self._crosses_warps(op):
                    return value in at_once and self._stores_need(op, load)
                carries = op.name in ("scf.for", "scf.yield")
                closed = carries or op.name in (*_STORES, "tt.reduce") or _BY_ITSELF.match(op.name)
                if not closed or not self._keeps(op, free):
                    return False
                made = [op.result] if op.result else []
                if carries and value in op.operands[len(op.gives) :]:  # of a loop: where it begins or ends
                    if not self._runs_apart(op, free):
                        return False
                    made = [name for names in op.gives for name in names]
                elif carries:
                    places = [place for place, by in enumerate(op.operands) if by == value]
                    made = [name for place in places for name in op.gives[place]]
                elif value in at_once:
                    at_once |= set(made)
                todo += [name for name in made if name not in seen]
                seen |= set(made)
        return True

    def comes_in_time(self, loaded: str, alone: bool) -> bool:
        """Return whether one element is loaded before anything can be stored to its tensor. loaded: its name.

        That is so if all stores need a later reduction, for which threads of several warps wait.
        alone: whether only the first thread uses the element: its own warp is enough then.
        """
        load = self._makers.get(loaded)
        return load is not None and any(
            op.name == "tt.reduce"
            and op.number > load.number
            and (alone or self._crosses_warps(op))
            and self._stores_need(op, load)
            for op in self._operations
        )

    def is_summed_in_time(self, loaded: str) -> bool:
        """Return whether a whole row is loaded before anything can be stored to its tensor. loaded: its name.

        That is so if all stores need a reduction of the row. In a loop, they might need an earlier one.
        """
        load = self._makers.get(loaded)
        todo, seen = [loaded], {loaded}
        while load is not None and not load.loops and todo:
            for op in self._users.get(todo.pop(), []):
                whole = op.name == "tt.reduce" and all(len(shape) == 1 for shape, _ in blocks(op.types))
                if whole and self._stores_need(op, load):
                    return True
                if _BY_ITSELF.match(op.name) and op.result and op.result not in seen:
                    seen.add(op.result)
                    todo.append(op.result)
        return False

    def is_added_up_in_time(self, loaded: str) -> bool:
        """Return whether a loop loads all copies before anything can be stored to their tensor.

        That is so if the loop adds up what it loads, lane by lane, and all stores need a later reduction of
        the sums over several warps. loaded: the name of what one iteration loads.
        """
        load = self._makers.get(loaded)
        todo: list[tuple[str, int | None]] = [(loaded, None)]  # the number is that of a loop's result
        seen = set(todo)
        while load is not None and load.loops and todo:
            value, result = todo.pop()
            for op in self._users.get(value, []):
                if result is not None and not re.search(rf"{value}#{result}\b", op.text):
                    continue
                made: list[tuple[str, int | None]] = []
                if op.name == "tt.reduce" and len(op.loops) < len(load.loops):
                    if self._crosses_warps(op) and self._stores_need(op, load, op.loops):
                        return True
                elif op.name == "scf.yield":
                    places = [place for place, by in enumerate(op.operands) if by == value]
                    several = len(op.gives) > 1
                    made = [(op.gives[n][1], n if several else None) for n in places if self._adds_up(op, n)]
                elif _BY_ITSELF.match(op.name) and op.result:
                    made = [(op.result, None)]
                todo += [each for each in made if each not in seen]
                seen |= set(made)
        return False

    def _adds_up(self, end: _Operation, place: int) -> bool:
        """Whether each iteration of a loop makes a value from the last one's. end: the loop's yield."""
        if len(end.gives[place]) < 2:  # the yield isn't a loop's
            return False
        todo = [end.gives[place][0]]
        seen = set(todo)
        while todo:
            for op in self._users.get(todo.pop(), []):
                if _BY_ITSELF.match(op.name) and op.result and op.result not in seen:
                    seen.add(op.result)
                    todo.append(op.result)
        return end.operands[place] in seen - {end.gives[place][0]}

    def _keeps(self, op: _Operation, free: set[tuple[str, int]]) -> bool:
        """Whether all blocks of an operation have the same copies at least, in the same threads."""
        return all(free <= _free(layout) for layout in self._layouts(op))

    def _runs_apart(self, loop: _Operation, free: set[tuple[str, int]]) -> bool:
        """Whether threads may run a loop a different number of times: none waits in it for another one."""
        inside = [op for op in self._operations if loop.number in op.loops]
        apart = ("scf.for", "scf.yield", "tt.load", *_STORES)
        return all((op.name in apart or _BY_ITSELF.match(op.name)) and self._keeps(op, free) for op in inside)

    def _layouts(self, op: _Operation) -> Iterator[Layout]:
        for shape, name in blocks(op.types):
            yield read_layout(self._ttgir, name, shape)

    def _crosses_warps(self, op: _Operation) -> bool:
        axis = re.search(r"axis = (\d+)", op.text)
        layouts = list(self._layouts(op))
        if axis is None or not layouts:
            return True
        return any(step[int(axis[1])] for step in layouts[0].warp)

    def _stores_need(self, reduction: _Operation, load: _Operation, loops: Sequence[int] = ()) -> bool:
        """Whether all stores to a load's tensor that may come after it need what a reduction gives.

        loops: those whose next iterations don't count, because they need a reduction of their own.
        """
        needing, todo = {reduction}, [reduction]
        while todo:
            op = todo.pop()
            made = [op.result] if op.result else []
            for user in (user for name in made for user in self._users.get(name, [])):
                if user.name == "scf.for" and set(made) & set(user.operands[len(user.gives) :]):
                    needing |= {inner for inner in self._operations if user.number in inner.loops}
                elif user.name == "scf.yield" and set(user.loops[-1:]) & set(loops):
                    continue
                elif user not in needing and user.name != "scf.for":
                    needing.add(user)
                    if user.name != "scf.yield":
                        todo.append(user)
                        continue
                    results = {
                        names[-1] for place, names in enumerate(user.gives) if user.operands[place] in made
                    }
                    after = [self._makers[name] for name in results if name in self._makers]
                    todo += [one for one in after if one.name == "scf.for"]
        tensor = self._tensor(load)
        for op in self._operations:
            later = op.number > load.number or set(op.loops) & set(load.loops)
            if op.name in _WRITES and later and op not in needing:
                other = self._tensor(op)
                if tensor is None or other is None or tensor == other:
                    return False
        return True

    def _tensor(self, access: _Operation) -> str | None:
        """The kernel's argument that an access is to; None if that is not plain."""
        name = access.operands[0] if access.operands else None
        while name is not None and (maker := self._makers.get(name)):
            if maker.name not in _SAME_TENSOR or not maker.operands:
                return None
            name = maker.operands[0]
        return name


def _read(lines: Sequence[str]) -> Iterator[_Operation]:
    """The operations of a function, with what a yield becomes."""
    stack: list[tuple[_Operation | None, list[str]]] = []  # what has a region, and its arguments
    for number, line in enumerate(lines):
        text = line.strip()
        opener: tuple[_Operation | None, list[str]] | None = None
        if text.startswith("}"):
            opener = stack.pop() if stack else None
            if opener and opener[0] is not None and " : " in text:
                opener[0].types = text[text.index(" : ") :]
        match = _OPERATION.match(line)
        made = None
        if match:
            result, name, rest = match.groups()
            types = rest[rest.rindex(" : ") :] if " : " in rest else ""
            loops = tuple(op.number for op, _ in stack if op is not None and op.name == "scf.for")
            values = rest.split(" : ")[0] if name != "scf.for" else rest
            made = _Operation(number, name, result, _NAME.findall(values), rest, types, loops)
            if name == "scf.for":
                head, _, carried = rest.partition("iter_args(")
                pairs = re.findall(r"(%\w+) = (%\w+)", carried.partition(")")[0])
                made.operands = [*(value for _, value in pairs), *_NAME.findall(head)[1:]]
                made.gives = [[own, *([result] if result else [])] for own, _ in pairs]
            if name == "scf.yield" and stack and (around := stack[-1][0]) is not None:
                arguments = stack[-1][1]
                own = [around.result] if around.result else []
                made.gives = [[*arguments[place : place + 1], *own] for place in range(len(made.operands))]
            yield made
        if text.endswith("{"):
            arguments = re.findall(r"(%\w+) = %", line.partition("iter_args(")[2])
            stack.append((made, arguments) if made is not None or opener is None else opener)


def _free(layout: Layout) -> set[tuple[str, int]]:
    """The bits of a thread's number that say which copy it holds."""
    parts: Mapping[str, Sequence[tuple[int, ...]]] = {"lane": layout.lane, "warp": layout.warp}
    return {(part, bit) for part, steps in parts.items() for bit, step in enumerate(steps) if not any(step)}
