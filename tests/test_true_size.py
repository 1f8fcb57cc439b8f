"""Cases of true size: tensors of billions of elements that nobody holds, programs at the edges of the grid.

Of the course's solutions only those whose puzzle asks for it hold beyond 2^31 elements, `WIDE`. All others
count in int32, as kernels commonly do, and `BEYOND` says so of each. Just below they all hold, `BELOW`. Two
need a word: outer_add is one program, whose block Triton limits to 2^20 elements; and where a loop would be
2^31 long, only its start was run.
"""

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import MASKED_ADD, OUTER_ADD_BLOCKS, stages, trace
from puzzles_lib.authoring.solutions import define, kernel_sources, solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.checker.true_size import edges
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner.pretend import Sparse

LIMIT = 2**31

BEYOND = {
    "double": Case(pretend=True, N=LIMIT + 5, BLOCK=1_024),
    "pair_difference": Case(pretend=True, N=LIMIT // 2 + 5, BLOCK=1_024),
    "constant_add": Case(pretend=True, N=LIMIT + 2048, BLOCK=1_024),
    "masked_add": Case(pretend=True, N=LIMIT + 5, BLOCK=1_024),
    "reversed_add": Case(pretend=True, N=LIMIT + 5, BLOCK=1_024),
    "outer_add_blocks": Case(pretend=True, M=50_000, N=50_001, BLOCK_M=32, BLOCK_N=16),
    "mul_relu": Case(pretend=True, M=50_000, N=50_001, BLOCK_M=32, BLOCK_N=16),
    "mul_relu_backward": Case(pretend=True, M=50_000, N=50_001, BLOCK_M=32, BLOCK_N=16),
    "long_sum": Case(pretend=True, M=2**21 + 3, N=1_025, BLOCK_M=4, BLOCK_N=256),
    "long_softmax": Case(pretend=True, M=2**21 + 3, N=1_025, BLOCK_M=4, BLOCK_N=256),
    "online_softmax": Case(pretend=True, M=2**21 + 3, N=1_025, BLOCK_M=4, BLOCK_N=256),
    "scalar_flash_attention": Case(pretend=True, T=LIMIT + 5, BLOCK_Q=128, BLOCK_K=64),
    "flash_attention": Case(pretend=True, T=2**22 + 3, D=512, BLOCK_Q=16, BLOCK_K=16, BLOCK_D=512),
    "conv2d": Case(pretend=True, N=2_200, H=1_000, W=1_001, KH=2, KW=3, BLOCK_N=4, BLOCK_H=8, BLOCK_W=16),
    "life": Case(pretend=True, H=50_000, W=50_001, BLOCK_H=32, BLOCK_W=16),
    "batched_matmul": Case(pretend=True, B=3_000, M=1_000, N=1_001, K=64, BLOCK_M=32, BLOCK_N=32,
        BLOCK_K=64),
    "weight_codes": Case(pretend=True, M=50_000, K=50_008, BLOCK_M=8, BLOCK_K=64),
    "grouped_weights": Case(pretend=True, M=50_000, K=50_008, GROUP=8, BLOCK_M=8, BLOCK_K=64),
    "quantized_matmul": Case(pretend=True, M=50_000, N=50_001, K=64, GROUP=8, BLOCK_M=32, BLOCK_N=32,
        BLOCK_K=64),
    "once_per_group": Case(pretend=True, M=50_000, N=50_001, K=64, GROUP=32, BLOCK_M=32, BLOCK_N=32,
        BLOCK_K=32),
    "pack_wide": Case(pretend=True, M=50_000, N=50_001, BITS=8, BLOCK_W=64),
    "pack_bits": Case(pretend=True, M=50_000, N=50_001, BITS=8, BLOCK_W=64),
    "unpack_bits": Case(pretend=True, M=50_000, N=50_001, BITS=8, BLOCK_W=64),
    "quantize_codes": Case(pretend=True, M=50_000, N=50_001, BITS=8, GROUP=16, BLOCK_G=4),
    "quantize_pack": Case(pretend=True, M=50_000, N=50_001, BITS=8, GROUP=16, BLOCK_G=4),
    "unpack_dequantize": Case(pretend=True, M=50_000, N=50_001, BITS=8, GROUP=16, BLOCK_W=64),
    "relu_pack": Case(pretend=True, M=50_000, N=50_001, BLOCK_W=4),
    "relu_unpack_backward": Case(pretend=True, M=50_000, N=50_001, BLOCK_W=4),
    "fused_dw": Case(pretend=True, K=64, COUT=50_000, CIN=50_001, BITS=8, GROUP=16, BLOCK_M=32,
        BLOCK_N=64, BLOCK_K=32),
    "busy_dw": Case(pretend=True, K=64, COUT=50_000, CIN=50_001, BITS=8, GROUP=16, BLOCK_M=32,
        BLOCK_N=64, BLOCK_K=32),
    "two_programs": Case(pretend=True, K=65_536, COUT=40_000, CIN=91, BITS=8, GROUP=16, SPLITS=600,
        BLOCK_M=32, BLOCK_N=64, BLOCK_K=32),
    "split_k": Case(pretend=True, K=65_536, COUT=40_000, CIN=91, BITS=8, GROUP=16, SPLITS=600, BLOCK_M=32,
        BLOCK_N=64, BLOCK_K=32),
    "packed_along_k": Case(pretend=True, K=128, COUT=50_000, CIN=50_001, BITS=8, GROUP=64, BLOCK_M=32,
        BLOCK_N=64),
    "quantize_rows": Case(pretend=True, M=2**21 + 3, K=1_025, BLOCK_M=4, BLOCK_K=256),
    "fused_linear": Case(pretend=True, M=50_000, N=50_001, K=64, BLOCK_M=32, BLOCK_N=32, BLOCK_K=64),
    "int8_linear": Case(pretend=True, M=50_000, N=50_001, K=64, BLOCK_M=32, BLOCK_N=32, BLOCK_K=64),
    "tiled_linear": Case(pretend=True, M=50_000, N=50_001, K=64, BLOCK_M=32, TILE_N=32, TILE_K=64),
    "mxfp4_matmul": Case(pretend=True, M=50_000, N=50_001, K=64, BLOCK_M=32, BLOCK_N=32, BLOCK_K=64),
    "tile_order": Case(pretend=True, M=50_000, N=50_001, K=64, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, GROUP=8),
    "split_sum": Case(pretend=True, M=2**21 + 3, N=1_025, BLOCK_M=4, BLOCK_N=256),
}  # fmt: skip
WIDE = {  # their puzzles have cases of true size
    "paged_attention",
    "strided_copy",
    "linear_backward",
    "stochastic_pack",
    "rms_norm",
    "layer_norm",
    "layer_norm_dx",
    "layer_norm_dw",
    "dw_by_lock",
    "long_layer_norm",
    "linear_recurrence",
    "window_attention",
    "attention_dq",
    "attention_dkv",
    "merge_parts",
    "linear_cross_entropy",
    "linear_cross_entropy_grad",
}
JUST_BELOW = {"outer_add_blocks"}  # the first puzzle with tiles: its largest case has almost 2^31 elements
INDEXED = {  # by a tensor's values
    "rope", "grouped_matmul", "swiglu_down", "sample_token", "route", "nucleus_token",
}  # fmt: skip
SMALLER = {  # the number that makes the largest tensor a little smaller than 2^31
    "double": {"N": LIMIT - 1029},
    "pair_difference": {"N": LIMIT // 2 - 1029},
    "constant_add": {"N": LIMIT - 1024},
    "masked_add": {"N": LIMIT - 1029},
    "reversed_add": {"N": LIMIT - 1029},
    "long_sum": {"M": 2**21 - 4099},
    "long_softmax": {"M": 2**21 - 4099},
    "online_softmax": {"M": 2**21 - 4099},
    "life": {"H": 42_901},
    "conv2d": {"N": 2141},
    "batched_matmul": {"B": 2141},
    "two_programs": {"COUT": 32_700, "SPLITS": 700},
    "split_k": {"COUT": 32_700, "SPLITS": 700},
    "quantize_rows": {"M": 2**21 - 4099},
    "split_sum": {"M": 2**21 - 4099},
}
BELOW = {
    name: case.but(**SMALLER.get(name, {"COUT" if "COUT" in case.numbers else "M": 42_901}))
    for name, case in BEYOND.items()
    if "flash" not in name  # loops of 2^22 keys
}
PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}
CLINIC = {name for name, puzzle in PUZZLES.items() if puzzle.broken_by}  # two of them are about large sizes


def at_true_size(kernel, puzzle: Puzzle, case: Case | None = None, **numbers: int):
    case = case or Case(pretend=True, **numbers)
    return examine(kernel, dataclasses.replace(puzzle, contract=None, cases=(case,), machine=(), traffic=()))


def test_the_table_has_every_puzzle_but_two():
    """One has one program; the other's sequences begin where a tensor says, which has to be there."""
    assert set(BEYOND) == set(PUZZLES) - {"outer_add", "varlen_attention"} - INDEXED - WIDE - CLINIC


@pytest.mark.parametrize("name", BEYOND)
def test_no_solution_holds_beyond_2_to_the_31(name):
    report = at_true_size(solutions()[name], PUZZLES[name], BEYOND[name])
    (verdict,) = report.verdicts
    assert verdict.kind == "true size" and "does not fit int32 and wraps around" in verdict.message
    assert verdict.site is not None and verdict.site.source


@pytest.mark.parametrize("name", BELOW)
def test_every_solution_holds_just_below(name):
    puzzle, case = PUZZLES[name], BELOW[name]
    sizes = [math.prod(a.shape(case.numbers)) for a in puzzle.inputs + puzzle.results]
    assert 0.97 * LIMIT < max(sizes) < LIMIT
    report = at_true_size(solutions()[name], puzzle, case)
    assert report.ok, report


@pytest.mark.parametrize("name", sorted(WIDE))
def test_what_is_promised_beyond_holds(name):
    """Each axis of the grid, and the offsets of each tensor that the puzzle says may be so large."""
    puzzle = PUZZLES[name]
    pretended = [case for case in puzzle.cases if case.pretend]
    for case in pretended:
        report = at_true_size(solutions()[name], puzzle, case)
        assert report.ok, report
    sizes = [max(math.prod(a.shape(c.numbers)) for a in puzzle.inputs + puzzle.results) for c in pretended]
    assert sizes and min(sizes) > LIMIT
    promised = {name for name, other in PUZZLES.items() if any(c.pretend for c in other.cases)}
    assert promised - CLINIC == WIDE | JUST_BELOW


FEWER = {  # than 2^31 elements: these have one size each, or the task says so
    "linear_backward": {"db"},
    "rms_norm": {"w"},
    "layer_norm": {"w", "b", "mean", "rstd"},
    "layer_norm_dx": {"w", "mean", "rstd"},
    "layer_norm_dw": {"mean", "rstd", "dw", "db", "dw_part", "db_part", "count"},
    "dw_by_lock": {"dw", "db", "lock"},
    "long_layer_norm": {"mean", "rstd"},
    "linear_recurrence": {"start"},
    "merge_parts": {"total"},
    "linear_cross_entropy": {"w", "label", "loss", "lse"},
    "linear_cross_entropy_grad": {"h", "label", "lse", "dh"},
    "paged_attention": {"q", "table", "length", "o", "lse"},
}


@pytest.mark.parametrize("name", sorted(WIDE))
def test_each_tensor_that_may_be_so_large_is_so_in_a_case(name):
    puzzle = PUZZLES[name]
    cases = [case for case in (*puzzle.cases, *(puzzle.hard or {}).values()) if case.pretend]
    fewer = {a.name for a in puzzle.tensors if all(math.prod(a.shape(c.numbers)) < LIMIT for c in cases)}
    assert fewer == FEWER.get(name, set())


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("stochastic_pack", "words_ptr + row * W", "words_ptr + row.to(tl.int32) * W"),
        ("stochastic_pack", "scale_ptr + row * G", "scale_ptr + row.to(tl.int32) * G"),
        ("stochastic_pack", "minimum_ptr + row * G", "minimum_ptr + row.to(tl.int32) * G"),
        ("window_attention", "lse_ptr + head + i", "lse_ptr + tl.program_id(1) * T + i"),
        ("window_attention", "(head + i)[:, None]", "(tl.program_id(1) * T + i).to(tl.int64)[:, None]"),
        ("attention_dq", "lse_ptr + head + i", "lse_ptr + tl.program_id(1) * T + i"),
        ("attention_dq", "delta_ptr + head + i", "delta_ptr + tl.program_id(1) * T + i"),
        ("attention_dkv", "lse_ptr + head + i", "lse_ptr + h * T + i"),
        ("attention_dkv", "delta_ptr + head + i", "delta_ptr + h * T + i"),
        ("attention_dkv", "(g.to(tl.int64) * T + j)", "(g * T + j).to(tl.int64)"),
        ("merge_parts", "lse_ptr + r * S", "lse_ptr + r.to(tl.int32) * S"),
        ("merge_parts", "z_ptr + r * D", "z_ptr + r.to(tl.int32) * D"),
        ("paged_attention", "((page * PAGE + slot) *", "((page.to(tl.int32) * PAGE + slot).to(tl.int64) *"),
        (
            "dw_by_lock",
            "m.to(tl.int64)[:, None] * N",
            "(p * ROWS).to(tl.int64) * N + (m - p * ROWS)[:, None] * N",
        ),
    ],
)
def test_the_offsets_of_each_tensor_are_wide(name, old, new):
    source = kernel_sources()[name]
    assert old in source
    report = examine(define(source.replace(old, new), f"<{name}, partly in int32>"), PUZZLES[name])
    (verdict,) = report.verdicts
    assert verdict.kind == "true size" and "does not fit int32" in verdict.message, str(report)


# ---- kernels that hold, and others


@triton.jit
def wide(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def too_late(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    offs = start.to(tl.int64) + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def moved_pointers(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    i = tl.arange(0, BLOCK)
    mask = i < N - start
    tl.store(z_ptr + start + i, tl.load(x_ptr + start + i, mask=mask) + 10, mask=mask)


@triton.jit
def hashes(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = offs.to(tl.int32) * 1664525 + 1013904223  # wraps around, and is no address
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + (bits & 1).to(tl.float32), mask=offs < N)


@triton.jit
def clamps(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.maximum(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 0)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def divides(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = offs // 1024, offs % 1024
    at = row.to(tl.int64) * 1024 + column
    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=at < N) + 10, mask=at < N)


@triton.jit
def off_everywhere(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs.to(tl.int32) + (2**31 - 1) < 0
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask, other=0.0) + 10, mask=mask & (offs < 0))


@triton.jit
def unmasked(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10, mask=offs < N)


@triton.jit
def undefined(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + tl.sum(x), mask=offs < N)


@triton.jit
def stores_nothing(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    tl.load(x_ptr)


@pytest.mark.parametrize("kernel", [wide, moved_pointers, hashes], ids=lambda k: k.__name__)
@pytest.mark.parametrize("size", [LIMIT - 5, LIMIT + 5, 2**33 + 5])
def test_kernels_that_hold(kernel, size):
    report = at_true_size(kernel, MASKED_ADD, N=size, BLOCK=1024)
    assert report.ok and "programs at the edges of the grid" in str(report), report


@pytest.mark.parametrize(
    "kernel, kind, told, line",
    [
        (too_late, "true size", "offset 2,147,483,648 does not fit int32", "start = tl.program_id(0)"),
        (clamps, "true size", "does not fit int32", "offs = tl.maximum(tl.program_id(0) * BLOCK"),
        (divides, "true size", "does not fit int32", "offs = tl.program_id(0) * BLOCK + tl.arange"),
        (off_everywhere, "true size", "does not fit int32", "mask = offs.to(tl.int32) + (2**31 - 1) < 0"),
        (unmasked, "out of bounds", "out-of-bounds load of x_ptr", "tl.load(x_ptr + offs)"),
        (undefined, "uninitialized", "a lane that the load of x_ptr masks off", "x = tl.load(x_ptr"),
        (stores_nothing, "never written", "none of the 3 programs at the edges of the grid stores", ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_kernels_that_do_not(kernel, kind, told, line):
    (verdict,) = at_true_size(kernel, MASKED_ADD, N=LIMIT + 5, BLOCK=1024).verdicts
    assert (verdict.kind, told in verdict.message) == (kind, True), verdict
    assert line in (verdict.site.source if verdict.site else ""), verdict


@triton.jit
def rows_in_64_bits(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    at = offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    tl.store(z_ptr + at, x[None, :] + y[:, None], mask=mask)


@triton.jit
def by_block_pointer(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    offs_m, offs_n = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = tl.make_block_ptr(z_ptr, (M, N), (N, 1), (m, n), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(z, x[None, :] + y[:, None], boundary_check=(0, 1))


@pytest.mark.parametrize("kernel", [rows_in_64_bits, by_block_pointer], ids=lambda k: k.__name__)
def test_only_the_product_need_be_wide(kernel):
    report = at_true_size(kernel, OUTER_ADD_BLOCKS, M=90_000, N=50_001, BLOCK_M=32, BLOCK_N=16)
    assert report.ok, report


WIDE_THEN_CAST = """
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    at = (offs_m[:, None].to(tl.int64) * N + offs_n[None, :]){cast}
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + at, x[None, :] + y[:, None], mask=mask)
"""


@triton.jit
def rows_of(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HOW: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    rows = offs_m[:, None]
    if HOW == "int16":
        at = rows.to(tl.int16) * N
    elif HOW == "uint16":
        at = rows.to(tl.uint16) * N
    elif HOW == "programs in int8":
        first = tl.program_id(0).to(tl.int8) * BLOCK_M
        at = (first + tl.arange(0, BLOCK_M))[:, None] * N
    elif HOW == "shifted":
        at = rows << 15
        at = (at >> 15) * N
    elif HOW == "lanes in uint8":
        at = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.uint8))[:, None] * N
    else:
        at = (rows.to(tl.int64) * N).to(tl.int32)
    tl.store(z_ptr + at + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@pytest.mark.parametrize(
    "how, says",
    [
        ("int16", "offset 69,984 does not fit 16 bits and wraps around: keep offsets in int32"),
        ("uint16", "offset 69,984 does not fit 16 bits and wraps around: keep offsets in int32"),
        ("programs in int8", "offset 2,187 does not fit 8 bits and wraps around: keep offsets in int32"),
        ("shifted", "does not fit int32 and wraps around"),
        ("lanes in uint8", ""),
        ("int32", ""),
    ],
)
def test_offsets_in_few_bits(how, says):
    """The puzzle's own cases show it: the largest is just below 2^31 elements."""
    report = examine(triton.heuristics({"HOW": lambda args: how})(rows_of), OUTER_ADD_BLOCKS)
    assert report.ok == (not says), report
    assert says in str(report) and len(report.verdicts) <= 1


@pytest.mark.parametrize("how, ok", [("int32", False), ("int64", True)])
def test_a_cast_back_to_int32_is_a_cast_too_many(how, ok):
    kernel = define(WIDE_THEN_CAST.format(cast=".to(tl.int32)" if how == "int32" else ""), "<cast back>")
    report = at_true_size(kernel, OUTER_ADD_BLOCKS, M=90_000, N=50_001, BLOCK_M=32, BLOCK_N=16)
    assert report.ok == ok, report
    assert ok or "does not fit int32 and wraps around" in str(report)


def test_an_autotuned_kernel_of_true_size():
    configs = [triton.Config({"BLOCK": block}) for block in (256, 1024)]
    assert at_true_size(triton.autotune(configs, key=["N"])(wide), MASKED_ADD, N=LIMIT + 5, BLOCK=1024).ok


# ---- the grid


def add_one(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + 1


@triton.jit
def any_axis(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    pid = tl.program_id(0) + tl.program_id(1) + tl.program_id(2)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 1, mask=offs < N)


@pytest.mark.parametrize("axis, most", [(0, 2**31 - 1), (1, 65_535), (2, 65_535)])
def test_grids_that_no_gpu_launches(axis, most):
    puzzle = Puzzle(
        number="0",
        spec=add_one,
        grid=lambda s: (*(1,) * axis, triton.cdiv(s.N, s.BLOCK)),
        cases=(Case(N=20, BLOCK=8),),
    )
    assert at_true_size(any_axis, puzzle, N=8 * most, BLOCK=8).ok
    (verdict,) = at_true_size(any_axis, puzzle, N=8 * most + 1, BLOCK=8).verdicts
    told = f"the grid has {most + 1:,} programs along axis {axis}, but a GPU launches at most {most:,}"
    assert (verdict.kind, verdict.message) == ("true size", told)


def test_the_programs_at_the_edges():
    assert edges((3, 1, 1), [100]) == [(2, 0, 0), (0, 0, 0)]
    assert set(edges((8, 1, 1), [2**32])) == {(i, 0, 0) for i in (0, 3, 4, 5, 7)}
    assert len(edges((1000, 1000, 1000), [2**32, 2**33, 2**34])) <= 8 + 3 * 4


# ---- what it costs, and what it is not for


@pytest.mark.parametrize("name", ["batched_matmul", "long_softmax", "conv2d"])
def test_it_takes_little_memory(name):
    at_true_size(solutions()[name], PUZZLES[name], BELOW[name])  # caches are filled
    tracemalloc.start()
    try:
        assert at_true_size(solutions()[name], PUZZLES[name], BELOW[name]).ok
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_a_trace_and_a_fill_of_it_are_refused_in_a_line():
    case = Case(N=LIMIT + 5, BLOCK=1024, pretend=True)
    with pytest.raises(ValueError, match="trace: .* elements, but at most 10,000,000 can be drawn"):
        trace(wide, MASKED_ADD, case=case)
    filled = Case(N=5, BLOCK=4, pretend=True, fill={"x": print})
    with pytest.raises(ValueError, match=r"pretend fills integers only, but fill names \['x'\]"):
        dataclasses.replace(MASKED_ADD, cases=(filled,))
    assert stages(wide, MASKED_ADD, case=case).ok


def test_an_array_that_remembers_what_was_set():
    array = Sparse(2**40, np.dtype(np.int32), lambda index: -index.astype(np.int32))
    array[np.array([7, 2**33, 7])] = [1, 2, 3]  # the last one stays
    array[np.array([5, 2**33])] = [4, 5]
    assert array[np.array([4, 5, 6, 7, 2**33])].tolist() == [-4, 4, -6, 3, 5]
    assert len(array) == 2**40 and array.nbytes == 2**42
