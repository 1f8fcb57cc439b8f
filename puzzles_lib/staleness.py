"""Find out, within IPython, whether a kernel is older than the notebook cell that the reader sees."""

import re
import sys

from triton.runtime.jit import JITFunction

from puzzles_lib.source import with_helpers


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
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return [str(cell) for cell in shell.user_ns["In"]] if shell else []


def _is_old(function: JITFunction, cells: list[str]) -> bool:
    defining = re.compile(rf"^[ \t]*def[ \t]+{re.escape(function.__name__)}\b", re.MULTILINE)
    newest = next((cell for cell in reversed(cells) if defining.search(cell)), None)
    if newest is None:
        return False
    return _bare("".join(function.raw_src)) not in _bare(newest)


def _bare(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
