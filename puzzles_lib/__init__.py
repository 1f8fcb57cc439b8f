"""Triton, bit by bit: the course's library.

    from puzzles_lib import OUTER_ADD, check, trace, watch

``check(kernel, PUZZLE)`` checks whether a kernel is correct, ``trace(kernel, PUZZLE)`` shows what it
accesses, ``watch(kernel, PUZZLE)`` plays it line by line, and ``run(kernel, PUZZLE, **tensors)`` runs it.
``hint(PUZZLE)`` helps before a puzzle is solved, ``mistake(PUZZLE, n)`` afterwards, and ``progress()`` shows
what is solved. Every puzzle has its name in capitals, and every chapter its number (``ch02``). Names are
looked up when they are first used, so importing the package is fast.
"""

import importlib
import re

_HOME = {
    "check": "puzzles_lib.checking",
    "trace": "puzzles_lib.tracer",
    "watch": "puzzles_lib.player",
    "stages": "puzzles_lib.inspector",
    "answer": "puzzles_lib.answers",
    "hint": "puzzles_lib.coach.hinting",
    "mistake": "puzzles_lib.coach.contrast",
    "excerpt": "puzzles_lib.excerpts",
    "race": "puzzles_lib.chapters.ch15_racing_cublas.race",
    "run": "puzzles_lib.checker.runner",
    "progress": "puzzles_lib.overview",
    "Case": "puzzles_lib.puzzle",
    "Puzzle": "puzzles_lib.puzzle",
}


def __getattr__(name: str):
    if name == "__all__":  # `from puzzles_lib import *` asks for this
        return __dir__()
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name.isupper() or re.fullmatch(r"ch\d+", name):
        value = _chapters().get(name)
    else:  # such as a module, which `from puzzles_lib import inputs` asks for here first
        value = None
    if value is None:
        raise AttributeError(f"module 'puzzles_lib' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, *_chapters()])


def _chapters() -> dict[str, object]:
    return importlib.import_module("puzzles_lib.chapters").named()
