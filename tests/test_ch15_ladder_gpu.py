"""Chapter 15's versions on a GPU: as exact as they must be, and the same bits in every run."""

import pytest
import torch
import triton

from puzzles_lib.chapters.ch15_racing_cublas import ladder
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, Problem
from puzzles_lib.timing import relative_error
from puzzles_lib.versions import too_old

WHY_NOT = too_old(triton.__version__)
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it can run")]
RUNGS = {rung.name: rung for rung in ladder.rungs()}
RUNS = 300


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize(("size", "offset"), [(1.0, 0.0), (1.0, 3.0), (1e-6, 3e-6), (1e4, -3e4)])
def test_every_run_gives_the_same_bits_and_no_larger_error_than_unfused(name, size, offset):
    torch.manual_seed(0)
    shape = (8192, CIN)
    x = (size * torch.randn(shape, device="cuda") + offset).bfloat16()
    problem = Problem(x, torch.randn(8192, COUT, device="cuda", dtype=torch.bfloat16))
    rung = RUNGS[name]
    parts = torch.empty(rung.splits, COUT, CIN, device="cuda")
    dw = torch.empty(COUT, CIN, device="cuda", dtype=torch.bfloat16)
    want = problem.exact()
    most = 1.05 * relative_error(ladder.unfused(problem), want)
    for number in range(RUNS):
        parts.fill_(float("nan"))
        dw.fill_(float("nan"))
        ladder.run(rung, problem, parts, dw)
        if number == 0:
            first = dw.clone()
            assert relative_error(first, want) <= most
        assert torch.equal(dw, first), f"run {number} differs"
