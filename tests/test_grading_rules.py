"""Points, deadlines, attempts, rosters, comments and hidden names: what a class counts and who sees what."""

import csv
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.grading import executors
from puzzles_lib.grading import rules as rules_module
from puzzles_lib.grading.bar import Bar
from puzzles_lib.grading.class_view import overview
from puzzles_lib.grading.grade import Job
from puzzles_lib.grading.people import pseudonym, read_roster
from puzzles_lib.grading.results import gradescope
from puzzles_lib.grading.rules import (
    Late,
    Points,
    Rules,
    best,
    lateness,
    passed,
    read_deadline,
    read_late,
    read_points,
    read_time,
    scored,
)
from puzzles_lib.grading.submissions import collect
from tests.hostile import ONE, WRONG_TWO, notebook
from tests.test_grading_run import class_of, graded, rows, run

__all__ = ["graded"]  # a fixture
NOON = datetime(2026, 11, 30, 12)


def report_of(*passes: bool) -> dict[str, Any]:
    wrong = Verdict("values", "wrong values in z")
    cases = tuple(CaseResult(f"N={n}", None if ok else wrong, number=n) for n, ok in enumerate(passes))
    return Report("masked_add", cases).as_dict()


def mark(puzzle: str, state: str, report: dict[str, Any] | None = None) -> dict[str, Any]:
    told = {"puzzle": puzzle, "number": "1", "chapter": "01", "points": int(state == "solved"), "of": 1}
    return {**told, "state": state, "kind": "", "words": "", "remarks": [], "report": report}


def grade_of(*marks: dict[str, Any], answers: tuple[str, ...] = (), key: str = "key") -> dict[str, Any]:
    told = [{"id": f"ch01-q{n}", "status": status, "words": ""} for n, status in enumerate(answers)]
    points = sum(one["points"] for one in marks)
    base = {"schema": 1, "student": "ada", "key": key, "points": points, "of": len(marks), "remarks": []}
    return {**base, "puzzles": list(marks), "answers": told, "cpu_seconds": 1.0, "memory": 1}


SOLVED, WRONG = (
    mark("constant_add", "solved"),
    mark("masked_add", "wrong", report_of(True, True, False, True)),
)
IN_TIME = lateness(Rules(), None)


# ---- points


@pytest.mark.parametrize(
    "text, points, of",
    [
        ("", 1, 2),
        ("default = 10", 10, 20),
        ("default = 10\n[puzzles]\nmasked_add = 30", 10, 40),
        ("partial = 1", 1.75, 2),
        ("partial = 0.5", 1.38, 2),
        ("total = 100", 50, 100),
        ("answers = 2", 5, 6),
        ('default = 7\n[chapters]\n"01" = 3\n[puzzles]\nmasked_add = 0', 3, 3),
        ("default = 0\ntotal = 10", 0, 0),
    ],
)
def test_points_of_a_file(text: str, points: float, of: float, tmp_path: Path) -> None:
    (tmp_path / "points.toml").write_text(text)
    grade = grade_of(SOLVED, WRONG, answers=("right", "right", "wrong") if "answers" in text else ())
    if "answers" in text:
        of += 2  # three exercises, and two of the answers are correct
    found = scored(grade, Rules(read_points(tmp_path / "points.toml")), IN_TIME)
    assert (found["points"], found["of"]) == (points, of)
    assert grade["points"] == 1 and "late" not in grade  # the grade itself stays


@pytest.mark.parametrize("puzzles, answers", [(7, 3), (3, 0), (6, 7), (78, 200)])
def test_a_perfect_student_gets_the_total_to_the_point(puzzles: int, answers: int) -> None:
    """Sevenths of 100 don't add up to 100 if they are rounded first, in one attempt or in two."""
    rules = Rules(Points(default=10, answers=1, total=100))
    each = [mark(f"p{n}", "solved") for n in range(puzzles)]
    halves = [grade_of(*(one if n % 2 == k else mark(f"p{n}", "wrong") for n, one in enumerate(each)),
                       answers=tuple("right" if n % 2 == k else "wrong" for n in range(answers)), key=str(k))
              for k in (0, 1)]  # fmt: skip
    whole = scored(grade_of(*each, answers=("right",) * answers), rules, IN_TIME)
    for found in (whole, best([whole, whole]), best([scored(half, rules, IN_TIME) for half in halves])):
        assert (found["points"], found["of"]) == (100, 100)
    assert gradescope(whole)["score"] == 100
    assert all(len(str(test["score"]).partition(".")[2]) <= 2 for test in gradescope(whole)["tests"])


@pytest.mark.parametrize(
    "text, words",
    [
        ("x = [", "not a TOML file"),
        ("weights = 1", "unknown key 'weights'; the keys are default"),
        ("default = -1", "default must be a number from 0 to 1000000, but is -1"),
        ("default = nan", "default must be .*, but is nan"),
        ("default = true", "default must be .*, but is True"),
        ("partial = 2", "partial must be a number from 0 to 1, but is 2"),
        ('attempt = "first"', 'attempt must be "best" or "last", but is \'first\''),
        ("puzzles = 3", r"puzzles must be a table, \[puzzles\], but is 3"),
        ("[puzzles]\nmasked_ad = 1", "no 'masked_ad' in the course's puzzles"),
        ('[puzzles]\nmasked_add = "5"', "puzzles.masked_add must be .*, but is '5'"),
        ('[chapters]\n"77" = 1', "no '77' in the course's chapters"),
    ],
)
def test_a_malformed_file_of_points_is_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "points.toml").write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        read_points(tmp_path / "points.toml")
    assert "--points" in str(caught.value) and "points.toml" in str(caught.value)


def test_partial_credit_is_the_share_of_the_cases_and_never_all() -> None:
    assert passed(WRONG) == 0.75 and passed(SOLVED) == 0 and passed(mark("x", "refused")) == 0
    assert passed(mark("x", "wrong", report_of(True, True))) == 0.5  # wrong for another reason than a case
    assert passed(mark("x", "wrong", report_of(False))) == 0


def test_of_several_attempts_each_puzzles_best_counts() -> None:
    old = grade_of(SOLVED, mark("masked_add", "wrong", report_of(False)), answers=("right", "wrong"), key="a")
    new = grade_of(mark("constant_add", "open"), WRONG, answers=("wrong", "open"), key="b")
    points = Rules(Points(default=4, partial=1, answers=1, best=True), NOON, Late(50))
    in_time, late = lateness(points, NOON), lateness(points, NOON + timedelta(hours=1))
    found = best([scored(old, points, in_time), scored(new, points, late)])
    assert [one["points"] for one in found["puzzles"]] == [4, 1.5]  # 0.75 of 4, and half of it, being late
    assert found["points"] == 6.5 and found["of"] == 10 and found["late"]["is_late"] is False
    assert [one["status"] for one in found["answers"]] == ["right", "open"] and found["key"] not in "ab"
    assert best([old]) == old


# ---- deadlines


@pytest.mark.parametrize(
    "text, when",
    [
        ("2026-11-30", datetime(2026, 11, 30, 23, 59, 59)),
        ("2026-11-30 18:00", datetime(2026, 11, 30, 18)),
        ("2026-11-30T18:00:30", datetime(2026, 11, 30, 18, 0, 30)),
    ],
)
def test_a_deadline(text: str, when: datetime) -> None:
    assert read_deadline(text) == when


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "30.11.2026", "20261130", "2026-11-31", "2026-11-30 18:00+01:00"]
)
def test_a_malformed_deadline_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"--deadline {re.escape(text)}: write a date"):
        read_deadline(text)


@pytest.mark.parametrize(
    "text, hours, taken",
    [
        ("20%", 100, 20),
        ("10%/day", 1, 10),
        ("10%/day", 24, 10),
        ("10%/day", 25, 20),
        ("2.5 % / hour", 3, 7.5),
        ("10%/day, at most 50%", 1000, 50),
        ("10%/day", 1000, 100),
        ("10%/day", None, 10),
        ("100%", None, 100),
    ],
)
def test_a_late_rule(text: str, hours: float | None, taken: float) -> None:
    assert read_late(text).taken(None if hours is None else timedelta(hours=hours)) == taken


@pytest.mark.parametrize("text", ["", "10", "10%/week", "-5%", "120%", "10%/day, at most 500%"])
def test_a_malformed_late_rule_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="--late .*write a rule"):
        read_late(text)


def test_what_is_said_of_lateness() -> None:
    rules = Rules(deadline=NOON, late=read_late("10%/day"))
    assert lateness(rules, NOON)["is_late"] is False and lateness(rules, NOON)["taken"] == 0
    late = lateness(rules, NOON + timedelta(days=1, hours=2, minutes=5))
    assert late["is_late"] and late["words"] == "late by 1 day 2 h 5 min; 20% of the points are taken off"
    canvas = lateness(rules, None, marked_late=True)
    assert (
        canvas["is_late"]
        and canvas["taken"] == 10
        and "Canvas marks the submission as late" in canvas["words"]
    )
    unknown = lateness(rules, None)
    assert unknown["is_late"] is None and unknown["taken"] == 0 and "isn't known" in unknown["words"]
    assert lateness(Rules(), NOON)["is_late"] is None and lateness(Rules(), NOON)["words"] == ""


@pytest.mark.parametrize(
    "text, when",
    [
        ("Monday, 30 November 2026, 12:00 PM", NOON),  # Moodle
        ("Monday, 30 November 2026, 12:00\u202fPM", NOON),
        ("2026-11-30 12:00:00 -0500", NOON),  # Gradescope
        ("2026-11-30T12:00:00", NOON),
        ("-", None),
        ("", None),
        ("soon", None),
    ],
)
def test_times_as_platforms_write_them(text: str, when: datetime | None) -> None:
    assert read_time(text) == when


def test_file_names_say_when_and_canvas_that_it_is_late(tmp_path: Path) -> None:
    names = [
        "lovelaceada_LATE_77_1001_01_blocks.ipynb",
        "bob_78_1002_01_blocks.ipynb",
        "HW_cyd_attempt_2026-12-01-09-30-00_01_blocks.ipynb",
    ]
    for name in names:
        (tmp_path / name).write_bytes(notebook())
    place = tmp_path / "12-67 - Dan - Dec 2, 2026 1000 AM"
    place.mkdir()
    (place / "01_blocks.ipynb").write_bytes(notebook())
    found = {one.student: (one.handed_in, one.marked_late) for one in collect([tmp_path])[0]}
    assert found == {
        "lovelaceada_77": ("", True),
        "bob_78": ("", False),
        "cyd": ("2026-12-01T09:30:00", False),
        "Dan": ("2026-12-02T10:00:00", False),
    }


# ---- whole runs


def shown(folder: Path, student: str) -> str:
    return (folder / f"results/students/{student}/report.html").read_text("utf-8")


def kept(folder: Path, student: str) -> dict[str, Any]:
    return json.loads((folder / f"results/students/{student}/grade.json").read_text("utf-8"))


def test_points_and_a_deadline_change_what_is_shown_and_grade_nobody_again(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, day in {"ada": "2026-11-30", "bob": "2026-12-01"}.items():
        path = tmp_path / f"class/HW_{name}_attempt_{day}-10-00-00_01_blocks.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(notebook())
    assert run(tmp_path) == 0
    plain = {path.name: path.read_bytes() for path in (tmp_path / "results").glob("*.*")}
    assert "handed in" not in plain["gradebook.csv"].decode() and "points" not in shown(tmp_path, "ada")
    (tmp_path / "points.toml").write_text("default = 10")
    points = ["--points", str(tmp_path / "points.toml"), "--deadline", "2026-11-30", "--late", "20%"]
    assert run(tmp_path, *points) == 0
    assert graded() == ["ada", "bob"] or sorted(graded()) == ["ada", "bob"]
    assert "late: 1 (bob)" in capsys.readouterr().err
    found = {row["student"]: row for row in rows(tmp_path)}
    assert [found[who]["points"] for who in ("ada", "bob")] == ["10", "8"]
    assert [found[who]["late"] for who in ("ada", "bob")] == ["no", "yes"]
    assert found["bob"]["handed in"] == "2026-12-01 10:00" and found["bob"]["% taken off"] == "20.0"
    assert "8 of 10 points" in shown(tmp_path, "bob") and "Late by 10 h 1 min" in shown(tmp_path, "bob")
    assert kept(tmp_path, "bob")["points"] == 1 and kept(tmp_path, "bob")["shown"]["points"] == 8
    result = json.loads((tmp_path / "results/students/bob/results.json").read_text())
    assert result["score"] == 8 and result["tests"][0]["status"] == "passed" and "Late by" in result["output"]
    assert "8 of 10, late" in (tmp_path / "results/index.html").read_text()
    assert run(tmp_path) == 0  # and back
    assert {path.name: path.read_bytes() for path in (tmp_path / "results").glob("*.*")} == plain
    assert kept(tmp_path, "bob")["shown"]["points"] == 1 and len(graded()) == 2


def test_the_best_attempt_counts_if_the_points_say_so(
    tmp_path: Path, graded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "class").mkdir()
    for day, source in ((9, ONE), (10, ONE.replace("+ 10)", "+ 9)"))):
        name = f"HW_ada_attempt_2026-11-{day:02}-10-00-00_01_blocks.ipynb"
        (tmp_path / "class" / name).write_bytes(notebook({"p1-kernel": source}))
    calls: list[Job] = []

    def judged(job: Job) -> dict[str, Any]:
        calls.append(job)
        good = b"+ 10)" in b"".join(job.files.values()).partition(b"masked")[0]
        return grade_of(mark("constant_add", "solved" if good else "open"), key=job.key)

    monkeypatch.setattr(executors, "grade", judged)
    (tmp_path / "points.toml").write_text('attempt = "best"')
    points = ["--points", str(tmp_path / "points.toml")]
    assert run(tmp_path, *points) == 0 and len(calls) == 2
    assert rows(tmp_path)[0]["points"] == "1" and len(rows(tmp_path)) == 1
    assert run(tmp_path, *points) == 0 and len(calls) == 2  # both attempts are kept
    assert run(tmp_path) == 0  # the last one counts again
    assert rows(tmp_path)[0]["points"] == "0"


def test_only_grades_a_student_again_and_keeps_the_others(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada", "bob", "cyd")
    assert run(tmp_path) == 0
    assert run(tmp_path, "--only", "bob") == 0 and graded()[3:] == ["bob"]
    assert [row["student"] for row in rows(tmp_path)] == ["ada", "bob", "cyd"]
    capsys.readouterr()
    assert run(tmp_path, "--only", "bbo") == 2
    assert "--only: no submission of 'bbo'; similar names: bob" in capsys.readouterr().err
    class_of(tmp_path / "class", "dan")
    assert run(tmp_path, "--only", "ada") == 0 and graded()[4:] == ["ada"]
    assert [row["student"] for row in rows(tmp_path)] == ["ada", "bob", "cyd"]  # dan isn't graded yet


def test_a_name_needs_no_number_of_the_platform(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("Lovelace_101", "Ray_102", "Ray_103"):
        place = tmp_path / f"class/{name}_assignsubmission_file_"
        place.mkdir(parents=True)
        (place / "01_blocks.ipynb").write_bytes(notebook())
    assert run(tmp_path) == 0
    assert run(tmp_path, "--only", "Lovelace") == 0 and graded()[3:] == ["Lovelace_101"]
    assert run(tmp_path, "--only", "ray") == 0
    assert sorted(graded()[4:]) == ["Ray_102", "Ray_103"]
    (tmp_path / "comments.csv").write_text("student,comment\nLovelace,Good\nRay,Hm\n")
    capsys.readouterr()
    assert run(tmp_path, "--comments", str(tmp_path / "comments.csv")) == 2
    assert "row 3: 'Ray' may be any of Ray_102, Ray_103" in capsys.readouterr().err
    assert run(tmp_path, "--only", "Lovelake") == 2
    assert capsys.readouterr().err.endswith("no submission of 'Lovelake'; similar names: Lovelace_101\n")


def test_a_run_without_the_last_runs_options_says_so(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada")
    (tmp_path / "points.toml").write_text("default = 10")
    points = ["--points", str(tmp_path / "points.toml")]
    assert run(tmp_path, *points, "--deadline", "2026-11-30", "--chapters", "01", "02") == 0
    assert "the last run" not in capsys.readouterr().err
    assert run(tmp_path, *points) == 0
    assert (
        "the last run had --chapters 01 02 --deadline 2026-11-30. This run doesn't" in capsys.readouterr().err
    )
    assert run(tmp_path, *points) == 0
    assert "the last run" not in capsys.readouterr().err


def test_a_table_of_ones_own_says_when_plain_folders_were_handed_in(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada", "bob", "cyd")
    table = tmp_path / "times.csv"
    table.write_text("student,handed in\nada,2026-11-30 18:00\nbob,2026-12-01 09:00\ncyd,\n")
    options = ["--columns", str(table), "--deadline", "2026-11-30", "--late", "20%"]
    assert run(tmp_path, *options) == 0
    book = csv.DictReader((tmp_path / "results/gradebook.csv").read_text("utf-8-sig").splitlines())
    assert [(row["student"], row["late"]) for row in book] == [("ada", "no"), ("bob", "yes"), ("cyd", "?")]
    upload = (tmp_path / "results/upload.csv").read_text().splitlines()
    assert upload == ["student,Triton puzzles", "ada,1", "bob,0.8", "cyd,1"]
    table.write_text("student,handed in\nada,yesterday\n")
    assert run(tmp_path, *options) == 2
    assert "row 2: 'yesterday' isn't a time like 2026-11-30 18:00" in capsys.readouterr().err


MOODLE = (
    'Identifier,"Full name","ID number","Email address",Status,Grade,"Maximum Grade",'
    '"Last modified (submission)","Last modified (grade)","Feedback comments"\r\n'
    'Participant 12,"Anna Müller",s1,anna@x.org,Submitted,,10.00,"Tuesday, 1 December 2026, 9:00 AM",-,\r\n'
    'Participant 13,"Bob =Ray",s2,bob@x.org,Submitted,,10.00,"Monday, 30 November 2026, 9:00 AM",-,\r\n'
    'Participant 14,"Cyd Doe",s3,cyd@x.org,"No submission",,10.00,-,-,\r\n'
)


def test_moodles_worksheet_is_filled_in_and_says_who_is_late(tmp_path: Path, graded: Any) -> None:
    folder = tmp_path / "class"
    for name in ("Anna Müller_12", "Bob =Ray_13", "Eve_99"):
        place = folder / f"{name}_assignsubmission_file_"
        place.mkdir(parents=True)
        (place / "01_blocks.ipynb").write_bytes(notebook())
    (tmp_path / "moodle.csv").write_text(MOODLE, "utf-8-sig")
    (tmp_path / "comments.csv").write_text("student,comment\nanna@x.org,Well done\n")
    files = ["--columns", str(tmp_path / "moodle.csv"), "--comments", str(tmp_path / "comments.csv")]
    assert run(tmp_path, *files, "--deadline", "2026-11-30", "--late", "50%") == 0
    data = (tmp_path / "results/upload.csv").read_text("utf-8")
    header, *found = csv.reader(data.splitlines())
    assert header == next(csv.reader([MOODLE.splitlines()[0]]))
    grades = [dict(zip(header, row, strict=True)) for row in found]
    assert [(row["Identifier"], row["Grade"]) for row in grades] == [
        ("Participant 12", "0.5"),
        ("Participant 13", "1"),
    ]  # and nothing for Cyd, who handed in nothing
    assert grades[0]["Feedback comments"] == "Well done" and grades[0]["Last modified (grade)"] == "-"
    text = (tmp_path / "results/gradebook.csv").read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")  # for Excel
    book = list(csv.DictReader(text.decode("utf-8-sig").splitlines()))
    assert [(row["id"], row["e-mail"], row["name"]) for row in book] == [
        ("s1", "anna@x.org", "Anna Müller"),
        ("s2", "bob@x.org", "Bob =Ray"),
        ("", "", ""),
    ]


def test_points_that_are_not_known_are_left_empty(
    tmp_path: Path, graded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "class/Anna Müller_12_assignsubmission_file_"
    place.mkdir(parents=True)
    (place / "01_blocks.ipynb").write_bytes(b"{")
    (tmp_path / "moodle.csv").write_text(MOODLE, "utf-8-sig")
    unread = mark("constant_add", "unread") | {"words": "01_blocks.ipynb: broken"}
    monkeypatch.setattr(
        executors, "grade", lambda job: {**grade_of(unread, key=job.key), "student": job.student}
    )
    assert run(tmp_path, "--columns", str(tmp_path / "moodle.csv")) == 1
    said = capsys.readouterr()
    assert "NOT GRADED: Anna Müller_12: 01_blocks.ipynb: broken" in said.err and "0 of 1 graded" in said.out
    (row,) = csv.DictReader((tmp_path / "results/upload.csv").read_text("utf-8").splitlines())
    assert row["Identifier"] == "Participant 12" and row["Grade"] == ""


TABLES = {
    "canvas": (
        "Student,ID,SIS User ID,SIS Login ID,Section,Homework 1 (55)\n    Points Possible,,,,,10\n"
        '"Lovelace, Ada",77,s1,ada@x,One,3\n',
        "lovelaceada_77",
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Triton puzzles"],
        ["Lovelace, Ada", "77", "s1", "ada@x", "One", "8"],
    ),
    "blackboard": (
        '"Last Name"\t"First Name"\t"Username"\t"Student ID"\t"HW [Total Pts: 10 Score] |1"\n'
        "Lovelace\tAda\tada_l\t9\t\n",
        "ada_l",
        ["Last Name", "First Name", "Username", "Student ID", "Triton puzzles"],
        ["Lovelace", "Ada", "ada_l", "9", "8"],
    ),
    "brightspace": (
        "OrgDefinedId,Username,Last Name,First Name,Email,HW Points Grade <Numeric MaxPoints:10>,"
        "End-of-Line Indicator\n#9,#ada.l,Lovelace,Ada,ada@x,,#\n",
        "Ada Lovelace",
        ["OrgDefinedId", "Username", "Triton puzzles Points Grade", "End-of-Line Indicator"],
        ["#9", "#ada.l", "8", "#"],
    ),
    "gradescope": (
        "First Name,Last Name,SID,Email,Sections,Submission ID,Submission Time\n"
        "Ada,Lovelace,9,ada@x,A,123,2026-11-30 12:00:00 -0500\n",
        "submission_123",
        ["First Name", "Last Name", "SID", "Email", "Sections", "Triton puzzles"],
        ["Ada", "Lovelace", "9", "ada@x", "A", "8"],
    ),
}


@pytest.mark.parametrize("platform", TABLES)
def test_a_platforms_columns(platform: str, tmp_path: Path) -> None:
    from puzzles_lib.grading.people import upload

    text, student, header, row = TABLES[platform]
    encoding = "utf-16" if platform == "blackboard" else "utf-8-sig"
    (tmp_path / "table.csv").write_text(text, encoding)
    roster = read_roster(tmp_path / "table.csv")
    assert roster.platform == platform and len(roster.people) == 1
    person = roster.find(student)
    assert person is not None and roster.find("Ada Lovelace") is person and roster.find("Bob") is None
    found, (only,) = upload(roster, [(person, 8, "")])
    assert found == header and [str(cell) for cell in only] == row


def test_two_of_one_name_are_nobody(tmp_path: Path) -> None:
    text = 'Student,ID,Section\n"Doe, Ann",1,A\n"Doe, Ann",2,A\n'
    (tmp_path / "table.csv").write_text(text)
    roster = read_roster(tmp_path / "table.csv")
    assert roster.find("Ann Doe") is None
    assert (found := roster.find("doeann_2")) and found.platform == "2"


@pytest.mark.parametrize(
    "option, data, words",
    [
        ("--columns", b"", "not a CSV table"),
        ("--columns", b"a,b\n1,2\n", "this is not a table that Moodle"),
        ("--columns", b"Student,ID,Section\n", "there is no student in it"),
        ("--columns", b"\x80\x81", "not UTF-8"),
        ("--comments", b"name,comment\nada,x\n", "no column 'student'; it has name, comment"),
        ("--comments", b"student,comment\nadda,x\n", "row 2: no submission of 'adda'; similar names: ada"),
        ("--comments", b"student,comment,puzzle\nada,x,nope\n", "row 2: there is no puzzle 'nope'"),
        ("--points", b"x", "not a TOML file"),
    ],
)
def test_a_file_that_is_no_use_ends_the_run_before_anything_is_graded(
    option: str, data: bytes, words: str, tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada")
    (tmp_path / "file").write_bytes(data)
    assert run(tmp_path, option, str(tmp_path / "file")) == 2
    said = capsys.readouterr().err
    assert words in said and f"error: {option} {tmp_path / 'file'}" in said and "Traceback" not in said
    assert graded() == []
    assert run(tmp_path, option, str(tmp_path / "none")) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("--late", "10%", "--late 10%: it needs a --deadline"),
        ("--column", "Homework 1", "--column Homework 1: it needs --columns, the platform's table"),
        ("--salt", "", "--salt: the text is empty"),
    ],
)
def test_an_option_of_no_effect_is_refused(
    option: str, value: str, words: str, tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada")
    assert run(tmp_path, option, value) == 2
    assert words in capsys.readouterr().err and graded() == []


def test_comments_are_in_the_report_and_no_markup(tmp_path: Path, graded: Any) -> None:
    class_of(tmp_path / "class", "ada", "bob")
    text = 'student,puzzle,comment\nada,,"See me <b>\nplease"\nada,constant_add,Neat\n'
    (tmp_path / "comments.csv").write_text(text)
    assert run(tmp_path, "--comments", str(tmp_path / "comments.csv")) == 0
    page = shown(tmp_path, "ada")
    assert "See me &lt;b&gt;\nplease" in page and "Neat" in page and "<b>" not in page
    assert "1 of 1</strong> puzzles are solved." in page and "See me" not in shown(tmp_path, "bob")
    result = json.loads((tmp_path / "results/students/ada/results.json").read_text())
    assert result["output"] == "See me <b>\nplease" and result["tests"][0]["output"].endswith("\nNeat")
    assert [row["comments"] for row in csv.DictReader(open(tmp_path / "results/gradebook.csv"))] == [
        "See me <b>\nplease; constant_add: Neat",
        "",
    ]
    assert graded() == ["ada", "bob"] or len(graded()) == 2


def test_anonymous_names_nobody_but_in_one_table(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class/lovelaceada_77_1001_01_blocks.ipynb").write_bytes(notebook())
    (tmp_path / "class/lovelaceada_77_1002_notes of lovelace.ipynb").write_bytes(b"{}")
    (tmp_path / "class/bobray_78_1003_01_blocks.ipynb").write_bytes(b"x")
    (tmp_path / "comments.csv").write_text("student,comment\nlovelaceada_77,Good\n")
    options = ["--anonymous", "--comments", str(tmp_path / "comments.csv")]
    assert run(tmp_path, *options) == 0
    assert "keep it to yourself" in capsys.readouterr().err
    names = list(csv.DictReader((tmp_path / "results/names.csv").read_text().splitlines()))
    assert {row["name"] for row in names} == {"bobray_78", "lovelaceada_77"}
    salt = json.loads((tmp_path / "results/grading.json").read_text())["salt"]
    assert all(row["student"] == pseudonym(row["name"], salt) for row in names)
    for path in (tmp_path / "results").rglob("*"):
        assert not re.search("lovelace|bobray|ada_", str(path.relative_to(tmp_path)), re.I), path
        if path.is_file() and path.name not in ("names.csv", ".lock"):
            assert not re.search("lovelace|bobray", path.read_text(), re.I), path
    assert all(name.startswith("student-") for name in graded())
    (ada,) = (row["student"] for row in names if row["name"] == "lovelaceada_77")
    assert "Good" in shown(tmp_path, ada)
    assert run(tmp_path, "--anonymous", "--only", "bobray_78") == 0 and len(graded()) == 3
    assert [row["student"] for row in rows(tmp_path)] == sorted(row["student"] for row in names)


def test_anonymous_refuses_a_folder_with_reports_by_name(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada", "bob")
    assert run(tmp_path) == 0
    assert run(tmp_path, "--anonymous") == 2 and len(graded()) == 2
    said = capsys.readouterr().err
    assert "students' names, from an earlier run (ada, bob): choose another --out" in said
    (tmp_path / "results").rename(tmp_path / "by_name")
    assert run(tmp_path, "--anonymous") == 0 == run(tmp_path, "--anonymous")


def test_an_anonymous_submission_is_read_as_if_it_had_its_own_names(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    for name in ("01_blocks.ipynb", "01_blocks_ada.ipynb", "ada 2.ipynb", "02_broadcasting-ada.ipynb"):
        (tmp_path / "ada" / name).write_bytes(name.encode())
    (ada,) = collect([tmp_path])[0]
    ada.anonymous = True
    assert {name: data.decode() for name, data in ada.read()[0].items()} == {
        "01_blocks.ipynb": "01_blocks.ipynb",
        "01_blocks-001.ipynb": "01_blocks_ada.ipynb",
        "02_broadcasting-001.ipynb": "02_broadcasting-ada.ipynb",
        "file-001.ipynb": "ada 2.ipynb",
    }


def test_open_means_one_thing_on_the_class_page() -> None:
    states = ("solved", "wrong", "limit", "open", "missing", "missing")
    grades = [grade_of(mark("masked_add", state)) for state in states]
    shown = overview(grades, [], True)
    (row,) = re.findall("<tr><td>masked_add</td>(.*?)</tr>", shown)
    assert re.findall(r">(\d+)<", row) == ["1", "2", "1", "2"]
    heads = re.findall("<th[^>]*>(.*?)</th>", shown)
    assert heads[:5] == ["puzzle", "solved", "tried, not solved", "not started", "not handed in"]
    assert "open" not in heads and "unreadable file" not in heads


def test_a_row_of_the_class_page_counts_unreadable_files() -> None:
    grades = [grade_of(mark("masked_add", state)) for state in ("solved", "unread", "unread")]
    shown = overview(grades, [], True)
    (row,) = re.findall("<tr><td>masked_add</td>(.*?)</tr>", shown)
    assert re.findall(r">(\d+)<", row) == ["1", "0", "0", "0", "2"]
    assert re.findall("<th[^>]*>(.*?)</th>", shown)[5] == "unreadable file"


# ---- how far it is


def test_the_time_left_is_that_of_what_this_run_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("puzzles_lib.grading.bar.time.monotonic", lambda: now[0])
    with Bar(120) as bar:
        for _ in range(36):
            bar.step(kept=True)
        assert "left" not in capsys.readouterr().err  # nothing is known of the other 84
        bar.begin()
        now[0] = 10
        bar.step()
        assert "37 of 120, about 14 min left" in capsys.readouterr().err  # 83 of 10 s each


def test_without_a_terminal_it_counts_often_at_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("puzzles_lib.grading.bar.time.monotonic", lambda: now[0])
    with Bar(1000) as bar:
        bar.begin()
        bar.count("answers: 1 of 21 chapters")  # too soon after the first line
        for _ in range(1000):
            now[0] += 6
            bar.step()
    lines = capsys.readouterr().err.splitlines()
    assert "1 of 1000" in lines[1] and "2 of 1000" in lines[2] and "1000 of 1000" in lines[-1]
    assert len(lines) < 120 and not any("answers" in line for line in lines)


def test_the_rules_module_prints_nothing_and_knows_all_states() -> None:
    from puzzles_lib.grading.grade import STATES

    assert sorted(rules_module._ORDER) == sorted(STATES)


def test_a_mended_copy_under_a_new_id_is_named() -> None:
    from puzzles_lib.chapters import CHAPTERS
    from puzzles_lib.grading.handed_in import Notebook
    from tests.hostile import SETUP, TWO, of_cells

    (chapter,) = (chapter for chapter in CHAPTERS if chapter.number == "01")
    puzzle = next(puzzle for puzzle in chapter.puzzles if puzzle.name == "masked_add")

    def found(*cells: tuple[str, str]) -> Any:
        return Notebook(of_cells([("setup", SETUP), *cells])).kernel_of(puzzle)

    one = found(("p2-kernel", WRONG_TWO), ("a1b2", TWO))
    assert "+ 9" in one.kernel.sources[-1]
    assert one.remarks == ["another cell defines masked_add_kernel differently (a1b2); cell p2-kernel counts"]
    assert found(("p2-kernel", TWO), ("a1b2", TWO)).remarks == []
    hole = TWO.replace("    mask = offs < N\n", "    # your code here\n    ...\n")
    from puzzles_lib.stubs import HOLE

    two = found(("p2-kernel", hole.replace("# your code here", HOLE)), ("a1b2", TWO))
    assert two.remarks == [
        "cell p2-kernel is not solved; masked_add_kernel is taken from its copy, cell a1b2"
    ]
    assert "+ 10, mask" in two.kernel.sources[-1]
