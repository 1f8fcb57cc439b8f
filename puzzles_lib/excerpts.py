"""A few lines of the library's own source, for a notebook to read aloud."""

import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, repr=False)
class Excerpt:
    """Lines of a file, highlighted in a notebook."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_markdown_(self) -> str:
        return f"```python\n{self}\n```"


def excerpt(file: str, first: str, last: str) -> Excerpt:
    """The lines of a file of this package from the first that holds one text to the next with the other.

    file: such as ``"kernels/quantize.py"``. A statement that begins on the last line is taken whole.
    Raises ValueError where there are none.
    """
    path = Path(__file__).parent / file
    lines = path.read_text().splitlines()
    start = next((n for n, line in enumerate(lines) if first in line), None)
    end = next((n for n, line in enumerate(lines) if last in line and start is not None and n >= start), None)
    if end is None:
        raise ValueError(f"excerpt: {path.name} has no lines from {first!r} to {last!r}")
    while "\n".join(lines[start : end + 1]).count("(") > "\n".join(lines[start : end + 1]).count(")"):
        end += 1  # to the end of the statement
    return Excerpt(tuple(textwrap.dedent("\n".join(lines[start : end + 1])).splitlines()))
