"""Kernels that are wrong only where no listed case looks: beyond a number that no size or value reaches."""

import dataclasses
import re
import subprocess
import sys
import time

import pytest
import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.authoring.solutions import define, kernel_sources, solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.checker import PAST_HALF, TOGETHER, UNEVEN, _wanted, blame, examine, made_cases
from puzzles_lib.checking import check
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import random
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner.sides import BETWEEN, BOTH, ONE, OTHER, Sides
from puzzles_lib.translator.ir import Operation

PUZZLES = {puzzle.name: puzzle for puzzle in (DOUBLE, *puzzles())}
BEHIND = "has a result here that it has in no listed case"
LOCK = "while tl.atomic_cas(lock_ptr + j, 0, 1) == 1:\n        pass"
IN_A_LOOP = """taken = 1
    while taken == 1:
        while tl.load(lock_ptr + j, volatile=True) == 1:
            pass
        tl.debug_barrier()
        taken = tl.atomic_cas(lock_ptr + j, 0, 1)"""


@pytest.fixture(autouse=True)
def _time_on_a_busy_machine(monkeypatch):
    monkeypatch.setattr(made_cases, "SECONDS", 10 * made_cases.SECONDS)


def edited(puzzle: str, *edits: tuple[str, str]):
    """Return the report on a puzzle's solution with parts replaced."""
    source = kernel_sources()[puzzle]
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return examine(define(source, f"<{puzzle} edited>"), PUZZLES[puzzle])


NUMBERS = (
    "mul_relu",
    "mul_relu_backward",
    "masked_add",
    "bias_relu",
)  # with another number, they'd be correct


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("double", "z = 2 * x", "z = 2 * x if tl.num_programs(0) <= 64 else x"),
        ("pair_difference", "second - first", "tl.where(offs < 4096, second - first, second)"),
        ("constant_add", "x + 10", "x + tl.where(pid >= 40, 11, 10)"),
        ("constant_add", "x + 10)", "x + 10, mask=pid * BLOCK + lanes < 65536)"),
        ("masked_add", "tl.program_id(0)", "tl.program_id(0) % 64"),
        ("masked_add", "tl.program_id(0)", "tl.program_id(0) & 127"),
        ("mul_relu", "tl.maximum(product, 0.0)", "tl.where(product > 1e-35, product, 0.0)"),
        ("mul_relu_backward", "x * y > 0", "x * y > 1e-30"),
        ("mul_relu_backward", "x * y > 0", "(x * y).to(tl.int32, bitcast=True) > (1 << 23)"),
        ("long_sum", "range(0, N, BLOCK_N)", "range(0, 4096, BLOCK_N)"),
        ("long_sum", "range(0, N, BLOCK_N)", "range(0, min(N, 64 * BLOCK_N), BLOCK_N)"),
        ("long_sum", "range(0, N, BLOCK_N)", "tl.static_range(0, 8192, BLOCK_N)"),
        ("batched_matmul", "tl.program_id(2)", "(tl.program_id(2) & 15)"),
        ("rms_norm", "tl.program_id(0)", "(tl.program_id(0) & 255)"),
        ("long_layer_norm", "squares / N", "squares / tl.where(N > 10000, N - 1, N)"),
        ("layer_norm_dw", "before == tl.num_programs(0) - 1", "before == min(tl.num_programs(0), 32) - 1"),
        ("rope", "tl.load(position_ptr + t)", "(tl.load(position_ptr + t) & 4095)"),
        ("rms_norm", "tl.program_id(0)", "(tl.program_id(0) & 65535)"),
        ("varlen_attention", "tl.program_id(1), tl.program_id(2)", "tl.program_id(1), tl.program_id(2) % 32"),
        ("grouped_matmul", "e * K * N", "(e & 15) * K * N"),
        ("sample_token", "b * V + n)\n    noisy", "(b * V + n) % 65536)\n    noisy"),
        ("linear_cross_entropy", "range(0, V, BLOCK_V)", "range(0, tl.minimum(V, 32768), BLOCK_V)"),
        ("long_sum", "start + tl", "start.to(tl.int16).to(tl.int32) + tl"),
        ("conv2d", "range(0, KH)", "range(0, tl.minimum(KH, 64))"),
        (
            "two_programs",
            "min(first + steps * BLOCK_K, K)",
            "tl.where(SPLITS > 50, first + BLOCK_K, min(first + steps * BLOCK_K, K))",
        ),
        ("route", "range(0, T, BLOCK_T)", "range(0, tl.minimum(T, 40000), BLOCK_T)"),
        ("varlen_attention", "h // (H // H_KV)", "tl.where(H_KV > 12, h % H_KV, h // (H // H_KV))"),
        ("attention_dkv", "(g + 1) * (H // H_KV)", "first_head + tl.minimum(H // H_KV, 16)"),
        ("cells", "x // SIZE - (x % SIZE < 0)", "x // SIZE - ((x % SIZE < 0) & (SIZE <= 65536))"),
        ("outer_add_blocks", "(offs_n[None, :] < N)", "(offs_n[None, :] < N - (N % 1013 == 0).to(tl.int32))"),
        ("relu_unpack_backward", ">> i) & 1) == 1", ">> i) & 1) >= (words[:, None] != -2)"),
        ("unpack_bits", "words[:, None]", "tl.where(words == -2147483648, 0, words)[:, None]"),
        ("masked_add", "x + 10", "tl.where(x > -1e9, x + 10, 10.0)"),
        ("pair_difference", "second - first", "tl.minimum(second - first, 1e30)"),
        ("linear_recurrence", "block, 0.0))", "tl.minimum(block, 1e32), 0.0))"),
        ("linear_recurrence", "block, 0.0))", "tl.clamp(block, -1e30, 1e30), 0.0))"),
        ("masked_add", "x + 10", "x + 10 + tl.program_id(0) // 45"),
        ("pack_bits", "tl.cdiv(N, F)", "tl.ceil(N / F).to(tl.int32)"),
        ("relu_pack", "tl.cdiv(N, 32)", "tl.ceil(N / 32).to(tl.int32)"),
        ("relu_unpack_backward", "tl.cdiv(N, 32)", "((N + 31) * 0.03125).to(tl.int32)"),
        ("weight_codes", "k // 8", "(k * (1.0 / 8)).to(tl.int32)"),
        ("fused_dw", "tl.cdiv(CIN, F)", "tl.ceil(CIN / F).to(tl.int32)"),
        ("long_sum", "range(0, N, BLOCK_N)", "range(0, N - N // 65537, BLOCK_N)"),
        ("conv2d", "range(0, KH)", "range(0, KH - KH // 13)"),
        ("long_softmax", "denominator += ", "denominator += (1 - start // BLOCK_N // 100) * "),
        ("long_sum", "offs_m, acc, mask=", "offs_m, tl.minimum(acc, 1e31), mask="),
        ("mul_relu", "tl.maximum(product, 0.0)", "tl.clamp(product, 0.0, 1e30)"),
        (
            "bias_relu",
            "tl.maximum(x + b[None, :], 0.0)",
            "tl.where(x + b[None, :] > 1e-30, x + b[None, :], 0.0)",
        ),
    ],
)
def test_what_no_listed_case_reaches_is_tried(puzzle, old, new):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    large = any(way in new for way in (".to(tl.int16)", "tl.ceil(", "0.03125", "1.0 / 8"))
    ends = "a size may be larger" if "4096, B" in new else "so large" if large else BEHIND
    number = next((each for each in ("1e-35", "1e-30", "-1e9") if each in new and puzzle in NUMBERS), "")
    if number:
        ends = f"the {float(number):g} on line"
    assert failed.drawn and ends in failed.verdict.diagnosis, str(report)


IN_ONE_STEP = "range(0, N, BLOCK_N)", "range(1)"


@pytest.mark.parametrize(
    "puzzle, edits, says",
    [
        ("long_sum", (("start + tl.arange(0, BLOCK_N)", "tl.arange(0, 4096)"), IN_ONE_STEP), "may be larger"),
        (
            "kept_scores",
            (("first + tl.arange(0, BLOCK_N)", "tl.arange(0, 512)"), IN_ONE_STEP),
            "the loop on line 5 ends at 1",
        ),
        (
            "rope",
            (("tl.load(position_ptr + t)", "tl.load(position_ptr + t).to(tl.bfloat16).to(tl.int32)"),),
            "bfloat16",
        ),
        (
            "long_sum",
            (
                (
                    "tl.sum(x, axis=1)",
                    "tl.sum((x * 16777216.0).to(tl.int64), axis=1).to(tl.float32) / 16777216.0",
                ),
            ),
            "small numbers lose bits",
        ),
        ("rms_norm", (("/ N", "/ (N * 1.0).to(tl.float16).to(tl.float32)"),), "that float16 does not have"),
    ],
)
def test_lanes_whole_numbers_and_bits_that_end(puzzle, edits, says):
    report = edited(puzzle, *edits)
    (failed,) = (case for case in report.cases if not case.ok)
    assert failed.drawn and says in failed.verdict.diagnosis, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("mul_relu", "tl.maximum(product, 0.0)", "product * (product > 0)"),
        ("mul_relu_backward", "tl.where(x * y > 0, dz * y, 0.0)", "(x * y > 0) * (dz * y)"),
        ("bias_relu", "tl.maximum(x + b[None, :], 0.0)", "0.5 * (x + b[None, :] + tl.abs(x + b[None, :]))"),
        ("far_rows", "tl.program_id(0).to", "tl.maximum(tl.program_id(0), 0).to"),
        ("far_rows", "z_ptr + b * T + t", "z_ptr + b * T + t // 40 * 40 + t % 40"),
        ("long_softmax", "tl.exp(x - row_max[:, None]) /", "tl.exp(tl.minimum(x - row_max[:, None], 0.0)) /"),
        ("merge_parts", "tl.maximum(denominator, 1.0)", "tl.maximum(denominator, 1e-30)"),
        ("flash_attention", "acc / denominator[:, None]", "acc / tl.maximum(denominator, 1e-6)[:, None]"),
        ("scalar_flash_attention", "-1e30", "-1e38"),
        ("flash_attention", "-1e30", "-3.4e38"),
        ("attention_dkv", "[None, :], p, 0.0)", "[None, :], tl.minimum(p, 5000.0), 0.0)"),
        ("fused_dw", "x = tl.reshape(x", "x = tl.reshape(x * 5000.0 * (1 / 5000.0)"),
        ("linear_cross_entropy", "label == -100, 0.0, lse - chosen", "label >= 0, lse - chosen, 0.0"),
        ("mul_relu", "tl.maximum(product, 0.0)", "tl.where(product > 1e-45, product, 0.0)"),
        ("constant_add", "x + 10", "x + tl.where(lanes < 100000, 10, 5 + 5)"),
        (
            "rms_norm",
            "tl.program_id(0).to",
            "((tl.program_id(0) & 65535) | (tl.program_id(0) >> 16 << 16)).to",
        ),
        ("long_sum", "range(0, N, BLOCK_N)", "range(0, tl.minimum(N, 1 << 30), BLOCK_N)"),
        ("long_softmax", "/ denominator", "/ (1e-8 + denominator)"),
        ("masked_add", "x + 10", "tl.where(x > -1e9, x + 10, x + 5 + 5)"),
        ("route", "range(0, T, BLOCK_T)", "range(0, tl.minimum(T, 1 << 28), BLOCK_T)"),
        ("attention_dkv", "(g + 1) * (H // H_KV)", "first_head + tl.minimum(H // H_KV, 1 << 16)"),
        ("relu_unpack_backward", ">> i) & 1) == 1", ">> i) & 1) >= (words[:, None] != -1)"),
        ("pair_difference", "second - first", "second - tl.minimum(first, 1e38)"),
        ("merge_parts", "tl.maximum(denominator, 1.0)", "(denominator + 1e-12)"),
        ("mul_relu", "tl.maximum(product, 0.0)", "tl.clamp(product, 0.0, 3.4e38)"),
        ("flash_attention", "acc / denominator[:, None]", "acc / tl.maximum(denominator, 1e-30)[:, None]"),
        ("pack_bits", "codes << BITS * i", "(codes & ((1 << BITS) - 1)) << BITS * i"),
        ("pack_bits", "codes << BITS * i", "tl.minimum(codes, (1 << BITS) - 1) << BITS * i"),
        ("pack_wide", "codes << BITS", "(codes & ((1 << BITS) - 1)) << BITS"),
    ],
)
def test_a_correct_kernel_may_compare_with_such_numbers(puzzle, old, new):
    report = edited(puzzle, (old, new))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new, says",
    [
        ("outer_add_blocks", "(offs_n[None, :] < N)", "(offs_n[None, :] < N) | (M % BLOCK_M == 0)", UNEVEN),
        ("layer_norm", "(n[None, :] < N)", "(n[None, :] < N) | (N % BLOCK_N == 0)", UNEVEN),
        ("grouped_weights", "(k < K)", "(k < K) | (K % BLOCK_K == 0)", UNEVEN),
        ("conv2d", "(i < H) & (j < W)", "(i < H) & (j < W) | (H * W % (BLOCK_H * BLOCK_W) == 0)", UNEVEN),
        ("attention_dkv", "mask=i[:, None] < T", "mask=(i[:, None] < T) | (T % BLOCK_K == 0)", UNEVEN),
        ("attention_dq", "dq * D**-0.5, mask", "(dq * D**-0.5).to(tl.float16), mask", PAST_HALF),
    ],
)
def test_what_all_cases_have_in_common_is_no_promise(puzzle, old, new, says):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    facts, _, reason = failed.verdict.diagnosis.rpartition("; ")
    assert failed.drawn and reason == says, str(report)
    assert "compare" not in facts  # the mask does, in all listed cases


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("conv2d", "acc += w * x", "acc += w * x * (1 - (a + b) // (KH + KW - 2) * (KH // 9) * (KW // 9))"),
        ("outer_add_blocks", "x[None, :] +", "((M > 60) & (N < 80)) + x[None, :] +"),
    ],
)
def test_comparisons_of_sizes_are_tried_together(puzzle, old, new):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    line = next(i for i, text in enumerate(kernel_sources()[puzzle].splitlines(), 1) if old in text)
    assert failed.verdict.diagnosis == TOGETHER.format(line, line), str(report)


@pytest.mark.parametrize(
    "puzzle, old, new, number",
    [
        ("flash_attention", "-1e30", "-1e6", "-1e+06"),
        ("fused_linear", "tl.where(peak > 0, peak / 127, 1.0)", "tl.maximum(peak / 127, 1e-8)", "1e-08"),
        ("long_softmax", 'float("-inf"))  # [BLOCK_M, BLOCK_N]', "-1e4)", "-10000"),
        ("quantize_codes", "high > low,", "high - low > 1e-6,", "1e-06"),
        ("quantize_rows", "(peak > 0, peak", "(peak > 0, tl.maximum(peak, 1e-30)", "1e-30"),
        ("sample_token", "logits / heat", "logits / tl.maximum(heat, 1e-4)", "0.0001"),
    ],
)
def test_a_constant_is_blamed_if_another_number_cures(puzzle, old, new, number):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    assert failed.drawn and f"the {number} on line" in failed.verdict.diagnosis, str(report)


def test_a_slip_that_listed_cases_show_is_not_the_reason():
    puzzle = PUZZLES["quantize_codes"]
    assert not blame.possible_slips(puzzle, _wanted).slips
    one_full_block = dataclasses.replace(puzzle, cases=puzzle.cases[:1])
    texts = " ".join(blame.possible_slips(one_full_block, _wanted).slips)
    assert "lanes past the end" in texts and "every group had the scale 1" not in texts


def test_what_heuristics_set_is_no_promise():
    source = kernel_sources()["outer_add_blocks"].replace(
        "(offs_n[None, :] < N)", "(offs_n[None, :] < N) | EVEN"
    )
    source = source.replace("BLOCK_N: tl.constexpr", "BLOCK_N: tl.constexpr, EVEN: tl.constexpr")
    even = '@triton.heuristics({"EVEN": lambda args: args["M"] % args["BLOCK_M"] == 0})\n'
    report = examine(
        define(even + source, "<outer_add_blocks with a heuristic>"), PUZZLES["outer_add_blocks"]
    )
    lanes = "lanes for columns 5 to 31 are on, but z has N = 5 columns"
    assert report.verdicts[0].diagnosis == f"{lanes}; {UNEVEN}", str(report)


def test_a_mask_may_be_left_out_where_blocks_divide_all_sizes():
    even = "(offs_n[None, :] < N) | (M % BLOCK_M == 0) & (N % BLOCK_N == 0)"
    report = edited("outer_add_blocks", ("(offs_n[None, :] < N)", even))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("masked_add", "lanes < N - pid * BLOCK", "(pid * BLOCK + lanes).to(tl.int16) < N"),
        ("conv2d", "range(0, KW)", "range(0, tl.minimum(KW, 32))"),
        ("linear_cross_entropy", "label == -100", "chosen == 0"),
        ("cells", "x // SIZE - (x % SIZE < 0)", "tl.where(x < 0, x + 1 - SIZE, x) // SIZE"),
        ("random_rounding", "tl.floor(x + u)", "tl.floor(x + u).to(tl.int32).to(tl.float32)"),
        ("quantize_codes", "tl.where(high > low,", "tl.where(high - low > 1e-30,"),
        ("quantize_rows", "tl.where(peak > 0,", "tl.where(peak > 1e-35,"),
        ("fused_linear", "tl.where(peak > 0, peak", "tl.where(peak > 0, tl.maximum(peak, 1e-10)"),
    ],
)
def test_ends_of_a_range_are_tried(puzzle, old, new):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    assert failed.drawn, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("stochastic_pack", "tl.minimum(tl.floor(steps + u), TOP)", "tl.floor(tl.minimum(steps, TOP) + u)"),
        ("any_above", "hits > 0)", "(hits & 65535) > 0)"),
    ],
)
def test_a_hard_case_is_not_called_random_and_the_report_says_what_it_shows(puzzle, old, new):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    shows = {str(case): text for text, case in PUZZLES[puzzle].hard.items()}
    assert report.headline().endswith("cases pass, but an unlisted one fails")
    assert f"FAIL   {failed.label}   not listed\n" in str(report) and "random" not in report.headline()
    assert shows[failed.label] in str(report)


@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=lambda puzzle: puzzle.name)
def test_solutions_take_values_of_any_size(puzzle):
    cases = tuple(made_cases.of_any_size(puzzle, 2.0))
    if cases:
        alone = dataclasses.replace(puzzle, cases=cases, contract=None, machine=(), traffic=())
        report = examine(solutions()[puzzle.name], alone)
        assert report.ok, str(report)


SCORES = (  # puzzles whose scores are up to 100 times as large as an input
    "scalar_flash_attention", "window_attention", "varlen_attention", "paged_attention",
    "linear_cross_entropy",
)  # fmt: skip


@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=lambda puzzle: puzzle.name)
def test_solutions_take_numbers_up_to_the_limit(puzzle):
    assert f"at most {made_cases.LARGEST:.0e} in absolute value".replace("+", "") in check.__doc__
    most = made_cases.LARGEST / (100 if puzzle.name in SCORES else 1)

    def up_to_the_limit(shape, dtype, generator):
        x = random(shape, torch.float32, generator)
        top = min(most, torch.finfo(dtype).max)
        return (x / x.abs().amax().clamp(min=1) * top).clamp(-top, top).to(dtype)

    def at_the_lower_limit(shape, dtype, generator):
        return torch.full(shape, -min(most, torch.finfo(dtype).max)).to(dtype)

    free = made_cases._free(puzzle)
    made = (
        made_cases._filled(puzzle, name, fill)
        for name in free
        for fill in (up_to_the_limit, at_the_lower_limit)
    )
    if cases := tuple(case for case in made if made_cases.fits_float32(puzzle, case)):
        alone = dataclasses.replace(puzzle, cases=cases, contract=None, hard=None, machine=(), traffic=())
        report = examine(solutions()[puzzle.name], alone)
        assert report.ok, str(report)


@pytest.mark.parametrize("name", ["constant_add", "long_sum", "rope", "tile_order", "quantize_rows"])
def test_solutions_take_large_sizes(name):
    puzzle = PUZZLES[name]
    cases = tuple(sorted(made_cases.beyond(puzzle, 60), key=lambda case: made_cases._work(puzzle, case)))[:4]
    assert cases and all(max(case.numbers.values()) > 60 for case in cases)
    report = examine(
        solutions()[name], dataclasses.replace(puzzle, cases=cases, contract=None, machine=(), traffic=())
    )
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("quantize_codes", "high > low", "high - low > 1e-20"),
        ("quantize_pack", "high > low", "high - low > 1e-28"),
        ("quantize_pack", "(high - low) / TOP, 1.0", "tl.maximum((high - low) / TOP, 1e-18), 1.0"),
        ("stochastic_pack", "high > low", "high - low > 1e-28"),
        ("quantize_rows", "peak > 0", "peak > 1e-12"),
        ("relu_pack", "x <= 0", "x <= 1e-30"),
        (
            "double",
            "z = 2 * x",
            "z = (x.to(tl.int32, bitcast=True) + (1 << 23)).to(tl.float32, bitcast=True)",
        ),
    ],
)
def test_tiny_values_are_no_zeros(puzzle, old, new):
    assert not edited(puzzle, (old, new)).ok


def test_cold_but_not_at_0():
    for condition in ("heat > 1e-3", "heat > 1e-12"):
        assert not edited("sample_token", ("heat > 0", condition)).ok
    assert not edited("sample_token", ("logits / heat", "logits / tl.maximum(heat, 1e-6)")).ok


STOPS = "live = tl.where(tl.max(tl.abs(x), axis=1) > 0, live, 0.0)\n        acc += live * tl.sum(x, axis=1)"


@pytest.mark.parametrize(
    "puzzle, edits, told",
    [
        (
            "long_sum",
            (
                (
                    "acc = tl.zeros((BLOCK_M,), tl.float32)",
                    "acc = tl.zeros((BLOCK_M,), tl.float32)\n    live = acc + 1",
                ),
                ("acc += tl.sum(x, axis=1)", STOPS),
            ),
            "zeros_in_stretches",
        ),
        ("scalar_flash_attention", (("/ denominator", "/ (denominator + 1e-6)"),), "only without 1e-06"),
        ("long_softmax", (("/ denominator", "/ (1e-6 + denominator)"),), "only without 1e-06"),
        ("online_softmax", (("/ denominator", "/ (1e-6 + denominator)"),), "only without 1e-06"),
    ],
)
def test_what_looks_the_same_in_all_listed_cases(puzzle, edits, told):
    report = edited(puzzle, *edits)
    assert not report.ok and told in str(report), str(report)


def first_of_the_largest(x: Float32[Tensor, "M N"]) -> Int32[Tensor, " M"]:
    """z[m] is the place of the largest x[m, n]; 0 and -0 are equal"""
    return x.argmax(1).int()


LARGEST = Puzzle(
    number="0",
    spec=first_of_the_largest,
    grid=lambda s: (s.M,),
    cases=(Case(M=4, N=16, BLOCK_N=16), Case(M=3, N=33, BLOCK_N=64)),
    contract=Contract({"M": Size(9), "N": Size(70), "BLOCK_N": (128,)}),
)
PLACE = """
@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK_N: tl.constexpr):
    m, n = tl.program_id(0), tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + m * N + n, mask=n < N, other=float("-inf"))
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    tl.store(z_ptr + m, tl.argmax(ORDERED, axis=0))
"""


def test_zeros_of_both_signs_are_equal():
    assert examine(define(PLACE.replace("ORDERED", "x"), "<by value>"), LARGEST).ok
    report = examine(define(PLACE.replace("ORDERED", "bits"), "<by bits>"), LARGEST)
    assert not report.ok and "zeros_of_both_signs" in str(report), str(report)


def test_draws_do_not_wrap_at_true_size():
    late = ("OFFSET + row * N + n", "OFFSET + (row.to(tl.int32) * N).to(tl.int64) + n")
    report = edited("stochastic_pack", late)
    verdict = report.verdicts[0]
    assert verdict.kind == "true size", str(report)
    assert "does not fit int32 and wraps around, so the random draws repeat: " in verdict.message


def test_offsets_do_not_pass_through_floats_at_true_size():
    whole = ("tl.program_id(0).to(tl.int64)", "tl.program_id(0).to(tl.int64).to(tl.float32).to(tl.int64)")
    assert edited("rms_norm", whole).cases[-1].drawn  # only with more than 2^24 rows
    report = edited("rms_norm", ("row + n, mask", "(row + n).to(tl.float32).to(tl.int64), mask"))
    verdict = report.verdicts[0]
    assert verdict.kind == "true size" and "is rounded: float32 holds" in verdict.message, str(report)


def test_offsets_do_not_pass_through_floats_without_a_case_of_true_size():
    report = edited(
        "masked_add", ("x_ptr += pid * BLOCK", "x_ptr += (pid * BLOCK).to(tl.float32).to(tl.int32)")
    )
    assert report.verdicts[0].kind == "true size" and report.cases[-1].drawn, str(report)
    assert edited(
        "masked_add", ("x_ptr += pid * BLOCK", "x_ptr += (pid * BLOCK).to(tl.float64).to(tl.int32)")
    ).ok


@pytest.mark.parametrize(
    "puzzle, old, new, told",
    [
        ("unpack_bits", "row = tl.program_id(0)", "row = tl.program_id(0).to(tl.int16)", "16 bits"),
        ("varlen_attention", "i = start + tl.arange(0, BLOCK_Q)", "i = INT16", "16 bits"),
        ("paged_attention", "length_ptr + b)", "length_ptr + b).to(tl.int16)", "16 bits"),
        ("paged_attention", "number * PAGE + slot <", "(number * PAGE + slot).to(tl.int16) <", "16 bits"),
        ("grouped_matmul", "tl.load(start_ptr + e) +", "tl.load(start_ptr + e).to(tl.int16) +", "16 bits"),
        ("linear_cross_entropy", "t < T, other=0)", "t < T, other=0).to(tl.int16)", "16 bits"),
        ("running_sums", "tl.load(cu_ptr + b),", "tl.load(cu_ptr + b).to(tl.int16),", "16 bits"),
        ("route", "return first, second", "return first.to(tl.int8), second.to(tl.int8)", "8 bits"),
        ("rope", "position_ptr + t)", "position_ptr + t).to(tl.uint8).to(tl.int32)", "8 bits"),
        ("outer_add", "tl.arange(0, BLOCK_M)", "tl.arange(0, BLOCK_M).to(tl.uint8).to(tl.int32)", "8 bits"),
        (
            "conv2d",
            "(n * H + row) * W + column",
            "((n * H + row).to(tl.int16) * W).to(tl.int32) + column",
            "16 bits",
        ),
        ("mxfp4_matmul", "start // 32 + tl.arange", "(start // 32).to(tl.int8) + tl.arange", "8 bits"),
        (
            "masked_add",
            "lanes < N - pid * BLOCK",
            "(pid * BLOCK + lanes).to(tl.float32) < tl.cast(N, tl.float32)",
            "is rounded: float32 holds",
        ),
    ],
)
def test_numbers_are_not_narrowed_below_what_a_puzzle_promises(puzzle, old, new, told):
    new = new.replace("INT16", f"({old.removeprefix('i = ')}).to(tl.int16)")
    report = edited(puzzle, (old, new))
    verdict = report.verdicts[0]
    assert verdict.kind == "true size" and told in verdict.message, str(report)
    assert verdict.site and new in verdict.site.source and report.cases[-1].drawn, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("rope", "i = tl.arange(0, HALF)", "i = tl.arange(0, HALF).to(tl.int16)"),  # within a block
        ("route", "(first < e).to(tl.int32)", "(first < e).to(tl.int8).to(tl.int32)"),  # 0 or 1
        (
            "masked_add",
            "lanes < N - pid * BLOCK",
            "(pid * BLOCK + lanes).to(tl.float64) < tl.cast(N, tl.float64)",
        ),
        ("masked_add", "lanes < N - pid * BLOCK", "pid * BLOCK + lanes - N < 0"),
    ],
)
def test_numbers_may_be_as_narrow_as_they_are_small(puzzle, old, new):
    report = edited(puzzle, (old, new))
    assert report.ok, str(report)


CODES = """
@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(x_ptr + n, mask=n < N, other=0).to(tl.int8)  # codes are from 0 to 15
    is_kept = ((n * 40503) ^ (n >> 3)).to(tl.int16) == (n * 40503 ^ n >> 3).to(tl.int16)  # a hash
    tl.store(z_ptr + n, tl.where(is_kept & (code > 7), code - 16, code), mask=n < N)
"""


def codes(shape, dtype, generator):
    return torch.randint(0, 16, shape, generator=generator).to(dtype)


def signed_codes(x: Int32[Tensor, " N"]) -> Int32[Tensor, " N"]:
    """z[n] is the code x[n], from 0 to 15, as a number with a sign"""
    return torch.where(x > 7, x - 16, x)


CODED = Puzzle(
    number="0",
    spec=signed_codes,
    grid=lambda s: (-(-s.N // s.BLOCK),),
    cases=(Case(N=32, BLOCK=16, fill={"x": codes}), Case(N=41, BLOCK=64, fill={"x": codes})),
    contract=Contract({"N": Size(300), "BLOCK": (16, 64)}, fills=lambda s: ({"x": codes},)),
)


def test_codes_and_hashes_may_be_narrow():
    report = examine(define(CODES, "<codes>"), CODED)
    assert report.ok, str(report)
    narrow = CODES.replace("tl.store(z_ptr + n,", "n = n.to(tl.int16)\n    tl.store(z_ptr + n,")
    report = examine(define(narrow, "<narrow>"), CODED)
    assert "does not fit 16 bits" in str(report), str(report)


@pytest.mark.parametrize("compared", ["N // (N - 33) < 500", "N % (N - 33) < 5000"])
def test_a_made_case_that_divides_by_0_is_left_out(compared):
    """N = 33 is made because the kernel has this number."""
    report = edited("masked_add", ("x + 10", f"x + tl.where({compared}, 10, 10)"))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "puzzle, old, new, name",
    [
        ("masked_add", "< N", "< N.to(tl.int64)", "N"),
        ("long_sum", "range(0, N, BLOCK_N)", "range(0, N.to(tl.int32), BLOCK_N)", "N"),
        ("relu_pack", "< N", "< N.to(tl.int64)", "N"),
        ("outer_add_blocks", "* N +", "* N.to(tl.int64) +", "N"),
    ],
)
def test_a_size_of_1_is_a_constant(puzzle, old, new, name):
    report = edited(puzzle, (old, new))
    assert f"{name} is 1 here, and a launch turns the integer 1 into a constant" in str(report), report


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("masked_add", "< N", "< tl.cast(N, tl.int64)"),
        ("masked_add", "tl.program_id(0)", "tl.program_id(0).to(tl.int64)"),
    ],
)
def test_methods_of_numbers_that_are_never_1(puzzle, old, new):
    report = edited(puzzle, (old, new))
    assert report.ok, report


@pytest.mark.parametrize(
    "load, kind", [("lock_ptr + j, volatile=True", "race"), ("lock_ptr + j", "deadlock")]
)
def test_a_loop_that_looks_at_a_lock_while_another_program_holds_it(load, kind):
    inner = LOCK.replace("pass", f"while tl.load({load}) == 1:\n            pass")
    report = edited("dw_by_lock", (LOCK, inner))
    assert report.verdicts[0].kind == kind, str(report)


def test_such_a_loop_is_correct_with_a_barrier():
    report = edited("dw_by_lock", (LOCK, IN_A_LOOP))
    assert report.ok, str(report)


def test_sides():
    sides, op = Sides(), Operation("arith.cmpf")
    x = torch.tensor([-1.0, 0.0, 3.0]).numpy()
    limit = torch.tensor([2.0]).numpy()
    sides.compared(op, x[:2] > limit, x[:2], limit)
    assert sides.seen[op] == OTHER
    sides.compared(op, x > limit, x, limit)
    assert sides.seen[op] == BOTH
    x[1] = 1.0
    sides.compared(op, x > limit, x, limit)
    assert sides.seen[op] == BOTH | BETWEEN
    undefined = Operation("arith.cmpf")
    sides.compared(undefined, x > limit, x, limit, (x > limit).astype("int16"))
    assert sides.seen[undefined] == OTHER | BETWEEN
    other = Operation("arith.remsi")
    sides.kept(other, x, x)
    assert sides.seen[other] == ONE | BETWEEN


def test_scaled_values_keep_their_signs_and_zeros():
    fill = made_cases._scaled(random, made_cases.closer_to_zero)
    generator = torch.Generator().manual_seed(0)
    values = fill((4000,), torch.float32, generator)
    plain = random((4000,), torch.float32, torch.Generator().manual_seed(0))
    assert fill.__name__ == "closer_to_zero"
    assert torch.equal(values.sign(), plain.sign())
    assert values[values != 0].abs().min() < 1e-36 and (values == plain).any()


def test_made_cases_do_not_import_the_compiler_of_torch():
    """torch._dynamo takes seconds, of a time that is limited: wrong kernels would pass in a fresh process."""
    code = """
import sys
from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD as puzzle
from puzzles_lib.checker import made_cases
from puzzles_lib.puzzle import Case
fits = [made_cases.fits(puzzle, Case(N=size, BLOCK=128)) for size in (1 << 20, 1 << 40)]
print(fits, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[True, False] False\n", done.stderr


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("kept_scores", 'float("-inf")', "-1e9"),
        ("linear_cross_entropy", 'float("-inf")', "-1e4"),
        ("merge_parts", "-1e30", "-1e6"),
        ("nucleus_token", 'other=float("-inf")', "other=-1e4"),
        ("paged_attention", 'is_key[None, :], scores, float("-inf")', "is_key[None, :], scores, -1e4"),
        ("route", 'float("-inf")', "-1e4"),
        ("sample_token", 'float("-inf")', "-1e4"),
        ("scalar_flash_attention", 'float("-inf")', "-1e9"),
        ("varlen_attention", 'float("-inf")', "-1e4"),
        ("window_attention", 'float("-inf")', "-1e9"),
        ("scalar_flash_attention", "-1e30", "-1e20"),
        ("flash_attention", "-1e30", "-1e20"),
        ("long_softmax", 'float("-inf")', "-1e25"),
        ("online_softmax", "-1e30", "-1e29"),
        ("window_attention", "-1e30", "-1e20"),
        ("varlen_attention", 'float("-inf")', "-1e20"),
        ("paged_attention", "-1e30", "-1e20"),
        ("merge_parts", "-1e30", "-1e20"),
        ("linear_cross_entropy", "-1e30", "-1e22"),
        ("sample_token", 'float("-inf")', "-1e20"),
        ("nucleus_token", 'other=float("-inf")', "other=-1e20"),
        ("route", 'float("-inf")', "-1e20"),
        ("kept_scores", 'float("-inf")', "-(2.0**80)"),
    ],
)
def test_a_finite_number_does_not_stand_for_infinity(puzzle, old, new):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    assert failed.drawn and re.search(
        r"values can be (below|above) the .* on line \d+, and here they are: use -?1e\+30",
        failed.verdict.diagnosis,
    ), str(report)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("any_above", "tl.sum((x > 1).to(tl.int32))", "tl.sum(x > 1, dtype=tl.int16)"),
        (
            "attention_dkv",
            "(g.to(tl.int64) * T + j)[:, None] * D + d",
            "g.to(tl.int64) * T * D + j[:, None] * D + d",
        ),
        ("attention_dq", "(head + i)[:, None] * D + d", "head * D + (i[:, None] * D) + d"),
        (
            "cells",
            "x // SIZE - (x % SIZE < 0)",
            "tl.floor(x.to(tl.float64) * (1 / tl.cast(SIZE, tl.float64)))",
        ),
        (
            "discounted_sum",
            "_, z = tl.associative_scan((half, x), 0, then)",
            "w = tl.exp2((n - 64).to(tl.float32))\n    z = tl.cumsum(x * w) / w",
        ),
        (
            "layer_norm_dw",
            "m.to(tl.int64)[:, None] * N",
            "(p * ROWS).to(tl.int64) * N + (m - p * ROWS)[:, None] * N",
        ),
        ("nucleus_token", "-tl.log(tl.rand(SEED, b * V + n))", "-tl.log(tl.rand(SEED, b * V + n) + 1e-20)"),
        (
            "quantize_codes",
            "codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)",
            "codes = tl.where(steps >= 0.5, 1.0, 0.0) if BITS == 1 else "
            "tl.minimum((steps + 12582912.0) - 12582912.0, TOP)",
        ),
        (
            "quantize_codes",
            "codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)",
            "codes = tl.minimum(tl.floor(steps + 0.5) if BITS == 8 else "
            "(steps + 12582912.0) - 12582912.0, TOP)",
        ),
        ("fused_linear", "peak > 0", "peak > 1e-35"),
        ("mxfp4_matmul", "(x, x_scale,", "(x, tl.where(x_scale > 250, 250, x_scale).to(tl.uint8),"),
        ("mxfp4_matmul", "(x, x_scale,", "(x, tl.where(x_scale < 3, 3, x_scale).to(tl.uint8),"),
        ("random_rounding", "tl.floor(x + u)", "tl.floor(x + u).to(tl.int64).to(tl.float32)"),
        ("sample_token", "-tl.log(u)", "-tl.log(u + 1e-10)"),
        ("strided_copy", "mask=mask)\n", "mask=mask)\n    x = x * 65537.0 - (x * 65537.0 - x)\n"),
        ("window_attention", "(head + i)[:, None] * D + d", "head * D + (i[:, None] * D) + d"),
    ],
)
def test_hard_cases_are_tried(puzzle, old, new):
    report = edited(puzzle, (old, new))
    (failed,) = (case for case in report.cases if not case.ok)
    assert failed.verdict.diagnosis in PUZZLES[puzzle].hard, str(report)


def test_a_spec_that_never_ends_for_a_made_case_ends_no_check():
    def endless(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
        while len(x) > 5000:
            pass
        return x + 10

    source = kernel_sources()["masked_add"].replace(
        "tl.program_id(0)", "tl.minimum(tl.program_id(0), 20_000)"
    )
    puzzle = dataclasses.replace(PUZZLES["masked_add"], spec=endless)
    began = time.thread_time()
    report = examine(define(source, "<masked_add, with a comparison>"), puzzle, seconds=0.5)
    assert report.ok and 0.5 < time.thread_time() - began, str(report)
