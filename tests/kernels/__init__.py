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
            raise ValueError(f"{self.name}: kind must be one of {', '.join(KINDS)}, but is {self.kind!r}")
        if self.kind == "values" and not self.says:
            raise ValueError(f"{self.name}: wrong values, but which? says is missing")

    @property
    def name(self) -> str:
        """The kernel's name."""
        return getattr(self.kernel, "__name__", str(self.kernel))


class Made(Wrong):
    """A mistake's wrong kernel, made from the correct kernel's source when a test first needs it.

    Making one takes more than a millisecond, and all that are collected are a thousand.
    """

    __eq__, __hash__ = object.__eq__, object.__hash__  # these don't need the kernel

    def __init__(self, mistake: Mistake, source: str):
        given = {"puzzle": mistake.puzzle, "kind": mistake.kind, "says": mistake.says}
        vars(self).update(given, mistake=mistake, source=source)
        self.__post_init__()

    @functools.cached_property
    def kernel(self) -> object:
        mistake = self.mistake
        kernel = define(mistake.apply(self.source), f"<{mistake.puzzle.name} with {mistake.name}>")
        kernel.__name__, kernel.__doc__ = mistake.name, mistake.what  # as a written-out one has them
        return kernel

    @property
    def name(self) -> str:
        return self.mistake.name


def _modules() -> list:
    return [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]


@functools.cache
def wrong() -> tuple[Wrong, ...]:
    """Every wrong kernel of every chapter, written out or made by edits."""
    written = [each for module in _modules() for each in getattr(module, "WRONG", ())]
    sources = kernel_sources()
    mistakes = (mistake for chapter in CHAPTERS for mistake in chapter.mistakes)
    return (*written, *(made(mistake, sources[mistake.puzzle.name]) for mistake in mistakes))


def made(mistake: Mistake, source: str) -> Wrong:
    """A mistake's wrong kernel, from the correct kernel's source."""
    return Made(mistake, source)


def edited(puzzle: Puzzle, name: str, what: str, edits: Mapping[str, str]) -> object:
    """A correct kernel by edits of the course's solution, as `Mistake` makes wrong ones."""
    source = kernel_sources()[puzzle.name]
    return made(Mistake(puzzle, name, what, edits, kind="open"), source).kernel


def right() -> list[tuple[Puzzle, object]]:
    """Every alternative correct kernel of every chapter, with its puzzle."""
    return [each for module in _modules() for each in module.RIGHT]
