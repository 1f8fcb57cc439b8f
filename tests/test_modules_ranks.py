"""Packed layers on two ranks, under DDP and FSDP2, on gloo: the gradients of one process."""

import copy
import importlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from puzzles_lib.kernels.modules import PackedMLP, pack_activations, seed_rounding, unpack_activations
from tests.together import together

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")


@pytest.fixture(autouse=True)
def _compiler() -> None:
    """torch's, which the first operator imports: here, not on each rank."""
    importlib.import_module("torch._dynamo")


class Block(nn.Module):
    """Projections that read one norm, and an MLP behind another, as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(48), nn.RMSNorm(48)
        self.q, self.k, self.v = (nn.Linear(48, 48) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48))
        with torch.no_grad():  # so that a norm's weight and bias count
            self.norm.weight.uniform_(0.2, 2.0)
            self.norm.bias.normal_()

    def forward(self, x):
        y = self.norm(x)
        x = x + self.q(y).sigmoid() * self.k(y) + self.v(y)
        return x + self.mlp(self.norm2(x))


def model(**options):
    torch.manual_seed(0)
    return pack_activations(nn.Sequential(Block(), Block()), 2, 16, **{"rounding": "nearest", **options})


def batch():
    return torch.randn(8, 10, 48, generator=torch.Generator().manual_seed(1))


def gradients(net, x):
    """Of all weights, whole, the second time: DDP has rebuilt its buckets then, FSDP2 freed and gathered."""
    for _ in range(2):
        net.zero_grad()
        net(x).square().mean().backward()
    return [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in net.parameters()]


def sharded(net, *modules):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (*modules, net):
        fully_shard(module, mesh=mesh)
    return net


def on_two_ranks(rank):
    x = batch().chunk(2)[rank]
    found = {"ddp": gradients(DistributedDataParallel(model()), x)}
    net = model()
    found["fsdp"] = gradients(sharded(net, *net), x)
    assert isinstance(net[0].mlp, PackedMLP)
    return found


def test_gradients_are_those_of_one_process(tmp_path):
    wanted = gradients(model(), batch())
    for found in together(on_two_ranks, folder=tmp_path):
        for name, some in found.items():
            for got, want in zip(some, wanted, strict=True):
                assert torch.allclose(got, want, rtol=1e-5, atol=1e-6 * float(want.abs().max())), name


def norm_and_linear():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Sequential(nn.LayerNorm(48)), nn.Linear(48, 5))
    nn.init.uniform_(net[0][0].weight, 0.5, 2.0)
    return pack_activations(net, 8, 16)


def apart(rank):
    """A norm in a shard of its own: its weight is freed when the layer behind it wants to use its codes."""
    found = {}
    for place, compiled in (("norm", False), ("its parent", False), ("norm", True)):
        net = norm_and_linear()
        sharded(net, net[0] if place == "its parent" else net[0][0])
        if compiled:
            net.compile(backend="aot_eager")
        found[place, compiled] = gradients(net, batch())
    return found


def test_a_norm_that_is_sharded_apart(tmp_path):
    net = norm_and_linear()
    wanted = gradients(unpack_activations(copy.deepcopy(net)), batch())
    [found] = together(apart, folder=tmp_path, count=1)  # enough for FSDP2 to free what it has gathered
    for case, some in found.items():
        for got, want in zip(some, wanted, strict=True):
            assert (got - want).norm() < 0.01 * want.norm(), case


def seeds(rank):
    found = {}
    for name in ("ddp", "fsdp"):
        net = model(rounding="stochastic")
        wrapped = (
            sharded(net, *net) if name == "fsdp" else DistributedDataParallel(net, broadcast_buffers=False)
        )
        seed_rounding(wrapped, 10 + rank)
        wrapped(batch().chunk(2)[rank])
        found[name] = {int(buffer) for module in net.modules() for buffer in module.buffers(recurse=False)}
    return found


def test_each_rank_keeps_its_seed(tmp_path):
    assert together(seeds, folder=tmp_path) == [{"ddp": {10}, "fsdp": {10}}, {"ddp": {11}, "fsdp": {11}}]
