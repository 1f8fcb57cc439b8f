"""Find out which passes between the stages changed what, from MLIR's own dumps."""

import difflib
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from puzzles_lib.compiler.locations import read
from puzzles_lib.inspector import page
from puzzles_lib.inspector.diff import Diff
from puzzles_lib.stumbles import sentence_first

_HEADER = re.compile(r"^// -----// .*$", re.MULTILINE)
# "IR Dump Before Inliner (inline) ('builtin.module' operation)"; from 3.9, "InlinerPass: inline{options}".
_BEFORE = re.compile(r"// -----// IR Dump Before \w+(?: \(|: )([\w-]+).* \('builtin\.module' operation\)")


@dataclass(frozen=True, repr=False)
class Pass:
    """One pass: Triton's name for it, its place in the sequence from 0, and the IR before and after it."""

    name: str
    number: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the pass changed anything, even if only a name or the order."""
        return self.before != self.after

    @cached_property
    def diff(self) -> Diff:
        """What the pass changed."""
        return Diff(f"pass {self.number}, {self.name}", "ttgir", self.before, self.after)

    def __repr__(self) -> str:
        return repr(self.diff)

    def _repr_html_(self) -> str:
        return self.diff._repr_html_()


@dataclass(frozen=True, repr=False)
class Passes(Sequence[Pass]):
    """All passes from Triton IR to the LLVM dialect, in order. Those that changed something are shown.

    ``passes["tritongpu-coalesce"]`` is the first pass with this name that changed something.
    """

    title: str
    entries: tuple[Pass, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.entries)

    @overload
    def __getitem__(self, which: int | str) -> Pass: ...

    @overload
    def __getitem__(self, which: slice) -> tuple[Pass, ...]: ...

    def __getitem__(self, which: int | str | slice) -> Pass | tuple[Pass, ...]:
        __tracebackhide__ = True
        if not isinstance(which, str):
            if isinstance(which, int) and not -len(self) <= which < len(self):
                raise sentence_first(
                    IndexError(f"there is no pass {which}: the passes are 0 to {len(self) - 1}")
                )
            return self.entries[which]
        found = [p for p in self.entries if p.name == which]
        if not found:
            names = [*dict.fromkeys(p.name for p in self.entries)]
            part = [name for name in names if which and which.lower() in name]
            near = part or difflib.get_close_matches(which, names, cutoff=0.7)
            some = ", ".join(dict.fromkeys(p.name for p in self.changed))
            told = f"did you mean {' or '.join(near)}?" if near else f"there are {some}, ..."
            raise sentence_first(KeyError(f"there is no pass {which!r}; {told}"))
        return next((p for p in found if p.changed), found[0])

    @cached_property
    def changed(self) -> tuple[Pass, ...]:
        """The passes that changed something."""
        return tuple(p for p in self.entries if p.diff)

    @property
    def _headline(self) -> str:
        return f"{self.title}: {len(self)} passes, {len(self.changed)} changed something"

    def __repr__(self) -> str:
        lines = [self._headline, "   # removed added  pass"]
        for p in self.changed:
            lines.append(f"{p.number:>4} {len(p.diff.removed):>7} {len(p.diff.added):>5}  {p.name}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        name = page.identifier(self.title, [(p.name, p.diff.headline) for p in self.changed])
        head = "".join(f'<th scope="col">{h}</th>' for h in ("#", "removed", "added"))
        left = 'style="text-align:left"'
        rows = "".join(
            f"<tr><td>{p.number}</td><td>{len(p.diff.removed)}</td><td>{len(p.diff.added)}</td>"
            f"<td {left}><code>{html.escape(p.name)}</code></td></tr>"
            for p in self.changed
        )
        table = f'<table><tr>{head}<th scope="col" {left}>pass</th></tr>{rows}</table>'
        return page.frame(name, page.style(name), page.bold(self._headline) + table)


def read_passes(title: str, dumps: str) -> Passes:
    """Return the passes from what MLIR writes before each of them (``MLIR_ENABLE_DUMP``).

    The last one is left out, because nothing is written after it. Dumps of a single function, from nested
    passes, are skipped.
    """
    headers = [*_HEADER.finditer(dumps)]
    found = []
    for at, header in enumerate(headers):
        if match := _BEFORE.match(header[0]):
            end = headers[at + 1].start() if at + 1 < len(headers) else len(dumps)
            text = dumps[header.end() : end]
            found.append((match[1], tuple(line.text for line in read("ttgir", text))))
    pairs = zip(found, found[1:], strict=False)
    return Passes(title, tuple(Pass(p[0], n, p[1], q[1]) for n, (p, q) in enumerate(pairs)))
