"""Blocks of fewer elements than a program has threads: which of the copies that threads load do harm."""

import linecache
import re

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor
from triton.language.extra import libdevice

from puzzles_lib import Guard, audit, check
from puzzles_lib.puzzle import Case, Puzzle

SIZES = ((32, 32), (29, 32), (70, 32))


def judged(kernel, spec, sizes=SIZES, num_warps=4, **options):
    cases = tuple(Case(N=n, BLOCK=block) for n, block in sizes)
    puzzle = Puzzle(number="0", spec=spec, grid=lambda s: (1,), cases=cases, **options)
    return check(kernel, puzzle, num_warps=num_warps)


def tanh_slope(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return 1 - torch.tanh(x) ** 2


def plus_sum(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + x.sum()


def softmax(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return torch.softmax(x, 0)


@triton.jit
def copied(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    for i in range(0, N, BLOCK):
        tl.store(z_ptr + i + c, tl.load(x_ptr + i + c, mask=i + c < N), mask=i + c < N)
    tl.debug_barrier()


@triton.jit
def slope_in_place(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    copied(x_ptr, z_ptr, N, BLOCK)
    c = tl.arange(0, BLOCK)
    for i in range(0, N, BLOCK):
        t = libdevice.tanh(tl.load(z_ptr + i + c, mask=i + c < N, other=0.0))
        tl.store(z_ptr + i + c, 1 - t * t, mask=i + c < N)


@triton.jit
def sum_in_place(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    copied(x_ptr, z_ptr, N, BLOCK)
    c = tl.arange(0, BLOCK)
    d = 0.0
    for i in range(0, N, BLOCK):
        d += tl.sum(tl.load(z_ptr + i + c, mask=i + c < N, other=0.0))
    for i in range(0, N, BLOCK):
        x = tl.load(z_ptr + i + c, mask=i + c < N, other=0.0)
        tl.store(z_ptr + i + c, x + d, mask=i + c < N)


@triton.jit
def softmax_in_place(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """As Liger's cross-entropy: the maximum and the sum of one loop, the values of a second one."""
    copied(x_ptr, z_ptr, N, BLOCK)
    c = tl.arange(0, BLOCK)
    m, d = float("-inf"), 0.0
    for i in range(0, N, BLOCK):
        x = tl.load(z_ptr + i + c, mask=i + c < N, other=float("-inf"))
        larger = tl.maximum(m, tl.max(x))
        d = d * tl.exp(m - larger) + tl.sum(tl.exp(x - larger))
        m = larger
    for i in range(0, N, BLOCK):
        x = tl.load(z_ptr + i + c, mask=i + c < N, other=0.0)
        tl.store(z_ptr + i + c, tl.exp(x - m) / d, mask=i + c < N)


@pytest.mark.parametrize(
    "kernel, spec", [(slope_in_place, tanh_slope), (sum_in_place, plus_sum), (softmax_in_place, softmax)]
)
@pytest.mark.parametrize("num_warps", [4, 16])
@pytest.mark.parametrize("block", [16, 128, 1024])
def test_copies_that_go_nowhere_or_come_in_time(kernel, spec, num_warps, block):
    report = judged(kernel, spec, [(block, block), (2 * block - 3, block)], num_warps)
    assert report.ok, report


# ---- a loop that adds up, and one that works in place


@triton.jit
def scaled_kernel(X, Y, rows, n, BLOCK: tl.constexpr, HOW: tl.constexpr):
    for row in range(tl.program_id(0), rows, 2):
        x = X + row * n
        c = tl.arange(0, BLOCK)
        acc = tl.zeros((BLOCK,), tl.float32)
        last = tl.zeros((BLOCK,), tl.float32)
        for s in range(0, n, BLOCK):
            v = tl.load(x + s + c, mask=s + c < n, other=0.0)  # the first loop
            acc += v
            last = v
        if HOW == "the last":
            total = tl.sum(last, 0)
        else:
            total = tl.sum(acc, 0)
        if HOW == "unused":
            tl.store(Y + row, total)
            total = 2.0
        for s in range(0, n, BLOCK):
            v = tl.load(x + s + c, mask=s + c < n, other=0.0)
            tl.store(x + s + c, v / total, mask=s + c < n)
        if HOW == "twice":
            tl.store(x + c, total, mask=c < n)


@pytest.mark.parametrize("block, num_warps", [(32, 4), (64, 4), (64, 8), (128, 8), (256, 4)])
@pytest.mark.parametrize("how", ["the sum", "the last", "unused", "twice"])
def test_copies_that_a_loop_adds_up(how, block, num_warps):
    def scaled(x, y):
        scaled_kernel[(2,)](x, y, *x.shape, block, how, num_warps=num_warps)

    x = torch.rand(5, 300) + 1
    report = audit(scaled, x, torch.zeros(5), guard=Guard(sizes=False))
    right = how in ("the sum", "twice") or block in (32, 256)
    assert report.ok is right, report
    if not right:
        assert "X[0, 0] is loaded at line" in str(report)
        assert "# the first loop" not in str(report)
        first, loop = (
            linecache.getline(__file__, int(re.split(r"\D", str(report).split(words)[1])[0]))
            for words in ("is loaded at line ", "before the loop in line ")
        )
        assert "# the first loop" in first
        assert loop.strip() == "for s in range(0, n, BLOCK):"


# ---- those that do harm


def next_and_total(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Float32[Tensor, "512"]]:
    return x + 1, x.sum().expand(512)


def less_total(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Float32[Tensor, "512"]]:
    return x - x.sum(), x.sum().expand(512)


@triton.jit
def total_of_copies(x_ptr, z_ptr, y_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    """Each warp sums its own copies up, and stores the sum to other places than the first one."""
    c = tl.arange(0, N)
    tl.store(z_ptr + c, tl.load(x_ptr + c))
    tl.debug_barrier()
    x = tl.load(z_ptr + c)
    tl.store(z_ptr + c, x + 1)
    tl.store(y_ptr + tl.arange(0, 512), tl.full((512,), 0.0, tl.float32) + tl.sum(x))


@triton.jit
def total_first(x_ptr, z_ptr, y_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    """What is stored needs the sum, and over several warps that has a barrier."""
    c = tl.arange(0, N)
    tl.store(z_ptr + c, tl.load(x_ptr + c))
    tl.debug_barrier()
    x = tl.load(z_ptr + c)
    total = tl.sum(x)
    tl.store(z_ptr + c, x - total)
    tl.store(y_ptr + tl.arange(0, 512), tl.full((512,), 0.0, tl.float32) + total)


@pytest.mark.parametrize(
    "kernel, spec, n, num_warps, right",
    [
        (total_of_copies, next_and_total, 32, 4, False),  # within a warp
        (total_of_copies, next_and_total, 256, 16, False),  # over 8 warps, each there twice
        (total_first, less_total, 256, 16, True),
        (total_first, less_total, 32, 4, False),
    ],
)
def test_copies_that_others_store(kernel, spec, n, num_warps, right):
    report = judged(kernel, spec, [(n, 16)], num_warps, outputs=("z", "y"))
    assert report.ok is right, report
    assert right or "race within program 0: z[0] is loaded at line" in str(report)


# ---- a loop that runs as often as what was loaded says


@triton.jit
def cleared_kernel(M, Z, n: tl.constexpr, HOW: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, n)
    total = tl.sum(tl.load(M + row * n + c), 0)
    if HOW == "as often":
        for i in range(0, total):
            tl.store(M + row * n + i, 0)
    elif HOW == "with a barrier":
        for i in range(0, total):
            tl.store(M + row * n + i, 0)
            tl.debug_barrier()
    else:
        tl.store(M + row * n + 3, 0)
        tl.store(Z + row, total)


@pytest.mark.parametrize(
    "how, n, right",
    [
        ("as often", 8, True),
        ("as often", 64, True),
        ("with a barrier", 8, False),  # each copy may wait at another number of barriers
        ("with a barrier", 64, True),  # a sum over two warps has a barrier before the loop
        ("always", 8, False),
        ("always", 64, False),
    ],
)
def test_copies_that_say_how_often_a_loop_runs(how, n, right):
    def cleared(m, z):
        cleared_kernel[(m.shape[0],)](m, z, n, how)

    m = (torch.arange(2 * n) % 3 == 0).int().view(2, n)
    report = audit(cleared, m, torch.zeros(2, dtype=torch.int32), guard=Guard(sizes=False))
    assert report.ok is right, report
    assert right or "race within program 0" in str(report)


@triton.jit
def row_by_row_kernel(M, n: tl.constexpr):
    """Each sum is of one row, and needs one element of the column that is loaded."""
    c = tl.arange(0, n)
    x = tl.load(M + c)
    sums = tl.sum(x[:, None] * tl.zeros((1, n), tl.int32), 1)
    tl.store(M + (c + 1) % n, sums)


def test_a_sum_of_other_rows_does_not_wait():
    report = audit(lambda m: row_by_row_kernel[(1,)](m, 64), torch.ones(64).int(), guard=Guard(sizes=False))
    assert "race within program 0" in str(report)
