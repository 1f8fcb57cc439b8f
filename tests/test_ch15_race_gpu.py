"""`race` on a machine with a Hopper GPU, as a reader there has it: timed here and now."""

import pytest
import torch
import triton

from puzzles_lib.chapters.ch15_racing_cublas import ladder
from puzzles_lib.chapters.ch15_racing_cublas.race import race, standing
from puzzles_lib.chapters.ch15_racing_cublas.rung import ROWS, Rung

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
    pytest.mark.skipif(
        tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7),
        reason="the checker needs Triton 3.7 or later",
    ),
]
RUNGS = {rung.name: rung for rung in ladder.rungs()}


def changed() -> Rung:
    """The reader's own: rung 9 with another number of parts, under another name."""
    last = RUNGS["9 stored in pieces"]
    options = {**last.constants, **last.options, "descriptors": last.descriptors}
    return Rung("10 mine", last.kernel, **options, splits=6)


@pytest.mark.parametrize(
    "rung", [RUNGS["1 first"], RUNGS["9 stored in pieces"], changed()], ids=lambda rung: rung.name
)
def test_a_version_is_timed_beside_dequantise_and_cublas(rung):
    found = race(rung)
    assert found.ok and found.record is None
    assert found.source == (f"measured now on {torch.cuda.get_device_name()}",)
    assert [row["path"] for row in found.times] == [rung.name] * len(ROWS)
    for row in found.times:
        assert 0 < row["us"] < 1e5 and row["ratio"] == pytest.approx(row["baseline_us"] / row["us"], rel=0.01)
    assert str(found).count(" times as fast") == len(ROWS)
    (line,) = (line for line in standing(found).lines()[1:] if line.startswith(rung.name))
    assert line.endswith("  measured now")


def test_what_differs_from_run_to_run_gets_no_time():
    (hasty,) = ladder.unsound()
    found = race(hasty)
    assert not found.ok and found.times == ()
    (said,) = found.source
    assert said.startswith("not timed on this GPU: hasty: run ") and "differs from run 0" in said
