"""Kernels for chapter 08, quantized_matmul. Most wrong ones are the chapter's mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import (
    GROUPED_WEIGHTS,
    ONCE_PER_GROUP,
    QUANTIZED_MATMUL,
    WEIGHT_CODES,
)
from tests.kernels import Wrong

WIDTH = 8
unpack = lambda word, k: (word >> (k % 8 * 4)[None, :]) & 15  # noqa: E731

# ---- wrong, and more than a few edits away from the correct kernel, or with names from outside


@triton.jit
def global_group(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """GROUP is a plain global of the notebook."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // WIDTH
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = (word >> (offs_k % 8 * 4)[None, :]) & 15
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def lambda_unpacks(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A kernel cannot call a lambda."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = unpack(word, offs_k)
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def weights_by_helper(
    weight_ptr, scale_ptr, offset_ptr, z_ptr, M, K, GROUP, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):
    """s * w - s * o: on a GPU the first product is not rounded, the second is."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    offs_g = offs_k // GROUP
    groups = K // GROUP
    mask = (offs_m < M) & (offs_k < K)
    w = _field(weight_ptr + offs_m * (K // 8), offs_k, mask)
    o = _field(offset_ptr + offs_m * tl.cdiv(groups, 8), offs_g, mask)
    s = tl.load(scale_ptr + offs_m * groups + offs_g, mask=mask, other=1.0)
    tl.store(z_ptr + offs_m * K + offs_k, s * w - s * o, mask=mask)


WRONG = [
    Wrong(QUANTIZED_MATMUL, global_group, kind="compiler", says="WIDTH"),
    Wrong(QUANTIZED_MATMUL, lambda_unpacks, kind="compiler", says="a lambda"),
    Wrong(GROUPED_WEIGHTS, weights_by_helper, kind="values", says="write s * (w - o)"),
]


# ---- right, in other ways ----------------------------------------------------------------------


@triton.jit
def _field(word_ptr, i, mask):
    """Field i % 8 of word i // 8."""
    return (tl.load(word_ptr + i // 8, mask=mask, other=0) >> (i % 8 * 4)) & 15


@triton.jit
def each_word_once(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One load a word: a 3-D tile of fields, folded to two axes."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        offs_i = start // 8 + tl.arange(0, BLOCK_K // 8)
        mask_i = mask_m[:, None] & (offs_i < K // 8)[None, :]
        word = tl.load(weight_rows + offs_i[None, :], mask=mask_i, other=0)
        fields = (word[:, :, None] >> (4 * tl.arange(0, 8))[None, None, :]) & 15
        w = tl.reshape(fields, (BLOCK_M, BLOCK_K))
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def helper_for_fields(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One helper unpacks weights and offsets."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        w = _field(weight_rows, offs_k[None, :], mask)
        o = _field(offset_rows, offs_g[None, :], mask)
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def unsigned_words(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Words as uint32, whose right shift brings zeros; no & 15 needed after a shift left."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = ((word.to(tl.uint32, bitcast=True) << (28 - offs_k % 8 * 4)[None, :].to(tl.uint32)) >> 28).to(
            tl.int32
        )
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def shift_up_then_down(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Left until the field is on top, then an arithmetic shift down and & 15."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = (word << (28 - offs_k % 8 * 4)[None, :]) >> 28 & 15
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def last_step_first(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Walks along K from its end."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = (K - 1) // BLOCK_K * BLOCK_K - start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = (word >> (offs_k % 8 * 4)[None, :]) & 15
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def transposed_weights(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tile of weights is [BLOCK_K, BLOCK_M], and turned for the dot."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = (word >> (offs_k % 8 * 4)[None, :]) & 15
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.trans(tl.dot(tl.trans(a), tl.trans(s * (w - o)), tl.trans(acc), input_precision="ieee"))
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def scale_and_offset_multiplied_out(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """s·w − s·o, as many libraries store it."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    weight_rows = weight_ptr + offs_m[:, None] * (K // 8)
    offset_rows = offset_ptr + offs_m[:, None] * ((groups + 7) // 8)
    scale_rows = scale_ptr + offs_m[:, None] * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = (word >> (offs_k % 8 * 4)[None, :]) & 15
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.dot(s * w - s * o, a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def constant_sizes(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K: tl.constexpr, GROUP: tl.constexpr,
    stride_weight0, stride_offset0, stride_scale0, stride_activationk, stride_zm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """K and GROUP as constants, strides as parameters, M taken from the puzzle as always."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    weight_rows = weight_ptr + offs_m[:, None] * stride_weight0
    offset_rows = offset_ptr + offs_m[:, None] * stride_offset0
    scale_rows = scale_ptr + offs_m[:, None] * stride_scale0
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        offs_g = offs_k // GROUP
        mask_k = offs_k < K
        mask = mask_m[:, None] & mask_k[None, :]
        word = tl.load(weight_rows + offs_k[None, :] // 8, mask=mask, other=0)
        w = (word >> (offs_k % 8 * 4)[None, :]) & 15
        word = tl.load(offset_rows + offs_g[None, :] // 8, mask=mask, other=0)
        o = (word >> (offs_g % 8 * 4)[None, :]) & 15
        s = tl.load(scale_rows + offs_g[None, :], mask=mask, other=0.0)
        mask = mask_k[:, None] & mask_n[None, :]
        a = tl.load(
            activation_ptr + offs_k[:, None] * stride_activationk + offs_n[None, :], mask=mask, other=0.0
        )
        acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * stride_zm + offs_n[None, :], acc, mask=mask)


@triton.jit
def group_by_group(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A loop over groups around the loop along K; the scale is applied once a group."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for g in range(groups):
        s = tl.load(scale_ptr + offs_m * groups + g, mask=mask_m, other=0.0)
        o = tl.load(offset_ptr + offs_m * ((groups + 7) // 8) + g // 8, mask=mask_m, other=0)
        o = (o >> g % 8 * 4) & 15
        part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(g * GROUP, (g + 1) * GROUP, BLOCK_K):
            offs_k = start + tl.arange(0, BLOCK_K)
            mask_k = offs_k < (g + 1) * GROUP
            mask = mask_m[:, None] & mask_k[None, :]
            word = tl.load(weight_ptr + offs_m[:, None] * (K // 8) + offs_k[None, :] // 8, mask=mask, other=0)
            w = (word >> (offs_k % 8 * 4)[None, :]) & 15
            mask = mask_k[:, None] & mask_n[None, :]
            a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
            part = tl.dot((w - o[:, None]).to(tl.float32), a, part, input_precision="ieee")
        acc += s[:, None] * part
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


# ---- right, for puzzles 12a, 12b and 12d


@triton.jit
def codes_of_a_word(weight_ptr, z_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """One lane for each word, its eight fields along a third axis where a block has whole words."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    if BLOCK_K % 8 == 0:
        i = tl.program_id(1) * (BLOCK_K // 8) + tl.arange(0, BLOCK_K // 8)[None, :]
        mask = (offs_m < M) & (i < K // 8)
        words = tl.load(weight_ptr + offs_m * (K // 8) + i, mask=mask)
        field = tl.arange(0, 8)[None, None, :]
        codes = (words[:, :, None] >> 4 * field) & 15
        at = (offs_m * K + 8 * i)[:, :, None] + field
        tl.store(z_ptr + at, codes, mask=mask[:, :, None])
    else:
        k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
        mask = (offs_m < M) & (k < K)
        words = tl.load(weight_ptr + offs_m * (K // 8) + k // 8, mask=mask)
        tl.store(z_ptr + offs_m * K + k, (words >> 4 * (k % 8)) & 15, mask=mask)


@triton.jit
def codes_unsigned(
    weight_ptr, z_ptr, M, K, stride_weight0, stride_zm, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Up and down again, in words without a sign: no & 15."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
    words = tl.load(weight_ptr + offs_m[:, None] * stride_weight0 + offs_k[None, :] // 8, mask=mask, other=0)
    up = (28 - offs_k % 8 * 4)[None, :].to(tl.uint32)
    codes = (words.to(tl.uint32, bitcast=True) << up) >> 28
    tl.store(z_ptr + offs_m[:, None] * stride_zm + offs_k[None, :], codes.to(tl.int32), mask=mask)


@triton.jit
def weights_row_by_row(
    weight_ptr, scale_ptr, offset_ptr, z_ptr, M, K, GROUP, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):
    """A loop over the rows of the block, one vector at a time."""
    offs_k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    groups = K // GROUP
    offs_g = offs_k // GROUP
    for row in range(tl.program_id(0) * BLOCK_M, min((tl.program_id(0) + 1) * BLOCK_M, M)):
        mask = offs_k < K
        words = tl.load(weight_ptr + row * (K // 8) + offs_k // 8, mask=mask)
        w = words >> (offs_k % 8 * 4) & 15
        words = tl.load(offset_ptr + row * ((groups + 7) // 8) + offs_g // 8, mask=mask)
        o = words >> (offs_g % 8 * 4) & 15
        s = tl.load(scale_ptr + row * groups + offs_g, mask=mask)
        tl.store(z_ptr + row * K + offs_k, (w - o) * s, mask=mask)


@triton.jit
def weights_in_a_line(
    weight_ptr, scale_ptr, offset_ptr, z_ptr, M, K, GROUP, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The block as one vector; a helper takes the fields out, and the difference is converted by itself."""
    i = tl.arange(0, BLOCK_M * BLOCK_K)
    m = tl.program_id(0) * BLOCK_M + i // BLOCK_K
    k = tl.program_id(1) * BLOCK_K + i % BLOCK_K
    groups, mask = K // GROUP, (m < M) & (k < K)
    w = _field(weight_ptr + m * (K // 8), k, mask)
    o = _field(offset_ptr + m * tl.cdiv(groups, 8), k // GROUP, mask)
    s = tl.load(scale_ptr + m * groups + k // GROUP, mask=mask, other=0.0)
    tl.store(z_ptr + m * K + k, (w - o).to(tl.float32) * s, mask=mask)


@triton.jit
def once_in_vectors(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Scale and offset of an iteration as vectors, and words that are broadcast before the shift."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        g = start // GROUP
        offs_w = start // 8 + tl.arange(0, BLOCK_K // 8)
        words = tl.load(
            weight_ptr + offs_m[:, None] * (K // 8) + offs_w[None, :], mask=mask_m[:, None], other=0
        )
        words = tl.broadcast_to(words[:, :, None], (BLOCK_M, BLOCK_K // 8, 8)).reshape(BLOCK_M, BLOCK_K)
        w = (words >> (offs_k % 8 * 4)[None, :]) & 15
        o = _field(offset_ptr + offs_m * ((groups + 7) // 8), g, mask_m)
        s = tl.load(scale_ptr + offs_m * groups + g, mask=mask_m, other=0.0)
        a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask_n[None, :], other=0.0)
        acc += s[:, None] * tl.dot((w - o[:, None]).to(tl.float32), a, input_precision="ieee")
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@triton.jit
def words_group_by_group(
    weight_ptr, scale_ptr, offset_ptr, activation_ptr, z_ptr, M, N, K, GROUP,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A loop over groups around the loop along K; each word is loaded once."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    groups = K // GROUP
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for g in range(groups):
        s = tl.load(scale_ptr + offs_m * groups + g, mask=mask_m, other=0.0)
        o = tl.load(offset_ptr + offs_m * ((groups + 7) // 8) + g // 8, mask=mask_m, other=0)
        o = (o >> g % 8 * 4) & 15
        part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(g * GROUP, (g + 1) * GROUP, BLOCK_K):
            offs_k = start + tl.arange(0, BLOCK_K)
            mask_k = offs_k < (g + 1) * GROUP
            offs_w = start // 8 + tl.arange(0, BLOCK_K // 8)
            word = tl.load(
                weight_ptr + offs_m[:, None] * (K // 8) + offs_w[None, :], mask=mask_m[:, None], other=0
            )
            w = (word[:, :, None] >> (tl.arange(0, 8) * 4)[None, None, :]) & 15
            w = tl.reshape(w, (BLOCK_M, BLOCK_K))
            mask = mask_k[:, None] & mask_n[None, :]
            a = tl.load(activation_ptr + offs_k[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
            part = tl.dot((w - o[:, None]).to(tl.float32), a, part, input_precision="ieee")
        acc += s[:, None] * part
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


RIGHT = [
    (WEIGHT_CODES, codes_of_a_word),
    (WEIGHT_CODES, codes_unsigned),
    (GROUPED_WEIGHTS, weights_row_by_row),
    (GROUPED_WEIGHTS, weights_in_a_line),
    (ONCE_PER_GROUP, once_in_vectors),
    (ONCE_PER_GROUP, words_group_by_group),
    (QUANTIZED_MATMUL, each_word_once),
    (QUANTIZED_MATMUL, helper_for_fields),
    (QUANTIZED_MATMUL, unsigned_words),
    (QUANTIZED_MATMUL, shift_up_then_down),
    (QUANTIZED_MATMUL, last_step_first),
    (QUANTIZED_MATMUL, transposed_weights),
    (QUANTIZED_MATMUL, scale_and_offset_multiplied_out),
    (QUANTIZED_MATMUL, constant_sizes),
    (QUANTIZED_MATMUL, group_by_group),
]
