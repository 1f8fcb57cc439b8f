"""A Ctrl-C at any line of a run, of the front end or of a trace leaves everything as it was.

In a process of its own: a trace function would disturb coverage, debuggers and the tests that follow.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("work, fewest", [("run", 200), ("turn", 20), ("front_end", 60), ("trace", 200)])
def test_an_interrupt_at_any_line_leaves_nothing_behind(work, fewest):
    command = [sys.executable, "-m", "tests.interrupted", work]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().isdigit(), done.stdout
    assert int(done.stdout) >= fewest
