"""bfloat16 in the guarded interpreter is torch's: computed in float32, rounded once, to nearest even.

Triton's own interpreter computes on the raw bits.
"""

import re

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.compiler import find_target, front_end, translate
from tests.kernel_lab import evaluate, execute, kernel_of

B16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
EVERY = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(B16)  # all 65536 values

# Zeros, subnormals, the smallest and largest normals, one and its neighbours, infinities, NaN.
_BITS = [0x0000, 0x0001, 0x007F, 0x0080, 0x0081, 0x3F7F, 0x3F80, 0x3F81, 0x4049, 0x7F7F, 0x7F80, 0x7FC0]
_BITS += [0x3DCD, 0x4180, 0x4380, 0x5F00]
SPECIAL = torch.tensor(_BITS + [b | 0x8000 for b in _BITS], dtype=torch.int32).to(torch.int16).view(B16)
PAIRS = torch.cartesian_prod(torch.arange(32), torch.arange(32))
torch.manual_seed(0)
LEFT = torch.cat([SPECIAL[PAIRS[:, 0]], torch.randn(1024).to(B16)])
RIGHT = torch.cat([SPECIAL[PAIRS[:, 1]], torch.randn(1024).to(B16)])
SIZE = len(LEFT)


def identical(got: torch.Tensor, want: torch.Tensor) -> None:
    """Bit for bit, -0.0 apart from 0.0; but one NaN is as good as another."""
    assert got.dtype == want.dtype and got.shape == want.shape
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64, 1: torch.int8}[got.dtype.itemsize]
    different = got.view(bits) != want.view(bits)
    if got.is_floating_point():
        different &= ~(got.isnan() & want.isnan())
    places = different.nonzero().flatten()[:5]
    assert not different.any(), f"at {places.tolist()}: got {got[places]}, want {want[places]}"


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("x + y", torch.add),
        ("x - y", torch.sub),
        ("x * y", torch.mul),
        ("x / y", lambda x, y: x.float() / y.float()),  # division of bfloat16 gives float32
        ("-x", lambda x, _: 0 - x),
        ("x < y", torch.lt),
        ("x <= y", torch.le),
        ("x > y", torch.gt),
        ("x >= y", torch.ge),
        ("x == y", torch.eq),
        ("x != y", torch.ne),
        ("tl.where(x < y, x, y)", lambda x, y: torch.where(x < y, x, y)),
        ("tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", torch.maximum),
        ("tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)", torch.minimum),
        ("tl.fma(x, y, x)", lambda x, y: (x.double() * y.double() + x.double()).to(B16)),
        ("tl.abs(x)", lambda x, _: x.abs()),
        ("x.abs()", lambda x, _: x.abs()),
        ("x * 0.1", lambda x, _: x * torch.tensor(0.1, dtype=B16)),
        ("x + 1", lambda x, _: x + torch.tensor(1.0, dtype=B16)),
        ("x + y.to(tl.float32)", lambda x, y: x.float() + y.float()),
        ("(x > 0) & (y > 0)", lambda x, y: (x > 0) & (y > 0)),
        ("(x > y).to(tl.bfloat16)", lambda x, y: (x > y).to(B16)),
        ("x", lambda x, _: x),
        ("(x + y) * x - y", lambda x, y: (x + y) * x - y),
    ],
)
def test_elementwise_operations_are_torchs_bit_for_bit(expression, by_torch):
    want = by_torch(LEFT, RIGHT)
    identical(evaluate(expression, LEFT, RIGHT, shape=(SIZE,), dtype=want.dtype), want)


@pytest.mark.parametrize("expression, by_torch", [("maximum", torch.fmax), ("minimum", torch.fmin)])
def test_maximum_and_minimum_drop_nan_as_a_gpu_does(expression, by_torch):
    got = evaluate(f"tl.{expression}(x, y)", LEFT, RIGHT, shape=(SIZE,), dtype=B16)
    want = by_torch(LEFT.float(), RIGHT.float()).to(B16)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_clamp():
    got = evaluate("tl.clamp(x, -1.5, 2.5)", SPECIAL, shape=(32,), dtype=B16)
    want = SPECIAL.clamp(-1.5, 2.5)
    assert torch.equal(got[~SPECIAL.isnan()], want[~SPECIAL.isnan()]) and (got[SPECIAL.isnan()] == -1.5).all()
    got = evaluate(
        "tl.clamp(x, -1.5, 2.5, propagate_nan=tl.PropagateNan.ALL)", SPECIAL, shape=(32,), dtype=B16
    )
    assert torch.equal(got.isnan(), SPECIAL.isnan())


# ---- casts


def test_widening_is_exact_for_every_value():
    identical(evaluate("x.to(tl.float32)", EVERY, shape=(65536,), dtype=F32), EVERY.float())
    identical(evaluate("x.to(tl.float64)", SPECIAL, shape=(32,), dtype=F64), SPECIAL.double())


def around_every_value() -> torch.Tensor:
    """float32 just below, at and above each bfloat16's lower neighbour's tie."""
    upper = torch.arange(0, 2**16, 8, dtype=torch.int64)
    lower = torch.tensor([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x4000, 0xC000])
    return (upper[:, None] * 2**16 + lower).flatten().to(torch.int32).view(F32)


def test_narrowing_rounds_to_nearest_even():
    x = around_every_value()
    identical(evaluate("x.to(tl.bfloat16)", x, shape=(65536,), dtype=B16), x.to(B16))


def test_a_store_rounds_too():
    x = around_every_value()
    identical(evaluate("x", x, shape=(65536,), dtype=B16), x.to(B16))


def test_rounding_towards_zero_cuts_off():
    x = around_every_value()
    got = evaluate("x.to(tl.bfloat16, fp_downcast_rounding='rtz')", x, shape=(65536,), dtype=B16)
    want = (x.view(torch.int32) & -(2**16)).view(F32).to(B16)
    identical(got, torch.where(x.isnan(), torch.tensor(float("nan"), dtype=B16), want))
    nearest = evaluate("x.to(tl.bfloat16, fp_downcast_rounding='rtne')", x, shape=(65536,), dtype=B16)
    identical(nearest, x.to(B16))


@pytest.mark.parametrize(
    "source, target, tl_target",
    [
        (F16, B16, "bfloat16"),
        (F64, B16, "bfloat16"),
        (torch.int8, B16, "bfloat16"),
        (torch.int32, B16, "bfloat16"),
        (torch.int64, B16, "bfloat16"),
        (torch.uint8, B16, "bfloat16"),
        (torch.bool, B16, "bfloat16"),
        (B16, F16, "float16"),
        (B16, torch.int32, "int32"),
        (B16, torch.int64, "int64"),
        (B16, torch.bool, "int1"),
    ],
)
def test_casts_agree_with_torch(source, target, tl_target):
    x = torch.randn(1024) * 100
    x[:4] = torch.tensor([0.0, -0.0, 257.0, -3.5])
    x = (x * 1e5 if source in (torch.int32, torch.int64) else x).to(source)
    identical(evaluate(f"x.to(tl.{tl_target})", x, shape=(1024,), dtype=target), x.to(target))


def test_bitcasts_keep_the_bits():
    bits = SPECIAL.view(torch.int16)
    identical(evaluate("x.to(tl.int16, bitcast=True)", SPECIAL, shape=(32,), dtype=torch.int16), bits)
    identical(evaluate("x.to(tl.bfloat16, bitcast=True)", bits, shape=(32,), dtype=B16), SPECIAL)


# ---- functions: Triton's want float32, as methods they take bfloat16 too


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf"])
def test_functions_compute_in_float32_and_round_once(name):
    x = torch.cat(
        [torch.rand(240).to(B16) * 4, torch.tensor([0.0, 1.0, float("inf"), float("nan")] * 4).to(B16)]
    )
    want = getattr(torch, name)(x)
    for expression in (f"tl.{name}(x.to(tl.float32)).to(tl.bfloat16)", f"x.{name}()"):
        got = evaluate(expression, x, shape=(256,), dtype=B16)
        # float32 libraries differ in their last bit, which moves one rounding in thousands
        assert int((got != want)[~want.isnan()].sum()) <= 1 and torch.equal(got.isnan(), want.isnan())
        torch.testing.assert_close(got, want, rtol=2**-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["sqrt", "floor", "ceil"])
def test_exact_functions(name):
    x = EVERY[: 2**15] if name == "sqrt" else EVERY[::2].contiguous()
    identical(evaluate(f"x.{name}()", x, shape=(2**15,), dtype=B16), getattr(torch, name)(x))


@triton.jit
def wants_float32(x_ptr, z_ptr):
    tl.store(z_ptr, tl.exp(tl.load(x_ptr)))


def test_a_function_that_wants_float32_says_so():
    refusal = front_end(wants_float32, {"x_ptr": torch.ones(1, dtype=B16), "z_ptr": torch.zeros(1)})
    assert "tl.exp needs float32 and float64, but this is bfloat16" in refusal.message


# ---- along an axis


def tree(x: torch.Tensor) -> torch.Tensor:
    """Sum of the last axis by neighbouring pairs, rounded at each step."""
    while x.shape[-1] > 1:
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def test_sums_round_at_every_step():
    x = torch.randn(16, 256).to(B16)
    identical(evaluate("tl.sum(x, 1)", x, shape=(16,), dtype=B16), tree(x))
    identical(evaluate("tl.sum(x, 0)", x, shape=(256,), dtype=B16), tree(x.t()))
    assert evaluate("tl.sum(x)", torch.ones(1024).to(B16), shape=(), dtype=B16) == 1024
    wide = evaluate("tl.sum(x.to(tl.float32), 1)", x, shape=(16,), dtype=F32)
    torch.testing.assert_close(wide, x.float().sum(1))


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("tl.max(x, 1)", lambda x: x.amax(1).float()),
        ("tl.min(x, 0)", lambda x: x.amin(0).float()),
        ("tl.argmax(x, 1)", lambda x: x.argmax(1)),
        ("tl.max(x, 1, return_indices=True)[0]", lambda x: x.amax(1).float()),
        ("tl.cumsum(x, 1)", lambda x: x.float().cumsum(1)),
        ("tl.sort(x)", lambda x: x.sort(1).values),
        ("tl.flip(x, 1)", lambda x: x.flip(1)),
        ("tl.trans(x)", lambda x: x.t().contiguous()),
        ("tl.join(x, x)", lambda x: torch.stack([x, x], -1)),
        ("tl.broadcast_to(x[None], (2, 4, 8))", lambda x: x.expand(2, 4, 8).contiguous()),
        ("tl.where(x > 0, x, 0.0)", lambda x: torch.where(x > 0, x, torch.zeros_like(x))),
        (
            "tl.softmax(x.to(tl.float32), 1, keep_dims=True).to(tl.bfloat16)",
            lambda x: x.float().softmax(1).to(B16),
        ),
    ],
)
def test_reductions_and_shapes(expression, by_torch):
    x = torch.randperm(32).reshape(4, 8).to(B16) - 15
    want = by_torch(x)
    got = evaluate(expression, x, shape=tuple(want.shape), dtype=want.dtype)
    torch.testing.assert_close(got, want, rtol=1e-6 if "softmax" in expression else 0, atol=0)


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def product(a, b):
    return a * b


def test_reductions_with_a_combine_function():
    x = torch.randn(8, 64).to(B16)
    identical(evaluate("tl.reduce(x, 1, add)", x, shape=(8,), dtype=B16, names={"add": add}), tree(x))
    signs = torch.where(torch.rand(64) < 0.5, -1.0, 1.0).to(B16)
    got = evaluate("tl.associative_scan(x, 0, f)", signs, shape=(64,), dtype=B16, names={"f": product})
    identical(got, signs.cumprod(0))


# ---- products


@pytest.mark.parametrize("shape", [(16, 32, 16), (4, 64, 8)])
def test_dots_accumulate_in_float32(shape):
    m, k, n = shape
    x, y = torch.randn(m, k).to(B16), torch.randn(k, n).to(B16)
    torch.testing.assert_close(evaluate("tl.dot(x, y)", x, y, shape=(m, n), dtype=F32), x.float() @ y.float())
    w = torch.randn(m, n) * 1000
    got = evaluate("tl.dot(x, y, acc=w)", x, y, w, shape=(m, n), dtype=F32)
    torch.testing.assert_close(got, x.float() @ y.float() + w)


def test_a_dot_of_whole_numbers_is_exact():
    x, y = torch.randint(-8, 8, (16, 64)).to(B16), torch.randint(-8, 8, (64, 16)).to(B16)
    identical(evaluate("tl.dot(x, y)", x, y, shape=(16, 16), dtype=F32), x.float() @ y.float())
    got = evaluate("tl.dot(x, y).to(tl.bfloat16)", x, y, shape=(16, 16), dtype=B16)
    identical(got, (x.float() @ y.float()).to(B16))


# ---- constants, loads, atomics


@pytest.mark.parametrize("value", [1.1, 0.0, 3.4e38, *map(float, ("inf", "-inf", "nan")), 7])
def test_constants(value):
    literal = f"float('{value}')" if isinstance(value, float) else str(value)
    want = torch.full((4,), value, dtype=F32).to(B16)
    identical(evaluate(f"tl.full((4,), {literal}, tl.bfloat16)", shape=(4,), dtype=B16), want)
    identical(
        evaluate(f"tl.zeros((4,), tl.bfloat16) + {literal}", shape=(4,), dtype=B16),
        want + torch.zeros(4).to(B16),
    )


@triton.jit
def load_with_other(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N, other=1.1))


def test_what_other_fills_in_is_rounded():
    z = torch.zeros(8, dtype=B16)
    execute(load_with_other, x_ptr=torch.ones(3, dtype=B16), z_ptr=z, N=3, BLOCK=8)
    identical(z, torch.tensor([1.0] * 3 + [1.1] * 5).to(B16))


@triton.jit
def add_up(x_ptr, z_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(z_ptr + tl.zeros((BLOCK,), tl.int32), tl.load(x_ptr + tl.arange(0, BLOCK)))


def test_atomic_additions_round_one_by_one():
    x, z = torch.randn(64).to(B16), torch.zeros(1, dtype=B16)
    execute(add_up, x_ptr=x, z_ptr=z, BLOCK=64)
    want = torch.zeros((), dtype=B16)
    for value in x:
        want = want + value
    assert z[0] == want


def test_constants_are_those_that_the_compiler_writes():
    """It hands bfloat16 constants on as text with six decimals, so that small ones are lost."""
    constants = [2.0**-32, 1e-40, 1.1e-6, 1e-3, 1.2345678, -0.1, 2.0**101, 3.3e38, -0.0]
    stores = [f"    tl.store(z_ptr + {k}, tl.full((), {c!r}, tl.bfloat16))" for k, c in enumerate(constants)]
    kernel = kernel_of("\n".join(["@triton.jit", "def kernel(z_ptr):", *stores, ""]))
    z = torch.empty(len(constants), dtype=B16)
    ir = translate(kernel, {"z_ptr": z}, find_target("sm_90")).ir
    compiled = [float(text) for text in re.findall(r"arith.constant (\S+) : bf16", ir)]
    execute(kernel, z_ptr=z)
    identical(z, torch.tensor(compiled, dtype=B16))
    assert z[0] == z[1] == 0 and z[2] != torch.tensor(1.1e-6, dtype=B16)
