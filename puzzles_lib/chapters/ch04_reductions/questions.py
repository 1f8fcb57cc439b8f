"""The predictions of chapter 04."""

import math

import torch

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SUM, ONLINE_SOFTMAX
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case
from puzzles_lib.question import Nudge, Question

PADDED = (-1000.0, -1001.0, -1002.0, 0.0)  # the last one is padding


def _zero_padding() -> int:
    """Return what a kernel stores for the numbers of a row whose padding is 0."""
    *stored, _ = torch.tensor(PADDED).softmax(0).tolist()
    (value,) = set(stored)
    return int(value)


def _starts_with_a_hidden_block() -> int:
    hidden = []
    for number, case in enumerate(ONLINE_SOFTMAX.cases):
        block = make_inputs(ONLINE_SOFTMAX, case)["x"][:, : case.BLOCK_N]
        hidden += [number] if (block == -math.inf).all(dim=1).any() else []
    (number,) = hidden
    return number


def _counted_in_float16() -> int:
    total = torch.tensor(0.0, dtype=torch.float16)
    for _ in range(5000):
        total += 1
    return int(total)


def _last_iteration() -> int:
    case = LONG_SUM.cases[2]
    return -(-case.N // case.BLOCK_N)


def _factor() -> float:
    """Return what turns a sum relative to a maximum of 3 into one relative to a maximum of 4."""
    return math.exp(3 - 4)


TWO_DIGITS = 0.01  # how far off a number with two digits may be, if the rest was cut off
LAUNCH = Case(M=1000, N=5000, BLOCK_M=16, BLOCK_N=256)


def _grid() -> tuple[int, ...]:
    return tuple(LONG_SUM.grid(LAUNCH))


QUESTIONS = (
    Question(
        "ch04-q2",
        "What does the kernel with a zero as padding store for the row -1000, -1001, -1002?",
        _zero_padding,
        float,
        "What is the maximum of a row and its padding? Now take the exponential of x minus that maximum.",
        (
            Nudge(
                lambda given, right: given == 1,
                "That is what the maximum itself would give. But is the maximum an element of x?",
            ),
            Nudge(
                lambda given, right: abs(given - 1 / 3) < TWO_DIGITS,
                "Equal thirds would need three equal exponentials, and a padding that counts for nothing.",
            ),
            Nudge(
                lambda given, right: given < 0,
                "A softmax is never negative. Which exponent does each number of this row get?",
            ),
            Nudge(
                lambda given, right: math.isnan(given),
                "NaN would need a denominator of 0. But the lane of padding adds 1 to it.",
            ),
        ),
    ),
    Question(
        "ch04-q3",
        "In which case, counting from 0, does the kernel fail that starts from minus infinity?",
        _starts_with_a_hidden_block,
        int,
        "When is the new maximum still minus infinity after a whole block?",
        (
            Nudge(
                lambda given, right: given == right + 1,
                "You have the right row of the table. We count the cases from 0.",
            ),
            Nudge(
                lambda given, right: given == 4,
                "Those values are far below 0, but they are numbers. So is the maximum, after every block.",
            ),
            Nudge(
                lambda given, right: 0 <= given < right,
                "No number of that case is -inf. Which label in the table means that many of them are?",
            ),
        ),
    ),
    Question(
        "ch04-q4",
        "After which iteration, counting from 1, is program 0's acc undefined for the first time?",
        _last_iteration,
        int,
        "An iteration spoils acc if lanes of its load are masked off. Which blocks of program 0 are full?",
        (
            Nudge(
                lambda given, right: given == right - 1,
                "No lane of these rows is masked off in that iteration. Did you count from 1?",
            ),
            Nudge(
                lambda given, right: given == 0,
                "We count the iterations from 1, and acc is 0 before the first. Which block isn't full?",
            ),
        ),
    ),
    Question(
        "ch04-q5",
        "Which number does a float16 sum reach if you add 1 five thousand times?",
        _counted_in_float16,
        int,
        "Which is the first number with 12 binary digits that ends in a 1? Which neighbor is it rounded to?",
        (
            Nudge(
                lambda given, right: given == 5000,
                "On paper, yes. But 4999 has 13 binary digits, and a float16 keeps 11 of them.",
            ),
            Nudge(
                lambda given, right: given in (right - 1, right + 1),
                "Very close. 2047 is eleven ones in binary. What is 2047 + 1, and what is that + 1, rounded?",
            ),
        ),
    ),
    Question(
        "ch04-q6",
        "By what do you multiply the old sum when the maximum rises from 3 to 4?",
        _factor,
        float,
        "Each old term is e^(x - 3), and should be e^(x - 4). Divide the second by the first.",
        same=lambda given, right: abs(given - right) < TWO_DIGITS,
        nudges=(
            Nudge(
                lambda given, right: given > 1,
                "That makes the old sum larger. If the maximum rises, do the old terms grow or shrink?",
            ),
            Nudge(
                lambda given, right: given == -1,
                "That is the change of the exponent. By what does it multiply each term?",
            ),
        ),
    ),
    Question(
        "ch04-q7",
        "Which grid launches long_sum for 1000 rows of 5000, with BLOCK_M = 16 and BLOCK_N = 256?",
        _grid,
        tuple,
        "Each program owns BLOCK_M rows. How many programs do 1000 rows need? triton.cdiv rounds up.",
        same=lambda given, right: given[:1] == right and set(given[1:]) <= {1},  # the same programs
        nudges=(
            Nudge(
                lambda given, right: given == (-(-LAUNCH.N // LAUNCH.BLOCK_N),),
                "That is how many iterations the loop has. How many programs share the rows?",
            ),
            Nudge(
                lambda given, right: len(given) != 1,
                "The grid has one axis here: a program walks all columns of its rows by itself.",
            ),
            Nudge(
                lambda given, right: given[0] == LAUNCH.M // LAUNCH.BLOCK_M,
                "That many programs cover 992 rows. Who adds up the last 8?",
            ),
            Nudge(
                lambda given, right: given[0] == LAUNCH.M,
                "That is one program per row. Each program can take BLOCK_M of them.",
            ),
        ),
    ),
)
