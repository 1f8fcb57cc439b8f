"""Show some lines of a stage."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from puzzles_lib.compiler.locations import Line
from puzzles_lib.inspector import page

MOST_LINES = 60  # as text


@dataclass(frozen=True, repr=False)
class Listing(Sequence[str]):
    """Some lines of one stage: a sequence of strings, shown highlighted in a notebook.

    title: what the lines are. stage: their language. entries: the lines, each with its line of the kernel.
    """

    title: str
    stage: str
    entries: tuple[Line, ...]

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(line.text for line in self.entries[index])
        return self.entries[index].text

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.entries)

    def __repr__(self) -> str:
        return "\n".join([self.title if self.entries else f"{self.title}: no lines", *_some(self.entries)])

    def _repr_html_(self) -> str:
        name = page.identifier(self.title, self.entries)
        body = page.bold(self.title if self.entries else f"{self.title}: no lines")
        body += page.listing(self.entries, self.stage) if self.entries else ""
        return page.frame(name, page.style(name), body)


@dataclass(frozen=True, repr=False)
class History:
    """What some lines of a kernel became, stage by stage."""

    title: str
    source: Mapping[int, str]
    listings: tuple[Listing, ...]

    def __repr__(self) -> str:
        lines = [self.title, *(f"line {n}: {text.strip()}" for n, text in self.source.items())]
        for each in self.listings:
            lines += [each.title, *("  " + line for line in _some(each.entries, 12))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        name = page.identifier(self.title, self.listings)
        parts = [page.bold(self.title), page.source(self.source, ())]
        for each in self.listings:
            shown = page.listing(each.entries, each.stage, most=40)
            parts.append(page.section(html.escape(each.title), shown, opened=0 < len(each) <= 12))
        return page.frame(name, page.style(name), "".join(parts))


def _some(entries: Sequence[Line], most: int = MOST_LINES) -> list[str]:
    lines = [page.clipped(line.text) for line in entries[:most]]
    left = len(entries) - most
    return [*lines, f"... {left} more lines"] if left > 0 else lines
