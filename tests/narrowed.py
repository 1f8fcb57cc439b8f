"""The wrong kernels that are dear to check, and the one case that each is checked on.

`tests/failing_cases.txt` names the first case that fails. On that case alone the verdict is the same as on
all cases: this was compared when the line was written. The other wrong kernels, most of each puzzle's, run on
all cases, and with ``--all-cases`` so do these.

    python -m tests.narrowed 0.4    # write the lines anew, of kernels that take so many seconds of CPU time
"""

import dataclasses
import functools
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report
from puzzles_lib.puzzle import Puzzle
from tests import cures, kernels
from tests.kernels import Wrong

TABLE = Path(__file__).with_name("failing_cases.txt")


@functools.cache
def table() -> dict[tuple[str, str], int]:
    """Return the number of the case, by puzzle and kernel."""
    found = {}
    for line in TABLE.read_text().splitlines():
        puzzle, kernel, case = line.split()
        found[puzzle, kernel] = int(case)
    return found


def puzzle_of(wrong: Wrong) -> Puzzle:
    """Return the puzzle that a wrong kernel is checked on: with one case if the table names it."""
    case = table().get((wrong.puzzle.name, wrong.kernel.__name__))
    return wrong.puzzle if case is None else with_one_case(wrong.puzzle, case)


def with_one_case(puzzle: Puzzle, case: int) -> Puzzle:
    """Return the puzzle with one of its cases and without goals, which name cases by their numbers."""
    return dataclasses.replace(puzzle, cases=(puzzle.cases[case],), machine=(), traffic=())


def failing_case(wrong: Wrong) -> int | None:
    """Return the first case that fails, if the verdict on it alone is the same and others come before it."""
    report = examine(wrong.kernel, wrong.puzzle, until_failure=True)
    number = next((case.number for case in report.listed if case.verdict), None)
    if report.verdict or not number or wrong.says not in str(report):
        return None
    alone = examine(wrong.kernel, with_one_case(wrong.puzzle, number), until_failure=True)
    return number if _said(alone) == _said(report) and wrong.says in str(alone) else None


def _said(report: Report) -> list[object]:
    return [*report.verdicts[:1]]


def _costs(wrong: Wrong) -> float:
    """Return the seconds of CPU time that a test of it takes, children included."""
    before = _used()
    report = examine(wrong.kernel, wrong.puzzle, until_failure=True)
    if not report.ok:
        cures.failures(wrong.kernel, wrong.puzzle, report)
    return _used() - before


def _used() -> float:
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


def _lines(seconds: float) -> Iterator[str]:
    for wrong in kernels.wrong():
        if _costs(wrong) >= seconds and (case := failing_case(wrong)) is not None:
            yield f"{wrong.puzzle.name} {wrong.kernel.__name__} {case}\n"


if __name__ == "__main__":
    TABLE.write_text("".join(_lines(float(sys.argv[1]))))
