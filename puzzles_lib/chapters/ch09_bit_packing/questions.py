"""The predictions of chapter 09."""

from puzzles_lib.bench.h200 import REGISTERS
from puzzles_lib.chapters.ch09_bit_packing.puzzles import UNPACK_BITS
from puzzles_lib.question import Nudge, Question

_BYTES_A_LOAD = 16  # the most that a thread loads at once


def _programs_that_fit() -> int:
    return REGISTERS // (64 * 4 * 32)


def _warps_that_keep_busy() -> int:
    issue, wait = 2, 14
    return (issue + wait) // issue


def _largest_shifted_down() -> int:
    return sum(15 >> 4 * i for i in range(8))


def _threes_in_a_byte() -> int:
    lowest = sum(3 << 2 * i for i in range(16)) & 0xFF
    return lowest - 256 if lowest > 127 else lowest


def _divided_and_shifted() -> tuple[int, int]:
    return int(-5 / 4), -5 >> 2


def _threads_a_word() -> tuple[int, ...]:
    return tuple(-(-(32 // bits) // _BYTES_A_LOAD) for bits in (1, 2, 4, 8))


def _words_and_fields() -> tuple[int, int]:
    words = -(-100 // 16)
    return words, 16 * words - 100


def _all_ones_shifted() -> int:
    return -1 >> 30


def _lanes_with_a_code() -> int:
    """Of program (0, 1) in case 3 of puzzle 14: words 2 and 3, of one bit a code."""
    case = UNPACK_BITS.cases[3]
    first = case.BLOCK_W * 32 // case.BITS
    return min(case.N - first, first)


QUESTIONS = (
    Question(
        id="ch09-q1",
        asks="With `>>` for `<<`: what is the largest word that eight codes of 4 bits can give?",
        right=_largest_shifted_down,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -1, "that is the word of `<<`: all 32 bits set"),
            Nudge(lambda v, r: v == 8 * r, "moved down by 4 or more places, what is left of 4 bits?"),
        ),
        nudge="field 0 is not moved at all; see what `>> 4 * i` leaves of the others",
    ),
    Question(
        id="ch09-q2",
        asks="Every code is 3, of 2 bits. The sum goes into an int8, and is stored as an int32: what number?",
        right=_threes_in_a_byte,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 255, "so it is without a sign; what are these bits as an int8?"),
            Nudge(lambda v, r: v == 48, "that adds the codes without moving them up first"),
        ),
        nudge="write down the lowest eight bits of the word, and read them as an int8",
    ),
    Question(
        id="ch09-q3",
        asks="What are -5 divided by 4 as C divides, and -5 >> 2? (quotient, shifted)",
        right=_divided_and_shifted,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (quotient, shifted)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round: which of them rounds towards zero?"),
            Nudge(lambda v, r: v[0] == v[1], "-1.25 lies between two integers, and they go different ways"),
        ),
        nudge="-5 / 4 is -1.25; one goes to the integer nearer to zero, the other to the one below",
    ),
    Question(
        id="ch09-q4",
        asks="A thread loads 16 neighbouring codes. How many threads hold the codes of one word, "
        "for 1, 2, 4 and 8 bits? A tuple of four.",
        right=_threads_a_word,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 4, "four numbers, for 1, 2, 4 and 8 bits"),
            Nudge(lambda v, r: v == (32, 16, 8, 4), "so many codes has a word. A thread holds 16 of them."),
        ),
        nudge="a word has 32 / BITS codes; divide by 16, and a part of a thread is a thread",
    ),
    Question(
        id="ch09-q5",
        asks="Programs of 4 warps, 64 registers a thread: how many fit on a multiprocessor?",
        right=_programs_that_fit,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 32 * r, "that counts threads for warps: a warp has 32 of them"),
            Nudge(lambda v, r: v == 4 * r, "that is how many warps fit; a program has 4 of them"),
            Nudge(
                lambda v, r: v == r / 4, "that is one quarter's registers; the program's warps go to all four"
            ),
        ),
        nudge="64 registers for each of 128 threads, and four quarters with 16384 registers each",
    ),
    Question(
        id="ch09-q6",
        asks="A warp issues for 2 clocks, then waits for 14. How many warps keep a scheduler busy?",
        right=_warps_that_keep_busy,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r - 1,
                "nearly: while the others take their turns, the first one still waits",
            ),
            Nudge(lambda v, r: v == 4, "so many are enough if a warp waits for 6 clocks"),
        ),
        nudge="a warp comes back after 16 clocks; how many turns of 2 clocks fill them?",
    ),
    Question(
        id="ch09-q7",
        asks="100 codes of 2 bits: how many words, and how many fields left over? (words, fields)",
        right=_words_and_fields,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (words, fields)"),
            Nudge(lambda v, r: v[0] == 6, "so many words are full, and some codes are still without one"),
            Nudge(lambda v, r: v == (r[0], 4), "that is how many codes the last word has"),
        ),
        nudge="32 / 2 codes to a word. How many words until all 100 have a place?",
    ),
    Question(
        id="ch09-q8",
        asks="An int32 of all ones: what is word >> 30?",
        right=_all_ones_shifted,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 3, "so it is where zeros come in from the left. What comes in with a sign?"
            ),
            Nudge(lambda v, r: v == 0, "30 bits are gone, and two are left"),
        ),
        nudge="a negative number stays negative: the sign bit is copied into the places that fall free",
    ),
    Question(
        id="ch09-q9",
        asks="75 codes of one bit: how many of the second program's 64 lanes have a code to store?",
        right=_lanes_with_a_code,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 32, "so many has a whole word. Is the third word full?"),
            Nudge(lambda v, r: v == 75 - 32, "the first program has two words, not one"),
        ),
        nudge="the first program stores 64 codes of the row; how many are left?",
    ),
)
