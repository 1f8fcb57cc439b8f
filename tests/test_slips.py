"""Slips of chapters 06 to 08: what the report says of results that have a known cause."""

import pytest

from puzzles_lib import (
    BATCHED_MATMUL,
    CONV2D,
    EACH_WORD_ONCE,
    LIFE,
    ONCE_PER_GROUP,
    QUANTIZED_MATMUL,
    WEIGHT_CODES,
)
from puzzles_lib.authoring.solutions import kernel_sources, other_kernel
from puzzles_lib.checker import examine
from puzzles_lib.source import define

SLIPS = [
    (CONV2D, "row, column = i + a, j + b", "row, column = i + b, j + a", "row = i + b"),
    (CONV2D, "(n * H + row) * W + column", "(n * H + row) * H + column", "rows of H pixels"),
    (CONV2D, "(n * H + row) * W + column", "(n * H + i) * W + j", "load the shifted pixel"),
    (CONV2D, "acc += w * x", "acc = w * x", "the last product alone"),
    (CONV2D, "a * KW + b)", "(KH - 1 - a) * KW + KW - 1 - b)", "a flipped filter"),
    (LIFE, "range(-1, 2)", "range(-1, 1)", "which ends at 0"),
    (LIFE, "row * W + column", "row * H + column", "rows of H cells"),
    (BATCHED_MATMUL, "range(0, K, BLOCK_K)", "range(0, K // BLOCK_K)", "began at 0, 1, 2"),
    (BATCHED_MATMUL, "offs_m[:, None] * K", "offs_m[:, None] * M", "rows of x that are M apart"),
    (WEIGHT_CODES, "& 15", "% 16", "from % 16"),
    (WEIGHT_CODES, ">> 4 * (k % 8)", "// (1 << 4 * (k % 8))", "from //"),
    (WEIGHT_CODES, "& 15", "& 7", "from & 7"),
    (QUANTIZED_MATMUL, "(w - o)", "(w + o)", "from w + o"),
    (ONCE_PER_GROUP, "(w - o)", "w", "without the offset"),
]


@pytest.mark.parametrize(("puzzle", "right", "wrong", "says"), SLIPS)
def test_a_slip_is_named(puzzle, right, wrong, says):
    source = kernel_sources()[puzzle.name]
    assert right in source
    verdict = examine(define(source.replace(right, wrong), "<a slip>"), puzzle).verdicts[0]
    assert verdict.kind == "values" and says in verdict.diagnosis, verdict


def test_a_slip_of_one_puzzle_is_not_found_in_its_correct_results():
    for puzzle in (CONV2D, LIFE, BATCHED_MATMUL, WEIGHT_CODES):
        assert examine(define(kernel_sources()[puzzle.name], "<correct>"), puzzle).ok


def test_a_half_written_kernel_hears_which_input_it_does_not_use():
    source = kernel_sources()["conv2d"]
    load = "x = tl.load(x_ptr + (n * H + row) * W + column, mask=inside, other=0.0)"
    assert source.count(load) == source.count("acc += w * x") == 1
    half = define(source.replace(load, "").replace("acc += w * x", ""), "<half written>")
    assert "zero everywhere, and no value of x" in examine(half, CONV2D).verdicts[0].diagnosis


def test_a_word_per_code_is_not_each_word_once():
    verdict = examine(define(kernel_sources()["quantized_matmul"], "<12c>"), EACH_WORD_ONCE).verdicts[0]
    assert verdict.kind == "loads" and "too many loads of weight_ptr" in verdict.message
    assert examine(other_kernel("08", "words-kernel"), EACH_WORD_ONCE).ok
