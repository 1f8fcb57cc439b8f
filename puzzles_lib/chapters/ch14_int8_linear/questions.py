"""The predictions of chapter 14."""

from collections.abc import Callable

import torch
from torch import Tensor

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


def _rows_wrong_without_abs() -> set[int]:
    """Return the rows of q2 for which the largest value, never below 0, isn't the largest magnitude."""
    rows = ((3, -2, 1), (2, -3, 0.5), (-1, -4, -2), (0, 0, 0))
    return {m for m, row in enumerate(rows) if max(0, *row) != max(map(abs, row))}


def _block_of_65_tokens() -> int:
    """Return the largest block, so the fewest reads of the weights, with at most a third masked off."""
    rows = {block: -(-65 // block) * block for block in (16, 32, 64, 128)}
    return max(block for block, all_rows in rows.items() if all_rows - 65 <= all_rows / 3)


def _by_2_to_23() -> tuple[float, float]:
    """Return 1.5 and -1.5 after 2^23 was added and subtracted in float32."""
    back = (torch.tensor([1.5, -1.5]) + 2.0**23) - 2.0**23
    return tuple(back.tolist())


def _two_walks_and_one() -> tuple[int, int]:
    """Return y for x = [0.6, 127] and weights [10, 1]: with one scale, and with a peak that grows."""
    x, weights = (0.6, 127.0), (10, 1)
    scale = max(x) / TOP
    two = sum(round(value / scale) * w for value, w in zip(x, weights, strict=True)) * scale
    acc, before = 0.0, 1.0
    for value, w in zip(x, weights, strict=True):
        now = max(before if acc else 0.0, value / TOP)
        acc, before = acc * before / now + round(value / now) * w, now
    return round(two), round(acc * before)


def _largest_code_beside_an_outlier() -> int:
    return round(3.4 / (144 / TOP))


def _first_k_past_float32() -> int:
    """Return the K of the first case whose sums pass 2^24, with codes as large as that case has them."""
    worst = ((case, _largest(case, "xq") * _largest(case, "wq")) for case in INT8_LINEAR.cases)
    return next(case.K for case, product in worst if case.K * product > 2**24)


def _largest(case: Case, name: str) -> int:
    return 128 if case.fill.get(name) is lowest_codes else TOP


def _copies_left() -> tuple[int, int]:
    """Return those of x, half of 12, if only the weights are turned; and none if no row is aligned."""
    return 12 // 2, 0


def _copies_with_tiles() -> int:
    """Return half of 12 copies: tiles of weights are aligned, and rows of x aren't."""
    return 12 // 2


def _multiplications_by_a_scale(K: int = 768) -> tuple[int, int]:
    """Return those of one element: two in each term, or two after the sum."""
    return 2 * K, 2


def _programs_along_n() -> int:
    case = Case(M=1, N=3072, K=768, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64)
    return FUSED_LINEAR.programs(case)[1]


def _rows_of_the_instruction() -> int:
    """Return the rows that int8's mma.sync multiplies, the smallest of a tensor core: m16n8k32."""
    return 16


HARM, LOST = 4, 2  # percent at least, digits at most


def _careless() -> tuple[float, int, Callable[..., Tensor]]:
    """Return one of many answers that `_unnoticed` accepts."""
    return 4.5, -1, _truncated


def _truncated(x: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
    """Return a linear layer whose inputs have truncated codes and one scale for all rows."""
    scale = x.abs().max() / TOP
    return (x / scale).trunc() @ wq.float().T * (scale * w_scale) + bias


def _is_complete(value: tuple) -> bool:
    return len(value) == 3 and callable(value[2])


def _unnoticed(value: tuple, right: tuple) -> bool:
    return _is_complete(value) and value[0] >= HARM and value[1] <= LOST and _quantizes(value[2])


def _quantizes(linear: Callable[..., Tensor]) -> bool:
    """Return whether a row of 1001 values has at most 256 different ones after a layer that copies it."""
    row = torch.linspace(-1, 1, 1001)
    K = len(row)
    copied = linear(row.repeat(2, 1), torch.eye(K, dtype=torch.int8), torch.ones(K), torch.zeros(K))
    return len(torch.unique((1e5 * copied[0]).round())) <= 256


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
                lambda v, r: v[0] == 12 and abs(v[1] - r[0]) <= 0.3,
                "The second number is the one for random errors: exchange them. With a bias, each layer "
                "loses 1% "
                "of what has *arrived* there.",
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
        asks="peak starts at 0 and takes each row's largest value, without tl.abs. Which rows come out "
        "wrong: "
        "0: (3, -2, 1), 1: (2, -3, 0.5), 2: (-1, -4, -2), 3: zeros? A set.",
        right=_rows_wrong_without_abs,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: not v, "In one of the rows, the largest magnitude belongs to a negative value."
            ),
            Nudge(lambda v, r: 3 in v, "A row of zeros gets scale 1 with or without tl.abs."),
            Nudge(lambda v, r: 0 in v, "The largest value of row 0 is its largest magnitude, too."),
            Nudge(
                lambda v, r: v == {1},
                "Row 1 is one of them. What is the peak of a row without a positive value, and its scale?",
            ),
            Nudge(
                lambda v, r: v == {2},
                "Row 2 is one of them. In which other row is a negative value the largest magnitude?",
            ),
        ),
        nudge="For each row, take the larger of 0 and its largest value. Is it the largest magnitude?",
    ),
    Question(
        id="ch14-q3",
        asks="65 tokens: at most a third of the multiplied rows may be masked off, and the weights should be "
        "read as few times as possible. BLOCK_M is 16, 32, 64 or 128?",
        right=_block_of_65_tokens,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16,
                "Only 15 of 80 rows are masked off. But the weights are read five times. Can you afford "
                "more rows?",
            ),
            Nudge(
                lambda v, r: v == 64,
                "65 tokens take two rows of such tiles: 63 of 128 rows are masked off.",
            ),
            Nudge(lambda v, r: v == 128, "The weights are read once, but 63 of 128 rows are masked off."),
        ),
        nudge="Choose one of the four. How many rows of tiles do 65 tokens take, and how many rows are "
        "those?",
    ),
    Question(
        id="ch14-q4",
        asks="K = 250, and the weights are in tiles. How many of 12 copies of 16 bytes are back?",
        right=_copies_with_tiles,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 12, "Tiles start at multiples of 16. But do the rows of x, 250 bytes apart?"
            ),
            Nudge(
                lambda v, r: v == 0,
                "The rows of x are as they were. But where do tiles start, and how long is one row of a "
                "tile?",
            ),
        ),
        nudge="Half of the copies were for x, and half for the weights. Which of the two are aligned now?",
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
            Nudge(lambda v, r: v == 600, "600 products of 127 and 128 are 9.8 million, which is below 2^24."),
            Nudge(
                lambda v, r: v < 600,
                "There is room for more products: multiply them out, and compare with 2^24.",
            ),
        ),
        nudge="It is one of 32, 128, 100, 33, 200, 600 and the last one. How many products fit?",
    ),
    Question(
        id="ch14-q7",
        asks="int8_linear makes 12 copies of 16 bytes. How many are left if the weights are stored as [K, "
        "N], "
        "and how many if they are [N, K] and K is 250? A pair.",
        right=_copies_left,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Give two numbers: (weights as [K, N], K = 250)."),
            Nudge(lambda v, r: v == r[::-1], "The numbers are correct, but the first one is for [K, N]."),
            Nudge(
                lambda v, r: v[0] == 12,
                "A copy keeps the order of its bytes, and $k$ should be innermost. Which operand has to be "
                "turned on its way?",
            ),
            Nudge(
                lambda v, r: v[0] == 0,
                "With [K, N], the codes of x are stored as before. What does that mean for their copies?",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] == 6,
                "The first number is correct. K is the distance between rows of which tensors: x, wq, or "
                "both?",
            ),
            Nudge(
                lambda v, r: v[0] == r[0],
                "The first number is correct. With K = 250, does row 1 of x start at a multiple of 16? Of "
                "wq?",
            ),
            Nudge(
                lambda v, r: v[1] == r[1],
                "The second number is correct. With [K, N], how many of the copies were for x alone?",
            ),
        ),
        nudge="The tiles of x and of the weights have the same size. Ask for each: neighbors along k, "
        "aligned?",
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
        asks="x is [0.6, 127], BLOCK_K is 1, the codes of the weights are [10, 1] with scale 1. What is y "
        "with "
        "two walks, and with one whose peak grows? (two walks, one walk)",
        right=_two_walks_and_one,
        kind=tuple,
        same=lambda value, right: _within(value, right, 0.01),
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Give two numbers: (two walks, one walk)."),
            Nudge(
                lambda v, r: _within(v, r[::-1], 0.01),
                "The numbers are correct, but the first one is for two walks.",
            ),
            Nudge(
                lambda v, r: abs(v[0] - 127) < 0.01,
                "With two walks, the scale is 1. 0.6 is rounded, not truncated: what is its code?",
            ),
            Nudge(
                lambda v, r: abs(v[0] - r[0]) <= 0.01 and abs(v[1] - 1397) < 0.01,
                "The first number is correct. When the peak grows to 127, the sum so far is 127 * 10. "
                "Multiply "
                "it by the old scale, 0.6 / 127, over the new one.",
            ),
            Nudge(
                lambda v, r: abs(v[0] - r[0]) <= 0.01,
                "The first number is correct. In one walk, 0.6 is its own peak at first. Which code is that, "
                "and what is left of code times weight after the correction?",
            ),
            Nudge(
                lambda v, r: abs(v[1] - r[1]) <= 0.01,
                "The second number is correct. With two walks, both values are divided by scale 1 and "
                "rounded.",
            ),
        ),
        nudge="Two walks: what is the scale of the row, and what are the two codes? Then add code times "
        "weight.",
    ),
    Question(
        id="ch14-q10",
        asks=f"A careless linear layer: logits off by {HARM}% or more, at most {LOST} digits lost. "
        "(percent, digits lost, the function)",
        right=_careless,
        kind=tuple,
        same=_unnoticed,
        nudges=(
            Nudge(
                lambda v, r: not _is_complete(v),
                "Give two numbers and your function: (percent, digits lost, careless).",
            ),
            Nudge(
                lambda v, r: not _quantizes(v[2]),
                "From a row of 1001 different values, your function makes more than 256 different ones. With "
                "one scale per row, 8 bits have only 256 codes: quantize x.",
            ),
            Nudge(
                lambda v, r: not v[0] >= HARM,
                "That's not careless enough: the logits aren't as far off as they should be. How about "
                "coarser "
                "steps, a bias, or both?",
            ),
        ),
        nudge="Now too many digits are lost: be a little less careless.",
        computed=True,
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
    Question(
        id="ch14-q12",
        asks="2^23 is added to 1.5 and to -1.5 in float32, and subtracted again. What comes back? A pair.",
        right=_by_2_to_23,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Give two numbers: what comes back for 1.5, and for -1.5."),
            Nudge(
                lambda v, r: v[0] == r[0] and v[1] in (-2, -1),
                "The first number is correct. With -1.5 the sum is below 2^23. Does it have to be rounded "
                "there?",
            ),
            Nudge(
                lambda v, r: v[0] == 1.5,
                "Above 2^23 there are only integers. To which of its neighbors does a tie go?",
            ),
            Nudge(
                lambda v, r: v[0] == 1,
                "1.5 is halfway between 1 and an even integer. Ties go to the even one.",
            ),
        ),
        nudge="Is the sum with 1.5 above or below 2^23, and the one with -1.5? Which numbers are there?",
    ),
    Question(
        id="ch14-q13",
        asks="int8_linear is compiled for sm_90 with M=1 and BLOCK_M=1. How many rows does its tensor core "
        "instruction multiply?",
        right=_rows_of_the_instruction,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "That's the tile's height. The instruction's own is the number after m in its name.",
            ),
            Nudge(lambda v, r: v in (8, 32), "That's the number after n or k. Rows come after m."),
        ),
        nudge="Print .tensor_core of the compiled kernel. Its rows are the number after m in that name.",
    ),
)
