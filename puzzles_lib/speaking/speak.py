"""`speak`: the course's language model goes on with a text, with your kernels in it."""

import codecs
import contextlib
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing.card import Theme, card, heads, rows
from puzzles_lib.notebooks import JUST_THE_PUZZLES
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import define
from puzzles_lib.speaking import packed
from puzzles_lib.speaking.launching import Launcher, Stopped, Tally
from puzzles_lib.speaking.model import Sizes
from puzzles_lib.speaking.steps import STEPS, Decoder
from puzzles_lib.stubs import is_untouched

_CHECK = re.compile(r"^check\((\w+), (\w+)\)", re.MULTILINE)
_TORCH = "torch"


@dataclass(frozen=True)
class Spoken:
    """What the model wrote, and who computed it.

    text: with the prompt. tallies: by the puzzle's name, in the order of a token's way. report: why a
    reader's kernel was stopped, or None.
    """

    prompt: str
    text: str
    tallies: Mapping[str, Tally]
    report: Report | None = None

    @property
    def yours(self) -> list[str]:
        """The names of the puzzles that were run by the reader's kernels."""
        return [name for name, tally in self.tallies.items() if tally.kernel]

    @property
    def _headline(self) -> str:
        if self.report:
            return f"Stopped after {len(self.text.encode()) - len(self.prompt.encode())} bytes"
        return f"{len(self.yours)} of {len(STEPS)} kernels are yours"

    def _table(self) -> list[tuple[str, str, int, str]]:
        """Return a row per puzzle: its name, what ran it, launches, and its share of the kernels' bytes."""
        total = sum(tally.bytes for tally in self.tallies.values()) or 1
        return [
            (
                name.replace("_", " "),
                tally.kernel or _TORCH,
                tally.launches,
                f"{tally.bytes / total:.0%}" if tally.kernel else "",
            )
            for name, tally in self.tallies.items()
        ]

    def __str__(self) -> str:
        lines = [self._headline] + ([str(self.report)] if self.report else [])
        for name, by, launches, share in self._table():
            moved = f"  {share} of your kernels' bytes" if share else ""
            lines.append(f"{name:<18}{by:<28}{launches:5} launches{moved}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = rows(*str(self.report).splitlines()) if self.report else ""
        bars = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(by)}</td>"
            f'<td style="text-align:right;padding-right:1em">{launches}</td><td>{_bar(share)}</td></tr>'
            for name, by, launches, share in self._table()
        )
        head = heads("step", "run by", "launches", "share of your kernels' bytes")
        theme = Theme.WRONG if self.report else Theme.NEUTRAL
        return card(theme, self._headline, f'{body}<table style="margin:0.3em 0">{head}{bars}</table>')


def _bar(share: str) -> str:
    if not share:
        return ""
    width = int(share.rstrip("%")) / 10
    block = f"display:inline-block;height:0.7em;width:{width}em;background:{Theme.NEUTRAL}"
    return f'<span aria-hidden="true" style="{block}"></span> {share}'


def speak(
    prompt: str,
    kernels: Mapping[str, object] | None = None,
    *,
    length: int = 100,
    heat: float = 0.7,
    seed: int = 0,
) -> Spoken:
    """Print a text that goes on after ``prompt``, byte by byte, and return who computed it.

        speak("A program", {"rope": rope_kernel}, length=50)

    kernels: by the puzzle's name, those to run under guard. All other steps run in torch, as do those whose
        kernel is None or still has its hole open.
    length: the number of bytes to write. Prompt and text together have at most 256.
    heat: 0 always takes the likeliest byte; 1 draws by the model's probabilities.
    seed: of the draws. The same arguments give the same text.

    Raises TypeError or ValueError, with the name, for arguments that do not fit. A kernel that goes wrong
    doesn't raise: the text ends there, and the result says why.
    """
    __tracebackhide__ = True
    given = dict(kernels or {})
    start = _checked(prompt, given, length, heat, seed)
    launch = Launcher({name: kernel for name, kernel in given.items() if kernel is not None})
    text = bytearray(start)
    report = None
    try:
        with _one_thread(), torch.inference_mode():
            print(prompt, end="", flush=True)
            for piece in _written(Decoder(_weights(), launch), start, length, heat, seed):
                text += piece
    except Stopped as stopped:
        report = stopped.report
    finally:
        print()
    tallies = {each.name: launch.tallies[each.name] for each in STEPS if each.name in launch.tallies}
    return Spoken(prompt, text.decode("utf-8", "replace"), tallies, report)


def _written(decoder: Decoder, start: bytes, length: int, heat: float, seed: int) -> Iterator[bytes]:
    """Give each byte, and print it as soon as it ends a character."""
    decode = codecs.getincrementaldecoder("utf-8")("replace")
    piece = start
    for number in range(length):
        logits = decoder.logits(piece)
        piece = bytes([decoder.sample(logits, heat, seed + number)])
        print(decode.decode(piece), end="", flush=True)
        yield piece


def _checked(
    prompt: object, kernels: Mapping[str, object], length: object, heat: object, seed: object
) -> bytes:
    """Return the prompt's bytes after checking all arguments of `speak`."""
    __tracebackhide__ = True
    if not isinstance(prompt, str):
        raise TypeError(f"speak: prompt is a {type(prompt).__name__}, allowed is a string")
    names = [step.name for step in STEPS]
    for name in kernels:
        if name not in names:
            raise ValueError(f"speak: kernels has {name!r}, allowed are {', '.join(names)}")
    most, start = Sizes().context, prompt.encode()
    if not 0 < len(start) < most:
        raise ValueError(f"speak: prompt has {len(start)} bytes, allowed are 1 to {most - 1}")
    if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= most - len(start):
        raise ValueError(
            f"speak: length is {length!r}, allowed are 1 to {most - len(start)} after this prompt"
        )
    if isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat < float("inf"):
        raise ValueError(f"speak: heat is {heat!r}, allowed are numbers from 0 up")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**62:
        raise ValueError(f"speak: seed is {seed!r}, allowed are integers from 0 to below 2^62")
    return start


@cache
def _weights() -> dict[str, Tensor | packed.Packed]:
    return packed.load()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors are small: more threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def kernel_of(puzzle: Puzzle) -> object | None:
    """Return your kernel for a puzzle of an earlier chapter.

    It comes from a notebook in this folder: the chapter's, or the one with just the puzzles.

    Return None if there is no such notebook, or if the cell with the puzzle's `check` defines no kernel.
    """
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"kernel_of: puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    (chapter,) = (chapter for chapter in CHAPTERS if puzzle in chapter.puzzles)
    found = [_kernel_in(Path(name), puzzle) for name in (chapter.notebook, JUST_THE_PUZZLES)]
    kernels = [kernel for kernel in found if kernel is not None]
    return next((kernel for kernel in kernels if not is_untouched(kernel)), kernels[0] if kernels else None)


def _kernel_in(file: Path, puzzle: Puzzle) -> object | None:
    try:
        cells = json.loads(file.read_text("utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return None
    found: dict[str, str] = {}
    for cell in cells:
        source = "".join(cell.get("source", ""))
        checks = _CHECK.search(source)
        if checks and checks[2].lower() == puzzle.name and f"def {checks[1]}(" in source:
            found.setdefault(checks[1], source)
    handed_out = f"{puzzle.name}_kernel"  # a chapter checks wrong kernels too, under other names
    for name in sorted(found, key=lambda name: name != handed_out):
        with contextlib.suppress(Exception):  # whatever a reader's cell may do
            return define(_CHECK.sub("", found[name]), f"<{name} of {file}>")
    return None
