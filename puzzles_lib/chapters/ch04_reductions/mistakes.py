"""Wrong kernels of chapter 04: right ones with one slip each. More are written out in the tests."""

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        LONG_SUM,
        "other_forgotten",
        "Lanes past the row hold anything, and are summed.",
        {"mask=mask, other=0.0": "mask=mask"},
        kind="uninitialised",
        says="x_ptr",
    ),
    Mistake(
        LONG_SOFTMAX,
        "padding_of_zeros",
        "Lanes past the row are 0 and not minus infinity: in the maximum, and in the sum.",
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
    ),
)
