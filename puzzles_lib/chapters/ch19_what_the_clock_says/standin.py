"""A stand-in for a GPU and its clocks, on which chapter 19's readers try a benchmark of their own.

It runs no kernel. It keeps two times, the host's and the GPU's, and moves them by what was recorded on an
H200: how long a first call compiles, a launch takes in Python, a copy of 8 MiB takes from memory and from L2.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import cache
from numbers import Real
from types import MappingProxyType

from puzzles_lib.timing.recorded import CLOCK, load

EFFECTS = MappingProxyType(
    {
        "compile": "the first call compiles",
        "queue": "a launch returns before the copy has run",
        "launch": "Python launches more slowly than the GPU copies",
        "cache": "the data are still in L2",
        "rest": "a GPU that has rested is slow at its first copy",
    }
)
"""What can come between a copy and the time that is read off, each by a name."""
BUFFERS = 64
TOLERANCE = 0.05
_IN_L2 = 3  # buffers, each read and written: 16 of some 50 MB
_REST_US = 1000.0
_MOST_COPIES = 1_000_000  # of one benchmark; a careful one needs some thousands


@cache
def _pair(name: str) -> tuple[float, float]:
    (row,) = [row for row in load(CLOCK)["lies"] if row["name"] == name]
    return row["first"], row["second"]


class GPU:
    """A stand-in for a GPU: a queue of copies, and a clock on the host.

    effects: names from `EFFECTS`, all of them unless given. slower: how many times as long every copy takes
    as the recorded one. Raises ValueError for another effect.
    """

    def __init__(self, effects: Collection[str] = tuple(EFFECTS), slower: float = 1.0) -> None:
        if unknown := set(effects) - set(EFFECTS):
            raise ValueError(f"GPU: effects must be among {', '.join(EFFECTS)}, but has {sorted(unknown)}")
        self.buffers = tuple(range(BUFFERS))
        self._effects, self._slower = frozenset(effects), slower
        self._host = 0.0
        self._free = -2 * _REST_US  # when the GPU has done all that is queued; it has rested since then
        self._compiled = False
        self._recent: deque[Hashable] = deque(maxlen=_IN_L2)
        self._captured: list[Hashable] | None = None
        self._copies = 0
        self._looks = 0

    @property
    def truth(self) -> float:
        """Return the microseconds that a copy takes when its data come from memory."""
        return _pair("cache")[1] * self._slower

    def clock(self) -> float:
        """Return the host's time in microseconds."""
        self._looks += 1
        return self._host

    @property
    def unused(self) -> str:
        """Return what a benchmark left out without which it can't time a copy; "" if nothing."""
        if not self._copies:
            return "your benchmark launches no copy, so it can't have timed one"
        if self._looks < 2:
            looks = "looks at gpu.clock() only once" if self._looks else "never looks at gpu.clock()"
            return f"your benchmark {looks}, but a time is the difference of two looks"
        return ""

    def copy(self, buffer: Hashable) -> None:
        """Launch a copy of one of `buffers`. Raise ValueError for anything else."""
        if buffer not in self.buffers:
            raise ValueError(f"copy: buffer must be one of gpu.buffers, but is {buffer!r}")
        if "compile" in self._effects and not self._compiled:
            self._host += _pair("first call")[0]
        self._compiled = True
        if self._captured is not None:
            self._captured.append(buffer)
        else:
            self._launch([buffer])

    def graph(self, work: Callable[[], object]) -> Callable[[], None]:
        """Return a CUDA graph: a function that launches all copies of ``work()`` by one launch."""
        self._captured = captured = []
        try:
            work()
        finally:
            self._captured = None
        return lambda: self._launch(captured)

    def synchronize(self) -> None:
        """Wait until the GPU has done all that is queued."""
        self._host = max(self._host, self._free)

    def _launch(self, buffers: list[Hashable]) -> None:
        self._copies += len(buffers)
        if self._copies > _MOST_COPIES:
            raise RuntimeError(f"more than {_MOST_COPIES:,} copies; some thousands are enough")
        if "launch" in self._effects:
            self._host += _pair("launch")[0]
        for buffer in buffers:
            begin = max(self._host, self._free)
            us = self.truth
            if "cache" in self._effects and buffer in self._recent:
                us *= _pair("cache")[0] / _pair("cache")[1]
            if "rest" in self._effects and begin - self._free > _REST_US:
                us *= _slow_start()
            self._free = begin + us
            if buffer in self._recent:
                self._recent.remove(buffer)
            self._recent.append(buffer)
        if "queue" not in self._effects:
            self.synchronize()


@cache
def _slow_start() -> float:
    """Return how many times as long the first copy after a rest took as the median of 60, each of 256 MiB."""
    (row,) = [row for row in load(CLOCK)["lies"] if row["name"] == "spread"]
    return row["more"]["times"][0] / row["second"]


_REVIEWED = MappingProxyType(
    {
        "compile": "it doesn't warm up",
        "queue": "it doesn't wait for the last copies before it looks at the clock",
        "launch": "Python launches each copy",
        "rest": "it repeats too little",
    }
)
"""The lies that a reviewer finds by reading the benchmark, each with what there is to see."""


@dataclass(frozen=True)
class Audit:
    """What a benchmark says of a copy, and what makes it say so.

    says: microseconds, with all effects at work; None while the benchmark returns nothing. truth: what a copy
    takes. lies: the effects that move the benchmark by more than 5% when they are alone, and how far each
    moves it: what it says over what is true. most: the effect that moves it furthest, and how far. error:
    why it can't be judged: what it raised or returned, or that it timed nothing. calm: what it says, and what
    is true, on a GPU without any of the effects, if the two differ; then no effect is blamed. below: if
    given, the goal is a cheat: at most this many microseconds, by exactly one lie that a reviewer misses.
    """

    says: float | None
    truth: float
    lies: dict[str, float]
    error: str = ""
    most: tuple[str, float] = ("", 1.0)
    calm: tuple[float, float] | None = None
    below: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the benchmark reaches its goal: it tells the truth, or it cheats as `below` asks."""
        if self.error or self.calm or self.says is None:
            return False
        if self.below is not None:
            return 0 < self.says < self.below and len(self.lies) == 1 and not self.lies.keys() & _REVIEWED
        return not self.lies and _near(self.says, self.truth)

    def __repr__(self) -> str:
        if self.error:
            return f"not judged: {self.error}"
        if self.says is None:
            return "not solved yet: your benchmark returns nothing"
        lines = [f"your benchmark says {self.says:,.2f} µs per copy; {self.truth:.2f} µs is the truth"]
        if self.calm:
            says, truth = self.calm
            lines.append(
                f"not yet: even on a GPU without any of the five effects it says {says:,.2f} µs where a copy "
                f"takes {truth:.2f}. Divide the time between your two looks at the clock by the number of "
                "copies that ran in between"
            )
            return "\n".join(lines)
        if self.ok and self.below is None:
            return "\n".join([*lines, "none of the five effects moves it by more than 5%: well measured"])
        lines += [
            f"{EFFECTS[name]}: this alone makes it {_times(times)}" for name, times in self.lies.items()
        ]
        if self.below is not None:
            return "\n".join([*lines, self._cheated(self.below)])
        if not self.lies and self.most[0]:
            off = abs(self.says / self.truth - 1)
            name, times = self.most
            lines.append(
                f"not yet: all effects together move it by {off:.1%}. The largest alone is this one: "
                f"{EFFECTS[name]} ({times:.3f} times the truth)"
            )
        return "\n".join(lines)

    def _cheated(self, below: float) -> str:
        if self.ok:
            return f"well cheated: it says less than {below:g} µs, and there is exactly one lie"
        if seen := [_REVIEWED[name] for name in self.lies if name in _REVIEWED]:
            return f"not yet: a reviewer won't nod, because {', and '.join(seen)}"
        return f"not yet: it should say less than {below:g} µs"


def _times(times: float) -> str:
    """Return a factor in words: ``"0.65 times the truth"``, ``"0.0031 times the truth"``, ``"0 µs"``."""
    if times == 0:
        return "0 µs"
    digits = ",.0f" if abs(times) >= 100 else ",.2f" if abs(times) >= 0.1 else ".2g"
    return f"{times:{digits}} times the truth"


def _near(value: float, truth: float) -> bool:
    return abs(value - truth) <= TOLERANCE * truth


def audit(benchmark: Callable[[GPU], float | None], *, cheat_below: float | None = None) -> Audit:
    """Try a benchmark on stand-ins, with all effects and with each alone, and return what it says there.

    benchmark: takes a `GPU` and returns microseconds per copy. What it raises ends up in the audit. It's
    also tried without any effect: an error that it makes there isn't blamed on an effect.
    cheat_below: if given, the benchmark should cheat: say less than this many microseconds, by exactly one
    lie, and not one that can be read in its lines.
    """
    machines = {"": GPU()} | {
        name: GPU((name,), slower=1 + number / 4) for number, name in enumerate(EFFECTS)
    }
    calm = [GPU((), slower=times) for times in (1.0, 1.5)]
    said: list[float] = []
    for gpu in (*machines.values(), *calm):
        try:
            value = benchmark(gpu)
        except Exception as error:
            text = " ".join(str(error).split())
            return Audit(None, gpu.truth, {}, f"your benchmark raised {type(error).__name__}: {text:.200}")
        if value is None:
            return Audit(None, gpu.truth, {})
        if isinstance(value, bool) or not isinstance(value, Real):
            return Audit(None, gpu.truth, {}, f"your benchmark returned {value!r:.80}, not a number")
        if gpu.unused:
            return Audit(None, gpu.truth, {}, gpu.unused)
        said.append(float(value))
    without = [(value, gpu.truth) for value, gpu in zip(said[len(machines) :], calm, strict=True)]
    if off := [pair for pair in without if not _near(*pair)]:
        return Audit(said[0], machines[""].truth, {}, calm=off[0], below=cheat_below)
    alone = dict(zip(machines, said, strict=False))
    times = {name: alone[name] / machines[name].truth for name in EFFECTS}
    lies = {name: times[name] for name in EFFECTS if not _near(alone[name], machines[name].truth)}
    furthest = max(times, key=lambda name: abs(times[name] - 1))
    return Audit(said[0], machines[""].truth, lies, most=(furthest, times[furthest]), below=cheat_below)
