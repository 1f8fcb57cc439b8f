"""The predictions of chapter 10."""

import torch

from puzzles_lib.question import Nudge, Question


def _gain() -> float:
    x = (-3, -1, 1, 3)
    back = [min(x) if value < 0 else max(x) for value in x]
    return sum(a * b for a, b in zip(back, x, strict=True)) / sum(a * a for a in x)


def _word_of_top_codes() -> int:
    word = sum(15 << 4 * i for i in range(8))
    return word - 2**32 if word >= 2**31 else word


def _scales_a_row() -> tuple[int, int]:
    return -(-91 // 16), 91 // 16


def _exchanges() -> int:
    return 2 * (32).bit_length() - 2


def _bits_a_value() -> float:
    return 2 + 2 * 16 / 32


def _steps_too_far() -> int:
    exact = torch.tensor(4.0, dtype=torch.float64) / 255
    stored = exact.bfloat16().double()
    return round(float(255 * (stored - exact) / stored))


QUESTIONS = (
    Question(
        id="ch10-q1",
        asks="A group of -3, -1, 1, 3, quantised to one bit. What is the gain of what comes back?",
        right=_gain,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 1, "is what comes back as large as what went in?"),
            Nudge(lambda v, r: v == 36 / 20, "that compares squares; multiply each x̂ by its x instead"),
            Nudge(lambda v, r: v < 1, "here values move outwards: each becomes the minimum or the maximum"),
        ),
        nudge="-3 and -1 come back as the minimum, 1 and 3 as the maximum; "
        "the sum of x̂ · x over the sum of x · x",
    ),
    Question(
        id="ch10-q2",
        asks="4 bits, and every code of a word is 15: which int32 is it?",
        right=_word_of_top_codes,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2**32 - 1, "the bits are right; an int32 has a sign"),
            Nudge(lambda v, r: v == 2**31 - 1, "that has a 0 in the top bit"),
        ),
        nudge="eight fields of four ones each: what does an int32 mean by 32 ones?",
    ),
    Question(
        id="ch10-q3",
        asks="N = 91, GROUP = 16. How many scales has a row, and how many by `N // GROUP`? (has, thinks)",
        right=_scales_a_row,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (has, thinks)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
        ),
        nudge="91 is some whole groups and 11 values more; the short group has a scale too",
    ),
    Question(
        id="ch10-q4",
        asks="A warp has 32 threads. In each exchange every thread gets one value from another. "
        "How many exchanges make a minimum and a maximum of all?",
        right=_exchanges,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == r // 2, "that is one of the two"),
            Nudge(
                lambda v, r: v in (31, 32, 62, 64), "all threads exchange at once: after one, pairs are done"
            ),
        ),
        nudge="after one exchange each thread knows the minimum of 2 threads, after the next of 4",
    ),
    Question(
        id="ch10-q5",
        asks="2-bit codes in groups of 32, each with scale and minimum in bfloat16: how many bits a value?",
        right=_bits_a_value,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 2, "those are the codes; who pays for scale and minimum?"),
            Nudge(lambda v, r: v == 2.5, "a group has a minimum as well"),
            Nudge(lambda v, r: v == 34, "32 values share one scale and one minimum"),
        ),
        nudge="a bfloat16 has 16 bits; a group has two of them, and 32 values to share them",
    ),
    Question(
        id="ch10-q6",
        asks="255 exact steps come back as 255 stored ones, each 0.39 % longer. How many steps too far?",
        right=_steps_too_far,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 0, "0.39 % of *one* step is little; here are 255 of them"),
            Nudge(lambda v, r: v >= 99, "0.39 % of a step is 0.0039 steps"),
        ),
        nudge="255 steps, each 0.0039 of a step too long",
    ),
)
