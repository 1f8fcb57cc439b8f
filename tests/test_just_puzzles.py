"""Just the puzzles: one notebook with the puzzles of chapters 01 to 08, made from their exercises."""

import nbformat
import pytest

from puzzles_lib.authoring import just_puzzles, release
from puzzles_lib.authoring.solutions import define, kernel_cells, solutions
from puzzles_lib.chapters import CHAPTERS, puzzles
from puzzles_lib.checker import examine
from tests.conftest import REPO

NOTEBOOK = nbformat.read(REPO / "notebooks" / just_puzzles.NAME, as_version=4)
CELLS = {cell.id: cell for cell in NOTEBOOK.cells}
KERNELS = {
    cell.source.split("check(")[-1].split(", ")[1].rstrip(")").lower(): cell.source.rpartition("check(")[0]
    for cell in NOTEBOOK.cells
    if cell.id.endswith("-kernel")
}
PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}


def test_every_puzzle_of_the_first_chapters_is_there_in_their_order():
    wanted = [p.name for chapter in CHAPTERS if "01" <= chapter.number <= "08" for p in chapter.puzzles]
    assert list(KERNELS) == wanted


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_empty_and_says_so(name):
    kernel = define(KERNELS[name], f"<empty {name}>")
    report = examine(kernel, PUZZLES[name])
    assert [verdict.kind for verdict in report.verdicts] == ["open"]
    assert kernel.arg_names == solutions()[name].arg_names


def test_nothing_of_an_answer_is_left():
    for name, source in KERNELS.items():
        below = source.partition(":\n    # your code here")[2]
        assert below.split() == ["pass"], name
    assert len(kernel_cells()) > len(KERNELS)


def test_imports_are_what_its_cells_use():
    names = {}
    exec(CELLS["imports"].source, names)
    for cell in NOTEBOOK.cells:
        if cell.cell_type == "code" and not cell.id.endswith("-kernel"):
            exec(cell.source, dict(names))  # a picture, a statement, or comments


def test_a_notebook_that_somebody_works_in_is_left_alone(tmp_path):
    masters, made = tmp_path / "solutions", tmp_path / "notebooks"
    masters.mkdir()
    for chapter in just_puzzles.PARTS:
        (masters / f"{chapter}.ipynb").symlink_to(REPO / "solutions" / f"{chapter}.ipynb")
    release.release(masters, made, execute=False)
    path = made / just_puzzles.NAME
    assert path.read_bytes() == (REPO / "notebooks" / just_puzzles.NAME).read_bytes()
    mine = nbformat.read(path, as_version=4)
    kernel = next(cell for cell in mine.cells if cell.id == "p1-kernel")
    kernel.source, kernel.execution_count = "mine", 1
    nbformat.write(mine, path)
    release.release(masters, made, execute=False)
    assert "mine" in path.read_text("utf-8")
    release.release(masters, made, execute=False, force=True)
    assert path.read_bytes() == (REPO / "notebooks" / just_puzzles.NAME).read_bytes()


@pytest.mark.parametrize("lost", ["p4-kernel", "p4-picture"])
def test_a_missing_cell_is_named(lost):
    exercises = {
        chapter: nbformat.read(REPO / "notebooks" / f"{chapter}.ipynb", as_version=4)
        for chapter in just_puzzles.PARTS
    }
    exercises["02_broadcasting"].cells = [c for c in exercises["02_broadcasting"].cells if c.id != lost]
    with pytest.raises(ValueError, match=f"02_broadcasting.ipynb has no cell {lost}"):
        just_puzzles.just_the_puzzles(exercises)
    del exercises["08_quantized_matmul"]
    with pytest.raises(ValueError, match="no exercise 08_quantized_matmul|no cell"):
        just_puzzles.just_the_puzzles(exercises)
