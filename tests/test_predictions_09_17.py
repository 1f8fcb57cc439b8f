"""Predictions of chapters 09 to 12, 14, 16, 17: one right answer each; nudges that keep it to themselves."""

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
    "ch16-q1": 42949,
    "ch16-q2": "test_schema",
    "ch16-q3": "test_faketensor",
    "ch16-q4": False,
    "ch16-q5": "test_aot_dispatch_dynamic",
    "ch16-q6": False,
    "ch16-q7": {"dw", "db"},
    "ch16-q8": "bfloat16",
    "ch16-q9": 300,
    "ch16-q10": 10240,
    "ch16-q11": "below",
    "ch16-q12": 1.333,
    "ch16-q13": 699051,
    "ch16-q14": 3,
    "ch16-q15": 256,
    "ch17-q1": 1.25,
    "ch17-q2": 1.13,
    "ch17-q3": 0.0,
    "ch17-q4": 3,
    "ch17-q5": 0.0,
    "ch17-q6": 0.5,
    "ch17-q7": (False, True),
    "ch17-q8": {6, 7},
    "ch17-q9": {"release, acquire", "acq_rel, acq_rel"},
    "ch17-q10": 2,
    "ch17-q11": (3, 190),
    "ch17-q12": (1, 195),
    "ch17-q13": 20.0,
    "ch17-q14": 10,
    "ch17-q15": {"sum", "max", "last"},
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
    ("ch16-q1", 42948, "only ends beyond"),
    ("ch16-q1", 85898, "a sign"),
    ("ch16-q1", 7, "m * 50001"),
    ("ch16-q2", "schema", "one of test_schema, "),
    ("ch16-q2", "test_faketensor", "no data to be changed"),
    ("ch16-q2", "test_aot_dispatch_dynamic", "an x of its own"),
    ("ch16-q3", "test_schema", "nothing is changed"),
    ("ch16-q3", "test_aot_dispatch_dynamic", "depends on the shape"),
    ("ch16-q4", True, "a row of 32 bits"),
    ("ch16-q5", "test_autograd_registration", "wrong place"),
    ("ch16-q5", "test_schema", "run a backward"),
    ("ch16-q6", True, "which x does backward have"),
    ("ch16-q7", {"dx", "dw", "db"}, "gradient of the images"),
    ("ch16-q7", {"dw"}, "what is it that is trained"),
    ("ch16-q8", "float32", "the gradient of"),
    ("ch16-q9", 0, "to the nearest"),
    ("ch16-q9", 700, "stay below"),
    ("ch16-q9", 500, "a coin"),
    ("ch16-q10", 8192, "and the scales"),
    ("ch16-q10", 65536, "those are bits"),
    ("ch16-q10", 9216, "two numbers"),
    ("ch16-q11", "above", "as long as it is bearable"),
    ("ch16-q11", "on it", "'above' or 'below'"),
    ("ch16-q12", 1.5, "a third of a step"),
    ("ch16-q12", 0.33, "how long is all of it"),
    ("ch16-q12", 2, "not run twice"),
    ("ch16-q13", 699050, "still fit"),
    ("ch16-q13", 1398102, "a sign"),
    ("ch16-q14", 2, "does not cut"),
    ("ch16-q14", 0x4B400003, "lower half"),
    ("ch16-q15", 1, "none of four codes"),
    ("ch16-q15", 768, "shares a scale"),
    ("ch17-q1", 0.8, "turn it over"),
    ("ch17-q1", 2, "not twice the bytes"),
    ("ch17-q1", 1.5, "count the squares"),
    ("ch17-q2", 1.28, "y has its root"),
    ("ch17-q2", 0.88, "makes y larger"),
    ("ch17-q2", 2.0, "the root of the mean"),
    ("ch17-q3", 1.0, "on paper"),
    ("ch17-q3", 8.0, "above 2^26"),
    ("ch17-q4", 4, "lose nothing"),
    ("ch17-q4", 0, "the last column"),
    ("ch17-q5", 1.0, "to every x of a row"),
    ("ch17-q6", 1.0, "a smaller part of x"),
    ("ch17-q6", 2.0, "which way does rstd move"),
    ("ch17-q6", 0.3, "in front of the bracket"),
    ("ch17-q7", (False,), "two answers"),
    ("ch17-q7", (True, True), "who stores z[0]"),
    ("ch17-q7", (False, False), "which lane loads"),
    ("ch17-q8", {5, 6, 7}, "stores last"),
    ("ch17-q8", {7}, "more than one order"),
    ("ch17-q8", {7, 8}, "both load first"),
    ("ch17-q9", {"relaxed"}, "such as 'release, acquire'"),
    ("ch17-q9", {"release, acquire", "acquire, release"}, "who is to release"),
    ("ch17-q9", {"release, acquire", "release, relaxed"}, "what does relaxed order"),
    ("ch17-q9", {"release, acquire"}, "which of the four"),
    ("ch17-q10", 1, "how many counts"),
    ("ch17-q10", 6, "leave a part"),
    ("ch17-q10", 3, "comes last at count[j]"),
    ("ch17-q11", (1, 2, 3), "two numbers"),
    ("ch17-q11", (200, 200), "far apart"),
    ("ch17-q11", (200, 0), "more to store"),
    ("ch17-q11", (50, 200), "the later its last warp"),
    ("ch17-q12", (1,), "two numbers"),
    ("ch17-q12", (5, 200), "in their order"),
    ("ch17-q12", (1, 2), "the same bits twice"),
    ("ch17-q13", 4.0, "apart, too"),
    ("ch17-q13", 36.0, "is 16"),
    ("ch17-q13", 8.0, "all four around 4"),
    ("ch17-q14", 1023, "has a loop"),
    ("ch17-q14", 512, "doubles the distance"),
    ("ch17-q14", 3, "took 3"),
    ("ch17-q15", {"sum", "mean"}, "0, 0 and 8"),
    ("ch17-q15", {"sum", "difference"}, "3 - (2 - 1)"),
    ("ch17-q15", {"sum", "max"}, "whoever asks"),
    ("ch17-q15", {"max", "last"}, "rounding aside"),
    ("ch17-q15", {"sum", "last"}, "for all numbers"),
]

MINE = {
    id: q
    for id, q in questions().items()
    if id[:4] in {"ch09", "ch10", "ch11", "ch12", "ch14", "ch16", "ch17"}
}


def test_every_prediction_is_here():
    assert set(MINE) == set(RIGHT)


@pytest.mark.parametrize("id", RIGHT)
def test_right(id):
    for _ in range(2):  # some define an operator, whose name is taken once
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
