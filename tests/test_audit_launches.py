"""What a launch may be given: tuples, options, descriptors that need memory. What is not run is counted."""

import typing

import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from puzzles_lib import Guard, audit, audited
from puzzles_lib.auditor import running
from puzzles_lib.auditor.defined import Defined

QUICK = Guard(sizes=False)


@triton.jit
def sum_kernel(pointers, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(pointers[0] + i, mask=i < n, other=0.0)
    for k in tl.static_range(1, len(pointers)):
        x += tl.load(pointers[k] + i, mask=i < n, other=0.0)
    tl.store(z + i, x, mask=i < n)


def summed(*tensors, past_the_end=0):
    z = torch.empty_like(tensors[0])
    sum_kernel[(1,)](tensors, z, z.numel() + past_the_end, BLOCK=128)
    return z


class Scaled(typing.NamedTuple):
    part: tuple
    offset: int
    bias: object = None


@triton.jit
def scaled_kernel(given, z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(given.part[0] + i, mask=i < n, other=0.0) * given.part[1]
    if given.bias is not None:
        x += tl.load(given.bias)
    tl.store(z + i, x + given.offset, mask=i < n)


def test_a_report_keeps_no_tensor_of_the_audited_code_alive(monkeypatch):
    """A block of code may launch thousands of kernels, whose tensors it frees."""
    monkeypatch.setattr(running, "MOST_KEPT", 1000)
    monkeypatch.setattr(running, "MOST_KEPT_IN_ALL", 1500)
    with audited(guard=QUICK) as report:
        alive = []
        for n in (100, 60, 60, 200):
            x = torch.ones(n)
            sum_kernel[(1,)]((x,), x, n, BLOCK=256)
            alive.append(StorageWeakRef(x.untyped_storage()))
        del x
    assert all(each.expired() for each in alive)
    sizes = [launch.launch.tensors["pointers[0]"] for launch in report.launches]
    assert [(x.numel(), x.device.type) for x in sizes] == [
        (100, "cpu"), (60, "cpu"), (60, "cpu"), (200, "meta"),
    ]  # fmt: skip
    assert "registers per thread" in str(report.launches[3].stages())
    with pytest.raises(ValueError, match="too large to be kept"):
        report.launches[3].watch()


def test_notes_on_tensors_that_are_gone_are_forgotten():
    with Defined() as defined:
        small = [torch.empty(1) for _ in range(300)]
        del small
        large = [torch.empty(1000) for _ in range(300)]
        assert 300 <= len(defined.notes) < 600
        assert all(defined.elements(each) is not None for each in large)


def test_tuples_are_bound():
    x, y = torch.randn(100), torch.randn(100)
    report = audit(summed, x, y, like=lambda x, y: x + y, guard=QUICK)
    assert report.ok and not report.unjudged and report.compared
    launch = report.launches[0]
    assert "pointers[1]" in str(launch.watch()) and "pointers[1]" in str(launch.trace())
    assert "registers per thread" in str(launch.stages())
    wrong = str(audit(summed, x, y, past_the_end=1, guard=QUICK))
    assert "out-of-bounds load of pointers[0] in program 0: element 100" in wrong


@pytest.mark.parametrize("offset, bias", [(1, None), (3, torch.ones(1))])
def test_named_tuples_in_tuples_are_bound(offset, bias):
    def function(x):
        z = torch.empty_like(x)
        scaled_kernel[(1,)](Scaled((x, 2.0), offset, bias), z, x.numel(), BLOCK=128)
        return z

    want = offset + (0 if bias is None else 1)
    report = audit(function, torch.randn(100), like=lambda x: 2 * x + want)
    assert "offset" in str(report) or (report.ok and not report.unjudged), report


@gluon.jit
def gluon_kernel(x, z, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(z + i, gl.load(x + i, mask=i < n), mask=i < n)


def copied_then_summed(x):
    z = torch.empty_like(x)
    gluon_kernel[(1,)](x, z, x.numel(), BLOCK=128)
    return summed(z, x)


def test_what_is_not_run_is_counted():
    report = audit(copied_then_summed, torch.randn(100), like=lambda x: 2 * x, hard=True)
    assert report.ok and not report.compared and report.unsupported == ["gluon_kernel"]
    assert "0 of 2 launches clean, the rest not judged" in str(report)
    assert "gluon_kernel: it is a Gluon kernel" in str(report)
    assert "sum_kernel: it may use values that gluon_kernel has not stored" in str(report)
    assert report.as_dict()["unsupported"] == ["gluon_kernel"]


# ---- options


def launched(**options):
    with audited(guard=QUICK) as report:
        x = torch.randn(100)
        sum_kernel[(1,)]((x, x), torch.empty_like(x), 100, BLOCK=128, **options)
    return report


@pytest.mark.parametrize(
    "options, words",
    [
        ({"num_warps": 3}, "num_warps must be a power of 2, but is 3"),
        ({"num_warps": 0}, "num_warps must be a power of 2, but is 0"),
        ({"num_warps": 4.0}, "num_warps must be an integer, but is 4.0"),
        ({"num_warps": 64}, "64 warps are 2,048 threads"),
        ({"num_ctas": 3}, "num_ctas must be a power of 2, but is 3"),
        ({"num_ctas": -1}, "num_ctas must be a power of 2, but is -1"),
        ({"num_ctas": 32}, "num_ctas is 32, but a cluster has at most 16 blocks"),
        ({"num_stages": "2"}, "num_stages must be an integer, but is '2'"),
        ({"maxnreg": 0}, "maxnreg is 0, but a thread needs registers"),
    ],
)
def test_options_that_no_launch_takes_are_findings(options, words):
    report = launched(**options)
    assert words in str(report) and len(report.findings) == 1


@pytest.mark.parametrize(
    "options", [{"num_stages": -1}, {"num_stages": 0}, {"num_ctas": 2}, {"maxnreg": 64}, {"num_warps": 8}]
)
def test_options_that_triton_takes_are_none(options):
    assert launched(**options).ok


def test_an_option_that_triton_does_not_know_raises_as_in_triton():
    with pytest.raises(TypeError, match="number_of_warps is neither a parameter of the kernel nor an option"):
        launched(number_of_warps=4)


# ---- descriptors made in a kernel


@triton.jit
def described_kernel(x, z, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
    target = tl.make_tensor_descriptor(z, [n], [1], [BLOCK])
    target.store([tl.program_id(0) * BLOCK], source.load([tl.program_id(0) * BLOCK]))


def described(x):
    z = torch.empty_like(x)
    described_kernel[(triton.cdiv(x.numel(), 64),)](x, z, x.numel(), BLOCK=64)
    return z


def allocated(x):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    return described(x)


def test_descriptors_need_an_allocator():
    from triton.runtime import _allocation

    token = _allocation._allocator.set(_allocation._NULL_ALLOCATOR)
    try:
        report = audit(described, torch.randn(128), like=lambda x: x.clone(), guard=QUICK)
        assert report.findings[0].verdict.kind == "launch"
        assert "has no allocator" in str(report) and "triton.set_allocator(" in str(report)
        assert audit(allocated, torch.randn(128), like=lambda x: x.clone(), guard=QUICK).ok
    finally:
        _allocation._allocator.reset(token)


# ---- hard inputs that are not asked for


@triton.jit
def gathered_kernel(source, index, z, N, BLOCK: tl.constexpr):
    row, i = tl.load(index + tl.program_id(0)).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(source + row * N + i, mask=i < N)
    tl.store(z + tl.program_id(0).to(tl.int64) * N + i, x, mask=i < N)


def gathered(source, index):
    source = source.contiguous()
    z = torch.empty(len(index), source.shape[1], device=source.device)
    block = triton.next_power_of_2(source.shape[1])
    gathered_kernel[(len(index),)](source, index, z, source.shape[1], BLOCK=block)
    return z


def test_a_size_that_indices_need_is_not_made_smaller():
    """Nor is it a finding that a grid can have 2**31 - 1 programs."""
    report = audit(gathered, torch.randn(9, 40), torch.tensor([3, 0, 8]), hard=True)
    assert report.ok, report
    assert "source.shape[0] = 17" in report.tried and "source.shape[0] = 1" not in report.tried
    wrong = audit(gathered, torch.randn(9, 40), torch.tensor([3, 0, 9]), hard=True)
    assert "out-of-bounds load of source in program 2" in str(wrong)


@triton.jit
def endless_kernel(x, z, n, BLOCK: tl.constexpr):
    i, k = tl.arange(0, BLOCK), 0
    while k < n:
        tl.store(z + i, tl.load(x + i))


def test_a_loop_that_never_ends_is_a_finding():
    def function(x):
        z = torch.empty_like(x)
        endless_kernel[(1,)](x, z, 3, BLOCK=32)
        return z

    report = audit(function, torch.randn(32), guard=QUICK)
    assert "this loop never ends in program" in str(report) and report.findings


def test_a_device_guard_and_a_gpu_s_generator_are_there():
    with audited(device="cuda"):
        x = torch.zeros(4, device="cuda")
        with torch.cuda._DeviceGuard(x.device.index), torch.cuda.device(x.device):
            generator = torch.cuda.default_generators[x.device.index]
            generator.manual_seed(7)
            seed, offset = generator.get_state().view(torch.int64).tolist()
            assert (seed, offset) == (7, 0)
            generator.set_state(torch.tensor([7, 4]).view(torch.uint8))
            assert generator.get_offset() == 4 and generator.initial_seed() == 7


@triton.jit
def copied_kernel(x, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + i, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("block", [(16,), ()])
@pytest.mark.parametrize("n, ok", [(40, True), (50, False)])
def test_a_kernel_that_is_compiled_ahead_is_launched_later(block, n, ok):
    """As code does that asks how many programs fit on a multiprocessor."""

    def copied(x):
        z = torch.empty_like(x)
        compiled = copied_kernel.warmup(x, z, n, BLOCK=16, num_warps=8, grid=(1,))
        compiled._init_handles()
        fit = 65_536 // (compiled.n_regs * 32 * compiled.metadata.num_warps)
        assert min(fit, (227 << 10) // compiled.metadata.shared) > 0
        launched = compiled[(triton.cdiv(n, 16), 1, 1)](x, z, n, *block)
        assert launched.n_spills == 0 and launched.name == "copied_kernel"
        return z

    report = audit(copied, torch.randn(40), guard=Guard(sizes=False))
    assert report.ok == ok and len(report.launches) == 1
    assert report.launches[0].launch.num_warps == 8


def test_a_raw_stream_is_there_and_afterwards_not():
    was = hasattr(torch._C, "_cuda_getCurrentRawStream")

    def copied(x):
        assert torch._C._cuda_getCurrentRawStream(x.device.index) == 0
        z = torch.empty_like(x)
        copied_kernel[(3,)](x, z, 40, BLOCK=16)
        return z

    assert audit(copied, torch.randn(40), guard=Guard(sizes=False)).ok
    assert hasattr(torch._C, "_cuda_getCurrentRawStream") == was


# ---- tensors without memory


def doubled(x):
    z = torch.empty_like(x)
    sum_kernel[(1,)]((x, x), z, z.numel(), BLOCK=32)
    return z


@pytest.mark.parametrize(
    "launch",
    [
        lambda: torch.vmap(doubled)(torch.ones(2, 3, device="cuda")),
        lambda: torch.func.grad(lambda x: doubled(x).sum())(torch.ones(3, device="cuda")),
    ],
)
def test_a_tensor_without_an_address_raises_as_on_a_gpu(launch):
    with audited(device="cuda") as report, pytest.raises(RuntimeError, match="has no address"):
        launch()
    assert not report.launches


@pytest.mark.parametrize("kind", ["fake", "freed", "functional", "sparse"])
def test_a_tensor_without_memory_is_not_judged(kind):
    with audited(device="cuda") as report:
        x = torch.ones(3, device="cuda")
        if kind == "fake":
            with FakeTensorMode():
                doubled(torch.ones(3, device="cuda"))
        elif kind == "freed":
            x.untyped_storage().resize_(0)
            doubled(x)
        elif kind == "sparse":
            doubled(torch.eye(3, device="cuda").to_sparse())
        else:
            torch.func.functionalize(doubled)(x)
    why = "must be a strided tensor" if kind == "sparse" else "a tensor without memory"
    assert report.unsupported == ["sum_kernel"] and why in report.unjudged[0]


def test_vmap_makes_tensors_on_the_gpu():
    def shifted(x):
        return x + torch.arange(3, device="cuda") * torch.full((3,), 2.0, device=x.device)

    with audited(device="cuda") as report:
        y = torch.vmap(shifted)(torch.ones(2, 3, device="cuda"))
        assert y.is_cuda and torch.equal(doubled(y), 2 * (1 + 2 * torch.arange(3.0)).expand(2, 3))
    assert report.ok and len(report.launches) == 1 and not report.unjudged


@triton.jit
def biased_kernel(X, B, Z, n, HAS: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.make_block_ptr(X, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))
    v = tl.load(x, boundary_check=(0,), padding_option="zero")
    if HAS:
        b = tl.make_block_ptr(B, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))
        v += tl.load(b, boundary_check=(0,), padding_option="zero")
    z = tl.make_block_ptr(Z, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))
    tl.store(z, v, boundary_check=(0,))


@pytest.mark.parametrize("bias", [None, torch.arange(40.0)])
def test_a_block_pointer_on_a_branch_that_is_left_out_needs_no_tensor(bias):
    def biased(x, b):
        z = torch.empty_like(x)
        biased_kernel[(triton.cdiv(x.numel(), 16),)](x, b, z, x.numel(), b is not None, BLOCK=16)
        return z

    report = audit(biased, torch.ones(40), bias, like=lambda x, b: x if b is None else x + b, guard=QUICK)
    assert report.ok and report.compared and not report.unjudged


@triton.jit
def add_all_kernel(X, Z, stride, N, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    if HOW == "no mask":
        tl.store(Z + c, tl.load(X + row * stride + c), mask=c < N)
    elif HOW == "atomic":
        tl.atomic_add(Z + c, tl.load(X + row * stride + c, mask=c < N), mask=c < N)
    else:
        z = tl.load(Z + c, mask=c < N)
        tl.store(Z + c, z + tl.load(X + row * stride + c, mask=c < N), mask=c < N)


@pytest.mark.parametrize(
    "how, make, cure",
    [
        ("no mask", torch.zeros, "strides: X (8, 1) (shape (3, 5)): stride is 8 in this launch. Does"),
        ("atomic", torch.empty, "make the tensor with torch.zeros"),
        ("plain", torch.zeros, "use tl.atomic_add"),
    ],
)
def test_usual_faults_have_a_cure(how, make, cure):
    def added(x):
        z = make(x.shape[1])
        add_all_kernel[(len(x),)](x, z, x.stride(0), x.shape[1], how, BLOCK=8)
        return z

    report = audit(added, torch.randn(3, 8)[:, :5], guard=Guard(sizes=False))
    assert cure in report.findings[0].verdict.diagnosis


@triton.jit
def times_kernel(X, Z, factor, RACE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + (i % BLOCK if RACE else i), factor * tl.load(X + i))


@pytest.mark.parametrize("order", ["wrong, race", "race, wrong", "right, race", "race alone"])
def test_results_of_launches_before_a_race_are_compared(order):
    def called(x):
        z, races = torch.empty_like(x), torch.zeros_like(x)
        factor = 2.0 if "right" in order else 3.0
        steps = [(z, factor, False), (races, 2.0, True)]
        for out, by, race in steps[::-1] if order == "race, wrong" else steps:
            if by != 3.0 or order != "race alone":
                times_kernel[(2,)](x, out, by, race, BLOCK=16)
        return (z, races) if order != "race alone" else races

    like = (lambda x: (2 * x, 2 * x)) if order != "race alone" else (lambda x: 2 * x)
    report = audit(called, torch.randn(32), like=like, guard=Guard(sizes=False))
    kinds = [finding.verdict.kind for finding in report.findings]
    assert kinds == (["race", "values"] if order == "wrong, race" else ["race"]), report
    (text,) = report.unjudged
    which = {"wrong, race": "result 1: ", "right, race": "result 1: "}.get(order, "")
    assert text == f"values: {which}not compared, because a launch with a finding comes first"
    assert not report.compared
