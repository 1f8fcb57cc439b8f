"""`hint`: what is written in the chapters, and which one comes next."""

import json
import re

import nbformat
import pytest

from puzzles_lib import (
    ATTENTION_DKV,
    ATTENTION_DQ,
    BATCHED_MATMUL,
    BUSY_DW,
    CONV2D,
    FLASH_ATTENTION,
    FUSED_DW,
    FUSED_LINEAR,
    GROUPED_WEIGHTS,
    INT8_LINEAR,
    LAYER_NORM_DW,
    LIFE,
    LONG_SUM,
    MASKED_ADD,
    MUL_RELU,
    MUL_RELU_BACKWARD,
    ONCE_PER_GROUP,
    ONLINE_SOFTMAX,
    OUTER_ADD,
    OUTER_ADD_BLOCKS,
    PACK_BITS,
    PACKED_ALONG_K,
    PAIR_DIFFERENCE,
    QUANTIZE_CODES,
    QUANTIZE_PACK,
    QUANTIZE_ROWS,
    QUANTIZED_MATMUL,
    RELU_PACK,
    RELU_UNPACK_BACKWARD,
    REVERSED_ADD,
    RMS_NORM,
    SCALAR_FLASH_ATTENTION,
    SPLIT_K,
    TILE_ORDER,
    TILED_LINEAR,
    UNPACK_DEQUANTIZE,
    WEIGHT_CODES,
    hint,
    session,
)
from puzzles_lib.authoring.solutions import kernel_cells, kernel_sources, solutions
from puzzles_lib.chapters import hints, mistakes, puzzles
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX
from puzzles_lib.chapters.ch21_your_own_kernel.tasks import TASKS
from puzzles_lib.chapters.ch22_language_model.puzzles import (
    GROUPED_MATMUL,
    LINEAR_CROSS_ENTROPY,
    LINEAR_CROSS_ENTROPY_GRAD,
    MERGE_PARTS,
    NUCLEUS_TOKEN,
    PAGED_ATTENTION,
    ROPE,
    ROUTE,
    SAMPLE_TOKEN,
    SWIGLU_DOWN,
)
from puzzles_lib.checker.report import KINDS, CaseResult, GoalResult, Report, Verdict
from puzzles_lib.checking import check
from puzzles_lib.coach import hinting
from puzzles_lib.hints import Fit, Hint, read_hints
from puzzles_lib.source import Site, define
from tests.conftest import REPO

TEXT = """\
# MASKED_ADD

## What is new

A mask.

## Who needs it
fits: out of bounds, values (on_ties)

```python
# no heading
x = ...
```

# LONG_SOFTMAX: online_softmax_kernel

## Keep the old one

Do.
"""


@pytest.fixture(autouse=True)
def _new_session(monkeypatch):
    monkeypatch.setattr(hinting, "_shown", {})
    monkeypatch.setattr(session, "_last", {})
    monkeypatch.setattr(session, "_passed", {})


def failed(puzzle, kind: str, message: str = "", kernel: str = "") -> None:
    """A check of this session said so."""
    report = Report(puzzle.name, (CaseResult("N=1", Verdict(kind, message)),))
    session._last[session.memory_key(puzzle)] = session.Checked(puzzle, kernel, report)


# ---- as they are written


def test_they_are_read():
    fits = (Fit("out of bounds"), Fit("values", "on_ties"))
    assert read_hints(TEXT) == {
        ("masked_add", ""): (
            Hint("What is new", "A mask."),
            Hint("Who needs it", "```python\n# no heading\nx = ...\n```", fits),
        ),
        ("long_softmax", "online_softmax_kernel"): (Hint("Keep the old one", "Do."),),
    }


@pytest.mark.parametrize(
    "text, message",
    [
        ("Hello.\n" + TEXT, "before the first puzzle: Hello"),
        (TEXT + TEXT, "# MASKED_ADD: twice"),
        ("# MASKED_ADD\n\nText.\n", "without hints"),
        ("# MASKED_ADD\nText.\n\n## One\n\nText.", "text before the first hint"),
        ("# MASKED_ADD\n\n## One\n", "a title and a text"),
        ("# MASKED_ADD\n\n## One\nunless: NaN\n\nText.", "before it"),
        (
            "# MASKED_ADD\n\n## One\nfits: values (\n\nText.",
            r"fits must have a form such as .*, but is 'values \('",
        ),
    ],
)
def test_what_is_no_list_of_hints_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_hints(text)


def test_every_puzzle_has_hints_and_every_hint_a_puzzle():
    names = {puzzle.name for puzzle in puzzles()}
    assert names <= {name for name, _ in hints()}
    tasks = {task.name for task in TASKS}
    assert {name for name, _ in hints()} - names == {"fused_dw_along_k", "wide_add"} - names | tasks


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_tasks_of_chapter_21_have_hints_that_come_in_order(task):
    count = len(hints()[task.hint_key])
    assert numbers(task, count + 1) == [*range(1, count + 1), count] and count >= 3
    cells = nbformat.read(REPO / "solutions" / "21_your_own_kernel.ipynb", as_version=4).cells
    assert sum(f"# hint({task.name.upper()})" in cell.source for cell in cells) >= 1
    assert "hint(task, 1) shows the first again" in str(hint(task))


def test_holes_of_chapter_15_have_hints_that_come_in_order(monkeypatch):
    from puzzles_lib.chapters.ch15_racing_cublas import versions

    monkeypatch.setattr(session, "_raced", {})
    holes = json.loads((REPO / "puzzles_lib/chapters/ch15_racing_cublas/stubs.json").read_text())
    helpers = {"unpacked": "whole_block_kernel"} | dict.fromkeys(
        ("four_masks", "four_fields"), "one_dot_kernel"
    )
    holes = {helpers.get(hole, hole) for hole in holes}
    assert {kernel for name, kernel in hints() if name == "fused_dw_along_k"} == holes
    for rung in (versions.along_k, versions.subnormal, versions.one_dot, versions.by_tma, versions.whole,
                 versions.in_pieces):  # fmt: skip
        count = len(hints()[rung.hint_key])
        assert numbers(rung, count + 1) == [*range(1, count + 1), count] and count >= 4
        assert str(hint(rung)).startswith(f"{rung.name}, hint {count} of {count}: Nearly all of it")


def test_every_puzzle_has_hints_for_any_kernel():
    names = {puzzle.name for puzzle in puzzles()}
    assert {name for name, kernel in hints() if not kernel} >= names


@pytest.mark.parametrize("key", hints(), ids=lambda key: ":".join(filter(None, key)))
def test_they_fit_kinds_that_there_are_and_not_the_last_one(key):
    *nudges, last = hints()[key]
    assert {fit.kind for each in nudges for fit in each.fits} <= set(KINDS)
    if last.title == "Nearly all of it":
        assert "```" in last.text and not last.fits


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_no_hint_fits_words_that_every_case_has(puzzle):
    for each in hints()[puzzle.name, ""]:
        for fit in each.fits:
            assert not fit.words or any(fit.words not in str(case) for case in puzzle.cases), each.title


@pytest.mark.parametrize("name", kernel_cells())
def test_no_hint_is_the_whole_answer(name):
    lines = {line.partition("#")[0].strip() for line in kernel_sources()[name].splitlines()}
    for each in hints().get((name, ""), ()):
        for code in re.findall(r"```python\n(.*?)```", each.text, re.DOTALL):
            given = [line.partition("#")[0].strip() for line in code.splitlines()]
            assert not {line for line in given if line} <= lines, each.title


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_a_verdict_that_mistakes_get_has_a_hint(puzzle):
    """Of the kinds that its known mistakes get, except for wrong values, at least one."""
    kinds = {each.kind for each in mistakes(puzzle)} - {"values", "error", "race", "input changed"}
    fitting = {fit.kind for each in hints()[puzzle.name, ""] for fit in each.fits}
    assert fitting and (not kinds or fitting & kinds)


@pytest.mark.parametrize("puzzle", [p for p in puzzles() if p.machine], ids=lambda p: p.name)
def test_machine_code_that_does_not_pass_has_a_hint(puzzle):
    assert "machine" in {fit.kind for each in hints()[puzzle.name, ""] for fit in each.fits}


# ---- which comes next


def numbers(puzzle, count: int) -> list[int]:
    return [hint(puzzle).number for _ in range(count)]


@pytest.mark.parametrize(
    "puzzle, right, wrong, diagnosis, title",
    [
        (
            OUTER_ADD_BLOCKS, "x_ptr + offs_n, mask=offs_n < N", "x_ptr + offs_n",
            "out-of-bounds load of x_ptr", "keep their masks",
        ),
        (MUL_RELU, "tl.maximum(product, 0.0)", "tl.max(product, 0.0)", "compiler refuses", "The relu"),
        (MUL_RELU, "y[:, None]  #", "y  #", "shapes that do not fit", "The product"),
        (
            MUL_RELU, "x[None, :] * y[:, None]", "tl.maximum(x[None, :], 0) * tl.maximum(y[:, None], 0)",
            "relu of each factor", "Of what is the relu?",
        ),
        (MUL_RELU_BACKWARD, "x * y > 0", "x > 0", "sign of x alone", "The gate"),
        (MUL_RELU_BACKWARD, "dz * y, 0.0", "dz, 0.0", "without the factor y", "The two factors"),
        (
            OUTER_ADD, "(offs_m[:, None] < M) & (offs_n[None, :] < N)",
            "offs_m[:, None] < M & offs_n[None, :] < N", "parentheses", "The mask",
        ),
        (MASKED_ADD, "lanes < N", "lanes <= N", "element 20; x has 20", "The last lane"),
        (MASKED_ADD, "N - pid * BLOCK", "N", "mask must count the elements", "How many elements are left"),
        (PAIR_DIFFERENCE, "x_ptr + 2 * offs, ", "x_ptr + offs, ", "wrong values", "Where a pair begins"),
        (PAIR_DIFFERENCE, "2 * offs + 1", "2 * offs + 2", "out-of-bounds", "Where a pair begins"),
        (PAIR_DIFFERENCE, "z_ptr + offs", "z_ptr + 2 * offs", "out-of-bounds store", "Where a result goes"),
        (PAIR_DIFFERENCE, "second - first", "first - second", "difference is reversed", "Which from which"),
        (MASKED_ADD, "x + 10, mask=mask", "x + 10", "elements 20..31", "What needs a mask"),
        (REVERSED_ADD, "lanes < N - pid * BLOCK", "lanes < N", "elements -5..-1", "The mask"),
        (REVERSED_ADD, "x_ptr - lanes, mask=mask", "x_ptr - lanes", "elements -12..-1", "The mask"),
        (REVERSED_ADD, "+= N - 1 - pid", "+= N - pid", "element 32; x has 32", "Where lane 0 begins"),
        (REVERSED_ADD, "+= N - 1 - pid * BLOCK", "+= N - 1", "all programs read", "Where lane 0 begins"),
        (REVERSED_ADD, "N - 1 - pid * BLOCK", "pid * BLOCK + 2 * lanes", "32 of 32", "Which way the lanes"),
        (
            LONG_SOFTMAX, "tl.maximum(row_max, tl.max(x, axis=1))", "tl.max(x, axis=1)",
            "keep the larger one", "The maximum in both",
        ),
        (LONG_SOFTMAX, "tl.maximum(row_max, tl.max(x, axis=1))", "tl.max(row_max, x)", "compiler", "Shapes"),
        (LONG_SUM, "axis=1", "axis=0", "compiler refuses", "The fold"),
        (LONG_SUM, "tl.sum(x, axis=1)", "tl.sum(x)", "fold all axes", "The fold"),
        (LONG_SUM, "acc += ", "acc = ", "only the last block", "One iteration of the loop"),
        (
            LONG_SOFTMAX, 'other=float("-inf"))  # [BLOCK_M, BLOCK_N]\n        denom',
            "other=0.0)\n        denom", "do lanes past N count", "Loops 1 and 2",
        ),
        (
            SCALAR_FLASH_ATTENTION, 'tl.where(mask_k[None, :], scores, float("-inf"))', "scores",
            "lanes past the last key get a weight", "Keys that don't exist",
        ),
        (
            SCALAR_FLASH_ATTENTION, "acc * factor", "acc", "acc isn't multiplied",
            "From one block of keys to the next",
        ),
        (
            SCALAR_FLASH_ATTENTION, "tl.exp(row_max - new_max)", "tl.exp(new_max - row_max)", "old minus new",
            "From one block of keys to the next",
        ),
        (
            SCALAR_FLASH_ATTENTION, "q[:, None] * k[None, :]", "(q * k)[None, :]", "shapes that do not fit",
            "Shapes first",
        ),
        (
            SCALAR_FLASH_ATTENTION, "acc * factor + tl.sum(p * v[None, :], axis=1)",
            "(acc + tl.sum(p * v[None, :], axis=1)) * factor", "multiplies the new terms",
            "From one block of keys to the next",
        ),
        (SCALAR_FLASH_ATTENTION, "p * v[None, :]", "scores * v[None, :]", "wrong values", "The two sums"),
        (SCALAR_FLASH_ATTENTION, "p * v[None, :]", "p", "needs its value", "The two sums"),
        (
            FLASH_ATTENTION, 'tl.dot(p, v, input_precision="ieee")', "tl.sum(p * v, axis=1)",
            "shapes that do not fit", "The weighted sum",
        ),
        (FLASH_ATTENTION, "tl.dot(p, v,", "tl.dot(p, v.T,", "tl.dot needs", "The weighted sum"),
        (
            FLASH_ATTENTION, 'tl.dot(q, k.T, input_precision="ieee")', "q[:, None] * k[None, :]",
            "tl.dot needs", "The scores",
        ),
        (
            SCALAR_FLASH_ATTENTION,
            "denominator * factor + tl.sum(p, axis=1)\n        acc = acc * factor + ",
            "(denominator + tl.sum(p, axis=1)) * factor\n        acc = factor * ", "the new terms",
            "From one block of keys to the next",
        ),
        (
            SCALAR_FLASH_ATTENTION, 'scores, float("-inf"))', 'float("-inf"), scores)', "lanes that exist",
            "Keys that don't exist",
        ),
        (
            SCALAR_FLASH_ATTENTION, "        row_max = new_max\n",
            "        row_max = new_max\n        acc = acc / denominator\n", "divided inside", "Divide once",
        ),
        (SCALAR_FLASH_ATTENTION, "q[:, None] * k", "q[:, None] + k", "multiply q and k", "The order of the"),
        (FLASH_ATTENTION, "start_q + BLOCK_Q, T", "start_q, T", "does the loop run", "Where the keys end"),
        (
            FLASH_ATTENTION, "        row_max = new_max\n",
            "        row_max = new_max\n        acc = acc / denominator[:, None]\n", "divided inside",
            "The lines that are given",
        ),
        (FLASH_ATTENTION, 'scores, float("-inf"))', 'float("-inf"), scores)', "tl.where hides", "The mask"),
        (
            FLASH_ATTENTION, "offs_k[None, :] <= offs_q[:, None]",
            "tl.arange(0, BLOCK_Q)[:, None] >= tl.arange(0, BLOCK_K)[None, :]", "within the tile", "The mask",
        ),
        (FLASH_ATTENTION, "        row_max = new_max\n", "", "row_max never", "The lines that are"),
        (
            FLASH_ATTENTION, "tl.maximum(row_max, tl.max(scores, axis=1))", "tl.max(scores, axis=1)", "NaN",
            "The lines that are given",
        ),
        (
            FLASH_ATTENTION, "offs_k[None, :] <=", "tl.arange(0, BLOCK_K)[None, :] <=", "within the tile",
            "The mask",
        ),
        (FLASH_ATTENTION, " / root_d", "", "divided by the root of D", "The scores"),
        (FLASH_ATTENTION, 'k.T, input_precision="ieee"', "k.T", "TF32", "All bits"),
        (FLASH_ATTENTION, "<= offs_q[:, None]", "< offs_q[:, None]", "its own key", "The mask"),
        (
            INT8_LINEAR, "dtype=tl.int32", "dtype=tl.float32", "pass 2^24, where float32 skips integers",
            "Only there_and_back fails",
        ),
        (
            QUANTIZE_ROWS, " + 12582912.0) - 12582912.0", ")", "your codes are truncated",
            "Only on_ties fails, or codes are off by one",
        ),
        (QUANTIZE_ROWS, "scale[:, None]", "scale", "shapes that do not fit", "Shapes that don't fit"),
        (
            INT8_LINEAR, "            mask=(offs_n < N) & (k[:, None] < K),\n            other=0,\n", "",
            "out-of-bounds",
            "The mask of the weights",
        ),
        (TILED_LINEAR, "n * TILE_K + k", "k * TILE_N + n", "n were innermost", "Within the tile"),
        (
            FUSED_LINEAR, "(x / scale + 12582912.0) - 12582912.0", "tl.floor(x / scale + 0.5)",
            "your ties always go up", "Codes that are off by one",
        ),
        (
            GROUPED_WEIGHTS, "(groups + 7) // 8", "groups // 8", "round up", "Three lengths of a row",
        ),
        (
            GROUPED_WEIGHTS, ">> 4 * (g % 8)) & 15", ">> 4 * (g % 8))", "without & 15",
            "The bits of an offset",
        ),
        (GROUPED_WEIGHTS, "s * (w - o), mask", "w, mask", "that step is correct", "One thing at a time"),
        (GROUPED_WEIGHTS, "g % 8", "k % 8", "k instead of g", "The bits of an offset"),
        (
            QUANTIZED_MATMUL, "offset_rows + g // 8", "offset_rows", "offset word 0", "Where an offset is",
        ),
        (QUANTIZED_MATMUL, "a, acc, input", "a, input", "last block of K", "From one iteration to the next"),
        (
            QUANTIZED_MATMUL, "start + tl.arange(0, BLOCK_K)[:, None]", "tl.arange(0, BLOCK_K)[:, None]",
            "K fits into one block", "From one iteration to the next",
        ),
        (QUANTIZED_MATMUL, ', input_precision="ieee"', "", "TF32", "A little off"),
        (QUANTIZED_MATMUL, "s * (w - o), a", "w - o, a", "not int32", "Where to begin"),
        (ONCE_PER_GROUP, "(w - o).to(tl.float32)", "w - o", "not int32", "The scale outside"),
        (ONCE_PER_GROUP, "g % 8", "start % 8", "field 0 of every offset word", "The group of an iteration"),
        (WEIGHT_CODES, "(words >> 4 * (k % 8)) & 15", "words >> 4 * k % 8 & 15", "(4 * k) % 8", "The bits"),
        (
            CONV2D, "row, column = i + a, j + b", "row, column = i - a, j - b", "element -1",
            "An offset below zero",
        ),
        (
            CONV2D, "(n * H + row) * W + column, mask", "(n * W + row) * H + column, mask", "W rows of H",
            "Addresses and sums",
        ),
        (CONV2D, "(row < H) & (column < W)", "(i < H) & (j < W)", "element 64", "The mask"),
        (CONV2D, "(BLOCK_N, BLOCK_H, BLOCK_W)", "(BLOCK_H, BLOCK_W)", "before the loop", "A plan"),
        (CONV2D, "acc, mask=mask", "acc, mask=inside", "inside is not defined", "Where the results go"),
        (
            LIFE, "(row >= 0) & (row < H) & (column >= 0) & (column < W)",
            "(row * W + column >= 0) & (row * W + column < H * W)", "a mask on the offset",
            "A mask on the offset",
        ),
        (BATCHED_MATMUL, "acc = tl.dot(x, y, acc)", "pass", "zero everywhere", "What is missing"),
        (
            RELU_PACK, "tl.where(shut, 0, 1)", "tl.where(x > 0, 1, 0)", "in mask", "Only the last case",
        ),
        (
            RELU_PACK, "other=0.0", "other=1.0", "in mask", "The bits past the end of a row",
        ),
        (RELU_PACK, "<< i", ">> i", "mask: 4 of 4", "The bits"),
        (RELU_UNPACK_BACKWARD, "== 1", "== 0", "M=1", "From word to boolean"),
        (RELU_UNPACK_BACKWARD, "row * W", "row * (N // 32)", "along M", "Two row lengths"),
        (
            BATCHED_MATMUL, "offs_k[:, None] * N", "offs_k[:, None] * K", "y_ptr", "Strides",
        ),
        (BATCHED_MATMUL, "tl.dot(x, y, acc)", "tl.dot(x, y)", "last block of K", "one iteration to the"),
        (BATCHED_MATMUL, "y_ptr + pid_b * K * N", "y_ptr + pid_b * M * N", "wrong values", "Which matrix"),
        (FUSED_DW, "k[:, None] * W", "k[:, None] * CIN", "words_ptr", "The words"),
        (FUSED_DW, "(BLOCK_K, BLOCK_N)).to(tl.bfloat16)", "(BLOCK_K, BLOCK_N))", "one dtype", "One type"),
        (PACKED_ALONG_K, "g = tl.program_id(1) * BLOCK_N // GROUP", "g = 0", "along CIN", "Whose scale"),
        (PACK_BITS, "axis=1", "axis=0", "compiler refuses", "Which axis"),
        (
            PACK_BITS, ".to(tl.int32)\n    words = tl.sum(codes << BITS * i",
            "\n    words = tl.sum(codes << (BITS * i).to(tl.uint8)", "shift of 8 bits", "Codes are bytes",
        ),
        (QUANTIZE_ROWS, "tl.abs(x), axis=1", "tl.abs(x)", "along M", "The peak"),
        (QUANTIZE_PACK, "(high - low) / TOP", "(high - low) / (TOP + 1)", "2^BITS steps", "In which order"),
        (
            QUANTIZE_CODES, 'tl.where(n < N, x, float("inf"))', "tl.where(n < N, x, 0.0)", "0 in the minimum",
            "The last group of a row",
        ),
        (
            QUANTIZE_CODES, "scale.to(tl.float32)", "tl.where(high > low, (high - low) / TOP, 1.0)",
            "from the exact scale", "Codes from the stored scale",
        ),
        (
            QUANTIZE_CODES, "tl.where(high > low, (high - low) / TOP, 1.0)", "((high - low) / TOP)",
            "had the scale 0", "Ties, and constant groups",
        ),
        (
            QUANTIZE_PACK, "    words = tl.sum", "    fields = tl.sum", "words is not defined",
            "In which order",
        ),
        (
            QUANTIZE_PACK, 'tl.where(n < N, x, float("inf"))', "tl.where(n < N, x, 0.0)", "0 in the minimum",
            "The last group of a row",
        ),
        (
            UNPACK_DEQUANTIZE, "offs_w * F // GROUP", "offs_w * (F // GROUP)", "minimum of group 0",
            "The first case passes, others do not",
        ),
        (
            UNPACK_DEQUANTIZE, "minimum[:, None] + scale[:, None] * codes",
            "scale[:, None] * (minimum[:, None] + codes)", "M=1", "The first case fails",
        ),
        (
            UNPACK_DEQUANTIZE, "scale[:, None] * codes", "(scale[:, None] * codes).to(tl.bfloat16)",
            "last place", "A little off",
        ),
        (ATTENTION_DQ, "lse_ptr + head", "lse_ptr", "along H", "Which rows"),
        (
            ATTENTION_DQ, "range(0, tl.minimum(start + BLOCK_Q, T), BLOCK_K)", "range(start, T, BLOCK_K)",
            "32–63 along T", "Which keys",
        ),
        (
            ATTENTION_DQ, "tl.exp(scores - lse[:, None])", "tl.exp(scores) / tl.exp(lse)[:, None]",
            "are NaN", "infinity divided by infinity",
        ),
        (ATTENTION_DQ, "- lse[:, None]", "- lse[None, :]", "refuses this kernel", "Queries along the rows"),
        (
            ATTENTION_DQ, "dp - delta[:, None]", "dp - tl.sum(p * dp, axis=1)[:, None]", "last place",
            "over a single tile",
        ),
        (
            ATTENTION_DKV, "range(first_query, T, BLOCK_Q)",
            "range(0, tl.minimum(start + BLOCK_K, T), BLOCK_Q)", "0–31 along T", "Which queries",
        ),
        (ATTENTION_DKV, "lse_ptr + head", "lse_ptr + g * T", "dk[0, 0, 0]", "All heads of the group"),
        (ATTENTION_DKV, "tl.dot(k, q.T)", "tl.dot(q, k.T)", "refuses this kernel", "Keys along the rows"),
        (
            ATTENTION_DKV, "range(first_head, end_head)", "range(0, H)", "dk[0, 0, 0]",
            "All heads of the group",
        ),
    ],
    ids=[
        "no mask", "max of a number", "shapes",
        "relu of each factor", "gate of x", "no y", "no parentheses", "one too many", "lanes below N",
        "pairs overlap", "the next pair", "stored in pairs", "reversed", "no mask of the store",
        "mask from N alone", "load without its mask", "one past the last", "all at the end", "forwards",
        "the last maximum", "a fold of two",
        "other axis", "all axes", "last block", "padding of zeros",
        "keys that do not exist", "no factor", "factor upside down", "vectors for tiles",
        "factor of the new terms", "scores summed", "values left out", "sum for a dot", "values transposed",
        "outer product of rows",
        "factor of all terms", "where turned around", "divided in the loop", "scores added",
        "end before the diagonal", "divided in the loop, causal", "causal where turned around",
        "mask of positions in the tile", "maximum never updated",
        "maximum of the block alone", "mask of the block", "no root", "TF32",
        "not its own key", "sums in float32", "cut off",
        "rows by a vector", "no mask of the weights", "tile transposed", "ties go up",
        "words rounded down", "sign left in", "codes alone", "field of k", "offset word 0 only",
        "last block of 12c", "rows that stay", "dot in TF32", "dot of integers", "dot of differences",
        "field 0", "precedence", "shifted back", "W rows of H", "mask of the tile", "two axes for three",
        "mask of the load", "mask on the offset", "no dot",
        "NaN shuts", "bits past the end",
        "shifted down", "gate inverted", "words of a row", "rows K apart",
        "last block of K", "batches of z", "words CIN apart", "float32 by bfloat16",
        "always group 0 along K", "sum of words", "shifted as bytes",
        "one peak for all rows", "levels for steps",
        "zeros in the first minimum", "the exact scale", "a scale of 0",
        "an empty hole", "zeros in the minimum",
        "always group 0", "minimum as a code", "product rounded", "lse of head 0", "keys of dk",
        "exp by exp", "lse along the keys", "delta of a tile", "queries of dq",
        "lse of the group", "scores of dq", "all heads",
    ],
)  # fmt: skip
def test_what_goes_wrong_is_hinted_at(puzzle, right, wrong, diagnosis, title):
    source = kernel_sources()[puzzle.name]
    assert source.count(right) == 1
    slip = define(source.replace(right, wrong), "<a slip>")
    # The case with 65,000 heads ends at its time limit.
    assert diagnosis in str(check(slip, puzzle, seconds=1))
    assert title in str(hint(puzzle))


@pytest.mark.parametrize(
    "puzzle, right, wrong, diagnosis, title",
    [
        (FUSED_LINEAR, ", keep_dims=True", "", "keep_dims=True makes it one", "What no longer fits"),
        (FUSED_LINEAR, "codes.to(tl.int8)", "codes", "makes a dot of integers", "What the dot takes"),
        (
            TILED_LINEAR, "(tl.program_id(1) * steps + step) * TILE_N * TILE_K",
            "tl.program_id(1) * TILE_N * K + step * TILE_N * TILE_K", "rows are padded",
            "Where a tile begins",
        ),
    ],
    ids=["column", "dot of codes", "padded rows"],
)  # fmt: skip
def test_what_goes_wrong_in_chapter_14_is_hinted_at(puzzle, right, wrong, diagnosis, title):
    test_what_goes_wrong_is_hinted_at(puzzle, right, wrong, diagnosis, title)


@pytest.mark.parametrize(
    "puzzle, right, wrong, diagnosis, title",
    [
        (OUTER_ADD, "offs_m[:, None] * N +", "offs_m[:, None] * BLOCK_N +", "32 elements apart", "Offsets"),
        (OUTER_ADD, "M) & (", "M) | (", "&, not with |", "The mask"),
        (OUTER_ADD, "z, mask=mask", "z, mask=offs < M * N", "columns with N", "The mask"),
        (
            OUTER_ADD, "offs_m[:, None] * N + offs_n[None, :]", "offs_m[:, None] + offs_n[None, :] * M",
            "transposed", "Offsets",
        ),
        (OUTER_ADD_BLOCKS, " + tl.arange(0, BLOCK_M)", "", "only one row", "What goes with the rows"),
        (OUTER_ADD_BLOCKS, "(1) * BLOCK_N", "(1) * N", "leave a gap", "Two axes"),
        (MUL_RELU, "tl.maximum(product, 0.0)", "tl.max(product, 0)", "largest product", "The relu"),
        (MUL_RELU, "tl.maximum(product, 0.0)", "tl.max(product)", "largest of all", "The relu"),
        (MUL_RELU, "z, mask=mask)", "z)", "are on, but z has", "The store"),
        (MUL_RELU_BACKWARD, "x * y > 0", "x * y < 0", "open only below 0", "How to write the gate"),
        (MUL_RELU_BACKWARD, "dz * y, 0.0", "y, 0.0", "dz is missing", "The two factors"),
        (
            MUL_RELU_BACKWARD, "dx = tl.where(x * y > 0, dz * y, 0.0)",
            "dx = dz * y\n    if x * y > 0:\n        dx += 1", "lane by lane", "How to write the gate",
        ),
    ],
)  # fmt: skip
def test_the_hint_is_about_the_slip_and_not_its_neighbor(puzzle, right, wrong, diagnosis, title):
    test_what_goes_wrong_is_hinted_at(puzzle, right, wrong, diagnosis, title)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("x = tl.reshape(x, (BLOCK_K, BLOCK_N))", "Who needs to be where"),
        ("x = tl.trans(x)", "Transpose while"),
    ],
)
def test_a_tile_that_threads_exchange_has_the_hint_of_its_line(line, title):
    verdict = Verdict("machine", "tensor cores can be busy: 57%", Site(7, line))
    report = Report(BUSY_DW.name, (CaseResult("K=128"),), goals=(GoalResult("case 6", verdict=verdict),))
    session._last[session.memory_key(BUSY_DW)] = session.Checked(BUSY_DW, "", report)
    assert title in hint(BUSY_DW).headline


@pytest.mark.parametrize(
    "puzzle, right, wrong, diagnosis, title",
    [
        (ROPE, "tl.load(position_ptr + t)", "t", "row position[t]", "Whose row is it"),
        (ROPE, "a * c[None, :] - b", "a * c[None, :] + b", "", "The wrong way around"),
        (SAMPLE_TOKEN, "logits / heat", "logits * heat", "divide by it", "The noise"),
        (SAMPLE_TOKEN, "tl.log(-tl.log(u))", "tl.log(u)", "a logarithm is missing", "The noise"),
        (
            PAGED_ATTENTION, "denominator * factor", "denominator", "its own factor",
            "Correct as long as there is one page",
        ),
        (MERGE_PARTS, "top + tl.log(d", "tl.log(d", "the maximum", "The logarithm of the sum"),
        (SWIGLU_DOWN, "x = gate / (1", "x = 1 / (1", "a sigmoid alone", "The formula"),
        (
            LINEAR_CROSS_ENTROPY, "tl.where(label == -100, 0.0, lse - chosen)", "lse - chosen", "label -100",
            "Rows without a label",
        ),
        (LINEAR_CROSS_ENTROPY, 'logit, float("-inf"))', "logit, 0.0)", "counts", "Classes that don't exist"),
        (LINEAR_CROSS_ENTROPY_GRAD, "p - 1.0, p)", "p, p)", "the label is missing", "What d is"),
        (
            LINEAR_CROSS_ENTROPY_GRAD, " & (v[None, :] < V)\n        d", "\n        d", "NaN",
            "Classes that don't exist",
        ),
        (
            LINEAR_CROSS_ENTROPY_GRAD, "tl.dot(d.T, h, dw)", "tl.dot(d.T, h)", "only the last block of T",
            "Correct with one block of rows",
        ),
        (LINEAR_CROSS_ENTROPY_GRAD, "tl.atomic_add(", "tl.store(", "dh[", "Other programs add to dh, too"),
        (ROUTE, "tl.cumsum(count) - count", "tl.cumsum(count)", "out-of-bounds", "A place past the end"),
        (ROUTE, " + (second < e).to(tl.int32)", "", "only first choices are counted", "What is counted"),
        (ROUTE, "first < e)", "first <= e)", "own first choices are counted", "What is counted"),
        (SWIGLU_DOWN, " * up\n", " + up\n", "silu(gate) + up", "The formula"),
        (SWIGLU_DOWN, "is_row & (k[None", "(k[None", "start[e + 1]", "Where the halves are"),
        (GROUPED_MATMUL, "tl.cdiv(K, BLOCK_K), 0)", "K, 0)", "too many operations", "The ends of K and N"),
        (MERGE_PARTS, "top + tl.log(d", "top + (d", "total lacks the logarithm", "The logarithm of the sum"),
        (NUCLEUS_TOKEN, 'noisy, float("-inf"))', "noisy, 0.0)", "take part, with 0", "Who is kept"),
        (NUCLEUS_TOKEN, "b * V + n))", "n))", "the same noise", "The noise"),
        (NUCLEUS_TOKEN, "p >= least", "p > least", "the threshold itself", "Who is kept"),
    ],
)  # fmt: skip
def test_a_diagnosis_weighs_more_than_the_place_of_a_wrong_value(puzzle, right, wrong, diagnosis, title):
    """Every report of wrong values names an element, such as z[0, 0, 0]."""
    source = kernel_sources()[puzzle.name]
    assert source.count(right) == 1
    source = source.replace(right, wrong)
    if title == "The wrong way around":
        source = source.replace("b * c[None, :] + a", "b * c[None, :] - a")
    assert diagnosis in str(check(define(source, "<a slip>"), puzzle))
    assert hint(puzzle).hint.title == title


def test_a_softmax_without_the_maximum_is_hinted_at():
    source = kernel_sources()["long_softmax"].replace("tl.exp(x - row_max[:, None])", "tl.exp(x)")
    assert "inf / inf" in str(check(define(source, "<no maximum>"), LONG_SOFTMAX))
    assert "The maximum in both loops" in str(hint(LONG_SOFTMAX))


def test_a_sum_of_bfloat16_is_hinted_at():
    source = kernel_sources()["rms_norm"]
    slip = define(source.replace(".to(tl.float32)", ""), "<in bfloat16>")
    assert "last place" in str(check(slip, RMS_NORM)) and "A little off" in str(hint(RMS_NORM))


def test_a_count_that_is_left_is_not_taken_for_rows_of_the_next_part():
    (left,) = (each for each in mistakes(LAYER_NORM_DW) if each.name == "count_left_as_it_is")
    check(define(left.apply(kernel_sources()["layer_norm_dw"]), "<count left>"), LAYER_NORM_DW)
    assert "One thing is left over" in str(hint(LAYER_NORM_DW))


def test_parts_that_are_all_stored_in_one_place_are_no_empty_splits():
    (all_in_part_0,) = (each for each in mistakes(SPLIT_K) if each.name == "splits_share_a_tile")
    check(define(all_in_part_0.apply(kernel_sources()["split_k"]), "<part 0>"), SPLIT_K)
    assert "Where a part begins" in str(hint(SPLIT_K))


def test_a_compiler_that_refuses_a_later_case_is_heard_first():
    """The shapes of the first case may fit by chance."""
    cases = (
        CaseResult("T=16", Verdict("values", "wrong")),
        CaseResult("T=128", Verdict("compiler", "shapes")),
    )
    report = Report(SCALAR_FLASH_ATTENTION.name, cases)
    checked = session.Checked(SCALAR_FLASH_ATTENTION, "", report)
    session._last[session.memory_key(SCALAR_FLASH_ATTENTION)] = checked
    told = hint(SCALAR_FLASH_ATTENTION)
    assert told.hint.title == "Shapes first" and "last check said: “shapes”" in str(told)


def test_a_hint_that_was_shown_for_another_reason_is_named_and_the_next_one_comes(monkeypatch):
    """Three checks that the same hint fits give three hints, not one three times."""
    known = tuple(Hint(title, "Do.", fits) for title, fits in (
        ("a", ()), ("b", (Fit("values", "NaN"), Fit("compiler"))), ("c", ()), ("d", ()),
    ))  # fmt: skip
    monkeypatch.setattr(hinting, "hints", lambda: {("masked_add", ""): known})
    failed(MASKED_ADD, "compiler", "shapes")
    assert numbers(MASKED_ADD, 2) == [2, 1]  # once for this reason
    failed(MASKED_ADD, "values", "2 of 16 are NaN")
    told = hint(MASKED_ADD)
    assert told.number == 3 and "Chosen because" not in str(told)
    named = "Hint 2 fits your last check best, but you've seen it: hint(MASKED_ADD, 2) shows it again."
    for shown in (str(told), told._repr_markdown_()):  # before the hint, which may be about something else
        assert shown.index(named) < shown.index("Do.")
    failed(MASKED_ADD, "values", "3 of 16 are NaN")  # the same failure with other numbers
    assert "fits your last check best" not in str(hint(MASKED_ADD))
    assert numbers(MASKED_ADD, 2) == [4, 4]
    failed(MASKED_ADD, "compiler", "axes")
    assert numbers(MASKED_ADD, 2) == [2, 4]  # all were shown, so the one that fits comes again


def test_a_fitting_hint_that_was_not_shown_comes_before_the_next_in_order(monkeypatch):
    known = tuple(Hint(title, "Do.", fits) for title, fits in (
        ("a", (Fit("race", "z[0]"),)), ("b", ()), ("c", (Fit("race"),)),
    ))  # fmt: skip
    monkeypatch.setattr(hinting, "hints", lambda: {("masked_add", ""): known})
    failed(MASKED_ADD, "race", "z[0] by two programs")
    assert hint(MASKED_ADD).number == 1
    failed(MASKED_ADD, "race", "z[0] by all programs")
    told = hint(MASKED_ADD)
    assert told.number == 3 and "but you've seen it: hint(MASKED_ADD, 1)" in str(told)


def test_nobody_meets_nearly_the_answer_unprepared_or_hints_about_other_mistakes():
    """Three wrong masks: the hint on masks, once more, then nearly the answer; never one on the pointers."""
    failed(MASKED_ADD, "out of bounds", "element 20")
    assert hint(MASKED_ADD).number == 4
    failed(MASKED_ADD, "out of bounds", "element 20 and others")
    told = hint(MASKED_ADD)
    assert told.number == 4 and told.lead.endswith("but it fits your last check best. Read it once more.")
    why = "(Hints 1, 2 and 3 are about other mistakes.)"
    assert told.notes[-1] == f"Still stuck? hint(MASKED_ADD) shows hint 5. {why}"
    assert numbers(MASKED_ADD, 2) == [5, 5]


def test_they_come_in_order_and_the_last_one_stays():
    count = len(hints()["masked_add", ""])
    assert numbers(MASKED_ADD, count + 2) == [*range(1, count + 1), count, count]
    assert f"You've now seen all {count} hints. hint(MASKED_ADD, 1)" in str(hint(MASKED_ADD))


def test_one_that_fits_what_was_said_comes_first():
    failed(OUTER_ADD_BLOCKS, "never written")
    told = hint(OUTER_ADD_BLOCKS)
    assert told.number == 3 and "Chosen because your last check said: " in str(told)
    assert numbers(OUTER_ADD_BLOCKS, 3) == [1, 4, 4]  # hint 2 is about another mistake
    assert (
        "The other hint doesn't fit what your last check said: hint(OUTER_ADD_BLOCKS, 2) shows hint 2."
        in str(hint(OUTER_ADD_BLOCKS))
    )


def test_words_of_the_report_weigh_more_than_its_kind(monkeypatch):
    known = (
        Hint("a", "A.", (Fit("values"),)),
        Hint("b", "B.", (Fit("values", "on_ties"),)),
        Hint("c", "C.", (Fit("values", "nobody says"),)),
    )
    monkeypatch.setattr(hinting, "hints", lambda: {("masked_add", ""): known})
    failed(MASKED_ADD, "values", "wrong in x:on_ties")
    assert hint(MASKED_ADD).number == 2


def test_words_are_no_part_of_longer_words_and_numbers(monkeypatch):
    """N=5 is neither N=50 nor BLOCK_N=5, and y_ptr is not dy_ptr."""
    known = (Hint("a", "A."), Hint("b", "B.", (Fit("values", "N=5"), Fit("values", "y_ptr"))))
    monkeypatch.setattr(hinting, "hints", lambda: {("masked_add", ""): known})
    for message, number in (("BLOCK_N=5", 1), ("N=50", 1), ("dy_ptr", 1), ("N=5", 2), ("a load of y_ptr", 2)):
        monkeypatch.setattr(hinting, "_shown", {})
        failed(MASKED_ADD, "values", message)
        told = hint(MASKED_ADD)
        assert told.number == number and ("Chosen because" in str(told)) == (number == 2)


def test_a_case_is_a_reason_only_if_no_other_case_with_its_label_passes():
    hint_ = Hint("a", "A.", (Fit("values", "N=5"), Fit("values", "N=7")))
    wrong = Verdict("values", "wrong")

    def fits(*cases: tuple[str, Verdict | None]) -> bool:
        report = Report("masked_add", tuple(CaseResult(label, verdict) for label, verdict in cases))
        return hinting._fit(hint_, report) > hinting.NO_FIT

    assert fits(("N=1", None), ("N=5", wrong), ("N=7", wrong))
    assert not fits(("N=1", None), ("N=5", wrong), ("M=3  N=5", None))
    assert fits(("N=5", wrong), ("M=3  N=5", None))  # the first case
    assert not fits(("N=1", None), ("N=5", Verdict("values", "wrong", diagnosis="you'd get these from >>")))


@pytest.mark.parametrize(
    "code, chosen",
    [
        ("tl.load(p, mask=m)", True),
        ("tl.load(p, mask=m, other=0)", False),
        ("tl.load(p, m, 0)", False),
        ("tl.load(p, m, 0) + tl.load(p, m)", True),
        ("tl.load(p, m, 0) + tl.load(p)", False),
        ("tl.load(p)", True),
    ],
)
def test_advice_that_the_code_follows_already_is_passed_over(code, chosen):
    advice = Hint("a", "A.", (Fit("values", "NaN"),), ("tl.load(other=)",))
    report = Report("masked_add", (CaseResult("N=1", Verdict("values", "2 are NaN")),))
    assert (hinting._fit(advice, report, f"def f():\n    x = {code}\n") > hinting.NO_FIT) == chosen


def test_code_that_cannot_be_read_by_itself_follows_no_advice():
    advice = Hint("a", "A.", (Fit("values", "NaN"),), ("tl.load(other=)",))
    report = Report("masked_add", (CaseResult("N=1", Verdict("values", "2 are NaN")),))
    inner = '    def f():\n        """A line,\nand another."""\n        x = tl.load(p, m, 0)\n'
    assert hinting._fit(advice, report, inner) > hinting.NO_FIT


@pytest.mark.parametrize(
    "condition, load, store, title",
    [
        ("lanes < BLOCK", ", mask=mask", ", mask=mask", "How many elements are left"),
        ("lanes < N - pid", ", mask", ", mask", "How many elements are left"),
        ("lanes < N - pid * BLOCK", "", "", "What needs a mask"),
        ("lanes < N - pid * BLOCK", ", mask=mask", "", "What needs a mask"),
    ],
)
def test_a_wrong_mask_is_not_taken_for_a_missing_one(condition, load, store, title, state_dir):
    source = kernel_sources()["masked_add"].replace("lanes < N - pid * BLOCK", condition)
    source = source.replace("x_ptr + lanes, mask=mask", f"x_ptr + lanes{load}")
    check(define(source.replace("x + 10, mask=mask", f"x + 10{store}"), "<mask>"), MASKED_ADD)
    assert hint(MASKED_ADD).hint.title == title


def test_tiles_that_nobody_overwrites_are_no_swapped_quotient():
    """A last band that is too high leaves tiles out, but its quotient and remainder are correct."""
    failed(TILE_ORDER, "never written", "78 of 3150 elements of z are never written, starting with z[64, 32]")
    assert hint(TILE_ORDER).number == 2
    assert [hint(TILE_ORDER).number for _ in range(2)] == [1, 5]
    hinting._shown.clear()
    failed(TILE_ORDER, "never written", "programs 4 and 6 overwrite each other at z[32, 0]")
    assert hint(TILE_ORDER).number == 4


def test_words_can_speak_against_a_hint():
    one = Hint("a", "A.", (Fit("never written"),), ("overwrite each other",))
    for said, chosen in (("", True), ("programs 0 and 1 overwrite each other", False)):
        verdict = Verdict("never written", "none of z", diagnosis=said)
        report = Report("masked_add", (CaseResult("N=1", verdict),))
        assert (hinting._fit(one, report) > hinting.NO_FIT) == chosen


def test_the_next_check_is_heard(monkeypatch):
    failed(OUTER_ADD_BLOCKS, "race")
    assert hint(OUTER_ADD_BLOCKS).number == 2
    failed(OUTER_ADD_BLOCKS, "never written")
    assert hint(OUTER_ADD_BLOCKS).number == 3


@pytest.mark.parametrize("kind, message", [("values", "wrong values in z"), ("compiler", "no line sets it")])
def test_a_kind_with_many_causes_is_no_reason_for_a_hint(kind, message):
    failed(MUL_RELU, kind, message)
    told = hint(MUL_RELU)
    assert told.number == 1 and "Chosen because" not in str(told)


def test_the_last_line_names_the_hint_that_comes_next():
    assert "hint(MASKED_ADD) shows hint 1." in str(hint(MASKED_ADD, 5))
    failed(MASKED_ADD, "uninitialized", "masked-off lanes")
    told = str(hint(MASKED_ADD))  # hint 2; hints 1, 3 and 4 are about other mistakes
    assert "The other 3 hints don't fit what your last check said: hint(MASKED_ADD, 1) shows hint 1." in told
    assert [hint(MASKED_ADD, n).number for n in (1, 3, 4)] == [1, 3, 4]
    assert "You've now seen all 5 hints." in str(hint(MASKED_ADD))


@pytest.mark.parametrize("kind, message, lost", [("values", "no such value", True), ("open", "", False)])
def test_an_unsolved_puzzle_isnt_a_mistake_that_no_hint_is_about(kind, message, lost):
    failed(MUL_RELU, kind, message)
    last = [str(hint(MUL_RELU)) for _ in hints()["mul_relu", ""]][-1]
    assert "You've now seen all" in last and ("nothing in your last report points to" in last) == lost


def test_a_kernel_of_another_name_does_not_steer(state_dir):
    source = kernel_sources()["masked_add"].replace("lanes < N", "lanes <= N")
    check(define(source, "<one too many>"), MASKED_ADD)
    sneaky = define(source.replace("masked_add_kernel", "sneaky_kernel").replace("+ 10", "+ 11"), "<sneaky>")
    check(sneaky, MASKED_ADD)
    assert session.last_check(MASKED_ADD).kernel == "masked_add_kernel"


def test_a_number_is_that_one_whatever_was_shown():
    assert [hint(MASKED_ADD, 3).number, hint(MASKED_ADD, 3).number, hint(MASKED_ADD).number] == [3, 3, 1]
    assert hint(MASKED_ADD).number == 2


def test_a_puzzle_that_is_solved_twice_has_hints_for_the_kernel_checked_last(monkeypatch):
    known = {("long_softmax", name): (Hint(f"For {name}", "Do."),) for name in ("", "another_kernel")}
    monkeypatch.setattr(hinting, "hints", lambda: known)
    assert hint(LONG_SOFTMAX).hint == known["long_softmax", ""][0]
    failed(LONG_SOFTMAX, "open", kernel="another_kernel")
    assert hint(LONG_SOFTMAX).hint == known["long_softmax", "another_kernel"][0]


def test_one_that_was_asked_for_by_its_number_has_been_seen():
    failed(OUTER_ADD_BLOCKS, "never written")
    assert hint(OUTER_ADD_BLOCKS, 3).number == 3  # it fits
    assert hint(OUTER_ADD_BLOCKS).number == 1


def test_an_earlier_hint_that_comes_next_is_said_to_fit():
    failed(OUTER_ADD_BLOCKS, "never written", "programs (0, 0) and (0, 1) overwrite each other")
    assert "shows hint 2, which fits your last check." in str(hint(OUTER_ADD_BLOCKS, 4))


def test_a_hint_that_only_the_kind_of_the_fault_chose_is_not_said_to_fit(monkeypatch):
    """Elements that are never written have many causes, and the hint is about one of them."""
    known = (Hint("a", "A."), Hint("b", "B.", (Fit("never written"), Fit("never written", "overwrite"))))
    monkeypatch.setattr(hinting, "hints", lambda: {("masked_add", ""): known})
    for message in ("21 elements", "programs 0 and 1 overwrite each other"):
        monkeypatch.setattr(hinting, "_shown", {})
        failed(MASKED_ADD, "never written", message)
        said, told = "which fits your last check", str(hint(MASKED_ADD))
        assert told.startswith("masked_add, hint 2") and "Chosen because" in told
        assert (said in told) == ("overwrite" in message)
        monkeypatch.setattr(hinting, "_shown", {})
        assert said not in str(hint(MASKED_ADD, 1))  # hint 2 comes next anyway


def test_who_has_passed_needs_none(state_dir):
    check(solutions()["masked_add"], MASKED_ADD)
    told = hint(MASKED_ADD)
    assert told.hint is None and "you need no hint" in str(told)
    assert hint(MASKED_ADD, 1).hint


def test_a_check_is_what_it_hears(state_dir):
    source = kernel_sources()["outer_add_blocks"].replace("program_id(0)", "program_id(2)")
    check(define(source, "<outer add, first row of tiles>"), OUTER_ADD_BLOCKS)
    assert hint(OUTER_ADD_BLOCKS).number == 2
    check(None, OUTER_ADD_BLOCKS)
    assert hint(OUTER_ADD_BLOCKS).number == 1


def test_markdown_has_the_text_as_it_is_written():
    told = hint(OUTER_ADD_BLOCKS, 4)
    assert told._repr_markdown_().startswith(
        "**outer_add_blocks, hint 4 of 4: Nearly all of it**\n\n```python"
    )


def test_what_is_no_puzzle_or_no_number_is_refused():
    with pytest.raises(TypeError, match="puzzle must be a Puzzle, not str"):
        hint("masked_add")
    for wrong in (0, 99, True, "1"):
        with pytest.raises(ValueError, match="number must be from 1 to 5, but is .*"):
            hint(MASKED_ADD, wrong)


@pytest.mark.parametrize(
    "right, wrong, diagnosis, title",
    [
        ("-1e30", 'float("-inf")', "-inf - (-inf)", "The start value"),
        (
            "tl.full((BLOCK_M,), -1e30, tl.float32)",
            "tl.zeros((BLOCK_M,), tl.float32)",
            "maximum is far above",
            "The start value",
        ),
        (
            "tl.maximum(row_max, tl.max(x, axis=1))",
            "tl.max(x, axis=1)",
            "keep the larger",
            "The maximum so far",
        ),
        (
            "denominator * factor + added",
            "(denominator + added) * factor",
            "multiplies the new terms",
            "The old sum",
        ),
        (
            "row_max = new_max",
            "row_max = row_max",
            "row_max stays what it was",
            "The old maximum must follow",
        ),
        (
            "tl.exp(row_max - new_max)",
            "tl.exp2((row_max - new_max) * LOG2E)",
            "a kernel can't see the global LOG2E): pass it as a parameter",
            "Powers of two",
        ),
    ],
)
def test_what_goes_wrong_online_is_hinted_at(right, wrong, diagnosis, title):
    source = kernel_sources()["online_softmax"]
    slip = define(source.replace(right, wrong), "<online>")
    slip.__globals__["LOG2E"] = 1.44
    assert diagnosis in str(check(slip, ONLINE_SOFTMAX))
    told = str(hint(ONLINE_SOFTMAX))
    assert title in told and "Chosen because your last check said" in told


SCALAR, FLASH = SCALAR_FLASH_ATTENTION, FLASH_ATTENTION
CAUSAL = "offs_k[None, :] <= offs_q[:, None]"
HIDE_KEYS = 'tl.where(mask_k[None, :], scores, float("-inf"))'
HIDE_FUTURE = f'tl.where({CAUSAL}, scores, float("-inf"))'
OF_BLOCK, OF_X = "tl.max(scores, axis=1)", "tl.max(x, axis=1)"
P, END, EARLY = "tl.exp(scores - new_max[:, None])", "min(start_q + BLOCK_Q, T)", "        factor = "
SUM_OF_V, SUM_OF_EXP = "tl.sum(p * v[None, :], axis=1)", "tl.sum(tl.exp(x - row_max[:, None]), axis=1)"
SCORES_ONLY = 'scores = tl.dot(q, k.T, input_precision="ieee") / root_d  # [BLOCK_Q, BLOCK_K]\n        '
SCORES = f"{SCORES_ONLY}scores = {HIDE_FUTURE}\n        "
Q_BY_K = 'tl.dot(q, k.T, input_precision="ieee")'
DOT = 'tl.dot(p, v, input_precision="ieee")'
NEW_ACC = f"        acc = acc * factor[:, None] + {DOT}\n"
BOTH_SUMS = f"""        denominator = denominator * factor + tl.sum(p, axis=1)
        acc = acc * factor + {SUM_OF_V}
"""
TOO_EARLY = {EARLY: f"        row_max = new_max\n{EARLY}"}
NO_FOLD, FROM_BLOCK = "to one number per row: tl.", "From one block of keys to the next"
ALWAYS_1 = "is the factor missing, or always 1"
OF_LINE = "fold scores on line"


@pytest.mark.parametrize(
    "puzzle, edits, words, title",
    [
        (LONG_SUM, {"tl.sum(x, axis=1)": "x"}, f"fold x {NO_FOLD}sum(x, axis=1)", "The fold"),
        (LONG_SOFTMAX, {OF_X: "x"}, f"fold x {NO_FOLD}max(x, axis=1)", "Shapes"),
        (LONG_SOFTMAX, {SUM_OF_EXP: "tl.exp(x - row_max[:, None])"}, NO_FOLD, "Shapes"),
        (ONLINE_SOFTMAX, {OF_X: "x"}, "fold x on line 13 to", "The order of the lines"),
        (SCALAR, {OF_BLOCK: "scores"}, OF_LINE, "Shapes first"),
        (SCALAR, {"tl.sum(p, axis=1)": "p"}, f"fold p {NO_FOLD}sum(p, axis=1)", "Shapes first"),
        (SCALAR, {SUM_OF_V: "tl.dot(p, v)"}, "v is a vector", "Shapes first"),
        (FLASH, {OF_BLOCK: "scores"}, OF_LINE, "The lines that are given"),
        (FLASH, {"tl.sum(p, axis=1)": "p"}, f"fold p {NO_FOLD}sum(p, axis=1)", "The lines that are given"),
        (
            SCALAR, {"q[:, None] * k[None, :]": "q * k"}, "such as q[:, None] and k[None, :]",
            "Shapes first",
        ),
        (FLASH, {"tl.dot(p, v,": "tl.dot(p.T, v,"}, "p.T is", "The weighted sum"),
        (LONG_SOFTMAX, {"tl.exp(": "tl.exp2("}, "exp2 instead of exp", "Powers of two"),
        (ONLINE_SOFTMAX, {"factor = tl.exp(": "factor = tl.exp2("}, "powers of 2", "Powers of two"),
        (SCALAR, {"tl.exp(": "tl.exp2("}, "exp2 instead of exp", "Powers of two"),
        (SCALAR, {"factor = tl.exp(": "factor = tl.exp2("}, "powers of 2", "Powers of two"),
        (FLASH, {"tl.exp(": "tl.exp2("}, "exp2 instead of exp", "The lines that are"),
        (FLASH, {"factor = tl.exp(": "factor = tl.exp2("}, "powers of 2", "The lines that"),
        (LONG_SOFTMAX, {OF_X: "tl.max(x)"}, "does tl.max have its axis", "Shapes"),
        (ONLINE_SOFTMAX, {OF_X: "tl.max(x)"}, "does tl.max have its axis", "The order of the lines"),
        (SCALAR, {OF_BLOCK: "tl.max(scores)"}, "does tl.max have its axis", "Shapes first"),
        (FLASH, {OF_BLOCK: "tl.max(scores)"}, "does tl.max have its axis", "The lines that"),
        (SCALAR, {f"tl.maximum(row_max, {OF_BLOCK})": OF_BLOCK}, "keep the larger", FROM_BLOCK),
        (
            SCALAR, {HIDE_KEYS: "scores", P: f"tl.where(mask_k[None, :], {P}, 0.0)"},
            "hide the scores, not only p", "Keys that don't exist",
        ),
        (
            FLASH, {HIDE_FUTURE: "scores", P: f"tl.where({CAUSAL}, {P}, 0.0)"},
            "hide the scores, not only p", "The mask",
        ),
        (ONLINE_SOFTMAX, TOO_EARLY, ALWAYS_1, "The old sum"),
        (SCALAR, TOO_EARLY, ALWAYS_1, FROM_BLOCK),
        (FLASH, TOO_EARLY, ALWAYS_1, "The lines that are given"),
        (FLASH, {END: "start_q + BLOCK_K"}, "does end cover", "Where the keys end"),
        (FLASH, {END: "start_q + 1"}, "does end cover", "Where the keys end"),
        (FLASH, {END: "BLOCK_Q"}, "grow by BLOCK_Q", "Where the keys end"),
        (FLASH, {END: "tl.program_id(0) + 1"}, "counts keys, not programs", "Where the keys end"),
        (FLASH, {END: "tl.cdiv(start_q + BLOCK_Q, BLOCK_K)"}, "counts keys, not programs", "Where the keys"),
        (FLASH, {END: f"{END} - 1"}, "the last key is never loaded", "Where the keys end"),
        (FLASH, {END: "T"}, "loaded in vain", "Where the keys end"),
        (FLASH, {f"    end = {END}\n": ""}, "loaded in vain", "Where the keys end"),
        (FLASH, {SCORES: ""}, "write the lines that replace the zeros", "The scores"),
        (FLASH, {SCORES_ONLY: ""}, "compute them from q and k", "The scores"),
        (FLASH, {NEW_ACC: ""}, "no line adds to acc", "The weighted sum"),
        (
            FLASH, {f"acc * factor[:, None] + {DOT}": f"(acc + {DOT}) * factor[:, None]"}, "the new terms",
            "The weighted sum",
        ),
        (FLASH, {f"acc * factor[:, None] + {DOT}": DOT}, "keeps only the last block", "The weighted sum"),
        (FLASH, {"tl.dot(p, v,": "tl.dot(scores, v,"}, "multiplies scores, which", "The weighted sum"),
        (FLASH, {Q_BY_K: "q * k"}, "k is [32, 32]", "The scores"),
        (FLASH, {CAUSAL: f"{CAUSAL} + 1"}, "the key after its own", "The mask"),
        (FLASH, {"acc / denominator[:, None]": "acc"}, "isn't divided", "The lines that are given"),
        (FLASH, {P: "tl.exp(scores - row_max[:, None])"}, "subtract new_max", "The lines that are given"),
        (SCALAR, {P: "tl.exp(scores - row_max[:, None])"}, "subtract new_max", "The order of the lines"),
        (SCALAR, {P: "tl.exp(scores)"}, "subtract new_max from", "The order of the lines"),
        (FLASH, {P: "tl.exp(scores)"}, "subtract new_max from", "The lines that are given"),
        (SCALAR, {f"acc * factor + {SUM_OF_V}": SUM_OF_V}, "keeps only the last block", FROM_BLOCK),
        (SCALAR, {"acc / denominator": "acc"}, "isn't divided", "Divide once"),
        (
            SCALAR,
            {
                "k_ptr + offs_k, mask=mask_k, other=0.0": 'k_ptr + offs_k, mask=mask_k, other=float("-inf")',
                HIDE_KEYS: "scores",
            },
            "load 0, and hide the products", "Keys that don't exist",
        ),
        (SCALAR, {BOTH_SUMS: ""}, "no line adds to denominator or acc", "The two sums"),
        (SCALAR, {"mask_k[None, :], scores": "mask_q[:, None], scores"}, "where mask_k is False", "Keys"),
        (LONG_SUM, {"        acc += tl.sum(x, axis=1)  # [BLOCK_M]\n": ""}, "adds to acc", "One iteration"),
        (ONLINE_SOFTMAX, {"row_max - new_max": "new_max - row_max"}, "old minus new", "Which way around"),
        (FLASH, {END: "(tl.program_id(0) + 1) * BLOCK_K"}, "end is too small", "Where the keys end"),
        (FLASH, {CAUSAL: "start_q >= offs_k[None, :]"}, "see the same keys", "The mask"),
        (FLASH, {CAUSAL: "offs_q[:, None] - offs_k[None, :] < 4"}, "only hides old keys", "The mask"),
        (SCALAR, {"p * v[None": "p * k[None"}, "keys instead of values", "The two sums"),
        (FLASH, {"tl.dot(p, v,": "tl.dot(p, k,"}, "keys instead of values", "The weighted sum"),
        (SCALAR, {P: "scores - new_max[:, None]"}, "it needs tl.exp", "The order of the lines"),
        (
            SCALAR, {SUM_OF_V: "tl.sum(p, axis=1) * tl.sum(v)"}, "a sum of p by a sum of v",
            "The two sums",
        ),
        (
            LONG_SOFTMAX, {'tl.full((BLOCK_M,), float("-inf"), ': "tl.full((BLOCK_M,), 0.0, "},
            "maximum is far above", "Where to start from",
        ),
        (LONG_SOFTMAX, {"denominator +=": "denominator ="}, "is the last block's", "The denominator"),
        (
            LONG_SOFTMAX, {"denominator = tl.zeros((BLOCK_M,), ": "denominator = tl.full((BLOCK_M,), 1.0, "},
            "denominator starts at 1", "The denominator",
        ),
        (LONG_SOFTMAX, {"tl.sum(tl.exp(x - row": "tl.sum((x - row"}, "needs the exp", "The denominator"),
        (LONG_SUM, {"offs_n[None, :] < N": "offs_n[None, :] <= N"}, "with < instead of <=", "The mask"),
        (
            LONG_SUM,
            {
                "tl.zeros((BLOCK_M,), tl.float32)": "tl.zeros((BLOCK_M,), tl.float16)",
                "acc += tl.sum(x, axis=1)": "acc = (acc + tl.sum(x, axis=1)).to(tl.float16)",
            },
            "acc is rounded to float16", "The type of the sum",
        ),
    ],
)  # fmt: skip
def test_slips_of_running_sums_and_maxima_are_named_and_hinted_at(puzzle, edits, words, title):
    """Those of puzzles 7 to 9b that learners make again and again."""
    source = kernel_sources()[puzzle.name]
    for right, wrong in edits.items():
        assert right in source
        source = source.replace(right, wrong)
    assert words in str(check(define(source, "<a slip>"), puzzle))
    assert title in str(hint(puzzle))


@pytest.mark.parametrize(
    "puzzle, right, wrong",
    [
        (SCALAR, f"acc * factor + {SUM_OF_V}", SUM_OF_V),
        (SCALAR, "q[:, None] * k[None, :]", "q * k"),
        (FLASH, f"acc * factor[:, None] + {DOT}", DOT),
        (FLASH, Q_BY_K, "q * k"),
    ],
)
def test_the_second_hint_of_chapter_05_is_not_nearly_the_answer(puzzle, right, wrong):
    source = kernel_sources()[puzzle.name]
    assert right in source
    check(define(source.replace(right, wrong), "<a slip>"), puzzle)
    first, *others, last = [hint(puzzle).hint.title for _ in range(4 if puzzle is FLASH else 3)]
    assert "Watch one program" in others and last == "Nearly all of it"
    assert first != "The weighted sum" or wrong == DOT
    assert "The weighted sum" not in others
