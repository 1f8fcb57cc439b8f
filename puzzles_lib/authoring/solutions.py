"""The kernels of the masters as functions: the solutions."""

import functools
import json
import linecache
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CHECK = re.compile(r"^check\((\w+), (\w+)\)\n?", re.MULTILINE)
_KERNEL_ID = re.compile(r"p\d+[a-z]?-kernel")
MARKER = re.compile(r"^ *### (BEGIN|END) SOLUTION.*\n?", re.MULTILINE)


@functools.cache
def solutions() -> dict[str, object]:
    """The kernel that each chapter's master hands to `check`, by the puzzle's name."""
    return {name: define(source, f"<solution of {name}>") for name, source in kernel_cells().items()}


def kernel_cells(folder: str = "solutions") -> dict[str, str]:
    """Source of the cell that defines each puzzle's kernel, by the puzzle's name; its check is left out.

    A puzzle's cell is ``pN-kernel``, with a check that says which kernel and puzzle at its end, or in a
    cell of its own, ``pN-check``.
    Raises FileNotFoundError where there are no masters, ValueError where a check has no kernel cell.
    """
    found = {}
    masters = sorted((ROOT / folder).glob("*.ipynb"))
    if not masters:
        raise FileNotFoundError(f"{folder}/ has no notebooks: only a checkout of the course has the masters")
    for path in masters:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources = {cell["id"]: "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"}
        for cell_id, source in sources.items():
            judges = cell_id.endswith("-check") or _KERNEL_ID.fullmatch(cell_id)
            if not (judges and (match := _CHECK.search(source))):
                continue
            kernel, puzzle = match.groups()
            defining = [s for i, s in sources.items() if i.endswith("-kernel") and f"def {kernel}(" in s]
            if len(defining) != 1:
                raise ValueError(f"{path.name}: {cell_id} checks {kernel}, defined in {len(defining)} cells")
            found[puzzle.lower()] = _CHECK.sub("", defining[0]).rstrip()
    return found


@functools.cache
def kernel_sources() -> dict[str, str]:
    """The solutions' cells without the marker lines of their holes, by the puzzle's name."""
    return {name: MARKER.sub("", source + "\n") for name, source in kernel_cells().items()}


def define(source: str, name: str) -> object:
    """Run a cell's source and return the last ``@triton.jit`` function in it.

    Triton reads a function's source from its file; ``linecache`` stands in for one, as in Jupyter.
    """
    import triton
    import triton.language as tl
    from triton.runtime.jit import KernelInterface

    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"triton": triton, "tl": tl, "__name__": "notebook"}
    exec(compile(source, name, "exec"), scope)
    return [value for value in scope.values() if isinstance(value, KernelInterface)][-1]
