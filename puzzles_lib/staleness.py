"""Find out, within IPython, whether a kernel or a value is older than the cell that the reader sees."""

import ast
import re
import sys
from typing import Any

from triton.runtime.jit import JITFunction

from puzzles_lib.source import with_helpers

_failed: set[int] = set()
"""The numbers of the cells that stopped with an error, as in In[3]."""


def note_failures() -> None:
    """Note from now on which cells stop with an error. Do nothing outside of IPython."""
    if shell := _shell():
        shell.events.register("post_run_cell", _note_failure)


def _note_failure(result: Any) -> None:
    if not result.success and result.execution_count:
        _failed.add(result.execution_count)


def stale_name(call: str) -> str:
    """Return a name in a call of the running cell whose newest cell stopped with an error; "" for none.

    Such a name still has its value from an older run. call: the function that is called, such as "answer".
    """
    try:
        cells = _cells()
        for name in _given_to(call, cells[-1]) if cells else ():
            if next((n for n in reversed(range(len(cells))) if _sets(name, cells[n])), 0) in _failed:
                return name
    except Exception:  # IPython may change, or the cell may have magics; see `stale_note`
        pass
    return ""


def _given_to(call: str, cell: str) -> list[str]:
    """Return the names in the arguments of a function's calls that other cells must have set."""
    calls = [node for node in ast.walk(ast.parse(cell))
             if isinstance(node, ast.Call) and ast.unparse(node.func) == call]  # fmt: skip
    names = {node.id for each in calls for node in ast.walk(each) if isinstance(node, ast.Name)}
    return sorted(names - {call})


def _sets(name: str, cell: str) -> bool:
    """Return whether a line of a cell, which need not be Python, defines a name, not within a function."""
    one = rf"(?:\w+[ \t]*,[ \t]*)*{re.escape(name)}[ \t]*(?:,[ \t]*\w+[ \t]*)*=(?!=)"
    return bool(re.search(rf"^(?:(?:def|class)[ \t]+{re.escape(name)}\b|{one})", cell, re.MULTILINE))


def stale_note(kernel: JITFunction) -> str:
    """Return a warning if the newest cell that defines the kernel or a helper stopped before it; else ""."""
    try:
        cells = _cells()
        for function in with_helpers(kernel) if cells else ():
            if function.fn.__module__ == "__main__" and _is_old(function, cells):
                name = function.__name__
                told = (
                    f"this is an older {name}: the newest cell with `def {name}` stopped before defining it"
                )
                return f"{told}. Run that cell again and read its error"
    except Exception:  # IPython may change, and a missing note is better than a failure
        pass
    return ""


def _cells() -> list[str]:
    """Return the cells that were run, the newest last; none outside of IPython."""
    shell = _shell()
    return [str(cell) for cell in shell.user_ns["In"]] if shell else []


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def _is_old(function: JITFunction, cells: list[str]) -> bool:
    defining = re.compile(rf"^[ \t]*def[ \t]+{re.escape(function.__name__)}\b", re.MULTILINE)
    newest = next((cell for cell in reversed(cells) if defining.search(cell)), None)
    if newest is None:
        return False
    return _bare("".join(function.raw_src)) not in _bare(newest)


def _bare(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
