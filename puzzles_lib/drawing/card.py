"""The card that shows a result in a notebook: a colored edge, a bold headline, and a body.

It is only HTML, so that `check` and `answer` do not have to wait for matplotlib.
"""

import html
import re
from enum import StrEnum

_CODE = re.compile(r"`([^`]+)`")


class Theme(StrEnum):
    """Jupyter's own colors, or else those of VS Code, so that dark themes work.

    Each has a fallback for a page without a theme, such as GitHub's, dark enough for text on white.
    """

    OK = "var(--jp-success-color1, var(--vscode-charts-green, #2e7d32))"
    WRONG = "var(--jp-error-color1, var(--vscode-charts-red, #c62828))"
    OPEN = "var(--jp-warn-color1, var(--vscode-editorWarning-foreground, #b35900))"  # begun, or not answered
    NEUTRAL = "var(--jp-brand-color1, var(--vscode-charts-blue, #1976d2))"  # neither correct nor wrong
    QUIET = "var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #757575))"

    @property
    def ink(self) -> str:
        """The color for text. It is closer to the theme's text, because Jupyter's are too faint to read."""
        text = "var(--jp-content-font-color1,var(--vscode-editor-foreground,#212121))"
        return f"color-mix(in srgb,{self} 60%,{text})"


def card(colour: Theme, headline: str, body: str = "") -> str:
    """Return a card whose headline screen readers read out. headline: text. body: HTML."""
    bold = f'<div role="status" style="font-weight:bold">{html.escape(headline)}</div>'
    return framed(colour, bold + body)


def framed(colour: Theme, body: str, **attributes: str) -> str:
    """Return HTML within the card's edge. attributes: those of the element, such as ``id``."""
    named = "".join(f'{name}="{html.escape(value)}" ' for name, value in attributes.items())
    return f'<div {named}style="border-left:4px solid {colour};padding:0.2em 0 0.2em 0.8em">{body}</div>'


def rows(*lines: str) -> str:
    """Return lines of text as HTML, without the empty ones."""
    return "".join(f"<div>{marked(line)}</div>" for line in lines if line)


def heads(*names: str) -> str:
    """Return a table's header row, which screen readers also read out."""
    return (
        "<tr>" + "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in names) + "</tr>"
    )


def marked(line: str) -> str:
    """Return a line of text as HTML; text between backticks becomes code."""
    return _CODE.sub(r"<code>\1</code>", untypeset(html.escape(line)))


def untypeset(escaped: str, tag: str = "span") -> str:
    """Return HTML in which no page typesets mathematics, as JupyterLab does between two dollar signs.

    escaped: text without tags. tag: the element that each dollar sign and backslash gets.
    """
    return re.sub(r"[$\\]", rf"<{tag}>\g<0></{tag}>", escaped)
