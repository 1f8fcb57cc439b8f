"""Chapter 22's design of a server: what a plan keeps, how long a step of it takes, and what limits it.

The model and the GPU are `MODEL` and `GPU`. A step writes one token of each text. Its time is counted, not
measured: it reads all weights, and all keys and values, at the GPU's bandwidth. A multiprocessor has its
share of that bandwidth and runs one program of attention at a time. So 133 programs take two rounds. Queries
and the table are left out.
"""

from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from puzzles_lib.stumbles import sentence_first

MODEL = SimpleNamespace(weights=8e9, layers=32, heads=32, H_KV=8, D=128, keys=100_000)
GPU = SimpleNamespace(bytes=80e9, bandwidth=3.35e12, multiprocessors=132)
PAGE, GROUP = 16, 32  # keys per page; weights that share a scale
MOST_ERROR, SLACK = 0.10, 1.05  # relative error of a format; how much faster the best plan may be
WEIGHTS = {
    "bfloat16": 2.0,
    "8 bits": 1 + 5 / GROUP,
    "4 bits": (4 + 32 / GROUP + 4 / GROUP) / 8,
    "mxfp4": (4 + 8 / 32) / 8,
}
"""Bytes per weight by format. In 8 and 4 bits, a group has a scale in float32 and an offset, as in 12c."""
CACHE = {"bfloat16": 2.0, "float8": 1.0}
"""Bytes per number of a key or a value."""


def _in_codes(w: Tensor, bits: int) -> Tensor:
    """Return numbers as puzzle 12c has them: codes times the scale of their group, minus an offset."""
    groups = w.view(-1, GROUP)
    low, high = groups.aminmax(dim=1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    offset = (-low / scale).round()
    return (((groups / scale).round() + offset).clamp(0, 2**bits - 1) - offset).mul(scale).view_as(w)


def _in_mxfp4(w: Tensor) -> Tensor:
    """Return numbers as puzzle 73 has them: e2m1 times a power of two that keeps the largest below 6."""
    groups = w.view(-1, 32)
    scale = torch.exp2((groups.abs().amax(1, keepdim=True) / 6).log2().ceil())
    e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nearest = e2m1[((groups / scale).abs()[:, :, None] - e2m1).abs().argmin(2)]
    return (nearest * groups.sign() * scale).view_as(w)


_ROUNDED = {
    "bfloat16": lambda w: w.bfloat16().float(),
    "float8": lambda w: w.to(torch.float8_e4m3fn).float(),
    "8 bits": lambda w: _in_codes(w, 8),
    "4 bits": lambda w: _in_codes(w, 4),
    "mxfp4": _in_mxfp4,
}


@cache
def error(format: str) -> float:
    """Return the norm of a format's errors, relative to the numbers' norm, for normal numbers."""
    w = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))
    return float((_ROUNDED[format](w) - w).norm() / w.norm())


@dataclass(frozen=True)
class Plan:
    """A design, and what's counted for it.

    weights, cache: formats, of `WEIGHTS` and `CACHE`. PART: pages per part. texts: how many are written at
    once.
    """

    weights: str
    cache: str
    PART: int
    texts: int

    @property
    def weight_bytes(self) -> float:
        return MODEL.weights * WEIGHTS[self.weights]

    @property
    def cache_bytes(self) -> float:
        """Those of all texts and layers; the last page counts as a whole."""
        numbers = 2 * MODEL.layers * MODEL.H_KV * MODEL.D * _pages() * PAGE
        return numbers * CACHE[self.cache] * self.texts

    @property
    def free(self) -> float:
        return GPU.bytes - self.weight_bytes - self.cache_bytes

    @property
    def parts(self) -> int:
        return -(-_pages() // self.PART)

    @property
    def programs(self) -> int:
        """Those of a launch of puzzle 67, one per layer."""
        return self.texts * MODEL.H_KV * self.parts

    @property
    def rounds(self) -> int:
        return -(-self.programs // GPU.multiprocessors)

    @property
    def part_bytes(self) -> float:
        """The o and lse of all parts and layers: puzzle 67 stores them, and puzzle 68 loads them."""
        return 2 * 4 * (MODEL.D + 1) * MODEL.heads * MODEL.layers * self.texts * self.parts

    @property
    def seconds(self) -> float:
        """The time of a step. Each round takes as long as its longest program, which has `PART` pages."""
        program = 2 * min(self.PART, _pages()) * PAGE * MODEL.D * CACHE[self.cache]
        attention = MODEL.layers * self.rounds * program * GPU.multiprocessors
        return (self.weight_bytes + attention + self.part_bytes) / GPU.bandwidth

    @property
    def speed(self) -> float:
        """Tokens per second, of all texts together."""
        return self.texts / self.seconds

    @property
    def refused(self) -> str:
        """Return why this can't be built, as a sentence; "" if it can."""
        for name, format in (("weights", self.weights), ("cache", self.cache)):
            if error(format) > MOST_ERROR:
                return (
                    f"{format} has an error of {error(format):.1%} in the {name}, more than {MOST_ERROR:.0%}."
                )
        if self.free < 0:
            kept = f"{_gb(self.weight_bytes)} of weights and {_gb(self.cache_bytes)} of cache"
            return f"{kept} are more than {_gb(GPU.bytes)}."
        return ""

    @property
    def limit(self) -> str:
        """Return what costs the most speed, as a sentence: the choice that alone could gain the most."""
        gains = {name: max(each.speed for each in _with_other(self, name)) for name in _OTHERS}
        name = max(gains, key=lambda name: gains[name])
        pages = self.texts * MODEL.H_KV * _pages()
        room = self.rounds * GPU.multiprocessors * min(self.PART, _pages())
        idle = f"a layer has {pages:,} pages, but {_rounds(self.rounds)} would do for {room:,}: "
        idle += "the last round isn't full, or the last part of each text is short"
        short = f"{self.parts} parts per text: their o and lse are {_gb(self.part_bytes)} of a step"
        return {
            "weights": f"the weights: {_gb(self.weight_bytes)} of a step are theirs.",
            "cache": f"the cache: {_gb(self.cache_bytes)} of a step are its keys and values.",
            "texts": f"the texts: {self.texts} share a step's {_gb(self.weight_bytes)} of weights, and "
            f"{_gb(self.free)} of memory are free.",
            "PART": f"PART: {idle if pages < 0.95 * room else short}.",
        }[name]

    def __repr__(self) -> str:
        text = [
            f"weights: {_gb(self.weight_bytes)}, error {error(self.weights):.1%}",
            f"cache:   {_gb(self.cache_bytes)}, error {error(self.cache):.1%}",
        ]
        if refused := self.refused:
            return "\n".join([*text, f"Refused: {refused}"])
        text += [
            f"a layer: {self.programs} programs, {_rounds(self.rounds)} of {GPU.multiprocessors}",
            f"a step:  {self.seconds * 1e3:.1f} ms, so {self.speed:.0f} tokens per second",
        ]
        times = best().speed / self.speed
        if best().speed <= SLACK * self.speed:
            return "\n".join([*text, "Accepted: no design is more than 5% faster."])
        return "\n".join(
            [*text, f"Not yet: {times:.2f} times as many are possible. What costs most is {self.limit}"]
        )


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count % 1e9 else f"{count / 1e9:.0f} GB"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _pages() -> int:
    return -(-MODEL.keys // PAGE)


def _sizes_of_parts() -> list[int]:
    """Return the least PART of each number of parts."""
    return sorted({-(-_pages() // parts) for parts in range(1, _pages() + 1)})


def _counts_of_texts() -> range:
    least = replace(best_formats(), texts=1)
    return range(1, int((GPU.bytes - least.weight_bytes) / least.cache_bytes) + 1)


def best_formats() -> Plan:
    """Return a plan with the smallest formats that aren't refused."""
    weights, cached = (
        min((name for name in formats if error(name) <= MOST_ERROR), key=lambda name: formats[name])
        for formats in (WEIGHTS, CACHE)
    )
    return Plan(weights, cached, _pages(), 1)


_OTHERS = {
    "weights": lambda: WEIGHTS,
    "cache": lambda: CACHE,
    "PART": _sizes_of_parts,
    "texts": _counts_of_texts,
}
"""By the name of a choice, a function that returns all that may be chosen."""


def _with_other(given: Plan, name: str) -> list[Plan]:
    """Return the plans that can be built and differ from one in this choice at most."""
    plans = [replace(given, **{name: value}) for value in _OTHERS[name]()]
    return [each for each in plans if not each.refused] or [given]


@cache
def best() -> Plan:
    """Return the fastest plan of all."""
    small = best_formats()
    plans = [
        replace(small, texts=texts, PART=part) for texts in _counts_of_texts() for part in _sizes_of_parts()
    ]
    return max((each for each in plans if not each.refused), key=lambda each: each.speed)


def plan(weights: str, cache: str, PART: int, texts: int) -> Plan:
    """Return a plan, which shows what is counted for it and whether it's accepted.

    Raises ValueError or TypeError, with a sentence, for a choice that doesn't exist.
    """
    for name, value, formats in (("weights", weights, WEIGHTS), ("cache", cache, CACHE)):
        if value not in formats:
            text = f"{name} must be one of {', '.join(formats)}, but is {value!r}"
            raise sentence_first(ValueError(text))
    for name, number in (("PART", PART), ("texts", texts)):
        _check_count(name, number)
    return Plan(weights, cache, PART, texts)


def _check_count(name: str, number: Any) -> None:
    if type(number) is not int:
        raise sentence_first(TypeError(f"{name} must be a whole number, but is {number!r}"))
    if number < 1:
        raise sentence_first(ValueError(f"{name} must be at least 1, but is {number}"))


__all__ = ["Plan", "plan"]
