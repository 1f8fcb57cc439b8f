"""Show the class at a glance: which puzzles are solved, why others fail, and each student's points."""

import html
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from puzzles_lib.drawing.card import heads
from puzzles_lib.drawing.colours import BAD, FAINT, GREEN, ORANGE, PALE, PURPLE
from puzzles_lib.drawing.sheet import Picture, box, label, new_sheet
from puzzles_lib.grading.grade import (
    LIMIT,
    MISSING,
    REFUSED,
    SOLVED,
    STATES,
    UNREAD,
    UNTOUCHED,
    WRONG,
    is_unread,
)
from puzzles_lib.grading.results import folder_name, page
from puzzles_lib.ledger import Entry

_LOOKS = {
    SOLVED: GREEN,
    WRONG: BAD,
    REFUSED: PURPLE,
    LIMIT: PURPLE,
    UNREAD: PURPLE,
    UNTOUCHED: ORANGE,
    MISSING: PALE,
}
_NAMES = {
    SOLVED: "solved",
    WRONG: "wrong",
    REFUSED: "not run",
    LIMIT: "no verdict",
    UNREAD: "unreadable file",
    UNTOUCHED: "not started",
    MISSING: "not handed in",
}
_WIDTH, _LEFT = 13.0, 7.0  # the width of the bars, and of the space to their left, in units of the sheet
_KINDS = 3  # how many kinds of verdict are named per puzzle
_ROW, _BAR, _GAP = 0.6, 0.5, 0.2  # the distance of bars, their height, and the extra space before a chapter

Grades = Sequence[Mapping[str, Any]]
Progress = Mapping[str, Mapping[str, Entry]]


def overview(
    grades: Grades, remarks: Sequence[str], sandboxed: bool, progress: Progress | None = None
) -> str:
    """Return the page of a class. remarks: on files without a student. progress: the students' own files."""
    parts = ["<h1>The class</h1>"]
    if not sandboxed:
        parts.append("<p><strong>Graded without a sandbox (--no-sandbox).</strong></p>")
    solved = sorted(_solved(grade) for grade in grades)
    if not grades:
        return page("The class", "".join([*parts, "<p>There are no submissions.</p>"]))
    middle = solved[len(solved) // 2]
    most = len(grades[0]["puzzles"])
    parts.append(
        f"<p>{len(grades)} students; the median student has solved {middle} of {most} puzzles. "
        'See below for <a href="#puzzles">the puzzles</a> and <a href="#students">the students</a>.</p>'
    )
    if most:
        parts += [picture(grades).svg(), _table_of_puzzles(grades, progress or {})]
    parts.append(_table_of_students(grades))
    if remarks:
        items = "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks)
        parts.append(f"<h2>Files that belong to nobody</h2><ul>{items}</ul>")
    return page("The class", "".join(parts))


def _solved(grade: Mapping[str, Any]) -> int:
    return sum(mark["state"] == SOLVED for mark in grade["puzzles"])


def picture(grades: Grades) -> Picture:
    """Draw a bar for each puzzle, below its chapter's number, divided by the students' states."""
    puzzles = [(mark["number"], mark["puzzle"]) for mark in grades[0]["puzzles"]]
    counts = counted(grades)
    chapters = [mark["chapter"] for mark in grades[0]["puzzles"]]
    height = _ROW * len(puzzles) + _GAP * (len(set(chapters)) - 1)
    figure, ax = new_sheet(_LEFT + _WIDTH + 1.2, height + 1.6)
    x = _LEFT
    used = [state for state in STATES if any(counts[name][state] for _, name in puzzles)]
    for state in used:
        box(ax, x, 0.35, 0.5, 0.5, color=_LOOKS[state])
        label(ax, x + 0.65, 0.6, _NAMES[state], align="left", fontsize=9)
        x += 1.3 + 0.24 * len(_NAMES[state])
    said = []
    y, before = 1.4 - _ROW, chapters[0] if chapters else ""
    for row, (number, name) in enumerate(puzzles):
        y += _ROW + _GAP * (chapters[row] != before)
        if not row or chapters[row] != before:
            label(ax, 0.1, y + _BAR / 2, f"chapter {chapters[row]}", align="left", fontsize=9, color=FAINT)
        before = chapters[row]
        label(ax, _LEFT - 0.3, y + _BAR / 2, f"{number}  {name}", align="right", fontsize=9)
        x = _LEFT
        for state in STATES:
            width = _WIDTH * counts[name][state] / len(grades)
            if width:
                text = str(counts[name][state]) if width > 0.6 else ""
                box(ax, x, y, width, _BAR, text, color=_LOOKS[state], fontsize=9)
            x += width
        share = round(100 * counts[name][SOLVED] / len(grades))
        label(ax, x + 0.2, y + _BAR / 2, f"{share}%", align="left", fontsize=9, color=FAINT)
        said.append(f"{name} {counts[name][SOLVED]}")
    return Picture(figure, f"How many of {len(grades)} students solved each puzzle: {', '.join(said)}.")


def counted(grades: Grades) -> dict[str, Counter[str]]:
    """Return for each puzzle how many students have it in each state."""
    found: dict[str, Counter[str]] = {}
    for grade in grades:
        for mark in grade["puzzles"]:
            found.setdefault(mark["puzzle"], Counter())[mark["state"]] += 1
    return found


def _table_of_puzzles(grades: Grades, progress: Progress) -> str:
    """For each puzzle: how many students are in each state, the median of tries, and why most others fail.

    The numbers of a row add up to the number of students.
    """
    counts = counted(grades)
    kinds: dict[str, Counter[str]] = {name: Counter() for name in counts}
    for grade in grades:
        for mark in grade["puzzles"]:
            if mark["state"] in (WRONG, REFUSED, LIMIT):
                kinds[mark["puzzle"]][mark["kind"] or _NAMES[mark["state"]]] += 1
    unread = any(states[UNREAD] for states in counts.values())
    columns = ["puzzle", "solved", "tried, not solved", _NAMES[UNTOUCHED], _NAMES[MISSING]]
    columns += [_NAMES[UNREAD]] if unread else []
    rows = [heads(*columns, *(["tries"] if progress else []), "why most others fail")]
    for name, states in counts.items():
        tried = states[WRONG] + states[REFUSED] + states[LIMIT]
        why = ", ".join(f"{kind} {number}" for kind, number in kinds[name].most_common(_KINDS))
        numbers = (states[SOLVED], tried, states[UNTOUCHED], states[MISSING])
        shown = [
            *numbers,
            *([states[UNREAD]] if unread else []),
            *([_tries(name, progress)] if progress else []),
        ]
        cells = "".join(f'<td class="number">{number}</td>' for number in shown)
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}<td>{html.escape(why)}</td></tr>")
    note = (
        "<p>Tries: the median number of different kernels up to the first correct one, according to the "
        f"progress files of {len(progress)} students, who can edit them.</p>"
    )
    return f'<h2 id="puzzles">Puzzles</h2><table>{"".join(rows)}</table>{note if progress else ""}'


def _tries(puzzle: str, progress: Progress) -> str:
    told = [one[puzzle].tries for one in progress.values() if puzzle in one and one[puzzle].tries]
    return f"{statistics.median(told):g}" if told else ""


def _table_of_students(grades: Grades) -> str:
    scored = any("late" in grade for grade in grades)  # by the class's own points
    rows = [heads("student", *(["points"] if scored else []), "solved", "correct answers", "remarks")]
    for grade in grades:
        link = f"students/{folder_name(grade['student'])}/report.html"
        right = sum(answer["status"] == "right" for answer in grade["answers"])
        late = ", late" if scored and grade["late"]["is_late"] else ""
        known, solved = ("?", "unreadable file") if is_unread(grade) else (grade["points"], _solved(grade))
        points = f'<td class="number">{known} of {grade["of"]}{late}</td>' if scored else ""
        remarks = len(grade["remarks"]) + sum(len(mark["remarks"]) for mark in grade["puzzles"])
        rows.append(
            f'<tr><td><a href="{html.escape(link)}">{html.escape(grade["student"])}</a></td>'
            f'{points}<td class="number">{solved}</td><td class="number">{right}</td>'
            f'<td class="number">{remarks or ""}</td></tr>'
        )
    return f'<h2 id="students">Students</h2><table>{"".join(rows)}</table>'
