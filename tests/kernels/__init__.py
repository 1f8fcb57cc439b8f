"""Kernels to try the checker on.

A module per chapter has those that are written out, ``WRONG`` and ``RIGHT``. From chapter 7 on nearly all
wrong ones are edits of the course's solutions instead: the chapter's ``MISTAKES``.
"""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.checker.report import KINDS
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True)
class Wrong:
    """A kernel that ``check`` must reject on ``puzzle``, for its reason.

    kind: of the first verdict.
    says: what must be in the report's text: an argument, an element, a diagnosis. Not a whole sentence:
        a reworded message is the business of its own test alone. ``"values"`` asks for it, as any wrong
        value is of that kind.
    """

    puzzle: Puzzle
    kernel: object
    kind: str
    says: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kernel}: kind must be one of {', '.join(KINDS)}, but is {self.kind!r}")
        if self.kind == "values" and not self.says:
            raise ValueError(f"{self.kernel}: wrong values, but which? says is missing")


def _modules() -> list:
    return [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]


@functools.cache
def wrong() -> tuple[Wrong, ...]:
    """Every wrong kernel of every chapter, written out or made by edits: a second and a half to make."""
    written = [each for module in _modules() for each in getattr(module, "WRONG", ())]
    sources = kernel_sources()
    mistakes = (mistake for chapter in CHAPTERS for mistake in chapter.mistakes)
    return (*written, *(made(mistake, sources[mistake.puzzle.name]) for mistake in mistakes))


def made(mistake: Mistake, source: str) -> Wrong:
    """A mistake's wrong kernel, from the correct kernel's source."""
    kernel = define(mistake.apply(source), f"<{mistake.puzzle.name} with {mistake.name}>")
    kernel.__name__, kernel.__doc__ = mistake.name, mistake.what  # as a written-out one has them
    return Wrong(mistake.puzzle, kernel, mistake.kind, mistake.says)


def edited(puzzle: Puzzle, name: str, what: str, edits: Mapping[str, str]) -> object:
    """A correct kernel by edits of the course's solution, as `Mistake` makes wrong ones."""
    source = kernel_sources()[puzzle.name]
    return made(Mistake(puzzle, name, what, edits, kind="open"), source).kernel


def right() -> list[tuple[Puzzle, object]]:
    """Every alternative correct kernel of every chapter, with its puzzle."""
    return [each for module in _modules() for each in module.RIGHT]
