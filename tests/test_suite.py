"""The suite's own arrangements: how tests are handed out."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPO

TESTS = """
import os

def test_before(): pass
def test_that_ends_its_worker(): os._exit(1)
def test_after(): pass
"""


def test_a_test_that_ends_its_worker_is_not_run_again(tmp_path: Path) -> None:
    """A test that hangs ends its worker, too. So it costs `faulthandler_timeout` only once."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = "-n1 --dist loadfile -p no:cacheprovider -p no:nbval -p tests.conftest".split()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(REPO)}
    environment.pop("CI", None)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "1 failed, 2 passed" in ran.stdout, ran.stdout
