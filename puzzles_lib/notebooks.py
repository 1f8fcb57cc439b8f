"""Copy the exercises that ship with the package to a folder: ``python -m puzzles_lib.notebooks DIR``."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

JUST_THE_PUZZLES = "just_the_puzzles.ipynb"  # the kernels of chapters 01 to 08 in one notebook

_HERE = Path(__file__).parent
_PACKED = _HERE / "exercises"  # in a wheel; in a checkout they are next to the package


def exercises() -> list[Path]:
    """Return the notebooks: the chapters in order, then the one with just the puzzles.

    Raise FileNotFoundError if there are none.
    """
    folder = _PACKED if _PACKED.is_dir() else _HERE.parent / "notebooks"
    found = [*sorted(folder.glob("[0-9][0-9]_*.ipynb")), *folder.glob(JUST_THE_PUZZLES)]
    if not found:
        raise FileNotFoundError(
            "there are no notebooks next to the package: install its wheel, or use a whole checkout"
        )
    return found


def copy(folder: Path, kernel: str = "") -> Iterator[tuple[str, bool]]:
    """Copy the notebooks into a folder, and yield each name and whether it was written.

    The folder is created. Existing files may contain someone's work, so they are not replaced. kernel: the
    notebooks' Jupyter kernel, by the name in ``jupyter kernelspec list``; by default ``python3``.
    Raises OSError if the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in exercises():
        text = path.read_text("utf-8")
        try:
            with open(folder / path.name, "x", encoding="utf-8") as file:
                file.write(_with_kernel(text, kernel) if kernel else text)
            yield path.name, True
        except FileExistsError:
            yield path.name, False


def _with_kernel(text: str, kernel: str) -> str:
    notebook = json.loads(text)
    notebook["metadata"]["kernelspec"] |= {"name": kernel, "display_name": kernel}
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m puzzles_lib.notebooks", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="is created if it is missing; no file is replaced"
    )
    parser.add_argument("--kernel", default="", help="the notebooks' Jupyter kernel (default: python3)")
    chosen = parser.parse_args(argv)
    try:
        written = dict(copy(chosen.folder, chosen.kernel))
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    count = sum(written.values())
    print(f"{count} notebook{'s' * (count != 1)} written to {chosen.folder}")
    for name in [name for name, new in written.items() if not new]:
        print(f"kept {name}, which already exists")
    return 0


if __name__ == "__main__":
    sys.exit(main())
