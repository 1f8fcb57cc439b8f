"""A chapter of the syllabus."""

from dataclasses import dataclass

from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True)
class Chapter:
    """``number`` ("01") and ``title`` of a chapter, and its puzzles in order."""

    number: str
    title: str
    puzzles: tuple[Puzzle, ...]
