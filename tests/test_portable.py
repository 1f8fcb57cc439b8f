"""Kernels that go to another process: what is translated there is what would be translated here."""

import enum
import math
import subprocess
import sys
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import CHAPTERS, puzzles
from puzzles_lib.compiler import find_target, front_end, translate
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import define
from puzzles_lib.translator import nursery
from puzzles_lib.translator.portable import packed, unpacked
from tests.conftest import REPO

SM_90 = find_target("sm_90")
ARGUMENTS = {"x_ptr": torch.empty(0), "z_ptr": torch.empty(0), "N": 100, "BLOCK": 64}
KERNEL = """
@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    {}
    tl.store(z_ptr + offs, x, mask=offs < N)
"""


class Colour(enum.IntEnum):
    RED = 2


class Pair(NamedTuple):
    first: int
    second: int


class Odd:
    def __reduce__(self):
        raise AssertionError("a learner's code is run")


def kernel_with(line: str, **scope: object):
    return define(KERNEL.format(line), "<portable>", scope)


def in_both(kernel, arguments, monkeypatch):
    """A kernel's IR, or why there is none, by a child of a process that has been sent it, and of this one."""
    there = unpacked(packed(kernel))
    with monkeypatch.context() as patch:
        patch.setattr(nursery, "fork", lambda *work: None)
        return [translate(each, arguments, SM_90) for each in (there, kernel)]


def different() -> list[Puzzle]:
    """Return the first puzzle of each chapter, and those whose solution has a helper.

    The other solutions name nothing but Triton, just as these first ones do.
    """
    first = {chapter.puzzles[0].name for chapter in CHAPTERS if chapter.puzzles}
    return [p for p in puzzles() if p.name in first or "@triton.jit" in kernel_sources()[p.name][1:]]


@pytest.mark.parametrize("puzzle", different(), ids=lambda p: p.name)
def test_solutions_are_translated_to_the_same(puzzle, monkeypatch):
    bound = bind(solutions()[puzzle.name], puzzle, puzzle.cases[0])
    assert isinstance(bound, Bound)
    there, here = in_both(bound.kernel, bound.arguments, monkeypatch)
    assert there.ir == here.ir and f"@{bound.kernel.__name__}" in here.ir


HELPER = define("@triton.jit\ndef twice(x):\n    return x + x", "<helper>")


@triton.constexpr_function
def one_more(number):
    return number + 1


@pytest.mark.parametrize(
    "line, scope",
    [
        ("x = x * TEN", {"TEN": tl.constexpr(10)}),
        ("x = x + math.pi", {"math": math}),
        ("x = twice(x)", {"twice": HELPER}),
        ("x = helpers[0](x)", {"helpers": (HELPER,)}),
        ("x = x * one_more(2)", {"one_more": one_more}),
        ("x = x.to(HALF).to(tl.float32) if HALF is tl.float16 else x * 7", {"HALF": tl.float16}),
        ("x = tl.sum(x, 0) + tl.zeros_like(x)", {}),
        ("x: NOTE = x + 1", {"NOTE": tl.constexpr}),
        ("x = x + missing", {}),
        ("x = tl.dot(x, x)", {}),
    ],
)
def test_what_a_kernel_names_goes_with_it(line, scope, monkeypatch):
    there, here = in_both(kernel_with(line, **scope), ARGUMENTS, monkeypatch)
    assert getattr(there, "ir", there) == getattr(here, "ir", here)


def test_a_refusal_names_the_line_of_the_cell(monkeypatch):
    refusal, _ = in_both(kernel_with("x = tl.dot(x, x)"), ARGUMENTS, monkeypatch)
    assert refusal.site.line == 6 and refusal.site.source == "x = tl.dot(x, x)"


def test_a_kernel_that_calls_itself_goes():
    kernel = kernel_with("kernel(x_ptr, z_ptr, N, BLOCK)")
    there = unpacked(packed(kernel))
    assert there is not kernel and there.fn.__globals__["kernel"] is there and there.src == kernel.src


def test_what_it_does_not_name_stays():
    kernel = kernel_with("x = x + 1", model=torch.nn.Linear(1000, 1000), kept=2)
    data = packed(kernel)
    assert len(data) < 3000 and "model" not in unpacked(data).fn.__globals__


@pytest.mark.parametrize(
    "value",
    [Odd(), Odd, torch, torch.float16, Colour.RED, Pair(1, 2), ModuleType("math"), lambda x: Odd(), [torch]],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_another_process_may_not_have_is_refused(value):
    assert packed(kernel_with("x = x + value", value=value)) is None
    assert packed(kernel_with("x = x + 1", value=value)) is not None


def test_a_class_that_says_it_is_tritons_stays():
    fake = type("JITFunction", (), {"__module__": "triton.runtime.jit", "__reduce__": Odd.__reduce__})
    assert packed(kernel_with("x = x + value", value=fake())) is None


def test_a_learners_files_are_not_imported(tmp_path):
    """A notebook's folder may have a file that is called as a module that Triton needs."""
    (tmp_path / "hashlib.py").write_text("raise SystemExit('mine')")
    (tmp_path / "triton.py").write_text("raise SystemExit('mine')")
    code = """
import sys, time
import hashlib, triton, torch
from puzzles_lib.translator import nursery
sys.path.insert(0, "")
small = nursery.Nursery()
while not small.is_ready():
    time.sleep(0.01)
print("ready")
"""
    command = [sys.executable, "-c", f"import sys; sys.path[0] = {str(REPO)!r}" + code]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.stdout == "ready\n", ran.stderr


@pytest.mark.parametrize("line", ["x = x + 1", "x = x + tl.arange(0, 3)", "x = tl.dot(x, x)", "x = y"])
def test_the_nursery_says_the_same(line, monkeypatch):
    kernel = kernel_with(line)
    with monkeypatch.context() as patch:
        patch.setattr(nursery, "fork", lambda *work: None)
        here = front_end(kernel, ARGUMENTS)
    nursery.begin()
    assert front_end(kernel, ARGUMENTS) == here


TENSOR = torch.ones(3)  # as a notebook has them, and which cannot go
LOCAL = """
@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {}
    tl.store(z_ptr + offs, 1.0, mask=offs < N)
"""


@pytest.mark.parametrize(
    "lines, goes",
    [
        ("v = 1", True),
        ("v = 1; y = v + 1", True),
        ("v, y = 1, 2; y = v", True),
        ("v: tl.constexpr = 1; y = v", True),
        ("for v in range(N): y = v", True),
        ("for k in range(N):\n        v = k\n        y = v", True),
        ("if BLOCK > 1:\n        v = 2\n        y = v", True),
        ("y = v", False),
        ("v = v + 1", False),
        ("v += 1", False),
        ("y = v; v = 1", False),
        ("v: v = 1", False),
        ("if BLOCK > 1: v = 1\n    y = v", False),
        ("if BLOCK > 1: v = 1\n    else: y = v", False),
        ("for k in range(N): v = 1\n    y = v", False),
        ("for v in range(N): y = 1\n    y = v", False),
        ("for k in range(N):\n        y = v\n        v = 1", False),
        ("for v in range(v): y = 1", False),
        ("while v < 3: v = 1", False),
        ("y = [v for v in (1, 2)]", False),
        ("y = (v := 1)", False),
        ("v[0] = 1", False),
        ("v = tl.zeros((2,), tl.int32); y = v.to(tl.int8)", False),  # Triton may ask a global's attribute
    ],
)
def test_a_global_stays_where_the_kernel_has_its_own_of_that_name(lines, goes):
    kernel = define(LOCAL.format(lines), "<local>", {"v": TENSOR})
    assert (packed(kernel) is not None) == goes


def test_a_parameter_and_a_tensor_of_its_name():
    assert packed(define(LOCAL.format("y = N"), "<local>", {"N": TENSOR, "offs": TENSOR})) is not None


def test_a_helper_that_is_hidden_goes():
    kernel = define(LOCAL.format("twice = 1; y = twice"), "<local>", {"twice": HELPER})
    assert "twice" in unpacked(packed(kernel)).fn.__globals__
