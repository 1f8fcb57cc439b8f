"""Snippets of a chapter's summary: they are parts of its solved kernels, so that a reader can copy them."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
CHAPTERS = ("06", "07", "08")  # whose tables begin with the code


def cells(chapter: str) -> list[dict]:
    (path,) = (REPO / "solutions").glob(f"{chapter}_*.ipynb")
    return json.loads(path.read_text("utf-8"))["cells"]


def solved(chapter: str) -> ast.Module:
    return ast.parse("\n".join("".join(c["source"]) for c in cells(chapter) if c["cell_type"] == "code"))


def snippets(chapter: str) -> Iterator[str]:
    """Yield what the first column of the table says in code."""
    (text,) = ("".join(c["source"]) for c in cells(chapter) if c["id"] == "summary")
    for line in text.splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([^`]+)`", re.split(r"(?<!\\) \| ", line)[0])


def pieces(snippet: str) -> list[ast.AST]:
    """Return the statement or expression of a snippet, or its keyword arguments."""
    try:
        (statement,) = ast.parse(snippet).body
    except SyntaxError:
        return []
    if re.match(r"\w+=[^=]", snippet):
        (statement,) = ast.parse(f"f({snippet})").body
        return list(statement.value.keywords)
    return [statement.value if isinstance(statement, ast.Expr) else statement]


def fits(pattern: object, node: object, known: set[str]) -> bool:
    """Whether a pattern is this node. A name that the kernels don't have stands for anything."""
    if isinstance(pattern, ast.Name) and pattern.id not in known:
        return isinstance(node, ast.expr)
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, list):
        return len(pattern) == len(node) and all(
            fits(*pair, known) for pair in zip(pattern, node, strict=True)
        )
    if isinstance(pattern, ast.AST):
        fields = (f for f in pattern._fields if f != "ctx")
        return all(fits(getattr(pattern, f), getattr(node, f), known) for f in fields)
    return pattern == node


def missing(chapter: str, texts: list[str]) -> list[str]:
    tree = solved(chapter)
    nodes = list(ast.walk(tree))
    known = {n.id for n in nodes if isinstance(n, ast.Name)} | {
        n.arg for n in nodes if isinstance(n, ast.arg)
    }

    def there(snippet: str) -> bool:
        found = pieces(snippet)
        return bool(found) and all(any(fits(each, node, known) for node in nodes) for each in found)

    return [text for text in texts if not there(text)]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_snippet_of_a_summary_is_part_of_a_solved_kernel(chapter):
    texts = list(snippets(chapter))
    assert len(texts) > 3 and missing(chapter, texts) == []


def test_a_snippet_that_no_kernel_has_is_found():
    wrong = ["acc += s * tl.dot(w - o, a)", "mask=mask, other=1.5", "not code"]
    assert missing("08", [*wrong, "tl.load(anything, mask=mask)"]) == wrong
