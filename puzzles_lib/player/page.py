"""The HTML of a player: a first frame that needs no script, and the script that takes its place.

One piece: style, script and data stand in it, and it asks for nothing. The script finds its own element
from where it stands; it puts the player into a shadow tree, so that neither Jupyter's styles nor another
player's reach it. Colours are the theme's.
"""

import functools
import html
from pathlib import Path

from puzzles_lib.drawing.card import Theme, framed, heads
from puzzles_lib.player.frame import Frame

NO_SCRIPT = (
    "This is the first frame. To step through the run, trust the notebook and open it in Jupyter or VS Code, "
    "or run the cell again."
)


def html_of(title: str, frame: Frame, data: str) -> str:
    """The whole piece. data: what `packing.packed` made."""
    inside = f"{_still(title, frame)}<script>{_script()}\nplay({_style()!r}, {data!r});}})();</script>"
    return framed(
        Theme.NEUTRAL,
        inside,
        **{"class": "puzzles-player", "data-lm-suppress-shortcuts": "true"},
    )


def _still(title: str, frame: Frame) -> str:
    """The first frame."""
    lines = []
    for number, text, lit in frame.lines:
        line = f"{'>' if lit else ' '} {number:>4}  {html.escape(text)}"
        lines.append(f"<b>{line}</b>" if lit else line)
    source = "\n".join(lines)
    names = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in row) + "</tr>"
        for row in frame.names
    )
    head = heads("name", "here", "kind", "values")
    code = "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px)"
    parts = [
        f'<div style="font-weight:bold">{html.escape(title)}</div>',
        f"<div>{html.escape(frame.place)}</div>",
        f'<pre style="overflow-x:auto;margin:.4em 0">{source}</pre>',
        f'<table style="{code}"><thead>{head}</thead><tbody>{names}</tbody></table>' if names else "",
        *(f"<div>{html.escape(note)}</div>" for note in frame.notes),
        f"<p><em>{NO_SCRIPT}</em></p>",
    ]
    return f'<div class="still">{"".join(parts)}</div>'


@functools.cache
def _script() -> str:
    """The script, in a function of its own: a page may hold it many times."""
    return f"(() => {{\n{_file('player.js')}"


@functools.cache
def _style() -> str:
    colours = {
        "ok": Theme.OK,
        "wrong": Theme.WRONG,
        "open": Theme.OPEN,
        "brand": Theme.NEUTRAL,
        "quiet": Theme.QUIET,
    }
    named = ";".join(f"--{name}:{value}" for name, value in colours.items())
    return " ".join(f":host{{{named}}} {_file('player.css')}".split())


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
