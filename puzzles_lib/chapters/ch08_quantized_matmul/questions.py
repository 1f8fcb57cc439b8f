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
    """A word for each code, in each program of a row of tiles."""
    case = QUANTIZED_MATMUL.cases[2]
    return case.M * case.K * triton.cdiv(case.N, case.BLOCK_N)


def _smallest_code() -> int:
    """Of four bits whose first one is taken for a sign."""
    return -(2 ** (4 - 1))


def _scales() -> tuple[int, int]:
    rows, group = 16, 128
    return rows * group, rows


CHANGES = ("tiles", "words", "groups", "dots")  # in the order of the recorded steps


def _best_change() -> str:
    times = [row["us"] for row in rows("quantized-matmul") if row["case"].endswith("N = 1")]
    factors = [times[i] / times[i + 1] for i in range(len(CHANGES))]
    return CHANGES[factors.index(max(factors))]


QUESTIONS = (
    Question(
        "ch08-q1",
        "What is word >> 28 where the word's top field holds 9?",
        _shifted,
        int,
        "9 is 1001 in bits. What does >> put into the 28 places on its left?",
        (
            Nudge(
                lambda given, right: given == 9,
                "So it would be for an unsigned word. This one is negative: bit 31 is set.",
            ),
            Nudge(
                lambda given, right: given == -9,
                "The sign is right. Four bits and copies of the sign make 9 - 16, not minus 9.",
            ),
        ),
    ),
    Question(
        "ch08-q2",
        "Where do the code and the offset of k = 100 lie? (weight word, field, offset word, field)",
        _place,
        tuple,
        "Divide 100 by 8 for the code. Divide 100 by 12 for the group, and that by 8 for its offset.",
        (
            Nudge(lambda given, right: len(given) != 4, "Four numbers."),
            Nudge(
                lambda given, right: given[1] > 7 or given[3] > 7,
                "A word has eight fields, 0 to 7. What comes after field 7 lies in the next word.",
            ),
            Nudge(
                lambda given, right: given[:2] == right[:2],
                "The code is right. For the offset it is the group that counts, not k.",
            ),
            Nudge(
                lambda given, right: given[2:] == right[2:],
                "The offset is right. The code lies where k says: word and field of 8 to a word.",
            ),
        ),
    ),
    Question(
        "ch08-q3",
        "How often are weight words loaded, over all lanes and programs?",
        _loads,
        int,
        "Each of the 45 x 104 codes has a lane that loads the word it lies in. In how many programs?",
        (
            Nudge(
                lambda given, right: given == 585, "That is how many words there are. Eight lanes want each."
            ),
            Nudge(
                lambda given, right: 2 * given == right,
                "That is one program for each row of tiles. But N takes two blocks.",
            ),
            Nudge(
                lambda given, right: 8 * given == right,
                "Two programs want each word, that is right; and in each, eight lanes do.",
            ),
        ),
    ),
    Question(
        "ch08-q4",
        "What is the smallest value of w in the kernel that keeps the sign?",
        _smallest_code,
        int,
        "Step to the line that makes w: its range stands beside it.",
        (
            Nudge(
                lambda given, right: given == 0,
                "That is the smallest code. Here the top bit of a field is a sign.",
            ),
            Nudge(lambda given, right: given == -15, "Four bits with a sign reach half as far."),
        ),
    ),
    Question(
        "ch08-q5",
        "How many lanes ask for a scale in a tile of 16 x 128, and how many scales are there? (two numbers)",
        _scales,
        tuple,
        "A lane for each weight of the tile. And GROUP = 128 columns of a row share one scale.",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers."),
            Nudge(lambda given, right: given == right[::-1], "Both are right, the other way round."),
            Nudge(
                lambda given, right: given[0] == right[0],
                "The lanes are right. How many groups does each of the 16 rows of the tile lie in?",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "The scales are right. In 12c s is a tile, [BLOCK_M, BLOCK_K]: each of its lanes loads.",
            ),
        ),
    ),
    Question(
        "ch08-q6",
        "Which change makes the kernel faster by the largest factor?",
        _best_change,
        str,
        "Which of them replaces not a few instructions, but nearly all of the arithmetic?",
        (
            Nudge(lambda given, right: given not in CHANGES, "One of the four words in quotes above."),
            Nudge(
                lambda given, right: given == "groups",
                "That is a large one, the second. Think of what multiplies: 16 columns a tile, one in use.",
            ),
            Nudge(
                lambda given, right: given == "words",
                "The cache answers eight lanes at once already: it is the smallest of the four.",
            ),
        ),
    ),
)
