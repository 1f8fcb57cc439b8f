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
    products = [(site_in(kernel, line), name) for line, name in _factors(nodes(kernel))]
    names, lines, places = [], set(), []
    for name in dict.fromkeys(name for at, name in products if at == site):
        sets = [node.lineno for node in nodes(kernel) if isinstance(node, ast.Assign) and _sets(node, name)]
        others = {at.line for at, other in products if other == name and at != site}
        if others and len(sets) == 1:
            names.append(name)
            lines |= others
            places.append(site_in(kernel, sets[0]).line)
    if not names:
        return ""
    verb, each = (
        ("is also a factor", "it") if len(names) == 1 else ("are also factors", "the one that overflows")
    )
    where = f"line{'s' * (len(lines) > 1)} {_joined(sorted(lines), 'and')}"
    return (
        f"{_joined(names, 'and')} {verb} in {where}: convert {each} where it is set, "
        f"in line {_joined(sorted(set(places)), 'or')}"
    )


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


def _sets(node: ast.Assign, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for t in node.targets for each in ast.walk(t))
