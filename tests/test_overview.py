"""`progress()`: every puzzle with its state, as text and in the notebook's colours."""

import subprocess
import sys
from types import FunctionType

import pytest

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.ledger import record
from puzzles_lib.overview import ChapterProgress, Progress, PuzzleProgress, progress


def test_it_is_a_plain_function():
    assert type(progress) is FunctionType


def test_lists_every_puzzle_and_reading_exercise_in_syllabus_order(state_dir):
    record("masked_add", False)
    record("outer_add", True)
    record("of_an_older_course", True)
    shown = progress()
    expected = []
    for c in CHAPTERS:
        expected += [(c.number, p.number, p.name) for p in c.puzzles]
        asked = [q.id for q in c.questions]
        expected += [(c.number, i.partition("-")[2], "reading exercise") for i in asked]
    assert [(c.number, p.number, p.name) for c in shown.chapters for p in c.puzzles] == expected
    assert shown.summary == f"1 of {len(expected)} puzzles solved, 1 tried, {len(expected) - 2} open"
    by_name = {p.name: p.state for c in shown.chapters for p in c.puzzles}
    assert (by_name.pop("outer_add"), by_name.pop("masked_add")) == ("solved", "tried")
    assert set(by_name.values()) == {"open"}
    assert shown.note is None


SMALL = Progress(
    (
        ChapterProgress("01", "Loads & <stores>", (PuzzleProgress("1", "constant_add", "solved"),)),
        ChapterProgress(
            "05", "Dots", (PuzzleProgress("9", "scalar", "tried"), PuzzleProgress("9b", "full", "open"))
        ),
    ),
    note="progress file <damaged>",
)


def test_text():
    assert str(SMALL).splitlines() == [
        "1 of 3 puzzles solved, 1 tried, 1 open",
        "progress file <damaged>",
        "01 Loads & <stores>",
        "   solved   1   constant_add",
        "05 Dots",
        "   tried    9   scalar",
        "   open     9b  full",
    ]
    assert repr(SMALL) == str(SMALL)


def test_html_has_words_beside_theme_colours_and_escapes():
    page = SMALL._repr_html_()
    assert 'role="status"' in page and SMALL.summary in page
    assert "Loads &amp; &lt;stores&gt;" in page and "progress file &lt;damaged&gt;" in page
    assert "<stores>" not in page and "<damaged>" not in page
    for word, variable in {"solved": "success", "tried": "warn", "open": "ui-font"}.items():
        assert f"</span> {word}</td>" in page and f"var(--jp-{variable}" in page
    assert page.count("<tr>") == 3 and page.count('rowspan="2"') == 1


@pytest.mark.parametrize(
    "first",
    [
        "from puzzles_lib import check, progress",
        "from puzzles_lib import progress, check",
        "import puzzles_lib.overview",
    ],
)
def test_progress_can_be_called_whatever_is_imported_first(first):
    code = (
        f"{first}\n"
        "from puzzles_lib import OUTER_ADD, check, progress\n"
        "check(None, OUTER_ADD)\n"
        "print(progress().summary)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stderr == "" and " puzzles solved, 1 tried, " in ran.stdout
