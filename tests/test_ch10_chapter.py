"""Chapter 10: the numbers in its prose are recorded or printed, and its sliders show what torch computes."""

import itertools
import math
import re

import nbformat
import pytest
import torch

from puzzles_lib import QUANTIZE_CODES, QUANTIZE_PACK, UNPACK_DEQUANTIZE, Puzzle, check, mistake, stages
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import mistakes
from puzzles_lib.chapters.ch10_quantize import pictures
from puzzles_lib.timing.recorded import rows
from tests.conftest import REPO
from tests.test_live import told

CELLS = {c.id: c.source for c in nbformat.read(REPO / "solutions/10_quantize.ipynb", as_version=4).cells}
TIMES = {row["path"].removeprefix("quantize_pack, "): row["us"] for row in rows("row-wise")}


def test_what_the_reciprocal_saves_in_the_prose_is_recorded():
    prose = CELLS["end-changes-idea"]
    divided, multiplied = TIMES["1 row per program, 1 warp"], TIMES["1 row per program, reciprocal"]
    assert f"takes {1 - multiplied / divided:.0%} less time" in prose
    assert f"({multiplied:.0f} µs instead of {divided:.0f})" in prose


def test_the_wrong_codes_in_the_prose_are_counted_by_the_report():
    report = CELLS["p15-wrong-after"]
    wrong, all_of_them = re.search(r"(\d+) of the (\d+) codes in case 2 are wrong", report).groups()
    (mistake,) = (m for m in mistakes(QUANTIZE_CODES) if m.name == "codes_from_the_unrounded_scale")
    source = mistake.apply(kernel_sources()["quantize_codes"])
    assert f"codes: {wrong} of {all_of_them}" in str(check(define(source, "<unrounded>"), QUANTIZE_CODES))


@pytest.mark.parametrize("name", ["quantize_codes", "quantize_pack"])
def test_as_many_groups_per_block_as_codes_per_group_is_wrong(name):
    source = kernel_sources()[name]
    assert source.count("BLOCK_G + tl.arange(0, BLOCK_G)") == 1
    wrong = source.replace("BLOCK_G + tl.arange(0, BLOCK_G)", "BLOCK_G + tl.arange(0, GROUP)")
    puzzle = {"quantize_codes": QUANTIZE_CODES, "quantize_pack": QUANTIZE_PACK}[name]
    assert not check(define(wrong, "<groups>"), puzzle).ok


@pytest.mark.parametrize("puzzle", [QUANTIZE_CODES, QUANTIZE_PACK], ids=lambda p: p.name)
@pytest.mark.parametrize("name", ["codes_from_the_unrounded_scale", "zero_scale"])
def test_a_scale_chosen_by_max_equals_min_has_a_place_for_the_mistakes(puzzle, name):
    source = kernel_sources()[puzzle.name]
    ours = "tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)"
    assert ours in source
    theirs = "tl.where(high == low, 1.0, (high - low) / TOP).to(tl.bfloat16).to(tl.float32)"
    assert check(define(source.replace(ours, theirs), "<own>"), puzzle).ok
    told = mistake(puzzle, name)
    assert told.own and theirs in str(told)


def test_scales_of_words_past_the_end_of_a_row_may_be_loaded():
    """Such a word is still in the last group; a scale for every field is too many."""
    source = kernel_sources()["unpack_dequantize"]
    assert source.count("row * G + g, mask=offs_w < W") == 2
    by_group = source.replace("row * G + g, mask=offs_w < W", "row * G + g, mask=g < G")
    assert check(define(by_group, "<by group>"), UNPACK_DEQUANTIZE).ok


def test_the_load_of_x_may_stay_in_bfloat16():
    """tl.min and tl.max return float32 for bfloat16, so the steps are float32 anyway."""
    source = kernel_sources()["quantize_codes"]
    assert source.count("mask=n < N).to(tl.float32)") == 1
    short = source.replace("mask=n < N).to(tl.float32)", "mask=n < N)")
    assert check(define(short, "<bfloat16>"), QUANTIZE_CODES).ok


def decoded(bits: int, group: int) -> torch.Tensor:
    x = torch.tensor(pictures.outlying(), dtype=torch.float64).reshape(-1, group)
    low, high = x.aminmax(dim=1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    return (low + ((x - low) / scale).round() * scale).flatten()


@pytest.mark.parametrize("bits", pictures.BITS_CHOICES)
@pytest.mark.parametrize("group", pictures.GROUP_CHOICES)
def test_the_sliders_first_state_is_what_torch_computes(bits, group):
    page, x = pictures.drag(bits, group)._repr_html_(), torch.tensor(pictures.outlying()).double()
    off = (decoded(bits, group) - x).norm() / x.norm()
    assert told(page, 'data-is="error') == [f"{100 * off:.1f}%"]
    assert told(page, 'data-is="cost') == [f"{bits + 32 / group:g}"]


@pytest.mark.browser
def test_the_script_moves_on_as_python_draws(open_html):
    page = open_html(pictures.drag()._repr_html_(), 800, 400, True)
    for at, bits in enumerate(pictures.BITS_CHOICES):
        for place, group in enumerate(pictures.GROUP_CHOICES):
            page.locator("[data-slider=bits]").fill(str(at))
            page.locator("[data-slider=group]").fill(str(place))
            drawn = pictures.drag(bits, group)._repr_html_()
            for name in ("bits", "group", "cost", "scale", "error"):
                assert [page.locator(f"[data-is={name}]").inner_text()] == told(drawn, f'data-is="{name}')
            place = re.search(r'data-now=.*?cx="([\d.]+)" cy="([\d.]+)"', drawn).groups()
            dot = page.locator("[data-now]")
            assert (dot.get_attribute("cx"), dot.get_attribute("cy")) == place
    settings = len(pictures.BITS_CHOICES) * len(pictures.GROUP_CHOICES)
    assert page.locator("[data-tried] circle").count() == settings  # each stays


def test_the_times_of_larger_programs_in_the_prose_are_recorded():
    us = {row["path"]: row["us"] for row in rows("row-wise")}

    def took(path: str) -> str:
        return f"{us[path]:.0f}"

    prose = CELLS["end-idea-production"]
    assert f"library: {took('quantize_pack, production')} µs" in prose
    one, four = "1 row per program, 1 warp", "4 rows per program, no lane off"
    assert f"and {took(f'quantize_pack, {one}')} µs become {took(f'quantize_pack, {four}')}." in prose


def test_the_scales_in_the_prose_are_the_exact_and_the_stored_one():
    exact = torch.tensor(4 / 255, dtype=torch.float64)
    assert f"4 / 255 = {exact:.6f}. In bfloat16 that's {exact.bfloat16().double():.6f}" in CELLS["q6-ask"]
    assert f"{exact.bfloat16().double():.6f}" in CELLS["q6"]


def _at(line: list, cost: float) -> float:
    """Return the error on a line of the figure at a cost, between two of its points."""
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        if x0 <= cost <= x1:
            return y0 * (y1 / y0) ** ((cost - x0) / (x1 - x0))
    raise ValueError(f"the line doesn't reach {cost}")


def test_groups_win_with_outliers_and_change_little_without():
    """The figure's claims, and the numbers that the cell after it reads off."""
    normal, outlying = (
        {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
        for ax in pictures.error().figure.axes
    )
    tiny, some, row = normal
    for cost, error in normal[some][1:3]:
        assert 0.85 < error / _at(normal[row], cost) < 1.15
    for lines in (normal, outlying):
        assert all(_at(lines[some], cost) < error for cost, error in lines[tiny] if cost < 8.5)
    assert all(_at(outlying[row], cost) > 2 * error for cost, error in outlying[some][1:3])
    prose = CELLS["p15-error-after"]
    cost, error = outlying[some][2]
    assert f"cost {cost:g} bits per value, and the error is {error:.0%}" in prose
    assert f"it's {outlying[row][2][1]:.0%}" in prose
    needs = float(re.search(r"about ([\d.]+) bits", prose)[1])
    assert abs(math.log2(_at(outlying[row], needs) / error)) < 0.05


def test_four_warps_wait_for_each_other_and_one_does_not():
    """What the prose says of barriers: of a whole row per program, 2 bits, groups of 256."""
    prose = CELLS["end-idea-warps"]
    sources = kernel_sources()
    row = {"M": 8, "N": 768, "BITS": 2, "GROUP": 256}

    def barriers(name: str, puzzle: Puzzle, warps: int, **blocks: int) -> int:
        kernel = define(sources[name], f"<{name}>")
        return stages(kernel, puzzle, "sm_90", num_warps=warps, **row, **blocks).ptx.count("bar.sync")

    four, one = (barriers("quantize_pack", QUANTIZE_PACK, warps, BLOCK_G=4) for warps in (4, 1))
    assert f"Its PTX has {four} barriers, with a single warp only {one}" in prose
    assert not any(barriers("unpack_dequantize", UNPACK_DEQUANTIZE, warps, BLOCK_W=64) for warps in (4, 1))
