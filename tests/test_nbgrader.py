"""`make nbgrader`: what it writes, and that nbgrader itself takes it from the source to the marks.

The latter installs nbgrader, in an environment of its own, and takes minutes:
`make test PYTEST_ARGS="--nbgrader tests/test_nbgrader.py"`.
"""

import csv
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from puzzles_lib.authoring.nbgrader import PUZZLE_POINTS, QUESTION_POINTS, _shares, main
from puzzles_lib.authoring.release import read_master, strip
from puzzles_lib.authoring.solutions import define
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.stubs import is_untouched
from tests.conftest import REPO
from tests.environment import new_environment
from tests.notebook_run import chapters

CHAPTER = "01_blocks"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """All chapters, as they are written."""
    folder = tmp_path_factory.mktemp("nbgrader")
    assert main(["--out", str(folder), "--salt", "autumn"]) == 0
    return folder


def marks(notebook):
    """nbgrader's metadata of each cell that has any, by its id."""
    cells = nbformat.read(notebook, as_version=4).cells
    return {cell.id: cell.metadata["nbgrader"] for cell in cells if "nbgrader" in cell.metadata}


def path_in(folder: Path, name: str) -> Path:
    return folder / "source" / name / f"{name}.ipynb"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_every_puzzle_and_question_of_a_chapter_has_its_points(source, chapter):
    found = marks(path_in(source, chapter.folder.removeprefix("ch")))
    points = [told["points"] for told in found.values() if told["grade"]]
    assert points.count(PUZZLE_POINTS) == len(chapter.puzzles)
    assert points.count(QUESTION_POINTS) == len(chapter.questions)
    assert all(told["locked"] and not told["solution"] for told in found.values() if told["grade"])
    assert all(told["grade_id"] == cell_id for cell_id, told in found.items())


@pytest.mark.parametrize("master", chapters("solutions"), ids=lambda path: path.stem)
def test_with_the_answers_cut_it_is_the_exercise(source, master):
    """As nbgrader cuts: from marker to marker, an empty line in their place."""
    exercise = {cell.id: cell.source for cell in strip(read_master(master)).cells}
    for cell in nbformat.read(path_in(source, master.stem), as_version=4).cells:
        kept, cutting = [], False
        for line in cell.source.splitlines():
            if "### BEGIN" in line:
                cutting = True
            if not cutting:
                kept.append(line)
            if "### END" in line:
                cutting = False
        if cell.metadata.get("nbgrader", {}).get("grade"):
            assert kept == [line for line in kept if line.startswith("#")] and len(kept) == 1
        else:
            assert "\n".join(kept) == exercise[cell.id]


def test_the_hidden_check_has_the_salt_and_names_of_its_own(source):
    cells = nbformat.read(path_in(source, CHAPTER), as_version=4).cells
    (test,) = [cell.source for cell in cells if cell.id == "p2-kernel-points"]
    assert "examine(masked_add_kernel, MASKED_ADD, salt='autumn')" in test and "assert _report.ok" in test


def test_chapters_are_chosen_and_two_runs_have_two_salts(tmp_path, capsys):
    for name in ("first", "second"):
        assert main(["01", "--out", str(tmp_path / name)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first.startswith(f"wrote {tmp_path}/first/source, 1 assignment;")
        and first.split("--salt ")[1] != second.split("--salt ")[1]
    )
    assert [path.name for path in (tmp_path / "first" / "source").iterdir()] == [CHAPTER]
    assert main(["77", "--out", str(tmp_path / "third")]) == 1
    assert capsys.readouterr().err.startswith("error: no chapter '77'")


def grade(folder, student, points, status):
    """A grade as `puzzles_lib.grading` writes it, as far as it is read."""
    path = folder / "students" / student / "grade.json"
    path.parent.mkdir(parents=True)
    puzzles = [
        {"puzzle": "constant_add", "points": points, "of": 1},
        {"puzzle": "masked_add", "points": 1, "of": 1},
    ]
    answers = [{"id": f"ch01-q{n}", "status": status} for n in (1, 2, 3)]
    path.write_text(json.dumps({"schema": 1, "student": student, "puzzles": puzzles, "answers": answers}))


def test_marks_without_grades_without_a_gradebook_or_of_another_form_are_a_line(source, tmp_path, capsys):
    assert main(["--out", str(source), "--marks", str(tmp_path / "nothing")]) == 1
    grade(tmp_path, "ann", 1, "right")
    assert main(["--out", str(source), "--marks", str(tmp_path)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("nothing/students: no grades")
    assert second.endswith("gradebook.db: no gradebook: generate an assignment first")
    (tmp_path / "grade.json").write_text('{"puzzles": [{"puzzle": "x"}]}')
    with pytest.raises(ValueError, match="not a grade .KeyError: 'points'"):
        _shares(tmp_path / "grade.json")


# ---- nbgrader itself


def scores(folder):
    with open(folder / "grades.csv") as file:
        return {
            row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)
        }


class Course:
    """A course folder, and nbgrader in an environment of its own."""

    def __init__(self, folder: Path):
        project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
        self.python = new_environment(folder / "venv", *project["optional-dependencies"]["nbgrader"])
        self.home, self.folder = folder, folder / "course"
        assert main([CHAPTER, "--out", str(self.folder), "--salt", "autumn"]) == 0

    def run(self, *command: str | Path) -> None:
        # nbgrader calls alembic by the PATH; nbconvert's templates are in the course's own environment.
        own = {
            "HOME": str(self.home),
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPO),
            "JUPYTER_PATH": f"{sys.prefix}/share/jupyter",
        }
        ran = subprocess.run(command, cwd=self.folder, env=os.environ | own, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr

    def nbgrader(self, *command: str) -> None:
        self.run(self.python.parent / "nbgrader", *command)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return Course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def released(course):
    """What students get."""
    course.nbgrader("generate_assignment", CHAPTER)
    return nbformat.read(course.folder / "release" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def handed_in(course, released):
    answers = {cell.id: cell.source for cell in read_master(REPO / "solutions" / f"{CHAPTER}.ipynb").cells}
    wrong = answers | {"p1-kernel": answers["p1-kernel"].replace("x + 10", "x + 11"), "q1": "right = 1"}
    for student, given in {"right": answers, "wrong": wrong, "empty": {}}.items():
        notebook = nbformat.from_dict(released)
        for cell in notebook.cells:
            cell.source = given.get(cell.id, cell.source)
        path = course.folder / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


MOST = 2 * PUZZLE_POINTS + 3 * QUESTION_POINTS

# In this order: each goes on from the one before, so that none takes as long as all.


@pytest.mark.nbgrader
def test_nbgrader_installs_beside_the_course(course):
    course.nbgrader("--version")


@pytest.mark.nbgrader
def test_nbgrader_releases_the_exercises(released):
    text = "".join(cell.source for cell in released.cells)
    assert "SOLUTION" not in text and "HIDDEN" not in text and "autumn" not in text
    stubs = {cell.id: cell.source for cell in released.cells}
    assert is_untouched(define(stubs["p2-kernel"].partition("\n\n\n")[0], "<nbgrader's stub>"))


@pytest.mark.nbgrader
@pytest.mark.parametrize("student", ["right", "wrong", "empty"])
def test_nbgrader_grades_what_is_handed_in(course, handed_in, student):
    course.nbgrader("autograde", CHAPTER, "--create", "--student", student)


@pytest.mark.nbgrader
def test_nbgrader_exports_the_marks_and_tells_students_why(course, handed_in):
    course.nbgrader("export")
    lost = PUZZLE_POINTS + QUESTION_POINTS
    assert scores(course.folder) == {"right": (MOST, MOST), "wrong": (MOST - lost, MOST), "empty": (0, MOST)}
    course.nbgrader("generate_feedback", CHAPTER, "--student", "wrong")
    feedback = (course.folder / "feedback" / "wrong" / CHAPTER / f"{CHAPTER}.html").read_text()
    assert "constant_add: " in feedback and "cases pass" in feedback
    assert not list(course.home.rglob("progress.json"))  # the teacher's own is left alone


@pytest.mark.nbgrader
def test_nbgrader_takes_the_marks_of_our_own_grader(course, handed_in, tmp_path):
    grade(tmp_path, "right", 0, "right")  # marked otherwise than by nbgrader
    grade(tmp_path, "new", 1, "WRONG")  # whom nbgrader has not run
    course.run(
        course.python, "-m", "puzzles_lib.authoring.nbgrader", "--out", course.folder, "--marks", tmp_path
    )
    course.nbgrader("export")
    marked = scores(course.folder)
    assert marked["right"] == (MOST - PUZZLE_POINTS, MOST) and marked["new"] == (2 * PUZZLE_POINTS, MOST)
    assert marked["empty"] == (0, MOST)
