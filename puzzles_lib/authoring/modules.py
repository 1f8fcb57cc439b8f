"""Modules made from a chapter's cells, for code that must use exactly the kernels that the reader sees.

A code cell of a master with the tag ``module:NAME`` goes into NAME.py of the chapter's folder. The module
gets the cell's functions and assignments, and the imports of the notebook that they need. The notebook stays
the only place in which they are edited by hand.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from nbformat import NotebookNode

from puzzles_lib.authoring.solutions import without_markers

_TAG = re.compile(r"module:([a-z_]+)")


def modules(nb: NotebookNode, chapter: str) -> dict[str, str]:
    """Return the source of each module for which a chapter's cells have tags, by its name.

    chapter: the notebook's name without its ending, such as ``"15_racing_cublas"``.
    """
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    tagged: dict[str, list[str]] = {}
    for cell in cells:
        for tag in cell.metadata.get("tags", ()):
            if match := _TAG.fullmatch(tag):
                tagged.setdefault(match[1], []).append(cell.source)
    imports = [line for cell in cells for line in _imports(cell.source)] if tagged else []
    return {name: _module(chapter, sources, imports) for name, sources in tagged.items()}


def _module(chapter: str, sources: Iterable[str], imports: Iterable[ast.Import | ast.ImportFrom]) -> str:
    body = _apart(definition for source in sources for definition in _definitions(source))
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    needed = dict.fromkeys(text for node in imports for text in _needed(node, used))
    ours = [text for text in needed if text.startswith("from puzzles_lib")]
    others = [text for text in needed if text not in ours]
    title = f'"""Cells of chapter {chapter[:2]}: made by `make notebooks`, to be changed in its notebook."""'
    head = "\n\n".join("\n".join(part) for part in ([title], others, ours) if part)
    return f"{head}\n\n\n{body}\n"


def _definitions(source: str) -> Iterator[tuple[str, bool]]:
    """The functions and assignments of a cell as they stand there, each with whether it is a function.

    The answers are among them, without the markers of their holes; a hole's ``name = ...`` is not.
    """
    source = without_markers(source)
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.value, "value", None) is ...:
            continue
        if isinstance(node, ast.FunctionDef | ast.Assign):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            yield "\n".join(lines[first - 1 : node.end_lineno]), isinstance(node, ast.FunctionDef)


def _apart(definitions: Iterable[tuple[str, bool]]) -> str:
    """All of them, two empty lines around each function."""
    text, after = "", False
    for definition, is_function in definitions:
        text += ("\n\n\n" if is_function or after else "\n") * bool(text) + definition
        after = is_function
    return text


def _imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]


def _needed(node: ast.Import | ast.ImportFrom, used: set[str]) -> Iterator[str]:
    """One import a line, of names that are used."""
    for alias in node.names:
        if (alias.asname or alias.name.partition(".")[0]) in used:
            one = (
                ast.Import([alias])
                if isinstance(node, ast.Import)
                else ast.ImportFrom(node.module, [alias], 0)
            )
            yield ast.unparse(one)
