"""Stochastic rounding, packed activations and norms on the CPU: references, operators, and kernels, guarded.

The layers made of them: test_modules.py. On a GPU: test_packed_layers_gpu.py.
"""

import re

import pytest
import torch
import torch.nn.functional as F

from puzzles_lib.kernels import launching, packed_activation, packed_dropout, packed_norm, quantize, rounding
from puzzles_lib.kernels.bitpack import BITS, block_rows
from puzzles_lib.kernels.packed_activation import (
    activation_backward,
    activation_backward_,
    activation_pack,
    activation_quantize_,
)
from puzzles_lib.kernels.packed_norm import norm_backward, norm_quantize
from puzzles_lib.kernels.quantize import dequantize, quantize_pack
from tests.running import run

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SLOPES = [("relu", 1), ("gelu", 4), ("gelu_tanh", 2), ("silu", 8), ("gelu", 1)]
bits_of_a_code = pytest.mark.parametrize("bits", BITS)
slopes_of = pytest.mark.parametrize("activation, slope_bits", SLOPES)


def draw(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- random numbers


@pytest.mark.parametrize(
    "rounds, value, four, two",
    [
        (10, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8", "ff1dae59 6cd10df2"),
        (7, 2**32 - 1, "5207ddc2 45165e59 4d8ee751 8c52f662", "ab302c4d 3dc9d239"),
    ],
)
def test_philox_is_that_of_its_authors(rounds, value, four, two):
    """Their known answers, from Random123's kat_vectors."""
    word = torch.full((1,), value)
    for count, want in ((4, four), (2, two)):
        found = rounding.philox_ref([word] * (count // 2), [word] * count, rounds)
        assert " ".join(f"{int(v):08x}" for v in found) == want


@bits_of_a_code
def test_numbers_are_uniform_and_a_units_lie_in_eighths(bits):
    numbers = rounding.draw_ref(
        torch.tensor(3), 0, block_rows(bits), 256, bits
    ) / 2 ** rounding.fraction_bits(bits)
    rows = block_rows(bits)
    fields, unit_rows = rounding.UNIT_FIELDS[bits], rounding.UNIT_ROWS[bits]
    units = numbers.view(16 // bits // fields, fields, 16 // unit_rows, unit_rows, 256)
    eighths = (units.permute(0, 2, 4, 1, 3).reshape(-1, 8) * 8).long().sort(1).values
    assert (eighths == torch.arange(8)).all()
    count = numbers.numel() / 8  # independent ones
    assert abs(float(numbers.mean()) - 0.5) < 4 * 0.29 / count**0.5
    lowest = (numbers * 8 % 1).view(rows, 256)  # within its eighth
    assert abs(float(lowest.mean()) - 0.5) < 4 * 0.29 / count**0.5
    assert abs(float(lowest.var()) - 1 / 12) < 4 * 0.075 / count**0.5


@bits_of_a_code
def test_stochastic_rounding_is_right_on_average(bits):
    """Each element's mean over seeds, in its own standard errors; drawn once for all: no luck is needed."""
    x, seeds = draw((block_rows(bits), 32)), 300
    some = [quantize_pack(x, bits, 16, rounding="stochastic", seed=seed) for seed in range(seeds)]
    found = torch.stack([dequantize(packed) for packed in some]).double()
    scale = some[0].scale.permute(1, 2, 0).reshape(len(x), 2).double().repeat_interleave(16, 1)
    low = some[0].minimum.permute(1, 2, 0).reshape(len(x), 2).double().repeat_interleave(16, 1)
    part = ((x - low) / scale) % 1
    rare = 10  # of the seeds: a code that is drawn less often is not spread as a normal number is
    error = scale * ((part * (1 - part) * seeds).clamp_min(rare)).sqrt() / seeds
    off = (found.mean(0) - x).abs() / error
    assert off.max() < 5 and (off < 4).float().mean() > 0.999
    assert abs(float(((found.mean(0) - x) / scale).mean())) < 4 * 0.41 / (seeds * x.numel()) ** 0.5


@bits_of_a_code
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_stochastic_codes_are_the_two_next_to_the_value(dtype, bits):
    x = draw((70, 48), dtype)
    packed = quantize_pack(x, bits, 16, rounding="stochastic", seed=5)
    again = quantize_pack(x, bits, 16, rounding="stochastic", seed=5)
    other = quantize_pack(x, bits, 16, rounding="stochastic", seed=6)
    assert torch.equal(packed.words, again.words) and not torch.equal(packed.words, other.words)
    scale = packed.scale.permute(1, 2, 0).flatten(0, 1)[:70].double().repeat_interleave(16, 1)
    eps = torch.finfo(dtype).eps
    assert (
        (dequantize(packed).double() - x.double()).abs() <= scale * (1 + 1e-4) + 4 * eps * x.abs().max()
    ).all()


@bits_of_a_code
def test_values_on_the_levels_are_never_moved(bits):
    x = torch.randint(0, 2**bits, (50, 32), generator=torch.Generator().manual_seed(1)).float()
    x[:, 0], x[:, 1] = 0, 2**bits - 1
    for seed in range(20):
        assert torch.equal(dequantize(quantize_pack(x, bits, 32, rounding="stochastic", seed=seed)), x)


def test_offsets_and_long_seeds_count():
    x = draw((32, 32))
    words = [
        quantize_pack(x, 2, 32, rounding="stochastic", seed=seed, offset=offset).words
        for seed, offset in ((0, 0), (1, 0), (2**32, 0), (-1, 0), (0, 1), (0, 2**32))
    ]
    assert len({tuple(w.flatten().tolist()) for w in words}) == len(words)
    seed = torch.tensor(2**32)
    assert torch.equal(quantize_pack(x, 2, 32, rounding="stochastic", seed=seed).words, words[2])


@bits_of_a_code
def test_stochastic_rounding_keeps_nan_in_its_group(bits):
    x = draw((40, 32))
    options = {"rounding": "stochastic", "seed": 3}
    clean = dequantize(quantize_pack(x, bits, 16, **options))
    x[7, 20] = float("nan")
    back = dequantize(quantize_pack(x, bits, 16, **options))
    assert back[7, 16:].isnan().all()
    back[7, 16:] = clean[7, 16:]
    assert torch.equal(back, clean)


# ---- activations


@slopes_of
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3, 5), (33, 70), (0, 4)], ids=str)
def test_activation_and_its_slope(shape, activation, slope_bits):
    for dtype in FLOATS:
        x, dy = (3 * draw(shape, dtype)).requires_grad_(), draw(shape, dtype, 1)
        y, slopes = activation_pack(x.detach(), activation, slope_bits)
        want = packed_activation.activation_ref(x, activation)
        assert torch.equal(y, want) and y.dtype == dtype
        assert slopes.dtype == torch.uint8 and len(slopes) == -(-x.numel() * slope_bits // 8)
        dx = activation_backward(dy, slopes, slope_bits)
        want.backward(dy)
        step = {1: 0.5, 2: 1 / 6, 4: 1 / 22, 8: 1 / 400}[slope_bits] if activation != "relu" else 0
        over = 0.13 if slope_bits < 4 and activation != "relu" else 0  # the grid ends at 0 and 1
        eps = torch.finfo(dtype).eps
        assert ((dx - x.grad).abs() <= max(step, over) * dy.abs() * 1.001 + 4 * eps * dy.abs() + 1e-7).all()
        got = dy.clone()
        sums = activation_backward_(got, slopes, slope_bits)
        assert torch.equal(got, dx) and torch.equal(
            sums, dx.reshape(-1, shape[-1]).sum(0, dtype=torch.float32)
        )


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("slope_bits", BITS)
def test_dead_and_saturated_elements_are_exact(activation, slope_bits):
    x = torch.tensor([-30.0, 30.0, -1e30, 1e30])
    _, slopes = activation_pack(x, activation, slope_bits)
    assert activation_backward(torch.ones(4), slopes, slope_bits).tolist() == pytest.approx(
        [0, 1, 0, 1], abs=1e-6
    )


@slopes_of
@bits_of_a_code
def test_in_one_pass_it_is_the_sequence(bits, activation, slope_bits):
    for shape, group, seed in (((40, 70), 32, None), ((2, 9, 16), 16, 4), ((0, 8), 8, None)):
        h = draw(shape)
        y, slopes = activation_pack(h, activation, slope_bits)
        options = {} if seed is None else {"rounding": "stochastic", "seed": seed}
        packed = quantize_pack(y, bits, group, **options)
        state = None if seed is None else torch.tensor(seed)
        found = activation_quantize_(h, activation, slope_bits, bits, group, state)
        for got, want in zip((h, *found), (y, slopes, packed.words, packed.params), strict=True):
            assert torch.equal(got, want)


# ---- norms


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_norm_with_eight_bits_is_almost_exact(affine, rms):
    x = (draw((40, 96)) * 3 + 1).requires_grad_()
    weight = draw((96,), seed=1).requires_grad_() if affine else None
    bias = draw((96,), seed=2).requires_grad_() if affine and not rms else None
    want = F.rms_norm(x, (96,), weight, 1e-5) if rms else F.layer_norm(x, (96,), weight, bias, 1e-5)
    values = [None if t is None else t.detach() for t in (x, weight, bias)]
    y, words, params, rstd = norm_quantize(*values, 1e-5, rms=rms, bits=8, group_size=32)
    assert torch.equal(y, want) and rstd.shape == (40,)
    dy = draw((40, 96), seed=3)
    want.backward(dy)
    dx, dw, db = norm_backward(dy, words, params, rstd, values[1], rms=rms, bits=8, group_size=32)
    assert (dx - x.grad).norm() < 2e-3 * x.grad.norm()
    if affine:
        assert (dw - weight.grad).norm() < 0.01 * weight.grad.norm()
    if bias is not None:
        assert torch.allclose(db, bias.grad, rtol=1e-5, atol=1e-5)


def test_a_norm_rounds_to_the_dtype_that_is_asked_for():
    x = draw((40, 96))
    y, _, params, _ = norm_quantize(
        x, None, None, 1e-5, rms=False, bits=2, group_size=32, dtype=torch.bfloat16
    )
    assert y.dtype == torch.float32 and params.dtype == torch.bfloat16


# ---- the Triton kernels against the references


class Recorded:
    """Stands for a kernel in a launcher: keeps what it is launched with."""

    def __getitem__(self, grid):
        return lambda *values, **options: self.__dict__.update(grid=grid, values=values, options=options)


def guarded(monkeypatch, module, name, launch, *arguments, outputs, in_place=()):
    """The outputs of a launcher's kernel, run without a fault."""
    kernel, seen = getattr(module, name), Recorded()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, seen)
        launch(*arguments)
    options = {k: v for k, v in seen.options.items() if k not in ("num_warps", "num_stages", "maxnreg")}
    given = {**dict(zip(kernel.arg_names, seen.values, strict=False)), **options}
    done = run(kernel, given, tuple(seen.grid) + (1,) * (3 - len(seen.grid)), outputs)
    assert done.stop is None, done.stop
    assert done.conflict is None and not set(done.early_reads) - set(in_place)
    assert not done.changed and not done.holes
    assert all(written.all() for written in done.written.values())
    return list(done.outputs.values())


def blank(like):
    return torch.full_like(like, 77)


def on_levels(shape, bits, seed=0):
    """Values a quarter apart: an fma that rounds twice gives the same codes as one that rounds once."""
    x = torch.randint(0, 2**bits, shape, generator=torch.Generator().manual_seed(seed)).float() / 4
    x[:, ::2], x[:, 1::4] = 0, (2**bits - 1) / 4
    return x + torch.where(torch.arange(shape[1]) % 8 == 3, 1 / 16, 0).clamp(max=x.max())


@bits_of_a_code
@pytest.mark.parametrize(
    "blocks, more, columns, group", [(1, 0, 256, 128), (0, 37, 70, 32), (0, 5, 256, 256)]
)
def test_kernel_rounds_stochastically(monkeypatch, blocks, more, columns, group, bits):
    x, seed = on_levels((blocks * block_rows(bits) + more, columns), bits), torch.tensor(2**40 + 3)
    words, params = quantize.quantize_pack_ref(x, bits, group, seed, 5)
    got = guarded(
        monkeypatch, quantize, "_quantize_pack_kernel", quantize.launch_quantize_pack,
        x, blank(words), blank(params), bits, group, seed, 5, outputs=["words_ptr", "params_ptr"],
    )  # fmt: skip
    assert torch.equal(got[0], words) and torch.equal(got[1], params)


def test_kernel_rounds_a_long_group_stochastically(monkeypatch):
    """There a program holds a part of a unit."""
    x, seed = on_levels((2, 4100), 8), torch.tensor(1)
    words, params = quantize.quantize_pack_ref(x, 8, 4100, seed)
    got = guarded(
        monkeypatch, quantize, "_quantize_pack_kernel", quantize.launch_quantize_pack,
        x, blank(words), blank(params), 8, 4100, seed, outputs=["words_ptr", "params_ptr"],
    )  # fmt: skip
    assert torch.equal(got[0], words) and torch.equal(got[1], params)


@slopes_of
def test_kernels_of_activations(monkeypatch, activation, slope_bits):
    for count, dtype in ((1, torch.float32), (2100, torch.bfloat16)):
        x, dy = 2 * draw((count,), dtype), draw((count,), dtype, 1)
        x[-1] = 0
        y, slopes = packed_activation.activation_pack_ref(x, activation, slope_bits)
        got_y, got = guarded(
            monkeypatch, packed_activation, "_activation_pack_kernel",
            packed_activation.launch_activation_pack, x, blank(y), blank(slopes), activation, slope_bits, outputs=["y_ptr", "slopes_ptr"],
        )  # fmt: skip
        assert torch.allclose(got_y, y, rtol=torch.finfo(dtype).eps, atol=1e-6)
        assert (got != slopes).float().mean() <= 0.002
        [dx] = guarded(
            monkeypatch, packed_activation, "_activation_backward_kernel",
            packed_activation.launch_activation_backward, dy, slopes, blank(dy), slope_bits,
            outputs=["dx_ptr"],
        )  # fmt: skip
        assert torch.equal(dx, packed_activation.activation_backward_ref(dy, slopes, slope_bits))


@pytest.mark.parametrize("count, dtype", [(1, torch.float32), (2101, torch.bfloat16)])
def test_kernels_of_dropout(monkeypatch, count, dtype):
    mask, dy = draw((count,)) > 0, draw((count,), dtype, 1)
    want = packed_dropout.mask_pack_ref(mask)
    assert want.tolist() == [sum(int(bit) << i for i, bit in enumerate(byte)) for byte in mask.split(8)]
    [bits] = guarded(
        monkeypatch, packed_dropout, "_mask_pack_kernel", packed_dropout.launch_mask_pack,
        mask.view(torch.uint8), blank(want), outputs=["bits_ptr"],
    )  # fmt: skip
    assert torch.equal(bits, want)
    [dx] = guarded(
        monkeypatch, packed_dropout, "_dropout_backward_kernel", packed_dropout.launch_dropout_backward,
        dy, bits, blank(dy), 1 / 0.9, outputs=["dx_ptr"],
    )  # fmt: skip
    assert torch.equal(dx, packed_dropout.dropout_backward_ref(dy, bits, 1 / 0.9))


@slopes_of
@pytest.mark.parametrize("rows, columns", [(130, 24), (3, 8)])
def test_kernel_of_the_gradient_and_its_sum(monkeypatch, rows, columns, activation, slope_bits):
    dy = draw((rows, columns), seed=1)
    _, slopes = packed_activation.activation_pack_ref(draw((rows, columns)), activation, slope_bits)
    sums = torch.empty(-(-rows // packed_activation.ROWS), columns)
    got, sums = guarded(
        monkeypatch, packed_activation, "_activation_backward_sum_kernel",
        packed_activation.launch_activation_backward_sum, dy.clone(), slopes, blank(sums), slope_bits,
        outputs=["dy_ptr", "sums_ptr"], in_place=["dy"],
    )  # fmt: skip
    want = packed_activation.activation_backward_ref(dy, slopes, slope_bits)
    assert torch.equal(got, want) and torch.allclose(sums.sum(0), want.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "bits, rows, columns, group, activation, slope_bits, seed",
    [
        (2, 128, 256, 256, "relu", 1, None),
        (2, 100, 256, 128, "relu", 1, None),
        (4, 70, 512, 512, "silu", 8, 7),
        (1, 20, 256, 32, "relu", 1, 3),
        (8, 33, 256, 64, "gelu", 4, None),
    ],
)
def test_kernel_of_activation_and_codes(
    monkeypatch, bits, rows, columns, group, activation, slope_bits, seed
):
    h = torch.randint(-8, 9, (rows, columns), generator=torch.Generator().manual_seed(0)).float() / 4
    if rows == 100:
        h[5, 7], h[20, 130] = float("nan"), float("inf")
    seed = None if seed is None else torch.tensor(seed)
    assert packed_activation.fits(columns, group)
    y, slopes = packed_activation.activation_pack_ref(h, activation, slope_bits)
    words, params = quantize.quantize_pack_ref(y, bits, group, seed)
    got_y, *got = guarded(
        monkeypatch, packed_activation, "_activation_quantize_kernel",
        packed_activation.launch_activation_quantize, h.clone(), blank(slopes), blank(words), blank(params),
        activation, slope_bits, bits, group, seed, 0,
        outputs=["h_ptr", "slopes_ptr", "words_ptr", "params_ptr"], in_place=["h"],
    )  # fmt: skip
    assert torch.allclose(got_y, y, rtol=1e-6, atol=1e-6, equal_nan=True) and torch.equal(got[0], slopes)
    assert (got[1] != words).float().mean() < 0.002
    assert torch.allclose(got[2], params, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "rms, affine, bits, rows, columns, group, seed",
    [
        (False, True, 2, 130, 96, 32, None),
        (True, True, 4, 64, 70, 32, 5),
        (False, False, 8, 20, 50, 50, None),
    ],
)
def test_kernels_of_norms(monkeypatch, rms, affine, bits, rows, columns, group, seed):
    x = 3 * draw((rows, columns)) + 1
    weight = draw((columns,), seed=1) if affine else None
    bias = draw((columns,), seed=2) if affine and not rms else None
    seed = None if seed is None else torch.tensor(seed)
    options = (rms, bits, group)
    y, *saved = packed_norm.norm_quantize_ref(x, weight, bias, 1e-5, *options, torch.bfloat16, seed, 0)
    got_y, *got = guarded(
        monkeypatch, packed_norm, "_norm_quantize_kernel", packed_norm.launch_norm_quantize,
        x, weight, bias, blank(y), tuple(blank(t) for t in saved), 1e-5, *options, seed, 0,
        outputs=["y_ptr", "words_ptr", "params_ptr", "rstd_ptr"],
    )  # fmt: skip
    assert torch.allclose(got_y, y, rtol=1e-5, atol=1e-5) and torch.allclose(got[2], saved[2], rtol=1e-6)
    assert (got[0] != saved[0]).float().mean() < 0.02 and (got[1] != saved[1]).float().mean() < 0.01
    dy, sums = draw((rows, columns), seed=3), torch.empty(saved[0].shape[0] * 4, 2, columns)
    dx, sums = guarded(
        monkeypatch, packed_norm, "_norm_backward_kernel", packed_norm.launch_norm_backward,
        dy, *saved, weight, blank(dy), blank(sums), *options, outputs=["dx_ptr", "sums_ptr"],
    )  # fmt: skip
    want, want_sums = packed_norm.norm_backward_ref(dy, *saved, weight, *options)
    assert torch.allclose(dx, want, rtol=1e-5, atol=1e-5)
    assert torch.allclose(sums.sum(0), want_sums, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 0, 4), (0, 5), torch.Size([7, 1, 9])])
def test_memory_is_laid_out_as_torch_does(shape):
    laid_out = launching._laid_out(shape)
    assert laid_out == (tuple(shape), torch.empty(shape).stride())
    assert [type(part) for part in laid_out] == [tuple, tuple]  # torch's function refuses a torch.Size


# ---- what is refused, and the operators that torch knows


# ruff: noqa: E501  the table below has a case a line
X, U8 = draw((4, 8)), torch.zeros(32, dtype=torch.uint8)
REFUSED = [
    (ValueError, "rounding must be nearest or stochastic, but is 'up'", lambda: quantize_pack(X, 2, 8, rounding="up")),
    (TypeError, "seed must be an integer or a torch.int64 tensor with one element, but is float", lambda: quantize_pack(X, 2, 8, seed=1.0)),
    (TypeError, "seed must be an integer or a torch.int64 tensor with one element, but is torch.float32", lambda: quantize_pack(X, 2, seed=X)),
    (ValueError, "seed must be an integer that fits in 64 bits, but is 9223372036854775808", lambda: quantize_pack(X, 2, seed=2**63)),
    (ValueError, "seed must have one element on the device of x, cpu, but has 2 elements on cpu", lambda: quantize_pack(X, 2, seed=torch.zeros(2).long())),
    (ValueError, "activation must be relu, gelu, gelu_tanh or silu, but is 'elu'", lambda: activation_pack(X, "elu", 4)),
    (ValueError, "slope_bits must be 1, 2, 4 or 8, but is 3", lambda: activation_pack(X, "gelu", 3)),
    (ValueError, "slope_bits must be 1 for relu, but is 4", lambda: activation_pack(X, "relu", 4)),
    (TypeError, "x must be float32, float16 or bfloat16, but is torch.float64", lambda: activation_pack(X.double(), "gelu", 4)),
    (TypeError, "slopes must be torch.uint8, but is torch.int64", lambda: activation_backward(X, U8.long(), 4)),
    (ValueError, "slopes must have shape (16,) for 32 elements of 4 bits, but has shape (32,)", lambda: activation_backward(X, U8, 4)),
    (ValueError, "slopes must be on the device of dy, cpu, but is on meta", lambda: activation_backward(X, U8.to("meta"), 8)),
    (ValueError, "h must be a contiguous tensor with at least one axis", lambda: activation_quantize_(X.t(), "relu", 1, 2)),
    (ValueError, "dy must be a contiguous tensor with at least one axis", lambda: activation_backward_(X.t(), U8, 8)),
    (ValueError, "weight must have shape (8,), but has shape (4,)", lambda: norm_quantize(X, X[:, 0], None, 0, rms=True, bits=2)),
    (TypeError, "dtype must be float32, float16 or bfloat16, but is torch.float64", lambda: norm_quantize(X, None, None, 0, rms=True, bits=2, dtype=torch.float64)),
]  # fmt: skip


@pytest.mark.parametrize("kind, text, call", REFUSED, ids=[text[:30] for _, text, _ in REFUSED])
def test_bad_arguments_are_refused(kind, text, call):
    with pytest.raises(kind, match="^" + re.escape(text)):
        call()


def test_opcheck():
    x, weight, seed = draw((20, 24)), draw((24,)), torch.tensor(3)
    slopes = activation_pack(x, "gelu", 4)[1]
    norm = (x, weight, weight, 1e-5, False, 2, 8, torch.bfloat16, seed, 0)
    _, *saved = packed_norm._norm_quantize(*norm)
    for operator, arguments in [
        (quantize._quantize_pack, (x, 2, 8, seed, 7)),
        (packed_activation._activation_pack, (x, "gelu", 4)),
        (packed_activation._activation_backward, (x, slopes, 4)),
        (packed_activation._activation_quantize_, (x.clone(), "gelu", 4, 2, 8, seed, 0)),
        (packed_activation._activation_backward_, (x.clone(), slopes, 4)),
        (packed_dropout._mask_pack, (x > 0,)),
        (packed_dropout._dropout_backward, (x, packed_dropout.mask_pack_ref(x > 0), 2.0)),
        (packed_norm._norm_quantize, norm),
        (packed_norm._norm_backward, (x, *saved, weight, False, 2, 8)),
    ]:
        torch.library.opcheck(operator, arguments)


def test_a_compiled_graph_calls_operators_with_fewer_checks():
    """Those have the same schema, the same fake and the same results."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    x = draw((40, 24)).requires_grad_()
    torch.compiler.reset()
    torch.compile(lambda x: quantize.quantize_unchecked(x.detach(), 2, 8), backend=backend, fullgraph=True)(x)
    called = {node.target for node in graphs[0].graph.nodes if node.op == "call_function"}
    assert torch.ops.bit_by_bit.quantize_pack_inside.default in called
    graphs.clear()
    in_place = packed_activation.activation_quantize_unchecked_
    h = x.detach().clone()
    torch.compile(lambda h: in_place(h, "gelu", 4, 2, 8, None), backend=backend, fullgraph=True)(h)
    called = {node.target for node in graphs[0].graph.nodes if node.op == "call_function"}
    assert torch.ops.bit_by_bit.activation_quantize__inside.default in called
    names = [name for name in dir(torch.ops.bit_by_bit) if name.endswith("_inside")]
    assert len(names) >= 10
    for name in names:
        inside, whole = (getattr(torch.ops.bit_by_bit, each).default for each in (name, name[:-7]))
        assert str(inside._schema).replace("_inside", "") == str(whole._schema)
    slopes = activation_pack(x.detach(), "gelu", 4)[1]
    for operator, arguments in [
        (torch.ops.bit_by_bit.quantize_pack_inside.default, (x.detach(), 2, 8, torch.tensor(3), 7)),
        (torch.ops.bit_by_bit.activation_backward_inside.default, (x.detach(), slopes, 4)),
        (torch.ops.bit_by_bit.activation_quantize__inside.default, (x.detach().clone(), "gelu", 4, 2, 8)),
        (torch.ops.bit_by_bit.activation_backward__inside.default, (x.detach().clone(), slopes, 4)),
    ]:
        torch.library.opcheck(operator, arguments)
