"""Reports are short, honest about what ran, and readable without colour."""

import dataclasses
import html
import json
import re

import pytest

from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.source import Site

VERDICT = Verdict(
    "out of bounds",
    "out-of-bounds load of x_ptr in program (0, 6, 0): elements 100..111, it has 100",
    Site(4, "x = tl.load(x_ptr + offs_n) # <here> & there"),
)
PASSED = CaseResult("M=32  N=32", programs=1, bytes_moved=4352, bytes_least=4352)
FAILED = CaseResult("M=90  N=100", VERDICT)


def test_a_pass_tells_what_it_cost():
    text = str(Report("outer_add", (PASSED, CaseResult("M=64", None, True, 12, 26880, 25216, 31000))))
    assert text.splitlines() == [
        "outer_add: all 2 cases pass",
        "pass   M=32  N=32   1 program, 4.4 kB moved (1.00x)",
        "pass   M=64         12 programs, 26.9 kB moved (1.07x), 31.0 kB by lane",
        "(1.00x means that each input is read once and each output is written once; 2.00x is double; "
        '"by lane" counts every lane, even if several need the same element)',
    ]


def test_a_failure_names_the_fault_and_ends_on_the_learners_line():
    report = Report("outer_add", (PASSED, dataclasses.replace(FAILED, number=1)))
    assert not report.ok
    assert str(report).splitlines() == [
        "outer_add: 1 of 2 cases pass",
        "pass   M=32  N=32",
        "FAIL   M=90  N=100   (case=1)",
        "       out-of-bounds load of x_ptr in program (0, 6, 0): elements 100..111, it has 100",
        "       line 4: x = tl.load(x_ptr + offs_n) # <here> & there",
    ]


def many(statuses: str) -> Report:
    """A case for each letter: p pass, F FAIL, R another FAIL, s skip."""
    racing = CaseResult("M=1", Verdict("race", "race in z"))
    made = {"p": PASSED, "F": FAILED, "R": racing, "s": CaseResult("M=9", ran=False)}
    cases = tuple(dataclasses.replace(made[s], number=i) for i, s in enumerate(statuses))
    return Report("outer_add", cases)


@pytest.mark.parametrize(
    "statuses, lines",
    [
        (
            "F" * 20,
            [
                "0 of 20",
                "FAIL   M=90  N=100   (case=0)",
                VERDICT.message,
                "line 4",
                "FAIL   cases 1 to 19",
            ],
        ),
        (
            "p" * 14 + "Fpppps",
            [
                "18 of 20",
                "pass   cases 0 to 13",
                "(case=14)",
                VERDICT.message,
                "line 4",
                *["pass   M=32  N=32"] * 4,
                "skip   M=9",
            ],
        ),
        (
            "ppFFs",
            ["2 of 5", "pass", "pass", "(case=2)", VERDICT.message, "line 4", "(case=3)", "skip   M=9"],
        ),
        (
            "pFpFFRs",
            [
                "2 of 7",
                "pass   M=32  N=32",
                "FAIL   M=90  N=100   (case=1)",
                VERDICT.message,
                "line 4",
                "pass   M=32  N=32",
                "FAIL   cases 3 and 4",
                "FAIL   M=1   (case=5)   a race: the results can differ from run to run",
                "skip   M=9",
            ],
        ),
        (
            "FRFRR",
            [
                "0 of 5",
                "(case=0)",
                VERDICT.message,
                "line 4",
                "FAIL   cases 1, 3 and 4: a race: the results can differ from run to run",
                "(case=2)",
            ],
        ),
        (
            "p" * 30,
            [
                "all 30 cases pass",
                *["pass   M=32  N=32   1 program"] * 8,
                "pass   and 22 more cases",
                "(1.00x",
            ],
        ),
    ],
)
def test_the_reason_is_never_lost_however_many_cases_there_are(statuses, lines):
    text = str(many(statuses)).splitlines()
    assert len(text) == len(lines) <= 12
    assert all(words in line for line, words in zip(text, lines, strict=True)), "\n".join(text)
    assert (html.escape(VERDICT.message) in many(statuses)._repr_html_()) == ("F" in statuses)


def test_notes_are_never_lost_either():
    for statuses in ("p" * 30, "p" * 14 + "F" * 6, "pF"):
        report = dataclasses.replace(many(statuses), notes=("progress: cannot write",))
        assert str(report).splitlines()[-1] == "progress: cannot write"
        assert len(str(report).splitlines()) <= 12


def test_long_lines_are_cut():
    long = "x" * 50_000
    verdict = Verdict("values", long, Site(3, long), long)
    report = Report("outer_add", (CaseResult(long, verdict, number=0),))
    assert all(len(line) <= 330 for line in str(report).splitlines()) and "…" in str(report)
    assert len(report._repr_html_()) < 5000


DRAWN = dataclasses.replace(PASSED, drawn=True, label="M=7  N=301")


def test_drawn_cases_are_a_line_together_and_a_failure_is_told_in_full():
    report = Report("outer_add", (PASSED, DRAWN, DRAWN))
    assert report.ok and str(report).splitlines()[:3] == [
        "outer_add: the only case passes",
        "pass   M=32  N=32   1 program, 4.4 kB moved (1.00x)",
        "pass   and 2 random cases",
    ]
    failed = dataclasses.replace(FAILED, drawn=True, number=2)
    report = Report("outer_add", (PASSED, DRAWN, failed))
    assert not report.ok and str(report).splitlines()[:3] == [
        "outer_add: the only listed case passes, but a random one fails",
        "pass   M=32  N=32",
        "FAIL   M=90  N=100   random   (case=2)",
    ]
    assert "but a random one fails" in report._repr_html_() and ">pass<" in report._repr_html_()
    salted = dataclasses.replace(report, salt="exam")
    assert "FAIL   M=90  N=100   random\n" in str(salted)  # no number: `trace` knows of no salt


def test_a_case_made_to_find_a_fault_is_not_called_random():
    made = dataclasses.replace(FAILED, drawn=True)
    report = Report("outer_add", (PASSED, DRAWN, made))
    assert str(report).splitlines()[:3] == [
        "outer_add: the only listed case passes, but an unlisted one fails",
        "pass   M=32  N=32",
        "FAIL   M=90  N=100   not listed",
    ]
    assert "random" not in str(report)


@pytest.mark.parametrize(
    "watch, lines, page",
    [
        ("watch(mine, P, case=0)", ["See it run: watch(mine, P, case=0)"], "See it run:<pre"),
        ("trace(mine, P, case=0)", ["See it: trace(mine, P, case=0)"], "See it:<pre"),
        (
            "from puzzles_lib import stages\nstages(mine, P)",
            ["See it:", "from puzzles_lib import stages", "stages(mine, P)"],
            "See it:<pre",
        ),
    ],
)
def test_the_call_at_the_end_is_in_a_sentence_and_can_be_copied(watch, lines, page):
    report = Report("outer_add", (dataclasses.replace(FAILED, watch=watch),))
    assert [line.strip() for line in str(report).splitlines()[-len(lines) :]] == lines
    shown = report._repr_html_()
    assert page in shown and f">{html.escape(watch)}</pre>" in shown


# ---- as a dictionary


@pytest.mark.parametrize(
    "report",
    [
        Report("outer_add", (PASSED, FAILED, CaseResult("M=9", ran=False)), notes=("a note",)),
        Report("outer_add", (PASSED, DRAWN), salt="exam"),
        Report("outer_add", verdict=Verdict("signature", "no kernel", diagnosis="hand over a kernel")),
    ],
)
def test_a_report_travels_as_json(report):
    told = json.loads(json.dumps(report.as_dict()))
    again = Report.from_dict(told)
    assert again == report and str(again) == str(report) and again.as_dict() == report.as_dict()


def test_the_keys_of_the_dictionary_stay():
    told = Report("outer_add", (PASSED, FAILED)).as_dict()
    assert set(told) == {"title", "ok", "cases", "verdict", "notes", "salt", "goals"}
    assert {
        "label", "status", "number", "drawn", "ran", "verdict",
        "programs", "bytes_moved", "bytes_least", "lane_bytes",
    } <= set(told["cases"][0])  # fmt: skip
    assert told["cases"][1]["verdict"] == {
        "kind": "out of bounds",
        "message": VERDICT.message,
        "diagnosis": "",
        "site": {"line": 4, "source": VERDICT.site.source},
    }
    assert [case["status"] for case in told["cases"]] == ["pass", "FAIL"] and told["ok"] is False


def test_keys_that_a_later_version_adds_are_left_alone():
    told = Report("outer_add", (FAILED,)).as_dict()
    told["later"] = told["cases"][0]["later"] = told["cases"][0]["verdict"]["later"] = 1
    assert Report.from_dict(told) == Report("outer_add", (FAILED,))


def test_a_kind_in_its_old_spelling_is_known():
    told = Report("outer_add", verdict=Verdict("uninitialized", "a lane is undefined")).as_dict()
    told["verdict"]["kind"] = "uninitialised"
    assert Report.from_dict(told).verdict.kind == "uninitialized"


def test_what_was_not_run_is_neither_pass_nor_fail():
    report = Report("outer_add", (FAILED, CaseResult("M=9", ran=False)))
    assert str(report).splitlines()[-1] == "skip   M=9"
    assert not report.cases[1].ok


def test_nothing_run_is_not_a_pass():
    assert not Report("outer_add").ok
    assert not Report("outer_add", verdict=VERDICT).ok


def test_the_tables_columns_are_named():
    shown = Report("outer_add", (PASSED,))._repr_html_()
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', shown) == ["result", "case", "cost"]
    assert ">cost<" not in Report("outer_add", (FAILED,))._repr_html_()


def test_code_has_a_font_of_code_in_a_page_that_lets_outputs_inherit_the_proses():
    for shown in (Report("outer_add", (FAILED,)), Report("outer_add", verdict=VERDICT)):
        listings = re.findall(r"<pre [^>]*>", shown._repr_html_())
        assert listings and all("font-family:var(--jp-code-font-family" in each for each in listings)


def test_html_says_the_same_in_words_theme_colours_and_escaped():
    shown = Report("outer_add", (PASSED, FAILED), notes=("a note",))._repr_html_()
    assert 'role="status"' in shown and "--jp-error-color1" in shown
    for words in ("1 of 2 cases pass", ">pass<", ">FAIL<", "elements 100..111", "a note"):
        assert words in shown
    assert "&lt;here&gt; &amp; there" in shown and "<here>" not in shown


def test_a_pretended_case_is_only_in_bounds_if_another_one_fails():
    pretended = CaseResult("M=70000  pretend", number=2)
    failing = Report("outer_add", (PASSED, dataclasses.replace(FAILED, number=1), pretended))
    assert str(failing).startswith("outer_add: 2 of 3 cases pass\n")
    assert "\nin bounds   M=70000  pretend" in str(failing) and ">in bounds</td>" in failing._repr_html_()
    assert str(Report("outer_add", (PASSED, pretended))).startswith("outer_add: all 2 cases pass\n")
    alone = dataclasses.replace(pretended, verdict=VERDICT)
    assert (
        str(Report("outer_add", (PASSED, alone, dataclasses.replace(pretended, number=3)))).count("in b") == 0
    )
