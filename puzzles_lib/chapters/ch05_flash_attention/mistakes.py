"""Wrong kernels of chapter 05: right ones with one slip each. More are written out in the tests."""

from puzzles_lib.chapters.ch05_flash_attention.puzzles import SCALAR_FLASH_ATTENTION
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        SCALAR_FLASH_ATTENTION,
        "factor_forgotten",
        "Neither sum is brought up to date when the maximum moves.",
        {"denominator * factor": "denominator", "acc * factor": "acc"},
        kind="values",
        says="1 of 6 cases",
    ),
)
