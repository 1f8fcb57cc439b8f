"""The syllabus: a folder per chapter, found by its number.

    ch04_reductions/
        __init__.py    TITLE
        puzzles.py     its puzzles; PUZZLES are those that count, in order
        pictures.py    the pictures of its notebook
        questions.py   QUESTIONS: its reading exercises
        rungs.py       RUNGS: kernels that are raced instead of checked, and that count
        mistakes.py    MISTAKES: wrong kernels, as edits of the correct ones
        hints.md       the texts of `hint`

All but the first may be missing. Anything else that only one chapter needs is in its folder too. A chapter's
modules are imported when they are first needed.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from puzzles_lib.hints import Hint, Key, read_hints
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import OwnDoc, Puzzle
from puzzles_lib.question import Question


@dataclass(frozen=True)
class Chapter:
    """A chapter by the name of its folder, such as ``"ch04_reductions"``."""

    folder: str

    @property
    def number(self) -> str:
        """The chapter's number as text, such as ``"04"``."""
        return self.folder[2:4]

    @property
    def notebook(self) -> str:
        """The name of its notebook's file."""
        return f"{self.folder[2:]}.ipynb"

    @property
    def title(self) -> str:
        return self._module("").TITLE

    @property
    def puzzles(self) -> tuple[Puzzle, ...]:
        """The puzzles that `progress` counts, in order."""
        return getattr(self._part("puzzles"), "PUZZLES", ())

    @property
    def questions(self) -> tuple[Question, ...]:
        """The chapter's reading exercises, in order."""
        return getattr(self._part("questions"), "QUESTIONS", ())

    @property
    def rungs(self) -> tuple[tuple[str, str], ...]:
        """Kernels that are raced instead of checked: the number of each, and its name in `progress`."""
        return tuple(getattr(self._part("rungs"), "RUNGS", {}).values())

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Wrong kernels, as edits of the correct ones."""
        return getattr(self._part("mistakes"), "MISTAKES", ())

    @property
    def hints(self) -> dict[Key, tuple[Hint, ...]]:
        """The hints for the chapter's puzzles, by puzzle and kernel."""
        file = self.place / "hints.md"
        return read_hints(file.read_text("utf-8")) if file.exists() else {}

    @property
    def place(self) -> Path:
        """The chapter's folder."""
        return Path(next(iter(self._module("").__path__)))

    @property
    def pictures(self) -> ModuleType | None:
        """The module with the notebook's pictures."""
        return self._part("pictures")

    def _told(self) -> str:
        """Return the chapter's title, notebook, puzzles and parts, for `help`."""
        puzzles = "".join(f"\n    {puzzle.name.upper()} (puzzle {puzzle.number})" for puzzle in self.puzzles)
        return (
            f"Chapter {self.number}: {self.title}\n\nnotebook: {self.notebook}"
            + f"\npuzzles:{puzzles or ' none'}\nreading exercises: {len(self.questions)}"
        )

    def _part(self, name: str) -> ModuleType | None:
        return self._module(f".{name}") if name in _parts(str(self.place)) else None

    def _module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{__name__}.{self.folder}{name}")


Chapter.__doc__ = OwnDoc(Chapter.__doc__, Chapter._told)  # type: ignore[assignment]


@cache
def _parts(place: str) -> frozenset[str]:
    """Return the names of the modules in a folder, which is read once."""
    return frozenset(module.name for module in pkgutil.iter_modules([place]))


CHAPTERS = tuple(Chapter(module.name) for module in pkgutil.iter_modules(__path__))
"""All chapters, in order."""


@cache
def puzzles() -> tuple[Puzzle, ...]:
    """Return all puzzles that `progress` counts, in order."""
    return tuple(puzzle for chapter in CHAPTERS for puzzle in chapter.puzzles)


@cache
def questions() -> dict[str, Question]:
    """Return all reading exercises by id, in order."""
    return {question.id: question for chapter in CHAPTERS for question in chapter.questions}


@cache
def hints() -> dict[Key, tuple[Hint, ...]]:
    """Return all hints, by puzzle and kernel."""
    return {key: known for chapter in CHAPTERS for key, known in chapter.hints.items()}


def mistakes(puzzle: Puzzle) -> tuple[Mistake, ...]:
    """Return the wrong kernels of a puzzle, in order."""
    return tuple(each for chapter in CHAPTERS for each in chapter.mistakes if each.puzzle is puzzle)


def breaking(puzzle: Puzzle) -> Mistake | None:
    """Return the mistake in the kernel that learners have to repair (`Puzzle.broken_by`), or None."""
    return next((each for each in mistakes(puzzle) if each.name == puzzle.broken_by), None)


def cause(puzzle: Puzzle) -> Question | None:
    """Return the question about what is wrong with the kernel that learners repair, or None.

    It's the one with the puzzle's number in the puzzle's chapter.
    """
    here = next((chapter for chapter in CHAPTERS if puzzle in chapter.puzzles), None)
    return questions().get(f"ch{here.number}-q{puzzle.number}") if here and puzzle.broken_by else None


@cache
def named() -> dict[str, object]:
    """Return what `puzzles_lib` offers: chapters as ``ch04``, puzzles by their names in capitals."""
    offered: dict[str, object] = {f"ch{chapter.number}": chapter for chapter in CHAPTERS}
    return offered | {name: puzzle for chapter in CHAPTERS for name, puzzle in _puzzles_in(chapter)}


def _puzzles_in(chapter: Chapter) -> Iterator[tuple[str, Puzzle]]:
    """Those that count, and others that its module names."""
    for puzzle in chapter.puzzles:
        yield puzzle.name.upper(), puzzle
    for name, value in vars(chapter._part("puzzles") or chapter).items():
        if isinstance(value, Puzzle):
            yield name, value
