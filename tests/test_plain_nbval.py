"""nbval as people run it: in a folder with the notebooks and the settings, with no option but its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.conftest import REPO

NOTEBOOKS = ("01_blocks.ipynb", "just_the_puzzles.ipynb")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(REPO / "pyproject.toml", folder)
    (folder / "notebooks").mkdir()
    for name in NOTEBOOKS:
        shutil.copy(REPO / "notebooks" / name, folder / "notebooks")
    return folder


def nbval(folder: Path, option: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", option, "notebooks"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_what_is_handed_out_passes(course):
    """With its outputs compared: so it passes with --nbval-lax, too, with which test_notebooks runs all."""
    ran = nbval(course, "--nbval")
    assert ran.returncode == 0, ran.stdout
    assert " passed in " in ran.stdout and "failed" not in ran.stdout


def test_a_changed_statement_is_noticed(course, tmp_path):
    path = tmp_path / "notebooks" / NOTEBOOKS[0]
    path.parent.mkdir()
    notebook = nbformat.read(course / "notebooks" / NOTEBOOKS[0], as_version=4)
    statement = next(cell for cell in notebook.cells if cell.get("source") == "CONSTANT_ADD")
    statement.outputs[0].data["text/markdown"] += "!"
    # The imports and the statement are enough.
    notebook.cells = [cell for cell in notebook.cells if "import" in cell.source][:1] + [statement]
    nbformat.write(notebook, path)
    ran = nbval(tmp_path, "--nbval")
    assert ran.returncode == 1 and "mismatch 'text/markdown'" in ran.stdout
