"""The exercises: up to date with the masters, and running from top to bottom with every hole unsolved.

They run where a learner has them: in a folder with the library and nothing else of the course.
"""

import re
from pathlib import Path

import nbformat
import pytest

from puzzles_lib.authoring.handout import handed_out
from puzzles_lib.authoring.release import WHEN_RUN, find_stale
from puzzles_lib.chapters import named
from tests.conftest import REPO
from tests.handout import make_handout, python_in
from tests.notebook_run import chapters, run_under_nbval, states_of_chapter

exercises = pytest.mark.parametrize("notebook", chapters("notebooks"), ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def handout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_handout(tmp_path_factory.mktemp("handout"))


def test_nothing_else_of_the_course_is_handed_out(handout):
    files = {"AUDIT.md", "LICENSE", "Makefile", "README.md", "environment.yml", "pyproject.toml"}
    folders = {".readme", ".setup", "notebooks", "puzzles_lib"}
    assert {path.name for path in handout.iterdir()} == files | folders
    assert not [path for path in handed_out(REPO) if "__pycache__" in path.parts]
    assert python_in(handout, "import puzzles_lib; print(puzzles_lib.__file__)").startswith(str(handout))


@exercises
def test_runs_unsolved_and_every_puzzle_is_checked(notebook, handout):
    run_under_nbval(handout / "notebooks" / notebook.name, "--nbval-lax", library=handout)
    states = states_of_chapter(notebook)
    assert set(states.values()) <= {"open", "tried"}  # tried, by an experiment of the notebook's own


def test_every_answer_is_found_out_where_it_is_handed_out(handout):
    code = """
from puzzles_lib import answer
from functools import cache
from puzzles_lib.chapters import questions
for id, question in questions().items():
    object.__setattr__(question, "right", cache(question.right))  # some take a second
    print(answer(id, question.right()))
"""
    lines = re.findall(r"^ch\d\d-q.*", python_in(handout, code), re.MULTILINE)
    assert len(lines) > 15 and [line for line in lines if not line.endswith(": Correct.")] == []


def test_exercises_and_masters_are_in_step():
    assert find_stale(REPO / "solutions", REPO / "notebooks") == []


@exercises
def test_nothing_of_a_solution_is_left(notebook):
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code":
            assert (cell.execution_count is None) == (not cell.outputs) and "SOLUTION" not in cell.source
            assert all("★" not in str(output) and "check(" not in cell.source for output in cell.outputs)


@exercises
def test_no_picture_answers_a_question_before_its_reader(notebook):
    """The first one below a question, in its section, is not there until its cell is run."""
    asked = False
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            asked = asked and not cell.source.startswith("#")
            continue
        if asked and ".pictures." in cell.source:
            assert not cell.outputs, cell.id
        asked = re.fullmatch(r"q\d+", cell.id) is not None


@exercises
def test_statements_and_pictures_are_there_before_anything_is_run(notebook):
    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    statements = [cell for cell in cells if cell.source in named()]
    pictures = [cell for cell in cells if re.fullmatch(r"ch\d\d\.pictures\.\w+\([^)]*\)", cell.source)]
    pictures = [cell for cell in pictures if WHEN_RUN not in cell.metadata.get("tags", ())]
    assert pictures
    for cell in statements:
        assert "**Puzzle" in cell.outputs[0].data["text/markdown"], cell.id
    drawn = [cell for cell in pictures if cell.outputs]
    assert len(drawn) >= len(pictures) - 1, [cell.id for cell in pictures if not cell.outputs]
    shown = [cell.outputs[0].data["text/html"] for cell in drawn]
    assert all('<img alt="' in page or 'class="puzzles-live"' in page for page in shown)
    assert notebook.stat().st_size < 600_000
