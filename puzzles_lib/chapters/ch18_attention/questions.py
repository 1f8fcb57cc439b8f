"""The predictions of chapter 18."""

import itertools
import math

import torch
import triton

from puzzles_lib.bench.recorded import rows
from puzzles_lib.chapters.ch18_attention.pictures import bytes_kept, times
from puzzles_lib.chapters.ch18_attention.puzzles import WINDOW_ATTENTION
from puzzles_lib.question import Nudge, Question

FLOPS_A_CYCLE, EXP2_A_CYCLE = 4096, 16
"""Of a multiprocessor of an H100 or H200: tensor cores in bfloat16, and the unit for exponentials."""


def _times_the_bytes() -> float:
    found = bytes_kept(4096, 128)
    return found["p"] / found["q, k, v, o"]


def _ones() -> float:
    total, one = torch.zeros((), dtype=torch.bfloat16), torch.ones((), dtype=torch.bfloat16)
    for _ in range(1000):
        total = total + one
    return float(total)


def _visited(first: int = 2048, block: int = 64, W: int = 512) -> int:
    """Blocks of keys of the program whose queries begin at ``first``."""
    begin = (first - W + 1) // block * block
    return triton.cdiv(first + block - begin, block)


def _blind() -> set[int]:
    """Cases, of those that are asked about, in which a query sees no key of the block visited first."""
    found = set()
    for number, case in enumerate(WINDOW_ATTENTION.cases[:8]):
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
    """Programs of a head that the grid has, and those that have something to do."""
    each = [triton.cdiv(length, block) for length in lengths]
    return len(each) * max(each), sum(each)


def _seen_by_the_first(queries: int = 5, keys: int = 20) -> int:
    return keys - queries + 1


def _ds() -> float:
    p, dp = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([8.0, 0.0, 4.0])
    return float((p * (dp - (p * dp).sum()))[0])


def _products() -> float:
    forward = len(["q kᵀ", "p v"])
    dq, dkv = ["q kᵀ", "do vᵀ", "ds k"], ["k qᵀ", "v doᵀ", "pᵀ do", "dsᵀ q"]
    return (len(dq) + len(dkv)) / forward


def _first_programs(T: int = 4096, block: int = 64) -> tuple[int, int]:
    """Tiles that the first program of dq walks, and of dk and dv."""
    dq = triton.cdiv(min(block, T), block)
    dkv = triton.cdiv(T, block)
    return dq, dkv


def _with_heads(T: int = 4096, block: int = 64, H: int = 16, H_KV: int = 4) -> int:
    return H // H_KV * triton.cdiv(T, block)


def _zero_times_infinity() -> str:
    return "nan" if math.isnan(0.0 * float(torch.exp(torch.tensor(300.0)))) else "0"


def _balanced_d() -> float:
    """Head dim for which products and exponentials of a score take the same cycles: 4 D FLOPs, one exp2."""
    return FLOPS_A_CYCLE / EXP2_A_CYCLE / 4


def _registers(rows_: int = 64, D: int = 128, threads: int = 128) -> int:
    return 2 * rows_ * D // threads


def _starts(lengths: tuple[int, ...] = (20, 16, 0, 50)) -> tuple[int, ...]:
    return (0, *itertools.accumulate(lengths))


def _rows_of_nan(first: int = 20, end: int = 36, rows_: int = 86) -> tuple[int, int]:
    """Rows of o that see a row of v from first up to end, causal: of their own text alone, and of all."""
    return end - first, rows_ - first


def _of_the_next(length: int = 100, block: int = 64) -> int:
    return triton.cdiv(length, block) * block - length


def _wrong_scales(scores: tuple[int, ...] = (1, 2, 5)) -> set[int]:
    return {scale for scale in (4, 1, 0, -1) if max(s * scale for s in scores) != max(scores) * scale}


def _tiles_of_the_last(T: int = 4096, queries: int = 128, keys: int = 64) -> tuple[int, int]:
    """Tiles of keys, causal, that all queries of the last program see in full, and the others it visits."""
    whole = (T - queries + 1) // keys
    return whole, triton.cdiv(T, keys) - whole


def _megabytes(heads: int = 8, T: int = 4096, D: int = 128) -> float:
    return heads * bytes_kept(T, D, heads=1)["q, k, v, o"] / 2 / 2**20


NAMES = {"the library": "ours", "cuDNN": "cuDNN", "flash": "flash"}


def _faster_than_the_puzzle() -> set[str]:
    found = times(rows("attention"), "D = 128, causal, T = 4096")["forward"]
    return {name for name, path in NAMES.items() if found[path] < found["puzzles"]}


def _share_of_the_window() -> float:
    (found,) = [row for row in rows("attention") if "window 1024" in row["case"] and row["path"] == "forward"]
    return found["us"] / found["baseline_us"]


def against(baseline: str, part: str, D: int, mask: str, T: int = 4096) -> float:
    """Recorded: how fast the library's kernel is, cuDNN or flash being 1."""
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
        asks="T = 4096, D = 128, bfloat16: how many times the bytes of q, k, v and o together are those "
        "of p?",
        right=_times_the_bytes,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 32, "that is beside one of the four tensors"),
            Nudge(lambda v, r: v < 1, "which of the two is larger?"),
        ),
        nudge="a head: T · T numbers for p, and 4 · T · D for the others",
    ),
    Question(
        id="ch18-q2",
        asks="W = 512 and blocks of 64: how many blocks of keys does the program of queries 2048 to "
        "2111 visit?",
        right=_visited,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 33, "those are all up to the diagonal: where does the window begin?"),
            Nudge(lambda v, r: v == 8, "a window of 512 for one query; but there are 64 of them"),
            Nudge(lambda v, r: v == 10, "the first query's first key is 1537, in block 24: counted once"),
        ),
        nudge="the first query's first key is 2048 - 511; the last query's last key is its own",
    ),
    Question(
        id="ch18-q3",
        asks="A query sees 8 keys, and all its scores are 0. What is lse (within 1%)?",
        right=_lse,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.01 * right,
        nudges=(
            Nudge(lambda v, r: v == 8, "that is the sum; lse is its logarithm"),
            Nudge(lambda v, r: v == 3, "that is to base 2"),
        ),
        nudge="log of the sum of exp(0), eight times",
    ),
    Question(
        id="ch18-q4",
        asks="1 is added a thousand times to a bfloat16 that begins at 0. Where does it end?",
        right=_ones,
        kind=float,
        nudges=(Nudge(lambda v, r: v == 1000, "that wants ten binary digits, and bfloat16 has eight"),),
        nudge="from where on is the next number that bfloat16 has more than 1 away, so that + 1 rounds back?",
    ),
    Question(
        id="ch18-q5",
        asks="In which of the cases 0 to 7 does some query see no key of the block that its program visits "
        "first? A set.",
        right=_blind,
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v, "look at a window that is much smaller than a block of queries"),
            Nudge(lambda v, r: 0 in v, "case 0 has one block of keys, and all see some of it"),
            Nudge(lambda v, r: v < r, "there is at least one more"),
        ),
        nudge="the last query of a program: is i - W + 1 past the end of the first block?",
    ),
    Question(
        id="ch18-q6",
        asks="H = 12, H_KV = 3: with which head of k and v does head 6 of q go?",
        right=_head_of,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 0, "6 % 3: that deals them out in turn"),
            Nudge(lambda v, r: v == 2, "6 // 3: but 3 is how many groups there are, not how large one is"),
        ),
        nudge="neighbours share: how many heads of q has a group?",
    ),
    Question(
        id="ch18-q7",
        asks="Lengths 20, 16, 0 and 50, BLOCK_Q = 16: how many programs has the grid for a head, and how "
        "many of them have something to do? A pair.",
        right=_programs,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (in the grid, with something to do)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
            Nudge(lambda v, r: v[0] != r[0], "each text has as many blocks in the grid as the longest needs"),
            Nudge(lambda v, r: v[1] == 4, "so many has the longest; and the others?"),
            Nudge(lambda v, r: v[1] == 6, "86 rows in blocks of 16; but no block holds rows of two texts"),
        ),
        nudge="each length in blocks of 16, rounded up",
    ),
    Question(
        id="ch18-q8",
        asks="5 queries, 20 keys, and the last query sees the last key: how many keys does the first "
        "query see?",
        right=_seen_by_the_first,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1, "that would be so if the first saw the first alone"),
            Nudge(lambda v, r: v == 15, "so many come before its own; and its own?"),
        ),
        nudge="the fifth sees 20, the fourth one less",
    ),
    Question(
        id="ch18-q9",
        asks="p = (0.5, 0.25, 0.25) and dp = (8, 0, 4): what is the first element of ds?",
        right=_ds,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 4, "p · dp: and if that score rises, what do the others do?"),
            Nudge(lambda v, r: v == 3, "dp - delta: it wants the weight as well"),
            Nudge(lambda v, r: v == 8, "that is dp itself"),
        ),
        nudge="delta is the sum of p · dp over the row",
    ),
    Question(
        id="ch18-q10",
        asks="Forward has two products. How many times as much work is backward, in two kernels?",
        right=_products,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 2.5, "so it is if s and dp are made once; here each kernel makes its own"
            ),
            Nudge(lambda v, r: v == 2, "as for a linear layer; but s is computed again"),
            Nudge(lambda v, r: v == 7, "so many products; beside how many?"),
        ),
        nudge="count in the picture what leads to dq, then what leads to dk and dv, each from the start",
    ),
    Question(
        id="ch18-q11",
        asks="T = 4096, blocks of 64, causal: how many tiles does the first program of dq walk, and the "
        "first "
        "of dk and dv? A pair.",
        right=_first_programs,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (of dq, of dk and dv)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round: who sees the first key?"),
        ),
        nudge="in the picture: the first row, and the first column",
    ),
    Question(
        id="ch18-q12",
        asks="exp(300) in float32, times a mask's 0: what is it, as text?",
        right=_zero_times_infinity,
        kind=str,
        nudges=(
            Nudge(lambda v, r: v in ("inf", "infinity"), "and times 0?"),
            Nudge(lambda v, r: v in ("0", "0.0"), "it would be, for a number"),
        ),
        nudge="exp(89) is already too large for float32",
    ),
    Question(
        id="ch18-q13",
        asks="H = 16, H_KV = 4: and how many tiles does the first program of dk and dv walk now?",
        right=_with_heads,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 64, "so many for one head of q"),
            Nudge(lambda v, r: v == 1024, "so many for all heads of q; not all go with this one"),
        ),
        nudge="its keys are seen by every head of its group",
    ),
    Question(
        id="ch18-q14",
        asks="dk and dv of 64 keys with D = 128, float32, in 128 threads: how many registers of a thread?",
        right=_registers,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 64, "for one of the two"),
            Nudge(lambda v, r: v == 512, "those are bytes: a register has 4"),
        ),
        nudge="two tiles, a number to a register, dealt out to all threads of four warps",
    ),
    Question(
        id="ch18-q15",
        asks="Texts of 20, 16, 0 and 50 rows, one behind another: what is cu_seqlens? A tuple.",
        right=_starts,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == (20, 16, 0, 50), "those are the lengths; cu says where texts begin"),
            Nudge(lambda v, r: v in (r[:-1], r[1:]), "one number more than texts: both ends are in it"),
            Nudge(lambda v, r: len(v) != len(r), "one number more than there are texts"),
            Nudge(lambda v, r: len(set(v)) == len(v), "an empty text ends where it begins"),
        ),
        nudge="begin at 0, and add one length after the other",
    ),
    Question(
        id="ch18-q16",
        asks="The values of rows 20 to 35 of 86 are NaN: how many rows of o are, with cu_seqlens, and if it "
        "is forgotten? A pair.",
        right=_rows_of_nan,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (with cu_seqlens, without)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
            Nudge(lambda v, r: v[0] != r[0], "told where texts are, only the text itself sees them"),
            Nudge(lambda v, r: v[1] == 86, "causal: what comes before row 20 does not see it"),
            Nudge(lambda v, r: v[1] == 50, "those after the text; and the text itself?"),
        ),
        nudge="who sees row 20? Itself, and every row after it that is not told otherwise",
    ),
    Question(
        id="ch18-q17",
        asks="Texts of 100 and 60 rows, tiles of 64 keys by a descriptor: how many rows of the second text "
        "are in the first one's last tile?",
        right=_of_the_next,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 0, "a descriptor knows where the tensor ends. Does it know of texts?"),
            Nudge(lambda v, r: v == 36, "so many are its own"),
            Nudge(lambda v, r: v == 60, "the tile ends before the second text does"),
        ),
        nudge="the last tile begins at row 64: how many of its rows are past row 99?",
    ),
    Question(
        id="ch18-q18",
        asks="For which of the scales 4, 1, 0 and -1 is the scaled maximum not the maximum of the scaled "
        "scores? A set.",
        right=_wrong_scales,
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v, "turn the order of the scores around: which scale does that?"),
            Nudge(lambda v, r: 0 in v, "times 0 all are 0: their maximum, and the maximum times 0"),
        ),
        nudge="try it on the scores 1, 2 and 5",
    ),
    Question(
        id="ch18-q19",
        asks="T = 4096, causal, 128 queries by 64 keys: how many tiles of the last program are whole, and "
        "how many are cut? A pair.",
        right=_tiles_of_the_last,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (whole, cut)"),
            Nudge(lambda v, r: v == r[::-1], "the other way round"),
            Nudge(lambda v, r: sum(v) != sum(r), "it walks all 4096 keys, 64 at a time"),
            Nudge(lambda v, r: v[1] == 1, "so it is where a tile has as many queries as keys"),
        ),
        nudge="its first query is 3968: which keys does it not see?",
    ),
    Question(
        id="ch18-q20",
        asks="How many MB (of 2^20 bytes) do eight heads' keys and values take, T = 4096, D = 128, bfloat16?",
        right=_megabytes,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == r / 2, "keys alone, or numbers of one byte"),
            Nudge(lambda v, r: v == 2 * r, "each number has two bytes"),
            Nudge(lambda v, r: v == r / 8, "that is one head's"),
        ),
        nudge="two tensors, eight heads, 4096 rows of 128 numbers, two bytes each",
    ),
    Question(
        id="ch18-q21",
        asks="D = 128, causal, T = 4096, forward: which are faster than puzzle 35: the library, cuDNN, "
        "flash? A set of names.",
        right=_faster_than_the_puzzle,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: not v <= {name.casefold() for name in NAMES},
                f"the names are {', '.join(map(repr, NAMES))}",
            ),
            Nudge(lambda v, r: "flash" in v, "one of them is from before Hopper"),
            Nudge(lambda v, r: not v, "yours has no TMA, and masks in every tile"),
        ),
        nudge="who uses what is new on this chip?",
    ),
    Question(
        id="ch18-q22",
        asks="4096 floating-point operations a cycle on tensor cores, 16 exponentials: for which D do a "
        "score's products take as long as its exponential?",
        right=_balanced_d,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 256, "so many operations; a score has 2 D of them in each of two products"
            ),
            Nudge(lambda v, r: v == 128, "forward has two products"),
        ),
        nudge="a score: 2 D operations in q · k, 2 D in p · v",
    ),
    Question(
        id="ch18-q23",
        asks="A window of 1024 of T = 16384: what part of the time of a causal mask alone does forward take "
        "(within 0.05)?",
        right=_share_of_the_window,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.05,
        nudges=(
            Nudge(lambda v, r: v < r, "by the pairs alone; but a short walk has a beginning and an end too"),
            Nudge(lambda v, r: v >= 1, "a part of it, less than 1"),
        ),
        nudge="a little more than the share of the pairs that it sees",
    ),
)
