"""The predictions of chapter 08."""

import torch
import triton

from puzzles_lib.bench.recorded import rows
from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import QUANTIZED_MATMUL
from puzzles_lib.question import Nudge, Question


def _shifted() -> int:
    return int((torch.tensor(9, dtype=torch.int32) << 28) >> 28)


def _place() -> tuple[int, int, int, int]:
    k, group = 100, 12
    return *divmod(k, 8), *divmod(k // group, 8)


def _loads() -> int:
    """Return one load per code and per program that needs it."""
    case = QUANTIZED_MATMUL.cases[2]
    return case.M * case.K * triton.cdiv(case.N, case.BLOCK_N)


def _smallest_code() -> int:
    """Return the smallest number of four bits if the first one is a sign."""
    return -(2 ** (4 - 1))


def _scales() -> tuple[int, int]:
    rows, group = 16, 128
    return rows * group, rows


def _grid() -> tuple[int, int]:
    return triton.cdiv(4096, 16), triton.cdiv(1, 16)


CHANGES = ("tiles", "words", "groups", "dots")  # in the order of the recorded steps


def _best_change() -> str:
    times = [row["us"] for row in rows("quantized-matmul") if row["case"].endswith("N = 1")]
    factors = [times[i] / times[i + 1] for i in range(len(CHANGES))]
    return CHANGES[factors.index(max(factors))]


QUESTIONS = (
    Question(
        "ch08-q1",
        "The top field of a word is 9. What is word >> 28?",
        _shifted,
        int,
        "9 is 1001 in binary. What does >> put into the 28 places on the left of it?",
        (
            Nudge(
                lambda given, right: given == 9,
                "9 is what you'd get from an unsigned word. This word is negative, because bit 31 is set.",
            ),
            Nudge(
                lambda given, right: given == -9,
                "The sign is correct. But with copies of the sign in front, 1001 means -8 + 1, not -9.",
            ),
            Nudge(
                lambda given, right: given == -right,
                "That has the correct size. But bit 31 of the word is set, so the result is negative.",
            ),
            Nudge(
                lambda given, right: given == -1,
                "-1 is 32 ones. The lowest four bits are those of the field, 1001, and two of them are 0.",
            ),
        ),
    ),
    Question(
        "ch08-q2",
        "GROUP = 12. Where are the code and the offset of k = 100? (weight word, field, offset word, field)",
        _place,
        tuple,
        "Divide 100 by 8 to find the code. Divide 100 by 12 to find the group, and the group by 8 to find "
        "its offset.",
        (
            Nudge(
                lambda given, right: len(given) != 4,
                "Please give four numbers: (weight word, field, offset word, field).",
            ),
            Nudge(
                lambda given, right: given[1] > 7 or given[3] > 7,
                "A word has eight fields, 0 to 7. After field 7 comes field 0 of the next word.",
            ),
            Nudge(
                lambda given, right: given[:2] == right[:2],
                "The place of the code is correct. To find the offset, start from the group, not k.",
            ),
            Nudge(
                lambda given, right: given[2:] == right[2:],
                "The place of the offset is correct. The code depends on k alone, with 8 codes per word.",
            ),
        ),
    ),
    Question(
        "ch08-q3",
        "Over all lanes and programs, how many loads of a weight word are there?",
        _loads,
        int,
        "Each of the 45 x 104 codes has a lane that loads its word. In how many programs does that happen?",
        (
            Nudge(
                lambda given, right: given == 585,
                "585 is how many words there are. How many lanes load each of them?",
            ),
            Nudge(
                lambda given, right: 2 * given == right,
                "You counted one program per row of tiles. But N = 50 is cut into two blocks.",
            ),
            Nudge(
                lambda given, right: 8 * given == right,
                "It's true that two programs need each word. In each of them, how many lanes load it?",
            ),
            Nudge(
                lambda given, right: given == 2 * 48 * 128,
                "That counts all lanes. Those past row 45 or column 104 are masked off, so they don't load.",
            ),
        ),
    ),
    Question(
        "ch08-q4",
        "What is the smallest value of w in the kernel that keeps the sign?",
        _smallest_code,
        int,
        "Step to the line that makes w. Its range is shown next to it.",
        (
            Nudge(
                lambda given, right: given == 0,
                "0 is the smallest code in a correct kernel. Here the top bit of a field is a sign.",
            ),
            Nudge(
                lambda given, right: given == -15,
                "That would need five bits. With a sign, four bits reach only half as far.",
            ),
        ),
    ),
    Question(
        "ch08-q5",
        "In a tile of 16 x 128, how many lanes load a scale, and how many different scales are there? "
        "(lanes, scales)",
        _scales,
        tuple,
        "Every weight of the tile has a lane. And GROUP = 128 columns of a row share one scale.",
        (
            Nudge(lambda given, right: len(given) != 2, "Please give two numbers: (lanes, scales)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "Both numbers are correct, but swap them: lanes first, then scales.",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The number of lanes is correct. In how many groups is each of the 16 rows of the tile?",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The number of scales is correct. In 12c, s is a tile, [BLOCK_M, BLOCK_K], and each of its "
                "lanes loads.",
            ),
        ),
    ),
    Question(
        "ch08-q6",
        "Which change gives the largest speedup?",
        _best_change,
        str,
        "Which change affects nearly all of the arithmetic, and not just a few instructions?",
        (
            Nudge(
                lambda given, right: given not in CHANGES,
                "The answer is one of the four words in quotes above.",
            ),
            Nudge(
                lambda given, right: given == "groups",
                "That's the second largest. A tile has 16 columns, and one token fills one. What computes "
                "all those products?",
            ),
            Nudge(
                lambda given, right: given == "words",
                "The GPU answers eight lanes with one read already, so this is the smallest of the four.",
            ),
        ),
    ),
    Question(
        "ch08-q7",
        "M = 4096, N = 1, and tiles of 16 x 16: what is the grid? (programs along M, programs along N)",
        _grid,
        tuple,
        "Along each axis, divide the size by the block and round up: triton.cdiv.",
        (
            Nudge(lambda given, right: len(given) != 2, "The kernel uses two program ids: give two numbers."),
            Nudge(lambda given, right: given == right[::-1], "Swap them: axis 0 counts the blocks of rows."),
            Nudge(
                lambda given, right: given == (4096, 1),
                "That's one program per result. Each program computes a whole tile.",
            ),
            Nudge(
                lambda given, right: given[1] == 0,
                "With 0 programs along N, nothing runs. Round up: one column still needs a program.",
            ),
            Nudge(
                lambda given, right: len(given) == 2 and given[0] == right[0],
                "The first number is correct. How many blocks of 16 columns does one column need?",
            ),
        ),
    ),
)
