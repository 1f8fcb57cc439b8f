"""Chapter 20's pictures show what the kernels that are handed out do, and what Triton compiles."""

import re

import nbformat
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from puzzles_lib import run
from puzzles_lib.authoring.solutions import kernel_cells, solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters.ch20_clinic import pictures
from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.chapters.ch20_clinic.patients.p65_temperatures import class_of
from puzzles_lib.checker import examine
from puzzles_lib.checker.attempts import attempt, blank
from puzzles_lib.compiler import find_target, gpu_dialect, memory_accesses, shared_memory, specialised
from puzzles_lib.drawing.colours import BLUE, ORANGE, SKY, VERMILLION
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Options
from puzzles_lib.source import define
from tests.conftest import REPO

HANDED_OUT = kernel_cells("notebooks")
PUZZLES = {patient.puzzle.name: patient.puzzle for patient in PATIENTS}
SEEN = nbformat.read(REPO / "solutions" / "20_clinic.ipynb", as_version=4).cells


def broken(name: str) -> tuple[object, Puzzle]:
    return define(HANDED_OUT[name], f"<{name} in the clinic>"), PUZZLES[name]


def texts(figure: Figure) -> list[str]:
    (ax,) = figure.axes
    return [text.get_text() for text in ax.texts]


def filled(figure: Figure) -> list[str]:
    (ax,) = figure.axes
    return [to_hex(patch.get_facecolor()) for patch in ax.patches]


def test_a_cases_picture_stands_after_its_hints_and_before_its_takeaway():
    ids = [cell.id for cell in SEEN]
    places = [at for at, id in enumerate(ids) if re.fullmatch(r"p\d\d-picture", id)]
    assert len(places) == len(PATIENTS)
    for at in places:
        case = ids[at].removesuffix("-picture")
        assert ids[at - 1 : at + 2] == [f"{case}-hints", f"{case}-picture", f"{case}-takeaway"]
        assert re.search(r"^# ch20\.pictures\.\w+\(\)$", SEEN[at].source, re.MULTILINE)


def test_tokens_are_nobodys_that_the_kernel_leaves_out():
    kernel, puzzle = broken("many_tokens")
    case, failed = puzzle.cases[2], examine(kernel, puzzle).cases[2]
    unwritten = re.search(
        r"(\d+) of (\d+) elements of z are never written, the first is z\[(\d+), 0\]", str(failed.verdict)
    )
    lost, all_of_z, first = map(int, unwritten.groups())
    assert all_of_z == case.T * case.N and lost == (case.T - first) * case.N
    picture = pictures.left_out()
    assert f"no program computes tokens {first} to {case.T - 1}." in picture.alt
    assert filled(picture.figure).count(VERMILLION) == case.T - first + 1  # and the legend's


def test_sequences_that_meet():
    kernel, puzzle = broken("running_sums")
    case = puzzle.cases[3]
    given = make_inputs(puzzle, case) | {"x": torch.ones(case.T)}
    first, end = given["cu"][1:3].tolist()
    wrong = run(kernel, puzzle, **given, B=case.B, BLOCK=case.BLOCK)[first:end].int().tolist()
    right = puzzle.spec(**given)[first:end].int().tolist()
    shown = [text for text in texts(pictures.meets().figure) if text.isdigit()]
    told = " ".join(shown)
    assert f" {' '.join(map(str, wrong))} " in f" {told} " and told.endswith(" ".join(map(str, right)))
    assert f"{wrong[0]} to {wrong[-1]} instead of {right[0]} to {right[-1]}" in pictures.meets().alt
    assert filled(pictures.meets().figure).count(VERMILLION) == wrong[0] - right[0]


def test_rows_of_a_view_are_taken_from_where_the_kernel_takes_them():
    kernel, puzzle = broken("logsumexp_of_view")
    case = puzzle.cases[3]
    x = make_inputs(puzzle, case)["x"]
    z = run(kernel, puzzle, x=x, N=case.N, BLOCK_N=case.BLOCK_N)
    figure = pictures.strides().figure
    ranges = [re.fullmatch(r"(\d+) to (\d+)", text) for text in texts(figure)]
    shown = [range(int(found[1]), int(found[2]) + 1) for found in ranges if found]
    taken = [n for part in shown for n in part]
    assert len(taken) == case.M * case.N
    torch.testing.assert_close(x.flatten()[taken].view(case.M, case.N).logsumexp(1), z)
    colors = filled(figure)[2 * case.M :]  # after memory's
    programs = [taken.index(part[0]) // case.N for part in shown]
    for m, part, color in zip(programs, shown, colors, strict=False):
        assert color == (SKY if all(n // case.S == m for n in part) else VERMILLION)
    assert 0 < len([m for m, part in zip(programs, shown, strict=True) if part[0] // case.S != m])


def test_a_minimum_of_lanes_that_hold_0():
    kernel, puzzle = broken("row_minimum")
    case = puzzle.cases[3]
    assert "undefined lanes of x_ptr" in str(examine(kernel, puzzle))
    filled_up = HANDED_OUT["row_minimum"].replace(
        "mask=n < N)\n    least", "mask=n < N, other=0.0)\n    least"
    )
    assert filled_up != HANDED_OUT["row_minimum"]
    x = make_inputs(puzzle, case)["x"]
    z = run(define(filled_up, "<lanes of 0>"), puzzle, x=x, BLOCK_N=case.BLOCK_N)
    (over,) = (z - puzzle.spec(x))[0].unique().tolist()
    assert torch.equal(z, x) and f"so that z is {over:.3f} too large" in pictures.least().alt
    assert filled(pictures.least().figure).count(SKY) == case.N


def test_a_byte_of_a_count():
    kernel, puzzle = broken("any_above")
    shown = [re.fullmatch(r"byte \d+: (\w+)", text) for text in texts(pictures.keeps_a_byte().figure)]
    found = []
    for N in (255, 256, 257):
        x = torch.full((1, N), 2.0)
        found.append(str(bool(run(kernel, puzzle, x=x, BLOCK_N=512)[0])))
    assert [match[1] for match in shown if match] == found == ["True", "False", "True"]


def test_eight_bits_of_a_product():
    kernel, puzzle = broken("int8_matvec")
    a, x = (torch.tensor(row, dtype=torch.int8) for row in ([[-44, -20]], [24, 127]))
    shown = texts(pictures.eight_bits().figure)
    (found,) = run(kernel, puzzle, a=a, x=x, BLOCK_M=16, BLOCK_K=32).tolist()
    assert found == -12 and "the sum should be \N{MINUS SIGN}3596, and is \N{MINUS SIGN}12" in shown


def test_sums_that_are_nan_are_those_of_the_kernel():
    puzzle = PUZZLES["kept_scores"]
    case = puzzle.cases[3]
    given = make_inputs(puzzle, case)
    told = {}
    for name, kernel in (
        ("as reported", broken("kept_scores")[0]),
        ("correct", solutions()["kept_scores"]),
    ):
        sums = []
        for N in range(case.BLOCK_N, case.N + 1, case.BLOCK_N):
            x, keep = given["x"][2:, :N].contiguous(), given["keep"][2:, :N].contiguous()
            z = run(kernel, puzzle, x=x, keep=keep, BLOCK_N=case.BLOCK_N)
            top = x.masked_fill(keep == 0, -torch.inf).max()
            sums.append("0" if name == "correct" and top == -torch.inf else f"{(z - top).exp().item():.3g}")
        told[name] = ", ".join(sums).replace("nan", "NaN")
    assert told["as reported"] == "NaN, NaN, NaN, NaN" and told["correct"].startswith("0, 0, 5")
    for name, sums in told.items():
        assert f"{name} {sums}" in pictures.nan_stays().alt


def test_of_equals_the_kernel_takes_what_is_drawn():
    kernel, puzzle = broken("greedy_token")
    logits = torch.tensor([[float(v in (2, 9, 17, 20)) for v in range(48)]])
    tokens = {
        name: [int(run(each, puzzle, logits=logits[:, :V].contiguous(), BLOCK_V=16)[0]) for V in (16, 32, 48)]
        for name, each in (("as reported", kernel), ("correct", solutions()["greedy_token"]))
    }
    shown = [int(found) for found in re.findall(r"token (\d+)", " ".join(texts(pictures.of_equals().figure)))]
    assert (shown[::2], shown[1::2]) == (tokens["as reported"], tokens["correct"])
    assert tokens == {"as reported": [2, 17, 17], "correct": [2, 2, 2]}


def test_rows_that_begin_between_are_those_that_no_descriptor_takes():
    kernel, puzzle = broken("row_totals")
    report = examine(kernel, puzzle)
    told = [result.verdict is None for result in report.cases[:4]]
    picture = pictures.begins()
    marks = filled(picture.figure)[1::2][:8]
    assert told[3:1:-1] == [VERMILLION not in marks[:4], VERMILLION not in marks[4:]] == [False, True]
    (step,) = re.findall(r"begin (\d+) bytes \(43 elements\) apart", str(report))
    assert f"K = 43, {step} bytes, they start at 0, {step}, " in picture.alt
    assert f"{step} = 5 · 16 + 6" in texts(picture.figure)


def test_what_is_loaded_too_soon_is_what_the_checker_says():
    kernel, puzzle = broken("label_probability")
    said = r"p\[0, (\d+)\] is stored at line 7 by lane \d+ of warp (\d), then loaded at .* lane 0 of warp 0,"
    at, warp = re.search(said, str(examine(kernel, puzzle))).groups()
    picture = pictures.not_yet_there()
    assert f"loads p[0, {at}], which warp {warp} stores" in picture.alt
    boxes = [text for text in texts(picture.figure) if text.startswith("stores")]
    late = boxes[filled(picture.figure)[:4].index(VERMILLION)]
    first, last = map(int, re.fullmatch(r"stores p\[0, (\d+) to (\d+)\]", late).groups())
    assert boxes.index(late) == int(warp) and first <= int(at) <= last
    case = puzzle.cases[0]
    bound = bind(kernel, puzzle, case)
    dialect = gpu_dialect(bound.kernel, bound.arguments, find_target("sm_90"), num_warps=4)
    row = next(access for access in memory_accesses(dialect) if access.kind == "store")
    assert (row.threads() // 32 == torch.arange(case.N).numpy() // 32).all()


def test_three_elements_bracketed_both_ways():
    (then,) = re.findall(r"return factor_a \* factor_b, (.*)", HANDED_OUT["discounted_sum"])

    def joined(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        return a[0] * b[0], eval(then, {"sum_a": a[1], "factor_b": b[0], "sum_b": b[1]})

    one, two, three = ((0.5, float(x)) for x in (1, 2, 3))
    ends = [f"= {found[1]:g}" for found in (joined(joined(one, two), three), joined(one, joined(two, three)))]
    sums = [text[text.index("=") :] for text in texts(pictures.brackets().figure) if "=" in text]
    assert sums[1::2] == ends
    (report,) = (cell.source for cell in SEEN if cell.id == "p57-report")
    assert "gives 1, 2.5, 4.5, 6.75" in report and ends == ["= 4.25", "= 4.5"]


def test_what_is_stored_twice_is_so_by_the_layouts_of_the_compiler():
    kernel, puzzle = broken("norm_and_turn")
    case = puzzle.cases[1]
    bound = bind(kernel, puzzle, case)
    dialect = gpu_dialect(bound.kernel, bound.arguments, find_target("sm_90"), num_warps=4)
    row, *end = (access for access in memory_accesses(dialect) if access.kind == "store")
    warps = row.threads() // 32
    found = []
    for place, access in enumerate(end):
        first = case.N - (2 - place) * case.H
        (one,), (two,) = ({*part.tolist()} for part in (warps[first:][: case.H], access.threads() // 32))
        found.append(f"{first} to {first + case.H - 1} by warp {one} and by warp {two}")
    shown = texts(pictures.stored_twice().figure)
    assert [text for text in shown if " to " in text] == found
    assert [text for text in shown if re.fullmatch(r"warp \d", text)] == [
        *(f"warp {warp}" for warp in sorted({*warps.tolist()})),
        *("warp 0" for _ in end),
    ]


def test_parts_are_added_as_the_kernel_adds_them():
    kernel, puzzle = broken("bias_gradient")
    case = puzzle.cases[1]
    dy = make_inputs(puzzle, case)["dy"]
    sizes = {"BLOCK_M": case.BLOCK_M, "BLOCK_N": case.BLOCK_N}
    sums = {}
    for name, each in (("added", kernel), ("part", solutions()["bias_gradient"])):
        parts = [run(each, puzzle, dy=rows.contiguous(), **sizes)[1] for rows in dy.split(case.BLOCK_M)]
        sums[name] = [*parts, run(each, puzzle, dy=dy, **sizes)[1]]
    shown = " ".join(texts(pictures.coarse_parts().figure)).replace("\N{MINUS SIGN}", "-")
    numbers = re.findall(r"-?\d+\.\d{4}(?!\d)", shown)
    assert numbers == [f"{x:.4f}" for pair in zip(sums["part"], sums["added"], strict=True) for x in pair]


def test_factors_are_taken_as_the_kernel_takes_them():
    kernel, puzzle = broken("products")
    given = make_inputs(puzzle, puzzle.cases[0])
    shown = texts(pictures.ten_bits().figure)
    (k,) = {int(found) for text in shown for found in re.findall(r"^x\[0, (\d+)\]$", text)}
    numbers = [text.replace("\N{MINUS SIGN}", "-") for text in shown]
    blocks = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    one = torch.ones(1, 1)
    for value in (given["x"][0, k], given["y"][k, 0]):
        taken = run(kernel, puzzle, x=value.view(1, 1), y=one, **blocks).item()
        at = numbers.index(f"{value.item():.6f}")
        assert f"{taken:.6f}" in numbers[at + 1 :] and taken != value.item()
    x, y = given["x"][0, k].view(1, 1), given["y"][k, 0].view(1, 1)
    right, found = (x * y).item(), run(kernel, puzzle, x=x, y=y, **blocks).item()
    assert f"is {right:.6f} but comes out as {found:.6f}" in numbers[-1]


def test_stages_take_what_the_compiled_kernel_asks_for():
    target, puzzle = find_target("sm_90"), PUZZLES["tiled_product"]
    asked = {}
    for stages in (3, 7, 8):
        text = HANDED_OUT["tiled_product"].replace("num_stages=8", f"num_stages={stages}")
        bound = bind(define(text, f"<{stages} stages>"), puzzle, puzzle.cases[1])
        asked[stages] = shared_memory(bound.kernel, bound.arguments, target)
    picture = pictures.too_many_stages()
    ends = [text for text in texts(picture.figure) if re.fullmatch(r"[\d,]+", text)]
    assert len(ends) == 8 and {n: f"{size:,}" for n, size in asked.items()} == {n: ends[n - 1] for n in asked}
    assert asked[7] <= target.shared_limit < asked[8]
    assert f"a program on an H100 may use {target.shared_limit:,} bytes" in texts(picture.figure)
    assert filled(picture.figure)[:16] == [*filled(picture.figure)[:2] * 7, VERMILLION, VERMILLION]


def after_the_others(
    name: str, case: Case, given: dict, tries: int, only: int | None = None, edit: tuple[str, str] = ("", "")
):
    """What its results hold after each run of all configurations, or of one, on the same tensors."""
    puzzle = PUZZLES[name]
    kernel = define(HANDED_OUT[name].replace(*edit), f"<{name} in the clinic>")
    bound = bind(kernel, puzzle, case)
    (result,) = puzzle.results
    held = {result.name: blank(puzzle, result, case)}
    for number in range(bound.wrapped.count) if only is None else [only]:
        each = bound.at(case, number)
        assert isinstance(each, Bound)
        for _ in range(tries):
            attempt(each, given, Options(quiet=True), results=held)
            yield held[result.name].clone()


def test_what_tries_add_is_what_the_kernel_leaves():
    case = PUZZLES["tuned_sum"].cases[2]
    given = {"x": torch.ones(case.N)}
    left = [int(z) for z in after_the_others("tuned_sum", case, given, tries=3)]
    (fresh,) = after_the_others("tuned_sum", case, given, tries=1, only=0)
    shown = [int(text) for text in texts(pictures.adds_up().figure) if text.isdigit()]
    assert shown == [*left, left[-1] + int(fresh), int(fresh)]
    blocks = re.findall(r'Config\({"BLOCK_N": (\d+)}\)', HANDED_OUT["tuned_sum"])
    assert f"with each of blocks of {' and '.join(blocks)}, " in pictures.adds_up().alt


def test_what_is_left_over_is_what_the_kernel_has_not_stored():
    case = PUZZLES["tuned_rows"].cases[4]
    given = make_inputs(PUZZLES["tuned_rows"], case)
    first = 'triton.Config({"BLOCK_N": 256})'
    with_the_removed = (first, f'triton.Config({{"BLOCK_N": 512}}), {first}')
    (alone,) = after_the_others("tuned_rows", case, given, tries=1, only=0)
    *_, after = after_the_others("tuned_rows", case, given, tries=1, edit=with_the_removed)
    (end,) = {int(stored.sum()) for stored in ~alone.isnan()}
    assert torch.equal(after, 2 * given["x"]) and not alone[:, :end].isnan().any() and 0 < end < case.N
    figure = pictures.left_over().figure
    assert [text for text in texts(figure) if text.isdigit()] == ["0", str(end), str(case.N)]
    (ax,) = figure.axes
    whole, stored, kept, again, rest = (patch for patch in ax.patches)
    assert {to_hex(patch.get_facecolor()) for patch in (whole, kept)} == {SKY}
    assert {to_hex(patch.get_facecolor()) for patch in (stored, again)} == {ORANGE}
    assert rest.get_hatch() and rest.get_width() / whole.get_width() == pytest.approx(1 - end / case.N)
    blocks = re.findall(r'Config\({"BLOCK_N": (\d+)}\)', HANDED_OUT["tuned_rows"])
    assert ["blocks of 512 (removed)", f"then blocks of {blocks[0]}"] == [
        text for text in texts(figure) if text.endswith("(removed)") or text.startswith("then")
    ]


def test_blocks_count_as_they_do_in_the_kernel():
    kernel, puzzle = broken("attended")
    case = puzzle.cases[1]
    x = make_inputs(puzzle, case)["x"]
    shares = []  # of each block, of all weights
    for b in range(case.N // case.BLOCK_N):
        v = torch.zeros_like(x)
        v[:, b * case.BLOCK_N :][:, : case.BLOCK_N] = 1
        found = run(kernel, puzzle, x=x, v=v, BLOCK_N=case.BLOCK_N)
        shares.append((found / puzzle.spec(x, v))[2].item())
    counts = ", ".join(f"{share / shares[0]:.3g}" for share in shares)
    assert f"the blocks count {counts} times" in pictures.two_maxima().alt
    wrong = sum(share < shares[0] for share in shares)
    assert 0 < wrong and filled(pictures.two_maxima().figure).count(VERMILLION) == 2 * wrong + 1


def test_stripes_are_what_the_kernel_makes():
    kernel, puzzle = broken("random_rounding")
    given = {"x": torch.full((256,), 0.5), "SEED": 7, "BLOCK_N": 32}
    shown = [color == BLUE for color in filled(pictures.stripes().figure)]
    assert shown[:256] == (run(kernel, puzzle, **given) > 0).tolist()
    assert shown[256:512] == (run(solutions()["random_rounding"], puzzle, **given) > 0).tolist()


def test_one_bit_has_the_columns_that_the_kernel_sums():
    puzzle = PUZZLES["sinks_and_window"]
    (wrong,) = puzzle.slips.values()
    (ax,) = pictures.one_bit().figure.axes
    shown = "".join(text.get_text() for text in ax.texts if text.get_fontsize() == 10)
    bits = "".join(re.findall("[01]", shown.partition("in both")[0]))
    for case in puzzle.cases[3:]:
        both, bits = bits[: 3 * case.N], bits[3 * case.N :]
        kept = wrong(torch.eye(case.N), case.S, case.W).int().tolist()  # one row for each column
        assert both[2 * case.N :] == "".join(map(str, kept)) and 0 in kept
    assert not bits


@pytest.mark.parametrize("M", range(1, 33))
def test_triton_compiles_for_the_classes_that_are_drawn(M):
    kernel, puzzle = broken("temperatures")
    bound = bind(kernel, puzzle, Case(M=M, V=32, BLOCK_M=4, BLOCK_V=32))
    told = specialised(bound.kernel, bound.arguments, find_target("sm_90"))["M"]
    assert told == {"1": "constexpr 1", "a multiple of 16": "i32, divisible by 16"}.get(class_of(M), "i32")
