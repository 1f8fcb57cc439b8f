"""Triton, bit by bit: the software under the course.

    from puzzles_lib import OUTER_ADD, check, trace, watch

``check(kernel, PUZZLE)`` says whether a kernel is right, ``trace(kernel, PUZZLE)`` shows what it
touches, ``watch(kernel, PUZZLE)`` plays it line by line, ``run(kernel, PUZZLE, **tensors)`` uses it.
``hint(PUZZLE)`` helps before a puzzle is solved, ``mistake(PUZZLE, n)`` after; ``progress()`` says what is
solved. Besides these, every puzzle by its name in capitals, and every chapter by
its number (``ch02``). Names are looked up when first used, so that importing the package alone costs
nothing.
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
    if name == "__all__":  # what `from puzzles_lib import *` asks for
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
