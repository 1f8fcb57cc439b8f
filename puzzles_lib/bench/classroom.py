"""Measure what it costs to grade a class: ``python -m puzzles_lib.bench classroom FOLDER --students 300``.

The class is made up. Of each five students, one has solved everything, two hand in untouched notebooks, and
two have solved chapter 01 and hand in nothing else. The grader runs as a teacher would run it, for all
chapters, and is stopped and resumed. Marks that differ from what the students deserve are an error.
"""

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from puzzles_lib.authoring.solutions import ROOT
from puzzles_lib.chapters import CHAPTERS


@dataclass(frozen=True)
class Kind:
    """Students of one kind: what they hand in, from where, and the points that they deserve."""

    name: str
    folder: str
    pattern: str
    points: int

    def hand_in(self, place: Path) -> None:
        """Write a submission of this kind. Raise FileNotFoundError if there are no masters."""
        notebooks = sorted((ROOT / self.folder).glob(self.pattern))
        if not notebooks:
            raise FileNotFoundError(f"{self.folder}/ has no notebooks: this needs a checkout of the course")
        place.mkdir(parents=True, exist_ok=True)
        for notebook in notebooks:
            shutil.copy(notebook, place)


def kinds() -> dict[str, Kind]:
    """Return the kinds of submissions, by name."""
    solved = {chapter.number: len(chapter.puzzles) for chapter in CHAPTERS}
    found = (
        Kind("right", "solutions", "*.ipynb", sum(solved.values())),
        Kind("untouched", "notebooks", "*.ipynb", 0),
        Kind("first", "solutions", "01_*.ipynb", solved["01"]),
    )
    return {kind.name: kind for kind in found}


GRADER = (sys.executable, "-m", "puzzles_lib.grading")
OF_FIVE = ("right", "untouched", "first", "untouched", "first")


def make_class(folder: Path, students: int) -> None:
    """Write ``students`` submissions, each once."""
    known = kinds()
    for number, name in zip(range(students), itertools.cycle(OF_FIVE)):
        place = folder / f"{name}-{number:04}"
        if not place.exists():
            known[name].hand_in(place)


def measure(folder: Path, students: int, workers: int) -> str:
    """Grade a class in ``folder``, or what an earlier run has left of it. Return a table of the times.

    Raises RuntimeError if the grader fails or a mark is not the deserved one, and FileNotFoundError if there
    are no masters.
    """
    make_class(folder / "class", students)
    before, start = len(_grades(folder)), time.monotonic()
    options = ["--out", str(folder / "results"), "--workers", str(workers)]
    status = subprocess.run([*GRADER, str(folder / "class"), *options]).returncode
    if status:
        raise RuntimeError(f"the grader ended with status {status}; the same command goes on")
    seconds, grades = time.monotonic() - start, _grades(folder)
    graded = f"{len(grades) - before} graded in this run, in {seconds:.0f} s"
    return "\n".join([*_lines(grades), f"{graded}, with --workers {workers}"])


def _grades(folder: Path) -> list[dict]:
    paths = sorted((folder / "results/students").glob("*/grade.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def _lines(grades: Sequence[dict]) -> list[str]:
    lines = [f"{'submissions':24} {'CPU seconds: median':>34} {'sum':>8} {'largest process':>16}"]
    for kind in kinds().values():
        own = [told for told in grades if told["student"].startswith(f"{kind.name}-")]
        if other := [told["student"] for told in own if told["points"] != kind.points]:
            raise RuntimeError(f"not {kind.points} points: {', '.join(other)}")
        if own:
            cpu = [told["cpu_seconds"] for told in own]
            middle = f"{statistics.median(cpu):.1f} ({min(cpu):.1f} .. {max(cpu):.1f})"
            most = max(told["memory"] for told in own) / 1e6
            lines.append(f"{len(own):4} {kind.name:19} {middle:>34} {sum(cpu):8.0f} {most:13.0f} MB")
    return lines
