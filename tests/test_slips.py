"""Slips of chapters 03 to 18: what the report says of results that have a known cause."""

import pytest

from puzzles_lib import (
    ATTENTION_DKV,
    ATTENTION_DQ,
    BATCHED_MATMUL,
    BUSY_DW,
    CONV2D,
    FLASH_ATTENTION,
    FUSED_DW,
    GROUPED_WEIGHTS,
    LAYER_NORM,
    LIFE,
    LINEAR_RECURRENCE,
    LONG_LAYER_NORM,
    MUL_RELU,
    MUL_RELU_BACKWARD,
    ONCE_PER_GROUP,
    PACK_BITS,
    PACK_WIDE,
    PACKED_ALONG_K,
    QUANTIZE_CODES,
    QUANTIZE_PACK,
    QUANTIZED_MATMUL,
    RELU_PACK,
    RELU_UNPACK_BACKWARD,
    RMS_NORM,
    SCALAR_FLASH_ATTENTION,
    SPLIT_K,
    UNPACK_BITS,
    UNPACK_DEQUANTIZE,
    WEIGHT_CODES,
    WINDOW_ATTENTION,
)
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.checker import examine
from puzzles_lib.source import define

UNCLAMPED = "((steps + 12582912.0) - 12582912.0).to(tl.int32)"
SCALE = "tl.where(high > low, (high - low) / TOP, 1.0)"
PACKED = (QUANTIZE_CODES, QUANTIZE_PACK)

GATE = "tl.where(x * y > 0, dz * y, 0.0)"
HALF_OPEN = "dz * y * ((x * y > 0).to(tl.float32) + (x * y >= 0).to(tl.float32)) * 0.5"
HIDE_KEYS = 'k = tl.where(mask_k, k, float("-inf"))\n        scores = q[:, None] * k[None, :]'

SLIPS = [
    (MUL_RELU, "tl.maximum(product, 0.0)", "tl.where(x[None, :] > 0, product, 0.0)", "the sign of x alone"),
    (MUL_RELU, "tl.maximum(product, 0.0)", "tl.where(y[:, None] > 0, product, 0.0)", "the sign of y alone"),
    (MUL_RELU, "tl.maximum(product, 0.0)", "tl.abs(product)", "the absolute value"),
    (MUL_RELU, "tl.maximum(product, 0.0)", "product", "without the relu"),
    (MUL_RELU, "tl.maximum(product, 0.0)", "tl.maximum(product, 0.01 * product)", "a leaky relu"),
    (MUL_RELU, "tl.maximum(product, 0.0)", "product * tl.sigmoid(product * 1e6)", "so small that the 1e+06"),
    (MUL_RELU_BACKWARD, "x * y > 0", "x * y > 1e-20", "the 1e-20 on line 12 changes the result"),
    (MUL_RELU_BACKWARD, "x * y > 0", "x + y > 0", "the sign of x + y"),
    (MUL_RELU_BACKWARD, GATE, HALF_OPEN, "shut at 0, not half open"),
    (MUL_RELU_BACKWARD, "dz * y, 0.0", "dz * tl.abs(y), 0.0", "has lost its sign"),
    (MUL_RELU_BACKWARD, "dz * y, 0.0", "dz * y, dz", "where the gate is shut"),
    (SCALAR_FLASH_ATTENTION, "tl.exp(row_max - new_max)", "row_max - new_max", "it needs tl.exp"),
    (SCALAR_FLASH_ATTENTION, "acc * factor +", "acc * factor * denominator +", "by the denominator, too"),
    (SCALAR_FLASH_ATTENTION, "acc * factor +", "acc * factor + acc +", "added twice"),
    (SCALAR_FLASH_ATTENTION, "tl.max(scores, axis=1)", "tl.max(k, axis=0)", "that of the keys"),
    (SCALAR_FLASH_ATTENTION, "scores - new_max[:, None]", "new_max[:, None] - scores", "as the scores fall"),
    (SCALAR_FLASH_ATTENTION, "tl.sum(p, axis=1)", "tl.sum(scores, axis=1)", "the denominator sums scores"),
    (SCALAR_FLASH_ATTENTION, "p * v[None, :]", "scores * v[None, :]", "acc sums scores times values"),
    (SCALAR_FLASH_ATTENTION, "p * v[None, :]", "p * q[:, None]", "acc sums p times queries"),
    (SCALAR_FLASH_ATTENTION, "-inf", "inf", "hides lanes by +inf"),
    (
        SCALAR_FLASH_ATTENTION,
        "scores = q[:, None] * k[None, :]  # [BLOCK_Q, BLOCK_K]\n"
        '        scores = tl.where(mask_k[None, :], scores, float("-inf"))',
        HIDE_KEYS,
        "load 0, and hide the products",
    ),
    (FLASH_ATTENTION, "-inf", "inf", "hides lanes by +inf"),
    (
        FLASH_ATTENTION,
        "<= offs_q[:, None]",
        "<= (offs_q - start_q)[:, None]",
        "counts queries within the tile",
    ),
    (FLASH_ATTENTION, "tl.dot(p, v,", "tl.dot(p, v, acc,", "added twice"),
    (
        FLASH_ATTENTION,
        "end = min(start_q + BLOCK_Q, T)",
        "end = (start_q + BLOCK_Q) // BLOCK_K * BLOCK_K",
        "rounded down to whole blocks",
    ),
    (FLASH_ATTENTION, ', input_precision="ieee") / root_d', ") / root_d", "Without it, it uses TF32"),
    (CONV2D, "row, column = i + a, j + b", "row, column = i + b, j + a", "row = i + b"),
    (CONV2D, "(n * H + row) * W + column", "(n * H + row) * H + column", "rows of H pixels"),
    (CONV2D, "(n * H + row) * W + column", "(n * H + i) * W + j", "load the shifted pixel"),
    (CONV2D, "acc += w * x", "acc = w * x", "the last product alone"),
    (CONV2D, "acc += w * x", "acc += x", "adding pixels alone"),
    (CONV2D, "(n * H + row) * W + column", "(n * H + i) * W + column", "the row shifts by a"),
    (CONV2D, "(n * H + row) * W + column", "(n * H + row) * W + j", "the column shifts by b"),
    (CONV2D, "range(0, KH)", "range(0, KH - 1)", "without the filter's last row:"),
    (CONV2D, "range(0, KW)", "range(0, KW - 1)", "without the filter's last column"),
    (CONV2D, "a * KW + b)", "(KH - 1 - a) * KW + KW - 1 - b)", "a flipped filter"),
    (CONV2D, "(row < H) & (column < W)", "((n * H + row) * W + column < N * H * W)", "a mask on the offset"),
    (
        CONV2D,
        "row, column = i + a, j + b\n            inside = (n < N)",
        "row, column = i + a - KH // 2, j + b - KW // 2\n"
        "            inside = (n < N) & (row >= 0) & (column >= 0)",
        "a centered filter",
    ),
    (CONV2D, "a * KW + b)", "a * KH + b)", "rows of w that are KH apart"),
    (LIFE, "row, column = i + a, j + b", "row, column = (i + a + H) % H, (j + b + W) % W", "opposite edge"),
    (LIFE, "(count == 3) |", "((count == 3) & (alive == 0)) |", "with three neighbors died"),
    (LIFE, "(count == 3) | ((count == 2) & (alive == 1))", "count == 3", "with two neighbors died"),
    (LIFE, "count += tl.load(", "count += (a * b == 0).to(tl.int32) * tl.load(", "from four neighbors"),
    (
        LIFE,
        "row, column = i + a, j + b",
        "row = tl.minimum(tl.maximum(i + a, 0), H - 1)\n"
        "            column = tl.minimum(tl.maximum(j + b, 0), W - 1)",
        "from the nearest cell",
    ),
    (LIFE, "(count == 3) |", "((count == 3) & (alive == 1)) |", "no dead cell came alive"),
    (LIFE, "+ j, z, mask", "+ j, count, mask", "the number of live neighbors"),
    (LIFE, "range(-1, 2)", "range(-1, 1)", "which ends at 0"),
    (LIFE, "row * W + column", "row * H + column", "rows of H cells"),
    (BATCHED_MATMUL, "range(0, K, BLOCK_K)", "range(0, K // BLOCK_K)", "began at 0, 1, 2"),
    (BATCHED_MATMUL, "range(0, K, BLOCK_K)", "range(0, K)", "a loop without a step"),
    (BATCHED_MATMUL, "acc = tl.dot(x, y, acc)", "acc += tl.dot(x, y, acc)", "acc were added twice"),
    (BATCHED_MATMUL, "acc = tl.dot(x, y, acc)", "tl.dot(x, y, acc)", "assign what it returns"),
    (BATCHED_MATMUL, "range(0, K, BLOCK_K)", "range(0, K, BLOCK_M)", "in steps of BLOCK_M"),
    (BATCHED_MATMUL, "range(0, K, BLOCK_K)", "range(0, M, BLOCK_K)", "that ends at M"),
    (BATCHED_MATMUL, "k + tl.arange(0, BLOCK_K)", "tl.arange(0, BLOCK_K)", "loaded the first block of K"),
    (BATCHED_MATMUL, "offs_m[:, None] * K", "offs_m[:, None] * N", "rows of x that are N apart"),
    (BATCHED_MATMUL, "offs_m[:, None] * K", "offs_m[:, None] * M", "rows of x that are M apart"),
    (BATCHED_MATMUL, "pid_b * M * K", "pid_b * M * N", "matrices of x that are M * N apart"),
    (BATCHED_MATMUL, "pid_b * K * N", "pid_b * M * N", "matrices of y that are M * N apart"),
    (BATCHED_MATMUL, "y_ptr + pid_b * K * N", "y_ptr", "matrix 0 of y in"),
    (BATCHED_MATMUL, "x_ptr + pid_b * M * K", "x_ptr", "matrix 0 of x in"),
    (WEIGHT_CODES, "& 15", "% 16", "from % 16"),
    (WEIGHT_CODES, "(words >> 4 * (k % 8)) & 15", "(words // (1 << 4 * (k % 8))) % 16", "from // and % 16"),
    (WEIGHT_CODES, ">> 4 * (k % 8)", ">> (k % 8)", "shift by 4 * (k % 8)"),
    (WEIGHT_CODES, ">> 4 * (k % 8)) & 15", "<< 28 - 4 * (k % 8)) >> 28", "were a sign"),
    (WEIGHT_CODES, ">> 4 * (k % 8)", "// (1 << 4 * (k % 8))", "from //"),
    (WEIGHT_CODES, "& 15", "& 7", "from & 7"),
    (WEIGHT_CODES, "& 15", "& 16", "keeps a single bit"),
    (GROUPED_WEIGHTS, "g = k // GROUP", "g = k // BLOCK_K * BLOCK_K // GROUP", "first column's group"),
    (QUANTIZED_MATMUL, "g = k // GROUP", "g = start // GROUP + 0 * k", "first column's group"),
    (GROUPED_WEIGHTS, "(words >> 4 * (g % 8)) & 15", "words", "the whole word as o"),
    (GROUPED_WEIGHTS, "(words >> 4 * (g % 8)) & 15", "words >> 4 * g % 8 & 15", "4 * g % 8, which means"),
    (GROUPED_WEIGHTS, "groups + g, mask", "groups, mask", "the scale of group 0"),
    (GROUPED_WEIGHTS, "scale_ptr + offs_m * groups", "scale_ptr + offs_m * ((groups + 7) // 8)", "of scales"),
    (GROUPED_WEIGHTS, "offs_m * (K // 8)", "offs_m * groups", "rows of K // GROUP weight words"),
    (QUANTIZED_MATMUL, "k * N + offs_n, mask", "k + offs_n * K, mask", "columns of the activation were K"),
    (ONCE_PER_GROUP, "k * N + offs_n, mask", "k + offs_n * K, mask", "columns of the activation were K"),
    (QUANTIZED_MATMUL, "(w - o)", "(w + o)", "from w + o"),
    (QUANTIZED_MATMUL, "s * (w - o)", "(w - o).to(tl.float32)", "without the scale"),
    (ONCE_PER_GROUP, "(w - o)", "w", "without the offset"),
    (PACK_BITS, "offs_w[:, None] * F", "offs_w[:, None] * BITS", "BITS codes: it has F"),
    (PACK_BITS, "offs_w[:, None] * F", "offs_w[:, None] * 8", "8 codes: it has F"),
    (PACK_BITS, "codes_ptr + row * N + n", "codes_ptr + n", "the codes of row 0"),
    (PACK_BITS, "offs_w[:, None] * F + i", "offs_w[:, None] * BLOCK_W + i", "BLOCK_W codes: it has F"),
    (PACK_BITS, "offs_w[:, None] * F + i", "offs_w[:, None] + i", "from n = w + i"),
    (PACK_BITS, "offs_w[:, None] * F + i", "i * F + offs_w[:, None]", "from n = i * F + w"),
    (PACK_BITS, "offs_w[:, None] * F + i", "i * W + offs_w[:, None]", "from n = i * W + w"),
    (PACK_BITS, "codes << BITS * i", "codes", "from a sum without a shift"),
    (PACK_BITS, "codes << BITS * i", "codes * BITS * i", "from codes * BITS * i"),
    (PACK_BITS, "codes << BITS * i", "codes.to(tl.int8) << BITS * i", "as they are in int8"),
    (PACK_BITS, "BITS * i", "BITS", "from a shift by BITS"),
    (PACK_BITS, "tl.sum(", "tl.max(", "from the largest of the shifted codes"),
    (PACK_BITS, "other=0", "other=-1", "255 in a byte"),
    (PACK_BITS, "other=0", "other=1", "with ones in the fields past the end"),
    (
        PACK_BITS,
        "codes << BITS * i, axis=1)",
        "(codes << BITS * i).to(tl.int8), axis=1).to(tl.int8)",
        "of int8",
    ),
    (UNPACK_BITS, "mask=offs_w < W)", "mask=offs_w < W).to(tl.uint8)", "only the lowest 8 bits of a word"),
    (
        UNPACK_BITS,
        ">> BITS * i) & ((1 << BITS) - 1)",
        "<< 32 - BITS * (i + 1)) >> 32 - BITS",
        "comes back neg",
    ),
    (UNPACK_BITS, "((1 << BITS) - 1)", "15", "keep BITS of them"),
    (UNPACK_BITS, "((1 << BITS) - 1)", "BITS", "& 2, which is both BITS and 1 << BITS - 1 here"),
    (UNPACK_BITS, "((1 << BITS) - 1)", "(1 << BITS - 1)", "& 2, which is both BITS and 1 << BITS - 1 here"),
    (UNPACK_BITS, ">> BITS * i", ">> i", "from a shift by i"),
    (UNPACK_DEQUANTIZE, "offs_w * F // GROUP", "offs_w // GROUP * F", "of group 0"),
    (UNPACK_DEQUANTIZE, "offs_w * F // GROUP", "offs_w // (GROUP * F)", "of group 0"),
    (UNPACK_DEQUANTIZE, "offs_w * F // GROUP", "offs_w // F", "how many words does a group have?"),
    (
        UNPACK_DEQUANTIZE,
        "offs_w * F // GROUP",
        "tl.minimum(offs_w, G - 1)",
        "how many words does a group have?",
    ),
    (UNPACK_DEQUANTIZE, "offs_w * F // GROUP", "offs_w % G", "of group w % G"),
    (UNPACK_DEQUANTIZE, "* codes", "* (codes + 1)", "codes that are 1 too high"),
    (UNPACK_DEQUANTIZE, "minimum[:, None] + ", "", "without the minimum"),
    (
        UNPACK_DEQUANTIZE,
        "minimum[:, None] + scale[:, None] * codes",
        "(minimum[:, None] + scale[:, None]) * codes",
        "from (minimum + scale) * code",
    ),
    (UNPACK_BITS, "words_ptr + row * W + offs_w", "words_ptr + offs_w", "the words of row 0"),
    (PACK_WIDE, "F + first + i", "F + i", "n must grow with the loop"),
    (PACK_WIDE, "(first + i)", "i", "the shift must grow with the loop"),
    (QUANTIZE_CODES, "(high - low) / TOP", "(high - low) / BITS", "from BITS steps"),
    (QUANTIZE_CODES, "(high - low) / TOP", "(high - low) / (1 << BITS - 1)", "from 1 << BITS - 1 steps"),
    (QUANTIZE_PACK, "(high - low) / TOP", "(high - low) / (1 << BITS - 1)", "from 1 << BITS - 1 steps"),
    (QUANTIZE_PACK, "x_ptr + row * N", "x_ptr", "the values of row 0"),
    (QUANTIZE_CODES, "x_ptr + row * N", "x_ptr", "the values of row 0"),
    (QUANTIZE_CODES, ") / scale.to", ") * scale.to", "divide by the scale to count"),
    (QUANTIZE_CODES, "tl.minimum((steps + 12582912.0) - 12582912.0, TOP)", UNCLAMPED, "weren't clamped"),
    (QUANTIZE_CODES, "12582912.0) - 12582912.0", "16777216.0) - 16777216.0", "subtracting 2^24"),
    (QUANTIZE_CODES, "high > low", "high != 0", "only groups with max = 0"),
    (QUANTIZE_PACK, "high > low", "high != 0", "only groups with max = 0"),
    (QUANTIZE_CODES, SCALE, "((high - low) / TOP + 1e-6)", "with 1e-6 added"),
    (QUANTIZE_PACK, SCALE, "((high - low) / TOP + 1e-6)", "with 1e-6 added"),
    (QUANTIZE_CODES, "12582912.0, TOP)", "12582912.0, TOP - 1)", "ended at 2^BITS - 2"),
    (
        QUANTIZE_CODES,
        'high = tl.max(tl.where(n < N, x, float("-inf"))',
        'high = tl.min(tl.where(n < N, x, float("inf"))',
        "had the scale 1",
    ),
    (
        QUANTIZE_PACK,
        "tl.minimum((steps + 12582912.0) - 12582912.0, TOP)",
        "(steps + 12582912.0) - 12582912.0",
        "if no code were clamped",
    ),
    (QUANTIZE_PACK, "(x - low[:, None])", "x", "from x / scale"),
    (QUANTIZE_CODES, 'float("-inf")', 'float("inf")', "as +inf in the maximum"),
    (QUANTIZE_CODES, 'x, float("inf")', 'x, float("-inf")', "as -inf in the minimum"),
    (UNPACK_DEQUANTIZE, "minimum[:, None] + scale[:, None]", "scale[:, None] + minimum[:, None]", "swapped"),
    (UNPACK_DEQUANTIZE, "tl.cdiv(N, GROUP)", "N // GROUP", "N // GROUP scales"),
    (RELU_PACK, "other=0.0", "other=1.0", "ones past the end"),
    (RELU_PACK, "tl.where(shut, 0, 1)", "tl.where(shut, 1, 0)", "with 0 and 1 swapped"),
    (RELU_PACK, "tl.where(shut, 0, 1)", "~shut.to(tl.int32)", "from ~ of an int32"),
    (
        RELU_UNPACK_BACKWARD,
        "((words[:, None] >> i) & 1) == 1",
        "(words[:, None] & (1 << i)) > 0",
        "it is the sign",
    ),
    (
        RELU_UNPACK_BACKWARD,
        "((words[:, None] >> i) & 1) == 1",
        "(words[:, None] >> i) > 0",
        "> 0 without & 1",
    ),
    (RELU_UNPACK_BACKWARD, "tl.where(passes", "tl.where(dy > 0", "from the sign of dy"),
    (RMS_NORM, "1e-6", "1e-5", "under the root is 1e-5"),
    (
        LAYER_NORM,
        "tl.rsqrt(tl.sum(centered * centered, axis=1) / N + 1e-5)",
        "1 / (tl.sqrt(tl.sum(centered * centered, axis=1) / N) + 1e-5)",
        "add it to the variance",
    ),
    (LAYER_NORM, "rstd, mask=m < M", "1 / (rstd * rstd), mask=m < M", "rstd contains the variance"),
    (LAYER_NORM, "rstd, mask=m < M", "1 / rstd, mask=m < M", "rstd contains the root"),
    (LAYER_NORM, "* w[None, :] + b[None, :]", "* w[None, :] + b[None, :] * w[None, :]", "b is added before"),
    (LONG_LAYER_NORM, "mean += apart * share", "mean += apart / 2", "a row's first block has n1 = 0"),
    (
        LONG_LAYER_NORM,
        "mean += apart * share",
        "mean += apart * tl.where(first > 0, 0.5, 1.0)",
        "two equal parts only",
    ),
    (
        LONG_LAYER_NORM,
        "+ apart * apart * first",
        "+ (own - mean) * (own - mean) * first",
        "δ after the mean has moved",
    ),
    (LINEAR_RECURRENCE, "        h = tl.sum(", "        x = tl.sum(", "every block begins with start"),
    (LINEAR_RECURRENCE, "h = tl.sum(", "h = tl.max(", "use tl.sum instead of tl.max"),
    (LINEAR_RECURRENCE, "t == first + BLOCK_T - 1", "t == BLOCK_T - 1", "from the third block on"),
    (LINEAR_RECURRENCE, "t == first + BLOCK_T - 1", "t == first", "with the first h of the one before"),
    (ATTENTION_DQ, "tl.dot(do, v.T)", "tl.dot(o, v.T)", "dp is do times v"),
    (ATTENTION_DKV, "tl.dot(ds.to(tl.bfloat16), q, dk)", "tl.dot(p.to(tl.bfloat16), q, dk)", "dk sums p"),
    (ATTENTION_DKV, "first_head = g * (H // H_KV)", "first_head = g", "the heads begin at g"),
    (
        ATTENTION_DKV,
        "first_head = g * (H // H_KV)\n    end_head = (g + 1) * (H // H_KV)",
        "first_head = g\n    end_head = g + H // H_KV",
        "the heads are g to g + H // H_KV",
    ),
]


CONSTANTS = [
    (MUL_RELU, "tl.maximum(product, 0.0)", "tl.maximum(product, 1e-7)", "the 1e-07 on line 12 changes"),
    (MUL_RELU_BACKWARD, "x * y > 0", "x * y > 1e-6", "the 1e-06 on line 12 changes the result"),
    (FLASH_ATTENTION, 'float("-inf")', "-100.0", "below the -100 on line 33"),
    (MUL_RELU_BACKWARD, "x * y > 0", "x * y > 1e-12", "the 1e-12 on line 12 changes the result"),
]


@pytest.mark.parametrize(("puzzle", "right", "wrong", "says"), CONSTANTS)
def test_a_constant_is_named_if_a_listed_case_fails_because_of_it(puzzle, right, wrong, says):
    source = kernel_sources()[puzzle.name]
    assert right in source
    verdict = examine(define(source.replace(right, wrong), "<a constant>"), puzzle).verdicts[0]
    assert verdict.kind == "values" and says in verdict.diagnosis, verdict


@pytest.mark.parametrize(("puzzle", "right", "wrong", "says"), SLIPS)
def test_a_slip_is_named(puzzle, right, wrong, says):
    source = kernel_sources()[puzzle.name]
    assert right in source
    report = examine(define(source.replace(right, wrong), "<a slip>"), puzzle, until_failure=True)
    verdict = report.verdicts[0]
    assert verdict.kind == "values" and says in verdict.diagnosis, verdict


@pytest.mark.parametrize(
    ("puzzle", "right", "wrong", "says"),
    [
        (WINDOW_ATTENTION, "start - W + 1, 0)", "start - W, 0)", "the loop begins a block early"),
        (
            WINDOW_ATTENTION,
            "tl.maximum(start - W + 1, 0) // BLOCK_K * BLOCK_K",
            "0",
            "visits blocks of keys that no query of the program sees",
        ),
        (ATTENTION_DKV, "first_query = start // BLOCK_Q * BLOCK_Q", "first_query = 0", "don't see them"),
    ],
)
def test_too_many_loads_are_told_with_the_loop_that_does_them(puzzle, right, wrong, says):
    source = kernel_sources()[puzzle.name]
    assert source.count(right) == 1
    verdict = examine(define(source.replace(right, wrong), "<loads>"), puzzle, until_failure=True).verdicts[0]
    assert verdict.kind == "loads" and says in verdict.diagnosis, verdict


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("(x - low[:, None])", "x", "from x / scale"),
        ("(high - low) / TOP", "(high + low) / TOP", "from max + min"),
        ("(high - low) / TOP", "high / TOP", "from max / (2^BITS - 1)"),
        ("(high - low) / TOP, 1.0)", "tl.floor(high / TOP), 1.0)", "scale has wrong values, too: 1 of 1"),
    ],
)
def test_a_negative_code_is_told_by_the_slip_that_keeps_the_right_scale_right(right, wrong, says):
    """Both kernels store the same codes, all of them 0 from negative numbers; only one has a wrong scale."""
    source = kernel_sources()["quantize_codes"]
    assert right in source
    verdict = examine(define(source.replace(right, wrong), "<a slip>"), QUANTIZE_CODES).verdicts[0]
    assert verdict.kind == "uninitialized" and says in verdict.diagnosis, verdict


def test_a_wrong_scale_is_told_before_the_codes_that_follow_from_it():
    """Codes and scale are wrong, and no slip explains both."""
    source = kernel_sources()["quantize_codes"]
    for edits, says in (
        ({"(high - low) / TOP, 1.0)": "1.25 * (high - low) / TOP, 1.0)"}, "in scale: 1 of 1"),
        (
            {"1.0).to(tl.bfloat16)": "1.0)", 'tl.where(n < N, x, float("-inf"))': "tl.where(n < N, x, 0.0)"},
            "in scale",
        ),
    ):
        wrong = source
        for right, slip in edits.items():
            assert source.count(right) == 1
            wrong = wrong.replace(right, slip)
        verdict = examine(define(wrong, "<scale>"), QUANTIZE_CODES).verdicts[0]
        assert verdict.kind == "values" and says in verdict.message, verdict


def test_negative_codes_that_wrap_around_in_a_byte_are_counted_from_zero():
    source = kernel_sources()["quantize_codes"]
    for right, wrong in (
        ("(x - low[:, None])", "x"),
        ("12582912.0, TOP)", "12582912.0, TOP).to(tl.int32)"),
    ):
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    report = str(examine(define(source, "<from zero>"), QUANTIZE_CODES))
    assert "a negative one has 256 added" in report


def test_a_scale_that_is_not_quite_zero_is_not_taken_for_zero():
    """Scales are compared exactly, so a slip must give them exactly, too."""
    source = kernel_sources()["quantize_codes"]
    right, wrong = "tl.where(high > low, (high - low) / TOP, 1.0)", "tl.maximum((high - low) / TOP, 1e-6)"
    assert right in source
    verdict = examine(define(source.replace(right, wrong), "<a slip>"), QUANTIZE_CODES).verdicts[0]
    assert "in scale" in verdict.message and "of at least 1e-6" in verdict.diagnosis, verdict


APART = "your rows are {} apart, but rows of {} are"
SAME = "their offsets are the same, although their tl.program_id(0) differs"
ROWS = [
    (UNPACK_BITS, "codes", "row * N + n", "row * W + n", "16 elements"),
    (UNPACK_BITS, "codes", "row * N + n", "row * BLOCK_W + n", "8 elements"),
    (UNPACK_BITS, "codes", "row * N + n", "n", ""),
    (QUANTIZE_CODES, "codes", "row * N + n", "row * G + n", "8 elements"),
    (QUANTIZE_PACK, "words", "row * W + offs_w", "row * G + offs_w", "6 elements"),
    (QUANTIZE_PACK, "words", "row * W + offs_w", "offs_w", ""),
    (UNPACK_DEQUANTIZE, "x", "row * N + n", "row * W + n", "8 elements"),
    (UNPACK_DEQUANTIZE, "x", "row * N + n", "row * GROUP + n", "16 elements"),
    (UNPACK_DEQUANTIZE, "x", "row * N + n", "n", ""),
    (RELU_PACK, "y", "row * N + n", "row * BLOCK_W + n", "4 elements"),
    (RELU_PACK, "mask", "row * W + offs_w", "row + offs_w", "one element"),
    (RELU_UNPACK_BACKWARD, "dx", "row * N + n", "row * W + n", "8 elements"),
]


@pytest.mark.parametrize(("puzzle", "name", "right", "wrong", "apart"), ROWS)
def test_rows_are_as_far_apart_as_the_report_says(puzzle, name, right, wrong, apart):
    """These tiles are cut out of one row, so the distance of their own rows isn't that of the tensor's."""
    source, right = kernel_sources()[puzzle.name], f"store({name}_ptr + {right}"
    assert right in source
    wrong = define(source.replace(right, f"store({name}_ptr + {wrong}"), "<a slip>")
    verdict = examine(wrong, puzzle, until_failure=True).verdicts[0]
    assert (APART.format(apart, name) if apart else SAME) in verdict.diagnosis


def test_rows_of_a_tile_that_overlap_are_not_taken_for_rows_of_the_result():
    source = kernel_sources()["unpack_bits"]
    wrong = define(source.replace("offs_w[:, None] * F", "offs_w[:, None] * BITS"), "<a slip>")
    told = "the rows of your tile begin 2 elements apart, but are 16 long"
    assert told in examine(wrong, UNPACK_BITS).verdicts[0].diagnosis


def test_the_code_of_a_zero_that_took_part_in_the_minimum_is_named():
    source = kernel_sources()["quantize_pack"]
    for right, wrong in (
        ("mask=n < N)", "mask=n < N, other=0.0)"),
        ('tl.where(n < N, x, float("inf"))', "x"),
        ('tl.where(n < N, x, float("-inf"))', "x"),
        ("tl.where(n < N, codes, 0.0)", "codes"),
    ):
        assert right in source
        source = source.replace(right, wrong)
    verdict = examine(define(source, "<zeros>"), QUANTIZE_PACK).verdicts[0]
    assert "the code of 0 were packed" in verdict.diagnosis, verdict


@pytest.mark.parametrize(
    ("name", "edits", "says"),
    [
        ("quantize_pack", {"tl.where(n < N, codes, 0.0)": "codes"}, "with the code of 0 in the fields past"),
        ("quantize_codes", {'tl.where(n < N, x, float("inf"))': "x"}, "counted as 0 in the minimum"),
    ],
)
def test_a_lane_that_must_not_be_zero_is_not_to_be_cured_by_zeros(name, edits, says):
    source = kernel_sources()[name]
    for right, wrong in edits.items():
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    verdict = examine(define(source, "<no zeros>"), {p.name: p for p in PACKED}[name]).verdicts[0]
    assert verdict.kind == "uninitialized" and "or give it" not in verdict.diagnosis
    assert "the tensor has no element for it: don't use the lane. other=0 isn't enough: " in verdict.diagnosis
    assert says in verdict.diagnosis, verdict


def test_a_lane_that_zeros_cure_may_be_given_one():
    source = kernel_sources()["pack_bits"]
    assert source.count(", other=0") == 1
    verdict = examine(define(source.replace(", other=0", ""), "<no other>"), PACK_BITS).verdicts[0]
    assert "the tensor has no element for it: don't use the lane, or give it a value" in verdict.diagnosis


def test_a_number_of_bits_is_not_the_name_of_an_axis():
    source = kernel_sources()["quantize_pack"]
    right = "[None, None, :], axis=2"
    assert right in source
    report = str(examine(define(source.replace(right, "[None, None, :], axis=1"), "<axis>"), QUANTIZE_PACK))
    assert "the addresses are [1, 4], the value is [1, 8] = [1, F]" in report


def test_rows_of_the_wrong_length_are_not_a_missing_program_id():
    source = kernel_sources()["relu_pack"]
    assert "row * W" in source
    report = str(examine(define(source.replace("row * W", "row * N // 32"), "<rows>"), RELU_PACK))
    assert "your rows are 2 elements apart, but rows of mask are 3 elements apart" in report
    assert "tl.program_id" not in report.split("apart")[0]


def test_rows_and_columns_of_x_exchanged_are_named():
    source = kernel_sources()["batched_matmul"]
    for right, wrong in (
        ("offs_m[:, None] * K", "offs_m[:, None]"),
        ("+ offs_k[None, :]", "+ offs_k[None, :] * M"),
    ):
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    assert (
        "rows of x were 1 apart" in examine(define(source, "<a slip>"), BATCHED_MATMUL).verdicts[0].diagnosis
    )


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        (
            {
                "i = start // 8 +": "i = start +",
                "i, mask=offs_m < M)": "i, mask=(offs_m < M) & (i < K // 8), other=0)",
            },
            "they begin at start // 8",
        ),
        (
            {"[None, None, :]  # [1, 1, 8]": "[None, :, None]", "words[:, :, None]": "words[:, None, :]"},
            "a fold in another order",
        ),
    ],
)
def test_words_in_the_wrong_place_are_named(edits, says):
    source = kernel_sources()["once_per_group"]
    for right, wrong in edits.items():
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    verdict = examine(define(source, "<a slip>"), ONCE_PER_GROUP).verdicts[0]
    assert verdict.kind == "values" and says in verdict.diagnosis, verdict


def test_once_per_group_loads_each_word_once_too():
    source = kernel_sources()["once_per_group"]
    start = source.index("        i = start // 8")
    end = source.index("        g = start // GROUP")
    row = "start + tl.arange(0, BLOCK_K)[None, :]"
    old = (
        f"        c = {row}\n        words = tl.load(weight_rows + c // 8, mask=offs_m < M)\n"
        "        w = (words >> 4 * (c % 8)) & 15\n"
    )
    verdict = examine(define(source[:start] + old + source[end:], "<words of 12c>"), ONCE_PER_GROUP).verdicts[
        0
    ]
    assert verdict.kind == "loads" and "weight_ptr" in verdict.message, verdict


@pytest.mark.parametrize(
    "kept, says",
    [
        ("(n < N) & (column < W)", "lanes for row 8 are on, but x has H = 8 rows: compare the rows with H"),
        ("(n < N) & (row < H)", "x has W = 8 columns: compare the columns with W"),
        ("(row < H) & (column < W)", "lanes for image 7 are on, but x has N = 7 images: compare the images"),
    ],
)
def test_the_condition_that_a_mask_of_images_lacks_is_named(kept, says):
    source = kernel_sources()["conv2d"].replace("(n < N) & (row < H) & (column < W)", kept)
    verdict = examine(define(source, "<a condition less>"), CONV2D, until_failure=True).verdicts[0]
    assert verdict.kind == "out of bounds" and says in verdict.diagnosis, verdict


def test_a_slip_of_one_puzzle_is_not_found_in_its_correct_results():
    for puzzle in (CONV2D, LIFE, BATCHED_MATMUL, WEIGHT_CODES, PACK_WIDE, RELU_PACK):
        assert examine(define(kernel_sources()[puzzle.name], "<correct>"), puzzle).ok


def test_a_half_written_kernel_hears_which_input_it_does_not_use():
    source = kernel_sources()["conv2d"]
    load = "x = tl.load(x_ptr + (n * H + row) * W + column, mask=inside, other=0.0)"
    assert source.count(load) == source.count("acc += w * x") == 1
    half = define(source.replace(load, "").replace("acc += w * x", ""), "<half written>")
    assert "zero everywhere, and no value of x" in examine(half, CONV2D).verdicts[0].diagnosis


MASK, SHARES = "& ((1 << BITS) - 1)", "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)"
ENDS = "first = split * steps * BLOCK_K\n    last = min(first + steps * BLOCK_K, K)"
FUSED = [
    (FUSED_DW, MASK, "& -1", "without a mask"),
    (BUSY_DW, MASK, "& BITS", "from & BITS"),
    (PACKED_ALONG_K, MASK, "& -1", "without a mask"),
    (PACKED_ALONG_K, MASK, "& BITS", "from & BITS"),
    (
        FUSED_DW, "minimum[:, :, None] + scale[:, :, None] * codes",
        "(minimum[:, :, None] + codes) * scale[:, :, None]", "multiply first",
    ),
    (
        PACKED_ALONG_K, "minimum[None, :] + scale[None, :] * codes",
        "(minimum[None, :] + codes) * scale[None, :]", "multiply first",
    ),
    (PACKED_ALONG_K, "g * blocks * 16 * F + k", "g * K + k", "a row has K'"),
    (SPLIT_K, SHARES, "tl.cdiv(K, BLOCK_K) // SPLITS", "rounds down"),
    (SPLIT_K, "min(first + steps * BLOCK_K, K)", "K", "went on to K"),
    (
        SPLIT_K, "min(first + steps * BLOCK_K, K)", "min(first + steps * BLOCK_K, K // SPLITS)",
        "parts[1] is 0 everywhere, and the rest is correct",
    ),
    (
        SPLIT_K, ENDS, "rows = tl.cdiv(K, SPLITS)\n    first = split * rows\n    last = min(first + rows, K)",
        "aren't whole blocks",
    ),
]  # fmt: skip


@pytest.mark.parametrize("puzzle, right, wrong, says", FUSED)
def test_a_slip_of_the_fused_matmul_is_named(puzzle, right, wrong, says):
    source = kernel_sources()[puzzle.name]
    assert right in source
    kernel = define(source.replace(right, wrong), "<a slip>")
    verdict = examine(kernel, puzzle, until_failure=True).verdicts[0]
    assert verdict.kind == "values" and says in verdict.diagnosis, verdict


def test_words_past_the_end_of_their_row_are_not_taken_for_later_rows():
    source = kernel_sources()["once_per_group"].replace("i = start // 8 +", "i = start +")
    verdict = examine(define(source, "<words of codes>"), ONCE_PER_GROUP, until_failure=True).verdicts[0]
    assert verdict.kind == "out of bounds", verdict
    assert "lanes for columns 16 to 17 are on, but a row of weight has K//8 = 16 columns" in verdict.diagnosis
    assert "the tile moves 16 columns, but it has 2" in verdict.diagnosis


WORDS = ("weight_rows + k // 8, mask=mask, other=0", "offset_rows + g // 8, mask=mask, other=0")
SCALES, ACTIVATION = "scale_rows + g, mask=mask, other=0.0", "(k < K) & (offs_n < N), other=0.0"


@pytest.mark.parametrize(
    "loads, blamed",
    [
        (WORDS, ""),
        ((*WORDS, SCALES), "scale_ptr"),
        ((*WORDS, ACTIVATION), "activation_ptr"),
        ((*WORDS, SCALES, ACTIVATION), "scale_ptr"),
    ],
)
def test_codes_of_masked_lanes_may_be_any_and_are_not_blamed(loads, blamed):
    source = kernel_sources()["quantized_matmul"]
    for load in loads:
        assert source.count(load) == 1
        source = source.replace(load, load.partition(", other=")[0])
    report = examine(define(source, "<no other>"), QUANTIZED_MATMUL, until_failure=True)
    assert report.ok if not blamed else f"the load of {blamed} masks off" in report.verdicts[0].message
