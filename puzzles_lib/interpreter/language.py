"""Makes ``triton.language`` execute instead of compile, for the time of a run.

Triton does this at every launch, and again at every call of a helper; here it is done once per run,
with a fixed list of replacements that is undone in full afterwards.
"""

import ast
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction, get_jit_fn_file_line

from puzzles_lib.interpreter.builder import GuardedBuilder

builder = GuardedBuilder()
semantic = TritonSemantic(builder)

LEARNER = "__learner_code__"  # marks the globals of functions that are not Triton's own
_MISSING = object()
_twins: dict[int, tuple[JITFunction, Callable]] = {}  # by id: hashing a JITFunction in mid-run raises


class _Transformer(stock.ASTTransformer):
    """As Triton's: assignments make tensors. And a loop variable with attributes becomes a tensor."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and _has_attribute(node.body, node.target.id):
            name = node.target.id
            convert = ast.parse(f"{name} = interpreter_semantic.to_tensor({name}, False)").body[0]
            node.body.insert(0, ast.copy_location(convert, node.body[0]))
        return node


def _has_attribute(body: list[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
        for statement in body
        for node in ast.walk(statement)
    )


def twin(function: JITFunction) -> Callable:
    """A Python function that executes the ``@triton.jit`` function's source, line numbers kept."""
    known = _twins.get(id(function))
    if known is not None and known[0] is function:
        return known[1]
    plain = function.fn
    file, first_line = get_jit_fn_file_line(function)
    tree = _Transformer().visit(function.parse())
    ast.fix_missing_locations(ast.increment_lineno(tree, first_line - 1))
    scope = {**function.get_capture_scope(), "interpreter_semantic": semantic}
    if not plain.__module__.startswith("triton."):
        scope[LEARNER] = True
        scope.update({name: _bound(v) for name, v in scope.items() if _is_builtin_function(v)})
    local: dict[str, Callable] = {}
    exec(compile(tree, file, "exec"), scope, local)
    made = local[plain.__name__]
    if not scope.get(LEARNER):  # Triton's own never change; a learner's globals may, between runs
        _twins[id(function)] = (function, made)
    return made


def _is_builtin_function(value: object) -> bool:
    return callable(value) and tl.core.is_builtin(value)


def _bound(member: Callable) -> Callable:
    """The builtin with our semantic filled in, as the compiler fills in its own."""

    def call(*args, **kwargs):
        kwargs.pop("_semantic", None)
        return member(*args, **kwargs, _semantic=semantic)

    return call


class _Collector:
    """Stands in for Triton's patch scope: notes what would be set."""

    def __init__(self):
        self.patches: list[tuple[object, str, object]] = []

    def set_attr(self, owner: object, name: str, value: object) -> None:
        self.patches.append((owner, name, value))


def _static_print(*values, sep: str = " ", end: str = "\n", file=None, flush=False) -> None:
    if builder.may_print():
        print(*values, sep=sep, end=end)


@functools.cache
def _patches() -> list[tuple[object, str, object]]:
    collector = _Collector()
    for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base):
        for name, member in inspect.getmembers(owner):
            if tl.core.is_builtin(member):
                collector.set_attr(owner, name, _bound(member))
            elif owner is tl.tensor and isinstance(member, JITFunction):
                # x.sum(0): a JITFunction does not bind to x by itself
                method = lambda self, *args, _function=member, **kw: twin(_function)(self, *args, **kw)  # noqa: E731
                collector.set_attr(owner, name, method)
    stock._patch_lang_tensor(tl.tensor, collector)
    for module in (tl, tl.core):
        stock._patch_lang_core(module, collector)
        collector.set_attr(module, "static_print", _static_print)
    collector.set_attr(JITFunction, "__call__", lambda self, *args, **kw: twin(self)(*args, **kw))
    return collector.patches


_active: list[tuple[object, str, object]] = []


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """While the block runs, ``tl.*`` operations execute through `builder`.

    Raises RuntimeError when a run is under way in this process already: Triton's language is global.
    """
    if _active:
        raise RuntimeError("another kernel is being run in this process; wait until it is done")
    patches = _patches()
    try:
        for owner, name, value in patches:
            _active.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, value)
        yield
    finally:
        while _active:
            owner, name, original = _active.pop()
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
