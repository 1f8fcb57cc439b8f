"""On a resident grid all programs run at the same time, so that each may wait for any other."""

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib import Guard, audit, trace
from puzzles_lib.auditor.command import main
from puzzles_lib.checker import examine, guarded
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Options, Plan, Recorder
from tests.running import run

P, B = 5, 64


def neighbors(
    x: Float32[Tensor, "P B"], COUNT: int
) -> tuple[Float32[Tensor, "P B"], Float32[Tensor, "P B"], Int32[Tensor, " 2"]]:
    """part = 2 x; z = part plus the part of the next program; COUNT is what the first counter comes to."""
    part = 2 * x
    return part, part + part.roll(-1, 0), torch.tensor([COUNT, 0], dtype=torch.int32)


def puzzle_of(count: int = P, resident: bool = True, P: int = P) -> Puzzle:
    return Puzzle(
        number="0", spec=neighbors, grid=lambda s: (s.P,), outputs=("part", "z", "count"), zeroed=("count",),
        cases=(Case(P=P, B=B, COUNT=count),), resident=resident,
    )  # fmt: skip


@triton.jit
def arrive(count_ptr, P):
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1, sem="release")
    while tl.atomic_add(count_ptr, 0, sem="acquire") < P:
        pass
    tl.debug_barrier()


@triton.jit
def store_part(x_ptr, part_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(part_ptr + i, 2 * tl.load(x_ptr + i))


@triton.jit
def store_sum(part_ptr, z_ptr, P, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    own, other = tl.load(part_ptr + p * B + i), tl.load(part_ptr + (p + 1) % P * B + i)
    tl.store(z_ptr + p * B + i, own + other)


@triton.jit
def barrier(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    store_part(x_ptr, part_ptr, B)
    arrive(count_ptr, P)
    store_sum(part_ptr, z_ptr, P, B)


@triton.jit
def by_compare_and_swap(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    store_part(x_ptr, part_ptr, B)
    tl.debug_barrier()
    seen = tl.atomic_add(count_ptr, 1) + 1
    while seen != P:
        seen = tl.atomic_cas(count_ptr, P, P)
    store_sum(part_ptr, z_ptr, P, B)


@triton.jit
def the_last_one_opens(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    """The counter comes back to 0, and the second element counts the times."""
    store_part(x_ptr, part_ptr, B)
    tl.debug_barrier()
    if tl.atomic_add(count_ptr + 1, 1) == P - 1:
        tl.atomic_xchg(count_ptr + 1, 0)
        tl.atomic_add(count_ptr, P)
    while tl.atomic_add(count_ptr, 0) == 0:
        pass
    store_sum(part_ptr, z_ptr, P, B)


@triton.jit
def twice(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    """z gets the other program's x first, which that one overwrites after the second barrier."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    tl.store(part_ptr + p * B + i, tl.load(x_ptr + p * B + i))
    arrive(count_ptr, P)
    other = tl.load(part_ptr + (p + 1) % P * B + i)
    arrive(count_ptr, 2 * P)
    own = 2 * tl.load(x_ptr + p * B + i)
    tl.store(part_ptr + p * B + i, own)
    tl.store(z_ptr + p * B + i, own + 2 * other)


@triton.jit
def volatile_then_acquired(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    store_part(x_ptr, part_ptr, B)
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1)
    while tl.load(count_ptr, volatile=True) < P:
        pass
    while tl.atomic_add(count_ptr, 0, sem="acquire") < P:
        pass
    tl.debug_barrier()
    store_sum(part_ptr, z_ptr, P, B)


RIGHT = [
    (barrier, P),
    (by_compare_and_swap, P),
    (the_last_one_opens, P),
    (twice, 2 * P),
    (volatile_then_acquired, P),
]


@pytest.mark.parametrize("kernel, count", RIGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_a_barrier_of_all_programs_is_accepted_on_a_resident_grid(kernel, count):
    report = examine(kernel, puzzle_of(count))
    assert report.ok, report


@pytest.mark.parametrize("kernel, count", RIGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_on_another_grid_it_may_wait_for_programs_that_have_not_started(kernel, count):
    report = examine(kernel, puzzle_of(count, resident=False))
    assert report.verdicts[0].kind == "deadlock", report
    assert "Wait only for smaller tickets, taken with tl.atomic_add" in report.verdicts[0].diagnosis
    assert "launch_cooperative_grid=True" in report.verdicts[0].diagnosis


NO_BARRIER = tl.constexpr(1)
RELAXED_ARRIVAL = tl.constexpr(2)
OWN_BLOCK = tl.constexpr(3)
RELAXED_WAIT = tl.constexpr(4)
ONE_TOO_FEW = tl.constexpr(5)
ONE_TOO_MANY = tl.constexpr(6)
VOLATILE = tl.constexpr(7)
PLAIN = tl.constexpr(8)
UNUSED = tl.constexpr(9)
NO_WAIT = tl.constexpr(10)
NEVER_RESET = tl.constexpr(11)
NO_SECOND = tl.constexpr(12)


@triton.jit
def wrong(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr, HOW: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    store_part(x_ptr, part_ptr, B)
    if HOW != NO_BARRIER:
        tl.debug_barrier()
    if HOW == RELAXED_ARRIVAL:
        tl.atomic_add(count_ptr, 1, sem="relaxed")
    elif HOW == OWN_BLOCK:
        tl.atomic_add(count_ptr, 1, scope="cta")
    else:
        tl.atomic_add(count_ptr, 1, sem="release")
    if HOW == RELAXED_WAIT:
        while tl.atomic_add(count_ptr, 0, sem="relaxed") < P:
            pass
    elif HOW == ONE_TOO_FEW:
        while tl.atomic_add(count_ptr, 0) < P - 1:
            pass
    elif HOW == ONE_TOO_MANY:
        while tl.atomic_add(count_ptr, 0) < P + 1:
            pass
    elif HOW == VOLATILE:
        while tl.load(count_ptr, volatile=True) < P:
            pass
    elif HOW == PLAIN:
        while tl.load(count_ptr) < P:
            pass
    elif HOW == UNUSED:
        while tl.load(count_ptr, volatile=True) < P:
            pass
        tl.atomic_add(count_ptr, 0, sem="acquire")
    elif HOW != NO_WAIT:
        while tl.atomic_add(count_ptr, 0) < P:
            pass
    tl.debug_barrier()
    if HOW == NEVER_RESET or HOW == NO_SECOND:
        other = tl.load(part_ptr + (p + 1) % P * B + i)
        if HOW == NEVER_RESET:
            arrive(count_ptr, P)
        own = tl.load(part_ptr + p * B + i)
        tl.store(part_ptr + p * B + i, own + 1)
        tl.store(z_ptr + p * B + i, own + other)
    else:
        store_sum(part_ptr, z_ptr, P, B)


@pytest.mark.parametrize(
    "how, kind, says",
    [
        (NO_BARRIER, "race", "put tl.debug_barrier() between the store and the atomic"),
        (RELAXED_ARRIVAL, "race", """has sem="relaxed", so it doesn't release what program 0 stored"""),
        (OWN_BLOCK, "race", """scope="cta" keeps only one program's threads apart"""),
        (RELAXED_WAIT, "race", """has sem="relaxed", so it doesn't acquire what others released"""),
        (ONE_TOO_FEW, "race", "program 3 reads part[4, 0] before program 4 stores it"),
        (ONE_TOO_MANY, "deadlock", "program 0 waits for count[0], 5, as other programs have left it"),
        (VOLATILE, "race", "doesn't acquire what others released: look with tl.atomic_add(..., 0)"),
        (PLAIN, "deadlock", "a plain load does not wait"),
        (UNUSED, "race", "doesn't acquire what others released"),
        (NO_WAIT, "race", "program 0 must wait until program 1 has stored it"),
        (NEVER_RESET, "race", "wait at a barrier of the grid until program 3 has read it"),
        (NO_SECOND, "race", "wait at a barrier of the grid until program 3 has read it"),
    ],
)
def test_a_wrong_barrier_is_named_for_its_order(how, kind, says):
    report = examine(wrong, with_how(how))
    assert report.verdicts[0].kind == kind and says in str(report), report


def with_how(how: tl.constexpr) -> Puzzle:
    def spec(
        x: Float32[Tensor, "P B"], HOW: int
    ) -> tuple[Float32[Tensor, "P B"], Float32[Tensor, "P B"], Int32[Tensor, " 2"]]:
        again = HOW in (NEVER_RESET.value, NO_SECOND.value)
        part, z, count = neighbors(x, 2 * P if HOW == NEVER_RESET.value else P)
        return part + again, z, count

    return Puzzle(
        number="0", spec=spec, grid=lambda s: (s.P,), outputs=("part", "z", "count"), zeroed=("count",),
        cases=(Case(P=P, B=B, HOW=how.value),), resident=True,
    )  # fmt: skip


@triton.jit
def fast_ones_come_again(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    """The last one sets the counter back. A fast program raises it again before the others have seen that."""
    store_part(x_ptr, part_ptr, B)
    for _ in range(2):
        tl.debug_barrier()
        if tl.atomic_add(count_ptr, 1) == P - 1:
            tl.atomic_xchg(count_ptr, 0)
        else:
            while tl.atomic_add(count_ptr, 0) != 0:
                pass
    store_sum(part_ptr, z_ptr, P, B)


def test_a_barrier_that_is_set_back_too_early_is_a_deadlock():
    report = examine(fast_ones_come_again, puzzle_of(0))
    assert report.verdicts[0].kind == "deadlock", report
    assert "all other programs have ended or wait as well" in str(report)


@triton.jit
def relay(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    """Each program waits for the one after it; the last one for nobody."""
    p = tl.program_id(0)
    store_part(x_ptr, part_ptr, B)
    tl.debug_barrier()
    while tl.atomic_add(count_ptr, 0) != P - 1 - p:
        pass
    tl.debug_barrier()
    if p < P - 1:
        store_sum(part_ptr, z_ptr, P, B)
    else:
        i = tl.arange(0, B)
        own = tl.load(part_ptr + p * B + i)
        tl.store(z_ptr + p * B + i, own + 2 * tl.load(x_ptr + i))
    tl.atomic_add(count_ptr, 1)


def test_programs_may_wait_for_later_ones():
    report = examine(relay, puzzle_of())
    assert report.ok, report
    refused = examine(relay, puzzle_of(resident=False))
    assert "Wait only for smaller tickets" in str(refused)


@triton.jit
def nobody_sets_it(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    while tl.atomic_add(count_ptr + 1, 0) == 0:
        pass
    barrier(x_ptr, part_ptr, z_ptr, count_ptr, P, B)


@pytest.mark.parametrize("resident", [True, False])
def test_a_flag_that_nobody_sets_gets_no_advice_about_tickets(resident):
    report = examine(nobody_sets_it, puzzle_of(resident=resident))
    assert report.verdicts[0].kind == "deadlock" and "ticket" not in str(report)
    assert ("no program changes it" in str(report)) is not resident


def total(
    x: Float32[Tensor, " P"],
) -> tuple[Float32[Tensor, " P"], Float32[Tensor, " 1"], Int32[Tensor, " 1"]]:
    s = x.sum(0, keepdim=True)
    return s.expand(len(x)), s, torch.tensor([len(x)], dtype=torch.int32)


@triton.jit
def adds_and_shares(x_ptr, z_ptr, sum_ptr, count_ptr, P, ATOMIC: tl.constexpr):
    """Each program adds its number to a sum, in one atomic or in two, and all wait for the sum."""
    p = tl.program_id(0)
    x = tl.load(x_ptr + p)
    if ATOMIC:
        tl.atomic_add(sum_ptr, x)
    else:
        old = tl.atomic_add(sum_ptr, 0.0)
        tl.atomic_xchg(sum_ptr, old + x)
    arrive(count_ptr, P)
    tl.store(z_ptr + p, tl.atomic_add(sum_ptr, 0.0))


@pytest.mark.parametrize("atomic", [True, False])
def test_another_program_may_come_between_two_atomics_there_too(atomic):
    def spec(
        x: Float32[Tensor, " P"], ATOMIC: bool
    ) -> tuple[Float32[Tensor, " P"], Float32[Tensor, " 1"], Int32[Tensor, " 1"]]:
        return total(x)

    puzzle = Puzzle(
        number="0", spec=spec, grid=lambda s: (s.P,), outputs=("z", "sum", "count"),
        zeroed=("sum", "count"), cases=(Case(P=6, ATOMIC=atomic),), resident=True,
    )  # fmt: skip
    report = examine(adds_and_shares, puzzle)
    assert report.ok is atomic, report
    assert atomic or "runs while program" in report.verdicts[0].message


def launch(kernel, s, x, part, z, count):
    kernel[(s.P,)](x, part, z, count, s.P, B=s.B, launch_cooperative_grid=True)


def test_a_cooperative_launch_is_a_resident_grid():
    plain = puzzle_of()
    puzzle = Puzzle(
        number="0", spec=neighbors, launch=launch, outputs=plain.outputs, zeroed=plain.zeroed,
        cases=plain.cases,
    )  # fmt: skip
    assert examine(barrier, puzzle).ok
    assert "All programs run at the same time" in str(plain)


@pytest.mark.parametrize("programs, says", [(1024, ""), (4096, "4,096 programs of 4 warps can't run")])
def test_at_true_size_a_program_may_wait_for_those_that_are_left_out(programs, says):
    pretended = Case(P=programs, B=4096, COUNT=0, pretend=True)
    puzzle = Puzzle(
        number="0", spec=neighbors, launch=launch, outputs=("part", "z", "count"), zeroed=("count",),
        cases=(*puzzle_of().cases, pretended),
    )  # fmt: skip
    report = examine(barrier, puzzle)
    assert report.ok is not bool(says) and says in str(report), report


def test_more_programs_than_a_gpu_holds_are_not_resident():
    report = examine(barrier, puzzle_of(2113, P=2113))
    assert "2,113 programs of 4 warps can't run at the same time" in report.verdicts[0].message


def test_a_resident_puzzle_has_no_pretended_cases():
    with pytest.raises(ValueError, match="a puzzle with a resident grid has no pretended cases"):
        Puzzle(
            spec=neighbors, grid=lambda s: (s.P,), outputs=("part", "z", "count"), resident=True,
            cases=(Case(P=1 << 20, B=4096, COUNT=0, pretend=True),),
        )  # fmt: skip


def test_each_access_and_each_step_is_shown_once():
    drawn = trace(barrier, puzzle_of(), case=0)
    stores = [access for access in drawn.accesses if access.kind == "store"]
    assert len(stores) == 2 * P
    recorder = Recorder()
    guarded(barrier, puzzle_of(), puzzle_of().cases[0], Options(recorder=recorder))
    for program in (0, P - 1):
        steps = recorder.recordings[program].steps
        done = [each.access.kind for step in steps for each in step.accesses]
        assert done.count("store") == 2 and done[-3:] == ["load", "load", "store"]


@pytest.mark.parametrize(
    "plan, order",
    [(None, [4, 3, 2, 1, 0]), (Plan(0, 1, 1), [4, 3, 2, 0, 1]), (Plan(0, 3, 2), [4, 2, 1, 0, 3])],
)
def test_those_that_wait_go_on_and_do_all_of_their_work_once(plan, order):
    z, found = torch.zeros(2, dtype=torch.int32), torch.full((P,), -1, dtype=torch.int32)
    done = run(
        meets_and_notes, {"z_ptr": z, "order_ptr": found, "P": P}, (P, 1, 1), ["z_ptr", "order_ptr"],
        zeroed=["z_ptr"], resident=True, plan=plan,
    )  # fmt: skip
    assert done.stop is None and z.tolist() == [P, P] and sorted(found.tolist()) == sorted(order)
    assert found.tolist() == order


@triton.jit
def meets_and_notes(z_ptr, order_ptr, P):
    tl.atomic_add(z_ptr, 1)
    while tl.atomic_add(z_ptr, 0) < P:
        pass
    tl.store(order_ptr + tl.atomic_add(z_ptr + 1, 1), tl.program_id(0))


@triton.jit
def looks_at_all_flags(flag_ptr, z_ptr, WANTED: tl.constexpr, VOLATILE: tl.constexpr):
    flags = flag_ptr + tl.arange(0, 4)
    tl.atomic_xchg(flag_ptr + tl.program_id(0), 1)
    if VOLATILE:
        while tl.sum(tl.load(flags, volatile=True)) < WANTED:
            pass
    else:
        while tl.sum(tl.atomic_add(flags, 0)) < WANTED:
            pass
    tl.store(z_ptr + tl.program_id(0), 1)


@pytest.mark.parametrize("volatile", [False, True])
@pytest.mark.parametrize("wanted", [4, 5])
def test_a_program_may_wait_for_a_block_of_flags(wanted, volatile):
    flags, z = torch.zeros(4, dtype=torch.int32), torch.zeros(4)
    arguments = {"flag_ptr": flags, "z_ptr": z, "WANTED": wanted, "VOLATILE": volatile}
    outputs = ["flag_ptr", "z_ptr"]
    done = run(looks_at_all_flags, arguments, (4, 1, 1), outputs, zeroed=outputs, resident=True)
    if wanted == 4:
        assert done.stop is None and z.tolist() == [1] * 4
    else:
        assert done.stop.kind == "deadlock" and "wait as well" in done.stop.advice


@triton.jit
def everybody_waits_without_a_barrier(x_ptr, part_ptr, z_ptr, count_ptr, P, B: tl.constexpr):
    """The atomics that wait come after a barrier, but nobody needs to see them."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    for turn in range(2):
        tl.store(part_ptr + p * B + i, (turn + 1) * tl.load(x_ptr + p * B + i))
        tl.atomic_add(count_ptr, 1)
        while tl.atomic_add(count_ptr, 0) < (2 * turn + 1) * P:
            pass
        other = tl.load(part_ptr + (p + 1) % P * B + i)
        arrive(count_ptr, (2 * turn + 2) * P)
        tl.store(z_ptr + p * B + i, other + 2 * tl.load(x_ptr + p * B + i))


def test_an_atomic_that_waits_releases_nothing():
    report = examine(everybody_waits_without_a_barrier, puzzle_of(4 * P))
    assert report.verdicts[0].kind == "race", report
    assert "put tl.debug_barrier() between the store and the atomic" in str(report)


@triton.jit
def flag_by_a_plain_store(x_ptr, z_ptr, flag_ptr):
    p = tl.program_id(0)
    if p == 1:
        tl.store(flag_ptr, 1)
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass
    tl.store(z_ptr + p, tl.load(x_ptr + p))


def test_a_plain_store_to_what_others_look_at_is_told_as_such():
    def flagged(x):
        z, flag = torch.empty_like(x), torch.zeros(1, dtype=torch.int32)
        flag_by_a_plain_store[(len(x),)](x, z, flag, launch_cooperative_grid=True)
        return z

    report = audit(flagged, torch.randn(2), guard=Guard(sizes=False))
    assert "program 1 stores to flag_ptr[0], which program 0 looks at with an atomic" in str(report)
    assert "use tl.atomic_xchg instead" in str(report)


def shares(x, kernel=barrier, **options):
    rows, width = x.shape
    part, z, count = torch.empty_like(x), torch.empty_like(x), torch.zeros(2, dtype=torch.int32)
    kernel[(rows,)](x, part, z, count, rows, B=width, **options)
    return z


def reference(x, **options):
    return 2 * (x + x.roll(-1, 0))


def test_an_audit_knows_cooperative_launches_and_is_told_of_others():
    x = torch.randn(P, B)
    assert audit(shares, x, like=reference, launch_cooperative_grid=True).ok
    assert audit(shares, x, like=reference, resident=True).ok
    assert audit(shares, x, guard=Guard(resident=True, sizes=False)).ok
    report = audit(shares, x)
    assert "Wait only for smaller tickets" in str(report)


def rows():
    return (torch.randn(P, B),)


@pytest.mark.parametrize("option, status", [([], 1), (["--resident"], 0)])
def test_the_command_takes_resident(option, status):
    command = [f"{__name__}:shares", "--inputs", f"{__name__}:rows", "--like", f"{__name__}:reference"]
    assert main([*command, *option]) == status


def test_an_audit_says_when_a_resident_grid_is_too_large():
    report = audit(shares, torch.randn(2113, 4), launch_cooperative_grid=True)
    assert "2,113 programs of 4 warps can't run at the same time" in str(report)
