"""Sizes that count the blocks of another size change with it, in hard inputs and at true size."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit
from puzzles_lib.auditor import hard
from puzzles_lib.auditor.blocks import counts, together

GROUP = 16


@triton.jit
def dequant_kernel(X, S, Z, N, scales, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * N + cols, mask=cols < N)
    s = tl.load(S + row * scales + cols // GROUP, mask=cols < N)
    tl.store(Z + row * N + cols, x * s, mask=cols < N)


def dequantized(x, s, rounds_up):
    x, s, z = x.contiguous(), s.contiguous(), torch.empty(x.shape)
    rows, n = x.shape
    scales = triton.cdiv(n, GROUP) if rounds_up else n // GROUP
    dequant_kernel[(rows, triton.cdiv(n, 64))](x, s, z, n, scales, GROUP, BLOCK=64)
    return z


def reference(x, s, rounds_up):
    return x * s.repeat_interleave(GROUP, 1)[:, : x.shape[1]]


@pytest.mark.parametrize("rounds_up", [True, False])
def test_the_columns_of_scales_change_with_those_that_they_scale(monkeypatch, rounds_up):
    for kind in ("VALUES", "LAYOUTS"):
        monkeypatch.setattr(hard, kind, {})
    guard = Guard(sizes=rounds_up)
    report = audit(
        dequantized, torch.randn(6, 64), torch.rand(6, 4), rounds_up, like=reference, hard=True, guard=guard
    )
    assert "x.shape[1] = 65 and s.shape[1] = 5" in report.tried
    assert not any(name.startswith("s.shape[1]") for name in report.tried)
    assert not any("out-of-bounds" in text for text in report.unjudged)
    wrong = [each for each in report.findings if "at most" not in each.verdict.message]
    if rounds_up:
        assert not wrong
        assert any("x.shape[1] = 4,194,240, s.shape[1] = 262,140 and " in name for name in report.tried)
    else:
        assert [each.on for each in wrong] == ["x.shape[1] = 65 and s.shape[1] = 5"]


def test_only_sizes_that_count_blocks_and_nothing_else_are_bound():
    x = torch.zeros(256, 384)
    assert counts([x, torch.zeros(2, 3)]) == {2: (256, 128), 3: (384, 128)}
    assert counts([x, torch.zeros(256, 12)]) == {12: (384, 32)}
    assert counts([x, torch.zeros(256, 4), 100]) == {4: (384, 100)}
    assert counts([x, torch.zeros(256, 12), torch.zeros(12)]) == {}
    assert counts([x, torch.zeros(256, 5)]) == counts([x, torch.zeros(2, 384, 3)]) == {}
    assert counts([torch.zeros(384), torch.zeros(3, dtype=torch.int32)]) == {}
    assert together(256, 257, {2: (256, 128), 3: (384, 128)}) == {256: 257, 2: 3}
    assert together(64, 65, {4: (64, 16), 2: (4, 2)}) == {64: 65, 4: 5, 2: 3}


def test_a_tensor_of_one_axis_may_have_blocks_as_well_as_rows(monkeypatch):
    for kind in ("VALUES", "LAYOUTS"):
        monkeypatch.setattr(hard, kind, {})

    def scaled(x, s, group):
        return dequantized(x[None], s[None], True)[0]

    def like(x, s, group):
        return reference(x[None], s[None], True)[0]

    report = audit(scaled, torch.randn(64), torch.rand(4), 16, like=like, hard=True, guard=Guard(sizes=False))
    assert report.ok and "x.shape[0] = 65 and s.shape[0] = 5" in report.tried


# ---- flattened tensors


@triton.jit
def counts_kernel(Flat, Z, n: tl.constexpr, BLOCK: tl.constexpr, FILLS: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    if FILLS:
        x = tl.load(Flat + row * n + c, mask=c < n, other=0.0)
    else:
        x = tl.load(Flat + row * n + c, mask=c < n)
    tl.store(Z + row, tl.sum(x, 0))


@pytest.mark.parametrize("lengths", [None, torch.tensor([[3], [5], [2], [7]])])
@pytest.mark.parametrize("fills", [True, False])
def test_an_argument_says_how_long_the_rows_of_a_flattened_tensor_are(monkeypatch, fills, lengths):
    """Here all lanes have an element, so that only another length shows the missing ``other=``."""
    for kind in ("VALUES", "LAYOUTS"):
        monkeypatch.setattr(hard, kind, {})

    def summed(flat, scale, n):
        z = torch.empty(len(scale), 1)
        counts_kernel[(len(scale),)](flat, z, n, triton.next_power_of_2(n), fills)
        return z * scale

    def like(flat, scale, n):
        return flat.view(-1, n).sum(1, keepdim=True) * scale

    scale = torch.rand(4, 3) if lengths is None else lengths
    report = audit(summed, torch.randn(32), scale, 8, like=like, hard=True, guard=Guard(sizes=False))
    assert "n=9 and flat.shape[0] = 36" in report.tried
    assert not any(name.startswith("flat.shape") for name in report.tried)
    assert ("scale.shape[0] = 5 and flat.shape[0] = 40" in report.tried) is (lengths is None)
    found = [(each.verdict.kind, each.on.split(" and ")[0]) for each in report.findings]
    assert found == ([] if fills else [("uninitialized", "n=9")])
