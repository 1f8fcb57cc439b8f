"""What a kernel may say: nothing that would let Python in.

The interpreter runs a kernel as Python, so a call of ``torch.relu`` works there, and ``os._exit`` as
well. No compiler could translate either. Everything is decided on the source; nothing of the kernel is
executed, and no attribute of anything but a module is looked up.
"""

import ast
import builtins
from collections.abc import Iterator
from types import ModuleType

import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.jit import JITCallable, JITFunction

from puzzles_lib.source import Refusal, Scope, module_named, site_in, with_helpers

_PLAIN = (int, float, bool, str, type(None), tl.dtype)
# What may hang on a value of the kernel: members of blocks, descriptors, tuples, dtypes, constants.
_MEMBERS = {
    name
    for owner in (tl.tensor, tl.core.tensor_descriptor, tl.tuple, tl.dtype, tl.core.slice)
    for name in dir(owner)
    if not name.startswith("_")
} | {"value", "type", "shape", "numel", "T", "strides", "start", "stop", "step", "ALL", "NONE"}


def vet(kernel: JITFunction) -> Refusal | None:
    """Refuse what a compiler could not translate and an interpreter would run; None where all is well.

    A kernel may name its own values, modules on the way to ``tl.*``, ``triton.cdiv`` and the like,
    ``@triton.jit`` helpers and plain constants. Helpers are looked at in the same way.
    """
    for function in with_helpers(kernel):
        for parameter in function.params:
            if parameter.has_default and not _is_plain(parameter.default):
                what = type(parameter.default).__name__
                return Refusal(
                    f"{parameter.name}'s default is a {what}, allowed are numbers", site_in(function, 1)
                )
        for node, complaint in _complaints(function.parse(), function.get_capture_scope()):
            return Refusal(complaint, site_in(function, node.lineno))
    return None


def _complaints(tree: ast.AST, scope: Scope) -> Iterator[tuple[ast.expr, str]]:
    local = _local_names(tree) - {n for n, v in scope.items() if isinstance(v, ModuleType)}
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        complaint = None
        if isinstance(node, ast.Attribute):
            complaint = _complain_about_attribute(node, scope, local, id(node) in inner)
        elif isinstance(node, ast.Call):
            complaint = _complain_about_call(node, scope, local)
        elif isinstance(node, ast.Name) and node.id not in local:
            value = scope.get(node.id)
            if isinstance(value, ModuleType) and id(node) not in inner:
                complaint = f"{node.id} is a module, not a value of the kernel"
            elif isinstance(value, tl.constexpr) and not _is_plain(value):
                complaint = (
                    f"{node.id} is a tl.constexpr of a {type(value.value).__name__}: allowed are numbers"
                )
        if complaint:
            yield node, complaint


def _complain_about_attribute(node: ast.Attribute, scope: Scope, local: set[str], inner: bool) -> str | None:
    """``inner``: another attribute follows, as ``tl.math`` in ``tl.math.exp``."""
    text = ast.unparse(node)
    if node.attr.startswith("_") or node.attr == "handle":
        return f"{text} reaches into Triton's internals"
    owner = module_named(node.value, scope, local)
    if owner is None:  # hangs on a value
        return None if node.attr in _MEMBERS else f"{text}: a kernel's values have no {node.attr!r}"
    try:
        value = getattr(owner, node.attr)
    except Exception:
        return None  # the front end explains
    if inner and (isinstance(value, ModuleType) or value is tl.PropagateNan):
        return None
    return None if _is_plain(value) or _may_call(value) else f"{text} is Python's, a kernel cannot use it"


def _complain_about_call(node: ast.Call, scope: Scope, local: set[str]) -> str | None:
    callee = node.func
    text = ast.unparse(callee)
    if isinstance(callee, ast.Attribute):
        return None  # checked as an attribute
    if not isinstance(callee, ast.Name):
        return f"{text} is not something that a kernel can call"
    if callee.id in local:
        return f"{text} is a value of the kernel, it cannot be called"
    if callee.id in scope:
        if _may_call(scope[callee.id]):
            return None
        what = "a lambda" if getattr(scope[text], "__name__", "") == "<lambda>" else "a Python function"
        return f"the kernel calls {text}, {what}: it may call tl.*, triton.* and @triton.jit functions only"
    if text in ("getattr", "hasattr"):
        name = node.args[1] if len(node.args) > 1 else None
        if not (isinstance(name, ast.Constant) and name.value in _MEMBERS):
            return f"{text} reaches into Triton's internals"
        return None
    if text not in CodeGenerator.builtin_namespace and hasattr(builtins, text):
        return f"{text}() is Python's, a kernel cannot call it"
    return None


def _may_call(value: object) -> bool:
    if isinstance(value, JITCallable) and not isinstance(value, JITFunction):
        value = value.fn  # a constexpr function: runs as Python, so Triton's own only
    if isinstance(value, JITFunction):
        return True
    if isinstance(value, tl.constexpr):
        return False
    module = getattr(value, "__module__", None) or ""
    return module in ("triton", "math") or module.startswith("triton.language")


def _is_plain(value: object) -> bool:
    """A constant that a kernel may hold: a number, a string, a dtype, a helper, a tuple of these."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tuple):
        return all(_is_plain(v) for v in value)
    return type(value) in _PLAIN or isinstance(value, tl.dtype | JITFunction)


def _local_names(tree: ast.AST) -> set[str]:
    names = {a.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for a in node.args}
    return names | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
