"""Every solution passes its cases, whichever supported Triton is installed: `make test-with TRITON=3.9.0`."""

import pytest

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda puzzle: puzzle.name)
def test_a_solution_passes_all_cases(puzzle):
    """Goals for machine code are the pinned compiler's alone, so they are not asked for."""
    report = examine(solutions()[puzzle.name], puzzle)
    assert report.cases and all(case.ok for case in report.cases), report
