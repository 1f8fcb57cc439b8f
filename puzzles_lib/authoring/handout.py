"""``make handout``: write a zip of what a student needs, without the masters, the tests and git.

Students unpack it and run `make lab`, which sets up everything. The same files always give the same bytes.
"""

import argparse
import ast
import re
import sys
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from puzzles_lib.authoring.release import REPO, find_stale
from puzzles_lib.mistakes import FILE as RIGHT_KERNELS
from puzzles_lib.notebooks import JUST_THE_PUZZLES
from puzzles_lib.stubs import FILE as STUBS

NAME = "triton-bit-by-bit"
_FILES = ("AUDIT.md", "LICENSE", "Makefile", "README.md", "environment.yml", "pyproject.toml")
_FOLDERS = {".readme": "*", ".setup": "*.*", "puzzles_lib": "**/*"}  # and what is taken of each
_NEVER = {"__pycache__", ".ipynb_checkpoints"}
_FIRST = "00"  # which `make lab` opens, so that it is always there
_OF_A_CHAPTER = ("hints.md", RIGHT_KERNELS, STUBS, "__init__.py")  # without these, a folder is no chapter
_ONLY_WITH_ALL = re.compile(r" *<!--all-->.*?<!--/all-->", re.DOTALL)  # what names files of all chapters
_ROW = re.compile(r"^\| (\d\d) .*\n", re.MULTILINE)  # of README's table of chapters
_MARK = re.compile("<!--/?all-->")
_CHECKOUT = re.compile(r"<!-- checkout.*?<!-- /checkout -->\n+", re.DOTALL)  # a hand-out leaves it out
_TIME = (2026, 1, 1, 0, 0, 0)


def handed_out(root: Path, chapters: Collection[str] = (), answers: bool = True) -> Iterator[Path]:
    """Yield the files of a hand-out of the checkout in ``root``.

    chapters: such as "01" or "01_blocks"; without them, all. Of other chapters, only what these import comes
    along. answers: whether the correct kernels come along, which `mistake` and the clinic use. Raises
    ValueError for an unknown chapter.
    """
    notebooks = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    names = {name for path in notebooks for name in (path.stem, path.stem[:2])}
    if unknown := sorted(set(chapters) - names):
        known = ", ".join(path.stem for path in notebooks)
        raise ValueError(f"no chapter {unknown[0]!r} in notebooks; there are: {known or 'none'}")
    wanted = {*chapters, _FIRST} if chapters else names
    numbers = {path.stem[:2] for path in notebooks if {path.stem, path.stem[:2]} & wanted}
    left_out = _left_out(root, numbers) if chapters else set()
    yield from (root / name for name in _FILES)
    yield from (path for path in notebooks if {path.stem, path.stem[:2]} & wanted)
    if not chapters:
        yield from (root / "notebooks").glob(JUST_THE_PUZZLES)
    for folder, pattern in _FOLDERS.items():
        for path in sorted((root / folder).glob(pattern)):
            if not path.is_file() or _NEVER & set(path.parts) or path in left_out:
                continue
            if answers or path.name != RIGHT_KERNELS:
                yield path


def _left_out(root: Path, numbers: Collection[str]) -> set[Path]:
    """Return the library's files that are needed only for other chapters than those with these numbers.

    A module of another chapter stays if a module that stays imports it. The other chapter isn't listed
    anywhere, because its folder then has no `__init__.py`.
    """
    library = root / "puzzles_lib"
    files = [path for path in sorted(library.rglob("*")) if path.is_file()]
    others = {path for path in files if _chapter_of(path.relative_to(library)) not in ("", *numbers)}
    modules = {_name(path.relative_to(root)): path for path in files if path.suffix == ".py"}
    stays = [path for path in modules.values() if path not in others and path.parent.name != "bench"]
    for path in stays:  # it grows
        imported = [modules[name] for name in sorted(_imported(path) & modules.keys())]
        stays += [path for path in imported if path not in stays]
    folders = {path.parent for path in stays}
    return {
        path
        for path in others
        if path.name in _OF_A_CHAPTER
        or (path not in stays if path.suffix == ".py" else path.parent not in folders)
    }


def _chapter_of(path: Path) -> str:
    """Return the number of the chapter that a file of the library belongs to; "" if to none."""
    folder, *below = path.parts
    if folder == "speaking":
        return "22"  # `speak` writes text with this chapter's kernels
    return below[0][2:4] if folder == "chapters" and len(below) > 1 else ""


def _name(path: Path) -> str:
    """Return the dotted name of a module."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    """Return the names that a module imports, and perhaps names in modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def contents(path: Path, numbers: Collection[str] = ()) -> bytes:
    """Return a hand-out's version of a file. README.md loses what isn't true of the hand-out.

    numbers: of the chapters in the hand-out; without them, all.
    """
    if path.name != "README.md":
        return path.read_bytes()
    text = _CHECKOUT.sub("", path.read_text("utf-8"))
    if numbers:
        text = _ONLY_WITH_ALL.sub("", text)
        text = _ROW.sub(lambda row: row[0] if row[1] in numbers else "", text)
    return _MARK.sub("", text).encode()


def pack(root: Path, target: Path, chapters: Collection[str] = (), answers: bool = True) -> int:
    """Write the zip, and return how many files are in it.

    Raises ValueError for an unknown chapter, or if an exercise differs from what its master gives, because it
    may contain somebody's answers. Raises OSError if a file is missing or ``target`` cannot be written.
    """
    files = list(handed_out(root, chapters, answers))
    if stale := find_stale(root / "solutions", root / "notebooks"):
        raise ValueError(f"not handed out, because it may contain answers: {stale[0]}")
    numbers = {path.stem[:2] for path in files if path.suffix == ".ipynb"} if chapters else set()
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(f"{NAME}/{path.relative_to(root).as_posix()}", _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents(path, numbers))
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
    print(f"{count} files in {args.out}: unpack it, then `make lab TORCH=cpu` in {NAME}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
