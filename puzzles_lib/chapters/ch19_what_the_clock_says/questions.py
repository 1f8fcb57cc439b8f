"""The predictions of chapter 19."""

from collections.abc import Callable

from puzzles_lib.cache_model import banded
from puzzles_lib.chapters.ch19_what_the_clock_says.laboratory import panels, points, pruned
from puzzles_lib.chapters.ch19_what_the_clock_says.pictures import SIX
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.h200 import BYTES, FLOAT32, FLOPS
from puzzles_lib.timing.recorded import CLOCK, load

LEFT, LOSS = 40, 1.05
"""How many configurations of the matmul a good pruning keeps at most, and what it may lose."""
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


def _zeros() -> str:
    row = _lie("zeros")
    return "faster" if row["first"] < 0.95 * row["second"] else "as fast"


def _flights() -> int:
    """Return the fewest programs per multiprocessor that read within 5% of what the most read."""
    rates = {row["programs"]: row["tb_s"] for row in load(CLOCK)["flights"]}
    return min(programs for programs, rate in rates.items() if rate > 0.95 * max(rates.values()))


def _second_wave() -> float:
    return next(row["us"] for row in load(CLOCK)["waves"] if row["programs"] == 136)


def _of_its_own_roof() -> float:
    """Return the percentage of the float32 roof that flash attention reaches."""
    (tflops,) = [point.tflops for point in points() if point.name == "flash_attention"]
    return 100 * tflops * 1e12 / FLOAT32


def _panels() -> tuple[int, int]:
    return tuple(panels(banded(8, 8, group), 24)[0] for group in (1, 4))


def _best_band() -> int:
    """Return the band for which a wave of 132 tiles of 128 x 256 needs the fewest elements of its "
    "panels."""
    return min((1, 2, 4, 8, 16, 32, 64), key=lambda rows: 128 * rows + 256 * 132 / rows)


def _slower() -> float:
    us = {
        row["group"]: row["us"]
        for row in load(CLOCK)["orders"]
        if (row["case"], row["tile"]) == ("8192x8192x8192", "128x256")
    }
    return round(us[1] / us[16], 1)


def _pruned() -> tuple[int, float, int, float]:
    """Return what is kept of configurations that fit, with few sums per thread and much reuse."""

    def keep(c) -> bool:
        fits = c.stages * (c.BLOCK_M + c.BLOCK_N) * c.BLOCK_K * 2 <= 227 << 10
        reuse = c.BLOCK_M * c.BLOCK_N / (c.BLOCK_M + c.BLOCK_N)
        return fits and c.BLOCK_M * c.BLOCK_N <= 128 * 32 * c.warps and reuse >= 64

    return tuple(pruned(keep))


def _profiles() -> tuple[str, ...]:
    return tuple(_NAMES[name] for name in SIX.values())


def _of_six(hits: int) -> Callable[[tuple, tuple], bool]:
    """Return whether that many names of the six profiles are right, as a nudge's condition."""
    return lambda v, r: sum(a == b for a, b in zip(v, r, strict=False)) == hits


def _hits(hits: int) -> str:
    return (
        f"{hits} of the six {'is' if hits == 1 else 'are'} right. In each column, one number stands out. "
        "Which kernel must have it?"
    )


def _tuned() -> int:
    return 3 * (2 * 10 + 1)


QUESTIONS = (
    Question(
        id="ch19-q1",
        asks="A matmul takes 1.74 ms. You time its launch and wait for nothing. What does the clock "
        "show: about "
        "20, 200 or 2000 µs?",
        right=_without_waiting,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 2000,
                "2000 µs is about right with torch.cuda.synchronize(). This code doesn't call it.",
            ),
        ),
        nudge="A launch puts work into a queue and returns. How long does Python need for that?",
    ),
    Question(
        id="ch19-q2",
        asks="A copy of 64 KiB, from Python and in a CUDA graph: how many times as long does a call take "
        "from "
        "Python (within a factor of 2)?",
        right=_launches,
        kind=float,
        same=lambda value, right: right / 2 < value < right * 2,
        nudges=(
            Nudge(
                lambda v, r: v <= r / 2,
                "The gap is much wider: the GPU copies 64 KiB in about a microsecond.",
            ),
        ),
        nudge="The GPU copies 64 KiB in about 1 µs. Python needs some 10 to 20 for a launch.",
    ),
    Question(
        id="ch19-q4",
        asks='The same matmul on zeros: "faster", "as fast" or "slower"?',
        right=_zeros,
        kind=str,
        nudges=(
            Nudge(
                lambda v, r: v == "as fast",
                "The instructions are the same. But are the wires that switch the same, too?",
            ),
        ),
        nudge="What limits the clock of a chip that has been working for a while?",
    ),
    Question(
        id="ch19-q5",
        asks="Six programs of 4 warps should fit on a multiprocessor. How many registers per thread may they "
        "use at most?",
        right=lambda: max(each for each in range(1, 256) if resident(each, 0, 4) >= 6),
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 85, "85 would fit, but registers are given out in steps of eight."),
            Nudge(lambda v, r: v == 88, "88 is rounded up. Six programs then need 67,584 registers."),
            Nudge(lambda v, r: v > 255, "A thread's share is smaller: a warp has 32 threads."),
        ),
        nudge="All programs share 65,536 registers. How many threads do six programs of 4 warps have?",
    ),
    Question(
        id="ch19-q6",
        asks="198 registers per thread, 147,456 bytes, 8 warps: what leaves no room for a second "
        'program, "registers", '
        '"shared memory" or "both"?',
        right=lambda: (
            "both"
            if resident(1, 147_456, 8) < 2 and resident(198, 0, 8) < 2
            else "registers"
            if resident(198, 0, 8) < 2
            else "shared memory"
        ),
        kind=str,
        nudge="Double the registers, then the shared memory. Compare each with what a multiprocessor has.",
    ),
    Question(
        id="ch19-q7",
        asks="One program per multiprocessor reads 0.88 TB/s. Which is the smallest number of programs with "
        "which memory is busy: 2, 4, 8 or 16?",
        right=_flights,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 4, "Multiply: 4 × 0.88 TB/s isn't what memory can deliver yet."),
            Nudge(lambda v, r: v == 16, "Half as many ask for more than memory can deliver, too."),
        ),
        nudge="As long as memory isn't busy, each program adds 0.88 TB/s. When do they reach 3.95?",
    ),
    Question(
        id="ch19-q8",
        asks="One program fills a multiprocessor, and there are 132. 128 programs take 51 µs. How many "
        "µs do 136 "
        "take (within 15%)?",
        right=_second_wave,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.15 * right,
        nudges=(
            Nudge(lambda v, r: 51 <= v < 60, "The last four programs can start only when others have ended."),
        ),
        nudge="How long does the last of them wait before it starts, and how long does it run?",
    ),
    Question(
        id="ch19-q9",
        asks="A bfloat16 matmul of two N x N matrices, each of three matrices moved once. From which N on is "
        "memory no longer its roof (within 3%)?",
        right=lambda: 3 * FLOPS / BYTES,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.03 * right,
        nudges=(
            Nudge(
                lambda v, r: abs(v - r / 3) < 0.03 * r / 3,
                "That's the number of FLOP per byte at the corner. Which N gives a matmul that many?",
            ),
            Nudge(
                lambda v, r: abs(v - 2 * r) < 0.06 * r,
                "A product counts two operations: a multiplication and an addition.",
            ),
            Nudge(
                lambda v, r: abs(v - r / 2) < 0.03 * r / 2,
                "A bfloat16 has two bytes, not one.",
            ),
        ),
        nudge="The matmul does 2 N³ operations. How many bytes are three matrices? At the corner both take "
        "equally long.",
    ),
    Question(
        id="ch19-q10",
        asks="Without tensor cores, an H200 computes 67 TFLOP/s. How many percent of that roof does flash "
        "attention reach (within 1)?",
        right=_of_its_own_roof,
        kind=float,
        same=lambda value, right: abs(value - right) <= 1,
        nudges=(
            Nudge(lambda v, r: 0.5 < v < 1, "That's its share of the tensor cores' roof."),
            Nudge(lambda v, r: abs(v - r / 100) < 0.02, "That's a fraction. How many percent is it?"),
        ),
        nudge="At 989 TFLOP/s it would take 35.7 µs. How long does it take at 67? It took 4,797.",
    ),
    Question(
        id="ch19-q11",
        asks="8 x 8 tiles, and now 24 programs at a time. How many panels do programs 0 to 23 need, row "
        "after row and in bands of 4 rows? A pair.",
        right=_panels,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == r[::-1], "It's the other way round: row after row comes first."),
            Nudge(
                lambda v, r: v == (9, 6),
                "(9, 6) is for 8 at a time, as in the picture. Here 24 run at a time.",
            ),
            Nudge(
                lambda v, r: v == (10, 8),
                "(10, 8) is for programs 0 to 15, the colored ones. Here eight more run with them.",
            ),
        ),
        nudge="Find programs 0 to 23 in the picture. In how many rows and in how many columns are they?",
    ),
    Question(
        id="ch19-q12",
        asks="132 tiles of 128 x 256 at a time. How many rows of tiles in a band fetch the least: 1, 2, 4, "
        "8, 16, 32 or 64?",
        right=_best_band,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 8, "Close. But a column of tiles is twice as wide as a row is high."),
        ),
        nudge="A wave should be roughly a square in elements, not in tiles.",
    ),
    Question(
        id="ch19-q13",
        asks="A matmul of 8192 fetches 3.12 GB row after row, 1.25 in bands of 16, which take 1.88 ms. How "
        "many times as long does it take row after row (to a tenth)?",
        right=_slower,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.051,
        nudges=(
            Nudge(
                lambda v, r: 2.3 < v < 2.7,
                "That's how many times the bytes it fetches. But is it bytes that the matmul waits for?",
            ),
            Nudge(lambda v, r: v < 0.9, "It fetches more bytes. That makes nothing faster."),
            Nudge(
                lambda v, r: 1.3 < v < 1.5,
                "You added the time of the extra bytes. But while the tensor cores work, fetching bytes "
                "costs no extra time.",
            ),
        ),
        nudge="How long does memory need for 3.12 GB? Compare that with the 1.88 ms that the matmul "
        "takes anyway.",
    ),
    Question(
        id="ch19-q14",
        asks="Profiles A to F: which kernel is which? Six names.",
        right=_profiles,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) == 6 and [a == "rows" for a in v] == [b == "bands" for b in r],
                "The two matmuls are swapped: one of them reads its inputs 48 times.",
            ),
            Nudge(lambda v, r: len(v) != 6, "Give one name for each of A, B, C, D, E and F."),
            *(Nudge(_of_six(hits), _hits(hits)) for hits in range(1, 5)),
        ),
        nudge="None of the six is right yet. Start where memory is the busiest: which kernel does nothing "
        "but move bytes?",
    ),
    Question(
        id="ch19-q15",
        asks=f"Keep at most {LEFT} of the 288 configurations, and lose at most 5%.",
        right=_pruned,
        kind=tuple,
        same=lambda value, right: len(value) == 4 and value[0] <= LEFT and max(value[1], value[3]) <= LOSS,
        nudges=(
            Nudge(
                lambda v, r: len(v) == 4 and v[1] > LOSS,
                "The best one that you kept is too slow. Which good configuration did you throw out?",
            ),
            Nudge(
                lambda v, r: len(v) == 4 and v[0] <= LEFT and v[2] == 0,
                "An H100 was also timed with 5 stages, and your rule keeps none of those 96 configurations. "
                "Is it a list of favorites?",
            ),
            Nudge(
                lambda v, r: len(v) == 4 and v[0] <= LEFT and v[3] > LOSS,
                "An H100 was also timed with 5 stages. Of those 96 configurations, your rule keeps none "
                "that runs within 5% of the best. What does it depend on besides the two limits?",
            ),
        ),
        nudge="You still keep too many. Use two limits: registers, and multiplications per loaded number.",
        computed=True,
    ),
    Question(
        id="ch19-q17",
        asks="z should become 3 and starts at 0. Autotune runs two configurations ten times each, then "
        "the better "
        "one once. What's in z afterwards?",
        right=_tuned,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 60, "60 is what the timed runs add. Don't forget the launch itself."),
        ),
        nudge="Each run adds 3 to what's already there. How many runs are there?",
    ),
    Question(
        id="ch19-q21",
        asks="z starts at 5 and should become 8. What's in z after the first launch with reset_to_zero, and "
        "with restore_value? A pair.",
        right=lambda: (3, 8),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == r[::-1], "It's the other way round: reset_to_zero comes first."),
            Nudge(
                lambda v, r: v == (8, 8),
                "restore_value is right. But reset_to_zero clears z once more, before the real launch.",
            ),
            Nudge(lambda v, r: v == (3, 3), "restore_value puts back what was there. What was it?"),
        ),
        nudge="What's in z just before the real launch? The kernel adds 3 to it.",
    ),
    Question(
        id="ch19-q22",
        asks="Each program counts its 1024 elements in 16 bins with tl.histogram, then adds the 16 sums. By "
        "which factor are there fewer atomics?",
        right=lambda: 1024 // 16,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 1024,
                "1024 would leave one atomic per program. How many sums does each program add?",
            ),
            Nudge(
                lambda v, r: v == 16, "16 is how many atomics a program makes now. How many was it before?"
            ),
        ),
        nudge="How many atomics does a program make for 1024 elements now, and how many with 16 sums?",
    ),
)
