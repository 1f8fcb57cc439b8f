"""Read the hints of a chapter from `hints.md` in its folder.

    # MASKED_ADD

    ## What is new

    The lines of puzzle 1, and one more.

    ## Who needs it
    fits: out of bounds, values (on_ties)
    unless: negative, tl.load(mask=)

    Both sides do.

A puzzle's hints go from a nudge to nearly the answer. The optional line ``fits:`` names the kinds of verdict
that a hint is about. Words in parentheses must occur in the report on the first case that fails, or be about
the code: ``no mask in tl.load`` asks whether a load has none. The optional
line ``unless:`` names what tells that the hint is about another mistake: words of this report, or an argument
that all calls of a function have already. (``other=`` counts for loads with a mask.) If a puzzle is solved
twice, its second kernel follows a colon: ``# LONG_SOFTMAX: online_softmax_kernel``.

The line ``before the cause`` below a title is for a kernel that's handed out with a bug. Such a hint only
leads to evidence, and it's shown until the learner has said the cause. All other hints follow later.
"""

import re
from dataclasses import dataclass

_PUZZLE = re.compile(r"^# (?=[A-Z0-9_]+(?::|$))", re.MULTILINE)  # not a comment in an excerpt of code
_HINT = re.compile(r"^## ", re.MULTILINE)
_EARLY = "before the cause"
_FITS = re.compile(r"([\w ]*\w)(?: \(([^)]+)\))?")


@dataclass(frozen=True)
class Fit:
    """What a hint is about: a kind of verdict, and words of the failure; "" fits any."""

    kind: str
    words: str = ""


@dataclass(frozen=True)
class Hint:
    """A hint in Markdown, the verdicts that it fits, and what speaks against it.

    early: whether it's for learners who haven't said yet what is wrong with a kernel that has a bug.
    """

    title: str
    text: str
    fits: tuple[Fit, ...] = ()
    unless: tuple[str, ...] = ()
    early: bool = False


Key = tuple[str, str]
"""A puzzle's name, and the name of the kernel that the hints are for; "" for any other kernel."""


def read_hints(text: str) -> dict[Key, tuple[Hint, ...]]:
    """Return the hints of a chapter, by puzzle and kernel. Raise ValueError if the text is malformed."""
    found: dict[Key, tuple[Hint, ...]] = {}
    before, *puzzles = _PUZZLE.split(text)
    if before.strip():
        raise ValueError(f"hints before the first puzzle: {before.strip():.60}")
    for part in puzzles:
        heading, *hints = _HINT.split(part)
        head, _, stray = heading.partition("\n")
        name, _, kernel = head.partition(":")
        key = name.strip().lower(), kernel.strip()
        if key in found or stray.strip() or not hints:
            raise ValueError(f"# {head}: twice, without hints, or with text before the first hint")
        found[key] = tuple(_hint(hint) for hint in hints)
    return found


def _hint(part: str) -> Hint:
    title, _, text = part.partition("\n")
    early = text.startswith(f"{_EARLY}\n")
    text = text.removeprefix(f"{_EARLY}\n") if early else text
    fits: tuple[Fit, ...] = ()
    if text.startswith("fits:"):
        line, _, text = text.partition("\n")
        fits = tuple(_fit(each.strip(), title) for each in line.removeprefix("fits:").split(","))
    unless: tuple[str, ...] = ()
    if text.startswith("unless:"):
        line, _, text = text.partition("\n")
        unless = tuple(each.strip() for each in line.removeprefix("unless:").split(","))
        if not fits or not all(unless):
            raise ValueError(f"## {title}: unless needs words, and a line 'fits:' before it")
    if not title.strip() or not text.strip():
        raise ValueError(f"## {title}: a hint has a title and a text")
    return Hint(title.strip(), text.strip(), fits, unless, early)


def _fit(text: str, title: str) -> Fit:
    match = _FITS.fullmatch(text)
    if not match:
        raise ValueError(f"## {title}: fits must have a form such as 'values (on_ties)', but is {text!r}")
    return Fit(match[1], match[2] or "")
