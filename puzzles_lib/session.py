"""What the checks of this Python session said: for `hint` and `mistake`, and gone with the session."""

from dataclasses import dataclass

from triton.runtime.jit import JITFunction

from puzzles_lib.checker.report import Report
from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True)
class Checked:
    """A check: the name of its kernel, "" for what is none, and what was said of it."""

    puzzle: Puzzle
    kernel: str
    report: Report


_last: dict[str, Checked] = {}
_passed: dict[str, tuple[Puzzle, JITFunction]] = {}


def remember(puzzle: Puzzle, kernel: JITFunction | None, report: Report) -> None:
    """Keep what a check said. kernel: without its autotuner; None for what is no kernel."""
    _last[puzzle.name] = Checked(puzzle, kernel.__name__ if kernel else "", report)
    if kernel and report.ok:
        _passed[puzzle.name] = puzzle, kernel


def last_check(puzzle: Puzzle) -> Checked | None:
    """The last check of the puzzle, not of another of its name; None where there was none."""
    checked = _last.get(puzzle.name)
    return checked if checked and checked.puzzle is puzzle else None


def passed(puzzle: Puzzle) -> JITFunction | None:
    """The last kernel that passed the puzzle's check, not of another of its name; None where none has."""
    owner, kernel = _passed.get(puzzle.name, (None, None))
    return kernel if owner is puzzle else None
