"""Chapter 19's laboratory: recorded sweeps to prune, a benchmark to audit, and your own kernel's work."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Real
from types import SimpleNamespace
from typing import Any, NamedTuple

from puzzles_lib import cache_model
from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU
from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.chapters.ch17_normalisation.puzzles import LAYER_NORM, LAYER_NORM_DX, RMS_NORM
from puzzles_lib.chapters.ch19_what_the_clock_says.standin import audit as audit
from puzzles_lib.checker import guarded
from puzzles_lib.checker.report import Report
from puzzles_lib.goal import Traffic
from puzzles_lib.puzzle import Case, Puzzle, pick_case
from puzzles_lib.timing.h200 import BYTES, FLOPS
from puzzles_lib.timing.recorded import CLOCK, POINTS, PROFILES, SWEEPS, load, origin

_RECORDS = {"clock": CLOCK, "points": POINTS, "profiles": PROFILES}
KNOWN = ("registers", "spills", "shared")  # of a configuration once it is compiled
TIMED = ("us", "again_us", "error")


def recorded(what: str) -> dict[str, Any]:
    """Return what ``python -m puzzles_lib.bench`` measured: ``"clock"``, ``"points"`` or ``"profiles"``."""
    return load(_RECORDS[what])


# ---- sweeps

FITS = 227 << 10  # bytes of shared memory that a program may use
# 19 stages of 12 KiB are exactly 228 KiB; no configuration that was tried is between 227 and 228.
_ALL_OF_IT = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "warps": 4, "stages": 19}
# 7 stages of 32 KiB are 224 KiB, which fit: more than 227,000 bytes, and no configuration tried is between.
_NEARLY_ALL = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "warps": 8, "stages": 7}


class Seen(SimpleNamespace):
    """A configuration as a learner's rule sees it: blocks, ``warps`` and ``stages`` as attributes."""

    def __getattr__(self, name: str) -> int:
        __tracebackhide__ = True
        why = ". A rule decides before anything is compiled or timed" if name in KNOWN + TIMED else ""
        raise AttributeError(f"c has no {name}, only {', '.join(vars(self))}{why}")


class Kept(NamedTuple):
    """What a pruning leaves. left: how many configurations. ratio: the best of these to the best of all.

    most: how many it may leave, if there is a limit.
    """

    left: int
    ratio: float
    most: int | None = None

    def __repr__(self) -> str:
        kept = f"{self.left} {'is' if self.left == 1 else 'are'} kept"
        if self.most is not None and self.left > self.most:
            kept += f", but the limit is {self.most}"
        if self.ratio == float("inf"):
            return f"{kept}, and none of them runs" if self.left else "none is kept"
        return f"{kept}; the best of them takes {self.ratio:.2f} times as long as the best of all"


class Pruned(NamedTuple):
    """How many configurations a pruning keeps, and its best of them, relative to the best of all.

    new, new_ratio: the same for the H100's configurations with 5 stages, which the learner hasn't seen.
    """

    left: int
    ratio: float
    new: int
    new_ratio: float

    def __repr__(self) -> str:
        return repr(Kept(self.left, self.ratio))


@dataclass(frozen=True)
class Tried:
    """A configuration (``config``, its blocks, ``warps`` and ``stages``) and its results.

    registers: per thread. spills: how many of them, 4 bytes each. shared: bytes per program. us, again_us:
    medians of two rounds. If the launch was refused, these, registers and spills are None.
    """

    config: Mapping[str, int]
    registers: int | None
    spills: int | None
    shared: int
    us: float | None
    again_us: float | None

    def __str__(self) -> str:
        return "  ".join(f"{name}={value}" for name, value in self.config.items())


@dataclass(frozen=True)
class Sweep:
    """A kernel's recorded configurations. floor: µs, by bytes or by FLOPs on an H200.

    about: the device, versions and date of the record.
    """

    name: str
    device: str
    sizes: Mapping[str, int]
    bytes: int
    flops: int
    tried: tuple[Tried, ...]
    about: str = ""

    @property
    def floor(self) -> float:
        return max(self.bytes / BYTES, self.flops / FLOPS) * 1e6

    @property
    def ran(self) -> list[Tried]:
        """Configurations that could be launched, fastest first."""
        return sorted((each for each in self.tried if each.us is not None), key=lambda each: each.us)

    @property
    def refused(self) -> list[Tried]:
        return [each for each in self.tried if each.us is None]

    @property
    def best(self) -> Tried:
        return self.ran[0]

    def time(self, **config: int) -> float | None:
        """Return a configuration's µs, None if it was refused. Raises KeyError if it wasn't tried."""
        for each in self.tried:
            if config.items() == each.config.items():
                return each.us
        raise KeyError(f"{self.name} was not tried with {config}")

    def kept(self, keep: Callable[[Any], object], most: int | None = None) -> Kept | None:
        """Return what ``keep`` leaves of the configurations; None as long as ``keep`` returns None.

        keep: gets blocks, ``warps`` and ``stages`` as attributes, no times; returns True for what to time.
        most: how many configurations it may leave, for the report.
        """
        __tracebackhide__ = True
        told = [keep(Seen(**each.config)) for each in self.tried]
        if all(each is None for each in told):
            return None
        left = [each for each, good in zip(self.tried, told, strict=True) if good]
        times = [each.us for each in left if each.us is not None]
        return Kept(len(left), min(times) / self.best.us if times else float("inf"), most)

    def judged(self, fits: Callable[[Any], object]) -> str | None:
        """Return a report that compares your ``fits`` with what ran; None as long as ``fits`` returns None.

        fits: gets blocks, ``warps`` and ``stages`` as attributes; returns True for what should run.
        """
        __tracebackhide__ = True
        told = [fits(Seen(**each.config)) for each in self.tried]
        if all(each is None for each in told):
            return None
        ran = [each.us is not None for each in self.tried]
        alike = self.tried[0].config.keys() == _ALL_OF_IT.keys()
        lines = [f"{sum(map(bool, told))} of {len(told)} fit according to you; {sum(ran)} ran"]
        for what, wanted in (
            ("ran but don't fit according to you", True),
            ("were refused but fit according to you", False),
        ):
            odd = [
                each
                for each, fit, did in zip(self.tried, told, ran, strict=True)
                if bool(fit) != did and did == wanted
            ]
            lines.append(f"{len(odd)} {what}" + (f": {odd[0]}" if odd else ""))
        right = alike and all(
            bool(fit) == did or (did and _buffers(each.config) > FITS)
            for each, fit, did in zip(self.tried, told, ran, strict=True)
        )
        if right and fits(Seen(**_ALL_OF_IT)):
            lines.append("a program with all 228 KiB fits according to you, but CUDA reserves 1 KiB of them")
        elif right and not fits(Seen(**_NEARLY_ALL)):
            lines.append(
                "a program with 7 stages of 32 KiB doesn't fit according to you. It needs 224 KiB: "
                "how many bytes are that?"
            )
        elif right:
            left = sum(bool(fit) != did for fit, did in zip(told, ran, strict=True))
            lines.append(
                "correct"
                + (f": your line misses only the {left} that the next cell explains" if left else "")
            )
        elif alike and (why := _misfit(self.tried, told)):
            lines.append(f"not yet: {why}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        head = f"{self.name} ({sizes}) on one {self.device}"
        return f"{head}: {len(self.tried)} configurations, {len(self.refused)} refused; best {self.best}"


def _buffers(config: Mapping[str, int]) -> int:
    """Return the bytes of a bfloat16 matmul's stages."""
    return 2 * config["stages"] * (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]


_MISFITS: Mapping[str, Callable[[Mapping[str, int]], bool]] = {
    "your comparison is the wrong way round": lambda c: _buffers(c) > FITS,
    "your line has no 2 for the bytes of a number": lambda c: _buffers(c) <= 2 * FITS,
    "a number has 2 bytes here, not 4": lambda c: 2 * _buffers(c) <= FITS,
    "every configuration fits according to you. A program holds `stages` tiles of each input, and every "
    "number in them has 2 bytes": lambda c: True,
    "no configuration fits according to you. Is your limit in KiB, but your sum in bytes?": lambda c: False,
    "your line counts the tiles of x, but not those of y": lambda c: _one(c, "BLOCK_M") <= FITS,
    "your line counts the tiles of y, but not those of x": lambda c: _one(c, "BLOCK_N") <= FITS,
}
"""What can be wrong with a line about shared memory, each with the configurations that fit then."""


def _one(config: Mapping[str, int], rows: str) -> int:
    """Return the bytes of one input's stages."""
    return 2 * config["stages"] * config[rows] * config["BLOCK_K"]


def _misfit(tried: Collection[Tried], told: Collection[object]) -> str:
    """Return what is wrong with a line about shared memory; "" if it's something else."""
    mine = [bool(fit) for fit in told]
    return next((why for why, fits in _MISFITS.items() if mine == [fits(each.config) for each in tried]), "")


@cache
def sweep(name: str, device: str = "H200", stages: Collection[int] = ()) -> Sweep:
    """Return the recorded sweep of ``"matmul"``, ``"rms_rows"`` or ``"int8_weight"`` on a device.

    device: ``"H200"`` or ``"H100"``. stages: only configurations with these; all if empty.
    """
    record = load(SWEEPS[device])
    (kernel,) = [each for each in record["kernels"] if each["name"] == name]
    tried = []
    for row in kernel["rows"]:
        told = dict(zip(kernel["fields"], row, strict=True))
        config = {field: told[field] for field in kernel["fields"] if field not in KNOWN + TIMED}
        if not stages or config["stages"] in stages:
            tried.append(Tried(config, *(told[field] for field in (*KNOWN, "us", "again_us"))))
    numbers = kernel["sizes"], kernel["bytes"], kernel["flops"]
    return Sweep(name, record["device"], *numbers, tuple(tried), origin(record))


def pruned(keep: Callable[[Any], object]) -> Pruned | None:
    """Judge a pruning of the matmul on what is shown, 2 to 4 stages, and on what isn't: an H100's 5.

    keep: as in `Sweep.kept`. None as long as ``keep`` returns None.
    """
    __tracebackhide__ = True
    shown = sweep("matmul", stages=(2, 3, 4)).kept(keep)
    new = sweep("matmul", "H100", stages=(5,)).kept(keep)
    return None if shown is None else Pruned(*shown[:2], *(new or (0, float("inf")))[:2])


# ---- waves


def use(used: Callable[[int, int], float | None]) -> str:
    """Return a report on ``used(tiles, at_a_time)``, which says how much of the chip is used."""
    return _Text("\n".join(_use(used)))


class _Text(str):
    """Words that a notebook shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _asked(asks: Callable[[int, int], object], name: str, *numbers: int) -> tuple[Any, str]:
    """Return what a learner's function says of two numbers, or why it can't be judged."""
    call = f"{name}({', '.join(map(str, numbers))})"
    try:
        said = asks(*numbers)
    except Exception as error:
        return None, f"not judged: {call} raised {type(error).__name__}: {' '.join(str(error).split()):.200}"
    if said is None:
        return None, "not solved yet"
    if isinstance(said, bool) or not isinstance(said, Real):
        return None, f"not judged: {call} is {said!r:.80}, not a number"
    return said, ""


def _use(used: Callable[[int, int], float | None]) -> Iterator[str]:
    wrong = ""
    for tiles, at_a_time in ((136, 132), (264, 132), (512, 132), (40, 132), (1000, 264)):
        share, why = _asked(used, "used", tiles, at_a_time)
        if why:
            yield why
            return
        yield f"{tiles} tiles, {at_a_time} at a time: used {float(share):.3g}"
        waves = math.ceil(tiles / at_a_time)
        if not wrong and abs(share - tiles / (waves * at_a_time)) > 0.001:
            wrong = f"not yet: {tiles} tiles take {waves} wave" + ("s" if waves > 1 else "")
            wrong += (
                f", and {tiles - (waves - 1) * at_a_time} of {at_a_time} places are taken in the last one"
            )
            wrong += ". And no result is more than the whole chip" if share > 1 else ""
    yield wrong or "correct"


# ---- a kernel's work


@dataclass(frozen=True)
class Work:
    """What a kernel does: ``flops``, and ``bytes`` asked for, of which ``least`` must come from memory.

    bytes: of loads and stores, program by program. least: each input once, each output once.
    """

    flops: int
    bytes: int
    least: int

    @property
    def intensity(self) -> float:
        """FLOP per byte that must be moved."""
        return self.flops / self.least

    @property
    def floor(self) -> float:
        """The fewest µs that an H200 can take."""
        return max(self.least / BYTES, self.flops / FLOPS) * 1e6

    def at_best(self, name: str = "mine") -> "Point":
        """Return the kernel's highest possible point on the roofline."""
        return Point(name, self.intensity, self.flops / self.floor / 1e6)

    def __repr__(self) -> str:
        return (
            f"{self.flops:,} FLOP\n"
            f"{self.bytes:,} bytes asked for\n"
            f"{self.least:,} bytes must be moved: {self.intensity:.2f} FLOP per byte"
        )


def work(kernel: object, puzzle: Puzzle, case: int | Case = 0) -> Work | Report:
    """Return what a kernel does in a case, counted while it runs, or a `Report` if it can't be run."""
    chosen = pick_case(puzzle, case, "work")
    ran = guarded(kernel, puzzle, chosen)
    return ran if isinstance(ran, Report) else Work(ran[1].flops, ran[1].bytes_moved, least(puzzle, chosen))


def least(puzzle: Puzzle, case: Case) -> int:
    """Return the bytes of all inputs and results."""
    tensors = puzzle.inputs + puzzle.results
    return sum(math.prod(each.shape(case.numbers)) * each.dtype.itemsize for each in tensors)


def _attention(s: Case) -> int:
    blocks = s.T // s.BLOCK_Q * (s.T // s.BLOCK_Q + 1) // 2  # of BLOCK_Q keys each, up to the diagonal
    return blocks * s.BLOCK_Q * (4 * s.BLOCK_Q * s.D + 5 * s.BLOCK_Q + s.D)


FLOP: Mapping[str, Callable[[Case], int]] = {
    "masked_add": lambda s: s.N,
    "mul_relu": lambda s: 2 * s.M * s.N,
    "rms_norm": lambda s: 5 * s.M * s.N,
    "layer_norm": lambda s: 7 * s.M * s.N,
    "layer_norm_dx": lambda s: 10 * s.M * s.N,
    "flash_attention": _attention,
    "batched_matmul": lambda s: 2 * s.B * s.M * s.N * s.K,
}
"""Operations of the course's kernels where blocks divide the sizes: within 2% of what `work` counts."""

_PUZZLES = {
    puzzle.name: puzzle
    for puzzle in (
        MASKED_ADD, MUL_RELU, RMS_NORM, LAYER_NORM, LAYER_NORM_DX, FLASH_ATTENTION, BATCHED_MATMUL
    )
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A kernel on the roofline: its FLOP per byte, and the TFLOP/s that it reached."""

    name: str
    intensity: float
    tflops: float


def points() -> list[Point]:
    """Return the course's own kernels, as recorded."""
    found = []
    for row in load(POINTS)["rows"]:
        name, case = row["puzzle"], Case(**row["case"])
        flops = FLOP[name](case)
        found.append(Point(name, flops / least(_PUZZLES[name], case), flops / row["us"] / 1e6))
    return found


def roofs(at_least: Callable[[int, int], float | None]) -> str:
    """Return a report on ``at_least(flops, moved)``, the fewest µs that an H200 needs for a kernel.

    It's compared with the recorded times of the course's own kernels.
    """
    return _Text("\n".join(_roofs(at_least)))


def _roofs(at_least: Callable[[int, int], float | None]) -> Iterator[str]:
    wrong, lines, factors = "", [], set()
    for row in load(POINTS)["rows"]:
        name, case = row["puzzle"], Case(**row["case"])
        flops, moved = FLOP[name](case), least(_PUZZLES[name], case)
        us, why = _asked(at_least, "at_least", flops, moved)
        if why:
            yield why
            return
        kernel = name.replace("_", " ")
        words = f"{kernel}: {float(us):,.4g} µs at least, {row['us']:,.4g} recorded"
        lines.append(f"{words}, {us / row['us']:.0%} of your roof")
        parts = flops / FLOPS * 1e6, moved / BYTES * 1e6
        factors.add(round(math.log10(us / max(parts)), 2) if 0 < us < math.inf else 0.5)
        if not wrong and not abs(us - max(parts)) <= 0.01 * max(parts):  # also if us is NaN
            wrong = f"not yet: for the FLOP of {kernel} alone an H200 needs {parts[0]:,.4g} µs, "
            wrong += f"and for its bytes alone {parts[1]:,.4g} µs"
            if abs(us - sum(parts)) <= 0.01 * sum(parts):
                wrong += ". It can do both at once"
            elif abs(us - min(parts)) <= 0.01 * min(parts):
                wrong += ". The longer of the two counts"
    if wrong and len(factors) == 1 and (power := factors.pop()) == round(power) != 0:
        yield lines[0]
        yield f"not yet: {_power(round(power))}"
        return
    yield from lines
    yield wrong or "correct"


def _power(power: int) -> str:
    """Return what is wrong with times that are all off by the same power of ten."""
    if power == -6:
        return "your seven times are in seconds, but they should be in µs"
    if power == -3:
        return "your seven times are in ms, but they should be in µs"
    off = f"{10 ** abs(power):,} times too {'large' if power > 0 else 'small'}"
    return f"your seven times are all {off}. A tera is 1e12, and a second has 1e6 µs"


# ---- an overlap

LARGE = 8192
"""M and N of the matmuls whose overlap is estimated."""


def overlapped(k: int) -> tuple[int, int]:
    """Return the FLOP of a bfloat16 matmul with M = N = 8192, and the bytes that must be moved."""
    return 2 * LARGE**2 * k, 2 * (LARGE**2 + 2 * LARGE * k)


def overlaps(gain: Callable[[int, int], float | None]) -> str:
    """Return a report on ``gain(flops, moved)``, the most that an overlap of arithmetic and memory gains."""
    return _Text("\n".join(_overlaps(gain)))


def _overlaps(gain: Callable[[int, int], float | None]) -> Iterator[str]:
    wrong = ""
    for k in (128, 512, 8192):
        flops, moved = overlapped(k)
        times, why = _asked(gain, "gain", flops, moved)
        if why:
            yield why
            return
        yield f"K = {k}: at most {float(times):.2f} times as fast"
        parts = flops / FLOPS * 1e6, moved / BYTES * 1e6
        if not wrong and not abs(times - sum(parts) / max(parts)) <= 0.005 * times:  # also if it is NaN
            wrong = f"not yet: with K = {k}, arithmetic takes {parts[0]:,.1f} µs, and memory {parts[1]:,.1f}"
            if abs(times * sum(parts) / max(parts) - 1) <= 0.005:
                wrong += ". Your ratio is upside down: a gain is more than 1"
            elif times > 2:
                wrong += ". Two things at a time can't be more than twice as fast as one after the other"
            else:
                wrong += ". How long do they take one after the other, and how long at the same time?"
    yield wrong or "correct"


# ---- traffic


@cache
def modelled(group: int, tile: tuple[int, int] = (128, 256), in_flight: int = 132, steps: int = 4) -> float:
    """Return the GB that a matmul of 8192 fetches in bands of ``group`` rows of tiles, by the model.

    The cache has 50 MiB. tile: rows and columns. in_flight: programs at a time. steps: iterations of
    the loop, as the model sees them.
    """
    deep = 2 * 8192 // steps  # bytes of a row of a, of a column of b
    sizes = tile[0] * deep, tile[1] * deep
    order = cache_model.banded(8192 // tile[0], 8192 // tile[1], group)
    found = cache_model.fetched(cache_model.tiles(order, steps, sizes), in_flight, 50 << 20)
    return sum(times * sizes[name == "b"] for (name, *_), times in found.items()) / 1e9


def panels(order: list[tuple[int, int]], wave: int) -> list[int]:
    """Return for each wave how many rows and columns of tiles its programs need."""
    waves = [order[first : first + wave] for first in range(0, len(order), wave)]
    return [len({m for m, _ in tiles}) + len({n for _, n in tiles}) for tiles in waves]


def fetches(kernel: object, puzzle: Puzzle, goal: Traffic) -> dict[str, tuple[int, int]] | Report:
    """Return by tensor the lines that a kernel fetches in a goal's case, and how many of them differ."""
    from puzzles_lib.checker.traffic import fetches

    ran = guarded(kernel, puzzle, puzzle.cases[goal.case])
    return ran if isinstance(ran, Report) else fetches(puzzle, ran[1], goal)
