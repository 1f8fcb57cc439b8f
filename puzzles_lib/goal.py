"""The goals that a puzzle sets for the machine code or the traffic of a correct kernel, as data.

    Goal(cases=(5, 6), wants=(Want("load bytes", least=16), Want("exchanges", most=0)))

    Once(cases=(1, 2, 3))

A goal is about some of the puzzle's own cases, so the kernel has also been run in them.
`inspector.measures` measures its machine code.

    Traffic(case=5, in_flight=8, cache=32 << 10, most=3200)

`puzzles_lib.cache_model` counts what a run of that case fetches from memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MEASURES = {
    "load bytes": "bytes of a thread's narrowest load",
    "wide loads": "loads of 16 bytes in a thread's program",
    "float dots": "tl.dot of tiles that aren't integers",
    "integer dots": "tl.dot of integer tiles",
    "float32 dots": "tl.dot of float32 tiles",
    "exchanges": "instructions that pass values between threads",
    "busy": "share of the time that tensor cores can be busy",
    "spills": "bytes that a thread spills to memory",
    "moves": "computed blocks that pass between threads in the loop",
    "programs": "programs at a time on a multiprocessor",
    "registers": "registers per thread",
    "shared": "bytes of shared memory that a program uses",
    "products": "floating-point multiplications per iteration, outside tl.dot",
    "float atomics": "atomic additions of floats",
}
"""The measures, in words. ``"busy"`` is a share from 0 to 1; all others are counts."""


def shown(measure: str, number: float | None) -> str:
    """Return a number of this measure as text."""
    if number is None:
        return "nothing to measure"
    return f"{number:.0%}" if measure == "busy" else f"{number:g}"


@dataclass(frozen=True)
class Want:
    """A bound on one of the `MEASURES`: either ``least`` or ``most``.

    Raises ValueError for an unknown measure, and for two bounds or none.
    """

    measure: str
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise ValueError(f"Want: measure must be one of {', '.join(MEASURES)}, but is {self.measure!r}")
        if (self.least is None) == (self.most is None):
            raise ValueError(f"Want: {self.measure} has least={self.least}, most={self.most}: give one")

    def is_met_by(self, number: float | None) -> bool:
        """Return whether a measured number is within the bound; None (nothing to measure) is not."""
        if number is None:
            return False
        if self.least is not None:
            return number >= self.least
        return self.most is not None and number <= self.most

    @property
    def bound(self) -> str:
        """The bound in words, such as ``"at least 50%"`` or ``"none"``."""
        if self.least is not None:
            return f"at least {self.told(self.least)}"
        return "none" if self.most == 0 else f"at most {self.told(self.most)}"

    def told(self, number: float | None) -> str:
        """Return a number of this measure as text."""
        if number is None or self.measure != "busy":
            return shown(self.measure, number)
        short = shown(self.measure, number)
        just_missed = not self.is_met_by(number) and short == f"{self.least or self.most:.0%}"
        return f"{number:.1%}" if just_missed else short  # no "50%, at least 50% wanted"

    def __str__(self) -> str:
        return f"{MEASURES[self.measure]}: {self.bound}"


@dataclass(frozen=True)
class Goal:
    """The bounds that a kernel's machine code must meet in some cases of a puzzle.

    cases: the numbers of the cases in ``puzzle.cases``, from 0. wants: the bounds, all of which must be met
    in each of these cases. num_warps: the number of warps of the launch. target: as for `stages`.
    shows: measures that the report shows as well, if the bounds are met.
    """

    cases: tuple[int, ...]
    wants: tuple[Want, ...]
    num_warps: int = 4
    target: str = "sm_90"
    shows: tuple[str, ...] = ()

    def launch(self, case: int) -> str:
        """Return the launch in words, such as ``"case 6, sm_90, 4 warps"``."""
        return f"case {case}, {self.target}, {self._warps}"

    @property
    def _warps(self) -> str:
        return "1 warp" if self.num_warps == 1 else f"{self.num_warps} warps"

    @property
    def title(self) -> str:
        """Return a title such as ``"machine code of cases 5 and 6, for sm_90 with 4 warps"``."""
        return f"machine code of {named(self.cases)}, for {self.target} with {self._warps}"

    def __str__(self) -> str:
        return f"{self.title}: {'; '.join(map(str, self.wants))}"


@dataclass(frozen=True)
class Once:
    """The goal that the launches of some cases all use the same compiled kernel.

    Triton compiles a kernel once for each class of an integer argument: 1, a multiple of 16, or any other.

    cases: the numbers of the cases in ``puzzle.cases``, from 0. target: as for `stages`.
    keeps: names of integers that must be compiled as multiples of 16, which they are in these cases.
    """

    cases: tuple[int, ...]
    target: str = "sm_90"
    keeps: tuple[str, ...] = ()

    @property
    def launch(self) -> str:
        """The launches in words, such as ``"cases 1, 2 and 3, sm_90"``."""
        return f"{named(self.cases)}, {self.target}"

    @property
    def title(self) -> str:
        """A title such as ``"machine code of cases 1, 2 and 3, for sm_90"``."""
        return f"machine code of {named(self.cases)}, for {self.target}"

    @property
    def wants(self) -> tuple[str, ...]:
        kept = (f"{name} compiled as a multiple of 16" for name in self.keeps)
        return ("one compiled kernel for all of them", *kept)

    def __str__(self) -> str:
        return f"{self.title}: {'; '.join(self.wants)}"


def named(cases: Sequence[int]) -> str:
    """Return cases in words, such as ``"cases 1, 2 and 3"``."""
    *most, last = map(str, cases)
    return f"cases {', '.join(most)} and {last}" if most else f"case {last}"


@dataclass(frozen=True)
class Traffic:
    """A limit on what a kernel fetches from memory in one case, through a cache that all programs share.

    case: the case's number in ``puzzle.cases``, from 0. in_flight: how many programs run at a time.
    cache: the size of the cache in bytes. most: the most lines of 128 bytes that the cache may fetch.
    why: a function of the puzzle, this goal and a recorded run that fetches more. It returns the cause, or
        "" if the cause is unknown.
    """

    case: int
    in_flight: int
    cache: int
    most: int
    why: Callable[[Any, "Traffic", Any], str] | None = None

    @property
    def launch(self) -> str:
        """The launch in words, such as ``"case 6, 8 programs at a time, a cache of 32 KiB"``."""
        return f"case {self.case}, {self.in_flight} programs at a time, a cache of {self.cache >> 10} KiB"

    def __str__(self) -> str:
        return f"traffic of {self.launch}: at most {self.most:,} cache lines of 128 bytes are fetched"
