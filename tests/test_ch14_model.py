"""Chapter 14's last cells: a model runs the learner's own kernels, or a sentence says what is missing."""

import pytest
import torch

from puzzles_lib import FUSED_LINEAR, INT8_LINEAR, QUANTIZE_ROWS, run
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters.ch14_int8_linear.model import launched, missing

SOURCES = kernel_sources()
ROWS, CODES, FUSED = (
    define(SOURCES[name], "<correct>") for name in ("quantize_rows", "int8_linear", "fused_linear")
)
SOLVED = ((ROWS, QUANTIZE_ROWS), (CODES, INT8_LINEAR), (FUSED, FUSED_LINEAR))


def one_launch(x, wq, w_scale, bias):
    given = {"wq": wq, "w_scale": w_scale, "bias": bias}
    return run(FUSED, FUSED_LINEAR, x=x, **given, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32)


def two_launches(x, wq, w_scale, bias):
    given = {"wq": wq, "w_scale": w_scale, "bias": bias}
    codes, scale = run(ROWS, QUANTIZE_ROWS, x=x, BLOCK_M=16, BLOCK_K=32)
    return run(CODES, INT8_LINEAR, xq=codes, x_scale=scale, **given, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32)


def both(x, *given):
    return (one_launch if len(x) <= 16 else two_launches)(x, *given)


def in_torch(x, wq, w_scale, bias):
    return x @ (wq.float() * w_scale[:, None]).T + bias


@pytest.mark.parametrize(
    ("linear", "says"),
    [
        (both, ""),
        (in_torch, "For 5 rows, `linear` runs none of your kernels. It should `run` "),
        (one_launch, "For 40 rows, `linear` runs "),
        (two_launches, "For 5 rows, `linear` runs "),
        (lambda x, *given: both(x, *given) if len(x) <= 16 else None, "`linear` returns None for 40 rows"),
        (lambda *given: None, "`linear` returns None for 5 rows"),
        (lambda *given: both(*given)[0], "For 5 rows, `linear` returns shape (6,)"),
        (lambda x, wq, w_scale, bias: both(x, wq, bias.abs(), w_scale), "For 5 rows, `linear` is off by "),
    ],
)
def test_a_linear_is_ready_only_if_it_runs_the_learners_kernels(linear, says):
    found = missing(linear, SOLVED)
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_the_puzzle_that_is_broken_is_named():
    solved = (SOLVED[0], (FUSED, INT8_LINEAR), SOLVED[2])
    assert missing(both, solved).startswith("Puzzle 23 first: ")


def test_launches_are_counted_within_the_block_only():
    x = torch.ones(2, 4)
    with launched() as kernels, launched() as inner:
        run(ROWS, QUANTIZE_ROWS, x=x, BLOCK_M=2, BLOCK_K=4)
    run(ROWS, QUANTIZE_ROWS, x=x, BLOCK_M=2, BLOCK_K=4)
    assert kernels == inner == [ROWS]
