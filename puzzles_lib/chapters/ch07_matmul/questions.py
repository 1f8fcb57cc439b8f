"""The predictions of chapter 07."""

import torch
import triton

from puzzles_lib.chapters.ch07_matmul.pictures import (
    BUDGET,
    MOST_BYTES,
    SHAPE,
    small_product,
    tile_bytes,
    traffic,
)
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case
from puzzles_lib.question import Nudge, Question

LAUNCH = Case(B=8, M=1000, N=500, K=4096, BLOCK_M=64, BLOCK_N=128, BLOCK_K=32)


def _grid() -> tuple[int, ...]:
    return tuple(BATCHED_MATMUL.grid(LAUNCH))


def _reads() -> tuple[int, int]:
    case = BATCHED_MATMUL.cases[2]
    return triton.cdiv(case.N, case.BLOCK_N), triton.cdiv(case.M, case.BLOCK_M)


def _one_step() -> int:
    return sum(case.K <= case.BLOCK_K for case in BATCHED_MATMUL.cases)


def _after_two_iterations() -> tuple[int, ...]:
    x, y = small_product()
    return tuple((x[0, :4] @ y[:4]).tolist())


def _products_a_load() -> int:
    return 64 * 64 * 32 // (64 * 32 + 32 * 64)


def _best_tile() -> tuple[int, int]:
    """Return the tile that moves the fewest bytes among those whose accumulator fits."""
    sides = [2**power for power in range(4, 12)]
    fitting = [(m, n) for m in sides for n in sides if tile_bytes(m, n) <= BUDGET]
    return min(fitting, key=lambda tile: traffic(*tile))


def _is_tile(given: tuple) -> bool:
    powers = {2**power for power in range(4, 13)}
    return len(given) == 2 and all(isinstance(side, int) and side in powers for side in given)


def _within_both(given: tuple, right: tuple) -> bool:
    return _is_tile(given) and tile_bytes(*given) <= BUDGET and traffic(*given) < MOST_BYTES


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
        "Which grid launches 8 products with M = 1000 and N = 500, in tiles of 64 x 128?",
        _grid,
        tuple,
        "Axis 0 counts rows of tiles, axis 1 columns of tiles, axis 2 matrices. Round up.",
        (
            Nudge(
                lambda given, right: len(given) != 3,
                "The kernel asks for tl.program_id 0, 1 and 2, so the grid has three axes.",
            ),
            Nudge(
                lambda given, right: sorted(given) == sorted(right),
                "You have the three numbers, in the wrong order. Axis 0 counts rows of tiles: M is 1000.",
            ),
            Nudge(
                lambda given, right: given[2] == LAUNCH.K // LAUNCH.BLOCK_K,
                "K is walked in a loop inside the program. The third axis counts the matrices.",
            ),
        ),
    ),
    Question(
        "ch07-q2",
        "How many programs load each number of x, and how many each number of y? Answer with (x, y).",
        _reads,
        tuple,
        "Which tiles of z need the first row of x? Those in one row of tiles. How many are in a row?",
        (
            Nudge(lambda given, right: len(given) != 2, "Answer with two numbers: (x, y)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "You have both numbers, in the wrong order. Tiles in one row need the same rows of what?",
            ),
            Nudge(
                lambda given, right: given == (1, 1),
                "Once would be enough, but programs can't hand numbers to each other.",
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
                "One tl.dot adds up in float32, and tl.store rounds the result to float16 anyway.",
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
        "How many products come to each load of an iteration, with 64 x 64 tiles and BLOCK_K = 32?",
        _products_a_load,
        int,
        "An iteration loads BLOCK_M · BLOCK_K numbers of x, and as many of y. How many products are made?",
        (
            Nudge(
                lambda given, right: given == 64,
                "Each number takes part in that many products. But a product needs two numbers, x and y.",
            ),
            Nudge(
                lambda given, right: given == 64 * 64 * 32,
                "That is how many products an iteration makes. Divide by the numbers it loads.",
            ),
        ),
    ),
    Question(
        "ch07-q7",
        "Which tile, (BLOCK_M, BLOCK_N), stays under 1.3x and within 128 KiB?",
        _best_tile,
        tuple,
        "It fits, but it reads too much. Which input is larger? Find a tile that reads that one once.",
        (
            Nudge(
                lambda given, right: not _is_tile(given),
                "Answer with two powers of two, each 16 or more: (BLOCK_M, BLOCK_N).",
            ),
            Nudge(
                lambda given, right: tile_bytes(*given) > BUDGET,
                "This accumulator needs more than 128 KiB: 4 bytes times BLOCK_M times BLOCK_N.",
            ),
            Nudge(
                lambda given, right: given[1] >= SHAPE.N,
                "One column of tiles, so x is read once: good. Now read y less often, within the budget.",
            ),
        ),
        same=_within_both,
    ),
)
