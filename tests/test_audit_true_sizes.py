"""Offsets that wrap around only within one part of a tensor, or with two large sizes at once."""

import runpy

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit, auditor
from puzzles_lib.auditor import edges, running
from puzzles_lib.runner import run


@triton.jit
def tokens_kernel(X, Z, batch_stride, stride, N, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    token, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    if WIDE:
        token = token.to(tl.int64)
    cols = tl.arange(0, BLOCK)
    offs = batch * batch_stride + token * stride + cols
    tl.store(Z + offs, tl.load(X + offs, mask=cols < N), mask=cols < N)


def by_token(x, wide):
    x, z = x.contiguous(), torch.empty_like(x)
    batches, tokens, n = x.shape
    tokens_kernel[(tokens, batches)](x, z, x.stride(0), x.stride(1), n, wide, BLOCK=16)
    return z


@pytest.mark.parametrize("wide", [True, False])
def test_an_offset_within_a_batch_wraps_around(wide):
    report = audit(by_token, torch.randn(2, 7, 12), wide)
    assert report.ok == wide
    if not wide:
        assert report.findings[0].on == "x.shape[1] = 190,141,815"
        assert "token * stride" in str(report)


@triton.jit
def heads_kernel(X, Z, head_stride, stride, N, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if WIDE:
        head = head.to(tl.int64)
    cols = tl.arange(0, BLOCK)
    offs = head * head_stride + token * stride + cols
    tl.store(Z + offs, tl.load(X + offs, mask=cols < N), mask=cols < N)


def by_head(x, wide):
    z = torch.empty_like(x)
    heads, tokens, n = x.shape
    heads_kernel[(tokens, heads)](x, z, x.stride(0), x.stride(1), n, wide, BLOCK=16)
    return z


@pytest.mark.parametrize("wide", [True, False])
def test_a_grid_that_ends_at_65535_leaves_room_for_another_size(wide):
    report = audit(by_head, torch.randn(2, 7, 12), wide)
    assert report.ok == wide and any("at most 65,535" in note for note in report.notes)
    if not wide:
        assert report.findings[0].on == "x.shape[0] = 65,522 and x.shape[1] = 2,919"
        assert "does not fit int32" in str(report)


@triton.jit
def tiles_kernel(X, Z, N, BLOCK: tl.constexpr):
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + offs, tl.load(X + offs, mask=offs < N), mask=offs < N)


@pytest.mark.parametrize("block, ok", [(8, False), (16, True)])
def test_a_limit_that_few_calls_reach_is_a_note(block, ok):
    def tiled(x):
        z = torch.empty_like(x)
        tiles_kernel[(1, triton.cdiv(len(x), block))](x.contiguous(), z, len(x), BLOCK=block)
        return z

    report = audit(tiled, torch.randn(40), guard=Guard(hard=True))
    limit = f"no GPU launches this with x.shape[0] above {65_535 * block:,}"
    assert report.ok == ok and limit in str(report)


@triton.jit
def variance_kernel(X, Z, N, AT_ONCE: tl.constexpr, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + cols, mask=cols < N, other=0.0)
    mean = tl.sum(x, 0) / N
    centered = tl.where(cols < N, x - mean, 0.0)
    if AT_ONCE:
        z = tl.sum(x * x, 0) / N - mean * mean
    else:
        z = tl.sum(centered * centered, 0) / N
    tl.store(Z + row, z)


@pytest.mark.parametrize("at_once", [True, False])
def test_squares_of_huge_values_can_be_added_up(at_once):
    def variance(x):
        z = torch.empty(len(x))
        n = x.shape[1]
        variance_kernel[(len(x),)](x.contiguous(), z, n, at_once, BLOCK=triton.next_power_of_2(n))
        return z

    report = audit(
        variance,
        torch.randn(4, 50),
        like=lambda x: x.var(1, correction=0),
        guard=Guard(sizes=False, hard=True),
    )
    assert report.ok != at_once
    assert all("values near -1000" in finding.on for finding in report.findings)


@triton.jit
def doubled_kernel(X, Which, Z, n, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < n) if MASKED else (i >= 0)
    at = tl.load(Which + i % 4)
    tl.store(Z + i, 2 * tl.load(X + at, mask=mask), mask=mask)


@pytest.mark.parametrize("masked, last", [(True, 99), (False, 99), (True, 100)])
def test_tensors_too_large_to_copy_are_pretended_at_the_edges(monkeypatch, masked, last):
    monkeypatch.setattr(running, "MOST_BYTES", 500)

    def doubled(x, which):
        z = torch.empty_like(x)
        doubled_kernel[(triton.cdiv(len(x), 32),)](x, which, z, len(x), masked, BLOCK=32)
        return z

    x, which = torch.ones(100), torch.tensor([0, 5, last, 7])
    report = audit(doubled, x, which, guard=Guard(sizes=False), like=lambda x, which: 2 * x)
    if masked and last < 100:
        assert report.ok and not report.compared
        told = (
            "too large to run completely: its tensors have 0 MiB; "
            "2 of 4 programs ran, at the edges of the grid"
        )
        assert told in str(report) and "0 of 1 launch clean, the rest not judged" in str(report)
    else:
        (finding,) = report.findings
        words = "out-of-bounds load of X" if last == 100 else "out-of-bounds store of Z in program 3"
        assert words in finding.verdict.message


@triton.jit
def put_kernel(X, Index, V, N, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(Index + i)
    for start in range(0, N, BLOCK):
        j = start + tl.arange(0, BLOCK)
        tl.store(X + row * stride + j, tl.load(V + i * N + j, mask=j < N), mask=j < N)


@pytest.mark.parametrize("dtype, found", [(torch.int32, ["true size"]), (torch.int64, [])])
def test_a_row_that_begins_beyond_what_an_int32_holds(dtype, found):
    def put(x, index, v):
        put_kernel[(index.shape[0],)](x, index, v, x.shape[1], x.stride(0), BLOCK=256)

    index = torch.tensor([5, 0, 6], dtype=dtype)
    report = audit(put, torch.zeros(7, 40), index, torch.randn(3, 40))
    assert [each.verdict.kind for each in report.findings] == found


@triton.jit
def ragged_kernel(X, Offsets, Z, stride, D, BLOCKS, BT: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    row = p // BLOCKS
    token = tl.load(Offsets + row) + p % BLOCKS * BT + tl.arange(0, BT)
    i = tl.arange(0, BLOCK)
    places = token[:, None] * stride + i[None, :]
    mask = (token[:, None] < tl.load(Offsets + row + 1)) & (i[None, :] < D)
    tl.store(Z + places, tl.load(X + places, mask=mask), mask=mask)


@pytest.mark.parametrize("dtype, found", [(torch.int32, ["true size"]), (torch.int64, [])])
def test_the_last_offset_of_ragged_rows_grows_with_their_number(dtype, found):
    def copied(x, offsets):
        z, count = torch.empty_like(x), triton.cdiv(x.shape[0], 4)
        grid = ((offsets.shape[0] - 1) * count,)
        ragged_kernel[grid](x, offsets, z, x.stride(0), x.shape[1], count, BT=4, BLOCK=64)
        return z

    report = audit(copied, torch.randn(9, 40), torch.tensor([0, 4, 9], dtype=dtype))
    assert [each.verdict.kind for each in report.findings] == found


@triton.jit
def twice_kernel(X, Z, stride, N, scale, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    wide = row.to(tl.int64)
    cols = tl.arange(0, BLOCK)
    if HOW == 0:
        x = tl.load(X + row * stride + cols, mask=cols < N)
        tl.store(Z + row * stride + cols, x * scale, mask=cols < N)
    elif HOW == 1:
        offs = row * stride + cols
        tl.store(Z + offs, tl.load(X + offs, mask=cols < N) * scale, mask=cols < N)
    else:
        x = tl.load(X + wide * stride + cols, mask=cols < N)
        tl.store(Z + wide * stride + cols, x * scale, mask=cols < N)


@pytest.mark.parametrize("how", range(3))
def test_the_advice_names_the_other_lines_and_where_the_factor_is_set(how):
    def twice(x):
        z = torch.empty_like(x)
        twice_kernel[(len(x),)](x, z, x.stride(0), x.shape[1], 2.0, how, BLOCK=16)
        return z

    report = audit(twice, torch.randn(7, 12))
    assert report.ok == (how == 2)
    if how < 2:
        (finding,) = report.findings
        first = twice_kernel.starting_line_number + 1
        advice = finding.verdict.diagnosis
        assert finding.verdict.site.line == (first + 5 if how == 0 else first + 8)
        assert advice.endswith(f"convert it where it is set, in line {first + 1}")
        assert advice.startswith("row is also a factor in lines ")


@triton.jit
def scatter_kernel(K, Where, Pool, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    row = tl.load(Where + i)
    if WIDE:
        row = row.to(tl.int64)
    k = tl.load(K + i * BLOCK + cols)
    tl.store(Pool + row * BLOCK + cols, k, mask=row >= 0)


def scattered(k, where, pool, wide):
    scatter_kernel[(len(where),)](k, where, pool, wide, BLOCK=k.shape[1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("wide", [True, False])
def test_loaded_row_numbers_reach_the_last_rows(dtype, wide):
    where = torch.tensor([7, -1, 30, 2, 11], dtype=dtype)
    report = audit(scattered, torch.randn(5, 16), where, torch.zeros(37, 16), wide)
    assert report.ok == (wide or dtype == torch.int64)
    reaching = "pool.shape[0] = 142,606,357, and numbers of the last rows in where"
    assert reaching in report.tried and not any("the last rows" in text for text in report.unjudged)
    if not report.ok:
        (finding,) = report.findings
        assert finding.on == reaching and "does not fit int32" in finding.verdict.message
        assert finding.verdict.site.source.startswith("tl.store(Pool + row * BLOCK")


def test_row_numbers_that_the_function_computes_are_not_judged():
    def put(k, order, pool):
        scattered(k, torch.argsort(order).int(), pool, False)

    report = audit(put, torch.randn(5, 16), torch.randperm(5), torch.zeros(37, 16))
    assert report.ok
    (text,) = [text for text in report.unjudged if "the last rows" in text]
    assert text.endswith("scatter_kernel: the last rows of Pool: the function computes Where")


@triton.jit
def labels_kernel(X, Label, Z, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(Label + row)
    tl.store(Z + row, tl.load(X + row * N + label * BLOCK))


def test_integers_that_are_no_row_numbers_do_not_grow():
    def picked(x, label):
        z = torch.empty(len(x))
        labels_kernel[(len(x),)](x, label, z, x.shape[1], BLOCK=8)
        return z

    label = torch.tensor([2, 0, 3, 1, 3, 0, 2], dtype=torch.int32)
    report = audit(picked, torch.randn(7, 40), label)
    assert report.ok and not report.unjudged


@triton.jit
def split_kernel(A, B, C, M, N, K, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(tl.program_id(2) * BLOCK, K, BLOCK * 4):
        k = start + tl.arange(0, BLOCK)
        if WIDE:
            k = k.to(tl.int64)
        mask = (rows[:, None] < M) & (k[None, :] < K)
        a = tl.load(A + rows[:, None] * K + k[None, :], mask=mask, other=0.0)
        mask = (k[:, None] < K) & (cols[None, :] < N)
        b = tl.load(B + k[:, None] * N + cols[None, :], mask=mask, other=0.0)
        acc = tl.dot(a, b, acc)
    where = (rows[:, None] < M) & (cols[None, :] < N)
    tl.atomic_add(C + rows[:, None] * N + cols[None, :], acc, mask=where)


@pytest.mark.parametrize("wide", [False, True])
def test_a_long_loop_is_shorter_if_another_size_is_large_too(wide):
    def product(a, b):
        c = torch.zeros(a.shape[0], b.shape[1])
        split_kernel[(triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 16), 4)](
            a, b, c, *c.shape, a.shape[1], wide, BLOCK=16
        )
        return c

    report = audit(product, torch.randn(40, 200), torch.randn(200, 48))
    assert report.ok is wide, report
    assert not report.unjudged, report
    if not wide:
        (finding,) = report.findings
        assert finding.on.startswith("b.shape[1] = 1,048,560 and a.shape[1] = b.shape[0] = ")
        assert finding.verdict.site.source.startswith("b = tl.load(")
        assert "cols" not in finding.verdict.diagnosis


@triton.jit
def outer_kernel(X, W, Z, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    x = tl.load(X + rows * K, mask=rows < M, other=0.0)
    w = tl.load(W + cols, mask=cols < N, other=0.0)
    tl.store(Z + rows * N + cols, x * w, mask=(rows < M) & (cols < N))


def test_a_factor_that_is_too_narrow_in_several_lines_is_one_finding():
    """With many rows, the load of ``x`` overflows first; with many columns and some rows, the store does."""

    def outer(x, w):
        z = torch.empty(len(x), len(w))
        grid = triton.cdiv(len(x), 64), triton.cdiv(len(w), 64)
        outer_kernel[grid](x, w, z, *z.shape, x.shape[1], BM=64, BN=64)
        return z

    (finding,) = audit(outer, torch.randn(30, 100), torch.randn(70)).findings
    line = outer_kernel.fn.__code__.co_firstlineno + 2
    assert finding.on.startswith("x.shape[0] = ") and finding.verdict.site.line == line + 2
    assert finding.verdict.diagnosis == (
        f"rows is also a factor in line {line + 4}: convert it where it is set, in line {line}"
    )


def test_more_seconds_are_more_for_enlarged_sizes_too(monkeypatch):
    given = set()

    def spy(*args):
        given.add(args[-1].seconds)
        return run(*args)

    monkeypatch.setattr(edges, "run", spy)
    monkeypatch.setattr(auditor, "aside", lambda work: work())
    for seconds in (1.0, 5.0, 50.0):
        audit(by_token, torch.randn(2, 7, 12), True, guard=Guard(seconds=seconds))
    assert given == {edges.SECONDS, 10 * edges.SECONDS}


TILES = """
import torch, triton, triton.language as tl

@triton.jit
def tiles_kernel(X, Z, M, K, sxm, sxk, BM: tl.constexpr, BK: tl.constexpr):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    cols = tl.arange(0, BK)
    ptrs = X + rows[:, None] * sxm + cols[None, :] * sxk
    total = tl.zeros((BM,), tl.float32)
    for _ in range(0, K, BK):
        total += tl.sum(tl.load(ptrs, mask=cols[None, :] < K, other=0.0), 1)
        cols += BK
        ptrs = X + rows[:, None] * sxm + cols[None, :] * sxk
    tl.store(Z + rows, total)

def tiles(x):
    z = torch.empty(len(x))
    tiles_kernel[(triton.cdiv(len(x), 16),)](x, z, *x.shape, *x.stride(), BM=16, BK=16)
    return z
"""


def test_the_advice_names_the_factor_that_is_large_and_cures_the_overflow(tmp_path):
    """On the line, ``cols`` comes in a product, too, but is never large."""

    def report(source):
        path = tmp_path / f"tiles{hash(source)}.py"
        path.write_text(source)
        return audit(runpy.run_path(str(path))["tiles"], torch.randn(40, 50))

    (finding,) = report(TILES).findings
    advice = "rows is also a factor in line 13: convert it where it is set, in line 6"
    assert finding.verdict.diagnosis == advice
    assert finding.verdict.site.line == 8
    assert report(TILES.replace("% M\n", "% M\n    rows = rows.to(tl.int64)\n")).ok


@triton.jit
def planes_kernel(X, Z, sb, ss, N, BLOCK: tl.constexpr):
    b, s = tl.program_id(0), tl.program_id(1)
    first = b.to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + b * sb + s * ss + cols, mask=cols < N)
    tl.store(Z + (first * tl.num_programs(1) + s) * N + cols, x, mask=cols < N)


def test_the_advice_names_the_product_that_overflows_if_the_line_has_several():
    def planes(x):
        z = torch.empty_like(x)
        planes_kernel[x.shape[:2]](x, z, *x.stride()[:2], x.shape[2], BLOCK=16)
        return z

    (finding,) = audit(planes, torch.randn(5, 7, 12)).findings
    assert finding.on.startswith("x.shape[0] = ")
    assert finding.verdict.diagnosis == "the product that overflows is b * sb"
