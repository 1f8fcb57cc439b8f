"""Wrong kernels of chapter 06: right ones with one slip each. More are written out in the tests."""

from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        CONV2D,
        "mask_by_the_offset",
        "Only the offset is held below N * H * W: a row goes on into the next.",
        {"inside = (n < N) & (row < H) & (column < W)": "inside = (n * H + row) * W + column < N * H * W"},
        kind="values",
        says="z[0",
    ),
)
