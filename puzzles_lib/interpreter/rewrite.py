"""Makes Python run a kernel's source as the compiler reads it.

The two agree on most of the language. Where they do not, the source is rewritten:

- an assignment makes a tensor, also of each number in a tuple;
- ``and``, ``or``, ``not`` combine tensors, and both sides of ``and`` are computed;
- a condition is one value, not a block, and an ``assert`` holds everywhere;
- what a tensor decides is a tensor: ``a if c else b``, and what a function returns from several places;
- the variable of a ``range`` loop is a tensor, and undefined after the loop; that of ``tl.static_range``
  is a constant;
- the variable of a list comprehension stays, and there is no ``if`` in one.
"""

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from types import CodeType

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import TensorHandle

from puzzles_lib.interpreter import taint

NAME = "__as_compiled__"  # under which rewritten code finds its `AsCompiled`
DECIDED = "__decided__"  # a function's local: has a tensor decided what it does?
STATIC_RANGE = tl.static_range


class NotOneValue(ValueError):
    """A block was used as a condition."""


class AsCompiled:
    """What rewritten code calls."""

    def __init__(self, semantic: TritonSemantic):
        self.semantic = semantic

    def assigned(self, value: object) -> object:
        if isinstance(value, tl.tensor):
            return value
        if isinstance(value, tl.tuple):
            return tl.tuple([self.assigned(v) for v in value])
        if type(value) is tuple:
            return tuple(self.assigned(v) for v in value)
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

    def chosen(self, test: object, one: Callable[[], object], other: Callable[[], object]) -> object:
        """``one if test else other``."""
        value = one() if self.condition(test) else other()
        return self.assigned(value) if isinstance(test, tl.tensor) else value

    def returned(self, value: object, decided: list[bool]) -> object:
        """What one of several ``return`` statements returns."""
        return self.assigned(value) if decided and value is not None else value

    def turns(self, function: object, *bounds: object, **named: object) -> Iterator[object]:
        """The values of a loop's variable."""
        start, stop, step = _bounds(*bounds, **named)
        numbers = range(*map(operator.index, (start, stop, step)))
        if function is STATIC_RANGE:
            yield from numbers
            return
        if isinstance(step, tl.tensor) and numbers.step < 0:
            return  # a loop that counts up to its end
        kind = tl.int32
        for each in (start, stop, step):
            of_it = each.dtype if isinstance(each, tl.tensor) else self.semantic.to_tensor_type(each)
            kind = self.semantic.integer_promote_impl(kind, of_it)
        make = _number if kind is tl.int32 else _number.__wrapped__
        for number in numbers:
            yield make(number, kind)

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
    tree = _Rewriter().visit(ast.parse(source))
    ast.fix_missing_locations(ast.increment_lineno(tree, first_line - 1))
    return compile(tree, file, "exec")


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self.outside: set[str] = set()  # names that the function reads outside of the loops that bind them
        self.returns = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.outside = set(_read_outside(node, frozenset()))
        self.returns = sum(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node))
        node.body = [each for statement in node.body for each in _listed(self.visit(statement))]
        if self.returns > 1:
            nothing = ast.Assign([ast.Name(DECIDED, ast.Store())], ast.List([], ast.Load()))
            node.body.insert(0, ast.copy_location(nothing, node.body[0]))
        return node

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

    def visit_If(self, node: ast.If | ast.While) -> ast.AST:
        self.generic_visit(node)
        decided = [ast.Name(DECIDED, ast.Load())] if self.returns > 1 else []
        node.test = _call("condition", node.test, *decided)
        return node

    visit_While = visit_If

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
