"""Elements of `torch.empty` that no kernel stores to and one of torch's operators reads."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit

QUICK = Guard(sizes=False)
X = torch.randn(100, generator=torch.Generator().manual_seed(1))


@triton.jit
def first_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i, mask=i < n), mask=i < n)


def first(x, n, dtype=None):
    z = torch.empty_like(x, dtype=dtype)
    first_kernel[(triton.cdiv(n, 32),)](x, z, n, BLOCK=32)
    return z


@pytest.mark.parametrize(
    "name, dtype, after",
    [
        ("sum", None, lambda z: z.sum()),
        ("gt", None, lambda z: z > 0),
        ("clone", torch.int32, lambda z: z.clone()),
        ("cat", None, lambda z: torch.cat([z, z])),
        ("mul_", None, lambda z: z.mul_(2)),
    ],
)
@pytest.mark.parametrize("n", [50, 100])
def test_a_result_must_not_depend_on_what_memory_held(name, dtype, after, n):
    report = audit(lambda x: after(first(x, n, dtype)), X, guard=QUICK)
    assert report.ok == (n == 100)
    assert report.ok or f"torch's {name} reads them" in str(report)
    assert report.ok or report.findings[0].verdict.kind == "never written"


def test_a_sum_in_place_after_a_view_of_what_is_there_is_fine():
    assert audit(lambda x: first(x, 50)[:50].add_(1).sum(), X, guard=QUICK).ok


def masked(x):
    return torch.where(torch.arange(len(x)) < 50, first(x, 50).clone(), 0)


def noisy(x):
    return first(x, 50).clone()[:50] + torch.rand(1)


CALLS: list[int] = []


def counting(x):
    CALLS.append(1)
    return first(x, 50).clone()[:50] + len(CALLS)


@pytest.mark.parametrize("function", [masked, noisy, counting])
def test_what_is_read_and_not_used_is_fine(function):
    assert audit(function, X, guard=QUICK).ok
    assert len(CALLS) <= 1  # the other calls are in other processes
