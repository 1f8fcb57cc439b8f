"""Read from a kernel's source what the mask of a load or store compares, and with what."""

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """A comparison with a size, such as ``j < W``, and whether it's ``j <= W``.

    moves: the variables of loops that the compared number depends on.
    """

    text: str
    size: str
    or_equal: bool
    moves: frozenset[str]


@dataclass(frozen=True)
class Access:
    """What a load or store compares in its mask, and the variables of loops that its address depends on."""

    comparisons: tuple[Comparison, ...]
    moves: tuple[str, ...]

    def with_size(self, size: str) -> list[Comparison]:
        return [each for each in self.comparisons if each.size == size]


def of_access(source: str, kind: str, argument: str) -> Access | None:
    """Return what the only load or store of an argument compares in its mask; None if it isn't clear.

    kind: "load" or "store". Names stand for what the kernel assigns to them, if it does so once.
    """
    try:
        (function,) = ast.parse(textwrap.dedent(source)).body
    except (SyntaxError, ValueError):  # an inner function with a docstring whose lines begin further left
        return None
    known, loops = _assigned(function), _loops(function)
    place = 1 if kind == "load" else 2
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"tl.{kind}" and node.args:
            if f"{argument}_ptr" in _reached(node.args[0], known):
                found.append(node)
    if len(found) != 1:
        return None
    (call,) = found
    masks = [each.value for each in call.keywords if each.arg == "mask"] + call.args[place : place + 1]
    compared = tuple(_comparisons(masks[0], known, loops)) if masks else ()
    reached = _reached(call.args[0], known)
    return Access(compared, tuple(name for name in loops if name in reached))


def _comparisons(mask: ast.expr, known: Mapping[str, ast.expr], loops: list[str]) -> Iterator[Comparison]:
    for node in _expanded(mask, known):
        match node:
            case ast.Compare(left, [ast.Lt() | ast.LtE() as how], [ast.Name(size)]):
                moves = frozenset(_reached(left, known) & set(loops))
                yield Comparison(ast.unparse(node), size, isinstance(how, ast.LtE), moves)


def _expanded(node: ast.expr, known: Mapping[str, ast.expr]) -> Iterator[ast.AST]:
    """Yield the nodes of an expression, and those of what its names stand for."""
    left, seen = [node], set()
    while left:
        for each in ast.walk(left.pop()):
            yield each
            if isinstance(each, ast.Name) and each.id in known and each.id not in seen:
                seen.add(each.id)
                left.append(known[each.id])


def _reached(node: ast.expr, known: Mapping[str, ast.expr]) -> set[str]:
    return {each.id for each in _expanded(node, known) if isinstance(each, ast.Name)}


def _assigned(function: ast.AST) -> dict[str, ast.expr]:
    """Return what each name is set to that is set once, also as one of several names."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
                pairs = list(zip(names, values, strict=True))
            case ast.Assign(names, value):
                pairs = [(each, value) for each in names]
            case ast.AugAssign(target, _, value):
                pairs = [(target, value), (target, value)]  # it's set before, too
            case _:
                continue
        for name, value in pairs:
            if isinstance(name, ast.Name):
                found.setdefault(name.id, []).append(value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _loops(function: ast.AST) -> list[str]:
    """Return the variables of loops in their order."""
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For)]
    return [each.target.id for each in loops if isinstance(each.target, ast.Name)]
