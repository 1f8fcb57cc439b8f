"""A checked reading exercise as data."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_KINDS = (bool, int, float, str, set, tuple)


@dataclass(frozen=True)
class Nudge:
    """The words for one kind of mistake, shown if ``when(value, right)`` is true.

    numbers: numbers to insert into the words, as ``str.format`` does, computed from the wrong answer.
    """

    when: Callable[[Any, Any], bool]
    words: str
    numbers: Callable[[Any], Mapping[str, object]] | None = None

    def told(self, value: Any) -> str:
        """Return the words for a wrong answer."""
        return self.words.format(**self.numbers(value)) if self.numbers else self.words


@dataclass(frozen=True)
class Question:
    """A question about a compiled kernel, and how its answer is found.

    id: ``"ch13-q1"``: the chapter, and a number within it.
    asks: the question, as a sentence.
    right: computes the answer from a compilation when it is first needed; nothing is stored.
    kind: the type of an answer: ``bool``, ``int``, ``float`` (0.1% off is still correct), ``str`` (capitals
        and spaces do not matter), ``set`` (of str or int, in any order) or ``tuple``.
    nudges: tried in order on a wrong answer; the first that fits is shown.
    nudge: shown if none fits; it says where to look. No nudge may contain the answer.
    why: shown with a correct answer: the reason, in a sentence.
    same: for a question with several correct answers, ``same(value, right)`` instead of equality.
    computed: whether the answer depends on the learner's own code. Grading does not run it, and leaves the
        question out.

    Raises ValueError if the parts do not fit together.
    """

    id: str
    asks: str
    right: Callable[[], Any]
    kind: type
    nudge: str
    nudges: tuple[Nudge, ...] = ()
    same: Callable[[Any, Any], bool] | None = None
    computed: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"ch\d\d-q\d+", self.id):
            raise ValueError(f"Question: id must have a form such as 'ch13-q1', but is {self.id!r}")
        if self.kind not in _KINDS:
            allowed = ", ".join(k.__name__ for k in _KINDS)
            raise ValueError(f"{self.id}: kind must be one of {allowed}, but is {self.kind!r}")

    @property
    def chapter(self) -> str:
        """The chapter's number as text, such as ``"13"`` for ``"ch13-q1"``."""
        return self.id[2:4]
