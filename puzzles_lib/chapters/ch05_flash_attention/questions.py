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
    """Return acc after the picture's two blocks and a third one with the score 6 and the value 10."""
    scores, values = (1.0, 3.0, 4.0, 1.0, 6.0), (10.0, 20.0, 30.0, 40.0, 10.0)
    return sum(math.exp(score - 6) * value for score, value in zip(scores, values, strict=True))


def _shared_by_two() -> float:
    """Return the weight of a word that is visible with one more if the word that is looked for isn't."""
    return 1 / 2


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
            Nudge(
                lambda given, right: given == 8,
                "That is how often k and v are loaded, taken together. Add q and z, then compare with 4.",
            ),
            Nudge(
                lambda given, right: given == 1.5,
                "That would be two programs. How many programs do 128 tokens need?",
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
            Nudge(
                lambda given, right: given == 12,
                "Those are the tiles that are seen in full. The tiles that the diagonal cuts count as well.",
            ),
            Nudge(
                lambda given, right: given == 10,
                "That would be right for blocks of 128 keys. A block has 64.",
            ),
            Nudge(
                lambda given, right: given == right + 4,
                "That is one too many per program: no query sees the keys after its own.",
            ),
        ),
        why="With longer texts, half of the work is saved: 32,768 tokens need only 50.2% of their tiles.",
    ),
    Question(
        "ch05-q4",
        "What is acc after a third block, with one key whose score is 6 and whose value is 10?",
        _third_block,
        float,
        "As in block 2: what is kept is the old acc times the factor, and the factor is exp(4 - 6).",
        same=lambda given, right: abs(given - right) < ONE_DIGIT,
        nudges=(
            Nudge(
                lambda given, right: abs(given - 49.85) < ONE_DIGIT,
                "That is the old acc plus 10. But the maximum rises to 6, so the old acc has to shrink.",
            ),
            Nudge(
                lambda given, right: abs(given - 39.85) < ONE_DIGIT,
                "That is the old acc, after two blocks. By how much does it shrink, and what is added?",
            ),
            Nudge(
                lambda given, right: abs(given - right + 10) < ONE_DIGIT,
                "That is what is left of the old acc. Now add the new key: its p times its value.",
            ),
            Nudge(
                lambda given, right: abs(given - right + 9) < ONE_DIGIT,
                "You added the new p, 1. That belongs to the denominator. What belongs to acc?",
            ),
            Nudge(
                lambda given, right: abs(given - (right - 10) - 1.353) < ONE_DIGIT,
                "You rescaled the new term, too. It is already relative to the new maximum.",
            ),
            Nudge(
                lambda given, right: abs(given - 24.66) < ONE_DIGIT,
                "You took the factor exp(-1) of block 2. By how much does the maximum rise now?",
            ),
            Nudge(
                lambda given, right: abs(given - 113.7) < ONE_DIGIT,
                "That is relative to the old maximum, 4. The key raises it to 6.",
            ),
            Nudge(
                lambda given, right: given > 100,
                "Did you divide by the factor? The old terms have to shrink when the maximum rises.",
            ),
            Nudge(
                lambda given, right: abs(given - 12.84) < ONE_DIGIT,
                "That is the final result, acc / denominator. What is acc itself?",
            ),
            Nudge(
                lambda given, right: abs(given - 11.98) < ONE_DIGIT,
                "Your factor is exp(3 - 6). The old acc is relative to the maximum of both blocks, 4.",
            ),
            Nudge(
                lambda given, right: given == 6,
                "That is the score. It decides the factor, and the value, 10, is what acc sums.",
            ),
            Nudge(
                lambda given, right: given < 0,
                "acc doesn't become negative here: what is kept of it, plus p times a value of 10.",
            ),
            Nudge(
                lambda given, right: given == 10,
                "That is what the new key adds. What is left of the old acc?",
            ),
            Nudge(
                lambda given, right: abs(given - 27.15) < ONE_DIGIT,
                "That is z after two blocks, acc / denominator. What does a third block make of acc?",
            ),
            Nudge(
                lambda given, right: abs(given - 13.67) < ONE_DIGIT,
                "You started from z, 27.15. The loop keeps acc, which isn't divided yet.",
            ),
            Nudge(
                lambda given, right: abs(given - right) < 0.5,
                "That is nearly it, but not to one digit after the point. The factor is exp(-2) = 0.1353.",
            ),
        ),
    ),
    Question(
        "ch05-q7",
        "How much of its weight does cat give to the, if cat looks for tired, which comes later?",
        _shared_by_two,
        float,
        "The query of cat fits none of the keys that cat may see. So which scores do they have?",
        (
            Nudge(
                lambda given, right: given == 0,
                "The weights of a row add up to 1, and cat sees only two words: the and cat.",
            ),
            Nudge(
                lambda given, right: given == 100 * right,
                "That is the answer in percent. Give it as a number from 0 to 1.",
            ),
            Nudge(
                lambda given, right: given == 1,
                "cat sees itself as well. Is the score of one of the two words larger?",
            ),
            Nudge(
                lambda given, right: abs(given - 1 / 8) < 0.01,
                "That would be eight equal weights. But the mask hides the words after cat.",
            ),
        ),
    ),
    Question(
        "ch05-q9",
        "Query 0, keys 2 and 3, all hidden: what is each p, and what is the factor? Answer with (p, factor).",
        lambda: (math.exp(-math.inf), math.exp(0)),
        tuple,
        "The maximum is the larger one of the old maximum and -inf. So what is new_max, and old minus new?",
        (
            Nudge(
                lambda given, right: len(given) != 2, "The answer has two numbers: each p, and the factor."
            ),
            Nudge(
                lambda given, right: any(each != each for each in given),
                "NaN would come from -inf - (-inf). But row_max is 2, so is new_max -inf?",
            ),
            Nudge(
                lambda given, right: given == right[::-1],
                "You have both numbers, but swapped: p comes first.",
            ),
            Nudge(
                lambda given, right: given == (1, 1),
                "The factor is right. p is exp(score - new_max), so exp(-inf - 2).",
            ),
            Nudge(
                lambda given, right: given[0] == 0,
                "p is right. For the factor: does a hidden score raise the maximum?",
            ),
        ),
        why="The tile adds nothing, and keeps what is there.",
    ),
)
