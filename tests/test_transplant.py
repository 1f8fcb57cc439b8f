"""A change between two kernels, made in a third one that is written otherwise."""

import ast

import pytest

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.coach.transplant import NoPlace, transplanted

SOURCE = """\
@triton.jit
def right_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    total = tl.zeros((1,), tl.float32)
    for i in range(3):
        total += tl.sum(x, axis=0)
    tl.store(z_ptr + offs, x + 10, mask=mask)
"""
OWN = """\
@triton.jit
def my_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK) + BLOCK * tl.program_id(0)  # mine
    value = tl.load(n + x_ptr, other=0.0, mask=N > n)
    acc = tl.zeros((1,), tl.float32)
    for turn in range(3):
        acc = acc + tl.sum(value, axis=0)
    tl.store(n + z_ptr, (10 + value), mask=n < N)
"""


def disguised(source: str) -> str:
    """Return the same kernel with other local names, without comments, spaced as `ast` does."""
    tree = ast.parse(source)
    kernel = [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1]
    names = [node for node in ast.walk(kernel) if isinstance(node, ast.Name)]
    local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    local -= {each.arg for each in kernel.args.args}
    for node in names:
        node.id = f"my_{node.id}" if node.id in local else node.id
    return ast.unparse(tree) + "\n"


@pytest.mark.parametrize(
    "old, new, line",
    [
        ("x + 10", "x - 10", "    tl.store(n + z_ptr, (value - 10), mask=n < N)"),
        (", other=0.0", "", "    value = tl.load(x_ptr + n, mask=n < N)"),
        ("range(3)", "range(2)", "    for turn in range(2):"),
        ("x = tl.load(", "x = 2 * tl.load(", "    value = 2 * tl.load(x_ptr + n, mask=n < N, other=0.0)"),
        ("    tl.store(", "    x = x * x\n    tl.store(", "    value = value * value"),
        ("N, BLOCK: ", "N, M, BLOCK: ", None),
    ],
)
def test_a_change_is_made_in_the_learners_words(old, new, line):
    if line is None:
        with pytest.raises(NoPlace):
            transplanted(SOURCE, SOURCE.replace(old, new), OWN)
        return
    made = transplanted(SOURCE, SOURCE.replace(old, new), OWN)
    assert line in made.splitlines() and "# mine" in made


def test_a_new_parameter_comes_along():
    wrong = SOURCE.replace("N, BLOCK: ", "N, M, BLOCK: ").replace("x + 10", "x + M")
    assert "def my_kernel(x_ptr, z_ptr, N, M, BLOCK: tl.constexpr)" in transplanted(SOURCE, wrong, OWN)


def test_a_line_goes():
    made = transplanted(SOURCE, SOURCE.replace("        total += tl.sum(x, axis=0)\n", "        pass\n"), OWN)
    assert "acc + tl.sum" not in made and "pass" in made


@pytest.mark.parametrize(
    "own",
    [
        "",
        "x = (",
        OWN.replace("10 + value", "9 + value + 1"),
        OWN + "    tl.store(z_ptr + n, value + 10, mask=n < N)\n",
        "def my_kernel(*a, **k):\n    global q\n    f = lambda: {**k}\n    return [*a]\n",
    ],
)
def test_what_has_no_clear_place_is_refused(own):
    with pytest.raises(NoPlace):
        transplanted(SOURCE, SOURCE.replace("x + 10", "x - 10"), own)


def test_nearly_all_mistakes_can_be_made_in_a_kernel_with_other_names():
    """Those that change many lines can't. The few that differ from a renamed one have other new names."""
    sources = kernel_sources()
    every = [each for chapter in CHAPTERS for each in chapter.mistakes]
    made = same = 0
    for each in every:
        right = sources[each.puzzle.name]
        try:
            found = transplanted(right, each.apply(right), disguised(right))
        except NoPlace:
            continue
        made += 1
        same += ast.dump(ast.parse(found)) == ast.dump(ast.parse(disguised(each.apply(right))))
    assert made > 0.95 * len(every) and same > 0.94 * len(every)
