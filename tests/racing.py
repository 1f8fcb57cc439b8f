"""Kernels whose threads meet in memory: racy as they are, right with the barriers that CURED puts in.

Each program has a row of B elements: x is given, z and the scratch t are results. Imports torch and triton
alone, so that the same kernels run on a GPU (tests/test_races_gpu.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

Rows = tuple[torch.Tensor, torch.Tensor]  # z and t, a program's row in each row


@dataclass(frozen=True)
class Racing:
    """A kernel, and what z and t should be; ``is_racy`` without its barriers, where it has any."""

    kernel: object
    expected: Callable[[torch.Tensor], Rows]
    is_racy: bool

    @property
    def name(self) -> str:
        return self.kernel.__name__


RACING: list[Racing] = []


def racy(expected: Callable[[torch.Tensor], Rows]) -> Callable:
    return lambda kernel: RACING.append(Racing(kernel, expected, True)) or kernel


def safe(expected: Callable[[torch.Tensor], Rows]) -> Callable:
    return lambda kernel: RACING.append(Racing(kernel, expected, False)) or kernel


def gathered(places: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[[torch.Tensor], Rows]:
    """z[i] is x at the places, t is x."""

    def expected(x: torch.Tensor) -> Rows:
        width = x.shape[1]
        return x[:, places(torch.arange(width, device=x.device), width)], x

    return expected


# ---- through scratch


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def reversed_through_scratch(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (B - 1 - i)))


@racy(gathered(lambda i, n: (i + 1) % n))
@triton.jit
def shifted_by_one(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (i + 1) % B))


@racy(gathered(lambda i, n: (i + n // 2) % n))
@triton.jit
def halves_change_places(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (i + B // 2) % B))


@racy(gathered(lambda i, n: i ^ 1))
@triton.jit
def neighbours_change_places(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (i ^ 1)))


@racy(gathered(lambda i, n: i ^ (n // 4)))
@triton.jit
def quarters_change_places(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (i ^ (B // 4))))


@racy(gathered(lambda i, n: i * 5 % n))
@triton.jit
def permuted_by_fives(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i * 5 % B))


@racy(lambda x: (x.flip(1), x.flip(1)))
@triton.jit
def scattered_backwards(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + (B - 1 - i), tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i))


@racy(gathered(lambda i, n: i % 32 * (n // 32) + i // 32))
@triton.jit
def transposed_through_scratch(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i % 32 * (B // 32) + i // 32))


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def halves_stored_apart(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i, h = tl.program_id(0) * B, tl.arange(0, B), tl.arange(0, B // 2)
    tl.store(t_ptr + row + h, tl.load(x_ptr + row + h))
    tl.store(t_ptr + row + B // 2 + h, tl.load(x_ptr + row + B // 2 + h))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (B - 1 - i)))


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def halves_loaded_apart(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i, h = tl.program_id(0) * B, tl.arange(0, B), tl.arange(0, B // 2)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + h, tl.load(t_ptr + row + (B - 1 - h)))
    tl.store(z_ptr + row + B // 2 + h, tl.load(t_ptr + row + (B // 2 - 1 - h)))


@triton.jit
def mirrored(ptr, i, B: tl.constexpr):
    return tl.load(ptr + (B - 1 - i))


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def loaded_by_a_helper(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, mirrored(t_ptr + row, i, B))


# ---- in place


@racy(lambda x: (x.flip(1), x))
@triton.jit
def reversed_in_place(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    if CURED:
        tl.debug_barrier()
    back = tl.load(z_ptr + row + (B - 1 - i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, back)


@racy(lambda x: (x.flip(1), x))
@triton.jit
def overwritten_before_it_is_read(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """The barrier that is always there orders the loads after the first stores; these race with the last."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    tl.debug_barrier()
    back = tl.load(z_ptr + row + (B - 1 - i))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, back)


@racy(lambda x: (x.flip(1) + 1, x))
@triton.jit
def stored_twice_by_different_threads(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + (B - 1 - i), x + 1)


@racy(lambda x: (x.roll(-148, 1), x))
@triton.jit
def four_shifts_in_a_loop(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    for _ in range(4):
        if CURED:
            tl.debug_barrier()
        tl.store(z_ptr + row + i, x)
        if CURED:
            tl.debug_barrier()
        x = tl.load(z_ptr + row + (i + 37) % B)
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, x)


# ---- by hand what Triton has reductions and scans for


def totals(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1, keepdim=True, dtype=torch.int32).expand_as(x)


def halved(x: torch.Tensor) -> torch.Tensor:
    """What a tree of sums leaves in the scratch."""
    t = x.clone()
    step = x.shape[1] // 2
    while step:
        t[:, :step] += t[:, step : 2 * step]
        step //= 2
    return t


@racy(lambda x: (totals(x), halved(x)))
@triton.jit
def summed_in_a_tree(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    step = B // 2
    while step > 0:
        if CURED:
            tl.debug_barrier()
        left = tl.load(t_ptr + row + i, mask=i < step, other=0)
        right = tl.load(t_ptr + row + step + i, mask=i < step, other=0)
        if CURED:
            tl.debug_barrier()
        tl.store(t_ptr + row + i, left + right, mask=i < step)
        step = step // 2
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i * 0))


@racy(lambda x: (x.cumsum(1, dtype=torch.int32), x.cumsum(1, dtype=torch.int32)))
@triton.jit
def running_sum_by_doubling(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    step = 1
    while step < B:
        if CURED:
            tl.debug_barrier()
        x += tl.load(t_ptr + row + i - step, mask=i >= step, other=0)
        if CURED:
            tl.debug_barrier()
        tl.store(t_ptr + row + i, x)
        step = step * 2
    tl.store(z_ptr + row + i, x)


@racy(lambda x: (x - x.amin(1, keepdim=True), torch.cat((x.amin(1, keepdim=True), x[:, 1:]), 1)))
@triton.jit
def minimum_as_one_element(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """The first thread stores the minimum, all of them load it."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x, mask=i > 0)
    tl.store(t_ptr + row, tl.min(x, 0))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, x - tl.load(t_ptr + row))


@racy(lambda x: (totals(x), torch.cat((totals(x)[:, :1], x[:, 1:]), 1)))
@triton.jit
def total_loaded_by_every_lane(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x, mask=i > 0)
    tl.store(t_ptr + row, tl.sum(x, 0))
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i * 0))


def counted(x: torch.Tensor) -> Rows:
    field = x & 15
    counts = torch.stack([(field == v).sum(1) for v in range(16)], 1).int()
    t = torch.zeros_like(x)
    t[:, :16] = counts
    return counts.gather(1, field.long()), t


@racy(counted)
@triton.jit
def counted_by_atomics(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """The counts are cleared by some threads, raised by others, and read by all."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    field = tl.load(x_ptr + row + i) & 15
    tl.store(t_ptr + row + i, i * 0)
    if CURED:
        tl.debug_barrier()
    tl.atomic_add(t_ptr + row + field, i * 0 + 1)
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + field))


@racy(lambda x: (x.sort(1).values, x.sort(1).values))
@triton.jit
def sorted_by_rank(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """x has no two equal elements in a row: each goes to the place of its rank."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    rank = i * 0
    for j in range(0, B):
        rank += (tl.load(x_ptr + row + j) < x).to(tl.int32)
    tl.store(t_ptr + row + rank, x)
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i))


def with_sums(x: torch.Tensor) -> Rows:
    width = x.shape[1] // 16
    z = x.clone()
    z[:, :width] += x.view(len(x), 16, width).sum(1, dtype=torch.int32)
    return z, x


@racy(with_sums)
@triton.jit
def sums_of_a_tile_added(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """Many threads have each of the sums, and what is loaded for them; one of them stores, with no barrier
    after the loads: what it stores is made of what was loaded."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    m, n = tl.arange(0, 16), tl.arange(0, B // 16)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    sums = tl.sum(tl.load(x_ptr + row + m[:, None] * (B // 16) + n[None, :]), axis=0)
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + n, tl.load(z_ptr + row + n) + sums)


# ---- barriers in the wrong place: CURED moves or adds one


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def barrier_before_the_store(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.debug_barrier()
    tl.store(t_ptr + row + i, x)
    if CURED:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (B - 1 - i)))


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def barrier_after_the_load(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED:
        tl.debug_barrier()
    y = tl.load(t_ptr + row + (B - 1 - i))
    tl.debug_barrier()
    tl.store(z_ptr + row + i, y)


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def barrier_in_some_programs(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    if CURED or tl.program_id(0) == 0:
        tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (B - 1 - i)))


@racy(lambda x: (x.roll(-2, 1), x.roll(-1, 1)))
@triton.jit
def one_barrier_for_two_turns(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """An iteration's load is ordered after its store; the next iteration's store is not after that load."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    for _ in range(2):
        tl.store(t_ptr + row + i, x)
        tl.debug_barrier()
        x = tl.load(t_ptr + row + (i + 1) % B)
        if CURED:
            tl.debug_barrier()
    tl.store(z_ptr + row + i, x)


@racy(gathered(lambda i, n: n - 1 - i))
@triton.jit
def atomic_whose_result_is_dropped(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """An atomic of one thread makes nobody wait for it unless its result is used."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(z_ptr + row, 0)
    tl.store(t_ptr + row + i, x)
    tl.atomic_add(z_ptr + row, 1)
    if CURED:
        tl.debug_barrier()
    y = tl.load(t_ptr + row + (B - 1 - i))
    tl.debug_barrier()
    tl.store(z_ptr + row + i, y)


# ---- safe without any barrier


@safe(lambda x: (x + 1, x))
@triton.jit
def each_thread_its_own(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i) + 1)


@safe(lambda x: (x + 2, x))
@triton.jit
def in_place(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x + 1)
    tl.store(z_ptr + row + i, tl.load(z_ptr + row + i) + 1)


@safe(lambda x: (x + 8, x))
@triton.jit
def in_place_in_a_loop(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    for _ in range(8):
        tl.store(z_ptr + row + i, tl.load(z_ptr + row + i) + 1)


@safe(lambda x: (x + 1, x))
@triton.jit
def in_place_under_a_mask(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    y = tl.load(z_ptr + row + i, mask=i < B - 3, other=0)
    tl.store(z_ptr + row + i, tl.where(i < B - 3, y, x) + 1)


@safe(lambda x: (x * 3, x))
@triton.jit
def a_tile_in_place(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    m, n = tl.arange(0, 16), tl.arange(0, B // 16)
    tile = tl.program_id(0) * B + m[:, None] * (B // 16) + n[None, :]
    tl.store(t_ptr + tile, tl.load(x_ptr + tile))
    tl.store(z_ptr + tile, tl.load(t_ptr + tile) * 3)


@safe(lambda x: (x.view(len(x), 32, -1).transpose(1, 2).reshape(x.shape), x))
@triton.jit
def a_tile_read_the_other_way(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """Layouts follow memory: the thread that has stored four neighbours loads them again, as a column."""
    row, m, n = tl.program_id(0) * B, tl.arange(0, 32), tl.arange(0, B // 32)
    tile = row + m[:, None] * (B // 32) + n[None, :]
    tl.store(t_ptr + tile, tl.load(x_ptr + tile))
    turned = row + n[:, None] * 32 + m[None, :]
    tl.store(z_ptr + turned, tl.load(t_ptr + row + m[None, :] * (B // 32) + n[:, None]))


@safe(lambda x: (x + 5, x))
@triton.jit
def by_a_helper_in_place(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    raised(z_ptr + row + i, 5)


@triton.jit
def raised(pointers, by):
    tl.store(pointers, tl.load(pointers) + by)


@safe(lambda x: (x - 1, x))
@triton.jit
def quarter_by_quarter(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B // 4)
    for part in range(4):
        here = row + part * (B // 4) + i
        tl.store(t_ptr + here, tl.load(x_ptr + here))
        tl.store(z_ptr + here, tl.load(t_ptr + here) - 1)


@safe(lambda x: (x.flip(1), x))
@triton.jit
def what_is_loaded_is_an_input(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    tl.store(z_ptr + row + i, tl.load(x_ptr + row + (B - 1 - i)))


@safe(lambda x: (x, x.flip(1)))
@triton.jit
def stored_and_never_loaded(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + (B - 1 - i), x)
    tl.store(z_ptr + row + i, x)


@safe(lambda x: (x, torch.cat((totals(x)[:, :1], x[:, 1:]), 1)))
@triton.jit
def one_thread_keeps_a_total(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """All threads load the total; the first alone stores it, and has stored it before."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(z_ptr + row + i, x)
    tl.store(t_ptr + row + i, x, mask=i > 0)
    tl.store(t_ptr + row, 0)
    for j in range(0, B):
        tl.store(t_ptr + row, tl.load(t_ptr + row) + tl.load(x_ptr + row + j))


@safe(gathered(lambda i, n: n - 1 - i))
@triton.jit
def ordered_by_a_used_atomic(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """The atomic's result goes to all threads over a barrier, whatever ``sem`` says."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(z_ptr + row, 0)
    tl.store(t_ptr + row + i, x)
    old = tl.atomic_add(z_ptr + row, 1, sem="relaxed")
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (B - 1 - i)) + old)


@safe(lambda x: (x.roll(-1, 1), x.roll(-1, 1)))
@triton.jit
def two_buffers_in_turn(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    tl.store(t_ptr + row + i, tl.load(x_ptr + row + i))
    tl.debug_barrier()
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + (i + 1) % B))
    tl.debug_barrier()
    tl.store(t_ptr + row + i, tl.load(z_ptr + row + i))


@safe(lambda x: (x * 2, x))
@triton.jit
def atomics_upon_own_stores(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    tl.atomic_add(z_ptr + row + i, x)


@safe(lambda x: (x * 3, x))
@triton.jit
def atomics_upon_atomics(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """In whatever order they come."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, x)
    tl.debug_barrier()
    tl.atomic_add(z_ptr + row + i, x)
    tl.atomic_add(z_ptr + row + (B - 1 - i), tl.load(x_ptr + row + (B - 1 - i)))


@safe(lambda x: (x.flip(1), x))
@triton.jit
def halves_that_do_not_meet(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    row, i, h = tl.program_id(0) * B, tl.arange(0, B), tl.arange(0, B // 2)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + h, tl.load(x_ptr + row + (B - 1 - h)))
    tl.store(z_ptr + row + B // 2 + h, tl.load(x_ptr + row + (B // 2 - 1 - h)))
