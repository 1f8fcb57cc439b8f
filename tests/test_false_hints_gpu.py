"""Are the hints that `check` refuses wrong on a GPU, and those that it lets pass right?

Each kernel of tests/hinted.py runs once, on rows of which no two elements are equal.
    python -m pytest -o addopts= -s tests/test_false_hints_gpu.py
"""

import subprocess
import sys

import pytest
import torch

from tests.hinted import HINTED, Hinted

pytestmark = pytest.mark.gpu

ROWS, B = 64, 512
_RUN_ONE = "from tests.test_false_hints_gpu import *; print(wrong_elements(HINTED[{}]))"


def wrong_elements(hinted: Hinted) -> int:
    rows = 2 if hinted.name == "of_rows_that_wrap" else ROWS
    x = torch.arange(1.0, 1 + rows * hinted.STRIDE, device="cuda").reshape(rows, hinted.STRIDE)
    z = torch.full_like(x, 0 if hinted.zeroed else -1)
    hinted.kernel[(rows,)](x, z, hinted.N, hinted.STRIDE, B)
    return int((z != hinted.expected(x)).sum())


@pytest.mark.parametrize("hinted", [h for h in HINTED if h.why != "misaligned"], ids=lambda h: h.name)
def test_what_is_refused_is_wrong_on_a_gpu_and_the_rest_right(hinted):
    wrong = wrong_elements(hinted)
    print(f"{hinted.name:34} {hinted.why or 'no harm':8} {wrong:6} elements wrong")
    assert bool(wrong) == bool(hinted.blamed)


@pytest.mark.parametrize("hinted", [h for h in HINTED if h.why == "misaligned"], ids=lambda h: h.name)
def test_what_is_misaligned_fails(hinted):
    """In a process of its own: nothing runs on the GPU any more after it, in the process that it was in."""
    ran = subprocess.run(
        [sys.executable, "-c", _RUN_ONE.format(HINTED.index(hinted))], capture_output=True, text=True
    )
    print(f"{hinted.name:34} {ran.stderr.strip().splitlines()[-1:] or ran.stdout.strip()}")
    assert ran.returncode != 0 and "misaligned address" in ran.stderr
