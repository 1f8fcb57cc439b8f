"""Races within a program: the racy kernels of tests/racing.py are refused, the safe ones pass."""

import pytest
import torch
from jaxtyping import Int32
from torch import Tensor

from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case, Puzzle
from tests.racing import RACING, Racing

RACY = [each for each in RACING if each.is_racy]
Rows = Int32[Tensor, "P B"]


def puzzle_of(racing: Racing, cured: bool) -> Puzzle:
    def spec(x):
        return racing.expected(x)

    spec.__name__ = racing.name
    spec.__annotations__ = {"x": Rows, "return": tuple[Rows, Rows]}
    case = Case(P=2, B=256, CURED=int(cured), fill={"x": no_two_equal})
    return Puzzle(number="0", spec=spec, grid=lambda s: (s.P,), outputs=("z", "t"), cases=(case,))


def no_two_equal(shape, dtype, generator):
    return torch.stack([torch.randperm(shape[1], generator=generator) for _ in range(shape[0])]).to(dtype)


@pytest.mark.parametrize("racing", RACY, ids=lambda r: r.name)
def test_two_threads_that_meet_are_a_race(racing):
    report = examine(racing.kernel, puzzle_of(racing, cured=False))
    assert [v.kind for v in report.verdicts] == ["race"], report
    text = str(report)
    assert "within program (" in text and "tl.debug_barrier()" in text and len(text.splitlines()) <= 12, text


@pytest.mark.parametrize("racing", RACING, ids=lambda r: r.name)
def test_with_its_barriers_it_passes(racing):
    report = examine(racing.kernel, puzzle_of(racing, cured=True))
    assert report.ok, report


def test_there_are_enough_of_them():
    assert len(RACY) >= 25 and len(RACING) - len(RACY) >= 15
