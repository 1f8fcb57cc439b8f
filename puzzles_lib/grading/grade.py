"""Grade one submission: a job for any executor, and its result as JSON types."""

import base64
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from puzzles_lib.answers import OPEN, UNCLEAR, Answer, judge
from puzzles_lib.chapters import CHAPTERS, Chapter
from puzzles_lib.checker.report import Report
from puzzles_lib.grading import sandbox
from puzzles_lib.grading.plain import Known, NotPlain, parse, value
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Question

SCHEMA = 1
SOLVED, WRONG, UNTOUCHED, MISSING, REFUSED, LIMIT = "solved", "wrong", "open", "missing", "refused", "limit"
UNREAD = "unread"
STATES = (SOLVED, WRONG, REFUSED, LIMIT, UNREAD, UNTOUCHED, MISSING)
"""The states of a puzzle. ``"refused"``: it was not run, because more than a kernel would have had to be run.
``"limit"``: it got no verdict. ``"unread"``: it may be in a file that cannot be read."""
ATTEMPTS = 3  # how often the process that checks is started


@dataclass(frozen=True)
class Job:
    """Everything needed to grade one submission, on this computer or another.

    chapters: their numbers, such as ``"01"``. seconds: the CPU time for a run of a case, as for `check`.
    puzzle_seconds: the CPU time for one puzzle. cpu_seconds: the CPU time after which no puzzle is started.
    wall_seconds: the elapsed time for everything. memory: the bytes that a check may map.
    unread: why a file could not be read, by the file.
    """

    student: str
    files: Mapping[str, bytes]
    remarks: tuple[str, ...]
    key: str
    salt: str
    chapters: tuple[str, ...]
    sandboxed: bool = True
    seconds: float = 10.0
    puzzle_seconds: float = 90.0
    cpu_seconds: float = 600.0
    wall_seconds: float = 3600.0
    memory: int = 4 << 30
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return what `inside` gets, which does not include the student."""
        return {
            "notebooks": {label: base64.b64encode(data).decode() for label, data in self.files.items()},
            "chapters": self.chapters,
            "questions": [q.id for c in CHAPTERS if c.number in self.chapters for q in c.questions],
            "salt": self.salt,
            "seconds": self.seconds,
            "puzzle_seconds": self.puzzle_seconds,
            "cpu_seconds": self.cpu_seconds,
            "memory": self.memory,
        }


def grade(job: Job) -> dict[str, Any]:
    """Return the marks for a submission. Later versions may add keys, but remove none.

        {"schema": 1, "student": "Ada Lovelace", "key": ..., "points": 1, "of": 2, "remarks": [...],
         "cpu_seconds": 3.4, "memory": 316837888,
         "puzzles": [{"puzzle": "masked_add", "number": "2", "chapter": "01", "points": 0, "of": 1,
                      "state": "wrong", "kind": "out of bounds", "words": "", "remarks": [],
                      "report": {...}}],
         "answers": [{"id": "ch01-q1", "status": "right", "words": ""}]}

    state is one of `STATES`, kind is that of the first verdict, and report is `Report.as_dict` or None. Each
    solved puzzle gives a point. Answers are reported, but give no points.

    Raises sandbox.Unavailable if there is no sandbox, and sandbox.NotStarted if no process starts, which says
    nothing about the submission.
    """
    said = _said(job)
    told: dict[str, Any] = {"chapters": [], "answers": {}, "remarks": [], "unread": {}}
    messages: dict[str, Mapping[str, Any]] = {}
    done: Mapping[str, Any] = {}
    for message in said.messages:
        if "notebooks" in message:
            told = message["notebooks"]
        elif "puzzle" in message:
            messages[message["puzzle"]] = message
        elif "done" in message:
            done = message["done"]
    chapters = [chapter for chapter in CHAPTERS if chapter.number in job.chapters]
    unread = {**job.unread, **told["unread"]}
    puzzles = [
        _mark(
            chapter,
            puzzle,
            messages.get(puzzle.name),
            chapter.number in told["chapters"],
            said.ended,
            _may_be_in(chapter, unread),
        )
        for chapter in chapters
        for puzzle in chapter.puzzles
    ]
    remarks = [
        *job.remarks,
        *told["remarks"],
        *([f"not everything was checked: {said.ended}"] if said.ended else []),
    ]
    return {
        "schema": SCHEMA,
        "student": job.student,
        "key": job.key,
        "points": sum(mark["points"] for mark in puzzles),
        "of": sum(mark["of"] for mark in puzzles),
        "remarks": remarks,
        "cpu_seconds": done.get("cpu_seconds"),
        "memory": done.get("memory"),
        "puzzles": puzzles,
        "answers": [_answer(question, told["answers"]) for question in _questions(chapters)],
    }


def _said(job: Job) -> sandbox.Said:
    for attempt in range(ATTEMPTS):
        try:
            return sandbox.run(job.as_dict(), job.wall_seconds, job.sandboxed)
        except sandbox.NotStarted:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


def _mark(
    chapter: Chapter,
    puzzle: Puzzle,
    message: Mapping[str, Any] | None,
    has_notebook: bool,
    ended: str,
    unread: str,
) -> dict[str, Any]:
    """Return a puzzle's mark, from the messages about it. unread: the file that may contain it."""
    mark: dict[str, Any] = {"puzzle": puzzle.name, "number": puzzle.number, "chapter": chapter.number}
    mark |= {"points": 0, "of": 1, "state": MISSING, "kind": "", "words": "", "remarks": [], "report": None}
    if message is None:
        if not has_notebook and not ended and unread:
            return mark | {"state": UNREAD, "words": unread}
        if not has_notebook and not ended:
            return mark | {"words": f"there is no notebook of chapter {chapter.number}"}
        return mark | {
            "state": LIMIT,
            "words": f"no verdict: {ended or 'the process that checks it reported nothing'}",
        }
    mark["remarks"] = list(message["remarks"])
    if "report" not in message:
        where = f"line {message['line']}: {message['source']}" if message.get("source") else ""
        words = "\n".join(filter(None, [message["words"], where]))
        return mark | {"state": message["problem"], "kind": message["problem"], "words": words}
    report = Report.from_dict(message["report"])
    kind = report.verdicts[0].kind if report.verdicts else ""
    if message.get("passes_shown"):
        mark["remarks"].append("passes everything that `check` shows, but fails with other values and sizes")
    state = SOLVED if report.ok else UNTOUCHED if kind == "open" else WRONG
    return mark | {"points": int(report.ok), "state": state, "kind": kind, "report": message["report"]}


def _may_be_in(chapter: Chapter, unread: Mapping[str, str]) -> str:
    """Return which unreadable file may be the chapter's notebook, and why it can't be read; or "".

    A file whose name has the name of another chapter is only that chapter's.
    """
    stem = {c: c.folder.removeprefix("ch") for c in CHAPTERS}
    for label, reason in unread.items():
        named = [c for c in CHAPTERS if stem[c] in label.rpartition("/")[2]]
        if not named or chapter in named:
            return f"{label}: {reason}"
    return ""


def is_unread(grade: Mapping[str, Any]) -> bool:
    """Return whether a file cannot be read that may contain puzzles, so that the points aren't known."""
    return any(mark["state"] == UNREAD for mark in grade["puzzles"])


def why_unread(grade: Mapping[str, Any]) -> str:
    """Return which files cannot be read, and why."""
    why = dict.fromkeys(mark["words"] for mark in grade["puzzles"] if mark["state"] == UNREAD)
    return "; ".join(why)


def _questions(chapters: Iterable[Chapter]) -> list[Question]:
    return [question for chapter in chapters for question in chapter.questions if not question.computed]


def _answer(question: Question, given: Mapping[str, str]) -> dict[str, str]:
    """Return the result of an answer, given the text of its value."""
    found = _judged(question.id, given[question.id]) if question.id in given else None
    if found is None:
        return {
            "id": question.id,
            "status": MISSING,
            "words": "the notebook has no answer(...) call for this question",
        }
    words = "" if found.status == OPEN else found.words
    return {"id": question.id, "status": found.status, "words": words}


def _judged(id: str, text: str) -> Answer:
    question = _known_questions()[id]
    try:
        return judge(question, value(parse(text).body[0].value, Known()))  # type: ignore[attr-defined]
    except (NotPlain, IndexError, AttributeError):
        return Answer(id, UNCLEAR, "not a plain value: write the answer itself, such as 12 or {1, 2}")


@functools.cache
def _known_questions() -> dict[str, Question]:
    """Return the questions, each of which computes its answer once per process."""
    every = [question for chapter in CHAPTERS for question in chapter.questions]
    return {q.id: dataclasses.replace(q, right=functools.cache(q.right)) for q in every}


def warm_up(chapters: Iterable[str]) -> list[str]:
    """Compute the answers of all questions, for processes that are forked from this one.

    Returns a line for each answer that cannot be computed here.
    """
    problems = []
    for question in _known_questions().values():
        if question.chapter in chapters:
            try:
                question.right()
            except Exception as error:
                problems.append(f"{question.id}: {type(error).__name__}: {error}"[:200])
    return problems
