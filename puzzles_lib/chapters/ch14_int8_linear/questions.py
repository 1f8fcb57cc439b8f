"""The predictions of chapter 14."""

from puzzles_lib.chapters.ch14_int8_linear.puzzles import INT8_LINEAR, TOP, lowest_codes
from puzzles_lib.puzzle import Case
from puzzles_lib.question import Nudge, Question


def _left_after_twelve() -> float:
    return 0.99**12


def _wrapped() -> int:
    return (-130 + 128) % 256 - 128


def _products_in_float32() -> int:
    return 2**24 // 127**2


def _past_a_multiple() -> int:
    return 250 % 16


def _largest_code_beside_an_outlier() -> int:
    return round(3.4 / (144 / TOP))


def _first_k_past_float32() -> int:
    """The K of the first case whose sums, of codes as large as that case has them, pass 2^24 on their way."""
    worst = ((case, _largest(case, "xq") * _largest(case, "wq")) for case in INT8_LINEAR.cases)
    return next(case.K for case, product in worst if case.K * product > 2**24)


def _largest(case: Case, name: str) -> int:
    return 128 if case.fill.get(name) is lowest_codes else TOP


def _copies_of_x() -> int:
    """Of 12 copies of 16 bytes, as many for x as for the weights: the tiles are of one size."""
    return 12 // 2


QUESTIONS = (
    Question(
        id="ch14-q1",
        asks="Each of twelve layers hands on 0.99 of what it got. How much is left at the end (within 0.02)?",
        right=_left_after_twelve,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.02,
        nudges=(
            Nudge(lambda v, r: v > 1, "a share of 1, such as 0.5"),
            Nudge(lambda v, r: v > 0.95, "that is about one layer's loss, or that of a random walk"),
        ),
        nudge="each layer multiplies",
    ),
    Question(
        id="ch14-q2",
        asks="A float is cast to int8 by way of int16: the lowest eight bits are kept. What becomes of -130?",
        right=_wrapped,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -128, "that would be clamped; a cast does not clamp"),
            Nudge(lambda v, r: v in (-2, 2), "eight bits are 256 numbers: go round by as many"),
        ),
        nudge="numbers go round in a circle of 256: -128 is followed, downwards, by 127",
    ),
    Question(
        id="ch14-q3",
        asks="float32 holds every integer up to 2^24. How many products of 127 * 127 is that room for?",
        right=_products_in_float32,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2**24 // 127, "a product is 127 times 127"),
            Nudge(lambda v, r: v == 2**24 // 128**2, "that is for -128 times -128"),
        ),
        nudge="divide, and round down",
    ),
    Question(
        id="ch14-q4",
        asks="wq is [N, K] in int8, K = 250, and begins at a multiple of 16. "
        "How many bytes past such a multiple does row 1 begin?",
        right=_past_a_multiple,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 250, "that is where it begins; how far past the last multiple of 16?"),
            Nudge(lambda v, r: v == 250 // 16, "so many times 16 goes into it; what is left over?"),
            Nudge(lambda v, r: v == -250 % 16, "so far it is to the next multiple; and from the last one?"),
        ),
        nudge="a code is a byte, so row 1 begins at byte K",
    ),
    Question(
        id="ch14-q5",
        asks="A tensor's largest magnitude is 144, that of its row 0 is 3.4. With one int8 scale for the "
        "tensor, what is the largest magnitude among row 0's codes?",
        right=_largest_code_beside_an_outlier,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 127, "with a scale of its own it would be; whose value becomes 127 here?"
            ),
            Nudge(lambda v, r: v == 42, "that is how often row 0 goes into the largest; and into 127 steps?"),
            Nudge(lambda v, r: v == 2, "a code is rounded, not cut off"),
            Nudge(lambda v, r: v == 0, "a step is 144 / 127, and 3.4 is more than one"),
        ),
        nudge="the scale is 144 / 127: how many of it are in 3.4?",
    ),
    Question(
        id="ch14-q6",
        asks="int8_linear is summed in float32. From which K in its table on does a sum lose bits?",
        right=_first_k_past_float32,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 600, "so many products of 127 and 128 stay below 2^24: see ch14-q3"),
            Nudge(lambda v, r: v < 600, "there is room for more products than that: see ch14-q3"),
        ),
        nudge="one of 32, 128, 100, 33, 200, 600 and the last one: for how many products is there room?",
    ),
    Question(
        id="ch14-q7",
        asks="int8_linear makes 12 copies of 16 bytes, for tiles of x and of weights. How many stay where "
        "the weights lie as [K, N]?",
        right=_copies_of_x,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 12, "those of the weights have to be turned on their way"),
            Nudge(lambda v, r: v == 0, "the codes of x lie as they did"),
        ),
        nudge="the tile of x and that of the weights are 64 by 64 codes each",
    ),
)
