"""Run a small suite of its own with ``pytest --audit``, installed or not."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

PLUGIN = "puzzles_lib.pytest_plugin"
ROOT = Path(__file__).parent.parent


def audited_suite(folder: Path) -> subprocess.CompletedProcess:
    """Return what ``pytest --audit`` did with the tests of a folder, which may import each other."""
    installed = PLUGIN in {each.value for each in importlib.metadata.entry_points(group="pytest11")}
    plugin = [] if installed else ["-p", PLUGIN]
    options = [*plugin, "-q", "-p", "no:nbval", "-p", "no:cacheprovider", "--audit"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"},
    )
