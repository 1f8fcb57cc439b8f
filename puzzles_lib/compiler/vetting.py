"""Refuse kernels that would run Python in Triton's front end.

Triton's interpreter runs a kernel as Python, so a call of ``torch.relu`` works there, and ``os._exit`` as
well. No compiler could translate either. Everything is decided from the source. Nothing of the kernel is
executed, and attributes are looked up on modules only.
"""

import ast
import builtins
import enum
from collections.abc import Iterator, Sequence, Set
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.jit import ConstexprFunction, JITCallable, JITFunction

from puzzles_lib.source import (
    Refusal,
    Scope,
    Site,
    is_named_tuple,
    module_named,
    nodes,
    of_triton,
    site_in,
    with_helpers,
)
from puzzles_lib.translator import wording

_PLAIN = {int, float, bool, str, type(None), *(t for t in np.sctypeDict.values() if issubclass(t, np.number))}
DEEPEST = 320  # nodes within nodes: a sum of some 310 terms compiles, where Python allows 1000 calls
# What may hang on a value of the kernel: members of blocks, descriptors, tuples, types, constants.
_MEMBERS = {
    name
    for owner in (
        tl.tensor, tl.core.tensor_descriptor, tl.tuple, tl.dtype, tl.core.slice, tl.core.pointer_type,
        tl.core.block_type,
    )
    for name in dir(owner)
    if not name.startswith("_")
} | {"value", "type", "numel", "T", "start", "stop", "step", "ALL", "NONE"}  # fmt: skip
# These are set in __init__, where dir() does not see them.
_MEMBERS |= {
    "address_space", "dtype", "itemsize", "element_ty", "exponent_bias", "fp_mantissa_width", "int_bitwidth",
    "int_signedness", "name", "primitive_bitwidth", "shape", "strides",
}  # fmt: skip
_MEMBERS |= {"bit_count", "bit_length", "endswith", "is_integer", "lower", "startswith", "upper"}
_PLAIN_FUNCTIONS = (tl.core.get_int_dtype,)  # of triton.language: Python's, and harmless
# What a constexpr function, which runs as Python, may call beside Triton's and math's.
_PYTHONS = {
    "abs", "all", "any", "bool", "divmod", "enumerate", "float", "int", "isinstance", "len", "max", "min",
    "range", "reversed", "round", "sorted", "sum", "tuple", "zip",
}  # fmt: skip
# What a constexpr function may consist of. A list of what is allowed, not of what is forbidden: whatever
# Python has beside these (imports, definitions, globals, handlers, patterns, generators) can reach out.
_PYTHON_NODES = (
    ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.While, ast.Break, ast.Continue,
    ast.Pass, ast.Assert, ast.Expr,
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword,
    ast.Attribute, ast.Tuple, ast.List, ast.Subscript, ast.Slice,
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.arguments, ast.arg,
)  # fmt: skip
# What a kernel must not contain even if no compiler looks at it, as under an `if` of a constant.
_NEVER_IN_KERNELS = (
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Try, ast.TryStar, ast.Raise,
    ast.Delete, ast.Match, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith,
    ast.AsyncFunctionDef, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.NamedExpr,
)  # fmt: skip


def vet(kernel: JITFunction) -> Refusal | None:
    """Refuse what a compiler could not translate and an interpreter would run; return None if all is well.

    A kernel may name its own values, modules on the way to ``tl.*``, ``triton.cdiv`` and the like,
    ``@triton.jit`` helpers and plain constants. Helpers are vetted in the same way. So are
    ``@triton.constexpr_function``s, which may also call some of Python's own functions.
    """
    functions: list[JITCallable] = [*with_helpers(kernel)]
    members = _MEMBERS | _fields(functions)
    for function in functions:
        scope = function.get_capture_scope()
        for parameter in getattr(function, "params", ()):
            if parameter.has_default and not _is_plain(parameter.default):
                what = type(parameter.default).__name__
                return Refusal(
                    f"{parameter.name}'s default must be a number, but is {wording.a(what)}",
                    site_in(function, 1),
                )
        every = nodes(function)
        if isinstance(function, JITFunction) and (complaint := _complain_about_parameters(every)):
            return Refusal(complaint, site_in(function, 1), advice=_PLAIN_PARAMETERS)
        if line := _too_deep(every[0]):
            return Refusal(wording.TOO_DEEP, site_in(function, line))
        for node in every:
            if isinstance(node, ast.Name) and _is_aggregate(scope.get(node.id)):
                return _aggregate(node.id, site_in(function, node.lineno))
        for node, complaint in _complaints(every, scope, members, isinstance(function, ConstexprFunction)):
            return Refusal(complaint, site_in(function, node.lineno))
        named = (scope.get(node.id) for node in every if isinstance(node, ast.Name))
        functions += [
            f
            for f in named
            if isinstance(f, ConstexprFunction)
            and not of_triton(f)
            and not any(f is other for other in functions)
        ]
    return None


_PLAIN_PARAMETERS = "remove the * or / from the parameters; a launch may still pass them by name"


def _complain_about_parameters(every: Sequence[ast.AST]) -> str | None:
    """About parameters that Triton's code generator, which reads the plain ones only, does not see."""
    function = next(node for node in every if isinstance(node, ast.FunctionDef))
    for kind, some in (("keyword", function.args.kwonlyargs), ("positional", function.args.posonlyargs)):
        if some:
            return f"{some[0].arg} is a {kind}-only parameter, which not every Triton compiles"
    return None


def _too_deep(root: ast.AST) -> int:
    """The line of what is nested more deeply than Python's own limit lets Triton go; 0 where nothing is."""
    level = [(root, 0)]
    for _ in range(DEEPEST):
        level = [(c, getattr(c, "lineno", n)) for node, n in level for c in ast.iter_child_nodes(node)]
    return level[0][1] if level else 0


def _complaints(
    every: Sequence[ast.AST], scope: Scope, members: Set[str], python: bool
) -> Iterator[tuple[Any, str]]:
    """``members``: what may hang on a value; ``python``: the function runs as Python."""
    local = _local_names(every) - {n for n, v in scope.items() if isinstance(v, ModuleType)}
    callable_ = _parameters(every) - _stored(every)
    function = next(node for node in every if isinstance(node, ast.FunctionDef))
    notes = [a for node in every if (a := getattr(node, "annotation", None) or _returns(node))]
    skipped = {id(n) for annotation in notes for n in ast.walk(annotation)}
    for annotation in notes:
        if any(isinstance(n, ast.Call | ast.NamedExpr | ast.Lambda) for n in ast.walk(annotation)):
            yield annotation, f"{ast.unparse(annotation)}: an annotation cannot call anything"
    inner = {id(n.value) for n in every if isinstance(n, ast.Attribute)}
    called = {id(n.func) for n in every if isinstance(n, ast.Call)}
    for node in every:
        complaint = _complain_about_kind(node, node is function, python)
        if complaint:
            pass
        elif id(node) in skipped:
            if isinstance(node, ast.Attribute) and module_named(node.value, scope) is None:
                complaint = f"{ast.unparse(node)}: an annotation names a type"
        elif isinstance(node, ast.Lambda):
            complaint = wording.NO_FUNCTIONS
        elif isinstance(node, ast.Attribute):
            complaint = _complain_about_attribute(node, scope, local, members, id(node) in inner)
        elif isinstance(node, ast.Call):
            complaint = _complain_about_call(node, scope, local, callable_, python)
        elif isinstance(node, ast.Name) and node.id not in local and id(node) not in called:
            complaint = _complain_about_name(node.id, scope, id(node) in inner, python)
        if complaint:
            yield node, complaint


def _complain_about_kind(node: ast.AST, outermost: bool, python: bool) -> str | None:
    """About a statement or an expression that has no place in such a function, whatever it consists of."""
    if outermost or isinstance(node, ast.Module):
        return None
    if not python:
        return wording.no_such_statement(node) if isinstance(node, _NEVER_IN_KERNELS) else None
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return f"{ast.unparse(node)}: a constexpr function cannot set an attribute"
    if isinstance(node, _PYTHON_NODES):
        return None
    return f"a constexpr function computes numbers: it cannot contain {wording.kind_of(node)}"


def _aggregate(name: str, site: Site) -> Refusal:
    """Triton 3.7.1 has them by a private name only, and in no page of its docs."""
    text = f"{name} is an aggregate, a class that Triton splits into fields; the course doesn't support it"
    advice = f"make it a named tuple, class {name}(typing.NamedTuple), and its methods @triton.jit functions"
    return Refusal(text, site, advice, by="the course's checker")


def _is_aggregate(value: object) -> bool:
    """What ``triton.language.core._aggregate`` makes of a class."""
    return isinstance(value, type) and "__triton_aggregate__" in type.__dict__["__dict__"].__get__(value)


def _fields(functions: Sequence[JITCallable]) -> set[str]:
    """The fields of the named tuples that these make."""
    made = [
        scope.get(node.id)
        for function in functions
        for scope in [function.get_capture_scope()]
        for node in nodes(function)
        if isinstance(node, ast.Name)
    ]
    return {name for value in made if is_named_tuple(value) for name in value._fields}


def _complain_about_name(name: str, scope: Scope, inner: bool, python: bool) -> str | None:
    """About a global or a builtin that is not called."""
    if name not in scope:
        allowed = name in CodeGenerator.builtin_namespace or python and name in _PYTHONS
        return (
            f"{name} is Python's, so a kernel cannot use it"
            if hasattr(builtins, name) and not allowed
            else None
        )
    value = scope[name]
    if isinstance(value, ModuleType):
        return None if inner else f"{name} is a module, not a value of the kernel"
    if isinstance(value, tl.constexpr):
        what = type(value.value).__name__
        return (
            None
            if _is_plain(value)
            else f"{name} must be a tl.constexpr of a number, but is one of {wording.a(what)}"
        )
    if _is_plain(value) or isinstance(value, ConstexprFunction) or _is_tritons(value):
        return None
    if type(value) in (list, dict, set, tuple):
        return wording.unseen(name)
    if callable(value):
        return f"{name} is {wording.a(type(value).__name__)} of Python's, so a kernel cannot use it"
    return None  # the front end explains


def _complain_about_attribute(
    node: ast.Attribute, scope: Scope, local: set[str], members: Set[str], inner: bool
) -> str | None:
    """``inner``: another attribute follows, as ``tl.math`` in ``tl.math.exp``."""
    text = ast.unparse(node)
    if node.attr.startswith("_") or node.attr == "handle":
        return f"{text} reaches into Triton's internals"
    owner = module_named(node.value, scope, local)
    if owner is None:  # hangs on a value
        held = (
            scope.get(node.value.id)
            if isinstance(node.value, ast.Name) and node.value.id not in local
            else None
        )
        held = held.value if isinstance(held, tl.constexpr) else held
        if node.attr in getattr(type(held), "_fields", ()) and _is_plain(held):  # of a named tuple
            return None
        if node.attr in _MEMBERS or (node.attr in members and _hangs_on_local(node, local)):
            return None
        return _no_member(node, text, scope, local)
    try:
        value = getattr(owner, node.attr)
    except Exception:
        return None  # the front end explains
    if inner and (isinstance(value, ModuleType) or value is tl.PropagateNan):
        return None
    if _is_plain(value) or isinstance(value, ConstexprFunction) or _is_tritons(value):
        return None
    return wording.not_tritons(text, owner.__name__)


def _hangs_on_local(node: ast.Attribute, local: set[str]) -> bool:
    root = _root(node)
    return isinstance(root, ast.Call) or (isinstance(root, ast.Name) and root.id in local)


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _no_member(node: ast.Attribute, text: str, scope: Scope, local: set[str]) -> str | None:
    root = _root(node)
    named = root.func if isinstance(root, ast.Call) else root
    if isinstance(named, ast.Name) and named.id not in local and isinstance(scope.get(named.id), type):
        return f"{named.id} is a class of Python's: make {node.attr} a @triton.jit function of its own"
    if isinstance(root, ast.Name) and root.id not in local and root.id not in scope:
        return None if not hasattr(builtins, root.id) else f"{root.id} is Python's, so a kernel cannot use it"
    instead = wording.in_triton(node.attr)
    return f"{text}: a kernel's values have no {node.attr!r}" + (f": there is {instead}" if instead else "")


def _complain_about_call(
    node: ast.Call, scope: Scope, local: set[str], callable_: set[str], python: bool
) -> str | None:
    """``callable_``: names that may hold a helper."""
    callee = node.func
    text = ast.unparse(callee)
    if isinstance(callee, ast.Attribute):
        return None  # checked as an attribute
    if not isinstance(callee, ast.Name):
        return f"{text} is not something that a kernel can call"
    if callee.id in local:
        return None if callee.id in callable_ else f"{text} is a value of the kernel, so it cannot be called"
    if callee.id in scope:
        value = scope[callee.id]
        if isinstance(value, ConstexprFunction) or _is_tritons(value) or is_named_tuple(value):
            return None
        what = "a lambda" if getattr(value, "__name__", "") == "<lambda>" else "a Python function"
        if isinstance(value, type):
            what = "a class"
        return f"the kernel calls {text}, {what}: it may call tl.*, triton.* and @triton.jit functions only"
    if text in ("getattr", "hasattr"):
        name = node.args[1] if len(node.args) > 1 else None
        if not (isinstance(name, ast.Constant) and name.value in _MEMBERS):
            return f"{text} reaches into Triton's internals"
        return None
    if text in CodeGenerator.builtin_namespace or python and text in _PYTHONS:
        return None
    if hasattr(builtins, text):
        instead = wording.in_triton(text)
        return f"{text}() is Python's, so a kernel cannot call it" + (
            f": here it is {instead}" if instead else ""
        )
    return None


def _is_tritons(value: object) -> bool:
    """A function of Triton's or of ``math``, or a ``@triton.jit`` one; all others are Python's."""
    if isinstance(value, JITFunction):
        return True
    if isinstance(value, tl.constexpr):
        return False
    if isinstance(value, JITCallable):
        value = value.fn
    elif isinstance(value, FunctionType) and not _is_compiled(value):
        return False
    try:
        module = getattr(value, "__module__", None)
    except Exception:  # a proxy of the learner's
        return False
    return isinstance(module, str) and (module in ("triton", "math") or module.startswith("triton.language"))


def _is_compiled(function: FunctionType) -> bool:
    """Whether Triton makes operations of a call; others run as Python, and tl.str_to_ty evaluates a text."""
    stub = function.__module__ == "triton.language.extra.libdevice"
    return stub or tl.core.is_builtin(function) or function in _PLAIN_FUNCTIONS


def _is_plain(value: object, known: set[int] | None = None) -> bool:
    """A constant that a kernel may hold: a number, a string, a dtype, a helper, a tuple of these.

    known: tuples looked at already, since one may hold another many times.
    """
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tuple):
        known = set() if known is None else known
        if id(value) in known:
            return True
        known.add(id(value))
        return all(_is_plain(v, known) for v in value)
    if isinstance(value, enum.IntEnum):
        own = {n for n in set(dir(int)) - set(dir(object)) if n.startswith("__")}
        return all(getattr(type(value), n) is getattr(int, n) for n in own)
    return type(value) in _PLAIN or isinstance(value, tl.dtype | JITFunction)


def _local_names(every: Sequence[ast.AST]) -> set[str]:
    names = {a.arg for node in every if isinstance(node, ast.arguments) for a in node.args}
    return names | {n.id for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _parameters(every: Sequence[ast.AST]) -> set[str]:
    """Names that may hold a helper: parameters, and what is annotated as a tl.constexpr."""
    names = {a.arg for node in every if isinstance(node, ast.FunctionDef) for a in node.args.args}
    return names | {
        n.target.id
        for n in every
        if isinstance(n, ast.AnnAssign)
        and isinstance(n.target, ast.Name)
        and "constexpr" in ast.unparse(n.annotation)
    }


def _stored(every: Sequence[ast.AST]) -> set[str]:
    """Names that are given a value otherwise."""
    annotated = {id(n.target) for n in every if isinstance(n, ast.AnnAssign)}
    return {
        n.id
        for n in every
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in annotated
    }


def _returns(node: ast.AST) -> ast.expr | None:
    return node.returns if isinstance(node, ast.FunctionDef) else None
