"""Make the HTML of compiled kernels: folded stages next to the kernel's lines, and diffs.

There are no scripts, because JupyterLab runs none in an output that is not trusted yet. A line of the
kernel is chosen with a checkbox, because JupyterLab keeps the arrow keys that radio buttons need. A CSS
rule per line then marks what the line became. The colors are the theme's. Ids come from the content, so
equal output has equal HTML.
"""

import hashlib
import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from puzzles_lib.compiler.locations import Line
from puzzles_lib.drawing.card import Theme, framed
from puzzles_lib.inspector.lexers import highlight

MOST_LINES = 120  # the most lines of a stage in one output, because notebooks keep them
MOST_WIDTH = 240  # the most characters of a line
_MARK = f"color-mix(in srgb,{Theme.OPEN} 28%,transparent)"
_ADDED = f"color-mix(in srgb,{Theme.OK} 22%,transparent)"
_REMOVED = f"color-mix(in srgb,{Theme.WRONG} 22%,transparent)"
# A page that nbconvert makes lets outputs inherit the prose's font, and Jupyter breaks lines within words
_TYPE = (
    "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);"
    "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
)


def _ink(kind: str, fallback: str) -> str:
    """Return the color of Jupyter's editor for a kind of word, made stronger: its own are too faint."""
    return f"color:color-mix(in srgb,var(--jp-mirror-editor-{kind}-color,{fallback}) 50%,currentColor)"


def identifier(*parts: object) -> str:
    """Return an id for an element, which is the same for the same content."""
    return "c" + hashlib.sha256(repr(parts).encode()).hexdigest()[:10]


def style(name: str, rules: str = "") -> str:
    """Return the style sheet of one output."""
    return (
        f"<style>#{name}{{color:var(--jp-content-font-color1,inherit)}}"
        f"#{name} pre{{margin:.2em 0;max-height:46em;overflow:auto;line-height:1.35;{_TYPE};background:none}}"
        f"#{name} pre>*{{display:block;text-decoration:none;min-height:1.35em}}"
        f"#{name} pre[tabindex]>*{{padding-left:8ch;text-indent:-8ch}}"
        f"#{name} pre b{{font-weight:normal;{_ink('keyword', '#008000')}}}"
        f"#{name} pre i{{{_ink('comment', '#408080')}}}"
        f"#{name} pre bdi{{{_ink('number', '#a0522d')}}}"
        f"#{name} pre em{{font-style:normal;{_ink('string', '#ba2121')}}}"
        f"#{name} summary{{cursor:pointer}}#{name} ins{{background:{_ADDED}}}"
        f"#{name} del{{background:{_REMOVED}}}{rules}</style>"
    )


def listing(lines: Sequence[Line], language: str, what: str = "", most: int = MOST_LINES) -> str:
    """Return lines in a ``<pre>``, each marked with the kernel's line that it comes from.

    If there are more than ``most`` lines, only the first are shown. With ``what``, which says where all of
    them are, the first ones of each line of the kernel are shown.
    """
    shown: Sequence[Line | None] = lines[:most]
    note = f"the first {most} of {len(lines)} lines" if len(lines) > most else ""
    if note and what:
        shown = first_of_each(lines, most)
        count = sum(line is not None for line in shown)
        note = (
            f"{count} of {len(lines)} lines, the first ones of each line of the kernel. For all lines: {what}"
        )
    coloured = highlight([clipped(line.text) if line else "…" for line in shown], language)
    rows = [
        f"<span{f' class=l{line.source}' if line and line.source else ''}>{text}\n</span>"
        for line, text in zip(shown, coloured, strict=True)
    ]
    note = f"<div><i>{html.escape(note, quote=False)}</i></div>" if note else ""
    return f'<pre tabindex="0">{"".join(rows)}</pre>{note}'


def first_of_each(lines: Sequence[Line], most: int) -> list[Line | None]:
    """Return about ``most`` lines, equally many for each line of the kernel, with None for each gap."""
    ranks: list[int] = []
    seen: Counter[int | None] = Counter()
    for line in lines:
        seen[line.source] += 1
        ranks.append(seen[line.source])
    sizes, each = Counter(ranks), 1
    total = sizes[1]
    while sizes[each + 1] and total + sizes[each + 1] <= most:
        each += 1
        total += sizes[each]
    kept: list[Line | None] = []
    for line, rank in zip(lines, ranks, strict=True):
        if rank <= each:
            kept.append(line)
        elif kept and kept[-1] is not None:
            kept.append(None)
    return kept


def source(lines: Mapping[int, str], reached: Iterable[int]) -> str:
    """Return the kernel's lines; those that became something have a checkbox."""
    reached = set(reached)
    coloured = highlight(list(lines.values()), "python")
    width = len(str(max(lines, default=0)))
    rows = []
    for number, text in zip(lines, coloured, strict=True):
        label = f"{number:>{width}}  {text}\n"
        if number in reached:
            rows.append(
                f'<label class=s{number}><input type="checkbox" aria-label="line {number}">{label}</label>'
            )
        else:
            rows.append(f"<span>{label}</span>")
    return f"<pre>{''.join(rows)}</pre>"


def linked(name: str, reached: Iterable[int]) -> str:
    """Return the CSS rules that mark what became of the ticked lines and the line under the mouse."""
    rules = [
        f"#{name} label:has(input){{cursor:pointer}}#{name} .py pre>span{{padding-left:1.6em}}"
        f"#{name} .py input{{margin:0 .4em 0 0;width:1.2em;height:.9em;vertical-align:middle}}"
        f"#{name}:has(.only:checked):has(.py :checked) .ir pre>*{{display:none}}"
    ]
    for n in sorted(reached):
        rules.append(
            f"#{name}:has(.s{n}:hover) .l{n},#{name}:has(.s{n} :checked) .l{n},"
            f"#{name}:has(.l{n}:hover) .s{n},#{name} .s{n}:has(:checked){{background:{_MARK}}}"
            f"#{name}:has(.only:checked):has(.s{n} :checked) .ir pre>.l{n}{{display:block}}"
        )
    return "".join(rules)


def clipped(text: str) -> str:
    return text if len(text) <= MOST_WIDTH else text[: MOST_WIDTH - 1] + "…"


def section(title: str, body: str, opened: bool = False, kind: str = "ir") -> str:
    """Return a part that folds without scripts."""
    return f"<details class={kind}{' open' if opened else ''}><summary>{title}</summary>{body}</details>"


def frame(name: str, sheet: str, body: str, ok: bool = True) -> str:
    """Return the element around an output."""
    return framed(Theme.NEUTRAL if ok else Theme.WRONG, sheet + body, id=name)


def bold(text: str) -> str:
    return f'<div style="font-weight:bold">{html.escape(text)}</div>'
