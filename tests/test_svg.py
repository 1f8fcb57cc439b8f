"""Pictures as SVG: the same bytes each time, ids of their own, and colours that read in every theme."""

import base64
import io
import re
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from puzzles_lib.drawing import colours
from puzzles_lib.drawing.colours import (
    INK,
    ORANGE,
    PALE,
    PALETTE,
    SKY,
    VERMILLION,
    luminance,
    text_color,
    themed,
    themed_line,
)
from puzzles_lib.drawing.errors import error_map
from puzzles_lib.drawing.sheet import Picture, arrow, box, cells, label, new_figure, new_sheet

SVG = "{http://www.w3.org/2000/svg}"
THEMES = {  # paper and ink of JupyterLab 4.6
    "light": ((1.0, 1.0, 1.0), (0.13, 0.13, 0.13)),
    "dark": ((0.067, 0.067, 0.067), (1.0, 1.0, 1.0)),
}


def sheet(alt: str = "Cells.", hatch: str = "///") -> Picture:
    figure, ax = new_sheet(8, 3)
    row = cells(ax, [1, 2, 3], x=1, y=1, colors=[SKY, ORANGE, None], hatch=[None, None, hatch], title="x")
    arrow(ax, row.foot(0), (4, 2.8))
    return Picture(figure, alt)


def root(picture: Picture) -> ET.Element:
    return ET.fromstring(picture.svg())


def test_the_same_picture_has_the_same_bytes_and_another_has_ids_of_its_own():
    first, second, third = sheet().svg(), sheet().svg(), sheet("Other words.").svg()
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, third)]
    assert first == second and all(len(found) == 2 for found in ids) and not ids[0] & ids[1]


def test_what_is_referred_to_is_defined_once():
    for picture in (sheet(), sheet(hatch="xxx")):
        page = picture.svg()
        ids = re.findall(r'\bid="([^"]+)"', page)
        assert len(set(ids)) == len(ids)
        assert set(re.findall(r"url\(#([^)]+)\)", page)) | set(
            re.findall(r'labelledby="(\S+)"', page)
        ) == set(ids)


def test_alt_text_is_what_a_screen_reader_reads():
    picture = sheet('a "b" <c>').svg()
    page = ET.fromstring(picture)
    (told,) = page.findall(f"{SVG}desc")
    assert page.get("role") == "img" and page.get("aria-labelledby") == told.get("id")
    assert told.text == 'a "b" <c>'


def test_texts_stay_texts_and_are_escaped():
    figure, ax = new_sheet(8, 3)
    label(ax, 1, 1, "a < b & c", family="monospace", weight="bold", align="right")
    label(ax, 1, 2, "two\nlines", fontsize=12, align="left")
    page = root(Picture(figure, "Texts."))
    assert [text.text for text in page.iter(f"{SVG}text")] == ["a < b & c", "two", "lines"]
    first = next(page.iter(f"{SVG}g"))
    assert first.get("text-anchor") == "end" and first.get("font-weight") == "bold"
    assert "--jp-code-font-family" in first.get("font-family")


def test_no_text_is_typeset_as_mathematics():
    """JupyterLab typesets what is between two dollar signs, but not across elements."""
    figure, ax = new_sheet(4, 2)
    label(ax, 1, 1, "pf$jX\\(iX$c")
    shown = Picture(figure, "letters: $a$ and \\(b\\)")._repr_html_()
    for text in re.findall(r">([^<]+)<", shown):
        assert not re.search(r"\$.*\$|\\\(|\\\[", text)
    assert "<tspan>$</tspan>jX<tspan>\\</tspan>(iX<tspan>$</tspan>c</text>" in shown
    assert ">letters: <span>$</span>a<span>$</span> and" in shown


def test_a_picture_is_never_wider_than_its_cell_and_has_no_scrollbar():
    style = root(sheet()).get("style")
    assert "max-width:100%" in style and "height:auto" in style and "display:block" in style


def test_no_text_is_below_eleven_pixels():
    figure, ax = new_sheet(8, 3)
    label(ax, 1, 1, "small", fontsize=9)
    page = root(Picture(figure, "Text."))
    assert min(float(g.get("font-size")) for g in page.iter(f"{SVG}g")) >= 11


def test_what_has_one_look_is_written_once():
    figure, ax = new_sheet(40, 40)
    cells(ax, np.zeros((30, 30), int).tolist(), colors=SKY)
    page = Picture(figure, "Cells.").svg()
    assert page.count(SKY) == 1 and len(page) < 60_000


def test_later_things_stay_on_top():
    figure, ax = new_sheet(8, 3)
    for color in (SKY, ORANGE, SKY):
        box(ax, 1, 1, 2, 2, color=color, linewidth=0)
    fills = [path.get("fill") for path in root(Picture(figure, "Boxes.")).iter(f"{SVG}path")]
    assert fills == [SKY, ORANGE, SKY]


def test_a_plot_is_cut_off_at_its_axes():
    figure = new_figure(4, 3)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 10], color=VERMILLION)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    page = Picture(figure, "A line.").svg()
    assert "<clipPath" in page and re.search(r'clip-path="url\(#p\w+-0\)"', page)


def test_scattered_cells_are_a_small_image():
    noise = np.random.default_rng(0).random((256, 256)) - 0.5
    page = error_map(noise, np.zeros_like(noise), "z").svg()
    assert "image-rendering:pixelated" in page and len(page) < 80_000
    shown = [imread(io.BytesIO(base64.b64decode(data))) for data in re.findall(r"base64,([^\"]+)", page)]
    (high,) = (image for image in shown if np.allclose(image[image[..., 3] > 0][0, :3], to_rgb(VERMILLION)))
    assert ((high[..., 3] > 0) == (noise > 0)).all(), "the right way up"


def test_a_letter_that_matplotlib_does_not_have_is_no_warning():
    figure, ax = new_sheet(8, 3)
    label(ax, 1, 1, "\u52a0\u6cd5 costs $5, not $6")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = root(Picture(figure, "A text."))
    assert "".join(next(page.iter(f"{SVG}text")).itertext()) == "\u52a0\u6cd5 costs $5, not $6"


# ---- colours


def mixed(css: str, theme: str) -> tuple[float, ...]:
    """A colour of `themed` in a theme."""
    paper, ink = THEMES[theme]
    css = css.replace("var(--paper)", "PAPER").replace("var(--ink)", "INK")
    found = re.fullmatch(r"color-mix\(in srgb,(\S+) (\d+)%,(\S+)\)", css)
    parts = {"PAPER": paper, "INK": ink}
    if not found:
        return parts.get(css) or to_rgb(css)
    first, share, second = found.groups()
    share = int(share) / 100
    pair = (parts.get(name) or to_rgb(name) for name in (first, second))
    return tuple(share * a + (1 - share) * b for a, b in zip(*pair, strict=True))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


NAMED = {
    name: value for name, value in vars(colours).items() if isinstance(value, str) and value.startswith("#")
}


LINES_ONLY = ("GREY", "SLATE", "RIM", "LINE", "BLANK")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", [name for name in NAMED if name not in LINES_ONLY])
def test_a_text_reads_on_every_fill_in_every_theme(name, theme):
    fill = NAMED[name]
    assert contrast(mixed(themed(fill), theme), mixed(themed_line(text_color(fill)), theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["INK", "FAINT", "HATCHING", *(n for n in NAMED if NAMED[n] in PALETTE)])
def test_a_coloured_text_reads_on_the_paper_of_every_theme(name, theme):
    least = 3.0 if name == "YELLOW" else 4.5  # of lines only
    assert contrast(mixed(themed_line(NAMED[name]), theme), THEMES[theme][0]) >= least


@pytest.mark.parametrize("color", PALETTE[1:])
def test_a_strong_colour_is_seen_on_a_dark_page(color):
    assert contrast(mixed(themed(color), "dark"), THEMES["dark"][0]) >= 3.0


def test_a_page_without_a_theme_is_light():
    style = root(sheet()).get("style")
    assert "--paper:var(--jp-layout-color0,var(--vscode-editor-background,#fff))" in style
    assert "--ink:var(--jp-content-font-color1,var(--vscode-editor-foreground,#1a1a1a))" in style
    assert mixed(themed(PALE), "light") > (0.9, 0.9, 0.9) and themed(INK) == "var(--ink)"
