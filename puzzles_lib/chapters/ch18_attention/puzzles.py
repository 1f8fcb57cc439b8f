"""Chapter 18: attention as it's used in production, forward and backward."""

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace

import torch
import triton
from jaxtyping import BFloat16, Float32, Int32
from torch import Tensor

from puzzles_lib.contract import Contract, Fill, Size
from puzzles_lib.dtypes import of_torch
from puzzles_lib.inputs import LIGHT, falling, in_all_columns, in_column_0, ones, rising
from puzzles_lib.puzzle import Case, Puzzle

BFLOAT16 = of_torch(torch.bfloat16).roundoff
"""The largest relative error of rounding to bfloat16."""

# ---- inputs that break wrong kernels


def far_out(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 8: scores in the hundreds, whose exp() overflows float32."""
    return (8 * torch.randn(shape, generator=generator)).to(dtype)


def times_two(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times 2: only a few weights of a row aren't tiny."""
    return (2 * torch.randn(shape, generator=generator)).to(dtype)


def around_six(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values around 6."""
    return (6 + torch.randn(shape, generator=generator) / 4).to(dtype)


def around_minus_six(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values around -6: scores far below 0, whose exp() underflows float32."""
    return (-6 + torch.randn(shape, generator=generator) / 4).to(dtype)


def both_ways(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows around 30 and around -30 in turn: the sum of a row over √D is far from 0."""
    signs = torch.where(torch.arange(shape[-2]) % 2 == 0, 1, -1)[:, None]
    return (signs * (30 + torch.randn(shape, generator=generator))).to(dtype)


def alike(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values from 1 to 1.25: their sum only grows, so a bfloat16 sum soon stops changing."""
    return (1 + torch.rand(shape, generator=generator) / 4).to(dtype)


def lengths(*each: int) -> Fill:
    """Return a fill with the cumulative lengths of packed texts: (5, 0, 2) gives [0, 5, 5, 7]."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.tensor([0, *each], dtype=dtype).cumsum(0, dtype=dtype)

    runs = [(length, len(list(some))) for length, some in itertools.groupby(each)]
    texts = [f"{n}x{length}" if n > 2 else "_".join([str(length)] * n) for length, n in runs]
    fill.__name__ = "lengths_" + "_".join(texts)
    return fill


def spoilt_from(row: int) -> Fill:
    """Return a fill of normal values with NaN from this row on."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        values = torch.randn(shape, generator=generator)
        values[row:] = torch.nan
        return values.to(dtype)

    fill.__name__ = f"nan_from_row_{row}"
    return fill


# ---- puzzle 35


def window_attention(
    q: BFloat16[Tensor, "H T D"],
    k: BFloat16[Tensor, "H T D"],
    v: BFloat16[Tensor, "H T D"],
    W: int,
) -> tuple[BFloat16[Tensor, "H T D"], Float32[Tensor, "H T"]]:
    """o[h, i] = Σ_j p[h, i, j] · v[h, j] and lse[h, i] = log Σ_j exp(s[h, i, j])

    with s[h, i, j] = q[h, i] · k[h, j] / √D and p = exp(s - lse). Query i sees the W
    keys up to its own: i - W < j ≤ i. W is at least 1, and D is a power of two, at
    least 16. Scores, sums and lse are float32. Round p to bfloat16 for the second
    tl.dot, and only there. The tensors can have 2^31 elements or more. Skip blocks of
    keys that no query of a program sees.
    """
    s = _scores(q, k, W)
    return s.softmax(2) @ v, s.logsumexp(2)


def _scores(q: Tensor, k: Tensor, W: int | None = None) -> Tensor:
    """Return the scores [H, T, T], with minus infinity for the keys that a query doesn't see."""
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    seen = (distance >= 0) & (distance < (q.shape[1] if W is None else W))
    return (q @ k.mT / q.shape[2] ** 0.5).masked_fill(~seen, -torch.inf)


def _grown(q: Tensor) -> Tensor:
    """Return queries scaled so that their scores come out as if they weren't divided by √D."""
    return q * q.shape[-1] ** 0.5


def _rounded_weights(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    o = _scores(q, k, W).softmax(2) @ v.abs()
    return BFLOAT16 * o, torch.zeros_like(o[..., 0])


def _all_after(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    s = q @ k.mT / q.shape[2] ** 0.5
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).tril(-W), -torch.inf)
    return s.softmax(2) @ v, s.logsumexp(2)


def _from_the_maximum(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    o, lse = window_attention(q, k, v, W)
    return o, lse - _scores(q, k, W).amax(2)


def _not_divided(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    o, lse = window_attention(q, k, v, W)
    return o * (lse - _scores(q, k, W).amax(2)).exp()[..., None], lse


def _to_base_two(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    o, lse = window_attention(q, k, v, W)
    return o, lse / math.log(2)


def _seen_blocks(s: Case, early: int = 0) -> int:
    """Return the elements of v in the blocks of keys that each program's queries see.

    early: by how many keys the loop begins before the first one.
    """
    found = 0
    for start in range(0, s.T, s.BLOCK_Q):
        begin = max(start - s.W + 1 - early, 0) // s.BLOCK_K * s.BLOCK_K
        found += triton.cdiv(start + s.BLOCK_Q - begin, s.BLOCK_K) * s.BLOCK_K
    return found * s.H * s.D


def _sum_of_rounded(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    s = _scores(q, k, W)
    top = s.amax(2, keepdim=True)
    p = torch.exp(s - top).bfloat16().to(s.dtype)
    total = p.sum(2, keepdim=True)
    return p @ v / total, (top + total.log())[..., 0]


def _from_own_block(
    q: Tensor, k: Tensor, v: Tensor, W: int, BLOCK_Q: int, BLOCK_K: int
) -> tuple[Tensor, Tensor]:
    j = torch.arange(q.shape[1])
    begin = j[:, None] // BLOCK_Q * BLOCK_Q // BLOCK_K * BLOCK_K
    s = _scores(q, k, W).masked_fill(j < begin, -torch.inf)
    return s.softmax(2) @ v, s.logsumexp(2)


def _visited(q: Tensor, k: Tensor, v: Tensor, W: int, BLOCK_Q: int, BLOCK_K: int) -> tuple[Tensor, Tensor]:
    """Return the results if each query saw all keys up to its own in the blocks that its program visits."""
    i, j = torch.arange(q.shape[1])[:, None], torch.arange(q.shape[1])
    begin = (i // BLOCK_Q * BLOCK_Q - W + 1).clamp(min=0) // BLOCK_K * BLOCK_K
    s = _scores(q, k).masked_fill(j < begin, -torch.inf)
    return s.softmax(2) @ v, s.logsumexp(2)


def _without_own(q: Tensor, k: Tensor, v: Tensor, W: int) -> tuple[Tensor, Tensor]:
    """Return the results if no query saw its own key: NaN if it sees no other one."""
    s = _scores(q, k, W)
    s = s.masked_fill(torch.eye(q.shape[1], dtype=torch.bool), -torch.inf)
    return s.softmax(2) @ v, s.logsumexp(2)


def _without_factor(of_sum: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip: what's summed so far isn't multiplied by factor, of the denominator or of acc."""

    def slip(q: Tensor, k: Tensor, v: Tensor, W: int, BLOCK_K: int) -> tuple[Tensor, Tensor]:
        s = _scores(q, k, W)
        top = torch.full_like(s[..., :1], -1e30)
        denominator, acc = torch.zeros_like(top), torch.zeros_like(q)
        for block, values in zip(s.split(BLOCK_K, 2), v.split(BLOCK_K, 1), strict=True):
            new = torch.maximum(top, block.amax(2, keepdim=True))
            factor, p = torch.exp(top - new), torch.exp(block - new)
            denominator = denominator * (1 if of_sum else factor) + p.sum(2, keepdim=True)
            acc = acc * (factor if of_sum else 1) + p @ values
            top = new
        return acc / denominator, (top + denominator.log())[..., 0]

    return slip


FAR_KEYS = {
    "q": in_column_0(ones, times=4.0),
    "k": in_column_0(falling),
    "v": in_all_columns(rising),
}
"""Fills for 16 columns: scores from 0 to -64, and values that matter nevertheless."""

FLOAT_HEADS = "a float quotient of whole numbers can be a little off on a GPU, as 82 / 41 is"
MANY_QUERIES = "all heads together can have 2^31 queries"
"""What hard cases show."""

WINDOW_ATTENTION = Puzzle(
    number="35",
    spec=window_attention,
    formula=(
        r"\begin{gathered} o_{hi} = \sum_{j = i - W + 1}^{i} e^{s_{hij} - \mathrm{lse}_{hi}} \, v_{hj} "
        r"\qquad s_{hij} = \tfrac{1}{\sqrt D} \, q_{hi} \cdot k_{hj} \\ "
        r"\mathrm{lse}_{hi} = \log \sum_{j = i - W + 1}^{i} e^{s_{hij}} \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.T, s.BLOCK_Q), s.H),
    cases=(
        Case(H=1, T=16, D=16, W=16, BLOCK_Q=16, BLOCK_K=16),  # one program, one block of keys
        Case(H=2, T=64, D=32, W=64, BLOCK_Q=32, BLOCK_K=16),  # several, all full; the window holds all
        Case(H=2, T=96, D=16, W=18, BLOCK_Q=16, BLOCK_K=32),  # a window that cuts blocks
        Case(H=3, T=75, D=32, W=9, BLOCK_Q=32, BLOCK_K=16),  # ragged, a window within a block of queries
        Case(H=1, T=33, D=16, W=1, BLOCK_Q=16, BLOCK_K=16),  # each sees itself alone
        # scores that overflow, and scores that vanish, without their maximum
        Case(H=2, T=50, D=32, W=40, BLOCK_Q=32, BLOCK_K=16, fill={"q": far_out, "k": far_out}),
        Case(H=1, T=41, D=16, W=60, BLOCK_Q=32, BLOCK_K=16, fill={"q": around_six, "k": around_minus_six}),
        # many blocks of keys, and nothing cancels
        Case(H=1, T=120, D=16, W=120, BLOCK_Q=64, BLOCK_K=16, fill={"v": alike}),
        Case(H=1, T=75, D=16, W=34, BLOCK_Q=16, BLOCK_K=16),  # a window of several blocks of keys
        # 2.2 thousand million elements
        Case(pretend=True, H=65_000, T=270, D=128, W=100, BLOCK_Q=64, BLOCK_K=64),
    ),
    outputs=("o", "lse"),
    most_loads={"v": _seen_blocks},  # k may be loaded twice: first for lse, then for the weights
    load_slips={
        "the loop begins a block early: the first query's first key is start - W + 1": (
            lambda s: _seen_blocks(s, 1)
        ),
        "the loop also visits blocks of keys that no query of the program sees": (
            lambda s: triton.cdiv(s.T, s.BLOCK_Q) * triton.cdiv(s.T, s.BLOCK_K) * s.BLOCK_K * s.H * s.D
        ),
    },
    allowance=_rounded_weights,
    slips={
        "the scores aren't divided by √D": lambda q, k, v, W: window_attention(_grown(q), k, v, W),
        "the scores are divided by D instead of its root": lambda q, k, v, W: window_attention(
            q / q.shape[2] ** 0.5, k, v, W
        ),
        "the window is one key too wide: i - W < j": lambda q, k, v, W: window_attention(q, k, v, W + 1),
        "the window is one key too narrow: i - W < j": lambda q, k, v, W: window_attention(q, k, v, W - 1),
        "there's no window: keys before it are seen, too": lambda q, k, v, W: window_attention(
            q, k, v, q.shape[1]
        ),
        "the window isn't masked: in the blocks it visits, a query sees only keys with i - W < j": _visited,
        "a query doesn't see its own key: use j <= i": _without_own,
        "keys after a query are seen, too: use j <= i": _all_after,
        "lse lacks the maximum: it's row_max + log of the sum": _from_the_maximum,
        "lse is in base 2: use the natural logarithm": _to_base_two,
        "acc isn't divided by the denominator, the sum of the weights": _not_divided,
        "the weights are rounded before they are summed: sum first": _sum_of_rounded,
        "acc isn't multiplied by factor when the maximum grows": _without_factor(of_sum=False),
        "the denominator isn't multiplied by factor when the maximum grows": _without_factor(of_sum=True),
        "keys before the program's own block are missing: begin at the first query's first key": (
            _from_own_block
        ),
    },
    hard={
        LIGHT: Case(H=1, T=64, D=16, W=64, BLOCK_Q=64, BLOCK_K=32, fill=FAR_KEYS),
        "a single head can have 2^31 elements": (
            Case(pretend=True, H=1, T=2**24 + 64, D=128, W=100, BLOCK_Q=64, BLOCK_K=64)
        ),
        MANY_QUERIES: Case(pretend=True, H=65_000, T=33_100, D=16, W=100, BLOCK_Q=64, BLOCK_K=64),
    },
    contract=Contract(
        {
            "T": Size(300),
            "H": Size(9),
            "D": lambda s: (16, 64) if s.T > 120 else (128,),
            "W": lambda s: (max(257, s.T - 20),) if s.T > 120 else (s.T // 3 + 1, s.T + 7),
            "BLOCK_Q": lambda s: (128,) if s.T > 120 else (64, 128),
            "BLOCK_K": lambda s: (16,) if s.T > 120 else (32,),
        },
    ),
)

# ---- puzzle 36


def varlen_attention(
    q: BFloat16[Tensor, "NQ H D"],
    k: BFloat16[Tensor, "NK H_KV D"],
    v: BFloat16[Tensor, "NK H_KV D"],
    cu_q: Int32[Tensor, " B+1"],
    cu_k: Int32[Tensor, " B+1"],
) -> tuple[BFloat16[Tensor, "NQ H D"], Float32[Tensor, "H NQ"]]:
    """o and lse as in puzzle 35, without a window, for B texts packed in one tensor

    Text b has rows cu_q[b] up to (not including) cu_q[b + 1] of q, and rows cu_k[b]
    up to cu_k[b + 1] of k and v. No text has more than MAX_Q queries. A text has at
    least as many keys as queries: its last query sees its last key, the query before
    it sees all keys except the last, and so on. H // H_KV neighboring heads of q
    share a head of k and v. A NaN in one text doesn't change the results of the
    others. Load no block of keys that no query of the program sees.
    """
    o, lse = torch.empty_like(q), q.new_empty(q.shape[1], q.shape[0])
    for queries, keys in zip(_spans(cu_q), _spans(cu_k), strict=True):
        s, v_of_h = _scores_to_the_end(q[queries], k[keys]), _of_each_head(v[keys], q)
        o[queries] = (s.softmax(2) @ v_of_h).transpose(0, 1)
        lse[:, queries] = s.logsumexp(2)
    return o, lse


def _spans(cu: Tensor) -> list[slice]:
    return [slice(first, end) for first, end in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)]


def _of_each_head(kv: Tensor, q: Tensor) -> Tensor:
    """Return k or v repeated for each head of q: [rows, H_KV, D] → [H, rows, D]."""
    return kv.repeat_interleave(q.shape[1] // kv.shape[1], 1).transpose(0, 1)


def _scores_to_the_end(q: Tensor, k: Tensor) -> Tensor:
    """Return the scores of one text, [H, queries, keys], with minus infinity for hidden keys."""
    s = q.transpose(0, 1) @ _of_each_head(k, q).mT / q.shape[2] ** 0.5
    hidden = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    return s.masked_fill(hidden, -torch.inf)


def _rounded_weights_of_each(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor
) -> tuple[Tensor, Tensor]:
    o, lse = varlen_attention(q, k, v.abs(), cu_q, cu_k)
    return BFLOAT16 * o, torch.zeros_like(lse)


def _dealt(kv: Tensor, q: Tensor) -> Tensor:
    """Return the heads of k or v in the order that h % H_KV would use."""
    return kv.repeat(1, q.shape[1] // kv.shape[1], 1)


def _to_the_start(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results if query i of a text saw keys 0 to i."""
    pairs = zip(_spans(cu_q), _spans(cu_k), strict=True)
    rows = torch.cat([torch.arange(b.start, b.start + a.stop - a.start) for a, b in pairs])
    return varlen_attention(q, k[rows], v[rows], cu_q, cu_q)


def _heads_first(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results if q and o were [H, NQ, D] in memory."""
    other = q.reshape(q.shape[1], q.shape[0], -1).transpose(0, 1)
    o, lse = varlen_attention(other, k, v, cu_q, cu_k)
    return o.transpose(0, 1).reshape(q.shape), lse


def _drawn_lengths(s: SimpleNamespace) -> dict[str, Fill]:
    """Return lengths: the last text has a third of the queries, the first has the rest and the extra keys."""
    last = s.NQ // 3 if s.B > 1 else 0
    between = [0] * (s.B - 2) + [last] * (s.B > 1)
    return {"cu_q": lengths(s.NQ - last, *between), "cu_k": lengths(s.NK - last, *between)}


def _needed_keys(case: Case) -> int:
    """Return how many elements of k must be loaded: none for texts without queries."""
    if not {"cu_q", "cu_k"} <= set(case.fill):  # a learner's own case
        return case.NK * case.H_KV * case.D
    ends = [case.fill[name]((case.B + 1,), torch.int32, None).diff() for name in ("cu_q", "cu_k")]
    return int(ends[1][ends[0] > 0].sum()) * case.H_KV * case.D


def _visible_keys(case: Case) -> int:
    """Return the elements of k in the blocks of keys that the queries of each program see."""
    if not {"cu_q", "cu_k"} <= set(case.fill):  # a learner's own case
        return case.B * triton.cdiv(case.MAX_Q, case.BLOCK_Q) * case.H * case.NK * case.D
    ends = [case.fill[name]((case.B + 1,), torch.int32, None).diff().tolist() for name in ("cu_q", "cu_k")]
    found = 0
    for queries, keys in zip(*ends, strict=True):
        for start in range(0, queries, case.BLOCK_Q):
            end = min(start + case.BLOCK_Q + keys - queries, keys)
            found += min(triton.cdiv(end, case.BLOCK_K) * case.BLOCK_K, keys)
    return found * case.H * case.D


VARLEN_ATTENTION = Puzzle(
    number="36",
    spec=varlen_attention,
    formula=(
        r"\begin{gathered} o_{ih} = \sum_{j} e^{s_{hij} - \mathrm{lse}_{hi}} \, v_{j g(h)} \qquad "
        r"\mathrm{lse}_{hi} = \log \sum_{j} e^{s_{hij}} \\ "
        r"s_{hij} = \tfrac{1}{\sqrt D} \, q_{ih} \cdot k_{j g(h)} \qquad "
        r"g(h): \text{the head of k and v that head h of q uses} \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.MAX_Q, s.BLOCK_Q), s.H, s.B),
    cases=(
        # one program
        Case(
            B=1, NQ=16, NK=16, MAX_Q=16, H=1, H_KV=1, D=16, BLOCK_Q=16, BLOCK_K=16,
            fill={"cu_q": lengths(16), "cu_k": lengths(16)},
        ),
        # two sequences, two heads a group, all full
        Case(
            B=2, NQ=64, NK=64, MAX_Q=32, H=4, H_KV=2, D=16, BLOCK_Q=16, BLOCK_K=16,
            fill={"cu_q": lengths(32, 32), "cu_k": lengths(32, 32)},
        ),
        # ragged, one empty, one of length 1; more programs than the shorter ones need
        Case(
            B=4, NQ=48, NK=48, MAX_Q=37, H=2, H_KV=1, D=32, BLOCK_Q=16, BLOCK_K=32,
            fill={"cu_q": lengths(37, 0, 1, 10), "cu_k": lengths(37, 0, 1, 10)},
        ),
        # more keys than queries; no queries, but keys
        Case(
            B=4, NQ=23, NK=90, MAX_Q=17, H=3, H_KV=3, D=16, BLOCK_Q=32, BLOCK_K=16,
            fill={"cu_q": lengths(1, 17, 0, 5), "cu_k": lengths(35, 17, 18, 20)},
        ),
        # more heads, then more sequences, than a block has queries; the last key has a block to itself
        Case(
            B=1, NQ=5, NK=17, MAX_Q=5, H=18, H_KV=9, D=16, BLOCK_Q=16, BLOCK_K=16,
            fill={"cu_q": lengths(5), "cu_k": lengths(17)},
        ),
        Case(
            B=18, NQ=20, NK=34, MAX_Q=3, H=1, H_KV=1, D=16, BLOCK_Q=16, BLOCK_K=16,
            fill={"cu_q": lengths(*[1] * 17, 3), "cu_k": lengths(*[1] * 17, 17)},
        ),
        # scores that overflow without their maximum
        Case(
            B=2, NQ=30, NK=41, MAX_Q=20, H=2, H_KV=1, D=32, BLOCK_Q=16, BLOCK_K=16,
            fill={"cu_q": lengths(20, 10), "cu_k": lengths(20, 21), "q": far_out, "k": far_out},
        ),
        # the second sequence has gone wrong; the first must not notice. Scores that vanish
        Case(
            B=2, NQ=29, NK=45, MAX_Q=20, H=2, H_KV=2, D=16, BLOCK_Q=16, BLOCK_K=16,
            fill={
                "cu_q": lengths(20, 9),
                "cu_k": lengths(23, 22),
                "q": around_six,
                "k": around_minus_six,
                "v": spoilt_from(23),
            },
        ),
    ),
    outputs=("o", "lse"),
    needed={"k": _needed_keys, "v": _needed_keys},
    most_loads={"k": _visible_keys},
    allowance=_rounded_weights_of_each,
    slips={
        "the scores aren't divided by √D": lambda q, k, v, cu_q, cu_k: varlen_attention(
            _grown(q), k, v, cu_q, cu_k
        ),
        "head h uses head h // (H // H_KV), not h % H_KV": lambda q, k, v, cu_q, cu_k: varlen_attention(
            q, _dealt(k, q), _dealt(v, q), cu_q, cu_k
        ),
        "the rows of q and o are taken from [H, NQ, D]: they're [NQ, H, D]": _heads_first,
        "query i sees keys 0 to i, but it's the last query that sees the last key": _to_the_start,
    },
    hard={
        LIGHT: Case(
            B=1, NQ=1, NK=64, MAX_Q=1, H=1, H_KV=1, D=16, BLOCK_Q=16, BLOCK_K=32,
            fill={"cu_q": lengths(1), "cu_k": lengths(64), **FAR_KEYS},
        ),
        "a text can have hundreds of keys more than queries": Case(
            B=1, NQ=4, NK=304, MAX_Q=4, H=1, H_KV=1, D=16, BLOCK_Q=16, BLOCK_K=32,
            fill={"cu_q": lengths(4), "cu_k": lengths(304)},
        ),
        FLOAT_HEADS: Case(
            B=1, NQ=1, NK=1, MAX_Q=1, H=82, H_KV=2, D=16, BLOCK_Q=16, BLOCK_K=16,
            fill={"cu_q": lengths(1), "cu_k": lengths(1)},
        ),
    },
    contract=Contract(
        {
            "NQ": Size(160),
            "B": (1, 2, 9, 20),
            "NK": lambda s: (s.NQ + 190,) if s.NQ > 64 else (s.NQ, s.NQ + 45),
            "MAX_Q": lambda s: (s.NQ,),
            "H_KV": (1, 2),
            "H": lambda s: (2 * s.H_KV,) if s.NQ > 64 else (s.H_KV, 2 * s.H_KV),
            "D": lambda s: (16, 64) if s.NQ > 64 else (128,),
            "BLOCK_Q": (64,),
            "BLOCK_K": (32,),
        },
        fills=lambda s: (_drawn_lengths(s),),
        free=("H_KV", "H"),
    ),
)  # fmt: skip

# ---- puzzle 37


def attention_dq(
    q: BFloat16[Tensor, "H T D"],
    k: BFloat16[Tensor, "H T D"],
    v: BFloat16[Tensor, "H T D"],
    o: BFloat16[Tensor, "H T D"],
    do: BFloat16[Tensor, "H T D"],
    lse: Float32[Tensor, "H T"],
) -> tuple[BFloat16[Tensor, "H T D"], Float32[Tensor, "H T"]]:
    """dq: the gradient of q, if do is the gradient of o; and delta for puzzle 38

    with s[h, i, j] = q[h, i] · k[h, j] / √D for j ≤ i. o and lse come from the
    forward pass, without a window. delta[h, i] is the number that belongs to row i of
    ds. D is a power of two, at least 16. Compute in float32; round ds to bfloat16 for
    its tl.dot, and only there. The tensors can have 2^31 elements or more.
    """
    delta = _delta(do, o)  # [H, T]
    _, ds = _p_and_ds(q, k, v, do, lse, delta)  # [H, T, T]
    return ds @ k / q.shape[2] ** 0.5, delta


def _delta(do: Tensor, o: Tensor) -> Tensor:
    return (do * o).sum(2)


def _p_and_ds(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor]:
    p = torch.exp(_scores(q, k) - lse[..., None])
    return p, p * (do @ v.mT - delta[..., None])


def _first_times_root(power: int, results: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the results with the first one times √D, or divided by it for a power of -1."""
    first, other = results
    return first * first.shape[-1] ** (power / 2), other


def _rounded_ds(q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    delta = (do * o).sum(2)
    ds = torch.exp(_scores(q, k) - lse[..., None]) * (do @ v.mT - delta[..., None])
    return BFLOAT16 * ds.abs() @ k.abs() / q.shape[2] ** 0.5, torch.zeros_like(delta)


def _after_the_visited(T: int, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    """Return which keys come after the last block of keys that a query's program visits, bool [T, T]."""
    i = torch.arange(T)
    end = (i // BLOCK_Q * BLOCK_Q + BLOCK_Q).clamp(max=T)[:, None]
    return i >= (end + BLOCK_K - 1) // BLOCK_K * BLOCK_K


def _dq_without_mask(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    do: Tensor,
    lse: Tensor,
    BLOCK_Q: int,
    BLOCK_K: int,
) -> tuple[Tensor, Tensor]:
    """Return the results if all keys of the visited blocks counted."""
    after = _after_the_visited(q.shape[1], BLOCK_Q, BLOCK_K)
    s = (q @ k.mT / q.shape[2] ** 0.5).masked_fill(after, -torch.inf)
    delta = (do * o).sum(2)
    ds = torch.exp(s - lse[..., None]) * (do @ v.mT - delta[..., None])
    return ds @ k / q.shape[2] ** 0.5, delta


def _dq_without_p(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor]:
    delta = (do * o).sum(2)
    ds = (do @ v.mT - delta[..., None]).tril()
    return ds @ k / q.shape[2] ** 0.5, delta


def _dq_without_p_or_mask(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    do: Tensor,
    lse: Tensor,
    BLOCK_Q: int,
    BLOCK_K: int,
) -> tuple[Tensor, Tensor]:
    """Return the results without p, whose zeros hid the keys after a query: all visited keys count."""
    after = _after_the_visited(q.shape[1], BLOCK_Q, BLOCK_K)
    delta = (do * o).sum(2)
    ds = (do @ v.mT - delta[..., None]).masked_fill(after, 0.0)
    return ds @ k / q.shape[2] ** 0.5, delta


def _rounded_delta(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results if delta's products and their sum are bfloat16, as those of two bfloat16 blocks."""
    terms = (do * o).bfloat16()
    while terms.shape[2] > 1:  # neighbors first
        terms = terms[..., 0::2] + terms[..., 1::2]
    delta = terms[..., 0].to(o.dtype)
    _, ds = _p_and_ds(q, k, v, do, lse, delta)
    return ds @ k / q.shape[2] ** 0.5, delta


def _dq_by_values(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results if ds is multiplied by v instead of k."""
    delta = _delta(do, o)
    return _p_and_ds(q, k, v, do, lse, delta)[1] @ v / q.shape[2] ** 0.5, delta


def _dp_of_o(q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results if dp is o times v instead of do times v."""
    delta = _delta(do, o)
    return _p_and_ds(q, k, v, o, lse, delta)[1] @ k / q.shape[2] ** 0.5, delta


ATTENTION_DQ = Puzzle(
    number="37",
    spec=attention_dq,
    formula=(
        r"dq_{hi} = \tfrac{1}{\sqrt D} \sum_{j \le i} ds_{hij} \, k_{hj} \qquad "
        r"ds_{hij} = \sum_{l} dp_{hil} \, \frac{\partial p_{hil}}{\partial s_{hij}}"
    ),
    grid=lambda s: (triton.cdiv(s.T, s.BLOCK_Q), s.H),
    cases=(
        Case(H=1, T=16, D=16, BLOCK_Q=16, BLOCK_K=16),  # one program, one block of keys
        Case(H=2, T=64, D=32, BLOCK_Q=32, BLOCK_K=16),  # several, all full
        # ragged, one query more than two blocks of keys
        Case(H=3, T=65, D=16, BLOCK_Q=16, BLOCK_K=32),
        Case(H=1, T=50, D=32, BLOCK_Q=32, BLOCK_K=16, fill={"q": far_out, "k": times_two}),
        # so far apart that exp() of a hidden score overflows
        Case(H=1, T=41, D=16, BLOCK_Q=32, BLOCK_K=16, fill={"q": far_out, "k": far_out}),
        # many blocks of keys, and nothing cancels
        Case(H=1, T=120, D=16, BLOCK_Q=64, BLOCK_K=16, fill={"k": alike}),
        Case(H=4, T=3, D=16, BLOCK_Q=16, BLOCK_K=16),  # sums so short that their roundings don't cancel
        # 2.2 thousand million elements
        Case(pretend=True, H=65_000, T=270, D=128, BLOCK_Q=64, BLOCK_K=64),
    ),
    outputs=("dq", "delta"),
    derived={
        "o": lambda q, k, v: _scores(q, k).softmax(2) @ v,
        "lse": lambda q, k: _scores(q, k).logsumexp(2),
    },
    allowance=_rounded_ds,
    slips={
        "the scores aren't divided by √D": lambda q, **others: attention_dq(_grown(q), **others),
        "delta isn't subtracted": lambda o, **others: attention_dq(o=0 * o, **others),
        "lse isn't subtracted from the scores": lambda lse, **others: attention_dq(lse=0 * lse, **others),
        "dq is missing the factor 1/√D, which the scores have, too": lambda **all: _first_times_root(
            1, attention_dq(**all)
        ),
        "keys after a query count, too: their p must be 0": _dq_without_mask,
        "ds is missing the factor p: it's p times (dp - delta)": _dq_without_p,
        "ds is missing the factor p, which also hides keys: it's p times (dp - delta)": _dq_without_p_or_mask,
        "delta is added, not subtracted": lambda o, **others: attention_dq(o=-o, **others),
        "dq sums ds times v: it's ds times k": _dq_by_values,
        "the rows of ds don't add up to 0: dp is do times v, not o times v": _dp_of_o,
        "delta was computed in bfloat16, the dtype of do * o: convert one of them to float32": _rounded_delta,
    },
    hard={
        LIGHT: Case(H=1, T=64, D=16, BLOCK_Q=64, BLOCK_K=32, fill=FAR_KEYS),
        "a single head can have 2^31 elements": (
            Case(pretend=True, H=1, T=2**24 + 64, D=128, BLOCK_Q=64, BLOCK_K=64)
        ),
        MANY_QUERIES: Case(pretend=True, H=65_000, T=33_100, D=16, BLOCK_Q=16, BLOCK_K=1024),
    },
    contract=Contract(
        {
            "T": Size(300, least=2),  # of one query ds is 0
            "H": Size(9),
            "D": lambda s: (16, 64) if s.T > 120 else (128,),
            "BLOCK_Q": lambda s: (128,) if s.T > 120 else (64, 128),
            "BLOCK_K": lambda s: (16,) if s.T > 120 else (32,),
        },
    ),
)

# ---- puzzle 38


def attention_dkv(
    q: BFloat16[Tensor, "H T D"],
    k: BFloat16[Tensor, "H_KV T D"],
    v: BFloat16[Tensor, "H_KV T D"],
    do: BFloat16[Tensor, "H T D"],
    lse: Float32[Tensor, "H T"],
    delta: Float32[Tensor, "H T"],
) -> tuple[BFloat16[Tensor, "H_KV T D"], BFloat16[Tensor, "H_KV T D"]]:
    """dk[g, j] = Σ ds[h, i, j] · q[h, i] / √D and dv[g, j] = Σ p[h, i, j] · do[h, i]

    summed over the queries i ≥ j of all heads h of q that use head g of k and v, see
    puzzle 36. p and ds are as in puzzle 37, which stores delta. D is a power of
    two, at least 16. Compute in float32; round p and ds to bfloat16 for their
    tl.dot, and only there. The tensors can have 2^31 elements or more. Skip blocks of
    queries that see none of a program's keys.
    """
    heads = q.shape[0] // k.shape[0]
    k_of_h, v_of_h = k.repeat_interleave(heads, 0), v.repeat_interleave(heads, 0)
    p, ds = _p_and_ds(q, k_of_h, v_of_h, do, lse, delta)  # [H, T, T]
    dk, dv = ds.mT @ q / q.shape[2] ** 0.5, p.mT @ do
    return tuple(each.unflatten(0, (-1, heads)).sum(1) for each in (dk, dv))


def _rounded_p_and_ds(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor]:
    heads = q.shape[0] // k.shape[0]
    k_of_h, v_of_h = k.repeat_interleave(heads, 0), v.repeat_interleave(heads, 0)
    p = torch.exp(_scores(q, k_of_h) - lse[..., None])
    ds = (p * (do @ v_of_h.mT - delta[..., None])).abs()
    dk, dv = ds.mT @ q.abs() / q.shape[2] ** 0.5, p.mT @ do.abs()
    return tuple(BFLOAT16 * each.unflatten(0, (-1, heads)).sum(1) for each in (dk, dv))


def _only_head(place: int, k: Tensor, v: Tensor, **of_queries: Tensor) -> dict[str, Tensor]:
    """Return the inputs with only one head of each group."""
    groups = {name: each.unflatten(0, (len(k), -1)) for name, each in of_queries.items()}
    return {"k": k, "v": v} | {name: each[:, place] for name, each in groups.items()}


def _own_number_only(q: Tensor, k: Tensor, **others: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results if head g of k counted for head g of q alone."""
    v = others.pop("v")
    return attention_dkv(q[: len(k)], k, v, **{name: each[: len(k)] for name, each in others.items()})


def _queries_before(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    lse: Tensor,
    delta: Tensor,
    BLOCK_Q: int,
    BLOCK_K: int,
) -> tuple[Tensor, Tensor]:
    """Return the results with a reversed mask: queries up to the key count."""
    heads, T = q.shape[0] // k.shape[0], torch.arange(q.shape[1])
    k_of_h, v_of_h = k.repeat_interleave(heads, 0), v.repeat_interleave(heads, 0)
    first = T // BLOCK_K * BLOCK_K // BLOCK_Q * BLOCK_Q
    counts = (T[:, None] <= T) & (T[:, None] >= first)
    s = (q @ k_of_h.mT / q.shape[2] ** 0.5).masked_fill(~counts, -torch.inf)
    p = torch.exp(s - lse[..., None])
    ds = p * (do @ v_of_h.mT - delta[..., None])
    dk, dv = ds.mT @ q / q.shape[2] ** 0.5, p.mT @ do
    return tuple(each.unflatten(0, (-1, heads)).sum(1) for each in (dk, dv))


def _wrong_heads(first: int, end: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip in which k's head g counts for q's heads from first · g up to end · g + H // H_KV."""

    def slip(**given: Tensor) -> tuple[Tensor, Tensor]:
        k, v = given.pop("k"), given.pop("v")
        heads, each = len(given["q"]) // len(k), []
        for g in range(len(k)):
            of_g = slice(first * g if first else heads * g, (end * g if end else heads * g) + heads)
            queries = {name: every[of_g] for name, every in given.items()}
            each.append(attention_dkv(k=k[g : g + 1], v=v[g : g + 1], **queries))
        return tuple(torch.cat(result) for result in zip(*each, strict=True))

    return slip


def _with_factors(dk_of: str, dv_of: str, dk_from: str = "ds") -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip in which ds is multiplied by ``"q"`` or ``"do"``, and p by ``"do"`` or ``"q"``.

    dk_from: ``"p"`` if dk sums p instead of ds.
    """

    def slip(**given: Tensor) -> tuple[Tensor, Tensor]:
        q, k = given["q"], given["k"]
        heads = len(q) // len(k)
        k, v = (each.repeat_interleave(heads, 0) for each in (k, given["v"]))
        p, ds = _p_and_ds(q, k, v, given["do"], given["lse"], given["delta"])
        results = (p if dk_from == "p" else ds).mT @ given[dk_of] / q.shape[2] ** 0.5, p.mT @ given[dv_of]
        return tuple(each.unflatten(0, (-1, heads)).sum(1) for each in results)

    return slip


def _queries_that_see(s: Case) -> int:
    """Return the elements of q in the blocks of queries that see each program's keys, in all heads."""
    starts = range(0, s.T, s.BLOCK_K)
    return sum(s.T - start // s.BLOCK_Q * s.BLOCK_Q for start in starts) * s.H * s.D


def _kept_lse(q: Tensor, k: Tensor) -> Tensor:
    return _scores(q, k.repeat_interleave(len(q) // len(k), 0)).logsumexp(2)


def _kept_delta(q: Tensor, k: Tensor, v: Tensor, do: Tensor) -> Tensor:
    k, v = (each.repeat_interleave(len(q) // len(k), 0) for each in (k, v))
    return (do * (_scores(q, k).softmax(2) @ v).bfloat16()).sum(2)


ATTENTION_DKV = Puzzle(
    number="38",
    spec=attention_dkv,
    formula=(
        r"dk_{gj} = \tfrac{1}{\sqrt D} \sum_{h} \sum_{i \ge j} ds_{hij} \, q_{hi} \qquad "
        r"dv_{gj} = \sum_{h} \sum_{i \ge j} p_{hij} \, do_{hi}"
    ),
    grid=lambda s: (triton.cdiv(s.T, s.BLOCK_K), s.H_KV),
    cases=(
        Case(H=1, H_KV=1, T=16, D=16, BLOCK_Q=16, BLOCK_K=16),  # one program, one block of queries
        Case(H=2, H_KV=2, T=64, D=32, BLOCK_Q=16, BLOCK_K=32),  # several, all full
        Case(H=6, H_KV=2, T=45, D=16, BLOCK_Q=32, BLOCK_K=16),  # three heads a group, ragged
        Case(H=2, H_KV=1, T=50, D=32, BLOCK_Q=16, BLOCK_K=32, fill={"q": far_out, "k": times_two}),
        # so far apart that exp() of a hidden score overflows
        Case(H=17, H_KV=17, T=20, D=16, BLOCK_Q=16, BLOCK_K=16, fill={"q": far_out, "k": far_out}),
        # keys so long that a query of ones would overflow
        Case(H=1, H_KV=1, T=41, D=16, BLOCK_Q=16, BLOCK_K=32, fill={"k": both_ways}),
        # many blocks of queries, and nothing cancels
        Case(H=1, H_KV=1, T=120, D=16, BLOCK_Q=16, BLOCK_K=64, fill={"do": alike}),
        # 2.2 thousand million elements
        Case(pretend=True, H=65_000, H_KV=65_000, T=270, D=128, BLOCK_Q=64, BLOCK_K=64),
    ),
    outputs=("dk", "dv"),
    derived={"lse": _kept_lse, "delta": _kept_delta},
    most_loads={"q": _queries_that_see, "do": _queries_that_see},
    load_slips={
        "queries before a program's keys don't see them: begin at the block of the first that does": (
            lambda s: triton.cdiv(s.T, s.BLOCK_K) * s.T * s.H * s.D
        ),
    },
    allowance=_rounded_p_and_ds,
    slips={
        "the scores aren't divided by √D": lambda q, **others: _first_times_root(
            -1, attention_dkv(_grown(q), **others)
        ),
        "delta isn't subtracted": lambda delta, **others: attention_dkv(delta=0 * delta, **others),
        "delta is added, not subtracted": lambda delta, **others: attention_dkv(delta=-delta, **others),
        "lse isn't subtracted from the scores": lambda lse, **others: attention_dkv(lse=0 * lse, **others),
        "dk is missing the factor 1/√D, which the scores have, too": lambda **all: _first_times_root(
            1, attention_dkv(**all)
        ),
        "only the first head of each group counts": lambda **all: attention_dkv(**_only_head(0, **all)),
        "only the last head of each group counts": lambda **all: attention_dkv(**_only_head(-1, **all)),
        "head g of k is used for head g of q: it belongs to H // H_KV heads of q": _own_number_only,
        "the mask is reversed: queries i >= j see key j": _queries_before,
        "dk sums ds times do: it's ds times q": _with_factors("do", "do"),
        "dv sums p times q: it's p times do": _with_factors("q", "q"),
        "dk sums p times q: it's ds times q": _with_factors("q", "do", dk_from="p"),
        "the heads begin at g: the first head of q that uses head g of k is g * (H // H_KV)": _wrong_heads(
            1, 0
        ),
        "the heads are g to g + H // H_KV: group g begins at head g * (H // H_KV)": _wrong_heads(1, 1),
    },
    hard={
        "a single head can have 2^31 elements": (
            Case(pretend=True, H=1, H_KV=1, T=2**24 + 64, D=128, BLOCK_Q=64, BLOCK_K=64)
        ),
        MANY_QUERIES: (Case(pretend=True, H=65_000, H_KV=65_000, T=33_100, D=16, BLOCK_Q=1024, BLOCK_K=16)),
        FLOAT_HEADS: Case(H=82, H_KV=41, T=2, D=16, BLOCK_Q=16, BLOCK_K=16),
    },
    contract=Contract(
        {
            "T": Size(300, least=2),  # of one query ds is 0
            "H_KV": lambda s: (1,) if s.T > 120 else (1, 2),
            "H": lambda s: (s.H_KV,) if s.T > 120 else (9 * s.H_KV,),
            "D": lambda s: (16, 64) if s.T > 120 else (128,),
            "BLOCK_Q": lambda s: (16,) if s.T > 120 else (32,),
            "BLOCK_K": lambda s: (128,) if s.T > 120 else (64,),
        },
        free=("H_KV", "H"),
    ),
)

PUZZLES = (WINDOW_ATTENTION, VARLEN_ATTENTION, ATTENTION_DQ, ATTENTION_DKV)
