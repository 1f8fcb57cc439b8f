"""Chapter 17's puzzles: their formulas are torch's gradients; and what they ask of the checker."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib import run
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters.ch17_normalisation.puzzles import (
    DW_BY_LOCK,
    LAYER_NORM_DW,
    LINEAR_RECURRENCE,
    layer_norm,
    layer_norm_dw,
    layer_norm_dx,
    linear_recurrence,
    long_layer_norm,
)
from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case, Puzzle

# ---- what the specs say


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


def test_the_formulas_of_backward_are_those_of_autograd():
    x, w, b = normal(7, 20), normal(20), normal(20) + 1
    dy = torch.cos(x) + w
    y, mean, rstd = layer_norm(x, w, b)
    assert torch.allclose(y, torch.nn.functional.layer_norm(x, (20,), w, b, eps=1e-5), rtol=1e-12)
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    dx, dw, db = torch.autograd.grad(layer_norm(*leaves)[0], leaves, dy)
    assert torch.allclose(layer_norm_dx(dy, x, w, mean, rstd), dx, rtol=1e-9)
    made = layer_norm_dw(dy, x, mean, rstd, ROWS=3, BLOCK_N=8)
    assert torch.allclose(made[0], dw) and torch.allclose(made[1], db)
    assert made[2].shape == (3, 20) and torch.allclose(made[2][2], (dy * (x - mean[:, None]))[6] * rstd[6])
    assert made[4].tolist() == [0, 0, 0]
    assert all(map(torch.equal, long_layer_norm(x), (mean, rstd)))


def test_the_recurrence_of_ones_is_a_cumulative_sum():
    x = normal(3, 11)
    h = linear_recurrence(torch.ones_like(x), x, torch.full((3,), 2.0, dtype=x.dtype))
    assert torch.allclose(h, 2 + x.cumsum(1))
    forgets = torch.ones_like(x)
    forgets[:, 4] = 0  # the sum begins anew
    assert torch.allclose(linear_recurrence(forgets, x, x[:, 0])[:, 4:], x[:, 4:].cumsum(1))


@triton.jit
def step_by_step(a_ptr, x_ptr, start_ptr, h_ptr, T, BLOCK_T: tl.constexpr):
    m = tl.program_id(0)
    row = m.to(tl.int64) * T
    h = tl.load(start_ptr + m)
    for t in range(0, T):
        h = tl.load(a_ptr + row + t) * h + tl.load(x_ptr + row + t)
        tl.store(h_ptr + row + t, h)


def test_a_recurrence_without_a_scan_misses_its_goal():
    """Its values are right, and in time: only the machine code shows that one thread works alone."""
    report = examine(step_by_step, LINEAR_RECURRENCE)
    assert [verdict.kind for verdict in report.verdicts] == ["machine"], report
    assert "loads of 16 bytes in a thread's program: 0" in str(report)


# ---- results that begin as zeros


def test_the_statement_says_what_holds_zeros_and_whose_bits_count():
    assert (
        "count_ptr contains zeros" in str(LAYER_NORM_DW) and "bit for bit" in LAYER_NORM_DW._repr_markdown_()
    )
    assert "dw_ptr, db_ptr and lock_ptr contain zeros" in DW_BY_LOCK._repr_markdown_()


@pytest.mark.parametrize("field", ["zeroed", "locks"])
def test_what_is_no_output_cannot_begin_as_zero_or_be_a_lock(field):
    with pytest.raises(ValueError, match=f"{field} names \\['z'\\], which are not outputs"):
        dataclasses.replace(DW_BY_LOCK, **{field: ("z",)})


def test_the_kernels_run_on_tensors_of_ones_own():
    dy, xhat = torch.ones(10, 5).bfloat16(), torch.full((10, 5), 2.0).bfloat16()
    sizes = {"ROWS": 3, "BLOCK_M": 2, "BLOCK_N": 4}
    dw, db, lock = run(solutions()["dw_by_lock"], DW_BY_LOCK, dy=dy, xhat=xhat, **sizes)
    assert dw.tolist() == [20] * 5 and db.tolist() == [10] * 5 and lock.tolist() == [0, 0]


def total(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, "1"], Int32[Tensor, "1"]]:
    return x.sum(0, keepdim=True), torch.zeros(1, dtype=torch.int32)


TOTAL = Puzzle(
    number="0",
    spec=total,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    outputs=("z", "flag"),
    zeroed=("z", "flag"),
    cases=(Case(N=50, BLOCK=8),),
)


@triton.jit
def added(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(z_ptr, tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0)))


@triton.jit
def only_flagged(x_ptr, flag_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(flag_ptr, (tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0)) > 1e9).to(tl.int32))


def test_what_begins_and_ends_as_zero_need_not_be_taken():
    report = examine(added, TOTAL)
    assert report.ok, report


def test_what_ends_as_something_else_must_be():
    text = str(examine(only_flagged, TOTAL))
    assert "z is never written: the kernel has no parameter z_ptr" in text


def test_a_sum_whose_order_is_open_has_other_bits():
    """It is right, in both orders: only who wants the same bits refuses it."""
    text = str(examine(added, dataclasses.replace(TOTAL, same_bits=True)))
    assert "race: when the programs run in reverse order, z[0] gets different bits: " in text


# ---- locks


@triton.jit
def locked(x_ptr, z_ptr, flag_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0))
    while tl.atomic_cas(flag_ptr, 0, 1) == 1:
        pass
    tl.store(z_ptr, tl.load(z_ptr) + own)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr, 0)


@triton.jit
def tried_twice(x_ptr, z_ptr, flag_ptr, N, BLOCK: tl.constexpr):
    """One after the other nobody ever finds the lock taken, so this is seen with another one holding it."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0))
    if tl.atomic_cas(flag_ptr, 0, 1) == 1:
        tl.atomic_cas(flag_ptr, 0, 1)
    tl.store(z_ptr, tl.load(z_ptr) + own)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr, 0)


@triton.jit
def given_up(x_ptr, z_ptr, flag_ptr, N, BLOCK: tl.constexpr):
    """Right one after the other, and in reverse; side by side a part is lost, and no store is at fault."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0))
    if tl.atomic_cas(flag_ptr, 0, 1) == 0:
        tl.store(z_ptr, tl.load(z_ptr) + own)
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr, 0)


@triton.jit
def added_where_locked_out(x_ptr, z_ptr, flag_ptr, N, BLOCK: tl.constexpr):
    """Nobody's part is lost: who finds the lock held adds without it, in one step."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0))
    if tl.atomic_cas(flag_ptr, 0, 1) == 0:
        tl.atomic_add(z_ptr, own)
        tl.atomic_xchg(flag_ptr, 0)
    else:
        tl.atomic_add(z_ptr, own)


@triton.jit
def never_taken(x_ptr, z_ptr, flag_ptr, N, BLOCK: tl.constexpr):
    """Waits for the lock to be free, and leaves it so."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0))
    while tl.atomic_cas(flag_ptr, 0, 0) == 1:
        pass
    tl.store(z_ptr, tl.load(z_ptr) + own)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr, 0)


def test_without_a_lock_of_the_puzzle_the_lost_part_is_told_by_the_atomics_around_it():
    for kernel in (never_taken, tried_twice, given_up):
        (verdict,) = examine(kernel, TOTAL).verdicts
        assert verdict.kind == "race" and "hold a lock during the whole update" in verdict.diagnosis
        assert "race: if program 1 runs while program 0 is between its atomics at lines " in verdict.message


def test_who_does_not_take_a_lock_is_found_out():
    text = str(examine(never_taken, dataclasses.replace(TOTAL, locks=("flag",))))
    assert "program 0 stores to z[0] while the flag is not held: others may store as well" in text


def test_who_does_not_wait_for_a_lock_is_found_out():
    puzzle = dataclasses.replace(TOTAL, locks=("flag",))
    assert examine(locked, puzzle).ok and examine(added, puzzle).ok
    text = str(examine(tried_twice, puzzle))
    assert "race: if another program holds the flag, program 0 stores to z[0] anyway" in text
    assert "a program must wait until it can change it from 0 to 1" in text


def test_who_gives_up_where_a_lock_is_held_is_found_out():
    puzzle = dataclasses.replace(TOTAL, locks=("flag",))
    assert examine(added_where_locked_out, puzzle).ok
    text = str(examine(given_up, puzzle))
    assert "race: if another program holds the flag, program 0 gives up: its part of z[0] is missing" in text
    assert "a program must wait until it can change it from 0 to 1" in text and "if tl.atomic_cas" in text
