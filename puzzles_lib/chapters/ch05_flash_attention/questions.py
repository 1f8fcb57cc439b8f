"""The predictions of chapter 05."""

import triton

from puzzles_lib.chapters.ch05_flash_attention.puzzles import SCALAR_FLASH_ATTENTION
from puzzles_lib.inputs import make_inputs
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


def _lanes_whose_maximum_moves() -> int:
    """Return how many maxima change in the second iteration of case 2's first program."""
    case = SCALAR_FLASH_ATTENTION.cases[2]
    tensors = make_inputs(SCALAR_FLASH_ATTENTION, case)
    scores = tensors["q"][: case.BLOCK_Q, None] * tensors["k"][None, : 2 * case.BLOCK_K]
    first, second = scores.split(case.BLOCK_K, dim=1)
    return int((second.amax(1) > first.amax(1)).sum())


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
        "In how many of the 128 lanes does row_max change in iteration 2?",
        _lanes_whose_maximum_moves,
        int,
        "Step to the line row_max = new_max in iteration 2. The player shows how many lanes it changed.",
        (
            Nudge(
                lambda given, right: given == SCALAR_FLASH_ATTENTION.cases[2].BLOCK_Q,
                "All change in iteration 1, from the start value to a score. How many change in iteration 2?",
            ),
            Nudge(
                lambda given, right: given == SCALAR_FLASH_ATTENTION.cases[2].BLOCK_Q - right,
                "That is how many lanes keep their maximum. How many change it?",
            ),
        ),
    ),
)
