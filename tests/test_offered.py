"""Calls that a report offers to be copied: every name in them is there in the notebook of the puzzle."""

import ast
import json
import re
from pathlib import Path

import pytest

from puzzles_lib.chapters import CHAPTERS

REPO = Path(__file__).parents[1]
CHECKED = re.compile(r"^check\((\w+), (\w+)\)", re.MULTILINE)
PIECES = [*(REPO / "puzzles_lib/checker").rglob("*.py"), *(REPO / "puzzles_lib/coach").rglob("*.py")]
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))


def code_of(path: Path) -> list[str]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def imported(cells: list[str]) -> set[str]:
    lines = (line for cell in cells for line in cell.splitlines() if not line.startswith(("%", "!")))
    tree = ast.parse("\n".join(lines))
    return {
        a.asname or a.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names
    }


def offers() -> dict[str, bool]:
    """Return the calls that a report makes for its reader, and whether each brings its import."""
    found: dict[str, bool] = {}
    for path in PIECES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            if match := re.match(r"(?:from puzzles_lib import (\w+)\n)?(\w+)\(\{\}, \{\}, case=", text):
                found[match[2]] = match[1] == match[2]
    return found


def test_the_calls_that_reports_offer_are_found():
    assert offers() == {"watch": False, "trace": False, "stages": True}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_report_offers_to_be_copied_is_imported_in_the_notebook(path):
    cells = code_of(path)
    own = {m[1] for cell in cells for m in re.finditer(r"^([A-Z_]+) = Puzzle\(", cell, re.MULTILINE)}
    names = imported(cells) | own
    puzzles = {p.name.upper(): p for chapter in CHAPTERS for p in chapter.puzzles}
    checked = {puzzle for cell in cells for _, puzzle in CHECKED.findall(cell)}
    for puzzle in sorted(checked):
        wanted = {"watch", puzzle} | ({"trace"} if puzzle in puzzles and puzzles[puzzle].traffic else set())
        assert wanted <= names, (puzzle, wanted - names)
