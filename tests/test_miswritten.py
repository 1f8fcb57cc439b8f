"""A report names an operator or a function that stands in the wrong place, and tiles that begin there."""

from dataclasses import replace

import pytest

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import named
from puzzles_lib.checker import examine
from puzzles_lib.source import define

PRODUCT = "x[None, :] * y[:, None]"
RELU = "tl.maximum(product, 0.0)"
GATED = "tl.where(x * y > 0, dz * y, 0.0)"


def report(puzzle: str, old: str, new: str, **changed) -> str:
    source = kernel_sources()[puzzle.lower()]
    assert source.count(old) == 1
    return str(
        examine(define(source.replace(old, new), f"<{puzzle} {new}>"), replace(named()[puzzle], **changed))
    )


@pytest.mark.parametrize(
    ("puzzle", "old", "new", "words"),
    [
        (
            "MUL_RELU",
            RELU,
            "tl.where(product > 0, 0.0, product)",
            "with minimum instead of maximum, or with the values of tl.where exchanged",
        ),
        ("MUL_RELU", RELU, "tl.minimum(product, 0.0)", "with minimum instead of maximum"),
        ("MUL_RELU", PRODUCT, "x[None, :] + y[:, None]", "with + instead of *"),
        ("OUTER_ADD", "x[None, :] + y[:, None]", PRODUCT, "with * instead of +"),
        ("OUTER_ADD", "x[None, :] + y[:, None]", "x[None, :] - y[:, None]", "with - instead of +"),
    ],
)
def test_another_operation_is_named(puzzle, old, new, words):
    assert f"it is what you get {words}" in report(puzzle, old, new)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("tl.max(product)", "the largest of all products: tl.max(t) folds the whole block"),
        ("product > 0", "which is the result of a comparison"),
    ],
)
def test_what_is_stored_instead_of_a_relu_is_named(new, words):
    assert words in report("MUL_RELU", RELU, new)


@pytest.mark.parametrize(
    "new", ["tl.maximum(product, 0.1)", "tl.where(product > 1, product, 0.0)", "product"]
)
def test_another_fault_is_not_taken_for_an_operation(new):
    assert "it is what you get" not in report("MUL_RELU", RELU, new)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("tl.where(x * y >= 0, dz * y, 0.0)", "x * y is exactly 0 there"),
        ("tl.maximum(dz * y, 0.0)", "the relu of dz * y"),
        ("tl.where(dz > 0, dz * y, 0.0)", "the sign of dz"),
        ("tl.where(x * y > 0, 0.0, dz * y)", "open below 0 and shut above"),
        ("tl.where(x * y < 0, dz * y, 0.0)", "open only below 0"),
        ("tl.where(x * y * dz > 0, dz * y, 0.0)", "the sign of x * y * dz"),
        ("tl.where((x > 0) & (y > 0), dz * y, 0.0)", "the product of two negative numbers"),
        ("tl.where((x > 0) == (y > 0), dz * y, 0.0)", "compare the product"),
        ("tl.where(x * y > 0, y, 0.0)", "the factor dz is missing"),
        ("dz * tl.maximum(x * y, 0.0)", "instead of its slope, 1 or 0, times y"),
        ("dz * tl.maximum(x * y, 0.0) * y", "instead of its slope, 1 or 0"),
    ],
)
def test_a_gate_in_the_wrong_place_is_named(new, words):
    assert words in report("MUL_RELU_BACKWARD", GATED, new)


ROWS, COLUMNS = "tl.program_id(0) * BLOCK_M", "tl.program_id(1) * BLOCK_N"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (ROWS, "tl.program_id(0)", "begin 1 row apart, but a tile has BLOCK_M = 16 rows"),
        (COLUMNS, "tl.program_id(1)", "begin 1 column apart, but a tile has BLOCK_N = 32 columns"),
        (COLUMNS, "tl.program_id(1) * BLOCK_M", "begin 16 columns apart, but a tile has BLOCK_N = 32"),
        (ROWS, "tl.program_id(0) * BLOCK_N", "(1, 0) leave a gap: neighboring tiles begin 32 rows apart"),
        (
            COLUMNS,
            "tl.program_id(1) * N",
            "leave a gap: neighboring tiles begin 96 columns apart, but a tile",
        ),
        (COLUMNS, "tl.program_id(2) * BLOCK_N", "(1) instead of tl.program_id(2), which is always 0"),
        (" + tl.arange(0, BLOCK_N)", "", "has only one column: its offsets need tl.arange(0, BLOCK_N)"),
    ],
)
def test_tiles_that_begin_in_the_wrong_place_are_named(old, new, words):
    assert words in report("OUTER_ADD_BLOCKS", old, new)


BOTH = "tl.arange(0, BLOCK_M)", "tl.arange(0, BLOCK_N)"


def test_a_tile_with_rows_and_columns_exchanged_is_named(monkeypatch):
    source = kernel_sources()["outer_add_blocks"]
    swapped = source.replace(BOTH[0], "?").replace(BOTH[1], BOTH[0]).replace("?", BOTH[1])
    told = str(examine(define(swapped, "<exchanged>"), named()["OUTER_ADD_BLOCKS"]))
    assert "a tile of this store has BLOCK_N = 32 rows and BLOCK_M = 16 columns" in told


INSIDE = "(offs_m[:, None] < M) & (offs_n[None, :] < N)"


@pytest.mark.parametrize(
    ("puzzle", "new", "words"),
    [
        ("OUTER_ADD", "offs < M * N", "lanes for columns 30 to 31 are on, but z has N = 30 columns: compare"),
        ("MUL_RELU", "offs < M * N", "lanes for columns 100 to 127 are on, but z has N = 100 columns"),
        ("MUL_RELU_BACKWARD", "offs < M * N", "compare the columns with N in the mask"),
        *((name, INSIDE.replace("&", "|"), "combine the comparisons with &, not with |")
          for name in ("OUTER_ADD", "MUL_RELU", "MUL_RELU_BACKWARD")),
    ],
)  # fmt: skip
def test_a_mask_that_lets_lanes_past_a_row_is_blamed(puzzle, new, words):
    """The store is: the loads before it are correct."""
    told = report(puzzle, INSIDE, new)
    assert words in told and "other=" not in told.replace(", other=0.0", "")
    assert puzzle != "MUL_RELU" or ": tl.store(" in told


def test_rows_that_are_too_far_apart_are_named_out_of_bounds_too():
    assert "your rows are 32 elements apart, but rows of z are N = 30 apart" in report(
        "OUTER_ADD", "* N +", "* BLOCK_N +"
    )


def test_a_lane_that_is_switched_off_is_named():
    told = report("OUTER_ADD", INSIDE, INSIDE.replace("M)", "M - 1)"))
    assert "the lane for z[31, 0] is switched off by the mask of this store" in told


@pytest.mark.parametrize("case", [1, 2, 3])
def test_exchanged_sizes_in_a_mask_are_named(case):
    """Of the cases, one is wide, one is tall, and in one the lanes are out of bounds."""
    exchanged = INSIDE.replace("M)", "?").replace("N)", "M)").replace("?", "N)")
    told = report("OUTER_ADD", INSIDE, exchanged, cases=(named()["OUTER_ADD"].cases[case],))
    assert "the mask compares rows with N and columns with M: exchange M and N in it" in told


@pytest.mark.parametrize("puzzle", ["OUTER_ADD", "OUTER_ADD_BLOCKS"])
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("offs_n[None, :]  #", "offs_n[None, :] + 1  #", "z[0, 1]"),
        ("* N + offs_n", "* N + N + offs_n", "z[1, 0]"),
        ("tl.arange(0, BLOCK_N)", "tl.arange(0, BLOCK_N) + 1", "z[0, 1]"),
        ("tl.arange(0, BLOCK_M)", "tl.arange(0, BLOCK_M) + 1", "z[1, 0]"),
    ],
)
def test_tiles_that_begin_too_late_are_not_blamed_on_a_correct_mask(puzzle, old, new, place):
    told = report(puzzle, old, new)
    who = "program 0" if puzzle == "OUTER_ADD" else "program (0, 0)"
    assert f"no program stores z[0, 0]: {who} begins at {place} already" in told and "compare the" not in told


@pytest.mark.parametrize(("puzzle", "old"), [("OUTER_ADD", "x[None, :] + y[:, None]"), ("MUL_RELU", PRODUCT)])
def test_a_missing_axis_is_named(puzzle, old):
    told = report(puzzle, old, old.replace("[None, :]", "").replace("[:, None]", ""))
    assert "to get a tile, add an axis to each, such as x[None, :] and y[:, None]" in told


def test_a_row_that_should_be_a_column_is_named():
    told = report("MUL_RELU_BACKWARD", "mask=offs_m < M)[:, None]", "mask=offs_m < M)[None, :]")
    assert "y has one element per row of the tile, so make it a column: [:, None], not [None, :]" in told
