"""The predictions of chapter 08."""

import torch
import triton

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import GROUPED_WEIGHTS, QUANTIZED_MATMUL
from puzzles_lib.inputs import zeros
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.recorded import rows


def _shifted() -> int:
    return int((torch.tensor(9, dtype=torch.int32) << 28) >> 28)


def _with_one_offset_word() -> set[int]:
    """Return the cases with up to eight groups per row, or with offsets that are all 0."""
    return {
        number
        for number, case in enumerate(GROUPED_WEIGHTS.cases)
        if case.K // case.GROUP <= 8 or case.fill.get("offset") is zeros
    }


def _loads() -> int:
    """Return one load per code and per program that needs it."""
    case = QUANTIZED_MATMUL.cases[2]
    return case.M * case.K * triton.cdiv(case.N, case.BLOCK_N)


def _smallest_code() -> int:
    """Return the smallest number of four bits if the first one is a sign."""
    return -(2 ** (4 - 1))


def _products() -> int:
    """Return one multiplication per result of a tile."""
    return 16 * 16


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
        "Which cases pass if every offset row is taken to be one word long?",
        _with_one_offset_word,
        set,
        "One word has room for eight offsets. How many groups does a row have in each case?",
        (
            Nudge(
                lambda given, right: given == {0, 4},
                "They have up to eight groups. One more case passes for another reason: see its inputs.",
            ),
            Nudge(
                lambda given, right: given < right,
                "Correct so far, but more cases pass. Where is one word's room for eight offsets enough?",
            ),
            Nudge(
                lambda given, right: given > right,
                "At least one of them has rows of more than eight groups, and its offsets aren't all alike.",
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
        "Step to the last line that makes w. Its range is shown next to it.",
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
        "With how few multiplications by s can an iteration get the same results?",
        _products,
        int,
        "Write down one result as a sum over k. Where can its scale go, other than to each weight?",
        (
            Nudge(
                lambda given, right: given == 16,
                "There are 16 scales, but each of them belongs to a whole row of results.",
            ),
            Nudge(
                lambda given, right: given == 16 * 128,
                "That's one per weight, as in 12c. In the sum of one result, what doesn't depend on k?",
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
)
