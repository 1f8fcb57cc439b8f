"""Kernels to try the checker on: a module per chapter, each with ``WRONG`` and ``RIGHT``."""

from dataclasses import dataclass

from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True)
class Wrong:
    """A kernel that ``check`` must reject on ``puzzle``, with ``reason`` in its report."""

    puzzle: Puzzle
    kernel: object
    reason: str
