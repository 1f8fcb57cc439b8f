"""Every known wrong kernel is rejected, and for its reason."""

from collections import Counter

import pytest

from puzzles_lib.chapters import hints, mistakes, puzzles
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report
from puzzles_lib.coach import contrast, hinting
from puzzles_lib.wrapped import unwrap
from tests import cures, kernels
from tests.conftest import REPO
from tests.kernels import Made, Wrong

WRONG = kernels.wrong()


def _allowed() -> dict[str, dict[str, list[str]]]:
    """Return the titles of tests/hints_chosen.txt, by puzzle and kernel."""
    found: dict[str, dict[str, list[str]]] = {}
    puzzle = ""
    for line in (REPO / "tests/hints_chosen.txt").read_text().splitlines():
        if line.startswith("  "):
            kernel, _, titles = line.strip().partition(": ")
            found[puzzle][kernel] = [title.removeprefix("! ") for title in titles.split(" / ")]
        elif not line.startswith("#"):
            puzzle = line
            found[puzzle] = {}
    return found


ALLOWED = _allowed()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: f"{w.puzzle.name}-{w.name}")
def test_wrong_kernel_is_rejected_for_its_reason(wrong):
    report = examine(wrong.kernel, wrong.puzzle, until_failure=True)
    assert not report.ok
    if wrong.says not in str(report):  # it may be of a later case, which the compiler refuses
        report = examine(wrong.kernel, wrong.puzzle)
    text = str(report)
    assert report.verdicts[0].kind == wrong.kind, text
    assert wrong.says in text, text
    assert len(text.splitlines()) <= 12 and "Traceback" not in text and "site-packages" not in text
    assert cures.failures(wrong.kernel, wrong.puzzle, report) == []
    assert misfit(wrong, report) == ""
    assert also_true(wrong, report) == []


def misfit(wrong: Wrong, report: Report) -> str:
    """Return the title of the hint that is chosen but isn't about the mistake; "" if there is none."""
    known = hints().get((wrong.puzzle.name, ""), ())
    if wrong.puzzle.name not in ALLOWED or not known:
        return ""
    number, fits = hinting._choice(known, report, {}, unwrap(wrong.kernel).kernel.src)
    title = known[number - 1].title
    return title if fits and title not in ALLOWED[wrong.puzzle.name].get(wrong.name, []) else ""


def also_true(wrong: Wrong, report: Report) -> list[str]:
    """Return the choices of `mistake` that the report on this mistake speaks of, other than its kind."""
    known = mistakes(wrong.puzzle)
    slip = next((each for each in known if each.name == wrong.name), None)
    if not slip or slip.kind == "values" or slip.asks:
        return []
    asked = contrast._question(report, slip, known)
    offered = [kind for kind, words in contrast._CHOICES.items() if words in asked and kind != slip.kind]
    words = {"race": "overwrite each other", "values": "wrong values"}
    return [kind for kind in offered if words.get(kind, kind) in str(report)]


def test_hints_that_may_be_chosen_are_of_kernels_and_hints_that_there_are():
    names = {(wrong.puzzle.name, wrong.name) for wrong in WRONG}
    assert {(p, kernel) for p, allowed in ALLOWED.items() for kernel in allowed} <= names
    for puzzle, allowed in ALLOWED.items():
        titles = {each.title for each in hints()[puzzle, ""]}
        assert {title for some in allowed.values() for title in some} <= titles


def test_every_wrong_kernel_says_what_is_wrong_with_it():
    said = [(w.name, w.mistake.what if isinstance(w, Made) else w.kernel.__doc__) for w in WRONG]
    assert [name for name, what in said if not what] == []


def test_no_two_of_a_puzzle_have_one_name():
    count = Counter((w.puzzle.name, w.name) for w in WRONG)
    assert [name for name, times in count.items() if times > 1] == []


def test_there_are_enough_of_them():
    count = Counter(w.puzzle.name for w in WRONG)
    assert sum(count.values()) >= 60
    assert {p.name: count[p.name] for p in puzzles() if count[p.name] < (1 if p.broken_by else 4)} == {}


@pytest.mark.parametrize(
    "reason, message",
    [({"kind": "values"}, "says is missing"), ({"kind": "wrong values"}, "but is 'wrong values'")],
)
def test_a_reason_that_says_nothing_is_refused(reason, message):
    with pytest.raises(ValueError, match=message):
        Wrong(CONSTANT_ADD, None, **reason)
