"""What code that asks for a GPU gets in an audit: devices, copies between them, streams, threads, graphs."""

import concurrent.futures
import gc

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit, audited
from puzzles_lib.auditor import cuda

QUICK = Guard(sizes=False)


@triton.jit
def add_kernel(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(Y + i, mask=i < n) + tl.load(X + i, mask=i < n), mask=i < n)


tuned_kernel = triton.autotune(
    [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"], restore_value=["Y"]
)(add_kernel)


def add_to(x, y, kernel=add_kernel):
    """Add ``x`` to ``y`` in place. Raises ValueError for tensors that are not on a GPU."""
    if not (x.is_cuda and y.device.type == "cuda"):
        raise ValueError("x and y must be on a GPU")
    block = {} if kernel is tuned_kernel else {"BLOCK": 32}
    kernel[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), **block)
    return y


@pytest.fixture
def report():
    with audited(device="cuda", guard=QUICK) as report:
        yield report


def test_a_copy_on_the_gpu_is_another_tensor(report):
    a = torch.zeros(20)
    for b in (a.cuda(), a.to("cuda"), a.to(torch.device("cuda:0")), a.to(0), a.to(device="cuda")):
        add_to(torch.ones(20, device="cuda"), b)
        assert b.is_cuda and b.sum() == 20 and a.sum() == 0
        assert b.cuda() is b and b.to("cuda") is b and b.to("cuda", torch.float32) is b
        back = b.to("cpu")
        back[0] = 7
        assert b[0] == 1 and back.device == torch.device("cpu") and back.cpu() is not b
    assert report.ok and len(report.launches) == 5


def test_devices_are_those_of_a_gpu_machine(report):
    made, given = torch.randn(3), torch.randn(3, device="cuda")
    for on_cpu in (
        made, made * 2, made[1:], torch.zeros_like(made), torch.stack([made, made]), made.chunk(2)[0],
        torch.nn.Parameter(made), given.cpu() + made, torch.zeros_like(given, device="cpu"),
        torch.nn.Linear(2, 2).weight, torch.from_numpy(made.numpy()), made.new_empty(2),
        torch.as_tensor([1, 2]),
    ):  # fmt: skip
        assert not on_cpu.is_cuda and on_cpu.is_cpu and str(on_cpu.device) == "cpu"
        assert on_cpu.get_device() == -1
    for on_gpu in (
        given, given * torch.tensor(2.0), given[torch.tensor([0])], torch.zeros_like(given), made.cuda(),
        torch.tensor(1.0, device=0), torch.zeros_like(made, device="cuda"),
        torch.as_tensor(given), torch.nn.Linear(2, 2).to("cuda").bias, torch.nn.Linear(2, 2).cuda().weight,
        torch.nn.Linear(2, 2, device="cuda").to("cuda").weight, made.to(given.device), given.new_empty(2),
    ):  # fmt: skip
        assert on_gpu.is_cuda and not on_gpu.is_cpu and str(on_gpu.device) == "cuda:0"
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    with pytest.raises(ValueError, match="must be on a GPU"):
        add_to(made, given)
    weight = torch.nn.Parameter(torch.ones(3))
    (weight * 2).sum().backward()
    assert weight.grad.device == weight.device == torch.device("cpu")


class Added(torch.autograd.Function):
    """Adds with a kernel, forward and backward, and insists on a GPU."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return add_to(x, y.clone())

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert x.device == grad.device == torch.device("cuda:0") and grad.get_device() == 0
        zeros = torch.zeros(grad.shape, device="cuda")
        return add_to(grad.contiguous(), zeros), grad


@torch.library.custom_op("pretended::added", mutates_args={})
def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add_to(x, y.clone())


@added.register_fake
def _(x, y):
    assert x.is_cuda
    return torch.empty_like(x)


added.register_autograd(lambda ctx, grad: (add_to(grad.contiguous(), torch.zeros_like(grad)), grad))


def by_checkpoint(x, y):
    return torch.utils.checkpoint.checkpoint(Added.apply, x, y, use_reentrant=False)


def by_reentrant_checkpoint(x, y):
    return torch.utils.checkpoint.checkpoint(Added.apply, x, y, use_reentrant=True)


def by_saved_hooks(x, y):
    def both(tensor):
        assert tensor.is_cuda
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(both, both):
        return Added.apply(x * x, y) / x


@pytest.mark.parametrize(
    "f",
    [Added.apply, added, torch.ops.pretended.added, by_checkpoint, by_reentrant_checkpoint, by_saved_hooks],
)
@pytest.mark.parametrize("how", ["backward", "grad", "of several"])
def test_what_torch_calls_back_sees_a_gpu(report, f, how):
    x, y = (torch.ones(20, device="cuda", requires_grad=True) for _ in range(2))
    seen = []
    z = f(x, y)
    z.register_hook(lambda grad: seen.append(grad.device))
    y.register_hook(lambda grad: seen.append(grad.device))
    if how == "grad":
        if f is by_reentrant_checkpoint:
            pytest.skip("torch refuses that")
        grads = torch.autograd.grad(z.sum(), (x, y))
    else:
        (z.sum().backward if how == "backward" else lambda: torch.autograd.backward([z.sum()]))()
        grads = x.grad, y.grad
    assert torch.equal(grads[1], torch.ones(20)) and all(grad.is_cuda for grad in grads)
    assert seen == [torch.device("cuda:0")] * 2
    assert report.ok and report.launches


def test_functions_of_functions_see_a_gpu(report):
    pair = torch.ones(3, device="cuda"), torch.ones(3, device="cuda")
    torch.library.opcheck(added, pair, test_utils=("test_schema", "test_faketensor"))
    x = torch.ones(20, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Added.apply, (x, torch.ones_like(x)))


def test_a_gradient_is_where_its_tensor_is(report):
    where = {}

    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            where[ctx.name] = grad.device.type
            return grad * 1, None

    x = torch.ones(3, requires_grad=True)
    Seen.apply(x * 2, "on a CPU").sum().backward()
    middle = Seen.apply(Seen.apply(x, "before").cuda() * 2, "between")
    Seen.apply(middle.to("cpu"), "after").sum().backward()
    assert where == {"on a CPU": "cpu", "before": "cpu", "between": "cuda", "after": "cpu"}
    assert x.grad.is_cpu and torch.equal(x.grad, torch.full((3,), 4.0))
    assert torch.empty(2, device="meta").is_meta and torch.empty(2, device="meta").device.type == "meta"


def test_a_default_device_ends_with_the_audit():
    with audited(device="cuda", guard=QUICK):
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda and not torch.zeros(2, device="cpu").is_cuda
    with audited(device="cuda", guard=QUICK):
        assert not torch.zeros(2).is_cuda


def test_tensors_of_an_audited_call_are_on_a_gpu():
    x = torch.ones(20)
    assert audit(add_to, x, torch.ones(20), guard=QUICK, like=lambda x, y: y.add_(x)).ok
    assert x.device.type == "cpu"


@pytest.mark.parametrize(
    "make, ok",
    [
        (lambda: torch.ones(20), False),
        (lambda: torch.ones(20, device="cuda").cpu(), False),
        (lambda: torch.from_numpy(np.ones(20, np.float32)), False),
        (lambda: torch.ones(0), True),
        (lambda: torch.ones(20, pin_memory=True), True),
        (lambda: torch.ones(20).pin_memory(), True),
        (lambda: torch.ones(20).cuda(), True),
    ],
)
@pytest.mark.parametrize("kernel", [add_kernel, tuned_kernel])
def test_a_kernel_that_gets_a_tensor_on_the_cpu(report, make, ok, kernel):
    block = {} if kernel is tuned_kernel else {"BLOCK": 32}
    x = make()
    kernel[(1,)](x, torch.zeros(20, device="cuda"), x.numel(), **block)
    assert report.ok == ok and not report.unjudged
    assert ok or {each.verdict.message for each in report.findings} == {
        "X is on the CPU, and a GPU can't access it"
    }
    assert ok or "Pointer argument cannot be accessed from Triton (cpu tensor?)" in str(report)


def test_tensors_that_are_gone_are_forgotten():
    mode = cuda.OnGPU()
    with mode:
        small = [torch.ones(1) for _ in range(300)]
        del small
        gc.collect()
        large = [torch.ones(100) for _ in range(300)]
        assert len(mode._on_cpu._known) < 600 and not any(each.is_cuda for each in large)


def test_what_a_gpu_machine_has(report):
    assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "cuda"
    assert torch.device(0) == torch.device("cuda:0")
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == 0
    assert isinstance(torch.cuda.memory_summary(), str)
    assert torch.cuda.cudart().cudaProfilerStart() == 0 and torch.cuda.profiler.start() is None
    x = torch.ones(4, pin_memory=True).pin_memory().cuda(non_blocking=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x.record_stream(stream)
        x.record_stream(torch.cuda.current_stream())
    assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}])
def test_a_module_trains_and_moves(report, options, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).cuda()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, **options)
    before = [p.detach().clone() for p in module.parameters()]
    module(torch.randn(3, 4, device="cuda")).square().sum().backward()
    optimizer.step()
    assert all(p.is_cuda and p.grad.is_cuda for p in module.parameters())
    assert any(not torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))
    torch.save(module.state_dict(), tmp_path / "state.pt")
    for place, is_cuda in (("cuda", True), (torch.device("cuda:0"), True), (None, True), ("cpu", False)):
        state = torch.load(tmp_path / "state.pt", map_location=place)
        assert all(tensor.is_cuda == is_cuda for tensor in state.values())
        module.load_state_dict(state)
    assert all(p.is_cuda for p in module.parameters())
    assert not any(p.is_cuda for p in module.cpu().parameters())


def test_other_threads_have_the_same_gpu(report):
    x = torch.ones(20, device="cuda")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: add_to(x, torch.zeros(20, device="cuda")), range(3)))
    assert all(torch.equal(result, x) for result in results)
    assert len(report.launches) == 3 and report.ok


@pytest.mark.parametrize("kernel", [add_kernel, tuned_kernel])
def test_a_graph_runs_when_it_is_replayed(report, kernel):
    x, y = torch.ones(20, device="cuda"), torch.zeros(20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        assert torch.cuda.is_current_stream_capturing()
        more = x * 2
        add_to(more, y, kernel)
        doubled = (y + 1).view(4, 5).t()
    assert not torch.cuda.is_current_stream_capturing()
    assert y.sum() == 0  # nothing runs while it is captured
    for turn in (1, 2):
        x.fill_(turn)
        graph.replay()
        assert torch.equal(more, 2 * x)
        assert torch.equal(y, torch.full((20,), 2.0 if turn == 1 else 6.0))
        assert torch.equal(doubled, (y + 1).view(4, 5).t())
    assert report.ok and len({launch.launch.name for launch in report.launches}) == 1


def test_a_fault_in_a_graph_is_found():
    with audited(device="cuda", guard=QUICK) as report:
        x, y = torch.ones(20, device="cuda"), torch.zeros(10, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            add_to(x, y)
    assert [finding.verdict.kind for finding in report.findings] == ["out of bounds"]


def test_two_captures_at_once_are_refused(report):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        with pytest.raises(RuntimeError, match="while another one is"):
            torch.cuda.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="capture_end without capture_begin"):
        torch.cuda.CUDAGraph().capture_end()


@triton.jit
def positive_kernel(X, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=1.0)
    tl.device_assert(x > 0, "x must be positive")
    tl.store(X + i, x, mask=i < n)


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_what_a_kernel_asserts_is_a_finding_if_it_is_not_true(value):
    def check(x):
        positive_kernel[(1,)](x, x.numel(), BLOCK=32, debug=True)

    report = audit(check, torch.full((20,), value), guard=QUICK)
    assert report.ok == (value > 0) and not report.unjudged
    assert ("tl.device_assert fails: x must be positive" in str(report)) == (value < 0)
