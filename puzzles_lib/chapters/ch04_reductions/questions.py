"""The predictions of chapter 04."""

import math

import torch
import triton

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question

M, N, BLOCK_M, BLOCK_N = 5, 20, 4, 8


def _masked_off() -> int:
    return triton.cdiv(M, BLOCK_M) * BLOCK_M * triton.cdiv(N, BLOCK_N) * BLOCK_N - M * N


def _zero_padding() -> int:
    """What is stored in case 4 with zeros past the end of a row."""
    x = make_inputs(LONG_SOFTMAX, LONG_SOFTMAX.cases[4])["x"]
    (stored,) = {float(value) for value in (x - 0.0).exp().flatten()}  # 0 is the maximum
    return int(stored)


def _starts_with_a_hidden_block() -> int:
    hidden = []
    for number, case in enumerate(LONG_SOFTMAX.cases):
        block = make_inputs(LONG_SOFTMAX, case)["x"][:, : case.BLOCK_N]
        hidden += [number] if (block == -math.inf).all(dim=1).any() else []
    (number,) = hidden
    return number


def _counted_in_float16() -> int:
    total = torch.tensor(0.0, dtype=torch.float16)
    for _ in range(5000):
        total += 1
    return int(total)


def _last_turn() -> int:
    case = LONG_SUM.cases[2]
    return -(-case.N // case.BLOCK_N)


QUESTIONS = (
    Question(
        "ch04-q1",
        "How many lanes of the loads of x are masked off, in both programs together?",
        _masked_off,
        int,
        "Count all lanes: programs times turns of the loop times lanes of a tile. How many have an element?",
        (
            Nudge(
                lambda given, right: given == right + M * N,
                "That is all of them. Some have an element of x.",
            ),
            Nudge(lambda given, right: given == M * N, "So many have an element. And the others?"),
            Nudge(
                lambda given, right: given == M * (triton.cdiv(N, BLOCK_N) * BLOCK_N - N),
                "Those past column 20 in the rows that exist. And the rows that do not exist?",
            ),
        ),
    ),
    Question(
        "ch04-q2",
        "What does the kernel with zeros in the padding store in case 4?",
        _zero_padding,
        float,
        "What is the maximum of a row and its padding? Then what is the exponential of x minus that?",
        (
            Nudge(
                lambda given, right: given == 1,
                "That would be the exponential of the maximum itself. Is the maximum one of x?",
            ),
            Nudge(
                lambda given, right: math.isnan(given),
                "For NaN the denominator would have to vanish, too. But each lane of padding adds 1 to it.",
            ),
        ),
    ),
    Question(
        "ch04-q3",
        "In which case, counted from 0, does the kernel fail that starts from minus infinity?",
        _starts_with_a_hidden_block,
        int,
        "When is the new maximum still minus infinity after a whole block?",
        (
            Nudge(
                lambda given, right: given == right + 1,
                "Cases count from 0.",
            ),
            Nudge(
                lambda given, right: given == 4,
                "Those are far below 0, but they are numbers: after the first block the maximum is one, too.",
            ),
        ),
    ),
    Question(
        "ch04-q4",
        "After which turn of the loop, counted from 1, is acc no longer defined?",
        _last_turn,
        int,
        "A turn spoils acc when its load has lanes off. Which blocks of a row are full?",
        (
            Nudge(
                lambda given, right: given == right - 1,
                "Counted from 1? In that turn all lanes of these rows are on.",
            ),
        ),
    ),
    Question(
        "ch04-q5",
        "Which number does a sum in float16 reach, when 1 is added five thousand times?",
        _counted_in_float16,
        int,
        "Which is the first odd number with more than 11 binary digits? It is rounded to an even one.",
        (
            Nudge(lambda given, right: given == 5000, "In binary, 4999 has 13 digits."),
            Nudge(
                lambda given, right: given in (right - 1, right + 1),
                "Nearly. 2047 is eleven ones in binary. What is it plus 1, and that plus 1, rounded?",
            ),
        ),
    ),
)
