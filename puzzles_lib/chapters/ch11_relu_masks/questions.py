"""The predictions of chapter 11."""

import math

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK, RELU_UNPACK_BACKWARD, odd_values
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question


def _of_nan() -> tuple[int, int]:
    return int(math.nan > 0), int(not (math.nan <= 0))


def _begins() -> tuple[int, int]:
    return 256, 256 // 32


def _where_a_product_fails() -> set[int]:
    cases = enumerate(RELU_UNPACK_BACKWARD.cases)
    return {i for i, case in cases if case.fill.get("dy") is odd_values}


def _bytes_kept(elements: int = 64 * 1024) -> tuple[int, int]:
    return elements * 2, elements // 8


def _gates_that_nan_shuts() -> set[int]:
    """Elements of word 0 of row 0, in the last case, whose bit x > 0 gets wrong."""
    x = make_inputs(RELU_PACK, RELU_PACK.cases[5])["x"][0, :32]
    return {n for n, value in enumerate(x.tolist()) if (value > 0) == (value <= 0)}


def _byte_of_two_rows(columns: int = 77, byte: int = 9) -> int:
    """Of one long row of bits, where row 0 is all ones and row 1 all zeros."""
    return sum(1 << b for b in range(8) if 8 * byte + b < columns)


QUESTIONS = (
    Question(
        id="ch11-q1",
        asks="x is NaN. What bits are `x > 0` and `~(x <= 0)`? Such as (1, 0).",
        right=_of_nan,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two bits, 0 or 1"),
            Nudge(
                lambda v, r: v[0] == v[1], "for numbers they agree; NaN is none, and both comparisons fail"
            ),
        ),
        nudge="first the comparison: what is any comparison with NaN? Then the `~`.",
    ),
    Question(
        id="ch11-q2",
        asks="N = 256. At which word does row 1 of the mask begin, for this kernel and in truth? "
        "(kernel, truth)",
        right=_begins,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (kernel, truth)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
            Nudge(lambda v, r: v[0] == r[0], "the first is right; a word has 32 bits"),
        ),
        nudge="the kernel goes by row * N; a row of the mask has a word for each 32 elements",
    ),
    Question(
        id="ch11-q3",
        asks="In which cases of puzzle 18 does a product go wrong? A set of numbers, counted from 0.",
        right=_where_a_product_fails,
        kind=set,
        nudges=(
            Nudge(lambda v, r: 3 in v, "in case 3 every bit is 1, and a factor of 1 changes nothing"),
            Nudge(lambda v, r: v < r, "right so far, and there is more"),
        ),
        nudge="look into the cases for what dy holds: 0 times which values is not 0?",
    ),
    Question(
        id="ch11-q4",
        asks="N = 28672. Which is the first row that has an offset row * N + n of 2^31 or more?",
        right=lambda: 2**31 // 28672,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r + 1,
                "close: that row has no other; but does the one before end below 2^31?",
            ),
            Nudge(lambda v, r: v == r // 2, "an int32 has 31 bits beside its sign"),
        ),
        nudge="a row has 28672 offsets, beginning at row * 28672; in which does 2^31 lie?",
    ),
    Question(
        id="ch11-q5",
        asks="x is bfloat16, [64, 1024]: how many bytes does autograd keep for torch.relu(x), and how many "
        "are one bit an element? A pair.",
        right=_bytes_kept,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers of bytes: (autograd, one bit an element)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
            Nudge(lambda v, r: v[0] == r[0] // 2, "so many elements; and how wide is each?"),
            Nudge(lambda v, r: v[0] == 2 * r[0], "x and y? One of them is enough: it tells the gates"),
            Nudge(lambda v, r: v[1] == 8 * r[1], "the second is in bits: ask for bytes"),
        ),
        nudge="count the elements; then two bytes for each, and an eighth of a byte for each",
    ),
    Question(
        id="ch11-q6",
        asks="The bit is `x > 0`. Which elements of row 0 have the wrong bit in word 0, in case 5? A set.",
        right=_gates_that_nan_shuts,
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v, "got and want are not the same word: some bit differs"),
            Nudge(lambda v, r: v and max(v) > 31, "word 0 has the elements 0 to 31"),
            Nudge(lambda v, r: v == {31 - n for n in r}, "the lowest bit is element 0: count from the right"),
            Nudge(lambda v, r: v < r, "right so far, and there is more"),
            Nudge(lambda v, r: v > r, "those, and some that are right: 0 and -0.0 are shut by both"),
        ),
        nudge="which values of x are neither above 0 nor at most 0? Look for them in x's first 32",
    ),
    Question(
        id="ch11-q7",
        asks="x is [100, 77], row 0 all 1 and row 1 all -1. As one long row, what number is byte 9 of the "
        "mask, counted from 0?",
        right=_byte_of_two_rows,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 255, "so is byte 8; but row 0 ends within this one"),
            Nudge(lambda v, r: v == 0, "so is byte 10; this one still has some of row 0"),
            Nudge(lambda v, r: v == 248, "as many ones; but the first element is the lowest bit"),
            Nudge(lambda v, r: v == 224, "those are row 1's; and the lowest bit is the first element's"),
            Nudge(lambda v, r: v == 5, "so many ones: which number do they make?"),
        ),
        nudge="byte 9 has the elements 72 to 79, the lowest bit first; row 0 ends with element 76",
    ),
)
