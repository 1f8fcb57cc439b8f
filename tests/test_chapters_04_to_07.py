"""What chapters 04 to 07 tell a reader to try, and their pictures to drag, hold."""

import html
import re
from itertools import product

import nbformat
import pytest
import torch
import triton

from puzzles_lib import answer
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles, questions
from puzzles_lib.chapters.ch05_flash_attention import pictures as ch05
from puzzles_lib.chapters.ch06_convolution import pictures as ch06
from puzzles_lib.chapters.ch06_convolution.puzzles import LIFE, life
from puzzles_lib.chapters.ch07_matmul import pictures as ch07
from puzzles_lib.chapters.ch07_matmul.puzzles import TILE_SHAPES, on_budget
from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case
from tests.browser import faint
from tests.conftest import REPO
from tests.test_player_page import THEMES, style

PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}
SOURCES = kernel_sources()


def cell(number: str, id: str) -> str:
    (path,) = (REPO / "solutions").glob(f"{number}_*.ipynb")
    (found,) = (each.source for each in nbformat.read(path, as_version=4).cells if each.id == id)
    return found


def told(page: str, name: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(rf'data-is="{name}">([^<]*)<', page)]


# ---- what a cell asks the reader to try


def test_the_faster_exponential_of_chapter_04_passes_as_it_is_written_there():
    asked = cell("04", "exp2-idea")
    constant = re.search(r"```python\n(LOG2E = .*)\n```", asked)[1]
    old, new = re.search(
        r"replace each `(tl\.exp\()\.\.\.\)` by `tl\.exp2.*?make it `([^`]*)`", asked, re.DOTALL
    ).groups()
    assert new == "tl.exp2((...) * LOG2E)"
    source = SOURCES["online_softmax"]
    lines = [
        re.sub(r"tl\.exp\(((?:[^()]|\[[^]]*\])*)\)", r"tl.exp2((\1) * LOG2E)", line)
        for line in source.splitlines()
    ]
    changed = "\n".join(lines)
    assert old not in changed and changed.count("tl.exp2(") == source.count(old) == 3
    report = examine(define(f"{constant}\n\n\n{changed}\n", "<exp2>"), PUZZLES["online_softmax"])
    assert report.ok, str(report)


def test_the_kernel_of_three_loops_is_no_answer_to_the_puzzle_of_two():
    kernel = define(SOURCES["long_softmax"], "<three loops>")
    assert examine(kernel, PUZZLES["long_softmax"]).ok
    report = examine(kernel, PUZZLES["online_softmax"])
    assert report.verdicts[0].kind == "loads", str(report)


def test_the_numbers_of_chapter_06_about_one_program_are_those_of_its_map():
    asked = cell("06", "p10-trace-after")
    numbers = re.search(r"So (\d+) pixels take (\d+) loads", asked)
    shape = eval(re.search(r"small = (Case\(.*\))", cell("06", "p10-trace"))[1], {"Case": Case})
    H, W, KH, KW = shape.H, shape.W, shape.KH, shape.KW
    loads = sum((H - a) * (W - b) for a in range(KH) for b in range(KW))
    assert (int(numbers[1]), int(numbers[2])) == (H * W, loads)


def test_a_rule_with_rows_and_columns_swapped_fits_none_of_the_shapes_of_chapter_07():
    for case in TILE_SHAPES.cases:
        x, y, z = case.M * case.K, case.K * case.N, case.M * case.N
        columns, rows = -(-case.N // case.BLOCK_N), -(-case.M // case.BLOCK_M)
        right, swapped = ((a * x + b * y + z) / (x + y + z) for a, b in ((columns, rows), (rows, columns)))
        assert abs(right - swapped) > 0.1 and right > 1.3


def test_the_rule_of_chapter_07_is_what_the_checker_counts():
    report = examine(define(SOURCES["batched_matmul"], "<matmul>"), TILE_SHAPES)
    assert report.ok
    for case, result in zip(TILE_SHAPES.cases, report.cases, strict=False):
        x, y, z = case.M * case.K, case.K * case.N, case.M * case.N
        reads = -(-case.N // case.BLOCK_N), -(-case.M // case.BLOCK_M)
        assert f"({(reads[0] * x + reads[1] * y + z) / (x + y + z):.2f}x)" in result.cost()


def test_a_rule_is_accepted_as_pairs_of_any_kind():
    exec(cell("07", "q8").partition("\n\n\n")[0], names := {"triton": triton})
    counts = [names["reads"](case) for case in TILE_SHAPES.cases]
    assert answer("ch07-q8", counts).ok and answer("ch07-q8", tuple(map(list, counts))).ok
    assert "Return a pair" in answer("ch07-q8", [sum(pair) for pair in counts]).words


# ---- a tile on a budget


def test_one_tile_alone_is_within_the_budgets_and_reads_little():
    sides = [2**power for power in range(4, 12)]
    good = [blocks for blocks in product(sides, repeat=3) if answer("ch07-q7", blocks).ok]
    assert good == [(128, 128, 128)] and questions()["ch07-q7"].right() == good[-1]


@pytest.mark.parametrize("blocks, fits", [((128, 128, 128), True), ((128, 128, 256), False)])
def test_the_compiler_waits_with_the_tiles_of_three_iterations(blocks, fits):
    kernel = define(SOURCES["batched_matmul"], "<matmul>")
    report = examine(kernel, on_budget(*blocks))
    assert report.cases[0].ok and report.ok == fits
    taken = ch07.waiting_bytes(*blocks)
    said = f"a program uses: {taken}" if fits else f"a program needs {taken // 1024} KB of shared memory"
    assert said in str(report), str(report)


def test_the_numbers_of_chapter_07_about_other_tiles():
    told = questions()["ch07-q7"].why
    columns, rows = ch07.reads(256, 128)
    assert f"makes {rows * columns} programs, so {132 - rows * columns} multiprocessors would be idle" in told
    assert "x is read three times" in told and "read it five times" in told
    assert (ch07.reads(64, 64)[0], columns) == (5, 3)


@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 128, 128), (16, 1024, 16)])
def test_a_tile_shows_what_it_reads_and_costs(tile):
    page = ch07.drag(*tile)._repr_html_()
    reads = ch07.reads(*tile[:2])
    assert told(page, "programs") == [str(reads[0] * reads[1])]
    assert told(page, "bytes moved") == [f"{ch07.traffic(*tile[:2]):.2f}x the minimum"]
    assert told(page, "iterations") == [str(triton.cdiv(256, tile[2]))]
    assert told(page, "accumulator") == [f"{ch07.tile_bytes(*tile[:2]) / 1024:g} KiB"]
    assert told(page, "shared memory") == [f"{ch07.waiting_bytes(*tile) / 1024:g} KiB"]


@pytest.mark.parametrize(
    "tile, broken", [((64, 256, 256), ["bytes moved", "shared memory"]), ((128, 128, 128), [])]
)
def test_a_tile_marks_the_limits_that_it_breaks(tile, broken):
    page = ch07.drag(*tile)._repr_html_()
    marks = re.findall(r'data-broken="([^"]+)" style="([^"]*)"', page)
    assert [name for name, css in marks if "display:none" not in css] == broken and len(marks) == 4


# ---- pictures


def test_attention_to_drag_has_the_softmax_in_it():
    page = ch05.drag(2, (1, 0, -1, 3, 2))._repr_html_()
    weights = torch.tensor([2.0, 0.0, -2.0, 6.0, 4.0], dtype=torch.float64).softmax(0)
    assert told(page, "weight") == [f"{w:.3f}" for w in weights.tolist()]
    assert told(page, "z") == [f"{float(weights @ torch.tensor(ch05.VALUES).double()):.2f}"]


def test_pictures_to_drag_ask_for_nothing():
    for picture in (ch05.drag(), ch07.drag(), ch06.play([ch06.board()])):
        page = picture._repr_html_()
        assert repr(picture) == f"[picture] {picture.alt}" and len(picture.alt) > 60
        assert html.escape(picture.alt) in page and not re.search(r"https?:|src=", page)


def test_in_the_sentence_it_finds_the_cat():
    words, q, k = ch05.sentence(it="cat", tired="it", cat="tired")
    found = PUZZLES["flash_attention"].spec(q, k, torch.eye(len(words)))
    assert words[int(found[words.index("it")].argmax())] == "cat"
    assert "it looks at cat" in ch05.weights(words, found).alt


def test_a_glider_walks():
    text = ".#.\n..#\n###"
    start, z = ch06.board(text), ch06.board(text)
    for _ in range(4):
        z = life(z)
    assert torch.equal(z[1:, 1:], start[:-1, :-1]) and int(start.sum()) == 5


def test_played_boards_are_the_boards():
    boards = [ch06.board()]
    boards.append(LIFE.spec(boards[0]))
    page = ch06.play(boards)._repr_html_()
    frames = re.search(r'data-frames="([^"]*)"', page)[1].split(",")
    for frame, each in zip(frames, boards, strict=True):
        assert f"{int(frame, 16):0{each.numel()}b}" == "".join(map(str, each.flatten().tolist()))
    assert page.count("<rect") == int(boards[0].sum()) + 1  # the script draws them, too


def test_an_indented_drawing_is_the_same_board():
    assert torch.equal(ch06.board("\n    .#.\n    ..#\n    ###\n  "), ch06.board(".#.\n..#\n###"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("#x", "has 'x'"),
        ("#" * 63, "larger than 30 lines of 62"),
        (" # \n  #\n###", "must consist of '.' and '#', but has ' '"),
        ("..#\n # ", "has ' '"),
    ],
)
def test_a_drawing_that_is_no_board_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        ch06.board(text)


# ---- in a browser


@pytest.fixture
def show(open_html):
    """``show(picture)``: a page with it, in Chromium."""
    return lambda picture: open_html(f"{style('light')}{picture._repr_html_()}", 800, 600, True)


@pytest.mark.browser
def test_a_key_is_dragged_and_the_weights_follow(show):
    page = show(ch05.drag(1, (0, 0, 0, 0, 0)))
    page.get_by_role("slider", name="key of cat", exact=True).focus()
    page.keyboard.press("End")
    weights = torch.tensor([0.0, 4.0, 0.0, 0.0, 0.0], dtype=torch.float64).softmax(0)
    assert page.locator("[data-is=weight]").all_inner_texts() == [f"{w:.3f}" for w in weights.tolist()]
    page.get_by_role("slider", name="query", exact=True).focus()
    page.keyboard.press("ArrowLeft")  # to 0, which no key fits better than another
    assert page.locator("[data-is=z]").inner_text() == "30.00"


@pytest.mark.browser
def test_a_tile_is_dragged_to_the_one_on_the_budget(show):
    page = show(ch07.drag())
    for name, steps in (("BLOCK_M", 1), ("BLOCK_N", 1), ("BLOCK_K", 2)):
        page.get_by_role("slider", name=name, exact=True).focus()
        for _ in range(steps):
            page.keyboard.press("ArrowRight")
    names = ("bytes moved", "accumulator", "shared memory", "lanes past N")
    told = [page.locator(f'[data-is="{name}"]').inner_text() for name in names]
    assert told == ["2.93x the minimum", "64 KiB", "192 KiB", "17%"]
    assert not page.get_by_text("broken").locator("visible=true").count()
    page.keyboard.press("ArrowRight")
    assert page.locator('[data-is="shared memory"]').inner_text() == "384 KiB"
    assert page.locator('[data-broken="shared memory"]').is_visible()
    assert page.get_by_text("broken").locator("visible=true").count() == 1


@pytest.mark.browser
def test_boards_are_stepped_through_and_played(show):
    boards = [ch06.board()]
    for _ in range(3):
        boards.append(life(boards[-1]))
    page = show(ch06.play(boards))
    for generation, each in enumerate(boards):
        assert page.locator("b").inner_text() == str(generation)
        assert page.locator("rect").count() == int(each.sum())
        page.get_by_role("slider", name="generation", exact=True).focus()
        page.keyboard.press("ArrowRight")
    page.get_by_role("button").click()  # from the last one it begins anew
    page.wait_for_function("document.querySelector('b').textContent === '3'")


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
def test_pictures_to_drag_read_in_every_theme_and_fit_a_narrow_page(open_html, theme):
    for picture in (ch05.drag(), ch07.drag(), ch06.play([ch06.board()])):
        page = open_html(f"{style(theme)}{picture._repr_html_()}", 600, 600, True)
        assert not faint(page, ".puzzles-live")
        assert page.evaluate("document.body.scrollWidth <= innerWidth")


# ---- what a report says of common slips

HIDDEN = 'scores = tl.where(mask_k[None, :], scores, float("-inf"))\n'
WEIGHTS = "p = tl.exp(scores - new_max[:, None])"
UPDATE = "        row_max = new_max\n"
DIVIDE = "        acc = acc / denominator\n"
DIVIDE_ROWS = "        acc = acc / denominator[:, None]\n"
SEEN = "offs_k[None, :] <= offs_q[:, None]"
IN_THE_TILE = "tl.arange(0, BLOCK_Q)[:, None] >= tl.arange(0, BLOCK_K)[None, :]"
SLIPS = [
    ("long_sum", {"other=0.0": 'other=float("-inf")'}, "all wrong elements are -inf, as a sum with one"),
    ("long_sum", {"tl.sum(x, axis=1)": "tl.sum(x)"}, "does a reduction without axis= fold all axes"),
    ("long_softmax", {"tl.sum(tl.exp(x - row_max[:, None])": "tl.sum(tl.exp(x)"}, "the denominator's expon"),
    ("long_softmax", {"z = tl.exp(x - row_max[:, None])": "z = tl.exp(x)"}, "the result's exponentials lack"),
    ("long_softmax", {" / denominator[:, None]": ""}, "aren't divided by the denominator"),
    ("long_sum", {"mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)": "mask = offs < M * N"}, "next row"),
    ("long_softmax", {"row_max[:, None]), axis=1)": "row_max[:, None]))"}, "does tl.sum have its axis?"),
    ("online_softmax", {"denominator * factor + added": "(denominator + added) * factor"}, "the new terms"),
    ("online_softmax", {"denominator * factor": "denominator"}, "isn't rescaled when the maximum rises"),
    ("online_softmax", {"new_max[:, None]), axis=1)": "new_max[:, None]))"}, "does tl.sum have its axis?"),
    ("online_softmax", {"tl.exp(x - new_max": "tl.exp(x - row_max"}, "lack the new maximum?"),
    ("online_softmax", {"tl.exp(": "tl.exp2("}, "multiply its argument by log2(e)"),
    (
        "scalar_flash_attention",
        {HIDDEN: "pass\n", WEIGHTS: f"p = tl.where(mask_k[None, :], {WEIGHTS[4:]}, 0.0)"},
        "hide the scores, not only p",
    ),
    ("long_sum", {"offs_n[None, :] < N)": "offs_n[None, :] < N - 1)"}, "the last column isn't summed"),
    ("long_sum", {"acc += ": "acc -= "}, "the wrong sign"),
    (
        "online_softmax",
        {"tl.exp(row_max": "tl.exp2(row_max", "tl.exp(x - new_max": "tl.exp2(x - new_max"},
        "the denominator has powers of 2",
    ),
    ("online_softmax", {"z = tl.exp(": "z = tl.exp2("}, "the result has powers of 2"),
    ("scalar_flash_attention", {"acc * factor": "acc"}, "acc isn't multiplied by the factor"),
    ("scalar_flash_attention", {"denominator * factor": "denominator"}, "the denominator isn't multiplied"),
    ("scalar_flash_attention", {"        row_max = new_max\n": ""}, "row_max never becomes new_max"),
    ("scalar_flash_attention", {"mask_k[None, :], scores": "mask[None, :], scores"}, "mask_k or mask_q?"),
    ("scalar_flash_attention", {"v[None, :], axis=1)": "v[None, :])"}, "terms of all queries"),
    ("scalar_flash_attention", {"tl.sum(p * v[None, :], axis=1)": "tl.sum(p, axis=1)"}, "needs its value v"),
    (
        "scalar_flash_attention",
        {"denominator * factor": "denominator", "acc * factor": "acc"},
        "neither sum is",
    ),
    ("scalar_flash_attention", {UPDATE: UPDATE + DIVIDE}, "and then once more"),
    (
        "scalar_flash_attention",
        {UPDATE: UPDATE + DIVIDE, "acc / denominator, mask": "acc, mask"},
        "when the denominator is complete",
    ),
    ("scalar_flash_attention", {"q[:, None] * k[None, :]": "q[:, None] + k[None, :]"}, "multiply q and k"),
    ("flash_attention", {UPDATE: UPDATE + DIVIDE_ROWS}, "and then once more"),
    (
        "flash_attention",
        {UPDATE: UPDATE + DIVIDE_ROWS, "acc / denominator[:, None], mask": "acc, mask"},
        "when the denominator is complete",
    ),
    ("flash_attention", {"denominator * factor": "denominator"}, "the denominator isn't multiplied"),
    ("flash_attention", {"denominator * factor": "denominator", "acc * factor[:, None]": "acc"}, "neither"),
    ("scalar_flash_attention", {"tl.sum(p, axis=1)": "tl.sum(p)"}, "that of all queries"),
    ("flash_attention", {"tl.sum(p, axis=1)": "tl.sum(p)"}, "that of all queries"),
    ("flash_attention", {UPDATE: ""}, "row_max never becomes new_max"),
    ("flash_attention", {SEEN: IN_THE_TILE}, "counts within the tile"),
    ("flash_attention", {SEEN: IN_THE_TILE, "min(start_q + BLOCK_Q, T)": "T"}, "counts within the tile"),
    ("flash_attention", {"/ root_d": "/ BLOCK_D ** 0.5"}, "by the root of BLOCK_D"),
    ("flash_attention", {'scores, float("-inf")': 'float("-inf"), scores'}, "swap its last two arguments"),
    ("flash_attention", {"acc * factor[:, None]": "acc"}, "acc isn't multiplied by the factor"),
    ("flash_attention", {"/ root_d": "* root_d"}, "multiplied by the root of D"),
    ("flash_attention", {"/ root_d": "/ D"}, "the scores are divided by D"),
    ("flash_attention", {"<= offs_q[": ">= offs_q["}, "the wrong way around"),
    ("flash_attention", {"<= offs_q[": "< offs_q["}, "no query sees its own key"),
    ("flash_attention", {'scores, float("-inf"))': "scores, 0.0)"}, "hidden scores are 0"),
]


@pytest.mark.parametrize("name, edits, says", SLIPS, ids=[says for *_, says in SLIPS])
def test_a_common_slip_has_its_diagnosis(name, edits, says):
    source = SOURCES[name]
    for old, new in edits.items():
        assert source.count(old) == 1 or old == "tl.exp("
        source = source.replace(old, new)
    report = examine(define(source, "<slip>"), PUZZLES[name])
    first = report.verdicts[0]
    assert says in f"{first.message} {first.diagnosis}"
    assert "axis=1" not in first.diagnosis
