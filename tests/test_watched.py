"""`python -m puzzles_lib.bench watch`: a row for each puzzle, whatever its cases."""

import dataclasses

import pytest

from puzzles_lib.bench import watched
from puzzles_lib.chapters import puzzles
from puzzles_lib.puzzle import Case


def test_a_case_that_starts_no_program_is_left_out(monkeypatch: pytest.MonkeyPatch):
    copy = next(puzzle for puzzle in puzzles() if puzzle.name == "strided_copy")
    empty = Case(M=0, N=40, stride_xm=40, stride_xn=1, BLOCK_M=16, BLOCK_N=32)
    copy = dataclasses.replace(copy, cases=(*copy.cases, empty))
    assert any(not all(copy.programs(case)) for case in copy.cases)
    monkeypatch.setattr(watched, "puzzles", lambda: [copy])
    monkeypatch.setattr(watched, "REPEATS", 1)
    (row,) = watched.watched()
    real = [case for case in copy.cases if not case.pretend and all(copy.programs(case))]
    assert (row["puzzle"], row["cases"]) == ("strided_copy", len(real))
    assert 0 < row["page_bytes"] < 1_000_000
