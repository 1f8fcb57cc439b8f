"""Triton, bit by bit: the software under the course.

    from puzzles_lib import OUTER_ADD, check, trace

``check(kernel, PUZZLE)`` says whether a kernel is right, ``trace(kernel, PUZZLE)`` shows what it
touches, ``run(kernel, PUZZLE, **tensors)`` uses it, ``progress()`` says what is solved. Names are
looked up when first used, so that importing the package alone costs nothing.
"""

import importlib

_HOME = {
    "check": "puzzles_lib.checker",
    "trace": "puzzles_lib.tracer",
    "stages": "puzzles_lib.compilation",
    "answer": "puzzles_lib.answers",
    "run": "puzzles_lib.runner",
    "progress": "puzzles_lib.progress",
    "Case": "puzzles_lib.puzzle",
    "Puzzle": "puzzles_lib.puzzle",
}


def __getattr__(name: str):
    if name.isupper() and not name.startswith("_"):
        return getattr(importlib.import_module("puzzles_lib.puzzles"), name)
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value  # `progress` names a module too: the function wins from now on
        return value
    raise AttributeError(f"module 'puzzles_lib' has no attribute {name!r}")


def __dir__() -> list[str]:
    puzzles = importlib.import_module("puzzles_lib.puzzles")
    return sorted([*_HOME, *(name for name in vars(puzzles) if name.isupper())])
