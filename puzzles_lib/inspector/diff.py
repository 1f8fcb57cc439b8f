"""Compare two compilations of a stage, ignoring the numbers that every change renumbers."""

import difflib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from puzzles_lib.inspector import page
from puzzles_lib.inspector.lexers import highlight

CONTEXT = 2  # the number of lines shown around a change
MOST_LINES = 60
_LONG = (
    1500  # the most lines for an exact difference; for more, difflib may skip frequent lines to save seconds
)


@dataclass(frozen=True, repr=False)
class Diff:
    """Two versions of a stage.

    title: what was compared. stage: the language. before, after: their lines.
    """

    title: str
    stage: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @cached_property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """All lines in order as (sign, text): ``"+"``, ``"-"``, or ``" "`` for a line in both."""
        before: Sequence[str] = self.before
        after: Sequence[str] = self.after
        if self.stage in ("ttir", "ttgir"):
            before, after = _with_aliases_in_order(before), _with_aliases_in_order(after)
        old, new = keys(before, after, self.stage)
        rows: list[tuple[str, str]] = []
        long = len(old) + len(new) > _LONG
        for op, i, j, k, l in difflib.SequenceMatcher(None, old, new, autojunk=long).get_opcodes():  # noqa: E741
            if op == "equal":
                rows += [(" ", text) for text in after[k:l]]
            else:
                rows += [("-", text) for text in before[i:j]] + [("+", text) for text in after[k:l]]
        return tuple(rows)

    @property
    def added(self) -> tuple[str, ...]:
        return tuple(text for sign, text in self.rows if sign == "+")

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(text for sign, text in self.rows if sign == "-")

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return any(sign != " " for sign, _ in self.rows)

    @property
    def headline(self) -> str:
        if not self:
            return f"{self.title}: no difference"
        removed = "1 line" if len(self.removed) == 1 else f"{len(self.removed)} lines"
        return f"{self.title}: {removed} removed, {len(self.added)} added"

    @cached_property
    def _hunks(self) -> list[tuple[str, str]]:
        """Return the changes with the lines around them, and ``("…", "")`` for each gap."""
        near: set[int] = set()
        for at, (sign, _) in enumerate(self.rows):
            if sign != " ":
                near.update(range(at - CONTEXT, at + CONTEXT + 1))
        hunks: list[tuple[str, str]] = []
        for at, row in enumerate(self.rows):
            if at in near:
                if hunks and at - 1 not in near:
                    hunks.append(("…", ""))
                hunks.append(row)
        return hunks

    def __repr__(self) -> str:
        lines = [f"{sign} {page.clipped(text)}".rstrip() for sign, text in self._hunks]
        left = len(lines) - MOST_LINES
        return "\n".join(
            [self.headline, *lines[:MOST_LINES], *([f"... {left} more lines"] if left > 0 else [])]
        )

    def _repr_html_(self) -> str:
        name = page.identifier(self.headline, self._hunks)
        shown = self._hunks[: page.MOST_LINES]
        coloured = highlight([page.clipped(text) for _, text in shown], self.stage)
        tags = {"+": "ins", "-": "del"}
        rows = []
        for (sign, _), text in zip(shown, coloured, strict=True):
            tag = tags.get(sign, "span")
            rows.append(f"<{tag}>{sign} {text}\n</{tag}>")
        left = len(self._hunks) - len(shown)
        more = f"<div><i>{left} more lines: print(them.text)</i></div>" if left > 0 else ""
        body = f'{page.bold(self.headline)}<pre tabindex="0">{"".join(rows)}</pre>{more}' if rows else ""
        return page.frame(name, page.style(name), body or f"<div>{html.escape(self.headline)}</div>")

    @property
    def text(self) -> str:
        """The whole diff, in unified form without line numbers."""
        return "\n".join(f"{sign} {text}".rstrip() for sign, text in self._hunks)


# ---- differences that do not count


def keys(before: Sequence[str], after: Sequence[str], stage: str) -> tuple[list[str], list[str]]:
    """Return both versions' lines as they are compared: without running numbers."""
    key = _KEYS.get(stage, _mlir_key)
    renamed = _aliases_of_one_meaning(before, after) if key is _mlir_key else {}
    if renamed:
        pattern = re.compile(r"#\w+")
        after = [pattern.sub(lambda m: renamed.get(m[0], m[0]), line) for line in after]
    return [key(line) for line in before], [key(line) for line in after]


def _with_aliases_in_order(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines with the definitions of layouts, which come first, sorted by content."""
    count = next((n for n, line in enumerate(lines) if not _ALIAS.match(line)), len(lines))
    return [*sorted(lines[:count], key=lambda line: line.partition(" = ")[2]), *lines[count:]]


_ALIAS = re.compile(r"^(#\w+) = (.*)$")


def _aliases_of_one_meaning(before: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    """Return, for the second version's layout aliases such as ``#blocked2``, the first version's names.

    MLIR renumbers them at each change. An alias that the first version lacks keeps its name, unless that name
    means another layout there.
    """
    old, new = ({m[1]: m[2] for m in map(_ALIAS.match, lines) if m} for lines in (before, after))
    meaning = {text: name for name, text in old.items()}
    renamed = {name: meaning[text] for name, text in new.items() if text in meaning}
    taken = set(renamed.values())
    return renamed | {n: f"{n}'" for n in new if n not in renamed and n in taken}


def _mlir_key(line: str) -> str:
    line = re.sub(r"(%[A-Za-z]\w*?)_\d+\b", r"\1", line)
    return re.sub(r"%(?:arg)?\d+\b", "%", line)


def _llvm_key(line: str) -> str:
    line = re.sub(r"\s*; preds = .*", "", line)
    line = re.sub(r"%(?:\d+|\.[a-z]+\d*)\b", "%", line)
    return re.sub(r"^\d+:|(?<=label %)\S+|#\d+|\$\d+|!\w+ !\d+", "", line)


def _ptx_key(line: str) -> str:
    line = re.sub(r"\s+//.*", "", line)
    return re.sub(r"(%[a-z]+)\d+|\$L__BB[\d_]+", r"\1", line)


def _sass_key(line: str) -> str:
    line = re.sub(r"^[0-9a-f]{4,}\s+|\.reuse", "", line)
    return re.sub(r"\b(UR|R|UP|P|B)\d+\b|\.L_x?_?\d+", r"\1", line)


def _amd_key(line: str) -> str:
    line = re.sub(r"\s+;.*", "", line)
    return re.sub(r"\b([vsa])(?:\d+|\[\d+:\d+\])|\.LBB[\d_]+", r"\1", line)


_KEYS = {"llir": _llvm_key, "ptx": _ptx_key, "sass": _sass_key, "amdgcn": _amd_key}
