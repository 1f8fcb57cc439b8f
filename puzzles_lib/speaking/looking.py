"""`look`: what each byte of a sentence looks at in the small model, with a reader's kernel in its attention.

A kernel of puzzle 8 computes the softmax of the scores, for all heads of a layer at once, and that of the 256
scores of the next byte. A kernel of puzzle 9b computes the attention of a head. It stores no weights, so it
runs again with the rows of an identity matrix as values: the mean of these rows is the weights.

Which head is shown was chosen by `Pattern.means` of all heads. On the course's README, the first one below
gives the byte before 0.6 of the weight, and the second one a quarter to the end of the word before. Both are
more than any other head gives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from matplotlib.colors import to_rgb
from torch import Tensor

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX
from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing.card import Theme, card, rows
from puzzles_lib.drawing.colours import BAD, FAINT, ORANGE, SILVER
from puzzles_lib.drawing.sheet import Picture, box, cells, label, new_sheet
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.speaking import packed
from puzzles_lib.speaking.launching import (
    FAILS,
    OLDER,
    OPEN,
    UNCHECKED,
    Launcher,
    Stopped,
    Tally,
    doubt_about,
    one_thread,
)
from puzzles_lib.speaking.model import Sizes

MOST = 40  # bytes of a sentence: a picture has room for as many
LIKELY = 3  # of the next bytes that are listed
SAME = 1e-3  # by which rounding may move a weight, relative to torch's
_NAMES = {ord(" "): "\N{OPEN BOX}", ord("\n"): "\\n", ord("\t"): "\\t"}


@dataclass(frozen=True)
class Run:
    """What the model computes. weights: [layers, heads, T, T]. results: of attention, [layers, heads, T, D].

    following: the probabilities of the next byte, [256].
    """

    weights: Tensor
    results: Tensor
    following: Tensor


@dataclass(frozen=True)
class Pattern:
    """Something that a head looks at. places: returns pairs of a byte of a text and what it looks at.

    layer, head: the one that looks at it most, from 1.
    """

    name: str
    layer: int
    head: int
    places: Callable[[bytes], Sequence[tuple[int, int]]]

    def means(self, text: bytes, weights: Tensor) -> Tensor | None:
        """Return the mean weight of these places, [layers, heads]; None if a text has none."""
        if not (places := self.places(text)):
            return None
        i, j = zip(*places, strict=True)
        return weights[..., list(i), list(j)].mean(-1)


def _byte_before(text: bytes) -> list[tuple[int, int]]:
    return [(i, i - 1) for i in range(1, len(text))]


def _end_of_word_before(text: bytes) -> list[tuple[int, int]]:
    """Return each letter of a word after another word and a blank, with the other word's last letter."""
    found: list[tuple[int, int]] = []
    end = last = None  # the last letter of the word before, and the newest letter
    for i, byte in enumerate(text):
        if not chr(byte).isascii() or not chr(byte).isalpha():
            continue
        if last is not None and last < i - 1:
            end = last if text[last + 1 : i] == b" " else None
        last = i
        found += [(i, end)] if end is not None else []
    return found


PATTERNS = {
    LONG_SOFTMAX.name: Pattern("the byte before", 3, 1, _byte_before),
    FLASH_ATTENTION.name: Pattern("the last letter of\nthe word before", 3, 2, _end_of_word_before),
}
"""By the puzzle whose kernel takes part."""


@dataclass(frozen=True)
class Look:
    """What `look` returns: the weights of one head as a picture, and which kernel computed them.

    text: the sentence's bytes. layer, head: those that are shown. by_torch: what torch computes.
    run: what the kernel computes, or torch without it. None if the kernel was stopped; ``report`` says why.
    doubt: what is known of the kernel if it hasn't passed `check`.
    """

    text: bytes
    puzzle: Puzzle
    layer: int
    head: int
    by_torch: Run
    run: Run | None
    tally: Tally = field(default_factory=Tally)
    report: Report | None = None
    doubt: str = ""

    @cached_property
    def picture(self) -> Picture | None:
        """The picture; None if the kernel was stopped."""
        if self.run is None:
            return None
        return draw(self.text, self.run.weights, self.layer, self.head, PATTERNS[self.puzzle.name])

    @cached_property
    def wrong(self) -> int:
        """How many weights differ from torch's by more than rounding. At least 1 if another result does."""
        if self.run is None or not self.tally.kernel:
            return 0
        weights = ~_close(self.run.weights, self.by_torch.weights)
        results = ~_close(self.run.results, self.by_torch.results)
        return int(weights.sum()) or int(results.any())

    @property
    def _headline(self) -> str:
        kernel = self.tally.kernel
        if self.report:
            return f"There are no weights, because {kernel or 'your kernel'} didn't run to its end"
        if not kernel:
            return f"torch computed these weights. If you solve puzzle {self.puzzle.number}, your kernel will"
        if self.wrong:
            return f"{kernel} computed wrong weights"
        if self.doubt in (FAILS, OLDER):
            return f"{kernel} computed these weights, but it fails `check`"
        return f"Your {kernel} computed these weights"

    @property
    def _remarks(self) -> list[str]:
        if self.run is None or not self.tally.kernel:
            return [self._next] if self.run else []
        known = {
            FAILS: " It fails `check`." if self.wrong else "",
            OLDER: " This is an older version, which fails `check`.",
            UNCHECKED: " It hasn't passed `check` as it is now.",
        }
        told = f"It ran {self.tally.launches} times.{known.get(self.doubt, '')}"
        count = self.run.weights.numel()
        same = f"{self.wrong} of {count} weights, of all heads together, differ from torch's."
        why = " `check` finds out why." if self.doubt in ("", UNCHECKED) else ""
        told += f" {same}{why}" if self.wrong else " torch computes the same weights and results."
        return [told, self._next]

    @property
    def _next(self) -> str:
        """The likeliest next bytes, and torch's if they differ."""
        assert self.run
        mine, by_torch = (_likeliest(each.following) for each in (self.run, self.by_torch))
        other = "" if mine == by_torch else f" By torch: {by_torch}."
        return f"The likeliest next bytes: {mine}.{other}"

    def __str__(self) -> str:
        lines = [self._headline, *self._remarks, str(self.report or ""), str(self.picture or "")]
        return "\n".join(line for line in lines if line)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = rows(*self._remarks, *str(self.report or "").splitlines())
        bad = self.report or self.wrong or self.doubt in (FAILS, OLDER)
        shown = card(Theme.WRONG if bad else Theme.NEUTRAL, self._headline, body)
        return shown + (self.picture.svg() if self.picture else "")


def look(text: str, puzzle: Puzzle, kernel: object | None, layer: int, head: int) -> Look:
    """Run the small model on a sentence, with a kernel of puzzle 8 or 9b in it, every access checked.

    kernel: if it's None or still has a gap to fill in, torch takes its place.
    layer, head: of the weights that are shown, from 1.

    Raises TypeError or ValueError, with the name, for arguments that don't fit. A kernel that goes wrong
    doesn't raise: the result says why.
    """
    __tracebackhide__ = True
    _check_arguments(text, layer, head)
    sentence = text.encode()
    launch = Launcher({} if kernel is None else {puzzle.name: kernel})
    report = None
    with one_thread(), torch.inference_mode():
        by_torch = run = compute(sentence, puzzle, Launcher({}))
        try:
            run = compute(sentence, puzzle, launch) if launch.kernels else by_torch
        except Stopped as stopped:
            report = stopped.report
    doubt = doubt_about(puzzle, kernel)
    return Look(
        sentence, puzzle, layer, head, by_torch, None if report else run,
        launch.tallies.get(puzzle.name, Tally()), report, "" if doubt == OPEN else doubt,
    )  # fmt: skip


def compute(text: bytes, puzzle: Puzzle, launch: Launcher) -> Run:
    """Run the model with puzzle 8 as its softmax, or with puzzle 9b as its attention."""
    attend = _by_softmax if puzzle is LONG_SOFTMAX else _by_flash
    found: list[tuple[Tensor, Tensor]] = []

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found.append(attend(launch, q[0], k[0], v[0]))
        return found[-1][0][None]

    model = packed.reference(packed.load())
    for layer in model.layers:
        layer.attend = attended  # type: ignore[assignment]
    logits = model(torch.tensor([list(text)]))[:, -1]
    following = logits.softmax(1)
    if puzzle is LONG_SOFTMAX:
        (following,) = launch(LONG_SOFTMAX, x=logits, BLOCK_M=1, BLOCK_N=128)
    results, weights = (torch.stack(each) for each in zip(*found, strict=True))
    return Run(weights, results, following[0])


def _by_softmax(launch: Launcher, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention of heads [H, T, D], and its weights [H, T, T]."""
    scores = q @ k.mT / q.shape[2] ** 0.5
    scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    (weights,) = launch(LONG_SOFTMAX, x=scores.flatten(0, 1), BLOCK_M=16, BLOCK_N=64)
    return weights.view(scores.shape) @ v, weights.view(scores.shape)


def _by_flash(launch: Launcher, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same by a kernel that stores no weights."""
    count, width = q.shape[1:]
    ones = torch.eye(count, -(-count // width) * width).split(width, dim=1)
    blocks = {"BLOCK_Q": 16, "BLOCK_K": 16, "BLOCK_D": width}

    def means(head: int, values: Tensor) -> Tensor:
        (z,) = launch(FLASH_ATTENTION, q=q[head], k=k[head], v=values, **blocks)
        return z

    results = torch.stack([means(head, v[head]) for head in range(len(q))])
    weights = [torch.cat([means(head, each) for each in ones], dim=1) for head in range(len(q))]
    return results, torch.stack(weights)[:, :, :count]


def _close(found: Tensor, wanted: Tensor) -> Tensor:
    return torch.isclose(found, wanted, rtol=SAME, atol=SAME)


def _check_arguments(text: object, layer: object, head: object) -> None:
    """Raise TypeError or ValueError for arguments that don't fit."""
    __tracebackhide__ = True
    if not isinstance(text, str):
        raise TypeError(f"attention: the sentence must be a string, not {type(text).__name__}")
    if not 0 < (count := len(text.encode())) <= MOST:
        several = " (a letter such as é has several)" if not text.isascii() else ""
        raise ValueError(f"attention: the sentence must have 1 to {MOST} bytes, but has {count}{several}")
    for name, value, most in (("layer", layer, Sizes().layers), ("head", head, Sizes().heads)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"attention: {name} must be from 1 to {most}, but is {value!r}")


# ---- the picture


def draw(text: bytes, weights: Tensor, layer: int, head: int, pattern: Pattern) -> Picture:
    """Draw a head's weights, a row for each byte that looks, and each head's average weight of a pattern."""
    names = [_name(byte) for byte in text]
    table = weights[layer - 1, head - 1].tolist()
    size = min(0.56, 13.0 / len(text))  # of a cell
    left, top, side = 1.5, 1.7, size * len(text)
    means = pattern.means(text, weights)
    right = left + max(side, 3.0) + 0.8
    figure, ax = new_sheet(right + 4.3, top + max(side, 0.0 if means is None else 5.6) + 0.3)
    for i, row in enumerate(table):
        for j, weight in enumerate(row):
            lit = weight >= 0.005
            fill = BAD if weight != weight else (*to_rgb(ORANGE), min(weight, 1.0)) if lit else None
            if fill or j <= i:
                box(ax, left + size * j, top + size * i, size, size, color=fill, edge=SILVER, linewidth=0.5)
    for n, name in enumerate(names):
        label(ax, left + size * (n + 0.5), top - 0.15, name, align="baseline", fontsize=8.5)
        label(ax, left - 0.15, top + size * (n + 0.55), name, align="right", fontsize=8.5)
    title = f"head {head} of layer {layer}: what each byte, a row, looks at (full color: weight 1)"
    label(ax, left, 0.5, title, align="left", fontsize=10, color=FAINT)
    told = [
        f"{name} looks at {names[j]} with {row[j]:.2f}"
        for name, row in zip(names, table, strict=True)
        for j in [max(range(len(row)), key=row.__getitem__)]
    ]
    alt = (
        f"The weights of head {head} of layer {layer}, a row for each byte that looks and a column for each "
    )
    alt += f"that is looked at. The largest of each row: {'; '.join(told)}."
    if means is not None:
        texts = [[f"{mean:.2f}" for mean in of_layer] for of_layer in means.tolist()]
        lines = "\n".join(("average weight of", pattern.name))
        label(ax, right, top + 0.2, lines, align="left top", fontsize=9.5)
        y = top + 0.2 + 0.45 * lines.count("\n") + 1.9
        shown = [[(layer, head) == (a + 1, b + 1) for b in range(len(row))] for a, row in enumerate(texts)]
        fills = [[ORANGE if each else None for each in row] for row in shown]
        place = cells(
            ax, texts, x=right + 0.5, y=y, width=0.92, height=0.8, colors=fills, fontsize=8.5,
            index=range(1, len(texts[0]) + 1), row_index=range(1, len(texts) + 1),
        )  # fmt: skip
        label(ax, (place.x + place.right) / 2, y - 0.85, "head", fontsize=9, color=FAINT)
        label(ax, right - 0.25, (y + place.bottom) / 2, "layer", fontsize=9, color=FAINT, rotation=90)
        name = pattern.name.replace("\n", " ")
        by_layer = "; ".join(f"layer {n + 1}: {', '.join(row)}" for n, row in enumerate(texts))
        alt += f" The average weight of {name}, by head: {by_layer}."
    return Picture(figure, alt)


def _name(byte: int) -> str:
    """Return how a picture shows a byte: as a character, or in hexadecimal if it's part of one."""
    return _NAMES.get(byte) or (chr(byte) if 32 < byte < 127 else f"{byte:02X}")


def _likeliest(following: Tensor) -> str:
    shares, order = following.nan_to_num().topk(LIKELY)
    names = [_name(byte) for byte in order.tolist()]
    told = [
        f"{name} {'over 99%' if share >= 0.995 else f'{share:.0%}'}"
        for name, share in zip(names, shares.tolist(), strict=True)
        if share >= 0.005
    ]
    return ", ".join(told) or "none"
