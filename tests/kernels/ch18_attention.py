"""Kernels for chapter 18: right ones, and wrong ones beside its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch18_attention.puzzles import (
    ATTENTION_DKV,
    ATTENTION_DQ,
    VARLEN_ATTENTION,
    WINDOW_ATTENTION,
)
from tests.kernels import Wrong, edited

# ---- puzzle 35


@triton.jit
def two_passes(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, T, W,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """lse first, over all keys; then weights that are ready, in base 2, over those that count."""
    head = tl.program_id(1).to(tl.int64) * T
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)[:, None]
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (head + i) * D + d[None, :], mask=i < T, other=0.0)
    row_max = tl.full((BLOCK_Q, 1), -1e30, tl.float32)
    total = tl.zeros((BLOCK_Q, 1), tl.float32)
    for first in range(0, T, BLOCK_K):
        j = first + tl.arange(0, BLOCK_K)[None, :]
        k = tl.load(k_ptr + (head + j) * D + d[:, None], mask=j < T, other=0.0)
        s = tl.where((j <= i) & (j > i - W), tl.dot(q, k) * (1.4426950408889634 * D**-0.5), float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1, keep_dims=True))
        total = total * tl.exp2(row_max - new_max) + tl.sum(tl.exp2(s - new_max), axis=1, keep_dims=True)
        row_max = new_max
    lse = row_max + tl.log2(total)
    o = tl.zeros((BLOCK_Q, D), tl.float32)
    start = tl.program_id(0) * BLOCK_Q
    for first in range(tl.maximum(start - W + 1, 0), min(start + BLOCK_Q, T), BLOCK_K):
        j = first + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + (head + j[None, :]) * D + d[:, None], mask=j[None, :] < T, other=0.0)
        v = tl.load(v_ptr + (head + j[:, None]) * D + d[None, :], mask=j[:, None] < T, other=0.0)
        s = tl.dot(q, k) * (1.4426950408889634 * D**-0.5)
        p = tl.where((j[None, :] <= i) & (j[None, :] > i - W), tl.exp2(s - lse), 0.0)
        o += tl.dot(p.to(tl.bfloat16), v)
    tl.store(o_ptr + (head + i) * D + d[None, :], o.to(tl.bfloat16), mask=i < T)
    tl.store(lse_ptr + head + i, lse * 0.6931471805599453, mask=i < T)


backwards = edited(
    WINDOW_ATTENTION,
    "backwards",
    "From the diagonal back to the window's edge, by blocks that need not begin at a multiple of their size.",
    {
        "range(begin, tl.minimum(start + BLOCK_Q, T), BLOCK_K)": (
            "range(start + BLOCK_Q - BLOCK_K, begin - BLOCK_K, -BLOCK_K)"
        ),
        "tl.maximum(start - W + 1, 0) // BLOCK_K * BLOCK_K": "tl.maximum(start - W + 1, 0)",
        "k_ptr + at_k, mask=j[:, None] < T": "k_ptr + at_k, mask=(j[:, None] < T) & (j[:, None] >= 0)",
        "v_ptr + at_k, mask=j[:, None] < T": "v_ptr + at_k, mask=(j[:, None] < T) & (j[:, None] >= 0)",
        "(distance >= 0) & (distance < W)": "(j[None, :] >= 0) & (distance >= 0) & (distance < W)",
    },
)
weights_in_tf32 = edited(
    WINDOW_ATTENTION,
    "weights_in_tf32",
    "Widens the values instead of narrowing the weights: TF32 has three bits more than bfloat16.",
    {"tl.dot(p.to(tl.bfloat16), v, acc": "tl.dot(p, v.to(tl.float32), acc"},
)

# ---- puzzle 36


@triton.jit
def the_head_in_the_pointers(
    q_ptr, k_ptr, v_ptr, cu_q_ptr, cu_k_ptr, o_ptr, lse_ptr, NQ,
    stride_qnq, stride_qh, stride_knk, stride_kh_kv, H: tl.constexpr, H_KV: tl.constexpr,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Leaves early where there is no query; moves the pointers to the head; counts from the last query."""
    b, h, d = tl.program_id(2), tl.program_id(1), tl.arange(0, D)
    first_q, end_q = tl.load(cu_q_ptr + b), tl.load(cu_q_ptr + b + 1)
    first_k, end_k = tl.load(cu_k_ptr + b), tl.load(cu_k_ptr + b + 1)
    i = first_q + tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    if first_q + tl.program_id(0) * BLOCK_Q >= end_q:
        return
    q = tl.load(q_ptr + h * stride_qh + i[:, None] * stride_qnq + d, mask=i[:, None] < end_q, other=0.0)
    k_ptr += h * H_KV // H * stride_kh_kv
    v_ptr += h * H_KV // H * stride_kh_kv
    row_max = tl.full((BLOCK_Q,), float("-inf"), tl.float32)  # all see the first key
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, D), tl.float32)
    seen = end_k - end_q + first_q + (tl.program_id(0) + 1) * BLOCK_Q
    for first in range(first_k, tl.minimum(end_k, seen), BLOCK_K):
        j = first + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + j[None, :] * stride_knk + d[:, None], mask=j[None, :] < end_k, other=0.0)
        v = tl.load(v_ptr + j[:, None] * stride_knk + d, mask=j[:, None] < end_k, other=0.0)
        s = tl.dot(q, k) * (D**-0.5)
        s = tl.where((j < end_k)[None, :] & ((end_k - j)[None, :] >= (end_q - i)[:, None]), s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        total = total * tl.exp(row_max - new_max) + tl.sum(p, axis=1)
        acc *= tl.exp(row_max - new_max)[:, None]
        acc += tl.dot(p.to(tl.bfloat16), v)
        row_max = new_max
    tl.store(
        o_ptr + h * stride_qh + i[:, None] * stride_qnq + d, acc / total[:, None], mask=i[:, None] < end_q
    )
    tl.store(lse_ptr + h * NQ + i, row_max + tl.log(total), mask=i < end_q)


the_last_keys_first = edited(
    VARLEN_ATTENTION,
    "the_last_keys_first",
    "From the last block of keys that a query sees to the first.",
    {
        "for first in range(0, end, BLOCK_K)": (
            "for first in range(tl.cdiv(end, BLOCK_K) * BLOCK_K - BLOCK_K, -BLOCK_K, -BLOCK_K)"
        ),
        "scores = tl.dot(q, k.T) * D**-0.5": "scores = tl.dot(q, tl.trans(k)) / D**0.5",
    },
)

# ---- puzzle 37

scaled_before_the_dot = edited(
    ATTENTION_DQ,
    "scaled_before_the_dot",
    "Scales ds instead of dq, before it is rounded, and hides scores instead of weights.",
    {
        "p = tl.exp(scores - lse[:, None])": "hidden = j[None, :] > i[:, None]",
        "tl.where(j[None, :] <= i[:, None], p, 0.0)": (
            'tl.exp(tl.where(hidden, float("-inf"), scores) - lse[:, None])'
        ),
        "ds = p * (dp - delta[:, None])": "ds = p * (dp - delta[:, None]) * D**-0.5",
        "dq * D**-0.5, mask": "dq.to(tl.bfloat16), mask",
    },
)


@triton.jit
def keys_as_rows(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, dq_ptr, delta_ptr, T,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """All blocks of keys, from the last to the first; scores in base 2, with keys along the rows."""
    head = tl.program_id(1).to(tl.int64) * T
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)[None, :]
    d = tl.arange(0, D)[:, None]
    q = tl.load(q_ptr + (head + i) * D + d, mask=i < T, other=0.0)  # [D, BLOCK_Q]
    do = tl.load(do_ptr + (head + i) * D + d, mask=i < T, other=0.0)
    o = tl.load(o_ptr + (head + i) * D + d, mask=i < T, other=0.0)
    lse = tl.load(lse_ptr + head + i, mask=i < T, other=0.0) * 1.4426950408889634
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=0, keep_dims=True)
    dq = tl.zeros((D, BLOCK_Q), tl.float32)
    for turn in range(tl.cdiv(T, BLOCK_K)):
        j = (tl.cdiv(T, BLOCK_K) - 1 - turn) * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]
        at = (head + j) * D + tl.arange(0, D)[None, :]
        k = tl.load(k_ptr + at, mask=j < T, other=0.0)
        v = tl.load(v_ptr + at, mask=j < T, other=0.0)
        s = tl.where(j <= i, tl.dot(k, q) * (D**-0.5 * 1.4426950408889634), float("-inf"))
        ds = tl.exp2(s - lse) * (tl.dot(v, do) - delta)
        dq += tl.dot(k.T, ds.to(tl.bfloat16))
    tl.store(dq_ptr + (head + i) * D + d, dq * (D**-0.5), mask=i < T)
    tl.store(delta_ptr + head + i, delta, mask=i < T)


# ---- puzzle 38


@triton.jit
def one_head_after_the_other(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, H, H_KV, T,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Blocks of queries outside, from the last to the first, heads inside; queries along the rows."""
    start, g, d = tl.program_id(0) * BLOCK_K, tl.program_id(1), tl.arange(0, D)[None, :]
    j = start + tl.arange(0, BLOCK_K)
    at_k = (g.to(tl.int64) * T + j[:, None]) * D + d
    k = tl.load(k_ptr + at_k, mask=j[:, None] < T, other=0.0)
    v = tl.load(v_ptr + at_k, mask=j[:, None] < T, other=0.0)
    dk = tl.zeros((BLOCK_K, D), tl.float32)
    dv = tl.zeros((BLOCK_K, D), tl.float32)
    group = H // H_KV
    for first in range(tl.cdiv(T, BLOCK_Q) * BLOCK_Q - BLOCK_Q, start - BLOCK_Q, -BLOCK_Q):
        i = first + tl.arange(0, BLOCK_Q)[:, None]
        seen = (j[None, :] <= i) & (i < T)
        for member in range(group):
            head = (g * group + member).to(tl.int64) * T
            q = tl.load(q_ptr + (head + i) * D + d, mask=i < T, other=0.0)
            do = tl.load(do_ptr + (head + i) * D + d, mask=i < T, other=0.0)
            lse = tl.load(lse_ptr + head + i, mask=i < T, other=0.0)
            delta = tl.load(delta_ptr + head + i, mask=i < T, other=0.0)
            p = tl.exp(tl.where(seen, tl.dot(q, k.T) * (D**-0.5), float("-inf")) - lse)
            dv += tl.dot(p.to(tl.bfloat16).T, do)
            ds = p * (tl.dot(do, v.T) - delta) * (D**-0.5)
            dk += tl.dot(ds.to(tl.bfloat16).T, q)
    tl.store(dk_ptr + at_k, dk.to(tl.bfloat16), mask=j[:, None] < T)
    tl.store(dv_ptr + at_k, dv.to(tl.bfloat16), mask=j[:, None] < T)


in_base_two = edited(
    ATTENTION_DKV,
    "in_base_two",
    "Powers of two, and the first block of queries by its remainder.",
    {
        "first_query = start // BLOCK_Q * BLOCK_Q": "first_query = start - start % BLOCK_Q",
        "tl.exp(scores - lse[None, :])": "tl.exp2((scores - lse[None, :]) * 1.4426950408889634)",
    },
)

heads_first = edited(
    VARLEN_ATTENTION,
    "heads_first",
    "Takes q and o for [H, NQ, D], as in puzzle 35.",
    {"((first_q + i) * H + h)[:, None]": "(h * NQ + first_q + i)[:, None]"},
)

delta_summed_in_bfloat16 = edited(
    ATTENTION_DQ,
    "delta_summed_in_bfloat16",
    "The product of two bfloat16 blocks is bfloat16, and so is its sum.",
    {"o.to(tl.float32) * do": "o * do"},
)

weights_in_bfloat16 = edited(
    ATTENTION_DQ,
    "weights_in_bfloat16",
    "Rounds p as well as ds. In long rows the two roundings hardly show.",
    {"ds = p * (dp": "ds = p.to(tl.bfloat16) * (dp"},
)

WRONG = [
    Wrong(VARLEN_ATTENTION, heads_first, "values", "are taken from [H, NQ, D]"),
    Wrong(ATTENTION_DQ, delta_summed_in_bfloat16, "values", "delta was computed in bfloat16"),
    Wrong(ATTENTION_DQ, weights_in_bfloat16, "values", "(case=6)"),
]

RIGHT = [
    (ATTENTION_DKV, in_base_two),
    (WINDOW_ATTENTION, two_passes),
    (WINDOW_ATTENTION, backwards),
    (WINDOW_ATTENTION, weights_in_tf32),
    (VARLEN_ATTENTION, the_head_in_the_pointers),
    (VARLEN_ATTENTION, the_last_keys_first),
    (ATTENTION_DQ, scaled_before_the_dot),
    (ATTENTION_DQ, keys_as_rows),
    (ATTENTION_DKV, one_head_after_the_other),
]
