"""Right kernels for chapter 22; wrong ones are its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch22_language_model.puzzles import (
    GROUPED_MATMUL,
    LINEAR_CROSS_ENTROPY,
    LINEAR_CROSS_ENTROPY_GRAD,
    MERGE_PARTS,
    MXFP4_MATMUL,
    NUCLEUS_TOKEN,
    PAGED_ATTENTION,
    ROPE,
    ROUTE,
    SAMPLE_TOKEN,
    SWIGLU_DOWN,
)
from tests.kernels import Wrong, edited

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
            at_k = (
                (tl.load(table_ptr + b * W + number).to(tl.int64) * PAGE + slot)[:, None] * H_KV + g
            ) * D + d
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
    "Programs without rows walk all tiles, but load nothing; a stride instead of a product.",
    {
        "start_ptr, z_ptr, N, K,": "start_ptr, z_ptr, N, K, stride_we,",
        "tl.where(begin < end, tl.cdiv(K, BLOCK_K), 0)": "tl.cdiv(K, BLOCK_K)",
        "w_mask = (k[:, None] < K) &": "w_mask = (tl.max(is_row.to(tl.int32)) > 0) & (k[:, None] < K) &",
        "w_ptr + e * K * N": "w_ptr + e * stride_we",
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
    "Widens the weights instead of narrowing x: correct, but a dot in TF32 is slower.",
    {"tl.dot(x.to(tl.bfloat16), w, acc)": "tl.dot(x, w.to(tl.float32), acc)"},
)
the_other_way_round = edited(
    SWIGLU_DOWN,
    "the_other_way_round",
    "Computes the transposed tile of z.",
    {"tl.dot(x.to(tl.bfloat16), w, acc)": "tl.dot(w.T, x.to(tl.bfloat16).T, acc.T).T"},
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

# ---- puzzle 72

transposed_tiles = edited(
    LINEAR_CROSS_ENTROPY,
    "transposed_tiles",
    "Loads w transposed; strides instead of products.",
    {
        "T, V, K,": "T, V, K, stride_ht, stride_wv,",
        "t.to(tl.int64)[:, None] * K": "t.to(tl.int64)[:, None] * stride_ht",
        "w_ptr + v[:, None] * K + k[None, :], mask=w_mask": (
            "w_ptr + v[None, :] * stride_wv + k[:, None], mask=(v[None, :] < V) & (k[:, None] < K)"
        ),
        "tl.dot(h, w.T, logit)": "tl.dot(h, w, logit)",
    },
)


@triton.jit
def one_loop_in_base_two(
    h_ptr, w_ptr, label_ptr, loss_ptr, lse_ptr, T, V, K,
    BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A single loop over all tiles of w, whose last tile of a class block closes it; exp2."""
    t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    label = tl.load(label_ptr + t, mask=t < T, other=-100)
    top, total, chosen = (
        tl.full((BLOCK_T,), float("-inf"), tl.float32),
        tl.zeros((BLOCK_T,), tl.float32),
        tl.zeros((BLOCK_T,), tl.float32),
    )
    acc = tl.zeros((BLOCK_T, BLOCK_V), tl.float32)
    steps = tl.cdiv(K, BLOCK_K)
    for tile in range(tl.cdiv(V, BLOCK_V) * steps):
        v = (tile // steps * BLOCK_V + tl.arange(0, BLOCK_V))[None, :]
        k = tile % steps * BLOCK_K + tl.arange(0, BLOCK_K)
        h = tl.load(h_ptr + t[:, None] * K + k, mask=(t[:, None] < T) & (k < K), other=0.0)
        w = tl.load(w_ptr + v * K + k[:, None], mask=(v < V) & (k[:, None] < K), other=0.0)
        acc = tl.dot(h, w, acc)
        if tile % steps == steps - 1:
            is_label = v == label[:, None]
            chosen += tl.sum(tl.where(is_label, acc, 0), 1)
            s = tl.where(v < V, acc * 1.4426950408889634, float("-inf"))
            new = tl.maximum(top, tl.max(s, 1))
            total = total * tl.exp2(top - new) + tl.sum(tl.exp2(s - new[:, None]), 1)
            top = new
            acc = tl.zeros((BLOCK_T, BLOCK_V), tl.float32)
    lse = (top + tl.log2(total)) * 0.6931471805599453
    tl.store(lse_ptr + t, lse, mask=t < T)
    tl.store(loss_ptr + t, tl.where(label >= 0, lse - chosen, 0.0), mask=t < T)


# ---- puzzle 72b

one_by_one_at_the_label = edited(
    LINEAR_CROSS_ENTROPY_GRAD,
    "one_by_one_at_the_label",
    "Subtracts a tile of ones and zeros; masks with a product.",
    {
        "tl.where(v[None, :] == label[:, None], p - 1.0, p)": (
            "p - (v[None, :] == label[:, None]).to(tl.float32)"
        ),
        "other=-100": "other=0",
        "(label[:, None] != -100)": "(label[:, None] >= 0)",
    },
)


@triton.jit
def tiles_on_their_side(
    h_ptr, w_ptr, label_ptr, lse_ptr, dh_ptr, dw_ptr, T, V, K,
    BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tiles of d on their side, [BLOCK_V, BLOCK_T], from the last rows to the first."""
    v = (tl.program_id(0).to(tl.int64) * BLOCK_V + tl.arange(0, BLOCK_V))[:, None]
    k = tl.arange(0, BLOCK_K)[None, :]
    w = tl.load(w_ptr + v * K + k, mask=(v < V) & (k < K), other=0.0)
    dw = tl.zeros((BLOCK_V, BLOCK_K), tl.float32)
    blocks = tl.cdiv(T, BLOCK_T)
    for step in range(blocks):
        t = (blocks - 1 - step) * BLOCK_T + tl.arange(0, BLOCK_T)
        h_mask = (t[:, None] < T) & (k < K)
        h = tl.load(h_ptr + t[:, None] * K + k, mask=h_mask, other=0.0)
        label = tl.load(label_ptr + t, mask=t < T, other=-100)[None, :]
        lse = tl.load(lse_ptr + t, mask=t < T, other=float("inf"))[None, :]
        s = tl.where((v < V) & (label >= 0), tl.dot(w, h.T) - lse, float("-inf"))
        d = (tl.exp2(s * 1.4426950408889634) - tl.where(v == label, 1.0, 0.0)).to(tl.bfloat16)
        dw += tl.dot(d, h)
        tl.atomic_add(dh_ptr + t[:, None] * K + k, tl.dot(d.T, w), mask=h_mask, sem="relaxed")
    tl.store(dw_ptr + v * K + k, dw, mask=(v < V) & (k < K))


# ---- puzzle 73


@triton.jit
def unpacked_by_hand(
    x_ptr, x_scale_ptr, w_ptr, w_scale_ptr, z_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Makes numbers of the codes by arithmetic: correct, but no tensor core gets to see a code."""
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        x = tl.load(x_ptr + m * K + k, mask=(m < M) & (k < K), other=0.0).to(tl.float32)
        of_x = tl.load(x_scale_ptr + m * (K // 32) + k // 32, mask=(m < M) & (k < K), other=127)
        byte = tl.load(w_ptr + n * (K // 2) + k // 2, mask=(n < N) & (k < K), other=0).to(tl.int32)
        of_w = tl.load(w_scale_ptr + n * (K // 32) + k // 32, mask=(n < N) & (k < K), other=127)
        code = (byte >> (k % 2 * 4)) & 15
        exponent, fraction = (code >> 1) & 3, code & 1
        size = tl.where(exponent > 0, (2 + fraction) * tl.exp2(exponent.to(tl.float32) - 2), 0.5 * fraction)
        w = tl.where(code > 7, -size, size) * tl.exp2(of_w.to(tl.float32) - 127)
        x *= tl.exp2(of_x.to(tl.float32) - 127)
        acc = tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16).T, acc)
    n = n.T
    tl.store(z_ptr + m * N + n, acc, mask=(m < M) & (n < N))


transposed_bytes = edited(
    MXFP4_MATMUL,
    "transposed_bytes",
    "Loads the bytes as the dot takes them; scales of nothing are 1.",
    {
        "w_ptr + n[:, None] * (K // 2) + j, mask=is_n & (j < K // 2)": (
            "w_ptr + n[None, :] * (K // 2) + j.T, mask=(n[None, :] < N) & (j.T < K // 2)"
        ),
        "w.T, w_scale": "w, w_scale",
    },
)

w_on_the_left = edited(
    MXFP4_MATMUL,
    "w_on_the_left",
    "Multiplies the transposed blocks.",
    {
        'tl.dot_scaled(x, x_scale, "e4m3", w.T, w_scale, "e2m1", acc)': (
            'tl.dot_scaled(w, w_scale, "e2m1", x.T, x_scale, "e4m3", acc.T).T'
        ),
    },
)

# ---- puzzle 74

by_histogram = edited(
    ROUTE,
    "by_histogram",
    "Counts by tl.histogram.",
    {
        "        below = (first < e).to(tl.int32) + (second < e).to(tl.int32)\n"
        "        begin += tl.sum(tl.where(t < T, below, 0))": (
            "        counts = tl.histogram(first, BLOCK_E, mask=t < T)\n"
            "        counts += tl.histogram(second, BLOCK_E, mask=t < T)\n"
            "        begin += tl.sum(tl.where(tl.arange(0, BLOCK_E) < e, counts, 0))"
        ),
    },
)


@triton.jit
def who_beats_it(
    logits_ptr, order_ptr, weight_ptr, start_ptr, T, E, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr
):
    """An expert is chosen if at most one beats it; tokens one after the other."""
    mine, n = tl.program_id(0), tl.arange(0, BLOCK_E)
    begin, place = 0, 0
    for pass_number in range(2):
        for t in range(T):
            x = tl.load(logits_ptr + t * E + n, mask=n < E, other=float("-inf"))
            beaten_by = tl.sum(
                ((x[None, :] > x[:, None]) | ((x[None, :] == x[:, None]) & (n[None, :] < n[:, None]))).to(
                    tl.int32
                ),
                1,
            )
            chosen = (beaten_by < 2) & (n < E)
            if pass_number == 0:
                begin += tl.sum((chosen & (n < mine)).to(tl.int32))
            if pass_number == 1:
                here = tl.sum(tl.where(n == mine, beaten_by, 0))
                if here < 2:
                    top = tl.max(x)
                    total = tl.sum(tl.where(chosen, tl.exp(x - top), 0.0))
                    tl.store(order_ptr + begin + place, 2 * t + here)
                    at = tl.sum(tl.where(n == mine, tl.exp(x - top), 0.0))
                    tl.store(weight_ptr + begin + place, at / total)
                    place += 1
    tl.store(start_ptr + mine, begin)
    if mine == E - 1:
        tl.store(start_ptr + E, begin + place)


# ---- puzzle 75

sorts_the_logits = edited(
    NUCLEUS_TOKEN,
    "sorts_the_logits",
    "Sorts the logits instead of the probabilities.",
    {
        "falling = tl.sort(p, descending=True)": (
            "order = tl.sort(logits, descending=True)\n"
            "    falling = tl.exp(order - tl.max(logits, axis=0))\n"
            "    falling /= tl.sum(falling, axis=0)"
        ),
        "tl.min(tl.where(before < P, falling, 1.0), axis=0)": (
            'tl.min(tl.where(before < P, order, float("inf")), axis=0)'
        ),
        "p >= least": "logits >= least",
    },
)


@triton.jit
def every_pair(logits_ptr, token_ptr, V, P, SEED, BLOCK_V: tl.constexpr):
    """Compares all pairs of probabilities: correct, as long as a tile has room for them."""
    b, n = tl.program_id(0), tl.arange(0, BLOCK_V)
    logits = tl.load(logits_ptr + b * V + n, mask=n < V, other=float("-inf"))
    p = tl.exp(logits - tl.max(logits, 0))
    p = p / tl.sum(p, 0)
    before = tl.sum(tl.where(p[None, :] > p[:, None], p[None, :], 0.0), 1)
    score = tl.where(before < P, logits - tl.log(-tl.log(tl.rand(SEED, b * V + n))), float("-inf"))
    tl.store(token_ptr + b, tl.argmax(score, 0))


@triton.jit
def one_after_the_other(logits_ptr, token_ptr, V, P, SEED, BLOCK_V: tl.constexpr):
    """Takes the likeliest of the rest until the sum is P, without sorting."""
    b, n = tl.program_id(0), tl.arange(0, BLOCK_V)
    logits = tl.load(logits_ptr + b * V + n, mask=n < V, other=float("-inf"))
    p = tl.exp(logits - tl.max(logits, 0))
    p = p / tl.sum(p, 0)
    rest, before, least = p, 0.0, 1.0
    while before < P and tl.max(rest, 0) > 0:
        least = tl.max(rest, 0)
        before += tl.sum(tl.where(rest == least, rest, 0.0), 0)
        rest = tl.where(rest == least, 0.0, rest)
    score = tl.where(p >= least, logits - tl.log(-tl.log(tl.rand(SEED, b * V + n))), float("-inf"))
    tl.store(token_ptr + b, tl.argmax(score, 0))


rounded_logits = edited(
    ROUTE,
    "rounded_logits",
    "Takes logits for equal that agree to six decimals.",
    {
        "tl.max(logits, axis=1, return_indices=True)": (
            "tl.max(tl.floor(logits * 1e6) / 1e6, axis=1, return_indices=True)"
        )
    },
)

gradients_in_tf32 = edited(
    LINEAR_CROSS_ENTROPY_GRAD,
    "gradients_in_tf32",
    "Doesn't round d, but widens h and w.",
    {
        "d = tl.where(is_used, d, 0.0).to(tl.bfloat16)": "d = tl.where(is_used, d, 0.0)",
        "tl.dot(d.T, h, dw)": "tl.dot(d.T, h.to(tl.float32), dw)",
        "tl.dot(d, w)": "tl.dot(d, w.to(tl.float32))",
    },
)

begins_at_zero = edited(
    MXFP4_MATMUL,
    "begins_at_zero",
    "Adds each product to acc, instead of passing acc.",
    {"acc = tl.dot_scaled(": "acc += tl.dot_scaled(", '"e2m1", acc)': '"e2m1")'},
)

exp_of_all = edited(
    NUCLEUS_TOKEN,
    "exp_of_all",
    "Doesn't subtract the maximum before exp.",
    {"p = tl.exp(logits - tl.max(logits, axis=0))": "p = tl.exp(logits)"},
)

WRONG = [
    Wrong(MXFP4_MATMUL, begins_at_zero, "machine", "as its last argument, acc = tl.dot_scaled(..., acc)"),
    Wrong(SWIGLU_DOWN, in_tf32, "machine", "tl.dot of float32 tiles: 1"),
    Wrong(LINEAR_CROSS_ENTROPY_GRAD, gradients_in_tf32, "machine", "tl.dot of float32 tiles: 2"),
    Wrong(ROUTE, rounded_logits, "values", "logits:a_hair_apart"),
    Wrong(MXFP4_MATMUL, unpacked_by_hand, "machine", "could be made once, or left out"),
    Wrong(NUCLEUS_TOKEN, exp_of_all, "values", "or p is NaN"),
    Wrong(NUCLEUS_TOKEN, every_pair, "compiler", "a block of 4,194,304 elements is too large"),
]

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
    (SWIGLU_DOWN, the_other_way_round),
    (SAMPLE_TOKEN, branches_on_heat),
    (SAMPLE_TOKEN, largest_then_first),
    (LINEAR_CROSS_ENTROPY, transposed_tiles),
    (LINEAR_CROSS_ENTROPY, one_loop_in_base_two),
    (LINEAR_CROSS_ENTROPY_GRAD, one_by_one_at_the_label),
    (LINEAR_CROSS_ENTROPY_GRAD, tiles_on_their_side),
    (MXFP4_MATMUL, transposed_bytes),
    (MXFP4_MATMUL, w_on_the_left),
    (ROUTE, by_histogram),
    (ROUTE, who_beats_it),
    (NUCLEUS_TOKEN, sorts_the_logits),
    (NUCLEUS_TOKEN, one_after_the_other),
]
