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
from puzzles_lib.checker.attempts import attempt, blank
from puzzles_lib.compiler import find_target, gpu_dialect, memory_accesses, specialised
from puzzles_lib.drawing.colours import BLUE, SKY, VERMILLION
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


def test_a_byte_of_a_count():
    kernel, puzzle = broken("any_above")
    shown = [re.fullmatch(r"byte \d+: (\w+)", text) for text in texts(pictures.keeps_a_byte().figure)]
    found = []
    for N in (255, 256, 257):
        x = torch.full((1, N), 2.0)
        found.append(str(bool(run(kernel, puzzle, x=x, BLOCK_N=512)[0])))
    assert [match[1] for match in shown if match] == found == ["True", "False", "True"]


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
    assert [text for text in texts(figure) if text.isdigit()] == ["0", "32", str(end), str(case.N)]
    (ax,) = figure.axes
    memory = [patch for patch in ax.patches if patch.get_hatch()]
    whole, *_ = ax.patches
    assert len(memory) == 3 and to_hex(whole.get_facecolor()) == SKY  # twice, and in the legend
    for rest in memory[:2]:
        assert rest.get_width() / whole.get_width() == pytest.approx(1 - end / case.N)
    blocks = re.findall(r'Config\({"BLOCK_N": (\d+)}\)', HANDED_OUT["tuned_rows"])
    tried = [f"then blocks of {block}" for block in blocks]
    shown = [text for text in texts(figure) if "then" in text or "removed" in text]
    assert shown == ["blocks of 512 (removed)", *tried, tried[1]]


def test_blocks_count_as_they_do_in_the_kernel():
    kernel, puzzle = broken("attended")
    case = puzzle.cases[1]
    x = make_inputs(puzzle, case)["x"]
    shares = []  # of each block, of all weights
    for b in range(case.N // case.BLOCK_N):
        v = torch.zeros_like(x)
        v[:, b * case.BLOCK_N :][:, : case.BLOCK_N] = 1
        found, _ = run(kernel, puzzle, x=x, v=v, BLOCK_N=case.BLOCK_N)
        shares.append((found / puzzle.spec(x, v, case.BLOCK_N)[0])[2].item())
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


@pytest.mark.parametrize("M", range(1, 33))
def test_triton_compiles_for_the_classes_that_are_drawn(M):
    kernel, puzzle = broken("temperatures")
    bound = bind(kernel, puzzle, Case(M=M, V=32, BLOCK_M=4, BLOCK_V=32))
    told = specialised(bound.kernel, bound.arguments, find_target("sm_90"))["M"]
    assert told == {"1": "constexpr 1", "a multiple of 16": "i32, divisible by 16"}.get(class_of(M), "i32")
