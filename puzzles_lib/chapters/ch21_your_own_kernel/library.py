"""Four kernels with their wrappers, as a model's code has them. Three of them have a bug.

Tests on ordinary inputs pass (`suite`). The chapter finds the bugs with `audit`:

- `add_rms_norm` computes the place of a row in int32;
- `cross_entropy` takes it for granted that rows follow each other without a gap;
- `argmax` compares the bits of floats as integers, which puts negative numbers in the wrong order.

`paged_copy` is correct.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def add_rms_norm_kernel(x_ptr, residual_ptr, w_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, BLOCK)  # [BLOCK]
    mask = n < N
    x = tl.load(x_ptr + row * N + n, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row * N + n, mask=mask, other=0.0)
    tl.store(residual_ptr + row * N + n, x, mask=mask)
    scale = tl.rsqrt(tl.sum(x * x) / N + eps)
    w = tl.load(w_ptr + n, mask=mask, other=0.0)
    tl.store(x_ptr + row * N + n, x * scale * w, mask=mask)


def add_rms_norm(x: Tensor, residual: Tensor, w: Tensor, eps: float = 1e-6) -> None:
    """Add x to the residual and put the residual's RMSNorm into x; both change in place.

    x, residual: float tensors of shape (M, N), contiguous. w: the weights, (N,). eps: is added to the mean
    square.
    """
    M, N = x.shape
    add_rms_norm_kernel[(M,)](x, residual, w, N, eps, BLOCK=triton.next_power_of_2(N))


@triton.jit
def paged_copy_kernel(out_ptr, pages_ptr, table_ptr, T, D, PAGE: tl.constexpr, BLOCK_D: tl.constexpr):
    page = tl.program_id(0).to(tl.int64)
    t = page * PAGE + tl.arange(0, PAGE)  # [PAGE], tokens of the sequence
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)  # [BLOCK_D]
    mask = (t[:, None] < T) & (d[None, :] < D)  # [PAGE, BLOCK_D]
    first = tl.load(table_ptr + page).to(tl.int64) * PAGE
    rows = first + tl.arange(0, PAGE)  # [PAGE], where the tokens are in the cache
    x = tl.load(pages_ptr + rows[:, None] * D + d[None, :], mask=mask)
    tl.store(out_ptr + t[:, None] * D + d[None, :], x, mask=mask)


def paged_copy(pages: Tensor, table: Tensor, T: int) -> Tensor:
    """Return the T tokens of a sequence, row by row, from the pages of a cache.

    pages: the cache, of shape (number of pages, tokens per page, D), contiguous. The tokens per page are a
    power of two. table: int32, which page holds the sequence's first tokens, which one the next, and so on.
    """
    _, page, D = pages.shape
    out = pages.new_empty(T, D)
    grid = (triton.cdiv(T, page), triton.cdiv(D, 32))
    paged_copy_kernel[grid](out, pages, table, T, D, PAGE=page, BLOCK_D=32)
    return out


@triton.jit
def cross_entropy_kernel(loss_ptr, logits_ptr, label_ptr, V, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * V
    top, total = -float("inf"), 0.0  # the maximum so far, and the sum relative to it
    for first in range(0, V, BLOCK):
        v = first + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(logits_ptr + v, mask=v < V, other=-float("inf"))
        new = tl.maximum(top, tl.max(x))
        base = tl.where(new == -float("inf"), 0.0, new)  # -inf - -inf would be NaN
        total = total * tl.exp(top - base) + tl.sum(tl.exp(x - base))
        top = new
    own = tl.load(logits_ptr + tl.load(label_ptr + row))
    tl.store(loss_ptr + row, top + tl.log(total) - own)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each row's cross-entropy, in one pass over its logits.

    logits: a float tensor of shape (M, V) whose columns are neighbors in memory. labels: the correct class of
    each row, an integer tensor of shape (M,).
    """
    assert logits.stride(1) == 1, "columns must be neighbors in memory"
    M, V = logits.shape
    loss = logits.new_empty(M)
    cross_entropy_kernel[(M,)](loss, logits, labels, V, BLOCK=32)
    return loss


@triton.jit
def argmax_kernel(best_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):
    blocks = tl.cdiv(N, BLOCK)  # of a row
    row = (tl.program_id(0) // blocks).to(tl.int64)
    n = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    at = x_ptr + row * stride + n
    x = tl.load(at, mask=n < N, other=-float("inf")).to(tl.float32)
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 + 0.0 is 0.0
    key = (bits.to(tl.int64) << 32) | (0x7FFFFFFF - n)  # larger x, then smaller n
    tl.atomic_max(best_ptr + row, tl.max(key))


def argmax(x: Tensor) -> Tensor:
    """Return where each row has its largest number, the first if there are several; int64, of shape (M,).

    x: a float tensor of shape (M, N) whose columns are neighbors in memory. Each row is shared by several
    programs, which meet in an atomic.
    """
    assert x.stride(1) == 1, "columns must be neighbors in memory"
    M, N = x.shape
    best = torch.full((M,), -(2**63), dtype=torch.int64, device=x.device)
    argmax_kernel[(M * triton.cdiv(N, 32),)](best, x, x.stride(0), N, BLOCK=32)
    return 0x7FFFFFFF - (best & 0xFFFFFFFF)
