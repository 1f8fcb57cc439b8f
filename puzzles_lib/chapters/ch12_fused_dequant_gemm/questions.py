"""The predictions of chapter 12."""

import itertools

from puzzles_lib.question import Nudge, Question

_K, _C = 100864, 768


def _floor() -> str:
    moved = _K * _C / 4 + 4 * _K * _C / 256 + 2 * _K * _C + 4 * _C * _C
    return "bytes" if moved / 4.8e12 > 2 * _K * _C * _C / 989e12 else "products"


def _tensor_clocks() -> int:
    return 128 * 128 * 32 // 2048


def _most_splits() -> int:
    return 132 // (_C // 128) ** 2


def _twice() -> int:
    share = -(-83 // 4)
    return -(-share // 16) * 16 - share


def _results() -> int:
    """Ways to add four parts, when the first two may change places."""
    return len({(frozenset(order[:2]), *order[2:]) for order in itertools.permutations(range(4))})


QUESTIONS = (
    Question(
        id="ch12-q1",
        asks="Fused: which takes an H200 longer, moving the bytes or making the products? "
        "'bytes' or 'products'",
        right=_floor,
        kind=str,
        nudge="178 MB at 4.8 TB/s; and two FLOP for each of K · COUT · CIN products, at 989 TFLOP/s",
    ),
    Question(
        id="ch12-q2",
        asks="How many clocks of tensor cores does a turn of 32 rows take in a tile of 128 x 128?",
        right=_tensor_clocks,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r // 4,
                "so many the tile of 64 x 64 took. How many of them fit in this one?",
            ),
            Nudge(lambda v, r: v == 2 * r, "a multiplication and an addition are one product here"),
        ),
        nudge="count the products of a turn, and divide by 2048 a clock",
    ),
    Question(
        id="ch12-q3",
        asks="36 tiles, 132 multiprocessors. Into how many splits may K be cut, "
        "if none is to get two programs?",
        right=_most_splits,
        kind=int,
        nudges=(Nudge(lambda v, r: v > r, "then there are more programs than multiprocessors"),),
        nudge="a split is one program for each tile",
    ),
    Question(
        id="ch12-q4",
        asks="K = 83 in 4 shares of 21 rows, read in blocks of 16. "
        "How many rows of split 1 does split 0 add?",
        right=_twice,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 16 - 21 % 16 + 16, "the second block is needed: count from its end"),
        ),
        nudge="two blocks reach to row 32; where does split 1 begin?",
    ),
    Question(
        id="ch12-q5",
        asks="Four float32 parts are added in 24 orders. How many different results are there at most?",
        right=_results,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 24, "some of these orders begin with the same sum of two"),
            Nudge(lambda v, r: v == 1, "that would be so, if additions were exact"),
        ),
        nudge="which two orders make the same additions of the same numbers?",
    ),
)
