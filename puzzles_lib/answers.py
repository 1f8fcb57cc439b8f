"""Check the answer to a reading exercise: `answer`. A wrong answer gets a nudge, never the solution."""

import dataclasses
import math
import operator
from dataclasses import dataclass
from typing import Any

from puzzles_lib import ledger
from puzzles_lib.chapters import questions
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing.card import Theme, card, rows
from puzzles_lib.question import Question
from puzzles_lib.staleness import stale_name

RIGHT, WRONG, OPEN, UNCLEAR = "right", "wrong", "open", "not checked"
_HEADLINES = {
    RIGHT: "Correct.",
    WRONG: "Not quite.",
    OPEN: "Not answered yet.",
    UNCLEAR: "Not checked.",
}
_NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    set: "a set, such as {1, 2} or {'a', 'b'}",
    tuple: "a tuple",
}
_NOT_RUN = "Your kernel wasn't run, so this says nothing about your answer: read the report above."
_OLD = (
    "`{0}` is from an older run: the newest cell that sets it stopped with an error. "
    "Run that cell again, read its error, and then run this cell."
)


@dataclass(frozen=True)
class Answer:
    """What `answer` returns: whether the answer is correct, and what to look at if it isn't.

    id: the question's. status: ``"right"``, ``"wrong"``, ``"open"`` (no answer yet) or ``"not checked"``.
    words: the reason, the next step, or the question. notes: what else the reader should know.
    """

    id: str
    status: str
    words: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == RIGHT

    @property
    def headline(self) -> str:
        return f"{self.id}: {_HEADLINES[self.status]}"

    def __repr__(self) -> str:
        words = ["       " + self.words] if self.words else []
        return "\n".join([self.headline, *words, *self.notes])

    def _repr_html_(self) -> str:
        colour = {RIGHT: Theme.OK, WRONG: Theme.WRONG}.get(self.status, Theme.OPEN)
        return card(colour, self.headline, rows(self.words, *self.notes))


def answer(id: str, value: object = ...) -> Answer:
    """Check the answer to a reading exercise, such as ``answer("ch13-q1", 128)``.

    If a question is about your own kernel, the value is the report of its check. The correct answer is
    computed when you ask, often from a compilation. ``...`` or None means not answered yet.

    The result shows a line about your answer, and its ``ok`` is True if the answer is correct. This function
    doesn't raise: an unknown id and a value of the wrong kind get a line of explanation.
    """
    question = questions().get(id) if isinstance(id, str) else None
    if question is None:
        known = ", ".join(q for q in questions() if isinstance(id, str) and q[:4] == id[:4]) or ", ".join(
            dict.fromkeys(f"{q[:4]}-..." for q in questions())
        )
        return Answer(_shown(id), UNCLEAR, f"There is no such question. Try one of these: {known or 'none'}.")
    if old := stale_name("answer") if value is not ... and value is not None else "":
        return Answer(question.id, UNCLEAR, _OLD.format(old))
    found = judge(question, value)
    if found.status not in (RIGHT, WRONG):
        return found
    given, _ = _as_kind(value.passed if isinstance(value, Report) else value, question.kind)
    note = ledger.record(id, found.ok, "" if found.ok else "wrong answer", _attempt(given))
    return dataclasses.replace(found, notes=(note,)) if note else found


def judge(question: Question, value: object) -> Answer:
    """Check an answer without changing the learner's progress. Never raises."""
    if isinstance(value, Report):
        if value.passed is not None and value.verdict:
            return Answer(question.id, UNCLEAR, _NOT_RUN)
        value = value.passed
    if value is ... or value is None:
        return Answer(question.id, OPEN, question.asks)
    given, complaint = _as_kind(value, question.kind)
    if complaint:
        is_short = question.kind is tuple and not isinstance(value, set | frozenset)
        form = f" The question: {question.asks}" if is_short else ""  # it says how many parts
        return Answer(question.id, UNCLEAR, f"{complaint}{form}")
    try:
        right = question.right()
        if complaint := _of_another_kind(given, right):
            return Answer(question.id, UNCLEAR, complaint)
        ok = _same(question, given, right)
        words = question.why if ok else _nudge(question, given, right)
    except Exception as error:
        text = " ".join(str(error).split())
        words = f"The correct answer cannot be computed here ({type(error).__name__}: {text:.200})."
        return Answer(question.id, UNCLEAR, words)
    return Answer(question.id, RIGHT if ok else WRONG, words)


def _same(question: Question, given: Any, right: Any) -> bool:
    if question.same:
        return bool(question.same(given, right))
    if question.kind is float:
        return math.isclose(given, right, rel_tol=1e-3)
    return given == _as_kind(right, question.kind)[0]


def _nudge(question: Question, given: object, right: object) -> str:
    return next((n.told(given) for n in question.nudges if n.when(given, right)), question.nudge)


def _as_kind(value: Any, kind: type) -> tuple[object, str]:
    """Return the value in the kind's plain form, or a line that says what is wrong with it."""
    wrong = f"The answer should be {_NAMES[kind]}, but {_shown(value)} is {_a(type(value).__name__)}."
    try:
        if kind in (tuple, set) and callable(getattr(value, "tolist", None)):
            value = value.tolist()  # of a tensor
        if kind is bool:
            return (value, "") if isinstance(value, bool) else (None, wrong)
        if isinstance(value, bool):
            return None, wrong
        if isinstance(value, str) and kind in (int, float):  # "20", or as a report writes a factor: "1.06x"
            value = float(value.strip().rstrip("x×"))
        if kind is int:
            return int(value) if _is_whole(value) else operator.index(value), ""
        if kind is float:
            return float(value), ""
        if kind is str:
            return (_plain(value), "") if isinstance(value, str) else (None, wrong)
        if kind is tuple and isinstance(value, set | frozenset):
            return (
                None,
                f"A set has no order: write the numbers in order, as ({', '.join('?' * len(value))}).",
            )
        if kind is tuple and getattr(value, "ndim", 0) == 1:  # a tensor, as `run` takes it
            value = value.tolist()  # type: ignore[union-attr]
        if isinstance(value, list | tuple | set | frozenset):
            items = [_plain(v) if isinstance(v, str) else v for v in value]
            return (set(items) if kind is set else tuple(items)), ""
    except Exception:  # a foreign __index__ or __float__ may raise anything
        pass
    return None, wrong


def _of_another_kind(given: object, right: object) -> str:
    """Say that a set or a tuple has text where the correct one has only numbers; "" if not."""
    if not isinstance(given, set | tuple) or not isinstance(right, set | frozenset | list | tuple):
        return ""
    numbers = bool(right) and all(isinstance(part, int | float) for part in right)
    is_text = any(isinstance(part, str) for part in given)
    return "Write numbers without quotation marks." if numbers and is_text else ""


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"


def _shown(value: object) -> str:
    try:
        return f"{value!r:.40}"
    except Exception:  # a foreign __repr__ may raise anything
        return "an object"


def _attempt(given: object) -> str:
    """Return a text that is the same for equal tries; the order of a set doesn't matter."""
    try:
        return repr(sorted(map(repr, given)) if isinstance(given, set) else given)
    except Exception:  # a foreign __repr__, or an int with too many digits
        return ""


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
