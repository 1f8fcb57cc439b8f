"""Keep across sessions what is solved, in a file in the user's state directory.

Every check calls `record`, so it never raises and never waits long; `load` reads everything. The file is
JSON and is replaced as a whole. Writers take a lock, so none overwrites what another has written. Learners
can edit their own file, so it shows their progress but is not a grade.

    {"schema": 2, "puzzles": {"outer_add": {"state": "solved", "tries": 3, "last": "pass",
     "first_solved": "2026-11-22T08:45:50Z", "attempt": "90ad80fcd25de1cf"}}}
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

SCHEMA = 2  # 1 was {"puzzles": {"outer_add": "solved"}}: it can be read, and is replaced at the next record
MOST_BYTES = 131_072  # the largest progress file; an exercise takes about 150 bytes
MOST_TRIES = 10**6
LOCK_TIMEOUT_S = 1.0

SOLVED, TRIED, OPEN = "solved", "tried", "open"
PASS = "pass"

_FORMS = {  # the allowed form of each text in an entry
    "state": re.compile(f"{SOLVED}|{TRIED}|{OPEN}"),
    "last": re.compile(r"[a-z ]{0,40}"),
    "first_solved": re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)?", re.ASCII),
    "attempt": re.compile(r"[0-9a-f]{0,64}"),
}


@dataclass(frozen=True)
class Entry:
    """The record of one puzzle or reading exercise.

    state: ``"solved"``, ``"tried"``, or ``"open"`` if it was checked without any lines of the learner.
    tries: the number of different kernels or answers up to the first correct one; 0 if an older version of
        the course did not count. Tries after the first correct one are not counted.
    last: ``"pass"``, or the kind of the newest verdict; ``""`` if it was not kept.
    first_solved: the time in UTC, such as ``"2026-11-22T08:45:50Z"``; ``""`` if it is not known.
    attempt: a digest of the last try; once solved, of the newest correct one.
    """

    state: str
    tries: int = 0
    last: str = ""
    first_solved: str = ""
    attempt: str = ""


class Damaged(ValueError):
    """A progress file does not contain valid progress."""


def record(name: str, solved: bool, kind: str = "", attempt: str = "") -> str | None:
    """Record a try at the puzzle `name`, and whether it was correct; once solved, it stays solved.

    kind: the kind of the verdict if it was not correct; ``"open"`` if nothing was tried yet.
    attempt: the try as text; the same text again does not count as another try.

    Returns None, or one line to show if the file could not be used. Never raises, and gives up after
    LOCK_TIMEOUT_S if another process holds the lock.
    """
    try:
        return _record(name, PASS if solved else kind, _digest(attempt))
    except Exception as error:  # a check must go on, whatever happens
        return f"your progress could not be saved: {_reason(error)}"


def solved_by(name: str, attempt: str) -> bool:
    """Return whether this text is the newest that solved a puzzle. Never raises."""
    entry = entries()[0].get(name)
    return bool(entry and attempt and entry.state == SOLVED and entry.attempt == _digest(attempt))


def _digest(attempt: str) -> str:
    return hashlib.sha256(attempt.encode()).hexdigest()[:16] if attempt else ""


def load() -> tuple[dict[str, str], str | None]:
    """Return the state of each puzzle by name, and a line to show if the file could not be read, else None.

    A state is ``"solved"``, ``"tried"`` or ``"open"``. Never raises.
    """
    found, note = entries()
    return {name: entry.state for name, entry in found.items()}, note


def entries() -> tuple[dict[str, Entry], str | None]:
    """Return the same as `load`, but with the whole entry of each puzzle."""
    try:
        return _load(_file()), None
    except Damaged as error:
        return {}, f"your progress file is damaged; the next check starts a new one: {error}"
    except Exception as error:
        return {}, f"your progress could not be read: {_reason(error)}"


def read(path: Path) -> dict[str, Entry]:
    """Return the valid entries of any progress file, by name.

    Raises Damaged if the file contains anything else, OSError if it cannot be read, and RuntimeError if a
    newer version of the course wrote it.
    """
    with open(path, "rb") as file:
        return parse(file.read(MOST_BYTES + 1), str(path))


def parse(text: bytes, name: str) -> dict[str, Entry]:
    """Return the entries of a file's bytes, as `read` does. name: how errors call the file."""
    if len(text) > MOST_BYTES:  # deeply nested text could overflow the stack of the JSON parser
        raise Damaged(name)
    try:
        data = json.loads(text)
        schema, puzzles = data["schema"], data["puzzles"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(name) from None
    if isinstance(schema, int) and schema > SCHEMA:
        raise RuntimeError(f"{name} was written by a newer version of the course (schema {schema})")
    if schema == 1 and isinstance(puzzles, dict):
        puzzles = {name: {"state": state} for name, state in puzzles.items()}
    elif schema != SCHEMA or not isinstance(puzzles, dict):
        raise Damaged(name)
    try:
        return {name: _entry(told) for name, told in puzzles.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Damaged(name) from None


def _entry(told: Mapping[str, object]) -> Entry:
    """Return an entry of a file; unknown keys are ignored."""
    tries = told.get("tries", 0)
    if type(tries) is not int or not 0 <= tries <= MOST_TRIES:
        raise ValueError(tries)
    words = {key: told[key] if key == "state" else told.get(key, "") for key in _FORMS}
    for key, value in words.items():
        if not (isinstance(value, str) and _FORMS[key].fullmatch(value)):
            raise ValueError(value)
    return Entry(tries=tries, **{key: str(value) for key, value in words.items()})


def _file() -> Path:
    """Return the path of the progress file: in $PUZZLES_STATE_DIR, or else in the user's state directory."""
    override = os.environ.get("PUZZLES_STATE_DIR")
    return (Path(override) if override else user_state_path("triton-bit-by-bit")) / "progress.json"


def _record(name: str, kind: str, attempt: str) -> str | None:
    path = _file()
    try:
        known = _load(path).get(name)
        if known and _next(known, kind, attempt) == known:
            return None
    except Damaged:
        pass  # it is replaced below, under the lock
    path.parent.mkdir(parents=True, exist_ok=True)
    note = None
    with _lock(path.with_suffix(".lock")):
        try:
            kept = _load(path)
        except Damaged:
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            kept, note = {}, f"your progress file was damaged; it is now {aside}, and a new one is started"
        entry = _next(kept.get(name, Entry(OPEN)), kind, attempt)
        if entry != kept.get(name):
            _save(path, kept | {name: entry})
    return note


def _next(entry: Entry, kind: str, attempt: str) -> Entry:
    """Return the entry after one more try."""
    if entry.state == SOLVED and kind == PASS and attempt:
        return dataclasses.replace(entry, attempt=attempt)  # a solution that was tidied counts, too
    if entry.state == SOLVED or kind == OPEN:
        return entry
    another = not attempt or attempt != entry.attempt
    tries = min(entry.tries + another, MOST_TRIES)
    if kind == PASS:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return Entry(SOLVED, tries, PASS, now, attempt)
    return Entry(TRIED, tries, kind, "", attempt)


def _load(path: Path) -> dict[str, Entry]:
    """Return the entries of a file; none if it does not exist. Raise what `read` raises otherwise."""
    try:
        return read(path)
    except FileNotFoundError:
        return {}


def _save(path: Path, kept: Mapping[str, Entry]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".progress-", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            puzzles = {name: dataclasses.asdict(entry) for name, entry in kept.items()}
            json.dump({"schema": SCHEMA, "puzzles": puzzles}, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`. Raise TimeoutError after LOCK_TIMEOUT_S."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with open(path, "a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process holds {path}") from None
                time.sleep(0.02)
        yield


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}"
    return " ".join(str(error).split()) or type(error).__name__
