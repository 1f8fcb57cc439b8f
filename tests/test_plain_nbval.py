"""nbval as people run it: in a folder with the notebooks and the settings, with no option but its own."""

import copy
import os
import re
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


def test_what_is_handed_out_passes_and_a_changed_statement_is_noticed(course):
    """With its outputs compared: so it passes with --nbval-lax, too, with which test_notebooks runs all.

    A statement is there twice. The second one, with other words in it, is all that fails.
    """
    path = course / "notebooks" / NOTEBOOKS[0]
    notebook = nbformat.read(path, as_version=4)
    (place,) = (n for n, cell in enumerate(notebook.cells) if cell.source == "CONSTANT_ADD")
    changed = copy.deepcopy(notebook.cells[place])
    changed.id = "changed"
    changed.outputs[0].data["text/markdown"] += "!"
    notebook.cells.insert(place + 1, changed)
    nbformat.write(notebook, path)
    number = sum(cell.cell_type == "code" for cell in notebook.cells[:place])
    ran = nbval(course, "--nbval")
    assert ran.returncode == 1 and "mismatch 'text/markdown'" in ran.stdout, ran.stdout
    failed = re.findall(r"^FAILED (\S+)", ran.stdout, re.MULTILINE)
    assert failed == [f"notebooks/{NOTEBOOKS[0]}::Cell"] and f"Cell {number + 1}" in ran.stdout, ran.stdout
    assert re.search(r"^1 failed, \d+ passed in ", ran.stdout, re.MULTILINE), ran.stdout
