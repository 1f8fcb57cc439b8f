"""Right kernels for chapter 22; wrong ones are its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch22_language_model.puzzles import (
    GROUPED_MATMUL,
    MERGE_PARTS,
    PAGED_ATTENTION,
    ROPE,
    SAMPLE_TOKEN,
    SWIGLU_DOWN,
)
from tests.kernels import edited

# ---- puzzle 66


@triton.jit
def both_halves_at_once(
    x_ptr, cos_ptr, sin_ptr, position_ptr, z_ptr, H, D: tl.constexpr, BLOCK_H: tl.constexpr
):
    """Each lane has an element, and loads its partner as well."""
    t = tl.program_id(0)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    x = tl.load(x_ptr + (t * H + h) * D + tl.arange(0, D)[None, :], mask=h < H).to(tl.float32)
    a, b = tl.split(tl.permute(tl.reshape(x, (BLOCK_H, 2, D // 2)), (0, 2, 1)))
    at = tl.load(position_ptr + t) * (D // 2) + tl.arange(0, D // 2)[None, :]
    c, s = tl.load(cos_ptr + at), tl.load(sin_ptr + at)
    z = tl.reshape(tl.permute(tl.join(a * c - b * s, b * c + a * s), (0, 2, 1)), (BLOCK_H, D))
    tl.store(z_ptr + (t * H + h) * D + tl.arange(0, D)[None, :], z.to(tl.bfloat16), mask=h < H)


one_head_after_the_other = edited(
    ROPE,
    "one_head_after_the_other",
    "Strides instead of products, and a sum in the other order.",
    {
        "x_ptr, cos_ptr, sin_ptr, position_ptr, z_ptr, H,": (
            "x_ptr, cos_ptr, sin_ptr, position_ptr, z_ptr, H, stride_xt, stride_xh,"
        ),
        "(t * H + h)[:, None] * D": "t * stride_xt + h[:, None] * stride_xh",
        "a * c[None, :] - b * s[None, :]": "-b * s[None, :] + a * c[None, :]",
    },
)

# ---- puzzle 67

from_the_last_page = edited(
    PAGED_ATTENTION,
    "from_the_last_page",
    "Walks the pages of a part backwards.",
    {
        "for number in range(part * PART, end):": (
            "for back in range(tl.maximum(end - part * PART, 0)):\n        number = end - 1 - back"
        )
    },
)


@triton.jit
def a_head_at_a_time(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, o_ptr, lse_ptr, W, PART,
    H: tl.constexpr, H_KV: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Sums instead of tl.dot; leaves early if the part is empty; base 2."""
    part, g, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads = g * (H // H_KV) + tl.arange(0, H // H_KV)
    at = (b * H + heads) * tl.num_programs(0) + part
    d, slot = tl.arange(0, D), tl.arange(0, PAGE)
    length = tl.load(length_ptr + b)
    if part * PART * PAGE >= length:
        tl.store(o_ptr + at[:, None] * D + d, tl.zeros((H // H_KV, D), tl.float32))
        tl.store(lse_ptr + at, tl.full((H // H_KV,), float("-inf"), tl.float32))
        return
    q = tl.load(q_ptr + (b * H + heads)[:, None] * D + d).to(tl.float32)
    row_max = tl.full((H // H_KV,), float("-inf"), tl.float32)  # a part that isn't empty begins with a key
    total = tl.zeros((H // H_KV,), tl.float32)
    acc = tl.zeros((H // H_KV, D), tl.float32)
    for number in range(part * PART, tl.minimum((part + 1) * PART, W)):
        if number * PAGE < length:
            is_key = (number * PAGE + slot < length)[:, None]
            at_k = ((tl.load(table_ptr + b * W + number) * PAGE + slot)[:, None] * H_KV + g) * D + d
            k = tl.load(k_ptr + at_k, mask=is_key, other=0.0).to(tl.float32)
            v = tl.load(v_ptr + at_k, mask=is_key, other=0.0).to(tl.float32)
            s = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * (1.4426950408889634 / D**0.5)
            s = tl.where(number * PAGE + slot[None, :] < length, s, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(s, axis=1))
            p = tl.exp2(s - new_max[:, None])
            total = total * tl.exp2(row_max - new_max) + tl.sum(p, axis=1)
            acc = acc * tl.exp2(row_max - new_max)[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
            row_max = new_max
    tl.store(o_ptr + at[:, None] * D + d, acc / total[:, None])
    tl.store(lse_ptr + at, (row_max + tl.log2(total)) * 0.6931471805599453)


# ---- puzzle 68


@triton.jit
def part_after_part(o_ptr, lse_ptr, z_ptr, total_ptr, S, D: tl.constexpr):
    """A running maximum, as in an online softmax."""
    r, d = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    top, denominator = -1e30, 0.0
    z = tl.zeros((D,), tl.float32)
    for s in range(S):
        lse = tl.load(lse_ptr + r * S + s)
        new = tl.maximum(top, lse)
        weight, factor = tl.exp(lse - new), tl.exp(top - new)
        o = tl.load(o_ptr + (r * S + s) * D + d, mask=lse > float("-inf"), other=0.0)
        z = z * factor + weight * o
        denominator = denominator * factor + weight
        top = new
    z = tl.where(denominator > 0, z / denominator, 0.0)
    tl.store(z_ptr + r * D + d, z)
    tl.store(total_ptr + r, top + tl.log(denominator))


weights_from_the_total = edited(
    MERGE_PARTS,
    "weights_from_the_total",
    "The total first, then weights that need no division.",
    {
        "weight = tl.exp(lse - top)  # [BLOCK_S]": "total = top + tl.log(tl.sum(tl.exp(lse - top), axis=0))",
        "denominator = tl.sum(weight)": (
            'weight = tl.exp(lse - tl.where(total > float("-inf"), total, 0.0))'
        ),
        "z / tl.maximum(denominator, 1.0)": "z",
        "top + tl.log(denominator)": "total",
    },
)

# ---- puzzles 69 and 70

masks_for_idle_programs = edited(
    GROUPED_MATMUL,
    "masks_for_idle_programs",
    "Programs without rows walk all tiles, but load nothing; strides instead of products.",
    {
        "start_ptr, z_ptr, N, K,": "start_ptr, z_ptr, N, K, stride_xp, stride_we, stride_wk,",
        "tl.where(begin < end, tl.cdiv(K, BLOCK_K), 0)": "tl.cdiv(K, BLOCK_K)",
        "w_mask = (k[:, None] < K) &": "w_mask = (begin < end) & (k[:, None] < K) &",
        "p[:, None] * K": "p[:, None] * stride_xp",
        "(e * K + k)[:, None] * N": "e * stride_we + k[:, None] * stride_wk",
    },
)
leaves_early = edited(
    GROUPED_MATMUL,
    "leaves_early",
    "Returns if there's no row, and multiplies the transposed tiles.",
    {
        "is_row = p[:, None] < end": "if begin >= end:\n        return\n    is_row = p[:, None] < end",
        "acc = tl.dot(x, w, acc)": "acc += tl.dot(w.T, x.T).T",
    },
)
by_the_sigmoid = edited(
    SWIGLU_DOWN,
    "by_the_sigmoid",
    "Triton's own sigmoid, and up first.",
    {"gate / (1 + tl.exp(-gate)) * up": "gate * up * tl.sigmoid(gate)"},
)
in_tf32 = edited(
    SWIGLU_DOWN,
    "in_tf32",
    "Widens the weights instead of narrowing x: TF32 has three bits more than bfloat16.",
    {"tl.dot(x.to(tl.bfloat16), w, acc)": "tl.dot(x, w.to(tl.float32), acc)"},
)

# ---- puzzle 71


@triton.jit
def branches_on_heat(logits_ptr, heat_ptr, token_ptr, V, SEED, BLOCK_V: tl.constexpr):
    """An if instead of a where."""
    b = tl.program_id(0)
    n = tl.arange(0, BLOCK_V)
    score = tl.load(logits_ptr + b * V + n, mask=n < V, other=float("-inf"))
    heat = tl.load(heat_ptr + b)
    if heat > 0:
        score = score / heat - tl.log(-tl.log(tl.rand(SEED, b * V + n)))
    tl.store(token_ptr + b, tl.argmax(score, axis=0))


largest_then_first = edited(
    SAMPLE_TOKEN,
    "largest_then_first",
    "Looks for the maximum, then for its first place.",
    {
        "token = tl.argmax(tl.where(heat > 0, noisy, logits), axis=0)": (
            "score = tl.where(heat > 0, noisy, logits)\n"
            "    token = tl.min(tl.where(score == tl.max(score, axis=0), n, BLOCK_V), axis=0)"
        )
    },
)

RIGHT = [
    (ROPE, both_halves_at_once),
    (ROPE, one_head_after_the_other),
    (PAGED_ATTENTION, from_the_last_page),
    (PAGED_ATTENTION, a_head_at_a_time),
    (MERGE_PARTS, part_after_part),
    (MERGE_PARTS, weights_from_the_total),
    (GROUPED_MATMUL, masks_for_idle_programs),
    (GROUPED_MATMUL, leaves_early),
    (SWIGLU_DOWN, by_the_sigmoid),
    (SWIGLU_DOWN, in_tf32),
    (SAMPLE_TOKEN, branches_on_heat),
    (SAMPLE_TOKEN, largest_then_first),
]
