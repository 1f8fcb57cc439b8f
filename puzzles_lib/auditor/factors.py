"""Find where to convert a factor of an offset, if other lines than the reported one multiply by it, too."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from triton.runtime.jit import JITFunction

from puzzles_lib.auditor.blocks import listed
from puzzles_lib.runner import Stop
from puzzles_lib.source import nodes, site_in

_ACCESS = {
    "load",
    "store",
    *(f"atomic_{name}" for name in ("add", "cas", "xchg", "max", "min", "and", "or", "xor")),
}


@dataclass(frozen=True)
class Factor:
    """A factor of an offset that overflows. line: where it is set. others: lines that multiply by it, too."""

    name: str
    line: int
    others: frozenset[int] = field(compare=False)

    def __str__(self) -> str:
        where = f"line{'s' * (len(self.others) > 1)} {listed([str(line) for line in sorted(self.others)])}"
        return f"{self.name} is also a factor in {where}: convert it where it is set, in line {self.line}"


def narrow_factor(kernel: JITFunction, stop: Stop) -> Factor | None:
    """Return the factor to convert where it is set, because other lines multiply by it, too; None for none.

    To convert a factor of another product on the line cures nothing.
    """
    tree = nodes(kernel)
    wide = _int64(tree)
    products = [(site_in(kernel, node.lineno), node) for node in _products(tree)]
    on_line = [node for site, node in products if site == stop.site]
    own = _overflowing(on_line, stop)
    found = []
    for name in dict.fromkeys(name for node in (on_line if own is None else [own]) for name in _names(node)):
        sets = [node.lineno for node in tree if isinstance(node, ast.Assign) and _sets(node, name)]
        others = {site.line for site, node in products if name in _names(node) and site != stop.site}
        if others and len(sets) == 1 and name not in wide:
            found.append(Factor(name, site_in(kernel, sets[0]).line, frozenset(others)))
    return found[0] if found and (own is not None or len(found) == 1) else None


def which_product(kernel: JITFunction, stop: Stop) -> str:
    """Say which of the products on a line has overflowed; "" if there is no other, or that isn't known."""
    on_line = [node for node in _products(nodes(kernel)) if site_in(kernel, node.lineno) == stop.site]
    own = _overflowing(on_line, stop)
    if own is None or all(own in ast.walk(node) or node in ast.walk(own) for node in on_line):
        return ""
    return f"the product that overflows is {ast.unparse(own)}"


def _overflowing(products: Sequence[ast.BinOp], stop: Stop) -> ast.BinOp | None:
    """Return the product that has overflowed. Its place is that of the last part of its right side."""
    found = None
    for node in products:  # of two that are factors of each other, take the inner one
        if node.right.col_offset <= stop.column < (node.right.end_col_offset or 0):
            found = node
    return found


def _products(tree: Sequence[ast.AST]) -> Iterator[ast.BinOp]:
    """Yield each product, the outer ones first. What is loaded or stored is no offset."""
    values = {
        id(each)
        for node in tree
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ACCESS
        for part in (*node.args[1:], *node.keywords)
        for each in ast.walk(part)
    }
    for node in tree:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and id(node) not in values:
            yield node


def _names(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


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
