"""`check`: what a learner calls. `puzzles_lib.checker` judges; here it is kept what came of it.

Kept are the learner's progress (`ledger`), what was said in this session, for `hint` and `mistake`
(`session`), and where a puzzle is solved for the first time, a line that says so and what is next (`cheer`).
"""

import contextlib
import dataclasses

from puzzles_lib import ledger, session
from puzzles_lib.checker import SECONDS_PER_CASE, examine
from puzzles_lib.checker.attempts import positive
from puzzles_lib.checker.report import Report
from puzzles_lib.overview import cheer
from puzzles_lib.puzzle import Puzzle, expect_puzzle
from puzzles_lib.staleness import stale_note
from puzzles_lib.stubs import attempt_text, is_untouched
from puzzles_lib.wrapped import unwrap


def check(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE, salt: str = "") -> Report:
    """Try a ``@triton.jit`` kernel on every case of a puzzle, and on a few drawn ones.

    Runs on the CPU, guarded: whatever the kernel does, this returns. ``seconds`` limits the CPU time of
    each run of a case (ten times as long by the clock); once all runs have taken six times as many, the
    check ends there. Checks in several threads wait for each other. ``tl.static_print`` shows a text once
    in a check. A pass or a try is noted for `progress`.

    salt: for who grades: another salt draws other cases, and other values for the inputs of all. With the
        same salt a report is the same at every call, but for the line at the first pass.

    Raises TypeError where ``puzzle`` is not a `Puzzle` or ``salt`` no string, ValueError where ``seconds``
    is no number above 0, and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    expect_puzzle("check", kernel, puzzle)
    positive("check", seconds)
    if not isinstance(salt, str):
        raise TypeError(f"check: salt is a {type(salt).__name__}, allowed is a string")
    report = None
    with contextlib.suppress(KeyboardInterrupt):
        report = examine(kernel, puzzle, seconds=seconds, salt=salt)
    if report is None:  # raised from here, so that a notebook shows two frames and not thirty
        raise KeyboardInterrupt("the check was interrupted") from None
    return _kept(kernel, puzzle, report)


def _kept(kernel: object, puzzle: Puzzle, report: Report) -> Report:
    """The report, with what there is to say beside it; the check is noted."""
    wrapped = unwrap(kernel)
    notes = [stale_note(wrapped.kernel) if wrapped else ""]
    session.remember(puzzle, wrapped.kernel if wrapped else None, report)
    cheered = None
    if puzzle.counts:
        known, _ = ledger.load()
        kind = next((verdict.kind for verdict in report.verdicts), "")
        if wrapped and puzzle.broken_by and is_untouched(wrapped.kernel):
            kind = ledger.OPEN
        trouble = ledger.record(puzzle.name, report.ok, kind, attempt_text(kernel))
        notes.append(trouble or "")
        if report.ok and not trouble and known.get(puzzle.name) != ledger.SOLVED:
            cheered = cheer(puzzle)
    return dataclasses.replace(report, notes=(*report.notes, *filter(None, notes)), cheer=cheered)
