"""Watch the random functions of Triton: which numbers repeat, and what becomes of one of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from puzzles_lib.runner.lanes import Lanes
from puzzles_lib.runner.records import Program
from puzzles_lib.source import Site

MOST = 1 << 21  # numbers of a run that are noted
_NAMES = ("rand__", "randn__", "randint__", "rand4x__", "randn4x__", "randint4x__", "philox__")
_PREFIX = "triton.language.random."
_LARGE = 8.0  # of normal random numbers


class Event(NamedTuple):
    """One call of a random function. number: of the program's calls. keys: a hash of the arguments per lane.

    shape: of the block. results: how many blocks the function returns.
    """

    program: Program
    number: int
    site: Site
    keys: np.ndarray
    shape: tuple[int, ...]
    results: int


class Change(NamedTuple):
    """Another number for one lane of a call. result: which of the blocks. high: a high one, or a low one."""

    program: Program
    number: int
    lane: int
    result: int
    high: bool


@dataclass
class Draws:
    """Notes the calls of random functions in a run. change: a number to replace."""

    change: Change | None = None
    events: list[Event] = field(default_factory=list)
    _calls: dict[Program, int] = field(default_factory=dict)
    _noted: int = 0

    def drawn(
        self, name: str, program: Program, site: Site, shape: tuple[int, ...], given: Sequence[Any], made: Any
    ) -> list[Lanes]:
        """Note a call of the function with this name, and return its results, perhaps with a change."""
        if not name.startswith(tuple(_PREFIX + each for each in _NAMES)):
            return list(made)
        number = self._calls[program] = self._calls.get(program, -1) + 1
        if self.change is not None:
            if (program, number) != self.change[:2]:
                return list(made)
            place = self.change.result
            return [
                self._changed(name, lanes, shape) if n == place else lanes for n, lanes in enumerate(made)
            ]
        keys = np.zeros(shape or (1,), np.uint64)
        for each in given:
            if not isinstance(each, Lanes):
                return list(made)
            keys = _mixed(keys ^ each.data.astype(np.uint64))
        if self._noted + keys.size <= MOST:
            self._noted += keys.size
            self.events.append(Event(program, number, site, keys.ravel(), shape, len(made)))
        return list(made)

    def _changed(self, name: str, lanes: Lanes, shape: tuple[int, ...]) -> Lanes:
        assert self.change is not None
        data, high = lanes.full(shape).copy(), self.change.high
        if data.dtype.kind == "f":
            low, top = (-_LARGE, _LARGE) if "randn" in name else (0.0, float(np.nextafter(np.float32(1), 0)))
        else:
            low, top = 0, int(np.iinfo(data.dtype).max)
        data.reshape(-1)[self.change.lane] = top if high else low
        return Lanes(data, lanes.row, lanes.labels)

    def repeats(self) -> Iterator[tuple[Event, int, Event, int]]:
        """Yield two calls of one line that get the same arguments in a lane each, and the lanes."""
        for site in dict.fromkeys(event.site for event in self.events):
            own = [event for event in self.events if event.site == site]
            keys = np.concatenate([event.keys for event in own])
            calls = np.repeat(np.arange(len(own)), [len(event.keys) for event in own])
            lanes = np.concatenate([np.arange(len(event.keys)) for event in own])
            order = np.argsort(keys, kind="stable")
            keys, calls, lanes = keys[order], calls[order], lanes[order]
            for place in np.flatnonzero((keys[1:] == keys[:-1]) & (calls[1:] != calls[:-1])):
                yield (
                    own[int(calls[place])],
                    int(lanes[place]),
                    own[int(calls[place + 1])],
                    int(lanes[place + 1]),
                )


def _mixed(keys: np.ndarray) -> np.ndarray:
    """Return a hash of each number (the finalizer of splitmix64)."""
    keys = keys + np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
