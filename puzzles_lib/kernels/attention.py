"""Scaled dot product attention, forward and backward, that never stores a score.

With s = scale · q kᵀ, p = exp(s - lse), where lse is the log of the sum of exp(s) over a row:

    o  = p v                          forward keeps o and lse
    dv = pᵀ do
    ds = p · (do vᵀ - delta)          delta = sum over a row of do · o, less the gradient of lse
    dq = scale · ds k,  dk = scale · dsᵀ q

Backward computes p again from lse. Each element of a gradient is summed by one program, in a fixed order: dq
by programs with a block of queries, dk and dv by programs with a block of keys. So a gradient has the same
bits in every run, and scores are computed twice. The method is that of FlashAttention-2 (T. Dao, 2023,
arXiv:2307.08691).

Tiles are loaded with tensor descriptors, which is TMA on a Hopper GPU. They need no masks, and rows past the
last one are zeros. exp is a power of 2, with the factor log2(e) in the scale.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.kernels.common import check_dtype, check_integer

HALVES = (torch.float16, torch.bfloat16)
DTYPES = (*HALVES, torch.float32, torch.float64)
HEAD_DIMS = (16, 32, 64, 128)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LEAST = tl.constexpr(-3.0e38)  # below any score; minus infinity would give NaN where a row has seen no key
HEADS = tl.constexpr(8)  # whose tiles take turns: their keys and values stay in the L2 cache


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(scale · q kᵀ) v, differentiable in q, k and v.

    q: [B, H, T, D], float16, bfloat16, float32 or float64. D is 16, 32, 64 or 128; T is any number.
    k, v: [B, G, T, D] with q's dtype, on its device. H is a multiple of G, and head h of q uses head
        h // (H // G) of k and v.
    causal: query i sees only the keys j <= i.
    window: with ``causal=True`` only. Query i sees the last ``window`` of its keys: i - window < j <= i.
    scale: D ** -0.5 by default.
    cu_seqlens: int32 [n + 1], for n sequences packed into one. B is then 1, and sequence i has the rows
        cu_seqlens[i] to cu_seqlens[i + 1] - 1. It starts at 0, ends at T, and is nondecreasing. Sequences
        don't see each other, and a NaN stays in its own sequence.
    max_seqlen: with ``cu_seqlens`` only: at least the length of the longest sequence. T, the default, is
        correct but may start programs that have nothing to do.
    return_lse: also return the logarithm of the sum of exp of each row's scores.

    float16 and bfloat16 on a GPU run Triton kernels, which never store a score (FlashAttention-2). float32,
    float64 and everything on the CPU run plain torch, which keeps all scores in memory. Tensors can have any
    strides; [B, T, H, D] transposed is as fast as contiguous tensors.

    Returns o, of q's shape and dtype. With ``return_lse``, returns (o, lse), where lse is [B, H, T], float32
    (float64 if q is float64).

    Raises TypeError for another dtype, and ValueError for shapes or options that do not fit together.
    """
    _check(q, k, v, causal, window, cu_seqlens, max_seqlen)
    longest = q.shape[2] if max_seqlen is None else max_seqlen
    try:
        scale = q.shape[3] ** -0.5 if scale is None else float(scale)
    except (TypeError, ValueError):
        raise TypeError(f"scale must be a number, but is {scale!r}") from None
    o, lse = _attention(q, k, v, cu_seqlens, longest, causal, window, scale)
    return (o, lse) if return_lse else o


def _check(q, k, v, causal, window, cu_seqlens, max_seqlen) -> None:
    for name, value in (("q", q), ("k", k), ("v", v)):
        check_dtype(name, value, DTYPES)
        if value.dim() != 4:
            raise ValueError(f"{name} must have 4 axes (batch, heads, rows, columns), but has {value.dim()}")
        if value.dtype != q.dtype or value.device != q.device:
            text = f"{name} must be {q.dtype} on {q.device} like q, but is {value.dtype} on {value.device}"
            raise TypeError(text)
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"q must have 16, 32, 64 or 128 columns (D), but has {q.shape[3]}")
    if q.shape[1] % max(k.shape[1], 1) or (q.shape[1] > 0) != (k.shape[1] > 0):
        raise ValueError(f"the number of k's heads must divide q's {q.shape[1]}, but is {k.shape[1]}")
    wanted = (q.shape[0], k.shape[1], q.shape[2], q.shape[3])
    for name, value in (("k", k), ("v", v)):
        if tuple(value.shape) != wanted:
            raise ValueError(f"{name} must have shape {wanted}, but has shape {tuple(value.shape)}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False, but is {causal!r}")
    for name, number in (("window", window), ("max_seqlen", max_seqlen)):
        if number is not None:
            check_integer(name, number)
    if window is not None and (window < 1 or not causal):
        raise ValueError(f"window must be at least 1, with causal=True, but is {window} with causal={causal}")
    if cu_seqlens is None:
        if max_seqlen is not None:
            raise ValueError(f"max_seqlen must be None without cu_seqlens, but is {max_seqlen}")
        return
    check_dtype("cu_seqlens", cu_seqlens, (torch.int32,))
    if cu_seqlens.dim() != 1 or len(cu_seqlens) == 0 or cu_seqlens.device != q.device:
        shape = tuple(cu_seqlens.shape)
        raise ValueError(
            f"cu_seqlens must have shape (n + 1,) on q's device, but has shape {shape} on {cu_seqlens.device}"
        )
    if q.shape[0] != 1:
        raise ValueError(f"q must have a batch of 1 with cu_seqlens, but has {q.shape[0]}")
    if max_seqlen is not None and max_seqlen < 0:
        raise ValueError(
            f"max_seqlen must be at least the length of the longest sequence, but is {max_seqlen}"
        )


# ---- torch, the reference


def _scores_ref(q, k, cu_seqlens, causal, window, scale) -> torch.Tensor:
    """[B, H, T, T], minus infinity for what a query does not see."""
    behind = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(q.shape[2], device=q.device)
    seen = torch.ones_like(behind, dtype=torch.bool)
    if causal:
        seen &= behind >= 0
    if window is not None:
        seen &= behind < window
    if cu_seqlens is not None:
        rows = torch.arange(q.shape[2], device=q.device)
        of = torch.searchsorted(cu_seqlens, rows, right=True)  # which sequence
        seen &= of[:, None] == of
    return (scale * (q @ k.mT)).masked_fill(~seen, -torch.inf)


def _wide(x: torch.Tensor, heads: int) -> torch.Tensor:
    """In float32 or float64, with a head for each of q's."""
    x = x if x.dtype == torch.float64 else x.float()
    return x.repeat_interleave(heads // max(x.shape[1], 1), 1)


def attention_ref(q, k, v, cu_seqlens, causal, window, scale) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o [B, H, T, D] and lse [B, H, T], with all scores in memory."""
    heads = q.shape[1]
    s = _scores_ref(_wide(q, heads), _wide(k, heads), cu_seqlens, causal, window, scale)
    o = _times(s.softmax(3), _wide(v, heads))
    return torch.empty_like(q).copy_(o), s.logsumexp(3)


def _times(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """p v, where a NaN in a row that p does not see does not count."""
    bad = ~v.isfinite()
    if not bad.any():
        return p @ v
    spoilt = p @ bad.to(p.dtype) > 0
    return (p @ v.masked_fill(bad, 0)).masked_fill(spoilt, torch.nan)


def attention_backward_ref(
    do, dlse, q, k, v, o, lse, cu_seqlens, causal, window, scale
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dq, dk and dv, shaped like q, k and v, with all scores in memory."""
    heads = q.shape[1]
    wide_q, wide_k, wide_v, wide_do = (_wide(each, heads) for each in (q, k, v, do))
    p = torch.exp(_scores_ref(wide_q, wide_k, cu_seqlens, causal, window, scale) - lse[..., None])
    delta = (wide_do * _wide(o, heads)).sum(3) - dlse
    ds = torch.where(p > 0, p * (wide_do @ wide_v.mT - delta[..., None]), 0.0)
    dk, dv = (
        each.unflatten(1, (k.shape[1], -1)).sum(2) for each in (scale * (ds.mT @ wide_q), p.mT @ wide_do)
    )
    dq = scale * (ds @ wide_k)
    return torch.empty_like(q).copy_(dq), torch.empty_like(k).copy_(dk), torch.empty_like(k).copy_(dv)


# ---- Triton


@triton.jit
def _owner(pid, T, cu_ptr, heads, longest, BLOCK: tl.constexpr):
    """A program's tile; its pair of batch and head, counted; where its sequence starts, and its length.

    HEADS heads take turns, tile by tile. heads: those of one batch, or of one sequence.
    """
    tiles = tl.cdiv(longest, BLOCK)
    first = pid // (HEADS * tiles) * HEADS
    wide = tl.minimum(tl.num_programs(0) // tiles - first, HEADS)
    pair, start = first + pid % (HEADS * tiles) % wide, 0
    tile = pid % (HEADS * tiles) // wide
    if cu_ptr is not None:
        start = tl.load(cu_ptr + pair // heads)
        T = tl.minimum(tl.load(cu_ptr + pair // heads + 1), T) - start
        pair = pair % heads
    return tile, pair, start, T


@triton.jit
def _tile(x, pair, start, row, T, BLOCK: tl.constexpr, D: tl.constexpr, ALONE: tl.constexpr):
    """Load [BLOCK, D] of x. Not ALONE: zero rows past T: the next sequence owns them, and 0 · NaN is NaN."""
    wide = (x.shape[2] // D).to(tl.int32)  # heads side by side in a row
    tile = x.load([pair // wide, start + row, pair % wide * D]).reshape([BLOCK, D])
    if not ALONE:
        tile = tl.where((row + tl.arange(0, BLOCK) < T)[:, None], tile, 0.0)
    return tile


@triton.jit
def _seen(offs_m, offs_n, T, window, CAUSAL: tl.constexpr):
    """Does query m see key n? Of two blocks that broadcast."""
    seen = (offs_m < T) & (offs_n < T)
    if CAUSAL:
        seen = seen & (offs_m >= offs_n)
    if window is not None:
        seen = seen & (offs_m - offs_n < window)
    return seen


@triton.jit
def _keys_of(row, T, window, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of the queries from row on: the first key that one sees, the keys that all see, and the last."""
    first, whole, whole_end, end = 0, 0, T // BLOCK_N * BLOCK_N, T
    if CAUSAL:
        whole_end = (row + 1) // BLOCK_N * BLOCK_N
        end = tl.minimum(row + BLOCK_M, T)
    if window is not None:
        first = tl.maximum(row - window + 1, 0) // BLOCK_N * BLOCK_N
        whole = tl.minimum(tl.cdiv(tl.maximum(row + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N, end)
    return first, whole, tl.maximum(whole, whole_end), end


@triton.jit
def _forward_steps(
    acc, most, total, q, k, v, pair, start, offs_m, lo, hi, T, window, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    for n in range(lo, hi, BLOCK_N):
        s = tl.dot(q, _tile(k, pair, start, n, T, BLOCK_N, D, True).T)  # [BLOCK_M, BLOCK_N]
        if MASKED:
            offs_n = n + tl.arange(0, BLOCK_N)
            s = tl.where(_seen(offs_m[:, None], offs_n[None, :], T, window, CAUSAL), s, float("-inf"))
        new = tl.maximum(most, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - new[:, None])
        shrink = tl.exp2(most - new)
        total = total * shrink + tl.sum(p, 1)
        v_tile = _tile(v, pair, start, n, T, BLOCK_N, D, ALONE or not MASKED)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * shrink[:, None])
        most = new
    return acc, most, total


@triton.jit
def _forward_kernel(
    q, k, v, o_ptr, lse_ptr, cu_ptr, heads, length, longest, window, scale, stride_b, stride_h, stride_t,
    GROUP: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """o and lse of BLOCK_M queries. q, k, v: descriptors; scale: times log2(e); strides: o's."""
    tile, pair, start, T = _owner(tl.program_id(0), length, cu_ptr, heads, longest, BLOCK_M)
    if CAUSAL:
        tile = tl.cdiv(longest, BLOCK_M) - 1 - tile  # the tiles that see most come first
    row = tile * BLOCK_M
    if row < T:
        ALONE: tl.constexpr = cu_ptr is None
        offs_m = row + tl.arange(0, BLOCK_M)
        q_tile = _tile(q, pair, start, row, T, BLOCK_M, D, True)
        acc = tl.zeros([BLOCK_M, D], tl.float32)
        most = tl.full([BLOCK_M], LEAST, tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        first, whole, whole_end, end = _keys_of(row, T, window, CAUSAL, BLOCK_M, BLOCK_N)
        if window is not None:
            acc, most, total = _forward_steps(
                acc, most, total, q_tile, k, v, pair // GROUP, start, offs_m, first, whole, T, window, scale,
                True, CAUSAL, BLOCK_N, D, ALONE,
            )  # fmt: skip
        acc, most, total = _forward_steps(
            acc, most, total, q_tile, k, v, pair // GROUP, start, offs_m, whole, whole_end, T, window, scale,
            False, CAUSAL, BLOCK_N, D, ALONE,
        )  # fmt: skip
        acc, most, total = _forward_steps(
            acc, most, total, q_tile, k, v, pair // GROUP, start, offs_m, whole_end, end, T, window, scale,
            True, CAUSAL, BLOCK_N, D, ALONE,
        )  # fmt: skip
        mask = offs_m < T
        lse = (most + tl.log2(total)) * LN2
        tl.store(lse_ptr + pair.to(tl.int64) * length + start + offs_m, lse, mask=mask)
        at = _place(pair, heads, start + offs_m, stride_b, stride_h, stride_t, D)
        tl.store(o_ptr + at, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=mask[:, None])


@triton.jit
def _place(pair, heads, rows, stride_b, stride_h, stride_t, D: tl.constexpr):
    """Offsets [rows, D], in int64: a tensor may have 2^31 elements and more."""
    at = (pair // heads).to(tl.int64) * stride_b + (pair % heads).to(tl.int64) * stride_h
    return (at + rows.to(tl.int64) * stride_t)[:, None] + tl.arange(0, D)[None, :]


@triton.jit
def _dq_steps(
    dq, q, do, lse, delta, k, v, pair, start, offs_m, lo, hi, T, window, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    for n in range(lo, hi, BLOCK_N):
        k_tile = _tile(k, pair, start, n, T, BLOCK_N, D, ALONE or not MASKED)
        s = tl.dot(q, k_tile.T)  # [BLOCK_M, BLOCK_N]
        dp = tl.dot(do, _tile(v, pair, start, n, T, BLOCK_N, D, True).T)
        ds = tl.exp2(s * scale - lse[:, None]) * (dp - delta[:, None])
        if MASKED:
            offs_n = n + tl.arange(0, BLOCK_N)
            ds = tl.where(_seen(offs_m[:, None], offs_n[None, :], T, window, CAUSAL), ds, 0.0)
        dq = tl.dot(ds.to(k_tile.dtype), k_tile, dq)
    return dq


@triton.jit
def _dq_kernel(
    q, k, v, o, do, lse_ptr, dlse_ptr, dq_ptr, delta_ptr, cu_ptr, heads, length, longest, window, scale,
    stride_b, stride_h, stride_t,
    GROUP: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dq of BLOCK_M queries, and their delta, which the kernel for dk and dv reads. strides: dq's."""
    tile, pair, start, T = _owner(tl.program_id(0), length, cu_ptr, heads, longest, BLOCK_M)
    if CAUSAL:
        tile = tl.cdiv(longest, BLOCK_M) - 1 - tile
    row = tile * BLOCK_M
    if row < T:
        ALONE: tl.constexpr = cu_ptr is None
        offs_m = row + tl.arange(0, BLOCK_M)
        mask = offs_m < T
        at = pair.to(tl.int64) * length + start + offs_m
        q_tile = _tile(q, pair, start, row, T, BLOCK_M, D, True)
        do_tile = _tile(do, pair, start, row, T, BLOCK_M, D, True)
        o_tile = _tile(o, pair, start, row, T, BLOCK_M, D, True)
        delta = tl.sum(o_tile.to(tl.float32) * do_tile.to(tl.float32), 1)  # [BLOCK_M]
        delta -= tl.load(dlse_ptr + at, mask=mask, other=0.0)
        tl.store(delta_ptr + at, delta, mask=mask)
        lse = tl.load(lse_ptr + at, mask=mask, other=0.0) * LOG2E
        dq = tl.zeros([BLOCK_M, D], tl.float32)
        first, whole, whole_end, end = _keys_of(row, T, window, CAUSAL, BLOCK_M, BLOCK_N)
        if window is not None:
            dq = _dq_steps(
                dq, q_tile, do_tile, lse, delta, k, v, pair // GROUP, start, offs_m, first, whole, T, window,
                scale * LOG2E, True, CAUSAL, BLOCK_N, D, ALONE,
            )  # fmt: skip
        dq = _dq_steps(
            dq, q_tile, do_tile, lse, delta, k, v, pair // GROUP, start, offs_m, whole, whole_end, T, window,
            scale * LOG2E, False, CAUSAL, BLOCK_N, D, ALONE,
        )  # fmt: skip
        dq = _dq_steps(
            dq, q_tile, do_tile, lse, delta, k, v, pair // GROUP, start, offs_m, whole_end, end, T, window,
            scale * LOG2E, True, CAUSAL, BLOCK_N, D, ALONE,
        )  # fmt: skip
        at = _place(pair, heads, start + offs_m, stride_b, stride_h, stride_t, D)
        tl.store(dq_ptr + at, (dq * scale).to(dq_ptr.dtype.element_ty), mask=mask[:, None])


@triton.jit
def _queries_of(row, T, window, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of the keys from row on: the first query that sees one, those that see all, and the last."""
    first, whole, whole_end, end = 0, 0, T // BLOCK_M * BLOCK_M, T
    if CAUSAL:
        first = row // BLOCK_M * BLOCK_M
        whole = tl.cdiv(row + BLOCK_N - 1, BLOCK_M) * BLOCK_M
    if window is not None:
        end = tl.minimum(T, row + BLOCK_N - 1 + window)
        whole_end = tl.minimum(whole_end, (row + window) // BLOCK_M * BLOCK_M)
    whole = tl.minimum(whole, end)
    return first, whole, tl.maximum(whole, whole_end), end


@triton.jit
def _dkv_steps(
    dk, dv, k, v, q, do, lse_ptr, delta_ptr, pair, start, offs_n, lo, hi, T, window, scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, D: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    for m in range(lo, hi, BLOCK_M):
        offs_m = m + tl.arange(0, BLOCK_M)
        q_tile = _tile(q, pair, start, m, T, BLOCK_M, D, ALONE or not MASKED)
        s = tl.dot(k, q_tile.T)  # [BLOCK_N, BLOCK_M]
        if MASKED:
            lse = tl.load(lse_ptr + offs_m, mask=offs_m < T, other=0.0)
            delta = tl.load(delta_ptr + offs_m, mask=offs_m < T, other=0.0)
        else:
            lse, delta = tl.load(lse_ptr + offs_m), tl.load(delta_ptr + offs_m)
        p = tl.exp2(s * scale - lse[None, :] * LOG2E)
        if MASKED:
            p = tl.where(_seen(offs_m[None, :], offs_n[:, None], T, window, CAUSAL), p, 0.0)
        do_tile = _tile(do, pair, start, m, T, BLOCK_M, D, ALONE or not MASKED)
        dv = tl.dot(p.to(do_tile.dtype), do_tile, dv)
        dp = tl.dot(v, do_tile.T)
        ds = p * (dp - delta[None, :])
        dk = tl.dot(ds.to(q_tile.dtype), q_tile, dk)
    return dk, dv


@triton.jit
def _dkv_kernel(
    q, k, v, do, lse_ptr, delta_ptr, dk_ptr, dv_ptr, cu_ptr, groups, length, longest, window, scale,
    stride_b, stride_h, stride_t,
    GROUP: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dk and dv of BLOCK_N keys, summed over the GROUP heads that share them. strides: dk's and dv's."""
    tile, pair, start, T = _owner(tl.program_id(0), length, cu_ptr, groups, longest, BLOCK_N)
    row = tile * BLOCK_N
    if row < T:
        ALONE: tl.constexpr = cu_ptr is None
        offs_n = row + tl.arange(0, BLOCK_N)
        k_tile = _tile(k, pair, start, row, T, BLOCK_N, D, True)
        v_tile = _tile(v, pair, start, row, T, BLOCK_N, D, True)
        dk = tl.zeros([BLOCK_N, D], tl.float32)
        dv = tl.zeros([BLOCK_N, D], tl.float32)
        first, whole, whole_end, end = _queries_of(row, T, window, CAUSAL, BLOCK_M, BLOCK_N)
        # GROUP times: a loop that the compiler sees to run once it unrolls, and that took a fifth longer.
        for sharing in range(pair * GROUP, (pair + 1) * GROUP):
            skip = sharing.to(tl.int64) * length + start
            if CAUSAL:
                dk, dv = _dkv_steps(
                    dk, dv, k_tile, v_tile, q, do, lse_ptr + skip, delta_ptr + skip, sharing, start, offs_n,
                    first, whole, T, window, scale * LOG2E, True, CAUSAL, BLOCK_M, D, ALONE,
                )  # fmt: skip
            dk, dv = _dkv_steps(
                dk, dv, k_tile, v_tile, q, do, lse_ptr + skip, delta_ptr + skip, sharing, start, offs_n,
                whole, whole_end, T, window, scale * LOG2E, False, CAUSAL, BLOCK_M, D, ALONE,
            )  # fmt: skip
            dk, dv = _dkv_steps(
                dk, dv, k_tile, v_tile, q, do, lse_ptr + skip, delta_ptr + skip, sharing, start, offs_n,
                whole_end, end, T, window, scale * LOG2E, True, CAUSAL, BLOCK_M, D, ALONE,
            )  # fmt: skip
        mask = (offs_n < T)[:, None]
        at = _place(pair, groups, start + offs_n, stride_b, stride_h, stride_t, D)
        tl.store(dk_ptr + at, (dk * scale).to(dk_ptr.dtype.element_ty), mask=mask)
        tl.store(dv_ptr + at, dv.to(dv_ptr.dtype.element_ty), mask=mask)


# ---- launching them


@dataclass(frozen=True)
class Tiles:
    """How a kernel's work is divided: queries and keys per tile, warps, pipeline stages."""

    m: int
    n: int
    warps: int
    stages: int


FORWARD = {64: Tiles(64, 128, 4, 2), 128: Tiles(128, 64, 4, 2)}
DQ = {64: Tiles(64, 64, 4, 2), 128: Tiles(128, 64, 8, 3)}
DKV = {64: Tiles(128, 64, 4, 2), 128: Tiles(64, 64, 4, 2)}
"""By head dim; less than 64 takes what 64 does.

Each is the fastest of 54, or within 4% of it, for causal and for full attention on an H200, as
`python -m puzzles_lib.bench tiles` times them; ``tiles.json`` of `puzzles_lib.timing.recorded` has it all.
"""


def _rows(x: torch.Tensor, block: int) -> TensorDescriptor:
    """Return a descriptor of x [B, H, T, D] for tiles of ``block`` rows.

    It describes [B · H, T, D], or [B, T, H · D] if the heads are side by side.
    """
    B, H, T, D = x.shape
    if _heads_outside(x):
        return TensorDescriptor(x, [B * H, T, D], [_stride(x, int(H > 1)), _stride(x, 2), 1], [1, block, D])
    return TensorDescriptor(x, [B, T, H * D], [_stride(x, 0), _stride(x, 2), 1], [1, block, D])


def _stride(x: torch.Tensor, axis: int) -> int:
    """As it is, or where it does not matter one that TMA takes."""
    return x.stride(axis) if x.shape[axis] > 1 else x.shape[3]


def _heads_outside(x: torch.Tensor) -> bool:
    """Does a head follow the other with one stride, from batch to batch too?"""
    return 1 in x.shape[:2] or x.stride(0) == x.shape[1] * x.stride(1)


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy of it where no descriptor fits: TMA wants addresses that 16 bytes divide."""
    each = 16 // x.element_size()
    fits = x.stride(3) == 1 and x.data_ptr() % 16 == 0
    fits = fits and all(x.stride(i) % each == 0 and x.stride(i) > 0 for i in range(3) if x.shape[i] > 1)
    fits = fits and (_heads_outside(x) or x.stride(1) == x.shape[3])
    return x if fits else x.clone(memory_format=torch.contiguous_format)


def _programs(x: torch.Tensor, block: int, cu_seqlens: torch.Tensor | None, longest: int) -> tuple[int]:
    sequences = x.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    return (triton.cdiv(longest, block) * sequences * x.shape[1],)


def launch_forward(q, k, v, o, lse, cu_seqlens, longest, causal, window, scale, tiles=None):
    """Fill o [B, H, T, D], any strides but the last, and lse [B, H, T]; all as `attention` has them.

    tiles: the tiles to use instead of those in `FORWARD`. Returns the compiled kernel, as the launchers below
    do.
    """
    tiles = tiles or FORWARD[max(q.shape[3], 64)]
    if scale <= 0:  # the kernel scales the maximum, and minus infinity: right for a positive scale alone
        q, scale = q * (-1 if scale < 0 else 0), -scale or 1.0
    return _forward_kernel[_programs(q, tiles.m, cu_seqlens, longest)](
        _rows(q, tiles.m), _rows(k, tiles.n), _rows(v, tiles.n), o, lse, cu_seqlens,
        q.shape[1], q.shape[2], longest, window, scale * LOG2E.value, *o.stride()[:3],
        GROUP=q.shape[1] // k.shape[1], CAUSAL=causal, D=q.shape[3], BLOCK_M=tiles.m, BLOCK_N=tiles.n,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


def launch_dq(q, k, v, o, do, lse, dlse, dq, delta, cu_seqlens, longest, causal, window, scale, tiles=None):
    """Fill dq (like q) and delta (like lse)."""
    tiles = tiles or DQ[max(q.shape[3], 64)]
    return _dq_kernel[_programs(q, tiles.m, cu_seqlens, longest)](
        _rows(q, tiles.m), _rows(k, tiles.n), _rows(v, tiles.n), _rows(o, tiles.m), _rows(do, tiles.m),
        lse, dlse, dq, delta, cu_seqlens, q.shape[1], q.shape[2], longest, window, scale, *dq.stride()[:3],
        GROUP=q.shape[1] // k.shape[1], CAUSAL=causal, D=q.shape[3], BLOCK_M=tiles.m, BLOCK_N=tiles.n,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


def launch_dkv(q, k, v, do, lse, delta, dk, dv, cu_seqlens, longest, causal, window, scale, tiles=None):
    """Fill dk and dv, which have k's shape and strides, using the delta from `launch_dq`."""
    tiles = tiles or DKV[max(q.shape[3], 64)]
    return _dkv_kernel[_programs(k, tiles.n, cu_seqlens, longest)](
        _rows(q, tiles.m), _rows(k, tiles.n), _rows(v, tiles.n), _rows(do, tiles.m), lse, delta, dk, dv,
        cu_seqlens, k.shape[1], q.shape[2], longest, window, scale, *dk.stride()[:3],
        GROUP=q.shape[1] // k.shape[1], CAUSAL=causal, D=q.shape[3], BLOCK_M=tiles.m, BLOCK_N=tiles.n,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


# ---- the operators that torch knows


def _on_gpu(q: torch.Tensor) -> bool:
    return q.is_cuda and q.dtype in HALVES and q.numel() > 0


@torch.library.custom_op("bit_by_bit::attention", mutates_args=())
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor | None,
    longest: int,
    causal: bool,
    window: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    if not _on_gpu(q):
        return attention_ref(q, k, v, cu_seqlens, causal, window, scale)
    o, lse = _empty_forward(q)
    with torch.cuda.device(q.device):
        launch_forward(
            *map(_aligned, (q, k, v)), o, lse, cu_seqlens, longest, causal, window, scale
        )  # fmt: skip
    return o, lse


def _empty_forward(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=kept)


@_attention.register_fake
def _(q, k, v, cu_seqlens, longest, causal, window, scale):
    return _empty_forward(q)


@torch.library.custom_op("bit_by_bit::attention_backward", mutates_args=())
def _attention_backward(
    do: torch.Tensor,
    dlse: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens: torch.Tensor | None,
    longest: int,
    causal: bool,
    window: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if not _on_gpu(q):
        return attention_backward_ref(do, dlse, q, k, v, o, lse, cu_seqlens, causal, window, scale)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(k)
    delta, dlse = torch.empty_like(lse), dlse.contiguous()
    q, k, v, o, do = map(_aligned, (q, k, v, o, do))
    options = (cu_seqlens, longest, causal, window, scale)
    with torch.cuda.device(q.device):
        launch_dq(q, k, v, o, do, lse, dlse, dq, delta, *options)
        launch_dkv(q, k, v, do, lse, delta, dk, dv, *options)
    return dq, dk, dv


@_attention_backward.register_fake
def _(do, dlse, q, k, v, o, lse, cu_seqlens, longest, causal, window, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(k)


def _keep(ctx, inputs, output) -> None:
    q, k, v, cu_seqlens, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output, cu_seqlens)


def _backward(ctx, do, dlse):
    q, k, v, o, lse, cu_seqlens = ctx.saved_tensors
    gradients = _attention_backward(do, dlse, q, k, v, o, lse, cu_seqlens, *ctx.options)
    return (*gradients, *[None] * 5)


_attention.register_autograd(_backward, setup_context=_keep)
