"""Kernels to try the checker on: a module per chapter, each with ``WRONG`` and ``RIGHT``."""

import importlib
import pkgutil
from dataclasses import dataclass

from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True)
class Wrong:
    """A kernel that ``check`` must reject on ``puzzle``, with ``reason`` in its report."""

    puzzle: Puzzle
    kernel: object
    reason: str


def _modules() -> list:
    return [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]


def wrong() -> list[Wrong]:
    """Every wrong kernel of every chapter."""
    return [each for module in _modules() for each in module.WRONG]


def right() -> list[tuple[Puzzle, object]]:
    """Every alternative right kernel of every chapter, with its puzzle."""
    return [each for module in _modules() for each in module.RIGHT]
