"""NaN that a kernel loses, and NaN that it makes of an infinity that the reference does not use."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit
from puzzles_lib.auditor import hard

GUARD = Guard(sizes=False, races=False)
X = torch.randn(8, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _only_values(monkeypatch):
    monkeypatch.setattr(hard, "LAYOUTS", {})
    monkeypatch.setattr(hard, "_other_sizes", lambda *_: ())


@triton.jit
def _least(a, b):
    return tl.minimum(a, b)


@triton.jit
def _least_or_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def running_kernel(X, Z, N, BLOCK: tl.constexpr, HOW: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * N
    x = tl.load(X + row + c, mask=c < N, other=float("inf"))
    if HOW == "drops":
        z = tl.associative_scan(x, 0, _least)
    else:
        z = tl.associative_scan(x, 0, _least_or_nan)
    if HOW == "wrong":
        z = tl.minimum(z, float("inf"))  # neither NaN nor the smallest number so far
    tl.store(Z + row + c, z, mask=c < N)


def running(how):
    def call(x):
        z = torch.empty_like(x)
        running_kernel[(x.shape[0],)](x, z, x.shape[1], triton.next_power_of_2(x.shape[1]), how)
        return z

    return audit(call, X, like=lambda x: torch.cummin(x, 1).values, hard=True, guard=GUARD)


def test_a_kernel_that_keeps_nan_has_no_remark():
    report = running("keeps")
    assert report.ok and "x: one NaN" in report.tried and not report.notes


def test_a_kernel_that_ignores_nan_gets_a_remark():
    report = running("drops")
    assert report.ok
    (note,) = report.notes
    assert "with x: one NaN: NaN is lost in" in note and "propagate_nan=tl.PropagateNan.ALL" in note


def test_an_infinity_made_of_nan_is_wrong():
    report = running("wrong")
    (finding,) = report.findings
    assert (finding.verdict.kind, finding.on) == ("values", "x: one NaN")
    assert (
        "NaN is lost in" in finding.verdict.message and "is inf, but should be nan" in finding.verdict.message
    )
    assert "without the NaN" in finding.verdict.diagnosis


@triton.jit
def scales_kernel(X, Z, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(X + row * N + c, mask=c < N, other=float("nan"))
    tl.store(Z + row, tl.max(x, 0) - tl.min(x, 0))


def test_a_range_without_nan_is_no_finding():
    def scales(x):
        z = torch.empty(x.shape[0])
        scales_kernel[(x.shape[0],)](x, z, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return z

    report = audit(scales, X + 10, like=lambda x: x.amax(1) - x.amin(1), hard=True, guard=GUARD)
    assert report.ok and any("NaN is lost in 1 of 8" in note for note in report.notes)


@triton.jit
def rectified_sum_kernel(X, Z, N, BLOCK: tl.constexpr):
    """A sum with a NaN is NaN, and the maximum of that and 0 is 0."""
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    total = tl.sum(tl.load(X + row * N + c, mask=c < N, other=0.0), 0)
    tl.store(Z + row, 1 + tl.maximum(total, 0.0) + tl.maximum(-total, 0.0))


def test_a_relu_that_drops_nan_is_no_finding():
    def sums(x):
        z = torch.empty(x.shape[0])
        rectified_sum_kernel[(x.shape[0],)](x, z, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return z

    report = audit(sums, X + 10, like=lambda x: 1 + x.sum(1).abs(), hard=True, guard=GUARD)
    assert report.ok and any("is 1, but should be nan" in note for note in report.notes)


@triton.jit
def causal_kernel(P, V, Z, N, BLOCK: tl.constexpr):
    """Row r of the result needs the first r + 1 rows of V alone."""
    r = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    p = tl.load(P + r * N + j, mask=j <= r, other=0.0)
    v = tl.load(V + j, mask=j <= r, other=0.0)
    tl.store(Z + r, tl.sum(p * v, 0))


def test_zero_times_nan_of_a_reference_is_not_asked_for():
    def causal(p, v):
        z = torch.empty_like(v)
        causal_kernel[(len(v),)](p, v, z, len(v), triton.next_power_of_2(len(v)))
        return z

    report = audit(causal, X[:, :8].tril(), X[0, :8], like=lambda p, v: p.tril() @ v, hard=True, guard=GUARD)
    assert report.ok and not report.notes and "v: one NaN" in report.tried


@triton.jit
def gated_kernel(X, G, Z, n, BLOCK: tl.constexpr, SELECTS: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0)
    g = tl.load(G + i, mask=i < n, other=0.0)
    if SELECTS:
        z = tl.where(x > 0, 2 * x * g, 0.0)
    else:
        z = 2 * tl.maximum(x, 0.0) * g
    tl.store(Z + i, z, mask=i < n)


@pytest.mark.parametrize("selects", [True, False])
def test_zero_times_infinity_is_a_remark(selects):
    def gated(x, g):
        z = torch.empty_like(x)
        gated_kernel[(triton.cdiv(x.numel(), 64),)](x, g, z, x.numel(), 64, selects)
        return z

    def like(x, g):
        return torch.where(x > 0, 2 * x * g, 0.0)

    report = audit(gated, X[0], X[1], like=like, hard=True, guard=GUARD)
    notes = [note for note in report.notes if "is this 0 times inf?" in note]
    infinite = [finding for finding in report.findings if "inf" in finding.on]
    assert not infinite and bool(notes) is not selects


@triton.jit
def shifted_exp_kernel(X, Z, N, BLOCK: tl.constexpr):
    """A softmax whose rows of -inf are NaN."""
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * N
    x = tl.load(X + row + c, mask=c < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Z + row + c, e / tl.sum(e, 0), mask=c < N)


def test_nan_that_depends_on_an_infinity_stays_a_finding():
    def softmax(x):
        z = torch.empty_like(x)
        shifted_exp_kernel[(x.shape[0],)](x, z, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return z

    def like(x):
        empty = (x == -torch.inf).all(1, keepdim=True)
        return torch.where(empty, 0.0, torch.softmax(torch.where(empty, 0.0, x), 1))

    report = audit(softmax, X, like=like, hard=True, guard=GUARD)
    assert [finding.on for finding in report.findings] == ["x: a row of -inf"]
    assert "is nan, but should be 0" in report.findings[0].verdict.message


@triton.jit
def largest_kernel(X, V, At, N, PAD: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    row, o = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + o, mask=o < N, other=PAD)
    for rank in tl.static_range(K):
        v, at = tl.max(x, 0), tl.argmax(x, 0)
        tl.store(V + row * K + rank, v)
        tl.store(At + row * K + rank, at)
        x = tl.where(o == at, float("-inf"), x)


@pytest.mark.parametrize("pad", [float("-inf"), 0.0])
def test_a_sort_that_leaves_nan_out_moves_the_other_ranks(pad):
    """That's a note. It doesn't hide that the padding wins if all numbers are negative."""

    def largest(x):
        v, at = torch.empty(len(x), 4), torch.empty(len(x), 4, dtype=torch.int64)
        largest_kernel[(len(x),)](x, v, at, x.shape[1], pad, K=4, BLOCK=64)
        return v, at

    report = audit(largest, X, like=lambda x: tuple(torch.topk(x, 4)), hard=True, guard=GUARD)
    assert any("x: one NaN: NaN is lost" in note for note in report.notes)
    assert [finding.on for finding in report.findings if finding.on != "x: a row of -inf"] == (
        ["x: values near -1000"] if pad == 0.0 else []
    ), report


@triton.jit
def half_kernel(X, Z, HOW: tl.constexpr, N, BLOCK: tl.constexpr):
    row, o = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + o, mask=o < N, other=0.0)
    if HOW == "wrong with NaN":
        nans = tl.max((x != x).to(tl.int32), 0)
        x = tl.where(nans > 0, tl.where(x != x, 1.0, 2 * x), x)
    tl.store(Z + row * N + o, x, mask=o < N)


def test_a_nan_that_changes_other_elements_is_a_finding():
    def half(x):
        z = torch.empty_like(x)
        half_kernel[(len(x),)](x, z, "wrong with NaN", x.shape[1], BLOCK=64)
        return z

    report = audit(half, X, like=lambda x: 1 * x, hard=True, guard=GUARD)
    assert [finding.on for finding in report.findings] == ["x: one NaN"]
