"""Remember the checks and races of this Python session, for `hint`, `mistake` and `speak`."""

from dataclasses import dataclass

from triton.runtime.jit import JITFunction

from puzzles_lib import ledger
from puzzles_lib.checker.report import Report
from puzzles_lib.hints import Key
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.stubs import attempt_text
from puzzles_lib.wrapped import unwrap


@dataclass(frozen=True)
class Checked:
    """A check. kernel: the name of its kernel, "" if it was not a kernel. report: the result.

    source: the kernel's code, "" if it was not a kernel.
    """

    puzzle: Puzzle
    kernel: str
    report: Report
    source: str = ""


MemoryKey = tuple[str, int]
"""A puzzle's name and identity: several puzzles may have the same name, such as one with other cases."""

_last: dict[MemoryKey, Checked] = {}
_passed: dict[MemoryKey, tuple[Puzzle, JITFunction]] = {}  # a puzzle that is kept here keeps its identity
_judged: dict[tuple[MemoryKey, str], tuple[Puzzle, bool]] = {}
_raced: dict[Key, Report] = {}


def memory_key(puzzle: Puzzle) -> MemoryKey:
    """Return the key under which checks of this puzzle, and of no other with its name, are remembered."""
    return puzzle.name, id(puzzle)


def remember(puzzle: Puzzle, kernel: JITFunction | None, report: Report, *, steers: bool = True) -> None:
    """Keep the report of a check. kernel: without its autotuner; None if it was not a kernel.

    steers: whether hints follow this check. They follow no check of a kernel other than the puzzle's, and
        `mistake` doesn't prefer such a kernel.
    """
    if steers:
        _last[memory_key(puzzle)] = Checked(
            puzzle, kernel.__name__ if kernel else "", report, kernel.src if kernel else ""
        )
    if kernel:
        _judged[memory_key(puzzle), attempt_text(kernel)] = puzzle, report.right
    if kernel and report.ok and (steers or memory_key(puzzle) not in _passed):
        _passed[memory_key(puzzle)] = puzzle, kernel


def last_check(puzzle: Puzzle) -> Checked | None:
    """Return the last check that hints follow, not of another puzzle with the same name; None if none."""
    return _last.get(memory_key(puzzle))


def failing_case(kernel: object, puzzle: Puzzle) -> int:
    """Return the first case in which the last check of a kernel has failed; 0 if there is none to show."""
    checked, wrapped = last_check(puzzle), unwrap(kernel)
    if checked is None or wrapped is None or checked.source != wrapped.kernel.src or checked.report.salt:
        return 0
    cases = (*puzzle.cases, *puzzle.drawn())
    failed = [each.number for each in checked.report.cases if each.verdict and each.number is not None]
    return next((number for number in failed if not cases[number].pretend), 0)


def passed(puzzle: Puzzle) -> JITFunction | None:
    """Return the last kernel that passed this puzzle, not another with the same name; None if none did."""
    _, kernel = _passed.get(memory_key(puzzle), (None, None))
    return kernel


def verdict_on(puzzle: Puzzle, kernel: JITFunction) -> bool | None:
    """Return whether a kernel, as its text is now, passed its last check; None if it wasn't checked.

    It may have solved the puzzle in an earlier session. A kernel that only misses a goal has passed.
    """
    text = attempt_text(kernel)
    if found := _judged.get((memory_key(puzzle), text)):
        return found[1]
    return True if ledger.solved_by(puzzle.name, text) else None


def remember_race(key: Key, report: Report) -> None:
    """Keep what a race found. key: that of the hints of the version's kernel."""
    _raced[key] = report


def last_race(key: Key) -> Report | None:
    """Return what the last race of a version with these hints found; None if there was none."""
    return _raced.get(key)
