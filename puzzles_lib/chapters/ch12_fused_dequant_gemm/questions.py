"""The predictions of chapter 12."""

import itertools

import triton

from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import FUSED_DW, SPLIT_K
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


def _counted_again() -> int:
    case = FUSED_DW.cases[2]
    return triton.cdiv(case.K, case.BLOCK_K) * case.BLOCK_K - case.K


def _one_group_a_tile() -> int:
    """Cases of puzzle 19 in which no tile has columns of two groups."""

    def holds(case) -> bool:
        tiles = range(0, case.CIN, case.BLOCK_N)
        ends = [(n // case.GROUP, (min(n + case.BLOCK_N, case.CIN) - 1) // case.GROUP) for n in tiles]
        return all(first == last for first, last in ends)

    return sum(map(holds, FUSED_DW.cases))


def _empty_splits() -> set[int]:
    """Cases of puzzle 20 whose last split has no rows."""

    def rows_before(case) -> int:
        steps = triton.cdiv(triton.cdiv(case.K, case.BLOCK_K), case.SPLITS)
        return (case.SPLITS - 1) * steps * case.BLOCK_K

    return {i for i, case in enumerate(SPLIT_K.cases) if rows_before(case) >= case.K}


def _registers_for_two() -> int:
    return 65536 // (2 * 8 * 32)


def _row_of_field(b: int = 1, j: int = 3, r: int = 5, BITS: int = 2) -> int:
    F = 16 // BITS
    return 16 * F * b + 16 * j + r


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
    Question(
        id="ch12-q6",
        asks="K = 83 in blocks of 32, rows wrapped around: how many rows are counted twice?",
        right=_counted_again,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 83 % 32, "so many rows the last turn has to itself. And its other lanes?"
            ),
            Nudge(lambda v, r: v == 32, "not all of the last turn: some of its rows are there"),
        ),
        nudge="how many lanes have three turns, and how many rows are there for them?",
    ),
    Question(
        id="ch12-q7",
        asks="In how many of puzzle 19's six cases is one group a tile right?",
        right=_one_group_a_tile,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 3,
                "a group longer than a tile can end within one, too: GROUP=96 and tiles of 64, for one",
            ),
            Nudge(lambda v, r: v == 0, "where group and tile begin and end together, nothing is lost"),
        ),
        nudge="mark in each row of the table where groups end, and where tiles do",
    ),
    Question(
        id="ch12-q8",
        asks="In which cases of puzzle 20 does it show that empty splits write nothing? A set of numbers.",
        right=_empty_splits,
        kind=set,
        nudges=(
            Nudge(lambda v, r: v and v < r, "there is one more: count blocks, and deal them out"),
            Nudge(lambda v, r: v > r, "too many: a split that is short still has rows, and stores their sum"),
        ),
        nudge="blocks: K over BLOCK_K, rounded up. A share: blocks over SPLITS, rounded up. Who gets none?",
    ),
    Question(
        id="ch12-q9",
        asks="65536 registers, programs of 8 warps: how many may a thread take, if two programs are to fit?",
        right=_registers_for_two,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2 * r, "so many, and one program takes them all"),
            Nudge(lambda v, r: v == 32 * r, "that is for a warp; it has 32 threads"),
        ),
        nudge="how many threads have two programs? They share the registers out among them",
    ),
    Question(
        id="ch12-q10",
        asks="Packed along K at 2 bits: which row is field 3 of word [1, 5, n]?",
        right=_row_of_field,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16 * 8 + 8 * 5 + 3,
                "that takes a word for 8 neighbours. Here a field's rows lie together, 16 of them",
            ),
            Nudge(lambda v, r: v == 16 * 3 + 5, "that is its place within a block. This one is block 1"),
            Nudge(lambda v, r: v == 16 * 16 + 16 * 3 + 5, "a word has 16 bits, and so 8 fields"),
        ),
        nudge="k = 16 · F · b + 16 · j + r, with b and r from the word's place",
    ),
)
