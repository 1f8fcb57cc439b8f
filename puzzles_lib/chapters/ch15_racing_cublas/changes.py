"""`changed`: the lines that one version of chapter 15's kernel loses and gains against another.

The lines are read from the kernels themselves, which are the reader's own if they had a hole to fill.
"""

import html
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from triton.runtime.jit import KernelInterface

from puzzles_lib.chapters.ch15_racing_cublas.race import figures
from puzzles_lib.chapters.ch15_racing_cublas.rung import Rung, in_words, outdated
from puzzles_lib.difference import Lines, difference, drawn, told
from puzzles_lib.drawing.card import Theme, card
from puzzles_lib.source import with_helpers
from puzzles_lib.stubs import HOLE, is_untouched

FOLDED = 24  # lines; what has more is shown when asked for
_LEGEND = "- removed   + added"
_BOX = "K = 100864, in the box:"
_WORDS = {"splits": "parts", "num_warps": "warps", "num_stages": "stages"}


@dataclass(frozen=True, repr=False)
class Changes:
    """What changes from one version to another.

    before, after: the versions' names. launch: the settings that differ, such as ``"parts 8 → 7"``. lines:
    (sign, text) of the kernels and their helpers; ``"-"`` is in the first, ``"+"`` in the second, ``" "`` in
    both.
    note: a sentence if one of the kernels has been edited since, so nothing is compared; "" if not.
    box: the figures of both boxes that differ, such as ``"registers per thread: 80 → 255"``; none unless
    both versions were raced.
    """

    before: str
    after: str
    launch: tuple[str, ...]
    lines: Lines
    note: str = ""
    box: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """Return both versions' names, and how many lines change."""
        return f"{self.before} → {self.after}: {self._sizes()}"

    def _sizes(self) -> str:
        if self.note:
            return "not compared"
        if self.lines:
            gone, new = (sum(sign == each for sign, _ in self.lines) for each in "-+")
            return f"{gone or 'no'} line{'s' * (gone != 1)} removed, {new} added"
        return "the same kernel with another launch" if self.launch else "nothing changes"

    @property
    def _launched(self) -> str:
        return f"launched with {', '.join(self.launch)}" if self.launch else ""

    def __repr__(self) -> str:
        code = told(self.lines, _LEGEND) if self.lines else []
        box = [_BOX, *(f"    {line}" for line in self.box)] if self.box else []
        return "\n".join([self.headline, *filter(None, [self.note, self._launched]), *box, *code])

    def _repr_html_(self) -> str:
        said = filter(None, [self.note, self._launched])
        body = "".join(f"<div>{html.escape(text)}</div>" for text in said)
        if self.box:
            rows = "".join(_row(line) for line in self.box)
            style = "display:grid;grid-template-columns:auto auto 1fr;gap:0 1em;margin:0.3em 0"
            body += f'<div style="{style}"><div>{_BOX}</div><div>was</div><div>is</div>{rows}</div>'
        if self.lines:
            code = drawn(self.lines, _LEGEND)
            summary = '<summary style="cursor:pointer">the lines</summary>'
            body += f"<details>{summary}{code}</details>" if len(self.lines) > FOLDED else code
        return card(Theme.NEUTRAL, self.headline, body)


def changed(before: Rung, after: Rung) -> Changes:
    """Return what changes from one version to the next: lines of kernel and helpers, and the launch.

    A helper that both have is left out: it is the same, or the reader's own beside the library's. Comments,
    empty lines and the kernel's name make no difference. If a hole isn't filled yet, its comment is shown for
    the missing lines.

    Raises TypeError if an argument isn't a `Rung`.
    """
    __tracebackhide__ = True
    for name, rung in (("before", before), ("after", after)):
        if not isinstance(rung, Rung):
            raise TypeError(f"changed(before, after): {name} must be a Rung, not {type(rung).__name__}")
    old, new = dict(_settings(before)), dict(_settings(after))
    launch = tuple(
        f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    )
    both = _helpers(before) & _helpers(after)
    codes = [[*_code(rung, both)] for rung in (before, after)]
    (old_keys, gone), (new_keys, come) = (tuple(zip(*code, strict=True)) or ((), ()) for code in codes)
    if note := outdated(after) or outdated(before):
        return Changes(before.name, after.name, (), (), note)
    box = tuple(_figures(before, after))
    return Changes(before.name, after.name, launch, difference(gone, come, (old_keys, new_keys)), box=box)


def _figures(before: Rung, after: Rung) -> Iterator[str]:
    """Yield the figures that differ between the boxes of two versions, if both were raced."""
    was, now = figures(before), figures(after)
    for name in was:
        if name in now and was[name] != now[name]:
            yield f"{name}: {was[name]} → {now[name]}"


def _row(line: str) -> str:
    """Return one of the box's figures as three cells of HTML."""
    name, _, both = line.partition(": ")
    return "".join(f"<div>{html.escape(text)}</div>" for text in (name, *both.split(" → ")))


def _settings(rung: Rung) -> Iterator[tuple[str, str]]:
    for name, value in rung.launch().items():
        if name != "descriptors":
            yield _WORDS.get(name, name), "?" if value is ... else in_words(value)
    for name, (rows, columns) in rung.descriptors.items():
        yield f"descriptor of {name}", f"{rows} x {columns}"


def _helpers(rung: Rung) -> set[str]:
    """Return the names of its kernel's helpers."""
    functions = with_helpers(rung.kernel) if isinstance(rung.kernel, KernelInterface) else ()
    return {each.__name__ for each in functions if each is not rung.kernel}


def _code(rung: Rung, without: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of its helpers, then of its kernel: what each is compared by, and its text.

    without: names of helpers to leave out.
    """
    known = isinstance(rung.kernel, KernelInterface)
    for function in reversed(with_helpers(rung.kernel)) if known else ():
        if function.__name__ in without:
            continue
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
    """Return where a line's comment begins, by the line's number."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.start[1] for token in tokens if token.type == tokenize.COMMENT}
