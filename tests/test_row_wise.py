"""Chapter 10's quantiser, changed to find out what holds it back: the same words, scales and minima."""

import pytest
import torch

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.bench.row_wise import BITS, GROUP, ROWS, quantize_rows_kernel
from tests.kernel_lab import execute

PARTS = ("words_ptr", "scale_ptr", "minimum_ptr")


def results(kernel, x, grid, **constants):
    rows, columns = x.shape
    parts = {
        "words_ptr": torch.zeros(rows, columns * BITS // 32, dtype=torch.int32),
        "scale_ptr": torch.zeros(rows, columns // GROUP, dtype=x.dtype),
        "minimum_ptr": torch.zeros(rows, columns // GROUP, dtype=x.dtype),
    }
    arguments = {"x_ptr": x, **parts, "N": columns, "BITS": BITS, "GROUP": GROUP, **constants}
    done = execute(kernel, grid, PARTS, **arguments)
    assert done.stop is None and done.conflict is None and all(w.all() for w in done.written.values())
    return parts


@pytest.mark.parametrize("rows, groups", [(ROWS, 1), (1, 4)])
@pytest.mark.parametrize("fma", [False, True])
def test_the_changed_quantiser_packs_what_the_chapters_does(rows, groups, fma):
    torch.manual_seed(0)
    x = torch.randn(8, 3 * GROUP).bfloat16()
    want = results(solutions()["quantize_pack"], x, (8, 1), BLOCK_G=4)
    constants = {"BLOCK_R": rows, "BLOCK_G": groups, "FMA": fma}
    got = results(quantize_rows_kernel, x, (8 // rows, -(-3 // groups)), **constants)
    for name in PARTS:
        assert torch.equal(got[name], want[name]), name
