"""Chapter 14's last cells: a model runs the learner's own kernels, or a sentence says what is missing."""

import pytest
import torch

from puzzles_lib import FUSED_LINEAR, INT8_LINEAR, QUANTIZE_ROWS, check, run
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters.ch14_int8_linear import pictures
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


@pytest.mark.parametrize("short", ["int8", "int16"])
@pytest.mark.parametrize(
    ("name", "puzzle", "dot"),
    [
        ("int8_linear", INT8_LINEAR, "tl.dot(x, w)"),
        ("fused_linear", FUSED_LINEAR, "tl.dot(codes.to(tl.int8), w)"),
    ],
)
def test_a_dot_that_is_cut_is_named(name, puzzle, dot, short):
    assert dot in SOURCES[name]
    cut = define(SOURCES[name].replace(dot, f"{dot}.to(tl.{short})"), "<cut>")
    assert f"sums are cut to {short}, " in str(check(cut, puzzle))


def test_a_guess_of_rounding_is_not_told_if_float64_refutes_it():
    wrong = define(SOURCES["int8_linear"].replace("tl.dot(x, w)", "tl.dot(x, w) + 1"), "<plus one>")
    report = str(check(wrong, INT8_LINEAR))
    assert "not only rounding" in report and "coarser type" not in report


def test_the_formulas_of_the_prose_fit_the_curves():
    x = pictures._normal(84, 256)
    lost, gains = [], []
    for layer in range(12):
        weight = pictures._normal(256, 256, seed=1 + layer) * (2 / 256) ** 0.5
        exact = (x @ weight.T).relu()
        rounded, cut = (
            (pictures.quantised(x, each, False) @ weight.T).relu() for each in (torch.round, torch.trunc)
        )
        lost.append(float((rounded - exact).norm() / exact.norm()))
        gains.append(float((cut * exact).sum() / (exact * exact).sum()))
        x = exact
    assert 0.0055 < min(lost) and max(lost) < 0.0075 and abs(sum(e * e for e in lost) ** 0.5 - 0.022) < 0.0005
    assert abs(sum(gains) / 12 - 0.991) < 0.0005 and abs(1 - 0.991**12 - 0.10) < 0.005
    curves = pictures.errors()
    assert abs(curves["rounded, a scale per row"][-1] - 0.019) < 0.0005
    assert abs(curves["truncated, a scale per row"][-1] - 0.104) < 0.0005


def test_launches_are_counted_within_the_block_only():
    x = torch.ones(2, 4)
    with launched() as kernels, launched() as inner:
        run(ROWS, QUANTIZE_ROWS, x=x, BLOCK_M=2, BLOCK_K=4)
    run(ROWS, QUANTIZE_ROWS, x=x, BLOCK_M=2, BLOCK_K=4)
    assert kernels == inner == [ROWS]
