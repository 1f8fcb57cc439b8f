"""The clinic: what its patients get, and that each says of itself what is so.

That each broken kernel fails for its reason and each mended one passes is in test_wrong_kernels and
test_right_kernels, beside all others.
"""

import contextlib
import dataclasses
import itertools
import json
import re

import nbformat
import pytest
import torch

from puzzles_lib import DOUBLE, Case, answer, hint, progress, run, watch
from puzzles_lib.answers import judge
from puzzles_lib.authoring.nbgrader import assignment
from puzzles_lib.authoring.release import broken, read_master
from puzzles_lib.authoring.solutions import kernel_cells, kernel_sources, solutions
from puzzles_lib.chapters import breaking, hints
from puzzles_lib.chapters.ch20_clinic.kernels import doubled_kernel
from puzzles_lib.chapters.ch20_clinic.patient import WARDS, Patient, cause
from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS
from puzzles_lib.chapters.ch20_clinic.patients.p59_attended import STEP
from puzzles_lib.chapters.ch20_clinic.pictures import SYMPTOMS
from puzzles_lib.checker import examine
from puzzles_lib.checking import check
from puzzles_lib.coach import hinting
from puzzles_lib.grading.handed_in import Notebook
from puzzles_lib.ledger import entries
from puzzles_lib.reported import as_reported, is_as_reported, symptoms
from puzzles_lib.source import define
from tests.conftest import REPO

MASTER = REPO / "solutions" / "20_clinic.ipynb"
HANDED_OUT = kernel_cells("notebooks")
PUZZLES = {patient.puzzle.name: patient.puzzle for patient in PATIENTS}
patients = pytest.mark.parametrize("patient", PATIENTS, ids=lambda p: p.puzzle.name)


def kernel_of(name: str, folder: dict[str, str]) -> object:
    return define(folder[name], f"<{name} in the clinic>")


def cells() -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(MASTER, as_version=4).cells}


@pytest.fixture(autouse=True)
def _causes_are_said(_own_environment) -> None:
    """All of them: a change is judged after that."""
    for patient in PATIENTS:
        answer(patient.question.id, patient.question.right())


# ---- each patient


@patients
def test_a_learner_gets_the_broken_kernel_whole(patient):
    right, wrong = kernel_sources()[patient.puzzle.name], HANDED_OUT[patient.puzzle.name]
    assert breaking(patient.puzzle) is patient.slip and patient.slip.what.endswith(".")
    assert wrong.rstrip() == patient.slip.apply(right).replace("  # fmt: skip", "").rstrip()
    assert "your code here" not in wrong and "SOLUTION" not in right


@patients
def test_its_report_links_its_thread_and_does_not_name_the_cure(patient):
    text = cells()[f"p{patient.puzzle.number}-report"]
    assert f"]({patient.thread})" in text and text.startswith(f"## Case {patient.puzzle.number} · ")
    told = [line.strip() for line in patient.slip.edits]
    assert not [line for line in told if len(line) > 8 and line in text]


@pytest.mark.parametrize(
    "number, words",
    [
        ("45", "past the end of its row"),
        ("43", "share a block"),
        ("41", "tl.int64"),
        ("56", "toward zero"),
        ("47", "low byte"),
        ("48", "-inf"),
        ("64", "each configuration alone"),
        ("65", "multiples of 16"),
        ("53", "Store each element only once"),
        ("55", "TF32"),
        ("60", "whole tensor"),
        ("57", "associative"),
        ("59", "old maximum"),
    ],
)
def test_its_cause_is_not_told_before_it_is_looked_for(number, words):
    said = cells()
    assert words not in said[f"p{number}-report"]
    assert words in said[f"p{number}-takeaway"]


def test_the_cases_come_in_the_puzzles_order_and_the_kernel_before_its_cause():
    ids = [id for id in cells() if re.fullmatch(r"(p\d\d-report|q[4-6]\d|p\d\d-kernel)", id)]
    numbers = [patient.puzzle.number for patient in PATIENTS]
    assert ids == [id for n in numbers for id in (f"p{n}-report", f"p{n}-kernel", f"q{n}")]


def test_neither_the_order_nor_a_heading_gives_away_where_to_look():
    rows = [patient.question.right()[0] for patient in PATIENTS]
    assert set(rows) == set(range(len(WARDS))) and all(a != b for a, b in itertools.pairwise(rows))
    headings = re.findall(r"^#+ .*", "\n".join(cells().values()), re.MULTILINE)
    assert not [heading for heading in headings if re.search(r"\bPart \d|\brow\b \d", heading)]
    table = re.findall(r"^\| (\d) \|.*\| ([\d, ]+) \|$", cells()["summary"], re.MULTILINE)
    told = {number: int(row) for row, numbers in table for number in numbers.split(", ")}
    for patient in PATIENTS:
        letter = patient.question.right()[1]
        assert judge(patient.question, (told[patient.puzzle.number], letter)).ok


def test_the_rows_of_the_map_are_numbered_as_it_draws_them():
    assert len(SYMPTOMS) == len(WARDS)
    for row, reply in enumerate(WARDS.values()):
        assert reply.startswith(f"Row {row} ")


def test_the_map_with_its_causes_has_each_case_once():
    assert sorted(re.findall(r"\b[456]\d\b", cells()["summary"])) == sorted(p.puzzle.number for p in PATIENTS)


# ---- the cause


@patients
def test_four_sentences_are_offered_and_three_have_a_reply(patient):
    question, offered = patient.question, cells()[f"q{patient.puzzle.number}-ask"]
    assert re.findall(r"^- \*\*(\w)\*\*: [^\n]+\.$", offered, re.MULTILINE) == list("abcd")
    row, right = question.right()
    replies = [judge(question, (row, letter)) for letter in "abcd"]
    assert [reply.ok for reply in replies].count(True) == 1 and judge(question, (row, right.upper())).ok
    assert len({reply.words for reply in replies}) == 4
    assert '(4, "a")' in offered and not judge(question, (4, "a")).ok


@patients
def test_a_wrong_row_is_replied_to_whatever_the_letter_is(patient):
    """So that trying all letters doesn't find the cause."""
    question = patient.question
    row, right = question.right()
    fitting = [n for n in range(len(WARDS)) if judge(question, (n, right)).ok]
    assert row in fitting and len(fitting) <= 3
    for n in set(range(len(WARDS))) - set(fitting):
        assert {judge(question, (n, letter)).words for letter in "abcd"} == {list(WARDS.values())[n]}


@pytest.mark.parametrize("value", [(), (1,), ("c", 1), (7, "c"), (1, "e"), (1, "c", 2), (1, "")])
def test_what_is_no_row_and_letter_is_told_the_form(value):
    assert judge(PATIENTS[0].question, value).words == PATIENTS[0].question.nudge


def test_no_letter_is_the_cause_of_most():
    rights = [patient.question.right()[1] for patient in PATIENTS]
    assert set(rights) == set("abcd") and max(map(rights.count, rights)) <= 4


def test_a_letter_without_a_reply_is_refused():
    with pytest.raises(ValueError, match="replies to a, b, but 'c' is the cause"):
        cause(PATIENTS[0].slip, "c", ("runs",), a="No.", b="No.")


@pytest.mark.parametrize("wards", [(), ("heart",)])
def test_a_ward_that_is_not_on_the_map_is_refused(wards):
    with pytest.raises(ValueError, match="must be one of elements, values"):
        cause(PATIENTS[0].slip, "c", wards, a="No.", b="No.", d="No.")


@patients
def test_a_change_is_judged_once_the_cause_is_said(patient, state_dir):
    (state_dir / "progress.json").unlink()
    name, question = patient.puzzle.name, patient.question
    notes = check(kernel_of(name, HANDED_OUT), patient.puzzle).notes
    assert {as_reported(question.id), as_reported(question.id, has_line=True)} & {*notes}
    row, right = question.right()
    answer(question.id, (row, "abcd".replace(right, "")[0]))
    report = check(solutions()[name], patient.puzzle)
    assert not report.ok and "your change isn't judged yet" in str(report)
    assert f'say the cause first, by answer("{question.id}", ...)' in str(report)
    assert "your last check said" not in str(hint(patient.puzzle))  # nor does a hint judge it
    assert entries()[0][name].state == "open" and entries()[0][name].tries == 0
    answer(question.id, question.right())
    assert check(solutions()[name], patient.puzzle).cheer is not None


def test_where_progress_cannot_be_kept_a_change_is_judged(monkeypatch):
    monkeypatch.setenv("PUZZLES_STATE_DIR", "/dev/null/nowhere")
    patient = PATIENTS[0]
    report = check(solutions()[patient.puzzle.name], patient.puzzle)
    assert report.ok and "your progress could not be saved" in str(report)


def test_progress_in_cases_that_have_gone_can_be_read_and_is_kept(state_dir):
    """By learners who solved 25 cases, and answered in which line each bug was."""
    gone = {"many_tokens": "42", "tuned_sum": "63"}
    solved = {name: {"state": "solved", "tries": 2, "last": "pass"} for name in (*gone, "far_rows")}
    solved |= {f"ch20-q{number}": {"state": "solved", "tries": 1} for number in (*gone.values(), "41")}
    (state_dir / "progress.json").write_text(json.dumps({"schema": 2, "puzzles": solved}))
    shown = progress()
    assert shown.note is None
    (chapter,) = (chapter for chapter in shown.chapters if chapter.number == "20")
    assert {item.name for item in chapter.items if item.state == "solved"} == {"far_rows", "ch20-q41"}
    patient = next(p for p in PATIENTS if p.puzzle.name == "bias_relu")
    answer(patient.question.id, patient.question.right())
    assert check(solutions()["bias_relu"], patient.puzzle).ok
    assert set(solved) < set(entries()[0]) and entries()[0]["many_tokens"].tries == 2


def test_wrong_results_are_where_the_report_has_them():
    """Lanes past the end of a row: at the beginning of the next one, and so in any but the first."""
    assert "at the beginning of a row, and none is in row 0" in cells()["p45-report"]
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "bias_relu")
    case = patient.puzzle.cases[2]
    end = -(-case.N // case.BLOCK_N) * case.BLOCK_N
    reached = {m * case.N + n for m in range(case.M) for n in range(case.N, end)}  # by such lanes
    rows = {divmod(at, case.N) for at in reached if at < case.M * case.N}
    assert {m for m, _ in rows} == set(range(1, case.M)) and {n for _, n in rows} == set(range(end - case.N))


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


def test_no_two_have_one_thread():
    assert len({patient.thread for patient in PATIENTS}) == len(PATIENTS)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"thread": "https://github.com/triton-lang/triton"}, "must be an issue on GitHub"),
        ({"slip": dataclasses.replace(PATIENTS[0].slip, name="other")}, "broken_by is"),
        ({"question": PATIENTS[-1].question}, "its question is ch20-q"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PATIENTS[0], **change)


def test_attended_is_right_where_no_block_raises_the_maximum_a_little_as_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "attended")
    assert "A row whose largest score comes first never meets a larger maximum" in cells()["p59-takeaway"]
    assert "whose first block has its largest score is correct" in cells()["p59-report"]
    assert f"grown by no more than {STEP:g}" in cells()["p59-takeaway"]
    kernel = kernel_of("attended", HANDED_OUT)
    above = torch.tensor([0, -1, STEP, STEP + 1, 3])  # the second block, by how much
    x = torch.stack([torch.zeros(5), above], 1).repeat_interleave(16, 1)
    v = torch.arange(32.0).repeat(len(x), 1)
    (z, base), (right, _) = run(kernel, patient.puzzle, x=x, v=v, BLOCK_N=16), patient.puzzle.spec(x, v, 16)
    assert torch.isclose(z, right, rtol=1e-5).tolist() == [True, True, False, True, False]
    assert base.tolist() == [0, 0, 0, STEP + 1, 0]
    assert (z < right)[[2, 4]].all()  # the second block, of larger values, weighs too little


def test_none_moves_less_than_what_is_called_the_least():
    master = nbformat.read(MASTER, as_version=4)
    said = "".join(
        out.data["text/plain"] for cell in master.cells for out in cell.get("outputs", ()) if "data" in out
    )
    factors = [float(found) for found in re.findall(r"\((\d+\.\d\d)x\)", said)]
    assert len(factors) > 50 and min(factors) == 1


@patients
def test_what_its_report_says_to_run_is_imported(patient):
    (imported,) = (text for id, text in cells().items() if id == "imports")
    names: dict[str, object] = {}
    exec(imported, names)
    said = str(check(kernel_of(patient.puzzle.name, HANDED_OUT), patient.puzzle))
    assert set(re.findall(r"^\s*(\w+)\(\w+_kernel, ", said, re.MULTILINE)) <= names.keys()


# ---- how they are handed out


def test_as_it_is_handed_out_it_says_its_fault_and_counts_as_no_try(state_dir):
    patient: Patient = next(p for p in PATIENTS if p.puzzle.name == "far_rows")
    name = patient.puzzle.name
    report = check(kernel_of(name, HANDED_OUT), patient.puzzle)
    assert report.verdicts[0].kind == patient.slip.kind
    assert entries()[0][name].state == "open"
    half = HANDED_OUT[name].replace("T * K", "T * K * 1")
    tried = check(define(half, "<half mended>"), patient.puzzle)
    assert "does not fit int32 and wraps around\n" in str(tried) and "convert a factor to int64" not in str(
        tried
    )
    assert "so you see only the symptom" not in str(tried)
    assert entries()[0][name].state == "tried"
    assert check(solutions()[name], patient.puzzle).cheer is not None
    assert entries()[0][name].state == "solved"


def test_a_hint_quotes_the_check_as_it_was_shown(monkeypatch):
    monkeypatch.setattr(hinting, "_shown", {})
    name = "far_rows"
    shown = str(check(kernel_of(name, HANDED_OUT), PUZZLES[name]))
    said = str(hint(PUZZLES[name]))
    quoted = re.search("Chosen because your last check said: “(.+?)”", said)
    assert quoted and quoted[1] in shown and "convert a factor" not in said
    assert "Hint 1 only leads to the cause, which you've said." in said


@patients
def test_until_its_cause_is_said_only_its_symptom_is_shown(patient, state_dir):
    """No line and no cause, so that there is something to find."""
    (state_dir / "progress.json").unlink()
    kernel = kernel_of(patient.puzzle.name, HANDED_OUT)
    report = check(kernel, patient.puzzle)
    whole = examine(kernel, patient.puzzle)
    has_line = any(verdict.site for verdict in whole.verdicts)
    assert bool(re.search(r"\blines? \d", str(whole))) is has_line  # a line is promised if there is one
    assert not report.ok and report.notes[-1] == as_reported(patient.question.id, has_line)
    assert report.verdicts[0].kind == whole.verdicts[0].kind
    assert not [verdict for verdict in report.verdicts if verdict.site or verdict.diagnosis]
    assert not re.search(r"\blines? \d", str(report))


@patients
def test_once_its_cause_is_said_all_of_the_report_is_shown(patient, state_dir):
    name = patient.puzzle.name
    report = check(kernel_of(name, HANDED_OUT), patient.puzzle)
    assert not report.ok and patient.slip.says in str(report)
    before = symptoms(report, patient.question.id)  # so the cell that checks again shows more
    assert set(str(report).splitlines()) - set(str(before).splitlines())
    assert "make a factor" not in str(report) and "input_precision" not in str(report)
    assert "so you see only the symptom" not in str(report) and entries()[0][name].state == "open"


@pytest.mark.parametrize(
    "name, old, new, words",
    [
        ("discounted_sum", "0, then)", "0, then, reverse=True)", "wrong values in z: 8 of 8"),
        ("discounted_sum", "(half, x)", "(half, 2 * x)", "wrong values in z: 8 of 8"),
        (
            "temperatures",
            "@triton.jit\n",
            '@triton.jit(do_not_specialize_on_alignment=["M"])\n',
            "kernels compiled: 2",
        ),
        ("tuned_rows", 'key=["N"],', 'key=["N"], reset_to_zero=["z_ptr"],', "never written"),
        ("tuned_rows", "configs=[", 'configs=[triton.Config({"BLOCK_N": 512}), ', "configuration 1 of 3"),
    ],
)
def test_a_change_beside_the_reported_lines_is_a_change(name, old, new, words, state_dir):
    """Of a launch, a decorator, or a configuration."""
    (patient,) = (p for p in PATIENTS if p.puzzle.name == name)
    assert is_as_reported(kernel_of(name, HANDED_OUT), patient.puzzle)
    changed = define(HANDED_OUT[name].replace(old, new), f"<{name} with {new}>")
    assert not is_as_reported(changed, patient.puzzle)
    report = check(changed, patient.puzzle)
    assert words in str(report) and entries()[0][name].state == "tried"
    (state_dir / "progress.json").unlink()
    assert "your change isn't judged yet" in str(check(changed, patient.puzzle))


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("far_rows", "tl.program_id(0)", "tl.program_id(0).to(tl.uint32)"),  # one more bit
        ("any_above", "z_ptr + m, hits)", "z_ptr + m, hits % 255)"),  # wrong for 255
        ("any_above", "z_ptr + m, hits)", "z_ptr + m, tl.where(hits == 512, 1, hits))"),  # and for 256
    ],
)
def test_a_fix_for_only_the_reported_size_fails(name, old, new):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == name)
    assert HANDED_OUT[name].count(old) == 1
    report = check(define(HANDED_OUT[name].replace(old, new), f"<{new}>"), patient.puzzle)
    assert [case.number for case in report.cases if case.verdict] == [5]


def test_the_reported_kernel_runs_and_shows_what_the_report_says(state_dir):
    """Wrong results at the beginning of each row but the first; no line until the cause is said."""
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "bias_relu")
    kernel = kernel_of("bias_relu", HANDED_OUT)
    sizes = {"x": torch.zeros(8, 20), "b": 1 + torch.arange(20.0), "BLOCK_M": 4, "BLOCK_N": 16}
    with pytest.raises(RuntimeError, match=r"store of z_ptr[\s\S]*36, all in z\[1\.\.3, 0\.\.11\]"):
        run(kernel, patient.puzzle, **sizes)
    (state_dir / "progress.json").unlink()
    with pytest.raises(RuntimeError) as shown:
        run(kernel, patient.puzzle, **sizes)
    said = str(shown.value)
    assert "a memory access is out of bounds" in said and "36, all in z[1..3, 0..11]" in said
    assert as_reported(patient.question.id, has_line=True) in said and "store of" not in said


def test_the_report_of_a_run_is_shown_without_the_librarys_frames():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "bias_relu")
    with pytest.raises(RuntimeError) as shown:
        run(kernel_of("bias_relu", HANDED_OUT), patient.puzzle, x=torch.zeros(8, 20), b=torch.ones(20),
            BLOCK_M=4, BLOCK_N=16)  # fmt: skip
    page = "\n".join(shown.value._render_traceback_())
    assert "wrong results before the run was stopped" in page and "puzzles_lib" not in page


@pytest.mark.parametrize("tokens, right", [(8191, True), (8192, False)])
def test_the_last_of_33_sequences_is_wrong_from_the_number_that_is_asked_for(tokens, right):
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "far_rows")
    assert patient.also.right() == 8192
    sizes = {"B": 33, "T": tokens, "K": 8192, "BLOCK_T": 4, "BLOCK_K": 8192}
    cases = (patient.puzzle.cases[0], Case(pretend=True, **sizes))
    puzzle = dataclasses.replace(patient.puzzle, cases=cases)
    found = examine(kernel_of("far_rows", HANDED_OUT), puzzle)
    assert [not case.verdict for case in found.cases][:2] == [True, right]


def test_a_hand_out_without_correct_kernels_recognizes_the_reported_one(monkeypatch):
    monkeypatch.setattr("puzzles_lib.reported.FILE", "not there.json")
    puzzle = PATIENTS[0].puzzle
    assert is_as_reported(kernel_of(puzzle.name, HANDED_OUT), puzzle)
    assert not is_as_reported(solutions()[puzzle.name], puzzle)


# ---- hints


@patients
def test_until_the_cause_is_said_hints_lead_to_evidence_only(patient, state_dir, monkeypatch):
    monkeypatch.setattr("puzzles_lib.coach.hinting._shown", {})
    (state_dir / "progress.json").unlink()
    puzzle, known = patient.puzzle, hints()[patient.puzzle.name, ""]
    early = [n for n, each in enumerate(known, 1) if each.early]
    assert early == list(range(1, len(early) + 1)) and early
    check(kernel_of(puzzle.name, HANDED_OUT), puzzle)
    shown = [hint(puzzle) for _ in range(len(known) + 1)]
    assert [each.number for each in shown] == [*early, *[early[-1]] * (len(shown) - len(early))]
    assert not [each for each in shown if "Chosen because" in str(each)]
    later = hint(puzzle, len(known))
    assert later.hint is None and f'answer("{patient.question.id}", ...)' in str(later)
    answer(patient.question.id, patient.question.right())
    assert hint(puzzle).number == len(early) + 1


@patients
def test_evidence_can_be_run_as_its_hint_says(patient):
    name = patient.puzzle.name
    scope = {"torch": torch, "run": run, name.upper(): patient.puzzle}
    scope[f"{name}_kernel"] = kernel_of(name, HANDED_OUT)
    for each in hints()[name, ""]:
        for code in re.findall(r"```python\n(.*?)```", each.text, re.DOTALL) if each.early else ():
            with contextlib.suppress(RuntimeError):  # with a report, as for any kernel with a bug
                exec(code, dict(scope))


def test_a_cast_after_the_product_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "far_rows")
    late = HANDED_OUT["far_rows"].replace("b * T * K", "(b * T * K).to(tl.int64)")
    report = check(define(late, "<cast too late>"), patient.puzzle)
    assert "the cast on this line comes after the product" in report.verdicts[0].diagnosis


@pytest.mark.parametrize(
    "name, gone, still",
    [
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


def test_a_name_that_no_argument_has_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "temperatures")
    typo = kernel_sources()["temperatures"].replace('["M"]', '["m"]')
    (verdict,) = examine(define(typo, "<typo>"), patient.puzzle).verdicts
    assert verdict.message.startswith("kernels compiled: 3")
    assert verdict.diagnosis.startswith("do_not_specialize names 'm', but no argument has that name; M is")


def test_a_stride_that_is_no_longer_specialized_is_told():
    (patient,) = (p for p in PATIENTS if p.puzzle.name == "temperatures")
    both = kernel_sources()["temperatures"].replace('["M"]', '["M", "V"]')
    (verdict,) = examine(define(both, "<both>"), patient.puzzle).verdicts
    assert (
        "the compiler knows V to be a multiple of 16; it doesn't" in verdict.message
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
        (
            "attended",
            "        if best - top > 8:  # don't move it by a little\n"
            "            scale = tl.exp(top - best)\n"
            "            total, acc, top = total * scale, acc * scale, best\n",
            "        scale = tl.exp(top - best)\n"
            "        total, acc = total * scale, acc * scale\n"
            "        if best - top > 8:\n"
            "            top = best\n",
            "still has the old one",
        ),
        ("attended", "best - top > 8", "best > top", "moves with each larger block"),
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
