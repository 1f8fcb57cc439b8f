"""`progress()`: every puzzle and reading exercise with its state, in the order of the syllabus."""

import html
from dataclasses import dataclass

from puzzles_lib import ledger
from puzzles_lib.card import Theme
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.ledger import OPEN, SOLVED, TRIED

_MARKS = {  # beside the word, never instead of it
    SOLVED: ("●", Theme.OK),
    TRIED: ("◐", Theme.OPEN),
    OPEN: ("○", Theme.QUIET),
}


@dataclass(frozen=True)
class PuzzleProgress:
    number: str
    name: str
    state: str  # "solved", "tried" or "open"


@dataclass(frozen=True)
class ChapterProgress:
    number: str
    title: str
    puzzles: tuple[PuzzleProgress, ...]


@dataclass(frozen=True)
class Progress:
    """All puzzles in syllabus order; `note` is a line about a file that could not be read, or None."""

    chapters: tuple[ChapterProgress, ...]
    note: str | None = None

    def count(self, state: str) -> int:
        """How many puzzles are "solved", "tried" or "open"."""
        return sum(puzzle.state == state for chapter in self.chapters for puzzle in chapter.puzzles)

    @property
    def summary(self) -> str:
        solved, tried, left = (self.count(state) for state in (SOLVED, TRIED, OPEN))
        return f"{solved} of {solved + tried + left} puzzles solved, {tried} tried, {left} open"

    def __str__(self) -> str:
        lines = [self.summary] + ([self.note] if self.note else [])
        for chapter in self.chapters:
            lines.append(f"{chapter.number} {chapter.title}")
            lines += [f"   {p.state:<6}   {p.number:<3} {p.name}" for p in chapter.puzzles]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(_row(chapter, puzzle) for chapter in self.chapters for puzzle in chapter.puzzles)
        note = f"<div>{html.escape(self.note)}</div>" if self.note else ""
        return (
            '<div style="color:var(--jp-content-font-color1, inherit)">'
            f'<div role="status"><strong>{self.summary}</strong>{note}</div>'
            f'<table style="margin:0.3em 0">{rows}</table></div>'
        )


def progress() -> Progress:
    """All puzzles with their state: solved, tried, open. Changes nothing."""
    states, note = ledger.load()
    chapters = []
    for chapter in CHAPTERS:
        puzzles = [(p.name, p.number, p.name) for p in chapter.puzzles]
        puzzles += [(q.id, q.id.partition("-")[2], "reading exercise") for q in chapter.questions]
        entries = tuple(PuzzleProgress(number, name, states.get(key, OPEN)) for key, number, name in puzzles)
        if entries:
            chapters.append(ChapterProgress(chapter.number, chapter.title, entries))
    return Progress(tuple(chapters), note)


def _row(chapter: ChapterProgress, puzzle: PuzzleProgress) -> str:
    """A table row; that of a chapter's first puzzle names the chapter."""
    left = 'style="text-align:left;vertical-align:top"'
    head = ""
    if puzzle is chapter.puzzles[0]:
        title = html.escape(f"{chapter.number} {chapter.title}")
        head = f'<th scope="rowgroup" rowspan="{len(chapter.puzzles)}" {left}>{title}</th>'
    mark, colour = _MARKS[puzzle.state]
    state = f'<span aria-hidden="true" style="color:{colour.ink}">{mark}</span> {puzzle.state}'
    cells = (state, html.escape(puzzle.number), html.escape(puzzle.name))
    return f"<tr>{head}{''.join(f'<td {left}>{cell}</td>' for cell in cells)}</tr>"
