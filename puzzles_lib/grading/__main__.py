"""Grade a class: `python -m puzzles_lib.grading SUBMISSIONS... --out results/`.

Each puzzle of each submission is checked in a sandbox, with other values and sizes than students see. No
cell of a notebook is executed. Repeat the command to continue after an interruption.
"""

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading import executors, people, sandbox
from puzzles_lib.grading.bar import Bar
from puzzles_lib.grading.class_view import overview
from puzzles_lib.grading.grade import LIMIT, Job, is_unread, warm_up, why_unread
from puzzles_lib.grading.results import InUse, Results, csv_text, gradebook, key_of, summary, write
from puzzles_lib.grading.rules import (
    Late,
    Rules,
    best,
    lateness,
    read_deadline,
    read_late,
    read_points,
    read_time,
    scored,
)
from puzzles_lib.grading.submissions import PROGRESS, Submission, collect, digest
from puzzles_lib.ledger import Damaged, Entry, parse
from puzzles_lib.versions import too_old

_LOUD = """\
WARNING: --no-sandbox. Kernels are vetted, and nothing else in a notebook is run. But a kernel that gets past
the vetting can reach your files, your network and the other submissions."""

_REMEMBERED = ("chapters", "points", "deadline", "late", "columns", "comments")  # options, for `_asked_for`
_DROPPED = (
    "This run doesn't, so the gradebook and reports are now without: repeat the command with all options"
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _grade(options)
    except KeyboardInterrupt:
        print("\nstopped; run the same command again to continue", file=sys.stderr)
        return 130
    except (InUse, OSError, ValueError, sandbox.Unavailable) as error:
        print(f"error: {_words(error)}", file=sys.stderr)
        return 2


def _words(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    words = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{words}; the grades so far are kept" if error.errno in (errno.ENOSPC, errno.EDQUOT) else words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.grading", description=__doc__)
    parser.add_argument("submissions", nargs="+", type=Path, metavar="SUBMISSIONS")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="the folder for the results"
    )
    parser.add_argument(
        "--chapters", nargs="+", metavar="NN", help="the chapters to grade, such as 01 02 (default: all)"
    )
    parser.add_argument(
        "--salt",
        metavar="TEXT",
        help="a text that determines the hidden cases (default: as in the last run; random in the first)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=_processors(),
        metavar="N",
        help="how many local processes (default: one per CPU)",
    )
    parser.add_argument(
        "--executor", metavar="MODULE:NAME", help="a function that returns a concurrent.futures.Executor"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="CPU seconds for one run of a case (default: 10)"
    )
    parser.add_argument(
        "--no-sandbox", action="store_true", help="grade without bubblewrap, at your own risk"
    )
    count = parser.add_argument_group("what counts")
    count.add_argument(
        "--points", type=Path, metavar="FILE", help="points per puzzle and partial credit, as TOML"
    )
    count.add_argument("--deadline", metavar="WHEN", help='"2026-11-30" or "2026-11-30 18:00"')
    count.add_argument(
        "--late",
        metavar="RULE",
        help='what lateness costs: "20%%", "10%%/day" or "10%%/day, at most 50%%" (default: nothing)',
    )
    show = parser.add_argument_group("who is graded, and what is written")
    show.add_argument(
        "--only",
        nargs="+",
        metavar="STUDENT",
        help="grade only these students again; the others keep their grades",
    )
    show.add_argument(
        "--columns",
        type=Path,
        metavar="FILE",
        help="a CSV file of the class, exported from the platform or your own with the columns student and "
        "handed in; upload.csv then has the points in the same form",
    )
    show.add_argument(
        "--column", metavar="NAME", default=people.COLUMN, help="the name of the points' column in upload.csv"
    )
    show.add_argument("--comments", type=Path, metavar="FILE", help="comments for students, as CSV")
    show.add_argument("--anonymous", action="store_true", help="hide the students' names")
    return parser


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _grade(options: argparse.Namespace) -> int:
    if told := too_old(triton.__version__):  # or everyone would get no points
        raise ValueError(told)
    rules = _rules(options)
    sandboxed = not options.no_sandbox
    if sandboxed:
        _ask_for_sandbox()
    else:
        print(_LOUD, file=sys.stderr)
    chapters = _chapters(options.chapters)
    if options.workers < 1 or not options.seconds > 0:
        raise ValueError("--workers and --seconds must be numbers above 0")
    factory = executors.named(options.executor) if options.executor else executors.processes(options.workers)
    roster = people.read_roster(options.columns) if options.columns else None
    attempts = bool(rules.points and rules.points.best)
    submissions, remarks = collect(options.submissions, attempts)
    if not submissions:
        raise ValueError(f"there is no submission in {', '.join(map(str, options.submissions))}")
    found: dict[int, dict[str, Any]] = {}  # by the submission's number
    failed = 0
    with Results(options.out) as results:
        if options.anonymous and (named := [n for n in results.students() if not people.is_pseudonym(n)]):
            raise ValueError(
                f"--anonymous: {options.out / 'students'} has reports with students' names, from an earlier "
                f"run ({', '.join(named[:3])}{', ...' if len(named) > 3 else ''}): choose another --out"
            )
        salt = results.salt(options.salt)
        real = _named(submissions, salt if options.anonymous else "")
        only = _only(options.only, real, roster)
        comments = people.read_comments(options.comments, real, roster) if options.comments else {}
        wanted = [one for one in submissions if not only or one.student in only]
        with Bar(len(wanted)) as bar:
            numbers: dict[str, list[int]] = {}  # of submissions, by their jobs' keys

            def jobs() -> Iterator[Job]:
                """Yield the jobs that no earlier run has done."""
                warm = bool(options.executor)
                for number, submission in enumerate(submissions):
                    job = _job(submission, salt, chapters, options.seconds, sandboxed)
                    kept = results.kept(submission.student, job.key)
                    if only and submission.student in only:
                        kept = None
                    if kept:
                        found[number] = kept
                    if kept or (only and submission.student not in only):
                        if not only or submission.student in only:
                            bar.step(kept=True)
                        continue
                    if not warm:  # before the first process is forked
                        _warm_up(chapters, bar)
                        warm = True
                    numbers.setdefault(job.key, []).append(number)
                    bar.begin()
                    yield job

            for job, outcome in executors.work(jobs(), factory, executors.AHEAD * options.workers):
                number = numbers[job.key].pop(0)
                if isinstance(outcome, Exception):
                    failed += 1
                    bar.say(f"NOT GRADED: {job.student}: {outcome or type(outcome).__name__}")
                else:
                    found[number] = outcome
                    if attempts:
                        results.keep_attempt(outcome)
                    else:
                        results.keep(outcome)
                bar.step()
        graded = _finished(results, submissions, found, rules, real, roster, comments, bool(options.comments))
        who = {name: people.details(roster, one) for name, one in real.items()} if roster else None
        write(options.out / "gradebook.csv", gradebook(graded, who))
        shown = [] if options.anonymous else remarks  # the names of their files may name somebody
        write(options.out / "index.html", overview(graded, shown, sandboxed, handed_in_progress(submissions)))
        if options.anonymous:
            table = csv_text(["student", "name"], [*real.items()])
            write(options.out / "names.csv", table)
        if roster:
            remarks = [*remarks, *_upload(options.out, roster, graded, real, options.column)]
        if dropped := results.keep_options(_asked_for(options)):
            remarks = [*remarks, f"the last run had {' '.join(dropped)}. {_DROPPED}"]
    for remark in remarks:
        print(remark, file=sys.stderr)
    _summarize(options, graded, len(real), failed)
    return 1 if failed or any(map(is_unread, graded)) else 0


def _asked_for(options: argparse.Namespace) -> dict[str, str]:
    """Return the options that change the gradebook or the reports, and that a later run could forget."""
    every = {f"--{name}": getattr(options, name) for name in _REMEMBERED}
    return {
        name: " ".join(map(str, given)) if isinstance(given, list) else str(given)
        for name, given in every.items()
        if given
    }


def _rules(options: argparse.Namespace) -> Rules:
    """Raise ValueError for a file or an option that can't be read."""
    points = read_points(options.points) if options.points else None
    deadline = read_deadline(options.deadline) if options.deadline else None
    if options.late and not deadline:
        raise ValueError(f"--late {options.late}: it needs a --deadline")
    if options.column != people.COLUMN and not options.columns:
        raise ValueError(f"--column {options.column}: it needs --columns, the platform's table")
    if options.salt == "":
        raise ValueError("--salt: the text is empty")
    return Rules(points, deadline, read_late(options.late) if options.late else Late(0))


def _named(submissions: Sequence[Submission], salt: str) -> dict[str, str]:
    """Return the real name of each student. With a salt, the submissions get pseudonyms."""
    real = {}
    for one in submissions:
        name = one.student
        if salt:
            one.student, one.anonymous = people.pseudonym(name, salt), True
        real[one.student] = name
    return real


def _only(wanted: Sequence[str] | None, real: Mapping[str, str], roster: people.Roster | None) -> set[str]:
    """Return the students that --only names. Raise ValueError for one who has handed in nothing."""
    try:
        return set().union(*(people.meant(name, real, roster) for name in wanted or ()))
    except ValueError as error:
        raise ValueError(f"--only: {error}") from None


def _warm_up(chapters: Sequence[str], bar: Bar) -> None:
    """Compute the answers, and say how far it is."""
    bar.say("computing the answers to the reading exercises")
    for done, chapter in enumerate(chapters):
        if done:
            bar.count(f"answers: {done} of {len(chapters)} chapters")
        for line in warm_up((chapter,)):
            bar.say(f"not checked, because the answer can't be computed here: {line}")


def _finished(
    results: Results,
    submissions: Sequence[Submission],
    found: Mapping[int, Mapping[str, Any]],
    rules: Rules,
    real: Mapping[str, str],
    roster: people.Roster | None,
    comments: Mapping[str, list[tuple[str, str]]],
    commented: bool,
) -> list[dict[str, Any]]:
    """Return each student's grade as the rules have it. Write those that are not written like this yet."""
    by_student: dict[str, list[int]] = {}
    for number in sorted(found):
        by_student.setdefault(submissions[number].student, []).append(number)
    finished = []
    for student, numbers in sorted(by_student.items()):
        grades = [found[number] for number in numbers]
        whole = best(grades)
        shown = whole
        if rules:
            person = roster.find(real[student]) if roster else None
            told = []
            for number, grade in zip(numbers, grades, strict=True):
                one = submissions[number]
                when = read_time(one.handed_in) or (person.handed_in if person else None)
                told.append(scored(grade, rules, lateness(rules, when, one.marked_late)))
            shown = best(told)
        if commented:
            shown = {**shown, "comments": [list(each) for each in comments.get(student, [])]}
        if whole.get("shown") != summary(shown) or len(grades) > 1:
            results.keep(whole, shown)
        finished.append(shown)
    return finished


def _upload(
    out: Path,
    roster: people.Roster,
    graded: Sequence[Mapping[str, Any]],
    real: Mapping[str, str],
    column: str,
) -> list[str]:
    """Write the table for the platform. Return a line for each student who has no place in it."""
    of: dict[int, list[Mapping[str, Any]]] = {}
    persons = {}
    remarks = []
    for grade in graded:
        person = roster.find(real[grade["student"]])
        if person is None:
            remarks.append(f"{grade['student']} is not in the --columns table, so not in upload.csv")
        else:
            of.setdefault(id(person), []).append(grade)
            persons[id(person)] = person
    points = []
    for key, grades in of.items():
        if len(grades) > 1:
            names = " and ".join(str(grade["student"]) for grade in grades)
            remarks.append(f"{persons[key].name}: {names} mean this student, so upload.csv has no row")
            continue
        words = "\n".join(words for _, words in grades[0].get("comments", []))
        points.append((persons[key], "" if is_unread(grades[0]) else grades[0]["points"], words))
    write(out / "upload.csv", csv_text(*people.upload(roster, points, column)))
    return remarks


def _summarize(
    options: argparse.Namespace, graded: Sequence[Mapping[str, Any]], students: int, failed: int
) -> None:
    more = "upload.csv, " if options.columns else ""
    page = options.out / "index.html"
    unread = [grade for grade in graded if is_unread(grade)]
    print(f"{len(graded) - len(unread)} of {students} graded: {page}, gradebook.csv, {more}students/")
    if options.anonymous:
        print(
            f"the students' real names are in {options.out / 'names.csv'}: keep it to yourself",
            file=sys.stderr,
        )
    late = [grade["student"] for grade in graded if grade.get("late", {}).get("is_late")]
    if late:
        print(
            f"late: {len(late)} ({', '.join(late[:10])}{', ...' if len(late) > 10 else ''})", file=sys.stderr
        )
    unknown = sum(grade["late"]["is_late"] is None for grade in graded if "late" in grade)
    if options.deadline and unknown:
        print(
            f"{unknown} without a time of submission lose no points for lateness. File names of Blackboard "
            "and Brightspace have the time. For others, pass --columns: a table of Moodle or Gradescope, or "
            "your own with the columns 'student' and 'handed in'",
            file=sys.stderr,
        )
    if cut := [grade["student"] for grade in graded if any(m["state"] == LIMIT for m in grade["puzzles"])]:
        what = "review these students by hand, because a limit of time or memory stopped a check"
        print(f"{what}: {', '.join(cut)}", file=sys.stderr)
    for grade in unread:
        print(f"NOT GRADED: {grade['student']}: {why_unread(grade)}", file=sys.stderr)
    if unread:
        who = "this student" if len(unread) == 1 else "these students"
        print(f"the points of {who} are left empty: ask for the file again", file=sys.stderr)
    if failed:
        print(f"error: {failed} not graded; run the same command to try them again", file=sys.stderr)


def handed_in_progress(submissions: Sequence[Submission]) -> dict[str, dict[str, Entry]]:
    """Return the contents of students' own progress files, by student; invalid files are left out."""
    found = {}
    for one in submissions:
        with contextlib.suppress(Damaged, RuntimeError):
            if one.progress:
                found[one.student] = parse(one.progress, PROGRESS)
    return found


def _ask_for_sandbox() -> None:
    """Raise sandbox.Unavailable, with what to do, if there is no sandbox."""
    try:
        sandbox.find()
    except sandbox.Unavailable as reason:
        raise sandbox.Unavailable(f"{reason}; or pass --no-sandbox at your own risk") from None


def _chapters(wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the numbers of the chapters to grade. Raise ValueError for an unknown chapter."""
    known = [chapter.number for chapter in CHAPTERS]
    for number in wanted or ():
        if number[:2] not in known:
            raise ValueError(f"--chapters {number}: the chapters are {', '.join(known)}")
    return tuple(n for n in known if wanted is None or n in {w[:2] for w in wanted})


def _job(
    submission: Submission, salt: str, chapters: tuple[str, ...], seconds: float, sandboxed: bool
) -> Job:
    files, remarks = submission.read()
    asked = digest({**files, "": "\n".join([submission.student, *remarks]).encode("utf-8", "replace")})
    key = key_of(asked, salt, chapters, seconds, sandboxed)
    return Job(
        submission.student,
        files,
        tuple(remarks),
        key,
        salt,
        chapters,
        sandboxed,
        seconds,
        unread=submission.unread,
    )


if __name__ == "__main__":
    sys.exit(main())
