"""Wrong kernels of chapter 00: correct ones with one slip each."""

from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE, SQUARE
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        DOUBLE,
        "mask_of_the_store_forgotten",
        "z is stored without a mask.",
        {"z_ptr + offs, z, mask=mask": "z_ptr + offs, z"},
        kind="out of bounds",
        says="z_ptr",
    ),
    Mistake(
        DOUBLE,
        "every_program_on_the_first_block",
        "The offsets don't depend on the program id.",
        {"offs = pid * BLOCK + tl.arange(0, BLOCK)": "offs = tl.arange(0, BLOCK)"},
        kind="never written",
        says="z",
    ),
    Mistake(
        DOUBLE,
        "blocks_overlap",
        "Each block begins one element after the last one, not BLOCK elements after it.",
        {"offs = pid * BLOCK +": "offs = pid +"},
        kind="never written",
        says="z",
    ),
    Mistake(
        DOUBLE,
        "squared",
        "x is multiplied by itself instead of by 2.",
        {"2 * x": "x * x"},
        kind="values",
        says="z[0]",
    ),
    Mistake(
        SQUARE,
        "stored_over_x",
        "The results go to x instead of z.",
        {"tl.store(z_ptr": "tl.store(x_ptr"},
        kind="never written",
        says="z",
    ),
    Mistake(
        SQUARE,
        "one_block_per_program",
        "Each program takes one block of its two.",
        {"tl.arange(0, 2 * BLOCK)": "tl.arange(0, BLOCK)"},
        kind="never written",
        says="z[8]",
    ),
    Mistake(
        SQUARE,
        "programs_start_one_block_apart",
        "The blocks are long enough, but begin where single blocks would.",
        {"pid * 2 * BLOCK": "pid * BLOCK"},
        kind="never written",
        says="overwrite each other",
    ),
    Mistake(
        SQUARE,
        "doubled",
        "x + x is twice x, not its square.",
        {"x * x": "x + x"},
        kind="values",
        says="z[0]",
    ),
    Mistake(
        SQUARE,
        "mask_one_too_far",
        "<= lets in the element after the last one.",
        {"offs < N": "offs <= N"},
        kind="out of bounds",
        says="x_ptr",
    ),
    Mistake(
        SQUARE,
        "last_element_forgotten",
        "The mask switches off the last element.",
        {"offs < N": "offs < N - 1"},
        kind="never written",
        says="z[15]",
    ),
)
