"""A case of the clinic as data: a kernel reduced from a public bug, to be found, explained and fixed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Nudge, Question

WARDS = {
    "elements": "Row 0 compares places. Does the report say where the wrong results are?",
    "values": "Row 1 compares values. Does the report say which values go wrong?",
    "runs": "Row 2 compares runs. Does the report say that one input behaves differently in two runs?",
    "size of the error": "Row 3 is for results that are all off by a little. Is any result correct here?",
    "parts": "Row 4 is for parts that are correct one by one. Does the report name such parts?",
}
"""The rows of the map, in order, each with the reply to a learner who takes a report there by mistake."""

_THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")
_LETTERS = "abcd"


@dataclass(frozen=True)
class Patient:
    """A broken kernel, what is wrong with it, and where it was reported.

    slip: what is wrong with the kernel that learners get, as edits of the correct one.
    thread: where a user reported it; the kernel is our own, reduced to what matters.
    question: which row of the map fits, and what the cause is. It has the puzzle's number, and `check` judges
        no fix before it's answered.
    also: another question about the case, such as `reproduce`.

    Raises ValueError if these don't fit together.
    """

    slip: Mistake
    thread: str
    question: Question
    also: Question | None = None

    def __post_init__(self) -> None:
        name = self.puzzle.name
        if not _THREAD.fullmatch(self.thread):
            raise ValueError(f"{name}: thread must be an issue on GitHub, but is {self.thread!r}")
        if self.puzzle.broken_by != self.slip.name:
            raise ValueError(f"{name}: broken_by is {self.puzzle.broken_by!r}, not {self.slip.name!r}")
        if self.question.id != (id := f"ch20-q{self.puzzle.number}"):
            raise ValueError(f"{name}: its question is {self.question.id}, not {id}")

    @property
    def puzzle(self) -> Puzzle:
        return self.slip.puzzle


def cause(slip: Mistake, right: str, wards: Sequence[str], **why_not: str) -> Question:
    """Return the question for a row of the map, and for the cause: one of the notebook's four sentences.

    right: its letter. wards: of `WARDS`, those that fit the report, the best one first. why_not: for each
    other letter, what in the report speaks against it. A wrong row is replied to first, so that trying all
    letters doesn't find the cause.

    Raises ValueError if a letter has no reply, or if a ward isn't on the map.
    """
    if sorted((right, *why_not)) != list(_LETTERS):
        raise ValueError(f"{slip.name}: replies to {', '.join(why_not)}, but {right!r} is the cause")
    if not wards or not set(wards) <= set(WARDS):
        raise ValueError(f"{slip.name}: each ward must be one of {', '.join(WARDS)}, but they are {wards!r}")
    rows = [list(WARDS).index(ward) for ward in wards]
    size, form = 2, "Answer with a pair: a row of the map, 0 to 4, and a letter, 'a' to 'd'."

    def is_form(value: tuple) -> bool:
        return len(value) == size and value[0] in range(len(WARDS)) and value[1] in tuple(_LETTERS)

    return Question(
        id=f"ch20-q{slip.puzzle.number}",
        asks="Which row of the map fits the report, and which sentence explains all of it? (row, letter)",
        right=lambda: (rows[0], right),
        same=lambda v, r: is_form(v) and v[0] in rows and v[1] == right,
        kind=tuple,
        nudge=form,
        nudges=(
            Nudge(lambda v, r: not is_form(v), form),
            *(
                Nudge(lambda v, r, row=row: v[0] == row, reply)
                for row, (ward, reply) in enumerate(WARDS.items())
                if ward not in wards
            ),
            *(Nudge(lambda v, r, letter=letter: v[1] == letter, why_not[letter]) for letter in why_not),
        ),
    )


def reproduce(
    id: str,
    asks: str,
    example: int | tuple[int, ...],
    breaks: Callable[..., bool],
    nudge: str,
    *nudges: Nudge,
) -> Question:
    """Return the question that asks for an input for which the broken kernel is wrong; any such input counts.

    example: one of them. breaks: a function of the answer's integers that returns whether the kernel is wrong
    for them.
    """
    size = len(example) if isinstance(example, tuple) else 0
    form = f"Answer with {size} whole numbers, in a tuple."

    def is_form(value: Any) -> bool:
        return not size or (len(value) == size and all(type(each) in (int, bool) for each in value))

    def same(value: Any, _: Any) -> bool:
        return is_form(value) and breaks(*(value if size else (value,)))

    return Question(
        id=id,
        asks=asks,
        right=lambda: example,
        same=same,
        kind=tuple if size else int,
        nudge=nudge,
        nudges=(Nudge(lambda v, r: not is_form(v), form), *nudges) if size else nudges,
    )
