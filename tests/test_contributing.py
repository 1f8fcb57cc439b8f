"""CONTRIBUTING's examples are run as they are printed, and its table names what is there."""

import inspect
import linecache
import re
import subprocess
import sys
import textwrap

import pytest
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import check
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from tests import test_baked, test_contract, test_inputs, test_puzzle
from tests.conftest import REPO

TEXT = (REPO / "CONTRIBUTING.md").read_text()
PUZZLE, MISTAKE, LAUNCH, BROWSER = (
    textwrap.dedent(block)
    for block in re.findall(r"^ *```python\n(.*?)^ *```$", TEXT, re.DOTALL | re.MULTILINE)
)


def _defined(source: str, **names: object) -> dict[str, object]:
    """Run an example, whose text the course looks up later."""
    file = f"<CONTRIBUTING {hash(source)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    namespace = {"__name__": __name__, **names}
    exec(compile(source, file, "exec"), namespace)
    return namespace


@pytest.fixture(scope="module")
def puzzle() -> Puzzle:
    return _defined(PUZZLE)["ROW_SCALE"]


@triton.jit
def row_scale_kernel(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) * s[:, None], mask=mask)


@triton.jit
def at_most_256_rows(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < min(M, 256)) & (offs_n[None, :] < N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) * s[:, None], mask=mask)


RULES = (
    test_baked.test_some_draw_goes_beyond_twice_what_holds_the_listed_cases,
    test_contract.test_every_size_of_every_puzzle_is_large_in_some_draw,
    test_contract.test_draws_stay_in_the_contract_and_are_small_enough_to_try,
    test_inputs.test_inputs_have_the_annotated_shape_and_repeat,
    test_puzzle.test_no_line_of_a_statement_is_broken_in_a_window_of_1000_pixels,
    test_puzzle.test_no_formula_is_cut_off_in_a_window_of_1000_pixels,
    test_puzzle.test_every_puzzle_has_cases_of_each_kind,
    test_puzzle.test_every_block_size_fails_to_divide_in_some_case,
    test_puzzle.test_every_grid_axis_has_several_programs_in_some_case,
    test_puzzle.test_every_puzzle_shows_itself,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_its_puzzle_passes_the_tests_of_every_puzzle(puzzle, rule):
    rule(puzzle)


def test_a_limit_that_is_too_small_fails_a_test():
    small = _defined(PUZZLE.replace("Size(300)", "Size(200)"))["ROW_SCALE"]
    with pytest.raises(AssertionError):
        RULES[0](small)


@pytest.mark.parametrize("command", (["format", "--check"], ["check"]), ids=lambda command: command[0])
def test_its_puzzle_passes_the_linter_as_it_stands(command):
    where = ["--stdin-filename", "puzzles_lib/chapters/ch02_broadcasting/puzzles.py", "-"]
    whole = f'"""Puzzles."""\n\n{PUZZLE}'
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", *command, *where],
        input=whole,
        cwd=REPO,
        text=True,
        capture_output=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_its_mistake_gets_the_verdict_that_it_names(puzzle):
    mistake = eval(MISTAKE, {"ROW_SCALE": puzzle, "Mistake": Mistake})
    source = mistake.apply(inspect.getsource(row_scale_kernel.fn))
    wrong = _defined(source, triton=triton, tl=tl)["row_scale_kernel"]
    report = check(wrong, puzzle)
    assert report.verdicts[0].kind == mistake.kind and mistake.says in str(report)


def test_its_puzzle_takes_a_correct_kernel_and_no_kernel_hard_wired_to_256(puzzle):
    assert check(row_scale_kernel, puzzle).ok
    report = check(at_most_256_rows, puzzle)
    assert not report.ok and all(case.ok for case in report.cases if not case.drawn)


@triton.jit
def halved(Data, count, factor, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Data + offs, tl.load(Data + offs, mask=offs < count) * factor, mask=offs < count)


@triton.jit
def halved_past_the_end(Data, count, factor, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Data + offs, tl.load(Data + offs) * factor)


def test_its_puzzle_with_a_launch_judges_a_kernel_of_any_names():
    known = {"Case": Case, "Float32": Float32, "Puzzle": Puzzle}
    puzzle = _defined(LAUNCH, Tensor=Tensor, triton=triton, **known)["SCALED"]
    assert check(halved, puzzle).ok
    assert "of Data in program 1" in str(check(halved_past_the_end, puzzle))


# Collected here, and run with --browser.
test_its_example_of_a_browser_test = next(
    value for name, value in _defined(BROWSER, pytest=pytest).items() if name.startswith("test_")
)


def test_its_table_names_what_is_there():
    table = TEXT.partition("## Where things are")[2].partition("\n\nA check")[0]
    for name in re.findall(
        r"`([\w/]+/[\w./]*)`", table.replace("NN_topic", "01_blocks").replace("chNN", "ch01")
    ):
        assert (REPO / name).exists(), name
    places = re.findall(r"`([A-Z]\w+)` in `([\w/.]+)`", table)
    assert len(places) == 4
    for name, file in (*places, ("MOST_STRIPES", "puzzles_lib/drawing/accesses.py")):
        assert re.search(rf"^(class )?{name}\b", (REPO / file).read_text(), re.MULTILINE), name


def test_its_commands_name_options_that_there_are(pytestconfig):
    for option, file in re.findall(r'PYTEST_ARGS="--(\w+) ([\w./]+)"', TEXT):
        assert pytestconfig.getoption(option) is not None and (REPO / file).exists()
