"""Attention of one query per text over keys and values in pages, as servers generate text.

Keys are nearly all the bytes of this step, and each is used once per query. So a program takes all heads of q
that share a head of keys, and the keys of a text are divided among several programs, one part per program. A
part gives o and the log-sum-exp of its scores, and a second kernel averages the parts, each with the weight
exp(lse). If there are enough texts and heads to keep the GPU busy, there is one part, and one kernel.

A block of keys may span several pages: each lane looks up the page of its own key. A cache in pages is vLLM's
idea (Kwon et al., 2023, arXiv:2309.06180).
"""

import torch
import triton
import triton.language as tl

from puzzles_lib.kernels import launching
from puzzles_lib.kernels.common import check_dtype, check_integer, multiprocessors, overlapped

HALVES = (torch.float16, torch.bfloat16)
DTYPES = (*HALVES, torch.float32, torch.float64)
HEAD_DIMS = (16, 32, 64, 128, 256)
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LEAST = tl.constexpr(-1.0e30)  # below any score; minus infinity would give NaN where a part has no key
BLOCK = 64  # keys per iteration
WARPS, STAGES = 2, 3  # with PROGRAMS, the best of 72 choices on an H200
NARROW, WIDE = (
    16 * 256,
    128 * 128,
)  # numbers in a program's result: more warps above one, and from the other on
STEP = 32  # parts that a merge loads at a time
PROGRAMS = 4  # per multiprocessor, as far as the texts have keys for them


def paged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    length: torch.Tensor,
    *,
    scale: float | None = None,
    max_length: int | None = None,
) -> torch.Tensor:
    """Return softmax(scale · q kᵀ) v for one decoding step of several texts, whose keys are in pages.

    q: [B, H, D], one query per text and head: float16, bfloat16, float32 or float64. D is 16, 32, 64, 128 or
        256.
    k, v: the cache, [pages, slots, G, D] with q's dtype. A page has any number of slots, and a slot has one
        key (or value) per head. H is a multiple of G: head h of q uses head h // (H // G).
    table: int32 [B, W]. Key j of text b is in page table[b, j // slots], slot j % slots.
    length: int32 [B], how many keys each text has, up to W · slots. What is after a text's last key, in its
        last page and in its row of the table, is never used.
    scale: D ** -0.5 by default.
    max_length: at least the largest length. W · slots, the default, is correct but may start programs that
        have nothing to do.

    All tensors are on one device. float16 and bfloat16 on a GPU run Triton kernels; everything else runs
    plain torch.

    Returns o, of q's shape and dtype; zeros for a text without keys. There is no gradient.

    Raises TypeError for another dtype, and ValueError for shapes, devices or options that do not fit. Pages
    outside the cache and lengths that are too large aren't detected: they read out of bounds on a GPU.
    """
    _check(q, k, v, table, length, max_length)
    scale = q.shape[2] ** -0.5 if scale is None else float(scale)
    keys = table.shape[1] * k.shape[1]
    longest = keys if max_length is None else min(max_length, keys)
    arguments = k, v, table, length, scale, longest
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return _paged_attention(q, *arguments)  # backward through it raises an error
    return launching.run(_paged_attention, _paged_attention, _paged_attention_now, q, *arguments)


def _check(q, k, v, table, length, max_length) -> None:
    for name, value, axes in (("q", q, 3), ("k", k, 4), ("v", v, 4)):
        check_dtype(name, value, DTYPES)
        if value.dim() != axes:
            raise ValueError(f"{name} must have {axes} axes, but has {value.dim()}")
        if value.dtype != q.dtype:
            raise TypeError(f"{name} must be {q.dtype} like q, but is {value.dtype}")
    for name, value, axes in (("table", table, 2), ("length", length, 1)):
        check_dtype(name, value, (torch.int32,))
        if value.dim() != axes or value.shape[0] != q.shape[0]:
            wanted = f"({q.shape[0]}, W)" if axes == 2 else f"({q.shape[0]},)"
            raise ValueError(f"{name} must have shape {wanted}, but has shape {tuple(value.shape)}")
    for name, value in (("k", k), ("v", v), ("table", table), ("length", length)):
        if value.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, but is on {value.device}")
    if q.shape[2] not in HEAD_DIMS:
        raise ValueError(f"q must have 16, 32, 64, 128 or 256 columns (D), but has {q.shape[2]}")
    if k.shape[3] != q.shape[2] or v.shape != k.shape:
        wrong = ("v", v, tuple(k.shape)) if k.shape[3] == q.shape[2] else ("k", k, f"(..., {q.shape[2]})")
        raise ValueError(f"{wrong[0]} must have shape {wrong[2]}, but has shape {tuple(wrong[1].shape)}")
    if k.shape[1] == 0 or k.shape[2] == 0 or q.shape[1] % k.shape[2]:
        raise ValueError(
            f"k must have pages of at least 1 slot, and a number of heads that divides q's {q.shape[1]}, but "
            f"has pages of {k.shape[1]} and {k.shape[2]} heads"
        )
    if max_length is not None:
        check_integer("max_length", max_length)
        if max_length < 0:
            raise ValueError(f"max_length must be at least the longest length, but is {max_length}")


# ---- torch, the reference


def paged_attention_ref(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    length: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Return o [B, H, D], text by text; shapes as for `paged_attention`."""
    o, page, group = q.new_zeros(q.shape), k.shape[1], q.shape[1] // k.shape[2]
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    for b, keys in enumerate(length.tolist()):
        if keys:
            j = torch.arange(keys, device=q.device)
            at = table[b, j // page].long(), j % page
            of_k, of_v = (each[at].to(wide).repeat_interleave(group, 1) for each in (k, v))  # [keys, H, D]
            weights = (scale * torch.einsum("hd,jhd->hj", q[b].to(wide), of_k)).softmax(1)
            o[b] = torch.einsum("hj,jhd->hd", weights, of_v)
    return o


# ---- Triton


@triton.jit
def _part_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, o_ptr, lse_ptr, W, span, scale,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """o and lse of ``span`` keys of a text, for the heads that share a head of keys. scale: times log2(e)."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    part, g, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = H // G
    row = tl.arange(0, ROWS)
    d = tl.arange(0, D)
    is_head = row < GROUP
    head = (b * H + g * GROUP + row).to(tl.int64)
    q = tl.load(q_ptr + head[:, None] * D + d[None, :], mask=is_head[:, None], other=0.0)
    most = tl.full([ROWS], LEAST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    end = tl.minimum(tl.load(length_ptr + b), (part + 1) * span)
    for start in range(part * span, end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        is_key = j < end
        page = tl.load(table_ptr + b.to(tl.int64) * W + j // PAGE, mask=is_key, other=0).to(tl.int64)
        at = ((page * PAGE + j % PAGE) * G + g)[:, None] * D + d[None, :]  # [BLOCK, D]
        k = tl.load(k_ptr + at, mask=is_key[:, None], other=0.0)
        s = tl.where(is_key[None, :], tl.dot(q, k.T) * scale, float("-inf"))
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(most - new)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + at, mask=is_key[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        most = new
    at = head * tl.num_programs(0) + part
    o = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(o_ptr + at[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=is_head[:, None])
    if lse_ptr is not None:
        tl.store(lse_ptr + at, (most + tl.log2(total)) * LN2, mask=is_head)


@triton.jit
def _merge_kernel(
    o_ptr, lse_ptr, z_ptr, parts,
    D: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The average of a row's parts, with the weights exp(lse). An empty part has lse = -inf."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    r = tl.program_id(0).to(tl.int64)
    every, d = tl.arange(0, BLOCK), tl.arange(0, D)
    of_all = tl.load(lse_ptr + r * parts + every, mask=every < parts, other=float("-inf"))
    most = tl.maximum(tl.max(of_all, 0), LEAST)
    total = tl.sum(tl.exp2((of_all - most) * LOG2E), 0)
    acc = tl.zeros([STEP, D], tl.float32)
    for first in range(0, parts, STEP):
        s = first + tl.arange(0, STEP)
        lse = tl.load(lse_ptr + r * parts + s, mask=s < parts, other=float("-inf"))
        used = (lse > float("-inf"))[:, None]
        o = tl.load(o_ptr + (r * parts + s)[:, None] * D + d[None, :], mask=used, other=0.0)
        acc += tl.exp2((lse - most) * LOG2E)[:, None] * o
    z = tl.sum(acc, 0) / tl.where(total > 0, total, 1.0)
    tl.store(z_ptr + r * D + d, z.to(z_ptr.dtype.element_ty))


def parts_and_span(texts: int, heads: int, longest: int, processors: int) -> tuple[int, int]:
    """Return into how many parts the keys of a text are divided, and how many keys a part has.

    heads: the number of heads of keys. A part has whole blocks.
    """
    blocks = max(triton.cdiv(longest, BLOCK), 1)
    wanted = min(max(PROGRAMS * processors // max(texts * heads, 1), 1), blocks)
    span = triton.cdiv(blocks, wanted) * BLOCK
    return triton.cdiv(blocks * BLOCK, span), span


def _on_gpu(q: torch.Tensor) -> bool:
    return q.is_cuda and q.dtype in HALVES and q.numel() > 0


def _paged_attention_gpu(q, k, v, table, length, scale: float, longest: int) -> torch.Tensor:
    q, k, v, table, length = (each.contiguous() for each in (q, k, v, table, length))
    (B, H, D), (_, page, G, _), W = q.shape, k.shape, table.shape[1]
    parts, span = parts_and_span(B, G, longest, multiprocessors(q.device))
    z, pdl = torch.empty_like(q), _may_overlap(q.device)
    o, lse = z, None
    if parts > 1:
        o, lse = (q.new_empty(shape, dtype=torch.float32) for shape in ((B, H, parts, D), (B, H, parts)))
    rows = max(16, triton.next_power_of_2(H // G))
    options = {"H": H, "G": G, "D": D, "PAGE": page, "ROWS": rows, "BLOCK": BLOCK, "PDL": pdl}
    warps = WARPS if rows * D <= NARROW else 4 if rows * D < WIDE else 8
    options |= {"num_warps": warps, "num_stages": STAGES}
    launching.launch(
        _part_kernel, ("paged part", q.dtype, q.shape, k.shape[1:], W, parts, span, scale),
        (q, k, v, table, length, o, lse),
        lambda: ((parts, G, B), (W, span, scale * LOG2E.value), options | overlapped(pdl)),
    )  # fmt: skip
    if lse is not None:
        step = min(STEP, triton.next_power_of_2(parts))
        of_merge = {"D": D, "BLOCK": triton.next_power_of_2(parts), "STEP": step, "PDL": pdl}
        of_merge |= {"num_warps": WARPS, "num_stages": STAGES}
        launching.launch(
            _merge_kernel, ("paged merge", q.dtype, B * H, D, parts), (o, lse, z),
            lambda: ((B * H,), (parts,), of_merge | overlapped(pdl)),
        )  # fmt: skip
    return z


def _may_overlap(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


# ---- the operator that torch knows


def _paged_attention_now(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    length: torch.Tensor,
    scale: float,
    longest: int,
) -> torch.Tensor:
    if not _on_gpu(q):
        return paged_attention_ref(q, k, v, table, length, scale)
    with launching.on_device_of(q):
        return _paged_attention_gpu(q, k, v, table, length, scale, longest)


_paged_attention = torch.library.custom_op(
    "bit_by_bit::paged_attention", _paged_attention_now, mutates_args=()
)


@_paged_attention.register_fake
def _(q, k, v, table, length, scale, longest):
    return torch.empty_like(q, memory_format=torch.contiguous_format)
