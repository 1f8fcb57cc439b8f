"""Packed layers on the CPU: what they compute, what they keep, where they work.

On a GPU: test_modules_gpu.py.
"""

import copy
import io
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from puzzles_lib.kernels.bitpack import BITS
from puzzles_lib.kernels.modules import (
    PackedDropout,
    PackedGELU,
    PackedLayerNorm,
    PackedLinear,
    PackedMLP,
    PackedReLU,
    PackedRMSNorm,
    PackedSiLU,
    pack_activations,
    report,
    seed_rounding,
    unpack_activations,
)
from puzzles_lib.kernels.quantize import dequantize, quantize_pack

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
bits_of_a_code = pytest.mark.parametrize("bits", BITS)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def draw(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def linear(columns=70, features=9, bits=4, group_size=32, dtype=torch.float32, bias=True):
    torch.manual_seed(0)
    return PackedLinear(columns, features, bias, dtype=dtype, bits=bits, group_size=group_size)


def network(bits=4):
    torch.manual_seed(0)
    return nn.Sequential(
        PackedLinear(70, 50, bits=bits, group_size=32), PackedReLU(), PackedLinear(50, 9, bits=bits)
    )


def gradients(call, x, parameters, seed=9):
    """y, and the gradients of x and the parameters for a drawn gradient of y."""
    wanted = [x.detach().requires_grad_(), *parameters]
    for tensor in wanted:
        tensor.grad = None
    y = call(wanted[0])
    y.backward(draw(y.shape, y.dtype, seed))
    return y.detach(), *(tensor.grad for tensor in wanted)


def through_the_dequantised(layer, x, seed=9):
    """The same in float64, by formula: dW from x^, all else from x."""
    weight = layer.weight.detach().double()
    bias = None if layer.bias is None else layer.bias.detach().double()
    number = layer.seed(x)
    options = {} if number is None else {"rounding": "stochastic", "seed": number}
    x_hat = dequantize(quantize_pack(x, layer.bits, layer.group_size, **options)).double()
    dy = draw((*x.shape[:-1], layer.out_features), x.dtype, seed).double()
    rows = dy.reshape(-1, layer.out_features)
    found = [F.linear(x.double(), weight, bias), dy @ weight, rows.t() @ x_hat.reshape(-1, x.shape[-1])]
    return found if bias is None else [*found, rows.sum(0)]


def saved_by(call):
    """What autograd keeps while a call runs: shapes and dtypes."""
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return [(tuple(t.shape), t.dtype) for t in kept]


def near(got, want, dtype):
    eps = torch.finfo(dtype).eps
    return torch.allclose(got.double(), want, rtol=2 * eps, atol=4 * eps * float(want.abs().max()))


# ---- what is computed


@bits_of_a_code
@dtypes
@pytest.mark.parametrize("shape", [(33, 70), (2, 3, 70), (70,), (1, 70)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_the_dequantised_input(bias, shape, dtype, bits):
    layer, x = linear(bits=bits, dtype=dtype, bias=bias), draw(shape, dtype)
    got = gradients(layer, x, layer.parameters())
    for value, want in zip(got, through_the_dequantised(layer, x), strict=True):
        assert value.dtype == dtype and value.shape == want.shape and near(value, want, dtype)


@bits_of_a_code
def test_gradients_by_finite_differences(bits):
    """Of the loss <y, dy>, with x on levels that the codes hold exactly, so that x^ is x.

    The loss is linear in the weight, in the bias and in x: a difference over a step of 1 is exact.
    """
    levels = torch.randint(0, 2**bits, (6, 8), generator=torch.Generator().manual_seed(1)).float()
    levels[:, 0], levels[:, 1] = 0, 2**bits - 1
    x, layer = levels - 1, linear(8, 3, bits, 8)
    dy = draw((6, 3), seed=9).double()
    _, *found = gradients(layer, x, layer.parameters())
    points = [x.double(), *(p.detach().double() for p in layer.parameters())]

    def loss():
        return float((F.linear(*points) * dy).sum())

    base = loss()
    for point, gradient in zip(points, found, strict=True):
        for place in range(point.numel()):
            point.view(-1)[place] += 1
            assert loss() - base == pytest.approx(float(gradient.view(-1)[place]), rel=1e-4, abs=1e-4)
            point.view(-1)[place] -= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_forward_is_that_of_nn_linear_to_the_bit(dtype):
    layer, x = linear(dtype=dtype), draw((33, 70), dtype)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))


def test_dx_and_db_are_exact_and_dw_is_not():
    """Only the weight's gradient pays for the codes, the less the more bits there are."""
    errors = []
    for bits in BITS:
        layer, x = linear(bits=bits), draw((200, 70))
        got = gradients(layer, x, layer.parameters())
        want = gradients(lambda x, layer=layer: F.linear(x, layer.weight, layer.bias), x, layer.parameters())
        for value, exact in zip(got[:2] + got[3:], want[:2] + want[3:], strict=True):
            assert torch.allclose(value, exact, rtol=1e-5, atol=1e-5)
        errors.append(float((got[2] - want[2]).norm() / want[2].norm()))
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.1 and 0 < errors[-1] < 0.01


@dtypes
@pytest.mark.parametrize("shape", [(33, 70), (2, 3, 5), (7,), (0, 4)], ids=str)
def test_relu_is_that_of_torch_to_the_bit(shape, dtype):
    x = draw(shape, dtype)
    x.view(-1)[::3] = 0.0
    got, want = gradients(PackedReLU(), x, []), gradients(F.relu, x, [])
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_nan_reaches_what_it_reaches_in_torch():
    x = draw((20, 64))
    x[3, 40] = float("nan")
    layer = linear(64, 9)
    _, dx, dw, _ = gradients(layer, x, layer.parameters())
    assert dx.isfinite().all() and dw[:, 32:].isnan().all() and dw[:, :32].isfinite().all()


@pytest.mark.parametrize("shape, features", [((0, 70), 9), ((4, 0), 9), ((4, 70), 0)])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_empty_sizes(shape, features):
    layer = linear(shape[-1], features)
    for value, want in zip(
        gradients(layer, draw(shape), layer.parameters()),
        gradients(lambda x: F.linear(x, layer.weight, layer.bias), draw(shape), layer.parameters()),
        strict=True,
    ):
        assert torch.equal(value, want)


def test_non_contiguous_inputs_and_gradients():
    layer, x = linear(), draw((70, 5, 4)).permute(2, 1, 0)
    dy = draw((9, 5, 4), seed=1).permute(2, 1, 0)
    for call in (layer, lambda x: PackedReLU()(layer(x))):
        found = []
        for a, b in ((x, dy), (x.contiguous(), dy.contiguous())):
            a = a.detach().requires_grad_()
            found.append(torch.autograd.grad(call(a), [a, *layer.parameters()], b))
        assert all(torch.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(*found, strict=True))
    expanded = torch.autograd.grad(layer(x).sum(), layer.weight)  # dy of strides 0
    assert torch.allclose(expanded[0], torch.autograd.grad(layer(x), layer.weight, torch.ones(4, 5, 9))[0])


def test_training_learns():
    """A task that two layers can do, with 2 bits kept: the loss falls by more than ten times."""
    net, x = network(bits=2), draw((128, 70))
    target = torch.tanh(x @ draw((70, 9), seed=5) / 8)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = F.mse_loss(net(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


# ---- what is kept


@bits_of_a_code
@dtypes
def test_what_is_saved(dtype, bits):
    """The codes, 2 numbers a group, and the weight itself, which is there anyway."""
    layer, x = linear(512, 9, bits, 128, dtype), draw((256, 512), dtype).requires_grad_()
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = layer(x)
    words, params, weight = kept
    assert weight is layer.weight
    assert words.nbytes == 256 * 512 * bits // 8
    assert params.nbytes == 256 * 4 * 2 * x.element_size()
    assert words.untyped_storage().nbytes() == words.nbytes
    assert params.untyped_storage().nbytes() == params.nbytes
    y.sum().backward()


def test_two_bits_save_as_promised():
    x = draw((1024, 768), torch.bfloat16)
    layer = linear(768, 8, 2, 256, torch.bfloat16)
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        layer(x)
    bits_an_element = 8 * sum(t.nbytes for t in kept if t is not layer.weight) / x.numel()
    assert bits_an_element == 2.125


@dtypes
def test_relu_saves_one_bit_an_element(dtype):
    x = draw((33, 70), dtype).requires_grad_()
    assert saved_by(lambda: PackedReLU()(x)) == [((math.ceil(33 * 70 / 8),), torch.uint8)]


def test_a_network_saves_no_activation():
    net, x = network(), draw((128, 70))
    shapes = [shape for shape, dtype in saved_by(lambda: net(x)) if dtype == torch.float32 and len(shape) < 4]
    assert shapes == [(50, 70), (9, 50)]  # the weights


@pytest.mark.parametrize("wanted", [True, False])
def test_a_frozen_weight_saves_no_input(wanted):
    layer, x = linear(), draw((33, 70)).requires_grad_(wanted)
    layer.weight.requires_grad_(False)
    assert (33, 70) not in [shape for shape, _ in saved_by(lambda: layer(x))]
    assert not any(dtype == torch.int16 for _, dtype in saved_by(lambda: layer(x)))
    dy = draw((33, 9), seed=1)
    layer(x).backward(dy)
    assert torch.allclose(layer.bias.grad, dy.sum(0), rtol=1e-5, atol=1e-5)
    assert not wanted or torch.allclose(x.grad, dy @ layer.weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_saved(mode):
    net, x = network(), draw((33, 70))
    with mode():
        assert saved_by(lambda: net(x)) == []
        y = net(x)
    assert not y.requires_grad
    assert saved_by(lambda: PackedReLU()(x)) == []
    assert torch.equal(y, network()(x))


# ---- where they work


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype):
    """As nn.Linear: computed and kept in the dtype of autocast, gradients in that of the parameters."""
    layer, x = linear(), draw((33, 70)).requires_grad_()
    kept = []
    with torch.autocast("cpu", dtype), saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = layer(x)
    with torch.autocast("cpu", dtype):
        assert torch.equal(y, F.linear(x, layer.weight, layer.bias))
    assert y.dtype == dtype
    assert [t.dtype for t in kept] == [torch.int16, dtype, torch.float32] and kept[2] is layer.weight
    dy = draw(y.shape, dtype, 9)
    got = torch.autograd.grad(y, [x, *layer.parameters()], dy)
    assert all(gradient.dtype == torch.float32 for gradient in got)
    low = linear(dtype=dtype)
    low.load_state_dict(layer.state_dict())
    for value, want in zip(got, through_the_dequantised(low, x.detach().to(dtype))[1:], strict=True):
        assert near(value, want, dtype)


def test_autocast_around_backward_changes_nothing():
    """A float32 forward has a float32 backward, whatever surrounds `backward`."""
    layer, x = linear(), draw((33, 70)).requires_grad_()
    dy = draw((33, 9), seed=1)
    want = torch.autograd.grad(layer(x), [x, *layer.parameters()], dy)
    y = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        got = torch.autograd.grad(y, [x, *layer.parameters()], dy)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_autocast_disabled_inside_autocast():
    layer, x = linear(), draw((33, 70))
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))


def test_relu_under_autocast_keeps_the_dtype():
    with torch.autocast("cpu", torch.bfloat16):
        assert PackedReLU()(draw((4, 4)).requires_grad_()).dtype == torch.float32


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_as_one_graph(dynamic, autocast, backend):
    net = network()
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (40, 41, 130) if dynamic else (40,):
        x = draw((3, rows, 70))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            got, want = (gradients(call, x, net.parameters()) for call in (compiled, net))
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    torch.compiler.reset()


def test_compiled_it_saves_no_activation_either():
    net, x = network(), draw((128, 70)).requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    shapes = [shape for shape, dtype in saved_by(lambda: compiled(x)) if dtype == torch.float32]
    assert sorted(s for s in shapes if len(s) == 2) == [(9, 50), (50, 70)]
    torch.compiler.reset()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing(use_reentrant):
    net, x = network(), draw((40, 70))
    got = gradients(lambda x: checkpoint(net, x, use_reentrant=use_reentrant), x, net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(got, gradients(net, x, net.parameters()), strict=True))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_keeps_the_input_alone(use_reentrant):
    net, x = network(), draw((40, 70)).requires_grad_()
    kept = saved_by(lambda: checkpoint(net, x, use_reentrant=use_reentrant))
    assert not any(dtype in (torch.int16, torch.uint8) for _, dtype in kept)


def test_checkpointing_under_autocast_and_compile():
    net, x = network(), draw((40, 70))
    with torch.autocast("cpu", torch.bfloat16):
        want = gradients(net, x, net.parameters())
        got = gradients(lambda x: checkpoint(net, x, use_reentrant=False), x, net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x: checkpoint(net, x, use_reentrant=False), fullgraph=True, backend="aot_eager"
    )
    got, want = (gradients(call, x, net.parameters()) for call in (compiled, net))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    torch.compiler.reset()


def test_gradients_accumulate_and_parameters_are_shared():
    """One layer called twice, and one step after another."""
    layer, a, b = linear(bits=8), draw((5, 70)), draw((6, 70), seed=1)
    (layer(a).sum() + layer(b).sum()).backward()
    want = sum(torch.autograd.grad(layer(x).sum(), layer.weight)[0] for x in (a, b))
    assert torch.allclose(layer.weight.grad, want, rtol=1e-5, atol=1e-5)


LAYERS = [linear(), PackedReLU(), PackedGELU(), PackedLayerNorm(70), PackedRMSNorm(70), PackedMLP(70, 9)]


@pytest.mark.parametrize("module", LAYERS, ids=lambda m: type(m).__name__)
def test_what_is_not_supported_is_refused_at_once(module):
    x = draw((5, 70)).requires_grad_()
    with pytest.raises(RuntimeError, match="^packed layers can't be differentiated twice"):
        torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=f"^{type(module).__name__} doesn't work inside torch.func"):
        torch.func.grad(lambda x: module(x).sum())(x)
    with pytest.raises(TypeError, match="^x must be float32, float16 or bfloat16, but is torch.float64$"):
        copy.deepcopy(module).double()(x.double())
    module(x).sum().backward()


def test_a_weight_changed_before_backward_is_refused():
    layer, x = linear(), draw((5, 70)).requires_grad_()
    y = layer(x).sum()
    with torch.no_grad():
        layer.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ---- instead of torch's layers


def test_the_state_is_that_of_nn_linear():
    layer, plain = linear(), nn.Linear(70, 9)
    assert list(layer.state_dict()) == list(plain.state_dict()) == ["weight", "bias"]
    plain.load_state_dict(layer.state_dict())
    layer.load_state_dict(nn.Linear(70, 9).state_dict())
    assert isinstance(layer, nn.Linear) and isinstance(PackedReLU(), nn.ReLU)
    torch.manual_seed(3)
    a = nn.Linear(70, 9).weight
    torch.manual_seed(3)
    assert torch.equal(PackedLinear(70, 9).weight, a)


@pytest.mark.parametrize("bias", [True, False])
def test_from_linear_takes_over_the_parameters(bias):
    plain = nn.Linear(70, 9, bias, dtype=torch.bfloat16).eval()
    plain.weight.requires_grad_(False)
    layer = PackedLinear.from_linear(plain, bits=8, group_size=64)
    assert layer.weight is plain.weight and layer.bias is plain.bias and not layer.training
    assert (layer.bits, layer.group_size) == (8, 64) and not layer.weight.requires_grad
    assert (layer.in_features, layer.out_features) == (70, 9)
    assert dict(layer.named_parameters()).keys() == dict(plain.named_parameters()).keys()


def test_shapes_without_data():
    layer = PackedLinear(70, 9, device="meta")
    y = PackedReLU()(layer(torch.empty(2, 5, 70, device="meta")))
    assert y.shape == (2, 5, 9) and y.is_meta


def test_how_they_show_themselves():
    assert repr(linear()) == (
        "PackedLinear(in_features=70, out_features=9, bias=True, bits=4, group_size=32, rounding='nearest')"
    )
    assert repr(PackedReLU()) == "PackedReLU()"


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="^bits must be 1, 2, 4 or 8, but is 3$"):
        PackedLinear(4, 4, bits=3)
    with pytest.raises(ValueError, match="^group_size must be an integer of at least 1, but is 0$"):
        PackedLinear(4, 4, group_size=0)
    with pytest.raises(TypeError, match="^linear must be torch.nn.Linear, not ReLU$"):
        PackedLinear.from_linear(nn.ReLU())
    with pytest.raises(TypeError, match="^x must be float32, float16 or bfloat16, but is torch.float64$"):
        linear(dtype=torch.float64)(draw((4, 70), torch.float64))
    with pytest.raises(TypeError, match="^x must be .*, but is torch.float64"):
        PackedReLU()(draw((4, 70), torch.float64).requires_grad_())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied|size mismatch"):
        linear()(draw((4, 71)))
    with pytest.raises(RuntimeError, match="dtype"):
        linear()(draw((4, 70), torch.bfloat16))


# ---- a model, packed


class Block(nn.Module):
    """Projections that read one norm, and an MLP behind another, as in a transformer."""

    def __init__(self, act):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(48), nn.RMSNorm(48)
        self.q, self.k, self.v = (nn.Linear(48, 48) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(48, 96), act, nn.Linear(96, 48))
        self.act, self.out = nn.SiLU(), nn.Linear(48, 5)
        with torch.no_grad():  # so that a norm's weight and bias count
            self.norm.weight.uniform_(0.2, 2.0)
            self.norm.bias.normal_()

    def forward(self, x):
        y = self.norm(x)
        x = x + self.q(y).sigmoid() * self.k(y) + self.v(y)
        return self.out(self.act(x + self.mlp(self.norm2(x))))


def block(act=None, **options):
    torch.manual_seed(0)
    options = {"bits": 8, "group_size": 16, "slope_bits": 8, **options}
    return pack_activations(Block(act or nn.GELU()), **options)


KINDS = [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU()]


@pytest.mark.parametrize("act", KINDS, ids=str)
def test_a_packed_block_has_the_outputs_and_almost_the_gradients(act):
    packed, x = block(act), draw((130, 48))
    got = gradients(packed, x, packed.parameters())
    plain = unpack_activations(packed)
    want = gradients(plain, x, plain.parameters())
    assert torch.equal(got[0], want[0])
    for value, exact in zip(got[1:], want[1:], strict=True):
        assert (value - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("act", KINDS, ids=str)
def test_an_mlp_is_its_layers_one_after_the_other(act):
    """With hooks it runs them so; the fused one does the same to the bit."""
    net, x = block(act, bits=2).mlp, draw((40, 48))
    assert type(net) is PackedMLP
    got = gradients(net, x, net.parameters())
    seen = []
    net[1].register_forward_hook(lambda *_: seen.append(1))
    want = gradients(net, x, net.parameters())
    assert seen and all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("frozen", [0, 2])
def test_an_mlp_with_a_frozen_layer(frozen):
    net, x = block(bits=2).mlp, draw((40, 48))
    net[frozen].weight.requires_grad_(False)
    with pytest.warns(UserWarning, match="^a layer was frozen after pack_activations"):
        _, _, *found = gradients(net, x, [p for p in net.parameters() if p.requires_grad])
    assert len(found) == 3 and all(g is not None for g in found) and net[frozen].weight.grad is None


def storages(call):
    """The shapes and dtypes of the storages that autograd keeps, each once."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (tuple(tensor.shape), tensor.dtype)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        y = call()
    del y
    return list(kept.values())


@pytest.mark.parametrize("compiled", [False, True])
def test_one_tensor_is_packed_once(compiled):
    """q, k and v share one packing, and the hidden layer's output has one.

    The two norms, their outputs and the last layer's input have one packing each.
    """
    model, x = block(), draw((130, 48)).requires_grad_()
    if compiled:
        torch.compiler.reset()
        call = torch.compile(model, fullgraph=True, backend="aot_eager")
    else:
        call = model
    words = sorted(shape for shape, dtype in storages(lambda: call(x)) if dtype == torch.int16)
    assert words == [(5, 16, 48)] * 5 + [(5, 16, 96)]
    torch.compiler.reset()


def test_pack_activations_swaps_and_unpack_activations_undoes_it():
    model = Block(nn.GELU("tanh"))
    kinds = [type(m) for m in model.modules()]
    state, ids = copy.deepcopy(model.state_dict()), [id(t) for t in (*model.modules(), *model.parameters())]
    for rounding in ("nearest", "stochastic"):
        for _ in range(2):
            assert pack_activations(model, 2, 32, rounding=rounding) is model
            assert {PackedLinear, PackedSiLU, PackedLayerNorm, PackedRMSNorm, PackedMLP, PackedGELU} <= {
                type(m) for m in model.modules()
            }
            assert list(model.state_dict()) == list(state) and model.q.rounding == rounding
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True))
    assert unpack_activations(unpack_activations(model)) is model
    assert [type(m) for m in model.modules()] == kinds and not list(model.buffers())
    assert [id(t) for t in (*model.modules(), *model.parameters())] == ids
    assert "bits" not in vars(model.q) and "slope_bits" not in vars(model.act)


def test_four_bits_and_the_nearest_code_are_the_default():
    plain = nn.Linear(8, 4)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8, elementwise_affine=False))
    assert PackedLinear(8, 4).bits == PackedLinear.from_linear(plain).bits == PackedMLP(8, 8)[2].bits == 4
    assert pack_activations(model)[0].bits == 4
    for bits, rounding in {1: "stochastic", 2: "nearest", 4: "nearest", 8: "nearest"}.items():
        layer = PackedLinear.from_linear(plain, bits=bits)
        assert PackedLinear(8, 4, bits=bits).rounding == layer.rounding == rounding
        assert PackedMLP(8, 8, bits=bits)[2].rounding == rounding
        pack_activations(model, bits)  # again and again: by its new bits
        assert model[0].rounding == model[2].rounding == rounding
    assert PackedLinear(8, 4, bits=1, rounding="nearest").rounding == "nearest"


@pytest.mark.parametrize("make", [PackedLinear, PackedLayerNorm, PackedRMSNorm, PackedMLP])
def test_stochastic_layers_seed_themselves(make):
    """By their data: other numbers for other data, the same for the same, and right on average."""
    sizes = (64,) if make in (PackedLayerNorm, PackedRMSNorm) else (64, 64)
    layer, x = make(*sizes, bits=2, group_size=32, rounding="stochastic"), draw((40, 64))
    first = layer[0] if make is PackedMLP else layer
    assert not list(layer.buffers()) and torch.equal(first.seed(x), first.seed(x.clone()))
    assert not torch.equal(first.seed(x), first.seed(x + 1e-6))
    got, again = (gradients(layer, x, layer.parameters()) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        layer(x).sum().backward()
    shifted = draw((1 + 40 * 64,))[1:].view(40, 64)  # not at a multiple of eight bytes
    for odd in (draw((3, 1, 64)).expand(3, 5, 64), draw((1, 64)), draw((0, 64)), shifted):
        layer(odd.detach().requires_grad_()).sum().backward()
    for odd in (draw((64, 40)).t(), shifted):
        assert int(first.seed(odd)) and not torch.equal(first.seed(odd), first.seed(odd + 1e-6))
    seed_rounding(layer, 3)
    assert [int(b) for b in layer.buffers()] == [3] * (2 if make is PackedMLP else 1)
    assert list(layer.state_dict()) == list(unpack_activations(copy.deepcopy(layer)).state_dict())


def test_stochastic_gradients_are_right_on_average():
    layer, x = PackedLinear(64, 8, bits=1, group_size=64, rounding="stochastic"), draw((64, 64))
    found = []
    for step in range(400):
        moved = x + 1e-5 * draw((64, 64), seed=step + 1)  # the data of another step, and almost the same
        found.append(gradients(layer, moved, layer.parameters())[2])
    want = gradients(lambda x: F.linear(x, layer.weight, layer.bias), x, layer.parameters())[2]
    error = (torch.stack(found).mean(0) - want).norm() / want.norm()
    assert error < 3 * float((found[0] - want).norm() / want.norm()) / 400**0.5


def test_a_predicate_chooses():
    seen = []
    model = pack_activations(Block(nn.ReLU()), predicate=lambda name, m: seen.append(name) or name != "q")
    assert type(model.q) is nn.Linear and type(model.k) is PackedLinear
    assert {"q", "norm", "mlp.0", "mlp.1", "act"} <= set(seen)


def test_subclasses_are_left_alone():
    class Mine(nn.Linear):
        pass

    model = pack_activations(nn.ModuleList([Mine(4, 4), nn.MultiheadAttention(8, 2)]))
    assert type(model[0]) is Mine and type(model[1].out_proj) is not PackedLinear


@pytest.mark.parametrize("act", KINDS[:2], ids=str)
def test_a_packed_block_under_autocast(act):
    model, x = block(act), draw((130, 48))
    plain = unpack_activations(copy.deepcopy(model))
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients(model, x, model.parameters())
        want = gradients(plain, x, plain.parameters())
    assert got[0].dtype == want[0].dtype and torch.equal(got[0], want[0])
    for value, exact in zip(got[1:], want[1:], strict=True):
        assert value.dtype == exact.dtype and (value - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_compiled_checkpointed_and_repeated_it_is_the_same(rounding):
    model, x = block(bits=2, rounding=rounding), draw((130, 48))
    seed_rounding(model, 5)
    want = gradients(model, x, model.parameters())
    torch.compiler.reset()
    for call in (
        model,
        lambda x: checkpoint(model, x, use_reentrant=False),
        torch.compile(model, fullgraph=True, backend="aot_eager"),
    ):
        got = gradients(call, x, model.parameters())
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    torch.compiler.reset()


def test_seeds_change_the_codes_and_are_no_state():
    model, x = block(bits=2, rounding="stochastic"), draw((130, 48))
    found = {}
    for seed in (1, 2, 1):
        seed_rounding(model, seed)
        weight = gradients(model, x, model.parameters())[2]
        assert torch.equal(found.setdefault(seed, weight), weight)
    assert not torch.equal(found[1], found[2])
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    again = block(bits=2, rounding="stochastic")
    again.load_state_dict(torch.load(saved))
    seed_rounding(again, 2)
    assert torch.equal(gradients(again, x, again.parameters())[2], found[2])


@pytest.mark.parametrize("shape", [(4, 48), (2, 3, 48), (0, 48)], ids=str)
@pytest.mark.parametrize("make", [PackedLayerNorm, PackedRMSNorm])
def test_norms_of_any_shape(make, shape):
    norm, x = make(48, bits=8, group_size=16), draw(shape)
    plain = unpack_activations(copy.deepcopy(norm))
    got, want = (gradients(m, x, m.parameters()) for m in (norm, plain))
    assert torch.equal(got[0], want[0])
    assert all(torch.allclose(a, b, rtol=0.02, atol=0.02) for a, b in zip(got[1:], want[1:], strict=True))
    wide, x = make((6, 8), bits=8, group_size=16), draw((*shape[:-1], 6, 8))
    plain = unpack_activations(copy.deepcopy(wide))
    got, want = (gradients(m, x, m.parameters()) for m in (wide, plain))
    assert torch.equal(got[0], want[0])
    assert all(torch.allclose(a, b, rtol=0.02, atol=0.02) for a, b in zip(got[1:], want[1:], strict=True))


def test_a_packed_model_exports_and_shows_shapes():
    model = block().eval()
    with torch.no_grad():
        exported = torch.export.export(model, (draw((7, 48)),))
        assert torch.equal(exported.module()(draw((7, 48), seed=1)), model(draw((7, 48), seed=1)))
    assert block().to("meta")(torch.empty(3, 48, device="meta")).shape == (3, 5)


def test_how_packed_layers_show_themselves():
    text = repr(block(bits=2, rounding="stochastic", slope_bits=4))
    for line in (
        "(norm): PackedLayerNorm((48,), eps=1e-05, elementwise_affine=True, bias=True, "
        "bits=2, group_size=16, rounding='stochastic')",
        "(1): PackedGELU(approximate='none', slope_bits=4)",
        "(act): PackedSiLU(slope_bits=4)",
        "(mlp): PackedMLP(",
    ):
        assert line in text


def test_bad_options_of_models_are_refused():
    with pytest.raises(TypeError, match="^model must be a torch.nn.Module, not int$"):
        pack_activations(3)
    with pytest.raises(TypeError, match="^model must be a torch.nn.Module, not int$"):
        unpack_activations(3)
    with pytest.raises(ValueError, match="^rounding must be nearest or stochastic, but is 'up'$"):
        pack_activations(Block(nn.ReLU()), rounding="up")
    with pytest.raises(ValueError, match="^slope_bits must be 1, 2, 4 or 8, but is 5$"):
        PackedGELU(slope_bits=5)
    with pytest.raises(ValueError, match="^activation must be relu, gelu, gelu_tanh or silu, but is 'elu'$"):
        PackedMLP(4, 8, activation="elu")
    with pytest.raises(TypeError, match="^seed must be an integer, but is float$"):
        seed_rounding(block(), 1.0)


@pytest.mark.parametrize(
    "layer", [PackedLinear(8, 4), PackedReLU(), PackedGELU(), PackedLayerNorm(8)], ids=repr
)
def test_an_input_that_is_not_a_tensor_is_named_as_torch_names_it(layer):
    with pytest.raises(TypeError, match="must be Tensor, not NoneType"):
        layer(None)


def test_what_is_no_option_is_named():
    for bits in (4.0, True, "4"):
        with pytest.raises(ValueError, match=f"^bits must be 1, 2, 4 or 8, but is {bits!r}$"):
            pack_activations(block(), bits)
    with pytest.raises(TypeError, match="^extra must be a dict of packed classes, but is int$"):
        pack_activations(block(), extra=3)
    with pytest.raises(TypeError, match="^loss must be a function of the model's output, but is str$"):
        report(block(), loss="mean")
    with pytest.raises(
        TypeError, match="^predicate must be a function of a name and a module, but is a str$"
    ):
        pack_activations(block(), predicate="x")
    with pytest.raises(ValueError, match=f"^seed must be an integer that fits in 64 bits, but is {2**70}$"):
        seed_rounding(block(), 2**70)
    with pytest.raises(TypeError, match="^model must be a torch.nn.Module, not str$"):
        seed_rounding("block", 1)


def test_hooks_of_layers_in_an_mlp_fire_as_in_torch():
    """Full backward pre-hooks too, and those that are for all modules, such as a profiler's."""

    def run(net):
        seen = []
        net[0].register_full_backward_pre_hook(lambda *_: seen.append("pre"))
        net[1].register_full_backward_hook(lambda *_: seen.append("full"))
        handle = nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append("all"))
        net(draw((4, 48)).requires_grad_()).sum().backward()
        handle.remove()
        return seen

    net = block(bits=2).mlp
    assert run(copy.deepcopy(net)) == run(unpack_activations(copy.deepcopy(net)))
    alone = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, *_: alone.append(type(m).__name__))
    net(draw((4, 48)).requires_grad_()).sum().backward()
    handle.remove()
    assert alone == ["PackedLinear", "PackedGELU", "PackedLinear", "PackedMLP"]


def test_an_mlp_is_a_sequential():
    net, x = block(bits=8).mlp, draw((4, 48))
    assert type(net[:2]) is nn.Sequential and torch.equal(net[:2](x), net[1](net[0](x)))
    assert net[-1] is net[2]
    longer = copy.deepcopy(net).append(nn.Linear(48, 2))
    assert longer(x).shape == (4, 2) and len(net + longer) == 7
    longer.insert(0, nn.Identity())
    del longer[-1]
    assert torch.equal(longer(x.requires_grad_()), net(x))
    longer(x).sum().backward()


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("act", KINDS, ids=str)
def test_what_is_no_number_reaches_the_gradient(act, value):
    """So that a loss scaler sees it: where torch's gradient of x is not finite, the packed one is not."""
    x = draw((3, 5))
    x[1, 2] = float(value)
    packed = pack_activations(nn.Sequential(copy.deepcopy(act)))
    got, want = (gradients(module, x, [])[1] for module in (packed, act))
    assert torch.equal(got.isfinite(), want.isfinite())
    mlp = nn.Sequential(nn.Linear(5, 8), copy.deepcopy(act), nn.Linear(8, 5))
    wanted = gradients(mlp, x, mlp.parameters())[1:]
    for got, want in zip(
        gradients(pack_activations(mlp, 4, 8), x, mlp.parameters())[1:], wanted, strict=True
    ):
        assert want.isfinite().all() or not got.isfinite().all()
    assert not wanted[1].isfinite().all()


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_an_mlp_by_its_sizes(activation):
    net = PackedMLP(48, 64, 9, activation, bits=8, group_size=16, slope_bits=8)
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert net(draw((3, 48))).shape == (3, 9)


def test_what_an_outlier_column_costs_the_others():
    """As `pack_activations` says: one column 100 times larger takes the levels of its group."""
    torch.manual_seed(0)
    x, found = draw((1024, 512)), {}
    x[:, 7] *= 100
    others = torch.arange(512) != 7
    for bits in (2, 4, 8):
        layer = PackedLinear(512, 64, bits=bits)
        got = gradients(layer, x, layer.parameters())[2][:, others]
        exact = (draw((1024, 64), seed=9).t() @ x)[:, others]
        found[bits] = float(F.cosine_similarity(got.flatten(), exact.flatten(), dim=0))
    assert found == pytest.approx({2: 0.30, 4: 0.64, 8: 0.997}, abs=0.02)


# ---- dropout


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_is_that_of_torch(p, dtype):
    plain, packed = nn.Dropout(p), PackedDropout(p)
    found = []
    for shape in ((3, 7, 5), (0, 4)):
        for x in (draw(shape, dtype), draw(shape, dtype).transpose(0, -1)):
            for layer in (packed, plain):
                torch.manual_seed(2)
                found.append(gradients(layer, x, []))
            (y, dx), (want_y, want_dx) = found[-2:]
            assert torch.equal(y, want_y) and dx.dtype == dtype
            eps = torch.finfo(dtype).eps  # on the CPU, torch rounds 1 / (1 - p) to the dtype
            assert torch.allclose(dx, want_dx, rtol=2 * eps if dtype != torch.float32 else 0, atol=0)
    x = draw((40, 64), dtype).requires_grad_()
    assert saved_by(lambda: packed(x)) == [((40 * 64 // 8,), torch.uint8)]


def test_dropout_keeps_nothing_where_torch_does():
    x = draw((4, 8)).requires_grad_()
    for layer in (PackedDropout(0.0), PackedDropout(1.0), PackedDropout(0.5).eval()):
        assert torch.equal(layer(x), nn.Dropout(layer.p).train(layer.training)(x))
    assert PackedDropout(0.5)(x.double()).dtype == torch.float64
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.0), nn.Dropout(0.5, inplace=True), nn.Dropout2d())
    pack_activations(model)
    assert [type(layer) for layer in model] == [PackedDropout, nn.Dropout, nn.Dropout, nn.Dropout2d]
    assert str(model[0]) == "PackedDropout(p=0.5, inplace=False)"
    assert type(unpack_activations(model)[0]) is nn.Dropout


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dropout_compiles_and_is_checkpointed(backend):
    layer = nn.Sequential(nn.Linear(32, 32), PackedDropout(0.5))
    x = draw((16, 32))
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    y, dx, _ = gradients(compiled, x, [layer[0].weight])
    assert 0.3 < float((y == 0).float().mean()) < 0.7 and dx.any()
    for call in (layer, lambda x: checkpoint(layer, x, use_reentrant=False)):
        torch.manual_seed(3)
        found = gradients(call, x, [layer[0].weight])
        if call is layer:
            want = found
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))
