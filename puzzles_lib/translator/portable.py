"""Pack a kernel into bytes for a process that has Triton, but not the notebook's cells.

pickle stores functions by name. Here a learner's function is stored with its code and the globals that it
names. Triton's functions are stored by name. Everything else that another process may lack is refused.
"""

import ast
import functools
import importlib
import inspect
import io
import linecache
import marshal
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import triton.language as tl
from triton.runtime.jit import ConstexprFunction, JITCallable, JITFunction

from puzzles_lib.source import nodes_of

THERE = ("triton", "puzzles_lib.translator", "puzzles_lib.source", "math", "builtins", "importlib")
_PYTHONS = (BuiltinFunctionType, MethodType, type(None))
_SETTINGS = ("version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
_ATTRIBUTES = (
    "__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__", "__annotations__",
)  # fmt: skip
_NEEDED_IF_HIDDEN = (JITCallable, tl.constexpr, ModuleType)  # the most values of globals
_CONSTANTS = {id(value): name for name, value in vars(tl).items() if type(value) is tl.dtype}


def packed(thing: object) -> bytes | None:
    """Return bytes that `unpacked` restores in another process; None if a part can't be sent."""
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(thing)
    except Exception:  # a learner's object may raise anything
        return None
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """Return what was `packed`. The learner's functions are the same, but not in any file."""
    return pickle.loads(data)


class _Stays(Exception):
    """It cannot be recreated in another process, or perhaps not the same."""


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, ModuleType):
            if not _is_there(thing.__name__) or sys.modules.get(thing.__name__) is not thing:
                raise _Stays
            return importlib.import_module, (thing.__name__,)
        if id(thing) in _CONSTANTS and type(thing) is tl.dtype:  # `is` must hold there, too
            return getattr, (tl, _CONSTANTS[id(thing)])
        if isinstance(thing, JITCallable):
            return _by_name(thing) or _parts_of_callable(thing)
        if isinstance(thing, FunctionType):
            return _by_name(thing) or _parts_of_function(thing)
        kind = thing if isinstance(thing, type) else type(thing)
        if kind not in _PYTHONS and _by_name(kind) is None:  # taking it apart runs nothing of the learner's
            raise _Stays
        return NotImplemented


def _is_there(module: object) -> bool:
    return isinstance(module, str) and any(module == name or module.startswith(f"{name}.") for name in THERE)


def _by_name(thing: Any) -> str | None:
    """Return the name of a function, a kernel or a class in its module; None if it has none there."""
    owner = sys.modules.get(thing.__module__) if _is_there(thing.__module__) else None
    name: str = thing.__name__
    return name if owner and vars(owner).get(name) is thing else None


# Each function is made empty and filled later, because it may refer to itself.


def _parts_of_callable(function: JITCallable) -> tuple:
    if type(function) not in (JITFunction, ConstexprFunction):
        raise _Stays
    named, own = _names(function.src)
    names = {*named}
    if type(function) is JITFunction:
        scope = function.get_capture_scope()
        names -= {name for name in own if not isinstance(scope.get(name), _NEEDED_IF_HIDDEN)}
    state = {
        "code": marshal.dumps(function.fn.__code__),
        "function": _state(function.fn, names),
        "text": (function.src, function.raw_src, function.starting_line_number),
        "settings": {name: getattr(function, name) for name in _SETTINGS if hasattr(function, name)},
        "repr": getattr(function, "_repr", None),
    }
    return object.__new__, (type(function),), state, None, None, _fill_callable


@functools.lru_cache(maxsize=256)  # a check packs its kernel about ten times
def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names in a function's source, and those whose globals the front end never reads.

    The latter are the kernel's own: a notebook's tensor ``x`` does not matter to a kernel that sets an ``x``.
    Names that may be read before they are set are not included. Neither are names with an attribute, because
    Triton's search for an early return looks up such a global. Names of helpers, which `with_helpers` finds,
    are for the caller to keep.
    """
    every = nodes_of(text)
    definition = every[0].body[0]  # type: ignore[attr-defined]
    named = frozenset(node.id for node in every if isinstance(node, ast.Name))
    if not isinstance(definition, ast.FunctionDef):
        return named, frozenset()
    found = {*named}
    for node in every:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.discard(node.value.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.difference_update(node.names)
    arguments = definition.args
    for node in (arguments, *definition.decorator_list, *filter(None, [definition.returns])):
        found -= _read_in(node)  # before there are any parameters
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    found -= _read_unset(definition.body, {each.arg for each in parameters})
    return named, frozenset(found)


def _read_unset(body: Iterable[ast.stmt], known: set[str]) -> set[str]:
    """Return the names that statements may read before they set them. known: names set so far, extended."""
    found: set[str] = set()
    for statement in body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            targets = [statement.target]
        elif isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            found |= _read_in(statement.iter) - known
            found |= _read_unset(statement.body, known | {statement.target.id})
            found |= _read_unset(statement.orelse, {*known})
            continue
        elif isinstance(statement, ast.If | ast.While):
            found |= _read_in(statement.test) - known
            found |= _read_unset(statement.body, {*known}) | _read_unset(statement.orelse, {*known})
            continue
        found |= _read_in(statement) - known
        known |= _set_by(targets)
    return found


def _set_by(targets: Iterable[ast.expr]) -> set[str]:
    parts = [part for target in targets for part in getattr(target, "elts", [target])]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _read_in(node: ast.AST) -> set[str]:
    """Return the names that a statement may read: all except those that an assignment certainly sets."""
    outright = {
        id(part)
        for each in ast.walk(node)
        if isinstance(each, ast.Assign | ast.AnnAssign)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        for part in getattr(target, "elts", [target])
    }
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in outright}


def _fill_callable(function: JITCallable, state: Mapping) -> None:
    made = _empty_function(state["code"])
    _fill_function(made, state["function"])
    text, source, first = state["text"]
    settings = state["settings"] | ({"repr": state["repr"]} if state["repr"] else {})
    known, inspect.getsourcelines = inspect.getsourcelines, lambda object: (source, first)
    try:
        type(function).__init__(function, made, **settings)
    finally:
        inspect.getsourcelines = known
    function._unsafe_update_src(text)
    _have_lines(made.__code__.co_filename, first, source)


def _parts_of_function(function: FunctionType) -> tuple:
    state = _state(function, {*_named(function.__code__)})
    return _empty_function, (marshal.dumps(function.__code__),), state, None, None, _fill_function


def _state(function: FunctionType, names: Iterable[str]) -> dict[str, object]:
    scope = function.__globals__
    return {
        "globals": {name: scope[name] for name in names if name in scope},
        "cells": [cell.cell_contents for cell in function.__closure__ or ()],
        "attributes": {name: getattr(function, name) for name in _ATTRIBUTES},
    }


def _named(code: CodeType) -> Iterator[str]:
    """Return the globals and attributes that a function may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant)


def _empty_function(code: bytes) -> FunctionType:
    found = marshal.loads(code)
    return FunctionType(found, {}, closure=tuple(CellType() for _ in found.co_freevars))


def _fill_function(function: FunctionType, state: Mapping) -> None:
    function.__globals__.update(state["globals"])
    for cell, value in zip(function.__closure__ or (), state["cells"], strict=True):
        cell.cell_contents = value
    for name, value in state["attributes"].items():
        setattr(function, name, value)


def _have_lines(file: str, first: int, lines: list[str]) -> None:
    """Let ``linecache`` know these lines of a file."""
    entry: tuple = linecache.cache.get(file, ())
    known = entry[2] if len(entry) == 4 else []
    known = known + ["\n"] * (first - 1 + len(lines) - len(known))
    known[first - 1 : first - 1 + len(lines)] = lines
    linecache.cache[file] = (len(known), None, known, file)
