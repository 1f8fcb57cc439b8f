"""What is solved, kept across sessions in the user's state directory.

`record` is called by every check, so it never raises and never waits long; `progress()` shows the lot.
The file is JSON, replaced as a whole; writers take a lock, and what one has written the next one keeps.
"""

import fcntl
import html
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from platformdirs import user_state_path

from puzzles_lib.card import Theme

SCHEMA = 1
MOST_BYTES = 16_384  # of a progress file; a whole course takes about 1000
LOCK_TIMEOUT_S = 1.0

SOLVED, TRIED, OPEN = "solved", "tried", "open"
_MARKS = {  # beside the word, never instead of it
    SOLVED: ("●", Theme.OK),
    TRIED: ("◐", Theme.OPEN),
    OPEN: ("○", Theme.QUIET),
}


class Damaged(ValueError):
    """The progress file holds something else than progress."""


@dataclass(frozen=True)
class PuzzleProgress:
    number: str
    name: str
    state: str  # "solved", "tried" or "open"


@dataclass(frozen=True)
class ChapterProgress:
    number: str
    title: str
    puzzles: tuple[PuzzleProgress, ...]


@dataclass(frozen=True)
class Progress:
    """All puzzles in syllabus order; `note` is a line about a file that could not be read, or None."""

    chapters: tuple[ChapterProgress, ...]
    note: str | None = None

    def count(self, state: str) -> int:
        """How many puzzles are "solved", "tried" or "open"."""
        return sum(puzzle.state == state for chapter in self.chapters for puzzle in chapter.puzzles)

    @property
    def summary(self) -> str:
        solved, tried, left = (self.count(state) for state in (SOLVED, TRIED, OPEN))
        return f"{solved} of {solved + tried + left} puzzles solved, {tried} tried, {left} open"

    def __str__(self) -> str:
        lines = [self.summary] + ([self.note] if self.note else [])
        for chapter in self.chapters:
            lines.append(f"{chapter.number} {chapter.title}")
            lines += [f"   {p.state:<6}   {p.number:<3} {p.name}" for p in chapter.puzzles]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(_row(chapter, puzzle) for chapter in self.chapters for puzzle in chapter.puzzles)
        note = f"<div>{html.escape(self.note)}</div>" if self.note else ""
        return (
            '<div style="color:var(--jp-content-font-color1, inherit)">'
            f'<div role="status"><strong>{self.summary}</strong>{note}</div>'
            f'<table style="margin:0.3em 0">{rows}</table></div>'
        )


def _row(chapter: ChapterProgress, puzzle: PuzzleProgress) -> str:
    """A table row; that of a chapter's first puzzle names the chapter."""
    left = 'style="text-align:left;vertical-align:top"'
    head = ""
    if puzzle is chapter.puzzles[0]:
        title = html.escape(f"{chapter.number} {chapter.title}")
        head = f'<th scope="rowgroup" rowspan="{len(chapter.puzzles)}" {left}>{title}</th>'
    mark, colour = _MARKS[puzzle.state]
    state = f'<span aria-hidden="true" style="color:{colour}">{mark}</span> {puzzle.state}'
    cells = (state, html.escape(puzzle.number), html.escape(puzzle.name))
    return f"<tr>{head}{''.join(f'<td {left}>{cell}</td>' for cell in cells)}</tr>"


def record(name: str, solved: bool) -> str | None:
    """Note that the puzzle `name` was tried or solved; once solved, it stays solved.

    Returns None, or one line to show where the file could not be used. Raises nothing, and gives up after
    LOCK_TIMEOUT_S where another process holds the lock.
    """
    try:
        return _record(name, SOLVED if solved else TRIED)
    except Exception as error:  # whatever it is, a check goes on
        return f"progress not kept: {_reason(error)}"


def show() -> Progress:
    """All puzzles with their state. Changes nothing; a file that cannot be read is told in `note`."""
    from puzzles_lib.chapters import CHAPTERS

    states: Mapping[str, str] = {}
    note = None
    try:
        states = _load(_file())
    except Damaged as error:
        note = f"progress file damaged, the next check starts a new one: {error}"
    except Exception as error:
        note = f"progress not read: {_reason(error)}"
    chapters = []
    for chapter in CHAPTERS:
        puzzles = tuple(PuzzleProgress(p.number, p.name, states.get(p.name, OPEN)) for p in chapter.puzzles)
        puzzles += tuple(
            PuzzleProgress(q.id.partition("-")[2], "reading exercise", states.get(q.id, OPEN))
            for q in chapter.questions
        )
        if puzzles:
            chapters.append(ChapterProgress(chapter.number, chapter.title, puzzles))
    return Progress(tuple(chapters), note)


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


class _CallableModule(ModuleType):
    def __call__(self) -> Progress:
        """All puzzles with their state: solved, tried, open."""
        return show()


# The public function has this module's name, and importing a submodule binds that name in the package to the
# module: whichever a caller gets, it is the same object, with `record`, and can be called.
progress = sys.modules[__name__]
progress.__class__ = _CallableModule
