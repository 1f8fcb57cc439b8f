"""Chapter 13's pictures show what Triton itself prints of the layouts."""

import re

import pytest
from triton.experimental.gluon.language import BlockedLayout, DotOperandLayout, NVMMADistributedLayout

from puzzles_lib.chapters.ch13_machine_code import pictures
from puzzles_lib.chapters.ch13_machine_code.questions import _add, _matmul
from puzzles_lib.compiler.layouts import SharedLayout, read_layout, read_shared


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


def test_tile_names_the_lane_of_every_run(a100):
    picture = pictures.tile(
        read_layout(a100, "#blocked", (128, 64)),
        read_layout(a100, "#ttg.slice<{dim = 1, parent = #blocked}>", (128,)),
        read_layout(a100, "#ttg.slice<{dim = 0, parent = #blocked}>", (64,)),
    )
    theirs = first_holders(BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]), [128, 64])
    (ax,) = picture.figure.axes
    drawn = {}
    for text in ax.texts:
        if text.get_text().isdigit():
            x, y = text.get_position()
            drawn[round((y - 2.6) / 0.66 - 0.5), round((x - 6.2) / 2.0 - 0.5)] = int(text.get_text())
    assert len(drawn) == 16 * 8
    for (row, run), lane in drawn.items():
        assert theirs[row * 64 + 8 * run][0] % 32 == lane
    assert "8 rounds make 64 registers" in picture.alt


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
        wanted = [f"r{register}" if thread == 9 else str(thread) for thread, register in holders]
        cells = [t for t in shown[at:] if re.fullmatch(r"r?\d+", t)][: len(wanted)]
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


def test_swizzled_chunks_lie_where_the_layout_puts_them(a100):
    shared = read_shared(a100, "#shared")
    assert shared == SharedLayout("#shared", 8, 1, 8)
    picture = pictures.swizzle(shared, columns=64, element_bytes=2)
    numbers = [int(t) for t in texts(picture) if t.isdigit()]
    plain, swizzled = numbers[:64], numbers[64:]
    assert plain == [c for _ in range(8) for c in range(8)]
    assert swizzled == [place ^ row for row in range(8) for place in range(8)]
    assert "takes 8 rounds" in picture.alt and picture.alt.endswith("1 round.")


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
    assert boxes[0]["copy 1"] > boxes[0]["dot 0"] and boxes[1]["copy 1"] < boxes[1]["dot 0"]


def test_layouts_that_do_not_fit_a_picture_are_refused(a100):
    small = read_layout(_add(BLOCK=32).ttgir, "#blocked", (32,))
    with pytest.raises(ValueError, match="block: warp is 1, allowed are those with a share of their own: 0"):
        pictures.block(small, warp=1)
    with pytest.raises(ValueError, match="block: lane is 9, allowed are 0 to 8, the lanes that are drawn"):
        pictures.block(small, warp=0, lane=9)
    attribute = "#ttg.blocked<{sizePerThread = [4, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"  # noqa: E501
    square = read_layout("", attribute, (64, 64))
    with pytest.raises(ValueError, match="does not deal out whole rows"):
        pictures.tile(square, read_layout(a100, "#blocked", (128, 64)), square)
