"""Find a line of a kernel that has no effect, such as ``z * 2``, or ``x = 2 * x`` if x isn't read again."""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import replace

from triton.runtime.jit import JITFunction

from puzzles_lib.checker.report import Verdict
from puzzles_lib.source import site_in

OVERWRITES = "stores to the same addresses, so it overwrites what this line stores"
UNUSED = "the result of this line is never used"


def without_effect(verdict: Verdict, kernel: JITFunction) -> Verdict | None:
    """Return the same fault with a line that has no effect; None if there is no such line."""
    try:
        (function,) = ast.parse(textwrap.dedent(kernel.src)).body
    except (SyntaxError, ValueError):  # an inner function with a docstring whose lines begin further left
        return None
    for statement in (*_lost_dots(function), *_outside_of_loops(function)):
        if text := _idle(statement, function):
            told = f"{verdict.diagnosis}; {text}" if verdict.diagnosis else text
            return replace(verdict, diagnosis=told, site=site_in(kernel, statement.lineno))
    if lost := _overwritten(function):
        first, second = lost
        text = f"line {site_in(kernel, second.lineno).line} {OVERWRITES}"
        told = f"{verdict.diagnosis}; {text}" if verdict.diagnosis else text
        return replace(verdict, diagnosis=told, site=site_in(kernel, first.lineno))
    return None


def _overwritten(function: ast.AST) -> tuple[ast.stmt, ast.stmt] | None:
    """Return two stores to the same addresses, with the same mask, between which nothing is read from memory.

    None if there are none outside of loops and conditions.
    """
    seen: dict[str, ast.Expr] = {}
    for statement in getattr(function, "body", []):
        call = statement.value if isinstance(statement, ast.Expr) else None
        is_store = isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.store"
        if (
            isinstance(statement, ast.Expr)
            and isinstance(call, ast.Call)
            and is_store
            and len(call.args) == 2
        ):
            where = ", ".join(map(ast.unparse, (call.args[0], *call.keywords)))
            if where in seen:
                return seen[where], statement
            seen[where] = statement
            continue
        simple = isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets)
        if not simple or any(isinstance(node, ast.Call) for node in ast.walk(statement)):
            seen.clear()
            continue
        changed = {ast.unparse(target) for target in statement.targets}
        for where in list(seen):
            if changed & {n.id for n in ast.walk(seen[where]) if isinstance(n, ast.Name)}:
                del seen[where]
    return None


def _lost_dots(function: ast.AST) -> Iterator[ast.stmt]:
    """Yield the calls of `tl.dot`, also in loops, whose result no name takes."""
    statements = (node for node in ast.walk(function) if isinstance(node, ast.Expr))
    return (each for each in statements if ast.unparse(each).startswith("tl.dot("))


def _outside_of_loops(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in their order; what a loop sets may be read in its next iteration."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not isinstance(child, ast.For | ast.While | ast.FunctionDef):
            yield child
            yield from _outside_of_loops(child)


def _idle(statement: ast.stmt, function: ast.AST) -> str:
    """Say that a statement has no effect; "" if it may have one."""
    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.dot":
            return "tl.dot changes none of its arguments: assign what it returns"
        if not isinstance(value, ast.BinOp | ast.Compare | ast.UnaryOp | ast.Name):
            return ""
        if any(isinstance(node, ast.Call) for node in ast.walk(value)):
            return ""
        if isinstance(value, ast.Compare) and isinstance(value.left, ast.Name):
            if [type(op) for op in value.ops] == [ast.Eq]:
                return f"== compares: write = to set {value.left.id}"
        return UNUSED
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return ""
    if (
        not isinstance(target, ast.Name)
        or isinstance(statement, ast.Assign)
        and not _reads(statement, target)
    ):
        return ""
    end = statement.end_lineno or 0, statement.end_col_offset or 0
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.stmt))
    below = (node for node in nodes if (node.lineno, node.col_offset) >= end)  # perhaps on the same line
    return "" if any(_reads(node, target) for node in below) else UNUSED


def _reads(statement: ast.stmt, target: ast.Name) -> bool:
    """Return whether a statement reads a name; `x += 1` does."""
    return any(
        isinstance(node, ast.Name)
        and node.id == target.id
        and isinstance(node.ctx, ast.Load)
        or isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == target.id
        for node in ast.walk(statement)
    )
