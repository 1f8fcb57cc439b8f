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
    """Return the number of ways to add four parts, if the first two may change places."""
    return len({(frozenset(order[:2]), *order[2:]) for order in itertools.permutations(range(4))})


def _counted_again() -> int:
    case = FUSED_DW.cases[2]
    return triton.cdiv(case.K, case.BLOCK_K) * case.BLOCK_K - case.K


def _one_group_a_tile() -> int:
    """Return how many cases of puzzle 19 have no tile with columns of two groups."""

    def holds(case) -> bool:
        tiles = range(0, case.CIN, case.BLOCK_N)
        ends = [(n // case.GROUP, (min(n + case.BLOCK_N, case.CIN) - 1) // case.GROUP) for n in tiles]
        return all(first == last for first, last in ends)

    return sum(map(holds, FUSED_DW.cases))


def _empty_splits() -> set[int]:
    """Return the cases of puzzle 20 whose last split has no rows."""

    def rows_before(case) -> int:
        steps = triton.cdiv(triton.cdiv(case.K, case.BLOCK_K), case.SPLITS)
        return (case.SPLITS - 1) * steps * case.BLOCK_K

    return {i for i, case in enumerate(SPLIT_K.cases) if rows_before(case) >= case.K}


def _registers_for_two() -> int:
    return 65536 // (2 * 8 * 32)


def _row_of_field(b: int = 1, j: int = 3, r: int = 5, BITS: int = 2) -> int:
    F = 16 // BITS
    return 16 * F * b + 16 * j + r


def _correct_after_tuning(launches: int = 3) -> bool:
    """Return whether a sum is what one launch makes it, after as many launches as configurations."""
    dw = 0
    for _ in range(launches):
        dw += 1
    return dw == 1


QUESTIONS = (
    Question(
        id="ch12-q1",
        asks="The fused product on an H200: which takes longer, moving the bytes or computing the products? "
        "'bytes' or 'products'",
        right=_floor,
        kind=str,
        nudge="Compare two times: 178 MB divided by 4.8 TB/s, and two FLOP per product over 989 TFLOP/s. "
        "There are K · COUT · CIN products.",
        why="The products take 120 µs, the bytes 37 µs.",
    ),
    Question(
        id="ch12-q2",
        asks="How many clocks do the tensor cores need for an iteration of 32 rows in a tile of 128 x 128?",
        right=_tensor_clocks,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r // 4,
                "That's what the tile of 64 x 64 took. How many of those fit in this one?",
            ),
            Nudge(lambda v, r: v == 2 * r, "A multiplication plus an addition count as one product here."),
        ),
        nudge="Count the products of one iteration and divide by 2048 per clock.",
    ),
    Question(
        id="ch12-q3",
        asks="36 tiles, 132 multiprocessors, at most one program each: into how many splits can K be cut?",
        right=_most_splits,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v > r, "With that many splits there are more programs than multiprocessors."),
        ),
        nudge="Each split adds one program for each tile.",
        why="A fourth split would make 144 programs.",
    ),
    Question(
        id="ch12-q4",
        asks="K = 83 in 4 shares of 21 rows, read in blocks of 16. "
        "How many rows of split 1 does split 0 read?",
        right=_twice,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16 - 21 % 16 + 16,
                "That's as if a third block were read. Count how far the second block reaches past row 21.",
            ),
        ),
        nudge="Two blocks are rows 0 to 31. Where does split 1 begin?",
        why="Split 0 reads rows 0 to 31, and rows 21 to 31 belong to split 1.",
    ),
    Question(
        id="ch12-q5",
        asks="Four float32 parts, added in 24 orders: how many different sums can one element have at most?",
        right=_results,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 24, "Some of these orders start with the same sum of two parts."),
            Nudge(lambda v, r: v == 1, "That would be true if additions were exact."),
        ),
        nudge="Which two orders make exactly the same additions?",
        why="Only the first two parts of an order can change places.",
    ),
    Question(
        id="ch12-q6",
        asks="K = 83 in blocks of 32, rows wrapped around: how many rows are counted twice?",
        right=_counted_again,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 83 % 32,
                "That's how many rows belong to the last iteration. What do its other lanes load?",
            ),
            Nudge(
                lambda v, r: v == 32,
                "Not all lanes of the last iteration wrap around: some of their rows exist.",
            ),
        ),
        nudge="How many lanes do three iterations have together, and how many rows exist for them?",
        why="Three iterations have 96 lanes along K, so the last 13 wrap around to rows 0 to 12.",
    ),
    Question(
        id="ch12-q7",
        asks="In how many of puzzle 19's six cases does one group per tile give the correct result?",
        right=_one_group_a_tile,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 3,
                "A group longer than a tile can end inside one, too. Look at GROUP=96 and tiles of 64.",
            ),
            Nudge(
                lambda v, r: v == 0,
                "If groups and tiles end together, every tile is in one group. Is there such a case?",
            ),
        ),
        nudge="For each row of the table, mark where groups end and where tiles end.",
        why="Groups end where tiles end only in cases 0 and 5, where GROUP is BLOCK_N.",
    ),
    Question(
        id="ch12-q8",
        asks="In which cases of puzzle 20 do you notice that empty splits write nothing? Answer with a set.",
        right=_empty_splits,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: v and v < r,
                "Correct so far, but there is one more. Count the blocks of each case and deal them out.",
            ),
            Nudge(
                lambda v, r: v > r,
                "Both cases with an empty split are in your set, but not all of the others have one: a short "
                "split still has rows, and stores their sum.",
            ),
        ),
        nudge="Blocks: K / BLOCK_K, rounded up. Each share: blocks / SPLITS, rounded up. Who gets none?",
        why="Case 2 has 6 blocks for 4 splits of 2. Case 5 has a single block for 3 splits.",
    ),
    Question(
        id="ch12-q9",
        asks="65536 registers, programs of 8 warps: how many may a thread use, so that two programs fit?",
        right=_registers_for_two,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2 * r, "With that many, one program takes all the registers."),
            Nudge(lambda v, r: v == 32 * r, "That's for a whole warp, which has 32 threads."),
        ),
        nudge="How many threads do two programs have? They all share the registers.",
        why="Two programs have 512 threads, and 65536 / 512 = 128.",
    ),
    Question(
        id="ch12-q10",
        asks="Packed along K at 2 bits: which row k is field 3 of word [b, r, n] = [1, 5, n]?",
        right=_row_of_field,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16 * 8 + 8 * 5 + 3,
                "That treats a word as 8 neighbors. Here the 16 rows of one field are next to each other.",
            ),
            Nudge(lambda v, r: v == 16 * 3 + 5, "That's its place within a block. This word is in block 1."),
            Nudge(lambda v, r: v == 16 * 16 + 16 * 3 + 5, "A word has 16 bits, so 8 fields."),
        ),
        nudge="Use k = 16 · F · b + 16 · j + r, with b and r from the word's place.",
        why="Block 0 has 128 rows, and fields 0 to 2 have 48. Row 5 of field 3 comes after them.",
    ),
    Question(
        id="ch12-q11",
        asks="Autotune times a kernel that adds to dw, on a dw of zeros. Is dw correct afterwards?",
        right=_correct_after_tuning,
        kind=bool,
        nudge="Every timed launch is a real one. What does the second launch find in dw?",
        why="All launches add to the same dw.",
    ),
)
