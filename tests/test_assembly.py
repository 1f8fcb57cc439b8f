"""Inline assembly that computes is carried out on lanes, as PTX says."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit
from puzzles_lib.runner import assembly

QUICK = Guard(sizes=False)
X = torch.tensor([1.5, -2.0, 0.25, 1e30, -7.75, 3.0, 100.0, -0.5])
I = torch.tensor([0, 1, -1, 7, 2**31 - 1, -(2**31), 1000, -1000], dtype=torch.int32)  # noqa: E741


def registers(text, constraints, *values):
    return assembly.run(text, constraints, [np.asarray(v).view(f"u{np.asarray(v).itemsize}") for v in values])


@pytest.mark.parametrize(
    "text, want",
    [
        ("add.f32 $0, $1, $2;", lambda a, b: a + b),
        ("sub.rn.f32 $0, $1, $2;", lambda a, b: a - b),
        ("mul.ftz.f32 $0, $1, $2;", lambda a, b: a * b),
        ("fma.rn.f32 $0, $1, $2, 0f3F800000;", lambda a, b: (a.double() * b.double() + 1).float()),
        ("max.f32 $0, $1, $2;", torch.maximum),
        ("{ .reg .f32 t; neg.f32 t, $1; abs.f32 $0, t; }", lambda a, b: a.abs()),
        ("ex2.approx.ftz.f32 $0, $1;", lambda a, b: torch.exp2(a.double()).float()),
        ("tanh.approx.f32 $0, $1; // one instruction", lambda a, b: torch.tanh(a.double()).float()),
        ("rcp.approx.f32 $0, $1;", lambda a, b: 1 / a),
        ("add.sat.f32 $0, $1, $2;", lambda a, b: (a + b).clamp(0, 1)),
        (
            "{ .reg .pred p;\n setp.lt.f32 p, $1, $2;\n selp.f32 $0, $1, $2, p; }",
            lambda a, b: torch.where(a < b, a, b),
        ),
    ],
)
def test_floats(text, want):
    y = X.flip(0)
    (got,) = registers(text, "=f,f,f", X.numpy(), y.numpy())
    np.testing.assert_array_equal(got.view(np.float32), want(X, y).numpy())


@pytest.mark.parametrize(
    "text, want",
    [
        ("add.s32 $0, $1, $2;", lambda a, b: a + b),
        ("mul.lo.s32 $0, $1, $2;", lambda a, b: (a.long() * b.long()).int()),
        ("mad.lo.s32 $0, $1, $2, 3;", lambda a, b: (a.long() * b.long() + 3).int()),
        ("and.b32 $0, $1, 0xff;", lambda a, b: a & 255),
        ("xor.b32 $0, $1, $2;", lambda a, b: a ^ b),
        ("not.b32 $0, $1;", lambda a, b: ~a),
        ("shl.b32 $0, $1, 4;", lambda a, b: (a.long() << 4).int()),
        ("shr.s32 $0, $1, 4;", lambda a, b: a >> 4),
        ("shr.s32 $0, $1, 40;", lambda a, b: a >> 31),
        ("shl.b32 $0, $1, 32;", lambda a, b: a * 0),
        ("shr.u32 $0, $1, 4;", lambda a, b: ((a.long() & 0xFFFFFFFF) >> 4).int()),
        ("min.s32 $0, $1, $2;", torch.minimum),
        ("lop3.b32 $0, $1, $2, 0, 0xc0;", lambda a, b: a & b),
        ("prmt.b32 $0, $1, $2, 0x0123;", lambda a, b: torch.from_numpy(a.numpy().byteswap())),
        ("mov.u32 $0, -1;", lambda a, b: a * 0 - 1),
    ],
)  # fmt: skip
def test_integers(text, want):
    other = I.roll(3)
    (got,) = registers(text, "=r,r,r", I.numpy(), other.numpy())
    np.testing.assert_array_equal(got.view(np.int32), want(I, other).numpy())


def test_conversions():
    half = X.clamp(-1000, 1000)
    (got,) = registers("cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", half.numpy(), X.numpy())
    low, high = (got & 0xFFFF).astype(np.uint16), (got >> 16).astype(np.uint16)
    for found, given in ((high, half), (low, X)):
        np.testing.assert_array_equal(found, given.bfloat16().view(torch.int16).numpy().view(np.uint16))
    (got,) = registers("cvt.rn.f16.f32 $0, $1;", "=h,f", half.numpy())
    np.testing.assert_array_equal(got.view(np.float16), half.half().numpy())
    values = np.array([1.9, -1.9, 3e9, -3e9, np.nan, 2.5], np.float32)
    (got,) = registers("cvt.rzi.s32.f32 $0, $1;", "=r,f", values)
    np.testing.assert_array_equal(got.view(np.int32), [1, -1, 2**31 - 1, -(2**31), 0, 2])
    (got,) = registers("cvt.rn.f32.s32 $0, $1;", "=f,r", I.numpy())
    np.testing.assert_array_equal(got.view(np.float32), I.float().numpy())


@pytest.mark.parametrize(
    "text, constraints",
    [
        ("ld.global.f32 $0, [$1];", "=f,f"),
        ("mov.u32 $0, %laneid;", "=r,r"),
        ("@p bra DONE;", "=r,r"),
        ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "=r,r"),
        ("add.f32 $0, $1, t;", "=f,f"),
        ("add.rm.f32 $0, $1, $1;", "=f,f"),
        ("mul.s32 $0, $1, $1;", "=r,r"),
        ("mul.hi.u32 $0, $1, $1;", "=r,r"),
        ("add.f32 $2, $1, $1;", "=f,f"),
        ("add.f32 $0, $1, $1;", "=f,f,f"),
        ("mov.b32 $0, $1;", "=r,m"),
    ],
)
def test_what_is_not_known_is_refused(text, constraints):
    with pytest.raises(assembly.NotKnown):
        registers(text, constraints, I.numpy())


# ---- in kernels


@triton.jit
def computing_kernel(x, y, z, n, TEXT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n, other=0.0), tl.load(y + i, mask=i < n, other=0.0)
    c = tl.inline_asm_elementwise(TEXT, "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(z + i, c, mask=i < n)


@triton.jit
def packed_kernel(x, z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    low = tl.inline_asm_elementwise(
        "and.b32 $0, $1, 0x0F0F0F0F;", "=r,r", [tl.load(x + i)], dtype=tl.int8, is_pure=True, pack=4
    )
    tl.store(z + i, low)


@triton.jit
def two_results_kernel(x, y, z, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    sums, products = tl.inline_asm_elementwise(
        "{ .reg .b32 t; mov.b32 t, $2; add.s32 $0, t, $3; mul.lo.s32 $1, t, $3; }",
        "=r,=r,r,r", [tl.load(x + i), tl.load(y + i)], dtype=(tl.int32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(z + i, sums - products)


@triton.jit
def unmasked_kernel(x, z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    v = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(z, tl.sum(v))


def computed(x, y, text="fma.rn.f32 $0, $1, $2, $1;"):
    z = torch.empty_like(x)
    computing_kernel[(1,)](x, y, z, x.numel(), text, BLOCK=128)
    return z


def test_a_kernel_with_assembly_is_judged():
    x, y = torch.randn(100), torch.randn(100)
    report = audit(computed, x, y, like=lambda x, y: x * y + x, guard=QUICK)
    assert report.ok and report.compared and not report.unjudged
    wrong = audit(computed, x, y, like=lambda x, y: x * y - x, guard=QUICK)
    assert "wrong values" in str(wrong)
    report = audit(computed, x, y, "shfl.sync.up.b32 $0, $1, 1, 0, -1;", guard=QUICK)
    assert "inline assembly (shfl.sync.up.b32 $0, $1, 1, 0, -1)" in str(report) and report.unjudged


def test_packed_elements_and_several_results():
    def low_bits(x):
        z = torch.empty_like(x)
        packed_kernel[(1,)](x, z, x.numel(), BLOCK=128)
        return z

    x = torch.randint(-128, 128, (128,), dtype=torch.int8)
    report = audit(low_bits, x, like=lambda x: x & 15, guard=QUICK)
    assert report.ok and report.compared, report

    def both(x, y):
        z = torch.empty_like(x)
        two_results_kernel[(1,)](x, y, z, BLOCK=8)
        return z

    assert audit(both, I, I.roll(1), like=lambda x, y: x + y - x * y, guard=QUICK).ok


def test_undefined_lanes_go_through_assembly():
    def function(x):
        z = torch.empty(1)
        unmasked_kernel[(1,)](x, z, x.numel(), BLOCK=128)
        return z

    assert "a lane that the load of x masks off" in str(audit(function, torch.randn(100), guard=QUICK))
