"""CONTRIBUTING's examples are run as they are printed, and its table names what is there."""

import linecache
import re
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import check, inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle
from tests.conftest import REPO

TEXT = (REPO / "CONTRIBUTING.md").read_text()
PUZZLE, LAUNCH, BROWSER = (
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
    known = {"Case": Case, "Contract": Contract, "Float32": Float32, "Puzzle": Puzzle, "Size": Size}
    return _defined(PUZZLE, Tensor=Tensor, triton=triton, inputs=inputs, **known)["ROW_SCALE"]


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


def test_its_puzzle_keeps_its_own_rules(puzzle):
    assert max(map(len, puzzle.source().split("\n"))) <= 86  # as tests/test_puzzle.py wants of all
    assert len(puzzle.cases) >= 4
    assert puzzle.spec(torch.ones(2, 3), torch.tensor([1.0, 2.0])).tolist() == [[1] * 3, [2] * 3]


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
