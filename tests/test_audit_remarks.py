"""What is wasteful or imprecise in a launch whose results are correct: a note each, and no finding."""

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit, audited, pytest_plugin
from puzzles_lib.auditor.command import main

GUARD = Guard(sizes=False)
STRICT = Guard(sizes=False, strict=True)
ROWS = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))


@triton.jit
def row_sums_kernel(X, Z, N: tl.constexpr):
    row = tl.program_id(1)
    tl.store(Z + row, tl.sum(tl.load(X + row * N + tl.arange(0, N)), 0))


@pytest.mark.parametrize("programs", [1, 2])
def test_programs_that_store_the_same_values(programs):
    def sums(x):
        z = x.new_empty(x.shape[0])
        row_sums_kernel[(programs, x.shape[0])](x, z, x.shape[1])
        return z

    report = audit(sums, ROWS, like=lambda x: x.sum(1), guard=GUARD)
    assert report.ok and report.compared
    if programs == 1:
        assert not report.notes
    else:
        (note,) = report.notes
        assert "programs (0, 0) and (1, 0) both store Z[0]: the value is the same" in note
        assert "wasteful, but not wrong" in note
        strict = audit(sums, ROWS, like=lambda x: x.sum(1), guard=STRICT)
        assert [f.verdict.kind for f in strict.findings] == ["wasteful"] and strict.compared


def test_a_strict_audit_goes_on_after_a_remark():
    """It compares the results, and finds what is wrong with them, before the remark."""

    def sums(x):
        z = x.new_empty(x.shape[0])
        row_sums_kernel[(2, x.shape[0])](x, z, x.shape[1])
        return z

    report = audit(sums, ROWS, like=lambda x: x.sum(1) + 1, guard=STRICT)
    assert [f.verdict.kind for f in report.findings] == ["values", "wasteful"]


@pytest.mark.parametrize("strict, count", [(False, 0), (True, 1)])
def test_a_strict_block_has_remarks_as_findings(strict, count):
    with audited(guard=Guard(strict=strict)) as report:
        row_sums_kernel[(2, 4)](ROWS, torch.empty(4), 64)
    assert (len(report.findings), len(report.notes)) == (count, 1 - count)


@triton.jit
def column_sums_kernel(X, Z, M: tl.constexpr, N: tl.constexpr, HOW: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(X + r[:, None] * N + c)
    if HOW == "sum":
        z = tl.sum(x, 0)
    elif HOW == "float32":
        z = tl.sum(x.to(tl.float32), 0)
    elif HOW == "one of them":
        z = tl.sum(tl.where(r[:, None] == 3, x, 0.0), 0)
    else:
        z = tl.zeros((N,), X.dtype.element_ty if HOW == "loop" else tl.float32)
        for i in range(0, M):
            z += tl.load(X + i * N + c)
    tl.store(Z + c, z)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("how", ["sum", "loop", "float32", "one of them", "wide loop"])
def test_sums_in_a_narrow_dtype(how, dtype):
    def sums(x):
        z = torch.empty_like(x[0])
        column_sums_kernel[(1,)](x, z, *x.shape, how)
        return z

    rows = ROWS.T.contiguous().to(dtype).view(16, 16)
    report = audit(sums, rows, guard=GUARD)
    strict = audit(sums, rows, guard=STRICT)
    assert report.ok and strict.notes == []
    if how not in ("sum", "loop") or dtype == torch.float32:
        assert not report.notes and strict.ok
    else:
        (note,), (finding,) = report.notes, strict.findings
        name = str(dtype).removeprefix("torch.")
        text = {"sum": f"16 numbers are added in {name},", "loop": f"the loop adds numbers in {name},"}
        assert text[how] in note and note.startswith("column_sums_kernel, line ")
        line = {"sum": "z = tl.sum(x, 0)", "loop": "z += tl.load(X + i * N + c)"}
        assert finding.verdict.kind == "imprecise" and finding.verdict.site.source == line[how]
        assert text[how] in str(strict) and strict.launches[0].status == "FINDING"


@triton.jit
def less_one_kernel(X, Y, Z, T, N: tl.constexpr, AGAIN: tl.constexpr):
    """The gradient of cross-entropy: probabilities, less 1 at the target."""
    row = tl.program_id(0)
    c = tl.arange(0, N)
    x = tl.load(X + row * N + c).to(tl.float32)
    t = tl.load(T + row)
    e = tl.exp(x - tl.max(x, 0))
    p = e / tl.sum(e, 0)
    if AGAIN:
        tl.store(Z + row * N + c, p)
        tl.debug_barrier()
        tl.store(Z + row * N + t, tl.load(Z + row * N + t) - 1)
    else:
        tl.store(Z + row * N + c, 0.0)
        tl.debug_barrier()
        tl.store(Z + row * N + c, tl.where(c == t, p - 1, p) + tl.load(Y + row * N + c))


@pytest.mark.parametrize("dtype, again", [(torch.bfloat16, True), (torch.bfloat16, False), (None, True)])
def test_a_value_that_is_rounded_between_two_stores(dtype, again):
    def gradient(x, y, t):
        z = torch.empty_like(x)
        less_one_kernel[(x.shape[0],)](x, y, z, t, x.shape[1], again)
        return z

    x = ROWS.to(dtype or torch.float32)
    report = audit(gradient, x, torch.zeros_like(x), torch.tensor([5, 0, 63, 2]), guard=GUARD)
    assert report.ok
    if dtype is None or not again:
        assert not report.notes
    else:
        (note,) = report.notes
        assert "program 0 stores Z[0, 5] once more" in note and "rounded to bfloat16" in note


def narrow_sums(x):
    z = torch.empty_like(x[0])
    column_sums_kernel[(1,)](x, z, *x.shape, "sum")
    return z


def narrow_rows():
    return ROWS.to(torch.bfloat16).view(16, 16)


@pytest.mark.parametrize("options, status", [([], 0), (["--strict"], 1)])
def test_the_command_is_strict_if_asked(options, status, capsys):
    inputs = ["--inputs", f"{__name__}:narrow_rows", "--no-sizes"]
    assert main([f"{__name__}:narrow_sums", *inputs, *options]) == status
    assert ("imprecise: " in capsys.readouterr().out) == bool(status)


@pytest.mark.parametrize("strict, kinds", [(False, []), (True, ["wasteful"])])
def test_so_is_the_pytest_option(strict, kinds, pytestconfig, monkeypatch):
    node = SimpleNamespace(config=pytestconfig, name="a test", iter_markers=lambda name: iter(()))
    monkeypatch.setattr(pytestconfig.option, "audit_strict", strict, raising=False)
    monkeypatch.setattr(pytestconfig.option, "audit_seconds", 5.0, raising=False)
    with pytest_plugin._audits(node, "call") as report:
        row_sums_kernel[(2, 4)](ROWS, torch.empty(4), 64)
    assert [f.verdict.kind for f in report.findings] == kinds


# ---- how precise the products of a tl.dot are


@triton.jit
def product_kernel(A, B, C, off, PRECISION: tl.constexpr, HALF: tl.constexpr, n: tl.constexpr):
    i = tl.arange(0, n)[:, None] * n + tl.arange(0, n)[None, :]
    a, b = tl.load(A + i), tl.load(B + i)
    if HALF:
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    tl.store(C + i, tl.dot(a, b, input_precision=PRECISION) + off)


@pytest.mark.parametrize(
    "precision, half, off, right",
    [
        ("ieee", False, 0.0, True),
        ("ieee", False, 0.01, False),
        ("tf32x3", False, 0.01, False),
        ("bf16x3", False, 0.0, True),
        ("bf16x3", False, 0.01, False),
        ("tf32", False, 0.0, True),
        ("tf32", False, 0.01, True),
        ("tf32", False, 0.2, False),
        ("ieee", True, 0.0, True),
        ("ieee", True, 1.0, False),
    ],
)
def test_values_are_judged_by_the_precision_of_the_dots(precision, half, off, right):
    def product(a, b):
        c = torch.empty_like(a)
        product_kernel[(1,)](a, b, c, off, precision, half, len(a))
        return c

    a, b = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    report = audit(product, a, b, like=lambda a, b: a @ b, guard=Guard(sizes=False))
    assert report.ok is right, report


@triton.jit
def half_dot_kernel(A, B, C, K, HALF: tl.constexpr, LOOP: tl.constexpr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    dtype: tl.constexpr = tl.float16 if HALF else tl.float32
    acc = tl.zeros((16, 16), dtype)
    for k in range(0, K):
        a, b = tl.load(A + k * 256 + at), tl.load(B + k * 256 + at)
        if LOOP:
            acc = tl.dot(a, b, acc, out_dtype=dtype)
        else:
            acc += tl.dot(a, b, out_dtype=dtype)
    tl.store(C + at, acc.to(tl.float16))


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_a_dot_that_adds_up_in_float16(half, loop):
    def product(a, b):
        c = torch.empty(16, 16, dtype=a.dtype)
        half_dot_kernel[(1,)](a, b, c, len(a), half, loop)
        return c

    a, b = (torch.randn(3, 16, 16).half() for _ in range(2))
    report, strict = audit(product, a, b, guard=GUARD), audit(product, a, b, guard=STRICT)
    assert report.ok and strict.ok is not half
    assert bool(report.notes) is half
    if half:
        assert "tl.dot adds products in float16, which rounds after every addition" in str(report)


@triton.jit
def rounded_kernel(X, Z, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i).to(tl.float8e4nv).to(tl.float32))


@pytest.mark.parametrize("how", ["bare", "rounds", "allowance"])
def test_a_reference_may_round_as_a_kernel_does_in_between(how):
    def rounded(x):
        z = torch.empty_like(x)
        rounded_kernel[(1,)](x, z, BLOCK=64)
        return z

    like = (lambda x: x.to(torch.float8_e4m3fn).to(x.dtype)) if how == "rounds" else (lambda x: 1 * x)
    allowance = 0.07 if how == "allowance" else 0.0
    report = audit(rounded, torch.rand(64), like=like, allowance=allowance, guard=GUARD)
    assert report.ok is (how != "bare")
