"""Kernels that only a puzzle's hard cases refuse: rounded reciprocals, ties, cancellation, small terms."""

import pytest

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import GROUPS_TOO_MANY, LONG_GROUP
from puzzles_lib.checker import examine, made_cases
from puzzles_lib.checker.report import CaseResult
from puzzles_lib.inputs import CREEPING, EVEN, FAINT, LIGHT, UNLIKE

PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}


@pytest.fixture(autouse=True)
def _time_on_a_busy_machine(monkeypatch):
    monkeypatch.setattr(made_cases, "SECONDS", 10 * made_cases.SECONDS)


def shown(puzzle: str, *edits: tuple[str, str]) -> str:
    """Return what the hard case shows that refuses a puzzle's solution with parts replaced."""
    failed = failing(puzzle, *edits)
    assert failed.verdict.diagnosis in PUZZLES[puzzle].hard, str(failed)
    return failed.verdict.diagnosis


def failing(puzzle: str, *edits: tuple[str, str]) -> CaseResult:
    """Return the only case that refuses a puzzle's solution with parts replaced."""
    source = kernel_sources()[puzzle]
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    report = examine(define(source, f"<{puzzle} edited>"), PUZZLES[puzzle])
    (failed,) = (case for case in report.cases if not case.ok)
    return failed


STEPS = "tl.ceil(tl.cdiv(K, BLOCK_K) / SPLITS).to(tl.int32)"
SPLIT_STEPS = "((tl.cdiv(K, BLOCK_K) + SPLITS - 1) * (1.0 / SPLITS)).to(tl.int32)"
OF_WORDS = "offs_w * F // GROUP", "(offs_w.to(tl.float32) * (F * (1.0 / GROUP))).to(tl.int32)"


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("fused_dw", *OF_WORDS),
        ("grouped_weights", "k // GROUP", "(k.to(tl.float32) * (1.0 / GROUP)).to(tl.int32)"),
        ("linear_backward", *OF_WORDS),
        ("once_per_group", "start // GROUP", "(start * (1.0 / GROUP)).to(tl.int32)"),
        ("once_per_group", "start // GROUP", "(start / GROUP).to(tl.int32)"),
        ("grouped_weights", "k // GROUP", "tl.floor(k / GROUP).to(tl.int32)"),
        ("tile_order", "place // rows", "(place / rows).to(tl.int32)"),
        ("unpack_dequantize", "offs_w * F // GROUP", "(offs_w * F / GROUP).to(tl.int32)"),
        (
            "packed_along_k",
            "tl.program_id(1) * BLOCK_N // GROUP",
            "(tl.program_id(1) * (BLOCK_N * (1.0 / GROUP))).to(tl.int32)",
        ),
        ("quantized_matmul", "k // GROUP  #", "(k.to(tl.float32) * (1.0 / GROUP)).to(tl.int32)  #"),
        ("split_k", *OF_WORDS),
        ("tile_order", "pid // (GROUP * tiles_n)", "(pid * (1.0 / (GROUP * tiles_n))).to(tl.int32)"),
        ("unpack_dequantize", *OF_WORDS),
    ],
)
def test_a_rounded_reciprocal_is_no_division(puzzle, old, new):
    assert "a product with a rounded" in shown(puzzle, (old, new))


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("attention_dkv", "(g + 1) * (H // H_KV)", "((g + 1) * (H / H_KV)).to(tl.int32)"),
        ("split_k", "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)", STEPS),
        ("two_programs", "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)", STEPS),
        ("varlen_attention", "h // (H // H_KV)", "(h / (H / H_KV)).to(tl.int32)"),
        ("busy_dw", "tl.cdiv(CIN, GROUP)", "((CIN + GROUP - 1) * (1.0 / GROUP)).to(tl.int32)"),
        ("split_k", "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)", SPLIT_STEPS),
        ("two_programs", "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)", SPLIT_STEPS),
    ],
)
def test_a_float_quotient_of_whole_numbers_is_no_division(puzzle, old, new):
    assert "a float quotient of whole numbers" in shown(puzzle, (old, new))


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("grouped_weights", "k // GROUP", "k * ((65536 + GROUP - 1) // GROUP) >> 16"),
        ("quantized_matmul", "k // GROUP  #", "tl.floor(k / GROUP + 1e-3).to(tl.int32)  #"),
        ("once_per_group", "start // GROUP", "start * ((65536 + GROUP - 1) // GROUP) >> 16"),
        ("unpack_dequantize", "offs_w * F // GROUP", "tl.floor(offs_w * F / GROUP + 1e-3).to(tl.int32)"),
        ("fused_dw", "offs_w * F // GROUP", "tl.floor(offs_w * F / GROUP + 1e-3).to(tl.int32)"),
        ("split_k", "offs_w * F // GROUP", "tl.floor(offs_w * F / GROUP + 1e-3).to(tl.int32)"),
        ("linear_backward", "offs_w * F // GROUP", "tl.floor(offs_w * F / GROUP + 1e-3).to(tl.int32)"),
    ],
)
def test_a_quotient_rounded_up_ends_a_long_group_too_early(puzzle, old, new):
    failed = failing(puzzle, (old, new))
    assert failed.label == str(PUZZLES[puzzle].hard[LONG_GROUP]) and failed.verdict.kind == "out of bounds"


@pytest.mark.parametrize(
    ("puzzle", "size"), [("fused_dw", "CIN"), ("linear_backward", "N"), ("split_k", "CIN")]
)
def test_a_float_quotient_counts_a_group_too_many(puzzle, size):
    failed = failing(puzzle, (f"tl.cdiv({size}, GROUP)", f"tl.ceil({size} / GROUP).to(tl.int32)"))
    assert failed.label == str(PUZZLES[puzzle].hard[GROUPS_TOO_MANY])


@pytest.mark.parametrize("puzzle", ["grouped_weights", "quantized_matmul", "unpack_dequantize", "fused_dw"])
def test_a_little_more_than_a_float_quotient_is_no_division(puzzle):
    old = "offs_w * F // GROUP" if "offs_w * F" in kernel_sources()[puzzle] else "k // GROUP"
    new = f"tl.floor({old.replace('//', '/')} + 1e-6).to(tl.int32)"
    assert "a product with a rounded" in shown(puzzle, (old, new))


def test_a_count_in_float16_ends_at_2048():
    assert "float16" in shown("route", ("tl.cumsum(count)", "tl.cumsum(count.to(tl.float16)).to(tl.int32)"))


def test_the_start_of_a_sequence_is_no_multiple_of_16():
    hints = "tl.multiple_of(tl.load(cu_ptr + b), 16), tl.multiple_of(tl.load(cu_ptr + b + 1), 16)"
    says = shown("running_sums", ("tl.load(cu_ptr + b), tl.load(cu_ptr + b + 1)", hints))
    assert "begin within the 4 neighboring lanes" in says


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("grouped_weights", "k // GROUP", "((k.to(tl.float64) + 0.5) / GROUP).to(tl.int32)"),
        ("tile_order", "place // rows", "((place + 0.5) / rows).to(tl.int32)"),
    ],
)
def test_a_quotient_that_is_rounded_once_or_away_from_whole_numbers_is_right(puzzle, old, new):
    source = kernel_sources()[puzzle]
    assert old in source
    report = examine(define(source.replace(old, new), f"<{puzzle} edited>"), PUZZLES[puzzle])
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "puzzle, store, value, bits",
    [
        ("batched_matmul", "tl.store(z_tile, ", "acc", 13),
        ("grouped_matmul", "tl.store(z_ptr + p[:, None] * N + n[None, :], ", "acc", 16),
        ("rope", "tl.store(z_ptr + first, ", "a * c[None, :] - b * s[None, :]", 16),
        ("strided_copy", "tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], ", "x", 16),
        ("unpack_dequantize", "tl.store(x_ptr + row * N + n, ", "x", 16),
    ],
)
def test_a_tie_is_rounded_to_even(puzzle, store, value, bits):
    bit_pattern = f"(({value}).to(tl.int32, bitcast=True) + (1 << {bits - 1}) >> {bits} << {bits})"
    away = f"tl.where(tl.abs({value}) < 6e4, {bit_pattern}.to(tl.float32, bitcast=True), {value})"
    assert shown(puzzle, (store + value, store + away)) == EVEN


@pytest.mark.parametrize(
    "puzzle, distance",
    [
        ("flash_attention", 40),
        ("paged_attention", 40),
        ("scalar_flash_attention", 40),
        ("varlen_attention", 40),
        ("window_attention", 40),
    ],
)
def test_keys_far_below_the_maximum_count(puzzle, distance):
    weight = "tl.exp(scores - new_max[:, None])"
    kept = f"tl.where(scores > new_max[:, None] - {distance}, {weight}, 0.0)"
    assert shown(puzzle, (weight, kept)) == LIGHT


@pytest.mark.parametrize(
    "puzzle, old, new, says",
    [
        ("merge_parts", 'lse > float("-inf")', "lse > top - 20", LIGHT),
        ("attended", "tl.exp(x - top)", "tl.where(x > top - 30, tl.exp(x - top), 0.0)", LIGHT),
        (
            "attention_dq",
            "j[None, :] <= i[:, None], p, 0.0",
            "(j[None, :] <= i[:, None]) & (p > 1e-12), p, 0.0",
            LIGHT,
        ),
        ("rope", "b * s[None, :]", "b * tl.where(tl.abs(s) < 1e-9, 0.0, s)[None, :]", FAINT),
        ("norm_and_turn", "b * sin", "b * tl.where(tl.abs(sin) < 1e-9, 0.0, sin)", FAINT),
        (
            "online_softmax",
            "tl.exp(row_max - new_max)",
            "tl.where(new_max > row_max + 1e-3, tl.exp(row_max - new_max), 1.0)",
            CREEPING,
        ),
        (
            "kept_scores",
            "tl.exp(top - base)",
            "tl.where(base > top + 1e-3, tl.exp(top - base), 1.0)",
            CREEPING,
        ),
        ("kept_scores", "tl.exp(x - base)", "tl.where(x > base - 10, tl.exp(x - base), 0.0)", "small exp"),
        ("far_rows", "x * x, axis=1)", "(x / 1e10) * (x / 1e10), axis=1) * 1e20", "as small as 1e-15"),
        ("fused_dw", "x = tl.reshape(x", "x = tl.reshape(tl.where(tl.abs(x) < 1e-20, 0.0, x)", "1e-21"),
        (
            "swiglu_down",
            "gate / (1 + tl.exp(-gate))",
            "tl.where(gate < -20, 0.0, gate / (1 + tl.exp(-gate)))",
            "but not 0",
        ),
        ("linear_recurrence", "steps * h", "tl.where(tl.abs(steps) < 1e-20, 0.0, steps) * h", "2^-120"),
        (
            "discounted_sum",
            "sum_a * factor_b",
            "sum_a * tl.where(factor_b < 1e-12, 0.0, factor_b)",
            "a sum halves",
        ),
    ],
)
def test_small_terms_count(puzzle, old, new, says):
    assert says in shown(puzzle, (old, new))


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        (
            "rms_norm",
            "tl.sum(h * h) / N",
            "(tl.sum(x * x) + 2 * tl.sum(x * r) + tl.sum(r * r)) / N",
        ),
        (
            "layer_norm_dw",
            "tl.sum(dy * ((x - mean[:, None]) * rstd[:, None]), axis=0)",
            "tl.sum(dy * x * rstd[:, None], axis=0) - tl.sum(dy * (mean * rstd)[:, None], axis=0)",
        ),
    ],
)
def test_sums_that_cancel_lose_their_digits(puzzle, old, new):
    assert "cancel" in shown(puzzle, (old, new))


@pytest.mark.parametrize("puzzle", ["nucleus_token", "random_rounding", "sample_token"])
def test_a_seed_can_be_0(puzzle):
    assert shown(puzzle, ("tl.rand(SEED,", "tl.rand(tl.maximum(SEED, 1),")) == "SEED can be 0"


def test_sums_of_one_sequence_are_no_difference_of_sums_of_all():
    says = shown(
        "running_sums",
        ("total = 0.0", "before, total = 0.0, 0.0"),
        ("range(start // BLOCK * BLOCK, end, BLOCK)", "range(0, end, BLOCK)"),
        ("mask=mine, other=0.0)", "mask=t < end, other=0.0)\n        before += tl.sum(x * (t < start))"),
        ("total + tl.cumsum(x)", "total + tl.cumsum(x) - before"),
    )
    assert "before" in says


@pytest.mark.parametrize(
    "puzzle, edits",
    [
        (
            "layer_norm",
            (
                (
                    "centered = ",
                    "apart = tl.where(mask, x - tl.sum(x * (n == 0), axis=1)[:, None], 0.0)\n    "
                    "by = tl.sum(apart, axis=1) / N\n    centered = ",
                ),
                ("(centered * centered, axis=1) / N", "(apart * apart, axis=1) / N - by * by"),
            ),
        ),
        (
            "long_layer_norm",
            (
                ("mean, squares = 0.0, 0.0", "mean, squares, first_mean, sums = 0.0, 0.0, 0.0, 0.0"),
                (
                    "centered = ",
                    "first_mean = tl.where(first == 0, own, first_mean)\n        "
                    "d = tl.where(n < N, x - first_mean, 0.0)\n        "
                    "sums += tl.sum(d)\n        centered = ",
                ),
                ("tl.sum(centered * centered) + apart * apart * first * share", "tl.sum(d * d)"),
                ("squares / N", "tl.maximum(squares - sums * (sums / N), 0.0) / N"),
                ("mean_ptr + m, mean", "mean_ptr + m, first_mean + sums / N"),
            ),
        ),
    ],
)  # fmt: skip
def test_no_number_of_a_row_is_near_its_mean_for_sure(puzzle, edits):
    assert "can be far from all others" in shown(puzzle, *edits)


def test_a_row_without_heat_has_no_noise():
    source = kernel_sources()["sample_token"]
    kernel = source[: source.index("    # a row with heat 0")] + (
        "    noise = -tl.log(-tl.log(tl.rand(SEED, b * V + n)))\n"
        "    tl.store(token_ptr + b, tl.argmax(logits + heat * noise, axis=0))\n"
    )
    report = examine(define(kernel, "<noise times heat>"), PUZZLES["sample_token"])
    assert "if heat is 0" in report.verdicts[0].diagnosis, str(report)


def test_a_hint_must_be_true_where_all_sizes_are_multiples_of_16():
    stride = "offs_n[None, :] * stride_xn"
    edit = stride, "tl.max_contiguous(tl.multiple_of(offs_n * stride_xn, BLOCK_N), BLOCK_N)[None, :]"
    assert "columns can be 3 apart" in shown("strided_copy", edit)


BY_RATIO = (
    ("x[None, :] + y[:, None]", "some[None, :] * ((x != 0)[None, :] + y[:, None] / some[None, :])"),
    ("    y = tl.load(", "    some = tl.where(x == 0, 1.0, x)\n    y = tl.load("),
)


@pytest.mark.parametrize(
    "puzzle, edits, says",
    [
        ("outer_add", BY_RATIO, UNLIKE),
        ("outer_add_blocks", BY_RATIO, UNLIKE),
        (
            "bias_relu",
            (
                (
                    "x + b[None, :]",
                    "tl.where(x == 0, b[None, :], x * (1.0 + b[None, :] / tl.where(x == 0, 1.0, x)))",
                ),
            ),
            UNLIKE,
        ),
        (
            "quantized_matmul",
            (
                (
                    'acc = tl.dot(s * (w - o), a, acc, input_precision="ieee")',
                    'acc = tl.dot(s * w, a, acc, input_precision="ieee")\n'
                    '        acc = tl.dot(-s * o, a, acc, input_precision="ieee")',
                ),
            ),
            "can overflow",
        ),
        (
            "swiglu_down",
            (("tl.exp(-gate)", "tl.exp(-tl.maximum(gate, -80.0))"),),
            "however large up is",
        ),
    ],
)
def test_no_step_overflows_that_a_task_does_not_have(puzzle, edits, says):
    assert says in shown(puzzle, *edits)


WHERE_KEPT = "tl.sum(tl.where(keep != 0, tl.exp(x - base), 0.0))"


@pytest.mark.parametrize(
    "puzzle, edits, says",
    [
        (
            "kept_scores",
            (("mask=keep != 0", "mask=n < N"), ("tl.sum(tl.exp(x - base))", WHERE_KEPT)),
            "isn't kept",
        ),
        (
            "random_rounding",
            (("tl.floor(x + u)", "tl.floor(x) + (u > 1 - (x - tl.floor(x))).to(tl.float32)"),),
            "a whole number",
        ),
        ("nucleus_token", (("before < P,", "before < P - 1e-4,"),), "just below P"),
        ("nucleus_token", (("p >= least,", "p > least * 0.99999,"),), "nearly the same"),
        (
            "varlen_attention",
            (("+ keys - queries,", "+ (keys - queries).to(tl.uint8),"),),
            "hundreds of keys",
        ),
    ],
)
def test_what_hardly_counts_counts(puzzle, edits, says):
    assert says in shown(puzzle, *edits)


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("layer_norm", "m.to(tl.int64)", "m.to(tl.uint32)"),
        ("layer_norm_dx", "m.to(tl.int64)", "m.to(tl.uint32)"),
        ("paged_attention", "+ number).to(tl.int64)", "+ number).to(tl.uint32)"),
    ],
)
def test_offsets_pass_what_32_bits_hold(puzzle, old, new):
    assert "2^32" in shown(puzzle, (old, new))


def test_values_that_are_not_the_reason_are_not_named():
    failed = failing("layer_norm", ("centered, axis=1) / N", "centered, axis=1) / (N - N // 1024)"))
    assert failed.drawn and "far from all others" not in str(failed.verdict)
