"""The predictions of chapter 05."""

import math

import triton

from puzzles_lib.chapters.ch05_flash_attention.puzzles import SCALAR_FLASH_ATTENTION
from puzzles_lib.question import Nudge, Question

T, BLOCK_Q, BLOCK_K = 512, 128, 64


def _times() -> float:
    """Return the mean of 1 for queries and results, and of one per program for keys and values."""
    case = SCALAR_FLASH_ATTENTION.cases[1]
    return (2 + 2 * triton.cdiv(case.T, case.BLOCK_Q)) / 4


def _one_block() -> set[int]:
    return {i for i, case in enumerate(SCALAR_FLASH_ATTENTION.cases) if case.T <= case.BLOCK_K}


def _needed() -> int:
    return sum(triton.cdiv(start + BLOCK_Q, BLOCK_K) for start in range(0, T, BLOCK_Q))


def _third_block() -> float:
    """Return acc after the picture's two blocks and a third one with the score 5 and the value 10."""
    scores, values = (1.0, 3.0, 2.0, 4.0, 5.0), (10.0, 20.0, 30.0, 40.0, 10.0)
    return sum(math.exp(score - 5) * value for score, value in zip(scores, values, strict=True))


ONE_DIGIT = 0.1  # how far off a number with one digit after the point may be, if the rest was cut off


QUESTIONS = (
    Question(
        "ch05-q1",
        "The kernel moves how many times the minimum, with T = 128 and BLOCK_Q = 32?",
        _times,
        float,
        "How many times is each of q, k, v and z moved? The minimum is once each, so take the mean.",
        (
            Nudge(
                lambda given, right: given == 4,
                "That is how many times keys and values are loaded. Queries and results are moved once.",
            ),
            Nudge(
                lambda given, right: given == 1,
                "That would be the minimum. But there are four programs, and each walks all keys.",
            ),
            Nudge(
                lambda given, right: given == 4 * right,
                "That is the sum over the four tensors. The minimum for all four together is 4.",
            ),
        ),
    ),
    Question(
        "ch05-q2",
        "Which cases does the kernel without the factor get right? Answer with a set of numbers from 0 to 5.",
        _one_block,
        set,
        "The factor rescales what earlier blocks have summed. When are there no earlier blocks?",
        (
            Nudge(
                lambda given, right: not given,
                "The kernel gets one case right. Compare T with BLOCK_K in the table.",
            ),
            Nudge(lambda given, right: given == {1}, "You have the right row. We count the cases from 0."),
            Nudge(
                lambda given, right: given > right,
                "That is too many. In which cases is there only one block of keys?",
            ),
        ),
    ),
    Question(
        "ch05-q3",
        "How many of the 32 tiles does a causal kernel need?",
        _needed,
        int,
        "How far does the last query of each program see? Count its tiles, and add them up.",
        (
            Nudge(
                lambda given, right: given == 32,
                "Those are all tiles. Which of them are entirely in the future?",
            ),
            Nudge(
                lambda given, right: given == 16,
                "That is exactly half. But the tiles that the diagonal cuts are needed as well.",
            ),
            Nudge(
                lambda given, right: given == 8,
                "That is what the last program needs. Add up all four programs.",
            ),
        ),
    ),
    Question(
        "ch05-q4",
        "What is acc after a third block, with one key whose score is 5 and whose value is 10?",
        _third_block,
        float,
        "The maximum rises from 4 to 5. Multiply the old acc by the factor, then add p times the value.",
        same=lambda given, right: abs(given - right) < ONE_DIGIT,
        nudges=(
            Nudge(
                lambda given, right: abs(given - 61.92) < ONE_DIGIT,
                "That is the old acc plus 10. But the maximum rises to 5, so the old acc has to shrink.",
            ),
            Nudge(
                lambda given, right: abs(given - right + 10) < ONE_DIGIT,
                "That is what is left of the old acc. Now add the new key: its weight times its value.",
            ),
            Nudge(
                lambda given, right: abs(given - right + 9) < ONE_DIGIT,
                "You added the new weight, 1. That belongs to the denominator. What belongs to acc?",
            ),
            Nudge(
                lambda given, right: abs(given - (right - 10) - 3.679) < ONE_DIGIT,
                "You rescaled the new term, too. It is already relative to the new maximum.",
            ),
            Nudge(
                lambda given, right: given > 100,
                "Did you divide by the factor? The old terms have to shrink when the maximum rises.",
            ),
            Nudge(
                lambda given, right: abs(given - 18.52) < ONE_DIGIT,
                "That is the final result, acc / denominator. What is acc itself?",
            ),
        ),
    ),
)
