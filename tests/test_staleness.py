"""A kernel that is older than its cell is judged with a note that says so."""

import sys

import pytest

from puzzles_lib import staleness
from puzzles_lib.chapters import questions
from puzzles_lib.question import Question
from puzzles_lib.staleness import stale_note

SET_UP = "import triton, triton.language as tl\nfrom puzzles_lib import CONSTANT_ADD, check"
KERNEL = """@triton.jit
def kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)
"""
HELPED = """@triton.jit
def helper(x):
    return x + 10

@triton.jit
def kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, helper(tl.load(x_ptr + offs)))
"""


@pytest.fixture
def shell(monkeypatch):
    """An interactive session; `get_ipython` finds it."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setitem(sys.modules, "__main__", shell.user_module)
    shell.run_cell(SET_UP, store_history=True)
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def note_after(shell, *cells: str) -> str:
    for cell in cells:
        shell.run_cell(cell, store_history=True)
    shell.run_cell("report = check(kernel, CONSTANT_ADD)", store_history=True)
    return "\n".join(shell.user_ns["report"].notes)


@pytest.mark.parametrize(
    "cells",
    [
        [KERNEL],
        [KERNEL, KERNEL.replace("10", "11"), KERNEL],
        [KERNEL, "1 / 0"],
        [KERNEL + "\n\n# a word at the end"],
        ["# a comment\n" + KERNEL],
        [HELPED],
        [KERNEL, "# def of a kernel, not one\nx = 'kernel'"],
    ],
)
def test_a_fresh_kernel_has_no_note(shell, capsys, cells):
    assert note_after(shell, *cells) == ""


@pytest.mark.parametrize(
    "cells, name",
    [
        ([KERNEL, KERNEL.replace("+ 10)", "+ 10")], "kernel"),  # a SyntaxError
        ([KERNEL, "undefined_name\n" + KERNEL.replace("10", "9 + 1")], "kernel"),
        ([HELPED, HELPED.replace("x + 10", "x + (10")], "helper"),
        ([HELPED, "boom()\n" + HELPED.split("\n\n")[0].replace("10", "11")], "helper"),
    ],
)
def test_an_old_one_has(shell, capsys, cells, name):
    assert f"this is an older {name}: the newest cell with `def {name}`" in note_after(shell, *cells)


def test_run_refuses_an_old_one(shell, capsys):
    """A picture of what an older kernel computes would be taken for the newer one's."""
    tensors = "x=torch.ones(8), BLOCK=8"
    shell.run_cell("import torch\nfrom puzzles_lib import run", store_history=True)
    for cell in (KERNEL, KERNEL.replace("+ 10)", "+ 10"), f"z = run(kernel, CONSTANT_ADD, {tensors})"):
        shell.run_cell(cell, store_history=True)
    assert "z" not in shell.user_ns and "this is an older kernel" in capsys.readouterr().out


KERNEL_AND_REPORT = KERNEL + "\n\nreport = check(kernel, CONSTANT_ADD)\n"
ASKED = 'answer("ch98-q1", report.passed)'


@pytest.fixture
def asked(shell, monkeypatch, state_dir):
    """A session with a question about which cases pass; a function that runs cells and returns the answer."""
    question = Question("ch98-q1", "Which cases pass?", lambda: {0, 1, 2, 3}, set, nudge="look")
    monkeypatch.setitem(questions(), "ch98-q1", question)
    monkeypatch.setattr(staleness, "_failed", set())
    staleness.note_failures()
    shell.run_cell("from puzzles_lib import answer", store_history=True)

    def after(*cells: str):
        for cell in cells:
            shell.run_cell(cell, store_history=True)
        return shell.run_cell(ASKED, store_history=True).result

    return after


@pytest.mark.parametrize(
    "cell",
    [
        KERNEL_AND_REPORT.replace("+ 10)", "+ 2x)"),  # a SyntaxError
        KERNEL_AND_REPORT.replace("@triton.jit", "@triton.jib"),
        KERNEL_AND_REPORT.replace("check(", "1 / 0 and check("),  # only the kernel is new
        "report, other = check(kernel, CONSTANT_ADD)",
    ],
)
def test_an_answer_about_an_old_report_is_not_checked(asked, capsys, cell):
    assert asked(KERNEL_AND_REPORT).ok
    found = asked(cell)
    assert (found.status, found.words[:32]) == ("not checked", "`report` is from an older run: t")
    assert asked(KERNEL_AND_REPORT).ok


@pytest.mark.parametrize(
    "cell",
    [
        "1 / 0",
        "report.missing",
        "undefined(report == 3)",
        "def other():\n    report = 3\n\n\n1 / 0",
        "report = check(kernel, CONSTANT_ADD)",
    ],
)
def test_errors_elsewhere_leave_an_answer_alone(asked, capsys, cell):
    assert asked(KERNEL_AND_REPORT, cell).ok


def test_outside_of_ipython_there_is_none(monkeypatch):
    from tests.test_turns import right

    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert stale_note(right) == ""
