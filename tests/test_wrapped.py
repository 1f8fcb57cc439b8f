"""Kernels within `triton.autotune` and `triton.heuristics`: every configuration counts."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import LONG_SUM, MASKED_ADD, QUANTIZE_PACK, check, run, stages, trace
from puzzles_lib.checker import examine
from puzzles_lib.checker.attempts import Budget
from puzzles_lib.puzzle import Case
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
    report = check(tuned(endless_at_64, (32, 4), (64, 4)), MASKED_ADD, seconds=0.3)
    assert "time limit" in str(report) and "configuration 2 of 2: BLOCK=64" in str(report)


def test_pruned_configurations_are_not_tried():
    def prune(configs, named_args, **kwargs):
        return [c for c in configs if c.kwargs["BLOCK"] <= 32]

    kernel = tuned(right_for_32, (128, 4), (32, 4), prune_configs_by={"early_config_prune": prune})
    assert check(kernel, MASKED_ADD).ok
    assert "configuration 2 of 2: BLOCK=32" in str(trace(kernel, MASKED_ADD))


# ---- heuristics


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
            triton.autotune([triton.Config({"BLOCK": 32}, pre_hook=print)], key=[])(right),
            MASKED_ADD,
            "a configuration has a pre_hook",
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
        run(kernel, puzzle, x=torch.ones(5), BLOCK=8)


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
    assert run(kernel, MASKED_ADD, x=torch.ones(5), BLOCK=8).tolist() == [11] * 5


def test_the_sizes_of_a_puzzle_are_what_its_spec_names():
    assert LONG_SUM.sizes == {"M", "N"}
    assert QUANTIZE_PACK.sizes == {"M", "N", "BITS", "GROUP"}


def test_what_is_no_kernel_is_none():
    assert unwrap(dataclasses) is None and unwrap(print) is None
