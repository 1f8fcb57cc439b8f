"""Pictures to take in hand: right as they stand, and right when they are moved."""

import html
import re
from collections.abc import Callable

import pytest
import torch

from puzzles_lib.chapters.ch04_reductions.pictures import drag
from puzzles_lib.chapters.ch08_quantized_matmul.pictures import flip
from puzzles_lib.drawing.live import ASLEEP
from tests.browser import faint
from tests.test_player_page import THEMES, style

SCORES = (1, 3, 2, 7, 5, 6)


def told(page: str, what: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(rf'{what}"[^>]*>([^<]*)<', page)]


def test_they_say_what_they_show_and_ask_for_nothing():
    for picture in (drag(), flip()):
        page = picture._repr_html_()
        assert repr(picture) == f"[picture] {picture.alt}" and len(picture.alt) > 60
        assert html.escape(picture.alt) in page and not re.search(r"https?:|src=", page)
        assert page == type(picture)(**vars(picture))._repr_html_() and len(page) < 16_000


def test_the_first_state_needs_no_script():
    page = drag(SCORES)._repr_html_()
    x = torch.tensor(SCORES, dtype=torch.float64)
    sums = [(x[:n] - x[:n].max()).exp().sum().item() for n in (2, 4, 6)]
    assert told(page, 'data-is="denominator') == [f"{total:.4f}" for total in sums]
    page = flip((3, 1, 4, 1, 5, 9, 2, 12))._repr_html_()
    assert told(page, r'data-number="\d') == ["-1030417389", "-4", "12"]
    assert told(page, r'data-bits="\d')[1] == "1" * 29 + "100"


# ---- in a browser


@pytest.fixture
def show(open_html) -> Callable:
    """``show(picture, theme="dark")``: a page with it, in Chromium."""

    def shown(picture, theme: str = "light", scripts: bool = True):
        return open_html(f"{style(theme)}{picture._repr_html_()}", 600, 600, scripts)

    return shown


@pytest.mark.browser
def test_a_bit_is_flipped_and_a_field_is_chosen_by_mouse_and_by_key(show):
    page = show(flip((3, 1, 4, 1, 5, 9, 2, 12)))
    number = page.locator("[data-number]")
    assert number.all_inner_texts() == ["-1030417389", "-4", "12"]
    page.locator('[data-bit="31"]').click()  # of the sign
    assert number.all_inner_texts() == [str(-1030417389 + 2**31), "4", "4"]
    assert page.locator('[data-field="7"]').inner_text() == "field 7: 4"
    page.locator('[data-field="5"]').focus()
    page.keyboard.press("Enter")
    assert page.locator('[data-field="5"]').get_attribute("aria-pressed") == "true"
    word = -1030417389 + 2**31
    assert number.all_inner_texts() == [str(word), str(word >> 20), "9"]


@pytest.mark.browser
def test_dragged_scores_give_the_softmax_of_what_they_are_now(show):
    page = show(drag(SCORES))
    page.locator("input").nth(3).focus()
    for _ in range(9):
        page.keyboard.press("ArrowLeft")  # from 7 to -2
    x = torch.tensor([1, 3, 2, -2, 5, 6], dtype=torch.float64)
    sums = [(x[:n] - x[:n].max()).exp().sum().item() for n in (2, 4, 6)]
    assert page.locator("[data-is=denominator]").all_inner_texts() == [f"{total:.4f}" for total in sums]
    assert page.locator("[data-is=factor]").all_inner_texts()[1] == "1.0000"  # the maximum stays 3
    assert "x[3] = -2" in page.locator("[data-block]").nth(1).inner_text()


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
def test_they_read_in_every_theme_and_tell_where_scripts_are_off(show, theme):
    for picture in (drag(), flip()):
        page = show(picture, theme)
        assert ASLEEP not in page.locator(".puzzles-live").inner_text()
        assert not faint(page, ".puzzles-live")
        assert page.evaluate("document.body.scrollWidth <= innerWidth")
        page = show(picture, theme, scripts=False)
        assert ASLEEP in page.locator(".puzzles-live").inner_text()
