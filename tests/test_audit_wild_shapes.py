"""Shapes of launches found in public libraries, each with a small kernel written for it here.

What is wrong with a kernel must be found however it's launched, and a right one must pass.
"""

import time
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import Guard, audit, audited, runner
from puzzles_lib.auditor import catching, running
from tests.audited_suite import audited_suite

QUICK = Guard(sizes=False)
X = torch.arange(100.0) / 50 - 1


@triton.jit
def double_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, 2 * tl.load(X + i, mask=i < n), mask=i < n)


def doubled(x):
    return 2 * x


def kinds(report):
    return [finding.verdict.kind for finding in report.findings]


# ---- ways to launch


@torch.library.triton_op("wild_shapes::doubled", mutates_args={})
def _as_triton_op(x: torch.Tensor) -> torch.Tensor:
    z = torch.empty_like(x)
    torch.library.wrap_triton(double_kernel)[(triton.cdiv(x.numel(), 32),)](x, z, x.numel(), BLOCK=32)
    return z


@torch.library.custom_op("wild_shapes::into", mutates_args=("z",))
def _as_custom_op(x: torch.Tensor, z: torch.Tensor) -> None:
    double_kernel[(triton.cdiv(x.numel(), 32),)](x, z, x.numel(), BLOCK=32)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _as_triton_op(x)

    @staticmethod
    def backward(ctx, grad):
        return _as_triton_op(grad.contiguous())


def by_custom_op(x):
    z = torch.empty_like(x)
    _as_custom_op(x, z)
    return z


def by_autograd(x):
    x = x.clone().requires_grad_()
    z = Doubled.apply(x)
    z.sum().backward()
    return z.detach(), x.grad


def by_run(x):
    z = torch.empty_like(x)
    double_kernel.run(x, z, x.numel(), BLOCK=32, grid=(triton.cdiv(x.numel(), 32),), warmup=False)
    return z


def with_device(x):
    z = torch.empty(x.shape, device=torch.device("cuda"))
    assert z.device == torch.device("cuda", 0) and torch.device("cuda").type == "cuda"
    with torch.cuda.device(x.device.index):
        double_kernel[(triton.cdiv(x.numel(), 32),)](x, z, x.numel(), BLOCK=32)
    return z


def with_random_state(x):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.rand(3, device="cuda")
    return by_run(x)


@pytest.mark.parametrize("launch", [_as_triton_op, by_custom_op, by_run, with_device, with_random_state])
def test_ways_to_launch(launch):
    report = audit(launch, X, like=doubled)
    assert report.ok and report.compared and len(report.launches) == 1
    assert len(report.unjudged) == (launch is by_custom_op)  # torch calls the operator's fake


def test_a_backward_pass_is_audited_at_true_sizes_too():
    report = audit(by_autograd, X, like=lambda x: (2 * x, torch.full_like(x, 2.0)))
    assert report.ok and len(report.launches) == 2
    assert report.tried and not any("grad" in text for text in report.unjudged)


# ---- descriptors made on the host, launches that overlap, and hooks


@triton.jit
def first_row_kernel(Source, Z, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = tl.reshape(Source.load([0, 0, 0, pid * BLOCK]), [BLOCK])
    tl.store(Z + pid * BLOCK + tl.arange(0, BLOCK), row)


@pytest.mark.parametrize("column, ok", [(0, True), (1, False)])
def test_a_descriptor_of_four_axes(column, ok):
    def first_row(x):
        z = torch.empty(x.shape[-1])
        source = TensorDescriptor.from_tensor(x, [1, 1, 1, 16])
        first_row_kernel[(x.shape[-1] // 16,)](source, z, BLOCK=16)
        return z

    report = audit(first_row, torch.randn(1, 1, 1, 64), like=lambda x: x[0, 0, 0] + column)
    assert report.ok == ok
    assert not ok or "stores sizes as int32, too small for" in report.unjudged[0]


@triton.jit
def waiting_double_kernel(X, Z, n, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    double_kernel(X, Z, n, BLOCK)
    tl.extra.cuda.gdc_launch_dependents()


def test_a_launch_that_begins_before_another_ends():
    def twice(x):
        z, grid = torch.empty_like(x), (triton.cdiv(x.numel(), 32),)
        waiting_double_kernel[grid](x, z, x.numel(), BLOCK=32, launch_pdl=True)
        return z

    report = audit(twice, X, like=doubled)
    assert report.ok and report.compared and not report.unjudged


def test_hooks_of_a_kernel_are_called():
    called = []
    hook = lambda *args, **kwargs: called.append(kwargs["BLOCK"])  # noqa: E731
    double_kernel.add_pre_run_hook(hook)
    try:
        assert audit(by_run, X, guard=Guard(sizes=False)).ok
    finally:
        double_kernel.pre_run_hooks.remove(hook)
    assert called == [32]


# ---- tables of pointers


@triton.jit
def copy_rows_kernel(Sources, Target, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.load(Sources + row).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(Target + row * N + i, tl.load(source + i, mask=i < N), mask=i < N)


@pytest.mark.parametrize("beyond, ok", [(0, True), (1, False)])
def test_a_table_of_pointers_in_a_block_without_a_gpu(beyond, ok):
    rows = [torch.randn(100), torch.randn(100)]
    z = torch.empty(2, 100 + beyond)
    with audited() as report:
        table = torch.tensor([row.data_ptr() for row in rows])
        copy_rows_kernel[(2,)](table, z, 100 + beyond, BLOCK=128)
    assert report.ok == ok and not report.unjudged
    assert not ok or torch.equal(z, torch.stack(rows))


@pytest.mark.parametrize("beyond, found", [(0, []), (1, ["out of bounds"])])
def test_a_table_of_pointers(beyond, found):
    def stacked(tensors):
        table = torch.tensor([t.data_ptr() for t in tensors], dtype=torch.int64, device="cuda")
        z = torch.empty(len(tensors), tensors[0].numel() + beyond, device="cuda")
        copy_rows_kernel[(len(tensors),)](table, z, z.shape[1], BLOCK=16)
        return z

    tensors = [torch.randn(10), torch.randn(10), torch.randn(10)]
    report = audit(stacked, tensors, guard=QUICK, like=None if beyond else torch.stack)
    assert kinds(report) == found


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
@pytest.mark.parametrize("beyond, found", [(0, []), (1, ["out of bounds"])])
def test_a_table_of_pointers_to_large_tensors(monkeypatch, dtype, beyond, found):
    monkeypatch.setattr(running, "MOST_BYTES", 100)
    tensors = [torch.randn(10), torch.randn(10), torch.randn(10)]
    with audited(device="cuda") as report:
        table = torch.tensor([t.data_ptr() for t in tensors], dtype=dtype, device="cuda")
        copy_rows_kernel[(3,)](table, torch.empty(3, 10 + beyond, device="cuda"), 10 + beyond, BLOCK=16)
    assert kinds(report) == found
    assert ("Sources[2] has 10" if beyond else "too large to run completely") in str(report)


@pytest.mark.parametrize("large", [False, True])
def test_a_table_of_unknown_addresses_is_unjudged(monkeypatch, large):
    if large:
        monkeypatch.setattr(running, "MOST_BYTES", 16)

    def stacked(x):
        z = torch.empty(1, 10)
        copy_rows_kernel[(1,)](torch.tensor([1 << 40]), z, 10, BLOCK=16)
        return z

    report = audit(stacked, X, guard=QUICK)
    assert report.ok and "an address from a table" in report.unjudged[0]


@pytest.mark.parametrize("large", [False, True])
def test_a_table_with_the_address_of_a_tensor_that_is_gone(monkeypatch, large):
    if large:
        monkeypatch.setattr(running, "MOST_BYTES", 16)

    def stacked(tensors):
        addresses = [tensors[0].data_ptr(), (tensors[1] + 0).data_ptr()]
        z = torch.empty(2, 10, device="cuda")
        copy_rows_kernel[(2,)](torch.tensor(addresses, device="cuda"), z, 10, BLOCK=16)
        return z

    report = audit(stacked, [torch.randn(10), torch.randn(10)], guard=QUICK)
    assert kinds(report) == ["out of bounds"] and not report.unjudged
    assert "Sources[1] is the address of a tensor of float32 with the shape (10,), which no" in str(report)


class Stacked(torch.autograd.Function):
    """Stacks the rows of a matrix with a table of their addresses, forward and backward."""

    @staticmethod
    def forward(ctx, x):
        table = torch.tensor([row.data_ptr() for row in x], device=x.device)  # views that live no longer
        z = torch.empty_like(x)
        copy_rows_kernel[(len(x),)](table, z, x.shape[1], BLOCK=16)
        return z

    @staticmethod
    def backward(ctx, grad):
        return Stacked.apply(grad.contiguous())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_table_of_the_addresses_of_rows_also_in_a_backward_pass(device):
    with audited(device=device, guard=QUICK) as report:
        x = torch.randn(2, 10, device=device, requires_grad=True)
        z = Stacked.apply(x)
        (z * 2).sum().backward()
    assert report.ok and not report.unjudged and len(report.launches) == 2
    assert torch.equal(z, x) and torch.equal(x.grad, torch.full_like(x, 2.0))


@triton.jit
def copy_tile_kernel(X, Z, M, N, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(X, [M, N], [N, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(Z, [M, N], [N, 1], [BLOCK, BLOCK])
    target.store([0, 0], source.load([0, 0]))


@pytest.mark.parametrize("columns, ok", [(8, True), (10, False)])
def test_rows_of_a_descriptor_that_a_gpu_would_misplace_are_a_finding(columns, ok):
    def copied(x):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda"))
        z = torch.empty_like(x)
        copy_tile_kernel[(1,)](x, z, *x.shape, BLOCK=16)
        return z

    report = audit(copied, torch.randn(7, columns), guard=QUICK)
    assert report.ok == ok and not report.unjudged
    assert ok or "rows of X's descriptor must be a multiple of 16 bytes apart" in str(report)


# ---- autotune


def tuned(kernel=None, **options):
    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]
    return triton.autotune(configs, key=["n"], **options)


@triton.jit
def halve_kernel(X, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + i, tl.load(X + i, mask=i < n) / 2, mask=i < n)


@triton.jit
def total_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(Z, tl.sum(tl.load(X + i, mask=i < n, other=0.0)))


HALVES = {keeps: tuned(restore_value=["X"] if keeps else None)(halve_kernel) for keeps in (True, False)}
TOTALS = {keeps: tuned(reset_to_zero=["Z"] if keeps else None)(total_kernel) for keeps in (True, False)}


@pytest.mark.parametrize("keeps", [True, False])
def test_autotune_measures_on_the_tensors_themselves(keeps):
    def halved(x):
        HALVES[keeps][lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())

    def total(x):
        z = torch.zeros(1, device=x.device)
        TOTALS[keeps][lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, z, x.numel())
        return z

    for function, name, way in ((halved, "X", "restore_value"), (total, "Z", "reset_to_zero")):
        report = audit(function, X, guard=QUICK)
        assert kinds(report) == ([] if keeps else ["values"])
        if not keeps:
            assert report.findings[0].verdict.message.startswith(f"{name} gets different values")
            assert way in str(report)


@triton.autotune(
    [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 256}, num_stages=5)],
    key=["n"],
    prune_configs_by={"perf_model": lambda **_: 1 / 0, "top_k": 1},
)
@triton.jit
def squares_kernel(X, W, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, BLOCK):
        at = (k + i)[None, :]
        x = tl.load(X + i[:, None] * n + at, mask=(i[:, None] < n) & (at < n), other=0.0)
        w = tl.load(W + at * n + i[:, None], mask=(i[:, None] < n) & (at < n), other=0.0)
        sums += tl.dot(x, w.T, input_precision="ieee")
    tl.store(Z + i[:, None] * n + i[None, :], sums, mask=(i[:, None] < n) & (i[None, :] < n))


@pytest.mark.parametrize("first", [None, [(0, 0, 0)]])
def test_two_samples_of_a_large_grid_are_not_compared(monkeypatch, first):
    """Which programs run depends on how long the first of them take."""
    samples = iter([[(0, 0, 0)], first, [(5, 0, 0)]])
    monkeypatch.setattr(running._Guarded, "_sample", lambda self: next(samples))
    tuned = triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=[])(
        double_kernel
    )
    with audited() as report:
        tuned[(20,)](torch.ones(1000), torch.zeros(1000), 1000)
    assert report.ok and len(report.launches) == 2 and "too large" in report.unjudged[0]
    assert next(samples, None) == (first and [(5, 0, 0)])  # the second run, of one that ran wholly


def test_a_last_configuration_that_cannot_be_launched_leaves_the_results_of_the_one_before():
    def product(x, w):
        z = torch.empty_like(x)
        squares_kernel[(1,)](x, w, z, x.shape[0])
        return z

    report = audit(product, torch.randn(20, 20), torch.randn(20, 20), like=torch.matmul, guard=QUICK)
    assert report.ok and report.compared and any("autotune skips it" in note for note in report.notes)


@triton.jit
def plus_kernel(X, Z, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    more = 1.0 if BLOCK == WRONG else 0.0
    tl.store(Z + i, tl.load(X + i, mask=i < n) + more, mask=i < n)


def in_seconds(monkeypatch, each):
    """Let each guarded launch take so many seconds of CPU time."""
    now = [0.0]
    monkeypatch.setattr(catching.time, "thread_time", lambda: now[0])
    was = running.Runner.run

    def run(self, launch):
        now[0] += each
        return was(self, launch)

    monkeypatch.setattr(running.Runner, "run", run)


MANY = [triton.Config({"BLOCK": 16 << n}, num_warps=w) for n in range(4) for w in (2, 4)]


@pytest.mark.parametrize("wrong", [0, 128])
def test_configurations_share_one_budget_and_those_left_are_counted(monkeypatch, wrong):
    in_seconds(monkeypatch, 1.0)
    kernel = triton.autotune(MANY, key=["n"], reset_to_zero=["Z"])(plus_kernel)
    z = torch.full((200,), 7.0)
    with audited(guard=Guard(seconds=1.0)) as report:
        kernel[lambda meta: (triton.cdiv(200, meta["BLOCK"]),)](torch.ones(200), z, 200, wrong)
    status = [launch.status for launch in report.launches]
    assert status == ["ok"] * 4 + ["unjudged"] * 4 and not report.lacks_results
    tried = [launch.launch.arguments["BLOCK"] for launch in report.launches if launch.status == "ok"]
    assert sorted(tried) == [16, 32, 64, 128]  # the most different ones
    assert len(report.unjudged) == 4 and len(set(report.unjudged)) == 1
    assert "too large to judge: 4 of 8 configurations" in report.unjudged[0]
    assert "4 of 8 launches clean, the rest not judged" in str(report)
    assert set(z.tolist()) <= {1.0, 2.0}  # what a configuration has left, after the hooks of those left


def test_the_values_of_each_configuration_are_compared_or_counted(monkeypatch):
    def plus(x, wrong):
        z = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, z, x.numel(), wrong)
        return z

    configs = [triton.Config({"BLOCK": 16}, num_stages=n) for n in range(1, 11)] + MANY[-1:]
    kernel = triton.autotune([*configs, triton.Config({"BLOCK": 32})], key=["n"])(plus_kernel)
    report = audit(plus, X, 128, like=lambda x, _: x, guard=Guard(sizes=False))
    assert kinds(report) == ["values"] and "configuration 11 of 12" in report.findings[0].on
    in_seconds(monkeypatch, 1.0)
    report = audit(plus, X, 0, like=lambda x, _: x, guard=Guard(sizes=False, seconds=1.0))
    assert report.ok and report.compared
    assert any("too large to compare: the values of 7 of 12" in text for text in report.unjudged)


# ---- one fault is one finding


@triton.jit
def row_sum_kernel(X, Z, N, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * N + i, mask=i < N, other=0.0 if MASKED else None)
    tl.store(Z + tl.program_id(0), tl.sum(x).to(tl.int32))


@triton.jit
def pick_kernel(X, Which, Z, BEYOND: tl.constexpr):
    at = tl.load(Which + tl.program_id(0)) + BEYOND
    tl.store(Z + tl.program_id(0), tl.load(X + at))


@pytest.mark.parametrize("beyond, found", [(0, ["uninitialized"]), (100, ["uninitialized", "out of bounds"])])
def test_what_follows_undefined_lanes_is_judged_as_a_gpu_leaves_them(beyond, found):
    def picked(x):
        which = torch.empty(2, dtype=torch.int32)
        row_sum_kernel[(2,)](x, which, 5, False, BLOCK=8)  # 5 and 5
        row_sum_kernel[(2,)](x, which, 5, False, BLOCK=16)
        z = torch.empty(2)
        pick_kernel[(2,)](x, which, z, beyond)
        return z

    assert kinds(audit(picked, torch.ones(10), guard=QUICK)) == found


def test_what_follows_a_launch_that_broke_off_is_unjudged():
    def picked(x):
        which = torch.empty(2, dtype=torch.int32)
        row_sum_kernel[(2,)](x[:8], which, 5, True, BLOCK=8)
        z = torch.empty(2)
        pick_kernel[(2,)](x, which, z, 0)
        return z

    report = audit(picked, torch.ones(10), guard=QUICK)
    assert kinds(report) == ["out of bounds"]
    assert "pick_kernel: it may use values that row_sum_kernel has not stored" in report.unjudged


# ---- what is no fault


@triton.jit
def maybe_scaled_kernel(X, Scale, Z, n, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    scale = tl.load(Scale)
    x = tl.load(X + i, mask=i < n)
    tl.store(Z + i, x * scale if SCALED else x, mask=i < n)


@pytest.mark.parametrize("is_scaled, found", [(False, []), (True, ["out of bounds"])])
def test_a_load_that_nobody_uses_is_not_there(is_scaled, found):
    def scaled(x):
        z = torch.empty_like(x)
        maybe_scaled_kernel[(1,)](x, torch.empty(0, device=x.device), z, x.numel(), is_scaled, BLOCK=128)
        return z

    assert kinds(audit(scaled, X, guard=QUICK)) == found


@triton.jit
def handed_over_kernel(X, Part, Flag, Z, SAFE: tl.constexpr, BLOCK: tl.constexpr):
    pair, half = tl.program_id(0) // 2, tl.program_id(0) % 2
    i = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * BLOCK + i)
    if half == 0:
        tl.store(Part + pair * BLOCK + i, x)
        if SAFE:
            tl.debug_barrier()
        tl.atomic_xchg(Flag + pair, 1)
    else:
        while tl.atomic_cas(Flag + pair, 1, 1) != 1:
            pass
        if SAFE:
            tl.debug_barrier()
        tl.store(Z + pair * BLOCK + i, x + tl.load(Part + pair * BLOCK + i))


@pytest.mark.parametrize("safe, found", [(True, []), (False, ["race"])])
def test_programs_that_wait_for_others(safe, found, pairs=2):
    def sums(x):
        part, z = torch.empty(pairs * 128), torch.empty(pairs * 128)
        flag = torch.zeros(pairs, dtype=torch.int32)
        handed_over_kernel[(2 * pairs,)](x, part, flag, z, safe, BLOCK=128)
        return z

    x = torch.randn(pairs * 256)
    report = audit(sums, x, guard=QUICK, like=lambda x: x.view(-1, 2, 128).sum(1).flatten())
    assert kinds(report) == found


def test_assembly_of_a_warp_is_unjudged():
    @triton.jit
    def assembly_kernel(X, Z, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < n, other=0.0)
        z = tl.inline_asm_elementwise(
            "shfl.sync.up.b32 $0, $1, 1, 0, -1;", "=r,r", [x], tl.float32, is_pure=True, pack=1
        )
        tl.store(Z + i, z, mask=i < n)

    def copied(x):
        z = torch.empty_like(x)
        assembly_kernel[(1,)](x, z, x.numel(), BLOCK=128)
        return z

    report = audit(copied, X, guard=QUICK)
    assert report.ok and "assembly" in report.unjudged[0] and report.launches[0].status == "unjudged"


# ---- true sizes


@triton.jit
def noise_kernel(Seeds, Z, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    noise = tl.rand(tl.load(Seeds + row), i)
    at = tl.sum((noise < 0.5).to(tl.int32), 0)
    tl.store(Z + row * n + at % n, 1.0)


def test_random_numbers_wrap_around_and_are_no_offsets():
    def noise(seeds):
        z = torch.zeros(seeds.shape[0], 8, device=seeds.device)
        noise_kernel[(seeds.shape[0],)](seeds, z, 8, BLOCK=16)
        return z

    report = audit(noise, torch.arange(5))
    assert report.ok and report.tried


@triton.jit
def pairs_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    within = (i < n)[:, None] & (j < n)[None, :]
    x, y = tl.load(X + i, mask=i < n), tl.load(X + j, mask=j < n)
    tl.store(Z + i[:, None] * n + j[None, :], x[:, None] - y[None, :], mask=within)


def test_a_size_is_pretended_no_larger_than_a_wrap_needs():
    def pairs(x):
        z = torch.empty(x.shape[0], x.shape[0], device=x.device)
        pairs_kernel[(triton.cdiv(x.shape[0], 32),) * 2](x, z, x.shape[0], BLOCK=32)
        return z

    report = audit(pairs, X)
    assert kinds(report) == ["true size"]
    size = int(report.findings[0].on.rpartition(" ")[2].replace(",", ""))
    assert 46_341 < size < 60_000  # its square is just beyond 2**31


@triton.jit
def gather_kernel(X, Which, Z, N, LARGEST, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.load(Which + row).to(tl.int64)
    i = tl.arange(0, BLOCK)
    tl.store(Z + row * N + i, tl.load(X + (at - 1) * N + i, mask=i < N), mask=i < N)


def test_lengths_and_indices_keep_their_values_at_true_sizes():
    def gathered(x, which):
        z = torch.empty(which.shape[0], x.shape[1], device=x.device)
        gather_kernel[(which.shape[0],)](x, which, z, x.shape[1], 0, BLOCK=16)
        return z

    report = audit(gathered, torch.randn(6, 10), torch.tensor([1, 6, 3]), like=lambda x, w: x[w - 1])
    assert report.ok and not report.unjudged
    assert len([tried for tried in report.tried if "numbers of the last rows" not in tried]) == 4


# ---- hard inputs


@triton.jit
def rows_softmax_kernel(X, Z, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    best = tl.argmax(x, 0)
    tl.store(Z + row * 2 + 0, best)
    tl.store(Z + row * 2 + 1, tl.sum((e > 0.5).to(tl.int32), 0))


def test_ties_and_nan_are_no_findings_where_the_reference_is_one_of_several():
    def best(x):
        x = x.contiguous()
        z = torch.empty(x.shape[0], 2, dtype=torch.int32, device=x.device)
        rows_softmax_kernel[(x.shape[0],)](x, z, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))
        return z

    def like(x):
        last = x.shape[1] - 1 - x.flip(-1).argmax(-1)  # of equal ones the last
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return torch.stack([last, (e > 0.5).sum(-1)], 1)

    report = audit(best, torch.randn(5, 33), like=like, guard=QUICK, hard=True)
    assert report.ok and len(report.tried) > 15


@triton.jit
def rotated_kernel(X, Angles, Z, N, HALF: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    a, b = tl.load(X + row * N + i), tl.load(X + row * N + HALF + i)
    c, s = tl.cos(tl.load(Angles + i)), tl.sin(tl.load(Angles + i))
    tl.store(Z + row * N + i, a * c - b * s)
    tl.store(Z + row * N + HALF + i, b * c + a * s)


def test_a_size_that_another_must_fit_is_left_alone():
    def rotated(x, angles):
        x = x.contiguous()
        z = torch.empty_like(x)
        rotated_kernel[(x.shape[0],)](x, angles.contiguous(), z, x.shape[1], HALF=angles.shape[0])
        return z

    def like(x, angles):
        a, b = x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], 1)

    report = audit(rotated, torch.randn(6, 16), torch.randn(8), like=like, guard=QUICK, hard=True)
    assert not any("size 8" in finding.on for finding in report.findings)


@triton.jit
def tanh_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, 2 * tl.sigmoid(2 * tl.load(X + i, mask=i < n)) - 1, mask=i < n)


def test_tiny_results_may_be_as_far_off_as_what_a_kernel_adds_up():
    def tanh(x):
        x = x.contiguous()
        z = torch.empty_like(x)
        tanh_kernel[(triton.cdiv(x.numel(), 32),)](x, z, x.numel(), BLOCK=32)
        return z

    report = audit(tanh, X, like=torch.tanh, guard=QUICK, hard=True)
    assert report.ok and any("tiny" in text for text in report.tried)


# ---- the environment


def test_a_model_of_the_time_may_ask_for_clocks():
    with audited(device="cuda", guard=QUICK) as report:
        clocks = triton.testing.nvsmi(["clocks.max.sm"])
        by_run(X.clone())
    assert clocks == [1980] and report.ok


def test_one_line_is_reported_once_for_all_configurations_and_launches():
    @triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["N"])
    @triton.jit
    def sum_kernel(X, Z, N, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(Z, tl.sum(tl.load(X + i, mask=i < N)))

    def sums(x):
        z = torch.empty(2, device=x.device)
        for each in range(2):
            sum_kernel[(1,)](x, z[each:], x.numel())
        return z

    report = audit(sums, X, guard=QUICK)
    assert kinds(report) == ["uninitialized"] and len(report.launches) == 4
    assert SimpleNamespace(**report.launches[3].as_dict()).status == "FINDING"


TOO_LARGE = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, 2 * tl.load(X + i, mask=i < n), mask=i < n)


def test_many_programs():
    x = torch.ones(40_000, device="cuda")
    z = torch.empty_like(x)
    double_kernel[(2_500,)](x, z, x.numel(), BLOCK=16)
    assert (z == 2).all()


def test_few_programs():
    x = torch.ones(40, device="cuda")
    z = torch.empty_like(x)
    double_kernel[(3,)](x, z, x.numel(), BLOCK=16)
    assert (z == 3).all()
"""


def test_a_test_of_launches_too_large_to_run_whole_is_skipped(tmp_path):
    (tmp_path / "test_large.py").write_text(TOO_LARGE)
    done = audited_suite(tmp_path, "-rs", "--audit-seconds", "0.02")
    assert "1 failed, 1 skipped" in done.stdout, done.stdout
    assert "too large to run completely" in done.stdout
    assert "2 launches in 2 tests: 1 clean, 0 with a finding, 1 not judged, or only in part" in done.stdout


# ---- launches of which only some programs run


@triton.jit
def index_kernel(Index, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Index + i, n - 1 - i, mask=i < n)


@triton.jit
def take_kernel(X, Index, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(Index + i, mask=i < n, other=0)
    tl.store(Z + i, tl.load(X + index, mask=i < n), mask=i < n)


def no_memory(extra_bytes):
    """What `memory_limit` does where there is nothing left."""
    raise MemoryError


@pytest.mark.parametrize("too_little", ["seconds", "memory"])
def test_what_works_on_results_that_are_missing_gets_no_finding(monkeypatch, too_little):
    n, block, seconds = (64_000, 16, 0.02) if too_little == "seconds" else (64, 64, 5.0)
    monkeypatch.setattr(running, "group_of", lambda module: 0)  # else all programs run, in little time
    if too_little == "memory":  # whether a small limit is met depends on what the heap has free
        monkeypatch.setattr(runner, "memory_limit", no_memory)
    with audited(device="cuda", guard=Guard(seconds=seconds)) as report:
        index = torch.empty(n, dtype=torch.int32, device="cuda")
        index_kernel[(triton.cdiv(n, block),)](index, n, BLOCK=block)
        monkeypatch.undo()  # there is enough for the second
        x, z = torch.randn(n, device="cuda"), torch.empty(64, device="cuda")
        take_kernel[(1,)](x, index, z, 64, BLOCK=64)
    assert report.ok and len(report.unjudged) == 2 and "too large" in report.unjudged[0]
    assert "index_kernel has not stored" in report.unjudged[1]


# ---- what one thread loads before another one stores


@triton.jit
def corrected_kernel(X, n, y, REDUCES: tl.constexpr, BLOCK: tl.constexpr):
    """A softmax in place, less 1 at y: in its last step it knows what was at y at first."""
    i = tl.arange(0, BLOCK)
    at_y = tl.load(X + y)
    top, total = 0.0, 1.0
    if REDUCES:
        x = tl.load(X + i, mask=i < n, other=-float("inf"))
        top = tl.max(x)
        total = tl.sum(tl.exp(x - top))
    for start in range(0, n, BLOCK):
        x = tl.load(X + start + i, mask=start + i < n, other=-float("inf"))
        tl.store(X + start + i, tl.exp(x - top) / total, mask=start + i < n)
    tl.debug_barrier()
    tl.store(X + y, tl.exp(at_y - top) / total - 1)


@pytest.mark.parametrize("n", [8, 41])
@pytest.mark.parametrize("reduces", [True, False])
def test_a_reduction_waits_for_what_was_loaded_before(n, reduces):
    with audited(device="cuda") as report:
        x, block = torch.randn(n, device="cuda"), triton.next_power_of_2(n)
        corrected_kernel[(1,)](x, n, n - 2, reduces, block, num_warps=32)
    assert kinds(report) == ([] if reduces else ["race"])


# ---- what else a suite does


def test_compiled_kernels_have_numbers():
    with audited(device="cuda") as report:
        x = torch.ones(40, device="cuda")
        compiled = double_kernel[(3,)](x, torch.empty_like(x), 40, BLOCK=16)
        assert compiled.shared >= 0 and compiled.n_regs > 0 and "ptx" in compiled.asm
    assert report.ok


def test_higher_order_operators_of_torch_run():
    with audited(device="cuda") as report:
        x = torch.ones(40, device="cuda")
        y = torch.cond(x.sum() > 3, lambda a: 2 * a, lambda a: a, (x,))
        double_kernel[(3,)](y, torch.empty_like(y), 40, BLOCK=16)
    assert report.ok


def test_what_torch_would_compile_runs_as_it_is():
    with audited(device="cuda") as report:

        @torch.compile(fullgraph=True)
        def twice(x):
            return _as_triton_op(x) + 0

        assert torch.equal(twice(X), torch.compile(doubled)(X))
    assert report.ok and len(report.launches) == 1


def test_autocast_for_a_gpu_casts():
    with audited(device="cuda") as report, torch.autocast("cuda"):
        y = torch.ones(4, 40, device="cuda") @ torch.ones(40, 4, device="cuda")
        z = torch.empty_like(y)
        double_kernel[(1,)](y, z, 16, BLOCK=16)
        assert torch.is_autocast_enabled("cuda") and z.dtype == torch.float16 and (z == 80).all()
    assert report.ok and not torch.is_autocast_enabled("cpu")


def test_large_empty_tensors_take_little_time():
    with audited(device="cuda"):
        began = time.process_time()
        x = torch.empty(1 << 23, device="cuda")
        x.normal_()
        assert time.process_time() - began < 1.5
        part = torch.empty(40, 30)[:, :20]
        part.zero_()
        double_kernel[(1,)](part, torch.empty(20), 20, BLOCK=32)


CONFTEST = """
import torch

CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
"""


def test_a_conftest_is_imported_as_if_there_were_a_gpu(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(
        "from conftest import CAPABILITY\n\n\ndef test_it():\n    assert CAPABILITY == (9, 0)\n"
    )
    done = audited_suite(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


@torch.compile(fullgraph=True)
def compiled_sum(x):
    return torch.cat((x, torch.empty_like(x[:1]).zero_())).sum()


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_what_torch_has_compiled_before_runs_as_it_is(factor):
    def twice(x):
        z = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 16),)](x, z, x.numel(), BLOCK=16)
        return z + compiled_sum(x)

    report = audit(twice, X, like=lambda x: factor * x + x.sum(), guard=QUICK)
    assert [each.verdict.kind for each in report.findings] == ["values"] * (factor == 3.0)


def test_a_function_compiled_before_a_block_runs_as_it_is_there():
    seen = []

    @torch.compile(fullgraph=True)
    def noted(x):
        seen.append(type(x))
        return 2 * x

    with audited() as report:
        assert torch.equal(noted(X), 2 * X) and not report.launches
    assert seen == [torch.Tensor]
