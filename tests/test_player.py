"""`watch` records what a kernel does, statement by statement, and survives every kernel."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib import MASKED_ADD, OUTER_ADD, player
from puzzles_lib.authoring.solutions import define, kernel_sources, solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.player import watch
from puzzles_lib.player.packing import Pool, packed
from puzzles_lib.player.story import LATER, RACE, RIGHT, UNDEFINED, WRONG
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Recorder
from tests.kernels import right
from tests.played import SCRIPT, Played
from tests.running import run as run_guarded


def add_ten(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + 10


ADD_TEN = Puzzle(
    number="t1",
    spec=add_ten,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(Case(N=32, BLOCK=32), Case(N=40, BLOCK=16)),
)


def total(x: Float32[Tensor, " N"]) -> Float32[Tensor, "1"]:
    return x.sum().reshape(1)


TOTAL = Puzzle(
    number="t2", spec=total, grid=lambda s: (triton.cdiv(s.N, s.BLOCK),), cases=(Case(N=40, BLOCK=16),)
)


def product(x: Float32[Tensor, "M K"], y: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return x @ y


PRODUCT = Puzzle(
    number="t3", spec=product, grid=lambda s: (1,), cases=(Case(M=16, N=16, K=32, BLOCK=16),),
    descriptors={"x": lambda s: (16, 16)},
)  # fmt: skip


def counted(x: Int32[Tensor, " N"]) -> Int32[Tensor, " N"]:
    return x + 1


COUNTED = Puzzle(number="t4", spec=counted, grid=lambda s: (1,), cases=(Case(N=16, BLOCK=16),))


@triton.jit
def add_ten_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < N) & (offs >= 0)
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(z_ptr + offs, x + 10, mask=mask)


def played(kernel: object, puzzle: Puzzle = ADD_TEN, case: int = 1, program: int | None = 0) -> Played:
    shown = watch(kernel, puzzle, case, program)
    assert shown.refusal is None, shown
    return Played(shown.data)


# ---- every solution


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda puzzle: puzzle.name)
def test_of_every_solution_the_page_is_small_and_every_element_is_stored_right(puzzle):
    shown = watch(solutions()[puzzle.name], puzzle)
    assert len(shown._repr_html_().encode()) < 1_000_000
    told = Played(shown.data)
    assert told.tree["notes"] == []
    names = [tensor["name"] for tensor in told.tree["tensors"]]
    for result in puzzle.results:
        place = names.index(result.name)
        stored = told.stored(place)
        assert len(stored) == np.prod(result.shape(puzzle.cases[0].numbers))
        assert {state for _, state in stored.values()} == {RIGHT}
        wanted = told.array(told.tree["tensors"][place]["wanted"]).ravel()
        got = [stored[i][0] for i in range(len(stored))]
        np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-2 if puzzle.allowance else 1e-4)


def test_the_same_kernel_gives_the_same_bytes():
    kernel = solutions()["long_softmax"]
    puzzle = next(p for p in puzzles() if p.name == "long_softmax")
    first, second = (watch(kernel, puzzle, 2)._repr_html_() for _ in range(2))
    assert first == second


# ---- what a step holds


def test_each_statement_is_a_step_with_what_it_changes():
    told = played(add_ten_kernel, program=2)
    assert told.lines(2) == [
        "def add_ten_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):",
        "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "mask = (offs < N) & (offs >= 0)",
        "x = tl.load(x_ptr + offs, mask=mask)",
        "tl.store(z_ptr + offs, x + 10, mask=mask)",
    ]
    assert told.changes("BLOCK", 2) == ["16"] and told.changes("N", 2) == [40]
    np.testing.assert_array_equal(told.changes("offs", 2)[0], np.arange(32, 48))
    np.testing.assert_array_equal(told.changes("mask", 2)[0], np.arange(32, 48) < 40)
    statement = told.tree["functions"][0]["statements"][3]
    assert statement[2:4] == [["tl", "z_ptr", "offs", "x", "mask"], []]


def test_an_access_tells_its_lanes_their_elements_and_the_terms_of_the_mask():
    told = played(add_ten_kernel, program=2)
    (load,) = told.program(2)["steps"][3]["a"]
    assert load["k"] == "load" and told.tree["tensors"][load["T"]]["name"] == "x"
    np.testing.assert_array_equal(told.array(load["i"]), np.arange(32, 48))
    np.testing.assert_array_equal(told.array(load["m"]), np.arange(32, 48) < 40)
    assert [text for text, _ in load["terms"]] == ["offs < N", "offs >= 0"]
    np.testing.assert_array_equal(told.array(load["terms"][0][1]), np.arange(32, 48) < 40)
    assert told.array(load["terms"][1][1]).all()


def test_masked_lanes_are_off_and_undefined_where_nothing_fills_them():
    told = played(add_ten_kernel, program=2)
    ((_, number),) = told.program(2)["steps"][3]["w"]
    value = told.tree["values"][number]
    np.testing.assert_array_equal(told.array(value["o"]), np.arange(32, 48) >= 40)
    undefined = told.array(value["u"])
    assert (undefined[8:] > 0).all() and not undefined[:8].any()
    assert told.tree["sources"][undefined[8] - 1] == "it comes from a lane that the load of x_ptr masks off"


@pytest.mark.parametrize(
    "load, store, unused",
    [
        ("mask=mask", "mask=mask", [1]),
        ("mask=mask", "mask=lanes < N", []),
        ("mask=lanes < N - 1 - pid * BLOCK", "mask=mask", []),
        ("mask=mask, other=0.0", "mask=mask", []),
    ],
)
def test_masked_lanes_are_unused_unless_a_program_uses_one(load, store, unused):
    source = kernel_sources()["masked_add"].replace("x_ptr + lanes, mask=mask", f"x_ptr + lanes, {load}")
    kernel = define(source.replace("x + 10, mask=mask", f"x + 10, {store}"), f"<{load}, {store}>")
    assert Played(watch(kernel, MASKED_ADD, case=3).data).tree["unused"] == unused


def test_stored_elements_are_what_other_programs_stored_too():
    told = played(add_ten_kernel, program=1)
    assert [p["number"] for p in told.tree["programs"]] == [0, 1, 2]
    assert sorted(told.stored(1)) == list(range(40))


@triton.jit
def doubled(v):
    if v.shape[0] > 8:
        return v + v
    return v


@triton.jit
def winding_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    turns = 0
    while turns < 3:
        turns += 1
    twice = doubled(offs)  # noqa: F841
    for i in tl.static_range(2):
        for j in range(0, 4, 2):
            turns += i + j
    pair = (offs, turns)
    (a, b) = pair
    for _ in range(0):
        turns = 0
    if tl.program_id(0) > 0:
        return
    tl.store(z_ptr + a, tl.load(x_ptr + a, mask=a < N, other=0.0) + 10 + 0 * b, mask=a < N)


def test_helpers_loops_tuples_and_early_returns():
    told = played(winding_kernel)
    lines = told.lines()
    assert lines.count("while turns < 3:") == 4  # and the last time it is false
    assert lines.count("for i in tl.static_range(2):") == 2 and lines.count("for j in range(0, 4, 2):") == 4
    notes = {line: step.get("n", "") for line, step in zip(lines, told.program()["steps"], strict=True)}
    assert notes["for _ in range(0):"] == "no iterations: the loop is skipped"
    assert notes["while turns < 3:"] == "is false: the loop ends"
    assert notes["if tl.program_id(0) > 0:"] == "is false"
    assert told.changes("turns")[:4] == [0, 1, 2, 3] and told.changes("j") == [0, 2, 0, 2]
    offs, turns = told.changes("pair")[0]
    np.testing.assert_array_equal(offs, np.arange(16))
    assert turns == told.changes("b")[0] == told.changes("turns")[-1]
    inside = lines.index("def doubled(v):")
    assert lines[inside : inside + 4] == [
        "def doubled(v):", "if v.shape[0] > 8:", "return v + v", "twice = doubled(offs)  # noqa: F841",
    ]  # fmt: skip
    np.testing.assert_array_equal(told.changes("return")[0], 2 * np.arange(16))
    assert told.program()["frames"] == [[0, -1], [1, 0]]
    assert told.lines(1)[-1] == "return" and told.program(1)["steps"][-1]["n"] == "ends here"


def test_the_turns_of_a_loop_are_counted():
    told = played(winding_kernel)
    turns = [
        step["t"]
        for line, step in zip(told.lines(), told.program()["steps"], strict=True)
        if line.startswith("for j")
    ]
    assert turns == [[1, 2], [2, 2], [1, 2], [2, 2]]


@triton.jit
def after_loop_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    for i in range(2):
        x_ptr += i
    tl.store(z_ptr + tl.arange(0, BLOCK) + i, 0.0)


def test_a_loop_variable_is_undefined_after_its_loop():
    told = played(after_loop_kernel, case=0)
    last = [v for step in told.program()["steps"] for n, v in step.get("w", ()) if n == "i"][-1]
    assert "u" in told.tree["values"][last]


@triton.jit
def summing_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    if tl.program_id(0) == 0:
        tl.store(z_ptr, 0.0)
    tl.atomic_add(z_ptr, tl.sum(x))


def test_an_atomic_tells_what_it_found_what_it_was_given_and_what_is_there_now():
    told = played(summing_kernel, TOTAL, 0)
    x = torch.from_numpy(told.array(told.tree["tensors"][0]["values"]))
    states = []
    for number in range(3):
        (atomic,) = told.program(number)["steps"][-1]["a"]
        assert atomic["k"] == "atomic"
        part = x[16 * number : 16 * number + 16].sum()
        np.testing.assert_allclose(told.value(atomic["o"][0]), part, rtol=1e-5)
        np.testing.assert_allclose(told.array(atomic["s"]["v"]), x[: 16 * number + 16].sum(), rtol=1e-4)
        states += told.array(atomic["s"]["r"]).tolist()
    assert states == [LATER, LATER, RIGHT]  # what a later program mends is not wrong
    assert told.tree["step"] == 4  # the store that races with the atomics


@triton.jit
def product_kernel(x_desc, y_ptr, z_ptr, K, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        x = x_desc.load([0, k])
        y = tl.load(y_ptr + (k + rows) * BLOCK + columns)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(z_ptr + rows * BLOCK + columns, acc)


def test_dots_show_operands_and_result_and_descriptors_their_tile():
    told = played(product_kernel, PRODUCT, 0)
    steps = told.program()["steps"]
    dots = [[told.value(v) for v in dot] for step in steps for dot in step.get("d", ())]
    assert len(dots) == 2
    for one, other, start, result in dots:
        np.testing.assert_allclose(one @ other + start, result, rtol=1e-4, atol=1e-4)
    assert told.changes("x_desc") == ["descriptor of x [16, 32], tiles of [16, 16]"]
    loads = [a for step in steps for a in step.get("a", ()) if a["k"] == "load" and a["T"] == 0]
    elements = 32 * np.arange(16)[:, None] + 16 + np.arange(16)
    np.testing.assert_array_equal(told.array(loads[1]["i"]), elements)


# ---- where it opens


def cell(source: str, name: str) -> object:
    return define(f"@triton.jit\n{source}", name)


def test_it_opens_where_a_stored_value_is_first_wrong():
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    pid = tl.program_id(0)\n"
        "    offs = pid * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)\n"
        "    z = x + tl.where(offs == 19, 11, 10)\n"
        "    tl.store(z_ptr + offs, z, mask=offs < N)\n",
        "<wrong at 19>",
    )
    shown = watch(kernel, ADD_TEN, 1)
    told = Played(shown.data)
    place = told.tree["programs"][told.tree["program"]]
    assert place["number"] == 1
    step = place["steps"][told.tree["step"]]
    states = told.array(step["a"][0]["s"]["r"])
    assert states.tolist() == [RIGHT] * 3 + [WRONG] + [RIGHT] * 12
    assert "program 1 (of 0–2), step 6 of 6, line 7" in str(shown)
    assert ">  7" in str(shown) or "> 7 " in str(shown)
    assert Played(watch(kernel, ADD_TEN, 1, program=0).data).tree["step"] == 0


def test_right_values_open_at_the_start_of_a_program_that_masks():
    told = Played(watch(add_ten_kernel, ADD_TEN, 1).data)
    assert (told.tree["program"], told.tree["step"]) == (2, 0)
    told = Played(watch(add_ten_kernel, ADD_TEN, 0).data)
    assert (told.tree["program"], told.tree["step"]) == (0, 0)


@triton.jit
def overrunning_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


def test_lanes_out_of_bounds_are_marked_and_what_they_load_is_undefined():
    shown = watch(overrunning_kernel, ADD_TEN, 1)
    told = Played(shown.data)
    step = told.program(2)["steps"][told.tree["step"]]
    np.testing.assert_array_equal(told.array(step["a"][0]["b"]), np.arange(32, 48) >= 40)
    assert step["e"].startswith("out-of-bounds load of x_ptr in program 2: elements 40..47")
    undefined = told.array(told.tree["values"][step["w"][0][1]]["u"])
    assert told.tree["sources"][undefined[8] - 1].endswith("what lies out of bounds")
    assert "8 lanes out of bounds" in repr(shown)


def test_undefined_values_that_are_stored_are_no_right_ones():
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < 30) + 10)\n",
        "<stores undefined>",
    )
    told = Played(watch(kernel, ADD_TEN, 0).data)
    assert [state for _, state in told.stored(1).values()] == [RIGHT] * 30 + [UNDEFINED] * 2
    assert told.lines()[told.tree["step"]].startswith("tl.store(")


def test_a_run_that_breaks_off_ends_at_the_line_that_broke_it():
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)\n"
        "    tl.device_assert(tl.sum(x) > 1e9, 'too small')\n"
        "    tl.store(z_ptr + offs, x)\n",
        "<breaks off>",
    )
    shown = watch(kernel, ADD_TEN, 1)
    told = Played(shown.data)
    assert told.lines()[-1].startswith("tl.device_assert(") and told.tree["step"] == 3
    assert told.program()["steps"][-1]["e"] == "AssertionError: too small"
    assert told.tree["notes"] == [
        "The kernel did not finish: AssertionError: too small; 2 of 3 programs never started."
    ]
    assert "AssertionError: too small" in repr(shown)


def test_an_input_that_is_stored_to_is_wrong():
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + offs, offs)\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 1)\n",
        "<changes its input>",
    )
    told = Played(watch(kernel, COUNTED, 0).data)
    assert WRONG in {state for _, state in told.stored(0).values()}
    assert told.lines()[told.tree["step"]] == "tl.store(x_ptr + offs, offs)"


# ---- limits


@triton.jit
def endless_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = 0
    while i < 10:
        i = i - 1


def test_a_long_run_is_cut_with_a_sentence(monkeypatch):
    recorder = Recorder(most_steps=30)
    x, z = torch.zeros(32), torch.zeros(32)
    arguments = {"x_ptr": x, "z_ptr": z, "N": 32, "BLOCK": 32}
    ran = run_guarded(
        endless_kernel, arguments, (1, 1, 1), {"z_ptr"}, record=True, seconds=0.05, recorder=recorder
    )
    assert ran.stop.kind == "time limit"
    assert len(recorder.recordings[0].steps) == 30 and not recorder.recordings[0].complete
    monkeypatch.setattr(player, "Recorder", lambda only=None: Recorder(only, most_steps=3))
    told = Played(watch(add_ten_kernel, ADD_TEN, 1, program=1).data)
    assert told.tree["notes"] == ["Program 0 took more than the 3 steps on this page."]


def test_a_page_that_would_be_too_large_keeps_fewer_programs_then_fewer_steps(monkeypatch):
    puzzle = next(p for p in puzzles() if p.name == "batched_matmul")
    kernel = solutions()["batched_matmul"]
    whole = watch(kernel, puzzle, 2, program=5)
    monkeypatch.setattr(player, "MOST_CHARACTERS", len(whole.data) * 2 // 3)
    fewer = Played(watch(kernel, puzzle, 2, program=5).data)
    numbers = [p["number"] for p in fewer.tree["programs"]]
    assert 5 in numbers and 1 < len(numbers) < 12
    assert fewer.tree["notes"][0].startswith(
        f"Of 12 programs, {numbers[0]} to {numbers[-1]} are on this page"
    )
    softmax = next(p for p in puzzles() if p.name == "long_softmax")
    monkeypatch.setattr(player, "MOST_CHARACTERS", 10_000)
    cut = Played(watch(solutions()["long_softmax"], softmax, 2, program=1).data)
    steps = len(cut.program(1)["steps"])
    assert 20 <= steps < 80
    assert f"Program 1 took more than the {steps} steps on this page." in cut.tree["notes"]


def test_of_tensors_too_large_for_a_page_what_the_steps_touch_is_kept_and_a_sentence_says_so():
    shown = watch(add_ten_kernel, ADD_TEN, Case(N=250_000, BLOCK=1024), program=100)
    assert len(shown._repr_html_().encode()) < 1_000_000
    told = Played(shown.data)
    assert told.tree["notes"][-1] == (
        "x and z would make this page too large. It keeps only the elements that these steps load and store."
    )
    assert not [tensor for tensor in told.tree["tensors"] if {"values", "wanted"} & set(tensor)]
    (offs,), (x,) = told.changes("offs", 100), told.changes("x", 100)
    np.testing.assert_array_equal(offs, np.arange(102_400, 103_424))
    assert x.shape == (1024,) and x.std() > 0.5


def test_a_program_that_was_not_recorded_is_run_for(monkeypatch):
    made = []

    def few(only=None):
        made.append(only)
        return Recorder(only, most_steps_in_all=10_000 if only else 6)

    monkeypatch.setattr(player, "Recorder", few)
    told = Played(watch(add_ten_kernel, ADD_TEN, 1, program=2).data)
    assert made == [None, {2}]
    assert [p["number"] for p in told.tree["programs"]] == [2]
    assert sorted(told.stored(1)) == list(range(40))  # the others' stores are known anyway


@pytest.mark.parametrize(
    "case, program, told",
    [
        (9, None, "watch: case must be from 0 to 1 or a Case, but is 9"),
        (0, 1, "watch: program must be from 0 to 0, or ids below 1, but is 1"),
        (1, (0, 1), r"watch: program must be from 0 to 2, or ids below 3, but is \(0, 1\)"),
        (1, True, "watch: program must be .*, but is True"),
        (Case(N=10**7, BLOCK=32), None, "20,000,000 elements, but at most"),
        (Case(N=64, BLOCK=32, pretend=True), None, "its tensors have no values"),
        (Case(N=0, BLOCK=32), None, "starts no program"),
    ],
)
def test_what_there_is_not_is_refused_by_name(case, program, told):
    with pytest.raises(ValueError, match=told):
        watch(add_ten_kernel, ADD_TEN, case, program)


def test_it_opens_at_a_step_if_it_is_told_one():
    at_once = watch(add_ten_kernel, ADD_TEN, case=1, program=2, step=1)
    assert at_once.frame.place == watch(add_ten_kernel, ADD_TEN, case=1, program=2).frame.place
    third = watch(add_ten_kernel, ADD_TEN, case=1, program=2, step=3)
    assert third.frame.place != at_once.frame.place
    last = watch(add_ten_kernel, ADD_TEN, case=1, program=2, step=10**6).frame.place
    assert last not in (at_once.frame.place, third.frame.place)


@pytest.mark.parametrize("step", [0, -1, True, 1.0])
def test_a_step_that_is_none_is_refused(step):
    with pytest.raises(ValueError, match=f"watch: step must be an integer of at least 1, but is {step!r}"):
        watch(add_ten_kernel, ADD_TEN, step=step)


def test_no_puzzle_is_a_type_error():
    with pytest.raises(TypeError, match="puzzle must be a Puzzle, not int"):
        watch(add_ten_kernel, 3)


@pytest.mark.parametrize(
    "kernel, told",
    [
        (lambda x: x, "is a Python function: put @triton.jit on the line above its def"),
        (None, "If it comes from mistake(...), solve that puzzle first"),
        (3, "kernel must be a @triton.jit function, but is 3"),
        (cell("def kernel(q_ptr, z_ptr):\n    pass\n", "<takes q>"), "the kernel takes 'q_ptr'"),
        (cell("def kernel(x_ptr, z_ptr):\n    return undefined_name\n", "<no name>"), "undefined_name"),
    ],
)
def test_a_kernel_that_cannot_run_gives_the_checkers_report(kernel, told):
    shown = watch(kernel, ADD_TEN, 0)
    assert shown.refusal is not None and told in repr(shown) == repr(shown.refusal)
    assert shown._repr_html_() == shown.refusal._repr_html_()


def test_a_puzzle_at_fault_gives_a_report():
    def failing(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
        return x / x.no_such_thing

    broken = Puzzle(number="t5", spec=failing, grid=lambda s: (1,), cases=(Case(N=4, BLOCK=4),))
    assert watch(add_ten_kernel, broken).refusal.verdict.kind == "puzzle"


# ---- the page


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if "script" not in self.open else ""


HOSTILE = """def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    name: tl.constexpr = '</script><script>alert(1)</script>'
    offs = tl.arange(0, BLOCK)  # <img src=x onerror=alert(2)> <!--
    tl.device_print('</div></script>', N)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)
"""


def test_nothing_of_a_learners_becomes_html(capsys):
    html = watch(cell(HOSTILE, "<hostile>"), ADD_TEN, 0)._repr_html_()
    tags = _Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    assert {tag for tag, _ in tags.seen} <= {
        "div", "p", "em", "pre", "b", "script", "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert html.lower().count("</script") == 1 and "<!--" not in html and "<img" not in html


def test_a_page_stands_alone_and_has_no_ids():
    html = watch(add_ten_kernel, ADD_TEN, 1)._repr_html_()
    assert not re.search(r"https?:|//[a-z]+\.|\bimport\(|fetch\(|XMLHttpRequest|WebSocket|\bsrc=|url\(", html)
    tags = _Tags()
    tags.feed(html)
    assert not any("id" in attributes for _, attributes in tags.seen)


def test_without_scripts_the_first_frame_stands_there_with_a_sentence():
    shown = watch(add_ten_kernel, ADD_TEN, 1)
    tags = _Tags()
    tags.feed(shown._repr_html_())
    for text in (
        "program 2 (of 0–2), step 1 of 5",
        "def add_ten_kernel(x_ptr, z_ptr, N,",
        "pointer to float32",
    ):
        assert text in tags.text
    assert "This is the first frame. To step through the run, trust the notebook" in tags.text


def test_repr_is_the_frame_as_text():
    shown = watch(add_ten_kernel, ADD_TEN, 0)
    title, place, *_, last = repr(shown).splitlines()
    assert title == "add_ten, N=32  BLOCK=32" and last == "BLOCK  given  constant            32"
    assert re.fullmatch(r"step 1 of 5, line \d+", place)


# ---- packing


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4) * 5 - 7,
        np.array([3, 1, 2]),
        np.array([-200, 100, 30_000]),
        np.array([2**31, 1, 5], np.int64),
        np.array([2**60 + 1, -(2**62), 0], np.int64),
        np.array([2**63 + 1, 3, 0], np.uint64),
        np.array([0.1, np.nan, -np.inf, -0.0], np.float32),
        np.array([[1.5, 2.5]], np.float16),
        np.array([1e300, 2.0]),
        np.arange(19) % 3 == 0,
        np.full((2, 2), np.inf, np.float32),
        np.zeros((0, 3), np.float32),
        np.array(7, np.int32),
    ],
    ids=lambda array: f"{array.dtype}-{'x'.join(map(str, array.shape))}",
)
def test_an_array_comes_back_as_it_was(array):
    pool = Pool()
    number = pool.add(array)
    assert pool.add(array.copy()) == number  # kept once
    back = Played(packed({}, pool)).array(number)
    assert back.shape == array.shape
    np.testing.assert_array_equal(back.astype(array.dtype) if array.size else back, array)


def test_offsets_are_kept_as_a_rule():
    pool = Pool()
    pool.add(1000 + 100 * np.arange(64)[:, None] + np.arange(64)[None, :])
    assert pool.entries == [["a", [64, 64], 1000, [100, 1]]] and not pool.blob


def test_recording_changes_nothing_of_the_run():
    kernel = solutions()["masked_add"]
    x = torch.randn(40)
    outputs = []
    for recorder in (None, Recorder()):
        z = torch.zeros(40)
        arguments = {"x_ptr": x, "z_ptr": z, "N": 40, "BLOCK": 16}
        run_guarded(kernel, arguments, (3, 1, 1), {"z_ptr"}, record=True, recorder=recorder)
        outputs.append(z)
    assert torch.equal(*outputs) and MASKED_ADD.name == "masked_add"


# ---- recording leaves a run what it was


@triton.jit
def furthest(a, b):
    return tl.where(a * a > b * b, a, b)


@triton.jit
def folding_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    nothing = tl.debug_barrier()  # noqa: F841
    most = tl.reduce(x, 0, furthest)
    best = tl.associative_scan(x, 0, furthest)
    corner = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), (0,))
    corner = tl.advance(corner, (0,))
    again = tl.load(corner)
    tl.store(z_ptr + offs, again + 10 + 0 * best + 0 * most)


def test_folds_void_and_block_pointers():
    told = played(folding_kernel, case=0)
    assert told.tree["notes"] == [] and {state for _, state in told.stored(1).values()} == {RIGHT}
    x = told.changes("x")[0]
    assert told.changes("most") == [pytest.approx(x[np.abs(x).argmax()])] and told.changes("nothing") == []
    assert told.changes("corner") == ["block pointer into x [32], tile [32] at [0]"] * 2
    lines = told.lines()  # a fold is one step: its function's lines are not stepped through
    assert "best = tl.associative_scan(x, 0, furthest)" in lines
    assert "return tl.where(a * a > b * b, a, b)" not in lines


@pytest.mark.parametrize("puzzle, kernel", right()[::7], ids=lambda each: getattr(each, "__name__", ""))
def test_right_kernels_of_all_kinds_end_as_they_do_unrecorded(puzzle, kernel):
    case = next(i for i, c in enumerate(puzzle.cases) if not c.pretend)
    told = Played(watch(kernel, puzzle, case).data)
    assert not [note for note in told.tree["notes"] if note.startswith("The kernel did not finish")]
    names = [tensor["name"] for tensor in told.tree["tensors"]]
    stored = [told.stored(names.index(result.name)) for result in puzzle.results if result.name in names]
    assert {state for each in stored for _, state in each.values()} <= {RIGHT, LATER}


@triton.jit
def disagreeing_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + tl.program_id(0))


def test_a_race_is_told():
    (note,) = played(disagreeing_kernel).tree["notes"]
    assert re.fullmatch(
        r"This is a race: programs 0 and 1 store different values to z\[0\] "
        r"\(line \d+: tl.store\(.*\)\)\. Here the programs ran one after the other; "
        r"on a GPU the order isn't fixed, so the result can differ from run to run\.",
        note,
    )


def test_lanes_of_one_store_that_collide_are_not_called_correct():
    source = kernel_sources()["outer_add"]
    mask = "(offs_m[:, None] < M) & (offs_n[None, :] < N)"
    told = Played(watch(define(source.replace(mask, "offs < M * N"), "<racing>"), OUTER_ADD, case=2).data)
    (note,) = told.tree["notes"]
    assert "two lanes of one store in program 0 store different values to z[1, 0]" in note
    assert "one lane stored after the other" in note
    states = [state for _, state in told.stored(2).values()]
    assert states.count(RACE) == 38 and states.count(RIGHT) == 562
    assert "tl.store" in told.lines()[told.tree["step"]]  # it opens there


def test_nothing_moves_by_itself():
    style = (SCRIPT.with_name("player.css")).read_text()
    assert not re.search(r"animation|transition|smooth", style + SCRIPT.read_text())
    assert "prefers-reduced-motion: reduce" in SCRIPT.read_text()  # then there is no button that plays
