"""`make handout` and ``python -m puzzles_lib.notebooks``: what is handed out, and what is never lost."""

import json
import re
import subprocess
import zipfile

import nbformat
import pytest

from puzzles_lib import LONG_SUM, notebooks
from puzzles_lib.authoring import handout
from puzzles_lib.authoring.handout import handed_out
from puzzles_lib.authoring.release import main as release
from puzzles_lib.reported import right_source
from tests.conftest import REPO
from tests.handout import make_handout, python_in
from tests.notebook_run import chapters


@pytest.fixture
def course(tmp_path):
    """A small course of two chapters, and some of what lies about in a checkout."""
    root = tmp_path / "checkout"
    for folder in (".setup", ".readme", "solutions", "puzzles_lib/__pycache__", "tests", ".git"):
        (root / folder).mkdir(parents=True)
    for name in ("AUDIT.md", "LICENSE", "Makefile", "README.md", "environment.yml", "pyproject.toml",
                 ".setup/venv.sh", "puzzles_lib/__init__.py", "puzzles_lib/__pycache__/x.pyc",
                 "tests/test_x.py", ".git/config", "CONTRIBUTING.md"):  # fmt: skip
        (root / name).write_text(name)
    for name in ("00_welcome", "01_blocks", "02_more"):
        source = "### BEGIN SOLUTION\nsecret = 1\n### END SOLUTION"
        cells = [nbformat.v4.new_code_cell(source, id="p1-kernel")]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), root / "solutions" / f"{name}.ipynb")
    assert release(["--no-execute"], root) == 0
    return root


def packed(path):
    with zipfile.ZipFile(path) as archive:
        assert not any(b"secret" in archive.read(name) for name in archive.namelist())
        return {name.removeprefix("triton-bit-by-bit/") for name in archive.namelist()}


def test_a_student_gets_what_is_needed_and_no_more(course, tmp_path, capsys):
    out = tmp_path / "new" / "course.zip"
    assert handout.main(["--out", str(out)], course) == 0
    assert packed(out) == {
        *("AUDIT.md", "LICENSE", "Makefile", "README.md", "environment.yml", "pyproject.toml"),
        *(".setup/venv.sh", "puzzles_lib/__init__.py"),
        *(f"notebooks/{name}.ipynb" for name in ("00_welcome", "01_blocks", "02_more")),
    }
    first = out.read_bytes()
    assert handout.main(["--out", str(out)], course) == 0 and out.read_bytes() == first
    assert "11 files in" in capsys.readouterr().out


def test_a_hand_outs_readme_names_only_what_is_there(tmp_path):
    folder = make_handout(tmp_path)
    text = (folder / "README.md").read_text()
    assert "**Start:**" in text and "| 20 the clinic |" in text and text.endswith("MIT license.\n")
    links = set(re.findall(r"\]\((?!https:)([^)#]+)", text))
    assert links and all((folder / link).exists() for link in links)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) == {"lab"} and "git clone" not in text
    assert "<!--" not in text and "\n\n\n" not in text
    said = subprocess.run(
        ["make", "-C", str(folder), "help"], capture_output=True, text=True, timeout=240
    ).stdout
    assert re.findall(r"^make ([a-z-]+)", said, re.MULTILINE) == ["lab", "venv", "clean"]


def test_some_chapters(course, tmp_path, capsys):
    out = tmp_path / "course.zip"
    assert handout.main(["01", "--out", str(out)], course) == 0
    assert {name for name in packed(out) if name.endswith(".ipynb")} == {
        "notebooks/00_welcome.ipynb",  # which `make lab` opens
        "notebooks/01_blocks.ipynb",
    }
    assert handout.main(["07", "--out", str(out)], course) == 1
    assert capsys.readouterr().err.startswith("error: no chapter '07' in notebooks; there are: 00_welcome,")


def test_of_other_chapters_only_what_is_imported_is_handed_out(tmp_path, capsys):
    assert handout.main(["02", "--out", str(tmp_path / "course.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "triton-bit-by-bit"
    chapters_in = folder / "puzzles_lib" / "chapters"
    others = [path for path in chapters_in.glob("ch*/*") if path.parent.name[2:4] not in ("00", "02")]
    answers = ("hints.md", "mistakes.py", "questions.py", "right.json", "versions.py")
    assert len(others) < 10 and not {path.name for path in others} & {*answers}
    text = (folder / "README.md").read_text()
    assert re.findall(r"^\| (\d\d) ", text, re.MULTILINE) == ["00", "02"]
    assert "just_the_puzzles" not in text and "<!--" not in text
    code = """
import importlib, pathlib, puzzles_lib
from puzzles_lib import *
from puzzles_lib.chapters import CHAPTERS, questions
print([chapter.number for chapter in CHAPTERS], OUTER_ADD.name, progress().chapters[-1].number)
print("race" in dir(puzzles_lib), hasattr(puzzles_lib, "speak"), len(questions()))
for path in sorted(pathlib.Path("../puzzles_lib/chapters").rglob("*.py")):
    importlib.import_module(".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__"))
from puzzles_lib import race
"""
    try:
        told = python_in(folder, code)
    except AssertionError as error:  # the last line fails
        told = str(error)
    assert "['00', '02'] outer_add 02" in told and "False False" in told
    assert "cannot import name 'race'" in told


def test_the_model_comes_along_with_the_chapters_that_show_its_attention(tmp_path, capsys):
    assert handout.main(["04", "05", "--out", str(tmp_path / "course.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        archive.extractall(tmp_path)
    code = """
from puzzles_lib import ch04, ch05
for chapter in (ch04, ch05):
    print(chapter.pictures.attention("mask"))
"""
    told = python_in(tmp_path / "triton-bit-by-bit", code)
    assert "If you solve puzzle 8," in told and "If you solve puzzle 9b," in told


def test_correct_kernels_are_left_out_if_asked_for(tmp_path, capsys):
    """As TEACHING.md says. `mistake` and the clinic do without them."""
    assert "HANDOUT_ARGS=--without-answers" in (REPO / "TEACHING.md").read_text()
    with_answers, without = {*handed_out(REPO)}, {*handed_out(REPO, answers=False)}
    assert {path.name for path in with_answers - without} == {"right.json"} and without < with_answers
    assert handout.main(["--without-answers", "--out", str(tmp_path / "course.zip")]) == 0
    capsys.readouterr()
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        archive.extractall(tmp_path)
    code = f"""
from puzzles_lib import LONG_SUM, check, mistake
from puzzles_lib.reported import right_source
from puzzles_lib.source import define
assert not right_source(LONG_SUM)
print(mistake(LONG_SUM, 1))
assert check(define({right_source(LONG_SUM)!r}, "<student>"), LONG_SUM).ok
print(mistake(LONG_SUM, 1))
"""
    told = python_in(tmp_path / "triton-bit-by-bit", code)
    assert "Once your kernel passes" in told and "- your correct kernel" in told


def test_an_exercise_that_somebody_filled_in_is_not_handed_out(course, tmp_path, capsys):
    path = course / "notebooks" / "01_blocks.ipynb"
    path.write_text(path.read_text().replace("# your code here", "secret = 1  #"))
    assert handout.main(["--out", str(tmp_path / "course.zip")], course) == 1
    assert "may contain answers: notebooks/01_blocks.ipynb" in capsys.readouterr().err
    assert not (tmp_path / "course.zip").exists()


def test_the_exercises_are_copied_and_no_file_is_replaced(tmp_path, capsys):
    mine = tmp_path / "mine" / "course"
    assert notebooks.main([str(mine)]) == 0
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == {
        path.name: path.read_bytes() for path in (REPO / "notebooks").glob("*.ipynb")
    }
    (mine / "01_blocks.ipynb").write_text("my answers")
    (mine / "02_broadcasting.ipynb").unlink()
    capsys.readouterr()
    assert notebooks.main([str(mine)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"1 notebook written to {mine}\n") and "kept 01_blocks.ipynb" in said
    assert (mine / "01_blocks.ipynb").read_text() == "my answers"


def test_another_kernel_is_asked_for(tmp_path):
    assert notebooks.main([str(tmp_path / "course"), "--kernel", "triton-course"]) == 0
    for path in chapters("notebooks"):
        text = path.read_text()
        copy = (tmp_path / "course" / path.name).read_text()
        assert json.loads(copy)["metadata"]["kernelspec"]["name"] == "triton-course"
        assert json.loads(copy)["cells"] == json.loads(text)["cells"]


def test_a_folder_that_cannot_be_made_and_no_notebooks_are_a_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert notebooks.main([str(tmp_path / "file" / "course")]) == 1
    monkeypatch.setattr(notebooks, "_HERE", tmp_path / "puzzles_lib")
    assert notebooks.main([str(tmp_path / "course")]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ") and "Not a directory" in first
    assert second.startswith("error: there are no notebooks next to the package")
