"""Predictions of chapters 09 to 12 and 14: one right answer each, and nudges that keep it to themselves."""

import re

import pytest

from puzzles_lib import answer
from puzzles_lib.chapters import questions

RIGHT = {
    "ch09-q1": 15,
    "ch09-q2": -1,
    "ch09-q3": (-1, -2),
    "ch09-q4": (2, 1, 1, 1),
    "ch09-q5": 8,
    "ch09-q6": 8,
    "ch10-q1": 1.2,
    "ch10-q2": -1,
    "ch10-q3": (6, 5),
    "ch10-q4": 10,
    "ch11-q1": (0, 1),
    "ch11-q2": (256, 8),
    "ch11-q3": {4, 5},
    "ch11-q4": 74898,
    "ch12-q1": "products",
    "ch12-q2": 256,
    "ch12-q3": 3,
    "ch12-q4": 11,
    "ch14-q1": 0.886,
    "ch14-q2": 126,
    "ch14-q3": 1040,
    "ch14-q4": 10,
}

# What learners may think, with a word of what they must read.
MISTAKES = [
    ("ch09-q1", -1, "all 32 bits"),
    ("ch09-q1", 120, "what is left"),
    ("ch09-q1", 7, "not moved at all"),
    ("ch09-q2", 255, "without a sign"),
    ("ch09-q2", 48, "moving them up"),
    ("ch09-q2", 3, "lowest eight bits"),
    ("ch09-q3", (-2, -1), "other way round"),
    ("ch09-q3", (-1, -1), "different ways"),
    ("ch09-q3", (1, 2), "nearer to zero"),
    ("ch09-q4", (32, 16, 8, 4), "A thread holds 16"),
    ("ch09-q4", (2, 1), "four numbers"),
    ("ch09-q4", (2, 1, 0.5, 0.25), "a part of a thread"),
    ("ch09-q5", 32, "a program has 4 of them"),
    ("ch09-q5", 256, "threads for warps"),
    ("ch09-q5", 2, "one quarter's"),
    ("ch09-q5", 16, "each of 128 threads"),
    ("ch09-q6", 7, "the first one still waits"),
    ("ch09-q6", 4, "waits for 6"),
    ("ch09-q6", 1, "comes back after 16"),
    ("ch10-q1", 1, "as large as"),
    ("ch10-q1", 1.8, "multiply each"),
    ("ch10-q1", 0.9, "outwards"),
    ("ch10-q1", 2.0, "the minimum"),
    ("ch10-q2", 2**32 - 1, "a sign"),
    ("ch10-q2", 2**31 - 1, "in the top bit"),
    ("ch10-q2", 15, "eight fields"),
    ("ch10-q3", (5, 6), "other way round"),
    ("ch10-q3", (6, 6), "11 values more"),
    ("ch10-q4", 5, "one of the two"),
    ("ch10-q4", 62, "all threads exchange"),
    ("ch10-q4", 7, "of 2 threads"),
    ("ch11-q1", (1, 1), "both comparisons fail"),
    ("ch11-q1", (1, 0), "any comparison"),
    ("ch11-q2", (8, 256), "other way round"),
    ("ch11-q2", (256, 256), "32 bits"),
    ("ch11-q2", (1, 8), "goes by row"),
    ("ch11-q3", {4}, "there is more"),
    ("ch11-q3", {3, 4}, "changes nothing"),
    ("ch11-q3", {0}, "what dy holds"),
    ("ch11-q4", 74899, "the one before"),
    ("ch11-q4", 37449, "beside its sign"),
    ("ch11-q4", 1, "in which does"),
    ("ch12-q1", "bytes", "two FLOP"),
    ("ch12-q2", 64, "64 x 64"),
    ("ch12-q2", 512, "one product"),
    ("ch12-q2", 1, "products of a step"),
    ("ch12-q3", 4, "more programs"),
    ("ch12-q3", 2, "for each tile"),
    ("ch12-q4", 27, "from its end"),
    ("ch12-q4", 5, "where does split 1 begin"),
    ("ch14-q1", 0.99, "random walk"),
    ("ch14-q1", 0.5, "multiplies"),
    ("ch14-q2", -128, "clamp"),
    ("ch14-q2", -2, "go round"),
    ("ch14-q2", 0, "circle"),
    ("ch14-q3", 2**24 // 127, "127 times 127"),
    ("ch14-q3", 1041, "round down"),
    ("ch14-q4", 250, "how far past"),
    ("ch14-q4", 0, "at byte K"),
]

MINE = {id: q for id, q in questions().items() if id[:4] in {"ch09", "ch10", "ch11", "ch12", "ch14"}}


def test_every_prediction_is_here():
    assert set(MINE) == set(RIGHT)


@pytest.mark.parametrize("id", RIGHT)
def test_right(id):
    assert isinstance(MINE[id].right(), MINE[id].kind)
    assert repr(answer(id, RIGHT[id])).startswith(f"{id}: right")


@pytest.mark.parametrize("id, value, words", MISTAKES)
def test_a_mistake_gets_its_nudge(id, value, words):
    given = answer(id, value)
    assert not given.ok and words in given.words


@pytest.mark.parametrize("id", [id for id, q in MINE.items() if q.kind in (int, float)])
def test_no_nudge_holds_the_answer(id):
    """But for answers that are small numbers, which stand in any sentence."""
    right = f"{MINE[id].right():g}"
    words = " ".join([MINE[id].nudge, *(n.words for n in MINE[id].nudges)])
    assert len(right) == 1 or not re.search(rf"(?<![\d.-]){re.escape(right)}(?![\d.])", words)
