"""An exercise that nobody has touched is still open: no diagnosis of what is not there."""

import json
from pathlib import Path

import pytest

from puzzles_lib.authoring.solutions import define, kernel_cells, solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.stubs import HOLE, is_untouched

STUBS = kernel_cells("notebooks")
PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}


WITH_A_HOLE = [name for name, puzzle in PUZZLES.items() if not puzzle.broken_by]


@pytest.mark.parametrize("name", WITH_A_HOLE)
def test_a_stub_is_still_open(name):
    report = examine(define(STUBS[name], f"<stub of {name}>"), PUZZLES[name])
    assert [verdict.kind for verdict in report.verdicts] == ["open"]
    assert str(report).splitlines()[1].strip() == "not solved yet"


@pytest.mark.parametrize("name", PUZZLES)
def test_a_solution_is_not(name):
    assert not is_untouched(solutions()[name])


def test_comments_and_layout_make_no_difference():
    without = "\n".join(line for line in STUBS["long_sum"].splitlines() if "your code" not in line)
    assert is_untouched(define(without.replace("  # [BLOCK_M]", ""), "<stub without comments>"))


def test_one_line_of_ones_own_does():
    for line in ("x = 0", "pass"):
        changed = STUBS["long_softmax"].replace(HOLE, f"{line}  {HOLE}", 1)
        assert not is_untouched(define(changed, f"<stub and {line}>"))


def test_every_hole_of_the_notebooks_has_a_digest():
    root = Path(__file__).parent.parent
    for path in sorted((root / "notebooks").glob("[0-9]*.ipynb")):
        sources = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
        jitted = sum(HOLE in source and "@triton.jit" in source for source in sources)
        file = root / "puzzles_lib" / "chapters" / f"ch{path.stem}" / "stubs.json"
        assert len(json.loads(file.read_text()) if file.exists() else {}) >= jitted, path.name
