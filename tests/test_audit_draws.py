"""`audit` notes random numbers that two elements share by mistake, and none that they share on purpose."""

import re

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit

QUICK = Guard(sizes=False)
SHARED = "; if these need different numbers, give them different offsets or seeds"


@triton.jit
def dropout_kernel(X, B, Z, n, seed, HOW: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + lanes
    offsets = i
    if HOW == "lanes":
        offsets = lanes
    if HOW == "own seed":
        offsets = lanes
        seed += tl.program_id(0)
    x = tl.load(X + i, mask=i < n, other=0.0) + tl.load(B + lanes)
    keep = tl.rand(seed, offsets) > 0.1
    tl.store(Z + i, tl.where(keep, x / 0.9, 0.0), mask=i < n)


def dropout(x, how):
    z = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), 32),)](x, torch.randn(32), z, x.numel(), 7, HOW=how, BLOCK=32)
    return z


@pytest.mark.parametrize("how", ["elements", "own seed"])
def test_different_numbers_are_nothing_to_note(how):
    report = audit(dropout, torch.randn(100), how, guard=QUICK)
    assert report.ok and not report.notes


def test_programs_with_the_same_offsets_are_noted_though_they_share_a_bias():
    report = audit(dropout, torch.randn(100), "lanes", guard=QUICK)
    (note,) = report.notes
    assert report.ok and note.endswith(SHARED)
    assert note.startswith("dropout_kernel, line ")
    assert "programs 0 and 1 get the same random number, for Z[" in note
    report = audit(dropout, torch.randn(100), "lanes", guard=Guard(sizes=False, strict=True))
    (finding,) = report.findings
    assert (
        finding.verdict.kind == "repeated draws" and "tl.rand(seed, offsets)" in finding.verdict.site.source
    )


@triton.jit
def tile_kernel(X, Z, M, N, seed, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    columns = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    offsets, mask = rows * N + columns, (rows < M) & (columns < N)
    x = tl.load(X + offsets, mask=mask)
    tl.store(Z + offsets, x + tl.randn(seed, offsets), mask=mask)


def test_numbers_of_lanes_without_an_element_are_nothing_to_note():
    """Column 12 of a row has the offset of the next row's column 0."""

    def noisy(x):
        z = torch.empty_like(x)
        tile_kernel[(triton.cdiv(x.shape[0], 2), triton.cdiv(x.shape[1], 8))](x, z, *x.shape, 7, BM=2, BN=8)
        return z

    report = audit(noisy, torch.randn(9, 12), guard=QUICK)
    assert report.ok and not report.notes


@triton.jit
def matvec_kernel(W, X, Y, K, seed, BUG: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    mask = k < K
    x = tl.load(X + k + row * K * BUG, mask=mask, other=0.0)
    x = tl.where(tl.rand(seed, k) > 0.5, 2 * x, 0.0)
    tl.store(Y + row, tl.sum(x * tl.load(W + row * K + k, mask=mask, other=0.0)))


def test_a_mask_that_programs_need_for_the_same_inputs_is_nothing_to_note():
    def multiplied(w, x, bug):
        y = torch.empty(len(w))
        matvec_kernel[(len(w),)](w, x, y, w.shape[1], 7, BUG=bug, BLOCK=32)
        return y

    report = audit(multiplied, torch.randn(6, 20), torch.randn(20), 0, guard=QUICK)
    assert report.ok and not report.notes
    report = audit(multiplied, torch.randn(6, 20), torch.randn(6, 20), 1, guard=QUICK)
    assert report.notes and "programs 0 and 1 get the same random number, for " in report.notes[0]


@triton.jit
def rows_kernel(X, Z, M, N, seed, REDRAWS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in range(M):
        offsets = row * N + columns
        drawn = tl.randint(seed, columns if REDRAWS else offsets)
        x = tl.load(X + offsets, mask=columns < N)
        tl.store(Z + offsets, x + drawn.to(tl.int32), mask=columns < N)


def test_a_program_that_draws_the_same_in_each_iteration_is_noted():
    def noisy(x, redraws):
        z = torch.empty_like(x)
        rows_kernel[(1,)](x, z, *x.shape, 7, REDRAWS=redraws, BLOCK=16)
        return z

    x = torch.arange(30, dtype=torch.int32).view(3, 10)
    assert not audit(noisy, x, False, guard=QUICK).notes
    (note,) = audit(noisy, x, True, guard=QUICK).notes
    assert re.search(
        r"program 0 gets the same random number twice, for Z\[(\d), (\d)\] and Z\[(?!\1)\d, \2\]", note
    )


@triton.jit
def four_kernel(Z, seed, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, lanes)
    n = tl.program_id(0)
    drawn = tl.where(n == 0, a, tl.where(n == 1, b, tl.where(n == 2, c, d)))
    tl.store(Z + n * BLOCK + lanes, drawn)


def test_each_of_four_blocks_of_a_call_may_have_its_program():
    def drawn():
        z = torch.empty(4, 16)
        four_kernel[(4,)](z, 7, BLOCK=16)
        return z

    report = audit(drawn, guard=QUICK)
    assert report.ok and not report.notes


@triton.jit
def keyed_kernel(X, S, Z, N, seed, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    key = tl.randint(seed, row * 0).to(tl.int32)
    drawn = tl.rand(key, row * N + columns)
    x = tl.load(X + row * N + columns, mask=columns < N) * tl.load(S + row)
    tl.store(Z + row * N + columns, x + drawn, mask=columns < N)


def test_a_key_that_all_programs_make_is_nothing_to_note():
    def keyed(x, s):
        z = torch.empty_like(x)
        keyed_kernel[(len(x),)](x, s, z, x.shape[1], 7, BLOCK=16)
        return z

    report = audit(keyed, torch.randn(4, 10), torch.randn(4), guard=QUICK)
    assert report.ok and not report.notes
