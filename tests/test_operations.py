"""What ``tl.*`` computes in the guarded interpreter, against torch or against what a GPU is known to do."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.compiler import front_end
from tests.kernel_lab import evaluate, execute, kernel_of

INF, NAN = float("inf"), float("nan")
I32, I64, F16, F32, F64 = torch.int32, torch.int64, torch.float16, torch.float32, torch.float64

torch.manual_seed(0)
X = torch.tensor([0.3, -1.7, 2.5, -0.0, 0.0, 8.25, -3.5, 1e-3])
Y = torch.tensor([1.5, 0.4, -2.5, 3.0, -0.7, 2.0, 4.0, 1e4])
W = torch.tensor([[3.0, 1, 4, 1], [5, 9, 2, 6]])
SPECIAL = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-40, 3e38, -1.0])
WHOLE = torch.tensor([7, -7, 8, -8, 1, -1, 2**31 - 1, -(2**31)], dtype=I32)
DIVISOR = torch.tensor([2, 2, -3, -3, 5, 5, 7, 7], dtype=I32)


def same(got: torch.Tensor, want: torch.Tensor, tolerance: float = 0.0) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


# ---- element by element


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("x + y", torch.add),
        ("x - y", torch.sub),
        ("x * y", torch.mul),
        ("x / y", torch.div),
        ("tl.fma(x, y, x)", lambda x, y: (x.double() * y.double() + x.double()).to(x.dtype)),
        ("tl.where(x > y, x, y)", lambda x, y: torch.where(x > y, x, y)),
        ("tl.maximum(x, y)", torch.fmax),
        ("tl.minimum(x, y)", torch.fmin),
        ("max(x, y)", torch.fmax),
        ("min(x, y)", torch.fmin),
        ("tl.clamp(x, -1.0, 2.0)", lambda x, _: x.clamp(-1, 2)),
        ("x.abs()", lambda x, _: x.abs()),
        ("tl.floor(x)", lambda x, _: x.floor()),
        ("tl.ceil(x)", lambda x, _: x.ceil()),
        ("tl.sqrt(tl.abs(x))", lambda x, _: x.abs().sqrt()),
        ("x.sigmoid()", lambda x, _: x.sigmoid()),
        ("tl.exp(x)", lambda x, _: x.exp()),
        ("x.exp()", lambda x, _: x.exp()),
        ("tl.exp2(x)", lambda x, _: x.exp2()),
        ("tl.log(tl.abs(y))", lambda _, y: y.abs().log()),
        ("y.abs().log2()", lambda _, y: y.abs().log2()),
        ("tl.rsqrt(y.abs())", lambda _, y: y.abs().rsqrt()),
        ("tl.sin(x)", lambda x, _: x.sin()),
        ("tl.cos(x)", lambda x, _: x.cos()),
        ("tl.erf(x)", lambda x, _: x.erf()),
        ("libdevice.tanh(x)", lambda x, _: x.tanh()),
        ("libdevice.rint(x)", lambda x, _: x.round()),
        ("libdevice.round(x)", lambda x, _: x.new_tensor([0.0, -2, 3, -0.0, 0, 8, -4, 0])),
        ("libdevice.expm1(x)", lambda x, _: x.expm1()),
        ("libdevice.log1p(x.abs())", lambda x, _: x.abs().log1p()),
        ("libdevice.atan2(x, y)", torch.atan2),
        ("libdevice.pow(y.abs(), x)", lambda x, y: y.abs() ** x),
        ("libdevice.fmod(x, y)", torch.fmod),
        ("libdevice.fma(x, y, x)", lambda x, y: (x.double() * y.double() + x.double()).to(x.dtype)),
        ("libdevice.erfc(x)", lambda x, _: torch.special.erfc(x)),
        ("libdevice.lgamma(y)", lambda _, y: torch.lgamma(y)),
        ("libdevice.normcdf(x)", lambda x, _: torch.special.ndtr(x)),
        ("libdevice.pow(y, i - 2)", lambda _, y: y ** (torch.arange(8) - 2)),
        ("libdevice.fdim(x, y)", lambda x, y: (x - y).clamp(min=0)),
        ("libdevice.div_rn(x, y)", torch.div),
        ("libdevice.sub_rn(x, y)", torch.sub),
        ("libdevice.rcp_rn(y)", lambda _, y: 1 / y),
        ("libdevice.ldexp(x, i)", lambda x, _: x * 2.0 ** torch.arange(8)),
        ("libdevice.sinpi(x)", lambda x, _: torch.sin(torch.pi * x.double()).to(x.dtype)),
        ("x % y", torch.fmod),
    ],
)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_elementwise_operations_agree_with_torch(expression, by_torch, dtype):
    x, y = X.to(dtype), Y.to(dtype)
    got = evaluate(expression, x, y, shape=(8,), dtype=dtype, names={"libdevice": libdevice})
    same(got, by_torch(x, y), 2e-6 if dtype == F32 else 1e-14)


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("x + y", torch.add),
        ("x * y", torch.mul),
        ("x / y", lambda x, y: x.float() / y.float()),
        ("-x", lambda x, _: 0 - x),
        ("x < y", torch.lt),
        ("x <= y", torch.le),
        ("x == y", torch.eq),
        ("x != y", torch.ne),
        ("x >= y", torch.ge),
        ("tl.maximum(x, y)", torch.fmax),
        ("tl.minimum(x, y)", torch.fmin),
        ("tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", torch.maximum),
        ("tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)", torch.minimum),
        ("tl.where(x == x, x, y)", lambda x, y: torch.where(x == x, x, y)),
        ("tl.abs(x)", lambda x, _: x.abs()),
        ("tl.clamp(x, -2.0, 2.0, propagate_nan=tl.PropagateNan.ALL)", lambda x, _: x.clamp(-2, 2)),
    ],
)
@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_special_values(expression, by_torch, dtype):
    x, y = SPECIAL.to(dtype), SPECIAL.flip(0).to(dtype)
    want = by_torch(x, y)
    same(evaluate(expression, x, y, shape=(8,), dtype=want.dtype), want)


def test_relu_of_nan_is_zero_on_a_gpu():
    """PTX's max.f32 drops NaN, unlike torch.relu."""
    assert evaluate("tl.maximum(x, 0.0)", SPECIAL, shape=(8,), dtype=F32)[0] == 0
    assert evaluate("tl.clamp(x, 1.0, 2.0)", SPECIAL, shape=(8,), dtype=F32)[0] == 1


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("x + y", torch.add),
        ("x - y", torch.sub),
        ("x * y", torch.mul),
        ("x // y", lambda x, y: torch.div(x, y, rounding_mode="trunc")),
        ("x % y", torch.fmod),
        ("x / y", lambda x, y: x.float() / y.float()),
        ("x & y", torch.bitwise_and),
        ("x | y", torch.bitwise_or),
        ("x ^ y", torch.bitwise_xor),
        ("~x", lambda x, _: ~x),
        ("x >> 2", lambda x, _: x >> 2),
        ("x >> 31", lambda x, _: x >> 31),
        ("(x >> 28) & 0xF", lambda x, _: (x >> 28) & 0xF),
        ("x << 3", lambda x, _: x << 3),
        ("1 << (y & 7)", lambda _, y: 1 << (y & 7)),
        ("(x.to(tl.uint32, bitcast=True) >> 28).to(tl.int32)", lambda x, _: (x >> 28) & 0xF),
        ("tl.maximum(x, y)", torch.maximum),
        ("tl.minimum(x, y)", torch.minimum),
        ("tl.cdiv(x, 4)", lambda x, _: torch.div(x + 3, 4, rounding_mode="trunc")),
        ("tl.umulhi(x, y)", lambda x, y: (((x.long() & 0xFFFFFFFF) * (y.long() & 0xFFFFFFFF)) >> 32).int()),
        ("x.to(tl.int8).to(tl.int32)", lambda x, _: x.to(torch.int8).int()),
        ("x.to(tl.uint8).to(tl.int32)", lambda x, _: x.to(torch.uint8).int()),
        ("x.to(tl.int64) * y", lambda x, y: x.long() * y),
        ("x.to(tl.float32)", lambda x, _: x.float()),
        ("(x > 0).to(tl.int32)", lambda x, _: (x > 0).int()),
        ("(x > 0) & (y > 0)", lambda x, y: (x > 0) & (y > 0)),
        ("~(x > 0)", lambda x, _: x <= 0),
        ("~((tl.program_id(0) < 1) & (x > 0))", lambda x, _: x <= 0),
        ("((tl.program_id(0) < 1) + (x > 0)).to(tl.int32)", lambda x, _: (x <= 0).int()),
        ("not (x > 0)", lambda x, _: x <= 0),
        ("(x > 0) + (y > 0)", lambda x, y: (x > 0) ^ (y > 0)),  # int1 counts modulo 2
        ("(x > 0) - (y > 0)", lambda x, y: (x > 0) ^ (y > 0)),
        ("(x > 0) * (y > 0)", lambda x, y: (x > 0) & (y > 0)),
        ("(x > 0) // (y > -9)", lambda x, _: x > 0),  # int1 only divides by 1, and shifts by 0
        ("(x > 0) % (y > -9)", lambda x, _: x != x),
        ("((x > 0) << (y < -9)) & ((x > 0) >> (y < -9))", lambda x, _: x > 0),
    ],
)
def test_integers_wrap_truncate_and_shift_as_in_c(expression, by_torch):
    want = by_torch(WHOLE, DIVISOR)
    same(evaluate(expression, WHOLE, DIVISOR, shape=(8,), dtype=want.dtype), want)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
@pytest.mark.parametrize(
    "expression, by_torch", [("x + y", torch.add), ("x * y", torch.mul), ("x >> 1", lambda x, _: x >> 1)]
)
def test_narrow_integers_wrap(expression, by_torch, dtype):
    x, y = WHOLE.to(dtype), torch.tensor([1, 100, 127, -128, 55, 3, 2, 9]).to(dtype)
    same(evaluate(expression, x, y, shape=(8,), dtype=dtype), by_torch(x, y))


def test_float_to_integer_truncates():
    x = torch.tensor([1.9, -1.9, 0.5, -0.5, 1e9, -1e9, 2.0, -0.0])
    same(evaluate("x.to(tl.int32)", x, shape=(8,), dtype=I32), x.to(I32))
    same(evaluate("x.to(tl.int64)", x.double() * 100, shape=(8,), dtype=I64), (x.double() * 100).to(I64))


OUT_OF_RANGE = [300.5, -300.5, 7e4, -7e4, 12582912.0 + 5, INF, -INF, NAN]


@pytest.mark.parametrize(
    "source, target, want",
    [
        (F32, torch.int8, [44, -44, -1, 0, -1, -1, 0, 0]),  # the lower half of an int16
        (F32, torch.uint8, [44, 0, 255, 0, 255, 255, 0, 0]),
        (F32, torch.int16, [300, -300, 32767, -32768, 32767, 32767, -32768, 0]),
        (F32, I32, [300, -300, 70000, -70000, 12582917, 2**31 - 1, -(2**31), 0]),
        (F32, I64, [300, -300, 70000, -70000, 12582917, 2**63 - 1, -(2**63), -(2**63)]),
        (F64, I32, [300, -300, 70000, -70000, 12582917, 2**31 - 1, -(2**31), -(2**31)]),
        (torch.bfloat16, torch.int8, [44, -44, -1, 0, -1, -1, 0, 0]),
    ],
)
def test_float_to_integer_out_of_range_is_clamped_as_by_ptx(source, target, want):
    """Triton compiles these casts to cvt.rzi; LLVM and NumPy leave what they do out of range open."""
    name = str(target).replace("torch.", "tl.")
    x = torch.tensor(OUT_OF_RANGE, dtype=F64).to(source)
    assert evaluate(f"x.to({name})", x, shape=(8,), dtype=target).tolist() == want


@pytest.mark.parametrize(
    "source, target, by_torch", [(F32, "tl.float16", F16), (F64, "tl.float32", F32), (F16, "tl.float32", F32)]
)
def test_float_casts_round_to_nearest_even(source, target, by_torch):
    x = torch.cat(
        [torch.randn(50), SPECIAL, torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 1e-8, 6e-8])]
    )
    x = x.to(source)
    same(evaluate(f"x.to({target})", x, shape=(64,), dtype=by_torch), x.to(by_torch))


def test_bitcasts():
    same(evaluate("x.to(tl.int32, bitcast=True)", X, shape=(8,), dtype=I32), X.view(I32))
    same(evaluate("x.to(tl.float32, bitcast=True)", X.view(I32), shape=(8,), dtype=F32), X)


def test_half_precision_rounds_after_each_operation():
    x, y = torch.randn(64).half(), torch.randn(64).half()
    same(evaluate("x * y + x", x, y, shape=(64,), dtype=F16), (x * y) + x)
    same(evaluate("x * 0.1", x, shape=(64,), dtype=F16), x * torch.tensor(0.1).half())


# ---- along an axis


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("tl.sum(x, 0)", lambda x: x.sum(0)),
        ("tl.sum(x, 1)", lambda x: x.sum(1)),
        ("tl.sum(x, axis=-1)", lambda x: x.sum(1)),
        ("tl.sum(x)", lambda x: x.sum()),
        ("tl.sum(x, 1, keep_dims=True)", lambda x: x.sum(1, keepdim=True)),
        ("tl.sum(x, keep_dims=True)", lambda x: x.sum().reshape(1, 1)),
        ("x.sum(0)", lambda x: x.sum(0)),
        ("x.sum(axis=1)", lambda x: x.sum(1)),
        ("tl.max(x, 1)", lambda x: x.amax(1)),
        ("x.max(0)", lambda x: x.amax(0)),
        ("x.max()", lambda x: x.amax()),
        ("tl.min(x, 1)", lambda x: x.amin(1)),
        ("tl.max(x, 1, return_indices=True)[0]", lambda x: x.amax(1)),
        ("tl.max(x, 1, return_indices=True)[1].to(tl.float32)", lambda x: x.argmax(1).float()),
        ("tl.argmax(x, 1).to(tl.float32)", lambda x: x.argmax(1).float()),
        ("tl.argmin(x, 1).to(tl.float32)", lambda x: x.argmin(1).float()),
        ("x.argmax(0).to(tl.float32)", lambda x: x.argmax(0).float()),
        ("tl.argmax(x, 1, tie_break_left=False).to(tl.float32)", lambda x: x.argmax(1).float()),
        ("tl.cumsum(x, 1)", lambda x: x.cumsum(1)),
        ("tl.cumsum(x, 0)", lambda x: x.cumsum(0)),
        ("x.cumsum(1, reverse=True)", lambda x: x.flip(1).cumsum(1).flip(1)),
        ("tl.cumprod(x, 1)", lambda x: x.cumprod(1)),
        ("tl.softmax(x)", lambda x: x.softmax(0)),
        ("tl.softmax(x, 1, keep_dims=True)", lambda x: x.softmax(1)),
        ("tl.sort(x)", lambda x: x.sort(1).values),
        ("tl.sort(x, descending=True)", lambda x: x.sort(1, descending=True).values),
        ("tl.topk(x, 2)", lambda x: x.topk(2, 1).values),
        ("tl.flip(x, 1)", lambda x: x.flip(1)),
        ("tl.flip(x, 0)", lambda x: x.flip(0)),
        ("tl.trans(x)", lambda x: x.t()),
        ("x.T", lambda x: x.t()),
        ("tl.permute(x, (1, 0))", lambda x: x.t()),
        ("tl.permute(tl.reshape(x, (2, 2, 2)), (2, 0, 1))", lambda x: x.reshape(2, 2, 2).permute(2, 0, 1)),
        ("tl.reshape(x, (4, 2))", lambda x: x.reshape(4, 2)),
        ("x.reshape(8)", lambda x: x.reshape(8)),
        ("tl.ravel(x)", lambda x: x.reshape(8)),
        ("tl.expand_dims(x, 1)", lambda x: x[:, None]),
        ("x[:, None, :] + tl.zeros((2, 2, 4), tl.float32)", lambda x: x[:, None, :].expand(2, 2, 4)),
        ("tl.broadcast_to(x[None], (2, 2, 4))", lambda x: x[None].expand(2, 2, 4)),
        ("tl.join(x, -x)", lambda x: torch.stack([x, -x], -1)),
        ("tl.interleave(x, -x)", lambda x: torch.stack([x, -x], -1).reshape(2, 8)),
        ("tl.split(tl.reshape(x, (4, 2)))[0]", lambda x: x.reshape(4, 2)[:, 0]),
        ("tl.split(tl.reshape(x, (4, 2)))[1]", lambda x: x.reshape(4, 2)[:, 1]),
        ("tl.gather(x, tl.join(i, 3 - i), 1)", lambda x: x.gather(1, torch.tensor([[0, 3], [1, 2]]))),
        ("tl.histogram(tl.ravel(x).to(tl.int32), 16).to(tl.float32)", lambda x: torch.histc(x, 16, 0, 16)),
        ("tl.zeros_like(x) + 1", torch.ones_like),
        ("tl.squeeze(x[None], 0)", lambda x: x),
        ("tl.unsqueeze(x, 0)", lambda x: x[None]),
        ("tl.xor_sum(x.to(tl.int32), 1).to(tl.float32)", lambda x: torch.tensor([7.0, 5 ^ 9 ^ 2 ^ 6])),
        ("tl.reduce_or(x.to(tl.int32), 1).to(tl.float32)", lambda x: torch.tensor([7.0, 5 | 9 | 2 | 6])),
    ],
)  # fmt: skip
def test_reductions_and_shapes_agree_with_torch(expression, by_torch):
    want = by_torch(W)
    same(evaluate(expression, W, shape=tuple(want.shape), dtype=F32), want, 1e-6)


@pytest.mark.parametrize(
    "operand, result, tolerance",
    [(F32, F32, 1e-5), (F16, F32, 1e-5), (torch.int8, I32, 0)],
)
@pytest.mark.parametrize("shape", [(8, 32), (2, 8, 32)])
def test_dots(operand, result, tolerance, shape):
    x = (torch.randn(shape) * 50).to(operand)
    y = (torch.randn(*shape[:-2], 32, 16) * 50).to(operand)
    w = torch.randn(*shape[:-1], 16).to(result)
    dot = "tl.dot(x, y, acc=w, input_precision='ieee', out_dtype=w.dtype)"
    got = evaluate(dot, x, y, w, shape=w.shape, dtype=result)
    torch.testing.assert_close(got, x.to(result) @ y.to(result) + w, rtol=tolerance, atol=tolerance * 1e4)


def test_a_dot_of_float32_rounds_to_tf32_unless_told_otherwise():
    x = torch.eye(16)
    y = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-12, 1 + 2**-11, -3.14159265, 1e30, 1e-30, INF] * 2).repeat(
        16, 1
    )
    y[:8, :] = 1.5  # no infinity times zero in the first rows
    want = torch.tensor([1.0, 1 + 2**-10, 1.0, 1 + 2**-10, -3.140625, 1e30, 1e-30])
    for precision, exact in (
        ("", False),
        (", input_precision='tf32'", False),
        (", input_precision='ieee'", True),
    ):
        got = evaluate(
            f"tl.dot(x, y{precision})", x[:, :], y.nan_to_num(posinf=0), shape=(16, 16), dtype=F32
        )[9, :7]
        if exact:
            same(got, y[9, :7])
        else:
            torch.testing.assert_close(got, want, rtol=2**-11, atol=0)
            same(got[:5], want[:5])


def test_integer_sums_widen():
    x = torch.full((64,), 100, dtype=torch.int8)
    assert evaluate("tl.sum(x)", x, shape=(), dtype=I32) == 6400
    assert evaluate("tl.sum(x > 0)", x, shape=(), dtype=I32) == 64
    assert evaluate("tl.max(x, 0)", x, shape=(), dtype=I32) == 100


def test_maximum_of_a_row_ignores_nan_and_minus_infinity_is_its_start():
    x = torch.tensor([NAN, 1.0, -INF, 3.0])
    assert evaluate("tl.max(x, 0)", x, shape=(), dtype=F32) == 3
    assert evaluate("tl.min(x, 0)", x, shape=(), dtype=F32) == -INF
    assert evaluate("tl.max(x, 0)", torch.full((4,), NAN), shape=(), dtype=F32).isnan()
    assert evaluate("tl.max(x, 0)", torch.full((4,), -INF), shape=(), dtype=F32) == -INF


def test_ties_go_to_the_left():
    x = torch.tensor([1.0, 5, 5, 2, 5, 0, 0, 3])
    assert evaluate("tl.argmax(x, 0)", x, shape=(), dtype=I32) == 1
    assert evaluate("tl.argmin(x, 0)", x, shape=(), dtype=I32) == 5


def test_half_precision_sums_round_at_every_step():
    """1 + 2**-11 is 1 in float16, so that a tree of pairs gives 512 + 512 * 2**-11 and not more."""
    x = torch.ones(1024).half()
    x[1::2] = 2**-11
    assert evaluate("tl.sum(x)", x, shape=(), dtype=F16) == 512
    assert evaluate("tl.sum(x.to(tl.float32))", x, shape=(), dtype=F32) == 512.25


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def first(a, b):
    return a


@triton.jit
def matrix(a1, b1, a2, b2):
    """Composition of x -> a1 x + b1 and x -> a2 x + b2: order matters."""
    return a1 * a2, a2 * b1 + b2


def composed(row: torch.Tensor) -> list[float]:
    """b of the composition of x -> a x + a for each prefix of a row."""
    values = [row[0].item()]
    for a in row[1:].tolist():
        values.append(a * values[-1] + a)
    return values


@triton.jit
def later_if_larger(a, i, b, j):
    larger = a > b
    return tl.where(larger, a, b), tl.where(larger, i, j)


@pytest.mark.parametrize(
    "expression, want",
    [
        ("tl.reduce(x, 1, add)", W.sum(1)),
        ("x.reduce(0, add)", W.sum(0)),
        ("tl.reduce(x, None, add)", W.sum()),
        ("tl.reduce(x, 1, add, keep_dims=True)", W.sum(1, keepdim=True)),
        ("tl.reduce(x, 1, first)", W[:, 0]),
        ("tl.associative_scan(x, 1, add)", W.cumsum(1)),
        ("tl.associative_scan(x, 0, add)", W.cumsum(0)),
        ("x.associative_scan(1, add)", W.cumsum(1)),
        ("tl.associative_scan(x, 1, add, reverse=True)", W.flip(1).cumsum(1).flip(1)),
        ("tl.reduce((x, x), 1, later_if_larger)[0]", W.amax(1)),
        ("tl.reduce((x, x * 0 + tl.arange(0, 4)[None, :]), 1, later_if_larger)[1]", W.argmax(1).float()),
        ("tl.associative_scan((x, x), 1, matrix)[1]", torch.tensor([composed(row) for row in W])),
    ],
)  # fmt: skip
def test_reductions_with_a_combine_function(expression, want):
    names = {"add": add, "first": first, "matrix": matrix, "later_if_larger": later_if_larger}
    same(evaluate(expression, W, shape=tuple(want.shape), dtype=F32, names=names), want)


@triton.jit
def larger_by_branch(a, b):
    if a > b:
        return a
    else:
        return b


def test_a_combine_function_may_branch():
    z = torch.zeros(2)
    kernel = kernel_of(
        """@triton.jit
def kernel(x_ptr, z_ptr):
    x = tl.load(x_ptr + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :])
    tl.store(z_ptr + tl.arange(0, 2), tl.reduce(x, 1, larger_by_branch))
    tl.associative_scan(x, 1, larger_by_branch)
""",
        larger_by_branch=larger_by_branch,
    )
    done = execute(kernel, x_ptr=W, z_ptr=z)
    assert done.stop is None and z.tolist() == [4, 9]


@pytest.mark.parametrize(
    "expression, commutes",
    [
        ("tl.reduce(x, 0, add)", True),
        ("tl.reduce((x, i), 0, later_if_larger)[1]", True),
        ("tl.reduce(x, 0, larger_by_branch)", True),
        ("tl.argmax(x, 0).to(tl.float32)", True),
        ("tl.reduce((x, i), 0, matrix)[1]", False),
        ("tl.reduce(x, 0, nonzero)", False),
    ],
)
def test_a_reduction_keeps_no_order(expression, commutes):
    z = torch.zeros(1)
    kernel = kernel_of(
        f"""@triton.jit
def kernel(x_ptr, z_ptr):
    i = tl.arange(0, 32).to(tl.float32)
    x = tl.load(x_ptr + tl.arange(0, 32))
    tl.store(z_ptr, {expression})
""",
        **{f.__name__: f for f in (add, later_if_larger, larger_by_branch, matrix, nonzero)},
    )
    done = execute(kernel, x_ptr=torch.arange(32.0) - 3, z_ptr=z)
    assert (done.not_commutative is None) is commutes


@triton.jit
def nonzero(a, b):
    """The first of two that is not 0: PTX of sm_90 asks lane 16 after lane 0, by shfl.bfly."""
    return tl.where(a != 0, a, b)


def test_the_first_of_a_block_by_reduce_is_not_the_first():
    x = torch.arange(32.0).clamp(min=4) - 4
    assert evaluate("tl.reduce(x, 0, nonzero)", x, shape=(), dtype=F32, names={"nonzero": nonzero}) == 12


# ---- random numbers


def philox(seed: int, counter: int, rounds: int = 10) -> int:
    """First word of Philox 4x32 (Salmon et al., SC 2011), in plain integers."""
    c, k = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(high >> 32) ^ c[1] ^ k[0], high & 0xFFFFFFFF, (low >> 32) ^ c[3] ^ k[1], low & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def test_random_numbers_are_philox():
    x = torch.arange(8, dtype=I32)
    want = torch.tensor([philox(7, n) for n in range(8)])
    same(evaluate("tl.randint(7, x).to(tl.int64)", x, shape=(8,), dtype=I64), want)
    uniform = evaluate("tl.rand(7, x)", x, shape=(8,), dtype=F32)
    signed = torch.where(want >= 2**31, want - 2**32, want)
    same(uniform, torch.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10, 1e-6)
    normal = evaluate("tl.randn(7, x)", torch.arange(1024, dtype=I32), shape=(1024,), dtype=F32)
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1


# ---- control flow, read as a compiler reads it


@triton.jit
def loops(z_ptr, N, STEPS: tl.constexpr):
    total = 0
    for k in range(0, N, 2):
        total += k
    for k in range(N, 0, -1):
        total += k.to(tl.int32) * 100
    for _ in tl.range(0, N):
        total += 1000
    for k in tl.static_range(STEPS):
        total += 10000 * k
    k = 0
    while k < N:
        k += 3
    tl.store(z_ptr, total + 1000000 * k)


def test_loops():
    z = torch.zeros(1, dtype=I32)
    done = execute(loops, z_ptr=z, N=5, STEPS=3)
    assert done.stop is None and z.item() == (0 + 2 + 4) + 1500 + 5000 + 30000 + 6000000


@triton.jit
def halve(k):
    return k.to(tl.float32) / 2


@triton.jit
def loop_variables(z_ptr, START):
    place = z_ptr
    for k in range(START, 4):
        tl.store(place, k // 2)
        tl.store(place + 1, -k % 3)
        tl.store(place + 2, halve(k))
        place += 3


def test_a_loop_variable_is_a_tensor():
    z = torch.zeros(8, 3)
    done = execute(loop_variables, z_ptr=z, START=-4)
    ks = torch.arange(-4, 4)
    assert done.stop is None
    same(z[:, 0], torch.div(ks, 2, rounding_mode="trunc").float())
    same(z[:, 1], torch.fmod(-ks, 3).float())
    same(z[:, 2], ks / 2)


@triton.jit
def assignments(x_ptr, z_ptr):
    a, b = 7, -2
    c: tl.int32 = 9
    n: tl.constexpr = 4
    (d, e), f = (1, 2), 3
    tl.store(z_ptr + tl.arange(0, n), b // 2 + a.to(tl.float32) + c.to(tl.float32))
    tl.store(z_ptr + 4, a % b)
    tl.store(z_ptr + 5, (d + e + f).to(tl.float32))


def test_an_assigned_number_is_a_tensor_also_in_a_tuple():
    z = torch.zeros(6)
    done = execute(assignments, x_ptr=X, z_ptr=z)
    assert done.stop is None and z.tolist() == [15, 15, 15, 15, 1, 6]


@triton.jit
def guarded_by_and(x_ptr, z_ptr, N):
    i = tl.program_id(0)
    if i < N and tl.load(x_ptr + i) > 0:
        tl.store(z_ptr + i, 1.0)


def test_and_computes_both_sides_as_a_gpu_does():
    done = execute(guarded_by_and, 2, x_ptr=torch.ones(2), z_ptr=torch.zeros(2), N=2)
    assert done.stop is None
    done = execute(guarded_by_and, 3, x_ptr=torch.ones(2), z_ptr=torch.zeros(2), N=2)
    assert "out-of-bounds load of x_ptr in program (2, 0, 0)" in done.stop.message


@triton.jit
def constants_decide_early(x_ptr, z_ptr, HAS_X: tl.constexpr):
    if x_ptr is not None and HAS_X:
        tl.store(z_ptr, tl.load(x_ptr))
    elif x_ptr is None or HAS_X > 3:
        tl.store(z_ptr, 5.0)


@pytest.mark.parametrize(
    "x, has, want", [(torch.tensor([2.0]), True, 2), (torch.tensor([2.0]), False, 0), (None, False, 5)]
)
def test_and_of_constants_stops_early(x, has, want):
    z = torch.zeros(1)
    done = execute(constants_decide_early, x_ptr=x, z_ptr=z, HAS_X=has)
    assert done.stop is None and z.item() == want


@triton.jit
def scalar_loads(x_ptr, z_ptr, N, ON, BLOCK: tl.constexpr):
    tl.store(z_ptr, tl.load(x_ptr + N, mask=N < ON, other=0.0))
    offs = tl.arange(0, BLOCK) + N
    tl.store(z_ptr + 1 + tl.arange(0, BLOCK), tl.load(x_ptr + offs, mask=offs < ON, other=0))


def test_other_may_be_zero_where_there_is_one_lane():
    z = torch.ones(2)
    done = execute(scalar_loads, x_ptr=X, z_ptr=z, N=9, ON=8, BLOCK=1)
    assert done.stop is None and not done.holes and z.tolist() == [0, 0]


@triton.jit
def block_as_condition(x_ptr, z_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    if x > 0:
        tl.store(z_ptr, 1.0)


def test_a_block_is_no_condition():
    refusal = front_end(block_as_condition, {"x_ptr": X, "z_ptr": torch.zeros(1), "BLOCK": 8})
    assert refusal is not None and "an if cannot decide lane by lane" in refusal.message
    assert execute(block_as_condition, x_ptr=Y, z_ptr=torch.zeros(1), BLOCK=1).stop is None


@triton.jit
def choose(x_ptr, z_ptr, N):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid)
    tl.store(z_ptr + pid, x if pid < N else -x)
    if pid == 3:
        return
    tl.store(z_ptr + pid + 8, x)


def test_conditional_expressions_and_early_returns():
    z = torch.zeros(16)
    done = execute(choose, 8, x_ptr=Y, z_ptr=z, N=4)
    assert done.stop is None and torch.equal(z[:8], torch.where(torch.arange(8) < 4, Y, -Y))
    assert done.written["z"].tolist() == [True] * 11 + [False] + [True] * 4


@triton.jit
def swap(a, b):
    return b, a


@triton.jit
def scale(x, FACTOR: tl.constexpr = 3):
    return x * FACTOR


@triton.jit
def with_helpers(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x, y = swap(tl.load(x_ptr + offs), offs)
    for _ in range(3):
        y = scale(y)
    tl.store(z_ptr + offs, scale(y, FACTOR=2) + x)


def test_helpers_with_defaults_keywords_and_several_results():
    z = torch.zeros(8)
    done = execute(with_helpers, x_ptr=X, z_ptr=z, BLOCK=8)
    assert done.stop is None
    same(z, X * 27 * 2 + torch.arange(8))


# ---- what needs a GPU says so


@triton.jit
def inline_assembly(z_ptr):
    one = tl.full((4,), 1, tl.int32)
    two = tl.inline_asm_elementwise("mov.u32 $0, %laneid; // $1", "=r,r", [one], tl.int32, True, 1)
    tl.store(z_ptr + tl.arange(0, 4), two)


@triton.jit
def device_function(z_ptr):
    tl.store(z_ptr, libdevice.tgamma(tl.load(z_ptr)))


@triton.jit
def clock(z_ptr):
    tl.store(z_ptr, tl.extra.cuda.globaltimer())


@pytest.mark.parametrize(
    "kernel, what",
    [
        (inline_assembly, "this is inline assembly (mov.u32 $0, %laneid)"),
        (device_function, "tgamma"),
        (clock, "tl.extra.cuda.globaltimer is inline assembly"),
    ],
)
def test_what_needs_a_gpu_says_so(kernel, what):
    stop = execute(kernel, z_ptr=torch.zeros(4)).stop
    assert stop.kind == "error" and what in stop.message and "runs on a GPU only" in stop.message
    assert "NotImplementedError" not in stop.message
    assert stop.site.source.startswith(("tl.store", "two ="))


@triton.jit
def waits_for_the_kernel_before(z_ptr, USED: tl.constexpr):
    i = tl.arange(0, 4)
    tl.extra.cuda.gdc_wait()
    nothing = tl.inline_asm_elementwise(
        "nanosleep.u32 100; // $0\nprefetch.global.L2 [$1];", "=r,l", [z_ptr + i], tl.int32, False, 1
    )
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(z_ptr + i, nothing if USED else i)


def test_assembly_that_means_nothing_here_is_nothing():
    arguments = {"z_ptr": torch.zeros(4, dtype=torch.int32)}
    done = execute(waits_for_the_kernel_before, **arguments, USED=False)
    assert done.stop is None and done.undefined is None
    same(arguments["z_ptr"], torch.arange(4, dtype=torch.int32))
    used = execute(waits_for_the_kernel_before, **arguments, USED=True)
    assert used.undefined is not None and "sets its result to nothing" in str(used.undefined)


# ---- CUDA's library


LIBRARY = {"libdevice": libdevice}


@pytest.mark.parametrize(
    "expression, dtype, want",
    [
        ("libdevice.popc(x)", I32, [3, 30, 1, 29, 1, 32, 31, 1]),
        ("libdevice.clz(x)", I32, [29, 0, 28, 0, 31, 0, 1, 0]),
        ("libdevice.ffs(x)", I32, [1, 1, 4, 4, 1, 1, 1, 32]),
        ("libdevice.brev(x)", I32, [-(2**29), -1610612737, 2**28, 2**29 - 1, -(2**31), -1, -2, 1]),
        ("libdevice.mulhi(x, 1 << 30)", I32, [1, -2, 2, -2, 0, -1, 2**29 - 1, -(2**29)]),
        ("libdevice.int_as_float(libdevice.float_as_int(x.to(tl.float32)))", F32, WHOLE.float().tolist()),
    ],
)
def test_library_functions_of_integers(expression, dtype, want):
    got = evaluate(expression, WHOLE, shape=(8,), dtype=dtype, names=LIBRARY)
    same(got, torch.tensor(want, dtype=dtype))


@pytest.mark.parametrize(
    "name, dtype, want",
    [
        ("float2int_rn", I32, [0, -2, 2, 0, 0, 8, -4, 0]),
        ("float2int_rz", I32, [0, -1, 2, 0, 0, 8, -3, 0]),
        ("float2int_rd", I32, [0, -2, 2, 0, 0, 8, -4, 0]),
        ("float2int_ru", I32, [1, -1, 3, 0, 0, 9, -3, 1]),
        ("llrint", I64, [0, -2, 2, 0, 0, 8, -4, 0]),
        ("llround", I64, [0, -2, 3, 0, 0, 8, -4, 0]),
        ("signbit", I32, [0, 1, 0, 1, 0, 0, 1, 0]),
        ("finitef", I32, [1] * 8),
    ],
)
def test_library_functions_from_float_to_integer(name, dtype, want):
    got = evaluate(f"libdevice.{name}(x)", X, shape=(8,), dtype=dtype, names=LIBRARY)
    same(got, torch.tensor(want, dtype=dtype))


@pytest.mark.parametrize("name, by_torch", [("exp", torch.exp), ("log", torch.log), ("sin", torch.sin)])
def test_fast_library_functions(name, by_torch):
    x = X.abs() + 0.1
    same(evaluate(f"libdevice.fast_{name}f(x)", x, shape=(8,), dtype=F32, names=LIBRARY), by_torch(x), 2e-6)


def test_the_number_of_warps_is_a_launchs_own():
    assert evaluate("tl.extra.cuda.num_warps()", shape=(), dtype=I32) == 4
    assert evaluate("tl.extra.cuda.num_threads()", shape=(), dtype=I32) == 128


# ---- unsigned, scaled, mapped


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_every_bit_of_an_unsigned_number_is_turned(dtype):
    x = torch.arange(8).to(dtype)
    want = 2 ** (8 * dtype.itemsize) - 1
    assert evaluate("~x", x, shape=(8,), dtype=dtype).tolist() == [want - n for n in range(8)]


def test_bytes_shifted_by_int32_are_int32():
    x = torch.full((8,), 200, dtype=torch.uint8)
    assert evaluate("x << 2 * i", x, shape=(8,), dtype=I32).tolist() == [200 << 2 * n for n in range(8)]


@pytest.mark.parametrize(
    "kind, dtype", [("fp16", F16), ("bf16", torch.bfloat16), ("e5m2", torch.float8_e5m2)]
)
def test_a_scaled_dot_multiplies_by_powers_of_two(kind, dtype):
    x, scale = torch.randn(16, 64).to(dtype), torch.randint(120, 132, (16, 2)).to(torch.uint8)
    one = "tl.full((16, 16), 1.0, tl.float32)"
    dot = f"tl.dot_scaled(x, y, '{kind}', x.trans(), None, '{kind}', {one})"
    scaled = x.float() * (2.0 ** (scale.float() - 127)).repeat_interleave(32, 1)
    same(evaluate(dot, x, scale, shape=(16, 16), dtype=F32), scaled @ x.float().T + 1, 1e-3)


def test_a_scaled_dot_takes_two_numbers_from_a_byte():
    codes = torch.randint(0, 16, (16, 64))
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6] + [-0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    dot = "tl.dot_scaled(x, None, 'e2m1', x.trans(), None, 'e2m1')"
    same(evaluate(dot, packed, shape=(16, 16), dtype=F32), numbers[codes] @ numbers[codes].T)


@triton.jit
def leaky(a, slope):
    if a > 0:
        return a
    else:
        return a * slope


def test_a_function_of_one_element_is_mapped():
    got = evaluate("tl.map_elementwise(leaky, x, y)", X, Y, shape=(8,), dtype=F32, names={"leaky": leaky})
    same(got, torch.where(X > 0, X, X * Y))


@triton.jit
def plus(a, b):
    return a + b


def test_a_reduction_takes_a_list():
    assert evaluate("tl.reduce([x], 0, plus)[0]", WHOLE, shape=(), dtype=I32, names={"plus": plus}) == -1


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_largest_of_each_row(k):
    same(evaluate(f"tl.topk(x, {k})", W, shape=(2, k), dtype=F32), W.topk(k, 1).values)


@pytest.mark.parametrize("dtype", [torch.uint8, I32, I64])
def test_histograms_of_any_integer(dtype):
    x = torch.tensor([0, 1, 1, 3, 7, 7, 7, 0]).to(dtype)
    want = [2, 2, 0, 1, 0, 0, 0, 3]
    assert evaluate("tl.histogram(x.to(tl.int32), 8)", x, shape=(8,), dtype=I32).tolist() == want


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, I64])
def test_a_histogram_of_other_than_32_bits_is_refused(dtype):
    with pytest.raises(AssertionError, match=r"tl\.histogram only counts int32 and uint32, but x is "):
        evaluate("tl.histogram(x, 8)", torch.ones(8, dtype=dtype), shape=(8,), dtype=I32)


# ---- descriptors


@triton.jit
def odd_tile(x_ptr, z_ptr):
    tile = tl.make_tensor_descriptor(x_ptr, [4, 8, 16], [128, 16, 1], [2, 4, 16]).load([1, 6, 3])
    tl.store(z_ptr + tl.arange(0, 128), tile.reshape(128))


def test_a_descriptors_block_may_start_anywhere():
    x, z = torch.randn(4, 8, 16), torch.empty(2, 4, 16)
    assert execute(odd_tile, x_ptr=x, z_ptr=z).stop is None
    want = torch.zeros(2, 4, 16)
    want[:, :2, :13] = x[1:3, 6:, 3:]
    same(z, want)


@triton.jit
def descriptor_atomics(x_ptr, z_ptr, OP: tl.constexpr):
    desc = tl.make_tensor_descriptor(z_ptr, [6, 16], [16, 1], [4, 16])
    x = tl.load(x_ptr + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :])
    desc.store([0, 0], tl.zeros((4, 16), tl.int32))
    desc.store([4, 0], tl.zeros((4, 16), tl.int32))
    if OP == "add":
        desc.atomic_add([1, 0], x)
    elif OP == "max":
        desc.atomic_max([1, 0], x)
    else:
        desc.atomic_xor([3, 8], x)


@pytest.mark.parametrize("operation", ["add", "max", "xor"])
def test_atomics_through_a_descriptor(operation):
    x, z = torch.arange(-32, 32, dtype=I32).reshape(4, 16), torch.empty(6, 16, dtype=I32)
    done = execute(descriptor_atomics, x_ptr=x, z_ptr=z, OP=operation)
    assert done.stop is None and done.undefined is None
    want = torch.zeros_like(z)
    if operation == "xor":
        want[3:, 8:] = x[:3, :8]
    else:
        want[1:5] = x if operation == "add" else x.clamp(min=0)
    same(z, want)


@triton.jit
def rows_of_descriptors(x_ptr, z_ptr):
    rows = tl.arange(0, 8)
    tile = tl.make_tensor_descriptor(x_ptr, [12, 16], [16, 1], [1, 16]).gather(rows * 2, 0)
    tl.make_tensor_descriptor(z_ptr, [8, 16], [16, 1], [1, 16]).scatter(tile, 7 - rows, 0)


def test_rows_gathered_and_scattered_by_descriptors():
    x, z = torch.randn(12, 16), torch.empty(8, 16)
    assert execute(rows_of_descriptors, x_ptr=x, z_ptr=z).stop is None
    same(z, torch.cat([x[::2], torch.zeros(2, 16)]).flip(0))


@triton.jit
def bytes_of_words(x_ptr, z_ptr):
    offs = tl.arange(0, 8)
    tl.store(z_ptr + offs, tl.load(x_ptr.to(tl.pointer_type(tl.uint8)) + offs).to(tl.int32))


def test_bytes_of_words_count_as_bytes():
    z = torch.empty(8, dtype=I32)
    done = execute(bytes_of_words, x_ptr=torch.tensor([0x04030201, 0x08070605], dtype=I32), z_ptr=z)
    assert z.tolist() == list(range(1, 9)) and done.loads == {"x": 2} and done.bytes_moved == 8 + 32


# ---- constants


@pytest.mark.parametrize(
    "expression, dtype, want",
    [
        ("tl.full((8,), 2147483648, tl.int32)", I64, -(2**31)),
        ("tl.full((8,), 4294967295, tl.int32)", I64, -1),
        ("tl.full((8,), 300, tl.uint8)", I64, 44),
        ("tl.full((8,), 4294967295, tl.uint32)", I64, 2**32 - 1),
        ("tl.where(i < 8, 2147483648, 0)", I64, 2**31),
        ("i.to(tl.int64) * 0 + 4294967295", I64, 2**32 - 1),
        ("tl.maximum(i, 4294967295)", I64, 2**32 - 1),
        ("(i * 0 < 2147483648)", I64, 1),
        ("(i * 0 - 1 == 4294967295)", I64, 1),
        ("tl.cast(2147483648, tl.int32) + 0 * i", I64, -(2**31)),
        ("tl.load(x_ptr + i, mask=i < 0, other=4294967295)", I64, -1),
    ],
)
def test_constants_at_and_above_two_to_the_31(expression, dtype, want):
    """What the front end makes of them: read off TTIR (3.7.1)."""
    assert evaluate(expression, WHOLE, shape=(8,), dtype=dtype).tolist() == [want] * 8


@pytest.mark.parametrize("expression", ["i + 2147483648", "i & 0xFFFFFFFF", "i * 2654435761"])
def test_constants_that_do_not_fit_are_refused_as_by_the_compiler(expression):
    with pytest.raises(AssertionError, match="is out of range for type int32"):
        evaluate(expression, WHOLE, shape=(8,), dtype=I64)


# ---- what random kernels on a GPU have shown (H100, triton 3.6.0)


def test_an_argument_of_1_is_a_constant_as_in_a_launch():
    """Where it is, it does not make an int32 of an uint16, and Python divides it."""
    kernel = kernel_of("""@triton.jit
def kernel(x_ptr, z_ptr, N):
    i = tl.arange(0, 4)
    tl.store(z_ptr + i, (tl.load(x_ptr + i) - N).to(tl.int32))
    tl.store(z_ptr + 4, N % -3)
""")
    x = torch.tensor([0, 1, 2, 65535], dtype=torch.uint16)
    for n, want in ((1, [65535, 0, 1, 65534, -2]), (2, [-2, -1, 0, 65533, 2])):
        z = torch.zeros(5, dtype=I32)
        assert execute(kernel, x_ptr=x.clone(), z_ptr=z, N=n).stop is None
        assert z.tolist() == want


def test_a_shift_by_an_unsigned_block_changes_neither_sign():
    x = torch.tensor([-9, -1, 3, -128], dtype=torch.int8)
    y = torch.tensor([200, 129, 2, 3], dtype=torch.uint8)
    assert evaluate("(x >> (y & 7)).to(tl.int64)", x, y, shape=(4,), dtype=I64).tolist() == [247, 255, 0, 240]
    same = evaluate("(x >> (y & 7)).to(tl.int64) * 0 + y.to(tl.int64)", x, y, shape=(4,), dtype=I64)
    assert same.tolist() == y.tolist()


def test_blocks_of_two_signs_are_joined_as_bits():
    x, y = torch.tensor([-1, 5], dtype=I32), torch.tensor([2**32 - 2, 6], dtype=torch.uint32)
    joined = evaluate("tl.join(x, y).to(tl.int64)", x, y, shape=(2, 2), dtype=I64)
    assert joined.tolist() == [[-1, -2], [5, 6]]


def test_an_atomic_minimum_of_float64_returns_what_was_there():
    kernel = kernel_of("""@triton.jit
def kernel(x_ptr, z_ptr):
    i = tl.arange(0, 4)
    tl.store(z_ptr + i, tl.atomic_min(x_ptr + i, tl.full((4,), -0.5, tl.float64)))
""")
    x = torch.tensor([-2.5, -0.25, 3.0, 0.5], dtype=torch.float64)
    z = torch.zeros(4, dtype=torch.float64)
    execute(kernel, outputs=("x_ptr", "z_ptr"), x_ptr=x, z_ptr=z)
    assert z.tolist() == [-2.5, -0.25, 3.0, 0.5] and x.tolist() == [-2.5, -0.5, -0.5, -0.5]


def test_a_remainder_of_floats_is_computed_as_compiled():
    x = torch.tensor([7.5, -7.5, 1e20, 3.0])
    y = torch.tensor([2.0, 2.0, 3.0, float("inf")])
    found = evaluate("x % y", x, y, shape=(4,), dtype=torch.float32)
    assert found.tolist()[:2] == [1.5, -1.5] and abs(found[2]) > 3 and found[3] == 3.0


def test_the_least_of_constants_is_a_constant_to_compute_with():
    kernel = kernel_of("""@triton.jit
def kernel(z_ptr, B: tl.constexpr):
    tl.store(z_ptr, (B * 3 | min(B, -7)) + max(B, 2))
""")
    z = torch.zeros(1, dtype=I32)
    assert execute(kernel, z_ptr=z, B=64).stop is None
    assert z.item() == (192 | -7) + 64
