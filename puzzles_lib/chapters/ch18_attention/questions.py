"""The predictions of chapter 18."""

import itertools
import math

import torch
import triton

from puzzles_lib.chapters.ch18_attention.pictures import bytes_kept
from puzzles_lib.chapters.ch18_attention.puzzles import WINDOW_ATTENTION
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.recorded import rows

FLOPS_A_CYCLE, EXP2_A_CYCLE = 4096, 16
"""Per cycle and multiprocessor of an H100 or H200: bfloat16 on tensor cores, and exponentials."""


def _times_the_bytes() -> float:
    found = bytes_kept(4096, 128)
    return found["p"] / found["q, k, v, o"]


def _in_bfloat16(value: float) -> bool:
    return float(torch.tensor(value, dtype=torch.float64).bfloat16()) == value


def _ones() -> float:
    total, one = torch.zeros((), dtype=torch.bfloat16), torch.ones((), dtype=torch.bfloat16)
    for _ in range(1000):
        total = total + one
    return float(total)


def _visited(first: int = 2048, block: int = 64, W: int = 512) -> int:
    """Return how many blocks of keys the program visits whose queries begin at ``first``."""
    begin = (first - W + 1) // block * block
    return triton.cdiv(first + block - begin, block)


def _blind() -> set[int]:
    """Return the first nine cases in which a query sees no key of the block visited first."""
    found = set()
    for number, case in enumerate(WINDOW_ATTENTION.cases[:9]):
        for start in range(0, case.T, case.BLOCK_Q):
            begin = max(start - case.W + 1, 0) // case.BLOCK_K * case.BLOCK_K
            last = min(start + case.BLOCK_Q, case.T) - 1
            if last - case.W + 1 >= begin + case.BLOCK_K:
                found.add(number)
    return found


def _lse() -> float:
    return math.log(8 * math.exp(0.0))


def _head_of(h: int = 6, H: int = 12, H_KV: int = 3) -> int:
    return h // (H // H_KV)


def _programs(lengths: tuple[int, ...] = (20, 16, 0, 50), block: int = 16) -> tuple[int, int]:
    """Return the programs per head in the grid, and how many have something to do."""
    each = [triton.cdiv(length, block) for length in lengths]
    return len(each) * max(each), sum(each)


def _seen_by_the_first(queries: int = 5, keys: int = 20) -> int:
    return keys - queries + 1


def _transposed() -> set[str]:
    """Return the gradients, of those of q, k and v, that a product with a transposed matrix gives."""
    q, k, v, do = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    s = (q @ k.T).requires_grad_()
    p, leaves = torch.randn(5, 5, dtype=torch.float64), [each.requires_grad_() for each in (q, k, v)]
    ds = torch.ones_like(s).cumsum(1)
    dq, dk = torch.autograd.grad(q @ k.T, leaves[:2], ds)
    (dv,) = torch.autograd.grad(p @ v, leaves[2], do)
    plain = {"dq": (dq, ds @ k), "dk": (dk, ds @ q), "dv": (dv, p @ do)}
    return {name for name, (right, product) in plain.items() if not torch.allclose(right, product)}


def _ds() -> float:
    p, dp = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([8.0, 0.0, 4.0])
    return float((p * (dp - (p * dp).sum()))[0])


KEPT = ("q", "k", "v", "o", "do", "lse")


def _two_of_delta() -> set[str]:
    """Return the two tensors whose rows' dot products are the sums of p · dp over a row."""
    q, k, v, do = torch.randn(4, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = q @ k.T / 2
    p, lse = scores.softmax(1), scores.logsumexp(1, keepdim=True).expand(6, 4)
    memory = dict(zip(KEPT, (q, k, v, p @ v, do, lse), strict=True))
    delta = (p * (do @ v.T)).sum(1)
    pairs = itertools.combinations(KEPT, 2)
    (found,) = [each for each in pairs if torch.allclose((memory[each[0]] * memory[each[1]]).sum(1), delta)]
    return set(found)


def _products() -> float:
    forward = len(["q kᵀ", "p v"])
    dq, dkv = ["q kᵀ", "do vᵀ", "ds k"], ["k qᵀ", "v doᵀ", "pᵀ do", "dsᵀ q"]
    return (len(dq) + len(dkv)) / forward


def _with_heads(T: int = 4096, block: int = 64, H: int = 16, H_KV: int = 4) -> int:
    return H // H_KV * triton.cdiv(T, block)


def _zero_times_infinity() -> str:
    return "nan" if math.isnan(0.0 * float(torch.exp(torch.tensor(300.0)))) else "0"


def _balanced_d() -> float:
    """Return the D for which the 4 D operations of a score take as many cycles as its exponential."""
    return FLOPS_A_CYCLE / EXP2_A_CYCLE / 4


def _registers(rows_: int = 64, D: int = 128, threads: int = 128) -> int:
    return 2 * rows_ * D // threads


def _rows_of_nan(first: int = 20, end: int = 36, rows_: int = 86) -> tuple[int, int]:
    """Return the rows of o that see a row of v from first up to end: in their own text, and in all texts."""
    return end - first, rows_ - first


def _of_the_next(length: int = 100, block: int = 64) -> int:
    return triton.cdiv(length, block) * block - length


def _tiles_of_the_last(T: int = 4096, queries: int = 128, keys: int = 64) -> tuple[int, int]:
    """Return how many tiles of the last program are whole, and how many are cut by the diagonal."""
    whole = (T - queries + 1) // keys
    return whole, triton.cdiv(T, keys) - whole


def against(baseline: str, part: str, D: int, mask: str, T: int = 4096) -> float:
    """Return the recorded speed of this library's kernel relative to cuDNN or flash-attention."""
    case = f"D = {D}, {mask}, T = {T}"
    (found,) = [
        row["ratio"]
        for row in rows("attention")
        if (row["case"], row["path"], row["baseline"]) == (case, part, baseline)
    ]
    return found


QUESTIONS = (
    Question(
        id="ch18-q1",
        asks="With T = 4096, D = 128 and bfloat16, how many times as many bytes as q, k, v and o "
        "together does "
        "p take?",
        right=_times_the_bytes,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 32,
                "p has 32 times the bytes of one of the four tensors. The question is about all four "
                "together.",
            ),
            Nudge(lambda v, r: v < 1, "p is the larger one, so the answer is more than 1."),
        ),
        nudge="Per head, p has T · T numbers, and q, k, v and o have 4 · T · D numbers together.",
    ),
    Question(
        id="ch18-q2",
        asks="With W = 512 and blocks of 64, how many blocks of keys does the program of queries 2048 to "
        "2111 "
        "visit?",
        right=_visited,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 33,
                "There are 33 blocks up to the diagonal. But the window begins later. Where?",
            ),
            Nudge(
                lambda v, r: v == 8,
                "8 blocks hold a window of 512 for a single query. But the program has 64 queries.",
            ),
            Nudge(
                lambda v, r: v == 10,
                "The first query's first key is 1537, which is in block 24. Count from block 24 to the last.",
            ),
        ),
        nudge="The first query's first key is 2048 - 511. The last query's last key is its own, 2111.",
    ),
    Question(
        id="ch18-q3",
        asks="A query sees 8 keys, and all its scores are 0. What is lse (within 1%)?",
        right=_lse,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.01 * right,
        nudges=(
            Nudge(lambda v, r: v == 8, "8 is the sum of the exponentials. lse is its logarithm."),
            Nudge(lambda v, r: v == 3, "3 is the logarithm to base 2. lse uses the natural logarithm."),
        ),
        nudge="Add up exp(0) eight times, and take the logarithm of the sum.",
    ),
    Question(
        id="ch18-q4",
        asks="We add 1 a thousand times to a bfloat16 that starts at 0. What is the result?",
        right=_ones,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 1000,
                "bfloat16 has the number 1000: it's 125 · 8. But the sum grows in steps of 1. Is there a "
                "number on the way at which adding 1 changes nothing?",
            ),
            Nudge(
                lambda v, r: not _in_bfloat16(v),
                "That number needs more than eight binary digits, so a bfloat16 can't be equal to it.",
            ),
        ),
        nudge="At some number, the next bfloat16 is more than 1 away, so adding 1 rounds back. Which number?",
    ),
    Question(
        id="ch18-q5",
        asks="In which of the cases 0 to 8 does some query see no key of the first block its program visits? "
        "Answer with a set.",
        right=_blind,
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v, "Look for a window that's much smaller than a block of queries."),
            Nudge(lambda v, r: 0 in v, "Case 0 has only one block of keys, and every query sees some of it."),
            Nudge(lambda v, r: v < r, "Your cases are right, but there is at least one more."),
        ),
        nudge="Take the last query of a program. Is its first key, i - W + 1, past the end of the first "
        "block?",
    ),
    Question(
        id="ch18-q6",
        asks="With H = 12 and H_KV = 3, which head of k and v does head 6 of q use?",
        right=_head_of,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 0,
                "0 is 6 % 3, which would assign the heads in turn. But neighbors share a head.",
            ),
            Nudge(
                lambda v, r: v == 2,
                "2 is 6 // 3. But 3 is the number of groups, not the size of a group.",
            ),
        ),
        nudge="Neighbors share a head of k and v. How many heads of q are in one group?",
    ),
    Question(
        id="ch18-q7",
        asks="For lengths 20, 16, 0 and 50 and BLOCK_Q = 16, how many programs does the grid have per "
        "head, and "
        "how many have something to do? Answer with a pair.",
        right=_programs,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (in the grid, with something to do)."),
            Nudge(lambda v, r: v == r[::-1], "These are the right two numbers, but in the wrong order."),
            Nudge(
                lambda v, r: v[0] != r[0],
                "Every text gets as many blocks in the grid as the longest needs.",
            ),
            Nudge(
                lambda v, r: v[1] == 4,
                "The longest text alone needs 4 programs. How many do the other texts need?",
            ),
            Nudge(
                lambda v, r: v[1] == 6,
                "86 rows would fit into 6 blocks of 16. But a block never has rows of two texts.",
            ),
        ),
        nudge="Divide each length by 16 and round up.",
    ),
    Question(
        id="ch18-q8",
        asks="A text has 5 queries and 20 keys, and the last query sees the last key. How many keys does the "
        "first query see?",
        right=_seen_by_the_first,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "That would be right if query 0 lined up with key 0. But the ends line up here.",
            ),
            Nudge(
                lambda v, r: v == 15,
                "15 keys come before the first query's own key. It sees its own key, too.",
            ),
        ),
        nudge="The fifth query sees all 20 keys, and the fourth sees one less.",
    ),
    Question(
        id="ch18-q9",
        asks="Which of dq, dk and dv are products with a transposed matrix of T by T? Answer with a set.",
        right=_transposed,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: not v <= {"dq", "dk", "dv"},
                "Answer with a set of names from 'dq', 'dk' and 'dv'.",
            ),
            Nudge(
                lambda v, r: "dq" in v,
                "dq sums over keys, along the rows of ds, as o sums along the rows of p.",
            ),
            Nudge(
                lambda v, r: len(v) == 1, "That one is, but there is another gradient that sums over queries."
            ),
        ),
        nudge="In p, a row is a query, and a column is a key. Which gradients sum over queries?",
    ),
    Question(
        id="ch18-q10",
        asks="p = (0.5, 0.25, 0.25) and dp = (8, 0, 4). What is the first element of ds?",
        right=_ds,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 4,
                "4 is p · dp. If this score rises, what happens to the other weights?",
            ),
            Nudge(
                lambda v, r: v == 3, "3 is nearly it: one factor is missing, the weight of the raised score."
            ),
            Nudge(lambda v, r: v == 8, "8 is dp itself. By how much does each of the three weights change?"),
        ),
        nudge="Raise the first score: by the formula, how does each of the three weights change? The "
        "loss changes dp times as much as each weight. Add up the three.",
    ),
    Question(
        id="ch18-q11",
        asks="delta is a product of two tensors that are in memory: which two of q, k, v, o, do and lse? "
        "Answer with a set.",
        right=_two_of_delta,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: len(v) != 2 or not v <= set(KEPT),
                "Answer with a set of two names from q, k, v, o, do and lse.",
            ),
            Nudge(lambda v, r: "v" in v, "v_j depends on j, and the sum over j is still to be taken."),
            Nudge(
                lambda v, r: "do" not in v,
                "do_i is a factor of each term, and it doesn't depend on j. So it can leave the sum.",
            ),
        ),
        nudge="What remains in the sum is p times v. Which step of the forward pass computes it?",
    ),
    Question(
        id="ch18-q12",
        asks="The forward pass has two products. How many times as much work is the backward pass with two "
        "kernels?",
        right=_products,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 2.5,
                "That's right if s and dp are computed once. But here each kernel computes its own.",
            ),
            Nudge(
                lambda v, r: v == 2,
                "2 is right for a linear layer. But here s has to be recomputed.",
            ),
            Nudge(
                lambda v, r: v == 7,
                "The backward pass has 7 products. How many times the forward pass's number is that?",
            ),
        ),
        nudge="In the picture, count the products that lead to dq. Then count those that lead to dk and "
        "dv, from "
        "the start.",
    ),
    Question(
        id="ch18-q13",
        asks="What is exp(300) in float32, multiplied by a mask's 0? Answer with a string.",
        right=_zero_times_infinity,
        kind=str,
        nudges=(
            Nudge(lambda v, r: v in ("inf", "infinity"), "exp(300) is inf. What is inf times 0?"),
            Nudge(lambda v, r: v in ("0", "0.0"), "0 would be right if exp(300) were a finite number."),
        ),
        nudge="Even exp(89) is too large for float32. What does it become?",
    ),
    Question(
        id="ch18-q14",
        asks="With H = 16 and H_KV = 4, how many tiles does the first program of dk and dv walk?",
        right=_with_heads,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 64,
                "64 tiles is right for one head of q. How many heads use these keys?",
            ),
            Nudge(
                lambda v, r: v == 1024,
                "1024 tiles is all 16 heads of q. But only some of them use these keys.",
            ),
        ),
        nudge="Every head of q in the group walks the queries once. How many heads are in a group?",
    ),
    Question(
        id="ch18-q15",
        asks="dk and dv of 64 keys with D = 128 are float32, spread over 128 threads. How many registers per "
        "thread is that?",
        right=_registers,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 64, "64 registers hold only one of the two tiles."),
            Nudge(lambda v, r: v == 512, "512 is the number of bytes. A register has 4 bytes."),
        ),
        nudge="There are two tiles, with one number per register, spread over all threads of four warps.",
    ),
    Question(
        id="ch18-q17",
        asks="The values of rows 20 to 35 of 86 are NaN. How many rows of o are NaN with cu_seqlens, and how "
        "many without? Answer with a pair.",
        right=_rows_of_nan,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (with cu_seqlens, without)."),
            Nudge(lambda v, r: v == r[::-1], "These are the right two numbers, but in the wrong order."),
            Nudge(
                lambda v, r: v[0] != r[0],
                "With cu_seqlens, only the second text itself sees these rows.",
            ),
            Nudge(
                lambda v, r: v[1] == 86,
                "The mask is causal, so rows before row 20 don't see the second text.",
            ),
            Nudge(
                lambda v, r: v[1] == 50,
                "50 rows come after the second text. But its own rows are NaN, too.",
            ),
        ),
        nudge="Row 20 is seen by itself and, without cu_seqlens, by every row after it.",
    ),
    Question(
        id="ch18-q18",
        asks="Texts of 100 and 60 rows are loaded in tiles of 64 keys by one descriptor. How many rows "
        "of the "
        "second text are in the first text's last tile?",
        right=_of_the_next,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 0,
                "A descriptor knows where the tensor ends. Does it know where a text ends?",
            ),
            Nudge(lambda v, r: v == 36, "36 rows of the last tile belong to the first text."),
            Nudge(lambda v, r: v == 60, "The tile ends before the second text does."),
        ),
        nudge="The last tile begins at row 64. How many of its rows are past row 99?",
    ),
    Question(
        id="ch18-q20",
        asks="With T = 4096, a causal mask and tiles of 128 queries by 64 keys, how many tiles of the last "
        "program are whole, and how many are cut? Answer with a pair.",
        right=_tiles_of_the_last,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (whole, cut)."),
            Nudge(lambda v, r: v == r[::-1], "These are the right two numbers, but in the wrong order."),
            Nudge(
                lambda v, r: sum(v) != sum(r),
                "The last program walks all 4096 keys, 64 at a time. How many tiles is that in total?",
            ),
            Nudge(
                lambda v, r: v[1] == 1,
                "One cut tile is right if a tile has as many queries as keys. Here it has twice as many.",
            ),
        ),
        nudge="The program's first query is 3968. Which of the last keys doesn't it see?",
    ),
    Question(
        id="ch18-q21",
        asks="Per cycle, there are 4096 floating-point operations on tensor cores and 16 exponentials. "
        "For which "
        "D do the products of a score take as long as its exponential?",
        right=_balanced_d,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 256,
                "256 operations take as long as one exponential. A score needs 2 · D of them in each of two "
                "products.",
            ),
            Nudge(lambda v, r: v == 128, "The forward pass has two products, not one."),
        ),
        nudge="A score needs 2 · D operations in q · k and another 2 · D in p · v.",
    ),
)
