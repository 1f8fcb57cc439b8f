"""The predictions of chapter 07."""

import itertools

import torch

from puzzles_lib.chapters.ch07_matmul.pictures import (
    MOST_BYTES,
    small_product,
    tile_bytes,
    traffic,
    waiting_bytes,
)
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL, BUDGET, SHAPE
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question


def _with_the_batch_stride_of_z() -> set[int]:
    """Return the cases in which M * N is the batch stride of x as well, or there is no other matrix."""
    return {number for number, case in enumerate(BATCHED_MATMUL.cases) if case.B == 1 or case.N == case.K}


def _one_step() -> int:
    return sum(case.K <= case.BLOCK_K for case in BATCHED_MATMUL.cases)


def _after_two_iterations() -> tuple[int, ...]:
    x, y = small_product()
    return tuple((x[0, :4] @ y[:4]).tolist())


def _products_a_load() -> int:
    return 64 * 64 * 32 // (64 * 32 + 32 * 64)


def _best_tile() -> tuple[int, int, int]:
    """Return the blocks within the budgets that move the fewest bytes in the fewest iterations."""
    sides = [2**power for power in range(4, 12)]
    fitting = [blocks for blocks in itertools.product(sides, repeat=3) if _fits(*blocks)]
    return min(fitting, key=lambda blocks: (traffic(*blocks[:2]), -blocks[2]))


def _fits(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int) -> bool:
    return tile_bytes(BLOCK_M, BLOCK_N) <= BUDGET and waiting_bytes(BLOCK_M, BLOCK_N, BLOCK_K) <= BUDGET


def _are_blocks(given: tuple) -> bool:
    powers = {2**power for power in range(4, 13)}
    return len(given) == 3 and all(isinstance(side, int) and side in powers for side in given)


def _within_all(given: tuple, right: tuple) -> bool:
    """Return whether the blocks fit, move few bytes, and no longer BLOCK_K fits."""
    return _reads_little(given) and not _fits(given[0], given[1], 2 * given[2])


def _reads_little(given: tuple) -> bool:
    return _are_blocks(given) and _fits(*given) and traffic(*given[:2]) < MOST_BYTES


def _last_iteration_that_counts() -> int:
    """Return the last iteration of case 4 that changes element [0, 0] of a float16 accumulator."""
    case = BATCHED_MATMUL.cases[4]
    tensors = make_inputs(BATCHED_MATMUL, case)
    products = tensors["x"][0, 0].float() * tensors["y"][0, :, 0].float()
    acc, last = torch.zeros((), dtype=torch.float16), 0
    for number, part in enumerate(products.split(case.BLOCK_K), start=1):
        before, acc = acc, acc + part.sum().half()
        last = number if acc != before else last
    return last


QUESTIONS = (
    Question(
        "ch07-q1",
        "Which cases pass if the matrices of x are taken to be M · N elements apart?",
        _with_the_batch_stride_of_z,
        set,
        "In which cases is pid_b * M * N the same number as pid_b * M * K, for every pid_b there is?",
        (
            Nudge(
                lambda given, right: given == {0},
                "Case 0 has M, N and K alike. But in one more case the distance doesn't matter.",
            ),
            Nudge(
                lambda given, right: given > right,
                "At least one of them has several matrices, and N isn't K there. Where does matrix 1 begin?",
            ),
        ),
    ),
    Question(
        "ch07-q3",
        "In how many of the five cases is a float16 accumulator correct?",
        _one_step,
        int,
        "If one tl.dot completes the sum, it is rounded only once. In which cases is K at most BLOCK_K?",
        (
            Nudge(
                lambda given, right: given == len(BATCHED_MATMUL.cases),
                "With several iterations, the sum so far is rounded each time. The checker notices that.",
            ),
            Nudge(
                lambda given, right: given == 0,
                "A single tl.dot is rounded to float16 once, and tl.store would do that anyway.",
            ),
        ),
    ),
    Question(
        "ch07-q4",
        "Which iteration, counting from 1, is the last one that changes acc[0, 0]?",
        _last_iteration_that_counts,
        int,
        "Step through the iterations with acc[0, 0] in view. How far apart are float16 numbers there?",
        (
            Nudge(
                lambda given, right: given == 16,
                "That iteration adds something, too. But is acc[0, 0] a different number afterwards?",
            ),
            Nudge(
                lambda given, right: given == 0,
                "acc[0, 0] starts as 0 and does change. We count the iterations from 1.",
            ),
        ),
    ),
    Question(
        "ch07-q5",
        "K = 6 in blocks of 2: what is in the first row of acc after the second iteration?",
        _after_two_iterations,
        tuple,
        "Iteration 2 adds x[0, 2] times row 2 of y, and x[0, 3] times row 3, to what the picture shows.",
        (
            Nudge(
                lambda given, right: len(given) != 3, "Answer with three numbers, one for each column of y."
            ),
            Nudge(
                lambda given, right: given == (7, 12, 9),
                "That is what the second iteration adds. What was there before?",
            ),
            Nudge(
                lambda given, right: given == (3, 0, 1),
                "That is what the first iteration left. Now add the second one.",
            ),
            Nudge(
                lambda given, right: given == tuple((small_product()[0][0] @ small_product()[1]).tolist()),
                "That is the whole product, after three iterations. We are asking for two.",
            ),
        ),
    ),
    Question(
        "ch07-q6",
        "How many products are there per load in an iteration, with 64 x 64 tiles and BLOCK_K = 32?",
        _products_a_load,
        int,
        "An iteration loads BLOCK_M · BLOCK_K numbers of x, and as many of y. How many products are made?",
        (
            Nudge(
                lambda given, right: given == 64,
                "Each number takes part in that many products. But a product needs two numbers, x and y.",
            ),
            Nudge(
                lambda given, right: 2 * given == right,
                "That's half of it. How many products are made, and how many numbers are loaded in all?",
            ),
            Nudge(
                lambda given, right: given == 64 * 64 * 32,
                "That is how many products an iteration makes. Divide by the numbers it loads.",
            ),
        ),
    ),
    Question(
        "ch07-q7",
        "Which blocks stay under 1.3x and within both budgets, in the fewest iterations?",
        _best_tile,
        tuple,
        "It fits, but it reads too much. Which input is larger? Find a tile that reads that one once.",
        (
            Nudge(
                lambda given, right: not _are_blocks(given),
                "Answer with three powers of two, each 16 or more: (BLOCK_M, BLOCK_N, BLOCK_K).",
            ),
            Nudge(
                lambda given, right: tile_bytes(*given[:2]) > BUDGET,
                "This accumulator needs more than 128 KiB: 4 bytes times BLOCK_M times BLOCK_N.",
            ),
            Nudge(
                lambda given, right: not _fits(*given),
                "The accumulator fits. But three iterations' tiles of x and y take more than 128 KiB. Count "
                "them: which block makes both smaller?",
            ),
            Nudge(
                lambda given, right: _reads_little(given),
                "It fits, and it reads little. But there's shared memory left for fewer, longer iterations.",
            ),
            Nudge(
                lambda given, right: given[1] >= SHAPE.N,
                "One column of tiles, so x is read once: good. Now read y less often, within the budget.",
            ),
        ),
        same=_within_all,
    ),
)
