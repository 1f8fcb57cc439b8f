"""`answer`: right, wrong with a nudge, and never the solution; nothing that is typed raises."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from puzzles_lib import answer, progress
from puzzles_lib.chapters import questions
from puzzles_lib.ledger import load
from puzzles_lib.question import Nudge, Question

SECRET = 12345


def make(id: str, right, kind, **more) -> Question:
    return Question(id, "How many?", lambda: right, kind, nudge="look at the layout", **more)


def fails():
    raise RuntimeError("no compiler\nhere")


QUESTIONS_HERE = [
    make(
        "ch98-q1",
        SECRET,
        int,
        nudges=(
            Nudge(lambda value, right: value == 4 * right, "bytes are not elements"),
            Nudge(lambda value, right: value < right, "too few"),
        ),
    ),
    make("ch98-q2", "wgmma.mma_async", str),
    make("ch98-q3", {"x_ptr", "z_ptr"}, set),
    make("ch98-q4", (4, 32), tuple),
    make("ch98-q5", 0.5, float),
    make("ch98-q6", True, bool),
    make("ch98-q7", {1, 2}, int, same=lambda value, right: value in right),
    Question("ch99-q1", "What?", fails, int, nudge="look"),
    make("ch99-q2", 5, int, nudges=(Nudge(lambda value, right: 1 // 0, "never"),)),
    make("ch99-q3", {0, 1}, set),
]


@pytest.fixture(autouse=True)
def _questions(monkeypatch):
    for name in list(questions()):
        monkeypatch.delitem(questions(), name)
    for question in QUESTIONS_HERE:
        monkeypatch.setitem(questions(), question.id, question)


@pytest.mark.parametrize(
    "id, value",
    [
        ("ch98-q1", SECRET),
        ("ch98-q1", np.int64(SECRET)),
        ("ch98-q2", " WGMMA.mma_async\n"),
        ("ch98-q3", {"Z_ptr", "x_ptr"}),
        ("ch98-q3", ["z_ptr", "x_ptr"]),
        ("ch98-q1", str(SECRET)),
        ("ch98-q4", [4, 32]),
        ("ch98-q4", torch.tensor([4, 32.0])),
        ("ch98-q5", 0.5002),
        ("ch98-q5", "0.5"),
        ("ch98-q5", "0.5x"),
        ("ch98-q6", True),
        ("ch98-q7", 2),
    ],
)
def test_right(id, value):
    given = answer(id, value)
    assert given.ok and repr(given) == f"{id}: Correct."
    assert "--jp-success-color1" in given._repr_html_()


@pytest.mark.parametrize(
    "id, value, words",
    [
        ("ch98-q1", 4 * SECRET, "bytes are not elements"),
        ("ch98-q1", 7, "too few"),
        ("ch98-q1", 99999, "look at the layout"),
        ("ch98-q2", "mma.sync", "look at the layout"),
        ("ch98-q3", {"x_ptr"}, "look at the layout"),
        ("ch98-q4", (32, 4), "look at the layout"),
        ("ch98-q5", 0.6, "look at the layout"),
        ("ch98-q6", False, "look at the layout"),
        ("ch98-q7", 3, "look at the layout"),
    ],
)
def test_wrong_gets_a_nudge_and_not_the_solution(id, value, words):
    given = answer(id, value)
    assert not given.ok and repr(given) == f"{id}: Not quite.\n       {words}"
    page = given._repr_html_()
    assert 'role="status"' in page and words in page
    for text in (repr(given), page):
        assert str(SECRET) not in text.replace(str(4 * SECRET), "") and "wgmma" not in text


@pytest.mark.parametrize("value", [(), (...,), (None,)])
def test_open(value, state_dir):
    given = answer("ch98-q1", *value)
    assert not given.ok and repr(given) == "ch98-q1: Not answered yet.\n       How many?"
    assert not state_dir.exists()


@pytest.mark.parametrize(
    "id, value, words",
    [
        ("ch98-q1", "many", "The answer should be a whole number, but 'many' is a str."),
        ("ch98-q1", 12345.5, "a whole number"),
        ("ch98-q1", float("inf"), "a whole number"),
        ("ch98-q5", "half x", "a number"),
        ("ch98-q1", True, "a whole number"),
        ("ch98-q2", 3, "a string"),
        ("ch98-q3", "x_ptr", "a set, such as"),
        ("ch98-q3", [[1]], "a set, such as"),
        ("ch98-q4", 4, "a tuple, but 4 is an int. The question: How many?"),
        ("ch98-q4", ("a", 1), "Write numbers without quotation marks."),
        ("ch98-q4", {32, 4}, "A set has no order: write the numbers in order, as (?, ?)."),
        ("ch98-q5", "half", "The answer should be a number, but 'half' is a str."),
        ("ch98-q5", 10**400, "a number"),
        ("ch98-q6", 1, "True or False"),
        ("ch99-q3", {"0", "1"}, "Write numbers without quotation marks."),
        ("ch98-q1", [0] * 10**5, "is a list."),
        ("ch99-q1", 3, "The correct answer cannot be computed here (RuntimeError: no compiler here)"),
        ("ch99-q2", 3, "The correct answer cannot be computed here (ZeroDivisionError"),
        ("ch98-q9", 3, "There is no such question. Try one of these: ch98-q1, ch98-q2"),
        ("ch13", 3, "Try one of these: ch98-..., ch99-..."),
        (5, 3, "There is no such question."),
        (["ch98-q1"], 3, "There is no such question."),
    ],
)
def test_what_is_no_answer_is_said_in_a_line(id, value, words, state_dir):
    given = answer(id, value)
    assert given.status == "not checked" and words in given.words
    assert len(repr(given).splitlines()) == 2 and len(repr(given)) < 250
    assert not state_dir.exists()


class Odd:
    def __repr__(self):
        raise ValueError("no repr")

    def __eq__(self, other):
        raise ValueError("no eq")

    __hash__ = object.__hash__


@pytest.mark.parametrize("id", [q.id for q in QUESTIONS_HERE])
def test_odd_objects_raise_nothing(id):
    assert not answer(id, Odd()).ok
    assert not answer(id, [Odd(), Odd()]).ok
    assert not answer(Odd(), 3).ok


def test_what_is_right_is_kept_and_shown(state_dir, monkeypatch):
    answer("ch98-q1", 7)
    answer("ch98-q2", "wgmma.mma_async")
    assert load() == ({"ch98-q1": "tried", "ch98-q2": "solved"}, None)
    monkeypatch.setattr("puzzles_lib.overview.CHAPTERS", (_chapter(),))
    shown = str(progress())
    assert shown.startswith("1 of 10 puzzles and questions solved, 1 tried, 8 not started\n98 Reading ")
    assert shown.endswith("next: question q1, in 98_reading.ipynb")


def _chapter():
    return SimpleNamespace(
        number="98",
        title="Reading",
        notebook="98_reading.ipynb",
        puzzles=(),
        rungs=(),
        questions=QUESTIONS_HERE,
    )


def test_the_right_answer_is_computed_only_when_asked(monkeypatch):
    asked = []
    question = Question("ch98-q8", "?", lambda: asked.append(1) or 3, int, nudge="look")
    monkeypatch.setitem(questions(), "ch98-q8", question)
    answer("ch98-q8")
    answer("ch98-q8", "three")
    assert not asked
    assert answer("ch98-q8", 3).ok and asked


@pytest.mark.parametrize(
    "id, kind, words", [("q1", int, "such as 'ch13-q1'"), ("ch98-q1", list, "must be one of bool, int")]
)
def test_a_question_that_does_not_fit_together(id, kind, words):
    with pytest.raises(ValueError, match=words):
        make(id, 1, kind)
