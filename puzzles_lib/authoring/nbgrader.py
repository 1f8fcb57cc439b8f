"""``make nbgrader``: write the course as a source folder of nbgrader, with an assignment per chapter.

`nbgrader generate_assignment` and `autograde` accept the folder as it is: each exercise is a solution cell,
followed by a locked cell with points and a hidden test. But nbgrader runs whatever a student hands in, with
the grader's rights and next to the hidden tests. ``--marks`` avoids that: it puts the marks of
`puzzles_lib.grading`, which runs none of the students' Python, into nbgrader's gradebook.
"""

import argparse
import ast
import importlib
import json
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from puzzles_lib.authoring.release import (
    REPO,
    broken,
    find_masters,
    normalise,
    read_master,
    with_stubs,
    without_tool_comments,
)
from puzzles_lib.grading.grade import UNREAD

PUZZLE_POINTS, QUESTION_POINTS = 10, 2
_GRADED = re.compile(r"p\d+[a-z]?-(kernel|check)|q\d+")  # cells whose check or answer counts
_EXERCISE = "exercise"  # in a cell's metadata: a puzzle's name, or a question's id
_CONFIG = '''\
"""Made by `make nbgrader`. Run nbgrader in this folder, with the course's environment activated."""

import os
import tempfile

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "triton-bit-by-bit"
c.ClearSolutions.code_stub = {"python": ""}  # the comment above each answer says what to do
c.ExecutePreprocessor.timeout = 300  # seconds a cell
os.environ["PUZZLES_STATE_DIR"] = tempfile.mkdtemp(prefix="nbgrader-progress-")  # not the teacher's own
'''


def assignment(nb: NotebookNode, name: str, salt: str) -> NotebookNode:
    """Return a chapter's master as nbgrader's source.

    salt: that of the hidden checks. Raises what `strip` raises.
    """
    source = normalise(nb)
    cells = []
    for cell in source.cells:
        cells.append(cell)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        cell.source = without_tool_comments(cell.source)
        solution = _with_broken(cell.id, with_stubs(cell.source, f"{name}, cell {cell.id}"))
        if solution != cell.source:
            cell.metadata["nbgrader"] = _metadata(cell.id, solution=True)
        for exercise, test, points in _tests(cell, salt):
            cells.append(nbformat.v4.new_code_cell(test, id=f"{cell.id}-points"))
            cells[-1].metadata[_EXERCISE] = exercise
            cells[-1].metadata["nbgrader"] = _metadata(f"{cell.id}-points", points=points)
        cell.source = solution
    source.cells = cells
    nbformat.validate(source)
    return source


def _with_broken(cell_id: str, source: str) -> str:
    """A cell with the kernel that is handed out broken, and the right one between markers, to be cut."""
    wrong = broken(cell_id, source)
    if wrong == source:
        return source
    kernel, _, check = wrong.rpartition("\n\n\n")
    right = source.rpartition("\n\n\n")[0]
    return f"{kernel}\n### BEGIN SOLUTION\n{right}\n### END SOLUTION\n\n\n{check}"


def _metadata(grade_id: str, solution: bool = False, points: int = 0) -> dict[str, object]:
    """nbgrader's of a cell: one to solve, or one with points."""
    graded = {"points": points} if points else {}
    flags = {"solution": solution, "grade": bool(points), "locked": bool(points), "task": False}
    return {"schema_version": 3, "grade_id": grade_id, **flags, **graded}


def _tests(cell: NotebookNode, salt: str) -> Iterator[tuple[str, str, int]]:
    """What a cell that ends in a check or an answer is of, its hidden test, and the points."""
    last = ast.parse(cell.source).body[-1:] if _GRADED.fullmatch(cell.id) else []
    for call in [node.value for node in last if isinstance(node, ast.Expr)]:
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and len(call.args) == 2):
            continue
        first, second = map(ast.unparse, call.args)
        if call.func.id == "check":
            test = (
                f"from puzzles_lib import {second}\nfrom puzzles_lib.checker import examine\n\n"
                f"_report = examine({first}, {second}, salt={salt!r})\nprint(_report)\nassert _report.ok"
            )
            yield second.lower(), _hidden(test, PUZZLE_POINTS), PUZZLE_POINTS
        elif call.func.id == "answer":
            test = f"from puzzles_lib import answer\n\nassert answer({first}, {second}).ok"
            yield ast.literal_eval(call.args[0]), _hidden(test, QUESTION_POINTS), QUESTION_POINTS


def _hidden(test: str, points: int) -> str:
    begin, end = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
    return f"# {points} points, given by the grader. Leave this cell as it is.\n{begin}\n{test}\n{end}"


def write(root: Path, folder: Path, salt: str, only: Iterable[str] | None = None) -> list[Path]:
    """Write the course folder: `nbgrader_config.py`, and source/CHAPTER/CHAPTER.ipynb of each chapter.

    only: chapters, as "01" or "01_blocks". Raises ValueError if a file is not a master or a chapter doesn't
    exist, and OSError if the folder cannot be written.
    """
    made = {}
    for master in find_masters(root / "solutions", only):
        nb = assignment(read_master(master), master.name, salt)
        path = folder / "source" / master.stem / master.name
        made[path] = json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    made[folder / "nbgrader_config.py"] = _CONFIG
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(made)


def take_marks(folder: Path, results: Path) -> int:
    """Put the grades in ``results/`` of `puzzles_lib.grading` into the gradebook of a course folder.

    This is for the assignments that nbgrader has generated. A student's earlier points there are replaced.
    Returns the number of students. Raises FileNotFoundError if there are no grades or no gradebook,
    ModuleNotFoundError without nbgrader, and ValueError for a grade of another form.
    """
    places: dict[str, dict[str, tuple[str, int]]] = {}  # assignment -> exercise -> grade cell, points
    for path in sorted(folder.glob("source/*/*.ipynb")):
        cells = [
            cell.metadata for cell in nbformat.read(path, as_version=4).cells if _EXERCISE in cell.metadata
        ]
        told = {m[_EXERCISE]: (m["nbgrader"]["grade_id"], m["nbgrader"]["points"]) for m in cells}
        places[path.stem] = told
    grades = sorted(results.glob("students/*/grade.json"))
    database = folder / "gradebook.db"
    for path, what in (
        (results / "students", "grades"),
        (database, "gradebook: generate an assignment first"),
    ):
        if not path.exists():
            raise FileNotFoundError(f"{path}: no {what}")
    api = importlib.import_module("nbgrader.api")
    with api.Gradebook(f"sqlite:///{database.resolve()}") as book:
        known = {assignment.name for assignment in book.assignments}
        for path in grades:
            student, shares = _shares(path)
            book.update_or_create_student(student)
            for name in sorted(known & set(places)):
                if not shares.keys() & places[name].keys():
                    continue
                book.update_or_create_submission(name, student)
                for exercise, (cell, points) in places[name].items():
                    mark = book.find_grade(cell, name, name, student)
                    mark.auto_score, mark.manual_score = points * shares.get(exercise, 0), None
                    mark.needs_manual_grade = False
        book.db.commit()
    return len(grades)


def _shares(path: Path) -> tuple[str, dict[str, float]]:
    """A student, and the share of its points that each exercise is worth. Unreadable files have none."""
    try:
        grade = json.loads(path.read_text("utf-8"))
        unread = {f"ch{mark['chapter']}-" for mark in grade["puzzles"] if mark.get("state") == UNREAD}
        shares = {m["puzzle"]: m["points"] / m["of"] for m in grade["puzzles"] if m.get("state") != UNREAD}
        answers = [each for each in grade["answers"] if not each["id"].startswith(tuple(unread))]
        shares |= {answer["id"]: float(answer["status"] == "right") for answer in answers}
        return grade["student"], shares
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{path}: not a grade ({type(error).__name__}: {error})") from None


def main(argv: list[str] | None = None, root: Path = REPO) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m puzzles_lib.authoring.nbgrader", description=__doc__.splitlines()[0]
    )
    parser.add_argument("chapters", nargs="*", help="like 01 or 01_blocks (default: all)")
    parser.add_argument("--out", type=Path, default=Path("dist/nbgrader"), metavar="DIR")
    parser.add_argument(
        "--salt", help="of the hidden checks: other cases than students see (default: random)"
    )
    parser.add_argument("--marks", type=Path, metavar="RESULTS", help="take the marks of puzzles_lib.grading")
    args = parser.parse_args(argv)
    salt = args.salt if args.salt is not None else secrets.token_hex(8)
    try:
        if args.marks:
            print(f"{take_marks(args.out, args.marks)} students' marks are in {args.out}/gradebook.db")
            return 0
        written = write(root, args.out, salt, args.chapters or None)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    count = len(written) - 1
    text = f"wrote {args.out}/source, {count} assignment{'s' * (count != 1)}"
    print(f"{text}; --salt {salt} writes the same again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
