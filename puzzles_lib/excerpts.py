"""Show a few lines of the library's own source in a notebook."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST = 86  # in a window of 1000 pixels, longer lines break anywhere, even within a name


@dataclass(frozen=True, repr=False)
class Excerpt:
    """Lines of a file, highlighted in a notebook."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_markdown_(self) -> str:
        shown: list[str] = []
        for line in self.lines:
            *parts, last = _broken(line, _in_brackets(shown))
            shown += [part if _unclosed([*shown, part]) else f"{part} \\" for part in parts]
            shown.append(last)
        return "\n".join(("```python", *shown, "```"))


def _broken(line: str, inside: bool = False) -> list[str]:
    """Break a line into parts that fit: a comment goes above its code, and continuations are indented.

    inside: whether the line is within brackets, so that it's a continuation itself and isn't indented again.
    """
    code, mark, comment = line.partition("  # ")
    if len(line) <= LONGEST:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if mark and code.strip():
        return [*_broken(f"{indent}# {comment}"), *_broken(code, inside)]
    further = indent + ("# " if line.lstrip().startswith("#") else "" if inside else " " * 8)
    return textwrap.wrap(line, LONGEST - 2, subsequent_indent=further, break_long_words=False)


def _unclosed(lines: Sequence[str]) -> bool:
    """Return whether the parts end with a comment or an open bracket, so that Python needs no backslash."""
    return lines[-1].lstrip().startswith("#") or _in_brackets(lines)


def _in_brackets(lines: Sequence[str]) -> bool:
    """Return whether lines end with an open bracket."""
    text = "\n".join(lines)
    return any(text.count(a) > text.count(b) for a, b in ("()", "[]", "{}"))


def excerpt(file: str, first: str, last: str) -> Excerpt:
    """Return lines of a file in this package, to show them in a notebook.

    They start at the first line that contains ``first``, and end at the next line that contains ``last``. A
    statement that begins on the last line is included as a whole. Comments for the formatter are left out.

    file: the path below ``puzzles_lib``, such as ``"kernels/quantize.py"``.

    Raises ValueError if there are no such lines, or no such file.
    """
    path = Path(__file__).parent / file
    if not path.is_file():
        raise ValueError(f"excerpt: there is no file {file!r} in the library")
    lines = path.read_text().splitlines()
    start = next((n for n, line in enumerate(lines) if first in line), None)
    end = next((n for n, line in enumerate(lines) if last in line and start is not None and n >= start), None)
    if end is None:
        raise ValueError(f"excerpt: {path.name} has no lines from {first!r} to {last!r}")
    while "\n".join(lines[start : end + 1]).count("(") > "\n".join(lines[start : end + 1]).count(")"):
        end += 1  # to the end of the statement
    text = textwrap.dedent("\n".join(lines[start : end + 1]))
    return Excerpt(tuple(re.sub(r" +# fmt: skip$", "", text, flags=re.MULTILINE).splitlines()))
