"""`mistake`: a right kernel with one slip, as a difference of a few lines, and what the checker says of it.

Shown once the puzzle is solved, since it is the answer but for a line. The right kernel is the learner's own
where the slip has a place in it and leads to the same kind of verdict, else the course's: `right.json` in a
chapter's folder, made by ``make notebooks``. Its texts are in base64, so that nobody reads an answer by
accident; who wants to read them can. A hand-out may leave these files away.
"""

import base64
import dataclasses
import html
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from triton.runtime.jit import KernelInterface

from puzzles_lib import ledger
from puzzles_lib.chapters import CHAPTERS, mistakes
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report
from puzzles_lib.difference import Lines, difference, drawn, told
from puzzles_lib.drawing.card import Theme, card, framed, rows
from puzzles_lib.mistakes import FILE, Mistake
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.session import passed
from puzzles_lib.source import define


@dataclass(frozen=True)
class Contrast:
    """A right kernel against a wrong one; or, where there is nothing to show yet, why.

    what: the slip, in a sentence, or why nothing is shown. lines: (sign, text) of the difference: ``"-"`` of
    the right kernel, ``"+"`` of the wrong one, ``" "`` of both. own: whether the right one is the learner's.
    kernel: the wrong one; None where nothing is shown.
    """

    title: str
    what: str
    lines: Lines = ()
    own: bool = False
    kernel: KernelInterface | None = None
    report: Report | None = None

    @property
    def headline(self) -> str:
        return f"{self.title}: {self.what}"

    @property
    def whose(self) -> str:
        return f"- {'your' if self.own else 'a'} right kernel   + the mistake"

    def __repr__(self) -> str:
        if not self.report:
            return self.headline
        return "\n".join([self.headline, "", *told(self.lines, self.whose), "", str(self.report)])

    def _repr_html_(self) -> str:
        if not self.report:
            return card(Theme.OPEN, self.title, rows(self.what))
        code = drawn(self.lines, self.whose)
        head = f'<div style="font-weight:bold">{html.escape(self.headline)}</div>'
        return framed(Theme.NEUTRAL, f"{head}{code}") + self.report._repr_html_()


def mistake(puzzle: Puzzle, which: int | str = 0) -> Contrast:
    """A wrong kernel of the puzzle, against a right one, and what the checker says of it.

    which: its number, from 0, or its name. Shown only where the puzzle is solved, now or earlier; else a
    line says so, and ``.kernel`` is None. Nothing is noted for `progress`.

    Raises TypeError where ``puzzle`` is not a `Puzzle`, ValueError for a mistake that there is not.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"mistake(PUZZLE, n): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    slip = _pick(puzzle, which)
    title = f"{puzzle.name}, {slip.name.replace('_', ' ')}"
    if not passed(puzzle) and ledger.load()[0].get(puzzle.name) != ledger.SOLVED:
        return Contrast(title, "solve the puzzle first, then run this again: it shows most of an answer.")
    for number, (own, source, scope) in enumerate(_right_kernels(puzzle)):
        try:
            wrong = slip.apply(source)
            kernel = define(wrong, f"<{title}, {number}>", scope)
        except Exception:  # a kernel in which the slip has no place, or that is none by itself
            continue
        report = examine(kernel, puzzle)
        if report.verdicts and report.verdicts[0].kind == slip.kind:
            named = f'"{which}"' if isinstance(which, str) else which
            call = f"mistake({puzzle.name.upper()}, {named}).kernel"
            lines = difference(source.splitlines(), wrong.splitlines())
            return Contrast(title, slip.what, lines, own, kernel, _watching(report, call))
    return Contrast(title, "it has no place in your kernel, and this copy of the course has no other.")


def _pick(puzzle: Puzzle, which: int | str) -> Mistake:
    __tracebackhide__ = True
    known = mistakes(puzzle)
    if isinstance(which, str):
        found = next((each for each in known if each.name == which), None)
    else:
        fits = isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(known)
        found = known[which] if fits else None
    if not found:
        names = ", ".join(each.name for each in known)
        allowed = f"0 to {len(known) - 1}, or {names}" if known else f"none: {puzzle.name} has no mistakes"
        raise ValueError(f"mistake: which is {which!r}, allowed are {allowed}")
    return found


def _right_kernels(puzzle: Puzzle) -> Iterator[tuple[bool, str, dict[str, object] | None]]:
    """Right kernels: whether it is the learner's own, its source, and what that may name."""
    if own := passed(puzzle):
        source = textwrap.dedent("".join(own.raw_src))
        yield True, _without_markers(source), dict(own.fn.__globals__)
    for chapter in CHAPTERS:
        file = chapter.place / FILE
        if puzzle in chapter.puzzles and file.exists():
            if packed := json.loads(file.read_text("utf-8")).get(puzzle.name):
                yield False, base64.b64decode(packed).decode(), None


def _without_markers(source: str) -> str:
    """The source without the comments that stand around a hole, in a master and in an exercise."""
    marks = ("### BEGIN", "### END", "# your code here")
    kept = [line for line in source.splitlines() if not line.strip().startswith(marks)]
    return "\n".join(kept) + "\n"


def _watching(report: Report, call: str) -> Report:
    """The report, whose call of `watch` gives the kernel by the name that a notebook has for it."""
    cases = tuple(
        dataclasses.replace(case, watch=re.sub(r"watch\(\w+,", f"watch({call},", case.watch, count=1))
        for case in report.cases
    )
    return dataclasses.replace(report, cases=cases)
