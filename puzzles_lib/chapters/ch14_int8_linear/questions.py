"""The predictions of chapter 14."""

import torch

from puzzles_lib.chapters.ch14_int8_linear.puzzles import FUSED_LINEAR, INT8_LINEAR, TOP, lowest_codes
from puzzles_lib.puzzle import Case
from puzzles_lib.question import Nudge, Question


def _errors_of_twelve() -> tuple[float, float]:
    """Return twelve errors of 1%, in percent: random ones, whose squares add up, and a bias."""
    return 12**0.5, 100 * (1 - 0.99**12)


def _within(value: tuple, right: tuple, slack: float) -> bool:
    return len(value) == 2 and all(abs(v - r) <= slack for v, r in zip(value, right, strict=True))


def _bytes_asked() -> tuple[int, int]:
    """Return the bytes that two launches and one ask for, for 512 tokens of 768 and 3072 outputs."""
    M, K, rest = 512, 768, _weights_asked()
    return (
        rest + 2 * 4 * M * K + M * K + _programs_along_n() * M * K,
        rest + _programs_along_n() * 2 * 4 * M * K,
    )


def _weights_asked(M: int = 512, N: int = 3072, K: int = 768, BLOCK_M: int = 64) -> int:
    return M // BLOCK_M * N * K


def _wrapped() -> int:
    return (-130 + 128) % 256 - 128


def _products_in_float32() -> int:
    return 2**24 // 127**2


def _past_a_multiple() -> int:
    return 250 % 16


def _largest_code_beside_an_outlier() -> int:
    return round(3.4 / (144 / TOP))


def _first_k_past_float32() -> int:
    """Return the K of the first case whose sums pass 2^24, with codes as large as that case has them."""
    worst = ((case, _largest(case, "xq") * _largest(case, "wq")) for case in INT8_LINEAR.cases)
    return next(case.K for case, product in worst if case.K * product > 2**24)


def _largest(case: Case, name: str) -> int:
    return 128 if case.fill.get(name) is lowest_codes else TOP


def _copies_of_x() -> int:
    """Return half of 12 copies: the tiles of x and of the weights have one size."""
    return 12 // 2


def _multiplications_by_a_scale(K: int = 768) -> tuple[int, int]:
    """Return those of one element: two in each term, or two after the sum."""
    return 2 * K, 2


def _programs_along_n() -> int:
    case = Case(M=1, N=3072, K=768, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64)
    return FUSED_LINEAR.programs(case)[1]


def _what_the_cache_says() -> int:
    """Return what was stored under an address before the values there changed."""
    wq = torch.ones(4, 4, dtype=torch.int8)
    cache = {wq.data_ptr(): int(wq.sum())}
    return cache[wq.fill_(2).data_ptr()]


QUESTIONS = (
    Question(
        id="ch14-q1",
        asks="Twelve layers with an error of 1% each: how large is the whole error, in percent, if the "
        "errors are random, and if they're a bias? (random, bias), within 0.3",
        right=_errors_of_twelve,
        kind=tuple,
        same=lambda value, right: _within(value, right, 0.3),
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Give two numbers, in percent: (random, bias)."),
            Nudge(
                lambda v, r: max(v) < 1,
                "Answer in percent: a single layer's error is 1, and there are twelve.",
            ),
            Nudge(
                lambda v, r: _within(v, r[::-1], 0.3),
                "The numbers are correct, but the first one is for random errors.",
            ),
            Nudge(
                lambda v, r: v[0] == 12,
                "12% would be the sum. Independent errors partly cancel: it's their squares that add up.",
            ),
            Nudge(
                lambda v, r: abs(v[0] - r[0]) <= 0.3 and v[1] == 12,
                "The first number is correct. But each layer loses 1% of what has *arrived* there.",
            ),
            Nudge(
                lambda v, r: abs(v[0] - r[0]) <= 0.3 and 80 < v[1] < 100,
                "The first number is correct. The second one should be what is lost, not what is left.",
            ),
            Nudge(
                lambda v, r: abs(v[0] - r[0]) <= 0.3,
                "The first number is correct. With a bias, each layer multiplies what it received by 0.99.",
            ),
            Nudge(
                lambda v, r: abs(v[1] - r[1]) <= 0.3,
                "The second number is correct. For random errors, add the twelve squares. Then what?",
            ),
        ),
        nudge="Random, independent errors: their squares add up. A bias: each layer multiplies by 0.99.",
    ),
    Question(
        id="ch14-q2",
        asks="A float is cast to int8 through int16, keeping the lowest eight bits. What does -130 become?",
        right=_wrapped,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -128, "That would be a clamped value. A cast doesn't clamp."),
            Nudge(lambda v, r: v in (-2, 2), "Eight bits are 256 different numbers, so go round by 256."),
        ),
        nudge="The numbers form a circle of 256: one step below -128 is 127.",
    ),
    Question(
        id="ch14-q3",
        asks="float32 holds every integer up to 2^24. How many products of 127 * 127 fit?",
        right=_products_in_float32,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2**24 // 127, "You divided by 127 only. A product is 127 times 127."),
            Nudge(
                lambda v, r: v == 2**24 // 128**2,
                "That's the number for -128 times -128. Here the largest code is 127.",
            ),
        ),
        nudge="Divide 2^24 by one product, and round down.",
    ),
    Question(
        id="ch14-q4",
        asks="wq is [N, K] in int8, K = 250, and begins at a multiple of 16. "
        "How many bytes past a multiple of 16 does row 1 start?",
        right=_past_a_multiple,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 250,
                "That's where row 1 starts. But how far past the last multiple of 16 is it?",
            ),
            Nudge(lambda v, r: v == 250 // 16, "That's how many times 16 goes into 250. What is left over?"),
            Nudge(
                lambda v, r: v == -250 % 16,
                "That's the distance to the next multiple of 16. How far is it from the last one?",
            ),
        ),
        nudge="A code is one byte, so row 1 starts at byte K.",
    ),
    Question(
        id="ch14-q5",
        asks="A tensor's largest magnitude is 144, that of its row 0 is 3.4. With one int8 scale for the "
        "tensor, what is the largest magnitude among row 0's codes?",
        right=_largest_code_beside_an_outlier,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 127, "It would be, with a scale of its own. Here, whose value becomes 127?"
            ),
            Nudge(
                lambda v, r: v == 42,
                "That's how often row 0 goes into the largest value. How many steps of the scale are in 3.4?",
            ),
            Nudge(lambda v, r: v == 2, "A code is rounded, not cut off."),
            Nudge(lambda v, r: v == 0, "One step is 144 / 127, and 3.4 is more than one step."),
        ),
        nudge="The scale is 144 / 127. How many of it are in 3.4?",
    ),
    Question(
        id="ch14-q6",
        asks="int8_linear is summed in float32. Which is the smallest K in its table whose sums lose bits?",
        right=_first_k_past_float32,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 600, "600 products of 127 and 128 stay below 2^24: see ch14-q3."),
            Nudge(lambda v, r: v < 600, "There is room for more products than that: see ch14-q3."),
        ),
        nudge="It is one of 32, 128, 100, 33, 200, 600 and the last one. How many products fit?",
    ),
    Question(
        id="ch14-q7",
        asks="int8_linear makes 12 copies of 16 bytes, for tiles of x and of weights. How many are left if "
        "the weights are stored as [K, N]?",
        right=_copies_of_x,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 12, "The weights have to be transposed on their way, so theirs are gone."
            ),
            Nudge(lambda v, r: v == 0, "The codes of x are stored as before, so theirs stay."),
        ),
        nudge="The tile of x and the tile of the weights are 64 by 64 codes each.",
    ),
    Question(
        id="ch14-q8",
        asks="K = 768. How many multiplications by a scale does one element of y need? "
        "(as written, rearranged)",
        right=_multiplications_by_a_scale,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Give two numbers: (as written, rearranged)."),
            Nudge(
                lambda v, r: v[0] == 768,
                "Each of the 768 terms multiplies by two scales. Count both of them.",
            ),
            Nudge(
                lambda v, r: v == (r[0], 1),
                "One multiplication scales the sum. But the two scales have to be multiplied, too.",
            ),
            Nudge(
                lambda v, r: v[0] == r[0],
                "The first number is correct. Neither scale depends on k, so where can both of them go?",
            ),
        ),
        nudge="There are 768 terms, with two scales in each. Then take out what is the same in every term.",
    ),
    Question(
        id="ch14-q9",
        asks="N = 3072, BLOCK_N = 64: how many programs quantize the same row of x?",
        right=_programs_along_n,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1, "Programs share nothing. Each one that needs the codes makes them."),
            Nudge(lambda v, r: v == 64, "That's how many outputs a program has. How many such programs?"),
        ),
        nudge="All programs in one row of tiles need the same rows of x. How many tiles are in a row?",
    ),
    Question(
        id="ch14-q10",
        asks="A cache keyed on data_ptr() has seen 16 ones. Now all weights are 2. What does it say?",
        right=_what_the_cache_says,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 32, "That's the true sum. But did the key change?"),
            Nudge(lambda v, r: v == 0, "fill_ writes new values into the same memory. Is the key known?"),
        ),
        nudge="fill_ changes the values in place. What is the key, and is it in the cache already?",
    ),
    Question(
        id="ch14-q11",
        asks="M = 512, BLOCK_M = 64, N = 3072, K = 768, BLOCK_N = 64: how many bytes do all programs "
        "ask for? (two launches, quantized inside the matmul)",
        right=_bytes_asked,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Give two numbers of bytes: (two launches, one launch)."),
            Nudge(
                lambda v, r: v == r[::-1], "The numbers are correct, but the first one is for two launches."
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == _weights_asked() + _programs_along_n() * 4 * 512 * 768,
                "The first number is correct. How often does a program of the fused kernel walk along K?",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == _weights_asked() + 2 * 4 * 512 * 768,
                "The first number is correct. In the fused kernel, how many programs need the same row of x?",
            ),
            Nudge(
                lambda v, r: v[0] == r[0],
                "The first number is correct. In the fused kernel, who reads x, how often, and how many "
                "bytes is one value?",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] - 4 * 512 * 768,
                "Puzzle 22 needs the whole row before its first code. How often does it read x?",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] - (_programs_along_n() - 1) * 512 * 768,
                "With two launches, how many programs of the second one load the same codes?",
            ),
            Nudge(
                lambda v, r: v[1] == r[1],
                "The second number is correct. With two launches, x is read by the first one, and codes are "
                "written by the first and read by the second. Count all three.",
            ),
        ),
        nudge="x is float32, and a code is one byte. Who reads x or codes, how often, and who writes them?",
        computed=True,
    ),
)
