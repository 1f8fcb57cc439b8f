"""What a report says of elements that programs share, and of offsets that come from loaded indices."""

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import Guard, audit


def advice(function, *args):
    finding = audit(function, *args).findings[0]
    return finding.verdict.kind, finding.verdict.message, finding.verdict.diagnosis


@triton.jit
def shift_kernel(X, n, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if ADDS:
        tl.store(X + i % 8, tl.load(X + i % 8, mask=i < n) + 1.0, mask=i < n)
    else:
        tl.store(X + i + BLOCK, tl.load(X + i, mask=i < n) * 2.0, mask=i + BLOCK < n)


@pytest.mark.parametrize("adds", [True, False])
def test_an_atomic_is_advised_only_for_sums(adds):
    def shift(x):
        shift_kernel[(4,)](x, 32, adds, BLOCK=8)
        return x

    kind, _, text = advice(shift, torch.randn(32))
    assert kind == "race" and ("tl.atomic_add" in text) is adds
    assert "write to another tensor, or in a second launch" in text


@triton.jit
def double_kernel(X, stride, s, BM: tl.constexpr, BN: tl.constexpr):
    rows, cols = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    at = X + tl.program_id(0) * s + rows * stride + cols
    tl.store(at, tl.load(at) * 2.0 + rows)


def test_an_expanded_tensor_is_named_as_the_cause():
    def double(x):
        double_kernel[(3,)](x, x.stride(1), x.stride(0), BM=4, BN=16)
        return x

    kind, _, text = advice(double, torch.randn(3, 1, 16).expand(3, 4, 16))
    assert kind == "race" and text.startswith("X has stride 0 along axis 1, as an expanded tensor has: 4 ")


@triton.jit
def gather_kernel(X, Ids, Z, D: tl.constexpr, BLOCK: tl.constexpr):
    rows, cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    ids = tl.load(Ids + rows)
    x = tl.load(X + ids[:, None] * D + cols[None, :])
    tl.store(Z + rows[:, None] * D + cols[None, :], x)


def gather(x, ids):
    z = torch.empty(len(ids), x.shape[1])
    gather_kernel[(len(ids) // 4,)](x, ids, z, D=x.shape[1], BLOCK=4)
    return z


@pytest.mark.parametrize("bad", [6, -1])
def test_a_loaded_index_that_leads_out_of_a_tensor_is_named(bad):
    ids = torch.tensor([0, 1, 2, 3, 4, 5, bad, 0])
    kind, _, text = advice(gather, torch.randn(6, 16), ids)
    assert (kind, text) == ("out of bounds", f"Ids[6] is {bad}, but X has 6 rows")


def test_an_index_that_is_never_written_is_reported_instead_of_its_garbage():
    def gather_some(x):
        ids = torch.empty(8, dtype=torch.int32)
        return gather(x, ids)

    kind, message, _ = advice(gather_some, torch.randn(6, 16))
    assert kind == "uninitialized" and message.startswith("Ids[0] is read before anything is stored there")


@triton.jit
def target_kernel(X, Y, V, BLOCK: tl.constexpr):
    row = X + tl.program_id(0) * V
    target = tl.load(row + tl.load(Y + tl.program_id(0)))
    tl.debug_barrier()
    cols = tl.arange(0, BLOCK)
    tl.store(row + cols, tl.load(row + cols, mask=cols < V) - target, mask=cols < V)


def test_an_index_below_0_is_named_in_a_race():
    def target(x, y):
        target_kernel[(len(x),)](x, y, x.shape[1], BLOCK=32)
        return x

    kind, _, text = advice(target, torch.randn(5, 30), torch.tensor([1, 2, -20, 3, 4]))
    assert (kind, text) == ("race", "the offset comes from Y[2] = -20: leave out numbers below 0")


@triton.jit
def scatter_kernel(K, Slot, Pool, D: tl.constexpr):
    cols = tl.arange(0, D)
    slot = tl.load(Slot + tl.program_id(0))
    tl.store(Pool + slot * D + cols, tl.load(K + tl.program_id(0) * D + cols))


def test_two_programs_with_the_same_loaded_row_are_named():
    def scatter(k, slot, pool):
        scatter_kernel[(len(slot),)](k, slot, pool, D=k.shape[1])

    slot = torch.tensor([3, 9, 1, 9])
    kind, _, text = advice(scatter, torch.randn(4, 16), slot, torch.zeros(12, 16))
    assert (kind, text) == ("race", "Slot[1] and Slot[3] are the same number")


@triton.jit
def blocks_kernel(X, Z, M, N, CHECKS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    at = (tl.program_id(0) * BM, 0)
    x = tl.make_block_ptr(X, (M, N), (N, 1), at, (BM, BN), (1, 0))
    if CHECKS:
        a = tl.load(x, boundary_check=(1,))
    else:
        a = tl.load(x)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(Z + rows, tl.sum(a, 1), mask=rows < M)


@pytest.mark.parametrize("checks", [True, False])
def test_a_block_pointer_needs_boundary_check_and_no_mask(checks):
    def blocks(x):
        z = torch.empty(len(x))
        blocks_kernel[(triton.cdiv(len(x), 16),)](x, z, *x.shape, checks, BM=16, BN=32)
        return z

    kind, _, text = advice(blocks, torch.randn(40, 24))
    assert (kind, text) == ("out of bounds", "pass boundary_check=(0, 1)")


@triton.jit
def locked_kernel(X, Z, Lock, Count, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * BLOCK + cols)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    tl.debug_barrier()
    if count > 0:
        x += tl.load(Z + cols)
    tl.store(Z + cols, x)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(Count, count + 1)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


def test_a_missing_barrier_before_the_unlock_is_named_and_no_load_under_the_lock():
    def summed(x, barrier):
        z, flags = torch.empty(x.shape[1]), torch.zeros(2, dtype=torch.int32)
        locked_kernel[(len(x),)](x, z, flags, flags[1:], barrier, BLOCK=x.shape[1])
        return z

    kind, _, text = advice(summed, torch.randn(4, 32), False)
    assert kind == "race"
    assert text.startswith("put tl.debug_barrier() between the store and the atomic")
    assert audit(summed, torch.randn(4, 32), True, guard=Guard(sizes=False)).ok


@triton.jit
def add_up_kernel(X, Y, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(X + i, mask=i < n, other=0.0) + tl.load(Y + i, mask=i < n, other=0.0)
    tl.store(Z, tl.load(Z) + tl.sum(v))


def test_two_arguments_are_not_called_swapped_if_exchanging_them_leaves_a_race():
    def add_up(x, y):
        z = torch.zeros(1)
        add_up_kernel[(4,)](x, y, z, x.numel(), BLOCK=32)
        return z

    report = audit(add_up, torch.randn(100), torch.randn(100), like=lambda x, y: (x + y).sum()[None])
    verdict = report.findings[0].verdict
    assert verdict.kind == "race" and "swapped" not in verdict.diagnosis and "atomic_add" in verdict.diagnosis


@triton.jit
def reversed_by_table_kernel(Table, Z, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    t = tl.load(Table).to(tl.pointer_type(tl.float32))
    tl.store(t + i, tl.load(Z + i))
    tl.store(Z + i, tl.load(t + (BLOCK - 1 - i)))


def test_a_race_within_a_program_on_a_tensor_of_a_table():
    def reverse(z):
        t = torch.zeros_like(z)
        reversed_by_table_kernel[(1,)](torch.tensor([t.data_ptr()]), z, BLOCK=256)
        return z

    (finding,) = audit(reverse, torch.randn(256)).findings
    assert finding.verdict.kind == "race"
    assert "element 255 of Table[0] is stored at line" in finding.verdict.message, finding.verdict.message


@triton.jit
def stored_and_loaded_kernel(D, X, Z, Out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    D.store([0, 0], tl.load(X + at))
    tl.store(Out + at, tl.load(Z + (BLOCK * BLOCK - 1 - at)))


@pytest.mark.parametrize("apart", [True, False])
def test_a_descriptor_made_on_the_host_shares_its_tensors_memory(apart):
    def both(x):
        z, out = torch.zeros_like(x), torch.empty_like(x)
        descriptor = TensorDescriptor.from_tensor(z, [16, 16])
        stored_and_loaded_kernel[(1,)](descriptor, x, torch.zeros_like(x) if apart else z, out, BLOCK=16)
        return out, z

    findings = audit(both, torch.randn(16, 16), guard=Guard(sizes=False)).findings
    if apart:
        assert findings == []
    else:
        assert "no barrier waits for a descriptor's store" in findings[0].verdict.diagnosis


@triton.jit
def neighbor_kernel(X, DISTANCE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(X + i, tl.load(X + (i ^ DISTANCE)))


@pytest.mark.parametrize("distance, races", [(1, False), (2, True), (64, True)])
def test_what_one_thread_does_in_order_is_no_race(distance, races):
    """With 4 warps, a thread of sm_90 has two neighbors of 256 float32, as the TTGIR shows."""

    def neighbors(x):
        neighbor_kernel[(1,)](x, distance, BLOCK=256)
        return x

    findings = audit(neighbors, torch.randn(256), guard=Guard(sizes=False)).findings
    assert [finding.verdict.kind for finding in findings] == ["race"] * races
    if races:
        first, second = re.findall(r"by (lane \d+ of warp \d+)", findings[0].verdict.message)
        assert first != second


def test_a_reference_that_needs_gradients_but_works_without_them_gets_them():
    def ours(x):
        z, g = torch.empty_like(x), torch.full_like(x, 2.0)
        gather_kernel[(x.shape[0],)](x, torch.arange(x.shape[0]), z, D=16, BLOCK=1)
        return 2 * z, g

    def reference(x):
        y = x.detach().requires_grad_()
        z = 2 * y
        if z.requires_grad:
            z.sum().backward()
        return [z.detach(), y.grad]

    assert audit(ours, torch.randn(4, 16), like=reference, guard=Guard(sizes=False)).ok
