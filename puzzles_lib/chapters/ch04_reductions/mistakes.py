"""Wrong kernels of chapter 04: correct ones with one slip each. More are written out in the tests."""

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM, ONLINE_SOFTMAX
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        LONG_SUM,
        "other_forgotten",
        "Lanes past the end of the row have no defined value, and are summed anyway.",
        {"mask=mask, other=0.0": "mask=mask"},
        kind="uninitialized",
        says="x_ptr",
    ),
    Mistake(
        LONG_SOFTMAX,
        "padding_of_zeros",
        "Lanes past the end of the row are 0 instead of minus infinity, in the maximum and in the sum.",
        {
            'other=float("-inf"))  # [BLOCK_M, BLOCK_N]\n        row_max': (
                "other=0.0)  # [BLOCK_M, BLOCK_N]\n        row_max"
            ),
            'other=float("-inf"))  # [BLOCK_M, BLOCK_N]\n        denominator': (
                "other=0.0)  # [BLOCK_M, BLOCK_N]\n        denominator"
            ),
        },
        kind="values",
        says="z[0, 0]",
        asks="In case 2, the first to fail, are the values too large or too small?",
    ),
    Mistake(
        ONLINE_SOFTMAX,
        "start_at_minus_infinity",
        "The maximum starts from minus infinity, and minus infinity minus itself is NaN.",
        {"-1e30": 'float("-inf")'},
        kind="values",
        says="NaN",
    ),
    Mistake(
        ONLINE_SOFTMAX,
        "factor_forgotten",
        "The old sum is not rescaled when the maximum rises.",
        {"denominator * factor": "denominator"},
        kind="values",
        says="isn't rescaled",
    ),
    Mistake(
        ONLINE_SOFTMAX,
        "factor_upside_down",
        "The factor is new minus old instead of old minus new.",
        {"tl.exp(row_max - new_max)": "tl.exp(new_max - row_max)"},
        kind="values",
        says="old minus new",
    ),
    Mistake(
        ONLINE_SOFTMAX,
        "block_relative_to_the_old_maximum",
        "The block is added relative to the old maximum.",
        {"tl.exp(x - new_max[:, None])": "tl.exp(x - row_max[:, None])"},
        kind="values",
        says="zero everywhere",
    ),
    Mistake(
        ONLINE_SOFTMAX,
        "maximum_updated_too_early",
        "The old maximum is overwritten before the factor is computed, so the factor is always 1.",
        {"        factor = tl.exp": "        row_max = new_max\n        factor = tl.exp"},
        kind="values",
        says="isn't rescaled",
    ),
)
