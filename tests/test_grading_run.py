"""A run of `python -m puzzles_lib.grading`: complete, resumed, interrupted, on any executor."""

import concurrent.futures
import contextlib
import csv
import errno
import faulthandler
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from puzzles_lib.bench import __main__ as bench
from puzzles_lib.bench import classroom
from puzzles_lib.grading import __main__ as command
from puzzles_lib.grading import executors, sandbox
from puzzles_lib.grading.executors import processes, work
from puzzles_lib.grading.grade import Job
from puzzles_lib.grading.results import Results
from tests.forks import PATIENCE
from tests.hostile import HOSTILE, ONE, WRONG_TWO, notebook

REPO = Path(__file__).parent.parent


def class_of(folder: Path, *students: str) -> Path:
    for student in students:
        (folder / student).mkdir(parents=True, exist_ok=True)
        (folder / student / "01_blocks.ipynb").write_bytes(notebook())
    return folder


def pretended(job: Job) -> dict[str, Any]:
    """A grade that costs nothing; who was graded is in a file, since it may be in another process."""
    with open(os.environ["GRADED"], "a") as file:
        file.write(f"{job.student}\n")
    if job.student.startswith("slow"):
        time.sleep(0.3)
    if job.student.startswith("endless"):
        time.sleep(120)
    if job.student.startswith("deadly") and (job.student != "deadly-once" or _first(job)):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.student.startswith("faulty"):
        raise sandbox.NotStarted("no memory left")
    mark = {"puzzle": "constant_add", "number": "1", "chapter": "01", "points": 1, "of": 1, "state": "solved"}
    mark |= {"kind": "", "words": "", "remarks": [], "report": None}
    told = {"schema": 1, "student": job.student, "key": job.key, "points": 1, "of": 1, "remarks": []}
    return told | {"cpu_seconds": 1.0, "memory": 1, "puzzles": [mark], "answers": []}


def _first(job: Job) -> bool:
    return Path(os.environ["GRADED"]).read_text().split("\n").count(job.student) == 1


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Grades are pretended; what it gives says who was graded, in order."""
    monkeypatch.setenv("GRADED", str(tmp_path / "graded.txt"))
    (tmp_path / "graded.txt").touch()
    monkeypatch.setattr(executors, "grade", pretended)
    monkeypatch.setattr(command, "warm_up", lambda chapters: [])
    monkeypatch.setattr(command.sandbox, "find", lambda: ("bwrap", True))
    yield lambda: (tmp_path / "graded.txt").read_text().split()


def threads() -> concurrent.futures.Executor:
    return concurrent.futures.ThreadPoolExecutor(2)


def run(folder: Path, *options: str) -> int:
    place = ["--out", str(folder / "results"), "--executor", "tests.test_grading_run:threads"]
    return command.main([str(folder / "class"), *place, *options])


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "results/gradebook.csv").read_text("utf-8").splitlines()))


# ---- whole runs


def test_a_class_in_one_command(tmp_path: Path) -> None:
    """In the sandbox, where there is one."""
    try:
        sandboxed = bool(sandbox.find())
    except sandbox.Unavailable:
        sandboxed = False
    class_of(tmp_path / "class", "Ada Lovelace")
    data = notebook({"p2-kernel": WRONG_TWO}, "import os\nopen(os.environ['OWNED'], 'w')")
    (tmp_path / "class/bob_01_blocks.ipynb").write_bytes(data)
    options = ["--chapters", "01", "--salt", "x", "--workers", "1"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "puzzles_lib.grading",
            tmp_path / "class",
            "--out",
            tmp_path / "results",
            *options,
        ]
        + ["--no-sandbox"] * (not sandboxed),
        env={**os.environ, "OWNED": str(tmp_path / "owned"), "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert ("WARNING: --no-sandbox" in done.stderr) is not sandboxed
    assert "2 of 2 graded" in done.stdout and "2 of 2\n" in done.stderr
    marks = [
        (row["student"], row["points"], row["constant_add"], row["masked_add"]) for row in rows(tmp_path)
    ]
    assert marks == [("Ada Lovelace", "2", "1", "1"), ("bob", "1", "1", "0")]
    assert rows(tmp_path)[0]["correct answers"] == "1"
    (bob,) = (tmp_path / "results/students").glob("bob")
    autograder = json.loads((bob / "results.json").read_text())
    assert autograder["score"] == 1 and [t["score"] for t in autograder["tests"]] == [1, 0, 0, 0]
    assert "wrong values in z" in autograder["tests"][1]["output"]
    page = (bob / "report.html").read_text()
    assert "masked_add: 0 of 6 cases pass" in page and "imports os" in page and "border-left:4px" in page
    overview = (tmp_path / "results/index.html").read_text()
    assert "<svg" in overview and "values 1" in overview and 'href="students/bob/report.html"' in overview
    assert ("without a sandbox" in overview) is not sandboxed
    assert not (tmp_path / "owned").exists()


def test_without_bubblewrap_nothing_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.find.cache_clear()
    assert run(tmp_path) == 2
    sandbox.find.cache_clear()
    assert (
        "error: bubblewrap is not installed" in (said := capsys.readouterr().err) and "--no-sandbox" in said
    )
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--chapters", "77"], "--chapters 77: the chapters are 00, 01"),
        (["--workers", "0"], "numbers above 0"),
        (["--executor", "no_module:x"], "--executor no_module:x"),
        (["--executor", "os"], "expected a form"),
        (["--executor", "os:sep"], "not a function"),
    ],
)
def test_bad_options_are_told_in_a_line(
    options: list[str], words: str, tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada")
    assert run(tmp_path, *options) == 2
    assert words in capsys.readouterr().err and graded() == []


def test_no_sandbox_is_loud(tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class_of(tmp_path / "class", "ada")
    assert run(tmp_path, "--no-sandbox") == 0
    assert "WARNING: --no-sandbox" in capsys.readouterr().err
    assert "without a sandbox" in (tmp_path / "results/index.html").read_text()


def test_nothing_handed_in_and_no_such_folder(tmp_path: Path, graded: Any) -> None:
    assert run(tmp_path) == 2
    (tmp_path / "class").mkdir()
    assert run(tmp_path) == 2


# ---- a class of hostile submissions


@pytest.fixture
def unhurried() -> None:
    """pytest's limit of ten minutes is for a test that hangs, and a busy machine takes longer for a class."""
    faulthandler.cancel_dump_traceback_later()


def grades(folder: Path) -> dict[str, Any]:
    """All grades of a run, by student, without what a clock says."""
    found = {}
    for place in folder.glob("students/*/grade.json"):
        grade = json.loads(place.read_text())
        found[grade["student"]] = {k: v for k, v in grade.items() if k not in ("cpu_seconds", "memory")}
    return found


def contents(folder: Path) -> dict[str, object]:
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return {
        str(f): f.read_bytes() if f.is_file() and not f.is_symlink() else f.lstat().st_mode for f in files
    }


@pytest.mark.classroom
def test_hostile_among_honest_twice(tmp_path: Path, unhurried: None) -> None:
    """Each gets what it deserves, both times; nothing of it is left, and no file is touched."""
    deserved: dict[str, int] = {}
    for one in HOSTILE[::2]:
        name = "".join(c if c.isalnum() else " " for c in one.name)
        deserved[f"hostile {name}"] = one.points
        (tmp_path / f"class/hostile {name}").mkdir(parents=True)
        one.write(tmp_path / f"class/hostile {name}")
    for number in range(20):
        cells = {"p2-kernel": WRONG_TWO} if number % 2 else {}
        deserved[f"honest {number}"] = 2 - number % 2
        (tmp_path / f"class/honest {number}").mkdir()
        (tmp_path / f"class/honest {number}/01_blocks.ipynb").write_bytes(notebook(cells))
    before = contents(tmp_path / "class")
    runs = []
    for turn in ("first", "second"):
        options = ["--out", str(tmp_path / turn), "--chapters", "01", "--salt", "x", "--seconds", "1"]
        assert command.main([str(tmp_path / "class"), *options]) == 0
        runs.append(grades(tmp_path / turn))
    assert {student: grade["points"] for student, grade in runs[0].items()} == deserved
    assert runs[0] == runs[1]
    assert contents(tmp_path / "class") == before
    ours = os.fsencode(sandbox._PACKAGE)  # others may be grading on this machine, too
    assert not any(b"grading.inside" in command and ours in command for command in commands())


# ---- what a class costs

PRETENDS = """
import json, os, sys
from pathlib import Path
folder, _, out, _, workers = sys.argv[1:]
points = json.loads(os.environ["POINTS"])
for one in Path(folder).iterdir():
    place = Path(out) / "students" / one.name / "grade.json"
    if not place.exists():
        place.parent.mkdir(parents=True)
        earned = points[one.name.rpartition("-")[0]]
        told = {"student": one.name, "points": earned, "cpu_seconds": 2.0 + earned, "memory": 3_000_000}
        place.write_text(json.dumps(told))
sys.exit(int(workers) - 1)
"""


@pytest.fixture
def pretended_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the marks that $POINTS says, by kind; more than one worker is a failure."""
    monkeypatch.setattr(classroom, "GRADER", (sys.executable, "-c", PRETENDS))
    points = {kind.name: kind.points for kind in classroom.kinds().values()}
    monkeypatch.setenv("POINTS", json.dumps(points))


def test_a_class_is_made_up_graded_and_added_up(
    tmp_path: Path, pretended_grader: None, capsys: pytest.CaptureFixture[str]
) -> None:
    command_line = ["classroom", str(tmp_path), "--workers", "1", "--students"]
    assert bench.main([*command_line, "6"]) == 0
    _, right, untouched, first, summary = capsys.readouterr().out.splitlines()
    most = classroom.kinds()["right"].points
    each = f"{most + 2}.0"
    assert right.split() == ["2", "right", each, f"({each}", "..", f"{each})", str(2 * most + 4), "3", "MB"]
    assert untouched.split()[:3] == ["2", "untouched", "2.0"] and first.split()[:3] == ["2", "first", "5.0"]
    assert summary.startswith("6 graded in this run, in ")
    assert [path.name for path in (tmp_path / "class/first-0002").iterdir()] == ["01_blocks.ipynb"]
    assert len(list((tmp_path / "class/right-0005").iterdir())) == len(list(REPO.glob("solutions/*.ipynb")))

    assert bench.main([*command_line, "8"]) == 0
    assert "2 graded in this run, in " in capsys.readouterr().out


def test_a_mark_that_is_not_deserved_is_an_error(
    tmp_path: Path,
    pretended_grader: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("POINTS", json.dumps({"right": 1, "untouched": 0, "first": 3}))
    assert bench.main(["classroom", str(tmp_path), "--workers", "1", "--students", "5"]) == 1
    assert re.search(r"error: not \d+ points: right-0000$", capsys.readouterr().err, re.MULTILINE)


def test_a_grader_that_fails_is_an_error(
    tmp_path: Path, pretended_grader: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["classroom", str(tmp_path), "--workers", "2", "--students", "1"]) == 1
    assert "error: the grader ended with status 1; the same command goes on" in capsys.readouterr().err


@pytest.mark.classroom
def test_the_masters_have_all_points_and_the_exercises_none(tmp_path: Path, unhurried: None) -> None:
    for student, folder in (("right", "solutions"), ("untouched", "notebooks")):
        shutil.copytree(REPO / folder, tmp_path / "class" / student, ignore=shutil.ignore_patterns(".*"))
    assert command.main([str(tmp_path / "class"), "--out", str(tmp_path / "results"), "--salt", "x"]) == 0
    found = grades(tmp_path / "results")
    assert [mark["puzzle"] for mark in found["right"]["puzzles"] if not mark["points"]] == []
    assert {mark["state"] for mark in found["untouched"]["puzzles"]} == {"open"}
    assert {answer["status"] for answer in found["right"]["answers"]} == {"right"}


def commands() -> list[bytes]:
    """Of all processes."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(place.read_bytes())
    return found


# ---- begun again


def test_a_second_run_grades_what_is_new_or_changed(tmp_path: Path, graded: Any) -> None:
    folder = class_of(tmp_path / "class", "ada", "bob")
    assert run(tmp_path) == 0 and sorted(graded()) == ["ada", "bob"]
    class_of(folder, "cyd")
    (folder / "bob/01_blocks.ipynb").write_bytes(notebook({"p1-kernel": ONE + "# late\n"}))
    assert run(tmp_path) == 0 and sorted(graded()) == ["ada", "bob", "bob", "cyd"]
    assert [row["student"] for row in rows(tmp_path)] == ["ada", "bob", "cyd"]
    assert run(tmp_path, "--salt", "another") == 0 and len(graded()) == 7


def test_the_salt_is_drawn_once_and_kept(tmp_path: Path) -> None:
    with Results(tmp_path / "a") as results:
        salt = results.salt(None)
        assert salt == results.salt(None) and len(salt) == 16
        assert results.salt("mine") == "mine" == results.salt(None)
    with Results(tmp_path / "b") as results:
        assert results.salt(None) != salt


def test_a_full_disk_and_one_that_is_read_only_are_a_line(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class_of(tmp_path / "class", "ada")
    for number, words in (
        (errno.ENOSPC, "No space left on device; the grades so far are kept"),
        (errno.EROFS, "results: Read-only file system"),
    ):
        where = (str(tmp_path / "results"),) if number == errno.EROFS else ()
        failure = OSError(number, os.strerror(number), *where)
        monkeypatch.setattr(Results, "keep", lambda *_, failure=failure: _raise(failure))
        assert run(tmp_path) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("error: ") and said.endswith(words)


def _raise(failure: OSError) -> None:
    raise failure


def test_what_failed_is_no_zero_and_is_tried_again(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada", "faulty")
    assert run(tmp_path) == 1
    assert [row["student"] for row in rows(tmp_path)] == ["ada"]
    assert "NOT GRADED: faulty: no memory left" in capsys.readouterr().err
    assert run(tmp_path) == 1 and sorted(graded()) == ["ada", "faulty", "faulty"]


def test_two_runs_do_not_share_a_folder(
    tmp_path: Path, graded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class_of(tmp_path / "class", "ada")
    with Results(tmp_path / "results"):
        assert run(tmp_path) == 2
    assert "another run is writing" in capsys.readouterr().err and graded() == []


PRETENDING = """
import sys; from tests import test_grading_run as t; from puzzles_lib.grading import executors
from puzzles_lib.grading import __main__ as c
executors.grade = t.pretended; c.warm_up = lambda _: []; c.sandbox.find = lambda: 0
sys.exit(c.main(sys.argv[1:]))
"""


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A run with two workers, whose grades are pretended."""
    place = [str(folder / "class"), "--out", str(folder / "results"), "--workers", "2"]
    command = [sys.executable, "-c", PRETENDING, *place]
    return subprocess.Popen(command, cwd=REPO, stderr=subprocess.PIPE, start_new_session=True)


def wait_for(running: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while running.poll() is None and time.monotonic() < deadline and not holds():
        time.sleep(0.02)


def last_words(running: subprocess.Popen[bytes]) -> bytes:
    """What it wrote until it and its workers ended, which have the pipe, too."""
    try:
        return running.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        raise


def test_an_interrupt_of_the_run_alone_ends_what_it_has_begun(tmp_path: Path, graded: Any) -> None:
    """Not by Ctrl-C, which the workers hear, too."""
    class_of(tmp_path / "class", "endless0", "endless1")
    running = started(tmp_path)
    wait_for(running, lambda: len(graded()) >= 2)
    running.send_signal(signal.SIGINT)
    words = last_words(running)
    assert running.returncode == 130 and b"stopped; run the same" in words and b"Traceback" not in words


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on(by: signal.Signals, tmp_path: Path, graded: Any) -> None:
    students = [f"slow{number}" for number in range(8)]
    class_of(tmp_path / "class", *students)
    running = started(tmp_path)
    done = tmp_path / "results/students"
    wait_for(running, lambda: len(list(done.glob("*/grade.json"))) >= 2)
    os.killpg(running.pid, by) if by == signal.SIGINT else running.kill()
    words = last_words(running)
    assert running.returncode == (130 if by == signal.SIGINT else -by)
    assert by != signal.SIGINT or b"stopped; run the same command again to continue" in words
    assert b"Traceback" not in words
    kept = {place.name: (place / "grade.json").stat().st_mtime_ns for place in done.glob("*")
            if (place / "grade.json").exists()}  # fmt: skip
    assert 2 <= len(kept) < 8
    before = graded()
    assert run(tmp_path) == 0
    assert {name: (done / name / "grade.json").stat().st_mtime_ns for name in kept} == kept
    assert sorted(graded()[len(before) :]) == sorted(set(students) - set(kept))
    assert [row["student"] for row in rows(tmp_path)] == students


# ---- executors


def jobs(*students: str) -> list[Job]:
    return [Job(student, {}, (), student, "", ()) for student in students]


def outcomes(*students: str, workers: int = 2) -> dict[str, Mapping[str, Any] | Exception]:
    found = list(work(jobs(*students), processes(workers), 2 * workers))
    assert len(found) == len(students)
    return {job.student: outcome for job, outcome in found}


def test_a_worker_that_is_killed_loses_nothing(graded: Any) -> None:
    names = [f"slow{number}" for number in range(5)]
    found = outcomes(*names[:2], "deadly-once", *names[2:])
    assert all(not isinstance(outcome, Exception) for outcome in found.values())


def test_a_submission_that_kills_its_workers_costs_the_others_nothing(graded: Any) -> None:
    found = outcomes("ada", "deadly", "slow", "bob")
    assert isinstance(found.pop("deadly"), concurrent.futures.BrokenExecutor)
    assert all(not isinstance(outcome, Exception) for outcome in found.values())
    assert graded().count("deadly") == executors.ATTEMPTS


def test_jobs_are_made_when_there_is_room_for_them(graded: Any) -> None:
    made = 0

    def some() -> Iterator[Job]:
        nonlocal made
        for job in jobs(*(f"slow{number}" for number in range(12))):
            made += 1
            yield job

    for number, _ in enumerate(work(some(), threads, 2), start=1):
        assert made <= number + 2


def test_the_corpus_is_one() -> None:
    names = [one.name for one in HOSTILE]
    assert len(set(names)) == len(names) >= 40
