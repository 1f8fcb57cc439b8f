"""Most iterations of a long loop are left out at pretended sizes, and the verdict is the same."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import audit
from puzzles_lib.compiler import program
from puzzles_lib.runner import Options, Pretended, run, skipping

TURNS = 300


@triton.jit
def by_number(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Like the loop over rows of a kernel that stays on its multiprocessor."""
    i = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0)):
        at = row.to(tl.int64) * stride if WIDE else row * stride
        tl.store(z_ptr + at + i, tl.load(x_ptr + at + i))


@triton.jit
def by_pointer(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    start = x_ptr + i
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, n):
        total += tl.load(start)
        start += stride
    tl.store(z_ptr + (n.to(tl.int64) if WIDE else n) * (stride - 1) + i, total)


@triton.jit
def by_offset(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The carried offset leaves int32 somewhere in the middle."""
    at = tl.arange(0, BLOCK)
    if WIDE:
        at = at.to(tl.int64)
    for _ in range(0, n):
        tl.store(z_ptr + at, tl.load(x_ptr + at))
        at += stride


@triton.jit
def by_codes(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of codes moves by no step, but is only stored."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for row in range(0, n):
        at = (row.to(tl.int64) if WIDE else row) * stride + i
        total += tl.load(x_ptr + at).to(tl.int32)
    tl.store(z_ptr + i, total.to(tl.float32))


@triton.jit
def in_passes(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The second loop loads what the first one stores, in another order."""
    i = tl.arange(0, BLOCK)
    for row in range(0, n):
        at = row.to(tl.int64) * stride + i
        tl.store(z_ptr + at, tl.load(x_ptr + at))
    for row in range(0, n // 3):
        at = (row.to(tl.int64) if WIDE else row) * (3 * stride) + i
        tl.store(z_ptr + at, 2 * tl.load(z_ptr + at))


@triton.jit
def nested(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for row in range(0, n):
        at = row.to(tl.int64) if WIDE else row
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, stride, BLOCK):
            total += tl.load(x_ptr + at * stride + start + i, mask=start + i < stride, other=0.0)
        tl.store(z_ptr + at * stride + i, total)


@triton.jit
def by_float(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The row is counted in a float, which an address depends on."""
    i = tl.arange(0, BLOCK)
    row = 0.0
    for _ in range(0, n):
        at = row.to(tl.int64) * stride if WIDE else row.to(tl.int32) * stride
        tl.store(z_ptr + at + i, tl.load(x_ptr + at + i))
        row += 1.0


@triton.jit
def largest(a, b):
    return tl.maximum(a, tl.max(b, 0))


@triton.jit
def by_maximum(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """What is carried moves by no step, and goes through functions, but is only stored."""
    i = tl.arange(0, BLOCK)
    most = float("-inf")
    for row in range(0, n):
        at = row.to(tl.int64) * stride if WIDE else row * stride
        most = largest(most, tl.load(x_ptr + at + i))
    tl.store(z_ptr + i, most)


@triton.jit
def by_sums(x_ptr, z_ptr, n, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of an inner loop is carried by the outer one, too."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, 2):
        for row in range(0, n):
            at = row.to(tl.int64) * stride if WIDE else row * stride
            total += part * tl.load(x_ptr + at + i)
    tl.store(z_ptr + i, total)


KERNELS = [by_sums, by_maximum, by_number, by_pointer, by_offset, by_codes, in_passes]


def ran(kernel, n, wide, monkeypatch=None):
    """Run a program of a kernel whose tensors have n rows; whole if there is ``monkeypatch``."""
    stride = 2**31 // TURNS * 9 // 8
    if monkeypatch:
        monkeypatch.setattr(skipping, "MANY", 1 << 40)
    x, z = (Pretended((n, stride), torch.float32) for _ in range(2))
    given = {"x_ptr": x, "z_ptr": z, "n": n, "stride": stride, "WIDE": wide, "BLOCK": 16}
    return pretended(kernel, given)


def pretended(kernel, given):
    small = {name: torch.empty(1) if isinstance(value, Pretended) else value for name, value in given.items()}
    return run(program(kernel, small), given, (1, 1, 1), {"z_ptr"}, Options(quiet=True, seconds=60))


@pytest.mark.parametrize("kernel", KERNELS, ids=[kernel.__name__ for kernel in KERNELS])
@pytest.mark.parametrize("wide", [True, False])
def test_the_fault_is_what_all_iterations_show(kernel, wide, monkeypatch):
    short = ran(kernel, TURNS, wide)
    whole = ran(kernel, TURNS, wide, monkeypatch)
    assert wide is (short.stop is None) is (whole.stop is None)
    if not wide:
        assert short.stop.kind == whole.stop.kind == "true size"
        assert short.stop.site == whole.stop.site
    assert not short.undefined and short.bytes_moved <= whole.bytes_moved / 5


@pytest.mark.parametrize("wide", [True, False])
def test_loops_in_loops_are_short(wide):
    ended = ran(nested, TURNS, wide)
    assert (ended.stop is None) is wide and ended.bytes_moved < 2e5


def test_all_iterations_run_if_an_address_depends_on_a_float():
    assert ran(by_float, TURNS, True).stop is None and ran(by_float, TURNS, False).stop.kind == "true size"


def test_an_integer_leaves_its_dtype_in_an_iteration_that_runs(monkeypatch):
    short, whole = ran(by_offset, TURNS, False), ran(by_offset, TURNS, False, monkeypatch)
    assert short.stop.message == whole.stop.message


@triton.jit
def doubled(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Where it stores depends on a number that moves by no step."""
    at = tl.program_id(0) + 1
    for _ in range(0, n):
        tl.store(z_ptr + at, 1.0)
        at = at * 2 % 1000003


def test_all_iterations_run_if_an_address_cannot_be_computed():
    x, z = (Pretended((1 << 32,), torch.float32) for _ in range(2))
    given = {"x_ptr": x, "z_ptr": z, "n": 500, "BLOCK": 16}
    ended = pretended(doubled, given)
    assert len(ended.written["z"]) == 500


@triton.jit
def tiles(x_ptr, z_ptr, M, N, BLOCK: tl.constexpr):
    at = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (0, 0), (16, BLOCK), (1, 0))
    total = tl.zeros((16, BLOCK), tl.float32)
    for _ in range(0, tl.cdiv(N, BLOCK)):
        total += tl.load(at)  # without a boundary check
        at = tl.advance(at, (0, BLOCK))
    tl.store(z_ptr + tl.arange(0, 16)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], total)


@pytest.mark.parametrize("columns, stops", [(1 << 28, False), ((1 << 28) + 3, True)])
def test_a_block_pointer_is_advanced(columns, stops):
    given = {"x_ptr": Pretended((16, columns), torch.float32), "z_ptr": Pretended((1 << 20,), torch.float32)}
    given |= {"M": 16, "N": columns, "BLOCK": 64}
    ended = pretended(tiles, given)
    assert (ended.stop is not None) is stops


@triton.jit
def softmax_kernel(z_ptr, x_ptr, stride, n_rows, n_cols, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        if WIDE:
            row = row.to(tl.int64)
        cols = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(z_ptr + row * stride + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


@pytest.mark.parametrize("wide", [True, False])
def test_a_kernel_that_loops_over_rows_is_audited_at_large_sizes(wide):
    def softmax(x):
        z = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(4,)](z, x, x.stride(0), *x.shape, BLOCK=block, WIDE=wide)
        return z

    report = audit(softmax, torch.randn(13, 77))
    assert report.ok is wide
    assert not any("time limit" in str(each) for each in report.unjudged)
    if not wide:
        assert any(f.verdict.kind == "true size" and "x.shape[0]" in f.on for f in report.findings)
