"""Makes Python run a kernel's source as the compiler reads it.

The two agree on most of the language. Where they do not, the source is rewritten:

- an assignment makes a tensor, also of each number in a tuple;
- ``and``, ``or``, ``not`` combine tensors, and both sides of ``and`` are computed;
- a condition is one value, not a block, and an ``assert`` holds everywhere;
- the variable of a ``range`` loop is a tensor (where the kernel could tell, since tensors cost time).
"""

import ast
import functools
from collections.abc import Callable
from types import CodeType

import triton.language as tl
from triton.language.semantic import TritonSemantic

from puzzles_lib.interpreter import taint

NAME = "__as_compiled__"  # under which rewritten code finds its `AsCompiled`


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

    def condition(self, value: object) -> bool:
        if not isinstance(value, tl.tensor):
            return bool(value)
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


def _shape(value: tl.tensor) -> str:
    return str([int(n) for n in value.shape])


@functools.lru_cache(maxsize=512)
def compiled(source: str, file: str, first_line: int) -> CodeType:
    """Code that defines the rewritten function, its line numbers those of the file."""
    tree = _Rewriter().visit(ast.parse(source))
    ast.fix_missing_locations(ast.increment_lineno(tree, first_line - 1))
    return compile(tree, file, "exec")


class _Rewriter(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        node.value = _call("assigned", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        self.generic_visit(node)
        if node.value is not None and "constexpr" not in ast.unparse(node.annotation):
            node.value = _call("assigned", node.value)
        return node

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = _call("condition", node.test)
        return node

    visit_While = visit_IfExp = visit_If

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self.generic_visit(node)
        node.test = _call("everywhere", node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs = [_call("condition", test) for test in node.ifs]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("negated", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        method = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        parts = [ast.copy_location(ast.Lambda(nothing, part), part) for part in node.values]
        return _call("combined", ast.copy_location(ast.Constant(method), node), *parts)

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        target = node.target
        if isinstance(target, ast.Name) and "static_range" not in ast.unparse(node.iter):
            if _could_tell(node.body, target.id):
                loaded = ast.copy_location(ast.Name(target.id, ast.Load()), node.body[0])
                convert = ast.Assign([ast.Name(target.id, ast.Store())], _call("assigned", loaded))
                node.body.insert(0, ast.copy_location(convert, node.body[0]))
        return node


def _call(name: str, first: ast.expr, *rest: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name(NAME, ast.Load()), name, ast.Load())
    call = ast.Call(ast.copy_location(function, first), [first, *rest], [])
    return ast.copy_location(call, first)


def _could_tell(body: list[ast.stmt], name: str) -> bool:
    """Whether a plain integer in place of a tensor might make a difference to the loop's body."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div):
                continue
            if isinstance(node, ast.Compare | ast.Subscript):
                continue
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.iter_child_nodes(node)):
                return True
    return False
