"""`progress()`: a row per chapter, as text and in the notebook's colors; and the words at a first pass."""

import dataclasses
import re
from html.parser import HTMLParser
from types import FunctionType

import pytest
from nbval.plugin import get_sanitize_patterns

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters import CHAPTERS, puzzles, questions
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD, MASKED_ADD
from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import BUSY_DW, FUSED_DW, PACKED_ALONG_K
from puzzles_lib.checker.report import Report
from puzzles_lib.checking import check
from puzzles_lib.ledger import record
from puzzles_lib.overview import ChapterProgress, Item, Progress, cheer, progress
from tests import warm
from tests.conftest import REPO


def test_it_is_a_plain_function():
    assert type(progress) is FunctionType


def test_every_puzzle_and_reading_exercise_is_there_in_syllabus_order(state_dir):
    record("masked_add", False)
    record("outer_add", True)
    record("of_an_older_course", True)
    shown = progress()
    expected = []
    for c in CHAPTERS:
        expected += [(c.number, p.number, p.name) for p in c.puzzles]
        expected += [(c.number, number, name) for number, name in c.rungs]
        expected += [(c.number, q.id.partition("-")[2], q.id) for q in c.questions]
    assert [(c.number, i.number, i.name) for c in shown.chapters for i in c.items] == expected
    assert (
        shown.summary
        == f"1 of {len(expected)} puzzles and questions solved, 1 tried, {len(expected) - 2} not started"
    )
    by_name = {i.name: i.state for c in shown.chapters for i in c.items}
    assert (by_name.pop("outer_add"), by_name.pop("masked_add")) == ("solved", "tried")
    assert set(by_name.values()) == {"open"}
    assert shown.note is None


def chapter(number: str, title: str, *items: Item) -> ChapterProgress:
    return ChapterProgress(number, title, f"{number}_some.ipynb", items)


SMALL = Progress(
    (
        chapter("01", "Loads & <stores>", Item("1", "constant_add", "solved")),
        chapter(
            "05",
            "Dots",
            Item("9", "s", "tried"),
            Item("9b", "f", "open"),
            Item("q1", "q", "open", "question"),
        ),
        chapter("06", "More", Item("10", "conv", "solved"), *[Item("q1", "q", "open", "question")] * 19),
    ),
    note="progress file <damaged>",
)


def test_text():
    assert str(SMALL).splitlines() == [
        "2 of 24 puzzles and questions solved, 1 tried, 21 not started",
        "progress file <damaged>",
        "01 Loads & <stores>  ████████████   1 of  1",
        "05 Dots              ▒▒▒▒░░░░░░░░   0 of  3  puzzles 9, 9b · 1 question",
        "06 More              █░░░░░░░░░░░   1 of 20  19 questions",
        "next: puzzle 9, in 05_some.ipynb",
    ]
    assert repr(SMALL) == str(SMALL)


def test_a_bar_is_full_where_all_is_solved_and_only_there():
    nearly = Progress((chapter("01", "", *[Item("1", "", "solved")] * 99, Item("1", "", "open")),))
    assert "███████████░" in str(nearly)


def test_many_puzzles_in_a_row_are_named_by_the_first_and_the_last():
    told = {chapter.number: chapter.left for chapter in progress().chapters}
    assert told["17"].startswith("puzzles 28 to 34 · ") and told["16"].startswith("puzzles 25, 26, 27 · ")
    assert told["20"].startswith("13 puzzles · ")  # they go from easy to hard, not by their numbers
    assert told["12"].startswith("puzzles 19 to 21 · ") and told["09"].startswith("puzzles 13, 14, 13b · ")
    three, four = (chapter("", "", *[Item(n, "", "open") for n in "abcd"[:count]]) for count in (3, 4))
    assert (three.left, four.left) == ("puzzles a, b, c", "puzzles a to d")
    parted = [Item(n, "", "solved" if n == "20" else "open") for n in ("18", "19", "19b", "20", "20b")]
    assert chapter("", "", *parted).left == "puzzles 18, 19, 19b, 20b"


def test_the_whole_course_fits_a_screen():
    lines = str(progress()).splitlines()
    assert len(lines) == len(CHAPTERS) + 2 and max(map(len, lines)) <= 100
    assert progress()._repr_html_().count("<tr>") == len(CHAPTERS) + 1  # and a head


def test_chapters_that_are_not_begun_are_folded(state_dir):
    record("double", True)
    record("pair_difference", True)
    page = progress()._repr_html_()
    shown, folded = page.split("<details")
    assert "2 puzzles and questions solved" in shown
    assert "00 Welcome" in shown and "01 Blocks" in shown and "02 Broadcasting" not in shown
    assert f"{len(CHAPTERS) - 2} more chapters" in folded and progress().summary in folded


class Links(HTMLParser):
    def __init__(self, page: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes)["href"])


def test_html_has_words_beside_theme_colours_and_escapes():
    page = SMALL._repr_html_()
    assert 'role="status"' in page and SMALL.summary in page
    assert "Loads &amp; &lt;stores&gt;" in page and "progress file &lt;damaged&gt;" in page
    assert "<stores>" not in page and "<damaged>" not in page
    assert "<td" in page and "0 of 3" in page and ">puzzles 9, 9b · 1 question<" in page
    assert "var(--jp-success" in page and "var(--jp-warn" in page


def test_each_chapter_and_what_is_next_are_links_to_notebooks_that_are_there():
    links = Links(progress()._repr_html_()).found
    assert links == [c.notebook for c in CHAPTERS] + ["00_welcome.ipynb"]
    assert all((REPO / "notebooks" / link).exists() for link in links)


def test_what_is_next_is_a_puzzle_before_a_question_and_then_nothing(state_dir):
    for puzzle in puzzles():
        record(puzzle.name, True)
    assert progress().next[1].label == "rung 3" and progress().next[0].left.startswith("rungs 3 to 9 · ")
    for name in (name for c in CHAPTERS for _, name in c.rungs):
        record(name, True)
    shown = progress()
    assert shown.next[1].label == "question q1" and shown.next[0].number == "00"
    for id in questions():
        record(id, True)
    assert progress().next is None and "next" not in str(progress())
    assert "Well done" in progress()._repr_html_()


# ---- a first pass


def test_a_first_pass_is_cheered_and_no_other(state_dir):
    for id in ("reversed_add", "ch01-q1", "ch01-q2"):
        record(id, True)
    first, again = (check(solutions()["masked_add"], MASKED_ADD) for _ in range(2))
    assert str(first).splitlines()[-1] == (
        f"★ Solved! Puzzle 2 is yours: 2 of {len(puzzles())} puzzles. "
        "Next: chapter 02, Broadcasting: rows, columns and tiles (02_broadcasting.ipynb)."
    )
    assert str(first).splitlines()[:-1] == str(again).splitlines()
    assert Links(first._repr_html_()).found == ["02_broadcasting.ipynb"]
    assert "★" not in again._repr_html_()
    assert first == again and first.as_dict() == again.as_dict()
    assert Report.from_dict(first.as_dict()).cheer is None


def test_nbval_sees_no_first_pass(state_dir):
    """So that a notebook's outputs do not depend on what its reader has solved before."""
    first, again = (check(solutions()["masked_add"], MASKED_ADD) for _ in range(2))
    patterns = get_sanitize_patterns((REPO / "tests/nbval_sanitize.cfg").read_text())

    def seen(text: str) -> str:
        for pattern, replacement in patterns:
            text = re.sub(pattern, replacement, text)
        return text

    assert repr(first) != repr(again) and seen(repr(first)) == repr(again)
    assert seen(first._repr_html_()) == again._repr_html_()


def test_a_failure_and_a_puzzle_of_somebody_elses_are_not_cheered(state_dir):
    assert check(None, MASKED_ADD).cheer is None
    other = dataclasses.replace(MASKED_ADD, cases=MASKED_ADD.cases[:1])
    assert check(solutions()["masked_add"], other).ok
    assert check(solutions()["masked_add"], other).cheer is None


def test_where_progress_cannot_be_kept_nobody_is_told_that_it_was(state_dir):
    state_dir.write_text("a file in the place of the folder")
    report = check(solutions()["masked_add"], MASKED_ADD)
    assert report.ok and report.cheer is None and "your progress could not be saved" in str(report)


def test_what_comes_next_is_below_or_in_the_next_chapter(state_dir):
    record("constant_add", True)
    assert cheer(CONSTANT_ADD).next == "puzzle 2, below"
    record("masked_add", True)
    record("reversed_add", True)
    said = cheer(CONSTANT_ADD)
    assert said.words.endswith("You have solved all puzzles of chapter 01.")
    assert (said.next, said.notebook) == ("the rest of this chapter, with 2 unanswered questions", "")
    record("ch01-q1", True)
    assert cheer(CONSTANT_ADD).next == "the rest of this chapter, with 1 unanswered question"
    record("packed_along_k", True)
    for question in (q for q in questions() if q.startswith("ch12")):
        record(question, True)
    said = cheer(PACKED_ALONG_K)  # who skips 19 and 20 is not sent back
    assert said.notebook == "13_machine_code.ipynb" and "done" not in said.words
    assert cheer(FUSED_DW).next == f"puzzle {BUSY_DW.number}, below"


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
    (summary,) = warm.python(code, REPO).splitlines()
    assert " solved, 1 tried, " in summary
