"""The predictions of chapter 11."""

import math

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_UNPACK_BACKWARD, odd_values
from puzzles_lib.question import Nudge, Question


def _of_nan() -> tuple[int, int]:
    return int(math.nan > 0), int(not (math.nan <= 0))


def _begins() -> tuple[int, int]:
    return 256, 256 // 32


def _where_a_product_fails() -> set[int]:
    cases = enumerate(RELU_UNPACK_BACKWARD.cases)
    return {i for i, case in cases if case.fill.get("dy") is odd_values}


QUESTIONS = (
    Question(
        id="ch11-q1",
        asks="x is NaN. What bits are `x > 0` and `~(x <= 0)`? Such as (1, 0).",
        right=_of_nan,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two bits, 0 or 1"),
            Nudge(
                lambda v, r: v[0] == v[1], "for numbers they agree; NaN is none, and both comparisons fail"
            ),
        ),
        nudge="first the comparison: what is any comparison with NaN? Then the `~`.",
    ),
    Question(
        id="ch11-q2",
        asks="N = 256. At which word does row 1 of the mask begin, for this kernel and in truth? "
        "(kernel, truth)",
        right=_begins,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (kernel, truth)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
            Nudge(lambda v, r: v[0] == r[0], "the first is right; a word has 32 bits"),
        ),
        nudge="the kernel goes by row * N; a row of the mask has a word for each 32 elements",
    ),
    Question(
        id="ch11-q3",
        asks="In which cases of puzzle 18 does a product go wrong? A set of numbers, counted from 0.",
        right=_where_a_product_fails,
        kind=set,
        nudges=(
            Nudge(lambda v, r: 3 in v, "in case 3 every bit is 1, and a factor of 1 changes nothing"),
            Nudge(lambda v, r: v < r, "right so far, and there is more"),
        ),
        nudge="look into the cases for what dy holds: 0 times which values is not 0?",
    ),
    Question(
        id="ch11-q4",
        asks="N = 28672. Which is the first row that has an offset row * N + n of 2^31 or more?",
        right=lambda: 2**31 // 28672,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r + 1,
                "close: that row has no other; but does the one before end below 2^31?",
            ),
            Nudge(lambda v, r: v == r // 2, "an int32 has 31 bits beside its sign"),
        ),
        nudge="a row has 28672 offsets, beginning at row * 28672; in which does 2^31 lie?",
    ),
)
