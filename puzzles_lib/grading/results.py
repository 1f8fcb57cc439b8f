"""Keep the results of a class: a folder per student, written as a whole or not at all, and a table of all.

The folder of results has these files:

    index.html      the class; `class_view` draws it
    gradebook.csv   a row per student
    grading.json    the salt, so that a second run gives the same points, and the last run's options
    students/NAME/  grade.json   everything that is known
                    results.json the same for Gradescope
                    attempts/    grades of earlier attempts, if each puzzle's best counts
                    report.html  for the student
"""

import csv
import fcntl
import functools
import hashlib
import html
import io
import itertools
import json
import os
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from puzzles_lib.answers import OPEN
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing.card import Theme, card, heads, rows
from puzzles_lib.grading.grade import (
    LIMIT,
    MISSING,
    REFUSED,
    SCHEMA,
    SOLVED,
    UNREAD,
    UNTOUCHED,
    is_unread,
    why_unread,
)
from puzzles_lib.grading.rules import rounded

_PACKAGE = Path(__file__).resolve().parents[1]
# A spreadsheet would compute a cell that begins with one of these.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLOURS = {SOLVED: Theme.OK, UNTOUCHED: Theme.OPEN, MISSING: Theme.QUIET}
_WORDS = {
    MISSING: "not handed in",
    REFUSED: "not run",
    LIMIT: "no verdict",
    UNREAD: "not graded: the file cannot be read",
}
_ANSWERS = {"right": "correct", "wrong": "not quite", OPEN: "not answered"} | _WORDS


class InUse(RuntimeError):
    """Another run is writing to the folder."""


class Results:
    """The folder of results. Raises InUse if another process has it open, and ValueError if it is damaged."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(folder / ".lock", "a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InUse(f"{folder}: another run is writing to it") from None

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def salt(self, wanted: str | None) -> str:
        """Return the class's salt: the given one, or else that of the last run, or else a new secret one."""
        path = self.folder / "grading.json"
        kept = None
        if path.exists() and wanted is None:
            try:
                kept = str(json.loads(path.read_text("utf-8"))["salt"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"{path} is damaged: pass the run's --salt, or remove the file to get a new one"
                ) from None
        salt = wanted if wanted is not None else kept or secrets.token_hex(8)
        self._write_run(salt, self._last_options())
        return salt

    def keep_options(self, options: Mapping[str, str]) -> list[str]:
        """Keep this run's options, and return those that only the last run had, as on its command line."""
        dropped = [f"{name} {given}" for name, given in self._last_options().items() if name not in options]
        salt = json.loads((self.folder / "grading.json").read_text("utf-8"))["salt"]
        self._write_run(salt, options)
        return dropped

    def _last_options(self) -> dict[str, str]:
        try:
            return dict(json.loads((self.folder / "grading.json").read_text("utf-8"))["options"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _write_run(self, salt: str, options: Mapping[str, str]) -> None:
        run = {"schema": SCHEMA, "salt": salt, "options": dict(options)}
        write(self.folder / "grading.json", json.dumps(run, indent=1) + "\n")

    def students(self) -> list[str]:
        """Return the names of the folders in ``students/``."""
        place = self.folder / "students"
        return sorted(path.name for path in place.iterdir()) if place.is_dir() else []

    def kept(self, student: str, key: str) -> dict[str, Any] | None:
        """Return the grade of an earlier run for exactly the same submission and options; else None."""
        try:
            grade = json.loads((self.place(student) / "grade.json").read_text("utf-8"))
            if grade.get("key") != key:  # an earlier attempt, where the best counts
                path = self.place(student) / "attempts" / f"{key}.json"
                grade = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, AttributeError):
            return None
        return grade if isinstance(grade, dict) and grade.get("key") == key else None

    def keep(self, grade: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> None:
        """Write a student's files. grade.json is last, because it shows that the others are there.

        shown: the grade after the class's rules are applied, for the report and for Gradescope. grade.json
        says in ``"shown"`` which points are in the report.
        """
        place = self.place(grade["student"])
        place.mkdir(parents=True, exist_ok=True)
        shown = grade if shown is None else shown
        write(place / "results.json", json.dumps(gradescope(shown), indent=1, ensure_ascii=False) + "\n")
        write(place / "report.html", page(f"{grade['student']}: report", report(shown)))
        kept = {**grade, "shown": summary(shown)}
        write(place / "grade.json", json.dumps(kept, indent=1, ensure_ascii=False) + "\n")

    def keep_attempt(self, grade: Mapping[str, Any]) -> None:
        """Keep one of several attempts, so that it isn't graded again."""
        folder = self.place(grade["student"]) / "attempts"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{grade['key']}.json", json.dumps(grade, indent=1, ensure_ascii=False) + "\n")

    def place(self, student: str) -> Path:
        """Return a student's folder: the name if it is plain, or else what is left of it and a digest."""
        return self.folder / "students" / folder_name(student)


def folder_name(student: str) -> str:
    """Return a name for a folder that works on any system and is different for each student."""
    letters = unicodedata.normalize("NFKD", student).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^\w.-]+", "_", letters, flags=re.ASCII).strip("._")[:60]
    if plain == student and plain.lower() == plain and not re.search(r"-[0-9a-f]{8}$", plain):
        return plain
    return f"{plain or 'student'}-{hashlib.sha256(student.encode('utf-8', 'replace')).hexdigest()[:8]}"


def write(path: Path, text: str) -> None:
    """Write a whole file, or keep the one before. Characters that cannot be encoded are replaced."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with open(unfinished, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def key_of(submission: str, salt: str, chapters: Sequence[str], seconds: float, sandboxed: bool) -> str:
    """Return what determines a grade: the digests of the submission, the options and the course."""
    parts = [SCHEMA, submission, salt, list(chapters), seconds, sandboxed, _course()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@functools.cache
def _course() -> str:
    """Return a digest of this package and of the packages that it computes with."""
    whole = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        whole.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes())
    for name in ("torch", "triton", "numpy"):
        whole.update(metadata.version(name).encode())
    return whole.hexdigest()


def summary(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report shows: points by the class's rules, lateness and comments.

    Points are None if they aren't known, because a file cannot be read.
    """
    told = {key: shown[key] for key in ("points", "of", "answer_points", "late", "comments") if key in shown}
    points = {
        m["puzzle"]: [None if m["state"] == UNREAD else rounded(m["points"]), rounded(m["of"])]
        for m in shown["puzzles"]
    }
    return told | {"puzzles": points} | ({"points": None} if is_unread(shown) else {})


# ---- for machines


def gradescope(grade: Mapping[str, Any]) -> dict[str, Any]:
    """Return a grade for Gradescope's autograder: results.json, with a test per puzzle and one for answers.

    The format: https://gradescope-autograders.readthedocs.io/en/latest/specs/
    """
    tests = [
        {
            "name": f"{mark['number']} {mark['puzzle']}",
            "number": mark["number"],
            "score": rounded(mark["points"]),
            "max_score": rounded(mark["of"]),
            "status": "passed" if mark["state"] == SOLVED else "failed",
            "output": "\n".join([told(mark), *_comments(grade, mark["puzzle"])]),
            "output_format": "text",
            "visibility": "visible",
            "tags": [f"chapter {mark['chapter']}"],
        }
        for mark in grade["puzzles"]
    ]
    if grade["answers"]:
        lines = [
            f"{a['id']}: {a['status']}" + (f": {a['words']}" if a["words"] else "") for a in grade["answers"]
        ]
        tests.append(
            {
                "name": "reading exercises",
                "score": grade.get("answer_points", 0),
                "max_score": grade.get("answers_of", 0),
                "output": "\n".join(lines),
                "output_format": "text",
                "visibility": "visible",
            }
        )
    unread = (
        [f"Not graded: a file cannot be read ({why_unread(grade)}). Please submit it again."]
        if is_unread(grade)
        else []
    )
    return {
        "score": grade["points"],
        "output": "\n".join([*unread, *_said_of_all(grade), *grade["remarks"]]),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def _comments(grade: Mapping[str, Any], puzzle: str = "") -> list[str]:
    """Return the teacher's comments on a puzzle; without a puzzle, the comments on the whole submission."""
    return [text for about, text in grade.get("comments", ()) if about == puzzle]


def _said_of_all(grade: Mapping[str, Any]) -> list[str]:
    """Return the lines about the whole submission: whether it is late, and comments."""
    late = grade.get("late", {}).get("words", "")
    return [*([late[:1].upper() + late[1:] + "."] if late else []), *_comments(grade)]


def told(mark: Mapping[str, Any]) -> str:
    """Return a mark as text: the report's lines, or why there are none, and the remarks."""
    first = str(Report.from_dict(mark["report"])) if mark["report"] else f"{mark['puzzle']}: {_state(mark)}"
    return "\n".join(filter(None, [first, mark["words"], *mark["remarks"]]))


def _state(mark: Mapping[str, Any]) -> str:
    return _WORDS.get(mark["state"], mark["state"])


def gradebook(
    grades: Sequence[Mapping[str, Any]], people: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """Return a table as CSV: a row per student, with points per puzzle, correct answers and remarks.

    people: id, e-mail and name by student, if they are to be in the table. The table then begins with a
    byte-order mark, because Excel misreads UTF-8 without it.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    puzzles = [mark["puzzle"] for mark in grades[0]["puzzles"]] if grades else []
    who = [] if people is None else ["id", "e-mail", "name"]
    more = [key for key in ("late", "comments") if any(key in grade for grade in grades)]
    beside = {"late": ["handed in", "late", "% taken off"], "comments": ["comments"]}
    added = [name for key in more for name in beside[key]]
    table.writerow(
        ["student", *who, "points", "of", *puzzles, "correct answers", "questions", "remarks", *added]
    )
    for grade in grades:
        right = sum(answer["status"] == "right" for answer in grade["answers"])
        said = [*grade["remarks"], *(f"{m['puzzle']}: {r}" for m in grade["puzzles"] for r in m["remarks"])]
        points = ["" if mark["state"] == UNREAD else rounded(mark["points"]) for mark in grade["puzzles"]]
        total = "" if is_unread(grade) else grade["points"]
        person = [(people or {}).get(grade["student"], {}).get(key, "") for key in who]
        row = [grade["student"], *person, total, grade["of"], *points, right, len(grade["answers"])]
        row.append("; ".join(said))
        if "late" in more:
            late = grade["late"]
            row += [late["handed_in"], {True: "yes", False: "no", None: "?"}[late["is_late"]], late["taken"]]
        if "comments" in more:
            row.append(
                "; ".join(f"{about}: {words}" if about else words for about, words in grade["comments"])
            )
        table.writerow([_harmless(cell) for cell in row])
    return ("" if people is None else "\ufeff") + text.getvalue()


def csv_text(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as CSV, without cells that a spreadsheet would compute."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerows([[_harmless(cell) for cell in row] for row in [header, *rows]])
    return text.getvalue()


def _harmless(cell: object) -> object:
    """Return a cell that no spreadsheet reads as a formula."""
    computed = isinstance(cell, str) and len(cell) > 1 and cell.startswith(_FORMULA)
    return f"'{cell}" if computed else cell


# ---- for people


def page(title: str, body: str) -> str:
    """Return an HTML page that needs no other file, light or dark as the reader prefers."""
    style = (
        "body{font-family:system-ui,sans-serif;line-height:1.4;max-width:60rem;margin:2rem auto;"
        "padding:0 1rem}"
        "section{margin:0.8rem 0}summary{cursor:pointer}pre{overflow-x:auto}table{border-collapse:collapse}"
        "th,td{text-align:left;padding:0.15em 0.6em;vertical-align:top}"
        ".number{text-align:right;font-variant-numeric:tabular-nums}:root{color-scheme:light dark;"
        "--jp-content-font-color1:CanvasText;--jp-layout-color0:Canvas}"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{style}</style></head><body>{body}</body></html>\n"
    )


def report(grade: Mapping[str, Any]) -> str:
    """Return a student's report as HTML: the card of each puzzle as `check` shows it, folded if it is solved.

    A line names the puzzles that are not started or were not handed in.
    """
    parts = [f"<h1>{html.escape(grade['student'])}</h1>"]
    parts.append(f"<p>{_headline(grade)}</p>")
    parts += [f'<p style="white-space:pre-line">{html.escape(line)}</p>' for line in _said_of_all(grade)]
    if grade["remarks"]:
        items = "".join(f"<li>{html.escape(remark)}</li>" for remark in grade["remarks"])
        parts.append(f"<ul>{items}</ul>")
    for chapter, marks in itertools.groupby(grade["puzzles"], key=lambda mark: mark["chapter"]):
        parts.append(_chapter(chapter, list(marks), grade))
    if grade["answers"]:
        given = grade.get("answers_of")
        parts.append(
            _answers(grade["answers"], f": {grade['answer_points']} of {given} points" if given else "")
        )
    return "".join(parts)


def _headline(grade: Mapping[str, Any]) -> str:
    if is_unread(grade):
        why = html.escape(why_unread(grade))
        return f"<strong>Not graded:</strong> a file cannot be read ({why}). Please hand it in again."
    if "late" not in grade:
        return f"<strong>{grade['points']} of {grade['of']}</strong> puzzles are solved."
    solved = sum(mark["state"] == SOLVED for mark in grade["puzzles"])
    return (
        f"<strong>{grade['points']} of {grade['of']} points.</strong> "
        f"{solved} of {len(grade['puzzles'])} puzzles are solved."
    )


def _chapter(number: str, marks: Sequence[Mapping[str, Any]], grade: Mapping[str, Any]) -> str:
    points, of = (round(sum(mark[key] for mark in marks), 2) for key in ("points", "of"))
    unit = " points" if "late" in grade else ""
    parts = [f"<h2>Chapter {html.escape(number)}: {points:g} of {of:g}{unit}</h2>"]
    comments_on = {mark["puzzle"]: _comments(grade, mark["puzzle"]) for mark in marks}
    told = [
        mark
        for mark in marks
        if mark["state"] not in (UNTOUCHED, MISSING, UNREAD) or mark["remarks"] or comments_on[mark["puzzle"]]
    ]
    for mark in told:
        shown = _card(mark)
        if unit:
            points = f"{rounded(mark['points'])} of {rounded(mark['of'])} points"
            shown += f'<div style="padding-left:1rem">{points}</div>'
        if comments := comments_on[mark["puzzle"]]:
            style = "padding-left:1rem;white-space:pre-line"
            shown += "".join(f'<div style="{style}">{html.escape(words)}</div>' for words in comments)
        elif mark["state"] == SOLVED and not mark["remarks"]:
            shown = f"<details><summary>{html.escape(_name(mark))}: solved</summary>{shown}</details>"
        parts.append(f"<section>{shown}</section>")
    for state, said in ((UNTOUCHED, "not started"), (MISSING, "not handed in"), (UNREAD, "not graded")):
        left = [mark for mark in marks if mark["state"] == state and mark not in told]
        if left:  # with the reasons, such as a deleted cell
            why = list(dict.fromkeys(mark["words"] for mark in left if mark["words"]))
            text = f"{said}: {', '.join(map(_name, left))}"
            body = rows(*(line for words in why for line in words.split("\n")))
            parts.append(f"<section>{card(_COLOURS.get(state, Theme.WRONG), text, body)}</section>")
    return "".join(parts)


def _name(mark: Mapping[str, Any]) -> str:
    return f"{mark['number']} {mark['puzzle']}"


def _answers(answers: Sequence[Mapping[str, str]], points: str = "") -> str:
    """Return how many answers are correct, and each that is neither correct nor open."""
    count = Counter(answer["status"] for answer in answers)
    told = ", ".join(f"{number} {_ANSWERS.get(status, status)}" for status, number in count.most_common())
    cells = "".join(
        f"<tr><td>{html.escape(a['id'])}</td><td>{html.escape(_ANSWERS.get(a['status'], a['status']))}</td>"
        f"<td>{html.escape(a['words'])}</td></tr>"
        for a in answers
        if a["status"] not in ("right", OPEN, MISSING)
    )
    table = f"<table>{heads('exercise', 'answer', 'comment')}{cells}</table>" if cells else ""
    return f"<h2>Reading exercises{points}</h2><p>{len(answers)} exercises: {html.escape(told)}.</p>{table}"


def _card(mark: Mapping[str, Any]) -> str:
    remarks = rows(*mark["remarks"])
    if mark["report"]:
        shown = Report.from_dict(mark["report"])._repr_html_()
        return shown + (f'<div style="padding-left:1rem"><em>{remarks}</em></div>' if remarks else "")
    words = rows(*mark["words"].split("\n"))
    return card(
        _COLOURS.get(mark["state"], Theme.WRONG), f"{mark['puzzle']}: {_state(mark)}", words + remarks
    )
