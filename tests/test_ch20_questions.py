"""Questions of the clinic that ask for no line: each has a right answer, and nudges that do not tell it."""

import re

import pytest

from puzzles_lib import answer
from puzzles_lib.chapters import questions

MINE = {
    id: question
    for id, question in questions().items()
    if id.startswith("ch20-") and not question.asks.startswith("Which line")
}

RIGHT = {
    "ch20-q1": (3, 4, 0),
    "ch20-q62": 7,
    "ch20-q65": {24, 32, 1},
}

# What learners may think, with a word of what they must read.
MISTAKES = [
    ("ch20-q1", (3, 4), "three numbers"),
    ("ch20-q1", (4, 5, 1), "from 0"),
    ("ch20-q1", (2, 4, 0), "wrong in the same way"),
    ("ch20-q1", (3, 1, 0), "the same values"),
    ("ch20-q1", (3, 2, 0), "only the first"),
    ("ch20-q1", (3, 4, 1), "how many there are"),
    ("ch20-q1", (1, 4, 0), "one right and one wrong"),
    ("ch20-q62", 14, "two tiles"),
    ("ch20-q62", 3, "four bytes"),
    ("ch20-q62", 8, "Count the bytes"),
    ("ch20-q65", {24, 32, 8, 1, 5, 16, 48}, "isn't a tl.constexpr"),
    ("ch20-q65", {1, 32}, "nothing is compiled"),
    ("ch20-q65", {24, 32, 8, 1}, "the same kind"),
    ("ch20-q65", {24, 32, 1, 16}, "came earlier"),
    ("ch20-q65", {24, 32}, "each of the three"),
]


def test_every_question_is_here():
    assert set(RIGHT) == set(MINE)


@pytest.mark.parametrize("id", RIGHT)
def test_right(id):
    assert answer(id, RIGHT[id]).ok


@pytest.mark.parametrize("id, value, words", MISTAKES)
def test_a_mistake_gets_its_nudge(id, value, words):
    result = answer(id, value)
    assert not result.ok and words in str(result)


@pytest.mark.parametrize("id", RIGHT)
def test_no_nudge_holds_the_answer(id):
    right = RIGHT[id] if isinstance(RIGHT[id], set) else {RIGHT[id]}
    for words in [MINE[id].nudge, *(nudge.words for nudge in MINE[id].nudges)]:
        assert not right <= set(map(int, re.findall(r"-?\d+", words)))
