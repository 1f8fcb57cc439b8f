"""Make a typical mistake in a learner's kernel, show its few lines, and ask what `check` says: `mistake`.

Until the learner's kernel has passed in this session, the mistake is only described in words, because the
change is the answer except for one line. A mistake is written as edits of the course's kernel. If the
learner's kernel has no place for them, the course's kernel is shown, and the card says so. It is in
`right.json` in the chapter's folder, made by ``make notebooks``. Its texts are in base64, so that nobody
reads an answer by accident. A hand-out may omit these files (``--without-answers``).

The report is folded, with a question above it, so that one guesses before one looks. The mistake's name and
what it is in words come below the fold, too: they often give the answer away.
"""

import contextlib
import dataclasses
import re
import textwrap
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from triton.runtime.jit import JITFunction, KernelInterface

from puzzles_lib import ledger
from puzzles_lib.chapters import mistakes
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report
from puzzles_lib.coach.transplant import NoPlace, transplanted
from puzzles_lib.difference import Lines, difference, drawn, told
from puzzles_lib.drawing.card import Theme, card, framed, marked, rows
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.reported import right_source
from puzzles_lib.session import passed
from puzzles_lib.source import define

_FOR_TOOLS = re.compile(r" +# (?:fmt: skip|noqa.*)$", re.MULTILINE)
_ASKED = "What will `check` say?"
_MOST_CHOICES = 4
_BASIC = ("out of bounds", "never written", "values", "uninitialized", "race", "compiler")
_TOLD = {
    "out of bounds": re.compile("out.of.bounds"),
    "never written": re.compile(r"never written|none of .* is written"),
    "race": re.compile("overwrite each other|both store|several lanes"),
    "uninitialized": re.compile("undefined"),
    "values": re.compile("wrong values"),
}
"""By a kind, words of a report in which it's true as well, perhaps as the cause of the first fault."""
_CHOICES = {
    "out of bounds": "an access out of bounds",
    "uninitialized": "a value that was never set",
    "never written": "elements that are never written",
    "race": "programs that interfere with each other",
    "input changed": "an input that changed",
    "deadlock": "programs that wait forever",
    "loads": "too many loads",
    "operations": "too many operations",
    "true size": "an offset too large for int32",
    "values": "wrong values",
    "compiler": "a line that doesn't compile",
    "signature": "a kernel that can't be launched like this",
    "machine": "machine code that misses its goal",
    "traffic": "more traffic than its goal allows",
}
"""By the kind of a verdict, how a question names it, in words that chapter 00 explains."""


@dataclass(frozen=True)
class Contrast:
    """What `mistake` returns: a correct kernel compared with a wrong one, or why nothing is shown yet.

    what: the mistake in a sentence, or why nothing is shown. If there is a report, both are shown together.
    lines: the lines of the diff as (sign, text): ``"-"`` is a line of the correct kernel, ``"+"`` of the
        wrong one, and ``" "`` of both.
    own: whether the correct kernel is the learner's. kernel: the wrong kernel; None if nothing is shown.
    report: what `check` says about the wrong kernel. asks: what to guess before you read the report.
    wait: what to do first, if the mistake is only described.
    """

    title: str
    what: str
    lines: Lines = ()
    own: bool = False
    kernel: KernelInterface | None = None
    report: Report | None = None
    asks: str = ""
    wait: str = ""

    @property
    def headline(self) -> str:
        return self.title if self.report else f"{self.title}: {self.what}"

    @property
    def whose(self) -> str:
        course = "the course's correct kernel (no such place was found in yours)"
        owner = "your correct kernel" if self.own else course
        return f"- {owner}   + with the mistake"

    def __repr__(self) -> str:
        if not self.report:
            return "\n".join(filter(None, [self.headline, self.wait]))
        asked = f"{_ASKED} {self.asks} Guess before you read on."
        code = told(self.lines, self.whose)
        return "\n".join([self.headline, "", *code, "", asked, "", self.what, str(self.report)])

    def _repr_html_(self) -> str:
        if not self.report:
            return card(Theme.OPEN, self.title, rows(self.what, self.wait))
        code = drawn(self.lines, self.whose, is_better=False)
        head = f'<div style="font-weight:bold">{marked(self.headline)}</div>'
        asked = f"<b>{marked(_ASKED)}</b> {marked(self.asks)} Guess, then open."
        summary = f'<summary style="cursor:pointer">{asked}</summary>'
        answer = f'<div style="margin:0.5em 0">{marked(self.what)}</div>{self.report._repr_html_()}'
        return framed(Theme.NEUTRAL, f"{head}{code}<details>{summary}{answer}</details>")


def mistake(puzzle: Puzzle, which: int | str = 1) -> Contrast:
    """Return your kernel with a typical mistake in it, and its report.

        mistake(OUTER_ADD_BLOCKS, 1)

    which: the mistake's number, from 1, or its name. Until your kernel has passed the puzzle in this session,
    the mistake is only described in words, and ``.kernel`` is None. If the mistake can't be made in your
    kernel, the course's kernel is shown with it. A hand-out without answers doesn't have that kernel; the
    returned object then says so. It also says so if the puzzle has no mistakes, as in chapter 01, or none
    with this number. `progress` does not change.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, and ValueError if ``which`` is neither a whole number
    nor the name of a mistake.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"mistake(PUZZLE, n): puzzle must be a Puzzle, not {type(puzzle).__name__}")
    known = mistakes(puzzle)
    if not known:
        return Contrast(puzzle.name, "this puzzle has no mistakes to show.")
    if isinstance(which, int) and not isinstance(which, bool) and not 1 <= which <= len(known):
        numbers = f"are numbered 1 to {len(known)}" if len(known) > 1 else "has one mistake, number 1"
        subject = "its mistakes " if len(known) > 1 else "this puzzle "
        return Contrast(puzzle.name, f"there is no mistake {which}: {subject}{numbers}.")
    slip = _pick(puzzle, which)
    if not passed(puzzle):
        title = f"{puzzle.name}, {slip.name.replace('_', ' ')}"
        return Contrast(title, slip.what, wait=_wait(puzzle))
    title = f"{puzzle.name}, mistake {known.index(slip) + 1} of {len(known)}"
    seen: set[str] = set()
    for number, each in enumerate(_wrong_kernels(puzzle, slip)):
        if each.wrong in seen:
            continue
        seen.add(each.wrong)
        try:
            kernel = define(each.wrong, f"<{title}, {number}>", each.scope)
        except Exception:  # the slip fits the text, but the result isn't a kernel
            continue
        report = examine(kernel, puzzle)
        if report.verdicts and report.verdicts[0].kind == slip.kind and each.says in str(report):
            named = f'"{which}"' if isinstance(which, str) else which
            call = f"mistake({puzzle.name.upper()}, {named}).kernel"
            right, wrong = (_FOR_TOOLS.sub("", source).splitlines() for source in (each.right, each.wrong))
            lines = difference(right, wrong)
            asks = slip.asks or _question(report, slip, known)
            return Contrast(title, slip.what, lines, each.own, kernel, _watching(report, call), asks)
    return Contrast(
        title, "this mistake doesn't fit into your kernel, and this copy of the course has no kernel to show."
    )


def _wait(puzzle: Puzzle) -> str:
    """Return what a learner does before the mistake is shown."""
    check = f"check(..., {puzzle.name.upper()})"
    if ledger.load()[0].get(puzzle.name) == ledger.SOLVED:
        return (
            f"You solved this puzzle in another session. Run the cell with your kernel and `{check}` again, "
            "then this one: it makes the mistake in your kernel."
        )
    return (
        f"Once your kernel passes `{check}`, run this cell again. It then makes the mistake in your kernel, "
        "and you guess what `check` says."
    )


def _question(report: Report, slip: Mistake, known: Sequence[Mistake]) -> str:
    """Return what to guess about a report that is still folded. known: the puzzle's mistakes."""
    failed = [case for case in report.listed if not case.ok]
    count, first = len(report.listed), report.verdicts[0].kind
    if report.telling and report.telling.kind == "compiler" != first:
        return "Some cases do not compile. Which ones, and why do the others?"
    later = (
        f"Which of the {count} cases, numbered from 0, is the first to fail"
        if failed and report.listed[0].ok
        else ""
    )
    if first == "values":
        if not failed:
            return "Do the cases still pass? If they do, what else could be wrong?"
        if later:
            return f"{later}? Are all of its values wrong, or only some?"
        return "Which elements are wrong in the first case: all, or only some?"
    *most, last = (_CHOICES[kind] for kind in _choices(slip, known, _kinds_told(report)))
    choices = f"{', '.join(most)}, or {last}"
    return f"{later}, and with what: {choices}?" if later else f"What does it find: {choices}?"


def _kinds_told(report: Report) -> set[str]:
    """Return the kinds of fault that a report speaks of, in any of its cases."""
    verdicts = report.verdicts
    text = "\n".join(f"{verdict.message} {verdict.diagnosis}" for verdict in verdicts)
    return {verdict.kind for verdict in verdicts} | {k for k, words in _TOLD.items() if words.search(text)}


def _choices(slip: Mistake, known: Sequence[Mistake], told: Collection[str] = ()) -> list[str]:
    """Return the kinds to choose from: the true one, those of the puzzle's most mistakes, and basic ones.

    Their order is always the same for a mistake, and as if at random. told: kinds that are true as well, so
    that they're no wrong choice.
    """
    often = [kind for kind, _ in Counter(each.kind for each in known).most_common()]
    wrong = [kind for kind in (*often, *_BASIC) if kind not in told]
    kinds = list(dict.fromkeys([slip.kind, *wrong]))[:_MOST_CHOICES]
    return sorted(kinds, key=lambda kind: zlib.crc32(f"{slip.puzzle.name} {slip.name} {kind}".encode()))


def _pick(puzzle: Puzzle, which: int | str) -> Mistake:
    """Return the mistake with a number, which is in range, or with a name."""
    __tracebackhide__ = True
    known = mistakes(puzzle)
    if isinstance(which, int) and not isinstance(which, bool):
        return known[which - 1]
    found = next((each for each in known if each.name == which), None)
    if not found:
        names = ", ".join(each.name for each in known)
        raise ValueError(f"mistake: which must be from 1 to {len(known)} or {names}, but is {which!r}")
    return found


@dataclass(frozen=True)
class _Pair:
    """A correct kernel and one with the mistake, as sources.

    own: whether the learner wrote them. scope: the names that they may use. says: what the report must say.
    """

    own: bool
    right: str
    wrong: str
    scope: dict[str, object] | None = None
    says: str = ""


def _wrong_kernels(puzzle: Puzzle, slip: Mistake) -> Iterator[_Pair]:
    """Yield kernels with the mistake, the best first."""
    course = right_source(puzzle)
    if kernel := passed(puzzle):
        each = _called(kernel)
        own = "".join(_without_markers(textwrap.dedent("".join(one.raw_src))) for one in each)
        written = {one.fn.__name__ for one in each}  # they're defined anew, in the order of the source
        scope = {name: value for name, value in kernel.fn.__globals__.items() if name not in written}
        with contextlib.suppress(ValueError):
            yield _Pair(True, own, slip.apply(own), scope)
        for right in slip.spellings(course) if course else ():
            with contextlib.suppress(NoPlace):
                yield _Pair(True, own, transplanted(right, slip.apply(course), own), scope, slip.says)
    if course:
        yield _Pair(False, course, slip.apply(course))


def _called(kernel: JITFunction) -> list[JITFunction]:
    """Return a kernel and, before it, the functions of the learner's notebook that it calls, each once."""
    found = [kernel]
    for each in found:
        for name in each.fn.__code__.co_names:
            other = each.fn.__globals__.get(name)
            if isinstance(other, JITFunction) and other.fn.__module__ == kernel.fn.__module__:
                found += [] if any(other is one for one in found) else [other]
    return found[::-1]


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
