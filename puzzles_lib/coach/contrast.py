"""Show a correct kernel with one slip, as a diff of a few lines, and its report: `mistake`.

It is shown only when the puzzle is solved, because it is the answer except for one line. The correct kernel
is the learner's own if the slip fits into it and leads to the same kind of verdict. Otherwise it is the
course's, from `right.json` in the chapter's folder, made by ``make notebooks``. Its texts are in base64, so
that nobody reads an answer by accident. A hand-out may omit these files.
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
    """A correct kernel compared with a wrong one, or the reason why nothing is shown yet.

    what: the slip, in a sentence, or why nothing is shown. lines: (sign, text) of the diff: ``"-"`` for the
    correct kernel, ``"+"`` for the wrong one, ``" "`` for both. own: whether the correct one is the
    learner's. kernel: the wrong kernel; None if nothing is shown.
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
        owner = "your" if self.own else "the course's"
        return f"- {owner} correct kernel   + with the mistake"

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


def mistake(puzzle: Puzzle, which: int | str = 1) -> Contrast:
    """Return a wrong kernel of the puzzle, compared with a correct one, and its report.

    which: the mistake's number, from 1, or its name. It is shown only if the puzzle is solved, now or
    earlier; otherwise a line says so, and ``.kernel`` is None. A line also says so if the puzzle has no
    mistakes, or none with this number. `progress` does not change.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, and ValueError if ``which`` is neither a whole number
    nor the name of a mistake.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"mistake(PUZZLE, n): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    known = mistakes(puzzle)
    if not known:
        return Contrast(puzzle.name, "this puzzle has no mistakes to show.")
    if isinstance(which, int) and not isinstance(which, bool) and not 1 <= which <= len(known):
        numbers = f"are numbered 1 to {len(known)}" if len(known) > 1 else "has one mistake, number 1"
        subject = "its mistakes " if len(known) > 1 else "this puzzle "
        return Contrast(puzzle.name, f"there is no mistake {which}: {subject}{numbers}.")
    slip = _pick(puzzle, which)
    title = f"{puzzle.name}, {slip.name.replace('_', ' ')}"
    if not passed(puzzle) and ledger.load()[0].get(puzzle.name) != ledger.SOLVED:
        return Contrast(title, "solve the puzzle first, then run this again. It shows most of an answer.")
    for number, (own, source, scope) in enumerate(_right_kernels(puzzle)):
        try:
            wrong = slip.apply(source)
            kernel = define(wrong, f"<{title}, {number}>", scope)
        except Exception:  # the slip doesn't fit into this kernel, or the result isn't a kernel
            continue
        report = examine(kernel, puzzle)
        if report.verdicts and report.verdicts[0].kind == slip.kind:
            named = f'"{which}"' if isinstance(which, str) else which
            call = f"mistake({puzzle.name.upper()}, {named}).kernel"
            lines = difference(source.splitlines(), wrong.splitlines())
            return Contrast(title, slip.what, lines, own, kernel, _watching(report, call))
    return Contrast(
        title, "this mistake doesn't fit into your kernel, and this copy of the course has no other."
    )


def _pick(puzzle: Puzzle, which: int | str) -> Mistake:
    """Return the mistake with a number, which is in range, or with a name."""
    __tracebackhide__ = True
    known = mistakes(puzzle)
    if isinstance(which, int) and not isinstance(which, bool):
        return known[which - 1]
    found = next((each for each in known if each.name == which), None)
    if not found:
        names = ", ".join(each.name for each in known)
        raise ValueError(f"mistake: which is {which!r}, allowed are 1 to {len(known)}, or {names}")
    return found


def _right_kernels(puzzle: Puzzle) -> Iterator[tuple[bool, str, dict[str, object] | None]]:
    """Yield correct kernels: whether it is the learner's own, its source, and the names it may use."""
    if own := passed(puzzle):
        source = textwrap.dedent("".join(own.raw_src))
        yield True, _without_markers(source), dict(own.fn.__globals__)
    for chapter in CHAPTERS:
        file = chapter.place / FILE
        if puzzle in chapter.puzzles and file.exists():
            if packed := json.loads(file.read_text("utf-8")).get(puzzle.name):
                yield False, base64.b64decode(packed).decode(), None


def _without_markers(source: str) -> str:
    """Return the source without the comments around a hole, in a master and in an exercise."""
    marks = ("### BEGIN", "### END", "# your code here")
    kept = [line for line in source.splitlines() if not line.strip().startswith(marks)]
    return "\n".join(kept) + "\n"


def _watching(report: Report, call: str) -> Report:
    """Return the report, with a call of `watch` that names the kernel as a notebook can."""
    cases = tuple(
        dataclasses.replace(case, watch=re.sub(r"watch\(\w+,", f"watch({call},", case.watch, count=1))
        for case in report.cases
    )
    return dataclasses.replace(report, cases=cases)
