"""A report names the first lane of a vector kernel that loads or stores a wrong element, and says how."""

import pytest

from puzzles_lib import CONSTANT_ADD, DOUBLE, MASKED_ADD, PAIR_DIFFERENCE, REVERSED_ADD, hint, session
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.checker import examine
from puzzles_lib.checking import check
from puzzles_lib.coach import hinting
from puzzles_lib.source import define

START = "N - 1 - pid * BLOCK"
LOAD = "x_ptr - lanes"
MASK = "lanes < N - pid * BLOCK"
STORE = "z_ptr + pid * BLOCK + lanes"

SLIPS = [
    (REVERSED_ADD, {LOAD: "x_ptr + lanes"},
     "z[1] needs x[30], but lane 1 of program 0 loads x[32]: its lanes count up, but must count down",
     "Which way the lanes count"),
    (REVERSED_ADD, {START: "N - pid * BLOCK"},
     "z[0] needs x[31], but lane 0 of program 0 loads x[32]: every address is 1 too high",
     "Where lane 0 begins"),
    (REVERSED_ADD, {START: "pid * BLOCK"},
     "z[0] needs x[31], which is x[N - 1], but lane 0 of program 0 loads x[0]: every address is 31 too low "
     "in this case",
     "Where lane 0 begins"),
    (REVERSED_ADD, {START: "N - 2 - pid * BLOCK"}, "every address is 1 too low", "Where lane 0 begins"),
    (REVERSED_ADD, {START: "N - 1 + pid * BLOCK"},
     "z[32] needs x[95], but lane 0 of program 1 loads x[159]: program 1 must begin BLOCK = 32 elements "
     "before program 0, not after",
     "Where lane 0 begins"),
    (REVERSED_ADD, {START: "N - 1 - pid"}, "must begin BLOCK = 32 elements before program 0, not 1",
     "Where lane 0 begins"),
    (REVERSED_ADD, {LOAD: "x_ptr - pid * BLOCK - lanes"},
     "must begin BLOCK = 32 elements before program 0, not 64", "Where lane 0 begins"),
    (REVERSED_ADD, {MASK: "lanes < N"}, "all 8 lanes are on, but only 3 of them have an element",
     "The mask"),
    (REVERSED_ADD, {MASK: "lanes <= N - pid * BLOCK"}, "True in one lane too many", "The mask"),
    (MASKED_ADD, {MASK: "lanes <= N - pid * BLOCK"},
     "the mask is True in one lane too many: lane 19 is the last one that has an element",
     "The last lane"),
    (MASKED_ADD, {MASK: "lanes < N - 1 - pid * BLOCK"},
     "the lane for z[31] is switched off by the mask of this store", "The last lane"),
    (MASKED_ADD, {MASK: "lanes < BLOCK"}, "all 32 lanes are on, but only 20 of them have an element",
     "How many elements are left"),
    (CONSTANT_ADD, {"x_ptr + lanes": "x_ptr + lanes + 10", "x + 10": "x"},
     "every address is 10 too high. Is 10 added to the address instead of the value?",
     "Addresses and values"),
    (CONSTANT_ADD, {STORE: "z_ptr + pid * BLOCK + lanes + 10"},
     "x[0] belongs in z[0], but lane 0 of program 0 stores it to z[10]", "Addresses and values"),
    (CONSTANT_ADD, {STORE: "z_ptr + (pid + 1) * BLOCK + lanes"}, "every address is 32 too high",
     "One lane on paper"),
    (CONSTANT_ADD, {"x_ptr + lanes": "x_ptr", STORE: "z_ptr + pid * BLOCK"},
     "each program stores one element: add lanes to get one address per lane",
     "A block, not one number"),
    (CONSTANT_ADD, {f"tl.store({STORE}, x + 10)": "z_ptr = x_ptr + 10\n    tl.store(z_ptr + lanes, x)"},
     "z_ptr = x_ptr + 10 makes z_ptr an address in x, not in z", "Addresses and values"),
    (CONSTANT_ADD, {"x + 10": "(x + 10).to(tl.int32)"},
     "every element of z is a whole number: does a conversion cut off fractions?", "Two steps"),
    (CONSTANT_ADD, {"x + 10": "tl.full((BLOCK,), 1.0, tl.float32)"}, "every element of z is 1", "Two steps"),
    (CONSTANT_ADD, {"x + 10": "x.to(tl.int32) + 10"}, "does a conversion cut off fractions?", "Two steps"),
    (DOUBLE, {"z = 2 * x": "z = 2 * x if x > 0 else 2 * x"}, "cannot choose lane by lane", "What to type"),
    (DOUBLE, {"    z = 2 * x": "    z = x\n    tl.store(z_ptr + offs, 2 * x, mask=mask)"},
     "stores to the same addresses, so it overwrites what this line stores", "How your line is written"),
    (DOUBLE, {"tl.arange(0, BLOCK)": "tl.arange(0, BLOCK) + 1"},
     "no program stores z[0]: program 0 begins at z[1] already", "Only your own line is new"),
    (PAIR_DIFFERENCE, {"second - first": "second > first"}, "store the difference itself",
     "Which from which"),
    (PAIR_DIFFERENCE, {"x_ptr + 2 * offs + 1": "x_ptr + offs + 1"}, "in pair 1, it's x[3], not x[2]",
     "Where a pair begins"),
    (DOUBLE, {"z = 2 * x": "z = (2 * x).to(tl.float16)"}, "rounded to float16", "One number on paper"),
    (DOUBLE, {"z = 2 * x": "z = 2 * offs"}, "twice the position of each element", "One number on paper"),
    (DOUBLE, {"z = 2 * x": "z = x * x"}, "the square of each element", "One number on paper"),
    (DOUBLE, {"z = 2 * x": "z = 3 * x"}, "1.5 times what it should be", "One number on paper"),
    (PAIR_DIFFERENCE, {"2 * offs, mask=mask": "2 * offs", "2 * offs + 1, mask=mask": "2 * offs + 1"},
     "this load has no mask, but only 6 of the 8 lanes have an element", "The mask"),
    (PAIR_DIFFERENCE, {"second - first, mask=mask": "second - first"},
     "this store has no mask, but only 6 of the 8 lanes have an element", "The mask"),
    (PAIR_DIFFERENCE, {"2 * offs, mask=mask": "2 * offs, mask=2 * offs < N"}, "extend the load's mask",
     "The mask"),
    (PAIR_DIFFERENCE, {"    tl.store(z_ptr + offs, second - first, mask=mask)": "    z = second - first"},
     "the kernel stores nothing there", "Load and store"),
    (CONSTANT_ADD, {STORE: "z_ptr + 2 * pid * BLOCK + lanes"}, "", "One lane on paper"),
    (CONSTANT_ADD, {"x_ptr + lanes": "x_ptr + pid * BLOCK + lanes"}, "block's start a second time",
     "Once is enough"),
    (CONSTANT_ADD, {STORE: "z_ptr + pid * lanes"}, "each lane needs its own offset", "One lane on paper"),
    (MASKED_ADD, {MASK: "lanes > N - pid * BLOCK"}, "is the comparison lanes > N - pid * BLOCK reversed?",
     "How many elements are left"),
    (MASKED_ADD, {MASK: "x_ptr + lanes < N"},
     "x_ptr + lanes contains addresses\n       a mask compares positions, not addresses, here lanes",
     "How many elements are left"),
    (REVERSED_ADD, {MASK: "x_ptr - lanes >= 0"}, "not addresses, here lanes", "The mask"),
    (REVERSED_ADD, {"= tl.load": "= 10 + tl.load"}, "every element is too high by 10", "The given store"),
    (DOUBLE, {"z = 2 * x": "z = 2 * x.to(tl.int32)"}, "has lost its fraction", "One number on paper"),
]  # fmt: skip


@pytest.mark.parametrize("puzzle, edits, words, title", SLIPS)
def test_a_wrong_lane_is_named_and_hinted_at(puzzle, edits, words, title, monkeypatch, state_dir):
    monkeypatch.setattr(hinting, "_shown", {})
    monkeypatch.setattr(session, "_last", {})
    source = kernel_sources()[puzzle.name]
    for old, new in edits.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    assert words in str(check(define(source, "<slip>"), puzzle))
    assert hint(puzzle).hint.title == title


@pytest.mark.parametrize(
    "offs, words",
    [
        ("(pid + 1) * BLOCK", "no program stores z[0]: program 0 begins at z[32] already"),
        ("pid * BLOCK", "all 32 lanes are on, but only 20 of them have an element"),
    ],
)
def test_lanes_that_agree_are_not_misplaced(offs, words):
    source = f"""@triton.jit
def masked_add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = {offs} + tl.arange(0, BLOCK)
    mask = tl.full((BLOCK,), True, tl.int1)
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(z_ptr + offs, x + 10, mask=mask)
"""
    assert words in str(examine(define(source, f"<{offs}>"), MASKED_ADD))
