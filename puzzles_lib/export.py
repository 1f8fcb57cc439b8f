"""Export progress for other programs and for a whole class: ``python -m puzzles_lib.progress``.

Learners can edit their progress files. So only valid entries are shown, and what is shown is self-reported:
it gives an overview of a class, but no grades.
"""

import argparse
import csv
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from puzzles_lib import ledger
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.ledger import OPEN, SOLVED, TRIED, Entry
from puzzles_lib.overview import progress

SELF_REPORTED = (
    "self-reported: learners can edit their files, so this is an overview of the class, not grades"
)
Entries = Mapping[str, Entry]


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status, which is 1 if a file could not be used."""
    parser = argparse.ArgumentParser(
        prog="python -m puzzles_lib.progress",
        description="Show what is solved: by you, or with FILEs, by a class.",
        epilog=f"The contents of FILEs are {SELF_REPORTED}.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="print JSON; without FILE, this is the file to hand in"
    )
    form.add_argument("--csv", action="store_true", help="print CSV, with a row per learner and exercise")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="a progress file, or a folder with progress.json"
    )
    chosen = parser.parse_args(argv)
    if chosen.files:
        return _print_class(chosen.files, chosen.json, chosen.csv)
    if not (chosen.json or chosen.csv):
        print(progress())
        return 0
    kept, note = ledger.entries()
    if note:
        print(note, file=sys.stderr)
    if chosen.json:
        _print_json({"schema": ledger.SCHEMA, "self_reported": True, "puzzles": _told(kept)})
    else:
        _print_csv({"": kept})
    return 1 if note else 0


def _print_class(files: Iterable[Path], as_json: bool, as_csv: bool) -> int:
    learners, failures = {}, []
    for label, path in _labelled([path / "progress.json" if path.is_dir() else path for path in files]):
        try:
            learners[label] = _read(path)
        except ledger.Damaged:
            failures.append(f"{_printable(str(path))}: not a progress file")
        except (OSError, RuntimeError) as error:
            failures.append(_printable(str(error)))
    if as_json:
        told = {label: {"puzzles": _told(kept)} for label, kept in learners.items()}
        _print_json({"schema": ledger.SCHEMA, "self_reported": True, "learners": told})
    elif as_csv:
        _print_csv(learners)
    else:
        print("\n".join(_overview(learners)))
    for line in failures:
        print(f"error: {line}", file=sys.stderr)
    if as_json or as_csv:
        print(SELF_REPORTED, file=sys.stderr)
    return 1 if failures else 0


def _labelled(paths: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each file with the learner's name: that of the file or its folder, or else the path."""
    names = [
        _printable(path.resolve().parent.name if path.stem == "progress" else path.stem) for path in paths
    ]
    for name, path in zip(names, paths, strict=True):
        yield name if names.count(name) == 1 else _printable(str(path)), path


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _read(path: Path) -> dict[str, Entry]:
    if path.exists() and not path.is_file():  # reading a pipe would wait forever
        raise ledger.Damaged(str(path))
    return ledger.read(path)


def _exercises() -> Iterator[tuple[str, str, str]]:
    """Yield chapter, number and name of each puzzle, rung and reading exercise, in order."""
    for chapter in CHAPTERS:
        yield from ((chapter.number, puzzle.number, puzzle.name) for puzzle in chapter.puzzles)
        yield from ((chapter.number, f"rung {number}", name) for number, name in chapter.rungs)
        yield from ((chapter.number, q.id.partition("-")[2], q.id) for q in chapter.questions)


def _rows(kept: Entries) -> Iterator[dict[str, str | int]]:
    """Yield a row for each exercise of the course; other names in the file are ignored."""
    for chapter, number, name in _exercises():
        entry = kept.get(name, Entry(OPEN))
        shown = {key: value for key, value in asdict(entry).items() if key != "attempt"}
        yield {"chapter": chapter, "number": number, "puzzle": name, **shown}


def _told(kept: Entries) -> dict[str, dict[str, str | int]]:
    return {str(row.pop("puzzle")): row for row in _rows(kept)}


def _print_json(data: object) -> None:
    print(json.dumps(data, indent=1, ensure_ascii=False))


def _print_csv(learners: Mapping[str, Entries]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["learner", *next(_rows({}))])
    for label, kept in learners.items():
        writer.writerows([_cell(label), *row.values()] for row in _rows(kept))


def _cell(text: str) -> str:
    """Return text that no spreadsheet reads as a formula: learners choose the names of their files."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _overview(learners: Mapping[str, Entries]) -> Iterator[str]:
    """A line for each learner, then one for each exercise that somebody tried: what they are stuck on."""
    yield f"{len(learners)} learner{'s' * (len(learners) != 1)}, {SELF_REPORTED}"
    known = {name for _, _, name in _exercises()}
    width = max(map(len, learners), default=0)
    for label, kept in learners.items():
        states = Counter(entry.state for name, entry in kept.items() if name in known)
        newest = max((entry.first_solved[:10] for entry in kept.values()), default="")
        since = f", the last on {newest}" if newest else ""
        yield f"{label:<{width}}   {states[SOLVED]:>3} solved{since}, {states[TRIED]} tried"
    yield f"{'exercise':<36} {'solved':>6} {'tried':>6} {'tries':>6}   stuck on"
    untried = 0
    for chapter, number, name in _exercises():
        found = [kept[name] for kept in learners.values() if name in kept and kept[name].state != OPEN]
        untried += not found
        if not found:
            continue
        solved = [entry for entry in found if entry.state == SOLVED]
        stuck = Counter(entry.last or "?" for entry in found if entry.state == TRIED)
        counted = [entry.tries for entry in solved if entry.tries]
        tries = f"{statistics.median(counted):g}" if counted else ""
        kinds = ", ".join(f"{kind} {count}" for kind, count in stuck.most_common(3))
        title = name if name.startswith(f"ch{chapter}-") else f"{number} {name}"
        row = f"{chapter} {title:<33} {len(solved):>6} {stuck.total():>6} {tries:>6}   {kinds}"
        yield row.rstrip()
    yield f"{untried} more that nobody has tried"
