"""What works with any supported Triton, whichever is installed: `make test-with TRITON=3.9.0`."""

import re
import subprocess
import sys
import tomllib
from collections import Counter

import pytest

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.versions import NEWEST, OLDEST
from tests.conftest import REPO
from tests.other_triton import DIFFERENCES, installed

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
(PINNED,) = re.findall(r"triton==(\d+\.\d+)", " ".join(PROJECT["optional-dependencies"]["course"]))


@pytest.mark.skipif(installed() == PINNED, reason="the masters check each solution with the pinned Triton")
@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda puzzle: puzzle.name)
def test_a_solution_passes_all_cases(puzzle):
    """Goals for machine code are the pinned compiler's alone, so they are not asked for."""
    report = examine(solutions()[puzzle.name], puzzle)
    assert report.cases and all(case.ok for case in report.cases), report


ALL = """
import warnings
warnings.simplefilter("error", UserWarning)
warnings.filterwarnings("ignore", "the checker is tested with")
from puzzles_lib import MASKED_ADD, check, stages, trace, watch
from puzzles_lib.authoring.solutions import solutions
kernel = solutions()["masked_add"]
for look in (check, watch, trace, stages):
    print(look(kernel, MASKED_ADD))
print(trace(kernel, MASKED_ADD).explore())
"""


def test_a_fresh_process_can_do_all_of_it():
    ran = subprocess.run([sys.executable, "-c", ALL], cwd=REPO, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    wanted = (
        r"masked_add: all \d+ cases pass",
        r"^step 1 of \d+, line",
        r"^z  stored: (\d+) of \1 elements",
        r"^ttgir +\d+ lines",
        r"^triton-viz's page of masked_add.*: http://127",
    )
    for pattern in wanted:
        assert re.search(pattern, ran.stdout, re.MULTILINE), (pattern, ran.stdout)


def test_what_is_said_to_differ_is_a_test_and_said_once(request: pytest.FixtureRequest):
    named = Counter(
        (version, f"tests/{test}") for each in DIFFERENCES for version in each.versions for test in each.tests
    )
    assert set(named.values()) == {1}
    files = {test.partition("::")[0] for _, test in named}
    there = {item.nodeid for item in request.session.items}
    if missing := sorted(files - {test.partition("::")[0] for test in there}):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:nbval", *missing]
        ran = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout
        there.update(ran.stdout.splitlines())
    assert {test for _, test in named} - there == set()


def test_it_is_said_of_supported_versions_and_can_be_searched_for():
    supported = {f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)}
    for each in DIFFERENCES:
        assert each.why and each.tests and each.versions and set(each.versions) <= supported
        assert re.compile(each.words) and not re.search(each.words, "")
