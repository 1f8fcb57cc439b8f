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
def test_a_long_loop_is_judged(wide):
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
        assert finding.on == "a.shape[1] = b.shape[0] = 47,535,464"
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


def by_row(x):
    x, z = x.contiguous(), torch.empty(x.shape, device=x.device)
    rows, n = x.shape
    twice_kernel[(rows,)](x, z, n, n, 2.0, HOW=1, BLOCK=triton.next_power_of_2(n))
    return z


class HalfByRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return by_row(x.chunk(2, -1)[0])

    @staticmethod
    def backward(ctx, grad):
        return None


def by_table(xs):
    """A table of pointers: no tensor of the launch grows."""
    z = torch.empty(xs[0].shape[1], device=xs[0].device)
    table = torch.tensor([x.data_ptr() for x in xs], device=xs[0].device)
    pointed_kernel[(len(xs),)](table, z, BLOCK=8)
    return z


@triton.jit
def pointed_kernel(Table, Z, BLOCK: tl.constexpr):
    x = tl.load(Table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(Z + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)), mask=tl.program_id(0) == 0)


OTHER_SHAPES = {
    "chunk": (lambda x: by_row(x.chunk(2, -1)[0]), [(5, 90)]),
    "slice": (lambda x: by_row(x[:, :45]), [(5, 90)]),
    "product": (lambda x, w: by_row(x @ w), [(5, 90), (90, 44)]),
    "autograd": (HalfByRow.apply, [(5, 90)]),
    "mean": (lambda x: by_row(x.mean(2)), [(5, 30, 6)]),
}


@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_sizes_grow_until_the_tensors_of_a_kernel_are_large(name):
    function, shapes = OTHER_SHAPES[name]
    report = audit(function, *(torch.randn(shape) for shape in shapes))
    (finding,) = report.findings
    assert finding.verdict.kind == "true size" and ".shape[0] = " in finding.on


def squares(x):
    z = torch.empty_like(x)
    twice_kernel[(len(x),)](x, z, x.shape[1], x.shape[1], 2.0, HOW=2, BLOCK=4)
    return z


@pytest.mark.parametrize(
    "function, shapes",
    [
        *((function, shapes) for function, shapes in OTHER_SHAPES.values()),
        (lambda x, y: by_table([x, y]), [(1, 8), (3, 8)]),
        (by_row, [(1, 45)]),
        (squares, [(3, 3)]),
        (lambda x: by_head(x, True), [(2, 7, 12)]),
        (lambda x, w: by_row(x), [(5, 90), (0, 6)]),
    ],
)
@pytest.mark.parametrize("seconds", [auditor.SIZES_SECONDS, 0.0])
def test_every_size_is_tried_or_listed_as_not_judged(monkeypatch, function, shapes, seconds):
    monkeypatch.setattr(auditor, "SIZES_SECONDS", seconds)
    names = ("a", "b")[: len(shapes)]
    function = eval(f"lambda {', '.join(names)}: function({', '.join(names)})", {"function": function})
    report = audit(function, *(torch.randn(shape) for shape in shapes))
    told = " ".join([*report.tried, *report.unjudged])
    for name, shape in zip(names, shapes, strict=True):
        for axis in range(len(shape)):
            assert f"{name}.shape[{axis}]" in told, report


@triton.jit
def loss_kernel(X, Y, Z, stride, count, ignored, N, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    label = tl.load(Y + row)
    if label != ignored:
        cols = tl.arange(0, BLOCK)
        x = tl.load(X + row * stride + cols, mask=cols < N, other=-float("inf"))
        tl.store(Z + row, tl.max(x, 0) / count)
    else:
        tl.store(Z + row, 0.0)


ASKS = {
    "item": lambda n: n.item(),
    "tolist": lambda n: n.tolist(),
    "int": int,
    "float": float,
    "bool": lambda n: 3 if n > 2 else 4,
    "index": lambda n: len(range(n)),
}


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("ask", ASKS)
def test_a_number_that_the_function_reads_stays_as_it_was(ask, wide):
    def loss(x, y):
        z = torch.empty(len(x), device=x.device)
        count = ASKS[ask]((y != -100).sum())
        block = triton.next_power_of_2(x.shape[1])
        loss_kernel[(len(x),)](x, y, z, x.stride(0), count, -100, x.shape[1], wide, BLOCK=block)
        return z

    report = audit(loss, torch.randn(4, 90), torch.tensor([3, -100, 5, 0]))
    assert report.ok == wide and "x.shape[0] = y.shape[0] = " in str(report.findings or report.tried)
    (note,) = [note for note in report.notes if "audit assumes" in note]
    assert "assumes that this is still " in note
    assert not any("without values" in text for text in report.unjudged)


def test_a_number_that_is_a_size_grows_with_it():
    def rows(x, offsets):
        z = torch.empty(offsets[-1].item(), x.shape[1], device=x.device)
        twice_kernel[(len(z),)](x, z, x.shape[1], x.shape[1], 2.0, HOW=2, BLOCK=64)
        return z

    report = audit(rows, torch.randn(9, 40), torch.tensor([0, 4, 9]))
    assert report.ok and any(text.startswith("x.shape[0] = ") for text in report.tried)
    assert not any("x.shape[0]" in text for text in report.unjudged)


def test_numbers_that_only_large_sizes_need_are_not_made_up():
    def rows(x):
        for row in range(len(x)):
            x[row].sum().item()
        return by_row(x)

    report = audit(rows, torch.randn(4, 45))
    assert any("cannot be called on meta tensors" in text for text in report.unjudged)


@triton.jit
def page_kernel(Table, Cache, Z, stride, PAGE: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    block = tl.load(Table + i)
    if WIDE:
        block = block.to(tl.int64)
    at = tl.arange(0, PAGE)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(Z + i * PAGE * D + at, tl.load(Cache + block * stride + at))


@pytest.mark.parametrize("wide", [True, False])
def test_axes_of_a_tensor_with_equal_sizes_are_tried_apart(wide):
    """A page of as many blocks as there are doesn't compile."""

    def gather(table, cache):
        z = torch.empty(len(table), *cache.shape[1:], device=table.device)
        page_kernel[(len(table),)](table, cache, z, cache.stride(0), *cache.shape[1:], WIDE=wide)
        return z

    table = torch.tensor([7, 2, 0], dtype=torch.int32)
    report = audit(gather, table, torch.randn(8, 8, 16))
    reaching = "cache.shape[0] = 17,825,816, and numbers of the last rows in table"
    assert report.ok is wide and reaching in report.tried, report
    assert wide or report.findings[0].on == reaching
    for axes in ("cache.shape[0] = cache.shape[1]", "cache.shape[1]"):
        assert any(text.startswith(f"with {axes} = ") for text in report.unjudged)


@triton.jit
def weighted_kernel(X, W, Z, N, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    for start in range(0, N, BLOCK):
        mask = start + cols < N
        x = tl.load(X + row * N + start + cols, mask=mask)
        tl.store(Z + row * N + start + cols, x * tl.load(W + start + cols, mask=mask), mask=mask)


@pytest.mark.parametrize("size", [4, 48])
def test_axes_that_belong_together_change_together(size):
    def weighted(x, w):
        z = torch.empty_like(x)
        weighted_kernel[(len(x),)](x, w, z, x.shape[1], BLOCK=16)
        return z

    report = audit(weighted, torch.randn(size, size), torch.randn(size))
    assert report.ok
    told = [text.removeprefix("with ").partition(" = ")[0] for text in (*report.tried, *report.unjudged)]
    assert "x.shape[0]" in told and "w.shape[0]" not in told
    assert any(text.startswith("x.shape[1] = w.shape[0] = ") for text in report.tried)


def test_sizes_of_different_tensors_stay_together():
    report = audit(lambda x, w: by_row(x * w), torch.randn(7, 20), torch.randn(20))
    assert not any(text.startswith("w.shape[0] = ") for text in report.tried)


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


@triton.jit
def row_kernel(X, Z, N, BLOCK: tl.constexpr):
    cols = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + cols, tl.load(X + cols, mask=cols < N), mask=cols < N)


def by_iteration(x):
    z = torch.empty_like(x)
    for row, to in zip(x, z, strict=True):
        row_kernel[(triton.cdiv(len(row), 64),)](row, to, len(row), BLOCK=64)
    return z


def by_split(x):
    return torch.cat([by_iteration(part) for part in torch.split(x, 2)])


def by_number(x):
    z = torch.empty_like(x)
    for row in range(len(x)):
        row_kernel[(triton.cdiv(x.shape[1], 64),)](x[row], z[row], x.shape[1], BLOCK=64)
    return z


@pytest.mark.parametrize(
    "function, told",
    [
        (by_iteration, "takes a tensor apart into 22,817,029 tensors"),
        (by_split, "takes a tensor apart into 11,408,514 tensors"),
        (by_number, "takes longer than 0.1 s, perhaps in a loop of its own; Guard(seconds=...) allows more"),
    ],
)
def test_a_loop_of_the_functions_own_ends(monkeypatch, function, told):
    monkeypatch.setattr(auditor.sizes, "CALL_SECONDS", 0.1)
    report = audit(function, torch.randn(5, 100))
    assert report.ok and f"with x.shape[0] = 22,817,029: the function {told}" in report.unjudged
    assert any("x.shape[1]" in text for text in report.tried)  # there is time left for it
