"""Checkpointed blocks keep their inputs in few bits and have almost torch's gradients."""

import contextlib
import copy
import functools
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from puzzles_lib.kernels import checkpoints as module
from puzzles_lib.kernels.checkpoints import HELD, pack_checkpoints, packed_checkpoint
from puzzles_lib.kernels.modules import pack_activations

WIDTH = 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)

    def forward(self, x, shift=None):
        h = x if shift is None else x + shift
        return x + self.down(F.gelu(self.up(self.norm(h))))


class Held(Block):
    """As transformers' layers, which hold the function that checkpoints them."""

    def __call__(self, *inputs, **named):
        return getattr(self, HELD)(functools.partial(super().__call__, **named), *inputs)


class Stack(nn.Module):
    def __init__(self, run, kind=Block, count=3):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.blocks = nn.Linear(WIDTH, WIDTH), nn.ModuleList(kind() for _ in range(count))
        self.run = run

    def forward(self, x, shift=None):
        x = self.first(x)
        for block in self.blocks:
            x = self.run(block, x, shift)
        return x


def draw(rows=80, dtype=torch.float32, seed=0):
    return torch.randn(2, rows, WIDTH, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gradients(model, *inputs):
    model.zero_grad()
    y = model(*inputs)
    y.backward(draw(y.shape[1], y.dtype, 5))
    return y.detach(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("bits, most", [(8, 0.02), (4, 0.12), (2, 0.7)])
def test_gradients_are_almost_torchs(bits, most):
    run = functools.partial(packed_checkpoint, bits=bits, group_size=32)
    y, got = gradients(Stack(run), draw())
    want_y, want = gradients(Stack(lambda block, *x: block(*x)), draw())
    assert torch.equal(y, want_y)
    for found, exact in zip(got, want, strict=True):
        assert (found - exact).norm() < most * exact.norm()


def counted(run):
    """The bytes of what a checkpointed stack packs, before and after."""
    found, plain = {}, module.quantize_pack

    def noted(x, *options):
        packed = plain(x, *options)
        found["packed"] = found.get("packed", 0) + packed.nbytes
        found["plain"] = found.get("plain", 0) + x.nbytes
        return packed

    module.quantize_pack = noted
    try:
        model = Stack(run)
        model(draw()).sum().backward()
    finally:
        module.quantize_pack = plain
    return found


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_inputs_are_kept_in_few_bits(use_reentrant):
    """An input in float32: 8 bits of 32, and a scale and a minimum of a row."""
    run = functools.partial(packed_checkpoint, bits=8, group_size=WIDTH, use_reentrant=use_reentrant)
    found = counted(run)
    assert found["plain"] == 3 * draw().nbytes
    assert found["packed"] == found["plain"] // 4 + 3 * 2 * 160 * 4


def test_the_memory_that_is_held_shrinks():
    """Nothing else keeps an input: when the forward pass is over, the tensor is gone."""
    seen = []

    def run(block, x, shift):
        seen.append(weakref.ref(x))
        return packed_checkpoint(block, x, shift)

    y = Stack(run)(draw())
    assert [ref() for ref in seen] == [None] * 3
    y.sum().backward()


def test_masks_parameters_and_small_inputs_are_kept_as_they_are():
    shift = torch.randn(WIDTH, requires_grad=True)
    found = counted(lambda block, x, _: packed_checkpoint(block, x, shift))
    assert found["plain"] == 3 * draw().nbytes


def test_options_of_checkpoint_are_passed_on():
    """Dropout is the same again, by ``preserve_rng_state``; a context function is called."""
    called = []

    def contexts():
        called.append(1)
        return contextlib.nullcontext(), contextlib.nullcontext()

    drop = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))
    x = draw().requires_grad_()
    torch.manual_seed(3)
    y = packed_checkpoint(drop, x * 1, context_fn=contexts, preserve_rng_state=True)
    y.sum().backward()
    torch.manual_seed(3)
    assert called and torch.equal(x.grad != 0, F.dropout(x.detach(), 0.5) != 0)


def test_with_packed_layers_inside():
    run = functools.partial(packed_checkpoint, bits=8, group_size=32)
    y, got = gradients(pack_activations(Stack(run), 8, 32), draw())
    want_y, want = gradients(Stack(lambda block, *x: block(*x)), draw())
    assert torch.equal(y, want_y)
    for found, exact in zip(got, want, strict=True):
        assert (found - exact).norm() < 0.05 * exact.norm()


def test_under_autocast():
    run = functools.partial(packed_checkpoint, bits=8, group_size=32)
    with torch.autocast("cpu", torch.bfloat16):
        y, got = gradients(Stack(run), draw())
        want_y, want = gradients(Stack(lambda block, *x: block(*x)), draw())
    assert torch.equal(y, want_y)
    for found, exact in zip(got, want, strict=True):
        assert (found - exact).norm() < 0.05 * exact.norm()


def test_a_transformers_model():
    model = Stack(lambda block, x, shift: block(x, shift=shift), Held)
    with pytest.raises(ValueError, match="^no block of model is checkpointed: call model.gradient"):
        pack_checkpoints(model)
    for block in model.blocks:
        setattr(block, HELD, functools.partial(checkpoint, use_reentrant=False))
    shift = torch.randn(WIDTH)
    want_y, want = gradients(model, draw(), shift)
    assert pack_checkpoints(pack_checkpoints(model, 2), 8, 32) is model
    for each in (model, copy.deepcopy(model)):
        y, got = gradients(each, draw(), shift)
        assert torch.equal(y, want_y)
        assert not all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        for found, exact in zip(got, want, strict=True):
            assert (found - exact).norm() < 0.02 * exact.norm()
    assert pickle.loads(pickle.dumps(getattr(model.blocks[0], HELD))).bits == 8


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="^function must be a function or a module, but is int$"):
        packed_checkpoint(3, draw())
    with pytest.raises(ValueError, match="^bits must be 1, 2, 4 or 8, but is 3$"):
        packed_checkpoint(nn.Identity(), draw(), bits=3)
    with pytest.raises(ValueError, match="^group_size must be an integer of at least 1, but is 0$"):
        pack_checkpoints(nn.Identity(), group_size=0)
    with pytest.raises(TypeError, match="^model must be a torch.nn.Module, not str$"):
        pack_checkpoints("model")
