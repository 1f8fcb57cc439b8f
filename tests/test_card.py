"""One card for all that answers: theme colours that can be read, text that is escaped, nothing heavy."""

import re
import subprocess
import sys

import pytest

from puzzles_lib import check
from puzzles_lib.answers import OPEN, RIGHT, UNCLEAR, WRONG, Answer
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.drawing.card import Theme, card, framed, rows
from puzzles_lib.drawing.colours import luminance
from puzzles_lib.inspector import stages
from tests.browser import faint
from tests.conftest import REPO
from tests.test_player import ADD_TEN, add_ten_kernel, overrunning_kernel
from tests.test_player_page import THEMES, style


@pytest.mark.parametrize("colour", Theme)
def test_a_theme_colour_has_a_fallback_that_reads_on_white(colour):
    form = r"var\((--jp-[\w-]+), var\(--vscode-[\w-]+, (#[0-9a-f]{6})\)\)"
    variable, fallback = re.fullmatch(form, colour).groups()
    assert 1.05 / (luminance(fallback) + 0.05) >= 4.5, f"{variable} falls back to {fallback}"


def test_theme_colours_are_told_apart():
    assert len({colour.value for colour in Theme}) == len(Theme)


def test_a_card_has_an_edge_a_bold_headline_that_is_read_out_and_a_body():
    assert card(Theme.OK, "1 < 2", "<p>so</p>") == (
        '<div style="border-left:4px solid '
        "var(--jp-success-color1, var(--vscode-charts-green, #2e7d32));"
        'padding:0.2em 0 0.2em 0.8em"><div role="status" style="font-weight:bold">1 &lt; 2</div>'
        "<p>so</p></div>"
    )


def test_a_frame_has_the_attributes_that_it_is_given():
    assert framed(Theme.WRONG, "x", id='a"b').startswith('<div id="a&quot;b" style="border-left:4px')


def test_rows_are_escaped_and_empty_ones_left_out():
    assert rows("a & b", "", "c") == "<div>a &amp; b</div><div>c</div>"


@pytest.mark.parametrize(
    "shown, colour",
    [
        (Answer("ch13-q1", RIGHT), Theme.OK),
        (Answer("ch13-q1", WRONG, "too many"), Theme.WRONG),
        (Answer("ch13-q1", OPEN), Theme.OPEN),
        (Answer("ch13-q1", UNCLEAR), Theme.OPEN),
        (Report("add", (CaseResult("N=4"),)), Theme.OK),
        (Report("add", (CaseResult("N=4", Verdict("values", "wrong")),)), Theme.WRONG),
    ],
)
def test_what_answers_is_on_a_card_of_its_colour(shown, colour):
    page, headline = shown._repr_html_(), repr(shown).splitlines()[0]
    assert page.startswith(card(colour, headline).removesuffix("</div>"))


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
def test_reports_and_listings_stand_out_in_every_theme(open_html, theme):
    """A report with its map unfolded, a progress star, and a page of `stages`."""
    failed = check(overrunning_kernel, ADD_TEN)._repr_html_()
    passed = check(add_ten_kernel, ADD_TEN)._repr_html_()
    compiled = stages(add_ten_kernel, ADD_TEN, case=1)._repr_html_()
    assert "FAIL" in failed and "<svg" in failed and ">pass<" in passed and "<pre" in compiled
    outputs = f"{failed}{passed}{compiled}".replace("<details", "<details open")
    assert faint(open_html(f"{style(theme)}<main>{outputs}</main>"), "main") == []


def test_a_card_costs_no_figures():
    """Nor does what shows itself on one: a check that draws nothing does not wait for matplotlib."""
    code = (
        "import sys, puzzles_lib.drawing.card, puzzles_lib.checker.report, puzzles_lib.overview; "
        "print('matplotlib' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True, timeout=240
    )
    assert ran.stdout.strip() == "False"
