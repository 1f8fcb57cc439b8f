"""What is solved, kept across sessions in the user's state directory.

`record` is called by every check, so it never raises and never waits long; `load` reads the lot. The file
is JSON, replaced as a whole; writers take a lock, and what one has written the next one keeps. It is the
learner's own file, who may write into it what they like: a mirror, and no marks.

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

SCHEMA = 2  # 1 was {"puzzles": {"outer_add": "solved"}}; it is read, and replaced when something is recorded
MOST_BYTES = 131_072  # of a progress file; an exercise takes about 150
MOST_TRIES = 10**6
LOCK_TIMEOUT_S = 1.0

SOLVED, TRIED, OPEN = "solved", "tried", "open"
PASS = "pass"

_FORMS = {  # of what an entry says in words
    "state": re.compile(f"{SOLVED}|{TRIED}|{OPEN}"),
    "last": re.compile(r"[a-z ]{0,40}"),
    "first_solved": re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)?", re.ASCII),
    "attempt": re.compile(r"[0-9a-f]{0,64}"),
}


@dataclass(frozen=True)
class Entry:
    """What is kept of one puzzle or reading exercise.

    state: ``"solved"``, ``"tried"``, or ``"open"`` where it was checked with nothing of the learner's in it.
    tries: different kernels, or answers, up to the first that was right; 0 where an older version of the
        course counted none. Nothing is counted once it is solved.
    last: ``"pass"``, or the kind of the newest verdict; ``""`` where that was not kept.
    first_solved: the moment, in UTC, such as ``"2026-11-22T08:45:50Z"``; ``""`` where it is not known.
    attempt: a digest of what was tried last.
    """

    state: str
    tries: int = 0
    last: str = ""
    first_solved: str = ""
    attempt: str = ""


class Damaged(ValueError):
    """A progress file holds something else than progress."""


def record(name: str, solved: bool, kind: str = "", attempt: str = "") -> str | None:
    """Note a try at the puzzle `name`, and whether it was right; once solved, it stays solved.

    kind: of the verdict, where it was not right; ``"open"`` where nothing was tried yet.
    attempt: what was tried, as text; the same again is no other try.

    Returns None, or one line to show where the file could not be used. Raises nothing, and gives up after
    LOCK_TIMEOUT_S where another process holds the lock.
    """
    try:
        digest = hashlib.sha256(attempt.encode()).hexdigest()[:16] if attempt else ""
        return _record(name, PASS if solved else kind, digest)
    except Exception as error:  # whatever it is, a check goes on
        return f"progress not kept: {_reason(error)}"


def load() -> tuple[dict[str, str], str | None]:
    """The state, "solved", "tried" or "open", of each puzzle by name; and a line where it could not be read.

    Changes nothing and raises nothing.
    """
    found, note = entries()
    return {name: entry.state for name, entry in found.items()}, note


def entries() -> tuple[dict[str, Entry], str | None]:
    """As `load`, with all that is kept of each."""
    try:
        return _load(_file()), None
    except Damaged as error:
        return {}, f"progress file damaged, the next check starts a new one: {error}"
    except Exception as error:
        return {}, f"progress not read: {_reason(error)}"


def read(path: Path) -> dict[str, Entry]:
    """What a progress file holds, whoever wrote it: entries by name, each of a sound form.

    Raises Damaged where it holds something else, OSError, and RuntimeError for a newer course's file.
    """
    with open(path, "rb") as file:
        return parse(file.read(MOST_BYTES + 1), str(path))


def parse(text: bytes, name: str) -> dict[str, Entry]:
    """The same of a file's bytes; ``name`` is what errors call it."""
    if len(text) > MOST_BYTES:  # so deep a nesting could overflow the stack of json's parser
        raise Damaged(name)
    try:
        data = json.loads(text)
        schema, puzzles = data["schema"], data["puzzles"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(name) from None
    if isinstance(schema, int) and schema > SCHEMA:
        raise RuntimeError(f"{name} is of a newer version of the course (schema {schema})")
    if schema == 1 and isinstance(puzzles, dict):
        puzzles = {name: {"state": state} for name, state in puzzles.items()}
    elif schema != SCHEMA or not isinstance(puzzles, dict):
        raise Damaged(name)
    try:
        return {name: _entry(told) for name, told in puzzles.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Damaged(name) from None


def _entry(told: Mapping[str, object]) -> Entry:
    """An entry of a file; keys that it does not know are left alone."""
    tries = told.get("tries", 0)
    if type(tries) is not int or not 0 <= tries <= MOST_TRIES:
        raise ValueError(tries)
    words = {key: told[key] if key == "state" else told.get(key, "") for key in _FORMS}
    for key, value in words.items():
        if not (isinstance(value, str) and _FORMS[key].fullmatch(value)):
            raise ValueError(value)
    return Entry(tries=tries, **{key: str(value) for key, value in words.items()})


def _file() -> Path:
    """The progress file: in $PUZZLES_STATE_DIR if that is set, else in the user's state directory."""
    override = os.environ.get("PUZZLES_STATE_DIR")
    return (Path(override) if override else user_state_path("triton-bit-by-bit")) / "progress.json"


def _record(name: str, kind: str, attempt: str) -> str | None:
    path = _file()
    try:
        known = _load(path).get(name)
        if known and _next(known, kind, attempt) == known:
            return None
    except Damaged:
        pass  # mended below, under the lock
    path.parent.mkdir(parents=True, exist_ok=True)
    note = None
    with _lock(path.with_suffix(".lock")):
        try:
            kept = _load(path)
        except Damaged:
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            kept, note = {}, f"progress file was damaged: set aside as {aside}, starting a new one"
        entry = _next(kept.get(name, Entry(OPEN)), kind, attempt)
        if entry != kept.get(name):
            _save(path, kept | {name: entry})
    return note


def _next(entry: Entry, kind: str, attempt: str) -> Entry:
    """An entry after one more try."""
    if entry.state == SOLVED or kind == OPEN:
        return entry
    another = not attempt or attempt != entry.attempt
    tries = min(entry.tries + another, MOST_TRIES)
    if kind == PASS:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return Entry(SOLVED, tries, PASS, now, attempt)
    return Entry(TRIED, tries, kind, "", attempt)


def _load(path: Path) -> dict[str, Entry]:
    """Raises what `read` raises, but where there is no file yet."""
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
    """Hold an exclusive lock on `path`. Raises TimeoutError after LOCK_TIMEOUT_S."""
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
