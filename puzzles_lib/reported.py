"""Kernels that learners get with a bug: whether a kernel is one, and which symptoms its report shows.

A learner looks for the bug. So until the cause is said, a report shows the symptom, but no line and no cause.
"""

import ast
import base64
import dataclasses
import functools
import json
import textwrap

from triton.runtime.autotuner import Autotuner

from puzzles_lib import ledger
from puzzles_lib.chapters import CHAPTERS, breaking, cause
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.mistakes import FILE
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import define, with_helpers
from puzzles_lib.stubs import is_untouched
from puzzles_lib.wrapped import unwrap

_SEEN = {  # kind -> what a user sees, if the message names a line or the cause
    "race": "the results can differ from run to run",
    "out of bounds": "a memory access is out of bounds",
    "uninitialized": "a result depends on a value that is undefined",
    "true size": "at this size, the results are wrong or the launch fails",
    "error": "this case goes wrong",
    "deadlock": "the kernel never ends",
}


def is_as_reported(kernel: object, puzzle: Puzzle) -> bool:
    """Return whether a kernel, its helpers and its decorators are as learners got them, with the bug."""
    slip, right = breaking(puzzle), right_source(puzzle)
    if slip and right:
        return _told(kernel) == _reported(slip.apply(right), puzzle.name)
    wrapped = unwrap(kernel)  # this copy has no correct kernels: compare functions only
    return bool(slip and wrapped and is_untouched(wrapped.kernel))


def unsaid(puzzle: Puzzle) -> str:
    """Return the id of the question about the cause of a puzzle's bug; "" if it's answered or can't be."""
    asked = cause(puzzle)
    if not asked:
        return ""
    known, _ = ledger.load()
    if ledger.SOLVED in (known.get(asked.id), known.get(puzzle.name)):
        return ""
    return "" if ledger.record(puzzle.name, False, ledger.OPEN) else asked.id


def symptoms(report: Report, asked: str) -> Report:
    """Return the report on a kernel with its bug, without what names the line or the cause.

    asked: the id of the question about the cause.
    """

    def seen(verdict: Verdict | None) -> Verdict | None:
        return verdict and Verdict(verdict.kind, _SEEN.get(verdict.kind, verdict.message))

    has_line = any(verdict.site for verdict in report.verdicts)
    return dataclasses.replace(
        report,
        verdict=seen(report.verdict),
        cases=tuple(dataclasses.replace(case, verdict=seen(case.verdict)) for case in report.cases),
        goals=tuple(dataclasses.replace(goal, verdict=seen(goal.verdict)) for goal in report.goals),
        notes=(*report.notes, as_reported(asked, has_line)),
    )


def as_reported(asked: str, has_line: bool = False) -> str:
    """Return the line below a report that shows only symptoms. asked: as for `symptoms`.

    has_line: whether the whole report names a line.
    """
    then = "you also see the line, and your fix is judged" if has_line else "your fix is judged"
    return (
        "This is the kernel from the bug report, so you see only the symptom. Say the cause, by "
        f'answer("{asked}", ...): then {then}.'
    )


def right_source(puzzle: Puzzle) -> str:
    """Return the course's kernel for a puzzle; "" if this copy has none."""
    for chapter in CHAPTERS:
        file = chapter.place / FILE
        if puzzle in chapter.puzzles and file.exists():
            if packed := json.loads(file.read_text("utf-8")).get(puzzle.name):
                return base64.b64decode(packed).decode()
    return ""


@functools.cache
def _reported(source: str, name: str) -> tuple[str, ...]:
    return _told(define(source, f"<{name} as reported>"))


def _told(kernel: object) -> tuple[str, ...]:
    """Return the code of a kernel, its helpers, their decorators and its configurations; () if that fails."""
    try:
        if not (wrapped := unwrap(kernel)):
            return ()
        tuned = [
            str(config) for each in wrapped.layers if isinstance(each, Autotuner) for config in each.configs
        ]
        texts = [textwrap.dedent("".join(each.raw_src)) for each in with_helpers(wrapped.kernel)]
        return (*(ast.unparse(ast.parse(text)) for text in texts), *tuned)
    except Exception:  # the check's report says what is wrong
        return ()
