"""Make the HTML of a player: a first frame without a script, and the script that replaces it.

It is one piece with style, script and data, and it requests nothing. The script finds its own element and
puts the player into a shadow tree, so that neither Jupyter's styles nor another player's affect it. The
colors are the theme's.
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
    """Return the whole HTML. data: the text of `packing.packed`."""
    inside = f"{_still(title, frame)}<script>{_script()}\nplay({_style()!r}, {data!r});}})();</script>"
    return framed(
        Theme.NEUTRAL,
        inside,
        **{"class": "puzzles-player", "data-lm-suppress-shortcuts": "true"},
    )


def _still(title: str, frame: Frame) -> str:
    """Return the first frame."""
    lines = []
    for number, text, lit in frame.lines:
        line = f"{'>' if lit else ' '} {number:>4}  {html.escape(text)}"
        lines.append(f"<b>{line}</b>" if lit else line)
    source = "\n".join(lines)
    names = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in row) + "</tr>"
        for row in frame.names
    )
    head = heads("name", "role", "kind", "values")
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
    """Return the script within a function, because a page may contain it many times."""
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
