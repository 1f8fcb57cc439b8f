"""The kernels of the notebooks, as functions: solutions, and the stubs that learners start from."""

import functools
import linecache
import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
CHECK = re.compile(r"^check\((\w+), (\w+)\)", re.MULTILINE)


@functools.cache
def solutions() -> dict[str, object]:
    """The kernel that each chapter's master hands to `check`, by the puzzle's name."""
    return _kernels("solutions")


@functools.cache
def stubs() -> dict[str, object]:
    """The same from ``notebooks/``, with their holes."""
    return _kernels("notebooks")


def solution_cells(folder: str = "solutions") -> dict[str, str]:
    """Source of the cell that defines each puzzle's kernel, by the puzzle's name."""
    cells = {}
    for path in sorted((ROOT / folder).glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        sources = {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}
        for cell_id, source in sources.items():
            if cell_id.endswith("-check") and (match := CHECK.search(source)):
                kernel, puzzle = match.groups()
                cells[puzzle.lower()] = next(
                    s for i, s in sources.items() if i.endswith("-kernel") and f"def {kernel}(" in s
                )
    return cells


def _kernels(folder: str) -> dict[str, object]:
    found = {}
    for puzzle, source in solution_cells(folder).items():
        found[puzzle] = define(source, f"<{folder}/{puzzle}>")
    return found


def define(source: str, name: str) -> object:
    """Run a cell's source and return the last ``@triton.jit`` function in it.

    Triton reads a function's source from a file; ``linecache`` stands in for one, as in Jupyter.
    """
    import triton
    import triton.language as tl
    from triton.runtime.jit import JITFunction

    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"triton": triton, "tl": tl, "__name__": "notebook"}
    exec(compile(source, name, "exec"), scope)
    return [value for value in scope.values() if isinstance(value, JITFunction)][-1]
