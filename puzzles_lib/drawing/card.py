"""The card that everything shows itself on in a notebook: a coloured edge, a headline in bold, and a body.

HTML alone, with none of the figures' matplotlib: `check` and `answer` do not wait for it.
"""

import html
import re
from enum import StrEnum

_CODE = re.compile(r"`([^`]+)`")


class Theme(StrEnum):
    """Jupyter's own colours, else those of VS Code, so that a dark theme has its say.

    Each has a fallback for a page without a theme, such as GitHub's, dark enough for text on white.
    """

    OK = "var(--jp-success-color1, var(--vscode-charts-green, #2e7d32))"
    WRONG = "var(--jp-error-color1, var(--vscode-charts-red, #c62828))"
    OPEN = "var(--jp-warn-color1, var(--vscode-editorWarning-foreground, #b35900))"  # begun, or no answer yet
    NEUTRAL = "var(--jp-brand-color1, var(--vscode-charts-blue, #1976d2))"  # nothing to be right or wrong
    QUIET = "var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #757575))"

    @property
    def ink(self) -> str:
        """The colour as a text's: nearer to the theme's own text, since Jupyter's are too faint to read."""
        text = "var(--jp-content-font-color1,var(--vscode-editor-foreground,#212121))"
        return f"color-mix(in srgb,{self} 60%,{text})"


def card(colour: Theme, headline: str, body: str = "") -> str:
    """A card whose headline assistive technology reads out. ``headline`` is text, ``body`` is HTML."""
    bold = f'<div role="status" style="font-weight:bold">{html.escape(headline)}</div>'
    return framed(colour, bold + body)


def framed(colour: Theme, body: str, **attributes: str) -> str:
    """The card's edge around any HTML. attributes: of the element, such as ``id`` and ``role``."""
    named = "".join(f'{name}="{html.escape(value)}" ' for name, value in attributes.items())
    return f'<div {named}style="border-left:4px solid {colour};padding:0.2em 0 0.2em 0.8em">{body}</div>'


def rows(*lines: str) -> str:
    """HTML of lines of text, one below the other; empty ones are left out."""
    return "".join(f"<div>{marked(line)}</div>" for line in lines if line)


def heads(*names: str) -> str:
    """A table's first row: what stands in each column, for who hears the table read as well."""
    return (
        "<tr>" + "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in names) + "</tr>"
    )


def marked(line: str) -> str:
    """HTML of a line of text, in which what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(line))
