"""Right kernels written in other ways pass: a false alarm is as bad as a miss.

The course's own solutions are checked where its masters run: see `tests/test_solutions.py`.
"""

from collections import Counter

import pytest

from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU
from puzzles_lib.checker import examine
from tests import kernels

RIGHT = kernels.right()


@pytest.mark.parametrize("puzzle, kernel", RIGHT, ids=[k.__name__ for _, k in RIGHT])
def test_right_kernel_passes(puzzle, kernel):
    report = examine(kernel, puzzle)
    assert report.ok, str(report)


def test_there_are_two_alternatives_from_puzzle_5_on():
    count = Counter(puzzle.name for puzzle, _ in RIGHT)
    later = puzzles()[puzzles().index(MUL_RELU) :]
    assert {p.name: count[p.name] for p in later if count[p.name] < 2 and not p.broken_by} == {}
