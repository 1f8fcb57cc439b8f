"""A wrong kernel as data: a slip, as edits of the right kernel's source.

    Mistake(
        FUSED_DW,
        "scale_of_row_0",
        "The scale is indexed by the group only: every row has the scales of row 0.",
        {"scale_ptr + at": "scale_ptr + k[:, None] * 0 + offs_g[None, :]"},
        kind="values",
        says="dw[0, 0]",
    )

A reader sees the slip and not the twenty lines around it, and the right kernel can change its other lines.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from puzzles_lib.puzzle import Puzzle

FILE = "right.json"  # in a chapter's folder: the right kernels, in base64, by the puzzle's name


@dataclass(frozen=True)
class Mistake:
    """A right kernel with one slip in it.

    name: unique among the puzzle's mistakes, a Python identifier.
    what: the slip, in a sentence.
    edits: text of the right kernel, which stands there exactly once, to what replaces it.
    kind: what the checker's first verdict is, such as ``"values"``.
    says: what its report says of this slip: an argument's name, an element, a diagnosis.
    """

    puzzle: Puzzle
    name: str
    what: str
    edits: Mapping[str, str]
    kind: str
    says: str = ""

    def apply(self, source: str) -> str:
        """The wrong kernel's source, from the right one's.

        All edits are looked for in `source` itself, so their order does not matter. Raises ValueError
        for an edit whose text is not there exactly once, that changes nothing, or that overlaps another.
        """
        if not self.edits:
            raise ValueError(f"{self.name}: no edits")
        done, end = [], 0
        for start, old in sorted((self._place(source, old), old) for old in self.edits):
            if start < end:
                raise ValueError(f"{self.name}: {old!r} overlaps another edit")
            done += [source[end:start], self.edits[old]]
            end = start + len(old)
        return "".join(done) + source[end:]

    def _place(self, source: str, old: str) -> int:
        if (count := source.count(old)) != 1 or not old:
            raise ValueError(f"{self.name}: {old!r} stands {count} times in the kernel, not once")
        if self.edits[old] == old:
            raise ValueError(f"{self.name}: {old!r} is replaced by itself")
        return source.index(old)

    def lines(self, source: str) -> set[int]:
        """Where the slip is, from the right kernel's source: lines of the wrong one, counted from 1.

        Where lines are missing, those around the gap. Indentation does not count.
        """
        right, wrong = ([line.strip() for line in text.splitlines()] for text in (source, self.apply(source)))
        found: set[int] = set()
        for tag, _, _, first, end in difflib.SequenceMatcher(None, right, wrong, False).get_opcodes():
            if tag != "equal":
                found |= set(range(first + 1, end + 1)) or {first, first + 1}
        return found
