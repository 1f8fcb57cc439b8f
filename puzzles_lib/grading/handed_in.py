"""Find what a student handed in for each exercise, in the notebooks' bytes, without running anything.

A puzzle's kernel is ``NAME_kernel`` in the cell ``pNUMBER-kernel`` of its chapter's notebook. An answer is
the value in ``answer("chNN-qM", value)``. If cells were deleted, copied or renamed, they are found by their
contents, and a remark says so.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from puzzles_lib.chapters import Chapter
from puzzles_lib.grading import plain
from puzzles_lib.grading.asides import asides
from puzzles_lib.grading.plain import Definition, Known, NotPlain
from puzzles_lib.notebooks import JUST_THE_PUZZLES
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.stubs import HOLE

MOST_CELLS = 5000  # of a notebook
LONGEST_ID = 80  # characters; Jupyter's have 64 at most
LONGEST_ANSWER = 10_000  # characters
_QUESTION = re.compile(r"ch\d\d-q\w{1,8}")
_CELLS = {"15b": "15"}  # of a puzzle whose number has changed since its cell got an id


class Unreadable(ValueError):
    """The bytes are not a notebook. The message says why."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as it was handed in: the sources of all cells that it needs, in order of execution."""

    name: str
    sources: tuple[str, ...]


@dataclass
class Found:
    """What was found for one puzzle: a kernel, or why there is none to check. remarks: about the search.

    problem: ``"missing"``, or ``"refused"`` for a kernel that must not be run; ``line`` of the cell and
    ``source`` say where.
    """

    kernel: Kernel | None = None
    problem: str = ""
    words: str = ""
    line: int = 0
    source: str = ""
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Cell:
    """A code cell. definitions: None if the cell is not Python; ``fault`` says why."""

    id: str
    source: str
    definitions: tuple[Definition, ...] | None
    answers: Mapping[str, str]
    aside: str = ""
    fault: NotPlain | None = None

    def defining(self, name: str) -> Definition | None:
        """Return the last definition of the name."""
        return next((d for d in reversed(self.definitions or ()) if d.name == name), None)


class Notebook:
    """The cells of one notebook file. Raises Unreadable if the bytes are not a notebook."""

    def __init__(self, data: bytes):
        cells = _cells(data)
        self.ids = [str(cell.get("id", ""))[:LONGEST_ID] for cell in cells]
        self.misleading = False
        self._cells: list[_Cell] = []
        known = Known()
        for cell, id in zip(cells, self.ids, strict=True):
            if cell.get("cell_type") == "code":
                source = _source(cell)
                self.misleading = self.misleading or plain.misleading(source)
                self._cells.append(_read(id, source, known))

    def asides(self) -> list[str]:
        """Return what cells would have done besides the exercises; none was run."""
        return [
            f"cell {c.id or 'without an id'}, which was not run: {c.aside}" for c in self._cells if c.aside
        ]

    def answers(self, asked: Collection[str]) -> dict[str, str]:
        """Return the last value given to each ``answer``, as text that `plain.value` reads.

        asked: the ids of all questions.
        """
        found: dict[str, str] = {}
        for cell in self._cells:
            for id, text in ((i, t) for i, t in cell.answers.items() if i in asked):
                if found.get(id, "...") == "..." or text != "...":
                    found[id] = text
        return found

    def is_begun(self) -> bool:
        """Return whether the hole of a cell that checks a kernel has been filled."""
        return any("check(" in cell.source and HOLE not in cell.source for cell in self._cells)

    def traces(self, chapter: Chapter) -> int:
        """Return how many kernels, checks and answers of this chapter it contains."""
        named = "\n".join(cell.source for cell in self._cells)
        answers = len(set(re.findall(rf"\bch{chapter.number}-q\d+", named)))
        cells = sum(cell_id(puzzle) in self.ids for puzzle in chapter.puzzles)
        checks = sum(f", {puzzle.name.upper()})" in named for puzzle in chapter.puzzles)
        return answers + cells + checks

    def kernel_of(self, puzzle: Puzzle) -> Found:
        """Return a puzzle's kernel."""
        found = Found()
        place = self._place(puzzle, found)
        if place is None:
            return found
        number, name = place
        cell = self._cells[number]
        definition = cell.defining(name)
        assert definition is not None
        if definition.complaint:
            return self._refused(cell, definition.complaint, found)
        sources, complaint = self._with_what_it_needs(number, definition, found)
        if complaint:
            return self._refused(cell, complaint, found)
        found.kernel = Kernel(name, tuple(sources))
        return found

    def _place(self, puzzle: Puzzle, found: Found) -> tuple[int, str] | None:
        """Return which cell defines the kernel, and under which name."""
        id, name = cell_id(puzzle), kernel_name(puzzle)
        here = [n for n, cell in enumerate(self._cells) if cell.id == id]
        if len(here) > 1:
            found.remarks.append(
                f"cell {id} appears {len(here)} times; the last one that is filled in counts"
            )
        copies = [n for n in range(len(self._cells)) if n not in here and self._is_copy(n, name)]
        if here and (place := self._best(here, name)):
            if copies and HOLE in self._cells[place[0]].source:
                place = copies[-1], name
                other = self._cells[place[0]].id or "without an id"
                found.remarks.append(f"cell {id} is not solved; {name} is taken from its copy, cell {other}")
            elif others := [n for n in copies if self._differs(n, place[0], name)]:
                named = ", ".join(self._cells[n].id or "one without an id" for n in others[:3])
                found.remarks.append(f"another cell defines {name} differently ({named}); cell {id} counts")
            return place
        if here and (place := self._handed_to_check(here, puzzle)):
            found.remarks.append(
                f"cell {id} has no {name}, but it passes {place[1]} to check, so that is graded"
            )
            return place
        everywhere = [n for n in range(len(self._cells)) if n not in here]
        if place := self._best(everywhere, name):
            other = self._cells[place[0]].id or "without an id"
            why = f"cell {id} has no {name}" if here else f"there is no cell {id}"
            if any(self.ids):
                found.remarks.append(f"{why}, so {name} is taken from cell {other}")
            return place
        found.problem = "missing"
        faults = [self._cells[n].fault for n in here if self._cells[n].fault]
        if faults and (fault := faults[-1]):
            found.words, found.line = f"cell {id}: {fault}", fault.line
            found.source = _line(self._cells[here[-1]].source, fault.line)
        elif here:
            found.words = f"cell {id} has no @triton.jit function {name}"
            if complaint := next((d.complaint for n in here if (d := self._cells[n].defining(name))), None):
                found.words += f": {complaint}"
        elif id in self.ids:
            found.words = f"cell {id} is no longer a code cell"
        else:
            found.words = f"there is no cell {id}, and no other cell defines {name}"
        return None

    def _best(self, numbers: Sequence[int], name: str) -> tuple[int, str] | None:
        """Return the last cell that defines the name as a kernel, if possible without a hole."""
        defining = [n for n in numbers if (d := self._cells[n].defining(name)) and d.kind == "function"]
        solved = [n for n in defining if HOLE not in self._cells[n].source]
        return ((solved or defining)[-1], name) if defining else None

    def _is_copy(self, number: int, name: str) -> bool:
        """Whether a cell defines a kernel of this name and has no hole."""
        definition = self._cells[number].defining(name)
        return bool(definition and definition.kind == "function" and HOLE not in self._cells[number].source)

    def _differs(self, one: int, other: int, name: str) -> bool:
        first, second = self._cells[one].defining(name), self._cells[other].defining(name)
        return bool(first and second) and first.text != second.text  # type: ignore[union-attr]

    def _handed_to_check(self, numbers: Sequence[int], puzzle: Puzzle) -> tuple[int, str] | None:
        call = re.compile(rf"^check\(\s*(\w+)\s*,\s*{puzzle.name.upper()}\b", re.MULTILINE)
        for number in reversed(numbers):
            for name in reversed(call.findall(self._cells[number].source)):
                if (d := self._cells[number].defining(name)) and d.kind == "function":
                    return number, name
        return None

    def _with_what_it_needs(
        self, number: int, kernel: Definition, found: Found
    ) -> tuple[list[str], NotPlain | None]:
        """Return the sources that define a cell's kernel and all names in it, from this and other cells.

        A name that its cell does not define comes from an earlier cell, or else from a later one.
        """
        taken: dict[int, set[str]] = {}
        todo, seen = [kernel.name], set()
        while todo:
            name = todo.pop()
            home = None if name in seen else self._home(name, number)
            seen.add(name)
            if home is None:
                continue
            last = self._cells[home].defining(name)
            assert last is not None
            if last.complaint and last.kind == "function":
                return [], last.complaint
            if last.complaint:
                if HOLE not in self._cells[number].source:  # or the learner's lines are still to define it
                    where = self._cells[home].id if home != number else ""
                    found.remarks.append(f"cell {where}: {last.complaint}" if where else str(last.complaint))
                continue
            taken.setdefault(home, set()).add(name)
            todo += sorted(n for d in self._cells[home].definitions or () if d.name == name for n in d.needs)
        after = [n for n in sorted(taken) if n > number]
        before = [n for n in sorted(taken) if n <= number]
        return [self._source(n, taken[n]) for n in after + before], None

    def _home(self, name: str, number: int) -> int | None:
        near = [number, *range(number - 1, -1, -1), *range(number + 1, len(self._cells))]
        return next((n for n in near if self._cells[n].defining(name)), None)

    def _source(self, number: int, names: set[str]) -> str:
        parts = [d for d in self._cells[number].definitions or () if d.name in names and d.text]
        return plain.text_of(parts)

    def _refused(self, cell: _Cell, complaint: NotPlain, found: Found) -> Found:
        found.problem, found.words = "refused", str(complaint)
        found.line, found.source = complaint.line, _line(cell.source, complaint.line)
        return found


def by_chapter(
    files: Mapping[str, bytes], chapters: Sequence[Chapter], unread: dict[str, str] | None = None
) -> tuple[dict[str, Notebook], list[str]]:
    """Return the notebook of each chapter, by the chapter's number, and remarks on the files.

    A notebook with the course's own name is preferred, and otherwise the last by name.
    unread: gets why a file is not a notebook, by the file.
    """
    found: dict[str, tuple[str, Notebook]] = {}
    remarks: list[str] = []
    for label, data in sorted(files.items()):
        try:
            notebook = Notebook(data)
        except Unreadable as reason:
            remarks.append(f"{label}: {reason}")
            if unread is not None:
                unread[label] = str(reason)
            continue
        if label.rpartition("/")[2] == JUST_THE_PUZZLES:
            if notebook.is_begun():
                remarks.append(f"{label}: not graded, because only kernels in the chapter notebooks count")
            continue
        if notebook.misleading:
            remarks.append(
                f"{label}: invisible characters in it reverse the order of text, so the code is not what it "
                "looks like"
            )
        if not any(notebook.ids):
            remarks.append(
                f"{label}: no cell has an id (Colab saves notebooks like this), so kernels are found by "
                "their names"
            )
        chapter = _chapter_of(label, notebook, chapters)
        if chapter is None:
            remarks.append(f"{label}: it contains nothing from the chapters that are graded")
            continue
        before = found.get(chapter.number)
        if before:
            proper = before[0].rpartition("/")[2] == f"{_stem(chapter)}.ipynb"
            loser, winner = (label, before[0]) if proper else (before[0], label)
            remarks.append(f"{loser}: this is a second notebook of chapter {chapter.number}; {winner} counts")
            if proper:
                continue
        found[chapter.number] = label, notebook
    for label, notebook in found.values():
        remarks += [f"{label}: {aside}" for aside in notebook.asides()]
    return {number: notebook for number, (_, notebook) in sorted(found.items())}, remarks


def _chapter_of(label: str, notebook: Notebook, chapters: Sequence[Chapter]) -> Chapter | None:
    """Return the chapter of a notebook, by its name, or else by its contents."""
    file = label.rpartition("/")[2]
    if named := next((c for c in chapters if _stem(c) in file and notebook.traces(c)), None):
        return named
    traces = {chapter: notebook.traces(chapter) for chapter in chapters}
    best = sorted((c for c in chapters if traces[c]), key=lambda chapter: -traces[chapter])
    return best[0] if best else None


def _stem(chapter: Chapter) -> str:
    """Return ``01_blocks``, the name of a chapter's notebook."""
    return chapter.folder.removeprefix("ch")


def cell_id(puzzle: Puzzle) -> str:
    """Return the id of the cell in which the course has a puzzle's kernel."""
    return f"p{_CELLS.get(puzzle.number, puzzle.number)}-kernel"


def kernel_name(puzzle: Puzzle) -> str:
    """Return the course's name of a puzzle's kernel."""
    return f"{puzzle.name}_kernel"


def _cells(data: bytes) -> list[dict[str, Any]]:
    if not data.strip():
        raise Unreadable("an empty file")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Unreadable("not a notebook: not a text in UTF-8") from None
    except RecursionError:
        raise Unreadable("not a notebook: JSON nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"not a notebook: broken JSON ({error})"[:200]) from None
    if isinstance(notebook, dict) and "worksheets" in notebook:
        raise Unreadable(
            "a notebook in an old format (3): open it in JupyterLab, save it, and hand it in again"
        )
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise Unreadable("JSON, but not a notebook: it has no list of cells")
    if not cells:
        raise Unreadable("a notebook without a cell")
    if len(cells) > MOST_CELLS:
        raise Unreadable(f"a notebook with {len(cells)} cells, but at most {MOST_CELLS} are read")
    return cells


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def _read(id: str, source: str, known: Known) -> _Cell:
    try:
        tree = plain.parse(source)
        found = plain.definitions(source, tree, known)
        return _Cell(
            id, source, tuple(found), dict(_answers(tree, known)), asides(source, tree, known.classes)
        )
    except NotPlain as fault:
        return _Cell(id, source, None, {}, fault=fault)
    except RecursionError:
        return _Cell(id, source, None, {}, fault=NotPlain("the cell is not Python: nested too deeply"))


def _answers(tree: ast.Module, known: Known) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="answer"), args=[ast.Constant(value=str() as id), *rest]) if (
                _QUESTION.fullmatch(id)
            ):
                given = rest[0] if rest else next((k.value for k in node.keywords if k.arg == "value"), None)
                try:
                    found = plain.value(given, known) if given is not None else ...
                    yield id, plain.written(found, LONGEST_ANSWER)
                except NotPlain:
                    yield id, ""  # no plain value, or a long one


def _line(source: str, number: int) -> str:
    rows = source.split("\n")
    return rows[number - 1].strip()[:200] if 0 < number <= len(rows) else ""
