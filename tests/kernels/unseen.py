"""Wrong kernels that are right for the cases listed: for their sizes, their values, or all but exactly.

Each is the course's solution with a slip in it, of any chapter.
"""

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD_BLOCKS
from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU_BACKWARD
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM
from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION
from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.chapters.ch09_bit_packing.puzzles import PACK_BITS
from puzzles_lib.chapters.ch10_quantize.puzzles import QUANTIZE_PACK, UNPACK_DEQUANTIZE
from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK, RELU_UNPACK_BACKWARD
from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import FUSED_DW, PACKED_ALONG_K
from puzzles_lib.chapters.ch14_int8_linear.puzzles import INT8_LINEAR, QUANTIZE_ROWS
from puzzles_lib.chapters.ch18_attention.puzzles import ATTENTION_DKV, WINDOW_ATTENTION
from puzzles_lib.mistakes import Mistake
from tests.kernels import made

# ---- right for the sizes that the cases have

SIZES = (
    Mistake(
        LONG_SUM,
        "rows_end_at_512",
        "Rows are taken to end at 512.",
        {
            "for start in range(0, N, BLOCK_N):": "for start in range(0, min(N, 512), BLOCK_N):",
        },
        kind="values",
        says="z[0]",
    ),
    Mistake(
        LONG_SUM,
        "eight_blocks_unrolled",
        "Eight blocks are taken to hold any row.",
        {
            "for start in range(0, N, BLOCK_N):": (
                "for i in tl.static_range(8):\n        start = i * BLOCK_N"
            ),
        },
        kind="values",
        says="z[0]",
    ),
    Mistake(
        LONG_SUM,
        "rows_end_at_64",
        "Rows from 64 on are 0.",
        {
            "tl.store(z_ptr + offs_m, acc, mask=offs_m < M)": (
                "tl.store(z_ptr + offs_m, acc * (offs_m < 64), mask=offs_m < M)"
            ),
        },
        kind="values",
        says="z[64]",
    ),
    Mistake(
        LONG_SUM,
        "rows_of_2048_in_one_go",
        "A block of 2048 columns is taken to hold any row.",
        {
            "range(0, N, BLOCK_N):": "tl.static_range(1):",
            "start + tl.arange(0, BLOCK_N)": "start + tl.arange(0, 2048)",
        },
        kind="values",
        says="z[0]",
    ),
    Mistake(
        LONG_SOFTMAX,
        "rows_of_2048_in_one_go",
        "A block of 2048 columns is taken to hold any row.",
        {
            f"# Loop {loop}\n    for start in range(0, N, BLOCK_N):\n"
            "        offs_n = start + tl.arange(0, BLOCK_N)": (
                f"# Loop {loop}\n    for start in tl.static_range(1):\n"
                "        offs_n = start + tl.arange(0, 2048)"
            )
            for loop in ("1: the maximum of each row.", "2: the denominator of each row.", "3: the result.")
        },
        kind="never written",
        says="z[0, 2048]",
    ),
    Mistake(
        FLASH_ATTENTION,
        "one_tile_of_256_keys",
        "A tile of 256 keys is taken to hold all.",
        {
            "range(0, end, BLOCK_K):": "tl.static_range(1):",
            "start_k + tl.arange(0, BLOCK_K)": "start_k + tl.arange(0, 256)",
            "mask_kv = (offs_k[:, None] < T)": "mask_kv = (offs_k[:, None] < end)",
        },
        kind="values",
        says="z[256",
    ),
    Mistake(
        CONV2D,
        "eight_rows_of_taps",
        "The filter has 8 rows at most.",
        {
            "range(0, KH):": "tl.static_range(8):",
            "w_ptr + a * KW + b)": "w_ptr + a * KW + b, mask=a < KH, other=0.0)",
        },
        kind="values",
        says="z[0",
    ),
    Mistake(
        CONV2D,
        "sixteen_columns_of_taps",
        "The filter has 16 columns at most.",
        {
            "range(0, KW):": "tl.static_range(16):",
            "w_ptr + a * KW + b)": "w_ptr + a * KW + b, mask=b < KW, other=0.0)",
        },
        kind="values",
        says="z[0",
    ),
    Mistake(
        WINDOW_ATTENTION,
        "sixteen_blocks_of_keys",
        "A query looks 16 blocks of keys back at most.",
        {
            "tl.minimum(start + BLOCK_Q, T), BLOCK_K)": (
                "tl.minimum(tl.minimum(start + BLOCK_Q, T), begin + 16 * BLOCK_K), BLOCK_K)"
            ),
        },
        kind="values",
        says="o[0, 256",
    ),
    Mistake(
        ATTENTION_DKV,
        "eight_heads_a_group",
        "Eight heads at most go with a head of k and v.",
        {
            "end_head = (g + 1) * (H // H_KV)": "end_head = g * (H // H_KV) + min(H // H_KV, 8)",
        },
        kind="values",
        says="dk[0",
    ),
    Mistake(
        OUTER_ADD_BLOCKS,
        "columns_end_at_128",
        "x is zero from column 128 on.",
        {
            "mask=offs_n < N)  # [BLOCK_N]": "mask=offs_n < min(N, 128), other=0.0)",
        },
        kind="values",
        says="128–",
    ),
    Mistake(
        MASKED_ADD,
        "eleven_beyond_1024",
        "Beyond 1024 it is 11 that is added.",
        {
            "x + 10": "x + 10 + (pid * BLOCK + lanes) // 1024",
        },
        kind="values",
        says="1024–",
    ),
    Mistake(
        CONV2D,
        "sixteen_taps",
        "The filter has 16 taps at most.",
        {
            "acc += w * x": "acc += w * x * (a * KW + b < 16)",
        },
        kind="values",
        says="z[0, 0, 0]",
    ),
    Mistake(
        BATCHED_MATMUL,
        "batch_modulo_2",
        "There are two batches.",
        {
            "x_ptr + pid_b * M * K": "x_ptr + pid_b % 2 * M * K",
        },
        kind="values",
        says="along B",
    ),
    Mistake(
        INT8_LINEAR,
        "at_most_8192",
        "The sum ends at 8192.",
        {
            "for start in range(0, K, BLOCK_K):": "for start in range(0, min(K, 8192), BLOCK_K):",
        },
        kind="values",
        says="y[",
    ),
    Mistake(
        PACK_BITS,
        "four_rows",
        "The fifth row is taken for the first.",
        {
            "codes_ptr + row * N": "codes_ptr + row % 4 * N",
        },
        kind="values",
        says="words[4, 0]",
    ),
)

# ---- right for the values that the cases have

VALUES = (
    Mistake(
        LONG_SOFTMAX,
        "maximum_from_minus_10000",
        "The maximum starts at -10000.",
        {
            'tl.full((BLOCK_M,), float("-inf"), tl.float32)': ("tl.full((BLOCK_M,), -10000.0, tl.float32)"),
        },
        kind="values",
        says="below the -10000",
    ),
    Mistake(
        MUL_RELU_BACKWARD,
        "gate_at_1e_6",
        "Products below 1e-6 are taken for 0.",
        {
            "x * y > 0": "x * y > 1e-6",
        },
        kind="values",
        says="zero everywhere",
    ),
    Mistake(
        FLASH_ATTENTION,
        "masked_by_minus_10000",
        "Scores after the diagonal are -10000, not -inf.",
        {
            'offs_q[:, None], scores, float("-inf"))': "offs_q[:, None], scores, -10000.0)",
        },
        kind="values",
        says="z[",
    ),
    Mistake(
        QUANTIZE_PACK,
        "spread_below_1e_6",
        "A spread of less than 1e-6 is taken for none.",
        {
            "high > low": "high - low > 1e-6",
        },
        kind="values",
        says="words[",
    ),
    Mistake(
        QUANTIZE_ROWS,
        "epsilon_in_the_peak",
        "1e-12 is added to the peak.",
        {
            "peak / 127": "(peak + 1e-12) / 127",
        },
        kind="values",
        says="codes[",
    ),
    Mistake(
        QUANTIZE_ROWS,
        "tiny_rows_are_zero",
        "Rows below 1e-12 count as zero.",
        {
            "peak > 0": "peak > 1e-12",
        },
        kind="values",
        says="codes[",
    ),
    Mistake(
        FUSED_DW,
        "dy_in_float16",
        "dy goes through float16, which ends at 65504.",
        {
            "acc = tl.dot(dy, x, acc)": "acc = tl.dot(dy.to(tl.float16).to(tl.bfloat16), x, acc)",
        },
        kind="values",
        says="dw[",
    ),
    Mistake(
        PACKED_ALONG_K,
        "small_dy_lost",
        "dy below 1e-6 is taken for zero.",
        {
            "acc = tl.dot(x, dy, acc)": (
                "acc = tl.dot(x, tl.where(tl.abs(dy.to(tl.float32)) < 1e-6, 0.0, dy).to(tl.bfloat16), acc)"
            ),
        },
        kind="values",
        says="dw[",
    ),
)

# ---- correct except for a unit in the last place, but the contract is exact

EXACT = (
    Mistake(
        RELU_PACK,
        "y_through_float16",
        "y goes through float16.",
        {
            "tl.where(shut, 0.0, x)": "tl.where(shut, 0.0, x).to(tl.float16).to(tl.bfloat16)",
        },
        kind="values",
        says="y[",
    ),
    Mistake(
        RELU_PACK,
        "y_a_little_too_large",
        "y is 0.4% too large.",
        {
            "tl.where(shut, 0.0, x)": "(tl.where(shut, 0.0, x) * 1.004).to(tl.bfloat16)",
        },
        kind="values",
        says="y[",
    ),
    Mistake(
        RELU_PACK,
        "last_bit_of_y_lost",
        "The last bit of y is cleared.",
        {
            "tl.where(shut, 0.0, x)": (
                "(tl.where(shut, 0.0, x).to(tl.bfloat16).to(tl.int16, bitcast=True) & "
                "-2).to(tl.bfloat16, bitcast=True)"
            ),
        },
        kind="values",
        says="y[",
    ),
    Mistake(
        RELU_PACK,
        "smallest_y_flushed",
        "y below 2^-125 is flushed to zero.",
        {
            "tl.where(shut, 0.0, x)": "tl.where(shut | (x.to(tl.float32) < 2.0**-125), 0.0, x)",
        },
        kind="values",
        says="y[",
    ),
    Mistake(
        RELU_UNPACK_BACKWARD,
        "last_bit_of_dx_lost",
        "The last bit of dx is cleared.",
        {
            "tl.where(passes, dy, 0.0)": (
                "(tl.where(passes, dy, 0.0).to(tl.bfloat16).to(tl.int16, bitcast=True) & "
                "-2).to(tl.bfloat16, bitcast=True)"
            ),
        },
        kind="values",
        says="dx[",
    ),
    Mistake(
        RELU_UNPACK_BACKWARD,
        "dx_through_float16",
        "dx goes through float16.",
        {
            "tl.where(passes, dy, 0.0)": "tl.where(passes, dy, 0.0).to(tl.float16).to(tl.bfloat16)",
        },
        kind="values",
        says="dx[",
    ),
    Mistake(
        UNPACK_DEQUANTIZE,
        "cut_off",
        "x is cut off, not rounded.",
        {
            "x, mask=n < N": (
                "(x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True), mask=n < N"
            ),
        },
        kind="values",
        says="looks truncated instead of rounded",
    ),
    Mistake(
        BATCHED_MATMUL,
        "cut_off",
        "z is cut off, not rounded.",
        {
            "acc, mask=mask_m & mask_n": (
                'acc.to(tl.float16, fp_downcast_rounding="rtz"), mask=mask_m & mask_n'
            ),
        },
        kind="values",
        says="looks truncated instead of rounded",
    ),
    Mistake(
        QUANTIZE_PACK,
        "scale_cut_off_where_stored",
        "The scale is stored cut off, and the codes follow the right one.",
        {
            "offs_g, scale, mask": (
                "offs_g, (tl.where(high > low, (high - low) / TOP, 1.0).to(tl.int32, "
                "bitcast=True) & -65536).to(tl.float32, bitcast=True), mask"
            ),
        },
        kind="values",
        says="scale[",
    ),
    Mistake(
        QUANTIZE_PACK,
        "minimum_off_by_a_bit",
        "The stored minimum is 0.4% off.",
        {
            "offs_g, low, mask": "offs_g, low * 1.004, mask",
        },
        kind="values",
        says="minimum[",
    ),
)

WRONG = [made(m, kernel_sources()[m.puzzle.name]) for m in (*SIZES, *VALUES, *EXACT)]
RIGHT = ()
