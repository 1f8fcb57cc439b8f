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


def _bits_a_value() -> float:
    return 2 + 2 * 16 / 32


def _steps_too_far() -> int:
    exact = torch.tensor(4.0, dtype=torch.float64) / 255
    stored = exact.bfloat16().double()
    return round(float(255 * (stored - exact) / stored))


def _grid() -> tuple[int, int]:
    return 100864, 768 // 256


QUESTIONS = (
    Question(
        id="ch10-q1",
        asks="The group -3, -1, 1, 3 is quantized to one bit. What is the gain of the decoded values?",
        right=_gain,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "A gain of 1 means that errors cancel. Are the decoded values as large as the originals?",
            ),
            Nudge(
                lambda v, r: v == 36 / 20,
                "You added the squares of x̂. In the numerator, multiply each x̂ by its x instead.",
            ),
            Nudge(
                lambda v, r: v < 1,
                "A gain below 1 means x̂ is too small. Here values move outwards, to the minimum or the "
                "maximum.",
            ),
        ),
        nudge="-3 and -1 come back as the minimum, 1 and 3 as the maximum. "
        "Then divide the sum of x̂ · x by the sum of x · x.",
    ),
    Question(
        id="ch10-q2",
        asks="With 4 bits, every code of a word is 15. Which int32 is the word?",
        right=_word_of_top_codes,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2**32 - 1, "The bits are correct, but an int32 has a sign."),
            Nudge(lambda v, r: v == 2**31 - 1, "Close: this number has a 0 in the top bit."),
        ),
        nudge="The word has eight fields of four ones each. Which int32 consists of 32 ones?",
    ),
    Question(
        id="ch10-q3",
        asks="N = 91, GROUP = 16. How many scales does a row have, and how many does `N // GROUP` give? "
        "(really, by the kernel)",
        right=_scales_a_row,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Please give two numbers: (really, by the kernel)."),
            Nudge(
                lambda v, r: v == r[::-1],
                "Both numbers are correct, but swap them: first how many there really are.",
            ),
        ),
        nudge="91 values make some whole groups, and 11 values more. The short group has a scale, too.",
    ),
    Question(
        id="ch10-q5",
        asks="2-bit codes in groups of 32, each with a scale and a minimum in bfloat16: how many bits per "
        "value?",
        right=_bits_a_value,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 2, "2 bits are the codes alone. Add the scale and the minimum."),
            Nudge(lambda v, r: v == 2.5, "You added the scale. A group has a minimum as well."),
            Nudge(
                lambda v, r: v == 34,
                "You charged every value for a scale and a minimum of its own. 32 values share one scale "
                "and one minimum.",
            ),
        ),
        nudge="A bfloat16 has 16 bits. A group stores two of them, with 32 values to share them.",
    ),
    Question(
        id="ch10-q6",
        asks="255 exact steps are decoded as 255 stored steps, each 0.39% longer. By how many steps is that "
        "too far?",
        right=_steps_too_far,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 0, "0.39% of one step is little, but there are 255 of them."),
            Nudge(lambda v, r: v >= 99, "Watch the percent sign: 0.39% of a step is 0.0039 steps."),
        ),
        nudge="There are 255 steps, each of them 0.0039 of a step too long. Add that up.",
    ),
    Question(
        id="ch10-q7",
        asks="100864 rows of 768 values, groups of 256, one group per program: what is the grid?",
        right=_grid,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "The kernel uses two program ids: give two numbers."),
            Nudge(
                lambda v, r: v == r[::-1], "Swap them: axis 0 is the row, as `row = tl.program_id(0)` says."
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == 768,
                "That's one program per value. A program takes a whole group.",
            ),
            Nudge(lambda v, r: v[0] == r[0], "The rows are correct. How many groups of 256 does a row have?"),
        ),
        nudge="Axis 0 counts rows, axis 1 the blocks of BLOCK_G groups within a row.",
    ),
)
