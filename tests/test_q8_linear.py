"""Int8 dynamic linear on the CPU: the torch path, the operators, the modules, the override of torch's own
operator, and the Triton kernels, guarded. What needs a GPU is in test_q8_linear_gpu.py.
"""

import copy
import io
import itertools
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from puzzles_lib.kernels.q8_linear import MAX_K, Q8Linear, q8_linear, quantize_rows, swap_linears
from puzzles_lib.kernels.quantized_hook import override_linear_dynamic
from tests.running import run

module = import_module("puzzles_lib.kernels.q8_linear")

ROOT = Path(__file__).parent.parent
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
ROWS = (0, 1, 2, 3, 4, 8, 63, 64, 65, 84)
OUTPUTS = (1, 48, 64, 65, 200)
COLUMNS = (0, 1, 31, 32, 33, 60, 256)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def draw(shape, dtype=torch.float32, seed=0, scale=1.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def draw_weights(outputs, columns, seed=1):
    """wq with the extreme codes in it, w_scale and bias."""
    generator = torch.Generator().manual_seed(seed)
    wq = torch.randint(-127, 128, (outputs, columns), generator=generator, dtype=torch.int8)
    wq.view(-1)[::7], wq.view(-1)[3::11] = 127, -127
    return wq, torch.rand(outputs, generator=generator) / 100, torch.randn(outputs, generator=generator)


def oracle_codes(x):
    """Codes and scales in NumPy, element by element as the module's docstring has them."""
    x = x.float().numpy()
    scale = np.abs(x).max(1, initial=0) / np.float32(127)
    scale = np.where(scale < 2.0**-126, np.float32(0), scale)
    with np.errstate(all="ignore"):
        codes = np.rint(x / np.where(scale == 0, np.float32(1), scale)[:, None])
    bad = ~np.isfinite(scale)
    codes[bad], scale[bad] = 0, np.nan
    return torch.from_numpy(codes.astype(np.int8)), torch.from_numpy(scale.astype(np.float32))


def oracle(x, wq, w_scale, bias=None):
    codes, scale = (t.numpy() for t in oracle_codes(x))
    sums = codes.astype(np.int64) @ wq.numpy().astype(np.int64).T
    assert np.abs(sums).max(initial=0) < 2**31
    y = sums.astype(np.float32) * (scale[:, None] * w_scale.numpy()[None, :])
    y = y if bias is None else y + bias.float().numpy()
    return torch.from_numpy(y).to(x.dtype)


def same(got, want):
    """Equal to the bit, NaN where NaN is wanted."""
    return got.dtype == want.dtype and torch.equal(got.nan_to_num(77.0), want.nan_to_num(77.0))


# ---- quantize_rows


@dtypes
@pytest.mark.parametrize("columns", COLUMNS)
def test_codes_and_scales(columns, dtype):
    for rows, magnitude in itertools.product(ROWS, (1.0, 1e-6, 1e4)):
        x = draw((rows, columns), dtype, rows, magnitude)
        codes, scale = quantize_rows(x)
        assert codes.dtype == torch.int8 and scale.dtype == torch.float32
        assert codes.shape == x.shape and scale.shape == x.shape[:1]
        want_codes, want_scale = oracle_codes(x)
        assert torch.equal(codes, want_codes) and torch.equal(scale, want_scale)
        assert (codes.int().abs() <= 127).all()
        off = (codes.float() * scale[:, None] - x.float()).abs()
        assert (off <= scale[:, None] * 0.50001).all()


def test_ties_go_to_even():
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 125.5, 126.5]])
    codes, scale = quantize_rows(x)
    assert scale.tolist() == [1.0]
    assert codes.tolist() == [[127, 0, 2, 2, 0, -2, -2, 126, 126]]
    x = torch.tensor([[127.0, 2.5, 0.0]]) * 2.0**-40
    assert quantize_rows(x)[0].tolist() == [[127, 2, 0]]


def test_the_quotient_is_divided_not_multiplied_by_a_reciprocal():
    """There are values whose code differs between the two; ours are those of a division."""
    x = draw((2000, 64), seed=5)
    x[:, 0] = 4.0
    codes, scale = quantize_rows(x)
    tie = (torch.arange(-126, 126) + 0.5) * scale[0]
    rows = torch.cat([tie, torch.nextafter(tie, torch.tensor(9.0)), torch.tensor([4.0])])[None]
    codes = quantize_rows(rows)[0]
    assert torch.equal(codes, oracle_codes(rows)[0])
    assert not torch.equal(codes, (rows * (1 / scale[0])).round().to(torch.int8))


@dtypes
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_inf_spoil_their_row_alone(bad, dtype):
    x = draw((5, 40), dtype)
    wq, w_scale, bias = draw_weights(9, 40)
    clean, y = quantize_rows(x), q8_linear(x, wq, w_scale, bias)
    x[2, 7] = bad
    codes, scale = quantize_rows(x)
    others = [0, 1, 3, 4]
    assert scale[2].isnan() and not codes[2].any()
    assert torch.equal(codes[others], clean[0][others]) and torch.equal(scale[others], clean[1][others])
    got = q8_linear(x, wq, w_scale, bias)
    assert got[2].isnan().all() and torch.equal(got[others], y[others])
    x[2] = bad
    assert q8_linear(x, wq, w_scale, bias)[2].isnan().all()


def test_zero_rows_and_subnormal_maxima_give_the_bias():
    wq, w_scale, bias = draw_weights(9, 40)
    x = draw((6, 40))
    x[1], x[2], x[3], x[4] = 0.0, x[2] * 1e-40, 2.0**-149, -0.0
    y = q8_linear(x, wq, w_scale, bias)
    assert (quantize_rows(x)[1][1:5] == 0).all()
    for row in (1, 2, 3, 4):
        assert torch.equal(y[row], bias)
    assert not torch.equal(y[0], bias) and not torch.equal(y[5], bias)


def test_the_smallest_scale_is_the_least_normal_number():
    least = 127 * 2.0**-126
    codes, scale = quantize_rows(torch.tensor([[least, -least / 2], [least / 2, 0.0]]))
    assert scale.tolist() == [2.0**-126, 0.0] and codes.tolist() == [[127, -64], [0, 0]]


def test_the_largest_numbers():
    x = torch.tensor([[3.4e38, -1.7e38, 1e38, 0.0]])
    codes, scale = quantize_rows(x)
    assert torch.equal(codes, oracle_codes(x)[0]) and scale.isfinite().all() and codes[0, 0] == 127


# ---- q8_linear


@pytest.fixture(params=["float32", "int_mm"])
def both_products(request, monkeypatch):
    """The two ways to the exact sums, whatever this machine's CPU would take."""
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: request.param == "int_mm")


@pytest.mark.parametrize("rows", ROWS)
def test_every_shape(rows, both_products):
    for outputs, columns in itertools.product(OUTPUTS, COLUMNS):
        x, (wq, w_scale, bias) = draw((rows, columns)), draw_weights(outputs, columns)
        y = q8_linear(x, wq, w_scale, bias)
        assert y.shape == (rows, outputs) and y.is_contiguous()
        assert same(y, oracle(x, wq, w_scale, bias)), (outputs, columns)
        assert same(q8_linear(x, wq, w_scale), oracle(x, wq, w_scale)), (outputs, columns)


@dtypes
@pytest.mark.parametrize("bias_dtype", FLOATS, ids=str)
def test_dtypes(dtype, bias_dtype):
    x, (wq, w_scale, bias) = draw((7, 100), dtype), draw_weights(30, 100)
    bias = bias.to(bias_dtype)
    y = q8_linear(x, wq, w_scale, bias)
    assert y.dtype == dtype and same(y, oracle(x, wq, w_scale, bias))


@pytest.mark.parametrize("columns", [1040, 1041, 2048, 5000])
def test_sums_beyond_float32_are_exact(columns, both_products):
    """Codes of +-127 throughout, and sums that float32 cannot represent, except for the final rounding."""
    signs = torch.randint(0, 2, (3, columns), generator=torch.Generator().manual_seed(0)) * 2 - 1
    signs[0] = 1
    signs[1, columns // 2 :] = 1
    wq = torch.full((300, columns), 127, dtype=torch.int8)
    wq[1::2, ::3] = 126
    wq[2::3, 1::5] = -128
    sums = module.int8_matmul_ref((signs * 127).to(torch.int8), wq)
    exact = (signs * 127).double() @ wq.double().t()
    assert sums.dtype == torch.float32 and torch.equal(sums, exact.float())


def test_the_longest_row(both_products):
    x = torch.full((2, MAX_K), 3.0)
    x[1, ::2] = -3.0
    wq = torch.full((2, MAX_K), 127, dtype=torch.int8)
    wq[1] = -127
    exact = MAX_K * 127 * 127
    assert MAX_K == 133144 and exact < 2**31 <= exact + 127 * 127
    y = q8_linear(x, wq, torch.ones(2))
    scale = torch.tensor(3.0) / 127
    assert y.tolist() == [[float(torch.tensor(float(exact)) * scale * s) for s in (1, -1)], [0.0, 0.0]]


def test_a_row_is_the_same_alone_and_in_a_batch(both_products):
    wq, w_scale, bias = draw_weights(300, 1500)
    x = draw((84, 1500)) * torch.logspace(-3, 3, 84)[:, None]
    y = q8_linear(x, wq, w_scale, bias)
    for row in range(84):
        assert torch.equal(q8_linear(x[row : row + 1], wq, w_scale, bias)[0], y[row])
    assert torch.equal(q8_linear(x[20:37], wq, w_scale, bias), y[20:37])


def test_modes_that_round_products_change_nothing(both_products):
    """Rows of ones and weights of 127: the longest sums, which nothing but float32 or an integer holds."""
    x, wq, w_scale = torch.ones(3, 4000), torch.full((5, 4000), 127, dtype=torch.int8), torch.ones(5)
    want = oracle(x, wq, w_scale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(q8_linear(x, wq, w_scale), want)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(q8_linear(x, wq, w_scale), want)
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.inference_mode():
        assert torch.equal(q8_linear(x, wq, w_scale), want)


def test_shapes_of_x():
    wq, w_scale, bias = draw_weights(20, 12)
    x = draw((2, 3, 12))
    y = q8_linear(x, wq, w_scale, bias)
    assert y.shape == (2, 3, 20) and torch.equal(y.view(6, 20), oracle(x.view(6, 12), wq, w_scale, bias))
    assert torch.equal(q8_linear(x[0, 0], wq, w_scale, bias), y[0, 0])
    for shape in ((0, 12), (2, 0, 12)):
        assert q8_linear(x.new_empty(shape), wq, w_scale, bias).shape == (*shape[:-1], 20)
    assert q8_linear(x, wq[:0], w_scale[:0], bias[:0]).shape == (2, 3, 0)


def test_no_columns_give_the_bias():
    wq, w_scale, bias = draw_weights(20, 0)
    assert torch.equal(q8_linear(torch.empty(2, 3, 0), wq, w_scale, bias), bias.expand(2, 3, 20))
    assert torch.equal(q8_linear(torch.empty(3, 0), wq, w_scale), torch.zeros(3, 20))
    codes, scale = quantize_rows(torch.empty(2, 3, 0))
    assert codes.shape == (2, 3, 0) and torch.equal(scale, torch.zeros(2, 3))


def test_nothing_need_be_contiguous(both_products):
    x = draw((40, 30)).t()
    wq, w_scale, bias = draw_weights(20, 40)
    want = oracle(x, wq, w_scale, bias)
    strided = torch.empty_strided((20, 40), (1, 20), dtype=torch.int8).copy_(wq)
    wide = w_scale.repeat_interleave(2)[::2], bias.repeat_interleave(3)[::3]
    assert torch.equal(q8_linear(x, strided, *wide), want)
    assert torch.equal(
        q8_linear(draw((30, 2, 40))[:, 1], wq, w_scale, bias),
        oracle(draw((30, 2, 40))[:, 1].contiguous(), wq, w_scale, bias),
    )
    codes, scale = quantize_rows(x)
    assert codes.is_contiguous() and torch.equal(codes, oracle_codes(x)[0])
    assert torch.equal(
        q8_linear(x[:, :1].expand(30, 40), wq, w_scale), oracle(x[:, :1].repeat(1, 40), wq, w_scale)
    )


def test_the_error_is_that_of_the_format():
    """Rounded per row and per channel: 1% of the result, where truncation or one scale give 2% or more."""
    x, weight = draw((84, 256)), draw((192, 256), seed=1)
    exact = x.double() @ weight.double().t()
    got = q8_linear(x, *quantize_rows(weight))
    assert float((got - exact).norm() / exact.norm()) < 0.011


# ---- what is refused

X, W = torch.zeros(4, 8), torch.zeros(5, 8, dtype=torch.int8)
S = torch.ones(5)
TOO_LONG = MAX_K + 1
REFUSED = {
    "x must have rows of 8 for wq of (5, 8), but has rows of 7": lambda: q8_linear(X[:, :7], W, S),
    "x must have at least one axis, but is a scalar": lambda: q8_linear(X[0, 0], W, S),
    "x must have at least one axis": lambda: quantize_rows(X[0, 0]),
    "wq must have 2 axes, [N, K], but has 1": lambda: q8_linear(X, W[0], S),
    "wq must have 2 axes, [N, K], but has 3": lambda: q8_linear(X, W[None], S),
    "w_scale must have shape (5,) for wq of (5, 8), but has shape (4,)": lambda: q8_linear(X, W, S[:4]),
    "w_scale must have shape (5,) for wq of (5, 8), but has shape (5, 1)": lambda: q8_linear(
        X, W, S[:, None]
    ),
    "w_scale must have shape (5,) for wq of (5, 8), but has shape ()": lambda: q8_linear(X, W, S[0]),
    "bias must have shape (5,) for wq of (5, 8), but has shape (8,)": lambda: q8_linear(
        X, W, S, torch.zeros(8)
    ),
    f"K must be at most 133144, because the sums are int32, but is {TOO_LONG}": lambda: q8_linear(
        torch.zeros(1, TOO_LONG), torch.zeros(1, TOO_LONG, dtype=torch.int8), S[:1]
    ),
    "K must be at most 133144, because": lambda: Q8Linear.from_linear(nn.Linear(TOO_LONG, 1, device="meta")),
    "x must be on the device of wq, cpu, but is on meta": lambda: q8_linear(X.to("meta"), W, S),
    "w_scale must be on the device of wq, cpu, but is on meta": lambda: q8_linear(X, W, S.to("meta")),
    "bias must be on the device of wq, cpu, but is on meta": lambda: q8_linear(X, W, S, S.to("meta")),
}
REFUSED_TYPES = {
    "x must be float32, float16 or bfloat16, but is torch.float64": lambda: q8_linear(X.double(), W, S),
    "x must be float32, float16 or bfloat16, but is torch.int8": lambda: quantize_rows(W),
    "x must be float32, float16 or bfloat16, but is list": lambda: q8_linear([[1.0]], W, S),
    "wq must be torch.int8, but is torch.uint8": lambda: q8_linear(X, W.byte(), S),
    "wq must be torch.int8, but is torch.float32": lambda: q8_linear(X, W.float(), S),
    "wq must be torch.int8, but is ndarray": lambda: q8_linear(X, W.numpy(), S),
    "w_scale must be torch.float32, but is torch.bfloat16": lambda: q8_linear(X, W, S.bfloat16()),
    "w_scale must be torch.float32, but is float": lambda: q8_linear(X, W, 1.0),
    "bias must be float32, float16 or bfloat16, but is torch.float64": lambda: q8_linear(X, W, S, S.double()),
    "linear must be an nn.Linear, but is Conv1d": lambda: Q8Linear.from_linear(nn.Conv1d(1, 1, 1)),
    "x must be float32, float16 or bfloat16, but is": lambda: Q8Linear.from_linear(
        nn.Linear(3, 3, dtype=torch.float64)
    ),
    "model must be a torch.nn.Module, not Tensor": lambda: swap_linears(X),
    "linear must be a function of (x, wq, w_scale, bias), but is int": lambda: override_linear_dynamic(
        3
    ).__enter__(),
}
EVERY_REFUSAL = [
    (kind, text, call)
    for kind, table in ((ValueError, REFUSED), (TypeError, REFUSED_TYPES))
    for text, call in table.items()
]


@pytest.mark.parametrize("kind, text, call", EVERY_REFUSAL, ids=[text[:40] for _, text, _ in EVERY_REFUSAL])
def test_bad_input_is_refused_by_name_value_and_what_is_allowed(kind, text, call):
    with pytest.raises(kind, match="^" + re.escape(text)):
        call()


# ---- the operators that torch knows


@dtypes
def test_opcheck(dtype):
    wq, w_scale, bias = draw_weights(6, 30)
    for shape in ((20, 30), (2, 3, 30), (30,), (0, 30)):
        x = draw(shape, dtype)
        torch.library.opcheck(module._quantize_rows, (x,), test_utils=("test_schema", "test_faketensor"))
        for b in (bias, None):
            arguments = (x, wq, w_scale, b)
            torch.library.opcheck(module._q8_linear, arguments, test_utils=("test_schema", "test_faketensor"))


def test_opcheck_of_what_is_left():
    """The checks above are the quick ones; all of them once."""
    wq, w_scale, bias = draw_weights(6, 30)
    torch.library.opcheck(module._quantize_rows, (draw((4, 30)),))
    torch.library.opcheck(module._q8_linear, (draw((4, 30)), wq, w_scale, bias))


def small_model(seed=0, **options):
    torch.manual_seed(seed)
    layers = nn.Linear(30, 24, **options), nn.ReLU(), nn.Linear(24, 10, bias=False, **options)
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph(backend):
    model = swap_linears(small_model())

    def both(x):
        codes, scale = quantize_rows(x)
        return model(x), codes, scale

    torch.compiler.reset()
    compiled = torch.compile(both, fullgraph=True, backend=backend)
    for rows in (4, 9):
        x = draw((rows, 30))
        for got, want in zip(compiled(x), both(x), strict=True):
            assert torch.equal(got, want)
    torch.compiler.reset()


def test_exports():
    model = swap_linears(small_model())
    rows = torch.export.Dim("rows")
    program = torch.export.export(model, (draw((4, 30)),), dynamic_shapes=({0: rows},))
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert calls.count(torch.ops.bit_by_bit.q8_linear.default) == 2
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    x = draw((9, 30))
    assert torch.equal(loaded(x), model(x))


# ---- modules


@dtypes
def test_a_linear_becomes_its_buffers(dtype):
    linear = nn.Linear(40, 30, dtype=dtype)
    ours = Q8Linear.from_linear(linear)
    weight, scale = quantize_rows(linear.weight.detach())
    assert torch.equal(ours.weight, weight) and torch.equal(ours.scale, scale)
    assert torch.equal(ours.bias, linear.bias) and ours.bias.data_ptr() != linear.bias.data_ptr()
    assert set(ours.state_dict()) == {"weight", "scale", "bias"} and not list(ours.parameters())
    x = draw((5, 40), dtype)
    assert torch.equal(ours(x), q8_linear(x, weight, scale, linear.bias.detach()))
    assert repr(ours) == "Q8Linear(in_features=40, out_features=30, bias=True)"
    assert ours.training and not Q8Linear.from_linear(linear.eval()).training


def test_state_dict_round_trip():
    for bias in (True, False):
        ours = Q8Linear.from_linear(nn.Linear(40, 30, bias=bias))
        file = io.BytesIO()
        torch.save(ours.state_dict(), file)
        file.seek(0)
        other = Q8Linear(40, 30, bias=bias)
        assert not other(draw((5, 40))).any()
        other.load_state_dict(torch.load(file))
        x = draw((5, 40))
        assert torch.equal(other(x), ours(x)) and torch.equal(copy.deepcopy(ours)(x), ours(x))


def test_the_scale_stays_float32_in_a_cast_model():
    ours = Q8Linear.from_linear(nn.Linear(40, 30))
    scale = ours.scale.clone()
    x = draw((5, 40), torch.bfloat16)
    want = q8_linear(x, ours.weight, scale, ours.bias.bfloat16())
    model = nn.Sequential(ours).to(torch.bfloat16)
    assert ours.scale.dtype == torch.float32 and torch.equal(ours.scale, scale)
    assert ours.bias.dtype == torch.bfloat16 and ours.weight.dtype == torch.int8
    assert torch.equal(model(x), want)
    assert model.half().float()[0] is ours and torch.equal(ours.scale, scale)
    ours.to("meta", torch.bfloat16)
    assert ours.scale.device.type == "meta" and ours.scale.dtype == torch.float32


def test_swap_linears():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Conv1d(8, 8, 1))
    model.append(model[0])
    attention = nn.MultiheadAttention(8, 2)
    model.append(attention)
    linear = model[1][0]
    assert swap_linears(model) is model
    assert isinstance(model[0], Q8Linear) and isinstance(model[1][0], Q8Linear) and model[3] is model[0]
    assert isinstance(model[2], nn.Conv1d) and isinstance(model[1][1], nn.ReLU)
    assert type(attention.out_proj) is not nn.Linear and isinstance(attention.out_proj, nn.Linear)
    assert torch.equal(model[1][0].weight, quantize_rows(linear.weight.detach())[0])
    assert isinstance(swap_linears(linear), Q8Linear)
    assert swap_linears(model)[0] is model[0]


def test_a_transformer_layer_runs():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    x = draw((2, 5, 16))
    want = layer(x)
    ours = swap_linears(copy.deepcopy(layer))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            got = ours(x)
            assert not torch.equal(got, want) and float((got - want).norm() / want.norm()) < 0.02


def test_two_layers_of_one_shape_keep_their_own_weights():
    one, two = (Q8Linear.from_linear(nn.Linear(16, 16)) for _ in range(2))
    x = draw((4, 16))
    first, second = one(x), two(x)
    assert not torch.equal(first, second)
    for _ in range(3):
        assert torch.equal(one(x), first) and torch.equal(two(x), second)


def test_freed_and_reallocated_weights_are_never_mixed_up():
    x = draw((4, 64))
    seen = set()
    for seed in range(30):
        torch.manual_seed(seed)
        linear = nn.Linear(64, 64)
        ours = Q8Linear.from_linear(linear)
        seen.add(ours.weight.data_ptr())
        assert torch.equal(ours(x), oracle(x, ours.weight, ours.scale, linear.bias.detach()))
        weight = ours.weight.clone()
        ours.weight.neg_()  # in place, at the same address
        assert torch.equal(ours(x), oracle(x, -weight, ours.scale, linear.bias.detach()))
        del ours, linear, weight
    assert len(seen) < 30, "no address came twice: the test shows nothing"


# ---- the override of torch's own operator


@pytest.fixture(autouse=True)
def no_warnings_of_quantization():
    """torch.ao.quantization says that it moves elsewhere; torch, that an operator is overridden."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def quantized(model, per_channel=False):
    from torch.ao.quantization import default_dynamic_qconfig, per_channel_dynamic_qconfig, quantize_dynamic

    chosen = per_channel_dynamic_qconfig if per_channel else default_dynamic_qconfig
    return quantize_dynamic(model, {nn.Linear: chosen})


def packed(weight, scale, zero, bias=None):
    """torch's packed weights from float ones; scale and zero are numbers or one a channel."""
    if isinstance(scale, float):
        weight = torch.quantize_per_tensor(weight, scale, zero, torch.qint8)
    else:
        weight = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(weight, bias), weight


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_model_of_torch_runs_through_ours(per_channel):
    model = quantized(small_model(), per_channel)
    x = draw((2, 3, 30))
    stock = model(x)
    with override_linear_dynamic() as override:
        ours = model(x)
        assert override.hits == 2 and override.refused == 0
    assert torch.equal(model(x), stock) and override.hits == 2
    assert ours.shape == stock.shape and not torch.equal(ours, stock)
    exact = small_model()(x)
    assert (ours - exact).norm() < (stock - exact).norm() < 0.05 * exact.norm()

    weight, bias = model[0]._packed_params._packed_params.unpack()
    scale = weight.q_per_channel_scales().float() if per_channel else torch.full((24,), weight.q_scale())
    hidden = oracle(x.view(6, 30), weight.int_repr(), scale, bias.detach()).relu()
    weight, bias = model[2]._packed_params._packed_params.unpack()
    assert bias is None
    scale = weight.q_per_channel_scales().float() if per_channel else torch.full((10,), weight.q_scale())
    assert torch.equal(ours.view(6, 10), oracle(hidden, weight.int_repr(), scale))


def test_what_the_function_is_given():
    bias = draw((5,), seed=3)
    weights, quantized_weight = packed(draw((5, 8)), 0.02, 0, bias)
    seen = []

    def linear(*arguments):
        seen.append(arguments)
        return q8_linear(*arguments)

    x = draw((8, 2, 3)).transpose(0, 2)  # [3, 2, 8], not contiguous
    with override_linear_dynamic(linear) as override:
        y = torch.ops.quantized.linear_dynamic(x, weights)
        one = torch.ops.quantized.linear_dynamic(x[1, 1], weights)
    assert override.linear is linear and override.hits == len(seen) == 2
    got_x, wq, w_scale, got_bias = seen[0]
    assert got_x.shape == (6, 8) and got_x.is_contiguous() and torch.equal(got_x, x.reshape(6, 8))
    assert wq.dtype == torch.int8 and wq.is_contiguous() and torch.equal(wq, quantized_weight.int_repr())
    assert w_scale.dtype == torch.float32 and w_scale.tolist() == [float(torch.tensor(0.02))] * 5
    assert torch.equal(got_bias, bias)
    assert y.shape == (3, 2, 5) and one.shape == (5,) and torch.equal(one, y[1, 1])
    with override_linear_dynamic(linear):
        flat = torch.ops.quantized.linear_dynamic(x.reshape(6, 8).t().contiguous().t(), weights)
    assert seen[2][0].is_contiguous() and torch.equal(flat, y.view(6, 5))


@pytest.mark.parametrize("bias", [None, draw((5,), seed=3)], ids=["no bias", "bias"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_zero_points_of_the_weights(per_channel, bias):
    scale, zero = (0.02, 17)
    if per_channel:
        scale = torch.tensor([0.02, 0.01, 0.03, 0.02, 0.01], dtype=torch.float64)
        zero = torch.tensor([17, -128, 0, 127, -1])
    weights, quantized_weight = packed(draw((5, 40)), scale, zero, bias)
    x = draw((7, 40))
    with override_linear_dynamic() as override:
        y = torch.ops.quantized.linear_dynamic(x, weights)
    assert override.hits == 1
    codes, x_scale = quantize_rows(x)
    exact = (codes.double() * x_scale.double()[:, None]) @ quantized_weight.dequantize().double().t()
    exact = exact if bias is None else exact + bias
    assert torch.allclose(y.double(), exact, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(
        y, oracle(x, quantized_weight.int_repr(), torch.full((5,), 0.02), bias), rtol=0.1
    )


def test_what_is_left_to_torch():
    weights, _ = packed(draw((5, 8)), 0.02, 0)
    linear_dynamic = torch.ops.quantized.linear_dynamic
    cases = [
        (torch.empty(0, 8), weights),
        (torch.empty(2, 0, 8), weights),
        (draw((3, 8)), packed(torch.empty(0, 8), 0.02, 0)[0]),
        (draw((3, 7)), weights),
        (draw((3, 8)).double(), weights),
        (draw(()), weights),
    ]

    def outcome(x, weights):
        try:
            return linear_dynamic(x, weights)
        except RuntimeError as error:
            return str(error).splitlines()[0]

    stock = [outcome(*case) for case in cases]
    with override_linear_dynamic(lambda *_: 1 / 0) as override:
        for number, (case, want) in enumerate(zip(cases, stock, strict=True), 1):
            got = outcome(*case)
            assert got == want if isinstance(want, str) else torch.equal(got, want)
            assert override.hits == 0 and override.refused == number
        with pytest.raises(ZeroDivisionError):
            linear_dynamic(draw((3, 8)), weights)
        assert override.hits == 0
    assert any(isinstance(want, torch.Tensor) for want in stock)


def test_rows_too_long_for_int32_are_left_to_torch():
    columns = 132105
    x, weight = draw((2, columns)), draw((3, columns), seed=1)
    linear_dynamic = torch.ops.quantized.linear_dynamic
    for width, hits in ((columns - 1, 2), (columns, 0)):
        weights, _ = packed(weight[:, :width], 0.02, 0)
        stock = [linear_dynamic(x[:, :width], weights, reduce_range) for reduce_range in (False, True)]
        assert not torch.equal(*stock)
        with override_linear_dynamic() as override:
            got = [linear_dynamic(x[:, :width], weights, reduce_range) for reduce_range in (False, True)]
        assert (override.hits, override.refused) == (hits, 2 - hits)
        if hits:
            assert torch.equal(*got)
        else:
            assert all(torch.equal(*pair) for pair in zip(got, stock, strict=True))


def test_contexts_nest_and_survive_exceptions():
    model, x = quantized(small_model()), draw((4, 30))
    stock = model(x)

    def doubled(*arguments):
        return 2 * q8_linear(*arguments)

    with override_linear_dynamic() as outer:
        ours = model(x)
        with pytest.raises(KeyError), override_linear_dynamic(doubled) as inner:
            assert not torch.equal(model(x), ours)
            assert (outer.hits, inner.hits) == (2, 2)
            raise KeyError
        assert torch.equal(model(x), ours) and (outer.hits, inner.hits) == (4, 2)
        with override_linear_dynamic() as inner:
            assert torch.equal(model(x), ours)
        assert (outer.hits, inner.hits) == (4, 2)
    assert torch.equal(model(x), stock)
    for _ in range(3):  # and again
        with override_linear_dynamic() as again:
            assert torch.equal(model(x), ours)
        assert again.hits == 2 and torch.equal(model(x), stock)


def test_contexts_may_end_in_another_order():
    model, x = quantized(small_model()), draw((4, 30))
    stock = model(x)
    one, two = override_linear_dynamic(), override_linear_dynamic(lambda *a: 2 * q8_linear(*a))
    one.__enter__()
    ours = model(x)
    two.__enter__()
    doubled = model(x)
    one.__exit__(None, None, None)
    assert torch.equal(model(x), doubled) and not torch.equal(doubled, ours)
    two.__exit__(None, None, None)
    assert torch.equal(model(x), stock)


@pytest.mark.parametrize(
    "result, text",
    [
        (None, "linear must return torch.float32 (4, 24), but returned NoneType"),
        (
            torch.zeros(4, 24).double(),
            "linear must return torch.float32 (4, 24), but returned torch.float64 (4, 24)",
        ),
        (torch.zeros(24, 4), "linear must return torch.float32 (4, 24), but returned torch.float32 (24, 4)"),
    ],
)
def test_what_the_function_returns_is_checked(result, text):
    model, x = quantized(small_model()), draw((4, 30))
    stock = model(x)
    with override_linear_dynamic(lambda *_: result) as override:
        with pytest.raises(TypeError, match=re.escape(text)):
            model(x)
        assert override.hits == 0
    assert torch.equal(model(x), stock)


def test_two_models_of_one_shape_keep_their_own_weights():
    """What a cache of unpacked weights by address gets wrong: `unpack` returns a temporary."""
    models = [quantized(small_model(seed)) for seed in range(4)]
    x = draw((4, 30))
    with override_linear_dynamic():
        first = [model(x) for model in models]
        assert not torch.equal(first[0], first[1])
        for model, y in zip(models * 3, first * 3, strict=True):
            assert torch.equal(model(x), y)
        for seed in range(8):
            model = quantized(small_model(seed))
            assert seed >= 4 or torch.equal(model(x), first[seed])
            del model


@pytest.mark.parametrize("engine", [e for e in torch.backends.quantized.supported_engines if e != "none"])
def test_every_engine(engine, monkeypatch):
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        model, x = quantized(small_model()), draw((4, 30))
        stock = model(x)
        with override_linear_dynamic() as override:
            ours = model(x)
        assert override.hits == 2 and torch.equal(model(x), stock)
        exact = small_model()(x)
        assert (ours - exact).norm() < 0.03 * exact.norm()
    finally:
        torch.backends.quantized.engine = before


def test_the_first_override_of_a_process_is_silent():
    code = (
        "import torch; from puzzles_lib.kernels.quantized_hook import override_linear_dynamic\n"
        "with override_linear_dynamic(): pass"
    )
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_torch_without_the_operator(monkeypatch):
    from puzzles_lib.kernels import quantized_hook

    monkeypatch.setattr(quantized_hook, "OPERATOR", "quantized::no_such_operator")
    with pytest.raises(RuntimeError, match="^torch .* has no quantized::no_such_operator on CPU"):
        with override_linear_dynamic():
            pass
    assert not quantized_hook._overrides


# ---- the Triton kernels, guarded


def guarded(kernel, grid, outputs, **arguments):
    """The outputs of a run without a fault. They start as 77, so that an element that stays is noticed."""
    done = run(kernel, arguments, tuple(grid) + (1,) * (3 - len(grid)), outputs)
    assert done.stop is None, done.stop
    assert done.conflict is None and not done.changed and not done.holes
    assert all(done.written[name.removesuffix("_ptr")].all() for name in outputs if name != "sums_ptr")
    return done.outputs


def blank(shape, dtype):
    return torch.full(shape, 77, dtype=dtype)


class Recorded:
    """Stands for a kernel in a launcher: keeps what it is launched with."""

    def __getitem__(self, grid):
        return lambda *values, **options: self.__dict__.update(grid=grid, values=values, options=options)


def launched(monkeypatch, name, launch, *arguments, **options):
    """Kernel, grid and arguments by name of a launcher's launch."""
    kernel, seen = getattr(module, name), Recorded()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, seen)
        launch(*arguments, **options)
    values = dict(zip(kernel.arg_names, seen.values, strict=False)) | seen.options
    return kernel, seen.grid, {k: v for k, v in values.items() if k in kernel.arg_names}


def quantized_by_the_kernel(monkeypatch, x, sums=None):
    codes, scale = blank(x.shape, torch.int8), blank(x.shape[:1], torch.float32)
    kernel, grid, arguments = launched(
        monkeypatch, "_quantize_rows_kernel", module.launch_quantize_rows, x, codes, scale, sums
    )
    outputs = ["codes_ptr", "scale_ptr"] + (["sums_ptr"] if sums is not None else [])
    done = guarded(kernel, grid, outputs, **arguments)
    return done["codes"], done["scale"], done.get("sums")


@pytest.mark.parametrize(
    "rows, columns", [(1, 1), (3, 31), (4, 33), (65, 60), (9, 256), (2, 8192), (3, 9001)]
)
def test_kernel_quantizes_rows(monkeypatch, rows, columns):
    for seed, dtype in enumerate(FLOATS):
        x = draw((rows, columns), dtype, seed)
        x[-1] = 0
        codes, scale, _ = quantized_by_the_kernel(monkeypatch, x)
        want_codes, want_scale = oracle_codes(x)
        assert torch.equal(codes, want_codes) and torch.equal(scale, want_scale)


@pytest.mark.parametrize("columns", [40, 8200])
def test_kernel_quantizes_what_bites(monkeypatch, columns):
    x = draw((12, columns))
    x[0], x[1], x[2], x[3] = x[0] * 1e-40, x[1] * 3e-38, x[2] * 1e-25, x[3] * 3e37
    x[4, 5], x[5, 6], x[6, 7], x[7] = float("nan"), float("inf"), float("-inf"), 0
    x[8, :9] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 125.5, 126.5]) / 16
    x[8, 9:] = 0
    x[9] *= 2.0**-70
    codes, scale, _ = quantized_by_the_kernel(monkeypatch, x)
    want_codes, want_scale = oracle_codes(x)
    assert torch.equal(codes, want_codes) and same(scale, want_scale)


def test_kernel_divides(monkeypatch):
    """Values beside a tie, at magnitudes where the remainder of the division would be subnormal."""
    for power in (0, -60, -90, -110, -119, 60, 120):
        base = torch.tensor(3.7) * 2.0**power
        scale = base / 127
        tie = (torch.arange(-126, 126) + 0.5) * scale
        x = torch.cat([tie, torch.nextafter(tie, 2 * tie), torch.nextafter(tie, 0 * tie), base[None]])[None]
        codes, got, _ = quantized_by_the_kernel(monkeypatch, x)
        assert got == scale and torch.equal(codes, oracle_codes(x)[0])


def test_kernel_clears_the_sums(monkeypatch):
    for count in (1, 1023, 1024, 5000):
        sums = quantized_by_the_kernel(monkeypatch, draw((3, 8200)), blank((count,), torch.int32))[2]
        assert not sums.any()


def multiplied_by_the_kernel(monkeypatch, x, wq, w_scale, bias, tiles):
    codes, x_scale = oracle_codes(x)
    y = blank((len(x), len(wq)), x.dtype)
    grid = module.grid_of(tiles, *y.shape)
    sums = torch.zeros(y.numel() + grid[0], dtype=torch.int32) if tiles.split > 1 else None
    kernel, grid, arguments = launched(
        monkeypatch, "_matmul_kernel", module.launch_matmul,
        codes, x_scale, wq, w_scale, bias, y, sums, tiles, tma=False, pdl=False,
    )  # fmt: skip
    arguments["codes"], arguments["wq"] = codes, wq
    arguments["y_ptr"] = y
    outputs = ["y_ptr"] + (["sums_ptr"] if sums is not None else [])
    if sums is None:
        del arguments["sums_ptr"]
        arguments["sums_ptr"] = torch.zeros(1, dtype=torch.int32)
    return guarded(kernel, grid, outputs, **arguments)["y"]


SHAPES = [
    (1, 1, 1),
    (2, 48, 31),
    (3, 64, 32),
    (4, 65, 33),
    (8, 200, 60),
    (16, 48, 256),
    (17, 65, 256),
    (63, 64, 60),
]
SHAPES += [(64, 65, 33), (65, 200, 31), (84, 48, 256), (84, 200, 60)]


@pytest.mark.parametrize("rows, outputs, columns", SHAPES)
def test_kernel_multiplies(monkeypatch, rows, outputs, columns):
    wq, w_scale, bias = draw_weights(outputs, columns)
    for dtype, b in ((torch.float32, bias), (torch.bfloat16, None), (torch.float16, bias.half())):
        x = draw((rows, columns), dtype)
        tiles = module.choose_tiles(rows, outputs, columns, 132, False)
        y = multiplied_by_the_kernel(monkeypatch, x, wq, w_scale, b, tiles)
        assert same(y, oracle(x, wq, w_scale, b)), dtype


@pytest.mark.parametrize(
    "rows, shape, capability, multiprocessors, wanted",
    [
        (1, (4096, 4096), (9, 0), 132, "rows16"),
        (8, (4096, 4096), (9, 0), 132, "rows16"),
        (9, (4096, 4096), (9, 0), 132, "rows64"),
        (64, (4096, 100000), (9, 0), 132, "rows64"),
        (65, (4096, 4096), (9, 0), 132, None),
        (64, (2048, 4096), (9, 0), 132, None),  # 64 programs: shares of K fill the GPU
        (1, (2048, 4096), (9, 0), 132, None),
        (9, (4096, 4088), (9, 0), 132, None),  # rows of no 16 bytes
        (1, (4096, 100000), (9, 0), 132, None),  # too many steps
        (16, (4096, 4096), (8, 0), 108, "rows16"),
        (17, (4096, 4096), (8, 0), 108, None),
        (16, (2048, 4096), (10, 0), 148, None),
        (16, (4096, 4096), (10, 0), 148, "rows16"),
        (1, (4096, 4096), (7, 5), 72, None),
    ],
)
def test_which_kernel_multiplies(monkeypatch, rows, shape, capability, multiprocessors, wanted):
    gpu = SimpleNamespace(major=capability[0], minor=capability[1], multi_processor_count=multiprocessors)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    found = module.kernel_of_few_rows(rows, torch.empty(shape, dtype=torch.int8))
    assert (found and found.__name__) == (wanted and f"{module.__name__}_{wanted}")


@pytest.mark.parametrize("split", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_kernel_multiplies_in_shares(monkeypatch, split, group):
    """Shares that divide K, that do not, and that are empty; tiles ragged on every side."""
    x, (wq, w_scale, bias) = draw((50, 200)), draw_weights(70, 200)
    x[3, 5], x[7] = float("nan"), 0
    tiles = module.Tiles(16, 32, 32, group=group, split=split)
    y = multiplied_by_the_kernel(monkeypatch, x, wq, w_scale, bias, tiles)
    assert same(y, oracle(x, wq, w_scale, bias)) and y[3].isnan().all() and torch.equal(y[7], bias)


# ---- the benchmark


def test_the_benchmark_of_the_cpu(monkeypatch, two_threads):
    from puzzles_lib.bench import int8
    from puzzles_lib.timing.recorded import NAMES

    monkeypatch.setattr(int8, "CPU_ROWS", (1, 3))
    monkeypatch.setattr(int8, "CPU_SIZE", 64)
    threads = torch.get_num_threads()
    rows = list(int8.on_cpu())
    assert torch.get_num_threads() == threads
    assert len(rows) == 4 and all(tuple(row) == NAMES and row["bench"] == "int8" for row in rows)
    assert all(row["error"] < 1e-6 and row["us"] > 0 for row in rows)
    assert {row["baseline"] for row in rows} == {"fbgemm linear_dynamic", "nn.Linear float32"}


def test_the_plain_path_of_the_benchmark_is_ours():
    from puzzles_lib.bench import int8

    x, (wq, w_scale, bias) = draw((9, 40), torch.bfloat16), draw_weights(16, 40)
    got = int8.plain_q8_linear(x, wq, w_scale, bias)
    assert got.shape == (9, 16) and torch.equal(got, q8_linear(x, wq, w_scale, bias))
