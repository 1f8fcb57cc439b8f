"""What public kernels showed: correct forms of them that `audit` doubted, and faults that it lost."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit

QUICK = Guard(sizes=False)


@triton.jit
def float8_kernel(X, Y, S, LEAST: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + o)
    s = tl.maximum(tl.max(tl.abs(x), 0) / 448.0, LEAST)
    tl.store(Y + o, (x / s).to(tl.float8e4nv))
    tl.store(S + tl.program_id(0), s)


def to_float8(x, least):
    y, s = torch.empty_like(x, dtype=torch.float8_e4m3fn), torch.empty(x.numel() // 128)
    float8_kernel[(x.numel() // 128,)](x, y, s, LEAST=least, BLOCK=128)
    return y, s


def float8_reference(x, least):
    groups = x.reshape(-1, 128)
    s = (groups.abs().amax(1) / 448.0).clamp(min=1e-12)
    return (groups / s[:, None]).reshape(x.shape).to(torch.float8_e4m3fn), s


@pytest.mark.parametrize("least, found", [(1e-12, False), (0.0, True)])
def test_float8_is_judged_with_hard_inputs(least, found):
    x = torch.randn(4, 128)
    guard = Guard(sizes=False, contiguous=True)
    report = audit(to_float8, x, least, like=float8_reference, hard=True, guard=guard)
    assert bool(report.findings) is found, str(report)
    if found:
        assert report.findings[0].on == "x: all zeros"


@triton.jit
def halve_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i, mask=i < n) / 2, mask=i < n)


@pytest.mark.parametrize("restored", [["X"], ["Z"], []])
def test_restoring_a_tensor_restores_it_under_its_other_name(restored):
    configs = [triton.Config({"BLOCK": block}) for block in (32, 64)]
    tuned = triton.autotune(configs, key=["n"], restore_value=restored)(halve_kernel)

    def halve(x):
        tuned[lambda given: (triton.cdiv(x.numel(), given["BLOCK"]),)](x, x, x.numel())
        return x

    report = audit(halve, torch.randn(100), like=lambda x: x / 2, guard=QUICK)
    assert report.ok is bool(restored), str(report)
    if not restored:
        diagnosis = report.findings[0].verdict.diagnosis
        assert "restore_value" in diagnosis and "swapped" not in diagnosis


@triton.jit
def copy_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0).to(tl.float16).to(tl.float32)
    tl.store(Z + i, (x - x * 0.5) * 2, mask=i < n)  # NaN where x is infinite


def test_what_float16_cannot_hold_is_not_judged_with_hard_inputs():
    def copied(x):
        z = torch.empty_like(x, dtype=torch.float16)
        copy_kernel[(triton.cdiv(x.numel(), 64),)](x, z, x.numel(), BLOCK=64)
        return z

    guard = Guard(sizes=False, contiguous=True)
    report = audit(copied, torch.randn(100), like=lambda x: x, hard=True, guard=guard)
    assert not report.findings, str(report)


@triton.jit
def largest_ratio_kernel(X, Y, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n + i
    x = tl.load(X + row, mask=i < n, other=0.0)
    y = tl.load(Y + row, mask=i < n, other=1.0)
    tl.store(Z + tl.program_id(0), tl.argmax(tl.where(i < n, x / y, float("-inf")), 0))


def test_larger_tensors_have_no_ties_in_their_ratios():
    def largest(x, y):
        z = torch.empty(len(x), dtype=torch.int64)
        n = x.shape[1]
        largest_ratio_kernel[(len(x),)](x, y, z, n, BLOCK=triton.next_power_of_2(n))
        return z

    generator = torch.Generator().manual_seed(0)
    given = [1 + torch.rand(200, 50, generator=generator) for _ in range(2)]
    guard = Guard(sizes=False, contiguous=True)
    report = audit(largest, *given, like=lambda x, y: (x / y).argmax(1), hard=True, guard=guard)
    assert not report.findings, str(report)


@triton.jit
def ragged_kernel(X, Offsets, Z, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    b, m, c = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    start = tl.load(Offsets + b)
    if m < tl.load(Offsets + b + 1) - start:
        row = (start + m).to(tl.int64) if WIDE else start + m
        tl.store(Z + row * stride + c, tl.load(X + row * stride + c) * 2)


@pytest.mark.parametrize("wide", [False, True])
def test_offsets_of_ragged_rows_reach_the_last_rows(wide):
    def ragged(x, offsets):
        z = torch.empty_like(x)
        ragged_kernel[(len(offsets) - 1, 20)](x, offsets, z, x.stride(0), WIDE=wide, BLOCK=x.shape[1])
        return z

    offsets = torch.tensor([0, 20, 35, 50], dtype=torch.int32)
    report = audit(ragged, torch.randn(50, 64), offsets, like=lambda x, _: 2 * x)
    assert report.ok is wide, str(report)
    if not wide:
        assert "does not fit int32" in report.findings[0].verdict.message
        assert report.findings[0].on.endswith("and numbers of the last rows in offsets")
