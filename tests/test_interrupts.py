"""A Ctrl-C at any line of a run, of the front end or of a trace leaves everything as it was.

In a process of its own: a trace function would disturb coverage, debuggers and the tests that follow.
"""

import os

import pytest

from tests import warm
from tests.conftest import REPO


@pytest.mark.parametrize(
    "work, fewest", [("run", 200), ("turn", 20), ("front_end", 60), ("nursery", 80), ("trace", 50)]
)
def test_an_interrupt_at_any_line_leaves_nothing_behind(work, fewest, tmp_path):
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    code = warm.call("tests.interrupted:main", work, cwd=REPO, env=environment, log=log, timeout=270)
    printed = log.read_text().strip()
    assert code == 0 and printed.isdigit(), printed
    assert int(printed) >= fewest
