"""Excerpts of the library's source, as notebooks show them."""

import io
import json
import tokenize

import pytest

from puzzles_lib.excerpts import LONGEST, Excerpt
from tests.conftest import REPO


def shown() -> dict[str, tuple[str, str]]:
    """Each excerpt of the masters, by chapter and cell: its lines, and what a notebook shows of it."""
    found = {}
    for path in sorted((REPO / "solutions").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            for out in cell.get("outputs", ()):
                if "excerpt(" in "".join(cell["source"]) and "text/markdown" in out.get("data", {}):
                    plain, markdown = ("".join(out["data"][kind]) for kind in ("text/plain", "text/markdown"))
                    found[f"{path.stem[:2]} {cell['id']}"] = plain, markdown
    return found


def words(code: str) -> list[str]:
    """Of a piece of Python, which need not be whole; without a comment's own marks."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            found += token.string.replace("#", "").split()
    except (tokenize.TokenError, IndentationError):  # the excerpt ends within a bracket or a block
        pass
    return sorted(found)


@pytest.mark.parametrize("name", shown())
def test_a_notebook_shows_it_in_lines_that_fit_and_leaves_nothing_out(name):
    plain, markdown = shown()[name]
    assert markdown == Excerpt(tuple(plain.splitlines()))._repr_markdown_()
    assert max(map(len, markdown.splitlines())) <= LONGEST
    assert words(markdown.removeprefix("```python\n").removesuffix("\n```")) == words(plain)
    assert "fmt: skip" not in plain  # that is said to the formatter


def test_what_no_bracket_holds_together_goes_on_after_a_backslash():
    long = Excerpt((f"if {'a' * 50} or {'b' * 50}:", "    pass"))
    code = long._repr_markdown_().removeprefix("```python\n").removesuffix("\n```")
    assert code.splitlines()[0].endswith(" \\")
    compile(code, "", "exec")
