"""Show a row per chapter and what is next (`progress`), and congratulate on a first pass (`cheer`)."""

import html
import re
from dataclasses import dataclass

from puzzles_lib import ledger
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.checker.report import Cheer
from puzzles_lib.drawing.card import Theme, card, heads
from puzzles_lib.ledger import OPEN, SOLVED, TRIED
from puzzles_lib.puzzle import Puzzle

_CELLS, _HTML_CELLS = 12, 24  # the number of cells of a bar
MOST_NAMED = 6  # puzzles or rungs, or runs of them, that are left in a chapter; of more, only their count
_CHARACTERS = {SOLVED: "█", TRIED: "▒", OPEN: "░"}
PUZZLE, RUNG, QUESTION = "puzzle", "rung", "question"  # the kinds of an `Item`
_COLOURS = {SOLVED: Theme.OK, TRIED: Theme.OPEN}


@dataclass(frozen=True)
class Item:
    """A puzzle, a version of chapter 15's kernel ("rung"), or a question. number: ``"9b"`` or ``"q2"``, say.

    state: ``"solved"``, ``"tried"`` or ``"open"``, which means not started.
    """

    number: str
    name: str
    state: str  # "solved", "tried" or "open"
    kind: str = PUZZLE

    @property
    def label(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True)
class ChapterProgress:
    """The progress in one chapter. notebook: the name of its file."""

    number: str
    title: str
    notebook: str
    items: tuple[Item, ...]

    def count(self, state: str) -> int:
        return sum(item.state == state for item in self.items)

    @property
    def short(self) -> str:
        """The number and the title, without what follows a colon or a comma."""
        return f"{self.number} {re.split('[:,]', self.title)[0]}"

    @property
    def left(self) -> str:
        """What is not solved yet: the numbers of puzzles and rungs, and how many questions."""
        unsolved = [item.kind for item in self.items if item.state != SOLVED]
        parts = []
        for kind in (PUZZLE, RUNG):
            named = _runs([item for item in self.items if item.kind == kind])
            if count := unsolved.count(kind):
                by_name = f"{kind}{'s' * (count > 1)} {', '.join(named)}"
                parts.append(by_name if len(named) <= MOST_NAMED else _counted(count, kind))
        questions = unsolved.count(QUESTION)
        return " · ".join(parts + [_counted(questions, QUESTION)] * (questions > 0))


def _runs(puzzles: list[Item]) -> list[str]:
    """Return the numbers of the unsolved puzzles; four or more in a row that rise become "28 to 34"."""
    runs: list[list[str]] = [[]]
    for puzzle in puzzles:
        if puzzle.state == SOLVED:
            runs.append([])
        else:
            runs[-1].append(puzzle.number)

    def rises(run: list[str]) -> bool:
        return run == sorted(run, key=lambda number: int(re.sub("[a-z]", "", number) or 0))

    return [n for run in runs for n in ([f"{run[0]} to {run[-1]}"] if len(run) > 3 and rises(run) else run)]


@dataclass(frozen=True)
class Progress:
    """The progress in all chapters, in order. note: a line about a file that could not be read, or None."""

    chapters: tuple[ChapterProgress, ...]
    note: str | None = None

    def count(self, state: str) -> int:
        """Return how many puzzles, rungs and questions are "solved", "tried" or "open" (not started)."""
        return sum(chapter.count(state) for chapter in self.chapters)

    @property
    def summary(self) -> str:
        solved, tried, left = (self.count(state) for state in (SOLVED, TRIED, OPEN))
        total = solved + tried + left
        return f"{solved} of {total} puzzles and questions solved, {tried} tried, {left} not started"

    @property
    def next(self) -> tuple[ChapterProgress, Item] | None:
        """The first puzzle or rung that is not solved; if all are, the first reading exercise that is not."""
        unsolved = [(c, item) for c in self.chapters for item in c.items if item.state != SOLVED]
        return next((pair for pair in unsolved if pair[1].kind != QUESTION), next(iter(unsolved), None))

    def __str__(self) -> str:
        lines = [self.summary] + ([self.note] if self.note else [])
        width = max((len(chapter.short) for chapter in self.chapters), default=0)
        for chapter in self.chapters:
            bar = "".join(_CHARACTERS[state] * count for state, count in _shares(chapter, _CELLS).items())
            counted = f"{chapter.count(SOLVED):2} of {len(chapter.items):2}"
            lines.append(f"{chapter.short:<{width}}  {bar}  {counted}  {chapter.left}".rstrip())
        if self.next:
            chapter, item = self.next
            lines.append(f"next: {item.label}, in {chapter.notebook}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        note = f"<div>{html.escape(self.note)}</div>" if self.note else ""
        here = self.next[0] if self.next else None
        begun = [each for each in self.chapters if each is here or each.count(OPEN) < len(each.items)]
        later = [each for each in self.chapters if each not in begun]
        after = "You have solved everything. Well done!"
        if self.next:
            chapter, item = self.next
            after = f"Next: {_link(chapter.notebook, f'{item.label}, in chapter {chapter.number}')}"
        head = heads("chapter", "solved", "", "left")
        table = f'<table style="margin:0.3em 0">{head}{"".join(map(_row, begun))}</table>'
        title = self.summary
        if later:  # 20 empty bars would only discourage
            title = f"{_counted(self.count(SOLVED), 'puzzle or question', 'puzzles and questions')} solved"
            more = f"{_counted(len(later), 'more chapter')}. In all: {self.summary}"
            rows = f"<table>{''.join(map(_row, later))}</table>"
            table += f'<details style="margin:0.3em 0"><summary>{more}</summary>{rows}</details>'
        return card(Theme.NEUTRAL, title, f"{note}{table}<div>{after}</div>")


def progress() -> Progress:
    """Return your progress in each chapter: which puzzles and questions are solved, tried or not started.

    In chapter 15, the versions of its kernel that you complete ("rungs") are counted, too. The progress is
    read from the file in which `check`, `answer` and `race` record it. Outside a notebook,
    print the result.
    """
    states, note = ledger.load()
    chapters = []
    for chapter in CHAPTERS:
        items = [Item(p.number, p.name, states.get(p.name, OPEN)) for p in chapter.puzzles]
        items += [Item(number, name, states.get(name, OPEN), RUNG) for number, name in chapter.rungs]
        for question in chapter.questions:
            number = question.id.partition("-")[2]
            items.append(Item(number, question.id, states.get(question.id, OPEN), QUESTION))
        if items:
            chapters.append(ChapterProgress(chapter.number, chapter.title, chapter.notebook, tuple(items)))
    return Progress(tuple(chapters), note)


def cheer(puzzle: Puzzle) -> Cheer:
    """Return the message for the first time that a puzzle of the course is solved.

    The next chapter comes next only if no question of this one is unanswered.
    """
    states, _ = ledger.load()
    (here,) = (chapter for chapter in CHAPTERS if puzzle in chapter.puzzles)
    everything = [p for chapter in CHAPTERS for p in chapter.puzzles]
    solved = sum(states.get(p.name) == SOLVED for p in everything)
    words = f"Solved! Puzzle {puzzle.number} is yours: {solved} of {len(everything)} puzzles."
    below = here.puzzles[here.puzzles.index(puzzle) + 1 :]
    if following := next((p for p in below if states.get(p.name) != SOLVED), None):
        return Cheer(words, f"puzzle {following.number}, below")
    if all(states.get(p.name) == SOLVED for p in here.puzzles):
        words += f" You have solved all puzzles of chapter {here.number}."
    if unanswered := sum(states.get(q.id) != SOLVED for q in here.questions):
        return Cheer(words, f"the rest of this chapter, with {_counted(unanswered, 'unanswered question')}")
    later = next(iter(CHAPTERS[CHAPTERS.index(here) + 1 :]), None)
    return Cheer(words, f"chapter {later.number}, {later.title}", later.notebook) if later else Cheer(words)


def _shares(chapter: ChapterProgress, cells: int) -> dict[str, int]:
    """Return the bar's cells by state, in order: at least one per state, and full only if all are solved."""
    total = len(chapter.items)
    solved = chapter.count(SOLVED) * cells // total
    begun = (chapter.count(SOLVED) + chapter.count(TRIED)) * cells // total
    solved = max(solved, chapter.count(SOLVED) > 0)
    begun = max(begun, solved + (chapter.count(TRIED) > 0))
    return {SOLVED: solved, TRIED: begun - solved, OPEN: cells - begun}


def _row(chapter: ChapterProgress) -> str:
    block = "display:inline-block;height:100%"
    parts = "".join(
        f'<span style="{block};width:{share / 4}em;background:{_COLOURS[state]}"></span>'
        for state, share in _shares(chapter, _HTML_CELLS).items()
        if share and state in _COLOURS
    )
    edge = f"width:{_HTML_CELLS / 4}em;height:0.7em;border:1px solid {Theme.QUIET};line-height:0"
    return _cells(
        _link(chapter.notebook, chapter.short),
        f"{chapter.count(SOLVED)} of {len(chapter.items)}",
        f'<div aria-hidden="true" style="{edge}">{parts}</div>',
        html.escape(chapter.left),
    )


def _cells(*contents: str) -> str:
    """Return a row of a table. It is as narrow as possible, and only the last column may wrap."""
    styles = ["text-align:left;white-space:nowrap"] * (len(contents) - 1) + ["text-align:left"]
    cells = (f'<td style="{s}">{content}</td>' for s, content in zip(styles, contents, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _link(notebook: str, text: str) -> str:
    return f'<a href="{html.escape(notebook)}">{html.escape(text)}</a>'


def _counted(number: int, what: str, several: str = "") -> str:
    return f"{number} {what if number == 1 else several or what + 's'}"
