"""Triton, bit by bit: the course's functions and puzzles.

    from puzzles_lib import OUTER_ADD, check, trace, watch

While you work on a puzzle:

- `check` reports whether a kernel is correct.
- `watch` plays a run line by line, with all values.
- `trace` draws which elements each program touched.
- `stages` shows what the compiler turns a kernel into.
- `run` runs a kernel on your own tensors.
- `hint` gives a hint that fits your last `check`.
- `answer` checks your answer to a question.
- `progress` shows what you have solved.

Afterwards:

- `mistake` shows your kernel with a typical mistake in it, if the puzzle has any.
- `race` measures a version of chapter 15's kernel.
- `speak` lets chapter 22's language model write with your kernels.
- `kernel_of` returns your kernel for a puzzle.
- `excerpt` shows lines of a file of the course.

For kernels of your own:

- `audit` runs a function's Triton kernels and reports faults.
- `audited` does so for a block of code.
- `Guard` says what an audit looks for.
- `Puzzle` is a puzzle of your own, with a spec and cases.
- `Case` is one set of sizes to try a kernel on.

``help(check)`` explains a function, and ``help(Puzzle)`` a class. `Contract` and `Size`, which say what else
a kernel must handle, are in `puzzles_lib.contract`, and inputs that reveal mistakes in `puzzles_lib.inputs`.

Every puzzle is here by its name in capitals (``OUTER_ADD``), and every chapter by its number (``ch02``).
``help(ch02)`` lists a chapter's puzzles, and ``help(OUTER_ADD)`` describes a puzzle. The production kernels
are in `puzzles_lib.kernels`. Names are imported on first use, so ``import puzzles_lib`` alone is fast and
works with any torch and Triton. The other modules below are the course's own parts.
"""

import functools
import importlib
import importlib.metadata
import re
import warnings
from types import ModuleType
from typing import Any

from puzzles_lib import versions

__version__ = "0.3.0"

_PIN = re.compile(r"([\w-]+)==([\w.]+); extra == .course")  # a line of the package's metadata

_HOME = {
    "check": "puzzles_lib.checking",
    "audit": "puzzles_lib.auditor",
    "audited": "puzzles_lib.auditor",
    "Guard": "puzzles_lib.auditor",
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
    "speak": "puzzles_lib.speaking.speak",
    "kernel_of": "puzzles_lib.speaking.speak",
    "Case": "puzzles_lib.puzzle",
    "Puzzle": "puzzles_lib.puzzle",
}


_CLASSES = ("Case", "Guard", "Puzzle")
_CHAPTER_OF = {"race": "15", "speak": "22", "kernel_of": "22"}  # a hand-out may leave a chapter out


def __getattr__(name: str) -> Any:
    __tracebackhide__ = True
    if name == "__all__":  # what `from puzzles_lib import *` asks for
        return sorted([*__dir__(), *_CLASSES, *_imported("puzzles_lib.chapters").named()])
    if (chapter := _missing_for(name)) is not None:
        raise AttributeError(f"{name} needs chapter {chapter}, which this copy of the course doesn't have")
    if name in _HOME:
        value = getattr(_imported(_HOME[name]), name)
    elif name.isupper() or re.fullmatch(r"ch\d+", name):
        value = _imported("puzzles_lib.chapters").named().get(name)
    else:  # such as a module, which `from puzzles_lib import inputs` asks for here first
        value = None
    if value is None:
        raise AttributeError(f"module 'puzzles_lib' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the functions. `help(puzzles_lib)` would show classes in full, and 80 puzzles, before them."""
    return sorted(name for name in _HOME if name not in _CLASSES and _missing_for(name) is None)


def _missing_for(name: str) -> str | None:
    """Return the number of the chapter that a name needs, if this copy of the course doesn't have it."""
    if (number := _CHAPTER_OF.get(name)) is None:
        return None
    there = {chapter.number for chapter in _imported("puzzles_lib.chapters").CHAPTERS}
    return None if number in there else number


def _imported(name: str) -> ModuleType:
    """Import a module of the course.

    Raise ImportError with one sentence if that fails because of another version of a package. Warn once if
    the checker doesn't support the installed Triton.
    """
    __tracebackhide__ = True
    try:
        module = importlib.import_module(name)
    except (ImportError, AttributeError):  # another Triton lacks names or has them elsewhere
        if not (wrong := _unpinned()):
            raise
    else:
        _warn_of_another_triton()
        _help_below_errors()
        return module
    raise ImportError(f"{_sentence(wrong)} in an environment of its own")


@functools.cache
def _warn_of_another_triton() -> None:
    for found, pin in _unpinned().items():
        package, _, version = found.partition(" ")
        if package == "triton" and (told := versions.too_old(version) or versions.too_new(version)):
            warnings.warn(f"{told}: run pip install {pin.replace(' ', '==')}", stacklevel=4)


@functools.cache
def _help_below_errors() -> None:
    importlib.import_module("puzzles_lib.stumbles").help_below_errors()
    importlib.import_module("puzzles_lib.staleness").note_failures()


def _sentence(wrong: dict[str, str]) -> str:
    pins = wrong.values()
    command = f"pip install {' '.join(pin.replace(' ', '==') for pin in pins)}"
    return f"the course needs {' and '.join(pins)}, but finds {' and '.join(wrong)}: run {command}"


def _unpinned() -> dict[str, str]:
    """Return the packages that are missing or of another version than the pin: what is found, the pin."""
    try:
        requirements = importlib.metadata.requires("triton-bit-by-bit") or []
    except importlib.metadata.PackageNotFoundError:  # the folder was put on the path by hand
        return {}
    different = {}
    for requirement in requirements:
        if (match := _PIN.match(requirement)) is None:
            continue
        package, pin = match.groups()
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            different[f"no {package}"] = f"{package} {pin}"
        else:
            if version.partition("+")[0] != pin:  # after the plus: which build
                different[f"{package} {version}"] = f"{package} {pin}"
    return different
