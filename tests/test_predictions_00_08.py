"""The predictions of chapters 00 to 08: masters answer them, nudges keep them, and runs bear them out."""

import ast
import math
import re
import textwrap

import nbformat
import pytest
import torch
import triton
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from puzzles_lib import answer
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import CHAPTERS, mistakes, puzzles
from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.chapters.ch02_broadcasting.questions import PLANE, counts, window
from puzzles_lib.chapters.ch03_fusion import silu
from puzzles_lib.chapters.ch05_flash_attention import pictures as ch05_pictures
from puzzles_lib.chapters.ch06_convolution import pictures as ch06_pictures
from puzzles_lib.checker import examine
from puzzles_lib.timing.recorded import rows
from tests.conftest import REPO

EARLY = [chapter for chapter in CHAPTERS if chapter.number < "09"]
MINE = {question.id: question for chapter in EARLY for question in chapter.questions}
PUZZLES = {puzzle.name: puzzle for puzzle in (DOUBLE, *puzzles())}

INSIDE = {axis: torch.linspace(-0.1, 0.1, 5) for axis in "xy"}  # of the set: no point leaves
MISTAKES = [
    ("ch00-q2", {0, 1, 2, 3}, "Divide"),
    ("ch00-q2", {2, 3}, "so they need the mask. Which cases don't?"),
    ("ch00-q2", {0, 1, 3}, "begins at element 64"),
    ("ch00-q2", {0, 1, 2}, "begins at element 24"),
    ("ch00-q2", {8, 32}, "look like sizes"),
    ("ch00-q2", {1}, "another case"),
    ("ch00-q2", set(), "every lane have an element"),
    ("ch00-q3", 11, "How many are never written"),
    ("ch00-q3", 20, "Which is the last element"),
    ("ch00-q3", 22, "Which is the last element"),
    ("ch00-q3", 10, "the last element that is written"),
    ("ch00-q3", 0, "mostly the same"),
    ("ch00-q3", 24, "Where does program 1 start"),
    ("ch00-q3", 23, "program 0 store"),
    ("ch01-q1", {32}, "there are more"),
    ("ch01-q1", {32, 128}, "in program 0"),
    ("ch01-q1", {20, 32, 128, 200}, "With N = 200"),
    ("ch01-q1", {200, 65}, "lane 0 of program 6 is element 192"),
    ("ch01-q1", {20, 65}, "lane 0 of program 1 is element 64"),
    ("ch01-q2", (13,), "two numbers"),
    ("ch01-q2", (12, 0), "compares with N - 1"),
    ("ch01-q2", (13, 0), "in lane 19"),
    ("ch01-q2", (13, 13), "from 20 on"),
    ("ch01-q2", (19, 1), "leaves on"),
    ("ch01-q2", (1, 13), "wrong order"),
    ("ch01-q2", (14, 1), "True in lane 18"),
    ("ch01-q2", (20, 1), "Which lanes have offs < N - 1"),
    ("ch02-q1", (30,), "two numbers"),
    ("ch02-q1", (0, 30), "Where does memory continue"),
    ("ch02-q1", (0, 1), "The row comes first"),
    ("ch02-q1", (2, 2), "Count the elements"),
    ("ch02-q2", (3,), "two numbers"),
    ("ch02-q2", (7, 3), "wrong order"),
    ("ch02-q2", (1, 1), "a single tile"),
    ("ch02-q2", (21, 21), "one above the other"),
    ("ch02-q2", (3, 3), "x is correct"),
    ("ch02-q2", (90, 7), "y is correct"),
    ("ch03-q1", 4 * 8192**2, "one direction"),
    ("ch03-q1", 2 * 8192**2, "How many bytes"),
    ("ch03-q1", 8192**2, "both directions"),
    ("ch03-q1", 2000, "no longer go to memory"),
    ("ch03-q1", -8 * 8192**2, "leave out the minus"),
    ("ch03-q1", 512, "MB or GB"),
    ("ch03-q1", 537, "MB or GB"),
    ("ch03-q1", 536_000_000, "but rounded"),
    ("ch03-q1", 8 * 8192**2 + 1, "but rounded"),
    ("ch03-q1", 3, "how many trips"),
    ("ch03-q1", 8 * 8192**2 - 4 * 2 * 8192, "Both versions read x and y once"),
    ("ch03-q1", 8 * 8192**2 + 4 * 2 * 8192, "reads only the product"),
    ("ch03-q2", (0, 90), "three numbers"),
    ("ch03-q2", (0, 60, 90), "At exactly 0"),
    ("ch03-q2", (0, 0, 30), "But by how much"),
    ("ch03-q2", (0, 0, 3), "And the loss"),
    ("ch03-q2", (0, 0, 6), "z itself"),
    ("ch03-q2", (0, 0, 60), "dz * x"),
    ("ch03-q2", (10, 20, 30), "Begin with the first"),
    ("ch03-q2", (-10, 0, 30), "Begin with the first"),
    ("ch03-q2", (30, 60, 90), "dz * y everywhere"),
    ("ch03-q2", (0, 0, 1), "one element at a time"),
    ("ch03-q1", 12 * 8192**2, "the two kernels move"),
    ("ch03-q1", 12 * 8192**2 + 65_536, "the two kernels move"),
    ("ch03-q1", 4 * 8192**2 + 65_536, "the fused kernel moves"),
    ("ch04-q2", 1, "an element of x"),
    ("ch04-q2", float("nan"), "denominator of 0"),
    ("ch04-q2", -1000, "never negative"),
    ("ch04-q2", 0.333, "Equal thirds"),
    ("ch04-q2", 0.5, "and its padding"),
    ("ch04-q3", 8, "the cases from 0"),
    ("ch04-q3", 4, "far below 0"),
    ("ch04-q3", 2, "is -inf. Which label"),
    ("ch04-q3", 9, "after a whole block"),
    ("ch04-q4", 3, "Did you count from 1"),
    ("ch04-q4", 0, "from 1, and acc is 0"),
    ("ch04-q4", 1, "are masked off"),
    ("ch04-q5", 5000, "13 binary digits"),
    ("ch04-q5", 2047, "eleven ones"),
    ("ch04-q5", 11, "ends in a 1"),
    ("ch04-q6", 2.718, "grow or shrink"),
    ("ch04-q6", -1, "change of the exponent"),
    ("ch04-q6", 0.75, "Divide the second"),
    ("ch04-q7", (20,), "how many iterations"),
    ("ch04-q7", (63, 20), "walks all columns"),
    ("ch04-q7", (62,), "the last 8"),
    ("ch04-q7", (1000,), "one program per row"),
    ("ch04-q7", (16,), "rounds up"),
    ("ch05-q1", 4, "moved once"),
    ("ch05-q1", 1, "walks all keys"),
    ("ch05-q1", 10, "sum over the four"),
    ("ch05-q1", 8, "taken together"),
    ("ch05-q1", 1.5, "two programs"),
    ("ch05-q1", 3, "take the mean"),
    ("ch05-q2", set(), "gets one case right"),
    ("ch05-q2", {1}, "the cases from 0"),
    ("ch05-q2", {0, 5}, "too many"),
    ("ch05-q2", {2, 3}, "no earlier blocks"),
    ("ch05-q3", 32, "entirely in the future"),
    ("ch05-q3", 16, "exactly half"),
    ("ch05-q3", 8, "all four programs"),
    ("ch05-q3", 12, "seen in full"),
    ("ch05-q3", 10, "blocks of 128 keys"),
    ("ch05-q3", 24, "one too many per program"),
    ("ch05-q3", 18, "How far does the last query"),
    ("ch05-q4", 49.8, "has to shrink"),
    ("ch05-q4", 5.4, "its p times its value"),
    ("ch05-q4", 6.4, "belongs to the denominator"),
    ("ch05-q4", 6.7, "already relative"),
    ("ch05-q4", 24.7, "exp(-1) of block 2"),
    ("ch05-q4", 113.7, "relative to the old maximum"),
    ("ch05-q4", 304.4, "Did you divide by the factor"),
    ("ch05-q4", 12.8, "final result"),
    ("ch05-q4", 10, "what the new key adds"),
    ("ch05-q4", 1, "As in block 2"),
    ("ch05-q4", 12.0, "exp(3 - 6)"),
    ("ch05-q4", 6, "That is the score"),
    ("ch05-q4", -1e9, "doesn't become negative"),
    ("ch05-q4", 27.15, "That is z after two blocks"),
    ("ch05-q4", 13.7, "isn't divided yet"),
    ("ch05-q4", 15, "one digit after the point"),
    ("ch05-q4", 15.6, "exp(-2) = 0.1353"),
    ("ch05-q4", 39.85, "the old acc, after two blocks"),
    ("ch05-q7", 50, "in percent"),
    ("ch05-q9", (0,), "two numbers"),
    ("ch05-q9", (math.nan, math.nan), "is new_max -inf"),
    ("ch05-q9", (1, 0), "swapped"),
    ("ch05-q9", (1, 1), "The factor is right"),
    ("ch05-q9", (0, 0), "p is right"),
    ("ch05-q9", (0.5, 0.5), "old minus new"),
    ("ch05-q7", 0, "add up to 1"),
    ("ch05-q7", 1, "itself as well"),
    ("ch05-q7", 0.125, "eight equal weights"),
    ("ch05-q7", 0.3, "fits none of the keys"),
    ("ch06-q1", 40, "First multiply each"),
    ("ch06-q1", 17, "one more, in the row below"),
    ("ch06-q1", 230, "Which numbers of the filter"),
    ("ch06-q1", 113, "both pixels, both products"),
    ("ch06-q1", 0, "cover a pixel"),
    ("ch06-q2", set(), "hangs over the edge"),
    ("ch06-q2", {7}, "more than one column"),
    ("ch06-q2", {5, 6, 7}, "whole window is inside"),
    ("ch06-q2", {7, 8}, "no column 8"),
    ("ch06-q2", {0}, "a window of 3"),
    ("ch06-q3", ((-1, -1, -1), (-1, 8, -1), (-1, -1, -1)), "nine numbers in one tuple"),
    ("ch06-q3", (0,) * 9, "at an edge as well"),
    ("ch06-q3", (1,) * 9, "that are all 1"),
    ("ch06-q4", (25_600,), "two numbers"),
    ("ch06-q4", (1296, 25_600), "in the wrong order"),
    ("ch06-q4", (1296, 1296), "its own tile"),
    ("ch06-q4", (25_600, 1024), "the tile and its halo"),
    ("ch06-q4", (25_600, 1600), "all four sides"),
    ("ch06-q4", (25_600, 1369), "has no halo"),
    ("ch06-q4", (25_600, 34 * 34), "loads are correct. Now"),
    ("ch06-q4", (1024, 1024), "shifted tiles cover"),
    ("ch06-q4", (1024, 1296), "different pixels are correct"),
    ("ch06-q5", (1, 4), "four numbers"),
    ("ch06-q5", (0, 3, 0, 7), "on other pixels"),
    ("ch06-q5", (2, 5, 1, 8), "are swapped"),
    ("ch06-q5", (1, 5, 2, 10), "one pixel for each result"),
    ("ch06-q5", (2, 9, 1, 4), "Put the rows first"),
    ("ch06-q5", (0, 3, 1, 8), "a centered filter"),
    ("ch06-q5", (0, 2, -1, 6), "a centered filter"),
    ("ch06-q5", (0, 4, 0, 9), "the last result"),
    ("ch06-q6", (32, 64, 1332), "product is 1024"),
    ("ch06-q6", (16, 64), "three numbers"),
    ("ch06-q6", (16, 64, 1296), "another number of pixels"),
    ("ch06-q6", (64, 16, 66 * 26), "wider than high"),
    ("ch06-q6", (32, 32, 34 * 42), "for a square filter"),
    ("ch06-q6", (8, 128, 10 * 138), "another tile needs fewer"),
    ("ch06-q7", ((1, 2, 1), (0, 0, 0), (-1, -2, -1)), "nine numbers in one tuple"),
    ("ch06-q7", (1, 0, -1) * 3, "At a horizontal edge"),
    ("ch06-q7", (1, 1, 1, 0, 0, 0, 0, 0, 0), "Begin with that"),
    ("ch06-q7", (-1, -1, -1, -1, 8, -1, -1, -1, -1), "sees vertical edges"),
    ("ch07-q1", {0, 4}, "a single matrix"),
    ("ch07-q1", {3}, "no distance be wrong"),
    ("ch07-q1", {0}, "only one matrix"),
    ("ch07-q1", {0, 1, 3, 4}, "matrix 1 begin"),
    ("ch07-q1", {1}, "for every pid_b"),
    ("ch07-q3", {0, 1, 2, 3, 4}, "rounded each time"),
    ("ch07-q3", set(), "would do that anyway"),
    ("ch07-q3", {0, 1}, "How often is the sum rounded"),
    ("ch07-q4", 4, "the nearest one"),
    ("ch07-q4", 1, "twice as far apart"),
    ("ch07-q4", 2048, "How far apart"),
    ("ch07-q5", {"0"}, "the only one"),
    ("ch07-q5", {"0", "1", "inf"}, "in Python"),
    ("ch07-q5", {"2"}, "names in quotes"),
    ("ch07-q5", {"1"}, "and the product is added"),
    ("ch07-q6", {"M"}, "set of names"),
    ("ch07-q6", {"BLOCK_M", "BLOCK_N", "BLOCK_K"}, "more numbers does it load"),
    ("ch07-q6", {"BLOCK_M"}, "exchange rows and columns"),
    ("ch07-q6", set(), "how many products"),
    ("ch07-q7", (256, 128), "three powers of two"),
    ("ch07-q7", (256, 128, 32), "fewer than 132 programs"),
    ("ch07-q7", (16, 4096, 16), "This accumulator"),
    ("ch07-q7", (128, 128, 256), "makes both tiles smaller"),
    ("ch07-q7", (64, 128, 32), "9.4 MB of x and 15.7 MB of y"),
    ("ch07-q7", (64, 64, 64), "both cost the same here: 15.7 MB"),
    ("ch07-q7", (32, 512, 16), "3.1 MB of x and 31.5 MB of y"),
    ("ch07-q7", (128, 128, 32), "longer iterations"),
    ("ch07-q7", (128, 64, 32), "most of its bytes are x's"),
    ("ch07-q8", (1, 2, 3, 4), "Return a pair"),
    ("ch07-q8", ((1, 16), (16, 1), (16, 1), (5, 2)), "are exchanged"),
    ("ch07-q8", ((16, 1), (1, 16), (1, 16), (1, 4)), "only partly inside z"),
    ("ch07-q8", ((16, 1), (1, 16), (1, 16), (50 / 32, 70 / 16)), "only partly inside z"),
    ("ch07-q8", ((2, 2), (2, 2), (1, 1), (2, 2)), "longer BLOCK_K change"),
    ("ch07-q8", ((16, 1), (1, 1), (1, 1), (2, 1)), "the same columns of y"),
    ("ch07-q8", ((1, 1), (1, 16), (1, 16), (1, 5)), "the same rows of x"),
    ("ch07-q8", ((16, 16), (16, 16), (16, 16), (10, 10)), "how many programs there are"),
    ("ch07-q8", ((1, 1), (1, 1), (1, 1), (1, 1)), "Take the first shape"),
    ("ch08-q1", set(range(8)), "above the chosen one"),
    ("ch08-q1", set(), "nothing above it"),
    ("ch08-q1", {6, 7}, "bring down, too"),
    ("ch08-q1", {0}, "the whole word"),
    ("ch08-q2", set(), "Some cases do pass"),
    ("ch08-q2", {0, 4}, "see its inputs"),
    ("ch08-q2", {0, 1, 4, 5}, "aren't all alike"),
    ("ch08-q2", {0}, "more cases pass"),
    ("ch08-q2", {0, 1}, "room for eight"),
    ("ch08-q3", 1, "could manage that"),
    ("ch08-q3", 8, "Look at N"),
    ("ch08-q3", 2, "how many lanes load it"),
    ("ch08-q3", 9360, "per word"),
    ("ch08-q3", 64, "Follow one word"),
    ("ch00-q1", (1418,), "two numbers"),
    ("ch00-q1", (394, 2), "wrong order"),
    ("ch00-q1", (2, 1418), "from the beginning of the program's block"),
    ("ch00-q1", (3, 394), "programs count from 0"),
    ("ch00-q1", (2, 393), "Lanes count from 0"),
    ("ch00-q1", (2, 7), "That one is in lane 0"),
    ("ch00-q1", (14, 74), "programs 0 to 11"),
    ("ch00-q1", (1, 906), "the lanes 0 to 511"),
    ("ch00-q1", (4, 4), "Where does program 2 begin"),
    ("ch00-q2", {0, 1, 4}, "There is no case 4"),
    ("ch01-q1", {20, 32, 64}, "among the six sizes"),
    ("ch01-q1", {1, 3}, "numbers of cases"),
    ("ch01-q1", {20, 32, 128, 1000}, "program 3 is element 768"),
    ("ch01-q1", set(), "Does the mask do harm there"),
    ("ch08-q4", 8, "moved twice"),
    ("ch08-q4", 9, "what 12b moves"),
    ("ch08-q4", 16, "read the code, too"),
    ("ch08-q4", 4, "read either way"),
    ("ch08-q5", 16, "whole row of results"),
    ("ch08-q5", 2048, "depend on k"),
    ("ch08-q5", 128, "other than to each weight"),
    ("ch08-q6", "tf32", "in quotes above"),
    ("ch08-q6", "groups", "products of the others"),
    ("ch08-q6", "words", "less than you'd think"),
    ("ch08-q6", "tiles", "nearly all of the arithmetic"),
    ("ch08-q7", (16, 16), "three powers of two"),
    ("ch08-q7", (16, 64, 128), "How narrow"),
    ("ch08-q7", (16, 16, 256), "several groups"),
    ("ch08-q7", (16, 16, 32), "several iterations"),
    ("ch08-q7", (32, 16, 128), "how many programs"),
    ("ch02-q5", (4000,), "two numbers"),
    ("ch02-q5", (12_000_000, 12_000_000), "correct for written"),
    ("ch02-q5", (4000, 4000), "correct for expanded"),
    ("ch02-q5", (12_000_000, 4000), "a copy"),
    ("ch02-q5", (1000, 3_000_000), "How many bytes"),
    ("ch02-q5", (4000, 12_000), "does written keep"),
    ("ch02-q5", (12_000, 12_000_000), "does expanded keep"),
    ("ch02-q5", (4000, 3_000_000), "For written, it's the number of numbers"),
    ("ch02-q5", (1, 2), "each version keep"),
    ("ch00-q4", {0, 1, 2, 3}, "Case 2 passes, too"),
    ("ch00-q4", {1}, "doesn't pass case 0"),
    ("ch00-q4", {0}, "doesn't pass case 1"),
    ("ch02-q6", (None,) * 6, "Return a pair"),
    ("ch02-q6", ((1, 1), (3, 4), (7, 3), (2, 7), (2, 2), (1875, 2188)), "two axes are swapped"),
    ("ch02-q6", ((1, 1), (4, 3), (2, 6), (6, 1), (1, 1), (2187, 1875)), "fit entirely"),
    ("ch02-q6", ((2, 2),) * 6, "Case 0 comes out wrong"),
    ("ch02-q6", ((1, 1), (4, 3), (3, 7), (7, 2), (2, 2), (1, 1)), "Case 2 comes out wrong"),
    ("ch02-q6", ((1.0, 1.0), (4.0, 3.0), (2.8125, 6.25)) + ((1.0, 1.0),) * 3, "whole numbers"),
    ("ch02-q6", ((2, 2), (5, 4), (3, 7), (7, 2), (2, 2), (2188, 1876)), "a tile too many"),
    ("ch02-q6", ((1, 1), (2, 6), (6, 4), (2, 6), (1, 3), (4375, 938)), "block sizes are exchanged"),
    ("ch02-q6", ((1, 1), (4, 4)) + ((3, 7),) * 4, "Case 1 comes out wrong"),
    ("ch02-q7", (counts(**PLANE, steps=30, slip="order"), PLANE), "made from the new a"),
    ("ch02-q7", (counts(**PLANE, steps=30, slip="limit"), PLANE), "below 2"),
    ("ch02-q7", (counts(**PLANE, steps=30, slip="moment"), PLANE), "1 too high"),
    ("ch02-q7", (torch.full((100, 140), 30.0), PLANE), "Do a and b change"),
    ("ch02-q7", (torch.full((5, 5), 30.0), INSIDE), "can't show whether your loop is correct"),
    ("ch02-q7", (counts(**PLANE, steps=30, slip="side"), PLANE), "Turn the comparison around"),
    ("ch02-q7", (2 * counts(**PLANE, steps=30), PLANE), "isn't the Mandelbrot set yet"),
    ("ch02-q8", (8, 8), "twice as large"),
    ("ch02-q8", (32, 16), "twice as large"),
    ("ch02-q8", (16, 64), "of the same area"),
    ("ch02-q8", (128, 128), "fewer than 12 programs"),
    ("ch02-q8", (48, 32), "the sliders can show"),
    ("ch02-q8", (32,), "the sliders can show"),
    ("ch02-q9", [[1.0] * 12] * 12, "come after them"),
    ("ch02-q9", window(size=1), "isn't the window yet"),
    ("ch02-q9", window(back=False), "see the next ones"),
    ("ch02-q9", window(size=5), "too long"),
    ("ch02-q9", window(size=3), "too short"),
    ("ch02-q9", window(size=12), "the causal mask"),
    ("ch02-q9", [[int(m - n < 4) for n in range(12)] for m in range(12)], "come after them"),
    ("ch02-q9", [[int(0 < m - n <= 4) for n in range(12)] for m in range(12)], "don't see themselves"),
    ("ch03-q4", 1.06, "the fused kernel"),
    ("ch03-q4", 2.04, "one extra trip"),
    ("ch03-q4", 5.0, "the third row"),
    ("ch03-q5", silu.gradient("y").tolist(), "chain rule multiply it by"),
    ("ch03-q5", silu.gradient("sigmoid").tolist(), "only the first term"),
    ("ch03-q5", silu.gradient("other").tolist(), "only the second term"),
    ("ch03-q5", silu.gradient("forward").tolist(), "the SiLU itself"),
    ("ch03-q5", silu.gradient("dz").tolist(), "dz is missing"),
    ("ch03-q5", silu.gradient("x").tolist(), "doesn't grow by x"),
    ("ch03-q5", silu.gradient("minus").tolist(), "adds its terms"),
    ("ch03-q5", silu.gradient("negative").tolist(), "wrong sign"),
    ("ch03-q5", silu.gradient("exponent").tolist(), "shuts as t grows"),
    ("ch03-q5", silu.gradient("t").tolist(), "multiply by x"),
    ("ch03-q5", silu.gradient("gate").tolist(), "Below 0, the SiLU has a slope"),
    ("ch03-q5", silu.gradient("relu").tolist(), "the gradient of the relu"),
    ("ch03-q5", silu.gradient("product").tolist(), "still needs its factor"),
    ("ch03-q5", silu.gradient("brackets").tolist(), "put brackets"),
    ("ch03-q5", silu.gradient("plus").tolist(), "has 1 + s"),
    ("ch03-q5", silu.gradient("slope").tolist(), "the sigmoid alone"),
    ("ch03-q5", [[0.0]], "differs from PyTorch's"),
]


@pytest.fixture(autouse=True)
def _no_progress(state_dir):
    """What these tests answer is nobody's progress."""


def cells(number: str) -> dict[str, str]:
    (path,) = (REPO / "solutions").glob(f"{number}_*.ipynb")
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


@pytest.mark.parametrize("chapter", EARLY, ids=lambda chapter: chapter.number)
def test_every_chapter_asks_two_to_seven(chapter):
    ids = [i for i in cells(chapter.number) if re.fullmatch(r"q\d+", i)]
    assert sorted(ids) == [question.id.partition("-")[2] for question in chapter.questions]
    assert 2 <= len(ids) <= 7


@pytest.mark.parametrize("id", MINE)
def test_the_masters_answer_is_right(id):
    number, cell = id.removeprefix("ch").split("-")
    if MINE[id].computed:  # by the learner's kernel: tests/test_early_chapters.py runs the master's
        assert f'answer("{id}"' in cells(number)[cell] and answer(id, MINE[id].right()).ok
        return
    *lines, asked = ast.parse(cells(number)[cell]).body
    names = {"triton": triton}
    exec(compile(ast.Module(lines, []), id, "exec"), names)
    assert answer(id, names[asked.value.args[1].id]).ok
    assert f'answer("{id}"' in ast.unparse(asked).replace("'", '"')


@pytest.mark.parametrize("id, value, words", MISTAKES)
def test_a_mistake_is_answered_by_its_nudge(id, value, words):
    given = answer(id, value)
    assert given.status == "wrong" and words in given.words


def test_every_nudge_is_reached_by_some_mistake():
    reached = {answer(id, value).words for id, value, _ in MISTAKES}
    said = {n.words for q in MINE.values() for n in q.nudges} | {q.nudge for q in MINE.values()}
    forms = [re.sub(r"\\{.*?\\}", ".*", re.escape(words)) for words in said]  # numbers are inserted
    assert not [form for form in forms if not any(re.fullmatch(form, words) for words in reached)]
    assert not [words for words in reached if not any(re.fullmatch(form, words) for form in forms)]


@pytest.mark.parametrize("id", MINE)
def test_no_nudge_gives_the_answer_away(id):
    question, right = MINE[id], MINE[id].right()
    secrets = [str(right)] if not isinstance(right, set | tuple) else [str(right), str(right)[1:-1]]
    for text in (question.nudge, *(n.words for n in question.nudges)):
        for each in secrets:
            if len(each) > 1:  # 0, 1 and 2 are words of any sentence about numbers
                assert not re.search(rf"(?<![\w.]){re.escape(each)}(?![\w])", text), text


@pytest.mark.parametrize(
    "taps", [(-1, -1, -1, -1, 8, -1, -1, -1, -1), (1, 0, -1) * 3, [0, 0, 0, 0.1, -0.3, 0.2, 0, 0, 0]]
)
def test_any_filter_that_is_0_where_nothing_changes_finds_edges(taps):
    assert answer("ch06-q3", taps).ok
    w = torch.tensor(taps).float().view(3, 3)
    flat, step = torch.ones(1, 5, 5), (torch.arange(5.0) > 1).expand(1, 5, 5).float()
    on_flat, on_step = (PUZZLES["conv2d"].spec(x, w)[0, :3, :3].abs() for x in (flat, step))
    assert on_flat.max() < 1e-6 < on_step.max()


@pytest.mark.parametrize("taps", [(1, 1, 1, 0, 0, 0, -1, -1, -1), [0, 0.1, 0, 0, -0.3, 0, 0, 0.2, 0]])
def test_a_filter_for_level_edges_gives_0_at_upright_ones(taps):
    w = torch.tensor(taps).float().view(3, 3)
    upright = (torch.arange(5.0) > 1).expand(1, 5, 5).float()
    level = upright.mT.contiguous()
    on_upright, on_level = (PUZZLES["conv2d"].spec(x, w)[0, :3, :3].abs().max() for x in (upright, level))
    assert answer("ch06-q7", taps).ok and on_upright < 1e-6 < on_level
    assert not answer("ch06-q7", tuple(w.T.flatten().tolist())).ok  # the same filter for upright edges


# ---- what chapter 06 is for


def test_the_tile_on_a_budget_of_chapter_06_loads_the_fewest_different_pixels():
    def different(BLOCK_H: int, BLOCK_W: int) -> int:
        x, w = torch.zeros(1, BLOCK_H + 8, BLOCK_W + 16, requires_grad=True), torch.ones(3, 11)
        PUZZLES["conv2d"].spec(x, w)[0, :BLOCK_H, :BLOCK_W].sum().backward()
        return int((x.grad > 0).sum())

    tiles = [(2**power, 1024 // 2**power) for power in range(11)]
    counted = [(*tile, different(*tile)) for tile in tiles]
    assert [each for each in counted if answer("ch06-q6", each).ok] == [
        min(counted, key=lambda each: each[2])
    ]


def test_a_hidden_tile_of_chapter_05_adds_nothing():
    """Query 0 after its first tile, whose score is 2."""
    row_max, scores = torch.tensor(2.0), torch.full((2,), -torch.inf)
    new_max = row_max.maximum(scores.max())
    p, factor = (scores - new_max).exp(), (row_max - new_max).exp()
    assert (float(p[0]), float(factor)) == MINE["ch05-q9"].right() and p[0] == p[1]
    assert "is 2 " in cells("05")["q9-ask"]


def test_chapter_05_shares_the_weight_if_a_word_looks_for_a_later_one():
    words, q, k = ch05_pictures.sentence(cat="tired")
    weights = PUZZLES["flash_attention"].spec(q, k, torch.eye(len(words)))
    assert weights[words.index("cat"), words.index("the")] == MINE["ch05-q7"].right()
    with pytest.raises(ValueError, match="sentence: 'dog' is not one of the words the, cat"):
        ch05_pictures.sentence(it="dog")


def test_a_grid_with_further_axes_of_length_1_launches_the_same_programs():
    assert answer("ch04-q7", (63, 1)).ok and answer("ch04-q7", (63, 1, 1)).ok


def test_chapter_06_counts_what_a_program_loads_as_its_kernel_does():
    """A tile in the middle of an image: 5 x 5 turns of loads, and no pixel beyond the halo."""
    right = MINE["ch06-q4"].right()
    x, w = torch.zeros(1, 36, 36, requires_grad=True), torch.ones(5, 5)
    PUZZLES["conv2d"].spec(x, w)[0, :32, :32].sum().backward()
    assert right == (int(x.grad.sum()), int((x.grad > 0).sum()))


def test_chapter_06_shows_a_picture_blurred_and_its_edges():
    conv2d, pictures = PUZZLES["conv2d"].spec, ch06_pictures
    x = pictures.scene()
    blurred = conv2d(x[None], torch.full((5, 5), 1 / 25))[0]
    edges = conv2d(x[None], torch.tensor([[-1.0, -1, -1], [-1, 8, -1], [-1, -1, -1]]))[0]
    for shown in (pictures.filters(), pictures.gallery(x=x, blurred=blurred, edges=edges)):
        for name, image in (("x", x), ("blurred", blurred), ("edges", edges)):
            span = f"64 x 96 pixels from {image.min():.2f} to {image.max():.2f}"
            assert re.search(rf"\b{name} \([^)]*\), {re.escape(span)}", shown.alt), shown.alt
    assert "edges (0 is gray)" in shown.alt and "x (0 is black, 1 white)" in shown.alt


def test_a_window_of_chapter_06_has_the_colour_of_its_result_and_nothing_lies_across_the_filter():
    ax = ch06_pictures.window(H=4, W=6, KH=2, KW=3).figure.axes[0]
    fills = [to_hex(shape.get_facecolor()) for shape in ax.patches]
    for colour in (ch06_pictures.TILE, ch06_pictures.HALO):
        assert fills.count(colour.lower()) == 2 * 3 + 1
    assert {type(shape) for shape in ax.patches} == {Rectangle}


# ---- what the wrong kernels do


@pytest.mark.parametrize(
    "id, cell",
    [
        ("ch00-q2", "break-mask"),
        ("ch04-q3", "start_at_minus_infinity"),
        ("ch05-q2", "p9-wrong"),
        ("ch07-q1", "p11-break"),
        ("ch07-q3", "p11-wrong"),
        ("ch08-q2", "p12b-break"),
    ],
)
def test_the_wrong_kernel_passes_what_the_prediction_says(id, cell):
    if id == "ch04-q3":  # the text tells of this kernel, and shows none
        slip = (None, "online_softmax", cell)
        source = ""
    else:
        source = cells(id[2:4])[cell]
        slip = re.search(r'mistake\((\w+), "(\w+)"\)', source)
    if slip:
        puzzle = PUZZLES[slip[1].lower()]
        (wrong,) = (each for each in mistakes(puzzle) if each.name == slip[2])
        body = wrong.apply(kernel_sources()[puzzle.name])
    else:
        body, _, check = source.partition("\n\n\ncheck(")
        check = check or cells(id[2:4])[f"{cell}-tried"]  # the question is between kernel and check
        puzzle = PUZZLES[check.split(", ")[1].rstrip(")").lower()]
    report = examine(define(body, f"<{cell} of {id}>"), puzzle)
    passed = {i for i, case in enumerate(report.cases) if case.ok}
    right = MINE[id].right()
    if id == "ch04-q3":
        assert {*range(len(report.cases))} - passed == {right}
    else:
        assert right in (passed, len(passed))


def test_the_product_sent_to_memory_and_back_passes_at_the_cost_that_chapter_03_tells():
    told = cells("03")["p5-detour"]
    lines = textwrap.indent(re.search(r"```python\n(.*?)```", told, re.DOTALL)[1], "    ")
    fused = kernel_sources()["mul_relu"]
    detour = re.sub(r"(?m)^    product = .*\n", lambda found: found[0] + lines, fused)
    reports = [examine(define(source, "<fusion>"), PUZZLES["mul_relu"]) for source in (fused, detour)]
    assert all(report.ok for report in reports)
    costs = [re.search(r"\((.*)\)", report.cases[2].cost())[1] for report in reports]
    assert f"was {costs[0]}." in cells("03")["q4-ask"]
    assert costs[1] == f"{MINE['ch03-q4'].right()}x"


@pytest.mark.parametrize(
    "cell, bench, case, path, baseline, digits",
    [
        (
            ("00", "why-idea"),
            "memory",
            "2 bits, groups of 256, 100864x768",
            "quantize_pack",
            "torch.compile",
            0,
        ),
        (
            ("08", "end-idea-5"),
            "quantized-matmul",
            "4 bits, groups of 128, 4096x4096, N = 1",
            "dequant_gemm",
            "cuBLAS, bfloat16 weight",
            1,
        ),
    ],
)
def test_times_in_the_prose_are_recorded(cell, bench, case, path, baseline, digits):
    (row,) = (r for r in rows(bench) if (r["case"], r["path"], r["baseline"]) == (case, path, baseline))
    for figure in ("us", "baseline_us"):
        assert f"{row[figure]:.{digits}f} µs" in cells(cell[0])[cell[1]]


def test_no_kernel_of_chapter_00s_example_can_be_faster_than_its_bytes():
    numbers = 100_864 * 768
    moved = 2 * numbers + numbers / 4 + 2 * 2 * numbers / 256  # bfloat16, 2-bit codes, scale and offset
    least = moved / 4.8e12 * 1e6
    told = cells("00")["why-idea"]
    assert f"{numbers / 1e6:.0f} million" in told and f"{least:.0f} µs" in told
    assert 3.5 < 139 / least < 4 and "almost four times" in told


def test_the_steps_of_chapter_08_are_recorded():
    steps = [row["us"] for row in rows("quantized-matmul") if row["case"].endswith("N = 1")][:5]
    prose = cells("08")
    assert f"{steps[0]:.0f} µs" in prose["fast-idea"]
    assert f"{steps[0] / steps[-1]:.0f} times as fast" in prose["end-idea-5"]


def test_times_and_memory_in_chapters_04_and_05_are_recorded():
    took = {(row["case"], row["path"]): row for row in rows("lessons")}
    of_softmax = {path: row["us"] / 1000 for (case, path), row in took.items() if case.startswith("softmax")}
    told = cells("04")["p8b-clock"]
    assert f"three loops | {of_softmax['puzzle 8, blocks of 128']:.2f} ms" in told
    assert f"two loops | {of_softmax['puzzle 8b, blocks of 128']:.2f} ms" in told
    assert f"take {of_softmax['puzzle 8b, blocks of 2048']:.2f} ms" in told
    assert f"`softmax` takes {of_softmax['torch.softmax']:.2f} ms" in told
    moved = 3 * 4 * 8192 * 32768  # bytes: two loads and a store of each number
    rate = moved / of_softmax["puzzle 8b, blocks of 128"] / 1e9
    assert f"load and store {rate:.1f} TB per second; the memory can do 3.35" in told
    assert f"each loop has {32768 // 128} iterations" in told and f"there are {32768 // 2048}" in told
    took = {(row["case"], row["path"]): row for row in rows("fused")}
    paths = {
        "PyTorch calls that store all scores": "PyTorch, all scores stored",
        "PyTorch's `scaled_dot_product_attention`": "scaled_dot_product_attention",
    }
    heads = "32 heads of 4096 tokens, D = 64, bfloat16"
    for name, path in {**paths, "`puzzles_lib.kernels.attention`": "attention"}.items():
        row = took[heads, path]
        shown = f"| {name} | {row['us'] / 1000:.2f} ms | {row['bytes'] / 1e6:.0f} MB |"
        assert shown in cells("05")["p9b-saved"]
    assert f"{took[heads, 'attention']['ratio']:.0f} times as fast" in cells("05")["p9b-saved"]
    for name, path in {**paths, "your kernel": "puzzle 9b"}.items():
        few, many = (
            took[f"one causal head of {tokens} tokens, D = 64, float32", path] for tokens in (4096, 32768)
        )
        stored = f"{many['bytes'] / 1e9:.1f} GB" if many["bytes"] > 1e9 else f"{many['bytes'] / 1e6:.0f} MB"
        shown = (
            f"{few['us'] / 1000:.2f} ms, {few['bytes'] / 1e6:.0f} MB | {many['us'] / 1000:.1f} ms, {stored}"
        )
        assert f"| {name} | {shown} |" in cells("05")["p9b-saved-2"]


def test_times_of_chapter_06_are_recorded():
    took = {(row["case"].partition(",")[0], row["path"]): row["us"] / 1000 for row in rows("convolution")}
    told = cells("06")["p10-clock"]
    square, wide = "a filter of 5 x 5", "a filter of 3 x 11"
    for side in (8, 16, 32):
        assert f"| tiles of {side} × {side} | {took[square, f'tiles of {side} x {side}']:.2f} ms |" in told
    assert f"| PyTorch's `conv2d` | {took[square, 'torch.nn.functional.conv2d']:.2f} ms |" in told
    own = took[square, "tiles of 32 x 32"]
    asked = 25 * 4 * 64 * 1024**2
    assert f"In {own:.2f} ms your kernel asks for {asked / 1e9:.1f} GB" in told
    assert f"delivers {own * 4.8:.1f} GB" in told and asked / 1e9 > own * 4.8
    told = cells("06")["p10-clock-2"]
    for height, width in ((16, 64), (32, 32), (64, 16)):
        pixels = (height + 2) * (width + 10)
        time = took[wide, f"tiles of {height} x {width}"]
        assert f"| {height} × {width} | {pixels} | {time:.2f} ms |" in told
    assert 1.9 < took[wide, "tiles of 64 x 16"] / took[wide, "tiles of 16 x 64"] < 2.1
    assert round(took[wide, "tiles of 4 x 256"], 2) == round(took[wide, "tiles of 16 x 64"], 2)
