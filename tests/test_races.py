"""Races within a program, and between programs: what orders two accesses to an element."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib import Guard, audit, check, versions
from puzzles_lib.checker import examine, races
from puzzles_lib.compiler import build, find_target, gpu_dialect, memory_accesses, translate
from puzzles_lib.compiler.threads import _uniquely_named, _users
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Recorder
from puzzles_lib.runner.ordering import Ordering
from puzzles_lib.source import Refusal, Site
from tests import cures, running
from tests.racing import RACING, Racing

RACY = [each for each in RACING if each.is_racy]
Rows = Int32[Tensor, "P B"]


def puzzle_of(racing: Racing, cured: bool) -> Puzzle:
    def spec(x):
        return racing.expected(x)

    spec.__name__ = racing.name
    spec.__annotations__ = {"x": Rows, "return": tuple[Rows, Rows]}
    case = Case(P=2, B=256, CURED=int(cured), fill={"x": no_two_equal})
    return Puzzle(number="0", spec=spec, grid=lambda s: (s.P,), outputs=("z", "t"), cases=(case,))


def no_two_equal(shape, dtype, generator):
    return torch.stack([torch.randperm(shape[1], generator=generator) for _ in range(shape[0])]).to(dtype)


# ---- within a program


@pytest.mark.parametrize("racing", RACY, ids=lambda r: r.name)
def test_two_threads_that_meet_are_a_race(racing):
    report = examine(racing.kernel, puzzle_of(racing, cured=False))
    assert [v.kind for v in report.verdicts] == ["race"], report
    text = str(report)
    assert "within program " in text and "tl.debug_barrier()" in text and len(text.splitlines()) <= 12, text


@pytest.mark.parametrize("racing", RACING, ids=lambda r: r.name)
def test_with_its_barriers_it_passes(racing):
    report = examine(racing.kernel, puzzle_of(racing, cured=True))
    assert report.ok, report


def test_a_race_ranks_above_wrong_values():
    racing = RACY[0]
    other = dataclasses.replace(racing, expected=lambda x: tuple(each + 1 for each in racing.expected(x)))
    report = examine(racing.kernel, puzzle_of(other, cured=False))
    assert [v.kind for v in report.verdicts] == ["race"], report


def test_there_are_enough_of_them():
    assert len(RACY) >= 25 and len(RACING) - len(RACY) >= 15


def test_the_lines_the_threads_and_the_cure_are_named():
    racing = next(each for each in RACY if each.name == "reversed_through_scratch")
    text = str(examine(racing.kernel, puzzle_of(racing, cured=False)))
    assert "t[0, 255] is stored at line" in text and "by lane 31 of warp 3, then loaded at line" in text
    assert "by lane 0 of warp 0" in text and "(sm_90, 4 warps)" in text
    assert "line 61: tl.store(z_ptr + row + i, tl.load(t_ptr + row + (B - 1 - i)))" in text


@triton.jit
def one_warp(x_ptr, z_ptr, t_ptr, B: tl.constexpr, CURED: tl.constexpr):
    """Each 2 of 4 warps have the 64 lanes; the first warp's are stored, all are loaded and summed."""
    row, i = tl.program_id(0) * B, tl.arange(0, B)
    x = tl.load(x_ptr + row + i)
    tl.store(t_ptr + row + i, x)
    tl.store(z_ptr + row + i, tl.load(t_ptr + row + i)[None, :].broadcast_to(2, B).max(0))


def test_a_kernel_that_is_right_with_one_warp_only_is_told_so():
    racing = Racing(one_warp, lambda x: (x, x), True)
    puzzle = dataclasses.replace(puzzle_of(racing, False), cases=(Case(P=2, B=64, CURED=0),))
    assert "with num_warps=1 it would be correct" in str(examine(one_warp, puzzle))


@pytest.mark.parametrize("num_warps", [8, 16])
def test_a_configuration_is_judged_with_its_own_warps(num_warps):
    tuned = triton.autotune([triton.Config({}, num_warps=num_warps)], key=[])(one_warp)
    racing = Racing(one_warp, lambda x: (x, x), True)
    puzzle = dataclasses.replace(puzzle_of(racing, False), cases=(Case(P=2, B=64, CURED=0),))
    assert f"(sm_90, {num_warps} warps; with num_warps=1 it" in str(examine(tuned, puzzle))


def test_the_warps_of_a_launch_may_be_given():
    racing = Racing(one_warp, lambda x: (x, x), True)
    puzzle = dataclasses.replace(puzzle_of(racing, False), cases=(Case(P=2, B=64, CURED=0),))
    assert check(one_warp, puzzle, num_warps=1).ok
    assert "(sm_90, 8 warps; with num_warps=1 it" in str(check(one_warp, puzzle, num_warps=8))
    tuned = triton.autotune([triton.Config({}, num_warps=1)], key=[])(one_warp)
    assert check(tuned, puzzle).ok
    assert "num_warps=1 is given, but triton.autotune" in str(check(tuned, puzzle, num_warps=1))
    for wrong in (3, 64, True, "4"):
        with pytest.raises(
            ValueError, match=f"num_warps must be one of 1, 2, 4, 8, 16, 32 or None, but is {wrong!r}"
        ):
            check(one_warp, puzzle, num_warps=wrong)


def test_where_no_thread_is_known_a_lane_is_one(monkeypatch):
    monkeypatch.setattr(races, "held_by", lambda *_: Refusal("does not compile so far"))
    for racing in RACING[:1]:
        text = str(examine(racing.kernel, puzzle_of(racing, cured=False)))
        assert (
            "stored at line 58 by lane 255 of the block, then loaded at line 61 by lane 0 of the block"
            in text
        )
    own = next(each for each in RACING if each.name == "each_thread_its_own")
    assert examine(own.kernel, puzzle_of(own, cured=False)).ok


# ---- between programs: by what an atomic releases and acquires


@triton.jit
def last_one_adds_up(t_ptr, count_ptr, z_ptr, SEM: tl.constexpr, SCOPE: tl.constexpr, BARRIER: tl.constexpr):
    """Each program leaves a row; the last to raise the counter adds all rows up (split-K in one launch)."""
    i = tl.arange(0, 64)
    tl.store(t_ptr + tl.program_id(0) * 64 + i, i)
    if BARRIER:
        tl.debug_barrier()
    before = tl.atomic_add(count_ptr, 1, sem=SEM, scope=SCOPE)
    if before == tl.num_programs(0) - 1:
        total = tl.zeros((64,), tl.int32)
        for row in range(tl.num_programs(0)):
            total += tl.load(t_ptr + row * 64 + i)
        tl.store(z_ptr + i, total)


def conflict_of(**options):
    arguments = {
        "t_ptr": torch.zeros(4, 64, dtype=torch.int32),
        "count_ptr": torch.zeros(1, dtype=torch.int32),
        "z_ptr": torch.zeros(64, dtype=torch.int32),
    }
    ran = running.run(last_one_adds_up, arguments | options, (4, 1, 1), set(arguments))
    assert ran.stop is None and torch.equal(ran.outputs["z"], 4 * torch.arange(64, dtype=torch.int32))
    return ran.conflict


def test_an_atomic_after_a_barrier_orders_programs():
    assert conflict_of(SEM="acq_rel", SCOPE="gpu", BARRIER=True) is None


@pytest.mark.parametrize(
    "sem, scope, barrier",
    [("acq_rel", "gpu", False), ("relaxed", "gpu", True), ("acquire", "gpu", True), ("acq_rel", "cta", True)],
)
def test_less_than_that_does_not(sem, scope, barrier):
    conflict = conflict_of(SEM=sem, SCOPE=scope, BARRIER=barrier)
    assert conflict is not None
    found = conflict.kind, conflict.argument
    assert found == (("scope", "count") if scope == "cta" else ("read", "t"))


@triton.jit
def added_under_a_lock(x_ptr, lock_ptr, z_ptr, BARRIER: tl.constexpr):
    """As layer norm's backward adds up the gradients of its weights."""
    i = tl.arange(0, 64)
    x = tl.load(x_ptr + tl.program_id(0) * 64 + i)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(z_ptr + i, tl.load(z_ptr + i) + x)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@pytest.mark.parametrize("barrier", [True, False])
def test_a_lock_is_given_back_after_a_barrier(barrier):
    arguments = {
        "x_ptr": torch.ones(4, 64),
        "lock_ptr": torch.zeros(1, dtype=torch.int32),
        "z_ptr": torch.zeros(64),
        "BARRIER": barrier,
    }
    ran = running.run(added_under_a_lock, arguments, (4, 1, 1), {"lock_ptr", "z_ptr"})
    assert ran.stop is None and (ran.outputs["z"] == 4).all()
    assert (ran.conflict is None) is barrier


# ---- waiting for what nobody will do


@triton.jit
def takes_turns(lock_ptr, z_ptr, HOW: tl.constexpr):
    """Each program raises z[0], under a lock, or in the order of their numbers."""
    if HOW == "in order":
        while tl.load(lock_ptr, volatile=True) != tl.program_id(0):
            pass
    else:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
        if HOW == "taken twice":
            while tl.atomic_cas(lock_ptr, 0, 1) == 1:
                pass
    tl.store(z_ptr, tl.load(z_ptr) + 1)
    tl.debug_barrier()
    if HOW == "in order":
        tl.atomic_add(lock_ptr, 1)
    elif HOW != "kept":
        tl.atomic_xchg(lock_ptr, 0)


@pytest.mark.parametrize(
    "how, reverse, message",
    [
        ("kept", False, "program (1, 0, 0) waits for lock[0], 1, as program (0, 0, 0) has left it"),
        ("taken twice", False, "program (0, 0, 0) waits for lock[0], 1, as it has itself left it"),
        ("in order", True, "program (2, 0, 0) waits for lock[0], 0, which nobody has changed"),
        ("in order", False, ""),
        ("given back", True, ""),
    ],
)
def test_who_waits_forever_is_told_so_at_once(how, reverse, message):
    arguments = {"lock_ptr": torch.zeros(1, dtype=torch.int32), "z_ptr": torch.zeros(1), "HOW": how}
    outputs = {"lock_ptr", "z_ptr"}
    ran = running.run(takes_turns, arguments, (3, 1, 1), outputs, zeroed=outputs, reverse=reverse)
    if message:
        assert ran.stop.kind == "deadlock" and ran.stop.message == f"deadlock: {message}"
        assert ran.stop.site.source.startswith("while tl.")
        cure = (
            "release the lock: tl.atomic_xchg(lock_ptr, 0)"
            if "left it" in message
            else "wait only for programs with a smaller id"
        )
        assert cure in ran.stop.advice
    else:
        assert ran.stop is None and ran.outputs["z"].item() == 3


@triton.jit
def is_set(flag_ptr):
    return tl.load(flag_ptr) != 0


@triton.jit
def waits_by_plain_loads(flag_ptr, z_ptr, HOW: tl.constexpr):
    """Program 1 waits until program 0 has set four flags, or program 0 sets them after a while."""
    n = 0
    if HOW == "counts late":
        while tl.load(flag_ptr) == 0:
            n += 1
            if n == 1000:
                tl.store(flag_ptr, 1)
    elif tl.program_id(0) == 0:
        tl.store(flag_ptr + tl.arange(0, 4), 1)
    elif HOW == "alone":
        while tl.load(flag_ptr) == 0:
            pass
    elif HOW == "counts":
        seen = tl.load(flag_ptr)
        while seen == 0:
            n += 1
            seen = tl.load(flag_ptr)
    elif HOW == "helper":
        while not is_set(flag_ptr):
            n += 1
    elif HOW == "block":
        while tl.sum(tl.load(flag_ptr + tl.arange(0, 4))) < 4:
            n += 1
    elif HOW == "volatile":
        while tl.load(flag_ptr, volatile=True) == 0:
            n += 1
    elif HOW == "atomic":
        while tl.atomic_add(flag_ptr, 0) == 0:
            n += 1
    tl.store(z_ptr, n)


def waited(how, **options):
    arguments = {"flag_ptr": torch.zeros(4, dtype=torch.int32), "z_ptr": torch.zeros(1), "HOW": how}
    outputs = {"flag_ptr", "z_ptr"}
    return running.run(waits_by_plain_loads, arguments, (2, 1, 1), outputs, zeroed=outputs, **options)


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("how", ["alone", "counts", "helper", "block", "volatile", "atomic"])
def test_who_waits_by_loads_is_told_so_as_well(how, record):
    recorder = Recorder() if record else None
    ran = waited(how, reverse=True, seconds=60, record=record, recorder=recorder)
    assert ran.stop.kind == "deadlock" and "load" in ran.stop.site.source or how == "atomic"
    assert ran.stop.message == "deadlock: program (1, 0, 0) waits for flag[0], 0, which nobody has changed"
    assert ("a plain load does not wait" in ran.stop.advice) is (how not in ("volatile", "atomic"))
    smaller = "wait only for programs with a smaller id" in ran.stop.advice
    assert smaller is (how in ("volatile", "atomic"))
    assert waited(how).stop is None  # in this order the flags are there


def test_a_loop_that_sets_what_it_waits_for_goes_on():
    ran = waited("counts late")
    assert ran.stop is None and ran.outputs["z"].item() == 0  # of the second program, which finds it set


def test_a_loop_of_plain_loads_is_left_out_by_the_compiler():
    arguments = {"flag_ptr": torch.zeros(4, dtype=torch.int32), "z_ptr": torch.zeros(1)}
    for how, is_kept in (("alone", False), ("counts", True), ("atomic", True)):
        told = gpu_dialect(waits_by_plain_loads, arguments | {"HOW": how}, find_target("sm_90"), num_warps=4)
        assert ("scf.while" in str(told)) is is_kept


def test_the_race_of_a_loop_of_plain_loads_says_what_to_do():
    puzzle = Puzzle(
        number="0", spec=turns, grid=lambda s: (s.P,), outputs=("lock", "z"), zeroed=("lock", "z"),
        cases=(Case(P=2, HOW=0),),
    )  # fmt: skip
    (verdict,) = examine(waits_for_the_first, puzzle).verdicts
    assert verdict.kind == "race" and "reads lock[0], which program 0 wrote" in verdict.message
    assert verdict.diagnosis.endswith("use tl.atomic_add(lock_ptr, 0)")


@triton.jit
def waits_for_the_first(lock_ptr, z_ptr):
    if tl.program_id(0) == 0:
        tl.store(lock_ptr, 2)
        tl.store(z_ptr, 2)
    else:
        while tl.load(lock_ptr) == 0:
            pass


def turns(x: Int32[Tensor, " P"]) -> tuple[Int32[Tensor, "1"], Int32[Tensor, "1"]]:
    return x.new_full((1,), len(x)), x.new_full((1,), len(x))


def test_who_waits_for_those_before_it_may_do_so():
    """GPUs start programs by their numbers. In reverse order, those that wait go on later."""
    puzzle = Puzzle(
        number="0", spec=turns, grid=lambda s: (s.P,), outputs=("lock", "z"), zeroed=("lock", "z"),
        cases=(Case(P=3, HOW=0), Case(P=40, HOW=0)),
    )  # fmt: skip
    report = examine(in_the_order_of_their_numbers, puzzle)
    assert report.ok, report


@triton.jit
def in_the_order_of_their_numbers(lock_ptr, z_ptr):
    while tl.atomic_add(lock_ptr, 0) != tl.program_id(0):
        pass
    tl.store(z_ptr, tl.load(z_ptr) + 1)
    tl.debug_barrier()
    tl.atomic_add(lock_ptr, 1)


@triton.jit
def stores_and_tells(
    x_ptr, part_ptr, flag_ptr, z_ptr, P: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr
):
    """The last program, or the first, adds up what the others have stored and told it of by a flag."""
    p = tl.program_id(0)
    i = p * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(x_ptr + i)
    if HOW == 4:
        waits = p == 0
    else:
        waits = p == P - 1
    if not waits:
        if HOW == 1:
            tl.atomic_xchg(flag_ptr + p, 1, sem="release")
        tl.store(part_ptr + i, s)
        if HOW != 2:
            tl.debug_barrier()
        if HOW != 1:
            tl.atomic_xchg(flag_ptr + p, 1, sem="relaxed" if HOW == 3 else "release")
    else:
        for k in range(P):
            if k != p:
                while tl.atomic_cas(flag_ptr + k, 1, 1, sem="acquire") != 1:
                    pass
                s += tl.load(part_ptr + k * BLOCK + tl.arange(0, BLOCK))
        tl.store(z_ptr + tl.arange(0, BLOCK), s)
        tl.store(part_ptr + i, 0.0)
        tl.atomic_xchg(flag_ptr + p, 2)


def told(
    x: Float32[Tensor, "P BLOCK"], HOW: int
) -> tuple[Float32[Tensor, "P BLOCK"], Int32[Tensor, " P"], Float32[Tensor, " BLOCK"]]:
    waits = 0 if HOW == 4 else len(x) - 1
    part, flag = x.clone(), torch.ones(len(x), dtype=torch.int32)
    part[waits], flag[waits] = 0, 2
    return part, flag, x.sum(0)


@pytest.mark.parametrize(
    "how, kind, says",
    [
        (0, None, ""),
        (1, "race", "program 0 stores it after the atomic that program 3 waits for: store first"),
        (2, "race", "put tl.debug_barrier() between the store and the atomic"),
        (3, "race", """has sem="relaxed", so it doesn't release what program 0 stored"""),
        (4, "deadlock", "Wait only for smaller tickets, taken with tl.atomic_add"),
    ],
    ids=["right", "flag first", "no barrier", "relaxed", "waits for later ones"],
)
def test_waiting_for_a_flag(how, kind, says):
    puzzle = Puzzle(
        number="0", spec=told, grid=lambda s: (s.P,), outputs=("part", "flag", "z"), zeroed=("flag",),
        cases=(Case(P=4, BLOCK=128, HOW=how),),
    )  # fmt: skip
    report = examine(stores_and_tells, puzzle)
    assert [verdict.kind for verdict in report.verdicts] == ([kind] if kind else []), report
    assert says in str(report)


@triton.jit
def two_flags(flag_ptr, z_ptr, CROSSED: tl.constexpr):
    """Two programs wait for each other: each sets a flag, then waits for the other one's."""
    p = tl.program_id(0)
    if not CROSSED:
        tl.atomic_xchg(flag_ptr + p, 1)
    while tl.atomic_add(flag_ptr + 1 - p, 0) == 0:
        pass
    if CROSSED:
        tl.atomic_xchg(flag_ptr + p, 1)
    tl.store(z_ptr + p, p)


@pytest.mark.parametrize("crossed", [True, False])
def test_those_who_wait_go_on_or_end_the_run(crossed):
    arguments = {
        "flag_ptr": torch.zeros(2, dtype=torch.int32),
        "z_ptr": torch.zeros(2, dtype=torch.int32),
        "CROSSED": crossed,
    }
    ran = running.run(two_flags, arguments, (2, 1, 1), {"flag_ptr", "z_ptr"}, zeroed={"flag_ptr"}, waits=True)
    assert (ran.stop is not None) is crossed
    if crossed:
        assert ran.stop.kind == "deadlock" and "which nobody has changed" in ran.stop.message
    else:
        assert ran.outputs["z"].tolist() == [0, 1]


# ---- what the compiler says


def accesses_of(kernel, target="sm_90", num_warps=4, **arguments):
    return memory_accesses(gpu_dialect(kernel, arguments, find_target(target), num_warps=num_warps))


def test_which_thread_holds_each_element():
    x = torch.empty(0, dtype=torch.int32)
    names = {"x_ptr": x, "z_ptr": x, "t_ptr": x, "B": 1024, "CURED": False}
    load, stored, back, last = accesses_of(RACING[0].kernel, **names)
    assert [a.kind for a in (load, stored, back, last)] == ["load", "store", "load", "store"]
    threads = stored.threads()  # each has 4 neighbours, twice
    assert threads.shape == (1024,) and threads[:12].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert threads[512] == 0 and threads.max() == 127 and not stored.is_held_by_several()
    assert (back.threads() == threads).all()  # the same lanes, but those of other elements


def test_one_element_is_loaded_by_all_and_stored_by_the_first():
    x = torch.empty(0, dtype=torch.int32)
    kernel = next(each for each in RACING if each.name == "one_thread_keeps_a_total").kernel
    accesses = accesses_of(kernel, x_ptr=x, z_ptr=x, t_ptr=x, B=64, CURED=False)
    single = [a for a in accesses if a.shape == ()]
    assert {a.kind for a in single} == {"load", "store"} and all(a.threads() == 0 for a in single)
    assert all(a.alone and not a.holders().several for a in single if a.kind == "load")


TWO_LOOPS = """\
tt.func public @k(%x: !tt.ptr<f32>) {
  %n:2 = scf.for %i = %a to %b step %c iter_args(%e = %y, %f = %n) -> (f32, f32) : i32 {
    %v = tt.load %x : !tt.ptr<f32>
    %w = arith.addf %v, %e : f32
    scf.yield %w, %f : f32, f32
  }
  scf.for %i = %a to %b step %c : i32 {
    %v = tt.splat %n#0 : f32 -> f32
    tt.store %x, %v : !tt.ptr<f32>
  }
}"""


def test_a_name_in_ir_is_one_value_within_its_region_only():
    named = _uniquely_named(TWO_LOOPS.splitlines())
    users = _users(named)
    assert [name for name, _ in users["%v"]] == ["arith.addf"]
    assert [name for name, _ in users["%v__1"]] == ["tt.store"]
    assert [name for name, _ in users["%i"]] == ["scf.for"] == [name for name, _ in users["%i__1"]]
    assert [name for name, _ in users["%e"]] == ["scf.for", "arith.addf"]
    assert "tt.splat" in [name for name, _ in users["%n"]]


@triton.jit
def synchronises(x_ptr, z_ptr, HOW: tl.constexpr):
    tl.store(z_ptr + tl.arange(0, 512), 1)
    if HOW == "barrier":
        tl.debug_barrier()
    if HOW == "dropped":
        tl.atomic_add(x_ptr, 1)
    if HOW == "used":
        tl.store(x_ptr + 1, tl.atomic_add(x_ptr, 1, sem="relaxed"))
    if HOW == "released":
        tl.atomic_xchg(x_ptr, 1, sem="release")
    if HOW == "acquired":
        tl.atomic_xchg(x_ptr, 1, sem="acquire")
    if HOW == "block":
        tl.atomic_xchg(x_ptr + tl.arange(0, 512), 1)


ONE = 1 if versions.has_barriers_at_atomics(triton.__version__) else 0


@pytest.mark.parametrize(
    "how, barriers",
    [
        ("barrier", 1), ("used", 1),
        ("dropped", 2 * ONE), ("released", ONE), ("acquired", ONE), ("block", 2 * ONE),
    ],
)  # fmt: skip
def test_what_is_a_barrier_in_ptx(how, barriers):
    x = torch.empty(0, dtype=torch.int32)
    translation = translate(synchronises, {"x_ptr": x, "z_ptr": x, "HOW": how}, find_target("sm_90"))
    assert build(translation).texts["ptx"].count("bar.sync") == barriers


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("is_used", [False, True])
def test_an_atomic_acquires_if_its_result_is_used(is_used, around):
    """Or if the compiler puts barriers around it."""
    ordering, flag = Ordering(at_atomics=around), ("flag", 0)
    ordering.synchronise(flag, 0, 2, "release", "gpu", False, Site(1, ""), True)
    ordering.enter()
    assert ordering.acquired is None
    ordering.synchronise(flag, 1, 2, "acquire", "gpu", is_used, Site(2, ""), False)
    assert (ordering.acquired is not None) is (is_used or around)


def test_what_is_acquired_is_released_again():
    """Program 2 is after program 0, though only program 1 has told it anything."""
    ordering = Ordering()
    for number, flags in enumerate([("a",), ("a", "b"), ("b",)]):
        ordering.enter()
        for flag in flags:
            ordering.synchronise((flag, 0), number, 3, "acq_rel", "gpu", True, Site(1, ""), True)
    assert (ordering.acquired[:, :2] > 0).all() and not ordering.acquired[:, 2].any()


@pytest.mark.parametrize("name", ["counted_by_atomics", "atomic_whose_result_is_dropped"])
@pytest.mark.parametrize("around", [False, True])
def test_the_barriers_that_some_versions_put_around_atomics_count(monkeypatch, name, around):
    monkeypatch.setattr(versions, "has_barriers_at_atomics", lambda version: around)
    racing = next(each for each in RACING if each.name == name)
    assert examine(racing.kernel, puzzle_of(racing, cured=False)).ok is around


@pytest.mark.parametrize(
    "sem, before, after",
    [("relaxed", 0, 0), ("release", 1, 0), ("acquire", 0, 1), ("acq_rel", 1, 1)],
)
def test_which_atomics_they_are_around(sem, before, after):
    for at_atomics in (False, True):
        ordering = Ordering(at_atomics=at_atomics)
        eras = [ordering.era]
        ordering.before_atomic(sem)
        eras.append(ordering.era)
        ordering.after_atomic(sem)
        eras.append(ordering.era)
        moved = [later > earlier for earlier, later in zip(eras, eras[1:], strict=False)]
        assert moved == [bool(before and at_atomics), bool(after and at_atomics)]


@triton.jit
def sets_back_too_early(x_ptr, z_ptr, count_ptr):
    p = tl.program_id(0)
    tl.store(z_ptr + p, tl.load(x_ptr + p))
    tl.atomic_add(count_ptr, 1)
    if p == 0:
        tl.store(count_ptr, 0)


def test_an_audit_names_a_plain_store_beside_atomics():
    def counted(x):
        z, count = torch.empty_like(x), torch.zeros(1, dtype=torch.int32)
        sets_back_too_early[(len(x),)](x, z, count)
        return z

    report = audit(counted, torch.randn(5), guard=Guard(sizes=False))
    assert not report.unjudged and "a plain store is safe only after all other programs" in str(report)


@triton.jit
def updates_what_it_loads_on_the_same_line(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Rolls its block by one, in a single statement."""
    i = tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i))
    tl.debug_barrier()
    tl.atomic_xchg(z_ptr + i, tl.load(z_ptr + (i + 1) % BLOCK))


def rolled(x: Float32[Tensor, " BLOCK"]) -> Float32[Tensor, " BLOCK"]:
    return x.roll(-1, 0)


def test_a_load_within_a_store_gets_no_advice_about_a_loop():
    puzzle = Puzzle(number="0", spec=rolled, grid=lambda s: (1,), cases=(Case(BLOCK=256),))
    report = examine(updates_what_it_loads_on_the_same_line, puzzle)
    assert [verdict.kind for verdict in report.verdicts] == ["race"], report
    assert "into the loop" not in str(report)
    assert "load on a separate line" in str(report)
    assert cures.failures(updates_what_it_loads_on_the_same_line, puzzle, report) == []
