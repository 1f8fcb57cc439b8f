"""Packed activations, norms and MLPs, and stochastic rounding, on a GPU: equal to their torch references."""

import copy
import re

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from puzzles_lib.kernels import launching, packed_activation, packed_dropout, packed_norm, quantize
from puzzles_lib.kernels.bitpack import BITS
from puzzles_lib.kernels.modules import (
    PackedDropout,
    PackedMLP,
    pack_activations,
    seed_rounding,
    unpack_activations,
)
from puzzles_lib.kernels.quantize import dequantize, quantize_pack
from tests.test_lookalikes import Experts, LlamaMLP

pytestmark = pytest.mark.gpu

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SLOPES = [("relu", 1), ("gelu", 4), ("gelu_tanh", 8), ("silu", 2)]


def draw(shape, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype)


def an_ulp(got, want):
    """Both round the same number, but by two implementations of erf, exp or a sum."""
    eps = torch.finfo(got.dtype).eps
    return torch.allclose(got.float(), want.float(), rtol=2 * eps, atol=4e-6)


def beside(got, want, bits):
    """Codes that differ by one at most, and rarely."""
    each = 8 // bits
    shifts = bits * torch.arange(each, dtype=torch.uint8)
    a, b = (((t.cpu()[:, None] >> shifts) & (2**bits - 1)).int() for t in (got, want))
    return (a - b).abs().max() <= 1 and (a != b).float().mean() < 2e-3


# ---- stochastic rounding


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group", [1, 50, 128, 256, 5000])
@pytest.mark.parametrize("shape", [(256, 768), (300, 1000), (2, 3, 70)], ids=str)
def test_stochastic_codes_are_those_of_the_reference(shape, group, bits):
    x = draw(shape, FLOATS[group % 3], 1)
    options = {"rounding": "stochastic", "seed": 2**40 + 1, "offset": 2**33 + 5}
    packed, want = quantize_pack(x, bits, group, **options), quantize_pack(x.cpu(), bits, group, **options)
    assert torch.equal(packed.words.cpu(), want.words) and torch.equal(packed.params.cpu(), want.params)


@pytest.mark.parametrize("bits", BITS)
def test_stochastic_rounding_is_right_on_average(bits):
    x, total, seeds = draw((256, 512), torch.float32), 0, 400
    for seed in range(seeds):
        total = total + dequantize(quantize_pack(x, bits, 256, rounding="stochastic", seed=seed)).double()
    packed = quantize_pack(x, bits, 256, rounding="stochastic")
    scale = packed.scale.permute(1, 2, 0).flatten(0, 1)[:256].double().repeat_interleave(256, 1)
    error = (total / seeds - x) / scale
    assert error.abs().max() < 6 * 0.5 / seeds**0.5 and error.mean().abs() < 1e-4


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("rows", [130, 256])
def test_stochastic_rounding_keeps_nan_in_its_group(rows, bits):
    x = draw((rows, 512))
    options = {"rounding": "stochastic", "seed": 3}
    clean = dequantize(quantize_pack(x, bits, 128, **options))
    x[7, 300] = float("nan")
    back = dequantize(quantize_pack(x, bits, 128, **options))
    assert back[7, 256:384].isnan().all()
    back[7, 256:384] = clean[7, 256:384]
    assert torch.equal(back, clean)


# ---- activations


@pytest.mark.parametrize("activation, slope_bits", SLOPES)
@pytest.mark.parametrize("shape", [(2, 3, 5), (100, 300), (2048, 768), (0, 4)], ids=str)
def test_activation(shape, activation, slope_bits):
    for dtype in FLOATS:
        x, dy = 2 * draw(shape, dtype), draw(shape, dtype, 1)
        y, slopes = packed_activation.activation_pack(x, activation, slope_bits)
        want, want_slopes = packed_activation.activation_pack(x.cpu(), activation, slope_bits)
        assert an_ulp(y.cpu(), want)
        assert not x.numel() or beside(slopes, want_slopes, slope_bits)
        dx = packed_activation.activation_backward(dy, slopes, slope_bits)
        assert torch.equal(
            dx.cpu(), packed_activation.activation_backward(dy.cpu(), slopes.cpu(), slope_bits)
        )
        got = dy.clone()
        sums = packed_activation.activation_backward_(got, slopes, slope_bits)
        assert torch.equal(got, dx)
        assert torch.allclose(sums.double(), dx.double().reshape(-1, shape[-1]).sum(0), rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("activation, slope_bits", SLOPES)
@pytest.mark.parametrize("rows, columns, group", [(256, 512, 256), (300, 1024, 128), (70, 96, 32)])
@pytest.mark.parametrize("seed", [None, 11])
def test_fused_activation_is_the_sequence(seed, rows, columns, group, activation, slope_bits, bits):
    """To the bit for the codes of what it made; two kernels may round a GELU's float32 differently."""
    h = draw((rows, columns), FLOATS[bits % 3])
    y, slopes = packed_activation.activation_pack(h, activation, slope_bits)
    state = None if seed is None else torch.tensor(seed, device="cuda")
    found = packed_activation.activation_quantize_(h, activation, slope_bits, bits, group, state)
    packed = quantize_pack(
        h, bits, group, rounding="nearest" if seed is None else "stochastic", seed=seed or 0
    )
    assert torch.equal(found[1], packed.words) and torch.equal(found[2], packed.params)
    if activation == "relu":
        assert torch.equal(h, y) and torch.equal(found[0], slopes)
    assert an_ulp(h, y) and beside(found[0], slopes, slope_bits)


@pytest.mark.parametrize("bits", BITS)
def test_fused_activation_keeps_nan_and_inf_in_their_group(bits):
    h = draw((256, 512))
    h[3, 5], h[200, 300] = float("nan"), float("inf")
    y, _ = packed_activation.activation_pack(h, "relu", 1)
    want = quantize_pack(y, bits, 128)
    _, words, params = packed_activation.activation_quantize_(h, "relu", 1, bits, 128)
    assert torch.equal(words, want.words)
    assert torch.equal(params.nan_to_num(9, 8, 7), want.params.nan_to_num(9, 8, 7))


# ---- norms


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape, group", [((300, 768), 256), ((2, 65, 70), 32), ((9, 4096), 256)])
@pytest.mark.parametrize("seed", [None, 11])
def test_norm(seed, shape, group, bits, rms):
    for dtype in (FLOATS[bits % 3],):
        x, weight = draw(shape, dtype) + 1, draw(shape[-1:], dtype, 1)
        bias = None if rms else draw(shape[-1:], dtype, 2)
        state = None if seed is None else torch.tensor(seed, device="cuda")
        options = {"rms": rms, "bits": bits, "group_size": group}
        y, words, params, rstd = packed_norm.norm_quantize(x, weight, bias, 1e-5, **options, seed=state)
        args = [None if t is None else t.cpu() for t in (x, weight, bias)]
        state = None if seed is None else torch.tensor(seed)
        want = packed_norm.norm_quantize(*args, 1e-5, **options, seed=state)
        eps = torch.finfo(dtype).eps
        assert torch.allclose(y.cpu().float(), want[0].float(), rtol=4 * eps, atol=4 * eps)
        assert torch.allclose(params.cpu().float(), want[2].float(), rtol=4 * eps, atol=1e-5)
        assert (words.cpu() != want[1]).float().mean() < (0.1 if dtype == torch.bfloat16 else 0.03)
        assert torch.allclose(rstd.cpu(), want[3], rtol=1e-5)
        dy = draw(shape, dtype, 3)
        got = packed_norm.norm_backward(dy, words, params, rstd, weight, **options)
        want = packed_norm.norm_backward(
            dy.cpu(), words.cpu(), params.cpu(), rstd.cpu(), weight.cpu(), **options
        )
        assert torch.allclose(got[0].cpu().float(), want[0].float(), rtol=4 * eps, atol=2e-5 + eps)
        assert all(
            torch.allclose(a.cpu(), b, rtol=1e-3, atol=1e-3) for a, b in zip(got[1:], want[1:], strict=True)
        )


def test_a_norm_of_wide_rows_takes_torch():
    x, weight = draw((5, 9000), torch.float32), draw((9000,), torch.float32, 1)
    options = {"rms": True, "bits": 4, "group_size": 256}
    y, *saved = packed_norm.norm_quantize(x, weight, None, 1e-5, **options)
    assert torch.allclose(y, nn.functional.rms_norm(x, (9000,), weight, 1e-5), rtol=1e-5, atol=1e-6)
    dx, _, _ = packed_norm.norm_backward(x, *saved, weight, **options)
    assert dx.isfinite().all()


# ---- modules


class Block(nn.Module):
    """Attention's projections and an MLP, without the attention."""

    def __init__(self, act):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(256), nn.RMSNorm(256)
        self.q, self.k, self.v = (nn.Linear(256, 256) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(256, 512), act, nn.Linear(512, 256))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.q(y).sigmoid() * self.k(y) + self.v(y)
        return x + self.mlp(self.norm2(x))


def block(act=None, dtype=torch.bfloat16, **options):
    torch.manual_seed(0)
    return pack_activations(Block(act or nn.GELU()).to("cuda", dtype), **options)


def gradients(model, x, dy):
    x = x.detach().requires_grad_()
    model.zero_grad(set_to_none=True)
    y = model(x)
    y.backward(dy.to(y.dtype))
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


def relative(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("act", [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU()], ids=str)
def test_gradients_of_a_block(act):
    packed = block(act, torch.float32, bits=8, slope_bits=8)
    plain, x, dy = (
        unpack_activations(copy.deepcopy(packed)),
        draw((1000, 256), torch.float32),
        draw((1000, 256)),
    )
    assert type(packed.mlp) is PackedMLP
    for got, want in zip(gradients(packed, x, dy), gradients(plain, x, dy), strict=True):
        assert relative(got, want) < 0.02


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("autocast", [False, True])
def test_compiled_and_repeated_it_is_the_same(autocast, rounding):
    model = block(
        dtype=torch.float32 if autocast else torch.bfloat16, bits=8, slope_bits=8, rounding=rounding
    )
    x, dy = draw((1000, 256), torch.float32 if autocast else torch.bfloat16), draw((1000, 256))
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        seed_rounding(model, 5)
        want = gradients(model, x, dy)
        for _ in range(20):
            assert all(torch.equal(a, b) for a, b in zip(gradients(model, x, dy), want, strict=True))
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True)
        got = gradients(compiled, x, dy)
    assert all(relative(a, b) < 0.02 for a, b in zip(got, want, strict=True))


def test_compiled_x_is_cast_once_for_its_codes_and_for_the_product():
    model = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512)).cuda()
    model, x = pack_activations(model, bits=2), draw((1000, 256), torch.float32).requires_grad_()
    torch.compiler.reset()
    with torch.autocast("cuda", torch.bfloat16):
        _, (code, *_) = run_and_get_code(torch.compile(model, fullgraph=True), x)
    (quantized,) = re.findall(r"quantize_pack_inside\.default\((?:reinterpret_tensor\()?(\w+)", code)
    (multiplied,) = re.findall(r"addmm\(\w+, (?:reinterpret_tensor\()?(\w+)", code)
    assert quantized == multiplied


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1)], ids=str)
def test_compiled_it_takes_inputs_of_any_strides(order):
    x = draw((8, 16, 32), torch.float32).requires_grad_()
    model = nn.Sequential(nn.LayerNorm(x.shape[order[2]]), nn.Linear(x.shape[order[2]], 64), nn.GELU()).cuda()
    model = pack_activations(model, bits=8)
    dy = x.new_ones(1).expand(*(x.shape[axis] for axis in order[:2]), 64)

    def gradients_of(layers):
        out = layers((2 * x).permute(order))
        return torch.autograd.grad(out, [x, *model.parameters()], dy)

    torch.compiler.reset()
    want, got = gradients_of(model), gradients_of(torch.compile(model, fullgraph=True))
    assert all(relative(a, b) < 0.02 for a, b in zip(got, want, strict=True))


def test_memory_held_for_backward():
    """Codes of the norm's input, of its output and of the hidden layer, and the slopes."""
    model, rows = block(bits=2), 16384
    x = draw((rows, 256)).requires_grad_()
    model(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    y = model.mlp(model.norm2(x))
    held = torch.cuda.memory_stats()["requested_bytes.all.current"] - before - y.nbytes
    codes = rows * (256 + 256 + 512) * 2.125 / 8
    expected = codes + rows * 512 / 2 + rows * 4
    assert expected <= held <= expected + 4096


def test_opcheck_of_every_operator():
    x, weight, seed = draw((130, 256)), draw((256,)), torch.tensor(3, device="cuda")
    torch.library.opcheck(quantize._quantize_pack, (x, 2, 128, seed, 7))
    torch.library.opcheck(packed_activation._activation_pack, (x, "gelu", 4))
    slopes = packed_activation.activation_pack(x, "gelu", 4)[1]
    torch.library.opcheck(packed_activation._activation_backward, (x, slopes, 4))
    torch.library.opcheck(packed_activation._activation_quantize_, (x.clone(), "gelu", 4, 2, 128, seed, 0))
    torch.library.opcheck(packed_activation._activation_backward_, (x.clone(), slopes, 4))
    args = (x, weight, weight, 1e-5, False, 2, 128, torch.bfloat16, seed, 0)
    torch.library.opcheck(packed_norm._norm_quantize, args)
    _, *saved = packed_norm._norm_quantize(*args)
    torch.library.opcheck(packed_norm._norm_backward, (x, *saved, weight, False, 2, 128))
    torch.library.opcheck(packed_dropout._mask_pack, (x > 0,))
    bits = packed_dropout.mask_pack_unchecked(x > 0)
    torch.library.opcheck(packed_dropout._dropout_backward, (x, bits, 2.0))


# ---- dropout, gated MLPs, mixtures of experts


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(3, 7, 5), (300, 768), (0, 4)], ids=str)
def test_dropout_is_that_of_torch_to_the_bit(shape, dtype):
    found = []
    for layer in (PackedDropout(0.3), nn.Dropout(0.3)):
        for x in (draw(shape, dtype), draw(shape, dtype).transpose(0, -1)):
            x = x.detach().requires_grad_()
            torch.manual_seed(1)
            y = layer(x)
            y.backward(draw(y.shape, dtype, 2))
            found += [y.detach(), x.grad]
    for got, want in zip(found[:4], found[4:], strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", [(256, 512), (50, 30)])
@pytest.mark.parametrize("kind", [LlamaMLP, Experts])
def test_gated_mlps_and_experts(kind, sizes, dtype):
    torch.manual_seed(0)
    plain = kind(*sizes).to("cuda", dtype)
    packed = pack_activations(nn.Sequential(copy.deepcopy(plain)), 8, slope_bits=8)[0]
    assert type(packed) is not kind
    found = []
    for module in (packed, plain):
        x = draw((300, sizes[0]), dtype).requires_grad_()
        rest = []
        if kind is Experts:
            rest = [draw((300, 5), seed=3).topk(2).indices, draw((300, 2), dtype, 4).requires_grad_()]
        y = module(x, *rest)
        y.backward(draw(y.shape, dtype, 5))
        leaves = [x, *rest[1:], *module.parameters()]
        found.append([y.detach(), *(leaf.grad for leaf in leaves)])
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype and (got - want).float().norm() < 0.03 * want.float().norm()


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (2, 0, 4), (0, 5), torch.Size([7, 1, 9])])
def test_memory_is_laid_out_as_torch_does(shape):
    x = torch.empty(1, device="cuda", dtype=torch.bfloat16)
    for dtype in (None, torch.int16):
        got, want = launching.empty(x, shape, dtype), x.new_empty(shape, dtype=dtype)
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        assert got.device == want.device and got.is_contiguous()
