"""A wrong kernel as data: a slip, written as edits of the correct kernel's source.

    Mistake(
        FUSED_DW,
        "scale_of_row_0",
        "The scale is indexed by the group only: every row has the scales of row 0.",
        {"scale_ptr + at": "scale_ptr + k[:, None] * 0 + offs_g[None, :]"},
        kind="values",
        says="dw[0, 0]",
    )

A reader sees the slip without the twenty lines around it, and the correct kernel's other lines may change.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from puzzles_lib.puzzle import Puzzle

FILE = "right.json"  # in a chapter's folder: the correct kernels, in base64, by the puzzle's name


@dataclass(frozen=True)
class Mistake:
    """A correct kernel with one slip in it.

    name: a Python identifier, unique among the puzzle's mistakes.
    what: the slip, in a sentence.
    edits: maps a text that occurs exactly once in the correct kernel to its replacement.
    kind: the kind of the checker's first verdict, such as ``"values"``.
    says: words of the report on this slip: an argument's name, an element, a diagnosis.
    asks: what to guess before the report is shown; "" for a question that fits its kind.
    otherwise: maps a text of the correct kernel to one that means the same there, as some learners write it.
    """

    puzzle: Puzzle
    name: str
    what: str
    edits: Mapping[str, str]
    kind: str
    says: str = ""
    asks: str = ""
    otherwise: Mapping[str, str] = field(default_factory=dict)

    def spellings(self, source: str) -> Iterator[str]:
        """Yield the correct kernel's source as it is, and with each text of ``otherwise``."""
        yield source
        for old, new in self.otherwise.items():
            yield source.replace(old, new)

    def apply(self, source: str) -> str:
        """Return the wrong kernel's source, made from the source of the correct kernel.

        All edits refer to `source` itself, so their order does not matter. Raises ValueError for an edit
        whose text does not occur exactly once, that changes nothing, or that overlaps another.
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
            raise ValueError(f"{self.name}: {old!r} occurs {count} times in the kernel, not once")
        if self.edits[old] == old:
            raise ValueError(f"{self.name}: {old!r} is replaced by itself")
        return source.index(old)

    def lines(self, source: str) -> set[int]:
        """Return the lines of the wrong kernel in which the slip is, from 1, given the correct source.

        If lines are missing, the lines around the gap are returned. Indentation does not count.
        """
        right, wrong = ([line.strip() for line in text.splitlines()] for text in (source, self.apply(source)))
        found: set[int] = set()
        for tag, _, _, first, end in difflib.SequenceMatcher(None, right, wrong, False).get_opcodes():
            if tag != "equal":
                found |= set(range(first + 1, end + 1)) or {first, first + 1}
        return found
