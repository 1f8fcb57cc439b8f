"""Read the kernels of the masters, as sources and as functions: the solutions."""

import functools
import json
import re
from pathlib import Path

from puzzles_lib.source import define

ROOT = Path(__file__).parents[2]
_CHECK = re.compile(r"^check\((\w+), (\w+)\)\n?", re.MULTILINE)
_KERNEL_ID = re.compile(r"p\d+[a-z]?-kernel")
_MARKER = re.compile(r"^ *### (BEGIN|END) SOLUTION.*\n?", re.MULTILINE)


@functools.cache
def solutions() -> dict[str, object]:
    """Return the kernel that each chapter's master passes to `check`, by the puzzle's name."""
    return {name: define(source, f"<solution of {name}>") for name, source in kernel_cells().items()}


def other_kernel(chapter: str, cell_id: str) -> object:
    """Return a kernel from a cell of a master that belongs to no puzzle, without the markers of its hole."""
    (path,) = (ROOT / "solutions").glob(f"{chapter}_*.ipynb")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    (source,) = ("".join(c["source"]) for c in cells if c["id"] == cell_id)
    return define(_CHECK.sub("", without_markers(source)), f"<{cell_id} of chapter {chapter}>")


def kernel_cells(folder: str = "solutions") -> dict[str, str]:
    """Return the source of the cell that defines each puzzle's kernel, without its check, by puzzle name.

    A puzzle's cell is ``pN-kernel``. The check that names kernel and puzzle is at its end, or in a cell of
    its own, ``pN-check``. Raises FileNotFoundError if there are no masters, and ValueError if a check has no
    kernel cell.
    """
    found = {}
    masters = sorted((ROOT / folder).glob("*.ipynb"))
    if not masters:
        raise FileNotFoundError(f"{folder}/ has no notebooks: only a checkout of the course has the masters")
    for path in masters:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        found |= kernels_in(
            {c["id"]: "".join(c["source"]) for c in cells if c["cell_type"] == "code"}, path.name
        )
    return found


def kernels_in(sources: dict[str, str], name: str) -> dict[str, str]:
    """Return what `kernel_cells` finds in one notebook. sources: those of its code cells, by id."""
    found = {}
    for cell_id, source in sources.items():
        judges = cell_id.endswith("-check") or _KERNEL_ID.fullmatch(cell_id)
        if not (judges and (match := _CHECK.search(source))):
            continue
        kernel, puzzle = match.groups()
        defining = [s for i, s in sources.items() if i.endswith("-kernel") and f"def {kernel}(" in s]
        if len(defining) != 1:
            raise ValueError(f"{name}: {cell_id} checks {kernel}, defined in {len(defining)} cells")
        found[puzzle.lower()] = _CHECK.sub("", defining[0]).rstrip()
    return found


@functools.cache
def kernel_sources() -> dict[str, str]:
    """Return the solutions' cells without the marker lines of their holes, by the puzzle's name."""
    return {name: without_markers(source) for name, source in kernel_cells().items()}


def without_markers(source: str) -> str:
    """Return a cell's source without the marker lines of its holes."""
    return _MARKER.sub("", source + "\n")
