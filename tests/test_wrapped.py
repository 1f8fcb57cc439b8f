"""Kernels within `triton.autotune` and `triton.heuristics`: every configuration counts."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float16, Float32
from torch import Tensor

from puzzles_lib import LONG_SUM, MASKED_ADD, QUANTIZE_PACK, SPLIT_SUM, check, run, stages, trace
from puzzles_lib.checker import examine
from puzzles_lib.checker.attempts import Budget
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.wrapped import unwrap


@triton.jit
def right(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def right_for_32(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=(offs < N) & (offs % BLOCK < 32))


@triton.jit
def adds(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.atomic_add(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def keeps_what_is_there(x_ptr, z_ptr, N, BLOCK: tl.constexpr, FIRST: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    if FIRST:
        tl.store(z_ptr + offs, x + 10, mask=offs < N)
    else:
        tl.atomic_add(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def asserts(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 64)
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def even(x_ptr, z_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)
    else:
        tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def endless_at_64(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = 0
    while (i < 1) & (BLOCK == 64):
        i += 0
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def right_for_the_listed(x_ptr, z_ptr, N, BLOCK: tl.constexpr, N_LISTED: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=offs < tl.minimum(N, N_LISTED))


def tuned(kernel, *blocks, **options):
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in blocks]
    return triton.autotune(configs, key=["N"], **options)(kernel)


def is_even(args):
    return args["N"] % args["BLOCK"] == 0


def test_every_configuration_is_checked_and_the_grid_is_its_own():
    report = check(tuned(right, (16, 4), (128, 8), (1024, 4)), MASKED_ADD)
    assert report.ok
    assert "3 configurations, each is correct alone and after the others" in str(report)


def test_the_one_that_fails_is_named():
    report = check(tuned(right_for_32, (16, 4), (32, 4), (128, 8)), MASKED_ADD)
    assert not report.ok
    assert "configuration 3 of 3: BLOCK=128, num_warps=8" in str(report)


@pytest.mark.parametrize("wrapped", [triton.autotune, triton.heuristics])
def test_one_that_fails_on_a_drawn_case_alone(wrapped):
    values = {"BLOCK": 16, "N_LISTED": max(case.N for case in MASKED_ADD.cases)}
    if wrapped is triton.autotune:
        kernel = triton.autotune([triton.Config(values)], key=[])(right_for_the_listed)
    else:
        kernel = triton.heuristics({n: lambda _, v=v: v for n, v in values.items()})(right_for_the_listed)
    report = examine(kernel, MASKED_ADD)
    assert not report.ok and report.cases[-1].drawn and "never written" in str(report)


def test_one_that_adds_to_what_others_left():
    report = check(tuned(adds, (16, 4), (32, 4)), MASKED_ADD)
    assert not report.ok
    assert "autotune runs a kernel many times on the same results, so it must not add to them" in str(report)


def test_reset_to_zero_clears_while_tuning_only():
    """Triton 3.7.1's `Autotuner.run` calls its pre_hook where it measures; a later launch finds the sums."""
    report = check(tuned(adds, (16, 4), (32, 4), reset_to_zero=["z_ptr"]), MASKED_ADD)
    assert not report.ok and "reset_to_zero clears them only while tuning" in str(report)


def test_one_configuration_of_several_that_adds():
    configs = [triton.Config({"FIRST": first}) for first in (True, False)]
    report = check(triton.autotune(configs, key=[])(keeps_what_is_there), MASKED_ADD)
    assert not report.ok and "configuration 2 of 2: FIRST=False" in str(report)


def test_what_others_leave_may_hide_behind_a_value_that_nobody_poisons_with(monkeypatch):
    """A kernel that is right on undefined results, and wrong on defined ones, is wrong after the others."""

    @triton.jit
    def adds_unless_undefined(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < N) + 10
        old = tl.load(z_ptr + offs, mask=offs < N)
        tl.store(z_ptr + offs, tl.where(old == old, old + x, x), mask=offs < N)

    report = examine(tuned(adds_unless_undefined, (16, 4), (32, 4)), MASKED_ADD)
    assert not report.ok
    restored = examine(tuned(adds_unless_undefined, (16, 4), (32, 4), restore_value=["z_ptr"]), MASKED_ADD)
    assert "correct alone" not in str(restored)


def test_a_configuration_that_asserts_is_left_out():
    report = check(tuned(asserts, (16, 4), (128, 4)), MASKED_ADD)
    assert report.ok and "1 of 2 configurations are checked" in str(report)
    report = check(tuned(asserts, (256, 4), (128, 4)), MASKED_ADD)
    assert not report.ok and "tl.static_assert fails" in str(report)


def test_no_more_than_fit_the_time_limit(monkeypatch):
    monkeypatch.setattr(Budget, "used", lambda budget: 0.6)  # by the first one
    report = check(tuned(right, *[(2**i, 4) for i in range(3, 11)]), MASKED_ADD)
    assert report.ok and "1 of 8 configurations are checked: there is no time for the others" in str(report)


def test_a_configuration_that_never_ends():
    report = check(tuned(endless_at_64, (32, 4), (64, 4)), MASKED_ADD)
    assert "time limit" in str(report) and "configuration 2 of 2: BLOCK=64" in str(report)


def test_pruned_configurations_are_not_tried():
    def prune(configs, named_args, **kwargs):
        return [c for c in configs if c.kwargs["BLOCK"] <= 32]

    kernel = tuned(right_for_32, (128, 4), (32, 4), prune_configs_by={"early_config_prune": prune})
    assert check(kernel, MASKED_ADD).ok
    assert "configuration 2 of 2: BLOCK=32" in str(trace(kernel, MASKED_ADD))


@pytest.mark.parametrize(
    "keeps, told",
    [
        (lambda configs, N: [c for c in configs if c.kwargs["BLOCK"] <= N], "must keep at least one"),
        (lambda configs, N: None, "must return a list of configurations, but returns None"),
        (lambda configs, N: [], "must keep at least one configuration"),
    ],
)
def test_a_pruning_that_keeps_nothing_fails(keeps, told):
    """Triton 3.7.1's `Autotuner.prune_configs` raises an AutotunerError."""

    def prune(configs, arguments, **_):
        return keeps(configs, arguments["N"])

    kernel = tuned(right, (16, 4), (32, 4), prune_configs_by={"early_config_prune": prune})
    report = check(kernel, MASKED_ADD)
    assert not report.ok and told in str(report)
    assert not any(case.ok for case in report.listed if MASKED_ADD.cases[case.number].N < 16)
    one = tuned(right, (16, 4), prune_configs_by={"early_config_prune": prune})
    assert check(one, MASKED_ADD).ok  # Triton doesn't prune a single configuration


# ---- hooks of autotune itself


@triton.jit
def adds_rows(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (m[:, None] < M) & (n[None, :] < N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :], mask=mask, other=0.0)
    tl.atomic_add(z_ptr + m, tl.sum(x, axis=1), mask=m < M)


@triton.jit
def stores_whole_rows(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ADD: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        total += tl.sum(tl.load(x_ptr + m[:, None] * N + n[None, :], mask=mask, other=0.0), axis=1)
    mine = (m < M) & (tl.program_id(1) == 0)
    if ADD:
        total += tl.load(z_ptr + m, mask=mine, other=0.0)
    tl.store(z_ptr + m, total, mask=mine)


def summed(**options):
    return triton.autotune([triton.Config({"BLOCK_N": n}) for n in (32, 128)], key=["N"], **options)(
        adds_rows
    )


def clears(args, reset_only=False):
    args["z_ptr"].zero_()


def clears_after(args, exception):
    assert exception is None
    args["z_ptr"].zero_()


@pytest.mark.parametrize(
    "options",
    [
        {"pre_hook": clears},
        {"post_hook": clears_after},
        {"pre_hook": lambda args, reset_only=False: args["z_ptr"].zero_() if reset_only else None},
        {"pre_hook": clears, "post_hook": lambda args, exception: args["z_ptr"].add_(1)},
        {"reset_to_zero": ["z_ptr"]},
        {"restore_value": ["z_ptr"]},
    ],
)
def test_hooks_of_autotune_prepare_its_timed_runs(options):
    assert check(summed(**options), SPLIT_SUM).ok


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, "3 times what it should be"),
        (
            {"pre_hook": lambda args, reset_only=False: None if reset_only else args["z_ptr"].zero_()},
            "correct alone, but wrong on the results that other configurations leave",
        ),
        (
            {"pre_hook": lambda args, reset_only=False: None, "reset_to_zero": ["z_ptr"]},
            "autotune's pre_hook replaces reset_to_zero",
        ),
        ({"post_hook": lambda args, exception: None}, "other configurations leave"),
        ({"post_hook": lambda args, exception: args["x_ptr"].zero_()}, "hooks change the input x_ptr"),
        ({"pre_hook": lambda args: None}, "autotune's pre_hook raises TypeError"),
        ({"pre_hook": lambda args, reset_only=False: args["y"]}, "autotune's pre_hook raises KeyError: 'y'"),
        ({"reset_to_zero": "z_ptr"}, 'reset_to_zero must be a list, such as ["z_ptr"], but is the text'),
        ({"restore_value": "z_ptr"}, 'restore_value must be a list, such as ["z_ptr"]'),
    ],
)
def test_hooks_of_autotune_that_leave_something(options, told):
    report = check(summed(**options), SPLIT_SUM)
    assert not report.ok and told in str(report)


def test_a_key_that_is_text_is_no_list_of_names():
    kernel = triton.autotune([triton.Config({"BLOCK_N": 32})], key="BLOCK_M")(adds_rows)
    assert 'key must be a list, such as ["BLOCK_M"]' in str(check(kernel, SPLIT_SUM))
    assert check(triton.autotune([triton.Config({"BLOCK_N": 32})], key="N")(adds_rows), SPLIT_SUM).ok


def test_any_configuration_may_be_the_fastest():
    """The first adds to what the second has stored."""
    configs = [triton.Config({"BLOCK_N": 32, "ADD": add}) for add in (True, False)]
    report = check(triton.autotune(configs, key=["N"])(stores_whole_rows), SPLIT_SUM)
    assert not report.ok and "configuration 1 of 2" in str(report)
    alone = check(triton.autotune(configs[1:], key=["N"])(stores_whole_rows), SPLIT_SUM)
    assert alone.ok


# ---- configurations that cannot be launched


def product(a: Float16[Tensor, "M K"], b: Float16[Tensor, "K N"]) -> Float16[Tensor, "M N"]:
    return a @ b


PRODUCT = Puzzle(
    number="0",
    spec=product,
    grid=lambda s: (triton.cdiv(s.M, s.BM), triton.cdiv(s.N, s.BN)),
    cases=(Case(M=32, N=32, K=32, BM=32, BN=32, BK=32), Case(M=50, N=40, K=70, BM=32, BN=32, BK=32)),
    outputs=("z",),
)


@triton.jit
def product_kernel(
    a_ptr, b_ptr, z_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EXTRA: tl.constexpr = 0,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    z = acc.to(tl.float16) + EXTRA
    tl.store(z_ptr + m[:, None] * N + n[None, :], z, mask=(m < M)[:, None] & (n < N)[None, :])


SMALL, LARGE = {"BM": 32, "BN": 32, "BK": 32}, {"BM": 128, "BN": 256, "BK": 128}


def tuned_product(*configs):
    return triton.autotune([triton.Config(each, num_stages=3) for each in configs], key=["M"])(product_kernel)


@pytest.mark.parametrize("configs", [(SMALL, LARGE), (LARGE, SMALL)], ids=["last", "first"])
def test_a_configuration_that_no_gpu_launches_is_skipped_as_autotune_does_it(configs):
    """Triton's `Autotuner._bench` takes OutOfResources for an infinite time."""
    report = check(tuned_product(*configs), PRODUCT)
    assert report.ok, report
    number = configs.index(LARGE) + 1
    assert f"in case 0, autotune will skip configuration {number} of 2: BM=128" in str(report)
    assert "a program needs 288 KB of shared memory" in str(report)
    assert all(case.programs for case in report.listed)


def test_where_it_can_be_launched_it_must_be_correct():
    report = check(tuned_product(SMALL, {**LARGE, "EXTRA": 1}), PRODUCT)
    assert not report.ok and "configuration 2 of 2: BM=128" in str(report)
    assert [case.ok for case in report.listed] == [True, False]


def test_if_no_configuration_can_be_launched_the_kernel_fails():
    report = check(tuned_product(LARGE, {**LARGE, "BM": 256}), PRODUCT)
    assert not report.ok and report.verdicts[0].kind == "launch"
    assert "none of autotune's 2 configurations can be launched; in the first, a launch would fail" in str(
        report
    )


def test_a_single_configuration_is_not_skipped():
    report = check(tuned_product(LARGE), PRODUCT)
    assert not report.ok and report.verdicts[0].kind == "launch"


# ---- hooks before each launch


def hooked(kernel, *hooks):
    configs = [triton.Config({"BLOCK": 16 << i}, pre_hook=hook) for i, hook in enumerate(hooks)]
    return triton.autotune(configs, key=["N"])(kernel)


def clear(args):
    assert args["BLOCK"] in (16, 32) and args["num_warps"] == 4
    args["z_ptr"].zero_()


def test_a_pre_hook_prepares_each_launch():
    """`Autotuner.run` calls it before the launch that counts as well, so the kernel may add to its result."""
    assert check(hooked(adds, clear, clear), MASKED_ADD).ok
    assert check(hooked(right, lambda args: None), MASKED_ADD).ok
    report = check(hooked(adds, clear, lambda args: None), MASKED_ADD)
    assert not report.ok and "configuration 2 of 2" in str(report)


def test_a_pre_hook_that_clears_half_of_a_result():
    def halves(args):
        args["z_ptr"][::2].zero_()

    report = check(hooked(adds, halves), MASKED_ADD)
    assert not report.ok and "before anything is stored" in str(report)


def test_a_pre_hook_that_changes_an_input():
    report = check(hooked(right, lambda args: args["x_ptr"].add_(1)), MASKED_ADD)
    assert "the pre_hook of a configuration changes the input x" in str(report)


def test_a_pre_hook_that_does_the_kernels_work():
    report = check(hooked(right, lambda args: args["z_ptr"].copy_(args["x_ptr"] + 10)), MASKED_ADD)
    assert "the pre_hook of a configuration computes z" in str(report)


@pytest.mark.parametrize("warps, told", [(3, "a power of 2"), ("4", "a power of 2"), (64, "2,048")])
def test_a_number_of_warps_that_no_gpu_takes(warps, told):
    tuned = triton.autotune([triton.Config({"BLOCK": 64}, num_warps=warps)], key=["N"])(right)
    report = check(tuned, MASKED_ADD)
    assert not report.ok and told in str(report)


def test_a_pre_hook_sets_the_block_of_a_descriptor():
    @triton.jit
    def by_tiles(x_desc, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
        offs_m, offs_n = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x_desc.load([m, n]) * 2, mask=mask)

    def twice(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
        return 2 * x

    def set_block(args):
        args["x_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_N"]]

    puzzle = Puzzle(
        number="0",
        spec=twice,
        grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
        cases=(Case(M=20, N=24, BLOCK_M=16, BLOCK_N=16),),
        descriptors={"x": lambda s: (16, 16)},
    )
    configs = [
        triton.Config({"BLOCK_M": 8, "BLOCK_N": 32}, pre_hook=hook) for hook in (set_block, lambda args: None)
    ]
    assert check(triton.autotune(configs[:1], key=[])(by_tiles), puzzle).ok
    assert not check(triton.autotune(configs[1:], key=[])(by_tiles), puzzle).ok


def test_a_grid_that_needs_what_only_a_configuration_gives():
    parts = {"number": "0", "spec": scaled, "grid": lambda s: (triton.cdiv(s.N, s.BLOCK),)}
    with pytest.raises(
        ValueError, match="no 'BLOCK'; it has N, scale; give it any value: that of an autotune"
    ):
        Puzzle(**parts, cases=(Case(N=100, scale=1.0),))
    puzzle = Puzzle(**parts, cases=(Case(N=100, scale=1.0, BLOCK=1),))
    kernel = triton.autotune([triton.Config({"BLOCK": 64})], key=[])(times)
    assert check(kernel, puzzle).cases[0].programs == 2


@triton.jit
def times(x_ptr, z_ptr, N, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < N) * scale, mask=i < N)


# ---- heuristics


@triton.jit
def optional(
    x_ptr, bias_ptr, z_ptr, N, scale, HAS_BIAS: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    if HAS_BIAS:
        x += tl.load(bias_ptr + i, mask=i < N, other=0.0)
    if SCALED:
        x *= scale
    tl.store(z_ptr + i, x, mask=i < N)


def scaled(x: Float32[Tensor, " N"], scale: float) -> Float32[Tensor, " N"]:
    return x * scale


SCALED = Puzzle(
    number="0",
    spec=scaled,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=tuple(Case(N=100, BLOCK=64, bias_ptr=None, scale=scale) for scale in (1.0, 0.125)),
)


@pytest.mark.parametrize(
    "asked, right", [(lambda args: args["scale"] != 1.0, True), (lambda args: False, False)]
)
def test_heuristics_may_ask_for_what_is_not_given_and_for_floats(asked, right):
    kernel = triton.heuristics({"HAS_BIAS": lambda args: args["bias_ptr"] is not None, "SCALED": asked})(
        optional
    )
    report = check(kernel, SCALED)
    assert [case.ok for case in report.cases] == [True, right], report
    assert "bias_ptr=None  scale=0.125" in str(report)


HEURISTICS = {"BLOCK": lambda args: triton.next_power_of_2(args["N"]), "EVEN": is_even}


@pytest.mark.parametrize(
    "wrap",
    [
        triton.heuristics(HEURISTICS),
        lambda kernel: tuned(triton.heuristics({"EVEN": is_even})(kernel), (32, 4), (64, 8)),
        lambda kernel: triton.heuristics({"EVEN": lambda args: False})(tuned(kernel, (32, 4), (64, 8))),
        lambda kernel: triton.heuristics(
            {"BLOCK": lambda args: triton.next_power_of_2(args["x_ptr"].numel())}
        )(triton.heuristics({"EVEN": is_even})(kernel)),
    ],
    ids=["heuristics", "autotune of heuristics", "heuristics of autotune", "heuristics of heuristics"],
)
def test_heuristics(wrap):
    report = check(wrap(even), MASKED_ADD)
    assert report.ok, report
    assert trace(wrap(even), MASKED_ADD).clean
    assert stages(wrap(even), MASKED_ADD).ok


def test_a_wrong_heuristic():
    report = check(triton.heuristics({"EVEN": lambda args: True})(even), MASKED_ADD)
    assert "out-of-bounds" in str(report) and "with EVEN=True" in str(report)


# ---- refusals


@pytest.mark.parametrize(
    "kernel, puzzle, told",
    [
        (tuned(tuned(right, (32, 4)), (64, 4)), MASKED_ADD, "the kernel has two triton.autotune"),
        (
            triton.autotune([triton.Config({"BLOK": 32})], key=[])(right),
            MASKED_ADD,
            "a configuration sets BLOK, which is not a parameter of the kernel",
        ),
        (
            triton.heuristics({"N": lambda args: 5})(right),
            MASKED_ADD,
            "a heuristic sets N, but the puzzle sets it",
        ),
        (
            triton.heuristics({"BLOCK": lambda args: args["NN"]})(right),
            MASKED_ADD,
            "the heuristic for BLOCK raises KeyError: 'NN'",
        ),
        (
            triton.heuristics({"BLOCK": lambda args: torch.ones(1)})(right),
            MASKED_ADD,
            "a heuristic sets BLOCK to a Tensor, but only numbers are allowed",
        ),
        (
            triton.autotune(
                [triton.Config({"BLOCK": 32}, pre_hook=lambda args: args["y_ptr"].zero_())], key=[]
            )(right),
            MASKED_ADD,
            "the pre_hook of a configuration raises KeyError: 'y_ptr'",
        ),
        (tuned(right, (32, 4), reset_to_zero=["y_ptr"]), MASKED_ADD, "autotune's reset_to_zero names y_ptr"),
        (tuned(right, (0, 4)), MASKED_ADD, "with BLOCK=0, num_warps=4: integer division or modulo by zero"),
        (
            triton.heuristics({"BLOCK": is_even})(tuned(right, (32, 4))),
            MASKED_ADD,
            "the heuristic for BLOCK raises KeyError",
        ),
    ],
)
def test_what_no_launch_could_do_is_refused_in_a_line(kernel, puzzle, told):
    for answer in (check(kernel, puzzle), trace(kernel, puzzle), stages(kernel, puzzle)):
        assert told in repr(answer)
    with pytest.raises(RuntimeError, match=told.replace("(", ".")):
        run(kernel, puzzle, x=torch.ones(5), **({} if "BLOCK" in unwrap(kernel).gives else {"BLOCK": 8}))


def test_a_heuristic_that_never_ends(monkeypatch):
    def forever(args):
        while True:
            pass

    monkeypatch.setattr("puzzles_lib.wrapped.CALL_SECONDS", 0.1)
    report = check(triton.heuristics({"BLOCK": forever})(right), MASKED_ADD)
    assert "the heuristic for BLOCK takes more than 0.1 s" in str(report)


# ---- trace, run and stages


def test_they_take_the_first_configuration_and_say_so():
    kernel = tuned(right, (8, 2), (64, 8))
    traced = trace(kernel, MASKED_ADD, case=Case(N=20, BLOCK=32))
    assert traced.grid == (3,) and "In configuration 1 of 2: BLOCK=8, num_warps=2" in str(traced)
    made = stages(kernel, MASKED_ADD, case=Case(N=20, BLOCK=32))
    assert made.title == "right for sm_90, N=20  BLOCK=8  num_warps=2  num_stages=3"
    assert stages(kernel, MASKED_ADD, num_warps=1).built.metadata["num_warps"] == 1
    assert run(kernel, MASKED_ADD, x=torch.ones(5)).tolist() == [11] * 5


def test_the_sizes_of_a_puzzle_are_what_its_spec_names():
    assert LONG_SUM.sizes == {"M", "N"}
    assert QUANTIZE_PACK.sizes == {"M", "N", "BITS", "GROUP"}


def test_what_is_no_kernel_is_none():
    assert unwrap(dataclasses) is None and unwrap(print) is None
