"""Grade the one submission of a Gradescope container: ``python -m puzzles_lib.grading.autograder ROOT``.

ROOT is ``/autograder``: the submission is in ``submission/``, what `make gradescope` chose in
``source/config.json``, and the result goes to ``results/results.json``. If it can't be graded, there is no
result, and Gradescope reports that the autograder failed. It never becomes a zero.
"""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from puzzles_lib.grading import sandbox
from puzzles_lib.grading.grade import Job, grade
from puzzles_lib.grading.results import gradescope, write
from puzzles_lib.grading.rules import Late, Rules, lateness, read_late, read_points, scored
from puzzles_lib.grading.submissions import of_one

NO_SANDBOX = (
    "bubblewrap couldn't be used in this container ({reason}), so kernels were only vetted. The container "
    "itself is the only wall around them."
)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 1:
        sys.stderr.write("usage: python -m puzzles_lib.grading.autograder ROOT, where ROOT is /autograder\n")
        return 2
    root = Path(given[0])
    try:
        result = graded(root)
        (root / "results").mkdir(exist_ok=True)
        write(root / "results" / "results.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    except (OSError, ValueError, sandbox.Unavailable, sandbox.NotStarted) as error:
        sys.stderr.write(f"error: not graded: {error}\n")
        return 1
    return 0


def graded(root: Path) -> dict[str, Any]:
    """Return the result for Gradescope. Raise ValueError or OSError if a file is missing or malformed."""
    config = _json(root / "source" / "config.json")
    try:
        chapters, salt = tuple(map(str, config["chapters"])), str(config["salt"])
        late = read_late(config["late"]) if config["late"] else Late(0)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{root / 'source' / 'config.json'}: malformed ({error!r})") from None
    points = root / "source" / "points.toml"
    metadata = (
        _json(root / "submission_metadata.json") if (root / "submission_metadata.json").exists() else {}
    )
    due, created = _times(metadata)
    rules = Rules(read_points(points) if points.exists() else None, due, late)
    reason = ""
    try:
        sandbox.find()
    except sandbox.Unavailable as error:
        reason = str(error)
    submission = of_one(root / "submission", _who(metadata))
    files, remarks = submission.read()
    job = Job(submission.student, files, tuple(remarks), "gradescope", salt, chapters, sandboxed=not reason)
    found = grade(dataclasses.replace(job, unread=submission.unread))
    result = gradescope(scored(found, rules, lateness(rules, created)) if rules else found)
    if reason:
        words = NO_SANDBOX.format(reason=reason)
        note = {"name": "sandbox", "output": words, "output_format": "text", "visibility": "hidden"}
        result["tests"].append(note)
    return result


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise ValueError(f"{path}: not JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a JSON object")
    return found


def _who(metadata: Mapping[str, Any]) -> str:
    users = metadata.get("users")
    names = [str(user.get("name", "")) for user in users or () if isinstance(user, dict)]
    return ", ".join(filter(None, names)) or "submission"


def _times(metadata: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Return when the submission is due and when it was created, on one clock. An extension counts."""
    assignments = [
        metadata.get("assignment"),
        *(user.get("assignment") for user in _dicts(metadata, "users")),
    ]
    dates = [_time(one.get("due_date")) for one in assignments if isinstance(one, dict)]
    due = max((date for date in dates if date), default=None)
    created = _time(metadata.get("created_at"))
    if due is None or created is None:
        return None, None
    return due.replace(tzinfo=None), created.astimezone(due.tzinfo).replace(tzinfo=None)


def _dicts(metadata: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = metadata.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _time(text: object) -> datetime | None:
    """Return a time with its zone, None if there is none."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else None


if __name__ == "__main__":
    sys.exit(main())
