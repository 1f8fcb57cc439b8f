"""`changed`: what became of one version of chapter 15's kernel in the next, as the lines that go and come.

Read from the kernels that it is given, so from the reader's own where there was a hole to fill.
"""

import html
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from triton.runtime.jit import KernelInterface

from puzzles_lib.chapters.ch15_racing_cublas.rung import Rung, in_words
from puzzles_lib.difference import Lines, difference, drawn, told
from puzzles_lib.drawing.card import Theme, card
from puzzles_lib.source import with_helpers
from puzzles_lib.stubs import HOLE, is_untouched

FOLDED = 24  # lines; what has more is shown when asked for
_LEGEND = "- gone   + new"
_WORDS = {"splits": "parts", "num_warps": "warps", "num_stages": "stages"}


@dataclass(frozen=True, repr=False)
class Changes:
    """From one version to another.

    before, after: their names. launch: the settings that differ, such as ``"parts 8 → 7"``. lines: (sign,
    text) of the kernels and their helpers, ``"-"`` of the first, ``"+"`` of the second, ``" "`` of both.
    """

    before: str
    after: str
    launch: tuple[str, ...]
    lines: Lines

    @property
    def headline(self) -> str:
        """Both names, and how much changes."""
        return f"{self.before} → {self.after}: {self._sizes()}"

    def _sizes(self) -> str:
        if self.lines:
            gone, new = (sum(sign == each for sign, _ in self.lines) for each in "-+")
            return f"{gone or 'no'} line{'s' * (gone != 1)} gone, {new} new"
        return "the same kernel, launched otherwise" if self.launch else "nothing changes"

    @property
    def _launched(self) -> str:
        return f"launched with {', '.join(self.launch)}" if self.launch else ""

    def __repr__(self) -> str:
        code = told(self.lines, _LEGEND) if self.lines else []
        return "\n".join([self.headline, *filter(None, [self._launched]), *code])

    def _repr_html_(self) -> str:
        body = f"<div>{html.escape(self._launched)}</div>" if self.launch else ""
        if self.lines:
            code = drawn(self.lines, _LEGEND)
            summary = '<summary style="cursor:pointer">the lines</summary>'
            body += f"<details>{summary}{code}</details>" if len(self.lines) > FOLDED else code
        return card(Theme.NEUTRAL, self.headline, body)


def changed(before: Rung, after: Rung) -> Changes:
    """What is another in a version than in the one before: lines of kernel and helpers, and the launch.

    A comment, an empty line and the kernel's name make no difference; where a hole of the course's is still
    open, its comment stands for what is to come.

    Raises TypeError where one of them is no `Rung`.
    """
    __tracebackhide__ = True
    for name, rung in (("before", before), ("after", after)):
        if not isinstance(rung, Rung):
            raise TypeError(f"changed(before, after): {name} is a {type(rung).__name__}, allowed is a Rung")
    old, new = dict(_settings(before)), dict(_settings(after))
    launch = tuple(
        f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    )
    codes = [[*_code(rung)] for rung in (before, after)]
    (old_keys, gone), (new_keys, come) = (tuple(zip(*code, strict=True)) or ((), ()) for code in codes)
    return Changes(before.name, after.name, launch, difference(gone, come, (old_keys, new_keys)))


def _settings(rung: Rung) -> Iterator[tuple[str, str]]:
    for name, value in rung.launch().items():
        if name != "descriptors":
            yield _WORDS.get(name, name), "?" if value is ... else in_words(value)
    for name, (rows, columns) in rung.descriptors.items():
        yield f"descriptor of {name}", f"{rows} x {columns}"


def _code(rung: Rung) -> Iterator[tuple[str, str]]:
    """The lines of its helpers, then of its kernel: what each is compared by, and its text."""
    known = isinstance(rung.kernel, KernelInterface)
    for function in reversed(with_helpers(rung.kernel)) if known else ():
        own_name = f"def {function.__name__}("
        is_open = is_untouched(function)
        source = function.src
        comments = _comments(source)
        for number, line in enumerate(source.splitlines(), start=1):
            code = line[: comments.get(number)].rstrip()
            if code:
                text = line.removesuffix("  # fmt: skip")
                yield (code.replace(own_name, "def (") if function is rung.kernel else code), text
            elif is_open and line.strip().startswith(HOLE):
                yield line, line


def _comments(source: str) -> dict[int, int]:
    """Where a line's comment begins, by the line's number."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.start[1] for token in tokens if token.type == tokenize.COMMENT}
