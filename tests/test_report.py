"""Reports are short, honest about what ran, and readable without colour."""

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
    text = str(Report("outer_add", (PASSED, CaseResult("M=64", None, True, 12, 26880, 25216))))
    assert text.splitlines() == [
        "outer_add: all 2 cases pass",
        "pass   M=32  N=32   1 program, 4.4 kB moved (1.00x)",
        "pass   M=64         12 programs, 26.9 kB moved (1.07x)",
        "(1.00x is the least possible: each input read once, each output written once)",
    ]


def test_a_failure_names_the_fault_and_ends_on_the_learners_line():
    report = Report("outer_add", (PASSED, FAILED))
    assert not report.ok
    assert str(report).splitlines() == [
        "outer_add: 1 of 2 cases pass",
        "pass   M=32  N=32",
        "FAIL   M=90  N=100",
        "       out-of-bounds load of x_ptr in program (0, 6, 0): elements 100..111, it has 100",
        "       line 4: x = tl.load(x_ptr + offs_n) # <here> & there",
    ]


def test_only_the_first_failure_is_told_in_full_and_lines_are_limited():
    report = Report("outer_add", (FAILED,) * 20)
    text = str(report)
    assert text.count("out-of-bounds") == 1
    assert len(text.splitlines()) == 12


def test_what_was_not_run_is_neither_pass_nor_fail():
    report = Report("outer_add", (FAILED, CaseResult("M=9", ran=False)))
    assert str(report).splitlines()[-1] == "skip   M=9"
    assert not report.cases[1].ok


def test_nothing_run_is_not_a_pass():
    assert not Report("outer_add").ok
    assert not Report("outer_add", verdict=VERDICT).ok


def test_html_says_the_same_in_words_theme_colours_and_escaped():
    shown = Report("outer_add", (PASSED, FAILED), notes=("a note",))._repr_html_()
    assert 'role="status"' in shown and "--jp-error-color1" in shown
    for words in ("1 of 2 cases pass", ">pass<", ">FAIL<", "elements 100..111", "a note"):
        assert words in shown
    assert "&lt;here&gt; &amp; there" in shown and "<here>" not in shown
