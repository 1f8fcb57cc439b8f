"""Remember the checks and races of this Python session, for `hint` and `mistake`."""

from dataclasses import dataclass

from triton.runtime.jit import JITFunction

from puzzles_lib.checker.report import Report
from puzzles_lib.hints import Key
from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True)
class Checked:
    """A check. kernel: the name of its kernel, "" if it was not a kernel. report: the result.

    source: the kernel's code, "" if it was not a kernel.
    """

    puzzle: Puzzle
    kernel: str
    report: Report
    source: str = ""


_last: dict[str, Checked] = {}
_passed: dict[str, tuple[Puzzle, JITFunction]] = {}
_raced: dict[Key, Report] = {}


def remember(puzzle: Puzzle, kernel: JITFunction | None, report: Report, *, steers: bool = True) -> None:
    """Keep the report of a check. kernel: without its autotuner; None if it was not a kernel.

    steers: whether hints follow this check. They don't follow one of another kernel than the puzzle's own.
    """
    if steers:
        _last[puzzle.name] = Checked(
            puzzle, kernel.__name__ if kernel else "", report, kernel.src if kernel else ""
        )
    if kernel and report.ok:
        _passed[puzzle.name] = puzzle, kernel


def last_check(puzzle: Puzzle) -> Checked | None:
    """Return the last check that hints follow, not of another puzzle with the same name; None if none."""
    checked = _last.get(puzzle.name)
    return checked if checked and checked.puzzle is puzzle else None


def passed(puzzle: Puzzle) -> JITFunction | None:
    """Return the last kernel that passed this puzzle, not another with the same name; None if none did."""
    owner, kernel = _passed.get(puzzle.name, (None, None))
    return kernel if owner is puzzle else None


def remember_race(key: Key, report: Report) -> None:
    """Keep what a race found. key: of the hints of the version's kernel."""
    _raced[key] = report


def last_race(key: Key) -> Report | None:
    """Return what the last race of a version with these hints found; None if there was none."""
    return _raced.get(key)
