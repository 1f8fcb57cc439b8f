"""Describe what a cell would do besides an exercise, for a teacher to look at. It was not run.

It does not change any mark. It names code that patches a library, uses the system, or would never end.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator

MOST_TOLD = 3  # of a cell
MOST_REMARKS = 50  # of a submission
LONGEST = 300  # characters of a remark
_MODULES = {
    "atexit", "builtins", "ctypes", "gc", "glob", "importlib", "inspect", "multiprocessing", "os", "pathlib",
    "pty", "requests", "shutil", "signal", "site", "socket", "sqlite3", "subprocess", "sys", "threading",
    "urllib",
}  # fmt: skip
_CALLS = {"__import__", "compile", "delattr", "eval", "exec", "open", "setattr"}
_SHELL = re.compile(r"^(?:!|%%?(?:bash|sh|script|system|sx|run)\b)", re.MULTILINE)


def in_short(remarks: Iterable[str]) -> list[str]:
    """Return remarks in a readable form: not too long, and not too many."""
    told = [remark if len(remark) <= LONGEST else f"{remark[:LONGEST]}..." for remark in remarks]
    more = len(told) - MOST_REMARKS
    return told if more <= 0 else [*told[:MOST_REMARKS], f"and {more} more remarks"]


def asides(source: str, tree: ast.Module, classes: Collection[str] = ()) -> str:
    """Return what a cell would do besides define kernels, as one line; "" if there is nothing to report.

    classes: the names of the notebook's own classes.
    """
    found = list(dict.fromkeys(_found(source, tree, {*classes, *_layers(tree)})))
    return ", ".join([*found[:MOST_TOLD], *(["and more"] if len(found) > MOST_TOLD else [])])


def _found(source: str, tree: ast.Module, classes: Collection[str]) -> Iterator[str]:
    if _SHELL.search(source):
        yield "runs a shell command"
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"imports {a.name}" for a in names if a.name.partition(".")[0] in _MODULES)
            case ast.ImportFrom(module=str() as module) if module.partition(".")[0] in _MODULES:
                yield f"imports {module}"
            case ast.Assign(targets=targets):
                yield from (f"assigns {ast.unparse(t)[:60]}" for t in targets if _is_elsewheres(t, classes))
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
                yield f"calls {name}"
            case ast.While(test=ast.Constant(value=value)) if value and not _leaves(node):
                yield "has an endless loop"


def _layers(tree: ast.Module) -> Iterator[str]:
    """Yield the variables of loops over a function's parameter, such as the layers of a model."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            given = {each.arg for each in function.args.args} | {"enumerate"}
            for loop in ast.walk(function):
                if isinstance(loop, ast.For) and _names(loop.iter) <= given:
                    yield from _names(loop.target)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_elsewheres(target: ast.expr, classes: Collection[str]) -> bool:
    """Return whether it is part of a module or a class: ``torch.equal``, ``sys.modules["torch"]``."""
    owner = target.value if isinstance(target, ast.Subscript) else target
    match owner:
        case ast.Attribute(value=ast.Name(id=name)) if name == "self" or name in classes:
            return False  # of one of the notebook's own classes, or of a layer
    return isinstance(owner, ast.Attribute)


def _leaves(loop: ast.While) -> bool:
    return any(isinstance(node, ast.Break | ast.Return | ast.Raise) for node in ast.walk(loop))
