"""The predictions of chapter 07."""

import torch
import triton

from puzzles_lib.chapters.ch07_matmul.pictures import small_product
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question


def _thousand_times() -> float:
    number = torch.tensor(2048, dtype=torch.float16)
    for _ in range(1000):
        number = number + 1.5
    return float(number)


def _reads() -> tuple[int, int]:
    case = BATCHED_MATMUL.cases[2]
    return triton.cdiv(case.N, case.BLOCK_N), triton.cdiv(case.M, case.BLOCK_M)


def _one_step() -> int:
    return sum(case.K <= case.BLOCK_K for case in BATCHED_MATMUL.cases)


def _after_two_turns() -> tuple[int, ...]:
    x, y = small_product()
    return tuple((x[0, :4] @ y[:4]).tolist())


def _products_a_load() -> int:
    return 64 * 64 * 32 // (64 * 32 + 32 * 64)


def _largest_square() -> int:
    return max(side for side in (16, 32, 64, 128, 256, 512) if 4 * side * side <= 256 * 1024 // 2)


def _last_turn_that_counts() -> int:
    """Of case 4, with an accumulator in float16, for element [0, 0]."""
    case = BATCHED_MATMUL.cases[4]
    tensors = make_inputs(BATCHED_MATMUL, case)
    products = tensors["x"][0, 0].float() * tensors["y"][0, :, 0].float()
    acc, last = torch.zeros((), dtype=torch.float16), 0
    for turn, part in enumerate(products.split(case.BLOCK_K), start=1):
        before, acc = acc, acc + part.sum().half()
        last = turn if acc != before else last
    return last


QUESTIONS = (
    Question(
        "ch07-q1",
        "What comes out if 1.5 is added a thousand times to a float16 of 2048?",
        _thousand_times,
        float,
        "Which float16 comes after 2048? And which of the two is nearer to 2049.5?",
        (
            Nudge(
                lambda given, right: given == 2048 + 1500,
                "So it is on paper. But from 2048 on a float16 counts in twos.",
            ),
            Nudge(
                lambda given, right: given == 2048,
                "With 1 it would stay there: half way goes back. And 1.5 is more than half of the way.",
            ),
        ),
        lambda given, right: given == right,
    ),
    Question(
        "ch07-q2",
        "By how many programs is each number of x loaded, and each of y, as (x, y)?",
        _reads,
        tuple,
        "Which tiles of z need the first row of x? They lie beside each other. For y, below each other.",
        (
            Nudge(lambda given, right: len(given) != 2, "Two numbers: (x, y)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "Both numbers are in it. Tiles beside each other need the same rows: rows of what?",
            ),
            Nudge(
                lambda given, right: given == (1, 1),
                "Once would be enough, but programs do not hand numbers to each other.",
            ),
        ),
    ),
    Question(
        "ch07-q3",
        "In how many of the five cases is a float16 accumulator right?",
        _one_step,
        int,
        "Nothing is rounded twice where the sum is complete after one dot: K within BLOCK_K.",
        (
            Nudge(
                lambda given, right: given == len(BATCHED_MATMUL.cases),
                "With several turns the sum so far is rounded each time. Does the checker see it?",
            ),
            Nudge(
                lambda given, right: given == 0,
                "One dot adds up in float32, and rounding it once is what tl.store does anyway.",
            ),
        ),
    ),
    Question(
        "ch07-q4",
        "Which turn, counted from 1, is the last that changes acc[0, 0]?",
        _last_turn_that_counts,
        int,
        "Step from turn to turn with acc[0, 0] in view. How far apart are float16 numbers there?",
        (
            Nudge(
                lambda given, right: given == 16,
                "In that turn something is added, too. Is acc[0, 0] another number after it?",
            ),
            Nudge(
                lambda given, right: given == 0, "It starts as 0 and does not stay so; turns count from 1."
            ),
        ),
    ),
    Question(
        "ch07-q5",
        "K = 6 in blocks of 2: what stands in the first row of acc after the second turn?",
        _after_two_turns,
        tuple,
        "Turn 2 adds x[0, 2] times row 2 of y, and x[0, 3] times row 3, to what the picture shows.",
        (
            Nudge(lambda given, right: len(given) != 3, "Three numbers, one for each column of y."),
            Nudge(
                lambda given, right: given == (7, 12, 9),
                "So much the second turn adds. What stood there before it?",
            ),
            Nudge(lambda given, right: given == (3, 0, 1), "That is how the first turn left it."),
            Nudge(
                lambda given, right: given == tuple((small_product()[0][0] @ small_product()[1]).tolist()),
                "That is the whole product: one turn too many.",
            ),
        ),
    ),
    Question(
        "ch07-q6",
        "Tiles of 64 x 64, BLOCK_K = 32: how many products for each number that a turn loads?",
        _products_a_load,
        int,
        "Loads: BLOCK_M · BLOCK_K numbers of x, and about as many of y. How many products are made of them?",
        (
            Nudge(
                lambda given, right: given == 64,
                "Each number has a part in so many. But a product takes two of them, one of x and one of y.",
            ),
            Nudge(
                lambda given, right: given == 64 * 64 * 32,
                "So many products it makes in all. Over how many loads?",
            ),
        ),
    ),
    Question(
        "ch07-q7",
        "Half of 256 KiB for the accumulator: how many rows has the largest square tile, a power of two?",
        _largest_square,
        int,
        "How many numbers of 4 bytes fit into half of the registers? Which squares are no larger?",
        (
            Nudge(lambda given, right: given == 2 * right, "That takes all of the registers: none are left."),
            Nudge(lambda given, right: given == 181, "It would fit, but tl.arange wants a power of two."),
            Nudge(lambda given, right: given == 2**15, "So many numbers fit in. How long is the side?"),
        ),
    ),
)
