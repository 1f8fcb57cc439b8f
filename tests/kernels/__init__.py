"""Kernels to try the checker on: a module per chapter, each with ``WRONG`` and ``RIGHT``."""

import importlib
import pkgutil
from dataclasses import dataclass

from puzzles_lib.puzzle import Puzzle

KINDS = (
    "signature", "compiler", "error", "time limit", "memory limit", "out of bounds", "uninitialised",
    "never written", "race", "input changed", "values", "loads",
)  # fmt: skip


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
            raise ValueError(f"{self.kernel}: kind is {self.kind!r}, allowed are {', '.join(KINDS)}")
        if self.kind == "values" and not self.says:
            raise ValueError(f"{self.kernel}: wrong values, but which? says is missing")


def _modules() -> list:
    return [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]


def wrong() -> list[Wrong]:
    """Every wrong kernel of every chapter."""
    return [each for module in _modules() for each in module.WRONG]


def right() -> list[tuple[Puzzle, object]]:
    """Every alternative right kernel of every chapter, with its puzzle."""
    return [each for module in _modules() for each in module.RIGHT]
