"""The functions of the player's script, under node: what is true at a step, and where to go from there."""

import numpy as np
import pytest

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch05_flash_attention.puzzles import SCALAR_FLASH_ATTENTION
from puzzles_lib.inputs import make_inputs
from puzzles_lib.player import watch
from puzzles_lib.player.packing import Pool, packed
from puzzles_lib.source import define
from tests.played import NODE, Played, in_node
from tests.test_player import (
    ADD_TEN,
    TOTAL,
    add_ten_kernel,
    cell,
    overrunning_kernel,
    played,
    summing_kernel,
    winding_kernel,
)

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node, by apt or the like")


def data(kernel: object, puzzle=ADD_TEN, case: int = 1, program: int = 0) -> str:
    return watch(kernel, puzzle, case, program).data


def test_arrays_are_read_as_they_were_packed():
    arrays = [
        np.arange(12).reshape(3, 4) * 5 - 7,
        np.array([3, 1, 2]),
        np.array([-200, 100, 30_000]),
        np.array([2**60 + 1, -(2**62), 0], np.int64),
        np.array([2**63 + 1, 3, 0], np.uint64),
        np.array([0.25, np.nan, -np.inf], np.float32),
        np.array([1e300, 2.0]),
        np.arange(19) % 3 == 0,
        np.full((2, 2), np.inf, np.float32),
    ]
    pool = Pool()
    for array in arrays:
        pool.add(array)
    tree = {"programs": [0], "program": 0}
    told = in_node("run.arrays.map((_, i) => p.arrayOf(run, i))", packed(tree, pool))
    for array, back in zip(arrays, told, strict=True):
        assert back["shape"] == list(array.shape)
        if array.dtype.itemsize == 8 and array.dtype.kind in "iu" and abs(int(array.flat[0])) > 2**53:
            assert [int(v) for v in back["data"]] == array.ravel().tolist()
        else:
            values = [
                {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}.get(v, v) for v in back["data"]
            ]
            np.testing.assert_array_equal(values, array.ravel())


def test_numbers_in_words():
    told = in_node(
        "[0.1 + 0.2, 1e-20, 123456.789, -0, 5, NaN, -Infinity, true, 2n ** 60n].map((v) => p.numberText(v))"
        ".concat(p.numberText(1979.96, 4))",
        data(add_ten_kernel),
    )
    assert told == ["0.3", "1e-20", "1.2346e+5", "-0", "5", "NaN", "-inf", "True", str(2**60), "1980"]


def test_addresses_in_words():
    tensor = '{ name: "x", shape: [4, 50] }'
    told = in_node(f"[0, 167, 200, -3].map((i) => p.address({tensor}, i))", data(add_ten_kernel))
    assert told == ["x[0, 0]", "x[3, 17]", "x + 200", "x - 3"]


def test_a_lane_says_where_it_points_and_what_switched_it_off():
    lanes = "[7, 8].map((lane) => p.laneText(run, program.steps[3].a[0], lane))"
    assert in_node(lanes, data(add_ten_kernel, program=2)) == [
        "lane [7]: x[39]",
        "lane [8]: masked off, because offs < N is False; its address is x + 40",
    ]
    lane = "p.laneText(run, program.steps[2].a[0], 9)"
    told = in_node(lane, data(overrunning_kernel, program=2))
    assert told == "lane [9]: out of bounds at x + 41; x has 40 elements"


def test_a_term_is_spread_over_the_lanes_of_a_tile():
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]\n"
        "    mask = (rows < 3) & (columns < 5)\n"
        "    offs = 8 * rows + columns\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask, other=0.0), mask=mask)\n",
        "<a tile>",
    )
    which = "[2, 7, 24, 31].map((lane) => p.switchedOffBy(run, program.steps.at(-1).a[0], lane))"
    told = in_node(which, data(kernel, case=0))
    assert told == [[], ["columns < 5"], ["rows < 3"], ["rows < 3", "columns < 5"]]


def test_a_step_says_in_how_many_lanes_a_name_changes():
    """128 pairs of numbers can't be compared by eye."""
    case = SCALAR_FLASH_ATTENTION.cases[2]
    tensors = make_inputs(SCALAR_FLASH_ATTENTION, case)
    scores = tensors["q"][: case.BLOCK_Q, None] * tensors["k"][None, : 2 * case.BLOCK_K]
    first, second = (block.amax(1) for block in scores.split(case.BLOCK_K, dim=1))
    rising = int((second > first).sum())
    kernel = define(kernel_sources()["scalar_flash_attention"], "<correct>")
    changes = (
        "program.steps.map((step, at) => p.namesAt(run, program, at).filter((e) => e.role === 'changed'"
        " && e.name === 'row_max').map((e) => p.lanesChanged(run, e))).flat()"
    )
    told = in_node(changes, data(kernel, SCALAR_FLASH_ATTENTION, case=2))
    rises = [None, [128, 128], [rising, 128], [0, 128], [0, 128]]  # 0 becomes -0 in some lanes
    assert told == rises


def test_names_of_a_step_changed_ones_first_with_what_they_were():
    names = "p.namesAt(run, program, {at}).map((e) => [e.name, e.role, p.kindText(run, run.values[e.value])])"
    assert in_node(names.format(at=3), data(add_ten_kernel)) == [
        ["x", "changed", "float32 [16]"],
        ["x_ptr", "read", "pointer to float32"],
        ["offs", "read", "int32 [16]"],
        ["mask", "read", "bool [16]"],
    ]
    lines = played(winding_kernel).lines()
    at = lines.index("turns += 1")
    assert in_node(names.format(at=at), data(winding_kernel)) == [
        ["turns", "changed", "int32"],
        ["turns, before", "read", "int32"],
    ]
    at = lines.index("pair = (offs, turns)")
    told = in_node(names.format(at=at), data(winding_kernel))
    assert [row[0] for row in told] == ["pair[0]", "pair[1]", "offs", "turns"]


def test_turns_of_all_loops_around():
    lines = played(winding_kernel).lines()
    at = [i for i, line in enumerate(lines) if line == "turns += i + j"][2]
    assert in_node(f"[...p.turnsAt(run, program, {at}).values()]", data(winding_kernel)) == [[2, 2], [1, 2]]


def test_a_helper_says_who_waits_for_it():
    at = played(winding_kernel).lines().index("return v + v")
    told = in_node(f"p.callers(run, program, {at}).map((c) => [c.name, c.line])", data(winding_kernel))
    line = next(
        i
        for i, text in enumerate(played(winding_kernel).tree["functions"][0]["lines"], 1)
        if "twice = doubled" in text
    )
    assert told == [["winding_kernel", line]]


def test_past_a_loop_forwards_and_backwards():
    told = played(winding_kernel)
    lines, text = told.lines(), data(winding_kernel)

    def past(at: int, direction: int) -> str | None:
        place = in_node(f"p.overLoop(run, program, {at}, {direction})", text)
        return None if place is None else f"{place}: {lines[place]}"

    first = lines.index("while turns < 3:")
    last = len(lines) - 1 - lines[::-1].index("while turns < 3:")
    assert past(first, 1) == past(first + 1, 1) == past(0, 1) == f"{last}: while turns < 3:"
    assert past(first + 1, -1) == f"{first - 1}: {lines[first - 1]}"
    inner = lines.index("for j in range(0, 4, 2):")
    following = next(i for i in range(inner, len(lines)) if lines[i].startswith("for i") or i > inner + 6)
    assert past(inner, 1) == f"{following}: {lines[following]}"
    assert past(len(lines) - 1, 1) is None and past(0, -1) is None


def test_next_load_or_store_and_next_change():
    text = data(add_ten_kernel)
    places = in_node("[0, 3, 4].map((at) => p.nextAccess(program, at, 1))", text)
    assert places == [3, 4, None]
    assert in_node("[p.nextChange(program, 0, 1, 'x'), p.nextChange(program, 4, -1, 'offs')]", text) == [3, 1]


def test_the_first_wrong_value_over_all_programs():
    assert in_node("p.firstWrong(run)", data(add_ten_kernel)) is None
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)\n"
        "    tl.store(z_ptr + offs, x + 10 + tl.program_id(0), mask=offs < N)\n",
        "<wrong from program 1 on>",
    )
    assert in_node("p.firstWrong(run)", data(kernel)) == [1, 3]
    assert in_node("[p.firstWrong(run), p.firstProblem(run)]", data(overrunning_kernel)) == [None, [2, 2]]


@pytest.mark.parametrize(
    "load, store, line",
    [
        ("mask=offs < N", "x + 10 + 0 * total", "total += tl.sum(x)"),
        ("mask=offs < N - 3", "x + 10", "x = tl.load(x_ptr + offs, mask=offs < N - 3)"),
        ("mask=offs < N, other=0.0", "x + 11", None),
    ],
)
def test_where_a_stored_value_first_becomes_undefined(load: str, store: str, line: str | None):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        f"    x = tl.load(x_ptr + offs, {load})\n"
        "    total = 0.0\n"
        "    total += tl.sum(x)\n"
        f"    tl.store(z_ptr + offs, {store}, mask=offs < N)\n",
        f"<undefined by {load}>",
    )
    text = data(kernel)
    (program, wrong), (same, first) = in_node(
        "[p.firstWrong(run), p.firstUndefined(run, p.firstWrong(run))]", text
    )
    lines = Played(text).lines(program)
    assert same == program and lines[wrong].startswith("tl.store")
    assert (lines[first] == line) if line else first == wrong


def test_what_is_stored_so_far():
    count = "p.storedAt(run, {place}, {at})[1].size"
    text = data(add_ten_kernel)
    counts = [
        in_node(count.format(place=place, at=at), text) for place, at in ((0, 3), (0, 4), (1, 0), (2, 4))
    ]
    assert counts == [0, 16, 16, 40]
    states = in_node(
        "[0, 1, 2].map((i) => p.storedAt(run, i, run.programs[i].steps.length)[1].get(0)[1])",
        data(summing_kernel, TOTAL, 0),
    )
    assert states == [3, 3, 1]


def test_heat_has_zero_in_the_middle():
    cells = "[[-2, -4, 8], [5, 2, 6], [3, 3, 3], [Infinity, 0, 1]]"
    told = in_node(f"{cells}.map(([v, low, high]) => p.heat(v, [low, high]))", data(add_ten_kernel))
    assert told == [-0.25, 0.75, 0.5, 1]


def test_both_readers_agree():
    text = data(add_ten_kernel, program=2)
    told = Played(text)
    sizes = in_node("run.arrays.map((_, i) => p.arrayOf(run, i).data.length)", text)
    assert sizes == [told.array(i).size for i in range(len(sizes))]


def test_ends_of_more_numbers_than_a_call_takes_arguments():
    told = data(add_ten_kernel)
    many = "new Set(Array.from({ length: 300_000 }, (_, i) => i - 5))"
    assert in_node(f"[p.ends({many}), p.ends([])]", told) == [[-5, 299_994], []]
