"""``make handout``: write a zip of what a student needs, without the masters, the tests and git.

Students unpack it and run `make lab`, which sets up everything. The same files always give the same bytes.
"""

import argparse
import re
import sys
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from puzzles_lib.authoring.release import REPO, find_stale
from puzzles_lib.mistakes import FILE as RIGHT_KERNELS
from puzzles_lib.notebooks import JUST_THE_PUZZLES

NAME = "triton-bit-by-bit"
_FILES = ("AUDIT.md", "LICENSE", "Makefile", "README.md", "environment.yml", "pyproject.toml")
_FOLDERS = {".readme": "*", ".setup": "*.*", "puzzles_lib": "**/*"}  # and what is taken of each
_NEVER = {"__pycache__", ".ipynb_checkpoints"}
_FIRST = "00"  # which `make lab` opens, so that it is always there
_CHECKOUT = re.compile(rb"<!-- checkout.*?<!-- /checkout -->\n+", re.DOTALL)  # a hand-out leaves it out
_TIME = (2026, 1, 1, 0, 0, 0)


def handed_out(root: Path, chapters: Collection[str] = (), answers: bool = True) -> Iterator[Path]:
    """Yield the files of a hand-out of the checkout in ``root``.

    chapters: such as "01" or "01_blocks"; without them, all. answers: whether the correct kernels come along,
    which `mistake` and the clinic use. Raises ValueError for an unknown chapter.
    """
    notebooks = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    names = {name for path in notebooks for name in (path.stem, path.stem[:2])}
    if unknown := sorted(set(chapters) - names):
        known = ", ".join(path.stem for path in notebooks)
        raise ValueError(f"no chapter {unknown[0]!r} in notebooks; there are: {known or 'none'}")
    wanted = {*chapters, _FIRST} if chapters else names
    yield from (root / name for name in _FILES)
    yield from (path for path in notebooks if {path.stem, path.stem[:2]} & wanted)
    if not chapters:
        yield from (root / "notebooks").glob(JUST_THE_PUZZLES)
    for folder, pattern in _FOLDERS.items():
        for path in sorted((root / folder).glob(pattern)):
            if path.is_file() and not _NEVER & set(path.parts) and (answers or path.name != RIGHT_KERNELS):
                yield path


def contents(path: Path) -> bytes:
    """Return a hand-out's version of a file. README.md loses what is true only of a checkout."""
    data = path.read_bytes()
    return _CHECKOUT.sub(b"", data) if path.name == "README.md" else data


def pack(root: Path, target: Path, chapters: Collection[str] = (), answers: bool = True) -> int:
    """Write the zip, and return how many files are in it.

    Raises ValueError for an unknown chapter, or if an exercise differs from what its master gives, because it
    may contain somebody's answers. Raises OSError if a file is missing or ``target`` cannot be written.
    """
    files = list(handed_out(root, chapters, answers))
    if stale := find_stale(root / "solutions", root / "notebooks"):
        raise ValueError(f"not handed out, because it may contain answers: {stale[0]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(f"{NAME}/{path.relative_to(root).as_posix()}", _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents(path))
    return len(files)


def main(argv: list[str] | None = None, root: Path = REPO) -> int:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.authoring.handout", description=__doc__)
    parser.add_argument(
        "chapters", nargs="*", help=f"like 01 or 01_blocks (default: all); {_FIRST} comes along"
    )
    parser.add_argument(
        "--without-answers",
        action="store_true",
        help=f"leave out the correct kernels ({RIGHT_KERNELS}): `mistake` then edits only a student's own",
    )
    parser.add_argument("--out", type=Path, default=Path("dist") / f"{NAME}.zip", metavar="ZIP")
    args = parser.parse_args(argv)
    try:
        count = pack(root, args.out, args.chapters, not args.without_answers)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{count} files in {args.out}: unpack it, then `make lab` in {NAME}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
