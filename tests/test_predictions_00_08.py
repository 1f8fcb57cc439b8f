"""The predictions of chapters 00 to 08: masters answer them, nudges keep them, and runs bear them out."""

import ast
import re
import textwrap

import nbformat
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from puzzles_lib import answer
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.bench.recorded import rows
from puzzles_lib.chapters import CHAPTERS, mistakes, puzzles
from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.chapters.ch06_convolution import pictures as ch06_pictures
from puzzles_lib.checker import examine
from tests.conftest import REPO

EARLY = [chapter for chapter in CHAPTERS if chapter.number < "09"]
MINE = {question.id: question for chapter in EARLY for question in chapter.questions}
PUZZLES = {puzzle.name: puzzle for puzzle in (DOUBLE, *puzzles())}

MISTAKES = [
    ("ch00-q1", 4, "Divide"),
    ("ch00-q1", 0, "True everywhere"),
    ("ch00-q1", 1, "every lane have one"),
    ("ch00-q2", 8, "The others"),
    ("ch00-q2", 0, "the same ones"),
    ("ch00-q2", 23, "program 0 store"),
    ("ch01-q1", {32}, "not all"),
    ("ch01-q1", {32, 128, 200}, "One too many"),
    ("ch01-q1", {20, 65}, "goes wrong"),
    ("ch01-q1", {20, 32}, "every lane"),
    ("ch01-q2", 2, "full blocks"),
    ("ch01-q2", 6, "when it is stored"),
    ("ch01-q2", 1, "both masks"),
    ("ch02-q1", (30,), "Two numbers"),
    ("ch02-q1", (0, 30), "behind the last"),
    ("ch02-q1", (0, 1), "The row comes first"),
    ("ch02-q1", (2, 2), "Count the elements"),
    ("ch02-q2", (3,), "Two numbers"),
    ("ch02-q2", (7, 3), "Both numbers"),
    ("ch02-q2", (1, 1), "one program for all"),
    ("ch02-q2", (21, 21), "below each other"),
    ("ch02-q3", (6,), "Two numbers"),
    ("ch02-q3", (6, 0), "The row comes first"),
    ("ch02-q3", (2, 6), "which is the first"),
    ("ch02-q3", (0, 7), "count from 0"),
    ("ch02-q3", (0, 0), "past column 99"),
    ("ch03-q1", 240000, "one way"),
    ("ch03-q1", 120000, "each has 4 bytes"),
    ("ch03-q1", 60000, "goes both ways"),
    ("ch03-q1", 2000, "never goes to memory"),
    ("ch03-q2", (0, 90), "Three numbers"),
    ("ch03-q2", (0, 60, 90), "At exactly 0"),
    ("ch03-q2", (0, 0, 30), "Which factor"),
    ("ch03-q2", (30, 60, 90), "For each"),
    ("ch03-q3", 0, "Is 0 >= 0"),
    ("ch03-q3", 20, "one more factor"),
    ("ch03-q3", 3, "let through"),
    ("ch04-q1", 192, "all of them"),
    ("ch04-q1", 100, "So many have"),
    ("ch04-q1", 20, "rows that do not exist"),
    ("ch04-q1", 3, "Count all lanes"),
    ("ch04-q2", 1, "Is the maximum one of x"),
    ("ch04-q2", float("nan"), "vanish"),
    ("ch04-q2", -1000, "its padding"),
    ("ch04-q3", 8, "count from 0"),
    ("ch04-q3", 4, "far below 0"),
    ("ch04-q3", 2, "after a whole block"),
    ("ch05-q1", 4, "take the mean"),
    ("ch05-q1", 1, "walks all keys"),
    ("ch05-q1", 10, "sum over"),
    ("ch05-q1", 3, "how often"),
    ("ch05-q2", set(), "There is one"),
    ("ch05-q2", {1}, "count from 0"),
    ("ch05-q2", {0, 5}, "too many"),
    ("ch05-q2", {2, 3}, "no earlier blocks"),
    ("ch05-q3", 2048, "above the diagonal"),
    ("ch05-q3", 32, "Add up all"),
    ("ch05-q3", 900, "cuts is needed"),
    ("ch05-q3", 1500, "two tiles"),
    ("ch06-q1", 40, "multiplied by"),
    ("ch06-q1", 17, "One more pixel"),
    ("ch06-q1", 230, "hangs over the edge"),
    ("ch06-q1", 0, "meet a pixel"),
    ("ch06-q2", {7}, "more than one column"),
    ("ch06-q2", {5, 6, 7}, "wholly inside"),
    ("ch06-q2", {7, 8}, "no column 8"),
    ("ch06-q2", {0}, "a window of 3"),
    ("ch07-q1", 3548, "on paper"),
    ("ch07-q1", 2048, "more than half"),
    ("ch07-q1", 2050, "nearer to"),
    ("ch07-q2", (2,), "Two numbers"),
    ("ch07-q2", (3, 2), "rows of what"),
    ("ch07-q2", (1, 1), "hand numbers"),
    ("ch07-q2", (12, 12), "below each other"),
    ("ch07-q3", 5, "see it"),
    ("ch07-q3", 0, "does anyway"),
    ("ch07-q3", 3, "rounded twice"),
    ("ch08-q1", 9, "unsigned"),
    ("ch08-q1", -9, "copies of the sign"),
    ("ch08-q1", 0, "1001"),
    ("ch08-q2", (12, 4), "Four numbers"),
    ("ch08-q2", (12, 4, 12, 4), "not k"),
    ("ch08-q2", (8, 4, 1, 0), "where k says"),
    ("ch08-q2", (8, 4, 8, 4), "Divide 100"),
    ("ch08-q2", (12, 4, 0, 8), "eight fields"),
    ("ch08-q3", 585, "how many words"),
    ("ch08-q3", 4680, "two blocks"),
    ("ch08-q3", 1170, "eight lanes do"),
    ("ch08-q3", 5, "In how many programs"),
    ("ch00-q3", 29, "its lane is on"),
    ("ch00-q3", 2, "first of them"),
    ("ch00-q3", 3, "program 3 with the slider"),
    ("ch01-q3", 200, "count from 0"),
    ("ch01-q3", 7, "six blocks"),
    ("ch01-q3", 0, "Point at the lane"),
    ("ch02-q4", (0, 31), "the next begins"),
    ("ch02-q4", (1, 0), "robbed by [0, 30]"),
    ("ch02-q4", (2, 2), "which lane of the tile"),
    ("ch04-q4", 3, "all lanes of these rows"),
    ("ch04-q4", 1, "lanes off"),
    ("ch04-q5", 5000, "13 digits"),
    ("ch04-q5", 2047, "eleven ones"),
    ("ch04-q5", 11, "rounded to an even one"),
    ("ch05-q4", 128, "turn 1"),
    ("ch05-q4", 68, "stays as it was"),
    ("ch05-q4", 1, "updates row_max"),
    ("ch07-q4", 16, "another number"),
    ("ch07-q4", 0, "turns count from 1"),
    ("ch07-q4", 3, "How far apart"),
    ("ch07-q5", (10, 12), "Three numbers"),
    ("ch07-q5", (7, 12, 9), "stood there before"),
    ("ch07-q5", (3, 0, 1), "the first turn left"),
    ("ch07-q5", (10, 16, 18), "one turn too many"),
    ("ch07-q5", (10, 12, 1), "to what the picture shows"),
    ("ch07-q6", 64, "takes two of them"),
    ("ch07-q6", 131072, "Over how many loads"),
    ("ch07-q6", 16, "as many of y"),
    ("ch07-q7", 256, "none are left"),
    ("ch07-q7", 181, "wants a power of two"),
    ("ch07-q7", 32768, "How long is the side"),
    ("ch07-q7", 64, "Which squares"),
    ("ch08-q4", 0, "is a sign"),
    ("ch08-q4", -15, "half as far"),
    ("ch08-q4", -7, "range stands"),
    ("ch08-q5", (2048,), "Two numbers"),
    ("ch08-q5", (16, 2048), "other way round"),
    ("ch08-q5", (2048, 128), "16 rows of the tile"),
    ("ch08-q5", (256, 16), "each of its lanes"),
    ("ch08-q5", (128, 1), "A lane for each weight"),
    ("ch08-q6", "tf32", "in quotes above"),
    ("ch08-q6", "groups", "the second"),
    ("ch08-q6", "words", "smallest of the four"),
    ("ch08-q6", "tiles", "nearly all of the arithmetic"),
    ("ch02-q5", (4000,), "Two numbers"),
    ("ch02-q5", (12_000_000, 12_000_000), "in name only"),
    ("ch02-q5", (12_000_000, 4000), "the copy"),
    ("ch02-q5", (1000, 3_000_000), "How many bytes"),
    ("ch02-q5", (4000, 12_000), "each of the two keep"),
    ("ch06-q3", ((-1, -1, -1), (-1, 8, -1), (-1, -1, -1)), "Nine numbers"),
    ("ch06-q3", ("a",) * 9, "Nine numbers"),
    ("ch06-q3", (0,) * 9, "at an edge as well"),
    ("ch06-q3", (1,) * 9, "nine pixels that are all 1"),
    ("ch06-q4", (25_600,), "Two numbers"),
    ("ch06-q4", (1296, 25_600), "come first"),
    ("ch06-q4", (1296, 1296), "its own tile"),
    ("ch06-q4", (25_600, 1024), "the tile and its halo"),
    ("ch06-q4", (25_600, 1600), "no other side"),
    ("ch06-q4", (25_600, 1369), "no halo at all"),
    ("ch06-q4", (1024, 1024), "shifted tiles cover"),
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
    tree = ast.parse(cells(number)[cell])
    assert answer(id, ast.literal_eval(tree.body[1].value)).ok
    assert f'answer("{id}"' in ast.unparse(tree.body[2]).replace("'", '"')


@pytest.mark.parametrize("id, value, words", MISTAKES)
def test_a_mistake_is_answered_by_its_nudge(id, value, words):
    given = answer(id, value)
    assert given.status == "wrong" and words in given.words


def test_every_nudge_is_reached_by_some_mistake():
    reached = {answer(id, value).words for id, value, _ in MISTAKES}
    said = {n.words for q in MINE.values() for n in q.nudges} | {q.nudge for q in MINE.values()}
    assert said == reached


@pytest.mark.parametrize("id", MINE)
def test_no_nudge_gives_the_answer_away(id):
    question, right = MINE[id], MINE[id].right()
    secrets = [str(right)] if not isinstance(right, set | tuple) else [str(right), str(right)[1:-1]]
    for text in (question.nudge, *(n.words for n in question.nudges)):
        for secret in secrets:
            if len(secret) > 1:  # 0, 1 and 2 are words of any sentence about numbers
                assert not re.search(rf"(?<![\w.]){re.escape(secret)}(?![\w])", text), text


@pytest.mark.parametrize(
    "taps", [(-1, -1, -1, -1, 8, -1, -1, -1, -1), (1, 0, -1) * 3, [0, 0, 0, 0.1, -0.3, 0.2, 0, 0, 0]]
)
def test_any_filter_that_is_0_where_nothing_changes_finds_edges(taps):
    assert answer("ch06-q3", taps).ok
    w = torch.tensor(taps).float().view(3, 3)
    flat, step = torch.ones(1, 5, 5), (torch.arange(5.0) > 1).expand(1, 5, 5).float()
    on_flat, on_step = (PUZZLES["conv2d"].spec(x, w)[0, :3, :3].abs() for x in (flat, step))
    assert on_flat.max() < 1e-6 < on_step.max()


# ---- what chapters 02 and 06 are for


def test_chapter_02_counts_the_kernels_that_broadcast():
    sources = kernel_sources().values()
    meet = sum("[:, None]" in source and "[None, :]" in source for source in sources)
    assert f"In {meet} of this course's {len(sources)} kernels" in cells("02")["why-idea"]


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
    assert "edges (0 is grey)" in shown.alt and "x (0 is black, 1 white)" in shown.alt


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
        ("ch00-q1", "break-mask"),
        ("ch01-q2", "p2-wrong"),
        ("ch04-q3", "online-kernel"),
        ("ch05-q2", "p9-wrong"),
        ("ch07-q3", "p11-wrong"),
    ],
)
def test_the_wrong_kernel_passes_what_the_prediction_says(id, cell):
    source = cells(id[2:4])[cell]
    if slip := re.search(r'mistake\((\w+), "(\w+)"\)', source):
        puzzle = PUZZLES[slip[1].lower()]
        (wrong,) = (each for each in mistakes(puzzle) if each.name == slip[2])
        body = wrong.apply(kernel_sources()[puzzle.name])
    else:
        body, _, check = source.partition("\n\n\ncheck(")
        puzzle = PUZZLES[check.split(", ")[1].rstrip(")").lower()]
    if id == "ch04-q3":  # as the next cell asks: start from minus infinity
        assert body.count("-1e30") == 1
        body = body.replace("-1e30", 'float("-inf")')
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
    assert "from {} to {}:".format(*costs) in told


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


def test_the_steps_of_chapter_08_are_recorded():
    steps = [row["us"] for row in rows("quantized-matmul") if row["case"].endswith("N = 1")][:5]
    prose = cells("08")
    assert f"{steps[0]:.0f} µs" in prose["q6-ask"]
    assert f"{steps[0] / steps[-1]:.0f} times as fast" in prose["end-idea-5"]
