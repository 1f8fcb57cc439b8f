"""``make gradescope``: a zip with which Gradescope grades each submission as it is handed in.

It has `setup.sh` and `run_autograder`, the library, the pinned requirements, and what was chosen here:
chapters, salt, points and the rule for late submissions.
"""

import argparse
import json
import secrets
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from puzzles_lib.authoring.release import REPO
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading.rules import Points, read_late, read_points

_SCRIPTS = ("setup.sh", "run_autograder", "NOTES.md")
_TIME = (2026, 1, 1, 0, 0, 0)
_NEVER = {"__pycache__", ".ipynb_checkpoints"}


def contents(
    root: Path, chapters: Sequence[str], salt: str, late: str = "", points: Path | None = None
) -> dict[str, tuple[bytes, int]]:
    """Return the zip's files by name, each with its bytes and its mode.

    Raise ValueError for an unknown chapter, a malformed rule or a malformed file of points.
    """
    known = [chapter.number for chapter in CHAPTERS]
    if unknown := [number for number in chapters if number[:2] not in known]:
        raise ValueError(f"no chapter {unknown[0]!r}; there are: {', '.join(known)}")
    if late:
        read_late(late)
    chosen = {number[:2] for number in chapters} or set(known)
    config = {"chapters": [number for number in known if number in chosen], "salt": salt, "late": late}
    files = {"config.json": (json.dumps(config, indent=1).encode() + b"\n", 0o644)}
    if points:
        if read_points(points).best:
            raise ValueError(f'{points}: attempt = "best" isn\'t possible here: let Gradescope choose one')
        files["points.toml"] = points.read_bytes(), 0o644
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    pins = sorted(project["optional-dependencies"]["course"])
    files["requirements.txt"] = "".join(f"{pin}\n" for pin in pins).encode(), 0o644
    for name in _SCRIPTS:
        mode = 0o644 if name.endswith(".md") else 0o755
        files[name] = (root / ".setup" / "gradescope" / name).read_bytes(), mode
    for path in sorted((root / "puzzles_lib").rglob("*")):
        if path.is_file() and not _NEVER & set(path.parts):
            files[path.relative_to(root).as_posix()] = path.read_bytes(), 0o644
    return files


def pack(files: dict[str, tuple[bytes, int]], target: Path) -> None:
    """Write the zip. The same files always give the same bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)


def total(chapters: Sequence[str], points: Points) -> float:
    """Return how many points there are."""
    asked = [chapter for chapter in CHAPTERS if not chapters or chapter.number in {n[:2] for n in chapters}]
    if points.total is not None:
        return points.total
    questions = sum(not question.computed for chapter in asked for question in chapter.questions)
    return sum(points.of(p.name) for c in asked for p in c.puzzles) + points.answers * questions


def main(argv: Sequence[str] | None = None, root: Path = REPO) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m puzzles_lib.authoring.gradescope", description=__doc__.splitlines()[0]
    )
    parser.add_argument("chapters", nargs="*", help="like 01 or 01_blocks (default: all)")
    parser.add_argument("--out", type=Path, default=Path("dist/gradescope-autograder.zip"), metavar="ZIP")
    parser.add_argument("--salt", help="a text that determines the hidden cases (default: random)")
    parser.add_argument("--points", type=Path, metavar="FILE", help="points per puzzle, as in TEACHING.md")
    parser.add_argument("--late", default="", metavar="RULE", help='like "10%%/day, at most 50%%"')
    args = parser.parse_args(argv)
    salt = args.salt if args.salt is not None else secrets.token_hex(8)
    try:
        pack(contents(root, args.chapters, salt, args.late, args.points), args.out)
        most = total(args.chapters, read_points(args.points) if args.points else Points())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.out}: upload it as the autograder, with {most:g} points; NOTES.md in it says which image")
    print(f"--salt {salt} writes the same again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
