"""Kernels for puzzles 9 and 9b: wrong ones, each with the mistake it makes, and other right ones."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION, SCALAR_FLASH_ATTENTION
from tests.kernels import Wrong

# ---- puzzle 9, wrong


@triton.jit
def rescale_upside_down(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """exp(m_new - m): the factor grows where it should shrink, and starts at infinity."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m_new - m)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def no_maximum(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Subtracts no maximum: exp() overflows for large scores."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        p = tl.where(mask_k[None, :], tl.exp(q[:, None] * k[None, :]), 0.0)
        total += tl.sum(p, axis=1)
        acc += tl.sum(p * v[None, :], axis=1)
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def maximum_from_zero(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """The running maximum starts at 0: very negative scores all vanish."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.zeros((BLOCK_Q,), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def padding_keys_counted(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Pads keys with 0: their score is 0, not -inf, and the sum counts them."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + offs_k, mask=offs_k < T, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=offs_k < T, other=0.0)
        scores = q[:, None] * k[None, :]
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def keys_padded_with_minus_infinity(
    q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Pads keys, not scores, with -inf: a negative query turns that into +inf."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + offs_k, mask=offs_k < T, other=float("-inf"))
        v = tl.load(v_ptr + offs_k, mask=offs_k < T, other=0.0)
        scores = q[:, None] * k[None, :]
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def empty_block_first(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Walks back from block T // BLOCK_K, which is empty where BLOCK_K divides T: -inf - -inf is NaN."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for block in range(0, T // BLOCK_K + 1):
        offs_k = (T // BLOCK_K - block) * BLOCK_K + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def one_block_of_keys(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """No loop: sees the first BLOCK_K keys only."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_k = tl.arange(0, BLOCK_K)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    k = tl.load(k_ptr + offs_k, mask=offs_k < T, other=0.0)
    v = tl.load(v_ptr + offs_k, mask=offs_k < T, other=0.0)
    scores = tl.where(offs_k[None, :] < T, q[:, None] * k[None, :], float("-inf"))
    p = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    tl.store(z_ptr + offs_q, tl.sum(p * v[None, :], axis=1) / tl.sum(p, axis=1), mask=offs_q < T)


@triton.jit
def key_blocks_assumed_to_divide(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Loops T // BLOCK_K times: the ragged last block of keys is dropped."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for block in range(0, T // BLOCK_K):
        offs_k = block * BLOCK_K + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + offs_k)
        v = tl.load(v_ptr + offs_k)
        scores = q[:, None] * k[None, :]
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def blocks_swapped(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_Q and BLOCK_K change places: hidden as long as they are equal."""
    offs_q = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_K,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_K,), tl.float32)
    acc = tl.zeros((BLOCK_K,), tl.float32)
    for start in range(0, T, BLOCK_Q):
        offs_k = start + tl.arange(0, BLOCK_Q)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def first_block_of_queries(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Forgets the program id: every program does the first block of queries."""
    offs_q = tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def two_passes_over_the_keys(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Right numbers, but a first pass for the maximum reads every key a second time."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + offs_k, mask=offs_k < T, other=0.0)
        scores = tl.where(offs_k[None, :] < T, q[:, None] * k[None, :], float("-inf"))
        m = tl.maximum(m, tl.max(scores, axis=1))
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k = tl.load(k_ptr + offs_k, mask=offs_k < T, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=offs_k < T, other=0.0)
        scores = tl.where(offs_k[None, :] < T, q[:, None] * k[None, :], float("-inf"))
        p = tl.exp(scores - m[:, None])
        total += tl.sum(p, axis=1)
        acc += tl.sum(p * v[None, :], axis=1)
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def keys_without_a_mask(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Masks the scores and forgets the mask on the load of the keys."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def values_without_other(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Weight 0 times an uninitialized value is NaN when that value is one."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k)
        v = tl.load(v_ptr + offs_k, mask=mask_k)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def store_without_a_mask(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Stores the padded queries too."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total)


@triton.jit
def accumulates_in_half(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Sums in float16: three digits are not enough."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float16)
    acc = tl.zeros((BLOCK_Q,), tl.float16)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = (total * factor + tl.sum(p, axis=1)).to(tl.float16)
        acc = (acc * factor + tl.sum(p * v[None, :], axis=1)).to(tl.float16)
        m = m_new
    tl.store(z_ptr + offs_q, acc.to(tl.float32) / total.to(tl.float32), mask=offs_q < T)


@triton.jit
def maximum_over_the_block(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """One maximum for the whole tile: rows far below it vanish."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = float("-inf")
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(tl.max(scores, axis=1), axis=0))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new)
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def types_change_in_the_loop(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """The sums start as the scalar 0 and become tiles: a compiler refuses that."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = float("-inf")
    total = 0.0
    acc = 0.0
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def all_keys_at_once(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """A run-time size in tl.arange: the whole row of scores in one tile."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_k = tl.arange(0, T)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    scores = q[:, None] * tl.load(k_ptr + offs_k)[None, :]
    p = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    v = tl.load(v_ptr + offs_k)
    tl.store(z_ptr + offs_q, tl.sum(p * v[None, :], axis=1) / tl.sum(p, axis=1), mask=offs_q < T)


# ---- puzzle 9, right


@triton.jit
def base_two(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """log2(e) folded into the query, exp2 everywhere, and a pointer that walks."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0) * 1.4426950408889634
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    lanes = tl.arange(0, BLOCK_K)
    k_ptrs = k_ptr + lanes
    v_ptrs = v_ptr + lanes
    for start in range(0, T, BLOCK_K):
        mask_k = lanes < T - start
        k = tl.load(k_ptrs, mask=mask_k, other=0.0)
        v = tl.load(v_ptrs, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
        k_ptrs += BLOCK_K
        v_ptrs += BLOCK_K
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def _fold(m, total, acc, scores, v):
    """One step of the online softmax."""
    m_new = tl.maximum(m, tl.max(scores, axis=0))
    factor = tl.exp(m - m_new)
    p = tl.exp(scores - m_new[None, :])
    total = total * factor + tl.sum(p, axis=0)
    acc = acc * factor + tl.sum(p * v[:, None], axis=0)
    return m_new, total, acc


@triton.jit
def keys_down_and_backwards(q_ptr, k_ptr, v_ptr, z_ptr, T, BLOCK_K: tl.constexpr, BLOCK_Q: tl.constexpr):
    """Scores laid out keys by queries, last block of keys first, the step in a helper."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    blocks = tl.cdiv(T, BLOCK_K)
    for block in range(0, blocks):
        offs_k = (blocks - 1 - block) * BLOCK_K + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[:, None], k[:, None] * q[None, :], float("-inf"))
        m, total, acc = _fold(m, total, acc, scores, v)
    tl.store(z_ptr + offs_q, acc / total, mask=offs_q < T)


@triton.jit
def normalised_as_it_goes(
    q_ptr, k_ptr, v_ptr, z_ptr, stride_q0, T: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Keeps acc a true average after every block; finite -1e30 as minus infinity; loops unrolled."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = tl.load(q_ptr + offs_q * stride_q0, mask=offs_q < T, other=0.0)
    m = tl.full((BLOCK_Q,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q,), tl.float32)
    for start in tl.static_range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(k_ptr + offs_k, mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k, mask=mask_k, other=0.0)
        scores = tl.where(mask_k[None, :], q[:, None] * k[None, :], -1e30)
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - m_new[:, None])
        kept = total * tl.exp(m - m_new)
        total = kept + tl.sum(p, axis=1)
        acc = (acc * kept + tl.sum(p * v[None, :], axis=1)) / total
        m = m_new
    tl.store(z_ptr + offs_q, acc, mask=offs_q < T)


# ---- puzzle 9b, wrong


@triton.jit
def not_causal(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Lets a query see the keys after it."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] < T, scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def blind_to_itself(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """j < i where j <= i is meant: the first query sees no key at all."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] < offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def looks_ahead(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """j >= i: a reversed triangle."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        seen = (offs_k[None, :] >= offs_q[:, None]) & (offs_k[None, :] < T)
        scores = tl.where(seen, scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def future_scores_zero(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Hides the future with a score of 0 instead of -inf."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, 0.0)
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def diagonal_first(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Walks back from the diagonal: early queries meet a block that they must not see at all, and get NaN."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    blocks = tl.cdiv((tl.program_id(0) + 1) * BLOCK_Q, BLOCK_K)
    for block in range(0, blocks):
        offs_k = (blocks - 1 - block) * BLOCK_K + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def stops_before_the_diagonal(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """The last key block is rounded down: right only where BLOCK_K divides BLOCK_Q."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for block in range(0, (tl.program_id(0) + 1) * BLOCK_Q // BLOCK_K):
        offs_k = block * BLOCK_K + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def unscaled(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """No division by the square root of D."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee")
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def scaled_by_the_block(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Scales by sqrt(BLOCK_D) instead of sqrt(D), which shows only if they differ."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * (BLOCK_D**-0.5)
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def block_as_stride(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Steps BLOCK_D from row to row where the rows are D long."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * BLOCK_D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * BLOCK_D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def columns_unmasked(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Masks rows only: a row of BLOCK_D columns reads into the next row, and the store overwrites it."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = offs_q[:, None] < T
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def store_spills_into_the_next_row(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """The store's mask forgets the padded columns, except in the last row, where it would crash."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    offs_z = offs_q[:, None] * D + offs_d[None, :]
    tl.store(z_ptr + offs_z, acc / total[:, None], mask=offs_z < T * D)


@triton.jit
def sum_not_rescaled(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Rescales the numerator and forgets the denominator."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total += tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def weights_in_half(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Rounds weights and values to float16 for the second dot."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p.to(tl.float16), v.to(tl.float16))
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def key_not_transposed(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """q @ k instead of q @ k.T: the shapes fit only if BLOCK_K equals BLOCK_D."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def exact_width(q_ptr, k_ptr, v_ptr, z_ptr, T, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """tl.arange(0, D): works for the powers of two among the widths."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, D)
    mask_q = offs_q[:, None] < T
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, D), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k[:, None] < T
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * (D**-0.5)
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def keys_read_twice(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Right numbers, but the maximum takes a pass of its own over the keys."""
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    scale = 1 / tl.sqrt(D.to(tl.float32))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m = tl.maximum(m, tl.max(scores, axis=1))
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, T, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        p = tl.exp(scores - m[:, None])
        total += tl.sum(p, axis=1)
        acc += tl.dot(p, v, input_precision="ieee")
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


# ---- puzzle 9b, right


@triton.jit
def stops_at_the_diagonal(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Skips the key blocks after the diagonal; exp2, with scale and log2(e) folded into the query."""
    start_q = tl.program_id(0) * BLOCK_Q
    offs_q = start_q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_q = (offs_q[:, None] < T) & (offs_d[None, :] < D)
    q = tl.load(q_ptr + offs_q[:, None] * D + offs_d[None, :], mask=mask_q, other=0.0)
    q = q * (1.4426950408889634 / tl.sqrt(D.to(tl.float32)))
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, min(start_q + BLOCK_Q, T), BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = (offs_k[:, None] < T) & (offs_d[None, :] < D)
        k = tl.load(k_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        v = tl.load(v_ptr + offs_k[:, None] * D + offs_d[None, :], mask=mask_k, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp2(m - m_new)
        p = tl.exp2(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc * factor[:, None], input_precision="ieee")
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * D + offs_d[None, :], acc / total[:, None], mask=mask_q)


@triton.jit
def _tile(base, start, T, D, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    return tl.make_block_ptr(base, (T, D), (D, 1), (start, 0), (BLOCK, BLOCK_D), (1, 0))


@triton.jit
def block_pointers(
    q_ptr, k_ptr, v_ptr, z_ptr, T, D, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr
):
    """tl.make_block_ptr, which pads and masks by itself; the loop split at the first masked block."""
    start_q = tl.program_id(0) * BLOCK_Q
    offs_q = start_q + tl.arange(0, BLOCK_Q)
    q = tl.load(_tile(q_ptr, start_q, T, D, BLOCK_Q, BLOCK_D), boundary_check=(0, 1), padding_option="zero")
    q /= tl.sqrt(D.to(tl.float32))
    k_block = _tile(k_ptr, 0, T, D, BLOCK_K, BLOCK_D)
    v_block = _tile(v_ptr, 0, T, D, BLOCK_K, BLOCK_D)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in range(0, start_q + BLOCK_Q, BLOCK_K):
        k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")
        scores = tl.dot(q, k.T, input_precision="ieee")
        if start + BLOCK_K > start_q:
            offs_k = start + tl.arange(0, BLOCK_K)
            scores = tl.where(offs_k[None, :] <= offs_q[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
        k_block = tl.advance(k_block, (BLOCK_K, 0))
        v_block = tl.advance(v_block, (BLOCK_K, 0))
    tl.store(_tile(z_ptr, start_q, T, D, BLOCK_Q, BLOCK_D), acc / total[:, None], boundary_check=(0, 1))


@triton.jit
def strides_and_no_dot(
    q_ptr,
    k_ptr,
    v_ptr,
    z_ptr,
    stride_qt,
    stride_kt,
    stride_vt,
    stride_zt,
    T,
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Strides from outside, keys loaded transposed, walked from the diagonal back with a finite minus
    infinity, dots as sums of 3-D tiles: the compiler makes dots in TF32 of them.
    """
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, BLOCK_D)
    mask_d = offs_d < D
    mask_q = (offs_q[:, None] < T) & mask_d[None, :]
    q = tl.load(q_ptr + offs_q[:, None] * stride_qt + offs_d[None, :], mask=mask_q, other=0.0)
    m = tl.full((BLOCK_Q,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    start = tl.cdiv(tl.minimum((tl.program_id(0) + 1) * BLOCK_Q, T), BLOCK_K) * BLOCK_K
    while start > 0:
        start -= BLOCK_K
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < T
        k = tl.load(
            k_ptr + offs_d[:, None] + offs_k[None, :] * stride_kt,
            mask=mask_d[:, None] & mask_k[None, :],
            other=0.0,
        )
        v = tl.load(
            v_ptr + offs_k[:, None] * stride_vt + offs_d[None, :],
            mask=mask_k[:, None] & mask_d[None, :],
            other=0.0,
        )
        scores = tl.sum(q[:, :, None] * k[None, :, :], axis=1) * (D**-0.5)
        seen = offs_k[None, :] <= offs_q[:, None]
        m_new = tl.maximum(m, tl.max(tl.where(seen, scores, -1e30), axis=1))
        factor = tl.exp(m - m_new)
        p = tl.where(seen, tl.exp(scores - m_new[:, None]), 0.0)
        total = total * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        m = m_new
    tl.store(z_ptr + offs_q[:, None] * stride_zt + offs_d[None, :], acc / total[:, None], mask=mask_q)


WRONG = [
    Wrong(SCALAR_FLASH_ATTENTION, rescale_upside_down, kind="values", says="old minus new"),
    Wrong(SCALAR_FLASH_ATTENTION, no_maximum, kind="values", says="NaN"),
    Wrong(SCALAR_FLASH_ATTENTION, maximum_from_zero, kind="values", says="wrong values in z"),
    Wrong(SCALAR_FLASH_ATTENTION, padding_keys_counted, kind="values", says="z[0]"),
    Wrong(SCALAR_FLASH_ATTENTION, keys_padded_with_minus_infinity, kind="values", says="load 0, and hide"),
    Wrong(SCALAR_FLASH_ATTENTION, empty_block_first, kind="values", says="NaN"),
    Wrong(SCALAR_FLASH_ATTENTION, one_block_of_keys, kind="values", says="z[0]"),
    Wrong(SCALAR_FLASH_ATTENTION, key_blocks_assumed_to_divide, kind="values", says="z[0]"),
    Wrong(SCALAR_FLASH_ATTENTION, blocks_swapped, kind="never written", says="z[128]"),
    Wrong(SCALAR_FLASH_ATTENTION, first_block_of_queries, kind="never written", says="z[32]"),
    Wrong(SCALAR_FLASH_ATTENTION, two_passes_over_the_keys, kind="loads", says="k_ptr"),
    Wrong(SCALAR_FLASH_ATTENTION, keys_without_a_mask, kind="out of bounds", says="k_ptr"),
    Wrong(SCALAR_FLASH_ATTENTION, values_without_other, kind="uninitialized", says="v_ptr"),
    Wrong(SCALAR_FLASH_ATTENTION, store_without_a_mask, kind="out of bounds", says="z_ptr"),
    Wrong(SCALAR_FLASH_ATTENTION, accumulates_in_half, kind="values", says="z[0]"),
    Wrong(SCALAR_FLASH_ATTENTION, maximum_over_the_block, kind="values", says="does tl.max have its axis"),
    Wrong(SCALAR_FLASH_ATTENTION, types_change_in_the_loop, kind="compiler", says="m is one float32"),
    Wrong(SCALAR_FLASH_ATTENTION, all_keys_at_once, kind="compiler", says="tl.arange"),
    Wrong(FLASH_ATTENTION, not_causal, kind="values", says="where is the causal mask?"),
    Wrong(FLASH_ATTENTION, blind_to_itself, kind="values", says="no query sees its own key"),
    Wrong(FLASH_ATTENTION, looks_ahead, kind="values", says="the wrong way around"),
    Wrong(FLASH_ATTENTION, future_scores_zero, kind="values", says="hidden scores are 0"),
    Wrong(FLASH_ATTENTION, diagonal_first, kind="values", says="NaN"),
    Wrong(FLASH_ATTENTION, stops_before_the_diagonal, kind="values", says="rounded down"),
    Wrong(FLASH_ATTENTION, unscaled, kind="values", says="divided by the root of D"),
    Wrong(FLASH_ATTENTION, scaled_by_the_block, kind="values", says="by the root of BLOCK_D"),
    Wrong(FLASH_ATTENTION, block_as_stride, kind="out of bounds", says="k_ptr"),
    Wrong(FLASH_ATTENTION, columns_unmasked, kind="out of bounds", says="q_ptr"),
    Wrong(FLASH_ATTENTION, store_spills_into_the_next_row, kind="race", says="two lanes"),
    Wrong(FLASH_ATTENTION, sum_not_rescaled, kind="values", says="only acc is"),
    Wrong(FLASH_ATTENTION, weights_in_half, kind="values", says="z[0, 0]"),
    Wrong(FLASH_ATTENTION, key_not_transposed, kind="values", says="tl.dot needs"),
    Wrong(FLASH_ATTENTION, exact_width, kind="compiler", says="power of 2"),
    Wrong(FLASH_ATTENTION, keys_read_twice, kind="loads", says="k_ptr"),
    Wrong(FLASH_ATTENTION, strides_and_no_dot, kind="values", says="a dot in TF32"),
]

RIGHT = [
    (SCALAR_FLASH_ATTENTION, base_two),
    (SCALAR_FLASH_ATTENTION, keys_down_and_backwards),
    (SCALAR_FLASH_ATTENTION, normalised_as_it_goes),
    (FLASH_ATTENTION, stops_at_the_diagonal),
    (FLASH_ATTENTION, block_pointers),
]
