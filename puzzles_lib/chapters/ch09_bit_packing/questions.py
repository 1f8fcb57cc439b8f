"""The predictions of chapter 09."""

import torch

from puzzles_lib.chapters.ch09_bit_packing.pictures import CODES, pack
from puzzles_lib.chapters.ch09_bit_packing.puzzles import UNPACK_BITS
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.h200 import REGISTERS, WARPS

ROW = 117  # its code is in the top field of a word, which contains the sign
_BYTES_A_LOAD = 16  # the widest load of a thread


def _programs_that_fit() -> int:
    return REGISTERS // (64 * 4 * 32)


def _warps_that_keep_busy() -> int:
    issue, wait = 2, 14
    return (issue + wait) // issue


def _word_of_four() -> int:
    return pack(CODES, 8)


def _place_down_a_column(row: int = ROW, fields: int = 8) -> tuple[int, int, int]:
    block, within = divmod(row, 16 * fields)
    return block, within % 16, within // 16


def _codes_of_the_row() -> tuple[int, ...]:
    """Return column 1 of a row in the matrices of the notebook's cell."""
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randint(4, (12, 200, 3), dtype=torch.uint8, generator=generator)
    return tuple(matrices[:, ROW, 1].tolist())


def _threes_in_a_byte() -> int:
    lowest = sum(3 << 2 * i for i in range(16)) & 0xFF
    return lowest - 256 if lowest > 127 else lowest


def _masked_first() -> tuple[int, ...]:
    """Return fields 6 and 7 of the word -1, with & before >>, as an int32 does it."""
    alone = (15 << 4 * 6, (15 << 4 * 7) - 2**32)
    return tuple((-1 & kept) >> 4 * i for kept, i in zip(alone, (6, 7), strict=True))


def _threads_a_word() -> tuple[int, ...]:
    return tuple(-(-(32 // bits) // _BYTES_A_LOAD) for bits in (1, 2, 4, 8))


def _words_and_fields() -> tuple[int, int]:
    words = -(-100 // 16)
    return words, 16 * words - 100


def _lanes_with_a_code() -> int:
    """Return the lanes with a code in program (0, 1), case 3 of puzzle 14: words 2 and 3, 1-bit codes."""
    case = UNPACK_BITS.cases[3]
    first = case.BLOCK_W * 32 // case.BITS
    return min(case.N - first, first)


def _grid() -> tuple[int, int]:
    words = -(-4100 // 16)
    return 8, -(-words // 64)


QUESTIONS = (
    Question(
        id="ch09-q1",
        asks="The codes 3, 20, 77, 200 of 8 bits, 3 in field 0: which int32 is their word?",
        right=_word_of_four,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r + 2**32,
                "The bits are correct. But bit 31 is set, and in an int32 it counts -2^31.",
            ),
            Nudge(lambda v, r: v == 300, "That's the sum of the codes. Move each to its field first."),
            Nudge(
                lambda v, r: v == (3 << 24) + (20 << 16) + (77 << 8) + 200,
                "You put 3 into the top field. Field 0 is the lowest eight bits.",
            ),
            Nudge(
                lambda v, r: v == sum(code << i for i, code in enumerate(CODES)),
                "You moved code i by i bits. A field is eight bits wide.",
            ),
        ),
        nudge="Code i moves up by 8 * i bits. Add up the four, and look at bit 31 of the sum.",
    ),
    Question(
        id="ch09-q2",
        asks="Every 2-bit code is 3. The sum is kept in an int8 and stored as an int32. Which number is it?",
        right=_threes_in_a_byte,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 255,
                "The bits are correct. 255 is what they mean without a sign. What do they mean as an int8?",
            ),
            Nudge(
                lambda v, r: v == 48,
                "48 is the sum of the codes without moving them up to their fields first.",
            ),
        ),
        nudge="Write down the lowest eight bits of the word, and read them as an int8.",
    ),
    Question(
        id="ch09-q3",
        asks="The int32 word is -1. What is (word & (15 << 4 * i)) >> 4 * i for i = 6 and 7?",
        right=_masked_first,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Please give two numbers: (field 6, field 7)."),
            Nudge(
                lambda v, r: v == (15, 15),
                "Field 6 is correct. In field 7, bit 31 is set before the shift. What does >> bring in from "
                "the left?",
            ),
            Nudge(
                lambda v, r: v == (15, 255),
                "A store to uint8 makes 255 of field 7. Which int32 does it store?",
            ),
            Nudge(lambda v, r: v == r[::-1], "Both numbers are correct, but swap them."),
        ),
        nudge="-1 is 32 ones. Which of them does & keep? Is that number negative? Then shift it.",
    ),
    Question(
        id="ch09-q4",
        asks="A thread loads up to 16 neighboring codes of a word. How many threads have the codes of one "
        "word, for 1, 2, 4 and 8 bits? Answer with a tuple of four numbers.",
        right=_threads_a_word,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 4, "Please give four numbers, for 1, 2, 4 and 8 bits."),
            Nudge(
                lambda v, r: v == (32, 16, 8, 4), "That's how many codes a word has. A thread loads 16 codes."
            ),
            Nudge(
                lambda v, r: any(number % 1 for number in v),
                "There are no half threads. If a word has fewer codes than 16, one thread loads all of them.",
            ),
            Nudge(
                lambda v, r: v == (1, 1, 1, 1),
                "Three of them are correct. How many codes does a word of 1-bit codes have?",
            ),
        ),
        nudge="How many codes does a word have, for each width? Which words need more than one load?",
    ),
    Question(
        id="ch09-q5",
        asks="A program has 4 warps and 64 registers per thread. How many programs fit on a multiprocessor?",
        right=_programs_that_fit,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 32 * r, "You took threads for warps: a warp has 32 threads."),
            Nudge(lambda v, r: v == 4 * r, "That's how many warps fit. A program has 4 of them."),
            Nudge(
                lambda v, r: v == WARPS // 4,
                "16 programs fill all 64 places for warps. But registers run out earlier: a program "
                "needs 64 for each of 128 threads.",
            ),
            Nudge(
                lambda v, r: v == r / 4,
                "You used one quarter's registers. The warps of a program are spread over all four.",
            ),
        ),
        nudge="A program needs 64 registers for each of 128 threads. There are four quarters of 16384 "
        "registers.",
    ),
    Question(
        id="ch09-q6",
        asks="A warp issues for 2 clocks, then waits for 14. How many warps keep a scheduler busy?",
        right=_warps_that_keep_busy,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r - 1,
                "Close, but two clocks are empty: when the others are done, the first warp still waits.",
            ),
            Nudge(
                lambda v, r: v == 4, "4 warps are enough if a warp waits for 6 clocks. Here it waits longer."
            ),
        ),
        nudge="A warp comes back after 16 clocks. How many warps, at 2 clocks each, fill that time?",
    ),
    Question(
        id="ch09-q7",
        asks="100 codes of 2 bits: how many words do they take, and how many fields are left over? (words, "
        "fields)",
        right=_words_and_fields,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Please give two numbers: (words, fields)."),
            Nudge(lambda v, r: v[0] == 6, "6 words are full, but some codes have no word yet."),
            Nudge(
                lambda v, r: v == (r[0], 4),
                "The number of words is correct. 4 is how many codes the last word has. How many more would "
                "fit?",
            ),
        ),
        nudge="A word has room for 32 / 2 codes. How many words until all 100 codes have a place?",
    ),
    Question(
        id="ch09-q8",
        asks="Do the codes come back, is the packer correct, is the unpacker correct? "
        "It should be (True, False, False).",
        right=lambda: (True, False, False),
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: v[1:] == (True, True),
                "Both kernels are correct. Change the packer.",
            ),
            Nudge(
                lambda v, r: not v[0],
                "The codes don't come back. Your unpacker must undo exactly what your packer does.",
            ),
            Nudge(lambda v, r: v[1], "The codes come back, but your packer is correct."),
            Nudge(lambda v, r: v[2], "The codes come back, but your unpacker is correct."),
        ),
        nudge="A code can go to another field, as long as the unpacker looks for it there.",
        computed=True,
    ),
    Question(
        id="ch09-q9",
        asks="A row has 75 codes of one bit. How many of the second program's 64 lanes have a code to store?",
        right=_lanes_with_a_code,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 32, "32 codes would be a full word. Is the third word full?"),
            Nudge(
                lambda v, r: v == 75 - 32, "You gave the first program one word. It has two words, not one."
            ),
        ),
        nudge="The first program stores 64 codes of the row. Of the 75, how many are left?",
    ),
    Question(
        id="ch09-q10",
        asks="8 rows of 4100 codes with 2 bits each, and 64 words per program: what is the grid?",
        right=_grid,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "The kernel uses two program ids: give two numbers."),
            Nudge(
                lambda v, r: v == r,
                "The numbers are correct, but Triton needs whole numbers: 5 instead of 5.0.",
            ),
            Nudge(
                lambda v, r: v == r[::-1], "Swap them: axis 0 is the row, as `row = tl.program_id(0)` says."
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == 4100 // 16 // 64,
                "You rounded down somewhere. The last word and the last block may be partly filled.",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == -(-4100 // 64),
                "You divided codes by BLOCK_W. A program packs 64 words, and a word has 16 codes.",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == -(-4100 // 16),
                "A row has 257 words, that's correct. But a program packs 64 of them.",
            ),
            Nudge(lambda v, r: v[0] == r[0], "The rows are correct. How many words does a row have?"),
        ),
        nudge="Axis 0 counts rows, axis 1 the blocks of 64 words within a row.",
        same=lambda v, r: v == r and all(type(number) is int for number in v),
    ),
    Question(
        id="ch09-q11",
        asks="2-bit codes are packed down a column, in blocks of 128 rows. Where is the code of row 117, "
        "column 1? (block, r, field)",
        right=_place_down_a_column,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 3, "Please give three numbers: (block, r, field)."),
            Nudge(
                lambda v, r: v == (r[0], r[2], r[1]),
                "The numbers are correct, but swap the last two.",
            ),
            Nudge(
                lambda v, r: v == (0, ROW // 8, ROW % 8),
                "That's where it would be if neighbors shared a word. Here the rows of a word are 16 apart.",
            ),
            Nudge(
                lambda v, r: v == (*r[:2], 2 * r[2]),
                "Block and r are correct, and 14 is the bit where the field begins. Which field is that?",
            ),
            Nudge(lambda v, r: v[0] != r[0], "Block 0 has the rows 0 to 127."),
            Nudge(
                lambda v, r: v[:2] == r[:2],
                "Block and r are correct. The rows of this word are 5, 21, 37 and so on: which one is 117?",
            ),
        ),
        nudge="The rows of a word are r, r + 16, r + 32 and so on. Which of these sequences contains 117?",
    ),
    Question(
        id="ch09-q12",
        asks="The code of row 117, column 1, in 12 random matrices of 2-bit codes packed down a column.",
        right=_codes_of_the_row,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: tuple(code % 4 for code in v) == r and min(v) < 0,
                "Codes 2 and 3 come back negative. Field 7 contains the sign bit, and >> copies it. So what "
                "has to come last?",
            ),
            Nudge(
                lambda v, r: tuple(code % 4 for code in v) == r,
                "The lowest two bits are correct, but there are others on their left.",
            ),
            Nudge(
                lambda v, r: tuple(code // 2**14 % 4 for code in v) == r,
                "You kept the correct two bits, but they're still at the top of the word: shift them down.",
            ),
        ),
        nudge="Your line takes other bits. Where is this code: in which block, which r, and which field?",
        computed=True,
    ),
)
