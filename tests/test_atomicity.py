"""Two atomics are not one: another program may run between them, and the checker lets one."""

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Plan
from tests.running import run


def total(x: Float32[Tensor, " N"]) -> Float32[Tensor, " 1"]:
    return x.sum(0, keepdim=True)


def largest(x: Float32[Tensor, " N"]) -> Float32[Tensor, " 1"]:
    return torch.clamp(x.max(0, keepdim=True).values, min=0)


CASES = (Case(N=64, BLOCK=16), Case(N=100, BLOCK=32))


def puzzle_of(spec) -> Puzzle:
    return Puzzle(
        number="0", spec=spec, grid=lambda s: (triton.cdiv(s.N, s.BLOCK),), cases=CASES, zeroed=("z",)
    )


@triton.jit
def part(x_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return tl.load(x_ptr + i, mask=i < N, other=0.0)


@triton.jit
def read_then_exchange(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    s = tl.sum(part(x_ptr, N, BLOCK))
    old = tl.atomic_add(z_ptr, 0.0)
    tl.atomic_xchg(z_ptr, old + s)


@triton.jit
def compare_and_swap_once(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    s = tl.sum(part(x_ptr, N, BLOCK))
    old = tl.atomic_add(z_ptr, 0.0)
    tl.atomic_cas(z_ptr, old, old + s)


@triton.jit
def compare_and_swap_in_a_loop(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    s = tl.sum(part(x_ptr, N, BLOCK))
    old = tl.atomic_add(z_ptr, 0.0)
    now = tl.atomic_cas(z_ptr, old, old + s)
    while now != old:
        old = now
        now = tl.atomic_cas(z_ptr, old, old + s)


@triton.jit
def maximum_then_exchange(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    s = tl.max(part(x_ptr, N, BLOCK), 0)
    if s > tl.atomic_max(z_ptr, 0.0):
        tl.atomic_xchg(z_ptr, s)


@triton.jit
def maximum(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    tl.atomic_max(z_ptr, tl.max(part(x_ptr, N, BLOCK), 0))


@triton.jit
def first_sets_others_add(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    s = tl.sum(part(x_ptr, N, BLOCK))
    if tl.atomic_add(z_ptr, 0.0) == 0:
        tl.atomic_xchg(z_ptr, s)
    else:
        tl.atomic_add(z_ptr, s)


def in_groups(x: Float32[Tensor, " N"]) -> Float32[Tensor, " 7"]:
    return x.reshape(-1, 7).sum(0)


@triton.jit
def far_programs_meet(x_ptr, z_ptr):
    g = tl.program_id(0) % 7
    old = tl.atomic_add(z_ptr + g, 0.0)
    tl.atomic_xchg(z_ptr + g, old + tl.load(x_ptr + tl.program_id(0)))


def seven_times(x: Float32[Tensor, " N"]) -> Float32[Tensor, " 7"]:
    return x.sum().expand(7)


@triton.jit
def late_atomics_meet(x_ptr, z_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    for g in range(6):
        tl.atomic_add(z_ptr + g, x)
    old = tl.atomic_add(z_ptr + 6, 0.0)
    tl.atomic_xchg(z_ptr + 6, old + x)


@pytest.mark.parametrize("kernel, spec", [(far_programs_meet, in_groups), (late_atomics_meet, seven_times)])
def test_programs_that_meet_at_an_element_take_turns_there(kernel, spec):
    puzzle = Puzzle(number="0", spec=spec, grid=lambda s: (s.N,), cases=(Case(N=21),), zeroed=("z",))
    assert "runs while program" in str(examine(kernel, puzzle))


def running_sum(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Int32[Tensor, " N"]]:
    return x.cumsum(0), torch.ones(len(x), dtype=torch.int32)


@triton.jit
def look_back(x_ptr, z_ptr, done_ptr):
    p = tl.program_id(0)
    before = 0.0
    if p > 0:
        while tl.atomic_add(done_ptr + p - 1, 0) == 0:
            pass
        before = tl.load(z_ptr + p - 1)
    tl.store(z_ptr + p, before + tl.load(x_ptr + p))
    tl.debug_barrier()
    tl.atomic_xchg(done_ptr + p, 1)


def test_a_first_program_with_one_atomic_is_never_between_two():
    puzzle = Puzzle(
        number="0", spec=running_sum, grid=lambda s: (s.N,), cases=(Case(N=5),), zeroed=("z", "done"),
        outputs=("z", "done"),
    )  # fmt: skip
    report = examine(look_back, puzzle)
    assert report.ok, report


@pytest.mark.parametrize(
    "kernel, spec",
    [
        (read_then_exchange, total),
        (compare_and_swap_once, total),
        (maximum_then_exchange, largest),
        (first_sets_others_add, total),
    ],
)
def test_a_lost_update_between_two_atomics_is_a_race(kernel, spec):
    report = examine(kernel, puzzle_of(spec))
    verdict = report.verdicts[0]
    assert verdict.kind == "race" and "runs while program" in verdict.message, report
    assert "make the update with one atomic" in str(report)


@pytest.mark.parametrize("kernel, spec", [(compare_and_swap_in_a_loop, total), (maximum, largest)])
def test_what_no_program_can_come_between_passes(kernel, spec):
    report = examine(kernel, puzzle_of(spec))
    assert report.ok, report


@triton.jit
def ticket(z_ptr, order_ptr):
    mine = tl.atomic_add(z_ptr, 1)
    tl.atomic_add(z_ptr + 1, 10)
    tl.store(order_ptr + mine, tl.program_id(0))


@pytest.mark.parametrize(
    "plan, order",
    [
        (None, [0, 1, 2]),
        (Plan(0, 1, 1), [1, 0, 2]),  # all of 1 before the first atomic of 0
        (Plan(0, 1, 2), [0, 1, 2]),
        (Plan(0, 2, 1), [2, 0, 1]),
        (Plan(1, 0, 1), [0, 1, 2]),
        (Plan(0, 1, 1, 2), [1, 0, 2]),  # 1 takes its number, stops, and goes on after 0
        (Plan(0, 1, 9), [0, 1, 2]),  # there is no ninth
    ],
)
def test_programs_take_turns_by_a_plan_and_each_does_all_of_its_work_once(plan, order):
    z, found = torch.zeros(2, dtype=torch.int32), torch.full((3,), -1, dtype=torch.int32)
    options = {} if plan is None else {"plan": plan}
    done = run(
        ticket,
        {"z_ptr": z, "order_ptr": found},
        (3, 1, 1),
        ["z_ptr", "order_ptr"],
        zeroed=["z_ptr"],
        **options,
    )
    assert done.stop is None and z.tolist() == [3, 30] and found.tolist() == order


@triton.jit
def lets_the_other_one_do_it(flag_ptr, z_ptr):
    """Each program leaves the work to the other one if that has raised its flag."""
    p = tl.program_id(0)
    tl.atomic_xchg(flag_ptr + p, 1)
    if tl.atomic_add(flag_ptr + 1 - p, 0) == 0:
        tl.atomic_xchg(z_ptr, 1)
    tl.atomic_xchg(flag_ptr + p, 0)


def done(x: Int32[Tensor, " P"]) -> tuple[Int32[Tensor, " P"], Int32[Tensor, "1"]]:
    return torch.zeros_like(x), x.new_ones(1)


def test_both_programs_are_interrupted():
    """If one of them runs to its end, the other one finds its flag lowered, and does the work."""
    puzzle = Puzzle(
        number="0", spec=done, grid=lambda s: (s.P,), outputs=("flag", "z"), zeroed=("flag", "z"),
        cases=(Case(P=2),),
    )  # fmt: skip
    (verdict,) = examine(lets_the_other_one_do_it, puzzle).verdicts
    assert verdict.kind == "race" and "between" in verdict.message, verdict


@triton.jit
def takes_the_second_for_number_1(count_ptr, z_ptr):
    p = tl.program_id(0)
    tl.store(z_ptr + p, (tl.atomic_add(count_ptr, 1) == 1).to(tl.int32))


def ones_at_1(x: Int32[Tensor, " P"]) -> tuple[Int32[Tensor, "1"], Int32[Tensor, " P"]]:
    return x.new_full((1,), len(x)), (torch.arange(len(x)) == 1).to(x.dtype)


def test_programs_also_run_from_the_middle_on():
    """The middle one of three is the second from both ends."""
    puzzle = Puzzle(
        number="0", spec=ones_at_1, grid=lambda s: (s.P,), outputs=("count", "z"), zeroed=("count",),
        cases=(Case(P=3),),
    )  # fmt: skip
    (verdict,) = examine(takes_the_second_for_number_1, puzzle).verdicts
    assert "in another order, program 1 first" in f"{verdict.message} {verdict.diagnosis}", verdict
