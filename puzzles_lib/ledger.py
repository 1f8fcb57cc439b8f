"""What is solved, kept across sessions in the user's state directory.

`record` is called by every check, so it never raises and never waits long; `load` reads the lot. The file
is JSON, replaced as a whole; writers take a lock, and what one has written the next one keeps.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_state_path

SCHEMA = 1
MOST_BYTES = 16_384  # of a progress file; a whole course takes about 1000
LOCK_TIMEOUT_S = 1.0

SOLVED, TRIED, OPEN = "solved", "tried", "open"


class Damaged(ValueError):
    """The progress file holds something else than progress."""


def record(name: str, solved: bool) -> str | None:
    """Note that the puzzle `name` was tried or solved; once solved, it stays solved.

    Returns None, or one line to show where the file could not be used. Raises nothing, and gives up after
    LOCK_TIMEOUT_S where another process holds the lock.
    """
    try:
        return _record(name, SOLVED if solved else TRIED)
    except Exception as error:  # whatever it is, a check goes on
        return f"progress not kept: {_reason(error)}"


def load() -> tuple[dict[str, str], str | None]:
    """The state, "solved" or "tried", of each puzzle by name; and a line where the file could not be read.

    Changes nothing and raises nothing.
    """
    try:
        return _load(_file()), None
    except Damaged as error:
        return {}, f"progress file damaged, the next check starts a new one: {error}"
    except Exception as error:
        return {}, f"progress not read: {_reason(error)}"


def _file() -> Path:
    """The progress file: in $PUZZLES_STATE_DIR if that is set, else in the user's state directory."""
    override = os.environ.get("PUZZLES_STATE_DIR")
    return (Path(override) if override else user_state_path("triton-bit-by-bit")) / "progress.json"


def _record(name: str, state: str) -> str | None:
    path = _file()
    try:
        if _load(path).get(name) in (state, SOLVED):
            return None
    except Damaged:
        pass  # mended below, under the lock
    path.parent.mkdir(parents=True, exist_ok=True)
    note = None
    with _lock(path.with_suffix(".lock")):
        try:
            states = _load(path)
        except Damaged:
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            states, note = {}, f"progress file was damaged: set aside as {aside}, starting a new one"
        if states.get(name) != SOLVED:
            _save(path, states | {name: state})
    return note


def _load(path: Path) -> dict[str, str]:
    """State by puzzle name. Raises Damaged, OSError, or RuntimeError for a newer course's file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    if len(text) > MOST_BYTES:  # so deep a nesting could overflow the stack of json's parser
        raise Damaged(str(path))
    try:
        data = json.loads(text)
        schema, states = data["schema"], data["puzzles"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(str(path)) from None
    if isinstance(schema, int) and schema > SCHEMA:
        raise RuntimeError(f"{path} is of a newer version of the course (schema {schema})")
    valid = isinstance(states, dict) and all(state in (SOLVED, TRIED) for state in states.values())
    if schema != SCHEMA or not valid:
        raise Damaged(str(path))
    return states


def _save(path: Path, states: Mapping[str, str]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".progress-", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "puzzles": dict(states)}, file, indent=1, sort_keys=True)
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
