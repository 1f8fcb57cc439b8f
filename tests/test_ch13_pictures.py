"""Chapter 13's pictures show what Triton itself prints of the layouts."""

import re

import pytest
from triton.experimental.gluon.language import BlockedLayout, DotOperandLayout, NVMMADistributedLayout

from puzzles_lib.chapters.ch13_machine_code import pictures
from puzzles_lib.chapters.ch13_machine_code.questions import _add, _matmul
from puzzles_lib.compiler.layouts import read_layout


@pytest.fixture(scope="module")
def a100() -> str:
    return _matmul("sm_80", num_stages=1).ttgir


def texts(picture) -> list[str]:
    (ax,) = picture.figure.axes
    return [t.get_text() for t in ax.texts]


def first_holders(layout, shape) -> list[tuple[int, int]]:
    """(thread, register) of the first that Triton names for each element."""
    cells = layout.format_tensor_view(shape).replace("[", "").replace("]", ",").split(",")
    found = [re.match(r"\s*T(\d+):\s*(\d+)", cell) for cell in cells]
    return [(int(m[1]), int(m[2])) for m in found if m]


def test_stations_name_every_stage():
    found = texts(pictures.stations())
    assert {"Python", "TTIR", "TTGIR", "LLVM IR", "PTX", "SASS", "AMDGCN"} <= set(found)


def test_block_zooms_to_the_elements_of_one_lane():
    layout = read_layout(_add().ttgir, "#blocked", (1024,))
    picture = pictures.block(layout, warp=1, lane=2)
    theirs = first_holders(BlockedLayout([4], [32], [4], [0]), [1024])
    own = [i for i, (thread, _) in enumerate(theirs[:256]) if thread == 32 + 2]
    shown = texts(picture)
    assert [str(i) for i in own] == shown[shown.index("register 0") + 1 :: 2][: len(own)]
    assert shown.count("warp 1") == 2 and f"the elements {own[0]} to {own[-1]}" in picture.alt


def test_fragments_name_the_lane_or_register_of_every_element(a100):
    shown = texts(pictures.fragments(a100, lane=9))
    mma = NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
    at = 0
    for layout, shape in (
        (DotOperandLayout(0, mma, 2), [16, 16]),
        (DotOperandLayout(1, mma, 2), [16, 8]),
        (mma, [16, 8]),
    ):
        holders = first_holders(layout, shape)
        wanted = ["abcdefgh"[register] if thread == 9 else str(thread) for thread, register in holders]
        cells = [t for t in shown[at:] if re.fullmatch(r"[a-h]|\d+", t)][: len(wanted)]
        assert cells == wanted
        at = shown.index(next(t for t in shown[at:] if " registers per lane" in t), at) + 1


def test_wgmma_names_the_warp_of_every_row():
    ttgir = _matmul().ttgir
    shown = texts(pictures.wgmma(ttgir))
    layout = read_layout(ttgir, "#mma", (128, 128))
    found = [re.fullmatch(r"warp (\d): rows (\d+)\u2013(\d+)", text) for text in shown]
    bands = [tuple(map(int, match.groups())) for match in found if match]
    assert [last - first for _, first, last in bands] == [15] * 8
    for warp, first, last in bands:
        assert {layout.holders((row, 77))[0][0] for row in range(first, last + 1)} == {warp}


def test_pipelined_dots_wait_for_their_copies():
    (ax,) = pictures.pipelined().figure.axes
    boxes: list[dict] = [{}, {}]
    for text in ax.texts:
        if re.fullmatch(r"(copy|load|dot) \d", name := text.get_text()):
            x, y = text.get_position()
            boxes[y > 4][name.replace("load", "copy")] = x
    for box in boxes:
        assert len(box) == 8
        for step in range(4):
            assert box[f"copy {step}"] < box[f"dot {step}"]
    assert boxes[1]["dot 3"] < boxes[0]["dot 3"]
    assert boxes[0]["copy 1"] > boxes[0]["dot 0"] and boxes[1]["copy 1"] == boxes[1]["copy 0"]


def test_layouts_that_do_not_fit_a_picture_are_refused():
    small = read_layout(_add(BLOCK=32).ttgir, "#blocked", (32,))
    with pytest.raises(ValueError, match=r"block: warp must be one with a share of its own \(0\), but is 1"):
        pictures.block(small, warp=1)
    with pytest.raises(
        ValueError, match="block: lane must be from 0 to 8, the lanes that are drawn, but is 9"
    ):
        pictures.block(small, warp=0, lane=9)
