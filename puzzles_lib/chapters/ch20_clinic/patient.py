"""A case of the clinic as data: a kernel reduced from a public bug, to be found, explained and fixed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Nudge, Question

WARDS = ("elements", "values", "runs", "size of the error", "parts")
_THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")
_LETTERS = "abcd"


@dataclass(frozen=True)
class Patient:
    """A broken kernel, what is wrong with it, and where it was reported.

    slip: what is wrong with the kernel that learners get, as edits of the correct one.
    thread: where a user reported it; the kernel is our own, reduced to what matters.
    ward: the notebook's part, one of `WARDS`: what its learners compare.
    question: what the cause is. It has the puzzle's number, and `check` judges no fix before it's answered.
    also: another question about the case, such as `reproduce`.

    Raises ValueError if these don't fit together.
    """

    slip: Mistake
    thread: str
    ward: str
    question: Question
    also: Question | None = None

    def __post_init__(self) -> None:
        name = self.puzzle.name
        if not _THREAD.fullmatch(self.thread):
            raise ValueError(f"{name}: thread must be an issue on GitHub, but is {self.thread!r}")
        if self.ward not in WARDS:
            raise ValueError(f"{name}: ward must be one of {', '.join(WARDS)}, but is {self.ward!r}")
        if self.puzzle.broken_by != self.slip.name:
            raise ValueError(f"{name}: broken_by is {self.puzzle.broken_by!r}, not {self.slip.name!r}")
        if self.question.id != (id := f"ch20-q{self.puzzle.number}"):
            raise ValueError(f"{name}: its question is {self.question.id}, not {id}")

    @property
    def puzzle(self) -> Puzzle:
        return self.slip.puzzle


def cause(slip: Mistake, right: str, **why_not: str) -> Question:
    """Return the question that asks which of the notebook's four sentences is the cause.

    right: its letter. why_not: for each other letter, what in the report speaks against it.

    Raises ValueError if a letter has no reply.
    """
    if sorted((right, *why_not)) != list(_LETTERS):
        raise ValueError(f"{slip.name}: replies to {', '.join(why_not)}, but {right!r} is the cause")
    return Question(
        id=f"ch20-q{slip.puzzle.number}",
        asks="Which sentence explains all of the report, 'a', 'b', 'c' or 'd'?",
        right=lambda: right,
        kind=str,
        nudge="Answer with the letter of a sentence: 'a', 'b', 'c' or 'd'.",
        nudges=tuple(Nudge(lambda v, r, letter=letter: v == letter, why_not[letter]) for letter in why_not),
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
        return not size or (len(value) == size and all(type(each) is int for each in value))

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
