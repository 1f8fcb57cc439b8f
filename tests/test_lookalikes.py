"""What `pack_activations` does to the classes that people's models have, and what `report` says of it.

The classes here are written as transformers, timm and peft write them, so that none of these is needed.
"""

import copy
import io
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from puzzles_lib.kernels.lookalikes import Experts as ExpertsForm
from puzzles_lib.kernels.lookalikes import (
    Gated,
    LookAlike,
    MultiheadAttention,
    Norm,
    RMSNorm,
    ShiftedRMSNorm,
    SiLU,
    TanhGELU,
    Transposed,
)
from puzzles_lib.kernels.modules import (
    PackedGELU,
    PackedLinear,
    PackedReLU,
    PackedRMSNorm,
    pack_activations,
    report,
    unpack_activations,
)


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is [in, out]."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf) * 0.1), nn.Parameter(torch.randn(nf) * 0.1)

    def forward(self, x):
        x_shape = (*x.size()[:-1], self.nf)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x_shape)


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.rand(hidden_size) + 0.5), eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class GemmaRMSNorm(LlamaRMSNorm):
    """Its weight is counted from 1."""

    def forward(self, hidden_states):
        variance = hidden_states.float().pow(2).mean(-1, keepdim=True)
        normed = hidden_states.float() * torch.rsqrt(variance + self.variance_epsilon)
        return (normed * (1.0 + self.weight.float())).type_as(hidden_states)


class NegatedRMSNorm(LlamaRMSNorm):
    def forward(self, hidden_states):
        return -super().forward(hidden_states)


class TimmLayerNorm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class LayerNorm2d(nn.LayerNorm):
    """Over the channels of images [B, C, H, W]."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NewGELUActivation(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class SiLUActivation(nn.Module):
    def forward(self, x):
        return F.silu(x)


class GELUActivation(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.functional.gelu

    def forward(self, x):
        return self.act(x)


class QuickGELUActivation(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class InPlaceGELU(nn.Module):
    def forward(self, x):
        return x.copy_(F.gelu(x))


class LlamaMLP(nn.Module):
    def __init__(self, width, hidden, activation=SiLUActivation):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(hidden, width, bias=False), activation()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Phi3MLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up_proj = nn.Linear(width, 2 * hidden, bias=False)
        self.down_proj, self.activation_fn = nn.Linear(hidden, width, bias=False), SiLUActivation()

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(up * self.activation_fn(gate))


class UpFirstMLP(Phi3MLP):
    def forward(self, x):
        up, gate = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(up * self.activation_fn(gate))


class LimitedMLP(LlamaMLP):
    """It differs only if numbers are large."""

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x).clamp(max=7)) * self.up_proj(x))


class DroppingMLP(LlamaMLP):
    """It differs only in training."""

    def forward(self, x):
        h = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(F.dropout(h, 0.2, self.training))


class Experts(nn.Module):
    """As transformers writes a mixture of experts."""

    def __init__(self, width, hidden, experts=5):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * hidden, width) / width**0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, width, hidden) / hidden**0.5)
        self.act_fn = SiLUActivation()

    def gated(self, h):
        gate, up = h.chunk(2, -1)
        return self.act_fn(gate) * up

    def forward(self, hidden_states, top_k_index, top_k_weights):
        y = torch.zeros_like(hidden_states)
        for expert in range(len(self.down_proj)):
            row, place = torch.where(top_k_index == expert)
            h = self.gated(F.linear(hidden_states[row], self.gate_up_proj[expert]))
            h = F.linear(h, self.down_proj[expert]) * top_k_weights[row, place, None]
            y.index_add_(0, row, h.to(y.dtype))
        return y


class InterleavedExperts(Experts):
    def gated(self, h):
        return self.act_fn(h[..., ::2]) * h[..., 1::2]


class LimitedExperts(Experts):
    def gated(self, h):
        gate, up = h.chunk(2, -1)
        return self.act_fn(gate.clamp(max=7)) * up


WIDTH = 48
SAME = {
    "Conv1D": (lambda: Conv1D(24, WIDTH), Transposed),
    "LlamaRMSNorm": (lambda: LlamaRMSNorm(WIDTH), RMSNorm),
    "GemmaRMSNorm": (lambda: GemmaRMSNorm(WIDTH), ShiftedRMSNorm),
    "TimmLayerNorm": (lambda: TimmLayerNorm(WIDTH), Norm),
    "NewGELUActivation": (NewGELUActivation, TanhGELU),
    "SiLUActivation": (SiLUActivation, SiLU),
    "GELUActivation": (GELUActivation, LookAlike),
}
OTHERS = {
    "NegatedRMSNorm": lambda: NegatedRMSNorm(WIDTH),
    "LayerNorm2d": lambda: LayerNorm2d(WIDTH),
    "GroupNorm": lambda: nn.GroupNorm(1, WIDTH),
    "BatchNorm1d": lambda: nn.BatchNorm1d(WIDTH),
    "QuickGELUActivation": QuickGELUActivation,
    "InPlaceGELU": InPlaceGELU,
    "Hardswish": nn.Hardswish,
    "LeakyReLU": nn.LeakyReLU,
    "ReLU6": nn.ReLU6,
    "ReLU in place": lambda: nn.ReLU(inplace=True),
    "Linear of another class": lambda: type("Mine", (nn.Linear,), {})(4, 4),
    "Linear in float64": lambda: nn.Linear(4, 4, dtype=torch.float64),
    "Conv2d": lambda: nn.Conv2d(3, 3, 3),
    "Embedding": lambda: nn.Embedding(4, 4),
}


def draw(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gradients(call, x, module, dy=None):
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    y = call(x)
    y.backward(draw(y.shape, y.dtype, 9) if dy is None else dy)
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]


def saved(call):
    """Bytes of the storages that autograd keeps, parameters left out."""
    kept = {}

    def keep(tensor):
        if not isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = call()
    del y
    return sum(kept.values())


# ---- other libraries' layers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SAME)
def test_layers_that_compute_the_same_are_packed(name, dtype):
    torch.manual_seed(0)
    make, form = SAME[name]
    plain = make().to(dtype)
    packed = pack_activations(nn.Sequential(copy.deepcopy(plain)), 8, 16, slope_bits=8)[0]
    assert isinstance(packed, form) and isinstance(packed, type(plain))
    assert list(packed.state_dict()) == list(plain.state_dict())
    x = draw((4, 33, WIDTH), dtype)
    got, want = gradients(packed, x, packed), gradients(plain, x, plain)
    for found, exact in zip(got, want, strict=True):
        assert found.dtype == exact.dtype and found.shape == exact.shape
        assert (found - exact).float().norm() < 0.02 * exact.float().norm()
    with torch.no_grad():
        assert torch.equal(packed(x), plain(x))


@pytest.mark.parametrize("name", SAME)
def test_they_are_copied_saved_and_unpacked(name):
    plain = SAME[name][0]()
    packed = pack_activations(nn.Sequential(plain), 8, 16)
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    x = draw((5, WIDTH)).requires_grad_()
    for again in (copy.deepcopy(packed), torch.load(file, weights_only=False)):
        assert type(again[0]) is type(packed[0]) and torch.equal(again(x), packed(x))
        assert type(unpack_activations(again)[0]) is type(packed[0]).plain_class
    before = set(vars(SAME[name][0]()))
    assert set(vars(unpack_activations(packed)[0])) == before


@pytest.mark.parametrize("name", OTHERS)
def test_layers_that_compute_something_else_are_left_alone(name):
    model = nn.ModuleList([OTHERS[name]()])
    kind = type(model[0])
    with pytest.warns(UserWarning, match=r"^pack_activations found nothing to pack: see report\(model\)$"):
        pack_activations(model)
    assert type(model[0]) is kind and type(unpack_activations(model)[0]) is kind


def test_layers_on_the_meta_device_are_left_alone():
    model = nn.ModuleList([LlamaRMSNorm(WIDTH), nn.Linear(4, 4)]).to("meta")
    pack_activations(model)
    assert type(model[0]) is LlamaRMSNorm and type(model[1]) is PackedLinear
    assert "meta device" in str(report(model))


def test_the_default_device_does_not_matter():
    """Such as a GPU, after torch.set_default_device: a model is tried where it is."""
    model = nn.Sequential(LlamaMLP(8, 16), nn.Linear(8, 8))
    with torch.device("meta"):
        pack_activations(model)
    assert isinstance(model[0], Gated) and isinstance(model[0].act_fn, SiLU)


def test_extra_names_other_classes():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.rand(WIDTH)), 1e-6

        def forward(self, x):
            return F.rms_norm(x, (WIDTH,), self.weight, self.eps)

    class Bell(nn.Module):
        def forward(self, x):
            return F.gelu(x)

    model = nn.Sequential(Scale(), Bell())
    with pytest.warns(UserWarning, match="found nothing"):
        pack_activations(model)
    pack_activations(model, 8, 16, slope_bits=8, extra={Scale: PackedRMSNorm, Bell: PackedGELU})
    assert all(isinstance(layer, LookAlike) for layer in model)
    plain, x = unpack_activations(copy.deepcopy(model)), draw((40, WIDTH))
    for found, exact in zip(gradients(model, x, model), gradients(plain, x, plain), strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()
    with pytest.raises(ValueError, match="^extra names PackedReLU for Bell, whose output differs$"):
        pack_activations(unpack_activations(model), extra={Bell: PackedReLU})
    with pytest.raises(ValueError, match=r"^extra\[Bell\] must be one of PackedGELU, .*, but is .*Dropout.*"):
        pack_activations(model, extra={Bell: nn.Dropout})


# ---- gated MLPs, mixtures of experts


@pytest.mark.parametrize("kind", [LlamaMLP, Phi3MLP])
def test_a_gated_mlp_keeps_the_factors_of_its_product(kind):
    torch.manual_seed(0)
    plain = kind(256, 512)
    packed = pack_activations(nn.Sequential(copy.deepcopy(plain)), 8, slope_bits=8)[0]
    assert isinstance(packed, Gated) and isinstance(packed, kind)
    x = draw((4, 32, 256))
    got, want = gradients(packed, x, packed), gradients(plain, x, plain)
    assert torch.equal(got[0], want[0])
    for found, exact in zip(got[1:], want[1:], strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()
    four = pack_activations(nn.Sequential(copy.deepcopy(plain)), 2)[0]
    x = x.requires_grad_()
    assert saved(lambda: four(x)) < 0.15 * saved(lambda: plain(x))
    told = {line.name: line.packed for line in report(nn.Sequential(four)).lines}
    assert told["0"] == "factors of 4 bits" and told["0.down_proj"] == "the factors of its MLP"
    got, want = gradients(four, x, four)[-1], want[-1]  # of down_proj's weight
    assert F.cosine_similarity(got.flatten(), want.flatten(), 0) > 0.98
    four.down_proj.register_forward_hook(lambda *_: hooked.append(1))
    hooked = []
    got = gradients(four, x, four)[-1]
    assert hooked and F.cosine_similarity(got.flatten(), want.flatten(), 0) < 0.8
    four.down_proj._forward_hooks.clear()
    assert four(x[0, 0]).shape == (256,)
    again = copy.deepcopy(four)
    assert torch.equal(again(x), four(x))
    assert type(unpack_activations(again)) is kind and vars(again).keys() == vars(plain).keys()


@pytest.mark.parametrize("kind", [LimitedMLP, DroppingMLP, UpFirstMLP, InterleavedExperts, LimitedExperts])
def test_gated_mlps_with_something_else_inside_are_left_alone(kind):
    model = nn.Sequential(kind(WIDTH, 32).eval())
    before = torch.get_rng_state()
    pack_activations(model)
    assert type(model[0]) is kind and not model[0].training
    assert any(isinstance(child, SiLU) for child in model[0].children())
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_inside_a_layer_of_a_gated_mlp_stays():
    class Dropping(nn.Linear):
        def forward(self, x):
            return super().forward(F.dropout(x, 0.5, self.training))

    plain = LlamaMLP(WIDTH, 32)
    plain.down_proj = Dropping(32, WIDTH, bias=False)
    packed = pack_activations(nn.Sequential(copy.deepcopy(plain)))[0]
    assert isinstance(packed, Gated) and type(packed.down_proj) is Dropping
    x = draw((4, WIDTH)).requires_grad_()
    torch.manual_seed(1)
    want = plain(x)
    torch.manual_seed(1)
    assert torch.equal(packed(x), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(64, 128), (50, 30)])
def test_experts(sizes, dtype):
    torch.manual_seed(0)
    plain = Experts(*sizes).to(dtype)
    packed = pack_activations(nn.Sequential(copy.deepcopy(plain)), 8, 64, slope_bits=8)[0]
    assert isinstance(packed, ExpertsForm) and isinstance(packed, Experts)
    x = draw((70, sizes[0]), dtype)
    index = draw((70, 4)).topk(2).indices  # the last expert has no row
    found, exact = [], []
    for module, results in ((packed, found), (plain, exact)):
        weights = draw((70, 2), dtype, 3).requires_grad_()
        results += gradients(lambda x, m=module, w=weights: m(x, index, w), x, module) + [weights.grad]
    for got, want in zip(found, exact, strict=True):
        assert got.dtype == want.dtype and (got - want).float().norm() < 0.03 * want.float().norm()
    assert not found[2][-1].any()
    weights = draw((70, 2), dtype, 3)
    with torch.no_grad():
        assert torch.equal(packed(x, index, weights), plain(x, index, weights))
    with torch.autocast("cpu", torch.bfloat16):
        packed(x.requires_grad_(), index, weights).float().sum().backward()
    assert packed(x[:0], index[:0], weights[:0]).shape == (0, sizes[0])
    assert type(unpack_activations(packed)) is Experts


def test_gated_mlps_and_experts_compile_and_are_checkpointed():
    torch.manual_seed(0)
    mlp = pack_activations(nn.Sequential(LlamaMLP(64, 128)), 8, 64)
    experts = pack_activations(nn.Sequential(Experts(64, 128).bfloat16()), 8, 64)[0]
    index, weights = draw((70, 5)).topk(2).indices, draw((70, 2), torch.bfloat16).abs()
    for module, rest in ((mlp, ()), (experts, (index, weights))):
        x = draw((70, 64), next(module.parameters()).dtype)
        want = gradients(lambda x, m=module, r=rest: m(x, *r), x, module)
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        for call in (compiled, lambda *given, m=module: checkpoint(m, *given, use_reentrant=False)):
            got = gradients(lambda x, c=call, r=rest: c(x, *r), x, module)
            for found, exact in zip(got, want, strict=True):
                assert torch.allclose(found, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_reaches_the_gradients_of_a_product(value):
    model = pack_activations(nn.Sequential(LlamaMLP(64, 128)), 2)
    x = draw((16, 64))
    x[3, 5] = value
    _, dx, *found = gradients(model, x, model)
    assert not any(gradient.isfinite().all() for gradient in (dx, *found))
    y = model(draw((16, 64)).requires_grad_())
    with pytest.raises(RuntimeError, match="packed layers can't be differentiated twice"):
        torch.autograd.grad(y.sum(), list(model.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="doesn't work inside torch.func"):
        torch.func.grad(lambda x: model(x).sum())(draw((16, 64)))


def test_experts_keep_each_row_once():
    torch.manual_seed(0)
    plain = Experts(256, 256)
    packed = pack_activations(nn.Sequential(copy.deepcopy(plain)), 2)[0]
    x, index = draw((128, 256)).requires_grad_(), draw((128, 5)).topk(2).indices
    weights = draw((128, 2)).requires_grad_()
    assert saved(lambda: packed(x, index, weights)) < 0.15 * saved(lambda: plain(x, index, weights))
    told = {line.name: line for line in report(nn.Sequential(packed)).lines}
    assert told["0"].packed == "2 bits, nearest; factors of 4 bits"
    told = {line.name: line for line in report(nn.Sequential(InterleavedExperts(48, 32))).lines}
    assert [*told] == ["0", "0.act_fn"]
    assert told["0"].why == "its output is not that of the torch layer it looks like"


# ---- attention


def attention(**options):
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(WIDTH, 4, **options)
    nn.init.normal_(plain.in_proj_bias, std=0.1) if plain.in_proj_bias is not None else None
    return plain, pack_activations(nn.ModuleList([copy.deepcopy(plain)]), 8, 16)[0]


MASKS = {
    "none": {},
    "causal": {"attn_mask": nn.Transformer.generate_square_subsequent_mask(9), "is_causal": True},
    "boolean": {"attn_mask": torch.ones(9, 9).triu(1).bool()},
    "by head": {"attn_mask": torch.randn(3 * 4, 9, 9)},
    "padding": {"key_padding_mask": torch.arange(9)[None] >= torch.tensor([9, 5, 7])[:, None]},
    "both": {
        "attn_mask": nn.Transformer.generate_square_subsequent_mask(9),
        "key_padding_mask": torch.zeros(3, 9).masked_fill(torch.arange(9) > 6, float("-inf")),
        "is_causal": True,
    },
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{"batch_first": True}, {}, {"bias": False}], ids=str)
def test_attention(options, mask):
    plain, packed = attention(**options)
    assert isinstance(packed, MultiheadAttention)
    x = draw((3, 9, WIDTH) if options.get("batch_first") else (9, 3, WIDTH))

    def call(module):
        return lambda x: module(x, x, x, need_weights=False, **MASKS[mask])[0]

    got, want = gradients(call(packed), x, packed), gradients(call(plain), x, plain)
    for found, exact in zip(got, want, strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()
    assert saved(lambda: call(packed)(x.requires_grad_())) < saved(lambda: call(plain)(x.requires_grad_()))


def test_attention_to_another_text_and_without_a_batch():
    plain, packed = attention(batch_first=True)
    memory = draw((3, 5, WIDTH), seed=1)
    for shape, other in (((3, 9, WIDTH), memory), ((9, WIDTH), memory[0])):
        x = draw(shape)
        got, want = (
            gradients(lambda x, m=m, o=other: m(x, o, o, need_weights=False)[0], x, m)
            for m in (packed, plain)
        )
        for found, exact in zip(got, want, strict=True):
            assert (found - exact).norm() < 0.02 * exact.norm()


def test_attention_that_returns_its_weights_is_torchs():
    plain, packed = attention(batch_first=True)
    x = draw((3, 9, WIDTH))
    for got, want in zip(packed(x, x, x), plain(x, x, x), strict=True):
        assert torch.equal(got, want)
    odd = nn.MultiheadAttention(WIDTH, 4, kdim=8)
    assert type(pack_activations(nn.Sequential(odd, nn.Linear(3, 3)))[0]) is nn.MultiheadAttention


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_transformer_encoder_keeps_less(activation):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, activation, batch_first=True)
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    packed = pack_activations(copy.deepcopy(plain), 8, 32, slope_bits=8)
    x = draw((4, 32, 64))
    got, want = gradients(packed, x, packed), gradients(plain, x, plain)
    assert torch.allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    for found, exact in zip(got[1:], want[1:], strict=True):
        assert (found - exact).norm() < 0.03 * exact.norm()
    two = pack_activations(copy.deepcopy(plain), 2, 64)
    assert saved(lambda: two(x)) < 0.5 * saved(lambda: plain(x))
    again = copy.deepcopy(packed)
    assert torch.equal(again(x), packed(x))
    back = unpack_activations(packed)
    assert back.layers[0].activation in (F.relu, F.gelu)
    with torch.no_grad():
        assert torch.equal(back.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_encoder_drops_what_torchs_does(batch_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.2, batch_first=batch_first)
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    packed = pack_activations(copy.deepcopy(plain), 8, 32)
    x = draw((4, 32, 64))
    found = []
    for model in (packed, plain):
        torch.manual_seed(1)
        found.append(gradients(model, x, model))
    for got, want in zip(*found, strict=True):
        assert (got - want).norm() < 0.03 * want.norm()
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)


# ---- LoRA


class LoRA(nn.Module):
    """As peft adds it: a frozen layer, and two small ones that train."""

    def __init__(self, base, rank=4):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.lora_B.weight, std=0.1)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(256, 256) for _ in range(3))

    def forward(self, x):
        return self.q(x) * self.k(x) + self.v(x)


def with_lora(model):
    for name in "qkv":
        setattr(model, name, LoRA(getattr(model, name)))
    return model


def test_pack_after_lora_is_added():
    torch.manual_seed(0)
    x = draw((128, 256)).requires_grad_()
    before = saved(lambda: with_lora(Attention())(x))
    first = with_lora(pack_activations(Attention(), 2))
    after = pack_activations(with_lora(Attention()), 2)
    own = 2 * x.nbytes  # q(x) and k(x), which their product keeps
    with pytest.warns(UserWarning, match=r"^a layer was frozen .* call pack_activations\(model\) again$"):
        assert saved(lambda: first(x)) == before
    assert saved(lambda: after(x)) - own < 0.25 * (before - own)
    assert saved(lambda: pack_activations(first, 2)(x)) == saved(lambda: after(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # first is packed again, and a layer says it once
        first(x), after(x), unpack_activations(with_lora(pack_activations(Attention())))(x)
    told = str(report(with_lora(pack_activations(Attention(), 2))))
    assert told.count("it was added after pack_activations") == 6
    assert "nothing: frozen" in told


# ---- report


def test_a_report_says_what_was_packed_and_why_not():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.LayerNorm(256), nn.Conv1d(256, 256, 1),
        NegatedRMSNorm(256), nn.ReLU(inplace=True),
    )  # fmt: skip
    model = nn.ModuleDict({"mlp": model[:3], "rest": model[3:]})
    pack_activations(model, predicate=lambda name, _: name != "mlp.0")
    found = {line.name: line for line in report(model).lines}
    assert found["mlp.0"].why == "it was added after pack_activations, or a predicate excluded it"
    assert found["mlp.1"].packed == "slopes of 4 bits" and found["mlp.2"].packed == "4 bits, nearest"
    assert found["rest.4"].why == "another class"
    assert found["rest.5"].why == "its output is not that of the torch layer it looks like"
    assert found["rest.6"].why == "in place: it keeps nothing of its own"
    assert "3 of 7 layers are packed" in str(report(model))
    never = report(nn.Sequential(nn.Linear(8, 8)))
    assert never.lines[0].why == "pack_activations has not packed this model"


def test_a_report_measures():
    torch.manual_seed(0)
    model = pack_activations(nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.ReLU()), 8)
    x, state = draw((64, 256)), copy.deepcopy(model.state_dict())
    found = report(model, x, loss=lambda y: y.square().mean())
    plain = unpack_activations(copy.deepcopy(model))
    assert found.before == saved(lambda: plain(x)) and found.after == saved(lambda: model(x))
    assert found.after < 0.6 * found.before
    assert {line.name: line.cosine for line in found.lines}["1"] == pytest.approx(1, abs=1e-3)
    assert f"autograd keeps {found.after:,} bytes, and {found.before:,} without packing" in str(found)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(TypeError, match="^model must be a torch.nn.Module, not str$"):
        report("model")


def test_packing_something_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack_activations(nn.Sequential(nn.Linear(4, 4)))
        pack_activations(nn.Sequential(nn.ReLU()))
    assert type(pack_activations(nn.Sequential(nn.ReLU(), nn.ReLU(inplace=True)))[1]) is nn.ReLU
    assert PackedReLU()(torch.ones(2, requires_grad=True)).requires_grad
