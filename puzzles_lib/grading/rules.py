"""Points, deadlines and attempts: what a class counts, computed from grades that don't change with it."""

import contextlib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading.grade import SOLVED, STATES, UNREAD, WRONG

_KEYS = ("default", "answers", "total", "partial", "attempt", "chapters", "puzzles")
_LATE = re.compile(r"(\d+(?:\.\d+)?)\s*%(?:\s*/\s*(day|hour))?(?:\s*,\s*at most\s+(\d+(?:\.\d+)?)\s*%)?")
_STEPS = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
_DATES = ("%A, %d %B %Y, %I:%M %p", "%A, %d %B %Y, %H:%M", "%d %B %Y, %I:%M %p", "%d/%m/%Y %H:%M")
_ORDER = (SOLVED, UNREAD, *(s for s in STATES if s not in (SOLVED, UNREAD)))  # best first


@dataclass(frozen=True)
class Points:
    """How many points a puzzle is worth.

    each: by puzzle; the others are worth ``default``. answers: for each correct answer to a reading exercise.
    total: what all points are scaled to, or None. partial: the largest share of its points that a wrong
    kernel can get; it gets the share of its cases that pass. best: whether each puzzle's best attempt counts,
    instead of the last submission.
    """

    default: float = 1
    each: Mapping[str, float] = field(default_factory=dict)
    answers: float = 0
    total: float | None = None
    partial: float = 0
    best: bool = False

    def of(self, puzzle: str) -> float:
        return self.each.get(puzzle, self.default)


@dataclass(frozen=True)
class Late:
    """The percentage of the points that lateness costs: once, or per day or hour begun, up to ``most``."""

    percent: float
    step: timedelta | None = None
    most: float = 100

    def taken(self, by: timedelta | None) -> float:
        """Return the percentage for a submission that is late by ``by``; None means by an unknown time."""
        steps = math.ceil(by / self.step) if self.step and by is not None else 1
        return min(self.percent * steps, self.most)


@dataclass(frozen=True)
class Rules:
    """Everything that a class counts differently from one point per solved puzzle."""

    points: Points | None = None
    deadline: datetime | None = None
    late: Late = Late(0)

    def __bool__(self) -> bool:
        return self.points is not None or self.deadline is not None


# ---- reading them


def read_points(path: Path) -> Points:
    """Read a TOML file of points. Raise ValueError, naming the key, its value and what is allowed."""
    try:
        told = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--points {path}: not a TOML file: {error}") from None
    known = {puzzle.name: chapter.number for chapter in CHAPTERS for puzzle in chapter.puzzles}
    if unknown := sorted(set(told) - set(_KEYS)):
        raise ValueError(f"--points {path}: unknown key {unknown[0]!r}; the keys are {', '.join(_KEYS)}")

    def number(key: str, value: object, most: float = 1e6) -> float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        if not fits:  # also for NaN
            raise ValueError(
                f"--points {path}: {key} must be a number from 0 to {most:.0f}, but is {value!r}"
            )
        return float(value)  # type: ignore[arg-type]

    def table(key: str, allowed: Iterable[str]) -> dict[str, float]:
        given = told.get(key, {})
        if not isinstance(given, dict):
            raise ValueError(f"--points {path}: {key} must be a table, [{key}], but is {given!r}")
        if wrong := sorted(set(given) - set(allowed)):
            some = ", ".join(sorted(allowed)[:4])
            raise ValueError(f"--points {path}: there is no {wrong[0]!r} in the course's {key} ({some}, ...)")
        return {name: number(f"{key}.{name}", value) for name, value in given.items()}

    chapters = table("chapters", [chapter.number for chapter in CHAPTERS])
    each = {puzzle: chapters[chapter] for puzzle, chapter in known.items() if chapter in chapters}
    attempt = told.get("attempt", "last")
    if attempt not in ("best", "last"):
        raise ValueError(f'--points {path}: attempt must be "best" or "last", but is {attempt!r}')
    return Points(
        default=number("default", told.get("default", 1)),
        each=each | table("puzzles", known),
        answers=number("answers", told.get("answers", 0)),
        total=number("total", told["total"]) if "total" in told else None,
        partial=number("partial", told.get("partial", 0), most=1),
        best=attempt == "best",
    )


def read_deadline(text: str) -> datetime:
    """Read ``2026-11-30`` (its last second) or ``2026-11-30 18:00``. Raise ValueError for anything else."""
    text = text.strip()
    when = None
    if re.match(r"\d{4}-\d\d-\d\d(?:$|[ T])", text):
        with contextlib.suppress(ValueError):
            when = datetime.fromisoformat(text)
    if when is None or when.tzinfo:
        raise ValueError(
            f'--deadline {text}: write a date or a time as the platform shows it, "2026-11-30" or '
            '"2026-11-30 18:00", without a time zone'
        )
    return when.replace(hour=23, minute=59, second=59) if len(text) == len("2026-11-30") else when


def read_late(text: str) -> Late:
    """Read ``20%``, ``10%/day`` or ``10%/day, at most 50%``. Raise ValueError for anything else."""
    match = _LATE.fullmatch(text.strip())
    if not match or float(match[1]) > 100 or float(match[3] or 0) > 100:
        raise ValueError(f'--late {text}: write a rule such as "20%", "10%/day" or "2%/hour, at most 50%"')
    return Late(float(match[1]), _STEPS.get(match[2] or ""), float(match[3] or 100))


def read_time(text: str) -> datetime | None:
    """Return a platform's time as its wall clock shows it; None if the text is empty or of no known form."""
    text = re.sub(r"\s+", " ", text.strip())
    try:
        return datetime.fromisoformat(text.removesuffix(" UTC")).replace(tzinfo=None)
    except ValueError:
        pass
    for form in ("%Y-%m-%d %H:%M:%S %z", *_DATES):
        try:
            return datetime.strptime(text, form).replace(tzinfo=None)
        except ValueError:
            pass
    return None


# ---- applying them


def lateness(rules: Rules, handed_in: datetime | None, marked_late: bool = False) -> dict[str, Any]:
    """Return whether a submission is late, as JSON types.

        {"handed_in": "2026-12-01 09:30", "is_late": True, "taken": 20.0, "words": "late by 9 h 30 min: ..."}

    is_late is None if the time isn't known. taken: percent of the points. Canvas's LATE in a file's name
    counts even without a time, because Canvas then had a due date of its own.
    """
    told: dict[str, Any] = {"handed_in": "", "is_late": None, "taken": 0.0, "words": ""}
    if handed_in is not None:
        told["handed_in"] = f"{handed_in:%Y-%m-%d %H:%M}"
    if rules.deadline is None:
        return told
    by = handed_in - rules.deadline if handed_in is not None else None
    if by is None and not marked_late:
        return told | {"words": "the time of submission isn't known, so nothing is taken off for lateness"}
    if by is not None and by <= timedelta(0):
        return told | {"is_late": False}
    taken = rules.late.taken(by)
    how = (
        f"late by {_span(by)}"
        if by is not None
        else "Canvas marks the submission as late, but doesn't say by how much"
    )
    return told | {"is_late": True, "taken": taken, "words": f"{how}; {taken:g}% of the points are taken off"}


def _span(by: timedelta) -> str:
    minutes = max(1, math.ceil(by / timedelta(minutes=1)))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def scored(grade: Mapping[str, Any], rules: Rules, late: Mapping[str, Any]) -> dict[str, Any]:
    """Return a grade with the points that the rules give, and with ``"late"`` and ``"answer_points"``.

    The points of single puzzles and answers aren't rounded: whoever shows them rounds them.
    """
    points = rules.points or Points()
    kept = 1 - late["taken"] / 100
    worth = [points.of(mark["puzzle"]) for mark in grade["puzzles"]]
    asked = points.answers * len(grade["answers"])
    scale = points.total / (sum(worth) + asked) if points.total is not None and sum(worth) + asked else 1.0
    marks = []
    for mark, of in zip(grade["puzzles"], worth, strict=True):
        share = 1.0 if mark["state"] == SOLVED else points.partial * passed(mark)
        marks.append({**mark, "points": of * scale * share * kept, "of": of * scale})
    each = points.answers * scale * kept
    answers = [{**answer, "points": each * (answer["status"] == "right")} for answer in grade["answers"]]
    return {
        **grade,
        "puzzles": marks,
        "answers": answers,
        "of": rounded(math.fsum(worth) * scale + asked * scale),
        "answers_of": rounded(asked * scale),
        "late": dict(late),
        **_sums(marks, answers),
    }


def _sums(marks: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]) -> dict[str, float | int]:
    """Return the points of all puzzles and answers, and those of the answers. Only the sums are rounded."""
    given = math.fsum(answer["points"] for answer in answers)
    return {
        "points": rounded(math.fsum(mark["points"] for mark in marks) + given),
        "answer_points": rounded(given),
    }


def passed(mark: Mapping[str, Any]) -> float:
    """Return the share of its cases that a wrong kernel passes, below 1."""
    if mark["state"] != WRONG or not mark["report"]:
        return 0.0
    checks = [case["status"] == "pass" for case in mark["report"]["cases"]]
    checks += [not goal["verdict"] for goal in mark["report"].get("goals", ())]
    return min(sum(checks), len(checks) - 1) / len(checks) if checks else 0.0


def best(attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine grades of one student: each puzzle's and each answer's best counts; if equal, the last.

    Remarks of all attempts are kept. Points are added up anew, if the grades are `scored`.
    """
    *_, last = attempts
    if len(attempts) == 1:
        return dict(last)
    marks = [
        min(reversed(several), key=lambda mark: (-mark["points"], _ORDER.index(mark["state"])))
        for several in zip(*(grade["puzzles"] for grade in attempts), strict=True)
    ]
    answers = [
        max(reversed(several), key=lambda one: (one.get("points", 0), one["status"] == "right"))
        for several in zip(*(grade["answers"] for grade in attempts), strict=True)
    ]
    found = {
        **last,
        "key": "+".join(grade["key"][:16] for grade in attempts),
        "puzzles": marks,
        "answers": answers,
        "remarks": list(dict.fromkeys(remark for grade in attempts for remark in grade["remarks"])),
        "attempts": len(attempts),
    }
    if "late" not in last:
        return found | {"points": rounded(math.fsum(mark["points"] for mark in marks))}
    late = min((grade["late"] for grade in attempts), key=lambda late: late["taken"])
    return found | {"late": late, **_sums(marks, answers)}


def rounded(number: float) -> float | int:
    """Two decimals, and a whole number as one: 2, not 2.0."""
    short = round(number, 2)
    return int(short) if short == int(short) else short
