"""Wrong kernels of chapter 06: correct ones with one slip each. More are written out in the tests."""

from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D, LIFE
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        CONV2D,
        "mask_by_the_offset",
        "Only the offset is compared with N * H * W, so a row continues into the next one.",
        {"inside = (n < N) & (row < H) & (column < W)": "inside = (n * H + row) * W + column < N * H * W"},
        kind="values",
        says="a mask on the offset",
        asks="In case 0, how many of the 64 results are wrong?",
    ),
    Mistake(
        LIFE,
        "no_lower_edge",
        "Rows and columns below 0 are not masked off.",
        {"(row >= 0) & (row < H) & (column >= 0) & (column < W)": "(row < H) & (column < W)"},
        kind="out of bounds",
        says="x_ptr",
    ),
    Mistake(
        LIFE,
        "column_before_the_first",
        "Column -1 is not masked off: it is the last column of the row above.",
        {"(column >= 0) & (column < W)": "(column < W)"},
        kind="out of bounds",
        says="x_ptr",
    ),
    Mistake(
        LIFE,
        "wraps_around",
        "Neighbors outside the board are taken from the opposite edge.",
        {
            "row, column = i + a, j + b": "row, column = (i + a + H) % H, (j + b + W) % W",
        },
        kind="values",
        says="the opposite edge",
    ),
    Mistake(
        LIFE,
        "its_own_neighbor",
        "A live cell counts itself.",
        {"    count -= alive\n": ""},
        kind="values",
        says="a live cell counted itself",
    ),
    Mistake(
        LIFE,
        "born_with_two",
        "A dead cell with two neighbors comes to life.",
        {"((count == 2) & (alive == 1))": "(count == 2)"},
        kind="values",
        says="dead cells with two neighbors",
    ),
    Mistake(
        LIFE,
        "halo_of_a_convolution",
        "The halo is below and to the right only, as in conv2d.",
        {"for a in range(-1, 2)": "for a in range(0, 3)", "for b in range(-1, 2)": "for b in range(0, 3)"},
        kind="values",
        says="range(0, 3)",
    ),
    Mistake(
        LIFE,
        "store_unmasked",
        "The store is not masked.",
        {"z, mask=mask": "z"},
        kind="out of bounds",
        says="z_ptr",
    ),
)
