"""The predictions of chapter 07."""

import itertools

import torch
import triton

from puzzles_lib.chapters.ch07_matmul.pictures import (
    MOST_BYTES,
    SHAPE,
    reads,
    tile_bytes,
    traffic,
    waiting_bytes,
)
from puzzles_lib.chapters.ch07_matmul.puzzles import (
    BATCHED_MATMUL,
    MULTIPROCESSORS,
    REGISTERS,
    SHARED,
    TILE_SHAPES,
)
from puzzles_lib.question import Nudge, Question


def _with_the_batch_stride_of_z() -> set[int]:
    """Return the cases in which M * N is the batch stride of x as well, or there is no other matrix."""
    return {number for number, case in enumerate(BATCHED_MATMUL.cases) if case.B == 1 or case.N == case.K}


def _in_one_iteration() -> set[int]:
    return {number for number, case in enumerate(BATCHED_MATMUL.cases) if case.K <= case.BLOCK_K}


VALUES = {"0": 0.0, "1": 1.0, "inf": float("inf"), "nan": float("nan")}


def _harmless() -> set[str]:
    """Return the values of x, by their names, whose product with a 0 of y adds nothing."""
    return {name for name, value in VALUES.items() if value * 0.0 == 0.0}


BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K")


def _products_a_load(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int) -> float:
    return BLOCK_M * BLOCK_N * BLOCK_K / (BLOCK_M * BLOCK_K + BLOCK_K * BLOCK_N)


def _blocks_that_help() -> set[str]:
    """Return the blocks that make more products per load if they're doubled."""
    blocks = dict.fromkeys(BLOCKS, 64)
    now = _products_a_load(**blocks)
    return {name for name in BLOCKS if _products_a_load(**blocks | {name: 128}) > now}


def _reads() -> tuple[tuple[int, int], ...]:
    return tuple((triton.cdiv(c.N, c.BLOCK_N), triton.cdiv(c.M, c.BLOCK_M)) for c in TILE_SHAPES.cases)


def _are_pairs(given: tuple) -> bool:
    return all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in given)


def _column(given: tuple, number: int) -> list:
    return [pair[number] for pair in given]


def _by_whole_tiles() -> list[list]:
    """Return the last shape's pair by a division that isn't rounded up."""
    case = TILE_SHAPES.cases[-1]
    return [
        [case.N // case.BLOCK_N, case.M // case.BLOCK_M],
        [case.N / case.BLOCK_N, case.M / case.BLOCK_M],
    ]


def _best_tile() -> tuple[int, int, int]:
    """Return the blocks within the budgets that move the fewest bytes in the fewest iterations."""
    sides = [2**power for power in range(4, 12)]
    fitting = [blocks for blocks in itertools.product(sides, repeat=3) if _fits(*blocks)]
    return min(fitting, key=lambda blocks: (traffic(*blocks[:2]), -blocks[2]))


def _fits(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int) -> bool:
    return (
        tile_bytes(BLOCK_M, BLOCK_N) <= REGISTERS
        and waiting_bytes(BLOCK_M, BLOCK_N, BLOCK_K) <= SHARED
        and _programs(BLOCK_M, BLOCK_N) >= MULTIPROCESSORS
    )


def _programs(BLOCK_M: int, BLOCK_N: int) -> int:
    columns, rows = reads(BLOCK_M, BLOCK_N)
    return columns * rows


def _megabytes(BLOCK_M: int, BLOCK_N: int) -> tuple[float, float]:
    """Return how many MB the programs read of x and of y, 2 bytes per number."""
    x_reads, y_reads = reads(BLOCK_M, BLOCK_N)
    return 2 * x_reads * SHAPE.M * SHAPE.K / 1e6, 2 * y_reads * SHAPE.K * SHAPE.N / 1e6


def _are_blocks(given: tuple) -> bool:
    powers = {2**power for power in range(4, 13)}
    return len(given) == 3 and all(isinstance(side, int) and side in powers for side in given)


def _within_all(given: tuple, right: tuple) -> bool:
    """Return whether the blocks fit, move few bytes, and no longer BLOCK_K fits."""
    return _reads_little(given) and not _fits(given[0], given[1], 2 * given[2])


def _reads_little(given: tuple) -> bool:
    return _are_blocks(given) and _fits(*given) and traffic(*given[:2]) < MOST_BYTES


def _half_a_step() -> int:
    """Return half the distance from 6144 to the next float16: a sum rounds back to 6144 up to here."""
    start = torch.tensor(6144.0, dtype=torch.float16)
    return int((torch.nextafter(start, torch.tensor(torch.inf, dtype=torch.float16)) - start).item()) // 2


QUESTIONS = (
    Question(
        "ch07-q1",
        "Which cases pass if the matrices of x are taken to be M · N elements apart?",
        _with_the_batch_stride_of_z,
        set,
        "In which cases is pid_b * M * N the same number as pid_b * M * K, for every pid_b there is?",
        (
            Nudge(
                lambda given, right: given == {0, 4},
                "Those two have a single matrix. Does the distance matter in all of the others?",
            ),
            Nudge(
                lambda given, right: given == {3},
                "Case 3 has two matrices, and M * N is M * K. Where can no distance be wrong?",
            ),
            Nudge(
                lambda given, right: given < right,
                "More cases pass than that. What if there's only one matrix?",
            ),
            Nudge(
                lambda given, right: given > right,
                "At least one of them has several matrices, and N isn't K there. Where does matrix 1 begin?",
            ),
        ),
    ),
    Question(
        "ch07-q3",
        "In which of the five cases is a float16 accumulator still correct?",
        _in_one_iteration,
        set,
        "How often is the sum rounded in each case? Once is no more than tl.store would do.",
        (
            Nudge(
                lambda given, right: given == set(range(len(BATCHED_MATMUL.cases))),
                "With several iterations, the sum so far is rounded each time. The checker notices that.",
            ),
            Nudge(
                lambda given, right: not given,
                "A single tl.dot is rounded to float16 once, and tl.store would do that anyway.",
            ),
        ),
        why="It has a single iteration, and tl.store would round that sum anyway.",
    ),
    Question(
        "ch07-q4",
        "How large may an iteration's sum be at most, if acc[1, 0] stays 6144?",
        _half_a_step,
        float,
        "How far apart are float16 numbers between 4096 and 8192? Which of two does a sum become?",
        (
            Nudge(
                lambda given, right: given == 4,
                "4 is how far the next float16 is. But a sum becomes the nearest one. When is that 6148?",
            ),
            Nudge(
                lambda given, right: given == 1,
                "1 is correct from 2048 to 4096. From 4096 on, float16 numbers are twice as far apart.",
            ),
        ),
    ),
    Question(
        "ch07-q5",
        "Past K, y's lanes are 0. Which values in x's lanes do no harm?",
        _harmless,
        set,
        "Each of these lanes of x is multiplied by a 0 of y, and the product is added. What is it?",
        (
            Nudge(
                lambda given, right: {str(value) for value in given} == {"0"},
                "0 does no harm. But is it the only one? Multiply each of the four by 0.",
            ),
            Nudge(
                lambda given, right: bool(given & {"inf", "nan"}),
                "Try it in Python: float('inf') * 0.0, and float('nan') * 0.0.",
            ),
            Nudge(
                lambda given, right: not {str(value) for value in given} <= set(VALUES),
                'Answer with a set of the names in quotes, such as {"inf"}.',
            ),
        ),
        same=lambda given, right: {str(value) for value in given} == right,
    ),
    Question(
        "ch07-q6",
        "Which of the three blocks makes more products per load, if you double it?",
        _blocks_that_help,
        set,
        "Compare two tiles, such as 64 x 64 and 128 x 64: how many products, and how many loads, has each?",
        (
            Nudge(
                lambda given, right: not given <= {name.casefold() for name in BLOCKS},
                'Answer with a set of names in quotes, from "BLOCK_M", "BLOCK_N" and "BLOCK_K".',
            ),
            Nudge(
                lambda given, right: "block_k" in given,
                "A BLOCK_K twice as long makes twice as many products. How many more numbers does it load?",
            ),
            Nudge(
                lambda given, right: len(given) == 1,
                "Correct, but there's another one. What if you exchange rows and columns?",
            ),
        ),
    ),
    Question(
        "ch07-q7",
        "Which blocks move less than 3x the minimum within the three limits, in the fewest iterations?",
        _best_tile,
        tuple,
        "It's within the limits, but most of its bytes are x's. Which side of the tile decides how often "
        "x is read?",
        (
            Nudge(
                lambda given, right: not _are_blocks(given),
                "Answer with three powers of two, each 16 or more: (BLOCK_M, BLOCK_N, BLOCK_K).",
            ),
            Nudge(
                lambda given, right: _programs(*given[:2]) < MULTIPROCESSORS,
                "That makes fewer than 132 programs, so some multiprocessors have nothing to do. Count the "
                "tiles along M and along N.",
            ),
            Nudge(
                lambda given, right: tile_bytes(*given[:2]) > REGISTERS,
                "This accumulator needs more than 128 KiB: 4 bytes times BLOCK_M times BLOCK_N.",
            ),
            Nudge(
                lambda given, right: not _fits(*given),
                "There are enough programs, and the accumulator fits. But room for the tiles of three "
                "iterations is more than 227 KiB, and it's reserved even if there are fewer. Which block "
                "makes both tiles smaller?",
            ),
            Nudge(
                lambda given, right: _reads_little(given),
                "It fits, and it reads little. But there's shared memory left for fewer, longer iterations.",
            ),
            Nudge(
                lambda given, right: len(set(_megabytes(*given[:2]))) == 1,
                "It's within the limits. x is larger and y is read more often, so both cost the same here: "
                "{x:.1f} MB. Which limit is far away, and which side of the tile may grow?",
                lambda given: dict(zip("xy", _megabytes(*given[:2]), strict=True)),
            ),
            Nudge(
                lambda given, right: _megabytes(*given[:2])[0] < _megabytes(*given[:2])[1],
                "It's within the limits. But it reads {x:.1f} MB of x and {y:.1f} MB of y. Which side of the "
                "tile decides how often y is read?",
                lambda given: dict(zip("xy", _megabytes(*given[:2]), strict=True)),
            ),
        ),
        same=_within_all,
        why="With 128 columns, a sixth of the lanes along N is masked off, but x is read three times. Five "
        "tiles of 64 would fit exactly and read it five times. A tile of 256 x 128 reads y half as often, "
        "but makes 72 programs, so 60 multiprocessors would be idle.",
    ),
    Question(
        "ch07-q8",
        "How many times are x and y read in each of the four shapes?",
        _reads,
        tuple,
        "Take the first shape, whose z is one row of 16 tiles. Which programs need row 0 of x, and which "
        "need column 0 of y?",
        (
            Nudge(
                lambda given, right: not _are_pairs(given),
                "Return a pair: how many times x is read, and how many times y is.",
            ),
            Nudge(
                lambda given, right: [pair[::-1] for pair in map(tuple, given)] == list(right),
                "Your two numbers are exchanged. In the first shape z is one row of 16 tiles, and all of "
                "them need the same rows of x.",
            ),
            Nudge(
                lambda given, right: (
                    list(map(tuple, given[:-1])) == list(right[:-1]) and list(given[-1]) in _by_whole_tiles()
                ),
                "Three shapes fit. In the last one, z is 70 x 50 and a tile is 16 x 32. So the tiles at the "
                "edges are only partly inside z, and their programs read, too.",
            ),
            Nudge(
                lambda given, right: list(given[1]) != list(given[2]),
                "The second and third shapes differ only in BLOCK_K, but your numbers differ. Does a "
                "longer BLOCK_K change how many programs need a row of x?",
            ),
            Nudge(
                lambda given, right: _column(given, 0) == _column(right, 0),
                "x fits in all four shapes, but y doesn't. Which programs need the same columns of y?",
            ),
            Nudge(
                lambda given, right: _column(given, 1) == _column(right, 1),
                "y fits in all four shapes, but x doesn't. Which programs need the same rows of x?",
            ),
            Nudge(
                lambda given, right: [list(pair) for pair in given] == [[x * y] * 2 for x, y in right],
                "That's how many programs there are. But only some of them need row 0 of x.",
            ),
        ),
        same=lambda given, right: _are_pairs(given) and tuple(map(tuple, given)) == right,
        computed=True,
    ),
)
