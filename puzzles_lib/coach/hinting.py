"""Show the next hint of a puzzle, beginning with the one that fits the last check: `hint`."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from puzzles_lib.chapters import hints
from puzzles_lib.hints import Hint, Key
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.session import Checked, last_check

MOST_CHARACTERS = 100  # of the last check's message

_shown: dict[Key, list[int]] = {}  # the numbers of the hints shown in this session, from 1, in order


@runtime_checkable
class Version(Protocol):
    """A version of chapter 15's kernel, which has hints although it is not a puzzle. name: as it is shown."""

    name: str

    @property
    def hint_key(self) -> Key: ...


@dataclass(frozen=True)
class Shown:
    """A hint as it is shown, or a line instead of one.

    hint: None if there is none to show. number: the hint's number, from 1. count: how many the puzzle has.
    notes: the lines below the hint.
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
    """Return the next hint of a puzzle. Hints that fit the last check of this session come first.

    A version of chapter 15's kernel with a hole also has hints: ``hint(subnormal)``. They come in order.

    number: return this hint, from 1, whatever was shown before. Hints go from a nudge to nearly the answer.
    Which were shown is forgotten when the session ends. If a puzzle is solved twice, in two kernels, the
    hints are for the kernel that was checked last.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, and ValueError if it has no hint with this number.
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
        return Shown(puzzle.name, None, notes=("This puzzle has no hints.",))
    if number is not None and (isinstance(number, bool) or number not in range(1, len(known) + 1)):
        raise ValueError(f"hint: number is {number!r}, allowed are 1 to {len(known)}")
    if number is None and said and said.report.ok:
        note = f"Your kernel passes, so you need no hint. {call}, 1) shows the first one anyway."
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
        message = said.report.verdicts[0].message
        short = message if len(message) <= MOST_CHARACTERS else f"{message[: MOST_CHARACTERS - 1]}…"
        notes.append(f"Chosen because your last check said: “{short}”")
    if len(shown) < len(known):
        notes.append(f"Still stuck? {call}) shows the next hint.")
    else:
        notes.append(f"That was the last hint. {call}, 1) shows the first again.")
    return Shown(puzzle.name, known[chosen - 1], chosen, len(known), tuple(notes))


def _key(puzzle: Puzzle, said: Checked | None) -> Key:
    own = (puzzle.name, said.kernel if said else "")
    return own if own in hints() else (puzzle.name, "")


def _fit(hint: Hint, said: Checked | None) -> int:
    """Return how well a hint fits the last check: 2 by words of its first failure, 1 by its kind, else 0."""
    if not said or not said.report.verdicts:
        return 0
    verdict = said.report.verdicts[0]
    case = next((case.label for case in said.report.cases if case.verdict), "")
    told = "\n".join([case, *verdict.lines()])
    fits = [fit for fit in hint.fits if fit.kind == verdict.kind and fit.words in told]
    return max((2 if fit.words else 1 for fit in fits), default=0)
