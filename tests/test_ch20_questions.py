"""Questions of the clinic that ask for no cause: each has a right answer, and nudges that do not tell it."""

import re

import pytest
import torch

from puzzles_lib import answer, run
from puzzles_lib.answers import judge
from puzzles_lib.authoring.solutions import kernel_cells
from puzzles_lib.chapters import questions
from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.source import define

MINE = {id: question for id, question in questions().items() if re.fullmatch(r"ch20-q1?\d", id)}

RIGHT = {
    "ch20-q1": (3, 2, 0),
    "ch20-q2": (1, 1),
    "ch20-q4": 256,
    "ch20-q5": (0, 0, 0, 1),
    "ch20-q3": -19,
    "ch20-q6": {24, 32, 1},
    "ch20-q7": 31,
    "ch20-q8": 8192,
    "ch20-q9": (1, 8),
    "ch20-q10": 33,
    "ch20-q11": (300, 256, 32),
    "ch20-q12": 10,
    "ch20-q13": (4.25, 4.5),
    "ch20-q14": {6, 7, 8, 9},
}

# What learners may think, with a word of what they must read.
MISTAKES = [
    ("ch20-q1", (3, 2), "three numbers"),
    ("ch20-q1", (4, 3, 1), "from 0"),
    ("ch20-q1", (2, 2, 0), "comparing runs shows nothing"),
    ("ch20-q1", (0, 2, 0), "no element is correct"),
    ("ch20-q1", (3, 1, 0), "the same values"),
    ("ch20-q1", (3, 2, 1), "where they are"),
    ("ch20-q1", (4, 2, 0), "b and c are correct"),
    ("ch20-q1", (4, 3, 0), "in place, in value or in the run"),
    ("ch20-q2", (5,), "2 whole numbers"),
    ("ch20-q2", (5, 1.5), "2 whole numbers"),
    ("ch20-q2", (5, 0), "no sums"),
    ("ch20-q2", (32, 5), "where a block begins"),
    ("ch20-q2", (5, 3), "fewer tokens will do"),
    ("ch20-q2", (-3, 5), "Where does the loop"),
    ("ch20-q4", 0, "False is correct"),
    ("ch20-q4", 128, "the answer is True"),
    ("ch20-q4", 512, "the smallest that does"),
    ("ch20-q4", 2**32, "doesn't fit into a block"),
    ("ch20-q4", 300, "longer and shorter rows"),
    ("ch20-q5", (0, 0, 1), "4 whole numbers"),
    ("ch20-q5", (0, 0, 2, 1), "0 or 1"),
    ("ch20-q5", (0, 0, 0, 0), "no key is left"),
    ("ch20-q5", (0, 1, 0, 0), "Shuffle its keys"),
    ("ch20-q5", (1, 1, 1, 1), "have masked keys"),
    ("ch20-q5", (0, 1, 0, 1), "is a number"),
    ("ch20-q3", -20, "nothing is rounded"),
    ("ch20-q3", 19, "weren't there before"),
    ("ch20-q6", {24, 32, 8, 1, 5, 16, 48}, "isn't a tl.constexpr"),
    ("ch20-q6", {1, 32}, "has compiled nothing yet"),
    ("ch20-q6", {24, 32, 8, 1}, "the same kind"),
    ("ch20-q6", {24, 32, 1, 16}, "came earlier"),
    ("ch20-q6", {24, 32}, "each of the three"),
    ("ch20-q7", 16, "from 17 to 32"),
    ("ch20-q7", 32, "all results are correct"),
    ("ch20-q7", 30, "Another width has fewer"),
    ("ch20-q8", 17477, "for 16 sequences"),
    ("ch20-q8", 7944, "before the last one"),
    ("ch20-q8", 8191, "just below 2^31"),
    ("ch20-q8", 8193, "exactly 2^31"),
    ("ch20-q8", 9000, "come before the last sequence"),
    ("ch20-q9", (1,), "Answer with a pair"),
    ("ch20-q9", (0, 8), "z is correct: run it"),
    ("ch20-q9", (1, 9), "try larger ones"),
    ("ch20-q9", (2, 8), "try smaller ones"),
    ("ch20-q9", (2, 9), "for their neighbors"),
    ("ch20-q10", 5, "in the first block"),
    ("ch20-q10", 32, "is its first result different"),
    ("ch20-q10", 64, "counted from 0"),
    ("ch20-q11", (300, 256), "three numbers"),
    ("ch20-q11", (512, 256, 32), "turns off all lanes"),
    ("ch20-q11", (300, 300, 300), "goes on after one block"),
    ("ch20-q11", (300, 256, 300), "Which numbers does"),
    ("ch20-q12", 23, "what a float32 can hold"),
    ("ch20-q12", 9, "isn't the largest"),
    ("ch20-q12", 11, "for which it isn't exact"),
    ("ch20-q12", 16, "for k from 1 to"),
    ("ch20-q13", (4.25,), "two numbers"),
    ("ch20-q13", (4.5, 4.25), "the other way round"),
    ("ch20-q13", (4.25, 4.25), "join 2 and 3"),
    ("ch20-q13", (6, 6), "joins two pairs"),
    ("ch20-q14", set(range(10)), "Which ones again"),
    ("ch20-q14", {6, 7}, "there are more"),
    ("ch20-q14", {0, 1}, "Which offsets come twice"),
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


# ---- inputs that make a kernel wrong


def floats(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float32)


def packed(a: int, b: int) -> dict:
    x = torch.arange(1.0, a + b + 1)
    return {"x": x, "cu": torch.tensor([0, a, a + b], dtype=torch.int32), "B": 2, "BLOCK": 16}


def masked(*keep: int) -> dict:
    kept = torch.tensor([keep], dtype=PUZZLES["48"].inputs[1].dtype)
    return {"x": floats(1, 2, 3, 4), "keep": kept, "BLOCK_N": 2}


PUZZLES = {patient.puzzle.number: patient.puzzle for patient in PATIENTS}
ASKED = {patient.puzzle.number: patient.also for patient in PATIENTS if patient.also}
GIVEN = {
    "43": packed,
    "47": lambda hits: {"x": floats(*[2.0] * hits, 0.0), "BLOCK_N": 1024},
    "48": masked,
    "56": lambda x: {"x": torch.tensor([x], dtype=torch.int32), "SIZE": 10, "BLOCK_N": 1},
}
SMALLEST = {"43": (1, 1), "47": 256}  # where a question asks for it
TRIED = [
    *(("43", lengths) for lengths in ((1, 1), (5, 3), (16, 4), (32, 1), (17, 20))),
    *(("47", hits) for hits in (1, 128, 255, 256, 257, 512, 768)),
    *(("48", keep) for keep in ((0, 0, 1, 1), (0, 0, 0, 1), (0, 1, 0, 0), (1, 1, 0, 0), (1, 0, 0, 1))),
    *(("56", x) for x in (-1, -9, -10, -11, -20, 0, 1, 19)),
]


@pytest.mark.parametrize("number, value", TRIED, ids=str)
def test_an_input_is_accepted_if_the_kernel_is_wrong_for_it_and_for_none_smaller(number, value):
    puzzle = PUZZLES[number]
    given = GIVEN[number](*(value if isinstance(value, tuple) else (value,)))
    kernel = define(kernel_cells("notebooks")[puzzle.name], f"<{puzzle.name} in the clinic>")
    spec = {name: each for name, each in given.items() if name in puzzle.spec.__code__.co_varnames}
    wrong = not torch.equal(run(kernel, puzzle, **given), puzzle.spec(**spec))
    if number == "48":
        wrong = bool(run(kernel, puzzle, **given).isnan().any())
    assert judge(ASKED[number], value).ok == (wrong and value == SMALLEST.get(number, value))
    if wrong and number in SMALLEST and value != SMALLEST[number]:
        assert re.search("smallest|fewer", judge(ASKED[number], value).words)


def test_every_question_for_an_input_is_tried():
    assert {number for number, question in ASKED.items() if question.same} == set(GIVEN)


def reported(number: str) -> object:
    puzzle = PUZZLES[number]
    return define(kernel_cells("notebooks")[puzzle.name], f"<{puzzle.name} in the clinic>")


def test_the_first_stripe_is_where_the_question_has_it():
    x = torch.full((128,), 0.5)
    z, whole = (
        run(reported("60"), PUZZLES["60"], x=x, SEED=7, BLOCK_N=BLOCK_N).clone() for BLOCK_N in (32, 128)
    )
    assert int((z != whole).nonzero()[0]) == RIGHT["ch20-q10"]


def test_the_products_are_exact_up_to_the_bit_that_is_asked_for():
    exact = []
    for k in range(1, 24):
        x = torch.full((16, 16), 1 + 2.0**-k)
        z = run(reported("55"), PUZZLES["55"], x=x, y=torch.eye(16), BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
        exact.append(torch.equal(z, x))
    assert exact == [k <= RIGHT["ch20-q12"] for k in range(1, 24)]


def test_the_reported_function_joins_three_numbers_in_two_ways():
    source = kernel_cells("notebooks")["discounted_sum"]
    scope: dict = {}
    exec(source[source.index("def then") : source.index("@triton.jit", 20)], scope)
    then = scope["then"]
    one, two, three = (0.5, 1), (0.5, 2), (0.5, 3)
    assert (then(*then(*one, *two), *three)[1], then(*one, *then(*two, *three))[1]) == RIGHT["ch20-q13"]
