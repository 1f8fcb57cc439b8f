"""Makes Python run a kernel's source as the compiler reads it.

The two agree on most of the language. Where they do not, the source is rewritten:

- an assignment makes a tensor, also of each number in a tuple;
- ``and``, ``or``, ``not`` combine tensors, and both sides of ``and`` are computed;
- a condition is one value, not a block, and an ``assert`` holds everywhere;
- ``.value`` of a constant is the constant, and annotations are nothing;
- what a tensor decides is a tensor: ``a if c else b``, and what a function returns from several places;
- the variable of a ``range`` loop is a tensor, and undefined after the loop; that of ``tl.static_range``
  is a constant;
- the variable of a list comprehension stays, and there is no ``if`` in one.

And a ``while`` tells of its turns, so that one that never ends is known at once (`loops`).
"""

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import TensorHandle

from puzzles_lib.interpreter import loops, taint
from puzzles_lib.interpreter.memory import Halt
from puzzles_lib.interpreter.recording import Statement

RECORDER, FUNCTION = "__recorder__", "__function__"  # likewise, where a run is recorded: it, and its number
NAME = "__as_compiled__"  # under which rewritten code finds its `AsCompiled`
DECIDED = "__decided__"  # a function's local: has a tensor decided what it does?
STATIC_RANGE = tl.static_range


class NotOneValue(ValueError):
    """A block was used as a condition."""


class AsCompiled:
    """What rewritten code calls."""

    def __init__(self, semantic: TritonSemantic):
        self.semantic = semantic
        self.turning: dict[loops.Loop, loops.Turning] = {}  # ``while`` loops that were begun

    def begins(self, loop: tuple) -> None:
        """A ``while`` is reached."""
        self.turning[loops.Loop(*loop)] = loops.Turning()

    def turned(self, loop: tuple, scope: Mapping[str, object]) -> None:
        """A turn of it begins."""
        found = loops.Loop(*loop)
        if stop := loops.turned(self.turning[found], found, scope, self.semantic.builder.memory):
            raise Halt(stop)

    def assigned(self, value: object) -> object:
        if isinstance(value, tl.tensor):
            return value
        if isinstance(value, tl.tuple):
            return tl.tuple([self.assigned(v) for v in value])
        if isinstance(value, tuple):
            parts = (self.assigned(v) for v in value)
            return value._make(parts) if hasattr(value, "_make") else tuple(parts)
        return self.semantic.to_tensor(value, False)

    def condition(self, value: object, decided: list[bool] | None = None) -> bool:
        """Whether to go on here; ``decided`` takes a note where a tensor says so."""
        if not isinstance(value, tl.tensor):
            return bool(value)
        if decided is not None:
            decided.append(True)
        if value.handle.data.size > 1:
            raise NotOneValue(f"a condition must be one value, this is a block of shape {_shape(value)}")
        self.semantic.builder.memory.use(taint.labels(value.handle))
        return bool(value.handle.data.item())

    def everywhere(self, value: object) -> bool:
        if not isinstance(value, tl.tensor):
            return bool(value)
        self.semantic.builder.memory.use(taint.labels(value.handle))
        return bool(value.handle.data.all())

    def negated(self, value: object) -> object:
        return value.__not__() if isinstance(value, tl.tensor) else not value

    def unwrapped(self, value: object) -> object:
        return value if isinstance(value, int | float | str | None) else value.value

    def chosen(self, test: object, one: Callable[[], object], other: Callable[[], object]) -> object:
        """``one if test else other``."""
        value = one() if self.condition(test) else other()
        return self.assigned(value) if isinstance(test, tl.tensor) else value

    def returned(self, value: object, decided: list[bool]) -> object:
        """What one of several ``return`` statements returns."""
        return self.assigned(value) if decided and value is not None else value

    def turns(self, function: object, *bounds: object, **named: object) -> "range | Turns":
        """The values of a loop's variable."""
        start, stop, step = _bounds(*bounds, **named)
        numbers = range(*map(operator.index, (start, stop, step)))
        if function is STATIC_RANGE:
            return numbers
        if isinstance(step, tl.tensor) and numbers.step < 0:
            return range(0)  # a loop that counts up to its end
        kind = tl.int32
        for each in (start, stop, step):
            of_it = each.dtype if isinstance(each, tl.tensor) else self.semantic.to_tensor(each).dtype
            kind = self.semantic.integer_promote_impl(kind, of_it)
        return Turns(numbers, kind)

    def left(self, function: object, name: str, scope: Mapping[str, object]) -> object:
        """A loop's variable after the loop."""
        if function is STATIC_RANGE:
            return scope.get(name)
        value = _number.__wrapped__(0, tl.int32)
        label = self.semantic.builder.memory.label(f"{name} after its loop, where a GPU keeps nothing of it")
        taint.mark(value.handle, np.array([label], taint.KIND))
        return value

    def all_of(self, *_: object) -> None:
        raise TypeError("a compiler ignores the if of a comprehension: choose by tl.where, or a tl.constexpr")

    def combined(self, method: str, *parts: Callable[[], object]) -> object:
        """``and`` / ``or``: constants may end it early, tensors never do."""
        tensors = []
        for part in parts:
            value = part()
            if isinstance(value, tl.tensor):
                tensors.append(value)
            elif bool(value) is (method == "logical_or"):
                return value
        result = tensors.pop() if tensors else value
        while tensors:
            result = getattr(tensors.pop(), method)(result)
        return result


class Turns:
    """The values of a loop's variable, each made when its turn comes."""

    def __init__(self, numbers: range, kind: tl.dtype):
        self.numbers, self.kind = numbers, kind

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[tl.tensor]:
        make = _number if self.kind is tl.int32 else _number.__wrapped__
        for number in self.numbers:
            yield make(number, self.kind)


def _bounds(
    one: object, two: object = None, step: object = None, **_: object
) -> tuple[object, object, object]:
    """Start, stop and step of ``range(...)``, ``tl.range(...)`` or ``tl.static_range(...)``."""
    start, stop = (0, one) if two is None else (one, two)
    plain = [each.value if isinstance(each, tl.constexpr) else each for each in (start, stop, step)]
    return plain[0], plain[1], 1 if plain[2] is None else plain[2]


@functools.lru_cache(maxsize=4096)
def _number(value: int, kind: tl.dtype) -> tl.tensor:
    """A number as a tensor. Nothing changes a handle, so that loops can share them."""
    array = np.array([value]).astype(f"{'i' if kind.is_int_signed() else 'u'}{kind.primitive_bitwidth // 8}")
    return tl.tensor(TensorHandle(array, kind), kind)


def _shape(value: tl.tensor) -> str:
    return str([int(n) for n in value.shape])


@functools.lru_cache(maxsize=512)
def compiled(source: str, file: str, first_line: int) -> CodeType:
    """Code that defines the rewritten function, its line numbers those of the file."""
    return _code(_Rewriter(first_line - 1).visit(ast.parse(source)), file, first_line)


@functools.lru_cache(maxsize=64)
def recorded(source: str, file: str, first_line: int) -> tuple[CodeType, tuple[Statement, ...]]:
    """The same, which tells a `Recorder` named `RECORDER` of its statements; and these."""
    recording = _Recording(source)
    tree = recording.visit(_Rewriter(first_line - 1).visit(ast.parse(source)))
    return _code(tree, file, first_line), tuple(recording.statements)


def _code(tree: ast.Module, file: str, first_line: int) -> CodeType:
    ast.fix_missing_locations(ast.increment_lineno(tree, first_line - 1))
    return compile(tree, file, "exec")


class _Rewriter(ast.NodeTransformer):
    def __init__(self, before: int) -> None:
        self.before = before  # lines of the file before the function's first
        self.outside: set[str] = set()  # names that the function reads outside of the loops that bind them
        self.assigned: set[str] = set()
        self.returns = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.outside = set(_read_outside(node, frozenset()))
        self.assigned = set(_names(node, ast.Store))
        self.returns = sum(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node))
        node.body = [each for statement in node.body for each in _listed(self.visit(statement))]
        if self.returns > 1:
            nothing = ast.Assign([ast.Name(DECIDED, ast.Store())], ast.List([], ast.Load()))
            node.body.insert(0, ast.copy_location(nothing, node.body[0]))
        for argument in node.args.args:
            argument.annotation = None
        node.returns = None
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_value = node.attr == "value" and isinstance(node.ctx, ast.Load)
        return _call("unwrapped", node.value) if is_value else node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        self.generic_visit(node)
        if self.returns > 1 and node.value is not None:
            node.value = _call("returned", node.value, ast.Name(DECIDED, ast.Load()))
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        node.value = _call("assigned", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self.generic_visit(node)
        if node.value is not None and "constexpr" not in ast.unparse(node.annotation):
            node.value = _call("assigned", node.value)
        return node

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        loop = ast.Constant(tuple(loops.read(node, self.assigned, self.before)))
        self.visit_If(node)
        begins = ast.Expr(_call("begins", ast.copy_location(loop, node.test)))
        turned = ast.Expr(_call("turned", ast.copy_location(loop, node.test), _locals()))
        node.body = [*_placed([turned], node.test), *node.body]
        return [*_placed([begins], node.test), node]

    def visit_If(self, node: ast.If | ast.While) -> ast.AST:
        self.generic_visit(node)
        decided = [ast.Name(DECIDED, ast.Load())] if self.returns > 1 else []
        node.test = _call("condition", node.test, *decided)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _call("chosen", node.test, _later(node.body), _later(node.orelse))

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self.generic_visit(node)
        node.test = _call("everywhere", node.test)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        (inner, *_) = node.generators
        if inner.ifs:
            return _call("all_of", inner.iter)
        if isinstance(inner.target, ast.Name):
            hidden = f"__{inner.target.id}__"
            keep = ast.NamedExpr(ast.Name(inner.target.id, ast.Store()), ast.Name(hidden, ast.Load()))
            both = ast.Tuple([keep, node.elt], ast.Load())
            inner.target = ast.Name(hidden, ast.Store())
            node.elt = ast.copy_location(ast.Subscript(both, ast.Constant(1), ast.Load()), node.elt)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("negated", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        method = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        parts = [_later(part) for part in node.values]
        return _call("combined", ast.copy_location(ast.Constant(method), node), *parts)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name) or not isinstance(node.iter, ast.Call):
            return node
        name, function = node.target.id, node.iter.func
        turns = _call("turns", function, *node.iter.args)
        turns.keywords, node.iter = node.iter.keywords, turns
        if name not in self.outside:
            return node
        scope = ast.Call(ast.Name("locals", ast.Load()), [], [])
        left = _call("left", function, ast.Constant(name), scope)
        return [node, ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], left), node)]


def _call(name: str, first: ast.expr, *rest: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name(NAME, ast.Load()), name, ast.Load())
    call = ast.Call(ast.copy_location(function, first), [first, *rest], [])
    return ast.copy_location(call, first)


def _later(part: ast.expr) -> ast.Lambda:
    """An expression that is computed when it is asked for."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(nothing, part), part)


def _listed(statements: ast.AST | list[ast.stmt]) -> list[ast.stmt]:
    return statements if isinstance(statements, list) else [statements]


def _read_outside(node: ast.AST, bound: frozenset[str]) -> Iterator[str]:
    """Names that are read where no loop around binds them."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
        yield node.id
    for field, value in ast.iter_fields(node):
        inner = bound
        if isinstance(node, ast.For) and field == "body" and isinstance(node.target, ast.Name):
            inner = bound | {node.target.id}
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _read_outside(each, inner)


# ---- recording


class _Recording(ast.NodeTransformer):
    """Makes a rewritten function tell of each statement, and of what masks are made of."""

    def __init__(self, source: str):
        self.lines = [line.encode() for line in source.splitlines()]  # columns count bytes
        self.statements: list[Statement] = []
        self.loops: tuple[int, ...] = ()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        body = self._all(node.body)
        begin = _told("call", ast.Name(FUNCTION, ast.Load()), _locals())
        node.body = (
            _placed([begin], node) + body + _placed([_told("gave", ast.Constant(None))], node.body[-1])
        )
        return node

    def _all(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [each for statement in body for each in self._one(statement)]

    def _one(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement and what tells of it."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return [node]  # a docstring
        if isinstance(node, ast.Pass) or DECIDED in _names(node, ast.Store) or _is_ours(node):
            return [node]
        match node:
            case ast.For():
                return self._for(node)
            case ast.While() | ast.If():
                return self._test(node)
        number = self._number(node)
        enter, done = _told("enter", number), _told("done", number, _locals())
        self.generic_visit(node)
        match node:
            case ast.Return():
                value = node.value or ast.copy_location(ast.Constant(None), node)
                node.value = _telling("gave", number, value)
                return [*_placed([enter], node), node]
            case ast.Break() | ast.Continue():
                return [*_placed([enter, done], node), node]
        return [*_placed([enter], node), node, *_placed([done], node)]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        number = self._number(node, "loop")
        entered = _telling("enter", number)
        node.iter = _telling("turns", entered, self.visit(node.iter))
        around, self.loops = self.loops, (*self.loops, number.value)
        turned = _told("turned", number, _locals())
        node.body = [*_placed([turned], node), *self._all(node.body)]
        self.loops = around
        node.orelse = self._all(node.orelse)
        return [node]

    def _test(self, node: ast.While | ast.If) -> list[ast.stmt]:
        is_loop = isinstance(node, ast.While)
        number = self._number(node, "loop" if is_loop else "test")
        node.test = _telling("test", _telling("enter", number), self.visit(node.test))
        around = self.loops
        if is_loop:
            self.loops = (*around, number.value)
        node.body = self._all(node.body)
        self.loops = around
        node.orelse = self._all(node.orelse)
        return [*_placed([_told("begins", number)], node), node] if is_loop else [node]

    def _number(self, node: ast.stmt, kind: str = "") -> ast.Constant:
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
        statement = Statement(node.lineno, last, _once(reads), _once(writes), self.loops, kind)
        self.statements.append(statement)
        return ast.Constant(len(self.statements) - 1)

    # what masks are made of

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return _telling("term", node, self._text(node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        texts = [self._text(side) for side in (node.left, node.right)]
        self.generic_visit(node)
        return _telling("both", node.left, node.right, *texts) if isinstance(node.op, ast.BitAnd) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        for keyword in node.keywords:
            if keyword.arg == "mask":
                keyword.value = _telling("mask", keyword.value, self._text(keyword.value))
        place = 1 if isinstance(node.func, ast.Attribute) and node.func.attr == "load" else 2
        is_access = isinstance(node.func, ast.Attribute) and node.func.attr in _ACCESSES
        if is_access and len(node.args) > place and not any(isinstance(a, ast.Starred) for a in node.args):
            node.args[place] = _telling("mask", node.args[place], self._text(node.args[place]))
        self.generic_visit(node)
        return node

    def _text(self, node: ast.expr) -> ast.Constant:
        """An expression as the learner wrote it, on one line."""
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return ast.copy_location(ast.Constant(" ".join(b" ".join(lines).decode().split())), node)


_ACCESSES = frozenset(["load", "store", *(f"atomic_{n}" for n in "add max min and or xor xchg".split())])


def _telling(method: str, *arguments: ast.expr) -> ast.Call:
    """A call of the recorder's."""
    function = ast.Attribute(ast.Name(RECORDER, ast.Load()), method, ast.Load())
    call = ast.Call(function, list(arguments), [])
    place = next((each for each in arguments if hasattr(each, "lineno")), None)
    return ast.copy_location(call, place) if place is not None else call


def _told(method: str, *arguments: ast.expr) -> ast.Expr:
    return ast.Expr(_telling(method, *arguments))


def _placed(statements: list[ast.stmt], node: ast.AST) -> list[ast.stmt]:
    """Statements at the place of another, down to their last part."""
    for statement in statements:
        for part in ast.walk(statement):
            if not hasattr(part, "lineno"):
                ast.copy_location(part, node)
    return statements


def _locals() -> ast.Call:
    return ast.Call(ast.Name("locals", ast.Load()), [], [])


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[str]:
    """The names that are read or written somewhere in it, ours left out but `DECIDED`."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)]
    found.sort(key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
    return [n.id for n in found if n.id == DECIDED and context is ast.Store or not n.id.startswith("__")]


def _is_ours(node: ast.stmt) -> bool:
    """A call that the rewriting has put there."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(id)))):
            return id == NAME
    return False


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
