"""Mistakes as data: edits that apply to the correct kernel, and to nothing else."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD
from puzzles_lib.mistakes import Mistake
from tests.kernels import made
from tests.test_walls import LIBRARY, ROOT, imports_of

MISTAKES = [(chapter, mistake) for chapter in CHAPTERS for mistake in chapter.mistakes]
MODULES = [LIBRARY / "mistakes.py", *sorted(LIBRARY.glob("chapters/*/mistakes.py"))]
SOURCE = """\
@triton.jit
def right(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)
"""


def mistake(edits: dict[str, str]) -> Mistake:
    return Mistake(CONSTANT_ADD, "slip", "A slip.", edits, kind="values", says="z[0]")


def test_edits_are_made():
    assert mistake({"+ 10": "+ 11"}).apply(SOURCE) == SOURCE.replace("10", "11")


def test_a_line_can_go():
    line = "    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)\n"
    assert mistake({line: ""}).apply(SOURCE) == SOURCE.removesuffix(line)


@pytest.mark.parametrize(
    "edits, lines",
    [
        ({"+ 10": "+ 11"}, {4}),
        ({"    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n": ""}, {2, 3}),  # around the gap
        ({"    tl.store": "    if BLOCK:\n        tl.store"}, {4}),  # what only moves in is no slip
        ({"x_ptr, z": "y_ptr, z", "tl.load(x": "tl.load(y"}, {2, 4}),
    ],
)
def test_the_lines_of_a_slip(edits, lines):
    assert mistake(edits).lines(SOURCE) == lines


@pytest.mark.parametrize("order", [1, -1])
def test_edits_see_the_right_kernel_and_not_each_other(order):
    edits = list({"x_ptr +": "z_ptr +", "z_ptr +": "x_ptr +"}.items())[::order]
    assert "tl.store(x_ptr + offs, tl.load(z_ptr + offs) + 10)" in mistake(dict(edits)).apply(SOURCE)


@pytest.mark.parametrize(
    "edits, message",
    [
        ({"+ 12": "+ 11"}, r"slip: '\+ 12' occurs 0 times"),
        ({"offs": "0"}, "slip: 'offs' occurs 3 times"),
        ({"": "0"}, "slip: '' occurs"),
        ({"+ 10": "+ 10"}, "replaced by itself"),
        ({"tl.load(x_ptr": "tl.load(z_ptr", "x_ptr + offs": "x_ptr"}, "'x_ptr \\+ offs' overlaps"),
        ({}, "no edits"),
    ],
)
def test_edits_that_do_not_fit_are_refused(edits, message):
    with pytest.raises(ValueError, match=message):
        mistake(edits).apply(SOURCE)


def test_the_kernel_that_is_made_has_the_mistakes_name_and_reason():
    wrong = made(mistake({"+ 10": "+ 11"}), SOURCE)
    assert (wrong.kernel.__name__, wrong.kernel.__doc__) == ("slip", "A slip.")
    assert (wrong.puzzle, wrong.kind, wrong.says) == (CONSTANT_ADD, "values", "z[0]")
    assert "+ 11" in wrong.kernel.src


def test_right_kernels_have_no_markers_left():
    assert not [name for name, source in kernel_sources().items() if "###" in source]


def test_names_are_unique_identifiers():
    assert all(each.name.isidentifier() for _, each in MISTAKES)
    count = Counter((each.puzzle.name, each.name) for _, each in MISTAKES)
    assert [name for name, times in count.items() if times > 1] == []


def test_a_mistake_stands_in_its_puzzles_chapter():
    assert all(each.puzzle in chapter.puzzles for chapter, each in MISTAKES)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(LIBRARY)))
def test_mistakes_know_puzzles_and_nothing_else(path: Path):
    """Not the answers, which learners do not have, nor the checker, which they are for."""
    ours = {name for name in imports_of(path) if name.startswith("puzzles_lib")}
    allowed = (
        "puzzles_lib.puzzle",
        "puzzles_lib.mistakes",
        f"puzzles_lib.chapters.{path.parent.name}.puzzles",
        f"puzzles_lib.chapters.{path.parent.name}.patients",
    )
    assert all(any(name == a or name.startswith(a + ".") for a in allowed) for name in ours)
    assert "solutions" not in path.read_text()


def test_mistakes_can_be_read_without_the_checker():
    code = (
        "import sys; from puzzles_lib.chapters import CHAPTERS; "
        "assert any(c.mistakes for c in CHAPTERS); "
        "sys.exit(any(m.startswith(('puzzles_lib.checker', 'puzzles_lib.authoring')) for m in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=240)
