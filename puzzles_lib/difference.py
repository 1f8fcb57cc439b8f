"""Find the few lines in which two versions of a source differ, and show them as text or HTML."""

import difflib
import html
from collections.abc import Sequence

from puzzles_lib.drawing.card import Theme

Lines = tuple[tuple[str, str], ...]  # (sign, text): "-" of the first, "+" of the second, " " of both

_CONTEXT = 1  # the number of lines shown around a change
_GAP = "…"
_PRE = "margin:0.4em 0;white-space:pre;overflow-x:auto;font-family:var(--jp-code-font-family, monospace)"


def difference(
    before: Sequence[str], after: Sequence[str], keys: tuple[Sequence[str], Sequence[str]] | None = None
) -> Lines:
    """Return the lines that differ with their neighbors, and a line for each gap between them.

    keys: what the lines are compared by, if it is not their text.
    """
    old, new = keys or (before, after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    lines: list[tuple[str, str]] = []
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number or group[0][1]:
            lines.append((" ", _GAP))
        for tag, i, j, k, l in group:  # noqa: E741
            if tag == "equal":
                lines += [(" ", text) for text in after[k:l]]
            else:
                lines += [("-", text) for text in before[i:j]] + [("+", text) for text in after[k:l]]
    return _dedented(lines)


def _dedented(lines: list[tuple[str, str]]) -> Lines:
    """Return the lines without their common indentation, except the ones that mark a gap."""
    code = [text for _, text in lines if text.strip() and text != _GAP]
    indent = min((len(text) - len(text.lstrip()) for text in code), default=0)
    return tuple((sign, text if text == _GAP else text[indent:]) for sign, text in lines)


def told(lines: Lines, legend: str) -> list[str]:
    """Return the difference as lines of text. legend: what the signs mean."""
    return [legend, *(f"{sign} {text}".rstrip() for sign, text in lines)]


def drawn(lines: Lines, legend: str, is_better: bool = True) -> str:
    """Return HTML with removed lines in red and added lines in green, as in any diff.

    is_better: whether the added lines replace worse ones. If they are a mistake, the colors would mislead, so
    all lines that differ are bold.
    """
    quiet = "opacity:0.8"
    colour = {"-": f"color:{Theme.WRONG.ink}", "+": f"color:{Theme.OK.ink}"}
    if not is_better:
        colour = dict.fromkeys(colour, "font-weight:bold")
    body = "".join(
        f'<div style="{colour.get(sign, quiet)}">{html.escape(f"{sign} {text}")}</div>'
        for sign, text in lines
    )
    head = f'<div style="{quiet}">{html.escape(legend)}</div>'
    return f'<pre style="{_PRE}">{head}{body}</pre>'
