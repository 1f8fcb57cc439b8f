"""The predictions of chapter 14."""

from puzzles_lib.question import Nudge, Question


def _left_after_twelve() -> float:
    return 0.99**12


def _wrapped() -> int:
    return (-130 + 128) % 256 - 128


def _products_in_float32() -> int:
    return 2**24 // 127**2


def _past_a_multiple() -> int:
    return 250 % 16


QUESTIONS = (
    Question(
        id="ch14-q1",
        asks="Each of twelve layers hands on 0.99 of what it got. How much is left at the end (within 0.02)?",
        right=_left_after_twelve,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.02,
        nudges=(
            Nudge(lambda v, r: v > 0.95, "that is about one layer's loss, or that of a random walk"),
            Nudge(lambda v, r: 1 < v <= 100, "a share, such as 0.5"),
        ),
        nudge="each layer multiplies",
    ),
    Question(
        id="ch14-q2",
        asks="A float is cast to int8 by way of int16: the lowest eight bits are kept. What becomes of -130?",
        right=_wrapped,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -128, "that would be clamped; a cast does not clamp"),
            Nudge(lambda v, r: v in (-2, 2), "eight bits are 256 numbers: go round by as many"),
        ),
        nudge="numbers go round in a circle of 256: -128 is followed, downwards, by 127",
    ),
    Question(
        id="ch14-q3",
        asks="float32 holds every integer up to 2^24. How many products of 127 * 127 is that room for?",
        right=_products_in_float32,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 2**24 // 127, "a product is 127 times 127"),),
        nudge="divide, and round down",
    ),
    Question(
        id="ch14-q4",
        asks="wq is [N, K] in int8, K = 250, and begins at a multiple of 16. "
        "How many bytes past such a multiple does row 1 begin?",
        right=_past_a_multiple,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 250, "that is where it begins; how far past the last multiple of 16?"),
        ),
        nudge="a code is a byte, so row 1 begins at byte K",
    ),
)
