"""Running a notebook of the course under nbval, in a process of its own."""

import functools
import importlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from puzzles_lib.authoring.sockets import socket_prefix
from tests import warm
from tests.conftest import REPO

START_TIMEOUT_S = 120
CELL_TIMEOUT_S = 200
NOTEBOOK_TIMEOUT_S = 270  # less than pytest waits before it ends the run


def chapters(folder: str) -> list[Path]:
    """The notebooks of `folder`, in order."""
    return sorted((REPO / folder).glob("[0-9][0-9]_*.ipynb"))


@functools.cache
def _fonts_are_known() -> None:
    """Where matplotlib has not listed the fonts yet, a kernel that does so may print a warning."""
    importlib.import_module("matplotlib.font_manager")


def run_under_nbval(
    notebook: Path, *options: str, library: Path = REPO, python: str | Path | None = None
) -> None:
    """Run each cell; fails with nbval's own words where a cell raises or prints what it should not.

    Also where its kernel does not start, or the whole takes more than NOTEBOOK_TIMEOUT_S.
    library: the folder that the kernel takes `puzzles_lib` from. python: what runs nbval and the kernel, in
    new processes; by default this one, in warm ones.
    """
    _fonts_are_known()
    name = f"{notebook.parent.name}/{notebook.name}"
    arguments = [
        *("-c", f"{REPO}/pyproject.toml", "--disable-plugin-autoload", "-p", "nbval.plugin"),
        *("-p", "no:cacheprovider", "-p", "no:logging", "--show-capture=no", "-o", "faulthandler_timeout=0"),
        *(*options, f"--nbval-cell-timeout={CELL_TIMEOUT_S}"),
        f"--nbval-kernel-startup-timeout={START_TIMEOUT_S}",
        f"--nbval-sanitize-with={REPO}/tests/nbval_sanitize.cfg",
        str(notebook),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"NO_COLOR": "1", "PYTHONPATH": str(library)}
    with socket_prefix() as prefix, tempfile.TemporaryDirectory() as own:
        log = Path(own) / "log"
        told = {"cwd": REPO, "env": environment, "timeout": NOTEBOOK_TIMEOUT_S}
        try:
            if python:
                command = [str(python), "-m", "tests.nbval_process", prefix, *arguments]
                with log.open("w") as file:
                    code = subprocess.run(command, stdout=file, stderr=file, **told).returncode
            else:
                code = warm.call("tests.nbval_process:forked", prefix, arguments, log=log, **told)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{name}: not done after {NOTEBOOK_TIMEOUT_S} s", pytrace=False)
        printed = log.read_text()
    if code:
        pytest.fail(f"{name}\n{printed}", pytrace=False)
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    passed = re.search(r"^(\d+) passed in", printed, re.MULTILINE)
    assert passed and int(passed.group(1)) == len(cells), printed


def states_of_chapter(notebook: Path) -> dict[str, str]:
    """What the run left in the progress file for each puzzle of the notebook's chapter."""
    from puzzles_lib.chapters import CHAPTERS
    from puzzles_lib.ledger import load

    known, _ = load()
    (chapter,) = (chapter for chapter in CHAPTERS if chapter.number == notebook.name[:2])
    return {puzzle.name: known.get(puzzle.name, "never checked") for puzzle in chapter.puzzles}
