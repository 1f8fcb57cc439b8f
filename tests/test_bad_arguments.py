"""What a notebook shows where an argument is wrong: which, what it may be, and one frame of ours at most."""

import sys

import pytest
import torch

from puzzles_lib import INT8_LINEAR, run
from puzzles_lib.authoring.solutions import solutions

KERNEL = """
import triton
import triton.language as tl
from puzzles_lib import (
    CONSTANT_ADD,
    PAIR_DIFFERENCE,
    check,
    excerpt,
    hint,
    mistake,
    race,
    run,
    stages,
    trace,
    watch,
)
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.inspector.step import step

@triton.jit
def kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)

made = stages(kernel, CONSTANT_ADD)
"""


@pytest.fixture(scope="module")
def shell():
    """An interactive session with a kernel, and what the compiler made of it."""
    from IPython.core.interactiveshell import InteractiveShell

    with pytest.MonkeyPatch.context() as patch:
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance()
        patch.setitem(sys.modules, "__main__", shell.user_module)
        shell.run_line_magic("colors", "nocolor")
        assert shell.run_cell(KERNEL, store_history=True).success
        yield shell
        shell.history_manager.end_session()
        InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    "line, said",
    [
        ("check(kernel, kernel)", "check(kernel, puzzle): puzzle must be a Puzzle, not JITFunction"),
        *(
            (
                f"{call}(CONSTANT_ADD, kernel)",
                f"{call}: the arguments are swapped, write {call}(kernel, CONSTANT_ADD)",
            )
            for call in ("check", "trace", "watch", "stages", "run")
        ),
        ("check(kernel, CONSTANT_ADD, seconds='5')", "check: seconds must be a number above 0, but is '5'"),
        ("trace(kernel, CONSTANT_ADD, case=99)", "trace: case must be from 0 to "),
        ("watch(kernel, CONSTANT_ADD, program='x')", "watch: program must be from 0 to "),
        ("run(kernel, CONSTANT_ADD)", "run: x is missing, constant_add takes Float32[N]"),
        ("run(kernel, CONSTANT_ADD, 1)", "run: name each tensor, as in run(kernel, CONSTANT_ADD, x=...)"),
        ("hint('constant_add')", "hint(PUZZLE): puzzle must be a Puzzle, not str"),
        ("hint(CONSTANT_ADD, 99)", "hint: number must be from 1 to "),
        ("mistake(PAIR_DIFFERENCE, 'x')", "mistake: which must be from 1 to "),
        ("race(kernel)", "race(rung): rung must be a Rung, not JITFunction"),
        ("stages(kernel, CONSTANT_ADD, 'sm_91')", "target must be one of sm_80, sm_90, "),
        ("stages(kernel, CONSTANT_ADD, num_warps=3)", "stages: num_warps must be one of 1, 2, 4, "),
        ("stages(kernel, CONSTANT_ADD, BLOK=8)", "stages: BLOK is not a number of the case, which has "),
        ("made.show('ptxx')", "stage must be one of ttir, ttgir, llir, ptx, sass for sm_90, but is 'ptxx'"),
        (
            "made.show('ptx', around=7)",
            "show: around must be text, but is 7 (for a line, use lines(stage, number))",
        ),
        ("made.show('ptx', 'ld', context='2')", "show: context must be a number of lines, but is '2'"),
        ("made.lines('ttgir', 99)", "source is 99, but the kernel has lines "),
        ("made.line('tl.laod')", "source is 'tl.laod', but the kernel has lines "),
        ("made.text(None)", "stage must be one of ttir, ttgir, llir, ptx, sass for sm_90, but is None"),
        ("made.diff(CONSTANT_ADD)", "diff: other must be what stages(...) returns, not Puzzle"),
        (
            "made.diff(made, 'pptx')",
            "stage must be one of ttir, ttgir, llir, ptx, sass for sm_90, but is 'pptx'",
        ),
        ("made.passes[999]", "there is no pass 999: the passes are 0 to"),
        ("made.passes['coalesce']", "there is no pass 'coalesce'; did you mean tritongpu-coalesce"),
        ("made.passes['tritongpu-colaesce']", "did you mean tritongpu-coalesce"),
        ("step(kernel)", "step: compiled must be what stages(...) returns, not JITFunction"),
        ("resident(32, 0, warps=0)", "resident: warps must be an integer of at least 1, but is 0"),
        ("resident(32, '0', 4)", "resident: shared must be an integer of at least 0, but is '0'"),
        ("excerpt('kernels/quantise.py', 'a', 'b')", "there is no file 'kernels/quantise.py' in the library"),
    ],
)
def test_a_wrong_argument_is_named(shell, capsys, line, said):
    capsys.readouterr()
    result = shell.run_cell(line, store_history=True)
    assert result.error_in_exec is not None
    shown = capsys.readouterr().out.splitlines()
    assert said in shown[0] or said in shown[-1], shown[-1]
    assert sum("/puzzles_lib/" in text for text in shown) <= 1, "\n".join(shown)


def test_a_bad_run_is_a_sentence_and_the_learners_lines(shell, capsys):
    capsys.readouterr()
    shell.run_cell(
        "def mine(x):\n    y = x\n    return run(kernel, CONSTANT_ADD, y=y)\n\nmine(1)", store_history=True
    )
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "TypeError: run: x is missing, constant_add takes Float32[N]"
    assert shown[1:] == ["    line 5: mine(1)", "    line 3 of mine: return run(kernel, CONSTANT_ADD, y=y)"]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"x_scale": "w_scale", "w_scale": "x_scale"}, "but M is 5. Are x_scale and w_scale swapped?"),
        ({"x_scale": "w_scale"}, "but M is 5$"),
        (
            {"BLOCK_M": None, "BLOCK_K": None},
            "BLOCK_M, BLOCK_K are missing, int8_linear needs each as an",
        ),
        ({"BLOCK_M": None}, "BLOCK_M is missing, int8_linear needs it as an integer"),
    ],
)
def test_what_a_bad_run_says(given, said):
    right = {
        "xq": torch.zeros(5, 40, dtype=torch.int8), "x_scale": torch.rand(5),
        "wq": torch.zeros(6, 40, dtype=torch.int8), "w_scale": torch.rand(6), "bias": torch.rand(6),
        "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32,
    }  # fmt: skip
    values = right | {name: right[other] for name, other in given.items() if other}
    values = {name: value for name, value in values.items() if given.get(name, "") is not None}
    with pytest.raises((TypeError, ValueError), match=said):
        run(solutions()["int8_linear"], INT8_LINEAR, **values)
