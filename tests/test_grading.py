"""Grading: hostile submissions get what they deserve, marks are complete, and results survive."""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from puzzles_lib.grading import inside, sandbox
from puzzles_lib.grading.grade import Job, grade
from puzzles_lib.grading.results import page, report, told
from puzzles_lib.grading.submissions import collect
from tests.hostile import HOSTILE, Hostile, notebook

SALT = "autumn"


def job_of(files: Mapping[str, bytes], remarks: tuple[str, ...] = (), **options: Any) -> Job:
    given = {"chapters": ("01",), "seconds": 0.4, "sandboxed": False, **options}
    return Job("Ada", files, remarks, "key", SALT, **given)


def all_said(grade: Mapping[str, Any]) -> str:
    """Every word of a report."""
    answers = [answer["words"] for answer in grade["answers"]]
    return "\n".join([*grade["remarks"], *(told(mark) for mark in grade["puzzles"]), *answers])


@pytest.fixture
def in_a_fork(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process that checks is a fork of this one, which has imported all: a tenth of the time."""

    def run(job: Mapping[str, Any], wall_seconds: float, sandboxed: bool) -> sandbox.Said:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                os.chdir(tmp_path)
                sys.stdout = open(os.devnull, "w")  # pytest's own would keep what kernels print
                with os.fdopen(writing, "w") as pipe:
                    inside.grade_job(job, lambda message: print(json.dumps(message), file=pipe, flush=True))
            finally:
                os._exit(0)
        os.close(writing)
        try:
            return sandbox.listen(reading, wall_seconds)
        finally:
            os.close(reading)
            os.waitpid(child, 0)

    monkeypatch.setattr(sandbox, "run", run)


@pytest.mark.parametrize("one", HOSTILE, ids=lambda one: one.name)
def test_a_hostile_submission_gets_what_it_deserves(one: Hostile, tmp_path: Path, in_a_fork: None) -> None:
    folder = tmp_path / "class" / "student"
    folder.mkdir(parents=True)
    one.write(folder)
    submissions, _ = collect([tmp_path / "class"])
    files, remarks = {}, []
    for submission in submissions:
        if submission.student == "student":
            files, remarks = submission.read()
    found = grade(job_of(files, tuple(remarks)))
    assert found["points"] == one.points, all_said(found)
    assert re.search(one.says, all_said(found)), all_said(found)
    assert not Path("/tmp/owned").exists()
    assert "<script>" not in report(found)
