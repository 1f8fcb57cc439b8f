"""Running a notebook of the course under nbval, in a process of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO

CELL_TIMEOUT_S = 60
NOTEBOOK_TIMEOUT_S = 480

# `python -m pytest`, without an optional part of jsonschema that takes three seconds to import.
_PYTEST = "import sys; sys.modules['rfc3987_syntax'] = None; import pytest; sys.exit(pytest.console_main())"


def chapters(folder: str) -> list[Path]:
    """The notebooks of `folder`, in order."""
    return sorted((REPO / folder).glob("[0-9][0-9]_*.ipynb"))


def run_under_nbval(notebook: Path, *options: str) -> None:
    """Run each cell; fails with nbval's own words where a cell raises or prints what it should not."""
    command = [
        *(sys.executable, "-c", _PYTEST),
        *("-c", f"{REPO}/pyproject.toml", "-p", "no:xdist", "-p", "no:cacheprovider", *options),
        f"--nbval-cell-timeout={CELL_TIMEOUT_S}",
        "--nbval-kernel-startup-timeout=120",
        f"--nbval-sanitize-with={REPO}/tests/nbval_sanitize.cfg",
        str(notebook),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment["NO_COLOR"] = "1"
    ran = subprocess.run(
        command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=NOTEBOOK_TIMEOUT_S
    )
    if ran.returncode:
        pytest.fail(f"{notebook.parent.name}/{notebook.name}\n{ran.stdout}{ran.stderr}", pytrace=False)
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    passed = re.search(r"^(\d+) passed in", ran.stdout, re.MULTILINE)
    assert passed and int(passed.group(1)) == len(cells), ran.stdout


def states_of_chapter(notebook: Path, state_dir: Path) -> dict[str, str]:
    """What the run left in the progress file for each puzzle of the notebook's chapter."""
    from puzzles_lib.chapters import CHAPTERS

    path = state_dir / "progress.json"
    known = json.loads(path.read_text())["puzzles"] if path.exists() else {}
    (chapter,) = (chapter for chapter in CHAPTERS if chapter.number == notebook.name[:2])
    return {puzzle.name: known.get(puzzle.name, "open") for puzzle in chapter.puzzles}
