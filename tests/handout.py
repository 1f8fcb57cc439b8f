"""What a teacher hands out: the library and the exercises, without masters and without git."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPO


def make_handout(folder: Path) -> Path:
    """Copy it into `folder`."""
    for part in ("puzzles_lib", "notebooks"):
        ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
        shutil.copytree(REPO / part, folder / part, ignore=ignored)
    return folder


def python_in(handout: Path, code: str) -> str:
    """What a piece of Python prints where the library is the handed-out one."""
    environment = os.environ | {"PYTHONPATH": str(handout)}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=handout / "notebooks", env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
