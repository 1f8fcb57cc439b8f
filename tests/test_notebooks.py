"""The exercises: up to date with the masters, and running from top to bottom with every hole unsolved."""

import nbformat
import pytest

from puzzles_lib.authoring.release import find_stale
from tests.conftest import REPO
from tests.notebook_run import chapters, run_under_nbval, states_of_chapter

exercises = pytest.mark.parametrize("notebook", chapters("notebooks"), ids=lambda path: path.stem)


@exercises
def test_runs_unsolved_and_every_puzzle_is_tried(notebook, state_dir):
    run_under_nbval(notebook, "--nbval-lax")
    states = states_of_chapter(notebook, state_dir)
    assert states == dict.fromkeys(states, "tried")


def test_exercises_and_masters_are_in_step():
    assert find_stale(REPO / "solutions", REPO / "notebooks") == []


@exercises
def test_nothing_of_a_solution_is_left(notebook):
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
            assert "SOLUTION" not in cell.source
