"""PackedLinear and PackedReLU on a GPU: the fused kernels behind autograd, and the memory they save."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from puzzles_lib.kernels.bitpack import BITS
from puzzles_lib.kernels.modules import PackedLinear, PackedReLU
from puzzles_lib.kernels.quantize import dequantize, quantize_pack

pytestmark = pytest.mark.gpu

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def draw(shape, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype)


def network(dtype=torch.bfloat16, bits=2):
    torch.manual_seed(0)
    options = {"bits": bits, "dtype": dtype, "device": "cuda"}
    return nn.Sequential(PackedLinear(512, 768, **options), PackedReLU(), PackedLinear(768, 256, **options))


def gradients(call, x, parameters, seed=9):
    wanted = [x.detach().requires_grad_(), *parameters]
    for tensor in wanted:
        tensor.grad = None
    y = call(wanted[0])
    y.backward(draw(y.shape, y.dtype, seed))
    return y.detach(), *(tensor.grad for tensor in wanted)


def close(got, want, dtype):
    error = (got.double() - want.double()).norm() / want.double().norm()
    return error < (2e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1000, 512), (4, 33, 512), (7, 130)], ids=str)
def test_gradients_are_those_of_the_dequantised_input(shape, dtype, bits):
    torch.manual_seed(0)
    layer = PackedLinear(shape[-1], 264, bits=bits, dtype=dtype, device="cuda")
    x = draw(shape, dtype)
    y, dx, dw, db = gradients(layer, x, layer.parameters())
    rows = draw((*shape[:-1], 264), dtype, 9).double().reshape(-1, 264)
    seed = layer.seed(x)
    packed = quantize_pack(x, bits, 256, rounding=layer.rounding, seed=0 if seed is None else seed)
    x_hat = dequantize(packed).double().reshape(-1, shape[-1])
    weight = layer.weight.detach().double()
    assert torch.equal(y, F.linear(x, layer.weight, layer.bias))
    assert close(dx.reshape(-1, shape[-1]), rows @ weight, dtype)
    assert close(dw, rows.t() @ x_hat, dtype) and close(db, rows.sum(0), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype):
    net, x = network(torch.float32), draw((1000, 512), torch.float32)
    with torch.autocast("cuda", dtype):
        y, *found = gradients(net, x, net.parameters())
    assert y.dtype == dtype and all(gradient.dtype == torch.float32 for gradient in found)
    low = network(dtype)
    low.load_state_dict(net.state_dict())
    y_low, *want = gradients(low, x.to(dtype), low.parameters())
    assert torch.equal(y, y_low)
    assert all(torch.equal(a.to(dtype), b) for a, b in zip(found, want, strict=True))  # of fewer roundings


@pytest.mark.parametrize("autocast", [False, True])
def test_compiles_as_one_graph(autocast):
    net, x = network(torch.float32), draw((1000, 512), torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        got, want = (gradients(call, x, net.parameters()) for call in (compiled, net))
    dtype = torch.bfloat16 if autocast else torch.float32
    assert all(close(a, b, dtype) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing(use_reentrant):
    net, x = network(), draw((1000, 512))
    got = gradients(lambda x: checkpoint(net, x, use_reentrant=use_reentrant), x, net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(got, gradients(net, x, net.parameters()), strict=True))


def test_non_contiguous_inputs():
    layer, x = network()[0], draw((512, 40, 25)).permute(2, 1, 0)
    got, want = gradients(layer, x, layer.parameters()), gradients(layer, x.contiguous(), layer.parameters())
    assert all(close(a, b, torch.bfloat16) for a, b in zip(got, want, strict=True))
    relu = PackedReLU()
    assert torch.equal(gradients(relu, x, [])[1], gradients(relu, x.contiguous(), [])[1])


def memory_held(net, x):
    """Bytes that a forward pass leaves allocated for backward, besides its result."""
    net(x.detach().clone())  # not x itself: what is kept of a tensor is kept once
    torch.cuda.synchronize()
    before = requested_bytes()
    y = net(x)
    return requested_bytes() - before - y.nbytes


def requested_bytes():
    """What tensors hold, without what the allocator rounds up."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


@pytest.mark.parametrize("autocast", [False, True])
def test_memory_held_for_backward(autocast):
    """Two codes' bits, a scale and a minimum for each 256, and a bit for ReLU: nothing else."""
    rows = 16384
    net = network(torch.float32 if autocast else torch.bfloat16)
    plain = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 256)).to("cuda", net[0].weight.dtype)
    x = draw((rows, 512), net[0].weight.dtype).requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        held, plain_held = memory_held(net, x), memory_held(plain, x)
    inputs = rows * (512 + 768)
    expected = inputs * 2 / 8 + inputs / 256 * 4 + rows * 768 / 8
    assert expected <= held <= expected + 4096
    assert plain_held + 2 * x.numel() > 5 * held  # torch's layers keep x as well


def test_gradients_repeat_bitwise():
    net, x = network(), draw((4096, 512))
    want = gradients(net, x, net.parameters())
    for _ in range(50):
        got = gradients(net, x, net.parameters())
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
