"""Grade a class: `python -m puzzles_lib.grading SUBMISSIONS... --out results/`.

Every puzzle of every submission is checked in a sandbox, with other values and sizes than learners see. Their
Python is never run. If it is stopped, the same command continues.
"""

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading import executors, sandbox
from puzzles_lib.grading.bar import Bar
from puzzles_lib.grading.class_view import overview
from puzzles_lib.grading.grade import LIMIT, Job, warm_up
from puzzles_lib.grading.results import InUse, Results, gradebook, key_of, write
from puzzles_lib.grading.submissions import PROGRESS, Submission, collect, digest
from puzzles_lib.ledger import Damaged, Entry, parse

_LOUD = """\
WARNING: --no-sandbox. Kernels are vetted, and nothing else of a notebook is run. But if one gets past that,
nothing protects your files, your network and the other submissions."""


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
        "--chapters", nargs="+", metavar="NN", help="the chapters to grade, as in 01 02; by default all"
    )
    parser.add_argument(
        "--salt",
        metavar="TEXT",
        help="chooses the random cases and values; by default FOLDER's salt, which is random at first",
    )
    parser.add_argument(
        "--workers", type=int, default=_processors(), metavar="N", help="processes at a time on this computer"
    )
    parser.add_argument(
        "--executor", metavar="MODULE:NAME", help="a function that returns a concurrent.futures.Executor"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="CPU time for a run of a case, as in check"
    )
    parser.add_argument("--no-sandbox", action="store_true", help="run without bubblewrap, at your own risk")
    return parser


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _grade(options: argparse.Namespace) -> int:
    sandboxed = not options.no_sandbox
    if sandboxed:
        _ask_for_sandbox()
    else:
        print(_LOUD, file=sys.stderr)
    chapters = _chapters(options.chapters)
    if options.workers < 1 or not options.seconds > 0:
        raise ValueError("--workers and --seconds must be numbers above 0")
    factory = executors.named(options.executor) if options.executor else executors.processes(options.workers)
    submissions, remarks = collect(options.submissions)
    if not submissions:
        raise ValueError(f"there is no submission in {', '.join(map(str, options.submissions))}")
    grades: dict[str, dict[str, Any]] = {}
    failed = 0
    with Results(options.out) as results, Bar(len(submissions)) as bar:
        salt = results.salt(options.salt)

        def jobs() -> Iterator[Job]:
            """Return the jobs that no earlier run has done."""
            warm = bool(options.executor)
            for submission in submissions:
                job = _job(submission, salt, chapters, options.seconds, sandboxed)
                if kept := results.kept(submission.student, job.key):
                    grades[submission.student] = kept
                    bar.step()
                    continue
                if not warm:  # before the first process is forked
                    bar.say("Computing the answers to the reading exercises ...")
                    for line in warm_up(chapters):
                        bar.say(f"not checked, because the correct answer cannot be computed here: {line}")
                    warm = True
                yield job

        for job, outcome in executors.work(jobs(), factory, executors.AHEAD * options.workers):
            if isinstance(outcome, Exception):
                failed += 1
                bar.say(f"NOT GRADED: {job.student}: {outcome or type(outcome).__name__}")
            else:
                results.keep(outcome)
                grades[job.student] = outcome
            bar.step()
        graded = [grades[one.student] for one in submissions if one.student in grades]
        write(options.out / "gradebook.csv", gradebook(graded))
        write(
            options.out / "index.html", overview(graded, remarks, sandboxed, handed_in_progress(submissions))
        )
    for remark in remarks:
        print(remark, file=sys.stderr)
    print(
        f"{len(graded)} of {len(submissions)} graded: {options.out / 'index.html'}, gradebook.csv, students/"
    )
    if cut := [grade["student"] for grade in graded if any(m["state"] == LIMIT for m in grade["puzzles"])]:
        print(f"please look at these, because a limit ended a check: {', '.join(cut)}", file=sys.stderr)
    if failed:
        print(f"error: {failed} not graded; run the same command to try them again", file=sys.stderr)
    return 1 if failed else 0


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
        raise sandbox.Unavailable(f"{reason}; or take the risk of --no-sandbox") from None


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
    return Job(submission.student, files, tuple(remarks), key, salt, chapters, sandboxed, seconds)


if __name__ == "__main__":
    sys.exit(main())
