"""Find where to convert a factor of an offset, if other lines than the reported one multiply by it, too."""

import ast
from collections.abc import Iterator, Sequence

from triton.runtime.jit import JITFunction

from puzzles_lib.source import Site, nodes, site_in

_ACCESS = {
    "load",
    "store",
    *(f"atomic_{name}" for name in ("add", "cas", "xchg", "max", "min", "and", "or", "xor")),
}


def where_set(kernel: JITFunction, site: Site | None) -> str:
    """Return where the factors of a line's products are set, if other lines multiply by them, too; or ""."""
    shared = _shared(kernel, site)
    if not shared:
        return ""
    lines = sorted(set().union(*(others for _, others in shared.values())))
    verb, each = (
        ("is also a factor", "it") if len(shared) == 1 else ("are also factors", "the one that overflows")
    )
    where = f"line{'s' * (len(lines) > 1)} {_joined(lines, 'and')}"
    return (
        f"{_joined(list(shared), 'and')} {verb} in {where}: convert {each} where it is set, "
        f"in line {_joined(sorted({place for place, _ in shared.values()}), 'or')}"
    )


def root(kernel: JITFunction, site: Site | None) -> tuple[str, int] | None:
    """Return the factor of a line's products that other lines multiply by, too, and the line that sets it.

    None if there are several such factors, or none: then it is unknown which conversion cures all lines.
    """
    shared = _shared(kernel, site)
    return next(((name, place) for name, (place, _) in shared.items()), None) if len(shared) == 1 else None


def _shared(kernel: JITFunction, site: Site | None) -> dict[str, tuple[int, set[int]]]:
    """Return the factors of a line that other lines have, too: the line that sets each, and the others."""
    products = [(site_in(kernel, line), name) for line, name in _factors(nodes(kernel))]
    wide = _int64(nodes(kernel))
    found = {}
    for name in dict.fromkeys(name for at, name in products if at == site):
        sets = [node.lineno for node in nodes(kernel) if isinstance(node, ast.Assign) and _sets(node, name)]
        others = {at.line for at, other in products if other == name and at != site}
        if others and len(sets) == 1 and name not in wide:
            found[name] = site_in(kernel, sets[0]).line, others
    return found


def _joined(parts: Sequence[object], word: str) -> str:
    *rest, last = map(str, parts)
    return f"{', '.join(rest)} {word} {last}" if rest else last


def _factors(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each name in a product, with the line of the product. What is loaded or stored is no offset."""
    values = {
        id(each)
        for node in tree
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ACCESS
        for part in (*node.args[1:], *node.keywords)
        for each in ast.walk(part)
    }
    for node in tree:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and id(node) not in values:
            for each in ast.walk(node):
                if isinstance(each, ast.Name):
                    yield node.lineno, each.id


def _int64(tree: Sequence[ast.AST]) -> set[str]:
    """Return the names that are set once, to something of int64."""
    sets: dict[str, list[ast.Assign]] = {}
    for node in tree:
        if isinstance(node, ast.Assign):
            for name in {each.id for t in node.targets for each in ast.walk(t) if isinstance(each, ast.Name)}:
                sets.setdefault(name, []).append(node)
    found: set[str] = set()
    for _ in sets:  # a name may be made of names that are set further down
        found |= {
            name
            for name, (node, *others) in sets.items()
            if not others and any(_is_int64(each, found) for each in ast.walk(node.value))
        }
    return found


def _is_int64(node: ast.AST, known: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "int64"
    return isinstance(node, ast.Name) and node.id in {*known, "int64"}


def _sets(node: ast.Assign, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for t in node.targets for each in ast.walk(t))
