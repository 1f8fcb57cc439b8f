"""The predictions of chapter 10."""

import torch
import triton

from puzzles_lib.chapters.ch10_quantize.pictures import BITS_CHOICES, GROUP_CHOICES, cost, relative_error
from puzzles_lib.question import Nudge, Question


def _cheapest_half() -> tuple[int, int]:
    """Return the cheapest setting with at most half the error of 4 bits and one group."""
    most = relative_error(4, 32) / 2
    every = [(bits, group) for bits in BITS_CHOICES for group in GROUP_CHOICES]
    return min((one for one in every if relative_error(*one) <= most), key=lambda one: cost(*one))


def _is_setting(given: tuple) -> bool:
    return len(given) == 2 and given[0] in BITS_CHOICES and given[1] in GROUP_CHOICES


def _gain() -> float:
    x = (-3, -1, 1, 3)
    back = [min(x) if value < 0 else max(x) for value in x]
    return sum(a * b for a, b in zip(back, x, strict=True)) / sum(a * a for a in x)


def _code_of_a_nan() -> int:
    """Return what tl.minimum makes of NaN and the highest code of 4 bits: it drops NaN, as fmin does."""
    return int(torch.fmin(torch.tensor(float("nan")), torch.tensor(2.0**4 - 1)))


def _smallest_group() -> int:
    return next(2**p for p in range(20) if 2 + 2 * 16 / 2**p <= 2.25)


def _means_of_halves() -> tuple[float, float]:
    halves = torch.tensor([0.5, 1.5, 2.5, 3.5])
    return float((halves + 0.5).floor().mean()), float(halves.round().mean())


def _rounded_twice() -> float:
    minimum, scale = torch.tensor([-2.0, 0.01]).bfloat16()
    return float(minimum + scale * 200)


def _codes(pair: tuple) -> tuple[int, int]:
    """Return the codes of (above, scale) by division and by the reciprocal, in float32."""
    above, scale = (torch.tensor(float(v), dtype=torch.float32) for v in pair)
    return int((above / scale).round()), int((above * (1 / scale)).round())


def _is_bfloat16(pair: tuple) -> bool:
    values = torch.tensor([float(v) for v in pair], dtype=torch.float64)
    return bool((values.bfloat16().double() == values).all() and (values > 0).all())


def _pair_that_differs() -> tuple[float, float]:
    numbers = torch.arange(128, 4096).bfloat16().float().unique()
    above, scale = numbers[:, None], numbers[None, :128]
    divided, multiplied = (above / scale).round(), (above * (1 / scale)).round()
    first, second = ((divided != multiplied) & (divided < 256)).nonzero()[0].tolist()
    return float(numbers[first]), float(numbers[second])


def _codes_in_bfloat16(pair: tuple[float, ...]) -> tuple[float, float]:
    """Return the codes of `_codes`, computed in bfloat16."""
    above, scale = torch.tensor(pair).bfloat16()
    return float((above / scale).round()), float((above * (1 / scale)).round())


def _steps_too_far() -> int:
    exact = torch.tensor(4.0, dtype=torch.float64) / 255
    stored = exact.bfloat16().double()
    return round(float(255 * (stored - exact) / stored))


def _launch() -> tuple[int, int, int]:
    groups = 768 // 256
    block = triton.next_power_of_2(groups)
    return block, 100864, triton.cdiv(groups, block)


def _left_over(magic: float) -> str:
    """Return what s + magic - magic makes of the s from 0 to 255: "" if it rounds them half to even.

    "fractions": some aren't whole. "few": some whole s change. "ties": only halves go the wrong way.
    """
    s = torch.arange(0, 255 * 8 + 1, dtype=torch.float32) / 8
    back = (s + magic) - magic
    if torch.equal(back, s.round()):
        return ""
    whole = s == s.round()
    if not torch.equal(back[whole], s[whole]):
        return "few"
    return "ties" if torch.equal(back, back.round()) else "fractions"


FAIR_STEPS = (2.3, 0.9, 6.0, 100.5)


def _are_fair(found: tuple, right: tuple) -> bool:
    """Return whether each (smallest code, largest code, mean) is the right one; means may be 0.02 off."""
    return len(found) == len(right) and all(
        tuple(one[:2]) == other[:2] and abs(one[2] - other[2]) < 0.02
        for one, other in zip(found, right, strict=True)
    )


QUESTIONS = (
    Question(
        id="ch10-q14",
        asks="Which setting of the sliders at least halves the error of 4 bits and one group of 32, for the "
        "fewest bits per value? (BITS, GROUP)",
        right=_cheapest_half,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: not _is_setting(v),
                "Answer with (BITS, GROUP), from 1 to 8 bits and a group of 4, 8, 16 or 32.",
            ),
            Nudge(
                lambda v, r: relative_error(*v) > relative_error(4, 32) / 2,
                "This setting has an error of {error:.1%}. Half of the first one is {half:.1%}.",
                lambda v: {"error": relative_error(*v), "half": relative_error(4, 32) / 2},
            ),
        ),
        nudge="This setting halves the error, but another one does so for fewer bits per value.",
    ),
    Question(
        id="ch10-q1",
        asks="The group -3, -1, 1, 3 is quantized to one bit. What is the gain of the decoded values?",
        right=_gain,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "The errors 0, -2, 2, 0 cancel, but not times x: -1 goes down, 1 goes up. Compute both sums.",
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
        asks="0 / 0 is NaN, and tl.minimum drops NaN. Which code does a value get, with 4 bits?",
        right=_code_of_a_nan,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 0,
                "0 would be correct. But look at what follows the division in your kernel.",
            ),
            Nudge(lambda v, r: v == 16, "That's the number of levels. The codes begin with 0."),
            Nudge(lambda v, r: v == -1, "-1 is a whole word. This asks for the code in each of its fields."),
        ),
        nudge="The steps are NaN, and so is their rounded value. With what does your kernel limit the codes?",
    ),
    Question(
        id="ch10-q4",
        asks="Steps are 0.5, 1.5, 2.5 and 3.5. What is the mean code if halves always go up, and if they "
        "go to the even code? (up, even)",
        right=_means_of_halves,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Please give two numbers: (up, even)."),
            Nudge(lambda v, r: v == r[::-1], "Both means are correct, but swap them."),
            Nudge(
                lambda v, r: v[0] == r[0],
                "The first mean is correct. Which of 0 and 1 is even? And of 1 and 2, 2 and 3, 3 and 4?",
            ),
            Nudge(lambda v, r: v[1] == r[1], "The second mean is correct. For the first, 0.5 goes to 1."),
        ),
        nudge="Write down the four codes for each rule, then take the mean.",
    ),
    Question(
        id="ch10-q5",
        asks="2-bit codes, 2.25 bits per value in all, a scale and a minimum in bfloat16 per group: what is "
        "the smallest power of two for GROUP?",
        right=_smallest_group,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == r // 2, "That's enough for the scale. A group has a minimum as well."),
            Nudge(lambda v, r: v & (v - 1), "GROUP should be a power of two."),
            Nudge(lambda v, r: v < r, "With so small a group, a value takes more than 2.25 bits."),
        ),
        nudge="It fits, but a smaller group fits, too. How many bits are left for scale and minimum?",
    ),
    Question(
        id="ch10-q6",
        asks="A group from -2 to 2, 8 bits, scale 0.015686, stored as 0.015747. The maximum has code 255. "
        "By how "
        "many steps is its decoded value too far?",
        right=_steps_too_far,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 0, "The difference of the scales is little, but it adds up over the codes."
            ),
            Nudge(
                lambda v, r: v == 255, "255 is the code. What does it come back as, and what was the maximum?"
            ),
        ),
        nudge="Decode the code 255, subtract the maximum, and divide by a step.",
    ),
    Question(
        id="ch10-q12",
        asks="Minimum -2, code 200, stored scale 0.01000977. What comes back if the product is rounded to "
        "bfloat16 before the sum?",
        right=_rounded_twice,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: 0.0019 < v < 0.002,
                "That's the exact result. But 2.001953 isn't a bfloat16. Which one is the nearest?",
            ),
            Nudge(lambda v, r: v == 2, "That's the rounded product. Now add the minimum."),
            Nudge(lambda v, r: v == 1 / 64, "2 + 1/64 is a bfloat16, but 2 is nearer to the product."),
        ),
        nudge="The product is 2.001953. Round it to a multiple of 1/64, then add -2.",
    ),
    Question(
        id="ch10-q7",
        asks="100864 rows of 768 values, groups of 256, a row per program: what are the smallest "
        "BLOCK_G and the grid? (BLOCK_G, axis 0, axis 1)",
        right=_launch,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 3, "Please give three numbers: (BLOCK_G, axis 0, axis 1)."),
            Nudge(lambda v, r: v[0] == 3, "A row has three groups. But BLOCK_G is the size of a tl.arange."),
            Nudge(lambda v, r: v[0] in (256, 768, 1024), "BLOCK_G counts groups, not values."),
            Nudge(
                lambda v, r: v[0] > r[0] and v[1:] == r[1:],
                "That covers a row, but half of the lanes or more would have no group. A smaller BLOCK_G "
                "covers it, too.",
            ),
            Nudge(lambda v, r: v == (r[0], r[2], r[1]), "Swap the last two: axis 0 is the row."),
            Nudge(lambda v, r: v[0] == r[0], "BLOCK_G is correct. How many programs does a row need now?"),
        ),
        nudge="Count the groups of a row. Which block covers all of them at once?",
    ),
    Question(
        id="ch10-q10",
        asks="fair(steps) of 100000 times 2.3, 0.9, 6 and 100.5: the smallest code, the largest and the mean "
        "of each. For 2.3 they should be about (2, 3, 2.3).",
        right=lambda: tuple((float(int(s)), float(-int(-s // 1)), s) for s in FAIR_STEPS),
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: any(float(each) % 1 for one in v for each in one[:2]),
                "A code is a whole number. Round at the end.",
            ),
            Nudge(
                lambda v, r: v[0][0] == v[0][1],
                "Every 2.3 gets the same code. The rule needs a random number for each value.",
            ),
            Nudge(
                lambda v, r: v[0][0] < 2 or v[0][1] > 3,
                "For 2.3, some codes are neither 2 nor 3.",
            ),
            Nudge(
                lambda v, r: abs(v[0][2] - 2.5) < 0.02,
                "Half of the values go up, as with a coin. How often should 2.3 go up?",
            ),
            Nudge(
                lambda v, r: abs(v[0][2] - 2.8) < 0.02,
                "Your codes are half a step too high on average. A random number from 0 to 1 is 0.5 on "
                "average, "
                "and rounding to nearest doesn't take that away.",
            ),
            Nudge(
                lambda v, r: abs(v[0][2] - r[0][2]) > 0.02,
                "The codes are 2 and 3, but their mean isn't 2.3. Of ten values, how many should go up?",
            ),
            Nudge(
                lambda v, r: abs(v[1][2] - r[1][2]) > 0.02,
                "2.3 is correct on average, but 0.9 isn't: 9 of 10 must go up there. How can one formula do "
                "both?",
            ),
            Nudge(
                lambda v, r: tuple(v[2]) != r[2],
                "2.3 and 0.9 are correct on average. But 6 is a whole number already, so it should stay 6.",
            ),
        ),
        nudge="2.3, 0.9 and 6 are correct. What does your rule do with 100.5?",
        same=lambda v, r: _are_fair(v, r),
        computed=True,
    ),
    Question(
        id="ch10-q13",
        asks="Which number rounds s half to even if you add it and subtract it again in float32, for every "
        "s from "
        "0 to 255?",
        right=lambda: 1.5 * 2**23,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: _left_over(v) == "fractions",
                "Some fractions are left. In the range of your sums, float32 numbers are closer than 1. "
                "Where are "
                "they exactly 1 apart?",
            ),
            Nudge(
                lambda v, r: not abs(v) < 2**128,
                "No float32 is that large, so the sum is inf, and inf - inf is NaN.",
            ),
            Nudge(
                lambda v, r: _left_over(v) == "few",
                "Some whole numbers are lost. In the range of your sums, float32 numbers are further apart "
                "than 1.",
            ),
            Nudge(
                lambda v, r: v % 2 == 1,
                "It rounds to whole numbers, but halves go to odd ones: the sum is even, your number is odd.",
            ),
        ),
        nudge="A float32 has 24 significant bits. For which sums is the lowest of them worth 1?",
        same=lambda v, r: _left_over(v) == "",
    ),
    Question(
        id="ch10-q11",
        asks="Find two bfloat16 numbers (above, scale) whose code is different with above * (1 / scale) than "
        "with above / scale.",
        right=_pair_that_differs,
        kind=tuple,
        computed=True,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Please give two numbers: (above, scale)."),
            Nudge(lambda v, r: not _is_bfloat16(v), "Both must be positive numbers that bfloat16 can hold."),
            Nudge(lambda v, r: max(_codes(v)) > 255, "The code would be larger than 255."),
            Nudge(
                lambda v, r: len(set(_codes_in_bfloat16(v))) == 2,
                "The codes differ if everything is computed in bfloat16. Convert both tensors with .float() "
                "before you divide and multiply: in float32, these two codes are the same.",
            ),
        ),
        nudge="Both formulas give the same code. Where does a quotient's last bit decide?",
        same=lambda v, r: (
            len(v) == 2 and _is_bfloat16(v) and max(_codes(v)) < 256 and len(set(_codes(v))) == 2
        ),
    ),
)
