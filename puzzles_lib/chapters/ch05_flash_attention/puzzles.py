"""Chapter 05: attention that never stores its scores."""

from collections.abc import Callable

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def _around(center: float, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values near a center in steps of 1/16, so that sums of a few products are exact in float32."""
    steps = 16 * center + 8 * torch.randn(shape, generator=generator)
    return (steps.round() / 16).to(dtype)


def around_five(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values of about 5 ± 0.5."""
    return _around(5.0, shape, dtype, generator)


def around_ten(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values of about 10 ± 0.5: scores of about 100, whose exp() overflows float32."""
    return _around(10.0, shape, dtype, generator)


def around_minus_ten(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values of about -10 ± 0.5: scores of about -100, whose exp() vanishes in float32."""
    return _around(-10.0, shape, dtype, generator)


def late_keys(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows that rise along the first axis, so that every block of keys brings a new maximum."""
    return inputs.late_maximum(shape[::-1], dtype, generator).mT.contiguous()


def scalar_flash_attention(
    q: Float32[Tensor, " T"], k: Float32[Tensor, " T"], v: Float32[Tensor, " T"]
) -> Float32[Tensor, " T"]:
    """z[i] = Σ_j softmax_j(q[i] · k[j]) · v[j]

    A block of queries reads each key and each value once.
    """
    scores = q[:, None] * k[None, :]
    return scores.softmax(dim=1) @ v


def _with_padding(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    """The scores of lanes past T count: they are 0."""
    padding = -len(k) % BLOCK_K
    k, v = (torch.nn.functional.pad(each, (0, padding)) for each in (k, v))
    return (q[:, None] * k[None, :]).softmax(dim=1) @ v


def _walked(
    scores: Tensor,
    v: Tensor,
    BLOCK_K: int,
    slip: str,
    BLOCK_Q: int = 1,
    causal: bool = False,
    unmasked: Tensor | None = None,
    queries: Tensor | float = 1.0,
) -> Tensor:
    """Return what a kernel with one slip from block to block computes, in float32 as on a GPU.

    scores: float [T, T]. v: float [T, D]. causal: whether the loop of a program ends at the diagonal.
    unmasked: the scores that a maximum sees that is taken before the mask; None for ``scores``. queries:
        float [T, 1], for the slip that multiplies p by them.
    """
    scores, v = scores.float(), v.float()
    seen = (scores if unmasked is None else unmasked.float()).split(BLOCK_K, dim=1)
    row_max = torch.full_like(scores[:, :1], -1e30)
    denominator, acc = torch.zeros_like(row_max), torch.zeros(len(scores), v.shape[1])
    ends = ((torch.arange(len(scores)) // BLOCK_Q + 1) * BLOCK_Q)[:, None]
    blocks = zip(scores.split(BLOCK_K, dim=1), v.split(BLOCK_K), strict=True)
    for number, (keys, values) in enumerate(blocks):
        active = ends > number * BLOCK_K if causal else torch.ones_like(row_max, dtype=torch.bool)
        of_block = seen[number].amax(dim=1, keepdim=True)
        if slip == "maximum of all queries":
            of_block = _of_each_program(of_block, BLOCK_Q)
        new_max = of_block if slip == "block maximum" else row_max.maximum(of_block)
        if slip == "padding in the maximum" and keys.shape[1] < BLOCK_K:
            new_max = new_max.clamp(min=0.0)
        new_max = torch.where(active, new_max, row_max)
        factor = (row_max - new_max).exp()
        if slip == "factor in powers of 2":
            factor = (row_max - new_max).exp2()
        if slip == "factor without exp":
            factor = torch.where(active, row_max - new_max, 1.0)
        kept = torch.ones_like(factor) if slip == "neither" else factor
        p = torch.where(active, (keys - new_max).exp(), 0.0)
        if slip == "no maximum in p":
            p = torch.where(active, keys.exp(), 0.0)
        if slip == "no exp":
            p = keys - new_max
        if slip == "exp of the opposite":
            p = torch.where(active, (new_max - keys).exp(), 0.0)
        added = p @ values
        if slip == "two sums":
            added = p.sum(dim=1, keepdim=True) * values.sum(dim=0)
        if slip == "all queries":
            added = added.view(-1, BLOCK_Q).sum(dim=1).repeat_interleave(BLOCK_Q)[:, None]
        if slip == "scores times values":
            added = keys @ values
        if slip == "p times queries":
            added = p.sum(dim=1, keepdim=True) * queries
        weights = (keys if slip == "sum of scores" else p).sum(dim=1)
        if slip == "weights of all queries":
            padded = torch.nn.functional.pad(weights, (0, -len(weights) % BLOCK_Q)).view(-1, BLOCK_Q)
            weights = padded.sum(dim=1).repeat_interleave(BLOCK_Q)[: len(weights)]
        denominator = denominator * (1 if slip == "only acc" else kept) + weights[:, None]
        if slip == "also the denominator":
            acc = acc * torch.where(active, denominator, 1.0)
        if slip == "acc added twice":
            acc = torch.where(active, acc * kept + acc, acc) + added
        else:
            acc = acc * (1 if slip == "only the denominator" else kept) + added
        if slip == "last block":
            acc = torch.where(active, added, acc)
        if slip in ("divided twice", "divided in the loop"):
            acc = torch.where(active, acc / denominator, acc)
        if slip != "no update":
            row_max = new_max
    return acc if slip in ("divided in the loop", "undivided") else acc / denominator


def _of_each_program(maxima: Tensor, BLOCK_Q: int) -> Tensor:
    """Return the largest of each program's maxima for each of its queries. Missing queries have scores of 0.

    maxima: float [T, 1].
    """
    padded = torch.nn.functional.pad(maxima, (0, 0, 0, -len(maxima) % BLOCK_Q))
    return padded.view(-1, BLOCK_Q).amax(dim=1).repeat_interleave(BLOCK_Q)[: len(maxima), None]


def _scalar_walked(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int, slip: str) -> Tensor:
    return _walked(q[:, None] * k[None, :], v[:, None], BLOCK_K, slip)[:, 0]


def _padding_in_the_maximum(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    """The lanes past T get no weight, but their score of 0 counts in the maximum."""
    return _scalar_walked(q, k, v, BLOCK_K, "padding in the maximum")


def _only_acc_rescaled(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "only acc")


def _only_denominator_rescaled(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "only the denominator")


def _neither_rescaled(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "neither")


def _divided_twice(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "divided twice")


def _divided_in_the_loop(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "divided in the loop")


def _added_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The score is q + k, so the weights are the same for every query."""
    return (k.softmax(dim=0) @ v).expand_as(v)


def _maximum_of_all_queries(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    return _walked(q[:, None] * k[None, :], v[:, None], BLOCK_K, "maximum of all queries", BLOCK_Q)[:, 0]


def _this_block_maximum(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "block maximum")


def _factor_in_powers_of_two(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "factor in powers of 2")


def _only_the_last_block(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "last block")


def _undivided_at_all(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "undivided")


def _without_the_maximum(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    result = _scalar_walked(q, k, v, BLOCK_K, "no maximum in p")
    return result if result.isfinite().all() else scalar_flash_attention(q, k, v)  # NaN has many causes


def _without_exp(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    if len(k) % BLOCK_K:  # a hidden score makes it NaN, which has many causes
        return scalar_flash_attention(q, k, v)
    return _scalar_walked(q, k, v, BLOCK_K, "no exp")


def _product_of_sums(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "two sums")


def _maximum_of_keys(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    keys = torch.nn.functional.pad(k, (0, -len(k) % BLOCK_K)).view(-1, BLOCK_K)  # a padded key is 0
    largest = keys.amax(dim=1).repeat_interleave(BLOCK_K)[: len(k)]
    scores = q[:, None] * k[None, :]
    return _walked(scores, v[:, None], BLOCK_K, "", unmasked=largest.expand_as(scores))[:, 0]


def _p_times_queries(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    scores = q[:, None] * k[None, :]
    return _walked(scores, v[:, None], BLOCK_K, "p times queries", queries=q[:, None])[:, 0]


def _of_whole_blocks(slip: str) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """Return a kernel's results with a slip that -inf turns into NaN, so that only whole blocks show it."""

    def walked(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
        if len(k) % BLOCK_K:  # NaN has many causes
            return scalar_flash_attention(q, k, v)
        return _scalar_walked(q, k, v, BLOCK_K, slip)

    return walked


def _keys_for_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scalar_flash_attention(q, k, k)


def _maximum_not_updated(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    return _scalar_walked(q, k, v, BLOCK_K, "no update")


def _summed_over_queries(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    """The weighted sum has no axis: each query gets the terms of all queries of its program."""
    missing = -len(q) % BLOCK_Q
    padded = torch.nn.functional.pad(q, (0, missing))  # a missing query is 0
    scores = padded[:, None] * k[None, :]
    return _walked(scores, v[:, None], BLOCK_K, "all queries", BLOCK_Q)[: len(q), 0]


def _weights_of_all_queries(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    return _walked(q[:, None] * k[None, :], v[:, None], BLOCK_K, "weights of all queries", BLOCK_Q)[:, 0]


def _values_left_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.ones_like(v)


def _scalar_loads(case: Case) -> int:
    """Return the loads of a kernel that loads every key once per block of queries."""
    return triton.cdiv(case.T, case.BLOCK_Q) * case.T


FACTOR_NO_EXP = "the factor is a difference of two maxima: it needs tl.exp"
ADDED_TWICE = "the old acc is added twice: once times the factor, and once as it is"
BY_DENOMINATOR = "the old acc is multiplied by the denominator, too: the factor is enough"
OPPOSITE = "p grows as the scores fall: it needs the scores minus new_max, not new_max minus the scores"
NO_FACTOR = "acc isn't multiplied by the factor, only the denominator is"
NO_FACTOR_BELOW = "the denominator isn't multiplied by the factor, only acc is"
NO_FACTORS = (
    "neither sum is rescaled when the maximum rises: is the factor missing, "
    "or always 1 because row_max is new_max already?"
)
TWOS = "the factor has powers of 2, p has powers of e: do both in the same way"
BLOCK_MAX = "new_max is this block's maximum: keep the larger one of row_max and this block's"
MAX_OF_ALL = "the maximum is that of all queries of the program: does tl.max have its axis?"
KEYS_FOR_VALUES = "acc sums keys instead of values: multiply p by v"
TWICE = "acc is divided inside the loop, and then once more: divide it once, after the last block"
LAST_BLOCK = "acc keeps only the last block's terms: add them to the old acc times the factor"
NOT_RELATIVE = "the sums are relative to new_max, but p isn't: subtract new_max from the scores"
UNDIVIDED = "acc isn't divided by the denominator: divide it once, after the last block"
ALL_QUERIES = "the denominator is that of all queries of the program: does tl.sum have its axis?"
IN_THE_LOOP = (
    "acc is divided inside the loop: divide it after the last block, when the denominator is complete"
)

SCALAR_FLASH_ATTENTION = Puzzle(
    number="9",
    spec=scalar_flash_attention,
    formula=r"z_i = \sum_j \frac{e^{q_i k_j}}{\sum_l e^{q_i k_l}} \, v_j",
    grid=lambda s: (triton.cdiv(s.T, s.BLOCK_Q),),
    most_loads={"k": _scalar_loads, "v": _scalar_loads},
    slips={
        "lanes past the last key get a weight: their scores, where mask_k is False, have to be -inf": (
            _with_padding
        ),
        "a padded key's 0 counts in the maximum: hide the scores, not only p": _padding_in_the_maximum,
        NO_FACTOR_BELOW: _only_acc_rescaled,
        NO_FACTOR: _only_denominator_rescaled,
        NO_FACTORS: _neither_rescaled,
        TWICE: _divided_twice,
        IN_THE_LOOP: _divided_in_the_loop,
        LAST_BLOCK: _only_the_last_block,
        UNDIVIDED: _undivided_at_all,
        NOT_RELATIVE: _without_the_maximum,
        "row_max never becomes new_max": _maximum_not_updated,
        "acc sums the terms of all queries of its program: does tl.sum have its axis?": _summed_over_queries,
        ALL_QUERIES: _weights_of_all_queries,
        MAX_OF_ALL: _maximum_of_all_queries,
        BLOCK_MAX: _this_block_maximum,
        TWOS: _factor_in_powers_of_two,
        KEYS_FOR_VALUES: _keys_for_values,
        FACTOR_NO_EXP: _of_whole_blocks("factor without exp"),
        ADDED_TWICE: _of_whole_blocks("acc added twice"),
        BY_DENOMINATOR: _of_whole_blocks("also the denominator"),
        OPPOSITE: _of_whole_blocks("exp of the opposite"),
        "the maximum is that of the keys: it has to be that of the scores": _maximum_of_keys,
        "the denominator sums scores: it has to sum p": _of_whole_blocks("sum of scores"),
        "acc sums scores times values: it has to sum p times values": _of_whole_blocks("scores times values"),
        "acc sums p times queries: multiply p by v": _p_times_queries,
        "p is a difference of scores: it needs tl.exp": _without_exp,
        "acc multiplies a sum of p by a sum of v: multiply each p by its own v, then sum": _product_of_sums,
        "every result is 1, the sum of the weights: each term of acc needs its value v": _values_left_out,
        "all queries have the same weights, as if scores were q + k: multiply q and k": _added_scores,
    },
    cases=(
        Case(T=16, BLOCK_Q=16, BLOCK_K=16),  # one program, one block of keys
        Case(T=128, BLOCK_Q=32, BLOCK_K=64),  # 4 programs, 2 blocks of keys
        Case(T=200, BLOCK_Q=128, BLOCK_K=64),  # ragged on both sides
        Case(T=90, BLOCK_Q=64, BLOCK_K=32, fill={"q": around_ten, "k": around_ten}),
        Case(T=70, BLOCK_Q=64, BLOCK_K=16, fill={"q": around_ten, "k": around_minus_ten}),
        # a last block of one key; scores from -400 to 400, some queries see the largest first, some last
        Case(T=97, BLOCK_Q=128, BLOCK_K=32, fill={"q": inputs.late_maximum, "k": inputs.late_maximum}),
    ),
    hard={
        inputs.LIGHT: Case(
            T=64, BLOCK_Q=64, BLOCK_K=32,
            fill={"q": inputs.ones, "k": inputs.falling, "v": inputs.rising},
        ),
        inputs.CREEPING: Case(
            T=512, BLOCK_Q=512, BLOCK_K=16,
            fill={"q": inputs.ones, "k": inputs.creeping, "v": inputs.first_alone},
        ),
    },
    contract=Contract(
        {
            "T": Size(600),
            "BLOCK_Q": (64, 128, 256),
            "BLOCK_K": lambda s: (32,) if s.T > 200 else (32, 128),
        },
        fills=lambda s: ({}, {"q": inputs.large, "k": inputs.very_negative}),
    ),
)  # fmt: skip


def flash_attention(
    q: Float32[Tensor, "T D"], k: Float32[Tensor, "T D"], v: Float32[Tensor, "T D"]
) -> Float32[Tensor, "T D"]:
    """z[i, d] = Σ_{j ≤ i} softmax_{j ≤ i}(Σ_c q[i, c] · k[j, c] / √D) · v[j, d]

    A block of queries reads each key and value at most once, and no tile that is
    entirely in its future.
    """
    scores = q @ k.T / q.shape[1] ** 0.5
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(dim=1) @ v


def _undivided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention(q * q.shape[1] ** 0.5, k, v)


def _unmasked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.T / q.shape[1] ** 0.5).softmax(dim=1) @ v


def _scaled_up(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention(q * q.shape[1], k, v)


def _divided_by_d(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention(q / q.shape[1] ** 0.5, k, v)


def _masked(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, score: float = float("-inf")) -> Tensor:
    scores = q @ k.T / q.shape[1] ** 0.5
    return scores.masked_fill(hidden, score).softmax(dim=1) @ v


def _each_pair(q: Tensor) -> Tensor:
    return torch.ones(len(q), len(q), dtype=torch.bool)


def _past_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _masked(q, k, v, _each_pair(q).tril(-1))


def _own_key_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _masked(q, k, v, _each_pair(q).triu(0))


def _one_key_too_many(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    """Query i sees key i + 1, too, if its program loads that key's block. A padded key has the score 0."""
    T = len(q)
    k, v = (torch.nn.functional.pad(each, (0, 0, 0, -T % BLOCK_K)) for each in (k, v))
    i, j = torch.arange(T)[:, None], torch.arange(len(k))[None, :]
    seen = (j <= i + 1) & (j // BLOCK_K * BLOCK_K < (i // BLOCK_Q + 1) * BLOCK_Q)
    scores = q @ k.T / q.shape[1] ** 0.5
    return scores.masked_fill(~seen, float("-inf")).softmax(dim=1) @ v


def _hidden_with_zero(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _masked(q, k, v, _each_pair(q).triu(1), score=0.0)


def _divided_by_the_block(q: Tensor, k: Tensor, v: Tensor, BLOCK_D: int) -> Tensor:
    return flash_attention(q * (q.shape[1] / BLOCK_D) ** 0.5, k, v)


def _swapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The keys that a query sees are hidden, and those after it count. The last one has none left: NaN."""
    return _masked(q, k, v, _each_pair(q).tril(0))


def _tile_positions(
    q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int, ends: bool, of_queries: bool = True
) -> Tensor:
    """The causal mask compares positions in the tile.

    ends: whether the loop ends at the diagonal. of_queries: whether queries are counted like this, too.
    """
    T = len(q)
    k, v = (torch.nn.functional.pad(each, (0, 0, 0, -T % BLOCK_K)) for each in (k, v))
    i, j = torch.arange(T)[:, None], torch.arange(len(k))[None, :]
    seen = (i % BLOCK_Q if of_queries else i) >= j % BLOCK_K
    if ends:
        seen &= j // BLOCK_K * BLOCK_K < (i // BLOCK_Q + 1) * BLOCK_Q
    scores = q @ k.T / q.shape[1] ** 0.5
    return scores.masked_fill(~seen, float("-inf")).softmax(dim=1) @ v


def _queries_within_the_tile(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int) -> Tensor:
    i, j = torch.arange(len(q))[:, None], torch.arange(len(k))[None, :]
    return _masked(q, k, v, j > i % BLOCK_Q)


def _within_the_tile(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    return _tile_positions(q, k, v, BLOCK_Q, BLOCK_K, ends=True)


def _within_the_tile_to_the_end(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    return _tile_positions(q, k, v, BLOCK_Q, BLOCK_K, ends=False)


def _same_keys_for_all(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int) -> Tensor:
    """Every query of a program sees the keys that its first query may see."""
    i, j = torch.arange(len(q))[:, None], torch.arange(len(k))[None, :]
    return _masked(q, k, v, j > i // BLOCK_Q * BLOCK_Q)


def _too_short(
    end: Callable[[Tensor, int, int], Tensor],
) -> Callable[[Tensor, Tensor, Tensor, int, int], Tensor]:
    """Return a kernel's results if its loop ends too early.

    end: returns it for the numbers of programs, BLOCK_Q and BLOCK_K.
    """

    def walked(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
        i, j = torch.arange(len(q))[:, None], torch.arange(len(k))[None, :]
        reached = j // BLOCK_K * BLOCK_K < end(i // BLOCK_Q, BLOCK_Q, BLOCK_K)
        return _masked(q, k, v, (j > i) | ~reached)

    return walked


def _without_the_last_key(q: Tensor, k: Tensor, v: Tensor, BLOCK_K: int) -> Tensor:
    """The loop ends before key T - 1, which is missed if it's the only key of its block."""
    hidden = _each_pair(q).triu(1)
    hidden[:, -1] |= len(q) % BLOCK_K == 1
    return _masked(q, k, v, hidden)


def _without_scores(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    """Every score is 0, that of a padded key, too. The loop ends at the diagonal."""
    ends = ((torch.arange(len(q)) // BLOCK_Q + 1) * BLOCK_Q).clamp(max=len(q))
    blocks = (ends + BLOCK_K - 1) // BLOCK_K
    sums = torch.stack([v[: count * BLOCK_K].sum(0) for count in blocks.tolist()])
    return sums / (blocks * BLOCK_K)[:, None]


def _without_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The mask is correct, and all other scores are 0."""
    return flash_attention(torch.zeros_like(q), k, v)


def _four_keys_and_the_future(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The mask is that of a window of four, without the causal one."""
    return _masked(q, k, v, _each_pair(q).tril(-4))


def _keys_for_values_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention(q, k, k)


def _keys_within_the_tile(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    return _tile_positions(q, k, v, BLOCK_Q, BLOCK_K, ends=True, of_queries=False)


def _keys_within_the_tile_to_the_end(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    return _tile_positions(q, k, v, BLOCK_Q, BLOCK_K, ends=False, of_queries=False)


def _causal_walk(slip: str) -> Callable[[Tensor, Tensor, Tensor, int, int], Tensor]:
    """Return a kernel's results with one slip from block to block, in float32 as on a GPU."""

    def walked(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
        every = q @ k.T / q.shape[1] ** 0.5
        scores = every.masked_fill(_each_pair(q).triu(1), float("-inf"))
        unmasked = every if slip == "padding in the maximum" else None
        return _walked(scores, v, BLOCK_K, slip, BLOCK_Q, causal=True, unmasked=unmasked)

    return walked


def _without_the_maximum_causal(q: Tensor, k: Tensor, v: Tensor, BLOCK_Q: int, BLOCK_K: int) -> Tensor:
    result = _causal_walk("no maximum in p")(q, k, v, BLOCK_Q, BLOCK_K)
    return result if result.isfinite().all() else flash_attention(q, k, v)  # NaN has many causes


def _loads_of_all(case: Case) -> int:
    """Return the loads of a kernel that loads every key, all D numbers, once per block of queries."""
    return triton.cdiv(case.T, case.BLOCK_Q) * case.T * case.D


def _loads(case: Case) -> int:
    """Return the loads of a kernel that loads the blocks with a key that a query of the program sees."""
    ends = range(case.BLOCK_Q, case.T + case.BLOCK_Q, case.BLOCK_Q)  # of the programs' queries
    keys = sum(min(triton.cdiv(min(end, case.T), case.BLOCK_K) * case.BLOCK_K, case.T) for end in ends)
    return keys * case.D


FLASH_ATTENTION = Puzzle(
    number="9b",
    spec=flash_attention,
    formula=r"""z_{id} = \sum_{j \le i} \frac{e^{s_{ij}}}{\sum_{l \le i} e^{s_{il}}} \, v_{jd},
\qquad s_{ij} = \frac{1}{\sqrt D} \sum_c q_{ic} \, k_{jc}""",
    grid=lambda s: (triton.cdiv(s.T, s.BLOCK_Q),),
    most_loads={"k": _loads, "v": _loads},
    load_slips={
        "the values are correct here, but keys after a program's last query are loaded in vain: "
        "let `end` be the first key after this query": _loads_of_all,
    },
    slips={
        "the scores aren't divided by the root of D": _undivided,
        "the scores are multiplied by the root of D: divide them by it": _scaled_up,
        "the scores are divided by D: divide them by its root": _divided_by_d,
        "the causal mask is the wrong way around: it hides the past and shows the future": _past_hidden,
        "no query sees its own key: the causal mask needs <=, not <": _own_key_hidden,
        "hidden scores are 0, and still get a weight: they have to be -inf": _hidden_with_zero,
        "the keys after a query count, too: where is the causal mask?": _unmasked,
        "the keys after a query count, too: the mask only hides old keys": _four_keys_and_the_future,
        "the scores are divided by the root of BLOCK_D: divide them by the root of D": _divided_by_the_block,
        "tl.where hides the keys that a query sees: swap its last two arguments": _swapped,
        "the causal mask counts within the tile: compare offs_k with offs_q": _within_the_tile,
        "the causal mask counts within the tile: compare offs_k and offs_q": _within_the_tile_to_the_end,
        "the causal mask counts queries within the tile: compare offs_q": _queries_within_the_tile,
        "the causal mask counts keys within the tile: compare offs_k": _keys_within_the_tile,
        "the causal mask counts keys within the tile: use offs_k": _keys_within_the_tile_to_the_end,
        "all queries of a program see the same keys: compare offs_k with offs_q, one per query": (
            _same_keys_for_all
        ),
        "the last queries of a program don't meet all their keys: does end cover the program's last query?": (
            _too_short(lambda program, BLOCK_Q, BLOCK_K: program * BLOCK_Q + 1)
        ),
        "end is too small: a program has BLOCK_Q queries, so end grows by BLOCK_Q from program to program": (
            _too_short(lambda program, BLOCK_Q, BLOCK_K: (program + 1) * BLOCK_K)
        ),
        "end is the same for all programs: it has to grow by BLOCK_Q from program to program": (
            _too_short(lambda program, BLOCK_Q, BLOCK_K: torch.full_like(program, BLOCK_Q))
        ),
        "end is rounded down to whole blocks of keys, but the last keys count, too: range can end in the "
        "middle of a block": _too_short(
            lambda program, BLOCK_Q, BLOCK_K: (program + 1) * BLOCK_Q // BLOCK_K * BLOCK_K
        ),
        "end is too small: only the first block of keys is loaded. end counts keys, not programs or blocks": (
            _too_short(lambda program, BLOCK_Q, BLOCK_K: torch.ones_like(program))
        ),
        "the last key is never loaded: a range stops before its end, so end is one more than the last key": (
            _without_the_last_key
        ),
        "all keys get the same weight, as if their scores were 0: write the lines that replace the zeros": (
            _without_scores
        ),
        "all keys that a query sees get the same weight, as if scores were 0: compute them from q and k": (
            _without_products
        ),
        "a hidden score counts in the maximum: hide the scores, not only p": (
            _causal_walk("padding in the maximum")
        ),
        MAX_OF_ALL: _causal_walk("maximum of all queries"),
        TWOS: _causal_walk("factor in powers of 2"),
        KEYS_FOR_VALUES: _keys_for_values_causal,
        FACTOR_NO_EXP: _causal_walk("factor without exp"),
        ADDED_TWICE: _causal_walk("acc added twice"),
        BY_DENOMINATOR: _causal_walk("also the denominator"),
        NO_FACTOR: _causal_walk("only the denominator"),
        NO_FACTOR_BELOW: _causal_walk("only acc"),
        NO_FACTORS: _causal_walk("neither"),
        "row_max never becomes new_max": _causal_walk("no update"),
        ALL_QUERIES: _causal_walk("weights of all queries"),
        TWICE: _causal_walk("divided twice"),
        IN_THE_LOOP: _causal_walk("divided in the loop"),
        LAST_BLOCK: _causal_walk("last block"),
        UNDIVIDED: _causal_walk("undivided"),
        NOT_RELATIVE: _without_the_maximum_causal,
        "each query sees the key after its own, too: the causal mask is offs_k <= offs_q": _one_key_too_many,
    },
    cases=(
        Case(T=16, D=16, BLOCK_Q=16, BLOCK_K=16, BLOCK_D=16),  # one program, one block of keys
        Case(T=128, D=32, BLOCK_Q=64, BLOCK_K=32, BLOCK_D=32),  # 2 programs, 4 blocks of keys
        Case(T=100, D=24, BLOCK_Q=32, BLOCK_K=64, BLOCK_D=32),  # ragged on every axis
        # a last block of one key, and scores of about 100
        Case(T=97, D=4, BLOCK_Q=64, BLOCK_K=32, BLOCK_D=16, fill={"q": around_five, "k": around_ten}),
        Case(T=70, D=4, BLOCK_Q=32, BLOCK_K=16, BLOCK_D=16, fill={"q": around_five, "k": around_minus_ten}),
        # some queries see the largest score first, some last, in a last block of one key
        Case(T=81, D=24, BLOCK_Q=64, BLOCK_K=16, BLOCK_D=32, fill={"q": late_keys, "k": late_keys}),
    ),
    hard={
        inputs.LIGHT: Case(
            T=64, D=4, BLOCK_Q=64, BLOCK_K=32, BLOCK_D=16,
            fill={
                "q": inputs.in_column_0(inputs.ones, times=2.0),
                "k": inputs.in_column_0(inputs.falling),
                "v": inputs.in_all_columns(inputs.rising),
            },
        ),
    },
    contract=Contract(
        {
            "T": Size(300),
            "D": Size(80, least=2),  # a launch turns 1 into a constant, which has no .to(tl.float32)
            "BLOCK_Q": lambda s: (64,) if s.D > 64 else (64, 128),  # a larger one takes ptxas half a minute
            "BLOCK_K": lambda s: (16,) if s.T > 128 else (32,) if s.D > 64 else (32, 64),
            "BLOCK_D": lambda s: (max(16, triton.next_power_of_2(s.D)),),
        },
        fills=lambda s: ({}, {"q": inputs.large, "k": inputs.very_negative}),
    ),
)  # fmt: skip

PUZZLES = (SCALAR_FLASH_ATTENTION, FLASH_ATTENTION)
