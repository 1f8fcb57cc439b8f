"""Read a platform's table of students and the teachers' comments, and give students pseudonyms."""

import csv
import difflib
import hashlib
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading.rules import read_time

COLUMN = "Triton puzzles"  # what the points are called in a platform's table
OWN = "own"  # the platform of a table that the teacher wrote
_MOST_TABLE = 20 << 20  # bytes
_ALIASES = {
    "name": ("full name", "name", "student", "student name", "display name"),
    "first": ("first name", "firstname", "given name"),
    "last": ("last name", "surname", "family name"),
    "number": ("id number", "student id", "sid", "orgdefinedid", "org defined id", "sis user id"),
    "login": ("username", "sis login id", "login", "user name"),
    "email": ("email address", "email", "e-mail", "e-mail address"),
    "platform": ("identifier", "id", "submission id"),
    "handed_in": ("last modified (submission)", "submission time", "handed in", "submitted at"),
}
# A platform by the columns that only its tables have; which of them go into the upload, and how it names
# the points.
_PLATFORMS = {
    "moodle": (("identifier", "grade", "last modified (grade)"), ()),
    "canvas": (("student", "id", "section"), ("student", "id", "sis user id", "sis login id", "section")),
    "brightspace": (("orgdefinedid",), ("orgdefinedid", "username")),
    "gradescope": (("sid", "email"), ("first name", "last name", "name", "sid", "email", "sections")),
    "blackboard": (("username", "last name"), ("last name", "first name", "username", "student id")),
    OWN: (("student", "handed in"), ("student",)),
}
_NUMBERED = re.compile(r"(.+)_(\d+)")  # a name with the platform's own number, as in Moodle


def read_table(path: Path, option: str) -> tuple[list[str], list[list[str]]]:
    """Read a CSV or TSV file: its header, and its rows, each with as many cells as the header.

    It is UTF-8 or, with a byte-order mark, UTF-16 as Blackboard exports it.
    Raise ValueError for any other encoding.
    """
    data = path.read_bytes()
    if len(data) > _MOST_TABLE:
        raise ValueError(f"{option} {path}: {len(data) >> 20} MB; at most {_MOST_TABLE >> 20} MB are read")
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{option} {path}: not UTF-8; save it as CSV UTF-8") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if any(row)]
    except (csv.Error, ValueError):
        raise ValueError(f"{option} {path}: not a CSV table with a line of column names") from None
    wide = len(header)
    return [cell.strip() for cell in header], [(row + [""] * wide)[:wide] for row in rows]


@dataclass(frozen=True)
class Person:
    """One row of a platform's table. ``row`` has all of its columns."""

    name: str
    number: str
    login: str
    email: str
    platform: str
    handed_in: datetime | None
    row: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.number or self.login or self.platform


@dataclass
class Roster:
    """A platform's own table: who is in the class, and which columns the platform expects in an upload."""

    platform: str = ""
    header: list[str] = field(default_factory=list)
    people: list[Person] = field(default_factory=list)
    _by: dict[str, list[Person]] = field(default_factory=dict)
    _by_platform: dict[str, list[Person]] = field(default_factory=dict)

    def find(self, student: str) -> Person | None:
        """Return the person that a submission's name means: by id, login, e-mail or name.

        Returns None if it means nobody, or more than one person. A number at the end of the name, as in
        Moodle's ``Ada Lovelace_12``, is the platform's own and is ignored.
        """
        match = _NUMBERED.fullmatch(student)
        tries = [self._by.get(_plain(student), [])]
        if match:
            tries = [self._by_platform.get(match[2], []), *tries, self._by.get(_plain(match[1]), [])]
        return next((found[0] for found in tries if len(found) == 1), None)


def read_roster(path: Path) -> Roster:
    """Read the table that a platform exports. Raise ValueError if its form is unknown."""
    header, rows = read_table(path, "--columns")
    names = [cell.casefold() for cell in header]
    platform = next((p for p, (only, _) in _PLATFORMS.items() if set(only) <= set(names)), "")
    if not platform:
        raise ValueError(
            f"--columns {path}: this is not a table that Moodle, Canvas, Blackboard, Brightspace or "
            f"Gradescope exports; its columns are {', '.join(header)[:200]}. A table of your own has the "
            "columns student and handed in"
        )
    roster = Roster(platform, header)
    for number, row in enumerate(rows, start=2):
        cells = dict(zip(names, (cell.strip() for cell in row), strict=True))
        told = {k: next((cells[a] for a in some if cells.get(a)), "") for k, some in _ALIASES.items()}
        whole = told["name"] or f"{told['first']} {told['last']}".strip()
        ids = {key: told[key].removeprefix("#") for key in ("number", "login", "email")}
        if whole == "Points Possible" or not (whole or any(ids.values())):
            continue  # Canvas has a row of maxima
        time = read_time(told["handed_in"])
        if platform == OWN and told["handed_in"] and not time:
            raise ValueError(
                f"--columns {path}, row {number}: {told['handed_in']!r} isn't a time like 2026-11-30 18:00"
            )
        person = Person(whole, **ids, platform=told["platform"], handed_in=time, row=tuple(row))
        roster.people.append(person)
        around = " ".join(reversed(whole.split(", ")))
        keys = {whole, around, f"{told['last']} {told['first']}", *ids.values()}
        if platform == "canvas":  # which squeezes names: lovelaceada
            keys |= {re.sub(r"[\W\d_]", "", whole)}
        for key in {_plain(key) for key in keys} - {""}:
            roster._by.setdefault(key, []).append(person)
        if digits := re.sub(r"\D", "", told["platform"]):
            roster._by_platform.setdefault(digits, []).append(person)
    if not roster.people:
        raise ValueError(f"--columns {path}: there is no student in it")
    return roster


def _plain(name: str) -> str:
    """A name as it is compared."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def upload(
    roster: Roster,
    points: Sequence[tuple[Person, float | str, str]],
    column: str = COLUMN,
) -> tuple[list[str], list[list[object]]]:
    """Return the table to upload: its header, and a row per student with points.

    Each of ``points`` is a person with points, "" if they aren't known, and a comment. A student
    who handed in nothing has no row, so that the student's mark doesn't change.
    """
    names = [cell.casefold() for cell in roster.header]
    kept = [names.index(name) for name in _PLATFORMS[roster.platform][1] if name in names]
    if roster.platform == "moodle":  # takes its own worksheet alone, filled in
        rows = []
        for person, number, comment in points:
            row: list[object] = list(person.row)
            row[names.index("grade")] = number
            if "feedback comments" in names and comment:
                row[names.index("feedback comments")] = comment
            rows.append(row)
        return roster.header, rows
    header = [roster.header[n] for n in kept]
    if roster.platform == "brightspace" and "Points Grade" not in column:
        column = f"{column} Points Grade"
    end = ["#"] if roster.platform == "brightspace" else []
    rows = [[*(person.row[n] for n in kept), number, *end] for person, number, _ in points]
    return [*header, column, *(["End-of-Line Indicator"] if end else [])], rows


# ---- comments


def read_comments(
    path: Path, real: Mapping[str, str], roster: Roster | None
) -> dict[str, list[tuple[str, str]]]:
    """Read comments from a CSV file with the columns student, comment and, if wanted, puzzle.

    Returns (puzzle or "", comment) by student. `meant` says how a student may be named. Raise ValueError for
    a student or puzzle that is not there.
    """
    header, rows = read_table(path, "--comments")
    names = [cell.casefold() for cell in header]
    if missing := [name for name in ("student", "comment") if name not in names]:
        raise ValueError(f"--comments {path}: no column {missing[0]!r}; it has {', '.join(header)[:200]}")
    puzzles = {puzzle.name for chapter in CHAPTERS for puzzle in chapter.puzzles}
    found: dict[str, list[tuple[str, str]]] = {}
    for number, row in enumerate(rows, start=2):
        cells = dict(zip(names, (cell.strip() for cell in row), strict=True))
        who, puzzle = cells["student"], cells.get("puzzle", "")
        try:
            one, *others = meant(who, real, roster)
        except ValueError as error:
            raise ValueError(f"--comments {path}, row {number}: {error}") from None
        if others:
            every = ", ".join([one, *others])
            raise ValueError(f"--comments {path}, row {number}: {who!r} may be any of {every}")
        if puzzle and puzzle not in puzzles:
            raise ValueError(f"--comments {path}, row {number}: there is no puzzle {puzzle!r}")
        if cells["comment"]:
            found.setdefault(one, []).append((puzzle, cells["comment"]))
    return found


def meant(who: str, real: Mapping[str, str], roster: Roster | None) -> list[str]:
    """Return the students that a teacher means, as keys of ``real``. Raise ValueError if there are none.

    real: the name under which each student handed in, by the name in the results. The platform's number at
    the end of the name may be left out. With a roster, anything that identifies a person there will do.
    """
    person = roster.find(who) if roster else None
    numbered = {one: match for one, own in real.items() if (match := _NUMBERED.fullmatch(own))}
    found = (
        [one for one, own in real.items() if who in (one, own)]
        or [one for one, own in real.items() if roster and person and roster.find(own) is person]
        or [one for one, match in numbered.items() if _plain(match[1]) == _plain(who)]
    )
    if not found:
        known = list(dict.fromkeys([*real, *real.values()]))
        like = difflib.get_close_matches(who, known, n=3, cutoff=0.5)
        similar = f"; similar names: {', '.join(like)}" if like else ""
        raise ValueError(f"no submission of {who!r}{similar}")
    return found


# ---- pseudonyms


def pseudonym(student: str, salt: str) -> str:
    """Return a name that doesn't identify the student. It is always the same for one student and salt."""
    return f"student-{hashlib.sha256(f'{salt}/{student}'.encode('utf-8', 'replace')).hexdigest()[:10]}"


def is_pseudonym(name: str) -> bool:
    return bool(re.fullmatch(r"student-[0-9a-f]{10}", name))


def details(roster: Roster | None, student: str) -> Mapping[str, Any]:
    """Return id, e-mail and name of a student, empty if the roster doesn't have the student."""
    person = roster.find(student) if roster else None
    return {"id": person.id, "e-mail": person.email, "name": person.name} if person else {}
