"""A case of the clinic as data: a kernel reduced from a public bug, to be found, explained and fixed."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from puzzles_lib.mistakes import FILE, Mistake
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.question import Nudge, Question

WARDS = ("sizes", "masks", "memory", "arithmetic", "tools")
_THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")
_RIGHT = Path(__file__).with_name(FILE)


@dataclass(frozen=True)
class Patient:
    """A broken kernel, what is wrong with it, and where it was reported.

    slip: what is wrong with the kernel that learners get, as edits of the correct one.
    thread: where a user reported it; the kernel is our own, reduced to what matters.
    ward: the notebook's part, one of `WARDS`.
    question: asked before anything is run: `which_line`, `reproduce`, or another one with the puzzle's
        number.

    Raises ValueError if these don't fit together.
    """

    slip: Mistake
    thread: str
    ward: str
    question: Question

    def __post_init__(self) -> None:
        name = self.puzzle.name
        if not _THREAD.fullmatch(self.thread):
            raise ValueError(f"{name}: thread is {self.thread!r}, allowed is an issue on GitHub")
        if self.ward not in WARDS:
            raise ValueError(f"{name}: ward is {self.ward!r}, allowed are {', '.join(WARDS)}")
        if self.puzzle.broken_by != self.slip.name:
            raise ValueError(f"{name}: broken_by is {self.puzzle.broken_by!r}, not {self.slip.name!r}")
        if self.question.id != (id := f"ch20-q{self.puzzle.number}"):
            raise ValueError(f"{name}: its question is {self.question.id}, not {id}")

    @property
    def puzzle(self) -> Puzzle:
        return self.slip.puzzle


def which_line(
    slip: Mistake,
    nudge: str,
    *nudges: Nudge,
    asks: str = "Which line of the kernel has the bug?",
    also: frozenset[int] = frozenset(),
) -> Question:
    """Return the question which line has the slip. If lines are missing, those around the gap count.

    also: lines of the learner's cell in which it could be fixed as well.
    """
    return Question(
        id=f"ch20-q{slip.puzzle.number}",
        asks=f"{asks} The first line of the kernel's cell is line 1.",
        right=lambda: min(lines_of(slip)),
        same=lambda value, right: value in lines_of(slip) | also,
        kind=int,
        nudge=nudge,
        nudges=nudges,
    )


def reproduce(
    slip: Mistake,
    asks: str,
    example: int | tuple[int, ...],
    breaks: Callable[..., bool],
    nudge: str,
    *nudges: Nudge,
) -> Question:
    """Return the question for an input that makes the broken kernel wrong; any such input is correct.

    example: one of them. breaks: of the answer's whole numbers, whether the kernel is wrong for them.
    """
    size = len(example) if isinstance(example, tuple) else 0
    form = f"Answer with {size} whole numbers, in a tuple."

    def is_form(value: Any) -> bool:
        return not size or (len(value) == size and all(type(each) is int for each in value))

    def same(value: Any, _: Any) -> bool:
        return is_form(value) and breaks(*(value if size else (value,)))

    return Question(
        id=f"ch20-q{slip.puzzle.number}",
        asks=asks,
        right=lambda: example,
        same=same,
        kind=tuple if size else int,
        nudge=nudge,
        nudges=(Nudge(lambda v, r: not is_form(v), form), *nudges) if size else nudges,
    )


def lines_of(slip: Mistake) -> set[int]:
    """Return the lines of the learner's cell that have the slip.

    Raises LookupError in a copy of the course without its correct kernels.
    """
    if not _RIGHT.exists():
        raise LookupError(f"this copy of the course has no {FILE}, by which the line is found")
    packed = json.loads(_RIGHT.read_text("utf-8"))[slip.puzzle.name]
    return slip.lines(base64.b64decode(packed).decode())
