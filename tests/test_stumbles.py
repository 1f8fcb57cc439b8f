"""What a notebook says below an error of Triton's that a newcomer cannot understand."""

import sys

import pytest

from puzzles_lib import stumbles

KERNEL = """
import triton
import triton.language as tl
import torch

@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1.0)
"""


@pytest.fixture
def shell(monkeypatch):
    """An interactive session that has imported a name of the course."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setitem(sys.modules, "__main__", shell.user_module)
    shell.run_line_magic("colors", "nocolor")
    stumbles.help_below_errors()
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def test_a_timed_kernel_is_helped(shell, capsys):
    shell.run_cell("import triton")
    shell.run_cell("%%time\n@triton.jit\ndef kernel(x_ptr):\n    pass", store_history=True)
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("A cell that begins with %%time hides its text")
    )


def test_a_launch_without_a_gpu_is_helped(shell, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert shell.run_cell(KERNEL, store_history=True).success
    shell.run_cell("kernel[(1,)](torch.zeros(1))", store_history=True)
    assert capsys.readouterr().err.splitlines()[-1].startswith("kernel[grid](...) needs a GPU")


def test_a_launch_without_a_grid_is_helped(shell, capsys):
    assert shell.run_cell(KERNEL, store_history=True).success
    shell.run_cell("kernel(torch.zeros(1))", store_history=True)
    assert capsys.readouterr().err.splitlines()[-1].startswith("A launch needs its grid, in brackets")


@pytest.mark.parametrize("line", ["1", "1 / 0", "1 +"])
def test_nothing_else_is_commented(shell, capsys, line):
    shell.run_cell(line, store_history=True)
    said = capsys.readouterr()
    assert not any(sentence in said.out + said.err for sentence in stumbles.HELP.values())


def test_a_notebook_that_imports_the_course_is_helped(monkeypatch):
    import puzzles_lib

    called = []
    monkeypatch.setattr(stumbles, "help_below_errors", lambda: called.append(1))
    puzzles_lib._help_below_errors.cache_clear()
    for _ in range(2):
        monkeypatch.delitem(vars(puzzles_lib), "Case", raising=False)
        assert puzzles_lib.Case
    assert called == [1]


def test_outside_of_a_notebook_nothing_happens(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    stumbles.help_below_errors()
