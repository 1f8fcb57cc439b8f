"""A packed layer never uses the codes of what was in its input's memory before a write.

A packed layer's gradients are compared with those of torch's own layer, step by step, while the memory of the
input changes in every way that people change it, also behind torch's back. Codes of 8 bits give an error of
about 0.004. Stale codes give 1 or more.
"""

import copy
import gc
import io

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.utils.checkpoint import checkpoint

from puzzles_lib.kernels import sharing
from puzzles_lib.kernels.modules import PackedLinear, pack_activations, unpack_activations
from tests.together import together

ROWS, COLUMNS = 16, 32
ERROR = 0.02


class Projections(nn.Module):
    """q, k and v of one input, as attention has them. ``between`` runs before k."""

    def __init__(self, between=lambda x: None):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(COLUMNS, 4) for _ in range(3))
        self.between = between

    def forward(self, x):
        q = self.q(x)
        self.between(x)
        return q + self.k(x) + self.v(x)


class Two(nn.Module):
    """A norm and a layer that reads it. ``between`` runs in between."""

    def __init__(self, between):
        super().__init__()
        self.norm, self.q, self.between = nn.LayerNorm(COLUMNS), nn.Linear(COLUMNS, 4), between

    def forward(self, x):
        y = self.norm(x)
        self.between(y)
        return self.q(y)


def pair(make, **options):
    """A plain module and a packed copy of it."""
    torch.manual_seed(0)
    plain = make()
    return plain, pack_activations(copy.deepcopy(plain), **{"bits": 8, "group_size": 32, **options})


def new_rows(seed):
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype("float32")


def weight_gradients(module, x):
    module.zero_grad()
    y = module(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(5)))
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.dim() == 2}


def assert_near(found, wanted):
    assert found.keys() == wanted.keys() and wanted
    for name, want in wanted.items():
        assert (found[name] - want).norm() < ERROR * want.norm(), name


def by_numpy():
    memory = new_rows(0)
    x = torch.from_numpy(memory)
    return x, lambda seed: np.copyto(memory, new_rows(seed))


def by_data_copy():
    x = torch.empty(ROWS, COLUMNS)
    return x, lambda seed: x.data.copy_(torch.from_numpy(new_rows(seed)))


def by_data_assignment():
    x = torch.empty(ROWS, COLUMNS)
    return x, lambda seed: setattr(x, "data", torch.from_numpy(new_rows(seed)))


def by_copy():
    x = torch.empty(ROWS, COLUMNS)
    return x, lambda seed: x.copy_(torch.from_numpy(new_rows(seed)))


FILLS = [by_numpy, by_data_copy, by_data_assignment, by_copy]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("make", [lambda: nn.Linear(COLUMNS, 4), Projections], ids=["linear", "qkv"])
def test_a_refilled_input(make, fill):
    plain, packed = pair(make)
    x, refill = fill()
    for seed in range(3):
        refill(seed)
        assert_near(weight_gradients(packed, x), weight_gradients(plain, x))


@pytest.mark.parametrize("fill", FILLS)
def test_a_refilled_input_while_earlier_outputs_are_kept(fill):
    """Outputs that nobody differentiates, as in a loop that forgot ``no_grad``, keep their graphs alive."""
    plain, packed = pair(Projections)
    x, refill = fill()
    outputs = []
    for seed in range(3):
        refill(seed)
        outputs.append(packed(x))
        outputs.append(packed.q(x))  # a layer by itself, outside its parent
        refill(seed + 100)
        assert_near(weight_gradients(packed, x), weight_gradients(plain, x))


def test_a_refilled_input_after_a_forward_that_raised():
    plain, packed = pair(lambda: Projections(between=lambda x: None))
    x, refill = by_numpy()
    refill(0)

    def fail(x):
        raise KeyError("between")

    packed.between = fail
    with pytest.raises(KeyError):
        packed(x)
    assert not sharing._scopes.running
    packed.between = plain.between
    refill(1)
    assert_near(weight_gradients(packed, x), weight_gradients(plain, x))


def test_a_forward_that_was_interrupted_ends_with_the_next():
    plain, packed = pair(Projections)

    def interrupt(x):
        raise KeyboardInterrupt

    x, refill = by_numpy()
    refill(0)
    packed.between = interrupt
    with pytest.raises(KeyboardInterrupt):
        packed(x)
    packed.between = plain.between
    refill(1)
    assert_near(weight_gradients(packed, x), weight_gradients(plain, x))
    assert not sharing._scopes.running


@pytest.mark.parametrize("write", ["numpy", "data"])
def test_a_write_between_a_norm_and_the_layer_behind_it(write):
    """torch's own weight gradient is right then, so a packed one has to be."""

    def between(y):
        if write == "numpy":
            y.detach().numpy()[:] = new_rows(7)
        else:
            y.data = torch.from_numpy(new_rows(7))

    plain, packed = pair(lambda: Two(between))
    x = torch.from_numpy(new_rows(0))
    assert_near(weight_gradients(packed, x), weight_gradients(plain, x))


def test_a_write_after_a_backward_inside_one_forward():
    """A loop inside ``forward`` that trains as it goes: codes end with their layer's backward pass."""

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(COLUMNS, 4), nn.Linear(COLUMNS, 4)

        def forward(self, x, refill):
            refill(0)
            self.q(x).sum().backward()
            refill(1)
            self.k(x).sum().backward()

    plain, packed = pair(Loop)
    for module in (plain, packed):
        module(*by_numpy())
    assert_near(
        {n: p.grad for n, p in packed.named_parameters() if p.dim() == 2},
        {n: p.grad for n, p in plain.named_parameters() if p.dim() == 2},
    )


def test_a_write_after_an_output_that_nobody_wanted():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(COLUMNS, 4), nn.Linear(COLUMNS, 4)

        def forward(self, x, refill):
            refill(0)
            self.q(x)
            refill(1)
            return self.k(x)

    plain, packed = pair(Twice)
    for module in (plain, packed):
        module(*by_numpy()).sum().backward()
    assert_near({"k": packed.k.weight.grad}, {"k": plain.k.weight.grad})


# ---- what is still shared


def words_kept(call):
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.setdefault(t.untyped_storage().data_ptr(), t), lambda t: t
    ):
        y = call()
    del y
    return sum(t.dtype == torch.int16 for t in kept.values())


def test_q_k_and_v_are_packed_once():
    _, packed = pair(Projections)
    x = torch.from_numpy(new_rows(0))
    for _ in range(2):
        assert words_kept(lambda: packed(x)) == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert words_kept(lambda: packed(x)) == 1
    again = copy.deepcopy(packed)
    assert words_kept(lambda: again(x)) == 1
    file = io.BytesIO()
    packed.between = again.between = None  # a lambda doesn't pickle
    torch.save(packed, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    again.between = lambda x: None
    assert words_kept(lambda: again(x)) == 1


def test_a_write_that_torch_notices_ends_the_sharing():
    _, packed = pair(lambda: Projections(between=lambda x: x.add_(1)))
    assert words_kept(lambda: packed(torch.zeros(ROWS, COLUMNS))) == 2


def test_layers_that_stand_alone_share_nothing():
    layers = [PackedLinear(COLUMNS, 4, bits=8) for _ in range(2)]
    x = torch.from_numpy(new_rows(0))
    assert words_kept(lambda: [layer(x) for layer in layers]) == 2


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_a_module_that_shares(use_reentrant):
    plain, packed = pair(Projections)
    x = torch.from_numpy(new_rows(0)).requires_grad_()

    def call(x):
        return checkpoint(packed, x, use_reentrant=use_reentrant)

    call(x).sum().backward()
    plain(x).sum().backward()
    assert_near({"q": packed.q.weight.grad}, {"q": plain.q.weight.grad})
    assert not sharing._scopes.running


def test_notes_keep_nothing_alive():
    """Neither x nor its codes outlive a call of ``forward``."""

    def words() -> list[torch.Tensor]:
        gc.collect()
        tensors = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]
        return [t for t in tensors if t.dtype == torch.int16 and t.shape[-1] == COLUMNS]

    before = words()  # of tests that ran earlier in this process
    _, packed = pair(Projections)
    x = torch.from_numpy(new_rows(0))
    y = packed(x).sum()
    assert len(words()) > len(before)
    y.backward()
    del y
    assert len(words()) == len(before)


def test_packing_twice_adds_no_hooks_and_unpacking_removes_them():
    plain, packed = pair(Projections)
    pack_activations(packed, 8)
    assert len(packed._forward_pre_hooks) == len(packed._forward_hooks) == 1
    unpack_activations(packed)
    assert not packed._forward_pre_hooks and not packed._forward_hooks
    assert not packed._forward_hooks_always_called


# ---- between ranks


def received(rank):
    """Errors of dW when x is refilled by collectives and point-to-point calls, which leave its version."""
    worst = {}
    for how in ("recv", "broadcast", "batch", "all_gather"):
        plain, packed = pair(Projections)
        x = torch.empty(ROWS, COLUMNS)
        for seed in range(3):
            sent = torch.from_numpy(new_rows(seed))
            if how == "recv":
                dist.send(sent, 1) if rank == 0 else dist.recv(x, 0)
            elif how == "broadcast":
                x.data.copy_(sent) if rank == 0 else None
                dist.broadcast(x, 0)
            elif how == "batch":
                op = dist.P2POp(dist.isend, sent, 1) if rank == 0 else dist.P2POp(dist.irecv, x, 0)
                for work in dist.batch_isend_irecv([op]):
                    work.wait()
            else:
                dist.all_gather_into_tensor(x, sent.chunk(2)[rank].contiguous())
            if rank == 1:
                found, wanted = weight_gradients(packed, x), weight_gradients(plain, x)
                errors = [float((found[n] - w).norm() / w.norm()) for n, w in wanted.items()]
                worst[how] = max(worst.get(how, 0.0), *errors)
    return worst


def test_an_input_that_another_rank_fills(tmp_path):
    _, worst = together(received, folder=tmp_path)
    assert worst.keys() == {"recv", "broadcast", "batch", "all_gather"}
    assert all(error < ERROR for error in worst.values()), worst


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(COLUMNS, COLUMNS), nn.Linear(COLUMNS, COLUMNS)
        self.mlp = nn.Sequential(nn.Linear(COLUMNS, 64), nn.GELU(), nn.Linear(64, COLUMNS))

    def forward(self, x):
        return self.mlp(self.q(x).sigmoid() * self.k(x))


def piped(rank, name):
    """Gradients of a stage on each rank after each of two steps of a pipeline."""
    schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[name]
    found = {}
    for kind in ("plain", "packed"):
        torch.manual_seed(rank)
        module = Stage()
        if kind == "packed":
            pack_activations(module, 8, 32, slope_bits=8)
        example = torch.zeros(4, COLUMNS)
        stage = PipelineStage(module, rank, 2, torch.device("cpu"), input_args=(example,))
        pipe = schedule(stage, 4, loss_fn=lambda y, target: (y - target).square().mean())
        for step in range(3):
            module.zero_grad()
            x = torch.randn(16, COLUMNS, generator=torch.Generator().manual_seed(step))
            if rank == 0:
                pipe.step(x)
            else:
                pipe.step(target=torch.ones(16, COLUMNS), losses=[])
            for weight, p in module.named_parameters():
                found[kind, step, weight] = p.grad.clone()
    return {
        (step, weight): float((found["packed", step, weight] - want).norm() / want.norm())
        for (kind, step, weight), want in found.items()
        if kind == "plain"
    }


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_pipelining(name, tmp_path):
    """torch.distributed.pipelining receives each micro-batch into the buffers of the step before."""
    for errors in together(piped, name, folder=tmp_path):
        assert len(errors) == 3 * 8
        assert all(error < 0.03 for error in errors.values()), errors


class Quiet(Projections):
    def __init__(self):
        super().__init__()
        del self.between

    def forward(self, x):
        return self.q(x) + self.k(x) + self.v(x)


def test_equal_blocks_are_compiled_once():
    """The hooks that let layers share look alike in all blocks, or each would be compiled anew."""
    blocks = [nn.Sequential(Quiet()) for _ in range(3)]
    for block in blocks:
        pack_activations(block, 8)
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    for block in blocks:
        compiled = torch.compile(block.forward, backend=counter, fullgraph=True)
        compiled(torch.zeros(ROWS, COLUMNS)).sum().backward()
    assert blocks[0][0]._forward_pre_hooks and counter.frame_count == 1
    torch.compiler.reset()
