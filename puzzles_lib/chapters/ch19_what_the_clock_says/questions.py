"""The predictions of chapter 19."""

from puzzles_lib.bench.h200 import BYTES, FLOPS
from puzzles_lib.bench.recorded import CLOCK, PROFILES, load
from puzzles_lib.cache_model import banded
from puzzles_lib.chapters.ch19_what_the_clock_says.laboratory import Point, panels, points, sweep
from puzzles_lib.chapters.ch19_what_the_clock_says.pictures import SIX
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.question import Nudge, Question

LEFT, LOSS = 40, 1.05
"""Configurations that a good pruning of the matmul leaves at most, and what it may lose."""
_NAMES = {
    "copy": "copy",
    "column copy": "columns",
    "row sum": "sum",
    "softmax, 2 warps": "softmax",
    "small tiles, group 1": "rows",
    "small tiles, group 8": "bands",
}
"""How the chapter names the profiled kernels."""


def _lie(name: str) -> dict:
    (row,) = [row for row in load(CLOCK)["lies"] if row["name"] == name]
    return row


def _nearest(value: float, choices: tuple[int, ...]) -> int:
    return min(choices, key=lambda each: abs(each - value))


def _without_waiting() -> int:
    return _nearest(_lie("no wait")["first"], (20, 200, 2000))


def _launches() -> float:
    row = _lie("launch")
    return row["first"] / row["second"]


def _rate() -> float:
    return 2 * 2**23 / _lie("cache")["first"] / 1e6


def _zeros() -> str:
    row = _lie("zeros")
    return "faster" if row["first"] < 0.95 * row["second"] else "as fast"


def _flights() -> int:
    us = {row["programs"]: row["us"] for row in load(CLOCK)["flights"]}
    return _nearest(us[1] / us[16], (1, 5, 16))


def _second_wave() -> float:
    return next(row["us"] for row in load(CLOCK)["waves"] if row["programs"] == 136)


def _furthest() -> str:
    def share(point: Point) -> float:
        return point.tflops * 1e12 / min(FLOPS, point.intensity * BYTES)

    return min(points(), key=share).name.replace("_", " ")


def _panels() -> tuple[int, int]:
    return tuple(panels(banded(8, 8, group), 16)[0] for group in (1, 4))


def _best_band() -> int:
    """Of a wave of 132 tiles of 128 x 256: what its rows and columns weigh, on average."""
    return min((1, 2, 4, 8, 16, 32, 64), key=lambda rows: 128 * rows + 256 * 132 / rows)


def _slower() -> float:
    us = {
        row["group"]: row["us"]
        for row in load(CLOCK)["orders"]
        if (row["case"], row["tile"]) == ("8192x8192x8192", "128x256")
    }
    return round(us[1] / us[16], 1)


def _within() -> int:
    rms = sweep("rms_rows")
    return _nearest(sum(each.us <= 1.05 * rms.best.us for each in rms.ran), (1, 5, 25))


def _pruned() -> tuple[int, float]:
    """One that fits, has few enough accumulators a thread, and tiles that reuse much."""

    def keep(c) -> bool:
        fits = c.stages * (c.BLOCK_M + c.BLOCK_N) * c.BLOCK_K * 2 <= 227 << 10
        reuse = c.BLOCK_M * c.BLOCK_N / (c.BLOCK_M + c.BLOCK_N)
        return fits and c.BLOCK_M * c.BLOCK_N <= 128 * 32 * c.warps and reuse >= 64

    return tuple(sweep("matmul").kept(keep))


def _profiles() -> tuple[str, ...]:
    return tuple(_NAMES[name] for name in SIX.values())


def _tuned() -> int:
    return 3 * (2 * 10 + 1)


def _pays() -> int:
    us = {(row["case"], row["path"]): row["us"] for row in load(CLOCK)["persistent"]}
    gain = {
        k: us[f"8192x8192x{k}", "plain"] / us[f"8192x8192x{k}", "persistent, flattened"]
        for k in (128, 512, 8192)
    }
    return max(gain, key=gain.get)


def _loop_alone() -> int:
    us = {row["path"]: row["us"] for row in load(CLOCK)["persistent"] if row["case"] == "8192x8192x128"}
    return _nearest(us["persistent"], (50, 60, 70))


def _cure() -> str:
    (row,) = [row for row in load(PROFILES)["rows"] if row["name"] == "count, 16 bins"]
    if row["occupancy"] < 50:
        return "more programs"
    return "fewer bytes" if row["dram_busy"] > 50 else "fewer atomics"


QUESTIONS = (
    Question(
        id="ch19-q1",
        asks="A matmul takes 1.74 ms. What does a clock around the launch say that waits for nothing: about "
        "20, 200 or 2000 µs?",
        right=_without_waiting,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 2000, "that is what it says with torch.cuda.synchronize()"),),
        nudge="a launch puts work into a queue, and returns: how long does Python take for that?",
    ),
    Question(
        id="ch19-q2",
        asks="A copy of 64 KiB, from Python and within a CUDA graph: how many times as long does a call take "
        "from Python (within a factor of 2)?",
        right=_launches,
        kind=float,
        same=lambda value, right: right / 2 < value < right * 2,
        nudges=(Nudge(lambda v, r: v <= r / 2, "64 KiB are through in less than a microsecond"),),
        nudge="you know what a launch takes from the picture before; the copy itself takes about 1 µs",
    ),
    Question(
        id="ch19-q3",
        asks="8 MiB are read and 8 MiB written in 3.68 µs. How many TB/s is that (within 2%)?",
        right=_rate,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.02 * right,
        nudges=(
            Nudge(lambda v, r: abs(v - r / 2) < 0.05 * r, "both count: what is read and what is written"),
        ),
        nudge="8 MiB are 2^23 bytes; bytes over microseconds, over a million, are TB/s",
    ),
    Question(
        id="ch19-q4",
        asks='The same matmul on zeros: "faster", "as fast" or "slower"?',
        right=_zeros,
        kind=str,
        nudges=(
            Nudge(lambda v, r: v == "as fast", "the instructions are the same; are the wires that switch?"),
        ),
        nudge="what limits the clock of a chip that is warm?",
    ),
    Question(
        id="ch19-q5",
        asks="64 registers a thread, 4 warps a program, hardly any shared memory: how many programs does a "
        "multiprocessor hold?",
        right=lambda: resident(64, 0, 4),
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 16, "so many have warps enough; what about registers?"),
            Nudge(lambda v, r: v == 256, "that is in warps of one thread: a warp has 32"),
        ),
        nudge="65,536 registers for all; a program has 4 times 32 threads",
    ),
    Question(
        id="ch19-q6",
        asks='198 registers a thread, 147,456 bytes, 8 warps: what keeps a second program out, "registers", '
        '"shared memory" or "both"?',
        right=lambda: (
            "both"
            if resident(1, 147_456, 8) < 2 and resident(198, 0, 8) < 2
            else "registers"
            if resident(198, 0, 8) < 2
            else "shared memory"
        ),
        kind=str,
        nudge="take each of the two twice, and compare with all that there is",
    ),
    Question(
        id="ch19-q7",
        asks="The sum with 16 programs at a time on each multiprocessor, not 1: how many times as fast, "
        "about 1, 5 or 16?",
        right=_flights,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 16, "with 1 it reads 0.88 TB/s; memory has a limit"),),
        nudge="with 1 it reads 0.88 TB/s: how much is there to gain?",
    ),
    Question(
        id="ch19-q8",
        asks="One program fills a multiprocessor, and there are 132. 128 programs take 51 µs. What do 136 "
        "take (within 15%)?",
        right=_second_wave,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.15 * right,
        nudges=(Nudge(lambda v, r: 51 <= v < 60, "the last four can start only when others have ended"),),
        nudge="how long does the last of them wait, and how long does it take?",
    ),
    Question(
        id="ch19-q9",
        asks="How many FLOP for each byte does a kernel need so that memory is no longer its "
        "roof (within 3%)?",
        right=lambda: FLOPS / BYTES,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.03 * right,
        nudges=(Nudge(lambda v, r: 0.2 < v < 0.3, "times a thousand: the T's of both cancel"),),
        nudge="989 TFLOP/s over 3.95 TB/s",
    ),
    Question(
        id="ch19-q10",
        asks="Which of these kernels is furthest below its own roof?",
        right=_furthest,
        kind=str,
        nudge="take the height of the roof above each point: both axes go by factors of ten",
    ),
    Question(
        id="ch19-q11",
        asks="8 x 8 tiles, and now 16 programs at a time. How many panels do programs 0 to 15 touch, row "
        "after row and in bands of 4 rows? A pair.",
        right=_panels,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == r[::-1], "the other way round: row after row comes first"),
            Nudge(lambda v, r: v == (9, 6), "that is for 8 at a time, as in the picture"),
        ),
        nudge="count rows of tiles, and columns, that are coloured in the picture",
    ),
    Question(
        id="ch19-q12",
        asks="132 tiles of 128 x 256 at a time. How many rows of tiles in a band fetch the least: 1, 2, 4, "
        "8, 16, 32 or 64?",
        right=_best_band,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 8, "nearly; a column of tiles is twice as wide as a row is high"),),
        nudge="a wave should be a square in elements, not in tiles",
    ),
    Question(
        id="ch19-q13",
        asks="A matmul of 8192 fetches 3.12 GB row after row, 1.25 in bands of 16, which take 1.88 ms. How "
        "many times as long does it take row after row (to a tenth)?",
        right=_slower,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.051,
        nudges=(
            Nudge(lambda v, r: 2.3 < v < 2.7, "so many times the bytes; is it bytes that it waits for?"),
            Nudge(lambda v, r: v < 0.9, "it fetches more: that makes nothing faster"),
            Nudge(lambda v, r: 1.3 < v < 1.5, "what is fetched on the way need not be waited for"),
        ),
        nudge="how long does memory take for 3.12 GB, beside the 1.88 ms that it takes anyway?",
    ),
    Question(
        id="ch19-q14",
        asks="Profiles A to F: which kernel is which? Six names.",
        right=_profiles,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) == 6 and [a == "rows" for a in v] == [b == "bands" for b in r],
                "the two matmuls are swapped: one of them reads its inputs 48 times",
            ),
            Nudge(lambda v, r: len(v) != 6, "one name for each of A, B, C, D, E, F"),
            Nudge(
                lambda v, r: len(v) == 6 and v[3] != r[3],
                "255 registers a thread is the most there is: which one keeps a long row?",
            ),
            Nudge(
                lambda v, r: len(v) == 6 and v[0] != r[0],
                "A has 6% of all warps: which one has few programs?",
            ),
        ),
        nudge="which two use tensor cores? which one has its memory busy nearly all the time?",
    ),
    Question(
        id="ch19-q15",
        asks=f"Leave at most {LEFT} of the 384 configurations, and lose at most 5%.",
        right=_pruned,
        kind=tuple,
        same=lambda value, right: len(value) == 2 and value[0] <= LEFT and value[1] <= LOSS,
        nudges=(
            Nudge(lambda v, r: len(v) == 2 and v[1] > LOSS, "what is left is too slow: who was thrown out?"),
        ),
        nudge="still too many are left: small tiles load a lot for each FLOP",
        computed=True,
    ),
    Question(
        id="ch19-q16",
        asks="300 configurations of RMSNorm. How many are within 5% of the best: about 1, 5 or 25?",
        right=_within,
        kind=int,
        nudge="it moves bytes, and there are many ways to move them all at once",
    ),
    Question(
        id="ch19-q17",
        asks="z should be 3, and is 0 before. autotune runs two configurations ten times each, and then the "
        "better one once. What does z hold?",
        right=_tuned,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 60, "and the launch itself, after them"),),
        nudge="each run adds 3 to what is there",
    ),
    Question(
        id="ch19-q18",
        asks="Persistent, for M = N = 8192: where does it gain most, at K = 128, 512 or 8192?",
        right=_pays,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 8192, "there, a tile's loop is long, and what is around it short"),),
        nudge="what does a persistent program save, and how often?",
    ),
    Question(
        id="ch19-q19",
        asks="With descriptors, at K = 128, a program for each tile takes 58.0 µs, a flattened loop 49.4. "
        "And without flatten: about 50, 60 or 70?",
        right=_loop_alone,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 50, "as if flatten did nothing: what begins while a tile is stored?"),
            Nudge(
                lambda v, r: v == 60,
                "so it is without a loop; this one ends a tile before it begins the next",
            ),
        ),
        nudge="it is one of the three numbers: who lets the next tile begin early, the loop or flatten?",
    ),
    Question(
        id="ch19-q20",
        asks='The profile of count: what would help, "more programs", "fewer bytes" or "fewer atomics"?',
        right=_cure,
        kind=str,
        nudges=(
            Nudge(lambda v, r: v == "more programs", "how many of all warps are there already?"),
            Nudge(lambda v, r: v == "fewer bytes", "is memory busy?"),
        ),
        nudge="the names are 'more programs', 'fewer bytes' and 'fewer atomics'",
    ),
)
