"""Chapter 19's puzzles: the model of the cache, and goals for what a kernel fetches from memory."""

import dataclasses
from collections import Counter

import pytest
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.cache_model import banded, by_tensor, fetched, lines, tiles
from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch19_what_the_clock_says import laboratory
from puzzles_lib.chapters.ch19_what_the_clock_says.puzzles import TILE_ORDER
from puzzles_lib.checker import examine, guarded
from puzzles_lib.checker.report import Report
from puzzles_lib.goal import Traffic
from puzzles_lib.puzzle import Case, Puzzle

# ---- the model


def loads(*names: str) -> list:
    """A program that touches blocks of size 1, a load each."""
    return [[(name, 1)] for name in names]


@pytest.mark.parametrize(
    "programs, in_flight, size, want",
    [
        ([loads("a", "b", "a")], 1, 2, {"a": 1, "b": 1}),
        ([loads("a", "b", "a")], 1, 1, {"a": 2, "b": 1}),  # b made room for itself
        ([loads("a", "b", "c", "a")], 1, 2, {"a": 2, "b": 1, "c": 1}),
        ([loads("a", "b", "a", "c", "a")], 1, 2, {"a": 1, "b": 1, "c": 1}),  # used again, so b goes
        ([loads("a", "b"), loads("a", "b")], 2, 1, {"a": 1, "b": 1}),  # they take turns
        ([loads("a", "b"), loads("a", "b")], 1, 1, {"a": 2, "b": 2}),  # one after the other
        ([loads("a"), loads("a", "b", "c")], 2, 9, {"a": 1, "b": 1, "c": 1}),  # of different lengths
        ([[[("a", 2), ("b", 2)]], loads("a")], 1, 3, {"a": 2, "b": 1}),  # sizes count
        ([], 4, 4, {}),
    ],
)
def test_what_nobody_used_for_the_longest_time_makes_room(programs, in_flight, size, want):
    assert fetched(programs, in_flight, size) == Counter(want)


def test_bands_hold_every_tile_once_and_go_down_first():
    for m, n, group in ((5, 2, 2), (3, 4, 8), (4, 4, 1)):
        assert sorted(banded(m, n, group)) == [(i, j) for i in range(m) for j in range(n)]
    assert banded(3, 2, 2) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]


def test_a_wave_that_is_a_square_fetches_least():
    def total(group: int) -> int:
        return fetched(tiles(banded(8, 8, group), 2, (1, 1)), 8, 8).total()

    assert {group: total(group) for group in (1, 2, 4, 8)} == {1: 144, 2: 96, 4: 96, 8: 144}


@triton.jit
def shifted(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    before = tl.load(x_ptr + offs - 1, mask=(offs < N) & (offs > 0), other=0.0)
    tl.store(z_ptr + offs, x + before, mask=offs < N)


def with_the_one_before(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = x[n] + x[n - 1]"""
    return x + x.roll(1).where(x.new_ones(len(x)).cumsum(0) > 1, x.new_zeros(()))


NEIGHBOURS = Puzzle(
    number="1",
    spec=with_the_one_before,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(Case(N=20, BLOCK=16), Case(N=128, BLOCK=32)),
    traffic=(Traffic(case=1, in_flight=1, cache=256, most=4),),
)


def test_lines_are_those_of_loads_under_their_masks():
    _, ran = guarded(shifted, NEIGHBOURS, NEIGHBOURS.cases[1])
    found = lines(ran.accesses, {"x": 4, "z": 4})
    first, second = found[:2]
    assert len(found) == 4 and first == [[(("x", 0), 1)], [(("x", 0), 1)]]
    assert second == [[(("x", 1), 1)], [(("x", 0), 1), (("x", 1), 1)]]
    assert by_tensor(fetched(found, 1, 2)) == {"x": (4, 4)}
    assert by_tensor(fetched(found, 1, 1)) == {"x": (10, 4)}


# ---- goals


def test_a_right_kernel_is_judged_by_what_it_fetches():
    report = examine(shifted, NEIGHBOURS)
    assert report.ok and report.headline().endswith("all 2 cases pass, and its traffic meets its goal")
    assert "traffic of case 1, 1 programs at a time, a cache of 0 KiB: 4 cache lines" in str(report)
    narrow = dataclasses.replace(NEIGHBOURS, traffic=(Traffic(case=1, in_flight=1, cache=128, most=4),))
    report = examine(shifted, narrow)
    assert (
        report.right and not report.ok and report.headline().endswith("pass, but its traffic misses its goal")
    )
    (verdict,) = report.verdicts
    assert (
        verdict.kind == "traffic"
        and "10 cache lines of 128 bytes are fetched, but the goal is at most 4" in verdict.message
    )
    assert "x is fetched 2.5 times" in verdict.diagnosis
    assert Report.from_dict(report.as_dict()) == report


def test_what_is_wrong_is_not_judged_by_what_it_fetches():
    report = examine(shifted, dataclasses.replace(NEIGHBOURS, spec=doubled_of_neighbours))
    assert not report.right and report.goals == ()


def doubled_of_neighbours(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return 2 * x


def test_the_statement_says_what_may_be_fetched_and_cases_must_be_run():
    words = (
        "traffic of case 5, 8 programs at a time, a cache of 16 KiB: at most 2,200 cache lines of 128 bytes"
    )
    assert words in TILE_ORDER._repr_markdown_() and words in str(TILE_ORDER)
    assert TILE_ORDER._repr_markdown_().count("Once all cases pass") == 1
    assert "your kernel must meet these goals, too:\n\n- traffic of case 5" in TILE_ORDER._repr_markdown_()
    with pytest.raises(ValueError, match="traffic names case 2"):
        dataclasses.replace(NEIGHBOURS, traffic=(Traffic(case=2, in_flight=1, cache=128, most=4),))


def test_the_puzzles_bound_leaves_room_above_the_best_and_none_for_a_row():
    wide, tall = TILE_ORDER.traffic
    for goal, x, y in ((wide, 256, 512), (tall, 512, 256)):
        counts = laboratory.fetches(solutions()["tile_order"], TILE_ORDER, goal)
        assert counts == {"x": (1024, x), "y": (1024, y)}
        assert sum(times for times, _ in counts.values()) == 2048 < goal.most < 2560


# ---- a kernel's work

SMALL = {
    "masked_add": {"N": 2048, "BLOCK": 256},
    "mul_relu": {"M": 32, "N": 128, "BLOCK_M": 16, "BLOCK_N": 64},
    "rms_norm": {"M": 4, "N": 512, "BLOCK_N": 512},
    "layer_norm": {"M": 4, "N": 512, "BLOCK_M": 2, "BLOCK_N": 512},
    "layer_norm_dx": {"M": 4, "N": 512, "BLOCK_M": 2, "BLOCK_N": 512},
    "flash_attention": {"T": 128, "D": 64, "BLOCK_Q": 64, "BLOCK_K": 64, "BLOCK_D": 64},
    "batched_matmul": {"B": 1, "M": 64, "N": 64, "K": 64, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32},
}


@pytest.mark.parametrize("name", SMALL)
def test_the_rooflines_operations_are_those_that_the_kernels_do(name):
    (puzzle,) = [puzzle for puzzle in puzzles() if puzzle.name == name]
    case = Case(**SMALL[name])
    counted = laboratory.work(solutions()[name], puzzle, case)
    assert counted.flops == pytest.approx(laboratory.FLOP[name](case), rel=0.02)
    assert counted.bytes >= counted.least == laboratory.least(puzzle, case)
    assert set(SMALL) == set(laboratory.FLOP)


def test_operations_are_counted_on_floats_alone():
    assert laboratory.work(shifted, NEIGHBOURS, 1).flops == 128
    report = laboratory.work(lambda: None, NEIGHBOURS)
    assert isinstance(report, Report) and not report.ok
