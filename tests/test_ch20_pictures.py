"""Chapter 20's pictures show what the kernels that are handed out do, and what Triton compiles."""

import re

import nbformat
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from puzzles_lib import run
from puzzles_lib.authoring.solutions import kernel_cells, solutions
from puzzles_lib.binding import bind
from puzzles_lib.chapters.ch20_clinic import pictures
from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.chapters.ch20_clinic.patients.p65_temperatures import class_of
from puzzles_lib.compiler import find_target, specialised
from puzzles_lib.drawing.colours import BLUE, VERMILLION
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case, Puzzle
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
    assert len(places) == 10
    for at in places:
        case = ids[at].removesuffix("-picture")
        assert ids[at - 1 : at + 2] == [f"{case}-hints", f"{case}-picture", f"{case}-takeaway"]
        assert re.fullmatch(r"ch20\.pictures\.\w+\(\)", SEEN[at].source)


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


def test_three_elements_bracketed_both_ways():
    (then,) = re.findall(r"return factor_a \* factor_b, (.*)", HANDED_OUT["discounted_sum"])

    def joined(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        return a[0] * b[0], eval(then, {"sum_a": a[1], "factor_b": b[0], "sum_b": b[1]})

    one, two, three = ((0.5, float(x)) for x in (1, 2, 3))
    ends = [f"= {found[1]:g}" for found in (joined(joined(one, two), three), joined(one, joined(two, three)))]
    sums = [text[text.index("=") :] for text in texts(pictures.brackets().figure) if "=" in text]
    assert sums[1::2] == ends
    (report,) = (cell.source for cell in SEEN if cell.id == "p57-report")
    assert "1, 2.5, 4.5 instead of 4.25" in report and ends == ["= 4.25", "= 4.5"]


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
