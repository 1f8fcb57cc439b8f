"""`mistake`: words until the puzzle is solved, then a difference of few lines, and a folded report."""

import dataclasses
import html
import json
import re
from collections import Counter

import pytest

from puzzles_lib import (
    BATCHED_MATMUL,
    DOUBLE,
    LINEAR_RECURRENCE,
    MASKED_ADD,
    PACK_BITS,
    PAIR_DIFFERENCE,
    SCALAR_FLASH_ATTENTION,
    TILE_SHAPES,
    ledger,
    mistake,
    reported,
    session,
)
from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.chapters import CHAPTERS, mistakes, named
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import CaseResult, GoalResult, Report, Verdict
from puzzles_lib.checking import check
from puzzles_lib.coach import contrast
from puzzles_lib.difference import difference, drawn
from puzzles_lib.mistakes import Mistake
from puzzles_lib.source import define
from tests.test_walls import ROOT

SOLVED = kernel_sources()["pack_bits"]
OWN = SOLVED.replace("words", "sums").replace("sums_ptr", "words_ptr")  # another's names
SHOWN = [
    (path.name, *found)
    for path in sorted((ROOT / "solutions").glob("*.ipynb"))
    for cell in json.loads(path.read_text())["cells"]
    for found in re.findall(r'\bmistake\((\w+), "(\w+)"\)', "".join(cell["source"]))
    if cell["cell_type"] == "code"
]


@pytest.fixture(autouse=True)
def _new_session(monkeypatch, state_dir):
    monkeypatch.setattr(session, "_last", {})
    monkeypatch.setattr(session, "_passed", {})


def signs(told: contrast.Contrast, sign: str) -> list[str]:
    return [text.strip() for s, text in told.lines if s == sign]


def solve(source: str = SOLVED, name: str = "<own>") -> None:
    assert check(define(source, name), PACK_BITS).ok


def test_before_the_puzzle_is_solved_the_slip_is_told_in_words():
    ledger.record("pack_bits", False)
    told = mistake(PACK_BITS, "shifted_down")
    assert "Shifts the fields down" in str(told) and told.kernel is None and told.report is None
    assert "Once your kernel passes `check(..., PACK_BITS)`, run this cell again" in str(told)
    assert "Once your kernel passes <code>check(..., PACK_BITS)</code>" in told._repr_html_()


def test_solved_in_another_session_is_told_in_words_too():
    """A learner's own kernel isn't known then, and the course's would be an answer."""
    ledger.record("pack_bits", True)
    told = mistake(PACK_BITS, "shifted_down")
    assert "You solved this puzzle in another session" in str(told)
    assert told.kernel is None and told.report is None


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_no_line_of_the_courses_kernel_is_shown_before(chapter):
    for each in chapter.mistakes:
        told = mistake(each.puzzle, each.name)
        shown = str(told) + html.unescape(told._repr_html_())
        lines = map(str.strip, kernel_sources()[each.puzzle.name].splitlines())
        assert [line for line in lines if len(line) > 12 and line in shown] == [], each.name


def test_a_kernel_that_failed_shows_nothing():
    assert not check(define(OWN.replace("<<", ">>"), "<wrong>"), PACK_BITS).ok
    assert mistake(PACK_BITS, "shifted_down").kernel is None


def test_a_puzzle_of_the_same_name_opens_nothing():
    easier = dataclasses.replace(PACK_BITS, cases=PACK_BITS.cases[:1])
    assert check(solutions()["pack_bits"], easier).ok
    assert mistake(PACK_BITS).report is None


def test_a_check_of_other_cases_of_a_solved_puzzle_closes_nothing():
    """Chapter 07 checks the kernel of BATCHED_MATMUL on TILE_SHAPES, before it makes a mistake in it."""
    kernel = solutions()["batched_matmul"]
    source = kernel_sources()["batched_matmul"]
    wrong = define(source.replace("range(0, K, BLOCK_K)", "range(0, BLOCK_K, BLOCK_K)"), "<wrong>")
    assert check(kernel, BATCHED_MATMUL).ok and check(kernel, TILE_SHAPES).ok
    assert mistake(BATCHED_MATMUL, "half_accumulator").own
    assert not check(wrong, TILE_SHAPES).ok
    assert session.last_check(BATCHED_MATMUL).report.ok and not session.last_check(TILE_SHAPES).report.ok
    assert session.passed(BATCHED_MATMUL) is session.passed(TILE_SHAPES) is kernel
    assert session.verdict_on(BATCHED_MATMUL, kernel) and session.verdict_on(TILE_SHAPES, wrong) is False


def test_once_solved_in_this_session_it_is_shown_against_ones_own():
    solve(OWN)
    told = mistake(PACK_BITS, "shifted_down")
    assert told.own and signs(told, "-") == ["sums = tl.sum(codes << BITS * i, axis=1)  # [BLOCK_W]"]
    assert signs(told, "+") == ["sums = tl.sum(codes >> BITS * i, axis=1)  # [BLOCK_W]"]
    assert told.report.verdicts[0].kind == "values"
    assert "your correct kernel" in str(told) and "Shifts the fields down" in str(told)
    assert len(str(told).splitlines()) < 26


def test_the_report_is_folded_below_a_question():
    solve()
    told = mistake(PACK_BITS, "shifted_down")
    asked = "Which elements are wrong in the first case: all, or only some?"
    assert told.asks == asked
    page = told._repr_html_()
    before, opened, after = page.partition("<details>")
    assert opened and "FAIL" not in before and "FAIL" in after
    assert told.what not in before and html.escape(told.what) in after  # it may give the answer away
    assert after.index("</summary>") > after.index("Guess, then open.") > after.index(asked)
    text = str(told)
    assert text.index("What will `check` say?") < text.index(told.what) < text.index(str(told.report))


@pytest.mark.parametrize(
    "puzzle, name, words",
    [
        (PACK_BITS, "no_mask_on_the_words", "is the first to fail, and with what: "),
        (SCALAR_FLASH_ATTENTION, "factor_forgotten", "In case 1, the first to fail"),
    ],
)
def test_the_question_fits_what_happens(puzzle, name, words):
    assert check(solutions()[puzzle.name], puzzle).ok
    assert words in mistake(puzzle, name).asks


EVERY = [each for chapter in CHAPTERS for each in chapter.mistakes]


ASKED = [each for each in EVERY if each.asks]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@pytest.mark.parametrize("slip", ASKED, ids=lambda each: each.name)
def test_a_question_of_its_own_is_about_the_puzzles_cases(slip):
    """It names as many as there are, and the case that it names is the first to fail."""
    assert slip.asks.endswith("?")
    if found := re.search(r"the (\w+) cases", slip.asks):
        assert NUMBERS.index(found[1]) == len(slip.puzzle.cases)
    if named := re.search(r"case (\d)", slip.asks):
        wrong = define(slip.apply(kernel_sources()[slip.puzzle.name]), f"<{slip.name}>")
        failing = [case.number for case in examine(wrong, slip.puzzle).cases if case.verdict]
        assert failing[0] == int(named[1])


def reports(slip: Mistake) -> list[Report]:
    """Reports on a mistake, in all the ways that they can be: on the kernel, a case or a goal."""
    bad = Verdict(slip.kind, "wrong")
    passes, fails = CaseResult("N=1"), CaseResult("N=2", bad)
    cases = [(fails,), (passes, fails), (passes, dataclasses.replace(fails, drawn=True))]
    found = [Report("name", each) for each in cases]
    goal = GoalResult("case 0", verdict=bad)
    return [*found, Report("name", verdict=bad), Report("name", (passes,), goals=(goal,))]


def test_a_question_offers_the_answer_and_few_others():
    """Of wrong values, it asks how they are wrong instead."""
    for slip in EVERY:
        for report in reports(slip):
            asked = contrast._question(report, slip, mistakes(slip.puzzle))
            offered = [words for words in contrast._CHOICES.values() if words in asked]
            if slip.kind == "values":
                assert offered == []
            else:
                assert contrast._CHOICES[slip.kind] in offered and len(offered) == 4, (slip.name, asked)


def test_a_mistake_that_some_cases_refuse_is_asked_about_these():
    """The report shows why they do not compile, not the wrong elements of the first case."""
    slip = next(each for each in EVERY if each.kind == "values")
    cases = (CaseResult("N=1", Verdict("values", "wrong")), CaseResult("N=2", Verdict("compiler", "shapes")))
    asked = contrast._question(Report("name", cases), slip, mistakes(slip.puzzle))
    assert asked == "Some cases do not compile. Which ones, and why do the others?"


def test_no_two_choices_are_true():
    """Programs that overwrite each other leave elements unwritten; the report says both."""
    edits = {"pid * BLOCK +": "pid +"}
    slip = Mistake(DOUBLE, "apart", "One element apart.", edits, kind="never written", says="overwrite")
    report = examine(define(slip.apply(kernel_sources()["double"]), "<apart>"), DOUBLE)
    assert "overwrite each other" in str(report)
    asked = contrast._question(report, slip, (*mistakes(DOUBLE), slip))
    assert contrast._CHOICES["never written"] in asked and contrast._CHOICES["race"] not in asked


def test_the_place_of_the_answer_does_not_give_it_away():
    """Each of the four places has about a quarter of the answers, and a frequent kind has several places."""
    places = [(each.kind, contrast._choices(each, mistakes(each.puzzle)).index(each.kind)) for each in EVERY]
    often = Counter(place for _, place in places)
    assert len(often) == 4 and min(often.values()) > 0.2 * len(places)
    for kind, count in Counter(kind for kind, _ in places).items():
        assert count < 10 or len({place for each, place in places if each == kind}) > 2


def test_a_mistake_may_have_a_question_of_its_own(monkeypatch):
    solve()
    known = [dataclasses.replace(mistakes(PACK_BITS)[0], asks="Which row is wrong?")]
    monkeypatch.setattr(contrast, "mistakes", lambda puzzle: known)
    assert mistake(PACK_BITS).asks == "Which row is wrong?"


SUM = "words = tl.sum(codes << BITS * i"
OTHERWISE = [
    (SOLVED.replace(SUM, "words = tl.sum(codes << i * BITS"), "words = tl.sum(codes >> BITS * i, axis=1)"),
    (
        SOLVED.replace(SUM, "words = tl.sum((codes << i * BITS)"),
        "words = tl.sum((codes >> BITS * i), axis=1)",
    ),
    (OWN.replace("codes <", "c <").replace("codes =", "c ="), "sums = tl.sum(c >> BITS * i, axis=1)"),
    (
        SOLVED.replace(SUM, f"up = BITS * i\n    {SUM.replace('BITS * i', 'up')}"),
        "words = tl.sum(codes >> up, axis=1)",
    ),
]


@pytest.mark.parametrize("own, line", OTHERWISE)
def test_it_is_made_in_a_kernel_that_is_written_otherwise(own, line):
    solve(own)
    told = mistake(PACK_BITS, "shifted_down")
    (added,) = signs(told, "+")
    assert told.own and added.startswith(line)


def test_where_it_has_no_place_in_ones_own_it_is_shown_against_the_courses():
    solve(SOLVED.replace("codes << BITS * i", "codes * (1 << BITS * i)"))
    told = mistake(PACK_BITS, "shifted_down")
    assert not told.own and told.report
    assert "the course's correct kernel (no such place was found in yours)" in str(told)


def test_where_it_does_no_harm_in_ones_own_it_is_shown_against_the_courses():
    """`codes << BITS * i` stands in it, and is not what is stored."""
    twice = SOLVED.replace("    words = tl.sum(codes << BITS * i, axis=1)", (
        "    old = tl.sum(codes << BITS * i, axis=1)\n"
        "    words = tl.sum(codes * (1 << BITS * i), axis=1) + 0 * old"
    ))  # fmt: skip
    solve(twice)
    assert not mistake(PACK_BITS, "shifted_down").own


def test_ones_own_may_name_what_the_notebook_has():
    scope = {"ten": 10}
    source = "@triton.jit\ndef up(x):\n    return x\n\n\n" + SOLVED.replace("<< BITS * i", "<< up(BITS * i)")
    own = define(source, "<own with a helper>", scope)
    assert scope == {"ten": 10}
    assert check(own, PACK_BITS).ok
    assert mistake(PACK_BITS, "first_field_on_top").own


def test_it_is_made_in_a_function_that_ones_own_kernel_calls():
    source = kernel_sources()["linear_recurrence"].replace("next_a * x + next_x", "x * next_a + next_x")
    assert check(define(source, "<own with another order>"), LINEAR_RECURRENCE).ok
    told = mistake(LINEAR_RECURRENCE, "not_associative")
    assert told.own and signs(told, "+") == ["return next_a, x * next_a + next_x"]


def test_ones_own_is_the_puzzles_kernel_and_not_another_that_passes():
    """Chapter 00's sneaky kernel may pass as well; its line isn't the learner's solution."""
    own = kernel_sources()["pair_difference"]
    for source in (
        own,
        own.replace("pair_difference_kernel", "sneaky_kernel").replace("second - first", "-(first - second)"),
    ):
        assert check(define(source, "<a kernel>"), PAIR_DIFFERENCE).ok
    assert "tl.store(z_ptr + offs, second - first, mask=mask)" in signs(
        mistake(PAIR_DIFFERENCE, "pairs_are_added"), "-"
    )


def test_comments_around_a_hole_are_not_shown():
    marked = SOLVED.replace("    words =", "    # your code here (about 5 lines)\n    words =")
    assert check(define(marked, "<own with the comment>"), PACK_BITS).ok
    told = mistake(PACK_BITS, "shifted_down")
    assert told.own and "your code here" not in str(told)


def test_nothing_is_noted_and_the_right_kernel_stays(state_dir):
    solve()
    kept = session.last_check(PACK_BITS), session.passed(PACK_BITS)
    before = (state_dir / "progress.json").read_bytes()
    mistake(PACK_BITS, "shifted_down")
    assert (state_dir / "progress.json").read_bytes() == before
    assert (session.last_check(PACK_BITS), session.passed(PACK_BITS)) == kept


def test_it_can_be_watched_by_the_call_that_is_named():
    solve()
    told = mistake(PACK_BITS, "shifted_down")
    call = 'watch(mistake(PACK_BITS, "shifted_down").kernel, PACK_BITS, case=0'
    assert call in str(told)
    assert "watch(mistake(PACK_BITS, 1).kernel," in str(mistake(PACK_BITS, 1))


def test_html_escapes_and_colours_by_the_theme():
    solve()
    page = mistake(PACK_BITS, "shifted_down")._repr_html_()
    assert "codes &lt;&lt; BITS" in page and "codes << BITS" not in page
    assert "var(--jp-error" in page
    right, wrong = (re.search(rf'<div style="([^"]*)">{re.escape(sign)} words =', page)[1] for sign in "-+")
    assert right == wrong == "font-weight:bold"  # the added line is a mistake: a diff's colors would mislead
    assert "font-family:var(--jp-code-font-family, monospace)" in page  # an export inherits the text's


def test_what_is_no_puzzle_or_no_mistake_is_refused():
    with pytest.raises(TypeError, match="puzzle must be a Puzzle, not str"):
        mistake("pack_bits")
    for wrong in (True, "no_such", 1.5, None):
        with pytest.raises(ValueError, match=r"which must be from 1 to \d+ or shifted_down, .*, but is "):
            mistake(PACK_BITS, wrong)


def test_numbers_count_from_1_as_chapter_00_says():
    solve()
    for number, slip in enumerate(mistakes(PACK_BITS)[:2], 1):
        told = mistake(PACK_BITS, number)
        assert told.what == slip.what and told.headline.startswith(f"pack_bits, mistake {number} of ")
    assert str(mistake(PACK_BITS)) == str(mistake(PACK_BITS, 1))


@pytest.mark.parametrize(
    "puzzle, number, words",
    [
        (PACK_BITS, 0, "there is no mistake 0: its mistakes are numbered 1 to"),
        (PACK_BITS, -1, "there is no mistake -1: its mistakes"),
        (PACK_BITS, 99, "there is no mistake 99: its mistakes"),
        (SCALAR_FLASH_ATTENTION, 2, "there is no mistake 2: this puzzle has one mistake, number 1."),
        (MASKED_ADD, 1, "this puzzle has no mistakes to show."),
        (MASKED_ADD, "off_by_one", "this puzzle has no mistakes to show."),
    ],
)
def test_a_number_that_no_mistake_has_gets_a_sentence(puzzle, number, words):
    told = mistake(puzzle, number)
    assert words in str(told) and words in told._repr_html_() and told.kernel is None


def test_lines_left_out_are_told_of():
    assert difference("abcdefgh", "aBcdefGh") == (
        (" ", "a"), ("-", "b"), ("+", "B"), (" ", "c"), (" ", "…"),
        (" ", "f"), ("-", "g"), ("+", "G"), (" ", "h"),
    )  # fmt: skip


@pytest.mark.parametrize("notebook, puzzle, name", SHOWN, ids=lambda value: str(value))
def test_those_that_notebooks_show_are_few_lines(notebook, puzzle, name):
    found = named()[puzzle]
    (slip,) = (each for each in mistakes(found) if each.name == name)
    right = kernel_sources()[found.name]
    assert len(difference(right.splitlines(), slip.apply(right).splitlines())) <= 20


def test_notebooks_show_many():
    assert len(SHOWN) >= 28


def test_a_puzzles_right_kernel_is_there_where_it_has_mistakes_and_only_there():
    for chapter in CHAPTERS:
        file = chapter.place / reported.FILE
        packed = json.loads(file.read_text()) if file.exists() else {}
        assert set(packed) == {each.puzzle.name for each in chapter.mistakes}, chapter.number


def test_a_hand_out_may_leave_the_right_kernels_away(monkeypatch):
    monkeypatch.setattr(reported, "FILE", "not there.json")
    solve(SOLVED.replace("codes << BITS * i", "codes << i * BITS"))
    assert "has no kernel to show" in str(mistake(PACK_BITS, "shifted_down"))
    solve()
    assert mistake(PACK_BITS, "shifted_down").own


def test_lines_are_red_and_green_as_in_any_diff():
    page = drawn((("-", "gone"), ("+", "new"), (" ", "kept")), "signs")
    colors = dict(re.findall(r'color:color-mix\(in srgb,var\((--jp-\w+-color1),[^"]*">(.) ', page))
    assert colors == {"--jp-error-color1": "-", "--jp-success-color1": "+"}
