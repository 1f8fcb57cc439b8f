"""List the statements of a kernel's source, as a recorded run counts them, and name their parts."""

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from puzzles_lib.source import nodes_of

Place = tuple[int, int]  # a node's first line and column
Span = tuple[int, int, int, int]  # and its last


@dataclass(frozen=True)
class Statement:
    """A statement of a function: its lines from 1, the names it reads and writes, its loops, outermost first.

    For a statement with a body, the lines are those before the body. kind: ``"loop"``, ``"test"`` or ``""``.
    """

    first: int
    last: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loops: tuple[int, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Function:
    """A kernel or helper that ran: its source, and that source's first line in the cell or file."""

    name: str
    source: str
    first_line: int
    statements: tuple[Statement, ...]


@dataclass
class Table:
    """A function's statements, and a lookup by place (line and column) for them and their parts.

    first: where the body begins. begun: the first statement in the body of each ``for`` loop, and the loop's
        number. tests: conditions. returned: returned expressions. iterated: the arguments of a loop's range.
        masks: of accesses, as text. terms: the comparisons that masks are made of, as text. both: the two
        sides of each ``a & b``. left: by loop, the name of its variable if it is read after the loop.
    """

    statements: list[Statement] = field(default_factory=list)
    numbers: dict[Place, int] = field(default_factory=dict)
    first: Place = (0, 0)
    begun: dict[Place, int] = field(default_factory=dict)
    tests: dict[Span, int] = field(default_factory=dict)
    returned: dict[Span, int] = field(default_factory=dict)
    iterated: dict[Span, int] = field(default_factory=dict)
    masks: dict[Span, str] = field(default_factory=dict)
    terms: dict[Span, str] = field(default_factory=dict)
    both: dict[Span, tuple[str, str]] = field(default_factory=dict)
    left: dict[int, tuple[str, ...]] = field(default_factory=dict)


def place_of(node: ast.AST) -> Place:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def span_of(node: ast.AST) -> Span:
    return (*place_of(node), getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))


@functools.lru_cache(maxsize=64)
def table_of(source: str) -> Table:
    """Return the statements of a function's source. The table must not be changed."""
    function = next(n for n in nodes_of(source) if isinstance(n, ast.FunctionDef))
    return _Reader(source).read(function)


def described(name: str, source: str, first_line: int) -> Function:
    """Return a function with its statements."""
    return Function(name, source, first_line, tuple(table_of(source).statements))


_ACCESSES = frozenset(["load", "store", *(f"atomic_{n}" for n in "add max min and or xor xchg".split())])


class _Reader:
    def __init__(self, source: str):
        self.lines = [line.encode() for line in source.splitlines()]  # columns count bytes
        self.table = Table()
        self.loops: tuple[int, ...] = ()
        self.outside: set[str] = set()  # names that are read outside of the loops that bind them

    def read(self, function: ast.FunctionDef) -> Table:
        self.table.first = place_of(function.body[0])
        self.outside = set(_read_outside(function, frozenset()))
        self._all(function.body)
        for node in ast.walk(function):
            if isinstance(node, ast.Compare):
                self.table.terms[span_of(node)] = self._text(node)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
                self.table.both[span_of(node)] = self._text(node.left), self._text(node.right)
            elif isinstance(node, ast.Call) and (mask := _mask_of(node)) is not None:
                self.table.masks[span_of(mask)] = self._text(mask)
        return self.table

    def _all(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not is_docstring and not isinstance(node, ast.Pass):
                self._one(node)

    def _one(self, node: ast.stmt) -> None:
        match node:
            case ast.For():
                number = self._number(node, "loop")
                self.table.begun[place_of(node.body[0])] = number
                if isinstance(node.target, ast.Name) and node.target.id in self.outside:
                    self.table.left[number] = (node.target.id,)
                for argument in getattr(node.iter, "args", ()):
                    self.table.iterated[span_of(argument)] = number
                self._within(node.body, number)
            case ast.While():
                number = self._number(node, "loop")
                self.table.tests[span_of(node.test)] = number
                self._within(node.body, number)
            case ast.If():
                self.table.tests[span_of(node.test)] = self._number(node, "test")
                self._all(node.body)
                self._all(node.orelse)
            case ast.Return():
                number = self._number(node)
                if node.value is not None:
                    self.table.returned[span_of(node.value)] = number
            case _:
                self._number(node)

    def _within(self, body: Sequence[ast.stmt], loop: int) -> None:
        around, self.loops = self.loops, (*self.loops, loop)
        self._all(body)
        self.loops = around

    def _number(self, node: ast.stmt, kind: str = "") -> int:
        """Note a statement; returns its number."""
        body = getattr(node, "body", None)
        heads: list[ast.AST] = [node]
        if isinstance(node, ast.For):
            heads = [node.target, node.iter]
        elif isinstance(node, ast.If | ast.While):
            heads = [node.test]
        reads = [name for head in heads for name in _names(head, ast.Load)]
        writes = [name for head in heads for name in _names(head, ast.Store)]
        if isinstance(node, ast.AugAssign):
            reads = [*writes, *reads]
        last = max(node.lineno, body[0].lineno - 1) if body else (node.end_lineno or node.lineno)
        number = len(self.table.statements)
        self.table.statements.append(
            Statement(node.lineno, last, _once(reads), _once(writes), self.loops, kind)
        )
        self.table.numbers[place_of(node)] = number
        return number

    def _text(self, node: ast.expr) -> str:
        """An expression as the learner wrote it, on one line."""
        assert node.end_lineno is not None
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode().split())


def _mask_of(call: ast.Call) -> ast.expr | None:
    """Return the mask argument of a load, store or atomic."""
    for keyword in call.keywords:
        if keyword.arg == "mask":
            return keyword.value
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _ACCESSES:
        return None
    place = 1 if call.func.attr == "load" else 2
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return call.args[place] if len(call.args) > place and not starred else None


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[str]:
    """The names that are read or written somewhere in it, in their order."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)]
    found.sort(key=place_of)
    return [n.id for n in found]


def _read_outside(node: ast.AST, bound: frozenset[str]) -> Iterator[str]:
    """Names that are read where no loop around binds them."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
        yield node.id
    for name, value in ast.iter_fields(node):
        inner = bound
        if isinstance(node, ast.For) and name == "body" and isinstance(node.target, ast.Name):
            inner = bound | {node.target.id}
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _read_outside(each, inner)


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
