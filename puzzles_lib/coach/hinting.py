"""`hint`: the next hint of a puzzle, and first the one that fits what the last check said."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from puzzles_lib.chapters import hints
from puzzles_lib.hints import Hint, Key
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.session import Checked, last_check

_shown: dict[Key, list[int]] = {}  # of this session: the numbers of hints, from 1, in the order shown


@runtime_checkable
class Version(Protocol):
    """What has hints and is no puzzle: a version of chapter 15's kernel. name: as it is shown."""

    name: str

    @property
    def hint_key(self) -> Key: ...


@dataclass(frozen=True)
class Shown:
    """A hint as it is shown, or a line in place of one.

    hint: None where there is none to give. number: of it, from 1. count: of the puzzle's hints.
    notes: lines below it.
    """

    puzzle: str
    hint: Hint | None
    number: int = 0
    count: int = 0
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        if not self.hint:
            return f"{self.puzzle}: no hint"
        return f"{self.puzzle}, hint {self.number} of {self.count}: {self.hint.title}"

    def __repr__(self) -> str:
        return "\n\n".join([self.headline, *([self.hint.text] if self.hint else []), *self.notes])

    def _repr_markdown_(self) -> str:
        text = [self.hint.text] if self.hint else []
        return "\n\n".join([f"**{self.headline}**", *text, *(f"*{note}*" for note in self.notes)])


def hint(puzzle: Puzzle | Version, number: int | None = None) -> Shown:
    """The next hint of a puzzle; first one that fits what the last check of this session said.

    A version of chapter 15's kernel that has a hole has hints too: ``hint(subnormal)``. They come in order.

    number: that one, from 1, whatever was shown before. Hints go from a nudge to nearly the answer; how
    many were shown is forgotten when the session ends. Where a puzzle is solved twice, in two kernels, the
    hints are for the one that was checked last.

    Raises TypeError where ``puzzle`` is not a `Puzzle`, ValueError for a number that there is not.
    """
    __tracebackhide__ = True
    if isinstance(puzzle, Puzzle):
        said = last_check(puzzle)
        key, call = _key(puzzle, said), f"hint({puzzle.name.upper()}"
    elif isinstance(puzzle, Version):
        said, key, call = None, puzzle.hint_key, "hint(it"
    else:
        raise TypeError(f"hint(PUZZLE): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    known = hints().get(key, ())
    if not known:
        return Shown(puzzle.name, None, notes=("There are no hints for this one.",))
    if number is not None and (isinstance(number, bool) or number not in range(1, len(known) + 1)):
        raise ValueError(f"hint: number is {number!r}, allowed are 1 to {len(known)}")
    if number is None and said and said.report.ok:
        note = f"Your kernel passes: nothing is left to hint at. {call}, 1) shows the first all the same."
        return Shown(puzzle.name, None, count=len(known), notes=(note,))
    shown = _shown.setdefault(key, [])
    left = [n for n in range(1, len(known) + 1) if n not in shown]
    fitting = [n for n in left if _fit(known[n - 1], said)]
    fitting.sort(key=lambda n: -_fit(known[n - 1], said))
    chosen = number or next(iter(fitting + left), len(known))
    if chosen not in shown:
        shown.append(chosen)
    notes = []
    if number is None and chosen in fitting and said:
        notes.append(f"Chosen for what the last check said: {said.report.verdicts[0].kind}.")
    if len(shown) < len(known):
        notes.append(f"Still stuck? {call}) again gives the next.")
    else:
        notes.append(f"That was the last; {call}, 1) shows the first again.")
    return Shown(puzzle.name, known[chosen - 1], chosen, len(known), tuple(notes))


def _key(puzzle: Puzzle, said: Checked | None) -> Key:
    own = (puzzle.name, said.kernel if said else "")
    return own if own in hints() else (puzzle.name, "")


def _fit(hint: Hint, said: Checked | None) -> int:
    """How well a hint fits the last check: 2 by words of its first failure, 1 by its kind, else 0."""
    if not said or not said.report.verdicts:
        return 0
    verdict = said.report.verdicts[0]
    case = next((case.label for case in said.report.cases if case.verdict), "")
    told = "\n".join([case, *verdict.lines()])
    fits = [fit for fit in hint.fits if fit.kind == verdict.kind and fit.words in told]
    return max((2 if fit.words else 1 for fit in fits), default=0)
