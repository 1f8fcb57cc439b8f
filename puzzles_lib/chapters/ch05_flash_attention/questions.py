"""The predictions of chapter 05."""

import triton

from puzzles_lib.chapters.ch05_flash_attention.puzzles import SCALAR_FLASH_ATTENTION
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question

T, BLOCK_Q, BLOCK_K = 4096, 128, 64


def _times() -> float:
    """Queries and results once, keys and values once for each program."""
    case = SCALAR_FLASH_ATTENTION.cases[1]
    return (2 + 2 * triton.cdiv(case.T, case.BLOCK_Q)) / 4


def _one_block() -> set[int]:
    return {i for i, case in enumerate(SCALAR_FLASH_ATTENTION.cases) if case.T <= case.BLOCK_K}


def _needed() -> int:
    return sum(triton.cdiv(start + BLOCK_Q, BLOCK_K) for start in range(0, T, BLOCK_Q))


def _lanes_whose_maximum_moves() -> int:
    """In the second turn of the first program of case 2."""
    case = SCALAR_FLASH_ATTENTION.cases[2]
    tensors = make_inputs(SCALAR_FLASH_ATTENTION, case)
    scores = tensors["q"][: case.BLOCK_Q, None] * tensors["k"][None, : 2 * case.BLOCK_K]
    first, second = scores.split(case.BLOCK_K, dim=1)
    return int((second.amax(1) > first.amax(1)).sum())


QUESTIONS = (
    Question(
        "ch05-q1",
        "How many times the least possible does a right kernel move in case 1?",
        _times,
        float,
        "Say for each of q, k, v and z how often it is moved. The least possible is once for each.",
        (
            Nudge(
                lambda given, right: given == 4,
                "So often are keys and values loaded. Queries and results are not; take the mean.",
            ),
            Nudge(lambda given, right: given == 1, "There are four programs, and each walks all keys."),
            Nudge(
                lambda given, right: given == 4 * right,
                "That is the sum over the four tensors. The least possible is 4.",
            ),
        ),
    ),
    Question(
        "ch05-q2",
        "Which cases does the kernel without a factor get right? Numbers, counted from 0.",
        _one_block,
        set,
        "The factor brings what earlier blocks left up to date. Where are there no earlier blocks?",
        (
            Nudge(
                lambda given, right: not given,
                "There is one. Compare T with BLOCK_K in the table.",
            ),
            Nudge(lambda given, right: given == {1}, "Cases count from 0."),
            Nudge(lambda given, right: given > right, "That is too many: which have one block of keys only?"),
        ),
    ),
    Question(
        "ch05-q3",
        "How many of the 2048 tiles are needed under a causal mask?",
        _needed,
        int,
        "The first program needs two tiles, the next one two more than that, and so on to the last.",
        (
            Nudge(lambda given, right: given == 2048, "Those are all. What lies above the diagonal?"),
            Nudge(
                lambda given, right: given == 32,
                "That is how many programs there are, or how many tiles the middle one needs. Add up all.",
            ),
            Nudge(lambda given, right: given < right, "More: a tile that the diagonal cuts is needed, too."),
        ),
        lambda given, right: abs(given - right) <= 0.05 * right,
    ),
    Question(
        "ch05-q4",
        "In how many of the 128 lanes does row_max change in turn 2?",
        _lanes_whose_maximum_moves,
        int,
        "Step to the line that updates row_max in turn 2: the player says how many lanes it changed.",
        (
            Nudge(
                lambda given, right: given == SCALAR_FLASH_ATTENTION.cases[2].BLOCK_Q,
                "So many change in turn 1, where the maximum starts from no score at all. In turn 2?",
            ),
            Nudge(
                lambda given, right: given == SCALAR_FLASH_ATTENTION.cases[2].BLOCK_Q - right,
                "In so many it stays as it was.",
            ),
        ),
    ),
)
