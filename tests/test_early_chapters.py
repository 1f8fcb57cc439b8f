"""Chapters 00 to 03: what their text promises, and the answers that come out of a learner's own kernel."""

import dataclasses
import itertools
import re

import nbformat
import pytest
import torch
import triton

from puzzles_lib import (
    CONSTANT_ADD,
    DOUBLE,
    MUL_RELU_BACKWARD,
    OUTER_ADD_BLOCKS,
    PAIR_DIFFERENCE,
    answer,
    check,
    checking,
    run,
    session,
)
from puzzles_lib.authoring.solutions import kernel_sources, solutions, without_markers
from puzzles_lib.chapters import questions
from puzzles_lib.chapters.ch00_welcome import pictures as ch00_pictures
from puzzles_lib.chapters.ch00_welcome.dusk import brightened, revealed
from puzzles_lib.chapters.ch01_blocks import message, secret
from puzzles_lib.chapters.ch02_broadcasting import pictures as ch02_pictures
from puzzles_lib.chapters.ch03_fusion import silu
from puzzles_lib.chapters.ch03_fusion.pictures import ASKED
from puzzles_lib.chapters.ch06_convolution.pictures import scene
from puzzles_lib.checker import examine, stored
from puzzles_lib.checker.report import Report
from puzzles_lib.checker.verdicts import STILL_OPEN
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case
from puzzles_lib.source import define
from puzzles_lib.timing import recorded
from tests.browser import faint
from tests.conftest import REPO
from tests.test_player_page import THEMES, style


@pytest.fixture(autouse=True)
def _no_progress(state_dir):
    """What these tests answer is nobody's progress."""


def cells(number: str) -> dict[str, str]:
    (path,) = (REPO / "solutions").glob(f"{number}_*.ipynb")
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


def first_definition(number: str, cell: str) -> str:
    """Return what a master's cell defines, without the lines that use it."""
    return without_markers(cells(number)[cell].split("\n\n\n")[0])


# ---- chapters 00 to 02


@pytest.mark.parametrize(
    "number, question, kernel, words",
    [
        ("00", "q1", "", "element 1,418, is marked"),
        ("00", "q2", "no_mask_kernel", "2 of 4 cases pass"),
        ("00", "q3", "pid_kernel", "21 of 32 elements of z are never written"),
        ("01", "q1", "", "from lane 8 on wrongly"),
        ("01", "q2", "two_masks_kernel", "depends on a lane that the load of x_ptr masks off"),
        ("02", "q5", "", "12,004,000 bytes"),
        ("02", "q1", "", "write different values to z[1, 0]"),
        ("02", "q2", "", "the 3 tiles below it"),
    ],
)
def test_a_question_comes_after_its_kernel_and_before_what_answers_it(number, question, kernel, words):
    """The output with these words is the first one with them, and no other question comes before it.

    kernel: the one that the question calls "this kernel"; it's the last one defined above.
    """
    (path,) = (REPO / "solutions").glob(f"{number}_*.ipynb")
    notebook = nbformat.read(path, as_version=4).cells
    ids = [cell.id for cell in notebook]
    asked = ids.index(question)
    shown = next(at for at, cell in enumerate(notebook) if words in str(cell.get("outputs", "")))
    assert asked < shown and not [id for id in ids[asked + 1 : shown] if re.fullmatch(r"q\d+", id)]
    above = re.findall(r"^def (\w+)", "\n".join(cell.source for cell in notebook[:asked]), re.MULTILINE)
    assert not kernel or above[-1] == kernel in notebook[shown].source


# ---- chapter 00


def test_a_first_line_is_typed_and_seen_in_the_first_five_cells():
    first = list(cells("00"))[:5]
    assert first[3:] == ["p0-kernel", "first-picture"]
    assert "SOLUTION 1 line" in cells("00")["p0-kernel"]


def test_the_first_kernel_brightens_the_picture_in_as_many_programs_as_the_text_says():
    dusk = ch00_pictures.dusk()
    z = run(solutions()["double"], DOUBLE, x=dusk.flatten(), BLOCK=512)
    assert torch.equal(z.view(64, 96), scene())
    told = cells("00")["first-takeaway"]
    assert f"{dusk.numel() // 512} copies" in told and f"{dusk.numel():,} numbers" in told


def test_the_first_kernel_as_it_is_handed_out_copies_the_picture():
    stub = re.sub(r"    z = 2 \* x\n", "", kernel_sources()["double"])
    dusk = ch00_pictures.dusk()
    assert torch.equal(run(define(stub, "<stub>"), DOUBLE, x=dusk.flatten(), BLOCK=512), dusk.flatten())


def test_the_first_picture_is_the_learners_or_says_where_to_look():
    kernel = solutions()["double"]
    bright, dark = scene(), ch00_pictures.dusk()
    spans = [f"pixels from {image.min():.2f} to {image.max():.2f}" for image in (dark, bright)]
    drawn = brightened(kernel).alt
    assert all(span in drawn for span in spans) and "yours (0 is black, 1 white)" in drawn
    white = define(kernel_sources()["double"].replace("2 * x", "x + 2"), "<white>")
    assert "yours (0 is black, 1 and more white)" in brightened(white).alt
    refused = define(kernel_sources()["double"].replace("2 * x", "x ** 2"), "<refused>")
    assert "no picture, read the report above" in brightened(refused).alt


def test_the_sun_is_where_the_first_question_looks_for_it():
    sun = (scene() == 1).nonzero().float().mean(0).round().int().tolist()
    assert sun[0] * 96 + sun[1] == ch00_pictures.SUN
    assert f"element {ch00_pictures.SUN:,}" in cells("00")["q1-ask"]
    drawn = ch00_pictures.painters().alt
    assert f"element {ch00_pictures.SUN:,}, is marked" in drawn and "394" not in drawn
    assert questions()["ch00-q1"].right() == (2, 394)


def test_the_noise_has_a_picture_that_only_the_pairs_show():
    kernel = solutions()["pair_difference"]
    drawn = revealed(kernel).alt
    assert "x (0 is black, 1 white)" in drawn and "yours (−0.3 is black, 0 gray, 0.3 white), 64 x 48" in drawn
    first, second = ch00_pictures.noise().view(-1, 2).unbind(1)
    white = second > first
    assert 0.1 < white.float().mean() < 0.5
    assert abs(float((first + second)[white].mean() - (first + second)[~white].mean())) < 0.05


def test_a_picture_shows_what_a_wrong_kernel_stores():
    source = first_definition("00", "break-offset")
    drawn = brightened(define(source, "<pid>")).alt
    assert "hatched: never written" in drawn
    assert "12 programs" not in drawn
    x = ch00_pictures.dusk()
    case = Case(fill=None, salt="", pretend=False, N=x.numel(), BLOCK=512)
    ran, _ = stored(define(source, "<pid>"), DOUBLE, case, {"x": x.flatten()}, seconds=9)
    assert int(ran.written["z"].sum()) == 11 + 512  # program 11 begins at element 11
    assert f"begin at element {11 * 512:,}" in cells("00")["break-offset-idea-2"]
    unmasked = brightened(define(first_definition("00", "break-mask"), "<no mask>")).alt
    assert "never written" not in unmasked and "pixels from 0.12 to 1.00" in unmasked


def test_a_kernel_with_another_bug_than_the_chapters_is_accepted():
    report = examine(define(first_definition("00", "own-break"), "<sneaky>"), DOUBLE)
    assert answer("ch00-q4", report).ok and answer("ch00-q4", report.passed).ok
    right = examine(solutions()["double"], DOUBLE)
    apart = examine(define(first_definition("00", "break-offset"), "<pid>"), DOUBLE)
    refused = examine(define(kernel_sources()["double"].replace("(0, BLOCK)", "(0, 7)"), "<7>"), DOUBLE)
    assert refused.verdict.kind == "compiler"
    for report in (right, apart):
        assert answer("ch00-q4", report).status == "wrong"
    told = answer("ch00-q4", refused)
    assert told.status == "not checked" and "mask" not in told.words and "wasn't run" in told.words
    assert answer("ch00-q4", Report("a puzzle", verdict=STILL_OPEN)).status == "open"


@pytest.mark.parametrize("mask", ["None", "True", "pid < N // BLOCK", "N > 0"])
def test_a_mask_without_a_value_per_lane_is_no_hidden_bug(mask):
    source = first_definition("00", "own-break").replace("offs < N // BLOCK * BLOCK", mask)
    assert f"mask = {mask}" in source
    report = examine(define(source, f"<{mask}>"), DOUBLE)
    assert report.verdict.kind == "compiler" and "tl.static_assert" in str(report)
    assert answer("ch00-q4", report).status == "not checked"


@pytest.mark.parametrize(
    "line",
    [
        "N += 1\n    mask = offs < N",
        "N = 8 * (N // 8)\n    mask = offs < N",
        "mask = offs < N + N % BLOCK",
        "mask = offs < 32",
        "mask = offs < BLOCK * tl.num_programs(0)",
    ],
)
def test_lines_above_the_mask_break_it_too(line):
    """With the mask above the gap, a line that changes N had no effect, and nothing said why."""
    source = first_definition("00", "own-break").replace("mask = offs < N // BLOCK * BLOCK", line)
    assert line in source
    assert answer("ch00-q4", examine(define(source, "<sneaky>"), DOUBLE).passed).ok


# ---- chapter 01


def test_a_loop_over_the_lanes_is_correct_as_the_text_says():
    assert "`for i in range(BLOCK)` would be correct" in cells("01")["p2-takeaway"]
    head = kernel_sources()["constant_add"].partition("    x_ptr +=")[0]
    loop = """    for i in range(BLOCK):
        x = tl.load(x_ptr + pid * BLOCK + i)
        tl.store(z_ptr + pid * BLOCK + i, x + 10)
"""
    small = Contract({"BLOCK": (64,), "N": Size(300, step=lambda s: s.BLOCK)})  # each lane is a step
    puzzle = dataclasses.replace(CONSTANT_ADD, cases=CONSTANT_ADD.cases[:2], contract=small)
    assert examine(define(head + loop, "<loop>"), puzzle).ok


def test_a_loop_over_the_lanes_passes_with_a_note(monkeypatch):
    loops = checking._loops_over_lanes
    head = "def f():\n    lanes = tl.arange(0, BLOCK)\n"
    body = f"{head}    for i in range(BLOCK):\n        x = tl.load(x_ptr + i)\n"
    assert loops(body) and loops(body.replace("range(BLOCK)", "range(0, BLOCK)"))
    assert not loops(body.replace("range(BLOCK)", "range(0, N, BLOCK)"))
    assert not loops(body.replace("x_ptr + i", "x_ptr + i + lanes")) and not loops("def f(:")
    assert not any(loops(source) for source in kernel_sources().values())
    monkeypatch.setattr(checking, "_loops_over_lanes", lambda source: True)
    assert "your loop loads the numbers of a block one by one" in str(check(solutions()["double"], DOUBLE))


def test_after_the_pointers_have_moved_the_lines_are_those_of_one_block():
    head = "@triton.jit\ndef constant_add_kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):\n"
    one = "    lanes = tl.arange(0, BLOCK)\n    tl.store(z_ptr + lanes, tl.load(x_ptr + lanes) + 10)\n"
    moves = "".join(f"    {name}_ptr += tl.program_id(0) * BLOCK\n" for name in "xz")
    assert "Then every program counts from 0" in cells("01")["p1-idea"]
    assert examine(define(head + one, "<one block>"), CONSTANT_ADD).passed == {0}  # with one program
    assert examine(define(head + moves + one, "<all blocks>"), CONSTANT_ADD).ok


def test_each_part_of_the_message_is_read_by_its_puzzles_kernel():
    kernels = solutions()
    for part, name, told in (
        (message.first_part, "constant_add", "you-are-reading-this-in-parallel"),
        (message.second_part, "masked_add", "a-block-may-end-early"),
        (message.third_part, "reversed_add", "hooray--pointers-go-both-ways"),
    ):
        assert part(kernels[name]).alt.endswith(f"“{told}”")
    assert "“syaw-htob-og-sretniop--yarooh”" in message.third_part(kernels["masked_add"]).alt
    parts = (secret.first_part(), secret.second_part(), secret.third_part())
    for letters, cell in zip(parts, ("p1-message-idea", "p2-idea", "p2b-message-idea"), strict=True):
        assert f"{len(letters)} letters" in cells("01")[cell]
    assert [len(letters) % 8 for letters in parts] == [0, 5, 5]


def test_a_message_that_reads_well_is_no_proof(state_dir, monkeypatch):
    monkeypatch.setattr(session, "_last", {})
    of_eight = kernel_sources()["constant_add"].replace("z_ptr + pid * BLOCK", "z_ptr + pid * 8")
    kernel = define(of_eight, "<eight>")
    assert message.first_part(kernel).alt.endswith("parallel”")
    assert not check(kernel, CONSTANT_ADD).ok
    assert message.first_part(kernel).alt.endswith(
        "parallel” But your kernel fails in other cases: read its report."
    )


def test_a_wrong_kernel_shows_the_letters_that_it_stores():
    sources = kernel_sources()
    first = define(sources["constant_add"].replace("z_ptr + pid * BLOCK", "z_ptr"), "<first>")
    told = message.first_part(first).alt
    assert "“parallel" + "_" * 24 + "”" in told and "24 of 32 letters are missing" in told
    unmasked = define(sources["masked_add"].replace("N - pid * BLOCK", "N"), "<unmasked>")
    told = message.second_part(unmasked).alt
    assert "“a-block-may-end-early”" in told and "3 of the neighbor's letters are overwritten" in told
    one = define(sources["masked_add"].replace("lanes < N", "lanes <= N"), "<one too many>")
    assert "1 of the neighbor's letters is overwritten" in message.second_part(one).alt
    early = define(sources["reversed_add"].replace("N - 1 - pid", "N - pid"), "<too far>")
    assert "isn't clean" in message.third_part(early).alt
    short = define(sources["reversed_add"].replace("mask = lanes <", "mask = lanes + 25 <"), "<short>")
    assert "letters are missing" in message.third_part(short).alt
    short = define(
        sources["reversed_add"].replace("lanes < N -", "lanes < N - (N - pid * BLOCK == 5) -"), "<one>"
    )
    assert "1 of 29 letters is missing" in message.third_part(short).alt
    twice = define(sources["constant_add"].replace("z_ptr +", "z_ptr + pid * BLOCK +"), "<twice>")
    assert "But 16 places past the end of z are overwritten" in message.first_part(twice).alt
    typo = define(sources["constant_add"].replace("tl.load", "tl.laod"), "<typo>")
    assert "No letters yet" in message.first_part(typo).alt
    stub = re.sub(r"    (x =|tl.store).*\n", "", sources["constant_add"])
    assert "No letters yet" in message.first_part(define(stub, "<stub>")).alt


# ---- chapter 02


def test_a_grid_is_accepted_as_pairs_of_any_kind():
    exec(first_definition("02", "q6"), names := {"triton": triton})
    grids = [names["grid"](case.M, case.N, case.BLOCK_M, case.BLOCK_N) for case in OUTER_ADD_BLOCKS.cases]
    assert answer("ch02-q6", grids).ok and answer("ch02-q6", tuple(map(list, grids))).ok
    assert grids == [OUTER_ADD_BLOCKS.programs(case)[:2] for case in OUTER_ADD_BLOCKS.cases]


def test_the_picture_of_chapter_02_is_the_mandelbrot_set():
    kernel = define(first_definition("02", "mandelbrot"), "<mandelbrot>")
    plane = {"x": torch.linspace(-2.1, 0.7, 140), "y": torch.linspace(-1, 1, 100)}
    steps = run(kernel, OUTER_ADD_BLOCKS, **plane, BLOCK_M=32, BLOCK_N=32)
    stayed = int((steps == 30).sum())
    assert answer("ch02-q7", (steps, plane)).ok
    inside = abs(plane["x"][None, :] + 1j * plane["y"][:, None] + 1) < 0.2  # of the disk around -1
    assert inside.any() and bool((steps[inside] == 30).all())
    assert f"{stayed} points" in ch02_pictures.fractal(steps).alt


def test_a_picture_of_another_part_of_the_set_with_more_steps_is_judged_as_it_was_made():
    source = first_definition("02", "mandelbrot").replace("range(30)", "range(200)")
    plane = {"x": torch.linspace(-0.8, -0.7, 140), "y": torch.linspace(0.05, 0.15, 100)}
    numbers = {"BLOCK_M": 32, "BLOCK_N": 32}
    steps = run(define(source, "<zoom>"), OUTER_ADD_BLOCKS, **plane, **numbers)
    assert int(steps.max()) == 200 and answer("ch02-q7", (steps, plane)).ok
    assert "range(200)" in cells("02")["mandelbrot-idea-3"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("b * b < 4", "b * b < 2", "is below 2"),
        ("b * b < 4", "b * b < 3", "what you add to steps"),
        ("b * b < 4", "b * b > 4", "Turn the comparison around"),
        ("a, b = a * a - b * b + x, 2 * a * b + y", "a = a * a - b * b + x; b = 2 * a * b + y", "new a"),
        ("        a, b = a * a - b * b + x, 2 * a * b + y\n", "", "same count"),
        ("b * b + x", "b * b - x", "Check the two formulas"),
        ("steps += ", "steps -= ", "what you add to steps"),
        (
            "        a, b = a * a - b * b + x, 2 * a * b + y\n        steps += a * a + b * b < 4\n",
            "        steps += a * a + b * b < 4\n        a, b = a * a - b * b + x, 2 * a * b + y\n",
            "1 too high",
        ),
    ],
)
def test_wrong_counts_are_not_the_mandelbrot_set(old, new, says, state_dir):
    source = first_definition("02", "mandelbrot")
    assert source.count(old) == 1
    plane = {"x": torch.linspace(-2.1, 0.7, 140), "y": torch.linspace(-1, 1, 100)}
    kernel = define(source.replace(old, new), "<wrong>")
    steps = run(kernel, OUTER_ADD_BLOCKS, **plane, BLOCK_M=32, BLOCK_N=32)
    assert says in repr(answer("ch02-q7", (steps, plane)))


def test_the_window_of_chapter_02_is_made_without_a_load():
    source = first_definition("02", "window")
    assert "tl.load" not in source
    made = run(define(source, "<window>"), OUTER_ADD_BLOCKS, x=torch.zeros(12), y=torch.zeros(12),
               BLOCK_M=8, BLOCK_N=4)  # fmt: skip
    assert answer("ch02-q9", made.tolist()).ok
    causal = source.replace("& (behind < 4)", "& (behind < 40)")
    made = run(define(causal, "<causal>"), OUTER_ADD_BLOCKS, x=torch.zeros(12), y=torch.zeros(12),
               BLOCK_M=8, BLOCK_N=4)  # fmt: skip
    assert "the causal mask" in repr(answer("ch02-q9", made.tolist()))


def test_the_best_tile_is_the_one_for_which_the_picture_shows_the_fewest_bytes():
    found = {}
    for rows, columns in itertools.product((8, 16, 32, 64, 128), repeat=2):
        told = ch02_pictures.drag(BLOCK_M=rows, BLOCK_N=columns).alt
        if int(re.search(r"programs: (\d+)", told)[1]) >= 12:
            found[rows, columns] = int(re.search(r"bytes moved: ([\d,]+)", told)[1].replace(",", ""))
    least = min(found, key=found.get)
    assert sorted(found.values())[0] < sorted(found.values())[1] and answer("ch02-q8", least).ok


def test_tiles_to_drag_show_the_cost_of_case_2():
    report = examine(solutions()["outer_add_blocks"], OUTER_ADD_BLOCKS)
    picture = ch02_pictures.drag(BLOCK_M=32, BLOCK_N=16)
    assert f"bytes moved: {report.cases[2].bytes_moved:,} (1.08x)" in picture.alt
    assert f"programs: {report.cases[2].programs};" in picture.alt and len(picture._repr_html_()) < 24_000
    assert "load x[0]" not in picture.alt  # that is asked later


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
def test_tiles_to_drag_read_in_every_theme(open_html, theme):
    page = open_html(f"{style(theme)}{ch02_pictures.drag()._repr_html_()}", 600, 700)
    assert not faint(page, ".puzzles-live") and page.evaluate("document.body.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_dragged_tiles_show_the_grid_and_the_cost_that_the_checker_counts(open_html):
    picture = ch02_pictures.drag(BLOCK_M=32, BLOCK_N=16)
    page = open_html(f"{style('light')}{picture._repr_html_()}", 800, 600)
    assert page.locator("[data-layer=over] > div").count() == 3 * 7
    page.locator('[data-log2="BLOCK_M"]').focus()
    page.keyboard.press("ArrowLeft")  # from 32 to 16
    page.locator('[data-log2="BLOCK_N"]').focus()
    page.keyboard.press("ArrowRight")  # from 16 to 32
    text = page.locator(".puzzles-live").inner_text()
    rows, columns, moved = 6, 4, 4 * (6 * 100 + 4 * 90 + 9000)
    for line in (
        f"grid: ({rows}, {columns})", f"programs: {rows * columns}", f"bytes moved: {moved:,} (1.08x)",
        "lanes without an element: 3,288 of 12,288",
    ):  # fmt: skip
        assert line in text
    assert page.locator("[data-layer=under] > div").count() == rows * columns


# ---- chapter 03


def test_the_silu_gradient_of_chapter_03_is_pytorchs():
    kernel = define(first_definition("03", "leaky"), "<silu>")
    given, blocks = silu.inputs(), {"BLOCK_M": 16, "BLOCK_N": 32}
    dx = run(kernel, MUL_RELU_BACKWARD, **given, **blocks)
    assert "agrees with PyTorch's" in silu.first_difference(dx)
    assert answer("ch03-q5", dx.tolist()).ok
    dx[3, 4] += 0.01
    assert "at [3, 4]: dx is" in silu.first_difference(dx)
    assert not answer("ch03-q5", dx.tolist()).ok


def test_what_fusion_saves_on_a_gpu_in_chapter_03_is_recorded():
    (torchs, fused) = (row for row in recorded.rows("fused") if row["case"].startswith("relu"))
    two, one = (f"{row['us']:.0f} µs" for row in (torchs, fused))
    prose = cells("03")
    assert f"an H200 needs {two} for that" in prose["p5-idea"] and f"needs {one}" in prose["p5-idea"]
    assert f"took {two}, and the fused kernel took {one}" in prose["p5-detour-2"]
    assert f"it's {fused['ratio']:.1f} times as fast" in prose["p5-detour-2"]
    M, N = ASKED.M, ASKED.N
    assert f"{M:,} × {N:,} products" in prose["p5-detour-2"] and f"of {M} x {N} products" in fused["case"]
    assert 4 * M * N > 5 * 50e6  # NVIDIA's figure for the cache


def test_a_run_calls_a_kernel_unsolved_that_lacks_the_names_that_its_hole_sets():
    source = re.sub(
        r"    ### BEGIN.*### END SOLUTION\n", "", cells("03")["leaky"].partition("\n\n\n")[0], flags=re.DOTALL
    )
    with pytest.raises(RuntimeError, match="silu_backward_kernel(.|\\n)*not solved yet"):
        run(define(source, "<stub>"), MUL_RELU_BACKWARD, **silu.inputs(), BLOCK_M=16, BLOCK_N=32)


def test_a_run_is_reported_under_the_name_of_its_kernel():
    source = first_definition("03", "leaky")
    with pytest.raises(RuntimeError, match=r"silu_backward_kernel: not run(.|\n)*tl.laod"):
        kernel = define(source.replace("tl.load(dz", "tl.laod(dz"), "<typo>")
        run(kernel, MUL_RELU_BACKWARD, **silu.inputs(), BLOCK_M=16, BLOCK_N=32)


def test_a_whole_float_is_an_integer_and_a_factor_may_end_in_x(state_dir):
    assert answer("ch00-q3", 21.0).ok
    assert answer("ch03-q4", "3.02x").ok
    assert "a tuple, but 63 is an int. The question: " in repr(answer("ch04-q7", 63))


def test_a_line_typed_into_the_comment_is_noticed():
    source = kernel_sources()["double"].replace("    z = 2 * x\n", "    # z = 2 * x\n")
    assert "    # z = 2 * x\n" in source
    told = str(check(define(source, "<comment>"), DOUBLE))
    assert "your line is still a comment: remove the # in front" in told
    empty = str(check(define(source.replace("    # z = 2 * x\n", ""), "<empty>"), DOUBLE))
    assert "your lines are missing" in empty
    stub = source.replace("# z = 2 * x", "# your code here (1 line)")
    told = str(check(define(stub, "<stub>"), DOUBLE))
    assert "replace the comment `# your code here` with your lines" in told


def test_run_calls_an_unsolved_kernel_unsolved():
    left = re.sub(r"    (first|second|tl.store).*\n", "", kernel_sources()["pair_difference"])
    with pytest.raises(RuntimeError, match="(?s)pair_difference_kernel.*not solved yet"):
        run(define(left, "<stub>"), PAIR_DIFFERENCE, x=torch.ones(16), N=8, BLOCK=8)
