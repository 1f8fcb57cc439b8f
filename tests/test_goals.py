"""Goals for the machine code: what they say, what they measure, and when `check` judges by them."""

import dataclasses
import json

import pytest
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch09_bit_packing.puzzles import PACK_WIDE
from puzzles_lib.chapters.ch14_int8_linear.puzzles import INT8_LINEAR, TILED_LINEAR
from puzzles_lib.checker import examine, machine
from puzzles_lib.checker.report import Report
from puzzles_lib.checking import check
from puzzles_lib.goal import MEASURES, Goal, Once, Want
from puzzles_lib.inputs import large
from puzzles_lib.inspector import stages
from puzzles_lib.inspector.measures import Reading, measure
from puzzles_lib.inspector.occupancy import one_more, resident
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.source import Refusal, define
from tests.kernels import ch14_int8_linear


def doubled(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    """z[n] = 2 · x[n]"""
    return 2 * x


WIDE = Want("load bytes", least=16)
ALONE = Want("exchanges", most=0)
CASES = (Case(N=40, BLOCK=16), Case(N=2048, BLOCK=1024, fill={"x": large}))
PUZZLE = Puzzle(
    number="1",
    spec=doubled,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=CASES,
    machine=(Goal(cases=(1,), wants=(WIDE, ALONE)),),
)


@triton.jit
def plain(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, 2 * x, mask=offs < N)


@triton.jit
def backwards(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Each thread's lanes run against memory's order."""
    offs = tl.program_id(0) * BLOCK + BLOCK - 1 - tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, 2 * x, mask=offs < N)


@triton.jit
def with_a_sum(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Adds a sum over all threads, times zero."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    none = tl.sum((x > 1e30).to(tl.int32), axis=0)
    tl.store(z_ptr + offs, 2 * x + none, mask=offs < N)


@triton.jit
def nothing_loaded(z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, offs.to(tl.float32), mask=offs < N)


@triton.jit
def no_mask(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, 2 * tl.load(x_ptr + offs))


def reading(kernel, name, case=1):
    return measure(name, stages(kernel, PUZZLE, case=case))


# ---- what a goal says


def test_a_want_has_one_bound_on_a_measure_that_there_is():
    for wrong, message in (
        ({"measure": "speed", "least": 1}, "measure must be one of load bytes"),
        ({"measure": "spills"}, "give one"),
        ({"measure": "spills", "least": 0, "most": 1}, "give one"),
    ):
        with pytest.raises(ValueError, match=message):
            Want(**wrong)


def test_a_want_says_itself():
    assert str(ALONE) == "instructions that pass values between threads: none"
    assert str(Want("busy", least=0.5)).endswith("busy: at least 50%")
    told = Want("busy", least=0.5).told
    assert [told(share) for share in (0.498, 0.5, 0.23)] == ["49.8%", "50%", "23%"]  # not met, met, not met
    assert str(Want("spills", most=8)).endswith("memory: at most 8")


@pytest.mark.parametrize(
    "want, number, met",
    [
        (WIDE, 16, True),
        (WIDE, 8, False),
        (WIDE, None, False),
        (ALONE, 0, True),
        (ALONE, 1, False),
        (ALONE, None, False),
    ],
)
def test_a_bound_is_met_or_not_and_never_by_nothing(want, number, met):
    assert want.is_met_by(number) is met


@pytest.mark.parametrize("cases", [(2,), (-1,), (0, 5)])
def test_a_goal_names_cases_that_are_run(cases):
    with pytest.raises(ValueError, match="doubled: machine names case"):
        dataclasses.replace(PUZZLE, machine=(Goal(cases=cases, wants=(WIDE,)),))


def test_a_puzzle_shows_its_goals():
    goal = Goal(cases=(0, 1), wants=(WIDE, ALONE), num_warps=1)
    shown = dataclasses.replace(PUZZLE, machine=(goal,))
    assert str(shown).endswith(
        "\nmachine code of cases 0 and 1, for sm_90 with 1 warp: bytes of a thread's narrowest load: "
        "at least 16; instructions that pass values between threads: none"
    )
    assert "\n- bytes of a thread's narrowest load: at least 16\n" in shown._repr_markdown_()
    assert "machine code" not in dataclasses.replace(PUZZLE, machine=())._repr_markdown_()


def test_a_goal_shows_what_it_has_no_bound_for():
    goal = Goal(cases=(1,), wants=(Want("spills", most=0),), shows=("registers", "busy"))
    (told,) = examine(plain, dataclasses.replace(PUZZLE, machine=(goal,))).goals
    registers = stages(plain, PUZZLE, case=1).registers
    assert told.ok and told.told.endswith(
        f"registers per thread: {registers}; share of the time that tensor cores can be busy: "
        "nothing to measure"
    )


# ---- what is measured


def test_every_measure_is_measured():
    compiled = stages(plain, PUZZLE, case=1)
    assert all(measure(name, compiled) for name in MEASURES)


def test_loads_are_as_wide_as_alignment_and_order_allow():
    assert reading(plain, "load bytes").number == 16
    narrow = reading(backwards, "load bytes")
    assert narrow.number == 4 and narrow.cause.startswith("8 of 8 loads are that narrow")
    ragged = reading(plain, "load bytes", case=Case(N=2047, BLOCK=1024))  # the mask ends anywhere
    assert ragged.number == 4


def test_the_narrowest_load_is_at_its_line():
    line = reading(backwards, "load bytes").line
    assert "tl.load" in stages(backwards, PUZZLE, case=1).source[line]


def test_without_loads_there_is_nothing_to_measure():
    assert reading(nothing_loaded, "load bytes").number is None


def test_a_sum_over_threads_is_an_exchange_and_arithmetic_is_none():
    assert reading(plain, "exchanges").number == 0
    exchanged = reading(with_a_sum, "exchanges")
    assert exchanged.number > 0 and "shuffles" in exchanged.cause
    assert "tl.sum" in stages(with_a_sum, PUZZLE, case=1).source[exchanged.line]


@triton.jit
def added(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N), mask=offs < N)
    tl.atomic_max(z_ptr + offs, 1.0, mask=offs < N)
    tl.atomic_add(z_ptr.to(tl.pointer_type(tl.int32)) + offs, 1, mask=offs < N)


def test_atomic_additions_of_floats_are_counted_and_no_other_atomics():
    found = reading(added, "float atomics")
    assert found.number == 1 and "tl.load(x_ptr" in stages(added, PUZZLE, case=1).source[found.line]
    assert reading(plain, "float atomics") == Reading(0)


def test_what_has_no_loop_or_no_tensor_cores_has_no_number():
    assert reading(plain, "moves").number is None
    assert reading(plain, "busy").number is None
    assert reading(plain, "spills").number == 0


def test_programs_follow_from_registers_and_shared_memory():
    compiled = stages(plain, PUZZLE, case=1, num_warps=8)
    assert measure("programs", compiled).number == resident(compiled.registers, 0, 8) == 8


@pytest.mark.parametrize(
    "registers, shared, warps, programs, more",
    [
        (130, 0, 8, 1, "130 registers per thread: one program more fits with 128 or fewer"),
        (128, 0, 8, 2, "128 registers per thread: one program more fits with 80 or fewer"),
        (64, 120_000, 4, 1, "120000 bytes of shared memory: one program more fits with 115712 or fewer"),
        (64, 262_144, 4, 0, "262144 bytes of shared memory: a program fits with 232448 or fewer"),
        (255, 120_000, 8, 1, "255 registers per thread and 120000 bytes of shared memory are each too many"),
    ],
)
def test_what_keeps_one_more_program_out(registers, shared, warps, programs, more):
    assert resident(registers, shared, warps) == programs
    assert one_more(registers, shared, warps).startswith(more)


# ---- when it is judged


def test_a_right_kernel_is_judged_by_its_machine_code():
    report = check(plain, PUZZLE)
    assert report.ok and [goal.launch for goal in report.goals] == ["case 1, sm_90, 4 warps"]
    assert report.headline() == "doubled: all 2 cases pass, and its machine code meets its goal"
    assert "narrowest load: 16; instructions that pass values between threads: 0" in str(report)


def test_one_that_misses_a_goal_is_told_by_how_much_and_where():
    report = check(backwards, PUZZLE)
    assert report.right and not report.ok
    assert str(report).splitlines()[0] == "doubled: all 2 cases pass, but its machine code misses its goal"
    assert [verdict.kind for verdict in report.verdicts] == ["machine"]
    assert report.verdicts[0].message == "bytes of a thread's narrowest load: 4, but the goal is at least 16"
    assert "x = tl.load(x_ptr + offs" in str(report)
    assert "stages(backwards, DOUBLED, case=1)" in str(report)
    assert "stages(backwards, DOUBLED, case=1)" in report._repr_html_()


def test_a_wrong_one_is_not_compiled(monkeypatch):
    monkeypatch.setattr(machine, "judge", None)
    report = examine(no_mask, PUZZLE)
    assert not report.right and report.goals == ()


def test_a_report_with_goals_travels():
    report = examine(backwards, PUZZLE)
    again = Report.from_dict(json.loads(json.dumps(report.as_dict())))
    assert again == report and str(again) == str(report) and not again.ok
    old = {key: value for key, value in report.as_dict().items() if key != "goals"}
    assert Report.from_dict(old).goals == ()


def test_a_kernel_that_does_not_compile_misses_its_goals(monkeypatch):
    why = Refusal("ptxas: it is tired", advice="let it sleep")
    refused = dataclasses.replace(stages(plain, PUZZLE, case=1), built=None, refusal=why)
    monkeypatch.setattr(machine, "stages", lambda *args, **options: refused)
    report = examine(plain, PUZZLE)
    assert report.right and not report.ok
    assert "it does not compile: ptxas: it is tired\n       let it sleep\n" in str(report)


def test_the_launch_is_the_goals_whatever_autotune_says():
    tuned = triton.autotune(configs=[triton.Config({}, num_warps=1)], key=[])(plain)
    assert [goal.launch for goal in check(tuned, PUZZLE).goals] == ["case 1, sm_90, 4 warps"]


# ---- one compiled kernel for several cases

SIZES = tuple(Case(N=size, BLOCK=16) for size in (1, 5, 7, 32))
ONCE = dataclasses.replace(PUZZLE, cases=SIZES, machine=(Once(cases=(0, 1, 3)),))
whatever_size = triton.jit(do_not_specialize=["N"])(plain.fn)


def test_a_size_of_1_and_a_multiple_of_16_are_compiled_anew():
    report = examine(plain, ONCE)
    (verdict,) = report.verdicts
    assert report.right and not report.ok and verdict.message == "kernels compiled: 3, but the goal is one"
    assert verdict.diagnosis == "N is constexpr 1 in case 0; i32 in case 1; i32, divisible by 16 in case 3"
    assert Report.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_sizes_of_one_class_and_sizes_not_specialised_share_a_kernel():
    assert examine(plain, dataclasses.replace(ONCE, machine=(Once(cases=(1, 2)),))).ok
    report = examine(whatever_size, ONCE)
    assert report.ok and "machine code of cases 0, 1 and 3, sm_90: kernels compiled: 1" in str(report)


def test_what_is_to_be_compiled_once_is_shown():
    assert str(ONCE).endswith(
        "\nmachine code of cases 0, 1 and 3, for sm_90: one compiled kernel for all of them"
    )
    assert "\n- one compiled kernel for all of them\n" in ONCE._repr_markdown_()
    with pytest.raises(ValueError, match="doubled: machine names case 9"):
        dataclasses.replace(ONCE, machine=(Once(cases=(0, 9)),))
    with pytest.raises(
        ValueError, match="doubled: machine keeps 'M', which isn't a multiple of 16 in case 0"
    ):
        dataclasses.replace(ONCE, machine=(Once(cases=(0, 1), keeps=("M",)),))


# ---- chapter 09's goals


@pytest.mark.parametrize("row, words", [("8", "8 elements, or 8 bytes"), ("1", "1 element, or 1 byte")])
def test_loads_as_wide_as_a_row_of_the_tile_say_so_and_each_goal_says_what_is_missed(row, words):
    source = kernel_sources()["pack_wide"]
    assert source.count("min(F, 16)") == 1
    head = "import triton\nimport triton.language as tl\n\n"
    short = define(head + source.replace("min(F, 16)", f"min(F, {row})"), "<short rows>")
    told = str(check(short, PACK_WIDE))
    assert f"a row of the loaded tile has {words}, and no load goes past its row" in told
    assert f"case 7, sm_90, 4 warps: bytes of a thread's narrowest load: {row}, but the goal is" in told


# ---- chapter 14's goals


@pytest.mark.parametrize(
    "kernel, puzzle, says",
    [
        (ch14_int8_linear.strides_and_masks, TILED_LINEAR, "one bit of the mask must be enough"),
        (ch14_int8_linear.exact_in_float16, INT8_LINEAR, "tl.dot of tiles that aren't integers: 1"),
    ],
)
def test_a_kernel_that_leaves_out_the_lesson_misses_the_goal(kernel, puzzle, says):
    report = check(kernel, puzzle)
    assert not report.ok and f"all {len(puzzle.cases)} cases pass" in str(report)
    assert says in str(report)
