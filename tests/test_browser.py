"""The course in a real browser: JupyterLab as `make lab` opens it, by mouse and by keyboard.

What needs JupyterLab takes minutes: `make test PYTEST_ARGS="--browser tests/test_browser.py"`. The rest,
which opens a page alone, is run with all tests where there is Chromium.
"""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from puzzles_lib.drawing.svg import COLUMN, LEAST_TEXT
from puzzles_lib.tracer import trace
from tests.browser import THEMES, eventually
from tests.test_tracer import OUTER, outer_kernel

pytestmark = pytest.mark.browser

KERNEL = "def constant_add_kernel("
WATCH = "watch(constant_add_kernel, CONSTANT_ADD"
OVERRUN = "check(constant_add_kernel, MASKED_ADD)"
IMPORT = "from puzzles_lib import trace\n"  # later chapters do
MAP = f"{IMPORT}trace(constant_add_kernel, MASKED_ADD, case=1)"
EXPLORE = f"{IMPORT}trace(constant_add_kernel, CONSTANT_ADD, case=1).explore()"
DRAG = "ch04.pictures.drag()"
HOLE = "    # your code here"
WRONG = """\
    z_ptr += pid * BLOCK
    tl.store(z_ptr + lanes, tl.load(x_ptr + lanes) + 1)"""
RIGHT = WRONG.replace("+ 1)", "+ 10)")


def filled(source: str, answer: str) -> str:
    """A cell's source with an answer instead of its hole."""
    lines = [answer if line.startswith(HOLE) else line for line in source.splitlines()]
    assert answer in lines
    return "\n".join(lines)


# ---- triton-viz's page alone


def number_heights(png: bytes) -> tuple[int, int]:
    """How many pixels high what stands in the middle of the x axis is, and how wide of the y axis.

    By their colours, light red and green. Of an axis without its number this is its line, two pixels at most.
    """
    red, green, blue = np.moveaxis(np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int), 2, 0)
    return _across((red > green + 60) & (red > blue + 60)), _across(
        ((green > red + 60) & (green > blue + 40)).T
    )


def _across(lit: np.ndarray) -> int:
    columns = np.flatnonzero(lit.any(axis=0))
    if not columns.size:
        return 0
    middle = (columns[0] + columns[-1]) // 2
    return int(lit[:, middle - 12 : middle + 13].any(axis=1).sum())


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (1400, True)], ids=["1000-light", "1400-dark"])
def test_the_explorers_page_needs_nobody_else_and_numbers_its_axes(open_page, width, dark):
    opened = trace(outer_kernel, OUTER).explore()
    watched = open_page(opened.url, dark=dark, width=width, height=680)
    page = watched.page
    page.get_by_text("Store - 20x40 - z").click()
    page.locator(".viz-stage canvas").wait_for()
    assert page.locator(".viz-shape-legend").inner_text().split("\n")[-1] == "z: [20, 40]"
    name = f"explorer-{width}-{'dark' if dark else 'light'}"
    watched.shoot(name)
    page.locator(".viz-shape-legend").evaluate("(legend) => legend.remove()")  # the same colours
    stage = page.locator(".viz-stage")
    eventually("numbers on both axes", lambda: min(number_heights(stage.screenshot())) >= 8)
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    page.locator("input[type=range]").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".detail-title").text_content() == "Program (1, 0, 0)"
    assert page.locator("#pid-value-0").inner_text() == "1"
    watched.shoot(f"{name}-next")
    opened.close()


# ---- JupyterLab


def test_chapter_01_from_an_open_exercise_to_a_pass_and_a_look_at_it(open_notebook):
    book = open_notebook("01_blocks")
    unsolved = book.source(KERNEL)
    book.run_to(KERNEL)
    assert "not solved yet" in book.output(KERNEL).inner_text()
    book.write(KERNEL, filled(unsolved, WRONG))
    book.run(KERNEL)
    assert "constant_add: 0 of 4 cases pass" in book.output(KERNEL).inner_text()
    assert f"{WATCH}, case=0, program=0)" in book.output(KERNEL).inner_text()
    book.output(KERNEL).locator("summary").click()
    assert "wrong" in book.description(book.output(KERNEL).locator("svg[role=img]"))
    book.shoot("01-fails")

    book.add(KERNEL, f"{WATCH}, case=0, program=0)")
    book.run(WATCH)
    player = book.output(WATCH).locator(".puzzles-player")
    lit = player.locator(".code .on").last
    assert "tl.store(" in lit.inner_text()  # where the first wrong value is stored
    z = player.locator(".tensors .block").last
    wrong = z.locator(".wrong").count()
    assert wrong
    player.locator(".code").focus()
    book.page.keyboard.press("Home")
    assert "def constant_add_kernel" in lit.inner_text()
    assert z.locator(".wrong").count() == z.locator(".lit").count() == 0
    book.page.keyboard.press("ArrowRight")
    assert "pid = " in lit.inner_text()
    book.page.keyboard.press("End")
    assert "tl.store(" in lit.inner_text()
    assert z.locator(".lit").count() == wrong  # all lanes of the program
    book.shoot("01-player")

    book.write(KERNEL, filled(unsolved, RIGHT))
    book.run(KERNEL)
    assert "constant_add: all 4 cases pass" in book.output(KERNEL).inner_text()
    book.shoot("01-passes")

    book.add(KERNEL, EXPLORE)
    book.run(EXPLORE)
    frame = book.output(EXPLORE).frame_locator("iframe")
    frame.locator("canvas").first.wait_for()
    assert frame.locator(".detail-tab").all_inner_texts() == ["Load - 128 - x", "Store - 128 - z"]
    frame.locator("input[type=range]").first.focus()
    book.page.keyboard.press("ArrowRight")
    assert frame.locator("#pid-value-0").inner_text() == "1"
    assert frame.locator(".detail-title").text_content() == "Program (1, 0, 0)"
    book.shoot("01-explorer")


def test_outputs_read_well_in_every_theme_and_at_every_width(open_notebook):
    book = open_notebook("01_blocks")
    book.write(KERNEL, filled(book.source(KERNEL), RIGHT))
    book.run_to(KERNEL)
    for before, added in ((KERNEL, OVERRUN), (OVERRUN, MAP)):
        book.add(before, added)
        book.run(added)
    assert "FAIL" in book.output(OVERRUN).inner_text()
    assert "12 lanes" in book.description(book.output(MAP).locator("svg[role=img]"))
    book.add(MAP, f"{WATCH}, case=1)")
    book.run(WATCH)
    assert not book.without_alt()
    for theme in THEMES:
        book.theme(theme)
        assert not book.faint(), theme
        for width in (1000, 1400):
            book.page.set_viewport_size({"width": width, "height": 900})
            for name, cell in (("map", MAP), ("player", WATCH)):
                book.cell(cell)
                book.shoot(f"01-{name}-{theme}-{width}".replace(" ", "-"))
            assert not book.clipped(), (theme, width)


def test_a_picture_to_take_in_hand_keeps_its_keys_from_the_notebook(open_notebook):
    book = open_notebook("04_reductions", theme="dark", width=1000)
    assert "Run this cell" in book.output(DRAG).inner_text()  # nobody trusts it yet: no script
    book.run("import triton.language as tl")
    book.run(DRAG)
    output = book.output(DRAG)
    output.locator("input").nth(3).focus()
    for _ in range(9):
        book.page.keyboard.press("ArrowLeft")  # to the notebook: up to the heading, and fold it
    assert "x[3] = -2" in output.inner_text() and "Run this cell" not in output.inner_text()
    assert not book.faint() and not book.clipped()
    book.shoot("04-drag")


# ---- what is stored


@pytest.mark.parametrize("theme", ["light", "dark", "high contrast"])
def test_a_stored_picture_has_the_themes_paper_before_its_cell_is_run(open_notebook, theme):
    book = open_notebook("01_blocks", theme=theme)
    picture = book.output("ch01.pictures.pointer()").locator("img[src^='data:image/svg+xml']")
    picture.wait_for()
    shot = Image.open(BytesIO(picture.screenshot())).convert("L")
    paper = max(shot.getcolors(), key=lambda found: found[0])[1]
    assert paper > 240 if theme == "light" else paper < 40


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_stored_photo_is_no_negative(open_notebook, theme):
    book = open_notebook("06_convolution", theme=theme)
    picture = book.output("ch06.pictures.filters()").locator("img[src^='data:image/svg+xml']")
    picture.wait_for()
    shot = Image.open(BytesIO(picture.screenshot())).convert("L")
    scale = shot.width / 768  # of the picture's own coordinates
    sun, roof = (shot.getpixel((int(x * scale), int(y * scale))) for x, y in ((200, 80), (77, 108)))
    assert sun > 240 and roof < 60


# ---- a narrow window


# How high the smallest texts of the pictures are: of each, so many pixels where it has the column that it was
# drawn for, or all the width that it takes.
HEIGHTS = """([least, column]) =>
  [...document.querySelectorAll(".jp-OutputArea-output :is(svg[role=img], img[alt])")]
    .map((p) => [p.getBoundingClientRect().width, p.naturalWidth || p.viewBox.baseVal.width])
    .map(([shown, own]) => least * shown / Math.min(column, own))"""


def test_in_a_narrow_window_the_file_list_gives_way_to_the_pictures(open_notebook):
    book = open_notebook("04_reductions", width=1000)
    files = book.page.locator("#filebrowser")

    def least_text() -> float:
        for picture in ("ch04.pictures.fold()", "ch04.pictures.shift()", "ch04.pictures.padding()"):
            book.output(picture).locator("svg[role=img], img[alt]").first.wait_for()
        return min(book.page.evaluate(HEIGHTS, [LEAST_TEXT, COLUMN]))

    files.wait_for(state="hidden")
    assert least_text() >= LEAST_TEXT and not book.clipped()
    book.shoot("04-narrow")
    book.page.keyboard.press("Control+b")  # who wants the list has it
    files.wait_for()
    book.page.set_viewport_size({"width": 1240, "height": 900})
    files.wait_for()
    eventually("pictures at their size", lambda: least_text() >= LEAST_TEXT)
    assert not book.clipped()
    book.shoot("04-with-list")
    book.page.set_viewport_size({"width": 1000, "height": 900})
    files.wait_for(state="hidden")
    book.page.set_viewport_size({"width": 1400, "height": 900})
    files.wait_for()


def test_what_a_chapter_prints_breaks_between_words(open_notebook):
    book = open_notebook("04_reductions", width=1000)
    book.add("ch04.pictures.fold()", 'print("word " * 60)')
    book.run('print("word " * 60)')
    printed = book.output('print("word " * 60)').locator("pre").first
    printed.wait_for()
    assert printed.evaluate("(pre) => getComputedStyle(pre).wordBreak") == "normal"


# ---- a notebook as it is handed out


def test_pictures_and_statements_are_seen_in_a_notebook_that_nobody_trusts_or_has_run(open_notebook):
    book = open_notebook("01_blocks")
    book.page.get_by_text("Puzzle 1: ").first.wait_for()
    image = book.output("ch01.pictures.pointer()").locator("img")
    image.wait_for()
    assert image.evaluate(
        "image => image.naturalWidth"
    ) > 300 and "x_ptr is the address" in image.get_attribute("alt")
    assert not book.without_alt()
