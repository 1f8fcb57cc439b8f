"""Grading on dask.distributed: a cluster of two workers, one of which is killed in the middle."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from puzzles_lib.grading import executors
from puzzles_lib.grading.grade import Job, grade
from tests.hostile import WRONG_TWO, notebook

distributed = pytest.importorskip(
    "distributed", reason="dask.distributed is no part of the course: pip install distributed"
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[object]:
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(client: "distributed.Client") -> None:
    def factory() -> Executor:
        return client.get_executor()

    jobs = []
    for number in range(8):
        files = {"01_blocks.ipynb": notebook({"p2-kernel": WRONG_TWO} if number % 2 else {})}
        jobs.append(Job(f"student {number}", files, (), f"key {number}", "x", ("01",), sandboxed=False))
    pids = client.run(os.getpid)
    assert len(pids) == 2
    found: dict[str, int] = {}
    for number, (job, outcome) in enumerate(executors.work(iter(jobs), factory, 4)):
        assert not isinstance(outcome, Exception), outcome
        assert job.student not in found
        found[job.student] = outcome["points"]
        if number == 1:
            os.kill(next(iter(pids.values())), signal.SIGKILL)
    assert found == {f"student {number}": 2 - number % 2 for number in range(8)}
    again = grade(jobs[3])
    assert again["points"] == found["student 3"]
