"""Check one submission in the sandbox, in its own process: ``python -m puzzles_lib.grading.inside FD``.

It reads a job as JSON from standard input and writes JSON to the file descriptor, one message per line. First
comes ``{"ready": true}``, when everything is imported and nothing of the student's is read yet. Then come
``{"notebooks": ...}``, ``{"puzzle": ...}`` for each puzzle, and at the end ``{"done": ...}``.

No cell is ever run. Cells are read in a fork, with the limits of a check. What is accepted of them (`plain`)
is defined and checked in a fork per puzzle, with its own pipe. So neither a crash nor a kernel that gets at
Python can report for another puzzle.
"""

import base64
import dataclasses
import functools
import gc
import json
import linecache
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from puzzles_lib.grading.asides import LONGEST, in_short

MEGABYTE = 1 << 20
MOST_ANSWER = 4 * MEGABYTE  # the most bytes of messages about one puzzle
MOST_TAKEN = 32 * MEGABYTE  # the most bytes taken from all notebooks
MOST_FILE = 64 * MEGABYTE
MOST_UNREAD = 20  # files that aren't notebooks, each with a reason
MOST_PROCESSES = 64  # threads included
_MOST_FILES = 4096  # the highest file descriptor
CLOCK = 10  # the elapsed time of a puzzle may be this many times its CPU time


def main() -> None:
    job, out = begin()
    with os.fdopen(out, "w") as pipe:

        def tell(message: Mapping[str, Any]) -> None:
            pipe.write(json.dumps(message) + "\n")
            pipe.flush()

        grade_job(job, tell)
    os._exit(0)  # there is nothing more to do or to wait for


def begin() -> tuple[dict[str, Any], int]:
    """Return the job and the pipe for messages, and drop all rights that are not needed."""
    out = _private(int(sys.argv[1]))
    job = json.load(sys.stdin)
    _become(job["uid"], job["limit_processes"])
    return job, out


def _private(pipe: int) -> int:
    """Return the pipe under another number, which programs started from here do not inherit."""
    import fcntl

    own = fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(pipe)
    return own


def _become(uid: int | None, limit_processes: bool) -> None:
    """Become the user that the job names, if any, and set limits for everything started from here."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
    if limit_processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, this process is ended first
    except OSError:
        pass


def grade_job(job: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Read what the job names, check it, and report each part when it is done. Uses the standard streams."""
    import puzzles_lib.checker  # every fork needs this
    import puzzles_lib.grading.handed_in  # noqa: F401
    from puzzles_lib.chapters import CHAPTERS

    chapters = [chapter for chapter in CHAPTERS if chapter.number in job["chapters"]]
    puzzles = [(chapter, puzzle) for chapter in chapters for puzzle in chapter.puzzles]
    gc.freeze()  # imported objects stay alive, so no fork needs to collect garbage, which would copy them
    tell({"ready": True})
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    files = {label: base64.b64decode(data) for label, data in job["notebooks"].items()}
    taken = in_a_fork(lambda: _taken(files, chapters, job["questions"]), job, MOST_TAKEN)
    if "problem" in taken:
        words = f"the notebooks could not be read: {taken['words'].removeprefix('no verdict: ')}"
        taken = {"notebooks": {"chapters": [], "answers": {}, "remarks": [words], "unread": {}}}
        taken["kernels"] = {p.name: {"remarks": [], "problem": "limit", "words": words} for _, p in puzzles}
    tell({"notebooks": taken["notebooks"]})
    for _, puzzle in puzzles:
        if puzzle.name not in taken["kernels"]:
            continue
        message = {"puzzle": puzzle.name, **taken["kernels"][puzzle.name]}
        kernel = message.pop("kernel", None)
        if kernel and _cpu() > job["cpu_seconds"]:
            words = f"not tried: the submission has used its {job['cpu_seconds']:g} s of CPU time"
            message |= {"problem": "limit", "words": words}
        elif kernel:
            message |= in_a_fork(functools.partial(_examined, kernel, puzzle, job), job)
        tell(message)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    tell({"done": {"cpu_seconds": _cpu(), "memory": max(u.ru_maxrss for u in usage) * 1024}})


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _taken(files: Mapping[str, bytes], chapters: Sequence[Any], asked: Collection[str]) -> dict[str, Any]:
    """Return what the notebooks contain.

    ``"notebooks"`` is the message about them. ``"kernels"`` has, by puzzle of the chapters that are there,
    the kernel's name and sources, or the problem with it. asked: the ids of the questions, which come with
    the job, because importing the questions would import everything that their answers are computed from.
    """
    from puzzles_lib.grading.handed_in import by_chapter

    unread: dict[str, str] = {}
    notebooks, remarks = by_chapter(files, chapters, unread)
    answers = {id: text for notebook in notebooks.values() for id, text in notebook.answers(asked).items()}
    kernels = {}
    for chapter in chapters:
        for puzzle in chapter.puzzles if chapter.number in notebooks else ():
            found = notebooks[chapter.number].kernel_of(puzzle)
            told: dict[str, Any] = {"remarks": in_short(found.remarks)}
            if found.kernel:
                told["kernel"] = dataclasses.asdict(found.kernel)
            else:
                told |= {"problem": found.problem, "words": found.words}
                told |= {"line": found.line, "source": found.source}
            kernels[puzzle.name] = told
    told_of = {"chapters": list(notebooks), "answers": answers, "remarks": in_short(remarks)}
    told_of["unread"] = dict(list(unread.items())[:MOST_UNREAD])
    return {"notebooks": told_of, "kernels": kernels}


def in_a_fork(
    work: Callable[[], Mapping[str, Any]], job: Mapping[str, Any], most: int = MOST_ANSWER
) -> dict[str, Any]:
    """Do the work in a fork and return its result, or the problem if the fork ended without one.

    most: the most bytes of the result as JSON.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.closerange(3, writing)  # closes the pipe of the whole job first
            os.closerange(writing + 1, _MOST_FILES)
            _limit(job)
            answer = json.dumps(_done(work)).encode()
            while answer:
                answer = answer[os.write(writing, answer) :]
        finally:
            os._exit(0)
    os.close(writing)
    try:
        data = _heard(reading, time.monotonic() + CLOCK * job["puzzle_seconds"], most)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    try:
        return dict(json.loads(data or b""))
    except ValueError:
        return {"problem": "limit", "words": _ending(status, data, job)}


def _done(work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    try:
        return work()
    except MemoryError:
        return {"problem": "limit", "words": "no verdict: the check took too much memory"}
    except Exception as error:  # a bug of the course, which is reported and does not count as a wrong kernel
        return {"problem": "limit", "words": f"no verdict: {type(error).__name__}: {error}"[:LONGEST]}


def _ending(status: int, data: bytes | None, job: Mapping[str, Any]) -> str:
    by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if data is None:
        return f"no verdict within {CLOCK * job['puzzle_seconds']:g} s, or the report is too long to keep"
    if by in (signal.SIGXCPU, signal.SIGKILL):
        return f"no verdict: it took more than {job['puzzle_seconds']:g} s of CPU time, or too much memory"
    return (
        f"no verdict: the process that checked it was ended by {signal.Signals(by).name}"
        if by
        else "no verdict: the process that checked it ended unexpectedly"
    )


def _heard(pipe: int, deadline: float, most: int) -> bytes | None:
    """Return all that comes through a pipe; None if it does not end in time, or is too much."""
    data = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and len(data) <= most:
        if poll.poll(left * 1000):
            if not (more := os.read(pipe, 1 << 16)):
                return bytes(data)
            data += more
    return None


def _limit(job: Mapping[str, Any]) -> None:
    """Limit the fork's CPU time and memory."""
    seconds = int(job["puzzle_seconds"])
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 1))
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    most = mapped + job["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _examined(kernel: Any, puzzle: Any, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the salted report, and for a kernel that fails, whether it passes the cases without a salt."""
    from puzzles_lib.checker import examine
    from puzzles_lib.checker.report import Report
    from puzzles_lib.checker.verdicts import STILL_BROKEN
    from puzzles_lib.stubs import is_untouched
    from puzzles_lib.wrapped import unwrap

    try:
        function = _defined(kernel)
    except Exception as error:
        words = f"the definition fails: {type(error).__name__}: {error}"
        return {"problem": "refused", "words": " ".join(words.split())[:300]}
    wrapped = unwrap(function)
    untouched = bool(puzzle.broken_by and wrapped and is_untouched(wrapped.kernel))
    decorated = wrapped is not None and wrapped.kernel is not function  # and that may be the fix
    report = Report(puzzle.name, verdict=STILL_BROKEN)
    if not untouched or decorated:
        report = examine(function, puzzle, seconds=job["seconds"], salt=job["salt"])
    if untouched and not report.ok:
        return {"report": Report(puzzle.name, verdict=STILL_BROKEN).as_dict()}
    message: dict[str, Any] = {"report": report.as_dict()}
    if report.cases and not report.ok and not any("limit" in verdict.kind for verdict in report.verdicts):
        message["passes_shown"] = examine(function, puzzle, seconds=job["seconds"], until_failure=True).ok
    return message


def _defined(kernel: Any) -> object:
    """Return the kernel, from definitions that `plain` has accepted."""
    import triton
    import triton.language as tl

    scope: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "notebook"}
    for number, source in enumerate(kernel["sources"]):
        name = f"<handed in {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), scope)
    return scope[kernel["name"]]


if __name__ == "__main__":
    main()
