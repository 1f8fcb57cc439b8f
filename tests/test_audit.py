"""`audit`: launches of ordinary code, caught and run under guard. Each fault has a sound kernel beside it."""

import dataclasses
import json
import linecache
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit, audited, auditor
from puzzles_lib.auditor import HARD_SECONDS, MOST_FINDINGS, AuditReport, running
from puzzles_lib.auditor.command import main
from tests.audited_suite import audited_suite, options

ROOT = Path(__file__).parent.parent
QUICK = Guard(sizes=False)


@triton.jit
def softmax_kernel(Out, X, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + row.to(tl.int64) * stride + c, mask=c < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Out + row.to(tl.int64) * N + c, e / (tl.sum(e, 0) + eps), mask=c < N)


def softmax(x, eps=0.0):
    assert x.is_cuda and x.device.type == "cuda"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_kernel[(x.shape[0],)](out, x, x.stride(0), x.shape[1], eps, BLOCK=128, num_warps=8)
    return out


@triton.jit
def scale_kernel(X, Z, n, factor, HALF: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n) if MASKED else tl.load(X + i)
    if HALF == "yes":
        x = x * 0.5
    tl.store(Z + i, x * factor, mask=i < n)


def scaled(x, factor=2.0, half=None, masked=True, block=32):
    z = torch.empty_like(x)
    n = x.numel()
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, z, n, factor, half, masked, BLOCK=block)
    return z


def doubled(x):
    return 2 * x


def kinds(report):
    return [finding.verdict.kind for finding in report.findings]


X = torch.randn(100, generator=torch.Generator().manual_seed(1))
ROWS = torch.randn(6, 100, generator=torch.Generator().manual_seed(2))


def test_a_sound_call_is_clean_and_its_values_are_compared():
    report = audit(softmax, ROWS, like=lambda x, eps=0.0: torch.softmax(x, -1), guard=QUICK)
    assert (
        report.ok
        and report.compared
        and str(report) == ("softmax: 1 launch clean, with the reference's values")
    )
    assert report.launches[0].launch.arguments["eps"] == 0.0


def test_out_of_bounds_with_the_kernels_line_and_the_launchs():
    report = audit(scaled, X, masked=False, guard=Guard(sizes=False))
    (finding,) = report.findings
    text = "out-of-bounds load of X in program 3: elements 100..127; X has 100, numbered 0 to 99"
    assert finding.verdict.message == text
    assert finding.verdict.site.source.startswith("x = tl.load(X + i")
    assert finding.place.source.startswith("scale_kernel[lambda meta")
    assert str(report).splitlines()[0] == "scaled: 1 finding in 1 launch"


@pytest.mark.parametrize("factor, half", [(-1.5, None), (3, "yes"), (True, "no")])
def test_arguments_of_every_kind(factor, half):
    like = {"yes": 0.5}.get(half, 1.0) * factor
    assert audit(scaled, X, factor, half, like=lambda x, *_: x * like, guard=QUICK).ok


# ---- undefined


@triton.jit
def sum_kernel(X, Z, n, FILLED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0) if FILLED else tl.load(X + i, mask=i < n)
    tl.store(Z, tl.sum(x, 0))


@pytest.mark.parametrize("filled", [True, False])
def test_undefined_lanes(filled):
    def total(x):
        z = torch.empty(1)
        sum_kernel[(1,)](x, z, x.numel(), filled, BLOCK=128)
        return z

    report = audit(total, X, guard=QUICK)
    assert kinds(report) == ([] if filled else ["uninitialized"])
    if not filled:
        assert "depends on a lane that the load of X masks off" in report.findings[0].verdict.message


def test_elements_that_nothing_stores_to():
    def part(x):
        z = torch.empty(x.numel() + 2)
        scale_kernel[(4,)](x, z, x.numel(), 2.0, None, True, BLOCK=32)
        return z

    (finding,) = audit(part, X, guard=QUICK).findings
    assert finding.verdict.message == "2 of 102 elements of the result are never written. The first is [100]"
    assert "if that's on purpose, pass guard=Guard(unwritten=('Z',))" in finding.verdict.diagnosis


@pytest.mark.parametrize("factor, ok", [(2.0, True), (3.0, False)])
def test_results_may_be_partly_unwritten_if_that_is_declared(factor, ok):
    def part(x):
        z, w = torch.empty(x.numel() + 2), torch.empty(x.numel() + 2)
        scale_kernel[(4,)](x, z, x.numel(), factor, None, True, BLOCK=32)
        scale_kernel[(4,)](x, w, x.numel(), 2.0, None, True, BLOCK=32)
        return z, w[: x.numel()]

    def like(x):
        return torch.cat([2 * x, torch.zeros(2, dtype=x.dtype)]), 2 * x

    guard = Guard(sizes=False, unwritten=("Z",))
    assert audit(part, X, guard=guard).ok
    report = audit(part, X, guard=guard, like=like, hard=True)
    assert report.ok == ok and report.compared
    with pytest.raises(ValueError, match="unwritten must name tensors of a kernel .*Z.*, but names 'Out'"):
        audit(part, X, guard=Guard(sizes=False, unwritten=("Z", "Out")))
    with pytest.raises(TypeError, match="unwritten must be a list of parameters' names, but is 'Z'"):
        Guard(unwritten="Z")


@pytest.mark.parametrize("first", [True, False])
def test_what_one_launch_leaves_undefined_another_must_not_read(first):
    def twice(x):
        between, z = torch.empty_like(x), torch.empty_like(x)
        if first:
            scale_kernel[(4,)](x, between, x.numel(), 2.0, None, True, BLOCK=32)
        scale_kernel[(4,)](between, z, x.numel(), 2.0, None, True, BLOCK=32)
        return z

    report = audit(twice, X, like=lambda x: 4 * x, guard=QUICK)
    assert kinds(report) == ([] if first else ["uninitialized"])


def test_what_torch_stores_is_defined():
    def from_torch(x):
        z = torch.empty(x.numel() + 8)
        z[100:].zero_()
        scale_kernel[(4,)](x, z, x.numel(), 2.0, None, True, BLOCK=32)
        return z

    assert audit(from_torch, X, guard=QUICK).ok


# ---- in place, views, races


@triton.jit
def shift_kernel(X, n, BY: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + i, tl.load(X + i + BY, mask=i + BY < n, other=0.0) + 1, mask=i < n)


@pytest.mark.parametrize("by", [0, 1])
def test_in_place(by):
    def shifted(x):
        shift_kernel[(4,)](x, x.numel(), by, BLOCK=32)

    x = X.clone()
    report = audit(shifted, x, like=lambda x: x.add_(1), guard=QUICK)
    assert kinds(report) == (["race"] if by else [])
    assert torch.equal(x, X)  # the caller's own tensor is left alone


def test_outside_of_a_call_the_results_are_in_the_tensors():
    x = X.clone()
    with audited() as report:
        shift_kernel[(4,)](x, 100, 0, BLOCK=32)
    assert report.ok and torch.equal(x, X + 1)


@pytest.mark.parametrize("apart", [True, False])
def test_views_of_one_tensor(apart):
    def views(x):
        whole = torch.empty(2, x.numel())
        z = whole[1] if apart else whole.view(-1)[50:150]
        scale_kernel[(4,)](x, whole[0], x.numel(), 2.0, None, True, BLOCK=32)
        scale_kernel[(4,)](whole[0], z, x.numel(), 2.0, None, True, BLOCK=32)
        return whole[0] + 0

    assert kinds(audit(views, X, guard=QUICK)) == ([] if apart else ["race"])


def test_a_view_ends_where_it_ends_unless_storage_is_asked_for():
    def beyond(x):
        big = torch.zeros(200)
        scale_kernel[(4,)](x, big[:100], 128, 2.0, None, True, BLOCK=32)
        return big

    long = torch.ones(128)
    assert kinds(audit(beyond, long, guard=QUICK)) == ["out of bounds"]
    assert audit(beyond, long, guard=Guard(sizes=False, bounds="storage")).ok


@triton.jit
def best_kernel(X, Best, n, SAFE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.max(tl.load(X + i, mask=i < n, other=0), 0)
    if SAFE:
        tl.atomic_max(Best, mine)
    else:
        found = tl.atomic_add(Best, 0)
        tl.atomic_xchg(Best, tl.maximum(found, mine))


@pytest.mark.parametrize("safe", [True, False])
def test_two_atomics_are_not_one(safe):
    def best(x):
        z = torch.zeros(1, dtype=torch.int32)
        best_kernel[(4,)](x, z, x.numel(), safe, BLOCK=32)
        return z

    x = torch.arange(100, dtype=torch.int32)
    report = audit(best, x.flip(0).contiguous(), guard=QUICK)
    assert kinds(report) == ([] if safe else ["race"])


# ---- autotune


def _zero_first(arguments):
    arguments["Z"].zero_()


@triton.autotune(
    [
        triton.Config({"BLOCK": 32}, num_warps=1, pre_hook=_zero_first),
        triton.Config({"BLOCK": 64}, pre_hook=_zero_first),
    ],
    key=["n"],
)
@triton.jit
def add_kernel(X, Z, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    more = 1.0 if BLOCK == WRONG else 0.0
    tl.store(Z + i, tl.load(X + i, mask=i < n) + tl.load(Z + i, mask=i < n) + more, mask=i < n)


@pytest.mark.parametrize("wrong", [0, 32, 64])
def test_every_configuration_is_run_and_hooks_are_called(wrong):
    def tuned(x):
        z = torch.full_like(x, 7.0)
        add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, z, x.numel(), wrong)
        return z

    report = audit(tuned, X, like=lambda x: x, guard=QUICK)
    assert [launch.launch.configuration[:20] for launch in report.launches] == [
        "configuration 1 of 2",
        "configuration 2 of 2",
    ]
    assert kinds(report) == ([] if wrong == 0 else ["values"])


# ---- values


def test_a_value_that_is_off_by_little():
    def slightly(x):
        return scaled(x, 2.0001)

    (finding,) = audit(slightly, X, like=doubled, guard=QUICK).findings
    assert finding.verdict.kind == "values" and "allowed" in finding.verdict.message
    assert audit(slightly, X, like=doubled, allowance=1e-3, guard=QUICK).ok


class Hidden:
    def __init__(self, tensor):
        self.tensor = tensor


@dataclasses.dataclass
class Shown:
    tensor: torch.Tensor
    block: int = 32


def hidden(x):
    return Hidden(scaled(x))


@pytest.mark.parametrize("of", [Shown, lambda z: {"z": z}, lambda z: [(z, 32)], lambda z: float(z.sum())])
def test_results_are_found_in_what_is_returned(of):
    def function(x):
        return of(scaled(x))

    assert audit(function, X, like=lambda x: of(2 * x), guard=QUICK).compared
    (finding,) = audit(function, X, like=lambda x: of(2 * x + 1), guard=QUICK).findings
    assert finding.verdict.kind == "values"


def test_a_reference_that_is_not_finished_is_compared_with_nothing():
    report = audit(scaled, X, like=lambda x: ..., guard=QUICK)
    assert report.ok and not report.compared
    assert "not compared, because the reference returns ..., so it isn't finished" in str(report)


def test_if_all_values_differ_the_reference_is_doubted():
    """And only then: a kernel that is wrong in some elements has a reference that knows the others."""
    doubt = "so the reference may be wrong as well"
    assert doubt in str(audit(scaled, X, like=lambda x: x - 9, guard=QUICK))
    half = audit(scaled, X, like=lambda x: torch.where(torch.arange(len(x)) % 2 == 0, 2 * x, -9.0))
    assert not half.ok and doubt not in str(half)


def test_a_reference_that_fails_is_shown_without_the_librarys_frames():
    with pytest.raises(ValueError) as shown:
        audit(scaled, X, like=lambda x: x.nothing)
    page = "\n".join(shown.value._render_traceback_())
    assert page.startswith("ValueError: audit: the reference raises AttributeError")
    assert "puzzles_lib" not in page and "like=lambda x: x.nothing" in page


def test_results_that_are_not_found_are_a_note():
    assert "inside objects of other classes" in str(audit(hidden, X, guard=QUICK))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: audit(torch.sin, X), ValueError, "sin launches no Triton kernel"),
        (lambda: audit(scale_kernel, X), TypeError, "scale_kernel is a kernel; pass the function"),
        (lambda: audit(3, X), TypeError, "function must be a function, but is 3"),
        (lambda: audit(scaled, X, like=4), TypeError, "like must be a function, but is 4"),
        (lambda: audit(scaled, X, like=lambda x: x[:5]), ValueError, "but the reference returns shape (5,)"),
        (lambda: audit(scaled, X, like=lambda x: (x, x)), ValueError, "but the reference returns 2 tensors"),
        (lambda: audit(scaled, X, like=lambda x: x.nothing), ValueError, "the reference raises Attr"),
        (lambda: audit(scaled, X, like=lambda x: "x"), ValueError, "but the reference returns no tensors"),
        (lambda: audit(hidden, X, like=Hidden), ValueError, "returns a tensor or a number to compare"),
        (lambda: audit(scaled, X, like=lambda x: None), ValueError, "the reference returns None"),
        (lambda: audit(scaled, X, allowance=-1), ValueError, "allowance must be a number of at least 0"),
        (lambda: audit(scaled, X, allowance=float("nan")), ValueError, "at least 0, but is nan"),
        (lambda: audit(scaled, X, hard="yes"), TypeError, "hard must be True or False, but is 'yes'"),
        (lambda: audit(scaled, X, resident=2), TypeError, "resident must be True or False, but is 2"),
        (lambda: audit(scaled, X, guard=Guard), TypeError, "guard must be a Guard, such as"),
        (lambda: audit(scaled, X, vary={"x": lambda: 3}), TypeError, "a list of values for x, but has 3"),
        (lambda: audit(scaled, X, vary={"x": []}), ValueError, "at least one value for x, but has none"),
        (lambda: audit(scaled, X, vary=3), TypeError, "vary must map"),
        (lambda: Guard(bounds="row"), ValueError, "bounds must be 'view' or 'storage', but is 'row'"),
        (lambda: Guard(seconds=0), ValueError, "seconds must be a number above 0, but is 0"),
        (lambda: Guard(seconds=float("nan")), ValueError, "seconds must be a number above 0, but is nan"),
        (lambda: Guard(races="no"), TypeError, "races must be True or False, but is 'no'"),
        (lambda: audited(guard=3).__enter__(), TypeError, "audited: guard must be a Guard"),
        (lambda: audited(compiled="yes").__enter__(), TypeError, "compiled must be True or False, but is"),
        (lambda: audited(device="tpu").__enter__(), ValueError, "must be 'cpu' or 'cuda', but is 'tpu'"),
    ],
)  # fmt: skip
def test_bad_use_is_a_sentence(call, error, text):
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


def test_arguments_that_do_not_fit_raise_as_a_launch_does():
    with pytest.raises(TypeError, match="missing a required argument: 'factor'"):
        audit(lambda x: scale_kernel[(1,)](x, x, 3), X)
    with pytest.raises(TypeError, match="BLOK is neither a parameter of the kernel nor an option"):
        audit(lambda x: scale_kernel[(1,)](x, x, 3, 1.0, None, True, BLOK=3), X)


def test_what_cannot_be_judged_is_counted_and_never_silent():
    class Pointer:
        dtype = None

        def data_ptr(self):
            return 16

    report = audit(lambda x: scale_kernel[(1,)](Pointer(), x, 3, 1.0, None, True, BLOCK=32), X, guard=QUICK)
    assert report.unjudged == ["scale_kernel: X is a Pointer: pass a torch tensor"]


# ---- true sizes


@triton.jit
def rows_kernel(X, Z, stride, N, WIDE: tl.constexpr, AXIS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(AXIS)
    c = tl.arange(0, BLOCK)
    row = row.to(tl.int64) if WIDE else row
    tl.store(Z + row * stride + c, tl.load(X + row * stride + c, mask=c < N), mask=c < N)


@pytest.mark.parametrize("wide, axis, found", [(True, 0, []), (False, 0, ["true size"]), (True, 1, [])])
def test_offsets_beyond_int32_and_axes_beyond_65535(wide, axis, found):
    def rows(x):
        z = torch.empty_like(x)
        grid = (x.shape[0],) if axis == 0 else (1, x.shape[0])
        rows_kernel[grid](x, z, x.stride(0), x.shape[1], wide, axis, BLOCK=128)
        return z

    report = audit(rows, ROWS)
    assert kinds(report)[:1] == found
    assert any(" = " in text and "shape[" in text for text in report.tried)
    if found:
        assert "does not fit int32" in report.findings[0].verdict.message
    if axis:  # a launch that fails loudly is a finding only where hard inputs are asked for
        assert "the grid has 65,536 programs along axis 1" in str(report)
        report = audit(rows, ROWS, hard=True)
        assert kinds(report)[0] == "true size" and "65,535" in str(report.findings[0])


# ---- hard inputs


@triton.jit
def norm_kernel(X, Z, stride, N, SAFE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + c, mask=c < N, other=0.0)
    size = tl.max(tl.abs(x), 0)
    size = tl.where(size == 0, 1.0, size) if SAFE else size
    tl.store(Z + row * N + c, x / size, mask=c < N)


def normed(x, safe):
    z = torch.empty(x.shape)
    norm_kernel[(x.shape[0],)](
        x, z, x.stride(0), x.shape[1], safe, BLOCK=triton.next_power_of_2(x.shape[1] + 1)
    )
    return z


def norm_like(x, safe):
    size = x.abs().amax(-1, keepdim=True)
    return x / torch.where(size == 0, torch.ones_like(size), size)


def test_a_row_of_zeros_shows_only_with_hard_inputs():
    guard = Guard(sizes=False, races=False)
    assert audit(normed, ROWS, False, like=norm_like, guard=guard).ok
    report = audit(normed, ROWS, False, like=norm_like, guard=guard, hard=True)
    assert any("zeros" in finding.on and finding.verdict.kind == "values" for finding in report.findings)


def test_more_seconds_are_more_for_hard_inputs(monkeypatch):
    """The report says so where the time doesn't do."""
    monkeypatch.setattr(auditor, "HARD_SECONDS", 1e-3)
    few, many = (
        audit(
            normed,
            ROWS,
            True,
            like=norm_like,
            hard=True,
            guard=Guard(sizes=False, races=False, seconds=seconds),
        )
        for seconds in (5.0, 1e6)
    )
    (text,) = few.unjudged
    assert "hard inputs" in text and text.endswith("Guard(seconds=...) allows more")
    assert len(few.tried) < 2 < len(many.tried) and not any("time" in text for text in many.unjudged)


TINY = torch.finfo(torch.float32).tiny
HARD = {
    "zeros": lambda x: x.numel() and (x == 0).all(),
    "a row of zeros": lambda x: (x == 0).all(1).sum() == 1,
    "a row of -inf": lambda x: (x == -torch.inf).all(1).sum() == 1,
    "all -inf": lambda x: x.numel() and (x == -torch.inf).all(),
    "inf": lambda x: (x == torch.inf).sum() == 1,
    "-inf": lambda x: (x == -torch.inf).sum() == 1,
    "NaN": lambda x: x.isnan().any(),
    "huge": lambda x: x.isfinite().all() and (x.abs() > 1e15).any(),
    "tiny": lambda x: x.numel() and TINY < x.abs().max() < 1e-12,
    "denormal": lambda x: x.numel() and 0 < x.abs().max() < TINY,
    "ties": lambda x: x.isfinite().all() and len(x.unique()) == 3,
    "one element": lambda x: x.numel() == 1,
    "empty": lambda x: x.numel() == 0,
    "a power of two less 1": lambda x: x.shape[0] == 63,
    "a power of two": lambda x: x.shape[0] == 64,
    "a power of two and 1": lambda x: x.shape[0] == 65,
    "padded rows": lambda x: x.stride(0) > x.shape[1] > 0 and x.stride(1) == 1,
    "not contiguous": lambda x: x.stride(1) > 1,
    "stride 0": lambda x: x.stride(0) == 0,
}


def test_every_hard_input_is_tried(tmp_path):
    told = tmp_path / "told"

    def absolute(x):
        with told.open("a") as file:  # hard inputs are tried in another process
            file.writelines(f"{name}\n" for name, is_hard in HARD.items() if is_hard(x))
        return scaled(x.abs().contiguous().view(-1)).view(x.shape)

    for x in (ROWS.new_ones(40, 1) + torch.arange(40.0).view(40, 1), torch.randn(40, 3), torch.randn(2, 1)):
        report = audit(absolute, x, like=lambda x: 2 * x.abs(), hard=True, guard=Guard(sizes=False))
        assert report.ok and report.compared and len(report.tried) > 15
    assert set(told.read_text().split("\n")[:-1]) == set(HARD)


def test_hard_inputs_that_the_reference_cannot_do_are_no_finding():
    report = audit(normed, ROWS, True, like=norm_like, guard=Guard(sizes=False, races=False), hard=True)
    layout = [f for f in report.findings if "transposed" not in f.on and "stride 0" not in f.on]
    assert [(f.on, f.verdict.message) for f in layout] == []
    assert "x: one NaN" in report.tried and "x: padded rows" in report.tried


def test_a_transposed_input_is_named_with_the_strides_that_the_kernel_gets():
    guard = Guard(sizes=False)
    report = audit(normed, torch.randn(7, 12), True, like=norm_like, guard=guard, hard=True)
    (finding,) = [f for f in report.findings if f.on == "x: transposed in memory"]
    assert "X (1, 7)" in finding.verdict.diagnosis
    assert "assume a stride of 1 along the last axis?" in finding.verdict.diagnosis
    others = [f for f in report.findings if f is not finding]
    assert not any("stride of 1" in f.verdict.diagnosis for f in others)


@pytest.mark.parametrize("like", [None, lambda x: x])
def test_a_fault_does_not_hide_an_offset_that_overflows(like):
    """In ``scaled``, a call with wrong values or a load out of bounds stores at 32-bit offsets, too."""
    found = kinds(audit(lambda x: scaled(x, masked=like is not None), X, like=like))
    assert len(found) == 2 and found[1] == "true size"
    assert found[0] == ("out of bounds" if like is None else "values")


def test_other_values_for_integers_are_the_callers_to_give():
    def taken(x, where):
        z = torch.empty(where.shape)
        take_kernel[(1,)](x, where, z, where.numel(), BLOCK=8)
        return z

    where = torch.tensor([1, 5, 7], dtype=torch.int32)
    vary = {"where": lambda: [torch.tensor([1, 5, 100], dtype=torch.int32)]}
    for hard in (True, False):
        report = audit(taken, X, where, guard=Guard(sizes=False), hard=hard, vary=vary)
        assert [finding.on for finding in report.findings] == ["value 1 of 1 for where"]
    assert report.tried == ["value 1 of 1 for where"]
    with pytest.raises(ValueError, match=r"vary must name arguments \(x, where.*\), but names 'which'"):
        audit(taken, X, where, vary={"which": list})
    with pytest.raises(TypeError, match="vary must have a list of values for where, but has 3"):
        audit(taken, X, where, vary={"where": lambda: 3})


def test_one_number_of_several_that_are_equal_is_varied():
    seen = []

    def copied(x, n, m):
        seen.append((n, m))
        z = torch.zeros(n)
        copied_kernel[(1,)](x, z, n, BLOCK=64)
        return z

    report = audit(copied, X, 8, 8, guard=Guard(sizes=False), vary={"n": [60]}, like=lambda x, n, m: x[:n])
    assert report.ok and seen == [(8, 8)]  # the others are in another process
    report = audit(
        copied, X, 8, 8, guard=Guard(sizes=False), vary={"n": lambda: [60]}, like=lambda x, n, m: x[:m]
    )
    (finding,) = report.findings
    assert finding.on == "n=60" and "shape (60,), but the reference returns shape (8,)" in str(report)


@triton.jit
def copied_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i, mask=i < n), mask=i < n)


@triton.jit
def take_kernel(X, Where, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.load(Where + i, mask=i < n, other=0)
    tl.store(Z + i, tl.load(X + at, mask=i < n), mask=i < n)


# ---- as on a GPU


def test_code_that_asks_for_a_gpu_runs_and_afterwards_there_is_none():
    before = torch.cuda.is_available()
    with audited(device="cuda") as report:
        assert torch.cuda.is_available() and torch.cuda.get_device_properties(0).multi_processor_count == 132
        x = torch.randn(3, 50, device="cuda", dtype=torch.float16).cuda()
        with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
            z = softmax(x.float())
        torch.cuda.synchronize()
        assert z.is_cuda and z.device == torch.device("cuda", 0) and z.get_device() == 0
        assert triton.testing.do_bench(lambda: softmax(x.float())) == 1.0
        model = torch.nn.Linear(4, 4).to("cuda")
        assert next(model.parameters()).is_cuda
        torch.testing.assert_close(z.cpu(), torch.softmax(x.float(), -1).cpu())
    assert report.ok and len(report.launches) == 2
    assert torch.cuda.is_available() is before and not torch.zeros(1).is_cuda


def test_findings_do_not_stop_a_block():
    with audited() as report:
        scale_kernel[(4,)](X, torch.empty(100), 100, 2.0, None, False, BLOCK=32)
        scale_kernel[(4,)](X, torch.empty(100), 100, 2.0, None, True, BLOCK=32)
    assert [launch.status for launch in report.launches] == ["FINDING", "ok"]


def test_a_grid_too_large_is_sampled_and_says_so(monkeypatch):
    monkeypatch.setattr(running, "group_of", lambda module: 0)  # one by one, it takes seconds
    with audited(guard=Guard(seconds=0.2)) as report:
        x = torch.ones(1 << 16)
        scale_kernel[(1 << 14,)](x, x, x.numel(), 1.0, None, True, BLOCK=4)
    (launch,) = report.launches
    assert launch.status == "unjudged" and launch.outcome.programs < launch.outcome.of == 1 << 14
    assert "too large to run completely" in report.unjudged[0] and "the rest not judged" in str(report)


def test_a_launch_can_be_looked_at():
    with audited() as report:
        softmax_kernel[(2,)](torch.empty(2, 100), ROWS, 100, 100, 0.0, BLOCK=128)
    launch = report.launches[0]
    assert "stride  given  int32               100" in repr(launch.watch(1))
    assert "Out  stored: 200 of 200 elements" in repr(launch.trace())
    assert "sm_90" in repr(launch.stages())


@pytest.mark.parametrize("grid, words", [((0,), "has an empty grid"), ((1, 70_000), "the report says why")])
def test_a_launch_without_a_program_cannot_be_played(grid, words):
    with audited() as report:
        scale_kernel[grid](X, torch.empty_like(X), 100, 1.0, None, True, BLOCK=32)
    for look in (report.launches[0].watch, report.launches[0].trace):
        with pytest.raises(ValueError, match=words):
            look()


def test_a_result_as_a_whole_has_a_line_for_code_hosts():
    report = audit(scaled, X, like=lambda x: x + 1, guard=QUICK)
    (result,) = report.sarif()["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("test_audit.py") and place["region"]["startLine"] > 1


# ---- its doors

MODULE = """
import torch, triton, triton.language as tl

@triton.jit
def copy_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i), mask=i < n)

def copied(x):
    z = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 32),)](x, z, x.numel(), BLOCK=32)
    return z

def like(x):
    return x.clone()

def ragged():
    return (torch.ones(100, device="cpu"),)

def even():
    return {"x": torch.ones(64)}
"""

TESTS = """
import pytest, torch
from kernels_of_mine import copied

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

@pytest.mark.parametrize("n", [64, 100])
def test_copy(n):
    x = torch.randn(n, device="cuda")
    assert x.is_cuda
    torch.testing.assert_close(copied(x), x)
"""


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "kernels_by_command.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "kernels_by_command"
    assert main([f"{name}:copied", "--inputs", f"{name}:even", "--like", f"{name}:like", "--no-sizes"]) == 0
    files = ["--json", "report.json", "--sarif", "report.sarif"]
    assert main([f"{name}:copied", "--inputs", f"{name}:ragged", *files, "--no-sizes"]) == 1
    assert "out of bounds: copy_kernel" in capsys.readouterr().out
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["ok"] is False and told["launches"][0]["kernel"] == "copy_kernel"
    (result,) = json.loads((tmp_path / "report.sarif").read_text())["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]
    assert region["artifactLocation"]["uri"] == f"{name}.py" and region["region"]["startLine"] == 7
    assert main([f"./{name}.py:copied", "--inputs", f"{name}:even", "--no-sizes"]) == 0
    capsys.readouterr()
    for bad, words in {
        f"{name}:nothing": "has no nothing",
        "nowhere:f": "no module nowhere in the current folder",
        "../nowhere.py:f": "is not in the current folder",
        "copied": "is not of the form module:function",
        f"{name}:torch": "must be a function, but is",
    }.items():
        assert main([bad, "--inputs", f"{name}:even"]) == 2
        told = capsys.readouterr().err
        assert words in told and "Traceback" not in told
    assert main([f"{name}:copied", "--inputs", f"{name}:even", "--json", "nowhere/report.json"]) == 2
    assert "--json is 'nowhere/report.json', but its folder does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("function, inputs", [("broken", "even"), ("copied", "broken")])
def test_an_error_of_the_users_is_no_finding(tmp_path, monkeypatch, capsys, function, inputs):
    name = f"kernels_{function}_{inputs}"
    broken = "\ndef broken(*args, **kwargs):\n    raise RuntimeError('there are no data')\n"
    (tmp_path / f"{name}.py").write_text(MODULE + broken)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([f"{name}:{function}", "--inputs", f"{name}:{inputs}"]) == 2
    told = capsys.readouterr().err
    assert "in broken" in told and told.endswith("RuntimeError: there are no data\n")


FIXTURES = """
import pytest, torch
from kernels_of_mine import copied, copy_kernel

EVEN = copied(torch.ones(64, device="cuda"))

@pytest.fixture(scope="module")
def ragged():
    return copied(torch.ones(100, device="cuda"))

@pytest.fixture
def late():
    yield
    copied(torch.ones(64, device="cuda"))

def test_import():
    assert EVEN.is_cuda and (EVEN == 1).all()

def test_fixture(ragged):
    pass

def test_teardown(late):
    pass
"""
LAUNCHES = "\nWIDE = copied(torch.ones(100, device='cuda'))\n"


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "xdist"])
def test_launches_of_fixtures_and_imports_are_audited(tmp_path, workers):
    (tmp_path / "kernels_of_mine.py").write_text(MODULE)
    (tmp_path / "test_fixtures.py").write_text(FIXTURES)
    if not workers:
        (tmp_path / "test_wide.py").write_text(TESTS + LAUNCHES)
    done = audited_suite(tmp_path, *workers, "--continue-on-collection-errors")
    errors, launches = ("1 error", "2 launches") if workers else ("2 errors", "4 launches")
    assert f"2 passed, {errors}" in done.stdout, done.stdout
    assert "test_fixture, setup: 1 finding in 1 launch" in done.stdout
    assert workers or "test_wide.py, import: 1 finding in 1 launch" in done.stdout
    assert f"{launches} in 2 tests: " in done.stdout and "with a finding, 0 not judged" in done.stdout


@pytest.mark.parametrize("seconds", ["0", "nan", "-1"])
def test_seconds_of_a_suite_are_above_0(tmp_path, seconds):
    command = [sys.executable, "-m", "pytest", *options(), "--audit", "--audit-seconds", seconds]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 4 and f"it must be a number above 0, but is {seconds}" in done.stderr


def test_a_suite_of_gpu_tests(tmp_path):
    (tmp_path / "kernels_of_mine.py").write_text(MODULE)
    (tmp_path / "test_mine.py").write_text(TESTS)
    done = audited_suite(tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "2 launches in 2 tests: 1 clean, 1 with a finding, 0 not judged, or only in part" in done.stdout
    assert "out-of-bounds load of X in program 3: elements 100..127" in done.stdout


MARKED = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def last_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Z + i * 0, tl.load(X + i, mask=i < n) + i)  # a race

@triton.jit
def tile_kernel(X, Z, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(X, [8, 8], [8, 1], [8, 8])
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.sum(x.load([0, 0])))

def last(device="cuda"):
    last_kernel[(1,)](torch.ones(8, device=device), torch.zeros(1, device="cuda"), 8, BLOCK=8)

def test_found():
    last()

def test_cpu():
    last("cpu")

@pytest.mark.audit(races=False)
class TestMarked:
    def test_not_found(self):
        last()

    @pytest.mark.audit(races=True, bounds="storage")
    def test_found(self):
        last()

@pytest.mark.audit(hard=True)
def test_of_calls():
    last()

@pytest.mark.audit(race=True)
def test_misspelled():
    last()

@pytest.mark.audit(seconds=0.02)
def test_both():
    z = torch.zeros(320_000, device="cuda")
    tile_kernel[(10_000,)](torch.ones(8, 8, device="cuda"), z, BLOCK=32)
"""


def test_switches_for_one_test(tmp_path):
    (tmp_path / "test_marked.py").write_text(MARKED)
    done = audited_suite(tmp_path, "--strict-markers", "-rA")
    told = {line for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))}
    assert sum("PASSED" in line for line in told) == 1 and "TestMarked::test_not_found" in str(told)
    assert "hard needs audit(function, ...): call that in the test" in done.stdout
    assert "pytest.mark.audit: Guard.__init__() got an unexpected keyword argument 'race'" in done.stdout
    assert "X is on the CPU, and a GPU can't access it" in done.stdout
    assert "has no allocator" in done.stdout and "not judged: tile_kernel: " in done.stdout
    assert done.stdout.count("ERROR at teardown") == 0
    assert "5 launches in 5 tests: 1 clean, 4 with a finding, 1 not judged, or only in part" in done.stdout


def _written(path, text):
    path.write_text(text)
    return path


def test_the_page_for_practitioners_shows_what_is_printed_today(tmp_path, monkeypatch, capsys):
    page = (ROOT / "AUDIT.md").read_text()
    code, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    first, second, _ = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    mended = re.sub(r"(tl\.load\(.*mask=cols < N)\)", r"\1, other=0.0)", code)
    mended = mended.replace("row = tl.program_id(0)", "row = tl.program_id(0).to(tl.int64)")
    monkeypatch.chdir(tmp_path)
    for text, shown in ((code, first), (mended, second)):
        Path("norm.py").write_text(text)
        linecache.checkcache()
        runpy.run_path(str(tmp_path / "norm.py"), run_name="__main__")
        assert capsys.readouterr().out == shown
    assert f"stops after {MOST_FINDINGS} findings, or after {HARD_SECONDS:.0f} seconds" in page
    module = runpy.run_path(str(tmp_path / "norm.py"))
    broken = runpy.run_path(str(_written(tmp_path / "first.py", code)))
    assert capsys.readouterr().out == ""
    with_hard = [audit(each["rms_norm"], *each["inputs"](), hard=True) for each in (broken, module)]
    assert [len(report.findings) for report in with_hard] == [2, 3]  # what is new, not one per hard input


# ---- launches that Triton refuses


def launched(x, *, grid=(4,), out=torch.empty_like, **options):
    z = out(x)
    scale_kernel[grid](x, z, x.numel(), 2.0, None, True, BLOCK=32, **options)
    return z


@pytest.mark.parametrize("grid", [4, (4.0,), (X.numel() / 32,)])
def test_a_grid_that_is_no_tuple_of_integers_raises_as_on_a_gpu(grid):
    with pytest.raises(TypeError, match="must be a tuple of integers"):
        audit(launched, X, grid=grid)


def test_a_grid_may_be_of_other_integers():
    assert audit(launched, X, grid=(torch.tensor(4),), guard=QUICK).ok


@pytest.mark.parametrize("warps, told", [(3, "must be a power of 2"), (64, "2,048 threads")])
def test_a_number_of_warps_that_no_gpu_takes(warps, told):
    (finding,) = audit(launched, X, num_warps=warps).findings
    assert told in finding.verdict.message


@pytest.mark.parametrize("option", ["device", "device_type", "stream"])
def test_options_that_triton_takes_no_more(option):
    with pytest.raises(TypeError, match=option):
        audit(launched, X, **{option: 0})


@triton.jit
def small_blocks_kernel(X, Z, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 512)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)


@pytest.mark.parametrize("small, large, kind", [(64, 512, ""), (64, 128, ""), (1, 64, "launch"), (4, 64, "")])
def test_autotune_skips_what_does_not_compile_but_no_grid_that_is_too_large(small, large, kind):
    configs = [triton.Config({"BLOCK": size}) for size in (small, large)]
    tuned = triton.autotune(configs, key=["n"])(small_blocks_kernel)

    def twice(x):
        z = torch.empty_like(x)
        tuned[lambda meta: (1, triton.cdiv(x.numel(), meta["BLOCK"]))](x, z, x.numel())
        return z

    report = audit(twice, torch.ones(66_000 if kind else 100), like=doubled, guard=QUICK)
    assert kinds(report) == [kind] * bool(kind)


# ---- arguments


def test_arguments_that_overlap_overlap_in_the_audit():
    whole = torch.arange(101.0)

    def shifted(x, z):
        scale_kernel[(4,)](x, z, 100, 1.0, None, True, BLOCK=32)

    report = audit(shifted, whole[:-1], whole[1:], guard=QUICK)
    assert kinds(report) == ["race"] and whole.tolist() == list(range(101))


@pytest.mark.parametrize(
    "tensor", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")], ids=["sparse", "meta"]
)
def test_tensors_that_are_not_dense_are_named(tensor):
    with pytest.raises(ValueError, match="audit: an argument must be a dense tensor on the CPU, but is a .*"):
        audit(launched, tensor)


def test_an_audit_in_an_audit():
    inner = []

    def outer(x):
        inner.append(audit(launched, x, guard=QUICK))
        return launched(x)

    assert audit(outer, X, guard=QUICK).ok and inner[0].ok


def test_a_dtype_that_no_kernel_takes_is_not_judged():
    report = audit(launched, torch.ones(100, dtype=torch.complex64), guard=QUICK)
    assert not report.findings and "complex64" in report.unjudged[0]


def test_audits_of_several_threads_leave_nothing_behind():
    was = triton.JITFunction.run, torch.cuda.is_available, triton.testing.do_bench
    reports = []
    threads = [
        threading.Thread(target=lambda: reports.append(audit(launched, X, guard=QUICK))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert was == (triton.JITFunction.run, torch.cuda.is_available, triton.testing.do_bench)
    assert [report.ok for report in reports] == [True] * 3


@triton.jit
def sums_kernel(X, Offsets, Z, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for token in range(tl.load(Offsets + row), tl.load(Offsets + row + 1)):
        total += tl.load(X + token.to(tl.int64) * D + i, mask=i < D, other=0.0)
    tl.store(Z + row.to(tl.int64) * D + i, total, mask=i < D)


def test_hard_sizes_leave_out_what_offsets_say():
    """Neither their number, 2, nor the last one, 9, is a size that can be changed alone."""

    def sums(x, offsets, z):
        x = x.contiguous()
        sums_kernel[(z.shape[0],)](x, offsets, z, x.shape[1], triton.next_power_of_2(max(x.shape[1], 1)))

    def like(x, offsets, z):
        z[:] = torch.stack([x[a:b].sum(0) for a, b in zip(offsets[:-1], offsets[1:], strict=True)])

    given = torch.randn(9, 20), torch.tensor([0, 4, 9]), torch.zeros(2, 20)
    report = audit(sums, *given, like=like, hard=True, guard=Guard(contiguous=("z",)))
    assert report.ok, report


@triton.jit
def halves_kernel(X, Z, N, PADDED: tl.constexpr, APART: tl.constexpr, BLOCK: tl.constexpr):
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    x = tl.make_block_ptr(X + row * N, (N,), (1,), (part * BLOCK,), (BLOCK,), (0,))
    z = tl.make_block_ptr(Z + row * N, (N,), (1,), (part * BLOCK if APART else 0,), (BLOCK,), (0,))
    if PADDED:
        tl.store(z, tl.load(x, boundary_check=(0,), padding_option="zero"), boundary_check=(0,))
    else:
        tl.store(z, tl.load(x, boundary_check=(0,)), boundary_check=(0,))


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_undefined_lanes_hide_no_race_and_no_element_that_is_never_written(padded, apart):
    def halves(x):
        z = torch.empty_like(x)
        halves_kernel[(2, len(x))](x, z, x.shape[1], padded, apart, BLOCK=16)
        return z

    report = audit(halves, torch.randn(3, 20), guard=QUICK)
    kinds = [each.verdict.kind for each in report.findings]
    if apart:
        assert not kinds
    else:
        assert kinds == ["uninitialized"] * (not padded) + ["race", "never written"]
        race, missing = report.findings[-2:]
        assert "write different values to Z[0, 0]" in race.verdict.message
        assert race.verdict.site.source.startswith("tl.store(z, ")
        assert "12 of 60 elements of the result are never written" in missing.verdict.message


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return 3 * x

    @staticmethod
    def backward(ctx, grad):
        return scaled(grad, ctx.factor), None


@pytest.mark.parametrize("factor", [3.0, 2.0])
@pytest.mark.parametrize("leaf", [True, False])
def test_a_reference_may_ask_for_gradients(factor, leaf):
    def gradient(x, grad, function):
        x = x if leaf else x.detach().requires_grad_(True)
        function(x).backward(grad)
        return x.grad

    report = audit(
        lambda x, grad: gradient(x, grad, lambda x: Tripled.apply(x, factor)),
        torch.randn(100, requires_grad=leaf),
        torch.randn(100),
        like=lambda x, grad: gradient(x, grad, lambda x: 3 * x),
        guard=QUICK,
    )
    assert [each.verdict.kind for each in report.findings] == ["values"] * (factor == 2.0)


def test_a_reference_may_change_an_argument_that_has_a_gradient():
    def in_place(x):
        with torch.no_grad():
            x.copy_(scaled(x.detach()))

    report = audit(in_place, torch.randn(100, requires_grad=True), like=lambda x: x.mul_(2), guard=QUICK)
    assert report.ok and report.compared


@triton.jit
def weighted_kernel(X, W, Z, stride, N, shift, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + c, mask=c < N)
    tl.store(Z + row * N + c, x * tl.load(W + c * stride, mask=c < N) + shift, mask=c < N)


@pytest.mark.parametrize("strided", [True, False])
def test_a_vector_may_have_a_stride(strided):
    def weighted(x, w):
        x = x.contiguous()
        z = torch.empty_like(x)
        stride = w.stride(0) if strided else 1
        weighted_kernel[(len(x),)](x, w, z, stride, x.shape[1], 0.0, BLOCK=triton.next_power_of_2(x.shape[1]))
        return z

    report = audit(weighted, ROWS, torch.rand(100), like=lambda x, w: x * w, hard=True, guard=QUICK)
    assert report.ok, report
    assert any("does the kernel assume a stride of 1?" in note for note in report.notes) is not strided
    assert {"w: elements of stride 2", "w: elements of stride 0"} <= set(report.tried)


def test_a_fault_of_the_plain_input_is_reported_once():
    def shifted(x, w):
        z = torch.empty_like(x.contiguous())
        weighted_kernel[(len(x),)](
            x.contiguous(), w.contiguous(), z, 1, x.shape[1], 1.0, BLOCK=triton.next_power_of_2(x.shape[1])
        )
        return z

    report = audit(shifted, ROWS, torch.rand(100), like=lambda x, w: x * w, hard=True, guard=QUICK)
    assert [finding.on for finding in report.findings] == [""]


def test_the_headline_counts_inputs_that_were_not_judged_apart():
    report = AuditReport("f", tried=["x = 1", "x = 2"], unjudged=["with x = 1: kernel: no time"])
    report.launches.append(audit(softmax, ROWS, guard=QUICK).launches[0])
    assert report.headline() == "f: 1 launch clean, and 1 of 2 other inputs, the rest not judged"
