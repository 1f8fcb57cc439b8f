"""The clinic: what its patients get, and that each says of itself what is so.

That each broken kernel fails for its reason and each mended one passes is in test_wrong_kernels and
test_right_kernels, beside all others.
"""

import dataclasses
import json
import re

import nbformat
import pytest
import torch

from puzzles_lib import DOUBLE, Case, run, watch
from puzzles_lib.answers import judge
from puzzles_lib.authoring.nbgrader import assignment
from puzzles_lib.authoring.release import broken, read_master
from puzzles_lib.authoring.solutions import kernel_cells, kernel_sources, solutions
from puzzles_lib.chapters import breaking
from puzzles_lib.chapters.ch20_clinic import patient as module
from puzzles_lib.chapters.ch20_clinic.kernels import doubled_kernel
from puzzles_lib.chapters.ch20_clinic.patient import Patient, lines_of
from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.chapters.ch20_clinic.patients.p59_attended import STEP
from puzzles_lib.checker import examine
from puzzles_lib.checking import AS_REPORTED, check
from puzzles_lib.compiler import find_target, gpu_dialect
from puzzles_lib.grading.handed_in import Notebook
from puzzles_lib.inspector import stages
from puzzles_lib.ledger import entries
from puzzles_lib.source import define
from tests.conftest import REPO

MASTER = REPO / "solutions" / "20_clinic.ipynb"
HANDED_OUT = kernel_cells("notebooks")
patients = pytest.mark.parametrize("patient", PATIENTS, ids=lambda p: p.puzzle.name)


def kernel_of(name: str, folder: dict[str, str]) -> object:
    return define(folder[name], f"<{name} in the clinic>")


def cells() -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(MASTER, as_version=4).cells}


# ---- each patient


@patients
def test_a_learner_gets_the_broken_kernel_whole(patient):
    right, wrong = kernel_sources()[patient.puzzle.name], HANDED_OUT[patient.puzzle.name]
    assert breaking(patient.puzzle) is patient.slip and patient.slip.what.endswith(".")
    assert wrong.rstrip() == patient.slip.apply(right).replace("  # fmt: skip", "").rstrip()
    assert "your code here" not in wrong and "SOLUTION" not in right
    assert len(lines_of(patient.slip)) <= 4


about_a_line = pytest.mark.parametrize(
    "patient", [p for p in PATIENTS if p.question.asks.startswith("Which line")], ids=lambda p: p.puzzle.name
)

ALSO = {
    "far_rows": {6},
}
"""Lines where a kernel could be mended as well: by tests/kernels/ch20_clinic.py."""


@about_a_line
def test_its_line_is_where_a_learner_sees_the_slip(patient):
    """And no line elsewhere. Other questions are in test_ch20_questions."""
    shown = HANDED_OUT[patient.puzzle.name].splitlines()
    mended = kernel_sources()[patient.puzzle.name].replace("  # fmt: skip", "").splitlines()
    lines = lines_of(patient.slip)
    assert any(shown[line - 1] not in mended for line in lines) or len(shown) < len(mended)
    lines |= ALSO.get(patient.puzzle.name, set())
    for line in range(1, len(shown) + 1):
        assert judge(patient.question, line).ok == (line in lines)


@patients
def test_its_report_links_its_thread_and_does_not_name_the_cure(patient):
    text = cells()[f"p{patient.puzzle.number}-report"]
    assert f"]({patient.thread})" in text and text.startswith(f"## Case {patient.puzzle.number} · ")
    told = [line.strip() for line in patient.slip.edits]
    assert not [line for line in told if len(line) > 8 and line in text]


@pytest.mark.parametrize(
    "number, cause",
    [
        ("42", "65,535"),
        ("43", "(t >= start)"),
        ("44", "contiguous"),
        ("46", "lanes"),
        ("47", "256"),
        ("48", "-inf"),
        ("49", "equal"),
        ("50", "descriptor"),
        ("51", "barrier"),
        ("56", "negative"),
        ("57", "associative"),
        ("58", "-44"),
        ("59", "old maximum"),
        ("61", "overlapped"),
        ("63", "utotune"),
        ("64", "alone"),
        ("65", "compile"),
    ],
)
def test_its_cause_is_not_told_before_it_is_looked_for(number, cause):
    said = cells()
    assert cause not in said[f"p{number}-report"] + said[f"q{number}-ask"]
    assert cause in said[f"p{number}-takeaway"]


def test_what_the_example_of_the_method_shows_is_as_is_told():
    """The first size that fails, the values that are right, and the place that is not."""
    assert "case=Case(N=17, BLOCK=16), program=1" in cells()["method-demo-look"]
    recorded = watch(doubled_kernel, DOUBLE, case=Case(N=17, BLOCK=16), program=1)
    assert repr(recorded).splitlines()[-1] == "stores to z: 1 of 16 lanes, elements 0 to 0"
    own = doubled_kernel.src.replace('    """z[i] = 2 x[i], as it was reported."""\n', "")
    assert own.strip() in cells()["method-demo-mend"]
    mended = define("@triton.jit\n" + own.replace("z_ptr + lane", "z_ptr + offs"), "<mended>")
    assert run(mended, DOUBLE, x=torch.arange(17.0), BLOCK=16).tolist() == [2.0 * n for n in range(17)]


@pytest.mark.parametrize(
    "division, words",
    [
        ("x // SIZE - (x < 0)", "that SIZE divides come out one too low"),
        ("tl.floor(x / SIZE).to(tl.int32)", "x / SIZE is a float32"),
    ],
)
def test_a_half_mended_division_is_told_what_is_left(division, words):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "cells")
    kernel = define(HANDED_OUT["cells"].replace("x // SIZE", division), "<half mended>")
    assert words in check(kernel, patient.puzzle).verdicts[0].diagnosis


def test_what_has_no_dot_is_not_told_of_tf32():
    puzzle = next(p.puzzle for p in PATIENTS if p.puzzle.name == "bias_gradient")
    (verdict, *_) = examine(kernel_of(puzzle.name, HANDED_OUT), puzzle).verdicts
    assert verdict.diagnosis.endswith("float16 or bfloat16?")


def test_without_right_kernels_a_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_RIGHT", tmp_path / "right.json")
    told = judge(PATIENTS[0].question, 3)
    assert told.status == "not checked" and "this copy of the course has no right.json" in told.words


def test_no_two_have_one_thread():
    assert len({patient.thread for patient in PATIENTS}) == len(PATIENTS)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"thread": "https://github.com/triton-lang/triton"}, "allowed is an issue on GitHub"),
        ({"ward": "heart"}, "allowed are sizes, masks"),
        ({"slip": dataclasses.replace(PATIENTS[0].slip, name="other")}, "broken_by is"),
        ({"question": PATIENTS[-1].question}, "its question is ch20-q"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PATIENTS[0], **change)


def test_two_masks_added_are_an_xor_as_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "sinks_and_window")
    assert "compiled, `+` is an `xor`" in cells()["p61-takeaway"]
    made = stages(kernel_of("sinks_and_window", HANDED_OUT), patient.puzzle, case=3)
    assert re.search(r"arith\.addi .*xi1>", made.ttir) and "xor.pred" in made.ptx


def test_a_loss_of_digits_that_is_written_down_as_is_told():
    assert "look at each `.to`" in cells()["p54-takeaway"]
    assert ".to(dy.dtype)" in HANDED_OUT["bias_gradient"]


TWO_ADDED = """
@triton.jit
def kernel(x_ptr, z_ptr, N: tl.constexpr):
    n = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    acc += tl.load(x_ptr + n) + tl.load(x_ptr + N + n)
    tl.store(z_ptr + n, acc)
"""


def test_float16_plus_float16_is_float16_as_is_told():
    assert "float16 plus float16 is float16" in cells()["p58-takeaway"]
    kernel = define(TWO_ADDED, "<two added>")
    given = {"x_ptr": torch.zeros(64, dtype=torch.float16), "z_ptr": torch.zeros(32), "N": 32}
    dialect = gpu_dialect(kernel, given, find_target("sm_90"), num_warps=4)
    assert re.search(r"arith\.addf .*tensor<32xf16", dialect)


def test_attended_is_right_where_no_block_raises_the_maximum_a_little_as_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "attended")
    assert "Rows whose largest score comes first are correct" in cells()["p59-takeaway"]
    assert "whose first block has its largest score is correct" in cells()["p59-report"]
    assert f"grown by no more than {STEP:g}" in cells()["p59-takeaway"]
    kernel = kernel_of("attended", HANDED_OUT)
    above = torch.tensor([0, -1, STEP, STEP + 1, 3])  # the second block, by how much
    x = torch.stack([torch.zeros(5), above], 1).repeat_interleave(16, 1)
    v = torch.arange(32.0).repeat(len(x), 1)
    z, right = run(kernel, patient.puzzle, x=x, v=v, BLOCK_N=16), patient.puzzle.spec(x, v)
    assert torch.isclose(z, right, rtol=1e-5).tolist() == [True, True, False, True, False]
    assert (z < right)[[2, 4]].all()  # the second block, of larger values, weighs too little


def test_none_moves_less_than_what_is_called_the_least():
    master = nbformat.read(MASTER, as_version=4)
    said = "".join(
        out.data["text/plain"] for cell in master.cells for out in cell.get("outputs", ()) if "data" in out
    )
    factors = [float(found) for found in re.findall(r"\((\d+\.\d\d)x\)", said)]
    assert len(factors) > 90 and min(factors) == 1


@patients
def test_what_its_report_says_to_run_is_imported(patient):
    (imported,) = (text for id, text in cells().items() if id == "imports")
    names: dict[str, object] = {}
    exec(imported, names)
    said = str(check(kernel_of(patient.puzzle.name, HANDED_OUT), patient.puzzle))
    assert set(re.findall(r"^\s*(\w+)\(\w+_kernel, ", said, re.MULTILINE)) <= names.keys()


def test_a_case_that_fails_after_other_configurations_is_named_by_its_own():
    """And each one that does is said to: what is right alone is wrong in company, at any size."""
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "tuned_sum")
    cases = examine(kernel_of("tuned_sum", HANDED_OUT), patient.puzzle).cases
    assert len(cases) == len(patient.puzzle.cases) and not any(case.ok for case in cases)
    failed = cases[0]
    assert "configuration 2 of 2: BLOCK_N=64" in failed.verdict.diagnosis and failed.label.endswith(
        "BLOCK_N=64"
    )


# ---- what is said of a wrong answer


@about_a_line
def test_every_nudge_is_said_and_none_holds_the_answer(patient):
    question, right = patient.question, patient.question.right()
    words = [question.nudge, *(nudge.words for nudge in question.nudges)]
    assert not [text for text in words if re.search(rf"(?<![\d.^]){re.escape(str(right))}(?![\d])", text)]
    said = {judge(question, value).words for value in range(-1, 40)}
    assert said >= set(words), set(words) - said


@pytest.mark.parametrize(
    "name, code, words",
    [
        ("many_tokens", "w = tl.load", "the columns are fine"),
        ("best_row", "tl.atomic_cas", "The lock is acquired"),
        ("norm_and_turn", "a = tl.load", "nobody stores to x"),
        ("products", "x = tl.load", "If masks and offsets"),
        ("norm_and_turn", "tl.store(y_ptr + at_b", "No other line has the numbers"),
        ("attended", "best = ", "Which lines use it"),
        ("attended", "new = ", "Which line doesn't keep it"),
        ("attended", "scale = ", "keeps the sums relative"),
        ("attended", "acc = acc", "relative to the same maximum"),
        ("random_rounding", "lanes = ", "The lanes are the same"),
        ("tuned_rows", "tl.store", "handles the columns"),
        ("tuned_rows", "configs=", "correct for any of these configurations"),
    ],
)
def test_a_nudge_is_said_of_the_line_that_it_is_about(name, code, words):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == name)
    (line,) = (n for n, text in enumerate(HANDED_OUT[name].splitlines(), 1) if code in text)
    assert words in judge(patient.question, line).words


# ---- how they are handed out


def test_as_it_is_handed_out_it_says_its_fault_and_counts_as_no_try(state_dir):
    patient: Patient = PATIENTS[0]
    name = patient.puzzle.name
    report = check(kernel_of(name, HANDED_OUT), patient.puzzle)
    assert report.verdicts[0].kind == patient.slip.kind
    assert entries()[0][name].state == "open"
    half = HANDED_OUT[name].replace("T * K", "T * K * 1")
    tried = check(define(half, "<half mended>"), patient.puzzle)
    assert "make a factor int64" in str(tried) and AS_REPORTED not in str(tried)
    assert entries()[0][name].state == "tried"
    assert check(solutions()[name], patient.puzzle).cheer is not None
    assert entries()[0][name].state == "solved"


@patients
def test_as_it_is_handed_out_only_its_symptom_is_shown(patient):
    """No line and no cause, so that there is something to find."""
    kernel = kernel_of(patient.puzzle.name, HANDED_OUT)
    report = check(kernel, patient.puzzle)
    assert not report.ok and report.notes[-1] == AS_REPORTED
    assert report.verdicts[0].kind == examine(kernel, patient.puzzle).verdicts[0].kind
    assert not [verdict for verdict in report.verdicts if verdict.site or verdict.diagnosis]
    assert not re.search(r"\blines? \d", str(report))


def test_a_cast_after_the_product_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "far_rows")
    late = HANDED_OUT["far_rows"].replace("b * T * K", "(b * T * K).to(tl.int64)")
    report = check(define(late, "<cast too late>"), patient.puzzle)
    assert "the cast on this line comes after the product" in report.verdicts[0].diagnosis


@pytest.mark.parametrize(
    "name, gone, still",
    [
        ("label_probability", "", "lane 0 of warp 0, with no barrier between"),
        ("best_row", "", "the atomic waits for one thread only"),
        ("norm_and_turn", "n < N - H", "with no barrier between"),
    ],
)
def test_the_cure_of_a_race_is_left_to_its_learner(name, gone, still):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == name)
    source = HANDED_OUT[name].replace(
        "tl.store(y_ptr + row + n, x * rstd, mask=n < N)", f"tl.store(y_ptr + row + n, x * rstd, mask={gone})"
    )
    kernel = define(source.replace("):\n", "):\n    N = N + 0\n", 1), "<changed>")
    assert "put tl.debug_barrier()" in str(examine(kernel, patient.puzzle))
    told = str(check(kernel, patient.puzzle))
    assert still in told and "debug_barrier" not in told


@pytest.mark.parametrize(
    "stages, words",
    [
        (1, "bytes of shared memory"),
        (2, "bytes of shared memory"),
        (4, "programs at a time"),
        (7, "programs"),
    ],
)
def test_only_the_most_stages_for_two_programs_meet_the_goal(stages, words):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "tiled_product")
    kernel = define(HANDED_OUT["tiled_product"].replace("num_stages=8", f"num_stages={stages}"), "<stages>")
    (verdict,) = examine(kernel, patient.puzzle).verdicts
    assert verdict.kind == "machine" and words in verdict.message


def test_a_stride_that_is_no_longer_specialized_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "temperatures")
    both = kernel_sources()["temperatures"].replace('["M"]', '["M", "V"]')
    (verdict,) = examine(define(both, "<both>"), patient.puzzle).verdicts
    assert (
        "V isn't compiled as a multiple of 16" in verdict.message
        and verdict.diagnosis == "V is i32 for the compiler"
    )


@pytest.mark.parametrize(
    "name, right, wrong, words",
    [
        (
            "any_above",
            "hits = tl.sum((x > 1).to(tl.int32))",
            "hits = tl.sum((x > 1).to(tl.int64))",
            "low byte",
        ),
        ("attended", "tl.exp(top - new)", "tl.exp(top - best)", "still has the old one"),
    ],
)
def test_a_mend_in_the_wrong_place_is_told(name, right, wrong, words):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == name)
    assert right in HANDED_OUT[name]
    report = check(define(HANDED_OUT[name].replace(right, wrong), "<mended elsewhere>"), patient.puzzle)
    assert words in report.verdicts[0].diagnosis


def test_a_seed_per_block_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "random_rounding")
    source = HANDED_OUT["random_rounding"].replace(
        "tl.rand(SEED, lanes)", "tl.rand(SEED + tl.program_id(0), lanes)"
    )
    (verdict, *_) = examine(define(source, "<a seed per block>"), patient.puzzle).verdicts
    assert verdict.diagnosis.startswith("each block has a seed of its own")


def test_grading_finds_each_kernel_and_runs_nothing_for_it():
    notebook = Notebook(MASTER.read_bytes())
    for patient in PATIENTS:
        found = notebook.kernel_of(patient.puzzle)
        assert found.kernel and not found.remarks, (patient.puzzle.name, found.words)


def test_only_a_kernels_cell_is_broken():
    source = f"{kernel_sources()['cells']}\n\ncheck(cells_kernel, CELLS)"
    assert broken("p56-kernel", source) != source
    assert broken("p56-demo", source) == source


def test_for_nbgrader_the_right_kernel_stands_between_markers_after_the_broken_one():
    made = assignment(read_master(MASTER), MASTER.name, "salt")
    (cell,) = (cell for cell in made.cells if cell.id == "p56-kernel")
    assert cell.metadata["nbgrader"]["solution"]
    left = re.sub(r"### BEGIN SOLUTION.*?### END SOLUTION", "", cell.source, flags=re.DOTALL)
    assert left.split() == (HANDED_OUT["cells"] + "\ncheck(cells_kernel, CELLS)").split()
    assert cell.source.index("### BEGIN") < cell.source.index(kernel_sources()["cells"].strip())
    assert json.dumps(made)
