"""Name a slip in a loop with running sums, as an online softmax has: the lines show it, and the values fit.

A sum that is never added to gives 0 or 0 / 0, and so does ``(total + new) * factor``, because the first
factor of an online softmax is 0. Such values have many causes, so the source decides between them.
"""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace

from triton.runtime.jit import JITFunction

from puzzles_lib.checker.compare import ZERO
from puzzles_lib.checker.report import Verdict
from puzzles_lib.source import site_in

ADDED = "no line adds to"
_ZEROS = (ZERO, " NaN: 0 / 0", "divided by 0")
_INFINITIES = (" NaN: 0 * inf", " NaN: inf / inf")
_OPPOSITE = (" NaN: inf - inf", " NaN: inf + (-inf)")
_OVERFLOW = ("an exp overflowed",)
_EXPONENTIALS = ("tl.exp", "tl.exp2", "tl.math.exp", "tl.math.exp2")


@dataclass(frozen=True)
class _Slip:
    """A slip: the words, with {} for its line, what they explain, and the line in the source."""

    text: str
    explains: tuple[str, ...]
    line: int = 0


def named(verdict: Verdict, kernel: JITFunction) -> Verdict | None:
    """Return a verdict of wrong values with the slip in a running sum; None if no line has one."""
    try:
        (function,) = ast.parse(textwrap.dedent(kernel.src)).body
    except (SyntaxError, ValueError):  # an inner function with a docstring whose lines begin further left
        return None
    for slip in (*_never_added_to(function), *_in_loops(function)):
        if any(words in verdict.diagnosis for words in slip.explains):
            site = site_in(kernel, slip.line) if slip.line else None
            text = slip.text.replace("{}", str(site.line)) if site else slip.text
            if text.startswith(ADDED) and verdict.diagnosis.startswith(ZERO):
                text = f"{verdict.diagnosis}: {text.partition(':')[0]}"
            return replace(verdict, diagnosis=text, site=site)
    return None


def _never_added_to(function: ast.AST) -> Iterator[_Slip]:
    """Yield the sums that start before a loop and are used after it, and aren't mentioned in between."""
    body: list[ast.stmt] = getattr(function, "body", [])
    found = []
    for place, each in enumerate(body):
        name, value = _set(each)
        if not name or value is None or not _starts(value):
            continue
        later = body[place + 1 :]
        used = next((n for n, each in enumerate(later) if name in _names(each)), 0)
        loops = any(isinstance(each, ast.For | ast.While) for each in later[:used])
        if loops and not any(_set(node)[0] == name for each in later for node in ast.walk(each)):
            found.append(name)
    if found:
        stay = "it stays as it was" if len(found) == 1 else "they stay as they were"
        yield _Slip(f"{ADDED} {' or '.join(found)}: {stay} before the loop", _ZEROS)


def _starts(value: ast.expr) -> bool:
    """Return whether a sum may start as this value, a block of zeros."""
    match value:
        case ast.Call(func, [_, ast.Constant(0), *_]) if ast.unparse(func) == "tl.full":
            return True
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.zeros"


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _in_loops(function: ast.AST) -> Iterator[_Slip]:
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.While):
            yield from _new_terms_scaled(loop.body)
            yield from _divided(loop.body)
            yield from _left_behind(loop.body)
            yield from _upside_down(loop)
            yield from _swapped(loop)
            yield from _old_maximum(loop)
            yield from _hidden_before_the_product(loop)
            yield from _hidden_by_plus_infinity(loop)
            yield from _scores_for_weights(loop)


def _new_terms_scaled(body: list[ast.stmt]) -> Iterator[_Slip]:
    """Yield ``total = (total + new) * factor``, and ``total *= factor`` after ``total += new``."""
    added: set[str] = set()
    for statement in body:
        name, value = _set(statement)
        if not name or value is None:
            continue
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            for sides in ((value.left, value.right), (value.right, value.left)):
                is_sum = _is_sum_with(sides[0], name)
                if is_sum or (_is(sides[0], name) and name in added):
                    text = "line {} multiplies the new terms by the factor, too, and the first factor is 0"
                    yield _Slip(f"{text}: multiply only the old {name}", _ZEROS, statement.lineno)
        if _is_sum_with(value, name):
            added.add(name)


def _divided(body: list[ast.stmt]) -> Iterator[_Slip]:
    """Yield ``total = total / factor + new``, if the factor is an exponential that the loop computes."""
    factors = {name for name, value in map(_set, body)
               if isinstance(value, ast.Call) and ast.unparse(value.func) in _EXPONENTIALS}  # fmt: skip
    for statement in body:
        name, value = _set(statement)
        for node in ast.walk(value) if value else ():
            match node:
                case ast.BinOp(ast.Name(total), ast.Div(), ast.Name(factor)):
                    if total == name and factor in factors:
                        text = f"line {{}} divides the old {total} by {factor}, which is 0 at first: multiply"
                        yield _Slip(text, _ZEROS, statement.lineno)


def _left_behind(body: list[ast.stmt]) -> Iterator[_Slip]:
    """Yield ``new = tl.maximum(old, ...)`` if the loop doesn't set the old maximum to anything else."""
    changed = {name for name, value in map(_set, body) if value is not None and not _is(value, name)}
    for statement in body:
        name, value = _set(statement)
        match value:
            case ast.Call(func, [ast.Name(one), other]) if ast.unparse(func) == "tl.maximum":
                old = one if one not in changed else other.id if isinstance(other, ast.Name) else ""
                if old and old not in changed:
                    text = f"{old} stays what it was before the loop: set it to {name} after each block"
                    yield _Slip(text, _OVERFLOW, statement.lineno)


def _set(statement: ast.AST) -> tuple[str, ast.expr | None]:
    """Return the name that a statement sets, and its new value; ``x += y`` sets x to ``x + y``."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        name = statement.target.id
        return name, ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    return "", None


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_sum_with(node: ast.expr, name: str) -> bool:
    """Return whether an expression is a sum of this name and something else."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and (_is(node.left, name) or _is(node.right, name))
    )


def _upside_down(loop: ast.For | ast.While) -> Iterator[_Slip]:
    """Yield the exponential of a new maximum minus the old one, which becomes the new one in the loop."""
    becomes = {(name, value.id) for name, value in map(_set, loop.body) if isinstance(value, ast.Name)}
    for node in ast.walk(loop):
        match node:
            case ast.Call(func, [ast.BinOp(ast.Name(new), ast.Sub(), ast.Name(old))]):
                if ast.unparse(func) in _EXPONENTIALS and (old, new) in becomes:
                    text = "the factor on line {} is inf in the first block: take old minus new"
                    yield _Slip(f"{text}, {old} - {new}", _INFINITIES, node.lineno)


def _old_maximum(loop: ast.For | ast.While) -> Iterator[_Slip]:
    """Yield the exponential of scores minus the old maximum, which becomes the new one later in the loop."""
    becomes = {name: (value.id, each.lineno) for each in loop.body for name, value in [_set(each)]
               if isinstance(value, ast.Name)}  # fmt: skip
    for node in ast.walk(loop):
        match node:
            case ast.Call(func, [ast.BinOp(scores, ast.Sub(), ast.Subscript(ast.Name(old)))]):
                new, line = becomes.get(old, ("", 0))
                if ast.unparse(func) in _EXPONENTIALS and node.lineno < line and new not in _names(scores):
                    text = f"line {{}} subtracts {old}, the old maximum, so its exp overflows: subtract {new}"
                    yield _Slip(text, (*_INFINITIES, *_OPPOSITE), node.lineno)


def _hidden_before_the_product(loop: ast.For | ast.While) -> Iterator[_Slip]:
    """Yield a load or tl.where that gives -inf for some lanes, if the result is a factor of a product."""
    factors = {name for node in ast.walk(loop) for each in _factors(node) for name in _names(each)}
    for statement in loop.body:
        name, value = _set(statement)
        if name in factors and isinstance(value, ast.Call):
            loads, chooses = (ast.unparse(value.func) == each for each in ("tl.load", "tl.where"))
            if (
                loads and any(each.arg == "other" and _is_infinite(each.value) for each in value.keywords)
            ) or (chooses and any(map(_is_infinite, value.args[1:]))):
                text = f"{name} is -inf in lanes that don't exist, and a negative factor makes that inf"
                yield _Slip(f"{text}: load 0, and hide the products", _OPPOSITE, statement.lineno)


def _hidden_by_plus_infinity(loop: ast.For | ast.While) -> Iterator[_Slip]:
    """Yield a tl.where that gives +inf, if the loop computes exponentials."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    if not any(ast.unparse(call.func) in _EXPONENTIALS for call in calls):
        return
    for call in calls:
        if ast.unparse(call.func) == "tl.where" and any(_is_plus_infinite(each) for each in call.args[1:]):
            text = 'line {} hides lanes by +inf, which is larger than any number: write float("-inf")'
            yield _Slip(text, _OPPOSITE, call.lineno)


def _is_plus_infinite(value: ast.expr) -> bool:
    return ast.unparse(value) in ("float('inf')", "-float('-inf')")


def _factors(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            return [left, right]
        case ast.Call(func, [left, right, *_]) if ast.unparse(func) == "tl.dot":
            return [left, right]
    return []


def _scores_for_weights(loop: ast.For | ast.While) -> Iterator[_Slip]:
    """Yield a product of scores that are hidden by -inf, if the loop computes their exponentials, too."""
    hidden, weights = set(), {}
    for statement in loop.body:
        name, value = _set(statement)
        match value:
            case ast.Call(func, [_, _, other]) if ast.unparse(func) == "tl.where" and _is_infinite(other):
                hidden.add(name)
            case ast.Call(func, [ast.BinOp(ast.Name(scores), ast.Sub(), _)]):
                if ast.unparse(func) in _EXPONENTIALS and scores in hidden:
                    weights[scores] = name
        for node in ast.walk(statement):
            for each in _factors(node):
                if isinstance(each, ast.Name) and each.id in weights:
                    text = f"line {{}} multiplies {each.id}, which contain -inf: multiply {weights[each.id]}"
                    yield _Slip(text, (*_INFINITIES, *_OPPOSITE), each.lineno)


def _swapped(loop: ast.For | ast.While) -> Iterator[_Slip]:
    """Yield a tl.where that gives -inf where a mask is true."""
    for node in ast.walk(loop):
        match node:
            case ast.Call(func, [condition, value, other]):
                is_where = ast.unparse(func) == "tl.where"
                if is_where and _is_infinite(value) and not _is_infinite(other) and _is_mask(condition):
                    text = "tl.where on line {} hides the lanes that exist"
                    yield _Slip(f"{text}: swap its last two arguments", _ZEROS, node.lineno)


def _is_infinite(value: ast.expr) -> bool:
    return ast.unparse(value) in ("float('-inf')", "-float('inf')")


def _is_mask(condition: ast.expr) -> bool:
    """Return whether a condition says which lanes exist, as ``mask_n[None, :]`` and ``offs < N`` do."""
    if any(isinstance(each, ast.Invert | ast.Not | ast.Gt | ast.GtE) for each in ast.walk(condition)):
        return False
    compares = any(isinstance(each, ast.Lt | ast.LtE) for each in ast.walk(condition))
    return compares or any("mask" in name for name in _names(condition))
