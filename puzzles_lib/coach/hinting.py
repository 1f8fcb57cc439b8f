"""Show the next hint of a puzzle, beginning with the one that fits the last check: `hint`."""

import ast
import math
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from puzzles_lib.chapters import hints
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.hints import Hint, Key
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.reported import unsaid
from puzzles_lib.session import last_check, last_race

MANY_CAUSES = {"values": None, "error": None, "compiler": re.compile(r"shape|axis|axes|= \[[A-Z]|column")}
"""The kinds of verdict that no hint fits as such, except if the report speaks of this."""
CAUSE = re.compile(r"you'd get|what you get")
"""What a diagnosis says that knows what the kernel does wrong."""
MOST_CHARACTERS = 160  # of the last check's message
NO_FIT = (0, 0)
OF_KIND = 1  # how well a hint fits if only the kind of the verdict is the one that it names
OF_DIAGNOSIS = 3  # how well a hint fits by words of the diagnosis

_shown: dict[Key, dict[int, str]] = {}
"""By the number of each hint shown in this session, from 1: the failure it was chosen for; "" for none."""


@runtime_checkable
class Version(Protocol):
    """What has hints although it is not a puzzle: a version of chapter 15's kernel, or a task of chapter 21.

    name: as it is shown.
    """

    name: str

    @property
    def hint_key(self) -> Key: ...


@dataclass(frozen=True)
class Shown:
    """What `hint` returns: a hint, or a line that says why there is none.

    hint: None if there is no hint to show. number: the hint's number, from 1. count: how many hints the
    puzzle has. notes: the lines below the hint. lead: the line above it, about a hint that was shown before.
    fits: whether it was chosen because words of the last check's report, or its code, are what it's about.
    """

    puzzle: str
    hint: Hint | None
    number: int = 0
    count: int = 0
    notes: tuple[str, ...] = ()
    lead: str = ""
    fits: bool = False

    @property
    def headline(self) -> str:
        if not self.hint:
            return f"{self.puzzle}: no hint"
        fits = ", which fits your last check" * self.fits
        return f"{self.puzzle}, hint {self.number} of {self.count}{fits}: {self.hint.title}"

    def __repr__(self) -> str:
        text = [self.hint.text] if self.hint else []
        return "\n\n".join([self.headline, *filter(None, [self.lead]), *text, *self.notes])

    def _repr_markdown_(self) -> str:
        text = [self.hint.text] if self.hint else []
        lead = [f"*{self.lead}*"] if self.lead else []
        return "\n\n".join([f"**{self.headline}**", *lead, *text, *(f"*{note}*" for note in self.notes)])


def hint(puzzle: Puzzle | Version, number: int | None = None) -> Shown:
    """Return the next hint of a puzzle. Hints that fit the last check of this session come first.

        hint(OUTER_ADD)     # the next hint
        hint(OUTER_ADD, 1)  # the first one again

    If the last check passed, the function says so instead.

    puzzle: a puzzle. Some puzzles ask for two kernels; their hints are for the kernel that you checked last.
        In chapter 15, pass one of the versions that you complete, such as ``hint(subnormal)``. Hints that fit
        what the last `race` found then come first. In chapter 21, pass the name in the cell below the
        exercise, such as ``hint(ARGMAX_FIX)``.
    number: return the hint with this number, no matter which hints you have seen. Hint 1 is a nudge, and the
        last hint is nearly the answer.

    Raises TypeError if ``puzzle`` is none of these, and ValueError if it has no hint with this number.
    """
    __tracebackhide__ = True
    if isinstance(puzzle, Puzzle):
        checked = last_check(puzzle)
        said, key = checked.report if checked else None, _key(puzzle, checked.kernel if checked else "")
        code = checked.source if checked else ""
        name, source = puzzle.name.upper(), "check"
    elif isinstance(puzzle, Version):
        caller = sys._getframe(1)
        key, code = puzzle.hint_key, ""
        said, name, source = last_race(key), _name(puzzle, caller.f_locals, caller.f_globals), "race"
    else:
        raise TypeError(f"hint(PUZZLE): puzzle must be a Puzzle, not {type(puzzle).__name__}")
    known = hints().get(key, ())
    if not known:
        return Shown(puzzle.name, None, notes=("This puzzle has no hints.",))
    if number is not None and (isinstance(number, bool) or number not in range(1, len(known) + 1)):
        raise ValueError(f"hint: number must be from 1 to {len(known)}, but is {number!r}")
    early, skipped = [n for n, each in enumerate(known, 1) if each.early], []
    if early and isinstance(puzzle, Puzzle):
        if asked := unsaid(puzzle):
            return _before_the_cause(puzzle, known, early, asked, number)
        shown = _shown.setdefault(key, {})
        skipped = [n for n in early if n not in shown and n != number]
        shown |= dict.fromkeys(skipped, "")
    again = f"{f'hint({name}, 1)' if name else 'hint of this version, with the number 1,'} shows the first"
    if number is None and said and said.ok:
        done = "Your kernel passes" if source == "check" else "This version is correct"
        return Shown(
            puzzle.name, None, count=len(known), notes=(f"{done}, so you need no hint. {again} one anyway.",)
        )
    shown = _shown.setdefault(key, {})
    failure = _failure(said)
    chosen, fits = (number, False) if number else _choice(known, said, shown, code)
    seen = 0 if number else _seen(known, said, shown, code)
    notes, lead = [], ""
    best = f"Hint {seen} fits your last {source} best, but you've seen it"
    if seen:
        shown[seen] = failure
    if seen and not fits and chosen == len(known) and chosen not in shown:
        chosen = seen
        lead = f"You've seen hint {seen}, but it fits your last {source} best. Read it once more."
    fits_too = fits or bool(number and _fit(known[chosen - 1], said, code) > NO_FIT)
    shown[chosen] = failure if fits_too else shown.get(chosen, "")
    if seen and seen != chosen:
        show_it = f": hint({name}, {seen}) shows it again" if name else ""
        lead = f"{best}{show_it}. This one {'fits, too' if fits else 'is a general one'}."
    if fits and said:
        message = _words(known[chosen - 1], said, code)
        short = textwrap.shorten(message, MOST_CHARACTERS, placeholder=" …")
        notes.append(f"Chosen because your last {source} said: “{short}”")
    if skipped:
        lead_to = (
            f"Hint {skipped[0]} only leads" if len(skipped) == 1 else f"Hints {_listed(skipped)} only lead"
        )
        notes.append(f"{lead_to} to the cause, which you've said.")
    following, fitting = _choice(known, said, shown, code)
    if following not in shown:
        call = f"hint({name})" if name else "hint of this version, without a number,"
        is_close = fitting and _is_close(known[following - 1], said, code)
        why = ", which fits your last check" * (is_close and following < chosen and source == "check")
        text = f"Still stuck? {call} shows hint {following}{why}."
        others = [n for n in range(1, following) if n not in shown]
        if others and not fitting:
            are = "is about another mistake" if len(others) == 1 else "are about other mistakes"
            text += f" (Hint{'s' * (len(others) > 1)} {_listed(others)} {are}.)"
        notes.append(text)
    elif unseen := [n for n in range(1, len(known) + 1) if n not in shown]:
        call = f"hint({name}, {unseen[0]})" if name else f"hint of this version, with the number {unseen[0]},"
        other = "The other hint doesn't" if len(unseen) == 1 else f"The other {len(unseen)} hints don't"
        notes.append(f"{other} fit what your last {source} said: {call} shows hint {unseen[0]}.")
    else:
        every = "That's the only hint" if len(known) == 1 else f"You've now seen all {len(known)} hints"
        is_about = said is not None and said.telling is not None and said.telling.kind != "open"
        lost = source == "check" and is_about and not any(_fit(each, said, code) > NO_FIT for each in known)
        other = ", and nothing in your last report points to one of them" if lost else ""
        notes.append(f"{every}{other}. {again} again.")
    fits = fits and source == "check" and _is_close(known[chosen - 1], said, code)
    return Shown(puzzle.name, known[chosen - 1], chosen, len(known), tuple(notes), lead, fits)


def _listed(numbers: Sequence[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def _before_the_cause(
    puzzle: Puzzle, known: Sequence[Hint], early: Sequence[int], asked: str, number: int | None
) -> Shown:
    """Return the next hint that only leads to evidence, because the learner looks for the cause."""
    later = f'All other hints follow when you\'ve said the cause, by answer("{asked}", ...).'
    if number is not None and number not in early:
        return Shown(puzzle.name, None, count=len(known), notes=(later,))
    shown = _shown.setdefault((puzzle.name, ""), {})
    chosen = number or next((n for n in early if n not in shown), early[-1])
    shown[chosen] = ""
    left = [n for n in early if n not in shown]
    note = f"Still stuck? hint({puzzle.name.upper()}) shows hint {left[0]}." if left else later
    return Shown(puzzle.name, known[chosen - 1], chosen, len(known), (note,))


def _choice(
    known: Sequence[Hint], said: Report | None, shown: Mapping[int, str], code: str = ""
) -> tuple[int, bool]:
    """Return the number of the next hint, and whether it was chosen because it fits the last check.

    A hint fits by words of the failure, or by its kind, except for the kinds that have many causes. If one
    fits, those that are about other mistakes aren't shown, only the general ones. A hint that was shown comes
    again only if no other is left. code: of the kernel.
    """
    fitting = _fitting(known, said, code)
    if new := [n for n in fitting if n not in shown]:
        return new[0], True
    left = [n for n, each in enumerate(known, 1) if n not in shown and not (fitting and each.fits)]
    again = 0 if left else _seen(known, said, shown, code)
    return next(iter(left), again or len(known)), bool(again)


def _fitting(known: Sequence[Hint], said: Report | None, code: str) -> list[int]:
    """Return the numbers of the hints that fit the last check, the best first."""
    fits = {n: _fit(each, said, code) for n, each in enumerate(known, 1)}
    found = [n for n in fits if fits[n] > NO_FIT]
    return sorted(found, key=lambda n: (-fits[n][0], -fits[n][1]))


def _is_close(hint: Hint, said: Report | None, code: str) -> bool:
    """Return whether a hint fits by words or by the code. Many mistakes get the same kind of verdict."""
    return _fit(hint, said, code)[0] > OF_KIND


def _seen(known: Sequence[Hint], said: Report | None, shown: Mapping[int, str], code: str) -> int:
    """Return the number of the hint that fits best if it was shown for another reason; else 0."""
    best = next(iter(_fitting(known, said, code)), 0)
    return best if best in shown and shown[best] != _failure(said) else 0


def _words(hint: Hint, said: Report, code: str) -> str:
    """Return what a check said for which a hint was chosen: the diagnosis if the hint fits that."""
    if not said.telling:
        return ""
    fits_why = _fit(hint, said, code)[0] == OF_DIAGNOSIS
    return said.telling.diagnosis if fits_why else said.telling.message


def _key(puzzle: Puzzle, kernel: str) -> Key:
    own = puzzle.name, kernel
    return own if own in hints() else (puzzle.name, "")


def _name(version: Version, *scopes: Mapping[str, object]) -> str:
    """Return the name that the caller's code has for a version; "" if it has none."""
    named = (name for scope in scopes for name, value in [*scope.items()] if value is version)
    return next((name for name in named if name.isidentifier() and not name.startswith("_")), "")


def _failure(report: Report | None) -> str:
    """Return what tells one failure from another: its kind and its words, without numbers; "" for none."""
    if not report or not (verdict := report.telling):
        return ""
    failed = [case.number for case in report.listed if case.verdict]
    return f"{verdict.kind} {failed} {re.sub(r'[-+.e0-9]+', '', f'{verdict.message} {verdict.diagnosis}')}"


def _fit(hint: Hint, report: Report | None, source: str = "") -> tuple[int, int]:
    """Return how well a hint fits a check: 3 by words of the diagnosis, 2 by others, 1 by its kind, else 0.

    The second number is the length of these words: the longer they are, the less they fit by chance.

    Wrong values have too many causes, so only words count. What a compiler refuses is mostly about shapes: a
    hint on the compiler in general fits only that. A case's label counts unless the diagnosis knows the
    cause. Of wrong values it must tell where the kernel fails: it is that of the first case, or no case with
    it passes.
    """
    if not report or not (verdict := report.telling):
        return NO_FIT
    told = [verdict.message]
    if verdict.site and verdict.kind == "machine":
        told.append(verdict.site.source)
    case = next((case.label for case in report.cases if case.verdict == verdict), "")
    if any(_follows(each, source) or _says(each, case, *told, verdict.diagnosis) for each in hint.unless):
        return NO_FIT
    fits = [fit for fit in hint.fits if fit.kind == verdict.kind]
    found = [
        (2 + _says(fit.words, verdict.diagnosis), len(fit.words))
        for fit in fits
        if fit.words and (_says(fit.words, *told, verdict.diagnosis) or _lacks(fit.words, source))
    ]
    if not CAUSE.search(verdict.diagnosis):
        found += [(2, len(words)) for words in _labels([fit.words for fit in fits], verdict, report)]
    speaks = MANY_CAUSES.get(verdict.kind, re.compile(""))
    of_kind = OF_KIND if speaks and speaks.search("\n".join([*told, verdict.diagnosis])) else 0
    return max([*found, *((of_kind, 0) for fit in fits if not fit.words)], default=NO_FIT)


def _says(words: str, *texts: str) -> bool:
    """Return whether a text has these words, and not only as a part of longer words or numbers."""
    before = r"(?<!\w)" if re.match(r"\w", words) else ""
    after = r"(?![\d])(?!\.\d)" if re.search(r"\d$", words) else ""
    return any(re.search(before + re.escape(words) + after, text) for text in texts)


def _labels(words: Sequence[str], verdict: Verdict, report: Report) -> list[str]:
    """Return those of the words that tell, as labels of cases, where the kernel fails."""
    first = next((case for case in report.cases if case.verdict == verdict), None)
    if first is None:
        return []
    found = [each for each in words if each and _says(each, first.label)]
    passes = any(_says(each, case.label) for case in report.cases if case.ok for each in found)
    return found if first is report.cases[0] or verdict.kind != "values" or not passes else []


_CALL = re.compile(r"tl\.(\w+)\((\w+)=\)")
_PLACES = {("load", "mask"): 1, ("load", "other"): 2, ("store", "mask"): 2, ("dot", "input_precision"): 3}


def _lacks(words: str, source: str) -> bool:
    """Return whether a call has no such argument, as ``no mask in tl.load`` asks."""
    wanted = re.fullmatch(r"no (\w+) in tl\.(\w+)", words)
    if not wanted or f"tl.{wanted[2]}(" not in source:
        return False
    return not _follows(f"tl.{wanted[2]}({wanted[1]}=)", source)


def _follows(unless: str, source: str) -> bool:
    """Return whether all calls of a function have an argument already, as ``tl.load(other=)`` asks."""
    wanted = _CALL.fullmatch(unless)
    if not wanted or not source:
        return False
    name, argument = wanted.groups()
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # an inner function with a docstring whose lines begin further left
        return False
    calls = [node for node in ast.walk(tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func) == f"tl.{name}"]  # fmt: skip

    def has(call: ast.Call, argument: str) -> bool:
        named = argument in [keyword.arg for keyword in call.keywords]
        return named or len(call.args) > _PLACES.get((name, argument), math.inf)

    if argument == "other":
        calls = [call for call in calls if has(call, "mask")]
    return bool(calls) and all(has(call, argument) for call in calls)
