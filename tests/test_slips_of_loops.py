"""Slips that learners make in chapters 04 and 06: the report names them, and the hint is about them."""

import pytest

from puzzles_lib import CONV2D, LIFE, LONG_SOFTMAX, LONG_SUM, ONLINE_SOFTMAX, hint, session
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.checking import check
from puzzles_lib.coach import hinting
from puzzles_lib.source import define

TILE = "  # [BLOCK_M, BLOCK_N]\n"
LOAD = f'        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")){TILE}'
EXP, FACTOR = "tl.exp(x - row_max[:, None])", "tl.exp(row_max - new_max)"
START = '(BLOCK_M,), float("-inf")'
RESULT = f"{EXP} / denominator[:, None]"
FAR_ABOVE = "the maximum is far above all numbers of a negative row: start it at -inf, and pad with -inf"
INSIDE = "inside = (n < N) & (row < H) & (column < W)"
MASK = "    mask = (n < N) & (i < H) & (j < W)  # [BLOCK_N, BLOCK_H, BLOCK_W]\n"
LOAD_W = "tl.load(w_ptr + a * KW + b)"
LOAD_X = "            x = tl.load(x_ptr + (n * H + row) * W + column, mask=inside, other=0.0)\n"
ONCE = "    x = tl.load(x_ptr + (n * H + i) * W + j, (n < N) & (i < H) & (j < W), 0.0)\n    for a in"
ON_BOARD = "(row >= 0) & (row < H) & (column >= 0) & (column < W)"
LESS = ", with < instead of <="
SLIPS = [
    (LONG_SUM, {"tl.sum(x": "tl.max(x"}, "the largest number of its row", "One iteration of the loop"),
    (LONG_SUM, {"acc, mask": "acc / N, mask"}, "the mean of its row", "One iteration of the loop"),
    (LONG_SUM, {"tl.zeros((BLOCK_M,), ": "tl.full((BLOCK_M,), 1.0, "}, "too high by 1: acc starts at 0",
     "One iteration of the loop"),
    (LONG_SUM, {"tl.load(x_ptr + offs, mask=mask, other=0.0)": "tl.where(mask, offs, 0)"},
     "the offsets are summed", "One iteration of the loop"),
    (LONG_SUM, {"offs_n[None, :] < N": "offs_n[None, :] < N - start"}, "offs_n contains start already",
     "The mask"),
    (LONG_SUM, {"x_ptr + offs": "x_ptr + start + offs"},
     "from one iteration to the next, the tile moves 128 columns, but it has 64", "The mask"),
    (LONG_SUM, {"axis=1": "axis=0"}, "gives one number per column: with axis=1, it's one per row",
     "The fold"),
    (LONG_SUM, {"axis=1": "axis=1, keep_dims=True"}, "has 2 axes: leave it out", "The fold"),
    (LONG_SOFTMAX, {f"{LOAD}        row_max": f"{LOAD}        row_max".replace('float("-inf")', "0.0")},
     FAR_ABOVE, "Where to start from"),
    (LONG_SOFTMAX, {START: "(BLOCK_M,), -100.0"}, FAR_ABOVE, "Where to start from"),
    (LONG_SOFTMAX, {START: "(BLOCK_M,), -inf"}, 'inf is not defined\n       write float("-inf")',
     "Where to start from"),
    (LONG_SOFTMAX, {f"{LOAD}        denominator": "        denominator"}, "Set it in this loop, too",
     "Loops 1 and 2"),
    (LONG_SOFTMAX, {RESULT: "tl.softmax(x)"}, "tl.softmax knows no other block", "Where to start from"),
    (LONG_SOFTMAX, {EXP: "tl.exp(-x - row_max[:, None])"}, "every exponent has the wrong sign",
     "The maximum in both loops"),
    (LONG_SOFTMAX, {EXP: "tl.exp(row_max[:, None] - x)"}, "every exponent has the wrong sign",
     "The maximum in both loops"),
    (LONG_SOFTMAX, {f"tl.sum({EXP}, axis=1)": "tl.exp(tl.sum(x - row_max[:, None], axis=1))"},
     "the denominator is the exponential of a sum", "The denominator"),
    (LONG_SOFTMAX, {RESULT: "x / denominator[:, None]"}, "x itself is divided", "Where to start from"),
    (LONG_SOFTMAX, {RESULT: "x - row_max[:, None] - tl.log(denominator)[:, None]"},
     "the logarithm of a probability", "Where to start from"),
    (ONLINE_SOFTMAX, {"-1e30": "-100.0"}, "far above all numbers of a negative row: start it at -1e30",
     "The start value"),
    (ONLINE_SOFTMAX, {"denominator * factor": "denominator / factor"},
     "line 16 divides the old denominator by factor, which is 0 at first: multiply", "The old sum"),
    (ONLINE_SOFTMAX, {FACTOR: "row_max - new_max"}, "it needs tl.exp", "Which way around?"),
    (ONLINE_SOFTMAX, {FACTOR: "tl.exp(row_max + new_max)"}, "adds the two maxima", "Which way around?"),
    (ONLINE_SOFTMAX, {FACTOR: "tl.exp(row_max[:, None] - new_max)"}, "leave out [:, None] on line 14",
     "The order of the lines"),
    (ONLINE_SOFTMAX, {"tl.max(x, axis=1)": "tl.max(x, axis=0)"},
     "tl.max(x, axis=0) on line 13 gives one number per column", "The order of the lines"),
    (ONLINE_SOFTMAX, {"        row_max = new_max\n": ""}, "row_max stays what it was before the loop",
     "The old maximum must follow"),
    (CONV2D, {MASK: "", "acc, mask=mask": "acc, mask=inside"},
     "sets it inside, for each a. Here, use what doesn't change with a", "Where the results go"),
    (CONV2D, {"z_ptr + (n * H + i) * W + j": "z_ptr + (n * H + row) * W + column"},
     "sets it inside, for each a. Here, use what doesn't change with a", "Where the results go"),
    (CONV2D, {LOAD_W: "tl.load(w_ptr + a * KW + b, mask=i < H)"}, "one number needs no mask",
     "The numbers of the filter"),
    (CONV2D, {"range(0, KH)": "range(3)", "range(0, KW)": "range(3)"}, "load of w_ptr",
     "The numbers of the filter"),
    (CONV2D, {INSIDE: "inside = (n < N) & (i < H) & (j < W)"},
     "W = 8 columns. The mask tests j < W, but the load moves with a and b: test the column that is loaded",
     "The mask"),
    (CONV2D, {INSIDE: "inside = (n < N) & (i < H) & (column < W)"},
     "The mask tests i < H, but the load moves with a and b: test the row that is loaded", "The mask"),
    (CONV2D, {INSIDE: "inside = (n < N) & (row < H) & (column <= W)"}, f"columns with W in the mask{LESS}",
     "The mask"),
    (CONV2D, {INSIDE: "inside = (n < N) & (row <= H) & (column < W)"}, f"rows with H in the mask{LESS}",
     "The mask"),
    (CONV2D, {"i + a, j + b": "i + a - KH // 2, j + b - KW // 2"},
     "lanes for row -1 and column -1 are on, but the rows and columns of x begin at 0",
     "An offset below zero"),
    (CONV2D, {"a * KW + b": "b * KH + a"}, "or from w[b, a] for w[a, b]", "Addresses and sums"),
    (CONV2D, {"a * KW + b": "0"}, "from w[0, 0] alone", "Addresses and sums"),
    (CONV2D, {"(n * H + row) * W + column": "(n * W + column) * H + row"}, "from columns of H pixels",
     "Addresses and sums"),
    (CONV2D, {INSIDE: f"{INSIDE} & (i < H - KH + 1) & (j < W - KW + 1)"},
     "if windows that hang over the edge gave 0", "Addresses and sums"),
    (CONV2D, {LOAD_X: "", "    for a in": ONCE}, "from one tile of x for all numbers of the filter",
     "Addresses and sums"),
    (LIFE, {ON_BOARD: "(row < H) & (column < W)"}, "lanes for row -1 and column -1 are on",
     "Neighbors on all sides"),
    (LIFE, {ON_BOARD: "(row < H) & (column >= 0) & (column < W)"},
     "lanes for row -1 are on, but the rows of x begin at 0", "Neighbors on all sides"),
    (LIFE, {ON_BOARD: "(row >= 0) & (row < H) & (column < W)"},
     "lanes for column -1 are on, but the columns of x begin at 0", "Neighbors on all sides"),
    (LIFE, {">= 0": "> 0"}, "row 0 and column 0 didn't count: test with >= 0", "Neighbors on all sides"),
    (LIFE, {"row >= 0": "row > 0"}, "row 0 didn't count: test with row >= 0", "Neighbors on all sides"),
    (LIFE, {"column >= 0": "column > 0"}, "column 0 didn't count: test with column >= 0",
     "Neighbors on all sides"),
    (LIFE, {"[:, None]": "", "[None, :]": ""}, "the value is [8, 8]", "A plan"),
    (LIFE, {", 1, 0)": ", 0, 1)"}, "with 0 and 1 exchanged", "No if for lanes"),
    (LIFE, {"for a in range(-1, 2)": "for a in tl.arange(-1, 2)"},
     "cannot run over a block; use range(...)", "A plan"),
]  # fmt: skip


@pytest.mark.parametrize("puzzle, edits, words, title", SLIPS)
def test_a_slip_in_a_loop_is_named_and_hinted_at(puzzle, edits, words, title, monkeypatch, state_dir):
    monkeypatch.setattr(hinting, "_shown", {})
    monkeypatch.setattr(session, "_last", {})
    source = kernel_sources()[puzzle.name]
    for old, new in edits.items():
        assert old in source
        source = source.replace(old, new)
    report = str(check(define(source, "<slip>"), puzzle))
    assert words in report, report
    assert hint(puzzle).hint.title == title


def test_a_start_that_cant_be_infinite_isnt_advised():
    source = kernel_sources()["online_softmax"].replace("-1e30", "-1e9")
    report = str(check(define(source, "<start>"), ONLINE_SOFTMAX))
    assert "here they are: use -1e+30\n" in report, report
