"""Pictures say what they show: in their cells, in words beside them, and in their alt text."""

import io

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.image import imread
from matplotlib.patches import PathPatch, Rectangle

from puzzles_lib import PACK_BITS, RELU_PACK, check
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import mistakes
from puzzles_lib.drawing import accesses
from puzzles_lib.drawing.accesses import TensorMap, access_map
from puzzles_lib.drawing.colours import (
    BAD,
    BLUE,
    INK,
    ORANGE,
    PALE,
    PALETTE,
    PROGRAM_COLORS,
    SKY,
    SNOW,
    text_color,
)
from puzzles_lib.drawing.errors import error_map
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, legend, new_figure, new_sheet


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def pixels(picture: Picture) -> np.ndarray:
    """The rendered picture, [rows, columns, 3] as bytes."""
    return (imread(io.BytesIO(picture.png()))[..., :3] * 255).round().astype(int)


def share(picture: Picture, color) -> float:
    """How much of the picture has that color."""
    wanted = (np.array(to_rgb(color)) * 255).round()
    return float((np.abs(pixels(picture) - wanted).max(-1) <= 1).mean())


def a_map(owner, sharers=None, masked=(), bad=(), outlined=None, **more) -> TensorMap:
    owner = np.asarray(owner)
    axes = max(owner.ndim, 1)
    fields = {
        "name": "x",
        "dims": ("B", "M", "N")[-owner.ndim :],
        "shape": owner.shape,
        "verb": "loaded",
        "owner": owner,
        "sharers": (owner >= 0).astype(int) if sharers is None else np.asarray(sharers),
        "outlined": np.zeros(owner.shape, bool) if outlined is None else np.asarray(outlined),
        "masked": np.array(masked, int).reshape(-1, axes),
        "bad": np.array(bad, int).reshape(-1, axes),
    }
    return TensorMap(**{**fields, **more})


# ---- pictures and cells


def test_a_picture_needs_alt_text():
    with pytest.raises(ValueError, match="alt is empty"):
        Picture(new_figure(1, 1), "")


def test_the_same_picture_has_the_same_bytes():
    def make() -> bytes:
        return access_map([a_map([0, 0, 1, -1], masked=[[4]])], (2,), (1,), "t").png()

    assert make() == make()


def test_cells_draw_each_value_where_they_say():
    _, ax = new_sheet(8, 4)
    made = cells(ax, [[1, 2.5], ["a", None]], x=2, y=1, width=1.5)
    assert [text.get_text() for text in ax.texts] == ["1", "2.5", "a"]
    assert [tuple(text.get_position()) for text in ax.texts] == [(2.75, 1.5), (4.25, 1.5), (2.75, 2.5)]
    assert made.center(1, 0) == (2.75, 2.5)
    assert made.top(0, 1) == (4.25, 1.0) and made.foot(0, 1) == (4.25, 2.0)
    assert (made.right, made.bottom) == (5.0, 3.0)
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "y runs down"


def test_cells_take_tensors_colors_hatches_and_labels():
    _, ax = new_sheet(8, 3)
    cells(
        ax,
        torch.tensor([1, -2]),
        x=3,
        y=1,
        title="x",
        index=True,
        row_index=["m=0"],
        colors=[BLUE, None],
        hatch=[None, "///"],
    )
    assert [text.get_text() for text in ax.texts] == ["1", "-2", "0", "1", "m=0", "x"]
    first, second = (patch for patch in ax.patches if isinstance(patch, Rectangle))
    assert first.get_facecolor()[:3] == to_rgb(BLUE) and not first.get_hatch()
    assert second.get_facecolor()[3] == 0 and second.get_hatch() == "///"
    assert ax.texts[0].get_color() == SNOW


@pytest.mark.parametrize("values", [[[1, 2], [3]], [[[1]]], np.zeros((2, 2, 2))])
def test_cells_refuse_what_is_no_grid(values):
    with pytest.raises(ValueError, match="cells: "):
        cells(new_sheet(2, 2)[1], values)


def test_cells_refuse_colors_of_another_shape():
    with pytest.raises(ValueError, match="one value or 1 x 3"):
        cells(new_sheet(3, 1)[1], [1, 2, 3], colors=["red", "blue"])


def test_an_arrow_carries_a_text():
    figure, ax = new_sheet(3, 3)
    arrow(ax, (0, 0), (2, 2), "copies")
    assert texts(figure) == ["copies"] and len(ax.patches) == 1


def test_a_box_is_a_cell_with_its_text_in_the_middle():
    _, ax = new_sheet(8, 4)
    made = box(ax, 2, 1, 3.0, 1.5, "acc", color=BLUE, hatch="..")
    (rectangle,), (text,) = ax.patches, ax.texts
    assert rectangle.get_bbox().bounds == (2, 1, 3.0, 1.5)
    assert rectangle.get_facecolor()[:3] == to_rgb(BLUE) and rectangle.get_hatch() == ".."
    assert (text.get_text(), text.get_position(), text.get_color()) == ("acc", (3.5, 1.75), SNOW)
    assert (made.right, made.bottom, made.center(0), made.foot(0)) == (5.0, 2.5, (3.5, 1.75), (3.5, 2.5))


def test_a_box_without_a_color_is_a_frame():
    _, ax = new_sheet(4, 4)
    box(ax, 0, 0, color=None, edge=INK, linewidth=2, dashed=True)
    (rectangle,) = ax.patches
    assert rectangle.get_facecolor()[3] == 0 and rectangle.get_edgecolor()[:3] == to_rgb(INK)
    assert (rectangle.get_linewidth(), rectangle.get_linestyle()) == (2, "--") and not ax.texts


def test_a_legend_says_what_looks_mean():
    _, ax = new_sheet(8, 2)
    legend(ax, 1, (0.5, SKY, "loaded"), (4, PALE, "off", "////"))
    assert [to_rgba(SKY), to_rgba(PALE)] == [patch.get_facecolor() for patch in ax.patches]
    assert [patch.get_hatch() for patch in ax.patches] == [None, "////"]
    for patch, text, word in zip(ax.patches, ax.texts, ("loaded", "off"), strict=True):
        assert text.get_text() == word and text.get_ha() == "left" and text.get_position()[1] == 1.3
        assert patch.get_bbox().x1 < text.get_position()[0]


@pytest.mark.parametrize(
    "align, across, down",
    [
        ("center", "center", "center"),
        ("left", "left", "center"),
        ("right", "right", "center"),
        ("top", "center", "top"),
        ("bottom", "center", "bottom"),
        ("baseline", "center", "baseline"),
        ("left bottom", "left", "bottom"),
        ("bottom left", "left", "bottom"),
    ],
)
def test_a_label_lies_at_its_point(align, across, down):
    _, ax = new_sheet(4, 4)
    label(ax, 1, 2, "words", align=align)
    (text,) = ax.texts
    assert text.get_position() == (1, 2) and (text.get_ha(), text.get_va()) == (across, down)
    assert (text.get_color(), text.get_fontsize(), text.get_bbox_patch()) == (INK, 10, None)


def test_a_label_can_hide_what_it_lies_on():
    _, ax = new_sheet(4, 4)
    label(ax, 1, 2, "words", behind=PALE, fontsize=9, rotation=90)
    (text,) = ax.texts
    assert text.get_bbox_patch().get_facecolor()[:3] == to_rgb(PALE) and text.get_rotation() == 90


@pytest.mark.parametrize("align", ["middle", "left right", "top left bottom", "up"])
def test_a_label_refuses_an_align_that_there_is_not(align):
    with pytest.raises(
        ValueError,
        match=f"label: align must be one of left, right, top, bottom, baseline, center, but is '{align}'",
    ):
        label(new_sheet(1, 1)[1], 0, 0, "x", align=align)


def test_the_palette_is_okabe_and_itos_and_programs_are_told_apart():
    assert [to_rgb(color) for color in PALETTE] == [*map(to_rgb, matplotlib.color_sequences["okabe_ito"])]
    assert len(set(PROGRAM_COLORS)) == len(PROGRAM_COLORS) and BAD not in PROGRAM_COLORS


@pytest.mark.parametrize("fill", [*PALETTE, "white", "black", "#808080"])
def test_text_reads_on_every_color(fill):
    def luminance(color) -> float:
        c = np.array(to_rgb(color))
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    light, dark = sorted((luminance(fill), luminance(text_color(fill))), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.0


# ---- access maps


def test_each_program_has_its_color_its_number_and_its_words():
    picture = access_map([a_map([0] * 8 + [1] * 8)], (2,), (1,), "copy, N=16")
    found = texts(picture.figure)
    assert {"0", "1", "program 0", "program 1", "outlined: program 1", "copy, N=16"} <= set(found)
    assert "x  [N=16]  loaded" in found
    assert share(picture, SKY) > 0.02 and share(picture, ORANGE) > 0.02


def test_untouched_and_shared_elements_are_told_apart():
    picture = access_map([a_map([0] * 6 + [-1] * 6, sharers=[3] * 6 + [0] * 6)], (3,), None, "t")
    found = texts(picture.figure)
    assert "×3" in found and "×n: accessed by n programs" in found and "not touched" in found
    assert not any(text.startswith("outlined") for text in found)


def test_lanes_out_of_bounds_are_marked_by_color_cross_and_words():
    alarm = "4 lanes out of bounds: elements 8..11; it has 8"
    clean = access_map([a_map([0] * 8)], (1,), (0,), "t")
    picture = access_map([a_map([0] * 8, bad=[[8], [9], [10], [11]], alarm=alarm)], (1,), (0,), "t")
    (ax,) = picture.figure.axes
    assert share(clean, BAD) == 0 < share(picture, BAD)
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert sum(len(line.get_xdata()) for line in crosses) == 4 + 1  # and one in the legend
    assert f"✕ {alarm}" in texts(picture.figure) and alarm in picture.alt


def test_lanes_right_of_a_tensor_are_said_to_be_in_the_next_row():
    owner, words = np.zeros((2, 4), int), "their addresses are in the next row"
    for masked, told in (([0, 3], False), ([0, 4], True), ([1, 4], False), ([2, 0], False)):
        picture = access_map([a_map(owner, masked=[masked])], (1,), (0,), "t")
        assert any(words in text for text in texts(picture.figure)) == told, masked


def test_masked_lanes_are_hatched_inside_and_outside_the_tensor():
    def hatched(picture: Picture) -> PathPatch:
        (ax,) = picture.figure.axes
        (patch,) = (p for p in ax.patches if isinstance(p, PathPatch) and p.get_hatch())
        return patch

    owner = np.zeros((2, 4), int)
    inside = access_map([a_map(owner, masked=[[0, 3]])], (1,), (0,), "t")
    beyond = access_map([a_map(owner, masked=[[0, 4], [0, 5]])], (1,), (0,), "t")
    assert "masked-off lane of 0" in texts(inside.figure)
    box, wide = hatched(inside).get_path().get_extents(), hatched(beyond).get_path().get_extents()
    assert wide.width == pytest.approx(2 * box.width) and wide.x0 == pytest.approx(box.x1)


def test_more_programs_than_colors_take_them_in_turns_and_no_neighbours_are_alike():
    picture = access_map([a_map(np.arange(40))], (40,), (39,), "t")
    found = texts(picture.figure)
    assert "40 programs" in found and "numbers are program ids; colors repeat" in found
    picture = access_map([a_map(np.arange(60).reshape(6, 10))], (6, 10), None, "t")
    fills = {patch.get_facecolor() for ax in picture.figure.axes for patch in ax.patches}
    colors = np.array(accesses.program_colors((6, 10))).reshape(6, 10)
    assert {to_rgba(color) for color in PROGRAM_COLORS} <= fills
    assert (colors[1:] != colors[:-1]).all() and (colors[:, 1:] != colors[:, :-1]).all()
    assert (colors[1:, 1:] != colors[:-1, :-1]).all()


def test_programs_that_share_elements_get_a_stripe_each_and_are_named():
    owner, group = np.zeros(12, int), np.full(12, 1)
    shared = a_map(owner, sharers=[3] * 12, group=group, groups=((), (0, 1, 2)))
    picture = access_map([shared], (3,), None, "t")
    found = texts(picture.figure)
    assert {"0..2", "program 0", "program 1", "program 2"} <= set(found)
    legend = "striped: accessed by several programs, in the colors of all of them; “0..2”: programs 0 to 2"
    assert legend in " ".join(found)
    assert all(share(picture, color) > 0.01 for color in PROGRAM_COLORS[:3])
    block = a_map(owner, sharers=[2] * 12, group=group, groups=((), (0, 3)))
    found = texts(access_map([block], (2, 2), None, "t").figure)
    assert "×2" in found and "“×2”: accessed by 2 programs" in " ".join(found), (
        "the corners of a grid have no name"
    )


def test_turns_of_the_outlined_program_are_numbered():
    turn = np.repeat([1, 2, 3, 0], 8)
    tensor = a_map([0] * 24 + [1] * 8, outlined=turn > 0, turn=turn)
    found = texts(access_map([tensor], (2,), (0,), "t").figure)
    assert {"iteration 1", "iteration 2", "iteration 3", "1"} <= set(found) and "0" in found
    legend = "numbers between dotted lines are iterations of program 0, from 1; other numbers are program ids"
    assert legend in " ".join(found)
    again = a_map([0] * 24 + [1] * 8, outlined=turn > 0, turn=turn, again=True)
    found = texts(access_map([again], (2,), (0,), "t").figure)
    assert "iteration 1" in found and {"new in iteration 2", "new in it. 2"} & set(found)
    assert "later iterations come back to some" in " ".join(found)
    once = a_map([0] * 24 + [1] * 8, outlined=turn > 0, turn=(turn > 0).astype(int))
    found = texts(access_map([once], (2,), (0,), "t").figure)
    assert "iteration 1" not in found and "dotted" not in " ".join(found)


@pytest.mark.parametrize(
    ("dims", "names"), [(("SPLITS", "M", "N"), ["split 0", "split 1"]), (("B", "M", "N"), ["B=0", "B=1"])]
)
def test_a_slice_of_what_is_counted_has_a_name_and_not_the_count(dims, names):
    found = texts(access_map([a_map(np.zeros((2, 3, 4), int), dims=dims)], (1,), None, "t").figure)
    assert [text for text in found if text in names] == names and "SPLITS=0" not in found


def test_a_small_tensor_that_is_drawn_larger_than_the_others_says_so():
    def told(columns: int) -> list[str]:
        panels = [a_map(np.zeros((40, 100), int)), a_map(np.zeros((40, columns), int))]
        return [text for text in texts(access_map(panels, (1,), None, "t").figure) if "enlarged" in text]

    assert told(2) and not told(100)


def test_elements_of_a_result_that_nobody_wrote_are_a_region():
    tensor = a_map(np.repeat([0, -1], 16).reshape(2, 16), verb="stored")
    picture = access_map([tensor], (1,), None, "t")
    assert texts(picture.figure).count("never written") == 2, "on the region, and in the legend"
    assert "not touched" not in texts(picture.figure) and share(picture, BAD) > 0
    loaded = access_map([a_map(np.repeat([0, -1], 16).reshape(2, 16))], (1,), None, "t")
    assert "never written" not in texts(loaded.figure)


@pytest.mark.parametrize("count", [1, 4, 6])
def test_a_map_is_at_most_a_screen_tall(count):
    tensors = [a_map(np.zeros((90, 40), int), name=f"x{i}") for i in range(count)]
    figure = access_map(tensors, (1,), (0,), "t").figure
    assert figure.get_figheight() <= accesses.TALLEST_MAP


def test_slices_are_drawn_beside_each_other_and_capped():
    owner = np.zeros((9, 3, 4), int)
    outlined = np.zeros((9, 3, 4), bool)
    outlined[7] = True
    found = texts(access_map([a_map(owner, outlined=outlined)], (1,), (0,), "t").figure)
    assert [text for text in found if text.startswith("B=")] == [f"B={i}" for i in (0, 1, 2, 3, 4, 7)]
    assert "not shown: 3 more slices" in found


@pytest.mark.parametrize("shape", [(5000,), (600, 40), (40, 600)])
def test_large_tensors_are_reduced_and_say_so(shape):
    owner = np.zeros(shape, int)
    picture = access_map([a_map(owner)], (1,), (0,), "t")
    assert any(text.startswith("reduced: each square stands for") for text in texts(picture.figure))
    assert picture.figure.get_size_inches().max() < 10


def test_a_reduced_map_still_shows_a_single_bad_lane():
    picture = access_map([a_map(np.zeros((600, 600), int), bad=[[600, 0]], alarm="one")], (1,), (0,), "t")
    assert share(picture, BAD) > 0


def test_lanes_far_out_are_told_and_not_drawn():
    picture = access_map([a_map([0] * 8, bad=[[10**12]], alarm="far")], (1,), (0,), "t")
    assert "some lanes out of bounds are too far away to be drawn" in texts(picture.figure)
    assert "✕ far" in texts(picture.figure)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1), (2, 0), (3, 1, 1), (2, 2, 3, 4)])
def test_every_shape_can_be_drawn(shape):
    owner = np.zeros(shape, int)
    tensor = a_map(owner, dims=tuple("ABCD"[: len(shape)]))
    assert access_map([tensor], (1,), (0,), "t").png()


def test_every_text_is_at_least_nine_points():
    alarm = "4 lanes out of bounds: elements 8..11; it has 8"
    tensor = a_map([0] * 8, bad=[[8], [9]], masked=[[10]], alarm=alarm, facts=("8 of 8 elements",))
    big = a_map(np.arange(60).reshape(3, 4, 5) % 7)
    figure = access_map([tensor, big], (9, 9), (8, 8), "a title", "a note").figure
    assert min(text.get_fontsize() for ax in figure.axes for text in ax.texts) >= 9


def test_nothing_is_left_in_pyplot():
    import matplotlib.pyplot as plt

    access_map([a_map([0] * 8)], (1,), (0,), "t").png()
    assert plt.get_fignums() == []


# ---- error maps


def test_an_error_map_counts_places_and_names_what_is_wrong():
    want = torch.arange(12.0).reshape(3, 4)
    got = want.clone()
    got[1, 2], got[2, 0], got[2, 1] = 99.0, -99.0, float("nan")
    picture = error_map(got, want, "z")
    assert picture.alt == (
        "Error map of z, 3 by 4: 3 of 12 values are wrong; the first is z[1, 2]: got 99, want 6. "
        "9 right, 1 too high, 1 too low, 1 not a number."
    )
    found = texts(picture.figure)
    assert {"too high", "too low", "not a number", "right"} <= set(found)


def test_an_error_map_forgives_rounding_and_equal_nans():
    want = torch.tensor([1.0, float("nan"), float("inf")])
    assert "0 of 3 values are wrong" in error_map(want + 1e-7, want, "z").alt
    half = torch.tensor([1.0, 1000.0], dtype=torch.bfloat16)
    assert "0 of 2 values are wrong" in error_map(half, half, "z").alt


def test_an_error_map_is_exact_for_integers_and_takes_a_verdict():
    want = torch.tensor([1, 2, 3], dtype=torch.int32)
    got = torch.tensor([1, 2, 4], dtype=torch.int32)
    assert "the first is z[2]: got 4, want 3" in error_map(got, want, "z").alt
    assert "1 of 3" in error_map(got, want, "z", wrong=torch.tensor([True, False, False])).alt


def test_an_error_map_says_where_nan_is_missing():
    want, got = torch.tensor([float("nan"), 1.0, float("nan")]), torch.tensor([0.0, 1.0, float("nan")])
    assert error_map(got, want, "y").alt.endswith("2 right, 1 should be NaN.")


def test_an_error_map_of_packed_words_shows_bits():
    want = torch.tensor([[1, -1], [0, 7]], dtype=torch.int32)
    got = torch.tensor([[3, 2**31 - 1], [0, 7]], dtype=torch.int32)
    picture = error_map(got, want, "mask", got != want, packed=True)
    assert picture.alt == (
        "Error map of mask, 2 by 2: 2 of 4 words are wrong; the first is mask[0, 0]: got 3, want 1; "
        "a row is a word, bit 31 on the left: 2 bits are wrong. "
        "right: 126, 1 instead of 0: 1, 0 instead of 1: 1."
    )


def test_the_map_of_a_failed_packing_shows_bits():
    for puzzle, fault in ((RELU_PACK, "gradient_of_nan_stopped"), (PACK_BITS, "first_field_on_top")):
        (slip,) = (m for m in mistakes(puzzle) if m.name == fault)
        report = check(define(slip.apply(kernel_sources()[puzzle.name]), "<slip>"), puzzle)
        assert "a row is a word, bit 31 on the left" in report._repr_html_()


def test_an_error_map_needs_equal_shapes():
    with pytest.raises(ValueError, match=r"must have the same shape, but have \(2,\) and \(3,\)"):
        error_map(torch.zeros(2), torch.zeros(3), "z")
