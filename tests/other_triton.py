"""Tests that end differently with another supported Triton than the pinned one, and why.

What differs is the compiler's doing: it refuses something, or compiles it in another way. Such a test must
then fail with certain words. If it passes, or fails with others, `make test-with` fails.
"""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What other versions do, and which tests notice.

    versions: of Triton, such as "3.9". words: a part of what each of the tests then fails with.
    tests: their ids, below ``tests/``.
    """

    why: str
    versions: Sequence[str]
    words: str
    tests: Sequence[str]


DIFFERENCES: Sequence[Difference] = ()


def installed() -> str:
    """Return the installed Triton as "3.9"."""
    return ".".join(importlib.metadata.version("triton").split(".")[:2])


def difference(test: str) -> Difference | None:
    """Return why a test ends differently with the installed Triton; None if it doesn't. test: its id."""
    return _HERE.get(test.removeprefix("tests/"))


_HERE = {test: each for each in DIFFERENCES if installed() in each.versions for test in each.tests}
