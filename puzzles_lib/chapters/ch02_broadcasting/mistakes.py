"""Wrong kernels of chapter 02: correct ones with one slip each. The tests have more, written out."""

from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD_BLOCKS
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        OUTER_ADD_BLOCKS,
        "mask_of_x_forgotten",
        "x is loaded without a mask.",
        {"x_ptr + offs_n, mask=offs_n < N": "x_ptr + offs_n"},
        kind="out of bounds",
        says="x_ptr",
        asks="Which programs of case 2 load past the end of x: all, a row of them, or a column?",
    ),
)
