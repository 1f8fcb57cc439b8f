"""Nothing of a run stays in the learner's namespace: what a kernel may say does not depend on the past."""

import linecache
import pydoc
import re

import pytest
import torch
import triton
import triton.language as tl

import puzzles_lib
from puzzles_lib import MASKED_ADD, check, run, stages, trace

SOURCE = """@triton.jit
def helper(x):
    return x + tl.sum(tl.zeros((4,), tl.float32)) + 10

@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, helper(x), mask=offs < N)

@triton.jit
def wrong(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, helper(tl.load(x_ptr + offs)))

@triton.jit
def no_import(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=-np.inf)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)
"""


@pytest.fixture
def notebook():
    """A namespace in which the cell above has been run."""
    name = "<cell of test_namespace>"
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), name)
    namespace = {"triton": triton, "tl": tl, "__name__": "notebook"}
    exec(compile(SOURCE, name, "exec"), namespace)
    return namespace


def test_a_star_brings_all_that_the_course_offers():
    names: dict[str, object] = {}
    exec("from puzzles_lib import *", names)
    assert {"check", "watch", "Case", "MASKED_ADD", "ch02"} <= names.keys()
    assert [name for name in names if name not in ("__builtins__", *puzzles_lib.__all__)] == []


def test_help_is_short_and_names_every_function():
    shown = pydoc.plain(pydoc.render_doc(puzzles_lib))
    assert (
        len(shown.splitlines()) < 400
        and "class Puzzle" not in shown
        and "_missing" not in shown
        and " at 0x" not in shown
    )
    named = re.findall(r"^- `(\w+)` ", puzzles_lib.__doc__, re.MULTILINE)
    assert {*named} == {*dir(puzzles_lib), "Case", "Guard", "Puzzle"} and len(named) == len(set(named))


WORK = {
    "check": lambda kernel: check(kernel, MASKED_ADD),
    "trace": lambda kernel: repr(trace(kernel, MASKED_ADD)),
    "run": lambda kernel: run(kernel, MASKED_ADD, x=torch.ones(8), BLOCK=8),
    "stages": lambda kernel: repr(stages(kernel, MASKED_ADD)),
}


@pytest.mark.parametrize("name", ["kernel", "wrong"])
@pytest.mark.parametrize("work", WORK)
def test_nothing_stays(notebook, work, name):
    before = dict(notebook)
    WORK[work](notebook[name])
    assert notebook.keys() == before.keys()
    assert all(notebook[key] is value for key, value in before.items())


def test_a_verdict_does_not_depend_on_what_ran_before(notebook):
    first = str(check(notebook["no_import"], MASKED_ADD))
    assert "np" in first and "all" not in first.splitlines()[0]
    for work in WORK.values():
        work(notebook["kernel"])
    assert str(check(notebook["no_import"], MASKED_ADD)) == first


def test_what_the_learner_defines_stays(notebook):
    notebook["np"] = "the learner's own"
    assert trace(notebook["kernel"], MASKED_ADD).clean and notebook["np"] == "the learner's own"
