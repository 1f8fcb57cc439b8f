"""Show errors in a notebook: help below two of Triton's errors, and our own without the library's frames."""

import linecache
import sys
import traceback
from pathlib import Path
from typing import Any, TypeVar

_HERE = str(Path(__file__).parent)
E = TypeVar("E", bound=Exception)

HELP = {
    "@jit functions should be defined in a Python file": (
        "A cell that begins with %%time hides its text, which Triton needs to compile a kernel. Take %%time "
        "out of the kernel's cell, and time a call in a cell of its own: %time check(kernel, PUZZLE)."
    ),
    "@triton.jit'd outside of the scope of a kernel": (
        "A launch needs its grid, in brackets between the kernel's name and the arguments: kernel[grid](...)."
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


def sentence_first(error: E) -> E:
    """Return the error, which a notebook then shows as its sentence and the learner's lines."""
    error._render_traceback_ = lambda: _shown(error)  # type: ignore[attr-defined]
    return error


def _shown(error: Exception) -> list[str]:
    frames = [
        (frame.f_code.co_name, line, linecache.getline(frame.f_code.co_filename, line).strip())
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_HERE) and "site-packages" not in frame.f_code.co_filename
    ]
    lines = [
        f"    line {line}{f' of {name}' if name != '<module>' else ''}: {text}"
        for name, line, text in frames
        if text
    ]
    return [f"{type(error).__name__}: {error.args[0] if error.args else error}", *lines]
