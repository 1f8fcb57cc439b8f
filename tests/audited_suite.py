"""Run a small suite of its own with ``pytest --audit``, installed or not."""

import importlib.metadata
import os
import subprocess
import tempfile
from pathlib import Path

from tests import warm

PLUGIN = "puzzles_lib.pytest_plugin"
ROOT = Path(__file__).parent.parent


def options() -> list[str]:
    """Return pytest's options with which it has the plugin, and not what these tests don't need."""
    installed = PLUGIN in {each.value for each in importlib.metadata.entry_points(group="pytest11")}
    return [*([] if installed else ["-p", PLUGIN]), "-p", "no:nbval", "-p", "no:cacheprovider"]


def audited_suite(folder: Path, *more: str) -> subprocess.CompletedProcess:
    """Return what ``pytest --audit`` did with the tests of a folder, which may import each other.

    It runs in a warm process, because its imports would take longer than the tests. A process of pytest-xdist
    is a new one. What they print to stderr is in ``stdout``, too.
    """
    arguments = [*options(), "-q", "--audit", *more]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    with tempfile.TemporaryDirectory() as own:
        log = Path(own) / "log"
        code = warm.call("pytest:main", arguments, cwd=folder, env=environment, log=log, timeout=240)
        return subprocess.CompletedProcess(arguments, code, log.read_text(), "")
