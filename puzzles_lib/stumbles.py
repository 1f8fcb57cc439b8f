"""A sentence of help below two errors of Triton's that newcomers meet in a notebook."""

import sys
from typing import Any

HELP = {
    "@jit functions should be defined in a Python file": (
        "A cell that begins with %%time hides its text, which Triton needs to compile a kernel. Take %%time "
        "out of the kernel's cell, and time a call in a cell of its own: %time check(kernel, PUZZLE)."
    ),
    "0 active drivers": (
        "kernel[grid](...) needs a GPU, and there is none here. Without a GPU, check(kernel, PUZZLE) tries "
        "your kernel on the puzzle's cases, and run(kernel, PUZZLE, x=...) runs it on your own tensors."
    ),
}


def help_below_errors() -> None:
    """Print the sentence after a cell that fails with such an error. Do nothing outside of IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        shell.events.register("post_run_cell", _help)


def _help(result: Any) -> None:
    error = str(result.error_in_exec or "")
    for words, sentence in HELP.items():
        if words in error:
            print(sentence, file=sys.stderr)
