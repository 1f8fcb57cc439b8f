"""Wrong kernels of chapter 05: correct ones with one slip each. More are written out in the tests."""

from puzzles_lib.chapters.ch05_flash_attention.puzzles import SCALAR_FLASH_ATTENTION
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        SCALAR_FLASH_ATTENTION,
        "factor_forgotten",
        "Neither sum is rescaled when the maximum rises. In case 1, the second block raises it for 68 "
        "queries. For the other 60, the factor would have been 1, so their values are correct.",
        {"denominator * factor": "denominator", "acc * factor": "acc"},
        kind="values",
        says="1 of 6 cases",
        asks="In case 1, the first to fail, are all values wrong, or only some?",
    ),
)
